"""A diffusion map: coordinates in which rows are near that a walk from neighbour to neighbour joins quickly. On the host.

W = exp(−d²/s_i s_j), with s the distance to the k-th neighbour; W ← D⁻¹WD⁻¹ takes away how densely rows lie. The walk along it
has the eigenvectors 2, …, q + 1 of its normalised rows, times their eigenvalues.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

NEIGHBOURS = 10  # the one whose distance is the unit, where there are rows enough
SHARE = 14  # rows for each of these
DENSE = 1500  # rows up to which all pairs are looked at
NEAR = 60  # neighbours of each row beyond


def diffusion_map(Y: Float[np.ndarray, "N D"], count: int) -> Float[np.ndarray, "N q"]:
    """So many coordinates of each row, of unit spread; the sign of each is that of its largest entry."""
    N = len(Y)
    neighbours = int(np.clip(N // SHARE, min(3, N - 1), NEIGHBOURS))
    values, vectors = _of_all(Y, neighbours, count) if N <= DENSE else _of_near(Y, neighbours, count)
    Z = vectors * values
    Z = Z - Z.mean(axis=0)
    Z = Z / np.maximum(Z.std(axis=0), 1e-300)
    largest = np.argmax(np.abs(Z), axis=0)
    return Z * np.sign(Z[largest, np.arange(Z.shape[1])])


def _of_all(Y: np.ndarray, neighbours: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    from scipy.linalg import eigh
    from scipy.spatial.distance import pdist, squareform

    d = squareform(pdist(Y))
    s = _unit(np.partition(d, neighbours, axis=1)[:, neighbours])
    W = np.exp(-(d**2) / (s[:, None] * s))
    D = W.sum(axis=1)
    W /= D[:, None] * D
    root = np.sqrt(W.sum(axis=1))
    N = len(Y)
    values, vectors = eigh(W / (root[:, None] * root), subset_by_index=(N - 1 - count, N - 2))
    return values[::-1], vectors[:, ::-1] / root[:, None]


def _of_near(Y: np.ndarray, neighbours: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """The same where each row knows its nearest ones alone, which is next to all that counts."""
    from scipy.sparse import coo_array, diags_array
    from scipy.sparse.linalg import eigsh
    from scipy.spatial import cKDTree

    N = len(Y)
    d, near = cKDTree(Y).query(Y, NEAR, workers=1)
    s = _unit(d[:, neighbours])
    rows = np.repeat(np.arange(N), NEAR)
    half = coo_array((np.exp(-(d.ravel() ** 2) / (s[rows] * s[near.ravel()])), (rows, near.ravel())), shape=(N, N)).tocsr()
    W = half.maximum(half.T)
    D = 1 / np.asarray(W.sum(axis=1)).ravel()
    W = diags_array(D) @ W @ diags_array(D)
    root = np.sqrt(np.asarray(W.sum(axis=1)).ravel())
    values, vectors = eigsh(diags_array(1 / root) @ W @ diags_array(1 / root), count + 1, which="LA", v0=root)
    order = np.argsort(-values)[1:]
    return values[order], vectors[:, order] / root[:, None]


def _unit(s: np.ndarray) -> np.ndarray:
    """Distances of which those that are zero, because rows repeat, become the least of the others."""
    apart = s > 0
    return np.where(apart, s, s[apart].min() if apart.any() else 1.0)
