"""Relevance vectors: a linear model of bumps at rows, of which the evidence keeps a few (Tipping 2001; Tipping and Faul 2003).

f(x) = Σ_j a_j κ(x, c_j) with a_j ~ N(0, 1/α_j). The evidence as a function of one α_j, all others held, has one maximum, in
closed form: with S = φᵀC⁻¹φ and Q = φᵀC⁻¹t of a bump φ that is left out of C,

    α = S² / (Q² − S) where Q² > S, else infinite: the bump is dropped.

Each step takes up, drops or weighs anew the bump that gains most, which ends at a top of the evidence, not always the highest.
Observations that are not Gaussian are what Laplace's mode makes of them, t with precisions w, found anew after every few steps.

This is one point of all α, and f is zero away from the bumps that are kept: variances fall where they should rise. `augmented`
gives each new place a bump of its own, and other models do not need that.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import numpy as np

from .._types import Seed, double_precision, generator, whole
from ..inputs.layouts import as_inputs
from ..inputs.observations import Data, read_observations
from ..kernels.algebra import Kernel
from ..kernels.finite import DiscreteConvolution
from ..likelihoods.base import Likelihood
from ..likelihoods.gaussian import Gaussian
from ..means import ConstantMean
from ..process.conditioning import check_inputs
from ..process.fitted import Fitted
from ..process.gp import GP
from ..structure.dense import covariance

STEPS = 20  # before noise, or the mode, is found anew
MOST_STEPS = 5000
SETTLED = 1e-4  # nats that a step must gain
NOTHING = 1e-12  # the variance of a bump where none is needed
QUIET = 1e-10  # of the variance of y: the least noise


@dataclasses.dataclass(frozen=True)
class RelevanceVectors:
    """A sparse linear model of bumps ``kernel`` at some of the rows; `fit` returns a `Fitted` whose kernel has the bumps kept.

    The kernel's parameters stay as they are. `candidates` is how many rows, at random, may become centres. The likelihood sees
    one latent: Gaussian numbers, whose noise is learned, or what Laplace's method takes, such as labels.
    """

    kernel: Kernel
    likelihood: Likelihood = dataclasses.field(default_factory=Gaussian)
    candidates: int = 2000

    @double_precision
    def fit(self, X: Any, y: Any, seed: Seed = 0) -> Fitted:
        """Learn which bumps are needed and how large they are."""
        inputs = as_inputs(X, clocks=())
        data = read_observations(self.likelihood, y, None, "error", inputs)
        if self.likelihood.latents > 1 or data.y.shape[1] > 1:
            raise ValueError("RelevanceVectors are for one latent and one target: fit one after the other")
        points = np.asarray(inputs.points)
        check_inputs(GP(self.kernel, self.likelihood), inputs)
        rows = generator(seed).permutation(len(points))[: whole(self.candidates, "candidates", 1)]
        centres = np.unique(points[rows], axis=0)
        Phi = np.asarray(_bumps(self.kernel, points, centres))
        search = _Search(Phi, data, self.likelihood)
        search.run()
        kept = search.kept if len(search.kept) else np.arange(1)  # a function that is zero still has a kernel
        size = np.where(np.isfinite(search.alpha), 1 / search.alpha, NOTHING * (1.0 + float(np.var(data.y))))
        kernel = DiscreteConvolution(self.kernel, centres[kept], size[kept])
        level = ConstantMean(search.level)
        how = {} if self.likelihood.is_gaussian else {"inference": "laplace"}
        return GP(kernel, search.likelihood, level).condition(inputs, y, structure="features", **how)


@jax.jit
def _bumps(kernel: Kernel, X: Any, centres: Any) -> Any:
    return covariance(kernel, X, centres)


@jax.jit
def _slope_and_curvature(likelihood: Likelihood, y: Any, f: Any, extra: Any) -> tuple[Any, Any]:
    return likelihood.slope_and_curvature(y, f, extra)


class _Search:
    """The precisions of all bumps (infinite for those left out), the noise, and the observations as values with precisions."""

    def __init__(self, Phi: np.ndarray, data: Data, likelihood: Likelihood) -> None:
        self.Phi, self.data, self.likelihood = Phi, data, likelihood
        self.y = np.asarray(data.y)[:, 0]
        self.alpha = np.full(Phi.shape[1], np.inf)
        self.gaussian = likelihood.is_gaussian
        self.level = float(self.y.mean()) if self.gaussian else 0.0
        self.size = float(self.y.var()) or 1.0
        if self.gaussian:
            self.likelihood = likelihood.replace(noise=0.1 * self.size)

    @property
    def kept(self) -> np.ndarray:
        return np.flatnonzero(np.isfinite(self.alpha))

    def run(self) -> None:
        """Steps until none gains, and all is settled."""
        for _ in range(MOST_STEPS // STEPS):
            before = self.alpha.copy(), self._noise()
            self._observe()
            gained = sum(self._step() for _ in range(STEPS))
            if self.gaussian:
                self._noise_anew()
            both = np.isfinite(self.alpha) & np.isfinite(before[0])
            same = np.array_equal(np.isfinite(self.alpha), np.isfinite(before[0]))
            change = np.abs(np.log(self.alpha[both] / before[0][both])).max(initial=0.0)
            if same and gained < SETTLED and change < 1e-3 and abs(np.log(self._noise() / before[1])) < 1e-4:
                return

    def _noise(self) -> float:
        return float(np.asarray(self.likelihood.noise)) if self.gaussian else 1.0  # type: ignore[attr-defined]

    def _observe(self) -> None:
        """The observations as values with precisions, ΦᵀWΦ and ΦᵀWt."""
        if self.gaussian:
            w, h = np.full(len(self.y), 1 / self._noise()), (self.y - self.level) / self._noise()
        else:
            w, h = self._at_mode()
        self.G, self.b = (self.Phi * w[:, None]).T @ self.Phi, self.Phi.T @ h

    def _at_mode(self) -> tuple[np.ndarray, np.ndarray]:
        """Laplace: Newton's steps in the weights of the bumps that are kept, halved where they do not gain."""
        kept, f = self.kept, np.zeros(len(self.y))
        Phi, alpha = self.Phi[:, kept], self.alpha[kept]
        a = np.zeros(len(kept))
        extra = 1.0 if self.data.extra is None else self.data.extra
        value = lambda a, f: float(np.sum(self.likelihood.log_prob(self.y, f, extra))) - 0.5 * float(alpha @ (a * a))
        best = value(a, f)
        for _ in range(50):
            slope, w = (np.asarray(part) for part in _slope_and_curvature(self.likelihood, self.y, f, extra))
            w = np.maximum(w, 1e-12)
            h = w * f + slope
            A = (Phi * w[:, None]).T @ Phi + np.diag(alpha)
            step, size = np.linalg.solve(A, Phi.T @ h) - a if len(a) else a, 1.0
            while size > 1e-6 and value(a + size * step, Phi @ (a + size * step)) < best:
                size /= 2
            a = a + size * step
            f, before = Phi @ a, best
            best = value(a, f)
            if best - before < 1e-9:
                break
        return w, h

    def _posterior(self) -> tuple[np.ndarray, np.ndarray]:
        kept = self.kept
        S = np.linalg.inv(self.G[np.ix_(kept, kept)] + np.diag(self.alpha[kept]))
        return 0.5 * (S + S.T), S @ self.b[kept]

    def _step(self) -> float:
        """The best change of one precision, and the nats that it gains."""
        kept, gram = self.kept, np.diagonal(self.G)
        Sigma, mean = self._posterior()
        G = self.G[:, kept]
        S, Q = gram - np.einsum("ij,jk,ik->i", G, Sigma, G, optimize=True), self.b - G @ mean
        s, q = S.copy(), Q.copy()
        inside = np.isfinite(self.alpha)
        off = self.alpha[inside] - S[inside]
        off = np.where(off > 0, off, np.finfo(float).tiny)
        s[inside], q[inside] = (self.alpha[inside] * part[inside] / off for part in (S, Q))
        wanted = q**2 > s
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            new = np.where(wanted, s**2 / (q**2 - s), np.inf)
            value = lambda alpha: np.where(np.isfinite(alpha), np.log(alpha / (alpha + s)) + q**2 / (alpha + s), 0.0)
            gains = np.nan_to_num(0.5 * (value(new) - value(self.alpha)), nan=0.0, posinf=0.0)
        gains[gram <= 1e-12 * gram.max()] = 0.0
        best = int(np.argmax(gains))
        if gains[best] > 0:
            self.alpha[best] = new[best]
        return max(float(gains[best]), 0.0)

    def _noise_anew(self) -> None:
        kept = self.kept
        Sigma, mean = self._posterior()
        left = self.y - self.level - self.Phi[:, kept] @ mean
        free = len(self.y) - len(kept) + float(self.alpha[kept] @ np.diagonal(Sigma))
        noise = max(float(left @ left) / max(free, 1.0), QUIET * self.size)
        self.likelihood = self.likelihood.replace(noise=noise)
