"""Integrals against a Gaussian density, for many integrands at once.

∫ N(f; m, v) exp(F(f)) df is taken by Gauss–Legendre on panels. They begin at the peak of the integrand and end on both sides
where it has fallen by exp(−REACH); between these they are cut where F leaves its tangent at the peak by BENDS, because F has
its shoulder there: a prior that is a thousand times wider than the likelihood's own scale is no harder than a narrow one.

Nodes are offsets from m, which keeps a variance of 1e-12 at a mean of 1e3 exact. They are constants for differentiation, except
that they follow m as the peak does: then ∂/∂m and ∂²/∂m² of the log integral, which would cancel in any other frame when v is
very small or very large, come out of the same sum to full precision.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .._types import Numbers

REACH = 36.0  # exp(−36) is rounding error
BENDS = (1e-5, 3e-3, 0.1, 1.0, 10.0)
NODES = 12  # for each panel
SEARCH = 40  # steps to the peak, at most
HALVINGS = 12  # of the logarithmic range in which a cut lies
WIDEST = 8.5  # standard deviations: exp(−½ 8.5²) = exp(−36)
QUARTERS = (-WIDEST, -4.0, 0.0, 4.0, WIDEST)

Function = Callable[..., Any]


@functools.cache
def gauss_legendre(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights for ∫ over [0, 1]."""
    x, w = np.polynomial.legendre.leggauss(count)
    return (x + 1) / 2, w / 2


@functools.cache
def gauss_hermite(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights for the expectation under N(0, 1)."""
    x, w = np.polynomial.hermite_e.hermegauss(count)
    return x, w / math.sqrt(2 * math.pi)


class Rule(NamedTuple):
    """Where an integrand is looked at: panels between offsets from the mean, in order, and how they follow the mean."""

    edges: Numbers  # (panels + 1, …)
    peak: Numbers  # the offset of the peak
    value: Numbers  # the factor there
    rest: Numbers  # 1 − ∂peak/∂mean


def with_derivatives(function: Function, x: Any) -> tuple[Any, Any, Any]:
    """The value of an elementwise function, its slope and its second derivative."""
    ones = jnp.ones_like(x)
    slope = lambda x: jax.jvp(function, (x,), (ones,))
    (value, first), (_, second) = jax.jvp(slope, (x,), (ones,))
    return value, first, second


def with_matrices(function: Function, x: Any) -> tuple[Any, Any, Any]:
    """The value of a function of vectors in the last axis, its gradients and its matrices of second derivatives."""
    gradient = jax.grad(lambda x: jnp.sum(function(x)))
    along = jax.vmap(lambda e: jax.jvp(gradient, (x,), (jnp.broadcast_to(e, x.shape),))[1], out_axes=-1)
    return function(x), gradient(x), along(jnp.eye(x.shape[-1]))


def log_integral(factor: Function, mean: Numbers, variance: Numbers, rule: Rule) -> Numbers:
    """log ∫ N(f; mean, variance) exp(factor(f)) df by a rule that is held fixed."""
    moved = rule.rest * (mean - jax.lax.stop_gradient(mean))

    def integrand(offset: Any) -> tuple[Any]:
        return (_relative(rule, factor(mean + offset - moved), offset - moved, variance),)

    return _log_of(rule, _sums(integrand, rule)[0], variance)


def log_integral_derivatives(factor: Function, mean: Numbers, variance: Numbers, rule: Rule) -> tuple[Any, Any, Any]:
    """The log integral with its slope and its second derivative in the mean, in one pass."""
    follows, pull = 1 - rule.rest, rule.rest / variance
    at_peak = rule.peak / variance  # the slope of the log integrand in the mean at the peak; the others differ little from it

    def terms(offset: Any) -> tuple[Any, Any, Any]:
        value, first, second = with_derivatives(factor, mean + offset)
        weight = _relative(rule, value, offset, variance)
        slope = follows * first + pull * offset - at_peak
        return weight, weight * slope, weight * (slope**2 + follows**2 * second)

    total, slopes, seconds = _sums(terms, rule)
    slope = slopes / total
    value = _log_of(rule, total, variance)
    return value, at_peak + slope, seconds / total - slope**2 - rule.rest * pull


def _relative(rule: Rule, value: Any, offset: Any, variance: Any) -> Any:
    """The integrand relative to its peak; rounding, where the factor is steeper than numbers can tell, must not overflow."""
    log = value - rule.value - (offset - rule.peak) * (offset + rule.peak) / (2 * variance)
    return jnp.exp(jnp.minimum(log, REACH))


def _log_of(rule: Rule, total: Any, variance: Any) -> Any:
    return rule.value - rule.peak**2 / (2 * variance) + jnp.log(total) - 0.5 * jnp.log(2 * jnp.pi * variance)


def expectation(function: Function, mean: Numbers, variance: Numbers, rule: Rule) -> Numbers:
    """∫ N(f; mean, variance) function(f) df by a rule that is held fixed, except that it widens with the variance."""
    fixed = jax.lax.stop_gradient(variance)
    widening = jnp.sqrt(variance / fixed)

    def integrand(offset: Any) -> tuple[Any]:
        return (jnp.exp(-(offset**2) / (2 * fixed)) * function(mean + widening * offset),)

    return _sums(integrand, rule)[0] / jnp.sqrt(2 * jnp.pi * fixed)


def around_peak(factor: Function, mean: Numbers, variance: Numbers) -> Rule:
    """The rule for ∫ N(f; mean, variance) exp(factor(f)) df, for a factor that is concave."""
    peak = find_peak(factor, mean, variance)
    value, slope, second = with_derivatives(factor, mean + peak)
    scale = jnp.sqrt(variance / (1 + variance * jnp.maximum(-second, 0.0)))
    sides = _sides(peak)
    shortest, longest = 1e-3 * scale * jnp.abs(sides), WIDEST * jnp.sqrt(variance) * jnp.abs(sides)

    def fall(d: Any) -> Any:
        return value - factor(mean + peak + sides * d) + (2 * peak + sides * d) * sides * d / (2 * variance)

    def bend(d: Any) -> Any:
        return jnp.abs(value + slope * sides * d - factor(mean + peak + sides * d))

    end = _first_above(fall, shortest, longest, REACH)
    edges = peak + _both_sides(_cuts(bend, jnp.minimum(shortest, end), end))
    stiffness = 2 * variance * jnp.max(bend(end) / end**2, axis=0)  # the variance times the curvature that the integrand meets
    return Rule(edges, peak, value, stiffness / (1 + stiffness))


def around_mean(function: Function, mean: Numbers, variance: Numbers) -> Rule:
    """The rule for ∫ N(f; mean, variance) function(f) df."""
    value, slope, _ = with_derivatives(function, mean)
    zero = jnp.zeros_like(value * variance)
    sides = _sides(zero)
    end = WIDEST * jnp.sqrt(variance) * jnp.abs(sides)

    def bend(d: Any) -> Any:
        return jnp.abs(value + slope * sides * d - function(mean + sides * d))

    return Rule(_both_sides(_cuts(bend, 1e-4 * end, end)), zero, zero, zero)


def across(places: list[Any], mean: Numbers, variance: Numbers, factor: Function | None = None) -> Rule:
    """The rule on panels over all of the Gaussian, cut at the places where an integrand of any shape is known to bend."""
    spread = jnp.sqrt(variance)
    cuts = [k * spread for k in QUARTERS] + [jnp.clip(p - mean, -WIDEST * spread, WIDEST * spread) for p in places]
    edges = jnp.sort(jnp.stack(jnp.broadcast_arrays(*cuts)), axis=0)
    return on_panels(edges, mean, variance, factor)


def on_panels(edges: Any, mean: Numbers, variance: Numbers, factor: Function | None = None, scale: Any = 1.0) -> Rule:
    """The rule on given panels; `scale` is that of the factor, which says whether nodes had better stay or follow the mean."""
    zero = jnp.zeros_like(edges[0])
    if factor is None:
        return Rule(edges, zero, zero, zero)
    logs = factor(mean + edges) - edges**2 / (2 * variance)
    best = jnp.argmax(logs, axis=0)[None]
    peak = jnp.take_along_axis(edges, best, axis=0)[0]
    return Rule(edges, peak, factor(mean + peak), zero + variance / (variance + scale**2))


def find_peak(factor: Function, mean: Numbers, variance: Numbers) -> Numbers:
    """The offset from the mean at which −(f − mean)²/2v + factor(f) is largest, well within the width of the peak.

    It lies between 0 and v·factor′(mean): Newton steps that stay in between alternate with halvings on a logarithmic scale.
    """
    _, slope, second = with_derivatives(factor, mean)
    sign = jnp.where(slope < 0, -1.0, 1.0)
    least = 1e-6 * jnp.sqrt(variance / (1 + variance))
    zero = jnp.zeros_like(slope * variance)
    far = zero + jnp.abs(slope) * variance + least

    def step(state: Any) -> Any:
        count, near, far, at, _ = state
        _, slope, second = with_derivatives(factor, mean + sign * at)
        downhill = sign * slope - at / variance
        curvature = 1 / variance + jnp.maximum(-second, 0.0)
        near, far = jnp.where(downhill > 0, at, near), jnp.where(downhill > 0, far, at)
        newton, halved = at + downhill / curvature, jnp.sqrt(jnp.maximum(near, least) * far)
        usable = (newton >= near) & (newton <= far) & (count % 3 < 2)  # on an exponential slope Newton goes one unit a step
        done = jnp.abs(downhill) < 0.05 * jnp.sqrt(curvature)
        return count + 1, near, far, jnp.where(done, at, jnp.where(usable, newton, halved)), jnp.any(~done)

    start = jnp.minimum(jnp.abs(slope) / (1 / variance + jnp.maximum(-second, 0.0)), far)
    state = (0, zero, far, zero + start, jnp.bool_(True))
    return sign * jax.lax.while_loop(lambda s: s[4] & (s[0] < SEARCH), step, state)[3]


def _sides(like: Any) -> Any:
    return jnp.reshape(jnp.array([-1.0, 1.0]), (2,) + (1,) * jnp.ndim(like)) * jnp.ones_like(like)


def _first_above(growing: Function, low: Any, high: Any, level: Any) -> Any:
    """Where a growing function of a distance passes a level, or the end if it does not."""

    def halve(_: Any, ends: Any) -> Any:
        low, high = ends
        middle = jnp.sqrt(low * high)
        above = ~(growing(middle) < level)
        return jnp.where(above, low, middle), jnp.where(above, middle, high)

    return jax.lax.fori_loop(0, HALVINGS, halve, (low, high))[1]


def _cuts(bend: Function, shortest: Any, end: Any) -> Any:
    """Growing distances from 0 to the end, among them those where the bend passes its levels."""
    levels = jnp.reshape(jnp.asarray(BENDS), (-1,) + (1,) * jnp.ndim(end))
    whole = jnp.ones_like(levels)
    cuts = _first_above(bend, shortest * whole, end * whole, levels)
    return jnp.sort(jnp.concatenate([jnp.stack([0.0 * end, 0.5 * end, end]), cuts]), axis=0)


def _both_sides(distances: Any) -> Any:
    """Distances to the left and to the right, (cuts, 2, …), as one growing sequence."""
    return jnp.concatenate([-distances[:0:-1, 0], distances[:, 1]])


def _sums(terms: Function, rule: Rule) -> tuple[Any, ...]:
    """The integrals of several functions of the offset, node by node, so that memory stays that of one."""

    @jax.checkpoint
    def add(totals: Any, panel: Any) -> tuple[Any, None]:
        low, length = panel
        weighted = lambda x, w: tuple(length * w * term for term in terms(low + length * x))
        inside = node_sums(weighted, gauss_legendre(NODES), low)
        return tuple(total + part for total, part in zip(totals, inside, strict=True)), None

    start = tuple(jnp.zeros(rule.edges.shape[1:]) for _ in jax.eval_shape(terms, rule.edges[0]))
    return jax.lax.scan(add, start, (rule.edges[:-1], jnp.diff(rule.edges, axis=0)))[0]


def node_sums(terms: Function, nodes: tuple[Any, ...], like: Any) -> tuple[Any, ...]:
    """Σ of several functions over nodes, in turn, so that memory stays that of one node; the sums are shaped like `like`."""

    @jax.checkpoint
    def add(totals: Any, node: Any) -> tuple[Any, None]:
        return tuple(total + term for total, term in zip(totals, terms(*node), strict=True)), None

    first = tuple(array[0] for array in nodes)
    start = tuple(jnp.zeros(jnp.shape(like)) for _ in jax.eval_shape(terms, *first))
    return jax.lax.scan(add, start, nodes)[0]


def host_expectation(function: Function, mean: Any, variance: Any, landmarks: list[Any]) -> np.ndarray:
    """∫ N(f; mean, variance) function(f) df by NumPy, on panels that are also cut at the landmarks of the function."""
    spread = np.sqrt(variance)
    cuts = [spread * k for k in QUARTERS] + [np.clip(place - mean, -WIDEST * spread, WIDEST * spread) for place in landmarks]
    edges = np.sort(np.stack(np.broadcast_arrays(*cuts)), axis=0)
    x, w = gauss_legendre(NODES)
    total = np.zeros(())
    for low, high in itertools.pairwise(edges):
        for position, weight in zip(x, w, strict=True):
            offset = low + (high - low) * position
            density = np.exp(-0.5 * (offset / spread) ** 2) / (spread * math.sqrt(2 * math.pi))
            total = total + weight * (high - low) * density * function(mean + offset)
    return total


def bisect(growing: Function, level: Any, whole: bool = False) -> np.ndarray:
    """Where a growing function on the real line (on 0, 1, 2, … if `whole`) first reaches a level, on the host."""
    shape = np.broadcast_shapes(np.shape(growing(np.zeros(()))), np.shape(level))
    low, high = np.full(shape, -1.0), np.ones(shape)
    for _ in range(200):
        short = growing(high) < level
        if not short.any():
            break
        low, high = np.where(short, high, low), np.where(short, 2 * high, high)
    for _ in range(0 if whole else 200):
        short = growing(low) >= level
        if not short.any():
            break
        high, low = np.where(short, low, high), np.where(short, 2 * low, low)
    for _ in range(100):
        middle = np.maximum(np.floor((low + high) / 2), 0.0) if whole else (low + high) / 2
        if np.all(high - low <= (1.0 if whole else 1e-12 * (1e-3 + np.abs(middle)))):
            break
        above = growing(middle) >= level
        low, high = np.where(above, low, middle), np.where(above, middle, high)
    return high


@functools.cache
def lattice(dimension: int, count: int = 2039) -> np.ndarray:
    """Points that stand for N(0, I): a rank-one lattice, built coordinate by coordinate, folded, made normal, and mirrored."""
    k = np.arange(count)
    roughness = lambda x: 2 * np.pi**2 * (x**2 - x + 1 / 6)
    candidates = roughness(np.outer(np.arange(1, count), k) % count / count)
    product, steps = np.ones(count), []
    for d in range(dimension):
        scored = 1 + candidates / (1 + d)
        best = int(np.argmin(scored @ product))
        product = product * scored[best]
        steps.append(best + 1)
    shift = np.arange(1, dimension + 1) * math.sqrt(2)  # without one, folding would put points on each other
    u = (np.outer(k, steps) / count + shift) % 1
    from scipy.special import ndtri

    z = ndtri(1 - np.abs(2 * u - 1))
    z = z / np.sqrt(np.mean(z**2, axis=0))
    return np.concatenate([z, -z])
