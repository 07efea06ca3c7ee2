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
from ..kernels.algebra import Kernel, On, Product, Scaled, Sum, View
from ..kernels.changepoint import ChangePoint
from ..kernels.filters import FIR, GaussianFilters, LowPassFilters, MaternFilters, OfModes
from ..kernels.nonstationary import Constant, IntegratedWiener, Linear, Spline, White, Wiener
from ..kernels.oscillating import Cosine, DampedOscillator, Periodic
from ..kernels.outputs import Coregion, Lagged, number_of
from ..kernels.stationary import HalfIntegerMatern, ProductMatern, SquaredExponential
from ..kernels.views import Project
from ..linalg.markov import chains, shared_noise
from ..linalg.markov.oscillator import Oscillator
from .base import No, Structure, first_no

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
    which: Int[Array, " N"] | None = None  # of several outputs, the one seen at each place
    cells: Int[Array, "S P"] | None = None  # the row of each output at each time, where most are seen together

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
    if inputs.which is not None:
        refused = not_along(kernel.kernel if isinstance(kernel, Lagged) else kernel)
        if refused is not None:
            return refused
    t, which, order, rank, in_order = inputs.t, inputs.which, inputs.order, inputs.rank, inputs.in_order
    cells = None if isinstance(kernel, Lagged) else inputs.cells
    if isinstance(kernel, Lagged):  # a lag is a clock of its own: rows are sorted by what it shows
        t = jnp.asarray(t) - jnp.asarray(kernel.lag)[which]
        sorted_ = jnp.argsort(t, stable=True)
        t, which, order, in_order = t[sorted_], jnp.asarray(which)[sorted_], jnp.asarray(order)[sorted_], False
        rank = jnp.argsort(order)
    chain = chain_of(kernel, Where(t[0], t[0], harmonics))
    if isinstance(chain, No):
        return chain
    return StateSpace(kernel, chain, t, order, rank, inputs.regular, harmonics, in_order, which, cells)


class Places(NamedTuple):
    """Where a chain is looked at: what its clock shows there, and of several outputs the one that is seen."""

    t: Any
    which: Any = None

    @property
    def table(self) -> Any:
        """The same as rows (time,), or (time, output), for a kernel without lags."""
        return self.t[:, None] if self.which is None else jnp.stack([self.t, 1.0 * self.which], axis=1)


def places_of(kernel: Kernel, X: Any) -> Places:
    """Rows of a time, or of a time and the number of an output, as a chain sees them."""
    if X.shape[1] == 1:
        return Places(X[:, 0])
    X = kernel.seen(X) if isinstance(kernel, Lagged) else X
    return Places(X[:, 0], number_of(X[:, 1]))


def without_lags(kernel: Kernel) -> Kernel:
    """The kernel of what its clocks show."""
    return kernel.kernel if isinstance(kernel, Lagged) else kernel


def not_along(kernel: Kernel) -> No | None:
    """Why rows (time, output) are no chain for this kernel, as far as it does not look at times and outputs apart."""
    if isinstance(kernel, (Sum, Product)):
        parts = kernel.terms if isinstance(kernel, Sum) else kernel.factors
        return next((found for found in map(not_along, parts) if found is not None), None)
    if isinstance(kernel, Scaled):
        return not_along(kernel.kernel)
    if isinstance(kernel, On) and kernel.dims == (1,):
        inside = isinstance(kernel.kernel, (Coregion, Constant))
        return None if inside else No(f"{type(kernel.kernel).__name__} looks at the number of the output as if it were a place")
    if isinstance(kernel, Lagged):
        return No("only a part of the kernel has lags: put Lagged around all of it, one lag for each output")
    apart = isinstance(kernel, (MaternFilters, OfModes, Constant)) or (isinstance(kernel, On) and kernel.dims == (0,))
    if apart or isinstance(kernel, (GaussianFilters, LowPassFilters, FIR)):  # the last have no state, as their rule says
        return None
    return No(f"{type(kernel).__name__} looks at times and outputs together: put it on the times alone, by .on(0)")


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

    stationary = False

    @property
    def row(self) -> np.ndarray:
        return self.chain.row

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
    parts: list[Any] = [chain_of(term, where) for term in kernel.terms]
    return first_no(*parts) or chains.Sum(*parts)


@chain_of.register
def _(kernel: Product, where: Where) -> chains.Chain | No:
    parts: list[Any] = [chain_of(factor, where) for factor in kernel.factors]
    if no := first_no(*parts):
        return no
    if not all(part.stationary for part in parts):
        return No(f"{kernel!r} is a product with a part that is not stationary")
    return functools.reduce(chains.Product, parts)


@chain_of.register
def _(kernel: Scaled, where: Where) -> chains.Chain | No:
    part = chain_of(kernel.kernel, where)
    return part if isinstance(part, No) else chains.Scaled(part, kernel.scale)


@chain_of.register
def _(kernel: ChangePoint, where: Where) -> chains.Chain | No:
    sides: list[Any] = [chain_of(side, where) for side in (kernel.before, kernel.after)]
    if no := first_no(*sides):
        return no
    scalar = lambda value: jnp.reshape(jnp.asarray(value), ())
    width = None if kernel.width is None else scalar(kernel.width)
    return chains.HandOver(sides[0], sides[1], scalar(kernel.location), width)


@chain_of.register
def _(kernel: Project, where: Where) -> No:
    return No("Project on one input only mirrors it: leave it out")


@chain_of.register
def _(kernel: Coregion, where: Where) -> chains.Chain:
    return shared_noise.Levels(kernel.matrix())


@chain_of.register(On)
@chain_of.register(Lagged)
def _(kernel: View, where: Where) -> chains.Chain | No:
    return chain_of(kernel.kernel, where)


@chain_of.register
def _(kernel: MaternFilters, where: Where) -> chains.Chain:
    rates, loadings = kernel.rates(kernel.lengthscale), jnp.asarray(kernel.loadings)
    if rates.ndim == 3:
        rates = rates[..., 0]
    parts: list[chains.Chain] = [
        shared_noise.MaternFilters(kernel.states, rates[:, m], loadings[:, m]) for m in range(loadings.shape[1])
    ]
    if kernel.own:
        rates, variance = kernel.rates(kernel.own_lengthscale), jnp.asarray(kernel.variance)
        rates = jnp.reshape(rates, variance.shape)
        own = tuple(chains.Matern(kernel.states, rate, size) for rate, size in zip(rates, variance, strict=True))
        parts.append(shared_noise.Apart(*own))  # type: ignore[arg-type]
    return chains.Sum(*parts)


@chain_of.register
def _(kernel: OfModes, where: Where) -> chains.Chain:
    return kernel.chain()


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
