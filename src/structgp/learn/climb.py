"""Climbing an objective: L-BFGS-B on value and gradient, from several starts side by side, until nothing is gained."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import importlib
import itertools
import os
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from .. import where
from .._types import generator, whole
from ..background import Early
from ..crew import Crew
from ..engines.plan import evaluations_of
from ..linalg.dense.cholesky import lapack_threads
from ..parameters.tree import free_names, learned_leaves, with_free
from .account import INTERRUPTED, Learning, Progress
from .clock import NEVER, OUT_OF_TIME, Deadline
from .objective import LOWEST, Objective
from .starts import bounds_of, perturbed

TOLERANCE = 1e-9  # relative change of the objective for each observation
FLAT = 5e-4  # gradient for each observation at which a failed line search counts as the end
PATIENCE = 6  # evaluations without gain after which a climb on random probes ends
TIE = 1.0  # of a log evidence: EP's are off by some tenths, and the start without suspected rows is the safer one
AGAIN = 3  # times that a climb over jumps begins anew
FAR = 2.0  # on the scale of θ, or in units of the data: where another hill is looked for
PRESSED = 0.01  # gain in the objective, for each observation and e-fold, that makes an end at a bound worth a warning


@dataclasses.dataclass(frozen=True)
class Run:
    """One climb."""

    theta: np.ndarray
    value: float
    gradient: np.ndarray
    evaluations: int
    converged: bool
    message: str


class Look(NamedTuple):
    """An objective and its gradient at one point."""

    theta: np.ndarray
    value: float
    gradient: np.ndarray


class Settled(Exception):
    """Nothing is gained any more that is not chance."""


class NoStart(ValueError):
    """The objective has no value at any start."""


class Interrupted(Exception):
    """The user asked to stop."""


class OutOfTime(Exception):
    """The deadline has passed."""


class Climb:
    """One run of L-BFGS-B that remembers the best point it met, so that it can be stopped at any time.

    `looked` is what was already seen at a point where the run may begin. A `rugged` objective has jumps, after which the run
    begins anew at the best point while this is not flat. `each` are the seconds that a look is known to take.
    """

    def __init__(
        self,
        objective: Any,
        count: int,
        stop: threading.Event,
        report: Callable[[float], None],
        looked: Look,
        deadline: Deadline = NEVER,
        worth: float = 0.0,
        rugged: bool = False,
        each: float = 0.0,
    ) -> None:
        self.rugged, self.each = rugged, each
        self.objective, self.count, self.stop, self.report, self.looked = objective, count, stop, report, looked
        self.deadline, self.tolerance = deadline, max(TOLERANCE, worth / count)
        self.evaluations = 0
        self.grain = objective.grain
        self.heights: list[float] = []
        self.best: tuple[float, np.ndarray, np.ndarray] | None = None

    def __call__(self, theta: np.ndarray) -> tuple[float, np.ndarray]:
        """What the objective lacks to its value at the start, for each observation, which a minimiser takes."""
        if self.stop.is_set():
            raise Interrupted
        began = self.deadline.clock()
        value, gradient = self._look(theta)
        if self.best is None or value > self.best[0]:
            self.best = (value, theta.copy(), gradient)
        self.report(self.best[0])
        self.heights.append(self.best[0])
        if self.grain and len(self.heights) > PATIENCE and self.best[0] - self.heights[-1 - PATIENCE] < self.grain:
            raise Settled
        self.each = self.deadline.clock() - began if self.evaluations else self.each
        if not self.deadline.allows(self.each):
            raise OutOfTime
        # from the start on: the evidence of y in other units differs by a constant, which must not move the relative tolerance
        return (self.looked.value - value) / self.count, -gradient / self.count

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
            options = {
                "maxfun": max_evaluations,
                "maxiter": max_evaluations,
                "ftol": self.tolerance,
                "gtol": 1e-6,
                "maxcor": 20,
            }
            result = minimize(self, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
            for _ in range(AGAIN if self.rugged else 0):  # where sites jump, what was learned of the slope there is wrong
                assert self.best is not None
                if self._flat(bounds) or self.evaluations >= max_evaluations:
                    break
                result = minimize(self, self.best[1], jac=True, method="L-BFGS-B", bounds=bounds, options=options)
            converged, message = bool(result.success), str(result.message)
            if not converged and "ABNORMAL" in message and self._flat(bounds):
                converged, message = True, "as far as rounding allows"
            elif not converged and "LIMIT" in message:
                message = "the limit of evaluations was reached"
        except Settled:
            converged, message = True, "as far as random probes can tell"
        except OutOfTime:
            converged, message = False, OUT_OF_TIME
        except (Interrupted, KeyboardInterrupt):
            self.stop.set()
            if self.best is None:
                raise KeyboardInterrupt from None
            converged, message = False, INTERRUPTED
        assert self.best is not None
        value, theta, gradient = self.best
        return Run(theta, value, gradient, self.evaluations, converged, message)


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
    units: np.ndarray | None = None,
    limits: np.ndarray | None = None,
    worth: float = 0.0,
    others: Sequence[np.ndarray] = (),
    over: Crew | None = None,
    given: np.ndarray | None = None,
) -> tuple[Any, Learning]:
    """The model at the best point that L-BFGS-B reaches from the best of the starts and from others around it.

    Where no climb gets higher than `given` stands, it is climbed from there: a start in whatever units it was said in, which
    is not to decide on which hill data in other units end.

    When the deadline passes, every climb ends with the best that it has found. `units` is the matrix A with θ = A z, where z
    has no units and is what is climbed in; (P,) is its diagonal. `limits` (P, 2) are what θ stays between, unless a start does
    not. A step that gains less than `worth` of a log evidence is the last. `over` has the climbs done by others.
    """
    restarts, max_evaluations = whole(restarts, "restarts"), whole(max_evaluations, "max_evaluations", 1)
    if not len(starts[0]):
        return model, Learning(
            objective(starts[0])[0], 0.0, 1, time.perf_counter() - began, True, "nothing to learn", 0, 0.0, ()
        )
    with lapack_threads(count), Early(lambda: importlib.import_module("scipy.optimize")):  # it takes as long as a compilation
        looks, each = _looks(objective, starts, deadline)
    best = max(looks, key=lambda look: look.value)
    if best.value <= LOWEST and len(others):
        best, others = Look(others[0], *objective(others[0])), others[1:]
    from_given: dict[str, Any] = {"restarts": 0, "seed": seed, "max_evaluations": max_evaluations, "progress": progress}
    from_given |= {"deadline": deadline, "units": units, "limits": limits, "worth": worth, "over": over}
    if best.value <= LOWEST and given is not None:
        return climb(model, objective, [given], count, began, **from_given)
    if best.value <= LOWEST:
        raise NoStart(
            f"the evidence is not finite at the start, {with_free(model, starts[0])}: "
            "check the data for extreme values, or give other starting values"
        )
    starts = [best.theta, *starts[1:]]  # the first counts where it is the best: it may have been said in other units
    free, bounds = _Free(objective, np.ones(len(best.theta)) if units is None else units), bounds_of(model, starts)
    ours = np.ones(len(bounds), bool) if limits is None else np.isinf(limits[:, 1])  # bounds that nothing is known to need
    if limits is not None:
        bounds[:, 0] = np.maximum(bounds[:, 0], np.minimum(limits[:, 0], np.min(starts, axis=0)))
        bounds[:, 1] = np.minimum(bounds[:, 1], np.maximum(limits[:, 1], np.max(starts, axis=0)))
    best, bounds = free.look(best), bounds / free.unit[:, None]
    rng = generator(seed)
    elsewhere = [np.clip(z, *bounds.T) for z in _far_apart(best, map(free.look, looks[1:]), restarts // 2)]
    begin = [best.theta, *elsewhere] + [
        np.clip(perturbed(model, best.theta, rng, None if units is None else free.unit), *bounds.T)
        for _ in range(restarts - len(elsewhere))
    ]
    begin += [np.clip(free.z(other), *bounds.T) for other in others]
    expected = min(evaluations_of(len(best.theta), len(begin) - 1) - len(looks), len(begin) * max_evaluations)
    with Progress(progress, expected, deadline) as report, lapack_threads(count, len(begin)):
        options: dict[str, Any] = {"deadline": deadline, "worth": worth, "rugged": _rugged(model), "each": each}
        runs = _climb_all(free, count, begin, bounds, max_evaluations, report, best, over, **options)
    of_others = {id(run) for run in runs[1 + restarts :]}
    winner = max(runs, key=lambda run: run.value + (TIE if id(run) in of_others and _rugged(model) else 0.0))
    in_time = winner.message not in (OUT_OF_TIME, INTERRUPTED)
    if given is not None and in_time and objective(given)[0] >= winner.value:
        return climb(model, objective, [given], count, began, **from_given)
    kinds = [max((run.value for run in part), default=None) for part in (runs[: 1 + restarts], runs[1 + restarts :])]
    names = np.asarray(free_names(model))
    at_bound = np.any(np.abs(winner.theta[:, None] - bounds) < 1e-6, axis=1)
    learning = Learning(
        objective=winner.value,
        gradient_norm=float(np.abs(np.where(at_bound, 0.0, winner.gradient)).max() / count),
        evaluations=len(looks) + sum(run.evaluations for run in runs),
        seconds=time.perf_counter() - began,
        converged=winner.converged,
        message=winner.message,
        restarts=len(begin) - 1,
        spread=max(run.value for run in runs) - min(run.value for run in runs),
        at_bound=tuple(map(str, names[at_bound])),
        pressed=tuple(map(str, names[_pressed(model, winner, bounds, count, ours)])),
        runner_up=None if None in kinds else kinds[0] if id(winner) in of_others else kinds[1],
    )
    return with_free(model, free.theta(winner.theta)), learning


def _looks(objective: Objective, starts: list[np.ndarray], deadline: Deadline) -> tuple[list[Look], float]:
    """The objective at the first start, and at the others that there is time for; and the seconds that a look takes once it is
    compiled, 0 where that is not known."""
    looks = [Look(starts[0], *objective(starts[0]))]
    took: list[float] = []
    for start in starts[1:]:
        if not deadline.allows(min(took, default=0.0)):
            break
        began = deadline.clock()
        looks.append(Look(start, *objective(start)))
        took.append(deadline.clock() - began)
    return looks, min(took, default=0.0)


def _far_apart(best: Look, others: Iterable[Look], most: int) -> list[np.ndarray]:
    """The best of the other looks that are so far from each other that what is drawn at random around one misses the next."""
    found = [best.theta]
    for look in sorted(others, key=lambda look: -look.value):
        if len(found) <= most and look.value > LOWEST and min(np.abs(look.theta - z).max() for z in found) > FAR:
            found.append(look.theta)
    return found[1:]


def _rugged(model: Any) -> bool:
    """Whether sites may jump from one answer to another while parameters move."""
    likelihood = getattr(model, "likelihood", None)
    return likelihood is not None and likelihood.latents > 1 and not likelihood.log_concave


class _Free:
    """An objective of z, where θ = A z, with a matrix A or its diagonal."""

    def __init__(self, objective: Any, A: np.ndarray) -> None:
        self.objective, self.A, self.unit = objective, A, np.diag(A) if A.ndim == 2 else A
        self.grain = objective.grain

    def theta(self, z: np.ndarray) -> np.ndarray:
        return self.A @ z if self.A.ndim == 2 else self.A * z

    def look(self, look: Look) -> Look:
        """What was seen at θ, as seen at its z."""
        return Look(self.z(look.theta), look.value, self._pulled(look.gradient))

    def z(self, theta: np.ndarray) -> np.ndarray:
        return np.linalg.solve(self.A, theta) if self.A.ndim == 2 else theta / self.A

    def __call__(self, z: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = self.objective(self.theta(z))
        return value, self._pulled(gradient)

    def _pulled(self, gradient: np.ndarray) -> np.ndarray:
        return self.A.T @ gradient if self.A.ndim == 2 else self.A * gradient


def _pressed(model: Any, run: Run, bounds: np.ndarray, count: int, ours: np.ndarray) -> np.ndarray:
    """Which entries were stopped by a bound, one that was given or one of ours, while the objective still rises beyond it.

    At our lower bound a number is as good as zero.
    """
    given = np.array([leaf.bounds is not None for leaf in learned_leaves(model) for _ in range(leaf.free_size)])
    low, high = (np.abs(run.theta[:, None] - bounds) < 1e-6).T
    up, down = run.gradient > PRESSED * count, run.gradient < -PRESSED * count
    return (high & up & (ours | given)) | (low & down & given)


def climb_once(
    objective: Any, count: int, looked: Look, start: Any, bounds: Any, most: int, seconds: Any, worth: float, rugged: bool
) -> Run:
    """One climb that nobody watches, wherever it is."""
    climb = Climb(objective, count, threading.Event(), lambda best: None, looked, Deadline.after(seconds), worth, rugged)
    return climb.run(start, bounds, most)


def _climb_all(
    objective: Any,
    count: int,
    begin: list,
    bounds: np.ndarray,
    most: int,
    report: Any,
    looked: Look,
    over: Crew | None,
    *,
    deadline: Deadline,
    worth: float,
    rugged: bool,
    each: float,
) -> list[Run]:
    """All climbs, side by side when there are several; an interrupt ends them all and keeps what they found."""
    if over is not None and len(begin) > 1:
        same, left = itertools.repeat, deadline.left() if np.isfinite(deadline.at) else None
        limits = (same(value) for value in (bounds, most, left, worth, rugged))
        runs = over.map(climb_once, same(objective), same(count), same(looked), begin, *limits)
        for run in runs:
            report(run.value)
        return runs
    stop = threading.Event()
    climbs = [Climb(objective, count, stop, report, looked, deadline, worth, rugged, each) for _ in begin]
    if len(begin) == 1:
        return [climbs[0].run(begin[0], bounds, most)]
    with concurrent.futures.ThreadPoolExecutor(min(len(begin), os.cpu_count() or 1)) as pool:
        futures = [
            pool.submit(where.carried(climb.run), start, bounds, most) for climb, start in zip(climbs, begin, strict=True)
        ]
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
