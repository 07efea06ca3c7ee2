"""Models beside each other on the same rows of a table: how probable each makes them, row by row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ..models.judge import Behind, log_probabilities
from .model import TableModel
from .reading import as_floats, as_text, kind_of

if TYPE_CHECKING:
    import polars as pl

LEVEL = 0.95


class Beside(NamedTuple):
    """What one of several models says of rows whose target is known."""

    name: str
    log_probability: float  # the mean over rows, in the units of the target
    behind: Behind  # the most probable one, row by row
    error: float  # root of the mean square, or the part of the labels that are wrong
    inside: float | None  # part of the rows in the 95 % intervals, where there are intervals


def on_rows(models: Mapping[str, TableModel], frame: pl.DataFrame) -> list[Beside]:
    """Models on the rows of a table that all of them can predict and whose target is known, the best first."""
    first = next(iter(models.values()))
    for name, model in models.items():
        if (model.target, model.task) != (first.target, first.task):
            raise ValueError(
                f"{name} is a model of {model.target!r} ({model.task}), and others of {first.target!r} ({first.task}): "
                "models of one target can be compared"
            )
    if first.target not in frame.columns:
        raise ValueError(f"the table lacks {first.target!r}, which the models predict: rows that are known are needed")
    y = _seen(frame, first)
    known = np.isfinite(y) & np.all([np.isfinite(model.inputs(frame)).all(axis=1) for model in models.values()], axis=0)
    if known.sum() < 2:
        raise ValueError(f"{int(known.sum())} rows have a target and all inputs: two at least are needed")
    rows = frame.filter(known)
    scores = {name: log_probabilities(model.fitted, model.task, model.inputs(rows), y[known]) for name, model in models.items()}
    leader = max(scores.values(), key=np.mean)
    found = [_one(name, models[name], rows, y[known], scores[name], leader) for name in models]
    return sorted(found, key=lambda one: -one.log_probability)


def _one(name: str, model: TableModel, rows: pl.DataFrame, y: np.ndarray, scores: np.ndarray, leader: np.ndarray) -> Beside:
    said = model.predict(rows, LEVEL)
    behind = Behind.of(leader, scores)
    if model.task == "classification":
        wrong = float(np.mean(said["label"] != np.asarray(model.classes, dtype=object)[y.astype(int)]))
        return Beside(name, float(np.mean(scores)), behind, wrong, None)
    inside = float(np.mean((said["lower"] <= y) & (y <= said["upper"])))
    return Beside(name, float(np.mean(scores)), behind, float(np.sqrt(np.mean((y - said["mean"]) ** 2))), inside)


def _seen(frame: pl.DataFrame, model: TableModel) -> np.ndarray:
    """The target as the model counts it, NaN where it is not known, or is a class that was never seen."""
    column = frame[model.target]
    if model.task != "classification":
        if kind_of(column) != "number":
            raise ValueError(f"the target {model.target!r} holds no numbers in this table")
        return as_floats(column)
    code = {name: float(c) for c, name in enumerate(model.classes)}
    return np.array([code.get(value, np.nan) if value is not None else np.nan for value in as_text(column)])
