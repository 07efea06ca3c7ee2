"""A Gaussian vector f ~ N(0, K) times factors exp(h f − ½ w f²), by Cholesky: what is left of f, and the normaliser.

With W = diag(w), Σ = (K⁻¹ + W)⁻¹ = K (I + W K)⁻¹ and several columns H of shifts,

    log_det = log|I + K W|,   gram = HᵀΣH,   mean = ΣH,   variance = diag Σ,   α = (I + W K)⁻¹H,   mean = Kα,

and, for the gradient, d log_det = tr(M dK) + Σ Σᵢᵢ dwᵢ and d gram = αᵀdK α − meanᵀdW mean + meanᵀdH + dHᵀmean with
M = W − WΣW. While no w is negative, M = S B⁻¹ S with S = √W and B = I + S K S, whose eigenvalues are at least one. Factors
with negative w go through a root K = L₀L₀ᵀ and I + L₀ᵀW L₀ = R Rᵀ, which has a Cholesky factor R exactly if Σ is a
covariance; if not, NaN comes back.

On a CPU, large matrices with w ≥ 0 go to LAPACK, in a call back to the host: diag Σ = (1 − diag B⁻¹)/w needs L⁻¹ alone, and M
the inverse, a half and a third of the work of triangular solves, which is all that XLA has.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import cho_solve, solve_triangular
from jaxtyping import Array, Float

from ... import where
from .cholesky import SMALL, factor_on_host, factorise, lapack_threads

LOST = 1e-6  # of 1 − diag B⁻¹: below, it has lost too many digits, and variances are computed as K − KMK
WEAK = 1e-3  # a factor with less than this part of the prior's precision is taken for a mere shift
FIRST_JITTER, LAST_JITTER = 1e-13, 1e-5  # what the root of a smooth covariance may need, in units of its mean variance


class Solved(NamedTuple):
    """Σh, diag Σ, log|I + KW|, hᵀΣh and (I + WK)⁻¹h."""

    mean: Float[Any, "N C"]
    variance: Float[Any, " N"]
    log_det: Float[Any, ""]
    gram: Float[Any, "C C"]
    alpha: Float[Any, "N C"]


def root(K: Float[Array, "N N"]) -> Float[Array, "N N"]:
    """L₀ with L₀L₀ᵀ = K, and as little more than K as rounding asks for, in steps of ten."""
    scale, eye = jnp.mean(jnp.diagonal(K)), jnp.eye(len(K))
    fails = lambda state: jnp.isnan(state[1][-1, -1]) & (state[0] < LAST_JITTER)
    more = lambda state: (10 * state[0], jnp.linalg.cholesky(K + 10 * state[0] * scale * eye))
    return jax.lax.while_loop(fails, more, (FIRST_JITTER / 10, jnp.full_like(K, jnp.nan)))[1]


def solve(
    K: Float[Array, "N N"], w: Float[Array, " N"], H: Float[Array, "N C"], L0: Float[Array, "N N"] | None = None
) -> Solved:
    """Everything at once, not for differentiation; with the root L₀ of K any sign of w will do."""
    if L0 is not None:
        return _by_root(L0, w, H)[0]
    return _by_lapack(K, w, H, False)[0] if _goes_to_host(K) else _by_factor(K, w, H)[0]


def _goes_to_host(K: Array) -> bool:
    return len(K) >= SMALL and where.backend() == "cpu"


def _by_lapack(K: Array, w: Array, H: Array, with_inverse: bool) -> tuple[Solved, Array]:
    """The same by LAPACK, and M if it is asked for.

    JAX hands numbers over in the precision of the thread that runs the callback, which is single: as bits they stay the same.
    """
    N, C = H.shape
    shapes = Solved((N, C), (N,), (), (C, C), (N, C)), (N, N) if with_inverse else (0, 0)
    is_shape = lambda node: type(node) is tuple and all(isinstance(size, int) for size in node)
    out = jax.tree.map(lambda shape: jax.ShapeDtypeStruct((*shape, 2), jnp.uint32), shapes, is_leaf=is_shape)

    def called_back(*bits: Array) -> tuple[Solved, np.ndarray]:
        K, w, H = (np.ascontiguousarray(part).view(np.float64)[..., 0] for part in bits)
        with lapack_threads(1):  # several fight with XLA's, whose thread this is: fifty times as long
            found = _on_host(K, w, H, with_inverse)
        return jax.tree.map(lambda part: np.asarray(part, order="C")[..., None].view(np.uint32), found)

    bits = (jax.lax.bitcast_convert_type(part, jnp.uint32) for part in (K, w, H))
    found = jax.pure_callback(called_back, out, *bits, vmap_method="sequential")
    return jax.tree.map(lambda part: jax.lax.bitcast_convert_type(part, H.dtype), found)


def _on_host(K: np.ndarray, w: np.ndarray, H: np.ndarray, with_inverse: bool) -> tuple[Any, np.ndarray]:
    from scipy.linalg import lapack

    with np.errstate(invalid="ignore"):  # a step too far has negative factors, which leave no density here
        S, scale = np.sqrt(w)[:, None], K.diagonal().mean()
    B = S * K * S.T
    B[np.diag_indices(len(w))] += 1.0
    factor, _ = factor_on_host(B, w, scale) if np.isfinite(B).all() else (None, 0.0)
    if factor is None:
        nan = lambda *sizes: np.full(sizes, np.nan)
        empty = nan(*K.shape) if with_inverse else nan(0, 0)
        return Solved(nan(*H.shape), nan(len(w)), nan(), nan(H.shape[1], H.shape[1]), nan(*H.shape)), empty
    strong = w[:, None] > WEAK / scale
    shift = np.where(strong, 0.0, H)
    seen = np.where(strong, H / np.where(strong, S, 1.0), 0.0)
    alpha = shift + S * lapack.dpotrs(factor, seen - S * (K @ shift), lower=1)[0]
    mean, log_det = K @ alpha, 2 * np.log(factor.diagonal()).sum()
    gram = H.T @ mean
    if with_inverse:
        half = lapack.dpotri(factor, lower=1, overwrite_c=1)[0]
        M = np.tril(half) + np.tril(half, -1).T
        kept, M = M.diagonal().copy(), S * M * S.T
    else:
        inverse = np.tril(lapack.dtrtri(factor, lower=1, overwrite_c=1)[0])
        kept, M = np.einsum("ij,ij->j", inverse, inverse), np.zeros((0, 0))
    lost = np.flatnonzero(1 - kept < LOST)
    variance = (1 - kept) / np.where(w > 0, w, 1.0)
    rows = K[:, lost]
    explained = rows * (M @ rows) if with_inverse else (inverse @ (S * rows)) ** 2
    variance[lost] = K.diagonal()[lost] - explained.sum(axis=0)
    return Solved(mean, variance, np.asarray(log_det), 0.5 * (gram + gram.T), alpha), M


def _by_factor(K: Array, w: Array, H: Array) -> tuple[Solved, Array]:
    S = jnp.sqrt(w)[:, None]
    L = factorise(K, w).L
    # α = S B⁻¹ S⁻¹h has no cancellation where a factor is strong; a weak one is a shift, α = h − S B⁻¹ S K h.
    strong = w[:, None] > WEAK / jnp.mean(jnp.diagonal(K))
    shift = jnp.where(strong, 0.0, H)
    seen = jnp.where(strong, H / jnp.where(strong, S, 1.0), 0.0)
    alpha = shift + S * cho_solve((L, True), seen - S * (K @ shift))
    mean = K @ alpha
    V = solve_triangular(L, S * K, lower=True)
    variance = jnp.diagonal(K) - jnp.sum(V * V, axis=0)
    gram = H.T @ mean
    return Solved(mean, variance, 2 * jnp.sum(jnp.log(jnp.diagonal(L))), 0.5 * (gram + gram.T), alpha), L


def signed_factor(L0: Float[Array, "N N"], w: Float[Array, " N"]) -> Float[Array, "N N"]:
    """R with R Rᵀ = I + L₀ᵀW L₀; NaN where these factors leave no density."""
    return jnp.linalg.cholesky(jnp.eye(len(w)) + L0.T @ (w[:, None] * L0))


def _by_root(L0: Array, w: Array, H: Array) -> tuple[Solved, Array]:
    R = signed_factor(L0, w)
    V = solve_triangular(R, L0.T, lower=True)
    VH = V @ H
    mean = V.T @ VH
    alpha = H - w[:, None] * mean
    return Solved(mean, jnp.sum(V * V, axis=0), 2 * jnp.sum(jnp.log(jnp.diagonal(R))), VH.T @ VH, alpha), V


@functools.partial(jax.custom_vjp, nondiff_argnums=(3,))
def log_det_and_gram(
    K: Float[Array, "N N"], w: Float[Array, " N"], H: Float[Array, "N C"], signed: bool = False
) -> tuple[Float[Array, ""], Float[Array, "C C"]]:
    """log|I + KW| and HᵀΣH, differentiable in all three."""
    return _forward(K, w, H, signed)[0]


def _forward(K: Array, w: Array, H: Array, signed: bool) -> tuple[tuple[Array, Array], tuple]:
    if signed:
        solved, factor = _by_root(root(K), w, H)
    else:
        solved, factor = _by_lapack(K, w, H, True) if _goes_to_host(K) else _by_factor(K, w, H)
    return (solved.log_det, solved.gram), (w, solved, factor)


def _backward(signed: bool, saved: tuple, cotangents: tuple[Array, Array]) -> tuple[Array, Array, Array]:
    (w, solved, factor), (to_log_det, to_gram) = saved, cotangents
    if signed:
        M = jnp.diag(w) - w[:, None] * (factor.T @ factor) * w[None, :]
    elif _goes_to_host(factor):
        M = factor
    else:
        half = solve_triangular(factor, jnp.diag(jnp.sqrt(w)), lower=True)
        M = half.T @ half
    both = to_gram + to_gram.T
    to_K = to_log_det * M + 0.5 * (solved.alpha @ both) @ solved.alpha.T
    to_w = to_log_det * solved.variance - 0.5 * jnp.sum((solved.mean @ both) * solved.mean, axis=1)
    return to_K, to_w, solved.mean @ both


log_det_and_gram.defvjp(_forward, _backward)
