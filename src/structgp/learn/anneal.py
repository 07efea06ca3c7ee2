"""Evidences with error bars: chains that pass from a density with a known integral to that of θ.

With q₀ where the chains begin and p where they end, log q_β = (1 − β) log q₀ + β log p. Every step of β weights a chain by
Δβ (log p − log q₀) before it moves, and ∫ p = ∫ q₀ · mean weight (Neal 2001). β goes up as far as the weights stay even: by a
ratio of the largest to the smallest, or until the conditional effective sample size (Σ W u)²/Σ W u², u the new weights, falls
below a part of one. With resampling it is sequential Monte Carlo, and since that hides how uneven the weights were, its
error comes from groups of chains that never meet.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from .._types import generator
from .objective import LOWEST
from .peak import Averaging, Draws, Evidence, Peak, normalised, resampled
from .sample import metropolis_step, slice_step

WIDER = 1.5  # than Laplace's approximation, where it has a ridge
GROUPS = 4  # of chains that never meet, for the error of sequential Monte Carlo

Points = Float[np.ndarray, "C Q"]
Heights = Float[np.ndarray, " C"]


class Start(NamedTuple):
    """A density with a known integral: draws from it, and its logarithm."""

    sample: Callable[[np.random.Generator, int], Points]
    log_prob: Callable[[Points], Heights]


@dataclasses.dataclass(frozen=True)
class Annealed:
    """Where chains ended, their log weights, and what that took."""

    u: Points
    log_weights: Heights
    evaluations: int  # of each chain
    spent: float = 0.0  # variance of the logarithm that resampling has hidden in even weights

    @property
    def log(self) -> float:
        """The logarithm of the integral."""
        return normalised(self.log_weights)[0] - float(np.log(len(self.log_weights)))

    @property
    def effective(self) -> float:
        """How many chains their weights leave."""
        return float(1 / np.sum(normalised(self.log_weights)[1] ** 2))

    @property
    def error(self) -> float:
        """The standard error of the logarithm, from the weights."""
        return float(np.sqrt(max(1 / self.effective - 1 / len(self.u), 0.0) + self.spent))


def anneal(
    start: Start,
    log_prob: Callable[[Points], Heights],
    chains: int,
    rng: np.random.Generator,
    *,
    schedule: str = "ratio",
    ratio: float = 1.5,
    even: float = 0.9,
    moves: int = 1,
    move: str = "metropolis",
    resample: bool = False,
    begun: Annealed | None = None,
) -> Annealed:
    """Chains from one density to another, many side by side; those that have `begun` go on, and also move at the end."""
    u = start.sample(rng, chains) if begun is None else begun.u
    first, last = start.log_prob(u), log_prob(u)
    logs, carried, beta, evaluations = np.zeros(chains) if begun is None else begun.log_weights, 0.0, 0.0, 1

    def mixed(u: Points) -> Heights:
        memory["first"], memory["last"] = start.log_prob(u), log_prob(u)
        return (1 - beta) * memory["first"] + beta * memory["last"]

    memory: dict[str, np.ndarray] = {}
    spent = 0.0 if begun is None else begun.spent
    while beta < 1:
        gain = np.maximum(last - first, 2 * LOWEST)
        step = min(_step(gain, logs, schedule, ratio, even), 1 - beta)
        beta = 1.0 if beta + step > 1 - 1e-9 else beta + step
        logs = logs + step * gain
        if resample and 1 / np.sum(normalised(logs)[1] ** 2) < 0.5 * chains and (beta < 1 or begun is not None):
            total, weights = normalised(logs)
            spent += float(np.sum(weights**2)) - 1 / chains
            kept = resampled(weights, chains, rng)
            u, first, last, logs, carried = u[kept], first[kept], last[kept], np.zeros(chains), carried + total - np.log(chains)
        if beta == 1 and begun is None:
            break
        for _ in range(moves):
            values = (1 - beta) * first + beta * last
            if move == "slice":
                new, _ = slice_step(mixed, u, values, rng)
                u, first, last = new, start.log_prob(new), log_prob(new)
                evaluations += 6
            else:
                new, _, _ = metropolis_step(mixed, u, values, _root(u, logs), rng)
                moved = np.any(new != u, axis=1)
                first, last = np.where(moved, memory["first"], first), np.where(moved, memory["last"], last)
                u, evaluations = new, evaluations + 1
    return Annealed(u, logs + carried, evaluations, spent)


def _step(gain: Heights, logs: Heights, schedule: str, ratio: float, even: float) -> float:
    """How far β may go."""
    alive = gain > LOWEST / 2  # those that began where there is no density are lost, however short the step
    if not alive.any():
        return 1.0
    gain, weights = gain[alive], normalised(logs[alive])[1]
    if schedule == "ratio":
        return float(np.log(ratio) / np.ptp(gain)) if np.ptp(gain) > 0 else 1.0

    def effective(step: float) -> float:
        u = np.exp(step * (gain - gain.max()))
        return float((weights @ u) ** 2 / (weights @ (u * u)))

    low, high = 0.0, 1.0
    if effective(high) > even:
        return high
    for _ in range(50):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if effective(middle) > even else (low, middle)
    return max(low, 1e-6)


def _root(u: Points, logs: Heights) -> Float[np.ndarray, "Q Q"]:
    """A root of the covariance of the chains."""
    weights = normalised(logs)[1]
    centred = u - weights @ u
    values, vectors = np.linalg.eigh((centred * weights[:, None]).T @ centred)
    return vectors * np.sqrt(np.maximum(values, 1e-12 * max(values.max(), 1e-300)))


def around(size: int, wide: float = 1.0) -> Start:
    """A normal density around the mode, in the coordinates of a peak."""
    constant = -size * (0.5 * np.log(2 * np.pi) + np.log(wide))
    return Start(
        lambda rng, count: wide * rng.standard_normal((count, size)),
        lambda u: constant - 0.5 * np.sum(u * u, axis=1) / wide**2,
    )


def from_prior(peak: Peak) -> tuple[Start, Callable[[Points], Heights]]:
    """The density of θ before the data, and that after them, of those entries of z that are averaged over."""
    beliefs, model = peak.density.beliefs, peak.density.model
    scale = float(np.sum(np.log(np.abs(np.diag(beliefs.units)[peak.moved]))))

    def thetas(u: Points) -> Float[np.ndarray, "C P"]:
        z = np.tile(peak.center, (len(u), 1))
        z[:, peak.moved] = u
        return z @ beliefs.units.T

    draw = lambda rng, count: beliefs.z(beliefs.sample(model, rng, count))[:, peak.moved]
    start = Start(draw, lambda u: np.maximum(peak.density.log_priors(thetas(u)), LOWEST) + scale)
    return start, lambda u: peak.density.values(thetas(u)) + scale


def by_annealing(peak: Peak, averaging: Averaging) -> Draws:
    """Annealed chains from the normal approximation, and the members among them by their weights."""
    rng = generator(averaging.seed)
    annealed = anneal(around(peak.size, WIDER if peak.ridges else 1.0), peak.values, max(100, averaging.members), rng)
    chosen = resampled(normalised(annealed.log_weights)[1], averaging.members, rng)
    return peak.draws(peak.thetas(annealed.u[chosen]), np.ones(len(chosen)), told(annealed, "ais"), "ais")


def told(annealed: Annealed, method: str) -> Evidence:
    """The evidence of annealed chains."""
    return Evidence(annealed.log, annealed.error, method, annealed.effective, annealed.evaluations)


def in_groups(run: Callable[[np.random.Generator, int], Annealed], chains: int, seed: Any) -> tuple[Evidence, list[Annealed]]:
    """The evidence of groups of chains that never meet, with the error that their differences tell."""
    rng = generator(seed)
    groups = [run(rng, max(chains // GROUPS, 2)) for _ in range(GROUPS)]
    logs = np.array([group.log for group in groups])
    top = logs.max()
    ratios = np.exp(logs - top)
    error = float(np.std(ratios, ddof=1) / np.sqrt(GROUPS) / ratios.mean())
    log = float(top + np.log(ratios.mean()))
    evaluations = max(group.evaluations for group in groups)
    return Evidence(log, error, "smc", sum(group.effective for group in groups), evaluations), groups
