"""Draws from a prior: along a line or over a grid where it has that structure, else through its covariance matrix."""

from __future__ import annotations

import functools
from typing import Any

import jax
import numpy as np

from ..engines import memory
from ..engines.base import form_by_shape
from ..engines.basis import columns
from ..engines.eigen import Eigen
from ..engines.grids import prior_draws
from ..engines.kalman import Kalman
from ..engines.plan import plan
from ..inputs.layouts import Grid, Inputs
from ..kernels.algebra import Kernel
from ..kernels.independent import kernels_of
from ..likelihoods.gaussian import Gaussian
from ..linalg.dense.cholesky import lapack_threads
from ..posterior import Model
from ..structure.base import No
from ..structure.dense import covariance
from ..structure.kronecker import Kronecker, kronecker
from ..structure.state_space import StateSpace

DRAW_BYTES = 256e6  # what drawing along a line may hold at a time


def sample_prior(model: Any, inputs: Inputs, n: int, rng: np.random.Generator) -> np.ndarray:
    """n joint draws of f, (n, N), or of all latents, (n, N, C)."""
    if model.likelihood.latents > 1:
        each = [model.replace(kernel=one, likelihood=Gaussian()) for one in kernels_of(model.kernel, model.likelihood.latents)]
        draws = [_draws(one, inputs, n, rng) for one in each]
        return np.asarray(_mean_and_basis(model, inputs.points)[0]) + np.stack(draws, axis=-1)
    mean, Phi = (np.asarray(part) for part in _mean_and_basis(model, inputs.points))
    of_mean = jax.eval_shape(model.mean.features, jax.ShapeDtypeStruct((inputs.dimension,), np.float64)).shape[0]
    if Phi.shape[1] > (0 if model.mean.diffuse else of_mean):
        raise ValueError("this prior leaves some functions free, so it cannot be sampled: give the basis weights a covariance")
    f = mean + _draws(model, inputs, n, rng)
    if of_mean:
        root = np.linalg.cholesky(np.asarray(model.mean.precision(of_mean)))
        f += np.linalg.solve(root.T, rng.standard_normal((of_mean, n))).T @ Phi.T
    return f


def _draws(model: Model, inputs: Inputs, n: int, rng: np.random.Generator) -> np.ndarray:
    """n draws of the zero-mean process, (n, N)."""
    engine = plan(model, inputs).engine
    form = form_by_shape(engine, model.kernel, inputs)
    if isinstance(form_by_shape(Eigen(), model.kernel, inputs), Kronecker):
        with lapack_threads(1):
            return np.asarray(_over_the_grid(model.kernel, inputs, jax.random.key(int(rng.integers(2**62))), n)).T
    if not isinstance(engine, Kalman) or not isinstance(form, StateSpace):
        N = len(inputs)
        remedy = "ask for fewer places, draw on a Grid where the kernel factors, or take a kernel with a finite state"
        memory.check(8.0 * (6 * N**2 + 2 * n * N), f"drawing {n} times at {N} places", remedy)
        K = np.asarray(_matrix(model.kernel, inputs.points))
        return rng.standard_normal((n, len(K))) @ square_root(K).T
    batch = int(np.clip(DRAW_BYTES / (32 * len(inputs) * form.chain.size), 1, n))
    keys = [jax.random.key(int(rng.integers(2**62))) for _ in range(-(-n // batch))]
    return np.concatenate([np.asarray(_along_the_line(model.kernel, inputs, key, batch, engine)).T for key in keys])[:n]


def square_root(covariance: np.ndarray) -> np.ndarray:
    """R with R Rᵀ = covariance, for one that is only semi-definite up to rounding."""
    values, vectors = np.linalg.eigh(0.5 * (covariance + covariance.T))
    return vectors * np.sqrt(np.maximum(values, 0.0))


_mean_and_basis = jax.jit(columns)


@jax.jit
def _matrix(kernel: Kernel, X: Any) -> Any:
    return covariance(kernel, X, X)


@functools.partial(jax.jit, static_argnames="n")
def _over_the_grid(kernel: Kernel, inputs: Grid, key: Any, n: int) -> Any:
    form = kronecker(kernel, inputs)
    assert not isinstance(form, No)
    return prior_draws(form, key, n)


@functools.partial(jax.jit, static_argnames=("n", "engine"))
def _along_the_line(kernel: Kernel, inputs: Inputs, key: Any, n: int, engine: Kalman) -> Any:
    form = engine.form(kernel, inputs)
    assert not isinstance(form, No)
    return engine.prior_draws(form, key, n)
