"""Classification by Gaussian processes as a scikit-learn estimator."""

from __future__ import annotations

import dataclasses
from typing import Any, Self

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from ..engines.approximation import of_structure
from ..kernels.independent import kernels_of
from ..kernels.metrics import GroupMetric
from ..kernels.nonstationary import Constant
from ..kernels.stationary import Matern52, SquaredExponential
from ..learn.clock import Deadline
from ..likelihoods.categories import Categorical
from ..likelihoods.labels import Bernoulli
from ..means import ConstantMean
from ..models.candidates import SUMS
from ..models.choose import of_many_rows
from ..models.codes import Codes
from ..models.labels import NormalScores
from ..models.one_against_rest import OneAgainstRest
from ..parameters.priors import Alike, LogNormal
from ..parameters.tree import learned
from ..process.gp import GP
from .learning import Learner, units_of_columns

SCORED = 1000  # rows from which on those of a column are known well enough to take their normal scores


@dataclasses.dataclass(eq=False, repr=False)
class GPClassifier(ClassifierMixin, Learner):
    """Gaussian-process classification as a scikit-learn estimator, for two classes or more.

    Two classes share one function behind a probit or logit link. Of more, each has its own: against the rest, or in a softmax.

    Parameters
    ----------
    kernel : Kernel, default None
        What is believed of the function. None standardises the columns of X, of more than 1000 rows by their normal scores
        (so that skewed columns cost nothing), takes columns of three to eight values for codes (an indicator for each value,
        one lengthscale for all of them) where labels are clearly more probable so, and takes `SquaredExponential` with a
        lengthscale for each column, which stay alike unless the data say otherwise, and a constant; `Matern52` in place of it
        when X has one column, whose cost is linear.
    link : {"probit", "logit"}, default "probit"
        How a function becomes a probability, except in a softmax.
    multi_class : {"one-against-rest", "softmax"}, default "one-against-rest"
        Of more than two classes, whether each is learned against the rest, by EP, and the probabilities made to sum to one; or
        all at once, by Laplace's approximation, which leaves their functions, and so the probabilities, less sure.
    inference : {"ep", "laplace", "variational", "power-ep"} or None, default None
        How the posterior is approximated; None takes EP, and Laplace for a softmax.
    structure : str, default "auto"
        The algorithm, as in `GP.fit`. Where the matrix of all rows takes longer than `seconds`, "auto" lets others compete in
        place of it, as in `GPRegressor`: sums of functions where kernel, inference and learn are left to their defaults, and
        one function of all columns, learned from some rows, that sees all of them through inducing inputs.
    learn : bool, default True
        Whether `fit` learns the parameters or leaves them as they are.
    parameters : str or Averaging, default "auto"
        What is done about parameters that the data leave unsure, as in `GPRegressor`.
    restarts : int or None, default None
        How many more starts learning takes.
    seconds : float or None, default 300
        How long choosing and learning may take, about; None for as long as it takes.
    max_evaluations : int, default 200
        How often each climb may evaluate the evidence.
    random_state : int, RandomState or None, default None
        Makes the restarts repeatable.

    Attributes
    ----------
    classes_ : array
        The labels.
    fitted_ : Fitted or FittedMixture
        The model given the data, for the columns of X as they were standardised.
    kernel_, likelihood_, plan_, log_evidence_
        As learned, and how; for several classes, each against the rest, a tuple of kernels and the sum of the evidences.

    Examples
    --------
    >>> import numpy as np
    >>> from structgp import GPClassifier
    >>> X = np.linspace(0, 6, 40)[:, None]
    >>> model = GPClassifier().fit(X, np.where(np.sin(X[:, 0]) > 0, "up", "down"))
    >>> model.predict([[1.5], [4.5]])
    array(['up', 'down'], dtype='<U4')
    """

    kernel: Any = None
    _: dataclasses.KW_ONLY
    link: str = "probit"
    multi_class: str = "one-against-rest"
    inference: str | None = None
    _scores: NormalScores | None = dataclasses.field(default=None, init=False)  # of the columns, where there are many rows
    _many: bool = dataclasses.field(default=False, init=False)  # whether rows are too many for their matrix
    _codes: Codes | None = dataclasses.field(default=None, init=False)  # among them, where labels are more probable with these

    def fit(self, X: Any, y: Any) -> Self:
        """Learn from rows X and labels y."""
        X = self._rows(X, reset=True)
        classes, codes = self._labels(X, y)
        if self.multi_class not in ("one-against-rest", "softmax"):
            raise ValueError(f"multi_class must be 'one-against-rest' or 'softmax', got {self.multi_class!r}")
        self.classes_ = classes
        self._scores = NormalScores.of(X) if self.kernel is None and len(X) > SCORED and X.shape[1] > 1 else None
        self._units = units_of_columns(self._scored(X)) if self.kernel is None else (np.zeros(1), np.ones(1))
        self._codes = None
        if self.kernel is None and X.shape[1] > 1:
            self._codes = Codes.of(X, self._standardised(X), codes)
        apart = len(classes) == 2 or self.multi_class == "one-against-rest"
        suits = self.inference in (None, "laplace") if self.structure in SUMS else self.inference is None and apart
        plain = self.kernel is None and suits and self.learn and X.shape[1] > 1
        self._many = self.kernel is None and self._takes_too_long(X, "classification", len(classes))
        if self._without_matrix(X, plain, "classification", len(classes)):
            rows, groups = self._standardised(X), () if self._codes is None else self._codes.groups
            how = (self.structure, self._seed(), len(classes), self.link, self.seconds, groups)
            self._keep(*of_many_rows(rows, codes, *how))
            return self
        several = len(self.classes_) > 2
        if several and self.multi_class == "one-against-rest":
            self._fit_each(self._standardised(X), codes)
            return self
        likelihood = Categorical(classes=len(self.classes_)) if several else Bernoulli(link=self.link)
        mean: Any = self._level()
        if several and mean is not None:
            mean = ConstantMean(np.zeros(len(self.classes_)))
        gp = GP(self._kernel(), likelihood, mean)
        self._fit(gp, self._standardised(X), codes.astype(float), inference=self.inference, labels=True)
        return self

    def _fit_each(self, X: np.ndarray, codes: np.ndarray) -> None:
        """A model for each class against the rest."""
        parts, deadline = [], Deadline.after(self.seconds)
        for c, kernel in enumerate(kernels_of(self._kernel(), len(self.classes_))):
            gp = GP(kernel, Bernoulli(link=self.link), self._level())
            until = deadline.share(len(self.classes_) - c)
            self._fit(gp, X, (codes == c).astype(float), inference=self.inference, labels=True, until=until)
            parts.append(self.fitted_)
        self._keep(OneAgainstRest(tuple(parts)), self.plan_)
        self.kernel_ = tuple(part.kernel for part in parts)

    def predict_proba(self, X: Any) -> np.ndarray:
        """The probability of each class at rows X, (M, number of classes), averaged over what is not known of the function."""
        check_is_fitted(self)
        probability = self.fitted_.predict(self._standardised(self._rows(X, reset=False))).probability
        return np.stack([1 - probability, probability], axis=1) if probability.ndim == 1 else probability

    def predict(self, X: Any) -> np.ndarray:
        """The most probable label at rows X."""
        probabilities = self.predict_proba(X)
        return self.classes_[np.argmax(probabilities, axis=1)]

    def _level(self) -> Any:
        """The mean of labels: few inducing inputs say too little of a level that is part of the kernel."""
        return None if of_structure(self.structure)[1] is None and not self._many else ConstantMean()

    def _standardised(self, X: np.ndarray) -> np.ndarray:
        center, scale = self._units
        Z = (self._scored(X) - center) / scale
        return Z if self._codes is None else self._codes(X, Z)

    def _scored(self, X: np.ndarray) -> np.ndarray:
        return X if self._scores is None else self._scores(X)

    def _kernel(self) -> Any:
        if self.kernel is not None:
            return self.kernel
        D = self.n_features_in_
        alike: Any = learned(np.full(D, np.sqrt(D)), prior=Alike()) if D > 1 else 1.0
        alike = alike if self._codes is None else GroupMetric(alike, self._codes.groups)
        if self._level() is not None:
            return SquaredExponential(alike, learned(4.0, prior=LogNormal(np.log(4.0), 2.0)))
        return (Matern52(variance=4.0) if D == 1 else SquaredExponential(alike, 4.0)) + Constant()
