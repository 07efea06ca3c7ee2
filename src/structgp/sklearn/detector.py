"""The scikit-learn door to change points."""

from __future__ import annotations

import dataclasses
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted, validate_data

from ..inputs.reading import describe_bad, read_numbers, rows_of, squares
from ..models.changepoints.averaged import AveragedSegment, SampledSegment
from ..models.changepoints.conjugate import MultivariateNormalSegment, NormalSegment
from ..models.changepoints.hazards import ConstantHazard, as_hazard
from ..models.changepoints.model import ChangePoints
from ..models.changepoints.posterior import ChangePointPosterior
from ..models.changepoints.processes import as_segment
from ..models.changepoints.segments import SegmentModel, SideBySide
from ..models.changepoints.stream import ChangePointStream
from ..parameters.priors import Beta, LogNormal
from ..parameters.tree import fixed, learned
from ..posterior import Result


@dataclasses.dataclass(eq=False, repr=False)
class ChangePointDetector(Result, BaseEstimator):
    """Bayesian change points of a series, in hindsight (`fit`) and as it comes (`update`), as a scikit-learn estimator.

    Parameters
    ----------
    segments : GP or segment model, default None
        What is believed of a segment. None are independent normal values whose level and spread are unknown and change (for
        several columns: level and covariance), with a prior in the scale of the data. A GP is taken with its noise.
    hazard : float, array, function or Hazard, default None
        How probable it is that a segment ends with a point; None is 0.01, to be learned.
    hypotheses : int or None, default 100
        How many beginnings of the present segment are kept in mind; None for all of them, which is exact.
    threshold : float, default 0
        Beginnings less probable than this are dropped.
    learn : bool, default True
        Whether `fit` learns the parameters, of segments and hazard, or leaves them as they are.
    learn_rows : int, default 1000
        Learning looks at so many rows, from the beginning of the series.
    resolution : float or None, default None
        The step in which values were recorded: no prediction is sharper, so that repeated values have a finite density.

    Attributes
    ----------
    change_points_ : array of int
        Where segments begin in the most probable segmentation, the first row not counted.
    labels_ : array of int
        The number of the segment of each row.
    posterior_ : ChangePointPosterior
        Everything else: probabilities of changes, predictions, samples, alerts, pictures.
    model_ : ChangePoints
        The model as learned.
    stream_ : ChangePointStream
        What is believed after the last row; `update` goes on from here.
    log_evidence_ : float
        log p of the series, summed over all segmentations.

    Examples
    --------
    >>> import numpy as np
    >>> from structgp import ChangePointDetector
    >>> y = np.repeat([0.0, 5.0, 1.0], 30) + np.sin(np.arange(90.0) ** 2)
    >>> ChangePointDetector(hazard=0.02, learn=False).fit(y).change_points_
    array([30, 60])
    """

    segments: Any = None
    _: dataclasses.KW_ONLY
    hazard: Any = None
    hypotheses: int | None = 100
    threshold: float = 0.0
    learn: bool = True
    learn_rows: int = 1000
    resolution: float | None = None

    def fit(self, X: Any, y: Any = None, t: Any = None) -> Self:
        """Learn from a series X, (N,) or (N, S) for S series that change together; NaN is a missing value.

        `t` are the times of the rows, in order, by default 0, 1, 2, …; y is not used.
        """
        rows = self._rows(X, reset=True)
        model = self._model(rows)
        if self.learn:
            times = None if t is None else np.ravel(t)[: self.learn_rows]
            model = model.learn(rows[: self.learn_rows], times)[0]
        self.model_ = model
        self.posterior_ = model.condition(rows, t)
        self.change_points_ = self.posterior_.most_probable
        self.labels_ = _labels(self.change_points_, len(rows))
        self.log_evidence_ = self.posterior_.log_evidence
        if self.hypotheses is not None:
            self.stream_ = self.posterior_.stream
        return self

    def predict(self, X: Any, t: Any = None) -> np.ndarray:
        """The number of the segment of each row of a series, in its most probable segmentation."""
        return _labels(self._posterior(X, t).most_probable, len(X))

    def fit_predict(self, X: Any, y: Any = None, t: Any = None) -> np.ndarray:
        """`labels_` after `fit`."""
        return self.fit(X, y, t).labels_

    def score_samples(self, X: Any, t: Any = None) -> np.ndarray:
        """log p of each row of a series given those before it: low where it did what was not expected."""
        return self._posterior(X, t).log_density

    def score(self, X: Any, y: Any = None, t: Any = None) -> float:
        """The mean of `score_samples`; higher is better."""
        return float(np.mean(self.score_samples(X, t)))

    def update(self, y_t: Any, t: Any = None) -> ChangePointStream:
        """Go on with one more row, or a batch of them, without learning anew; before `fit` from nothing.

        Returns what is then believed: `run_length`, `predict()` for the next row, `change_probability(window)`.
        """
        if not hasattr(self, "stream_"):
            if self.segments is None:
                raise ValueError(
                    "a detector that was not fitted needs segments=..., because there are no data to set their scale"
                )
            self.model_ = self._model(np.zeros((0, 1)))
            self.stream_ = self.model_.stream()
        self.stream_ = self.stream_.update(y_t, t)
        return self.stream_

    def _posterior(self, X: Any, t: Any) -> ChangePointPosterior:
        check_is_fitted(self, "model_")
        return self.model_.condition(self._rows(X, reset=False), t)

    def _rows(self, X: Any, reset: bool) -> np.ndarray:
        one = reset or getattr(self, "n_features_in_", 1) == 1
        numbers, _ = read_numbers(X, "X")
        values = numbers[:, None] if numbers.ndim == 1 and one else X
        if np.isinf(numbers).any():
            raise ValueError(f"X has {describe_bad(numbers)} ({rows_of(np.isinf(numbers))}): NaN stands for a missing value")
        rows = validate_data(self, values, reset=reset, dtype=np.float64, ensure_all_finite="allow-nan")
        if not squares(np.nan_to_num(rows)).all():
            raise ValueError("X reaches beyond what can be squared in double precision: measure it in other units")
        return rows

    def _model(self, rows: np.ndarray) -> ChangePoints:
        segments = typical_segments(rows) if self.segments is None else as_segment(self.segments)
        if self.resolution is not None:
            segments = with_floor(segments, self.resolution**2 / 12)
        hazard = ConstantHazard(learned(0.01, prior=Beta(1.5, 100.0))) if self.hazard is None else as_hazard(self.hazard)
        return ChangePoints(segments, hazard, self.hypotheses, self.threshold)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags


def typical_segments(rows: np.ndarray) -> SegmentModel:
    """Independent normal values with a prior in the scale of the data: levels as they spread, noise as they differ."""
    center, spread, noise = np.zeros(rows.shape[1]), np.ones(rows.shape[1]), np.ones(rows.shape[1])
    for i, column in enumerate(rows.T):
        seen = column[~np.isnan(column)]
        if len(seen) > 1 and np.ptp(seen) > 0:
            center[i], spread[i] = seen.mean(), seen.var()
            typical = (1.4826 * np.median(np.abs(np.diff(seen)))) ** 2 / 2
            noise[i] = min(typical, spread[i]) or spread[i]
        elif len(seen):
            center[i] = seen[0]
    kappa = float(np.clip(np.mean(noise / spread), 0.01, 1.0))
    near = lambda value: learned(value, prior=LogNormal(float(np.log(value)), 1.0))
    if rows.shape[1] == 1:
        return NormalSegment(fixed(center[0]), near(kappa), near(2.0), near(2.0 * noise[0]))
    return MultivariateNormalSegment(rows.shape[1], fixed(center), near(kappa), near(3.0), fixed(3.0 * noise))


def with_floor(segments: SegmentModel, floor: float) -> SegmentModel:
    """The same model, with no prediction sharper than this variance; of the innermost model where one wraps another."""
    if isinstance(segments, (AveragedSegment, SampledSegment, SideBySide)):
        inner: Any = with_floor(segments.model, floor)
        return dataclasses.replace(segments, model=inner)
    return dataclasses.replace(segments, floor=floor)


def _labels(changes: np.ndarray, count: int) -> np.ndarray:
    return np.searchsorted(changes, np.arange(count), side="right")
