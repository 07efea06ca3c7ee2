"""The scikit-learn door: Gaussian processes as estimators, for pipelines, grid searches and cross-validation."""

from __future__ import annotations

from typing import Any, Self

import narwhals as nw
import numpy as np
from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin
from sklearn.utils import check_consistent_length, check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from .gp import GP
from .inputs import as_inputs, read_numbers, read_table
from .kernels.stationary import Matern52
from .likelihoods.gaussian import Gaussian
from .means import ConstantMean, LinearMean, ZeroMean
from .parameters import Annotated, fixed

MEANS = {"zero": ZeroMean, "constant": ConstantMean, "linear": LinearMean}


class GPRegressor(MultiOutputMixin, RegressorMixin, BaseEstimator):
    """Gaussian-process regression as a scikit-learn estimator.

    Parameters
    ----------
    kernel : Kernel, default None
        What is believed of the function; None is `Matern52` with a lengthscale for each column of X. The values of its
        parameters are where learning starts, less those that are `fixed`.
    noise : float or None, default None
        The variance of the noise: None to learn it, a number that is known and kept, or ``learned(0.1, prior=...)``.
        Noise that is known for each row goes to `fit`.
    mean : {"constant", "zero", "linear"}, number, function or Mean, default "constant"
        What the function is expected to be before it is seen; the numbers in it are learned.
    structure : str, default "auto"
        The algorithm, as in `GP.fit`; "auto" takes the fastest that is exact. `plan_` tells which one, and why.
    learn : bool, default True
        Whether `fit` learns the parameters or leaves them as they are (scikit-learn's ``optimizer=None``).
    normalize_y : bool or "auto", default "auto"
        Whether to bring each target to mean 0 and variance 1 first. The model (`kernel` and `noise`, `kernel_`, `noise_` and
        `fitted_`) is then in those units; data, predictions and `log_evidence_` are always in the units of y. "auto" does so
        for several targets, which share kernel, mean and noise, when all of these are left to their defaults.
    restarts : int or None, default None
        How many more starts learning takes; None takes three for small data, else none.
    max_evaluations : int, default 500
        How often each climb may evaluate the evidence.
    random_state : int, RandomState or None, default None
        Makes the restarts repeatable.

    Attributes
    ----------
    fitted_ : Fitted
        The model given the data, with everything else that it can tell.
    kernel_, noise_ : Kernel, float
        The kernel and the noise variance as learned.
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
        structure: str = "auto",
        learn: bool = True,
        normalize_y: Any = "auto",
        restarts: int | None = None,
        max_evaluations: int = 500,
        random_state: Any = None,
    ) -> None:
        self.kernel = kernel
        self.noise = noise
        self.mean = mean
        self.structure = structure
        self.learn = learn
        self.normalize_y = normalize_y
        self.restarts = restarts
        self.max_evaluations = max_evaluations
        self.random_state = random_state

    def fit(self, X: Any, y: Any, noise: Any = None) -> Self:
        """Learn from rows X and targets y, (N,) or (N, T).

        `noise` are known noise variances, one for all rows or one for each, on top of the model's own noise.
        """
        X = self._rows(X, reset=True)
        y = self._targets(X, y)
        gp = GP(self._kernel(), Gaussian(self._noise()), self._mean())
        gp._read(y, None, "error", as_inputs(X))  # before normalising, which would spread a NaN over its column
        self._center, self._scale = self._units(y, noise)
        scaled, noise = (y - self._center) / self._scale, self._scaled_noise(noise)
        if self.learn:
            seed = int(check_random_state(self.random_state).randint(2**31 - 1))
            self.fitted_ = gp.fit(
                X,
                scaled,
                noise=noise,
                structure=self.structure,
                restarts=self.restarts,
                seed=seed,
                max_evaluations=self.max_evaluations,
            )
        else:
            self.fitted_ = gp.condition(X, scaled, noise=noise, structure=self.structure)
        self.kernel_ = self.fitted_.kernel
        self.noise_ = float(self.fitted_.likelihood.noise)
        self.plan_ = self.fitted_.plan
        self.log_evidence_ = self.fitted_.log_evidence - len(y) * float(np.sum(np.log(self._scale)))
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
            joint = prediction.covariance[:, :, None] + np.eye(len(mean))[:, :, None] * extra[None]
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

    def _rows(self, X: Any, reset: bool) -> np.ndarray:
        """X as a checked table; a data frame is read first, for messages that name its columns."""
        if isinstance(nw.from_native(X, pass_through=True), (nw.DataFrame, nw.LazyFrame)):
            read_table(X, "X", allow_empty=True)
        least = 1 if reset else 0
        rows = validate_data(self, X, reset=reset, dtype=np.float64, ensure_all_finite=False, ensure_min_samples=least)
        return read_table(rows, "X", allow_empty=True)[0]

    def _targets(self, X: np.ndarray, y: Any) -> np.ndarray:
        if y is None:
            raise ValueError("GPRegressor requires y to be passed, but the target y is None")
        values, _ = read_numbers(y, "y")
        check_consistent_length(X, values)
        return values

    def _units(self, y: np.ndarray, noise: Any) -> tuple[np.ndarray, np.ndarray]:
        """The centre and the scale of each target: 0 and 1 where y is taken as it is."""
        if self.normalize_y not in (True, False, "auto"):
            raise ValueError(f"normalize_y must be True, False or 'auto', got {self.normalize_y!r}")
        ours = self.kernel is None and self.noise is None and isinstance(self.mean, str) and noise is None
        several = y.ndim == 2 and y.shape[1] > 1
        if self.normalize_y is False or (self.normalize_y == "auto" and not (several and ours)):
            return np.zeros(y.shape[1:]), np.ones(y.shape[1:])
        center, spread = y.mean(axis=0), y.std(axis=0)
        constant = spread <= 10 * np.finfo(float).eps * np.abs(center)
        return center, np.where(constant, 1.0, spread)

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

    def _mean(self) -> Any:
        if not isinstance(self.mean, str):
            return self.mean
        if self.mean not in MEANS:
            raise ValueError(f"mean must be one of {list(MEANS)}, a number, a function or a Mean, got {self.mean!r}")
        return LinearMean(slope=np.zeros(self.n_features_in_)) if self.mean == "linear" else MEANS[self.mean]()
