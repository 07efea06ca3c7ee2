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

from ..engines.basis import Weights, columns, prior_precision
from ..structure.derivatives import along
from .conditioning import Posterior, basis_of_part, combined

Pair = tuple[Float[Array, "N T"], Float[Array, " N"]]


@functools.partial(jax.jit, static_argnames=("order", "dim", "part"))
def derivative(posterior: Posterior, X: Any, order: int, dim: int, part: int | None) -> Pair:
    """Mean and variance of a derivative of f, or of one part of a sum, at new places."""
    means, variance = posterior.conditional.derivative(X, order, dim, part)
    known, Phi = jax.vmap(along(lambda x: basis_of_part(posterior.prior, x, part), dim, order))(X)
    mean, U = posterior.with_weights(known, Phi, means)
    return mean, variance + jnp.sum(U * U, axis=0)


@jax.jit
def gradient(posterior: Posterior, x: Any) -> tuple[Float[Array, "D T"], Float[Array, "D D"]]:
    """Mean and covariance of the gradient of f at one place."""
    means, covariance = posterior.conditional.gradient(x)
    known, Phi = jax.jacfwd(lambda x: basis_of_part(posterior.prior, x, None))(x)
    mean, U = posterior.with_weights(known, Phi.T, means)
    return mean, covariance + U.T @ U if len(U) else covariance


@jax.jit
def smoothed(posterior: Posterior) -> Pair:
    """Mean and variance of f at the observed places, in the order of time, given everything."""
    mean, variance, U = _along_time(posterior)
    return mean, variance + jnp.sum(U * U, axis=0)


@jax.jit
def lag_one(posterior: Posterior) -> Float[Array, " gaps"]:
    """The covariance of f at each observed place with f at the next, given everything."""
    U = _along_time(posterior)[2]
    return posterior.conditional.lag_one() + jnp.sum(U[:, :-1] * U[:, 1:], axis=0)  # type: ignore[attr-defined]


@jax.jit
def filtered(posterior: Posterior) -> Pair:
    """Mean and variance of f at the observed places, in the order of time, given the places up to each.

    Before there are as many observations as free weights nothing is known: NaN and infinity.
    """
    conditional: Any = posterior.conditional
    mean_function, T = posterior.prior.mean, posterior.targets
    known, Phi = columns(posterior.prior, conditional.rows)
    means, variance = conditional.filtered()
    P = Phi.shape[1]
    if not P:
        return known[:, None] + means, variance
    of_mean = jax.eval_shape(mean_function.features, jax.ShapeDtypeStruct(conditional.rows.shape[1:], known.dtype)).shape[0]
    free = P if mean_function.diffuse else P - of_mean
    grams = conditional.grams_so_far()
    A = grams[:, T:, T:] + prior_precision(mean_function, P, of_mean)
    enough = jnp.cumsum(conditional.sites.precision > 0) >= free
    L = jnp.linalg.cholesky(jnp.where(enough[:, None, None], A, jnp.eye(P)))

    def at(known: Any, Phi: Any, means: Any, L: Any, gram: Any) -> tuple[Any, Any]:
        so_far = Weights(jax.scipy.linalg.cho_solve((L, True), gram[T:, :T]), L)
        mean, U = combined(known[None], Phi[None], so_far, means[None], T)
        return mean[0], jnp.sum(U * U)

    mean, more = jax.vmap(at)(known, Phi, means, L, grams)
    fine = enough & jnp.isfinite(more)
    return jnp.where(fine[:, None], mean, jnp.nan), jnp.where(fine, variance + more, jnp.inf)


def _along_time(posterior: Posterior) -> tuple[Array, Array, Array]:
    """Means, the variances that the sites leave, and what the weights add, at the observed places in the order of time."""
    conditional: Any = posterior.conditional
    means, variance = conditional.smoothed.marginals()
    mean, U = posterior.with_weights(*columns(posterior.prior, conditional.rows), means)
    return mean, variance, U
