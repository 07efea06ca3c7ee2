"""A regular line on which some values are seen, each with a precision of its own: white coordinates by Fourier transforms.

A stationary covariance at N even steps is a corner of a circulant of M ≥ N rows, once M reaches so far that the covariance has
died out, or is continued evenly (M = 2N). Its eigenvectors are the real waves cas(2πkx/M)/√M, cas = cos + sin, so that

    K = QΛQ,   F = QΛ^{½},   H = I + Λ^{½}QWQΛ^{½},   cas a · cas b = cos(a − b) + sin(a + b),

and every entry of H is at hand from the Fourier coefficients of w. The steps beyond N are never seen: there w = 0. `two_levels`
does the rest. The covariance enters by its eigenvalues alone, so that the diagonal of H⁻¹ is all that a gradient needs,

    ∂log|H|/∂λ_k = (1 − (H⁻¹)_kk)/λ_k,   ∂(hᵀΣh)/∂λ_k = (Qα)_k²,   α = h − W mean.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from .toeplitz import spectrum
from .two_levels import Effort, Probed, TwoLevels, log_det_of, means, probe

NEGLIGIBLE = 1e-9  # eigenvalues below this part of what the data could tell are left to P alone


def waves(x: Float[Array, "... M"]) -> Float[Array, "... M"]:
    """Q x, which is its own inverse, for an even M."""
    M = x.shape[-1]
    X = jnp.fft.rfft(x, norm="ortho")
    return jnp.concatenate([X.real - X.imag, (X.real + X.imag)[..., M // 2 - 1 : 0 : -1]], axis=-1)


def eigenvalues(k: Float[Array, " L"]) -> Float[Array, " M"]:
    """Λ for the covariances at lags 0 … M/2, one for each wave."""
    half = jnp.maximum(spectrum(k), 0.0)
    return jnp.concatenate([half, half[-2:0:-1]])


class LineSystem(NamedTuple):
    """H in the coordinates of waves, and what stands for it."""

    values: Float[Array, " M"]
    w: Float[Array, " M"]
    levels: TwoLevels

    def spread(self, z: Float[Array, "*C M"]) -> Float[Array, "*C M"]:
        """F z for several z."""
        return waves(jnp.sqrt(self.values) * z)

    def gather(self, x: Float[Array, "*C M"]) -> Float[Array, "*C M"]:
        """Fᵀx for several x."""
        return jnp.sqrt(self.values) * waves(x)

    def apply(self, z: Float[Array, " M"]) -> Float[Array, " M"]:
        """H z."""
        return z + self.gather(self.w * self.spread(z))


def build(values: Float[Array, " M"], w: Float[Array, " M"], effort: Effort) -> LineSystem:
    """H for these eigenvalues and precisions; the block holds the waves with the largest eigenvalues."""
    _, modes = jax.lax.top_k(values, min(effort.modes, len(values)))
    diagonal, block = _entries(values, modes, w)
    return LineSystem(values, w, TwoLevels.of(modes, jnp.eye(len(modes)) + block, 1 + diagonal))


def _entries(
    values: Float[Array, " M"], modes: Int[Array, " r"], w: Float[Array, " M"]
) -> tuple[Float[Array, " M"], Float[Array, "r r"]]:
    """The diagonal of Λ^{½}QWQΛ^{½}, and the block of some modes: linear in w."""
    M, W = len(w), jnp.fft.rfft(w) / len(w)
    cosines = jnp.concatenate([W.real, W.real[-2:0:-1]])
    sines = jnp.concatenate([-W.imag, W.imag[-2:0:-1]])
    root, a = jnp.sqrt(values[modes]), modes[:, None]
    block = root[:, None] * root * (cosines[(a - modes) % M] + sines[(a + modes) % M])
    return values * (cosines[0] + sines[2 * jnp.arange(M) % M]), block


def variances(system: LineSystem, probed: Probed) -> Float[Array, " M"]:
    """diag(F H⁻¹Fᵀ), the variance left at every step: that of P, and what the probes add to it."""
    levels = system.levels
    # The adjoint of w ↦ the entries of H spreads them over the steps.
    spread = jax.vjp(functools.partial(_entries, system.values, levels.modes), system.w)[1]
    found = spread(((1 - levels.inside) / levels.diagonal, levels.inverse))[0]
    if not len(probed.easy):
        return found
    return found + jnp.mean(system.spread(probed.solved - probed.easy) * system.spread(probed.easy), axis=0)


@functools.partial(jax.custom_vjp, nondiff_argnums=(3,))
def log_det_and_gram(
    values: Float[Array, " M"], w: Float[Array, " M"], h: Float[Array, "C M"], effort: Effort
) -> tuple[Float[Array, ""], Float[Array, "C C"]]:
    """log|I + KW| and hᵀ(K⁻¹ + W)⁻¹h, differentiable in the eigenvalues, in w and in h."""
    return _forward(values, w, h, effort)[0]


def _forward(values: Array, w: Array, h: Array, effort: Effort) -> tuple[tuple[Array, Array], tuple]:
    system = build(values, w, effort)
    probed, found = probe(system, effort), means(system, h, effort)
    return (log_det_of(system, probed).value, found.gram), (system, probed, h, found.mean)


def _backward(effort: Effort, saved: tuple, adjoints: tuple[Array, Array]) -> tuple[Array, Array, Array]:
    system, probed, h, mean = saved
    of_log_det, of_gram = adjoints
    S = 0.5 * (of_gram + of_gram.T)
    alpha = waves(h - system.w * mean)
    to_values = of_log_det * _slope(system, probed) + jnp.sum(alpha * (S @ alpha), axis=0)
    to_h = S @ mean
    to_w = of_log_det * variances(system, probed) - jnp.sum(to_h * mean, axis=0)
    return to_values, to_w, 2 * to_h


log_det_and_gram.defvjp(_forward, _backward)


def _slope(system: LineSystem, probed: Probed) -> Float[Array, " M"]:
    """∂log|H|/∂λ = (1 − diag H⁻¹)/λ; outside the block diag P⁻¹ leaves (QWQ)_kk/H_kk, whatever λ is."""
    levels, values = system.levels, system.values
    told = values * jnp.max(system.w) > NEGLIGIBLE
    safe = jnp.where(told, values, 1.0)
    outside = _entries(jnp.ones_like(values), levels.modes[:0], system.w)[0] / levels.diagonal
    block = (1 - jnp.diagonal(levels.inverse)) / safe[levels.modes]
    exact = outside.at[levels.modes].set(jnp.where(told[levels.modes], block, outside[levels.modes]))
    if not len(probed.easy):
        return exact
    return exact + jnp.where(told, jnp.mean((probed.easy - probed.solved) * probed.easy, axis=0) / safe, 0.0)
