"""Sine features along directions that move: sums over rows of their products, in pieces, with gradients in the directions.

Along the unit vector u, with t = uᵀx in [−L, L], the features are sin(jπ(t + L)/2L)/√L, j = 1, …, k. On them a Matérn process
with rate λ and n states that vanishes at ±L has independent weights, with variances v q λ^{2n−1}/(λ² + ω²)^n at ω = jπ/2L.
Arrays are feature-major, (features, rows); memory does not grow with the number of rows, forwards or backwards.
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


@functools.partial(jax.custom_vjp, nondiff_argnums=(4,))
def sums(
    U: Float[Array, "M D"], L: Float[Array, " M"], X: Float[Array, "pieces rows D"], Y: Float[Array, "pieces rows C"], k: int
) -> tuple[Float[Array, "F F"], Float[Array, "F C"]]:
    """ΦΦᵀ and ΦY over all rows; rows whose last column of Y is 0 do not count (that column is the weight's square root)."""

    def add(total: tuple[Array, Array], piece: tuple[Array, Array]) -> tuple[tuple[Array, Array], None]:
        Phi = features(U, L, piece[0], k) * piece[1][:, -1]
        return (total[0] + Phi @ Phi.T, total[1] + Phi @ piece[1]), None

    F = U.shape[0] * k + U.shape[1] + 1
    return jax.lax.scan(add, (jnp.zeros((F, F)), jnp.zeros((F, Y.shape[-1]))), (X, Y))[0]


def _sums_forward(U: Array, L: Array, X: Array, Y: Array, k: int) -> tuple[tuple[Array, Array], tuple[Array, ...]]:
    return sums(U, L, X, Y, k), (U, L, X, Y)


def _sums_backward(k: int, saved: tuple[Array, ...], to_sums: tuple[Array, Array]) -> tuple[Array, Array, None, None]:
    U, L, X, Y = saved
    to_gram = to_sums[0] + to_sums[0].T

    def add(total: tuple[Array, Array], piece: tuple[Array, Array]) -> tuple[tuple[Array, Array], None]:
        x, y = piece
        Phi, pull = jax.vjp(lambda U, L: features(U, L, x, k) * y[:, -1], U, L)
        to_U, to_L = pull(to_gram @ Phi + to_sums[1] @ y.T)
        return (total[0] + to_U, total[1] + to_L), None

    to_U, to_L = jax.lax.scan(add, (jnp.zeros_like(U), jnp.zeros_like(L)), (X, Y))[0]
    return to_U, to_L, None, None


sums.defvjp(_sums_forward, _sums_backward)
