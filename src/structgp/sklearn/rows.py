"""Rows and targets as estimators take them: every problem with one message, dates counted, nothing under a mask."""

from __future__ import annotations

from typing import Any

import narwhals as nw
import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_consistent_length, check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d, validate_data

from .._types import how_many
from ..inputs.clock import Clocks, without_dates
from ..inputs.reading import as_frame, describe_bad, listed, missing_labels, read_numbers, read_table
from ..posterior import Result


class RowReader(Result, BaseEstimator):
    """What the estimators share: reading rows, targets and labels, and a seed."""

    _clocks: Clocks = ()

    def _rows(self, X: Any, reset: bool) -> np.ndarray:
        """X as a checked table, by `reset` the one to learn from; a data frame is read first: messages name its columns."""
        numbers, clocks = without_dates(X, "X", () if reset else self._clocks or (None,) * self.n_features_in_)
        if reset:
            self._clocks = clocks
        if clocks:
            validate_data(self, X, reset=reset, skip_check_array=True)
            return read_table(numbers, "X", allow_empty=not reset)[0]
        frame = as_frame(X, "X", allow_series=False)
        if isinstance(frame, (nw.DataFrame, nw.LazyFrame)) or isinstance(X, np.ma.MaskedArray) or _kind(X) == "m":
            read_table(X, "X", allow_empty=True)
        least = 1 if reset else 0
        try:
            rows = validate_data(self, X, reset=reset, dtype=np.float64, ensure_all_finite=False, ensure_min_samples=least)
        except (TypeError, ValueError, OverflowError):
            if 0 not in getattr(X, "shape", ()):
                read_table(X, "X")  # which says it in our words, if it can
            raise
        return read_table(rows, "X", allow_empty=True)[0]

    def _numbers(self, X: np.ndarray, y: Any) -> np.ndarray:
        """Targets, one or a row of them for each row of X; here none may be missing."""
        if y is None:
            raise ValueError(f"{type(self).__name__} requires y to be passed, but the target y is None")
        values, _ = read_numbers(y, "y")
        check_consistent_length(X, values)
        gone = np.unique(np.nonzero(~np.isfinite(values))[0])
        if len(gone):
            raise ValueError(f"y has {describe_bad(values)} ({listed('row', gone)}): drop these rows")
        return values

    def _labels(self, X: np.ndarray, y: Any) -> tuple[np.ndarray, np.ndarray]:
        """The classes, and the number of that of each row."""
        if y is None:
            raise ValueError(f"{type(self).__name__} requires y to be passed, but the target y is None")
        if getattr(y, "dtype", None) is None:
            try:
                y = np.asarray(y)
            except ValueError:
                raise ValueError("y is ragged: one label for each row is needed") from None
        if _kind(y) == "c":
            raise ValueError("y holds complex numbers, which are no labels: pass text, whole numbers or booleans")
        labels = column_or_1d(y, warn=True)
        check_consistent_length(X, labels)
        gone = missing_labels(y if np.ndim(y) == 1 else labels)
        if len(gone):
            met = f"{how_many(len(gone), 'NaN or missing label')} ({listed('row', gone)})"
            raise ValueError(f"y has {met}: drop the rows without a label")
        texts = np.array([isinstance(label, str) for label in labels]) if labels.dtype == object else np.ones(1, bool)
        if texts.any() and not texts.all():
            odd = np.flatnonzero(texts if 2 * texts.sum() <= len(texts) else ~texts)
            raise ValueError(
                f"y holds text beside numbers, such as {labels[odd[0]]!r} ({listed('row', odd)}): drop these rows, "
                "or write all labels alike"
            )
        if labels.dtype.kind == "f" and np.isinf(labels).any():
            raise ValueError(
                f"y has {describe_bad(labels)} ({listed('row', np.flatnonzero(np.isinf(labels)))}): drop these rows"
            )
        with np.errstate(invalid="ignore"):  # it looks whether numbers are whole
            check_classification_targets(labels)
        classes, codes = np.unique(labels, return_inverse=True)
        if len(classes) < 2:
            one = classes.tolist()[0]
            raise ValueError(f"{type(self).__name__} needs labels of at least two classes, got one class: {one!r}")
        return classes, codes

    def _seed(self) -> int:
        return int(check_random_state(self.random_state).randint(2**31 - 1))


def _kind(values: Any) -> str:
    """The kind of numbers in an array: "m" are durations, "c" is complex; nothing for what is no array."""
    return values.dtype.kind if isinstance(values, np.ndarray) else ""
