"""What there is to learn in a table: the task from the target, the shape from the inputs, seasons from the values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.signal import lombscargle

from ...inputs.reading import few
from ..model import TASKS, Map, on_map
from ..reading import CALENDAR, MOST_LEVELS, SECONDS, Layout, Table, as_floats, as_text, kind_of

if TYPE_CHECKING:
    import polars as pl

MOST_CODES = 10  # different whole numbers that may be codes of labels
TYPICAL_COUNT = 30.0  # whole numbers with a smaller median than this are taken for counts
MOST_WAVES = 4000  # rows up to which every frequency is fitted to the rows as they are
OBLONG = 20.0  # times as long as wide a map is, at most
STEADY = 0.8  # part of the steps that are alike where rows are taken for a series
FEW_CYCLES = 2  # that a season of the calendar must go through
RESOLVED = 0.5  # cycles in the whole series by which two periods must differ to be told apart
OVERTONES = 3  # waves that a season is made of, as far as it is taken away before a second is looked for
LEAST_CYCLES = 4.0  # that a season which no calendar knows must go through
STANDS_OUT = 10.0  # times the power around it that a wave must have to be one of a season: noise alone has it once in 1000
SEASON = 0.25  # part of the variance, less the trend, that a wave must explain to be called a season


class Problem(NamedTuple):
    """What there is to learn: inputs in the units of the model, targets as numbers, and what is known of their shape."""

    X: np.ndarray
    y: np.ndarray
    task: str
    shape: str
    classes: tuple[str, ...]
    seed: int
    calendar: Mapping[str, float] = {}  # the day, the week and the year in the units of the dates, if there are any
    map: Map | None = None  # the columns of the coordinates, where rows are places


def task_of(target: pl.Series, task: str = "auto") -> str:
    """Regression, classification or counts, from the values of the target."""
    if task not in ("auto", *TASKS):
        raise ValueError(f"task must be auto or one of {', '.join(TASKS)}, got {task!r}")
    if target.is_null().all():
        raise ValueError(f"the target {target.name!r} has no value at all: choose another column")
    kind = kind_of(target)
    if kind == "date":
        raise ValueError(f"the target {target.name!r} holds dates: a number, a count or a label is needed")
    if kind == "category":
        return _task_of_text(target, task)
    values = as_floats(target)
    seen = values[~np.isnan(values)]
    whole = bool((seen == np.round(seen)).all())
    if task == "counts" and (not whole or seen.min() < 0):
        raise ValueError(
            f"the target {target.name!r} holds {seen.min():g} … {seen.max():g}: counts are whole numbers from 0 on"
        )
    if task == "classification" and (count := len(np.unique(seen))) > MOST_LEVELS:
        raise ValueError(
            f"the target {target.name!r} holds {count} different numbers ({seen.min():g} … {seen.max():g}): "
            f"a label with at most {MOST_LEVELS} values is needed, or task regression"
        )
    if task != "auto":
        return task
    if whole and len(np.unique(seen)) == 2:
        return "classification"
    return "counts" if whole and seen.min() >= 0 and np.median(seen) < TYPICAL_COUNT else "regression"


def assumed(target: pl.Series, task: str) -> tuple[str, ...]:
    """What was assumed of the target, where it could have been meant otherwise: few whole numbers may be codes of labels."""
    if task != "counts" or not 2 <= (count := target.drop_nulls().n_unique()) <= MOST_CODES:
        return ()
    codes = f"{target.name!r} holds {count} different whole numbers, which are taken for counts"
    return (f"{codes}: --task classification takes them for labels",)


def _task_of_text(target: pl.Series, task: str) -> str:
    levels = sorted({value for value in as_text(target) if value is not None})
    if task in ("regression", "counts"):
        raise ValueError(
            f"the target {target.name!r} holds text ({few(levels, 3)}): {task} needs numbers, or task classification"
        )
    if len(levels) > MOST_LEVELS:
        raise ValueError(
            f"the target {target.name!r} holds text with {len(levels)} different values ({few(levels, 3)}): "
            f"a number, or a label with at most {MOST_LEVELS} values, is needed"
        )
    return "classification"


def targets(series: pl.Series, task: str) -> tuple[np.ndarray, tuple[str, ...]]:
    """The target as numbers, NaN where there is none, and the names of classes."""
    if task != "classification":
        return as_floats(series), ()
    text = as_text(series)
    classes = tuple(map(str, series.drop_nulls().unique().sort().to_list()))  # numbers in their own order
    if len(classes) < 2:
        raise ValueError(f"the target {series.name!r} is {classes[0]!r} everywhere: two labels at least are needed")
    code = {name: float(c) for c, name in enumerate(classes)}
    return np.array([np.nan if value is None else code[value] for value in text]), classes


def layout_of(table: Table, target: str, time_column: str | None) -> Layout:
    """All columns but the target as inputs, or the time alone."""
    chosen = table.frame if time_column is None else table.frame.select(time_column)
    return Layout.of(chosen, leave_out=(target,), how=table.how)


def shape_of(X: np.ndarray, layout: Layout, timed: bool = False) -> str:
    """Whether rows are a series in time, places along a curve or on a map, cells of a grid, or a table without a layout.

    One column is time when the user says so, when it holds dates, or when the rows stand in its order at even steps; times of
    day that come again are not. Places on a map have a longitude and a latitude, or an x and a y as far across, by their names
    and by what they hold.
    """
    if X.shape[1] == 1:
        if layout.used[0].is_clock and not timed and len(np.unique(X)) < len(X):
            return "curve"
        return "series" if timed or layout.used[0].kind == "date" or _steady(np.diff(X[:, 0])) else "curve"
    if _is_grid(X, layout):
        return "grid"
    found = on_map(layout.names)
    if found is None:
        return "table"
    east, north = X[:, found.east], X[:, found.north]
    if found.degrees:
        right = east.min() >= -180 and east.max() <= 360 and np.abs(north).max() <= 90
    else:
        right = max(np.ptp(east), np.ptp(north)) <= OBLONG * min(np.ptp(east), np.ptp(north))
    return "places" if right else "table"


def _is_grid(X: np.ndarray, layout: Layout) -> bool:
    if X.shape[1] > 3 or any(column.kind == "category" for column in layout.used) or len(X) < 25:
        return False
    sizes = [len(np.unique(column)) for column in X.T]
    full = min(sizes) >= 3 and np.prod(sizes, dtype=float) <= 1.5 * len(X)
    return bool(full and len(np.unique(X, axis=0)) == len(X))


def _steady(steps: np.ndarray) -> bool:
    """Whether rows go forward, nearly always by the same step."""
    return bool((steps > 0).all()) and float(np.mean(np.isclose(steps, np.median(steps), rtol=0.05))) > STEADY


def calendar_of(layout: Layout) -> dict[str, float]:
    """The day, the week and the year in the units of a column of dates, or of years with fractions."""
    column = layout.used[0]
    return {name: length / SECONDS[column.unit] for name, length in CALENDAR.items()} if column.unit else {}


def seasons_of(t: np.ndarray, y: np.ndarray, calendar: Mapping[str, float] | None = None) -> dict[str, float]:
    """The periods, by name, of the strongest wave and of one of the calendar that is strong in what the first leaves."""
    order = np.argsort(t)
    t, y = t[order], y[order]
    if len(t) < 30 or np.ptp(t) == 0:
        return {}
    step, span = np.median(np.diff(t)), np.ptp(t)
    known = {name: period for name, period in (calendar or {}).items() if 3 * step <= period <= span / FEW_CYCLES}
    first = _season(t, y, list(known.values()))
    if first is None:
        return {}
    rest = y - _waves(t, y, first, OVERTONES)
    second = next((period for period in known.values() if period != first and _power(t, rest, period) > SEASON), None)
    called = {period: name for name, period in known.items()}
    return {called.get(period, f"{period:.4g}"): period for period in (first, second) if period is not None}


class Naive(NamedTuple):
    """A forecast that takes no model: what it is called, its values, and how far it was off within the series."""

    name: str
    values: np.ndarray
    errors: np.ndarray


def naive_forecast(t0: np.ndarray, y0: np.ndarray, t: np.ndarray, calendar: Mapping[str, float]) -> Naive:
    """The value of one season before, between the rows nearest to that time; the last value where there is no season."""
    order = np.argsort(t0)
    t0, y0 = t0[order], y0[order]
    seasons = seasons_of(t0, y0, calendar)
    if not seasons:
        ahead = min(max(len(t) // 2, 1), len(y0) - 1)  # rows, as far as is forecast on average
        return Naive("the last value", np.full(len(t), y0[-1]), y0[ahead:] - y0[:-ahead])
    name, period = max(seasons.items(), key=lambda season: season[1])
    back = np.ceil(np.maximum(t - t0[-1], 1e-9 * period) / period - 1e-9) * period
    before = lambda at: np.interp(at, t0, y0)
    called = name if name in calendar else f"a season of {name}"
    return Naive(f"the value {called} before", before(t - back), (y0 - before(t0 - period))[t0 - period >= t0[0]])


def _season(t: np.ndarray, y: np.ndarray, known: list[float]) -> float | None:
    """The period of the strongest wave that is gone through at least four times, or of a season of which that is an overtone; a
    period of the calendar needs but two."""
    span = float(np.ptp(t))
    rest = y - np.polynomial.Legendre.fit(t, y, 5)(t)
    if not np.std(rest) > 1e-9 * np.std(y):
        return None
    power = lambda cycles: lombscargle(t, rest, 2 * np.pi * cycles / span, normalize=True)
    fine = _strongest(t, rest, power) + np.linspace(-0.2, 0.2, 41)
    found = power(fine)
    cycles = float(fine[np.argmax(found)])
    if float(np.max(found)) > SEASON:
        of_calendar = lambda wave: next((period for period in known if abs(span / period - wave) < RESOLVED), None)
        lower = cycles / _overtone(t, rest, span, cycles)
        return of_calendar(lower) or of_calendar(cycles) or span / lower  # a day is no overtone of what no calendar knows
    return next((period for period in known if _power(t, y, period) > SEASON), None)


def _overtone(t: np.ndarray, rest: np.ndarray, span: float, cycles: float) -> int:
    """Which overtone of a season the strongest wave is, 1 where it is the first: others then stand out beside theirs."""
    whole, rest = np.std(rest), rest - _waves(t, rest, span / cycles, OVERTONES)
    if not np.std(rest) > 1e-6 * whole:
        return 1
    power = lambda at: lombscargle(t, rest, 2 * np.pi * at / span, normalize=True)
    apart = np.concatenate([[0.0], np.linspace(-3.0, -1.0, 9), np.linspace(1.0, 3.0, 9)])
    stands_out = lambda wave, others: wave > STANDS_OUT * np.median(others)
    for number in range(OVERTONES, 1, -1):
        lowest = cycles / number
        waves = lowest * np.array([k for k in range(1, OVERTONES * number) if k % number])
        waves = waves[waves < len(t) / 3]
        if lowest >= LEAST_CYCLES and any(stands_out(at, around) for at, *around in map(power, waves[:, None] + apart)):
            return number
    return 1


def _power(t: np.ndarray, y: np.ndarray, period: float) -> float:
    """The part of the variance beside a straight line that a plain wave of this period explains."""
    rest = y - np.polynomial.Legendre.fit(t, y, 1)(t)
    return 1 - float(np.var(rest - _waves(t, rest, period, 1)) / np.var(rest)) if np.ptp(rest) > 0 else 0.0


def _waves(t: np.ndarray, y: np.ndarray, period: float, count: int) -> np.ndarray:
    """What a wave of this period and its overtones explain of a series, beside a straight line."""
    angle = 2 * np.pi * np.arange(1, count + 1) * t[:, None] / period
    design = np.column_stack([np.cos(angle), np.sin(angle), np.ones(len(t)), t - t.mean()])
    weights = np.linalg.lstsq(design, y)[0]
    return design[:, : 2 * count] @ weights[: 2 * count]


def _strongest(t: np.ndarray, rest: np.ndarray, power: Callable[[np.ndarray], np.ndarray]) -> float:
    """How many cycles the strongest wave goes through; long series are counted into even cells first, for a fast transform."""
    if len(t) <= MOST_WAVES:
        coarse = np.arange(LEAST_CYCLES, len(t) / 3, 0.2)
        return float(coarse[np.argmax(power(coarse))])
    cells, _ = np.histogram(t, bins=len(t), weights=rest)
    spectrum = np.abs(np.fft.rfft(cells, n=4 * len(t)))[: 4 * len(t) // 3]
    spectrum[:16] = 0.0  # less than four cycles, as the series is a quarter of what is transformed
    return float(np.argmax(spectrum)) / 4
