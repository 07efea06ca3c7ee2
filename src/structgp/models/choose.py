"""What to fit to a table when nothing is said: one rule for the estimators and for the command line.

What there is: one function of all columns, exactly (a dense matrix), through inducing inputs, or in up to four columns by
neighbours; a sum of functions of one column each; a sum of functions of learned projections.
The exact one is taken by an estimator wherever learning it is expected to take no longer than there is time for; the command
line, which holds rows out, compares it with the sums. Where it is not affordable all others compete, as long as there is time,
and learn from all rows but some, by whose log probability they are compared. One function of all columns comes first, because
it is what others are seldom better than; sums follow, the cheaper first, if they can pay: functions of one column are not
learned where splines by least squares, which take a moment, are far behind, and projections are not searched for while the
leader was stopped by the clock and could go on. What wins goes on with all rows in the time that is left. Where there is time
for one of them only, it has all rows from the start.

How they are compared (`best`): by the log probability of rows held out, where some were, row by row: what is behind by more
than two standard errors of the mean difference (more of them where the rows are few, by Student's t) is out. Among what is
left the evidence decides, charged for the numbers that were learned and not averaged over: ½ log N for each (Schwarz 1978), or
2 for labels and counts, which say too little to pay more. A column or a function that learning has turned off costs log 2 in
all: half of what could have been learned says the same. Evidence compares models that learned from the same rows, exactly or
from below; of inducing inputs and neighbours it is neither, so that where they take part the mean over rows held out decides.
Where neither speaks the simpler model is taken.
"""

from __future__ import annotations

import bisect
import dataclasses
import textwrap
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtr, stdtrit

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
from ..inputs.observations import read_observations
from ..kernels.algebra import Kernel
from ..kernels.stationary import Matern52, SquaredExponential
from ..learn.clock import OUT_OF_TIME, Deadline
from ..learn.inducing import SEEN, go_on_through_inputs
from ..learn.initialise import SOME
from ..learn.maximise import MANY_ROWS
from ..likelihoods.base import Likelihood
from ..likelihoods.gaussian import Gaussian
from ..likelihoods.labels import Bernoulli
from ..means import ConstantMean
from ..parameters.priors import Alike, LogNormal
from ..parameters.tree import free_vector, learned, learned_leaves, leaves
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
CLEARLY = 2.0  # standard errors by which many rows held out must be less probable
OFF_LENGTH, OFF_SIZE = 50.0, 0.02  # spreads of a column over which nothing changes, and of the data that are next to nothing
HELD, MOST_HELD = 0.1, 2000  # part of the rows that is held out where many compete, and the most of them
GIVING = 0.25  # part of the time that is kept for scores, and for giving the chosen model all rows
ENDING = 0.1  # part of the time that is kept for what follows learning
SEARCHING = 0.5  # part of the time for the search of projections
LEARNED_FROM = 1000  # labels or counts of which one function of all columns is learned, which then sees all
GIVEN_AT_ONCE = 2500  # labels or counts of which a dense matrix is made in a few seconds, once they are learned from
FIRST = 10  # evaluations after which learning through inducing inputs has something to show
PAYS = 1.5  # times the squared error of the leader, beyond which splines by least squares say that functions of a column do not
KNOTS = 20  # of these splines in each column
PER_KNOT = 10  # rows, at least: fewer tell nothing
QUICK_ROWS = 10_000  # and the most rows
FACTOR = 3.0  # by which the log evidence must be larger to outdo a simpler model: 20 times as probable

LONGEST = 200  # characters of a reason

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


SEARCH = Limits(learning_rows=2000)  # of an estimator


class Candidate(NamedTuple):
    """A model to try: `fit` learns from rows, `refit` gives what was learned other rows."""

    name: str
    fit: Callable[[Any, np.ndarray, Tell, Deadline], Any]
    refit: Callable[[Any, Any, np.ndarray], Any]
    seconds: float = 0.0  # about how long learning takes, compiling included
    rows: int | None = None  # the most rows that it can take
    plan: Plan | None = None  # what would run, for a plain process
    robust: Callable[[Any, str, float], Candidate | None] | None = None  # from what was learned, with noise of another kind
    price: float = 0.0  # what the evidence leaves out: the prior density of a free level and slope
    numbers: Callable[[Any], int] = lambda fitted: len(free_vector(fitted.gp))  # that were learned
    compiling: float = COMPILING  # seconds of those that go by before it runs
    average: Callable[[Any, Any, np.ndarray, Any], Any] = lambda fitted, X, y, parameters: fitted  # over unsure parameters
    comparable: bool = True  # whether its evidence is that of a model, or a bound on it
    go_on: Callable[[Any, Any, np.ndarray, Deadline], Any] | None = None  # with other rows, where time was over too early
    proportional: Callable[[], Candidate] | None = None  # the same for the logarithm of the level, where that may be better


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
    known = [i for i in near if not np.isnan(tried[i].evidence)]
    unknown = [i for i in near if i not in known and tried[i].scores is not None]
    if known:
        highest = max(tried[i].evidence for i in known)
        first = next(i for i in known if tried[i].evidence >= highest - FACTOR)
        rivals = [first, *unknown] if tried[first].scores is not None else [first]
    else:
        rivals = unknown or near[:1]
    return rivals[0] if len(rivals) == 1 else max(rivals, key=lambda i: np.mean(tried[i].scores))  # type: ignore[arg-type]


class Behind(NamedTuple):
    """By how much rows held out are less probable with a model than with the best, for each row, and the error of that."""

    mean: float = 0.0
    error: float = 0.0
    clearly: bool = False

    @classmethod
    def of(cls, leader: np.ndarray, scores: np.ndarray) -> Behind:
        """Row by row, so that what is hard for both does not count."""
        d = leader - scores
        if len(d) < 2 or not np.ptp(d) > 0:
            return cls(float(np.mean(d)), np.inf if len(d) < 2 else 0.0, bool(len(d) > 1 and np.mean(d) > 0))
        error = float(np.std(d, ddof=1) / np.sqrt(len(d)))
        return cls(float(np.mean(d)), error, bool(np.mean(d) > stdtrit(len(d) - 1, ndtr(CLEARLY)) * error))

    def __str__(self) -> str:
        return f"{self.mean:.2g} ± {self.error:.1g}"


def behind(tried: Sequence[Tried]) -> dict[int, Behind]:
    """How far models are behind the best on rows held out, by their place; without those that have no such score."""
    scores = {i: one.scores for i, one in enumerate(tried) if one.scores is not None and np.isfinite(one.scores).all()}
    leader = max(scores.values(), key=np.mean) if scores else None
    return {} if leader is None else {i: Behind.of(leader, one) for i, one in scores.items()}


def _not_behind(tried: Sequence[Tried]) -> list[int]:
    """Those that are not clearly worse on rows held out than the best."""
    found = behind(tried)
    return [i for i, one in found.items() if not one.clearly] if found else list(range(len(tried)))


def reasons(tried: Sequence[Tried], chosen: int) -> list[str]:
    """Why one of several models was taken, and each of the others was not."""
    if len(tried) < 2:
        return [""]
    found, said = behind(tried), []
    others = [i for i in range(len(tried)) if i != chosen]
    rivals = [i for i in others if i in _not_behind(tried) and tried[i].whole]
    more = {i: tried[chosen].evidence - tried[i].evidence for i in rivals}
    for i, one in enumerate(tried):
        if i == chosen:
            said.append(_taken(rivals, more, bool(found)))
        elif i in found and found[i].clearly:
            said.append(f"clearly behind on rows held out, by {found[i]} a row")
        else:
            so = "" if i not in found else f"within the error of rows held out ({found[i]} a row behind)"
            so = "rows held out are most probable with it, within their error" if i in found and not found[i].mean else so
            said.append("; ".join(part for part in (so, _less(one, more.get(i))) if part))
    return said


def _taken(rivals: Sequence[int], more: dict[int, float], held: bool) -> str:
    if not rivals:
        return "taken: the others are clearly behind on rows held out"
    if any(np.isnan(value) for value in more.values()):
        return "taken: rows held out are most probable with it, within their error"
    if any(value < -FACTOR for value in more.values()):
        return "taken: preferred where no other is clearly better on rows held out"
    if all(value >= FACTOR for value in more.values()):
        return f"taken: most evidence{' of those that are as good on rows held out' if held else ''}"
    return "taken: the simplest of those that evidence and rows held out do not tell apart" if held else "taken: the simplest"


def _less(one: Tried, more: float | None) -> str:
    if not one.whole:
        return "learned from some of the rows only"
    if more is None or np.isnan(more):
        return "its evidence compares nothing"
    numbers = "for what it learned"
    return f"log evidence {'less' if more > 0 else 'more'} by {abs(more):.3g}, charged {numbers}"


def charged_evidence(candidate: Candidate, fitted: Any, rows: int, task: str) -> float:
    """The log evidence less what the numbers cost that were learned; NaN where it says nothing beside others."""
    if not candidate.comparable:
        return float("nan")
    each = 0.5 * np.log(rows) if task == "regression" else 2.0
    parts = fitted.parts if isinstance(fitted, OneAgainstRest) else (fitted,)
    cost = 0.0
    for part in parts:
        numbers, turned = turned_off(part)
        cost += each * (candidate.numbers(part) - numbers) + min(np.log(2.0), each) * turned
    return float(fitted.log_evidence) - cost


def turned_off(fitted: Any) -> tuple[int, int]:
    """How many learned numbers say nothing, and of how many columns or functions they are.

    A function says nothing where its standard deviation is next to none of the spread of the data, or, where these are labels
    or counts, of one; a column where a function of several changes over far more than its spread.
    """
    kernel = getattr(getattr(fitted, "gp", getattr(fitted, "model", None)), "kernel", None)
    inputs, data = getattr(fitted, "inputs", None), getattr(fitted, "data", None)
    if not isinstance(kernel, Kernel):
        return 0, 0
    spread = np.zeros(0) if inputs is None else np.std(np.asarray(inputs.points), axis=0)
    unit = float(np.nanstd(np.asarray(data.y))) if data is not None and fitted.likelihood.is_gaussian else 1.0
    numbers = turned = 0
    found = {leaf.path: leaf for leaf in learned_leaves(kernel)}
    for path, leaf in found.items():
        owner, _, name = path.rpartition(".")
        if name == "variance" and owner and float(np.sqrt(leaf.value)) < OFF_SIZE * unit:
            numbers, turned = numbers + sum(other.startswith(f"{owner}.") for other in found), turned + 1
        elif name == "lengthscale" and 1 < np.size(leaf.value) == len(spread):
            off = int(np.sum(np.ravel(leaf.value) > OFF_LENGTH * spread))
            numbers, turned = numbers + off, turned + off
    return numbers, turned


def functions_of(classes: int) -> int:
    """Two classes share a function, of more each has its own."""
    return 1 if classes < 3 else classes


def learning_seconds(cost: Cost | None, columns: int, classes: int = 0) -> float:
    """About how long learning takes once it runs: on the reference machine, so that all machines choose alike."""
    times = functions_of(classes) * evaluations_of(columns + OTHERS, 0)
    return times * reference().seconds(cost.evaluation) if cost else 0.0


def sites_seconds(rows: int, columns: int, task: str, classes: int = 0) -> float:
    """The same for labels, counts or outliers in a dense matrix: a climb on some of many rows, and a short one on all."""
    look = lambda N: look_at_matrix(N) if task == "outliers" else look_at_matrix(N, 1.0)
    cost = lambda N: cost_of_matrix(N, columns).searching(look(N))
    if rows <= MANY_ROWS:
        return learning_seconds(cost(rows), columns, classes)
    whole = functions_of(classes) * FIRST * reference().seconds(cost(rows).evaluation)
    return learning_seconds(cost(SOME), columns, classes) + whole


def affordable_rows(columns: int, task: str, classes: int = 0, seconds: float = SECONDS) -> int:
    """The most rows of which a dense matrix can be learned from in so many seconds."""

    def needed(rows: int) -> float:
        if task == "regression":
            return learning_seconds(cost_of_matrix(rows, columns), columns, classes)
        return sites_seconds(rows, columns, task, classes)

    return bisect.bisect_left(range(1, LARGEST), seconds, key=needed)


def for_many_rows(
    task: str, shape: tuple[int, int], likelihood: Likelihood, classes: int, seed: int, limits: Limits
) -> dict[str, Candidate]:
    """All that can take many rows of a table of this shape, by the structure that asks for it, the simpler first."""
    additive, projections = sums(task, shape, likelihood, classes, seed, limits).items()
    D = shape[1]
    if task != "regression":
        inducing = by_class(_inducing_labels(shape, likelihood, task, functions_of(classes), seed, limits), classes)
        return dict([additive, ("inducing", inducing), projections])
    sparse = {"inducing": _inducing(shape, limits)}
    if 1 < D <= MOST_COLUMNS:
        sparse = {"neighbours": _neighbours(shape, limits)} | sparse
    return dict([additive, *sparse.items(), projections])


def _of_all_columns(D: int) -> GP:
    return GP(Matern52(np.full(D, np.sqrt(D))), Gaussian(), ConstantMean())


def _inducing(shape: tuple[int, int], limits: Limits) -> Candidate:
    N, D = shape
    approximation, begun = Inducing(INDUCING), cost_of_matrix(min(N, SEEN[0]), D)
    seconds = COMPILING + learning_seconds(begun, D) + FIRST * reference().seconds(cost_of_inputs(N, INDUCING, D).evaluation)

    def go_on(fitted: Any, X: Any, y: np.ndarray, deadline: Deadline) -> Any:
        gp, inputs = fitted.gp, as_inputs(X)
        data, offer = read_observations(gp.likelihood, y, None, "error", inputs), gp.plan(X, approximate=approximation).chosen
        gp, learning = go_on_through_inputs(gp, inputs, data, offer, deadline, limits.evaluations)
        return dataclasses.replace(gp.condition(X, y, approximate=approximation), learning=learning)

    return _approximately("inducing", approximation, D, seconds, limits)._replace(go_on=go_on)


def _neighbours(shape: tuple[int, int], limits: Limits) -> Candidate:
    N, D = shape
    seconds = COMPILING + learning_seconds(cost_of_neighbours(N, NEIGHBOURS, D), D)
    return _approximately("neighbours", Neighbours(NEIGHBOURS), D, seconds, limits)


def _approximately(name: str, approximation: Approximation, D: int, seconds: float, limits: Limits) -> Candidate:
    """One function of all columns, of which an approximation takes many rows."""

    def fit(X: Any, y: np.ndarray, tell: Tell, deadline: Deadline) -> Any:
        options: dict[str, Any] = {"progress": tell, "seconds": deadline, "max_evaluations": limits.evaluations}
        return _of_all_columns(D).fit(X, y, approximate=approximation, restarts=0, **options)

    def refit(fitted: Any, X: Any, y: np.ndarray) -> Any:
        return dataclasses.replace(fitted.gp.condition(X, y, approximate=approximation), learning=fitted.learning)

    return Candidate(SPARSE[name], fit, refit, seconds, comparable=False)


def _inducing_labels(
    shape: tuple[int, int], likelihood: Likelihood, task: str, functions: int, seed: int, limits: Limits
) -> Candidate:
    """One function of all columns behind labels or counts: learned exactly from some rows, it then sees all of them.

    Sites that are found anew for each evaluation make learning from all rows long, and it tells little more.
    """
    N, D = shape
    lengthscales: Any = learned(np.full(D, np.sqrt(D)), prior=Alike()) if D > 1 else 1.0
    gp = GP(SquaredExponential(lengthscales, learned(4.0, prior=LogNormal(np.log(4.0), 2.0))), likelihood, ConstantMean())
    cost = cost_of_inputs(N, INDUCING, D)
    giving = reference().seconds(cost.searching(cost.condition).condition)

    def fit(X: Any, y: np.ndarray, tell: Tell, deadline: Deadline) -> Any:
        points, few = np.asarray(as_inputs(X).points), _some(y, LEARNED_FROM, seed, task)
        options: dict[str, Any] = {"progress": tell, "max_evaluations": limits.evaluations, "parameters": "best"}
        options["seconds"] = dataclasses.replace(deadline, at=deadline.at - giving)
        return refit(gp.fit(points[few], y[few], structure="dense", restarts=0, **options), points, y)

    def refit(fitted: Any, X: Any, y: np.ndarray) -> Any:
        at_once = len(y) <= GIVEN_AT_ONCE and not _has_inputs(fitted.gp)
        how: dict[str, Any] = {"structure": "dense"} if at_once else {"approximate": Inducing(INDUCING)}
        return dataclasses.replace(fitted.gp.condition(X, y, **how), learning=fitted.learning)

    seconds = COMPILING_SITES + functions * (sites_seconds(min(N, LEARNED_FROM), D, task) + giving)
    return Candidate(SPARSE["inducing"], fit, refit, seconds, compiling=COMPILING_SITES, comparable=False)


def _has_inputs(gp: GP) -> bool:
    return any(leaf.path.endswith(".inputs") for leaf in leaves(gp))


def _some(y: np.ndarray, most: int, seed: int, task: str) -> np.ndarray:
    """At most so many rows, at random, and one of each label."""
    few = np.random.default_rng(seed).permutation(len(y))[:most]
    return few if task == "counts" else _with_both(few, y)


def sums(
    task: str, shape: tuple[int, int], likelihood: Likelihood, classes: int, seed: int, limits: Limits
) -> dict[str, Candidate]:
    """Sums of functions for a table of this shape, by the structure that asks for them, the simpler first."""
    N, D = shape
    functions = functions_of(classes)
    least = COMPILING_SINES + functions * N * D * 5e-5
    if task == "regression":
        return {"additive": _additive(shape, limits), "projection-pursuit": _projections(D, seed, limits, least)}
    limits = limits._replace(seconds=limits.seconds / functions)
    found = {
        "additive": _additive_labels(shape, likelihood, task, functions, seed, limits),
        "projection-pursuit": _projected_labels(D, likelihood, seed, limits, least),
    }
    return {structure: by_class(one, classes) for structure, one in found.items()}


def _additive(shape: tuple[int, int], limits: Limits) -> Candidate:
    def fit(X: Any, y: np.ndarray, tell: Tell, deadline: Deadline) -> Any:
        return AdditiveGP().fit(X, y, max_evaluations=limits.evaluations, progress=tell, seconds=deadline)

    def refit(fitted: Any, X: Any, y: np.ndarray) -> Any:
        return AdditiveGP(fitted.kernel, fitted.likelihood).condition(X, y)

    seconds = COMPILING_SPLINES + 2e-4 * shape[0] * shape[1]
    return Candidate(SUMS["additive"], fit, refit, seconds, compiling=COMPILING_SPLINES)


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
        few = _some(y, rows, seed, task)
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

    @property
    def cut_off(self) -> bool:
        """Whether the clock ended its learning."""
        learning = getattr(self.fitted, "learning", None)
        return learning is not None and learning.message == OUT_OF_TIME

    def __str__(self) -> str:
        if self.scores is None:
            return self.reason or f"{self.seconds:.0f} s, all rows from the start"
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
    deadline = Deadline.after(seconds)
    attempts = _attempts(X, y, task, candidates, seed, deadline)
    ran = [attempt for attempt in attempts if attempt.fitted is not None]
    if not ran:
        raise ValueError(f"nothing could be learned from these rows: {attempts[0].reason}")
    evidences = [charged_evidence(attempt.candidate, attempt.fitted, len(y), task) for attempt in ran]
    winner = ran[best([Tried(*tried) for tried in zip(evidences, (attempt.scores for attempt in ran), strict=True)])]
    given = _given_all(winner, X, y, deadline)
    chosen = _offer(winner, given, X, classes)
    chosen = dataclasses.replace(chosen, note=f"{chosen.note}; {winner}" if chosen.note else str(winner))
    others = [_not_taken(attempt, X, classes) for attempt in attempts if attempt is not winner]
    return given, Plan((chosen, *others, Offer(Cholesky(), reason=_too_many(X))))


def _given_all(winner: Attempt, X: np.ndarray, y: np.ndarray, deadline: Deadline) -> Any:
    """The winner with all rows, learned on where it was stopped too early."""
    if winner.scores is None:
        return winner.fitted
    until = _earlier(deadline, ENDING)
    if winner.cut_off and winner.candidate.go_on is not None and not until.passed():
        return winner.candidate.go_on(winner.fitted, X, y, until)
    return winner.candidate.refit(winner.fitted, X, y)


def _attempts(
    X: np.ndarray, y: np.ndarray, task: str, candidates: dict[str, Candidate], seed: int, deadline: Deadline
) -> list[Attempt]:
    """What each of the candidates that there is time for makes of the rows that it does not learn from."""
    order = sorted(candidates, key=lambda name: (name not in SPARSE, candidates[name].seconds))
    learning = _earlier(deadline, GIVING)
    first, *rest = order
    if all(_late(candidates[name], learning.left() - candidates[first].seconds) for name in rest):
        reasons = {name: _late(candidates[name], learning.left() - candidates[first].seconds) for name in rest}
        alone = _attempt(first, candidates[first], _earlier(deadline, ENDING), lambda one, until: one.fit(X, y, None, until))
        if alone.fitted is not None:
            done = {first: alone} | {name: Attempt(name, candidates[name], reason=reasons[name]) for name in rest}
            return [done[name] for name in candidates]
    rows = _Rows.of(X, y, task, seed)
    done = {}
    for place, name in enumerate(order):
        one = candidates[name]
        others = [other for other in order[place + 1 :] if not _late(candidates[other], learning.left() - one.seconds)]
        reason = _why_not(one, name, done, rows, learning)
        if reason:
            done[name] = Attempt(name, one, reason=reason)
            continue
        own = learning.share(1 + len(others))
        own = dataclasses.replace(own, at=min(max(own.at, own.clock() + one.seconds), learning.at))
        done[name] = _attempt(name, one, own, rows.learned, rows.scored)
    return [done[name] for name in candidates]


def _earlier(deadline: Deadline, part: float) -> Deadline:
    """The moment when so much of the time from now on is left."""
    return (
        dataclasses.replace(deadline, at=deadline.at - part * max(deadline.left(), 0.0))
        if np.isfinite(deadline.at)
        else deadline
    )


def _attempt(
    name: str,
    one: Candidate,
    deadline: Deadline,
    fit: Callable[[Candidate, Deadline], Any],
    score: Callable[[Any], np.ndarray | None] = lambda fitted: None,
) -> Attempt:
    began = time.perf_counter()
    try:
        fitted = fit(one, deadline)
        return Attempt(name, one, fitted, score(fitted), time.perf_counter() - began)
    except (ValueError, FloatingPointError, MemoryError) as met:
        return Attempt(name, one, reason=f"failed: {textwrap.shorten(str(met).splitlines()[0], LONGEST, placeholder=' …')}")


def _late(one: Candidate, left: float) -> str:
    """Why there is no time for a candidate, if there is none."""
    return f"about {one.seconds:.0f} s of learning, and {max(left, 0.0):.0f} s were left" if one.seconds > left else ""


def _why_not(one: Candidate, name: str, done: dict[str, Attempt], rows: _Rows, learning: Deadline) -> str:
    """Why a candidate is not tried after those that were."""
    tried = [attempt for attempt in done.values() if attempt.scores is not None]
    if not tried:
        return ""
    leader = max(tried, key=lambda attempt: np.mean(attempt.scores))  # type: ignore[arg-type]
    if name == "projection-pursuit" and leader.cut_off and leader.candidate.go_on is not None:
        return "the time is left to the leader, which was stopped by the clock"
    if late := _late(one, learning.left()):
        return late
    if name == "additive" and len(rows.kept) >= KNOTS * PER_KNOT * rows.X.shape[1]:
        quick, error = rows.error_of_splines(), rows.error_of(leader.fitted)
        if quick > PAYS * error:
            return f"by least squares its error is {np.sqrt(quick / error):.2g} times that of the leader"
    return ""


class _Rows(NamedTuple):
    """Rows to learn from, and rows held out."""

    X: np.ndarray
    y: np.ndarray
    task: str
    kept: np.ndarray
    held: np.ndarray

    @classmethod
    def of(cls, X: np.ndarray, y: np.ndarray, task: str, seed: int) -> _Rows:
        held = np.random.default_rng(seed).permutation(len(y))[: min(int(HELD * len(y)), MOST_HELD)]
        kept = np.setdiff1d(np.arange(len(y)), held)
        return cls(X, y, task, kept if task == "regression" else _with_both(kept, y), held)

    def learned(self, one: Candidate, deadline: Deadline) -> Any:
        return one.fit(self.X[self.kept], self.y[self.kept], None, deadline)

    def scored(self, fitted: Any) -> np.ndarray:
        return log_probabilities(fitted, self.task, self.X[self.held], self.y[self.held])

    def error_of(self, fitted: Any) -> float:
        """The mean squared error on rows held out, of the probabilities where there are labels."""
        prediction = fitted.predict(self.X[self.held])
        mean = class_probabilities(prediction) if self.task == "classification" else prediction.observed.mean[:, None]
        return float(np.mean((mean - self._targets(self.held)) ** 2))

    def error_of_splines(self) -> float:
        """The same of splines in each column by least squares, the best of a few penalties."""
        some = self.kept[: min(len(self.kept), QUICK_ROWS)]
        A, B = _hats(self.X[some], self.X[self.held])
        T = self._targets(some)
        level = T.mean(axis=0)
        values, vectors = np.linalg.eigh(A.T @ A)
        right, seen = vectors.T @ (A.T @ (T - level)), B @ vectors
        penalties = np.geomspace(1e-6, 1e-1, 6) * len(some)
        errors = [np.mean((level + seen @ (right / (values[:, None] + p)) - self._targets(self.held)) ** 2) for p in penalties]
        return float(min(errors))

    def _targets(self, rows: np.ndarray) -> np.ndarray:
        y = self.y[rows]
        return (y[:, None] == np.unique(self.y)).astype(float) if self.task == "classification" else y[:, None]


def _hats(X: np.ndarray, others: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Piecewise linear functions of each column, between knots that have as many rows from one to the next."""
    found: tuple[list[np.ndarray], list[np.ndarray]] = ([], [])
    for column, other in zip(X.T, others.T, strict=True):
        knots = np.unique(np.quantile(column, np.linspace(0, 1, KNOTS)))
        for values, features in zip((column, other), found, strict=True):
            features += [np.interp(values, knots, corner) for corner in np.eye(len(knots))]
    A, B = (np.stack(features, axis=1) for features in found)
    center = A.mean(axis=0)
    return A - center, B - center


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
    if structure in SPARSE and classes and N > LEARNED_FROM:
        return dataclasses.replace(parts[0].plan.chosen, note=f"learned from {LEARNED_FROM} rows")
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
