"""Members of an average over θ: from the shape of its density at the mode, or drawn.

    laplace      θ at normal scores of Sobol points and at their mirror images, equally weighted; more of them, moved along the
                 true density, where that is no normal one
    ccd          a central composite design: the mode, and 2P + 2^k places on one sphere, which integrate 1 and uᵀu exactly
    grid         steps of one along each u where the log density is within 3 of the highest, at most three parameters
    importance   a multivariate t with 5 degrees of freedom, weighted by density, the largest weights smoothed
    others       chains, in `sample`, and annealed ones, in `anneal`

u are the coordinates of `peak`. (Rue, Martino and Chopin 2009 have the design and the grid, Vehtari et al. 2024 the smoothing.)
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
from jaxtyping import Float

from .._types import generator
from ..crew import Crew
from .anneal import by_annealing
from .density import Density
from .peak import SINGLE, Averaging, Draws, Evidence, Peak, normalised, paired_scores, resampled, split, student_scores
from .sample import by_chains, trajectories

RADIUS = 1.1  # of the sphere of the design, and how far members are spread: true densities have longer tails than normal ones
DEEPER = 4.0  # nats below a normal density, at which a member would count fifty times too much
VAGUE, UNSURE = 2.5, 1.5  # widths of a logarithm before and after the data: these bound it on one side at most
MOVES, LEAPS, LEAP = 6, 5, 0.4  # trajectories of each member where that is so, and their steps
LOOKS_AT_MOVES = SINGLE * MOVES * LEAPS  # at the density
DEEP = 3.0  # how far below its mode the log density is looked at on a grid
FREEDOM = 5  # degrees of freedom of the wide proposal
DRAWN = 128  # proposals of importance sampling


def average(
    density: Density,
    theta: Float[np.ndarray, " P"],
    averaging: Averaging,
    over: Crew | None = None,
    may_move: bool = False,
) -> Draws:
    """Members of an average over θ around its mode; `over` has chains moved elsewhere.

    With `may_move` there is time for `LOOKS_AT_MOVES` more, where the density turns out to be far from a normal one.
    """
    peak = Peak(density, theta)
    methods: dict[str, Callable[[Peak, Averaging], Draws]] = {
        "laplace": functools.partial(by_laplace, may_move=may_move),
        "ccd": by_design,
        "grid": by_grid,
        "importance": by_importance,
    }
    if averaging.method in methods:
        return methods[averaging.method](peak, averaging)
    return (by_annealing if averaging.method == "ais" else by_chains)(peak, averaging, over)


def by_laplace(peak: Peak, averaging: Averaging, may_move: bool = False) -> Draws:
    """Equally weighted draws from the normal approximation, spread evenly, a little further than it says."""
    sides: Float[np.ndarray, "2 Q"] | None = peak.sides
    u, moves = split(RADIUS * paired_scores(peak.size, averaging.count, averaging.seed), peak.sides), averaging.polish
    if may_move and averaging.members is None and not moves and _is_no_normal(peak, u):
        u, sides, moves = RADIUS * paired_scores(peak.size, SINGLE, averaging.seed), None, MOVES
    if moves:
        u = trajectories(peak, u, moves, LEAPS, LEAP, generator(averaging.seed))
    return peak.draws(peak.within(u), np.ones(len(u)), peak.evidence(), "laplace", sides)


def _is_no_normal(peak: Peak, u: Float[np.ndarray, "K Q"]) -> bool:
    """Whether the density is far from the normal one that members are drawn from: much lower, or flat on one side."""
    if np.any(peak.sides != 1):
        return False
    width = peak.density.beliefs.width[peak.moved]
    if np.any((width > VAGUE) & (np.sum(peak.root**2, axis=1) > UNSURE**2)):
        return True
    fallen = peak.height - peak.density.looks(peak.within(u))[0]
    return bool(np.max(fallen - 0.5 * np.sum(u * u, axis=1), initial=0.0) > DEEPER)


def by_design(peak: Peak, averaging: Averaging) -> Draws:
    """A central composite design."""
    u, weights = design(peak.size)
    heights = peak.values(u) + 0.5 * np.sum(u * u, axis=1) + 0.5 * peak.size * np.log(2 * np.pi)
    log, share = normalised(heights + np.log(weights))
    evidence = Evidence(log, None, "ccd", float(1 / np.sum(share**2)), peak.evaluations + len(u))
    return peak.draws(peak.within(u), share, evidence, "ccd", np.ones((2, peak.size)))


def design(size: int) -> tuple[Float[np.ndarray, "K Q"], Float[np.ndarray, " K"]]:
    """The places of a central composite design and weights that integrate 1 and uᵀu of a standard normal."""
    H = np.ones((1, 1))
    while len(H) <= size or len(H) < 8:
        H = np.block([[H, H], [H, -H]])
    axes = np.sqrt(size) * np.eye(size)
    sphere = RADIUS * np.concatenate([axes, -axes, H[:, 1 : size + 1]])
    weight = 1 / (len(sphere) * RADIUS**2)
    weights = np.concatenate([[1 - len(sphere) * weight], np.full(len(sphere), weight)])
    return np.concatenate([np.zeros((1, size)), sphere]), weights


def by_grid(peak: Peak, averaging: Averaging) -> Draws:
    """Whole steps along each coordinate where the density is not low."""
    if peak.size > 3:
        raise ValueError(
            f"parameters='grid' is for three parameters at most, and there are {peak.size}: take 'laplace' or 'ccd'"
        )
    reach = [[_reach(peak, axis, side, DEEP) for side in (-1, 1)] for axis in range(peak.size)]
    u = np.stack(
        [part.ravel() for part in np.meshgrid(*(np.arange(-low, high + 1.0) for low, high in reach), indexing="ij")], 1
    )
    heights = peak.values(u)
    near = heights > heights.max() - DEEP
    log, share = normalised(heights[near])
    evidence = Evidence(log, None, "grid", float(1 / np.sum(share**2)), peak.evaluations + len(u))
    return peak.draws(peak.within(u[near]), share, evidence, "grid")


def _reach(peak: Peak, axis: int, side: int, deep: float, furthest: int = 12) -> int:
    """How many whole steps along an axis stay within so much of the mode."""
    steps = np.arange(1, furthest + 1)
    low = peak.values(side * steps[:, None] * np.eye(peak.size)[axis]) < peak.height + peak.log_scale - deep
    return int(np.argmax(low)) if low.any() else furthest


def by_importance(peak: Peak, averaging: Averaging) -> Draws:
    """Draws from a wide proposal, weighted, and the members among them by their weights."""
    from scipy.special import gammaln

    count, Q = max(DRAWN, averaging.count), peak.size
    u = student_scores(Q, count, averaging.seed, FREEDOM)
    constant = gammaln((FREEDOM + Q) / 2) - gammaln(FREEDOM / 2) - 0.5 * Q * np.log(FREEDOM * np.pi)
    proposal = constant - 0.5 * (FREEDOM + Q) * np.log1p(np.sum(u * u, axis=1) / FREEDOM)
    logs = smoothed(peak.values(u) - proposal)
    log, share = normalised(logs)
    effective = float(1 / np.sum(share**2))
    error = float(np.sqrt(max(1 / effective - 1 / count, 0.0)))
    evidence = Evidence(log - np.log(count), error, "importance", effective, peak.evaluations + count)
    chosen = resampled(share, averaging.count, generator(averaging.seed))
    return peak.draws(peak.thetas(u[chosen]), np.ones(len(chosen)), evidence, "importance")


def smoothed(logs: Float[np.ndarray, " K"]) -> Float[np.ndarray, " K"]:
    """Log weights whose largest are replaced by the expected order statistics of a generalised Pareto tail."""
    count = len(logs)
    tail = int(min(0.2 * count, 3 * np.sqrt(count)))
    order = np.argsort(logs)
    cut, largest = order[-tail - 1], order[-tail:]
    shift = logs.max()
    threshold = np.exp(logs[cut] - shift)
    beyond = np.exp(logs[largest] - shift) - threshold
    if tail < 5 or not np.all(np.diff(beyond) >= 0) or beyond[0] <= 0:
        return logs
    shape, scale = _pareto(beyond)
    p = (np.arange(tail) + 0.5) / tail
    quantiles = scale * (np.expm1(-shape * np.log1p(-p)) / shape if abs(shape) > 1e-8 else -np.log1p(-p))
    new = logs.copy()
    new[largest] = np.minimum(np.log(threshold + quantiles), 0.0) + shift
    return new


def _pareto(x: Float[np.ndarray, " K"]) -> tuple[float, float]:
    """Shape and scale of a generalised Pareto distribution for sorted positive numbers (Zhang and Stephens 2009)."""
    n = len(x)
    m = 20 + int(np.sqrt(n))
    b = 1 / x[-1] + (1 - np.sqrt(m / (np.arange(1, m + 1) - 0.5))) / (3 * x[(n + 2) // 4 - 1])
    k = np.mean(np.log1p(-b[:, None] * x), axis=1)
    likelihood = n * (np.log(-b / k) - k - 1)
    weights = 1 / np.sum(np.exp(likelihood[None, :] - likelihood[:, None]), axis=1)
    slope = np.sum(b * weights)
    shape = np.mean(np.log1p(-slope * x))
    scale = -shape / slope
    return float((shape * n + 5) / (n + 10)), float(scale)  # drawn a little towards one half
