"""A process given data as a value, and what every answer about it needs: new places, shapes, the order of the caller."""

from __future__ import annotations

import dataclasses
from typing import Any, Self

import jax.numpy as jnp
import numpy as np

from .._types import double_precision
from ..engines.basis import Weights
from ..engines.kalman import KalmanConditional
from ..engines.plan import Plan
from ..inference.base import Inferred
from ..inputs.layouts import Inputs, as_inputs, check_columns, clocks_of
from ..inputs.observations import Data
from ..learn.account import Learning
from ..linalg.blocks import diagonals
from ..posterior import Conditional, Model, Moments, Prediction, Result
from .conditioning import Conditioned, Posterior, evidence_bounds


class OfGP:
    """What has a GP has its kernel and its likelihood."""

    gp: Any  # a GP

    @property
    def kernel(self) -> Any:
        """The kernel with its values."""
        return self.gp.kernel

    @property
    def likelihood(self) -> Any:
        """The likelihood with its values."""
        return self.gp.likelihood


class Drawn:
    """What a picture can be made of."""

    def plot(self, X: Any = None, *, level: float = 0.95, target: int = 0, ax: Any = None) -> Any:
        """Draw a process of one input: data, mean and bands. Needs Matplotlib; returns the axes."""
        from ..plots import plot

        return plot(self, X, level=level, target=target, ax=ax)  # type: ignore[arg-type]


@dataclasses.dataclass(frozen=True)
class Given(OfGP, Drawn, Result):
    """What a `Fitted` consists of."""

    gp: Any  # a GP
    inputs: Inputs
    data: Data
    plan: Plan
    conditional: Conditional
    weights: Weights
    log_evidence: float
    learning: Learning | None = None
    inference: Inferred | None = None  # how sites were found, when the observations are not Gaussian

    @classmethod
    def of(cls, gp: Model, inputs: Inputs, data: Data, given: Conditioned, learning: Learning | None = None) -> Self:
        """A GP as it was conditioned."""
        posterior, plan, inference = given
        evidence = float(posterior.log_evidence)
        return cls(gp, inputs, data, plan, posterior.conditional, posterior.weights, evidence, learning, inference)

    @property
    def posterior(self) -> Posterior:
        """What is believed of f, as a value that passes through JAX's transformations."""
        return Posterior(self.gp, self.conditional, self.weights, np.asarray(self.log_evidence), self._targets)

    @property
    def evidence_error(self) -> float:
        """The standard error of `log_evidence`, 0 where it is exact."""
        return 0.5 * self._targets * float(self.conditional.log_det_error)

    @property
    @double_precision
    def evidence_bounds(self) -> tuple[float, float] | None:
        """Between what the log evidence of the exact model lies, where an approximation knows that; else None."""
        return evidence_bounds(self.posterior, self.data)

    @property
    def _targets(self) -> int:
        return self.data.y.shape[1]

    @property
    def _latents(self) -> tuple[int, ...]:
        """The axis that several latents have in every answer: none for one."""
        return () if self.likelihood.latents == 1 else (self.likelihood.latents,)

    @property
    def _single(self) -> bool:
        return self.data.flat

    def _shaped(self, values: np.ndarray) -> np.ndarray:
        return values[..., 0] if self._single else values

    def _spread(self, variance: np.ndarray) -> np.ndarray:
        return variance if self._single else np.repeat(variance[:, None], self._targets, axis=1)

    def _new_points(self, X: Any) -> np.ndarray:
        new = as_inputs(X, allow_empty=True, clocks=clocks_of(self.inputs))
        self._check_dimension(new)
        return np.asarray(new.points)

    def _prediction(self, mean: np.ndarray, variance: np.ndarray, extra: Any) -> Prediction:
        """A belief about f; of several latents the variances are matrices, or their diagonals."""
        if not self._latents:
            return Prediction(mean, variance, self.likelihood, extra=extra)
        covariance = variance if variance.ndim > mean.ndim else np.asarray(diagonals(jnp.asarray(variance)))
        variance = np.diagonal(covariance, axis1=-2, axis2=-1)
        return Prediction(mean, variance, self.likelihood, covariance, extra)

    def _check_dimension(self, new: Inputs) -> None:
        check_columns(new, self.inputs.dimension)

    def _in_callers_order(self, mean: Any, variance: Any) -> Moments:
        rank = self._rank()
        return Moments(self._shaped(np.asarray(mean)[rank]), self._spread(np.asarray(variance)[rank]))

    def _rank(self) -> np.ndarray:
        """Where each row of the caller stands in the order of the chain, which is that of clocks where outputs have lags."""
        known = self.conditional.rank  # type: ignore[attr-defined]
        rank = self.inputs.rank if known is None else known  # type: ignore[attr-defined]
        return np.asarray(rank)[: len(self.inputs)]

    def _along_time(self) -> Posterior:
        if self._latents:
            raise ValueError(f"this is computed of one latent along time: {type(self.likelihood).__name__} sees several")
        if not isinstance(self.conditional, KalmanConditional):
            raise ValueError("this is computed along time: condition with structure='markov' to have it")
        return self.posterior

    def _needs_gaussian(self, what: str) -> None:
        if self.inference is not None:
            name = type(self.likelihood).__name__
            raise ValueError(f"{what} needs Gaussian observations: the sites of {name} depend on all observations together")

    def _extra(self, extra: Any, X: Any) -> Any:
        """What the likelihood is told besides of observations at these places, 1 where nothing is."""
        told = self.likelihood.told_by(np.asarray(X), None if extra is None else np.asarray(extra, dtype=float))
        return told if np.ndim(told) == 0 or not self._targets > 1 or np.ndim(told) > 1 else told[:, None]
