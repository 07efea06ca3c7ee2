"""Integrals of the process: ∫ f dμ is Gaussian with f, and has covariances that are integrals of the kernel.

With z(x) = ∫ k(t, x) dμ(t) and V = ∬ k dμ dμ,

    ∫f dμ | data  ~  N(zᵀC⁻¹y, V − zᵀC⁻¹z),

so that z, taken as one more column of targets, is all that an engine needs: O(N) along a chain. μ is the volume of a box, or a
normal distribution of independent columns. A stationary kernel of one column, k(τ), has over an interval [a, b], with
A(τ) = ∫₀^τ k and B(τ) = ∫₀^τ A, z(x) = A(b − x) − A(a − x) with A odd, and V = 2B(b − a); under N(m, s²), with
G(τ, s) = E k(τ + sε), z(x) = G(x − m, s) and V = G(0, √2 s). Products over columns multiply. Kernels without a rule are
integrated by nodes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import singledispatch
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import erf
from jaxtyping import Array, Float

from ..kernels.algebra import Kernel, On, Product, Scaled, Sum
from ..kernels.metrics import Metric
from ..kernels.nonstationary import Constant
from ..kernels.stationary import HalfIntegerMatern, ProductMatern, Ricker, SquaredExponential
from ..linalg.normal import log_ndtr
from ..linalg.quadrature import gauss_legendre
from .dense import covariance

NODES = {1: 200, 2: 40, 3: 16, 4: 9}  # for each column, by the number of columns
NARROW = 1e-4  # standard deviation, in lengthscales, below which a normal distribution is as good as a point
MOST_NORMAL = 80  # nodes under a normal distribution that can be computed

Pair = tuple[Float[Array, " N"], Float[Array, ""]]


class Column(NamedTuple):
    """A stationary correlation along one column, in units of its lengthscale: A, B and G."""

    once: Callable[[Any], Any]
    twice: Callable[[Any], Any]
    blurred: Callable[[Any, Any], Any]


class Box(eqx.Module):
    """The volume of a box: its ends, a pair for each column."""

    ends: Float[Any, "D 2"]

    @property
    def dimension(self) -> int:
        """Of the places."""
        return self.ends.shape[0]

    @property
    def total(self) -> Array:
        """∫ dμ."""
        return jnp.prod(self.ends[:, 1] - self.ends[:, 0])

    def of(self, dims: Any) -> Box:
        """Along some columns."""
        return Box(jnp.asarray(self.ends)[np.asarray(dims, dtype=int)])

    def stationary(self, column: Column, ell: Float[Array, " D"], X: Float[Array, "N D"]) -> tuple[Array, Array]:
        """z and V of each column."""
        to_ends = (self.ends[None] - X[:, :, None]) / ell[None, :, None]
        odd = jnp.sign(to_ends) * column.once(jnp.abs(to_ends))
        return ell * (odd[..., 1] - odd[..., 0]), 2 * ell**2 * column.twice((self.ends[:, 1] - self.ends[:, 0]) / ell)

    def nodes(self, count: int) -> tuple[Array, Array]:
        """Places and weights along each column."""
        places, weights = gauss_legendre(count)
        wide = self.ends[:, 1] - self.ends[:, 0]
        return self.ends[:, 0] + wide * places[:, None], wide * weights[:, None]


class NormalMeasure(eqx.Module):
    """A normal distribution of independent columns."""

    mean: Float[Any, " D"]
    sd: Float[Any, " D"]

    @property
    def dimension(self) -> int:
        """Of the places."""
        return self.mean.shape[0]

    @property
    def total(self) -> Array:
        """∫ dμ."""
        return jnp.ones(())

    def of(self, dims: Any) -> NormalMeasure:
        """Along some columns."""
        rows = np.asarray(dims, dtype=int)
        return NormalMeasure(jnp.asarray(self.mean)[rows], jnp.asarray(self.sd)[rows])

    def stationary(self, column: Column, ell: Float[Array, " D"], X: Float[Array, "N D"]) -> tuple[Array, Array]:
        """z and V of each column."""
        wide = self.sd / ell
        return column.blurred((X - self.mean) / ell, wide), column.blurred(jnp.zeros_like(wide), math.sqrt(2) * wide)

    def nodes(self, count: int) -> tuple[Array, Array]:
        """Places and weights along each column."""
        places, weights = np.polynomial.hermite_e.hermegauss(min(count, MOST_NORMAL))
        ones = jnp.ones(self.dimension)
        return self.mean + self.sd * places[:, None], ones * (weights / weights.sum())[:, None]


Measure = Box | NormalMeasure


@singledispatch
def integrals(kernel: Kernel, X: Float[Array, "N D"], measure: Measure) -> Pair:
    """∫ k(t, x) dμ(t) for all rows of X, and ∬ k: one rule for each node."""
    nodes, weights = nodes_of(measure)
    rows = lambda Z: covariance(kernel, Z, nodes) @ weights
    return rows(X), weights @ rows(nodes)


def nodes_of(measure: Measure) -> tuple[Float[Array, "M D"], Float[Array, " M"]]:
    """Places and weights that integrate smooth functions."""
    D = measure.dimension
    if D not in NODES:
        raise ValueError(
            f"this kernel has no closed integrals over {D} columns, which are too many for quadrature: take SquaredExponential "
            "or ProductMatern, which have"
        )
    places, weights = measure.nodes(NODES[D])
    grid = lambda parts: jnp.stack([part.ravel() for part in jnp.meshgrid(*parts.T, indexing="ij")])
    return grid(places).T, jnp.prod(grid(weights), axis=0)


def _by_columns(column: Column, lengthscale: Any, variance: Any, X: Any, measure: Measure) -> Pair:
    """The product over columns of stationary kernels that differ in their lengthscale."""
    z, V = measure.stationary(column, jnp.broadcast_to(lengthscale, (measure.dimension,)), X)
    return variance * jnp.prod(z, axis=1), variance * jnp.prod(V)


def _gauss(t: Any) -> Any:
    return math.sqrt(math.pi / 2) * erf(t / math.sqrt(2))


def _blurred_gauss(t: Any, s: Any) -> Any:
    return jnp.exp(-0.5 * t * t / (1 + s * s)) / jnp.sqrt(1 + s * s)


SMOOTH = Column(_gauss, lambda t: t * _gauss(t) + jnp.expm1(-0.5 * t * t), _blurred_gauss)
RICKER = Column(
    lambda t: t * jnp.exp(-0.5 * t * t),
    lambda t: -jnp.expm1(-0.5 * t * t),
    lambda t, s: (1 - t * t / (1 + s * s)) / (1 + s * s) * _blurred_gauss(t, s),
)


def matern_column(p: int) -> Column:
    """The Matérn correlation of order p + ½, a polynomial times an exponential: Γ functions of whole numbers.

    Under a normal distribution each side of zero is a moment of a truncated one: with m = t − λs²,
    ∫₀^∞ rⁿ e^{−λr} N(r; t, s²) dr = e^{λ²s²/2 − λt} Jₙ, J₀ = Φ(m/s), J₁ = m J₀ + s φ(m/s), Jₙ = m Jₙ₋₁ + (n − 1)s² Jₙ₋₂.
    """
    nu = p + 0.5
    rate = math.sqrt(2 * nu)
    weight = lambda i: (
        math.factorial(p)
        / math.factorial(2 * p)
        * math.factorial(p + i)
        / (math.factorial(i) * math.factorial(p - i))
        * 2.0 ** (p - i)
    )
    powers = [(p - i, weight(i)) for i in range(p + 1)]  # of s = √(2ν) τ

    def lower(n: int, s: Any) -> Any:
        """∫₀^s tⁿ e^{−t} dt."""
        return math.factorial(n) * -jnp.expm1(-s + jnp.log(sum(s**k / math.factorial(k) for k in range(n + 1))))

    def A(t: Any) -> Any:
        s = rate * t
        return sum(w * lower(n, s) for n, w in powers) / rate

    def B(t: Any) -> Any:  # ∫₀^s (s − t) k(t) dt
        s = rate * t
        return sum(w * (s * lower(n, s) - lower(n + 1, s)) for n, w in powers) / rate**2

    def side(t: Any, s: Any) -> Any:
        m = t - rate * s * s
        shift = 0.5 * (rate * s) ** 2 - rate * t
        moments = [jnp.exp(shift + log_ndtr(m / s))]
        moments.append(m * moments[0] + s * jnp.exp(-0.5 * (t / s) ** 2) / math.sqrt(2 * math.pi))  # e^shift φ(m/s)
        for n in range(2, p + 1):
            moments.append(m * moments[-1] + (n - 1) * s * s * moments[-2])
        return sum(w * rate**n * moments[n] for n, w in powers)

    def G(t: Any, s: Any) -> Any:
        wide = jnp.maximum(s, NARROW)  # a point has no width
        return side(t, wide) + side(-t, wide)

    return Column(A, B, G)


@integrals.register
def _(kernel: SquaredExponential, X: Any, measure: Measure) -> Pair:
    if isinstance(kernel.lengthscale, Metric):
        return integrals.dispatch(Kernel)(kernel, X, measure)
    return _by_columns(SMOOTH, kernel.lengthscale, kernel.variance, X, measure)


@integrals.register
def _(kernel: Ricker, X: Any, measure: Measure) -> Pair:
    return _by_columns(RICKER, kernel.lengthscale, kernel.variance, X, measure)


@integrals.register
def _(kernel: ProductMatern, X: Any, measure: Measure) -> Pair:
    return _by_columns(matern_column(round(kernel.nu - 0.5)), kernel.lengthscale, kernel.variance, X, measure)


@integrals.register
def _(kernel: HalfIntegerMatern, X: Any, measure: Measure) -> Pair:
    if measure.dimension > 1 or isinstance(kernel.lengthscale, Metric):
        return integrals.dispatch(Kernel)(kernel, X, measure)
    return _by_columns(matern_column(kernel.order), kernel.lengthscale, kernel.variance, X, measure)


@integrals.register
def _(kernel: Constant, X: Any, measure: Measure) -> Pair:
    return jnp.full(len(X), kernel.variance * measure.total), kernel.variance * measure.total**2


@integrals.register
def _(kernel: Sum, X: Any, measure: Measure) -> Pair:
    parts = [integrals(term, X, measure) for term in kernel.terms]
    return sum(z for z, _ in parts), sum(V for _, V in parts)  # type: ignore[return-value]


@integrals.register
def _(kernel: Scaled, X: Any, measure: Measure) -> Pair:
    z, V = integrals(kernel.kernel, X, measure)
    return kernel.scale * z, kernel.scale * V


@integrals.register
def _(kernel: On, X: Any, measure: Measure) -> Pair:
    z, V = integrals(kernel.kernel, kernel.seen(X), measure.of(kernel.dims))
    others = measure.of([column for column in range(measure.dimension) if column not in kernel.dims]).total
    return z * others, V * others**2


@integrals.register
def _(kernel: Product, X: Any, measure: Measure) -> Pair:
    dims = [set(factor.dims) if isinstance(factor, On) else None for factor in kernel.factors]
    known = [one for one in dims if one is not None]
    apart = len(known) == len(dims) and sum(map(len, known)) == len(set().union(*known))
    if not apart:
        return integrals.dispatch(Kernel)(kernel, X, measure)
    z, V, used = jnp.ones(len(X)), jnp.ones(()), jnp.ones(())
    for factor in kernel.factors:  # each alone has integrated over all other columns
        own = measure.of(factor.dims)  # type: ignore[attr-defined]
        part, whole = integrals(factor.kernel, factor.seen(X), own)  # type: ignore[attr-defined]
        z, V, used = z * part, V * whole, used * own.total
    others = measure.total / used
    return z * others, V * others**2


def feature_integrals(features: Callable[[Any], Any], measure: Measure) -> Float[Array, " P"]:
    """∫ φ dμ of basis functions, by quadrature."""
    nodes, weights = nodes_of(measure)
    return weights @ jax.vmap(features)(nodes)
