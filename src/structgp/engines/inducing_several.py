"""Several latents, each known through its values at inducing inputs: one for each class, in O(N C²M² + C³M³)."""

from __future__ import annotations

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..inputs.layouts import Inputs
from ..inputs.observations import Data
from ..kernels.algebra import Kernel
from ..linalg.blocks import diagonals, full
from ..linalg.dense.coupled import CoupledMarginals
from ..linalg.dense.identity_plus import solve_lower
from ..linalg.features import low_rank_coupled as numbers
from ..linalg.features.totals import in_blocks
from ..posterior import Conditional, Model
from ..sites import Sites
from ..structure.base import No
from ..structure.dense import covariance, variances
from ..structure.independent import IndependentStructures, once
from ..structure.low_rank import ROWS, LowRank, crossing, through
from .base import Cost, Offer, form_by_shape
from .independent import Places, SideBySide, Values, inverse_of_sites, of_each, of_several
from .inducing import InducingEngine, accuracy_of, rule_of
from .machine import Work


class CoupledInducingConditional(Conditional):
    """Latents that sites couple, through their values at inducing inputs."""

    kernels: tuple[Kernel, ...]
    X: Float[Array, "N D"]
    sites: Sites
    roots: tuple[Float[Array, "M M"], ...]  # of each K_uu
    found: numbers.Given
    covariance_error: Float[Array, ""]
    method: str = eqx.field(static=True)
    power: float = eqx.field(static=True)

    @property
    def row_size(self) -> int:
        return 3 * len(self.kernels) * self.found.factor.shape[0]

    @property
    def accuracy(self) -> str:
        return accuracy_of(self.found.mean.shape[1], self.method, self.power, float(self.covariance_error))

    def at(self, X: Places, part: int | None = None) -> tuple[Values, Float[Array, "M C C"]]:
        V, of = self._seen(X)
        U = self.found.roots(V)
        prior = jnp.stack([variances(one.kernel, one.X) for one in of])
        rest = jnp.maximum(prior - jnp.sum(V * V, axis=1), 0.0) * (self.method != "sor")
        return jnp.einsum("cmn,cmk->nck", V, self.found.mean), diagonals(rest.T) + jnp.einsum("cin,din->ncd", U, U)

    def joint(self, X: Places) -> tuple[Values, Float[Array, "M C M C"]]:
        V, of = self._seen(X)
        U = self.found.roots(V)
        rest = jnp.stack([covariance(one.kernel, one.X, one.X) for one in of]) - V.mT @ V
        open_ = of_each(rest * (self.method != "sor")) + jnp.einsum("cin,dil->ncld", U, U)
        return jnp.einsum("cmn,cmk->nck", V, self.found.mean), open_

    def inverse_parts(self) -> tuple[Float[Array, "N C C"], Float[Array, "N C k"]]:
        M = self.found.mean.shape[1]
        structure = IndependentStructures(tuple(LowRank(kernel, self.X, M) for kernel in self.kernels))
        white = _white(structure, self.roots)
        P, rule = full(self.sites.precision), rule_of(self.method, self.power)
        mean, spread = numbers.marginals(*white, self.found, P, self.sites.shift, rule)[:2]
        return inverse_of_sites(self.sites, mean, spread)

    def log_det_and_gram(self) -> tuple[Float[Array, ""], Float[Array, "k k"]]:
        return self.found.log_det, self.found.gram

    def _seen(self, X: Places) -> tuple[Float[Array, "C M n"], list[Any]]:
        of: list[Any] = [through(kernel, X) for kernel in self.kernels]
        return jnp.stack([solve_lower(L, one.cross().T, len(L)) for L, one in zip(self.roots, of, strict=True)]), of


class IndependentInducing(SideBySide):
    """Kernels with inducing inputs, as many for each latent, by one method."""

    name: ClassVar[str] = "Inducing"
    structure: ClassVar[str] = "inducing"
    learner: ClassVar[str] = "inducing"

    @property
    def one(self) -> InducingEngine:
        """The algorithm of each latent."""
        return self.parts[0]  # type: ignore[return-value]

    def offer(self, model: Model, inputs: Inputs, data: Data | None = None) -> Offer | No:
        form = form_by_shape(self, model.kernel, inputs)
        if isinstance(form, No):
            return form
        sizes = {part.size for part in form.parts}
        if len(sizes) > 1:
            return No(f"the latents have different numbers of inducing inputs, {sorted(sizes)}: give each as many")
        N, C, M = len(inputs), len(self.parts), form.parts[0].size
        look = Work(products=3.0 * N * (C * M) ** 2, factors=2.0 * (C * M) ** 3, functions=float(N * C * M))
        cost = Cost(3 * N * (C * M) ** 2 + 2 * (C * M) ** 3, 8 * (6 * (C * M) ** 2 + N * C * M), C * M, 3 * look, look)
        said = f"approximate ({M} inducing inputs, {self.one.method})"
        return Offer(self, of_several(cost.searching(look), N), accuracy=said, note=f"{C} latents")

    def coupled_marginals(self, structure: IndependentStructures, sites: Sites) -> CoupledMarginals:
        found, white = self._given(structure, sites)
        return numbers.marginals(*white, found, full(sites.precision), sites.shift, self.one.rule)

    def coupled_log_det_and_gram(self, structure: IndependentStructures, sites: Sites) -> tuple[Array, Array]:
        found = self._given(structure, sites)[0]
        return found.log_det, found.gram

    def coupled_condition(self, structure: IndependentStructures, sites: Sites) -> CoupledInducingConditional:
        found, (white, blocks) = self._given(structure, sites)

        def share(block: Any) -> Array:
            V, k = white(block)
            return jnp.max(jnp.maximum(k - jnp.sum(V * V, axis=1), 0.0) / jnp.where(k > 0, k, 1.0))

        kernels = tuple(part.kernel for part in structure.parts)
        error = jnp.max(jax.lax.map(share, blocks))
        return CoupledInducingConditional(
            kernels, structure.parts[0].X, sites, _roots(structure), found, error, self.one.method, self.one.power
        )

    def _given(self, structure: IndependentStructures, sites: Sites) -> tuple[numbers.Given, tuple[numbers.White, Any]]:
        white = _white(structure, _roots(structure))
        shape = len(structure.parts), structure.parts[0].size
        return numbers.given(*white, shape, full(sites.precision), sites.shift, self.one.rule), white


def side_by_side_of(one: InducingEngine, latents: int) -> IndependentInducing:
    """The algorithm of one latent for each of several."""
    return IndependentInducing((one,) * latents)


def _roots(structure: IndependentStructures) -> tuple[Float[Array, "M M"], ...]:
    return tuple(once(lambda part: jnp.linalg.cholesky(part.among()), structure.parts))


def _white(structure: IndependentStructures, roots: tuple[Array, ...]) -> tuple[numbers.White, Any]:
    """How V and the variances of all latents are made of blocks of places, and the blocks."""
    parts = structure.parts
    size = max(ROWS // len(parts), 1)
    if parts[0].V is not None:
        at_hand = lambda block: (jnp.moveaxis(block[0], 0, -1), block[1].T)
        V, k = jnp.stack([part.V for part in parts]), jnp.stack([part.k for part in parts])
        return at_hand, (in_blocks(jnp.moveaxis(V, -1, 0), size), in_blocks(k.T, size))
    root_of = dict(zip(map(id, parts), roots, strict=True))

    def white(X: Array) -> tuple[Array, Array]:
        def one(part: Any) -> tuple[Array, Array]:
            K, k = crossing(part.kernel)(X)
            L = root_of[id(part)]
            return solve_lower(L, K.T, len(L)), k

        V, k = zip(*once(one, parts), strict=True)
        return jnp.stack(V), jnp.stack(k)

    return white, in_blocks(parts[0].X, size)
