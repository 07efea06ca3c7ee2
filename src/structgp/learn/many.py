"""Learning from many series at once: batches of one padded length, the evidence of all of them in one computation."""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._types import generator
from ..engines.kalman import Kalman
from ..inputs.layouts import Times
from ..inputs.observations import Data
from ..parameters.tree import as_numpy, free_names, free_vector, with_free
from ..posterior import Model
from ..structure.state_space import harmonics_of
from .account import Learning, Progress
from .climb import TOLERANCE, climb
from .clock import NEVER, OUT_OF_TIME, Deadline
from .evidence import log_evidence
from .initialise import candidates, units_of
from .lockstep import Ends, minimise_all
from .objective import LOWEST, Objective
from .starts import bounds_of, perturbed

TOGETHER = 128  # series in one vectorised piece: more do not get faster
SHORTEST = 16  # length of the shortest batch
SUGGESTIONS = 64  # series that are asked where to start when all share their parameters


class Batch(eqx.Module):
    """Series filled up to one length with places where nothing is seen, and their numbers among all series."""

    inputs: Times  # leaves (B, L)
    data: Data
    index: np.ndarray


def batches_of(inputs: Sequence[Times], data: Sequence[Data]) -> tuple[Batch, ...]:
    """Series by their lengths, rounded up to a power of two, so that few programs are compiled."""
    lengths = np.array([max(SHORTEST, 2 ** int(np.ceil(np.log2(len(t))))) for t in inputs])
    made = []
    for length in np.unique(lengths):
        index = np.flatnonzero(lengths == length)
        rows = [_filled(inputs[int(i)], data[int(i)], int(length)) for i in index]
        t, y, noise, seen = (np.stack(parts) for parts in zip(*rows, strict=True))
        order = np.broadcast_to(np.arange(length), t.shape)
        made.append(Batch(Times(t, order, order), Data(y, noise, seen), index))
    return tuple(made)


def _filled(inputs: Times, data: Data, length: int) -> tuple[np.ndarray, ...]:
    order, more = np.asarray(inputs.order), length - len(inputs)
    fill = lambda values: np.concatenate([values[order], np.zeros((more, *values.shape[1:]), values.dtype)])
    t = np.concatenate([inputs.t, np.repeat(inputs.t[-1:], more)])
    return t, fill(data.y), fill(data.noise), fill(data.seen)


def over_series(function: Any, *stacked: Any) -> Any:
    """Apply a function to every series of stacked arguments, some of them at a time; the last one fills up the last piece."""
    count = len(jax.tree.leaves(stacked)[0])
    pieces = -(-count // TOGETHER)
    size = -(-count // pieces)
    index = np.minimum(np.arange(pieces * size), count - 1).reshape(pieces, size)
    one = jax.vmap(lambda arguments: function(*arguments))
    if pieces == 1:
        return one(stacked)
    done = jax.lax.map(one, jax.tree.map(lambda leaf: jnp.asarray(leaf)[index], stacked))
    return jax.tree.map(lambda leaf: leaf.reshape(pieces * size, *leaf.shape[2:])[:count], done)


def engine_for(models: Model) -> Kalman:
    """The static choices for models stacked along their first axis: right for every one of them."""
    return Kalman(harmonics_of(models.kernel), accurate=True)


class ManySeries:
    """log p(y_s | θ_s) of all series, and the gradients: one computation for each padded length."""

    def __init__(self, model: Model, batches: tuple[Batch, ...]) -> None:
        self.model, self.batches = model, batches
        self.count = sum(len(batch.index) for batch in batches)

    def apart(self, thetas: Float[np.ndarray, "S P"]) -> tuple[Float[np.ndarray, " S"], Float[np.ndarray, "S P"]]:
        """Of each series at its own θ."""
        engine = engine_for(models_at(self.model, thetas))
        values, gradients = np.zeros(len(thetas)), np.zeros(thetas.shape)
        for batch in self.batches:
            parts = _values_and_gradients(thetas[batch.index], self.model, batch.inputs, batch.data, engine)
            values[batch.index], gradients[batch.index] = (np.asarray(part) for part in parts)
        return values, gradients

    def together(self, theta: Float[np.ndarray, " P"]) -> tuple[Any, Any]:
        """Of all series at one θ."""
        values, gradients = self.apart(np.broadcast_to(theta, (self.count, len(theta))))
        return values.sum(), gradients.sum(axis=0)

    def objective(self) -> Objective:
        """What is climbed, for all series together or for each of them."""
        return Objective(self.model, self.together, evidence_of_many=self.apart)


@jax.jit
def _stacked_models(model: Any, thetas: Any) -> Any:
    return jax.vmap(with_free, in_axes=(None, 0))(model, thetas)


def models_at(model: Any, thetas: np.ndarray) -> Any:
    """The models of all series, stacked along the first axis of every number."""
    return as_numpy(_stacked_models(model, thetas))


@functools.partial(jax.jit, static_argnames="engine")
def _values_and_gradients(thetas: Array, model: Model, inputs: Times, data: Data, engine: Kalman) -> tuple[Array, Array]:
    def one(theta: Array, inputs: Times, data: Data) -> Array:
        return log_evidence(with_free(model, theta), inputs, data, engine)

    return over_series(jax.value_and_grad(one), thetas, inputs, data)


def maximise_shared(
    model: Any, inputs: Sequence[Times], data: Sequence[Data], batches: tuple[Batch, ...], **options: Any
) -> tuple[Any, Learning]:
    """One set of parameters for all series."""
    began = time.perf_counter()
    starts, units = starts_and_units(model, inputs, data, SUGGESTIONS)
    count = max(sum(int(np.sum(part.seen)) for part in data), 1)
    return climb(model, ManySeries(model, batches).objective(), list(starts), count, began, units=units, **options)


def starts_and_units(model: Any, inputs: Sequence[Times], data: Sequence[Data], most: int) -> tuple[np.ndarray, np.ndarray]:
    """Where some of the series suggest to begin with one set of parameters, and in what units to climb."""
    some = np.unique(np.linspace(0, len(inputs) - 1, most).astype(int))
    starts = np.mean([_starts(model, inputs[i], data[i]) for i in some], axis=0)
    return starts, np.mean([units_of(model, np.asarray(inputs[i].points), data[i]) for i in some], axis=0)


def _starts(model: Any, inputs: Times, data: Data) -> list[np.ndarray]:
    return [free_vector(candidate) for candidate in candidates(model, np.asarray(inputs.points), data)]


def maximise_apart(
    model: Any,
    inputs: Sequence[Times],
    data: Sequence[Data],
    batches: tuple[Batch, ...],
    *,
    restarts: int,
    seed: Any,
    max_evaluations: int,
    progress: bool | None = None,
    deadline: Deadline = NEVER,
) -> tuple[Any, tuple[Learning, ...]]:
    """Parameters of their own for each series, found in lockstep; returns the models stacked along their first axis."""
    began = time.perf_counter()
    terms = ManySeries(model, batches).objective().many
    counts = np.maximum([int(np.sum(part.seen)) for part in data], 1)
    starts = np.array([_starts(model, *series) for series in zip(inputs, data, strict=True)])  # (S, starts, P)
    if not starts.shape[2]:
        values, _ = terms(starts[:, 0]).summed()
        ended = lambda value: Learning(float(value), 0.0, 1, time.perf_counter() - began, True, "nothing to learn", 0, 0.0, ())
        return models_at(model, starts[:, 0]), tuple(ended(value) for value in values)
    tried = np.stack([terms(starts[:, j]).summed()[0] for j in range(starts.shape[1])])
    if (tried.max(axis=0) <= LOWEST).any():
        at = int(np.flatnonzero(tried.max(axis=0) <= LOWEST)[0])
        raise ValueError(
            f"series {at}: the evidence is not finite at the start: check for extreme values, or give other starting values"
        )
    best = starts[np.arange(len(starts)), tried.argmax(axis=0)]
    A = np.stack([units_of(model, np.asarray(of.points), part) for of, part in zip(inputs, data, strict=True)])
    unit = np.diagonal(A, axis1=1, axis2=2)
    bounds = np.stack([bounds_of(model, list(own)) for own in starts]) / unit[:, :, None]
    rng = generator(seed)
    best = np.linalg.solve(A, best[:, :, None])[:, :, 0]
    begin = [best] + [
        np.stack([perturbed(model, *series) for series in zip(best, [rng] * len(best), unit, strict=True)])
        for _ in range(restarts)
    ]
    height = tried.max(axis=0)

    def falling(z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        values, gradients = terms(np.einsum("spq,sq->sp", A, z)).summed()
        report(float(values.sum()))
        return (height - values) / counts, -np.einsum("spq,sp->sq", A, gradients) / counts[:, None]

    limits: dict[str, Any] = {"relative": TOLERANCE, "flat": 1e-6, "max_evaluations": max_evaluations, "deadline": deadline}
    with Progress(progress) as report:
        runs = [minimise_all(falling, begin[0], bounds, **limits)]
        runs += [minimise_all(falling, start, bounds, **limits) for start in begin[1:] if not deadline.passed()]
    seconds, extra = time.perf_counter() - began, starts.shape[1]
    why_not = OUT_OF_TIME if deadline.passed() else "the number of evaluations reached its limit, or no step led on"
    learned, learnings = _winners(model, runs, bounds, counts, seconds, extra, height, why_not)
    return models_at(model, np.einsum("spq,sq->sp", A, learned)), learnings


def _winners(
    model: Any,
    runs: list[Ends],
    bounds: np.ndarray,
    counts: np.ndarray,
    seconds: float,
    extra: int,
    height: np.ndarray,
    why_not: str,
) -> tuple[np.ndarray, tuple[Learning, ...]]:
    """The best end of every series, and an account of it; `height` is the objective that values are counted from."""
    values = np.stack([run.value for run in runs])
    winner, every = values.argmin(axis=0), np.arange(len(counts))
    pick = lambda name: np.stack([getattr(run, name) for run in runs])[winner, every]
    theta, gradient, converged = pick("theta"), pick("gradient"), pick("converged")
    names = np.asarray(free_names(model))
    at_bound = np.any(np.abs(theta[:, :, None] - bounds) < 1e-6, axis=2)
    evaluations = extra + np.sum([run.evaluations for run in runs], axis=0)
    learned = [
        Learning(
            objective=float(height[s] - values[:, s].min() * counts[s]),
            gradient_norm=float(np.abs(np.where(at_bound[s], 0.0, gradient[s])).max()),
            evaluations=int(evaluations[s]),
            seconds=seconds,
            converged=bool(converged[s]),
            message="converged" if converged[s] else why_not,
            restarts=len(runs) - 1,
            spread=float(np.ptp(values[:, s]) * counts[s]),
            at_bound=tuple(names[at_bound[s]]),
        )
        for s in every
    ]
    return theta, tuple(learned)


def summed(learned: Sequence[Learning]) -> Learning:
    """One account for all series: the slowest and the worst of them."""
    worst = max(learned, key=lambda one: one.gradient_norm)
    return dataclasses.replace(
        worst,
        objective=sum(one.objective for one in learned),
        evaluations=max(one.evaluations for one in learned),
        converged=all(one.converged for one in learned),
        message=next((one.message for one in learned if not one.converged), worst.message),
        at_bound=tuple(dict.fromkeys(name for one in learned for name in one.at_bound)),
    )
