"""Outputs that depend on each other because filters make them of the same white noises (process convolutions).

The inputs are (x…, number of the output). Output i is Σ_m v_im (h_im ∗ w_m), and, unless it is not wanted, a part of its own.
Every filter has unit energy, so that squared loadings are variances, and add up. Output i comes later where `Lagged` says so.
"""

from __future__ import annotations

import abc
import math
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .._types import Numbers, Point, Scalar, double_precision, how_many, whole
from ..linalg.markov.shared_noise import Modes, matern_filters_covariance
from ..parameters.supports import nonnegative, positive, real
from ..parameters.tree import Annotated, Parametrised, parameter
from .algebra import Kernel
from .outputs import OutputColumn, check_numbers, number_of, outputs_of

SOURCES = (1.0, 1 / 3, 2.0, 1 / 8, 4.0)  # lengthscales of several sources: those that begin alike stay copies of each other


class Heard(NamedTuple):
    """A place of one output: how it hears the sources, and itself."""

    place: Any
    number: Any
    loadings: Any
    lengthscale: Any
    variance: Any
    own_lengthscale: Any


class Filters(Kernel):
    """Outputs with loadings (P, M) on M sources, each through a filter with a lengthscale of its own, (P, M).

    `variance` (P,) is that of each output's own part, with lengthscales of its own; ``own=False`` leaves it out.
    """

    outputs: int | None = eqx.field(static=True, default=None)
    sources: int | None = eqx.field(static=True, default=None)
    own: bool = eqx.field(static=True, default=True)
    loadings: Numbers = parameter(None, real)
    lengthscale: Numbers = parameter(None, positive)
    variance: Numbers = parameter(None, nonnegative)
    own_lengthscale: Numbers = parameter(None, positive)

    def __post_init__(self) -> None:
        given = self.loadings.value if isinstance(self.loadings, Annotated) else self.loadings
        if given is not None and np.ndim(given) == 2:
            P, M = np.shape(given)
        else:
            P, M = self.outputs or 2, self.sources or 1
        m, i = np.arange(M), np.arange(P)[:, None]
        scales = np.resize(SOURCES, M)
        defaults: dict[str, Any] = {
            "outputs": P,
            "sources": M,
            "loadings": 0.9 * np.cos(np.pi * m * (i + 0.5) / P) / np.sqrt(M),
            "lengthscale": np.tile(scales, (P, 1)),
        }
        if self.own:
            defaults |= {"variance": np.full(P, 0.1), "own_lengthscale": np.ones(P)}
        for name, value in defaults.items():
            if getattr(self, name) is None:
                object.__setattr__(self, name, value)
        Parametrised.__post_init__(self)

    def __check_init__(self) -> None:
        P, M = self.outputs, self.sources
        shapes: dict[str, list[Any]] = {
            "loadings": [(P, M)],
            "lengthscale": [(P, M)],
            "variance": [(P,)],
            "own_lengthscale": [(P,)],
        }
        for name, allowed in shapes.items():
            value = getattr(self, name)
            if value is None:
                continue
            shape = np.shape(value)
            if shape not in allowed and not ("lengthscale" in name and shape[:-1] in allowed):
                raise ValueError(
                    f"{type(self).__name__} of {P} outputs and {how_many(M, 'source')} needs {name} of shape "
                    f"{allowed[0]}, got {shape}"
                )

    @abc.abstractmethod
    def together(self, later: Any, earlier: Any, apart: Any) -> Scalar:
        """The covariance of two filters of one white noise with these lengthscales, at places that are so far apart, (D,)."""

    def heard(self, x: Point) -> Heard:
        """A place with the numbers of its output."""
        i = number_of(x[-1])
        none = jnp.zeros(())
        own = (self.variance, self.own_lengthscale) if self.own else (none, none)
        variance, own_lengthscale = (jnp.asarray(part)[i] if self.own else none for part in own)
        return Heard(x[:-1], i, jnp.asarray(self.loadings)[i], jnp.asarray(self.lengthscale)[i], variance, own_lengthscale)

    def of_pair(self, a: Heard, b: Heard) -> Scalar:
        """The covariance of two places that were heard."""
        apart = a.place - b.place
        shared = jax.vmap(lambda p, q: self.together(p, q, apart))(a.lengthscale, b.lengthscale)
        total = jnp.sum(a.loadings * b.loadings * shared)
        if not self.own:
            return total
        return total + jnp.where(a.number == b.number, a.variance, 0.0) * self.together(
            a.own_lengthscale, a.own_lengthscale, apart
        )

    def check_points(self, X: Any) -> None:
        check_numbers(self, X[:, -1], int(self.outputs or 0))

    def between(self, x: Point, z: Point) -> Scalar:
        if x.shape[-1] < 2:
            name = type(self).__name__
            raise ValueError(f"{name} needs places and, in the last column, the number of the output, but there is one column")
        return self.of_pair(self.heard(x), self.heard(z))


class GaussianFilters(Filters):
    """Gaussian filters, in any dimension: alone each output has the squared-exponential covariance of its lengthscale.

    k_ij = Σ_m v_im v_jm Π_d √(2ℓ_iℓ_j/(ℓ_i²+ℓ_j²)) exp(−d²/(ℓ_i²+ℓ_j²)). Lengthscales (P, M, D) are one for each column.
    """

    def together(self, later: Any, earlier: Any, apart: Any) -> Scalar:
        p, q = (jnp.broadcast_to(part, apart.shape) for part in (later, earlier))
        squared = p * p + q * q
        return jnp.prod(jnp.sqrt(2 * p * q / squared)) * jnp.exp(-jnp.sum(apart * apart / squared))


class LowPassFilters(Filters):
    """Ideal low-pass filters, in any dimension: frequencies up to 1/(2 lengthscale) pass, along each column.

    k_ij = Σ_m v_im v_jm Π_d √(ℓ_min/ℓ_max) sinc(d/ℓ_max): the lower of the two cut-offs decides.
    """

    def together(self, later: Any, earlier: Any, apart: Any) -> Scalar:
        p, q = (jnp.broadcast_to(part, apart.shape) for part in (later, earlier))
        longest = jnp.maximum(p, q)
        return jnp.prod(jnp.sqrt(jnp.minimum(p, q) / longest) * jnp.sinc(apart / longest))


class MaternFilters(Filters):
    """Filters along time that make each output alone a Matérn process of order ν = ½, 3/2, 5/2, …: a finite state, O(N).

    The filters are causal: of two outputs the one with the longer lengthscale follows the other a little later.
    """

    nu: float = eqx.field(static=True, default=1.5)

    @property
    def states(self) -> int:
        """The number of states of one filter."""
        return round(self.nu + 0.5)

    def rates(self, lengthscale: Any) -> Any:
        """The rates that lengthscales stand for."""
        return math.sqrt(2 * self.nu) / jnp.asarray(lengthscale)

    def together(self, later: Any, earlier: Any, apart: Any) -> Scalar:
        if apart.shape[-1] != 1:
            raise ValueError(
                f"MaternFilters act along time, one column, but the places have {apart.shape[-1]}: GaussianFilters"
            )
        p, q = (jnp.reshape(self.rates(part), ()) for part in (later, earlier))
        ahead = apart[0] >= 0
        return matern_filters_covariance(jnp.where(ahead, p, q), jnp.where(ahead, q, p), jnp.abs(apart[0]), self.states)


class OfModes(Kernel):
    """Outputs along time that read the modes of one white noise: the inputs are (time, number of the output)."""

    @property
    @abc.abstractmethod
    def outputs(self) -> int:
        """How many there are."""

    @abc.abstractmethod
    def chain(self) -> Modes:
        """The modes, and how each output reads them."""

    def check_points(self, X: Any) -> None:
        check_numbers(self, X[:, -1], self.outputs)

    def between(self, x: Point, z: Point) -> Scalar:
        if x.shape[-1] != 2:
            raise ValueError(
                f"{type(self).__name__} act on (time, output), but the inputs have {how_many(x.shape[-1], 'column')}"
            )
        chain, later = self.chain(), x[0] >= z[0]
        i, j = (chain.rows(p[0], number_of(p[1])) for p in (x, z))
        first, second = jnp.where(later, i, j), jnp.where(later, j, i)
        return first @ chain.transition(jnp.abs(x[0] - z[0])) @ chain.start() @ second


class PoleFilters(OfModes):
    """Outputs along time as sums of modes of one white noise: h_i(t) = Σ_k e^{−rate_k t}(a_ik cos ω_k t + b_ik sin ω_k t).

    `weights` (P, K, 2) hold a and b, `frequency` the ω_k: zero for a real pole, where b means nothing. A tuning fork is one
    mode with b alone. Poles that meet blow up the weights: keep them apart, or take `MaternFilters`.
    """

    rate: Numbers = parameter((1.0,), positive)
    frequency: Numbers = parameter((0.0,), real)
    weights: Numbers = parameter((((1.0, 0.0),), ((1.0, 0.0),)), real)

    def __check_init__(self) -> None:
        K = np.shape(self.rate)
        if len(K) != 1 or np.shape(self.frequency) != K or np.shape(self.weights)[1:] != (*K, 2):
            raise ValueError(
                "PoleFilters needs K rates, K frequencies and weights of shape (P, K, 2), "
                f"got {np.shape(self.rate)}, {np.shape(self.frequency)} and {np.shape(self.weights)}"
            )

    @property
    def outputs(self) -> int:
        return len(self.weights)

    def chain(self) -> Modes:
        return Modes(self.rate, self.frequency, self.weights)


def _some(part: Any) -> Any:
    """Numbers that may be missing altogether."""
    return () if part is None else part


class TransferFunction(Parametrised):
    """A filter with impulse response Σ_k e^{−rate_k t}(cosine_k cos ω_k t + sine_k sin ω_k t), t ≥ 0.

    The first modes swing, as many as there are `frequency` and `sine`, if there are any; the others have real poles.
    """

    rate: Numbers = parameter((1.0,), positive)
    cosine: Numbers = parameter((1.0,), real)
    frequency: Numbers = parameter(None, positive)
    sine: Numbers = parameter(None, real)

    def __check_init__(self) -> None:
        K, cosines = np.shape(self.rate), np.shape(self.cosine)
        swinging, sines = (np.shape(_some(part)) for part in (self.frequency, self.sine))
        if len(K) != 1 or cosines != K or len(swinging) != 1 or sines != swinging or swinging > K:
            raise ValueError(
                "TransferFunction needs a rate and a cosine for each of K modes, and a frequency and a sine for those that "
                f"swing, got {K}, {cosines}, {swinging} and {sines}"
            )

    @property
    def modes(self) -> tuple[Any, Any, Any]:
        """Rates, frequencies and complex weights a − ib of all modes."""
        K = len(self.rate)
        wide = lambda part: jnp.concatenate([jnp.asarray(_some(part), dtype=float), jnp.zeros(K - len(_some(part)))])
        return jnp.asarray(self.rate), wide(self.frequency), jnp.asarray(self.cosine) - 1j * wide(self.sine)

    @property
    def poles(self) -> np.ndarray:
        """The poles in s."""
        rate, frequency = np.asarray(self.rate, dtype=float), np.asarray(_some(self.frequency), dtype=float)
        swinging = -rate[: len(frequency)] + 1j * frequency
        return np.sort_complex(np.concatenate([swinging, swinging.conj(), -rate[len(frequency) :] + 0j]))

    @double_precision
    def impulse(self, t: Any) -> Any:
        """The impulse response at t ≥ 0."""
        rate, frequency, weight = self.modes
        t = jnp.asarray(t)[..., None]
        return jnp.sum(jnp.exp(-rate * t) * jnp.real(weight * jnp.exp(1j * frequency * t)), axis=-1)

    @double_precision
    def at(self, s: Any) -> Any:
        """The transfer function at complex s."""
        rate, frequency, weight = self.modes
        ahead = jnp.asarray(s)[..., None] + rate
        return jnp.sum((jnp.real(weight) * ahead - jnp.imag(weight) * frequency) / (ahead**2 + frequency**2), axis=-1)


class Cascade(OfModes):
    """A record and what a system makes of it: output 0 is white noise through `source`, output 1 output 0 through `system`.

    Both are rational, so that the poles of output 1 are those of both: O(N) along time, with gaps and at uneven times. The
    poles of source and system must differ.
    """

    source: TransferFunction = TransferFunction()
    system: TransferFunction = TransferFunction((0.5,), (0.5,))

    @property
    def outputs(self) -> int:
        return 2

    def chain(self) -> Modes:
        parts = self.source.modes, self.system.modes
        heard = [
            weight * other.at(-rate + 1j * frequency)
            for (rate, frequency, weight), other in zip(parts, (self.system, self.source), strict=True)
        ]
        first = jnp.concatenate([parts[0][2], jnp.zeros(len(self.system.rate))])
        weights = jnp.stack([first, jnp.concatenate(heard)])
        rate, frequency = (jnp.concatenate([part[i] for part in parts]) for i in (0, 1))
        return Modes(rate, frequency, jnp.stack([jnp.real(weights), -jnp.imag(weights)], axis=-1))


class FIR(Kernel):
    """Outputs at whole times as finite filters of white noises: weights (P, q), or (P, M, q) for M noises.

    The covariance of outputs i and j, m steps apart, is Σ_k a_{k+m} b_k: nothing is left of it after q steps. On a lattice of
    several `axes` the weights are (P, q₁, q₂, …), or (P, M, q₁, q₂, …), and the inputs (place along each axis, output).
    """

    weights: Numbers = parameter(((1.0, 0.5), (0.5, 1.0)), real)
    axes: int = eqx.field(static=True, default=1)

    def __check_init__(self) -> None:
        if np.ndim(self.weights) - whole(self.axes, "axes", 1) not in (1, 2) or not np.size(self.weights):
            sizes = "q" if self.axes == 1 else ", ".join(f"q{k + 1}" for k in range(self.axes))
            along = f" along {self.axes} axes" if self.axes != 1 else ""
            raise ValueError(
                f"FIR{along} needs weights of shape (P, {sizes}), or (P, M, {sizes}) for M noises, got {np.shape(self.weights)}"
            )

    @property
    def reach(self) -> tuple[int, ...]:
        """How many weights there are along each axis."""
        return np.shape(self.weights)[-self.axes :]

    def correlations(self) -> Any:
        """c_ij(m) for m = −(q−1), …, q−1 along each axis, of shape (P, P, 2q − 1, …)."""
        W = jnp.asarray(self.weights)
        W = W if W.ndim == self.axes + 2 else W[:, None]
        along = tuple(range(2, 2 + self.axes))
        size = tuple(2 * q - 1 for q in self.reach)
        A = jnp.fft.rfftn(W, size, axes=along)
        return jnp.fft.fftshift(jnp.fft.irfftn(jnp.einsum("im...,jm...->ij...", A, jnp.conj(A)), size, axes=along), axes=along)

    def at_lags(self, i: Any, j: Any, m: Any) -> Any:
        """The covariance of outputs i and j at whole lags m, (…, axes)."""
        q = np.array(self.reach)
        inside = jnp.all(jnp.abs(m) < q, axis=-1)
        found = self.correlations()[(i, j, *jnp.moveaxis(jnp.clip(m + q - 1, 0, 2 * q - 2), -1, 0))]
        return jnp.where(inside, found, 0.0)

    def check_points(self, X: Any) -> None:
        check_numbers(self, X[:, -1], len(self.weights))
        places = np.asarray(X)[:, :-1]
        if np.any(places != np.round(places)):
            where = "times" if self.axes == 1 else "places"
            raise ValueError(f"FIR lives at whole {where}, got {places[places != np.round(places)][0]:g}")

    def check_columns(self, columns: int) -> None:
        """Refuse inputs of another dimension than the lattice."""
        if columns != self.axes + 1:
            acts = "(time, output)" if self.axes == 1 else f"({self.axes} places on a lattice, output)"
            raise ValueError(f"FIR acts on {acts}, but the inputs have {how_many(columns, 'column')}")

    def between(self, x: Point, z: Point) -> Scalar:
        self.check_columns(x.shape[-1])
        return self.at_lags(number_of(x[-1]), number_of(z[-1]), number_of(x[:-1] - z[:-1]))


@outputs_of.register
def _(kernel: Filters) -> OutputColumn:
    return OutputColumn(-1, int(kernel.outputs or 0))


@outputs_of.register
def _(kernel: OfModes) -> OutputColumn:
    return OutputColumn(-1, kernel.outputs)


@outputs_of.register
def _(kernel: FIR) -> OutputColumn:
    return OutputColumn(-1, len(kernel.weights))
