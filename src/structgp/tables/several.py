"""Several columns of a table together: their gaps filled, and how they hang together; systems between two columns."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..kernels.algebra import Kernel
from ..kernels.outputs import LMC
from ..likelihoods.base import Likelihood
from ..likelihoods.robust import StudentT
from ..models.identified import Identified
from ..models.identify import identify
from ..models.outputs import FittedOutputs, fit_outputs
from .automatic.noise import noise_asked
from .expression import parse_kernel
from .reading import Column, Table, as_floats, find_column, kind_of, look

if TYPE_CHECKING:
    import polars as pl

TYPICAL = 0.3  # of the spread of a column is noise, where learning begins
MANY_VALUES, MANY = 5000, 4  # values and columns beyond which lags are not looked for without being asked for
LAGS: dict[str, str | bool] = {"auto": "auto", "yes": "auto", "no": False}  # what is asked for, and what of `fit_outputs`


class Filled(NamedTuple):
    """Columns of a table with their gaps filled: what was seen, what is believed, and the model behind it."""

    names: tuple[str, ...]
    x_name: str
    x: np.ndarray  # (N, D)
    seen: np.ndarray  # (N, P), NaN in the gaps
    median: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    model: FittedOutputs
    column: Column | None = None  # of the times, where places are some

    @property
    def written(self) -> Callable[[float], str] | None:
        """How a place is written, where it is not a number."""
        return self.column.drawn if self.column is not None and self.column.kind == "date" else None

    @property
    def unit(self) -> str:
        """In which places are counted, where they are times."""
        return self.column.unit if self.column is not None else ""

    @property
    def values(self) -> np.ndarray:
        """What was seen, and the median where nothing was."""
        return np.where(np.isfinite(self.seen), self.seen, self.median)

    @property
    def gaps(self) -> np.ndarray:
        """How many values of each column were filled in."""
        return np.sum(~np.isfinite(self.seen), axis=0)

    def forecast(self, horizon: int) -> dict[str, Any]:
        """What is expected of each column for so many steps after the last time, by column."""
        assert self.column is not None, "only a series goes on"
        places = self.column.following(self.x[:, 0], horizon)
        found: dict[str, Any] = {self.x_name: [self.column.written(place) for place in places]}
        median, sd, lower, upper = self.model.predict(places)
        for p, name in enumerate(self.names):
            parts = {"median": median, "sd": sd, "lower": lower, "upper": upper}
            found |= {f"{name}_{part}": values[:, p] for part, values in parts.items()}
        return found


def noise_of(likelihood: str) -> Likelihood | None:
    """How several columns scatter, each in units of its own spread, by the names that one column knows."""
    kind = noise_asked(likelihood)
    if kind not in (None, "", "outliers"):
        raise ValueError(
            f"--likelihood {likelihood} is of one column: several together take gaussian or student-t, or name one by --target"
        )
    return StudentT(scale=TYPICAL) if kind else None


def kernel_of(asked: Sequence[str], outputs: int, names: Sequence[str]) -> Kernel | None:
    """Functions that outputs share, one for each kernel that is asked for; None for the usual ones."""
    return LMC(outputs, *(parse_kernel(text, names) for text in asked), columns=len(names)) if asked else None


def fill_columns(
    table: Table,
    targets: list[str],
    time: str | None,
    *,
    lags: str = "auto",
    kernels: Sequence[str] = (),
    likelihood: str = "auto",
    **options: Any,
) -> Filled:
    """Learn the target columns together and fill their gaps; inputs are the time, or all other columns with numbers.

    Lags are looked for with "yes", along a time, and not with "no"; "auto" does where that does not take long. Of `kernels`
    each is of a function that the columns share; `options` are those of `fit_outputs`.
    """
    options["likelihood"] = noise_of(likelihood)
    frame = table.frame
    names = [find_column(frame, name, "target") for name in targets]
    if len(names) < 2 or len(set(names)) < len(names):
        raise ValueError(f"--targets needs two columns or more, each once, as in a,b,c; got {', '.join(targets)}")
    for name in names:
        if kind_of(frame[name]) != "number":
            raise ValueError(f"target {name!r} holds no numbers: several targets are learned together as numbers")
    Y = np.stack([as_floats(frame[name]) for name in names], axis=1)
    x, inputs, column = _places(frame, names, time)
    places, late = (x[:, 0], _looked_for(lags, Y)) if len(inputs) == 1 else (x, False)
    if lags not in LAGS or (lags == "yes" and len(inputs) > 1):
        several = f"{', '.join(inputs)} are {len(inputs)} columns of places: name one by --time"
        raise ValueError(f"--lags {lags} cannot be had: {several if lags in LAGS else 'it is auto, yes or no'}")
    options["kernel"] = kernel_of(kernels, len(names), inputs)
    model = fit_outputs(places, Y, names=names, **{"lags": late, "compare": True, **options})
    if len(inputs) == 1 and not late:
        unasked = "" if lags == "no" else f" among {len(names)} columns with {np.isfinite(Y).sum()} values (--lags yes does)"
        model = dataclasses.replace(model, notes=(*model.notes, f"it was not looked for whether some come late{unasked}"))
    median, _, lower, upper = model.predict(places)
    return Filled(tuple(names), ", ".join(inputs), x, Y, median, lower, upper, model, column)


def _looked_for(lags: str, Y: np.ndarray) -> str | bool:
    """What `fit_outputs` is asked about lags."""
    takes_long = Y.shape[1] > MANY or np.isfinite(Y).sum() > MANY_VALUES
    return LAGS.get(lags, False) if lags != "auto" or not takes_long else False


def _places(frame: pl.DataFrame, targets: list[str], time: str | None) -> tuple[np.ndarray, list[str], Column | None]:
    """The places of the rows: the time column, all other columns with numbers, or the number of the row; and their names."""
    if time is not None:
        column = _times(frame, time)
        numbers = column.numbers(frame[time])[:, :1]
        if not np.isfinite(numbers).all():
            raise ValueError(f"the time column {time!r} has gaps: every row needs its time")
        return numbers, [time], column
    others = [name for name in frame.columns if name not in targets and kind_of(frame[name]) == "number"]
    others = [name for name in others if np.isfinite(as_floats(frame[name])).all()]
    if not others:
        return np.arange(float(frame.height))[:, None], ["row"], None
    return np.stack([as_floats(frame[name]) for name in others], axis=1), others, None


def _times(frame: pl.DataFrame, time: str) -> Any:
    """How the column of times is counted."""
    column = look(frame[find_column(frame, time, "time column")])
    if column.kind == "category":
        raise ValueError(f"the time column {time!r} holds neither numbers nor dates: times must be one or the other")
    return column


class Record(NamedTuple):
    """Columns of a table as the inputs and the output of a system, and the system that was found."""

    sources: tuple[str, ...]
    target: str
    system: Identified
    unit: str = "steps"  # in which time is counted


def identify_columns(table: Table, sources: list[str], targets: list[str], time: str | None, **options: Any) -> list[Record]:
    """The systems that make columns of others; the time column, if there is one, must be evenly spaced."""
    frame = table.frame
    inputs, outputs = (
        [find_column(frame, name, "input") for name in sources],
        [find_column(frame, n, "output") for n in targets],
    )
    for name in inputs + outputs:
        if (inputs + outputs).count(name) > 1:
            raise ValueError(
                f"--input and --output name {name!r} more than once: name the columns that drive the system, "
                "and those that follow, each once"
            )
        if kind_of(frame[name]) != "number":
            raise ValueError(f"column {name!r} holds no numbers: a system is identified from numbers")
    dt, unit, analog = 1.0, "steps", options.get("method") == "analog"
    if time is not None:
        column = _times(frame, time)
        t, unit = column.numbers(frame[time])[:, 0], column.unit or time
        order = np.argsort(t, kind="stable")
        frame, steps = frame[order], np.diff(t[order])
        dt = float(np.median(steps))
        if analog:
            options["t"] = t[order]
        elif not dt > 0 or np.any(np.abs(steps - dt) > 0.01 * dt):
            raise ValueError(
                f"the times of {time!r} are not evenly spaced: identification needs one value at every step, "
                "or --method analog, which takes any times"
            )
    driving = np.stack([as_floats(frame[name]) for name in inputs], axis=1)
    found = [identify(driving, as_floats(frame[name]), dt, **options) for name in outputs]
    return [Record(tuple(inputs), name, one, unit) for name, one in zip(outputs, found, strict=True)]  # type: ignore[arg-type]
