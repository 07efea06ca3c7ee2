"""Estimators for data with outliers in groups, with noise that changes, and with labels that are wrong in places."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Self

import numpy as np
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils.validation import check_is_fitted, column_or_1d

from ..inputs.reading import read_numbers
from ..kernels.independent import Independent
from ..kernels.stationary import Matern52, Matern72
from ..likelihoods.switch import TwinnedLabels
from ..means import ConstantMean
from ..models.robust import EITHER, Units, heteroscedastic, latent_kernel, twinned
from ..parameters.tree import fixed, learned
from ..process.gp import GP
from .learning import Learner, units_of_columns

FLAT = 0.1  # slope of labels that are little more than coins, beside 3 of the others; learned, the two might change places


@dataclasses.dataclass(eq=False, repr=False)
class _Standardised(Learner):
    """What is learned in standard units of X and y: there the priors mean the same for all data."""

    kernel: Any = None
    _: dataclasses.KW_ONLY
    gate: Any = None
    parameters: Any = "best"
    restarts: int | None = 0

    def _predicted(self, X: Any) -> Any:
        check_is_fitted(self)
        return self.fitted_.predict(self._in_units(self._rows(X, reset=False)))

    def _in_units(self, X: np.ndarray) -> np.ndarray:
        center, scale = self._columns
        return (X - center) / scale

    def _signal_kernel(self) -> Any:
        if self.kernel is not None:
            return self.kernel
        D = self.n_features_in_
        return Matern52(lengthscale=np.full(D, np.sqrt(D)) if D > 1 else 1.0)


class _SeveralLatents(RegressorMixin, _Standardised):
    """Regression with a second latent behind the noise."""

    def fit(self, X: Any, y: Any) -> Self:
        """Learn from rows X and targets y (N,)."""
        X = self._rows(X, reset=True)
        y = column_or_1d(self._numbers(X, y), warn=True)
        self._columns = units_of_columns(X)
        center, scale = units_of_columns(y[:, None])
        self._center, self._scale = float(center[0]), float(scale[0])
        self._fit(self._model(), self._in_units(X), (y - self._center) / self._scale)
        self.log_evidence_ -= len(y) * np.log(self._scale)
        self._told()
        return self

    def predict(self, X: Any, return_std: bool = False, latent: bool = False) -> Any:
        """The mean of the signal at rows X; with `return_std` also the standard deviation of a new observation there.

        With ``latent=True`` it is that of the signal alone, without noise.
        """
        prediction = self._predicted(X)
        mean = self._center + self._scale * prediction.signal.mean
        if not return_std:
            return mean
        spread = prediction.signal.sd if latent else prediction.observed.sd
        return mean, self._scale * spread

    def predict_interval(self, X: Any, level: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
        """The central interval that holds a new observation with this probability."""
        lower, upper = self._predicted(X).interval(level)
        return self._center + self._scale * lower, self._center + self._scale * upper

    def log_prob(self, X: Any, y: Any) -> np.ndarray:
        """log p(y) of new observations, each by itself; the mean over rows is a score for forecasts."""
        prediction = self._predicted(X)
        return prediction.log_prob((read_numbers(y, "y")[0] - self._center) / self._scale) - np.log(self._scale)


class TwinnedGPRegressor(_SeveralLatents):
    """Regression for data with outliers that come in groups: a second process, the gate, says where they are.

    X and y are standardised. Weak priors are part of the model, in these units: log lengthscale of the gate N(0.3, 0.7²), log
    variance of the gate N(0.7, 0.7²), log variance of the noise N(−3, 1.5²) and of outliers N(0.7, 1), levels N(0.75, 1).
    Learning starts where the data suggest and, besides, without the groups of rows that a plain process would not have
    expected; the better end by evidence and prior is kept, the latter of two that are within 1 of each other, and the other is
    in ``fitted_.learning.runner_up``. Where outliers are scattered, `GPRegressor` with ``noise="student-t"`` is as good or
    better; where noise changes smoothly, `HeteroscedasticGPRegressor` is.

    Parameters
    ----------
    kernel : Kernel, default None
        What is believed of the signal, in standard units; None is `Matern52` with a lengthscale for each column.
    gate : Kernel, default None
        What is believed of the gate; None is one lengthscale for all columns: `Matern32` of one, else `SquaredExponential`.
    structure, learn, parameters, restarts, seconds, max_evaluations, random_state
        As in `GPRegressor`; parameters are the "best" by default.

    Attributes
    ----------
    outlier_probability_ : array (N,)
        The probability that each row of the training data is an outlier, given all of them.
    fitted_, kernel_, likelihood_, plan_, log_evidence_
        As in `GPRegressor`.

    Examples
    --------
    >>> import numpy as np
    >>> from structgp import TwinnedGPRegressor
    >>> X = np.linspace(0, 6, 60)[:, None]
    >>> y = np.sin(X[:, 0]) + 0.05 * np.cos(50 * X[:, 0])
    >>> y[20:26] += 3.0
    >>> model = TwinnedGPRegressor().fit(X, y)
    >>> np.flatnonzero(model.outlier_probability_ > 0.5)
    array([20, 21, 22, 23, 24, 25])
    """

    def outlier_probability(self, X: Any) -> np.ndarray:
        """The probability that a new observation at rows X is an outlier."""
        return self._predicted(X).outlier_probability

    def _told(self) -> None:
        self.outlier_probability_ = self.fitted_.outlier_probability

    def _model(self) -> GP:
        return twinned(self._signal_kernel(), Units(self.n_features_in_), self.gate)


class HeteroscedasticGPRegressor(_SeveralLatents):
    """Regression for noise that changes from place to place: a second process is the logarithm of its variance.

    X and y are standardised. Weak priors are part of the model, in these units: for D columns log lengthscale of the log noise
    N(0.5 + ½ log D, 0.7²), log of its variance N(0, 1).

    Parameters
    ----------
    kernel : Kernel, default None
        What is believed of the signal, in standard units; None is `Matern52` with a lengthscale for each column.
    gate : Kernel, default None
        What is believed of the log noise; None has one lengthscale for all columns: `Matern32` of one, else
        `SquaredExponential`.
    structure, learn, parameters, restarts, seconds, max_evaluations, random_state
        As in `GPRegressor`; parameters are the "best" by default.

    Examples
    --------
    >>> import numpy as np
    >>> from structgp import HeteroscedasticGPRegressor
    >>> X = np.linspace(0, 6, 60)[:, None]
    >>> y = np.sin(X[:, 0]) + 0.2 * X[:, 0] * np.cos(50 * X[:, 0])
    >>> model = HeteroscedasticGPRegressor().fit(X, y)
    >>> _, std = model.predict([[0.5], [5.5]], return_std=True)
    >>> bool(std[1] > 3 * std[0])
    True
    """

    def _told(self) -> None:
        pass

    def _model(self) -> GP:
        return heteroscedastic(self._signal_kernel(), Units(self.n_features_in_), self.gate)


class RobustGPClassifier(ClassifierMixin, _Standardised):
    """Two classes whose labels are wrong in places: a second process, the gate, says where they are little more than coins.

    Columns of X are standardised. A function that changes quickly explains bands of wrong labels as well as a gate does, so the
    function is believed to be rigid: for D columns log lengthscale N(−0.3 + ½ log D, 0.3²), that of the gate N(−1.5, 0.7²). The
    evidence cannot tell the two apart: do not choose by it between this and `GPClassifier`. `predict` and `predict_proba` are
    of the true label.

    Parameters
    ----------
    kernel, gate : Kernel, default None
        What is believed of the function behind the labels, and of the gate.
    structure, learn, parameters, restarts, seconds, max_evaluations, random_state
        As in `GPClassifier`; parameters are the "best" by default.

    Attributes
    ----------
    classes_ : array
        The two labels.
    outlier_probability_ : array (N,)
        The probability that each label of the training data arose where labels are coins.
    """

    def fit(self, X: Any, y: Any) -> Self:
        """Learn from rows X and labels y of two classes."""
        X = self._rows(X, reset=True)
        classes, codes = self._labels(X, y)
        if len(classes) > 2:
            raise ValueError(
                f"Only binary classification is supported. The type of the target is multiclass: {len(classes)} classes; "
                "use GPClassifier, or one RobustGPClassifier for each class against the rest"
            )
        self.classes_, self._columns = classes, units_of_columns(X)
        units = Units(self.n_features_in_)
        rigid = -0.3 + 0.5 * math.log(units.columns), 0.3
        kernel = self.kernel or latent_kernel(units, rigid, (0.0, 1.0), Matern72)
        kernels: Any = Independent(self.gate or latent_kernel(units, (-1.5, 0.7), (0.7, 0.7)), kernel)
        gp = GP(kernels, TwinnedLabels(flat=fixed(FLAT)), ConstantMean(learned([1.5, 0.0], prior=EITHER)))
        self._fit(gp, self._in_units(X), codes.astype(float), labels=True)
        self.outlier_probability_ = self.fitted_.outlier_probability
        return self

    def predict_proba(self, X: Any) -> np.ndarray:
        """The probability of each class being the true one at rows X, (M, 2)."""
        probability = self._predicted(X).signal.probability
        return np.stack([1 - probability, probability], axis=1)

    def predict(self, X: Any) -> np.ndarray:
        """The more probable of the true labels at rows X."""
        probabilities = self.predict_proba(X)
        return self.classes_[np.argmax(probabilities, axis=1)]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags
