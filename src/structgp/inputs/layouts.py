"""Where we look: inputs whose type says what is known about their layout.

`as_inputs` reads an array or a table once, at the door. What it learns is in the type it returns (`Times` are sorted, a
`Grid` has axes), and nobody checks again.
"""

from __future__ import annotations

import abc
import dataclasses
import math
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Float, Int

from .._types import how_many, is_traced, library
from .clock import Clock, Clocks, without_dates
from .reading import read_table

MOST_HOLES = 2.0  # cells for each row up to which places count as a grid


class Inputs(eqx.Module):
    """N places, each with D coordinates, in the caller's order."""

    @property
    @abc.abstractmethod
    def points(self) -> Float[Any, "N D"]:
        """The coordinates as a table, one row for each place."""

    @property
    def some_place(self) -> Float[Any, "1 D"]:
        """One of the places, without a table of all."""
        return self.points[:1]

    def __len__(self) -> int:
        return self.points.shape[0]

    @property
    def dimension(self) -> int:
        """D, the number of coordinates."""
        return self.points.shape[1]


class Points(Inputs):
    """Places without a known layout."""

    X: Float[Any, "N D"] = eqx.field(converter=lambda X: X if isinstance(X, jax.Array) else read_table(X, "X", True)[0])
    clocks: Clocks = ()  # for each column how its dates are counted; empty where there are none

    @property
    def points(self) -> Float[Any, "N D"]:
        return self.X

    def __repr__(self) -> str:
        return f"Points({len(self)} × {self.dimension})"


class Times(Inputs):
    """Places on a line: sorted, with the order that leads back, and whether they are evenly spaced."""

    t: Float[Any, "*S N"]  # ascending; of many series S at once
    order: Int[Any, "*S N"]  # t = caller's values[order]
    rank: Int[Any, "*S N"]  # caller's values = t[rank]
    regular: bool = eqx.field(static=True, default=False)  # of several outputs: all of them are seen at each of such times
    in_order: bool = eqx.field(static=True, default=False)  # the caller's rows were sorted already
    clocks: Clocks = ()  # for each column how its dates are counted; empty where there are none
    which: Int[Any, " N"] | None = None  # of several outputs, the number of the one seen at each time, in the order of t
    cells: Int[Any, "S P"] | None = None  # the row of each output at each distinct time, N where there is none, if few lack
    steps: Int[Any, "S P"] | None = None  # the same at evenly spaced times of which few lack, of one output too; else None

    @classmethod
    def from_dates(cls, dates: Any, unit: str = "days") -> Times:
        """Times from dates, counted in weeks, days, hours, minutes or seconds from midnight before the first one.

        >>> Times.from_dates(np.array(["2024-03-01T06:00", "2024-03-01T12:00"], dtype="M8[m]"), unit="hours")
        Times(2, regular, hours since 2024-03-01)
        """
        numbers, clocks = without_dates(dates, "dates", (), unit)
        if not clocks:
            raise TypeError("Times.from_dates needs dates: datetime64, datetime objects, or a column of a data frame")
        return dataclasses.replace(as_times(read_table(numbers, "dates")[0][:, 0]), clocks=clocks)

    @property
    def points(self) -> Float[Any, "N D"]:
        columns = [self.t] if self.which is None else [self.t, 1.0 * self.which]
        table = library(self.t).stack(columns, axis=1)
        return table if self.in_order else table[self.rank]

    @property
    def some_place(self) -> Float[Any, "1 D"]:
        return self.t[:1, None] if self.which is None else np.array([[self.t[0], self.which[0]]], dtype=float)

    @property
    def dimension(self) -> int:
        return 1 if self.which is None else 2

    def __len__(self) -> int:
        return self.t.shape[0]

    def __repr__(self) -> str:
        counted = f", {self.clocks[0]!r}" if self.clocks else ""
        outputs = "" if self.which is None else f", {len(np.unique(self.which))} outputs"
        return f"Times({len(self)}{outputs}{', regular' if self.regular else ''}{counted})"


class Grid(Inputs):
    """The cells of a Cartesian grid: all of them, or those that are present, in the caller's order.

    >>> Grid([0.0, 1.0], [10.0, 20.0, 30.0])
    Grid(2 × 3)
    >>> Grid.from_points([[1.0, 20.0], [0.0, 10.0], [0.0, 30.0]])
    Grid(2 × 3, 3 of 6 cells present)
    """

    axes: tuple[Float[Any, " G"], ...]
    cells: Int[Any, " N"] | None  # flat index of each row, None: all cells, last axis fastest
    shape: tuple[int, ...] = eqx.field(static=True)
    clocks: Clocks = ()  # for each column how its dates are counted; empty where there are none
    from_rows: bool = eqx.field(static=True, default=False)  # seen in the rows of a table, which nobody called a grid

    def __init__(self, *axes: Any, cells: Any = None, clocks: Clocks = (), from_rows: bool = False) -> None:
        if not axes:
            raise ValueError("Grid needs at least one axis, as in Grid([0, 1, 2], [0.0, 0.5])")
        read = [_axis(axis, i) for i, axis in enumerate(axes)]
        self.axes, found = tuple(axis for axis, _ in read), tuple(clock for _, clock in read)
        self.shape = tuple(len(axis) for axis in self.axes)
        self.cells = None if cells is None else _cells(cells, int(np.prod(self.shape)))
        self.clocks, self.from_rows = clocks or (found if any(found) else ()), from_rows

    @classmethod
    def from_points(cls, X: Any) -> Grid:
        """The grid spanned by the distinct values of each column of a table of points in any order, holes allowed."""
        X, clocks = without_dates(X, "X", ())
        X, _ = read_table(X, "X")
        axes, cells = _spanned(X)
        repeated = len(cells) - len(np.unique(cells))
        if repeated:
            met = f"a cell of the grid is repeated by {how_many(repeated, 'row')}"
            raise ValueError(f"{met}: average them first, or pass the points as they are")
        whole = np.array_equal(cells, np.arange(math.prod(map(len, axes))))
        return cls(*axes, cells=None if whole else cells, clocks=clocks)

    @classmethod
    def from_array(cls, array: Any, *axes: Any) -> Grid:
        """The grid of an array over it: from its own coordinates (xarray and the like), from axes, or else counted from 0."""
        shape, names = np.shape(array), getattr(array, "dims", ())
        if not axes and hasattr(array, "coords"):
            known = array.coords
            axes = tuple(known[name] if name in known else np.arange(n) for name, n in zip(names, shape, strict=True))
        axes = axes or tuple(np.arange(n) for n in shape)
        if tuple(map(len, axes)) != shape:
            raise ValueError(f"an array of shape {shape} needs axes of these lengths, got {tuple(map(len, axes))}")
        return cls(*(np.asarray(axis) for axis in axes))

    @property
    def points(self) -> Float[Any, "N D"]:
        if self.cells is None:
            xp = library(self.axes[0])
            return xp.stack([xp.ravel(mesh) for mesh in xp.meshgrid(*self.axes, indexing="ij")], axis=1)
        strides = np.append(np.cumprod(self.shape[:0:-1])[::-1], 1).astype(int)
        columns = [axis[self.cells // stride % size] for axis, stride, size in zip(self.axes, strides, self.shape, strict=True)]
        return library(columns[0]).stack(columns, axis=1)

    @property
    def some_place(self) -> Float[Any, "1 D"]:
        return np.array([[axis[0] for axis in self.axes]])

    @property
    def dimension(self) -> int:
        return len(self.axes)

    @property
    def complete(self) -> bool:
        """Whether every cell is present."""
        return self.cells is None or len(self.cells) == int(np.prod(self.shape))

    def __len__(self) -> int:
        return int(np.prod(self.shape)) if self.cells is None else len(self.cells)

    def __repr__(self) -> str:
        sizes = " × ".join(map(str, self.shape))
        return f"Grid({sizes})" if self.complete else f"Grid({sizes}, {len(self)} of {np.prod(self.shape)} cells present)"


def as_inputs(X: Any, name: str = "X", allow_empty: bool = False, clocks: Clocks | None = None) -> Inputs:
    """Read inputs: an array (N,) or (N, D), a table, or `Inputs`, which pass through.

    Dates are refused unless there are `clocks` to count them by, one for each column; with none of them, new ones are made.

    >>> as_inputs([3.0, 1.0, 2.0])
    Times(3, regular)
    >>> as_inputs([[0.0, 1.0], [2.0, 3.0]])
    Points(2 × 2)
    """
    if isinstance(X, Inputs):
        return _recounted(X, name, clocks) if clocks and any(clocks_of(X)) else X
    if is_traced(X):
        return Points(X if X.ndim == 2 else X[:, None])
    used: Clocks = ()
    if clocks is not None:
        X, used = without_dates(X, name, clocks)
    table, _ = read_table(X, name, allow_empty)
    inputs = as_times(table[:, 0]) if table.shape[1] == 1 and len(table) else Points(table)
    return dataclasses.replace(inputs, clocks=used) if used else inputs


def check_columns(inputs: Inputs, known: int) -> None:
    """Refuse new places that have other columns than a model was given."""
    if inputs.dimension != known:
        met = f"X has {how_many(inputs.dimension, 'column')}, but the model was given {known}"
        raise ValueError(f"{met}: pass the same inputs in the same order")


def new_times(X: Any, clocks: tuple[Clock | None, ...], name: str = "X") -> Float[np.ndarray, " N"]:
    """Times at which a series is asked, as numbers by its clock, if it has one."""
    points = np.asarray(as_inputs(X, name, allow_empty=True, clocks=clocks).points)
    if points.shape[1] != 1:
        raise ValueError(f"{name} has {points.shape[1]} columns, but a series has one: its times")
    return points[:, 0]


def _recounted(inputs: Inputs, name: str, clocks: Clocks) -> Inputs:
    """Inputs whose dates were counted by clocks of their own, counted by those that are known."""
    columns = [
        column
        if own is None
        else without_dates(own.dates(column), name, (None if of is None else of.in_utc(own.zone, name),))[0]
        for column, own, of in zip(np.asarray(inputs.points).T, clocks_of(inputs), clocks, strict=True)
    ]
    return as_inputs(np.stack(columns, axis=1))


def clocks_of(inputs: Inputs) -> tuple[Clock | None, ...]:
    """How the dates of inputs are counted, for each column; those that never held any have no clocks."""
    return getattr(inputs, "clocks", ()) or (None,) * inputs.dimension


def as_times(values: Float[np.ndarray, " N"]) -> Times:
    """Sort places on a line and see whether they are evenly spaced, to within rounding of the values themselves."""
    order = np.argsort(values, kind="stable")
    t = values[order]
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    regular = evenly_spaced(t)
    steps = None if regular else _steps_of(t, np.arange(len(t))[:, None], len(t))
    return Times(t, order, rank, regular, bool(np.all(order[1:] > order[:-1])), steps=steps)


def as_times_of_outputs(X: Float[np.ndarray, "N 2"], clocks: Clocks = ()) -> Times:
    """Rows of a time and the number of an output, sorted by time, and by output where times are the same."""
    order = np.lexsort((X[:, 1], X[:, 0]))
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    in_order = bool(np.all(order[1:] > order[:-1]))
    t, which = X[order, 0], X[order, 1].astype(int)
    cells = _cells_of_outputs(t, which)
    regular = cells is not None and cells.size == len(t) and evenly_spaced(t[cells[:, 0]])  # all outputs at all times
    steps = None if cells is None or regular else _steps_of(t[np.min(cells, axis=1)], cells, len(t))
    return Times(t, order, rank, regular, in_order, clocks, which, cells, steps)


def _cells_of_outputs(t: np.ndarray, which: np.ndarray) -> np.ndarray | None:
    """The row of each output at each distinct time, N where there is none; None where that would mostly be empty."""
    outputs = int(which.max(initial=0)) + 1
    number = np.cumsum(np.diff(t, prepend=t[:1]) > 0)
    steps = int(number[-1]) + 1 if len(t) else 0
    if outputs < 2 or steps * outputs > 2 * len(t):
        return None
    cells = np.full((steps, outputs), len(t))
    cells[number, which] = np.arange(len(t))
    return cells if np.sum(cells < len(t)) == len(t) else None  # an output seen twice at a time has no cell


def _steps_of(t: np.ndarray, cells: Int[np.ndarray, "S P"], none: int) -> Int[np.ndarray, "L P"] | None:
    """Cells at ascending times, and empty ones between so that all are evenly spaced; None where most would be empty."""
    gaps = np.diff(t)
    if len(t) < 3 or gaps.min() <= 0 or t[-1] - t[0] >= 2 * len(t) * gaps.min():
        return None
    moves = np.rint(gaps / gaps.min())
    step = (t[-1] - t[0]) / np.sum(moves)
    if np.max(np.abs(gaps - step * moves)) > _rounding(t, step):
        return None
    number = np.concatenate([[0], np.cumsum(moves)]).astype(int)
    steps = np.full((number[-1] + 1, cells.shape[1]), none)
    steps[number] = cells
    return steps


def evenly_spaced(t: Float[np.ndarray, " N"]) -> bool:
    """Whether ascending values have equal gaps."""
    gaps = np.diff(t)
    return len(t) > 1 and bool(gaps.min() > 0 and np.ptp(gaps) <= _rounding(t, gaps.mean()))


def _rounding(t: np.ndarray, step: float) -> float:
    """How far steps may differ that are meant to be the same."""
    return 4 * np.finfo(float).eps * np.abs(t).max() + 1e-12 * step


def together(old: Inputs, new: Inputs) -> Inputs:
    """The places of both, one after the other; a grid stays one where the new places are cells of it, or few make it larger."""
    points = np.concatenate([np.asarray(old.points), np.asarray(new.points)])
    clocks = clocks_of(old) if any(clocks_of(old)) else ()
    grid = grid_of(points, clocks) if isinstance(old, Grid) else None
    if grid is not None:
        return grid
    if isinstance(old, Times) and old.which is not None:
        return as_times_of_outputs(points, clocks)
    inputs = as_inputs(points)
    return dataclasses.replace(inputs, clocks=clocks) if clocks else inputs  # type: ignore[call-arg]


def grid_of(X: Float[np.ndarray, "N D"], clocks: Clocks = (), from_rows: bool = False) -> Grid | None:
    """The grid that rows in any order are the cells of, all or at least half of them; None where they are no such thing."""
    cells = 1
    for column in X.T:
        cells *= len(np.unique(column))
        if cells > MOST_HOLES * len(X):
            return None
    axes, where = _spanned(X)
    if len(np.unique(where)) < len(where):
        return None
    in_order = np.array_equal(where, np.arange(cells))
    return Grid(*axes, cells=None if in_order else where, clocks=clocks, from_rows=from_rows)


def _spanned(X: Float[np.ndarray, "N D"]) -> tuple[list[np.ndarray], np.ndarray]:
    """The distinct values of each column, and the cell of each row in the grid that they span."""
    pairs = [np.unique(column, return_inverse=True) for column in X.T]
    axes = [axis for axis, _ in pairs]
    return axes, np.asarray(np.ravel_multi_index([where for _, where in pairs], [len(axis) for axis in axes]))


def duplicates(inputs: Inputs) -> int:
    """How many rows repeat an earlier one."""
    return len(inputs) - len(np.unique(np.asarray(inputs.points), axis=0))


def _cells(cells: Any, count: int) -> np.ndarray:
    flat = np.asarray(cells, dtype=np.intp)
    if flat.ndim != 1 or ((flat < 0) | (flat >= count)).any() or len(np.unique(flat)) < len(flat):
        raise ValueError(f"cells must be distinct flat indices into the {count} cells of the grid, from 0 to {count - 1}")
    return flat


def _axis(values: Any, i: int) -> tuple[np.ndarray, Clock | None]:
    values, clocks = without_dates(values, f"axis {i} of the grid", ())
    axis, _ = read_table(values, f"axis {i} of the grid")
    if axis.shape[1] != 1:
        raise ValueError(f"axis {i} of the grid must be one column of values, got shape {axis.shape}")
    if len(np.unique(axis)) < len(axis):
        raise ValueError(f"axis {i} of the grid repeats a value: each coordinate may stand on it once")
    return axis[:, 0], clocks[0] if clocks else None
