"""Space and time, all of it seen with one noise level: the places turned to their eigenvectors, each of them a chain in time.

Linear in the number of times. With holes or unequal noise one filter runs for all places, while their states are few.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..inputs.layouts import Grid, Inputs
from ..inputs.observations import Data
from ..kernels.algebra import Kernel
from ..linalg.dense.cholesky import log_sum
from ..linalg.filters import kalman, kalman_places
from ..linalg.grids import lines
from ..linalg.grids.two_levels import LogDet
from ..linalg.markov import chains
from ..posterior import Model
from ..sites import Sites
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
        return lines.log_det_and_gram(
            all_chains, (structure.chain, structure.gaps()), structure.places(), noise_of(sites), table
        )

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


def all_chains(
    line: tuple[chains.Chain, Array], gamma: Float[Array, " S"], noise: Float[Array, ""], turned: Float[Array, "S C T"]
) -> tuple[Float[Array, ""], Float[Array, "C C"]]:
    """log|C| and the gram of independent chains that differ in their variance, all seen with one noise level."""
    chain, gaps = line
    precision = jnp.full(len(gaps), 1.0) / noise
    one = lambda g, y: kalman.evidence(chains.Scaled(chain, g), gaps, precision, y.T, accurate=True)
    log_dets, grams = jax.vmap(one)(gamma, turned)
    return jnp.sum(log_dets), jnp.sum(grams, axis=0)
