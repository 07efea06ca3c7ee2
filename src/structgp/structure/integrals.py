"""Integrals of the process: ∫ f over a box is Gaussian with f, and has covariances that are integrals of the kernel.

With z(x) = ∫ k(t, x) dt over the box and V = ∬ k over it twice,

    ∫f | data  ~  N(zᵀC⁻¹y, V − zᵀC⁻¹z),

so that z, taken as one more column of targets, is all that an engine needs: O(N) along a chain. A stationary kernel of one
column, k(τ), has them through A(τ) = ∫₀^τ k and B(τ) = ∫₀^τ A: z(x) = A(b − x) − A(a − x) with A odd, and V = 2B(b − a).
Products over columns multiply. Kernels without a rule are integrated by Gauss and Legendre's nodes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import singledispatch
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import erf
from jaxtyping import Array, Float

from ..kernels.algebra import Kernel, Product, Scaled, Sum
from ..kernels.metrics import Metric
from ..kernels.nonstationary import Constant
from ..kernels.stationary import HalfIntegerMatern, ProductMatern, Ricker, SquaredExponential
from ..kernels.views import On
from ..linalg.quadrature import gauss_legendre
from .dense import covariance

NODES = {1: 200, 2: 40, 3: 16, 4: 9}  # for each column, by the number of columns

Box = Float[Any, "D 2"]
Pair = tuple[Float[Array, " N"], Float[Array, ""]]
Columns = tuple[Callable[[Any], Any], Callable[[Any], Any]]  # A and B of one column, in units of its lengthscale


@singledispatch
def integrals(kernel: Kernel, X: Float[Array, "N D"], box: Box) -> Pair:
    """∫ k(t, x) dt for all rows of X, and ∬ k: one rule for each node."""
    nodes, weights = nodes_in(box)
    rows = lambda Z: covariance(kernel, Z, nodes) @ weights
    return rows(X), weights @ rows(nodes)


def nodes_in(box: Box) -> tuple[Float[Array, "M D"], Float[Array, " M"]]:
    """Places and weights that integrate smooth functions over a box."""
    D = box.shape[0]
    if D not in NODES:
        raise ValueError(
            f"this kernel has no closed integrals over {D} columns, which are too many for quadrature: take SquaredExponential "
            "or ProductMatern, which have"
        )
    places, weights = gauss_legendre(NODES[D])
    unit = np.stack([part.ravel() for part in np.meshgrid(*[places] * D, indexing="ij")], axis=1)
    mass = np.prod(np.stack([part.ravel() for part in np.meshgrid(*[weights] * D, indexing="ij")]), axis=0)
    wide = box[:, 1] - box[:, 0]
    return jnp.asarray(box[:, 0] + wide * unit), jnp.asarray(mass * jnp.prod(wide))


def _by_columns(columns: Columns, lengthscale: Any, variance: Any, X: Any, box: Box) -> Pair:
    """The product over columns of stationary kernels that differ in their lengthscale."""
    A, B = columns
    ell = jnp.broadcast_to(lengthscale, (box.shape[0],))
    to_ends = (box[None] - X[:, :, None]) / ell[None, :, None]
    odd = jnp.sign(to_ends) * A(jnp.abs(to_ends))
    z = jnp.prod(ell * (odd[..., 1] - odd[..., 0]), axis=1)
    return variance * z, variance * jnp.prod(2 * ell**2 * B((box[:, 1] - box[:, 0]) / ell))


def _gauss(t: Any) -> Any:
    return math.sqrt(math.pi / 2) * erf(t / math.sqrt(2))


SMOOTH: Columns = (_gauss, lambda t: t * _gauss(t) + jnp.expm1(-0.5 * t * t))
RICKER: Columns = (lambda t: t * jnp.exp(-0.5 * t * t), lambda t: -jnp.expm1(-0.5 * t * t))


def matern_columns(p: int) -> Columns:
    """A and B of the Matérn correlation of order p + ½, a polynomial times an exponential: Γ functions of whole numbers."""
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

    return A, B


@integrals.register
def _(kernel: SquaredExponential, X: Any, box: Box) -> Pair:
    if isinstance(kernel.lengthscale, Metric):
        return integrals.dispatch(Kernel)(kernel, X, box)
    return _by_columns(SMOOTH, kernel.lengthscale, kernel.variance, X, box)


@integrals.register
def _(kernel: Ricker, X: Any, box: Box) -> Pair:
    return _by_columns(RICKER, kernel.lengthscale, kernel.variance, X, box)


@integrals.register
def _(kernel: ProductMatern, X: Any, box: Box) -> Pair:
    return _by_columns(matern_columns(round(kernel.nu - 0.5)), kernel.lengthscale, kernel.variance, X, box)


@integrals.register
def _(kernel: HalfIntegerMatern, X: Any, box: Box) -> Pair:
    if box.shape[0] > 1 or isinstance(kernel.lengthscale, Metric):
        return integrals.dispatch(Kernel)(kernel, X, box)
    return _by_columns(matern_columns(kernel.order), kernel.lengthscale, kernel.variance, X, box)


@integrals.register
def _(kernel: Constant, X: Any, box: Box) -> Pair:
    volume = jnp.prod(box[:, 1] - box[:, 0])
    return jnp.full(len(X), kernel.variance * volume), kernel.variance * volume**2


@integrals.register
def _(kernel: Sum, X: Any, box: Box) -> Pair:
    parts = [integrals(term, X, box) for term in kernel.terms]
    return sum(z for z, _ in parts), sum(V for _, V in parts)  # type: ignore[return-value]


@integrals.register
def _(kernel: Scaled, X: Any, box: Box) -> Pair:
    z, V = integrals(kernel.kernel, X, box)
    return kernel.scale * z, kernel.scale * V


@integrals.register
def _(kernel: On, X: Any, box: Box) -> Pair:
    z, V = integrals(kernel.kernel, kernel.select(X), jnp.asarray(box)[jnp.asarray(kernel.dims)])
    others = jnp.delete(jnp.asarray(box), np.asarray(kernel.dims), axis=0, assume_unique_indices=True)
    volume = jnp.prod(others[:, 1] - others[:, 0])
    return z * volume, V * volume**2


@integrals.register
def _(kernel: Product, X: Any, box: Box) -> Pair:
    dims = [set(factor.dims) if isinstance(factor, On) else None for factor in kernel.factors]
    known = [one for one in dims if one is not None]
    apart = len(known) == len(dims) and sum(map(len, known)) == len(set().union(*known))
    if not apart:
        return integrals.dispatch(Kernel)(kernel, X, box)
    volume = jnp.prod(box[:, 1] - box[:, 0])
    z, V, used = jnp.ones(len(X)), jnp.ones(()), jnp.ones(())
    for factor in kernel.factors:  # each alone has integrated over all other columns
        own = jnp.asarray(box)[jnp.asarray(factor.dims)]  # type: ignore[attr-defined]
        part, whole = integrals(factor.kernel, factor.select(X), own)  # type: ignore[attr-defined]
        z, V, used = z * part, V * whole, used * jnp.prod(own[:, 1] - own[:, 0])
    return z * volume / used, V * (volume / used) ** 2


def feature_integrals(features: Callable[[Any], Any], box: Box) -> Float[Array, " P"]:
    """∫ φ(x) dx of basis functions, by quadrature."""
    nodes, weights = nodes_in(box)
    return weights @ jax.vmap(features)(nodes)
