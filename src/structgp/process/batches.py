"""Rows that do not fit in memory: parameters and inducing inputs from some of them and from batches, the process from all."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from .._types import Seed, generator, whole
from ..engines.approximation import Approximation
from ..engines.inducing_inputs import Inducing
from ..inputs.layouts import as_inputs
from ..inputs.observations import read_observations
from ..learn.batches import ROWS, BatchRows, learned_in_batches
from ..learn.clock import Deadline
from .conditioning import check_inputs
from .inducing_stream import InducingStream, stream_through_inputs

SAMPLE = 40, 4_000, 20_000  # rows for each inducing input, at least and at most, of which learning begins
HELD_OUT = 2_000
STEPS = 2_000  # batches at most

Batches = Iterable[tuple[Any, Any]] | Callable[[], Iterable[tuple[Any, Any]]]


def fit_batches(
    gp: Any, batches: Batches, approximation: Approximation, steps: int, seconds: Any, seed: Seed
) -> InducingStream:
    """Learn from a sample and from batches, then take up all rows; memory does not grow with their number."""
    stream = stream_through_inputs(gp, approximation)
    if not isinstance(approximation, Inducing) or not isinstance(approximation.inputs, int):
        raise ValueError(f"fit_batches: approximate must be Inducing(M) with a number of inputs, got {approximation}")
    deadline, rng, M = Deadline.after(seconds), generator(seed), approximation.inputs
    sample = int(np.clip(SAMPLE[0] * M, *SAMPLE[1:]))
    rows, count = _sampled(gp, batches, sample + HELD_OUT, rng)
    kept = min(HELD_OUT, len(rows.y) // 5)
    held_out, start = (BatchRows(*(part[where] for part in rows)) for where in (slice(0, kept), slice(kept, None)))
    if len(start.y) <= M:
        raise ValueError(
            f"fit_batches: {count} rows are too few for {M} inducing inputs and rows held out: fit(X, y) takes them"
        )
    whole(steps, "steps")
    fitted = gp.fit(start.X, start.y, approximate=approximation, seconds=deadline, parameters="best")
    learned = fitted.gp
    if steps and count > len(rows.y):
        some = _in_rows(batches, rng)
        learned = learned_in_batches(learned, some, start, held_out, count, steps, deadline)[0]
    stream = dataclasses.replace(stream, gp=learned, engine=dataclasses.replace(stream.engine, place=""))  # as learned
    for X, y in _begun(batches):
        stream = stream.update(X, y)
    return stream


def _begun(batches: Batches) -> Iterator[tuple[Any, Any]]:
    """The batches from the first on."""
    again = iter(batches() if callable(batches) else batches)
    if again is batches:
        raise ValueError(
            "fit_batches goes through the batches several times, and these are gone after the first: pass a list, "
            "ParquetBatches(path, target), or a function that begins anew"
        )
    return again


def _sampled(gp: Any, batches: Batches, most: int, rng: np.random.Generator) -> tuple[BatchRows, int]:
    """So many rows drawn at random from all, in random order, and the number of all."""
    kept: tuple[np.ndarray, ...] = ()
    count = 0
    for X, y in _begun(batches):
        inputs = as_inputs(X, clocks=())
        check_inputs(gp, inputs)
        data = read_observations(gp.likelihood, y, None, "error", inputs)
        if data.y.shape[1] > 1:
            raise ValueError(f"fit_batches: y must have one target, got {data.y.shape[1]}")
        count += len(inputs)
        new = rng.random(len(inputs)), np.asarray(inputs.points), data.y[:, 0]
        joined = tuple(np.concatenate(parts) for parts in zip(kept, new, strict=True)) if kept else new
        first = np.argsort(joined[0])[:most]
        kept = tuple(part[first] for part in joined)
    if not count:
        raise ValueError("fit_batches: there are no rows: check what the batches are read from")
    return BatchRows(kept[1], kept[2]), count


def _in_rows(batches: Batches, rng: np.random.Generator) -> Iterator[BatchRows]:
    """Small batches without end, of rows that are mixed within each block."""
    while True:
        for X, y in _begun(batches):
            points = np.asarray(as_inputs(X, clocks=()).points)
            order = rng.permutation(len(points))
            for at in range(0, len(order) - ROWS + 1, ROWS):
                some = order[at : at + ROWS]
                yield BatchRows(points[some], np.asarray(y, dtype=float)[some])
