"""What each column does to the target: the functions of a sum, or what a model says along one column while the others stay."""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np

from ..models.additive import FittedAdditive
from ..models.one_against_rest import OneAgainstRest
from ..models.projection_pursuit import FittedProjectionPursuit
from ..table_model import TableModel

PLACES = 60  # at which an effect is drawn
LITTLE = 0.02  # an effect that is a smaller part of the largest is none
REACH = 2.0  # standard deviations of a column, both ways


class Effect(NamedTuple):
    """A function of one column in its own units, how much it moves the target, and whether that may be nothing at all."""

    name: str
    x: np.ndarray
    mean: np.ndarray
    sd: np.ndarray
    size: float
    off: bool = False


@functools.lru_cache(maxsize=1)
def effects_of(model: TableModel) -> tuple[Effect, ...]:
    """The effects of the columns of a table, the largest first; none where a model has no function for each."""
    fitted = model.fitted
    if model.shape != "table" or isinstance(fitted, (FittedProjectionPursuit, OneAgainstRest)) or len(model.classes) > 2:
        return ()
    found = _functions(model) if isinstance(fitted, FittedAdditive) else _along(model)
    return tuple(sorted(found, key=lambda effect: -effect.size))


def _functions(model: TableModel) -> list[Effect]:
    """The functions of a sum."""
    units = zip(model.fitted.components(), model.layout.names, model.center, model.scale, strict=True)
    return [
        Effect(name, part.x * scale + center, part.mean, part.sd, part.effect, part.switched_off)
        for part, name, center, scale in units
    ]


def _along(model: TableModel) -> list[Effect]:
    """What is said along each column while the others stay at their mean."""
    D = len(model.center)
    x = np.linspace(-REACH, REACH, PLACES)
    rows = np.zeros((D, PLACES, D))
    rows[np.arange(D), :, np.arange(D)] = x
    prediction = model.fitted.predict(rows.reshape(-1, D))
    mean, sd = (np.asarray(values).reshape(D, -1) for values in (prediction.mean, prediction.sd))
    weight = np.exp(-0.5 * x**2) / np.sum(np.exp(-0.5 * x**2))  # places near the mean of a column hold more of its rows
    spread = np.sqrt(np.maximum(mean**2 @ weight - (mean @ weight) ** 2, 0.0))
    units = zip(model.layout.names, model.center, model.scale, strict=True)
    return [
        Effect(name, x * scale + center, mean[d], sd[d], float(spread[d]), bool(spread[d] < LITTLE * spread.max()))
        for d, (name, center, scale) in enumerate(units)
    ]
