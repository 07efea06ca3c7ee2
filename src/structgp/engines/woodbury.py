"""Few functions with independent weights: everything from one matrix of their size, in O(NF²).

With features Φ, Ψ = R⁻¹Φ, sites of precision w and shift h, and A = I + ΨWΨᵀ = L Lᵀ,

    log|C| = log|A| − Σ log w,     TᵀC⁻¹T = TᵀWT − cᵀc,     c = L⁻¹Ψh,
    log|I + KW| = log|A|,          hᵀΣh = cᵀc,              a | sites ~ N(L⁻ᵀc, A⁻¹).

Of the rest, which features leave out of the variance of f, the trace with W is added to the log determinants, which makes
evidences lower bounds, and what is left out at a place to the variance there: the one is what the derivative of the other in w
asks for, so that rules that find sites stay stationary. ΦWΦᵀ and Φh are sums over rows, and A is one for weights of any sign
as long as there is a density.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float

from ..inputs.layouts import Inputs
from ..inputs.observations import Data
from ..kernels.algebra import Kernel
from ..linalg.dense.identity_plus import log_det_and_forms, solve_lower
from ..linalg.features.totals import ROWS, Totals, in_blocks, totals, visited
from ..posterior import Conditional, Model
from ..sites import Marginals, Sites
from ..structure.base import No
from ..structure.derivatives import along
from ..structure.features import FeatureMap, Features, Stacked, features
from .base import DRAWN, Cost, Engine, Offer, ShiftOf, form_by_shape, gaussian
from .machine import Work

Evidence = tuple[Float[Array, ""], Float[Array, "C C"]]


def sums_of(structure: Features, sites: Sites) -> Totals:
    """What sites at the rows of the data come to."""
    return totals(*structure.blocks(), sites.precision, sites.shift, sites.targets)


def whitened(made: FeatureMap, sums: Totals) -> tuple[Float[Array, "F F"], Float[Array, "F C"], Float[Array, ""]]:
    """ΨWΨᵀ and Ψh, and the trace of W with what features leave out."""
    G = made.whiten(made.whiten(sums.gram).T)
    return 0.5 * (G + G.T), made.whiten(sums.cross), made.left_out(jnp.diagonal(G), sums)


def evidence(made: FeatureMap, sums: Totals, natural: bool = False) -> Evidence:
    """log|C| and TᵀC⁻¹T of sites that come to these sums; of natural ones log|I + KW| and hᵀΣh."""
    G, b, left_out = whitened(made, sums)
    log_det, explained = log_det_and_forms(G, b)
    log_det = log_det + left_out
    return (log_det, explained) if natural else (log_det - sums.log_weights, sums.targets - explained)


class Weighed(eqx.Module):
    """The weights of features given sites: the factor L of A, and c."""

    factor: Float[Array, "F F"]
    c: Float[Array, "F C"]
    log_det: Float[Array, ""]  # log|A|, with the trace of what is left out

    @classmethod
    def by(cls, made: FeatureMap, sums: Totals) -> Weighed:
        """The weights given what sites come to."""
        G, b, left_out = whitened(made, sums)
        L = jnp.linalg.cholesky(jnp.eye(len(G)) + G)
        return cls(L, solve_triangular(L, b, lower=True), 2 * jnp.sum(jnp.log(jnp.diagonal(L))) + left_out)

    def mean(self) -> Float[Array, "F C"]:
        """The weights of ψ."""
        return solve_triangular(self.factor, self.c, lower=True, trans="T")

    def roots(self, psi: Float[Array, "F N"]) -> Float[Array, "F N"]:
        """L⁻¹ψ: the squares are the variance of ψᵀa."""
        return solve_lower(self.factor, psi, len(self.factor))


def at_rows(structure: Features, weighed: Weighed) -> tuple[Float[Array, "N C"], Float[Array, " N"]]:
    """Means and variances of ψᵀa at the rows of the data, with the rest: in two passes, for some need the means alone."""
    made, (of, blocks), count = structure.map, structure.blocks(), len(structure.X)
    b = made.unwhiten(weighed.mean())

    root = weighed.roots(made.whiten(jnp.eye(made.size)))

    def variance(block: Array) -> Array:
        phi = of(block)
        return jnp.sum((root @ phi) ** 2, axis=0) + made.rest(phi)

    return visited(lambda block: of(block).T @ b, blocks, count), visited(variance, blocks, count)


def applied(structure: Features, weighed: Weighed, shift: Float[Array, " N"]) -> Float[Array, " N"]:
    """The covariance of ψᵀa at the rows of the data, applied to a shift there."""
    made, (of, blocks), count = structure.map, structure.blocks(), len(structure.X)
    size = count if len(blocks) == 1 else blocks.shape[1]
    add = lambda total, block: (total + of(block[0]) @ block[1], None)
    total = jax.lax.scan(add, jnp.zeros(made.size), (blocks, in_blocks(shift, size)))[0]
    b = made.unwhiten(jax.scipy.linalg.cho_solve((weighed.factor, True), made.whiten(total[:, None])))[:, 0]
    return visited(lambda block: of(block).T @ b, blocks, count)


class WoodburyConditional(Conditional):
    """Few functions given sites."""

    structure: Features
    sites: Sites
    weighed: Weighed
    gram: Float[Array, "C C"]
    log_weights: Float[Array, ""]

    def at(self, X: Float[Array, "M D"], part: int | None = None) -> tuple[Float[Array, "M C"], Float[Array, " M"]]:
        return self._moments(self._psi(X, part))

    def derivative(
        self, X: Float[Array, "M D"], order: int, dim: int, part: int | None = None
    ) -> tuple[Float[Array, "M C"], Float[Array, " M"]]:
        one = lambda x: self._psi(x[None], part)[:, 0]
        return self._moments(jax.vmap(along(one, dim, order), out_axes=1)(X))

    def gradient(self, x: Float[Array, " D"]) -> tuple[Float[Array, "D C"], Float[Array, "D D"]]:
        psi = jax.jacfwd(lambda x: self._psi(x[None])[:, 0])(x)
        V = self.weighed.roots(psi)
        return psi.T @ self.weighed.mean(), V.T @ V

    def joint(self, X: Float[Array, "M D"]) -> tuple[Float[Array, "M C"], Float[Array, "M M"]]:
        psi = self._psi(X)
        V = self.weighed.roots(psi)
        return psi.T @ self.weighed.mean(), V.T @ V

    def residuals(self, X: Float[Array, "M D"], key: Array, n: int) -> Float[Array, "M n"]:
        draws = jax.random.normal(key, (len(self.weighed.factor), n))
        return self._psi(X).T @ solve_triangular(self.weighed.factor, draws, lower=True, trans="T")

    def inverse_parts(self) -> tuple[Float[Array, " N"], Float[Array, "N C"]]:
        mean, variance = at_rows(self.structure, self.weighed)
        w = self.sites.precision
        return w - w**2 * variance, self.sites.shift - w[:, None] * mean

    def log_det_and_gram(self) -> Evidence:
        return self.weighed.log_det - self.log_weights, self.gram

    @property
    def row_size(self) -> int:
        return 2 * self.structure.map.size

    def draw_size(self, places: int, n: int) -> int:
        return self.structure.map.size * (places + n) + 2 * n * places

    def _psi(self, X: Float[Array, "M D"], part: int | None = None) -> Float[Array, "F M"]:
        made = self.structure.map
        psi = made.whiten(made.beyond(X))
        return psi if part is None or not isinstance(made, Stacked) else made.alone(psi, part)

    def _moments(self, psi: Float[Array, "F M"]) -> tuple[Float[Array, "M C"], Float[Array, " M"]]:
        return psi.T @ self.weighed.mean(), jnp.sum(self.weighed.roots(psi) ** 2, axis=0)


def cost_of_features(N: int, F: int) -> Cost:
    """What F functions at N rows take."""
    sums = Work(products=2.0 * N * F**2, functions=float(N * F), traffic=40.0 * N * F)
    predict = Work(products=2.0 * F**2, functions=F, traffic=40.0 * F)
    return Cost(
        N * F * (2 * F + 20) + F**3,
        bytes=8 * (2 * min(N, ROWS) * F + 5 * F**2),
        rows=0,
        evaluate=3 * sums + Work(factors=4.0 * F**3, traffic=200.0 * N),
        condition=2 * sums + Work(factors=float(F) ** 3, traffic=200.0 * N),
        predict=predict,
        draw=DRAWN * predict,  # of the weights
        leave_out=N * predict,
        programs=12,
    )


def look_at_features(N: int, F: int) -> Work:
    """What the marginals take that sites leave."""
    return Work(products=4.0 * N * F**2, functions=4.0 * N * F, traffic=200.0 * N * F, factors=float(F) ** 3)


class Woodbury(Engine):
    """Constants, lines, polynomials and their sums, exactly, in O(NF²) for F functions."""

    name: ClassVar[str] = "Woodbury"
    structure: ClassVar[str] = "features"
    takes_unseen_rows: ClassVar[bool] = True

    def offer(self, model: Model, inputs: Inputs, data: Data | None = None) -> Offer | No:
        form = form_by_shape(self, model.kernel, inputs)
        if isinstance(form, No):
            return form
        N, F = len(inputs), form.map.size
        bytes = 8 * (N * inputs.dimension + 2 * min(N, ROWS) * F + 5 * F**2)
        cost = dataclasses.replace(cost_of_features(N, F), bytes=bytes)
        return Offer(self, cost if gaussian(model, data) else cost.searching(look_at_features(N, F)))

    def form(self, kernel: Kernel, inputs: Inputs) -> Features | No:
        return features(kernel, inputs)

    def log_det_and_gram(self, structure: Features, sites: Sites) -> Evidence:
        return evidence(structure.map, sums_of(structure, sites), sites.natural)

    def marginals(self, structure: Features, sites: Sites) -> Marginals:
        weighed = Weighed.by(structure.map, sums_of(structure, sites))
        return Marginals(*at_rows(structure, weighed), weighed.log_det, weighed.c.T @ weighed.c)

    def marginals_and_applied(self, structure: Features, sites: Sites, shift: ShiftOf) -> tuple[Marginals, Float[Array, " N"]]:
        weighed = Weighed.by(structure.map, sums_of(structure, sites))
        found = Marginals(*at_rows(structure, weighed), weighed.log_det, weighed.c.T @ weighed.c)
        return found, applied(structure, weighed, shift(found))

    def condition(self, structure: Features, sites: Sites) -> WoodburyConditional:
        sums = sums_of(structure, sites)
        weighed = Weighed.by(structure.map, sums)
        explained = weighed.c.T @ weighed.c
        gram = explained if sites.natural else sums.targets - explained
        log_weights = jnp.zeros(()) if sites.natural else sums.log_weights
        return WoodburyConditional(structure, sites, weighed, gram, log_weights)
