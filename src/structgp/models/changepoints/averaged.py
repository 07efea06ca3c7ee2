"""Segments with parameters of their own, which are integrated out: over a grid of values, or by samples."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping
from typing import Any, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..._types import Numbers, as_float
from ...parameters.tree import learned_leaves, parameter, with_free, with_values
from .predictive import Mixed, Predictive
from .segments import Recursive, SegmentModel


class Weighed(eqx.Module):
    """The memories of a model at each value of a grid, and the log weight of each value in each slot."""

    log_weight: Float[Array, "G K"]
    memories: Any


class AveragedSegment(SegmentModel):
    """A model whose parameters are drawn anew for each segment, from a grid of values with these log prior weights.

    ``AveragedSegment.over(model, {"gp.kernel.lengthscale": [1, 3, 10], "gp.likelihood.noise": [0.1, 1.0]})`` makes the grid of
    all combinations, each as probable as any other.
    """

    model: SegmentModel
    paths: tuple[str, ...] = eqx.field(static=True)
    values: Numbers = eqx.field(converter=as_float)  # one row for each member of the grid
    log_prior: Numbers = eqx.field(converter=as_float)

    @classmethod
    def over(cls, model: SegmentModel, values: Mapping[str, Any]) -> Self:
        """The grid of all combinations of some values of some parameters."""
        if not values:
            raise ValueError("a grid needs at least one parameter with its values, got none")
        rows = np.array(list(itertools.product(*(np.ravel(value) for value in values.values()))), dtype=float)
        for row in rows:
            with_values(model, dict(zip(values, row, strict=True)))  # says what is wrong with a path or a value
        return cls(model.freeze(*values), tuple(values), rows, np.full(len(rows), -np.log(len(rows))))

    @property
    def width(self) -> int:
        return self.model.width

    @property
    def random(self) -> bool:
        return self.model.random

    def check(self, values: np.ndarray) -> None:
        self.model.check(values)

    @property
    def detail(self) -> int:
        return max(with_values(self.model, dict(zip(self.paths, row, strict=True))).detail for row in self.values)

    def with_detail(self, detail: int) -> AveragedSegment:
        return dataclasses.replace(self, model=self.model.with_detail(detail))

    def _each(self, function: Any, *arguments: Any) -> Any:
        """A function of the model, at every member of the grid."""
        at = lambda row: with_values(self.model, {path: row[i] for i, path in enumerate(self.paths)})
        return jax.vmap(lambda row, *rest: function(at(row), *rest))(jnp.asarray(self.values), *arguments)

    def begin(self, slots: int, length: int | None) -> Weighed:
        log_weight = jnp.repeat(jnp.asarray(self.log_prior)[:, None], slots, axis=1)
        return Weighed(log_weight, self._each(lambda model: model.begin(slots, length)))

    def look(self, memory: Weighed, t: Any, gap: Any) -> Predictive:
        return Mixed(memory.log_weight, self._each(lambda model, part: model.look(part, t, gap), memory.memories))

    def see(self, memory: Weighed, t: Any, gap: Any, y: Any) -> Weighed:
        def step(model: SegmentModel, part: Any) -> tuple[Any, Any]:
            return model.look(part, t, gap).score(y), model.see(part, t, gap, y)

        score, memories = self._each(step, memory.memories)
        log_weight = memory.log_weight + score
        return Weighed(log_weight - jax.nn.logsumexp(log_weight, axis=0), memories)

    def renew(self, memory: Weighed, slot: Any) -> Weighed:
        memories = self._each(lambda model, part: model.renew(part, slot), memory.memories)
        return Weighed(memory.log_weight.at[:, slot].set(jnp.asarray(self.log_prior)), memories)


class Sampled(eqx.Module):
    """The newest observations, how many places of them belong to each slot, and samples of parameters with their states."""

    times: Float[Array, " R"]
    values: Float[Array, " R"]
    depth: Any
    theta: Float[Array, "K S P"]
    states: Any
    key: Any


class SampledSegment(SegmentModel):
    """A model whose parameters are drawn anew for each segment, followed by samples that Hamiltonian Monte Carlo moves along.

    Before a segment is seen, the free parameters θ are N(those of `model`, spread²); positive ones are log-normal. After each
    observation every sample makes `trajectories` moves of `leaps` steps of size `step`. `window` points are looked back on.
    """

    model: SegmentModel
    spread: Numbers = parameter(1.0)
    samples: int = eqx.field(static=True, default=16)
    trajectories: int = eqx.field(static=True, default=4)
    leaps: int = eqx.field(static=True, default=11)
    step: float = eqx.field(static=True, default=0.2)
    window: int = eqx.field(static=True, default=64)
    seed: int = eqx.field(static=True, default=0)

    random = True

    def __check_init__(self) -> None:
        if not isinstance(self.model, Recursive):
            raise TypeError(
                f"SampledSegment needs a model with a state, such as MarkovSegment, got {type(self.model).__name__}"
            )
        if self.model.width:
            raise ValueError("SampledSegment follows one series: put SideBySide around it for several")

    def check(self, values: np.ndarray) -> None:
        self.model.check(values)

    @property
    def detail(self) -> int:
        return self.model.detail

    def with_detail(self, detail: int) -> SampledSegment:
        model: Any = self.model.with_detail(detail)
        return dataclasses.replace(self, model=model)

    @property
    def _center(self) -> Any:
        """θ of the model."""
        return jnp.concatenate([jnp.ravel(leaf.support.free(jnp.asarray(leaf.value))) for leaf in learned_leaves(self.model)])

    def _drawn(self, key: Any, *shape: int) -> Any:
        return self._center + self.spread * jax.random.normal(key, (*shape, len(self._center)))

    def begin(self, slots: int, length: int | None) -> Sampled:
        R = self.window if length is None else min(self.window, length)
        key, now = jax.random.split(jax.random.key(self.seed))
        theta = self._drawn(now, slots, self.samples)
        states = jax.vmap(jax.vmap(lambda t: with_free(self.model, t).fresh()))(theta)
        return Sampled(jnp.zeros(R), jnp.full(R, jnp.nan), jnp.zeros(slots, int), theta, states, jax.random.key_data(key))

    def look(self, memory: Sampled, t: Any, gap: Any) -> Predictive:
        each = lambda theta, state: with_free(self.model, theta).predictive(state, t, gap)
        first = lambda leaf: jnp.swapaxes(leaf, 0, 1)  # the samples in front, as mixtures have them
        parts = jax.vmap(jax.vmap(each))(first(memory.theta), jax.tree.map(first, memory.states))
        return Mixed(jnp.full(parts.mean.shape, -np.log(self.samples)), parts)

    def see(self, memory: Sampled, t: Any, gap: Any, y: Any) -> Sampled:
        older = lambda buffer, new: jnp.concatenate([jnp.reshape(new, (1,)), buffer[:-1]])
        times, values = older(memory.times, t), older(memory.values, y)
        depth = jnp.minimum(memory.depth + 1, len(times))
        key, now = jax.random.split(jax.random.wrap_key_data(memory.key))
        keys = jax.random.split(now, memory.theta.shape[:2])
        move = lambda key, theta, depth: self._moved(key, theta, times, values, depth)
        theta, states = jax.vmap(jax.vmap(move, (0, 0, None)))(keys, memory.theta, depth)
        return Sampled(times, values, depth, theta, states, jax.random.key_data(key))

    def renew(self, memory: Sampled, slot: Any) -> Sampled:
        key, now = jax.random.split(jax.random.wrap_key_data(memory.key))
        theta = self._drawn(now, self.samples)
        fresh = jax.vmap(lambda t: with_free(self.model, t).fresh())(theta)
        return Sampled(
            memory.times,
            memory.values,
            memory.depth.at[slot].set(0),
            memory.theta.at[slot].set(theta),
            jax.tree.map(lambda leaf, new: leaf.at[slot].set(new), memory.states, fresh),
            jax.random.key_data(key),
        )

    def _run(self, theta: Any, times: Any, values: Any, depth: Any) -> tuple[Any, Any]:
        """The log density of a segment's observations at these parameters, and the state after them."""
        model = with_free(self.model, theta)

        def step(state: Any, x: Any) -> tuple[Any, Any]:
            t, gap, y, inside = x
            seen = inside & ~jnp.isnan(y)
            score = jnp.where(seen, model.predictive(state, t, gap).log_prob(jnp.where(seen, y, 0.0)), 0.0)
            new = model.updated(state, t, gap, jnp.where(seen, y, 0.0), seen)
            return jax.tree.map(lambda a, b: jnp.where(inside, a, b), new, state), score

        inside = jnp.arange(len(times)) < depth
        gaps = jnp.where(inside, times - jnp.concatenate([times[1:], times[-1:]]), 0.0)
        state, scores = jax.lax.scan(step, model.fresh(), (times, gaps, values, inside), reverse=True)
        return jnp.sum(scores), state

    def _moved(self, key: Any, theta: Any, times: Any, values: Any, depth: Any) -> tuple[Any, Any]:
        """A sample after a few trajectories, and its state."""
        prior = lambda theta: -0.5 * jnp.sum(((theta - self._center) / self.spread) ** 2)
        target = lambda theta: self._run(theta, times, values, depth)[0] + prior(theta)
        move = lambda theta, now: (hamiltonian_move(now, theta, target, self.step * self.spread, self.leaps), None)
        theta, _ = jax.lax.scan(move, theta, jax.random.split(key, self.trajectories))
        return theta, self._run(theta, times, values, depth)[1]


def hamiltonian_move(key: Any, theta: Any, log_density: Any, step: Any, leaps: int) -> Any:
    """One trajectory of Hamiltonian Monte Carlo: leapfrog steps, then accepted or not."""
    slope = jax.grad(log_density)
    for_momentum, for_test = jax.random.split(key)
    start = jax.random.normal(for_momentum, theta.shape)

    def leap(_: Any, place: tuple[Any, Any, Any]) -> tuple[Any, Any, Any]:
        at, momentum, pull = place
        momentum = momentum + 0.5 * step * pull
        at = at + step * momentum
        pull = slope(at)
        return at, momentum + 0.5 * step * pull, pull

    end, momentum, _ = jax.lax.fori_loop(0, leaps, leap, (theta, start, slope(theta)))
    gain = log_density(end) - log_density(theta) + 0.5 * jnp.sum(start**2) - 0.5 * jnp.sum(momentum**2)
    accepted = jnp.log(jax.random.uniform(for_test)) < gain  # false for NaN
    return jnp.where(accepted, end, theta)
