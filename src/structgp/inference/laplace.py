"""Laplace's approximation: the Gaussian at the mode, found by Newton with a line search that costs no call of the engine.

Kept are f and a = K⁻¹(f − m), which the engine gives without K⁻¹: with g = ∂log p, W = −∂²log p and sites (W, Wf + g), the next
mode is the mean f* under the sites and a* = Wf + g − W f*. Both move on straight lines, so

    ψ(s) = log p(y | f + s df) − ½ (a + s da)ᵀ(f + s df − m)

is had for any step s without the engine. Where W is negative and leaves no density, or no ascent, a positive curvature that
the likelihood knows takes its place for this step. At the mode the true W is used.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..engines.basis import columns
from ..likelihoods.base import Likelihood
from .base import CONVERGED, INFEASIBLE, UNFINISHED, Found, Inference, Problem, hold, known

ARMIJO = 1e-4
HALVINGS = 40
RUNNING = -1


class Mode(NamedTuple):
    """f and a = K⁻¹(f − m) on the way to the mode, and how far it is."""

    f: Array
    a: Array
    decrement: Array
    calls: Array
    status: Array


class Laplace(Inference):
    """The mode and the curvature there."""

    @property
    def name(self) -> str:
        return "laplace"

    def find(self, problem: Problem, start: tuple[Array, Array], tolerance: Any, max_calls: int) -> Found:
        """Newton from the mode that the starting sites describe."""
        return self._at_mode(problem, newton(problem, start, tolerance, max_calls))

    def _at_mode(self, problem: Problem, end: Mode) -> Found:
        likelihood, data, f = problem.model.likelihood, problem.data, end.f
        g, W = _slope_and_curvature(problem, likelihood, f)
        h = jnp.where(data.seen, W * f + g, 0.0)
        bend = jax.jvp(lambda f: _slope_and_curvature(problem, likelihood, f)[1], (f,), (jnp.ones_like(f),))[1]
        whole = problem.given(W, h)
        s = -0.5 * whole.variance * bend
        applied = problem.given(W, h, s).applied
        values = data.times(1.0) * likelihood.log_prob(data.y, f, data.extra)
        evidence = whole.log_normaliser + data.sum(values - h * f + 0.5 * W * f**2)
        status = jnp.where(jnp.isfinite(evidence), end.status, INFEASIBLE)
        residual = jnp.sqrt(jnp.abs(end.decrement))
        held = (f, whole.variance, s, applied)
        return Found(W, h, whole.mean, whole.variance, evidence, held, end.calls + 2, residual, status)

    def surrogate(self, problem: Problem, found: Found) -> Float[Array, ""]:
        found = hold(found)
        f, variance, s, applied = found.held
        likelihood, data = problem.model.likelihood, problem.data
        g, W = _slope_and_curvature(problem, likelihood, f)
        values = data.times(1.0) * likelihood.log_prob(data.y, f, data.extra)
        return problem.log_normaliser(found.w, found.h, s) + data.sum(values - 0.5 * variance * W + applied * g)


def _slope_and_curvature(problem: Problem, likelihood: Likelihood, f: Array) -> tuple[Array, Array]:
    """∂log p and W = −∂²log p at every place, 0 where nothing was seen."""
    data = problem.data
    _, g, W = likelihood.derivatives(data.y, f, data.extra)
    return tuple(jnp.where(data.seen, data.times(1.0) * part, 0.0) for part in (g, W))  # type: ignore[return-value]


def newton(problem: Problem, start: tuple[Array, Array], tolerance: Any, max_calls: int) -> Mode:
    """The mode of f, from the one that the starting sites describe."""
    likelihood, data, concave = problem.model.likelihood, problem.data, not problem.signed
    offset, _ = columns(problem.model, problem.X)

    def height(f: Array, a: Array) -> Array:
        values = data.times(1.0) * likelihood.log_prob(data.y, f, data.extra)
        return data.sum(values) - 0.5 * jnp.sum(a * (f - offset))

    def direction(f: Array, a: Array, W: Array, g: Array) -> tuple[Array, Array, Array]:
        h = W * f + g
        mean = problem.given(W, h).mean
        df, da = mean - f, h - W * mean - a
        return df, da, jnp.sum((g - a) * df)

    def body(s: Mode) -> Mode:
        g, W = _slope_and_curvature(problem, likelihood, s.f)
        df, da, decrement = direction(s.f, s.a, W, g)
        calls = s.calls + 1
        if not concave:
            bad = ~jnp.isfinite(decrement) | (decrement < 0)
            positive = lambda: jnp.where(data.seen, data.times(1.0) * likelihood.curvature_bound(data.y, s.f, data.extra), 0.0)
            df, da, decrement = jax.lax.cond(bad, lambda: direction(s.f, s.a, positive(), g), lambda: (df, da, decrement))
            calls = calls + bad
        now = height(s.f, s.a)
        far = lambda t: (
            ~(height(s.f + t * df, s.a + t * da) >= now + ARMIJO * t * decrement - 1e-13 * jnp.abs(now)) & (t > 2.0**-HALVINGS)
        )
        t = jax.lax.while_loop(far, lambda t: 0.5 * t, jnp.ones(()))
        stuck = ~jnp.isfinite(decrement) | (t <= 2.0**-HALVINGS)
        done = decrement <= tolerance**2
        move = lambda x, dx: jnp.where(stuck, x, x + t * dx)
        status = jnp.where(stuck, jnp.where(done, CONVERGED, INFEASIBLE), jnp.where(done, CONVERGED, RUNNING))
        return Mode(move(s.f, df), move(s.a, da), decrement, calls, status)

    w, h = known(start)
    mean, _, log_normaliser, _ = problem.given(w, h)
    usable = jnp.isfinite(log_normaliser) & jnp.isfinite(height(mean, h - w * mean))
    begin = (jnp.where(usable, mean, offset), jnp.where(usable, h - w * mean, 0.0))
    state = Mode(*begin, jnp.asarray(jnp.inf), jnp.asarray(1), jnp.asarray(RUNNING))
    end = jax.lax.while_loop(lambda s: (s.status == RUNNING) & (s.calls < max_calls), body, state)
    status = jnp.where(end.status == RUNNING, UNFINISHED, end.status)
    return end._replace(status=status)


def sites_at(problem: Problem, f: Array) -> tuple[Array, Array]:
    """Sites that support f: its slope, and a curvature that leaves a density."""
    likelihood, data = problem.model.likelihood, problem.data
    g, W = _slope_and_curvature(problem, likelihood, f)
    if problem.signed:
        W = jnp.where(data.seen, data.times(1.0) * likelihood.curvature_bound(data.y, f, data.extra), 0.0)
    return W, W * f + g
