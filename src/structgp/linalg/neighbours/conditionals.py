"""Each row given a few before it: the evidence of Vecchia (1988), and its derivative.

With K the covariance among the neighbours N of a row, their noise included, and k that with the row itself,

    w = K⁻¹k,   e = t − wᵀT_N,   v = k₀ + σ² − wᵀk,   log|C| ≈ Σ log v,   TᵀC⁻¹T ≈ Σ e eᵀ/v,

so that C⁻¹ ≈ (I − W)ᵀ V⁻¹ (I − W) with one row w of W for each row. All rows are independent: one small factor each. For the
cotangents γ of log|C| and S of the Gram matrix, with g_v = γ/v − eᵀSe/v², g_e = 2Se/v and b = K⁻¹(T_N g_e), what reaches

    k: −2 g_v w − b,    K: g_v wwᵀ + ½(bwᵀ + wbᵀ),    k₀ and σ²: g_v,    t: g_e,    T_N: −w g_eᵀ,

and nothing goes through the factor. The covariance is a function of the difference between two places: `covary(law, d)` with
d of shape (D, …). Neighbours that are not there have w = b = 0.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

JITTER = 1e-11  # of the prior variance, where neighbours determine each other as far as rounding can tell

Covary = Callable[[Any, Float[Array, " D ..."]], Float[Array, " ..."]]


class Told(NamedTuple):
    """What neighbours tell of B rows: W = K⁻¹[k, T_N], kᵀK⁻¹k and kᵀK⁻¹T_N."""

    weights: Float[Array, "B m columns"]
    explained: Float[Array, " B"]
    mean: Float[Array, "B C"]


class Rows(NamedTuple):
    """All rows given their neighbours, as blocks of some rows: weights K⁻¹[k, T_N], variances v and residuals e."""

    weights: Float[Array, "blocks B m columns"]
    variance: Float[Array, "blocks B"]
    residual: Float[Array, "blocks B C"]


def tell(
    covary: Covary,
    law: Any,
    k: Float[Array, "B m"],
    near: Float[Array, "B m D"],
    noise: Float[Array, "B m"],
    there: Bool[Array, "B m"],
    T: Float[Array, "B m C"],
) -> Told:
    """What B rows, with covariances k to their neighbours, learn from these."""
    k0, x = covary(law, jnp.zeros(near.shape[2])), jnp.moveaxis(near, 2, 0)
    both = there[:, :, None] & there[:, None, :]
    diagonal = jnp.eye(near.shape[1], dtype=bool)
    K = jnp.where(both, covary(law, x[:, :, :, None] - x[:, :, None, :]), 0.0)
    K = jnp.where(diagonal, jnp.where(there, k0 + noise, 1.0)[:, :, None], K)
    L = jnp.linalg.cholesky(K, symmetrize_input=False)
    again = lambda: jnp.linalg.cholesky(jnp.where(diagonal, K + JITTER * k0, K), symmetrize_input=False)
    L = jax.lax.cond(jnp.any(jnp.isnan(L)), again, lambda: L)
    columns = jnp.where(there[:, :, None], jnp.concatenate([k[:, :, None], T], axis=2), 0.0)
    white = jax.lax.linalg.triangular_solve(L, columns, left_side=True, lower=True)
    weights = jax.lax.linalg.triangular_solve(L, white, left_side=True, lower=True, transpose_a=True)
    z = white[:, :, 0]
    return Told(weights, jnp.sum(z * z, axis=1), jnp.sum(z[:, :, None] * white[:, :, 1:], axis=1))


def rows_given_neighbours(
    covary: Covary,
    law: Any,
    noise: Float[Array, " N"],
    T: Float[Array, "N C"],
    X: Float[Array, "N D"],
    rows: Int[Array, "blocks B"],
    near: Int[Array, "blocks B m"],
) -> Rows:
    """Every row given its neighbours, block by block; a negative row, or neighbour, is none."""
    k0 = covary(law, jnp.zeros(X.shape[1]))

    def block(_: None, at: tuple[Array, Array]) -> tuple[None, Rows]:
        own, others = at
        x, around, there = X[own], X[others], others >= 0
        k = covary(law, jnp.moveaxis(around - x[:, None], 2, 0))
        told = tell(covary, law, k, around, noise[others], there, T[others])
        real = own >= 0
        variance = jnp.where(real, jnp.maximum(k0 - told.explained, 0.0) + noise[own], 1.0)
        residual = jnp.where(real[:, None], T[own] - told.mean, 0.0)
        return None, Rows(jnp.where(real[:, None, None], told.weights, 0.0), variance, residual)

    return jax.lax.scan(block, None, (rows, near))[1]


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def log_det_and_gram(
    covary: Covary,
    law: Any,
    noise: Float[Array, " N"],
    T: Float[Array, "N C"],
    X: Float[Array, "N D"],
    rows: Int[Array, "blocks B"],
    near: Int[Array, "blocks B m"],
) -> tuple[Float[Array, ""], Float[Array, "C C"]]:
    """log|C| and TᵀC⁻¹T over all rows."""
    return summed(rows_given_neighbours(covary, law, noise, T, X, rows, near))


def summed(found: Rows) -> tuple[Float[Array, ""], Float[Array, "C C"]]:
    """Σ log v and Σ e eᵀ/v."""
    e = found.residual.reshape(-1, found.residual.shape[2])
    return jnp.sum(jnp.log(found.variance)), e.T @ (e / found.variance.reshape(-1, 1))


def _forward(covary: Covary, *arguments: Any) -> tuple[tuple[Array, Array], Any]:
    found = rows_given_neighbours(covary, *arguments)
    return summed(found), (arguments, found)


def _backward(covary: Covary, saved: Any, cotangents: tuple[Array, Array]) -> tuple[Any, ...]:
    (law, noise, T, X, rows, near), found = saved
    to_log_det, to_gram = cotangents
    S = 0.5 * (to_gram + to_gram.T)
    D, m = X.shape[1], near.shape[2]

    def block(total: Any, at: tuple[Array, Array, Rows]) -> tuple[Any, tuple[Array, ...]]:
        own, others, (weights, v, e) = at
        real = own >= 0
        g_v = jnp.where(real, to_log_det / v - jnp.sum((e @ S) * e, axis=1) / v**2, 0.0)
        g_e = 2 * (e @ S) / v[:, None]
        w, b = weights[:, :, 0].T, jnp.einsum("bmc,bc->mb", weights[:, :, 1:], g_e)
        x = jnp.moveaxis(X[others], (2, 1, 0), (0, 1, 2))  # (D, m, B): rows side by side
        to_diagonal = g_v * w * w + b * w
        single = lambda law: (covary(law, x - X[own].T[:, None]), covary(law, jnp.zeros(D)))
        here = jax.vjp(single, law)[1]((-2 * g_v * w - b, jnp.sum(g_v) + jnp.sum(to_diagonal)))[0]
        twice = lambda part: jnp.concatenate([part, part], axis=-2)
        x2, w2, b2 = twice(x), twice(w), twice(b)

        def pairs(s: Array, total: Any) -> Any:
            """Neighbours s apart in the list, taken as a ring: all pairs once, but those half way round twice."""
            apart = lambda part: jax.lax.dynamic_slice_in_dim(part, s, m, part.ndim - 2)
            difference, ws, bs = x - apart(x2), apart(w2), apart(b2)
            to_pairs = jnp.where(2 * s == m, 0.5, 1.0) * (2 * g_v * w * ws + b * ws + w * bs)
            return jax.tree.map(jnp.add, total, jax.vjp(lambda law: covary(law, difference), law)[1](to_pairs)[0])

        total = jax.lax.fori_loop(1, m // 2 + 1, pairs, jax.tree.map(jnp.add, total, here))
        return total, (g_v, to_diagonal.T, g_e, -weights[:, :, :1] * g_e[:, None, :])

    start = jax.tree.map(jnp.zeros_like, law)
    to_law, (to_v, to_noise, to_t, to_T) = jax.lax.scan(block, start, (rows, near, found))
    nowhere = len(noise)  # where what is no row is added to
    own, others = (jnp.where(at >= 0, at, nowhere).ravel() for at in (rows, near))
    add = lambda zeros, first, second: zeros.at[own].add(first, mode="drop").at[others].add(second, mode="drop")
    C = T.shape[1]
    to_noise = add(jnp.zeros_like(noise), to_v.ravel(), to_noise.ravel())
    return to_law, to_noise, add(jnp.zeros_like(T), to_t.reshape(-1, C), to_T.reshape(-1, C)), None, None, None


log_det_and_gram.defvjp(_forward, _backward)


def inverse_parts(
    found: Rows, count: int, rows: Int[Array, "blocks B"], near: Int[Array, "blocks B m"]
) -> tuple[Float[Array, " N"], Float[Array, "N C"]]:
    """The diagonal of C⁻¹ = (I − W)ᵀV⁻¹(I − W) and C⁻¹T at all rows, 0 where nothing was seen."""
    w, v = found.weights[..., 0], found.variance[..., None]
    r = found.residual / v
    own, others = (jnp.where(at >= 0, at, count).ravel() for at in (rows, near))
    diagonal = jnp.zeros(count).at[own].add(1 / v.ravel(), mode="drop").at[others].add((w * w / v).ravel(), mode="drop")
    C = r.shape[-1]
    back = -(w[..., None] * r[..., None, :]).reshape(-1, C)
    return diagonal, jnp.zeros((count, C)).at[own].add(r.reshape(-1, C), mode="drop").at[others].add(back, mode="drop")
