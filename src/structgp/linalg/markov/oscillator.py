"""A spring with friction, driven by white noise, as a chain.

f″ + 2a f′ + ω² f = w with ω² = a² + b², a the decay and b the frequency of the free motion. In the state (f, f′/ω) the
stationary covariance is variance · I, and

    A(δ) = e^{−aδ} [[cos bδ + (a/b) sin bδ,  (ω/b) sin bδ], [−(ω/b) sin bδ,  cos bδ − (a/b) sin bδ]],
    Q(δ) = 4a · variance · ∫₀^δ c cᵀ,  c the last column of A.

For short gaps the integral is a Gauss–Legendre sum of positive terms, right to the last digit; for long ones Q = V − A V Aᵀ
loses nothing.
"""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .chains import Chain

NODES, WEIGHTS = np.polynomial.legendre.leggauss(12)
SHORT = 1.0  # largest gap, in units of 1/ω, for the sum of positive terms


class Oscillator(Chain):
    """The damped oscillator: covariance variance · e^{−aδ}(cos bδ + (a/b) sin bδ), a the decay, b the frequency."""

    frequency: Float[Array, ""] = eqx.field(converter=jnp.asarray)
    decay: Float[Array, ""] = eqx.field(converter=jnp.asarray)
    variance: Float[Array, ""] = eqx.field(converter=jnp.asarray)

    stationary = True

    @property
    def row(self) -> np.ndarray:
        return np.array([1.0, 0.0])

    @property
    def _natural(self) -> Array:
        """ω, the frequency of the motion without friction."""
        return jnp.sqrt(self.frequency**2 + self.decay**2)

    def start(self) -> Float[Array, "2 2"]:
        return self.variance * jnp.eye(2)

    def generator(self) -> Float[Array, "2 2"]:
        return self._natural * np.array([[0.0, 1.0], [-1.0, 0.0]]) - 2 * self.decay * np.diag([0.0, 1.0])

    def transition(self, gap: Float[Array, "*gaps"]) -> Float[Array, "2 2 *gaps"]:
        fade = jnp.exp(-self.decay * gap)
        c, s = fade * jnp.cos(self.frequency * gap), fade * jnp.sin(self.frequency * gap) / self.frequency
        a, w = self.decay, self._natural
        return jnp.stack([jnp.stack([c + a * s, w * s]), jnp.stack([-w * s, c - a * s])])

    def noise(self, gap: Float[Array, "*gaps"]) -> Float[Array, "2 2 *gaps"]:
        short = self._natural * gap < SHORT
        near = jnp.where(short, gap, 0.0)
        h = 0.5 * near[..., None] * (NODES + 1)
        column = self.transition(h)[:, 1]
        positive = 2 * self.decay * near * jnp.sum(WEIGHTS * column[:, None] * column[None, :], axis=-1)
        A = self.transition(jnp.where(short, SHORT / self._natural, gap))
        shape = (2, 2) + (1,) * jnp.ndim(gap)
        difference = np.eye(2).reshape(shape) - jnp.sum(A[:, None] * A[None, :], axis=2)
        return self.variance * jnp.where(short, positive, difference)
