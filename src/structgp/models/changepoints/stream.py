"""A detector along time that keeps what its points taught it, but not the points."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from ..._types import by_the_host
from ...parameters.tree import as_numpy
from ...posterior import Result
from .filter import Belief, begun, follow, gap_to
from .hazards import Hazard
from .predictive import Forecast, Mixed
from .reading import read_series
from .segments import SegmentModel

if TYPE_CHECKING:
    from .model import ChangePoints

BLOCK = 4096  # points that one program takes at most


@dataclasses.dataclass(frozen=True)
class ChangePointStream(Result):
    """What is believed about the present segment after the points so far, and about the next point.

    An immutable value: `update` returns the stream with more points. The parameters stay as they are.
    """

    model: ChangePoints
    belief: Belief
    timed: bool  # whether the points came with times
    length: int | None = None  # how many points the model was told to look back on, where it was told

    @by_the_host
    def update(self, y: Any, t: Any = None) -> ChangePointStream:
        """The stream after one more point, or a batch of them; NaN is a missing value.

        `t` are their times, at or after the last one; without them the points are one unit of time apart.
        """
        single = np.ndim(y) == (1 if self.model.segments.width else 0)
        if single:
            y, t = np.reshape(y, (1, *np.shape(y))), None if t is None else np.reshape(t, 1)
        values, times = read_series(self.model.segments, y, t)
        times = self._placed(times, t is not None)
        belief = self.belief
        for at in range(0, len(values), BLOCK):
            piece = slice(at, at + BLOCK)
            belief = _followed(self.model, belief, times[piece], values[piece])
        if not np.isfinite(belief.log_evidence):
            raise ValueError(
                f"the density of a point after time {float(self.belief.time):g} is not finite under any hypothesis: check the "
                "values, or give the model more noise, or a floor"
            )
        return dataclasses.replace(self, belief=belief, timed=t is not None)

    def _placed(self, times: np.ndarray, timed: bool) -> np.ndarray:
        """The times of new points, checked against what came before."""
        if not self.count:
            return times
        if timed != self.timed:
            came, now = ("with", "without") if self.timed else ("without", "with")
            raise ValueError(f"the points so far came {came} times, these {now}: keep to one way")
        last = float(self.belief.time)
        if not timed:
            return last + 1 + times
        if times[0] < last:
            raise ValueError(f"a stream goes forwards: time {times[0]:g} is before its last time {last:g}")
        return times

    @property
    def count(self) -> int:
        """How many points came so far."""
        return int(self.belief.count)

    @property
    def log_evidence(self) -> float:
        """log p of everything that was seen."""
        return float(self.belief.log_evidence)

    @property
    def dropped(self) -> float:
        """The probability that was given up with the hypotheses that were dropped, added up over all points."""
        return float(self.belief.dropped)

    @property
    def run_length(self) -> tuple[np.ndarray, np.ndarray]:
        """How many points the segment of the last point has, with it, in order; and how probable each number is."""
        log_last = np.asarray(self.belief.log_last)
        alive = log_last > -np.inf
        runs = self.count - np.asarray(self.belief.start)[alive]
        order = np.argsort(runs)
        return runs[order], np.exp(log_last[alive])[order]

    def change_probability(self, window: int, delay: int = 1) -> float:
        """The probability that the segment of the last point began among the last `window` points.

        Only segments with at least `delay` points count, because a change shows only in the points after it; the beginning of
        the series is not a change.
        """
        if not 1 <= delay <= window:
            raise ValueError(f"delay must lie between 1 and the window, got delay {delay} and window {window}")
        runs, probability = self.run_length
        return float(probability[(runs >= delay) & (runs <= window) & (runs < self.count)].sum())

    @by_the_host
    def predict(self, t: Any = None, steps: int = 1) -> Forecast:
        """The distribution of the point `steps` points from now: its `mean`, `variance`, `log_prob`, `quantile`, `interval`.

        `t` is its time, by default `steps` units after the last. Changes until then are taken into account.
        """
        if steps < 1 or steps != int(steps):
            raise ValueError(f"steps must be a whole number, at least 1, got {steps}")
        if t is None and self.timed:
            raise ValueError("this stream has times: predict needs the time of the point, predict(t)")
        last = float(self.belief.time) if self.count else -1.0
        place = last + steps if t is None else float(t)
        if self.count and place < last:
            raise ValueError(f"a stream looks ahead only: {place:g} is before its last time {last:g}")
        return Forecast(as_numpy(_ahead(self.model.segments, self.model.hazard, self.belief, place, steps)))

    def empty_belief(self) -> Belief:
        """A belief of the same size that knows nothing."""
        assert self.model.hypotheses is not None
        return begun(self.model.segments, self.model.hypotheses, self.length)

    def __getstate__(self) -> dict[str, Any]:
        """For pickle: arrays on the host."""
        return {field.name: as_numpy(getattr(self, field.name)) for field in dataclasses.fields(self)}

    def __repr__(self) -> str:
        seen = "nothing seen" if not self.count else f"{self.count} points until {float(self.belief.time):g}"
        return f"ChangePointStream({self.model!r}, {seen})"


def _followed(model: ChangePoints, belief: Belief, times: np.ndarray, values: np.ndarray) -> Belief:
    """The belief after a block of points, filled up to a length for which there is a program."""
    size = 2 ** int(np.ceil(np.log2(len(values))))
    fill = lambda array: np.concatenate([array, np.zeros((size - len(array), *array.shape[1:]))])
    valid = np.arange(size) < len(values)
    return follow(model.segments, model.hazard, belief, fill(times), fill(values), valid, model.threshold, False)[0]


@jax.jit
def _ahead(segments: SegmentModel, hazard: Hazard, belief: Belief, t: Any, steps: Any) -> Mixed:
    """The point `steps` ahead: of the present segment if that lasts, else of one that begins on the way."""
    runs = belief.count - belief.start
    lasting = lambda j, log_weight: log_weight + hazard.logs(runs + j)[1]
    log_weight = jax.lax.fori_loop(0, steps - 1, lasting, belief.log_mass)
    rest = 1 - jnp.sum(jnp.exp(log_weight))
    born = jnp.argmax(belief.start == belief.count)  # nothing was seen of this segment, as nothing was of a later one
    weight = jnp.exp(log_weight).at[born].add(jnp.maximum(rest, 0.0))
    return Mixed(jnp.log(weight), segments.look(belief.memory, t, gap_to(belief, t)))
