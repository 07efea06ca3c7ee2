"""Kernels as values in an algebra: sums, products, scalings, and what looks at some of the coordinates."""

from __future__ import annotations

import abc
import numbers
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .._types import Numbers, Point, Scalar, double_precision, how_many
from ..parameters.supports import positive
from ..parameters.tree import Parametrised, fixed, parameter, show


class Kernel(Parametrised):
    """A covariance function: k(x, z) for two points, and the parameters it depends on."""

    @abc.abstractmethod
    def between(self, x: Point, z: Point) -> Scalar:
        """The covariance of f(x) and f(z), for two points of shape (D,)."""

    def null_space(self, x: Point) -> Numbers:
        """The functions that this prior leaves free altogether, at one point: an array (p,), empty for a proper prior."""
        return jnp.zeros(0)

    __array_ufunc__ = None  # an array times a kernel is not an array of kernels

    def check_points(self, X: Any) -> None:
        """Refuse inputs (N, D) for which this kernel is not defined; most are defined everywhere."""
        for part in jax.tree.leaves(list(vars(self).values()), is_leaf=lambda node: isinstance(node, Kernel)):
            if isinstance(part, Kernel):
                part.check_points(X)

    @double_precision
    def __call__(self, x: Any, z: Any) -> Any:
        """The covariance of f(x) and f(z); points with one coordinate may be numbers."""
        return self.between(jnp.atleast_1d(x), jnp.atleast_1d(z))

    def __add__(self, other: Any) -> Kernel:
        if isinstance(other, Kernel):
            return Sum((self, other))
        raise TypeError(f"a kernel is added to kernels, got {other!r}: Constant(variance) is that of an unknown level")

    __radd__ = __add__

    def __mul__(self, other: Any) -> Kernel:
        if isinstance(other, Kernel):
            return Product((self, other))
        if _is_number(other):
            return Scaled(self, fixed(other))
        raise TypeError(f"a kernel is multiplied by kernels, or by one positive number, got {other!r}")

    __rmul__ = __mul__

    def on(self, *dims: int) -> Kernel:
        """This kernel on some of the coordinates only."""
        return On(self, dims)


class Sum(Kernel):
    """The covariance of a sum of independent functions."""

    terms: tuple[Kernel, ...] = eqx.field(converter=lambda terms: _flat(terms, Sum, "terms"))

    def between(self, x: Point, z: Point) -> Scalar:
        return sum(term.between(x, z) for term in self.terms)

    def null_space(self, x: Point) -> Numbers:
        return jnp.concatenate([term.null_space(x) for term in self.terms])

    def __repr__(self) -> str:
        return " + ".join(map(repr, self.terms))


class Product(Kernel):
    """The covariance of a product of independent functions."""

    factors: tuple[Kernel, ...] = eqx.field(converter=lambda factors: _flat(factors, Product, "factors"))

    def between(self, x: Point, z: Point) -> Scalar:
        value = self.factors[0].between(x, z)
        for factor in self.factors[1:]:
            value = value * factor.between(x, z)
        return value

    def null_space(self, x: Point) -> Numbers:
        for factor in self.factors:
            if factor.null_space(x).size:
                raise ValueError(
                    f"{type(factor).__name__} leaves some functions free, so a product with it is not defined; "
                    "add it instead, or use IntegratedWiener"
                )
        return jnp.zeros(0)

    def __repr__(self) -> str:
        return " * ".join(f"({f!r})" if isinstance(f, Sum) else repr(f) for f in self.factors)


class Scaled(Kernel):
    """A kernel times a positive number; written ``2.0 * kernel`` the number is not learned."""

    kernel: Kernel
    scale: Numbers = parameter(1.0, positive)

    def between(self, x: Point, z: Point) -> Scalar:
        return self.scale * self.kernel.between(x, z)

    def null_space(self, x: Point) -> Numbers:
        return self.kernel.null_space(x)

    def __repr__(self) -> str:
        inner = f"({self.kernel!r})" if isinstance(self.kernel, Sum) else repr(self.kernel)
        return f"{show(self.scale)} * {inner}"


def _dims(dims: Any) -> tuple[int, ...]:
    given = list(np.atleast_1d(np.asarray(dims, dtype=object)).ravel())
    whole = all(isinstance(d, (int, np.integer)) and not isinstance(d, bool) for d in given)
    if not given or not whole or len(set(given)) != len(given) or min(given) < 0:
        shown = ", ".join(map(repr, given)) or "none"
        raise ValueError(f"On needs distinct columns by their numbers, counted from 0, as in .on(0, 2); got {shown}")
    return tuple(map(int, given))


class View(Kernel):
    """A kernel of what is seen of x."""

    kernel: Kernel

    @abc.abstractmethod
    def seen(self, x: Numbers) -> Numbers:
        """Places (…, D) as the kernel inside sees them."""

    def check_points(self, X: Any) -> None:
        self.kernel.check_points(np.asarray(self.seen(X)))

    def between(self, x: Point, z: Point) -> Scalar:
        return self.kernel.between(self.seen(x), self.seen(z))

    def null_space(self, x: Point) -> Numbers:
        return self.kernel.null_space(self.seen(x))


class On(View):
    """A kernel on some of the coordinates: ``On(Matern32(), 0)``, ``Matern32().on(0, 2)``."""

    dims: tuple[int, ...] = eqx.field(static=True, default=(0,), converter=_dims)

    def seen(self, x: Numbers) -> Numbers:
        if max(self.dims) >= x.shape[-1]:
            raise ValueError(
                f"On(dims={self.dims}) needs column {max(self.dims)}, but the inputs have {x.shape[-1]}, counted from 0"
            )
        return x[..., list(self.dims)]

    def __repr__(self) -> str:
        inner = f"({self.kernel!r})" if isinstance(self.kernel, (Sum, Product, Scaled)) else repr(self.kernel)
        return f"{inner}.on({', '.join(map(str, self.dims))})"


def combine(kernels: Sequence[Kernel]) -> Sum:
    """A sum of kernels that stay as they are, each times a number: the numbers alone are learned (multiple kernel learning).

    They are the total variance times the shares of the kernels, which `shares` gives.
    """
    parts = tuple(kernels)
    if len(parts) < 2:
        raise ValueError(f"combine needs two kernels or more, got {len(parts)}")
    return Sum(tuple(Scaled(kernel.freeze(), 1.0 / len(parts)) for kernel in parts))


def shares(kernel: Sum) -> np.ndarray:
    """The shares of the kernels in what `combine` made: they sum to one."""
    if not isinstance(kernel, Sum) or not all(isinstance(term, Scaled) for term in kernel.terms):
        raise ValueError(f"shares are of kernels that were put together by combine, got {kernel!r}")
    scales = np.array([float(term.scale) for term in kernel.terms if isinstance(term, Scaled)])
    return scales / scales.sum()


def check_columns(kernel: Kernel, x: Any, **values: Any) -> None:
    """Refuse parameters with one number for each column when the inputs have another number of columns."""
    for name, value in values.items():
        count = np.shape(value)[-1] if np.ndim(value) else 1
        if count not in (1, x.shape[-1]):
            raise ValueError(
                f"{type(kernel).__name__} has {name} for {count} columns but the inputs have {x.shape[-1]}: "
                "give one for each column, or a single number for all"
            )


def one_coordinate(kernel: Kernel, x: Any) -> Any:
    """The only coordinate of a point, for kernels that live on a line."""
    if x.shape[-1] != 1:
        raise ValueError(
            f"{type(kernel).__name__} acts on one input, but the inputs have {how_many(x.shape[-1], 'column')}: "
            f"choose one with {type(kernel).__name__}(...).on(0)"
        )
    return x[..., 0]


def _is_number(value: Any) -> bool:
    return isinstance(value, numbers.Real) or (np.ndim(value) == 0 and not isinstance(value, (str, Parametrised)))


def _flat(parts: Any, kind: type, attribute: str) -> tuple[Kernel, ...]:
    """(a + b) + c is one sum of three; a part with notes of its own stays as it is."""
    flat: list[Kernel] = []
    for part in parts:
        if not isinstance(part, Kernel):
            raise TypeError(f"{kind.__name__} needs kernels, got {part!r}")
        flat += getattr(part, attribute) if isinstance(part, kind) and not part.ties else [part]
    return tuple(flat)
