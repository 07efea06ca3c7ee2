"""What the estimators of Gaussian processes share: how they learn, and what they keep."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from ..engines.approximation import of_structure
from ..inputs.layouts import as_inputs
from ..inputs.observations import read_observations
from ..learn.initialise import suggested
from ..means import ConstantMean, LinearMean, ZeroMean
from ..models.candidates import SECONDS, SUMS, affordable_rows
from ..models.choose import ENDING
from ..process.gp import GP
from .rows import RowReader

MEANS = {"zero": ZeroMean, "constant": ConstantMean, "linear": LinearMean}


@dataclasses.dataclass(eq=False, repr=False, kw_only=True)
class Learner(RowReader):
    """What the estimators share: how they learn, and what is kept. scikit-learn reads the fields from their constructors."""

    structure: Any = "auto"
    learn: bool = True
    parameters: Any = "auto"
    restarts: int | None = None
    seconds: float | None = SECONDS
    max_evaluations: int = 200
    random_state: Any = None

    def _fit(self, gp: GP, X: np.ndarray, y: np.ndarray, **options: Any) -> None:
        """Learn, or condition with the parameters as they are, and keep what scikit-learn's users look for."""
        if self.learn:
            options |= {"restarts": self.restarts, "seed": self._seed(), "max_evaluations": self.max_evaluations}
            seconds = None if self.seconds is None else (1 - ENDING) * self.seconds
            options |= {"parameters": self.parameters, "seconds": seconds}
        action = gp.fit if self.learn else gp.condition
        structure, approximate = of_structure(self.structure)
        fitted = action(X, y, structure=structure, approximate=approximate, **options)
        self._keep(fitted, fitted.plan)

    def _keep(self, fitted: Any, plan: Any) -> None:
        self.fitted_, self.plan_ = fitted, plan
        self.kernel_, self.likelihood_ = getattr(fitted, "kernel", None), fitted.likelihood
        self.log_evidence_ = fitted.log_evidence

    def _without_matrix(self, X: np.ndarray, plain: bool, task: str, classes: int = 0) -> bool:
        """Whether the matrix of all rows is too large for the time that there is, or something else was asked for."""
        if of_structure(self.structure)[1] is not None:
            return False
        if self.structure in SUMS and not plain:
            raise ValueError(
                f"structure={self.structure!r} learns its own kernel from two columns or more: leave kernel, noise, mean, "
                "inference and learn to their defaults, or see AdditiveGP and ProjectionPursuitGP"
            )
        if self.structure != "auto" or not plain or self.seconds is None:
            return plain and self.structure in SUMS
        return len(X) > affordable_rows(X.shape[1], task, classes, self.seconds)


def as_mean(mean: Any, columns: int) -> Any:
    """A mean by its name, or as it was given."""
    if not isinstance(mean, str):
        return mean
    if mean not in MEANS:
        raise ValueError(f"mean must be one of {list(MEANS)}, a number, a function or a Mean, got {mean!r}")
    return LinearMean(slope=np.zeros(columns)) if mean == "linear" else MEANS[mean]()


def in_units_of(gp: GP, X: np.ndarray, y: np.ndarray, noise: Any = None, extra: Any = None) -> GP:
    """A model of ours with its parameters in the units of the data, where learning starts."""
    return suggested(gp, X, read_observations(gp.likelihood, y, noise, "error", as_inputs(X), extra))


def units_of_columns(X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of each column; 1 for one that is constant."""
    center, spread = X.mean(axis=0), X.std(axis=0)
    return center, np.where(spread > 10 * np.finfo(float).eps * np.abs(center), spread, 1.0)
