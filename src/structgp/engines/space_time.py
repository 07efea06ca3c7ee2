"""Space and time, all of it seen with one noise level: the places turned to their eigenvectors, each of them a chain in time.

With K_s = UΓUᵀ over the places, C = K_t ⊗ K_s + noise·I falls into one chain γ_jK_t + noise·I for each eigenvector: linear in
the number of times. The derivative in K_s never meets that of an eigendecomposition: with U held, N = UᵀK_sU enters by its
diagonal γ, and beside the diagonal, where it is zero, by its slope,

    d(TᵀC⁻¹T) = −Σ_{i≠j} dN_ij α̃_iᵀK_t α̃_j,   K_t α̃_j = (T̃_j − noise·α̃_j)/γ_j.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..inputs import Grid, Inputs
from ..kernels.algebra import Kernel
from ..linalg import chains, kalman, kalman_places
from ..linalg import kronecker as kron
from ..linalg.cholesky import log_sum
from ..linalg.whitened import LogDet
from ..posterior import Data, Model, Sites
from ..structure.base import No
from ..structure.space_time import SpaceTime, space_time
from ..structure.state_space import harmonics_of
from .base import Cost, Engine
from .eigen import Eigen, EigenConditional, noise_of
from .grid_holes import Krylov, KrylovConditional

MEMORY = 1e9  # bytes for the covariances that a gradient of the joint filter keeps


class SpaceTimeChains(Engine):
    """Kernels that factor over a grid, one factor of them Markov along an axis."""

    harmonics: int = eqx.field(static=True, default=0)
    refusal: str = eqx.field(static=True, default="")

    name: ClassVar[str] = "Chains"
    structure: ClassVar[str] = "space-time"

    def form(self, kernel: Kernel, inputs: Inputs) -> SpaceTime | No:
        found = space_time(kernel, inputs, self.harmonics)
        return No(self.refusal) if self.refusal and not isinstance(found, No) else found

    def cost(self, kernel: Kernel, inputs: Inputs) -> Cost:
        assert isinstance(inputs, Grid)
        T, S, m = sizes_of(self.form, kernel, inputs)
        N = T * S
        return Cost(flops=15 * S**3 + 12 * N * S + N * (2000 * m**3 + 5000), bytes=8 * (6 * S**2 + N * (4 * m**2 + 12)))

    def note(self, kernel: Kernel) -> str:
        return "one noise level in all cells; else Krylov"

    def matrix_rows(self, inputs: Inputs) -> int:
        return 0

    def specialised(self, model: Model, inputs: Inputs, data: Data | None = None) -> Engine:
        harmonics, general = harmonics_of(model.kernel), Eigen().specialised(model, inputs, data)
        if not isinstance(inputs, Grid) or isinstance(general, Eigen):
            return SpaceTimeChains(harmonics)
        joint = JointChain(harmonics, general)
        if hasattr(model.likelihood, "noise") and joint.fits(model.kernel, inputs):
            return joint
        return SpaceTimeChains(harmonics, "with holes the states of all places are too many") if data is None else general

    def log_det_and_gram(self, structure: SpaceTime, sites: Sites) -> tuple[Float[Array, ""], Float[Array, "C C"]]:
        table = structure.spread(structure.grid.to_grid(sites.targets))
        return chains_evidence(structure.chain, structure.gaps(), structure.places(), noise_of(sites), table)

    def condition(self, structure: SpaceTime, sites: Sites) -> EigenConditional:
        # One eigendecomposition along time as well: predictions anywhere then cost a few products.
        return Eigen().condition(structure.grid, sites)


class JointChain(Engine):
    """The same with holes or unequal noise: one filter for all places, exact, while their states are few enough.

    Predictions come from the general engine for holes.
    """

    harmonics: int = eqx.field(static=True)
    general: Engine = eqx.field(static=True)

    name: ClassVar[str] = "JointChain"
    structure: ClassVar[str] = "space-time"

    def form(self, kernel: Kernel, inputs: Inputs) -> SpaceTime | No:
        return space_time(kernel, inputs, self.harmonics)

    def fits(self, kernel: Kernel, inputs: Grid) -> bool:
        """Whether the covariances of all states, kept for the gradient, go into memory."""
        if isinstance(jax.eval_shape(lambda kernel: _or_nothing(self.form(kernel, inputs)), kernel), tuple):
            return False
        T, S, m = sizes_of(self.form, kernel, inputs)
        return 8 * T * (S * m) ** 2 < MEMORY and isinstance(self.general, Krylov)

    def cost(self, kernel: Kernel, inputs: Inputs) -> Cost:
        assert isinstance(inputs, Grid)
        T, S, m = sizes_of(self.form, kernel, inputs)
        return Cost(flops=8 * T * (S**3 * (1 + m) ** 2 + m**3 * S**2), bytes=8 * T * (S * m) ** 2)

    def note(self, kernel: Kernel) -> str:
        return "one filter for all places"

    def matrix_rows(self, inputs: Inputs) -> int:
        return 0

    def log_det_and_gram(self, structure: SpaceTime, sites: Sites) -> tuple[Float[Array, ""], Float[Array, "C C"]]:
        w = structure.spread(structure.grid.to_grid(sites.precision[:, None]))[0]
        Y = jnp.moveaxis(structure.spread(structure.grid.to_grid(sites.targets)), 0, 2)
        return kalman_places.evidence(structure.chain, structure.gaps(), structure.places(), w, Y)

    def condition(self, structure: SpaceTime, sites: Sites) -> KrylovConditional:
        found = self.general.condition(structure.grid, sites)
        assert isinstance(found, KrylovConditional)
        log_det, gram = self.log_det_and_gram(structure, sites)
        w = found.system.w
        exact = log_det + log_sum(jnp.ravel(w))
        T = structure.grid.to_grid(sites.targets)
        natural = T.reshape(len(T), -1) @ (w * T).reshape(len(T), -1).T - gram
        known = LogDet(exact, jnp.zeros(()), exact, exact)
        return eqx.tree_at(lambda c: (c.log_det, c.gram), found, (known, natural))


def sizes_of(form: Any, kernel: Kernel, inputs: Grid) -> tuple[int, int, int]:
    """The numbers of times, of places, and of states of the chain."""
    found = jax.eval_shape(lambda kernel: form(kernel, inputs), kernel)
    T = len(found.t)
    return T, math.prod(inputs.shape) // T, found.chain.size


def _or_nothing(form: SpaceTime | No) -> Any:
    return () if isinstance(form, No) else form


def chains_evidence(
    chain: chains.Chain, gaps: Float[Array, "T"], K: Float[Array, "S S"], noise: Float[Array, ""], Y: Float[Array, "C T S"]
) -> tuple[Float[Array, ""], Float[Array, "C C"]]:
    """log|C| and YᵀC⁻¹Y for C = K_t ⊗ K + noise·I, differentiable in everything."""
    U = jax.lax.stop_gradient(kron.eigen([K]).vectors[0])
    N = U.T @ K @ U
    gamma = jnp.maximum(jnp.diagonal(N), 0.0)
    turned = jnp.moveaxis(Y @ U, 2, 0)  # (S, C, T)
    precision = jnp.full(len(gaps), 1.0) / noise
    one = lambda g, y: kalman.evidence(chains.Scaled(chain, g), gaps, precision, y.T, accurate=True)

    def summed(turned: Array) -> tuple[Array, tuple[Array, Array]]:
        log_dets, grams = jax.vmap(one)(gamma, turned)
        total = jnp.sum(grams, axis=0)
        return jnp.trace(total), (jnp.sum(log_dets), total)

    slope, (log_det, gram) = jax.grad(summed, has_aux=True)(turned)
    alpha = jax.lax.stop_gradient(0.5 * slope)
    return log_det, gram - _beside(N, alpha, jax.lax.stop_gradient((turned, noise, gamma)))


def _beside(N: Float[Array, "S S"], alpha: Float[Array, "S C T"], held: tuple[Array, Array, Array]) -> Float[Array, "C C"]:
    """Σ_{i≠j} N_ij α_iᵀK_t α_j, which is zero but has a slope; K_t α_j from the larger of two eigenvalues."""
    turned, noise, gamma = held
    told = gamma > 0
    onward = jnp.where(told[:, None, None], (turned - noise * alpha) / jnp.where(told, gamma, 1.0)[:, None, None], 0.0)
    pairs = jnp.einsum("ict,jet->ceij", alpha, onward)
    pairs = jnp.where(gamma[:, None] <= gamma[None, :], pairs, jnp.transpose(pairs, (1, 0, 3, 2)))
    return jnp.einsum("ij,ceij->ce", N * (1 - jnp.eye(len(N))), pairs)
