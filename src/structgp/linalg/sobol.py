"""Points that fill the unit cube evenly: Sobol's sequence, scrambled.

Coordinate d of point i is the sum (exclusive or) of the direction numbers v_dj over the bits j of i's Gray code, read as a
binary fraction. The directions follow from a primitive polynomial over the field of two elements and a few odd numbers for
each coordinate, here those of S. Joe and F. Y. Kuo, "Constructing Sobol sequences with better two-dimensional projections",
SIAM Journal on Scientific Computing 30 (2008). They are scrambled by random lower triangular matrices of bits and a random
shift (J. Matoušek, "On the L2-discrepancy for anchored boxes", Journal of Complexity 14, 1998).

The points are those of `scipy.stats.qmc.Sobol`, bit for bit, whose import alone takes as long as the import of JAX.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float, UInt

from .._types import generator

BITS = 30
DIRECTIONS = (  # of each coordinate from the second on: its polynomial, as bits, and its first numbers
    *((3, 1), (7, 1, 3), (11, 1, 3, 1), (13, 1, 1, 1), (19, 1, 1, 3, 3), (25, 1, 3, 5, 13), (37, 1, 1, 5, 5, 17)),
    *((41, 1, 1, 5, 5, 5), (47, 1, 1, 7, 11, 19), (55, 1, 1, 5, 1, 1), (59, 1, 1, 1, 3, 11), (61, 1, 3, 5, 5, 31)),
    *((67, 1, 3, 3, 9, 7, 49), (91, 1, 1, 1, 15, 21, 21), (97, 1, 3, 1, 13, 27, 49), (103, 1, 1, 1, 15, 7, 5)),
    *((109, 1, 3, 1, 15, 13, 25), (115, 1, 1, 5, 5, 19, 61), (131, 1, 3, 7, 11, 23, 15, 103)),
    *((137, 1, 3, 7, 13, 13, 15, 69), (143, 1, 1, 3, 13, 7, 35, 63), (145, 1, 3, 5, 9, 1, 25, 53)),
    *((157, 1, 3, 1, 13, 9, 35, 107), (167, 1, 3, 1, 5, 27, 61, 31), (171, 1, 1, 5, 11, 19, 41, 61)),
    *((185, 1, 3, 5, 3, 3, 13, 69), (191, 1, 1, 7, 13, 1, 19, 1), (193, 1, 3, 7, 5, 13, 19, 59)),
    *((203, 1, 1, 3, 9, 25, 29, 41), (211, 1, 3, 5, 13, 23, 1, 55), (213, 1, 3, 7, 3, 13, 59, 17)),
    *((229, 1, 3, 1, 3, 5, 53, 69), (239, 1, 1, 5, 5, 23, 33, 13), (241, 1, 1, 7, 7, 1, 61, 123)),
    *((247, 1, 1, 7, 9, 13, 61, 49), (253, 1, 3, 3, 5, 3, 55, 33)),
)


def sobol(size: int, count: int, seed: Any) -> Float[np.ndarray, "K Q"]:
    """Points in the unit cube that fill it evenly."""
    whole_power = 1 << max(count - 1, 0).bit_length()  # fewer would not be balanced
    rng = generator(seed)
    if size > len(DIRECTIONS) + 1:
        from scipy.stats import qmc

        points = qmc.Sobol(size, scramble=True, rng=rng).random(whole_power)
    else:
        points = _scrambled(size, whole_power, rng.spawn(1)[0])
    return np.clip(points[:count], 1e-12, 1 - 1e-12)


def _scrambled(size: int, count: int, rng: np.random.Generator) -> Float[np.ndarray, "K Q"]:
    digits = 2 ** np.arange(BITS, dtype=np.uint32)
    shift = rng.integers(2, size=(size, BITS), dtype=np.uint32) @ digits
    lower = np.tril(rng.integers(2, size=(size, BITS, BITS), dtype=np.uint32))
    lower[:, np.arange(BITS), np.arange(BITS)] = 1
    v = np.stack([_directions(d) for d in range(size)]) if size else np.zeros((0, BITS), np.uint32)
    bits = (v[:, :, None] >> np.arange(BITS - 1, -1, -1, dtype=np.uint32)) & np.uint32(1)  # the highest first
    v = (bits @ np.swapaxes(lower, 1, 2) % 2).astype(np.uint32) @ digits[::-1]
    steps = np.arange(1, count)
    changed = (steps & -steps).astype(float)  # of Gray codes from one point to the next: one bit
    points = np.vstack([shift[None], v.T[np.log2(changed).astype(int)]])
    return np.bitwise_xor.accumulate(points.astype(np.uint32), axis=0) / 2.0**BITS


def _directions(d: int) -> UInt[np.ndarray, " bits"]:
    """The direction numbers of a coordinate."""
    if d == 0:
        v = [1] * BITS
    else:
        polynomial, *v = DIRECTIONS[d - 1]
        degree = len(v)
        for j in range(degree, BITS):
            new = v[j - degree]
            for k in range(degree):
                if polynomial >> (degree - 1 - k) & 1:
                    new ^= v[j - k - 1] << (k + 1)
            v.append(new)
    return np.array([number << (BITS - 1 - j) for j, number in enumerate(v)], dtype=np.uint32)
