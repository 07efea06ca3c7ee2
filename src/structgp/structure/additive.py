"""Sums of one-dimensional Matérn terms, each along one column or one direction: a bundle of sorted lines.

`line_of(term, X)` reads one term as a line, by one rule for each node of the kernel algebra, or answers `No` with the reason.
"""

from __future__ import annotations

import math
from functools import singledispatch
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ..inputs.layouts import Inputs
from ..kernels.algebra import Kernel, On, Scaled, Sum
from ..kernels.stationary import HalfIntegerMatern
from ..kernels.views import Project
from .base import No, Structure

MOST_STATES = 4  # beyond Matérn 7/2 the splines of so high a degree lose their digits


class Line(NamedTuple):
    """A Matérn process with `states` states along one line through the inputs."""

    t: Float[Array, " N"]
    rate: Float[Array, ""]
    variance: Float[Array, ""]
    states: int


class Lines(NamedTuple):
    """The places, rates and variances of all terms, side by side."""

    t: Float[Array, "N L"]
    rate: Float[Array, " L"]
    variance: Float[Array, " L"]
    states: int


class Additive(Structure):
    """Lines in the order of each, and the way back to the order of the caller."""

    kernel: Kernel
    t: Float[Array, "N L"]
    order: Int[Array, "N L"]
    rank: Int[Array, "N L"]
    rate: Float[Array, " L"]
    variance: Float[Array, " L"]
    states: int = eqx.field(static=True)

    def sorted(self, values: Float[Array, "N C"]) -> Float[Array, "N L C"]:
        """Rows in the caller's order, in the order of each line."""
        return values[self.order]

    def returned(self, values: Float[Array, "N L C"]) -> Float[Array, "N L C"]:
        """Rows in the order of each line, in the caller's order."""
        return jnp.take_along_axis(values, self.rank[..., None], axis=0)

    def gaps(self) -> Float[Array, "N L"]:
        """The distance of each place from the one before on its line."""
        return jnp.diff(self.t, axis=0, prepend=self.t[:1])


def additive(kernel: Kernel, inputs: Inputs) -> Additive | No:
    """A sum of one-dimensional terms as lines, or why it is not one."""
    lines = lines_of(kernel, jnp.asarray(inputs.points))
    if isinstance(lines, No):
        return lines
    order = jnp.argsort(lines.t, axis=0, stable=True)
    rank = jnp.zeros_like(order).at[order, jnp.arange(order.shape[1])].set(jnp.arange(len(order))[:, None])
    t = jnp.take_along_axis(lines.t, order, axis=0)
    return Additive(kernel, t, order, rank, lines.rate, lines.variance, lines.states)


def lines_of(kernel: Kernel, X: Float[Array, "N D"]) -> Lines | No:
    """All terms of a sum as lines at the rows of X, or why that cannot be."""
    found = [line_of(term, X) for term in terms_of(kernel)]
    for line in found:
        if isinstance(line, No):
            return line
    lines = [line for line in found if isinstance(line, Line)]
    if len({line.states for line in lines}) > 1:
        return No("the terms are not all equally smooth: take the same Matérn kernel for all of them")
    if lines[0].states > MOST_STATES:
        return No(f"{terms_of(kernel)[0]!r} is too smooth for a spline basis: Matern72 is close to it")
    stack = lambda values, axis=0: jnp.stack([jnp.asarray(value) for value in values], axis)
    return Lines(
        stack([line.t for line in lines], 1),
        stack([line.rate for line in lines]),
        stack([line.variance for line in lines]),
        lines[0].states,
    )


lines_on_host: Any = eqx.filter_jit(lines_of)  # the same as one program, where rows are looked at from outside of one


def terms_of(kernel: Kernel) -> tuple[Kernel, ...]:
    """The terms of a sum, or the kernel itself."""
    return kernel.terms if isinstance(kernel, Sum) else (kernel,)


@singledispatch
def line_of(kernel: Kernel, X: Float[Array, "N D"]) -> Line | No:
    """A term as a line, by node."""
    return No(f"{kernel!r} is not a Matérn kernel along one column or direction")


@line_of.register
def _(kernel: HalfIntegerMatern, X: Float[Array, "N D"]) -> Line | No:
    if X.shape[1] != 1:
        return No(f"{kernel!r} acts on {X.shape[1]} columns at once: .on(0) lets it act on one")
    embedded = jnp.linalg.norm(kernel.embed(jnp.ones(1)))
    rate = math.sqrt(2 * kernel.order + 1) * embedded
    return Line(X[:, 0], rate, jnp.reshape(kernel.variance, ()), kernel.order + 1)


@line_of.register
def _(kernel: Scaled, X: Float[Array, "N D"]) -> Line | No:
    inner = line_of(kernel.kernel, X)
    return inner if isinstance(inner, No) else inner._replace(variance=kernel.scale * inner.variance)


@line_of.register
def _(kernel: On, X: Float[Array, "N D"]) -> Line | No:
    return line_of(kernel.kernel, kernel.seen(X))


@line_of.register
def _(kernel: Project, X: Float[Array, "N D"]) -> Line | No:
    if np.ndim(kernel.direction) == 2 and np.shape(kernel.direction)[1] > 1:
        return No(f"{kernel!r} projects on a plane, not on a line")
    return line_of(kernel.kernel, kernel.seen(X))
