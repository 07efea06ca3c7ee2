"""Inputs of a system that were not seen, in gaps or before the first output: inputs and output are one Gaussian process.

Every input is a stationary process of its own, white noise through 1/A with A(v)_t = v_t − Σ a_j v_{t−j}, and the output is the
same noise through H/A with noise of its own: dependent outputs, as those of a `FIR` kernel. Given the response h, inputs that
were not seen, x, are Gaussian as well. With Q the precision of the inputs before anything is seen and F what h makes of x,

    Λ = Q_xx + FᵀF/σ²,     E x = Λ⁻¹(Fᵀ(y − Φ(v)h)/σ² − Q_xv v),

and given x the response is what `linalg.fir` says. Both are drawn in turn, and what each draw of x leaves of h is averaged.
Where all inputs are known, p(u, y) = p(u) p(y | u), and nothing of this is needed.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import numpy as np

from ..linalg import fir
from .impulse_prior import ImpulsePrior
from .rational import stable

MOST_ORDER = 20  # of the autoregression of an input
MOST_UNSEEN = 3000
SETTLING, SWEEPS = 8, 40  # draws before any counts, and those that do


class Autoregression(NamedTuple):
    """v_t = Σ a_j v_{t−j} + e, and the variance of e."""

    a: np.ndarray
    variance: float

    @classmethod
    def of(cls, v: np.ndarray, most: int = MOST_ORDER) -> Autoregression:
        """The one that AICc takes, by least squares over the rows that see no gap."""
        top = int(min(most, max(len(v) // 10, 1)))
        columns = np.stack([v[top - j : len(v) - j] for j in range(top + 1)], axis=1)
        columns = columns[np.isfinite(columns).all(axis=1)]
        N = len(columns)
        if 4 * (top + 1) > N:
            return cls(np.zeros(0), float(np.nanvar(v)))

        def of(p: int) -> tuple[float, np.ndarray, float]:
            a = np.linalg.lstsq(columns[:, 1 : p + 1], columns[:, 0], rcond=None)[0]
            variance = float(np.mean((columns[:, 0] - columns[:, 1 : p + 1] @ a) ** 2))
            return N * np.log(max(variance, 1e-300)) + 2 * (p + 1) * N / (N - p - 2), a, variance

        _, a, variance = min((of(p) for p in range(top + 1)), key=lambda one: one[0])
        inside = stable(np.roots(np.concatenate([[1.0], -a])))
        return cls(-np.atleast_1d(np.poly(inside)).real[1:], max(variance, 1e-8 * float(np.nanvar(v))))

    def weights(self, count: int) -> np.ndarray:
        """How it remembers one e: the first of its weights."""
        from scipy.signal import lfilter

        return lfilter([1.0], np.concatenate([[1.0], -self.a]), np.eye(1, count)[0])

    def covariance(self, count: int) -> np.ndarray:
        """That of so many values in a row."""
        from scipy.linalg import toeplitz

        slowest = np.max(np.abs(np.roots(np.concatenate([[1.0], -self.a]))), initial=0.0)
        long = count + int(np.ceil(-40.0 / np.log(max(slowest, 1e-3))))
        psi = self.weights(long)
        return toeplitz([self.variance * float(psi[: long - m] @ psi[m:]) for m in range(count)])

    def precision(self, count: int) -> np.ndarray:
        """Q of so many values in a row, as a sparse matrix."""
        from scipy import sparse

        p = min(len(self.a), count)
        bands = [np.full(count - p, 1.0 if j == 0 else -self.a[j - 1]) for j in range(p + 1)]
        A = sparse.diags(bands, [p - j for j in range(p + 1)], shape=(count - p, count))
        first = sparse.coo_matrix(np.linalg.inv(self.covariance(p)) if p else np.zeros((0, 0)))
        start = sparse.coo_matrix((first.data, (first.row, first.col)), shape=(count, count))
        return (A.T @ A / self.variance + start).tocsr()


class Believed(NamedTuple):
    """Mean and precision of the inputs that were not seen."""

    mean: np.ndarray
    precision: np.ndarray

    def drawn(self, rng: np.random.Generator) -> np.ndarray:
        """One draw of them."""
        root = np.linalg.cholesky(self.precision)
        return self.mean + np.linalg.solve(root.T, rng.standard_normal(len(self.mean)))


@dataclasses.dataclass(frozen=True)
class Unseen:
    """The inputs (M, k) of an output, with NaN where they were not seen; both records end together."""

    v: np.ndarray
    y: np.ndarray
    lags: int
    Q: np.ndarray  # Q_xx
    pull: np.ndarray  # −Q_xv v

    @classmethod
    def of(cls, v: np.ndarray, y: np.ndarray, lags: int) -> Unseen:
        """Inputs that begin so long before the output that all of its response is heard."""
        from scipy.linalg import block_diag

        before = max(lags - 1 - (len(v) - len(y)), 0)
        v = np.concatenate([np.full((before, v.shape[1]), np.nan), v])
        count = int(np.sum(np.isnan(v)))
        if count > MOST_UNSEEN:
            raise ValueError(f"method='joint' fills up to {MOST_UNSEEN} values of u that were not seen, but there are {count}")
        blocks, pulls = [], []
        for column in v.T:
            unseen = np.isnan(column)
            Q = Autoregression.of(column[before:]).precision(len(column))[unseen]
            blocks.append(Q[:, unseen].toarray())
            pulls.append(-(Q @ np.where(unseen, 0.0, column)))
        return cls(v, y, lags, block_diag(*blocks), np.concatenate(pulls))

    @property
    def none(self) -> bool:
        """Whether all inputs are known."""
        return not np.isnan(self.v).any()

    @property
    def clean(self) -> np.ndarray:
        """Which outputs hear nothing but inputs that were seen."""
        heard = np.convolve(np.isnan(self.v).any(axis=1), np.ones(self.lags))[: len(self.v)]
        return heard[len(self.v) - len(self.y) :] < 0.5

    def filled(self, x: np.ndarray) -> np.ndarray:
        """The inputs with these values where they were not seen."""
        columns, at = self.v.T.copy(), 0
        for column in columns:
            unseen = np.isnan(column)
            column[unseen] = x[at : at + unseen.sum()]
            at += unseen.sum()
        return columns.T

    def before_the_output(self) -> Believed:
        """What the inputs that were seen say of the others."""
        return Believed(np.linalg.solve(self.Q, self.pull), self.Q)

    def given(self, weights: np.ndarray, noise: float, level: float) -> Believed:
        """What the output says as well, at a response (k, n), a noise variance and a level."""
        F, residual = self._heard(weights), self.y - level - self._made(weights)
        seen = np.isfinite(residual)
        F, residual = F[seen], residual[seen]
        precision = self.Q + (F.T @ F).toarray() / noise
        return Believed(np.linalg.solve(precision, self.pull + F.T @ residual / noise), precision)

    def _made(self, weights: np.ndarray) -> np.ndarray:
        """What the response makes of the inputs that were seen."""
        from .rational import filtered

        return filtered(weights, np.nan_to_num(self.v))[len(self.v) - len(self.y) :]

    def _heard(self, weights: np.ndarray) -> np.ndarray:
        """F, a sparse matrix: how each output hears the inputs that were not seen."""
        from scipy import sparse

        first, steps, parts = len(self.v) - len(self.y), np.arange(self.lags), []
        for column, h in zip(self.v.T, weights, strict=True):
            at = np.flatnonzero(np.isnan(column))
            rows = at[:, None] + steps - first
            inside = (rows >= 0) & (rows < len(self.y))
            columns, values = np.broadcast_to(np.arange(len(at))[:, None], rows.shape), np.broadcast_to(h, rows.shape)
            parts.append(sparse.coo_matrix((values[inside], (rows[inside], columns[inside])), (len(self.y), len(at))))
        return sparse.hstack(parts).tocsr()

    def sums(self, x: np.ndarray) -> fir.Sums:
        """What the records say of the response, with these values where inputs were not seen."""
        return fir.sums(self.filled(x), self.y, self.lags)


class Averaged(NamedTuple):
    """The response, its covariance, the noise variance, and the inputs with what was not seen filled in."""

    mean: np.ndarray
    covariance: np.ndarray
    noise: float
    inputs: np.ndarray


def averaged_over_unseen(unseen: Unseen, prior: ImpulsePrior, rng: np.random.Generator) -> Averaged:
    """The response averaged over the inputs that were not seen, and over the hyperparameters of its prior.

    The prior comes with these inputs at their mean; while the draws settle it is learned again.
    """
    shape = unseen.v.shape[1], unseen.lags
    x, kept = unseen.before_the_output().mean, []
    z, weights = prior.draws(rng)
    for sweep in range(SETTLING + SWEEPS):
        sums = unseen.sums(x)
        prior = dataclasses.replace(prior, data=sums.without_level())
        if sweep in (1, SETTLING):
            z, weights = prior.draws(rng)
        found = fir.estimate(prior.data, *prior.root(z[rng.choice(len(z), p=weights)]))
        level = (sums.y_total - sums.total @ found.mean) / sums.rows
        if sweep >= SETTLING:
            kept.append((found.mean, found.covariance, found.noise, x))
        h = found.mean + _root(found.covariance) @ rng.standard_normal(len(found.mean))
        x = unseen.given(h.reshape(shape), found.noise, level).drawn(rng)
    means, covariances, noises, xs = (np.array(part) for part in zip(*kept, strict=True))
    mean = means.mean(axis=0)
    between = (means - mean).T @ (means - mean) / len(means)
    filled = unseen.filled(xs.mean(axis=0))
    return Averaged(mean, covariances.mean(axis=0) + between, float(noises.mean()), filled)


def _root(covariance: np.ndarray) -> np.ndarray:
    values, vectors = np.linalg.eigh(covariance)
    return vectors * np.sqrt(np.maximum(values, 0.0))
