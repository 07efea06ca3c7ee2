"""Inducing inputs with whole blocks of what they leave out: partially independent training conditionals (PITC).

Rows that are near each other form groups. With Δ = K − VᵀV within each, S = √W and G = I + SΔS = L Lᵀ, the rows U = L⁻¹SVᵀ and
the values L⁻¹ST are seen with unit noise, so that all else is as if nothing had been left out, and log|G| is added.

Of a new place that belongs to a group as well (PIC), the covariances with the rows of its group are right. With r what V and φ
leave out of them, s = L⁻¹Sr and z = φ − Uᵀs,

    mean = φᵀm + sᵀ(L⁻¹ST − Um),   variance = k − φᵀφ − sᵀs + zᵀA⁻¹z,

and new places of one group have covariances likewise, those of two only through φ and z.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float, Int

from ..linalg.dense.cholesky import log_sum
from ..linalg.dense.identity_plus import log_det_and_forms, solve_lower
from ..posterior import Conditional
from ..sites import Sites
from ..structure.dense import covariance, variances
from ..structure.low_rank import LowRank, Through, through
from .woodbury import Evidence, Weighed


class Groups(NamedTuple):
    """Rows in groups, filled up with rows of precision 0: their numbers, and what is seen there."""

    rows: Int[Array, "G n"]
    X: Float[Array, "G n D"]
    w: Float[Array, "G n"]
    T: Float[Array, "G n C"]


def grouped(X: Float[Array, "N D"], sites: Sites, size: int) -> Groups:
    """Groups of at most about so many neighbours, by cutting rows in two where they are widest, again and again."""
    N = len(X)
    levels = max(math.ceil(math.log2(N / size)), 0)
    more = -N % 2**levels
    filled = lambda values: jnp.pad(values, [(0, more)] + [(0, 0)] * (values.ndim - 1))
    places = jnp.concatenate([X, jnp.broadcast_to(X[-1], (more, X.shape[1]))])
    spread = jnp.std(X, axis=0)
    scaled = places / jnp.where(spread > 0, spread, 1.0)
    order = jnp.arange(N + more)
    for level in range(levels):
        part = order.reshape(2**level, -1)
        seen = scaled[part]
        widest = jnp.argmax(jnp.max(seen, axis=1) - jnp.min(seen, axis=1), axis=1)
        along = jnp.take_along_axis(seen, widest[:, None, None], axis=2)[..., 0]
        order = jnp.take_along_axis(part, jnp.argsort(along, axis=1), axis=1).reshape(-1)
    rows = order.reshape(2**levels, -1)
    return Groups(rows, places[rows], filled(sites.precision)[rows], filled(sites.targets)[rows])


def _seen(structure: LowRank, L: Array, X: Array, w: Array, T: Array) -> tuple[Array, Array, Array, Array]:
    """Of one group the rows and values as they are seen with unit noise, L⁻¹S, and log|G|."""
    of: Any = through(structure.kernel, X)
    V = solve_triangular(L, of.cross().T, lower=True)
    S = jnp.sqrt(w)[:, None]
    G = jnp.eye(len(w)) + S * (covariance(of.kernel, of.X, of.X) - V.T @ V) * S.T
    root = jnp.linalg.cholesky(0.5 * (G + G.T))
    white = solve_triangular(root, jnp.diag(S[:, 0]), lower=True)
    return white @ V.T, white @ T, white, 2 * jnp.sum(jnp.log(jnp.diagonal(root)))


def _summed(structure: LowRank, L: Array, groups: Groups) -> tuple[Array, Array, Array, Array]:
    """UᵀU, Uᵀt, tᵀt and Σ log|G| over all groups."""

    @jax.checkpoint
    def of_group(structure: LowRank, L: Array, X: Array, w: Array, T: Array) -> tuple[Array, Array, Array, Array]:
        U, t, _, log_det = _seen(structure, L, X, w, T)
        return U.T @ U, U.T @ t, t.T @ t, log_det

    def add(total: Any, group: tuple[Array, Array, Array]) -> tuple[Any, None]:
        return jax.tree.map(jnp.add, total, of_group(structure, L, *group)), None

    M, C = len(L), groups.T.shape[-1]
    start = jnp.zeros((M, M)), jnp.zeros((M, C)), jnp.zeros((C, C)), jnp.zeros(())
    return jax.lax.scan(add, start, (groups.X, groups.w, groups.T))[0]


def log_det_and_gram(structure: LowRank, sites: Sites) -> Evidence:
    """log|C| and TᵀC⁻¹T of values that were seen, differentiable."""
    L = jnp.linalg.cholesky(structure.among())
    gram, cross, own, logs = _summed(structure, L, grouped(structure.X, sites, structure.size))
    log_det, explained = log_det_and_forms(0.5 * (gram + gram.T), cross)
    return log_det + logs - log_sum(sites.precision), own - explained


def weighed(structure: LowRank, L: Array, sites: Sites) -> tuple[Weighed, Float[Array, "C C"]]:
    """The whitened values at the inducing inputs given what was seen, and the forms of that."""
    gram, cross, own, logs = _summed(structure, L, grouped(structure.X, sites, structure.size))
    R = jnp.linalg.cholesky(jnp.eye(len(L)) + 0.5 * (gram + gram.T))
    c = solve_triangular(R, cross, lower=True)
    return Weighed(R, c, 2 * jnp.sum(jnp.log(jnp.diagonal(R))) + logs), own - c.T @ c


def inverse_parts(structure: LowRank, L: Array, given: Weighed, sites: Sites) -> tuple[Float[Array, " N"], Float[Array, "N C"]]:
    """The diagonal of C⁻¹ and C⁻¹T at the rows of the data."""
    groups, mean = grouped(structure.X, sites, structure.size), given.mean()

    def of_group(group: tuple[Array, Array, Array]) -> tuple[Array, Array]:
        U, t, white, _ = _seen(structure, L, *group)
        told = solve_triangular(given.factor, U.T @ white, lower=True)
        return jnp.sum(white**2, axis=0) - jnp.sum(told**2, axis=0), white.T @ (t - U @ mean)

    diagonal, alpha = jax.lax.map(of_group, (groups.X, groups.w, groups.T))
    back = jnp.argsort(groups.rows.reshape(-1))[: len(structure.X)]
    return diagonal.reshape(-1)[back], alpha.reshape(-1, alpha.shape[-1])[back]


class PicConditional(Conditional):
    """Inducing inputs with groups of rows, to which new places belong as well: that of the nearest centre."""

    whole: Any  # the process through inducing inputs alone
    X: Float[Array, "G n D"]
    white: Float[Array, "G n n"]
    U: Float[Array, "G n M"]
    residual: Float[Array, "G n C"]
    centre: Float[Array, "G D"]
    scale: Float[Array, " D"]

    @classmethod
    def of(cls, whole: Any, structure: LowRank, L: Array, sites: Sites) -> PicConditional:
        """With all that is to be known of the groups at hand: N(2M) numbers."""
        groups, mean = grouped(structure.X, sites, structure.size), whole.weighed.mean()

        def of_group(group: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
            U, t, white, _ = _seen(structure, L, *group)
            return white, U, t - U @ mean

        white, U, residual = jax.lax.map(of_group, (groups.X, groups.w, groups.T))
        spread = jnp.std(structure.X, axis=0)
        return cls(whole, groups.X, white, U, residual, jnp.mean(groups.X, axis=1), jnp.where(spread > 0, spread, 1.0))

    def at(self, X: Float[Array, "M D"], part: int | None = None) -> tuple[Float[Array, "M C"], Float[Array, " M"]]:
        mean, phi, s, z, of = self._look(X, part)
        rest = jnp.maximum(variances(of.kernel, of.X) - jnp.sum(phi * phi, axis=0) - jnp.sum(s * s, axis=1), 0.0)
        return mean, rest + jnp.sum(self.whole.weighed.roots(z) ** 2, axis=0)

    def joint(self, X: Float[Array, "M D"]) -> tuple[Float[Array, "M C"], Float[Array, "M M"]]:
        mean, phi, s, z, of = self._look(X, None)
        group, V = self._group(X), self.whole.weighed.roots(z)
        rest = covariance(of.kernel, of.X, of.X) - phi.T @ phi - s @ s.T
        return mean, jnp.where(group[:, None] == group, rest, 0.0) + V.T @ V

    def inverse_parts(self) -> tuple[Float[Array, " N"], Float[Array, "N C"]]:
        return self.whole.inverse_parts()

    def log_det_and_gram(self) -> Evidence:
        return self.whole.log_det_and_gram()

    @property
    def accuracy(self) -> str | None:
        return self.whole.accuracy

    @property
    def bounds(self) -> Any:
        return self.whole.bounds

    @property
    def row_size(self) -> int:
        return 3 * self.U.shape[1] + 3 * self.U.shape[2]

    def _group(self, X: Float[Array, "M D"]) -> Int[Array, " M"]:
        away = (X[:, None] - self.centre) / self.scale
        return jnp.argmin(jnp.sum(away * away, axis=-1), axis=1)

    def _look(self, X: Float[Array, "M D"], part: int | None) -> tuple[Array, Array, Array, Array, Through]:
        """Means, φ, s and z of new places, and the kernel with these as it sees them."""
        root = self.whole.root
        of = self.whole.through(X, part)
        phi = solve_lower(root, of.cross().T, len(root))

        def one(given: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
            x, phi, group = given
            near, there = self.whole.through(self.X[group], part), self.whole.through(x[None], part)
            white, U = self.white[group], self.U[group]
            s = white @ covariance(near.kernel, near.X, there.X)[:, 0] - U @ phi
            return s, phi - U.T @ s, phi @ self.whole.weighed.mean() + s @ self.residual[group]

        s, z, mean = jax.lax.map(one, (X, phi.T, self._group(X)))
        return mean, phi, s, z.T, of
