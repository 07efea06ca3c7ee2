"""Derivatives of the process: which it has, their covariance, and how a chain holds them.

The covariance of derivatives is the derivative of the covariance, Cov(f^(n)(x), f(z)) = ∂ⁿk/∂xⁿ, so autodiff of a kernel gives
both where the kernel says k without a kink. A chain holds them in its state: with f = h(t) z and dz = F z dt + noise,

    f^(n) = Σ_k C(n, k) h^(n−k)(t) F^k z,

as long as the noise does not reach f^(n−1), that is, as long as f has n derivatives (in mean square).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from functools import singledispatch
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..kernels.algebra import Kernel, On, Product, Scaled, Sum
from ..kernels.changepoint import ChangePoint
from ..kernels.induced import Induced
from ..kernels.nonstationary import ArcSine, Constant, IntegratedWiener, Linear, Polynomial, Spline
from ..kernels.oscillating import Cosine, DampedOscillator, Periodic, SpectralMixture
from ..kernels.stationary import HalfIntegerMatern, ProductMatern, RationalQuadratic, Ricker, Sinc, SquaredExponential
from ..kernels.views import Project, Warp
from ..linalg.markov.chains import Chain

Smooth = tuple[float, Kernel]  # how many derivatives, and the term that has no more


@singledispatch
def smoothness(kernel: Kernel) -> Smooth:
    """How many derivatives the process has for certain, and the term that sets the limit: one rule for each node."""
    return 0, kernel


@smoothness.register(SquaredExponential)
@smoothness.register(RationalQuadratic)
@smoothness.register(Ricker)
@smoothness.register(Sinc)
@smoothness.register(Cosine)
@smoothness.register(Periodic)
@smoothness.register(SpectralMixture)
@smoothness.register(Constant)
@smoothness.register(Linear)
@smoothness.register(Polynomial)
@smoothness.register(ArcSine)
def _(kernel: Kernel) -> Smooth:
    return math.inf, kernel


@smoothness.register
def _(kernel: HalfIntegerMatern) -> Smooth:
    return kernel.order, kernel


@smoothness.register
def _(kernel: ProductMatern) -> Smooth:
    return round(kernel.nu - 0.5), kernel


@smoothness.register
def _(kernel: DampedOscillator) -> Smooth:
    return 1, kernel


@smoothness.register(IntegratedWiener)
@smoothness.register(Spline)
def _(kernel: IntegratedWiener | Spline) -> Smooth:
    return kernel.order - 1, kernel


@smoothness.register
def _(kernel: Sum) -> Smooth:
    return _roughest(kernel.terms)


@smoothness.register
def _(kernel: Product) -> Smooth:
    return _roughest(kernel.factors)


@smoothness.register
def _(kernel: ChangePoint) -> Smooth:
    # A step has derivatives everywhere but at the step itself; what is told there is the one from the right.
    return _roughest((kernel.before, kernel.after))


@smoothness.register(Scaled)
@smoothness.register(On)
@smoothness.register(Project)
@smoothness.register(Induced)
@smoothness.register(Warp)  # the warp itself is taken for smooth
def _(kernel: Scaled | On | Project | Induced | Warp) -> Smooth:
    return smoothness(kernel.kernel)


def _roughest(kernels: tuple[Kernel, ...]) -> Smooth:
    return min((smoothness(kernel) for kernel in kernels), key=lambda smooth: smooth[0])


def along(function: Callable[[Any], Any], dim: int, order: int) -> Callable[[Any], Any]:
    """The derivative of a function of a point along one coordinate, `order` times."""
    if order == 0:
        return function
    once = along(function, dim, order - 1)
    return lambda x: jax.jvp(once, (x,), (jnp.zeros_like(x).at[dim].set(1.0),))[1]


def derivative_covariance(
    kernel: Kernel, X: Float[Array, "M D"], Z: Float[Array, "N D"], dim: int, order: int
) -> Float[Array, "M N"]:
    """Cov(f^(order)(x), f(z)) for all rows of X and Z."""
    return jax.vmap(lambda x: jax.vmap(lambda z: along(lambda x: kernel.between(x, z), dim, order)(x))(Z))(X)


def derivative_variances(kernel: Kernel, X: Float[Array, "M D"], dim: int, order: int) -> Float[Array, " M"]:
    """Var f^(order)(x) for all rows of X."""
    between = lambda x, z: along(lambda x: kernel.between(x, z), dim, order)(x)
    return jax.vmap(lambda x: along(lambda z: between(x, z), dim, order)(x))(X)


def gradient_covariance(kernel: Kernel, x: Float[Array, " D"], Z: Float[Array, "N D"]) -> Float[Array, "D N"]:
    """Cov(∇f(x), f(z)) for all rows of Z."""
    return jax.vmap(lambda z: jax.jacfwd(lambda x: kernel.between(x, z))(x), out_axes=1)(Z)


def gradient_variance(kernel: Kernel, x: Float[Array, " D"]) -> Float[Array, "D D"]:
    """Cov ∇f(x)."""
    return jax.jacfwd(lambda z: jax.jacfwd(lambda x: kernel.between(x, z))(x))(x)


def derivative_rows(
    chain: Chain, part: int | None, t: Float[Array, " M"], order: int, which: Any = None
) -> Float[Array, "M D"]:
    """The row that reads f^(order), or that of one part of a sum, out of the chain's own state at each place."""
    F = chain.generator()
    F = jnp.where(jnp.isfinite(F), F, 0.0)  # white noise in another part of the sum
    rows = chain.rows if part is None else functools.partial(chain.part_rows, part)  # type: ignore[attr-defined]
    total = jnp.zeros((len(t), chain.size))
    for k in range(order + 1):
        if k < order and not chain.varies:
            continue
        at = lambda t, which, k=k: _times(lambda s: rows(s, which), order - k)(t)
        row = jax.vmap(at, in_axes=(0, None if which is None else 0))(t, which)
        total = total + math.comb(order, k) * row @ _power(F, k)
    return total


def _times(function: Callable[[Any], Any], order: int) -> Callable[[Any], Any]:
    """The derivative of a function of a number, `order` times."""
    return function if order == 0 else jax.jacfwd(_times(function, order - 1))


def _power(F: Float[Array, "D D"], k: int) -> Any:
    return np.eye(len(F)) if k == 0 else F @ _power(F, k - 1)
