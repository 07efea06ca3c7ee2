"""What to fit to a table when nothing is said: one rule for the estimators and for the command line.

What there is: one function of all columns, exactly (a dense matrix), through inducing inputs, or in up to four columns by
neighbours; a sum of functions of one column each; a sum of functions of learned projections.
The exact one is taken by an estimator wherever learning it is expected to take no longer than there is time for; the command
line, which holds rows out, compares it with the sums. Where it is not affordable all others compete, the cheapest first, as
long as there is time, and learn from all rows but some, by whose log probability they are compared.

How they are compared (`best`): by the log probability of rows held out, where some were, row by row: what is behind by more
than two standard errors of the mean difference is out. Among what is left the evidence decides, charged for the numbers that
were learned and not averaged over: ½ log N for each (Schwarz 1978), or 2 for labels and counts, which say too little to pay
more. It compares models that learned from the same rows, exactly or from below; of inducing inputs and neighbours it is
neither, so that where they take part rows held out decide alone. Where these do not speak clearly the simpler model is taken.
"""

from __future__ import annotations

import bisect
import dataclasses
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..engines.additive import AdditiveEngine
from ..engines.approximation import Approximation
from ..engines.base import Cost, Offer, units
from ..engines.cholesky import LARGEST, Cholesky, cost_of_matrix, look_at_matrix
from ..engines.inducing import InducingEngine, cost_of_inputs
from ..engines.inducing_inputs import Inducing
from ..engines.machine import reference
from ..engines.neighbours import NeighbourEngine, Neighbours, cost_of_neighbours
from ..engines.plan import Plan, evaluations_of
from ..inputs.layouts import as_inputs
from ..kernels.stationary import Matern52, SquaredExponential
from ..learn.clock import Deadline
from ..likelihoods.base import Likelihood
from ..likelihoods.gaussian import Gaussian
from ..likelihoods.labels import Bernoulli
from ..means import ConstantMean
from ..parameters.priors import Alike, LogNormal
from ..parameters.tree import free_vector, learned
from ..process.gp import GP
from .additive.model import AdditiveGP
from .labels import AdditiveLabels, ProjectionPursuitLabels
from .one_against_rest import OneAgainstRest
from .pursuit.model import ProjectionPursuitGP

SUMS = {"additive": "a sum of functions of one column each", "projection-pursuit": "a sum of functions of learned projections"}
SPARSE = {
    "neighbours": "one function of all columns, each row given its neighbours",
    "inducing": "one function of all columns, through inducing inputs",
}
SECONDS = 300.0  # that an estimator may take to choose and to learn
COMPILING = 4.0  # seconds before a new kind of model runs at all
COMPILING_SITES = 8.0  # where observations are not Gaussian
COMPILING_SPLINES, COMPILING_SINES = 14.0, 16.0  # of sums of functions, which need several programs
OTHERS = 3  # numbers that are learned beside a lengthscale for each column
INDUCING = 500  # inducing inputs
NEIGHBOURS = 30
MOST_COLUMNS = 4  # in which neighbours are near enough to tell all that others would
NEWTON = 8  # passes over the rows that one evaluation for labels takes, about
CLEARLY = 2.0  # standard errors by which rows held out must be less probable
HELD, MOST_HELD = 0.1, 2000  # part of the rows that is held out where many compete, and the most of them
GIVING = 0.25  # part of the time that is kept for scores, and for giving the chosen model all rows
SEARCHING = 0.5  # part of the time for the search of projections
FACTOR = 3.0  # by which the log evidence must be larger to outdo a simpler model: 20 times as probable

NEVER = 1e-300  # no probability is smaller, so that every loss is finite

Tell = Any  # a function that hears the number of the evaluation and the best log evidence so far


class Limits(NamedTuple):
    """How long a sum of functions is looked for."""

    seconds: float = 300.0  # for the search of projections
    evaluations: int = 300  # of the evidence in a climb
    projections: int | None = None  # at most; None for what each model takes by itself
    learning_rows: int | None = None  # of labels and counts, from which to learn how smooth the functions are; all for None

    @property
    def most(self) -> dict[str, Any]:
        """The option of a model of projections."""
        return {} if self.projections is None else {"most": self.projections}


SEARCH = Limits()  # of an estimator, which has no budget


class Candidate(NamedTuple):
    """A model to try: `fit` learns from rows, `refit` gives what was learned other rows."""

    name: str
    fit: Callable[[Any, np.ndarray, Tell, Deadline], Any]
    refit: Callable[[Any, Any, np.ndarray], Any]
    seconds: float = 0.0  # about how long learning takes, compiling included
    rows: int | None = None  # the most rows that it can take
    plan: Plan | None = None  # what would run, for a plain process
    robust: Callable[[Any, float], Candidate] | None = None  # from what was learned, the same for noise with outliers
    price: float = 0.0  # what the evidence leaves out: the prior density of a free level and slope
    numbers: Callable[[Any], int] = lambda fitted: len(free_vector(fitted.gp))  # that were learned
    compiling: float = COMPILING  # seconds of those that go by before it runs
    average: Callable[[Any, Any, np.ndarray, Any], Any] = lambda fitted, X, y, parameters: fitted  # over unsure parameters
    comparable: bool = True  # whether its evidence is that of a model, or a bound on it


class Tried(NamedTuple):
    """What a model is compared by."""

    evidence: float  # charged for what was learned
    scores: np.ndarray | None = None  # the log probability of each row held out, where some were
    whole: bool = True  # whether it learned from all the rows that there were


def best(tried: Sequence[Tried], by_evidence: bool = True) -> int:
    """Which of several models to take; the simpler ones, or those that are preferred, stand first."""
    near = _not_behind(tried)
    near = [i for i in near if tried[i].whole] or near
    if not by_evidence or not all(tried[i].whole for i in near):
        return near[0]
    evidence = {i: -np.inf if np.isnan(tried[i].evidence) else tried[i].evidence for i in near}
    return next(i for i in near if evidence[i] >= max(evidence.values()) - FACTOR)


def _not_behind(tried: Sequence[Tried]) -> list[int]:
    """Those that are not clearly worse on rows held out than the best, row by row."""
    scores = {i: one.scores for i, one in enumerate(tried) if one.scores is not None and np.isfinite(one.scores).all()}
    if not scores:
        return list(range(len(tried)))
    leader = max(scores.values(), key=np.mean)
    behind = {i: leader - one for i, one in scores.items()}
    error = lambda d: np.std(d, ddof=1) / np.sqrt(len(d)) if len(d) > 1 else np.inf
    return [i for i, d in behind.items() if np.mean(d) <= CLEARLY * error(d)]


def charged_evidence(candidate: Candidate, fitted: Any, rows: int, task: str) -> float:
    """The log evidence less what the numbers cost that were learned; NaN where it says nothing beside others."""
    if not candidate.comparable:
        return float("nan")
    each = 0.5 * np.log(rows) if task == "regression" else 2.0
    parts = fitted.parts if isinstance(fitted, OneAgainstRest) else (fitted,)
    return float(fitted.log_evidence) - each * sum(candidate.numbers(part) for part in parts)


def functions_of(classes: int) -> int:
    """Two classes share a function, of more each has its own."""
    return 1 if classes < 3 else classes


def learning_seconds(cost: Cost | None, columns: int, classes: int = 0) -> float:
    """About how long learning takes once it runs: on the reference machine, so that all machines choose alike."""
    times = functions_of(classes) * evaluations_of(columns + OTHERS, 0)
    return times * reference().seconds(cost.evaluation) if cost else 0.0


def affordable_rows(columns: int, task: str, classes: int = 0, seconds: float = SECONDS) -> int:
    """The most rows of which a dense matrix can be learned from in so many seconds."""

    def needed(rows: int) -> float:
        cost = cost_of_matrix(rows, columns)
        return learning_seconds(cost if task == "regression" else cost.searching(look_at_matrix(rows)), columns, classes)

    return bisect.bisect_left(range(1, LARGEST), seconds, key=needed)


def for_many_rows(
    task: str, shape: tuple[int, int], likelihood: Likelihood, classes: int, seed: int, limits: Limits
) -> dict[str, Candidate]:
    """All that can take many rows of a table of this shape, by the structure that asks for it, the simpler first."""
    additive, projections = sums(task, shape, likelihood, classes, seed, limits).items()
    N, D = shape
    inducing, near = cost_of_inputs(N, INDUCING, D), cost_of_neighbours(N, NEIGHBOURS, D)
    if task != "regression":
        inducing = inducing.searching(inducing.condition)
    sparse = {"inducing": _sparse("inducing", Inducing(INDUCING), inducing, task, D, likelihood, limits)}
    if task == "regression" and 1 < D <= MOST_COLUMNS:
        sparse = {"neighbours": _sparse("neighbours", Neighbours(NEIGHBOURS), near, task, D, likelihood, limits)} | sparse
    return dict([additive, *((name, by_class(one, classes)) for name, one in sparse.items()), projections])


def _sparse(
    name: str, approximation: Approximation, cost: Cost, task: str, D: int, likelihood: Likelihood, limits: Limits
) -> Candidate:
    """One function of all columns, of which an approximation takes many rows at this cost."""
    if task == "regression":
        gp = GP(Matern52(np.full(D, np.sqrt(D))), Gaussian(), ConstantMean())
    else:
        lengthscales: Any = learned(np.full(D, np.sqrt(D)), prior=Alike()) if D > 1 else 1.0
        gp = GP(SquaredExponential(lengthscales, learned(4.0, prior=LogNormal(np.log(4.0), 2.0))), likelihood, ConstantMean())

    def fit(X: Any, y: np.ndarray, tell: Tell, deadline: Deadline) -> Any:
        options: dict[str, Any] = {"progress": tell, "seconds": deadline, "max_evaluations": limits.evaluations}
        return gp.fit(X, y, approximate=approximation, restarts=0, **options)

    def refit(fitted: Any, X: Any, y: np.ndarray) -> Any:
        conditioned = fitted.gp.condition(X, y, approximate=approximation)
        return dataclasses.replace(conditioned, learning=fitted.learning)

    compiling = COMPILING if task == "regression" else COMPILING_SITES
    seconds = compiling + learning_seconds(cost, D)
    return Candidate(SPARSE[name], fit, refit, seconds, compiling=compiling, comparable=False)


def sums(
    task: str, shape: tuple[int, int], likelihood: Likelihood, classes: int, seed: int, limits: Limits
) -> dict[str, Candidate]:
    """Sums of functions for a table of this shape, by the structure that asks for them, the simpler first."""
    N, D = shape
    functions = functions_of(classes)
    least = COMPILING_SINES + functions * N * D * 5e-5
    if task == "regression":
        return {"additive": _additive(limits), "projection-pursuit": _projections(D, seed, limits, least)}
    limits = limits._replace(seconds=limits.seconds / functions)
    found = {
        "additive": _additive_labels(shape, likelihood, task, functions, seed, limits),
        "projection-pursuit": _projected_labels(D, likelihood, seed, limits, least),
    }
    return {structure: by_class(one, classes) for structure, one in found.items()}


def _additive(limits: Limits) -> Candidate:
    def fit(X: Any, y: np.ndarray, tell: Tell, deadline: Deadline) -> Any:
        return AdditiveGP().fit(X, y, max_evaluations=limits.evaluations, progress=tell, seconds=deadline)

    def refit(fitted: Any, X: Any, y: np.ndarray) -> Any:
        return AdditiveGP(fitted.kernel, fitted.likelihood).condition(X, y)

    return Candidate(SUMS["additive"], fit, refit, COMPILING_SPLINES, compiling=COMPILING_SPLINES)


def _projections(columns: int, seed: int, limits: Limits, least: float) -> Candidate:
    options: dict[str, Any] = {"seed": seed, "max_evaluations": limits.evaluations}

    def fit(X: Any, y: np.ndarray, tell: Tell, deadline: Deadline) -> Any:
        model = ProjectionPursuitGP(seconds=_least(limits.seconds, deadline), **limits.most)
        return model.fit(X, y, progress=tell, **options)

    numbers = lambda fitted: fitted.model.projections * (columns + 1)
    return Candidate(SUMS["projection-pursuit"], fit, _given, least, numbers=numbers, compiling=COMPILING_SINES)


def _given(fitted: Any, X: Any, y: np.ndarray) -> Any:
    """What was learned, given other rows."""
    return fitted.given(X, y)


def _additive_labels(
    shape: tuple[int, int], likelihood: Likelihood, task: str, functions: int, seed: int, limits: Limits
) -> Candidate:
    """Labels or counts behind a sum of functions: how smooth they are may be learned from some rows, all rows are then seen."""
    N, D = shape
    rows = N if limits.learning_rows is None else min(N, limits.learning_rows)

    def fit(X: Any, y: np.ndarray, tell: Tell, deadline: Deadline) -> Any:
        points = np.asarray(as_inputs(X).points)
        model = AdditiveLabels(likelihood=likelihood)
        if len(y) <= rows:
            return model.fit(points, y, progress=tell, seconds=deadline)
        few = np.random.default_rng(seed).permutation(len(y))[:rows]
        few = few if task == "counts" else _with_both(few, y)
        return refit(model.fit(points[few], y[few], progress=tell, seconds=deadline), points, y)

    def refit(fitted: Any, X: Any, y: np.ndarray) -> Any:
        conditioned = AdditiveLabels(fitted.model.kernel, fitted.likelihood).condition(X, y)
        return dataclasses.replace(conditioned, learning=fitted.learning)

    numbers = lambda fitted: len(free_vector(fitted.model.kernel))
    seconds = COMPILING_SPLINES + functions * rows * D**2 * 1e-5
    return Candidate(SUMS["additive"], fit, refit, seconds, numbers=numbers, compiling=COMPILING_SPLINES)


def _projected_labels(columns: int, likelihood: Likelihood, seed: int, limits: Limits, least: float) -> Candidate:
    options: dict[str, Any] = {"seed": seed, "max_evaluations": limits.evaluations}

    def fit(X: Any, y: np.ndarray, tell: Tell, deadline: Deadline) -> Any:
        model = ProjectionPursuitLabels(likelihood, seconds=_least(limits.seconds, deadline), **limits.most)
        return model.fit(X, y, progress=tell, **options)

    numbers = lambda fitted: fitted.model.functions.projections * (columns + 1)
    return Candidate(SUMS["projection-pursuit"], fit, _given, least, numbers=numbers, compiling=COMPILING_SINES)


def by_class(one: Candidate, classes: int) -> Candidate:
    """A candidate for two labels, counts or numbers as it is; for several classes, one for each against the rest.

    EP of two labels gives better probabilities than Laplace's approximation of all classes at once, whose latents stay unsure.
    """
    if classes < 3:
        return one

    def fit(X: Any, y: np.ndarray, tell: Tell, deadline: Deadline) -> Any:
        def against_rest(c: int) -> Any:
            return one.fit(X, (y == c).astype(float), tell, deadline.share(classes - c))

        return OneAgainstRest(tuple(against_rest(c) for c in range(classes)))

    def refit(fitted: Any, X: Any, y: np.ndarray) -> Any:
        codes = [np.where(np.isnan(y), np.nan, y == c) for c in range(classes)]
        return OneAgainstRest(tuple(one.refit(part, X, code) for part, code in zip(fitted.parts, codes, strict=True)))

    def average(fitted: Any, X: Any, y: np.ndarray, parameters: Any) -> Any:
        codes = [(y == c).astype(float) for c in range(classes)]
        return OneAgainstRest(
            tuple(one.average(part, X, code, parameters) for part, code in zip(fitted.parts, codes, strict=True))
        )

    return one._replace(fit=fit, refit=refit, average=average)


def _least(seconds: float, deadline: Deadline) -> float:
    return max(min(seconds, deadline.left()), 0.0)


def _with_both(rows: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The rows, and one of each label should it be missing among them."""
    return np.union1d(rows, [int(np.argmax(y == label)) for label in np.unique(y)])


def log_probabilities(fitted: Any, task: str, X: np.ndarray, y: np.ndarray) -> np.ndarray:
    """log p of each new observation."""
    prediction = fitted.predict(X)
    return prediction.log_prob(y) if task != "classification" else log_of_class(class_probabilities(prediction), y)


def class_probabilities(prediction: Any) -> np.ndarray:
    """The probability of every class, (M, classes), also where there are two."""
    p = prediction.probability
    return np.stack([1 - p, p], axis=1) if p.ndim == 1 else p


def log_of_class(p: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The logarithm of the probability of what was seen."""
    return np.log(np.maximum(p[np.arange(len(y)), y.astype(int)], NEVER))


class Attempt(NamedTuple):
    """One that competed: what it learned, how probable rows held out are with it, and how long it took; or why it did not."""

    structure: str
    candidate: Candidate
    fitted: Any = None
    scores: np.ndarray | None = None
    seconds: float = 0.0
    reason: str = ""

    def __str__(self) -> str:
        if self.scores is None:
            return self.reason
        return f"log probability {np.mean(self.scores):.4g} of a row held out, {self.seconds:.0f} s"


def of_many_rows(
    X: np.ndarray,
    y: np.ndarray,
    structure: str = "auto",
    seed: int = 0,
    classes: int = 0,
    link: str = "probit",
    seconds: float | None = SECONDS,
) -> tuple[Any, Plan]:
    """The best of all that can take so many rows, given numbers, or labels 0, …, classes − 1, or the one asked for.

    The plan says how each of them did, and how long it took.
    """
    task = "classification" if classes else "regression"
    y, limits = y.astype(float), SEARCH if seconds is None else SEARCH._replace(seconds=SEARCHING * seconds)
    candidates = for_many_rows(task, X.shape, Bernoulli(link), classes, seed, limits)
    if structure != "auto":
        fitted = candidates[structure].fit(X, y, None, Deadline.after(seconds))
        return fitted, Plan((_offer(Attempt(structure, candidates[structure]), fitted, X, classes),))
    attempts = _attempts(X, y, task, candidates, seed, Deadline.after(seconds))
    ran = [attempt for attempt in attempts if attempt.scores is not None]
    if not ran:
        raise ValueError(f"nothing could be learned from these rows: {attempts[0].reason}")
    winner = ran[best([Tried(np.nan, attempt.scores) for attempt in ran], by_evidence=False)]
    given = winner.candidate.refit(winner.fitted, X, y)
    chosen = _offer(winner, given, X, classes)
    chosen = dataclasses.replace(chosen, note=f"{chosen.note}; {winner}" if chosen.note else str(winner))
    others = [_not_taken(attempt, X, classes) for attempt in attempts if attempt is not winner]
    return given, Plan((chosen, *others, Offer(Cholesky(), reason=_too_many(X))))


def _attempts(
    X: np.ndarray, y: np.ndarray, task: str, candidates: dict[str, Candidate], seed: int, deadline: Deadline
) -> list[Attempt]:
    """What each of the candidates that there is time for makes of the rows that it does not learn from."""
    held = np.random.default_rng(seed).permutation(len(y))[: min(int(HELD * len(y)), MOST_HELD)]
    kept = np.setdiff1d(np.arange(len(y)), held)
    kept = kept if task == "regression" else _with_both(kept, y)
    done: dict[str, Attempt] = {}
    whole = deadline.left() if np.isfinite(deadline.at) else 0.0
    for name, one in sorted(candidates.items(), key=lambda item: item[1].seconds):
        left = deadline.left() - GIVING * whole
        if done and one.seconds > left:
            reason = f"about {one.seconds:.0f} s of learning, and {max(left, 0.0):.0f} s were left"
            done[name] = Attempt(name, one, reason=reason)
            continue
        began = time.perf_counter()
        try:
            fitted = one.fit(X[kept], y[kept], None, Deadline(deadline.at - GIVING * whole))
            scores = log_probabilities(fitted, task, X[held], y[held])
            done[name] = Attempt(name, one, fitted, scores, time.perf_counter() - began)
        except (ValueError, FloatingPointError, MemoryError) as met:
            done[name] = Attempt(name, one, reason=f"failed: {str(met).splitlines()[0]}")
    return [done[name] for name in candidates]


def _too_many(X: np.ndarray) -> str:
    cost = cost_of_matrix(len(X), 1)
    return (
        f"{len(X)} rows in a dense matrix take {units(cost.flops, 'flop')} and {units(cost.bytes, 'B')} for each evaluation; "
        "structure='dense' asks for it"
    )


def _offer(attempt: Attempt, fitted: Any, X: np.ndarray, classes: int) -> Offer:
    """What one evaluation of the evidence takes, and how many functions a sum has."""
    N, D = X.shape
    structure, parts = attempt.structure, fitted.parts if isinstance(fitted, OneAgainstRest) else (fitted,)
    if structure in SPARSE:
        return parts[0].plan.chosen
    if structure == "additive":
        note = f"one function for each of {D} columns"
    else:
        note = f"projection pursuit, {sum(attempt.candidate.numbers(part) for part in parts) // (D + 1)} functions"
    if not classes:
        return dataclasses.replace(getattr(fitted, "additive", fitted).plan.offers[0], note=note)
    F = 20 * D
    cost = Cost(flops=2.0 * NEWTON * functions_of(classes) * N * F**2, bytes=8.0 * (N * D + 6 * F**2))
    return Offer(AdditiveEngine(), cost, note=note, accuracy=AdditiveEngine.accuracy)


def _not_taken(attempt: Attempt, X: np.ndarray, classes: int) -> Offer:
    """One that competed in vain, or not at all."""
    if attempt.fitted is None:
        engine = {"inducing": InducingEngine(), "neighbours": NeighbourEngine()}.get(attempt.structure, AdditiveEngine())
        return Offer(engine, reason=f"{(SUMS | SPARSE)[attempt.structure]}: {attempt.reason}")
    offer = _offer(attempt, attempt.fitted, X, classes)
    return Offer(offer.engine, reason=f"{offer.note or (SUMS | SPARSE)[attempt.structure]}: {attempt}")
