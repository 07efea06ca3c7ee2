"""Optimisation of a function from start to end."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .._types import whole
from ..inputs.layouts import Grid
from .cells import over_cells
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
    `Optimiser`.
    """
    if options.pop("maximise", False):
        raise ValueError("minimise looks for small values: call maximise for large ones")
    if isinstance(space, Grid):
        return _on_grid(f, space, evaluations, False, **options)
    return _run(f, Optimiser(space, **options), evaluations, stop, callback)


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
    options.pop("maximise", None)
    if isinstance(space, Grid):
        return _on_grid(f, space, evaluations, True, **options)
    return _run(f, Optimiser(space, maximise=True, **options), evaluations, stop, callback)


def _run(f: Any, opt: Optimiser, evaluations: int, stop: Any, callback: Any) -> Optimum:
    rules = list(stop) if isinstance(stop, Sequence) else [stop]
    evaluations, reason = whole(evaluations, "evaluations", 1), ""
    opt.__dict__["_most"] = evaluations
    for _ in range(evaluations):
        x = opt.ask()
        try:
            answer = f(x)
            value, outcomes = answer if isinstance(answer, tuple) else (answer, {})
            value = float(np.asarray(value).reshape(()))
        except (ArithmeticError, ValueError):
            value, outcomes = math.nan, {}
        if math.isfinite(value):
            opt.tell(x, value, **outcomes)
        else:
            opt.tell(x, failed=True)
        if callback is not None:
            callback(opt)
        reasons = (rule.reason(opt) for rule in rules)
        reason = next((said for said in reasons if said), "")
        if reason:
            break
    account = dataclasses.replace(opt.account, stopped=reason or f"{evaluations} evaluations were made")
    opt.__dict__["_account"] = account
    best = opt.best
    if best is None or best.value is None:
        failed = sum(run.failed for run in opt.history)
        raise ValueError(
            f"none of {len(opt.history)} runs gave a value that meets the limits ({failed} failed): check the function at one "
            "point, or loosen the limits"
        )
    return Optimum(best.point, best.value, opt.history, account, opt)


def _on_grid(
    f: Any, grid: Grid, evaluations: int, maximise: bool, acquisition: str = "ucb", model: Any = None, seed: int = 0
) -> Optimum:
    """The same over the cells of a grid, each of which is measured once at most."""
    sign = -1.0 if maximise else 1.0
    seen = over_cells(
        lambda x: sign * float(f(x)), grid, whole(evaluations, "evaluations", 1), acquisition, model, whole(seed, "seed")
    )
    opt = Optimiser([(float(axis[0]), float(axis[-1])) for axis in grid.axes if len(axis) > 1], maximise=maximise, seed=seed)
    runs = tuple(Evaluation(x, sign * y if math.isfinite(y) else None) for x, y in seen)
    done = [run for run in runs if not run.failed]
    if not done:
        raise ValueError(f"none of {len(runs)} runs gave a value: check the function at one cell")
    best = min(done, key=lambda run: sign * float(run.value))  # type: ignore[arg-type]
    account = Account(rows=len(runs), stopped=f"{len(runs)} evaluations were made")
    return Optimum(best.point, float(best.value), runs, account, opt)  # type: ignore[arg-type]
