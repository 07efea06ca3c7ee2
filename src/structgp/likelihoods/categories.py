"""Several classes without an order: one latent function for each, through the softmax."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .._types import Numbers
from ..linalg.quadrature import lattice
from .base import Likelihood
from .labels import class_numbers


class Categorical(Likelihood):
    """y is class c with probability exp(f_c) / Σ exp(f_j): latent values have a last axis, one for each class.

    Averages over the latents, whose spread is given by variances (…, C) or by covariances (…, C, C), are taken over the points
    of one fixed lattice of about 4000: probabilities are good to about 1e-3, and to 3e-3 for ten classes with wide latents.
    """

    classes: int = eqx.field(static=True, default=3)

    def __check_init__(self) -> None:
        if not isinstance(self.classes, int) or self.classes < 2:
            raise ValueError(f"Categorical: classes must be a whole number from 2 on, got {self.classes!r}")

    @property
    def latents(self) -> int:
        return self.classes

    @property
    def log_concave(self) -> bool:
        return True

    @property
    def default_inference(self) -> str:
        return "laplace"

    def check(self, y: np.ndarray, extra: np.ndarray | None = None) -> np.ndarray:
        self.check_extra(extra, np.shape(y))
        return class_numbers(self, y, "number the classes so, or say how many there are: Categorical(classes=…)")

    def log_prob(self, y: Numbers, f: Numbers, extra: Numbers = 1.0) -> Numbers:
        return self._of_class(jax.nn.log_softmax(f, axis=-1), y)

    def _of_class(self, each: Any, y: Any) -> Any:
        return jnp.sum(each * self._indicators(y), axis=-1)

    def _indicators(self, y: Any) -> Any:
        return (jnp.asarray(y).astype(int)[..., None] == jnp.arange(self.classes)).astype(float)

    def derivatives(self, y: Numbers, f: Numbers, extra: Numbers = 1.0) -> tuple[Numbers, Numbers, Numbers]:
        """log p(y | f), its gradient (…, C), and W = diag(π) − ππᵀ (…, C, C)."""
        p = jax.nn.softmax(f, axis=-1)
        return (
            self.log_prob(y, f),
            self._indicators(y) - p,
            p[..., None] * jnp.eye(self.classes) - p[..., None] * p[..., None, :],
        )

    def curvature_bound(self, y: Numbers, f: Numbers, extra: Numbers = 1.0) -> Numbers:
        """W, which is never negative here."""
        return self.derivatives(y, f)[2]

    def _nodes(self, mean: Any, variance: Any) -> Any:
        """Latent values (points, …, C) that stand for N(mean, variance)."""
        points = jnp.asarray(lattice(self.classes))
        points = points.reshape(len(points), *(1,) * (jnp.ndim(mean) - 1), self.classes)
        if jnp.ndim(variance) == jnp.ndim(mean):
            return mean + jnp.sqrt(variance) * points
        return mean + jnp.einsum("...ij,...j->...i", jnp.linalg.cholesky(variance), points)

    def log_tilted(self, y: Numbers, mean: Numbers, variance: Numbers, power: Numbers = 1.0, extra: Numbers = 1.0) -> Numbers:
        logs = power * self.log_prob(y, self._nodes(mean, variance))
        return jax.nn.logsumexp(logs, axis=0) - jnp.log(len(logs))

    def tilted_derivatives(
        self, y: Numbers, mean: Numbers, variance: Numbers, power: Numbers = 1.0, extra: Numbers = 1.0
    ) -> tuple[Numbers, Numbers, Numbers]:
        """`log_tilted`, its gradient in the mean (…, C), and minus its matrix of second derivatives (…, C, C)."""
        value, slope, W = self.derivatives(y, self._nodes(mean, variance))
        powers = jnp.asarray(power)[..., None]
        slope, weight = powers * slope, jax.nn.softmax(power * value, axis=0)
        average = jnp.sum(weight[..., None] * slope, axis=0)
        off = slope - average
        spread = jnp.einsum("p...,p...i,p...j->...ij", weight, off, off)
        bend = powers[..., None] * jnp.sum(weight[..., None, None] * W, axis=0)
        return self.log_tilted(y, mean, variance, power), average, bend - spread

    def expected_log_prob(self, y: Numbers, mean: Numbers, variance: Numbers, extra: Numbers = 1.0) -> Numbers:
        return jnp.mean(self.log_prob(y, self._nodes(mean, variance)), axis=0)

    def probability(self, mean: Numbers, variance: Numbers) -> Numbers:
        """The probabilities of the classes, in the last axis, when f ~ N(mean, variance)."""
        return jnp.mean(jax.nn.softmax(self._nodes(mean, variance), axis=-1), axis=0)

    def moments(self, f: Numbers, extra: Numbers = 1.0) -> tuple[Numbers, Numbers]:
        """Mean and variance of the indicators of the classes given f."""
        p = jax.nn.softmax(f, axis=-1)
        return p, p * (1 - p)

    def observed(self, mean: Numbers, variance: Numbers, extra: Numbers = 1.0) -> tuple[Numbers, Numbers]:
        """Mean and variance of the indicators of the classes."""
        p = self.probability(mean, variance)
        return p, p * (1 - p)

    def quantile(self, q: Numbers, mean: Numbers, variance: Numbers, extra: Numbers = 1.0) -> Numbers:
        raise ValueError("classes without an order have no quantiles: ask for their probability, or use Ordinal")

    def sample(self, rng: np.random.Generator, f: Any, extra: Any = 1.0) -> np.ndarray:
        return np.argmax(f + rng.gumbel(size=np.shape(f)), axis=-1).astype(float)
