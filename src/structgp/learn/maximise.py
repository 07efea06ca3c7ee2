"""Learning by climbing the evidence: where to begin, by which algorithm, and how often anew."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from .._types import double_precision
from ..crew import Crew
from ..engines.base import MANY_ROWS, Offer, gaussian
from ..engines.cholesky import Cholesky, cost_of_matrix
from ..engines.diagnose import why_no_start
from ..inputs.layouts import Grid
from ..inputs.observations import Data
from ..inputs.rows import in_bucket
from ..linalg.dense.cholesky import lapack_threads
from ..parameters.tree import free_vector, with_free, without_zeros
from .account import Learning
from .believe import WeakBeliefs
from .climb import NoStart, climb
from .clock import NEVER, Deadline
from .density import Density
from .evidence import evidence_objective
from .initialise import candidates, glimpse, limits_of, some_rows, telling_rows, units_of
from .lags import with_lags
from .objective import Objective

WORTH = 0.02  # of a log evidence: where evaluations are costly, nobody goes after less
ROUNDS = 4  # climbs at most


@contextlib.contextmanager
def _explained(model: Any, inputs: Any, data: Data) -> Iterator[None]:
    """Say why learning cannot begin, if it cannot."""
    try:
        yield
    except NoStart:
        raise ValueError(why_no_start(model, inputs, data)) from None


@double_precision
def maximise(
    model: Any,
    inputs: Any,
    data: Data,
    offer: Offer,
    *,
    restarts: int,
    seed: Any,
    max_evaluations: int,
    progress: bool | None,
    objective: Objective | None = None,
    objective_of: Callable[[Any, Data], Objective] | None = None,
    worth: float = 0.0,
    deadline: Deadline = NEVER,
    beliefs: WeakBeliefs | None = None,
    others: Sequence[Any] = (),
    over: Crew | None = None,
) -> tuple[Any, Learning]:
    """The model with the parameters that make the data most probable by the algorithm on offer, and how they were found.

    `objective` is what is climbed when it is not the evidence of Gaussian data; `objective_of` makes the same of some rows,
    where these are so much cheaper that a climb on them should come first. `worth` is that of `climb`. With `beliefs` about
    what nobody said it is the density of θ that is climbed. `others` are models to begin at as well, and `over` who
    does the climbs.
    """
    began = time.perf_counter()
    count = max(int(np.sum(data.seen)) * data.y.shape[1], 1)
    options: dict[str, Any] = {"restarts": restarts, "seed": seed, "max_evaluations": max_evaluations, "progress": progress}
    options |= {"deadline": deadline, "over": over}
    model = without_zeros(model)
    points, telling = telling_rows(model, inputs, data)
    begin: dict[str, Any] = {"others": [free_vector(other) for other in others]}
    if objective is None and (offer.glimpse or (offer.grain and isinstance(inputs, Grid))):
        places, some = glimpse(inputs, data)
        dense = Offer(Cholesky(), cost_of_matrix(len(places), places.dimension))
        starts = [free_vector(maximise(model, places, some, dense, **options)[0])]
    elif objective_of is not None and len(inputs) > MANY_ROWS:
        places, some = some_rows(inputs, data)
        part: dict[str, Any] = {"objective": objective_of(places, some), "worth": WORTH}
        starts, worth = [free_vector(maximise(model, places, some, offer, **part, **options)[0])], WORTH
    else:
        different = {theta.tobytes(): theta for theta in map(free_vector, candidates(model, points, telling))}
        starts = list(different.values())
        if gaussian(model, data) and len(starts) > 1:  # noise and signal have the units of y
            begin["given"], *starts = starts
    units, limits = units_of(model, points, telling), limits_of(model, points, telling)
    with lapack_threads(offer.cost.rows if offer.cost else 0), _explained(model, inputs, data):
        if objective is not None:
            return climb(model, objective, starts, count, began, units=units, limits=limits, worth=worth, **begin, **options)
        engine, evaluations = offer.engine, 0
        places, sized = in_bucket(inputs, data) if engine.takes_unseen_rows else (inputs, data)
        ready = engine.prepared(with_free(model, starts[0]), places, sized)
        for _ in range(ROUNDS):  # one, unless what is learned asks for other places
            places = ready
            evidence = evidence_objective(model, places, sized, engine, offer.grain)
            climbed = evidence if beliefs is None else Density(evidence, beliefs)
            starts = with_lags(model, evidence, starts, points, telling) if not evaluations else starts
            learned, learning = climb(model, climbed, starts, count, began, units=units, limits=limits, **begin, **options)
            starts, evaluations, begin = [free_vector(learned)], evaluations + learning.evaluations, {}
            ready = places if deadline.passed() else engine.prepared(learned, places, sized)
            if ready is places:
                break
        return learned, dataclasses.replace(learning, evaluations=evaluations)
