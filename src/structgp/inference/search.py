"""The search for a fixed point of a local rule: all sites at once, damped by the angle between steps, sped up by Anderson.

A rule proposes for every site where it should be, Δ away. Steps are measured by ⟨Δ, Δ'⟩ = Σ v² Δw Δw' + v Δh Δh', which has no
units; of full matrices v_c v_d stands for v². When successive proposals point against each other the step is shortened, when
they agree it grows; neither the residual nor the evidence is monotone on the way, so neither steers. Near the solution the last
few steps are combined (Anderson), and a combination that leads astray is forgotten. A step that leaves no density is halved; a
place where the rule makes no sense, as where EP has no cavity, is passed over, and the search is not at its end before it does;
if that takes long, negative sites, which take the cavities of those beside them, are left out until every place has one again.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ..linalg.blocks import full, lifted, own
from .base import CONVERGED, INFEASIBLE, UNFINISHED, Problem, Start, known
from .laplace import Laplace, newton, sites_at

DEEP, SHALLOW, MANY = 10, 5, 100_000  # steps that are combined where sites pull each other, at so many places; elsewhere
NEAR = 0.3  # residual below which they are
SMALLEST, LEAST = 0.05, 1e-4  # the smallest damping, and the smallest step on the way back to densities
PATIENCE = 50  # calls after which nothing is negative as long as some place has no cavity
RUNNING = -1
MODE_TOLERANCE, MODE_CALLS = 1e-2, 30  # for a start


class Proposal(NamedTuple):
    """Where the sites should be, how far they are from it, and whether the rule makes sense here."""

    w: Float[Array, " N *C"]
    h: Float[Array, " N *C"]
    residual: Float[Array, " N *C"]
    sensible: Bool[Array, " N *C"]


@runtime_checkable
class LocalRule(Protocol):
    """What a search needs of a rule."""

    def propose(self, problem: Problem, w: Array, h: Array, mean: Array, variance: Array) -> Proposal:
        """New sites from the old ones and the marginals that they leave."""


class View(NamedTuple):
    """What is seen from some sites: marginals, normaliser, the proposed change, how far it is, and whether all is well."""

    mean: Array
    variance: Array
    log_normaliser: Array
    change: Float[Array, "P N"]
    residual: Array
    fine: Array


class _State(NamedTuple):
    sites: Float[Array, "P N"]  # w and h in one array, two rows for each latent or more: half as many operations to compile
    view: View
    damping: Array
    shrink: Array
    moves: Float[Array, "k P N"]  # differences of the sites
    turns: Float[Array, "k P N"]  # and of the proposals
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
    start: Start,
    tolerance: Any,
    max_calls: int,
    from_mode: bool = False,
) -> Settled:
    """Sites that the rule leaves where they are, to a tolerance in standard deviations.

    An unknown start stands for sites that say nothing or, if that is far from any solution, for those of Laplace's mode.
    """
    seen = problem.data.seen

    def view(sites: Array, calls: Array) -> View:
        w, h = _unpacked(sites, begin_at)
        mean, variance, log_normaliser, _ = problem.given(w, h)
        to = rule.propose(problem, w, h, mean, variance)
        change = _packed((to.w, to.h)) - sites
        sensible = to.sensible if to.sensible.ndim == 1 else jnp.all(to.sensible, axis=1)
        passed = ~(sensible & jnp.all(jnp.isfinite(change), axis=0)) & seen
        if problem.signed:  # what is negative beside a place may take its cavity: it has to wait
            without = _packed((lifted(to.w), to.h)) - sites
            change = jnp.where(jnp.any(passed) & (calls >= PATIENCE), without, change)
        change = jnp.where(seen & ~passed, change, 0.0)
        fine = jnp.isfinite(log_normaliser) & jnp.all(own(variance) > 0) & ~(jnp.all(passed | ~seen) & jnp.any(seen))
        residual = jnp.max(jnp.where(passed, 1.0, jnp.where(seen, to.residual.T, 0.0)), initial=0.0)
        return View(mean, variance, log_normaliser, change, residual, fine)

    def body(s: _State) -> _State:
        first = s.calls == 0  # nothing has been seen yet: look, and do not move
        combine = (s.view.residual < NEAR) & (s.kept > 0) & ~s.refused & (s.shrink == 1.0)
        step = s.damping * s.shrink
        sites = jax.lax.cond(combine, lambda: _combined(s), lambda: s.sites + step * s.view.change)
        new = view(sites, s.calls)
        good = new.fine & (~combine | (new.residual <= 2 * s.view.residual))
        angle = _cosine(new, s.view)
        faster, slower = jnp.minimum(1.0, 1.15 * s.damping), jnp.maximum(SMALLEST, 0.6 * s.damping)
        turned = jnp.where(angle > 0.1, faster, jnp.where(angle < -0.1, slower, s.damping))
        slot = s.kept % len(s.moves)
        remember = lambda past, difference: past.at[slot].set(jnp.where(good, difference, past[slot]))
        kept = jnp.where(first, 0, s.kept + 1)
        choose = lambda a, b: jnp.where(good, a, b)
        next_view = View(*(choose(a, b) for a, b in zip(new, s.view, strict=True)))
        hopeless = ~good & ~combine & ((step < LEAST) | first)
        return _State(
            choose(sites, s.sites),
            next_view,
            jnp.where(good, turned, jnp.where(combine, s.damping, 0.7 * s.damping)),
            jnp.where(good | combine, 1.0, 0.5 * s.shrink),
            remember(s.moves, sites - s.sites),
            remember(s.turns, new.change - s.view.change),
            jnp.where(good, kept, jnp.where(combine, 0, s.kept)),
            ~good & combine,
            s.calls + 1,
            jnp.where(hopeless, INFEASIBLE, jnp.where(next_view.residual <= tolerance, CONVERGED, RUNNING)),
        )

    def going(s: _State) -> Array:
        return (s.status == RUNNING) & (s.calls < max_calls)

    begin_at = _from_mode(problem, start) if from_mode or problem.leaves_functions_free() else known(start)
    sites = _packed(begin_at)
    likelihood = problem.model.likelihood
    damping = 0.8 if likelihood.log_concave else 0.5
    pulled = likelihood.latents > 1 or not likelihood.log_concave
    variance, mean = jax.tree.map(jnp.zeros_like, begin_at)
    empty = jnp.zeros((DEEP if pulled and sites.shape[1] <= MANY else SHALLOW, *sites.shape))
    unseen = View(mean, variance, jnp.zeros(()), jnp.zeros_like(sites), jnp.asarray(jnp.inf), jnp.asarray(False))
    begin = _State(
        sites,
        unseen,
        jnp.asarray(damping),
        jnp.ones(()),
        empty,
        empty,
        jnp.asarray(0),
        jnp.asarray(False),
        jnp.asarray(0),
        jnp.asarray(RUNNING),
    )
    end = jax.lax.while_loop(going, body, begin)
    status = jnp.where(end.status == RUNNING, UNFINISHED, end.status)
    return Settled(*_unpacked(end.sites, begin_at), end.view, end.calls, status)


def _packed(sites: tuple[Array, Array]) -> Float[Array, "P N"]:
    """w and h at each place in one column."""
    return jnp.concatenate([jnp.reshape(part, (len(part), -1)).T for part in sites])


def _unpacked(columns: Float[Array, "P N"], like: tuple[Array, Array]) -> tuple[Array, Array]:
    """w and h, of these shapes."""
    w, h = like
    of_w = w[0].size
    return columns[:of_w].T.reshape(w.shape), columns[of_w:].T.reshape(h.shape)


def _from_mode(problem: Problem, start: tuple[Array, Array]) -> tuple[Array, Array]:
    """The start, or what Laplace's mode says where it is unknown."""

    def mode() -> tuple[Array, Array]:
        several = start[1].ndim > 1  # whose curvature may have another form than these sites
        likelihood = problem.model.likelihood
        end = newton(problem, Laplace().unknown(likelihood, len(start[1])) if several else start, MODE_TOLERANCE, MODE_CALLS)
        w, h = sites_at(problem, end.f)
        w = w if not several else full(w) if start[0].ndim == 3 else own(full(w))
        return jnp.where(jnp.isnan(start[0]), w, start[0]), jnp.where(jnp.isnan(start[1]), h, start[1])

    return jax.lax.cond(jnp.any(jnp.isnan(start[0])), mode, lambda: start)


def _metric(view: View) -> Float[Array, "P N"]:
    """What makes steps comparable."""
    v = own(view.variance)
    return _packed((v[:, :, None] * v[:, None, :] if view.variance.ndim == 3 else v**2, v))


def _cosine(new: View, old: View) -> Float[Array, ""]:
    """Of the angle between two proposed changes."""
    metric = _metric(new)
    inner = lambda p, q: jnp.sum(metric * p.change * q.change)
    return inner(new, old) / jnp.sqrt(jnp.maximum(inner(new, new) * inner(old, old), 1e-300))


def _combined(s: _State) -> Float[Array, "P N"]:
    """The combination of the last steps whose proposed change is smallest, and one damped step from there."""
    depth = len(s.moves)
    there = jnp.arange(depth) < s.kept
    flat = lambda past: jnp.reshape(past, (depth, -1))
    turns = flat(jnp.where(there[:, None, None], s.turns, 0.0))
    weighed = turns * jnp.ravel(_metric(s.view))
    gram, right = weighed @ turns.T, weighed @ jnp.ravel(s.view.change)
    ridge = 1e-10 * jnp.trace(gram) * jnp.eye(depth) + jnp.diag(jnp.where(there, 0.0, 1.0))
    gamma = jnp.where(there, jnp.linalg.solve(gram + ridge, right), 0.0)
    back = jnp.reshape(gamma @ (flat(s.moves) + s.damping * turns), s.sites.shape)
    return s.sites + s.damping * s.view.change - back
