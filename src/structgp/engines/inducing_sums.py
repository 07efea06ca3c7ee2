"""Inducing inputs by sums over rows alone: those of some rows, and the evidence and the process that those of all leave."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float

from ..inputs.observations import Data
from ..linalg.dense.cholesky import log_sum
from ..linalg.features.low_rank import Summed, summed
from ..posterior import Model
from ..sites import Sites
from ..structure.dense import typical_variance
from ..structure.low_rank import LowRank, through
from .basis import Weights, integrate, sites_of
from .inducing import InducingConditional, InducingEngine
from .woodbury import Weighed


class RowSums(NamedTuple):
    """What rows leave behind: sums at the inducing inputs, and that of the logarithms of their precisions."""

    sums: Summed
    log_weights: Float[Any, ""]


def structure_of(model: Model, X: Any) -> LowRank:
    """Rows as the inducing inputs of a model see them."""
    return LowRank(model.kernel, X, len(through(model.kernel, X[:1]).inputs))  # type: ignore[union-attr]


def sums_over(model: Model, X: Any, data: Data, engine: InducingEngine) -> RowSums:
    """The sums over some rows, differentiable."""
    structure = structure_of(model, jnp.asarray(X))
    data = dataclasses.replace(data, noise=jnp.broadcast_to(data.noise, data.seen.shape))
    sites = sites_of(model, structure.X, data, typical_variance(model.kernel, structure.X))
    white, blocks = structure.white(jnp.linalg.cholesky(structure.among()))
    sums = summed(white, blocks, structure.size, sites.precision, sites.targets, engine.rule, False)
    return RowSums(sums, log_sum(sites.precision))


def given_sums(
    model: Model, of: RowSums, count: Any, targets: int, D: int, engine: InducingEngine
) -> tuple[Float[Array, ""], Weights, InducingConditional]:
    """The log evidence, the weights of basis functions, and the process given all rows, by their sums."""
    sums, structure = of.sums, structure_of(model, jnp.zeros((1, D)))
    L, M = jnp.linalg.cholesky(structure.among()), structure.size
    R = jnp.linalg.cholesky(jnp.eye(M) + 0.5 * (sums.gram + sums.gram.T))
    c = solve_triangular(R, sums.cross, lower=True)
    weighed = Weighed(R, c, 2 * jnp.sum(jnp.log(jnp.diagonal(R))) + sums.charge)
    gram = sums.own - c.T @ c
    evidence, weights = integrate(model, weighed.log_det - of.log_weights, 0.5 * (gram + gram.T), count, targets, D)
    none = Sites(jnp.zeros(0), jnp.zeros((0, gram.shape[0])))
    none_yet = jnp.zeros(())
    conditional = InducingConditional(
        model.kernel, jnp.zeros((0, D)), none, L, weighed, gram, of.log_weights, none_yet, None, engine.method, engine.power
    )
    return evidence, weights, conditional


def evidence_of_sums(model: Model, of: RowSums, count: Any, targets: int, D: int, engine: InducingEngine) -> Array:
    """The log evidence alone."""
    return given_sums(model, of, count, targets, D, engine)[0]


def added(parts: Any) -> RowSums:
    """The sums over the rows of all parts, in their order."""
    return jax.tree.map(lambda *values: sum(values[1:], start=values[0]), *parts)
