"""What learning looks at: log p(y | θ) and log p(θ), apart, each with its gradient.

Whatever climbs, samples or anneals uses this one object; a model gives the evidence, and nothing else. θ are the free
parameters as one vector; their `log_volume` turns a density of the values into one of θ.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float

from .._types import double_precision
from ..parameters.tree import leaves, log_prior, log_volume, with_free

LOWEST = -1e25  # stands for a density of zero, which a line search can step back from

Evidence = Callable[[np.ndarray], tuple[Any, Any]]  # log p(y | θ) and its gradient


class Terms(NamedTuple):
    """log p(y | θ) and log p(θ) with their gradients; of several θ each has one more axis in front."""

    log_evidence: Float[Any, " *S"]
    gradient: Float[Any, "*S P"]
    log_prior: Float[Any, " *S"]
    prior_gradient: Float[Any, "*S P"]

    def summed(self) -> tuple[Float[np.ndarray, " *S"], Float[np.ndarray, "*S P"]]:
        """The sum and its gradient; `LOWEST` and no slope where there is no value."""
        value, gradient = self.log_evidence + self.log_prior, self.gradient + self.prior_gradient
        bad = ~(np.isfinite(value) & np.isfinite(gradient).all(axis=-1))
        return np.where(bad, LOWEST, value), np.where(bad[..., None], 0.0, gradient)


class Objective:
    """The log evidence of one model on one set of data and the log prior of its parameters, as functions of θ.

    `evidence_of_many` evaluates several θ (S, P) in one computation, where a model can, and `evidences` gives the log evidences
    alone. `together` says that several θ are better looked at in one computation than one by one. `grain` is how much
    of a log evidence is left to chance: climbing does not go after less.
    """

    def __init__(
        self,
        model: Any,
        evidence: Evidence,
        grain: float = 0.0,
        evidence_of_many: Evidence | None = None,
        evidences: Callable[[np.ndarray], np.ndarray] | None = None,
        together: bool = False,
    ) -> None:
        self.model, self.evidence, self.grain, self.together = model, evidence, grain, together
        self._many = evidence_of_many or self._one_by_one
        self.evidences = evidences or self._values_of_many
        self._believed = any(leaf.prior is not None for leaf in leaves(model))

    @double_precision
    def __call__(self, theta: Float[Any, " P"]) -> tuple[float, Float[np.ndarray, " P"]]:
        """log p(y | θ) + log p(θ) and its gradient, for a minimiser."""
        value, gradient = self.terms(theta).summed()
        return float(value), gradient

    @double_precision
    def terms(self, theta: Float[Any, " P"]) -> Terms:
        """Evidence and prior apart."""
        value, gradient = (np.asarray(part) for part in self.evidence(np.asarray(theta, dtype=float)))
        return Terms(value, gradient, *self._prior(theta))

    @double_precision
    def many(self, thetas: Float[Any, "S P"]) -> Terms:
        """Evidence and prior apart, at several θ."""
        thetas = np.asarray(thetas, dtype=float)
        values, gradients = (np.asarray(part) for part in self._many(thetas))
        priors = [self._prior(theta) for theta in thetas]
        return Terms(values, gradients, *(np.stack(part) for part in zip(*priors, strict=True)))

    def looks(self, thetas: Float[Any, "S P"]) -> tuple[Float[np.ndarray, " S"], Float[np.ndarray, "S P"]]:
        """log p(y | θ) + log p(θ) and its gradient at several θ, at once or one by one: by a program that is there."""
        if self.together:
            return self.many(thetas).summed()
        values, gradients = zip(*(self(theta) for theta in thetas), strict=True)
        return np.array(values), np.stack(gradients)

    @double_precision
    def log_volume(self, theta: Float[Any, " P"]) -> float:
        """log |∂values/∂θ|."""
        return float(log_volume(self.model, np.asarray(theta, dtype=float)))

    def _prior(self, theta: np.ndarray) -> tuple[Any, Any]:
        if not self._believed:
            return np.zeros(()), np.zeros(len(theta))
        value, gradient = _log_prior(np.asarray(theta), self.model)
        return np.asarray(value), np.asarray(gradient)

    def _values_of_many(self, thetas: np.ndarray) -> np.ndarray:
        return np.asarray(self._many(thetas)[0])

    def _one_by_one(self, thetas: np.ndarray) -> tuple[Any, Any]:
        values, gradients = zip(*(self.evidence(theta) for theta in thetas), strict=True)
        return np.stack(values), np.stack(gradients)


@jax.jit
def _log_prior(theta: Any, model: Any) -> tuple[Any, Any]:
    return jax.value_and_grad(lambda theta: log_prior(with_free(model, theta)))(theta)
