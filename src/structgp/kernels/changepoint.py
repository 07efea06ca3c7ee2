"""One process hands over to another."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp

from .._types import Numbers, Point, Scalar
from ..parameters.supports import positive, real
from ..parameters.tree import parameter
from .algebra import Kernel


class ChangePoint(Kernel):
    """`before` left of the location, `after` right of it: k = (1−s)(1−s′) k_before + s s′ k_after.

    The hand-over s is a step, or with a `width` the logistic function of (x − location)/width. A step leaves the evidence
    flat in the location: give a width to learn it.
    """

    before: Kernel
    after: Kernel
    location: Numbers = parameter(0.0, real)
    width: Numbers = parameter(None, positive)
    dim: int = eqx.field(static=True, default=0, kw_only=True, converter=int)

    def weight_after(self, x: Numbers) -> Numbers:
        """s(x): how much of the second process is seen at x (…, D)."""
        distance = x[..., self.dim] - self.location
        if self.width is None:
            return jnp.where(distance >= 0, 1.0, 0.0)
        return jax.nn.sigmoid(distance / self.width)

    def between(self, x: Point, z: Point) -> Scalar:
        s, t = self.weight_after(x), self.weight_after(z)
        return (1 - s) * (1 - t) * self.before.between(x, z) + s * t * self.after.between(x, z)

    def null_space(self, x: Point) -> Numbers:
        s = self.weight_after(x)
        return jnp.concatenate([(1 - s) * self.before.null_space(x), s * self.after.null_space(x)])
