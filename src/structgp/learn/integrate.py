"""log p(y) with the parameters integrated out, by the method asked for, with an error bar where it has one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .._types import generator, whole
from .anneal import EVEN, Annealed, FromPrior, anneal, in_groups, told, with_tails
from .average import by_design, by_grid, by_importance
from .peak import Averaging, Evidence, Peak

METHODS = ("laplace", "ccd", "grid", "importance", "ais", "smc", "quadrature")
DEEP = 14.0  # how far below its mode the log density is integrated
STEP = 0.8  # between the places of the quadrature, in standard deviations
FURTHEST = 24.0


def integrate(
    peak: Peak,
    method: str = "laplace",
    *,
    chains: int = 100,
    start: str = "laplace",
    schedule: str | None = None,
    ratio: float = 1.5,
    even: float | None = None,
    moves: int | None = None,
    move: str | None = None,
    seed: Any = 0,
    others: Sequence[Peak] = (),
) -> Evidence:
    """The evidence around a peak, and around others that are known, or of all of the prior."""
    far = start == "prior"  # gradients pay where chains are near already
    move = move or ("metropolis" if far else "hmc")
    schedule = schedule or ("even" if move == "hmc" else "ratio")
    even = even or (EVEN if move == "hmc" else 0.9)
    words = {
        "method": (method, METHODS),
        "start": (start, ("laplace", "prior")),
        "schedule": (schedule, ("ratio", "even")),
        "move": (move, ("metropolis", "slice", "hmc")),
    }
    for name, (value, known) in words.items():
        if value not in known:
            raise ValueError(f"evidence: {name} must be one of {known}, got {value!r}")
    chains = whole(chains, "chains", 4)
    if method == "laplace":
        return peak.evidence()
    if method == "quadrature":
        return by_quadrature(peak)
    if method in ("ccd", "grid", "importance"):
        ways: dict[str, Any] = {"ccd": by_design, "grid": by_grid, "importance": by_importance}
        return ways[method](peak, Averaging(method, seed=seed)).evidence
    ends = FromPrior(peak) if start == "prior" else peak
    begin = ends.start if isinstance(ends, FromPrior) else with_tails([peak, *others])
    steps = whole(moves if moves is not None else (5 if method == "smc" else 1), "moves", 1)
    options: dict[str, Any] = {"schedule": schedule, "ratio": ratio, "even": even, "moves": steps, "move": move}

    def run(rng: np.random.Generator, count: int) -> Annealed:
        slopes = ends.values_and_slopes
        return anneal(begin, ends.values, count, rng, resample=method == "smc", values_and_slopes=slopes, **options)

    if method == "smc":
        return in_groups(run, chains, seed)[0]
    return told(run(generator(seed), chains), "ais")


def by_quadrature(peak: Peak) -> Evidence:
    """Sums over two interleaved lattices, whose difference tells the error: for three parameters at most."""
    if peak.size > 3:
        raise ValueError(
            f"evidence: method='quadrature' is for three parameters at most, and there are {peak.size}: take 'ais', "
            "or fix some of them"
        )
    low, high = _box(peak)
    axes = [np.arange(a, b + STEP / 2, STEP) for a, b in zip(low, high, strict=True)]
    logs = []
    for shift in (0.0, 0.5 * STEP):
        places = np.stack([part.ravel() for part in np.meshgrid(*(axis + shift for axis in axes), indexing="ij")], axis=1)
        heights = peak.values(places)
        top = heights.max()
        logs.append(top + np.log(np.sum(np.exp(heights - top))) + peak.size * np.log(STEP))
    evaluations = peak.evaluations + 2 * int(np.prod([len(axis) for axis in axes]))
    log = float(np.logaddexp(*logs) - np.log(2))
    return Evidence(log, float(abs(logs[0] - logs[1]) / 2), "quadrature", None, evaluations)


def _box(peak: Peak) -> tuple[np.ndarray, np.ndarray]:
    """A box outside of which there is nothing, as far as its faces tell: widened until they are low."""
    low, high = np.full(peak.size, -3.0), np.full(peak.size, 3.0)
    top = peak.height + peak.log_scale
    for _ in range(64):
        grew = False
        for axis in range(peak.size):
            for ends, side in ((low, -1.0), (high, 1.0)):
                if abs(ends[axis]) < FURTHEST and _face(peak, low, high, axis, ends[axis]).max() > top - DEEP:
                    ends[axis] += side * STEP
                    grew = True
        if not grew:
            break
    return low, high


def _face(peak: Peak, low: np.ndarray, high: np.ndarray, axis: int, at: float) -> np.ndarray:
    """The log density on a face of the box, at a few places."""
    lines = [np.array([at]) if d == axis else np.linspace(low[d], high[d], 7) for d in range(peak.size)]
    return peak.values(np.stack([part.ravel() for part in np.meshgrid(*lines, indexing="ij")], axis=1))
