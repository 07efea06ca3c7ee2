"""Where climbs may go, and where else they may begin."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..parameters.supports import Orthonormal, Real
from ..parameters.tree import Leaf, free_bounds, learned_leaves

WIDTH = np.log(1e6)  # how far from the start a parameter may go, on the scale of θ
SPREAD = 1.0  # standard deviation of the restarts on the scale of θ
SHIFT = 0.1  # the same of levels, slopes and places, in units of the data, or as a part of the number itself


def bounds_of(model: Any, starts: list[np.ndarray]) -> np.ndarray:
    """For each entry of θ, how far the search may go: what the user said, else far beyond any of the starts."""
    low, high = np.min(starts, axis=0) - WIDTH, np.max(starts, axis=0) + WIDTH
    at = 0
    for leaf in learned_leaves(model):
        part = slice(at, at + leaf.free_size)
        said = free_bounds(leaf)
        if said is not None:
            low[part] = said[0] if np.isfinite(said[0]) else low[part]
            high[part] = said[1] if np.isfinite(said[1]) else high[part]
        elif isinstance(leaf.support, (Real, Orthonormal)):
            low[part], high[part] = -np.inf, np.inf
        at = part.stop
    return np.stack([low, high], axis=1)


def perturbed(model: Any, start: np.ndarray, rng: np.random.Generator, units: np.ndarray | None = None) -> np.ndarray:
    """Another start: from the prior of a parameter where it has one, else some way off.

    With `units` the start is θ in these units, without them it is θ itself.
    """
    parts, at = [], 0
    for leaf in learned_leaves(model):
        part = slice(at, at + leaf.free_size)
        parts.append(_elsewhere(leaf, start[part], rng, None if units is None else units[part]))
        at = part.stop
    return np.concatenate(parts)


def _elsewhere(leaf: Leaf, start: np.ndarray, rng: np.random.Generator, unit: np.ndarray | None) -> np.ndarray:
    if leaf.prior is not None:
        with np.errstate(all="ignore"):  # a prior may reach beyond the support: such a draw is no start
            drawn = np.ravel(leaf.support.free(leaf.prior.sample(rng, np.shape(leaf.value))))
        if np.isfinite(drawn).all():
            return drawn if unit is None else drawn / unit
    step = SPREAD if not isinstance(leaf.support, Real) else SHIFT * np.abs(start) if unit is None else SHIFT
    return start + step * rng.standard_normal(start.shape)
