"""Data in parts: rows that are read where they are worked on, and what has to be known of all of them beforehand."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import numpy as np
from jaxtyping import Float, Int

from ..crew import Crew, is_lazy, size
from ..likelihoods.base import Likelihood
from .batches import Block, ParquetBatches
from .clock import Clocks
from .layouts import as_inputs, clocks_of
from .observations import Data, read_observations
from .rows import filled

ROWS = 2**20  # of a part of files
TELLING = 2**15  # rows from all parts that tell where learning begins


class Rows(eqx.Module):
    """The checked rows of a part, in their order."""

    X: Float[Any, "N D"]
    data: Data
    clocks: Clocks = ()

    def __sizeof__(self) -> int:
        return size(self)


class Source(NamedTuple):
    """Where the rows of a part are read from: a block of files, an array, or a promise of Dask's, for each."""

    X: Any
    y: Any
    noise: Any


class Facts(NamedTuple):
    """What has to be known of a part before the others can be asked."""

    rows: int
    seen: int
    targets: int
    least_noise: float
    first: Float[np.ndarray, " D"]
    last: Float[np.ndarray, " D"]
    X: Float[np.ndarray, "R D"]  # some of the rows
    data: Data
    bytes: int


class ChainPart(eqx.Module):
    """A part of a series in the order of time, from its first place to that of the next part, which belongs to the next.

    It is filled up with places at its end that were not seen.
    """

    t: Float[Any, " S"]
    data: Data
    count: Int[Any, ""]  # places but for those that fill up
    first: Float[Any, ""]  # where the whole series begins
    rank: Int[Any, " N"] | None  # rows of the caller = these[rank], where they were not sorted

    def __sizeof__(self) -> int:
        return size(self)


def sources_of(X: Any, y: Any, noise: Any = None) -> tuple[list[Any], list[Any], list[Any]] | None:
    """Where the parts of X, y and the noise are read from, if they come in parts; else None."""
    if _are_paths(X) or (isinstance(y, str) and isinstance(X, (list, tuple))):
        if not isinstance(y, str):
            raise TypeError(
                "where X is the path of Parquet files, y is the name of the column that is foretold: "
                f"gp.fit('meter/*.parquet', 'kWh'), got {type(y).__name__}"
            )
        X, y = ParquetBatches(X, y, rows=ROWS), None
    if isinstance(X, ParquetBatches):
        if y is not None or noise is not None:
            raise TypeError("ParquetBatches name the target, and know no noise: leave out y and noise")
        blocks = X.blocks()
        if not blocks:
            raise ValueError(f"{X.path} has no rows: check the path")
        return blocks, [None] * len(blocks), [None] * len(blocks)
    lazy = [is_lazy(part) for part in (X, y)]
    if not any(lazy):
        return None
    if not all(lazy):
        raise TypeError("X and y must both be collections of Dask's with the same partitions: one of them is in memory")
    parts, values = partitions(X), partitions(y)
    if np.ndim(noise) and not is_lazy(noise):
        raise TypeError(
            "X and y are collections of Dask's, and the noise of each row is in memory: pass it as a column of the same table"
        )
    noises = partitions(noise) if is_lazy(noise) else [noise] * len(parts)
    if len(values) != len(parts) or len(noises) != len(parts):
        raise ValueError(
            f"X has {len(parts)} partitions, y has {len(values)} and noise {len(noises)}: take them from one table, "
            "or rechunk them alike"
        )
    return parts, values, noises


def _are_paths(X: Any) -> bool:
    """Whether files are named; a list of other words is left to who reads rows."""
    if isinstance(X, (list, tuple)):
        return len(X) > 0 and all(isinstance(x, Path) or (isinstance(x, str) and x.endswith(".parquet")) for x in X)
    return isinstance(X, (str, Path))


def partitions(collection: Any) -> list[Any]:
    """The partitions of a Dask table, or the blocks of rows of a Dask array, each as a promise."""
    if getattr(collection, "ndim", 1) == 2 and hasattr(collection, "rechunk"):
        collection = collection.rechunk({1: -1})
    return list(np.ravel(np.asarray(collection.to_delayed(), dtype=object)))


def read_all(
    crew: Crew, read: Callable[..., Any], clocks_of_part: Callable[[Any], Clocks | None], *lists: Sequence[Any]
) -> tuple[list[Any], Clocks]:
    """Handles of read(*row, clocks) for each row, and the clocks: those of the first part that has rows count for all."""
    made: list[Any] = []
    clocks: Clocks | None = None
    while clocks is None and len(made) < len(lists[0]):
        made += crew.made(read, *(part[len(made) : len(made) + 1] for part in lists), [()])
        clocks = crew.map(clocks_of_part, made[-1:])[0]
    known, rest = clocks or (), [part[len(made) :] for part in lists]
    return made + crew.made(read, *rest, [known] * len(rest[0])), known


def clocks_of_rows(rows: Rows) -> Clocks | None:
    """How dates are counted in a part; None where there are no rows that could tell."""
    return rows.clocks if len(rows.X) else None


def read_part(X: Any, y: Any, noise: Any, likelihood: Likelihood, missing: str, clocks: Clocks) -> Rows:
    """The rows of a part, checked; dates are counted by these clocks, or by new ones where there are none."""
    if isinstance(X, Block):
        X, y = X.read()
    if not len(X):
        return Rows(np.zeros((0, 1)), Data(np.zeros((0, 1)), np.zeros(1), np.zeros(0, bool)))
    inputs = as_inputs(X, clocks=clocks)
    data = read_observations(likelihood, _column(y), noise, missing, inputs)
    known = data.noise if np.ptp(data.noise) else data.noise[:1]
    kept = tuple(clock for clock in clocks_of(inputs)) if any(clocks_of(inputs)) else ()
    return Rows(np.asarray(inputs.points), eqx.tree_at(lambda d: d.noise, data, known), clocks or kept)


def read_again(
    source: Source, likelihood: Likelihood, missing: str, clocks: Clocks, rows: int, first: float, last: float
) -> Rows:
    """The rows of a part of a series that was read before; refused where they are others by now."""
    found = read_part(*source, likelihood, missing, clocks)
    count, t = len(found.X), found.X[:, 0]
    if count != rows or t.min() != first or t.max() != last:
        where = getattr(source.X, "path", "a part")
        now = f"{count:,} from {t.min():g} to {t.max():g}" if count else "none"
        raise ValueError(
            f"the rows of {where} have changed since they were fitted: there were {rows:,} from {first:g} to {last:g}, now "
            f"there are {now}. Fit again"
        )
    return found


def _column(y: Any) -> Any:
    """A table of one column is that column."""
    return y.iloc[:, 0] if hasattr(y, "iloc") and getattr(y, "ndim", 1) == 2 and y.shape[1] == 1 else y


def look(rows: Rows, share: int, number: int) -> Facts | None:
    """What has to be known of a part, with some of its rows drawn at random; None of one without rows."""
    N, data = len(rows.X), rows.data
    if not N:
        return None
    some = np.arange(N) if share >= N else np.sort(np.random.default_rng(number).choice(N, share, replace=False))
    noise = np.broadcast_to(data.noise, (N,))[some]
    telling = Data(data.y[some], noise, data.seen[some], data.flat)
    seen = data.noise if len(data.noise) == 1 else data.noise[data.seen]
    least = float(np.min(seen, initial=math.inf))
    ends = rows.X.min(axis=0), rows.X.max(axis=0)
    return Facts(N, int(np.sum(data.seen)), data.y.shape[1], least, *ends, rows.X[some], telling, size(rows))


def share_of(parts: int) -> int:
    """How many rows of each part tell where learning begins."""
    return -(-TELLING // parts)


def in_order(facts: Sequence[Facts]) -> list[int]:
    """The order of parts along one column; those that overlap are refused."""
    if any(len(fact.first) != 1 for fact in facts):
        raise ValueError(
            f"parts of a series have one column, its times, got {len(facts[0].first)}: rows of several columns, or with the "
            "number of an output, take approximate=Inducing(500), and sums of functions of columns AdditiveGP"
        )
    order = sorted(range(len(facts)), key=lambda i: (facts[i].first[0], facts[i].last[0]))
    for i, j in itertools.pairwise(order):
        if facts[i].last[0] > facts[j].first[0]:
            raise ValueError(
                f"the partitions overlap in t: one ends at {facts[i].last[0]:g}, and another begins at {facts[j].first[0]:g}: "
                "sort them first, with set_index('t') in Dask or sort('t') in Polars"
            )
    return order


def sizes_of_parts(counts: Sequence[int]) -> list[int]:
    """Few sizes for parts of so many rows, so that few programs are compiled: those that nearly have as many share one."""
    sizes, most = {}, 0
    for count in sorted(set(counts), reverse=True):
        if not most or count <= 7 / 8 * most:
            step = max((1 << max(count - 1, 1).bit_length()) // 128, 8)
            most = -(-count // step) * step
        sizes[count] = most
    return [sizes[count] for count in counts]


def chain_part(rows: Rows, first: float, beyond: float | None, length: int) -> ChainPart:
    """The rows of a part as a part of a series that begins at `first`; `beyond` is the first place of the next part."""
    t, data = rows.X[:, 0], rows.data
    order = np.argsort(t, kind="stable")
    sorted_ = bool(np.all(order[1:] > order[:-1]))
    rank = None if sorted_ else np.argsort(order)
    count = len(t) + (beyond is not None)
    ends = np.full(length - len(t), t.max() if beyond is None else beyond)
    in_time = lambda x: x if sorted_ else x[order]
    with_rest = lambda x: np.concatenate([in_time(x), np.zeros((length - len(x), *x.shape[1:]), x.dtype)])
    noise = data.noise if len(data.noise) == 1 else with_rest(data.noise)
    known = Data(with_rest(data.y), noise, with_rest(data.seen), data.flat)
    return ChainPart(np.concatenate([in_time(t), ends]), known, np.asarray(count), np.asarray(first), rank)


def rows_part(rows: Rows, length: int) -> Rows:
    """The rows of a part, filled up with such that were not seen."""
    noise = filled(rows.data.noise, length) if len(rows.data.noise) > 1 else rows.data.noise
    seen = np.concatenate([rows.data.seen, np.zeros(length - len(rows.X), bool)])
    return Rows(filled(rows.X, length), Data(filled(rows.data.y, length), noise, seen, rows.data.flat))
