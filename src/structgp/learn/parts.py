"""The log evidence of data in parts as a function of θ, and its gradient, by small messages to and from each part.

Two rounds for an evaluation: every part says what it has to say, and with what the others said each finds its share. Of a
series each hears something else; of rows without an order all hear the slopes of one value of the sums over all of them. Where
basis functions of a series are integrated out, their weights need the sums over all parts before anything is pulled back: a
third round.
"""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float

from .._types import double_precision
from ..crew import Crew, size
from ..engines import chain_parts
from ..engines.basis import Weights, integrate
from ..engines.chain_parts import ChainInParts
from ..engines.inducing import InducingEngine
from ..engines.inducing_sums import RowSums, added, evidence_of_sums, sums_over
from ..inputs.parts import Rows, chain_part, rows_part
from ..linalg.filters.kalman import Others
from ..linalg.filters.kalman_parts import Message
from ..parameters.tree import as_numpy, with_free
from ..posterior import Model
from .evidence import summed_up


class Held(eqx.Module):
    """What a worker holds: a part, and the model whose free parameters come with every call."""

    model: Any
    part: Any

    def __sizeof__(self) -> int:
        return size(self)

    def __reduce__(self) -> Any:  # JAX would restore its arrays in the precision of the thread that reads them
        return _on_device, (as_numpy(self.model), as_numpy(self.part))


@double_precision
def _on_device(model: Model, part: Any) -> Held:
    return Held(*jax.device_put((model, part)))


def hold(rows: Rows, model: Model, first: float, beyond: float | None, length: int) -> Held:
    """A part of a series with the model, on the device of who works on it."""
    return _on_device(model, chain_part(rows, first, beyond, length))


def hold_rows(rows: Rows, model: Model, length: int) -> Held:
    """Some of the rows with the model, filled up with such that were not seen."""
    return _on_device(model, rows_part(rows, length))


class Slopes(NamedTuple):
    """The derivatives of the log evidence in log|C| and TᵀC⁻¹T."""

    log_det: Float[np.ndarray, ""]
    gram: Float[np.ndarray, "C C"]


class Series(NamedTuple):
    """Where a series begins, how many observations it has, and how many targets."""

    first: float
    seen: int
    targets: int


class SeriesEvidence:
    """log p(y | θ) of a series in parts and its gradient; `tuned` makes the static choices that suit a model."""

    def __init__(
        self, model: Model, parts: Sequence[Any], crew: Crew, tuned: Callable[[Any], ChainInParts], of: Series
    ) -> None:
        self.model, self.parts, self.crew, self.tuned = model, parts, crew, tuned
        self.first, self.seen, self.targets = of

    def __call__(self, theta: Float[np.ndarray, " P"]) -> tuple[Any, Any]:
        theta = np.asarray(theta, dtype=float)
        engine = self.tuned(with_free(self.model, theta))
        others = self.others(theta, engine)
        if others is None:
            return np.nan, np.full(len(theta), np.nan)
        if others[0].m.shape[1] > self.targets:
            log_det, gram = self.sums(theta, engine, others)
            value, direct, *slopes = self._head(theta, log_det, gram)
            shares = self._shares(theta, engine, others, *slopes)
            return value, functools.reduce(operator.add, (gradient for _, gradient in shares), direct)
        T = self.targets
        shares = self._shares(theta, engine, others, np.asarray(-0.5 * T), -0.5 * np.eye(T))
        value, gradient = (functools.reduce(operator.add, part) for part in zip(*shares, strict=True))
        return value - 0.5 * T * self.seen * np.log(2 * np.pi), gradient

    def others(self, theta: Float[np.ndarray, " P"], engine: ChainInParts) -> list[Others] | None:
        """What every part hears of the others; None where the model has no value."""
        said = self.crew.map(condense, itertools.repeat(theta), self.parts, itertools.repeat(engine))
        if not all(np.isfinite(part).all() for message in said for part in message):
            return None
        return chain_parts.meet(with_free(self.model, theta), self.first, engine, said)

    def sums(self, theta: Any, engine: ChainInParts, others: Sequence[Others]) -> tuple[Any, Any]:
        """log|C| and TᵀC⁻¹T of all data."""
        found = self.crew.map(sums, itertools.repeat(theta), self.parts, others, itertools.repeat(engine))
        log_det, gram = (functools.reduce(operator.add, part) for part in zip(*found, strict=True))
        return log_det, gram

    def weights(self, theta: Any, log_det: Any, gram: Any) -> tuple[float, Weights]:
        """The log evidence, and the weights of basis functions."""
        with jax.enable_x64(True):
            value, weights = jax.device_get(_integrated(theta, self.model, log_det, gram, self.seen, self.targets))
        return float(value), weights

    def _head(self, theta: Any, log_det: Any, gram: Any) -> Any:
        return jax.device_get(summed_up(theta, self.model, self.seen, log_det, gram, 1, self.targets))

    def _shares(self, theta: Any, engine: Any, others: Any, log_det: Any, gram: Any) -> list[tuple[Any, Any]]:
        slopes = itertools.repeat(Slopes(log_det, gram))
        return self.crew.map(contribute, itertools.repeat(theta), self.parts, others, slopes, itertools.repeat(engine))


class RowsEvidence:
    """log p(y | θ) of rows in parts through inducing inputs, and its gradient in θ, which may have the inputs as well."""

    def __init__(self, model: Model, parts: Sequence[Any], crew: Crew, engine: InducingEngine, of: Series, D: int) -> None:
        self.model, self.parts, self.crew, self.engine, self.of, self.D = model, parts, crew, engine, of, D

    def __call__(self, theta: Float[np.ndarray, " P"]) -> tuple[Any, Any]:
        theta = np.asarray(theta, dtype=float)
        value, direct, slopes = self._head(theta, self.sums(theta))
        if not np.isfinite(value):
            return np.nan, np.full(len(theta), np.nan)
        same = itertools.repeat
        shares = self.crew.map(pull_sums, same(theta), self.parts, same(slopes), same(self.engine))
        return value, functools.reduce(operator.add, shares, direct)

    def sums(self, theta: Float[np.ndarray, " P"]) -> RowSums:
        """The sums over all rows."""
        return added(self.crew.map(sum_rows, itertools.repeat(theta), self.parts, itertools.repeat(self.engine)))

    def _head(self, theta: Any, sums: RowSums) -> Any:
        return jax.device_get(_head(theta, self.model, sums, self.of.seen, self.of.targets, self.D, self.engine))


def sum_rows(theta: Any, held: Held, engine: InducingEngine) -> RowSums:
    """The sums over the rows of a part."""
    return jax.device_get(_row_sums(theta, held, engine))


def pull_sums(theta: Any, held: Held, slopes: RowSums, engine: InducingEngine) -> Any:
    """The share of a part in the gradient of a function of all sums with these slopes."""
    return jax.device_get(_pulled(theta, held, slopes, engine))


@functools.partial(jax.jit, static_argnames="engine")
def _row_sums(theta: Any, held: Held, engine: InducingEngine) -> RowSums:
    return sums_over(with_free(held.model, theta), held.part.X, held.part.data, engine)


@functools.partial(jax.jit, static_argnames="engine")
def _pulled(theta: Any, held: Held, slopes: RowSums, engine: InducingEngine) -> Array:
    return jax.vjp(lambda theta: _row_sums(theta, held, engine), theta)[1](slopes)[0]


@functools.partial(jax.jit, static_argnames=("targets", "D", "engine"))
def _head(theta: Any, model: Model, sums: RowSums, seen: Any, targets: int, D: int, engine: InducingEngine) -> Any:
    value = lambda theta, sums: evidence_of_sums(with_free(model, theta), sums, seen, targets, D, engine)
    found, slopes = jax.value_and_grad(value, argnums=(0, 1))(theta, sums)
    return found, *slopes


def condense(theta: Any, held: Held, engine: ChainInParts) -> Message:
    """What a part says."""
    return chain_parts.condense(_at(theta, held.model), held.part, engine)


@jax.jit
def _at(theta: Any, model: Any) -> Any:
    return with_free(model, theta)


def sums(theta: Any, held: Held, others: Others, engine: ChainInParts) -> tuple[Any, Any]:
    """The share of a part in log|C| and TᵀC⁻¹T."""
    with engine.place():
        return jax.device_get(_sums(theta, held, others, engine))


def contribute(theta: Any, held: Held, others: Others, slopes: Slopes, engine: ChainInParts) -> tuple[Any, Any]:
    """The share of a part in a function of log|C| and TᵀC⁻¹T with these slopes, and its gradient."""
    with engine.place():
        return jax.device_get(_share(theta, held, others, slopes, engine))


@functools.partial(jax.jit, static_argnames="engine")
def _sums(theta: Any, held: Held, others: Others, engine: ChainInParts) -> tuple[Array, Array]:
    return engine.log_det_and_gram(with_free(held.model, theta), held.part, others)


@functools.partial(jax.jit, static_argnames="engine")
def _share(theta: Any, held: Held, others: Others, slopes: Slopes, engine: ChainInParts) -> tuple[Array, Array]:
    def share(theta: Array) -> Array:
        log_det, gram = _sums(theta, held, others, engine)
        return slopes.log_det * log_det + (slopes.gram * gram).sum()

    return jax.value_and_grad(share)(theta)


@functools.partial(jax.jit, static_argnames="T")
def _integrated(theta: Any, model: Model, log_det: Any, gram: Any, seen: Any, T: int) -> tuple[Array, Weights]:
    return integrate(with_free(model, theta), log_det, gram, seen, T, 1)
