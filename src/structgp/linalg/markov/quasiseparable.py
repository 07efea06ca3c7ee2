"""Products with Matérn covariance matrices along sorted lines, in linear time: two scans, no matrix inverted.

With the scaled state of `matern_sde`, u_i = λ (t_i − t_{i−1}), A the transition and V the stationary covariance,

    a_i = A(u_i) a_{i−1} + V h v_i,          b_i = A(u_{i+1})ᵀ b_{i+1} + h v_i,          h = e₁,
    (K v)_i = hᵀa_i + hᵀV b_i − v_i          (unit variance),

and between neighbours, t_i ≤ x < t_j, Σ_k v_k k(x, t_k) = hᵀA(λ(x − t_i)) a_i + hᵀV A(λ(t_j − x))ᵀ b_j for the covariance k.
All lines run in one scan, elementwise: axes are (place, line, column).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from structgp.linalg.markov import matern_sde

FAR = 700.0  # e^{−u} is zero to rounding beyond


class Swept(NamedTuple):
    """What each place has heard from its left (itself included) and from its right (itself included)."""

    left: Float[Array, "N n D C"]
    right: Float[Array, "N n D C"]


def _transition(u: Float[Array, "*shape"], n: int) -> list[list[Array]]:
    """The entries of A(u) one by one, which a scan keeps in registers."""
    terms, decay = matern_sde.nilpotent_terms(n), jnp.exp(-u)
    entry = lambda i, j: decay * sum(term[i, j] * u**k for k, term in enumerate(terms) if term[i, j])
    return [[entry(i, j) for j in range(n)] for i in range(n)]


def _run(u: Float[Array, "N D"], v: Float[Array, "N D C"], n: int, read_left: Any, read_right: Any) -> tuple[Array, Array]:
    """Both scans; at each place `read_left` and `read_right` say what is kept of the n entries of a and b."""
    V = matern_sde.stationary(n)
    u = jnp.minimum(u, FAR)

    def forward(a: tuple[Array, ...], step: tuple[Array, Array]) -> tuple[tuple[Array, ...], Array]:
        gap, weight = step
        A = _transition(gap[:, None], n)
        new = tuple(sum((A[i][j] * a[j] for j in range(n)), start=V[i, 0] * weight) for i in range(n))
        return new, read_left(new)

    def backward(b: tuple[Array, ...], step: tuple[Array, Array]) -> tuple[tuple[Array, ...], Array]:
        gap, weight = step
        A = _transition(gap[:, None], n)
        seen = (weight, *[jnp.zeros(())] * (n - 1))
        new = tuple(sum((A[i][j] * b[i] for i in range(n)), start=seen[j]) for j in range(n))
        return new, read_right(new)

    nothing = tuple(jnp.zeros(v.shape[1:]) for _ in range(n))
    following = jnp.concatenate([u[1:], u[:1]])
    left = jax.lax.scan(forward, nothing, (u, v))[1]
    return left, jax.lax.scan(backward, nothing, (following, v), reverse=True)[1]


def sweep(u: Float[Array, "N D"], v: Float[Array, "N D C"], n: int) -> Swept:
    """The states a and b for scaled gaps u (the first of each line is not used) and weights v, in the order of the lines."""
    return Swept(*_run(u, v, n, jnp.stack, jnp.stack))


def product(u: Float[Array, "N D"], v: Float[Array, "N D C"], n: int) -> Float[Array, "N D C"]:
    """K v along every line, for unit variances."""
    V = matern_sde.stationary(n)
    left, right = _run(u, v, n, lambda a: a[0], lambda b: sum(V[0, i] * b[i] for i in range(n) if V[0, i]))
    return left + right - v


def between(
    swept: Swept, t: Float[Array, "N D"], x: Float[Array, "M D"], rate: Float[Array, " D"], n: int
) -> Float[Array, "M D C"]:
    """The covariance of f at new places of each line with the weighted sum that was swept, for unit variances."""
    V = matern_sde.stationary(n)
    places = len(t)
    after = jax.vmap(lambda line, new: jnp.searchsorted(line, new, side="right"), in_axes=1, out_axes=1)(t, x)
    i, j = jnp.maximum(after - 1, 0), jnp.minimum(after, places - 1)
    line = jnp.arange(t.shape[1])
    from_left = jnp.minimum(rate * jnp.maximum(x - t[i, line], 0.0), FAR)
    from_right = jnp.minimum(rate * jnp.maximum(t[j, line] - x, 0.0), FAR)
    A, B = _transition(from_left[..., None], n), _transition(from_right[..., None], n)
    a, b = jnp.moveaxis(swept.left, 1, -1)[i, line], jnp.moveaxis(swept.right, 1, -1)[j, line]
    lower = sum(A[0][k] * a[..., k] for k in range(n))
    upper = sum(V[0, k] * B[l][k] * b[..., l] for k in range(n) if V[0, k] for l in range(n))
    inside = lambda holds, value: jnp.where(holds[..., None], value, 0.0)
    return inside(after > 0, lower) + inside(after < places, upper)
