"""Conjugate gradients with a preconditioner, for several right sides at once, judged by the residual itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

AGAIN = 30  # the recurrence for the residual drifts: after so many steps it is computed anew


class Solution(NamedTuple):
    """x with A x ≈ b, the number of products with A, and the largest relative residual ‖b − A x‖/‖b‖ at the end."""

    x: Float[Array, "N C"]
    steps: Int[Array, ""]
    residual: Float[Array, ""]


def solve(
    apply: Callable[[Array], Array],
    precondition: Callable[[Array], Array],
    b: Float[Array, "N C"],
    tolerance: float = 1e-8,
    most: int = 500,
) -> Solution:
    """Solve A x = b for a positive definite A, each column with step lengths of its own, until all residuals are small."""
    norm = jnp.sqrt(jnp.sum(b * b, axis=0))
    norm = jnp.where(norm > 0, norm, 1.0)
    safe = lambda value: jnp.where(value > 0, value, 1.0)
    size = lambda r: jnp.max(jnp.sqrt(jnp.sum(r * r, axis=0)) / norm)

    def step(state: tuple) -> tuple:
        # One product with A and one with the preconditioner, whether this step moves x or computes the residual anew.
        x, r, p, rho, anew, _, _, count = state
        Av = apply(jnp.where(anew, x, p))
        alpha = rho / safe(jnp.sum(p * Av, axis=0))
        x, r = jnp.where(anew, x, x + alpha * p), jnp.where(anew, b - Av, r - alpha * Av)
        z = precondition(r)
        new = jnp.sum(r * z, axis=0)
        p = jnp.where(anew, z, z + new / safe(rho) * p)
        residual = size(r)
        small = residual <= tolerance
        next_anew = ~anew & (small | (count % AGAIN == AGAIN - 1))
        return x, r, p, new, next_anew, anew & small, residual, count + 1

    zero = jnp.zeros_like(b)
    start = (zero, b, zero, jnp.zeros(b.shape[1]), jnp.array(True), jnp.array(False), jnp.array(jnp.inf), jnp.zeros((), int))
    going_on = lambda state: (state[-1] < most) & ~state[-3]
    x, *_, residual, count = jax.lax.while_loop(going_on, step, start)
    return Solution(x, count, residual)
