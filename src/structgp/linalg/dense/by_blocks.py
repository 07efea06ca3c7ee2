"""A matrix that fits into memory only a few times over: factored where it stands, its inverse met a block of columns at a time.

With B = I + S K S = L Lᵀ as in `cholesky`, columns J = j, …, k − 1 of C⁻¹ = S B⁻¹ S come from two triangular systems. What
is above the diagonal follows by symmetry, and for the rest the rows from j on suffice:

    C⁻¹[j:, J] = S[j:] L[j:, j:]⁻ᵀ L[j:, j:]⁻¹ S[j:, J].

So the derivative of log|C| takes N³ flops with that of the factor, a third of what a whole inverse by products takes, and no
room beyond L, a copy of it and a few blocks.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from .cholesky import FIRST_JITTER, LAST_JITTER, Factor, log_sum

MANY = 8192  # rows from which on compiling the blocks is little beside what they save
BLOCKS = 8

Entries = Callable[[Any, slice, slice], Array]  # K[rows, columns], given its parameters


def blocks(rows: int) -> list[tuple[int, int]]:
    """Where each block of columns begins and ends."""
    ends = [rows * i // BLOCKS for i in range(BLOCKS + 1)]
    return list(itertools.pairwise(ends))


def factorise(entries: Entries, parameters: PyTree, w: Float[Array, " N"]) -> Factor:
    """The factor of I + S K S, with jitter only when needed, and NaN if none was enough; it has no derivative."""
    N, S = len(w), jnp.sqrt(w)
    corners = [jnp.mean(jnp.diagonal(entries(parameters, slice(j, k), slice(j, k)))) * (k - j) for j, k in blocks(N)]
    scale = sum(corners[1:], corners[0]) / N

    def factor(jitter: Array) -> Array:
        B = jnp.zeros((N, N))
        for j, k in blocks(N):  # what is above the diagonal is not looked at
            own = S[j:, None] * entries(parameters, slice(j, N), slice(j, k)) * S[j:k]
            B = B.at[j:, j:k].set(own + jnp.eye(N - j, k - j) * (1.0 + jitter * w[j:k]))
        return jax.lax.linalg.cholesky(B, symmetrize_input=False)

    def fails(state: tuple[Array, Array]) -> Array:
        return jnp.isnan(state[1][-1, -1]) & (state[0] < LAST_JITTER * scale)

    def more(state: tuple[Array, Array]) -> tuple[Array, Array]:
        jitter = jnp.maximum(10 * state[0], FIRST_JITTER * scale)
        return jitter, factor(jitter)

    jitter, L = jax.lax.while_loop(fails, more, (jnp.zeros(()), factor(jnp.zeros(()))))
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
    to_learned, to_diagonal = jax.tree.map(jnp.zeros_like, learned), []
    for j, k in blocks(N):
        own = L[j:, j:]
        half = jax.scipy.linalg.solve_triangular(own, jnp.eye(N - j, k - j) * S[j:k], lower=True)
        inverse = S[j:, None] * jax.scipy.linalg.solve_triangular(own, half, lower=True, trans=1)
        to_C = to[0] * inverse - 0.5 * (alpha[j:] @ both) @ alpha[j:k].T
        to_diagonal.append(jnp.diagonal(to_C))
        twice = to_C * jnp.where(jnp.arange(j, N) < k, 1.0, 2.0)[:, None]  # what is below the diagonal stands above it as well
        seen = lambda learned, j=j, k=k: entries(eqx.combine(learned, fixed), slice(j, N), slice(j, k))
        to_learned = jax.tree.map(jnp.add, to_learned, jax.vjp(seen, learned)[1](twice)[0])
        # one block after the other, so that only one takes room
        to_learned, L, alpha = jax.lax.optimization_barrier((to_learned, L, alpha))
    to_w = jnp.where(w > 0, -jnp.concatenate(to_diagonal) / jnp.where(w > 0, w, 1.0) ** 2, 0.0)
    return to_learned, to_w, alpha @ both
