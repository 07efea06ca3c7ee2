"""The terms of a kernel as they were found: how far each moves over the data, in the posterior and not before it."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np

from ...inputs.layouts import Grid
from ...kernels.algebra import Kernel, Product
from ...kernels.independent import IndependentKernels
from ...kernels.nonstationary import Constant, IntegratedWiener, Spline, Wiener
from ...kernels.oscillating import DampedOscillator, Periodic
from ...kernels.stationary import Radial
from ...likelihoods.base import Likelihood
from ...likelihoods.gaussian import Gaussian
from ...likelihoods.positive import LogGaussian
from ...likelihoods.robust import StudentT
from ...likelihoods.switch import Switch
from ...models.additive.model import FittedAdditive
from ...models.pursuit.fitted import FittedProjectionPursuit
from ..model import TableModel

MOST_ROWS = 1000  # of the data at which terms are looked at, evenly
WANDERING = (Spline, Wiener, IntegratedWiener)  # trends, which carry the level of all
SHIFTS = 12  # of a period, over which the level of a season is averaged
NEGLIGIBLE = 0.02  # a term is negligible when it moves by less than this part of the largest, and by less than the noise


class Found(NamedTuple):
    """A term, half the range of its posterior mean over the data, the middle of it, and whether that is next to nothing.

    A season swings about a level of its own, which may move: the swing is its size, the level its drift.
    """

    place: int  # in the sum
    kernel: Kernel
    size: float
    middle: float
    negligible: bool = False
    drift: float = 0.0  # of a season: half the range of its own level, which moves beside the swing
    period: float | None = None  # after how much time it comes again, for a season, which goes along one column

    @property
    def slow(self) -> float:
        """Over what length a function of one column changes that has a level of its own; 0 for others."""
        if isinstance(self.kernel, WANDERING):
            return np.inf
        alone = isinstance(self.kernel, Radial) and np.asarray(self.kernel.lengthscale).dtype != object
        return float(np.ravel(self.kernel.lengthscale)[0]) if alone else 0.0  # type: ignore[attr-defined]


@functools.lru_cache(maxsize=1)
def found_terms(model: TableModel) -> tuple[Found, ...]:
    """The terms of the kernel of a process; none for sums of functions and for several classes."""
    fitted = model.fitted
    if not hasattr(fitted, "kernel") or isinstance(fitted, (FittedAdditive, FittedProjectionPursuit)):
        return ()
    kernel, several = fitted.kernel, fitted.likelihood.latents > 1
    if several and not isinstance(kernel, IndependentKernels):
        return ()  # classes
    terms = (kernel.kernels[fitted.likelihood.signal[0]],) if several else getattr(kernel, "terms", (kernel,))
    places = fitted.inputs if isinstance(fitted.inputs, Grid) else _thinned(np.asarray(fitted.inputs.points))
    points = np.asarray(getattr(places, "points", places))
    found = []
    for i, term in enumerate(terms):
        part = i if len(terms) > 1 else None
        mean = np.asarray(fitted.predict(places, part=part).signal.mean)
        low, high = float(np.nanmin(mean)), float(np.nanmax(mean))
        one = Found(i, term, (high - low) / 2, (high + low) / 2, period=_period(term) if points.shape[1] == 1 else None)
        found.append(one if one.period is None else _swing(one, fitted, points, mean, part))
    little = min(NEGLIGIBLE * max(term.size for term in found), noise_sd(fitted.likelihood))
    amount = lambda term: abs(term.middle) if isinstance(term.kernel, Constant) else term.size
    return tuple(term._replace(negligible=amount(term) < little) for term in found)


def _period(term: Kernel) -> float | None:
    """After how much time a term along one column comes again."""
    factors = term.factors if isinstance(term, Product) else (term,)
    return next((float(factor.period) for factor in factors if isinstance(factor, (Periodic, DampedOscillator))), None)


def _swing(found: Found, fitted: Any, places: np.ndarray, mean: np.ndarray, part: int | None) -> Found:
    """A season about its own level, the mean over one period around each place, where the data hold one whole period."""
    t = np.ravel(places)
    period = found.period or 0.0
    inside = (t >= t.min() + period / 2) & (t <= t.max() - period / 2)
    if not inside.any():
        return found
    shifts = period * ((np.arange(SHIFTS) + 0.5) / SHIFTS - 0.5)
    around = np.asarray(fitted.predict((t[inside, None] + shifts).ravel(), part=part).signal.mean).reshape(-1, SHIFTS)
    level = np.interp(t, t[inside], around.mean(axis=1))
    return found._replace(size=float(np.ptp(mean - level)) / 2, drift=float(np.ptp(level)) / 2)


def noise_sd(likelihood: Likelihood | None) -> float:
    """How far observations lie from the function in its own units; infinite where these are not those of the target."""
    if isinstance(likelihood, (Gaussian, LogGaussian)):
        return float(np.sqrt(np.ravel(likelihood.noise)[0]))
    if isinstance(likelihood, Switch):
        return noise_sd(likelihood.leaves[0].likelihood)
    return float(np.asarray(likelihood.scale)) if isinstance(likelihood, StudentT) else np.inf


def _thinned(points: Any) -> np.ndarray:
    chosen = np.linspace(0, len(points) - 1, MOST_ROWS).astype(int) if len(points) > MOST_ROWS else slice(None)
    return points[chosen]
