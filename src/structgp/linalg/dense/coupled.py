"""Several Gaussian vectors f_c ~ N(0, K_c), coupled place by place: what is left of them, and the normaliser, in O(C N³).

At each place a factor exp(hᵀf − ½ fᵀΠf) joins the C values, with Π = diag(a) − aaᵀ/ω and ω = Σ_c a_c: the curvature of a
softmax that counts ω times; a = 0 where nothing was seen. With D_c = diag(a_c), S_c = √D_c, B_c = I + S_c K_c S_c and
E_c = (I + D_c K_c)⁻¹D_c = S_c B_c⁻¹ S_c,

    log|I + KΠ| = Σ_c log|B_c| + log|M|,   M = Ω^{−½} (Σ_c E_c) Ω^{−½},
    α_c = h_c − E_c K_c h_c + E_c x,   x = (Σ_c E_c)⁻¹ Σ_c E_c K_c h_c,   mean_c = K_c α_c,
    Σ_{cc'} = δ_{cc'} (K_c − K_c E_c K_c) + (G_c K_c)ᵀ G_c' K_c',   G_c = R⁻¹ Ω^{−½} E_c,   R Rᵀ = M,

and, for the gradient, d log|I + KΠ| = Σ_c tr((E_c − G_cᵀG_c) dK_c) and d hᵀΣh = Σ_c α_cᵀ dK_c α_c + 2 meanᵀdh. See
Rasmussen and Williams (2006), section 3.5.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.linalg import cho_solve, solve_triangular
from jaxtyping import Array, Float


class CoupledFactor(NamedTuple):
    """L_c⁻¹S_c with L_cL_cᵀ = B_c, the factor R of M, Ω^{−½} (0 where nothing was seen) and log|I + KΠ|."""

    half: Float[Array, "C N N"]
    R: Float[Array, "N N"]
    scale: Float[Array, " N"]
    log_det: Float[Array, ""]


def couple(K: Float[Array, "C N N"], a: Float[Array, "N C"]) -> CoupledFactor:
    """Factorise all that the vectors and their factors make."""
    S, omega = jnp.sqrt(a.T), jnp.sum(a, axis=1)
    scale = jnp.where(omega > 0, 1 / jnp.sqrt(jnp.where(omega > 0, omega, 1.0)), 0.0)
    L = jnp.linalg.cholesky(jnp.eye(len(a)) + S[:, :, None] * K * S[:, None, :])
    half = solve_triangular(L, jax.vmap(jnp.diag)(S), lower=True)
    flat = (half * scale).reshape(-1, len(a))
    R = jnp.linalg.cholesky(flat.T @ flat + jnp.diag(jnp.where(omega > 0, 0.0, 1.0)))
    logs = lambda L: 2 * jnp.sum(jnp.log(jnp.diagonal(L, axis1=-2, axis2=-1)))
    return CoupledFactor(half, R, scale, logs(L) + logs(R))


def apply_E(factor: CoupledFactor, V: Float[Array, "C N k"]) -> Float[Array, "C N k"]:
    """E_c V_c."""
    return jnp.swapaxes(factor.half, 1, 2) @ (factor.half @ V)


def shared(factor: CoupledFactor, EV: Float[Array, "C N k"]) -> Float[Array, "C N k"]:
    """G_c V_c from E_c V_c."""
    columns = jnp.moveaxis(factor.scale[None, :, None] * EV, 0, 1)
    solved = solve_triangular(factor.R, columns.reshape(columns.shape[0], -1), lower=True)
    return jnp.moveaxis(solved.reshape(columns.shape), 1, 0)


def pull(factor: CoupledFactor, K: Float[Array, "C N N"], h: Float[Array, "N C k"]) -> Float[Array, "N C k"]:
    """α, with which K_c α_c is the mean."""
    h = jnp.moveaxis(h, 1, 0)
    EKh = apply_E(factor, K @ h)
    scale = factor.scale[:, None]
    x = scale * cho_solve((factor.R, True), scale * jnp.sum(EKh, axis=0))
    return jnp.moveaxis(h - EKh + apply_E(factor, jnp.broadcast_to(x, h.shape)), 0, 1)


class CoupledMarginals(NamedTuple):
    """Σh, the covariance of the values at each place, log|I + KΠ| and hᵀΣh."""

    mean: Float[Array, "N C k"]
    covariance: Float[Array, "N C C"]
    log_det: Float[Array, ""]
    gram: Float[Array, "k k"]


def marginals(K: Float[Array, "C N N"], a: Float[Array, "N C"], h: Float[Array, "N C k"]) -> CoupledMarginals:
    """Everything at once, not for differentiation."""
    factor = couple(K, a)
    mean = times(K, pull(factor, K, h))
    V = factor.half @ K
    own = jnp.diagonal(K, axis1=1, axis2=2) - jnp.sum(V * V, axis=1)
    G = shared(factor, jnp.swapaxes(factor.half, 1, 2) @ V)
    covariance = jnp.einsum("cin,din->ncd", G, G) + jax.vmap(jnp.diag, 1)(own)
    return CoupledMarginals(mean, covariance, factor.log_det, gram_of(h, mean))


def times(K: Float[Array, "C M N"], V: Float[Array, "N C k"]) -> Float[Array, "M C k"]:
    """K_c V_c."""
    return jnp.moveaxis(K @ jnp.moveaxis(V, 1, 0), 0, 1)


def gram_of(h: Float[Array, "N C k"], mean: Float[Array, "N C k"]) -> Float[Array, "k k"]:
    """hᵀ mean, symmetric."""
    gram = jnp.einsum("nci,ncj->ij", h, mean)
    return 0.5 * (gram + gram.T)


def precisions(a: Float[Array, "N C"]) -> Float[Array, "N C C"]:
    """Π at every place."""
    omega = jnp.sum(a, axis=1)[:, None]
    p = a / jnp.where(omega > 0, omega, 1.0)
    return jax.vmap(jnp.diag)(a) - a[:, :, None] * p[:, None, :]


@jax.custom_vjp
def log_det_and_gram(
    K: Float[Array, "C N N"], a: Float[Array, "N C"], h: Float[Array, "N C k"]
) -> tuple[Float[Array, ""], Float[Array, "k k"]]:
    """log|I + KΠ| and hᵀΣh, differentiable in K and h; a is held."""
    return _forward(K, a, h)[0]


def _forward(K: Array, a: Array, h: Array) -> tuple[tuple[Array, Array], tuple]:
    factor = couple(K, a)
    alpha = pull(factor, K, h)
    mean = times(K, alpha)
    return (factor.log_det, gram_of(h, mean)), (a, factor, alpha, mean)


def _backward(saved: tuple, cotangents: tuple[Array, Array]) -> tuple[Array, Array, Array]:
    (a, factor, alpha, mean), (to_log_det, to_gram) = saved, cotangents
    E = jnp.swapaxes(factor.half, 1, 2) @ factor.half
    G = shared(factor, E)
    both = to_gram + to_gram.T
    to_K = to_log_det * (E - jnp.swapaxes(G, 1, 2) @ G) + 0.5 * jnp.einsum("nci,ij,mcj->cnm", alpha, both, alpha)
    return to_K, jnp.zeros_like(a), mean @ both


log_det_and_gram.defvjp(_forward, _backward)
