"""The parameters of a model by names in words, in the units of the table, and how they were learned."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import re
from typing import Any, NamedTuple

import numpy as np

from ...kernels.algebra import On
from ...kernels.nonstationary import Constant, Spline, Wiener
from ...kernels.oscillating import Periodic
from ...kernels.stationary import Radial
from ...likelihoods.base import Likelihood
from ...likelihoods.positive import LogGaussian
from ...likelihoods.switch import Switch
from ...models.additive.model import FittedAdditive
from ...models.one_against_rest import OneAgainstRest
from ...parameters.tree import learned_leaves
from ...process.fitted import Fitted
from ...process.mixture import FittedMixture, ParameterBelief
from ..model import TableModel, on_map
from .effects import effects_of
from .terms import found_terms
from .words import part_names, round_number, shown, unit_of

MOST_LENGTHS = 12  # of a function of many columns that are told
OF_LATENT = re.compile(r"(?:kernel\.kernels|mean\.value)\[(\d+)\]")  # names of what belongs to one of several latents


def parameter_rows(model: TableModel) -> list[list[str]]:
    """What was learned, number by number, its header first; of several classes each against the rest."""
    if isinstance(model.fitted, OneAgainstRest):
        parts = zip(model.classes, model.fitted.parts, strict=True)
        rows = [[f"{label}: {name}", *values] for label, part in parts for name, *values in _numbers(model, part)]
    else:
        rows = _numbers(model, model.fitted)
    return [["parameter", "value"], *rows] if rows else []


def about_parameters(model: TableModel) -> str:
    """The units in which they are told."""
    behind = {"counts": ", on the scale of the logarithm of the mean", "classification": ", in log odds"}.get(model.task, "")
    return f"Spreads are standard deviations{behind}; lengths are in the units of their columns."


def _numbers(model: TableModel, fitted: Any) -> list[list[str]]:
    """The learned numbers of a process; none where they were averaged over, which has a table of its own."""
    if not isinstance(fitted, Fitted):
        return []
    one = model if fitted is model.fitted else dataclasses.replace(model, fitted=fitted, classes=model.classes[:2])
    told = lambda leaf: leaf.free_size == np.size(leaf.value) and np.ndim(leaf.value) < 2  # no covariances, directions, places
    plain = [leaf for leaf in learned_leaves(fitted.gp) if told(leaf)]
    index = lambda leaf, i: leaf.path if np.ndim(leaf.value) == 0 else f"{leaf.path}[{i}]"
    found = [_sure(index(leaf, i), float(v)) for leaf in plain for i, v in enumerate(np.ravel(leaf.value))]
    off = tuple(f"{effect.name}: " for effect in effects_of(one) if effect.off) if isinstance(fitted, FittedAdditive) else ()
    rows = _foremost([named_belief(row, one) for row in found])
    return [[row.name, round_number(row.values[1])] for row in rows if not row.name.startswith(off)]


def _sure(name: str, value: float) -> ParameterBelief:
    return ParameterBelief(name, value, 0.0, value, value, value)


def _foremost(rows: list[Worded]) -> list[Worded]:
    """All but the lengths of columns along which the function changes least, where these are many."""
    lengths = sorted((row for row in rows if row.relative), key=lambda row: row.relative)[:MOST_LENGTHS]
    return [row for row in rows if not row.relative or row in lengths]


def how_learned(model: TableModel) -> str:
    """How the parameters were found, in a few lines."""
    if isinstance(model.fitted, OneAgainstRest):
        parts = zip(model.classes, model.fitted.parts, strict=True)
        return "\n".join(f"{label} against the rest: {_ended(model, part)}" for label, part in parts)
    mode = model.fitted.mode if isinstance(model.fitted, FittedMixture) else model.fitted
    if not isinstance(mode, Fitted):
        return str(mode.summary())
    account = [line for line in mode.account() if not line.startswith("latents ")]  # of kernels by their numbers
    lines = [f"log evidence   {model.fitted.log_evidence:.6g}", *account]
    return "\n".join(line.replace(str(mode.learning), _ended(model, mode)) for line in lines)


def _ended(model: TableModel, fitted: Any) -> str:
    """How learning ended, with the parameters that ended at a bound in words."""
    learning = getattr(fitted, "learning", None)
    if learning is None:  # it was given more rows since
        return f"log evidence {fitted.log_evidence:.6g}"
    said = str(learning)
    for name in getattr(learning, "at_bound", ()):
        one = model if fitted is model.fitted else dataclasses.replace(model, fitted=fitted, classes=model.classes[:2])
        said = said.replace(name, named_belief(_sure(name, 1.0), one).name)
    return said


def sure_rows(model: TableModel) -> list[list[str]]:
    """What is believed of each parameter, where parameters were averaged over."""
    if not isinstance(model.fitted, FittedMixture):
        return []
    rows = _foremost([named_belief(row, model) for row in model.fitted.parameters()])
    return [["parameter", "5 %", "50 %", "95 %"], *([row.name, *map(round_number, row.values)] for row in rows)]


class Worded(NamedTuple):
    """What is believed of a parameter in the units of the table; of a length along a column, how many spreads of it that is."""

    name: str
    values: tuple[float, float, float]
    relative: float = 0.0


def named_belief(row: Any, model: TableModel) -> Worded:
    """A parameter by a name in words, spreads as standard deviations, lengths in the units of their column."""
    found = _worded(row, model)
    return found._replace(name=_whose(row.name, getattr(model.fitted, "likelihood", None)) + found.name)


def _whose(name: str, likelihood: Any) -> str:
    """Of which of several latents a parameter is, or whether it is of outliers."""
    if isinstance(likelihood, Switch) and not likelihood.separate and name.startswith("likelihood.other."):
        return "outliers: "
    place = OF_LATENT.match(name)
    names = likelihood.latent_names if place is not None and isinstance(likelihood, Likelihood) else ()
    return f"{names[int(place[1])]}: " if names and place is not None else ""


def _worded(row: Any, model: TableModel) -> Worded:
    """The same, of whichever latent it is."""
    values = np.array([row.low, row.median, row.high])
    *way, field = row.name.split(".")
    owner: Any = functools.reduce(_step, way, model.fitted.gp)
    name, _, index = field.removesuffix("]").partition("[")
    term = next((term for term in found_terms(model) if row.name.startswith(f"kernel.terms[{term.place}].")), None)
    told = [other for other in found_terms(model) if not isinstance(other.kernel, Constant)]
    dims = next((node.dims for node in _nodes(way, model) if isinstance(node, On)), tuple(range(len(model.scale))))
    whose = f"{part_names(model)[term.place]}: " if term is not None and len(told) > 1 else ""
    if isinstance(model.fitted, FittedAdditive) and way[:1] == ["kernel"] and len(dims) == 1:
        whose = f"{model.layout.names[dims[0]]}: "
    time = f" ({unit_of(model)})" if len(model.scale) == 1 and unit_of(model) else ""
    if isinstance(owner, Constant):
        return Worded("level (standard deviation before the data)", tuple(np.sqrt(values)))
    if isinstance(owner, LogGaussian):
        return Worded("noise (part of the level)", tuple(np.sqrt(values)))
    if name == "variance" and isinstance(owner, (Spline, Wiener)):  # how far it wanders in one unit of its column
        per = f"one {unit_of(model).removesuffix('s')}" if unit_of(model) else f"1 {model.layout.names[0]}"
        walks = isinstance(owner, Wiener)
        said = f"step over {per}" if walks else f"how far it leaves its line over {per}"
        return Worded(f"{whose}{said} (standard deviation)", tuple(np.sqrt(values if walks else values / 3)))
    if name in ("noise", "variance"):
        return Worded(f"{whose}{'noise' if name == 'noise' else 'size'} (standard deviation)", tuple(np.sqrt(values)))
    if name == "value" and way == ["mean"]:
        return Worded(f"{whose}mean", tuple(values))
    if name == "lengthscale" and isinstance(owner, Radial):
        if index:
            d = dims[int(index)]
            return Worded(f"{whose}length along {model.layout.names[d]}", tuple(values * model.scale[d]), float(row.median))
        keeps = term is not None and term.period is not None
        places = on_map(model.layout.names) if model.shape == "places" else None
        places = places if places is not None and set(dims) <= {places.east, places.north} else None
        unit = model.scale[dims[0]] if len(dims) == 1 else 1.0 if places is None else model.scale[places.north]
        said = "keeps its shape for" if keeps else "length over which it changes"
        spreads = " (in spreads of the columns)" if len(dims) > 1 and places is None else ""
        return Worded(f"{whose}{said}{time}{spreads}", tuple(values * unit))
    if name == "lengthscale" and isinstance(owner, Periodic):
        return Worded(f"{whose}smoothness of its shape", tuple(values))
    called = {"lifetime": f"keeps its phase for{time}", "period": f"period{time}"}.get(name, field.replace("_", " "))
    return Worded(f"{whose}{called}", tuple(values))


def _step(node: Any, name: str) -> Any:
    """What is found under a name such as terms[2]."""
    field, _, index = name.removesuffix("]").partition("[")
    found = getattr(node, field)
    return found[int(index)] if index else found


def _nodes(way: list[str], model: TableModel) -> list[Any]:
    """All that is passed on the way to a parameter."""
    return list(itertools.accumulate(way, _step, initial=model.fitted.gp))


def about_sureness(model: TableModel) -> str:
    """How parameters were averaged over, and what that did to intervals."""
    if not isinstance(model.fitted, FittedMixture):
        return ""
    count, held = len(model.fitted.weights), model.evaluation.with_best.get("in 95 % interval")
    likely = "all equally likely" if np.ptp(model.fitted.weights) == 0 else "each as likely as its weight says"
    said = (
        f"{count} draws of the parameters that the rows leave possible are averaged over, {likely}. "
        "The table has the interval of each parameter."
    )
    if sum("lengthscale[" in row.name for row in model.fitted.parameters()) > MOST_LENGTHS:
        said += f" Of the columns it has the {MOST_LENGTHS} over which the function changes most."
    if held is None:
        return said
    part = lambda inside: shown(inside, "in 95 % interval")
    now = part(model.evaluation.scores["this model"]["in 95 % interval"])
    return f"{said} Of the rows held out the 95 % intervals held {now}; with the best parameters alone {part(held)}."
