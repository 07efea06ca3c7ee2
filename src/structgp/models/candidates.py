"""What may be fitted to a table when nothing is said, each with about how long it takes: `models.choose` has the rule.

One function of all columns, exactly (a dense matrix), through inducing inputs, or in up to four columns by neighbours; a sum of
functions of one column each; a sum of functions of learned projections.
"""

from __future__ import annotations

import bisect
import dataclasses
import functools
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from ..engines.approximation import Approximation, FiniteState
from ..engines.base import MANY_ROWS, NOT_SAID, Cost
from ..engines.cholesky import LARGEST, cost_of_matrix, look_at_matrix
from ..engines.inducing import SEEN, cost_of_inputs, look_at_inputs
from ..engines.inducing_inputs import Inducing
from ..engines.machine import Work, reference
from ..engines.neighbours import Neighbours, cost_of_neighbours
from ..engines.plan import Plan, evaluations_of
from ..inputs.layouts import as_inputs
from ..inputs.observations import read_observations
from ..kernels.metrics import GroupMetric
from ..kernels.stationary import Matern52, SquaredExponential
from ..learn.clock import Deadline
from ..learn.inducing import go_on_through_inputs
from ..learn.initialise import SOME
from ..learn.maximise import maximise
from ..learn.some_rows import learn_from_some
from ..likelihoods.base import Likelihood
from ..likelihoods.gaussian import Gaussian
from ..means import ConstantMean
from ..parameters.priors import Alike, LogNormal
from ..parameters.tree import free_vector, learned, leaves
from ..process.gp import GP
from .additive.model import AdditiveGP
from .labels import AdditiveLabels, ProjectionPursuitLabels
from .one_against_rest import OneAgainstRest
from .pursuit.model import ProjectionPursuitGP

SUMS = {"additive": "a sum of functions of one column each", "projection-pursuit": "a sum of functions of learned projections"}
ONE_FUNCTION = {
    "dense": "one function of all columns, exactly",
    "state-space": "one function of the line, through a finite state",
    "neighbours": "one function of all columns, each row given its neighbours",
    "inducing": "one function of all columns, through inducing inputs",
}
SECONDS = 300.0  # that an estimator may take to choose and to learn
COMPILING = 4.0  # seconds before a new kind of model runs at all
COMPILING_SITES = 8.0  # where observations are not Gaussian
COMPILING_SPLINES, COMPILING_SINES = 14.0, 16.0  # of sums of functions, which need several programs
OTHERS = 3  # numbers that are learned beside a lengthscale for each column
INDUCING = 500  # inducing inputs
LEAST_INDUCING = 60  # of them, where time is short
GIVING = 0.25  # part of the time for a search that inducing inputs may take to give all rows what was learned from some
NEIGHBOURS = 30
MOST_COLUMNS = 4  # in which neighbours are near enough to tell all that others would
LEARNED_FROM = 1000  # labels or counts of which one function of all columns is learned, which then sees all
GIVEN_AT_ONCE = 2500  # labels or counts of which a dense matrix is made in a few seconds, once they are learned from
MOST_EXACT = 10_000  # rows of which a dense matrix is made where others compete: beyond, predictions take too long
EXACTLY = 1000, 4000  # of which it is learned from so many, by the time that there is
FIRST = 10  # evaluations after which learning through inducing inputs has something to show

NOTHING: Mapping[str, Any] = MappingProxyType({})

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


class Process(NamedTuple):
    """A process that is asked for."""

    gp: Any
    inference: str | None = None  # by which its sites are found
    labels: bool = False  # whether observations are labels
    sums: bool = False  # whether sums of functions behind counts may stand in for it
    evaluations: int = 300  # of the evidence in a climb


class Candidate(NamedTuple):
    """A model to try: `fit` learns from rows, `refit` gives what was learned other rows.

    What is told of each row besides (`noise`, `extra`) comes by name, where there is any.
    """

    name: str
    fit: Callable[..., Any]  # of X, y, what hears of learning, and the moment at which it ends
    refit: Callable[..., Any]  # of what was learned, X and y
    seconds: float = 0.0  # about how long learning takes, compiling included
    rows: int | None = None  # the most rows that it can take
    plan: Plan | None = None  # what would run, for a plain process
    start: GP | None = None  # that process, with which learning begins
    robust: Callable[[Any, str, float], Candidate | None] | None = None  # from what was learned, with noise of another kind
    price: float = 0.0  # what the evidence leaves out: the prior density of a free level and slope
    numbers: Callable[[Any], int] = lambda fitted: len(free_vector(fitted.gp))  # that were learned
    compiling: float = COMPILING  # seconds of those that go by before it runs
    finishing: Work = NOT_SAID  # to give it all rows and to ask it for them, where that is much
    average: Callable[[Any, Any, np.ndarray, Any], Any] = lambda fitted, X, y, parameters: fitted  # over unsure parameters
    comparable: bool = True  # whether its evidence is that of a model, or a bound on it
    go_on: Callable[..., Any] | None = None  # from what was learned with X and y until a moment, where time was over too early
    proportional: Callable[[], Candidate] | None = None  # the same for the logarithm of the level, where that may be better


def functions_of(classes: int) -> int:
    """Two classes share a function, of more each has its own."""
    return 1 if classes < 3 else classes


def learning_seconds(cost: Cost | None, columns: int, classes: int = 0, numbers: int | None = None) -> float:
    """About how long learning takes once it runs: on the reference machine, so that all machines choose alike.

    So many `numbers` are learned, by default a lengthscale for each column and a few others.
    """
    times = functions_of(classes) * evaluations_of(columns + OTHERS if numbers is None else numbers, 0)
    return times * reference().seconds(cost.evaluation) if cost else 0.0


def finishing_work(cost: Cost | None, rows: int) -> Work:
    """What it takes to give a model all rows, and to ask it for each of them."""
    return NOT_SAID if cost is None else cost.conditioning + cost.prediction(rows)


def sites_seconds(rows: int, columns: int, task: str, classes: int = 0, numbers: int | None = None) -> float:
    """The same for labels, counts or outliers in a dense matrix: a climb on some of many rows, and a short one on all."""
    look = lambda N: look_at_matrix(N) if task == "outliers" else look_at_matrix(N, 1.0)
    cost = lambda N: cost_of_matrix(N, columns).searching(look(N))
    if rows <= MANY_ROWS:
        return learning_seconds(cost(rows), columns, classes, numbers)
    first = FIRST if numbers is None else min(FIRST, evaluations_of(numbers, 0))
    whole = functions_of(classes) * first * reference().seconds(cost(rows).evaluation)
    return learning_seconds(cost(SOME), columns, classes, numbers) + whole


def affordable_rows(columns: int, task: str, classes: int = 0, seconds: float = SECONDS, numbers: int | None = None) -> int:
    """The most rows of which a dense matrix can be learned from in so many seconds."""

    def needed(rows: int) -> float:
        if task == "regression":
            return learning_seconds(cost_of_matrix(rows, columns), columns, classes, numbers)
        return sites_seconds(rows, columns, task, classes, numbers)

    return bisect.bisect_left(range(1, LARGEST), seconds, key=needed)


def task_of(gp: Any) -> str:
    """What there is to find for a process: numbers, sites, or sites of any sign or of several latents."""
    if gp.likelihood.is_gaussian:
        return "regression"
    return "counts" if gp.likelihood.latents == 1 and gp.likelihood.log_concave else "outliers"


def for_many_rows(
    task: str,
    shape: tuple[int, int],
    likelihood: Likelihood,
    classes: int,
    seed: int,
    limits: Limits,
    groups: tuple[int, ...] = (),
) -> dict[str, Candidate]:
    """All that can take many rows of a table of this shape, by the structure that asks for it, the simpler first.

    Columns of one of the `groups` share a lengthscale; with none each has its own.
    """
    additive, projections = sums(task, shape, likelihood, classes, seed, limits).items()
    if task == "regression":
        one = _numbers(_of_all_columns(shape[1]), shape, limits, shape[1] + OTHERS)
        return dict([additive, *one.items(), projections])
    gp = _behind_labels(shape[1], likelihood, groups)
    inducing = by_class(_behind_sites(gp, shape, functions_of(classes), seed, limits, task == "classification"), classes)
    return dict([additive, ("inducing", inducing), projections])


def of_process(process: Process, shape: tuple[int, int], seed: int, limits: Limits) -> dict[str, Candidate]:
    """The same for a process that is asked for: it is one function by all that may stand in for its matrix."""
    gp, (N, D), limits = process.gp, shape, limits._replace(evaluations=process.evaluations)
    numbers, how = len(free_vector(gp)), {} if process.inference is None else {"inference": process.inference}
    if gp.likelihood.is_gaussian:
        found = _numbers(gp, shape, limits, numbers)
    else:
        found = {"inducing": _behind_sites(gp, shape, 1, seed, limits, process.labels, how)}
    if D == 1:
        seconds = COMPILING_SITES + learning_seconds(cost_of_neighbours(N, NEIGHBOURS, 1), 1, numbers=numbers)  # as linear
        along = _approximately("state-space", FiniteState("state-space"), gp, seconds, limits, None, how)
        found = {"state-space": along} | found
    if not process.sums:
        return found
    additive, projections = sums("counts", shape, gp.likelihood, 0, seed, limits).items()
    return dict([additive, *found.items(), projections])


def _of_all_columns(D: int) -> GP:
    return GP(Matern52(np.full(D, np.sqrt(D))), Gaussian(), ConstantMean())


def _numbers(gp: GP, shape: tuple[int, int], limits: Limits, numbers: int) -> dict[str, Candidate]:
    """One function behind Gaussian observations, by all that can take many of them."""
    N, D = shape
    found = {"inducing": _inducing(gp, shape, limits, numbers)}
    if 1 < D <= MOST_COLUMNS:
        found = {"neighbours": _neighbours(gp, shape, limits, numbers)} | found
    if N <= MOST_EXACT:
        found = {"dense": _dense(gp, shape, limits, numbers)} | found
    return found


def _dense(gp: GP, shape: tuple[int, int], limits: Limits, numbers: int) -> Candidate:
    """The exact process of all rows, whose parameters are learned from as many as there is time for."""
    N, D = shape
    some = int(np.clip(affordable_rows(D, "regression", 0, limits.seconds / 3, numbers), *EXACTLY))
    giving = reference().seconds(cost_of_matrix(N, D).condition)

    def fit(X: Any, y: np.ndarray, tell: Tell, deadline: Deadline, noise: Any = None) -> Any:
        inputs = as_inputs(X)
        options: dict[str, Any] = {"progress": tell or False, "max_evaluations": limits.evaluations}
        options["deadline"] = dataclasses.replace(deadline, at=deadline.at - giving)
        data = read_observations(gp.likelihood, y, noise, "error", inputs)
        found, learning = learn_from_some(gp, inputs, data, some, **options)
        return _given_exactly(found, learning, X, y, noise)

    def refit(fitted: Any, X: Any, y: np.ndarray, noise: Any = None) -> Any:
        return _given_exactly(fitted.gp, fitted.learning, X, y, noise)

    seconds = COMPILING + learning_seconds(cost_of_matrix(min(N, some), D), D, numbers=numbers) + giving
    return Candidate(ONE_FUNCTION["dense"], fit, refit, seconds, finishing=finishing_work(cost_of_matrix(N, D), N))


def _given_exactly(gp: GP, learning: Any, X: Any, y: np.ndarray, noise: Any) -> Any:
    return dataclasses.replace(gp.condition(X, y, structure="dense", noise=noise), learning=learning)


def _inducing(gp: GP, shape: tuple[int, int], limits: Limits, numbers: int) -> Candidate:
    N, D = shape
    begun, each = cost_of_matrix(min(N, SEEN[0]), D), reference().seconds(cost_of_inputs(N, INDUCING, D).evaluation)
    seconds = COMPILING + learning_seconds(begun, D, numbers=numbers) + FIRST * each
    return _approximately("inducing", Inducing(INDUCING), gp, seconds, limits, go_on_through_inputs)


def _neighbours(gp: GP, shape: tuple[int, int], limits: Limits, numbers: int) -> Candidate:
    N, D = shape
    seconds = COMPILING + learning_seconds(cost_of_neighbours(N, NEIGHBOURS, D), D, numbers=numbers)

    def on(gp: GP, inputs: Any, data: Any, offer: Any, deadline: Deadline, most: int) -> tuple[GP, Any]:
        options: dict[str, Any] = {"restarts": 0, "seed": 0, "max_evaluations": most, "progress": False, "deadline": deadline}
        return maximise(gp, inputs, data, dataclasses.replace(offer, glimpse=False), **options)

    return _approximately("neighbours", Neighbours(NEIGHBOURS), gp, seconds, limits, on)


def _approximately(
    name: str,
    approximation: Approximation,
    gp: GP,
    seconds: float,
    limits: Limits,
    on: Callable[..., Any] | None,
    how: Mapping[str, Any] = NOTHING,
) -> Candidate:
    """One function of all columns, of which an approximation takes many rows; `on` learns on from where learning was."""

    def fit(X: Any, y: np.ndarray, tell: Tell, deadline: Deadline, **told: Any) -> Any:
        options: dict[str, Any] = {"progress": tell, "seconds": deadline, "max_evaluations": limits.evaluations}
        return gp.fit(X, y, approximate=approximation, restarts=0, parameters="best", **options, **how, **told)

    def refit(fitted: Any, X: Any, y: np.ndarray, **told: Any) -> Any:
        again = fitted.gp.condition(X, y, approximate=approximation, **how, **told)
        return dataclasses.replace(again, learning=fitted.learning)

    def go_on(fitted: Any, X: Any, y: np.ndarray, deadline: Deadline, noise: Any = None) -> Any:
        gp, inputs = fitted.gp, as_inputs(X)
        data, offer = read_observations(gp.likelihood, y, noise, "error", inputs), gp.plan(X, approximate=approximation).chosen
        assert on is not None
        gp, learning = on(gp, inputs, data, offer, deadline, limits.evaluations)
        return dataclasses.replace(gp.condition(X, y, approximate=approximation, noise=noise), learning=learning)

    return Candidate(ONE_FUNCTION[name], fit, refit, seconds, comparable=False, go_on=None if on is None else go_on)


def _behind_labels(D: int, likelihood: Likelihood, groups: tuple[int, ...]) -> GP:
    each = max(groups) + 1 if groups else D
    lengthscales: Any = learned(np.full(each, np.sqrt(each)), prior=Alike()) if each > 1 else 1.0
    lengthscales = GroupMetric(lengthscales, groups) if groups else lengthscales
    return GP(SquaredExponential(lengthscales, learned(4.0, prior=LogNormal(np.log(4.0), 2.0))), likelihood, ConstantMean())


def _behind_sites(
    gp: GP,
    shape: tuple[int, int],
    functions: int,
    seed: int,
    limits: Limits,
    labels: bool = False,
    how: Mapping[str, Any] = NOTHING,
) -> Candidate:
    """One function of all columns behind labels, counts or outliers: learned exactly from some rows, it then sees all of them.

    Sites that are found anew for each evaluation make learning from all rows long, and it tells little more.
    """
    N, D = shape
    count, giving = _inputs_in_time(N, D, GIVING * limits.seconds / (functions * gp.likelihood.latents**2))

    def fit(X: Any, y: np.ndarray, tell: Tell, deadline: Deadline, **told: Any) -> Any:
        points, few = np.asarray(as_inputs(X).points), _some(y, LEARNED_FROM, seed, labels)
        options: dict[str, Any] = {"progress": tell, "max_evaluations": limits.evaluations, "parameters": "best", **how}
        options["seconds"] = dataclasses.replace(deadline, at=deadline.at - giving - COMPILING)
        found: Any = gp.fit(points[few], y[few], structure="dense", restarts=0, **options, **of_rows(told, few, len(y)))
        drawn = len(few) if len(few) < len(y) else 0
        return refit(dataclasses.replace(found, learning=dataclasses.replace(found.learning, rows=drawn)), points, y, **told)

    def refit(fitted: Any, X: Any, y: np.ndarray, **told: Any) -> Any:
        at_once = len(y) <= GIVEN_AT_ONCE and not _has_inputs(fitted.gp)
        where: dict[str, Any] = {"structure": "dense"} if at_once else {"approximate": Inducing(count)}
        return dataclasses.replace(fitted.gp.condition(X, y, **where, **how, **told), learning=fitted.learning)

    learning = sites_seconds(min(N, LEARNED_FROM), D, task_of(gp), numbers=len(free_vector(gp)))
    seconds = COMPILING_SITES + functions * (learning + giving)
    return Candidate(ONE_FUNCTION["inducing"], fit, refit, seconds, compiling=COMPILING_SITES, comparable=False)


def _inputs_in_time(N: int, D: int, seconds: float) -> tuple[int, float]:
    """How many inducing inputs can be given so many rows, whose sites are searched for, in some seconds, and in how many."""
    count = INDUCING
    while True:
        cost = cost_of_inputs(N, count, D)
        giving = reference().seconds(cost.searching(look_at_inputs(N, count)).condition)
        if giving <= seconds or count // 2 < LEAST_INDUCING:
            return count, giving
        count //= 2


def of_rows(told: Mapping[str, Any], rows: np.ndarray, N: int) -> dict[str, Any]:
    """What is told of some of N rows, or of all of them at once."""
    return {name: np.asarray(value)[rows] if np.ndim(value) and len(value) == N else value for name, value in told.items()}


def _has_inputs(gp: GP) -> bool:
    return any(leaf.path.endswith(".inputs") for leaf in leaves(gp))


def _some(y: np.ndarray, most: int, seed: int, labels: bool) -> np.ndarray:
    """At most so many rows, at random, and one of each label if there are labels."""
    few = np.random.default_rng(seed).permutation(len(y))[:most]
    return with_both(few, y) if labels else few


def sums(
    task: str, shape: tuple[int, int], likelihood: Likelihood, classes: int, seed: int, limits: Limits
) -> dict[str, Candidate]:
    """Sums of functions for a table of this shape, by the structure that asks for them, the simpler first."""
    N, D = shape
    functions = functions_of(classes)
    least = COMPILING_SINES + functions * N * D * 5e-5
    if task == "regression":
        projections = _projections(ProjectionPursuitGP, lambda fitted: fitted.model, D, seed, limits, least)
        return {"additive": _additive(shape, limits), "projection-pursuit": projections}
    limits = limits._replace(seconds=limits.seconds / functions)
    projected = functools.partial(ProjectionPursuitLabels, likelihood)
    found = {
        "additive": _additive_labels(shape, likelihood, task, functions, seed, limits),
        "projection-pursuit": _projections(projected, lambda fitted: fitted.model.functions, D, seed, limits, least),
    }
    return {structure: by_class(one, classes) for structure, one in found.items()}


def _additive(shape: tuple[int, int], limits: Limits) -> Candidate:
    def fit(X: Any, y: np.ndarray, tell: Tell, deadline: Deadline) -> Any:
        return AdditiveGP().fit(X, y, max_evaluations=limits.evaluations, progress=tell, seconds=deadline)

    def refit(fitted: Any, X: Any, y: np.ndarray) -> Any:
        return AdditiveGP(fitted.kernel, fitted.likelihood).condition(X, y)

    seconds = COMPILING_SPLINES + 2e-4 * shape[0] * shape[1]
    return Candidate(SUMS["additive"], fit, refit, seconds, compiling=COMPILING_SPLINES)


def _projections(
    model: Callable[..., Any], functions: Callable[[Any], Any], columns: int, seed: int, limits: Limits, least: float
) -> Candidate:
    """A sum of functions of learned projections; `functions` are those of a fitted one."""
    options: dict[str, Any] = {"seed": seed, "max_evaluations": limits.evaluations}

    def fit(X: Any, y: np.ndarray, tell: Tell, deadline: Deadline) -> Any:
        in_time = model(seconds=_least(limits.seconds, deadline), **limits.most)
        return in_time.fit(X, y, progress=tell, **options)

    numbers = lambda fitted: functions(fitted).projections * (columns + 1)
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
        few = _some(y, rows, seed, task == "classification")
        return refit(model.fit(points[few], y[few], progress=tell, seconds=deadline), points, y)

    def refit(fitted: Any, X: Any, y: np.ndarray) -> Any:
        conditioned = AdditiveLabels(fitted.model.kernel, fitted.likelihood).condition(X, y)
        return dataclasses.replace(conditioned, learning=fitted.learning)

    numbers = lambda fitted: len(free_vector(fitted.model.kernel))
    seconds = COMPILING_SPLINES + functions * rows * D**2 * 1e-5
    return Candidate(SUMS["additive"], fit, refit, seconds, numbers=numbers, compiling=COMPILING_SPLINES)


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


def with_both(rows: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The rows, and one of each label should it be missing among them."""
    return np.union1d(rows, [int(np.argmax(y == label)) for label in np.unique(y)])
