"""How models of one table are compared: by rows held out and by their evidence, and what was said of each.

By the log probability of rows held out, where some were, row by row: what is behind by more than two standard errors of the
mean difference (more of them where the rows are few, by Student's t) is out. Among what is left the evidence decides, charged
for the numbers that were learned and not averaged over: ½ log N for each (Schwarz 1978), or 2 for labels and counts, which say
too little to pay more. A column or a function that learning has turned off costs log 2 in all: half of what could have been
learned says the same. Evidence compares models that learned from the same rows, exactly or from below; of inducing inputs and
neighbours it is neither, so that where they take part the mean over rows held out decides. Where neither speaks the simpler
model is taken.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtr, stdtrit

from ..kernels.algebra import Kernel
from ..parameters.tree import learned_leaves
from .candidates import Candidate
from .one_against_rest import OneAgainstRest

CLEARLY = 2.0  # standard errors by which many rows held out must be less probable
OFF_LENGTH, OFF_SIZE = 50.0, 0.02  # spreads of a column over which nothing changes, and of the data that are next to nothing
FACTOR = 3.0  # by which the log evidence must be larger to outdo a simpler model: 20 times as probable
NEVER = 1e-300  # no probability is smaller, so that every loss is finite


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


def log_probabilities(fitted: Any, task: str, X: np.ndarray, y: np.ndarray, noise: Any = None, extra: Any = None) -> np.ndarray:
    """log p of each new observation, with known `noise` and what else is known of it."""
    prediction = fitted.predict(X) if extra is None else fitted.predict(X, extra=extra)
    if noise is not None:
        known = np.reshape(noise, np.shape(noise) + (1,) * (np.ndim(y) - 1)) if np.ndim(noise) == 1 else noise
        prediction = dataclasses.replace(prediction, variance=prediction.variance + known)
    return prediction.log_prob(y) if task != "classification" else log_of_class(class_probabilities(prediction), y)


def class_probabilities(prediction: Any) -> np.ndarray:
    """The probability of every class, (M, classes), also where there are two."""
    p = prediction.probability
    return np.stack([1 - p, p], axis=1) if p.ndim == 1 else p


def log_of_class(p: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The logarithm of the probability of what was seen."""
    return np.log(np.maximum(p[np.arange(len(y)), y.astype(int)], NEVER))
