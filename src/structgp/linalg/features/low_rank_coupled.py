"""Several Gaussian vectors known through few others each, and coupled place by place by factors exp(hᵀf − ½ fᵀΠf).

As in `low_rank`, f_c = V_cᵀu_c + what the M values u_c leave out, of variance d_c; a share of it, Δ = diag(share · d) at each
place, is noise. With T = R⁻¹Δ^½ for I + Δ^½ΠΔ^½ = R Rᵀ, place by place,

    E = Π − (TΠ)ᵀTΠ,   g = h − (TΠ)ᵀTh,   Q = I − TᵀTΠ,
    A = I + Σ V E Vᵀ,  b = Σ V g,         m = A⁻¹b,   f = Vᵀm,   S = VᵀA⁻¹V,
    log|I + KΠ| = log|A| + Σ log|R Rᵀ|,   hᵀΣh = bᵀm + Σ |Th|²,   mean Qf + TᵀTh,   covariance Q S Qᵀ + TᵀT,

where V at a place is block diagonal, (CM, C). Without a share Σ tr(ΠD) is charged for instead, and the covariance is S + D.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.linalg import cho_solve, solve_triangular
from jaxtyping import Array, Float

from ..blocks import diagonals
from ..dense.coupled import CoupledMarginals
from .low_rank import Rule
from .totals import in_blocks, visited

White = Callable[[Any], tuple[Float[Array, "C M n"], Float[Array, "C n"]]]  # V and the variances of a block of places


class AtPlaces(NamedTuple):
    """What is known of each place before anything is summed."""

    d: Float[Array, "n C"]
    T: Float[Array, "n C C"]
    E: Float[Array, "n C C"]
    g: Float[Array, "n C k"]
    Th: Float[Array, "n C k"]
    log_det: Float[Array, " n"]


def of_places(V: Array, k: Array, P: Array, h: Array, rule: Rule) -> AtPlaces:
    """The places with V (C, M, n), variances k (C, n), precisions Π (n, C, C) and shifts h."""
    d = jnp.maximum(k - jnp.sum(V * V, axis=1), 0.0).T
    some = rule.share * d > 0
    root = jnp.where(some, jnp.sqrt(jnp.where(some, rule.share * d, 1.0)), 0.0)  # whose derivative is none at zero
    R = jnp.linalg.cholesky(jnp.eye(len(V)) + root[:, :, None] * P * root[:, None, :])
    T = solve_triangular(R, diagonals(root), lower=True)
    TP, Th = T @ P, T @ h
    log_det = 2 * jnp.sum(jnp.log(jnp.diagonal(R, axis1=1, axis2=2)), axis=1)
    return AtPlaces(d, T, P - TP.mT @ TP, h - TP.mT @ Th, Th, log_det)


class Given(NamedTuple):
    """The whitened values u of all vectors given the factors: the factor of A, their mean m, log|I + KΠ| and hᵀΣh."""

    factor: Float[Array, "CM CM"]
    mean: Float[Array, "C M k"]
    log_det: Float[Array, ""]
    gram: Float[Array, "k k"]

    def roots(self, V: Float[Array, "C M n"]) -> Float[Array, "C CM n"]:
        """What is left open of each vector at places: products of these are its covariances."""
        C, M, _ = V.shape
        inverse = solve_triangular(self.factor, jnp.eye(C * M), lower=True).reshape(C * M, C, M)
        return jnp.einsum("icm,cmn->cin", inverse, V)


def given(white: White, blocks: Any, shape: tuple[int, int], P: Float[Array, "N C C"], h: Array, rule: Rule) -> Given:
    """The values u given factors at places in blocks; NaN where there is no density."""
    C, M, size = *shape, jax.tree.leaves(blocks)[0].shape[1]

    @jax.checkpoint
    def of_block(block: Any, P: Array, h: Array) -> tuple[Array, ...]:
        V, k = white(block)
        of = of_places(V, k, P, h, rule)
        row = lambda given: jnp.einsum("mn,dln->mdl", given[0], V * given[1].T[:, None])
        gram = jax.lax.map(row, (V, jnp.moveaxis(of.E, 1, 0))).reshape(C * M, C * M)
        charge = jnp.sum(of.log_det) if rule.share else jnp.einsum("ncc,nc->", P, of.d)
        own = jnp.einsum("nci,ncj->ij", of.Th, of.Th)
        return gram, jnp.einsum("cmn,nck->cmk", V, of.g), own, charge if rule.charged else 0.0 * charge

    def add(total: Any, block: Any) -> tuple[Any, None]:
        return jax.tree.map(jnp.add, total, of_block(*block)), None

    k = h.shape[-1]
    start = jnp.zeros((C * M, C * M)), jnp.zeros((C, M, k)), jnp.zeros((k, k)), jnp.zeros(())
    (gram, cross, own, charge), _ = jax.lax.scan(add, start, (blocks, in_blocks(P, size), in_blocks(h, size)))
    R = jnp.linalg.cholesky(jnp.eye(C * M) + 0.5 * (gram + gram.T))
    b = cross.reshape(C * M, k)
    m = cho_solve((R, True), b)
    forms = b.T @ m + own
    return Given(R, m.reshape(C, M, k), 2 * jnp.sum(jnp.log(jnp.diagonal(R))) + charge, 0.5 * (forms + forms.T))


def marginals(white: White, blocks: Any, found: Given, P: Float[Array, "N C C"], h: Array, rule: Rule) -> CoupledMarginals:
    """What the factors leave at their own places."""
    size = jax.tree.leaves(blocks)[0].shape[1]

    def one(given: Any) -> tuple[Array, Array]:
        block, P, h = given
        V, k = white(block)
        of = of_places(V, k, P, h, rule)
        U, Q = found.roots(V), jnp.eye(len(V)) - of.T.mT @ of.T @ P
        mean = Q @ jnp.einsum("cmn,cmk->nck", V, found.mean) + of.T.mT @ of.Th
        rest = of.T.mT @ of.T / rule.share if rule.share else diagonals(of.d)
        return mean, Q @ jnp.einsum("cin,din->ncd", U, U) @ Q.mT + (rest if rule.charged else 0.0)

    mean, covariance = visited(one, (blocks, in_blocks(P, size), in_blocks(h, size)), len(P))
    return CoupledMarginals(mean, covariance, found.log_det, found.gram)
