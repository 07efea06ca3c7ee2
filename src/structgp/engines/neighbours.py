"""Each row given its nearest earlier rows, and new places given the nearest rows that were seen: O(N m³), approximate.

What is said of several places together (covariances, draws) takes new places one after the other: each given the nearest seen
rows and, of the places before it, the nearest as well.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from .. import where
from .._types import whole
from ..inputs.layouts import Inputs
from ..inputs.neighbourhood import Neighbourhood, changed, drawn_order, nearest_seen, root_of
from ..inputs.observations import Data
from ..kernels.algebra import Kernel
from ..linalg.dense.cholesky import lapack_threads
from ..linalg.neighbours import boxes, conditionals
from ..posterior import Conditional, Model
from ..sites import Sites
from ..structure.base import No
from ..structure.dense import variances
from ..structure.neighbours import Nearest, by_difference, measured
from .approximation import NAMED, Approximation
from .base import DRAWN, GLIMPSE, Cost, Engine, Offer, gaussian, noise_variance, term
from .basis import NOISE_FLOOR, columns
from .cholesky import cost_of_matrix
from .machine import Work, cores

USUAL = 30  # neighbours of a row
TOLD = 60  # seen rows that a new place is given
AMONG_NEW = 30  # new places before it that one is given besides, when several are looked at together
PLACES = 64  # looked at side by side
AGAIN = 1.5  # change of the shape of the lengthscales after which neighbours are found again
SAMPLE, ONE_OF = 128, 32  # rows at which these neighbours and many more are compared, of so many at most
MANY, MOST_COMPARED = 8, 240  # times as many, but no more than so many (or twice as many)
SIDE_BY_SIDE = 20_000  # rows from which on several cores share them
MOST_PARTS = 16
BEGIN, SEARCH = 2500.0, 7000.0  # flops and functions that a factor, for each of its rows, and a search are worth
COLUMNS = 4  # beyond, near rows are hardly nearer than others


class NeighbourConditional(Conditional):
    """A process given sites, looked at through the seen rows that are nearest to each place."""

    kernel: Kernel
    X: Float[Array, "N D"]
    sites: Sites
    leaves: Int[Array, "leaves size"]
    log_det: Float[Array, ""]
    gram: Float[Array, "C C"]
    diagonal: Float[Array, " N"]  # of C⁻¹
    alpha: Float[Array, "N C"]
    told: int = eqx.field(static=True, default=TOLD)

    @property
    def row_size(self) -> int:
        return self.told**2

    def draw_size(self, places: int, n: int) -> int:
        return places * (self.row_size + 3 * n)

    def log_det_and_gram(self) -> tuple[Float[Array, ""], Float[Array, "C C"]]:
        return self.log_det, self.gram

    def inverse_parts(self) -> tuple[Float[Array, " N"], Float[Array, "N C"]]:
        return self.diagonal, self.alpha

    def at(self, X: Float[Array, "M D"], part: int | None = None) -> tuple[Float[Array, "M C"], Float[Array, " M"]]:
        kernel = term(self.kernel, part)
        prior, targets, noise, nearest = variances(kernel, X), self.sites.targets, self._noise(), self._nearest()

        def block(Xs: Float[Array, "B D"]) -> tuple[Array, Array]:
            rows, there = nearest(Xs)
            around = self.X[rows]
            k = by_difference(kernel, jnp.moveaxis(around - Xs[:, None], 2, 0))
            told = conditionals.tell(by_difference, self.kernel, k, around, noise[rows], there, targets[rows])
            return told.mean, told.explained

        mean, explained = _in_blocks(block, X)
        return mean, jnp.maximum(prior - explained, 0.0)

    def joint(self, X: Float[Array, "M D"]) -> tuple[Float[Array, "M C"], Float[Array, "M M"]]:
        order, near, weights, v = self._one_after_the_other(X)
        rows = jnp.arange(len(X))[:, None]
        A = jnp.zeros((len(X), len(X) + 1)).at[rows, near].add(weights)[:, : len(X)]
        root = jax.scipy.linalg.solve_triangular(jnp.eye(len(X)) - A, jnp.diag(jnp.sqrt(v)), lower=True, unit_diagonal=True)
        back = np.argsort(order)
        return self.at(X)[0], (root @ root.T)[back][:, back]

    def residuals(self, X: Float[Array, "M D"], key: Array, n: int) -> Float[Array, "M n"]:
        order, near, weights, v = self._one_after_the_other(X)
        fresh = jnp.sqrt(v)[:, None] * jax.random.normal(key, (len(X), n))

        def step(drawn: Array, at: tuple[Array, ...]) -> tuple[Array, None]:
            i, near, w, own = at
            return drawn.at[i].set(own + w @ drawn[near]), None

        start = jnp.zeros((len(X) + 1, n))
        drawn, _ = jax.lax.scan(step, start, (jnp.arange(len(X)), near, weights, fresh))
        return drawn[np.argsort(order)]

    def _noise(self) -> Float[Array, " N"]:
        w = self.sites.precision
        return jnp.where(w > 0, 1 / jnp.where(w > 0, w, 1.0), 0.0)

    def _nearest(self) -> Callable[[Array], tuple[Int[Array, "B m"], Bool[Array, "B m"]]]:
        """A search for the rows near to places."""
        rows, E = jnp.where(self.leaves >= 0, self.leaves, -1 - self.leaves), self._embedding()
        Z = (self.X @ E)[rows]
        count = min(self.told, self.leaves.size)

        def search(Xs: Float[Array, "B D"]) -> tuple[Array, Array]:
            at, there = boxes.nearest(jax.lax.stop_gradient(Xs) @ E, Z, self.leaves >= 0, count)
            return rows.ravel()[at], there

        return search

    def _embedding(self) -> Float[Array, "D D"]:
        measure: Any = measured(self.kernel, self.X.shape[1])
        return jax.lax.stop_gradient(root_of(measure.metric))

    def _one_after_the_other(self, X: Float[Array, "M D"]) -> tuple[np.ndarray, Array, Array, Array]:
        """New places in a drawn order: the earlier ones that each is given (M: none), their weights, and what is left open."""
        M, order = len(X), drawn_order(len(X))
        X, noise, nearest, E = X[order], self._noise(), self._nearest(), self._embedding()
        count, Z = min(AMONG_NEW, M), X @ E

        def block(at: Int[Array, " B"]) -> tuple[Array, Array, Array]:
            Xs = X[at]
            rows, seen = nearest(Xs)
            apart = jnp.sum((Z[at][:, None] - Z[None]) ** 2, axis=2)
            apart = jnp.where(jnp.arange(M)[None] < at[:, None], apart, jnp.inf)
            before = jax.lax.top_k(-apart.astype(jnp.float32), count)[1]
            new = jnp.take_along_axis(apart, before, axis=1) < jnp.inf
            around = jnp.concatenate([self.X[rows], X[before]], axis=1)
            there = jnp.concatenate([seen, new], axis=1)
            own = jnp.concatenate([noise[rows], jnp.zeros(before.shape)], axis=1)
            k = by_difference(self.kernel, jnp.moveaxis(around - Xs[:, None], 2, 0))
            told = conditionals.tell(by_difference, self.kernel, k, around, own, there, jnp.zeros((*there.shape, 0)))
            left = jnp.maximum(by_difference(self.kernel, jnp.zeros(X.shape[1])) - told.explained, 0.0)
            return jnp.where(new, before, M), jnp.where(new, told.weights[:, -count:, 0], 0.0), left

        return order, *_in_blocks(block, jnp.arange(M))


def _in_blocks(function: Any, rows: Any) -> Any:
    """A function of some rows at a time over all of them."""
    M = len(rows)
    size = min(PLACES, max(M, 1))
    filled = rows[jnp.minimum(jnp.arange(-(-M // size) * size), max(M - 1, 0))] if M else rows
    if not M:
        return jax.tree.map(lambda part: jnp.zeros((0, *part.shape[1:])), jax.eval_shape(function, rows))
    found = jax.lax.map(function, filled.reshape(-1, size, *rows.shape[1:]))
    return jax.tree.map(lambda part: part.reshape(-1, *part.shape[2:])[:M], found)


def cost_of_neighbours(rows: int, m: int, D: int, told: int = TOLD) -> Cost:
    """One small factor for each row; LAPACK takes some time to begin with each, and a search has its price as well."""
    factor = lambda m: Work(functions=m**2, small=1.2 * m**3 + BEGIN * m)
    evaluate = (factor(m) + Work(functions=0.5 * m**2)) * rows
    shared = evaluate * (1 / _cores()) if rows >= SIDE_BY_SIDE else evaluate
    return Cost(
        flops=rows * (m**3 + 60 * m**2),
        bytes=8.0 * rows * (4 * m + 6 * D),
        rows=m,
        evaluate=shared + cost_of_matrix(min(rows, GLIMPSE), D).evaluate,  # a dense glimpse tells where to begin
        condition=evaluate
        + Work(functions=SEARCH * rows)
        + 2 * compared(rows) * factor(min(max(MANY * m, MOST_COMPARED), rows)),
        predict=factor(min(told, max(rows, 1))) + Work(functions=2 * SEARCH),
        leave_out=Work(functions=10.0 * rows),
        draw=DRAWN * (factor(min(told, max(rows, 1)) + AMONG_NEW) + Work(functions=2 * SEARCH)),
        programs=15.0,
    )


def many_of(m: int, seen: int) -> int:
    """The neighbours that these are compared with: so many that the rest tells little."""
    return min(MANY * m, max(MOST_COMPARED, 2 * m), max(seen - 1, 1))


def compared(seen: int) -> int:
    """At how many rows what neighbours leave out is looked for: a power of two."""
    return int(min(SAMPLE, 1 << max(seen // ONE_OF, 8).bit_length() - 1))


class NeighbourEngine(Engine):
    """Every row given its `m` nearest earlier rows, and new places given the `told` nearest seen ones."""

    name: ClassVar[str] = "Neighbours"
    structure: ClassVar[str] = "neighbours"
    takes_unseen_rows: ClassVar[bool] = True
    m: int = eqx.field(static=True, default=USUAL)
    told: int = eqx.field(static=True, default=TOLD)

    def offer(self, model: Model, inputs: Inputs, data: Data | None = None) -> Offer | No:
        no = self._refusal(model, inputs, data)
        if no is not None:
            return no
        seen = len(inputs) if data is None else int(np.sum(data.seen))
        m = min(self.m, max(seen - 1, 1))
        cost = cost_of_neighbours(seen, m, inputs.dimension, self.told)
        note = "" if inputs.dimension <= COLUMNS else f"{inputs.dimension} columns: near rows tell little beyond {COLUMNS}"
        if self.m >= seen - 1:
            return Offer(self, cost, note=f"all earlier rows are neighbours{'; ' * bool(note)}{note}", glimpse=seen > 0)
        accuracy = (
            f"approximate ({m} neighbours; {many_of(self.m, seen)} would change the log evidence by "
            f"{self.lost(model, inputs, data):.2g} a row)"
        )
        return Offer(self, cost, note=note, accuracy=accuracy, glimpse=seen > 0)

    def form(self, kernel: Kernel, inputs: Inputs) -> Nearest | No:
        measure = measured(kernel, inputs.dimension)
        if isinstance(measure, No):
            return measure
        if not isinstance(inputs, Neighbourhood):
            return No("the neighbours of these places are not known")
        return Nearest.of(kernel, inputs)

    def prepared(self, model: Model, inputs: Inputs, data: Data, search: bool = True) -> Inputs:
        metric = _metric(model.kernel, inputs.dimension)
        if isinstance(inputs, Neighbourhood) and changed(np.asarray(inputs.metric), metric) < AGAIN:
            return inputs
        return Neighbourhood.of(inputs.points, data.seen, metric, self.m, search)

    def in_parts(self, inputs: Inputs) -> list[Inputs]:
        if not isinstance(inputs, Neighbourhood) or len(inputs) < SIDE_BY_SIDE or where.backend() != "cpu":
            return [inputs]
        return inputs.parts(_cores())

    def log_det_and_gram(self, structure: Nearest, sites: Sites) -> tuple[Float[Array, ""], Float[Array, "C C"]]:
        return conditionals.log_det_and_gram(by_difference, *_arguments(structure, sites))

    def condition(self, structure: Nearest, sites: Sites) -> NeighbourConditional:
        found = conditionals.rows_given_neighbours(by_difference, *_arguments(structure, sites))
        log_det, gram = conditionals.summed(found)
        parts = conditionals.inverse_parts(found, len(structure.X), structure.rows, structure.near)
        kernel, X = structure.kernel, structure.X
        return NeighbourConditional(kernel, X, sites, structure.leaves, log_det, gram, *parts, self.told)

    def lost(self, model: Model, inputs: Inputs, data: Data | None) -> float:
        """What a row's log evidence would gain from many more neighbours, by a sample of rows.

        It is what the model expects, ½ log of the ratio of variances, unless the values that were seen clearly say more.
        """
        seen = np.arange(len(inputs)) if data is None else np.flatnonzero(data.seen)
        X, noise = np.asarray(inputs.points), np.zeros(len(inputs)) + noise_variance(model, inputs, data)
        of, count = np.unique(np.linspace(1, len(seen) - 1, compared(len(seen))).astype(int)), many_of(self.m, len(seen))
        near = nearest_seen(X[seen] @ root_of(_metric(model.kernel, inputs.dimension)), seen, count, of)
        rows = seen[drawn_order(len(seen))[of]]
        few = np.where(np.arange(count) < self.m, near, -1)
        y = _without_mean(model, X, data)
        with lapack_threads(count):
            looks = [_look(model.kernel, X[rows], X[at], noise[rows], noise[at], at >= 0, y[at]) for at in (few, near)]
            (mean, v), (mean_many, v_many) = (tuple(np.asarray(part) for part in look) for look in looks)
        expected = float(0.5 * np.mean(np.log(v / v_many)))
        gained = 0.5 * (np.log(v / v_many) + (y[rows] - mean) ** 2 / v - (y[rows] - mean_many) ** 2 / v_many)
        found, error = abs(float(np.mean(gained))), float(np.std(gained)) / np.sqrt(len(rows))
        return found if found > expected + 2 * error else expected

    def _refusal(self, model: Model, inputs: Inputs, data: Data | None) -> No | None:
        if inputs.dimension == 1:
            return No("one column is a line, where exact algorithms are quicker: leave approximate out")
        if not gaussian(model, data):
            what = type(model.likelihood).__name__ if data is None or data.weight is None else "weighted"
            return No(f"neighbours take Gaussian observations, not {what} ones: approximate=Inducing(500) takes all")
        measure = measured(model.kernel, inputs.dimension)
        if isinstance(measure, No):
            return measure
        return None if np.any(np.asarray(measure.metric)) else No("nothing in the kernel falls off with distance")


def _cores() -> int:
    """How many cores share the rows of an evaluation: a power of two."""
    return min(1 << cores().bit_length() - 1, MOST_PARTS)


def _metric(kernel: Kernel, D: int) -> np.ndarray:
    measure: Any = measured(kernel, D)
    return np.asarray(measure.metric)


def _arguments(structure: Nearest, sites: Sites) -> tuple[Any, ...]:
    w = sites.precision
    noise = jnp.where(w > 0, 1 / jnp.where(w > 0, w, 1.0), 0.0)
    return structure.kernel, noise, sites.targets, structure.X, structure.rows, structure.near


def _without_mean(model: Model, X: np.ndarray, data: Data | None) -> np.ndarray:
    """The values that were seen, less the known mean; zeros where weights would have to be found first."""
    if data is None or columns(model, jnp.asarray(X[:1]))[1].shape[1]:
        return np.zeros(len(X))
    return np.where(data.seen, np.asarray(data.y)[:, 0] - np.asarray(columns(model, jnp.asarray(X))[0]), 0.0)


@jax.jit
def _look(
    kernel: Kernel, X: Any, around: Any, noise: Any, noise_around: Any, there: Any, y: Any
) -> tuple[Float[Array, " S"], Float[Array, " S"]]:
    """Mean and variance of observations given some around them."""
    k = by_difference(kernel, jnp.moveaxis(around - X[:, None], 2, 0))
    told = conditionals.tell(by_difference, kernel, k, around, noise_around, there, y[:, :, None])
    k0 = by_difference(kernel, jnp.zeros(X.shape[1]))
    return told.mean[:, 0], jnp.maximum(k0 - told.explained, 0.0) + jnp.maximum(noise, NOISE_FLOOR * k0)


class Neighbours(Approximation):
    """Each observation given its `m` nearest earlier ones (Vecchia), for many places in two to four columns.

    >>> Neighbours(20)
    Neighbours(20)
    """

    m: int = eqx.field(static=True, default=USUAL, converter=functools.partial(whole, name="Neighbours: m", least=1))
    told: int = eqx.field(static=True, default=TOLD, converter=functools.partial(whole, name="Neighbours: told", least=1))
    structure: ClassVar[str] = NeighbourEngine.structure

    def engine(self, model: Model, inference: str | None = None) -> NeighbourEngine:
        if inference is not None and model.likelihood.is_gaussian:
            raise ValueError(f"approximate={self} takes Gaussian observations as they are: leave out inference and weights")
        return NeighbourEngine(self.m, max(self.told, self.m + 1))  # with all rows before each, all rows for new places

    def __repr__(self) -> str:
        return f"Neighbours({self.m})" if self.told == TOLD else f"Neighbours({self.m}, told={self.told})"


NAMED[Neighbours.structure] = lambda number: Neighbours(USUAL if number is None else number)
