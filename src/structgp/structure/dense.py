"""Any kernel anywhere: the covariance matrix, entry by entry.

`covariance` has one rule for each node of the kernel algebra. The general rule evaluates the kernel at every pair; radial
kernels go through one matrix of squared distances, whose adjoint is two matrix products instead of an N × M × D array.
"""

from __future__ import annotations

import functools
import math
import operator
from functools import singledispatch
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._types import double_precision, how_many
from ..inputs.layouts import Inputs, as_inputs, clocks_of
from ..inputs.reading import HUGE
from ..kernels.algebra import Kernel, Product, Scaled, Sum, View
from ..kernels.changepoint import ChangePoint
from ..kernels.filters import FIR, Filters
from ..kernels.induced import Induced
from ..kernels.nonstationary import Constant, Linear, Polynomial, White
from ..kernels.oscillating import Cosine, DampedOscillator, Periodic
from ..kernels.outputs import Coregion, number_of
from ..kernels.stationary import ProductMatern, Radial, Ricker, Sinc
from ..linalg.dense import factors
from .base import Structure

Points = Float[Array, "N D"]
Others = Float[Array, "M D"]
Covariance = Float[Array, "N M"]


class Dense(Structure):
    """A kernel and the places where it is looked at; perhaps with the matrix K already there, and with a root of it."""

    kernel: Kernel
    X: Points
    K: Float[Array, "N N"] | None = None
    root: Float[Array, "N N"] | None = None

    def matrix(self) -> Float[Array, "N N"]:
        """K, the covariance among the places."""
        return covariance(self.kernel, self.X, self.X) if self.K is None else self.K

    def computed(self, signed: bool) -> Dense:
        K = self.matrix()
        return Dense(self.kernel, self.X, K, factors.root(K) if signed else None)

    def __len__(self) -> int:
        return self.X.shape[0]


def dense(kernel: Kernel, inputs: Inputs) -> Dense:
    """Every kernel is dense on every input."""
    return Dense(kernel, jnp.asarray(inputs.points))


@singledispatch
def _covariance(kernel: Kernel, X: Points, Z: Others) -> Covariance:
    """k(x, z) for all rows of X and Z."""
    return jax.vmap(lambda x: jax.vmap(lambda z: kernel.between(x, z))(Z))(X)


@functools.wraps(_covariance)
def _of_rows(kernel: Kernel, X: Any, Z: Any = None) -> Covariance:
    """The same for whatever holds places, by default among those of X."""
    if not isinstance(kernel, Kernel):
        raise TypeError(f"covariance needs a kernel, such as Matern52(), got {kernel!r}")
    return _covariance(kernel, *_places(X, X if Z is None else Z))


def _places(X: Any, Z: Any) -> tuple[Points, Others]:
    """Tables of places: arrays as they are, all else as it is read at the door."""
    if not (_is_table(X) and _is_table(Z)):
        read = as_inputs(X, allow_empty=True, clocks=())
        X, Z = read.points, as_inputs(Z, "Z", allow_empty=True, clocks=clocks_of(read)).points
    X, Z = (places[:, None] if places.ndim == 1 else places for places in (X, Z))
    if X.shape[1] != Z.shape[1]:
        raise ValueError(f"X has {how_many(X.shape[1], 'column')}, but Z has {Z.shape[1]}: give places of one kind")
    return X, Z


def _is_table(X: Any) -> bool:
    if not (type(X) is np.ndarray or isinstance(X, jax.Array)) or X.dtype not in (np.float64, np.float32):
        return False
    held = isinstance(X, jax.Array) or not X.size or float(np.max(np.abs(X))) < HUGE  # which is not so of NaN
    return bool(held) and X.ndim in (1, 2)


covariance: Any = double_precision(_of_rows)  # also a caller's own arrays keep their precision


@covariance.register
def _(kernel: Radial, X: Points, Z: Others) -> Covariance:
    # Without the barrier the scaling is fused into the differences and rounded in two ways: a point is then 1e-17 away from
    # itself, where a rough kernel is as steep as 1e17.
    embedded = jax.lax.optimization_barrier((kernel.embed(X), kernel.embed(Z)))
    return kernel.variance * kernel.profile(squared_distances(*embedded))


@covariance.register
def _(kernel: Sum, X: Points, Z: Others) -> Covariance:
    return functools.reduce(operator.add, (covariance(term, X, Z) for term in kernel.terms))


@covariance.register
def _(kernel: Product, X: Points, Z: Others) -> Covariance:
    K = covariance(kernel.factors[0], X, Z)
    for factor in kernel.factors[1:]:
        K = K * covariance(factor, X, Z)
    return K


@covariance.register
def _(kernel: Scaled, X: Points, Z: Others) -> Covariance:
    return kernel.scale * covariance(kernel.kernel, X, Z)


@covariance.register
def _(kernel: Induced, X: Points, Z: Others) -> Covariance:
    return covariance(kernel.kernel, X, Z)


@covariance.register
def _(kernel: View, X: Points, Z: Others) -> Covariance:
    return covariance(kernel.kernel, kernel.seen(X), kernel.seen(Z))


@covariance.register
def _(kernel: ChangePoint, X: Points, Z: Others) -> Covariance:
    s, t = kernel.weight_after(X)[:, None], kernel.weight_after(Z)[None, :]
    return (1 - s) * (1 - t) * covariance(kernel.before, X, Z) + s * t * covariance(kernel.after, X, Z)


@covariance.register
def _(kernel: Linear, X: Points, Z: Others) -> Covariance:
    return (kernel.variance * (X - kernel.center)) @ (Z - kernel.center).T


@covariance.register
def _(kernel: Polynomial, X: Points, Z: Others) -> Covariance:
    return kernel.variance * (X @ Z.T + kernel.offset) ** kernel.degree


@covariance.register
def _(kernel: Coregion, X: Points, Z: Others) -> Covariance:
    seen = lambda P: jax.nn.one_hot(number_of(P[:, 0]), len(kernel.loadings), dtype=P.dtype)
    return seen(X) @ kernel.matrix() @ seen(Z).T


@covariance.register
def _(kernel: Filters, X: Points, Z: Others) -> Covariance:
    # What belongs to an output is looked up once for each row, so that its derivative is a sum over rows, not over pairs.
    rows, others = (jax.vmap(kernel.heard)(P) for P in (X, Z))
    return jax.vmap(lambda x: jax.vmap(lambda z: kernel.of_pair(x, z))(others))(rows)


@covariance.register
def _(kernel: FIR, X: Points, Z: Others) -> Covariance:
    kernel.check_columns(X.shape[1])
    steps = number_of(X[:, None, :-1] - Z[None, :, :-1])
    return kernel.at_lags(number_of(X[:, -1])[:, None], number_of(Z[:, -1])[None, :], steps)


@singledispatch
def variances(kernel: Kernel, X: Points) -> Float[Array, " N"]:
    """k(x, x) for all rows of X."""
    return jax.vmap(lambda x: kernel.between(x, x))(X)


@variances.register
def _(kernel: Radial, X: Points) -> Float[Array, " N"]:
    return jnp.broadcast_to(kernel.variance, X.shape[:1])


def typical_variance(kernel: Kernel, X: Points) -> Float[Array, ""]:
    """The mean of k(x, x) over some rows of X: a scale for what is too small to matter."""
    return jnp.mean(variances(kernel, X[:: max(1, X.shape[0] // TYPICAL)]))


TYPICAL = 64
_typical = jax.jit(typical_variance)


def variance_on_host(kernel: Kernel, X: Float[Any, "M D"]) -> float:
    """The typical variance as a number, for static choices: no program is compiled where it is the same everywhere."""
    known = constant_variance(kernel)
    return float(_typical(kernel, np.asarray(X))) if known is None else known


@singledispatch
def constant_variance(kernel: Any) -> float | None:
    """k(x, x) where the kernel alone says that it is the same everywhere; else None."""
    return None


@constant_variance.register(Radial)
@constant_variance.register(ProductMatern)
@constant_variance.register(Ricker)
@constant_variance.register(Sinc)
@constant_variance.register(Cosine)
@constant_variance.register(Periodic)
@constant_variance.register(DampedOscillator)
@constant_variance.register(Constant)
@constant_variance.register(White)
def _(kernel: Any) -> float | None:
    return float(kernel.variance)


@constant_variance.register
def _(kernel: Sum) -> float | None:
    return _of_parts(sum, kernel.terms)


@constant_variance.register
def _(kernel: Product) -> float | None:
    return _of_parts(math.prod, kernel.factors)


@constant_variance.register
def _(kernel: Scaled) -> float | None:
    inner = constant_variance(kernel.kernel)
    return None if inner is None else float(kernel.scale) * inner


@constant_variance.register(View)
@constant_variance.register(Induced)
def _(kernel: Any) -> float | None:
    return constant_variance(kernel.kernel)


def _of_parts(together: Any, kernels: tuple[Kernel, ...]) -> float | None:
    found = [constant_variance(kernel) for kernel in kernels]
    return None if any(one is None for one in found) else together(found)


@jax.custom_vjp
def squared_distances(X: Points, Z: Others) -> Any:
    """‖x − z‖² for all rows of X and Z, from the differences themselves: exact for close points."""
    if X.shape[1] <= UNROLLED:
        return sum((X[:, d, None] - Z[None, :, d]) ** 2 for d in range(X.shape[1]))
    return jnp.sum((X[:, None, :] - Z[None, :, :]) ** 2, axis=-1)


UNROLLED = 16  # columns up to which the sum is written out, which vectorises over pairs


def _forward(X: Points, Z: Others) -> tuple[Covariance, tuple[Points, Others]]:
    return squared_distances(X, Z), (X, Z)


def _backward(saved: tuple[Points, Others], G: Covariance) -> tuple[Points, Others]:
    X, Z = saved
    to_X = 2 * (jnp.sum(G, axis=1)[:, None] * X - G @ Z)
    to_Z = 2 * (jnp.sum(G, axis=0)[:, None] * Z - G.T @ X)
    return to_X, to_Z


squared_distances.defvjp(_forward, _backward)
