"""What to fit when nothing is said: the task from the target, candidates from the shape of the data, a choice among them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...engines.approximation import of_structure
from ...kernels.algebra import Kernel
from ...learn.clock import Deadline
from ...learn.peak import choose
from ...models.candidates import Candidate
from ..model import TABLES, Map, TableModel, of_shape, on_map, usual_horizon
from ..reading import Layout, Table, as_table
from .candidates import as_shape, candidates_for, is_averaged
from .compare import Say, compare, quiet
from .noise import noise_asked
from .problem import Problem, assumed, calendar_of, layout_of, shape_of, targets, task_of

if TYPE_CHECKING:
    import polars as pl

ENDING = 400  # places of a series that are kept, to see how it goes on


class Prepared(NamedTuple):
    """A table that is ready to be learned from: what it holds, what there is to learn, and what could learn it."""

    layout: Layout
    problem: Problem
    center: np.ndarray
    scale: np.ndarray
    candidates: list[Candidate]
    rows: np.ndarray  # of the table that have a target and all inputs
    skipped: int  # rows that do not


def prepare(
    data: pl.DataFrame | Table,
    target: str,
    *,
    task: str = "auto",
    time_column: str | None = None,
    kernel: Callable[[list[str]], Kernel | Mapping[str, Kernel]] | None = None,
    structure: str = "auto",
    budget: float = 120.0,
    seed: int = 0,
) -> Prepared:
    """Read a table and see what could be fitted; `kernel` makes one, or several by name, from the names of the inputs."""
    frame = as_table(data).frame
    task = task_of(frame[target], task)
    layout = layout_of(as_table(data), target, time_column)
    y, classes = targets(frame[target], task)
    X = layout.numbers(frame)
    used = np.isfinite(X).all(axis=1) & ~np.isnan(y)
    if used.sum() < 3:
        raise ValueError(f"only {int(used.sum())} rows have a target and all inputs: at least 3 are needed")
    shape = shape_of(X[used], layout, time_column is not None)
    plain = kernel is not None or shape not in TABLES
    calendar = calendar_of(layout) if shape == "series" else {}
    places = on_map(layout.names) if shape == "places" else None
    center, scale = (np.zeros(X.shape[1]), np.ones(X.shape[1])) if plain else _units(X[used], places)
    problem = Problem((X[used] - center) / scale, y[used], task, shape, classes, seed, calendar, places)
    candidates = candidates_for(problem, None if kernel is None else kernel(layout.names), structure, budget)
    return Prepared(layout, problem, center, scale, candidates, np.flatnonzero(used), int(len(used) - used.sum()))


def plan_table(
    data: pl.DataFrame | Table, target: str, *, likelihood: str = "auto", parameters: Any = "auto", **options: Any
) -> tuple[Prepared, list[Candidate]]:
    """A table that is ready to be learned from, and what would be tried; `options` are those of `fit_table`."""
    choose(parameters, 1, 1)  # a wrong word is met before the table is looked at
    ready = prepare(data, target, **options)
    problem, tried = ready.problem, list(ready.candidates)
    kind = noise_asked(likelihood, problem.task)
    if kind:
        spread = float(np.std(problem.y)) or 1.0
        others = [one.robust(one.start, kind, spread) for one in tried if one.robust is not None]
        tried += [one for one in others if one is not None]
    exact, approximate = of_structure(options.get("structure", "auto"))

    def with_plan(one: Candidate) -> Candidate:
        """The same with what averaging over its parameters takes."""
        if one.start is None:
            return one
        averages = one.rows is None and is_averaged(one.start, problem.shape)
        inputs = as_shape(problem.X[: one.rows], problem.shape)
        how: dict[str, Any] = {"approximate": approximate, "parameters": parameters if averages else "best"}
        return one._replace(plan=one.start.plan(inputs, exact, **how))

    return ready, [with_plan(one) for one in tried]


def fit_table(
    data: pl.DataFrame | Table,
    target: str,
    *,
    budget: float = 120.0,
    horizon: int | None = None,
    say: Say = quiet,
    parameters: Any = "auto",
    likelihood: str = "auto",
    **options: Any,
) -> TableModel:
    """The best model of a target that is found within a budget of seconds; `say` hears what is done meanwhile.

    `horizon` is how many steps of a series are forecast, by default about a tenth of those that were seen; 0 is the default
    where only a series will do. `parameters` are those of `GP.fit`: averaged over where few rows leave them unsure.
    `likelihood` is one of LIKELIHOODS: how numbers scatter, decided by what plain noise leaves unless it is named.
    """
    deadline = Deadline.after(budget)
    noise_asked(likelihood)  # a wrong word is met before the table is looked at
    choose(parameters, 1, 1)
    ready = prepare(data, target, budget=budget, **options)
    problem = ready.problem
    guessed = options.get("task", "auto") == "auto"
    about = assumed(as_table(data).frame[target], problem.task) if guessed else ()
    if horizon is not None and problem.shape != "series":
        raise ValueError(
            f"a horizon needs a series, but the inputs {of_shape(problem.shape)}: name the column of the time by --time"
        )
    fitted, trials, evaluation, notes, rows = compare(problem, ready.candidates, deadline, say, parameters, likelihood)
    places = np.unique(problem.X[rows, 0]) if problem.shape == "series" else np.zeros(0)
    if ready.skipped:
        many = "1 row" if ready.skipped == 1 else f"{ready.skipped} rows"
        was = "was" if ready.skipped == 1 else "were"
        notes = (*notes, f"{many} without a target or a date {was} not learned from")
    return TableModel(
        fitted,
        ready.layout,
        problem.task,
        target,
        ready.center,
        ready.scale,
        len(problem.y),
        problem.shape,
        problem.classes,
        trials,
        evaluation,
        (*as_table(data).notes, *about, *notes),
        horizon or (usual_horizon(places) if len(places) else 0),
        ready.rows[rows],
        tuple(places[-ENDING:].tolist()),
    )


def _units(X: np.ndarray, places: Map | None) -> tuple[np.ndarray, np.ndarray]:
    """The middle and the spread of each column; on a map one length is the unit of both coordinates."""
    spread = X.std(axis=0)
    center, scale = X.mean(axis=0), np.where(spread > 0, spread, 1.0)
    if places is not None:
        east, north, _ = places
        stretch = places.stretch(center[north])
        unit = float(np.sqrt(scale[east] / stretch * scale[north]))
        scale[[east, north]] = stretch * unit, unit
    return center, scale
