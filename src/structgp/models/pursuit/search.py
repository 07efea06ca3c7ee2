"""Which projections, and how many: directions are learned from several starts, on few rows first where all are much work.

Each number of projections begins with the model of the number before, with new directions, and afresh. The number is raised as
long as the evidence, charged for the D + 1 parameters of each projection, rises, and as long as there is time, what comes after
the search included: a climb that runs out of it ends with the best that it has found, and a number that did not come to be seen
by all rows in time is not compared.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

from ...learn.account import Learning
from ...learn.climb import climb
from ...learn.clock import Deadline
from ...learn.objective import Objective
from ...parameters.tree import free_vector
from .sine_model import SineModel

PATIENCE = 2  # after so many larger numbers that were no better, no other is tried,
TOO_FEW = 10  # but not before so many projections: fewer can all be too few to find anything
LEAP = 25.0  # a number is left out where each projection just gained so many times its charge
WORK = 1.5e8  # rows times squared features up to which all rows are used from the start
FEW_ROWS, MANY_ROWS = 4000, 10_000  # a first look at more work, or at many rows, takes few
FIRST_LOOK, SECOND_LOOK = 30, 70  # evaluations before the starts are compared, and after
OVERHEAD = 64  # what making a feature costs, in units of one multiplication for each other feature
COMPILING = 3.0  # seconds, about, for a number of projections that was not met before, until it was seen how many
ENDING = 3  # times as much is compiled after the search

Table = tuple[np.ndarray, np.ndarray]


class Rung(NamedTuple):
    """One number of projections that was tried: the log evidence, and what is left when each projection is paid for."""

    projections: int
    sines: int
    log_evidence: float
    charged: float
    seconds: float


def schwarz(rows: int, columns: int) -> float:
    """What a projection costs: ½ log N for each of its parameters."""
    return 0.5 * (columns + 1) * float(np.log(rows))


def twice_akaike(rows: int, columns: int) -> float:
    """What a projection costs: two for each of its parameters; labels and counts say too little to pay ½ log N for them."""
    return 2.0 * (columns + 1)


class Family(NamedTuple):
    """What is searched: how functions become a model and are found in it, what is climbed and charged, and how to start."""

    around: Callable[[SineModel], Any]
    functions: Callable[[Any], SineModel]
    evidence: Callable[[Any, np.ndarray, np.ndarray], Any]
    charge: Callable[[int, int], float]
    start: SineModel  # slope, noise and smoothness of a fresh start; its variances are shared among the functions
    ending: Callable[[Any, int], float] | None = None  # the work that a model like this with M projections leaves to the end


class Timed:
    """An evidence that knows how long it took to compile, and how long each further look takes."""

    def __init__(self, evidence: Callable[[Any], Any], clock: Callable[[], float]) -> None:
        self.evidence, self.clock = evidence, clock
        self.seconds: list[float] = []

    def __call__(self, theta: np.ndarray) -> Any:
        began = self.clock()
        found = jax.block_until_ready(self.evidence(theta))
        self.seconds.append(self.clock() - began)
        return found

    @property
    def each(self) -> float:
        """Seconds for a look, the first left out where there are others."""
        return float(np.median(self.seconds[1:] or self.seconds))

    @property
    def compiling(self) -> float:
        """Seconds that the first look took longer than the others."""
        return self.seconds[0] - self.each


@dataclasses.dataclass
class Search:
    """A search for the number of projections and their directions, within `seconds`."""

    family: Family
    data: Table
    rungs: tuple[int, ...]
    sines: int | None
    rng: np.random.Generator
    seconds: float
    evaluations: int
    progress: bool | None = None
    clock: Callable[[], float] = time.perf_counter

    def __post_init__(self) -> None:
        X, y = self.data
        few = self.rng.permutation(len(y))[:FEW_ROWS]
        self.few = X[few], y[few]
        self.began = self.clock()
        self.compiling = COMPILING
        self.final = max(self.evaluations - FIRST_LOOK - SECOND_LOOK, 1)
        self.charge = self.family.charge(*X.shape)
        self.pace = 0.0  # seconds for each unit of work, as the last climb went
        self.table: list[Rung] = []

    def run(self) -> tuple[Any, Learning, tuple[Rung, ...]]:
        """The best model found, with all rows seen."""
        best = last = self.rung(self.rungs[0], None)
        ahead = list(self.rungs[1:])
        while ahead and not self.exhausted(best):
            leap = len(ahead) > 1 and self.steep() and self.time_for(ahead[1], last)
            M = ahead.pop(1 if leap else 0)
            if not self.time_for(M, last):
                break
            tried = self.rung(M, last)
            if tried is None:
                break
            last = tried
            if self.charged(last) > self.charged(best):
                best, ahead = last, ahead[leap:]
            elif leap:
                last = best  # the number that was left out is tried after all
        M = self.projections(best)
        each = self.pace * self.work(self.data, M)
        affordable = int(np.clip(self.deadline(best, M).left() / each, FIRST_LOOK, max(self.final, FIRST_LOOK)))
        model, learning = self.climb(best, self.data, min(affordable, self.final))
        return model, dataclasses.replace(learning, seconds=self.clock() - self.began), tuple(self.table)

    def projections(self, model: Any) -> int:
        return self.family.functions(model).projections

    def exhausted(self, best: Any) -> bool:
        """Whether larger numbers were tried in vain."""
        tried = [rung.projections for rung in self.table]
        return max(tried) >= TOO_FEW and sum(self.projections(best) < M for M in tried) >= PATIENCE

    def charged(self, model: Any) -> float:
        return next(rung.charged for rung in self.table if rung.projections == self.projections(model))

    def steep(self) -> bool:
        """Whether each of the last projections paid for itself many times, so that the next number can be left out."""
        if len(self.table) < 2:
            return False
        before, now = self.table[-2:]
        gain = (now.log_evidence - before.log_evidence) / (now.projections - before.projections)
        return now.projections > before.projections and gain > LEAP * self.charge

    def deadline(self, like: Any, M: int) -> Deadline:
        """When the search has to end so that there is time left for the rest."""
        return Deadline(self.began + self.seconds - self.rest(like, M), self.clock)

    def rest(self, like: Any, M: int) -> float:
        """Seconds that a model with M projections asks for after the search."""
        if self.family.ending is None:
            return 0.0
        return self.pace * self.family.ending(like, M) + ENDING * self.compiling

    def time_for(self, M: int, smaller: Any) -> bool:
        """Whether the next number of projections, and a short last climb with it, fit into the time that is left."""
        first, second = (self.work(rows, M) for rows in self.rows_for(M))
        looks = FIRST_LOOK * self.starts(M, True) * first + SECOND_LOOK * second
        expected = self.pace * (looks + 2 * FIRST_LOOK * self.work(self.data, M))
        return expected + 2 * self.compiling < self.deadline(smaller, M).left()

    def work(self, rows: Table, M: int) -> float:
        """The work of one evaluation: the products of features, and the features."""
        F = M * self.sines_for(M) + rows[0].shape[1] + 1
        return len(rows[1]) * F * (F + OVERHEAD)

    def sines_for(self, M: int) -> int:
        """How many sines each function gets: fewer when there are many functions."""
        return self.sines or (12 if M <= 20 else 10 if M <= 40 else 8)

    def starts(self, M: int, grown: bool) -> int:
        """How many climbs begin: few projections end in poor optima from some starts, many from hardly any."""
        return grown + (3 if M <= 6 else 1 if M <= 10 or not grown else 0)

    def rows_for(self, M: int) -> tuple[Table, Table]:
        """The rows of the first and of the second look."""
        N = len(self.data[1])
        second = self.data if N * (M * self.sines_for(M)) ** 2 <= WORK else self.few
        return (self.few if N > MANY_ROWS else second), second

    def rung(self, M: int, smaller: Any) -> Any:
        """A model with M projections after a first and a second look, and a third at all rows where the second saw few.

        None where there is no time left for all of these, and a smaller model to fall back on.
        """
        began = self.clock()
        first, second = self.rows_for(M)
        grown = [] if smaller is None else [self.grown(self.family.functions(smaller), M)]
        fresh = [self.fresh(M) for _ in range(self.starts(M, bool(grown)) - len(grown))]
        climbed: list[tuple[Any, Learning]] = []
        late = lambda: bool(climbed) and self.deadline(climbed[-1][0], M).passed()
        for start in grown + fresh:
            if not late():
                climbed.append(self.climb(self.family.around(start), first, FIRST_LOOK))
        model, learning = max(climbed, key=lambda ended: ended[1].objective)
        for rows, evaluations in ((second, SECOND_LOOK), (self.data, FIRST_LOOK)):
            if late() and smaller is not None:
                return None
            if rows is second or len(second[1]) < len(self.data[1]):
                model, learning = self.climb(model, rows, evaluations)
        charged = learning.objective - self.charge * M
        self.table.append(Rung(M, self.sines_for(M), learning.objective, charged, self.clock() - began))
        return model

    def climb(self, model: Any, rows: Table, evaluations: int) -> tuple[Any, Learning]:
        options: dict[str, Any] = {"restarts": 0, "seed": 0, "max_evaluations": evaluations, "progress": self.progress}
        M, evidence = self.projections(model), Timed(self.family.evidence(model, *rows), self.clock)
        options["deadline"] = self.deadline(model, M)
        ended = climb(model, Objective(model, evidence), [free_vector(model)], len(rows[1]), time.perf_counter(), **options)
        self.pace = evidence.each / self.work(rows, M)
        self.compiling = max(evidence.compiling, 0.5 * self.compiling)
        return ended

    def fresh(self, M: int) -> SineModel:
        """M random directions."""
        W = self.rng.standard_normal((M, self.data[0].shape[1]))
        total = float(np.sum(self.family.start.variance))
        ones = np.ones(M)
        return _along(self.family.start, W, ones, total / M * ones, self.sines_for(M))

    def grown(self, smaller: SineModel, M: int) -> SineModel:
        """A smaller model with some random directions more, which have little to say yet."""
        more = M - smaller.projections
        W = np.concatenate([smaller.directions, self.rng.standard_normal((more, self.data[0].shape[1]))])
        variance = np.concatenate([smaller.variance, np.full(more, 0.1 * float(smaller.noise) + 0.01)])
        return _along(smaller, W, np.concatenate([smaller.lengthscale, np.ones(more)]), variance, self.sines_for(M))


def _along(like: SineModel, W: np.ndarray, lengthscale: np.ndarray, variance: np.ndarray, sines: int) -> SineModel:
    """Functions along these directions, with the slope, the noise and the smoothness of others."""
    return dataclasses.replace(like, directions=W, lengthscale=lengthscale, variance=variance, sines=sines)
