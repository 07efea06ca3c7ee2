"""What a report shows of a model: figures of the fit, its parts and its errors, from the model alone."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.stats import norm

from ..models.additive import FittedAdditive
from ..models.projection_pursuit import FittedProjectionPursuit
from ..table_model import TableModel
from .figures import Figure, Trace

PLACES = 400  # at which a curve is drawn
LEVELS = (0.5, 0.8, 0.9, 0.95, 0.99)


def fit_figures(model: TableModel) -> list[Figure]:
    """Data and fit: a curve with bands, pictures of a grid, or what was said against what was seen."""
    if model.shape == "series" and model.task != "classification":
        return [_curve(model)]
    if model.shape == "series" and len(model.classes) == 2:
        return [_probability(model)]
    if model.shape == "grid" and len(model.center) == 2:
        return _pictures(model)
    seen = model.evaluation
    if not seen.sd:
        return []
    y, mean = np.asarray(seen.y), np.asarray(seen.mean)
    ends = np.array([min(y.min(), mean.min()), max(y.max(), mean.max())])
    traces = (Trace("points", mean, y, "rows held out"), Trace("guide", ends, ends, "equal"))
    return [Figure("Predicted and observed", f"predicted {model.target}", f"observed {model.target}", traces)]


def _places(model: TableModel) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The training data of a series, and places from its beginning to a little after its end."""
    t, y = np.asarray(model.fitted.inputs.points)[:, 0], np.asarray(model.fitted.data.y)[:, 0]
    span = float(np.ptp(t)) or 1.0
    return t, y, np.linspace(t.min(), t.max() + 0.1 * span, PLACES)


def _axis_name(model: TableModel, column: int = 0) -> str:
    used = model.layout.used
    unit = used[column].unit if column < len(used) else ""
    return f"{model.layout.names[column]} ({unit})" if unit else model.layout.names[column]


def _curve(model: TableModel) -> Figure:
    t, y, places = _places(model)
    prediction = model.fitted.predict(places)
    lower, upper = prediction.interval(0.95)
    traces = (
        Trace("band", places, lower, "95 % of new observations", upper=upper),
        Trace("points", t, y, "data"),
        Trace("line", places, prediction.observed.mean, "mean"),
    )
    return Figure("Data and fit", _axis_name(model), model.target, traces)


def _probability(model: TableModel) -> Figure:
    t, y, places = _places(model)
    traces = (Trace("points", t, y, "labels"), Trace("line", places, model.fitted.predict(places).probability, "probability"))
    return Figure("Labels and probability", _axis_name(model), f"probability of {model.classes[1]}", traces)


def _pictures(model: TableModel) -> list[Figure]:
    """The data on the grid, the mean and the standard deviation."""
    points, y = np.asarray(model.fitted.inputs.points), np.asarray(model.fitted.data.y)[:, 0]
    (rows, row), (columns, column) = (np.unique(points[:, d], return_inverse=True) for d in (0, 1))
    seen = np.full((len(rows), len(columns)), np.nan)
    seen[row, column] = y
    mesh = np.stack([part.ravel() for part in np.meshgrid(rows, columns, indexing="ij")], axis=1)
    observed = model.fitted.predict(mesh).observed
    panels = {"Data": seen, "Mean": observed.mean.reshape(seen.shape), "Standard deviation": observed.sd.reshape(seen.shape)}
    across, down = _axis_name(model, 1), _axis_name(model, 0)
    return [Figure(title, across, down, (Trace("image", columns, rows, values=values),)) for title, values in panels.items()]


def component_figures(model: TableModel) -> list[Figure]:
    """The terms of a sum, each by itself, with bands of two standard deviations."""
    fitted = model.fitted
    if isinstance(fitted, FittedProjectionPursuit):
        weights = np.abs(fitted.directions)
        kept = [name for name, used in zip(model.layout.names, fitted.units.kept, strict=True) if used]
        numbered = ", ".join(f"{i} {name}" for i, name in enumerate(kept))
        return [
            Figure(f"Weights of projection {m + 1}", numbered, "absolute weight", (Trace("bars", np.arange(len(w)), w),))
            for m, w in enumerate(weights)
        ]
    if isinstance(fitted, FittedAdditive) and len(model.center) > 1:
        units = zip(fitted.components(), model.layout.names, model.center, model.scale, strict=True)
        return [_band(name, part.x * scale + center, part.mean, part.sd, name) for part, name, center, scale in units]
    terms = getattr(getattr(fitted, "kernel", None), "terms", ())
    if model.shape != "series" or len(terms) < 2 or len(model.classes) > 2:
        return []
    _, _, places = _places(model)
    parts = [(repr(term), fitted.predict(places, part=i)) for i, term in enumerate(terms)]
    return [_band(name, places, part.mean, part.sd, _axis_name(model)) for name, part in parts]


def _band(title: str, x: np.ndarray, mean: np.ndarray, sd: np.ndarray, x_title: str) -> Figure:
    traces = (Trace("band", x, mean - 2 * sd, upper=mean + 2 * sd), Trace("line", x, mean))
    return Figure(title, x_title, "effect", traces)


def error_figures(model: TableModel) -> list[Figure]:
    """Residuals and calibration on the rows held out."""
    seen = model.evaluation
    if not seen.y:
        return []
    if model.task == "classification":
        return [_reliability(model)] if len(model.classes) == 2 else []
    y, mean, sd = (np.asarray(values) for values in (seen.y, seen.mean, seen.sd))
    ends = np.array([mean.min(), mean.max()])
    residuals = Figure(
        "Residuals", f"predicted {model.target}", "residual", (Trace("points", mean, y - mean), Trace("guide", ends, 0 * ends))
    )
    z = (y - mean) / sd
    counts, edges = np.histogram(norm.cdf(z), bins=10, range=(0.0, 1.0))
    middle = 0.5 * (edges[1:] + edges[:-1])
    level = np.full(2, len(y) / 10)
    pit = Figure(
        "Calibration: probability integral transform",
        "predicted probability of a smaller value",
        "rows",
        (Trace("bars", middle, counts.astype(float)), Trace("guide", np.array([0.0, 1.0]), level, "calibrated")),
    )
    return [residuals, pit, _coverage(z)]


def _coverage(z: np.ndarray) -> Figure:
    asked = np.array(LEVELS)
    found = np.array([np.mean(np.abs(z) <= norm.ppf((1 + level) / 2)) for level in LEVELS])
    traces = (Trace("line", asked, found, "found"), Trace("guide", asked, asked, "asked for"))
    return Figure("Calibration: coverage of intervals", "probability of the interval", "part of the rows inside", traces)


def _reliability(model: TableModel) -> Figure:
    y, p = np.asarray(model.evaluation.y), np.asarray(model.evaluation.mean)
    bins = np.clip((p * 5).astype(int), 0, 4)
    said = np.array([p[bins == b].mean() for b in range(5) if (bins == b).any()])
    found = np.array([y[bins == b].mean() for b in range(5) if (bins == b).any()])
    ends = np.array([0.0, 1.0])
    traces = (Trace("points", said, found, "rows held out"), Trace("guide", ends, ends, "calibrated"))
    return Figure("Calibration", f"predicted probability of {model.classes[1]}", "part of the rows", traces)


def score_rows(model: TableModel) -> list[list[str]]:
    """The table of scores, its header first; empty when no row could be spared."""
    scores = model.evaluation.scores
    if not scores:
        return []
    names = list(scores["this model"])
    return [["", *names], *([method, *(f"{found[name]:.4g}" for name in names)] for method, found in scores.items())]


def trial_rows(model: TableModel) -> list[list[str]]:
    """The table of candidates, its header first."""
    shown: Any = lambda value: "" if value is None else f"{value:.5g}"
    rows = [
        [
            ("★ " if trial.chosen else "") + trial.name,
            shown(trial.log_evidence),
            shown(trial.held_out),
            f"{trial.seconds:.1f}",
            trial.note,
        ]
        for trial in model.trials
    ]
    return [["candidate", "log evidence", "held-out log probability", "seconds", ""], *rows]
