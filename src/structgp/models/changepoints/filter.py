"""The run-length filter: what is believed about where the present segment began, point by point, in log space.

After n points every hypothesis has a start s, the mass p(s | points so far) and what its segment has told the model. A new
point y with density π(s) under each hypothesis and hazard h (Adams and MacKay 2007, with the convention of Saatçi 2011: y
belongs to the old segment, and a change is decided after it):

    mass(s) ← mass(s) π(s) (1 − h),    mass(n + 1) = Σ_s mass(s) π(s) h,    p(y | before) = Σ_s mass(s) π(s).

Hypotheses sit in a fixed number of slots. The new one takes the slot with the least mass, an empty one as long as there is any;
what is lost that way, and below the threshold, is added up.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.nn import logsumexp
from jaxtyping import Array, Float, Int

from .hazards import Hazard
from .predictive import Mixed
from .segments import SegmentModel

CHUNK = 64  # points between which the gradient keeps a whole belief


class Belief(eqx.Module):
    """What is known after `count` points, the last at `time`: in each slot the start of a segment, and its log mass."""

    start: Int[Array, " K"]
    log_mass: Float[Array, " K"]
    log_last: Float[Array, " K"]  # of the segment that the last point belongs to, before it may have ended
    memory: Any
    count: Int[Array, ""]
    time: Float[Array, ""]
    log_evidence: Float[Array, ""]
    dropped: Float[Array, ""]  # probability that was given up, added up over all points


class Step(NamedTuple):
    """What one point said: its log density before it was seen, and the mean and variance of that prediction."""

    log_density: Any
    mean: Any
    variance: Any


class Trace(NamedTuple):
    """The hypotheses at one point: starts, log p(start | points up to this one), the log density of the point under each."""

    start: Any
    log_joint: Any
    log_density: Any


def first_belief(model: SegmentModel, slots: int, length: int | None) -> Belief:
    """Before anything is seen: a segment begins with the first point."""
    start = jnp.full(slots, -1, dtype=jnp.int32).at[0].set(0)
    log_mass = jnp.full(slots, -jnp.inf).at[0].set(0.0)
    zero = jnp.zeros(())
    none = jnp.full(slots, -jnp.inf)
    return Belief(start, log_mass, none, model.begin(slots, length), jnp.zeros((), jnp.int32), zero, zero, zero)


begun = jax.jit(first_belief, static_argnames=("slots", "length"))  # the same from outside of a program


def gap_to(belief: Belief, t: Any) -> Any:
    """The time since the last point; none before the first."""
    return jnp.where(belief.count > 0, t - belief.time, 0.0)


def advance(
    model: SegmentModel, hazard: Hazard, threshold: float, belief: Belief, t: Any, y: Any
) -> tuple[Belief, Step, Trace]:
    """The belief after one more point, what was expected of it, and what it said of the hypotheses."""
    gap = gap_to(belief, t)
    expected = model.look(belief.memory, t, gap)
    log_density = expected.score(y)
    log_joint = belief.log_mass + log_density
    log_total = logsumexp(log_joint)
    log_joint = log_joint - log_total
    log_change, log_stay = hazard.logs(belief.count - belief.start)
    grown, born = log_joint + log_stay, logsumexp(log_joint + log_change)
    kept = jnp.where(grown < np.log(threshold), -jnp.inf, grown) if threshold > 0 else grown
    slot = jnp.argmin(kept)
    log_mass = kept.at[slot].set(born)
    log_kept = logsumexp(log_mass)
    lost = jnp.where(grown > -jnp.inf, jnp.exp(grown), 0.0) - jnp.where(log_mass > -jnp.inf, jnp.exp(log_mass), 0.0)
    lost = jnp.sum(lost.at[slot].set(jnp.exp(grown[slot])))
    new = Belief(
        belief.start.at[slot].set(belief.count + 1),
        log_mass - log_kept,
        log_joint.at[slot].set(-jnp.inf),
        model.renew(model.see(belief.memory, t, gap, y), slot),
        belief.count + 1,
        jnp.asarray(t, jnp.float64),
        belief.log_evidence + log_total,
        belief.dropped + lost,
    )
    mixture = Mixed(belief.log_mass, expected)
    return new, Step(log_total, mixture.mean, mixture.variance), Trace(belief.start, log_joint, log_density)


@functools.partial(jax.jit, static_argnames=("threshold", "traced"))
def follow(
    model: SegmentModel, hazard: Hazard, belief: Belief, t: Any, y: Any, valid: Any, threshold: float, traced: bool
) -> tuple[Belief, Step, Trace | None]:
    """The belief after several points, and what each of them said; those that are not valid are skipped."""
    skipped = jax.eval_shape(lambda: advance(model, hazard, threshold, belief, t[0], y[0])[1:])

    def body(belief: Belief, x: Any) -> tuple[Belief, Any]:
        t, y, valid = x
        go = lambda: advance(model, hazard, threshold, belief, t, y)
        stay = lambda: (belief, *jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), skipped))
        belief, step, trace = jax.lax.cond(valid, go, stay)
        return belief, (step, trace if traced else None)

    belief, (steps, traces) = jax.lax.scan(body, belief, (t, y, valid))
    return belief, steps, traces


def log_evidence(
    model: SegmentModel, hazard: Hazard, t: Any, y: Any, threshold: float, slots: int, length: int
) -> Float[Array, ""]:
    """log p(y) of a whole series, with a gradient; the number of points is a multiple of `CHUNK`, and NaN adds nothing."""

    def body(belief: Belief, x: Any) -> tuple[Belief, None]:
        return advance(model, hazard, threshold, belief, *x)[0], None

    @jax.checkpoint
    def chunk(belief: Belief, x: Any) -> tuple[Belief, None]:
        return jax.lax.scan(jax.checkpoint(body), belief, x)

    pieces = jax.tree.map(lambda x: x.reshape(-1, CHUNK, *x.shape[1:]), (t, y))
    return jax.lax.scan(chunk, first_belief(model, slots, length), pieces)[0].log_evidence
