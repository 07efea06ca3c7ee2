"""Sums over rows: all that a linear model of features needs of its data.

Rows are visited in blocks, forwards and backwards, so that memory does not grow with their number. The sums of two sets of rows
are added by `+`, wherever each of them was made.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from ..dense.cholesky import log_sum

ROWS = 1024  # how many rows of features are held at a time

Features = Callable[[Any], Any]  # of a block of rows: (F, rows)


class Totals(eqx.Module):
    """ΦWΦᵀ, ΦWT, TᵀWT, Σ log w, Σ w and the number of rows that count, for features Φ (F, N) with weights w and targets T."""

    gram: Float[Array, "F F"]
    cross: Float[Array, "F C"]
    targets: Float[Array, "C C"]
    log_weights: Float[Array, ""]
    weights: Float[Array, ""]
    count: Float[Array, ""]

    def __add__(self, other: Totals) -> Totals:
        """The sums over the rows of both."""
        return jax.tree.map(operator.add, self, other)

    def over(self, noise: Float[Array, ""] | float) -> Totals:
        """The sums with weights divided by a noise variance, for weights that are 1 where something was seen."""
        logs = self.log_weights - self.count * jnp.log(noise)
        return Totals(self.gram / noise, self.cross / noise, self.targets / noise, logs, self.weights / noise, self.count)


def totals(
    features: Features, blocks: Float[Array, " B *block"], w: Float[Array, " N"], shift: Float[Array, "N C"], targets: Any
) -> Totals:
    """The sums over rows in blocks, with weights w and shift = w T; differentiable in all that the features depend on.

    Weights may have any sign, and a shift may be there without a weight: then the last four sums mean nothing.
    """

    @jax.checkpoint
    def of_block(features: Features, rows: Array, w: Array, shift: Array) -> tuple[Array, Array]:
        Phi = features(rows)
        return _gram(Phi, w), Phi @ shift

    def add(total: tuple[Array, Array], block: tuple[Array, Array, Array]) -> tuple[tuple[Array, Array], None]:
        gram, cross = of_block(features, *block)
        return (total[0] + gram, total[1] + cross), None

    size = len(w) if len(blocks) == 1 else blocks.shape[1]
    F = jax.eval_shape(features, blocks[0]).shape[0]
    start = (jnp.zeros((F, F)), jnp.zeros((F, shift.shape[1])))
    gram, cross = jax.lax.scan(add, start, (blocks, in_blocks(w, size), in_blocks(shift, size)))[0]
    return Totals(0.5 * (gram + gram.T), cross, targets.T @ shift, log_sum(w), jnp.sum(w), jnp.sum(w > 0) * 1.0)


@jax.custom_vjp
def _gram(Phi: Float[Array, "F N"], w: Float[Array, " N"]) -> Float[Array, "F F"]:
    """ΦWΦᵀ; its derivative takes one product, because the matrix is symmetric."""
    return (Phi * w) @ Phi.T


def _gram_backward(saved: tuple[Array, Array], to: Array) -> tuple[Array, Array]:
    Phi, w = saved
    pulled = (to + to.T) @ Phi
    return pulled * w, 0.5 * jnp.sum(Phi * pulled, axis=0)


_gram.defvjp(lambda Phi, w: (_gram(Phi, w), (Phi, w)), _gram_backward)


def in_blocks(values: Float[Array, " N *row"], size: int = ROWS) -> Float[Array, "B n *row"]:
    """Rows in blocks of equally many, the last filled up with zeros."""
    size = min(size, max(len(values), 1))
    more = -len(values) % size
    return jnp.pad(values, [(0, more)] + [(0, 0)] * (values.ndim - 1)).reshape(-1, size, *values.shape[1:])


def visited(function: Callable[[Any], Any], blocks: PyTree[Float[Array, " B ..."]], count: int) -> Any:
    """What a function makes of each of the rows, block by block, without those that filled up."""
    joined = lambda values: values.reshape(-1, *values.shape[2:])[:count]
    return jax.tree.map(joined, jax.lax.map(function, blocks))
