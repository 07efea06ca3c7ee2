"""Kernels that look at the input through something: some coordinates, a direction, a warp."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from .._types import Numbers, Point, Scalar, as_callable, how_many
from ..parameters.supports import orthonormal
from ..parameters.tree import parameter, show
from .algebra import Kernel, Product, Scaled, Sum


def _dims(dims: Any) -> tuple[int, ...]:
    given = list(np.atleast_1d(np.asarray(dims, dtype=object)).ravel())
    whole = all(isinstance(d, (int, np.integer)) and not isinstance(d, bool) for d in given)
    if not given or not whole or len(set(given)) != len(given) or min(given) < 0:
        shown = ", ".join(map(repr, given)) or "none"
        raise ValueError(f"On needs distinct columns by their numbers, counted from 0, as in .on(0, 2); got {shown}")
    return tuple(map(int, given))


class On(Kernel):
    """A kernel on some of the coordinates: ``On(Matern32(), 0)``, ``Matern32().on(0, 2)``."""

    kernel: Kernel
    dims: tuple[int, ...] = eqx.field(static=True, default=(0,), converter=_dims)

    def select(self, x: Numbers) -> Numbers:
        """The coordinates (…, d) that the kernel sees."""
        if max(self.dims) >= x.shape[-1]:
            raise ValueError(
                f"On(dims={self.dims}) needs column {max(self.dims)}, but the inputs have {x.shape[-1]}, counted from 0"
            )
        return x[..., list(self.dims)]

    def check_points(self, X: Any) -> None:
        self.kernel.check_points(self.select(X))

    def between(self, x: Point, z: Point) -> Scalar:
        return self.kernel.between(self.select(x), self.select(z))

    def null_space(self, x: Point) -> Numbers:
        return self.kernel.null_space(self.select(x))

    def __repr__(self) -> str:
        inner = f"({self.kernel!r})" if isinstance(self.kernel, (Sum, Product, Scaled)) else repr(self.kernel)
        return f"{inner}.on({', '.join(map(str, self.dims))})"


class Project(Kernel):
    """A kernel of wᵀx: along a unit vector (D,), or on the plane spanned by orthonormal columns (D, q)."""

    kernel: Kernel
    direction: Numbers = parameter((1.0,), orthonormal)

    def project(self, x: Numbers) -> Numbers:
        """The coordinates (…, q) along the directions."""
        W = jnp.reshape(self.direction, (np.shape(self.direction)[0], -1))
        if W.shape[0] != x.shape[-1]:
            raise ValueError(
                f"Project has a direction in {W.shape[0]} dimensions but the inputs have {how_many(x.shape[-1], 'column')}"
            )
        return x @ W

    def check_points(self, X: Any) -> None:
        self.kernel.check_points(np.asarray(self.project(X)))

    def between(self, x: Point, z: Point) -> Scalar:
        return self.kernel.between(self.project(x), self.project(z))

    def null_space(self, x: Point) -> Numbers:
        return self.kernel.null_space(self.project(x))

    def __repr__(self) -> str:
        return f"Project({self.kernel!r}, direction={show(self.direction)})"


def Rotated(kernel: Kernel, rotation: Any = None) -> Project:
    """A kernel with a lengthscale for each column, in coordinates that are turned: `Project` on a square orthonormal matrix.

    The rotation is learned with all else, from none; ``gp.fit(X, y, rotations=20)`` also starts from random ones.
    """
    D = np.size(getattr(kernel, "lengthscale", 1.0))
    if rotation is None and D < 2:
        raise ValueError(f"Rotated needs a kernel with a lengthscale for each of several columns, got {kernel!r}")
    return Project(kernel, np.eye(D) if rotation is None else rotation)


class Warp(Kernel):
    """A kernel of g(x): `function` maps a point (D,) to a point, and may have parameters of its own."""

    kernel: Kernel
    function: Any = eqx.field(converter=as_callable)

    def check_points(self, X: Any) -> None:
        """What the inner kernel sees is known only when it is computed."""

    def between(self, x: Point, z: Point) -> Scalar:
        return self.kernel.between(jnp.atleast_1d(self.function(x)), jnp.atleast_1d(self.function(z)))

    def null_space(self, x: Point) -> Numbers:
        return self.kernel.null_space(jnp.atleast_1d(self.function(x)))
