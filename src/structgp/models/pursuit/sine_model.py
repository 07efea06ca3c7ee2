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
from ...linalg.dense.identity_plus import log_det_and_forms
from ...linalg.features import sines
from ...parameters.priors import LogNormal
from ...parameters.supports import positive, real
from ...parameters.tree import Parametrised, parameter, with_free

BEYOND = 1.25  # the interval of the sines, in units of the farthest projection
ROWS = 1024  # how many rows of features are held at a time


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


class Rows(NamedTuple):
    """Data in pieces of equally many rows; the last column of Y is 1 for rows that count and 0 for those that fill up."""

    X: Float[Any, "pieces rows D"]
    Y: Float[Any, "pieces rows C"]
    count: Any

    @classmethod
    def of(cls, X: np.ndarray, Y: np.ndarray) -> Rows:
        """Rows in pieces of few sizes, so that little is compiled."""
        size = min(ROWS, max(64, 2 ** math.ceil(math.log2(len(X)))))
        pieces = -(-len(X) // size)
        more = pieces * size - len(X)
        counted = np.concatenate([Y, np.ones((len(X), 1))], axis=1)
        X = np.concatenate([X, np.repeat(X[:1], more, axis=0)])
        counted = np.concatenate([counted, np.zeros((more, counted.shape[1]))])
        split = lambda table: jnp.asarray(table.reshape(pieces, size, -1))
        return cls(split(X), split(counted), jnp.asarray(float(len(Y))))


def reaches(model: SineModel, X: Float[Array, "pieces rows D"]) -> Float[Array, " M"]:
    """L: the half-width of the interval of each projection."""
    farthest = jax.lax.map(lambda x: jnp.max(jnp.abs(model.units() @ x.T), axis=1), X)
    reach = BEYOND * jnp.max(farthest, axis=0)
    return jnp.where(reach > 0, reach, 1.0)


def linearised(
    model: SineModel, L: Float[Array, " M"], scales: Float[Array, " F"], weights: Float[Array, "k M"], X: Float[Array, "N D"]
) -> Float[Array, "G N"]:
    """The features in units of their prior, then how sines with these weights change with each entry of each direction."""
    U, k = model.units(), model.sines
    waves = scales[:, None] * sines.features(U, L, X, k)
    slope = jnp.sum(weights[:, :, None] * sines.slopes(U, L, X, k), axis=0)
    turned = slope[:, None, :] * X.T[None]
    return jnp.concatenate([waves, turned.reshape(-1, len(X))])


def log_evidence(model: SineModel, rows: Rows, total: Float[Array, ""]) -> Float[Array, ""]:
    """log p(y); `total` is yᵀy."""
    L = reaches(model, rows.X)
    G, b = sines.sums(model.units(), L, rows.X, rows.Y, model.sines)
    s = model.scales(L) / jnp.sqrt(model.noise)
    log_det, explained = log_det_and_forms(s[:, None] * G * s, s[:, None] * b[:, :1])
    log_det = log_det + rows.count * jnp.log(2 * jnp.pi * model.noise)
    return -0.5 * (log_det + (total - explained[0, 0]) / model.noise)


class SineEvidence:
    """The log evidence of a sine model and its gradient."""

    def __init__(self, model: SineModel, X: np.ndarray, y: np.ndarray) -> None:
        self.model, self.rows, self.total = model, Rows.of(X, y[:, None]), jnp.asarray(float(y @ y))

    def __call__(self, theta: np.ndarray) -> tuple[Any, Any]:
        return _value_and_gradient(jnp.asarray(theta), self.model, self.rows, self.total)


@jax.jit
@functools.partial(jax.value_and_grad, argnums=0)
def _value_and_gradient(theta: Any, model: SineModel, rows: Rows, total: Any) -> Any:
    return log_evidence(with_free(model, theta), rows, total)
