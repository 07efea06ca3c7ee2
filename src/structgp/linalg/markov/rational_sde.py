"""A process whose spectrum is one over a polynomial that grows like the inverse of a Gaussian: the squared exponential, nearly.

The spectrum of exp(−t²/2) is ∝ exp(−ω²/2). Cut the series of its inverse after M terms, put ω² = −s² and factor,

    Σ_{k≤M} (−s²/2)^k / k!  ∝  χ(s) χ(−s),      χ with the M roots of negative real part.

1/|χ|² is the spectrum of χ(d/dt) f = white noise, M states. Time is counted in units 1/ρ, ρ the geometric mean of the roots'
sizes, so that in the state z_j = f^(j)/ρ^j everything is of order one, and the noise has the density that makes the variance
one (the cut alone would raise it). With p_i the roots in these units and u = ρ t,

    k(u) = Σ_i c_i e^{p_i u},  c_i ∝ 1/(χ′(p_i) χ(−p_i)),      V_jk = Σ_i c_i p_i^j (−p_i)^k,
    A(u) = Σ_i e^{p_i u} R_i,  R_i = (1, p_i, p_i², …)ᵀ (coefficients of χ(s)/(s − p_i)) / χ′(p_i),
    A = Σ F^k u^k/k!,  Q = Σ Q_k u^k,  Q_1 = q e eᵀ,  Q_{k+1} = (F Q_k + Q_k Fᵀ)/(k+1).

The series are used for small u, where every entry is right to its own scale; the sums over roots, and Q = V − A V Aᵀ, beyond.
The roots are found once for each M; a lengthscale only changes the unit of time. (Hartikainen & Särkkä, 2010.)
"""

import functools
import math
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from structgp.linalg.markov.chain_base import Chain, horner, number, spread

_NEAR = 1.5  # largest u for the series
TERMS = 28, 42  # of the series of A and of Q: what is left out is below 1e-17
_FAR = 700.0  # everything is forgotten beyond


class Constants(NamedTuple):
    """The numbers of the process with M states, in its own unit of time and at unit variance."""

    unit: float  # ρ
    roots: np.ndarray  # p, one of each conjugate pair
    weights: np.ndarray  # c, doubled for pairs
    residues: np.ndarray  # R, doubled for pairs
    generator: np.ndarray
    stationary: np.ndarray
    diffusion: float  # q


@functools.cache
def constants(M: int) -> Constants:
    """All numbers for M states."""
    series = [(-0.5) ** k / math.factorial(k) for k in range(M, -1, -1)]
    squares = np.roots(series).astype(complex)
    squares -= np.polyval(series, squares) / np.polyval(np.polyder(series), squares)
    s = np.sqrt(squares)
    s = np.where(s.real > 0, -s, s)
    unit = float(np.exp(np.mean(np.log(np.abs(s)))))
    p = s / unit
    chi = np.poly(p).real
    # products over the roots, not values of χ, which are small differences of large numbers
    others = [np.delete(p, i) for i in range(M)]
    slope = np.array([np.prod(root - rest) for root, rest in zip(p, others, strict=True)])
    c = 1 / (slope * np.prod(-p[:, None] - p, axis=1))
    diffusion = float(1 / c.sum().real)
    c = c * diffusion
    powers = p[:, None] ** np.arange(M)
    V = np.einsum("i,ij,ik->jk", c, powers, (-p[:, None]) ** np.arange(M)).real
    V[np.add.outer(np.arange(M), np.arange(M)) % 2 == 1] = 0.0
    left = np.stack([np.poly(rest)[::-1] for rest in others])
    R = powers[:, :, None] * left[:, None, :] / slope[:, None, None]
    F = np.eye(M, k=1)
    F[-1] = -chi[:0:-1]
    one = np.abs(p.imag) > 1e-9
    keep = (p.imag > 0) | ~one
    double = np.where(one, 2.0, 1.0)[keep]
    return Constants(unit, p[keep], double * c[keep], double[:, None, None] * R[keep], F, V, diffusion)


def correlation(distance: Float[Array, "*lags"], M: int) -> Float[Array, "*lags"]:
    """k at distances t ≥ 0, in units of the lengthscale."""
    numbers = constants(M)
    u = numbers.unit * distance
    wave = lambda p, c: jnp.exp(p.real * u) * (c.real * jnp.cos(p.imag * u) - c.imag * jnp.sin(p.imag * u))
    return sum(wave(p, c) for p, c in zip(numbers.roots, numbers.weights, strict=True))


@functools.cache
def largest_error(M: int) -> float:
    """max |k(t) − exp(−t²/2)| over all lags."""
    t, numbers = np.linspace(0.0, 40.0, 40_001), constants(M)
    k = np.real(np.exp(numbers.unit * np.outer(t, numbers.roots)) @ numbers.weights)
    return float(np.max(np.abs(k - np.exp(-0.5 * t**2))))


@functools.cache
def _series(M: int) -> tuple[np.ndarray, np.ndarray]:
    """F^k/k! and Q_k, all entries cut at the same power."""
    F, q = constants(M).generator, constants(M).diffusion
    A, Q = [np.eye(M)], [np.zeros((M, M)), q * np.diag(np.eye(M)[-1])]
    for k in range(1, max(TERMS)):
        A.append(F @ A[-1] / k)
        Q.append((F @ Q[-1] + Q[-1] @ F.T) / (k + 1))
    return np.stack(A[: TERMS[0]]), np.stack(Q[: TERMS[1]])


@functools.partial(jax.custom_jvp, nondiff_argnums=(1,))
def transition(u: Float[Array, "*gaps"], M: int) -> Float[Array, "M M *gaps"]:
    """A(u)."""
    numbers, v = constants(M), jnp.minimum(u, _FAR)
    far = sum(
        jnp.exp(p.real * v) * (spread(R.real, v) * jnp.cos(p.imag * v) - spread(R.imag, v) * jnp.sin(p.imag * v))
        for p, R in zip(numbers.roots, numbers.residues, strict=True)
    )
    return jnp.where(u < _NEAR, horner(_series(M)[0], jnp.minimum(u, _NEAR)), far)


@transition.defjvp
def _transition_jvp(M, primals, tangents):
    (u,), (du,) = primals, tangents
    A = transition(u, M)
    last = sum(a * A[j] for j, a in enumerate(constants(M).generator[-1]))
    return A, jnp.concatenate([A[1:], last[None]]) * du


@functools.partial(jax.custom_jvp, nondiff_argnums=(1,))
def noise(u: Float[Array, "*gaps"], M: int) -> Float[Array, "M M *gaps"]:
    """Q(u)."""
    A, V = transition(u, M), constants(M).stationary
    AV = [sum(A[:, k] * V[k, j] for k in range(M) if V[k, j]) for j in range(M)]
    far = spread(V, u) - sum(AV[j][:, None] * A[None, :, j] for j in range(M))
    return jnp.where(u < _NEAR, horner(_series(M)[1], jnp.minimum(u, _NEAR)), far)


@noise.defjvp
def _noise_jvp(M, primals, tangents):
    (u,), (du,) = primals, tangents
    c = transition(u, M)[:, -1]
    return noise(u, M), constants(M).diffusion * c[:, None] * c[None, :] * du


class Rational(Chain):
    """The process with `states` states that stands for variance · exp(−(rate · t)²/2)."""

    states: int = eqx.field(static=True)
    rate: Float[Array, ""] = number()
    variance: Float[Array, ""] = number(default=1.0)

    stationary = True

    @property
    def row(self):
        return np.eye(self.states)[0]

    def start(self):
        return self.variance * constants(self.states).stationary

    def generator(self):
        return constants(self.states).unit * self.rate * constants(self.states).generator

    def transition(self, gap):
        return transition(constants(self.states).unit * self.rate * gap, self.states)

    def noise(self, gap):
        return self.variance * noise(constants(self.states).unit * self.rate * gap, self.states)
