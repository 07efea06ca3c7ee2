"""What a model has learned, in words and in the units of the table."""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import numpy as np
from scipy.special import bdtr

from ...inputs.reading import few
from ...kernels.algebra import Kernel, On, Product, Sum
from ...kernels.induced import Induced
from ...kernels.nonstationary import Constant, IntegratedWiener, Linear, Spline, Wiener
from ...kernels.oscillating import DampedOscillator, Periodic
from ...kernels.stationary import Radial
from ...likelihoods.base import Likelihood
from ...likelihoods.counts import NegativeBinomial, Poisson
from ...likelihoods.gaussian import Gaussian
from ...likelihoods.heteroscedastic import HeteroscedasticGaussian
from ...likelihoods.positive import LogGaussian
from ...likelihoods.robust import StudentT
from ...likelihoods.switch import Switch
from ...models.pursuit.fitted import FittedProjectionPursuit
from ..model import TABLES, TableModel, on_map
from ..reading import CALENDAR, SECONDS
from .effects import Effect, effects_of
from .terms import Found, found_terms, noise_sd

LONG, SHORT = 1 / 5, 1 / 30  # parts of the span beyond which a function is a trend, or short-lived
LASTING = 10.0  # times the span, beyond which nobody can tell how long a season keeps its shape
KILOMETRES = 111.2  # of a degree of latitude
FORECASTS = 6  # rows of the table of forecasts
FEW_PER_COLUMN = 5  # rows for each column, below which what is learned is surer than it should be
SAID = {"years": SECONDS["years"], "days": SECONDS["days"], "hours": 3600.0, "minutes": 60.0, "seconds": 1.0}  # lengths of time
MOST_LEVELS = 6  # of a category whose effects are told
WEIGHTY = 4  # columns that are named for a projection
DRIFTING = 0.2  # of its swing, beyond which it is said that the level of a season moves
TOO_FEW, TOO_MANY = 0.025, 0.005  # probabilities below which coverage is far from what was asked
FEW_VALUES = 40  # whose coverage is said as a number
MOST_LENGTHS = 12  # of a function of many columns that are told with their intervals


class Part(NamedTuple):
    """A part of a model: what it is called, and what was learned of it."""

    name: str
    learned: str


def parts_of(model: TableModel) -> list[Part]:
    """The terms of the kernel and the noise, or the functions of a sum."""
    fitted = model.fitted
    if isinstance(fitted, FittedProjectionPursuit):
        found = [Part(f"projection {m + 1}", weights) for m, weights in enumerate(_weights(model))]
    else:
        moving = [Part(effect.name, _moved(effect, model)) for effect in effects_of(model) if effect.firm]
        found = [*(_terms(model) if found_terms(model) else []), *moving, *_idle(model)]
    return found + _scatter(getattr(fitted, "likelihood", None), model)


def _terms(model: TableModel) -> list[Part]:
    """What the terms of a kernel do over the data, and the names of those that do next to nothing."""
    names = part_names(model)
    described = [
        (describe(term.kernel, model, term)._replace(name=names[term.place]), term.negligible) for term in found_terms(model)
    ]
    little = ", ".join(part.name for part, negligible in described if negligible)
    others = [Part("left out", f"{little}: less than 2 % of the largest part, and less than the noise")] if little else []
    return [part for part, negligible in described if not negligible] + others


def part_names(model: TableModel) -> dict[int, str]:
    """What the terms of a kernel are called, by their place; of two alike the later is another."""
    names: dict[int, str] = {}
    for term in found_terms(model):
        name = describe(term.kernel, model, term).name
        names[term.place] = f"another {name}" if name in names.values() else name
    return names


def rough_number(value: float) -> str:
    """Two digits, and no powers of ten where there are a few more before the point."""
    return f"{float(f'{value:.2g}'):.0f}" if 1e2 <= abs(value) < 1e7 else f"{value:.2g}"


def short_number(value: float) -> str:
    """Three digits, and no powers of ten where there are a few more before the point."""
    return f"{value:.0f}" if 1e3 <= abs(value) < 1e7 else f"{value:.3g}"


def round_number(value: float) -> str:
    """Four digits, and no powers of ten where there are a few more before the point."""
    return f"{value:.0f}" if 1e4 <= abs(value) < 1e7 else f"{value:.4g}"


def _idle(model: TableModel) -> list[Part]:
    said = without_effect(model)
    return [Part("other columns", said)] if said else []


def without_effect(model: TableModel, most: int = 30) -> str:
    """The columns that do nothing, and those whose effect may be nothing; empty where there are none."""
    effects = effects_of(model)
    off = [effect.name for effect in effects if effect.off]
    unsure = [effect.name for effect in effects if not effect.off and not effect.firm]
    if len(off) + len(unsure) == len(effects) > 1:
        return "the effect of no single column is told apart from nothing"
    said = [f"no effect was found of {few(off, most)}"] if off else []
    said += [f"not told apart from nothing: {few(unsure, most)}"] if unsure else []
    return "; ".join(said)


def _moved(effect: Effect, model: TableModel) -> str:
    """How much a column moves the target, or the probability of the class that it moves most."""
    if effect.label:
        return f"moves the probability of {effect.label} by ±{effect.size:.2g}, that of the others by less"
    levels = [f"{level} {value:+.3g}" for level, value in zip(effect.levels, effect.mean, strict=True)] if effect.levels else []
    return f"moves it by {_size(effect.size, model)}" + (f": {few(levels, MOST_LEVELS)}" if levels else "")


def _weights(model: TableModel) -> list[str]:
    """For each projection its weightiest columns."""
    kept = [name for name, used in zip(model.layout.names, model.fitted.units.kept, strict=True) if used]
    said = []
    for u in model.fitted.directions:
        first = np.argsort(-np.abs(u))[:WEIGHTY]
        said.append("mostly " + ", ".join(f"{kept[d]} ({u[d]:+.2f})" for d in first))
    return said


def _scatter(likelihood: Likelihood | None, model: TableModel) -> list[Part]:
    by = f"scatter by ±{noise_sd(likelihood):.3g} {model.target}"
    if isinstance(likelihood, Gaussian):
        return [Part("noise", f"single observations {by}")]
    if isinstance(likelihood, StudentT):
        df = float(np.asarray(likelihood.df))
        return [Part("noise", f"most observations {by}, some lie far off ({df:.3g} degrees of freedom)")]
    if isinstance(likelihood, LogGaussian):
        share = float(np.sqrt(likelihood.noise))
        return [Part("noise", f"single observations scatter by ±{100 * share:.3g} % of their level")]
    if isinstance(likelihood, Switch):
        wide, share = noise_sd(likelihood.leaves[-1].likelihood), float(np.nanmean(model.fitted.outlier_probability))
        said = f"{100 * share:.2g} % come in groups of outliers, which scatter by ±{wide:.3g}"
        return [Part("noise", f"most observations {by}; {said}")]
    if isinstance(likelihood, HeteroscedasticGaussian):
        low, high = np.quantile(np.exp(0.5 * np.asarray(model.fitted.inference.mean)[:, 0]), [0.05, 0.95])
        return [Part("noise", f"changes: single observations scatter by ±{low:.3g} to ±{high:.3g} {model.target}")]
    if isinstance(likelihood, NegativeBinomial):
        more = float(np.asarray(likelihood.dispersion))
        return [Part("scatter", f"counts with mean μ have variance μ + {more:.3g} μ², more than Poisson counts")]
    if isinstance(likelihood, Poisson):
        return [Part("scatter", "counts scatter as Poisson counts do: their variance is their mean")]
    return []


@functools.singledispatch
def describe(term: Kernel, model: TableModel, found: Found) -> Part:
    """A term of a kernel in words, with its size in the posterior; its own notation where there are none."""
    return Part(type(term).__name__, f"{_moves(found, model)}; {term!r}")


@describe.register
def _(term: Induced, model: TableModel, found: Found) -> Part:
    inner = describe(term.kernel, model, found)
    return inner._replace(learned=f"{inner.learned}; seen through {len(term.inputs)} of its values")


@describe.register
def _(term: Sum, model: TableModel, found: Found) -> Part:
    names = list(dict.fromkeys(describe(one, model, found).name for one in term.terms))
    return Part("function", f"{_moves(found, model)}; the sum of: {', '.join(names)}")


@describe.register(IntegratedWiener)
@describe.register(Spline)
def _(term: IntegratedWiener | Spline, model: TableModel, found: Found) -> Part:
    return Part("trend that bends", _moves(found, model))


@describe.register
def _(term: Wiener, model: TableModel, found: Found) -> Part:
    return Part("random walk", _moves(found, model))


@describe.register
def _(term: Radial, model: TableModel, found: Found) -> Part:
    moves = _moves(found, model)
    if np.asarray(term.lengthscale).dtype == object:  # a metric
        return Part("function of all columns", f"{moves}; {term!r}")
    lengths = np.ravel(np.asarray(term.lengthscale)) * (model.scale if np.size(term.lengthscale) == len(model.scale) else 1.0)
    if len(model.center) == 1:
        length, span = float(lengths[0]), _span(model)
        name = "trend" if length > LONG * span else "short-lived part" if length < SHORT * span else "smooth part"
        return Part(name, f"{moves}; it changes within about {_in_unit(length, model)}")
    if len(lengths) == 1:
        name = "function of the place" if model.shape == "places" else "function of all columns"
        return Part(name, f"{moves}; it changes over a distance of about {_distance(float(lengths[0]), model)}")
    order = np.argsort(lengths / model.scale)
    named = ", ".join(f"{model.layout.names[d]} {short_number(lengths[d])}" for d in order[:8])
    return Part("function of all columns", f"{moves}; it changes over (the most relevant column first) {named}")


@describe.register
def _(term: On, model: TableModel, found: Found) -> Part:
    moves, places = _moves(found, model), on_map(model.layout.names) if model.shape == "places" else None
    inner: Any = term.kernel
    if places is not None and term.dims == places[:2] and isinstance(inner, Radial) and np.size(inner.lengthscale) == 1:
        far = _distance(float(np.ravel(inner.lengthscale)[0]), model)
        return Part("function of the place", f"{moves}; it changes over a distance of about {far}")
    names = [model.layout.names[d] for d in term.dims]
    said = "function of the other columns" if places is not None and len(names) > 1 else f"function of {', '.join(names)}"
    if not isinstance(inner, Radial) or np.asarray(inner.lengthscale).dtype == object:
        return Part(said, f"{moves}; {inner!r}")
    lengths = np.broadcast_to(np.ravel(np.asarray(inner.lengthscale)), len(names))
    over = ", ".join(f"{names[i]} {short_number(lengths[i] * model.scale[term.dims[i]])}" for i in np.argsort(lengths)[:8])
    return Part(said, f"{moves}; it changes over (the most relevant column first) {over}")


@describe.register
def _(term: Product, model: TableModel, found: Found) -> Part:
    periodic = next((factor for factor in term.factors if isinstance(factor, Periodic)), None)
    lasting = [factor.lengthscale for factor in term.factors if isinstance(factor, Radial)]
    if periodic is not None and len(model.center) == 1 and len(lasting) == len(term.factors) - 1:
        keeps = f", and keeps its shape {_for(float(lasting[0]), model)}" if lasting else ""
        moves = f"; its own level moves by ±{found.drift:.3g} besides" if found.drift > DRIFTING * found.size else ""
        swing = _size(found.size, model)
        return Part(f"season of {period_in_words(float(periodic.period), model)}", f"swings by {swing}{keeps}{moves}")
    axes: list[Any] = [factor for factor in term.factors if isinstance(factor, On) and isinstance(factor.kernel, Radial)]
    if len(axes) == len(term.factors):
        over = ", ".join(f"{float(axis.kernel.lengthscale):.3g} along {model.layout.names[axis.dims[0]]}" for axis in axes)
        return Part("function of the place", f"{_moves(found, model)}; it changes within about {over}")
    return Part("product", f"{_moves(found, model)}; {term!r}")


@describe.register
def _(term: DampedOscillator, model: TableModel, found: Found) -> Part:
    keeps = f"keeps its phase {_for(float(term.lifetime), model)}"
    return Part(f"wave of {period_in_words(float(term.period), model)}", f"swings by {_size(found.size, model)}, and {keeps}")


@describe.register
def _(term: Constant, model: TableModel, found: Found) -> Part:
    return Part("level", f"is about {found.middle:.3g} {scale_of(model)}")


@describe.register
def _(term: Linear, model: TableModel, found: Found) -> Part:
    return Part("straight line", f"{_moves(found, model)}; {term!r}")


def _distance(length: float, model: TableModel) -> str:
    """A length as the model sees it, in kilometres where places are in degrees."""
    places = on_map(model.layout.names) if model.shape == "places" else None
    if places is None:
        return f"{length:.3g}"
    own = length * float(model.scale[places.north])
    own_units = f"{round_number(own)} (in the units of {model.layout.names[places.east]})"
    return f"{KILOMETRES * own:.3g} km" if places.degrees else own_units


def _for(length: float, model: TableModel) -> str:
    """How long something lasts, as far as the data can tell."""
    return "throughout" if length > LASTING * _span(model) else f"for about {_in_unit(length, model)}"


def _moves(found: Found, model: TableModel) -> str:
    return f"moves by {_size(found.size, model)} over the data"


def _size(size: float, model: TableModel) -> str:
    """A size both ways: in the units of the target, or on the scale of what stands behind labels and counts."""
    many = f" (a factor of {np.exp(size):.3g})" if isinstance(getattr(model.fitted, "likelihood", None), LogGaussian) else ""
    return f"±{size:.3g} {scale_of(model)}{many}"


def scale_of(model: TableModel) -> str:
    """In which units a part of the model is counted, after a number."""
    if isinstance(getattr(model.fitted, "likelihood", None), LogGaussian):
        return f"in the logarithm of {model.target}"
    return {"regression": model.target, "counts": "in the logarithm of the mean"}.get(model.task, "in log odds")


def unit_of(model: TableModel) -> str:
    """The unit in which the first column counts time; empty where it is a number."""
    return model.layout.used[0].unit


def _in_unit(length: float, model: TableModel) -> str:
    """A length of time; in days where it is a small part of a year, and so on."""
    unit = unit_of(model)
    if not unit:
        return f"{length:.4g} ({model.layout.names[0]})"
    smaller = [name for name in SAID if SAID[name] <= SAID[unit]]
    least = lambda name: 0.1 if name == "years" else 0.95  # nobody counts in weeks or months here
    fits = next((name for name in smaller if length * SAID[unit] >= least(name) * SAID[name]), smaller[-1])
    number = f"{length * SAID[unit] / SAID[fits]:.4g}"
    return f"{number} {fits.removesuffix('s') if number == '1' else fits}"


def period_in_words(length: float, model: TableModel) -> str:
    """How long a season is, to the digits that the data tell: a tenth of a cycle over the whole series; or by the calendar."""
    error, unit = 0.1 * length**2 / _span(model), unit_of(model)
    for name, calendar in CALENDAR.items() if unit else ():
        if abs(length - calendar / SECONDS[unit]) <= error:
            return name
    decimals = max(-math.floor(math.log10(max(error, 1e-9 * length))), 0)
    return _in_unit(round(length, decimals), model)


def _span(model: TableModel) -> float:
    return float(np.ptp(np.asarray(model.fitted.inputs.points)[:, 0])) or 1.0


def forecast_rows(model: TableModel) -> list[list[str]]:
    """What is expected after the end of a series, its header first; empty for anything else."""
    if model.shape != "series" or model.task == "classification":
        return []
    places, found, column = model.forecast_places(), model.forecast(), model.layout.used[0]
    some = np.unique(np.round(np.linspace(0, len(places) - 1, FORECASTS)).astype(int))
    rows = zip(places[some], *(found[f"{model.target}_{what}"][some] for what in ("mean", "lower", "upper")), strict=True)
    said = [[column.written(x), f"{mean:.5g}", f"{low:.5g} … {high:.5g}"] for x, mean, low, high in rows]
    zone = f" ({column.zone})" if column.zone else ""
    return [[f"{column.name}{zone}", model.target, "95 % interval"], *said]


def shown(score: float, name: str) -> str:
    """A score to three digits; parts of the rows in per cent."""
    return f"{100 * score:.3g}\N{NO-BREAK SPACE}%" if name in ("error rate", "in 95 % interval") else f"{score:.3g}"


def alarms(model: TableModel) -> list[str]:
    """What a reader must know before trusting the intervals: coverage far from what was asked, few rows for many columns."""
    D, per_column = len(model.layout.names), model.rows / max(len(model.layout.names), 1)
    crowded = model.shape in TABLES and per_column < FEW_PER_COLUMN
    few_rows = [f"{model.rows} rows are few for {D} columns: what is said of single columns and of the noise is unsure"]
    return _coverage_alarm(model) + _outdone(model) + (few_rows if crowded else [])


def _outdone(model: TableModel) -> list[str]:
    """Where a plain method gives what was held out clearly more probability."""
    ends = {name: found["log loss"] for name, found in model.evaluation.intervals.items() if "log loss" in found}
    better = [name for name in ends if ends[name][1] < ends["this model"][0]]
    if not better:
        return []
    loss = lambda name: model.evaluation.scores[name]["log loss"]
    best = min(better, key=loss)
    said = f"{best!r} predicts better than this model (log loss {loss(best):.3g} against {loss('this model'):.3g})"
    return [f"{said}: a longer --budget may help"]


def _coverage_alarm(model: TableModel) -> list[str]:
    """Where as few in their intervals have less than 2.5 % probability, or as many less than 0.5 %.

    Neighbours in time are alike and count as blocks. Where few rows were held out, each given all others counts as well.
    """
    inside, rows = model.evaluation.scores.get("this model", {}).get("in 95 % interval"), len(model.evaluation.y)
    narrow = "the intervals are too narrow"
    if inside is not None and rows:
        count = round(rows / np.ceil(np.sqrt(rows))) if model.shape == "series" else rows
        said = f"{_share(inside, rows)} on {model.evaluation.kind} lie in their 95 % intervals"
        if bdtr(np.floor(inside * count + 1e-9), count, 0.95) < TOO_FEW:
            return [f"only {said}: {narrow}"]
        wide = bdtr(np.ceil(inside * count - 1e-9) - 1, count, 0.95) >= 1 - TOO_MANY
        if wide and model.task != "counts":  # an interval of counts holds more than was asked, as whole numbers do
            return [f"{said}: the intervals are wider than need be"]
    if model.evaluation.left_out and bdtr(model.evaluation.left_out[0], sum(model.evaluation.left_out), 0.95) < TOO_FEW:
        inside, count = model.evaluation.left_out[0], sum(model.evaluation.left_out)
        return [f"only {_share(inside / count, count)} lie in the 95 % intervals that all others give them: {narrow}"]
    return []


def _share(inside: float, rows: int) -> str:
    """A part of the values; of few their number, which does not look surer than it is."""
    return f"{round(inside * rows)} of {rows} values" if rows < FEW_VALUES else f"{100 * inside:.0f} % of the values"


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
    alarmed = bool(_coverage_alarm(model))  # which has said so
    share = "" if inside is None else _share(inside, len(model.evaluation.y))
    held = "" if inside is None or alarmed else f", and {share} lie in their 95 % intervals"
    return f"{first} {said}{held}."
