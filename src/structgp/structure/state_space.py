"""Kernels on a line that are Markov: a chain with a small state, one rule for each node of the kernel algebra.

`chain_of(kernel, where)` is the chain of a kernel from a place on: stationary kernels do not care where, the others say with
which covariance they arrive there. What has no finite state answers `No`, with the reason.
"""

from __future__ import annotations

import functools
import math
from functools import singledispatch
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from .._types import is_traced
from ..inputs.layouts import Inputs, Times
from ..kernels.algebra import Kernel, Product, Scaled, Sum
from ..kernels.changepoint import ChangePoint
from ..kernels.nonstationary import Constant, IntegratedWiener, Linear, Spline, White, Wiener
from ..kernels.oscillating import Cosine, DampedOscillator, Periodic
from ..kernels.stationary import HalfIntegerMatern, ProductMatern, SquaredExponential
from ..kernels.views import On, Project
from ..linalg.markov import chains
from ..linalg.markov.oscillator import Oscillator
from .base import No, Structure

HARMONICS_ERROR = 1e-12  # largest error of a periodic covariance, in units of its variance
BUCKETS = (4, 6, 8, 10, 12, 16, 20, 24, 32, 40, 48, 64, 80)  # numbers of harmonics, so that few programs are compiled


class Where(NamedTuple):
    """Where a chain begins: at the place `at`, of a series whose first observation is at `first`."""

    at: Any
    first: Any
    harmonics: int


class StateSpace(Structure):
    """A chain along sorted times."""

    kernel: Kernel
    chain: chains.Chain
    t: Float[Array, " N"]
    order: Int[Array, " N"]
    rank: Int[Array, " N"]
    regular: bool = eqx.field(static=True)
    harmonics: int = eqx.field(static=True)
    in_order: bool = eqx.field(static=True)

    def in_time(self, values: Array) -> Array:
        """Rows in the caller's order, put in the order of time."""
        return values if self.in_order else values[self.order]

    def as_given(self, values: Array) -> Array:
        """Rows in the order of time, put in the caller's order."""
        return values if self.in_order else values[self.rank]

    def gaps(self) -> Float[Array, " N"]:
        """The distance of each place from the one before; the first has none."""
        return jnp.diff(self.t, prepend=self.t[:1])


def state_space(kernel: Kernel, inputs: Inputs, harmonics: int) -> StateSpace | No:
    """The chain of a kernel along times, or why there is none."""
    if not isinstance(inputs, Times):
        return No("the inputs are not one column, so they have no order in time")
    first = inputs.t[0]
    chain = chain_of(kernel, Where(first, first, harmonics))
    if isinstance(chain, No):
        return chain
    return StateSpace(kernel, chain, inputs.t, inputs.order, inputs.rank, inputs.regular, harmonics, inputs.in_order)


@singledispatch
def chain_of(kernel: Kernel, where: Where) -> chains.Chain | No:
    """The chain of a kernel, by node."""
    return No(f"{type(kernel).__name__} has no finite state")


@chain_of.register
def _(kernel: SquaredExponential, where: Where) -> No:
    return No('SquaredExponential has no finite state (Matern72 is close, or approximate="state-space")')


@chain_of.register
def _(kernel: HalfIntegerMatern, where: Where) -> chains.Chain:
    inverse_lengthscale = jnp.linalg.norm(kernel.embed(jnp.ones(1)))
    return chains.Matern(kernel.order + 1, math.sqrt(2 * kernel.order + 1) * inverse_lengthscale, kernel.variance)


@chain_of.register
def _(kernel: ProductMatern, where: Where) -> chains.Chain:
    return chains.Matern(
        round(kernel.nu + 0.5), math.sqrt(2 * kernel.nu) / jnp.reshape(kernel.lengthscale, ()), kernel.variance
    )


@chain_of.register
def _(kernel: Constant, where: Where) -> chains.Chain:
    return chains.Constant(kernel.variance)


@chain_of.register
def _(kernel: White, where: Where) -> chains.Chain:
    return chains.White(kernel.variance)


@chain_of.register
def _(kernel: Cosine, where: Where) -> chains.Chain:
    return chains.Rotation(2 * jnp.pi / kernel.period, jnp.zeros(()), kernel.variance)


@chain_of.register
def _(kernel: DampedOscillator, where: Where) -> chains.Chain:
    return Oscillator(2 * jnp.pi / kernel.period, 1 / kernel.lifetime, kernel.variance)


@chain_of.register
def _(kernel: Periodic, where: Where) -> chains.Chain | No:
    if not where.harmonics:
        return No(f"Periodic with so short a lengthscale needs more than {BUCKETS[-1]} harmonics")
    weights = chains.periodic_weights(jnp.reshape(kernel.lengthscale, ()) ** -2.0, where.harmonics)
    return chains.Harmonics(kernel.variance * weights, 2 * jnp.pi / jnp.reshape(kernel.period, ()))


@chain_of.register
def _(kernel: Linear, where: Where) -> chains.Chain:
    state = jnp.stack([jnp.reshape(where.at - kernel.center, ()), jnp.ones(())])
    return chains.Taylor(2, jnp.zeros(()), jnp.reshape(kernel.variance, ()) * jnp.outer(state, state))


class Severed(chains.Chain):
    """A process that runs both ways from a start at zero: from a place before that, nothing leads past it."""

    chain: chains.Chain
    kept: Float[Array, ""]  # 1 at and after the start, 0 before

    @property
    def row(self) -> np.ndarray:
        return self.chain.row

    @property
    def stationary(self) -> bool:
        return False

    def start(self) -> Float[Array, "D D"]:
        return self.chain.start()

    def generator(self) -> Float[Array, "D D"]:
        return self.chain.generator()

    def transition(self, gap: Float[Array, "*gaps"]) -> Float[Array, "D D *gaps"]:
        return self.kept * self.chain.transition(gap)

    def noise(self, gap: Float[Array, "*gaps"]) -> Float[Array, "D D *gaps"]:
        return self.chain.noise(gap)


def _integrated(order: int, density: Any, since_start: Any) -> chains.Chain:
    """An integrated Wiener process some way from its start."""
    started = chains.Taylor(order, density, jnp.zeros((order, order)))
    here = chains.Taylor(order, density, started.noise(jnp.abs(since_start)))
    return Severed(here, jnp.where(since_start >= 0, 1.0, 0.0))


@chain_of.register(Wiener)
@chain_of.register(IntegratedWiener)
def _(kernel: Wiener | IntegratedWiener, where: Where) -> chains.Chain | No:
    order = kernel.order if isinstance(kernel, IntegratedWiener) else 1
    if not (is_traced(where.first) or is_traced(kernel.start)) and where.first < kernel.start:
        return No(f"{type(kernel).__name__} starts at {float(kernel.start):g}, but the times begin before, at {where.first:g}")
    return _integrated(order, kernel.variance, where.at - kernel.start)


@chain_of.register
def _(kernel: Spline, where: Where) -> chains.Chain:
    # The polynomial is free, so the process may as well start at the first observation: see `started_at`.
    return _integrated(kernel.order, kernel.variance, where.at - where.first)


def started_at(kernel: Kernel, first: Any) -> Kernel:
    """The kernel whose chain begins at the first observation: splines start there, which changes nothing but the basis."""
    is_spline = lambda node: isinstance(node, Spline)
    return jax.tree.map(lambda node: node.replace(start=first) if is_spline(node) else node, kernel, is_leaf=is_spline)


@chain_of.register
def _(kernel: Sum, where: Where) -> chains.Chain | No:
    parts = []
    for term in kernel.terms:
        part = chain_of(term, where)
        if isinstance(part, No):
            return part
        parts.append(part)
    return chains.Sum(*parts)


@chain_of.register
def _(kernel: Product, where: Where) -> chains.Chain | No:
    parts = []
    for factor in kernel.factors:
        part = chain_of(factor, where)
        if isinstance(part, No):
            return part
        if not part.stationary:
            return No(f"{kernel!r} is a product with a part that is not stationary")
        parts.append(part)
    return functools.reduce(chains.Product, parts)


@chain_of.register
def _(kernel: Scaled, where: Where) -> chains.Chain | No:
    part = chain_of(kernel.kernel, where)
    return part if isinstance(part, No) else chains.Scaled(part, kernel.scale)


@chain_of.register
def _(kernel: ChangePoint, where: Where) -> chains.Chain | No:
    before, after = chain_of(kernel.before, where), chain_of(kernel.after, where)
    if isinstance(before, No):
        return before
    if isinstance(after, No):
        return after
    scalar = lambda value: jnp.reshape(jnp.asarray(value), ())
    width = None if kernel.width is None else scalar(kernel.width)
    return chains.HandOver(before, after, scalar(kernel.location), width)


@chain_of.register
def _(kernel: On, where: Where) -> chains.Chain | No:
    return chain_of(kernel.kernel, where)


@chain_of.register
def _(kernel: Project, where: Where) -> No:
    return No("Project on one input only mirrors it: leave it out")


@singledispatch
def smallest_period_lengthscale(kernel: Kernel) -> float:
    """The smallest lengthscale of a periodic part, infinite without one."""
    children = [value for value in vars(kernel).values() if isinstance(value, (Kernel, tuple))]
    kernels = [k for child in children for k in (child if isinstance(child, tuple) else (child,)) if isinstance(k, Kernel)]
    return min((smallest_period_lengthscale(k) for k in kernels), default=math.inf)


@smallest_period_lengthscale.register
def _(kernel: Periodic) -> float:
    return float(np.min(kernel.lengthscale))


def harmonics_of(kernel: Kernel) -> int:
    """How many harmonics keep the covariance error below the bound: the next number in the list, 0 if none is enough."""
    from scipy.special import ive

    lengthscale = smallest_period_lengthscale(kernel)
    if lengthscale == math.inf:
        return BUCKETS[0]
    j = np.arange(1, BUCKETS[-1] + 400)
    q = 2 * ive(j, lengthscale**-2.0)
    tail = np.cumsum(q[::-1])[::-1]  # tail[J] = Σ_{j > J} q_j
    return next((J for J in BUCKETS if tail[J] < HARMONICS_ERROR), 0)
