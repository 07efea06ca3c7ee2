"""Functions of one distance, which neighbours screen off from the rest: what is near tells nearly all that is known of a place.

`measured` has one rule for each node of the algebra: how large and along which distance a kernel falls off, or why neighbours
do not tell of it. A product over the columns is as sure along a line through a place as across it, so that rows far away on
that line still matter: neighbours settle on a wrong value, and it is refused. `by_difference` is k as a function of x − z.
"""

from __future__ import annotations

import functools
import operator
from functools import singledispatch
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ..inputs.neighbourhood import Neighbourhood
from ..kernels.algebra import Kernel, On, Product, Scaled, Sum
from ..kernels.metrics import Metric
from ..kernels.nonstationary import White
from ..kernels.stationary import ProductMatern, Radial
from .base import No, Structure, first_no

APART = "products over the columns do not fall off with one distance, so that far rows still tell; {instead}"
INSTEAD = "take one kernel with a lengthscale for each column, as in Matern32([1.0, 1.0])"


class Nearest(Structure):
    """A kernel at places that know their neighbours, in blocks (…, B) of rows."""

    kernel: Kernel
    X: Float[Array, "N D"]
    leaves: Int[Array, "leaves size"]
    rows: Int[Array, "blocks B"]
    near: Int[Array, "blocks B m"]

    @classmethod
    def of(cls, kernel: Kernel, places: Neighbourhood) -> Nearest:
        """The prior among neighbours."""
        rows, near = jnp.asarray(places.rows), jnp.asarray(places.near)
        blocks = (-1, places.block)
        return cls(kernel, jnp.asarray(places.X), rows, rows.reshape(blocks), near.reshape(*blocks, near.shape[-1]))


class Measure(NamedTuple):
    """The variance of a function of distance, and Σ of the distance d² = (x − z)ᵀΣ(x − z) along which it falls off."""

    variance: Float[Any, ""]
    metric: Float[Any, "D D"]


@singledispatch
def measured(kernel: Kernel, D: int) -> Measure | No:
    """How large a kernel is and how it falls off, or why neighbours do not tell of it."""
    return No(
        f"{type(kernel).__name__} is not a function of one distance that falls off, so that far rows still tell; {INSTEAD}"
    )


@measured.register
def _(kernel: Radial, D: int) -> Measure:
    E = kernel.embed(jnp.eye(D))
    return Measure(jnp.reshape(kernel.variance, ()), E @ E.T)


@measured.register
def _(kernel: White, D: int) -> Measure:
    return Measure(jnp.reshape(kernel.variance, ()), jnp.zeros((D, D)))


@measured.register
def _(kernel: Scaled, D: int) -> Measure | No:
    inner = measured(kernel.kernel, D)
    return inner if isinstance(inner, No) else Measure(kernel.scale * inner.variance, inner.metric)


@measured.register
def _(kernel: Sum, D: int) -> Measure | No:
    """The metric is that of the curvature: each term counts by its part of the variance of what falls off."""
    terms: list[Any] = [measured(term, D) for term in kernel.terms]
    if no := first_no(*terms):
        return no
    variance = functools.reduce(operator.add, (term.variance for term in terms))
    return Measure(variance, functools.reduce(operator.add, (term.variance / variance * term.metric for term in terms)))


@measured.register
def _(kernel: On, D: int) -> Measure | No:
    if len(kernel.dims) < D:
        return No(
            f"a term on {len(kernel.dims)} of {D} columns does not change along the others, so that far rows still tell; "
            "structure='additive' is for sums of functions of single columns"
        )
    inner = measured(kernel.kernel, D)
    back = np.argsort(kernel.dims)
    return inner if isinstance(inner, No) else Measure(inner.variance, inner.metric[np.ix_(back, back)])


@measured.register(Product)
@measured.register(ProductMatern)
def _(kernel: Product | ProductMatern, D: int) -> No:
    return No(APART.format(instead=INSTEAD))


@singledispatch
def by_difference(kernel: Kernel, d: Float[Array, " D ..."]) -> Float[Array, " ..."]:
    """k as a function of x − z, whose coordinates are the first axis."""
    raise NotImplementedError(f"{type(kernel).__name__} is no function of the difference")


@by_difference.register
def _(kernel: Radial, d: Any) -> Any:
    if isinstance(kernel.lengthscale, Metric):
        E = kernel.embed(jnp.eye(len(d)))
        along = [functools.reduce(operator.add, (E[i, q] * d[i] for i in range(len(d)))) for q in range(E.shape[1])]
    else:
        rate = jnp.broadcast_to(1 / jnp.asarray(kernel.lengthscale), (len(d),))  # many products are quicker than divisions
        along = [rate[i] * d[i] for i in range(len(d))]
    return kernel.variance * kernel.profile(functools.reduce(operator.add, (part * part for part in along)))


@by_difference.register
def _(kernel: White, d: Any) -> Any:
    return kernel.variance * jnp.all(d == 0, axis=0)


@by_difference.register
def _(kernel: Scaled, d: Any) -> Any:
    return kernel.scale * by_difference(kernel.kernel, d)


@by_difference.register
def _(kernel: Sum, d: Any) -> Any:
    return functools.reduce(operator.add, (by_difference(term, d) for term in kernel.terms))


@by_difference.register
def _(kernel: On, d: Any) -> Any:
    return by_difference(kernel.kernel, jnp.stack([d[i] for i in kernel.dims]))
