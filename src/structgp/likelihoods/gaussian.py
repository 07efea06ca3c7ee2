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
    """y = f + ε, ε ~ N(0, noise): `noise` is a variance; zero means that the function is seen exactly.

    Of several outputs each may have a noise of its own, (P,): the number of the output stands in the last column of the inputs,
    and is the extra number that this likelihood is told of new observations.
    """

    noise: Numbers = parameter(1.0, nonnegative)

    is_gaussian = True

    def noise_at(self, X: Float[Any, "N D"]) -> Float[Any, " ..."]:
        return self.of(X[:, -1])

    def check_points(self, X: Float[Any, "N D"]) -> None:
        if not np.ndim(self.noise):
            return
        count, output = np.size(self.noise), X[:, -1]
        if not np.all((output == np.round(output)) & (output >= 0) & (output < count)):
            raise ValueError(
                f"Gaussian noise has {count} numbers, one for each output, so that the last column of X must be the number of "
                f"the output, but it reaches from {output.min():.4g} to {output.max():.4g}: give one number, and the noise of "
                "single rows as noise=..."
            )

    def of(self, output: Any) -> Any:
        """The variance of the noise: of the output with this number, where each has its own."""
        if not np.ndim(self.noise):
            return self.noise
        xp: Any = np if isinstance(output, (float, np.ndarray)) and isinstance(self.noise, np.ndarray) else jnp
        return xp.asarray(self.noise)[xp.round(output).astype(int)]

    def told_by(self, X: Float[Any, "N D"], extra: Any) -> Any:
        return X[:, -1] if extra is None and np.ndim(self.noise) else 1.0 if extra is None else extra

    def log_prob(self, y: Numbers, f: Numbers, extra: Numbers = 1.0) -> Numbers:
        return log_normal(y - f, self.of(extra))

    def log_tilted(self, y: Numbers, mean: Numbers, variance: Numbers, power: Numbers = 1.0, extra: Numbers = 1.0) -> Numbers:
        # N(y; f, s)^p = (2πs)^((1−p)/2) p^(−½) N(y; f, s/p), written so that p = 0 is harmless
        noise = self.of(extra)
        total = power * variance + noise
        quadratic = power * (y - mean) ** 2 / total + jnp.log(total / noise) + power * jnp.log(2 * jnp.pi * noise)
        return -0.5 * quadratic

    def tilted_derivatives(
        self, y: Numbers, mean: Numbers, variance: Numbers, power: Numbers = 1.0, extra: Numbers = 1.0
    ) -> tuple[Numbers, Numbers, Numbers]:
        pull = power / (power * variance + self.noise)
        return self.log_tilted(y, mean, variance, power), pull * (y - mean), pull + 0.0 * y

    def expected_log_prob(self, y: Numbers, mean: Numbers, variance: Numbers, extra: Numbers = 1.0) -> Numbers:
        return self.log_prob(y, mean, extra) - 0.5 * variance / self.of(extra)

    def suggested(self, y: np.ndarray, extra: np.ndarray | None, noisy: float) -> tuple[Likelihood, float, float]:
        spread = float(np.mean(np.var(y, axis=0))) if len(y) > 1 else 1.0
        spread = spread if spread > 0 else 1.0
        return Gaussian(noisy * spread), float(np.mean(y)) if len(y) else 0.0, spread * (1 - noisy)

    def as_wide(self, noise: float) -> Likelihood:
        return self.replace(noise=noise)

    def moments(self, f: Numbers, extra: Numbers = 1.0) -> tuple[Numbers, Numbers]:
        return f, self.of(extra)

    def observed(self, mean: Numbers, variance: Numbers, extra: Numbers = 1.0) -> tuple[Numbers, Numbers]:
        return mean, variance + self.of(extra)

    def log_predictive(self, y: Numbers, mean: Numbers, variance: Numbers, extra: Numbers = 1.0) -> Numbers:
        return log_normal(y - mean, variance + self.of(extra))

    def predictive_cumulative(self, y: Any, mean: Any, variance: Any, extra: Any = 1.0) -> np.ndarray:
        from scipy.special import ndtr  # on the host, where nothing has to be compiled for it

        return ndtr((y - mean) / np.sqrt(variance + self.of(extra)))

    def quantile(self, q: Numbers, mean: Numbers, variance: Numbers, extra: Numbers = 1.0) -> Numbers:
        from scipy.special import ndtri

        return mean + ndtri(q) * np.sqrt(variance + self.of(extra))

    def sample(self, rng: np.random.Generator, f: Any, extra: Any = 1.0) -> np.ndarray:
        return f + np.sqrt(self.of(extra)) * rng.standard_normal(np.shape(f))


def log_normal(r: Numbers, variance: Numbers) -> Numbers:
    """log N(r; 0, variance)."""
    return -0.5 * (r**2 / variance + jnp.log(2 * jnp.pi * variance))
