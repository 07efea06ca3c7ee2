"""A sum of lines seen through spline features: the evidence as a lower bound, the variances, the preconditioner.

With φ the features of all lines, S their inner products (block-diagonal, one block for each line), and G = ΦᵀWΦ, the projected
prior Q = Φ S⁻¹Φᵀ ≤ K has C_Q = Q + W⁻¹ and, whitened by R Rᵀ = S, A = I + R⁻¹G R⁻ᵀ,

    log|C_Q| = log|A| − log|W|,     TᵀC_Q⁻¹T = TᵀWT − c̃ᵀA⁻¹c̃,   c̃ = R⁻¹ΦᵀWT.

Adding tr W(K − Q) to the log determinant makes the evidence a lower bound. Rounding can turn that trace negative, which would
make a false bound, so that of each line is held at zero or above. G, ΦᵀWT and TᵀWT are sums over rows: once they are there,
nothing depends on the number of rows.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..linalg.dense.identity_plus import log_det_and_forms
from ..linalg.features import splines
from ..linalg.markov.matern_sde import transition
from ..sites import Marginals, Sites

ROWS = 2048  # how many rows of features are held at a time


class Totals(NamedTuple):
    """Sums over rows: ΦᵀWΦ, ΦᵀWT, TᵀWT, Σ log w and Σ w."""

    gram: Float[Array, "F F"]
    cross: Float[Array, "F C"]
    targets: Float[Array, "C C"]
    log_weights: Float[Array, ""]
    weights: Float[Array, ""]

    def over(self, noise: Float[Array, ""]) -> Totals:
        """The sums with weights divided by a noise variance, for weights that are 1 where something was seen."""
        logs = self.log_weights - self.weights * jnp.log(noise)
        return Totals(self.gram / noise, self.cross / noise, self.targets / noise, logs, self.weights / noise)


def totals(
    basis: splines.Splines, t: Float[Array, "N L"], n: int, w: Float[Array, " N"], targets: Float[Array, "N C"]
) -> Totals:
    """The sums over all rows, in pieces."""
    pieces = -(-len(t) // ROWS)
    padded = lambda values: jnp.pad(values, [(0, pieces * ROWS - len(t))] + [(0, 0)] * (values.ndim - 1), mode="edge")
    in_pieces = lambda values: padded(values).reshape(pieces, ROWS, *values.shape[1:])
    within = (jnp.arange(pieces * ROWS) < len(t)).reshape(pieces, ROWS)

    @jax.checkpoint
    def add(total: tuple[Array, Array], piece: tuple) -> tuple[tuple[Array, Array], None]:
        t, w, T, within = piece
        root = jnp.sqrt(jnp.where(within, w, 0.0))[:, None]
        Phi = root * splines.features(basis, t, n).reshape(ROWS, -1)
        return (total[0] + Phi.T @ Phi, total[1] + Phi.T @ (root * T)), None

    F = basis.change.shape[0] * basis.change.shape[1]
    start = (jnp.zeros((F, F)), jnp.zeros((F, targets.shape[1])))
    (gram, cross), _ = jax.lax.scan(add, start, (in_pieces(t), in_pieces(w), in_pieces(targets), within))
    logs = jnp.sum(jnp.log(jnp.where(w > 0, w, 1.0)))
    return Totals(gram, cross, targets.T @ (w[:, None] * targets), logs, jnp.sum(w))


class Projected(eqx.Module):
    """The projected process given sites, with whitened weights a ~ N(0, I): their posterior precision A = L Lᵀ."""

    basis: splines.Splines
    roots: Float[Array, "L m m"]  # factors of S for the variances at hand
    factor: Float[Array, "F F"]
    rate: Float[Array, " L"]
    variance: Float[Array, " L"]
    states: int = eqx.field(static=True)

    def features(self, x: Float[Array, "M L"]) -> Float[Array, "L m M"]:
        """The whitened features of each line at new places: the covariances of f with a."""
        return _solve(self.roots, jnp.moveaxis(reach(self.basis, x, self.rate, self.states), 0, -1))

    def open_variance(self, psi: Float[Array, "L m M"]) -> Float[Array, "L M"]:
        """What the projection leaves out of each line's variance."""
        return jnp.maximum(self.variance[:, None] - jnp.sum(psi * psi, axis=1), 0.0)

    def whitened(self, psi: Float[Array, "*F M"]) -> Float[Array, "F M"]:
        """L⁻¹ψ: its squares are the variance of ψᵀa."""
        return jax.scipy.linalg.solve_triangular(self.factor, psi.reshape(self.factor.shape[0], -1), lower=True)


def project(
    basis: splines.Splines, rate: Array, variance: Array, sums: Totals, n: int
) -> tuple[Projected, tuple[Float[Array, ""], Float[Array, "C C"]], Float[Array, " L"]]:
    """The projected process, log|C_Q| and TᵀC_Q⁻¹T, and for each line the trace that it leaves out."""
    roots, G, left_out = _whitened(basis, rate, variance, sums)
    factor = jnp.linalg.cholesky(jnp.eye(len(G)) + G)
    U = jax.scipy.linalg.solve_triangular(factor, _whiten(roots, sums.cross), lower=True)
    log_det = 2 * jnp.sum(jnp.log(jnp.diagonal(factor))) - sums.log_weights
    return Projected(basis, roots, factor, rate, variance, n), (log_det, sums.targets - U.T @ U), left_out


def bound(basis: splines.Splines, rate: Array, variance: Array, sums: Totals) -> tuple[Array, Array]:
    """log|C| from above and TᵀC⁻¹T from above, which make an evidence from below."""
    roots, G, left_out = _whitened(basis, rate, variance, sums)
    log_det, explained = log_det_and_forms(G, _whiten(roots, sums.cross))
    return log_det - sums.log_weights + jnp.sum(jnp.maximum(left_out, 0.0)), sums.targets - explained


def _whitened(basis: splines.Splines, rate: Array, variance: Array, sums: Totals) -> tuple[Array, Array, Array]:
    """R, R⁻¹G R⁻ᵀ, and for each line the trace that it leaves out."""
    L, m = basis.change.shape[:2]
    roots = jnp.linalg.cholesky(splines.inner_products(basis, rate)) / jnp.sqrt(variance)[:, None, None]
    G = _whiten(roots, _whiten(roots, sums.gram).T)
    explained = jnp.sum(jnp.diagonal(G).reshape(L, m), axis=1)
    return roots, 0.5 * (G + G.T), variance * sums.weights - explained


class GivenFactors(NamedTuple):
    """The projected process given factors exp(h f − ½ w f²), w ≥ 0, at places t.

    What the projection leaves out of K_ii stays in the variances; its trace with W, in log|I + KW|, is what keeps the two in
    agreement: the variance of f is −2 times the derivative of the log normaliser in w, less the squared mean.
    """

    projected: Projected
    t: Float[Array, "N L"]
    c: Float[Array, "F C"]  # L⁻¹R⁻¹Φᵀh
    left_out: Float[Array, " L"]

    @classmethod
    def of(cls, basis: splines.Splines, rate: Array, variance: Array, t: Array, sites: Sites, n: int) -> GivenFactors:
        """The process of lines with these rates and variances."""
        nothing = jnp.zeros((len(t), 0))
        projected, _, left_out = project(basis, rate, variance, totals(basis, t, n, sites.precision, nothing), n)
        shifts = sparse_products(basis, t, n)[1](sites.shift)
        c = jax.scipy.linalg.solve_triangular(projected.factor, _whiten(projected.roots, shifts), lower=True)
        return cls(projected, t, c, left_out)

    def log_det_and_gram(self) -> tuple[Float[Array, ""], Float[Array, "C C"]]:
        """log|I + KW| from above and hᵀΣh from below."""
        log_det = 2 * jnp.sum(jnp.log(jnp.diagonal(self.projected.factor)))
        return log_det + jnp.sum(jnp.maximum(self.left_out, 0.0)), self.c.T @ self.c

    def marginals(self) -> Marginals:
        """Means and variances at the places of the factors, in pieces."""
        a = jax.scipy.linalg.solve_triangular(self.projected.factor, self.c, lower=True, trans="T")

        def piece(t: Array) -> tuple[Array, Array]:
            psi = _solve(
                self.projected.roots, jnp.moveaxis(splines.features(self.projected.basis, t, self.projected.states), 0, -1)
            )
            known = jnp.sum(self.projected.whitened(psi) ** 2, axis=0)
            return psi.reshape(len(a), -1).T @ a, known + jnp.sum(self.projected.open_variance(psi), axis=0)

        size = min(ROWS, len(self.t))
        pieces = -(-len(self.t) // size)
        padded = jnp.pad(self.t, [(0, pieces * size - len(self.t)), (0, 0)], mode="edge")
        mean, variance = jax.lax.map(piece, padded.reshape(pieces, size, -1))
        joined = lambda values: values.reshape(pieces * size, *values.shape[2:])[: len(self.t)]
        return Marginals(joined(mean), joined(variance), *self.log_det_and_gram())


def reach(basis: splines.Splines, x: Float[Array, "M L"], rate: Float[Array, " L"], n: int) -> Float[Array, "M L m"]:
    """The covariances of f with the features, also beyond the ends of a line, where they follow the state at the end."""
    inside = splines.features(basis, x, n)
    ends = jnp.stack([basis.origin, basis.origin + basis.length])
    derivatives = [splines.features(basis, ends, n, k) / rate[:, None] ** k for k in range(n)]
    states = jnp.stack(derivatives, axis=-1)  # 2 L m n
    signs = (-1.0) ** np.arange(n)
    left = jnp.einsum("nml,lpn->mlp", signs[:, None, None] * _beyond(rate * (ends[0] - x), n), states[0])
    right = jnp.einsum("nml,lpn->mlp", _beyond(rate * (x - ends[1]), n), states[1])
    below, above = (x < ends[0])[..., None], (x > ends[1])[..., None]
    return jnp.where(below, left, jnp.where(above, right, inside))


def _beyond(u: Float[Array, "M L"], n: int) -> Float[Array, "n M L"]:
    """The first row of the transition over a scaled distance."""
    return transition(jnp.maximum(u, 0.0), n)[0]


def _solve(roots: Float[Array, "L m m"], columns: Float[Array, "L m C"]) -> Float[Array, "L m C"]:
    return jax.scipy.linalg.solve_triangular(roots, columns, lower=True)


def _whiten(roots: Float[Array, "L m m"], columns: Float[Array, "F C"]) -> Float[Array, "F C"]:
    L, m = roots.shape[:2]
    return _solve(roots, columns.reshape(L, m, -1)).reshape(L * m, -1)


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
