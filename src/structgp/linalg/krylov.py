"""Conjugate gradients with a preconditioner, and the logarithm of a determinant from the coefficients they leave behind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

Map = Callable[[Any], Any]


class Solved(NamedTuple):
    """x with A x = b, in how many steps, and the step lengths and turns, from which A is known on the space that was seen."""

    x: Float[Array, "*shape"]
    steps: Int[Array, ""]
    lengths: Float[Array, " kept"]
    turns: Float[Array, " kept"]


def conjugate_gradients(
    apply: Map, precondition: Map, b: Float[Array, "*shape"], tolerance: float, most: int, kept: int = 1
) -> Solved:
    """Solve A x = b for a positive definite A, until √(rᵀP⁻¹r) has fallen to `tolerance` times its first value.

    The norm of P⁻¹ is that of the error itself when P is close to A. The first `kept` coefficients are remembered.
    """
    dot = lambda u, v: jnp.sum(u * v)
    z = precondition(b)
    start = dot(b, z)

    def more(state: tuple) -> Array:
        step, _, _, _, rz, _, _ = state
        return (step < most) & (rz > tolerance**2 * start)

    def advance(state: tuple) -> tuple:
        step, x, r, p, rz, lengths, turns = state
        Ap = apply(p)
        length = rz / jnp.maximum(dot(p, Ap), jnp.finfo(rz.dtype).tiny)
        r = r - length * Ap
        z = precondition(r)
        following = jnp.maximum(dot(r, z), 0.0)
        turn = following / rz
        at = jnp.minimum(step, kept - 1)  # what comes after the last is not kept
        keep = lambda old, new: old.at[at].set(jnp.where(step < kept, new, old[at]))
        return step + 1, x + length * p, r, z + turn * p, following, keep(lengths, length), keep(turns, turn)

    state = (jnp.zeros((), int), jnp.zeros_like(b), b, z, start, jnp.ones(kept), jnp.zeros(kept))
    step, x, _, _, _, lengths, turns = jax.lax.while_loop(more, advance, state)
    return Solved(x, step, lengths, turns)


def log_form(solved: Solved) -> Float[Array, ""]:
    """zᵀ log(P^{-½}AP^{-½}) z / zᵀz for b = P^{½}z, by Gauss quadrature with the nodes of Lanczos.

    The tridiagonal matrix of Lanczos is LᵀL-like in the coefficients: T_jj = 1/a_j + b_{j−1}/a_{j−1}, T_{j,j+1} = √b_j/a_j.
    """
    a, b = solved.lengths, solved.turns
    used = jnp.arange(len(a)) < solved.steps
    previous = jnp.concatenate([jnp.zeros(1), b[:-1] / a[:-1]])
    diagonal = jnp.where(used, 1 / a + previous, 1.0)
    beside = jnp.where(used[1:], jnp.sqrt(b[:-1]) / a[:-1], 0.0)
    values, vectors = jnp.linalg.eigh(jnp.diag(diagonal) + jnp.diag(beside, 1) + jnp.diag(beside, -1))
    tiny = jnp.finfo(a.dtype).tiny
    return jnp.sum(vectors[0] ** 2 * jnp.log(jnp.maximum(values, tiny)))
