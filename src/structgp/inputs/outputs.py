"""Several outputs at the door: dictionaries and wide tables as rows (place…, number of the output, value)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from .._types import how_many
from ..kernels.outputs import outputs_of
from ..likelihoods.base import Likelihood
from .clock import Clocks
from .layouts import Inputs, Points, as_inputs, clocks_of
from .observations import Data, lacking, read_observations, refuse_infinite
from .reading import few, read_numbers


@dataclasses.dataclass(frozen=True)
class Outputs:
    """Where each of several outputs was seen: its places by its name, each with as many as it has.

    Outputs whose places have fewer columns than others get zeros for them: then each kernel sits `.on` its own columns.

    >>> Outputs({"cd": [0.0, 1.0], "ni": [0.5, 1.5, 2.5]})
    Outputs(cd: 2, ni: 3)
    """

    places: Mapping[str, Any]

    def rows(self, clocks: Clocks = (), names: Sequence[str] = (), columns: int = 0) -> tuple[np.ndarray, Clocks, list[int]]:
        """All places as rows with the number of the output behind them, how dates are counted, and how many each has.

        Numbers are those in `names`, where outputs are known already; there are at least so many `columns` before them.
        """
        tables, known = [], clocks
        for name, places in self.places.items():
            inputs = as_inputs(places, f"the places of {name!r}", clocks=known, allow_empty=True)
            known = known or (clocks_of(inputs) if any(clocks_of(inputs)) else ())
            tables.append(np.asarray(inputs.points))
        width = max(columns, *(table.shape[1] for table in tables))
        order = list(names) or list(self.places)
        numbered = [
            np.column_stack([table, np.zeros((len(table), width - table.shape[1])), np.full(len(table), order.index(name))])
            for name, table in zip(self.places, tables, strict=True)
        ]
        return np.concatenate(numbered), (*known, None) if known else (), [len(table) for table in tables]

    def __repr__(self) -> str:
        counts = ", ".join(f"{name}: {len(places)}" for name, places in self.places.items())
        return f"Outputs({counts})"


class Observed(NamedTuple):
    """Places and observations as checked arrays."""

    inputs: Inputs
    data: Data


def read_rows(
    model: Any,
    X: Any,
    y: Any,
    noise: Any = None,
    missing: str = "error",
    extra: Any = None,
    weights: Any = None,
    clocks: Clocks = (),
    names: Sequence[str] = (),
    columns: int = 0,
) -> Observed:
    """Inputs and observations, however they come: rows, a wide table with a column for each output, or dictionaries.

    Where outputs have `names` already, and places so many `columns`, a dictionary may hold some of them.
    """
    if isinstance(X, (Outputs, Mapping)):
        by_name = X if isinstance(X, Outputs) else Outputs(X)
        return _from_names(model, by_name, y, noise, missing, extra, weights, clocks, names, columns)
    if isinstance(y, Mapping):
        raise TypeError("y is a dictionary of outputs, but X is not: give the places of each output by name, Outputs({...})")
    outputs = outputs_of(model.kernel)
    wide = outputs is not None and outputs.count > 1 and len(np.shape(y)) == 2 and np.shape(y)[1] == outputs.count
    places = as_inputs(X, clocks=clocks[:-1] if wide and clocks else clocks)
    if wide and outputs is not None and outputs.among(places.dimension + 1) == places.dimension:
        return _from_table(model.likelihood, places, y, noise, missing, extra, weights)
    if outputs is not None and places.dimension <= outputs.column:
        raise ValueError(
            f"the kernel has {outputs.count} outputs with their numbers in column {outputs.column}, but X has "
            f"{how_many(places.dimension, 'column')} and y the shape {np.shape(y)}: give y a column for each output, "
            f"{outputs.count} in all, or X the column with their numbers"
        )
    return Observed(places, read_observations(model.likelihood, y, noise, missing, places, extra, weights))


def _from_table(likelihood: Likelihood, places: Inputs, y: Any, noise: Any, missing: str, extra: Any, weights: Any) -> Observed:
    """A row for each value that was seen in a wide table."""
    Y, names = read_numbers(y, "y")
    N, P = Y.shape
    if len(places) != N:
        raise ValueError(f"y must have one row for each of the {len(places)} rows of X, got {N}")
    refuse_infinite(Y)
    gone = np.isnan(Y)
    if gone.any() and missing == "error":
        raise ValueError(lacking(y, gone))
    if gone.all():
        raise ValueError("y has no observed value: at least one is needed")
    rows, numbers = np.nonzero(~gone)
    of_cells = lambda part, what: _of_cells(part, what, (N, P), rows, numbers)
    noise, extra, weights = (of_cells(*pair) for pair in ((noise, "noise"), (extra, "extra"), (weights, "weights")))
    table = np.column_stack([np.asarray(places.points)[rows], numbers])
    clocks = (*clocks_of(places), None) if any(clocks_of(places)) else ()
    inputs = dataclasses.replace(Points(table), clocks=clocks)
    data = read_observations(likelihood, Y[rows, numbers], noise, missing, inputs, extra, weights)
    return Observed(inputs, dataclasses.replace(data, outputs=tuple(names or map(str, range(P)))))


def _of_cells(part: Any, what: str, shape: tuple[int, int], rows: np.ndarray, numbers: np.ndarray) -> Any:
    """Numbers that come with a wide table: one for all, one for each row of it, or one for each cell."""
    if part is None or np.ndim(part) == 0:
        return part
    given = np.asarray(part, dtype=float)
    if given.shape not in (shape, shape[:1]):
        raise ValueError(
            f"{what} must be one number, one for each of the {shape[0]} rows or one for each cell, got {given.shape}"
        )
    return given[rows] if given.ndim == 1 else given[rows, numbers]


def _from_names(
    model: Any,
    outputs: Outputs,
    y: Any,
    noise: Any,
    missing: str,
    extra: Any,
    weights: Any,
    clocks: Clocks,
    all_names: Sequence[str],
    columns: int,
) -> Observed:
    """A row for each value of outputs that are given by name."""
    known, names = outputs_of(model.kernel), tuple(outputs.places)
    if all_names and (strange := [name for name in names if name not in all_names]):
        raise ValueError(f"there is no output {strange[0]!r}: there are {', '.join(map(repr, all_names))}")
    if known is None or (known.count != len(names) and not all_names):
        has = "knows of no outputs" if known is None else f"has {known.count} outputs"
        raise ValueError(f"{len(names)} outputs were given, but the kernel {has}: take a kernel of {len(names)}")
    X, counted, counts = outputs.rows(clocks[:-1] if clocks else (), all_names, columns)
    if not sum(counts):
        raise ValueError("no output has a place: at least one row is needed")
    strung = lambda part, what: _strung(part, what, names, counts)
    values = strung(y, "y")
    if not isinstance(y, Mapping):
        raise TypeError(f"X holds outputs by name ({few(names)}), so y must be a dictionary with their values")
    inputs = dataclasses.replace(Points(X), clocks=counted)
    of_each = (strung(part, what) for part, what in ((noise, "noise"), (extra, "extra"), (weights, "weights")))
    noise, extra, weights = of_each
    data = read_observations(model.likelihood, values, noise, missing, inputs, extra, weights)
    return Observed(inputs, dataclasses.replace(data, outputs=tuple(all_names) or names))


def _strung(part: Any, what: str, names: tuple[str, ...], counts: list[int]) -> Any:
    """The numbers of all outputs, one after the other; what is not a dictionary as it is."""
    if not isinstance(part, Mapping):
        return part
    if set(part) != set(names):
        raise ValueError(f"{what} has outputs {few(list(part))}, but X has {few(names)}: both need the same names")
    pieces = []
    for name, count in zip(names, counts, strict=True):
        own = read_numbers(part[name], f"{what} of {name!r}")[0] if np.ndim(part[name]) else np.full(count, float(part[name]))
        if own.shape != (count,):
            raise ValueError(f"{what} of {name!r} must have {count} values, one for each of its places, got shape {own.shape}")
        pieces.append(own)
    return np.concatenate(pieces)
