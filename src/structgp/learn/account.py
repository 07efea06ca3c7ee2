"""How learning ended, in words, and how it is going on, on a line of a terminal."""

from __future__ import annotations

import dataclasses
import sys
import time
import warnings
from collections.abc import Callable

import numpy as np

from ..engines.plan import duration
from .clock import NEVER, Deadline

WIDEST = 70  # characters of a line of progress
INTERRUPTED = "interrupted; the best point so far is kept"


@dataclasses.dataclass(frozen=True)
class Learning:
    """How learning ended."""

    objective: float  # log evidence + log prior
    gradient_norm: float  # largest entry on the scale of θ, for each observation
    evaluations: int
    seconds: float
    converged: bool
    message: str
    restarts: int
    spread: float  # between the best and the worst end of the climbs
    at_bound: tuple[str, ...]
    method: str = "evidence"
    trace: tuple[float, ...] = ()  # the objective after every step, where a method keeps it
    pressed: tuple[str, ...] = ()  # of those at a bound, the ones that the data push further
    rows: int = 0  # drawn at random, that learning looked at; 0 for all
    runner_up: float | None = None  # the objective where the best climb from another kind of start ended

    def __str__(self) -> str:
        ended = "converged" if self.converged else f"stopped: {self.message}"
        text = f"{ended} after {self.evaluations} evaluations, {self.seconds:.2f} s; largest gradient {self.gradient_norm:.1e}"
        if self.rows:
            text += f"; by {self.rows} rows drawn at random"
        if self.restarts:
            text += f"; {self.restarts} restarts ended within {self.spread:.3g} of each other"
        if self.runner_up is not None:
            gap = self.objective - self.runner_up
            text += f"; another kind of start ended {abs(gap):.3g} {'below' if gap >= 0 else 'above, which is a tie'}"
        return text + (f"; at a bound: {', '.join(self.at_bound)}" if self.at_bound else "")


def warn_if_pressed(learning: Learning, stacklevel: int) -> None:
    """One line when learning was stopped by the limits of the search or by bounds that were given, not by the data."""
    if learning.pressed:
        warnings.warn(
            f"learning ended at a bound of the search for {', '.join(learning.pressed)}, while the evidence still rises: "
            "give a starting value near what you expect, a mean for data far from zero, or wider bounds by with_bounds(...)",
            RuntimeWarning,
            stacklevel=stacklevel + 1,
        )


class Progress:
    """One line on a terminal that shows the best value so far; silent elsewhere. A function is told instead of the terminal.

    Where it is known how many evaluations are to be expected, or when the time is up, the line says how long that will be.
    """

    def __init__(
        self,
        wanted: bool | Callable[[int, float], None] | None,
        expected: int = 0,
        deadline: Deadline = NEVER,
        clock: Callable[[], float] = time.monotonic,
        words: tuple[str, str] = ("learning", "log evidence"),
    ) -> None:
        self.tell = wanted if callable(wanted) else None
        self.shown = self.tell is None and (sys.stderr.isatty() if wanted is None else bool(wanted))
        self.expected, self.deadline, self.clock, self.words = expected, deadline, clock, words
        self.evaluations, self.last, self.began = 0, -np.inf, clock()

    def __enter__(self) -> Callable[[float], None]:
        self.began = self.clock()
        return self

    def __call__(self, best: float) -> None:
        self.evaluations += 1
        if self.tell is not None:
            self.tell(self.evaluations, best)
        now = self.clock()
        if self.shown and now - self.last > 0.1:
            self.last = now
            what, of = self.words
            line = f"{what}: evaluation {self.evaluations}, {of} {best:.6g}{self._left(now)}"
            sys.stderr.write(f"\r{line:<{WIDEST}}")
            sys.stderr.flush()

    def __exit__(self, *_: object) -> None:
        if self.shown:
            sys.stderr.write("\r" + " " * WIDEST + "\r")
            sys.stderr.flush()

    def _left(self, now: float) -> str:
        """How long it will take, by what the evaluations so far took; nothing where it is short, or nobody knows."""
        expected = (self.expected - self.evaluations) * (now - self.began) / self.evaluations
        left = min(expected, self.deadline.left()) if self.expected > self.evaluations else self.deadline.left()
        return f", about {duration(left)} left" if 1 < left < np.inf else ""
