"""Counts: without a bound through a logarithmic link, out of a number of trials through that of a label."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from scipy import special

from .._types import Numbers
from ..linalg import quadrature
from ..linalg.gamma import log_gamma_ratio
from ..parameters.supports import positive
from ..parameters.tree import parameter
from .base import Likelihood, first_few, numeric
from .labels import SHOULDERS, check_link, expected_log_link, expected_log_logistic, log_averaged_link, log_link

MOST_DISPERSED = 10.0  # the dispersion of counts that learning may reach; at more, almost all are 0 whatever their rate
LARGEST = 300.0  # beyond this latent value the rate grows linearly: no number that is ever needed changes, none overflows


def rate(f: Numbers) -> Numbers:
    """exp(f), continued by its tangent where it would overflow."""
    return jnp.exp(jnp.minimum(f, LARGEST)) * (1 + jnp.maximum(f - LARGEST, 0.0))


class _Counts(Likelihood):
    """Counts 0, 1, 2, … whose rate is exposure · exp(f)."""

    extra_name = "exposure"
    whole_numbers = True

    def check(self, y: np.ndarray, extra: np.ndarray | None = None) -> np.ndarray:
        self.check_extra(extra, np.shape(y))
        return whole_counts(self, y)

    def check_extra(self, extra: Any, shape: tuple[int, ...]) -> None:
        super().check_extra(extra, shape)
        if extra is not None and not np.all(np.asarray(extra) > 0):
            wrong = ~(np.asarray(extra) > 0)
            raise ValueError(f"exposure must be positive, got {first_few(np.asarray(extra), wrong)}: leave such rows out")

    def suggested(self, y: np.ndarray, extra: np.ndarray | None, noisy: float) -> tuple[Likelihood, float, float]:
        rate = (np.ravel(y) + 0.5) / (1.0 if extra is None else extra)
        return self, float(np.log(np.mean(rate))), float(np.clip(np.var(np.log(rate)), 0.1, 10.0)) * (1 - noisy)

    def plainly(self, y: np.ndarray, extra: np.ndarray | None) -> np.ndarray:
        return np.log((y + 0.5) / (1.0 if extra is None else extra))

    def as_wide(self, noise: float) -> Likelihood:
        return self  # a Poisson's scatter is that of its rate

    def limits(self, y: np.ndarray, extra: np.ndarray | None) -> dict[str, tuple[float, float]]:
        exposure = np.broadcast_to(1.0 if extra is None else extra, np.ravel(y).shape)
        low = float(np.log(0.5 / np.sum(exposure)))  # half a count in all of the exposure
        high = float(np.log(np.max((np.ravel(y) + 0.5) / exposure)))
        span = max(low, high, 0.0) - min(low, high, 0.0)  # a known mean may be a rate of 1
        return {"level": (low, high), "variance": (0.0, span**2), "dispersion": (0.0, MOST_DISPERSED)}

    def landmarks(self, y: Any, extra: Any = 1.0) -> list[Any]:
        centre, width = np.log((y + 1.0) / extra), 1 / np.sqrt(y + 1.0)
        return [centre + k * width for k in (-6.0, -2.5, 0.0, 2.5, 6.0)]


class Poisson(_Counts):
    """y ~ Poisson(exposure · exp(f))."""

    log_concave = True

    def log_prob(self, y: Numbers, f: Numbers, extra: Numbers = 1.0) -> Numbers:
        return y * (f + jnp.log(extra)) - extra * rate(f) - gammaln(y + 1)

    def expected_log_prob(self, y: Numbers, mean: Numbers, variance: Numbers, extra: Numbers = 1.0) -> Numbers:
        return y * (mean + jnp.log(extra)) - extra * rate(mean + variance / 2) - gammaln(y + 1)

    def moments(self, f: Numbers, extra: Numbers = 1.0) -> tuple[Numbers, Numbers]:
        return extra * rate(f), extra * rate(f)

    def observed(self, mean: Numbers, variance: Numbers, extra: Numbers = 1.0) -> tuple[Numbers, Numbers]:
        average = extra * rate(mean + variance / 2)
        return average, average + average**2 * jnp.expm1(variance)

    def cumulative(self, y: Any, f: Any, extra: Any = 1.0) -> Any:
        return special.pdtr(y, extra * np.exp(f))

    def sample(self, rng: np.random.Generator, f: Any, extra: Any = 1.0) -> np.ndarray:
        return rng.poisson(np.asarray(extra) * np.exp(f)).astype(float)


class NegativeBinomial(_Counts):
    """Counts with mean μ = exposure · exp(f) and variance μ + dispersion · μ², more than a Poisson's."""

    dispersion: Numbers = parameter(1.0, positive)

    log_concave = True

    def log_prob(self, y: Numbers, f: Numbers, extra: Numbers = 1.0) -> Numbers:
        odds = f + jnp.log(extra * self.dispersion)
        return self._constant(y) - y * jnp.logaddexp(0.0, -odds) - jnp.logaddexp(0.0, odds) / self.dispersion

    def as_wide(self, noise: float) -> Likelihood:
        return self.replace(dispersion=min(noise, MOST_DISPERSED))

    def _constant(self, y: Any) -> Any:
        r = 1 / self.dispersion
        return log_gamma_ratio(r, y) - gammaln(y + 1)

    def expected_log_prob(self, y: Numbers, mean: Numbers, variance: Numbers, extra: Numbers = 1.0) -> Numbers:
        odds = mean + jnp.log(extra * self.dispersion)
        more, less = expected_log_logistic(odds, variance), expected_log_logistic(-odds, variance)
        return self._constant(y) + y * more + less / self.dispersion

    def moments(self, f: Numbers, extra: Numbers = 1.0) -> tuple[Numbers, Numbers]:
        average = extra * rate(f)
        return average, average + self.dispersion * average**2

    def observed(self, mean: Numbers, variance: Numbers, extra: Numbers = 1.0) -> tuple[Numbers, Numbers]:
        average = extra * rate(mean + variance / 2)
        return average, average + average**2 * (jnp.expm1(variance) + self.dispersion * jnp.exp(variance))

    def cumulative(self, y: Any, f: Any, extra: Any = 1.0) -> Any:
        r = 1 / float(self.dispersion)
        return special.betainc(r, y + 1.0, r / (r + extra * np.exp(f)))

    def landmarks(self, y: Any, extra: Any = 1.0) -> list[Any]:
        centre, width = np.log((y + 1.0) / extra), np.sqrt(1 / (y + 1.0) + float(self.dispersion))
        return [centre + k * width for k in (-12.0, -5.0, -2.0, 0.0, 2.0, 5.0)]

    def sample(self, rng: np.random.Generator, f: Any, extra: Any = 1.0) -> np.ndarray:
        r = 1 / float(self.dispersion)
        return rng.poisson(rng.gamma(r, np.asarray(extra) * np.exp(f) / r)).astype(float)


class Binomial(Likelihood):
    """y of `trials` succeed, each with probability Φ(f) (probit) or σ(f) (logit)."""

    link: str = eqx.field(static=True, default="logit")
    extra_name = "trials"
    whole_numbers = True
    log_concave = True

    def __check_init__(self) -> None:
        check_link(self)

    def check(self, y: np.ndarray, extra: np.ndarray | None = None) -> np.ndarray:
        self.check_extra(extra, np.shape(y))
        values, trials = whole_counts(self, y), np.asarray(1.0 if extra is None else extra, dtype=float)
        wrong = values > trials
        if wrong.any():
            raise ValueError(
                f"Binomial needs no more successes than trials, got {first_few(values, wrong)}: pass trials, or correct them"
            )
        return values

    def check_extra(self, extra: Any, shape: tuple[int, ...]) -> None:
        super().check_extra(extra, shape)
        trials = np.asarray(1.0 if extra is None else extra, dtype=float)
        wrong = ~((trials >= 1) & (trials == np.floor(trials)))
        if wrong.any():
            raise ValueError(f"trials must be whole numbers from 1 on, got {first_few(trials, wrong)}")

    def log_prob(self, y: Numbers, f: Numbers, extra: Numbers = 1.0) -> Numbers:
        return _log_choose(y, extra) + y * log_link(self.link, f) + (extra - y) * log_link(self.link, -f)

    def expected_log_prob(self, y: Numbers, mean: Numbers, variance: Numbers, extra: Numbers = 1.0) -> Numbers:
        more, less = (expected_log_link(self.link, side * mean, variance) for side in (1, -1))
        return _log_choose(y, extra) + y * more + (extra - y) * less

    def probability(self, mean: Numbers, variance: Numbers) -> Numbers:
        """The probability that one trial succeeds when f ~ N(mean, variance)."""
        return jnp.exp(log_averaged_link(self.link, mean, variance))

    def moments(self, f: Numbers, extra: Numbers = 1.0) -> tuple[Numbers, Numbers]:
        p = jnp.exp(log_link(self.link, f))
        return extra * p, extra * p * (1 - p)

    def observed(self, mean: Numbers, variance: Numbers, extra: Numbers = 1.0) -> tuple[Numbers, Numbers]:
        p = self.probability(mean, variance)
        rule = quadrature.across(list(SHOULDERS), mean, variance)
        spread = quadrature.expectation(lambda f: (jnp.exp(log_link(self.link, f)) - p) ** 2, mean, variance, rule)
        return extra * p, extra * p * (1 - p) + extra * (extra - 1) * spread

    def cumulative(self, y: Any, f: Any, extra: Any = 1.0) -> Any:
        return np.where(y < extra, special.betainc(np.maximum(extra - y, 1e-9), y + 1.0, self._host_link(-f)), 1.0)

    def _host_link(self, z: Any) -> Any:
        return special.ndtr(z) if self.link == "probit" else special.expit(z)

    def landmarks(self, y: Any, extra: Any = 1.0) -> list[Any]:
        inverse = special.ndtri if self.link == "probit" else special.logit
        p = np.clip((y + 0.5) / np.asarray(extra), 0.25 / np.asarray(extra), 1 - 0.25 / np.asarray(extra))
        width = 1 / np.sqrt(np.asarray(extra) * p * (1 - p))
        return [inverse(p) + k * width for k in (-8.0, -3.0, 0.0, 3.0, 8.0)]

    def sample(self, rng: np.random.Generator, f: Any, extra: Any = 1.0) -> np.ndarray:
        return rng.binomial(np.broadcast_to(extra, np.shape(f)).astype(int), self._host_link(np.asarray(f))).astype(float)


def _log_choose(y: Any, trials: Any) -> Any:
    return gammaln(trials + 1) - gammaln(y + 1) - gammaln(trials - y + 1)


def whole_counts(likelihood: Likelihood, y: Any) -> np.ndarray:
    """Observations that are 0, 1, 2, …, as floats."""
    values = numeric(likelihood, y)
    wrong = (values < 0) | (values != np.floor(values)) & ~np.isnan(values)
    if wrong.any():
        met = first_few(values, wrong)
        raise ValueError(
            f"{type(likelihood).__name__} needs counts 0, 1, 2, …, got {met}: round them, or choose another likelihood"
        )
    return values
