"""The log evidence of Gaussian observations as a function of θ, and its gradient."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import functools
import operator
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .. import where
from ..background import Program
from ..engines.base import Engine, Offer
from ..engines.basis import integrate, sites_of
from ..inputs.layouts import Inputs
from ..inputs.observations import Data
from ..inputs.rows import filled, in_bucket
from ..parameters.tree import FreeMap, as_numpy, with_free
from ..posterior import Model
from ..structure.base import No
from ..structure.dense import typical_variance
from .objective import Objective

FEW, MANY = 16, 128  # θ in one computation without gradients


class GaussianEvidence:
    """log p(y | θ) of Gaussian observations and its gradient, for one model, one set of data and one engine.

    With `together` so many θ always go into one compiled computation, which pays for small matrices.
    """

    def __init__(self, model: Model, inputs: Inputs, data: Data, engine: Engine, together: int = 0) -> None:
        self.inputs, self.data, self._together, self._made_of = inputs, data, together, (model, engine)
        with jax.enable_x64(True):  # on the device once, not at every evaluation
            self._model, self._inputs, self._data = jax.device_put((model, inputs, data))
            on_cpu = where.backend() == "cpu" and not together
            self._on_host = engine.on_host(self._model, self._inputs, self._data) if on_cpu else None
        self._at, self._tuned = FreeMap(model), engine.tuned  # looked up once: an evaluation may be short
        with jax.enable_x64(True):
            parts = engine.in_parts(inputs)
            X = jnp.asarray(self._inputs.points) if len(parts) > 1 else None
            self._parts = [dataclasses.replace(part, X=X) for part in jax.device_put(parts)] if len(parts) > 1 else []

    def __reduce__(self) -> Any:  # where it is read again, its data go to the device there
        model, engine = self._made_of
        return GaussianEvidence, (model, as_numpy(self.inputs), as_numpy(self.data), engine, self._together)

    def __call__(self, theta: np.ndarray) -> tuple[Any, Any]:
        if self._together:
            value, gradient = self.many(np.asarray(theta)[None])
            return value[0], gradient[0]
        way = self._on_host or (self._by_parts if self._parts else self._by_autodiff)
        return jax.device_get(way(theta))

    def many(self, thetas: Float[np.ndarray, "S P"]) -> tuple[np.ndarray, np.ndarray]:
        """The same at several θ: one computation for all that share the static choices of the engine."""
        values, gradients = np.zeros(len(thetas)), np.zeros(thetas.shape)
        if self._on_host:
            for s, theta in enumerate(thetas):
                values[s], gradients[s] = self(theta)
            return values, gradients
        engines = [self._engine(theta) for theta in thetas]
        program = _values_and_gradients.of(len(self.data.y)) if self._together else _values_and_gradients.well
        for engine in dict.fromkeys(engines):
            rows = [s for s, own in enumerate(engines) if own == engine]
            arguments = (self._model, self._inputs, self._data, engine)
            size = self._together or len(rows)
            for at in range(0, len(rows), size):
                piece = rows[at : at + size]
                found = jax.device_get(program(filled(thetas[piece], size), *arguments))
                values[piece], gradients[piece] = (part[: len(piece)] for part in found)
        return values, gradients

    def values(self, thetas: Float[np.ndarray, "S P"]) -> np.ndarray:
        """The log evidences alone, at many θ: a few at a time, in two sizes."""
        found = np.zeros(len(thetas))
        engines = [self._engine(theta) for theta in thetas]
        for engine in dict.fromkeys(engines):
            rows = np.array([s for s, own in enumerate(engines) if own == engine])
            size = FEW if len(rows) <= FEW else MANY
            for at in range(0, len(rows), size):
                piece = rows[at : at + size]
                arguments = filled(thetas[piece], size), self._model, self._inputs, self._data, engine
                found[piece] = np.asarray(_values(*arguments))[: len(piece)]
        return found

    def program(self, theta: Float[Any, " P"]) -> tuple[Model, Inputs, Data, Engine]:
        """What `log_evidence` is a function of, with the static choices that suit θ."""
        return self._model, self._inputs, self._data, self._engine(theta)

    def _engine(self, theta: Float[Any, " P"]) -> Engine:
        return self._tuned(self._at(theta), self.inputs, self.data)

    def _by_autodiff(self, theta: Float[Any, " P"]) -> tuple[Any, Any]:
        return _value_and_gradient(theta, self._model, self._inputs, self._data, self._engine(theta))

    def _by_parts(self, theta: Float[Any, " P"]) -> tuple[Any, Any]:
        """The same with the rows in parts, each on a core of its own: their sums, then what pulls these back."""
        model, data, engine = self._model, self._data, self._engine(theta)
        begun = _side_by_side(lambda part: _begin(theta, model, part, data, engine), self._parts)
        log_det, gram = jax.tree.map(lambda *sums: functools.reduce(operator.add, sums), *(sums for sums, _ in begun))
        seen, T = np.sum(np.asarray(self.data.seen)), self.data.y.shape[1]
        value, direct, *to_sums = summed_up(theta, model, seen, log_det, gram, self.inputs.dimension, T)
        pulled = _side_by_side(lambda pull: _pull(pull, tuple(to_sums)), [pull for _, pull in begun])
        return value, functools.reduce(operator.add, pulled, direct)


def evidence_objective(model: Model, inputs: Inputs, data: Data, engine: Engine, grain: float = 0.0) -> Objective:
    """What is climbed for Gaussian observations; `grain` of it is left to chance."""
    engine, inputs, data = engine.reduced(inputs, data)
    if engine.takes_unseen_rows:
        inputs, data = in_bucket(inputs, data)
    evidence = GaussianEvidence(model, inputs, data, engine)
    return Objective(model, evidence, grain, evidence.many, evidence.values)


def objective_at(learned: Model, model: Model, inputs: Inputs, data: Data, offer: Offer) -> Objective:
    """What is climbed for Gaussian observations, with places that are prepared for these values."""
    inputs, data = in_bucket(inputs, data) if offer.engine.takes_unseen_rows else (inputs, data)
    ready = offer.engine.prepared(learned, inputs, data)
    return evidence_objective(model, ready, data, offer.engine, offer.grain)


def log_evidence(model: Model, inputs: Inputs, data: Data, engine: Engine) -> Float[Array, ""]:
    """log p(y), with the weights of basis functions integrated out."""
    X = jnp.asarray(inputs.points)
    shared = engine.shared(data)
    sites = sites_of(model, X, shared, typical_variance(model.kernel, X))
    form = engine.form(model.kernel, inputs)
    if isinstance(form, No):  # for these values: a climb steps back
        return jnp.full((), jnp.nan)
    log_det, gram = engine.log_det_and_gram(form, sites)
    # eight bytes for each would cost as much as a pass over the data
    seen = jnp.sum(shared.seen, dtype=jnp.int32) * (len(data.y) // len(shared.seen))
    return integrate(model, log_det, gram, seen, data.y.shape[1], X.shape[1])[0]


@functools.partial(jax.value_and_grad, argnums=0)
def _one(theta: Any, model: Model, inputs: Inputs, data: Data, engine: Engine) -> Array:
    return log_evidence(with_free(model, theta), inputs, data, engine)


_value_and_gradient = jax.jit(_one, static_argnames="engine")


@functools.partial(Program, static_argnames="engine")
def _values_and_gradients(thetas: Any, model: Model, inputs: Inputs, data: Data, engine: Engine) -> tuple[Array, Array]:
    return jax.vmap(lambda theta: _one(theta, model, inputs, data, engine))(thetas)


@functools.partial(jax.jit, static_argnames="engine")
def _begin(theta: Any, model: Model, inputs: Inputs, data: Data, engine: Engine) -> tuple[Any, Any]:
    """log|C| and TᵀC⁻¹T of some rows, and what pulls them back to θ."""

    def sums(theta: Any) -> tuple[Array, Array]:
        at, X = with_free(model, theta), jnp.asarray(inputs.points)
        sites = sites_of(at, X, data, typical_variance(at.kernel, X))
        return engine.log_det_and_gram(engine.form(at.kernel, inputs), sites)

    return jax.vjp(sums, theta)


@jax.jit
def _pull(pull: Any, cotangents: tuple[Array, Array]) -> Array:
    return pull(cotangents)[0]


@functools.partial(jax.jit, static_argnames=("D", "T"))
def summed_up(
    theta: Any, model: Model, seen: Any, log_det: Array, gram: Array, D: int, T: int
) -> tuple[Array, Array, Array, Array]:
    """The objective, and its derivatives in θ, log|C| and TᵀC⁻¹T, each with the others held."""

    def value(theta: Array, log_det: Array, gram: Array) -> Array:
        return integrate(with_free(model, theta), log_det, gram, seen, T, D)[0]

    found, slopes = jax.value_and_grad(value, argnums=(0, 1, 2))(theta, log_det, gram)
    return found, *slopes


def _side_by_side(work: Callable[[Any], Any], parts: list[Any]) -> list[Any]:
    """One call for each part, on threads of their own."""

    run = where.carried(lambda part: jax.block_until_ready(work(part)))
    with concurrent.futures.ThreadPoolExecutor(len(parts)) as pool:
        return list(pool.map(run, parts))


@functools.partial(jax.jit, static_argnames="engine")
def _values(thetas: Any, model: Model, inputs: Inputs, data: Data, engine: Engine) -> Array:
    return jax.vmap(lambda theta: log_evidence(with_free(model, theta), inputs, data, engine))(thetas)
