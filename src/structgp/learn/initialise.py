"""Where learning starts: values that the data suggest, by one rule for each node of the kernel algebra."""

from __future__ import annotations

from collections.abc import Iterator
from functools import singledispatch
from typing import Any

import jax
import numpy as np

from ..inputs.layouts import Grid, Inputs, as_inputs
from ..inputs.observations import Data
from ..kernels.algebra import Kernel, Product, Scaled, Sum
from ..kernels.changepoint import ChangePoint
from ..kernels.independent import IndependentKernels
from ..kernels.metrics import Metric
from ..kernels.nonstationary import Linear
from ..kernels.stationary import ProductMatern, Radial
from ..kernels.views import On, Project
from ..means import ConstantMean, LinearMean, Mean
from ..parameters.tree import learned_leaves, named_values, with_values
from ..posterior import Model

SHARES = ((1.0, 0.1), (0.25, 0.1), (1.0, 0.5))  # factors on the lengthscales, and noise as a part of the variance of y

GLIMPSE = 1200  # cells of which a dense fit tells where to begin a costly climb
BLOCK = 2  # cells along each side of the blocks that these come in


def candidates(model: Model, X: np.ndarray, data: Data) -> Iterator[Model]:
    """The model as it was given, then as the data suggest it, in a few versions."""
    yield model
    y = data.y[np.asarray(data.seen)]
    extra = None if data.extra is None else data.extra[np.asarray(data.seen)]
    for factor, noisy in SHARES:
        likelihood, level, spread = model.likelihood.suggested(y, extra, noisy)
        kernel = suggest(model.kernel, factor * _scales(X), spread)
        values = {f"kernel.{path}": value for path, value in named_values(kernel).items()}
        values |= {f"likelihood.{path}": value for path, value in named_values(likelihood).items()}
        values |= {f"mean.{path}": value for path, value in _mean_values(model.mean, level).items()}
        learned = learned_leaves(model)
        yield with_values(
            model, {leaf.path: _within(values[leaf.path], leaf.bounds) for leaf in learned if leaf.path in values}
        )


def glimpse(grid: Grid, data: Data) -> tuple[Inputs, Data]:
    """Small blocks of cells all over the grid: their neighbours tell short lengthscales, their distances long ones."""
    seen = np.flatnonzero(data.seen)
    cells = seen if grid.cells is None else np.asarray(grid.cells)[seen]
    blocks = np.stack(np.unravel_index(cells, grid.shape)) // BLOCK
    _, number, sizes = np.unique(np.ravel_multi_index(tuple(blocks), grid.shape), return_inverse=True, return_counts=True)
    order = np.random.default_rng(0).permutation(len(sizes))
    taken = order[: 1 + np.searchsorted(np.cumsum(sizes[order]), GLIMPSE)]
    rows = seen[np.isin(number, taken)]
    some = jax.tree.map(lambda values: np.asarray(values)[rows], data)
    return as_inputs(np.asarray(grid.points)[rows]), some


def _scales(X: np.ndarray) -> np.ndarray:
    """A length for each column over which a function of all of them would change."""
    sd = X.std(axis=0)
    return np.where(sd > 0, sd, 1.0) * np.sqrt(X.shape[1])


def _within(value: Any, bounds: tuple[float, float] | None) -> Any:
    return value if bounds is None else np.clip(value, *bounds)


def _mean_values(mean: Mean, level: float) -> dict[str, Any]:
    names = {ConstantMean: "value", LinearMean: "intercept"}
    return {name: np.full(np.shape(getattr(mean, name)), level) for kind, name in names.items() if type(mean) is kind}


@singledispatch
def suggest(kernel: Kernel, scales: np.ndarray, variance: float) -> Kernel:
    """The kernel with a variance and lengthscales that fit the data; parameters without a rule stay as they are."""
    own = type(kernel).__dataclass_fields__
    return kernel.replace(variance=variance) if "variance" in own and "support" in own["variance"].metadata else kernel


def _lengthscale(lengthscale: Any, scales: np.ndarray) -> Any:
    if isinstance(lengthscale, Metric):
        return lengthscale
    return scales if np.ndim(lengthscale) else float(np.exp(np.mean(np.log(scales))))


@suggest.register(Radial)
@suggest.register(ProductMatern)
def _(kernel: Radial | ProductMatern, scales: np.ndarray, variance: float) -> Kernel:
    return kernel.replace(lengthscale=_lengthscale(kernel.lengthscale, scales), variance=variance)


@suggest.register
def _(kernel: Linear, scales: np.ndarray, variance: float) -> Kernel:
    return kernel.replace(
        variance=np.broadcast_to(variance / scales**2, np.shape(kernel.variance))
        if np.ndim(kernel.variance)
        else variance / np.mean(scales**2)
    )


@suggest.register
def _(kernel: Sum, scales: np.ndarray, variance: float) -> Kernel:
    return kernel.replace(terms=tuple(suggest(term, scales, variance / len(kernel.terms)) for term in kernel.terms))


@suggest.register  # type: ignore[arg-type]
def _(kernel: IndependentKernels, scales: np.ndarray, variance: float) -> IndependentKernels:  # type: ignore[misc]
    return kernel.replace(kernels=tuple(suggest(one, scales, variance) for one in kernel.kernels))


@suggest.register
def _(kernel: Product, scales: np.ndarray, variance: float) -> Kernel:
    shares = [variance] + [1.0] * (len(kernel.factors) - 1)
    return kernel.replace(factors=tuple(suggest(f, scales, share) for f, share in zip(kernel.factors, shares, strict=True)))


@suggest.register
def _(kernel: Scaled, scales: np.ndarray, variance: float) -> Kernel:
    return kernel.replace(kernel=suggest(kernel.kernel, scales, variance / float(kernel.scale)))


@suggest.register
def _(kernel: On, scales: np.ndarray, variance: float) -> Kernel:
    return kernel.replace(kernel=suggest(kernel.kernel, scales[list(kernel.dims)], variance))


@suggest.register
def _(kernel: Project, scales: np.ndarray, variance: float) -> Kernel:
    W = np.reshape(kernel.direction, (len(scales), -1))
    return kernel.replace(kernel=suggest(kernel.kernel, np.sqrt((scales**2) @ (W**2)), variance))


@suggest.register
def _(kernel: ChangePoint, scales: np.ndarray, variance: float) -> Kernel:
    return kernel.replace(before=suggest(kernel.before, scales, variance), after=suggest(kernel.after, scales, variance))
