"""A GP given a series in parts: what it remembers of them, and how it answers."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import pickle
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from .._types import double_precision, how_many
from ..crew import Crew, crew_for, is_lazy, lazily
from ..engines import chain_parts, memory
from ..engines.base import units
from ..engines.basis import Weights
from ..engines.chain_parts import ChainInParts
from ..inputs.clock import Clocks
from ..inputs.layouts import new_times
from ..inputs.parts import Source, read_again, sizes_of_parts
from ..inputs.rows import in_pieces
from ..learn.account import Learning
from ..learn.parts import Held, Series, hold
from ..linalg.filters.kalman import Others
from ..parameters.tree import free_vector, with_free
from ..posterior import Moments, Prediction, Scattered
from . import moments
from .conditioning import Posterior
from .given import OfGP
from .lazy import lazy_moments

SHARE = 0.25  # of the memory that is left, for parts that are kept
PIECE = 2**15  # places that are predicted at a time


@dataclasses.dataclass(frozen=True)
class PartsPlan:
    """What runs on data in parts: by whom, and how much goes to each part and back in an evaluation."""

    states: int
    rows: tuple[int, ...]
    words: str
    sent: int
    received: int

    def __str__(self) -> str:
        count = len(self.rows)
        parts = f"{how_many(count, 'part')} {self.words}"
        states = how_many(self.states, "state")
        way = f"{units(self.sent, 'B')} to each and {units(self.received, 'B')} back in an evaluation"
        return f"Kalman     exact   in {parts}, {states}, {_count(max(self.rows))}, {way}"

    __repr__ = __str__


def _count(rows: int) -> str:
    return f"{rows / 1e6:.3g} million rows a part" if rows >= 1e5 else f"{rows:,} rows a part at most"


@dataclasses.dataclass(frozen=True)
class Cuts:
    """A series in parts as it was read, in the order of time: where each begins and ends, and where its rows are read from."""

    firsts: np.ndarray
    lasts: np.ndarray
    rows: tuple[int, ...]
    order: tuple[int, ...]  # the place of each part among the data's
    seen: int
    targets: int
    flat: bool
    least_noise: float
    clocks: Clocks
    missing: str
    sources: tuple[Source, ...]

    @property
    def series(self) -> Series:
        """Where it begins, what was observed, how many targets."""
        return Series(float(self.firsts[0]), self.seen, self.targets)

    @property
    def lazy(self) -> bool:
        """Whether the rows are Dask's, as answers about them then are."""
        return is_lazy(self.sources[0].X)


class Known(NamedTuple):
    """The parts of a series in the order of time, each with the model, where they are worked on, and by whom."""

    handles: list[Any]
    crew: Crew


def held_parts(gp: Any, cuts: Cuts, rows: Sequence[Any], crew: Crew) -> Known:
    """The parts with the model, of rows in the order of time."""
    count, beyond = len(rows), [*map(float, cuts.firsts[1:]), None]
    lengths = sizes_of_parts([rows + 1 for rows in cuts.rows])
    return Known(crew.made(hold, rows, [gp] * count, [float(cuts.firsts[0])] * count, beyond, lengths), crew)


def found_again(gp: Any, cuts: Cuts) -> Known:
    """The parts of a series that was read before, by who is there now."""
    crew = crew_for(None, SHARE * memory.available())
    same = lambda value: [value] * len(cuts.rows)
    given = same(gp.likelihood), same(cuts.missing), same(cuts.clocks)
    rows = crew.made(read_again, cuts.sources, *given, cuts.rows, cuts.firsts.tolist(), cuts.lasts.tolist())
    return held_parts(gp, cuts, rows, crew)


def plan_of(gp: Any, cuts: Cuts, crew: Crew, engine: ChainInParts) -> PartsPlan:
    """What runs, and what it sends."""
    theta = free_vector(gp)
    others, message = jax.eval_shape(lambda: chain_parts.shapes(gp, cuts.series.first, cuts.targets, engine))
    empty = lambda tree: jax.tree.map(lambda leaf: np.zeros(leaf.shape), tree)
    sent, received = len(pickle.dumps((theta, empty(others), engine))), len(pickle.dumps(empty(message)))
    return PartsPlan(len(others.P), cuts.rows, crew.words, sent, received)


@dataclasses.dataclass(frozen=True)
class FittedParts(OfGP, Scattered):
    """A GP conditioned on a series in parts. It holds θ and what every part has heard of the others, not the data.

    Questions go to the parts that they concern: `predict` takes an array, or a Dask collection for a lazy answer. A file of it
    holds where the rows are read from: Parquet files, in the paths that were given.
    """

    gp: Any
    plan: PartsPlan
    weights: Weights
    log_evidence: float
    learning: Learning | None
    cuts: Cuts
    others: tuple[Others, ...]
    engine: ChainInParts
    _known: Known = dataclasses.field(metadata={"derived": True})

    @property
    def sources(self) -> tuple[Source, ...]:
        """Where the rows are read from."""
        return self.cuts.sources

    @double_precision
    def predict(self, X: Any) -> Any:
        """The belief about f at new places; of a Dask collection mean and variance as Dask arrays that nothing has computed."""
        if is_lazy(X):
            return self._lazily(X)
        Xs = new_times(X, self.cuts.clocks or (None,))
        which = np.searchsorted(self.cuts.firsts[1:], Xs, side="right")
        asked = [int(p) for p in np.unique(which)]
        pick = lambda values: [values[p] for p in asked]
        rows = [np.flatnonzero(which == p) for p in asked]
        found = self._ask(_answer, pick(self._known.handles), pick(self.others), [Xs[at] for at in rows])
        T = self.cuts.targets
        mean, variance = np.zeros((len(Xs), T)), np.zeros(len(Xs))
        for at, (means, variances) in zip(rows, found, strict=True):
            mean[at], variance[at] = means, variances
        if self._flat:
            return Prediction(mean[:, 0], variance, self.likelihood)
        return Prediction(mean, np.repeat(variance[:, None], T, axis=1), self.likelihood)

    @double_precision
    def smoothed(self) -> Any:
        """The belief about f at each observed place: of Dask data lazy, else part by part as it is asked."""
        return self._of_each(_smoothed)

    @double_precision
    def leave_one_out(self) -> Any:
        """Mean and variance of each observation given all the others, as `smoothed` gives its answers."""
        return self._of_each(_left_out)

    def summary(self) -> str:
        """What was learned, and how."""
        rows = sum(self.cuts.rows)
        lines = [f"{self.gp!r}", f"log evidence {self.log_evidence:.6g} of {rows:,} rows", f"{self.plan}"]
        return "\n".join([*lines, *([str(self.learning)] if self.learning else [])])

    __repr__ = summary

    @property
    def _flat(self) -> bool:
        return self.cuts.flat

    def _ask(self, question: Any, handles: Sequence[Any], others: Sequence[Others], *more: Any) -> list[Any]:
        theta, weights = itertools.repeat(free_vector(self.gp)), itertools.repeat(self.weights)
        return self._known.crew.map(question, theta, handles, others, itertools.repeat(self.engine), weights, *more)

    def _of_each(self, question: Any) -> Any:
        same, back = itertools.repeat, [int(p) for p in np.argsort(self.cuts.order)]  # parts as the data had them
        if not self.cuts.lazy:
            return self._one_by_one(question, back)
        pick = lambda values: [values[p] for p in back]
        given = same(free_vector(self.gp)), pick(self._known.handles), pick(self.others), same(self.engine), same(self.weights)
        promises = lazily(question, *given, pick(self.cuts.rows))
        return lazy_moments(promises, self.cuts.targets, self._flat)

    def _one_by_one(self, question: Any, back: Any) -> Iterator[Moments]:
        for p in back:
            found = self._ask(question, [self._known.handles[p]], [self.others[p]], [self.cuts.rows[p]])[0]
            yield self._shaped(*found)

    def _shaped(self, mean: Any, variance: Any) -> Moments:
        return Moments(mean[:, 0], variance) if self._flat else Moments(mean, variance)

    def _lazily(self, X: Any) -> Moments:
        """For each partition the answers of all parts about the places that concern them, put together."""
        same, ends = itertools.repeat, [-np.inf, *map(float, self.cuts.firsts[1:]), np.inf]
        given = same(free_vector(self.gp)), self._known.handles, self.others, same(self.engine), same(self.weights)
        parts = []
        for piece in np.ravel(np.asarray(X.to_delayed(), dtype=object)):
            answers = lazily(_answer_between, *given, same(piece), ends[:-1], ends[1:], same(self.cuts.clocks))
            parts.append(lazily(_together, [answers])[0])
        return lazy_moments(parts, self.cuts.targets, self._flat)


@functools.partial(jax.jit, static_argnames="engine")
def _given_part(theta: Any, held: Held, others: Others, weights: Weights, engine: ChainInParts) -> Posterior:
    gp = with_free(held.model, theta)
    conditional = engine.condition(gp, held.part, others)
    return Posterior(gp, conditional, weights, np.zeros(()), held.part.data.y.shape[1])


_marginals = jax.jit(Posterior.marginals)


def _answer(theta: Any, held: Held, others: Others, engine: Any, weights: Weights, x: np.ndarray) -> tuple[Any, Any]:
    """Mean and variance of f at places inside a part, before the first or after the last."""
    with engine.place():
        posterior = _given_part(theta, held, others, weights, engine)
        found: tuple[Any, Any] = in_pieces(functools.partial(_marginals, posterior), x[:, None], PIECE)
    return found


def _answer_between(
    theta: Any, held: Held, others: Others, engine: Any, weights: Weights, X: Any, low: float, high: float, clocks: Clocks
) -> tuple[Any, Any, Any]:
    """The rows of X between two places, and the answer there."""
    x = new_times(X, clocks or (None,))
    rows = np.flatnonzero((x >= low) & (x < high))
    if not len(rows):
        return rows, np.zeros((0, held.part.data.y.shape[1])), np.zeros(0)
    return rows, *_answer(theta, held, others, engine, weights, x[rows])


def _together(answers: list[tuple[Any, Any, Any]]) -> tuple[Any, Any]:
    rows, means, variances = (np.concatenate(part) for part in zip(*answers, strict=True))
    back = np.argsort(rows)
    return means[back], variances[back]


def _smoothed(theta: Any, held: Held, others: Others, engine: Any, weights: Weights, rows: int) -> tuple[Any, Any]:
    """Mean and variance of f at the rows of a part, as the caller had them."""
    with engine.place():
        posterior = _given_part(theta, held, others, weights, engine)
        return tuple(_as_given(held, part, rows) for part in moments.smoothed(posterior))  # type: ignore[return-value]


def _left_out(theta: Any, held: Held, others: Others, engine: Any, weights: Weights, rows: int) -> tuple[Any, Any]:
    """Mean and variance of each observation of a part given all others, NaN where nothing was seen."""
    with engine.place():
        precision, alpha = map(np.asarray, _inverse_parts(_given_part(theta, held, others, weights, engine)))
    seen = np.asarray(held.part.data.seen)
    precision = np.where(seen, precision, np.nan)
    mean = np.asarray(held.part.data.y) - alpha / precision[:, None]
    return _as_given(held, mean, rows), _as_given(held, 1 / precision, rows)


_inverse_parts = jax.jit(Posterior.inverse_parts)


def _as_given(held: Held, values: Any, rows: int) -> np.ndarray:
    values = np.asarray(values)[:rows]
    return values if held.part.rank is None else values[np.asarray(held.part.rank)]
