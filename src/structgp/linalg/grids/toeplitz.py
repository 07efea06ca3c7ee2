"""Symmetric Toeplitz matrices C = T(k) + noise·I, by fast Fourier transforms: O(N log N).

- log|C| by the strong Szegő limit: with f(ω) = noise + Σ_j k_j e^{ijω} and c the Fourier coefficients of log f (its cepstrum),

      log|C| = N c₀ + Σ_{j≥1} j c_j² + a remainder that vanishes with c_j for j > N.

- All of C⁻¹ is in its first column x (Gohberg and Semencul): C⁻¹ = (L₁L₁ᵀ − L₂L₂ᵀ)/x₁ with lower Toeplitz matrices of first
  columns x and (0, x_N, …, x₂). So a solution takes six transforms, and sums along the diagonals of C⁻¹, which the gradient of
  log|C| is made of, are correlations. At low noise the two terms nearly cancel; one step of refinement makes up for it.
- x by conjugate gradients with the inverse symbol: P⁻¹r are the first N entries of S⁻¹[r; 0], S the circulant of length 2N that
  continues k evenly. They take few steps where k fades.
- Where it does not (c dies out too slowly, or f is not positive), Durbin's recursion gives x and log|C| in O(N²).
- Places that were not seen are taken out of C⁻¹ again (`unseen`), by one solution for each.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from ..krylov import conjugate_gradients
from .unseen import Unseen

TOLERANCE = 1e-11
MOST = 2000  # steps of conjugate gradients
REMAINDER = 1e-7  # of the limit that may be left out, in the units of log|C|
NEGATIVE = 1e-8  # of the noise: how far rounding may push the symbol below zero; log|C| is off by less than N times that
LONGEST = 50_000  # rows up to which Durbin's recursion steps in


def lags_needed(N: int) -> int:
    """How many values of k are looked at: more than N, because the symbol wants the whole of k."""
    return 8 * N + 1 if N < 100_000 else 2 * N + 1


def spectrum(k: Float[Array, " L"]) -> Float[Array, " L"]:
    """The eigenvalues of the circulant that continues k₀ … k_{L−1} evenly."""
    return jnp.fft.rfft(jnp.concatenate([k, k[-2:0:-1]])).real


def filtered(values: Float[Array, " F"], x: Float[Array, "*B N"]) -> Float[Array, "*B N"]:
    """The first N entries of the circulant with these eigenvalues times [x; 0]."""
    size = 2 * (len(values) - 1)
    return jnp.fft.irfft(values * jnp.fft.rfft(x, size), size)[..., : x.shape[-1]]


def product(k: Float[Array, " L"], noise: Float[Array, ""] | float, X: Float[Array, "*B N"]) -> Float[Array, "*B N"]:
    """C x for each x; `k` holds more than N lags."""
    return filtered(spectrum(k[: X.shape[-1] + 1]), X) + noise * X


def solve(
    k: Float[Array, " L"],
    noise: Float[Array, ""] | float,
    first: Float[Array, " N"],
    B: Float[Array, "*B N"],
    unseen: Unseen | None = None,
) -> Float[Array, "*B N"]:
    """C⁻¹b for each b, from the first column of C⁻¹; of the places that were seen, zero at the others."""
    X = _applied(first, B, unseen)
    return X + _applied(first, B - product(k, noise, X), unseen)


def _applied(first: Float[Array, " N"], B: Float[Array, "*B N"], unseen: Unseen | None) -> Float[Array, "*B N"]:
    of_all = functools.partial(_by_first_column, first)
    return of_all(B) if unseen is None else unseen.taken_out(of_all, B)


def explained(
    k: Float[Array, " L"],
    noise: Float[Array, ""] | float,
    first: Float[Array, " N"],
    B: Float[Array, "M N"],
    unseen: Unseen | None = None,
) -> Float[Array, " M"]:
    """bᵀC⁻¹b for each b, with an error of second order in that of the solution x: bᵀx + xᵀ(b − Cx).

    So x need not be refined: what refinement takes away is squared here anyway.
    """
    X = _applied(first, B, unseen)
    return jnp.sum(X * (2 * B - product(k, noise, X)), axis=1)


def all_explained(
    k: Float[Array, " L"],
    noise: Float[Array, ""] | float,
    first: Float[Array, " N"],
    B: Float[Array, "M N"],
    unseen: Unseen | None = None,
) -> Float[Array, "M M"]:
    """BC⁻¹Bᵀ, in the same way."""
    X = _applied(first, B, unseen)
    forms = X @ (2 * B - product(k, noise, X)).T
    return 0.5 * (forms + forms.T)


def _by_first_column(first: Float[Array, " N"], B: Float[Array, "*B N"]) -> Float[Array, "*B N"]:
    N = len(first)
    waves = lambda x: jnp.fft.rfft(x, 2 * N)
    B_waves = waves(B)

    def times_its_transpose(column: Float[Array, " N"]) -> Array:
        L = waves(column)
        return L * waves(jnp.fft.irfft(jnp.conj(L) * B_waves, 2 * N)[..., :N])

    both = times_its_transpose(first) - times_its_transpose(_mirrored(first))
    return jnp.fft.irfft(both, 2 * N)[..., :N] / first[0]


def correlation(x: Float[Array, " N"], y: Float[Array, " N"]) -> Float[Array, " N"]:
    """Σ_i x_i y_{i+j} for j = 0 … N−1."""
    size = 2 * len(x)
    return jnp.fft.irfft(jnp.conj(jnp.fft.rfft(x, size)) * jnp.fft.rfft(y, size), size)[: len(x)]


def diagonal_sums(first: Float[Array, " N"], unseen: Unseen | None = None) -> Float[Array, " N"]:
    """Σ_i (C⁻¹)_{i, i+j} for j = 0 … N−1, from the first column of C⁻¹; of the places that were seen."""
    N = len(first)
    along = lambda column: correlation(column, (N - jnp.arange(N)) * column)
    whole = (along(first) - along(_mirrored(first))) / first[0]
    if unseen is None:
        return whole
    power = jnp.sum(jnp.abs(jnp.fft.rfft(unseen.U, 2 * N)) ** 2, axis=0)
    return whole - jnp.fft.irfft(power, 2 * N)[:N]


def inverse_diagonal(first: Float[Array, " N"], unseen: Unseen | None = None) -> Float[Array, " N"]:
    """The diagonal of C⁻¹ from its first column; of the places that were seen, zero at the others."""
    whole = jnp.cumsum(first**2 - _mirrored(first) ** 2) / first[0]
    return whole if unseen is None else unseen.diagonal(whole)


def _mirrored(first: Float[Array, " N"]) -> Float[Array, " N"]:
    return jnp.concatenate([jnp.zeros(1), first[:0:-1]])


class Inverse(NamedTuple):
    """The first column of C⁻¹, log|C| with how far it may be off, and what some places without a value take away from C⁻¹."""

    first: Float[Array, " N"]
    log_det: Float[Array, ""]
    error: Float[Array, ""]
    unseen: Unseen | None = None


def inverse(k: Float[Array, " L"], noise: Float[Array, ""], N: int, unseen: Int[Array, " H"] | None = None) -> Inverse:
    """C⁻¹ and log|C| for N rows: by the limit where that is good, else by recursion while N allows it; without some places."""
    by_limit, remainder, good = _by_limit(k, noise, N)
    unit = jnp.zeros(N).at[0].set(1.0)
    by_waves = lambda: (_by_inverse_symbol(k, noise, unit), by_limit)
    if N > LONGEST:
        first, value = by_waves()
    else:
        first, value = jax.lax.cond(good, by_waves, lambda: _by_recursion(k[:N].at[0].add(noise)))
        remainder = jnp.where(good, remainder, 0.0)
    first = first + _by_first_column(first, unit - product(k, noise, first))
    if unseen is None:
        return Inverse(first, value, remainder)
    out, more = Unseen.of(unseen, N, functools.partial(solve, k, noise, first), functools.partial(product, k, noise))
    return Inverse(first, value + more, remainder, out)


def _by_inverse_symbol(k: Float[Array, " L"], noise: Float[Array, ""], b: Float[Array, " N"]) -> Float[Array, " N"]:
    symbol = spectrum(k[: len(b) + 1])
    apply = lambda x: filtered(symbol, x) + noise * x
    roughly = functools.partial(filtered, 1 / (jnp.maximum(symbol, 0.0) + noise))
    return conjugate_gradients(apply, roughly, b, TOLERANCE, MOST).x


def _by_limit(k: Float[Array, " L"], noise: Float[Array, ""], N: int) -> tuple[Array, Array, Bool[Array, ""]]:
    symbol = spectrum(k)
    lowest = jnp.min(symbol)
    c = jnp.fft.irfft(jnp.log(jnp.maximum(symbol, 0.0) + noise))[: len(k)]
    terms = jnp.arange(len(k)) * c**2
    left_out = jnp.sum(terms[N:])
    error = left_out + N * jnp.maximum(-lowest, 0.0) / noise
    return N * c[0] + jnp.sum(terms), error, (left_out < REMAINDER) & (lowest > -NEGATIVE * noise)


def _by_recursion(k: Float[Array, " N"]) -> tuple[Float[Array, " N"], Float[Array, ""]]:
    """Durbin: the weights of each value given those before it, and log|C|, the sum of the logarithms of what these leave open.

    With the weights a (a₀ = 1, −a_j that of the value j places back) and the last variance v the first column is a/v.
    """
    N = len(k)
    backwards = jnp.concatenate([k[::-1], jnp.zeros(N)])  # backwards[N − 1 − m] = k_m
    moved = lambda x: jnp.concatenate([jnp.zeros(1), x[:-1]])

    def step(i: Array, state: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
        a, mirrored, variance, total = state  # a_j for j < i, zero beyond, and a_{i−j} at place j
        k_from = jax.lax.dynamic_slice(backwards, (N - 1 - i,), (N,))  # k_{i−j} at place j
        turn = -jnp.sum(a * k_from) / variance
        variance = variance * (1 - turn**2)
        return a + turn * mirrored, moved(mirrored + turn * a), variance, total + jnp.log(variance)

    unit = jnp.zeros(N).at[0].set(1.0)
    a, _, variance, total = jax.lax.fori_loop(1, N, step, (unit, moved(unit), k[0], jnp.log(k[0])))
    return a / variance, total


@jax.custom_vjp
def log_det_and_gram(
    k: Float[Array, " L"],
    noise: Float[Array, ""],
    T: Float[Array, "C N"],
    places: Int[Array, " H"] | None = None,
) -> tuple[Float[Array, ""], Float[Array, "C C"]]:
    """log|C| and TᵀC⁻¹T, differentiable in k, in the noise and in T; without the rows at some places."""
    return _forward(k, noise, T, places)[0]


def _forward(
    k: Array, noise: Array, T: Array, places: Array | None
) -> tuple[tuple[Array, Array], tuple[Array, Inverse, Array]]:
    found = inverse(k, noise, T.shape[1], places)
    alpha = solve(k, noise, found.first, T, found.unseen)
    gram = T @ alpha.T
    return (found.log_det, 0.5 * (gram + gram.T)), (k, found, alpha)


def _backward(saved: tuple[Array, Inverse, Array], adjoints: tuple[Array, Array]) -> tuple[Array, Array, Array, None]:
    k, (first, _, _, unseen), alpha = saved
    of_log_det, of_gram = adjoints
    weighted = 0.5 * (of_gram + of_gram.T) @ alpha
    explained = sum(0.5 * (correlation(a, b) + correlation(b, a)) for a, b in zip(alpha, weighted, strict=True))
    sums = of_log_det * diagonal_sums(first, unseen) - explained
    twice = sums * jnp.where(jnp.arange(len(first)) > 0, 2.0, 1.0)  # each lag but the first stands on both sides
    return jnp.zeros_like(k).at[: len(first)].set(twice), sums[0], 2 * weighted, None


log_det_and_gram.defvjp(_forward, _backward)
