"""Rows in a few sizes, so that one row more is the same program.

What fills up repeats the last row and was not seen: a site of precision 0, which changes nothing, exactly.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from .layouts import Inputs, Points, Times
from .observations import Data

LEAST = 16
LARGEST = 2048  # beyond, compiling is little beside what an evaluation takes


def size_for(count: int, least: int = LEAST) -> int:
    """The size that so many rows are filled up to: a power of two, and from 64 on one of four between two of them."""
    whole = max(least, 1 << max(count - 1, 0).bit_length())
    step = whole // 8 if whole > 64 else whole
    return max(-(-count // step) * step, least)


def filled(values: Any, size: int) -> np.ndarray:
    """Rows filled up with the last of them."""
    values = np.asarray(values)
    return np.concatenate([values, np.repeat(values[-1:], size - len(values), axis=0)])


def in_few_sizes(function: Callable[..., Any], *rows: Any) -> Any:
    """A function that works row by row, run on a number of rows out of a few; what is not an array of rows stays as it is."""
    count = len(rows[0])
    size = size_for(count)
    sized = lambda part: filled(part, size) if np.ndim(part) and len(part) == count and count else part
    return jax.tree.map(lambda part: np.asarray(part)[:count], function(*map(sized, rows)))


def in_pieces(function: Callable[..., Any], X: np.ndarray, most: int) -> Any:
    """The same of one array, so many rows at a time at most."""
    if not len(X):
        shapes = jax.eval_shape(function, np.zeros((1, *X.shape[1:])))
        return jax.tree.map(lambda part: np.zeros((0, *part.shape[1:])), shapes)
    found = [in_few_sizes(function, X[at : at + most]) for at in range(0, len(X), most)]
    return jax.tree.map(lambda *parts: np.concatenate(parts), *found)


def in_bucket(inputs: Inputs, data: Data) -> tuple[Inputs, Data]:
    """The same places and observations in a size out of a few; those of grids and of many rows as they are."""
    count = len(inputs)
    if not isinstance(inputs, (Points, Times)) or not 0 < count <= LARGEST:
        return inputs, data
    size = size_for(count)
    return with_room(inputs, size), unseen_beyond(data, size)


def with_room(inputs: Inputs, size: int) -> Inputs:
    """Places filled up with the last of them."""
    if isinstance(inputs, Points):
        return Points(filled(inputs.X, size))
    assert isinstance(inputs, Times)
    more = np.arange(len(inputs), size)
    order, rank = (np.concatenate([np.asarray(part), more]) for part in (inputs.order, inputs.rank))
    which = None if inputs.which is None else filled(inputs.which, size)
    cells = None
    if inputs.cells is not None:  # what fills up has no cell; the number that stands for none moves on
        cells = np.asarray(inputs.cells)
        cells = np.where(cells == len(inputs), size, cells)
        steps = size_for(len(cells))
        cells = np.concatenate([cells, np.full((steps - len(cells), cells.shape[1]), size)])
    return Times(filled(inputs.t, size), order, rank, False, inputs.in_order, which=which, cells=cells)


def unseen_beyond(data: Data, size: int) -> Data:
    """Observations filled up with such that were not seen."""
    seen = np.concatenate([np.asarray(data.seen), np.zeros(size - len(data.seen), bool)])
    rest = (data.y, data.noise, data.extra, data.weight)
    y, noise, extra, weight = (None if part is None else filled(part, size) for part in rest)
    return dataclasses.replace(data, y=y, noise=noise, seen=seen, extra=extra, weight=weight)
