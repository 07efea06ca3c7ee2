"""Directions to begin a climb with: at random, or by small turns that raise the evidence (Boyle 2007, 7.5)."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from jaxtyping import Float

from .._types import whole
from ..parameters.supports import Orthonormal
from ..parameters.tree import Leaf, free_vector, learned_leaves, with_values
from .objective import Objective

ANGLE = np.deg2rad(5.0)  # standard deviation of a turn in each plane
TURNS = 100  # that are tried


def directions_of(model: Any) -> list[Leaf]:
    """The directions of a model that are learned."""
    learned = [leaf for leaf in learned_leaves(model) if isinstance(leaf.support, Orthonormal)]
    if not learned:
        raise ValueError("rotations are for kernels with directions that are learned: Rotated(kernel), or Project")
    return learned


def check_rotations(rotations: Any) -> int | str:
    """How many random directions, or the name of the search."""
    if isinstance(rotations, str):
        if rotations != "perturb":
            raise ValueError(f"rotations must be a number of random starts or 'perturb', got {rotations!r}")
        return rotations
    return whole(rotations, "rotations")


def turned(model: Any, count: int, rng: np.random.Generator) -> list[Any]:
    """The model with random directions in place of those that are learned, so many times."""
    learned = directions_of(model)
    draw = lambda leaf: leaf.support.constrain(rng.standard_normal(np.shape(leaf.value)))
    return [with_values(model, {leaf.path: draw(leaf) for leaf in learned}) for _ in range(count)]


def perturbed(model: Any, objective: Objective, rng: np.random.Generator) -> Any:
    """The model after many small random turns of its directions, of which those are kept that raise what is climbed."""
    learned = directions_of(model)
    best, height = model, objective(free_vector(model))[0]
    for _ in range(TURNS):
        values = {leaf.path: np.asarray(leaf.value) for leaf in directions_of(best)}
        tried = with_values(best, {leaf.path: small_turn(len(values[leaf.path]), rng) @ values[leaf.path] for leaf in learned})
        reached = objective(free_vector(tried))[0]
        if reached > height:
            best, height = tried, reached
    return best


def small_turn(size: int, rng: np.random.Generator) -> Float[np.ndarray, "D D"]:
    """A product of Givens rotations by small random angles, one in each plane."""
    V = np.eye(size)
    for i, j in itertools.combinations(range(size), 2):
        c, s = np.cos(angle := ANGLE * rng.standard_normal()), np.sin(angle)
        V[[i, j]] = np.array([[c, -s], [s, c]]) @ V[[i, j]]
    return V
