"""Optimisation of what is expensive to measure: an optimiser that is asked where to look next, and told what was seen."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from .._types import double_precision, whole
from ..background import Early
from ..inputs.layouts import Grid
from ..kernels.stationary import Matern52
from ..learn.peak import normalised
from ..likelihoods.labels import Bernoulli
from ..parameters.priors import LogNormal
from ..parameters.tree import as_numpy, with_free
from ..parameters.tree import learned as with_note
from ..posterior import Result
from ..process.gp import GP
from ..process.mixture import FittedMixture
from . import acquire
from .acquire import Belief, Failure, Outcome, View
from .cells import over_cells
from .rules import Region, Rule, box_around
from .search import CLIMBERS, LOCAL, SAME, SPREAD, Search, best_of_draw, best_place
from .space import Limit, Space, as_limit, as_space
from .surrogate import CAPACITIES, Learned, Measured, belief_of, capacity_for, learn, prior
from .warp import ValueWarp, fit_warp

MEMBERS = 8  # of the average over parameters
MOST_INITIAL = 20  # points of the first design
OFTEN = 40  # rows up to which parameters are learned anew for each question; beyond, for every fourth
LEARNED = 224  # rows that parameters are learned from at most
AHEAD = 0.75  # of a capacity that is full when the next one is prepared
NODES = 24  # of averages in the user's units


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
    expected_gain: float | None = None  # over the best so far
    probability: float | None = None  # that it is better than the best so far
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
    - `parameters`: "average" over those of the model, or the "best";
    - `initial`: points that fill the space before anything is learned, by default 2D + 1 and at most 20.

    Points that were asked for and not told are pending: they are not asked for again. The same history and `seed` give the same
    answers.
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
        if parameters not in ("average", "best"):
            raise ValueError(f"parameters must be 'average' or 'best', got {parameters!r}")
        self.members = MEMBERS if parameters == "average" else 1
        D = len(self.space)
        self.initial = min(2 * D + 1, MOST_INITIAL) if initial is None else whole(initial, "initial", 1)
        self.seed = whole(seed, "seed")
        self.history, self.pending = (), ()
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
    def account(self) -> Account:
        """How the last question was answered."""
        return self.__dict__.get("_account", Account())

    @property
    def expected_gain(self) -> float | None:
        """What the last suggestion is expected to gain over the best so far."""
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

    @double_precision
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
        self.__dict__["_account"] = dataclasses.replace(self.account, rows=len(self.history), seconds=elapsed)
        return found

    @double_precision
    def predict(self, x: Any) -> tuple[float, float]:
        """Mean and standard deviation of a measurement without noise, in its units."""
        state = self._state()
        means, sds = self._moments(state, self.space.seen(self.space.place(x)[None]))
        values = self._in_units(state, means[:, 0], sds[:, 0])
        mean = float(np.sum(values[0] * values[1]))
        return mean, float(np.sqrt(max(np.sum(values[0] * (values[1] - mean) ** 2), 0.0)))

    @property
    @double_precision
    def model(self) -> FittedMixture:
        """The process averaged over its parameters, of warped values in the unit cube; of several models the best."""
        state = self._state()
        learned = max((one for one in state.learned if one is not None), key=lambda one: one.draws.evidence.log, default=None)
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

    def _by_model(self, n: int, pending: list[np.ndarray]) -> list[Suggestion]:
        state = self._state()
        found, remarks = [], list(state.remarks)
        worth, gain = 0.0, None
        for _ in range(n):
            seed = self._seed(len(pending))
            view, center = self._view(state, pending)
            reached = [math.nan if run.failed else self._signed(run.value) for run in self.history[max(self.initial - 1, 0) :]]
            search = Search(self.space, self.constraints, *box_around(self.region, center, reached))
            taken = np.array([*(self.space.place(run.point) for run in self.history), *pending]).reshape(-1, len(self.space))
            if self.acquisition == "thompson":
                place, worth = self._thompson(view, search, center, taken, seed)
            else:
                place, worth = best_place(view, self.acquisition, search, center, taken, seed)
            if len(taken) and np.min(np.max(np.abs(taken - place), axis=1)) <= SAME:
                remarks.append("every point of the space was measured: one is suggested again")
            suggestion = self._described(state, view, place)
            gain = suggestion.expected_gain if gain is None else gain
            found.append(suggestion)
            pending.append(place)
        self.__dict__["_account"] = dataclasses.replace(
            self.account,
            capacity=state.capacity,
            evaluations=sum(one.evaluations for one in state.learned if one is not None),
            value=worth,
            expected_gain=gain,
            weights=dict(zip(self.models, map(float, state.weights), strict=True)),
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

    def _state(self) -> _State:
        """What was learned from the history; kept until there is more of it."""
        last: _State | None = self.__dict__.get("_kept")
        if last is not None and last.history == len(self.history):
            return last
        state = self._learn(last)
        self.__dict__["_kept"] = state
        self._prepare(state)
        return state

    def _learn(self, last: _State | None) -> _State:
        done = [run for run in self.history if not run.failed]
        if len(done) < 2:
            raise ValueError(
                f"two measurements are needed before anything is believed, and there are {len(done)}: ask and tell first"
            )
        y = np.array([self._signed(run.value) for run in done])
        good = np.array([self._is_good(run) for run in done])
        warp = fit_warp(y, self.warp)
        kept, remarks = _kept_rows(warp(y), self.seed)
        if not kept.all():
            done, y, good = [run for run, keep in zip(done, kept, strict=True) if keep], y[kept], good[kept]
        X = self.space.seen(np.array([self.space.place(run.point) for run in done]))
        capacity = capacity_for(len(y) + 1)
        noise = np.full(len(y), self.noise or 0.0) * warp.slope(y) ** 2
        measured = Measured.filled(X, warp(y), noise, capacity)
        some = _some_rows(warp(y), LEARNED, self.seed)
        shown = measured if some.all() else Measured.filled(X[some], warp(y)[some], noise[some], capacity_for(LEARNED + 1))
        since = len(self.history) - (last.climbed if last else 0)
        climbs = last is None or len(y) <= OFTEN or since >= 4
        seed = self._seed(0)
        learned: list[Learned | None] = []
        fitted: list[Any] = []
        for number, model in enumerate(self.models.values()):
            if model is not None and not isinstance(model, GP):
                fitted.append(model.fit(X, warp(y)))
                learned.append(None)
                continue
            gp = prior(None, self.space.columns, self.noise) if model is None else model
            before = None if last is None or last.learned[number] is None else last.learned[number].draws.center  # type: ignore[union-attr]
            learned.append(dataclasses.replace(learn(gp, shown, before, self.members, seed, climbs), measured=measured))
            fitted.append(None)
        logs = np.array(
            [
                one.draws.evidence.log if one is not None else float(other.log_evidence)
                for one, other in zip(learned, fitted, strict=True)
            ]
        )
        weights = normalised(logs)[1] if len(logs) > 1 else np.ones(1)
        outcomes = {}
        for number, name in enumerate(self.outcome_constraints):
            values = np.array([run.outcomes[name] for run in done])
            scale = fit_warp(values, False)
            rows = Measured.filled(X, scale(values), np.zeros(len(y)), capacity)
            before = last.outcomes[name][1].draws.center if last is not None and name in last.outcomes else None
            outcomes[name] = (
                scale,
                learn(prior(None, self.space.columns, None), rows, before, self.members, seed + number + 1, climbs),
                rows,
            )
        climbed = len(self.history) if climbs else last.climbed  # type: ignore[union-attr]
        return _State(
            len(self.history),
            climbed,
            capacity,
            warp,
            X,
            measured,
            good,
            tuple(learned),
            tuple(fitted),
            weights,
            outcomes,
            self._failures(),
            tuple(remarks),
        )

    def _failures(self) -> Any:
        """The process behind runs that went well or failed, None where none failed."""
        labels = np.array([not run.failed for run in self.history])
        if labels.all():
            return None
        X = self.space.seen(np.array([self.space.place(run.point) for run in self.history]))
        rows = _some(labels, 512, self.seed)
        kernel = Matern52(
            with_note(0.5 * math.sqrt(len(self.space)), LogNormal(math.log(0.5) + 0.5 * math.log(len(self.space)), 0.7)),
            with_note(4.0, LogNormal(math.log(4.0), 0.7)),
        )
        gp = GP(kernel, Bernoulli())
        return gp.fit(
            X[rows], labels[rows].astype(float), parameters="best", restarts=0, progress=False, structure="dense"
        ).posterior

    def _view(self, state: _State, pending: list[np.ndarray]) -> tuple[View, np.ndarray]:
        """What decides where to look next, given what is pending, and the best place so far."""
        waiting = self.space.seen(np.array(pending)) if pending else np.zeros((0, self.space.columns))
        good = np.zeros(state.capacity, bool)
        good[: len(state.good)] = state.good
        beliefs, at_rows = [], []
        for learned, fitted, weight in zip(state.learned, state.fitted, state.weights, strict=True):
            if learned is not None:
                measured, is_pending = _with_pending(learned.measured, waiting)
                belief, rows = belief_of(
                    learned, measured, is_pending, _sized(good, len(measured.y)), math.log(max(weight, 1e-300))
                )
            else:
                belief, rows = _belief_of_fitted(fitted, state, _sized(good, state.capacity), math.log(max(weight, 1e-300)))
            shares = np.exp(np.asarray(belief.log_weights))
            beliefs.append(belief)
            at_rows.append(shares @ np.where(np.isfinite(rows), rows, 0.0)[:, : len(state.good)])
        found = state.good if state.good.any() else np.ones(len(state.good), bool)
        center = int(np.argmin(np.where(found, np.sum(at_rows, axis=0), np.inf)))
        outcomes = []
        for name, (scale, of_outcome, told) in state.outcomes.items():
            measured, is_pending = _with_pending(told, waiting)
            belief = belief_of(of_outcome, measured, is_pending, _sized(good, len(measured.y)))[0]
            ends = (float(scale(bound)) if math.isfinite(bound) else bound for bound in self.outcome_constraints[name])
            outcomes.append(Outcome(belief, *(jnp.asarray(end) for end in ends)))
        failures = () if state.failures is None else (Failure(state.failures),)
        count = max(len(self.history), 1)
        bonus = math.sqrt(0.2 * 2 * math.log(count**2 * math.pi**2 / 0.6))
        view = View(tuple(beliefs), tuple(outcomes), failures, jnp.asarray(bool(state.good.any())), jnp.asarray(bonus))
        return view, self.space.unseen(state.X[center][None])[0]

    def _moments(self, state: _State, rows: np.ndarray, view: View | None = None) -> tuple[np.ndarray, np.ndarray]:
        view = self._view(state, [])[0] if view is None else view
        parts = [acquire.moments(belief, np.repeat(rows, CLIMBERS, axis=0)) for belief in view.beliefs]
        state.__dict__["shares"] = np.concatenate([np.exp(np.asarray(belief.log_weights)) for belief in view.beliefs])
        means, sds = (np.concatenate([np.asarray(part[i]) for part in parts]) for i in (0, 1))
        return means[:, :1], sds[:, :1]

    def _in_units(self, state: _State, means: np.ndarray, sds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Weights and values of a mixture of normals on the other side of the warp."""
        nodes, mass = np.polynomial.hermite_e.hermegauss(NODES)
        values = self._unwarped(state, means[:, None] + sds[:, None] * nodes)
        weights = state.__dict__["shares"][:, None] * mass / mass.sum()
        return weights / weights.sum(), self._signed(values)

    def _unwarped(self, state: _State, z: np.ndarray) -> np.ndarray:
        y = np.array([self._signed(run.value) for run in self.history if not run.failed])
        wide = 10 * (np.ptp(y) or 1.0)  # a bound of the warp is not one of the measurements
        return np.clip(state.warp.inverse(z), y.min() - wide, y.max() + wide)

    def _described(self, state: _State, view: View, place: np.ndarray) -> Suggestion:
        rows = self.space.seen(place[None])
        means, sds = self._moments(state, rows, view)
        weights, values = self._in_units(state, means[:, 0], sds[:, 0])
        mean = float(np.sum(weights * values))
        sd = float(np.sqrt(max(np.sum(weights * (values - mean) ** 2), 0.0)))
        from scipy.special import ndtr

        shares = state.__dict__["shares"] / state.__dict__["shares"].sum()
        best = np.concatenate([np.asarray(belief.best) for belief in view.beliefs])
        chance = float(shares @ ndtr((best - means[:, 0]) / sds[:, 0]))
        bests = self._signed(self._unwarped(state, best))[:, None]
        gain = float(np.sum(weights * np.maximum(0.0, self._signed(bests) - self._signed(values))))
        feasible = (
            float(np.exp(np.asarray(acquire.log_feasible(view, np.repeat(rows, CLIMBERS, axis=0)))[0]))
            if view.limited
            else None
        )
        if feasible is not None:
            gain, chance = gain * feasible, chance * feasible
        why = f"expected gain {gain:.3g}, sd {sd:.3g}"
        return Suggestion(self.space.point(place), mean, sd, gain, chance, feasible, why)

    def _prepare(self, state: _State) -> None:
        """Compile the programs of the next capacity on another thread, when this one will soon be full."""
        rows = int(np.sum(state.measured.seen))
        if (
            rows < AHEAD * state.capacity
            or state.capacity == CAPACITIES[-1]
            or self.__dict__.get("_ready", 0) >= state.capacity
        ):
            return
        self.__dict__["_ready"] = state.capacity
        if self.__dict__.get("_most", math.inf) <= state.capacity:
            return
        larger = CAPACITIES[CAPACITIES.index(state.capacity) + 1]
        self.__dict__["_early"] = Early(lambda: self._rehearse(state, larger))

    def _rehearse(self, state: _State, capacity: int) -> None:
        seen = state.measured.seen
        measured = Measured.filled(state.measured.X[seen], state.measured.y[seen], state.measured.noise[seen], capacity)
        for learned in state.learned:
            if learned is not None:
                learn(learned.gp, measured, learned.draws.center, self.members, 0, climbs=False)
        again = dataclasses.replace(
            state,
            capacity=capacity,
            learned=tuple(None if one is None else dataclasses.replace(one, measured=measured) for one in state.learned),
            outcomes={
                name: (scale, one, Measured.filled(rows.X[rows.seen], rows.y[rows.seen], rows.noise[rows.seen], capacity))
                for name, (scale, one, rows) in state.outcomes.items()
            },
        )
        view, _ = self._view(again, [])
        rows = np.repeat(state.X[:1], SPREAD + LOCAL, axis=0)
        if self.acquisition != "thompson":
            acquire.values(view, rows, self.acquisition)
            acquire.values_and_slopes(view, rows[:CLIMBERS], self.acquisition)
        acquire.moments(view.beliefs[0], rows[:CLIMBERS])

    def __repr__(self) -> str:
        best = self.best
        said = "nothing measured yet" if best is None else f"best {best.value:g}"
        return f"Optimiser({self.space}; {len(self.history)} runs, {len(self.pending)} pending, {said})"

    def __getstate__(self) -> dict[str, Any]:
        """For pickle: what is kept follows from the history."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}


@dataclasses.dataclass
class _State:
    """What was learned from a history."""

    history: int  # how long it was
    climbed: int  # how long it was when parameters were last learned anew
    capacity: int
    warp: ValueWarp
    X: Float[np.ndarray, "N C"]
    measured: Measured
    good: np.ndarray
    learned: tuple[Learned | None, ...]
    fitted: tuple[Any, ...]
    weights: np.ndarray
    outcomes: dict[str, tuple[ValueWarp, Learned, Measured]]
    failures: Any
    remarks: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Optimum:
    """What an optimisation has found: the best point and its value, all runs, and how it ended."""

    x: Any
    value: float
    history: tuple[Evaluation, ...]
    account: Account
    optimiser: Optimiser = dataclasses.field(repr=False)


def minimise(
    f: Callable[[Any], Any],
    space: Any,
    evaluations: int = 60,
    *,
    stop: Sequence[Rule] | Rule = (),
    callback: Callable[[Optimiser], None] | None = None,
    **options: Any,
) -> Optimum:
    """The least value of a function that is expensive to evaluate, after so many evaluations or when a rule says `stop`.

    f takes a point as `Optimiser.ask` gives it, and returns a number, or a number and a dictionary of outcomes with limits.
    A run that breaks (an ArithmeticError, a ValueError, or NaN) is a failed one, and is learned from. `options` are those of
    `Optimiser`.
    """
    if options.pop("maximise", False):
        raise ValueError("minimise looks for small values: call maximise for large ones")
    if isinstance(space, Grid):
        return _on_grid(f, space, evaluations, False, **options)
    return _run(f, Optimiser(space, **options), evaluations, stop, callback)


def maximise(
    f: Callable[[Any], Any],
    space: Any,
    evaluations: int = 60,
    *,
    stop: Sequence[Rule] | Rule = (),
    callback: Callable[[Optimiser], None] | None = None,
    **options: Any,
) -> Optimum:
    """The largest value of a function that is expensive to evaluate; otherwise as `minimise`."""
    options.pop("maximise", None)
    if isinstance(space, Grid):
        return _on_grid(f, space, evaluations, True, **options)
    return _run(f, Optimiser(space, maximise=True, **options), evaluations, stop, callback)


def _run(f: Any, opt: Optimiser, evaluations: int, stop: Any, callback: Any) -> Optimum:
    rules = list(stop) if isinstance(stop, Sequence) else [stop]
    evaluations, reason = whole(evaluations, "evaluations", 1), ""
    opt.__dict__["_most"] = evaluations
    for _ in range(evaluations):
        x = opt.ask()
        try:
            answer = f(x)
            value, outcomes = answer if isinstance(answer, tuple) else (answer, {})
            value = float(np.asarray(value).reshape(()))
        except (ArithmeticError, ValueError):
            value, outcomes = math.nan, {}
        if math.isfinite(value):
            opt.tell(x, value, **outcomes)
        else:
            opt.tell(x, failed=True)
        if callback is not None:
            callback(opt)
        reasons = (rule.reason(opt) for rule in rules)
        reason = next((said for said in reasons if said), "")
        if reason:
            break
    account = dataclasses.replace(opt.account, stopped=reason or f"{evaluations} evaluations were made")
    opt.__dict__["_account"] = account
    best = opt.best
    if best is None or best.value is None:
        failed = sum(run.failed for run in opt.history)
        raise ValueError(
            f"none of {len(opt.history)} runs gave a value that meets the limits ({failed} failed): check the function at one "
            "point, or loosen the limits"
        )
    return Optimum(best.point, best.value, opt.history, account, opt)


def _on_grid(
    f: Any, grid: Grid, evaluations: int, maximise: bool, acquisition: str = "ucb", model: Any = None, seed: int = 0
) -> Optimum:
    """The same over the cells of a grid, each of which is measured once at most."""
    sign = -1.0 if maximise else 1.0
    seen = over_cells(
        lambda x: sign * float(f(x)), grid, whole(evaluations, "evaluations", 1), acquisition, model, whole(seed, "seed")
    )
    opt = Optimiser([(float(axis[0]), float(axis[-1])) for axis in grid.axes if len(axis) > 1], maximise=maximise, seed=seed)
    runs = tuple(Evaluation(x, sign * y if math.isfinite(y) else None) for x, y in seen)
    done = [run for run in runs if not run.failed]
    if not done:
        raise ValueError(f"none of {len(runs)} runs gave a value: check the function at one cell")
    best = min(done, key=lambda run: sign * float(run.value))  # type: ignore[arg-type]
    account = Account(rows=len(runs), stopped=f"{len(runs)} evaluations were made")
    return Optimum(best.point, float(best.value), runs, account, opt)  # type: ignore[arg-type]


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
        number = float(np.asarray(value).reshape(()))
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise ValueError(f"{what} must be a finite number, got {value!r}: say {otherwise}")
    return number


def _kept_rows(z: np.ndarray, seed: int) -> tuple[np.ndarray, list[str]]:
    """Of very many rows the better ones, and some of the others."""
    most = CAPACITIES[-1] - 32
    kept = _some_rows(z, most, seed)
    half = most // 2
    return kept, [] if kept.all() else [f"of {len(z)} rows the best {half} and {most - half} of the others are looked at"]


def _some_rows(z: np.ndarray, most: int, seed: int) -> np.ndarray:
    """Which rows are the better ones, up to half of so many, or some of the others."""
    if len(z) <= most:
        return np.ones(len(z), bool)
    order, kept = np.argsort(z, kind="stable"), np.zeros(len(z), bool)
    rest = np.random.default_rng([seed, 4]).permutation(order[most // 2 :])[: most - most // 2]
    kept[order[: most // 2]] = kept[rest] = True
    return kept


def _some(labels: np.ndarray, most: int, seed: int) -> np.ndarray:
    """Rows of both kinds, as many of each as there is room for."""
    if len(labels) <= most:
        return np.arange(len(labels))
    rng = np.random.default_rng([seed, 5])
    parts = [rng.permutation(np.flatnonzero(labels == kind)) for kind in (False, True)]
    half = max(most // 2, most - len(parts[0]), most - len(parts[1]))
    return np.sort(np.concatenate([part[:half] for part in parts])[:most])


def _with_pending(measured: Measured, waiting: np.ndarray) -> tuple[Measured, np.ndarray]:
    """Rows with pending ones after those that were seen, and which these are."""
    count, more = int(np.sum(measured.seen)), len(waiting)
    pending = np.zeros(len(measured.y), bool)
    if not more:
        return measured, pending
    capacity = max(len(measured.y), capacity_for(count + more))
    waiting = waiting[: capacity - count]
    X = np.concatenate([measured.X[:count], waiting])
    grown = Measured.filled(
        X,
        np.concatenate([measured.y[:count], np.zeros(len(waiting))]),
        np.concatenate([measured.noise[:count], np.zeros(len(waiting))]),
        capacity,
    )
    pending = np.zeros(capacity, bool)
    pending[count : count + len(waiting)] = True
    return grown, pending


def _sized(flags: np.ndarray, size: int) -> np.ndarray:
    return np.concatenate([flags, np.zeros(size - len(flags), bool)])


def _belief_of_fitted(fitted: Any, state: _State, good: np.ndarray, log_weight: float) -> tuple[Belief, np.ndarray]:
    """The belief of a model that was fitted in its own way: its members with `marginals`, stacked."""
    import jax

    members = [getattr(member, "posterior", member) for member in getattr(fitted, "members", [fitted])]
    stacked = jax.tree.map(lambda *parts: jnp.stack([jnp.asarray(part) for part in parts]), *members)
    weights = np.asarray(getattr(fitted, "weights", np.ones(len(members)) / len(members)))
    weights = weights if np.shape(weights) == (len(members),) else np.ones(len(members)) / len(members)
    blank = Belief(stacked, jnp.asarray(log_weight + np.log(weights)), jnp.zeros(len(members)), jnp.ones(len(members)))
    rows = np.asarray(acquire.moments(blank, state.measured.X)[0])
    found = state.measured.seen & good if (state.measured.seen & good).any() else state.measured.seen
    best = np.min(np.where(found, rows, np.inf), axis=1)
    return Belief(blank.members, blank.log_weights, jnp.asarray(best), blank.scale), rows
