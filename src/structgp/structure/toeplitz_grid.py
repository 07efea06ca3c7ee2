"""Grids with a long, evenly spaced axis along which the kernel is stationary: several outputs, sensors, rows of a picture."""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..inputs.layouts import Grid, Inputs, evenly_spaced
from ..kernels.algebra import Kernel
from .base import No, Structure
from .kronecker import Kronecker, all_factors, kronecker
from .toeplitz import SAME, Toeplitz, not_stationary


class ToeplitzGrid(Structure):
    """A Kronecker product of which one factor is a function of the lag at even steps."""

    grid: Kronecker
    line: Toeplitz
    axis: int = eqx.field(static=True)  # which factor runs along the line

    @property
    def kernel(self) -> Kernel:
        """The kernel of the process."""
        return self.grid.kernel

    def tables(self, X: Float[Array, " C *sizes"]) -> Float[Array, "C T S"]:
        """Arrays over the grid as tables: steps along the line, in order, by the places of all other factors."""
        return self.grid.along(X, self.axis)[:, self.line.order]

    def arrays(self, tables: Float[Array, "C T S"]) -> Float[Array, " C *sizes"]:
        """Such tables as arrays over the grid again."""
        return self.grid.across(tables[:, self.line.rank], self.axis)

    def rows(self, X: Float[Array, "M D"]) -> tuple[Float[Array, "M T"], Float[Array, "M S"]]:
        """Covariances of new places with the steps of the line, and with the places of all other factors."""
        rows = self.grid.rows(X)
        along = rows.pop(self.axis)[:, self.line.order]
        others = jnp.ones((len(X), 1))
        for row in rows:
            others = (others[:, :, None] * row[:, None, :]).reshape(len(X), -1)
        return along, others

    def numbers(self, X: Float[Array, "M D"]) -> tuple[Array, ...]:
        """Which place of each factor every one of these cells has."""
        parts = enumerate(zip(self.grid.groups, self.grid.places, strict=True))
        return tuple(self._along(X, group) if i == self.axis else _nearest(X[:, list(group)], P) for i, (group, P) in parts)

    def holds(self, X: np.ndarray) -> bool:
        """Whether all of these places, which are at hand, are cells of the grid."""
        for i, (group, P) in enumerate(zip(self.grid.groups, self.grid.places, strict=True)):
            own = X[:, list(group)]
            places = np.asarray(P)
            if i == self.axis:
                inside = self.line.holds(own)
            else:
                distinct = np.unique(own, axis=0)
                apart = np.abs(distinct[:, None] - places[None]).sum(axis=2).min(axis=1)
                inside = bool(np.all(apart <= SAME * np.ptp(places)))
            if not inside:
                return False
        return True

    def _along(self, X: Float[Array, "M D"], group: tuple[int, ...]) -> Array:
        return self.line.order[self.line.numbers(X[:, list(group)])]


def _nearest(X: Float[Array, "M d"], places: Float[Array, "G d"]) -> Array:
    return jnp.argmin(jnp.sum(jnp.abs(X[:, None] - places[None]), axis=2), axis=1)


def line_factor(kernel: Kernel, inputs: Inputs) -> int | No:
    """Which factor is stationary along an evenly spaced axis of its own, the longest of them; the axes are at hand."""
    if not isinstance(inputs, Grid):
        return No("the inputs are not a grid (Grid(axis, …) or Grid.from_points(X) makes one)")
    found = []
    for i, part in enumerate(all_factors(kernel, len(inputs.shape))):
        regular = len(part.dims) == 1 and evenly_spaced(np.sort(np.asarray(inputs.axes[part.dims[0]])))
        if regular and not_stationary(part.kernel) is None:
            found.append((inputs.shape[part.dims[0]], -i))
    return -max(found)[1] if found else No("no factor is stationary along an evenly spaced axis of its own")


def toeplitz_grid(kernel: Kernel, inputs: Inputs, axis: int) -> ToeplitzGrid | No:
    """The line, which is known, and the factors over the rest."""
    grid = kronecker(kernel, inputs)
    if isinstance(grid, No):
        return grid
    values = jnp.asarray(grid.places[axis][:, 0])
    order = jnp.argsort(values)
    return ToeplitzGrid(grid, Toeplitz(grid.factors[axis], values[order], order, jnp.argsort(order), False), axis)
