"""Laplace's approximation: the Gaussian at the mode, found by Newton with a line search that costs no call of the engine.

Kept are f and a = K⁻¹(f − m), which the engine gives without K⁻¹: with g = ∂log p, W = −∂²log p and sites (W, Wf + g), the next
mode is the mean f* under the sites and a* = Wf + g − W f*. Both move on straight lines, so

    ψ(s) = log p(y | f + s df) − ½ (a + s da)ᵀ(f + s df − m)

is had for any step s without the engine. Where W is negative and leaves no density, or no ascent, a positive curvature that
the likelihood knows takes its place for this step. At the mode the true W is used. Of several latents f, g and a are vectors at
each place, and W is a matrix.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..engines.basis import columns
from ..likelihoods.base import Likelihood
from ..linalg.blocks import Blocks, dot, on_each, times, trace
from .base import CONVERGED, INFEASIBLE, UNFINISHED, Found, Inference, Problem, Start, hold, known

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

    name = "laplace"

    def form(self, likelihood: Likelihood, count: int) -> Blocks:
        return likelihood.slope_and_curvature(jnp.zeros(1), jnp.zeros((1, likelihood.latents)))[1]

    def find(self, problem: Problem, start: Start, tolerance: Any, max_calls: int) -> Found:
        """Newton from the mode that the starting sites describe."""
        return self._at_mode(problem, newton(problem, start, tolerance, max_calls))

    def _at_mode(self, problem: Problem, end: Mode) -> Found:
        data, f = problem.data, end.f
        g, W = _slope_and_curvature(problem, f)
        h = times(W, f) + g
        bend = lambda variance: -0.5 * _bends(problem, f, variance)
        whole = problem.given(W, h, bend)
        evidence = whole.log_normaliser + data.sum(_values(problem, f) - dot(h, f) + 0.5 * dot(f, times(W, f)))
        status = jnp.where(jnp.isfinite(evidence), end.status, INFEASIBLE)
        residual = jnp.sqrt(jnp.abs(end.decrement))
        held = (f, whole.variance, bend(whole.variance), whole.applied)
        return Found(W, h, whole.mean, whole.variance, evidence, held, end.calls + 1, residual, status)

    def surrogate(self, problem: Problem, found: Found) -> Float[Array, ""]:
        found = hold(found)
        f, variance, s, applied = found.held
        g, W = _slope_and_curvature(problem, f)
        own = _values(problem, f) - 0.5 * trace(W, variance) + dot(applied, g)
        return problem.log_normaliser(found.w, found.h, s) + problem.data.sum(own)


def _values(problem: Problem, f: Array) -> Float[Array, " N"]:
    """log p at every place, as often as it counts."""
    data = problem.data
    return data.times(1.0) * problem.model.likelihood.log_prob(data.y, f, data.extra)


def _counted(problem: Problem, parts: Any) -> Any:
    """What is had at every place, as often as it counts, and 0 where nothing was seen."""
    seen, often = problem.data.seen, problem.data.times(1.0)
    return jax.tree.map(lambda part: jnp.where(on_each(seen, part), on_each(often, part) * part, 0.0), parts)


def _slope_and_curvature(problem: Problem, f: Array) -> tuple[Array, Blocks]:
    """∂log p and W = −∂²log p at every place, 0 where nothing was seen."""
    data = problem.data
    return _counted(problem, problem.model.likelihood.slope_and_curvature(data.y, f, data.extra))


def _positive_curvature(problem: Problem, f: Array) -> Blocks:
    """A stand-in for W that leaves a density."""
    data = problem.data
    return _counted(problem, problem.model.likelihood.curvature_bound(data.y, f, data.extra))


def _bends(problem: Problem, f: Array, variance: Array) -> Array:
    """∂ tr(V W)/∂f at every place."""
    along = lambda e: jax.jvp(lambda f: trace(_slope_and_curvature(problem, f)[1], variance), (f,), (e,))[1]
    if f.ndim == 1:
        return along(jnp.ones_like(f))
    return jax.vmap(lambda e: along(jnp.broadcast_to(e, f.shape)), out_axes=-1)(jnp.eye(f.shape[1]))


def newton(problem: Problem, start: Start, tolerance: Any, max_calls: int) -> Mode:
    """The mode of f, from the one that the starting sites describe."""
    offset, _ = columns(problem.model, problem.X)
    start_w, start_h = known(start)

    def height(f: Array, a: Array) -> Array:
        return problem.data.sum(_values(problem, f)) - 0.5 * jnp.sum(a * (f - offset))

    def direction(s: Mode, W: Blocks, h: Array, g: Array) -> tuple[Array, Array, Array]:
        mean = problem.given(W, h).mean
        df, da = mean - s.f, h - times(W, mean) - s.a
        return df, da, jnp.sum((g - s.a) * df)

    def body(s: Mode) -> Mode:
        first = s.calls == 0  # towards the mean under the sites to start from, which may say nothing
        g, W = _slope_and_curvature(problem, s.f)
        choose = lambda a, b: jnp.where(first, a, b)
        w, h = jax.tree.map(choose, (start_w, start_h), (W, times(W, s.f) + g))
        df, da, decrement = direction(s, w, h, g)
        calls = s.calls + 1
        if problem.signed:
            bad = ~first & (~jnp.isfinite(decrement) | (decrement < 0))
            positive = _positive_curvature(problem, s.f)
            step = lambda: direction(s, positive, times(positive, s.f) + g, g)
            df, da, decrement = jax.lax.cond(bad, step, lambda: (df, da, decrement))
            calls = calls + bad
        now, rise = height(s.f, s.a), choose(0.0, ARMIJO * decrement)
        far = lambda t: ~(height(s.f + t * df, s.a + t * da) >= now + rise * t - 1e-13 * jnp.abs(now)) & (t > 2.0**-HALVINGS)
        t = jax.lax.while_loop(far, lambda t: 0.5 * t, jnp.ones(()))
        stuck, done = ~jnp.isfinite(decrement) | (t <= 2.0**-HALVINGS), decrement <= tolerance**2
        move = lambda x, dx: jnp.where(stuck, x, x + t * dx)
        status = choose(RUNNING, jnp.where(done, CONVERGED, jnp.where(stuck, INFEASIBLE, RUNNING)))
        return Mode(move(s.f, df), move(s.a, da), decrement, calls, status)

    state = Mode(offset, jnp.zeros_like(offset), jnp.asarray(jnp.inf), jnp.asarray(0), jnp.asarray(RUNNING))
    end = jax.lax.while_loop(lambda s: (s.status == RUNNING) & (s.calls < max_calls), body, state)
    return end._replace(status=jnp.where(end.status == RUNNING, UNFINISHED, end.status))


def sites_at(problem: Problem, f: Array) -> Start:
    """Sites that support f: its slope, and a curvature that leaves a density."""
    g, W = _slope_and_curvature(problem, f)
    W = _positive_curvature(problem, f) if problem.signed else W
    return W, times(W, f) + g
