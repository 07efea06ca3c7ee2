"""The modes of a density of θ that draws from the beliefs before the data lead to."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float

from .._types import generator
from ..parameters.supports import Orthonormal, Simplex
from ..parameters.tree import learned_leaves
from .density import Density
from .peak import Peak

LOOKS = 128  # draws, of which the highest begin a climb
CLIMBS = 4
LOW = 5.0  # how far below the highest mode another still counts
APART = 2.0  # standard deviations from a mode within which another is the same


def modes_of(density: Density, theta: Float[np.ndarray, " P"], seed: Any = 0) -> list[Peak]:
    """Peaks of a density, the highest first: the one at θ, and others that were not known.

    Directions have many modes that are the same by symmetry, and are looked at from θ alone.
    """
    first = Peak(density, theta)
    if any(isinstance(leaf.support, (Orthonormal, Simplex)) for leaf in learned_leaves(density.model)):
        return [first]
    rng = generator(seed)
    looked = density.beliefs.sample(density.model, rng, LOOKS)
    looked[:, ~density.beliefs.averaged] = theta[~density.beliefs.averaged]
    heights = density.values(looked)
    found, spent = [first], LOOKS
    for at in np.argsort(-heights)[:CLIMBS]:
        end, evaluations = _climbed(density, looked[at])
        spent += evaluations
        if density(end)[0] > max(peak.height for peak in found) - LOW and all(_apart(peak, end) for peak in found):
            found.append(Peak(density, end))
    top = max(peak.height for peak in found)
    found = sorted((peak for peak in found if peak.height > top - LOW), key=lambda peak: -peak.height)
    found[0].evaluations += spent + sum(peak.evaluations for peak in found[1:])
    return found


def _apart(peak: Peak, theta: np.ndarray) -> bool:
    z = (peak.density.beliefs.z(theta) - peak.center)[peak.moved]
    return bool(np.linalg.norm(np.linalg.solve(peak.root, z)) > APART)


def _climbed(density: Density, theta: np.ndarray) -> tuple[np.ndarray, int]:
    """Where the density is highest around θ."""
    from scipy.optimize import minimize

    beliefs = density.beliefs
    A, moved, whole = beliefs.units, np.flatnonzero(beliefs.averaged), beliefs.z(theta)

    def falling(z: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = density(_at(z))
        return -value, -(A.T @ gradient)[moved]

    def _at(z: np.ndarray) -> np.ndarray:
        full = whole.copy()
        full[moved] = z
        return np.clip(A @ full, *beliefs.bounds.T)

    ended = minimize(falling, whole[moved], jac=True, method="L-BFGS-B", options={"maxiter": 40, "maxfun": 60})
    return _at(ended.x), int(ended.nfev)
