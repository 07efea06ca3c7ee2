"""The rows of a table laid out in few coordinates: numbers, dates and categories of all its columns at once."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .reading import Layout, Table, as_floats, as_text, find_column, kind_of, look

if TYPE_CHECKING:
    from ..sklearn.latent import GPLVM


class Embedded(NamedTuple):
    """A table laid out: the map, what its columns are, and what its rows are coloured by."""

    map: GPLVM
    layout: Layout
    numbers: np.ndarray  # (N, inputs), NaN where a cell is missing
    color: str | None = None
    labels: np.ndarray | None = None  # numbers, or texts, one for each row

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return len(self.numbers)

    @property
    def explained(self) -> np.ndarray:
        """Of each input, how much of the variance of its cells the map explains."""
        seen = np.isfinite(self.numbers)
        off = np.where(seen, self.numbers - self.map.inverse_transform(self.map.embedding_), 0.0)
        spread = np.nanvar(self.numbers, axis=0) * seen.sum(axis=0)
        return 1 - np.sum(off**2, axis=0) / np.where(spread > 0, spread, 1.0)


def embed_table(table: Table, dimensions: Any = 2, color: str | None = None, ignored: Any = (), **options: Any) -> Embedded:
    """Lay the rows of a table out by all columns but those that are ignored and the one that they are coloured by."""
    from ..sklearn.latent import GPLVM

    frame = table.frame
    color = None if color is None else find_column(frame, color, "column to colour by")
    left_out = tuple(find_column(frame, name, "column to ignore") for name in ignored)
    layout = Layout.of(frame, left_out if color is None else (*left_out, color), table.how)
    layout = Layout(tuple(dataclasses.replace(column, fill=None) for column in layout.columns))
    numbers = np.concatenate([_cells(frame[column.name], column) for column in layout.used], axis=1)
    found = GPLVM(dimensions, **options).fit(numbers)
    return Embedded(found, layout, numbers, color, None if color is None else _labels(frame[color]))


def _cells(series: Any, column: Any) -> np.ndarray:
    """The numbers of a column; a category that is missing is none of them, nor any other."""
    values = column.numbers(series)
    if column.kind == "category":
        values[[text is None for text in as_text(series)]] = np.nan
    return values


def _labels(series: Any) -> np.ndarray:
    """What rows are coloured by: numbers, or texts."""
    if kind_of(series) == "number":
        return as_floats(series)
    if kind_of(series) == "date":
        return look(series).numbers(series)[:, 0]
    return np.array(["missing" if text is None else text for text in as_text(series)])
