"""A matrix that fits into memory only a few times over: factored where it stands, its inverse met a block of columns at a time.

With B = I + S K S = L Lᵀ as in `cholesky`, columns J of C⁻¹ = S B⁻¹ S come from two triangular systems. What is above the
diagonal follows by symmetry, so that of columns from o on the rows from o on suffice:

    C⁻¹[o:, J] = S[o:] L[o:, o:]⁻ᵀ L[o:, o:]⁻¹ S[o:, J].

With a few such o the derivative of log|C| takes 1.3 N³ flops with that of the factor, half of what a whole inverse by products
takes, and no room beyond L, a part of it and a few blocks. Blocks go through loops: written out, they compile for minutes.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree

from .cholesky import FIRST_JITTER, LAST_JITTER, Factor, log_sum

MANY = 8192  # rows from which on compiling the blocks is little beside what they save
CORNERS, EACH = 4, 2  # corners of L that are solved with, and blocks of columns for each

Entries = Callable[[Any, Int[Array, " n"], Int[Array, " m"]], Array]  # K[rows, columns], given its parameters


def _starts(low: int, high: int, count: int) -> tuple[np.ndarray, int]:
    """Where blocks of one width begin that cover what lies between; the last may go over places of the one before."""
    width = -(-(high - low) // count)
    return np.minimum(low + width * np.arange(count), high - width), width


def factorise(entries: Entries, parameters: PyTree, w: Float[Array, " N"]) -> Factor:
    """The factor of I + S K S, with jitter only when needed, and NaN if none was enough; it has no derivative."""
    N, S = len(w), jnp.sqrt(w)
    rows = jnp.arange(N)
    starts, width = _starts(0, N, CORNERS * EACH)
    scale = jnp.mean(jax.lax.map(lambda i: entries(parameters, i[None], i[None])[0, 0], rows, batch_size=width))

    def factor(jitter: Array, room: Array) -> Array:
        def put(B: Array, start: Array) -> tuple[Array, None]:
            columns = start + jnp.arange(width)
            own = S[:, None] * entries(parameters, rows, columns) * S[columns]
            own = own + jnp.where(rows[:, None] == columns, 1.0 + jitter * w[columns], 0.0)
            return jax.lax.dynamic_update_slice(B, own, (0, start)), None

        B = jax.lax.scan(put, room, jnp.asarray(starts))[0]  # all of it is written: where the last attempt stood
        return jax.lax.linalg.cholesky(B, symmetrize_input=False)

    def fails(state: tuple[Array, Array]) -> Array:
        return jnp.isnan(state[1][-1, -1]) & (state[0] < LAST_JITTER * scale)

    def more(state: tuple[Array, Array]) -> tuple[Array, Array]:
        jitter = jnp.where(state[0] < 0, 0.0, jnp.maximum(10 * state[0], FIRST_JITTER * scale))
        return jitter, factor(jitter, state[1])

    jitter, L = jax.lax.while_loop(fails, more, (jnp.full((), -1.0), jnp.full((N, N), jnp.nan)))  # −1: nothing was tried
    return Factor(L, jitter)


@eqx.filter_custom_vjp
def _log_det_and_gram(given: tuple[PyTree, Array, Array], entries: Entries) -> tuple[Array, Array]:
    return _solved(given, entries)[0]


def log_det_and_gram(
    entries: Entries, parameters: PyTree, w: Float[Array, " N"], T: Float[Array, "N C"]
) -> tuple[Float[Array, ""], Float[Array, "C C"]]:
    """log|C| over what was observed, and TᵀC⁻¹T, where K is known by its entries: see `cholesky.log_det_and_gram`."""
    return _log_det_and_gram((parameters, w, T), entries)


def _solved(given: tuple[PyTree, Array, Array], entries: Entries) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    parameters, w, T = given
    L = factorise(entries, parameters, w).L
    U = jax.scipy.linalg.solve_triangular(L, jnp.sqrt(w)[:, None] * T, lower=True)
    return (2 * jnp.sum(jnp.log(jnp.diagonal(L))) - log_sum(w), U.T @ U), (L, U)


@_log_det_and_gram.def_fwd
def _forward(perturbed: Any, given: tuple[PyTree, Array, Array], entries: Entries) -> tuple[Any, tuple[Array, Array]]:
    return _solved(given, entries)


@_log_det_and_gram.def_bwd
def _backward(
    saved: tuple[Array, Array], to: tuple[Array, Array], perturbed: Any, given: tuple[PyTree, Array, Array], entries: Entries
) -> tuple[PyTree, Array, Array]:
    L, U = saved
    parameters, w, _ = given
    N, S = len(w), jnp.sqrt(w)
    both = to[1] + to[1].T
    alpha = S[:, None] * jax.scipy.linalg.solve_triangular(L, U, lower=True, trans=1)
    learned, fixed = eqx.partition(parameters, perturbed[0])
    sums = jax.tree.map(jnp.zeros_like, learned), jnp.zeros(N)
    for corner, end in itertools.pairwise(N * i // CORNERS for i in range(CORNERS + 1)):
        rows, starts, width = jnp.arange(corner, N), *_starts(corner, end, EACH)
        own = L[corner:, corner:]

        def add(sums: Any, block: tuple[Array, Array], rows: Array = rows, width: int = width, own: Array = own) -> Any:
            start, first = block
            columns = start + jnp.arange(width)
            half = jnp.where(rows[:, None] == columns, S[columns], 0.0)
            half = jax.scipy.linalg.solve_triangular(own, half, lower=True)
            inverse = S[rows][:, None] * jax.scipy.linalg.solve_triangular(own, half, lower=True, trans=1)
            to_C = to[0] * inverse - 0.5 * (alpha[rows] @ both) @ alpha[columns].T
            # what is below the diagonal stands above it as well; places that the block before went over are not counted again
            times = jnp.where(rows[:, None] > columns, 2.0, 1.0) * (rows[:, None] >= columns) * (columns >= first)
            seen = lambda learned: entries(eqx.combine(learned, fixed), rows, columns)
            to_learned = jax.tree.map(jnp.add, sums[0], jax.vjp(seen, learned)[1](times * to_C)[0])
            at_columns = jnp.sum(jnp.where(rows[:, None] == columns, to_C, 0.0), axis=0)
            return (to_learned, jax.lax.dynamic_update_slice(sums[1], at_columns, (start,))), None

        firsts = corner + width * np.arange(EACH)
        sums = jax.lax.scan(add, sums, (jnp.asarray(starts), jnp.asarray(firsts)))[0]
        sums, L = jax.lax.optimization_barrier((sums, L))  # one corner after the other: only one takes room
    to_learned, to_diagonal = sums
    to_w = jnp.where(w > 0, -to_diagonal / jnp.where(w > 0, w, 1.0) ** 2, 0.0)
    return to_learned, to_w, alpha @ both
