"""Columns with one covariance and rows of their own, through a few functions: a lower bound of what is told, and what is left.

Column d is y_d = f_d + noise of variance σ_d², seen in the rows where seen_nd = 1; all f_d have the covariance that is known
through u = Lv, K_uu = LLᵀ. Where the places of the rows are only believed, expectations ⟨·⟩ stand for their values. With

    G_p = L⁻¹⟨K_uf S_p K_fu⟩L⁻ᵀ,   c_d = L⁻¹⟨K_uf⟩S_d y_d,   r_p = Σ_n s_np⟨k_n⟩ − tr G_p,   A_d = I + G_d/σ_d²

for each pattern p of rows, which columns may share, the bound is the sum over columns of

    −½[n_d log 2πσ_d² + log|A_d| + (y_dᵀy_d − c_dᵀA_d⁻¹c_d/σ_d² + r_d)/σ_d²],

and v is N(A_d⁻¹c_d/σ_d², A_d⁻¹) afterwards. Without believed places it is Titsias' bound, column by column.
"""

from __future__ import annotations

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float, Int

from ..dense.identity_plus import log_det_and_forms, solve_lower

JITTER = 1e-6  # of K_uu, in units of its mean variance: one size, so that the bound is smooth where inducing inputs meet


class TableCells(eqx.Module):
    """The cells of a table that were seen, zero elsewhere, and which rows each column was seen in."""

    y: Float[Any, "N D"]
    patterns: Float[Any, "N P"]
    of: Int[Any, " D"]  # the pattern of each column

    @classmethod
    def of_table(cls, Y: Float[np.ndarray, "N D"]) -> TableCells:
        """The cells of a table where NaN was not seen."""
        seen = np.isfinite(Y)
        patterns, of = np.unique(seen, axis=1, return_inverse=True)
        return cls(np.where(seen, Y, 0.0), patterns.astype(float), np.ravel(of))

    @property
    def counts(self) -> Float[Array, " D"]:
        """In how many rows each column was seen."""
        return jnp.sum(self.patterns, axis=0)[self.of]


class CellSums(eqx.Module):
    """The sums over rows: G and r of each pattern, c of each column."""

    grams: Float[Array, "P M M"]
    left: Float[Array, " P"]
    cross: Float[Array, "M D"]


@jax.custom_vjp
def grams(V: Float[Array, "M N"], patterns: Float[Array, "N P"]) -> Float[Array, "P M M"]:
    """V S_p Vᵀ for each pattern of rows; nothing larger than V is held, one pattern after the other."""
    return jax.lax.map(lambda seen: (V * seen) @ V.T, patterns.T)


def _grams_backward(saved: tuple[Array, Array], to: Array) -> tuple[Array, Array]:
    V, patterns = saved

    def add(total: Array, one: tuple[Array, Array]) -> tuple[Array, None]:
        to, seen = one
        return total + ((to + to.T) @ V) * seen, None

    return jax.lax.scan(add, jnp.zeros_like(V), (to, patterns.T))[0], jnp.zeros_like(patterns)


grams.defvjp(lambda V, patterns: (grams(V, patterns), (V, patterns)), _grams_backward)


def root_of(K: Float[Array, "M M"]) -> Float[Array, "M M"]:
    """L of K_uu, which has jitter."""
    return jnp.linalg.cholesky(K + JITTER * jnp.mean(jnp.diagonal(K)) * jnp.eye(len(K)))


def at_places(L: Float[Array, "M M"], K: Float[Array, "M N"], k: Float[Array, " N"], cells: TableCells) -> CellSums:
    """The sums for rows at known places with covariances K and variances k."""
    V = solve_lower(L, K, len(L))
    rest = jnp.maximum(k - jnp.sum(V * V, axis=0), 0.0)
    return CellSums(grams(V, cells.patterns), rest @ cells.patterns, V @ cells.y)


def at_believed(
    L: Float[Array, "M M"], K: Float[Array, "M N"], KK: Float[Array, "P M M"], k: Float[Array, " N"], cells: TableCells
) -> CellSums:
    """The sums for rows whose places are believed: ⟨K_uf⟩, ⟨K_uf S_p K_fu⟩ and variances."""
    half = jax.vmap(lambda matrix: solve_triangular(L, matrix, lower=True))
    G = half(half(KK).swapaxes(1, 2))
    G = 0.5 * (G + G.swapaxes(1, 2))
    left = k @ cells.patterns - jnp.trace(G, axis1=1, axis2=2)
    return CellSums(G, left, solve_triangular(L, K @ cells.y, lower=True))


def bound(sums: CellSums, cells: TableCells, noise: Float[Array, " *D"]) -> Float[Array, ""]:
    """The lower bound of log p of the cells, for one noise variance or one for each column."""
    of, counts = cells.of, cells.counts
    squares = jnp.sum(cells.y**2, axis=0)
    if sums.grams.shape[0] == 1 and jnp.ndim(noise) == 0:  # one matrix for all columns
        log_det, forms = log_det_and_forms(sums.grams[0] / noise, sums.cross)
        log_dets, explained = jnp.full(len(of), log_det), jnp.diagonal(forms)
    else:
        noise = jnp.broadcast_to(noise, (len(of),))
        own = lambda d: log_det_and_forms(sums.grams[of[d]] / noise[d], sums.cross[:, d][:, None])
        log_dets, forms = jax.vmap(own)(jnp.arange(len(of)))
        explained = forms[:, 0, 0]
    misfit = (squares - explained / noise + sums.left[of]) / noise
    return -0.5 * jnp.sum(counts * jnp.log(2 * math.pi * noise) + log_dets + misfit)


class KnownColumns(eqx.Module):
    """What the cells say of v: for each column its mean, and the root R of A (A = RRᵀ) of each kind of column."""

    L: Float[Array, "M M"]
    mean: Float[Array, "M D"]
    roots: Float[Array, "F M M"]
    of: Int[Any, " D"]  # which root is that of each column

    def at(self, K: Float[Array, "M n"], k: Float[Array, " n"]) -> tuple[Float[Array, "n D"], Float[Array, "n D"]]:
        """Means and variances of all columns at places with these covariances and variances."""
        V = solve_lower(self.L, K, len(self.L))
        rest = jnp.maximum(k - jnp.sum(V * V, axis=0), 0.0)
        U = jax.vmap(lambda R: jnp.sum(solve_lower(R, V, len(R)) ** 2, axis=0))(self.roots)
        return V.T @ self.mean, (rest + U).T[:, self.of]


def known(L: Float[Array, "M M"], sums: CellSums, cells: TableCells, noise: Float[Array, " *D"]) -> KnownColumns:
    """v given the cells."""
    of, M = jnp.asarray(cells.of), len(L)
    shared = jnp.ndim(noise) == 0
    scaled = sums.grams / noise if shared else sums.grams[of] / noise[:, None, None]
    roots, which = jnp.linalg.cholesky(jnp.eye(M) + scaled), of if shared else jnp.arange(len(of))
    solve = lambda R, c: jax.scipy.linalg.cho_solve((R, True), c)
    mean = jax.vmap(solve, (0, 1), 1)(roots[which], sums.cross / noise)
    return KnownColumns(L, mean, roots, which)
