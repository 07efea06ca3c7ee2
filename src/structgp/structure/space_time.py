"""Grids with an axis of time: a Markov process along it, times any covariance over the rest."""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from ..inputs.layouts import Grid, Inputs
from ..kernels.algebra import Kernel
from ..linalg.markov import chains
from .base import No, Structure
from .kronecker import Kronecker, all_factors, kronecker
from .state_space import Where, chain_of


class SpaceTime(Structure):
    """A Kronecker product of which one factor is a chain."""

    grid: Kronecker
    chain: chains.Chain
    t: Float[Array, " T"]  # ascending
    order: Int[Array, " T"]  # t = the axis[order]
    time: int = eqx.field(static=True)  # which factor runs along time

    @property
    def kernel(self) -> Kernel:
        """The kernel of the process."""
        return self.grid.kernel

    def gaps(self) -> Float[Array, " T"]:
        """The distance of each time from the one before; the first has none."""
        return jnp.diff(self.t, prepend=self.t[:1])

    def places(self) -> Float[Array, "S S"]:
        """The covariance over all that is not time."""
        return self.grid.others(self.time)

    def spread(self, X: Float[Array, " C *sizes"]) -> Float[Array, "C T S"]:
        """Arrays over the grid as tables: times, in order, by places."""
        return self.grid.along(X, self.time)[:, self.order]


def time_factor(kernel: Kernel, inputs: Grid, harmonics: int) -> int | No:
    """Which factor has a finite state along its one axis: the one with the most places."""
    parts = all_factors(kernel, len(inputs.shape))
    where = Where(jnp.zeros(()), jnp.zeros(()), harmonics)
    found = []
    for i, part in enumerate(parts):
        if len(part.dims) == 1:
            chain = chain_of(part.kernel, where)
            if not isinstance(chain, No) and not chain.varies:
                found.append((inputs.shape[part.dims[0]], i))
    return max(found)[1] if found else No("no factor has a finite state along an axis of its own")


def space_time(kernel: Kernel, inputs: Inputs, harmonics: int) -> SpaceTime | No:
    """The chain along time and the factors over the rest, or why there are none."""
    grid = kronecker(kernel, inputs)
    if isinstance(grid, No):
        return grid
    assert isinstance(inputs, Grid)
    if len(grid.factors) == 1:
        return No("the grid has one axis only")
    time = time_factor(kernel, inputs, harmonics)
    if isinstance(time, No):
        return time
    axis = jnp.asarray(grid.places[time][:, 0])
    order = jnp.argsort(axis)
    t = axis[order]
    chain = chain_of(grid.factors[time], Where(t[0], t[0], harmonics))
    return chain if isinstance(chain, No) else SpaceTime(grid, chain, t, order, time)
