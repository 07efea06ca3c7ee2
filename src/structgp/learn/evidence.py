"""The function that learning climbs: log evidence plus log prior of the parameters, and its gradient."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._types import double_precision
from ..engines.base import Engine
from ..engines.basis import integrate, sites_of
from ..engines.cholesky import Cholesky
from ..inputs.layouts import Inputs
from ..inputs.observations import Data
from ..linalg.dense.cholesky import HostSolution, solve_on_host
from ..parameters.tree import FreeMap, log_prior, with_free
from ..posterior import Model
from ..structure.dense import covariance, typical_variance

LOWEST = -1e25  # stands for a density of zero, which a line search can step back from


class Objective:
    """log p(y | θ) + log p(θ) and its gradient, for one model, one set of data and one engine."""

    def __init__(self, model: Model, inputs: Inputs, data: Data, engine: Engine) -> None:
        self.model, self.inputs, self.data, self.engine = model, inputs, data, engine
        with jax.enable_x64(True):  # on the device once, not at every evaluation
            self._model, self._inputs, self._data = jax.device_put((model, inputs, data))
            self._X = jnp.asarray(self._inputs.points)
            self.grain = engine.specialised(model, inputs, data).grain
        self._at, self._specialised = FreeMap(model), engine.specialised  # looked up once: an evaluation may be short
        self._on_host = isinstance(engine, Cholesky) and jax.default_backend() == "cpu"

    @double_precision
    def __call__(self, theta: Float[Any, " P"]) -> tuple[float, Float[np.ndarray, " P"]]:
        evaluate = self._by_lapack if self._on_host else self._by_autodiff
        value, gradient = jax.device_get(evaluate(np.asarray(theta)))
        if np.isfinite(value) and np.isfinite(gradient).all():
            return float(value), gradient
        return LOWEST, np.zeros(len(theta))

    def _by_autodiff(self, theta: np.ndarray) -> tuple[Any, Any]:
        engine = self._specialised(self._at(theta), self.inputs, self.data)
        return _value_and_gradient(theta, self._model, self._inputs, self._data, engine)

    def _by_lapack(self, theta: np.ndarray) -> tuple[Any, Any]:
        arguments = (theta, self._model, self._X, self._data)
        B, w, T, scale = _assemble(*arguments)
        solution = solve_on_host(np.array(B), np.asarray(w), np.asarray(T), float(scale))
        del B
        return (np.nan, np.zeros(len(theta))) if solution is None else _pull_back(*arguments, solution)


def log_evidence(model: Model, inputs: Inputs, data: Data, engine: Engine) -> Float[Array, ""]:
    """log p(y), with the weights of basis functions integrated out."""
    X = jnp.asarray(inputs.points)
    shared = engine.shared(data)
    sites = sites_of(model, X, shared, typical_variance(model.kernel, X))
    log_det, gram = engine.log_det_and_gram(engine.form(model.kernel, inputs), sites)
    # eight bytes for each would cost as much as a pass over the data
    seen = jnp.sum(shared.seen, dtype=jnp.int32) * (len(data.y) // len(shared.seen))
    return integrate(model, log_det, gram, seen, data.y.shape[1], X.shape[1])[0]


@functools.partial(jax.jit, static_argnames="engine")
@functools.partial(jax.value_and_grad, argnums=0)
def _value_and_gradient(theta: Any, model: Model, inputs: Inputs, data: Data, engine: Engine) -> Array:
    at = with_free(model, theta)
    return log_evidence(at, inputs, data, engine) + log_prior(at)


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

    def summed_up(theta: Array, log_det: Array, gram: Array) -> Array:
        at = with_free(model, theta)
        return integrate(at, log_det, gram, jnp.sum(data.seen), data.y.shape[1], X.shape[1])[0] + log_prior(at)

    arguments = (theta, jnp.asarray(solution.log_det), jnp.asarray(solution.gram))
    value, (direct, to_log_det, to_gram) = jax.value_and_grad(summed_up, argnums=(0, 1, 2))(*arguments)
    to_gram = 0.5 * (to_gram + to_gram.T)
    (_, w, _), pull = jax.vjp(lambda theta: _pieces(theta, model, X, data), theta)
    S, alpha = jnp.sqrt(w), solution.alpha
    to_C = to_log_det * S[:, None] * solution.inverse * S[None, :] - (alpha @ to_gram) @ alpha.T
    # LAPACK fills one triangle of the inverse. K is symmetric, so that triangle counted twice is the whole adjoint.
    row, column = jnp.arange(len(w))[:, None], jnp.arange(len(w))[None, :]
    to_C = jnp.where(row < column, 2 * to_C, jnp.where(row == column, to_C, 0.0))
    to_w = jnp.where(w > 0, -jnp.diagonal(to_C) / jnp.where(w > 0, w, 1.0) ** 2, 0.0)
    return value, direct + pull((to_C, to_w, 2 * alpha @ to_gram))[0]
