"""What a report shows of a series that changes: its segments, and how probable a change is at each place."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from .figures import Figure, Trace

MANY = 25  # rows for each change, below which they may be something else


class ChangingSeries(NamedTuple):
    """A series, where its segments begin, and the probability of a change at each of its places."""

    name: str
    time: str  # what orders the places
    x: np.ndarray
    y: np.ndarray
    changes: np.ndarray
    probability: np.ndarray
    written: Callable[[float], str] | None = None  # how a place is written, where it is not a number

    @property
    def segments(self) -> list[slice]:
        """The rows of each segment."""
        ends = [0, *map(int, self.changes), len(self.y)]
        return [slice(begin, end) for begin, end in itertools.pairwise(ends)]


def change_figures(series: ChangingSeries) -> list[Figure]:
    """The series with the level of each segment, and the probability of a change."""
    levels = np.concatenate([np.full(len(series.y[rows]), _mean(series.y[rows])) for rows in series.segments])
    seen = (Trace("points", series.x, series.y, series.name), Trace("line", series.x, levels, "level of the segment"))
    kept = np.sort(np.argsort(-series.probability, kind="stable")[:200])
    spikes = (Trace("bars", series.x[kept], series.probability[kept]),)
    return [
        Figure("Series and segments", series.time, series.name, seen, series.written),
        Figure("Probability of a change", series.time, "probability", spikes, series.written),
    ]


def segment_rows(series: ChangingSeries) -> list[list[str]]:
    """The table of segments, its header first."""
    written = series.written or (lambda x: f"{x:.6g}")
    rows = [["begins at", "rows", "mean", "standard deviation", "probability that it begins exactly there"]]
    for part in series.segments:
        y = series.y[part][~np.isnan(series.y[part])]
        sure = "" if part.start == 0 else f"{series.probability[part.start]:.2f}"
        place = written(float(series.x[part.start]))
        spread = f"{np.std(y):.4g}" if len(y) else ""
        rows.append([place, str(part.stop - part.start), f"{_mean(y):.4g}" if len(y) else "", spread, sure])
    return rows


def change_alarms(changes: int, rows: int) -> list[str]:
    """What is to be doubted: a level that wanders is cut into many pieces."""
    if changes <= max(rows / MANY, 2):
        return []
    return ["so many changes may be a level that wanders rather than jumps, or outliers: structgp fit --time tells"]


def change_headline(series: ChangingSeries) -> str:
    """How many changes there are, in a sentence."""
    count = len(series.changes)
    found = "No change" if count == 0 else "1 change" if count == 1 else f"{count} changes"
    return f"{found} of level or spread in {len(series.y)} rows, in the most probable segmentation."


def _mean(y: np.ndarray) -> float:
    return float(np.nanmean(y)) if np.isfinite(y).any() else np.nan
