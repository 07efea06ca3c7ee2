"""Kernels that come back: cosines, periodic functions, damped oscillators, mixtures of spectral lines."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from .._types import Numbers, Point, Scalar
from ..parameters.supports import positive, real
from ..parameters.tree import parameter
from .algebra import Kernel, check_columns, one_coordinate


class Cosine(Kernel):
    """k = variance · Π cos(2πτ/period): a wave of known period and unknown phase."""

    period: Numbers = parameter(1.0, positive)
    variance: Numbers = parameter(1.0, positive)

    def between(self, x: Point, z: Point) -> Scalar:
        check_columns(self, x, period=self.period)
        return self.variance * jnp.prod(jnp.cos(2 * jnp.pi * (x - z) / self.period))


class Periodic(Kernel):
    """k = variance · exp(−2 Σ sin²(πτ/period)/ℓ²): any function that repeats itself exactly."""

    period: Numbers = parameter(1.0, positive)
    lengthscale: Numbers = parameter(1.0, positive)
    variance: Numbers = parameter(1.0, positive)

    def between(self, x: Point, z: Point) -> Scalar:
        check_columns(self, x, period=self.period, lengthscale=self.lengthscale)
        s = jnp.sin(jnp.pi * (x - z) / self.period) / self.lengthscale
        return self.variance * jnp.exp(-2 * jnp.sum(s * s))


class DampedOscillator(Kernel):
    """A spring with friction, shaken by white noise.

    k = variance · e^{−aτ}(cos bτ + (a/b) sin bτ) with a = 1/lifetime and b = 2π/period.
    """

    period: Numbers = parameter(1.0, positive)
    lifetime: Numbers = parameter(1.0, positive)
    variance: Numbers = parameter(1.0, positive)

    def between(self, x: Point, z: Point) -> Scalar:
        difference = one_coordinate(self, x - z)
        tau = jnp.where(difference >= 0, difference, -difference)  # not abs, whose slope at 0 would hide the curvature there
        a, b = 1 / self.lifetime, 2 * jnp.pi / self.period
        return self.variance * jnp.exp(-a * tau) * (jnp.cos(b * tau) + a / b * jnp.sin(b * tau))


class SpectralMixture(Kernel):
    """k = Σ_q weight_q Π_d exp(−2π²τ²bandwidth²) cos(2πτ frequency): Gaussian bumps in the spectrum.

    `weights` has shape (Q,); `frequencies` and `bandwidths` (Q,) or, with one for each column, (Q, D).
    """

    weights: Numbers = parameter((1.0,), positive)
    frequencies: Numbers = parameter((1.0,), real)
    bandwidths: Numbers = parameter((0.1,), positive)

    def __check_init__(self) -> None:
        count = np.shape(self.weights)
        if len(count) != 1 or {np.shape(self.frequencies)[:1], np.shape(self.bandwidths)[:1]} != {count}:
            raise ValueError(
                "SpectralMixture needs as many frequencies and bandwidths as weights, got "
                f"{np.shape(self.weights)}, {np.shape(self.frequencies)}, {np.shape(self.bandwidths)}"
            )

    def between(self, x: Point, z: Point) -> Scalar:
        tau = x - z
        frequencies = jnp.reshape(self.frequencies, (len(self.weights), -1))
        bandwidths = jnp.reshape(self.bandwidths, (len(self.weights), -1))
        check_columns(self, x, frequencies=frequencies, bandwidths=bandwidths)
        bumps = jnp.exp(-2 * (jnp.pi * tau * bandwidths) ** 2) * jnp.cos(2 * jnp.pi * tau * frequencies)
        return jnp.sum(self.weights * jnp.prod(bumps, axis=1))
