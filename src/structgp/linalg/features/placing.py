"""A few places among many: centres of clusters, or rows of which the others tell least. On the host."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Float, Int

SWEEPS = 8
MOST_ROWS = 50_000  # of which clusters are found, or rows are chosen
BLOCK = 4096
Told = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]


def distinct(X: Float[Any, "N D"]) -> Float[np.ndarray, "M D"]:
    """Rows without those that repeat an earlier one, in their order."""
    return X[np.sort(np.unique(X, axis=0, return_index=True)[1])]


def clusters(X: Float[Any, "N D"], count: int, rng: np.random.Generator) -> Int[np.ndarray, " N"]:
    """The cluster of each row, of at most `count`, by k-means."""
    X = np.asarray(X, dtype=float) - np.mean(X, axis=0)
    centres = distinct(X[rng.permutation(len(X))])[:count]
    for _ in range(SWEEPS):
        nearest, distance = _nearest(X, centres)
        sizes = np.bincount(nearest, minlength=len(centres))
        sums = np.stack([np.bincount(nearest, column, len(centres)) for column in X.T], axis=1)
        empty = np.flatnonzero(sizes == 0)
        centres = sums / np.maximum(sizes, 1)[:, None]
        centres[empty] = X[np.argsort(-distance)[: len(empty)]]  # where clusters are worst
    return _nearest(X, centres)[0]


def _nearest(X: np.ndarray, centres: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    nearest, distance, squares = np.zeros(len(X), int), np.zeros(len(X)), (centres**2).sum(axis=1)
    for at in range(0, len(X), BLOCK):
        rows = X[at : at + BLOCK]
        d2 = squares - 2 * rows @ centres.T
        nearest[at : at + BLOCK] = d2.argmin(axis=1)
        distance[at : at + BLOCK] = d2.min(axis=1) + (rows**2).sum(axis=1)
    return nearest, distance


def centres(X: Float[Any, "N D"], units: Float[Any, "N E"], count: int, rng: np.random.Generator) -> Float[np.ndarray, "M D"]:
    """The middle of the rows of X in each cluster of what they are in other units."""
    number = clusters(units, count, rng)
    _, number, sizes = np.unique(number, return_inverse=True, return_counts=True)
    sums = np.stack([np.bincount(number, column, len(sizes)) for column in np.asarray(X, dtype=float).T], axis=1)
    return distinct(sums / sizes[:, None])


def pivots(
    column: Callable[[int], Float[Any, " N"]], variances: Float[Any, " N"], count: int, least: float | None = None
) -> Int[np.ndarray, " M"]:
    """Rows of which those before tell least, by the pivots of a Cholesky factorisation of a matrix given by its columns.

    None of which less is open than `least`, by default than rounding leaves.
    """
    least = 1e-12 * float(np.max(variances)) if least is None else least

    def exactly(m: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return np.zeros_like(v), np.where(v > least, 1 / np.maximum(v, 1e-300), 0.0)

    return _greedy(column, variances, exactly, count, lambda v, bend: np.where(bend > 0, v, 0.0))


def informative(
    column: Callable[[int], Float[Any, " N"]], variances: Float[Any, " N"], told: Told, count: int
) -> Int[np.ndarray, " M"]:
    """Rows whose observations tell most of what is still open, −½ log(1 − νς), one after the other.

    `told` says for means and variances of f how the log probability of each observation falls in the mean (slope), and bends
    (ν): what an observation leaves of the process is K − ν ssᵀ, with s its covariances with the process before.
    """
    return _greedy(column, variances, told, count, lambda v, bend: v * bend)


def _greedy(column: Any, variances: Any, told: Told, count: int, gain: Callable[[Any, Any], Any]) -> np.ndarray:
    v, m, factor = np.array(variances, dtype=float), np.zeros(len(variances)), np.zeros((count, len(variances)))
    chosen: list[int] = []
    for i in range(min(count, len(v))):
        slope, bend = told(m, v)
        gains = gain(v, bend)
        gains[chosen] = 0.0
        at = int(np.argmax(gains))
        if gains[at] <= 0:
            break
        s = np.asarray(column(at)) - factor[:i, at] @ factor[:i]
        factor[i] = np.sqrt(bend[at]) * s
        v, m = np.maximum(v - factor[i] ** 2, 0.0), m + slope[at] * s
        chosen.append(at)
    return np.asarray(chosen, dtype=int)


def missed_most(L: Float[np.ndarray, "M M"], gram: Float[np.ndarray, "M M"], count: int) -> Int[np.ndarray, " m"]:
    """So many of the values u = L v, the others dropped one by one: each time the one that is missed least.

    `gram` is the precision that rows gave to v, Λ = L⁻ᵀ gram L⁻¹ that of u. Of u_i the others leave 1 / P_ii open, P = K⁻¹:
    dropping it loses Λ_ii / P_ii. They then stand for it by t = −P_io / P_ii, so that Λ becomes Λ_oo + t Λ_io + Λ_oi tᵀ
    + Λ_ii ttᵀ, and P becomes P_oo − P_oi P_io / P_ii.
    """
    kept, root = np.arange(len(L)), np.linalg.inv(L)
    P, known = root.T @ root, root.T @ gram @ root
    while len(kept) > count:
        least = int(np.argmin(np.diagonal(known) / np.diagonal(P)))
        left, alone = P[least, least], known[least, least]
        stand_in = -P[least] / left  # −1 for itself, so that its own row and column vanish
        with_it = known[least] + 0.5 * alone * stand_in
        known = known + np.outer(stand_in, with_it) + np.outer(with_it, stand_in)
        rest = np.arange(len(kept)) != least
        P = (P - left * np.outer(stand_in, stand_in))[rest][:, rest]
        known, kept = known[rest][:, rest], kept[rest]
    return kept
