"""Projection pursuit on rows in parts: an evaluation asks how far projections reach, for sums, and for the share of each part.

The sums of sines depend on the directions, and on the interval that the farthest projections of all rows leave: so a first
round brings the farthest rows of each part, from which the client knows how the intervals move with the directions, a second
the sums, and a third pulls the slopes of the value in sums and intervals back through each part.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import operator
import time
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..._types import double_precision
from ...crew import Crew
from ...engines.additive import intervals_for
from ...inputs import parts
from ...inputs.layouts import Points
from ...kernels.nonstationary import Constant
from ...learn.climb import climb
from ...learn.clock import Deadline
from ...learn.objective import Objective
from ...learn.parts import Held, hold_rows
from ...likelihoods.gaussian import Gaussian
from ...linalg.dense.cholesky import lapack_threads
from ...linalg.features.totals import Totals, in_blocks
from ...parameters.tree import as_numpy, free_vector, with_free
from ...process.gp import GP
from ...process.parts import Looked, Sources, read_parts
from ..additive.learned import seen_lines
from ..additive.parts import given_in_parts, sums_in_parts
from .fitted import CONSTANT, FittedProjectionPursuit, Units, additive_gp, slopes_of, spread_of
from .sine_model import Rows, SineModel, TurningMap, beyond, evidence_of_sums

FIRST = 0.5  # of the time, for the search by some rows
STEPS = 60  # over all rows, at most
WORTH = 1 / 5000  # nats for each observation that such a step must gain


@double_precision
def fit_in_parts(
    search: Any,
    sources: Sources,
    over: Any,
    rng: np.random.Generator,
    evaluations: int,
    progress: bool | None,
    seconds: float,
) -> FittedProjectionPursuit:
    """Learn by `search` from some rows of all parts, go on from all of them, and condition on their sums."""
    began, deadline = time.perf_counter(), Deadline.after(seconds)
    looked = read_parts(sources, GP(Constant(), Gaussian()), "error", over, {})
    rows, targets = looked.observed
    if targets != 1:
        raise ValueError(f"projection pursuit takes one target, got {targets}: fit them one at a time")
    if any(fact.least_noise for fact in looked.facts):
        raise ValueError("projection pursuit has one noise variance for all: leave out noise")
    units, crew = units_of_parts(looked), looked.crew
    handles = crew.made(hold_standard, looked.rows, [units] * len(looked.rows))
    X, data = looked.some
    Z, z = units.inputs(X), units.target(data.y[:, 0])
    with lapack_threads(1):
        model, learning, table = search(Z, z, rng, evaluations, progress, FIRST * seconds)
        evidence = PartsEvidence(model, handles, crew)
        if learning.evaluations and np.abs(z).max() >= CONSTANT:
            options: dict[str, Any] = {"restarts": 0, "seed": 0, "progress": progress, "deadline": deadline}
            options |= {"max_evaluations": min(evaluations, STEPS), "worth": rows * WORTH}
            model, last = climb(model, Objective(model, evidence), [free_vector(model)], rows, began, **options)
            learning = dataclasses.replace(last, evaluations=last.evaluations + learning.evaluations, method="sines")
        model, theta = as_numpy(model), free_vector(model)
        far = evidence.farthest(theta)
        spread, value = evidence.spread(theta, far), float(evidence(theta)[0]) - rows * float(np.log(units.y_scale))
        gp, telling = additive_gp(model), Points(np.concatenate([Z, far]))
        intervals = intervals_for(seen_lines(gp.kernel, telling.points), float(model.noise), rows)
        lengths = parts.sizes_of_parts([fact.rows for fact in looked.facts])
        lines = crew.made(hold_rows_standard, looked.rows, [gp] * len(lengths), [units] * len(lengths), lengths)
        level = np.zeros(1)
        basis, sums = sums_in_parts(gp, telling, lines, looked, intervals, level)
        additive = given_in_parts(gp, looked, Z.shape[1], intervals, level, basis, sums, None)
    flat = dataclasses.replace(additive, flat=True, clocks=())  # it is given projections
    took = time.perf_counter() - began
    return FittedProjectionPursuit(model, units, flat, as_numpy(spread), table, value, learning, took, looked.clocks)


def units_of_parts(looked: Looked) -> Units:
    """Units in which all rows have mean 0 and variance 1."""
    found = looked.crew.map(_moments, looked.rows)
    count, mean, squares = found[0][0], found[0][1], found[0][2]
    for more, other, apart, _ in found[1:]:  # the squares about the mean of both (Chan, Golub and LeVeque 1983)
        total, step = count + more, other - mean
        mean, squares, count = mean + step * more / total, squares + apart + step**2 * count * more / total, total
    return Units.by(mean, np.sqrt(squares / count), np.max([largest for *_, largest in found], axis=0))


def _moments(rows: parts.Rows) -> tuple[int, np.ndarray, np.ndarray, np.ndarray]:
    """How many rows a part has; of each column and the target the mean, the squares about it and the largest size."""
    both = np.column_stack([rows.X, rows.data.y])
    mean = both.mean(axis=0)
    return len(both), mean, np.sum((both - mean) ** 2, axis=0), np.abs(both).max(axis=0)


def hold_standard(rows: parts.Rows, units: Units) -> Held:
    """The rows of a part in standard units, on the device of who works on it."""
    return Held(None, Rows.of(units.inputs(rows.X), units.target(rows.data.y[:, 0])))


def hold_rows_standard(rows: parts.Rows, gp: GP, units: Units, length: int) -> Held:
    """The same for an additive process along directions."""
    data = dataclasses.replace(rows.data, y=units.target(rows.data.y))
    return hold_rows(parts.Rows(units.inputs(rows.X), data), gp, length)


class PartsEvidence:
    """The log evidence of a sine model given rows in parts, and its gradient."""

    def __init__(self, model: SineModel, parts: Sequence[Any], crew: Crew) -> None:
        self.model, self.parts, self.crew = model, parts, crew

    def __call__(self, theta: Float[np.ndarray, " P"]) -> tuple[Any, Any]:
        theta = np.asarray(theta, dtype=float)
        far = self.farthest(theta)
        L = np.asarray(_reach(theta, self.model, far))
        value, direct, to_reach, to_sums = jax.device_get(_head(theta, self.model, L, self.sums(theta, L)))
        if not np.isfinite(value):
            return np.nan, np.full(len(theta), np.nan)
        shares, reaches = zip(*self._asked(pull_sums, theta, L, to_sums), strict=True)
        to_reach = functools.reduce(operator.add, reaches, to_reach)
        return value, functools.reduce(operator.add, shares, direct + _pulled_reach(theta, self.model, far, to_reach))

    def farthest(self, theta: Float[np.ndarray, " P"]) -> Float[np.ndarray, "M D"]:
        """For each direction the row whose projection is the farthest, the first of several."""
        found = np.stack(self._asked(farthest_rows, theta))
        ends = np.abs(np.einsum("pmd,md->pm", found, np.asarray(_units(theta, self.model))))
        return found[np.argmax(ends, axis=0), np.arange(found.shape[1])]

    def sums(self, theta: Any, L: Any) -> Totals:
        """The sums of the features over all rows."""
        return functools.reduce(Totals.__add__, self._asked(sum_features, theta, L))

    def spread(self, theta: Any, far: Any) -> Any:
        """Weights and directions as a Gaussian, by one round more."""
        L = np.asarray(_reach(theta, self.model, far))
        sums = self.sums(theta, L)
        slopes = jax.device_get(_slopes(theta, self.model, L, sums))
        grams = self._asked(sum_turning, theta, L, slopes)
        return jax.device_get(_spread(theta, self.model, L, sums, slopes, functools.reduce(operator.add, grams)))

    def _asked(self, question: Any, theta: Any, *more: Any) -> list[Any]:
        same = itertools.repeat
        return self.crew.map(question, same(theta), self.parts, same(self.model), *map(same, more))


def farthest_rows(theta: Any, held: Held, model: SineModel) -> np.ndarray:
    """For each direction the row of a part whose projection is the farthest."""
    return np.asarray(_farthest(theta, held.part, model))


def sum_features(theta: Any, held: Held, model: SineModel, L: Any) -> Totals:
    """The sums of the features over the rows of a part."""
    return jax.device_get(_sums(theta, L, held.part, model))


def pull_sums(theta: Any, held: Held, model: SineModel, L: Any, slopes: Totals) -> tuple[Any, Any]:
    """The share of a part in the slopes in θ and in L of a function of all sums with these slopes."""
    return jax.device_get(_pulled(theta, L, held.part, model, slopes))


def sum_turning(theta: Any, held: Held, model: SineModel, L: Any, slopes: Any) -> Any:
    """The sums of the features and of what turning the directions does to f over the rows of a part."""
    return jax.device_get(_turning(theta, L, held.part, model, slopes))


@jax.jit
def _farthest(theta: Any, rows: Rows, model: SineModel) -> Array:
    U = with_free(model, theta).units()

    def of_block(X: Array) -> tuple[Array, Array]:
        ends = jnp.abs(U @ X.T)
        return jnp.max(ends, axis=1), X[jnp.argmax(ends, axis=1)]

    ends, found = jax.lax.map(of_block, in_blocks(rows.X))
    return found[jnp.argmax(ends, axis=0), jnp.arange(len(U))]


@jax.jit
def _units(theta: Any, model: SineModel) -> Array:
    return with_free(model, theta).units()


@jax.jit
def _reach(theta: Any, model: SineModel, far: Any) -> Array:
    return beyond(jnp.abs(jnp.sum(with_free(model, theta).units() * far, axis=1)))


@jax.jit
def _pulled_reach(theta: Any, model: SineModel, far: Any, slopes: Any) -> Array:
    return jax.vjp(lambda theta: _reach(theta, model, far), jnp.asarray(theta))[1](slopes)[0]


@jax.jit
def _sums(theta: Any, L: Any, rows: Rows, model: SineModel) -> Totals:
    return rows.totals(with_free(model, theta).reaching(L))


@jax.jit
def _pulled(theta: Any, L: Any, rows: Rows, model: SineModel, slopes: Totals) -> Any:
    return jax.vjp(lambda theta, L: _sums(theta, L, rows, model), jnp.asarray(theta), jnp.asarray(L))[1](slopes)


@jax.jit
def _head(theta: Any, model: SineModel, L: Any, sums: Totals) -> Any:
    def value(theta: Array, L: Array, sums: Totals) -> Array:
        at = with_free(model, theta)
        return evidence_of_sums(at, at.reaching(L), sums)

    found, slopes = jax.value_and_grad(value, argnums=(0, 1, 2))(jnp.asarray(theta), L, sums)
    return found, *slopes


@jax.jit
def _slopes(theta: Any, model: SineModel, L: Any, sums: Totals) -> Array:
    at = with_free(model, theta)
    return slopes_of(at, at.reaching(L), sums)


@jax.jit
def _turning(theta: Any, L: Any, rows: Rows, model: SineModel, slopes: Any) -> Array:
    return rows.totals(TurningMap(with_free(model, theta).reaching(L), slopes)).gram


@jax.jit
def _spread(theta: Any, model: SineModel, L: Any, sums: Totals, slopes: Any, gram: Any) -> Any:
    at = with_free(model, theta)
    return spread_of(at, TurningMap(at.reaching(L), slopes), sums, gram)
