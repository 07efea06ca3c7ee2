"""Sine features along directions that move.

Along the unit vector u, with t = uᵀx in [−L, L], the features are sin(jπ(t + L)/2L)/√L, j = 1, …, k. On them a Matérn process
with rate λ and n states that vanishes at ±L has independent weights, with variances v q λ^{2n−1}/(λ² + ω²)^n at ω = jπ/2L.
Arrays are feature-major, (features, rows).
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from structgp.linalg.markov.matern_sde import diffusion


@functools.partial(jax.custom_vjp, nondiff_argnums=(1,))
def sines(angle: Float[Array, "*shape"], k: int) -> Float[Array, " k *shape"]:
    """sin(jθ), j = 1, …, k."""
    return _multiples(jnp.sin(angle), jnp.zeros_like(angle), jnp.cos(angle), k)


def cosines(angle: Float[Array, "*shape"], k: int) -> Float[Array, " k *shape"]:
    """j cos(jθ), j = 1, …, k: the derivatives of `sines`."""
    cosine = jnp.cos(angle)
    j = jnp.arange(1.0, k + 1).reshape(k, *(1,) * angle.ndim)
    return j * _multiples(cosine, jnp.ones_like(angle), cosine, k)


def _multiples(first: Array, before: Array, cosine: Array, k: int) -> Array:
    """g(jθ), j = 1, …, k, by Chebyshev's recurrence g(jθ + θ) = 2 cos θ g(jθ) − g(jθ − θ).

    A loop: written out, each of its rows would be computed from the first one on.
    """
    step = lambda pair, _: ((2 * cosine * pair[0] - pair[1], pair[0]), pair[0])
    return jax.lax.scan(step, (first, before), None, length=k)[1]


def _sines_forward(angle: Array, k: int) -> tuple[Array, Array]:
    return sines(angle, k), angle


def _sines_backward(k: int, angle: Array, to_rows: Array) -> tuple[Array]:
    return (jnp.sum(to_rows * cosines(angle, k), axis=0),)


sines.defvjp(_sines_forward, _sines_backward)


def features(U: Float[Array, "M D"], L: Float[Array, " M"], X: Float[Array, "N D"], k: int) -> Float[Array, "F N"]:
    """The k sines of every direction, then the columns of X and a constant: F = kM + D + 1 rows."""
    t = jnp.clip(U @ X.T, -L[:, None], L[:, None])
    waves = sines(jnp.pi / 2 * (t / L[:, None] + 1), k) / jnp.sqrt(L)[:, None]
    return jnp.concatenate([waves.reshape(-1, X.shape[0]), X.T, jnp.ones((1, X.shape[0]))])


def slopes(U: Float[Array, "M D"], L: Float[Array, " M"], X: Float[Array, "N D"], k: int) -> Float[Array, "k M N"]:
    """The derivatives of the sines of every direction in t."""
    t = jnp.clip(U @ X.T, -L[:, None], L[:, None])
    return jnp.pi / 2 * cosines(jnp.pi / 2 * (t / L[:, None] + 1), k) / (L * jnp.sqrt(L))[:, None]


def prior_variances(
    rate: Float[Array, " M"], variance: Float[Array, " M"], L: Float[Array, " M"], k: int, n: int
) -> Float[Array, "k M"]:
    """The prior variances of the weights of the sines."""
    omega = jnp.pi / 2 * jnp.arange(1, k + 1)[:, None] / L
    return variance * diffusion(n) / rate * (1 + (omega / rate) ** 2) ** -n
