"""Finite impulse responses with a Gaussian prior: y = Φh + e, Φ the shifted inputs, h ~ N(0, c LLᵀ), e ~ N(0, cλ).

All that the data have to say is in R = ΦᵀΦ, b = Φᵀy and yᵀy, so that records of any length cost the same. With
B = λI + LᵀRL the scale is c = (yᵀy − bᵀL B⁻¹ Lᵀb)/(λN), where the evidence is largest, and

    log Z = −½ (N log 2πc + (N − r) log λ + log|B| + N),     ĥ = L B⁻¹ Lᵀb,     cov h = cλ L B⁻¹ Lᵀ      (L has r columns).
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

CHUNK = 20000  # rows of Φ at a time, where they have to be made


@dataclasses.dataclass(frozen=True)
class Sums:
    """R, b, yᵀy, and over how many rows they go."""

    R: Float[np.ndarray, "n n"]
    b: Float[np.ndarray, " n"]
    yy: float
    rows: int
    total: Float[np.ndarray, " n"]  # Φᵀ1
    y_total: float

    def without_level(self) -> Sums:
        """The same where a constant that nothing is known of is added to the output: every column around its own mean."""
        R = self.R - np.outer(self.total, self.total) / self.rows
        b, yy = self.b - self.total * self.y_total / self.rows, self.yy - self.y_total**2 / self.rows
        return Sums(R, b, yy, self.rows - 1, self.total, self.y_total)


class Estimate(NamedTuple):
    """The response at given hyperparameters, its covariance, the scale, the noise variance and the log evidence."""

    mean: np.ndarray
    covariance: np.ndarray
    scale: float
    noise: float
    log_evidence: float


def sums(u: Float[np.ndarray, "M k"], y: Float[np.ndarray, " N"], n: int) -> Sums:
    """The sums over the rows whose n last inputs are all known; inputs may begin before outputs, and both end together.

    Outputs that are NaN are left out. A complete record needs no table of shifted inputs: along its diagonals R changes by the
    products at the two ends only.
    """
    M, k = u.shape
    first = max(n - 1, M - len(y))  # rows of u, the last of which is that of the last y
    used = y[first - (M - len(y)) :]
    seen = np.isfinite(used)
    if not seen.all():
        return _by_rows(u, used, seen, n, first)
    R, b = np.zeros((k, n, k, n)), np.zeros((k, n))
    for p in range(k):
        b[p] = [used @ u[first - j : M - j, p] for j in range(n)]
        for q in range(k):
            R[p, 0, q] = [u[first:, p] @ u[first - j : M - j, q] for j in range(n)]
            R[p, :, q, 0] = [u[first - i : M - i, p] @ u[first:, q] for i in range(n)]
            before, last = u[first - n + 1 : first][::-1], u[M - n : M][::-1]  # what comes in, and what goes out, at each shift
            for i in range(n - 1):
                R[p, i + 1, q, 1:] = R[p, i, q, :-1] + before[i, p] * before[: n - 1, q] - last[i, p] * last[: n - 1, q]
    total = np.array([np.sum(u[first - j : M - j, p]) for p in range(k) for j in range(n)])
    return Sums(R.reshape(k * n, k * n), b.ravel(), float(used @ used), len(used), total, float(used.sum()))


def shifted(u: Float[np.ndarray, "M k"], n: int, rows: np.ndarray) -> Float[np.ndarray, "rows kn"]:
    """Φ: the n inputs up to each of some rows, the newest first, one input after the other."""
    index = rows[:, None] - np.arange(n)
    return np.concatenate([u[index, p] for p in range(u.shape[1])], axis=1)


def _by_rows(u: np.ndarray, used: np.ndarray, seen: np.ndarray, n: int, first: int) -> Sums:
    rows, size = first + np.flatnonzero(seen), u.shape[1] * n
    R, b, total = np.zeros((size, size)), np.zeros(size), np.zeros(size)
    for at in range(0, len(rows), CHUNK):
        part = rows[at : at + CHUNK]
        Phi = shifted(u, n, part)
        R += Phi.T @ Phi
        b += Phi.T @ used[part - first]
        total += Phi.sum(axis=0)
    return Sums(R, b, float(np.sum(used[seen] ** 2)), int(seen.sum()), total, float(np.sum(used[seen])))


def log_evidence(data: Sums, L: Float[np.ndarray, "n r"], ratio: float) -> float:
    """log Z at a root of the prior covariance and at λ, the noise as a part of the scale."""
    B, c, _ = _solved(data, L, ratio)
    if B is None:
        return -np.inf
    log_det = 2 * np.sum(np.log(np.diagonal(B)))
    return -0.5 * (data.rows * (np.log(2 * np.pi * c) + 1) + (data.rows - L.shape[1]) * np.log(ratio) + log_det)


def estimate(data: Sums, L: Float[np.ndarray, "n r"], ratio: float) -> Estimate:
    """The response, what is left open of it, and the evidence."""
    from scipy.linalg import solve_triangular

    B, c, half = _solved(data, L, ratio)
    if B is None:
        raise ValueError("the prior of the impulse response has no scale that fits these data")
    root = solve_triangular(B, L.T, lower=True)
    return Estimate(root.T @ half, c * ratio * root.T @ root, c, c * ratio, log_evidence(data, L, ratio))


def conditioned(
    data: Sums, K: Float[np.ndarray, "n n"], ratio: float, scale: float
) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, "n n"]]:
    """Mean and covariance of the response under a covariance scale·K, which may be singular, and noise of variance scale·λ."""
    values, vectors = np.linalg.eigh(K)
    L = vectors * np.sqrt(np.maximum(values, 0.0))
    B = L.T @ data.R @ L + ratio * np.eye(len(K))
    root = np.linalg.solve(np.linalg.cholesky(B), L.T)
    return root.T @ (root @ data.b), scale * ratio * root.T @ root


def _solved(data: Sums, L: np.ndarray, ratio: float) -> tuple[np.ndarray | None, float, np.ndarray]:
    """The Cholesky factor of B, the scale c, and B^{−½}Lᵀb; no factor where rounding leaves none."""
    from scipy.linalg import solve_triangular

    B = L.T @ data.R @ L
    B[np.diag_indices_from(B)] += ratio
    try:
        factor = np.linalg.cholesky(B)
    except np.linalg.LinAlgError:
        return None, np.nan, np.zeros(0)
    half = solve_triangular(factor, L.T @ data.b, lower=True)
    c = (data.yy - half @ half) / (ratio * data.rows)
    return (factor, c, half) if c > 0 else (None, np.nan, half)


def diagonal_correlated(n: int, decay: float, correlation: float) -> Float[np.ndarray, "n n"]:
    """L with LLᵀ = α^{(i+j)/2} ρ^{|i−j|}: decay of the size along the response, and correlation of neighbours (DC)."""
    powers, i = correlation ** np.arange(n), np.arange(n)
    root = np.tril(powers[np.abs(i[:, None] - i)]) * np.sqrt(1 - correlation**2)
    root[:, 0] = powers
    return (np.sqrt(decay) ** i)[:, None] * root


def resonance(n: int, size: float, decay: float, frequency: float) -> Float[np.ndarray, "n 2"]:
    """F with FFᵀ = a β^{(i+j)/2} cos ω(i − j): one damped resonance."""
    i = np.arange(n)
    turn = np.stack([np.cos(frequency * i), np.sin(frequency * i)], axis=1)
    return np.sqrt(size) * np.sqrt(decay) ** i[:, None] * turn


def hankel_poles(h: Float[np.ndarray, " n"], order: int) -> np.ndarray:
    """The poles of the system of this order that is closest to a response, by its Hankel matrix (Ho and Kalman)."""
    h = h[1:]
    if len(h) < 2:
        return np.zeros(0)
    rows = len(h) // 2
    H = np.stack([h[i : i + rows] for i in range(len(h) - rows + 1)])
    U, s, Vt = np.linalg.svd(H[:-1], full_matrices=False)
    k = min(order, int(np.sum(s > 1e-12 * s[0])))
    scale = np.sqrt(s[:k])
    return np.linalg.eigvals((U[:, :k] / scale).T @ H[1:] @ (Vt[:k].T / scale))
