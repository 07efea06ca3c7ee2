"""Rows in parts through inducing inputs: what is left of each part are sums, and the sums of all are the data."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np

from .._types import double_precision
from ..engines.inducing import InducingEngine
from ..engines.inducing_inputs import Inducing
from ..inputs.layouts import as_inputs
from ..inputs.parts import sizes_of_parts
from ..learn.climb import climb
from ..learn.initialise import limits_of, units_of
from ..learn.objective import Objective
from ..learn.parts import RowsEvidence, Series, hold_rows
from ..parameters.tree import as_numpy, free_vector
from .inducing_stream import InducingStream, stream_through_inputs

if TYPE_CHECKING:
    from .parts import Looked

WORTH = 1 / 5000  # nats for each observation that a step over all rows must gain
STEPS = 60  # of them, unless it is said


@double_precision
def fit_rows(gp: Any, looked: Looked, approximation: Inducing, options: dict[str, Any]) -> InducingStream:
    """Learn from some rows of all parts, go on from all of them, and take up their sums."""
    began, stream = time.perf_counter(), stream_through_inputs(gp, approximation)
    X, data = looked.some
    y = np.where(data.seen[:, None], data.y, np.nan)
    some: dict[str, Any] = {"missing": "infer", "noise": data.noise if np.any(data.noise) else None, "parameters": "best"}
    some |= {name: options[name] for name in ("seed", "progress")} | {"seconds": options["deadline"]}
    learned = gp.fit(X, y, approximate=approximation, **some).gp
    evidence = _evidence(learned, looked, stream.engine)
    count = max(looked.observed[0] * looked.observed[1], 1)
    steps = {**options, "max_evaluations": min(options["max_evaluations"], STEPS), "worth": count * WORTH}
    steps |= {"units": units_of(learned, X, data), "limits": limits_of(learned, X, data)}
    if not options["deadline"].passed():
        learned, _ = climb(learned, Objective(learned, evidence), [free_vector(learned)], count, began, **steps)
    return _taken_up(learned, looked, evidence, stream)


@double_precision
def condition_rows(gp: Any, looked: Looked, approximation: Inducing) -> InducingStream:
    """The sums of all rows, with the parameters as they are and inducing inputs among some of the rows."""
    X, data = looked.some
    placed = approximation.applied(gp, as_inputs(X), data)
    stream = stream_through_inputs(gp, approximation)
    return _taken_up(placed, looked, _evidence(placed, looked, stream.engine), stream)


def _evidence(gp: Any, looked: Looked, engine: InducingEngine) -> RowsEvidence:
    lengths = sizes_of_parts([fact.rows for fact in looked.facts])
    handles = looked.crew.made(hold_rows, looked.rows, [gp] * len(lengths), lengths)
    first = looked.facts[0].first
    return RowsEvidence(gp, handles, looked.crew, engine, Series(float(first[0]), *looked.observed), len(first))


def _taken_up(gp: Any, looked: Looked, evidence: RowsEvidence, stream: InducingStream) -> InducingStream:
    """A stream that has seen all rows, with parameters that are those of the model that was held or were learned from it."""
    found = evidence.sums(free_vector(gp))
    if not all(np.isfinite(part).all() for part in found.sums):
        raise ValueError("the sums over these rows are not finite: check X and y for extreme values")
    seen, targets = looked.observed
    flat = looked.facts[0].data.flat
    return InducingStream(
        gp, as_numpy(found.sums), np.asarray(found.log_weights), seen, targets, flat, evidence.D, stream.most, stream.engine
    )
