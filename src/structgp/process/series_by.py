"""Many series in one table, told apart by a column: by name, and in parts where the table is, each inside one of them."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import operator
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from .._types import double_precision, how_many, whole
from ..crew import crew_for
from ..engines import memory
from ..inputs.batches import Block
from ..inputs.clock import Clocks, without_dates
from ..inputs.layouts import Times
from ..inputs.observations import Data
from ..inputs.parts import partitions, read_all, sources_of
from ..inputs.reading import listed, missing_labels, unmasked
from ..learn.account import Learning
from ..learn.climb import climb
from ..learn.clock import Deadline
from ..learn.many import SUGGESTIONS, Batch, ManySeries, batches_of, starts_and_units, summed
from ..learn.objective import Objective
from ..parameters.tree import free_vector, with_free
from ..posterior import Prediction, Scattered
from .fitted import Fitted
from .fitted_parts import SHARE, Known
from .series import FittedSeries, check_chains, conditioned, fit_series, read_one


@dataclasses.dataclass(frozen=True)
class SeriesPart:
    """Whole series of a table by their names, and the model that all begin with."""

    gp: Any
    names: tuple[Any, ...]
    inputs: tuple[Times, ...]
    data: tuple[Data, ...]
    batches: tuple[Batch, ...]
    clocks: Clocks


class SeriesSource(NamedTuple):
    """Where the series of a part are read from: files, or promises of Dask's; those of a table in memory are X itself."""

    X: Any
    y: Any
    noise: Any
    by: Any


@dataclasses.dataclass(frozen=True, eq=False)
class FittedSeriesBy(Scattered, Mapping[Any, Fitted]):
    """A GP given many series: a mapping from the name of each to its `Fitted`. The series stay where they were read.

    `gp` has the parameters that they share; where each has its own, they are those of its `Fitted`.
    """

    gp: Any
    log_evidences: dict[Any, float]
    learnings: tuple[Learning, ...]
    names: tuple[tuple[Any, ...], ...]  # of the series of each part
    thetas: tuple[np.ndarray, ...]  # of these, one row each
    clocks: Clocks
    missing: str
    sources: tuple[SeriesSource, ...]
    _known: Known = dataclasses.field(metadata={"derived": True})

    @property
    def log_evidence(self) -> float:
        """The log evidence of all series together."""
        return float(sum(self.log_evidences.values()))

    @property
    def learning(self) -> Learning | None:
        """How learning ended, in all series together."""
        return summed(self.learnings) if self.learnings else None

    @double_precision
    def predict(self, X: Any) -> dict[Any, Prediction]:
        """The belief about every series at the same new times, by name."""
        parts, crew = self._known
        found = crew.map(_predicted, parts, self.thetas, itertools.repeat(X))
        return {name: one for names, part in zip(self.names, found, strict=True) for name, one in zip(names, part, strict=True)}

    def __getitem__(self, name: Any) -> Fitted:
        parts, crew = self._known
        for part, names, thetas in zip(parts, self.names, self.thetas, strict=True):
            if name in names:
                at = names.index(name)
                return crew.map(_one_of, [part], [thetas[at]], [at])[0]
        raise KeyError(name)

    def __len__(self) -> int:
        return sum(map(len, self.names))

    def __iter__(self) -> Iterator[Any]:
        return itertools.chain(*self.names)

    def __repr__(self) -> str:
        return f"FittedSeriesBy({len(self)} series in {len(self.names)} parts, log evidence {self.log_evidence:.6g})"


@double_precision
def fit_series_by(
    gp: Any, X: Any, y: Any, by: Any, noise: Any, missing: str, over: Any, shared: bool, seconds: Any, **options: Any
) -> FittedSeriesBy:
    """Learn from all series of a table, with parameters that they share or have for themselves, then condition."""
    began, deadline = time.perf_counter(), Deadline.after(seconds)
    options["restarts"] = whole(options["restarts"], "restarts")
    read = _read(gp, X, y, by, noise, missing, over)
    (parts, crew), names = read.known, read.names
    same = itertools.repeat
    if not shared:
        found = crew.map(_learned_apart, parts, same(deadline.left() if np.isfinite(deadline.at) else None), same(options))
        thetas, learnings = [theta for theta, _ in found], tuple(itertools.chain(*(own for _, own in found)))
        return _given(gp, read, thetas, learnings)
    told = crew.map(_told, parts, same(-(-SUGGESTIONS // len(parts))))
    weights = np.array([told_[2] for told_ in told], dtype=float)
    starts, units = (np.average([told_[i] for told_ in told], axis=0, weights=weights) for i in (0, 1))
    count = max(sum(told_[3] for told_ in told), 1)

    def evidence(theta: np.ndarray) -> tuple[Any, Any]:
        shares = crew.map(_together, parts, same(theta))
        value, gradient = (functools.reduce(operator.add, part) for part in zip(*shares, strict=True))
        return value, gradient

    learned, learning = climb(
        gp, Objective(gp, evidence), list(starts), count, began, units=units, deadline=deadline, **options
    )
    theta = free_vector(learned)
    return _given(learned, read, [np.tile(theta, (len(own), 1)) for own in names], (learning,))


@double_precision
def condition_series_by(gp: Any, X: Any, y: Any, by: Any, noise: Any, missing: str, over: Any) -> FittedSeriesBy:
    """All series of a table given their data, with the parameters as they are."""
    read = _read(gp, X, y, by, noise, missing, over)
    return _given(gp, read, [np.tile(free_vector(gp), (len(own), 1)) for own in read.names], ())


def _given(gp: Any, read: SeriesRead, thetas: Sequence[np.ndarray], learnings: tuple[Learning, ...]) -> FittedSeriesBy:
    (parts, crew), names, clocks, missing, sources = read
    found = crew.map(_evidences, parts, thetas)
    evidences = {
        name: float(value) for own, values in zip(names, found, strict=True) for name, value in zip(own, values, strict=True)
    }
    bad = [name for name, value in evidences.items() if not np.isfinite(value)]
    if bad:
        raise ValueError(f"series {bad[0]!r}: its log evidence is not finite: check the data for extreme values")
    return FittedSeriesBy(gp, evidences, learnings, names, tuple(thetas), clocks, missing, sources, read.known)


class SeriesRead(NamedTuple):
    """The parts with their series, the names of these, how their dates are counted, and where they were read from."""

    known: Known
    names: tuple[tuple[Any, ...], ...]
    clocks: Clocks
    missing: str
    sources: tuple[SeriesSource, ...]


def _read(gp: Any, X: Any, y: Any, by: Any, noise: Any, missing: str, over: Any) -> SeriesRead:
    """The series of a table, each in one part."""
    crew, sources = crew_for(over, SHARE * memory.available()), sources_of(X, y, noise)
    apart: list[Any] = [None]
    if sources is None:
        sources = ([read_series_part(X, y, noise, by, gp, missing, ())], [None], [None])
    else:
        apart = [by] * len(sources[0]) if isinstance(by, str) else partitions(by)
    if len(apart) != len(sources[0]):
        raise ValueError(f"X has {len(sources[0])} partitions, by has {len(apart)}: take them from one table")
    rest = [gp] * len(apart), [missing] * len(apart)
    parts, clocks = read_all(crew, read_series_part, _clocks, *sources, apart, *rest)
    places = list(map(SeriesSource, *sources, apart))
    names = crew.map(_names, parts)
    some = [p for p, own in enumerate(names) if own]
    every = list(itertools.chain(*names))
    if not every:
        raise ValueError("there are no series: at least one is needed")
    if len(set(every)) < len(every):
        twice = next(name for name in every if every.count(name) > 1)
        raise ValueError(
            f"series {twice!r} is in several partitions: bring its rows together first, with shuffle(on=…) in Dask"
        )
    known = Known([parts[p] for p in some], crew)
    return SeriesRead(known, tuple(names[p] for p in some), clocks, missing, tuple(places[p] for p in some))


def series_found_again(fitted: FittedSeriesBy) -> Known:
    """The parts of series that were read before, by who is there now."""
    crew, count = crew_for(None, SHARE * memory.available()), len(fitted.sources)
    same = lambda value: [value] * count
    given = same(fitted.gp), same(fitted.missing), same(fitted.clocks), fitted.names
    return Known(crew.made(read_series_again, fitted.sources, *given), crew)


def read_series_again(source: SeriesSource, gp: Any, missing: str, clocks: Clocks, names: tuple[Any, ...]) -> SeriesPart:
    """The series of a part that was read before; refused where they are others by now."""
    found = read_series_part(*source, gp, missing, clocks)
    if found.names != names:
        where = getattr(source.X, "path", "a part")
        raise ValueError(
            f"the series of {where} have changed since they were fitted: {len(names)} then, {len(found.names)} now"
        )
    return found


def read_series_part(X: Any, y: Any, noise: Any, by: Any, gp: Any, missing: str, clocks: Clocks) -> SeriesPart:
    """The series of a part of a table; `by` is their column, or its name among those of X."""
    if isinstance(X, SeriesPart):
        return X
    if isinstance(X, Block):
        X, y = X.read()
    if isinstance(by, str):
        by, X = _told_apart(X, by)
    used = clocks or (without_dates(X, "X", ())[1] if len(X) else ())
    X, _ = without_dates(X, "X", used) if used else (X, ())
    X, y, by = np.asarray(unmasked(X)), np.asarray(unmasked(y)), np.asarray(by)
    if len(by) != len(X):
        raise ValueError(f"by must name the series of each of the {len(X)} rows, got {len(by)}")
    gone = missing_labels(by) if by.dtype.kind in "OfM" else by[:0]
    if len(gone):
        raise ValueError(f"by names no series in {how_many(len(gone), 'row')} ({listed('row', gone)}): drop them, or name it")
    noise = None if noise is None else np.broadcast_to(np.asarray(unmasked(noise), dtype=float), (len(X),))
    names, code = np.unique(by, return_inverse=True)
    order = np.argsort(code, kind="stable")
    rows = np.split(order, np.cumsum(np.bincount(code, minlength=len(names)))[:-1]) if len(names) else []
    own = lambda values, at: None if values is None else values[at]
    called = tuple(names.tolist())
    read = [read_one(gp, name, X[at], y[at], own(noise, at), missing, ()) for name, at in zip(called, rows, strict=True)]
    times, data = zip(*read, strict=True) if read else ((), ())
    if times:
        check_chains(gp, times)
    inputs = tuple(dataclasses.replace(one, clocks=used) for one in times)
    return SeriesPart(gp, called, inputs, data, batches_of(inputs, data), used)


def _told_apart(X: Any, by: str) -> tuple[Any, Any]:
    """The column of a table that names series, and the others."""
    if not hasattr(X, "columns"):
        raise TypeError(f"by={by!r} is the name of a column, and X is no table: pass the names of the series as an array")
    if by not in X.columns:
        raise ValueError(f"by={by!r} is no column of X: it has {', '.join(map(str, X.columns))}")
    return X[by], X[[name for name in X.columns if name != by]]


def _names(part: SeriesPart) -> tuple[Any, ...]:
    return part.names


def _clocks(part: SeriesPart) -> Clocks | None:
    return part.clocks if part.names else None


def _told(part: SeriesPart, some: int) -> tuple[Any, Any, int, int]:
    """Where the series of a part suggest to begin, in what units, how many they are, and how many values were seen."""
    starts, units = starts_and_units(part.gp, part.inputs, part.data, some)
    return starts, units, len(part.names), sum(int(np.sum(data.seen)) for data in part.data)


def _together(part: SeriesPart, theta: np.ndarray) -> tuple[Any, Any]:
    return jax.device_get(ManySeries(part.gp, part.batches).together(theta))


def _learned_apart(part: SeriesPart, seconds: Any, options: dict[str, Any]) -> tuple[np.ndarray, tuple[Learning, ...]]:
    """Parameters of their own for the series of a part."""
    lists = [times.t[times.rank] for times in part.inputs], [np.where(d.seen, d.y[:, 0], np.nan) for d in part.data]
    noises = [data.noise for data in part.data]
    limits = (options["restarts"], options["seed"], options["max_evaluations"], options["progress"], seconds)
    many = fit_series(part.gp, *lists, noises, "infer", False, *limits)
    return np.stack([free_vector(one.gp) for one in many]), many.learnings


def _evidences(part: SeriesPart, thetas: np.ndarray) -> np.ndarray:
    return ManySeries(part.gp, part.batches).apart(np.asarray(thetas))[0]


def _predicted(part: SeriesPart, thetas: np.ndarray, X: Any) -> tuple[Prediction, ...]:
    return _conditioned_on(part, range(len(part.names)), thetas).predict(X)


def _one_of(part: SeriesPart, theta: np.ndarray, at: int) -> Fitted:
    return _conditioned_on(part, [at], theta[None])[0]


def _conditioned_on(part: SeriesPart, some: Sequence[int], thetas: np.ndarray) -> FittedSeries:
    inputs, data = tuple(part.inputs[i] for i in some), tuple(part.data[i] for i in some)
    models = jax.tree.map(lambda *leaves: np.stack(leaves), *(_numbers(with_free(part.gp, theta)) for theta in thetas))
    return conditioned(models, inputs, data, batches_of(inputs, data), ())


def _numbers(gp: Any) -> Any:
    return jax.tree.map(np.asarray, gp)
