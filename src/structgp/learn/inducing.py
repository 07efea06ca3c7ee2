"""Learning through inducing inputs, in stages: the start decides.

1. The exact model of some rows tells lengthscales: few inducing inputs would tell ones that are too long.
2. The inducing inputs are put where the data are, in units of these lengthscales.
3. The overall variance and the noise are found for them, on a line: with VVᵀ = UΛUᵀ at the present variance, β = UᵀVy and
   ρ the factor on the variance over the noise σ²,

       F(ρ) = −½[Σ log(1 + ρλ) + N log σ² + ρ(Σk − Σλ)],   σ² = (yᵀy − ρ Σ β²/(1 + ρλ))/N.

   The noise that exact rows suggest would make the first step of a climb drop the function altogether.
4. Unless the inputs clearly leave out too much, parameters are climbed with these held, and they are put anew if it is better.
5. Inputs and parameters are climbed together as long as it pays: where little is left out by the inputs, it cannot.

All of it looks at a hundred rows for each inducing input, and 50,000 at least: beyond, more rows only cost time.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from functools import singledispatch
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._types import double_precision
from ..engines.base import Offer
from ..engines.basis import columns, sites_of
from ..engines.inducing import ENOUGH, FIRST, HELD, TOGETHER, exact_rows, left_out
from ..engines.inducing_inputs import place_among
from ..inputs.layouts import as_inputs
from ..inputs.observations import Data
from ..kernels.algebra import Kernel, On, Product, Scaled, Sum
from ..kernels.induced import Induced
from ..kernels.views import Project
from ..linalg.dense.cholesky import lapack_threads
from ..linalg.features.low_rank import Rule, summed
from ..parameters.tree import free_vector, learned_leaves, leaves, named_values, with_values
from ..posterior import Model
from ..structure.dense import typical_variance
from ..structure.low_rank import LowRank
from .account import Learning
from .believe import WeakBeliefs
from .climb import PATIENCE, climb
from .clock import NEVER, Deadline
from .density import Density
from .evidence import evidence_objective
from .initialise import limits_of, units_of
from .maximise import maximise
from .objective import Objective
from .some_rows import learn_from_some

WORTH = 1 / 500  # nats for each observation that ten evaluations must gain
MOVING = 1 / 2000  # the same where inducing inputs move, which gains a little for long
CLEARLY = 1 / 20  # nats for each observation that inputs leave out where it is better to move them from the start
AHEAD = 5.0  # lengthscales that an inducing input moves where a logarithm moves by one
QUIET = 1e-4  # of the variance of y: the least noise where what is left out is noise as well


@double_precision
def maximise_through_inputs(
    model: Any,
    inputs: Any,
    data: Data,
    offer: Offer,
    *,
    objective: Objective | None = None,
    deadline: Deadline = NEVER,
    others: Sequence[Any] = (),
    **options: Any,
) -> tuple[Any, Learning]:
    """The model with the parameters, inducing inputs among them, that make the data most probable, and how they were found."""
    if objective is not None:  # sites are found anew at every step: one climb of all that is learned
        return maximise(model, inputs, data, offer, objective=objective, deadline=deadline, others=others, **options)
    return _Stages(model, inputs, data, offer, deadline, options).run(others)


@double_precision
def climb_with_inputs_held(
    model: Any,
    inputs: Any,
    data: Data,
    offer: Offer,
    *,
    objective: Objective | None = None,
    beliefs: WeakBeliefs | None = None,
    deadline: Deadline = NEVER,
    max_evaluations: int,
    seed: Any = 0,
    progress: Any = False,
    **_: Any,
) -> tuple[Any, Learning]:
    """The model at the highest density of its parameters that a climb from where it is reaches: what is averaged around."""
    count, began = max(int(np.sum(data.seen)) * data.y.shape[1], 1), time.perf_counter()
    if objective is None:
        objective = evidence_objective(model, inputs, data, offer.engine)
        objective = objective if beliefs is None else Density(objective, beliefs)
    X = np.asarray(inputs.points)
    options: dict[str, Any] = {"restarts": 0, "seed": seed, "max_evaluations": max_evaluations, "progress": progress}
    options |= {"deadline": deadline, "units": units_of(model, X, data), "limits": _limits(model, X, data, offer.engine)}
    with lapack_threads(offer.cost.rows if offer.cost else 0):
        return climb(model, objective, [free_vector(model)], count, began, **options)


@double_precision
def go_on_through_inputs(
    model: Any, inputs: Any, data: Data, offer: Offer, deadline: Deadline, max_evaluations: int
) -> tuple[Any, Learning]:
    """The same from a model that was learned in this way, where time was over too early: on from where it is."""
    options = {"restarts": 0, "seed": 0, "max_evaluations": max_evaluations, "progress": False}
    return _Stages(model, inputs, data, offer, deadline, options).go_on()


class _Stages:
    """One fit: the model as it goes through the stages, and what they took."""

    def __init__(self, model: Any, inputs: Any, data: Data, offer: Offer, deadline: Deadline, options: dict[str, Any]) -> None:
        self.model, self.inputs, self.data, self.offer, self.deadline, self.options = (
            model,
            inputs,
            data,
            offer,
            deadline,
            options,
        )
        self.engine: Any = offer.engine
        self.places = [leaf.path for leaf in learned_leaves(model) if leaf.path.endswith(".inputs")]
        self.size = max(len(leaf.value) for leaf in leaves(model) if leaf.path.endswith(".inputs"))
        self.given = len(data.seen)
        self._take_enough_rows()
        self.X, self.began = np.asarray(self.inputs.points), time.perf_counter()
        self.count = max(int(np.sum(self.data.seen)) * data.y.shape[1], 1)
        self.left, self.evaluations = options["max_evaluations"], 0

    def _take_enough_rows(self) -> None:
        """So many rows tell all that these inducing inputs can learn: parameters are learned from them, drawn at random."""
        most = max(ENOUGH[0] * self.size, ENOUGH[1])
        if len(self.data.seen) <= most:
            return
        rows = np.sort(np.random.default_rng(1).permutation(len(self.data.seen))[:most])
        self.inputs = as_inputs(np.asarray(self.inputs.points)[rows])
        self.data = jax.tree.map(lambda values: np.asarray(values)[rows] if np.ndim(values) else values, self.data)

    def run(self, others: Sequence[Any]) -> tuple[Any, Learning]:
        """All stages; climbs begin at one of some other models where that is more probable."""
        self._glimpse()
        if self.engine.place:
            self._place()
        self.model = _profiled(self.model, self.X, self.data)
        if others:
            self.model = max([self.model, *others], key=self._evidence)
        learning = None if self._worth_moving(CLEARLY) else self._climb(HELD, self._held())
        if self.engine.place and learning is not None:
            learning = self._place_again(learning)
        moved = self._worth_moving(WORTH)
        if learning is None or (self.left > 0 and (moved or not learning.converged) and not self.deadline.passed()):
            learning = self._last(moved)
            learning = dataclasses.replace(learning, message="as long as it paid") if learning.converged else learning
        seconds, rows = time.perf_counter() - self.began, len(self.data.seen)
        rows = rows if rows < self.given else 0
        return self.model, dataclasses.replace(learning, evaluations=self.evaluations, seconds=seconds, rows=rows)

    def go_on(self) -> tuple[Any, Learning]:
        """The last stage alone."""
        learning = self._last(self._worth_moving(WORTH))
        return self.model, learning

    def _last(self, moved: bool) -> Learning:
        each = MOVING if moved else WORTH
        return self._climb(TOGETHER, self.model if moved else self._held(), each * self.count * PATIENCE / 10)

    def _held(self) -> Any:
        """The model with the inducing inputs held."""
        return self.model.freeze(*self.places) if self.places else self.model

    def _with(self, learned: Any) -> Any:
        """The model, with its notes, and the values that were learned for another of the same shape."""
        return with_values(self.model, {path: np.asarray(value) for path, value in named_values(learned).items()})

    def _glimpse(self) -> None:
        options = self.options | {"max_evaluations": min(FIRST, self.left), "deadline": self.deadline}
        learned, learning = learn_from_some(self._held(), self.inputs, self.data, exact_rows(self.size), **options)
        self.model, self.evaluations = self._with(learned), learning.evaluations

    def _place(self) -> None:
        self.model = self.model.replace(kernel=place_among(self.model, self.X, self.size, self.engine.place, self.data))

    def _climb(self, most: int, model: Any, grain: float = 0.0) -> Learning:
        objective = evidence_objective(model, self.inputs, self.data, self.engine, grain)
        units, limits = units_of(model, self.X, self.data), _limits(model, self.X, self.data, self.engine)
        entries = _entries(model)
        if units.ndim == 1:
            units = np.where(np.isin(entries, self.places), AHEAD, 1.0) * units
        options = self.options | {"max_evaluations": max(min(most, self.left), 1), "restarts": 0, "deadline": self.deadline}
        with lapack_threads(self.offer.cost.rows if self.offer.cost else 0):
            start = [free_vector(model)]
            learned, learning = climb(model, objective, start, self.count, self.began, units=units, limits=limits, **options)
        self.model = self._with(learned)
        self.left, self.evaluations = self.left - learning.evaluations, self.evaluations + learning.evaluations
        return learning

    def _place_again(self, learning: Learning) -> Learning:
        """The inducing inputs at the lengthscales that were learned, if the evidence agrees."""
        before = self.model
        self._place()
        value = self._evidence(self.model)
        if not value > learning.objective:
            self.model = before
            return learning
        return dataclasses.replace(learning, objective=value)

    def _evidence(self, model: Any) -> float:
        held = model.freeze(*self.places) if self.places else model
        self.left, self.evaluations = self.left - 1, self.evaluations + 1
        return evidence_objective(held, self.inputs, self.data, self.engine)(free_vector(held))[0]

    def _worth_moving(self, each: float) -> bool:
        """Whether the inducing inputs are moved: they leave out so many nats for each observation, or it is asked for."""
        if not self.places or self.engine.learn is not None:
            return bool(self.places)
        X = jnp.asarray(self.X)
        sites = sites_of(self.model, X, self.data, typical_variance(self.model.kernel, X))
        return float(left_out(self.model, X, sites.precision)) > each * self.count


def _limits(model: Any, X: np.ndarray, data: Data, engine: Any) -> np.ndarray:
    """Between what each entry of θ stays: where what is left out is noise as well, there is some noise."""
    limits = limits_of(model, X, data)
    if engine.method == "fitc" and model.likelihood.is_gaussian:
        quiet = np.log(QUIET * float(np.var(data.y[np.asarray(data.seen)])) + 1e-300)
        limits[:, 0] = np.where(_entries(model) == "likelihood.noise", quiet, limits[:, 0])
    return limits


def _entries(model: Any) -> np.ndarray:
    """The path of the parameter that each entry of θ belongs to."""
    names = [leaf.path for leaf in learned_leaves(model) for _ in range(leaf.free_size)]
    return np.array(names, str) if names else np.zeros(0, str)


def _profiled(model: Any, X: np.ndarray, data: Data) -> Any:
    """The model with the overall variance and the noise that make the lower bound largest, where both are learned freely."""
    sizes = _sizes(model)
    plain = not np.any(data.noise) and data.y.shape[1] == 1 and not columns(model, jnp.asarray(X[:1]))[1].shape[1]
    if not (plain and sizes):
        return model
    spectrum, beta, whole, squares = map(np.asarray, _spectrum(model, X, data))
    N, loose = float(np.sum(data.seen)), max(float(whole - spectrum.sum()), 0.0)
    ratio = np.geomspace(1e-6, 1e12, 721)[:, None] * N / max(float(whole), 1e-300)
    noise = (squares - np.sum(ratio * beta**2 / (1 + ratio * spectrum), axis=1)) / N
    noise = np.where(noise > 1e-12 * squares / N, noise, np.nan)
    bound = -0.5 * (np.sum(np.log1p(ratio * spectrum), axis=1) + N * np.log(noise) + ratio[:, 0] * loose)
    if not np.isfinite(bound).any():
        return model
    best = int(np.nanargmax(bound))
    factor = float(ratio[best, 0] * noise[best])
    return with_values(
        model, {**{path: factor * value for path, value in sizes.items()}, "likelihood.noise": float(noise[best])}
    )


def _sizes(model: Any) -> dict[str, np.ndarray]:
    """The parameters that say how large the kernel is, if they and one noise for all are learned freely; else none."""
    free = {leaf.path for leaf in learned_leaves(model) if leaf.prior is None and leaf.bounds is None}
    twice = scaled_by(model.kernel, 2.0)
    if twice is None or "likelihood.noise" not in free or np.ndim(model.likelihood.noise):
        return {}
    own, doubled = named_values(model.kernel), named_values(twice)
    sizes = {f"kernel.{path}": np.asarray(own[path]) for path in own if np.any(own[path] != doubled[path])}
    return sizes if sizes.keys() <= free else {}


@jax.jit
def _spectrum(model: Model, X: Float[Array, "N D"], data: Data) -> tuple[Array, Array, Array, Array]:
    """The eigenvalues of VVᵀ, Vy in their vectors, Σk and yᵀy, of what was seen."""
    structure = LowRank(model.kernel, jnp.asarray(X), 0)
    y = jnp.where(data.seen[:, None], data.y - columns(model, jnp.asarray(X))[0][:, None], 0.0)
    w = jnp.where(data.seen, 1.0, 0.0)
    K = structure.among()
    white, blocks = structure.white(jnp.linalg.cholesky(K))
    sums = summed(white, blocks, len(K), w, y, Rule(0.0), False)
    values, vectors = jnp.linalg.eigh(sums.gram)
    values = jnp.maximum(values, 0.0)
    return values, vectors.T @ sums.cross[:, 0], sums.charge + jnp.trace(sums.gram), sums.own[0, 0]


@singledispatch
def scaled_by(kernel: Kernel, factor: float) -> Kernel | None:
    """The kernel with its variance times a number, by node; None where no parameter says how large it is."""
    own = type(kernel).__dataclass_fields__
    return kernel.replace(variance=factor * np.asarray(kernel.variance)) if "variance" in own else None  # type: ignore[attr-defined]


@scaled_by.register
def _(kernel: Sum, factor: float) -> Kernel | None:
    terms = [scaled_by(term, factor) for term in kernel.terms]
    return None if None in terms else kernel.replace(terms=tuple(terms))


@scaled_by.register
def _(kernel: Product, factor: float) -> Kernel | None:
    first = scaled_by(kernel.factors[0], factor)
    return None if first is None else kernel.replace(factors=(first, *kernel.factors[1:]))


@scaled_by.register(Scaled)
@scaled_by.register(On)
@scaled_by.register(Project)
@scaled_by.register(Induced)
def _(kernel: Scaled | On | Project | Induced, factor: float) -> Kernel | None:
    inner = scaled_by(kernel.kernel, factor)
    return None if inner is None else kernel.replace(kernel=inner)
