"""The exact model of some rows, drawn at random: what these tell of the parameters is near to what all of them would."""

from __future__ import annotations

import dataclasses
import time
from typing import Any

import jax
import numpy as np

from .._types import double_precision
from ..engines.cholesky import Cholesky
from ..inputs.layouts import as_inputs
from ..inputs.observations import Data
from ..linalg.dense.cholesky import lapack_threads
from ..parameters.tree import free_vector
from .account import Learning
from .climb import climb
from .clock import NEVER, Deadline
from .evidence import evidence_objective
from .initialise import limits_of, suggested, units_of
from .maximise import WORTH


@double_precision
def learn_from_some(
    model: Any,
    inputs: Any,
    data: Data,
    count: int,
    *,
    max_evaluations: int,
    deadline: Deadline = NEVER,
    seed: Any = 0,
    progress: Any = False,
    **_: Any,
) -> tuple[Any, Learning]:
    """The model with the parameters that make so many of the observations most probable, and how they were found.

    It begins at what the rows suggest: the best of several starts often sees noise only.
    """
    began, seen = time.perf_counter(), np.flatnonzero(data.seen)
    rows = np.sort(np.random.default_rng(0).permutation(seen)[:count])
    X, some = np.asarray(inputs.points)[rows], jax.tree.map(lambda values: np.asarray(values)[rows], data)
    whole = len(data.seen) <= count  # whoever fills rows up has few sizes of them
    objective = evidence_objective(model, inputs if whole else as_inputs(X), data if whole else some, Cholesky())
    options: dict[str, Any] = {"max_evaluations": max_evaluations, "deadline": deadline, "seed": seed, "progress": progress}
    options |= {"restarts": 0, "worth": WORTH, "units": units_of(model, X, some), "limits": limits_of(model, X, some)}
    from_there = lambda begin: climb(model, objective, [free_vector(begin)], len(rows), began, **options)
    with lapack_threads(len(rows)):
        learned, learning = from_there(suggested(model, X, some))
        evaluations = 1 + learning.evaluations
        if objective(free_vector(model))[0] > learning.objective:
            learned, learning = from_there(model)
            evaluations += learning.evaluations
    of = len(rows) if len(rows) < len(seen) else 0
    return learned, dataclasses.replace(learning, evaluations=evaluations, seconds=time.perf_counter() - began, rows=of)
