"""The search for a fixed point of a local rule: all sites at once, damped by the angle between steps, sped up by Anderson.

A rule proposes for every site where it should be, Δ away. Steps are measured by ⟨Δ, Δ'⟩ = Σ v² Δw Δw' + v Δh Δh', which has no
units. When successive proposals point against each other the step is shortened, when they agree it grows; neither the residual
nor the evidence is monotone on the way, so neither steers. Near the solution the last few steps are combined (Anderson), and a
combination that leads astray is forgotten. A step that leaves no density is halved.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from .base import CONVERGED, INFEASIBLE, UNFINISHED, Problem, known
from .laplace import newton, sites_at

DEPTH = 5  # steps that are combined
NEAR = 0.3  # residual below which they are
SMALLEST, LEAST = 0.05, 1e-4  # the smallest damping, and the smallest step on the way back to densities
RUNNING = -1
MODE_TOLERANCE, MODE_CALLS = 1e-2, 30  # for a start


class Proposal(NamedTuple):
    """Where the sites should be, how far they are from it, and whether the rule makes sense here."""

    w: Float[Array, "N"]
    h: Float[Array, "N"]
    residual: Float[Array, "N"]
    sensible: Bool[Array, "N"]


class LocalRule(Protocol):
    """What a search needs of a rule."""

    def propose(self, problem: Problem, w: Array, h: Array, mean: Array, variance: Array) -> Proposal:
        """New sites from the old ones and the marginals that they leave."""


class View(NamedTuple):
    """What is seen from some sites: marginals, normaliser, proposed change, how far it is, and whether all is well."""

    mean: Array
    variance: Array
    log_normaliser: Array
    dw: Array
    dh: Array
    residual: Array
    fine: Array


class _State(NamedTuple):
    w: Array
    h: Array
    view: View
    damping: Array
    shrink: Array
    past: tuple[Array, Array, Array, Array]  # differences of the sites and of the proposals: (DEPTH, N) each
    kept: Array  # how many of them are there
    refused: Array  # the last combination led astray
    calls: Array
    status: Array


class Settled(NamedTuple):
    """Where a search ended."""

    w: Array
    h: Array
    view: View
    calls: Array
    status: Array


def settle(
    rule: LocalRule,
    problem: Problem,
    start: tuple[Array, Array],
    tolerance: Any,
    max_calls: int,
    from_mode: bool = False,
) -> Settled:
    """Sites that the rule leaves where they are, to a tolerance in standard deviations.

    An unknown start stands for sites that say nothing or, if that is far from any solution, for those of Laplace's mode.
    """
    seen = problem.data.seen

    def view(w: Array, h: Array) -> View:
        mean, variance, log_normaliser, _ = problem.given(w, h)
        to = rule.propose(problem, w, h, mean, variance)
        fine = jnp.isfinite(log_normaliser) & jnp.all(variance > 0)
        fine &= jnp.all(jnp.where(seen, to.sensible & jnp.isfinite(to.w) & jnp.isfinite(to.h), True))
        change = lambda new, old: jnp.where(seen, new - old, 0.0)
        residual = jnp.max(jnp.where(seen, to.residual, 0.0), initial=0.0)
        return View(mean, variance, log_normaliser, change(to.w, w), change(to.h, h), residual, fine)

    def body(s: _State) -> _State:
        first = s.calls == 0  # nothing has been seen yet: look, and do not move
        combine = (s.view.residual < NEAR) & (s.kept > 0) & ~s.refused & (s.shrink == 1.0)
        step = s.damping * s.shrink
        plain = lambda: (s.w + step * s.view.dw, s.h + step * s.view.dh)
        w, h = jax.lax.cond(combine, lambda: _combined(s), plain)
        new = view(w, h)
        good = new.fine & (~combine | (new.residual <= 2 * s.view.residual))
        angle = _cosine(new, s.view)
        faster, slower = jnp.minimum(1.0, 1.15 * s.damping), jnp.maximum(SMALLEST, 0.6 * s.damping)
        turned = jnp.where(angle > 0.1, faster, jnp.where(angle < -0.1, slower, s.damping))
        slot = s.kept % DEPTH
        difference = (w - s.w, h - s.h, new.dw - s.view.dw, new.dh - s.view.dh)
        past = tuple(p.at[slot].set(jnp.where(good, d, p[slot])) for p, d in zip(s.past, difference, strict=True))
        kept = jnp.where(first, 0, s.kept + 1)
        choose = lambda a, b: jnp.where(good, a, b)
        next_view = View(*(choose(a, b) for a, b in zip(new, s.view, strict=True)))
        hopeless = ~good & ~combine & ((step < LEAST) | first)
        return _State(
            choose(w, s.w),
            choose(h, s.h),
            next_view,
            jnp.where(good, turned, jnp.where(combine, s.damping, 0.7 * s.damping)),
            jnp.where(good | combine, 1.0, 0.5 * s.shrink),
            past,  # type: ignore[arg-type]
            jnp.where(good, kept, jnp.where(combine, 0, s.kept)),
            ~good & combine,
            s.calls + 1,
            jnp.where(hopeless, INFEASIBLE, jnp.where(next_view.residual <= tolerance, CONVERGED, RUNNING)),
        )

    def going(s: _State) -> Array:
        return (s.status == RUNNING) & (s.calls < max_calls)

    w, h = _from_mode(problem, start) if from_mode or problem.leaves_functions_free() else known(start)
    damping = 0.8 if problem.model.likelihood.log_concave else 0.5
    zero, empty = jnp.zeros_like(w), jnp.zeros((DEPTH, len(w)))
    unseen = View(zero, zero, jnp.zeros(()), zero, zero, jnp.asarray(jnp.inf), jnp.asarray(False))
    begin = _State(
        w,
        h,
        unseen,
        jnp.asarray(damping),
        jnp.ones(()),
        (empty,) * 4,
        jnp.asarray(0),
        jnp.asarray(False),
        jnp.asarray(0),
        jnp.asarray(RUNNING),
    )
    end = jax.lax.while_loop(going, body, begin)
    return Settled(end.w, end.h, end.view, end.calls, jnp.where(end.status == RUNNING, UNFINISHED, end.status))


def _from_mode(problem: Problem, start: tuple[Array, Array]) -> tuple[Array, Array]:
    """The start, or what Laplace's mode says where it is unknown."""

    def mode() -> tuple[Array, Array]:
        end = newton(problem, known(start), MODE_TOLERANCE, MODE_CALLS)
        w, h = sites_at(problem, end.f)
        return jnp.where(jnp.isnan(start[0]), w, start[0]), jnp.where(jnp.isnan(start[1]), h, start[1])

    return jax.lax.cond(jnp.any(jnp.isnan(start[0])), mode, lambda: start)


def _cosine(new: View, old: View) -> Float[Array, ""]:
    """Of the angle between two proposed changes."""
    a, b = new.variance**2, new.variance
    inner = lambda p, q: jnp.sum(a * p.dw * q.dw + b * p.dh * q.dh)
    return inner(new, old) / jnp.sqrt(jnp.maximum(inner(new, new) * inner(old, old), 1e-300))


def _combined(s: _State) -> tuple[Array, Array]:
    """The combination of the last steps whose proposed change is smallest, and one damped step from there."""
    v, (Xw, Xh, Gw, Gh) = s.view.variance, s.past
    there = jnp.arange(DEPTH) < s.kept
    Gw, Gh = (jnp.where(there[:, None], G, 0.0) for G in (Gw, Gh))
    gram = (Gw * v**2) @ Gw.T + (Gh * v) @ Gh.T
    right = (Gw * v**2) @ s.view.dw + (Gh * v) @ s.view.dh
    ridge = 1e-10 * jnp.trace(gram) * jnp.eye(DEPTH) + jnp.diag(jnp.where(there, 0.0, 1.0))
    gamma = jnp.where(there, jnp.linalg.solve(gram + ridge, right), 0.0)
    w = s.w + s.damping * s.view.dw - gamma @ (Xw + s.damping * Gw)
    return w, s.h + s.damping * s.view.dh - gamma @ (Xh + s.damping * Gh)
