"""A sum of lines seen through spline features, and what these leave out.

With φ the features of all lines and S their inner products (block-diagonal, one block for each line), the projected prior is
Q = ΦᵀS⁻¹Φ ≤ K, and R Rᵀ = S whitens the features. Adding tr W(K − Q) to the log determinant makes the evidence a lower bound.
Rounding can turn that trace negative, which would make a false bound, so that of each line is held at zero or above. Features
do not depend on rates and variances: once the sums over rows are there, nothing depends on the number of rows.
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float

from ..linalg.dense.identity_plus import solve_lower
from ..linalg.features import splines
from ..linalg.features.totals import Totals
from ..linalg.markov.matern_sde import transition
from ..structure.features import FeatureMap


class SplineMap(FeatureMap):
    """Spline features of lines at their places t; R for the rates and variances at hand."""

    basis: splines.Splines
    roots: Float[Array, "L m m"]  # the blocks of R
    rate: Float[Array, " L"]
    variance: Float[Array, " L"]
    states: int = eqx.field(static=True)

    @classmethod
    def on(cls, basis: splines.Splines, lines: Any) -> SplineMap:
        """The features of lines, or of anything with their rates and variances."""
        roots = jnp.linalg.cholesky(splines.inner_products(basis, lines.rate)) / jnp.sqrt(lines.variance)[:, None, None]
        return cls(basis, roots, lines.rate, lines.variance, lines.states)

    @property
    def size(self) -> int:
        return self.roots.shape[0] * self.roots.shape[1]

    def __call__(self, X: Float[Array, "N L"]) -> Float[Array, "F N"]:
        return self._flat(splines.features(self.basis, X, self.states))

    def beyond(self, X: Float[Array, "N L"]) -> Float[Array, "F N"]:
        """The covariances of f with the features, also beyond the ends of a line, where they follow the state at the end."""
        n, rate = self.states, self.rate
        ends = jnp.stack([self.basis.origin, self.basis.origin + self.basis.length])
        derivatives = [splines.features(self.basis, ends, n, k) / rate[:, None] ** k for k in range(n)]
        states = jnp.stack(derivatives, axis=-1)  # 2 L m n
        signs = (-1.0) ** np.arange(n)
        left = jnp.einsum("nml,lpn->mlp", signs[:, None, None] * _follow(rate * (ends[0] - X), n), states[0])
        right = jnp.einsum("nml,lpn->mlp", _follow(rate * (X - ends[1]), n), states[1])
        below, above = (ends[0] > X)[..., None], (ends[1] < X)[..., None]
        inside = splines.features(self.basis, X, n)
        return self._flat(jnp.where(below, left, jnp.where(above, right, inside)))

    def whiten(self, columns: Float[Array, "F C"]) -> Float[Array, "F C"]:
        return solve_lower(self.roots, self.by_line(columns), self.size).reshape(self.size, -1)

    def unwhiten(self, columns: Float[Array, "F C"]) -> Float[Array, "F C"]:
        return solve_triangular(self.roots, self.by_line(columns), lower=True, trans="T").reshape(self.size, -1)

    def rest(self, phi: Float[Array, "F N"]) -> Float[Array, " N"]:
        return jnp.sum(self.rest_of_lines(self.whiten(phi)), axis=0)

    def rest_of_lines(self, psi: Float[Array, "F N"]) -> Float[Array, "L N"]:
        """What the features leave out of the variance of each line."""
        return jnp.maximum(self.variance[:, None] - jnp.sum(self.by_line(psi) ** 2, axis=1), 0.0)

    def left_out(self, explained: Float[Array, " F"], sums: Totals) -> Float[Array, ""]:
        return jnp.sum(jnp.maximum(self.left_out_of_lines(explained, sums), 0.0))

    def left_out_of_lines(self, explained: Float[Array, " F"], sums: Totals) -> Float[Array, " L"]:
        """The traces, which rounding may turn negative."""
        return self.variance * sums.weights - jnp.sum(self.by_line(explained[:, None])[..., 0], axis=1)

    def by_line(self, rows: Float[Array, "F C"]) -> Float[Array, "L m C"]:
        """Rows for the features of each line."""
        return rows.reshape(*self.roots.shape[:2], -1)

    def _flat(self, features: Float[Array, "N L m"]) -> Float[Array, "F N"]:
        # Without the barrier they are gathered in the order in which they are used, number by number: several times slower.
        return jnp.moveaxis(jax.lax.optimization_barrier(features), 0, -1).reshape(self.size, -1)


def _follow(u: Float[Array, "M L"], n: int) -> Float[Array, "n M L"]:
    """The first row of the transition over a scaled distance."""
    return transition(jnp.maximum(u, 0.0), n)[0]


class Projected(eqx.Module):
    """The projected process given sites, with whitened weights a ~ N(0, I): their posterior precision A = L Lᵀ."""

    basis: splines.Splines
    roots: Float[Array, "L m m"]
    factor: Float[Array, "F F"]
    rate: Float[Array, " L"]
    variance: Float[Array, " L"]
    states: int = eqx.field(static=True)

    @classmethod
    def given(cls, made: SplineMap, factor: Float[Array, "F F"]) -> Projected:
        """The process of features whose weights have this factor."""
        return cls(made.basis, made.roots, factor, made.rate, made.variance, made.states)

    @property
    def map(self) -> SplineMap:
        """The features."""
        return SplineMap(self.basis, self.roots, self.rate, self.variance, self.states)

    def features(self, x: Float[Array, "M L"]) -> Float[Array, "F M"]:
        """The whitened features at new places: the covariances of f with a."""
        return self.map.whiten(self.map.beyond(x))

    def whitened(self, psi: Float[Array, "F M"]) -> Float[Array, "F M"]:
        """L⁻¹ψ: its squares are the variance of ψᵀa."""
        return solve_lower(self.factor, psi, len(self.factor))


def sparse_products(basis: splines.Splines, t: Float[Array, "N L"], n: int) -> tuple[Any, Any]:
    """Two functions: features times weights, (F, C) → (N, C), and their transpose, through the few B-splines at each place."""
    first, values = splines.local(basis, t, n)
    L, m = basis.change.shape[:2]
    line = jnp.arange(L)
    each = jnp.arange(2 * n), jnp.moveaxis(values, -1, 0)[..., None]  # one B-spline after another: one loop is compiled

    def forward(weights: Float[Array, "F C"]) -> Float[Array, "N C"]:
        c = jnp.einsum("lij,ljc->lic", basis.change, weights.reshape(L, m, -1))
        add = lambda total, x: (total + jnp.sum(x[1] * c[line, first + x[0]], axis=1), None)
        return jax.lax.scan(add, jnp.zeros((len(t), c.shape[-1])), each)[0]

    def transpose(rows: Float[Array, "N C"]) -> Float[Array, "F C"]:
        add = lambda c, x: (c.at[line, first + x[0]].add(x[1] * rows[:, None]), None)
        c = jax.lax.scan(add, jnp.zeros((L, m, rows.shape[1])), each)[0]
        return jnp.einsum("lij,lic->ljc", basis.change, c).reshape(L * m, -1)

    return forward, transpose
