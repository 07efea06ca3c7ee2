"""Several outputs that depend on each other, as a scikit-learn estimator."""

from __future__ import annotations

import dataclasses
from typing import Any, Self

import numpy as np
from sklearn.base import MultiOutputMixin, RegressorMixin
from sklearn.utils import check_consistent_length
from sklearn.utils.validation import check_is_fitted

from ..inputs.reading import describe_bad, read_numbers, rows_of
from ..models.candidates import SECONDS
from ..models.outputs import fit_outputs
from .regression import GPRegressor
from .rows import RowReader


@dataclasses.dataclass(eq=False, repr=False)
class MultiOutputGP(MultiOutputMixin, RegressorMixin, RowReader):
    """Several targets that hang together, learned together: each tells of the others, also where they were not seen.

    Parameters
    ----------
    kernel : Kernel, default None
        A kernel of outputs on the columns of X and, behind them, the number of the output; None takes functions on two scales
        that the outputs share (`LMC`).
    logs : bool, array of bool or "auto", default "auto"
        Of which targets logarithms are taken: "auto" of those that are positive and skewed.
    lags : bool or "auto", default False
        Whether targets may come later than the first, along time: with one column only.
    parameters, restarts, seconds, max_evaluations :
        As in `GPRegressor`.
    random_state : int, RandomState or None, default None
        Makes learning repeatable.

    Attributes
    ----------
    outputs_ : FittedOutputs
        The model given the data, in its own units; `correlations_` tells how the targets hang together.
    fitted_ : Fitted or FittedMixture
        The process itself.

    Examples
    --------
    >>> import numpy as np
    >>> from structgp import MultiOutputGP
    >>> t = np.linspace(0, 6, 40)[:, None]
    >>> Y = np.column_stack([np.sin(t), 3 * np.sin(t)]) + 0.01 * np.cos(40 * t)
    >>> Y[10:20, 1] = np.nan
    >>> model = MultiOutputGP(parameters="best", restarts=0).fit(t, Y)
    >>> bool(np.abs(model.predict(t)[10:20, 1] - 3 * np.sin(t[10:20, 0])).max() < 0.2)
    True
    """

    kernel: Any = None
    _: dataclasses.KW_ONLY
    logs: Any = "auto"
    lags: Any = False
    parameters: Any = "auto"
    restarts: int | None = None
    seconds: float | None = SECONDS
    max_evaluations: int = 500
    random_state: Any = None

    def fit(self, X: Any, y: Any) -> Self:
        """Learn from rows X and targets y, (N, P), where NaN are values that were not seen."""
        X = self._rows(X, reset=True)
        if y is None:
            raise ValueError("MultiOutputGP requires y to be passed, but the target y is None")
        Y, names = read_numbers(y, "y")
        check_consistent_length(X, Y)
        if np.isinf(Y).any():
            raise ValueError(f"y has {describe_bad(Y)} ({rows_of(np.isinf(Y))}): drop these rows")
        self._flat = Y.ndim == 1
        options: dict[str, Any] = {"restarts": self.restarts, "seconds": self.seconds, "max_evaluations": self.max_evaluations}
        if self._flat or Y.shape[1] == 1:  # one target hangs together with nothing
            seen = np.isfinite(np.ravel(Y))
            if not seen.any():
                raise ValueError("y has no observed value: at least one is needed")
            one = GPRegressor(self.kernel, parameters=self.parameters, random_state=self._seed(), **options)
            self.outputs_: Any = None
            self._one: Any = one.fit(X[seen], np.ravel(Y)[seen])
            self.fitted_, self.names_ = one.fitted_, tuple(names or ())
            return self
        options |= {"parameters": self.parameters, "seed": self._seed()}
        self._one = None
        self.outputs_ = fit_outputs(X, Y, names=names, kernel=self.kernel, logs=self.logs, lags=self.lags, **options)
        self.fitted_, self.names_ = self.outputs_.fitted, self.outputs_.names
        return self

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """The median of each target at rows X, (M, P); with `return_std` also the spread of a new observation."""
        check_is_fitted(self, "fitted_")
        X = self._rows(X, reset=False)
        if self._one is not None:
            shape = (-1,) if self._flat else (-1, 1)
            found = self._one.predict(X, return_std=return_std)
            return tuple(part.reshape(shape) for part in found) if return_std else found.reshape(shape)
        mean, sd, _, _ = self.outputs_.predict(X)
        return (mean, sd) if return_std else mean

    def interval(self, X: Any, level: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
        """The interval that holds a new observation of each target with this probability."""
        check_is_fitted(self, "fitted_")
        X = self._rows(X, reset=False)
        if self._one is not None:
            mean, sd = self._one.predict(X, return_std=True)
            from scipy.special import ndtri

            wide = ndtri((1 + level) / 2) * sd
            return mean - wide, mean + wide
        return self.outputs_.predict(X, level)[2:]

    @property
    def correlations_(self) -> Any:
        """How the targets hang together: correlations, lags and standard deviations."""
        check_is_fitted(self, "fitted_")
        if self.outputs_ is None:
            raise ValueError("there is one target, which hangs together with nothing")
        return self.outputs_.correlations()
