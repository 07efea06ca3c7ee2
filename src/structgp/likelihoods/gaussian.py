"""Gaussian noise."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from .._types import Numbers
from ..parameters.supports import nonnegative
from ..parameters.tree import parameter
from .base import Likelihood


class Gaussian(Likelihood):
    """y = f + ε, ε ~ N(0, noise): `noise` is a variance; zero means that the function is seen exactly."""

    noise: Numbers = parameter(1.0, nonnegative)

    @property
    def is_gaussian(self) -> bool:
        return True

    def noise_at(self, X: Float[Any, "N D"]) -> Float[Any, " ..."]:
        return self.noise

    def log_prob(self, y: Numbers, f: Numbers, extra: Numbers = 1.0) -> Numbers:
        return log_normal(y - f, self.noise)

    def log_tilted(self, y: Numbers, mean: Numbers, variance: Numbers, power: Numbers = 1.0, extra: Numbers = 1.0) -> Numbers:
        # N(y; f, s)^p = (2πs)^((1−p)/2) p^(−½) N(y; f, s/p), written so that p = 0 is harmless
        total = power * variance + self.noise
        quadratic = power * (y - mean) ** 2 / total + jnp.log(total / self.noise) + power * jnp.log(2 * jnp.pi * self.noise)
        return -0.5 * quadratic

    def expected_log_prob(self, y: Numbers, mean: Numbers, variance: Numbers, extra: Numbers = 1.0) -> Numbers:
        return self.log_prob(y, mean) - 0.5 * variance / self.noise

    def suggested(self, y: np.ndarray, extra: np.ndarray | None, noisy: float) -> tuple[Likelihood, float, float]:
        spread = float(np.mean(np.var(y, axis=0))) if len(y) > 1 else 1.0
        spread = spread if spread > 0 else 1.0
        return Gaussian(noisy * spread), float(np.mean(y)) if len(y) else 0.0, spread * (1 - noisy)

    def moments(self, f: Numbers, extra: Numbers = 1.0) -> tuple[Numbers, Numbers]:
        return f, self.noise

    def observed(self, mean: Numbers, variance: Numbers, extra: Numbers = 1.0) -> tuple[Numbers, Numbers]:
        return mean, variance + self.noise

    def log_predictive(self, y: Numbers, mean: Numbers, variance: Numbers, extra: Numbers = 1.0) -> Numbers:
        return log_normal(y - mean, variance + self.noise)

    def predictive_cumulative(self, y: Any, mean: Any, variance: Any, extra: Any = 1.0) -> np.ndarray:
        from scipy.special import ndtr  # on the host, where nothing has to be compiled for it

        return ndtr((y - mean) / np.sqrt(variance + self.noise))

    def quantile(self, q: Numbers, mean: Numbers, variance: Numbers, extra: Numbers = 1.0) -> Numbers:
        from scipy.special import ndtri

        return mean + ndtri(q) * np.sqrt(variance + self.noise)

    def sample(self, rng: np.random.Generator, f: Any, extra: Any = 1.0) -> np.ndarray:
        return f + np.sqrt(self.noise) * rng.standard_normal(np.shape(f))


def log_normal(r: Numbers, variance: Numbers) -> Numbers:
    """log N(r; 0, variance)."""
    return -0.5 * (r**2 / variance + jnp.log(2 * jnp.pi * variance))
