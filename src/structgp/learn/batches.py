"""Learning from rows that come in batches and are not kept: a lower bound of the evidence, climbed by gradients of parts of it.

f is known through whitened values at inducing inputs, believed to be N(A⁻¹b, A⁻¹). A batch of B rows out of N stands for all:
with V and d of `linalg.features.low_rank` and precisions w,

    A ← (1 − r)A + r(I + N/B · V diag(w) Vᵀ),    b ← (1 − r)b + r N/B · V w(y − known)

is a step of length r along the natural gradient, and parameters and inputs follow the gradient of N/B · Σ E log p(y | f) by
Adam. That bound rises while predictions grow worse, so rows held out decide which parameters are kept, and when to stop.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import cho_solve, solve_triangular
from jaxtyping import Array, Float

from ..inputs.observations import Data
from ..linalg.dense.identity_plus import solve_lower
from ..linalg.features.low_rank import with_jitter
from ..parameters.tree import free_vector, leaves, log_prior, with_free
from ..structure.dense import covariance
from ..structure.low_rank import crossing, through
from .clock import NEVER, Deadline
from .initialise import units_of

ROWS = 1024  # of a batch
RATE, LEAST_RATE = 0.1, 0.01  # along the natural gradient, from the first to the last step
STEP = 0.01  # of Adam, in the units of each parameter
CHECK, PATIENCE = 25, 4  # steps between looks at the rows held out, and looks without a gain


class AtInputs(NamedTuple):
    """A and b."""

    A: Float[Array, "M M"]
    b: Float[Array, " M"]


class BatchRows(NamedTuple):
    """Rows and values."""

    X: Float[Any, "B D"]
    y: Float[Any, " B"]


def learned_in_batches(
    model: Any,
    batches: Iterator[BatchRows],
    start: BatchRows,
    held_out: BatchRows,
    count: int,
    steps: int,
    deadline: Deadline = NEVER,
) -> tuple[Any, int, list[float]]:
    """The model with the parameters that foretold rows held out best, the steps taken, and the mean log densities there."""
    theta = free_vector(model)
    data = Data(start.y[:, None], np.zeros(len(start.y)), np.ones(len(start.y), dtype=bool), True)
    units = units_of(model, start.X, data)
    units = units if units.ndim == 1 else np.ones(len(theta))
    belief = _moved(theta, model, _nothing(model), start, 1.0, float(count))
    scores = [float(_score(theta, model, belief, held_out))]
    kept, m, v, taken = theta, np.zeros(len(theta)), np.zeros(len(theta)), 0
    for batch, taken in zip(batches, range(1, steps + 1), strict=False):
        rate = max(RATE / np.sqrt(1 + taken / CHECK), LEAST_RATE)
        belief = _moved(theta, model, belief, batch, rate, float(count))
        slope = np.asarray(_slope(theta, model, belief, batch, float(count))) * units
        slope = np.where(np.isfinite(slope), slope, 0.0)
        m, v = 0.9 * m + 0.1 * slope, 0.999 * v + 0.001 * slope**2
        theta = theta + STEP * units * (m / (1 - 0.9**taken)) / (np.sqrt(v / (1 - 0.999**taken)) + 1e-12)
        if taken % CHECK == 0:
            scores.append(float(_score(theta, model, belief, held_out)))
            if scores[-1] == max(scores):
                kept = theta
            if len(scores) - int(np.argmax(scores)) > PATIENCE or deadline.passed():
                break
    return with_free(model, kept), taken, scores


def _nothing(model: Any) -> AtInputs:
    M = max(len(leaf.value) for leaf in leaves(model) if leaf.path.endswith(".inputs"))
    return AtInputs(jnp.eye(M), jnp.zeros(M))


def _white(gp: Any, X: Array) -> tuple[Array, Array]:
    """V and d."""
    of: Any = through(gp.kernel, X)
    L = jnp.linalg.cholesky(with_jitter(covariance(of.kernel, of.inputs, of.inputs)))
    K, k = crossing(gp.kernel)(X)
    V = solve_lower(L, K.T, len(L))
    return V, jnp.maximum(k - jnp.sum(V * V, axis=0), 0.0)


def _noise(gp: Any, X: Array) -> Array:
    return jnp.broadcast_to(gp.likelihood.noise_at(X), X.shape[:1])


@jax.jit
def _moved(theta: Any, model: Any, belief: AtInputs, batch: BatchRows, rate: Any, count: Any) -> AtInputs:
    """The belief after a step along the natural gradient."""
    gp = with_free(model, theta)
    V, _ = _white(gp, batch.X)
    w = count / len(batch.y) / _noise(gp, batch.X)
    A = jnp.eye(len(V)) + (V * w) @ V.T
    b = V @ (w * (batch.y - jax.vmap(gp.mean)(batch.X)))
    return AtInputs((1 - rate) * belief.A + rate * A, (1 - rate) * belief.b + rate * b)


def _moments(gp: Any, belief: AtInputs, X: Array) -> tuple[Array, Array]:
    R = jnp.linalg.cholesky(0.5 * (belief.A + belief.A.T))
    V, d = _white(gp, X)
    mean = jax.vmap(gp.mean)(X) + V.T @ cho_solve((R, True), belief.b)
    return mean, d + jnp.sum(solve_triangular(R, V, lower=True) ** 2, axis=0)


@jax.jit
def _slope(theta: Any, model: Any, belief: AtInputs, batch: BatchRows, count: Any) -> Array:
    """The gradient of the bound in the parameters, by a batch."""

    def bound(theta: Array) -> Array:
        gp = with_free(model, theta)
        mean, variance = _moments(gp, belief, batch.X)
        noise = _noise(gp, batch.X)
        expected = -0.5 * (jnp.log(2 * jnp.pi * noise) + ((batch.y - mean) ** 2 + variance) / noise)
        return count * jnp.mean(expected) + log_prior(gp)

    return jax.grad(bound)(theta)


@jax.jit
def _score(theta: Any, model: Any, belief: AtInputs, rows: BatchRows) -> Array:
    """The mean log density of rows that the belief has not seen."""
    gp = with_free(model, theta)
    mean, variance = _moments(gp, belief, rows.X)
    variance = variance + _noise(gp, rows.X)
    return -0.5 * jnp.mean(jnp.log(2 * jnp.pi * variance) + (rows.y - mean) ** 2 / variance)
