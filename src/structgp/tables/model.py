"""A model of a table: a fitted process, how the columns became numbers, and how good it was on rows it had not seen."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .. import files
from ..inputs.layouts import Points, Times
from ..inputs.rows import LARGEST, filled
from .reading import Layout

if TYPE_CHECKING:
    import polars as pl

KEY = "table"  # under which the description of the table stands in a model file
TASKS = ("regression", "classification", "counts")
LINES = ("series", "curve")  # shapes with one input
TABLES = ("table", "places")  # shapes without a layout: any columns, or some of which two are coordinates of a place
SHORTEST = 6  # steps of a forecast, where nothing is said of its length
ONE_SIZE = 1024  # rows that fewer are filled up to, so that predictions, forecasts and figures share a program
LEVELS = (0.5, 0.8, 0.9, 0.95, 0.99)  # at which intervals are checked


LONGITUDE, LATITUDE = {"longitude", "lon", "lng", "long"}, {"latitude", "lat"}  # words in the names of columns
EAST, NORTH = {"easting", "east", "x", "xloc", "xcoord"}, {"northing", "north", "y", "yloc", "ycoord"}
BESIDE = {"", "m", "km", "utm", "rd", "loc", "coord", "coordinate", "pos", "position"}  # what may stand beside EAST and NORTH


class Map(NamedTuple):
    """The inputs that are coordinates of a place, from west to east and from south to north; in degrees, or in some length."""

    east: int
    north: int
    degrees: bool

    def stretch(self, north: float) -> float:
        """How much longer one step to the north is there than one to the east: a degree of longitude is shorter."""
        return float(1 / np.cos(np.radians(np.clip(north, -80, 80)))) if self.degrees else 1.0


def on_map(names: Sequence[str]) -> Map | None:
    """Which inputs are longitude and latitude, or x and y, by their names; None unless there is one of each."""
    words = [set(re.split("[^a-z]+", name.lower())) for name in names]
    named = lambda known: [d for d, found in enumerate(words) if found & known]
    called = lambda known: [d for d in named(known) if len(words[d] - BESIDE) == 1]
    for degrees, (east, north) in {True: (named(LONGITUDE), named(LATITUDE)), False: (called(EAST), called(NORTH))}.items():
        if len(east) == len(north) == 1 and east != north:
            return Map(east[0], north[0], degrees)
    return None


def of_shape(shape: str, inputs: int = 2) -> str:
    """What so many inputs of this shape do, after "inputs" or "which"."""
    return "are places on a map" if shape == "places" else f"form{'s' if inputs == 1 else ''} a {shape}"


@dataclasses.dataclass(frozen=True)
class Trial:
    """A candidate that was tried, with its log evidence and the mean log probability of rows it forecast, or why it was not.

    `why` says why it was taken, or not, once it was tried; `note` why it was not tried.
    """

    name: str
    log_evidence: float | None = None
    held_out: float | None = None
    seconds: float = 0.0
    chosen: bool = False
    note: str = ""
    why: str = ""


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """Rows that were held out: what was seen there and what was said of it.

    Of labels, `mean` is the probability of the second of two classes, or of the class that was said where there are more.
    """

    kind: str  # "the last rows", "random rows", or "" when none could be spared
    y: tuple[float, ...] = ()
    mean: tuple[float, ...] = ()
    sd: tuple[float, ...] = ()
    scores: dict[str, dict[str, float]] = dataclasses.field(default_factory=dict)  # by method, then by score
    intervals: dict[str, dict[str, tuple[float, float]]] = dataclasses.field(default_factory=dict)  # 90 % of each score
    covered: tuple[float, ...] = ()  # part of the rows inside intervals of each of LEVELS
    pit: tuple[float, ...] = ()  # part of the rows in each tenth of the probability integral transform
    label: tuple[int, ...] = ()  # the class that was said, where there are classes
    east: tuple[float, ...] = ()  # longitude and latitude, where rows are places, as the model sees them
    north: tuple[float, ...] = ()
    with_best: dict[str, float] = dataclasses.field(default_factory=dict)  # scores with the best parameters, where averaged
    at: tuple[float, ...] = ()  # where the rows lie along their only input
    left_out: tuple[int, ...] = ()  # of few rows: how many lie in the 95 % intervals that all others give them, how many not


@dataclasses.dataclass(frozen=True, eq=False)
class TableModel:
    """A fitted process over the columns of a table."""

    fitted: Any
    layout: Layout
    task: str
    target: str
    center: np.ndarray
    scale: np.ndarray
    rows: int
    shape: str = "table"  # or "series", "curve", "grid", "places"
    classes: tuple[str, ...] = ()
    trials: tuple[Trial, ...] = ()
    evaluation: Evaluation = dataclasses.field(default_factory=lambda: Evaluation(""))
    notes: tuple[str, ...] = ()
    horizon: int = 0  # steps of a series that are forecast; 0 for about a tenth of those that were seen
    learned: np.ndarray | None = None  # rows of the table that it was given, as long as it is not from a file
    ending: tuple[float, ...] = ()  # the last places of a series that were learned from, in order

    def inputs(self, frame: pl.DataFrame) -> np.ndarray:
        """The rows of a table as the process sees them."""
        return (self.layout.numbers(frame) - self.center) / self.scale

    def predict(self, frame: pl.DataFrame, level: float = 0.95) -> dict[str, np.ndarray]:
        """Predictions for the rows of a table, by name: mean and interval, or label and probabilities; NaN without inputs."""
        X = self.inputs(frame)
        known = np.isfinite(X).all(axis=1)
        found = predict_rows(self.fitted, self.task, X[known], self.classes, level)
        return {name: _spread_out(values, known) for name, values in found.items()}

    def forecast_places(self) -> np.ndarray:
        """Where a series goes on after its end, as numbers of its input."""
        seen = np.asarray(self.ending) if self.ending else np.unique(np.asarray(self.fitted.inputs.points)[:, 0])
        return self.layout.used[0].following(seen, self.horizon or usual_horizon(seen))

    def forecast(self, level: float = 0.95) -> dict[str, Any]:
        """What is expected after the end of a series, by column: the time as the table writes it, and what is said of it."""
        places, column = self.forecast_places(), self.layout.used[0]
        times = [column.written(place) for place in places] if column.kind == "date" else places
        found = predict_rows(self.fitted, self.task, places[:, None], self.classes, level)
        return {column.name: times, **{f"{self.target}_{name}": values for name, values in found.items()}}

    def save(self, path: Any) -> None:
        """Write the model to one file that `load_table_model` and `structgp.load` read."""
        files.save(self.fitted, path, **{KEY: json.dumps(self._described())})

    def _described(self) -> dict[str, Any]:
        plain = ("task", "target", "rows", "shape", "classes", "notes", "horizon", "ending")
        return {
            **{name: getattr(self, name) for name in plain},
            "layout": self.layout.to_json(),
            "center": self.center.tolist(),
            "scale": self.scale.tolist(),
            "trials": [dataclasses.asdict(trial) for trial in self.trials],
            "evaluation": dataclasses.asdict(self.evaluation),
        }


def load_table_model(path: Any) -> TableModel:
    """Read the model of a table that `TableModel.save` wrote."""
    from safetensors import safe_open

    fitted = files.load(path)
    with safe_open(path, framework="np") as container:
        text = container.metadata().get(KEY)
    if text is None:
        raise ValueError(f"{path} holds a model without a table: it was saved in Python, so load it there with structgp.load")
    try:
        described = json.loads(text)
        return TableModel(
            fitted,
            Layout.from_json(described["layout"]),
            described["task"],
            described["target"],
            np.asarray(described["center"], dtype=float),
            np.asarray(described["scale"], dtype=float),
            int(described["rows"]),
            described["shape"],
            tuple(described["classes"]),
            tuple(Trial(**trial) for trial in described["trials"]),
            Evaluation(**{**described["evaluation"], **_tuples(described["evaluation"])}),
            tuple(described["notes"]),
            int(described.get("horizon", 0)),
            ending=tuple(described.get("ending", ())),
        )
    except (KeyError, TypeError, ValueError):
        raise ValueError(f"{path} is damaged or was changed: its table cannot be read. Fit the model again") from None


def usual_horizon(places: np.ndarray) -> int:
    """The steps in a tenth of a series, whose places stand in order, and a few at least."""
    steps = np.diff(places)
    return max(round(0.1 * float(np.ptp(places)) / float(np.median(steps))) if len(steps) else 0, SHORTEST)


def _tuples(evaluation: dict[str, Any]) -> dict[str, Any]:
    return {name: tuple(values) for name, values in evaluation.items() if isinstance(values, list)}


def predict_rows(fitted: Any, task: str, X: np.ndarray, classes: tuple[str, ...], level: float) -> dict[str, np.ndarray]:
    """What is said of new rows: mean, sd and interval of an observation, or the label and the probability of each class."""
    if task == "regression" and 0 < len(X) < ONE_SIZE and _in_any_order(fitted):
        found = predict_rows(fitted, task, filled(X, ONE_SIZE), classes, level)
        return {name: values[: len(X)] for name, values in found.items()}
    prediction = fitted.predict(X)
    if task == "classification":
        p = prediction.probability
        p = np.stack([1 - p, p], axis=1) if p.ndim == 1 else p
        label = np.asarray(classes, dtype=object)[np.argmax(p, axis=1)]
        return {"label": label, **{f"probability_{name}": p[:, c] for c, name in enumerate(classes)}}
    observed = prediction.observed
    lower, upper = prediction.interval(level)
    return {"mean": observed.mean, "sd": observed.sd, "lower": lower, "upper": upper}


def _in_any_order(fitted: Any) -> bool:
    """Whether some rows more cost a model next to nothing, and tell it nothing of how the rows lie."""
    inputs = getattr(fitted, "inputs", None)
    return isinstance(inputs, (Points, Times)) and len(inputs) <= LARGEST


def _spread_out(values: np.ndarray, known: np.ndarray) -> np.ndarray:
    """Values for the rows whose inputs are known, and nothing for the others."""
    text = values.dtype == object
    whole = np.full(len(known), None if text else np.nan, dtype=object if text else float)
    whole[known] = values
    return whole
