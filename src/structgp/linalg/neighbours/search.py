"""Which rows are near: for each row its nearest ones among those before it, on the host.

Rows stand in the order in which they are seen. A tree of the first ⌈1.5 n⌉ rows is asked for somewhat more than is needed, and
what comes later is left out; rows that are then short of neighbours ask again for twice as many.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int

GROWTH = 1.5  # by which the rows of a tree grow from one to the next
MORE = 8  # rows that are asked for besides
APART = 1e-9  # of the usual distance, by which rows are moved: ties fall the same way in all units


def nearest_before(Z: Float[np.ndarray, "N q"], count: int, of: Int[np.ndarray, " S"] | None = None) -> Int[np.ndarray, "S m"]:
    """For each row of Z (or for some) its `count` nearest earlier rows, the nearest first; −1 where there are too few."""
    from scipy.spatial import cKDTree

    n, Z = len(Z), untied(Z)
    asked = np.arange(n) if of is None else np.sort(of)
    found = np.full((n if of is None else len(asked), count), -1, np.int32)
    few = min(n, 4 * count + MORE)
    for i in asked[asked < few]:
        near = np.argsort(np.sum((Z[:i] - Z[i]) ** 2, axis=1), kind="stable")[:count]
        found[np.searchsorted(asked, i), : len(near)] = near
    start = few
    while start < n:
        stop = min(n, int(GROWTH * start) + 1)
        rows = asked[np.searchsorted(asked, start) : np.searchsorted(asked, stop)]
        if len(rows):
            tree = cKDTree(Z[:stop], balanced_tree=False, compact_nodes=False)
            place = np.empty(stop, np.intp)
            place[tree.indices] = np.arange(stop)
            _ask(tree, Z, rows[np.argsort(place[rows])], count, found, asked)  # by place: what is near is in the cache
        start = stop
    return found if of is None else found[np.searchsorted(asked, of)]


def _ask(tree: object, Z: np.ndarray, rows: np.ndarray, count: int, found: np.ndarray, asked: np.ndarray) -> None:
    want = int(GROWTH * count) + MORE
    while len(rows):
        want = min(want, tree.n)  # type: ignore[attr-defined]
        _, near = tree.query(Z[rows], want, workers=-1)  # type: ignore[attr-defined]
        before = near < rows[:, None]
        enough = before.sum(axis=1) >= count
        first = np.argsort(~before[enough], axis=1, kind="stable")[:, :count]
        found[np.searchsorted(asked, rows[enough])] = np.take_along_axis(near[enough], first, axis=1)
        rows, want = rows[~enough], 2 * want


def untied(Z: Float[np.ndarray, "N q"]) -> Float[np.ndarray, "N q"]:
    """The same rows, moved by so little that only ties between distances notice."""
    spacing = np.max(np.ptp(Z, axis=0), initial=0.0) / max(len(Z), 2) ** (1 / max(Z.shape[1], 1))
    return Z - Z.mean(axis=0) + APART * spacing * np.random.default_rng(0).standard_normal(Z.shape)
