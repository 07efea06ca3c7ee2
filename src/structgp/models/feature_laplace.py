"""Labels and counts on a linear model of features: Laplace's approximation over the weights, with an exact gradient.

For a linear model f = Ψᵀa, a ~ N(0, I), the mode â of log p(y | f) − ½‖a‖² is found by Newton's method, of which no derivative
is taken. One more Newton step from there, which changes nothing, carries the exact derivative of â in all parameters, and

    log Z = log p(y | f̂) − ½‖â‖² − ½ log|I + Ψ W Ψᵀ|,      W = −∂² log p/∂f².
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..likelihoods.base import Likelihood

STEPS = 40
TOLERANCE = 1e-8  # of the decrement of Newton's method
HALVINGS = 12


class Mode(NamedTuple):
    """Whitened weights at the mode, the log evidence there, and the factor of their posterior precision."""

    weights: Float[Array, " F"]
    log_evidence: Float[Array, ""]
    factor: Float[Array, "F F"]
    steps: Any


class Problem(NamedTuple):
    """What the weights see: the features φ of a piece of rows, f = φᵀR⁻ᵀa, y, which rows count, and how y arises."""

    features: Callable[[Any], Any]  # of one piece: (F, rows)
    whiten: Callable[[Any], Any]  # R⁻¹ times a matrix (F, K)
    unwhiten: Callable[[Any], Any]  # R⁻ᵀ times a vector (F,)
    pieces: Any
    y: Float[Array, "pieces rows"]
    counts: Float[Array, "pieces rows"]
    likelihood: Likelihood


def derivatives(problem: Problem, a: Float[Array, " F"]) -> tuple[Array, Array, Array]:
    """log p(y | f), its gradient in the weights, and Ψ W Ψᵀ, as sums over pieces of rows."""
    b = problem.unwhiten(a)

    @jax.checkpoint
    def add(total: tuple, piece: tuple) -> tuple[tuple, None]:
        x, y, counts = piece
        Phi = problem.features(x)
        value, slope, w = problem.likelihood.derivatives(y, b @ Phi)
        gradient = Phi @ (counts * slope)
        return (total[0] + jnp.sum(counts * value), total[1] + gradient, total[2] + (Phi * (counts * w)) @ Phi.T), None

    F = len(a)
    start = (jnp.zeros(()), jnp.zeros(F), jnp.zeros((F, F)))
    value, gradient, H = jax.lax.scan(add, start, (problem.pieces, problem.y, problem.counts))[0]
    return value, problem.whiten(gradient[:, None])[:, 0], problem.whiten(problem.whiten(H).T)


def value(problem: Problem, a: Float[Array, " F"]) -> Float[Array, ""]:
    """log p(y | f) − ½‖a‖² alone."""
    b = problem.unwhiten(a)

    def add(total: Array, piece: tuple) -> tuple[Array, None]:
        x, y, counts = piece
        return total + jnp.sum(counts * problem.likelihood.log_prob(y, b @ problem.features(x))), None

    return jax.lax.scan(add, jnp.zeros(()), (problem.pieces, problem.y, problem.counts))[0] - 0.5 * a @ a


def find_mode(problem: Problem, start: Float[Array, " F"]) -> tuple[Float[Array, " F"], Array]:
    """Newton's method with halving of steps that do not climb."""

    def going_on(state: tuple) -> Array:
        return (state[2] > TOLERANCE) & (state[3] < STEPS)

    def step(state: tuple) -> tuple:
        a, best, _, count = state
        _, gradient, H = derivatives(problem, a)
        full = jax.scipy.linalg.solve(jnp.eye(len(a)) + H, gradient - a, assume_a="pos")
        decrement = 0.5 * full @ (gradient - a)

        def shorter(inner: tuple) -> tuple:
            length, _, halvings = inner
            return 0.5 * length, value(problem, a + 0.5 * length * full), halvings + 1

        first = (jnp.ones(()), value(problem, a + full), jnp.zeros((), int))
        falls = lambda inner: ~(inner[1] >= best - 1e-10 * jnp.abs(best)) & (inner[2] < HALVINGS)
        length, reached, _ = jax.lax.while_loop(falls, shorter, first)
        return a + length * full, reached, decrement, count + 1

    a = jnp.where(value(problem, start) > value(problem, 0 * start), start, 0 * start)
    a, _, _, count = jax.lax.while_loop(going_on, step, (a, value(problem, a), jnp.array(jnp.inf), jnp.zeros((), int)))
    return a, count


def laplace(problem: Problem, held: Problem, start: Float[Array, " F"]) -> Mode:
    """The approximation at the mode; `held` is the same problem with parameters that no derivative is taken of."""
    a, steps = find_mode(held, jax.lax.stop_gradient(start))
    a = jax.lax.stop_gradient(a)
    _, gradient, H = derivatives(problem, a)
    a = a + jax.scipy.linalg.solve(jax.lax.stop_gradient(jnp.eye(len(a)) + H), gradient - a, assume_a="pos")
    log_likelihood, _, H = derivatives(problem, a)
    factor = jnp.linalg.cholesky(jnp.eye(len(a)) + H)
    evidence = log_likelihood - 0.5 * a @ a - jnp.sum(jnp.log(jnp.diagonal(factor)))
    return Mode(a, evidence, factor, steps)
