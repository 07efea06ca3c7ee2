"""Additive-VB: additive regression with independent beliefs about its terms, each by the Kalman smoother on what others leave.

With q(f) = Π_d q(f_d), the lower bound on the evidence is

    L = −(N/2) log 2πσ² − (‖y − Σμ_d‖² + Σ_d tr v_d)/2σ² − Σ_d KL(q_d ‖ p_d).

Given the other terms, the best q_d together with the best parameters of term d maximise the evidence log Z_d of their
residual r_d = y − Σ_{j≠d} μ_j under that term alone, and −KL_d = log Z_d + (N/2) log 2πσ² + (‖r_d − μ_d‖² + tr v_d)/2σ². Each
step raises L. The means converge to those of the exact posterior, slowly where columns are correlated; variances of terms are
too small, because the terms cannot trade their constants. (Saatçi 2011, Algorithm 11.)
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from ...inputs.clock import Clocks
from ...inputs.layouts import as_inputs, check_columns, clocks_of
from ...inputs.observations import read_known
from ...kernels.stationary import HalfIntegerMatern, Matern72
from ...likelihoods.gaussian import Gaussian
from ...parameters.tree import fixed
from ...posterior import Prediction, Result
from ...process.fitted import Fitted
from ...process.gp import GP

EVALUATIONS = 6  # of the evidence of one term in one step


@dataclasses.dataclass(frozen=True)
class FittedAdditiveVB(Result):
    """The terms given data, each as a process of its own column, and the bound after every sweep."""

    terms: tuple[Fitted, ...]
    constant: float
    noise: float
    bounds: tuple[float, ...]
    clocks: Clocks = ()

    def predict(self, X: Any) -> Prediction:
        """The belief about f: means and variances of the terms, added."""
        new = as_inputs(X, clocks=self.clocks or None)
        check_columns(new, len(self.terms))
        columns = np.asarray(new.points).T
        parts = [term.predict(column) for term, column in zip(self.terms, columns, strict=True)]
        mean = sum((part.mean for part in parts), np.full(columns.shape[1], self.constant))
        return Prediction(mean, sum((part.variance for part in parts), np.zeros(len(mean))), Gaussian(self.noise))


@dataclasses.dataclass(frozen=True)
class AdditiveVB:
    """Additive regression by variational EM; `learn=False` keeps the kernel's and the noise's values."""

    kernel: HalfIntegerMatern = dataclasses.field(default_factory=Matern72)
    noise: float | None = None
    sweeps: int = 50
    tolerance: float = 1e-3  # of the bound, in nats, between two sweeps
    learn: bool = True

    def fit(self, X: Any, y: Any) -> FittedAdditiveVB:
        """Sweep over the terms until the bound rises no more."""
        inputs = as_inputs(X, clocks=())
        columns = np.asarray(inputs.points).T
        target = read_known(Gaussian(), y, inputs)
        constant, spread = float(target.mean()), float(target.var()) or 1.0
        state = _State(target - constant, len(columns), spread / 4 if self.noise is None else self.noise)
        kernels: list[Any] = [self._start(column, spread / len(columns)) for column in columns]
        for _ in range(self.sweeps):
            for d, column in enumerate(columns):
                kernels[d] = state.step(d, column, kernels[d], self.learn)
            if self.learn:
                state.noise = (np.sum(state.errors() ** 2) + np.sum(state.variance)) / len(target)
            state.bounds.append(state.bound())
            if len(state.bounds) > 1 and state.bounds[-1] - state.bounds[-2] < self.tolerance:
                break
        bounds, clocks = tuple(state.bounds), clocks_of(inputs)
        return FittedAdditiveVB(tuple(state.terms), constant, float(state.noise), bounds, clocks)  # type: ignore[arg-type]

    def _start(self, column: np.ndarray, variance: float) -> HalfIntegerMatern:
        if not self.learn:
            return self.kernel
        return self.kernel.replace(lengthscale=0.5 * (float(np.ptp(column)) or 1.0), variance=variance)


class _State:
    """The means and variances of all terms at the data, their distances from the prior, and the noise."""

    def __init__(self, y: np.ndarray, count: int, noise: float) -> None:
        self.y, self.noise = y, noise
        self.mean, self.variance = np.zeros((count, len(y))), np.zeros((count, len(y)))
        self.distance = np.zeros(count)
        self.terms: list[Fitted | None] = [None] * count
        self.bounds: list[float] = []

    def errors(self) -> np.ndarray:
        return self.y - self.mean.sum(axis=0)

    def step(self, d: int, column: np.ndarray, kernel: Any, learn: bool) -> Any:
        """The best belief about one term, with the best parameters for it."""
        left = self.errors() + self.mean[d]
        gp = GP(kernel, Gaussian(fixed(self.noise)))
        options: dict[str, Any] = {"restarts": 0, "max_evaluations": EVALUATIONS, "parameters": "best"}
        fitted: Any = gp.fit(column, left, **options) if learn else gp.condition(column, left)
        smoothed = fitted.smoothed()
        self.terms[d], self.mean[d], self.variance[d] = fitted, smoothed.mean, smoothed.variance
        unexplained = np.sum((left - smoothed.mean) ** 2) + np.sum(smoothed.variance)
        self.distance[d] = -(
            fitted.log_evidence + 0.5 * len(left) * np.log(2 * np.pi * self.noise) + unexplained / (2 * self.noise)
        )
        return fitted.kernel

    def bound(self) -> float:
        """L, for the beliefs and the noise at hand."""
        misfit = np.sum(self.errors() ** 2) + np.sum(self.variance)
        return float(-0.5 * len(self.y) * np.log(2 * np.pi * self.noise) - misfit / (2 * self.noise) - np.sum(self.distance))
