"""Probabilistic principal components of a table with missing cells, by expectation maximisation. On the host.

y = μ + Wz + N(0, σ²I) with z ~ N(0, I_q). Of the cells that were seen in row n, z is N(M⁻¹Wᵀ(y − μ), σ²M⁻¹) with
M = σ²I + Σ_seen w wᵀ; each column is then regressed on the expected z and 1. All sums are products with the mask of cells.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

SWEEPS = 200
WORTH = 1e-4  # relative change of the noise at which the sweeps end
LEAST = 1e-6  # of the variance of a column: the smallest noise


class Principal(NamedTuple):
    """What was learned, and what it says of the table."""

    weights: Float[np.ndarray, "D q"]
    level: Float[np.ndarray, " D"]
    noise: float
    z: Float[np.ndarray, "N q"]
    filled: Float[np.ndarray, "N D"]  # with what is expected where a cell is missing


def principal(Y: Float[np.ndarray, "N D"], count: int, sweeps: int = SWEEPS) -> Principal:
    """So many components of a table where NaN was not seen, and what they expect there."""
    seen = np.isfinite(Y).astype(float)
    at_start = np.sum(np.where(seen > 0, Y, 0.0), axis=0) / np.maximum(seen.sum(axis=0), 1)
    y = np.where(seen > 0, Y, at_start)
    _, s, right = np.linalg.svd(y - at_start, full_matrices=False)
    cells = max(float(seen.sum()), 1.0)
    scale = max(float(np.sum(s**2)) / cells, 1e-300)
    q = min(count, len(s))
    W = right[:q].T * s[:q] / np.sqrt(len(Y))
    mu, noise = at_start, max(float(np.sum(s[q:] ** 2)) / cells, LEAST * scale)
    y = np.where(seen > 0, Y, 0.0)
    for _ in range(sweeps):
        z, C = _expected(y, seen, W, mu, noise)
        more = np.concatenate([z, np.ones((len(z), 1))], axis=1)
        second = more[:, :, None] * more[:, None, :]
        second[:, :q, :q] += C
        A = np.tensordot(seen, second, (0, 0)) + LEAST * np.eye(q + 1)
        b = (seen * y).T @ more
        both = np.linalg.solve(A, b[:, :, None])[:, :, 0]
        W, mu = both[:, :q], both[:, q]
        fit = z @ W.T + mu
        loose = np.einsum("nij,di,dj,nd->", C, W, W, seen, optimize=True)
        before, noise = noise, max((float(np.sum(seen * (y - fit) ** 2)) + loose) / cells, LEAST * scale)
        if abs(noise - before) < WORTH * noise:
            break
    z, _ = _expected(y, seen, W, mu, noise)
    return Principal(W, mu, noise, z, np.where(seen > 0, y, z @ W.T + mu))


def _expected(y: np.ndarray, seen: np.ndarray, W: np.ndarray, mu: np.ndarray, noise: float) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance of z for each row."""
    q = W.shape[1]
    M = (seen @ (W[:, :, None] * W[:, None, :]).reshape(len(W), q * q)).reshape(-1, q, q) + noise * np.eye(q)
    inverse = np.linalg.inv(M)
    return np.einsum("nij,nj->ni", inverse, (seen * (y - mu)) @ W), noise * inverse
