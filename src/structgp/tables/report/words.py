"""What a model has learned, in words and in the units of the table."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np

from ...inputs.reading import few
from ...kernels.algebra import Kernel, Product
from ...kernels.nonstationary import Constant, Linear, Spline, Wiener
from ...kernels.oscillating import DampedOscillator, Periodic
from ...kernels.stationary import Radial
from ...kernels.views import On
from ...likelihoods.base import Likelihood
from ...likelihoods.counts import NegativeBinomial, Poisson
from ...likelihoods.gaussian import Gaussian
from ...likelihoods.robust import StudentT
from ...models.additive.model import FittedAdditive
from ...models.pursuit.model import FittedProjectionPursuit
from ..model import TableModel
from ..reading import SECONDS
from .effects import Effect, effects_of

LONG, SHORT = 1 / 5, 1 / 30  # parts of the span beyond which a function is a trend, or short-lived
FORECASTS = 6  # rows of the table of forecasts
WEIGHTY = 4  # columns that are named for a projection


class Part(NamedTuple):
    """A part of a model: what it is called, and what was learned of it."""

    name: str
    learned: str


def parts_of(model: TableModel) -> list[Part]:
    """The terms of the kernel and the noise, or the functions of a sum."""
    fitted = model.fitted
    if isinstance(fitted, FittedProjectionPursuit):
        found = [Part(f"projection {m + 1}", weights) for m, weights in enumerate(_weights(model))]
    elif hasattr(fitted, "kernel") and not isinstance(fitted, FittedAdditive):
        terms = getattr(fitted.kernel, "terms", (fitted.kernel,))
        found = [describe(term, model) for term in terms]
    else:
        found = _effects(model)
    return found + _scatter(getattr(fitted, "likelihood", None), model)


def _effects(model: TableModel) -> list[Part]:
    """How much each column moves the target, and those that do not."""
    effects = effects_of(model)
    found = [Part(effect.name, _moved(effect, model)) for effect in effects if not effect.off]
    off = [effect.name for effect in effects if effect.off]
    return [*found, Part("other columns", f"no effect was found of {few(off, 30)}")] if off else found


def _moved(effect: Effect, model: TableModel) -> str:
    """How much a column moves the target, or the probability of the class that it moves most."""
    if effect.label:
        return f"moves the probability of {effect.label} by ±{effect.size:.2g}, that of the others by less"
    return f"moves it by {_size(effect.size**2, model)}"


def _weights(model: TableModel) -> list[str]:
    """For each projection its weightiest columns."""
    kept = [name for name, used in zip(model.layout.names, model.fitted.units.kept, strict=True) if used]
    said = []
    for u in model.fitted.directions:
        first = np.argsort(-np.abs(u))[:WEIGHTY]
        said.append("mostly " + ", ".join(f"{kept[d]} ({u[d]:+.2f})" for d in first))
    return said


def _scatter(likelihood: Likelihood | None, model: TableModel) -> list[Part]:
    if isinstance(likelihood, Gaussian):
        sd = np.sqrt(float(np.ravel(likelihood.noise)[0]))
        return [Part("noise", f"single observations scatter by ±{sd:.3g} {model.target}")]
    if isinstance(likelihood, StudentT):
        scale, df = float(np.asarray(likelihood.scale)), float(np.asarray(likelihood.df))
        return [
            Part(
                "noise",
                f"most observations scatter by ±{scale:.3g} {model.target}, some lie far off ({df:.3g} degrees of freedom)",
            )
        ]
    if isinstance(likelihood, NegativeBinomial):
        more = float(np.asarray(likelihood.dispersion))
        return [Part("scatter", f"counts with mean μ have variance μ + {more:.3g} μ², more than Poisson counts")]
    if isinstance(likelihood, Poisson):
        return [Part("scatter", "counts scatter as Poisson counts do: their variance is their mean")]
    return []


@functools.singledispatch
def describe(term: Kernel, model: TableModel) -> Part:
    """A term of a kernel in words; its own notation where there are none."""
    return Part(type(term).__name__, repr(term))


@describe.register
def _(term: Spline, model: TableModel) -> Part:
    span = _span(model) / 10
    change = np.sqrt(float(term.variance) * span)
    return Part("trend that bends", f"its slope changes by about ±{_per(change, model)} within {_in_unit(span, model)}")


@describe.register
def _(term: Wiener, model: TableModel) -> Part:
    span = _span(model) / 10
    size = _size(float(term.variance) * span, model)
    return Part("random walk", f"moves by about {size} within {_in_unit(span, model)}")


@describe.register
def _(term: Radial, model: TableModel) -> Part:
    if np.asarray(term.lengthscale).dtype == object:  # a metric
        return Part("function of all columns", repr(term))
    lengths = np.ravel(np.asarray(term.lengthscale)) * (model.scale if np.size(term.lengthscale) == len(model.scale) else 1.0)
    size = _size(term.variance, model)
    if len(model.center) == 1:
        length, span = float(lengths[0]), _span(model)
        name = "trend" if length > LONG * span else "short-lived part" if length < SHORT * span else "smooth part"
        return Part(name, f"moves by {size}, over about {_in_unit(length, model)}")
    if len(lengths) == 1:
        return Part("function of all columns", f"moves by {size} over a distance of about {lengths[0]:.3g}")
    order = np.argsort(lengths / model.scale)
    named = ", ".join(f"{model.layout.names[d]} {lengths[d]:.3g}" for d in order[:8])
    return Part("function of all columns", f"moves by {size}; it changes over (the most relevant column first) {named}")


@describe.register
def _(term: Product, model: TableModel) -> Part:
    periodic = next((factor for factor in term.factors if isinstance(factor, Periodic)), None)
    lasting = [factor.lengthscale for factor in term.factors if isinstance(factor, Radial)]
    if periodic is not None and len(lasting) == len(term.factors) - 1:
        keeps = f", and keeps its shape for about {_in_unit(float(lasting[0]), model)}" if lasting else ""
        swing = _size(periodic.variance, model)
        return Part(f"season of {_in_unit(float(periodic.period), model)}", f"swings by {swing}{keeps}")
    axes: list[Any] = [factor for factor in term.factors if isinstance(factor, On) and isinstance(factor.kernel, Radial)]
    if len(axes) == len(term.factors):
        size = _size(np.prod([float(axis.kernel.variance) for axis in axes]), model)
        over = ", ".join(f"{float(axis.kernel.lengthscale):.3g} along {model.layout.names[axis.dims[0]]}" for axis in axes)
        return Part("function of the place", f"moves by {size}, over about {over}")
    return Part("product", repr(term))


@describe.register
def _(term: DampedOscillator, model: TableModel) -> Part:
    keeps = f"keeps its phase for about {_in_unit(float(term.lifetime), model)}"
    return Part(f"wave of {_in_unit(float(term.period), model)}", f"swings by {_size(term.variance, model)}, and {keeps}")


@describe.register
def _(term: Constant, model: TableModel) -> Part:
    return Part("level", f"not known by {_size(term.variance, model)} before the data were seen")


@describe.register
def _(term: Linear, model: TableModel) -> Part:
    return Part("straight line", repr(term))


def _size(variance: Any, model: TableModel) -> str:
    """A standard deviation: in the units of the target, or on the scale of what stands behind labels and counts."""
    sd = float(np.sqrt(np.asarray(variance)))
    scale = {"regression": model.target, "counts": "in the logarithm of the mean"}.get(model.task, "in log odds")
    return f"±{sd:.3g} {scale}"


def _unit(model: TableModel) -> str:
    return model.layout.used[0].unit


def _in_unit(length: float, model: TableModel) -> str:
    """A length of time; in days where it is a small part of a year, and so on."""
    unit = _unit(model)
    if not unit:
        return f"{length:.4g} ({model.layout.names[0]})"
    smaller = [name for name in SECONDS if SECONDS[name] <= SECONDS[unit]]
    fits = next((name for name in smaller if length * SECONDS[unit] >= 0.1 * SECONDS[name]), smaller[-1])
    return f"{length * SECONDS[unit] / SECONDS[fits]:.4g} {fits}"


def _per(slope: float, model: TableModel) -> str:
    return f"{slope:.3g} {model.target} per {_unit(model).removesuffix('s') or model.layout.names[0]}"


def _span(model: TableModel) -> float:
    return float(np.ptp(np.asarray(model.fitted.inputs.points)[:, 0])) or 1.0


def forecast_rows(model: TableModel) -> list[list[str]]:
    """What is expected after the end of a series, its header first; empty for anything else."""
    if model.shape != "series" or model.task == "classification":
        return []
    places = model.forecast_places()
    places = places[np.unique(np.round(np.linspace(0, len(places) - 1, FORECASTS)).astype(int))]
    prediction = model.fitted.predict(places)
    lower, upper = prediction.interval(0.95)
    column = model.layout.used[0]
    rows = zip(places, prediction.observed.mean, lower, upper, strict=True)
    said = [[column.written(x), f"{mean:.5g}", f"{low:.5g} … {high:.5g}"] for x, mean, low, high in rows]
    zone = f" ({column.zone})" if column.zone else ""
    return [[f"{column.name}{zone}", model.target, "95 % interval"], *said]


def shown(score: float, name: str) -> str:
    """A score to three digits; parts of the rows in per cent."""
    return f"{100 * score:.3g}\N{NO-BREAK SPACE}%" if name in ("error rate", "in 95 % interval") else f"{score:.3g}"


def headline(model: TableModel) -> str:
    """What the chosen model is, and how good it was on rows it had not seen, in one or two sentences."""
    chosen = next((trial.name for trial in model.trials if trial.chosen), "")
    first = f"The model is: {chosen}." if chosen else ""
    scores = model.evaluation.scores
    if not scores:
        return first
    main = next(iter(scores["this model"]))
    others = {name: found[main] for name, found in scores.items() if name != "this model"}
    best = min(others, key=lambda name: others[name])
    said = f"On {model.evaluation.kind} its {main} is {shown(scores['this model'][main], main)}, "
    said += f"against {shown(others[best], main)} for {best}"
    inside = scores["this model"].get("in 95 % interval")
    held = "" if inside is None else f", and {100 * inside:.0f} % of the values lie in their 95 % intervals"
    return f"{first} {said}{held}."
