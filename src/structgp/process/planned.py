"""What is computed with, on what, and what runs: the plan, once data and an approximation are known."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import numpy as np

from .. import where
from ..engines.machine import at_hand, reference
from ..engines.memory import fits
from ..engines.plan import FEW_ROWS, Plan, Remedy, asked_for, plan
from ..inference.base import Inference
from ..inputs.layouts import Grid, Inputs, Points, Times, as_times_of_outputs, clocks_of, grid_of
from ..inputs.observations import Data
from ..kernels.outputs import outputs_of
from ..structure.kronecker import all_factors

MOST_ROWS = 5000  # of a table up to which the whole matrix, which is exact, goes before what a grid gives to a tolerance
REMEDIES = "additive", "state-space", "neighbours:30", "inducing:500"  # what is looked at where the plan takes long
ALONG_TIME = ("markov", "toeplitz")  # structures of rows of a time and the number of an output


class Planned(NamedTuple):
    """The model that is computed with, which an approximation may give parameters of its own, on what, and what runs."""

    gp: Any
    inputs: Inputs
    data: Any
    plan: Plan
    rule: Inference | None = None  # by which observations become Gaussian sites


def planned(
    gp: Any,
    inputs: Inputs,
    structure: str,
    approximate: Any,
    data: Data | None,
    rule: Inference | None = None,
    *,
    learns: bool = True,
) -> Planned:
    """What runs, on the accelerator or on its host: from here on there. Where it may take long, with what would be quicker.

    Where nothing is learned that is looked for only if there is no memory: it takes longer than many a matrix.
    """
    found = _planned(gp, inputs, structure, approximate, data, rule)
    if not (found.plan.may_be_slow if learns else not fits(found.plan.chosen)):
        return found
    remedies = remedies_for(found.plan, gp, inputs, structure, data, rule)
    return found._replace(plan=dataclasses.replace(found.plan, remedies=remedies))


def remedies_for(
    slow: Plan, gp: Any, inputs: Inputs, structure: str, data: Data | None, rule: Inference | None
) -> tuple[Remedy, ...]:
    """What would be accepted for the same model and data, fits into memory and learns in half the time, the quickest first.

    In words that every door takes: estimators know of no `approximate`.
    """
    seconds = lambda plan: reference().seconds(plan.learning())
    found = []
    for name in REMEDIES if structure == "auto" else ("auto", *REMEDIES):
        approximation = asked_for(None, name)[1]
        if approximation is not None and approximation.needless(inputs):
            continue
        try:
            other = _planned_here(gp, inputs, name, None, data, rule).plan
        except ValueError:  # it says No itself
            continue
        if fits(other.chosen) and (seconds(other) < seconds(slow) / 2 or not fits(slow.chosen)):
            found.append(Remedy(f"structure={name!r}", other))
    return tuple(sorted(found, key=lambda remedy: seconds(remedy.plan)))


def _planned(gp: Any, inputs: Inputs, structure: str, approximate: Any, data: Data | None, rule: Inference | None) -> Planned:
    found = _planned_here(gp, inputs, structure, approximate, data, rule)
    if not where.accelerated() or where.backend() == "cpu":
        return found
    with where.on_host():
        there = _planned_here(gp, inputs, structure, approximate, data, rule)
        seconds = there.plan.seconds(at_hand())  # loops, which decide it, are not equally fast in all versions of JAX
    if seconds >= found.plan.seconds(reference()):
        return found
    where.move(where.on_host)
    return there._replace(plan=dataclasses.replace(there.plan, on_host=True))


def _planned_here(
    gp: Any, inputs: Inputs, structure: str, approximate: Any, data: Data | None, rule: Inference | None
) -> Planned:
    """Rows that are the cells of a grid are one where that helps and costs no exactness."""
    name = None if rule is None else rule.name
    structure, approximation = asked_for(approximate, structure)
    if approximation is not None:
        approximation.check(gp, structure)
        if not approximation.needless(inputs):
            inputs, data = approximation.rows(gp, inputs, data)
            gp = approximation.applied(gp, inputs, data)
        along = _along_time(gp, inputs) if approximation.structure in ALONG_TIME else None
        inputs = inputs if along is None else along
        return Planned(gp, inputs, data, plan(gp, inputs, structure, approximation, data, name), rule)
    grid, along = _as_grid(gp, inputs), None if _is_product(gp, inputs, data) else _along_time(gp, inputs)
    if along is not None and (structure in ("auto", "markov") or (structure == "toeplitz" and grid is None)):
        in_time = plan(gp, along, structure, None, data, name)
        others = grid or (inputs if isinstance(inputs, Grid) else None)
        if in_time.engine.structure in ALONG_TIME and (others is None or _before(in_time, gp, others, data)):
            return Planned(gp, along, data, in_time, rule)
    if grid is not None:
        on_grid = plan(gp, grid, structure, None, data, name)
        wanted = structure != "auto" or on_grid.chosen.quality == "exact" or len(grid) > MOST_ROWS
        if wanted and on_grid.engine.structure != "dense":
            return Planned(gp, grid, data, on_grid, rule)
    return Planned(gp, inputs, data, plan(gp, inputs, structure, None, data, name), rule)


def _before(in_time: Plan, gp: Any, others: Inputs, data: Data | None) -> bool:
    """Whether what was chosen along time goes before what there is for the cells of a grid."""
    try:
        return in_time.before(plan(gp, others, data=data))
    except ValueError:  # gaps leave nothing there
        return True


def _as_grid(gp: Any, inputs: Inputs) -> Grid | None:
    """The grid that a table of many rows is, if the kernel factors over its columns."""
    if not isinstance(inputs, Points) or len(inputs) <= FEW_ROWS or gp.likelihood.latents > 1:
        return None
    if len(all_factors(gp.kernel, inputs.dimension)) == 1:
        return None
    return grid_of(np.asarray(inputs.X), inputs.clocks, from_rows=True)


def _is_product(gp: Any, inputs: Inputs, data: Data | None) -> bool:
    """Whether the covariance is a product of factors over the axes of a grid, of which every cell was seen."""
    full = isinstance(inputs, Grid) and inputs.complete and (data is None or bool(np.all(data.seen)))
    return full and len(all_factors(gp.kernel, inputs.dimension)) > 1


def _along_time(gp: Any, inputs: Inputs) -> Times | None:
    """Rows of a time and the number of an output, if that is what the kernel sees in them."""
    found = outputs_of(gp.kernel)
    if found is None or inputs.dimension != 2 or found.among(2) != 1 or gp.likelihood.latents > 1:
        return None
    if isinstance(inputs, Times):
        return inputs
    clocks = clocks_of(inputs) if any(clocks_of(inputs)) else ()
    return as_times_of_outputs(np.asarray(inputs.points), clocks)
