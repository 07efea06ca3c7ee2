"""Gaussian noise."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtri

from .._types import Numbers
from ..parameters import parameter
from ..supports import nonnegative
from .base import Likelihood


class Gaussian(Likelihood):
    """y = f + ε, ε ~ N(0, noise): `noise` is a variance; zero means that the function is seen exactly."""

    noise: Numbers = parameter(1.0, nonnegative)

    def log_prob(self, y: Numbers, f: Numbers) -> Numbers:
        return -0.5 * ((y - f) ** 2 / self.noise + jnp.log(2 * jnp.pi * self.noise))

    def observed(self, mean: Numbers, variance: Numbers) -> tuple[Numbers, Numbers]:
        return mean, variance + self.noise

    def log_predictive(self, y: Numbers, mean: Numbers, variance: Numbers) -> Numbers:
        total = variance + self.noise
        return -0.5 * ((y - mean) ** 2 / total + jnp.log(2 * jnp.pi * total))

    def quantile(self, q: Numbers, mean: Numbers, variance: Numbers) -> Numbers:
        return mean + ndtri(q) * jnp.sqrt(variance + self.noise)

    def sample(self, rng: np.random.Generator, f: Any) -> np.ndarray:
        return f + np.sqrt(self.noise) * rng.standard_normal(np.shape(f))
