"""What each column does to the target: the functions of a sum, or what a model says along one column while the others stay.

Of several classes it is how far a column moves their probabilities. An effect is firm when somewhere along its column zero lies
outside a band that holds the effects of all columns together with 95 % probability (Bonferroni): of many columns that do
nothing, some would leave bands of their own by chance.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtri

from ...models.additive.model import FittedAdditive
from ...models.pursuit.fitted import FittedProjectionPursuit
from ...process.fitted import Fitted
from ...process.mixture import FittedMixture
from ..model import TABLES, TableModel, on_map

PLACES = 60  # at which an effect is drawn
LITTLE = 0.02  # an effect that is a smaller part of the largest is none
REACH = 2.0  # standard deviations of a column, both ways, as far as there are rows


class Effect(NamedTuple):
    """A function of one column in its own units, centred, how much it moves the target, and whether that may be nothing at all.

    Of several classes it is the probability of the one that moves most. Of a column of categories `x` counts its levels.
    """

    name: str
    x: np.ndarray
    mean: np.ndarray
    sd: np.ndarray
    size: float
    off: bool = False
    label: str = ""  # the class, where there are several
    firm: bool = True  # whether it is told apart from nothing
    levels: tuple[str, ...] = ()  # of a column of categories


@functools.lru_cache(maxsize=1)
def effects_of(model: TableModel) -> tuple[Effect, ...]:
    """The effects of the columns of a table, the largest first; none where a model has no function for each."""
    fitted = model.fitted
    if model.shape not in TABLES or isinstance(fitted, FittedProjectionPursuit):
        return ()
    found = _functions(model) if isinstance(fitted, FittedAdditive) else _along(model)
    least = ndtri(1 - 0.025 / max(len(found), 1))
    firm = lambda effect: not effect.off and (bool(effect.label) or bool((np.abs(effect.mean) > least * effect.sd).any()))
    return tuple(sorted((effect._replace(firm=firm(effect)) for effect in found), key=lambda effect: -effect.size))


def _functions(model: TableModel) -> list[Effect]:
    """The functions of a sum."""
    units = zip(model.fitted.components(), model.layout.names, model.center, model.scale, strict=True)
    return [
        Effect(name, part.x * scale + center, part.mean, part.sd, part.effect, part.switched_off)
        for part, name, center, scale in units
    ]


class Way(NamedTuple):
    """Rows along which one column goes while the others stay at their mean, where it then is, and how much each row counts."""

    name: str
    rows: np.ndarray
    x: np.ndarray
    weight: np.ndarray
    levels: tuple[str, ...] = ()


def _ways(model: TableModel) -> list[Way]:
    """A way for each column; longitude and latitude go together, on a map, and a category from level to level."""
    places, found, at = on_map(model.layout.names) if model.shape == "places" else None, [], 0
    low, high = _ends(model)
    for column in model.layout.used:
        d, at = at, at + len(column.names)
        rows = np.zeros((PLACES, len(model.center)))
        if column.kind == "category":
            level = np.arange(PLACES) % len(column.levels)
            seen = np.eye(len(column.levels))[level][:, -len(column.names) :]
            rows[:, d:at] = (seen - model.center[d:at]) / model.scale[d:at]
            share = model.center[d:at] if len(column.levels) > 2 else np.array([1 - model.center[d], model.center[d]])
            weight = np.maximum(share, 1e-9)[level] if not np.isclose(share.sum(), 0.0) else np.ones(PLACES)
            found.append(Way(column.name, rows, level.astype(float), weight / weight.sum(), column.levels))
        elif places is None or d not in places[:2]:
            rows[:, d] = np.linspace(low[d], high[d], PLACES)
            weight = np.exp(-0.5 * rows[:, d] ** 2)  # places near the mean of a column hold more of its rows
            found.append(Way(column.name, rows, rows[:, d] * model.scale[d] + model.center[d], weight / weight.sum()))
    return found


def _along(model: TableModel) -> list[Effect]:
    """What is said along each column while the others stay at their mean."""
    ways = _ways(model)
    if not ways:
        return []
    weight, labels = np.stack([way.weight for way in ways]), [""] * len(ways)
    if len(model.classes) > 2:
        every = np.concatenate([way.rows for way in ways])
        mean = model.fitted.predict(every).probability.reshape(len(ways), PLACES, -1)
        sd, chosen = np.zeros((len(ways), PLACES)), np.argmax(_spread(mean, weight), axis=1)
        mean, labels = mean[np.arange(len(ways)), :, chosen], [model.classes[c] for c in chosen]
    else:
        along = [centred(model.fitted, way.rows, way.weight) for way in ways]
        mean, sd = (np.stack(parts) for parts in zip(*along, strict=True))
    size = _spread(mean[:, :, None], weight)[:, 0]
    off = size < LITTLE * size.max()
    found = []
    for k, way in enumerate(ways):
        few = slice(0, len(way.levels)) if way.levels else slice(None)  # the first places are at each level once
        found.append(
            Effect(way.name, way.x[few], mean[k][few], sd[k][few], float(size[k]), bool(off[k]), labels[k], levels=way.levels)
        )
    return found


def _ends(model: TableModel) -> tuple[np.ndarray, np.ndarray]:
    """How far effects are drawn: to where most rows are, and not beyond the last where they are known."""
    D = len(model.center)
    given = getattr(model.fitted, "inputs", None)
    points = np.asarray(given.points) if given is not None else np.array([np.full(D, -REACH), np.full(D, REACH)])
    return np.maximum(points.min(axis=0), -REACH), np.minimum(points.max(axis=0), REACH)


def _spread(values: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """The standard deviation of values (D, places, classes) along the places."""
    mean = np.einsum("dpc,dp->dc", values, weight)
    return np.sqrt(np.einsum("dpc,dp->dc", (values - mean[:, None]) ** 2, weight))


def centred(fitted: Any, places: np.ndarray, weight: np.ndarray, part: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """What is said along places less its mean there, which is sure also where the level of all is not."""
    if not isinstance(fitted, (Fitted, FittedMixture)):
        prediction = fitted.predict(places)
        return prediction.mean - weight @ prediction.mean, prediction.sd
    if fitted.likelihood.latents > 1:
        signal = fitted.predict(places).signal
        return signal.mean - weight @ signal.mean, signal.sd
    prediction = fitted.predict(places, covariance=True, part=part)
    center = np.eye(len(places)) - weight
    variance = np.einsum("ij,jk,ik->i", center, np.asarray(prediction.covariance), center)
    return center @ prediction.mean, np.sqrt(np.maximum(variance, 0.0))
