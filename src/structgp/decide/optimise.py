"""Optimisation of what is expensive to measure: an optimiser that is asked where to look next, and told what was seen."""

from __future__ import annotations

import copy
import dataclasses
import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .._types import by_the_host, whole
from ..background import Early
from ..inputs.reading import unmasked
from ..linalg.dense.cholesky import one_lapack_thread
from ..parameters.tree import as_numpy, with_free
from ..posterior import Result
from ..process.gp import GP
from ..process.mixture import FittedMixture
from . import acquire
from .acquire import View
from .knowledge import Knowledge, capacity_of, learn_from
from .rules import Region, box_around
from .search import SAME, Search, best_of_draw, best_place
from .space import Limit, Space, as_limit, as_space
from .surrogate import CAPACITIES, prior

MEMBERS = 8  # of the average over parameters
METHODS = {"average": "laplace", "best": "laplace", "importance": "importance", "ais": "ais"}
MOST_INITIAL = 20  # points of the first design
AHEAD = 0.75  # of a capacity that is full when the next one is prepared


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """One run: where, what came of it (None where it failed), and what else was measured."""

    point: Any
    value: float | None
    outcomes: dict[str, float] = dataclasses.field(default_factory=dict)

    @property
    def failed(self) -> bool:
        """Whether the run broke."""
        return self.value is None


@dataclasses.dataclass(frozen=True)
class Suggestion:
    """A point to be measured next, and what is believed of it, in the units of the measurements."""

    point: Any
    mean: float | None = None
    sd: float | None = None
    expected_gain: float | None = None  # over the best that is believed of any run
    probability: float | None = None  # that it is better than that
    feasible: float | None = None  # probability that limits are met and nothing fails, where there are limits
    why: str = "to fill the space evenly"


@dataclasses.dataclass(frozen=True)
class Account:
    """How the last question was answered."""

    rows: int = 0
    capacity: int = 0
    evaluations: int = 0  # of the density of parameters, a batch at a time
    seconds: float = 0.0
    value: float | None = None  # of the acquisition: a logarithm, but for "ucb" and "thompson"
    expected_gain: float | None = None
    weights: dict[str, float] = dataclasses.field(default_factory=dict)  # how probable each model is
    remarks: tuple[str, ...] = ()
    stopped: str = ""

    def __str__(self) -> str:
        parts = [f"{self.rows} rows in a capacity of {self.capacity}", f"{self.seconds:.2g} s"]
        if self.expected_gain is not None:
            parts.append(f"expected gain {self.expected_gain:.3g}")
        if len(self.weights) > 1:
            parts.append(", ".join(f"P({name}) = {weight:.2f}" for name, weight in self.weights.items()))
        return "; ".join([*parts, *self.remarks, *([f"stopped: {self.stopped}"] if self.stopped else [])])


@dataclasses.dataclass(init=False, eq=False)
class Optimiser(Result):
    """Says where to measure next: `ask` for a point, `tell` what came of it, again and again.

    - `space`: a `Space`, or a list of ranges;
    - `maximise`: whether large values are good;
    - `noise`: None where it is learned, 0.0 for exact measurements, else a variance;
    - `acquisition`: "ei" (expected improvement), "pi", "ucb" or "thompson";
    - `constraints`: what is known to be needed of the variables, as text: ``["temp + 2*flow <= 100"]``;
    - `outcome_constraints`: limits of what is measured besides: ``{"cost": (None, 5)}``, told by ``tell(x, y, cost=4.2)``;
    - `region`: `Bounded` or `Adaptive`, to look near the best point only;
    - `model`: a kernel on the unit cube, by default Matern52 with a lengthscale for each variable, or any object with
      `fit(X, y)` whose result has `members` with `marginals`; `models`: several by name, weighted by their evidence;
    - `warp`: whether values are bent so that far outliers do not set the scale;
    - `parameters`: "average" over those of the model, the "best", or the "importance" or "ais" of an average by sampling;
    - `initial`: points that fill the space before anything is learned, by default 2D + 1 and at most 20;
    - `evaluations`: how many there will be, where that is known: programs for more are not prepared.

    Points that were asked for and not told are pending: they are not asked for again. Answers follow from the runs in their
    order, what is pending and `seed`: not from how often was asked before, nor from being saved and loaded in between.
    """

    space: Space
    maximise: bool
    noise: float | None
    acquisition: str
    constraints: tuple[Limit, ...]
    outcome_constraints: dict[str, tuple[float, float]]
    region: Region | None
    models: dict[str, Any]
    warp: bool
    members: int
    initial: int
    seed: int
    history: tuple[Evaluation, ...]
    pending: tuple[Any, ...]
    evaluations: int | None = None
    method: str = "laplace"  # of the average
    account: Account = Account()  # how the last question was answered

    def __init__(
        self,
        space: Any,
        *,
        maximise: bool = False,
        noise: float | None = None,
        acquisition: str = "ei",
        constraints: Sequence[str | Limit] = (),
        outcome_constraints: Mapping[str, tuple[float | None, float | None]] | None = None,
        region: Region | None = None,
        model: Any = None,
        models: Mapping[str, Any] | None = None,
        warp: bool = True,
        parameters: str = "average",
        initial: int | None = None,
        evaluations: int | None = None,
        seed: int = 0,
    ) -> None:
        self.space = as_space(space)
        self.maximise = bool(maximise)
        if noise is not None and not (isinstance(noise, (int, float, np.number)) and 0 <= noise < math.inf):
            raise ValueError(f"noise must be None (learned), 0 (exact) or a variance, got {noise!r}")
        self.noise = None if noise is None else float(noise)
        if acquisition not in acquire.RULES:
            raise ValueError(f"acquisition must be one of {acquire.RULES}, got {acquisition!r}")
        self.acquisition = acquisition
        texts = [constraints] if isinstance(constraints, str) else constraints
        self.constraints = tuple(text if isinstance(text, Limit) else as_limit(text, self.space) for text in texts)
        self.outcome_constraints = {name: _limits(name, pair) for name, pair in (outcome_constraints or {}).items()}
        if region is not None and not hasattr(region, "reaches"):
            raise TypeError(f"region must be Bounded(...) or Adaptive(...), got {region!r}")
        self.region = region
        if model is not None and models:
            raise ValueError("give model= or models=, not both")
        self.models = dict(models) if models else {"": model}
        self.warp = bool(warp)
        if parameters not in METHODS:
            raise ValueError(f"parameters must be one of {tuple(METHODS)}, got {parameters!r}")
        self.members = 1 if parameters == "best" else MEMBERS
        self.method = METHODS[parameters]
        D = len(self.space)
        self.initial = min(2 * D + 1, MOST_INITIAL) if initial is None else whole(initial, "initial", 1)
        self.evaluations = None if evaluations is None else whole(evaluations, "evaluations", 1)
        self.seed = whole(seed, "seed")
        self.history, self.pending, self.account = (), (), Account()
        for name, kernel in self.models.items():
            if not hasattr(kernel, "fit") or isinstance(kernel, GP):
                self.models[name] = kernel if kernel is None else prior(kernel, self.space.columns, self.noise)

    # what was seen

    def tell(self, x: Any, value: Any = None, /, *, failed: bool = False, **outcomes: Any) -> None:
        """What came of a run, or of several: their points and values.

        A run that broke is `failed`, without a value: where runs fail is learned. `outcomes` are what constraints on
        outcomes speak of.
        """
        if isinstance(x, (list, tuple)) and len(x) and isinstance(x[0], (Mapping, list, tuple, np.ndarray)):
            values = [None] * len(x) if value is None else list(np.atleast_1d(value))
            if len(values) != len(x):
                raise ValueError(f"tell: {len(x)} points came with {len(values)} values")
            for i, (one, its) in enumerate(zip(x, values, strict=True)):
                self.tell(one, its, failed=failed, **{name: np.atleast_1d(many)[i] for name, many in outcomes.items()})
            return
        place = self.space.place(x)
        if failed != (value is None):
            what = "a failed run has no value" if failed else "a value is needed, or failed=True"
            raise ValueError(f"tell: {what}")
        number = None if failed else _finite(value, "the value of a run", "tell(x, failed=True) where it broke")
        strange = [name for name in outcomes if name not in self.outcome_constraints]
        missing = [name for name in self.outcome_constraints if name not in outcomes and not failed]
        if strange or missing:
            known = ", ".join(self.outcome_constraints) or "none"
            what = f"{', '.join(strange or missing)} {'is not among them' if strange else 'is missing'}"
            raise ValueError(f"tell: the outcomes with limits are {known}; {what}")
        found = {name: _finite(item, name, "failed=True where it could not be measured") for name, item in outcomes.items()}
        self.history = (*self.history, Evaluation(self.space.point(place), number, found))
        near = [np.max(np.abs(self.space.place(other) - place)) <= SAME for other in self.pending]
        if any(near):
            at = near.index(True)
            self.pending = self.pending[:at] + self.pending[at + 1 :]

    @property
    def best(self) -> Evaluation | None:
        """The best run that met all limits; None before there is one."""
        good = [run for run in self.history if self._is_good(run)]
        return min(good, key=lambda run: self._signed(run.value)) if good else None

    @property
    def trace(self) -> np.ndarray:
        """The best value after each run, NaN before there is one."""
        values = np.array([self._signed(run.value) if self._is_good(run) else np.inf for run in self.history])
        least = np.minimum.accumulate(values) if len(values) else values
        return np.where(np.isfinite(least), -least if self.maximise else least, np.nan)

    @property
    def expected_gain(self) -> float | None:
        """What the last suggestion is expected to gain over the best that is believed of any run."""
        return self.account.expected_gain

    def _is_good(self, run: Evaluation) -> bool:
        return not run.failed and all(
            low <= run.outcomes[name] <= high for name, (low, high) in self.outcome_constraints.items()
        )

    def _signed(self, value: Any) -> Any:
        """Small values are good inside."""
        return -value if self.maximise else value

    # what to look at next

    def ask(self, n: int | None = None) -> Any:
        """The point to be measured next; with n a list of as many, to be measured side by side."""
        found = self.suggest(1 if n is None else whole(n, "n", 1))
        self.pending = (*self.pending, *(one.point for one in found))
        return found[0].point if n is None else [one.point for one in found]

    @by_the_host
    @one_lapack_thread
    def suggest(self, n: int = 1) -> list[Suggestion]:
        """Points to be measured next with what is believed of them; they do not become pending."""
        began = time.perf_counter()
        pending = [self.space.place(point) for point in self.pending]
        found: list[Suggestion] = []
        done = sum(not run.failed for run in self.history)
        while len(found) < n and (done < 2 or len(self.history) + len(pending) < self.initial):
            place = self._whole_space().design(len(self.history) + len(pending) + 1, self.seed)[-1]
            pending.append(place)
            found.append(Suggestion(self.space.point(place)))
        if len(found) < n:
            found += self._by_model(n - len(found), pending)
        elapsed = time.perf_counter() - began
        self.account = dataclasses.replace(self.account, rows=len(self.history), seconds=elapsed)
        return found

    @by_the_host
    @one_lapack_thread
    def recommend(self) -> Suggestion:
        """The measured point that is believed to be best: of noisy runs none that was merely lucky."""
        knowledge = self._knowledge()
        view, place = knowledge.view([])
        return Suggestion(self.space.point(place), *knowledge.described(view, place), "the best that was measured")

    @by_the_host
    @one_lapack_thread
    def predict(self, x: Any) -> tuple[float, float]:
        """Mean and standard deviation of a measurement without noise, in its units."""
        knowledge = self._knowledge()
        if "_seen" not in self.__dict__ or self.__dict__["_seen"][0] is not knowledge:
            self.__dict__["_seen"] = knowledge, knowledge.view([])[0]
        found = knowledge.described(self.__dict__["_seen"][1], self.space.place(x))
        return found.mean, found.sd

    @property
    @by_the_host
    @one_lapack_thread
    def model(self) -> FittedMixture:
        """The process averaged over its parameters, of warped values in the unit cube; of several models the best."""
        knowledge = self._knowledge()
        learned = max(
            (one for one in knowledge.learned if one is not None), key=lambda one: one.draws.evidence.log, default=None
        )
        if learned is None:
            raise ValueError("this model has no parameters that are averaged over here: ask its own fit")
        seen = learned.measured.seen
        options = {"noise": learned.measured.noise[seen], "structure": "dense"}
        at_mode = as_numpy(with_free(learned.gp, learned.draws.center))
        mode = at_mode.condition(learned.measured.X[seen], learned.measured.y[seen], **options)
        return FittedMixture(mode, learned.draws)

    def _whole_space(self) -> Search:
        D = len(self.space)
        return Search(self.space, self.constraints, np.zeros(D), np.ones(D))

    def _box(self, center: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The corners of where to look around the best place."""
        runs = self.history[max(self.initial - 1, 0) :]
        reached = [self._signed(run.value) if self._is_good(run) else math.nan for run in runs]
        return box_around(self.region, center, reached)

    def _by_model(self, n: int, pending: list[np.ndarray]) -> list[Suggestion]:
        knowledge = self._knowledge()
        found, remarks = [], list(knowledge.remarks)
        worth, gain = 0.0, None
        for _ in range(n):
            seed = self._seed(len(pending))
            view, center = knowledge.view(pending)
            search = Search(self.space, self.constraints, *self._box(center))
            taken = np.array([*(self.space.place(run.point) for run in self.history), *pending]).reshape(-1, len(self.space))
            if self.acquisition == "thompson":
                place, worth = self._thompson(view, search, center, taken, seed)
            else:
                place, worth = best_place(view, self.acquisition, search, center, taken, seed)
            if len(taken) and np.min(np.max(np.abs(taken - place), axis=1)) <= SAME:
                remarks.append("every point of the space was measured: one is suggested again")
            believed = knowledge.described(view, place)
            gain = believed.gain if gain is None else gain
            why = f"expected gain {believed.gain:.3g}, sd {believed.sd:.3g}"
            found.append(Suggestion(self.space.point(place), *believed, why))
            pending.append(place)
        self.account = dataclasses.replace(
            self.account,
            capacity=knowledge.capacity,
            evaluations=sum(one.evaluations for one in knowledge.learned if one is not None),
            value=worth,
            expected_gain=gain,
            weights=dict(zip(self.models, map(float, knowledge.weights), strict=True)),
            remarks=tuple(dict.fromkeys(remarks)),
        )
        return found

    def _seed(self, pending: int) -> int:
        return int(np.random.SeedSequence([self.seed, len(self.history), pending]).generate_state(1)[0])

    def _thompson(
        self, view: View, search: Search, center: np.ndarray, taken: np.ndarray, seed: int
    ) -> tuple[np.ndarray, float]:
        rng = np.random.default_rng(seed)
        shares = np.concatenate([np.exp(np.asarray(belief.log_weights)) for belief in view.beliefs])
        number = int(rng.choice(len(shares), p=shares / shares.sum()))
        for belief in view.beliefs:
            if number < len(belief.log_weights):
                break
            number -= len(belief.log_weights)
        place, low = best_of_draw(belief, number, search, center, taken, seed)
        return place, -low

    # what is believed

    def _knowledge(self) -> Knowledge:
        """What was learned from the history; kept until there is more of it."""
        last: Knowledge | None = self.__dict__.get("_kept")
        if last is not None and last.history == len(self.history):
            return last
        early: Early | None = self.__dict__.get("_early")
        if early is not None and (last is None or capacity_of(self.history) > last.capacity):
            early.wait()  # what is needed now is compiled there
        self.__dict__["_kept"] = knowledge = learn_from(self, last)
        self._prepare(knowledge)
        return knowledge

    def compile_early(self) -> None:
        """Compile on another thread what is needed after the first points, by a history as it might be."""
        usual = all(model is None or isinstance(model, GP) for model in self.models.values())
        if self.history or self.outcome_constraints or not usual or (self.evaluations or math.inf) <= self.initial:
            return
        places = self._whole_space().design(max(self.initial, 2), self.seed)
        imagined = copy.copy(self)
        imagined.history = tuple(Evaluation(self.space.point(place), float(i)) for i, place in enumerate(places))
        self.__dict__["_early"] = Early(imagined.suggest)

    def _prepare(self, knowledge: Knowledge) -> None:
        """Compile the programs of the next capacity on another thread, when this one will soon be full."""
        capacity, most = knowledge.capacity, self.evaluations or math.inf
        full, what = len(self.history) >= AHEAD * capacity, (capacity, knowledge.failures is None)
        if not full or capacity == CAPACITIES[-1] or self.__dict__.get("_ready") == what or most <= capacity:
            return
        self.__dict__["_ready"] = what
        self.__dict__["_early"] = Early(lambda: knowledge.rehearse(2 * capacity))

    def __repr__(self) -> str:
        best = self.best
        said = "nothing measured yet" if best is None else f"best {best.value:g}"
        return f"Optimiser({self.space}; {len(self.history)} runs, {len(self.pending)} pending, {said})"

    def __getstate__(self) -> dict[str, Any]:
        """For pickle: what is kept follows from the history."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}


def _limits(name: str, pair: Any) -> tuple[float, float]:
    try:
        low, high = pair
        low, high = (-math.inf if low is None else float(low)), (math.inf if high is None else float(high))
    except (TypeError, ValueError):
        raise ValueError(
            f"outcome_constraints: {name} needs a lower and an upper limit, (None, 5) for none below, got {pair!r}"
        ) from None
    if not low < high or (math.isinf(low) and math.isinf(high)):
        raise ValueError(f"outcome_constraints: {name} needs a lower limit below the upper one, and one of them, got {pair!r}")
    return low, high


def _finite(value: Any, what: str, otherwise: str) -> float:
    try:
        found = np.asarray(unmasked(value)).reshape(())
        number = math.nan if found.dtype.kind in "mMc" else float(found)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        shown = str(value) if isinstance(value, np.ndarray) else repr(value)
        got = "a masked value" if isinstance(value, np.ma.MaskedArray) else " ".join(shown.split())[:60]
        raise ValueError(f"{what} must be a finite number, got {got}: say {otherwise}")
    return number
