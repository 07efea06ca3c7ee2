"""Evidences with error bars: chains that pass from a density with a known integral to that of θ.

With q₀ where the chains begin and p where they end, log q_β = (1 − β) log q₀ + β log p. Every step of β weights a chain by
Δβ (log p − log q₀) before it moves, and ∫ p = ∫ q₀ · mean weight (Neal 2001). β goes up as far as the weights stay even: by a
ratio of the largest to the smallest, or until the conditional effective sample size (Σ W u)²/Σ W u², u the new weights, falls
below a part of one. With resampling it is sequential Monte Carlo, and since that hides how uneven the weights were, its
error comes from groups of chains that never meet.

Chains begin in t distributions around the modes that are known: where a normal one has a tail that is too thin, few weights
are large, and they do not tell.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from .._types import generator
from ..crew import Crew
from .objective import LOWEST
from .peak import Averaging, Draws, Evidence, Peak, normalised, resampled, student_scores
from .sample import hamiltonian_step, metropolis_step, slice_step

FREEDOM = 5.0  # degrees of freedom of where chains begin
WIDER = 1.5  # than Laplace's approximation, where it has a ridge
LEAPS, LEAP = 4, 0.35  # of a Hamiltonian move
EVEN = 0.97  # conditional effective sample size of a step between Hamiltonian moves
GROUPS = 4  # of chains that never meet, for the error of sequential Monte Carlo, or because they are done elsewhere

Points = Float[np.ndarray, "C Q"]
Heights = Float[np.ndarray, " C"]


class Start(NamedTuple):
    """A density with a known integral: draws from it, its logarithm, and the gradient of that, for Hamiltonian moves."""

    sample: Callable[[np.random.Generator, int], Points]
    log_prob: Callable[[Points], Heights]
    slopes: Callable[[Points], Points] | None = None


class Look(NamedTuple):
    """Both ends of the path where chains are: log densities, and their gradients where moves need them."""

    first: Heights
    last: Heights
    first_slopes: Points
    last_slopes: Points

    def between(self, beta: float) -> tuple[Heights, Points]:
        """The log density at β and its gradient."""
        part = lambda first, last: (1 - beta) * first + beta * last
        return part(self.first, self.last), part(self.first_slopes, self.last_slopes)

    def of(self, rows: np.ndarray) -> Look:
        """Those of some chains."""
        return Look(*(part[rows] for part in self))

    def moved(self, which: np.ndarray, to: Look) -> Look:
        """The same where some chains went on."""
        return Look(*(np.where(which.reshape(-1, *(1,) * (old.ndim - 1)), new, old) for old, new in zip(self, to, strict=True)))


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
    values_and_slopes: Callable[[Points], tuple[Heights, Points]] | None = None,
) -> Annealed:
    """Chains from one density to another, many side by side; those that have `begun` go on, and also move at the end.

    Hamiltonian moves need gradients: those of `start`, and `values_and_slopes` of the density where chains end.
    """
    seen: list[Look] = []  # the last one is where a move has led to

    def look(u: Points) -> Look:
        if move == "hmc":
            assert start.slopes is not None
            assert values_and_slopes is not None
            last, last_slopes = values_and_slopes(u)
            seen[:] = [Look(start.log_prob(u), last, start.slopes(u), last_slopes)]
        else:
            seen[:] = [Look(start.log_prob(u), log_prob(u), np.zeros_like(u), np.zeros_like(u))]
        return seen[0]

    def between(beta: float, u: Points) -> tuple[Heights, Points]:
        return look(u).between(beta)

    def height(beta: float, u: Points) -> Heights:
        return between(beta, u)[0]

    u = start.sample(rng, chains) if begun is None else begun.u
    at = look(u)
    logs, carried, beta, evaluations = np.zeros(chains) if begun is None else begun.log_weights, 0.0, 0.0, 1
    spent = 0.0 if begun is None else begun.spent
    while beta < 1:
        gain = np.maximum(at.last - at.first, 2 * LOWEST)
        step = min(_step(gain, logs, schedule, ratio, even), 1 - beta)
        beta = 1.0 if beta + step > 1 - 1e-9 else beta + step
        logs = logs + step * gain
        if resample and 1 / np.sum(normalised(logs)[1] ** 2) < 0.5 * chains and (beta < 1 or begun is not None):
            total, weights = normalised(logs)
            spent += float(np.sum(weights**2)) - 1 / chains
            kept = resampled(weights, chains, rng)
            u, at, logs, carried = u[kept], at.of(kept), np.zeros(chains), carried + total - np.log(chains)
        if beta == 1 and begun is None:
            break
        for _ in range(moves):
            known = at.between(beta)
            if move == "slice":
                u, _ = slice_step(functools.partial(height, beta), u, known[0], rng)
                at, evaluations = look(u), evaluations + 6
                continue
            if move == "hmc":
                new, _ = hamiltonian_step(functools.partial(between, beta), u, known, _root(u, logs), LEAPS, LEAP, rng)
            else:
                new = metropolis_step(functools.partial(height, beta), u, known[0], _root(u, logs), rng)[0]
            at = at.moved(np.any(new != u, axis=1), seen[0])
            u, evaluations = new, evaluations + (1 if move == "metropolis" else LEAPS)
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


def with_tails(peaks: Sequence[Peak]) -> Start:
    """A mixture of t distributions around peaks, in the coordinates of the first, with the shares that Laplace finds."""
    from scipy.special import gammaln, logsumexp

    first, Q = peaks[0], peaks[0].size
    share = normalised(np.array([peak.evidence().log for peak in peaks]))[1]
    share = (share + 0.1) / (share + 0.1).sum()  # Laplace may be wrong
    roots = [np.linalg.solve(first.root, peak.root) * (WIDER if peak.ridges else 1.0) for peak in peaks]
    inverses = [np.linalg.inv(root) for root in roots]
    centers = [np.linalg.solve(first.root, (peak.center - first.center)[first.moved]) for peak in peaks]
    constant = gammaln((FREEDOM + Q) / 2) - gammaln(FREEDOM / 2) - 0.5 * Q * np.log(FREEDOM * np.pi)
    constants = [constant - np.linalg.slogdet(root)[1] + np.log(part) for root, part in zip(roots, share, strict=True)]

    def sample(rng: np.random.Generator, count: int) -> Points:
        which = resampled(share, count, rng)
        v = student_scores(Q, count, rng, FREEDOM)  # evenly, so that no part of the density is left out by chance
        return np.stack([centers[k] + roots[k] @ one for k, one in zip(which, v, strict=True)])

    def logs(u: Points) -> tuple[Float[np.ndarray, "K C"], list[Points]]:
        v = [(u - center) @ inverse.T for center, inverse in zip(centers, inverses, strict=True)]
        heights = [
            c - 0.5 * (FREEDOM + Q) * np.log1p(np.sum(w * w, axis=1) / FREEDOM) for c, w in zip(constants, v, strict=True)
        ]
        return np.stack(heights), v

    def slopes(u: Points) -> Points:
        heights, v = logs(u)
        shares = np.exp(heights - logsumexp(heights, axis=0))
        each = [-(FREEDOM + Q) * (w / (FREEDOM + np.sum(w * w, axis=1))[:, None]) @ M for w, M in zip(v, inverses, strict=True)]
        return np.einsum("kc,kcq->cq", shares, np.stack(each))

    return Start(sample, lambda u: logsumexp(logs(u)[0], axis=0), slopes)


class FromPrior:
    """The density of θ before the data, and that after them, as functions of those entries of z that are averaged over."""

    def __init__(self, peak: Peak) -> None:
        self.peak, self.units = peak, peak.density.beliefs.units
        self.log_scale = float(np.sum(np.log(np.abs(np.diag(self.units)[peak.moved]))))
        self.start = Start(self._sample, self._log_prior, self._slopes)

    def values(self, u: Points) -> Heights:
        """The log density after the data."""
        return self.peak.density.values(self._thetas(u)) + self.log_scale

    def values_and_slopes(self, u: Points) -> tuple[Heights, Points]:
        """The same with gradients."""
        values, gradients = self.peak.density.many(self._thetas(u)).summed()
        return values + self.log_scale, (gradients @ self.units)[:, self.peak.moved]

    def _thetas(self, u: Points) -> Float[np.ndarray, "C P"]:
        z = np.tile(self.peak.center, (len(u), 1))
        z[:, self.peak.moved] = u
        return z @ self.units.T

    def _sample(self, rng: np.random.Generator, count: int) -> Points:
        density = self.peak.density
        return density.beliefs.z(density.beliefs.sample(density.model, rng, count))[:, self.peak.moved]

    def _log_prior(self, u: Points) -> Heights:
        return np.maximum(self.peak.density.log_priors(self._thetas(u)), LOWEST) + self.log_scale

    def _slopes(self, u: Points) -> Points:
        slopes = np.stack([self.peak.density.log_prior(theta)[1] for theta in self._thetas(u)])
        return (slopes @ self.units)[:, self.peak.moved]


def by_annealing(peak: Peak, averaging: Averaging, over: Crew | None = None) -> Draws:
    """Annealed chains from around the mode, and the members among them by their weights; `over` has groups done elsewhere."""
    rng, chains = generator(averaging.seed), max(100, averaging.count)
    if over is None:
        annealed = from_around(peak, chains, rng)
    else:
        groups = over.map(from_around, [peak] * GROUPS, [-(-chains // GROUPS)] * GROUPS, rng.spawn(GROUPS))
        u, logs = (np.concatenate([getattr(group, name) for group in groups]) for name in ("u", "log_weights"))
        annealed = Annealed(u, logs, max(group.evaluations for group in groups))
    chosen = resampled(normalised(annealed.log_weights)[1], averaging.count, rng)
    return peak.draws(peak.thetas(annealed.u[chosen]), np.ones(len(chosen)), told(annealed, "ais"), "ais")


def from_around(peak: Peak, chains: int, rng: np.random.Generator) -> Annealed:
    """Annealed chains that begin around a mode."""
    options: dict[str, Any] = {"schedule": "even", "even": EVEN, "move": "hmc", "values_and_slopes": peak.values_and_slopes}
    return anneal(with_tails([peak]), peak.values, chains, rng, **options)


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
