"""A small symmetric matrix at each of N places, in the form that says most of it.

(N,) is a number at each place, (N, C) a diagonal matrix, (N, C, C) any matrix, and `Contrasts` the curvature of a softmax.
Vectors at the places are (N,) or (N, C); a further axis holds several columns of them.
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float


class Contrasts(eqx.Module):
    """diag(a) − aaᵀ/Σa at each place, a ≥ 0: what a softmax that counts Σa times says of its C values; nothing where a = 0."""

    a: Float[Array, "N C"]

    @property
    def shares(self) -> Float[Array, "N C"]:
        """a/Σa."""
        total = jnp.sum(self.a, axis=-1, keepdims=True)
        return self.a / jnp.where(total > 0, total, 1.0)


Blocks = Float[Array, " N"] | Float[Array, "N C"] | Float[Array, "N C C"] | Contrasts


def full(P: Blocks) -> Float[Array, "N C C"]:
    """The matrices entry by entry."""
    if isinstance(P, Contrasts):
        return diagonals(P.a) - P.a[..., :, None] * P.shares[..., None, :]
    return P if P.ndim == 3 else diagonals(P if P.ndim == 2 else P[:, None])


def diagonals(values: Float[Array, "... C"]) -> Float[Array, "... C C"]:
    """Diagonal matrices."""
    return values[..., None] * jnp.eye(values.shape[-1])


def own(P: Float[Array, " N *C"]) -> Float[Array, " N *own"]:
    """The diagonals of matrices that may be full."""
    return jnp.diagonal(P, axis1=1, axis2=2) if P.ndim == 3 else P


def times(P: Blocks, f: Float[Array, " N *rest"]) -> Float[Array, " N *rest"]:
    """P f at every place, of one vector there or of several columns."""
    if isinstance(P, Contrasts):
        af = _columnwise(P.a, f) * f
        return af - _columnwise(P.shares, f) * jnp.sum(af, axis=1, keepdims=True)
    return jnp.einsum("ncd,nd...->nc...", P, f) if P.ndim == 3 else _columnwise(P, f) * f


def _columnwise(values: Array, f: Array) -> Array:
    return values if f.ndim == values.ndim else values[..., None]


def dot(f: Float[Array, " N *C"], g: Float[Array, " N *C"]) -> Float[Array, " N"]:
    """fᵀg at every place."""
    return f * g if f.ndim == 1 else jnp.sum(f * g, axis=1)


def trace(P: Any, S: Float[Array, " N *C"]) -> Float[Array, " N"]:
    """tr(P S) at every place, for a matrix S in the same form, or a full one."""
    product = (full(P) if S.ndim == 3 else P) * S
    return jnp.sum(product, axis=tuple(range(1, product.ndim)))


def lifted(P: Float[Array, " N *C"]) -> Float[Array, " N *C"]:
    """The nearest matrices that have no negative eigenvalue."""
    if P.ndim < 3:
        return jnp.maximum(P, 0.0)
    weights, rows = scalar_factors(P)
    return jnp.einsum("nk,nkc,nkd->ncd", jnp.maximum(weights, 0.0), rows, rows)


def on_each(number: Any, part: Float[Array, " N *rest"]) -> Any:
    """A number for all places, or one for each, ready to meet what has more axes."""
    return jnp.reshape(number, jnp.shape(number) + (1,) * (part.ndim - 1)) if jnp.ndim(number) else number


def scalar_factors(P: Blocks) -> tuple[Float[Array, "N C"], Float[Array, "N C C"]]:
    """Weights w and rows r with P = Σ_k w_k r_k r_kᵀ."""
    if isinstance(P, Contrasts):
        return P.a, jnp.eye(P.a.shape[1]) - P.shares[:, None, :]
    if P.ndim == 2:
        return P, jnp.broadcast_to(jnp.eye(P.shape[1]), (*P.shape, P.shape[1]))
    if P.shape[1] != 2:
        values, vectors = jnp.linalg.eigh(P)
        return values, jnp.swapaxes(vectors, 1, 2)
    (a, b), c = (P[:, 0, 0], P[:, 0, 1]), P[:, 1, 1]  # one rotation, many times cheaper than calls of an eigensolver
    middle, half = 0.5 * (a + c), jnp.hypot(0.5 * (a - c), b)
    angle = 0.5 * jnp.arctan2(2 * b, a - c)
    cos, sin = jnp.cos(angle), jnp.sin(angle)
    return jnp.stack([middle + half, middle - half], 1), jnp.stack([jnp.stack([cos, sin], 1), jnp.stack([-sin, cos], 1)], 1)
