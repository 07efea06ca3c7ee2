"""Learning by climbing: L-BFGS-B on value and gradient, from several starts, with an account of how it ended."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import importlib
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from .._types import double_precision
from ..background import Early
from ..engines.base import Offer
from ..engines.cholesky import Cholesky, cost_of_matrix
from ..inputs.layouts import Grid
from ..inputs.observations import Data
from ..linalg.dense.cholesky import lapack_threads
from ..parameters.supports import Orthonormal, Real
from ..parameters.tree import Leaf, free_bounds, free_names, free_vector, learned_leaves, with_free
from .clock import NEVER, OUT_OF_TIME, Deadline
from .evidence import evidence_objective
from .initialise import candidates, glimpse
from .objective import LOWEST, Objective

WIDTH = np.log(1e6)  # how far from the start a parameter may go, on the scale of θ
TOLERANCE = 1e-9  # relative change of the objective for each observation
FLAT = 5e-4  # gradient for each observation at which a failed line search counts as the end
PATIENCE = 6  # evaluations without gain after which a climb on random probes ends
SPREAD = 1.0  # standard deviation of the restarts on the scale of θ


@dataclasses.dataclass(frozen=True)
class Run:
    """One climb."""

    theta: np.ndarray
    value: float
    gradient: np.ndarray
    evaluations: int
    converged: bool
    message: str


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

    def __str__(self) -> str:
        ended = "converged" if self.converged else f"stopped: {self.message}"
        text = f"{ended} after {self.evaluations} evaluations, {self.seconds:.2f} s; largest gradient {self.gradient_norm:.1e}"
        if self.restarts:
            text += f"; {self.restarts} restarts ended within {self.spread:.3g} of each other"
        return text + (f"; at a bound: {', '.join(self.at_bound)}" if self.at_bound else "")


class Look(NamedTuple):
    """An objective and its gradient at one point."""

    theta: np.ndarray
    value: float
    gradient: np.ndarray


class Settled(Exception):
    """Nothing is gained any more that is not chance."""


class Interrupted(Exception):
    """The user asked to stop."""


class OutOfTime(Exception):
    """The deadline has passed."""


class Climb:
    """One run of L-BFGS-B that remembers the best point it met, so that it can be stopped at any time.

    `looked` is what was already seen at a point where the run may begin.
    """

    def __init__(
        self,
        objective: Objective,
        count: int,
        stop: threading.Event,
        report: Callable[[float], None],
        looked: Look,
        deadline: Deadline = NEVER,
    ) -> None:
        self.objective, self.count, self.stop, self.report, self.looked = objective, count, stop, report, looked
        self.deadline = deadline
        self.evaluations = 0
        self.grain = objective.grain
        self.heights: list[float] = []
        self.best: tuple[float, np.ndarray, np.ndarray] | None = None

    def __call__(self, theta: np.ndarray) -> tuple[float, np.ndarray]:
        """The negative objective for each observation, which a minimiser takes."""
        if self.stop.is_set():
            raise Interrupted
        value, gradient = self._look(theta)
        if self.best is None or value > self.best[0]:
            self.best = (value, theta.copy(), gradient)
        self.report(self.best[0])
        self.heights.append(self.best[0])
        if self.grain and len(self.heights) > PATIENCE and self.best[0] - self.heights[-1 - PATIENCE] < self.grain:
            raise Settled
        if self.deadline.passed():
            raise OutOfTime
        return -value / self.count, -gradient / self.count

    def _look(self, theta: np.ndarray) -> tuple[float, np.ndarray]:
        if np.array_equal(theta, self.looked.theta):
            return self.looked.value, self.looked.gradient
        self.evaluations += 1
        return self.objective(theta)

    def _flat(self, bounds: np.ndarray) -> bool:
        """Whether the best point is one where nothing but rounding keeps the search from going on."""
        assert self.best is not None
        _, theta, gradient = self.best
        inside = ~np.any(np.abs(theta[:, None] - bounds) < 1e-6, axis=1)
        return bool(np.all(np.abs(gradient[inside]) < FLAT * self.count))

    def run(self, start: np.ndarray, bounds: np.ndarray, max_evaluations: int) -> Run:
        """Climb from a start until nothing is gained, or the user or the budget stops it."""
        from scipy.optimize import minimize

        try:
            options = {"maxfun": max_evaluations, "maxiter": max_evaluations, "ftol": TOLERANCE, "gtol": 1e-6, "maxcor": 20}
            result = minimize(self, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
            converged, message = bool(result.success), str(result.message)
            if not converged and "ABNORMAL" in message and self._flat(bounds):
                converged, message = True, "as far as rounding allows"
        except Settled:
            converged, message = True, "as far as random probes can tell"
        except OutOfTime:
            converged, message = False, OUT_OF_TIME
        except (Interrupted, KeyboardInterrupt):
            self.stop.set()
            if self.best is None:
                raise KeyboardInterrupt from None
            converged, message = False, "interrupted; the best point so far is kept"
        assert self.best is not None
        value, theta, gradient = self.best
        return Run(theta, value, gradient, self.evaluations, converged, message)


@double_precision
def maximise(
    model: Any,
    inputs: Any,
    data: Data,
    offer: Offer,
    *,
    restarts: int,
    seed: Any,
    max_evaluations: int,
    progress: bool | None,
    objective: Objective | None = None,
    deadline: Deadline = NEVER,
) -> tuple[Any, Learning]:
    """The model with the parameters that make the data most probable by the algorithm on offer, and how they were found.

    `objective` is what is climbed when it is not the evidence of Gaussian data.
    """
    began = time.perf_counter()
    count = max(int(np.sum(data.seen)) * data.y.shape[1], 1)
    options: dict[str, Any] = {"restarts": restarts, "seed": seed, "max_evaluations": max_evaluations, "progress": progress}
    options["deadline"] = deadline
    if objective is None and offer.grain and isinstance(inputs, Grid):
        places, some = glimpse(inputs, data)
        dense = Offer(Cholesky(), cost_of_matrix(len(places), places.dimension))
        starts = [free_vector(maximise(model, places, some, dense, **options)[0])]
    else:
        starts = [free_vector(candidate) for candidate in candidates(model, np.asarray(inputs.points), data)]
    if objective is None:
        objective = evidence_objective(model, inputs, data, offer.engine, offer.grain)
    with lapack_threads(offer.cost.rows if offer.cost else 0):
        return climb(model, objective, starts, count, began, **options)


def climb(
    model: Any,
    objective: Objective,
    starts: list[np.ndarray],
    count: int,
    began: float,
    *,
    restarts: int,
    seed: Any,
    max_evaluations: int,
    progress: bool | None,
    deadline: Deadline = NEVER,
) -> tuple[Any, Learning]:
    """The model at the best point that L-BFGS-B reaches from the best of the starts and from others around it.

    When the deadline passes, every climb ends with the best that it has found.
    """
    if not len(starts[0]):
        return model, Learning(
            objective(starts[0])[0], 0.0, 1, time.perf_counter() - began, True, "nothing to learn", 0, 0.0, ()
        )
    with lapack_threads(count), Early(lambda: importlib.import_module("scipy.optimize")):  # it takes as long as a compilation
        looks = [Look(starts[0], *objective(starts[0]))]
        looks += [Look(start, *objective(start)) for start in starts[1:] if not deadline.passed()]
    best = max(looks, key=lambda look: look.value)
    if best.value <= LOWEST:
        raise ValueError(
            f"the evidence is not finite at the start, {with_free(model, starts[0])}: "
            "check the data for extreme values, or give other starting values"
        )
    bounds = bounds_of(model, starts)
    rng = np.random.default_rng(seed)
    begin = [best.theta] + [np.clip(perturbed(model, best.theta, rng), *bounds.T) for _ in range(restarts)]
    with Progress(progress) as report, lapack_threads(count, len(begin)):
        runs = _climb_all(objective, count, begin, bounds, max_evaluations, report, best, deadline)
    winner = max(runs, key=lambda run: run.value)
    names = np.asarray(free_names(model))
    at_bound = np.any(np.abs(winner.theta[:, None] - bounds) < 1e-6, axis=1)
    learning = Learning(
        objective=winner.value,
        gradient_norm=float(np.abs(np.where(at_bound, 0.0, winner.gradient)).max() / count),
        evaluations=len(looks) + sum(run.evaluations for run in runs),
        seconds=time.perf_counter() - began,
        converged=winner.converged,
        message=winner.message,
        restarts=restarts,
        spread=winner.value - min(run.value for run in runs),
        at_bound=tuple(names[at_bound]),
    )
    return with_free(model, winner.theta), learning


def _climb_all(
    objective: Objective, count: int, begin: list, bounds: np.ndarray, most: int, report: Any, looked: Look, deadline: Deadline
) -> list[Run]:
    """All climbs, side by side when there are several; an interrupt ends them all and keeps what they found."""
    stop = threading.Event()
    climbs = [Climb(objective, count, stop, report, looked, deadline) for _ in begin]
    if len(begin) == 1:
        return [climbs[0].run(begin[0], bounds, most)]
    with concurrent.futures.ThreadPoolExecutor(min(len(begin), os.cpu_count() or 1)) as pool:
        futures = [pool.submit(climb.run, start, bounds, most) for climb, start in zip(climbs, begin, strict=True)]
        try:
            concurrent.futures.wait(futures)
        except KeyboardInterrupt:
            stop.set()
        ended = []
        for future in futures:
            try:
                ended.append(future.result())
            except KeyboardInterrupt:
                continue
    if not ended:
        raise KeyboardInterrupt
    return ended


def bounds_of(model: Any, starts: list[np.ndarray]) -> np.ndarray:
    """For each entry of θ, how far the search may go: what the user said, else far beyond any of the starts."""
    low, high = np.min(starts, axis=0) - WIDTH, np.max(starts, axis=0) + WIDTH
    at = 0
    for leaf in learned_leaves(model):
        size = int(np.prod(leaf.support.free_shape(np.shape(leaf.value))))
        part = slice(at, at + size)
        said = free_bounds(leaf)
        if said is not None:
            low[part] = said[0] if np.isfinite(said[0]) else low[part]
            high[part] = said[1] if np.isfinite(said[1]) else high[part]
        elif isinstance(leaf.support, (Real, Orthonormal)):
            low[part], high[part] = -np.inf, np.inf
        at += size
    return np.stack([low, high], axis=1)


def perturbed(model: Any, start: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Another start: from the prior of a parameter where it has one, else some way off."""
    parts, at = [], 0
    for leaf in learned_leaves(model):
        size = int(np.prod(leaf.support.free_shape(np.shape(leaf.value))))
        parts.append(_elsewhere(leaf, start[at : at + size], rng))
        at += size
    return np.concatenate(parts)


def _elsewhere(leaf: Leaf, start: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    if leaf.prior is not None:
        with np.errstate(all="ignore"):  # a prior may reach beyond the support: such a draw is no start
            drawn = np.ravel(leaf.support.free(leaf.prior.sample(rng, np.shape(leaf.value))))
        if np.isfinite(drawn).all():
            return drawn
    step = 0.1 * np.abs(start) if isinstance(leaf.support, Real) else SPREAD
    return start + step * rng.standard_normal(start.shape)


class Progress:
    """One line on a terminal that shows the best value so far; silent elsewhere. A function is told instead of the terminal."""

    def __init__(self, wanted: bool | Callable[[int, float], None] | None) -> None:
        self.tell = wanted if callable(wanted) else None
        self.shown = self.tell is None and (sys.stderr.isatty() if wanted is None else bool(wanted))
        self.evaluations, self.last = 0, 0.0

    def __enter__(self) -> Callable[[float], None]:
        return self

    def __call__(self, best: float) -> None:
        self.evaluations += 1
        if self.tell is not None:
            self.tell(self.evaluations, best)
        now = time.monotonic()
        if self.shown and now - self.last > 0.1:
            self.last = now
            sys.stderr.write(f"\rlearning: evaluation {self.evaluations}, log evidence {best:.6g}   ")
            sys.stderr.flush()

    def __exit__(self, *_: object) -> None:
        if self.shown:
            sys.stderr.write("\r" + " " * 60 + "\r")
            sys.stderr.flush()
