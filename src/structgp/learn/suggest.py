"""Values of a kernel that data with such scales and such a variance suggest, by one rule for each node."""

from __future__ import annotations

from functools import singledispatch
from typing import Any

import jax
import numpy as np

from .._types import double_precision
from ..kernels.algebra import Kernel, On, Product, Scaled, Sum
from ..kernels.changepoint import ChangePoint
from ..kernels.filters import FIR, SOURCES, Cascade, Filters, PoleFilters
from ..kernels.finite import FourierFeatures
from ..kernels.gibbs import Gibbs
from ..kernels.independent import IndependentKernels
from ..kernels.induced import Induced
from ..kernels.metrics import Metric
from ..kernels.nonstationary import IntegratedWiener, Linear, Polynomial, Spline, ThinPlate, Wiener
from ..kernels.oscillating import DampedOscillator, SpectralMixture
from ..kernels.outputs import Coregion, Lagged, outputs_of
from ..kernels.stationary import ProductMatern, Radial, Ricker, Sinc
from ..kernels.views import Project, Warp
from ..parameters.tree import learned_leaves, named_values, with_values

TERMS = (1 / 3, 2.0, 1 / 10, 6.0)  # factors on the scales of terms that outputs share: those that begin alike stay alike


@singledispatch
def suggest(kernel: Kernel, scales: np.ndarray, variance: float) -> Kernel:
    """The kernel with a variance and lengthscales that fit the data; parameters without a rule stay as they are."""
    own = type(kernel).__dataclass_fields__
    if "variance" not in own or "support" not in own["variance"].metadata:
        return kernel
    return kernel.replace(variance=np.full(np.shape(kernel.variance), float(np.mean(variance))))  # type: ignore[attr-defined]


def _lengthscale(lengthscale: Any, scales: np.ndarray) -> Any:
    if isinstance(lengthscale, Metric):
        return lengthscale.suggested(scales)
    return scales if np.ndim(lengthscale) else float(np.exp(np.mean(np.log(scales))))


@suggest.register(Radial)
@suggest.register(ProductMatern)
def _(kernel: Radial | ProductMatern, scales: np.ndarray, variance: float) -> Kernel:
    return kernel.replace(lengthscale=_lengthscale(kernel.lengthscale, scales), variance=variance)


@suggest.register(Ricker)
@suggest.register(FourierFeatures)
def _(kernel: Ricker | FourierFeatures, scales: np.ndarray, variance: float) -> Kernel:
    return kernel.replace(lengthscale=_lengthscale(kernel.lengthscale, scales), variance=variance)


@suggest.register
def _(kernel: Sinc, scales: np.ndarray, variance: float) -> Kernel:
    return kernel.replace(bandwidth=0.5 / _lengthscale(kernel.bandwidth, scales), variance=variance)


@suggest.register
def _(kernel: DampedOscillator, scales: np.ndarray, variance: float) -> Kernel:
    return kernel.replace(lifetime=float(scales[0]), variance=variance)


@suggest.register
def _(kernel: SpectralMixture, scales: np.ndarray, variance: float) -> Kernel:
    """Bumps side by side, the first as wide as the spectrum of something smooth."""
    width = lambda numbers: 0.5 / np.pi / (scales if np.ndim(numbers) > 1 else np.exp(np.mean(np.log(scales))))
    number = np.arange(len(kernel.weights)).reshape(-1, *[1] * (np.ndim(kernel.frequencies) - 1))
    return kernel.replace(
        weights=variance * np.asarray(kernel.weights) / np.sum(kernel.weights),
        frequencies=(2 * number + 1) * width(kernel.frequencies),
        bandwidths=np.broadcast_to(width(kernel.bandwidths), np.shape(kernel.bandwidths)),
    )


@suggest.register
def _(kernel: Warp, scales: np.ndarray, variance: Any) -> Kernel:
    """Its variances: what is long where the function leads to, only the user knows."""
    there = jax.eval_shape(kernel.function, np.zeros(len(scales)))
    ones = np.ones(int(np.prod(there.shape)) or 1)
    one, four = (named_values(suggest(kernel.kernel, ones, factor * variance)) for factor in (1.0, 4.0))
    ours = {path: value for path, value in one.items() if np.any(value != four[path])}
    return kernel.replace(kernel=with_values(kernel.kernel, ours))


@suggest.register
def _(kernel: Gibbs, scales: np.ndarray, variance: float) -> Kernel:
    each = scales if np.ndim(kernel.lengthscale) == 2 else np.exp(np.mean(np.log(scales)))
    return kernel.replace(lengthscale=np.broadcast_to(each, np.shape(kernel.lengthscale)), variance=variance)


@suggest.register
def _(kernel: Linear, scales: np.ndarray, variance: float) -> Kernel:
    return kernel.replace(
        variance=np.broadcast_to(variance / scales**2, np.shape(kernel.variance))
        if np.ndim(kernel.variance)
        else variance / np.mean(scales**2)
    )


@suggest.register
def _(kernel: Polynomial, scales: np.ndarray, variance: float) -> Kernel:
    return kernel.replace(variance=variance / (float(np.sum(scales**2)) + float(kernel.offset)) ** kernel.degree)


@suggest.register
def _(kernel: Wiener, scales: np.ndarray, variance: float) -> Kernel:
    return kernel.replace(variance=variance / float(scales[0]))


@suggest.register(IntegratedWiener)
@suggest.register(Spline)
def _(kernel: IntegratedWiener | Spline, scales: np.ndarray, variance: float) -> Kernel:
    return kernel.replace(variance=variance / float(scales[0]) ** (2 * kernel.order - 1))


@suggest.register
def _(kernel: ThinPlate, scales: np.ndarray, variance: float) -> Kernel:
    return kernel.replace(variance=variance / float(np.exp(np.mean(np.log(scales)))) ** (4 - len(scales)))


@suggest.register
def _(kernel: Sum, scales: np.ndarray, variance: float) -> Kernel:
    shared = [outputs_of(term) is not None for term in kernel.terms]
    number, terms = 0, []
    for term, several in zip(kernel.terms, shared, strict=True):
        factor = TERMS[number % len(TERMS)] if several and sum(shared) > 1 else 1.0
        number += several
        terms.append(suggest(term, factor * scales, _for(term, variance) / len(kernel.terms)))
    return kernel.replace(terms=tuple(terms))


def _for(kernel: Kernel, variance: Any) -> Any:
    """The variance of each output for a kernel that knows them, else that of all."""
    return variance if outputs_of(kernel) is not None else float(np.mean(variance))


@suggest.register
def _(kernel: Coregion, scales: np.ndarray, variance: Any) -> Kernel:
    W, own = np.asarray(kernel.loadings), np.asarray(kernel.variance)
    if W.size and not W.any():  # a saddle: nothing would ever be shared
        W = 0.5 * np.asarray(Coregion.low_rank(*W.shape).loadings)
    now = np.sum(W**2, axis=1) + own
    factor = np.broadcast_to(variance, now.shape) / np.where(now > 0, now, 1.0)
    return kernel.replace(loadings=np.sqrt(factor)[:, None] * W, variance=factor * own)


@suggest.register
def _(kernel: Filters, scales: np.ndarray, variance: Any) -> Kernel:
    W = np.asarray(kernel.loadings)
    own = 0.0 if kernel.variance is None else np.asarray(kernel.variance)
    now = np.sum(W**2, axis=1) + own
    factor = np.broadcast_to(variance, now.shape) / np.where(now > 0, now, 1.0)
    length = np.asarray(scales[:-1] if np.ndim(kernel.lengthscale) == 3 else np.exp(np.mean(np.log(scales[:-1]))))
    sources = np.resize(SOURCES, W.shape[1])
    lengths = np.broadcast_to((sources[:, None] * length).reshape(1, W.shape[1], -1), (*W.shape, max(length.size, 1)))
    values: dict[str, Any] = {"loadings": np.sqrt(factor)[:, None] * W}
    values["lengthscale"] = np.reshape(lengths, np.shape(kernel.lengthscale))
    if kernel.variance is not None:
        values |= {"variance": factor * own, "own_lengthscale": np.broadcast_to(length, np.shape(kernel.own_lengthscale))}
    return kernel.replace(**values)


@suggest.register
@double_precision
def _(kernel: Cascade, scales: np.ndarray, variance: Any) -> Kernel:
    now = np.array([float(kernel.between(x, x)) for x in np.array([[0.0, 0.0], [0.0, 1.0]])])
    first, second = np.sqrt(np.broadcast_to(variance, 2) / now)
    times = lambda part, size: None if part is None else size * np.asarray(part)
    scaled = lambda part, size: part.replace(cosine=times(part.cosine, size), sine=times(part.sine, size))
    return kernel.replace(source=scaled(kernel.source, first), system=scaled(kernel.system, second / first))


@suggest.register(PoleFilters)
@suggest.register(FIR)
def _(kernel: PoleFilters | FIR, scales: np.ndarray, variance: Any) -> Kernel:
    W = np.asarray(kernel.weights)
    place = np.zeros((len(W), kernel.axes + 1 if isinstance(kernel, FIR) else 2))
    place[:, -1] = np.arange(len(W))
    now = np.array([float(kernel.between(x, x)) for x in place])
    factor = np.sqrt(np.broadcast_to(variance, now.shape) / np.where(now > 0, now, 1.0))
    return kernel.replace(weights=factor.reshape(-1, *[1] * (W.ndim - 1)) * W)


@suggest.register  # type: ignore[arg-type]
def _(kernel: IndependentKernels, scales: np.ndarray, variance: float) -> IndependentKernels:  # type: ignore[misc]
    each = np.broadcast_to(variance, len(kernel.kernels))
    return kernel.replace(kernels=tuple(suggest(one, scales, float(v)) for one, v in zip(kernel.kernels, each, strict=True)))


@suggest.register
def _(kernel: Product, scales: np.ndarray, variance: float) -> Kernel:
    first = next((i for i, factor in enumerate(kernel.factors) if outputs_of(factor) is not None), 0)
    shares: list[Any] = [1.0] * len(kernel.factors)
    shares[first] = _for(kernel.factors[first], variance)
    return kernel.replace(factors=tuple(suggest(f, scales, share) for f, share in zip(kernel.factors, shares, strict=True)))


@suggest.register
def _(kernel: Scaled, scales: np.ndarray, variance: float) -> Kernel:
    if not learned_leaves(kernel.kernel):  # the number alone can bring the variance
        place = np.zeros(len(scales))
        own = float(kernel.kernel.between(place, place))
        return kernel.replace(scale=float(np.mean(variance)) / own) if own > 0 else kernel
    return kernel.replace(kernel=suggest(kernel.kernel, scales, _for(kernel.kernel, variance) / float(kernel.scale)))


@suggest.register(Induced)
@suggest.register(Lagged)
def _(kernel: Induced | Lagged, scales: np.ndarray, variance: Any) -> Kernel:
    return kernel.replace(kernel=suggest(kernel.kernel, scales, variance))


@suggest.register
def _(kernel: On, scales: np.ndarray, variance: float) -> Kernel:
    return kernel.replace(kernel=suggest(kernel.kernel, scales[list(kernel.dims)], _for(kernel, variance)))


@suggest.register
def _(kernel: Project, scales: np.ndarray, variance: float) -> Kernel:
    W = np.reshape(kernel.direction, (len(scales), -1))
    return kernel.replace(kernel=suggest(kernel.kernel, np.sqrt((scales**2) @ (W**2)), variance))


@suggest.register
def _(kernel: ChangePoint, scales: np.ndarray, variance: float) -> Kernel:
    return kernel.replace(before=suggest(kernel.before, scales, variance), after=suggest(kernel.after, scales, variance))
