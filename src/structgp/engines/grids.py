"""What all processes on grids share: cells in the caller's order, and predictions by rows that are Kronecker products."""

from __future__ import annotations

import abc
import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..inputs.layouts import Grid
from ..linalg.grids import kronecker as kron
from ..structure.dense import covariance, variances
from ..structure.kronecker import Kronecker
from .base import Formed


class GridConditional(Formed):
    """A process on a grid given sites: besides scattered places it knows whole grids, at the price of a few products."""

    @abc.abstractmethod
    def on_grid(self, grid: Grid) -> tuple[Float[Array, "M _"], Float[Array, " M"]]:
        """Means and variance at the cells of another grid."""

    @abc.abstractmethod
    def residuals_on_grid(self, grid: Grid, key: Array, n: int) -> Float[Array, "M n"]:
        """n joint draws at the cells of another grid of what the sites leave open."""


def cross(there: Kronecker, here: Kronecker) -> list[Float[Array, "_ _"]]:
    """The covariances between two grids, by factors."""
    return [covariance(k, P, Z) for k, P, Z in zip(here.factors, there.places, here.places, strict=True)]


def contract(rows: list[Float[Array, "M _"]], X: Float[Array, " B *sizes"]) -> Float[Array, "M B"]:
    """Σ over all cells of (row₁ ⊗ … ⊗ row_D) X for each of M places: two halves of the axes, joined by one matrix product."""
    sizes = X.shape[1:]
    halves = [abs(math.log(math.prod(sizes[:d])) - math.log(math.prod(sizes[d:]))) for d in range(1, len(sizes) + 1)]
    at = 1 + int(np.argmin(halves))
    left, right = _join(rows[:at]), _join(rows[at:])
    middle = jnp.einsum("ml,blr->mbr", left, X.reshape(len(X), left.shape[1], -1))
    return jnp.sum(middle, axis=2) if right is None else jnp.einsum("mbr,mr->mb", middle, right)


def row_numbers(sizes: tuple[int, ...], columns: int) -> int:
    """How many numbers `contract` holds for each place."""
    return (columns + 2) * max(math.prod(sizes) // max(sizes), max(sizes))


def _join(rows: list[Float[Array, "M _"]]) -> Float[Array, "M L"]:
    """The Kronecker product of rows, place by place."""
    together = lambda A, B: (A[:, :, None] * B[:, None, :]).reshape(len(A), -1)
    return functools.reduce(together, rows) if rows else None  # type: ignore[return-value]


def rows_of(structure: Kronecker, X: Float[Array, "M D"], part: int | None) -> tuple[list[Array], Float[Array, " M"]]:
    """The covariances of new places with those of each factor, and their prior variances; of one term of a sum if asked for."""
    if part is None:
        return structure.rows(X), variances(structure.kernel, X)
    if len(structure.factors) > 1:
        raise ValueError("the parts of a sum are not to be had on a grid: condition with structure='dense' to have them")
    term = structure.kernel.terms[part]  # type: ignore[attr-defined]
    return [covariance(term, X, structure.places[0])], variances(term, X)


def every_cell(rows: list[Float[Array, "M _"]]) -> Float[Array, "M N"]:
    """The covariances of M places with every cell, written out."""
    return _join(rows)


def prior_draws(structure: Kronecker, key: Array, n: int) -> Float[Array, "N n"]:
    """n joint draws of the process at its places, in the caller's order."""
    roots = kron.eigen(structure.matrices()).root()
    return structure.from_grid(kron.products(roots, jax.random.normal(key, (n, *structure.sizes))))


def joint_draws(
    here: Kronecker, there: Kronecker, key: Array, n: int
) -> tuple[Float[Array, " n *old"], Float[Array, " n *new"]]:
    """n draws of the process on two grids at once."""
    pairs = zip(here.factors, here.places, there.places, strict=True)
    both = [(k, jnp.concatenate([P, Z])) for k, P, Z in pairs]
    roots = kron.eigen([covariance(k, Z, Z) for k, Z in both]).root()
    white = jax.random.normal(key, (n, *(len(Z) for _, Z in both)))
    halves = [(R[: len(P)], R[len(P) :]) for R, P in zip(roots, here.places, strict=True)]
    return kron.products([a for a, _ in halves], white), kron.products([b for _, b in halves], white)
