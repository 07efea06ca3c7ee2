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

How they are compared stands in `models.judge`, and what there is in `models.candidates`.
"""

from __future__ import annotations

import dataclasses
import textwrap
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from ..engines.additive import AdditiveEngine
from ..engines.base import Cost, Offer, units
from ..engines.cholesky import Cholesky, cost_of_matrix
from ..engines.inducing import InducingEngine
from ..engines.kalman import Kalman
from ..engines.neighbours import NeighbourEngine
from ..engines.plan import Plan
from ..learn.clock import OUT_OF_TIME, Deadline
from ..likelihoods.labels import Bernoulli
from .candidates import (
    NOTHING,
    ONE_FUNCTION,
    SECONDS,
    SUMS,
    Candidate,
    Limits,
    Process,
    for_many_rows,
    functions_of,
    of_process,
    of_rows,
    task_of,
    with_both,
)
from .judge import Tried, best, charged_evidence, class_probabilities, log_probabilities
from .one_against_rest import OneAgainstRest

NEWTON = 8  # passes over the rows that one evaluation for labels takes, about
HELD, MOST_HELD = 0.1, 2000  # part of the rows that is held out where many compete, and the most of them
GIVING = 0.25  # part of the time that is kept for scores, and for giving the chosen model all rows
ENDING = 0.1  # part of the time that is kept for what follows learning
SEARCHING = 0.5  # part of the time for the search of projections
PAYS = 1.5  # times the squared error of the leader, beyond which splines by least squares say that functions of a column do not
KNOTS = 20  # of these splines in each column
PER_KNOT = 10  # rows, at least: fewer tell nothing
QUICK_ROWS = 10_000  # and the most rows
LONGEST = 200  # characters of a reason

SEARCH = Limits(learning_rows=2000)  # of an estimator


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
    groups: tuple[int, ...] = (),
    process: Process | None = None,
    told: Mapping[str, Any] = NOTHING,
) -> tuple[Any, Plan]:
    """The best of all that can take so many rows, given numbers, or labels 0, …, classes − 1, or the one asked for.

    Columns of one of the `groups` stand for one, with one lengthscale. A `process` that is asked for is taken in place of ours,
    with what is `told` of each row besides. The plan says how each of them did, and how long it took.
    """
    labels = classes > 0 if process is None else process.labels
    task = "classification" if labels else "regression" if process is None else task_of(process.gp)
    y, limits = y.astype(float), SEARCH if seconds is None else SEARCH._replace(seconds=SEARCHING * seconds)
    if process is None:
        candidates = for_many_rows(task, X.shape, Bernoulli(link), classes, seed, limits, groups)
    else:
        candidates = of_process(process, X.shape, seed, limits)
    if structure != "auto":
        fitted = candidates[structure].fit(X, y, None, Deadline.after(seconds))
        return fitted, Plan((_offer(Attempt(structure, candidates[structure]), fitted, X, classes),))
    deadline = Deadline.after(seconds)
    attempts = _attempts(_Rows.of(X, y, task, seed, told), candidates, deadline)
    ran = [attempt for attempt in attempts if attempt.fitted is not None]
    if not ran:
        raise ValueError(f"nothing could be learned from these rows: {attempts[0].reason}")
    evidences = [charged_evidence(attempt.candidate, attempt.fitted, len(y), task) for attempt in ran]
    winner = ran[best([Tried(*tried) for tried in zip(evidences, (attempt.scores for attempt in ran), strict=True)])]
    given = _given_all(winner, X, y, told, deadline)
    chosen = _offer(winner, given, X, classes)
    chosen = dataclasses.replace(chosen, note=f"{chosen.note}; {winner}" if chosen.note else str(winner))
    others = [_not_taken(attempt, X, classes) for attempt in attempts if attempt is not winner]
    exactly = () if "dense" in candidates else (Offer(Cholesky(), reason=_too_many(X)),)
    return given, Plan((chosen, *others, *exactly))


def _given_all(winner: Attempt, X: np.ndarray, y: np.ndarray, told: Mapping[str, Any], deadline: Deadline) -> Any:
    """The winner with all rows, learned on where it was stopped too early."""
    if winner.scores is None:
        return winner.fitted
    until = deadline.earlier(ENDING)
    if winner.cut_off and winner.candidate.go_on is not None and not until.passed():
        return winner.candidate.go_on(winner.fitted, X, y, until, **told)
    return winner.candidate.refit(winner.fitted, X, y, **told)


def _attempts(rows: _Rows, candidates: dict[str, Candidate], deadline: Deadline) -> list[Attempt]:
    """What each of the candidates that there is time for makes of the rows that it does not learn from."""
    order = sorted(candidates, key=lambda name: (name not in ONE_FUNCTION, candidates[name].seconds))
    learning = deadline.earlier(GIVING)
    first, *rest = order
    if all(_late(candidates[name], learning.left() - candidates[first].seconds) for name in rest):
        reasons = {name: _late(candidates[name], learning.left() - candidates[first].seconds) for name in rest}
        alone = _attempt(first, candidates[first], deadline.earlier(ENDING), rows.all_learned)
        if alone.fitted is not None:
            done = {first: alone} | {name: Attempt(name, candidates[name], reason=reasons[name]) for name in rest}
            return [done[name] for name in candidates]
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
    told: Mapping[str, Any] = NOTHING  # of each row besides

    @classmethod
    def of(cls, X: np.ndarray, y: np.ndarray, task: str, seed: int, told: Mapping[str, Any] = NOTHING) -> _Rows:
        held = np.random.default_rng(seed).permutation(len(y))[: min(int(HELD * len(y)), MOST_HELD)]
        kept = np.setdiff1d(np.arange(len(y)), held)
        return cls(X, y, task, with_both(kept, y) if task == "classification" else kept, held, told)

    def all_learned(self, one: Candidate, deadline: Deadline) -> Any:
        return one.fit(self.X, self.y, None, deadline, **self.told)

    def learned(self, one: Candidate, deadline: Deadline) -> Any:
        return one.fit(self.X[self.kept], self.y[self.kept], None, deadline, **of_rows(self.told, self.kept, len(self.y)))

    def scored(self, fitted: Any) -> np.ndarray:
        told = of_rows(self.told, self.held, len(self.y))
        scores = log_probabilities(fitted, self.task, self.X[self.held], self.y[self.held], **told)
        return scores.reshape(len(scores), -1).sum(axis=1)

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
    if structure in ONE_FUNCTION:
        rows = parts[0].learning.rows
        return dataclasses.replace(parts[0].plan.chosen, note=f"learned from {rows} rows") if rows else parts[0].plan.chosen
    if structure == "additive":
        note = f"one function for each of {D} columns"
    else:
        note = f"projection pursuit, {sum(attempt.candidate.numbers(part) for part in parts) // (D + 1)} functions"
    if fitted.likelihood.is_gaussian:
        return dataclasses.replace(getattr(fitted, "additive", fitted).plan.offers[0], note=note)
    F = 20 * D
    cost = Cost(flops=2.0 * NEWTON * functions_of(classes) * N * F**2, bytes=8.0 * (N * D + 6 * F**2))
    return Offer(AdditiveEngine(), cost, note=note, accuracy=AdditiveEngine.accuracy)


def _not_taken(attempt: Attempt, X: np.ndarray, classes: int) -> Offer:
    """One that competed in vain, or not at all."""
    if attempt.fitted is None:
        engines = {"dense": Cholesky(), "inducing": InducingEngine(), "neighbours": NeighbourEngine(), "state-space": Kalman()}
        engine = engines.get(attempt.structure, AdditiveEngine())
        return Offer(engine, reason=f"{(SUMS | ONE_FUNCTION)[attempt.structure]}: {attempt.reason}")
    offer = _offer(attempt, attempt.fitted, X, classes)
    return Offer(offer.engine, reason=f"{offer.note or (SUMS | ONE_FUNCTION)[attempt.structure]}: {attempt}")
