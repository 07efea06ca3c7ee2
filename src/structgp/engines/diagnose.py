"""Why a covariance could not be factorised, in words that help."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .._types import how_many
from ..inputs.layouts import Inputs
from ..inputs.observations import Data
from ..inputs.reading import listed
from ..kernels.independent import kernels_of
from ..parameters.tree import Leaf, leaves, show
from ..structure.dense import covariance
from .basis import columns

FAR = 4.0  # powers of ten from one at which a parameter is worth a word
MOST_ROWS = 1500  # an eigendecomposition of more would take longer than a user waits for a message


def why_no_start(model: Any, inputs: Inputs, data: Data) -> str:
    """Why learning cannot begin: a prior without density, a mean or a likelihood without a value, or extreme numbers."""
    for leaf in leaves(model):
        if leaf.prior is not None and not np.isfinite(np.sum(leaf.prior.log_prob(np.asarray(leaf.value)))):
            return (
                f"the prior {leaf.prior!r} of {leaf.path} has no density at {show(leaf.value)}, where learning starts: "
                "start inside of it, as in learned(value, prior=...)"
            )
    return _without_value(model, inputs, data) or (
        f"the evidence is not finite at the start, {model!r}: check the data for extreme values, or give other starting values"
    )


def _without_value(model: Any, inputs: Inputs, data: Data) -> str:
    """Whether the mean, or the likelihood at the mean, is no number where data were seen."""
    if model.likelihood.latents > 1:
        return ""
    seen = np.asarray(data.seen)
    X, y, rows = np.asarray(inputs.points)[seen], np.asarray(data.y)[seen], np.flatnonzero(seen)
    if not len(X):
        return ""
    mean, Phi = (np.asarray(part) for part in columns(model, jnp.asarray(X)))
    bad = ~(np.isfinite(mean) & np.isfinite(Phi).all(axis=1))
    if bad.any():
        return (
            f"the mean {model.mean!r} is not finite in {listed('row', rows[bad])} of X, as at {X[bad][0]}: "
            "define it for all inputs, or leave these rows out"
        )
    extra = 1.0 if data.extra is None else np.asarray(data.extra)[seen]
    value = np.asarray(model.likelihood.log_prob(y[:, 0], mean, extra))
    if not np.isfinite(value).all():
        at = int(np.flatnonzero(~np.isfinite(value))[0])
        return (
            f"{type(model.likelihood).__name__}.log_prob(y, f) is {value[at]} for y = {y[at, 0]:g} (row {rows[at]}) and f = "
            f"{mean[at]:g}: give it a finite value for every f, or drop observations that cannot be"
        )
    return ""


def why_not_positive(model: Any, inputs: Inputs, data: Data) -> str:
    """The kernel, the direction in which its covariance fails, the parameter that is extreme, and what to do."""
    without = _without_value(model, inputs, data)
    if without:
        return without
    undetermined = _undetermined(model, np.asarray(inputs.points)[np.asarray(data.seen)])
    if undetermined:
        return undetermined
    X = np.asarray(inputs.points)[:MOST_ROWS]
    kernels = kernels_of(model.kernel, model.likelihood.latents)
    kernel, K = min(((kernel, np.asarray(jax.jit(covariance_of)(kernel, X))) for kernel in kernels), key=_soundness)
    parts = [f"the covariance of {kernel!r} could not be factorised"]
    if not np.isfinite(K).all():
        i, j = np.argwhere(~np.isfinite(K))[0]
        parts.append(f"it is {K[i, j]} between rows {i} and {j} of X")
    elif not np.isfinite(data.y).all() or np.abs(data.y).max() > 1e150:
        parts.append("y holds values too large to square")
    else:
        value, direction = (part[..., 0] for part in np.linalg.eigh(0.5 * (K + K.T)))
        i, j = sorted(np.argsort(-np.abs(direction))[:2]) if len(K) > 1 else (0, 0)
        distance = np.linalg.norm(X[i] - X[j])
        parts.append(f"its smallest eigenvalue is {value:.3g}, mostly between rows {i} and {j} of X, {distance:.3g} apart")
    extreme = _most_extreme(model, X)
    if extreme:
        parts.append(extreme)
    return "; ".join(parts) + ". Merge rows that coincide, raise the noise, or hold the parameter with fixed(...) or bounds"


def _soundness(found: tuple[Any, np.ndarray]) -> float:
    """The smallest eigenvalue of a covariance that was found for a kernel."""
    return np.linalg.eigvalsh(found[1])[0] if np.isfinite(found[1]).all() else -np.inf


def _undetermined(model: Any, X: np.ndarray) -> str:
    """Whether fewer observations than free functions were made, or they cannot tell these apart."""
    if not len(X):
        return "no observation was seen: at least one value of y must not be missing"
    Phi = np.asarray(columns(model, jnp.asarray(X))[1])
    of_mean = jax.eval_shape(model.mean.features, jax.ShapeDtypeStruct((X.shape[1],), np.float64)).shape[0]
    free = Phi if model.mean.diffuse else Phi[:, of_mean:]
    rank = int(np.linalg.matrix_rank(free)) if free.size else 0
    if rank == free.shape[-1]:
        return ""
    made = how_many(len(X), "observation")
    return (
        f"{free.shape[1]} functions are left free by the mean or the kernel, but {made} can determine only {rank} of them: "
        "add data, or give the basis a covariance"
    )


def covariance_of(kernel: Any, X: Any) -> Any:
    """K at the rows of X."""
    return covariance(kernel, X, X)


def _most_extreme(model: Any, X: np.ndarray) -> str:
    """The parameter whose size is furthest from one in units of the data, if it is far."""
    spread = max(float(np.ptp(X)) if X.size else 1.0, 1e-300)
    scores: list[tuple[float, Leaf | None]] = [(0.0, None)]
    for leaf in leaves(model):
        unit = spread if "lengthscale" in leaf.path or "period" in leaf.path else 1.0
        sizes = np.abs(np.atleast_1d(np.asarray(leaf.value))) / unit
        sizes = sizes[(sizes > 0) & np.isfinite(sizes)]
        if sizes.size:
            scores.append((float(np.abs(np.log10(sizes)).max()), leaf))
    score, worst = max(scores, key=lambda item: item[0])
    if worst is None or score < FAR or np.ndim(worst.value):
        return ""
    return f"{worst.path} = {np.asarray(worst.value):.3g} is extreme"
