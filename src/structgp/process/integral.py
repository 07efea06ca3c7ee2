"""The integral of f over a box, or under a normal distribution, given data: one more column of targets for any algorithm."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..engines.basis import columns, integrate, sites_of
from ..engines.plan import Plan
from ..inputs.rows import in_bucket
from ..linalg.dense.cholesky import lapack_threads
from ..parameters.priors import Normal
from ..posterior import Model
from ..sites import Sites
from ..structure.base import No
from ..structure.dense import typical_variance
from ..structure.integrals import Box, Measure, NormalMeasure, feature_integrals, integrals


def integral(model: Any, inputs: Any, data: Any, plan: Plan, inferred: Any, box: Any) -> tuple[np.ndarray, float]:
    """Mean, for each target, and variance of ∫f over a box or under a normal distribution."""
    measure = read_measure(box, inputs.dimension)
    if inferred is not None or model.likelihood.latents > 1:
        raise ValueError(f"integrals need Gaussian observations, not {type(model.likelihood).__name__}")
    if plan.chosen.quality != "exact" and plan.engine.structure != "markov":
        raise ValueError(
            f"integrals need an exact engine, and {plan.engine.name} is not: condition with structure='dense', "
            "or leave out approximate="
        )
    with lapack_threads(plan.rows):
        inputs, data = in_bucket(inputs, data) if plan.engine.takes_unseen_rows else (inputs, data)
        engine = plan.engine.tuned(model, inputs, data)
        mean, variance = _integral(model, engine.prepared(model, inputs, data), data, measure, engine)
    return np.asarray(mean), max(float(variance), 0.0)


def read_measure(given: Any, dimension: int) -> Measure:
    """A box, or a normal distribution from one `Normal` for each column."""
    columns = [given] if isinstance(given, Normal) else given
    if isinstance(columns, list | tuple) and any(isinstance(column, Normal) for column in columns):
        if len(columns) != dimension or not all(isinstance(column, Normal) for column in columns):
            raise ValueError(f"a normal distribution needs one Normal(mean, sd) for each of {dimension} columns, got {given!r}")
        mean, sd = np.array([[column.mean, column.sd] for column in columns], dtype=float).T
        if not (np.isfinite(mean) & np.isfinite(sd) & (sd > 0)).all():
            raise ValueError(f"a normal distribution needs finite means and positive standard deviations, got {given!r}")
        return NormalMeasure(mean, sd)
    return Box(_ends(given, dimension))


def _ends(box: Any, dimension: int) -> Float[np.ndarray, "D 2"]:
    """A box from a pair of ends, or one pair for each column."""
    try:
        ends = np.asarray(box, dtype=float)
    except (TypeError, ValueError):
        ends = np.full(1, np.nan)
    ends = ends[None] if ends.shape == (2,) else ends
    if ends.shape != (dimension, 2) or not np.isfinite(ends).all() or (ends[:, 0] > ends[:, 1]).any():
        wanted = "a pair (low, high)" if dimension == 1 else f"{dimension} pairs (low, high), one for each column"
        wanted += ", the lower end first" if ends.shape == (dimension, 2) and np.isfinite(ends).all() else ""
        raise ValueError(f"the box of an integral is {wanted}, got {box!r}")
    return ends


@functools.partial(jax.jit, static_argnames="engine")
def _integral(model: Model, inputs: Any, data: Any, measure: Measure, engine: Any) -> tuple[Array, Array]:
    X, D, T = jnp.asarray(inputs.points), measure.dimension, data.y.shape[1]
    z, V = integrals(model.kernel, X, measure)
    sites = sites_of(model, X, data, typical_variance(model.kernel, X))
    more = jnp.concatenate([sites.targets, jnp.where(data.seen, z, 0.0)[:, None]], axis=1)
    form = engine.form(model.kernel, inputs)
    assert not isinstance(form, No)
    log_det, gram = engine.log_det_and_gram(form, Sites(sites.precision, sites.precision[:, None] * more, values=more))
    weights = integrate(model, log_det, gram[:-1, :-1], jnp.sum(data.seen), T, D)[1]
    P = gram.shape[0] - 1 - T
    whole = lambda x: jnp.concatenate([c.ravel() for c in columns(model, x[None])])
    total = feature_integrals(whole, measure) if P or not _is_zero(model) else jnp.zeros(1 + P)
    rho = total[1:] - gram[-1, T:-1]
    U = jax.scipy.linalg.solve_triangular(weights.factor, rho, lower=True) if P else jnp.zeros(0)
    return total[0] + gram[-1, :T] + rho @ weights.mean, V - gram[-1, -1] + U @ U


def _is_zero(model: Model) -> bool:
    return type(model.mean).__name__ == "ZeroMean"
