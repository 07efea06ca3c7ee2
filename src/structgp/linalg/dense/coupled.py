"""Several Gaussian vectors f_c ~ N(0, K_c), coupled place by place by factors exp(hᵀf − ½ fᵀΠf): what is left of them.

With K block diagonal, Σ = (K⁻¹ + Π)⁻¹ and several columns h of shifts, as in `factors`,

    log_det = log|I + KΠ|,   gram = hᵀΣh,   α = (I + ΠK)⁻¹h,   mean_c = K_c α_c,
    d log_det = Σ_c tr(M_cc dK_c) + Σ_n tr(Σ_n dΠ_n),   M = Π − ΠΣΠ,

and what is left at new places with cross-covariances k_c is, with A and B of one of two factors,

    Σ_cd = δ_cd (k_c(x, x) − A_cᵀA_c) + B_cᵀB_d.

`Rooted` is for any Π: K_c = L_cL_cᵀ, I + LᵀΠL = R Rᵀ of size CN, A_c = L_c⁻¹k_c and B_c = R⁻¹A_c. Where R does not exist, Σ is
no covariance, and NaN comes back.

`Contrasted` is for Π = diag(a) − aaᵀ/ω, ω = Σ_c a_c, in O(C N³) (Rasmussen and Williams, 2006, section 3.5): with S_c = √a_c,
I + S_c K_c S_c = L_cL_cᵀ, E_c = S_c (L_cL_cᵀ)⁻¹ S_c and R Rᵀ = Ω^{−½} (Σ_c E_c) Ω^{−½},

    log_det = 2 Σ_c log|L_c| + 2 log|R|,   A_c = L_c⁻¹S_c k_c,   B_c = R⁻¹ Ω^{−½} E_c k_c,
    α_c = h_c − E_c K_c h_c + E_c x,   x = (Σ_c E_c)⁻¹ Σ_c E_c K_c h_c,   M_cc = E_c − E_c Ω^{−½} (R Rᵀ)⁻¹ Ω^{−½} E_c.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.linalg import block_diag, cho_solve, solve_triangular
from jaxtyping import Array, Float

from ..blocks import Blocks, Contrasts, full, times
from .factors import root


class Contrasted(NamedTuple):
    """L_c⁻¹S_c, R and Ω^{−½}, which is 0 where nothing was seen."""

    half: Float[Array, "C N N"]
    R: Float[Array, "N N"]
    scale: Float[Array, " N"]
    log_det: Float[Array, ""]

    @classmethod
    def of(cls, K: Float[Array, "C N N"], P: Contrasts) -> Contrasted:
        """Factorise all that the vectors and their factors make."""
        S, omega = jnp.sqrt(P.a.T), jnp.sum(P.a, axis=1)
        scale = jnp.where(omega > 0, 1 / jnp.sqrt(jnp.where(omega > 0, omega, 1.0)), 0.0)
        L = jnp.linalg.cholesky(jnp.eye(K.shape[1]) + S[:, :, None] * K * S[:, None, :])
        half = solve_triangular(L, jax.vmap(jnp.diag)(S), lower=True)
        flat = (half * scale).reshape(-1, K.shape[1])
        R = jnp.linalg.cholesky(flat.T @ flat + jnp.diag(jnp.where(omega > 0, 0.0, 1.0)))
        return cls(half, R, scale, _log_det(L) + _log_det(R))

    def pull(self, K: Float[Array, "C N N"], h: Float[Array, "N C k"]) -> Float[Array, "N C k"]:
        """α."""
        h = jnp.moveaxis(h, 1, 0)
        EKh = self._E(K @ h)
        scale = self.scale[:, None]
        x = scale * cho_solve((self.R, True), scale * jnp.sum(EKh, axis=0))
        return jnp.moveaxis(h - EKh + self._E(jnp.broadcast_to(x, h.shape)), 0, 1)

    def look(self, k: Float[Array, "C N M"]) -> tuple[Float[Array, "C N M"], Float[Array, "C N M"]]:
        """A and B."""
        A = self.half @ k
        return A, self._shared(jnp.swapaxes(self.half, 1, 2) @ A)

    def covariances(self, K: Float[Array, "C N N"]) -> Float[Array, "N C C"]:
        """Σ at every place."""
        A, B = self.look(K)
        left = jnp.diagonal(K, axis1=1, axis2=2) - jnp.sum(A * A, axis=1)
        return jnp.einsum("cin,din->ncd", B, B) + jax.vmap(jnp.diag, 1)(left)

    def curvatures(self) -> Float[Array, "C N N"]:
        """M_cc."""
        E = jnp.swapaxes(self.half, 1, 2) @ self.half
        G = self._shared(E)
        return E - jnp.swapaxes(G, 1, 2) @ G

    def _E(self, V: Float[Array, "C N k"]) -> Float[Array, "C N k"]:
        return jnp.swapaxes(self.half, 1, 2) @ (self.half @ V)

    def _shared(self, EV: Float[Array, "C N k"]) -> Float[Array, "C N k"]:
        columns = jnp.moveaxis(self.scale[None, :, None] * EV, 0, 1)
        solved = solve_triangular(self.R, columns.reshape(columns.shape[0], -1), lower=True)
        return jnp.moveaxis(solved.reshape(columns.shape), 1, 0)


class Rooted(NamedTuple):
    """L_c, R and Π."""

    roots: Float[Array, "C N N"]
    R: Float[Array, "CN CN"]
    P: Float[Array, "N C C"]
    log_det: Float[Array, ""]

    @classmethod
    def of(cls, roots: Float[Array, "C N N"], P: Float[Array, "N C C"]) -> Rooted:
        """Factorise all that the vectors, by their roots, and their factors make."""
        C, N, _ = roots.shape
        T = jnp.einsum("cni,cndj->cidj", roots, jnp.einsum("ncd,dnj->cndj", P, roots))
        R = jnp.linalg.cholesky(jnp.eye(C * N) + T.reshape(C * N, C * N))
        return cls(roots, R, P, _log_det(R))

    def pull(self, K: Float[Array, "C N N"], h: Float[Array, "N C k"]) -> Float[Array, "N C k"]:
        """α."""
        V = self._open()
        mean = jnp.einsum("icn,ik->nck", V, jnp.einsum("icn,nck->ik", V, h))
        return h - times(self.P, mean)

    def look(self, k: Float[Array, "C N M"]) -> tuple[Float[Array, "C N M"], Float[Array, "C CN M"]]:
        """A and B."""
        A = solve_triangular(self.roots, k, lower=True)
        B = solve_triangular(self.R, block_diag(*A), lower=True)
        return A, jnp.moveaxis(B.reshape(len(B), len(A), -1), 1, 0)

    def covariances(self, K: Float[Array, "C N N"]) -> Float[Array, "N C C"]:
        """Σ at every place."""
        V = self._open()
        return jnp.einsum("icn,idn->ncd", V, V)

    def curvatures(self) -> Float[Array, "C N N"]:
        """M_cc."""
        Z = jnp.einsum("idn,ndc->cin", self._open(), self.P)
        return jax.vmap(jnp.diag, 1)(jnp.diagonal(self.P, axis1=1, axis2=2)) - jnp.swapaxes(Z, 1, 2) @ Z

    def _open(self) -> Float[Array, "CN C N"]:
        """V with VᵀV = Σ."""
        V = solve_triangular(self.R, block_diag(*jnp.swapaxes(self.roots, 1, 2)), lower=True)
        return V.reshape(len(V), len(self.roots), -1)


def couple(K: Float[Array, "C N N"], P: Blocks, roots: Float[Array, "C N N"] | None = None) -> Contrasted | Rooted:
    """The factor that suits the form of Π; the roots of all K_c may be at hand."""
    if isinstance(P, Contrasts):
        return Contrasted.of(K, P)
    return Rooted.of(jnp.stack([root(matrix) for matrix in K]) if roots is None else roots, full(P))


class CoupledMarginals(NamedTuple):
    """Σh, the covariance of the values at each place, log|I + KΠ| and hᵀΣh."""

    mean: Float[Array, "N C k"]
    covariance: Float[Array, "N C C"]
    log_det: Float[Array, ""]
    gram: Float[Array, "k k"]


def marginals(
    K: Float[Array, "C N N"], P: Blocks, h: Float[Array, "N C k"], roots: Float[Array, "C N N"] | None = None
) -> CoupledMarginals:
    """Everything at once, not for differentiation."""
    factor = couple(K, P, roots)
    mean = each_times(K, factor.pull(K, h))
    return CoupledMarginals(mean, factor.covariances(K), factor.log_det, gram_of(h, mean))


def each_times(K: Float[Array, "C M N"], V: Float[Array, "N C k"]) -> Float[Array, "M C k"]:
    """K_c V_c."""
    return jnp.moveaxis(K @ jnp.moveaxis(V, 1, 0), 0, 1)


def gram_of(h: Float[Array, "N C k"], mean: Float[Array, "N C k"]) -> Float[Array, "k k"]:
    """hᵀ mean, symmetric."""
    gram = jnp.einsum("nci,ncj->ij", h, mean)
    return 0.5 * (gram + gram.T)


def _log_det(L: Float[Array, "... N N"]) -> Float[Array, ""]:
    return 2 * jnp.sum(jnp.log(jnp.diagonal(L, axis1=-2, axis2=-1)))


@jax.custom_vjp
def log_det_and_gram(
    K: Float[Array, "C N N"], P: Blocks, h: Float[Array, "N C k"]
) -> tuple[Float[Array, ""], Float[Array, "k k"]]:
    """log|I + KΠ| and hᵀΣh, differentiable in all three."""
    return _forward(K, P, h)[0]


def _forward(K: Array, P: Blocks, h: Array) -> tuple[tuple[Array, Array], tuple]:
    factor = couple(K, P)
    alpha = factor.pull(K, h)
    mean = each_times(K, alpha)
    return (factor.log_det, gram_of(h, mean)), (K, P, factor, alpha, mean)


def _backward(saved: tuple, cotangents: tuple[Array, Array]) -> tuple[Array, Blocks, Array]:
    (K, P, factor, alpha, mean), (to_log_det, to_gram) = saved, cotangents
    both = to_gram + to_gram.T
    to_K = to_log_det * factor.curvatures() + 0.5 * jnp.einsum("nci,ij,mcj->cnm", alpha, both, alpha)
    to_full = to_log_det * factor.covariances(K) - 0.5 * jnp.einsum("nci,ij,ndj->ncd", mean, both, mean)
    return to_K, jax.vjp(full, P)[1](to_full)[0], mean @ both


log_det_and_gram.defvjp(_forward, _backward)
