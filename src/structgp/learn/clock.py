"""Learning by the clock: a moment at which a search ends with the best that it has found."""

from __future__ import annotations

import dataclasses
import math
import numbers
import time
from collections.abc import Callable

OUT_OF_TIME = "out of time; the best point so far is kept"


@dataclasses.dataclass(frozen=True)
class Deadline:
    """A moment on a clock that counts seconds; it is asked after every evaluation, and never in the midst of one.

    An evaluation that is expected to end after it is not begun. `kept` are seconds before the moment for what comes after the
    search, which may turn out to be more or fewer while it goes on.
    """

    at: float = math.inf
    clock: Callable[[], float] = time.perf_counter
    kept: Callable[[], float] = lambda: 0.0

    @classmethod
    def after(cls, seconds: float | Deadline | None, clock: Callable[[], float] = time.perf_counter) -> Deadline:
        """So many seconds from now; never, for None; and a deadline as it is."""
        if isinstance(seconds, Deadline):
            return seconds
        if seconds is not None and (not isinstance(seconds, numbers.Real) or isinstance(seconds, bool) or not seconds >= 0):
            raise ValueError(f"seconds must be 0 or more, or None for as long as it takes, got {seconds!r}")
        return cls() if seconds is None else cls(clock() + seconds, clock)

    def left(self) -> float:
        """Seconds until then, below 0 when it has passed."""
        return self.at - self.clock() - self.kept()

    def share(self, count: int) -> Deadline:
        """The end of the first of so many equal parts of what is left."""
        return Deadline(self.clock() + max(self.left(), 0.0) / count, self.clock)

    def earlier(self, part: float) -> Deadline:
        """The moment when so much of the time from now on is left; never, where there is no end."""
        return dataclasses.replace(self, at=self.at - part * max(self.left(), 0.0)) if math.isfinite(self.at) else self

    def allows(self, seconds: float) -> bool:
        """Whether there is time for something that takes so long."""
        return self.left() >= max(seconds, 0.0) and not self.passed()

    def passed(self) -> bool:
        """Whether there is no time left."""
        return self.left() <= 0


NEVER = Deadline()
