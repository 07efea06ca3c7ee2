"""Time for everything, and how much of it is kept for what follows learning.

A fresh process spends most of its time compiling, which nothing interrupts, and which takes longer on a busy machine. What a
candidate spends beside its evaluations is seen while it is tried: all rows given to it, its predictions and the report need
about as many programs again, and several times as many where it is averaged over its parameters. Where rows are too few for
their columns the best parameters alone would pretend to know them: what is averaged over there is tried first, and the time for
its average is kept before anything else is tried.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from ...engines import plan
from ...engines.base import NOT_SAID
from ...learn.clock import Deadline
from ...models.candidates import Candidate

AFTER = 0.7  # times what a candidate spends beside its evaluations, for all that follows
AVERAGED = 2.5  # the same where parameters are averaged over
ROUNDS = 60  # evaluations that take as long as an average and what follows it, once it is compiled
WRITING = 2.0  # seconds for what is the same for all candidates, on a machine that has nothing else to do
PASSES = 10  # evaluations that take as long as all that follows, once it is compiled
LEAST = 4.0  # seconds of learning for the first candidate, however little time there is
FASTEST, SLOWEST = 0.3, 12.0  # times what was expected; beyond, what was met says nothing about others
BUSY = 4.0  # times what is expected, for which there must be time if all candidates are to be tried in their order
FEW_TIMES = 3  # of fewer evaluations the shortest tells how long one takes: others may have waited for a program


class Watch:
    """Looks on while a candidate learns: how long an evaluation takes, and how long all else did."""

    def __init__(self, candidate: Candidate, deadline: Deadline, averaged: bool = False) -> None:
        self.candidate, self.clock, self.averaged = candidate, deadline.clock, averaged
        self.times = [self.clock()]
        self.ended: float | None = None

    def tick(self) -> None:
        """An evaluation is done."""
        self.times.append(self.clock())

    def end(self) -> float:
        """The candidate is done; the seconds that it took."""
        self.ended = self.clock()
        return self.ended - self.times[0]

    @property
    def evaluation(self) -> float:
        """Seconds that an evaluation takes when its program is there."""
        took = np.diff(self.times[1:])
        return 0.0 if not len(took) else float(np.min(took) if len(took) < FEW_TIMES else np.median(took))

    @property
    def beside(self) -> float:
        """Seconds that were spent on other things so far, on compiling above all."""
        last = self.times[-1] if self.ended is None else self.ended
        return last - self.times[0] - (len(self.times) - 1) * self.evaluation

    @property
    def following(self) -> float:
        """Seconds that are needed to finish, should this candidate be chosen; its scores come first while it learns, and then
        its average is counted where it must have one."""
        if self.averaged and self.ended is not None:
            return self.averaging
        return (AFTER + (self.ended is None)) * self.beside + max(PASSES * self.evaluation, finishing(self.candidate))

    @property
    def averaging(self) -> float:
        """The same, its average over parameters included."""
        return AVERAGED * self.beside + ROUNDS * self.evaluation


def finishing(candidate: Candidate) -> float:
    """Seconds on this machine to give a candidate all rows and to ask it for them, once that is compiled."""
    return 0.0 if candidate.finishing == NOT_SAID else plan.at_hand().seconds(candidate.finishing)


@dataclasses.dataclass
class Timing:
    """The end of everything, and the candidates that were watched."""

    deadline: Deadline
    watches: list[Watch] = dataclasses.field(default_factory=list)

    def watch(self, candidate: Candidate, averaged: bool = False) -> Watch:
        """A candidate begins, whose parameters must be `averaged` over should it be chosen."""
        self.watches.append(Watch(candidate, self.deadline, averaged))
        return self.watches[-1]

    def left(self, new: Candidate | None = None) -> float:
        """Seconds for learning, below 0 when it should end; what a new candidate will need to finish is kept as well."""
        for_new = 0.0 if new is None else AFTER * self.pace() * new.compiling + finishing(new)
        following = max([for_new, *(watch.following for watch in self.watches)])
        return self.deadline.left() - self.pace() * WRITING - following

    def learning(self) -> Deadline:
        """The end of learning, which comes earlier as more is seen to be needed; the first candidate learns for a while."""
        at, clock = self.deadline.at, self.deadline.clock
        until = clock() + LEAST if not self.watches else -np.inf
        kept = lambda: self.deadline.left() - max(self.left(), until - clock())
        return dataclasses.replace(self.deadline, kept=kept) if np.isfinite(at) else self.deadline

    def scoring(self) -> Deadline:
        """The end of seeing how a candidate does: what others need to finish is kept."""
        kept = lambda: self.pace() * WRITING + max([watch.following for watch in self.watches if watch.ended is not None])
        return dataclasses.replace(self.deadline, kept=kept) if np.isfinite(self.deadline.at) else self.deadline

    def allows_average(self, candidate: Candidate) -> bool:
        """Whether there is time to average over the parameters of a candidate that was tried, and for all that follows."""
        needed = next(watch.averaging for watch in self.watches if watch.candidate is candidate)
        return self.deadline.allows(self.pace() * WRITING + needed)

    def pace(self) -> float:
        """Seconds on this machine, as it was met, for one that was expected."""
        done = [watch for watch in self.watches if watch.ended is not None]
        known = sum(watch.candidate.compiling for watch in done)
        return float(np.clip(sum(watch.beside for watch in done) / known, FASTEST, SLOWEST)) if known else 1.0

    def in_order(self, candidates: list[Candidate], averaged: Sequence[Candidate] = ()) -> list[Candidate]:
        """The candidates as they stand, where there is time for all of them; else those first that are soon compiled. Those
        that must be averaged over come before all others wherever time is limited."""
        if averaged and np.isfinite(self.deadline.at):
            others = [one for one in candidates if all(one is not kept for kept in averaged)]
            return [*averaged, *self.in_order(others)]
        enough = BUSY * sum(candidate.seconds for candidate in candidates) <= self.deadline.left()
        return candidates if enough else sorted(candidates, key=lambda candidate: candidate.compiling)
