"""What a kernel is expected to be between places that are only believed, N(μ_n, diag S_n), and others, by node.

For the squared exponential, with lengthscales ℓ and pairs ū = (u + u')/2,

    ⟨k(z_n, u)⟩          = v Π_q exp(−(μ − u)²/2(S + ℓ²)) / √(1 + S/ℓ²),
    ⟨k(z_n, u)k(z_n, u')⟩ = v² e^{−Σ(u − u')²/4ℓ²} Π_q exp(−(μ − ū)²/(2S + ℓ²)) / √(1 + 2S/ℓ²),

whose exponents are matrix products of rows with pairs, so that nothing larger than rows times pairs is made, block by block.
"""

from __future__ import annotations

from functools import singledispatch
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..kernels.algebra import Kernel
from ..kernels.metrics import Metric
from ..kernels.stationary import SquaredExponential
from ..linalg.features.totals import in_blocks
from .base import No

ROWS = 512  # whose products with all pairs are held at a time


class Expectations(NamedTuple):
    """⟨k(z, z)⟩, ⟨k(z, u)⟩, and the sums of ⟨k(z, u)k(z, u')⟩ over rows with several sets of weights."""

    k: Float[Array, " N"]
    K: Float[Array, "M N"]
    KK: Float[Array, "P M M"]


@singledispatch
def expected(
    kernel: Kernel, mean: Float[Array, "N Q"], spread: Float[Array, "N Q"], U: Float[Array, "M Q"], weights: Float[Array, "N P"]
) -> Expectations | No:
    """Expectations over places with these means and variances; `weights` are those of the sums over rows."""
    return No(f"expectations of {type(kernel).__name__} over a Gaussian are not known: take SquaredExponential")


@expected.register
def _(
    kernel: SquaredExponential,
    mean: Float[Array, "N Q"],
    spread: Float[Array, "N Q"],
    U: Float[Array, "M Q"],
    weights: Float[Array, "N P"],
) -> Expectations | No:
    if isinstance(kernel.lengthscale, Metric):
        return No("expectations over a Gaussian are known for lengthscales, not for a metric: give one number for each column")
    mean, U, S = mean / kernel.lengthscale, U / kernel.lengthscale, spread / jnp.square(kernel.lengthscale)
    M, v = len(U), kernel.variance
    once = v * jnp.exp(-0.5 * jnp.sum(jnp.log1p(S), axis=1)[:, None] - 0.5 * _distances(mean, 1 / (1 + S), U))
    i, j = np.tril_indices(M)
    middle, apart = 0.5 * (U[i] + U[j]), 0.25 * jnp.sum((U[i] - U[j]) ** 2, axis=1)

    @jax.checkpoint
    def add(total: Array, block: tuple[Array, Array, Array]) -> tuple[Array, None]:
        mean, S, weights = block
        exponent = -0.5 * jnp.sum(jnp.log1p(2 * S), axis=1)[:, None] - _distances(mean, 1 / (1 + 2 * S), middle)
        return total + weights.T @ jnp.exp(exponent), None

    rows = tuple(in_blocks(values, ROWS) for values in (mean, S, weights))
    sums, _ = jax.lax.scan(add, jnp.zeros((weights.shape[1], len(i))), rows)
    lower = v**2 * sums * jnp.exp(-apart)
    number = np.zeros((M, M), int)
    number[i, j] = number[j, i] = np.arange(len(i))
    return Expectations(jnp.full(len(mean), v), once.T, lower[:, number])


def _distances(X: Float[Array, "N Q"], a: Float[Array, "N Q"], Z: Float[Array, "M Q"]) -> Float[Array, "N M"]:
    """Σ a (x − z)² for rows with weights of their own; of numbers of order one, so that products lose no digits that count."""
    return jnp.maximum(jnp.sum(a * X * X, axis=1)[:, None] - 2 * (a * X) @ Z.T + a @ (Z * Z).T, 0.0)
