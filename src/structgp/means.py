"""The mean of a process: a function that is known up to parameters, or a combination of basis functions.

The weights of basis functions are not parameters: they have a Gaussian prior, β ~ N(b, B), and are integrated out with the
process. B may be infinite (the default), which is the semi-parametric model f = βᵀφ(x) + r(x) with nothing known of β.
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from ._types import Numbers, Point, Scalar, as_callable, as_float, is_traced
from .parameters.supports import real
from .parameters.tree import Parametrised, parameter


class Mean(Parametrised):
    """m(x), and the basis functions φ(x) whose weights are integrated out (none, unless it is a `Basis`)."""

    def __call__(self, x: Point) -> Numbers:
        """The known part of the mean at one point; of several latents one for all, or one for each."""
        return jnp.zeros(())

    def features(self, x: Point) -> Numbers:
        """φ(x), an array (p,)."""
        return jnp.zeros(0)

    def precision(self, count: int) -> Numbers:
        """B⁻¹, (p, p); zero when nothing is known of the weights."""
        return jnp.zeros((count, count))

    @property
    def diffuse(self) -> bool:
        """Whether nothing is known of the weights."""
        return True


class ZeroMean(Mean):
    """m(x) = 0."""


class ConstantMean(Mean):
    """m(x) = value."""

    value: Numbers = parameter(0.0, real)

    def __call__(self, x: Point) -> Numbers:
        return jnp.asarray(self.value)


class LinearMean(Mean):
    """m(x) = intercept + slopeᵀx."""

    slope: Numbers = parameter(0.0, real)
    intercept: Numbers = parameter(0.0, real)

    def __call__(self, x: Point) -> Numbers:
        return self.intercept + jnp.sum(self.slope * x)


class LevelOfOutput(Mean):
    """m(x) = the level of the output whose number stands in the last column."""

    levels: Numbers = parameter((0.0, 0.0), real)

    def __call__(self, x: Point) -> Numbers:
        return jnp.asarray(self.levels)[jnp.round(x[-1]).astype(int)]


class FunctionMean(Mean):
    """m(x) by any function of a point (D,); a `Parametrised` callable brings parameters that are learned."""

    function: Any = eqx.field(converter=as_callable)

    def __call__(self, x: Point) -> Scalar:
        value = jnp.asarray(self.function(x))
        if value.size != 1:
            raise ValueError(
                f"a mean function must return one number for a point, but {self.function!r} returned shape {value.shape}: "
                "combine its parts into one, or let Basis(...) learn their weights"
            )
        return jnp.reshape(value, ())


class Basis(Mean):
    """m(x) = βᵀφ(x), β ~ N(mean, covariance) integrated out; without a covariance nothing is known of β.

    `function` maps a point (D,) to φ(x) (p,). `covariance` is a variance for all weights, one for each, or a (p, p) matrix.
    """

    function: Any = eqx.field(converter=as_callable)
    mean: Numbers = eqx.field(default=0.0, converter=as_float)
    covariance: Numbers | None = eqx.field(default=None, converter=as_float)

    def __check_init__(self) -> None:
        if self.covariance is not None and not is_traced(self.covariance):
            B = np.asarray(self.covariance)
            if B.ndim > 2 or not np.isfinite(B).all() or (np.linalg.eigvalsh(B) if B.ndim == 2 else B).min() <= 0:
                raise ValueError(
                    "Basis: covariance must be finite and positive, a variance or a square matrix; "
                    f"leave it out when nothing is known of the weights, got {B.tolist()}"
                )

    def __call__(self, x: Point) -> Scalar:
        phi = self.features(x)
        for name, given in (("mean", self.mean), ("covariance", self.covariance)):
            if given is not None and set(np.shape(given)) - {phi.shape[0]}:
                raise ValueError(f"Basis has {phi.shape[0]} functions, but its {name} has shape {np.shape(given)}")
        return jnp.sum(self.mean * phi)

    def features(self, x: Point) -> Numbers:
        return jnp.ravel(jnp.asarray(self.function(x)))

    def precision(self, count: int) -> Numbers:
        if self.covariance is None:
            return jnp.zeros((count, count))
        B = self.covariance
        return jnp.linalg.inv(B) if np.ndim(B) == 2 else jnp.diag(jnp.broadcast_to(1 / B, (count,)))

    @property
    def diffuse(self) -> bool:
        return self.covariance is None


def polynomial(degree: int = 1) -> Basis:
    """A free polynomial in each coordinate (and a constant), its coefficients integrated out."""
    return Basis(Powers(degree))


class Powers(eqx.Module):
    """φ(x) = (1, x₁, …, x_D, x₁², …, x_D^degree)."""

    degree: int = eqx.field(static=True, default=1)

    def __call__(self, x: Point) -> Numbers:
        return jnp.concatenate([jnp.ones(1), *(x**k for k in range(1, self.degree + 1))])


def as_mean(mean: Any) -> Mean:
    """A mean from None (zero), a number (a constant, learned), a function or a `Mean`."""
    if mean is None:
        return ZeroMean()
    if isinstance(mean, Mean):
        return mean
    if isinstance(mean, (str, bytes, dict)) or (not callable(mean) and np.size(mean) == 0):
        raise TypeError(f"a mean is a number, a function of a point or a Mean such as ConstantMean(), got {mean!r}")
    return FunctionMean(mean) if callable(mean) else ConstantMean(mean)
