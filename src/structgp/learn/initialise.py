"""Where learning starts, and in what units it climbs: whole models with the values that the data suggest."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from ..engines.base import GLIMPSE, SOME, gaussian
from ..inputs.layouts import Grid, Inputs, as_inputs
from ..inputs.observations import Data
from ..inputs.rows import in_few_sizes
from ..kernels.algebra import Kernel, On
from ..kernels.changepoint import ChangePoint
from ..kernels.independent import IndependentKernels
from ..kernels.induced import Induced
from ..kernels.nonstationary import Linear
from ..kernels.oscillating import SpectralMixture
from ..kernels.outputs import Lagged, outputs_of
from ..kernels.views import Project, Warp
from ..likelihoods.gaussian import Gaussian
from ..means import ConstantMean, LevelOfOutput, LinearMean, Mean, ZeroMean
from ..parameters.supports import Real
from ..parameters.tree import free_bounds, learned_leaves, named_values, with_values
from ..posterior import Model
from ..structure.low_rank import in_units
from .suggest import suggest
from .waves import periods_of

SHARES = (  # factors on the lengthscales, and noise as a part of the variance of y
    (1.0, 0.1),
    (0.25, 0.1),
    (1.0, 0.5),
    (0.06, 0.1),  # what goes up and down many times looks like noise from any longer one
)
TELLING = 2**16  # rows that tell where to begin as well as very many do
MANY = 1000  # entries of θ beyond which no matrix of their size is made
ROUNDING = 1e-13  # of the largest number of a column: what its spread is made of when the column is constant
BLOCK = 2  # cells along each side of the blocks that these come in
LAGGING = 0.1  # of the spread of the inputs: the unit of lags
GROUP = 20  # rows of a group, where they are not cells


def candidates(model: Model, X: np.ndarray, data: Data) -> Iterator[Model]:
    """The model as it was given, then as the data suggest it, in a few versions.

    Their number depends on the model alone, and all but the first are the same in any units of the data, except for lengths and
    periods that are kept as they were given.
    """
    yield model
    scales, periods = scales_of(X), _periods(model, X, data)
    for share, (factor, noisy) in enumerate(SHARES):
        likelihood, level, spread = _suggested_by(model, X, data, noisy)
        of_mean = _of_mean(model, level, X)
        if not share and of_mean:  # where the level is learned, the given kernel is tried at that of the data
            yield _with_learned(model, of_mean)
        variances = (spread, *(_with_offset(model, X, level, spread) if not share else ()))
        if not share and model.likelihood.latents == 1:  # about a mean that is known a kernel was given with the offset in it
            yield from _in_their_units(model, likelihood, scales, variances[-1], of_mean)
        for variance in variances:
            suggestions = _suggestions(model, likelihood, _suggested_kernel(model, factor * scales, variance), of_mean)
            yield _with_learned(model, suggestions)
            for found in periods if not share else ():
                waves = {path: np.where(np.isnan(wave), suggestions.get(path, wave), wave) for path, wave in found.items()}
                yield _with_learned(model, suggestions | waves)


def glimpse(inputs: Inputs, data: Data) -> tuple[Inputs, Data]:
    """Small groups of rows from all over: their neighbours tell short lengthscales, their distances long ones."""
    seen = np.flatnonzero(data.seen)
    rows = _blocks(inputs, seen) if isinstance(inputs, Grid) else _groups(np.asarray(inputs.points), seen)
    some = jax.tree.map(lambda values: np.asarray(values)[rows], data)
    return as_inputs(np.asarray(inputs.points)[rows]), some


def _blocks(grid: Grid, seen: np.ndarray) -> np.ndarray:
    """The seen cells in some blocks of a grid."""
    cells = seen if grid.cells is None else np.asarray(grid.cells)[seen]
    blocks = np.stack(np.unravel_index(cells, grid.shape)) // BLOCK
    _, number, sizes = np.unique(np.ravel_multi_index(tuple(blocks), grid.shape), return_inverse=True, return_counts=True)
    order = np.random.default_rng(0).permutation(len(sizes))
    taken = order[: 1 + np.searchsorted(np.cumsum(sizes[order]), GLIMPSE)]
    return seen[np.isin(number, taken)]


def _groups(X: np.ndarray, seen: np.ndarray) -> np.ndarray:
    """The seen rows around some of them."""
    from scipy.spatial import cKDTree

    there = X[seen] / scales_of(X[seen])
    centres = np.random.default_rng(0).permutation(len(seen))[: GLIMPSE // GROUP]
    near = cKDTree(there).query(there[centres], min(GROUP, len(seen)))[1]
    return seen[np.unique(near)]


def some_rows(inputs: Inputs, data: Data) -> tuple[Inputs, Data]:
    """Some of the rows that were seen, all over the data."""
    seen = np.flatnonzero(data.seen)
    rows = np.sort(np.random.default_rng(0).choice(seen, min(SOME, len(seen)), replace=False))
    return as_inputs(np.asarray(inputs.points)[rows]), jax.tree.map(lambda values: np.asarray(values)[rows], data)


def telling_rows(model: Model, inputs: Inputs, data: Data) -> tuple[np.ndarray, Data]:
    """Places and data that tell where to begin: all of them, or some of very many that have Gaussian noise."""
    if len(inputs) <= 16 * TELLING or not gaussian(model, data) or outputs_of(model.kernel) is not None:
        return np.asarray(inputs.points), data
    seen = np.flatnonzero(data.seen)
    rows = seen[np.unique(np.random.default_rng(0).integers(0, len(seen), TELLING))] if len(seen) else np.arange(TELLING)
    cells = inputs.cells if isinstance(inputs, Grid) else None
    places = Grid(*inputs.axes, cells=rows if cells is None else np.asarray(cells)[rows]) if isinstance(inputs, Grid) else None
    X = np.asarray(inputs.points)[rows] if places is None else np.asarray(places.points)
    return X, jax.tree.map(lambda values: np.asarray(values)[rows], data)


def suggested(model: Any, X: np.ndarray, data: Data, noisy: float = SHARES[0][1]) -> Any:
    """The model with its learned values where the data suggest them: in their units, whatever these are."""
    likelihood, level, spread = _suggested_by(model, X, data, noisy)
    return _with_learned(
        model, _suggestions(model, likelihood, _suggested_kernel(model, scales_of(X), spread), _of_mean(model, level, X))
    )


def _suggested_by(model: Model, X: np.ndarray, data: Data, noisy: float) -> tuple[Any, Any, Any]:
    """The likelihood, the level and the variance of f that the data suggest: for each output where there are several."""
    found: tuple[Any, Any, Any] = model.likelihood.suggested(*_seen(data), noisy)
    likelihood, level, spread = found
    which = _numbers_of_outputs(model, X)
    if which is None or not isinstance(likelihood, Gaussian):
        return likelihood, level, spread
    seen = np.asarray(data.seen)
    each = [data.y[seen & (which == i)] for i in range(outputs_of(model.kernel).count)]  # type: ignore[union-attr]
    total = np.array([np.var(y) if len(y) > 1 and np.ptp(y) > 0 else spread / (1 - noisy) for y in each])
    if np.ndim(model.likelihood.noise):  # type: ignore[attr-defined]
        likelihood = Gaussian(noisy * total)
    if isinstance(model.mean, LevelOfOutput):
        level = np.array([np.mean(y) if len(y) else level for y in each])
    return likelihood, level, (1 - noisy) * total


def _numbers_of_outputs(model: Any, X: np.ndarray) -> np.ndarray | None:
    """The number of the output in each row, where there are several."""
    found = outputs_of(model.kernel)
    return None if found is None else np.round(X[:, found.among(X.shape[1])]).astype(int)


def _suggested_kernel(model: Model, scales: np.ndarray, variance: Any) -> Any:
    """The kernel with these variances; one that several latents share with the largest of theirs."""
    shared = model.likelihood.latents > 1 and not isinstance(model.kernel, IndependentKernels)
    return suggest(model.kernel, scales, float(np.max(variance)) if shared else variance)


def _suggestions(model: Model, likelihood: Any, kernel: Kernel, of_mean: dict[str, Any]) -> dict[str, Any]:
    values = {f"kernel.{path}": value for path, value in named_values(kernel).items()}
    values |= {f"likelihood.{path}": value for path, value in named_values(likelihood).items()}
    return values | of_mean


def _in_their_units(model: Model, likelihood: Any, scales: np.ndarray, spread: Any, of_mean: dict[str, Any]) -> Iterator[Model]:
    """The given kernel with its variances in the units of the data: what else is said of it may be right."""
    given = named_values(model.kernel)
    ours, wider = (named_values(_suggested_kernel(model, scales, variance)) for variance in (spread, 4 * spread))
    with np.errstate(divide="ignore", invalid="ignore"):
        powers = {
            path: np.log(np.mean(np.divide(wider[path], ours[path]))) / np.log(4) for path in given if np.size(given[path])
        }
        variances = [path for path, power in powers.items() if abs(power - 1) < 1e-6]
        total = lambda values: sum(float(np.mean(values[path])) for path in variances)
        factor = np.divide(total(ours), total(given))
    factor = factor if np.isfinite(factor) and factor > 0 else 1.0
    scaling = {path: power for path, power in powers.items() if np.isfinite(power) and power > 1e-6}
    moved = {f"kernel.{path}": given[path] * factor**power for path, power in scaling.items()}
    values = moved | {f"likelihood.{path}": value for path, value in named_values(likelihood).items()}
    yield _with_learned(model, values | of_mean)
    if isinstance(model.likelihood, Gaussian):  # all that was given times one number: noise beside the signal as it was
        noise = {"likelihood.noise": factor * np.asarray(model.likelihood.noise)}
        yield _with_learned(model, moved | noise | of_mean)


def _periods(model: Model, X: np.ndarray, data: Data) -> list[dict[str, Any]]:
    """The learned periods and frequencies of the kernel as the strongest waves along their columns, and as the next ones; of
    several frequencies also the first as it is suggested (NaN), for what is no wave, and the others as the strongest."""
    learned = {leaf.path: leaf for leaf in learned_leaves(model) if leaf.prior is None and np.ndim(leaf.value) < 2}
    along = {path: column for path, column in _along(model.kernel, tuple(range(X.shape[1]))).items() if path in learned}
    if not along or outputs_of(model.kernel) is not None:
        return []
    seen = np.asarray(data.seen)
    found: tuple[dict[str, Any], ...] = ({}, {}, {})
    for column in set(along.values()):
        paths = [path for path, own in along.items() if own == column]
        sizes = [np.size(learned[path].value) for path in paths]
        waves = np.array(periods_of(X[seen, column], np.asarray(data.y)[seen, 0], 1 + sum(sizes)))
        for choice, some in zip(found, (waves[:-1], waves[1:], waves[:-1]), strict=True):
            for path, part in zip(paths, np.split(some, np.cumsum(sizes)[:-1]), strict=True):
                value = 1 / part if path.endswith("frequencies") else part
                if choice is found[2] and len(part) > 1:
                    value = np.concatenate([[np.nan], value[:-1]])
                choice[path] = np.reshape(value, np.shape(learned[path].value))
    return [*found[:2], *([found[2]] if any(np.isnan(value).any() for value in found[2].values()) else [])]


def _along(kernel: Any, columns: tuple[int, ...], path: str = "kernel") -> dict[str, int]:
    """The paths of periods and frequencies along a single column, each with its column."""
    if isinstance(kernel, (Warp, Project)):
        return {}
    if isinstance(kernel, On):
        columns = tuple(columns[dim] for dim in kernel.dims)
    own = {f"{path}.{name}": columns[0] for name in ("period", "frequencies") if name in vars(kernel) and len(columns) == 1}
    for name, part in vars(kernel).items():
        for index, inner in enumerate(part) if isinstance(part, tuple) else ((None, part),):
            if isinstance(inner, (Kernel, IndependentKernels)):
                own |= _along(inner, columns, f"{path}.{name}" + ("" if index is None else f"[{index}]"))
    return own


def _of_mean(model: Model, level: Any, X: np.ndarray) -> dict[str, Any]:
    return {f"mean.{path}": value for path, value in _mean_values(model.mean, level, X.mean(axis=0)).items()}


def _seen(data: Data) -> tuple[np.ndarray, np.ndarray | None]:
    seen = np.asarray(data.seen)
    return data.y[seen], None if data.extra is None else data.extra[seen]


def _with_learned(model: Model, values: dict[str, Any]) -> Model:
    """The model with those of the values that are learned."""
    learned = learned_leaves(model)
    return with_values(model, {leaf.path: _within(values[leaf.path], leaf.bounds) for leaf in learned if leaf.path in values})


def _with_offset(model: Model, X: np.ndarray, level: Any, spread: Any) -> tuple[Any, ...]:
    """The variance of f about a mean that is known, when the data lie away from it: only the kernel can take them there."""
    of_mean, learned = _of_mean(model, level, X), {leaf.path for leaf in learned_leaves(model)}
    if learned & of_mean.keys() or jax.eval_shape(model.mean.features, X[0]).shape[0]:
        return ()
    known = 0.0 if isinstance(model.mean, ZeroMean) else np.mean(in_few_sizes(jax.vmap(model.mean), X), axis=0)
    offset = level - known
    far = offset**2 > (spread if model.likelihood.latents > 1 else np.mean(spread))
    return (spread + np.where(far, offset**2, 0.0),)


def scales_of(X: np.ndarray) -> np.ndarray:
    """A length for each column over which a function of all of them would change."""
    sd = X.std(axis=0)
    return np.where(sd > ROUNDING * np.abs(X).max(axis=0), sd, 1.0) * np.sqrt(X.shape[1])


def limits_of(model: Model, X: np.ndarray, data: Data) -> np.ndarray:
    """Between what each entry of θ stays with these observations: anything, unless the likelihood sets a limit."""
    limits = dict(model.likelihood.limits(*_seen(data)))
    level, (_, largest) = limits.pop("level", None), limits.pop("variance", (0.0, np.inf))
    named = {f"likelihood.{name}": limit for name, limit in limits.items()}
    if level is not None and isinstance(model.mean, ConstantMean):
        named["mean.value"] = level
    if np.isfinite(largest):  # what the suggested kernel has in it of the variance of f
        whole, half = (named_values(suggest(model.kernel, scales_of(X), part * largest)) for part in (1.0, 0.5))
        named |= {f"kernel.{path}": (0.0, np.max(value)) for path, value in whole.items() if np.any(value != half[path])}
    anything = (-np.inf, np.inf)
    rows = [
        free_bounds(leaf._replace(bounds=named[leaf.path])) if leaf.path in named else anything
        for leaf in learned_leaves(model)
        for _ in range(leaf.free_size)
    ]
    return np.array(rows).reshape(-1, 2)


def units_of(model: Model, X: np.ndarray, data: Data) -> np.ndarray:
    """A, where θ = A z and z has no units: levels, slopes and places on the scale of the data. Positive numbers are logarithms.

    A is diagonal but for the intercept of a linear mean, which is climbed at the middle of the data: elsewhere a small turn of
    the slope would have to be made up for by a large step of the intercept.
    Of very many entries it is the diagonal alone, (P,).
    """
    sd = scales_of(X) / np.sqrt(X.shape[1])
    size = np.sqrt(model.likelihood.suggested(*_seen(data), SHARES[0][1])[2])
    known = {f"kernel{path}": unit for path, unit in _places(model.kernel, sd).items()}
    if isinstance(model.mean, ConstantMean):
        known["mean.value"] = size if np.ndim(model.mean.value) else np.max(size)
    if isinstance(model.mean, LevelOfOutput):
        known["mean.levels"] = np.sqrt(np.broadcast_to(_suggested_by(model, X, data, SHARES[0][1])[2], model.mean.levels.shape))
    if isinstance(model.mean, LinearMean):
        known["mean.intercept"] = size
        known["mean.slope"] = np.max(size) / (sd if np.ndim(model.mean.slope) else np.mean(sd))
    if _numbers_of_outputs(model, X) is not None:  # loadings in the units of their outputs
        values = named_values(suggest(model.kernel, scales_of(X), _suggested_by(model, X, data, SHARES[0][1])[2]))
        loadings = {path: np.asarray(value) for path, value in values.items() if path.split(".")[-1] in ("loadings", "weights")}
        size_of = lambda W: np.sqrt(np.sum(W**2, axis=tuple(range(1, W.ndim)), keepdims=True))
        known |= {f"kernel.{path}": np.where(size_of(W) > 0, size_of(W), 1.0) for path, W in loadings.items()}
    learned, rows = learned_leaves(model), {}
    units: list[np.ndarray] = []
    for leaf in learned:
        rows[leaf.path] = slice(sum(map(len, units)), sum(map(len, units)) + leaf.free_size)
        if isinstance(leaf.support, Real):
            own = np.abs(np.asarray(leaf.value))
            units.append(np.ravel(np.broadcast_to(known.get(leaf.path, np.where(own > 0, own, 1.0)), own.shape)))
        else:
            units.append(np.ones(leaf.free_size))
    if sum(map(len, units)) > MANY:
        return np.concatenate(units)
    A = np.diag(np.concatenate(units)) if units else np.zeros((0, 0))
    free = {leaf.path for leaf in learned if leaf.prior is None and leaf.bounds is None}
    if isinstance(model.mean, LinearMean) and {"mean.slope", "mean.intercept"} <= free and not np.ndim(model.mean.intercept):
        center = X.mean(axis=0) if np.ndim(model.mean.slope) else np.sum(X.mean(axis=0))
        A[rows["mean.intercept"], rows["mean.slope"]] = -center * np.diag(A)[rows["mean.slope"]]
    return A


def _places(kernel: Any, sd: np.ndarray, path: str = "") -> dict[str, Any]:
    """The units of the parameters of a kernel that are places, or frequencies, along columns with these spreads."""
    if isinstance(kernel, Warp):
        return {}
    if isinstance(kernel, On):
        sd = sd[list(kernel.dims)]
    if isinstance(kernel, Project):
        sd = np.sqrt(sd**2 @ np.reshape(kernel.direction, (len(sd), -1)) ** 2)
    own: dict[str, Any] = {}
    if isinstance(kernel, Linear):
        own = {f"{path}.center": sd if np.ndim(kernel.center) else np.mean(sd)}
    if isinstance(kernel, Lagged):
        own = {f"{path}.lags": LAGGING * (sd[:-1] if np.ndim(kernel.lags) == 2 else np.mean(sd[:-1]))}
    if isinstance(kernel, ChangePoint):
        own = {f"{path}.location": sd[kernel.dim]}
    if isinstance(kernel, Induced):
        embedded = in_units(kernel.kernel, np.eye(len(sd)))
        slopes = np.zeros(len(sd)) if embedded is None else np.linalg.norm(np.asarray(embedded), axis=1)
        own = {f"{path}.inputs": np.where(slopes > 0, 1 / np.where(slopes > 0, slopes, 1.0), sd)}
    if isinstance(kernel, SpectralMixture):
        own = {f"{path}.frequencies": 1 / (sd if np.ndim(kernel.frequencies) > 1 else np.mean(sd))}
    for name, part in vars(kernel).items():
        for index, inner in enumerate(part) if isinstance(part, tuple) else ((None, part),):
            if isinstance(inner, (Kernel, IndependentKernels)):
                own |= _places(inner, sd, f"{path}.{name}" + ("" if index is None else f"[{index}]"))
    return own


def _within(value: Any, bounds: tuple[float, float] | None) -> Any:
    return value if bounds is None else np.clip(value, *bounds)


def _mean_values(mean: Mean, level: Any, center: np.ndarray) -> dict[str, Any]:
    """The values with which a mean passes through a level in the middle of the data: that of all latents, or of each."""
    shaped = lambda level, shape: np.broadcast_to(level if shape else np.mean(level), shape).astype(float)
    if type(mean) is ConstantMean:
        return {"value": shaped(level, np.shape(mean.value))}
    if type(mean) is LevelOfOutput:
        return {"levels": shaped(level, np.shape(mean.levels))}
    if type(mean) is LinearMean:
        return {"intercept": shaped(level - np.sum(np.asarray(mean.slope) * center), np.shape(mean.intercept))}
    return {}
