"""The models that suit a problem, the most reliable first: kernels for series and grids, sums of functions for tables."""

from __future__ import annotations

import dataclasses
import functools
import operator
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import norm

from ...engines.plan import Plan
from ...inputs.layouts import Grid, Inputs, as_inputs
from ...kernels.algebra import Kernel, Product
from ...kernels.nonstationary import Constant, Spline, Wiener
from ...kernels.oscillating import DampedOscillator, Periodic
from ...kernels.stationary import Matern32, Matern52, SquaredExponential
from ...learn.clock import Deadline
from ...likelihoods.base import Likelihood
from ...likelihoods.counts import NegativeBinomial, Poisson
from ...likelihoods.gaussian import Gaussian
from ...likelihoods.labels import Bernoulli
from ...likelihoods.robust import StudentT
from ...means import ConstantMean, ZeroMean
from ...models.additive.model import AdditiveGP
from ...models.labels import AdditiveLabels, ProjectionPursuitLabels
from ...models.one_against_rest import OneAgainstRest
from ...models.pursuit.model import ProjectionPursuitGP
from ...parameters.priors import Alike
from ...parameters.tree import learned
from ...process.gp import GP
from .problem import Problem, seasons_of

DENSE_ROWS = 1500  # up to this many rows the whole covariance matrix is affordable
LABEL_ROWS = 800  # likewise, where observations are not Gaussian
LEARNING_ROWS = 2000  # enough to learn how smooth the functions behind labels and counts are; they then see all rows
SHORT_SERIES = 30  # a trend with free line takes part from here on, where there are forecasts to compare it by
LONG_SERIES = 800  # beyond, a season is two waves, which have a state of two numbers each
FLOPS = 4e9  # a second on a small machine, for the choice of what there is time for
COMPILING = 4.0  # seconds before a new kind of model runs at all
EVALUATIONS = 60  # of the evidence that a climb typically takes
SUMS = {"additive": "a sum of functions of one column each", "projection-pursuit": "a sum of functions of learned projections"}

Tell = Any  # a function that hears the number of the evaluation and the best log evidence so far


class Candidate(NamedTuple):
    """A model to try: `fit` learns from rows, `refit` gives what was learned other rows."""

    name: str
    fit: Callable[[Any, np.ndarray, Tell, float | None], Any]  # within so many seconds
    refit: Callable[[Any, Any, np.ndarray], Any]
    seconds: float = 0.0  # about how long learning takes
    rows: int | None = None  # the most rows that it can take
    plan: Plan | None = None  # what would run, for a plain process
    robust: Callable[[GP, float], Candidate] | None = None  # from what was learned, the same for noise with outliers
    price: float = 0.0  # what the evidence leaves out: the prior density of a free level and slope


def candidates_for(problem: Problem, kernel: Kernel | None, structure: str, budget: float) -> list[Candidate]:
    """The models that suit the shape of the data, the most reliable first."""
    make = _gps(problem, structure)
    if kernel is not None:
        return [make(repr(kernel), kernel, problem.task)]
    if structure in SUMS:
        return _sums(problem, budget)[structure]
    by_shape = {"series": series_kernels, "curve": curve_kernels, "grid": grid_kernels, "table": table_kernels}
    kernels = by_shape[problem.shape](problem)
    found = [make(name, one, problem.task) for name, one in kernels.items()]
    if problem.task == "counts":
        name, one = next(iter(kernels.items()))
        found.append(make(f"{name}, more scatter than Poisson", one, "scattered counts"))
    if problem.shape != "table" or structure != "auto":
        return found
    additive, projections = _sums(problem, budget).values()
    partial = any(candidate.rows for candidate in found)  # what sees some of the rows only comes last
    return [*additive, *projections, *found] if partial else [*additive, *found, *projections]


def series_kernels(problem: Problem) -> dict[str, Kernel]:
    """A trend with a season when the data swing, something short-lived beside it, a random walk, smooth and rough functions.

    The trend of a spline can bend at any time, so that what is forecast is not surer than the past allows; that of a Matérn
    process returns to its mean. A random walk goes on from where it is, with no more than that to say of its course.
    """
    t, y = problem.X[:, 0], problem.y
    span = float(np.ptp(t)) or 1.0
    periods = seasons_of(t, y, problem.calendar) if problem.task != "classification" else {}
    spread = float(np.var(y)) if problem.task == "regression" else 1.0
    bends = problem.task == "regression" and len(t) >= SHORT_SERIES
    returning = Matern52(lengthscale=span / 3, variance=spread)
    bending = Spline(variance=10 * spread / span**3, start=float(t.min()))
    walk = Wiener(variance=spread / span, start=float(t.min()) - span / len(t))  # its first value has a variance, too
    short = Matern32(lengthscale=min(periods.values(), default=span / 50) / 2, variance=0.01 * spread)
    trends = {"trend that bends": bending, "trend": returning} if bends else {"trend": returning}
    found: dict[str, Kernel] = {}
    if periods:
        seasons = [_season(period, span, 0.1 * spread, len(t), name in problem.calendar) for name, period in periods.items()]
        season = functools.reduce(operator.add, seasons)
        named = f"season of {' and of '.join(periods)}"
        found |= {f"{name} + {named} + short-lived": trend + season + short for name, trend in trends.items()}
        found[f"random walk + {named}"] = walk + season
    found |= curve_kernels(problem)
    if problem.task != "classification":
        found["random walk"] = walk
    if not periods and bends:
        found |= {"trend that bends": bending, "trend that bends + short-lived": bending + short}
    return found


def _season(period: float, span: float, variance: float, rows: int, known: bool) -> Kernel:
    """A wave of any shape that keeps its shape for long; in long series the sum of two plain waves."""
    fixed: Any = lambda kernel: kernel.freeze("period") if known else kernel
    if rows <= LONG_SERIES:
        return fixed(Periodic(period=period, variance=variance)) * Matern52(lengthscale=span).freeze("variance")
    return fixed(DampedOscillator(period, span, variance)) + fixed(DampedOscillator(period / 2, span, 0.1 * variance))


def curve_kernels(problem: Problem) -> dict[str, Kernel]:
    """Smooth and rough functions of one column."""
    length = (float(np.ptp(problem.X[:, 0])) or 1.0) / 10
    level = lambda kernel: kernel + Constant() if problem.task == "classification" else kernel  # others have a mean
    return {
        "smooth (Matern52)": level(Matern52(lengthscale=length)),
        "rough (Matern32)": level(Matern32(lengthscale=length)),
    }


def grid_kernels(problem: Problem) -> dict[str, Kernel]:
    """Products over the axes."""
    axes = range(problem.X.shape[1])
    product = lambda kind: Product(tuple(kind().on(d) for d in axes))
    return {"smooth grid (Matern52 × …)": product(Matern52), "rough grid (Matern32 × …)": product(Matern32)}


def table_kernels(problem: Problem) -> dict[str, Kernel]:
    """A function of all columns, with a lengthscale for each."""
    D = problem.X.shape[1]
    if problem.task == "classification":
        scales = learned(np.full(D, np.sqrt(D)), prior=Alike())
        return {"all columns together (ARD)": SquaredExponential(scales, 4.0) + Constant()}
    return {"all columns together (ARD)": Matern52(np.full(D, np.sqrt(D)))}


def _gps(problem: Problem, structure: str) -> Callable[[str, Kernel, str], Candidate]:
    """How a kernel becomes a candidate for this problem."""
    likelihoods: dict[str, Callable[[], Likelihood]] = {
        "regression": Gaussian,
        "classification": Bernoulli,
        "counts": Poisson,
        "scattered counts": lambda: NegativeBinomial(0.1),  # with more, a season is taken for scatter from the start
    }

    def make(name: str, kernel: Kernel, kind: str) -> Candidate:
        mean = ZeroMean() if _is_free(kernel) or kind == "classification" else ConstantMean()
        return given(name, GP(kernel, likelihoods[kind](), mean), kind)

    def given(name: str, gp: GP, kind: str) -> Candidate:
        limit = DENSE_ROWS if kind == "regression" else LABEL_ROWS
        inputs = as_shape(problem.X, problem.shape)
        plan, rows = gp.plan(inputs, structure), None
        if plan.engine.structure == "dense" and len(inputs) > limit:
            plan, rows = gp.plan(problem.X[:limit], structure), limit
        cost = plan.offers[0].cost
        sweeps = 1 if kind == "regression" else 5 * (1 if len(problem.classes) < 3 else len(problem.classes))
        restarts = None if len(inputs) <= 200 else 0
        options: dict[str, Any] = {"structure": structure, "seed": problem.seed, "restarts": restarts}
        fit = lambda X, y, tell, seconds: gp.fit(X, y, progress=tell, seconds=seconds, **options)
        refit = lambda fitted, X, y: fitted.gp.condition(X, y, structure=structure, missing="infer")
        seconds = COMPILING + sweeps * EVALUATIONS * (cost.flops if cost else 0.0) / FLOPS
        robust = lambda gp, scale: given(
            f"{name}, noise with outliers", GP(gp.kernel, StudentT(scale=scale), gp.mean), "outliers"
        )
        cheap = kind == "regression" and problem.shape != "grid"
        price = _price_of_a_line(problem.X[:, 0], problem.y) if _is_free(gp.kernel) else 0.0
        return _by_class(Candidate(name, fit, refit, seconds, rows, plan, robust if cheap else None, price), problem)

    return make


def _is_free(kernel: Kernel) -> bool:
    """Whether it leaves the level free by itself."""
    return any(isinstance(term, Spline) for term in getattr(kernel, "terms", (kernel,)))


def _price_of_a_line(t: np.ndarray, y: np.ndarray) -> float:
    """The log density of a level and a slope that are as large as the spread of the data and one standard deviation off.

    The evidence of a spline has a density of one for both, whatever their units, and cannot be compared without it.
    """
    sd, slope = np.std(y) or 1.0, np.sqrt(12.0) * (np.std(y) or 1.0) / (np.ptp(t) or 1.0)
    return float(2 * norm.logpdf(1.0) - np.log(sd) - np.log(slope))


def as_shape(X: np.ndarray, shape: str) -> Inputs:
    """Rows as the inputs of a process."""
    return Grid.from_points(X) if shape == "grid" else as_inputs(X)


def _sums(problem: Problem, budget: float) -> dict[str, list[Candidate]]:
    """Sums of functions, by the structure that asks for them."""
    seconds = 0.4 * budget
    least = max(COMPILING, problem.X.size * 5e-5)
    if problem.task == "regression":
        return {
            "additive": [_additive()],
            "projection-pursuit": [_projections(problem, seconds, least)],
        }
    likelihood = Bernoulli("logit") if problem.task == "classification" else NegativeBinomial()
    functions = 1 if len(problem.classes) < 3 else len(problem.classes)
    return {
        "additive": [_additive_labels(problem, likelihood, functions)],
        "projection-pursuit": [_projected_labels(problem, likelihood, seconds / functions, functions * least)],
    }


def _additive() -> Candidate:
    def refit(fitted: Any, X: Any, y: np.ndarray) -> Any:
        return AdditiveGP(fitted.kernel, fitted.likelihood).condition(X, y)

    def fit(X: Any, y: np.ndarray, tell: Tell, seconds: float | None) -> Any:
        return AdditiveGP().fit(X, y, max_evaluations=60, progress=tell, seconds=seconds)

    return Candidate(SUMS["additive"], fit, refit)


def _projections(problem: Problem, seconds: float, least: float) -> Candidate:
    def fit(X: Any, y: np.ndarray, tell: Tell, left: float | None) -> Any:
        model = ProjectionPursuitGP(seconds=_least(seconds, left))
        return model.fit(X, y, seed=problem.seed, max_evaluations=100, progress=tell)

    def refit(fitted: Any, X: Any, y: np.ndarray) -> Any:
        size = fitted.model.projections
        model = ProjectionPursuitGP(projections=size, seconds=0.5 * seconds)
        return model.fit(X, y, seed=problem.seed, max_evaluations=100)

    return Candidate(SUMS["projection-pursuit"], fit, refit, least)


def _additive_labels(problem: Problem, likelihood: Likelihood, functions: int) -> Candidate:
    """Labels or counts behind a sum of functions: how smooth they are is learned from some rows, all rows are then seen."""

    def one(X: Any, y: np.ndarray, tell: Tell, left: float | None) -> Any:
        few = np.random.default_rng(problem.seed).permutation(len(y))[:LEARNING_ROWS]
        few = few if problem.task == "counts" else _with_both(few, y)
        points = np.asarray(as_inputs(X).points)
        learnt = AdditiveLabels(likelihood=likelihood).fit(points[few], y[few], progress=tell, seconds=left)
        return given(learnt, points, y)

    def given(fitted: Any, X: Any, y: np.ndarray) -> Any:
        conditioned = AdditiveLabels(fitted.model.kernel, fitted.likelihood).condition(X, y)
        return dataclasses.replace(conditioned, learning=fitted.learning)

    seconds = functions * (COMPILING + min(len(problem.y), LEARNING_ROWS) * problem.X.shape[1] ** 2 * 1e-5)
    return _by_class(Candidate(SUMS["additive"], one, given, seconds), problem)


def _projected_labels(problem: Problem, likelihood: Likelihood, seconds: float, least: float) -> Candidate:
    def one(X: Any, y: np.ndarray, tell: Tell, left: float | None) -> Any:
        model = ProjectionPursuitLabels(likelihood, seconds=_least(seconds, left))
        return model.fit(X, y, seed=problem.seed, max_evaluations=100, progress=tell)

    def again(fitted: Any, X: Any, y: np.ndarray) -> Any:
        size = fitted.model.functions.projections
        model = ProjectionPursuitLabels(likelihood, size, seconds=0.5 * seconds)
        return model.fit(X, y, seed=problem.seed, max_evaluations=100)

    return _by_class(Candidate(SUMS["projection-pursuit"], one, again, least), problem)


def _by_class(one: Candidate, problem: Problem) -> Candidate:
    """A candidate for two labels, counts or numbers as it is; for several classes, one for each against the rest.

    EP of two labels gives better probabilities than Laplace's approximation of all classes at once, whose latents stay unsure.
    """
    count = len(problem.classes)
    if count < 3:
        return one

    def fit(X: Any, y: np.ndarray, tell: Tell, left: float | None) -> Any:
        deadline = Deadline.after(left)

        def against_rest(c: int) -> Any:
            share = None if left is None else max(deadline.left(), 0.0) / (count - c)
            return one.fit(X, (y == c).astype(float), tell, share)

        return OneAgainstRest(tuple(against_rest(c) for c in range(count)))

    def refit(fitted: Any, X: Any, y: np.ndarray) -> Any:
        codes = [np.where(np.isnan(y), np.nan, y == c) for c in range(count)]
        return OneAgainstRest(tuple(one.refit(part, X, code) for part, code in zip(fitted.parts, codes, strict=True)))

    return one._replace(fit=fit, refit=refit)


def _least(seconds: float, left: float | None) -> float:
    return seconds if left is None else min(seconds, left)


def _with_both(rows: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The rows, and one of each label should it be missing among them."""
    return np.union1d(rows, [int(np.argmax(y == label)) for label in np.unique(y)])
