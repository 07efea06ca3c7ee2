"""Noise that changes, by two plain processes in turn: one of the targets, one of the logarithm of their noise.

Given the noise at every place the signal is a process with known noise. Given the signal, what is expected of half the squared
difference between an observation and another one there, ½((y − m)² + v), v the variance of an observation, is its noise where
the noise was right; the second process smooths its logarithm, less what is lost on average by taking it. The two take turns.
Nothing says that this converges, and the noise is taken for known where predictions are made: `HeteroscedasticGaussian`, which
believes in both functions at once, is what to use, and this is here to compare it with.

K. Kersting, C. Plagemann, P. Pfaff and W. Burgard, "Most likely heteroscedastic Gaussian process regression", ICML 2007.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from ..inputs.layouts import as_inputs
from ..inputs.observations import read_known
from ..kernels.algebra import Kernel
from ..kernels.stationary import Matern52
from ..likelihoods.gaussian import Gaussian
from ..likelihoods.heteroscedastic import HeteroscedasticGaussian
from ..means import ConstantMean
from ..parameters.tree import fixed
from ..posterior import Prediction, Result
from ..process.fitted import Fitted
from ..process.gp import GP

KNOWN = 1e-12  # variance of a log noise that is taken for known
LOST = -0.1596940  # E log ½(z² + 1) of a standard normal z


@dataclasses.dataclass(frozen=True)
class MostLikelyNoiseGP:
    """y ~ N(f, e^g), with the most probable g in place of what is believed of it; a kernel for f and one for g."""

    kernel: Kernel = dataclasses.field(default_factory=Matern52)
    noise_kernel: Kernel = dataclasses.field(default_factory=Matern52)
    rounds: int = 20
    tolerance: float = 0.05  # largest change of the logarithm of the noise after which nothing more is done

    def fit(self, X: Any, y: Any, **options: Any) -> FittedMostLikelyNoise:
        """Learn both processes from X and y in turn; `options` are those of `GP.fit`."""
        options = {"parameters": "best", "restarts": 0, **options}
        y = read_known(Gaussian(), y, as_inputs(X, clocks=()))
        signal: Any = GP(self.kernel, Gaussian(), ConstantMean()).fit(X, y, **options)
        log_noise, converged, rounds = self._noise(signal, X, y, None, options), False, 0
        while rounds < self.rounds and not converged:
            rounds += 1
            before = log_noise.predict(X).mean
            model = GP(signal.gp.kernel, Gaussian(fixed(0.0)), signal.gp.mean)
            signal = model.fit(X, y, noise=np.exp(before), **options)
            log_noise = self._noise(signal, X, y, np.exp(before), options)
            converged = bool(np.max(np.abs(log_noise.predict(X).mean - before)) < self.tolerance)
        return FittedMostLikelyNoise(signal, log_noise, rounds, converged)

    def _noise(self, signal: Fitted, X: Any, y: np.ndarray, noise: np.ndarray | None, options: dict[str, Any]) -> Any:
        """The process of the logarithm of the noise."""
        found = signal.predict(X)
        spread = found.observed.variance if noise is None else found.variance + noise
        told = np.log(0.5 * ((y - found.mean) ** 2 + spread)) - LOST
        return GP(self.noise_kernel, Gaussian(), ConstantMean()).fit(X, told, **options)


@dataclasses.dataclass(frozen=True, eq=False)
class FittedMostLikelyNoise(Result):
    """A process of a signal and one of the logarithm of its noise, how many rounds they took, and whether they settled."""

    signal: Fitted
    log_noise: Fitted
    rounds: int
    converged: bool

    def predict(self, X: Any) -> Prediction:
        """The belief about the latents (g, f), as that of `HeteroscedasticGaussian`, with g taken for known."""
        f, g = self.signal.predict(X), self.log_noise.predict(X).mean
        mean, variance = np.stack([g, f.mean], axis=-1), np.stack([np.full_like(g, KNOWN), f.variance], axis=-1)
        return Prediction(mean, variance, HeteroscedasticGaussian(), variance[..., None] * np.eye(2))

    def __repr__(self) -> str:
        settled = "settled" if self.converged else "not settled"
        return f"FittedMostLikelyNoise({settled} after {self.rounds} rounds; {self.signal.gp.kernel!r})"
