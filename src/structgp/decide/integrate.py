"""The integral of a function over a box, or under a normal distribution, from a few measurements where they tell most of it
(Bayesian quadrature).

Given data the integral I is normal. A measurement at x with predictive variance s² lowers its variance by Cov(I, f(x))²/s²: the
place where that is most is measured next. Analytic functions of few variables belong to Gauss and Legendre; this is for
functions that are rough, noisy or expensive.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._types import by_the_host
from ..kernels.stationary import ProductMatern, Ricker
from ..linalg.sobol import sobol
from ..parameters.priors import Normal
from ..process.integral import read_measure
from ..structure.dense import covariance
from ..structure.integrals import Box, Measure, NormalMeasure, integrals
from .answers import as_number
from .surrogate import Survey

CANDIDATES = 512
MEMBERS = 8
WIDER = 1.25  # than a normal distribution are the places to choose from
PRIORS = ("kernel", "antiderivative")


@dataclasses.dataclass(frozen=True)
class IntegralEstimate:
    """What is believed of an integral, and the places and values it was learned from."""

    mean: float
    sd: float
    places: Float[np.ndarray, "N D"]
    values: Float[np.ndarray, " N"]

    def __str__(self) -> str:
        return f"{self.mean:.6g} ± {self.sd:.2g} ({len(self.values)} evaluations)"


@by_the_host
def integrate(
    f: Callable[[Any], Any],
    box: Any,
    evaluations: int = 15,
    *,
    kernel: Any = None,
    prior: str = "kernel",
    noise: float | None = 0.0,
    active: bool = True,
    seed: int = 0,
) -> IntegralEstimate:
    """The integral of f over a box, a list of pairs (low, high), or E f(x) under a list of `Normal`, from so many evaluations.

    f takes a number where there is one column, else an array. `noise` is 0 for exact values, None where it is learned, or a
    variance. `kernel` is one on the unit cube, by default ``ProductMatern(nu=2.5)``, whose intervals are honest for functions
    that are not analytic; with ``prior="antiderivative"`` the antiderivative of f is believed to be smooth and stationary
    (`Ricker`), which often claims too much. Without `active` the places are spread evenly.
    """
    columns = [box] if isinstance(box, Normal) or np.shape(box) == (2,) else list(box)
    measure = read_measure(columns, len(columns))
    D = measure.dimension
    inside, ends, volume = _in_unit_cube(measure)
    if prior not in PRIORS:
        raise ValueError(f"prior must be one of {PRIORS}, got {prior!r}")
    if kernel is not None and prior != "kernel":
        raise ValueError("give a kernel, or prior='antiderivative', not both")
    usual = Ricker(np.full(D, 1.0)) if prior == "antiderivative" else ProductMatern(np.full(D, 1.0), nu=2.5)
    survey = Survey(usual if kernel is None else kernel, D, noise, evaluations, MEMBERS, seed)
    count = survey.count
    first = min(count, 3 if D == 1 else 2 * D + 1)
    evenly = lambda count: _spread(inside, (np.arange(count)[:, None] + 0.5) / count)
    spread = evenly(count) if D == 1 else _spread(inside, sobol(D, count, np.random.default_rng([seed, 7])))
    U = list(evenly(first) if D == 1 and active else spread[:first])
    y = [_value(f, ends, u) for u in U]
    while True:
        done = len(y) == count
        if not active and not done:
            U.append(spread[len(y)])
            y.append(_value(f, ends, U[-1]))
            continue
        scale, belief = survey.believe(U, y)
        if done:
            break
        places = _spread(inside, sobol(D, CANDIDATES, np.random.default_rng([seed, len(y)])))
        worth = np.asarray(_told(belief.members, inside, places))
        free = np.min(np.max(np.abs(places[:, None] - np.array(U)[None]), axis=2), axis=1) > 1e-6
        total = np.where(free, np.mean(np.where(np.isfinite(worth), worth, 0.0), axis=0), -1.0)
        U.append(places[int(np.argmax(total))])
        y.append(_value(f, ends, U[-1]))
    means, variances = (np.asarray(part) for part in _integrals(belief.members, inside))
    fine = np.isfinite(means)
    mean = float(means[fine].mean())
    variance = float(np.mean(np.maximum(variances[fine], 0.0) + (means[fine] - mean) ** 2))
    back = volume * scale.scale
    return IntegralEstimate(
        volume * scale.center + back * mean,
        back * np.sqrt(variance),
        ends[:, 0] + np.array(U) * np.ptp(ends, axis=1),
        np.array(y),
    )


def _in_unit_cube(measure: Measure) -> tuple[Measure, Float[np.ndarray, "D 2"], float]:
    """The same in the unit cube that a model sees, the ends of the cube, and by how much integrals differ.

    Of a normal distribution it reaches two standard deviations to each side.
    """
    D = measure.dimension
    if isinstance(measure, NormalMeasure):
        ends = np.stack([measure.mean - 2 * measure.sd, measure.mean + 2 * measure.sd], axis=1)
        return NormalMeasure(np.full(D, 0.5), np.full(D, 0.25)), ends, 1.0
    return Box(np.tile([0.0, 1.0], (D, 1))), measure.ends, float(measure.total)


def _spread(inside: Measure, u: Float[np.ndarray, "M D"]) -> Float[np.ndarray, "M D"]:
    """Places of the unit cube where they are needed: a little wider than a normal distribution, which has tails."""
    from scipy.special import ndtri

    return inside.mean + WIDER * inside.sd * ndtri(u) if isinstance(inside, NormalMeasure) else u


def _value(f: Callable[[Any], Any], ends: np.ndarray, u: np.ndarray) -> float:
    x = ends[:, 0] + u * (ends[:, 1] - ends[:, 0])
    value = as_number(f(float(x[0]) if len(x) == 1 else x))
    if not np.isfinite(value):
        raise ValueError(f"the function gave {value} at {x.tolist()}: it must be finite wherever it is integrated")
    return value


def _parts(member: Any, measure: Measure) -> tuple[Array, Array, Array, Array]:
    """∫f through the rows: whitened covariances, prior variance, mean, and what the constant adds."""
    conditional = member.conditional
    z, V0 = integrals(conditional.kernel, conditional.X, measure)
    rho = measure.total - z @ conditional.alpha[:, 1:]
    return conditional._whiten(z[:, None])[:, 0], V0, z @ conditional.alpha[:, 0] + rho @ member.weights.mean[:, 0], rho[0]


@jax.jit
def _integrals(members: Any, measure: Measure) -> tuple[Float[Array, " K"], Float[Array, " K"]]:
    """Mean and variance of the integral, for each member."""

    def one(member: Any) -> tuple[Array, Array]:
        V, V0, mean, rho = _parts(member, measure)
        return mean, V0 - V @ V + (rho / member.weights.factor[0, 0]) ** 2

    return jax.vmap(one)(members)


@jax.jit
def _told(members: Any, measure: Measure, X: Array) -> Float[Array, "K M"]:
    """By how much of itself the variance of the integral would fall with measurements at X, for each member."""

    def one(member: Any) -> Array:
        conditional = member.conditional
        V, V0, _, rho = _parts(member, measure)
        Ks = covariance(conditional.kernel, X, conditional.X)
        W = conditional._whiten(Ks.T)
        a = member.weights.factor[0, 0] ** 2
        own = 1 - (Ks @ conditional.alpha[:, 1:])[:, 0]
        c = integrals(conditional.kernel, X, measure)[0] - V @ W + rho * own / a
        s2 = jax.vmap(lambda x: conditional.kernel.between(x, x))(X) - jnp.sum(W * W, axis=0) + own**2 / a
        w = conditional.sites.precision
        noise = jnp.max(jnp.where(w > 0, 1 / jnp.where(w > 0, w, 1.0), 0.0))
        total = V0 - V @ V + rho**2 / a
        return c**2 / ((jnp.maximum(s2, 0.0) + noise + 1e-12) * jnp.maximum(total, 1e-300))

    return jax.vmap(one)(members)
