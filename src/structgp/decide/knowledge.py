"""All that an optimiser has learned from a history of runs, and what it believes of a place."""

from __future__ import annotations

import copy
import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ..background import Early
from ..kernels.stationary import Matern52
from ..learn.peak import normalised
from ..likelihoods.labels import Bernoulli
from ..linalg.dense.cholesky import one_lapack_thread
from ..parameters.priors import LogNormal
from ..parameters.tree import learned as with_note
from ..process.gp import GP
from . import acquire
from .acquire import Belief, Failure, Outcome, View
from .search import CLIMBERS, LOCAL, SPREAD
from .surrogate import CAPACITIES, LEARNED, OFTEN, Learned, Measured, belief_of, capacity_for, learn, prior, unlearned
from .warp import ValueWarp, fit_warp

if TYPE_CHECKING:
    from .optimise import Optimiser

MOST = CAPACITIES[-1] - 32  # rows that are looked at, and runs that failures are learned from
EVERY = 4  # runs after which parameters are learned anew where there are many
NODES = 24  # of averages in the user's units


class Described(NamedTuple):
    """What is believed of a place, in the units of the measurements."""

    mean: float
    sd: float
    gain: float  # that is expected over the best that is believed of any run
    chance: float  # of being better
    feasible: float | None  # probability that limits are met, where there are some


class Modes(NamedTuple):
    """Where climbs ended: of each model, and of each outcome with limits."""

    climbed: int  # how long the history was that parameters were learned from
    models: tuple[Float[np.ndarray, " P"] | None, ...]
    outcomes: dict[str, Float[np.ndarray, " P"]]


class Rows(NamedTuple):
    """What models see of a history."""

    done: list[Any]  # runs that gave a value, those that are looked at
    good: np.ndarray  # which of them meet all limits
    warp: ValueWarp
    X: Float[np.ndarray, "N C"]
    measured: Measured
    few: Callable[[Measured], Measured]  # of filled rows those that parameters are learned from
    remarks: list[str]

    @classmethod
    def of(cls, optimiser: Optimiser) -> Rows:
        """All that follows from the history before anything is learned."""
        space, seed, history = optimiser.space, optimiser.seed, optimiser.history
        done = [run for run in history if not run.failed]
        y = np.array([optimiser._signed(run.value) for run in done])
        good = np.array([optimiser._is_good(run) for run in done], bool)
        warp = fit_warp(y, optimiser.warp)
        kept, remarks = kept_rows(warp(y), seed)
        done, y, good = [run for run, keep in zip(done, kept, strict=True) if keep], y[kept], good[kept]
        X = space.seen(np.array([space.place(run.point) for run in done]))
        capacity = capacity_of(history)
        noise = np.full(len(y), optimiser.noise or 0.0) * warp.slope(y) ** 2
        some, room = some_rows(warp(y), LEARNED, seed), min(capacity, capacity_for(LEARNED + 1))
        few = lambda measured: measured.resized(room, some)
        return cls(done, good, warp, X, Measured.filled(X, warp(y), noise, capacity), few, remarks)

    def of_outcome(self, name: str) -> tuple[ValueWarp, Measured]:
        """The same rows of what was measured besides, on a scale of its own."""
        values = np.array([run.outcomes[name] for run in self.done])
        scale = fit_warp(values, False)
        return scale, Measured.filled(self.X, scale(values), np.zeros(len(values)), len(self.measured.y))


@dataclasses.dataclass(frozen=True)
class Knowledge:
    """What was learned from a history."""

    optimiser: Optimiser
    history: int  # how long it was
    climbed: int  # how long it was when parameters were last learned anew
    capacity: int
    warp: ValueWarp
    X: Float[np.ndarray, "N C"]
    measured: Measured
    good: np.ndarray
    learned: tuple[Learned | None, ...]  # of each model
    fitted: tuple[Any, ...]  # of models that are fitted in their own way
    weights: np.ndarray
    outcomes: dict[str, tuple[ValueWarp, Learned, Measured]]
    failures: Any
    remarks: tuple[str, ...]

    @property
    def modes(self) -> Modes:
        """What learning goes on from."""
        centers = tuple(None if one is None else np.asarray(one.draws.center) for one in self.learned)
        of_outcomes = {name: np.asarray(one.draws.center) for name, (_, one, _) in self.outcomes.items()}
        return Modes(self.climbed, centers, of_outcomes)

    def view(self, pending: list[np.ndarray]) -> tuple[View, np.ndarray]:
        """What decides where to look next, given what is pending, and the best place so far."""
        space = self.optimiser.space
        waiting = space.seen(np.array(pending)) if pending else np.zeros((0, space.columns))
        beliefs, at_rows = [], []
        models = self.optimiser.models.values()
        for learned, fitted, weight, model in zip(self.learned, self.fitted, self.weights, models, strict=True):
            log_weight = math.log(max(weight, 1e-300))
            if learned is not None:
                measured, is_pending = _with_pending(self.measured, waiting)
                belief, rows = belief_of(learned, measured, is_pending, _sized(self.good, len(measured.y)), log_weight)
            else:
                belief, rows = self._of_fitted(fitted, log_weight, model, waiting)
            shares = np.exp(np.asarray(belief.log_weights))
            beliefs.append(belief)
            at_rows.append(shares @ np.where(np.isfinite(rows), rows, 0.0)[:, : len(self.good)])
        found = self.good if self.good.any() else np.ones(len(self.good), bool)
        center = int(np.argmin(np.where(found, np.sum(at_rows, axis=0), np.inf)))
        outcomes = []
        for name, (scale, of_outcome, told) in self.outcomes.items():
            measured, is_pending = _with_pending(told, waiting)
            belief = belief_of(of_outcome, measured, is_pending, _sized(self.good, len(measured.y)))[0]
            limits = self.optimiser.outcome_constraints[name]
            outcomes.append(Outcome(belief, *(jnp.asarray(float(scale(b)) if math.isfinite(b) else b) for b in limits)))
        failures = () if self.failures is None else (Failure(self.failures),)
        bonus = math.sqrt(0.2 * 2 * math.log(max(self.history, 1) ** 2 * math.pi**2 / 0.6))
        any_good, bonus = jax.device_put((self.good.any(), np.float64(bonus)))  # jnp.asarray would compile
        view = View(tuple(beliefs), tuple(outcomes), failures, any_good, bonus, self.capacity)
        return view, space.unseen(self.X[center][None])[0]

    def described(self, view: View, place: np.ndarray) -> Described:
        """What is believed of a place."""
        from scipy.special import ndtr

        rows = np.repeat(self.optimiser.space.seen(place[None]), CLIMBERS, axis=0)
        aside = acquire.values_and_slopes(view, rows, self.rule)[2]
        m, s = np.asarray(aside.mean)[:, 0], np.asarray(aside.sd)[:, 0]
        shares = np.concatenate([np.exp(np.asarray(belief.log_weights)) for belief in view.beliefs])
        shares = shares / shares.sum()
        nodes, mass = np.polynomial.hermite_e.hermegauss(NODES)
        values, weights = self.unwarped(m[:, None] + s[:, None] * nodes), shares[:, None] * mass / mass.sum()
        mean = float(np.sum(weights * values))
        sd = float(np.sqrt(max(np.sum(weights * (values - mean) ** 2), 0.0)))
        best = np.concatenate([np.asarray(belief.best) for belief in view.beliefs])
        gain = float(np.sum(weights * np.maximum(self.unwarped(best)[:, None] - values, 0.0)))
        chance = float(shares @ ndtr((best - m) / s))
        feasible = float(np.exp(np.asarray(aside.log_feasible)[0])) if view.limited else None
        share = 1.0 if feasible is None else feasible
        return Described(self.optimiser._signed(mean), sd, gain * share, chance * share, feasible)

    def unwarped(self, z: np.ndarray) -> np.ndarray:
        """Values in the units of the measurements, small ones good; a bound of the warp is not one of the measurements."""
        y = self.warp.inverse(self.measured.y[self.measured.seen])
        wide = 10 * (np.ptp(y) or 1.0)
        return np.clip(self.warp.inverse(z), y.min() - wide, y.max() + wide)

    @property
    def rule(self) -> str:
        """The acquisition whose programs are there: a draw needs none."""
        return "ei" if self.optimiser.acquisition == "thompson" else self.optimiser.acquisition

    @one_lapack_thread
    def rehearse(self, capacity: int) -> None:
        """Run all programs with room for so many rows, so that they are compiled."""
        measured = self.measured.resized(capacity)
        outcomes = {name: (scale, one, rows.resized(capacity)) for name, (scale, one, rows) in self.outcomes.items()}
        pairs = [(one, measured) for one in self.learned if one is not None]
        pairs += [(one, rows) for _, one, rows in outcomes.values()]
        if capacity <= capacity_for(LEARNED + 1):  # parameters are learned from no more
            for one, rows in pairs:
                learn(one.gp, rows, one.draws.center, self.optimiser.members, 0, climbs=False)
        failures = None if self.failures is None else _failures(self.optimiser, capacity)
        dataclasses.replace(self, capacity=capacity, measured=measured, outcomes=outcomes, failures=failures).look()

    def look(self) -> None:
        """Run the programs that look for a place, so that they are compiled."""
        view, _ = self.view([])
        rows = np.repeat(self.X[:1], SPREAD + LOCAL, axis=0)
        acquire.values(view, rows, self.rule)
        acquire.values_and_slopes(view, rows[:CLIMBERS], self.rule)

    def _of_fitted(self, fitted: Any, log_weight: float, model: Any, waiting: np.ndarray) -> tuple[Belief, np.ndarray]:
        """The belief of a model that was fitted in its own way, again where rows are pending: believed at its mean."""
        stacked, count = _stacked(fitted)
        logs = jnp.full(count, log_weight - math.log(count))
        blank = Belief(stacked, logs, jnp.zeros(count), jnp.ones(count))
        rows = np.asarray(acquire.moments(blank, self.measured.X)[0])
        seen = self.measured.seen
        good = seen & _sized(self.good, len(seen))
        best = np.min(np.where(good if good.any() else seen, rows, np.inf), axis=1)
        if len(waiting):
            believed = np.asarray(acquire.moments(blank, waiting)[0]).mean(axis=0)
            X, y = (
                np.concatenate([ours[seen], new]) for ours, new in ((self.measured.X, waiting), (self.measured.y, believed))
            )
            stacked, _ = _stacked(model.fit(X, y))
        return Belief(stacked, logs, jnp.asarray(best), blank.scale), rows


def _stacked(fitted: Any) -> tuple[Any, int]:
    """Members with `marginals` along one more axis, and how many they are."""
    members = [getattr(member, "posterior", member) for member in getattr(fitted, "members", [fitted])]
    return jax.tree.map(lambda *parts: jnp.stack([jnp.asarray(part) for part in parts]), *members), len(members)


def learn_from(optimiser: Optimiser, last: Knowledge | None) -> Knowledge:
    """What the history of an optimiser tells, whatever was asked before; `last` is what was known then.

    Parameters are learned from all runs up to `OFTEN`, and beyond from the first ones, a multiple of `EVERY`. No climb begins
    where another ended: answers would depend on how often was asked.
    """
    space, history = optimiser.space, optimiser.history
    count = sum(not run.failed for run in history)
    if count < 2:
        raise ValueError(f"two measurements are needed before anything is believed, and there are {count}: ask and tell first")
    rows, modes = Rows.of(optimiser), _modes(optimiser, last)
    climbed, seed, members = len(history) if modes is None else modes.climbed, optimiser._seed(0), optimiser.members
    head = optimiser, len(history), climbed, capacity_of(history)
    knowing = functools.partial(Knowledge, *head, rows.warp, rows.X, rows.measured, rows.good)
    learned: list[Learned | None] = []
    fitted: list[Any] = []
    logs = []
    early = _looking(knowing, optimiser, rows.measured) if last is None else None
    for number, model in enumerate(optimiser.models.values()):
        if model is not None and not isinstance(model, GP):
            fitted.append(model.fit(rows.X, rows.measured.y[rows.measured.seen]))
            learned.append(None)
            evidence = getattr(fitted[-1], "log_evidence", None)
            if evidence is None and len(optimiser.models) > 1:
                raise ValueError(
                    f"{type(model).__name__} has no evidence, so it cannot be weighed against other models: give it alone, "
                    "as model="
                )
            logs.append(0.0 if evidence is None else float(evidence))
            continue
        gp = prior(None, space.columns, optimiser.noise) if model is None else model
        mode = None if modes is None else modes.models[number]
        one = learn(gp, rows.few(rows.measured), mode, members, seed, mode is None, optimiser.method)
        learned.append(dataclasses.replace(one, measured=rows.measured))
        fitted.append(None)
        logs.append(one.draws.evidence.log)
    weights = normalised(np.array(logs))[1] if len(logs) > 1 else np.ones(1)
    outcomes = {}
    for number, name in enumerate(optimiser.outcome_constraints):
        scale, measured = rows.of_outcome(name)
        mode = None if modes is None else modes.outcomes[name]
        one = learn(prior(None, space.columns, None), rows.few(measured), mode, members, seed + number + 1, mode is None)
        outcomes[name] = scale, one, measured
    if early is not None:
        early.wait()
    failures = _failures(optimiser, capacity_of(history))
    return knowing(tuple(learned), tuple(fitted), weights, outcomes, failures, tuple(rows.remarks))


def _modes(optimiser: Optimiser, last: Knowledge | None) -> Modes | None:
    """Where climbs of the first runs ended, where there are many; None where parameters are learned from all of them."""
    history, some = optimiser.history, any(model is None or isinstance(model, GP) for model in optimiser.models.values())
    climbed = len(history) - len(history) % EVERY
    few = len(history) <= OFTEN or sum(not run.failed for run in history[:climbed]) < 2
    if few or climbed == len(history) or not some:
        return None
    if last is not None and last.climbed == climbed:
        return last.modes
    first = copy.copy(optimiser)
    first.history = history[:climbed]
    return learn_from(first, last).modes


def _looking(knowing: Callable[..., Knowledge], optimiser: Optimiser, measured: Measured) -> Early | None:
    """In a fresh process the programs that look for a place compile beside those that learn, where nothing else decides."""
    models = [model for model in optimiser.models.values() if model is None or isinstance(model, GP)]
    if len(models) < len(optimiser.models) or optimiser.outcome_constraints or any(run.failed for run in optimiser.history):
        return None
    usual = lambda model: prior(model, optimiser.space.columns, optimiser.noise)
    guesses = tuple(unlearned(usual(model), measured, optimiser.members) for model in models)
    nothing = (None,) * len(models)
    return Early(knowing(guesses, nothing, np.full(len(models), 1 / len(models)), {}, None, ()).look)


def capacity_of(history: Sequence[Any]) -> int:
    """The number of rows that all models of a history are filled up to."""
    return capacity_for(min(len(history), MOST) + 1)


def _failures(optimiser: Optimiser, capacity: int) -> Any:
    """The process behind runs that went well or failed, filled up to so many rows; None where none failed."""
    labels = np.array([not run.failed for run in optimiser.history])
    if labels.all():
        return None
    space, best = optimiser.space, optimiser.best
    places = np.array([space.place(run.point) for run in optimiser.history])
    center = places[0] if best is None else space.place(best.point)
    rows = some_labels(places, center, MOST, optimiser.seed)
    if labels[rows].all():
        return None
    X = space.seen(places[rows])
    length = 0.5 * math.sqrt(len(space))
    # what fails mostly fails again, and there is a border, in a few of the variables: a large variance, and a length for each
    kernel = Matern52(
        with_note(np.full(space.columns, length), LogNormal(math.log(length), 0.7)),
        with_note(100.0, LogNormal(math.log(100.0), 1.0)),
    )
    options: dict[str, Any] = {"parameters": "best", "restarts": 0, "progress": False, "structure": "dense"}
    told = np.append(labels[rows].astype(float), np.full(capacity - len(rows), np.nan))
    return GP(kernel, Bernoulli()).fit(np.resize(X, (capacity, space.columns)), told, missing="infer", **options).posterior


def kept_rows(z: np.ndarray, seed: int) -> tuple[np.ndarray, list[str]]:
    """Of very many rows the better ones, and some of the others."""
    kept, half = some_rows(z, MOST, seed), MOST // 2
    return kept, [] if kept.all() else [f"of {len(z)} rows the best {half} and {MOST - half} of the others are looked at"]


def some_rows(z: np.ndarray, most: int, seed: int) -> np.ndarray:
    """Which rows are the better ones, up to half of so many, or some of the others."""
    if len(z) <= most:
        return np.ones(len(z), bool)
    order, kept = np.argsort(z, kind="stable"), np.zeros(len(z), bool)
    rest = np.random.default_rng([seed, 4]).permutation(order[most // 2 :])[: most - most // 2]
    kept[order[: most // 2]] = kept[rest] = True
    return kept


def some_labels(places: Float[np.ndarray, "N D"], center: Float[np.ndarray, " D"], most: int, seed: int) -> np.ndarray:
    """Rows near a place and some of the others, so that among neighbours as many failed as among all of them."""
    if len(places) <= most:
        return np.arange(len(places))
    order = np.argsort(np.max(np.abs(places - center), axis=1), kind="stable")
    rest = np.random.default_rng([seed, 5]).permutation(order[most // 2 :])
    return np.sort(np.concatenate([order[: most // 2], rest[: most - most // 2]]))


def _with_pending(measured: Measured, waiting: np.ndarray) -> tuple[Measured, np.ndarray]:
    """Rows with pending ones after those that were seen, and which these are."""
    count = int(np.sum(measured.seen))
    capacity = max(len(measured.y), capacity_for(count + len(waiting)))
    pending = (np.arange(capacity) >= count) & (np.arange(capacity) < count + len(waiting))
    if not len(waiting):
        return measured, pending
    more = lambda values: np.concatenate([values[:count], np.zeros(len(waiting))])
    X = np.concatenate([measured.X[:count], waiting])
    return Measured.filled(X, more(measured.y), more(measured.noise), capacity), pending


def _sized(flags: np.ndarray, size: int) -> np.ndarray:
    return np.concatenate([flags, np.zeros(size - len(flags), bool)])
