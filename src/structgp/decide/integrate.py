"""The integral of a function over a box, from a few measurements where they tell most of it (Bayesian quadrature).

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

from .._types import double_precision, whole
from ..kernels.stationary import ProductMatern, Ricker
from ..learn.peak import sobol
from ..process.integral import read_box
from ..structure.dense import covariance
from ..structure.integrals import integrals
from .surrogate import Measured, belief_of, capacity_for, learn
from .surrogate import prior as _prior
from .warp import fit_warp

CANDIDATES = 512
MEMBERS = 8
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


@double_precision
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
    """The integral of f over a box, a list of pairs (low, high), from so many evaluations.

    f takes a number where there is one pair, else an array. `noise` is 0 for exact values, None where it is learned, or a
    variance. `kernel` is one on the unit cube, by default ``ProductMatern(nu=2.5)``, whose intervals are honest for functions
    that are not analytic; with ``prior="antiderivative"`` the antiderivative of f is believed to be smooth and stationary
    (`Ricker`), which often claims too much. Without `active` the places are spread evenly.
    """
    pairs = [box] if np.shape(box) == (2,) else list(box)
    ends = read_box(pairs, len(pairs))
    D, count = len(ends), whole(evaluations, "evaluations", 3)
    if prior not in PRIORS:
        raise ValueError(f"prior must be one of {PRIORS}, got {prior!r}")
    if kernel is not None and prior != "kernel":
        raise ValueError("give a kernel, or prior='antiderivative', not both")
    usual = Ricker(np.full(D, 1.0)) if prior == "antiderivative" else ProductMatern(np.full(D, 1.0), nu=2.5)
    gp = _prior(usual if kernel is None else kernel, D, noise)
    first = min(count, 3 if D == 1 else 2 * D + 1)
    spread = (np.arange(count)[:, None] + 0.5) / count if D == 1 else sobol(D, count, np.random.default_rng([seed, 7]))
    U = list((np.arange(first)[:, None] + 0.5) / first if D == 1 and active else spread[:first])
    y = [_value(f, ends, u) for u in U]
    unit = np.tile([0.0, 1.0], (D, 1))
    last = None
    while True:
        done = len(y) == count
        if not active and not done:
            U.append(spread[len(y)])
            y.append(_value(f, ends, U[-1]))
            continue
        scale = fit_warp(np.array(y), bent=False)
        measured = Measured.filled(
            np.array(U), scale(y), np.full(len(y), noise or 0.0) * scale.slope(y) ** 2, capacity_for(count)
        )
        learned = learn(gp, measured, last, MEMBERS, seed)
        last = learned.draws.center
        belief, _ = belief_of(learned, measured, np.zeros(len(measured.y), bool), measured.seen)
        if done:
            break
        places = sobol(D, CANDIDATES, np.random.default_rng([seed, len(y)]))
        worth = np.asarray(_told(belief.members, unit, places))
        free = np.min(np.max(np.abs(places[:, None] - np.array(U)[None]), axis=2), axis=1) > 1e-6
        total = np.where(free, np.mean(np.where(np.isfinite(worth), worth, 0.0), axis=0), -1.0)
        U.append(places[int(np.argmax(total))])
        y.append(_value(f, ends, U[-1]))
    means, variances = (np.asarray(part) for part in _integrals(belief.members, unit))
    fine = np.isfinite(means)
    mean = float(means[fine].mean())
    variance = float(np.mean(np.maximum(variances[fine], 0.0) + (means[fine] - mean) ** 2))
    volume = float(np.prod(ends[:, 1] - ends[:, 0]))
    back = volume * scale.scale
    return IntegralEstimate(
        volume * scale.center + back * mean,
        back * np.sqrt(variance),
        ends[:, 0] + np.array(U) * np.ptp(ends, axis=1),
        np.array(y),
    )


def _value(f: Callable[[Any], Any], ends: np.ndarray, u: np.ndarray) -> float:
    x = ends[:, 0] + u * (ends[:, 1] - ends[:, 0])
    value = float(np.asarray(f(float(x[0]) if len(x) == 1 else x)).reshape(()))
    if not np.isfinite(value):
        raise ValueError(f"the function gave {value} at {x.tolist()}: it must be finite all over the box")
    return value


def _parts(member: Any, box: Array) -> tuple[Array, Array, Array, Array]:
    """∫f through the rows: whitened covariances, prior variance, mean, and what the constant adds."""
    conditional = member.conditional
    z, V0 = integrals(conditional.kernel, conditional.X, box)
    rho = 1 - z @ conditional.alpha[:, 1:]
    return conditional._whiten(z[:, None])[:, 0], V0, z @ conditional.alpha[:, 0] + rho @ member.weights.mean[:, 0], rho[0]


@jax.jit
def _integrals(members: Any, box: Array) -> tuple[Float[Array, " K"], Float[Array, " K"]]:
    """Mean and variance of the integral over the unit cube, for each member."""

    def one(member: Any) -> tuple[Array, Array]:
        V, V0, mean, rho = _parts(member, box)
        return mean, V0 - V @ V + (rho / member.weights.factor[0, 0]) ** 2

    return jax.vmap(one)(members)


@jax.jit
def _told(members: Any, box: Array, X: Array) -> Float[Array, "K M"]:
    """By how much of itself the variance of the integral would fall with measurements at X, for each member."""

    def one(member: Any) -> Array:
        conditional = member.conditional
        V, V0, _, rho = _parts(member, box)
        Ks = covariance(conditional.kernel, X, conditional.X)
        W = conditional._whiten(Ks.T)
        a = member.weights.factor[0, 0] ** 2
        own = 1 - (Ks @ conditional.alpha[:, 1:])[:, 0]
        c = integrals(conditional.kernel, X, box)[0] - V @ W + rho * own / a
        s2 = jax.vmap(lambda x: conditional.kernel.between(x, x))(X) - jnp.sum(W * W, axis=0) + own**2 / a
        w = conditional.sites.precision
        noise = jnp.max(jnp.where(w > 0, 1 / jnp.where(w > 0, w, 1.0), 0.0))
        total = V0 - V @ V + rho**2 / a
        return c**2 / ((jnp.maximum(s2, 0.0) + noise + 1e-12) * jnp.maximum(total, 1e-300))

    return jax.vmap(one)(members)
