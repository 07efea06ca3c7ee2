"""Projection pursuit on sine features: y = c + βᵀx + Σ_m f_m(u_mᵀx) + ε, with an evidence that knows its gradient in u_m.

Each f_m is a Matérn process of its projection, seen through k sines. Given directions, lengthscales and variances the model is
linear, so its evidence is that of Bayesian linear regression, and all of them are learned together.
"""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..._types import Numbers
from ...engines.woodbury import evidence
from ...linalg.features import sines
from ...linalg.features.totals import ROWS, Totals, in_blocks, totals
from ...parameters.priors import LogNormal
from ...parameters.supports import positive, real
from ...parameters.tree import Parametrised, parameter, with_free
from ...structure.features import FeatureMap

BEYOND = 1.25  # the interval of the sines, in units of the farthest projection
NEW_ROWS = (512, 2048)  # how many of them are looked at together: few and many


class SineModel(Parametrised):
    """M directions (not normalised), the lengthscale and variance of each function, the slope's variance and the noise."""

    directions: Numbers = parameter(((1.0,),), real)
    lengthscale: Numbers = parameter((1.0,), positive, LogNormal(0.0, 2.0))
    variance: Numbers = parameter((1.0,), positive, LogNormal(-2.0, 4.0))
    slope: Numbers = parameter(1.0, positive, LogNormal(-2.0, 4.0))
    noise: Numbers = parameter(0.1, positive)
    sines: int = eqx.field(static=True, default=12)
    states: int = eqx.field(static=True, default=3)

    @property
    def projections(self) -> int:
        """M."""
        return np.shape(self.directions)[0]

    def units(self) -> Float[Array, "M D"]:
        """The directions as unit vectors."""
        return self.directions / jnp.linalg.norm(self.directions, axis=1, keepdims=True)

    def scales(self, L: Float[Array, " M"]) -> Float[Array, " F"]:
        """The prior standard deviations of the weights of all features."""
        rate = math.sqrt(2 * self.states - 1) / self.lengthscale
        waves = sines.prior_variances(rate, self.variance, L, self.sines, self.states)
        D = np.shape(self.directions)[1]
        return jnp.sqrt(jnp.concatenate([waves.ravel(), jnp.full(D, self.slope), jnp.ones(1)]))

    def features(self, X: Float[Array, "N D"]) -> SineMap:
        """The features for these rows, which say how far the sines reach."""
        return self.reaching(reaches(self, X))

    def reaching(self, L: Float[Array, " M"]) -> SineMap:
        """The features with sines that reach so far."""
        return SineMap(self.units(), L, self.scales(L), self.sines)


class SineMap(FeatureMap):
    """The k sines of each direction, the columns and a constant, with the prior standard deviations of their weights."""

    directions: Float[Array, "M D"]
    reach: Float[Array, " M"]
    scales: Float[Array, " F"]
    sines: int = eqx.field(static=True)

    @property
    def size(self) -> int:
        return self.scales.shape[0]

    def __call__(self, X: Float[Array, "N D"]) -> Float[Array, "F N"]:
        return sines.features(self.directions, self.reach, X, self.sines)

    def whiten(self, columns: Float[Array, "F C"]) -> Float[Array, "F C"]:
        return self.scales[:, None] * columns

    unwhiten = whiten


class TurningMap(FeatureMap):
    """The whitened sines, and how functions with these weights of theirs change with each entry of each direction."""

    waves: SineMap
    weights: Float[Array, "k M"]

    @property
    def size(self) -> int:
        return self.waves.size + self.waves.directions.size

    def __call__(self, X: Float[Array, "N D"]) -> Float[Array, "G N"]:
        made = self.waves
        slope = jnp.sum(self.weights[:, :, None] * sines.slopes(made.directions, made.reach, X, made.sines), axis=0)
        turned = slope[:, None, :] * X.T[None]
        return jnp.concatenate([made.whiten(made(X)), turned.reshape(-1, len(X))])


class Rows(NamedTuple):
    """Data of few sizes, so that little is compiled: rows that fill up were not seen."""

    X: Float[Any, "N D"]
    y: Float[Any, " N"]
    seen: Float[Any, " N"]

    @classmethod
    def of(cls, X: np.ndarray, y: np.ndarray) -> Rows:
        """Rows, filled up to a power of two or to whole blocks."""
        size = min(ROWS, max(64, 2 ** math.ceil(math.log2(len(X)))))
        more = -len(X) % size
        seen = np.concatenate([np.ones(len(X)), np.zeros(more)])
        filled = np.concatenate([X, np.repeat(X[:1], more, axis=0)]), np.concatenate([y, np.zeros(more)])
        return cls(*jax.device_put((*filled, seen)))

    def totals(self, features: FeatureMap) -> Totals:
        """The sums over all rows that were seen."""
        y = self.y[:, None]
        return totals(features, in_blocks(self.X), self.seen, self.seen[:, None] * y, y)


def pieces(X: np.ndarray) -> list[np.ndarray]:
    """New rows in pieces of one size, the last filled up."""
    size = NEW_ROWS[len(X) > NEW_ROWS[0]]
    filled = np.concatenate([X, np.zeros((-len(X) % size, X.shape[1]))])
    return [filled[at : at + size] for at in range(0, len(filled), size)]


def reaches(model: SineModel, X: Float[Array, "N D"]) -> Float[Array, " M"]:
    """L: the half-width of the interval of each projection."""
    farthest = jax.lax.map(lambda x: jnp.max(jnp.abs(model.units() @ x.T), axis=1), in_blocks(X))
    return beyond(jnp.max(farthest, axis=0))


def beyond(farthest: Float[Array, " M"]) -> Float[Array, " M"]:
    """The half-width for the farthest projections."""
    reach = BEYOND * farthest
    return jnp.where(reach > 0, reach, 1.0)


def log_evidence(model: SineModel, rows: Rows) -> Float[Array, ""]:
    """log p(y)."""
    made = model.features(rows.X)
    return evidence_of_sums(model, made, rows.totals(made))


def evidence_of_sums(model: SineModel, made: SineMap, sums: Totals) -> Float[Array, ""]:
    """The same from the sums over all rows."""
    over = sums.over(model.noise)
    log_det, gram = evidence(made, over)
    return -0.5 * (log_det + gram[0, 0] + over.count * jnp.log(2 * jnp.pi))


class SineEvidence:
    """The log evidence of a sine model and its gradient."""

    def __init__(self, model: SineModel, X: np.ndarray, y: np.ndarray) -> None:
        self.model, self.rows = model, Rows.of(X, y)

    def __call__(self, theta: np.ndarray) -> tuple[Any, Any]:
        return _value_and_gradient(np.asarray(theta), self.model, self.rows)


@jax.jit
@functools.partial(jax.value_and_grad, argnums=0)
def _value_and_gradient(theta: Any, model: SineModel, rows: Rows) -> Any:
    return log_evidence(with_free(model, theta), rows)
