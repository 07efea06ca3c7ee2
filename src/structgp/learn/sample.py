"""Chains on the density of θ, many side by side: Hamiltonian, Metropolis and slice moves, in coordinates of unit size.

They start at even draws from the normal approximation, so that a few moves are enough: in these coordinates eight leaps of
0.35 are accepted nine times out of ten without any tuning.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._types import generator
from ..crew import Crew
from ..engines.base import Engine
from ..parameters.tree import with_free
from .density import traced_log_prior
from .evidence import GaussianEvidence, log_evidence
from .peak import CHAINS, Averaging, Draws, Evidence, Peak, normal_scores

LEAPS, LEAP = 8, 0.35  # of one Hamiltonian trajectory
WINDOW = 8.0  # in which a slice is looked for
GROUPS = 4  # of chains that are moved elsewhere: it does not depend on who does it, so that the draws do not
TRIES = 60  # after which a slice has shrunk to nothing

Points = Float[np.ndarray, "K Q"]
Heights = Float[np.ndarray, " K"]
Function = Callable[[Points], Heights]
Slopes = Callable[[Points], tuple[Heights, Points]]


def by_chains(peak: Peak, averaging: Averaging, over: Crew | None = None) -> Draws:
    """The last states of as many chains as there are members; `over` has groups of chains moved elsewhere."""
    rng = generator(averaging.seed)
    u = normal_scores(peak.size, averaging.count, averaging.seed)
    if over is None:
        u = moved(peak, u, averaging, rng)
    else:
        groups = np.array_split(u, min(GROUPS, len(u)))
        same = itertools.repeat
        u = np.concatenate(over.map(moved, same(peak), groups, same(averaging), rng.spawn(len(groups))))
    laplace = peak.evidence()
    evidence = Evidence(laplace.log, None, "laplace", float(len(u)), laplace.evaluations, laplace.remark)
    return peak.draws(peak.thetas(u), np.ones(len(u)), evidence, averaging.method)


def moved(peak: Peak, u: Points, averaging: Averaging, rng: np.random.Generator) -> Points:
    """Where chains from these places end."""
    steps = averaging.steps or CHAINS[averaging.method][0]
    if averaging.method == "hmc":
        return trajectories(peak, u, steps, LEAPS, LEAP, rng)
    if averaging.method == "nuts":
        return without_turns(peak, u, steps, rng)
    values = peak.values(u)
    for _ in range(steps):
        if averaging.method == "slice":
            u, values = slice_step(peak.values, u, values, rng)
        else:
            u, values, _ = metropolis_step(peak.values, u, values, np.eye(peak.size), rng)
    return u


def trajectories(peak: Peak, u: Points, count: int, leaps: int, leap: float, rng: np.random.Generator) -> Points:
    """The places of all chains after so many Hamiltonian trajectories."""
    known = peak.values_and_slopes(u)
    for _ in range(count):
        u, known = hamiltonian_step(peak.values_and_slopes, u, known, np.eye(u.shape[1]), leaps, leap, rng)
    return u


def hamiltonian_step(
    function: Slopes,
    u: Points,
    known: tuple[Heights, Points],
    root: Float[np.ndarray, "Q Q"],
    leaps: int,
    leap: float,
    rng: np.random.Generator,
) -> tuple[Points, tuple[Heights, Points]]:
    """One Hamiltonian trajectory of every chain, in coordinates of this shape; values and slopes at u are `known`."""
    values, slopes = known
    momentum = rng.standard_normal(u.shape)
    step = leap * (1 + 0.3 * rng.uniform(-1, 1, (len(u), 1)))
    new, height, slope = u, values, slopes
    p = momentum + 0.5 * step * slope @ root
    for leapt in range(leaps):
        new = new + step * (p @ root.T)
        height, slope = function(new)
        p = p + (1.0 if leapt < leaps - 1 else 0.5) * step * slope @ root
    gain = height - values - 0.5 * np.sum(p * p - momentum * momentum, axis=1)
    taken = np.log(rng.uniform(size=len(u))) < gain
    u, slopes = (np.where(taken[:, None], *pair) for pair in ((new, u), (slope, slopes)))
    return u, (np.where(taken, height, values), slopes)


def without_turns(peak: Peak, u: Points, count: int, rng: np.random.Generator) -> Points:
    """The places of all chains after so many trajectories of BlackJAX's no-U-turn sampler."""
    try:
        import blackjax  # noqa: F401
    except ImportError:
        raise ImportError(
            "parameters='nuts' needs BlackJAX: pip install structgp[mcmc], or use parameters='hmc', which needs nothing"
        ) from None
    if not isinstance(peak.density.evidence, GaussianEvidence):
        raise ValueError("parameters='nuts' needs Gaussian observations: parameters='hmc' takes any")
    keys = jax.random.split(jax.random.key(int(rng.integers(2**62))), len(u))
    spread = np.zeros((len(peak.center), peak.size))
    spread[peak.moved] = peak.root
    map_ = peak.density.beliefs.units @ spread, peak.mode
    program = peak.density.evidence.program(peak.mode)
    return np.asarray(_nuts(keys, u, map_, *program[:3], peak.density.beliefs, program[3], count))


@functools.partial(jax.jit, static_argnames=("engine", "count"))
def _nuts(
    keys: Array,
    u: Array,
    map_: tuple[Array, Array],
    model: Any,
    inputs: Any,
    data: Any,
    beliefs: Any,
    engine: Engine,
    count: int,
) -> Array:
    import blackjax

    def height(u: Array) -> Array:
        theta = map_[0] @ u + map_[1]
        return log_evidence(with_free(model, theta), inputs, data, engine) + traced_log_prior(theta, model, beliefs)

    nuts = blackjax.nuts(height, step_size=2 * LEAP, inverse_mass_matrix=jnp.ones(u.shape[1]), max_num_doublings=4)

    def chain(key: Array, u: Array) -> Array:
        step = lambda state, key: (nuts.step(key, state)[0], None)
        return jax.lax.scan(step, nuts.init(u), jax.random.split(key, count))[0].position

    return jax.vmap(chain)(keys, u)


def metropolis_step(
    function: Function, u: Points, values: Heights, root: Float[np.ndarray, "Q Q"], rng: np.random.Generator
) -> tuple[Points, Heights, float]:
    """One move of every chain by a random walk of this shape, and the part that moved; steps of many lengths."""
    length = 2.38 / np.sqrt(u.shape[1]) * np.exp(0.5 * rng.standard_normal((len(u), 1)))
    new = u + length * (rng.standard_normal(u.shape) @ root.T)
    heights = function(new)
    taken = np.log(rng.uniform(size=len(u))) < heights - values
    return np.where(taken[:, None], new, u), np.where(taken, heights, values), float(taken.mean())


def slice_step(function: Function, u: Points, values: Heights, rng: np.random.Generator) -> tuple[Points, Heights]:
    """One move of every chain along a random direction, to a place drawn evenly from a slice of the density."""
    direction = rng.standard_normal(u.shape)
    direction /= np.linalg.norm(direction, axis=1, keepdims=True)
    level = values + np.log(rng.uniform(size=len(u)))
    low = -WINDOW * rng.uniform(size=len(u))
    high = low + WINDOW
    found, heights, open_ = np.zeros(len(u)), values.copy(), np.arange(len(u))
    for _ in range(TRIES):
        place = rng.uniform(low[open_], high[open_])
        value = function(u[open_] + place[:, None] * direction[open_])
        inside = value > level[open_]
        found[open_[inside]], heights[open_[inside]] = place[inside], value[inside]
        below = place < 0
        low[open_] = np.where(below, place, low[open_])
        high[open_] = np.where(below, high[open_], place)
        open_ = open_[~inside]
        if not len(open_):
            break
    return u + found[:, None] * direction, heights
