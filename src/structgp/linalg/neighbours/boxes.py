"""The nearest rows to new places, inside a compiled program.

Rows are split in halves along their widest side until few are left: leaves of one size, side by side in one array, so that
2, 4, 8, … neighbouring leaves are boxes as well. A search goes down from the widest boxes and keeps the nearest at each level.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

LEAF = 32  # rows of a leaf, at most
BRANCHES = 16  # boxes of one level in a box of the next
BEAM = {1: 8, 2: 16, 3: 32}  # boxes that are kept at each level, by the number of columns
WIDEST = 64
TOP = 512  # boxes at which the search begins, at most


def leaves(Z: Float[np.ndarray, "N q"], capacity: int) -> Int[np.ndarray, "leaves size"]:
    """Rows by leaves, −1 − row where one is repeated to fill up a leaf; room for `capacity` rows (on the host)."""
    depth = max(0, int(np.ceil(np.log2(max(capacity, 1) / LEAF))))
    size = -(-max(capacity, 1) // 2**depth)
    rows = np.concatenate([np.arange(len(Z)), np.full(2**depth * size - len(Z), len(Z) - 1)])[None]
    fill = np.concatenate([np.zeros(len(Z), bool), np.ones(2**depth * size - len(Z), bool)])[None]
    for _ in range(depth):
        there = Z[rows]
        side = np.argmax(np.ptp(there, axis=1), axis=1)
        order = np.argsort(np.take_along_axis(there, side[:, None, None], axis=2)[:, :, 0], axis=1, kind="stable")
        rows, fill = (np.take_along_axis(part, order, axis=1).reshape(2 * len(part), -1) for part in (rows, fill))
    return np.where(fill, -1 - rows, rows).astype(np.int32)


def nearest(
    places: Float[Array, "M q"], Z: Float[Array, "leaves size q"], own: Bool[Array, "leaves size"], count: int
) -> tuple[Int[Array, "M m"], Bool[Array, "M m"]]:
    """Where the `count` nearest rows to each place stand among all rows of the leaves, and whether they are rows at all."""
    lows, highs = [jnp.min(Z, axis=1)], [jnp.max(Z, axis=1)]
    while len(lows[-1]) > TOP:
        lows.append(jnp.min(lows[-1].reshape(-1, BRANCHES, Z.shape[2]), axis=1))
        highs.append(jnp.max(highs[-1].reshape(-1, BRANCHES, Z.shape[2]), axis=1))
    beam = BEAM.get(Z.shape[2], WIDEST)
    beam = max(beam, -(-2 * count // Z.shape[1]))

    def search(x: Float[Array, " q"]) -> tuple[Int[Array, " m"], Bool[Array, " m"]]:
        boxes = jnp.arange(len(lows[-1]))
        for level, (low, high) in enumerate(zip(reversed(lows), reversed(highs), strict=True)):
            if level:
                boxes = (boxes[:, None] * BRANCHES + jnp.arange(BRANCHES)).ravel()
            outside = jnp.maximum(jnp.maximum(low[boxes] - x, x - high[boxes]), 0.0)
            boxes = boxes[_least(jnp.sum(outside**2, axis=1), beam)]
        distance = jnp.where(own[boxes], jnp.sum((Z[boxes] - x) ** 2, axis=2), jnp.inf).ravel()
        first = _least(distance, count)
        return boxes[first // Z.shape[1]] * Z.shape[1] + first % Z.shape[1], jnp.isfinite(distance[first])

    return jax.vmap(search)(places)


def _least(values: Float[Array, " n"], count: int) -> Int[Array, " k"]:
    """Where the smallest values stand; single precision is enough to tell which rows are near, and quick."""
    return jax.lax.top_k(-values.astype(jnp.float32), min(count, len(values)))[1]
