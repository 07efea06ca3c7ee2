"""Kernels that know where they are: trends, random walks, splines, networks, half-spaces."""

from __future__ import annotations

import functools
import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import betainc

from .._types import Numbers, Point, Scalar, as_callable, as_float, how_many, whole
from ..parameters.supports import nonnegative, positive, real, simplex
from ..parameters.tree import parameter
from .algebra import Kernel, check_columns, one_coordinate


def whole_number(value: Any) -> int:
    """An order or a degree: 1, 2, 3, …"""
    return whole(value, "an order or degree", 1)


class Constant(Kernel):
    """k = variance: an unknown level."""

    variance: Numbers = parameter(1.0, positive)

    def between(self, x: Point, z: Point) -> Scalar:
        return self.variance * jnp.ones(())


class Linear(Kernel):
    """k = Σ variance_d (x_d − c_d)(z_d − c_d): a straight line (plane) through zero at the centre c."""

    variance: Numbers = parameter(1.0, positive)
    center: Numbers = parameter(0.0, real)

    def between(self, x: Point, z: Point) -> Scalar:
        check_columns(self, x, variance=self.variance, center=self.center)
        return jnp.sum(self.variance * (x - self.center) * (z - self.center))


class Polynomial(Kernel):
    """k = variance · (xᵀz + offset)^degree."""

    variance: Numbers = parameter(1.0, positive)
    offset: Numbers = parameter(1.0, nonnegative)
    degree: int = eqx.field(static=True, default=2, kw_only=True, converter=whole_number)

    def between(self, x: Point, z: Point) -> Scalar:
        return self.variance * (jnp.sum(x * z) + self.offset) ** self.degree


class White(Kernel):
    """k = variance where x equals z, else 0: a function that is fresh at every point, the same each time one looks there."""

    variance: Numbers = parameter(1.0, positive)

    def between(self, x: Point, z: Point) -> Scalar:
        return self.variance * jnp.all(x == z)


class _Integrated(Kernel):
    """Brownian motion integrated order−1 times, from zero at `start` on, both ways."""

    variance: Numbers = parameter(1.0, positive)
    order: int = eqx.field(static=True, default=2, kw_only=True, converter=whole_number)
    start: Scalar = eqx.field(default=0.0, kw_only=True, converter=as_float)

    def between(self, x: Point, z: Point) -> Scalar:
        return self.variance * integrated_wiener(
            one_coordinate(self, x) - self.start, one_coordinate(self, z) - self.start, self.order
        )


class IntegratedWiener(_Integrated):
    """The (order−1)-fold integral of Brownian motion that starts at zero at `start` and runs both ways from there.

    k = variance · ∫₀^a (a−u)^{m−1} (b−u)^{m−1} du / (m−1)!², a ≤ b the distances from the start on the same side.
    """


class Wiener(Kernel):
    """k = variance · min(a, b): Brownian motion from `start`, both ways."""

    variance: Numbers = parameter(1.0, positive)
    start: Scalar = eqx.field(default=0.0, kw_only=True, converter=as_float)

    def between(self, x: Point, z: Point) -> Scalar:
        return self.variance * integrated_wiener(one_coordinate(self, x) - self.start, one_coordinate(self, z) - self.start, 1)


class Spline(_Integrated):
    """The smoothing spline: `IntegratedWiener` plus a polynomial of degree order−1 about which nothing is known.

    The posterior mean minimises Σ(f−y)² + λ∫(f^(order))² with λ = noise/variance, and does not depend on `start`; set it near
    the data for the best conditioning.
    """

    def null_space(self, x: Point) -> Numbers:
        return (one_coordinate(self, x) - self.start) ** jnp.arange(self.order)


def integrated_wiener(x: Any, z: Any, m: int) -> Any:
    """The covariance of the (m−1)-fold integrated Wiener process of unit intensity, started at 0 in both directions."""
    near, far = jnp.abs(x), jnp.abs(z)
    first = near <= far  # chosen, not minimum and abs, whose slopes at x = z belong to neither side
    a, d = jnp.where(first, near, far), jnp.where(first, far - near, near - far)
    terms = (math.comb(m - 1, k) * d ** (m - 1 - k) * a ** (m + k) / (m + k) for k in range(m))
    return jnp.where(x * z > 0, sum(terms) / math.factorial(m - 1) ** 2, 0.0)


class ThinPlate(Kernel):
    """The thin-plate spline in one, two or three dimensions: bending energy ∫ Σ (∂²f)² as the prior, planes left free.

    The radial function of the plate is positive definite only against planes. Taking out its values at a simplex of D+1
    anchors (the origin and one point along each axis, at distance `scale`) makes it a covariance; because planes are free,
    the posterior does not depend on the anchors. Put `scale` near the size of the domain for the best conditioning.
    """

    variance: Numbers = parameter(1.0, positive)
    scale: float = eqx.field(static=True, default=1.0, kw_only=True, converter=float)

    def between(self, x: Point, z: Point) -> Scalar:
        D = x.shape[-1]
        if D > 3:
            raise ValueError(f"ThinPlate is defined for one to three inputs, but the inputs have {how_many(D, 'column')}")
        anchors = np.vstack([np.zeros(D), np.eye(D)])
        x, z = x / self.scale, z / self.scale
        p, q = _barycentric(x), _barycentric(z)
        to_x = jnp.stack([_plate(x - anchor, D) for anchor in anchors])
        to_z = jnp.stack([_plate(z - anchor, D) for anchor in anchors])
        among = jnp.stack([jnp.stack([_plate(jnp.asarray(a - b), D) for b in anchors]) for a in anchors])
        energy = _plate(x - z, D) - p @ to_z - q @ to_x + p @ among @ q
        return self.variance * self.scale ** (4 - D) * energy  # in the units of x, so that the scale drops out

    def null_space(self, x: Point) -> Numbers:
        return _barycentric(x / self.scale)


def _barycentric(x: Any) -> Any:
    """The planes that are one at one anchor and zero at the others."""
    return jnp.concatenate([1 - jnp.sum(x, keepdims=True), x])


def _plate(difference: Any, D: int) -> Any:
    """Green's function of the squared Laplacian in D = 1, 2, 3 dimensions."""
    r2 = jnp.sum(difference**2)
    safe = jnp.where(r2 > 0, r2, 1.0)
    values = {1: safe**1.5 / 12, 2: safe * jnp.log(safe) / (16 * jnp.pi), 3: -jnp.sqrt(safe) / (8 * jnp.pi)}
    return jnp.where(r2 > 0, values[D], 0.0)


class ArcSine(Kernel):
    """An infinite network of error-function units: k = variance · 2/π · asin(2x̃ᵀΣz̃ / √((1+2x̃ᵀΣx̃)(1+2z̃ᵀΣz̃))), x̃ = (1, x)."""

    weight_variance: Numbers = parameter(1.0, positive)
    bias_variance: Numbers = parameter(1.0, positive)
    variance: Numbers = parameter(1.0, positive)

    def between(self, x: Point, z: Point) -> Scalar:
        check_columns(self, x, weight_variance=self.weight_variance)
        inner = lambda a, b: self.bias_variance + jnp.sum(self.weight_variance * a * b)
        ratio = 2 * inner(x, z) / jnp.sqrt((1 + 2 * inner(x, x)) * (1 + 2 * inner(z, z)))
        return self.variance * 2 / jnp.pi * jnp.arcsin(ratio)


class HypothesisClass(Kernel):
    """Labels by a random hypothesis: k = variance · Σ p(h) h(x) h(z) = variance · (1 − 2 P[h(x) ≠ h(z)]).

    `hypotheses` maps a point to an array of ±1, one for each hypothesis; `weights` are their probabilities.
    """

    hypotheses: Any = eqx.field(converter=as_callable)
    weights: Numbers = parameter((0.5, 0.5), simplex)
    variance: Numbers = parameter(1.0, positive)

    def between(self, x: Point, z: Point) -> Scalar:
        return self.variance * jnp.sum(self.weights * self.hypotheses(x) * self.hypotheses(z))


class HalfSpace(Kernel):
    """Labels by a random half-space: k = variance · (1 − 2 P[the boundary parts x from z]).

    The boundary's nearest point to the origin is uniform over a ball of `radius` (or, with ``support="box"``, over the cube
    of that half-width); all inputs must have norm at most `radius`. In many dimensions the kernel tends to a constant:
    `HalfSpaceOverlap` does not.
    """

    radius: float = eqx.field(static=True, default=1.0, converter=float)
    variance: Numbers = parameter(1.0, positive)
    support: str = eqx.field(static=True, default="ball", kw_only=True)

    def __check_init__(self) -> None:
        if self.support not in ("ball", "box"):
            raise ValueError(f"HalfSpace: support must be 'ball' or 'box', got {self.support!r}")

    def check_points(self, X: Any) -> None:
        norm = float(np.sqrt(np.max(np.sum(np.asarray(X) ** 2, axis=1), initial=0.0)))
        if norm > self.radius * (1 + 1e-12):
            raise ValueError(
                f"HalfSpace with radius {self.radius:g} needs inputs with a norm of at most that, but one has {norm:.4g}: "
                "scale the inputs, or raise the radius"
            )

    def between(self, x: Point, z: Point) -> Scalar:
        D = x.shape[-1]
        total = (2 * self.radius) ** D if self.support == "box" else _ball(D) * self.radius**D
        parting = _separating(x) + _separating(z) - 2 * _separating_both(x, z)
        return self.variance * (1 - 2 * parting / total)


class HalfSpaceOverlap(Kernel):
    """k = variance · volume of the half-space boundaries that part both x and z from the origin, plus a bias."""

    variance: Numbers = parameter(1.0, positive)
    bias: Numbers = parameter(1.0, nonnegative)

    def between(self, x: Point, z: Point) -> Scalar:
        return self.variance * _separating_both(x, z) + self.bias


def _ball(D: int) -> Any:
    """The volume of the unit ball."""
    return math.exp(D / 2 * math.log(math.pi) - math.lgamma(D / 2 + 1))


def _separating(x: Any) -> Any:
    """Boundaries between x and the origin: their nearest points fill the ball whose diameter is the segment from 0 to x."""
    D, norm2 = x.shape[-1], jnp.sum(x * x)
    safe = jnp.where(norm2 > 0, norm2, 1.0)  # an odd power of the norm has no slope at the origin
    return jnp.where(norm2 > 0, _ball(D) * (safe / 4) ** (D / 2), 0.0)


def _separating_both(x: Any, z: Any) -> Any:
    """The common part of the two balls: two caps, by the angles at x and at z of the triangle 0, x, z."""
    same = jnp.all(x == z)
    apart = jnp.where(same, x + 1.0, z)  # any other point, so that no angle is undefined
    return jnp.where(same, 0.5 * (_separating(x) + _separating(z)), _cap(x, apart) + _cap(apart, x))


def _cap(x: Any, z: Any) -> Any:
    """The part of the ball of x beyond the plane in which the two spheres meet."""
    D = x.shape[-1]
    edge, norm2 = x - z, jnp.sum(x * x)
    adjacent, length2 = jnp.sum(x * edge), jnp.sum(edge * edge)
    cosine = adjacent / jnp.sqrt(jnp.where(norm2 > 0, norm2 * length2, 1.0))
    return jnp.where(norm2 > 0, _separating(x) * _cap_fraction(D, cosine), 0.0)


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _cap_fraction(D: int, cosine: Any) -> Any:
    """The part of a D-dimensional ball beyond a plane at this cosine of its radius: smooth, though its terms are not."""
    half = 0.5 * betainc((D + 1) / 2, 0.5, jnp.clip(1 - cosine**2, 0.0, 1.0))
    return jnp.where(cosine >= 0, half, 1 - half)


@_cap_fraction.defjvp
def _cap_fraction_jvp(D: int, primals: Any, tangents: Any) -> tuple[Any, Any]:
    (cosine,), (step,) = primals, tangents
    slope = -(jnp.clip(1 - cosine**2, 0.0, 1.0) ** ((D - 1) / 2)) * (_ball(D - 1) / _ball(D))
    return _cap_fraction(D, cosine), slope * step
