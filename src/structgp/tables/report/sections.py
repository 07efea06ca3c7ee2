"""What a report shows of a model: figures of the fit, its parts and its errors, from the model alone."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from ...models.additive.model import FittedAdditive
from ...models.pursuit.fitted import FittedProjectionPursuit
from ..model import LEVELS, LINES, TABLES, TableModel, on_map
from .effects import REACH, Effect, centred, effects_of
from .figures import Figure, Trace
from .terms import WANDERING, Found, found_terms
from .words import SHORT, part_names, shown, without_effect

PLACES = 800  # at which a curve is drawn
FEWER = 200  # at which a season and a smooth part are drawn
MESH = 40  # places along each side of a map
AROUND = 1.5  # times the distance of rows that are spread evenly, around a row, that a map shows
MOST_COLUMNS = 12  # effects of columns that are drawn, the largest first
PERIODS = 2  # a season that came again so often is drawn over one period
OF_GROUP, MOST_GROUPS = 8, 8  # rows that are counted together where probabilities are checked, and the most such groups


def fit_figures(model: TableModel) -> list[Figure]:
    """Data and fit: a curve with bands, pictures of a grid, or what was said against what was seen."""
    if model.shape in LINES and model.task != "classification":
        end = "The end of the series and the forecast"
        return [_curve(model, "Data and fit"), *([_curve(model, end, 0.8)] if model.shape == "series" else [])]
    if model.shape in LINES and len(model.classes) == 2:
        return [_probability(model)]
    if model.shape == "grid" and len(model.center) == 2 and len(model.classes) <= 2:
        return _pictures(model)
    seen = model.evaluation
    maps = _maps(model) if model.shape == "places" else []
    if not seen.sd:
        return maps
    y, mean = np.asarray(seen.y), np.asarray(seen.mean)
    ends = np.array([min(y.min(), mean.min()), max(y.max(), mean.max())])
    traces = (Trace("points", mean, y, "rows held out"), Trace("guide", ends, ends, "equal"))
    return [*maps, Figure("Predicted and observed", f"predicted {model.target}", f"observed {model.target}", traces)]


def _places(model: TableModel, begin: float = 0.0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The training data of a series from some part on, and places from there to a little after its end."""
    t, y = np.asarray(model.fitted.inputs.points)[:, 0], np.asarray(model.fitted.data.y)[:, 0]
    span = float(np.ptp(t)) or 1.0
    first, last = t.min() + begin * span, model.forecast_places()[-1] if model.shape == "series" else t.max()
    return t[t >= first], y[t >= first], np.linspace(first, last, PLACES)


def _written(model: TableModel) -> Any:
    """How places of a line are drawn: dates as dates."""
    column = model.layout.used[0]
    return column.drawn if column.kind == "date" else None


def _axis_name(model: TableModel, column: int = 0) -> str:
    used = model.layout.used
    return used[column].name if column < len(used) else model.layout.names[column]


def _curve(model: TableModel, title: str, begin: float = 0.0) -> Figure:
    """Data, mean and band, from some part of the series on."""
    t, y, places = _places(model, begin)
    prediction = model.fitted.predict(places)
    lower, upper = prediction.interval(0.95)
    traces = (
        Trace("band", places, lower, "95 % band", upper=upper),
        Trace("points", t, y, "data"),
        Trace("line", places, prediction.observed.mean, "mean"),
    )
    return Figure(title, _axis_name(model), model.target, traces, _written(model), clock=model.layout.used[0].is_clock)


def _probability(model: TableModel) -> Figure:
    t, y, places = _places(model)
    traces = (Trace("points", t, y, "labels"), Trace("line", places, model.fitted.predict(places).probability, "probability"))
    what, clock = f"probability of {model.classes[1]}", model.layout.used[0].is_clock
    return Figure("Labels and probability", _axis_name(model), what, traces, _written(model), clock=clock)


def _pictures(model: TableModel) -> list[Figure]:
    """The data on the grid, the mean and the standard deviation."""
    points, y = np.asarray(model.fitted.inputs.points), np.asarray(model.fitted.data.y)[:, 0]
    (rows, row), (columns, column) = (np.unique(points[:, d], return_inverse=True) for d in (0, 1))
    seen = np.full((len(rows), len(columns)), np.nan)
    seen[row, column] = y
    mesh = np.stack([part.ravel() for part in np.meshgrid(rows, columns, indexing="ij")], axis=1)
    prediction = model.fitted.predict(mesh)
    if model.task == "classification":
        parts = {f"Probability of {model.classes[1]}": prediction.probability}
    else:
        parts = {"Mean": prediction.observed.mean, "Standard deviation of a new value": prediction.observed.sd}
    panels = {"Data": seen, **{title: values.reshape(seen.shape) for title, values in parts.items()}}
    across, down = _axis_name(model, 1), _axis_name(model, 0)
    image = lambda values: (Trace("image", columns, rows, values=values),)
    is_row = down.lower() == "row"
    return [Figure(title, across, down, image(values), downwards=is_row) for title, values in panels.items()]


def _maps(model: TableModel) -> list[Figure]:
    """The prediction over the region and where rows are, the other columns at their mean, and how far it was off at places held
    out."""
    columns, seen = on_map(model.layout.names), model.evaluation
    if columns is None or len(model.classes) > 2:
        return []
    given = getattr(model.fitted, "inputs", None)
    known = np.asarray(given.points)[:, columns[:2]] if given is not None else np.array([seen.east, seen.north]).T
    ends = [(float(part.min()), float(part.max())) if len(part) else (-REACH, REACH) for part in known.T]
    east, north = (np.linspace(*pair, MESH) for pair in ends)
    rows = np.zeros((MESH**2, len(model.center)))
    rows[:, columns.east], rows[:, columns.north] = np.tile(east, MESH), np.repeat(north, MESH)
    prediction = model.fitted.predict(rows)
    labels = model.task == "classification"
    values = prediction.probability if labels else prediction.observed.mean
    what = f"probability of {model.classes[1]}" if labels else model.target
    at = lambda values, which: np.asarray(values) * model.scale[columns[which]] + model.center[columns[which]]
    others = "" if len(model.center) == 2 else ", the other columns at their mean"
    shown = np.where(_near(rows[:, columns[:2]], known), values, np.nan)
    image = Trace("image", at(east, 0), at(north, 1), values=shown.reshape(MESH, MESH))
    names = [model.layout.names[d] for d in columns[:2]]
    stretch = columns.stretch(model.center[columns.north])
    dots = Trace("points", at(known[:, 0], 0), at(known[:, 1], 1))
    found = [Figure(f"Map of {what}{others}", names[0], names[1], (image, dots), stretch=stretch)]
    if not seen.east:
        return found
    rest = np.asarray(seen.y) - np.asarray(seen.mean)
    dots = Trace("places", at(seen.east, 0), at(seen.north, 1), values=rest)
    return [*found, Figure("Map of residuals at places held out", names[0], names[1], (dots,), stretch=stretch)]


def _near(places: np.ndarray, known: np.ndarray) -> np.ndarray:
    """Which places are among the rows: no farther from one than rows are apart, were they spread evenly over the map."""
    from scipy.spatial import cKDTree

    if not len(known):
        return np.ones(len(places), bool)
    apart = np.sqrt(np.prod(np.ptp(known, axis=0)) / len(known))
    return cKDTree(known).query(places)[0] <= AROUND * apart


def component_figures(model: TableModel) -> list[Figure]:
    """The parts of the model, each by itself, with bands of two standard deviations."""
    fitted = model.fitted
    if isinstance(fitted, FittedProjectionPursuit):
        return _projections(model)
    if model.shape in TABLES:
        found = [effect for effect in effects_of(model) if effect.firm][:MOST_COLUMNS]
        return [_effect(effect) for effect in found]
    terms = found_terms(model)
    if model.shape not in LINES or len(terms) < 2:
        return []
    return [_term(model, term) for term in terms if not term.negligible]


def _term(model: TableModel, term: Found) -> Figure:
    """A term along the data and a little beyond; of a season its last period. What has a level of its own, beside a mean or
    other terms, is drawn around its mean, and a trend at its level, with the band of its course."""
    t, _, places = _places(model)
    name = part_names(model)[term.place]
    title = name[:1].upper() + name[1:]
    season = term.period is not None and term.period < np.ptp(t) / PERIODS
    if season:
        places, title = np.linspace(t.max() - term.period, t.max(), FEWER), f"{title}: its last period"
    if season or term.slow > SHORT * np.ptp(t):
        places = places if season else np.linspace(places[0], places[-1], FEWER)
        weight = (places <= t.max()) / np.sum(places <= t.max())
        mean, sd = centred(model.fitted, places, weight, term.place)
        mean = mean + (term.middle - 0.5 * (mean.max() + mean.min()) if isinstance(term.kernel, WANDERING) else 0.0)
    else:
        part = model.fitted.predict(places, part=term.place)
        mean, sd = part.mean, part.sd
    band = _band(title, places, mean, sd, _axis_name(model), _written(model))
    return dataclasses.replace(band, clock=model.layout.used[0].is_clock)


def _projections(model: TableModel) -> list[Figure]:
    """For each projection the function along it and the weights of the columns, those that move the sum most first."""
    fitted = model.fitted
    kept = tuple(name for name, used in zip(model.layout.names, fitted.units.kept, strict=True) if used)
    found: list[Figure] = []
    components = fitted.additive.components()
    y = fitted.units.y_scale
    for m in sorted(range(len(components)), key=lambda m: -components[m].effect)[: MOST_COLUMNS // 2]:
        part, u = components[m], fitted.directions[m]
        found.append(_band(f"Function of projection {m + 1}", part.x, y * part.mean, y * part.sd, f"projection {m + 1}"))
        bars = Trace("bars", np.arange(len(u)), u, labels=kept)
        found.append(Figure(f"Weights of projection {m + 1}", "column", "weight (columns in standard units)", (bars,)))
    return found


def _effect(effect: Effect) -> Figure:
    if effect.levels:
        what = f"probability of {effect.label}" if effect.label else "effect"
        if effect.label:
            return Figure(effect.name, effect.name, what, (Trace("bars", effect.x, effect.mean, labels=effect.levels),))
        ranges = Trace("ranges", effect.x, effect.mean, values=2 * effect.sd, labels=effect.levels)
        return Figure(effect.name, effect.name, what, (ranges,))
    if not effect.label:
        return _band(effect.name, effect.x, effect.mean, effect.sd, effect.name)
    line = Trace("line", effect.x, effect.mean)
    return Figure(effect.name, effect.name, f"probability of {effect.label}", (line,))


def _band(title: str, x: np.ndarray, mean: np.ndarray, sd: np.ndarray, x_title: str, written: Any = None) -> Figure:
    traces = (Trace("band", x, mean - 2 * sd, upper=mean + 2 * sd), Trace("line", x, mean))
    return Figure(title, x_title, "effect", traces, written)


def about_components(model: TableModel) -> str:
    """What the figures of the parts show, and what was left out."""
    fitted = model.fitted
    if effects_of(model):
        others = "" if isinstance(fitted, FittedAdditive) else ", while the others stay at their mean"
        behind = {"classification": " on the scale of log odds", "counts": " in the logarithm of the mean"}.get(model.task, "")
        nothing = without_effect(model, 20)
        none = f" {nothing[:1].upper()}{nothing[1:]}." if nothing else ""
        if len(model.classes) > 2:
            return f"The probability of the class that a column moves most, while the others stay at their mean.{none}"
        return f"The effect of each column{behind}{others}; the largest first.{none}"
    if model.shape in LINES and len(found_terms(model)) > 1:
        return (
            "Seasons and smooth parts are drawn around their own mean, a trend about its level. The bands are those of their "
            "course: from which part a constant comes the data cannot tell."
        )
    return ""


def error_figures(model: TableModel) -> list[Figure]:
    """Residuals and calibration on the rows held out."""
    seen = model.evaluation
    if not seen.y:
        return []
    if model.task == "classification":
        return [_reliability(model)]
    y, mean = np.asarray(seen.y), np.asarray(seen.mean)
    along = bool(seen.at) and model.shape in LINES
    x = np.asarray(seen.at) if along else mean
    ends = np.array([x.min(), x.max()])
    traces = (Trace("points", x, y - mean), Trace("guide", ends, 0 * ends))
    across, written = (_axis_name(model), _written(model)) if along else (f"predicted {model.target}", None)
    return [
        Figure("Residuals", across, "residual", traces, written, clock=along and model.layout.used[0].is_clock),
        *_transform(seen.pit),
        *_coverage(seen.covered),
    ]


def _transform(pit: tuple[float, ...]) -> list[Figure]:
    """The probability integral transform, where it was kept."""
    if not pit:
        return []
    even = 1 / len(pit)
    traces = (
        Trace("bars", even * (0.5 + np.arange(len(pit))), np.array(pit)),
        Trace("guide", np.array([0.0, 1.0]), np.full(2, even), "calibrated"),
    )
    title = "Calibration: probability integral transform"
    return [Figure(title, "predicted probability of a smaller value", "part of the rows", traces)]


def _coverage(covered: tuple[float, ...]) -> list[Figure]:
    if not covered:
        return []
    asked = np.array(LEVELS)
    traces = (Trace("line", asked, np.array(covered), "found"), Trace("guide", asked, asked, "asked for"))
    return [Figure("Calibration: coverage of intervals", "probability of the interval", "part of the rows inside", traces)]


def _reliability(model: TableModel) -> Figure:
    """How often a label was right that was given some probability: the second of two classes, or the one said of several.

    Each point has as many rows.
    """
    seen, p = np.asarray(model.evaluation.y), np.asarray(model.evaluation.mean)
    two = len(model.classes) == 2
    right = seen if two else seen == np.asarray(model.evaluation.label)
    groups = np.array_split(np.argsort(p, kind="stable"), int(np.clip(len(p) // OF_GROUP, 1, MOST_GROUPS)))
    said, found = (np.array([values[rows].mean() for rows in groups]) for values in (p, right))
    ends = np.array([0.0, 1.0])
    traces = (
        Trace("points", said, found, f"about {len(p) // len(groups)} rows each"),
        Trace("guide", ends, ends, "calibrated"),
    )
    of = model.classes[1] if two else "the class said"
    return Figure("Calibration", f"predicted probability of {of}", "part of the rows", traces)


def score_rows(model: TableModel) -> list[list[str]]:
    """The table of scores with their 90 % intervals, its header first; empty when no row could be spared."""
    scores, intervals = model.evaluation.scores, model.evaluation.intervals
    if not scores:
        return []
    names = list(scores["this model"])

    def cell(method: str, name: str) -> str:
        ends = intervals.get(method, {}).get(name)
        between = "" if ends is None else "\N{NO-BREAK SPACE}…\N{NO-BREAK SPACE}".join(shown(end, name) for end in ends)
        around = f" ({between})" if between else ""
        return f"{shown(scores[method][name], name)}{around}"

    return [["", *names], *([method, *(cell(method, name) for name in names)] for method in scores)]


def confusion_rows(model: TableModel) -> list[list[str]]:
    """How often each class was taken for which, on the rows held out that were kept; its header first."""
    seen = model.evaluation
    if not seen.label:
        return []
    found = np.zeros((len(model.classes),) * 2, dtype=int)
    np.add.at(found, (np.asarray(seen.y, dtype=int), np.asarray(seen.label, dtype=int)), 1)
    rows = [[name, *map(str, counts)] for name, counts in zip(model.classes, found.tolist(), strict=True)]
    return [["observed, and taken for …", *model.classes], *rows]


def trial_rows(model: TableModel) -> list[list[str]]:
    """The table of candidates, its header first."""
    number: Any = lambda value: "" if value is None else f"{value:.5g}"
    compared = "log probability of a forecast row" if model.shape == "series" else "log probability of a row held out"
    rows = [
        [
            ("★ " if trial.chosen else "") + trial.name,
            number(trial.log_evidence),
            number(trial.held_out),
            f"{trial.seconds:.1f}" if trial.seconds else "",
            trial.note or trial.why,
        ]
        for trial in model.trials
    ]
    return [["candidate", "log evidence", compared, "seconds", ""], *rows]
