"""What a whole series says about its change points."""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING, Any

import numpy as np

from ..._types import Seed, by_the_host, generator
from ...learn.account import Learning
from ...linalg.filters import segmentations
from ...linalg.filters.segmentations import Trail
from ...posterior import Result
from .filter import Belief, Step, Trace
from .stream import ChangePointStream

if TYPE_CHECKING:
    from .model import ChangePoints


@dataclasses.dataclass(frozen=True)
class Alert:
    """A change that was noticed: the point where the new segment begins, the point at which it was known, and how surely."""

    start: int
    noticed: int
    probability: float


@dataclasses.dataclass(frozen=True)
class ChangePointPosterior(Result):
    """A series given a `ChangePoints` model: what was predicted online, and what all the data say about the changes.

    Points are numbered from 0; a change at n means that a segment begins with point n.
    """

    model: ChangePoints
    y: np.ndarray
    t: np.ndarray
    steps: Step
    traces: Trace
    belief: Belief
    length: int
    learning: Learning | None = None  # how the parameters were found, after `fit`

    @property
    def log_evidence(self) -> float:
        """log p(y), summed over all segmentations."""
        return float(self.belief.log_evidence)

    @property
    def dropped(self) -> float:
        """The probability that was given up with the hypotheses that were dropped, added up over all points; 0 when exact."""
        return float(self.belief.dropped)

    @property
    def log_density(self) -> np.ndarray:
        """log p of each point given those before it; 0 where nothing was seen."""
        return self.steps.log_density

    @property
    def mean(self) -> np.ndarray:
        """What was expected of each point, given those before it."""
        return self.steps.mean

    @property
    def variance(self) -> np.ndarray:
        """The variance of that prediction, of the observed value."""
        return self.steps.variance

    @functools.cached_property
    @by_the_host
    def trail(self) -> Trail:
        """The hypotheses at every point, with their hazards."""
        runs = np.arange(len(self.t))[:, None] - self.traces.start
        log_change, log_stay = (np.asarray(part) for part in self.model.hazard.logs(runs))
        log_joint = np.where(self.traces.start < 0, -np.inf, self.traces.log_joint)
        return Trail(self.traces.start, log_joint, self.traces.log_density, log_change, log_stay)

    @functools.cached_property
    def change_probability(self) -> np.ndarray:
        """For each point the probability that a segment begins there, given the whole series; the first point counts 0."""
        begins = segmentations.change_probability(self.trail)
        begins[0] = 0.0
        return begins

    @functools.cached_property
    def number_of_changes(self) -> np.ndarray:
        """The probability of 0, 1, 2, … changes, given the whole series."""
        return segmentations.number_of_changes(self.trail)

    @functools.cached_property
    def most_probable(self) -> np.ndarray:
        """The change points of the most probable segmentation."""
        return segmentations.most_probable(self.trail)

    def sample(self, n: int = 1, seed: Seed = None) -> list[np.ndarray]:
        """n segmentations drawn from the posterior, each as its change points."""
        if n < 1:
            raise ValueError(f"n must be at least 1 sample, got {n}")
        return segmentations.draw(self.trail, n, generator(seed))

    def run_length(self, n: int) -> tuple[np.ndarray, np.ndarray]:
        """How many points the segment of point n has with it, in order, and how probable each number was when it was seen."""
        log_joint = self.trail.log_joint[n]
        alive = log_joint > -np.inf
        runs = n + 1 - self.trail.start[n, alive]
        order = np.argsort(runs)
        return runs[order], np.exp(log_joint[alive])[order]

    @functools.cached_property
    def accumulated(self) -> np.ndarray:
        """For each point the probability that the present segment began there, added up over all points since."""
        total = np.zeros(len(self.t))
        weight = np.exp(self.trail.log_joint)
        alive = weight > 0
        np.add.at(total, self.trail.start[alive], weight[alive])
        total[0] = 0.0
        return total

    def top_alerts(self, k: int, apart: int = 1) -> np.ndarray:
        """The k points with the most accumulated probability of a change, at least `apart` points from each other, in order."""
        left = self.accumulated.copy()
        found: list[int] = []
        while len(found) < k and left.max() > 0:
            best = int(np.argmax(left))
            found.append(best)
            left[max(best - apart + 1, 0) : best + apart] = 0.0
        return np.array(sorted(found), dtype=int)

    def alerts(self, probability: float = 0.5, window: int = 50, delay: int = 1) -> list[Alert]:
        """The changes that would have been reported online.

        Point n reports a change once the present segment began, with this probability, among the last `window` points and at
        least `delay` points ago; after a report only segments that begin later are looked for.
        """
        if not 0 < probability < 1:
            raise ValueError(f"an alert needs a probability between 0 and 1, got {probability}")
        found: list[Alert] = []
        after = 0
        for n in range(len(self.t)):
            runs, weight = self.run_length(n)
            starts = n + 1 - runs
            recent = (starts > after) & (runs <= window) & (runs >= delay)
            sure = float(weight[recent].sum())
            if sure > probability:
                start = int(starts[recent][np.argmax(weight[recent])])
                found.append(Alert(start, n, sure))
                after = n
        return found

    @property
    def stream(self) -> ChangePointStream:
        """The stream that goes on after this series; it needs a model with a bound on its hypotheses."""
        if self.model.hypotheses is None:
            raise ValueError("a stream has no end, so it needs a bound: ChangePoints(..., hypotheses=100)")
        timed = not np.array_equal(self.t, np.arange(len(self.t)))
        return ChangePointStream(self.model, self.belief, timed, self.length)

    def plot(self, level: float = 0.95, series: int = 0) -> Any:
        """Draw the series with its online mean and band, the probability of changes, and the run lengths; returns the axes."""
        from .pictures import plot

        return plot(self, level, series)

    def __repr__(self) -> str:
        changes = len(self.most_probable)
        about = f"{len(self.t)} points, {changes} change{'s' * (changes != 1)}, log evidence {self.log_evidence:.6g}"
        return f"ChangePointPosterior({about})"
