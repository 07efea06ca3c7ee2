"""When an optimisation stops, and how far from the best place it looks."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float


@runtime_checkable
class Progress(Protocol):
    """What a stopping rule may look at; values are as the user gave them, `better` counts by their sign."""

    maximise: bool

    @property
    def trace(self) -> np.ndarray:
        """The best value after each measurement, NaN before there is one."""
        ...

    @property
    def expected_gain(self) -> float | None:
        """What the last suggestion was expected to gain, None where nothing is known of it."""
        ...


@dataclasses.dataclass(frozen=True)
class Target:
    """Stop at a value as good as this."""

    value: float

    def reason(self, progress: Progress) -> str | None:
        """Why to stop, or None."""
        best = progress.trace[-1] if len(progress.trace) else math.nan
        there = best >= self.value if progress.maximise else best <= self.value
        return f"the target {self.value:g} was reached" if there else None


@dataclasses.dataclass(frozen=True)
class NoGain:
    """Stop after so many measurements without a better one."""

    measurements: int = 64

    def reason(self, progress: Progress) -> str | None:
        """Why to stop, or None."""
        trace = progress.trace
        if len(trace) <= self.measurements or trace[-1] != trace[-1 - self.measurements]:
            return None
        return f"{self.measurements} measurements brought nothing better"


@dataclasses.dataclass(frozen=True)
class SmallEI:
    """Stop when less than this is expected to be gained, and the last measurements brought nothing better either.

    The expectation alone is not to be trusted: three points on a line make a model sure of itself.
    """

    gain: float = 1e-4
    patience: int = 5

    def reason(self, progress: Progress) -> str | None:
        """Why to stop, or None."""
        expected = progress.expected_gain
        if expected is None or expected >= self.gain or NoGain(self.patience).reason(progress) is None:
            return None
        return f"{expected:.2g} is expected to be gained, and {self.patience} measurements brought nothing better"


Rule = Target | NoGain | SmallEI


@dataclasses.dataclass(frozen=True)
class Bounded:
    """Look no further than `reach` of the range of each variable from the best place."""

    reach: float = 0.25

    def __post_init__(self) -> None:
        if not 0 < self.reach <= 1:
            raise ValueError(f"Bounded: reach is a part of each range, above 0 and up to 1, got {self.reach!r}")

    def reaches(self, values: Sequence[float]) -> float:
        """How far to look after these values, of which small ones are good."""
        return self.reach


@dataclasses.dataclass(frozen=True)
class Adaptive:
    """The same with a reach that grows by the factor `grow` with a better value and shrinks by its fourth root without."""

    reach: float = 0.15
    grow: float = 1.5
    least: float = 0.1
    most: float = 1.0

    def __post_init__(self) -> None:
        if not (0 < self.least <= self.reach <= self.most <= 1 and self.grow > 1):
            raise ValueError(f"Adaptive: 0 < least ≤ reach ≤ most ≤ 1 and grow > 1 are needed, got {self!r}")

    def reaches(self, values: Sequence[float]) -> float:
        """How far to look after these values, of which small ones are good; NaN is a run that failed or broke a limit."""
        reach, best = self.reach, math.inf
        for number, value in enumerate(values):
            if number:
                reach *= self.grow if value < best else self.grow**-0.25
                reach = min(max(reach, self.least), self.most)
            best = value if value < best else best
        return reach


Region = Bounded | Adaptive


def box_around(region: Region | None, center: Float[np.ndarray, " D"], values: Sequence[float]) -> tuple[Any, Any]:
    """The lower and the upper corner of where to look."""
    reach = 1.0 if region is None else region.reaches(values)
    return np.maximum(center - reach, 0.0), np.minimum(center + reach, 1.0)
