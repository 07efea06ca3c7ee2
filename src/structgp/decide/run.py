"""Optimisation of a function from start to end."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .._types import whole
from ..inputs.layouts import Grid
from .cells import Cells
from .optimise import Account, Evaluation, Optimiser
from .rules import Rule


@dataclasses.dataclass(frozen=True)
class Optimum:
    """What an optimisation has found: the best point and its value, all runs, and how it ended."""

    x: Any
    value: float
    history: tuple[Evaluation, ...]
    account: Account
    optimiser: Optimiser = dataclasses.field(repr=False)


def minimise(
    f: Callable[[Any], Any],
    space: Any,
    evaluations: int = 60,
    *,
    stop: Sequence[Rule] | Rule = (),
    callback: Callable[[Optimiser], None] | None = None,
    **options: Any,
) -> Optimum:
    """The least value of a function that is expensive to evaluate, after so many evaluations or when a rule says `stop`.

    f takes a point as `Optimiser.ask` gives it, and returns a number, or a number and a dictionary of outcomes with limits.
    A run that breaks (an ArithmeticError, a ValueError, or NaN) is a failed one, and is learned from. `options` are those of
    `Optimiser`; over the cells of a `Grid` they are `acquisition` ("ucb" or "ei"), `model` and `seed`.
    """
    return _run(f, space, evaluations, stop, callback, False, options)


def maximise(
    f: Callable[[Any], Any],
    space: Any,
    evaluations: int = 60,
    *,
    stop: Sequence[Rule] | Rule = (),
    callback: Callable[[Optimiser], None] | None = None,
    **options: Any,
) -> Optimum:
    """The largest value of a function that is expensive to evaluate; otherwise as `minimise`."""
    return _run(f, space, evaluations, stop, callback, True, options)


def _run(f: Any, space: Any, evaluations: int, stop: Any, callback: Any, upwards: bool, options: dict[str, Any]) -> Optimum:
    if options.pop("maximise", upwards) != upwards:
        raise ValueError("minimise looks for small values, maximise for large ones: call the one that is meant")
    count, rules, reason = whole(evaluations, "evaluations", 1), list(stop) if isinstance(stop, Sequence) else [stop], ""
    if isinstance(space, Grid):
        opt, runs = _over_cells(f, space, count, upwards, **options)
    else:
        opt = Optimiser(space, maximise=upwards, evaluations=count, **options)
        runs = _over_space(f, opt, count)
    for _ in runs:
        if callback is not None:
            callback(opt)
        reason = next((said for rule in rules if (said := rule.reason(opt))), "")
        if reason:
            break
    best, made = opt.best, len(opt.history)
    if best is None or best.value is None:
        failed = sum(run.failed for run in opt.history)
        raise ValueError(
            f"none of {made} runs gave a value that meets the limits ({failed} failed): check the function at one "
            "point, or loosen the limits"
        )
    opt.account = dataclasses.replace(opt.account, rows=made, stopped=reason or f"{made} evaluations were made")
    return Optimum(best.point, best.value, opt.history, opt.account, opt)


def _over_space(f: Any, opt: Optimiser, count: int) -> Any:
    """Ask, measure and tell, one after the other."""
    opt.compile_early()
    for _ in range(count):
        x = opt.ask()
        value, outcomes = _measured(f, x)
        if math.isfinite(value):
            opt.tell(x, value, **outcomes)
        else:
            opt.tell(x, failed=True)
        yield x


def _over_cells(f: Any, grid: Grid, count: int, upwards: bool, **options: Any) -> tuple[Optimiser, Any]:
    """The same over the cells of a grid, each of which is measured once at most; the optimiser has the history."""
    cells, sign = Cells(grid, **options), -1.0 if upwards else 1.0
    ranges = [(float(axis[0]), float(axis[-1]) if len(axis) > 1 else float(axis[0]) + 1.0) for axis in grid.axes]
    opt = Optimiser(ranges, maximise=upwards, evaluations=count, seed=options.get("seed", 0))

    def runs() -> Any:
        for _ in range(min(count, len(cells.places))):
            cell = cells.ask()
            value, _ = _measured(f, cells.places[cell])
            cells.tell(cell, sign * value)
            opt.history = (*opt.history, Evaluation(cells.places[cell], value if math.isfinite(value) else None))
            opt.account = dataclasses.replace(opt.account, expected_gain=cells.expected_gain)
            yield cell

    return opt, runs()


def _measured(f: Any, x: Any) -> tuple[float, dict[str, Any]]:
    """The value of f, NaN where it broke, and what else it measured."""
    try:
        answer = f(x)
        value, outcomes = answer if isinstance(answer, tuple) else (answer, {})
        value = float(np.asarray(value).reshape(()))
    except (ArithmeticError, ValueError):
        return math.nan, {}
    return value if math.isfinite(value) else math.nan, outcomes
