"""Learning by climbing: L-BFGS-B on value and gradient, from several starts, with an account of how it ended."""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import importlib
import os
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from .._types import double_precision, generator, whole
from ..background import Early
from ..engines.base import MANY_ROWS, Offer
from ..engines.cholesky import Cholesky, cost_of_matrix
from ..engines.diagnose import why_no_start
from ..engines.plan import duration, evaluations_of
from ..inputs.layouts import Grid
from ..inputs.observations import Data
from ..inputs.rows import in_bucket
from ..linalg.dense.cholesky import lapack_threads
from ..parameters.supports import Orthonormal, Real
from ..parameters.tree import Leaf, free_bounds, free_names, free_vector, learned_leaves, with_free
from .believe import WeakBeliefs
from .clock import NEVER, OUT_OF_TIME, Deadline
from .density import Density
from .evidence import evidence_objective
from .initialise import candidates, glimpse, limits_of, some_rows, telling_rows, units_of
from .lags import with_lags
from .objective import LOWEST, Objective

WIDTH = np.log(1e6)  # how far from the start a parameter may go, on the scale of θ
TOLERANCE = 1e-9  # relative change of the objective for each observation
WORTH = 0.02  # of a log evidence: where evaluations are costly, nobody goes after less
FLAT = 5e-4  # gradient for each observation at which a failed line search counts as the end
PATIENCE = 6  # evaluations without gain after which a climb on random probes ends
SPREAD = 1.0  # standard deviation of the restarts on the scale of θ
SHIFT = 0.1  # the same of levels, slopes and places, in units of the data, or as a part of the number itself
ROUNDS = 4  # climbs at most
TIE = 1.0  # of a log evidence: EP's are off by some tenths, and the start without suspected rows is the safer one
AGAIN = 3  # times that a climb over jumps begins anew
WIDEST = 70  # characters of a line of progress
INTERRUPTED = "interrupted; the best point so far is kept"
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


class Look(NamedTuple):
    """An objective and its gradient at one point."""

    theta: np.ndarray
    value: float
    gradient: np.ndarray


class Settled(Exception):
    """Nothing is gained any more that is not chance."""


class NoStart(ValueError):
    """The objective has no value at any start."""


@contextlib.contextmanager
def _explained(model: Any, inputs: Any, data: Data) -> Iterator[None]:
    """Say why learning cannot begin, if it cannot."""
    try:
        yield
    except NoStart:
        raise ValueError(why_no_start(model, inputs, data)) from None


class Interrupted(Exception):
    """The user asked to stop."""


class OutOfTime(Exception):
    """The deadline has passed."""


class Climb:
    """One run of L-BFGS-B that remembers the best point it met, so that it can be stopped at any time.

    `looked` is what was already seen at a point where the run may begin. A `rugged` objective has jumps, after which the run
    begins anew at the best point while this is not flat.
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
    ) -> None:
        self.rugged = rugged
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
        if not self.deadline.allows(self.deadline.clock() - began):
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
    objective_of: Callable[[Any, Data], Objective] | None = None,
    worth: float = 0.0,
    deadline: Deadline = NEVER,
    beliefs: WeakBeliefs | None = None,
    others: Sequence[Any] = (),
) -> tuple[Any, Learning]:
    """The model with the parameters that make the data most probable by the algorithm on offer, and how they were found.

    `objective` is what is climbed when it is not the evidence of Gaussian data; `objective_of` makes the same of some rows,
    where these are so much cheaper that a climb on them should come first. `worth` is that of `climb`. With `beliefs` about
    what nobody said it is the density of θ that is climbed. `others` are models to begin at as well.
    """
    began = time.perf_counter()
    count = max(int(np.sum(data.seen)) * data.y.shape[1], 1)
    options: dict[str, Any] = {"restarts": restarts, "seed": seed, "max_evaluations": max_evaluations, "progress": progress}
    options["deadline"] = deadline
    points, telling = telling_rows(model, inputs, data)
    if objective is None and (offer.glimpse or (offer.grain and isinstance(inputs, Grid))):
        places, some = glimpse(inputs, data)
        dense = Offer(Cholesky(), cost_of_matrix(len(places), places.dimension))
        starts = [free_vector(maximise(model, places, some, dense, **options)[0])]
    elif objective_of is not None and len(inputs) > MANY_ROWS:
        places, some = some_rows(inputs, data)
        part: dict[str, Any] = {"objective": objective_of(places, some), "worth": WORTH}
        starts, worth = [free_vector(maximise(model, places, some, offer, **part, **options)[0])], WORTH
    else:
        starts = [free_vector(candidate) for candidate in candidates(model, points, telling)]
    units, limits = units_of(model, points, telling), limits_of(model, points, telling)
    with lapack_threads(offer.cost.rows if offer.cost else 0), _explained(model, inputs, data):
        begin: dict[str, Any] = {"others": [free_vector(other) for other in others]}
        if objective is not None:
            return climb(model, objective, starts, count, began, units=units, limits=limits, worth=worth, **begin, **options)
        engine, evaluations = offer.engine, 0
        places, sized = in_bucket(inputs, data) if engine.takes_unseen_rows else (inputs, data)
        ready = engine.prepared(with_free(model, starts[0]), places, sized)
        for _ in range(ROUNDS):  # one, unless what is learned asks for other places
            places = ready
            evidence = evidence_objective(model, places, sized, engine, offer.grain)
            climbed = evidence if beliefs is None else Density(evidence, beliefs)
            starts = with_lags(model, evidence, starts, points, telling) if not evaluations else starts
            learned, learning = climb(model, climbed, starts, count, began, units=units, limits=limits, **begin, **options)
            starts, evaluations, begin = [free_vector(learned)], evaluations + learning.evaluations, {}
            ready = places if deadline.passed() else engine.prepared(learned, places, sized)
            if ready is places:
                break
        return learned, dataclasses.replace(learning, evaluations=evaluations)


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
) -> tuple[Any, Learning]:
    """The model at the best point that L-BFGS-B reaches from the best of the starts and from others around it.

    When the deadline passes, every climb ends with the best that it has found. `units` is the matrix A with θ = A z, where z
    has no units and is what is climbed in; (P,) is its diagonal. `limits` (P, 2) are what θ stays between, unless a start does
    not. A step that gains less than `worth` of a log evidence is the last.
    """
    restarts, max_evaluations = whole(restarts, "restarts"), whole(max_evaluations, "max_evaluations", 1)
    if not len(starts[0]):
        return model, Learning(
            objective(starts[0])[0], 0.0, 1, time.perf_counter() - began, True, "nothing to learn", 0, 0.0, ()
        )
    with lapack_threads(count), Early(lambda: importlib.import_module("scipy.optimize")):  # it takes as long as a compilation
        looks = [Look(starts[0], *objective(starts[0]))]
        looks += [Look(start, *objective(start)) for start in starts[1:] if not deadline.passed()]
    best = max(looks, key=lambda look: look.value)
    if best.value <= LOWEST and len(others):
        best, others = Look(others[0], *objective(others[0])), others[1:]
    if best.value <= LOWEST:
        raise NoStart(
            f"the evidence is not finite at the start, {with_free(model, starts[0])}: "
            "check the data for extreme values, or give other starting values"
        )
    free, bounds = _Free(objective, np.ones(len(best.theta)) if units is None else units), bounds_of(model, starts)
    ours = np.ones(len(bounds), bool) if limits is None else np.isinf(limits[:, 1])  # bounds that nothing is known to need
    if limits is not None:
        bounds[:, 0] = np.maximum(bounds[:, 0], np.minimum(limits[:, 0], np.min(starts, axis=0)))
        bounds[:, 1] = np.minimum(bounds[:, 1], np.maximum(limits[:, 1], np.max(starts, axis=0)))
    best, bounds = free.look(best), bounds / free.unit[:, None]
    rng = generator(seed)
    begin = [best.theta] + [
        np.clip(perturbed(model, best.theta, rng, None if units is None else free.unit), *bounds.T) for _ in range(restarts)
    ]
    begin += [np.clip(free.z(other), *bounds.T) for other in others]
    expected = min(evaluations_of(len(best.theta), len(begin) - 1) - len(looks), len(begin) * max_evaluations)
    with Progress(progress, expected, deadline) as report, lapack_threads(count, len(begin)):
        runs = _climb_all(free, count, begin, bounds, max_evaluations, report, best, deadline, worth, _rugged(model))
    of_others = {id(run) for run in runs[1 + restarts :]}
    winner = max(runs, key=lambda run: run.value + (TIE if id(run) in of_others and _rugged(model) else 0.0))
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


def _climb_all(
    objective: Any,
    count: int,
    begin: list,
    bounds: np.ndarray,
    most: int,
    report: Any,
    looked: Look,
    deadline: Deadline,
    worth: float,
    rugged: bool,
) -> list[Run]:
    """All climbs, side by side when there are several; an interrupt ends them all and keeps what they found."""
    stop = threading.Event()
    climbs = [Climb(objective, count, stop, report, looked, deadline, worth, rugged) for _ in begin]
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
        part = slice(at, at + leaf.free_size)
        said = free_bounds(leaf)
        if said is not None:
            low[part] = said[0] if np.isfinite(said[0]) else low[part]
            high[part] = said[1] if np.isfinite(said[1]) else high[part]
        elif isinstance(leaf.support, (Real, Orthonormal)):
            low[part], high[part] = -np.inf, np.inf
        at = part.stop
    return np.stack([low, high], axis=1)


def perturbed(model: Any, start: np.ndarray, rng: np.random.Generator, units: np.ndarray | None = None) -> np.ndarray:
    """Another start: from the prior of a parameter where it has one, else some way off.

    With `units` the start is θ in these units, without them it is θ itself.
    """
    parts, at = [], 0
    for leaf in learned_leaves(model):
        part = slice(at, at + leaf.free_size)
        parts.append(_elsewhere(leaf, start[part], rng, None if units is None else units[part]))
        at = part.stop
    return np.concatenate(parts)


def _elsewhere(leaf: Leaf, start: np.ndarray, rng: np.random.Generator, unit: np.ndarray | None) -> np.ndarray:
    if leaf.prior is not None:
        with np.errstate(all="ignore"):  # a prior may reach beyond the support: such a draw is no start
            drawn = np.ravel(leaf.support.free(leaf.prior.sample(rng, np.shape(leaf.value))))
        if np.isfinite(drawn).all():
            return drawn if unit is None else drawn / unit
    step = SPREAD if not isinstance(leaf.support, Real) else SHIFT * np.abs(start) if unit is None else SHIFT
    return start + step * rng.standard_normal(start.shape)


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
    ) -> None:
        self.tell = wanted if callable(wanted) else None
        self.shown = self.tell is None and (sys.stderr.isatty() if wanted is None else bool(wanted))
        self.expected, self.deadline, self.clock = expected, deadline, clock
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
            line = f"learning: evaluation {self.evaluations}, log evidence {best:.6g}{self._left(now)}"
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
