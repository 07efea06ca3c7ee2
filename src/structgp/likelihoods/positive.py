"""Positive numbers whose noise grows with their level."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from .._types import Numbers
from ..parameters.supports import positive
from ..parameters.tree import parameter
from .base import Likelihood, first_few, numeric
from .durations import lognormal_moments
from .gaussian import log_normal

LEAST = 1e-300


class LogGaussian(Likelihood):
    """log y = f + ε, ε ~ N(0, noise): noise in proportion to a level exp(f), which is positive.

    Sites are exact, so that every inference gives the evidence of Gaussian data log y, less Σ log y: it can be compared with
    that of a model of y itself.
    """

    noise: Numbers = parameter(0.01, positive)

    log_concave = True
    default_inference = "laplace"

    def check(self, y: np.ndarray, extra: np.ndarray | None = None) -> np.ndarray:
        self.check_extra(extra, np.shape(y))
        values = numeric(self, y)
        wrong = values <= 0
        if wrong.any():
            raise ValueError(f"LogGaussian needs positive numbers, got {first_few(values, wrong)}: drop them, or use Gaussian")
        return values

    def log_prob(self, y: Numbers, f: Numbers, extra: Numbers = 1.0) -> Numbers:
        return log_normal(jnp.log(y) - f, self.noise) - jnp.log(y)

    def log_tilted(self, y: Numbers, mean: Numbers, variance: Numbers, power: Numbers = 1.0, extra: Numbers = 1.0) -> Numbers:
        total = power * variance + self.noise  # N(·; f, s)^p as in `Gaussian`
        quadratic = power * (jnp.log(y) - mean) ** 2 / total + jnp.log(total / self.noise)
        return -0.5 * (quadratic + power * jnp.log(2 * jnp.pi * self.noise)) - power * jnp.log(y)

    def expected_log_prob(self, y: Numbers, mean: Numbers, variance: Numbers, extra: Numbers = 1.0) -> Numbers:
        return self.log_prob(y, mean) - 0.5 * variance / self.noise

    def suggested(self, y: np.ndarray, extra: np.ndarray | None, noisy: float) -> tuple[Likelihood, float, float]:
        logs = np.log(y)
        spread = float(np.var(logs)) if len(logs) > 1 and np.ptp(logs) > 0 else 0.1
        return LogGaussian(noisy * spread), float(np.mean(logs)) if len(logs) else 0.0, spread * (1 - noisy)

    def moments(self, f: Numbers, extra: Numbers = 1.0) -> tuple[Numbers, Numbers]:
        return self.observed(f, 0.0 * f)

    def observed(self, mean: Numbers, variance: Numbers, extra: Numbers = 1.0) -> tuple[Numbers, Numbers]:
        return lognormal_moments(mean, variance + self.noise, 1.0, 1.0)

    def cumulative(self, y: Any, f: Any, extra: Any = 1.0) -> Any:
        return self.predictive_cumulative(y, f, 0.0)

    def predictive_cumulative(self, y: Any, mean: Any, variance: Any, extra: Any = 1.0) -> np.ndarray:
        from scipy.special import ndtr

        logs = np.log(np.maximum(y, LEAST))
        return np.where(np.asarray(y) > 0, ndtr((logs - mean) / np.sqrt(variance + np.asarray(self.noise))), 0.0)

    def quantile(self, q: Numbers, mean: Numbers, variance: Numbers, extra: Numbers = 1.0) -> Numbers:
        from scipy.special import ndtri

        return np.exp(mean + ndtri(q) * np.sqrt(variance + np.asarray(self.noise)))

    def sample(self, rng: np.random.Generator, f: Any, extra: Any = 1.0) -> np.ndarray:
        return np.exp(f + np.sqrt(self.noise) * rng.standard_normal(np.shape(f)))
