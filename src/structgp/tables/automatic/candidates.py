"""The models that suit a problem, the most reliable first: kernels for series and grids, sums of functions for tables."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from scipy.stats import linregress, norm

from ...engines.approximation import of_structure
from ...inputs.layouts import Grid, Inputs, as_inputs
from ...kernels.algebra import Kernel, Product, Sum
from ...kernels.nonstationary import Constant, Spline, Wiener
from ...kernels.oscillating import DampedOscillator, Periodic
from ...kernels.stationary import Matern32, Matern52, SquaredExponential
from ...learn.peak import choose
from ...likelihoods.base import Likelihood
from ...likelihoods.counts import NegativeBinomial, Poisson
from ...likelihoods.gaussian import Gaussian
from ...likelihoods.labels import Bernoulli
from ...likelihoods.positive import LogGaussian
from ...means import ConstantMean, ZeroMean
from ...models.candidates import (
    COMPILING,
    COMPILING_SITES,
    SUMS,
    Candidate,
    Limits,
    affordable_rows,
    by_class,
    finishing_work,
    for_many_rows,
    learning_seconds,
    sites_seconds,
)
from ...parameters.priors import Alike, LogNormal
from ...parameters.tree import free_vector, learned, learned_leaves
from ...process.gp import GP
from ..model import LINES, TABLES
from .noise import NAMES, with_noise
from .problem import Problem, seasons_of

LEAST_ROWS = 30  # of which a dense matrix is made, however little time there is
LEARNING_ROWS = 2000  # enough to learn how smooth the functions behind labels and counts are; they then see all rows
SHORT_SERIES = 30  # a trend with free line takes part from here on, where there are forecasts to compare it by
LONG_SERIES = 800  # beyond, a season is two waves, which have a state of two numbers each
COMPARING = 0.6  # part of the budget, for learning and comparing; the rest is for scores, predictions and the report
SEARCHING = 0.4  # part of the budget, for the search of projections
MOST_EVALUATIONS = 100  # of a climb to the functions of a sum
FEW_PER_COLUMN = 20  # rows for each column of a table, below which lengthscales and noise have priors
BELIEVED = 1.5  # width of the logarithms of lengthscales and variances in a sum, around what they were made with
TWICE = 2.0  # times the smallest value that the largest must be for a level that multiplies to differ from one that adds
PIECE, FEW_PIECES = (
    12,
    6,
)  # rows of a piece of a line, a season at least; pieces that tell how its level and its moves go together
SWELLING, PLAINLY = 0.5, 3.0  # power of the level that moves go with at least, and standard errors by which it is above zero
NOISE = (0.1, 1.5)  # part of the variance that is noise, typically, and the standard deviation of its logarithm


def candidates_for(
    problem: Problem, kernel: Kernel | Mapping[str, Kernel] | None, structure: str, budget: float
) -> list[Candidate]:
    """The models that suit the shape of the data, the most reliable first."""
    make = _gps(problem, structure, COMPARING * budget, own=kernel is None)
    if kernel is not None:
        given = {repr(kernel): kernel} if isinstance(kernel, Kernel) else kernel
        return [make(name, one, problem.task) for name, one in given.items()]
    likelihood = NegativeBinomial() if problem.task == "counts" else Bernoulli("logit")
    limits = Limits(SEARCHING * budget, MOST_EVALUATIONS, learning_rows=LEARNING_ROWS)
    others = for_many_rows(problem.task, problem.X.shape, likelihood, len(problem.classes), problem.seed, limits)
    if structure in SUMS:
        return [others[structure]]
    by_shape = {"series": series_kernels, "curve": curve_kernels, "grid": grid_kernels, "places": place_kernels}
    kernels = by_shape.get(problem.shape, table_kernels)(problem)
    found = [make(name, one, problem.task) for name, one in kernels.items()]
    if _multiplies(problem):
        found = _with_proportional(problem, found, by_shape[problem.shape], structure, COMPARING * budget)
    if problem.task == "counts":
        name, one = next(iter(kernels.items()))
        found.append(make(f"{name}, more scatter than Poisson", one, "scattered counts"))
    if problem.shape not in TABLES or structure != "auto":
        return found
    if problem.shape == "places":  # whose sums would be stripes on the map, but for what other columns do
        stripes = list(SUMS) if problem.X.shape[1] == 2 else ["projection-pursuit"]
        others = {name: one for name, one in others.items() if name not in stripes}
    if any(candidate.rows for candidate in found):  # what sees some of the rows only comes last
        return [*others.values(), *found]
    sums = [others[name] for name in SUMS if name in others]
    return [*found, *sums] if problem.shape == "places" else [*sums[:1], *found, *sums[1:]]


def _multiplies(problem: Problem) -> bool:
    """Whether noise could be in proportion to the level: positive numbers of different sizes along a line."""
    line = problem.task == "regression" and problem.shape in LINES
    return line and problem.y.min() > 0 and problem.y.max() >= TWICE * problem.y.min()


def swells(problem: Problem) -> bool:
    """Whether positive numbers along a line plainly move about more where their level is higher."""
    if not _multiplies(problem):
        return False
    t, y = problem.X[:, 0], problem.y[np.argsort(problem.X[:, 0], kind="stable")]
    season = min(seasons_of(t, problem.y, problem.calendar).values(), default=0.0)
    rows = max(PIECE, int(np.ceil(season * len(t) / (np.ptp(t) or 1.0))))
    pieces = y[: len(y) // rows * rows].reshape(-1, rows)
    if len(pieces) < FEW_PIECES:
        return False
    steps = np.arange(rows) - (rows - 1) / 2
    around = pieces - pieces.mean(axis=1, keepdims=True)
    around = around - np.outer(around @ steps / (steps @ steps), steps)
    level, moves = np.log(pieces.mean(axis=1)), np.log(np.maximum(around.std(axis=1), 1e-12 * pieces.mean(axis=1)))
    line = linregress(level, moves) if np.ptp(level) > 0 else None
    return line is not None and line.slope > SWELLING and line.slope > PLAINLY * line.stderr


def _with_proportional(
    problem: Problem, candidates: list[Candidate], kernels_of: Any, structure: str, affordable: float
) -> list[Candidate]:
    """The candidates, each with the same for the logarithm of the level, with noise in proportion to it."""
    logs = problem._replace(y=np.log(problem.y))
    make, kernels = _gps(logs, structure, affordable, own=True), list(kernels_of(logs).values())
    if len(kernels) != len(candidates):  # a season shows on one scale only
        return candidates
    proportional = lambda one, kernel: functools.partial(
        make, f"{one.name}, noise in proportion to the level", kernel, "proportional"
    )
    return [one._replace(proportional=proportional(one, kernel)) for one, kernel in zip(candidates, kernels, strict=True)]


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
    """A function of all columns, with a lengthscale for each; few rows do not tell one from another without a prior."""
    N, D = problem.X.shape
    scales: Any = np.full(D, np.sqrt(D))
    if problem.task == "classification":
        return {"one function of all columns": SquaredExponential(learned(scales, prior=Alike()), 4.0) + Constant()}
    return {"one function of all columns": Matern52(learned(scales, prior=Alike()) if N < FEW_PER_COLUMN * D else scales)}


def place_kernels(problem: Problem) -> dict[str, Kernel]:
    """A function of the place that changes over one length in all directions, and one of the other columns beside it; then
    one of all columns, with a lengthscale for each."""
    if problem.map is None:
        return table_kernels(problem)
    east, north, _ = problem.map
    others = [d for d in range(problem.X.shape[1]) if d not in (east, north)]
    kind, level = (SquaredExponential, Constant()) if problem.task == "classification" else (Matern52, None)
    place = kind().on(east, north) if others else kind()
    scales: Any = np.full(len(others), np.sqrt(len(others)))
    kernel = place + kind(scales if len(others) > 1 else 1.0).on(*others) if others else place
    name = "a function of the place" + (" + one of the other columns" if others else "")
    return {name: kernel if level is None else kernel + level} | table_kernels(problem)


def _gps(problem: Problem, structure: str, affordable: float, own: bool) -> Callable[[str, Kernel, str], Candidate]:
    """How a kernel becomes a candidate for this problem, with a dense matrix where so many seconds are enough for it."""
    classes = len(problem.classes)
    exact, approximate = of_structure(structure)
    how: dict[str, Any] = {"structure": exact, "approximate": approximate}
    likelihoods: dict[str, Callable[[], Likelihood]] = {
        "regression": functools.partial(_noise, problem),
        "classification": Bernoulli,
        "counts": Poisson,
        "proportional": LogGaussian,
        "scattered counts": lambda: NegativeBinomial(0.1),  # with more, a season is taken for scatter from the start
    }

    def make(name: str, kernel: Kernel, kind: str) -> Candidate:
        level = kind != "classification" or approximate is not None
        mean = ConstantMean() if level and not _is_free(kernel) else ZeroMean()
        gp = GP(kernel, likelihoods[kind](), mean)
        return given(name, gp, kind, _around_its_start(gp) if own and problem.shape in LINES else gp)

    def given(name: str, gp: GP, kind: str, made: GP) -> Candidate:
        latents = gp.likelihood.latents
        times = latents**2  # a second latent has searches of its own, is searched for from two starts, or coupled to the first
        latent = "outliers" if latents > 1 else kind
        limit = max(affordable_rows(problem.X.shape[1], latent, classes, affordable / times), LEAST_ROWS)
        inputs = as_shape(problem.X, problem.shape)
        plan, rows = gp.plan(inputs, **how), None
        if plan.engine.structure == "dense" and len(inputs) > limit:
            plan, rows = gp.plan(problem.X[:limit], **how), limit
        restarts = None if len(inputs) <= 200 and latents == 1 else 0
        options: dict[str, Any] = {**how, "seed": problem.seed, "restarts": restarts, "parameters": "best"}
        fit = lambda X, y, tell, seconds: gp.fit(X, y, progress=tell, seconds=seconds, **options)
        refit = lambda fitted, X, y: fitted.given(X, y, missing="infer", **how)
        compiling = COMPILING if kind == "regression" else latents * COMPILING_SITES
        if plan.engine.structure == "dense" and kind != "regression":
            seconds = compiling + times * sites_seconds(rows or len(inputs), problem.X.shape[1], kind, classes)
        else:
            seconds = compiling + times * learning_seconds(plan.offers[0].cost, problem.X.shape[1], classes)

        def robust(gp: GP, noise: str, scale: float) -> Candidate | None:
            if approximate is not None and noise != "outliers":
                return None
            of = lambda gp: with_noise(gp, noise, scale, problem.X, problem.y)
            return given(f"{name}, {NAMES[noise]}", of(gp), noise, of(made))

        cheap = kind == "regression" and problem.shape != "grid"
        price = _price_of_a_line(problem.X[:, 0], problem.y) if _is_free(gp.kernel) else 0.0
        one = Candidate(name, fit, refit, seconds, rows, plan, gp, robust if cheap else None, price, compiling=compiling)
        one = one._replace(finishing=finishing_work(plan.offers[0].cost, len(inputs)))
        if not is_averaged(gp, problem.shape):
            return one
        return by_class(one._replace(average=functools.partial(_averaged, how, made)), classes)

    return make


def is_averaged(gp: GP, shape: str) -> bool:
    """Whether there is an average over the parameters of a candidate: of several latents in a table it would take minutes."""
    return gp.likelihood.latents == 1 or shape in LINES


def _noise(problem: Problem) -> Gaussian:
    """Gaussian noise; in tables with few rows for their columns it is not believed to be next to nothing."""
    N, D = problem.X.shape
    if problem.shape not in TABLES or N >= FEW_PER_COLUMN * D:
        return Gaussian()
    typical = NOISE[0] * (float(np.var(problem.y)) or 1.0)
    return Gaussian(learned(typical, prior=LogNormal(np.log(typical), NOISE[1])))


def _averaged(how: dict[str, Any], gp: GP, fitted: Any, X: Any, y: np.ndarray, parameters: Any) -> Any:
    """What was learned, averaged over parameters that the rows leave unsure: from where the best are as well."""
    if choose(parameters, int(np.sum(~np.isnan(y))), len(free_vector(gp))).averaging is None:
        return fitted
    options: dict[str, Any] = {"missing": "infer", "restarts": 0, "progress": False, "starts": (fitted.gp,), **how}
    return gp.fit(X, y, parameters=parameters, **options)


def _around_its_start(gp: GP) -> GP:
    """A sum whose terms are believed to be about what they were made as: what is short-lived is short-lived, and small.

    How much a trend bends and a walk steps has beliefs of its own, and so has the size of what is behind labels.
    """
    if not isinstance(gp.kernel, Sum):
        return gp
    own = tuple(f"kernel.terms[{i}]." for i, term in enumerate(gp.kernel.terms) if isinstance(term, (Spline, Wiener)))
    names = ("lengthscale", "variance") if gp.likelihood.tells_size else ("lengthscale",)
    made = [leaf for leaf in learned_leaves(gp) if leaf.path.endswith(names) and not leaf.path.startswith(own)]
    made = [leaf for leaf in made if leaf.prior is None]
    return gp.with_prior({leaf.path: LogNormal(float(np.log(leaf.value)), BELIEVED) for leaf in made}) if made else gp


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
