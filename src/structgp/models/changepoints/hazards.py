"""How probable it is that a segment ends after each of its points."""

from __future__ import annotations

import abc
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Shaped

from ..._types import Numbers, as_callable
from ...parameters.supports import real, unit_interval
from ...parameters.tree import Annotated, Parametrised, parameter

RunLengths = Shaped[Any, " ..."] | int


class Hazard(Parametrised):
    """h(r): the probability that a segment ends with its next point, when it has r points already."""

    @abc.abstractmethod
    def probability(self, run: RunLengths) -> Numbers:
        """h at these run lengths."""

    def logs(self, run: RunLengths) -> tuple[Numbers, Numbers]:
        """log h and log (1 − h); −∞ where the one or the other is impossible."""
        h = jnp.broadcast_to(self.probability(run), jnp.shape(run))
        positive = lambda p: jnp.where(p > 0, p, 1.0)  # keeps the gradient finite where a log is not
        return jnp.where(h > 0, jnp.log(positive(h)), -jnp.inf), jnp.where(h < 1, jnp.log(positive(1 - h)), -jnp.inf)


class ConstantHazard(Hazard):
    """The same after every point: segments have 1/rate points on average, and a geometric law."""

    rate: Numbers = parameter(0.01, unit_interval)

    def probability(self, run: RunLengths) -> Numbers:
        return jnp.asarray(self.rate)


class LogisticHazard(Hazard):
    """h(r) = rate · 1/(1 + exp(−(slope · r + offset))): segments that age, or settle."""

    rate: Numbers = parameter(0.1, unit_interval)
    slope: Numbers = parameter(0.1, real)
    offset: Numbers = parameter(0.0, real)

    def probability(self, run: RunLengths) -> Numbers:
        return self.rate * jax.nn.sigmoid(self.slope * run + self.offset)


class TabulatedHazard(Hazard):
    """h(0), h(1), … one by one; the last value holds from there on."""

    values: Numbers = parameter((0.01,), unit_interval)

    def probability(self, run: RunLengths) -> Numbers:
        values = jnp.asarray(self.values)
        return values[jnp.clip(run, 0, len(values) - 1)]


class FunctionHazard(Hazard):
    """h by any function of the run lengths; a `Parametrised` callable brings parameters that are learned.

    0 and 1 are allowed: segments that cannot end, or must.
    """

    function: Any = eqx.field(converter=as_callable)

    def probability(self, run: RunLengths) -> Numbers:
        return self.function(run)


def as_hazard(hazard: Any) -> Hazard:
    """A hazard from None, a probability, a table of them, a function or a `Hazard`."""
    if isinstance(hazard, Hazard):
        return hazard
    if hazard is None:
        return ConstantHazard()
    if callable(hazard):
        return FunctionHazard(hazard)
    value = hazard.value if isinstance(hazard, Annotated) else hazard
    return TabulatedHazard(hazard) if np.ndim(value) else ConstantHazard(hazard)
