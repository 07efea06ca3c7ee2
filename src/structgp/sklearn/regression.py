"""Regression by Gaussian processes as scikit-learn estimators: of numbers, and of counts."""

from __future__ import annotations

import dataclasses
from typing import Any, Self

import numpy as np
from sklearn.base import MultiOutputMixin, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, column_or_1d

from ..inputs.reading import read_numbers
from ..kernels.stationary import Matern52
from ..likelihoods.base import Likelihood
from ..likelihoods.counts import NegativeBinomial, Poisson
from ..likelihoods.gaussian import Gaussian
from ..likelihoods.robust import LaplaceNoise, MixtureNoise, StudentT
from ..models.candidates import Process
from ..models.choose import of_many_rows
from ..parameters.tree import Annotated, fixed
from ..process.gp import GP
from .learning import Learner, as_mean, in_units_of

NOISES = {"student-t": StudentT, "laplace": LaplaceNoise, "mixture": MixtureNoise}
FAR = 100.0  # spreads of y
FAMILIES = {"poisson": Poisson, "negative-binomial": NegativeBinomial}


@dataclasses.dataclass(eq=False, repr=False)
class GPRegressor(MultiOutputMixin, RegressorMixin, Learner):
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
        matrix of all rows takes longer than `seconds`, or more memory than there is, "auto" lets others compete in place of
        the exact one ("dense"): functions of one column each ("additive") or of learned projections ("projection-pursuit"),
        where all else is left to its defaults, and one function of all columns, with the kernel, mean and noise that were
        asked for, through inducing inputs ("inducing", or "inducing:200" for so many), of two to four columns by neighbours
        of each row ("neighbours", or "neighbours:20"), of one through a finite state ("state-space"), or of up to 10,000 rows
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

    kernel: Any = None
    _: dataclasses.KW_ONLY
    noise: Any = None
    mean: Any = "constant"
    normalize_y: Any = "auto"
    max_evaluations: int = 500

    def fit(self, X: Any, y: Any, noise: Any = None) -> Self:
        """Learn from rows X and targets y, (N,) or (N, T).

        `noise` are known noise variances, one for all rows or one for each, on top of the model's own noise.
        """
        X = self._rows(X, reset=True)
        y = self._numbers(X, y)
        gp = GP(self._kernel(), self._likelihood(), as_mean(self.mean, X.shape[1]))
        self._center, self._scale = self._units(y, noise)
        scaled, noise = (y - self._center) / self._scale, self._scaled_noise(noise)
        ours = self.kernel is None and self.noise is None and isinstance(self.mean, str) and self.mean == "constant"
        plain = ours and self.learn and noise is None and y.ndim == 1 and X.shape[1] > 1
        if self._without_matrix(X, plain, "regression"):
            self._keep(*of_many_rows(X, scaled, self.structure, self._seed(), seconds=self.seconds))
        else:
            gp = in_units_of(gp, X, scaled, noise) if self.kernel is None else gp
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


@dataclasses.dataclass(eq=False, repr=False)
class GPCountRegressor(RegressorMixin, Learner):
    """Counts whose logarithmic rate is a Gaussian process, as a scikit-learn estimator.

    Parameters
    ----------
    kernel : Kernel, default None
        What is believed of the logarithm of the rate; None is `Matern52` with a lengthscale for each column of X.
    family : {"poisson", "negative-binomial"}, default "poisson"
        How counts scatter around the rate: with the rate as their variance, or with more, which is learned.
    mean : {"constant", "zero", "linear"}, number, function or Mean, default "constant"
        What the logarithm of the rate is expected to be before it is seen.
    inference, learn, parameters, restarts, seconds, max_evaluations, random_state
        As in `GPClassifier`.
    structure : str, default "auto"
        As in `GPRegressor`: where the matrix of all rows takes too long, one function of all columns is learned from some of
        them and sees all through inducing inputs, and sums of functions compete with it where all else is left to its defaults
        and there is no exposure.

    Examples
    --------
    >>> import numpy as np
    >>> from structgp import GPCountRegressor
    >>> X = np.linspace(0, 6, 40)[:, None]
    >>> model = GPCountRegressor().fit(X, np.round(10 + 8 * np.sin(X[:, 0])))
    >>> print(f"{model.predict([[1.5]])[0]:.0f}")
    18
    """

    kernel: Any = None
    _: dataclasses.KW_ONLY
    family: str = "poisson"
    mean: Any = "constant"
    inference: str | None = None

    def fit(self, X: Any, y: Any, exposure: Any = None) -> Self:
        """Learn from rows X and counts y; `exposure` is what the rate of each row is multiplied by: time, area, persons."""
        X = self._rows(X, reset=True)
        y = column_or_1d(self._numbers(X, y), warn=True)
        if self.family not in FAMILIES:
            raise ValueError(f"family must be one of {list(FAMILIES)}, got {self.family!r}")
        D = self.n_features_in_
        kernel = Matern52(lengthscale=np.ones(D) if D > 1 else 1.0) if self.kernel is None else self.kernel
        gp = GP(kernel, FAMILIES[self.family](), as_mean(self.mean, D))
        gp = in_units_of(gp, X, y, extra=exposure) if self.kernel is None else gp
        ours = self.kernel is None and isinstance(self.mean, str) and self.mean == "constant"
        plain = ours and self.learn and self.inference is None and exposure is None and X.shape[1] > 1
        if self._without_matrix(X, plain, "counts"):
            process = Process(gp, sums=True, evaluations=self.max_evaluations)
            self._keep(*of_many_rows(X, y, self.structure, self._seed(), seconds=self.seconds, process=process))
        else:
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
