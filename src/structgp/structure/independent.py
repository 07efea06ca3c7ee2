"""Several independent processes at the same places."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from .base import No, Structure


class IndependentStructures(Structure):
    """The form of each of several latents."""

    parts: tuple[Any, ...]

    def computed(self, signed: bool) -> IndependentStructures:
        return IndependentStructures(tuple(once(lambda part: part.computed(signed), self.parts)))


def side_by_side(forms: Iterable[Structure | No]) -> IndependentStructures | No:
    """The forms together, or why one of them cannot be had."""
    parts = tuple(forms)
    return next((part for part in parts if isinstance(part, No)), IndependentStructures(parts))


def once(function: Callable[[Any], Any], values: Iterable[Any]) -> list[Any]:
    """The function of each value; what several latents share is computed once."""
    values = list(values)
    made = {key: function(value) for key, value in {id(value): value for value in values}.items()}
    return [made[id(value)] for value in values]
