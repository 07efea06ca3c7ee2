"""Sums, maxima and draws over all segmentations of a series, from what a run-length filter left behind.

Row n of the arrays belongs to point n; its entries are hypotheses about where the segment of that point began. With
p_n(s) = p(the segment of point n began at s | points 0 … n) and the hazard h,

    p(the segment before e began at s | one begins at e) ∝ p_{e−1}(s) h(e − 1 − s),

whatever comes after e. From this one conditional, backwards from the last point, follow the probability of a change at each
point, the number of changes and joint draws; with maxima in place of sums, the most probable segmentation.
"""

import dataclasses
from typing import Any

import numpy as np


@dataclasses.dataclass(frozen=True)
class Trail:
    """What a filter left behind, for each point and hypothesis: the start, log p_n(s), log density, log h and log (1 − h)."""

    start: np.ndarray
    log_joint: np.ndarray
    log_density: np.ndarray
    log_change: np.ndarray
    log_stay: np.ndarray

    def __len__(self) -> int:
        return len(self.start)

    def last(self) -> tuple[np.ndarray, np.ndarray]:
        """Where the last segment began: starts and probabilities."""
        return self._kept(len(self) - 1, self.log_joint[-1])

    def ended_before(self, e: int) -> tuple[np.ndarray, np.ndarray]:
        """Where the segment began that ended before point e."""
        return self._kept(e - 1, self.log_joint[e - 1] + self.log_change[e - 1])

    def _kept(self, n: int, log_weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        possible = log_weight > -np.inf
        weight = np.exp(log_weight[possible] - log_weight.max())
        return self.start[n, possible], weight / weight.sum()


def change_probability(trail: Trail) -> np.ndarray:
    """For each point the probability that a segment begins there, given the whole series; 1 for the first point."""
    begins = np.zeros(len(trail))
    starts, weight = trail.last()
    begins[starts] += weight
    for e in range(len(trail) - 1, 0, -1):
        if begins[e] > 0:
            starts, weight = trail.ended_before(e)
            begins[starts] += begins[e] * weight
    begins[0] = 1.0
    return np.minimum(begins, 1.0)


def number_of_changes(trail: Trail) -> np.ndarray:
    """p(0, 1, 2, … changes), as long as it is not negligible; counts far beyond the expected one are not told apart."""
    expected = change_probability(trail)[1:].sum()
    most = min(len(trail) - 1, int(expected + 20 * np.sqrt(expected) + 30))
    reached = np.zeros((len(trail), most + 1))  # for a segment that begins here: p(so many changes up to and with it)
    reached[0, 0] = 1.0
    for e in range(1, len(trail)):
        starts, weight = trail.ended_before(e)
        before = weight @ reached[starts]
        reached[e, 1:] = before[:-1]
        reached[e, -1] += before[-1]
    starts, weight = trail.last()
    total = weight @ reached[starts]
    return total[: 1 + int(np.flatnonzero(total > 1e-12)[-1])]


def most_probable(trail: Trail) -> np.ndarray:
    """The starts of the segments, without the first, of the single most probable segmentation."""
    came_from = np.zeros(len(trail) + 1, dtype=int)
    best = np.where(trail.start[0] == 0, 0.0, -np.inf)  # of segmentations that end in each hypothesis
    for n in range(len(trail)):
        best = np.where(trail.log_joint[n] > -np.inf, best + trail.log_density[n], -np.inf)
        if n + 1 == len(trail):
            break
        born = best + trail.log_change[n]
        came_from[n + 1] = trail.start[n, np.argmax(born)]
        best = np.where(trail.start[n + 1] == n + 1, born.max(), best + trail.log_stay[n])
    return _traced(int(trail.start[-1, np.argmax(best)]), came_from)


def _traced(start: int, came_from: np.ndarray) -> np.ndarray:
    found = []
    while start > 0:
        found.append(start)
        start = int(came_from[start])
    return np.array(found[::-1], dtype=int)


def draw(trail: Trail, n: int, rng: Any) -> list[np.ndarray]:
    """n segmentations from the posterior, each as the starts of its segments without the first."""
    drawn = []
    for _ in range(n):
        found: list[int] = []
        start = int(rng.choice(trail.last()[0], p=trail.last()[1]))
        while start > 0:
            found.append(start)
            starts, weight = trail.ended_before(start)
            start = int(rng.choice(starts, p=weight))
        drawn.append(np.array(found[::-1], dtype=int))
    return drawn
