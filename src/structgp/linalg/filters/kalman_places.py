"""A chain at several places at once, whose states are correlated between the places: one filter for all of them.

The prior covariance of the states is P(m × m, chain) ⊗ K(S × S, places). Transitions act on the chain's part only, so that a
step costs O(m³S²); an update with the S observations of one time, some of them missing, takes one Cholesky factor of S rows.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..markov.chains import Chain, observed_first


def evidence(
    chain: Chain, gaps: Float[Array, " T"], K: Float[Array, "S S"], w: Float[Array, "T S"], Y: Float[Array, "T S C"]
) -> tuple[Float[Array, ""], Float[Array, "C C"]]:
    """log|C| over what was seen and YᵀC⁻¹Y, for C = K_t ⊗ K + W⁻¹; differentiable."""
    chain = observed_first(chain)
    start = chain.start()[:, :, None, None] * K

    def step(state: tuple[Array, Array], inputs: tuple[Array, Array, Array, Array]) -> tuple[tuple[Array, Array], tuple]:
        m, P = state
        gap, first, w, y = inputs
        A = jnp.where(first, jnp.eye(chain.size), chain.transition(gap))
        Q = jnp.where(first, 0.0, chain.noise(gap))
        m = jnp.einsum("ab,bsc->asc", A, m)
        P = jnp.einsum("ab,bdst,ed->aest", A, P, A) + Q[:, :, None, None] * K
        root = jnp.sqrt(w)
        L = jnp.linalg.cholesky(jnp.eye(len(w)) + root[:, None] * P[0, 0] * root)
        half = jax.scipy.linalg.solve_triangular(L, root[:, None] * jnp.moveaxis(P[0], 0, 1).reshape(len(w), -1), lower=True)
        v = jax.scipy.linalg.solve_triangular(L, root[:, None] * (y - m[0]), lower=True)
        half = half.reshape(len(w), chain.size, len(w))
        m = m + jnp.einsum("kas,kc->asc", half, v)
        P = P - jnp.einsum("kas,kbt->abst", half, half)
        log_det = 2 * jnp.sum(jnp.log(jnp.diagonal(L))) - jnp.sum(jnp.log(jnp.where(w > 0, w, 1.0)))
        return (m, P), (log_det, v.T @ v)

    nothing = jnp.zeros((chain.size, len(K), Y.shape[2]))
    rows = (gaps, jnp.arange(len(gaps)) == 0, w, Y)
    _, (log_dets, grams) = jax.lax.scan(jax.checkpoint(step), (nothing, start), rows)
    return jnp.sum(log_dets), jnp.sum(grams, axis=0)
