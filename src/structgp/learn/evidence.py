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

from ..engines.base import Engine
from ..engines.basis import integrate, sites_of
from ..engines.cholesky import Cholesky
from ..inputs.layouts import Inputs
from ..inputs.observations import Data
from ..inputs.rows import in_bucket
from ..linalg.dense.cholesky import HostSolution, solve_on_host
from ..parameters.tree import FreeMap, with_free
from ..posterior import Model
from ..structure.base import No
from ..structure.dense import covariance, typical_variance
from .objective import Objective


class GaussianEvidence:
    """log p(y | θ) of Gaussian observations and its gradient, for one model, one set of data and one engine."""

    def __init__(self, model: Model, inputs: Inputs, data: Data, engine: Engine) -> None:
        self.inputs, self.data = inputs, data
        with jax.enable_x64(True):  # on the device once, not at every evaluation
            self._model, self._inputs, self._data = jax.device_put((model, inputs, data))
            self._X = jnp.asarray(self._inputs.points)
        self._at, self._tuned = FreeMap(model), engine.tuned  # looked up once: an evaluation may be short
        self._rows = int(np.flatnonzero(data.seen)[-1]) + 1 if np.any(data.seen) else 1
        self._on_host = isinstance(engine, Cholesky) and jax.default_backend() == "cpu"
        with jax.enable_x64(True):
            parts = engine.in_parts(inputs)
            self._parts = [dataclasses.replace(part, X=self._X) for part in jax.device_put(parts)] if len(parts) > 1 else []

    def __call__(self, theta: np.ndarray) -> tuple[Any, Any]:
        way = self._by_lapack if self._on_host else self._by_parts if self._parts else self._by_autodiff
        return jax.device_get(way(theta))

    def many(self, thetas: Float[np.ndarray, "S P"]) -> tuple[np.ndarray, np.ndarray]:
        """The same at several θ: one computation for all that share the static choices of the engine."""
        values, gradients = np.zeros(len(thetas)), np.zeros(thetas.shape)
        if self._on_host:
            for s, theta in enumerate(thetas):
                values[s], gradients[s] = self(theta)
            return values, gradients
        engines = [self._engine(theta) for theta in thetas]
        for engine in dict.fromkeys(engines):
            rows = [s for s, own in enumerate(engines) if own == engine]
            arguments = (self._model, self._inputs, self._data, engine)
            values[rows], gradients[rows] = jax.device_get(_values_and_gradients(thetas[rows], *arguments))
        return values, gradients

    def _engine(self, theta: Float[Any, " P"]) -> Engine:
        return self._tuned(self._at(theta), self.inputs, self.data)

    def _by_autodiff(self, theta: Float[Any, " P"]) -> tuple[Any, Any]:
        return _value_and_gradient(theta, self._model, self._inputs, self._data, self._engine(theta))

    def _by_parts(self, theta: Float[Any, " P"]) -> tuple[Any, Any]:
        """The same with the rows in parts, each on a core of its own: their sums, then what pulls these back."""
        model, data, engine = self._model, self._data, self._engine(theta)
        begun = _side_by_side(lambda part: _begin(theta, model, part, data, engine), self._parts)
        log_det, gram = jax.tree.map(lambda *sums: functools.reduce(operator.add, sums), *(sums for sums, _ in begun))
        value, direct, *to_sums = _summed_up(theta, model, data, log_det, gram, self._X.shape[1])
        pulled = _side_by_side(lambda pull: _pull(pull, tuple(to_sums)), [pull for _, pull in begun])
        return value, functools.reduce(operator.add, pulled, direct)

    def _by_lapack(self, theta: np.ndarray) -> tuple[Any, Any]:
        arguments = (theta, self._model, self._X, self._data)
        B, w, T, scale = _assemble(*arguments)
        n = self._rows  # what fills up the rows does not reach LAPACK
        solution = solve_on_host(np.array(np.asarray(B)[:n, :n]), np.asarray(w)[:n], np.asarray(T)[:n], float(scale))
        del B
        return (np.nan, np.zeros(len(theta))) if solution is None else _pull_back(*arguments, solution.in_size(len(w)))


def evidence_objective(model: Model, inputs: Inputs, data: Data, engine: Engine, grain: float = 0.0) -> Objective:
    """What is climbed for Gaussian observations; `grain` of it is left to chance."""
    engine, inputs, data = engine.reduced(inputs, data)
    if engine.takes_unseen_rows:
        inputs, data = in_bucket(inputs, data)
    evidence = GaussianEvidence(model, inputs, data, engine)
    return Objective(model, evidence, grain, evidence.many)


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


@functools.partial(jax.jit, static_argnames="engine")
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


@functools.partial(jax.jit, static_argnames="D")
def _summed_up(theta: Any, model: Model, data: Data, log_det: Array, gram: Array, D: int) -> tuple[Array, Array, Array, Array]:
    """The objective, and its derivatives in θ, log|C| and TᵀC⁻¹T, each with the others held."""

    def value(theta: Array, log_det: Array, gram: Array) -> Array:
        return integrate(with_free(model, theta), log_det, gram, jnp.sum(data.seen), data.y.shape[1], D)[0]

    found, slopes = jax.value_and_grad(value, argnums=(0, 1, 2))(theta, log_det, gram)
    return found, *slopes


def _side_by_side(work: Callable[[Any], Any], parts: list[Any]) -> list[Any]:
    """One call for each part, on threads of their own."""

    def run(part: Any) -> Any:
        with jax.enable_x64(True):
            return jax.block_until_ready(work(part))

    with concurrent.futures.ThreadPoolExecutor(len(parts)) as pool:
        return list(pool.map(run, parts))


def _pieces(theta: Any, model: Model, X: Array, data: Data) -> tuple[Array, Array, Array]:
    """K, the precisions and the targets: everything that reaches the dense solver."""
    at = with_free(model, theta)
    sites = sites_of(at, X, data, jax.lax.stop_gradient(typical_variance(at.kernel, X)))
    return covariance(at.kernel, X, X), sites.precision, sites.targets


@jax.jit
def _assemble(theta: Any, model: Model, X: Array, data: Data) -> tuple[Array, Array, Array, Array]:
    K, w, T = _pieces(theta, model, X, data)
    S = jnp.sqrt(w)
    return jnp.eye(len(w)) + S[:, None] * K * S[None, :], w, T, jnp.mean(jnp.diagonal(K))


@jax.jit
def _pull_back(theta: Any, model: Model, X: Array, data: Data, solution: HostSolution) -> tuple[Array, Array]:
    """The objective and its gradient from C⁻¹: dlog|C| = tr C⁻¹dC and d(TᵀC⁻¹T) = dTᵀα + αᵀdT − αᵀdC α."""

    sums = jnp.asarray(solution.log_det), jnp.asarray(solution.gram)
    value, direct, to_log_det, to_gram = _summed_up(theta, model, data, *sums, X.shape[1])
    to_gram = 0.5 * (to_gram + to_gram.T)
    (_, w, _), pull = jax.vjp(lambda theta: _pieces(theta, model, X, data), theta)
    S, alpha = jnp.sqrt(w), solution.alpha
    to_C = to_log_det * S[:, None] * solution.inverse * S[None, :] - (alpha @ to_gram) @ alpha.T
    # LAPACK fills one triangle of the inverse. K is symmetric, so that triangle counted twice is the whole adjoint.
    row, column = jnp.arange(len(w))[:, None], jnp.arange(len(w))[None, :]
    to_C = jnp.where(row < column, 2 * to_C, jnp.where(row == column, to_C, 0.0))
    to_w = jnp.where(w > 0, -jnp.diagonal(to_C) / jnp.where(w > 0, w, 1.0) ** 2, 0.0)
    return value, direct + pull((to_C, to_w, 2 * alpha @ to_gram))[0]
