"""Durations on the scale exp(f); those whose end was not seen are right-censored.

`event` is 1 where the end of a duration was observed, and 0 where it is only known that it lasted at least as long.
"""

from __future__ import annotations

import abc
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_derivatives import SymbolicZero
from jax.scipy.special import gammaln
from scipy import special

from .._types import Numbers
from ..linalg import quadrature
from ..parameters.supports import interval, positive
from ..parameters.tree import parameter
from .base import Likelihood, first_few, held, numeric
from .counts import rate

DEPTH = 120  # terms of a power series and of a continued fraction, enough for every shape up to the largest
LARGEST_SHAPE = 100.0


class _Durations(Likelihood):
    """Positive numbers."""

    extra_name = "event"

    log_concave = True

    def check(self, y: np.ndarray, extra: np.ndarray | None = None) -> np.ndarray:
        self.check_extra(extra, np.shape(y))
        values = numeric(self, y)
        wrong = values <= 0
        if wrong.any():
            met = first_few(values, wrong)
            raise ValueError(f"{type(self).__name__} needs positive durations, got {met}: drop them, or measure in finer units")
        return values

    def check_extra(self, extra: Any, shape: tuple[int, ...]) -> None:
        super().check_extra(extra, shape)
        wrong = ~np.isin(np.asarray(1.0 if extra is None else extra, dtype=float), (0, 1))
        if wrong.any():
            met = first_few(np.asarray(extra, dtype=float), wrong)
            raise ValueError(f"event must be 1 (the end was observed) or 0 (right-censored), got {met}")

    def predictive_cumulative(self, y: Any, mean: Any, variance: Any, extra: Any = 1.0) -> np.ndarray:
        positive = np.maximum(y, 1e-300)
        return np.where(y > 0, super().predictive_cumulative(positive, mean, variance), 0.0)

    def suggested(self, y: np.ndarray, extra: np.ndarray | None, noisy: float) -> tuple[Likelihood, float, float]:
        return self, float(np.log(np.mean(y))), float(np.clip(np.var(np.log(y)), 0.1, 10.0)) * (1 - noisy)

    def landmarks(self, y: Any, extra: Any = 1.0) -> list[Any]:
        return [np.log(y) + k / self._power() for k in (-6.0, -3.0, -1.0, 1.0, 4.0, 12.0)]

    @abc.abstractmethod
    def _power(self) -> float:
        """How steeply the distribution function rises in log y."""


class Weibull(_Durations):
    """P(Y > y) = exp(−(y exp(−f))^shape): the hazard grows with time when `shape` is above 1."""

    shape: Numbers = parameter(1.0, positive)

    def log_prob(self, y: Numbers, f: Numbers, extra: Numbers = 1.0) -> Numbers:
        scaled = self.shape * (jnp.log(y) - f)
        return extra * (jnp.log(self.shape) + scaled - jnp.log(y)) - rate(scaled)

    def expected_log_prob(self, y: Numbers, mean: Numbers, variance: Numbers, extra: Numbers = 1.0) -> Numbers:
        scaled = self.shape * (jnp.log(y) - mean)
        return extra * (jnp.log(self.shape) + scaled - jnp.log(y)) - rate(scaled + 0.5 * self.shape**2 * variance)

    def moments(self, f: Numbers, extra: Numbers = 1.0) -> tuple[Numbers, Numbers]:
        first, second = self._raw()
        return first * rate(f), (second - first**2) * rate(2 * f)

    def _raw(self) -> tuple[Any, Any]:
        return jnp.exp(gammaln(1 + 1 / self.shape)), jnp.exp(gammaln(1 + 2 / self.shape))

    def observed(self, mean: Numbers, variance: Numbers, extra: Numbers = 1.0) -> tuple[Numbers, Numbers]:
        return lognormal_moments(mean, variance, *self._raw())

    def cumulative(self, y: Any, f: Any, extra: Any = 1.0) -> Any:
        return -np.expm1(-np.exp(np.minimum(np.asarray(self.shape) * (np.log(y) - f), 600.0)))

    def _power(self) -> float:
        return float(self.shape)

    def sample(self, rng: np.random.Generator, f: Any, extra: Any = 1.0) -> np.ndarray:
        return np.exp(f) * rng.weibull(float(self.shape), np.shape(f))


class Exponential(_Durations):
    """P(Y > y) = exp(−y exp(−f)): a constant hazard, and exp(f) is the mean duration."""

    def log_prob(self, y: Numbers, f: Numbers, extra: Numbers = 1.0) -> Numbers:
        return -extra * f - rate(jnp.log(y) - f)

    def expected_log_prob(self, y: Numbers, mean: Numbers, variance: Numbers, extra: Numbers = 1.0) -> Numbers:
        return -extra * mean - rate(jnp.log(y) - mean + 0.5 * variance)

    def moments(self, f: Numbers, extra: Numbers = 1.0) -> tuple[Numbers, Numbers]:
        return rate(f), rate(2 * f)

    def observed(self, mean: Numbers, variance: Numbers, extra: Numbers = 1.0) -> tuple[Numbers, Numbers]:
        return lognormal_moments(mean, variance, 1.0, 2.0)

    def cumulative(self, y: Any, f: Any, extra: Any = 1.0) -> Any:
        return -np.expm1(-np.exp(np.minimum(np.log(y) - f, 600.0)))

    def _power(self) -> float:
        return 1.0

    def sample(self, rng: np.random.Generator, f: Any, extra: Any = 1.0) -> np.ndarray:
        return np.exp(f) * rng.exponential(size=np.shape(f))


class GammaDuration(_Durations):
    """y has a gamma distribution with mean exp(f) and this shape, which is 1 / its squared coefficient of variation."""

    shape: Numbers = parameter(1.0, interval(0.0, LARGEST_SHAPE))

    def log_prob(self, y: Numbers, f: Numbers, extra: Numbers = 1.0) -> Numbers:
        return jnp.where(extra > 0.5, self._log_density(y, f), log_upper_gamma(self.shape, self._scaled(y, f)))

    def _scaled(self, y: Any, f: Any) -> Any:
        return self.shape * rate(jnp.log(y) - f)

    def _log_density(self, y: Any, f: Any) -> Any:
        k = self.shape
        return k * (jnp.log(k * y) - f) - jnp.log(y) - gammaln(k) - self._scaled(y, f)

    def expected_log_prob(self, y: Numbers, mean: Numbers, variance: Numbers, extra: Numbers = 1.0) -> Numbers:
        seen = self._log_density(y, mean) + self._scaled(y, mean) - self._scaled(y, mean - variance / 2)

        def remainder(likelihood: Any, y: Any) -> Any:  # the tail falls like exp(−x), whose average is known
            return lambda f: log_upper_gamma(likelihood.shape, likelihood._scaled(y, f)) + likelihood._scaled(y, f)

        rule = quadrature.around_mean(remainder(*held((self, y))), *held((mean, variance)))
        tail = quadrature.expectation(remainder(self, y), mean, variance, rule) - self._scaled(y, mean - variance / 2)
        return jnp.where(extra > 0.5, seen, tail)

    def moments(self, f: Numbers, extra: Numbers = 1.0) -> tuple[Numbers, Numbers]:
        return rate(f), rate(2 * f) / self.shape

    def observed(self, mean: Numbers, variance: Numbers, extra: Numbers = 1.0) -> tuple[Numbers, Numbers]:
        return lognormal_moments(mean, variance, 1.0, 1 + 1 / self.shape)

    def cumulative(self, y: Any, f: Any, extra: Any = 1.0) -> Any:
        k = float(self.shape)
        return special.gammainc(k, k * np.exp(np.minimum(np.log(y) - f, 600.0)))

    def _power(self) -> float:
        return float(np.sqrt(self.shape))

    def sample(self, rng: np.random.Generator, f: Any, extra: Any = 1.0) -> np.ndarray:
        k = float(self.shape)
        return np.exp(f) * rng.gamma(k, 1 / k, np.shape(f))


def lognormal_moments(mean: Any, variance: Any, first: Any, second: Any) -> tuple[Any, Any]:
    """Mean and variance of exp(f)·z when f ~ N(mean, variance) and z has these raw moments."""
    average = first * rate(mean + variance / 2)
    return average, average**2 * (second / first**2 * jnp.exp(variance) - 1)


def _upper_gamma(a: Any, x: Any) -> tuple[Any, Any]:
    """log Γ(a, x)/Γ(a), also where it underflows, and minus its derivative in x, the hazard."""
    far = x > a + 1
    z, close = jnp.where(far, x, a + 2), jnp.where(far, a, x)
    series, fraction = jax.lax.fori_loop(0, DEPTH, functools.partial(_deeper, a, z, close), (close / close, z / z + 2 * DEPTH))
    log_density = a * jnp.log(close) - close - gammaln(a)
    near = jnp.log1p(-jnp.exp(log_density) * series / a)
    log = jnp.where(far, a * jnp.log(z) - z - gammaln(a) - jnp.log(fraction), near)
    return log, jnp.where(far, fraction / z, jnp.exp(log_density - near) / close)


def _deeper(a: Any, z: Any, close: Any, step: Any, parts: Any) -> tuple[Any, Any]:
    """One term more, from the last to the first, of the power series and of Legendre's continued fraction."""
    series, fraction = parts
    n = DEPTH - step
    return 1 + close / (a + n) * series, z + 2 * n - 1 - a - n * (n - a) / fraction


@jax.custom_jvp
def log_upper_gamma(a: Any, x: Any) -> Any:
    """log Γ(a, x)/Γ(a)."""
    return _upper_gamma(a, x)[0]


@jax.custom_jvp
def hazard(a: Any, x: Any) -> Any:
    """The density of the gamma distribution over its upper tail."""
    return _upper_gamma(a, x)[1]


def _in_shape(function: Any, a: Any, x: Any, tangent: Any) -> Any:
    """The derivative in the shape, left out when nobody asked for it."""
    if isinstance(tangent, SymbolicZero):
        return 0.0
    return jax.jvp(lambda a: function(a, x), (a,), (tangent,))[1]


def _along(x: Any, tangent: Any, slope: Any) -> Any:
    return 0.0 if isinstance(tangent, SymbolicZero) else slope * tangent


@functools.partial(log_upper_gamma.defjvp, symbolic_zeros=True)
def _(primals: Any, tangents: Any) -> tuple[Any, Any]:
    a, x = primals
    value = log_upper_gamma(a, x)
    slope = _along(x, tangents[1], -hazard(a, x))
    return value, slope + _in_shape(lambda a, x: _upper_gamma(a, x)[0], a, x, tangents[0]) + jnp.zeros_like(value)


@functools.partial(hazard.defjvp, symbolic_zeros=True)
def _(primals: Any, tangents: Any) -> tuple[Any, Any]:
    a, x = primals
    value = hazard(a, x)
    slope = _along(x, tangents[1], value * (value + (a - 1) / x - 1))
    return value, slope + _in_shape(lambda a, x: _upper_gamma(a, x)[1], a, x, tangents[0]) + jnp.zeros_like(value)
