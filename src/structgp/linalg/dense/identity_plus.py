"""The determinant of I + G and quadratic forms in its inverse, with derivatives that cost one inverse."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


@jax.custom_vjp
def log_det_and_forms(G: Float[Array, "F F"], b: Float[Array, "F C"]) -> tuple[Float[Array, ""], Float[Array, "C C"]]:
    """log|I + G| and bᵀ(I + G)⁻¹b for G ⪰ 0."""
    return _forward(G, b)[0]


def _forward(G: Array, b: Array) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    root = jnp.linalg.cholesky(jnp.eye(len(b)) + G)
    u = jax.scipy.linalg.cho_solve((root, True), b)
    return (2 * jnp.sum(jnp.log(jnp.diagonal(root))), b.T @ u), (root, u)


def _backward(saved: tuple[Array, Array], to: tuple[Array, Array]) -> tuple[Array, Array]:
    root, u = saved
    inverse = jax.scipy.linalg.cho_solve((root, True), jnp.eye(len(u)))
    return to[0] * inverse - u @ to[1] @ u.T, u @ (to[1] + to[1].T)


log_det_and_forms.defvjp(_forward, _backward)


def solve_lower(root: Float[Array, "*L m m"], columns: Float[Array, "*L m C"], few: int) -> Float[Array, "*L m C"]:
    """R⁻¹ times columns for a lower triangle R; if they are not few, by its inverse: products are several times faster."""
    if columns.shape[-1] <= few:
        return jax.scipy.linalg.solve_triangular(root, columns, lower=True)
    inverse = jax.scipy.linalg.solve_triangular(root, jnp.broadcast_to(jnp.eye(root.shape[-1]), root.shape), lower=True)
    return inverse @ columns
