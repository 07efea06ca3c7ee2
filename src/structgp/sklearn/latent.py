"""The scikit-learn door to latent inputs: a map of the rows of a table in few coordinates."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_array, check_is_fitted, validate_data

from ..inputs.clock import without_dates
from ..inputs.reading import read_numbers, unmasked
from ..models.latent.fit import fit_latents
from ..models.latent.units import checked
from .rows import RowReader


class GPLVM(ClassNamePrefixFeaturesOutMixin, TransformerMixin, RowReader):
    """Where the rows of a table lie in few coordinates, of which every column is a smooth function with noise.

    The Gaussian-process latent-variable model: principal components whose functions may bend. NaN are cells that were not seen.

    Parameters
    ----------
    dimensions : int or "auto", default 2
        How many coordinates. "auto" begins with up to ten and keeps those that turn out to be relevant (automatic relevance
        determination, with `bayesian`).
    kernel : Kernel, default None
        What is believed of the functions; None is `SquaredExponential`, with one lengthscale for all coordinates, or with
        `bayesian` one for each. Its values are where learning starts, less those that are `fixed`.
    inducing : int or None, default None
        Through how many inducing inputs the functions are seen; they are learned as well. None takes 200, with `bayesian` 50.
    start : {"diffusion", "pca"} or array (N, dimensions), default "diffusion"
        Where learning begins, which decides what map is found: a diffusion map, principal components, or any other map, such
        as that of scikit-learn's Isomap. With "auto" dimensions it is "pca".
    bayesian : bool or None, default None
        Whether the place of each row is a Gaussian, whose size is learned (Titsias and Lawrence), or a point. None is a point
        unless `dimensions` is "auto".
    back_constraints : bool or Kernel, default False
        Makes places a smooth function of the rows, so that rows that are alike lie near each other; a kernel says how smooth.
    dynamics : Kernel, default None
        What is believed of the places along time, for `fit` with `times`; each coordinate is such a process of unit variance.
    scale : {"columns", "all"}, default "columns"
        Whether each column is brought to unit spread, or all are divided by one number because they share their units.
    noise : {"shared", "columns"}, default "shared"
        One variance of noise (of columns of unit spread), or one for each column.
    max_evaluations : int, default 600
        How often learning may evaluate the bound.
    seconds : float or None, default None
        How long learning may take, about.
    random_state : int, RandomState or None, default 0
        Draws where inducing inputs begin.

    Attributes
    ----------
    embedding_ : array (N, dimensions)
        Where the rows lie.
    embedding_std_ : array (N, dimensions) or None
        How sure that is, with `bayesian`.
    relevance_ : array (dimensions,)
        The spread of the rows along each coordinate in units of its lengthscale, the largest 1.
    dimensions_ : int
        How many coordinates there are.
    kernel_, noise_ : Kernel, float or array
        What was learned, in units of the spread of the columns.
    log_evidence_ : float
        The lower bound of log p of the cells that was reached, for points with log p of their places.
    fitted_ : FittedMap
        Everything else.

    Examples
    --------
    >>> import numpy as np
    >>> from structgp import GPLVM
    >>> t = np.random.default_rng(0).uniform(0, 3, 60)
    >>> X = np.column_stack([np.sin(t), np.cos(t), np.sin(2 * t), t]) + 0.01 * np.sin(99 * t)[:, None]
    >>> model = GPLVM(dimensions=1, inducing=20, max_evaluations=200).fit(X)
    >>> bool(abs(np.corrcoef(np.argsort(np.argsort(model.embedding_[:, 0])), np.argsort(np.argsort(t)))[0, 1]) > 0.99)
    True
    """

    def __init__(
        self,
        dimensions: int | str = 2,
        *,
        kernel: Any = None,
        inducing: int | None = None,
        start: Any = "diffusion",
        bayesian: bool | None = None,
        back_constraints: Any = False,
        dynamics: Any = None,
        scale: str = "columns",
        noise: str = "shared",
        max_evaluations: int = 600,
        seconds: float | None = None,
        random_state: Any = 0,
    ) -> None:
        self.dimensions = dimensions
        self.kernel = kernel
        self.inducing = inducing
        self.start = start
        self.bayesian = bayesian
        self.back_constraints = back_constraints
        self.dynamics = dynamics
        self.scale = scale
        self.noise = noise
        self.max_evaluations = max_evaluations
        self.seconds = seconds
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None, times: Any = None) -> Self:
        """Learn where the rows of X lie, and the functions; `times` are those of the rows, for `dynamics`."""
        X = self._cells(X, reset=True)
        self.fitted_ = fit_latents(
            X,
            self.dimensions,
            kernel=self.kernel,
            inducing=self.inducing,
            start=self.start,
            believed=self.bayesian,
            back=self.back_constraints,
            dynamics=self.dynamics,
            times=times,
            scale=self.scale,
            noise=self.noise,
            seed=self._seed(),
            max_evaluations=self.max_evaluations,
            seconds=self.seconds,
        )
        self.embedding_, self.embedding_std_ = self.fitted_.latent, self.fitted_.latent_sd
        self.relevance_, self.dimensions_ = self.fitted_.relevance, self.embedding_.shape[1]
        self.kernel_, self.noise_ = self.fitted_.model.kernel.kernel, self.fitted_.model.noise
        self.log_evidence_ = self.fitted_.bound
        return self

    def fit_transform(self, X: Any, y: Any = None, times: Any = None) -> np.ndarray:
        """`embedding_` after `fit`."""
        return self.fit(X, y, times).embedding_

    def transform(self, X: Any) -> np.ndarray:
        """Where rows lie, (M, dimensions), by the cells that were seen; rows that were learned from keep their places."""
        check_is_fitted(self)
        return self.fitted_.place(self._cells(X, reset=False))

    def inverse_transform(self, Z: Any, return_std: bool = False) -> Any:
        """The rows that are expected at places; with `return_std` also the standard deviation of each new cell."""
        check_is_fitted(self)
        Z = check_array(Z, dtype=np.float64, input_name="Z")
        if Z.shape[1] != self.dimensions_:
            raise ValueError(f"Z must have a column for each of the {self.dimensions_} coordinates, got shape {Z.shape}")
        mean, sd = self.fitted_.rows(Z)
        return (mean, sd) if return_std else mean

    def impute(self, X: Any, return_std: bool = False) -> Any:
        """X with what is expected in its missing cells; with `return_std` also how unsure it is, 0 for cells that were seen."""
        check_is_fitted(self)
        filled, sd = self.fitted_.impute(self._cells(X, reset=False))
        return (filled, sd) if return_std else filled

    def summary(self) -> str:
        """The map in words, and its parameters."""
        check_is_fitted(self)
        return self.fitted_.summary()

    def plot(self, labels: Any = None, ax: Any = None) -> Any:
        """Draw the map, coloured by labels, on how sure the functions are. Needs Matplotlib; returns the axes."""
        check_is_fitted(self)
        return self.fitted_.plot(labels, ax)

    @property
    def _n_features_out(self) -> int:
        return self.dimensions_

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    def _cells(self, X: Any, reset: bool) -> np.ndarray:
        """X as numbers, where NaN were not seen."""
        least = 1 if reset else 0
        options: dict[str, Any] = {"dtype": np.float64, "ensure_all_finite": "allow-nan", "ensure_min_samples": least}
        numbers, clocks = without_dates(X, "X", () if reset else self._clocks or (None,) * self.n_features_in_)
        if reset:
            self._clocks = clocks
        if clocks:
            validate_data(self, X, reset=reset, skip_check_array=True)
            cells = read_numbers(numbers, "X")[0]
        else:
            cells = validate_data(self, unmasked(X), reset=reset, **options)
        checked(cells)
        return cells
