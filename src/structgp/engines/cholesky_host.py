"""The dense evidence and its gradient with LAPACK between two compiled halves: the inverse is all that the adjoint needs."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..inputs.layouts import Inputs
from ..inputs.observations import Data
from ..linalg.dense.cholesky import HostSolution, solve_on_host
from ..parameters.tree import with_free
from ..posterior import Model
from ..structure.dense import covariance, typical_variance
from .basis import integrate, sites_of


class CholeskyOnHost:
    """log p(y | θ) and its gradient."""

    def __init__(self, model: Model, inputs: Inputs, data: Data) -> None:
        self._model, self._X, self._data = model, jax.device_put(np.asarray(inputs.points)), data
        seen = np.flatnonzero(np.asarray(data.seen))
        self._rows = int(seen[-1]) + 1 if len(seen) else 1

    def __call__(self, theta: np.ndarray) -> tuple[Any, Any]:
        arguments = (theta, self._model, self._X, self._data)
        B, w, T, scale = _assemble(*arguments)
        n = self._rows  # what fills up the rows does not reach LAPACK
        solution = solve_on_host(np.array(np.asarray(B)[:n, :n]), np.asarray(w)[:n], np.asarray(T)[:n], float(scale))
        del B
        return (np.nan, np.zeros(len(theta))) if solution is None else _pull_back(*arguments, solution.in_size(len(w)))


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
        return integrate(at, log_det, gram, jnp.sum(data.seen), data.y.shape[1], X.shape[1])[0]

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
