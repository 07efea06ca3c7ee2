"""Noise with outliers in groups, and noise that changes, around any signal: models with weak beliefs in the units of the data.

The beliefs are about standard units of the inputs and of the target: `Units` says how large these are.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from ..kernels.algebra import Kernel
from ..kernels.independent import Independent
from ..kernels.stationary import Matern32, SquaredExponential
from ..likelihoods.gaussian import Gaussian
from ..likelihoods.heteroscedastic import HeteroscedasticGaussian
from ..likelihoods.switch import Switch
from ..means import ConstantMean
from ..parameters.priors import LogNormal, Normal
from ..parameters.tree import learned
from ..process.gp import GP

EITHER = Normal(0.75, 1.0)  # of the level of a gate, about 1.5, and of a signal in standard units


class Units(NamedTuple):
    """How many columns there are, the spread of one of them, and level and spread of the target."""

    columns: int
    length: float = 1.0
    level: float = 0.0
    size: float = 1.0

    @classmethod
    def of(cls, X: np.ndarray, y: np.ndarray) -> Units:
        """The units of data."""
        length = float(np.sqrt(np.mean(np.var(X, axis=0)))) or 1.0
        return cls(X.shape[1], length, float(np.nanmean(y)), float(np.nanstd(y)) or 1.0)


def latent_kernel(
    units: Units, log_lengthscale: tuple[float, float], log_variance: tuple[float, float], along: Any = Matern32
) -> Kernel:
    """One lengthscale for all columns, with normal priors of the logarithms; along a line a process whose cost is linear."""
    center = log_lengthscale[0] + math.log(units.length)
    lengthscale = learned(math.exp(center), prior=LogNormal(center, log_lengthscale[1]))
    variance = learned(math.exp(log_variance[0]), prior=LogNormal(*log_variance))
    return along(lengthscale, variance) if units.columns == 1 else SquaredExponential(lengthscale, variance)


def twinned(signal: Any, units: Units, gate: Any = None) -> GP:
    """A signal whose noise is wide where a gate is shut.

    Beliefs, in standard units: log lengthscale of the gate N(0.3, 0.7²), log variance of the gate N(0.7, 0.7²), log variance of
    the noise N(−3, 1.5²) and of outliers N(0.7, 1), and where units are standard ones levels N(0.75, 1).
    """
    square = units.size**2
    noise = lambda value, center, width: Gaussian(learned(value * square, prior=LogNormal(center + math.log(square), width)))
    level = learned([1.5, units.level], prior=EITHER) if units[2:] == (0.0, 1.0) else [1.5, units.level]
    gate = gate or latent_kernel(units, (0.3, 0.7), (0.7, 0.7))
    return _with_latents(gate, signal, Switch(noise(0.05, -3.0, 1.5), noise(2.0, 0.7, 1.0)), level)


def heteroscedastic(signal: Any, units: Units, gate: Any = None) -> GP:
    """A signal with noise of variance e^g.

    Beliefs, in standard units of D columns: log lengthscale of g N(0.5 + ½ log D, 0.7²), log of its variance N(0, 1).
    """
    gate = gate or latent_kernel(units, (0.5 + 0.5 * math.log(units.columns), 0.7), (0.0, 1.0))
    level = [-2.0 + 2 * math.log(units.size), units.level]
    return _with_latents(gate, signal, HeteroscedasticGaussian(), level)


def _with_latents(first: Any, signal: Any, likelihood: Any, level: Any) -> GP:
    kernels: Any = Independent(first, signal)
    return GP(kernels, likelihood, ConstantMean(level))
