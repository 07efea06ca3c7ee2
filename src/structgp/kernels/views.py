"""Kernels that look at the input through a direction or a warp."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .._types import Numbers, as_callable, how_many
from ..parameters.supports import orthonormal
from ..parameters.tree import parameter, show
from .algebra import Kernel, View


class Project(View):
    """A kernel of wᵀx: along a unit vector (D,), or on the plane spanned by orthonormal columns (D, q)."""

    direction: Numbers = parameter((1.0,), orthonormal)

    def seen(self, x: Numbers) -> Numbers:
        W = jnp.reshape(self.direction, (np.shape(self.direction)[0], -1))
        if W.shape[0] != x.shape[-1]:
            raise ValueError(
                f"Project has a direction in {W.shape[0]} dimensions but the inputs have {how_many(x.shape[-1], 'column')}"
            )
        return x @ W

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


class Warp(View):
    """A kernel of g(x): `function` maps a point (D,) to a point, and may have parameters of its own."""

    function: Any = eqx.field(converter=as_callable)

    def check_points(self, X: Any) -> None:
        """What the inner kernel sees is known only when it is computed."""

    def seen(self, x: Numbers) -> Numbers:
        return jnp.atleast_1d(self.function(x)) if np.ndim(x) == 1 else jax.vmap(self.seen)(x)
