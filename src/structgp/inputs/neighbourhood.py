"""Places that know which of them are near: each seen row with its nearest earlier ones, in an order drawn once."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from .._types import library
from ..linalg.neighbours.boxes import leaves
from ..linalg.neighbours.search import nearest_before
from .layouts import Inputs
from .rows import LARGEST, size_for

SINGULAR = 1e-13  # beside 1, where one direction hardly counts
BLOCK = 64  # rows that are computed side by side, at least


class Neighbourhood(Inputs):
    """Places in blocks by where they lie; of each that was seen the nearest ones before it, in the units of some distance.

    In `rows`, (leaves, size), a negative number −1 − i is the row i once more, to fill up a leaf, or a row that was not seen.
    In `near` it is no neighbour.
    """

    X: Float[Any, "N D"]
    rows: Int[Any, "leaves size"]
    near: Int[Any, "leaves size m"]
    metric: Float[Any, "D D"]  # Σ of the distance d² = (x − z)ᵀΣ(x − z) by which neighbours were found

    @classmethod
    def of(
        cls, points: Any, seen: Bool[Any, " N"], metric: Float[np.ndarray, "D D"], count: int, search: bool
    ) -> Neighbourhood:
        """The places with at most `count` neighbours each; without a search a sketch of the right shape."""
        X, at = np.asarray(points), np.flatnonzero(seen)
        Z = (X[at] if len(at) else X[:1]) @ root_of(metric)
        capacity = size_for(len(at)) if len(at) <= LARGEST else len(at)
        own = leaves(Z, capacity)
        if not len(at):
            own, at = np.full_like(own, -1), np.zeros(1, int)
        row = np.where(own >= 0, own, -1 - own)
        near = np.full((*own.shape, max(min(count, capacity - 1), 1)), -1, np.int32)
        if search:
            near = np.where((own >= 0)[..., None], nearest_seen(Z, at, near.shape[-1])[row], near)
        rows = np.where(own >= 0, at[row], -1 - at[row])
        return cls(X, rows.astype(np.int32), near.astype(np.int32), metric)

    @property
    def points(self) -> Float[Any, "N D"]:
        return self.X

    def parts(self, count: int) -> list[Inputs]:
        """The rows in so many equal parts, a power of two, or in as many as there are leaves; all know all places."""
        count = min(count, len(self.rows))
        split = zip(np.split(self.rows, count), np.split(self.near, count), strict=True)
        return [Neighbourhood(self.X, rows, near, self.metric) for rows, near in split]

    @property
    def block(self) -> int:
        """How many rows are computed side by side: those of a few leaves."""
        count, size = self.rows.shape
        return size * min(count, 1 << max(0, int(np.ceil(np.log2(BLOCK / size)))))

    def __repr__(self) -> str:
        return f"Neighbourhood({len(self)} × {self.dimension}, {self.near.shape[-1]} neighbours)"


def drawn_order(count: int) -> Int[np.ndarray, " N"]:
    """The order in which rows are seen: any is right, and a random one leaves each with near and far neighbours."""
    return np.random.default_rng(0).permutation(count)


def nearest_seen(
    Z: Float[np.ndarray, "n q"], at: Int[np.ndarray, " n"], count: int, of: Int[np.ndarray, " S"] | None = None
) -> Int[np.ndarray, "S m"]:
    """For each of the rows `at` (or for some, counted in the drawn order) the nearest of those before it; −1: none."""
    order = drawn_order(len(at))
    found = nearest_before(Z[order], count, of)
    near = np.where(found >= 0, at[order[found]], -1)
    if of is not None:
        return near
    back = np.empty_like(near)
    back[order] = near
    return back


def root_of(metric: Float[Any, "D D"]) -> Float[Any, "D D"]:
    """E with EEᵀ = Σ: in xᵀE the distance of a metric is the plain one. Columns may have very different units."""
    xp = library(metric)
    unit = xp.sqrt(xp.maximum(xp.diagonal(metric), 1e-300))
    return unit[:, None] * xp.linalg.cholesky(metric / unit[:, None] / unit + SINGULAR * xp.eye(len(metric)))


def changed(old: Float[np.ndarray, "D D"], new: Float[np.ndarray, "D D"]) -> float:
    """By which factor two distances disagree at most about which of two steps is longer; their units do not matter."""
    L = root_of(old)
    ratios = np.linalg.eigvalsh(np.linalg.solve(L, np.linalg.solve(L, new).T))
    return float(np.sqrt(ratios[-1] / max(ratios[0], 1e-300)))
