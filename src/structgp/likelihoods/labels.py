"""Labels: two classes, or several in an order.

The logistic function is a mixture of normal distribution functions over their scale, σ(f) = ∫ Φ(f/2κ) p(κ) dκ, where p is the
limiting density of Kolmogorov's statistic. So its average under a Gaussian is a short sum of values of Φ, to full precision at
any variance, and so is the average of log σ, whose second derivative is the same mixture of normal densities.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from .._types import Numbers
from ..linalg import quadrature
from ..linalg.normal import log_ndtr, tails
from ..parameters.supports import increasing, interval, positive, real
from ..parameters.tree import fixed, parameter
from .base import Likelihood, compiled, factor, first_few, held, is_one

LINKS = ("probit", "logit")
FAR = 1e6  # thresholds that nothing ever passes, in units of the scale
TYPICAL = 3.3  # the mean of 4κ² in the mixture
SHOULDERS = (-30.0, -12.0, -5.0, -1.5, 1.5, 5.0, 12.0, 30.0)  # latent values that lead out of the bend of a link


@functools.cache
def kolmogorov(count: int = 32) -> tuple[np.ndarray, np.ndarray]:
    """Nodes κ and weights of the mixture that makes the logistic function of normal distribution functions."""
    t = np.linspace(-2.1, 1.5, count)
    kappa, n = np.exp(t)[:, None], np.arange(1, 30)[None, :]
    wide = 8 * np.sum((-1.0) ** (n + 1) * n**2 * kappa * np.exp(-2 * n**2 * kappa**2), axis=1)
    odd = ((2 * n - 1) * np.pi) ** 2
    narrow = math.sqrt(2 * np.pi) * np.sum((odd / (4 * kappa**4) - kappa**-2) * np.exp(-odd / (8 * kappa**2)), axis=1)
    weights = np.where(kappa[:, 0] < 0.8, narrow, wide) * kappa[:, 0] * (t[1] - t[0])
    return kappa[:, 0], weights


def log_averaged_logistic(mean: Any, variance: Any) -> Any:
    """log ∫ N(f; mean, variance) σ(f) df.

    It is reflected at −v/2 by ∫ N(f; m, v) σ(f) = exp(m + v/2) ∫ N(f; −m − v, v) σ(f), because the mixture is exact only
    where its bulk matters.
    """
    low, m = _reflected(mean, variance)
    height = held(log_ndtr(m / jnp.sqrt(TYPICAL + variance)))
    terms = lambda kappa, weight: (weight * jnp.exp(log_ndtr(m / jnp.sqrt(4 * kappa**2 + variance)) - height),)
    total = quadrature.node_sums(terms, kolmogorov(), m)[0]
    return jnp.log(total) + height + jnp.where(low, mean + variance / 2, 0.0)


def averaged_logistic_derivatives(mean: Any, variance: Any) -> tuple[Any, Any, Any]:
    """`log_averaged_logistic`, its slope and its second derivative in the mean."""
    low, m = _reflected(mean, variance)
    height = log_ndtr(m / jnp.sqrt(TYPICAL + variance))

    def terms(kappa: Any, weight: Any) -> tuple[Any, Any, Any]:
        scale = 1 / jnp.sqrt(4 * kappa**2 + variance)
        log, ratio, _ = tails(m * scale)
        weight, slope = weight * jnp.exp(log - height), ratio * scale
        return weight, weight * slope, -weight * slope * m * scale**2

    total, first, second = quadrature.node_sums(terms, kolmogorov(), m)
    first = first / total
    value = jnp.log(total) + height + jnp.where(low, mean + variance / 2, 0.0)
    return value, jnp.where(low, 1 - first, first), second / total - first**2


def _reflected(mean: Any, variance: Any) -> tuple[Any, Any]:
    low = mean < -variance / 2
    return low, jnp.where(low, -mean - variance, mean + 0.0 * variance)


def expected_log_logistic(mean: Any, variance: Any) -> Any:
    """∫ N(f; mean, variance) log σ(f) df."""

    def terms(kappa: Any, weight: Any) -> tuple[Any]:
        spread = jnp.sqrt(4 * kappa**2 + variance)
        z = mean / spread
        density = jnp.exp(-0.5 * z**2) / math.sqrt(2 * math.pi)
        return (weight * spread * (density - z * jnp.exp(log_ndtr(-z))),)

    return -quadrature.node_sums(terms, kolmogorov(), mean + variance)[0]


class Bernoulli(Likelihood):
    """y is 1 with probability Φ(f) (probit) or σ(f) (logit), else 0.

    `bias` is added to f; `flip` is the probability ε that a label was turned over, p = ε + (1 − 2ε) Φ(f). Both are left out
    unless they are given, and learned when they are.
    """

    whole_numbers = True

    link: str = eqx.field(static=True, default="probit")
    bias: Any = parameter(None, real)
    flip: Any = parameter(None, interval(0.0, 0.5))

    tells_size = False

    def __check_init__(self) -> None:
        check_link(self)

    @property
    def log_concave(self) -> bool:
        return self.flip is None

    @property
    def largest_precision(self) -> float:
        return {"probit": 1.0, "logit": 0.25}[self.link] if self.log_concave else np.inf

    def check(self, y: np.ndarray, extra: np.ndarray | None = None) -> np.ndarray:
        self.check_extra(extra, np.shape(y))
        values = np.asarray(y, dtype=np.float64)
        seen = values[~np.isnan(values)]
        if np.isin(seen, (-1, 1)).all() and (seen == -1).any():
            return (values + 1) / 2
        wrong = ~np.isin(values, (0, 1)) & ~np.isnan(values)
        if wrong.any():
            met = first_few(values, wrong)
            raise ValueError(f"Bernoulli needs labels 0 and 1 (or −1 and 1), got {met}: encode them so, or use Categorical")
        return values

    def log_prob(self, y: Numbers, f: Numbers, extra: Numbers = 1.0) -> Numbers:
        return self._floored(log_link(self.link, self._signed(y, f)))

    def _signed(self, y: Any, f: Any) -> Any:
        return (2 * y - 1) * (f if self.bias is None else f + self.bias)

    def _floored(self, log_probability: Any) -> Any:
        if self.flip is None:
            return log_probability
        return jnp.logaddexp(jnp.log(self.flip), jnp.log1p(-2 * self.flip) + log_probability)

    def curvature_bound(self, y: Numbers, f: Numbers, extra: Numbers = 1.0) -> Numbers:
        # the expected curvature, p′²/(p (1 − p)), is positive whatever the floor does to W
        value, slope, _ = self.derivatives(y, f)
        return jnp.maximum(slope**2 * jnp.exp(value) / -jnp.expm1(value), 1e-8)

    def log_tilted(self, y: Numbers, mean: Numbers, variance: Numbers, power: Numbers = 1.0, extra: Numbers = 1.0) -> Numbers:
        if is_one(power):
            return self._floored(log_averaged_link(self.link, self._signed(y, mean), variance))
        return quadrature.log_integral(*self._integral(y, mean, variance, power, extra))

    def tilted_derivatives(
        self, y: Numbers, mean: Numbers, variance: Numbers, power: Numbers = 1.0, extra: Numbers = 1.0
    ) -> tuple[Numbers, Numbers, Numbers]:
        if is_one(power) and self.link == "probit" and self.flip is None:
            scale = jnp.sqrt(1 + variance)
            value, ratio, excess = tails(self._signed(y, mean) / scale)
            return value, (2 * y - 1) * ratio / scale, ratio * excess / (1 + variance)
        if is_one(power) and self.flip is None:
            value, slope, second = averaged_logistic_derivatives(self._signed(y, mean), variance)
            return value, (2 * y - 1) * slope, -second
        if is_one(power):
            return super().tilted_derivatives(y, mean, variance, power, extra)
        value, slope, second = quadrature.log_integral_derivatives(*self._integral(y, mean, variance, power, extra))
        return value, slope, -second

    def _integral(self, y: Any, mean: Any, variance: Any, power: Any, extra: Any) -> tuple[Any, Any, Any, quadrature.Rule]:
        if self.flip is None:
            return super()._integral(y, mean, variance, power, extra)
        # with a floor the likelihood has two plateaus: not concave, but known
        parts = self, y, power, extra
        m, v = held((mean, variance))
        rule = quadrature.across(held(self._shoulders(y)), m, v, factor(*held(parts)))
        return factor(*parts), mean, variance, rule

    def _shoulders(self, y: Any) -> list[Any]:
        """Where the label's probability leaves its floor, and where it reaches one."""
        return [(2 * y - 1) * k - (0.0 if self.bias is None else self.bias) for k in SHOULDERS]

    def expected_log_prob(self, y: Numbers, mean: Numbers, variance: Numbers, extra: Numbers = 1.0) -> Numbers:
        if self.flip is None:
            return expected_log_link(self.link, self._signed(y, mean), variance)
        rule = quadrature.across(held(self._shoulders(y)), *held((mean, variance)))
        return quadrature.expectation(lambda f: self.log_prob(y, f), mean, variance, rule)

    def probability(self, mean: Numbers, variance: Numbers) -> Numbers:
        """P(y = 1) when f ~ N(mean, variance)."""
        return jnp.exp(self.log_tilted(1.0, mean, variance))

    def moments(self, f: Numbers, extra: Numbers = 1.0) -> tuple[Numbers, Numbers]:
        p = jnp.exp(self.log_prob(1.0, f))
        return p, p * (1 - p)

    def observed(self, mean: Numbers, variance: Numbers, extra: Numbers = 1.0) -> tuple[Numbers, Numbers]:
        p = self.probability(mean, variance)
        return p, p * (1 - p)

    def predictive_cumulative(self, y: Any, mean: Any, variance: Any, extra: Any = 1.0) -> np.ndarray:
        return np.where(y < 0, 0.0, np.where(y < 1, 1 - np.asarray(compiled(self.probability, mean, variance)), 1.0))

    def quantile(self, q: Numbers, mean: Numbers, variance: Numbers, extra: Numbers = 1.0) -> Numbers:
        return np.where(q > 1 - np.asarray(compiled(self.probability, mean, variance)), 1.0, 0.0)

    def sample(self, rng: np.random.Generator, f: Any, extra: Any = 1.0) -> np.ndarray:
        return (rng.random(np.shape(f)) < np.asarray(compiled(self.moments, f)[0])).astype(float)


class Ordinal(Likelihood):
    """Ordered classes 0, 1, …: y is the number of `thresholds` below f + scale · ε, ε normal (probit) or logistic (logit).

    The scale is 1 unless it is given, because the kernel's variance and the thresholds can make up for it.
    """

    whole_numbers = True

    thresholds: Numbers = parameter((-1.0, 1.0), increasing)
    scale: Numbers = parameter(fixed(1.0), positive)
    link: str = eqx.field(static=True, default="probit")

    log_concave = True

    def __check_init__(self) -> None:
        check_link(self)

    @property
    def classes(self) -> int:
        """How many classes there are."""
        return int(np.shape(self.thresholds)[0]) + 1

    @property
    def largest_precision(self) -> float:
        return {"probit": 1.0, "logit": 0.5}[self.link] / float(self.scale) ** 2

    def check(self, y: np.ndarray, extra: np.ndarray | None = None) -> np.ndarray:
        self.check_extra(extra, np.shape(y))
        return class_numbers(self, y, "give one more threshold than that for each class, or correct them")

    def _edges(self, y: Any) -> tuple[Any, Any]:
        """The thresholds below and above each class; the outermost are far away."""
        far = FAR * self.scale
        ends = jnp.concatenate([jnp.reshape(-far, 1), jnp.asarray(self.thresholds), jnp.reshape(far, 1)])
        k = jnp.asarray(y).astype(int)
        return ends[k], ends[k + 1]

    def log_prob(self, y: Numbers, f: Numbers, extra: Numbers = 1.0) -> Numbers:
        low, high = self._edges(y)
        a, b = (low - f) / self.scale, (high - f) / self.scale
        if self.link == "probit":
            return log_ndtr_between(a, b)
        return log_link("logit", b) + log_link("logit", -a) + jnp.log(-jnp.expm1(a - b))

    def log_tilted(self, y: Numbers, mean: Numbers, variance: Numbers, power: Numbers = 1.0, extra: Numbers = 1.0) -> Numbers:
        if self.link == "logit" or not is_one(power):
            return quadrature.log_integral(*self._integral(y, mean, variance, power, extra))
        low, high = self._edges(y)
        spread = jnp.sqrt(self.scale**2 + variance)
        return log_ndtr_between((low - mean) / spread, (high - mean) / spread)

    def tilted_derivatives(
        self, y: Numbers, mean: Numbers, variance: Numbers, power: Numbers = 1.0, extra: Numbers = 1.0
    ) -> tuple[Numbers, Numbers, Numbers]:
        if self.link == "probit" and is_one(power):
            return super().tilted_derivatives(y, mean, variance, power, extra)
        value, slope, second = quadrature.log_integral_derivatives(*self._integral(y, mean, variance, power, extra))
        return value, slope, -second

    def expected_log_prob(self, y: Numbers, mean: Numbers, variance: Numbers, extra: Numbers = 1.0) -> Numbers:
        low, high = self._edges(y)
        if self.link == "logit":
            a, b, v = (low - mean) / self.scale, (high - mean) / self.scale, variance / self.scale**2
            return expected_log_logistic(b, v) + expected_log_logistic(-a, v) + jnp.log(-jnp.expm1(a - b))
        places = held([edge + k * self.scale for edge in (low, high) for k in SHOULDERS])
        rule = quadrature.across(places, *held((mean, variance)))
        return quadrature.expectation(lambda f: self.log_prob(y, f), mean, variance, rule)

    def probability(self, mean: Numbers, variance: Numbers) -> Numbers:
        """The probabilities of the classes, in a last axis, when f ~ N(mean, variance)."""
        mean, variance = jnp.asarray(mean)[..., None], jnp.asarray(variance)[..., None]
        z = (self.thresholds - mean) / self.scale
        below = jnp.exp(log_averaged_link(self.link, z, variance / self.scale**2 + 0.0 * z))
        return jnp.diff(below, axis=-1, prepend=0.0, append=1.0)

    def moments(self, f: Numbers, extra: Numbers = 1.0) -> tuple[Numbers, Numbers]:
        return self.observed(f, 0.0 * f)

    def observed(self, mean: Numbers, variance: Numbers, extra: Numbers = 1.0) -> tuple[Numbers, Numbers]:
        p, k = self.probability(mean, variance), jnp.arange(self.classes)
        average = p @ k
        return average, jnp.sum(p * (k - average[..., None]) ** 2, axis=-1)

    def predictive_cumulative(self, y: Any, mean: Any, variance: Any, extra: Any = 1.0) -> np.ndarray:
        below = np.cumsum(np.asarray(compiled(self.probability, mean, variance)), axis=-1)
        below = np.broadcast_to(below, (*np.shape(y), below.shape[-1]))
        return np.where(
            y < 0, 0.0, np.take_along_axis(below, np.clip(y, 0, self.classes - 1).astype(int)[..., None], -1)[..., 0]
        )

    def quantile(self, q: Numbers, mean: Numbers, variance: Numbers, extra: Numbers = 1.0) -> Numbers:
        below = np.cumsum(np.asarray(compiled(self.probability, mean, variance)), axis=-1)[..., :-1]
        return np.sum(below < np.asarray(q)[..., None], axis=-1).astype(float)

    def sample(self, rng: np.random.Generator, f: Any, extra: Any = 1.0) -> np.ndarray:
        draw = rng.standard_normal if self.link == "probit" else lambda shape: rng.logistic(size=shape)
        noisy = f + float(self.scale) * draw(np.shape(f))
        return np.searchsorted(np.asarray(self.thresholds), noisy).astype(float)


def class_numbers(likelihood: Any, y: Any, remedy: str) -> np.ndarray:
    """Observations that are class numbers 0 … classes − 1, as floats."""
    values = np.asarray(y, dtype=np.float64)
    wrong = ~(np.isin(values, np.arange(likelihood.classes)) | np.isnan(values))
    if wrong.any():
        needed = f"{type(likelihood).__name__} needs class numbers 0 to {likelihood.classes - 1}"
        raise ValueError(f"{needed}, got {first_few(values, wrong)}: {remedy}")
    return values


def log_ndtr_between(a: Any, b: Any) -> Any:
    """log(Φ(b) − Φ(a)) for a < b, also far out in a tail."""
    right = a + b > 0
    a, b = jnp.where(right, -b, a), jnp.where(right, -a, b)
    upper = log_ndtr(b)
    return upper + jnp.log(-jnp.expm1(log_ndtr(a) - upper))


def log_link(link: str, z: Any) -> Any:
    """log Φ(z) or log σ(z)."""
    return log_ndtr(z) if link == "probit" else -jnp.logaddexp(0.0, -z)


def log_averaged_link(link: str, mean: Any, variance: Any) -> Any:
    """log ∫ N(z; mean, variance) link(z) dz."""
    return log_ndtr(mean / jnp.sqrt(1 + variance)) if link == "probit" else log_averaged_logistic(mean, variance)


def expected_log_link(link: str, mean: Any, variance: Any) -> Any:
    """∫ N(z; mean, variance) log link(z) dz."""
    if link == "logit":
        return expected_log_logistic(mean, variance)
    rule = quadrature.across(list(SHOULDERS), *held((mean, variance)))
    return quadrature.expectation(log_ndtr, mean, variance, rule)


def check_link(likelihood: Any) -> None:
    """Refuse a link that is not known."""
    if likelihood.link not in LINKS:
        raise ValueError(f"{type(likelihood).__name__}: link must be 'probit' or 'logit', got {likelihood.link!r}")
