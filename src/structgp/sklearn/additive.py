"""Additive and projection pursuit models as scikit-learn estimators."""

from __future__ import annotations

import dataclasses
from typing import Any, Self

import numpy as np
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils.validation import check_is_fitted, column_or_1d

from ..kernels.stationary import Matern
from ..likelihoods.gaussian import Gaussian
from ..likelihoods.labels import Bernoulli
from ..models.additive.model import AdditiveGP
from ..models.labels import AdditiveLabels, ProjectionPursuitLabels
from ..models.pursuit.model import ProjectionPursuitGP
from .rows import RowReader


class _Regressor(RegressorMixin, RowReader):
    """A fitted regression model that predicts y with its noise."""

    def predict(self, X: Any, return_std: bool = False, latent: bool = False) -> Any:
        """The mean at rows X; with `return_std` also the standard deviation of a new observation (or of f, with `latent`)."""
        check_is_fitted(self)
        X = self._rows(X, reset=False)
        if not return_std:
            return self.fitted_.mean(X)
        prediction = self.fitted_.predict(X)
        spread = prediction.variance if latent else prediction.observed.variance
        return prediction.mean, np.sqrt(spread)

    def log_prob(self, X: Any, y: Any) -> np.ndarray:
        """log p(y) of new observations, each by itself."""
        check_is_fitted(self)
        return self.fitted_.predict(self._rows(X, reset=False)).log_prob(y)

    def _read(self, X: Any, y: Any) -> tuple[np.ndarray, np.ndarray]:
        X = self._rows(X, reset=True)
        return X, column_or_1d(self._numbers(X, y), warn=True)


@dataclasses.dataclass(eq=False, repr=False)
class AdditiveGPRegressor(_Regressor):
    """Regression by a sum of functions, one for each column, in time that grows with the number of rows.

    Parameters
    ----------
    nu : {0.5, 1.5, 2.5, 3.5}, default 2.5
        How smooth the functions are, as Matérn processes.
    max_evaluations : int, default 300
        How often learning may evaluate the bound on the evidence.

    Attributes
    ----------
    fitted_ : FittedAdditive
        The model given the data: `components()`, `predict`, `sample`, `summary`.
    log_evidence_ : float
        The lower bound on log p(y) that was reached.

    Examples
    --------
    >>> import numpy as np
    >>> from structgp import AdditiveGPRegressor
    >>> X = np.random.default_rng(0).uniform(size=(200, 2))
    >>> model = AdditiveGPRegressor().fit(X, np.sin(5 * X[:, 0]) + X[:, 1] ** 2)
    >>> bool(model.score(X, np.sin(5 * X[:, 0]) + X[:, 1] ** 2) > 0.99)
    True
    """

    nu: float = 2.5
    _: dataclasses.KW_ONLY
    max_evaluations: int = 300

    def fit(self, X: Any, y: Any) -> Self:
        """Learn from rows X and targets y."""
        X, y = self._read(X, y)
        model = AdditiveGP(Matern(nu=self.nu), Gaussian())
        self.fitted_ = model.fit(X, y, max_evaluations=self.max_evaluations)
        self.log_evidence_ = self.fitted_.log_evidence
        return self


@dataclasses.dataclass(eq=False, repr=False)
class ProjectionPursuitGPRegressor(_Regressor):
    """Regression by a sum of functions of learned projections of the columns.

    Parameters
    ----------
    projections : int or None, default None
        How many functions; None chooses the number by the evidence of the training data, up to `most`.
    most : int, default 80
        The largest number that is tried.
    sines : int or None, default None
        How many sines stand for each function while directions are learned.
    nu : {0.5, 1.5, 2.5, 3.5}, default 2.5
        How smooth the functions are.
    seconds : float, default 300
        About how long fitting may take, all included: no larger number of projections is tried once it could take longer.
    max_evaluations : int, default 300
        How often the evidence of the final number of projections may be evaluated.
    random_state : int, RandomState or None, default None
        Makes the random directions that learning starts from repeatable.

    Attributes
    ----------
    fitted_ : FittedProjectionPursuit
        The model given the data; `summary()` has the table of all numbers that were tried.
    n_projections_ : int
        The number that was chosen.
    log_evidence_ : float
        log p(y) on the features with which the directions were learned.
    """

    projections: int | None = None
    _: dataclasses.KW_ONLY
    most: int = 80
    sines: int | None = None
    nu: float = 2.5
    seconds: float = 300.0
    max_evaluations: int = 300
    random_state: Any = None

    def fit(self, X: Any, y: Any) -> Self:
        """Learn from rows X and targets y."""
        X, y = self._read(X, y)
        model = ProjectionPursuitGP(self.projections, self.sines, self.nu, self.most, self.seconds)
        self.fitted_ = model.fit(X, y, seed=self._seed(), max_evaluations=self.max_evaluations)
        self.n_projections_ = self.fitted_.model.projections
        self.log_evidence_ = self.fitted_.log_evidence
        return self


class _Classifier(ClassifierMixin, RowReader):
    """Classes one against the rest, each with a latent function of its own; two classes share one."""

    def predict_proba(self, X: Any) -> np.ndarray:
        """The probability of each class at rows X, (M, classes)."""
        check_is_fitted(self)
        X = self._rows(X, reset=False)
        positive = np.stack([np.asarray(fitted.predict(X).probability) for fitted in self.fitted_], axis=1)
        both = np.concatenate([1 - positive, positive], axis=1) if len(self.fitted_) == 1 else positive
        return both / both.sum(axis=1, keepdims=True)

    def predict(self, X: Any) -> np.ndarray:
        """The most probable class at rows X."""
        probability = self.predict_proba(X)
        return self.classes_[np.argmax(probability, axis=1)]

    def _read(self, X: Any, y: Any) -> tuple[np.ndarray, np.ndarray]:
        X = self._rows(X, reset=True)
        self.classes_, codes = self._labels(X, y)
        return X, codes

    def _one_against_rest(self, X: np.ndarray, codes: np.ndarray, fit: Any) -> None:
        positive = [1] if len(self.classes_) == 2 else range(len(self.classes_))
        self.fitted_ = [fit(X, (codes == c).astype(float)) for c in positive]
        self.log_evidence_ = float(sum(fitted.log_evidence for fitted in self.fitted_))


@dataclasses.dataclass(eq=False, repr=False)
class AdditiveGPClassifier(_Classifier):
    """Classification by a sum of functions, one for each column: a generalised additive model, by Laplace's approximation.

    Parameters
    ----------
    nu : {0.5, 1.5, 2.5, 3.5}, default 2.5
        How smooth the functions are, as Matérn processes.
    link : {"logit", "probit"}, default "logit"
        How the sum becomes a probability.
    ranks : bool, default True
        Whether columns enter by their normal scores, which takes away skewness, or as they are.
    max_evaluations : int, default 100
        How often learning may evaluate the evidence.

    Attributes
    ----------
    classes_ : array
        The labels.
    fitted_ : list of FittedLabels
        One model for two classes, else one for each class against the rest.
    """

    nu: float = 2.5
    _: dataclasses.KW_ONLY
    link: str = "logit"
    ranks: bool = True
    max_evaluations: int = 100

    def fit(self, X: Any, y: Any) -> Self:
        """Learn from rows X and labels y."""
        X, codes = self._read(X, y)
        model = AdditiveLabels(Matern(nu=self.nu), Bernoulli(self.link), self.ranks)
        self._one_against_rest(X, codes, lambda X, y: model.fit(X, y, max_evaluations=self.max_evaluations))
        return self


@dataclasses.dataclass(eq=False, repr=False)
class ProjectionPursuitGPClassifier(_Classifier):
    """Classification by a sum of functions of learned projections, by Laplace's approximation.

    Parameters
    ----------
    projections : int or None, default None
        How many functions; None chooses the number by the evidence, up to `most`.
    most : int, default 20
        The largest number that is tried.
    sines : int or None, default None
        How many sines stand for each function.
    link : {"logit", "probit"}, default "logit"
        How the sum becomes a probability.
    ranks : bool, default True
        Whether columns enter by their normal scores, or as they are.
    seconds : float, default 300
        No larger number of projections is tried once it could take longer than this.
    max_evaluations : int, default 300
        How often the evidence of the final number of projections may be evaluated.
    random_state : int, RandomState or None, default None
        Makes the random directions that learning starts from repeatable.

    Attributes
    ----------
    classes_ : array
        The labels.
    fitted_ : list of FittedLabels
        One model for two classes, else one for each class against the rest.
    """

    projections: int | None = None
    _: dataclasses.KW_ONLY
    most: int = 20
    sines: int | None = None
    link: str = "logit"
    ranks: bool = True
    seconds: float = 300.0
    max_evaluations: int = 300
    random_state: Any = None

    def fit(self, X: Any, y: Any) -> Self:
        """Learn from rows X and labels y."""
        X, codes = self._read(X, y)
        model = ProjectionPursuitLabels(Bernoulli(self.link), self.projections, self.sines, self.most, self.ranks, self.seconds)
        seed = self._seed()
        self._one_against_rest(X, codes, lambda X, y: model.fit(X, y, seed=seed, max_evaluations=self.max_evaluations))
        return self
