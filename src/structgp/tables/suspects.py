"""Rows of a table that its model takes for outliers."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..inputs.reading import listed
from .model import TableModel

SUSPECTED = 0.5  # probability from which on a row is suspected
MOST = 1 / 3  # of the rows; where more of them scatter widely, the noise changes, and none of them is an outlier
MOST_ROWS, MOST_COLUMNS = 50, 4  # of the table of these rows


def suspicion(model: TableModel) -> np.ndarray | None:
    """The probability that each row that was learned from is an outlier; None for models that know of none."""
    try:
        return np.asarray(model.fitted.outlier_probability)
    except (AttributeError, NotImplementedError):
        return None


def suspected_rows(model: TableModel) -> list[int]:
    """The numbers of the rows that are taken for outliers, from 1 on, as long as it is known which these were."""
    found = suspicion(model)
    if found is None or model.learned is None:
        return []
    if too_many(found):
        return []
    return sorted((model.learned[found > SUSPECTED] + 1).tolist())


def too_many(found: np.ndarray) -> bool:
    """Whether so many rows scatter widely that they are no outliers."""
    return bool(np.mean(found > SUSPECTED) > MOST)


def suspect_rows(model: TableModel) -> list[list[str]]:
    """The table of rows that are taken for outliers, the surest first, its header first; empty where there are none."""
    found = suspicion(model)
    if found is None or too_many(found) or not (found > SUSPECTED).any():
        return []
    points, y = np.asarray(model.fitted.inputs.points), np.asarray(model.fitted.data.y)[:, 0]
    chosen = np.flatnonzero(found > SUSPECTED)
    chosen = chosen[np.argsort(-found[chosen], kind="stable")][:MOST_ROWS]
    expected = model.fitted.predict(points[chosen]).signal.mean
    names, cells = _places(model, points[chosen] * model.scale + model.center)
    rows = [
        [*cell, f"{y[row]:.5g}", f"{mean:.5g}", f"{100 * found[row]:.0f}\N{NO-BREAK SPACE}%"]
        for row, cell, mean in zip(chosen, cells, expected, strict=True)
    ]
    if model.learned is not None:
        rows = [[str(model.learned[row] + 1), *cells] for row, cells in zip(chosen, rows, strict=True)]
        names = ["row", *names]
    return [[*names, model.target, "expected", "outlier"], *rows]


def about_suspects(model: TableModel) -> str:
    """How many rows are suspected, and what that means."""
    found = suspicion(model)
    if found is None or not (found > SUSPECTED).any():
        return ""
    if too_many(found):
        return f"{_noise_changes(found)[0].upper()}{_noise_changes(found)[1:]}."
    count, shown = int(np.sum(found > SUSPECTED)), min(int(np.sum(found > SUSPECTED)), MOST_ROWS)
    first = f"{count} of {len(found)} rows" + (f", of which the surest {shown} are shown," if shown < count else "")
    return f"{first} are probably outliers: they were all but left out of what was learned, and are worth a look."


def _places(model: TableModel, X: np.ndarray) -> tuple[list[str], list[list[str]]]:
    """Where rows are: names of the first few columns that hold numbers or dates, and what they hold."""
    used = model.layout.used
    if len(used) == 1 and X.shape[1] == 1:
        return [used[0].name], [[used[0].written(x)] for x in X[:, 0]]
    names = model.layout.names[:MOST_COLUMNS]
    return list(names), [[f"{value:.4g}" for value in row[: len(names)]] for row in X]


def in_words(model: TableModel) -> list[str]:
    """The suspected rows in one line, for a terminal."""
    rows, found = suspected_rows(model), suspicion(model)
    if found is not None and too_many(found):
        return [_noise_changes(found)]
    if not rows:
        return []
    named: Any = listed("row", rows, 8)
    return [f"suspected outliers: {named} ({len(rows)} of {model.rows})"]


def _noise_changes(found: np.ndarray) -> str:
    count = int(np.sum(found > SUSPECTED))
    said = f"{count} of {len(found)} rows scatter more widely than the others: too many for outliers"
    return f"{said}; --likelihood heteroscedastic lets the noise change from place to place"
