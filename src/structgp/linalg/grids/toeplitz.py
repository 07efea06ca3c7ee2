"""Symmetric Toeplitz matrices C = T(k) + noise·I, by fast Fourier transforms: O(N log N).

- Solutions by conjugate gradients with the inverse symbol: P⁻¹r are the first N entries of S⁻¹[r; 0], S the circulant of length
  2N that continues k evenly.
- log|C| by the strong Szegő limit: with f(ω) = noise + Σ_j k_j e^{ijω} and c the Fourier coefficients of log f (its cepstrum),

      log|C| = N c₀ + Σ_{j≥1} j c_j² + a remainder that vanishes with c_j for j > N.

  Where c dies out too slowly, or f is not positive, Durbin's recursion gives log|C| in O(N²).
- Its gradient exactly, from x = C⁻¹e₁ alone (Gohberg and Semencul): C⁻¹ = (L₁L₁ᵀ − L₂L₂ᵀ)/x₁ with lower Toeplitz matrices of
  first columns x and (0, x_N, …, x₂), so that sums along the diagonals of C⁻¹ are correlations.
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ..krylov import conjugate_gradients

TOLERANCE = 1e-11
MOST = 2000  # steps of conjugate gradients
REMAINDER = 1e-7  # of the limit that may be left out, in the units of log|C|
NEGATIVE = 1e-10  # how far below zero the symbol may fall, in units of the noise
LONGEST = 50_000  # rows up to which Durbin's recursion steps in


def lags_needed(N: int) -> int:
    """How many values of k are looked at: more than N, because the symbol wants the whole of k."""
    return 8 * N + 1 if N < 100_000 else 2 * N + 1


def spectrum(k: Float[Array, " L"]) -> Float[Array, " L"]:
    """The eigenvalues of the circulant that continues k₀ … k_{L−1} evenly."""
    return jnp.fft.rfft(jnp.concatenate([k, k[-2:0:-1]])).real


def filtered(values: Float[Array, " F"], x: Float[Array, " N"]) -> Float[Array, " N"]:
    """The first N entries of the circulant with these eigenvalues times [x; 0]."""
    size = 2 * (len(values) - 1)
    return jnp.fft.irfft(values * jnp.fft.rfft(x, size), size)[: len(x)]


def solve(k: Float[Array, " L"], noise: Float[Array, ""] | float, B: Float[Array, "C N"]) -> Float[Array, "C N"]:
    """C⁻¹b for each b; `k` holds more than N lags."""
    values = spectrum(k[: B.shape[1] + 1])
    apply = lambda x: filtered(values, x) + noise * x
    inverse = 1 / (jnp.maximum(values, 0.0) + noise)
    return jax.lax.map(lambda b: conjugate_gradients(apply, functools.partial(filtered, inverse), b, TOLERANCE, MOST).x, B)


def correlation(x: Float[Array, " N"], y: Float[Array, " N"]) -> Float[Array, " N"]:
    """Σ_i x_i y_{i+j} for j = 0 … N−1."""
    size = 2 * len(x)
    return jnp.fft.irfft(jnp.conj(jnp.fft.rfft(x, size)) * jnp.fft.rfft(y, size), size)[: len(x)]


def diagonal_sums(first: Float[Array, " N"]) -> Float[Array, " N"]:
    """Σ_i (C⁻¹)_{i, i+j} for j = 0 … N−1, from the first column of C⁻¹."""
    N = len(first)
    along = lambda column: correlation(column, (N - jnp.arange(N)) * column)
    return (along(first) - along(_mirrored(first))) / first[0]


def inverse_diagonal(first: Float[Array, " N"]) -> Float[Array, " N"]:
    """The diagonal of C⁻¹ from its first column."""
    return jnp.cumsum(first**2 - _mirrored(first) ** 2) / first[0]


def _mirrored(first: Float[Array, " N"]) -> Float[Array, " N"]:
    return jnp.concatenate([jnp.zeros(1), first[:0:-1]])


def log_det(k: Float[Array, " L"], noise: Float[Array, ""], N: int) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """log|C| for N rows, and how far it may be off: by the limit where that is good, else by recursion while N allows it."""
    by_limit, remainder, good = _by_limit(k, noise, N)
    if N > LONGEST:
        return by_limit, remainder
    value = jax.lax.cond(good, lambda: by_limit, lambda: _by_recursion(k[:N].at[0].add(noise)))
    return value, jnp.where(good, remainder, 0.0)


def _by_limit(k: Float[Array, " L"], noise: Float[Array, ""], N: int) -> tuple[Array, Array, Bool[Array, ""]]:
    symbol = spectrum(k)
    lowest = jnp.min(symbol)
    c = jnp.fft.irfft(jnp.log(jnp.maximum(symbol, 0.0) + noise))[: len(k)]
    terms = jnp.arange(len(k)) * c**2
    remainder = jnp.sum(terms[N:]) + N * jnp.maximum(-lowest, 0.0) / noise
    return N * c[0] + jnp.sum(terms), remainder, (remainder < REMAINDER) & (lowest > -NEGATIVE * noise)


def _by_recursion(k: Float[Array, " N"]) -> Float[Array, ""]:
    """Durbin: log|C| is the sum of the logarithms of the variances of each value given those before it."""
    N = len(k)
    places = jnp.arange(N)
    backwards = jnp.concatenate([k[::-1], jnp.zeros(N)])  # backwards[N − 1 − m] = k_m

    def step(i: Array, state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        a, variance, total = state  # a_j, the weights of the value j places back, for j = 1 … i − 1 at a[1:i]
        before = (places > 0) & (places < i)
        k_from = jax.lax.dynamic_slice(backwards, (N - 1 - i,), (N,))  # k_{i−j} at place j
        turn = -(k[i] + jnp.sum(jnp.where(before, a * k_from, 0.0))) / variance
        mirrored = jax.lax.dynamic_slice(jnp.concatenate([a[::-1], jnp.zeros(N)]), (N - 1 - i,), (N,))  # a_{i−j} at place j
        a = jnp.where(before, a + turn * mirrored, jnp.where(places == i, turn, a))
        variance = variance * (1 - turn**2)
        return a, variance, total + jnp.log(variance)

    return jax.lax.fori_loop(1, N, step, (jnp.zeros(N), k[0], jnp.log(k[0])))[2]


@jax.custom_vjp
def log_det_and_gram(
    k: Float[Array, " L"], noise: Float[Array, ""], T: Float[Array, "C N"]
) -> tuple[Float[Array, ""], Float[Array, "C C"]]:
    """log|C| and TᵀC⁻¹T, differentiable in k, in the noise and in T."""
    return _forward(k, noise, T)[0]


def _forward(k: Array, noise: Array, T: Array) -> tuple[tuple[Array, Array], tuple[Array, Array, Array]]:
    N = T.shape[1]
    solved = solve(k, noise, jnp.concatenate([T, jnp.zeros((1, N)).at[0, 0].set(1.0)]))
    alpha = solved[:-1]
    gram = T @ alpha.T
    return (log_det(k, noise, N)[0], 0.5 * (gram + gram.T)), (k, solved[-1], alpha)


def _backward(saved: tuple[Array, Array, Array], adjoints: tuple[Array, Array]) -> tuple[Array, Array, Array]:
    k, first, alpha = saved
    of_log_det, of_gram = adjoints
    weighted = 0.5 * (of_gram + of_gram.T) @ alpha
    explained = sum(0.5 * (correlation(a, b) + correlation(b, a)) for a, b in zip(alpha, weighted, strict=True))
    sums = of_log_det * diagonal_sums(first) - explained
    twice = sums * jnp.where(jnp.arange(len(first)) > 0, 2.0, 1.0)  # each lag but the first stands on both sides
    return jnp.zeros_like(k).at[: len(first)].set(twice), sums[0], 2 * weighted


log_det_and_gram.defvjp(_forward, _backward)
