"""Spline features of Matérn processes on a line: a basis in which the process is nearly diagonal, and its exact inner products.

B-splines of degree 2n − 1 span a subspace of the Hilbert space of the Matérn process with n states on [a, b]. There, with the
rate λ, q = `diffusion(n)` and V = `stationary(n)` at unit rate and variance,

    ⟨f, g⟩ = (1/q) Σ_kl C(n,k) C(n,l) λ^{1−k−l} ∫ f^(k) g^(l)  +  Σ_kl (V⁻¹)_kl λ^{−k−l} f^(k)(a) g^(l)(a).

By the reproducing property the covariance of f(x) with the feature that belongs to φ is φ(x) itself, so that for a basis with
values φ(x) and inner products S the matrix Q(x, z) = φ(x)ᵀS⁻¹φ(z) is a projection of the covariance: K − Q is never negative.

In floating point S must be right in units of its own diagonal at every rate, or Q outgrows the covariance. For long length
scales polynomials of degree below n cost nearly nothing beside all else, so a basis that hides them in combinations loses
them to cancellation. The basis kept here begins with them, 1, x, x²/2, …, each made orthogonal to those before it; the others
are n-fold integrals of splines of degree n − 1, so that no derivative is taken by differences, made orthogonal to the
polynomials and to each other at a short reference length scale and in the mean square over [a, b], from smooth to rough. But
for its diagonal, S is then well conditioned at every rate.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from structgp.linalg.markov import matern_sde

REFERENCE = 0.1  # the length scale, in lengths of a line, at which the basis is orthonormal
ROUNDING = 1e-13  # of S in units of its diagonal: above the size of the largest basis (263 functions) times the unit roundoff


class Splines(NamedTuple):
    """A basis for each of D lines, each rescaled to [0, 1]."""

    origin: Float[Array, " D"]
    length: Float[Array, " D"]
    knots: Float[Array, "D K"]  # with the repeated ends
    change: Float[Array, "D m m"]  # columns: the basis functions as combinations of B-splines
    inside: Float[Array, "D s m m"]  # coefficients of λ^{1−s}, s = 0, …, 2n
    start: Float[Array, "D r m m"]  # coefficients of λ^{−r}, r = 0, …, 2n − 2


def size(intervals: int, n: int) -> int:
    """The number of functions on each line."""
    return intervals + 2 * n - 1


def build(t: Float[Array, "N D"], intervals: int, n: int) -> Splines:
    """The basis for lines with sorted places t: made on the host."""
    m, at = size(intervals, n), np.linspace(0.0, 1.0, intervals + 1) * (len(t) - 1)
    low = np.floor(at).astype(int)
    share = (at - low)[:, None]
    crowded = (1 - share) * t[low] + share * t[np.minimum(low + 1, len(t) - 1)]
    sizes = ((), (), (intervals + 4 * n - 1,), (m, m), (2 * n + 1, m, m), (2 * n - 1, m, m))
    shapes = [(t.shape[1], *size) for size in sizes]
    return Splines(*_on_host(functools.partial(_kept_lines, n=n), shapes, crowded))


def _on_host(function: Callable[..., Any], shapes: list[tuple[int, ...]], *arguments: Array) -> list[Array]:
    """Arrays of these shapes from a function of NumPy arrays: they travel as bits, for the host's side knows no 64-bit JAX."""
    counts = [math.prod(shape) for shape in shapes]
    bits = lambda values: jax.lax.bitcast_convert_type(values, jnp.uint32)

    def call(*given: Any) -> np.ndarray:
        doubles = [np.ascontiguousarray(np.asarray(values)).view(np.float64)[..., 0] for values in given]
        return np.concatenate([np.ravel(values) for values in function(*doubles)]).view(np.uint32).reshape(-1, 2)

    found = jax.pure_callback(call, jax.ShapeDtypeStruct((sum(counts), 2), jnp.uint32), *map(bits, arguments))
    parts = jnp.split(jax.lax.bitcast_convert_type(found, jnp.float64), np.cumsum(counts)[:-1])
    return [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)]


def _kept_lines(crowded: np.ndarray, n: int) -> tuple[np.ndarray, ...]:
    """The same lines again: while rates are learned, places stay where they are."""
    return _lines_of_bytes(crowded.tobytes(), crowded.shape, n)


@functools.lru_cache(maxsize=2)
def _lines_of_bytes(crowded: bytes, shape: tuple[int, ...], n: int) -> tuple[np.ndarray, ...]:
    return _all_lines(np.frombuffer(crowded).reshape(shape), n)


def _all_lines(crowded: np.ndarray, n: int) -> tuple[np.ndarray, ...]:
    """Knots half-way between equally spaced places and places with equally many data between them, and the basis on them."""
    origin, length = crowded[0], np.ptp(crowded, axis=0)
    length = np.where(length > 0, length, 1.0)
    uniform = np.linspace(0.0, 1.0, len(crowded))[:, None]
    breaks = np.where(np.ptp(crowded, axis=0) > 0, 0.5 * (uniform + (crowded - origin) / length), uniform)
    lines = [_one(line, n) for line in breaks.T]
    return origin, length, *(np.stack(part) for part in zip(*lines, strict=True))


def _one(breaks: np.ndarray, n: int) -> tuple[np.ndarray, ...]:
    p, m = 2 * n - 1, size(len(breaks) - 1, n)
    nodes, weights = np.polynomial.legendre.leggauss(p + 1)  # exact for the products of two polynomials of degree p
    h = np.diff(breaks)
    x = (breaks[:-1, None] + h[:, None] * (nodes + 1) / 2).ravel()
    root = np.sqrt(h[:, None] * weights / 2).ravel()[:, None]
    power = lambda l: x**l / math.factorial(l) if l >= 0 else np.zeros(len(x))
    rough = [_integrals(breaks, np.eye(m - n), n - 1, n - k) for k in range(n + 1)]  # derivatives of order k
    values = [root * np.column_stack([*(power(l - k) for l in range(n)), rough[k](x)]) for k in range(n + 1)]
    ends = list(np.eye(n, m))
    powers = [_integrals(breaks, np.ones(m - l), p - l, l).c[:m] for l in range(n)]
    change = _orthonormal(values, ends, n)
    in_b_splines = np.column_stack([*powers, rough[0].c[:m]]) @ change
    return rough[0].t, in_b_splines, *_coefficients([v @ change for v in values], [e @ change for e in ends], n)


def _integrals(breaks: np.ndarray, coefficients: np.ndarray, degree: int, times: int) -> Any:
    """Splines integrated so many times from the start of the line."""
    from scipy.interpolate import BSpline

    spline = BSpline(np.pad(breaks, degree, mode="edge"), coefficients, degree)
    return spline.antiderivative(times) if times else spline


def _orthonormal(values: list[np.ndarray], ends: list[np.ndarray], n: int) -> np.ndarray:
    """The change of basis, from factors of the inner products: their squares are never formed."""
    import scipy.linalg

    q, V, rate = matern_sde.diffusion(n), matern_sde.stationary(n), math.sqrt(2 * n - 1) / REFERENCE
    inside = sum(math.comb(n, k) * rate ** (0.5 - k) * values[k] for k in range(n + 1)) / math.sqrt(q)
    start = np.linalg.solve(np.linalg.cholesky(V), np.stack([rate**-k * ends[k] for k in range(n)]))
    R = np.linalg.qr(np.concatenate([inside, start]), mode="r")
    change = scipy.linalg.solve_triangular(R, np.eye(len(R)))
    rotation = np.linalg.svd(values[0] @ change[:, n:], full_matrices=False)[2].T
    return np.column_stack([change[:, :n], change[:, n:] @ rotation])


def _coefficients(values: list[np.ndarray], ends: list[np.ndarray], n: int) -> tuple[np.ndarray, np.ndarray]:
    """The coefficients of the powers of the rate in the inner products."""
    q, precision = matern_sde.diffusion(n), np.linalg.inv(matern_sde.stationary(n))
    m = values[0].shape[1]
    inside, start = np.zeros((2 * n + 1, m, m)), np.zeros((2 * n - 1, m, m))
    for k in range(n + 1):
        for l in range(n + 1):
            inside[k + l] += math.comb(n, k) * math.comb(n, l) / q * (values[k].T @ values[l])
    for k in range(n):
        for l in range(n):
            start[k + l] += precision[k, l] * np.outer(ends[k], ends[l])
    return inside, start


def inner_products(splines: Splines, rate: Float[Array, " D"]) -> Float[Array, "D m m"]:
    """S for unit variances, raised by what rounding may have taken from it: its inverse can be too small, never too large."""
    rate = (rate * splines.length)[:, None]
    inside = rate ** (1.0 - jnp.arange(splines.inside.shape[1]))
    start = rate ** (-1.0 * jnp.arange(splines.start.shape[1]))
    S = jnp.einsum("ds,dsij->dij", inside, splines.inside) + jnp.einsum("dr,drij->dij", start, splines.start)
    return 0.5 * (S + jnp.swapaxes(S, 1, 2)) + ROUNDING * S * jnp.eye(S.shape[1])


def local(splines: Splines, x: Float[Array, "N D"], n: int, order: int = 0) -> tuple[Int[Array, "N D"], Float[Array, "N D p"]]:
    """The B-splines that are not zero at each place: the number of the first, and the values (or derivatives) of all 2n."""
    unit = (x - splines.origin) / splines.length
    evaluate = lambda knots, places: _local(knots, places, 2 * n - 1, order)
    first, values = jax.vmap(evaluate, in_axes=(0, 1), out_axes=1)(splines.knots, unit)
    return first, values / splines.length[:, None] ** order


def features(splines: Splines, x: Float[Array, "N D"], n: int, order: int = 0) -> Float[Array, "N D m"]:
    """The basis functions (or their derivatives) at places of each line; beyond the ends they keep the value of the end."""
    first, values = local(splines, jnp.clip(x, splines.origin, splines.origin + splines.length), n, order)
    line = jnp.arange(x.shape[1])
    return sum((values[..., j, None] * splines.change[line, first + j] for j in range(2 * n)), start=jnp.zeros(()))


def _local(knots: Float[Array, " K"], x: Float[Array, " N"], p: int, order: int) -> tuple[Array, Array]:
    """The recursion of Cox and de Boor in the interval of each place."""
    last = len(knots) - p - 2
    i = jnp.clip(jnp.searchsorted(knots, x, side="right") - 1, p, last)
    near = knots[i + np.arange(1 - p, p + 1)[:, None]]  # p knots on either side of each place
    B = jnp.ones((1, len(x)))
    for d in range(1, p + 1):
        low, high = near[p - d : p], near[p : p + d]
        if d <= p - order:  # the d + 1 values of degree d from the d values of degree d − 1
            share = B / (high - low)
            falling, rising = (high - x) * share, (x - low) * share
        else:  # the derivatives in degree d from those of one order less in degree d − 1
            rising = d / (high - low) * B
            falling = -rising
        B = jnp.pad(falling, ((0, 1), (0, 0))) + jnp.pad(rising, ((1, 0), (0, 0)))
    return i - p, B.T
