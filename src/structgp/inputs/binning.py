"""Huge scattered data onto a grid: one mean for each cell that holds any, and how many values it stands for."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from .clock import without_dates
from .layouts import Grid
from .reading import read_numbers, read_table


@dataclasses.dataclass(frozen=True)
class Binned:
    """The cells that hold data, in the order of the grid: their means, their counts, and the spread within them.

    ``gp.fit(b.grid, b.mean, noise=b.noise())`` for measurements; for labels 0 and 1 the sums are counts of successes,
    ``GP(kernel, Binomial()).fit(b.grid, b.sum, extra=b.count)``.
    """

    grid: Grid
    mean: Float[np.ndarray, " n"]
    count: Int[np.ndarray, " n"]
    within: float  # the variance of single values about the means of their cells

    @property
    def sum(self) -> Float[np.ndarray, " n"]:
        """The sum of the values in each cell."""
        return self.mean * self.count

    def noise(self, variance: float | None = None) -> Float[np.ndarray, " n"]:
        """The noise variance of each mean, when that of one value is `variance`: by default the spread within cells."""
        return (self.within if variance is None else variance) / self.count

    def beta_targets(self) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, " n"]]:
        """For labels: mean and variance of Beta(successes + 1, failures + 1), to be taken for values with Gaussian noise.

        A stand-in that is quick and crude: a binomial likelihood says the same without pretending.
        """
        p, n = self.sum, self.count
        return (p + 1) / (n + 2), (p + 1) * (n - p + 1) / ((n + 2) ** 2 * (n + 3))


def bin_to_grid(X: Any, y: Any, bins: Any = 32) -> Binned:
    """The means of y over the cells of a grid, which is laid over X.

    `bins` is a number of equal bins, one number for each column, or for each column the edges of its bins. The grid has its
    places at the middle of the bins; of its cells those that hold data are present.
    """
    X, clocks = without_dates(X, "X", ())
    table, _ = read_table(X, "X")
    values, _ = read_numbers(y, "y")
    if values.shape != (len(table),) or not np.isfinite(values).all():
        raise ValueError(f"y must hold one finite value for each of the {len(table)} rows of X, got shape {values.shape}")
    edges = [_edges(column, of_column) for column, of_column in zip(table.T, _of_columns(bins, table.shape[1]), strict=True)]
    where = [_which(column, edge, d) for d, (column, edge) in enumerate(zip(table.T, edges, strict=True))]
    shape = tuple(len(edge) - 1 for edge in edges)
    flat = np.ravel_multi_index(where, shape)
    cells, inverse, count = np.unique(flat, return_inverse=True, return_counts=True)
    mean = np.bincount(inverse, values) / count
    freedom = max(len(values) - len(cells), 1)
    within = float(np.sum((values - mean[inverse]) ** 2) / freedom)
    complete = len(cells) == math.prod(shape)
    grid = Grid(*(0.5 * (edge[1:] + edge[:-1]) for edge in edges), cells=None if complete else cells, clocks=clocks)
    return Binned(grid, mean, count, within)


def _of_columns(bins: Any, D: int) -> list[Any]:
    each = list(bins) if isinstance(bins, (list, tuple, np.ndarray)) else [bins] * D
    if len(each) != D:
        raise ValueError(f"bins must be one number, or one entry for each of the {D} columns of X, got {len(each)}")
    return each


def _edges(column: np.ndarray, bins: Any) -> np.ndarray:
    if np.ndim(bins):
        edges = np.asarray(bins, dtype=float)
        if len(edges) < 2 or np.any(np.diff(edges) <= 0):
            raise ValueError("the edges of bins must be at least two, and ascending")
        return edges
    if bins != int(bins) or bins < 1:
        raise ValueError(f"bins must be whole numbers of at least 1, or edges, got {bins}")
    low, high = column.min(), column.max()
    return np.linspace(low, high if high > low else low + 1.0, int(bins) + 1)


def _which(column: np.ndarray, edges: np.ndarray, d: int) -> np.ndarray:
    """The bin of each value; the last one holds its upper edge as well."""
    if column.min() < edges[0] or column.max() > edges[-1]:
        raise ValueError(
            f"column {d} of X reaches from {column.min():g} to {column.max():g}, beyond its bins: widen their edges"
        )
    return np.clip(np.searchsorted(edges, column, side="right") - 1, 0, len(edges) - 2)
