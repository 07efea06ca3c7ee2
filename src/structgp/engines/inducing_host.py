"""The evidence through inducing inputs and its gradient, with BLAS between compiled kernels: block after block of rows."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..inputs.layouts import Inputs
from ..inputs.observations import Data
from ..linalg.dense.cholesky import log_sum
from ..linalg.features.low_rank import Rule
from ..linalg.features.low_rank_host import Block, HostLowRank, ToBlock
from ..linalg.features.totals import in_blocks
from ..parameters.tree import with_free
from ..posterior import Model
from ..structure.dense import covariance, typical_variance
from ..structure.low_rank import ROWS, crossing, through
from .basis import integrate, sites_of


class InducingOnHost:
    """log p(y | θ) and its gradient."""

    def __init__(self, model: Model, inputs: Inputs, data: Data, rule: Rule) -> None:
        self._model, self._X, self._data, self._rule = model, jax.device_put(np.asarray(inputs.points)), data, rule
        self._blocks = list(in_blocks(self._X, ROWS))

    def __call__(self, theta: np.ndarray) -> tuple[Any, Any]:
        arguments = (theta, self._model, self._X, self._data)
        K, w, T, logs = (np.asarray(part) for part in _pieces(*arguments))
        size = len(self._blocks[0])
        w, T = _filled(w, size), _filled(T, size)

        def block(i: int) -> Block:
            rows = slice(i * size, (i + 1) * size)
            K, k = _cross(theta, self._model, self._blocks[i])
            return Block(np.asarray(K), np.asarray(k), w[rows], T[rows])

        numbers = HostLowRank(K, block, len(self._blocks), self._rule)
        if numbers.failed:
            return np.nan, np.zeros(len(theta))
        value, direct, a, G = jax.device_get(_summed_up(*arguments, numbers.log_det - logs, numbers.gram))
        gradient, to_w, to_T = direct, [], []

        def receive(i: int, to: ToBlock) -> None:
            nonlocal gradient
            gradient = gradient + np.asarray(_pull_block(theta, self._model, self._blocks[i], to.K, to.k))
            to_w.append(to.w)
            to_T.append(to.T)

        to_K = numbers.pull(float(a), G, receive)
        count = len(self._X)
        pulled = _pull_pieces(*arguments, to_K, np.concatenate(to_w)[:count], np.concatenate(to_T)[:count], -a)
        return value, gradient + np.asarray(pulled)


def _filled(values: np.ndarray, size: int) -> np.ndarray:
    return np.pad(values, [(0, -len(values) % size)] + [(0, 0)] * (values.ndim - 1))


def _whole(theta: Any, model: Model, X: Array, data: Data) -> tuple[Array, Array, Array, Array]:
    """K_uu, the precisions with the sum of their logarithms, and the targets."""
    at = with_free(model, theta)
    sites = sites_of(at, X, data, jax.lax.stop_gradient(typical_variance(at.kernel, X)))
    of: Any = through(at.kernel, X[:1])
    return covariance(of.kernel, of.inputs, of.inputs), sites.precision, sites.targets, log_sum(sites.precision)


_pieces = jax.jit(_whole)


@jax.jit
def _cross(theta: Any, model: Model, rows: Array) -> tuple[Array, Array]:
    return crossing(with_free(model, theta).kernel)(rows)


@jax.jit
def _pull_block(theta: Any, model: Model, rows: Array, to_K: Array, to_k: Array) -> Array:
    return jax.vjp(lambda theta: crossing(with_free(model, theta).kernel)(rows), theta)[1]((to_K, to_k))[0]


@jax.jit
def _pull_pieces(theta: Any, model: Model, X: Array, data: Data, to_K: Any, to_w: Any, to_T: Any, to_logs: Any) -> Array:
    return jax.vjp(lambda theta: _whole(theta, model, X, data), theta)[1]((to_K, to_w, to_T, to_logs))[0]


@jax.jit
def _summed_up(theta: Any, model: Model, X: Array, data: Data, log_det: Any, gram: Any) -> tuple[Array, Array, Array, Array]:
    """The evidence, its direct gradient in θ, and those in log|C| and TᵀC⁻¹T."""

    def value(theta: Array, log_det: Array, gram: Array) -> Array:
        return integrate(with_free(model, theta), log_det, gram, jnp.sum(data.seen), data.y.shape[1], X.shape[1])[0]

    found, (direct, a, G) = jax.value_and_grad(value, argnums=(0, 1, 2))(theta, jnp.asarray(log_det), jnp.asarray(gram))
    return found, direct, a, G
