"""The columns of a table in units of their own: centred, of unit spread, without those that never change."""

from __future__ import annotations

import dataclasses

import numpy as np
from jaxtyping import Bool, Float

from ...inputs.reading import describe_bad, listed

ROUNDING = 1e-13  # of the largest number of a column: what its spread is made of when the column is constant


@dataclasses.dataclass(frozen=True)
class ColumnUnits:
    """Levels and scales of all columns, and which of them change."""

    level: Float[np.ndarray, " C"]
    scale: Float[np.ndarray, " C"]
    used: Bool[np.ndarray, " C"]

    @classmethod
    def of(cls, Y: Float[np.ndarray, "N C"], scale: str) -> ColumnUnits:
        """Those of a table where NaN was not seen; `scale` is "columns", or "all" for one that all columns share."""
        if scale not in ("columns", "all"):
            raise ValueError(f"scale must be 'columns' or 'all', got {scale!r}")
        seen = np.isfinite(Y)
        empty = np.flatnonzero(~seen.any(axis=0))
        if len(empty):
            raise ValueError(
                f"no number at all is in {listed('column', empty)}: leave {'it' if len(empty) == 1 else 'them'} out"
            )
        largest = np.max(np.abs(np.where(seen, Y, 0.0)), axis=0)
        level, spread = np.nanmean(Y, axis=0), np.nanstd(Y, axis=0)
        used = spread > ROUNDING * largest
        if not used.any():
            raise ValueError("every column is constant: there is nothing to lay out")
        whole = np.sqrt(np.mean(spread[used] ** 2))
        return cls(level, np.where(used, spread if scale == "columns" else whole, 1.0), used)

    def to(self, Y: Float[np.ndarray, "N C"]) -> Float[np.ndarray, "N D"]:
        """A table in these units, the columns that change alone."""
        return ((Y - self.level) / self.scale)[:, self.used]

    def back(self, y: Float[np.ndarray, "N D"]) -> Float[np.ndarray, "N C"]:
        """Values in these units as a table; columns that never change have their level."""
        table = np.tile(self.level, (len(y), 1))
        table[:, self.used] += self.scale[self.used] * y
        return table

    def spread(self, sd: Float[np.ndarray, "N D"]) -> Float[np.ndarray, "N C"]:
        """Standard deviations in these units as a table."""
        table = np.zeros((len(sd), len(self.level)))
        table[:, self.used] = self.scale[self.used] * sd
        return table


def checked(Y: np.ndarray) -> None:
    """A line about infinite numbers, and rows in which nothing was seen."""
    if np.isinf(Y).any():
        rows = np.unique(np.nonzero(np.isinf(Y))[0])
        raise ValueError(
            f"X has {describe_bad(np.where(np.isnan(Y), 0.0, Y))} ({listed('row', rows)}): NaN says that a cell is missing"
        )
    empty = np.flatnonzero(np.isnan(Y).all(axis=1))
    if len(empty):
        raise ValueError(f"X has rows of NaN alone ({listed('row', empty)}), which say nothing: drop them")
