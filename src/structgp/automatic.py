"""What to fit when nothing is said: the task from the target, candidates from the shape of the data, a choice among them.

A part of the rows is held out: the last ones of a series, random ones of a table. Each candidate learns from the others; series
and grids are compared by the evidence, which is exact there, tables by the log probability of the rows held out. The chosen one
is then given all rows.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.signal import lombscargle
from scipy.stats import norm, poisson

from . import metrics
from .engines.plan import Plan
from .gp import GP
from .inputs import Grid, Inputs, as_inputs, few
from .kernels.algebra import Kernel, Product
from .kernels.nonstationary import Constant
from .kernels.oscillating import Periodic
from .kernels.stationary import Matern32, Matern52, SquaredExponential
from .likelihoods.base import Likelihood
from .likelihoods.categories import Categorical
from .likelihoods.counts import NegativeBinomial, Poisson
from .likelihoods.gaussian import Gaussian
from .likelihoods.labels import Bernoulli
from .means import ConstantMean, ZeroMean
from .models.additive import AdditiveGP
from .models.projection_pursuit import ProjectionPursuitGP
from .parameters import learned
from .priors import Alike
from .table_model import TASKS, Evaluation, TableModel, Trial, predict_rows
from .tables import MOST_LEVELS, Layout, as_floats, as_text, kind_of

if TYPE_CHECKING:
    import polars as pl

FEW_ROWS = 20  # below this no row can be spared
DENSE_ROWS = 1500  # up to this many rows the whole covariance matrix is affordable
LABEL_ROWS = 800  # likewise, where observations are not Gaussian
KEPT = 1000  # rows of an evaluation that are remembered
TYPICAL_COUNT = 30.0  # whole numbers with a smaller median than this are taken for counts
FLOPS = 4e9  # a second on a small machine, for the choice of what there is time for
COMPILING = 4.0  # seconds before a new kind of model runs at all
EVALUATIONS = 60  # of the evidence that a climb typically takes
SEASON = 0.25  # part of the variance, less the trend, that a wave must explain to be called a season

Report = Callable[[str], None]


class Candidate(NamedTuple):
    """A model to try: `fit` learns from rows, `refit` gives what was learned other rows."""

    name: str
    fit: Callable[[Any, np.ndarray], Any]
    refit: Callable[[Any, Any, np.ndarray], Any]
    seconds: float = 0.0  # about how long learning takes
    rows: int | None = None  # the most rows that it can take
    plan: Plan | None = None  # what would run, for a plain process


class Problem(NamedTuple):
    """What there is to learn: inputs in the units of the model, targets as numbers, and what is known of their shape."""

    X: np.ndarray
    y: np.ndarray
    task: str
    shape: str
    classes: tuple[str, ...]
    seed: int


def task_of(target: pl.Series, task: str = "auto") -> str:
    """Regression, classification or counts, from the values of the target."""
    if task not in ("auto", *TASKS):
        raise ValueError(f"task must be auto or one of {', '.join(TASKS)}, got {task!r}")
    if target.is_null().all():
        raise ValueError(f"the target {target.name!r} has no value at all: choose another column")
    kind = kind_of(target)
    if kind == "date":
        raise ValueError(f"the target {target.name!r} holds dates: a number, a count or a label is needed")
    if kind == "category":
        return _task_of_text(target, task)
    values = as_floats(target)
    seen = values[~np.isnan(values)]
    whole = bool((seen == np.round(seen)).all())
    if task == "counts" and (not whole or seen.min() < 0):
        raise ValueError(
            f"the target {target.name!r} holds {seen.min():g} … {seen.max():g}: counts are whole numbers from 0 on"
        )
    if task != "auto":
        return task
    if whole and len(np.unique(seen)) == 2:
        return "classification"
    return "counts" if whole and seen.min() >= 0 and np.median(seen) < TYPICAL_COUNT else "regression"


def _task_of_text(target: pl.Series, task: str) -> str:
    levels = sorted({value for value in as_text(target) if value is not None})
    if task in ("regression", "counts"):
        raise ValueError(
            f"the target {target.name!r} holds text ({few(levels, 3)}): {task} needs numbers, or task classification"
        )
    if len(levels) > MOST_LEVELS:
        raise ValueError(
            f"the target {target.name!r} holds text with {len(levels)} different values ({few(levels, 3)}): "
            f"a number, or a label with at most {MOST_LEVELS} values, is needed"
        )
    return "classification"


class Prepared(NamedTuple):
    """A table that is ready to be learned from: what it holds, what there is to learn, and what could learn it."""

    layout: Layout
    problem: Problem
    center: np.ndarray
    scale: np.ndarray
    candidates: list[Candidate]
    skipped: int  # rows without a target or a date


def prepare(
    frame: pl.DataFrame,
    target: str,
    *,
    task: str = "auto",
    time_column: str | None = None,
    kernel: Callable[[list[str]], Kernel] | None = None,
    structure: str = "auto",
    budget: float = 60.0,
    seed: int = 0,
) -> Prepared:
    """Read a table and see what could be fitted; `kernel` makes a kernel from the names of the inputs."""
    task = task_of(frame[target], task)
    layout = layout_of(frame, target, time_column)
    y, classes = _targets(frame[target], task)
    X = layout.numbers(frame)
    used = np.isfinite(X).all(axis=1) & ~np.isnan(y)
    if used.sum() < 3:
        raise ValueError(f"only {int(used.sum())} rows have a target and all inputs: at least 3 are needed")
    shape = shape_of(X[used], layout)
    plain = kernel is not None or shape != "table"
    center, scale = (np.zeros(X.shape[1]), np.ones(X.shape[1])) if plain else _units(X[used])
    problem = Problem((X[used] - center) / scale, y[used], task, shape, classes, seed)
    candidates = candidates_for(problem, None if kernel is None else kernel(layout.names), structure, budget)
    return Prepared(layout, problem, center, scale, candidates, int(len(used) - used.sum()))


def fit_table(
    frame: pl.DataFrame, target: str, *, budget: float = 60.0, say: Report = lambda line: None, **options: Any
) -> TableModel:
    """The best model of a target that is found within a budget of seconds; `say` hears what is done meanwhile."""
    deadline = time.perf_counter() + budget
    ready = prepare(frame, target, budget=budget, **options)
    problem = ready.problem
    fitted, trials, evaluation, notes = compare(problem, ready.candidates, deadline, say)
    if ready.skipped:
        notes = (*notes, f"{ready.skipped} rows without a target or a date were not learned from")
    return TableModel(
        fitted,
        ready.layout,
        problem.task,
        target,
        ready.center,
        ready.scale,
        len(problem.y),
        problem.shape,
        problem.classes,
        trials,
        evaluation,
        notes,
    )


def layout_of(frame: pl.DataFrame, target: str, time_column: str | None) -> Layout:
    """All columns but the target as inputs, or the time alone."""
    chosen = frame if time_column is None else frame.select(time_column)
    return Layout.of(chosen, leave_out=(target,))


def shape_of(X: np.ndarray, layout: Layout) -> str:
    """Whether rows are a series, cells of a grid, or a table without a layout."""
    if X.shape[1] == 1:
        return "series"
    if X.shape[1] > 3 or any(column.kind == "category" for column in layout.used) or len(X) < 25:
        return "table"
    sizes = [len(np.unique(column)) for column in X.T]
    full = min(sizes) >= 3 and np.prod(sizes, dtype=float) <= 1.5 * len(X)
    return "grid" if full and len(np.unique(X, axis=0)) == len(X) else "table"


def _targets(series: pl.Series, task: str) -> tuple[np.ndarray, tuple[str, ...]]:
    """The target as numbers, NaN where there is none, and the names of classes."""
    if task != "classification":
        return as_floats(series), ()
    text = as_text(series)
    classes = tuple(sorted({value for value in text if value is not None}))
    if len(classes) < 2:
        raise ValueError(f"the target {series.name!r} is {classes[0]!r} everywhere: two labels at least are needed")
    code = {name: float(c) for c, name in enumerate(classes)}
    return np.array([np.nan if value is None else code[value] for value in text]), classes


def _units(X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    spread = X.std(axis=0)
    return X.mean(axis=0), np.where(spread > 0, spread, 1.0)


def candidates_for(problem: Problem, kernel: Kernel | None, structure: str, budget: float) -> list[Candidate]:
    """The models that suit the shape of the data, the most reliable first."""
    make = _gps(problem, structure)
    if kernel is not None:
        return [make(repr(kernel), kernel, problem.task)]
    if structure in ("additive", "projection-pursuit") and problem.task != "regression":
        raise ValueError(f"structure {structure!r} is for regression here, not for {problem.task}: leave it out")
    if structure == "additive":
        return [_additive()]
    if structure == "projection-pursuit":
        return [_projections(problem, budget)]
    kernels = {"series": series_kernels, "grid": grid_kernels, "table": table_kernels}[problem.shape](problem)
    found = [make(name, one, problem.task) for name, one in kernels.items()]
    if problem.task == "counts":
        name, one = next(iter(kernels.items()))
        found.append(make(f"{name}, more scatter than Poisson", one, "scattered counts"))
    if problem.task == "regression" and problem.shape == "table":
        found = [_additive(), *found, _projections(problem, budget)]
    return found


def series_kernels(problem: Problem) -> dict[str, Kernel]:
    """Smooth and rough functions of time, and a trend with a season when the data swing."""
    t, y = problem.X[:, 0], problem.y
    span = float(np.ptp(t)) or 1.0
    with_level = lambda kernel: kernel + Constant() if problem.task == "classification" else kernel  # others have a mean
    found: dict[str, Kernel] = {}
    period = season_of(t, y) if problem.task != "classification" else None
    if period is not None:
        spread = float(np.var(y)) if problem.task == "regression" else 1.0
        trend, decay = Matern52(lengthscale=span / 3, variance=spread), Matern52(lengthscale=span)
        swinging = trend + Periodic(period=period, variance=0.1 * spread) * decay.freeze("variance")
        short = Matern32(lengthscale=period / 2, variance=0.01 * spread)
        found[f"trend + season of {period:.4g}"] = with_level(swinging)
        found[f"trend + season of {period:.4g} + short-lived"] = with_level(swinging + short)
    found["smooth (Matern52)"] = with_level(Matern52(lengthscale=span / 10))
    found["rough (Matern32)"] = with_level(Matern32(lengthscale=span / 10))
    return found


def season_of(t: np.ndarray, y: np.ndarray) -> float | None:
    """The period of the strongest wave that the series goes through at least four times, if it is strong."""
    if len(t) < 30:
        return None
    order = np.argsort(t)
    step = -(-len(t) // 4000)
    t, y = t[order][::step], y[order][::step]
    x = 2 * (t - t[0]) / (np.ptp(t) or 1.0) - 1
    rest = y - np.polynomial.Legendre.fit(x, y, 5)(x)
    if not np.std(rest) > 1e-9 * np.std(y) or np.ptp(t) == 0:
        return None
    span = float(np.ptp(t))
    power = lambda cycles: lombscargle(t, rest, 2 * np.pi * cycles / span, normalize=True)
    coarse = np.arange(4.0, len(t) / 3, 0.2)
    best = coarse[np.argmax(power(coarse))]
    fine = best + np.linspace(-0.2, 0.2, 41)
    found = power(fine)
    return span / float(fine[np.argmax(found)]) if float(np.max(found)) > SEASON else None


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
        "classification": lambda: Bernoulli() if len(problem.classes) == 2 else Categorical(classes=len(problem.classes)),
        "counts": Poisson,
        "scattered counts": NegativeBinomial,
    }

    def make(name: str, kernel: Kernel, kind: str) -> Candidate:
        gp = GP(kernel, likelihoods[kind](), ZeroMean() if kind == "classification" else ConstantMean())
        limit = DENSE_ROWS if kind == "regression" else LABEL_ROWS
        inputs = _as_shape(problem.X, problem.shape)
        plan, rows = gp.plan(inputs, structure), None
        if plan.engine.structure == "dense" and len(inputs) > limit:
            plan, rows = gp.plan(problem.X[:limit], structure), limit
        cost = plan.offers[0].cost
        sweeps = 1 if kind == "regression" else 10
        restarts = None if len(inputs) <= 200 else 0
        fit = lambda X, y: gp.fit(X, y, structure=structure, seed=problem.seed, restarts=restarts)
        refit = lambda fitted, X, y: fitted.gp.condition(X, y, structure=structure)
        seconds = COMPILING + sweeps * EVALUATIONS * (cost.flops if cost else 0.0) / FLOPS
        return Candidate(name, fit, refit, seconds, rows, plan)

    return make


def _additive() -> Candidate:
    def refit(fitted: Any, X: Any, y: np.ndarray) -> Any:
        return AdditiveGP(fitted.kernel, fitted.likelihood).condition(X, y)

    return Candidate("a sum of functions of one column each", lambda X, y: AdditiveGP().fit(X, y), refit)


def _projections(problem: Problem, budget: float) -> Candidate:
    least = max(4.0, len(problem.X) * problem.X.shape[1] * 2e-4)

    def fit(X: Any, y: np.ndarray) -> Any:
        return ProjectionPursuitGP(seconds=0.4 * budget).fit(X, y, seed=problem.seed, max_evaluations=100)

    def refit(fitted: Any, X: Any, y: np.ndarray) -> Any:
        size = fitted.model.projections
        return ProjectionPursuitGP(projections=size).fit(X, y, seed=problem.seed, max_evaluations=100)

    return Candidate("a sum of functions of learned projections", fit, refit, least)


def _as_shape(X: np.ndarray, shape: str) -> Inputs:
    return Grid.from_points(X) if shape == "grid" else as_inputs(X)


def compare(
    problem: Problem, candidates: list[Candidate], deadline: float, say: Report
) -> tuple[Any, tuple[Trial, ...], Evaluation, tuple[str, ...]]:
    """The best candidate given all rows, all that were tried, and how the best did on rows it had not seen."""
    rng = np.random.default_rng(problem.seed)
    held, kind = hold_out(problem, rng)
    tried: list[tuple[Trial, Any, Candidate]] = []
    for candidate in candidates:
        left = deadline - time.perf_counter()
        if tried and candidate.seconds > left:
            note = f"left out: about {candidate.seconds:.0f} s of learning, {max(left, 0):.0f} s were left"
            tried.append((Trial(candidate.name, note=note), None, candidate))
            continue
        say(f"learning: {candidate.name}")
        tried.append(_try(problem, candidate, held, rng))
    ran = [entry for entry in tried if entry[1] is not None]
    if not ran:
        raise ValueError(f"no candidate could be learned: {tried[0][0].note}")
    by_evidence = problem.shape != "table" or not held.any()
    best, fitted, candidate = max(ran, key=lambda entry: _score(entry[0], by_evidence))
    trials = tuple(dataclasses.replace(trial, chosen=trial is best) for trial, _, _ in tried)
    evaluation = evaluate(problem, fitted, held, kind)
    rows = _some(np.arange(len(problem.y)), candidate.rows, problem, rng)
    if len(rows) < len(problem.y) or held.any():
        say("giving the chosen model all rows")
        fitted = candidate.refit(fitted, _as_shape(problem.X[rows], problem.shape), problem.y[rows])
    notes = (f"learned from {len(rows)} of {len(problem.y)} rows, chosen at random",) if len(rows) < len(problem.y) else ()
    return fitted, trials, evaluation, notes


def _score(trial: Trial, by_evidence: bool) -> float:
    """What candidates are compared by, lowest where it is no number."""
    score = trial.log_evidence if by_evidence else trial.held_out
    return -np.inf if score is None or np.isnan(score) else score


def hold_out(problem: Problem, rng: np.random.Generator) -> tuple[np.ndarray, str]:
    """Which rows are kept from learning, and which these are in words."""
    N = len(problem.y)
    held = np.zeros(N, dtype=bool)
    if N < FEW_ROWS:
        return held, ""
    if problem.shape == "series" and problem.task != "classification":
        held[np.argsort(problem.X[:, 0], kind="stable")[-max(N // 10, 1) :]] = True
        return held, "the last tenth of the series"
    held[rng.permutation(N)[: N // 5]] = True
    if len(np.unique(problem.y[~held])) < len(np.unique(problem.y)) and problem.task == "classification":
        return np.zeros(N, dtype=bool), ""  # a rare class would not be learned
    return held, "a random fifth of the rows"


def _some(rows: np.ndarray, most: int | None, problem: Problem, rng: np.random.Generator) -> np.ndarray:
    """At most so many of the rows, at random; one of each class at least."""
    if most is None or len(rows) <= most:
        return rows
    first = [] if not problem.classes else [rows[problem.y[rows] == c][0] for c in range(len(problem.classes))]
    drawn = rng.permutation(rows)[: most - len(first)]
    return np.unique(np.concatenate([drawn, np.asarray(first, dtype=int)]))


def _try(problem: Problem, candidate: Candidate, held: np.ndarray, rng: np.random.Generator) -> tuple[Trial, Any, Candidate]:
    began = time.perf_counter()
    rows = _some(np.flatnonzero(~held), candidate.rows, problem, rng)
    try:
        fitted = candidate.fit(_as_shape(problem.X[rows], problem.shape), problem.y[rows])
        scored = float(np.mean(log_prob(fitted, problem.task, problem.X[held], problem.y[held]))) if held.any() else None
    except (ValueError, FloatingPointError) as problem_met:
        return Trial(candidate.name, note=f"failed: {str(problem_met).splitlines()[0]}"), None, candidate
    seconds = time.perf_counter() - began
    return Trial(candidate.name, float(fitted.log_evidence), scored, seconds), fitted, candidate


def log_prob(fitted: Any, task: str, X: np.ndarray, y: np.ndarray) -> np.ndarray:
    """log p of each new observation."""
    prediction = fitted.predict(X)
    if task != "classification":
        return prediction.log_prob(y)
    p = prediction.probability
    p = np.stack([1 - p, p], axis=1) if p.ndim == 1 else p
    return np.log(np.maximum(p[np.arange(len(y)), y.astype(int)], 1e-300))


def evaluate(problem: Problem, fitted: Any, held: np.ndarray, kind: str) -> Evaluation:
    """Scores of the model and of plain baselines on the rows held out."""
    if not held.any():
        return Evaluation("")
    X, y, X0, y0 = problem.X[held], problem.y[held], problem.X[~held], problem.y[~held]
    mnlp = -float(np.mean(log_prob(fitted, problem.task, X, y)))
    if problem.task == "classification":
        codes = tuple(str(c) for c in range(len(problem.classes)))
        said = predict_rows(fitted, problem.task, X, codes, 0.95)
        p = np.stack([said[f"probability_{c}"] for c in codes], axis=1)
        share = np.bincount(y0.astype(int), minlength=len(codes)) / len(y0)
        scores = {
            "this model": {"error rate": metrics.error_rate(y, p.argmax(axis=1)), "log loss": mnlp},
            "majority": {
                "error rate": float(np.mean(y != np.argmax(share))),
                "log loss": -float(np.mean(np.log(np.maximum(share[y.astype(int)], 1e-300)))),
            },
        }
        return Evaluation(kind, tuple(y[:KEPT].tolist()), tuple(p[:KEPT, -1].tolist()), (), scores)
    said = predict_rows(fitted, problem.task, X, (), 0.95)
    inside = metrics.coverage(y, said["lower"], said["upper"])
    scores = {"this model": {"RMSE": metrics.rmse(y, said["mean"]), "log loss": mnlp, "in 95 % interval": inside}}
    scores |= _baselines(problem.task, X, y, X0, y0)
    seen, mean, sd = (tuple(values[:KEPT].tolist()) for values in (y, said["mean"], said["sd"]))
    return Evaluation(kind, seen, mean, sd, scores)


def _baselines(task: str, X: np.ndarray, y: np.ndarray, X0: np.ndarray, y0: np.ndarray) -> dict[str, dict[str, float]]:
    """The mean for all rows, and a linear function of the inputs."""
    if task == "counts":
        rate = max(float(y0.mean()), 1e-9)
        low, high = poisson.ppf([0.025, 0.975], rate)
        inside = metrics.coverage(y, np.full(len(y), low), np.full(len(y), high))
        loss = -float(np.mean(poisson.logpmf(y, rate)))
        return {"mean": {"RMSE": metrics.rmse(y, np.full(len(y), rate)), "log loss": loss, "in 95 % interval": inside}}
    design = lambda rows: np.column_stack([np.ones(len(rows)), rows])
    weights, *_ = np.linalg.lstsq(design(X0), y0, rcond=None)
    found = {}
    for name, at, fit in (
        ("mean", np.full(len(y), y0.mean()), np.full(len(y0), y0.mean())),
        ("linear", design(X) @ weights, design(X0) @ weights),
    ):
        sd = max(float(np.std(y0 - fit)), 1e-12)
        loss = -float(np.mean(norm.logpdf(y, at, sd)))
        found[name] = {
            "RMSE": metrics.rmse(y, at),
            "log loss": loss,
            "in 95 % interval": metrics.coverage(y, at - 1.96 * sd, at + 1.96 * sd),
        }
    return found
