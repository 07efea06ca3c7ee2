"""Where learning with outliers starts: without the rows that a plain process, given all the others, would not have expected.

Outliers that come in groups vouch for each other, so rows are left out with their nearest neighbours. Of a Gaussian process
with covariance C, A = C⁻¹ and a = A(y − m), a block B of k rows given all others misses by

    d² = a_Bᵀ (A_BB)⁻¹ a_B ~ χ²_k,   z = (d² − k)/√(2k).

The block with the largest z goes, the process is learned again, and so on while z is large. What it then believes of the
function and of the noise is where learning starts; the rows that went tell how wide outliers are. Counts are seen by their
logarithms.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float

from ..engines.base import GLIMPSE, Offer
from ..engines.cholesky import Cholesky, cost_of_matrix
from ..engines.plan import tells_outliers_apart
from ..inputs.layouts import Inputs, as_inputs
from ..inputs.observations import Data
from ..kernels.independent import IndependentKernels
from ..likelihoods.gaussian import Gaussian
from ..likelihoods.switch import SPREAD
from ..means import ConstantMean, ZeroMean
from ..parameters.tree import free_vector, learned_leaves, named_values, with_values
from ..structure.dense import covariance
from .clock import NEVER, Deadline
from .initialise import glimpse, scales_of, suggested
from .maximise import maximise
from .objective import LOWEST, Objective
from .sites import SiteEvidence
from .suggest import suggest

SIZES = (1, 3, 5, 8)  # rows of a block
LARGER = (*SIZES, 16)  # where a process that saw all rows, and may have bent to them, is asked once
UNLIKELY = 4.0  # z beyond which a block goes
ROUNDS = 4
LEAST = 8  # rows that must be left
SHARE = 0.25  # of the time that is left, at most: it is a start, and what begins there takes its time as well
LEAST_NOISE = 1e-3  # of the variance of y: with fewer rows than it could bend to, a plain process may find none at all
WIDER, TRIES = 3.0, 6  # times the noise, where there is no value at a start, and how often


class Clean(NamedTuple):
    """A plain process of the rows that it expects, which rows these are, and the mean square by which the others miss it."""

    model: Any
    kept: Bool[np.ndarray, " N"]
    outside: float


def block_start(
    model: Any, inputs: Inputs, data: Data, objective: Objective, sites: SiteEvidence | None = None, deadline: Deadline = NEVER
) -> list[Any]:
    """The model where a plain process without the rows it does not expect would put it, or nothing where all are expected.

    Where the objective has no value there, the noise is made wider until it has one. `sites` are told to begin without these
    rows as well.
    """
    plain = _plain(model)
    if plain is None or len(inputs) < 2 * LEAST or deadline.passed():
        return []
    if len(inputs) > GLIMPSE:
        inputs, data = glimpse(inputs, data)
        sites = None
    seen, y = np.asarray(data.seen), model.likelihood.plainly(np.asarray(data.y)[:, 0], data.extra)
    clean = without_blocks(plain, inputs, dataclasses.replace(data, y=y[:, None]), deadline.earlier(1 - SHARE))
    share = 1 - float(np.sum(clean.kept) / np.sum(seen))
    if not share:
        return []
    for times in WIDER ** np.arange(TRIES):
        if deadline.passed():
            break
        noise = times * max(float(clean.model.likelihood.noise), LEAST_NOISE * float(np.var(y[seen])))
        start = _as_start(model, clean, noise, share, _suggested(model, np.asarray(inputs.points), data))
        if sites is not None:
            sites.hint(free_vector(start), np.where(clean.kept, noise, max(clean.outside, WIDER * noise)))
        if objective(free_vector(start))[0] > LOWEST:
            return [start]
    return []


def without_blocks(plain: Any, inputs: Inputs, data: Data, deadline: Deadline = NEVER) -> Clean:
    """A plain process learned without the blocks of rows that it does not expect."""
    X, y, seen = np.asarray(inputs.points), np.asarray(data.y)[:, 0], np.asarray(data.seen)
    offer = Offer(Cholesky(), cost_of_matrix(len(inputs), inputs.dimension))
    options: dict[str, Any] = {"restarts": 0, "seed": 0, "max_evaluations": 100, "progress": False}
    near, kept = _neighbours(X / scales_of(X), max(SIZES)), seen.copy()
    for _ in range(ROUNDS + 1):
        rows = Data(data.y, np.zeros(len(y)), kept, data.flat)
        plain = maximise(plain, as_inputs(X), rows, offer, deadline=deadline, **options)[0]
        worst, z = _worst_block(plain, X, y, kept, near)
        if z <= UNLIKELY or kept.sum() - len(worst) < max(LEAST, seen.sum() // 2) or deadline.passed():
            break
        kept[worst] = False
    gone = seen & ~kept
    if not gone.any():
        return Clean(plain, kept, float(np.var(y[seen])))
    missed = y[gone] - _mean_at(plain, X, y, kept)[gone]
    return Clean(plain, kept, max(float(np.mean(missed**2)), float(np.var(y[seen]))))


def least_expected(model: Any, inputs: Inputs, data: Data) -> tuple[int, float]:
    """How many rows the block has that a process with Gaussian noise expects least, given the others, and its z; of many rows
    some are looked at."""
    if len(inputs) > GLIMPSE:
        inputs, data = glimpse(inputs, data)
    X, y, seen = np.asarray(inputs.points), np.asarray(data.y)[:, 0], np.asarray(data.seen)
    worst, z = _worst_block(model, X, y, seen, _neighbours(X / scales_of(X), max(LARGER)), LARGER)
    return len(worst), z


def _plain(model: Any) -> Any:
    """The signal of a model with Gaussian noise, if there is such a thing to begin at."""
    latent, _ = model.likelihood.signal
    if not tells_outliers_apart(model):
        return None
    mean = model.mean
    if model.likelihood.latents > 1:
        if not isinstance(mean, (ConstantMean, ZeroMean)) or not isinstance(model.kernel, IndependentKernels):
            return None
        mean = ConstantMean(np.ravel(np.broadcast_to(getattr(mean, "value", 0.0), model.likelihood.latents))[latent])
    kernel = model.kernel.kernels[latent] if isinstance(model.kernel, IndependentKernels) else model.kernel
    return model.replace(kernel=kernel, likelihood=Gaussian(), mean=mean)


def _suggested(model: Any, X: np.ndarray, data: Data) -> Any:
    """The model where the data suggest it, with gates that change within one spread of the inputs: groups are small."""
    like = suggested(model, X, data)
    if not isinstance(like.kernel, IndependentKernels):
        return like
    near = scales_of(X) / np.sqrt(X.shape[1])
    of_gates = tuple(suggest(kernel, near, SPREAD) for kernel in like.kernel.kernels[: model.likelihood.gates])
    return like.replace(kernel=like.kernel.replace(kernels=of_gates + like.kernel.kernels[len(of_gates) :]))


def _as_start(model: Any, clean: Clean, noise: float, share: float, like: Any) -> Any:
    """The model with the signal and the noise of a clean process, and all else where the data suggest it."""
    likelihood = model.likelihood.told_apart(noise, max(clean.outside, WIDER * noise), share)
    latent, _ = model.likelihood.signal
    several = isinstance(model.kernel, IndependentKernels)
    where = f"kernel.kernels[{latent}]." if several else "kernel."
    values = named_values(like)
    values |= {where + path: value for path, value in named_values(clean.model.kernel).items()}
    values |= {f"likelihood.{path}": value for path, value in named_values(likelihood).items()}
    for path, value in named_values(clean.model.mean).items():
        here = f"mean.{path}"
        if here not in values:
            continue
        old = np.array(values[here], dtype=float)
        if old.ndim and not np.ndim(value):
            old[latent] = value
        values[here] = old if old.ndim else value
    inside = lambda leaf: values[leaf.path] if leaf.bounds is None else np.clip(values[leaf.path], *leaf.bounds)
    return with_values(model, {leaf.path: inside(leaf) for leaf in learned_leaves(model) if leaf.path in values})


def _neighbours(X: Float[np.ndarray, "N D"], count: int) -> np.ndarray:
    """The rows nearest to each, itself first."""
    from scipy.spatial import cKDTree

    return cKDTree(X).query(X, min(count, len(X)))[1].reshape(len(X), -1)


def _worst_block(
    plain: Any, X: np.ndarray, y: np.ndarray, kept: np.ndarray, near: np.ndarray, sizes: tuple[int, ...] = SIZES
) -> tuple[np.ndarray, float]:
    """The block that is least expected given all other rows that are kept, and its z."""
    place = np.cumsum(kept) - 1
    A, a = _precision(plain, X, y, kept)
    worst, largest = np.zeros(0, int), -np.inf
    for size in sizes:
        for block in near[kept][:, :size]:
            rows = block[kept[block]]
            if len(rows) < size:
                continue
            at = place[rows]
            d2 = float(a[at] @ np.linalg.solve(A[np.ix_(at, at)], a[at]))
            z = (d2 - size) / np.sqrt(2 * size)
            if z > largest:
                worst, largest = rows, z
    return worst, largest


def _precision(plain: Any, X: np.ndarray, y: np.ndarray, kept: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """C⁻¹ and C⁻¹(y − m) of the rows that are kept."""
    K, m = _covariance_and_mean(plain, X)
    noise = float(plain.likelihood.noise) + 1e-10 * float(np.mean(np.diagonal(K)))
    A = np.linalg.inv(K[np.ix_(kept, kept)] + noise * np.eye(kept.sum()))
    return A, A @ (y - m)[kept]


def _mean_at(plain: Any, X: np.ndarray, y: np.ndarray, kept: np.ndarray) -> np.ndarray:
    K, m = _covariance_and_mean(plain, X)
    return m + K[:, kept] @ _precision(plain, X, y, kept)[1]


def _covariance_and_mean(plain: Any, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    K, m = _prior(plain.kernel, plain.mean, X)
    return np.asarray(K), np.asarray(m)


@jax.jit
def _prior(kernel: Any, mean: Any, X: Any) -> tuple[Any, Any]:
    return covariance(kernel, X, X), jax.vmap(mean)(jnp.asarray(X))
