"""The choice among candidates: each learns from a part of the rows, the best is given all of them.

A model of a series is there to forecast, so that candidates forecast the end of the rows that they learned from, from several
places before it, as far ahead as what is held out; the evidence alone asks no more than the next observation. Curves and
grids are compared by the evidence, tables by the log probability of the rows held out.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ..table_model import Evaluation, Trial
from .candidates import Candidate, as_shape
from .problem import Problem
from .scores import evaluate, log_prob

FEW_ROWS = 20  # below this no row can be spared
SLOWEST = 2.0  # a first candidate that took longer than this times what was expected says nothing about the others
ALIKE = 1e-3  # of two candidates that differ by less, the first is taken
ORIGINS = 3  # places from which a candidate forecasts

Say = Callable[[str, int, float | None], None]  # what is done, the number of the evaluation, the best log evidence so far


def quiet(what: str, evaluation: int = 0, evidence: float | None = None) -> None:
    """Nobody is told."""


class Outcome(NamedTuple):
    """The best candidate given all rows, all that were tried, how the best did on rows it had not seen, and what to note."""

    fitted: Any
    trials: tuple[Trial, ...]
    evaluation: Evaluation
    notes: tuple[str, ...]


class Attempt(NamedTuple):
    """A candidate that was tried, or not."""

    trial: Trial
    fitted: Any
    candidate: Candidate


def compare(problem: Problem, candidates: list[Candidate], deadline: float, say: Say = quiet) -> Outcome:
    """Try the candidates that there is time for, and give the best of them all rows."""
    rng = np.random.default_rng(problem.seed)
    held, kind = hold_out(problem, rng)
    unlearned = held if problem.shape != "grid" else np.zeros_like(held)  # a grid with holes takes long to learn from
    tried: list[Attempt] = []
    pace = 1.0  # seconds on this machine for one that was expected
    for candidate in candidates:
        left, expected = deadline - time.perf_counter(), pace * candidate.seconds
        if tried and expected > left:
            note = f"left out: about {expected:.0f} s of learning, {max(left, 0):.0f} s were left"
            tried.append(Attempt(Trial(candidate.name, note=note), None, candidate))
            continue
        say(candidate.name, 0, None)
        tried.append(_try(problem, candidate, unlearned, rng, say))
        if candidate.seconds > 0:
            pace = min(max(pace, tried[-1].trial.seconds / candidate.seconds), SLOWEST)
    ran = [attempt for attempt in tried if attempt.fitted is not None]
    if not ran:
        raise ValueError(f"no candidate could be learned: {tried[0].trial.note}")
    highest = max(_merit(attempt.trial, problem) for attempt in ran)
    best = next(attempt for attempt in ran if _merit(attempt.trial, problem) >= highest - ALIKE)
    trials = tuple(dataclasses.replace(attempt.trial, chosen=attempt is best) for attempt in tried)

    def given(rows: np.ndarray) -> tuple[Any, bool]:
        """The best candidate given some rows as far as it can take them, and whether it took them all."""
        taken = _some(rows, best.candidate.rows, problem, rng)
        fitted = best.candidate.refit(best.fitted, as_shape(problem.X[taken], problem.shape), problem.y[taken])
        return fitted, len(taken) == len(rows)

    seen = best.fitted if (held == unlearned).all() else given(np.flatnonzero(~held))[0]
    evaluation = evaluate(problem, seen, held, kind)
    say("giving the chosen model all rows", 0, None)
    fitted, whole = given(np.arange(len(problem.y))) if unlearned.any() or best.candidate.rows else (best.fitted, True)
    some = min(best.candidate.rows or len(problem.y), len(problem.y))
    notes = () if whole else (f"learned from {some} of {len(problem.y)} rows, chosen at random",)
    if problem.shape == "grid" and held.any():
        notes = (*notes, "the parameters were learned from all cells, those that were held out for the scores included")
    return Outcome(fitted, trials, evaluation, notes)


def _merit(trial: Trial, problem: Problem) -> float:
    """What candidates are compared by, lowest where it is no number."""
    by_rows = problem.shape in ("series", "table") and trial.held_out is not None
    value = trial.held_out if by_rows else trial.log_evidence
    return -np.inf if value is None or np.isnan(value) else value


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


def _try(problem: Problem, candidate: Candidate, held: np.ndarray, rng: np.random.Generator, say: Say) -> Attempt:
    began = time.perf_counter()
    rows = _some(np.flatnonzero(~held), candidate.rows, problem, rng)
    tell = lambda evaluation, evidence: say(candidate.name, evaluation, evidence)
    try:
        fitted = candidate.fit(as_shape(problem.X[rows], problem.shape), problem.y[rows], tell)
        scored = _score(problem, candidate, fitted, rows, held)
    except (ValueError, FloatingPointError) as met:
        seconds = time.perf_counter() - began
        return Attempt(Trial(candidate.name, seconds=seconds, note=f"failed: {str(met).splitlines()[0]}"), None, candidate)
    seconds = time.perf_counter() - began
    return Attempt(Trial(candidate.name, float(fitted.log_evidence), scored, seconds), fitted, candidate)


def _score(problem: Problem, candidate: Candidate, fitted: Any, rows: np.ndarray, held: np.ndarray) -> float | None:
    """The mean log probability of a row that is forecast, or held out; None where no row could be spared."""
    if not held.any():
        return None
    if problem.shape == "series" and problem.task != "classification":
        return forecast_score(problem, candidate, fitted, rows, int(held.sum()))
    return float(np.mean(log_prob(fitted, problem.task, problem.X[held], problem.y[held])))


def forecast_score(problem: Problem, candidate: Candidate, fitted: Any, rows: np.ndarray, horizon: int) -> float | None:
    """The mean log probability of the rows learned from, forecast in pieces with the parameters as they were learned."""
    order = rows[np.argsort(problem.X[rows, 0], kind="stable")]
    X, y = problem.X[order], problem.y[order]
    found = []
    for origin in range(len(y) - ORIGINS * horizon, len(y), horizon):
        if origin < FEW_ROWS:
            continue
        before = candidate.refit(fitted, X, np.where(np.arange(len(y)) < origin, y, np.nan))
        piece = slice(origin, origin + horizon)
        found.append(log_prob(before, problem.task, X[piece], y[piece]))
    return float(np.mean(np.concatenate(found))) if found else None
