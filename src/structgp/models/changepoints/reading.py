"""Series as users give them, as checked arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..._types import how_many
from ...inputs.reading import read_numbers
from .segments import SegmentModel


def read_series(segments: SegmentModel, y: Any, t: Any = None) -> tuple[np.ndarray, np.ndarray]:
    """A series and its times as checked arrays."""
    values, _ = read_numbers(y, "y")
    width = segments.width
    if width == 0 and values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.ndim != (2 if width else 1) or (width and values.shape[1] != width):
        needed = f"(N, {width}): one row for each time" if width else "(N,); SideBySide models several series together"
        raise ValueError(f"y must have shape {needed}, got {values.shape}")
    if not len(values):
        raise ValueError("y is empty: at least one point is needed")
    if np.isinf(values).any():
        raise ValueError(
            f"y is infinite in {how_many(int(np.isinf(values).sum()), 'place')}: drop these values, or make them NaN"
        )
    segments.check(values[~np.isnan(values)])
    return values, _times(t, len(values))


def _times(t: Any, count: int) -> np.ndarray:
    if t is None:
        return np.arange(float(count))
    times, _ = read_numbers(t, "t")
    if times.shape != (count,):
        raise ValueError(f"t must have one time for each of the {count} points, got shape {times.shape}")
    if not np.isfinite(times).all():
        raise ValueError("t has NaN or infinite times: every point needs one")
    if (np.diff(times) < 0).any():
        first = int(np.flatnonzero(np.diff(times) < 0)[0]) + 1
        raise ValueError(
            f"t must not go back: time {times[first]:g} of point {first} is before {times[first - 1]:g}; sort the series"
        )
    return times
