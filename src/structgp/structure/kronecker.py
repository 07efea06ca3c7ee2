"""Kernels on grids that factor over the axes: K = K₁ ⊗ … ⊗ K_D, one rule for each node of the kernel algebra.

`factors(kernel, dims)` splits a kernel into factors over disjoint groups of columns. What does not split stays whole, with the
reason; a grid is a Kronecker product if more than one group is left (or one axis is all there is).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from functools import singledispatch
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from .._types import library
from ..inputs.layouts import Grid, Inputs
from ..kernels.algebra import Kernel, On, Product, Scaled, Sum
from ..kernels.metrics import Metric
from ..kernels.nonstationary import Constant, White
from ..kernels.oscillating import Cosine, Periodic
from ..kernels.stationary import Matern, ProductMatern, Radial, Ricker, Sinc, SquaredExponential
from .base import No, Structure
from .dense import covariance, variances


class Factor(NamedTuple):
    """A part of a kernel that sees these columns and no others, and why it does not split further."""

    dims: tuple[int, ...]
    kernel: Kernel
    why: str = ""


class Kronecker(Structure):
    """A product of kernels, each over the places of one axis, or of a few axes that belong together."""

    kernel: Kernel
    factors: tuple[Kernel, ...]
    places: tuple[Float[Array, "_ _"], ...]
    cells: Int[Array, " N"] | None  # flat index of each row, None: all cells in order
    groups: tuple[tuple[int, ...], ...] = eqx.field(static=True)  # the columns that each factor sees
    shape: tuple[int, ...] = eqx.field(static=True)  # the caller's axes
    kept: Int[Array, " S"] | None = None  # which combinations of its axes are places of the first factor, None: all

    @property
    def sizes(self) -> tuple[int, ...]:
        """How many places each factor has."""
        return self._whole if self.kept is None else (len(self.kept), *self._whole[1:])

    def joined(self, which: tuple[int, ...], kept: Int[Array, " S"]) -> Kronecker:
        """Some factors as one, the first, over those of their places together that are kept."""
        rest = [i for i in range(len(self.groups)) if i not in which]
        one = _joined([Factor(self.groups[i], self.factors[i]) for i in which])
        assert one.dims == tuple(d for i in which for d in self.groups[i]), "places are counted in the order of the axes"
        places = functools.reduce(_pairs, [self.places[i] for i in which])[kept], *(self.places[i] for i in rest)
        factors, groups = (one.kernel, *(self.factors[i] for i in rest)), (one.dims, *(self.groups[i] for i in rest))
        return Kronecker(self.kernel, factors, places, self.cells, groups, self.shape, kept)

    def on(self, grid: Grid) -> Kronecker:
        """The same factors on another grid, all of its places."""
        places = tuple(_product_of([grid.axes[d] for d in group]) for group in self.groups)
        return Kronecker(self.kernel, self.factors, places, grid.cells, self.groups, grid.shape)

    def matrices(self) -> tuple[Float[Array, "_ _"], ...]:
        """K_d, the covariance of each factor among its places."""
        return tuple(covariance(k, P, P) for k, P in zip(self.factors, self.places, strict=True))

    def to_grid(self, values: Float[Array, "N C"]) -> Float[Array, " C *sizes"]:
        """Columns in the caller's order as arrays over the grid, zero where there is no row."""
        full = values if self.cells is None else jnp.zeros((math.prod(self.shape), values.shape[1])).at[self.cells].set(values)
        turned = jnp.transpose(full.T.reshape(-1, *self.shape), (0, *(1 + d for d in self._order)))
        arrays = turned.reshape(-1, *self._whole)
        return arrays if self.kept is None else arrays[:, self.kept]

    def from_grid(self, X: Float[Array, " C *sizes"]) -> Float[Array, "N C"]:
        """Arrays over the grid as columns in the caller's order, zero where a place was left out."""
        if self.kept is not None:
            X = jnp.zeros((len(X), *self._whole)).at[:, self.kept].set(X)
        turned = X.reshape(-1, *(self.shape[d] for d in self._order))
        back = jnp.transpose(turned, (0, *(1 + int(d) for d in np.argsort(self._order))))
        full = back.reshape(len(X), -1).T
        return full if self.cells is None else full[self.cells]

    def others(self, d: int) -> Float[Array, "S S"]:
        """The covariance of all factors but one, written out."""
        return functools.reduce(jnp.kron, [K for e, K in enumerate(self.matrices()) if e != d], jnp.ones((1, 1)))

    def along(self, X: Float[Array, " C *sizes"], d: int) -> Float[Array, "C G S"]:
        """Arrays over the grid as tables: the places of one factor by those of all others."""
        return jnp.moveaxis(X, 1 + d, 1).reshape(len(X), self.sizes[d], -1)

    def across(self, table: Float[Array, "C G S"], d: int) -> Float[Array, " C *sizes"]:
        """Such tables as arrays over the grid again."""
        others = [G for e, G in enumerate(self.sizes) if e != d]
        return jnp.moveaxis(table.reshape(len(table), self.sizes[d], *others), 1, 1 + d)

    def rows(self, X: Float[Array, "M D"]) -> list[Float[Array, "M _"]]:
        """Covariances of new places with those of each factor; their product over the factors is that with every cell."""
        parts = zip(self.factors, self.groups, self.places, strict=True)
        return [covariance(k, X[:, list(group)], P) for k, group, P in parts]

    def prior_variances(self) -> list[Float[Array, " _"]]:
        """The variance of each factor at its places."""
        return [variances(k, P) for k, P in zip(self.factors, self.places, strict=True)]

    @property
    def _whole(self) -> tuple[int, ...]:
        return tuple(math.prod(self.shape[d] for d in group) for group in self.groups)

    @property
    def _order(self) -> tuple[int, ...]:
        return tuple(d for group in self.groups for d in group)


def kronecker(kernel: Kernel, inputs: Inputs) -> Kronecker | No:
    """The factors of a kernel over the axes of a grid, or why there is only one."""
    if not isinstance(inputs, Grid):
        return No("the inputs are not a grid (Grid(axis, …) or Grid.from_points(X) makes one)")
    parts = all_factors(kernel, len(inputs.shape))
    if len(parts) == 1 and len(inputs.shape) > 1:
        return No(parts[0].why)
    groups = tuple(part.dims for part in parts)
    places = tuple(_product_of([inputs.axes[d] for d in group]) for group in groups)
    return Kronecker(kernel, tuple(part.kernel for part in parts), places, inputs.cells, groups, inputs.shape)


def all_factors(kernel: Kernel, D: int) -> list[Factor]:
    """Factors that together see each of D columns once, in the order of their first columns."""
    found = factors(kernel, tuple(range(D)))
    unseen = set(range(D)) - {d for part in found for d in part.dims}
    parts = _disjoint([part for part in found if part.dims] + [Factor((d,), Constant(1.0)) for d in sorted(unseen)])
    scales = [part for part in found if not part.dims]
    parts.sort(key=lambda part: part.dims)
    return [_joined([parts[0], *scales]), *parts[1:]] if scales else parts


@singledispatch
def factors(kernel: Kernel, dims: tuple[int, ...]) -> list[Factor]:
    """The kernel, which sees the columns `dims`, as a product over groups of them."""
    return [Factor(dims, kernel, f"{type(kernel).__name__} does not factor over its columns")]


@factors.register
def _(kernel: Radial, dims: tuple[int, ...]) -> list[Factor]:
    name = type(kernel).__name__
    why = f"{name} of the joint distance does not factor over the columns (SquaredExponential and ProductMatern do)"
    return [Factor(dims, kernel, why)]


@factors.register
def _(kernel: SquaredExponential, dims: tuple[int, ...]) -> list[Factor]:
    if isinstance(kernel.lengthscale, Metric):
        return [Factor(dims, kernel, f"{type(kernel.lengthscale).__name__} mixes the columns, so its kernel does not factor")]
    one = lambda d, variance: SquaredExponential(_of_column(kernel.lengthscale, d), variance)
    return _by_column(dims, kernel.variance, one)


@factors.register
def _(kernel: ProductMatern, dims: tuple[int, ...]) -> list[Factor]:
    one = lambda d, variance: Matern(_of_column(kernel.lengthscale, d), variance, nu=kernel.nu)
    return _by_column(dims, kernel.variance, one)


@factors.register
def _(kernel: Sinc, dims: tuple[int, ...]) -> list[Factor]:
    return _by_column(dims, kernel.variance, lambda d, variance: Sinc(_of_column(kernel.bandwidth, d), variance))


@factors.register
def _(kernel: Ricker, dims: tuple[int, ...]) -> list[Factor]:
    return _by_column(dims, kernel.variance, lambda d, variance: Ricker(_of_column(kernel.lengthscale, d), variance))


@factors.register
def _(kernel: Cosine, dims: tuple[int, ...]) -> list[Factor]:
    return _by_column(dims, kernel.variance, lambda d, variance: Cosine(_of_column(kernel.period, d), variance))


@factors.register
def _(kernel: Periodic, dims: tuple[int, ...]) -> list[Factor]:
    one = lambda d, variance: Periodic(_of_column(kernel.period, d), _of_column(kernel.lengthscale, d), variance)
    return _by_column(dims, kernel.variance, one)


@factors.register
def _(kernel: White, dims: tuple[int, ...]) -> list[Factor]:
    return _by_column(dims, kernel.variance, lambda d, variance: White(variance))


@factors.register
def _(kernel: Constant, dims: tuple[int, ...]) -> list[Factor]:
    return [Factor((), kernel)]


@factors.register
def _(kernel: Scaled, dims: tuple[int, ...]) -> list[Factor]:
    return [Factor((), Constant(kernel.scale)), *factors(kernel.kernel, dims)]


@factors.register
def _(kernel: Product, dims: tuple[int, ...]) -> list[Factor]:
    return _disjoint([part for factor in kernel.factors for part in factors(factor, dims)])


@factors.register
def _(kernel: On, dims: tuple[int, ...]) -> list[Factor]:
    return factors(kernel.kernel, tuple(dims[d] for d in kernel.dims))


@factors.register
def _(kernel: Sum, dims: tuple[int, ...]) -> list[Factor]:
    terms = [factors(term, dims) for term in kernel.terms]
    seen = _union(part for term in terms for part in term)
    return [
        Factor(seen, Sum(tuple(_joined(term, seen).kernel for term in terms)), "a sum over several columns does not factor")
    ]


def _by_column(dims: tuple[int, ...], variance: Any, one: Any) -> list[Factor]:
    """A factor for each column; the first carries the variance."""
    return [Factor((d,), one(i, 1.0 if i else variance)) for i, d in enumerate(dims)]


def _of_column(values: Any, i: int) -> Any:
    """One number for all columns, or the one of a column."""
    return library(values).reshape(values, (-1,))[i if np.size(values) > 1 else 0]


def _union(parts: Any) -> tuple[int, ...]:
    return tuple(sorted({d for part in parts for d in part.dims}))


def _disjoint(parts: list[Factor]) -> list[Factor]:
    """Factors that see a common column, joined."""
    done: list[Factor] = []
    for part in parts:
        shares = [other for other in done if set(other.dims) & set(part.dims)]
        done = [other for other in done if other not in shares] + [_joined([*shares, part]) if shares else part]
    return done


def _joined(parts: Sequence[Factor], dims: tuple[int, ...] | None = None) -> Factor:
    """The product of several factors as one, over all columns that they see."""
    dims = _union(parts) if dims is None else dims
    seen_by = lambda part: part.kernel if part.dims in ((), dims) else On(part.kernel, tuple(dims.index(d) for d in part.dims))
    why = next((part.why for part in parts if part.why and len(part.dims) > 1), "its factors share columns")
    kernels = tuple(seen_by(part) for part in parts)
    return Factor(dims, kernels[0] if len(kernels) == 1 else Product(kernels), why)


def _pairs(P: Float[Array, "A D"], Q: Float[Array, "B E"]) -> Float[Array, "AB F"]:
    """Every place of one with every place of the other, the last fastest."""
    return jnp.concatenate([jnp.repeat(P, len(Q), axis=0), jnp.tile(Q, (len(P), 1))], axis=1)


def _product_of(axes: list[Any]) -> Any:
    """All combinations of the places on some axes, one row each, last axis fastest."""
    xp = library(axes[0])
    return xp.stack([xp.ravel(mesh) for mesh in xp.meshgrid(*axes, indexing="ij")], axis=1)
