"""Models of one segment: what they know of it, and what they expect to see next.

A model keeps in its *memory* what it knows under every hypothesis (every slot) about where the present segment began. Most
models are recursive: a small state for each slot. Others let the slots share what they know.
"""

from __future__ import annotations

import abc
import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ..._types import Numbers, as_float, is_traced
from ...parameters.tree import Parametrised
from .predictive import Joint, Predictive


class SegmentModel(Parametrised):
    """p(next observation | those of the segment so far), for many hypotheses about where the segment began.

    `floor` is the smallest squared scale that a prediction may have: it keeps the density of repeated values finite.
    """

    floor: Numbers | None = eqx.field(default=None, converter=as_float, kw_only=True)

    def __check_init__(self) -> None:
        if not (self.floor is None or is_traced(self.floor)) and not self.floor > 0:
            raise ValueError(f"{type(self).__name__}: floor must be a positive variance, or None, got {self.floor}")

    def lifted(self, spread: Any) -> Any:
        """A squared scale, or the floor where that is higher."""
        return spread if self.floor is None else jnp.maximum(spread, self.floor)

    @property
    def width(self) -> int:
        """How many numbers one observation has; 0 for a plain number."""
        return 0

    @property
    def random(self) -> bool:
        """Whether predictions depend on random draws, so that the evidence has no gradient."""
        return False

    def check(self, values: np.ndarray) -> None:
        """Refuse observations that the model cannot have made."""

    @property
    def detail(self) -> int:
        """How much detail the present parameters need, where a program must know that before it is compiled."""
        return 0

    def with_detail(self, detail: int) -> SegmentModel:
        """The same model, computed with so much detail."""
        return self

    @abc.abstractmethod
    def begin(self, slots: int, length: int | None) -> Any:
        """The memory of empty segments; `length` is the longest run that can occur, None when there is no bound."""

    @abc.abstractmethod
    def look(self, memory: Any, t: Any, gap: Any) -> Predictive:
        """For each slot what is expected at time t, `gap` after the last observation."""

    @abc.abstractmethod
    def see(self, memory: Any, t: Any, gap: Any, y: Any) -> Any:
        """The memory after y at time t; NaN is not seen."""

    @abc.abstractmethod
    def renew(self, memory: Any, slot: Any) -> Any:
        """The memory with an empty segment in one slot."""


class Recursive(SegmentModel):
    """A model whose knowledge of a segment is a small state of its own."""

    @abc.abstractmethod
    def fresh(self) -> Any:
        """The state of an empty segment."""

    @abc.abstractmethod
    def predictive(self, state: Any, t: Any, gap: Any) -> Predictive:
        """What one state expects at time t."""

    @abc.abstractmethod
    def updated(self, state: Any, t: Any, gap: Any, y: Any, seen: Any) -> Any:
        """One state after y at time t, or after time has passed where it was not seen."""

    def begin(self, slots: int, length: int | None) -> Any:
        return jax.tree.map(lambda leaf: jnp.repeat(jnp.asarray(leaf)[None], slots, axis=0), self.fresh())

    def look(self, memory: Any, t: Any, gap: Any) -> Predictive:
        return jax.vmap(lambda state: self.predictive(state, t, gap))(memory)

    def see(self, memory: Any, t: Any, gap: Any, y: Any) -> Any:
        seen = ~jnp.any(jnp.isnan(y))
        y = jnp.where(seen, y, 0.0)
        return jax.vmap(lambda state: self.updated(state, t, gap, y, seen))(memory)

    def renew(self, memory: Any, slot: Any) -> Any:
        return jax.tree.map(lambda leaf, empty: leaf.at[slot].set(empty), memory, self.fresh())


class SideBySide(SegmentModel):
    """Several series that change together: rows of `count` numbers, each modelled by itself with the same parameters."""

    model: SegmentModel
    count: int = eqx.field(static=True)

    @property
    def width(self) -> int:
        return self.count

    @property
    def random(self) -> bool:
        return self.model.random

    def check(self, values: np.ndarray) -> None:
        self.model.check(values)

    @property
    def detail(self) -> int:
        return self.model.detail

    def with_detail(self, detail: int) -> SegmentModel:
        return dataclasses.replace(self, model=self.model.with_detail(detail))

    def begin(self, slots: int, length: int | None) -> Any:
        return jax.tree.map(lambda leaf: jnp.repeat(leaf[None], self.count, axis=0), self.model.begin(slots, length))

    def look(self, memory: Any, t: Any, gap: Any) -> Predictive:
        return Joint(jax.vmap(lambda part: self.model.look(part, t, gap))(memory))

    def see(self, memory: Any, t: Any, gap: Any, y: Any) -> Any:
        return jax.vmap(lambda part, value: self.model.see(part, t, gap, value))(memory, y)

    def renew(self, memory: Any, slot: Any) -> Any:
        return jax.vmap(lambda part: self.model.renew(part, slot))(memory)
