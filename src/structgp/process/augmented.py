"""Predictions of a process of few functions, each place with one function more of its own: what is unknown is said to be so.

A process of few functions is zero away from them, and is said to be known there: the variance falls where it should rise. The
repair gives each new place x_* one more function a with a weight ~ N(0, c), when that place is predicted and not before:

- inducing inputs by "sor" or "dtc": a = k(·, x_*) − Q(·, x_*), c = 1/d, d = k_** − Q_**, which makes the covariances with
  x_* right: the reduced rank process (RRGP; Quiñonero-Candela, Rasmussen), exact with inducing inputs at all rows;
- `DiscreteConvolution`: a = κ(·, x_*) with the mean variance of the weights: linear models and relevance vectors healed.

With C = W⁻¹ + VᵀV, A = I + VWVᵀ = R Rᵀ and φ = V at x_*, the weight has precision p = 1/c + aᵀC⁻¹a and mean aᵀC⁻¹T / p, and

    mean = φᵀm + (a_* − ρ) aᵀC⁻¹T / p,   variance = |R⁻¹φ|² + (a_* − ρ)² / p,   ρ = φᵀA⁻¹VWa,

in O(NM) for each place. What is predicted for several places belongs to no single process: there is no joint covariance.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._types import double_precision
from ..engines.basis import columns
from ..engines.inducing import InducingConditional
from ..engines.woodbury import WoodburyConditional
from ..inputs.layouts import as_inputs
from ..inputs.rows import in_few_sizes
from ..kernels.finite import DiscreteConvolution
from ..linalg.dense.identity_plus import solve_lower
from ..posterior import Prediction
from ..structure.dense import covariance, variances
from ..structure.low_rank import through
from .conditioning import Posterior
from .fitted import Fitted

NUMBERS = 2**23  # that new places and rows may make between them at a time


class _More(NamedTuple):
    """V at rows and at new places, and the function of each new place: at the rows, at itself, and 1/c."""

    V: Float[Array, "M N"]
    phi: Float[Array, "M n"]
    a: Float[Array, "N n"]
    own: Float[Array, " n"]
    loose: Float[Array, " n"]


@double_precision
def augmented(fitted: Fitted, X: Any) -> Prediction:
    """The belief about f at new places by a process of few functions, with one more for each of them.

    For ``approximate=Inducing(M, "sor")`` (or "dtc"), and for kernels that are a `DiscreteConvolution`, as `RelevanceVectors`
    learns.
    """
    reduced = isinstance(fitted.conditional, InducingConditional) and fitted.conditional.method in ("sor", "dtc", "nystrom")
    bumps = isinstance(fitted.kernel, DiscreteConvolution) and isinstance(fitted.conditional, WoodburyConditional)
    if not (reduced or bumps):
        raise ValueError(
            "augmented predictions are for Inducing(M, 'sor') and for a kernel that is a DiscreteConvolution: "
            "other processes know what they do not know"
        )
    new, rows = np.asarray(as_inputs(X, allow_empty=True).points), np.asarray(fitted.inputs.points)
    step = max(NUMBERS // len(rows), 1)
    one = functools.partial(_marginals, fitted.posterior, rows)
    found = [in_few_sizes(one, new[at : at + step]) for at in range(0, max(len(new), 1), step)]
    mean, variance = (np.concatenate(parts) for parts in zip(*found, strict=True))
    return Prediction(mean[:, 0], variance, fitted.likelihood)


def _of_inputs(given: InducingConditional, X: Array, new: Array) -> _More:
    at, there = through(given.kernel, X), through(given.kernel, new)
    V, phi = (solve_lower(given.root, of.cross().T, len(given.root)) for of in (at, there))  # type: ignore[union-attr]
    a = covariance(at.kernel, at.X, there.X) - V.T @ phi  # type: ignore[union-attr]
    d = jnp.maximum(variances(there.kernel, there.X) - jnp.sum(phi * phi, axis=0), 0.0)  # type: ignore[union-attr]
    return _More(V, phi, a, d, d)


def _of_bumps(given: WoodburyConditional, kernel: DiscreteConvolution, X: Array, new: Array) -> _More:
    of = given.structure.map
    a, own = covariance(kernel.kernel, X, new), variances(kernel.kernel, new)
    return _More(of(X), of(new), a, own, jnp.full(len(new), 1 / jnp.mean(jnp.asarray(kernel.variance))))


@jax.jit
def _marginals(posterior: Posterior, X: Array, new: Array) -> tuple[Array, Array]:
    given: Any = posterior.conditional
    w, shift, weighed = given.sites.precision[: len(X)], given.sites.shift[: len(X)], given.weighed
    if isinstance(given, InducingConditional):
        V, phi, a, own, loose = _of_inputs(given, X, new)
    else:
        V, phi, a, own, loose = _of_bumps(given, posterior.prior.kernel, X, new)  # type: ignore[arg-type]
    wa = w[:, None] * a
    H, U = weighed.roots(V @ wa), weighed.roots(phi)
    p = loose + jnp.sum(a * wa, axis=0) - jnp.sum(H * H, axis=0)
    p = jnp.where(p > 0, p, jnp.inf)  # a place that is an inducing input needs no more
    told = a.T @ shift - H.T @ weighed.c
    left = own - jnp.sum(U * H, axis=0)
    means = phi.T @ weighed.mean() + (left / p)[:, None] * told
    mean, more = posterior.with_weights(*columns(posterior.prior, new), means)
    variance = jnp.sum(U * U, axis=0) + left**2 / p
    return mean, variance + jnp.sum(more * more, axis=0) if len(more) else variance
