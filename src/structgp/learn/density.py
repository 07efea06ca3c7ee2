"""The density of θ given data, up to a constant: what is averaged over.

A density of the values times the volume of the map from θ to them is a density of θ. Where nobody said what they believe, the
weak beliefs of `believe` are such densities already.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._types import double_precision
from ..inputs.rows import in_few_sizes
from ..parameters.priors import Alike
from ..parameters.supports import Orthonormal, Simplex
from ..parameters.tree import learned_leaves, log_prior, with_free
from .believe import LENGTH, WeakBeliefs, log_of_one
from .objective import LOWEST, Objective


class Density(Objective):
    """log p(y | θ) + log p(θ) of an objective, with p(θ) a density of θ that beliefs make proper."""

    def __init__(self, objective: Objective, beliefs: WeakBeliefs) -> None:
        given = objective.model, objective.evidence, objective.grain, objective._many, objective.evidences, objective.together
        super().__init__(*given)
        self.beliefs = beliefs
        self._own, self._all_own = beliefs.own(), bool(np.all(beliefs.ours)) and not self._believed

    @double_precision
    def values(self, thetas: Float[np.ndarray, "S P"]) -> Float[np.ndarray, " S"]:
        """The log density at several θ, without gradients; `LOWEST` where there is none."""
        priors = self.log_priors(thetas)
        found = np.full(len(thetas), LOWEST)
        inside = np.flatnonzero(np.isfinite(priors))
        if len(inside):
            found[inside] = self.evidences(thetas[inside]) + priors[inside]
        return np.where(np.isfinite(found), found, LOWEST)

    @double_precision
    def log_priors(self, thetas: Float[np.ndarray, "S P"]) -> Float[np.ndarray, " S"]:
        """The log density of several θ before the data."""
        found = self._own.log_probs(thetas)
        inside = np.flatnonzero(np.isfinite(found))
        if not self._all_own and len(inside):
            found[inside] += in_few_sizes(lambda some: _of_many_values(some, self.model), thetas[inside])
        return found

    @double_precision
    def log_prior(self, theta: Float[np.ndarray, " P"]) -> tuple[float, Float[np.ndarray, " P"]]:
        """The log density of one θ before the data, and its gradient."""
        value, slope = self._prior(theta)
        return float(value), slope

    def _prior(self, theta: np.ndarray) -> tuple[Any, Any]:
        value, slope = self._own.log_prob(np.asarray(theta))
        if not self._all_own and np.isfinite(value):
            more, gradient = _of_values(np.asarray(theta), self.model)
            value, slope = value + float(more), slope + np.asarray(gradient)
        return np.asarray(value), slope


@jax.jit
def _of_values(theta: Any, model: Any) -> tuple[Array, Array]:
    """The log density of those parameters of θ whose values have a density of their own, and its gradient."""
    return jax.value_and_grad(_log_of_values)(theta, model)


@jax.jit
def _of_many_values(thetas: Any, model: Any) -> Array:
    return jax.vmap(lambda theta: _log_of_values(theta, model))(thetas)


def _log_of_values(theta: Array, model: Any) -> Array:
    total, at = log_prior(with_free(model, theta)), 0
    for leaf in learned_leaves(model):
        part = theta[at : at + leaf.free_size].reshape(leaf.support.free_shape(np.shape(leaf.value)))
        at += leaf.free_size
        if leaf.prior is None and isinstance(leaf.support, Orthonormal):
            total = total + _log_of_directions(part.reshape(part.shape[0], -1))
        elif leaf.prior is None and isinstance(leaf.support, Simplex):
            constant = float(np.prod(part.shape[:-1])) * math.lgamma(part.shape[-1] + 1.0)
            total = total + leaf.support.log_volume(part) + constant
        elif leaf.prior is not None and not isinstance(leaf.prior, Alike):
            total = total + leaf.support.log_volume(part)
    return total


def _log_of_directions(columns: Float[Array, "D q"]) -> Array:
    """The log density of independent columns in uniform directions, whose factor is uniform, and of lengths around one.

    The lengths change nothing: normal columns would do as well, but for their mode, which is at zero and has no direction.
    """
    D, r = columns.shape[0], jnp.linalg.norm(columns, axis=0)
    surface = math.log(2) + 0.5 * D * math.log(math.pi) - math.lgamma(0.5 * D)
    of_length = -0.5 * ((r - 1) / LENGTH) ** 2 - math.log(LENGTH) - 0.5 * math.log(2 * math.pi)
    return jnp.sum(of_length - (D - 1) * jnp.log(r) - surface)


def traced_log_prior(theta: Float[Array, " P"], model: Any, beliefs: WeakBeliefs) -> Float[Array, ""]:
    """log p(θ) as a function that JAX can follow, up to a constant; it is low beyond the bounds."""
    r = (jnp.linalg.solve(beliefs.units, theta) - beliefs.center) / beliefs.width
    own = jnp.where(
        beliefs.ours & jnp.isfinite(beliefs.width), log_of_one(r, False if beliefs.heavy is None else beliefs.heavy, jnp), 0.0
    )
    inside = jnp.all((theta >= beliefs.bounds[:, 0]) & (theta <= beliefs.bounds[:, 1]))
    return jnp.where(inside, jnp.sum(own) + _log_of_values(theta, model), LOWEST)
