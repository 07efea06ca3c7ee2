"""Space and time, all of it seen with one noise level: the places turned to their eigenvectors, each of them a chain in time.

Linear in the number of times. With holes or unequal noise one filter runs for all places, while their states are few.
"""

from __future__ import annotations

import dataclasses
import math
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..inputs.layouts import Inputs
from ..inputs.observations import Data
from ..kernels.algebra import Kernel
from ..linalg.dense.cholesky import log_sum
from ..linalg.filters import kalman, kalman_places
from ..linalg.grids import lines
from ..linalg.grids.two_levels import LogDet
from ..linalg.markov import chains
from ..posterior import Model
from ..sites import Sites
from ..structure.base import No, first_no
from ..structure.space_time import SpaceTime, space_time
from ..structure.state_space import harmonics_of
from .base import NOT_NEEDED, PLANNING, Engine, Offer, form_by_shape, noise_of, not_alike, not_gaussian
from .eigen import ONE_NOISE, Eigen, EigenConditional, cost_of_axes
from .grid_holes import Krylov, KrylovConditional
from .machine import Work

MEMORY = 1e9  # bytes for the covariances that a gradient of the joint filter keeps
STEP = 3e6  # flops that the many small operations of one of its steps are worth, so that few cells go to the whole matrix


class SpaceTimeChains(Engine):
    """Kernels that factor over a grid, one factor of them Markov along an axis."""

    harmonics: int = eqx.field(static=True, default=0)

    name: ClassVar[str] = "Chains"
    structure: ClassVar[str] = "space-time"

    def offer(self, model: Model, inputs: Inputs, data: Data | None = None) -> Offer | No:
        engine = self.tuned(model, inputs, data)
        form = form_by_shape(engine, model.kernel, inputs)
        no = first_no(form, not_gaussian(model, data), not_alike(model, inputs, data))
        if no:
            return no
        T, S, m = sizes_of(form)
        N = T * S
        flops = 15 * S**3 + 12 * N * S + N * (2000 * m**3 + 5000)
        whole = cost_of_axes(form.grid.sizes, flops)
        turn = Work(eigen=float(S) ** 3, products=8.0 * N * S, traffic=100.0 * N)
        chains = Work(steps=20.0 * T, small=100.0 * N * m**3, traffic=2000.0 * N * m**2)
        cost = dataclasses.replace(
            whole,
            bytes=8 * (6 * S**2 + N * (4 * m**2 + 12)),
            evaluate=turn + chains,
            condition=whole.condition + Work(calls=PLANNING),
            programs=12,
        )
        return Offer(engine, cost, note=ONE_NOISE if data is None else "")

    def form(self, kernel: Kernel, inputs: Inputs) -> SpaceTime | No:
        return space_time(kernel, inputs, self.harmonics)

    def tuned(self, model: Model, inputs: Inputs, data: Data | None = None) -> SpaceTimeChains:
        return SpaceTimeChains(harmonics_of(model.kernel))

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

    harmonics: int = eqx.field(static=True, default=0)
    general: Krylov = eqx.field(static=True, default=Krylov())

    name: ClassVar[str] = "JointChain"
    structure: ClassVar[str] = "space-time"

    def offer(self, model: Model, inputs: Inputs, data: Data | None = None) -> Offer | No:
        chains = SpaceTimeChains(harmonics_of(model.kernel))
        form = form_by_shape(chains, model.kernel, inputs)
        no = first_no(form, not_gaussian(model, data))
        if no:
            return no
        if not not_alike(model, inputs, data):
            return NOT_NEEDED
        T, S, m = sizes_of(form)
        steps = T * Work(factors=4.0 * S**3 * (1 / 3 + m), products=8.0 * (S**3 * m**2 + 2 * m**3 * S**2))
        steps += T * Work(steps=2000, traffic=4000.0 * S**2 * m**2)  # many small operations, with all that their gradient keeps
        general = Krylov().tuned(model, inputs, data).cost(form.grid.sizes)
        cost = dataclasses.replace(
            general,
            flops=8 * T * (S**3 * (1 + m) ** 2 + m**3 * S**2) + T * STEP,
            bytes=8 * T * (S * m) ** 2,
            evaluate=steps,
            condition=general.condition + Work(calls=PLANNING),
            keep=Work(functions=1.5 * general.bytes),
            programs=25,
        )
        if cost.bytes > MEMORY:
            return No("with holes the states of all places are too many")
        return Offer(self.tuned(model, inputs, data), cost, note="one filter for all places")

    def form(self, kernel: Kernel, inputs: Inputs) -> SpaceTime | No:
        return space_time(kernel, inputs, self.harmonics)

    def tuned(self, model: Model, inputs: Inputs, data: Data | None = None) -> JointChain:
        return JointChain(harmonics_of(model.kernel), Krylov().tuned(model, inputs, data))

    def log_det_and_gram(self, structure: SpaceTime, sites: Sites) -> tuple[Float[Array, ""], Float[Array, "C C"]]:
        w = structure.spread(structure.grid.to_grid(sites.precision[:, None]))[0]
        Y = jnp.moveaxis(structure.spread(structure.grid.to_grid(sites.targets)), 0, 2)
        return kalman_places.evidence(structure.chain, structure.gaps(), structure.places(), w, Y)

    def condition(self, structure: SpaceTime, sites: Sites) -> KrylovConditional:
        found = self.general.condition(structure.grid, sites)
        log_det, gram = self.log_det_and_gram(structure, sites)
        w = found.system.w
        exact = log_det + log_sum(jnp.ravel(w))
        T = structure.grid.to_grid(sites.targets)
        natural = T.reshape(len(T), -1) @ (w * T).reshape(len(T), -1).T - gram
        known = LogDet(exact, jnp.zeros(()), exact, exact)
        return eqx.tree_at(lambda c: (c.log_det, c.gram), found, (known, natural))


def sizes_of(form: SpaceTime) -> tuple[int, int, int]:
    """The numbers of times, of places, and of states of the chain."""
    T = len(form.t)
    return T, math.prod(form.grid.shape) // T, form.chain.size


def all_chains(
    line: tuple[chains.Chain, Array], gamma: Float[Array, " S"], noise: Float[Array, ""], turned: Float[Array, "S C T"]
) -> tuple[Float[Array, ""], Float[Array, "C C"]]:
    """log|C| and the gram of independent chains that differ in their variance, all seen with one noise level."""
    chain, gaps = line
    precision = jnp.full(len(gaps), 1.0) / noise
    one = lambda g, y: kalman.evidence(chains.Scaled(chain, g), gaps, precision, y.T, accurate=True)
    log_dets, grams = jax.vmap(one)(gamma, turned)
    return jnp.sum(log_dets), jnp.sum(grams, axis=0)
