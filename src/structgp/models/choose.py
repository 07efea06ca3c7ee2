"""What to fit to a table when nothing is said: one rule for the estimators and for the command line.

What there is: one function of all columns, a sum of functions of one column each, a sum of functions of learned projections.
One function of all columns needs a dense matrix, which is affordable while learning is expected to take a few minutes at most.
Where it is, an estimator takes it, and the command line, which holds rows out, compares all three. Where it is not, both
compare the sums.

How they are compared (`best`): by the log probability of rows held out, where some were, row by row: what is behind by more
than two standard errors of the mean difference is out. Among what is left the evidence decides, charged for the numbers that
were learned and not averaged over: ½ log N for each (Schwarz 1978), or 2 for labels and counts, which say too little to pay
more. It compares models that learned from the same rows. Where it does not speak clearly the simpler model is taken.
"""

from __future__ import annotations

import bisect
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..engines.additive import AdditiveEngine
from ..engines.base import Cost, Offer, units
from ..engines.cholesky import Cholesky, cost_of_matrix
from ..engines.plan import Plan
from ..inputs.layouts import as_inputs
from ..learn.clock import NEVER, Deadline
from ..likelihoods.base import Likelihood
from ..likelihoods.labels import Bernoulli
from ..parameters.tree import free_vector
from .additive.model import AdditiveGP
from .labels import AdditiveLabels, ProjectionPursuitLabels
from .one_against_rest import OneAgainstRest
from .pursuit.model import ProjectionPursuitGP

SUMS = {"additive": "a sum of functions of one column each", "projection-pursuit": "a sum of functions of learned projections"}
AFFORDABLE = 420.0  # seconds that learning with a dense matrix may be expected to take: about 3000 rows of numbers, 1700 labels
FLOPS = 4e9  # a second on a small machine
COMPILING = 4.0  # seconds before a new kind of model runs at all
COMPILING_SITES = 8.0  # where observations are not Gaussian
COMPILING_SPLINES, COMPILING_SINES = 14.0, 16.0  # of sums of functions, which need several programs
EVALUATIONS = 60  # of the evidence that a climb typically takes
SWEEPS = 5  # matrices that one evaluation factorises where observations are not Gaussian
NEWTON = 8  # passes over the rows that one evaluation for labels takes, about
CLEARLY = 2.0  # standard errors by which rows held out must be less probable
FACTOR = 3.0  # by which the log evidence must be larger to outdo a simpler model: 20 times as probable

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
    """The log evidence less what the numbers cost that were learned."""
    each = 0.5 * np.log(rows) if task == "regression" else 2.0
    parts = fitted.parts if isinstance(fitted, OneAgainstRest) else (fitted,)
    return float(fitted.log_evidence) - each * sum(candidate.numbers(part) for part in parts)


def sweeps_of(task: str, classes: int = 2) -> int:
    """Matrices that are factorised for one evaluation of the evidence."""
    return 1 if task == "regression" else SWEEPS * functions_of(classes)


def functions_of(classes: int) -> int:
    """Two classes share a function, of more each has its own."""
    return 1 if classes < 3 else classes


def learning_seconds(cost: Cost | None, sweeps: int) -> float:
    """About how long learning takes once it runs."""
    return sweeps * EVALUATIONS * (cost.flops if cost else 0.0) / FLOPS


def affordable_rows(columns: int, sweeps: int, seconds: float | None = None) -> int:
    """The most rows of which a dense matrix can be learned from in so many seconds."""
    allowed = AFFORDABLE if seconds is None else min(seconds, AFFORDABLE)
    needed = lambda rows: sweeps * EVALUATIONS * cost_of_matrix(rows, columns).flops / FLOPS
    return bisect.bisect_left(range(1, 20000), allowed, key=needed)


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


def sum_of_functions(
    X: np.ndarray, y: np.ndarray, structure: str = "auto", seed: int = 0, classes: int = 0, link: str = "probit"
) -> tuple[Any, Plan]:
    """The better of the two sums given numbers, or labels 0, …, classes − 1, or the one asked for, and a plan that says why."""
    task = "classification" if classes else "regression"
    candidates = sums(task, X.shape, Bernoulli(link), classes, seed, SEARCH)
    if structure != "auto":
        fitted = candidates[structure].fit(X, y.astype(float), None, NEVER)
        return fitted, Plan((_offer(fitted, structure, X, candidates[structure], classes),))
    tried = [(name, one, one.fit(X, y.astype(float), None, NEVER)) for name, one in candidates.items()]
    evidence = [charged_evidence(one, fitted, len(X), task) for _, one, fitted in tried]
    chosen = best([Tried(value) for value in evidence])
    offers = [_offer(fitted, name, X, one, classes) for name, one, fitted in tried]
    other = offers[1 - chosen]
    reason = (
        f"{other.note}: log evidence {evidence[1 - chosen]:.6g}, which is {_against(evidence, chosen)} {evidence[chosen]:.6g}"
    )
    dense = Offer(Cholesky(), reason=_too_many(X))
    return tried[chosen][2], Plan((offers[chosen], dataclasses.replace(other, cost=None, reason=reason), dense))


def _against(evidence: list[float], chosen: int) -> str:
    return "less than" if evidence[1 - chosen] < evidence[chosen] else "not clearly more than"


def _too_many(X: np.ndarray) -> str:
    cost = cost_of_matrix(len(X), 1)
    return (
        f"{len(X)} rows in a dense matrix take {units(cost.flops, 'flop')} and {units(cost.bytes, 'B')} for each evaluation; "
        "structure='dense' asks for it"
    )


def _offer(fitted: Any, structure: str, X: np.ndarray, candidate: Candidate, classes: int) -> Offer:
    """What one evaluation of the evidence of a sum takes, and how many functions it has."""
    N, D = X.shape
    if structure == "additive":
        note = f"one function for each of {D} columns"
    else:
        parts = fitted.parts if isinstance(fitted, OneAgainstRest) else (fitted,)
        note = f"projection pursuit, {sum(candidate.numbers(part) for part in parts) // (D + 1)} functions"
    if not classes:
        return dataclasses.replace(getattr(fitted, "additive", fitted).plan.offers[0], note=note)
    F = 20 * D
    cost = Cost(flops=2.0 * NEWTON * functions_of(classes) * N * F**2, bytes=8.0 * (N * D + 6 * F**2))
    return Offer(AdditiveEngine(), cost, note=note, accuracy=AdditiveEngine.accuracy)
