"""The gradient of a function at one place, from a few measurements around it that tell most of it.

Given data the gradient g at x₀ is normal with covariance P, and Cov(g, f(x)) = c. A measurement at x with predictive variance
s² lowers the entropy of g by −½ log(1 − cᵀP⁻¹c/s²): the place where that is most is measured next.

`reach` is where a function is looked at because it is no line there. In the cube that reaches to 0 and 1 is believed

    lengthscale      log-normal around √D, width 1
    noise variance   log-normal around 1e-2 of the variance of the values, width 2.5

and of the rest what `surrogate` says: with the long lengthscales and the little noise that suit a history of optimisation,
intervals are too short.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._types import by_the_host
from ..kernels.stationary import SquaredExponential
from ..likelihoods.gaussian import Gaussian
from ..linalg.sobol import sobol
from ..parameters.priors import LogNormal
from ..parameters.tree import learned as with_note
from ..process.gp import GP
from ..structure.dense import covariance
from ..structure.derivatives import gradient_covariance, gradient_variance
from .answers import as_number
from .surrogate import Survey, prior

CANDIDATES = 512
MEMBERS = 8
NOISE = LogNormal(math.log(1e-2), 2.5)


@dataclasses.dataclass(frozen=True)
class GradientEstimate:
    """What is believed of a gradient: mean and covariance, and the places and values it was learned from."""

    mean: Float[np.ndarray, " D"]
    covariance: Float[np.ndarray, "D D"]
    places: Float[np.ndarray, "N D"]
    values: Float[np.ndarray, " N"]

    @property
    def sd(self) -> Float[np.ndarray, " D"]:
        """Standard deviations."""
        return np.sqrt(np.diagonal(self.covariance))


@by_the_host
def estimate_gradient(
    f: Callable[[np.ndarray], Any],
    x0: Any,
    evaluations: int = 30,
    *,
    reach: Any = 0.5,
    noise: float | None = None,
    active: bool = True,
    kernel: Any = None,
    seed: int = 0,
) -> GradientEstimate:
    """The gradient of f at x₀ from so many evaluations, which may be noisy, no further away than `reach` in each coordinate.

    `noise` is None where it is learned, 0 for exact values, or a variance. Without `active` the places are spread evenly.
    `kernel` is one on the cube that reaches to 0 and 1, by default SquaredExponential with a lengthscale for each coordinate,
    which is believed to be about √D.
    """
    center = np.atleast_1d(np.asarray(x0, dtype=float))
    wide = np.broadcast_to(np.asarray(reach, dtype=float), center.shape)
    if not np.isfinite(center).all() or not (np.isfinite(wide) & (wide > 0)).all():
        raise ValueError(f"estimate_gradient needs a finite place and a positive reach, got {x0!r} and {reach!r}")
    D = len(center)
    survey = Survey(_model(kernel, D, noise), D, noise, evaluations, MEMBERS, seed)
    count = survey.count
    spread = sobol(D, count, np.random.default_rng([seed, 6]))
    U, y = [np.full(D, 0.5)], [_value(f, center)]
    members = None
    for number in range(1, count + 1):
        if number >= 3 and (active or number == count):
            scale, belief = survey.believe(U, y)
            members = belief.members
        if number == count:
            break
        if members is None:
            U.append(_near(spread[number], 0.5 if active else 1.0))
        else:
            places = sobol(D, CANDIDATES, np.random.default_rng([seed, number]))
            places[CANDIDATES // 2 :] = _near(places[CANDIDATES // 2 :], 0.3)
            worth = np.asarray(_told(members, U[0], places))
            U.append(places[int(np.nanargmax(np.mean(np.where(np.isfinite(worth), worth, 0.0), axis=0)))])
        y.append(_value(f, center + (2 * U[-1] - 1) * wide))
    means, covariances = (np.asarray(part) for part in _gradients(members, U[0]))
    fine = np.isfinite(means).all(axis=1)
    mean = means[fine].mean(axis=0)
    apart = means[fine] - mean
    total = covariances[fine].mean(axis=0) + apart.T @ apart / fine.sum()
    back = scale.scale / (2 * wide)
    return GradientEstimate(
        mean * back, total * back[:, None] * back[None, :], center + (2 * np.array(U) - 1) * wide, np.array(y)
    )


def _model(kernel: Any, D: int, noise: float | None) -> GP:
    usual = SquaredExponential(with_note(np.full(D, math.sqrt(D)), LogNormal(0.5 * math.log(D), 1.0)))
    gp = prior(usual if kernel is None else kernel, D, noise)
    known = noise is not None or isinstance(kernel, GP)
    return gp if known else gp.replace(likelihood=Gaussian(with_note(math.exp(NOISE.mean), NOISE)))


def _near(u: np.ndarray, share: float) -> np.ndarray:
    return 0.5 + share * (u - 0.5)


def _value(f: Callable[[np.ndarray], Any], x: np.ndarray) -> float:
    value = as_number(f(x))
    if not np.isfinite(value):
        raise ValueError(
            f"the function gave {value} at {x.tolist()}: the gradient is looked for where it is finite; make reach smaller"
        )
    return value


def _one(member: Any, x0: Array) -> tuple[Array, Array]:
    mean, C = member.conditional.gradient(x0)
    rho = -mean[:, member.targets :]  # a constant has no gradient of its own
    V = jax.scipy.linalg.solve_triangular(member.weights.factor, rho.T, lower=True)
    return mean[:, 0] + (rho @ member.weights.mean)[:, 0], C + V.T @ V


_gradients = jax.jit(jax.vmap(_one, in_axes=(0, None)))


@jax.jit
def _told(members: Any, x0: Array, X: Array) -> Float[Array, "K M"]:
    """How much of the entropy of the gradient measurements at X would take, for each member."""

    def one(member: Any) -> Array:
        conditional = member.conditional
        kernel, rows = conditional.kernel, conditional.X
        J, Ks = gradient_covariance(kernel, x0, rows), covariance(kernel, X, rows)
        V, W = conditional._whiten(J.T), conditional._whiten(Ks.T)
        # the constant is one more normal number: its part of all covariances
        rho0 = -(J @ conditional.alpha[:, 1:])
        rho = 1 - Ks @ conditional.alpha[:, 1:]
        A = member.weights.factor[0, 0] ** 2
        c = gradient_covariance(kernel, x0, X) - V.T @ W + rho0 @ rho.T / A
        P = gradient_variance(kernel, x0) - V.T @ V + rho0 @ rho0.T / A
        s2 = jax.vmap(lambda x: kernel.between(x, x))(X) - jnp.sum(W * W, axis=0) + rho[:, 0] ** 2 / A
        noise = jnp.max(jnp.where(conditional.sites.precision > 0, 1 / jnp.maximum(conditional.sites.precision, 1e-300), 0.0))
        D = len(x0)
        L = jnp.linalg.cholesky(P + 1e-10 * jnp.trace(P) / D * jnp.eye(D))
        share = jnp.sum(jax.scipy.linalg.solve_triangular(L, c, lower=True) ** 2, axis=0) / (
            jnp.maximum(s2, 0.0) + noise + 1e-12
        )
        return -0.5 * jnp.log1p(-jnp.minimum(share, 1 - 1e-9))

    return jax.vmap(one)(members)
