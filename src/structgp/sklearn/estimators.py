"""The scikit-learn door: Gaussian processes as estimators, for pipelines, grid searches and cross-validation."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.base import ClassifierMixin, MultiOutputMixin, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, column_or_1d

from ..engines.approximation import of_structure
from ..inputs.layouts import as_inputs
from ..inputs.observations import read_observations
from ..inputs.reading import read_numbers
from ..kernels.independent import kernels_of
from ..kernels.nonstationary import Constant
from ..kernels.stationary import Matern52, SquaredExponential
from ..learn.initialise import suggested
from ..likelihoods.base import Likelihood
from ..likelihoods.categories import Categorical
from ..likelihoods.counts import NegativeBinomial, Poisson
from ..likelihoods.gaussian import Gaussian
from ..likelihoods.labels import Bernoulli
from ..likelihoods.robust import LaplaceNoise, MixtureNoise, StudentT
from ..means import ConstantMean, LinearMean, ZeroMean
from ..models.candidates import SECONDS, SUMS, affordable_rows
from ..models.choose import ENDING, of_many_rows
from ..models.labels import NormalScores
from ..models.one_against_rest import OneAgainstRest
from ..parameters.priors import Alike, LogNormal
from ..parameters.tree import Annotated, fixed, learned
from ..process.gp import GP
from .rows import RowReader

MEANS = {"zero": ZeroMean, "constant": ConstantMean, "linear": LinearMean}
NOISES = {"student-t": StudentT, "laplace": LaplaceNoise, "mixture": MixtureNoise}
FAR = 100.0  # spreads of y
SCORED = 1000  # rows from which on those of a column are known well enough to take their normal scores
FAMILIES = {"poisson": Poisson, "negative-binomial": NegativeBinomial}


class _GPEstimator(RowReader):
    """What the estimators share: learning or not, and what is kept."""

    def _mean(self) -> Any:
        if not isinstance(self.mean, str):
            return self.mean
        if self.mean not in MEANS:
            raise ValueError(f"mean must be one of {list(MEANS)}, a number, a function or a Mean, got {self.mean!r}")
        return LinearMean(slope=np.zeros(self.n_features_in_)) if self.mean == "linear" else MEANS[self.mean]()

    def _fit(self, gp: GP, X: np.ndarray, y: np.ndarray, **options: Any) -> None:
        """Learn, or condition with the parameters as they are, and keep what scikit-learn's users look for.

        A kernel of ours starts in the units of the data.
        """
        if self.kernel is None and not isinstance(gp.likelihood, (Bernoulli, Categorical)):
            noise, extra = options.get("noise"), options.get("extra")
            gp = suggested(gp, X, read_observations(gp.likelihood, y, noise, "error", as_inputs(X), extra))
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


class GPRegressor(MultiOutputMixin, RegressorMixin, _GPEstimator):
    """Gaussian-process regression as a scikit-learn estimator.

    Parameters
    ----------
    kernel : Kernel, default None
        What is believed of the function; None is `Matern52` with a lengthscale for each column of X. The values of its
        parameters are where learning starts, less those that are `fixed`.
    noise : float, {"student-t", "laplace", "mixture"}, Likelihood or None, default None
        The variance of Gaussian noise: None to learn it, a number that is known and kept, or ``learned(0.1, prior=...)``.
        Noise that is known for each row goes to `fit`. A name asks for noise with outliers, whose parameters are learned.
    mean : {"constant", "zero", "linear"}, number, function or Mean, default "constant"
        What the function is expected to be before it is seen; the numbers in it are learned.
    structure : str, default "auto"
        The algorithm, as in `GP.fit`; "auto" takes the fastest that is exact. `plan_` tells which one, and why. Where the
        matrix of all rows takes longer than `seconds`, and all else is left to its defaults, "auto" lets others compete in
        place of the exact one ("dense"): functions of one column each ("additive") or of learned projections
        ("projection-pursuit"), and one function of all columns through inducing inputs ("inducing", or "inducing:200" for so
        many), of two to four columns by neighbours of each row ("neighbours", or "neighbours:20"), or of up to 10,000 rows
        exactly, learned from some of them. The winner is the one by which rows held out are most probable, and `plan_` says
        how each did, or why it was not tried. All of these can be asked for by name.
    learn : bool, default True
        Whether `fit` learns the parameters or leaves them as they are (scikit-learn's ``optimizer=None``).
    parameters : str or Averaging, default "auto"
        What is done about parameters that the data leave unsure, as in `GP.fit`: "auto" averages over them for small data,
        which keeps intervals honest, and takes the "best" otherwise; "laplace", "hmc" and others ask for a way to average.
    normalize_y : bool or "auto", default "auto"
        Whether to bring each target to mean 0 and variance 1 first. The model (`kernel` and `noise`, `kernel_`, `noise_` and
        `fitted_`) is then in those units; data, predictions and `log_evidence_` are always in the units of y. "auto" does so
        for several targets, which share kernel, mean and noise, when all of these are left to their defaults.
    restarts : int or None, default None
        How many more starts learning takes; None takes three for small data, else none.
    seconds : float or None, default 300
        How long choosing and learning may take, about; None for as long as it takes.
    max_evaluations : int, default 500
        How often each climb may evaluate the evidence.
    random_state : int, RandomState or None, default None
        Makes the restarts repeatable.

    Attributes
    ----------
    fitted_ : Fitted or FittedMixture
        The model given the data, with everything else that it can tell.
    kernel_, likelihood_, noise_ : Kernel, Likelihood, float
        The kernel and the likelihood as learned, and the variance of the noise.
    plan_ : Plan
        The algorithm that ran, its cost, and why the others did not.
    log_evidence_ : float
        log p(y) with the parameters as learned.
    n_features_in_, feature_names_in_ : int, array of str
        The columns of X, and their names when X was a data frame.

    Examples
    --------
    >>> import numpy as np
    >>> from structgp import GPRegressor
    >>> X = np.linspace(0, 6, 30)[:, None]
    >>> model = GPRegressor(noise=0.01, restarts=0).fit(X, np.sin(X[:, 0]))
    >>> mean, std = model.predict([[1.5]], return_std=True)
    >>> print(f"{mean[0]:.2f} ± {std[0]:.2f}")
    0.99 ± 0.11
    """

    def __init__(
        self,
        kernel: Any = None,
        *,
        noise: Any = None,
        mean: Any = "constant",
        structure: Any = "auto",
        learn: bool = True,
        parameters: Any = "auto",
        normalize_y: Any = "auto",
        restarts: int | None = None,
        seconds: float | None = SECONDS,
        max_evaluations: int = 500,
        random_state: Any = None,
    ) -> None:
        self.kernel = kernel
        self.noise = noise
        self.mean = mean
        self.structure = structure
        self.learn = learn
        self.parameters = parameters
        self.normalize_y = normalize_y
        self.restarts = restarts
        self.seconds = seconds
        self.max_evaluations = max_evaluations
        self.random_state = random_state

    def fit(self, X: Any, y: Any, noise: Any = None) -> Self:
        """Learn from rows X and targets y, (N,) or (N, T).

        `noise` are known noise variances, one for all rows or one for each, on top of the model's own noise.
        """
        X = self._rows(X, reset=True)
        y = self._numbers(X, y)
        gp = GP(self._kernel(), self._likelihood(), self._mean())
        self._center, self._scale = self._units(y, noise)
        scaled, noise = (y - self._center) / self._scale, self._scaled_noise(noise)
        ours = self.kernel is None and self.noise is None and isinstance(self.mean, str) and self.mean == "constant"
        plain = ours and self.learn and noise is None and y.ndim == 1 and X.shape[1] > 1
        if self._without_matrix(X, plain, "regression"):
            self._keep(*of_many_rows(X, scaled, self.structure, self._seed(), seconds=self.seconds))
        else:
            self._fit(gp, X, scaled, noise=noise)
        self.noise_ = float(np.asarray(self.likelihood_.moments(0.0)[1]))
        self.log_evidence_ -= len(y) * float(np.sum(np.log(self._scale)))
        return self

    def predict(self, X: Any, return_std: bool = False, return_cov: bool = False, latent: bool = False) -> Any:
        """The mean at rows X; with `return_std` or `return_cov` also the spread of a new observation there.

        The spread is that of y, noise included: what the next measurement will be. With ``latent=True`` it is that of the
        function alone, without the noise, as scikit-learn's regressor gives when its kernel has no WhiteKernel.

        Returns the mean, (M,) or (M, T) for T targets, alone or with the standard deviation of the same shape, or with the
        covariance, (M, M) or (M, M, T).
        """
        if return_std and return_cov:
            raise ValueError(
                "return_std and return_cov ask for two answers: take one of them (the std is in the cov's diagonal)"
            )
        prediction = self._prediction(X, covariance=return_cov)
        mean = self._center + self._scale * prediction.mean
        spread = prediction.variance if latent else prediction.observed.variance
        if return_std:
            return mean, self._scale * np.sqrt(spread)
        if return_cov:
            extra = (spread - prediction.variance).reshape(len(mean), -1)
            among = prediction.covariance if prediction.covariance.ndim == 3 else prediction.covariance[:, :, None]
            joint = among + np.eye(len(mean))[:, :, None] * extra[None]
            covariance = self._scale**2 * joint
            return mean, covariance[:, :, 0] if mean.ndim == 1 else covariance
        return mean

    def sample_y(self, X: Any, n_samples: int = 1, random_state: Any = 0, latent: bool = False) -> np.ndarray:
        """Joint draws of new observations at rows X (with ``latent=True`` of the function, without noise).

        Returns (M, n_samples), or (M, T, n_samples) for T targets.
        """
        check_is_fitted(self)
        X = self._rows(X, reset=False)
        seed = int(check_random_state(random_state).randint(2**31 - 1))
        draws = self.fitted_.sample(X, n=n_samples, seed=seed, observed=not latent)
        return np.moveaxis(self._center + self._scale * draws, 0, -1)

    def log_prob(self, X: Any, y: Any) -> np.ndarray:
        """log p(y) of new observations, each by itself, in the shape of y; the mean over rows is a score for forecasts."""
        prediction = self._prediction(X)
        y, _ = read_numbers(y, "y")
        return prediction.log_prob((y - self._center) / self._scale) - np.log(self._scale)

    def _prediction(self, X: Any, covariance: bool = False) -> Any:
        check_is_fitted(self)
        return self.fitted_.predict(self._rows(X, reset=False), covariance=covariance)

    def _units(self, y: np.ndarray, noise: Any) -> tuple[np.ndarray, np.ndarray]:
        """The centre and the scale of each target: 0 and 1 where y is taken as it is."""
        if not isinstance(self.normalize_y, (bool, str)) or self.normalize_y not in (True, False, "auto"):
            raise ValueError(f"normalize_y must be True, False or 'auto', got {self.normalize_y!r}")
        ours = self.kernel is None and self.noise is None and isinstance(self.mean, str) and noise is None
        several = y.ndim == 2 and y.shape[1] > 1
        if self.normalize_y is False or (self.normalize_y == "auto" and not (several and ours)):
            return self._level(y), np.ones(y.shape[1:])
        center, spread = y.mean(axis=0), y.std(axis=0)
        constant = spread <= 10 * np.finfo(float).eps * np.abs(center)
        return center, np.where(constant, 1.0, spread)

    def _level(self, y: np.ndarray) -> np.ndarray:
        """What is taken off y where its level is learned: for noise with outliers one that is large beside the spread of y.

        Sites are factors on the whole of f, and the evidence that is left over of f² and its like has few digits there.
        """
        level = np.median(y, axis=0)
        far = np.abs(level) > FAR * np.median(np.abs(y - level), axis=0)
        learned_level = isinstance(self.mean, str) and self.mean != "zero"
        return np.where(far & learned_level & isinstance(self._likelihood(), tuple(NOISES.values())), level, 0.0)

    def _scaled_noise(self, noise: Any) -> Any:
        """Known noise variances, given in the units of y, in those of the model."""
        if noise is None or (self._scale == 1).all():
            return noise
        if self._scale.size > 1:
            raise ValueError(
                "known noise cannot be shared by targets that are normalised one by one: fit them one at a time, "
                "or bring them to one scale and pass normalize_y=False"
            )
        return read_numbers(np.atleast_1d(noise), "noise")[0] / self._scale**2

    def _kernel(self) -> Any:
        if self.kernel is not None:
            return self.kernel
        return Matern52(lengthscale=np.ones(self.n_features_in_) if self.n_features_in_ > 1 else 1.0)

    def _likelihood(self) -> Likelihood:
        if isinstance(self.noise, Likelihood):
            return self.noise
        if isinstance(self.noise, str):
            if self.noise not in NOISES:
                raise ValueError(f"noise must be a variance, a Likelihood or one of {list(NOISES)}, got {self.noise!r}")
            return NOISES[self.noise]()
        return Gaussian(self._noise())

    def _noise(self) -> Any:
        if self.noise is None:
            return 1.0
        if isinstance(self.noise, Annotated):
            return self.noise
        if np.ndim(self.noise):
            raise ValueError(
                f"noise must be one variance, got shape {np.shape(self.noise)}: noise for each row goes to fit(X, y, noise=...)"
            )
        return fixed(self.noise)


class GPClassifier(ClassifierMixin, _GPEstimator):
    """Gaussian-process classification as a scikit-learn estimator, for two classes or more.

    Two classes share one function behind a probit or logit link. Of more, each has its own: against the rest, or in a softmax.

    Parameters
    ----------
    kernel : Kernel, default None
        What is believed of the function. None standardises the columns of X, of more than 1000 rows by their normal scores
        (so that skewed columns cost nothing), and takes `SquaredExponential` with a lengthscale for each column, which stay
        alike unless the data say otherwise, and a constant; `Matern52` in place of it when X has one column, whose cost is
        linear.
    link : {"probit", "logit"}, default "probit"
        How a function becomes a probability, except in a softmax.
    multi_class : {"one-against-rest", "softmax"}, default "one-against-rest"
        Of more than two classes, whether each is learned against the rest, by EP, and the probabilities made to sum to one; or
        all at once, by Laplace's approximation, which leaves their functions, and so the probabilities, less sure.
    inference : {"ep", "laplace", "variational", "power-ep"} or None, default None
        How the posterior is approximated; None takes EP, and Laplace for a softmax.
    structure : str, default "auto"
        The algorithm, as in `GP.fit`. Where the matrix of all rows takes longer than `seconds`, and kernel, inference and learn
        are left to their defaults, "auto" lets others compete in place of it, as in `GPRegressor`.
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

    _scores: NormalScores | None = None  # of the columns, where there are many rows

    def __init__(
        self,
        kernel: Any = None,
        *,
        link: str = "probit",
        multi_class: str = "one-against-rest",
        inference: str | None = None,
        structure: Any = "auto",
        learn: bool = True,
        parameters: Any = "auto",
        restarts: int | None = None,
        seconds: float | None = SECONDS,
        max_evaluations: int = 200,
        random_state: Any = None,
    ) -> None:
        self.kernel = kernel
        self.link = link
        self.multi_class = multi_class
        self.inference = inference
        self.structure = structure
        self.learn = learn
        self.parameters = parameters
        self.restarts = restarts
        self.seconds = seconds
        self.max_evaluations = max_evaluations
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> Self:
        """Learn from rows X and labels y."""
        X = self._rows(X, reset=True)
        classes, codes = self._labels(X, y)
        if self.multi_class not in ("one-against-rest", "softmax"):
            raise ValueError(f"multi_class must be 'one-against-rest' or 'softmax', got {self.multi_class!r}")
        self.classes_ = classes
        self._scores = NormalScores.of(X) if self.kernel is None and len(X) > SCORED and X.shape[1] > 1 else None
        self._units = _units_of_columns(self._scored(X)) if self.kernel is None else (np.zeros(1), np.ones(1))
        plain = self.kernel is None and self.inference in (None, "laplace") and self.learn and X.shape[1] > 1
        if self._without_matrix(X, plain, "classification", len(classes)):
            rows, link = self._standardised(X), self.link
            self._keep(*of_many_rows(rows, codes, self.structure, self._seed(), len(classes), link, self.seconds))
            return self
        several = len(self.classes_) > 2
        if several and self.multi_class == "one-against-rest":
            self._fit_each(self._standardised(X), codes)
            return self
        likelihood = Categorical(classes=len(self.classes_)) if several else Bernoulli(link=self.link)
        mean: Any = self._level()
        if several and mean is not None:
            mean = ConstantMean(np.zeros(len(self.classes_)))
        self._fit(GP(self._kernel(), likelihood, mean), self._standardised(X), codes.astype(float), inference=self.inference)
        return self

    def _fit_each(self, X: np.ndarray, codes: np.ndarray) -> None:
        """A model for each class against the rest."""
        parts = []
        for c, kernel in enumerate(kernels_of(self._kernel(), len(self.classes_))):
            gp = GP(kernel, Bernoulli(link=self.link), self._level())
            self._fit(gp, X, (codes == c).astype(float), inference=self.inference)
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
        return None if of_structure(self.structure)[1] is None else ConstantMean()

    def _standardised(self, X: np.ndarray) -> np.ndarray:
        center, scale = self._units
        return (self._scored(X) - center) / scale

    def _scored(self, X: np.ndarray) -> np.ndarray:
        return X if self._scores is None else self._scores(X)

    def _kernel(self) -> Any:
        if self.kernel is not None:
            return self.kernel
        D = self.n_features_in_
        if self._level() is not None:
            alike = learned(np.full(D, np.sqrt(D)), prior=Alike()) if D > 1 else 1.0
            return SquaredExponential(alike, learned(4.0, prior=LogNormal(np.log(4.0), 2.0)))
        if D == 1:
            return Matern52(variance=4.0) + Constant()
        return SquaredExponential(learned(np.full(D, np.sqrt(D)), prior=Alike()), 4.0) + Constant()


class GPCountRegressor(RegressorMixin, _GPEstimator):
    """Counts whose logarithmic rate is a Gaussian process, as a scikit-learn estimator.

    Parameters
    ----------
    kernel : Kernel, default None
        What is believed of the logarithm of the rate; None is `Matern52` with a lengthscale for each column of X.
    family : {"poisson", "negative-binomial"}, default "poisson"
        How counts scatter around the rate: with the rate as their variance, or with more, which is learned.
    mean : {"constant", "zero", "linear"}, number, function or Mean, default "constant"
        What the logarithm of the rate is expected to be before it is seen.
    inference, structure, learn, parameters, restarts, seconds, max_evaluations, random_state
        As in `GPClassifier`.

    Examples
    --------
    >>> import numpy as np
    >>> from structgp import GPCountRegressor
    >>> X = np.linspace(0, 6, 40)[:, None]
    >>> model = GPCountRegressor().fit(X, np.round(10 + 8 * np.sin(X[:, 0])))
    >>> print(f"{model.predict([[1.5]])[0]:.0f}")
    18
    """

    def __init__(
        self,
        kernel: Any = None,
        *,
        family: str = "poisson",
        mean: Any = "constant",
        inference: str | None = None,
        structure: Any = "auto",
        learn: bool = True,
        parameters: Any = "auto",
        restarts: int | None = None,
        seconds: float | None = SECONDS,
        max_evaluations: int = 200,
        random_state: Any = None,
    ) -> None:
        self.kernel = kernel
        self.family = family
        self.mean = mean
        self.inference = inference
        self.structure = structure
        self.learn = learn
        self.parameters = parameters
        self.restarts = restarts
        self.seconds = seconds
        self.max_evaluations = max_evaluations
        self.random_state = random_state

    def fit(self, X: Any, y: Any, exposure: Any = None) -> Self:
        """Learn from rows X and counts y; `exposure` is what the rate of each row is multiplied by: time, area, persons."""
        X = self._rows(X, reset=True)
        y = column_or_1d(self._numbers(X, y), warn=True)
        if self.family not in FAMILIES:
            raise ValueError(f"family must be one of {list(FAMILIES)}, got {self.family!r}")
        D = self.n_features_in_
        kernel = Matern52(lengthscale=np.ones(D) if D > 1 else 1.0) if self.kernel is None else self.kernel
        gp = GP(kernel, FAMILIES[self.family](), self._mean())
        self._fit(gp, X, y, inference=self.inference, extra=exposure)
        return self

    def predict(self, X: Any, exposure: Any = None, return_std: bool = False) -> Any:
        """The expected count at rows X; with `return_std` also the standard deviation of a new count."""
        observed = self._prediction(X, exposure).observed
        return (observed.mean, observed.sd) if return_std else observed.mean

    def predict_interval(self, X: Any, exposure: Any = None, level: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
        """The central interval that holds a new count with this probability."""
        return self._prediction(X, exposure).interval(level)

    def log_prob(self, X: Any, y: Any, exposure: Any = None) -> np.ndarray:
        """log p(y) of new counts, each by itself."""
        return self._prediction(X, exposure).log_prob(read_numbers(y, "y")[0])

    def _prediction(self, X: Any, exposure: Any) -> Any:
        check_is_fitted(self)
        return self.fitted_.predict(self._rows(X, reset=False), extra=exposure)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.positive_only = True
        return tags


def _units_of_columns(X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of each column; 1 for one that is constant."""
    center, spread = X.mean(axis=0), X.std(axis=0)
    return center, np.where(spread > 10 * np.finfo(float).eps * np.abs(center), spread, 1.0)
