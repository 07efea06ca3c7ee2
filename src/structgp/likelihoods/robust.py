"""Noise with outliers.

Student-t noise is Gaussian noise of random precision, (1 + r²/c)^(−a) = ∫ u^(a−1) exp(−u − u r²/c) du / Γ(a), and every u is
integrated against a Gaussian belief in closed form. What is left is one smooth integral over log u, the same for every power of
the density; an integration by parts makes it harmless for a → 0. Likewise log(1 + x) = ∫ (1 − exp(−u x)) exp(−u) du/u.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammainc, gammaln
from scipy import special

from .._types import Numbers
from ..linalg import quadrature
from ..linalg.normal import log_ndtr, log_scaled_tail
from ..parameters.supports import interval, positive
from ..parameters.tree import parameter
from .base import Likelihood, factor, held, is_one
from .gaussian import log_normal

NODES = 128  # of the integral over log u
POSITIONS = np.linspace(0.0, 1.0, NODES)
OUTSIDE = 3.0  # times as wide as its scale Student-t noise is at outliers


class StudentT(Likelihood):
    """y = f + scale · t, where t has Student's distribution with `df` degrees of freedom.

    `df` stays above 2.05, where the variance is finite: left free, a few outliers drive it to ever heavier tails. An outlier,
    where one is asked for, is an observation whose noise, Gaussian of random width, was at least 3 times as wide as `scale`.
    """

    df: Numbers = parameter(4.0, interval(2.05, 200.0))
    scale: Numbers = parameter(1.0, positive)

    def log_prob(self, y: Numbers, f: Numbers, extra: Numbers = 1.0) -> Numbers:
        return self._constant() - 0.5 * (self.df + 1) * jnp.log1p((y - f) ** 2 / self._width())

    def _width(self) -> Any:
        return self.df * self.scale**2

    def _constant(self) -> Any:
        return gammaln(0.5 * (self.df + 1)) - gammaln(0.5 * self.df) - 0.5 * jnp.log(jnp.pi * self._width())

    def curvature_bound(self, y: Numbers, f: Numbers, extra: Numbers = 1.0) -> Numbers:
        return (self.df + 1) / (self._width() + (y - f) ** 2)

    def log_tilted(self, y: Numbers, mean: Numbers, variance: Numbers, power: Numbers = 1.0, extra: Numbers = 1.0) -> Numbers:
        a, q, tau = self._ratios(y, mean, variance, power)
        mixed = _Mixed(a, q, tau)
        total = mixed.sums(lambda weight, alpha, slow, slope: (weight,))[0]
        return power * self._constant() + mixed.log_of(total)

    def tilted_derivatives(
        self, y: Numbers, mean: Numbers, variance: Numbers, power: Numbers = 1.0, extra: Numbers = 1.0
    ) -> tuple[Numbers, Numbers, Numbers]:
        a, q, tau = self._ratios(y, mean, variance, power)
        mixed = _Mixed(a, q, tau)

        def terms(weight: Any, alpha: Any, slow: Any, slope: Any) -> tuple[Any, Any, Any]:
            bend = slow**2 / slope
            return weight, weight * (bend - alpha), weight * alpha * (alpha - 2 * bend)

        total, first, second = mixed.sums(terms)  # derivatives in q
        first, second = first / total, second / total
        dq, c = -2 * (y - mean) / self._width(), self._width()
        return power * self._constant() + mixed.log_of(total), first * dq, -(second - first**2) * dq**2 - 2 * first / c

    def _ratios(self, y: Any, mean: Any, variance: Any, power: Any) -> tuple[Any, Any, Any]:
        c = self._width()
        a, q, tau = jnp.broadcast_arrays(0.5 * power * (self.df + 1), (y - mean) ** 2 / c, 2 * variance / c)
        return a, q, tau

    def expected_log_prob(self, y: Numbers, mean: Numbers, variance: Numbers, extra: Numbers = 1.0) -> Numbers:
        _, q, tau = self._ratios(y, mean, variance, 1.0)
        average = q + 0.5 * tau  # of r²/c; the rest is what log(1 + ·) loses by it
        low, high = -jnp.log1p(held(average)) - 19.0, jnp.log(36.0)

        def lost(position: Any) -> tuple[Any]:
            u = jnp.exp(low + (high - low) * position)
            slow = 1 / (1 + tau * u)
            return (jnp.exp(-u) * (jnp.sqrt(slow) * jnp.exp(-q * u * slow) - jnp.exp(-average * u)),)

        loss = quadrature.node_sums(lost, (POSITIONS,), average)[0] * (high - low) / (NODES - 1)
        return self._constant() - 0.5 * (self.df + 1) * (jnp.log1p(average) - loss)

    def outlier_probability(self, y: Numbers, mean: Numbers, variance: Numbers, extra: Numbers = 1.0) -> Numbers:
        # given u the noise has variance c/2u, and u has a gamma density of shape a
        a, c, square = 0.5 * self.df, self._width(), (y - mean) ** 2
        cut, top = jnp.log(a / OUTSIDE**2), jnp.log(36 + a + 9 * jnp.sqrt(a))
        bottom = jnp.minimum(cut - 1, -jnp.log1p(square / c) - 36 / a)

        def log(t: Any) -> Any:
            spread = variance + 0.5 * c * jnp.exp(-t)
            return a * t - jnp.exp(t) - 0.5 * (square / spread + jnp.log(spread))

        height = jnp.maximum(log(jnp.log(a + 0.5) - jnp.log1p(square / c)), log(jnp.log(a)))
        part = lambda low, high, position: (high - low) * jnp.exp(log(low + (high - low) * position) - height)

        def sums(position: Any, weight: Any) -> tuple[Any, Any]:
            return weight * part(bottom, cut, position), weight * part(cut, top, position)

        wide, narrow = quadrature.node_sums(sums, quadrature.gauss_legendre(NODES), height)
        return wide / (wide + narrow)

    def new_outlier_probability(self, mean: Numbers, variance: Numbers) -> Numbers:
        return gammainc(0.5 * self.df, 0.5 * self.df / OUTSIDE**2) + 0.0 * mean

    def suggested(self, y: np.ndarray, extra: np.ndarray | None, noisy: float) -> tuple[Likelihood, float, float]:
        scale, level, spread = _robust_start(y, noisy)
        return self.replace(scale=scale), level, spread

    def told_apart(self, noise: float, outside: float, share: float) -> Likelihood | None:
        return self.replace(scale=np.sqrt(noise))

    def moments(self, f: Numbers, extra: Numbers = 1.0) -> tuple[Numbers, Numbers]:
        return f, self._width() / (self.df - 2)

    def observed(self, mean: Numbers, variance: Numbers, extra: Numbers = 1.0) -> tuple[Numbers, Numbers]:
        return mean, variance + self._width() / (self.df - 2)

    def predictive_cumulative(self, y: Any, mean: Any, variance: Any, extra: Any = 1.0) -> np.ndarray:
        a = 0.5 * float(self.df)
        t = np.linspace(-36 / a, np.log(36 + a + 9 * np.sqrt(a)), NODES).reshape((-1,) + (1,) * np.ndim(y - mean))
        weights = np.exp(a * t - np.exp(t) - special.gammaln(a)) * (t[1] - t[0])
        spread = np.sqrt(variance + float(self._width()) / (2 * np.exp(t)))
        return np.sum(weights * special.ndtr((y - mean) / spread), axis=0)

    def sample(self, rng: np.random.Generator, f: Any, extra: Any = 1.0) -> np.ndarray:
        return f + float(self.scale) * rng.standard_t(float(self.df), np.shape(f))


class _Mixed:
    """∫ exp((a + 1) t − u − q u/(1 + τu)) (1 + τu)^(−½) (1 + ½τ/(1 + τu) + q/(1 + τu)²) dt / Γ(a + 1), u = exp(t)."""

    def __init__(self, a: Any, q: Any, tau: Any) -> None:
        self.a, self.q, self.tau = a, q, tau
        fixed_a, fixed_q, fixed_tau = held((a, q, tau))
        self.low = -jnp.log1p(fixed_q + fixed_tau) - 36 / (1 + fixed_a)
        self.high = jnp.log(36 + fixed_a + 9 * jnp.sqrt(fixed_a))
        # the noise took the outlier, or the function did: one of the two is near the largest term
        noise, function = jnp.log((fixed_a + 1) / (1 + fixed_q + fixed_tau)), jnp.log(fixed_a + 1)
        self.height = held(jnp.maximum(self._log(noise)[0], self._log(function)[0]))

    def _log(self, t: Any) -> tuple[Any, Any, Any, Any]:
        u = jnp.exp(t)
        slow = 1 / (1 + self.tau * u)
        slope = 1 + 0.5 * self.tau * slow + self.q * slow**2
        return (self.a + 1) * t - u * (1 + self.q * slow) + jnp.log(jnp.sqrt(slow) * slope), u * slow, slow, slope

    def sums(self, terms: Any) -> Any:
        """The integrals of terms(weight, −∂/∂q of the exponent, 1/(1 + τu), the last factor), up to exp(height)."""

        def at(position: Any) -> Any:
            log, alpha, slow, slope = self._log(self.low + (self.high - self.low) * position)
            return terms(jnp.exp(log - self.height), alpha, slow, slope)

        return quadrature.node_sums(at, (POSITIONS,), self.q)

    def log_of(self, total: Any) -> Any:
        """The logarithm of the whole integral."""
        return self.height + jnp.log(total * (self.high - self.low) / (NODES - 1)) - gammaln(self.a + 1)


class LaplaceNoise(Likelihood):
    """y = f + ε with the double exponential density exp(−|ε|/scale)/(2 scale): heavy tails that stay log-concave."""

    scale: Numbers = parameter(1.0, positive)

    log_concave = True

    def log_prob(self, y: Numbers, f: Numbers, extra: Numbers = 1.0) -> Numbers:
        return -jnp.abs(y - f) / self.scale - jnp.log(2 * self.scale)

    def curvature_bound(self, y: Numbers, f: Numbers, extra: Numbers = 1.0) -> Numbers:
        return 1 / (self.scale * jnp.maximum(jnp.abs(y - f), 1e-3 * self.scale))

    def log_tilted(self, y: Numbers, mean: Numbers, variance: Numbers, power: Numbers = 1.0, extra: Numbers = 1.0) -> Numbers:
        spread = jnp.sqrt(variance)
        d, k = (mean - y) / spread, power * spread / self.scale
        inside = -0.5 * d**2 + jnp.logaddexp(log_scaled_tail(k + d), log_scaled_tail(k - d))
        beyond = jnp.maximum(jnp.abs(d) - k, 0.0)
        other = log_scaled_tail(k + jnp.abs(d)) - 0.5 * beyond**2
        outside = 0.5 * k**2 - k * jnp.abs(d) + jnp.logaddexp(log_ndtr(beyond), other)
        return jnp.where(jnp.abs(d) < k, inside, outside) - power * jnp.log(2 * self.scale)

    def expected_log_prob(self, y: Numbers, mean: Numbers, variance: Numbers, extra: Numbers = 1.0) -> Numbers:
        spread, r = jnp.sqrt(variance), jnp.abs(y - mean)
        z = r / spread
        tail = spread * jnp.exp(-0.5 * z**2) / math.sqrt(2 * math.pi) - r * jnp.exp(log_ndtr(-z))
        return -(r + 2 * tail) / self.scale - jnp.log(2 * self.scale)

    def suggested(self, y: np.ndarray, extra: np.ndarray | None, noisy: float) -> tuple[Likelihood, float, float]:
        scale, level, spread = _robust_start(y, noisy)
        return self.replace(scale=scale), level, spread

    def told_apart(self, noise: float, outside: float, share: float) -> Likelihood | None:
        return self.replace(scale=np.sqrt(0.5 * noise))

    def moments(self, f: Numbers, extra: Numbers = 1.0) -> tuple[Numbers, Numbers]:
        return f, 2 * self.scale**2

    def observed(self, mean: Numbers, variance: Numbers, extra: Numbers = 1.0) -> tuple[Numbers, Numbers]:
        return mean, variance + 2 * self.scale**2

    def predictive_cumulative(self, y: Any, mean: Any, variance: Any, extra: Any = 1.0) -> np.ndarray:
        d, spread, k = y - mean, np.sqrt(variance), 1 / float(self.scale)
        return special.ndtr(d / spread) + 0.5 * (_host_one_sided(d, spread, k) - _host_one_sided(-d, spread, k))

    def sample(self, rng: np.random.Generator, f: Any, extra: Any = 1.0) -> np.ndarray:
        return f + rng.laplace(0.0, float(self.scale), np.shape(f))


def _host_one_sided(d: Any, spread: Any, k: Any) -> Any:
    """∫ over f on one side of y of N(f; mean, spread²) exp(−k |y − f|), where d is how far the mean lies on the other."""
    x = d / spread + k * spread
    far = np.exp(-0.5 * (d / spread) ** 2) * special.erfcx(np.maximum(x, 0.0) / math.sqrt(2)) / 2
    return np.where(x > 0, far, np.exp(np.minimum(k * d + 0.5 * (k * spread) ** 2, 0.0)) * special.ndtr(-x))


class MixtureNoise(Likelihood):
    """y = f + ε, where ε is Gaussian with standard deviation `narrow`, or `wide` for a share `weight` of outliers."""

    narrow: Numbers = parameter(0.3, positive)
    wide: Numbers = parameter(3.0, positive)
    weight: Numbers = parameter(0.1, interval(0.0, 1.0))

    def log_prob(self, y: Numbers, f: Numbers, extra: Numbers = 1.0) -> Numbers:
        return self._log_sum(y - f, 0.0)

    def _log_sum(self, r: Any, variance: Any) -> Any:
        """The log density of a residual; the gap between the two parts is exact where both are far below it."""
        narrow, wide, gap = self._parts(r, variance)
        return jnp.where(gap > 0, wide, narrow) + jnp.logaddexp(0.0, -jnp.where(gap > 0, gap, -gap))

    def _parts(self, r: Any, variance: Any) -> tuple[Any, Any, Any]:
        """The log densities of the two parts, and by how much the wide one is larger."""
        narrow, wide = variance + self.narrow**2, variance + self.wide**2
        odds = jnp.log(self.weight) - jnp.log1p(-self.weight)
        gap = odds + 0.5 * jnp.log(narrow / wide) + 0.5 * r**2 * (self.wide**2 - self.narrow**2) / (narrow * wide)
        return jnp.log1p(-self.weight) + log_normal(r, narrow), jnp.log(self.weight) + log_normal(r, wide), gap

    def outlier_probability(self, y: Numbers, mean: Numbers, variance: Numbers, extra: Numbers = 1.0) -> Numbers:
        return jax.nn.sigmoid(self._parts(y - mean, variance)[2])

    def new_outlier_probability(self, mean: Numbers, variance: Numbers) -> Numbers:
        return self.weight + 0.0 * mean

    def curvature_bound(self, y: Numbers, f: Numbers, extra: Numbers = 1.0) -> Numbers:
        share = jax.nn.sigmoid(-self._parts(y - f, 0.0)[2])
        return share / self.narrow**2 + (1 - share) / self.wide**2

    def log_tilted(self, y: Numbers, mean: Numbers, variance: Numbers, power: Numbers = 1.0, extra: Numbers = 1.0) -> Numbers:
        if is_one(power):
            return self._log_sum(y - mean, variance)
        return quadrature.log_integral(*self._integral(y, mean, variance, power, extra))

    def _integral(self, y: Any, mean: Any, variance: Any, power: Any, extra: Any) -> tuple[Any, Any, Any, quadrature.Rule]:
        """Panels over the two Gaussians that a power of the mixture lies below, cut where one noise takes over."""
        likelihood, at, m, v, p = held((self, y, mean, variance, power))
        cuts = [place - m for place in likelihood._crossings(at)]
        for noise in (likelihood.narrow**2, likelihood.wide**2):
            centre, spread = p * v * (at - m) / (p * v + noise), jnp.sqrt(v * noise / (p * v + noise))
            cuts += [centre + k * spread for k in (-quadrature.WIDEST, -4.0, -1.5, 0.0, 1.5, 4.0, quadrature.WIDEST)]
        edges = jnp.sort(jnp.stack(jnp.broadcast_arrays(*cuts)), axis=0)
        rule = quadrature.on_panels(edges, m, v, factor(likelihood, at, p, extra), likelihood.narrow)
        return factor(self, y, power, extra), mean, variance, rule

    def _crossings(self, y: Any) -> list[Any]:
        """Where the two noises are equally likely, and around it."""
        ratio = 2 * jnp.log((1 - self.weight) * self.wide / (self.weight * self.narrow))
        gap = jnp.abs(self.narrow**-2 - self.wide**-2) + 1e-12
        crossing = jnp.sqrt(jnp.maximum(ratio, 1.0) / gap)
        width = 1 / (gap * crossing)
        return [y + side * (crossing + k * width) for side in (-1, 1) for k in (-12.0, -4.0, -1.0, 1.0, 4.0, 12.0, 36.0)]

    def expected_log_prob(self, y: Numbers, mean: Numbers, variance: Numbers, extra: Numbers = 1.0) -> Numbers:
        rule = quadrature.across(held(self._crossings(y)), *held((mean, variance)))
        return quadrature.expectation(lambda f: self.log_prob(y, f), mean, variance, rule)

    def suggested(self, y: np.ndarray, extra: np.ndarray | None, noisy: float) -> tuple[Likelihood, float, float]:
        scale, level, spread = _robust_start(y, noisy)
        return self.replace(narrow=scale, wide=10 * scale), level, spread

    def told_apart(self, noise: float, outside: float, share: float) -> Likelihood | None:
        return self.replace(narrow=np.sqrt(noise), wide=np.sqrt(outside), weight=share)

    def moments(self, f: Numbers, extra: Numbers = 1.0) -> tuple[Numbers, Numbers]:
        return f, (1 - self.weight) * self.narrow**2 + self.weight * self.wide**2

    def observed(self, mean: Numbers, variance: Numbers, extra: Numbers = 1.0) -> tuple[Numbers, Numbers]:
        return mean, variance + self.moments(mean)[1]

    def predictive_cumulative(self, y: Any, mean: Any, variance: Any, extra: Any = 1.0) -> np.ndarray:
        share = float(self.weight)
        narrow, wide = (special.ndtr((y - mean) / np.sqrt(variance + float(sd) ** 2)) for sd in (self.narrow, self.wide))
        return (1 - share) * narrow + share * wide

    def sample(self, rng: np.random.Generator, f: Any, extra: Any = 1.0) -> np.ndarray:
        spread = np.where(rng.random(np.shape(f)) < float(self.weight), float(self.wide), float(self.narrow))
        return f + spread * rng.standard_normal(np.shape(f))


def _robust_start(y: np.ndarray, noisy: float) -> tuple[float, float, float]:
    """A scale of the noise, and the level and the variance of f, that outliers hardly move."""
    middle = float(np.median(y))
    spread = float(np.median(np.abs(y - middle)) / 0.6745) ** 2 or float(np.var(y)) or 1.0
    return float(np.sqrt(noisy * spread)), middle, spread * (1 - noisy)
