"""What is known of f besides its marginals at new places: derivatives, filtered and smoothed values, lag-one covariances.

Each comes from a conditional for the columns [y, Φ] and is put together with the weights of the basis functions as in `basis`.
What is filtered has seen less than everything, of the weights too: there G = TᵀC⁻¹T is the sum over the places so far.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..posterior import Conditional, Model
from ..structure.derivatives import along
from .basis import Weights, columns, prior_precision
from .kalman import KalmanConditional

Pair = tuple[Float[Array, "N T"], Float[Array, " N"]]


@functools.partial(jax.jit, static_argnames=("T", "order", "dim", "part"))
def derivative(
    gp: Model, conditional: Conditional, weights: Weights, X: Any, T: int, order: int, dim: int, part: int | None
) -> Pair:
    """Mean and variance of a derivative of f, or of one part of a sum, at new places."""
    means, variance = conditional.derivative(X, order, dim, part)
    known, Phi = jax.vmap(along(lambda x: _basis_at(gp, x, part), dim, order))(X)
    mean, rho = _combined(known, Phi, weights, means, T)
    return mean, variance + _squares(weights.factor, rho)


@functools.partial(jax.jit, static_argnames="T")
def smoothed(gp: Model, conditional: KalmanConditional, weights: Weights, T: int) -> Pair:
    """Mean and variance of f at the observed places, in the order of time, given everything."""
    known, Phi = columns(gp, conditional.t[:, None])
    means, variance = conditional.smoothed.marginals()
    mean, rho = _combined(known, Phi, weights, means, T)
    return mean, variance + _squares(weights.factor, rho)


@functools.partial(jax.jit, static_argnames="T")
def lag_one(gp: Model, conditional: KalmanConditional, weights: Weights, T: int) -> Float[Array, " N-1"]:
    """The covariance of f at each observed place with f at the next, given everything."""
    known, Phi = columns(gp, conditional.t[:, None])
    _, rho = _combined(known, Phi, weights, conditional.smoothed.marginals()[0], T)
    U = jax.scipy.linalg.solve_triangular(weights.factor, rho.T, lower=True)
    return conditional.lag_one() + jnp.sum(U[:, :-1] * U[:, 1:], axis=0)


@functools.partial(jax.jit, static_argnames="T")
def filtered(gp: Model, conditional: KalmanConditional, T: int) -> Pair:
    """Mean and variance of f at the observed places, in the order of time, given the places up to each.

    Before there are as many observations as free weights nothing is known: NaN and infinity.
    """
    known, Phi = columns(gp, conditional.t[:, None])
    means, variance = conditional.filtered()
    P = Phi.shape[1]
    if not P:
        return known[:, None] + means, variance
    of_mean = jax.eval_shape(gp.mean.features, jax.ShapeDtypeStruct((1,), known.dtype)).shape[0]
    free = P if gp.mean.diffuse else P - of_mean
    grams = conditional.grams_so_far()
    A = grams[:, T:, T:] + prior_precision(gp.mean, P, of_mean)
    enough = jnp.cumsum(conditional.sites.precision > 0) >= free
    L = jnp.linalg.cholesky(jnp.where(enough[:, None, None], A, jnp.eye(P)))

    def at(known: Any, Phi: Any, means: Any, L: Any, gram: Any) -> tuple[Any, Any]:
        so_far = Weights(jax.scipy.linalg.cho_solve((L, True), gram[T:, :T]), L)
        mean, rho = _combined(known[None], Phi[None], so_far, means[None], T)
        return mean[0], _squares(L, rho)[0]

    mean, more = jax.vmap(at)(known, Phi, means, L, grams)
    fine = enough & jnp.isfinite(more)
    return jnp.where(fine[:, None], mean, jnp.nan), jnp.where(fine, variance + more, jnp.inf)


def _basis_at(gp: Model, x: Any, part: int | None) -> tuple[Any, Any]:
    """The known mean and the basis functions at one place; of a part of a sum only what is its own."""
    if part is None:
        return gp.mean(x), jnp.concatenate([gp.mean.features(x), gp.kernel.null_space(x)])
    own = [term.null_space(x) * (i == part) for i, term in enumerate(gp.kernel.terms)]  # type: ignore[attr-defined]
    return jnp.zeros(()) * x[0], jnp.concatenate([0 * gp.mean.features(x), *own])


def _combined(known: Any, Phi: Any, weights: Weights, means: Any, T: int) -> tuple[Any, Any]:
    """The mean of f, and ρ = φ − m_Φ through which the uncertain weights enter."""
    rho = Phi - means[:, T:]
    return known[:, None] + means[:, :T] + rho @ weights.mean, rho


def _squares(factor: Any, rho: Any) -> Any:
    """ρᵀA⁻¹ρ at each place."""
    return jnp.sum(jax.scipy.linalg.solve_triangular(factor, rho.T, lower=True) ** 2, axis=0)
