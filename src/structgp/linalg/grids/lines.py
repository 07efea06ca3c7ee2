"""A grid seen along one of its axes: C = K_line ⊗ K + noise·I, by the eigenvectors of K, each of them a line of its own.

With K = UΓUᵀ over the places, C falls into one system γ_jK_line + noise·I for each eigenvector. The derivative in K never meets
that of an eigendecomposition: with U held, UᵀKU enters by its diagonal γ and, beside it, where it is zero, by its slope

    d(TᵀC⁻¹T) = −Σ_{i≠j} d(UᵀKU)_ij α̃_iᵀK_line α̃_j,   K_line α̃_j = (T̃_j − noise·α̃_j)/γ_j.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from . import kronecker as kron

# Of all lines at once: (what K_line is made of, γ, noise, columns (S, C, T)) ↦ Σ log|γ_jK_line + noise·I| and Σ of their grams.
Lines = Callable[[Any, Array, Array, Array], tuple[Array, Array]]


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def log_det_and_gram(
    lines: Lines, line: Any, K: Float[Array, "S S"], noise: Float[Array, ""], Y: Float[Array, "C T S"]
) -> tuple[Float[Array, ""], Float[Array, "C C"]]:
    """log|C| and YᵀC⁻¹Y, differentiable in everything."""
    parts = kron.eigen([K])
    return lines(line, parts.values[0], noise, jnp.moveaxis(Y @ parts.vectors[0], 2, 0))


def _forward(lines: Lines, line: Any, K: Array, noise: Array, Y: Array) -> tuple[tuple[Array, Array], tuple]:
    parts = kron.eigen([K])
    gamma, U = parts.values[0], parts.vectors[0]
    turned = jnp.moveaxis(Y @ U, 2, 0)  # (S, C, T)
    found, pull = jax.vjp(lines, line, gamma, noise, turned)
    return found, (pull, U, gamma, noise, turned)


def _backward(lines: Lines, saved: tuple, adjoints: tuple[Array, Array]) -> tuple[Any, Array, Array, Array]:
    pull, U, gamma, noise, turned = saved
    of_log_det, of_gram = adjoints
    S = 0.5 * (of_gram + of_gram.T)
    to_line, to_gamma, to_noise, to_turned = pull((of_log_det, S))
    weighted = 0.5 * to_turned  # α̃ S
    middle = jnp.diag(to_gamma) - _beside(weighted, _alpha(pull, weighted, S), gamma, noise, turned)
    return to_line, U @ middle @ U.T, to_noise, jnp.moveaxis(to_turned, 0, 2) @ U.T


log_det_and_gram.defvjp(_forward, _backward)


def _alpha(pull: Any, weighted: Float[Array, "S C T"], S: Float[Array, "C C"]) -> Float[Array, "S C T"]:
    """α̃ from α̃ S: by division for one column; for several by the adjoint of TᵀC⁻¹T at the identity."""
    if len(S) == 1:
        return jnp.where(S == 0, 0.0, weighted / jnp.where(S == 0, 1.0, S))
    return 0.5 * pull((jnp.zeros(()), jnp.eye(len(S))))[3]


def _beside(weighted: Array, alpha: Array, gamma: Array, noise: Array, turned: Array) -> Float[Array, "S S"]:
    """α̃_iᵀ S K_line α̃_j for i ≠ j, from the larger of the two eigenvalues, and 0 on the diagonal."""
    told = gamma > 0
    onward = jnp.where(told[:, None, None], (turned - noise * alpha) / jnp.where(told, gamma, 1.0)[:, None, None], 0.0)
    pairs = jnp.einsum("ict,jct->ij", weighted, onward)
    pairs = jnp.where(gamma[:, None] <= gamma[None, :], pairs, pairs.T)
    return pairs * (1 - jnp.eye(len(gamma)))
