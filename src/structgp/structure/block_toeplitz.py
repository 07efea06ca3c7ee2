"""Several outputs at the same evenly spaced times: the covariance is a small matrix for each lag, one rule for each node."""

from __future__ import annotations

from functools import singledispatch

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ..inputs.layouts import Inputs, Times
from ..kernels.algebra import Kernel, On, Product, Scaled, Sum
from ..kernels.filters import FIR, Filters, OfModes
from ..kernels.nonstationary import Constant
from ..kernels.outputs import Coregion, Lagged
from .base import No, Structure
from .dense import covariance
from .toeplitz import not_stationary


class BlockToeplitz(Structure):
    """A process of P outputs, stationary along S evenly spaced times, at some of which not all may have a row."""

    kernel: Kernel
    t: Float[Array, " S"]
    cells: Int[Array, "S P"]  # the row of each output at each time, N where there is none
    order: Int[Array, " N"]
    rank: Int[Array, " N"]
    in_order: bool = eqx.field(static=True)

    def lags(self) -> Float[Array, "S P P"]:
        """Covariances of all outputs with all, 0, 1, 2, … steps earlier."""
        S, P = self.cells.shape
        step = (self.t[-1] - self.t[0]) / (S - 1)
        rows = self.points.at[:, 0].set(jnp.repeat(step * jnp.arange(S), P))
        return covariance(self.kernel, rows, rows[:P]).reshape(S, P, P)

    @property
    def points(self) -> Float[Array, "N 2"]:
        """The places of all cells, outputs of one time after each other."""
        S, P = self.cells.shape
        return jnp.stack([jnp.repeat(jnp.asarray(self.t), P), jnp.tile(jnp.arange(P, dtype=float), S)], axis=1)

    def on_cells(self, values: Float[Array, " N *C"]) -> Float[Array, "S P *C"]:
        """Rows in the caller's order as a table of times and outputs, zero where there is none."""
        rows = values if self.in_order else values[self.order]
        return rows[self.cells] if self.complete else jnp.concatenate([rows, jnp.zeros_like(rows[:1])])[self.cells]

    def as_given(self, table: Float[Array, "S P *C"]) -> Float[Array, " N *C"]:
        """The inverse of `on_cells`: outputs of one time are in their order."""
        rows = table.reshape(-1, *table.shape[2:])
        if not self.complete:
            rows = rows[jnp.nonzero(jnp.ravel(self.cells) < len(self.order), size=len(self.order))[0]]
        return rows if self.in_order else rows[self.rank]

    @property
    def complete(self) -> bool:
        """Whether all outputs have a row at all times."""
        return self.cells.size == len(self.order)


def block_toeplitz(kernel: Kernel, inputs: Inputs) -> BlockToeplitz | No:
    """The covariances by lags, or why there are none."""
    cells = lattice(inputs) if isinstance(inputs, Times) and inputs.which is not None else None
    if cells is None:
        return No("the inputs are not evenly spaced times at which most outputs are seen")
    moves = not_stationary_in_time(kernel)
    if moves is not None:
        return moves
    assert isinstance(inputs, Times)
    times = inputs.t[0] + (inputs.t[-1] - inputs.t[0]) * (np.arange(len(cells)) / (len(cells) - 1))
    return BlockToeplitz(kernel, times, cells, inputs.order, inputs.rank, inputs.in_order)


def lattice(inputs: Times) -> Int[Array, "S P"] | None:
    """The row of each output at each of evenly spaced times; None where they are no such."""
    return inputs.cells if inputs.regular else inputs.steps


@singledispatch
def not_stationary_in_time(kernel: Kernel) -> No | None:
    """Why a kernel on (time, output) is not a function of the two outputs and of the lag, None if it is."""
    return No(f"{type(kernel).__name__} looks at times and outputs together: put it on the times alone, by .on(0)")


@not_stationary_in_time.register(Filters)
@not_stationary_in_time.register(OfModes)
@not_stationary_in_time.register(FIR)
@not_stationary_in_time.register(Constant)
def _(kernel: Kernel) -> None:
    return None


@not_stationary_in_time.register
def _(kernel: On) -> No | None:
    if kernel.dims == (0,):
        return not_stationary(kernel.kernel)
    if kernel.dims == (1,) and isinstance(kernel.kernel, (Coregion, Constant)):
        return None
    return No(f"{type(kernel.kernel).__name__} looks at the number of the output as if it were a place")


@not_stationary_in_time.register
def _(kernel: Sum) -> No | None:
    return next((why for term in kernel.terms if (why := not_stationary_in_time(term))), None)


@not_stationary_in_time.register
def _(kernel: Product) -> No | None:
    return next((why for factor in kernel.factors if (why := not_stationary_in_time(factor))), None)


@not_stationary_in_time.register(Scaled)
@not_stationary_in_time.register(Lagged)
def _(kernel: Scaled | Lagged) -> No | None:
    return not_stationary_in_time(kernel.kernel)
