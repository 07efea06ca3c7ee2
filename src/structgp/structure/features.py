"""Low rank plus diagonal: f = ψᵀa + rest, with few functions ψ of a row, weights a ~ N(0, I), and what they leave out of f.

A `FeatureMap` makes functions φ = R ψ of rows. Those that stay as they are while parameters move have a factor R that does
not, so that sums over rows are made once; others have R = I. `features_of(kernel, X)` finds the map of a kernel by one rule for
each node of the algebra, or answers `No` with the reason.
"""

from __future__ import annotations

import abc
import itertools
import math
from collections.abc import Callable
from functools import singledispatch
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._types import Point, Scalar
from ..inputs.layouts import Inputs
from ..kernels.algebra import Kernel, On, Scaled, Sum
from ..kernels.finite import DiscreteConvolution, FourierFeatures
from ..kernels.nonstationary import Constant, Linear, Polynomial
from ..kernels.views import Project
from ..linalg.features.totals import Totals, in_blocks, visited
from .base import No, Structure, first_no
from .dense import covariance

MOST_MONOMIALS = 3000
HELD = 2**26  # numbers: up to so many, the features of all rows are kept while sites are searched for


class FeatureMap(eqx.Module):
    """Functions φ of rows, and the factor R of their prior: ψ = R⁻¹φ have weights a ~ N(0, I)."""

    @property
    @abc.abstractmethod
    def size(self) -> int:
        """The number of functions."""

    @abc.abstractmethod
    def __call__(self, X: Float[Array, "N D"]) -> Float[Array, "F N"]:
        """φ at rows of the data."""

    def beyond(self, X: Float[Array, "N D"]) -> Float[Array, "F N"]:
        """φ at any rows, also where there are no data."""
        return self(X)

    def whiten(self, columns: Float[Array, "F C"]) -> Float[Array, "F C"]:
        """R⁻¹ times columns."""
        return columns

    def unwhiten(self, columns: Float[Array, "F C"]) -> Float[Array, "F C"]:
        """R⁻ᵀ times columns."""
        return columns

    def rest(self, phi: Float[Array, "F N"]) -> Float[Array, " N"]:
        """What the functions leave out of the prior variance of f, at rows where they have these values."""
        return jnp.zeros(phi.shape[1])

    def left_out(self, explained: Float[Array, " F"], sums: Totals) -> Float[Array, ""]:
        """The sum of w times that over all rows, given Σ w ψ² for each function."""
        return jnp.zeros(())


class Made(FeatureMap):
    """Features that were made beforehand: rows are their values."""

    of: FeatureMap

    @property
    def size(self) -> int:
        return self.of.size

    def __call__(self, X: Float[Array, "N F"]) -> Float[Array, "F N"]:
        return X.T

    def whiten(self, columns: Float[Array, "F C"]) -> Float[Array, "F C"]:
        return self.of.whiten(columns)

    def unwhiten(self, columns: Float[Array, "F C"]) -> Float[Array, "F C"]:
        return self.of.unwhiten(columns)

    def rest(self, phi: Float[Array, "F N"]) -> Float[Array, " N"]:
        return self.of.rest(phi)

    def left_out(self, explained: Float[Array, " F"], sums: Totals) -> Float[Array, ""]:
        return self.of.left_out(explained, sums)


class Features(Structure):
    """The map of a prior and the rows of the data; perhaps with the features of all of them at hand."""

    map: FeatureMap
    X: Float[Array, "N D"]
    held: Float[Array, "F N"] | None = None

    def blocks(self) -> tuple[Callable[[Any], Any], Float[Array, " B *block"]]:
        """How features are made of blocks of rows, and the blocks: features at hand are one, which compiles best."""
        return (self.map, in_blocks(self.X)) if self.held is None else (_as_they_are, self.held[None])

    def computed(self, signed: bool) -> Features:
        """The same with all features, if they are few enough to keep."""
        if self.held is not None or self.map.size * len(self.X) > HELD:
            return self
        if isinstance(self.map, Made):
            return Features(self.map, self.X, self.map(self.X))
        return Features(self.map, self.X, visited(lambda rows: self.map(rows).T, in_blocks(self.X), len(self.X)).T)


_as_they_are = jax.tree_util.Partial(lambda block: block)


def features(kernel: Kernel, inputs: Inputs) -> Features | No:
    """A kernel of few functions on any inputs, or why it is none."""
    X = jnp.asarray(inputs.points)
    found = features_of(kernel, X)
    return found if isinstance(found, No) else Features(found, X)


@singledispatch
def features_of(kernel: Kernel, X: Float[Array, "N D"]) -> FeatureMap | No:
    """The functions that a kernel is made of, for rows like these, by node."""
    return No(f"{type(kernel).__name__} is not a sum of a few functions with independent weights")


class FewFunctions(Kernel):
    """The covariance of functions with independent weights, given as they are: ψ(x)ᵀψ(z), and the rest where x = z."""

    map: FeatureMap

    def between(self, x: Point, z: Point) -> Scalar:
        phi, other = (self.map.beyond(point[None]) for point in (x, z))
        return jnp.sum(self.map.whiten(phi) * self.map.whiten(other)) + jnp.all(x == z) * self.map.rest(phi)[0]


@features_of.register
def _(kernel: FewFunctions, X: Float[Array, "N D"]) -> FeatureMap:
    return kernel.map


class Level(FeatureMap):
    """A constant."""

    scale: Float[Array, ""]

    size = 1

    def __call__(self, X: Float[Array, "N D"]) -> Float[Array, "F N"]:
        return jnp.full((1, len(X)), self.scale)


class Slopes(FeatureMap):
    """The columns, less their centres."""

    scale: Float[Array, " D"]
    center: Float[Array, " D"]

    @property
    def size(self) -> int:
        return self.scale.shape[0]

    def __call__(self, X: Float[Array, "N D"]) -> Float[Array, "F N"]:
        return self.scale[:, None] * (X - self.center).T


class Monomials(FeatureMap):
    """Products of powers of the columns."""

    scale: Float[Array, " F"]
    powers: tuple[tuple[int, ...], ...] = eqx.field(static=True)  # of each function, of each column

    @property
    def size(self) -> int:
        return len(self.powers)

    def __call__(self, X: Float[Array, "N D"]) -> Float[Array, "F N"]:
        powers = np.asarray(self.powers)
        table = jnp.stack([X.T**power for power in range(powers.max() + 1)])  # p D N
        chosen = table[powers, np.arange(powers.shape[1])]  # F D N
        return self.scale[:, None] * jnp.prod(chosen, axis=1)


class BumpFeatures(FeatureMap):
    """What a kernel makes of rows and each of a few centres."""

    kernel: Kernel
    centres: Float[Array, "F D"]
    scale: Float[Array, " F"]

    @property
    def size(self) -> int:
        return self.centres.shape[0]

    def __call__(self, X: Float[Array, "N D"]) -> Float[Array, "F N"]:
        return self.scale[:, None] * covariance(self.kernel, self.centres, X)


class WaveFeatures(FeatureMap):
    """Cosines and sines of given frequencies."""

    frequencies: Float[Array, "W D"]
    scale: Float[Array, ""]

    @property
    def size(self) -> int:
        return 2 * self.frequencies.shape[0]

    def __call__(self, X: Float[Array, "N D"]) -> Float[Array, "F N"]:
        angle = self.frequencies @ X.T
        return self.scale * jnp.concatenate([jnp.cos(angle), jnp.sin(angle)])


class Stacked(FeatureMap):
    """The functions of several terms, which are independent."""

    parts: tuple[FeatureMap, ...]

    @property
    def size(self) -> int:
        return sum(part.size for part in self.parts)

    def __call__(self, X: Float[Array, "N D"]) -> Float[Array, "F N"]:
        return jnp.concatenate([part(X) for part in self.parts])

    def beyond(self, X: Float[Array, "N D"]) -> Float[Array, "F N"]:
        return jnp.concatenate([part.beyond(X) for part in self.parts])

    def whiten(self, columns: Float[Array, "F C"]) -> Float[Array, "F C"]:
        return jnp.concatenate([part.whiten(rows) for part, rows in self._each(columns)])

    def unwhiten(self, columns: Float[Array, "F C"]) -> Float[Array, "F C"]:
        return jnp.concatenate([part.unwhiten(rows) for part, rows in self._each(columns)])

    def rest(self, phi: Float[Array, "F N"]) -> Float[Array, " N"]:
        return sum((part.rest(rows) for part, rows in self._each(phi)), jnp.zeros(phi.shape[1]))

    def left_out(self, explained: Float[Array, " F"], sums: Totals) -> Float[Array, ""]:
        return sum((part.left_out(rows, sums) for part, rows in self._each(explained)), jnp.zeros(()))

    def alone(self, psi: Float[Array, "F N"], number: int) -> Float[Array, "F N"]:
        """ψ of one term, and zeros for the others."""
        return jnp.concatenate([rows * (i == number) for i, (_, rows) in enumerate(self._each(psi))])

    def _each(self, rows: Array) -> list[tuple[FeatureMap, Array]]:
        ends = np.cumsum([part.size for part in self.parts])[:-1]
        return list(zip(self.parts, jnp.split(rows, ends), strict=True))


class Rescaled(FeatureMap):
    """Functions times a number."""

    of: FeatureMap
    scale: Float[Array, ""]

    @property
    def size(self) -> int:
        return self.of.size

    def __call__(self, X: Float[Array, "N D"]) -> Float[Array, "F N"]:
        return self.scale * self.of(X)


class Through(FeatureMap):
    """Functions of some columns, or of projections."""

    of: FeatureMap
    view: On | Project

    @property
    def size(self) -> int:
        return self.of.size

    def __call__(self, X: Float[Array, "N D"]) -> Float[Array, "F N"]:
        return self.of(self.view.seen(X))


@features_of.register
def _(kernel: Constant, X: Float[Array, "N D"]) -> FeatureMap:
    return Level(jnp.sqrt(jnp.reshape(kernel.variance, ())))


@features_of.register
def _(kernel: Linear, X: Float[Array, "N D"]) -> FeatureMap:
    kernel.between(X[0], X[0])  # which refuses another number of columns
    every = lambda values: jnp.broadcast_to(jnp.asarray(values), X.shape[1:])
    return Slopes(jnp.sqrt(every(kernel.variance)), every(kernel.center))


@features_of.register
def _(kernel: Polynomial, X: Float[Array, "N D"]) -> FeatureMap | No:
    p, D = kernel.degree, X.shape[1]
    count = math.comb(D + p, p)
    if count > MOST_MONOMIALS:
        return No(f"a polynomial of degree {p} in {D} columns has {count} monomials, and {MOST_MONOMIALS} are the most")
    chosen = itertools.combinations_with_replacement(range(D + 1), p)  # the last stands for the offset
    counts = np.array([np.bincount(which, minlength=D + 1) for which in chosen])
    ways = np.array([math.factorial(p) / math.prod(math.factorial(power) for power in row) for row in counts])
    scale = jnp.sqrt(kernel.variance * ways) * jnp.asarray(kernel.offset) ** (0.5 * counts[:, -1])
    return Monomials(scale, tuple(tuple(int(power) for power in row[:-1]) for row in counts))


@features_of.register
def _(kernel: DiscreteConvolution, X: Float[Array, "N D"]) -> FeatureMap:
    jax.eval_shape(kernel.between, X[0], X[0])  # which refuses another number of columns
    centres = jnp.asarray(kernel.centres)
    return BumpFeatures(kernel.kernel, centres, jnp.broadcast_to(jnp.sqrt(jnp.asarray(kernel.variance)), centres.shape[:1]))


@features_of.register
def _(kernel: FourierFeatures, X: Float[Array, "N D"]) -> FeatureMap:
    jax.eval_shape(kernel.between, X[0], X[0])
    waves = jnp.asarray(kernel.frequencies) / jnp.asarray(kernel.lengthscale)
    return WaveFeatures(waves, jnp.sqrt(jnp.reshape(kernel.variance, ()) / len(waves)))


@features_of.register
def _(kernel: Sum, X: Float[Array, "N D"]) -> FeatureMap | No:
    parts: list[Any] = [features_of(term, X) for term in kernel.terms]
    return first_no(*parts) or Stacked(tuple(parts))


@features_of.register
def _(kernel: Scaled, X: Float[Array, "N D"]) -> FeatureMap | No:
    inner = features_of(kernel.kernel, X)
    return inner if isinstance(inner, No) else Rescaled(inner, jnp.sqrt(jnp.reshape(kernel.scale, ())))


@features_of.register(On)
@features_of.register(Project)
def _(kernel: On | Project, X: Float[Array, "N D"]) -> FeatureMap | No:
    inner = features_of(kernel.kernel, kernel.seen(X))
    return inner if isinstance(inner, No) else Through(inner, kernel)
