"""Optimisation of a function from start to end."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .._types import whole
from ..inputs.layouts import Grid
from ..learn.account import Progress
from .answers import as_number
from .cells import Cells
from .optimise import Account, Evaluation, Optimiser
from .rules import Rule

OF_CELLS = ("acquisition", "model", "seed")


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
    progress: bool | Callable[[int, float], None] | None = None,
    **options: Any,
) -> Optimum:
    """The least value of a function that is expensive to evaluate, after so many evaluations or when a rule says `stop`.

    f takes a point as `Optimiser.ask` gives it, and returns a number, or a number and a dictionary of outcomes with limits.
    A run that breaks (an ArithmeticError, a ValueError, or NaN) is a failed one, and is learned from; Ctrl-C keeps the best so
    far. `progress` shows a line, by default on a terminal only. `options` are those of `Optimiser`; over the cells of a `Grid`
    they are `acquisition` ("ucb" or "ei"), `model` and `seed`.
    """
    return _run(f, space, evaluations, stop, (callback, progress), False, options)


def maximise(
    f: Callable[[Any], Any],
    space: Any,
    evaluations: int = 60,
    *,
    stop: Sequence[Rule] | Rule = (),
    callback: Callable[[Optimiser], None] | None = None,
    progress: bool | Callable[[int, float], None] | None = None,
    **options: Any,
) -> Optimum:
    """The largest value of a function that is expensive to evaluate; otherwise as `minimise`."""
    return _run(f, space, evaluations, stop, (callback, progress), True, options)


def _run(f: Any, space: Any, evaluations: int, stop: Any, told: Any, upwards: bool, options: dict[str, Any]) -> Optimum:
    if options.pop("maximise", upwards) != upwards:
        raise ValueError("minimise looks for small values, maximise for large ones: call the one that is meant")
    count, rules, reason = whole(evaluations, "evaluations", 1), _rules(stop), ""
    callback, progress = told
    measure = _Measure(f)
    if isinstance(space, Grid):
        opt, runs = _over_cells(measure, space, count, upwards, options)
    else:
        opt = Optimiser(space, maximise=upwards, evaluations=count, **options)
        runs = _over_space(measure, opt, count)
    words = "maximising" if upwards else "minimising", "the best is"
    with Progress(progress, count, words=words) as report:
        try:
            for _ in runs:
                report(float(opt.trace[-1]))
                if callback is not None:
                    callback(opt)
                reason = next((said for rule in rules if (said := rule.reason(opt))), "")
                if reason:
                    break
        except KeyboardInterrupt:
            if opt.best is None:
                raise
            reason = "it was interrupted"
    best, made = opt.best, len(opt.history)
    if best is None or best.value is None:
        failed = sum(run.failed for run in opt.history)
        last = f", the last with {measure.problem}" if measure.problem else ""
        raise ValueError(
            f"none of {made} runs gave a value that meets the limits ({failed} failed{last}): check the function at one "
            "point, or loosen the limits"
        )
    opt.account = dataclasses.replace(opt.account, rows=made, stopped=reason or f"{made} evaluations were made")
    return Optimum(best.point, best.value, opt.history, opt.account, opt)


def _rules(stop: Any) -> list[Rule]:
    rules = list(stop) if isinstance(stop, (list, tuple)) else [stop]
    for rule in rules:
        if not hasattr(rule, "reason"):
            raise TypeError(f"stop must be Target(...), NoGain(...), SmallEI(...) or a list of them, got {stop!r}")
    return rules


def _over_space(measure: _Measure, opt: Optimiser, count: int) -> Any:
    """Ask, measure and tell, one after the other."""
    opt.compile_early()
    for _ in range(count):
        x = opt.ask()
        value, outcomes = measure(x)
        if math.isfinite(value):
            opt.tell(x, value, **outcomes)
        else:
            opt.tell(x, failed=True)
        yield x


def _over_cells(measure: _Measure, grid: Grid, count: int, upwards: bool, options: dict[str, Any]) -> tuple[Optimiser, Any]:
    """The same over the cells of a grid, each of which is measured once at most; the optimiser has the history."""
    strange = [name for name in options if name not in OF_CELLS]
    if strange:
        raise TypeError(f"over the cells of a grid the options are {', '.join(OF_CELLS)}, not {', '.join(strange)}")
    cells, sign = Cells(grid, **options), -1.0 if upwards else 1.0
    ranges = [(float(axis[0]), float(axis[-1]) if len(axis) > 1 else float(axis[0]) + 1.0) for axis in grid.axes]
    opt = Optimiser(ranges, maximise=upwards, evaluations=count, seed=options.get("seed", 0))

    def runs() -> Any:
        for _ in range(min(count, len(cells.places))):
            cell = cells.ask()
            value, _ = measure(cells.places[cell])
            cells.tell(cell, sign * value)
            opt.history = (*opt.history, Evaluation(cells.places[cell], value if math.isfinite(value) else None))
            opt.account = dataclasses.replace(opt.account, expected_gain=cells.expected_gain)
            yield cell

    return opt, runs()


class _Measure:
    """A function as its user wrote it: its value, NaN where it broke, and what else it measured."""

    def __init__(self, f: Any) -> None:
        if not callable(f):
            raise TypeError(f"a function of a point is needed, got {f!r}")
        self._f = f
        self.problem = ""  # how it broke last

    def __call__(self, x: Any) -> tuple[float, Mapping[str, Any]]:
        try:
            answer = self._f(x)
        except (ArithmeticError, ValueError) as problem:
            self.problem = f"{type(problem).__name__}: {problem}"
            return math.nan, {}
        pair = isinstance(answer, tuple) and len(answer) == 2 and isinstance(answer[1], Mapping)
        value, outcomes = answer if pair else (answer, {})
        number = as_number(value)
        if not math.isfinite(number):
            self.problem = f"a value of {number:g}"
        return number if math.isfinite(number) else math.nan, outcomes
