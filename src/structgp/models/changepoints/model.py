"""Change points: a model of the segments and a hazard as one value, to condition, fit and stream."""

from __future__ import annotations

import dataclasses
import functools
import time
from typing import Any, Self

import equinox as eqx
import jax
import numpy as np

from ..._types import Seed, by_the_host
from ...learn.account import Learning
from ...learn.climb import climb
from ...learn.objective import Objective
from ...parameters.tree import Parametrised, as_numpy, free_vector, with_free
from .filter import CHUNK, Step, begun, follow, log_evidence
from .hazards import Hazard, as_hazard
from .posterior import ChangePointPosterior
from .processes import as_segment
from .reading import read_series
from .segments import SegmentModel
from .stream import ChangePointStream

LEAST = CHUNK  # points that short series are filled up to, so that few programs are compiled


class ChangePoints(Parametrised):
    """A series that starts afresh at unknown points: a model of its segments, and how probable it is that one ends.

    `segments` is a GP, or a segment model such as `NormalSegment`. `hazard` is a probability for each point, a table or a
    function of the run length, or a `Hazard`. `hypotheses` keeps only so many beginnings of the present segment in mind, the
    most probable ones, and `threshold` only those at least that probable; with neither the results are exact, and the work for
    a point grows with the number of points before it. A value that holds no data.
    """

    segments: SegmentModel = eqx.field(converter=as_segment)
    hazard: Hazard = eqx.field(default=None, converter=as_hazard)
    hypotheses: int | None = eqx.field(static=True, default=None)
    threshold: float = eqx.field(static=True, default=0.0)

    def __check_init__(self) -> None:
        if self.hypotheses is not None and (self.hypotheses != int(self.hypotheses) or self.hypotheses < 2):
            raise ValueError(f"hypotheses must be a whole number, at least 2, or None for all of them, got {self.hypotheses}")
        if not 0 <= self.threshold < 1:
            raise ValueError(f"threshold must be a probability below 1, 0 for none, got {self.threshold}")

    @by_the_host
    def condition(self, y: Any, t: Any = None) -> ChangePointPosterior:
        """What a whole series says, with the parameters as they are.

        y is (N,), or (N, S) for segments of several series; NaN is a missing value. `t` are times in order, or 0, 1, 2, …
        """
        model = self._ready()
        values, times = read_series(self.segments, y, t)
        padded, slots, length = self._layout(values, times)
        belief = begun(model.segments, slots, length)
        valid = np.arange(length) < len(values)
        last, steps, traces = follow(model.segments, model.hazard, belief, *padded, valid, model.threshold, True)
        cut = lambda leaf: np.asarray(leaf)[: len(values)]
        steps, traces = jax.tree.map(cut, (steps, traces))
        _finite(steps)
        return ChangePointPosterior(model, values, times, steps, traces, as_numpy(last), length)

    def fit(self, y: Any, t: Any = None, **options: Any) -> ChangePointPosterior:
        """What a whole series says, with the parameters that make it most probable; `options` are those of `learn`."""
        learned, learning = self.learn(y, t, **options)
        return dataclasses.replace(learned.condition(y, t), learning=learning)

    @by_the_host
    def learn(
        self,
        y: Any,
        t: Any = None,
        *,
        restarts: int = 0,
        seed: Seed = 0,
        max_evaluations: int = 200,
        progress: bool | None = None,
    ) -> tuple[Self, Learning]:
        """The model with the parameters, of segments and hazard, that make the series most probable; and how they were found.

        The series is given as for `condition`. One evaluation filters it and follows the gradient back through the filter.
        """
        if self.segments.random:
            raise ValueError(
                f"the evidence of a {type(self.segments).__name__} is itself random, so it cannot be climbed: "
                "learn with the model inside it, or average over a grid"
            )
        began = time.perf_counter()
        values, times = read_series(self.segments, y, t)
        padded, slots, length = self._layout(values, times)
        data = jax.device_put(padded)

        def evidence(theta: np.ndarray) -> tuple[Any, Any]:
            detail = with_free(self, theta).segments.detail
            return _value_and_gradient(np.asarray(theta), self._with_detail(detail), data, slots, length)

        options: dict[str, Any] = {"restarts": restarts, "seed": seed, "max_evaluations": max_evaluations, "progress": progress}
        count = max(int(np.isfinite(values).sum()), 1)
        return climb(self, Objective(self, evidence), [free_vector(self)], count, began, **options)

    @by_the_host
    def log_evidence(self, y: Any, t: Any = None) -> float:
        """log p(y), summed over all segmentations, with the parameters as they are."""
        values, times = read_series(self.segments, y, t)
        padded, slots, length = self._layout(values, times)
        return float(_value(self._ready(), padded, slots, length))

    @by_the_host
    def stream(self) -> ChangePointStream:
        """A detector that takes points as they come and keeps none: constant work and memory for each."""
        if self.hypotheses is None:
            raise ValueError("a stream has no end, so it needs a bound: ChangePoints(..., hypotheses=100)")
        model = self._ready()
        return ChangePointStream(model, begun(model.segments, self.hypotheses, None), False)

    def _ready(self) -> Self:
        return self._with_detail(self.segments.detail)

    def _with_detail(self, detail: int) -> Self:
        return eqx.tree_at(lambda model: model.segments, self, self.segments.with_detail(detail))

    def _layout(self, values: np.ndarray, times: np.ndarray) -> tuple[Any, int, int]:
        """Times and series, filled up with missing values; the number of slots; the longest run."""
        length = max(LEAST, 2 ** int(np.ceil(np.log2(len(values)))))
        fill = lambda array, value: np.concatenate([array, np.full((length - len(array), *array.shape[1:]), value)])
        slots = length + 1 if self.hypotheses is None else self.hypotheses
        return (fill(times, times[-1]), fill(values, np.nan)), slots, length


def _finite(steps: Step) -> None:
    bad = np.flatnonzero(~np.isfinite(steps.log_density))
    if len(bad):
        raise ValueError(
            f"the density of point {bad[0]} is not finite under any hypothesis: check that value, give the model more noise "
            "or a floor, or a hazard that lets segments end"
        )


@functools.partial(jax.jit, static_argnames=("slots", "length"))
def _value(model: ChangePoints, data: Any, slots: int, length: int) -> Any:
    t, y = data
    return log_evidence(model.segments, model.hazard, t, y, model.threshold, slots, length)


@functools.partial(jax.jit, static_argnames=("slots", "length"))
@functools.partial(jax.value_and_grad, argnums=0)
def _value_and_gradient(theta: Any, model: ChangePoints, data: Any, slots: int, length: int) -> Any:
    at = with_free(model, theta)
    return _value(at, data, slots, length)
