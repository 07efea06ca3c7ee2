"""Gaussian noise whose variance is a function as well: y ~ N(f, e^g), latents (g, f).

f is integrated out first. With p = 1, or the power to which the likelihood is taken, and g = m_g + δ,

    Z = ∫ N(δ; 0, V_gg) exp L dδ,   L = −½ (p e²/T + log(T/E) + p log 2πE),   E = e^g,   T = p S + E,
    e = y − m_f − (V_fg/V_gg) δ,   S = V_ff − V_fg²/V_gg,

one integral by the trapezoidal rule, around the peak of the integrand; its derivatives in the means are those of L.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy import special

from .._types import Numbers
from ..linalg import quadrature
from ..linalg.blocks import diagonals
from .base import Likelihood, held
from .gaussian import Gaussian

NODES, REACH = 161, 7.5  # of the rule, and how many standard deviations of g it goes to each side
POSITIONS = np.linspace(-REACH, REACH, NODES)
HALVINGS = 14  # on the way to the peak
SPREAD = 1.0  # variance of the log noise where learning starts


class HeteroscedasticGaussian(Likelihood):
    """y ~ N(f, e^g): the noise has a variance of its own at every place, whose logarithm g is the first of two latents.

    `GP(Independent(kernel_of_log_noise, kernel_of_signal), HeteroscedasticGaussian(), ConstantMean([-2.0, 0.0]))`: the typical
    log variance is the mean of g.
    """

    latents = 2
    coupled = True
    latent_names = ("log noise", "signal")
    default_inference = "ep"
    inferences = ("ep", "power-ep", "variational")

    @property
    def signal(self) -> tuple[int, Likelihood]:
        return 1, Gaussian(0.0)

    def log_prob(self, y: Numbers, f: Numbers, extra: Numbers = 1.0) -> Numbers:
        g, f = f[..., 0], f[..., 1]
        return -0.5 * ((y - f) ** 2 * jnp.exp(-g) + g + math.log(2 * math.pi))

    def log_tilted(self, y: Numbers, mean: Numbers, variance: Numbers, power: Numbers = 1.0, extra: Numbers = 1.0) -> Numbers:
        return self.tilted_derivatives(y, mean, variance, power, extra)[0]

    def tilted_derivatives(
        self, y: Numbers, mean: Numbers, variance: Numbers, power: Numbers = 1.0, extra: Numbers = 1.0
    ) -> tuple[Numbers, Numbers, Numbers]:
        belief, p = _Belief.of(y, mean, variance), power
        sd, peak = jnp.sqrt(belief.width), belief.peak(p)

        def at(position: Any) -> tuple[Any, ...]:
            delta = peak + sd * position
            L, e, E, T = belief.exponent(p, delta)
            return L - 0.5 * (delta / sd) ** 2, e, E, T

        height = held(at(0.0)[0])

        def terms(position: Any) -> tuple[Any, ...]:
            log, e, E, T = at(position)
            weight, part = jnp.exp(log - height), E / T
            to_f, to_g = p * e / T, 0.5 * (p * e**2 * part / T - part + 1 - p)
            bend_g = 0.5 * (p * e**2 * part / T * (1 - 2 * part) - part * (1 - part))
            first = weight, weight * to_f, weight * to_g
            return *first, weight * (to_f**2 - p / T), weight * (to_f * to_g - to_f * part), weight * (to_g**2 + bend_g)

        total, f, g, ff, fg, gg = quadrature.node_sums(terms, (POSITIONS,), height)
        f, g, ff, fg, gg = (part / total for part in (f, g, ff, fg, gg))
        step = (POSITIONS[1] - POSITIONS[0]) / math.sqrt(2 * math.pi)
        rows = [g * g - gg, g * f - fg], [g * f - fg, f * f - ff]
        k = jnp.stack([jnp.stack(row, axis=-1) for row in rows], axis=-2)
        apart = np.ndim(variance) == np.ndim(mean)
        bend = jnp.diagonal(k, axis1=-2, axis2=-1) if apart else k
        return height + jnp.log(total * step), jnp.stack([g, f], axis=-1), bend

    def expected_log_prob(self, y: Numbers, mean: Numbers, variance: Numbers, extra: Numbers = 1.0) -> Numbers:
        V = _full(mean, variance)
        m_g, m_f = mean[..., 0], mean[..., 1]
        missed = (y - m_f + V[..., 0, 1]) ** 2 + V[..., 1, 1]
        return -0.5 * (math.log(2 * math.pi) + m_g + jnp.exp(-m_g + 0.5 * V[..., 0, 0]) * missed)

    def suggested(self, y: np.ndarray, extra: np.ndarray | None, noisy: float) -> tuple[Likelihood, Any, Any]:
        like, level, spread = Gaussian().suggested(y, extra, noisy)
        return self, np.array([np.log(float(like.noise)), level]), np.array([SPREAD, spread])  # type: ignore[attr-defined]

    def moments(self, f: Numbers, extra: Numbers = 1.0) -> tuple[Numbers, Numbers]:
        return f[..., 1], jnp.exp(f[..., 0])

    def observed(self, mean: Numbers, variance: Numbers, extra: Numbers = 1.0) -> tuple[Numbers, Numbers]:
        V = _full(mean, variance)
        return mean[..., 1], V[..., 1, 1] + jnp.exp(mean[..., 0] + 0.5 * V[..., 0, 0])

    def predictive_cumulative(self, y: Any, mean: Any, variance: Any, extra: Any = 1.0) -> np.ndarray:
        belief = _Belief.of(np.asarray(y), np.asarray(mean), np.asarray(variance))
        weights = np.exp(-0.5 * POSITIONS**2)
        below: Any = 0.0
        for position, weight in zip(POSITIONS, weights / weights.sum(), strict=True):
            delta = np.sqrt(belief.width) * position
            below = below + weight * special.ndtr(belief.missed(delta) / np.sqrt(belief.left + np.exp(belief.level + delta)))
        return below

    def sample(self, rng: np.random.Generator, f: Any, extra: Any = 1.0) -> np.ndarray:
        g, f = np.asarray(f)[..., 0], np.asarray(f)[..., 1]
        return f + np.exp(0.5 * g) * rng.standard_normal(np.shape(f))


class _Belief:
    """m_g and V_gg, the residual y − m_f, how f follows g, and what g leaves open of f."""

    def __init__(self, level: Any, width: Any, residual: Any, follows: Any, left: Any) -> None:
        self.level, self.width, self.residual, self.follows, self.left = level, width, residual, follows, left

    @classmethod
    def of(cls, y: Any, mean: Any, variance: Any) -> _Belief:
        V = _full(mean, variance)
        width, shared = V[..., 0, 0], V[..., 0, 1]
        follows = shared / width
        return cls(mean[..., 0], width, y - mean[..., 1], follows, V[..., 1, 1] - shared * follows)

    def missed(self, delta: Any) -> Any:
        """e."""
        return self.residual - self.follows * delta

    def exponent(self, p: Any, delta: Any) -> tuple[Any, Any, Any, Any]:
        """L, e, E and T."""
        g = self.level + delta
        e, E = self.missed(delta), jnp.exp(g)
        T = p * self.left + E
        return -0.5 * (p * e**2 / T + jnp.log(T) - g + p * (math.log(2 * math.pi) + g)), e, E, T

    def peak(self, p: Any) -> Any:
        """About where the integrand is largest, if f did not follow g: between where noise is small and where it takes all."""
        level, width, square, left = held((self.level, self.width, self.residual**2, self.left))
        low = -0.5 * width * jnp.ones_like(square)
        steepest = 0.5 * (
            square * jnp.minimum(0.25 / jnp.maximum(left, 1e-300), p * jnp.exp(-level)) + 1
        )  # of L, where δ is positive
        high = jnp.minimum(jnp.maximum(jnp.log(square + 1e-300) - level, 0.0) + 0.5 * width, width * steepest)

        def halve(ends: Any, _: Any) -> tuple[Any, None]:
            low, high = ends
            middle = 0.5 * (low + high)
            E = jnp.exp(level + middle)
            T = p * left + E
            rises = -middle / width + 0.5 * (p * square * E / T**2 - E / T + 1 - p) > 0
            return (jnp.where(rises, middle, low), jnp.where(rises, high, middle)), None

        (low, high), _ = jax.lax.scan(halve, (low, high), None, length=HALVINGS)
        return 0.5 * (low + high)


def _full(mean: Any, variance: Any) -> Any:
    return variance if np.ndim(variance) > np.ndim(mean) else diagonals(variance)
