"""What a report shows of an optimisation: the trace of the best, slices through the best point, and what may be gained."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...decide.optimise import Optimiser, Suggestion
from ...decide.space import Category
from .figures import COLOURS, Figure, Trace

PLACES = 41  # along a slice
MOST = 12  # slices


def trace_figure(optimiser: Optimiser, target: str) -> list[Figure]:
    """All runs in their order, and the best so far."""
    values = np.array([np.nan if run.value is None else run.value for run in optimiser.history])
    if not np.isfinite(values).any():
        return []
    number = np.arange(1.0, len(values) + 1)
    good = np.array([optimiser._is_good(run) for run in optimiser.history])
    beyond = np.isfinite(values) & ~good
    best = np.isfinite(optimiser.trace)
    steps = np.repeat(number[best], 2)[1:], np.repeat(optimiser.trace[best], 2)[:-1]
    traces = [Trace("points", number[good], values[good], "runs"), Trace("line", *steps, "best so far")]
    if beyond.any():
        traces.append(Trace("points", number[beyond], values[beyond], "runs beyond a limit", colour=COLOURS["guide"]))
    return [Figure("Runs and the best so far", "run", target, tuple(traces))]


def slice_figures(optimiser: Optimiser, target: str) -> list[Figure]:
    """What is believed along each variable through the best point."""
    best = optimiser.best
    if best is None or sum(not run.failed for run in optimiser.history) < 2:
        return []
    found, here = [], optimiser.space.place(best.point)
    for d, variable in enumerate(optimiser.space.variables[:MOST]):
        count = min(variable.count, PLACES) if variable.count else PLACES
        places = np.tile(here, (count, 1))
        places[:, d] = (np.arange(count) + 0.5) / count if variable.count else np.linspace(0, 1, count)
        points = [optimiser.space.point(place) for place in places]
        mean, sd = np.array([optimiser.predict(point) for point in points]).T
        values = [optimiser.space.point(place)[variable.name] for place in places]
        title = f"Along {variable.name}, through the best point"
        if isinstance(variable, Category):
            each = np.arange(float(count))
            ranges = Trace(
                "ranges", each, mean, "mean, within two standard deviations", values=2 * sd, labels=tuple(map(str, values))
            )
            found.append(Figure(title, variable.name, target, (ranges,)))
            continue
        x = np.array(values, dtype=float)
        at = np.array([float(best.point[variable.name])])
        traces = (
            Trace("band", x, mean - 2 * sd, "within two standard deviations", mean + 2 * sd),
            Trace("line", x, mean, "mean"),
            Trace("points", at, np.array([best.value]), "best"),
        )
        found.append(Figure(title, variable.name, target, traces, factors=getattr(variable, "logarithmic", False)))
    return found


def suggestion_rows(optimiser: Optimiser, found: Sequence[Suggestion]) -> list[list[str]]:
    """The table of suggestions, its header first."""
    unsure = any(one.feasible is not None for one in found)
    usable = [f"{feasible_in_words(optimiser)} with probability"] if unsure else []
    rows = [[*optimiser.space.names, "expected", "± sd", "better with probability", *usable, "expected gain"]]
    shown = lambda value: "" if value is None else f"{value:.4g}"
    for one in found:
        rows.append(
            [_text(one.point[name]) for name in optimiser.space.names]
            + [shown(v) for v in (one.mean, one.sd, one.probability, *([one.feasible] if unsure else []), one.expected_gain)]
        )
    return rows


def run_rows(optimiser: Optimiser, target: str, most: int = 10) -> list[list[str]]:
    """The best runs, the best first."""
    good = [run for run in optimiser.history if optimiser._is_good(run)]
    good = sorted(good, key=lambda run: optimiser._signed(run.value))[:most]
    return [[*optimiser.space.names, target]] + [
        [_text(run.point[name]) for name in optimiser.space.names] + [f"{run.value:.6g}"] for run in good
    ]


def feasible_in_words(optimiser: Optimiser) -> str:
    """What a run does that can be used."""
    return "meets its limits and does not fail" if optimiser.outcome_constraints else "does not fail"


def headline(optimiser: Optimiser, target: str, found: Sequence[Suggestion]) -> str:
    """How far it is, in sentences."""
    best = optimiser.best
    if best is None:
        return f"{len(optimiser.history)} runs, and none of them gave a value of {target} that meets all limits yet."
    where = ", ".join(f"{name} = {_text(value)}" for name, value in best.point.items())
    gain = found[0].expected_gain if found else None
    over = "it" if optimiser.noise == 0 else "the best that is believed of any run"  # of noisy values the best one was lucky
    more = "" if gain is None else f" The next run is expected to gain {gain:.3g} over {over}."
    return f"The best of {len(optimiser.history)} runs has {target} = {best.value:.6g}, at {where}.{more}"


def _text(value: Any) -> str:
    return f"{value:.5g}" if isinstance(value, float) else str(value)
