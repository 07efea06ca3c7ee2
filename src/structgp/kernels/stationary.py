"""Kernels of the difference x − z.

The radial ones are functions of a squared distance, k = variance · profile(d²): written in d² they are smooth where the
process is, so that autodiff is right at d = 0 too. For the Matérn class of order ν = p + ½ with s² = 2ν d²,

    M_p(s) = e^{−s} p!/(2p)! Σ_i (p+i)!/(i!(p−i)!) (2s)^{p−i},      dM_p/d(s²) = −M_{p−1}(s) / (2(2p−1)),

which gives every derivative without a square root of zero.
"""

from __future__ import annotations

import abc
import functools
import math
import numbers
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .._types import Numbers, Point, Scalar
from ..parameters.supports import interval, positive
from ..parameters.tree import parameter
from .algebra import Kernel, check_columns
from .metrics import Metric


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def matern_profile(p: int, s2: Numbers) -> Numbers:
    """The Matérn correlation of order p + ½ at squared distance s² (scaled by 2ν)."""
    s = jnp.sqrt(s2)
    value: Any = 0.0
    for i in range(p + 1):
        weight = math.factorial(p) * math.comb(p, i) * math.factorial(p + i) / (math.factorial(p) * math.factorial(2 * p))
        value = value * (2 * s) + weight if i else weight
    return value * jnp.exp(-s)


@matern_profile.defjvp
def _matern_profile_jvp(p: int, primals: Any, tangents: Any) -> tuple[Any, Any]:
    (s2,), (ds2,) = primals, tangents
    if p > 0:
        slope = -matern_profile(p - 1, s2) / (2 * (2 * p - 1))
    else:
        apart = s2 > 1e-16  # nearer pairs add less than 1e-8 to any gradient, and more than that in rounding
        s = jnp.sqrt(jnp.where(apart, s2, 1.0))
        slope = jnp.where(apart, -jnp.exp(-s) / (2 * s), 0.0)
    return matern_profile(p, s2), slope * ds2


def scaled(kernel: Kernel, x: Any, lengthscale: Any) -> Any:
    """Points divided by one lengthscale, by one for each column, or mapped by a metric."""
    if isinstance(lengthscale, Metric):
        count, embedded = lengthscale.dimension, lengthscale.embed
    else:
        count, embedded = np.shape(lengthscale)[-1] if np.ndim(lengthscale) else 1, lambda x: x / lengthscale
    if count != x.shape[-1] and (isinstance(lengthscale, Metric) or count != 1):
        raise ValueError(
            f"{type(kernel).__name__} has lengthscales for {count} columns but the inputs have {x.shape[-1]}: "
            "give one for each column, or a single number for all"
        )
    return embedded(x)


class Radial(Kernel):
    """k = variance · profile(d²), with d the distance in units of the lengthscale (one, one for each column, or a metric)."""

    lengthscale: Numbers = parameter(1.0, positive)
    variance: Numbers = parameter(1.0, positive)

    @abc.abstractmethod
    def profile(self, d2: Numbers) -> Numbers:
        """The correlation at a squared distance."""

    def embed(self, x: Numbers) -> Numbers:
        """Points (…, D) mapped to where distance is plain and in units of the lengthscale."""
        return scaled(self, x, self.lengthscale)

    def between(self, x: Point, z: Point) -> Scalar:
        difference = self.embed(x) - self.embed(z)
        return self.variance * self.profile(jnp.sum(difference * difference))


class SquaredExponential(Radial):
    """k = variance · exp(−d²/2): infinitely smooth."""

    def profile(self, d2: Numbers) -> Numbers:
        return jnp.exp(-0.5 * d2)


class RationalQuadratic(Radial):
    """k = variance · (1 + d²/2α)^(−α): a mixture of squared exponentials of many lengthscales."""

    alpha: Numbers = parameter(1.0, positive)

    def profile(self, d2: Numbers) -> Numbers:
        return jnp.exp(-self.alpha * jnp.log1p(d2 / (2 * self.alpha)))


class GammaExponential(Radial):
    """k = variance · exp(−d^γ), 0 < γ < 2: from rough to smooth."""

    gamma: Numbers = parameter(1.0, interval(0.0, 2.0))

    def profile(self, d2: Numbers) -> Numbers:
        safe = jnp.where(d2 > 0, d2, 1.0)
        return jnp.where(d2 > 0, jnp.exp(-jnp.exp(0.5 * self.gamma * jnp.log(safe))), 1.0)


class HalfIntegerMatern(Radial):
    """A Matérn kernel of half-integer order ν = p + ½: p times differentiable, a polynomial times an exponential."""

    @property
    @abc.abstractmethod
    def order(self) -> int:
        """p, the number of derivatives that the process has."""

    def profile(self, d2: Numbers) -> Numbers:
        return matern_profile(self.order, (2 * self.order + 1) * d2)


class Matern12(HalfIntegerMatern):
    """k = variance · exp(−d): the Ornstein–Uhlenbeck process, continuous and rough."""

    order = 0


class Matern32(HalfIntegerMatern):
    """k = variance · (1 + √3 d) exp(−√3 d): once differentiable."""

    order = 1


class Matern52(HalfIntegerMatern):
    """k = variance · (1 + √5 d + 5d²/3) exp(−√5 d): twice differentiable."""

    order = 2


class Matern72(HalfIntegerMatern):
    """The Matérn kernel that is three times differentiable."""

    order = 3


MOST_NU = 100.5  # where the smallest coefficient of the polynomial, p!/(2p)!, is 1e-217; not much further it is no number


def half_integer(nu: Any) -> float:
    """ν = ½, 3/2, 5/2, … or a message."""
    if nu is None:
        raise TypeError("Matern needs its order by name, as in Matern(nu=1.5): the first number is the lengthscale")
    if not isinstance(nu, numbers.Real):
        raise TypeError(f"Matern: nu must be one number, half an odd one (0.5, 1.5, 2.5, ...), got {nu!r}")
    nu = float(nu)
    if not (nu > 0 and 2 * nu % 2 == 1):
        raise ValueError(
            f"Matern: nu must be half an odd number (0.5, 1.5, 2.5, ...), got {nu}; SquaredExponential is the limit"
        )
    if float(nu) > MOST_NU:
        raise ValueError(f"Matern: nu must be at most {MOST_NU}, got {nu}; SquaredExponential is the limit")
    return float(nu)


class Matern(HalfIntegerMatern):
    """The Matérn kernel of any half-integer order ν."""

    nu: float = eqx.field(static=True, default=None, kw_only=True, converter=half_integer)

    @property
    def order(self) -> int:
        return round(self.nu - 0.5)


class ProductMatern(Kernel):
    """A product of one-dimensional Matérn kernels, one for each column.

    Not the Matérn kernel of the joint distance (`Matern` with a lengthscale for each column): this one factors over the
    columns, so grids and state spaces can use it, and its contours are not ellipses.
    """

    lengthscale: Numbers = parameter(1.0, positive)
    variance: Numbers = parameter(1.0, positive)
    nu: float = eqx.field(static=True, default=2.5, kw_only=True, converter=half_integer)

    def between(self, x: Point, z: Point) -> Scalar:
        difference = scaled(self, x, self.lengthscale) - scaled(self, z, self.lengthscale)
        return self.variance * jnp.prod(matern_profile(round(self.nu - 0.5), 2 * self.nu * difference**2))


class Ricker(Kernel):
    """k = variance · Π (1 − d²) exp(−d²/2): the derivative of a smooth stationary process, in every column.

    A function with this kernel has an antiderivative that is stationary itself, so that its integral over any range is bounded:
    a strong belief, and a rarely right one.
    """

    lengthscale: Numbers = parameter(1.0, positive)
    variance: Numbers = parameter(1.0, positive)

    def between(self, x: Point, z: Point) -> Scalar:
        d2 = (scaled(self, x, self.lengthscale) - scaled(self, z, self.lengthscale)) ** 2
        return self.variance * jnp.prod((1 - d2) * jnp.exp(-0.5 * d2))


class Sinc(Kernel):
    """Noise through an ideal low-pass filter: k = variance · Π sin(2πBτ)/(2πBτ), with no power above the bandwidth B."""

    bandwidth: Numbers = parameter(1.0, positive)
    variance: Numbers = parameter(1.0, positive)

    def between(self, x: Point, z: Point) -> Scalar:
        check_columns(self, x, bandwidth=self.bandwidth)
        return self.variance * jnp.prod(jnp.sinc(2 * self.bandwidth * (x - z)))
