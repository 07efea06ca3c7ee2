"""Stationary kernels at evenly spaced times: the covariance is a function of the lag, one rule for each node of the algebra."""

from __future__ import annotations

from functools import singledispatch
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ..inputs.layouts import Inputs, Times
from ..kernels.algebra import Kernel, On, Product, Scaled, Sum
from ..kernels.nonstationary import Constant, White
from ..kernels.oscillating import Cosine, DampedOscillator, Periodic, SpectralMixture
from ..kernels.stationary import ProductMatern, Radial, Ricker, Sinc
from .base import No, Structure
from .dense import covariance

SAME = 1e-9  # of a step: what lies closer to a time is that time


class Toeplitz(Structure):
    """A stationary process at evenly spaced times, of which some may have no row."""

    kernel: Kernel
    t: Float[Array, " S"]
    order: Int[Array, " N"]
    rank: Int[Array, " N"]
    in_order: bool = eqx.field(static=True)
    steps: Int[Array, "S 1"] | None = None  # the row at each time, N where there is none

    def lags(self, count: int) -> Float[Array, " count"]:
        """The covariance at lags of 0, 1, 2, … steps."""
        step = (self.t[-1] - self.t[0]) / (len(self.t) - 1)
        return covariance(self.kernel, jnp.zeros((1, 1)), step * jnp.arange(count)[:, None])[0]

    def numbers(self, X: Float[Array, "M D"]) -> Int[Array, " M"]:
        """Which of the times each of these is."""
        step = (self.t[-1] - self.t[0]) / (len(self.t) - 1)
        return jnp.clip(jnp.round((X[:, 0] - self.t[0]) / step).astype(int), 0, len(self.t) - 1)

    def holds(self, X: Any) -> bool:
        """Whether all of these places, which are at hand, are among the times."""
        t, x = np.asarray(self.t), np.asarray(X)[:, 0]
        near = np.clip(np.searchsorted(t, x), 1, len(t) - 1)
        return bool(np.all(np.minimum(np.abs(t[near] - x), np.abs(t[near - 1] - x)) <= SAME * (t[1] - t[0])))

    def in_time(self, values: Float[Array, " N *C"]) -> Float[Array, " S *C"]:
        """Rows in the caller's order, put in the order of time, zero where there is none."""
        rows = values if self.in_order else values[self.order]
        if self.steps is None:
            return rows
        return jnp.concatenate([rows, jnp.zeros_like(rows[:1])])[self.steps[:, 0]]

    def as_given(self, values: Float[Array, " S *C"]) -> Float[Array, " N *C"]:
        """What belongs to the rows, in the caller's order."""
        if self.steps is not None:
            values = values[jnp.nonzero(self.steps[:, 0] < len(self.order), size=len(self.order))[0]]
        return values if self.in_order else values[self.rank]


def toeplitz(kernel: Kernel, inputs: Inputs) -> Toeplitz | No:
    """The covariance by lags, or why it is none."""
    if not isinstance(inputs, Times) or not (inputs.regular or inputs.steps is not None) or inputs.which is not None:
        return No("the inputs are not evenly spaced on a line")
    moves, t = not_stationary(kernel), inputs.t
    if inputs.steps is not None:
        t = t[0] + (t[-1] - t[0]) * (np.arange(len(inputs.steps)) / (len(inputs.steps) - 1))
    return Toeplitz(kernel, t, inputs.order, inputs.rank, inputs.in_order, inputs.steps) if moves is None else moves


@singledispatch
def not_stationary(kernel: Kernel) -> No | None:
    """Why a kernel is not a function of the lag alone, None if it is."""
    return No(f"{type(kernel).__name__} is not stationary, or not known to be")


@not_stationary.register(Radial)
@not_stationary.register(ProductMatern)
@not_stationary.register(Ricker)
@not_stationary.register(Sinc)
@not_stationary.register(Cosine)
@not_stationary.register(Periodic)
@not_stationary.register(DampedOscillator)
@not_stationary.register(SpectralMixture)
@not_stationary.register(Constant)
@not_stationary.register(White)
def _(kernel: Kernel) -> None:
    return None


@not_stationary.register
def _(kernel: Sum) -> No | None:
    return next((why for term in kernel.terms if (why := not_stationary(term))), None)


@not_stationary.register
def _(kernel: Product) -> No | None:
    return next((why for factor in kernel.factors if (why := not_stationary(factor))), None)


@not_stationary.register(Scaled)
@not_stationary.register(On)
def _(kernel: Scaled | On) -> No | None:
    return not_stationary(kernel.kernel)
