"""What the estimators of Gaussian processes share: how they learn, and what they keep."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from ..engines import memory
from ..engines.approximation import as_approximation, of_structure
from ..engines.cholesky import cost_of_matrix
from ..engines.plan import check_structure
from ..inputs.layouts import as_inputs
from ..inputs.observations import read_observations
from ..learn.clock import Deadline
from ..learn.initialise import suggested
from ..means import ConstantMean, LinearMean, ZeroMean
from ..models.candidates import INDUCING, SECONDS, SUMS, Process, affordable_rows, task_of
from ..models.choose import ENDING, of_many_rows
from ..parameters.tree import free_vector
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

    def _fit(
        self,
        gp: GP,
        X: np.ndarray,
        y: np.ndarray,
        *,
        inference: str | None = None,
        labels: bool = False,
        until: Deadline | None = None,
        **told: Any,
    ) -> None:
        """Learn, or condition with the parameters as they are, and keep what scikit-learn's users look for.

        What is `told` of each row are known noise and what the likelihood wants to know besides.
        """
        told = {name: value for name, value in told.items() if value is not None}
        seconds = self.seconds if until is None or self.seconds is None else max(until.left(), 0.0)
        how: dict[str, Any] = {} if inference is None else {"inference": inference}
        structure, approximate = of_structure(self.structure)
        if structure == "auto" and approximate is None and self._beyond(gp, X, y, seconds, told):
            if self.learn:
                process = Process(gp, inference, labels, evaluations=self.max_evaluations)
                self._keep(*of_many_rows(X, y, "auto", self._seed(), seconds=seconds, process=process, told=told))
                return
            approximate = as_approximation(f"inducing:{INDUCING}")
        options: dict[str, Any] = {}
        if self.learn:
            options = {"restarts": self.restarts, "seed": self._seed(), "max_evaluations": self.max_evaluations}
            options |= {"parameters": self.parameters, "seconds": None if seconds is None else (1 - ENDING) * seconds}
        action = gp.fit if self.learn else gp.condition
        fitted = action(X, y, structure=structure, approximate=approximate, **how, **told, **options)
        self._keep(fitted, fitted.plan)

    def _beyond(self, gp: GP, X: np.ndarray, y: np.ndarray, seconds: float | None, told: dict[str, Any]) -> bool:
        """Whether nothing but the matrix of all rows is exact, and that takes longer than there is time for, or more memory."""
        if not (isinstance(self.parameters, str) and self.parameters in ("auto", "best")):
            return False
        (N, D), numbers = X.shape, len(free_vector(gp)) if self.learn else 0
        each = None if seconds is None else seconds / gp.likelihood.latents**2
        slow = each is not None and affordable_rows(D, task_of(gp), 0, each, numbers) < N
        large = slow or cost_of_matrix(N, D).bytes > memory.available()
        return large and gp.plan(X, y=y, **told).engine.structure == "dense"

    def _keep(self, fitted: Any, plan: Any) -> None:
        self.fitted_, self.plan_ = fitted, plan
        self.kernel_, self.likelihood_ = getattr(fitted, "kernel", None), fitted.likelihood
        self.log_evidence_ = fitted.log_evidence

    def _without_matrix(self, X: np.ndarray, plain: bool, task: str, classes: int = 0) -> bool:
        """Whether the matrix of all rows is too large for the time that there is, or something else was asked for."""
        structure, approximate = of_structure(self.structure)
        if approximate is not None:
            return False
        check_structure(structure, more=SUMS)
        if self.structure in SUMS and not plain:
            raise ValueError(
                f"structure={self.structure!r} learns its own kernel from two columns or more: leave kernel, noise, mean, "
                "inference and learn to their defaults, or see AdditiveGP and ProjectionPursuitGP"
            )
        if self.structure != "auto" or not plain:
            return plain and self.structure in SUMS
        return self._takes_too_long(X, task, classes)

    def _takes_too_long(self, X: np.ndarray, task: str, classes: int = 0) -> bool:
        """Whether learning from the matrix of all rows takes longer than there is time for, where the choice is ours."""
        if self.structure != "auto" or self.seconds is None:
            return False
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
