"""What may stand in for a prior when it is asked for: a value that leads to an algorithm, or says why it cannot be had."""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx

from ..inputs.layouts import Inputs
from ..inputs.observations import Data
from ..posterior import Model
from ..structure.approximate import NAMES
from .base import Engine
from .kalman import Kalman


class Approximation(eqx.Module):
    """What stands in for a prior: nothing is approximated unless one of these is given as ``approximate=``.

    Its fields are static choices. What it cannot do it refuses by a ValueError that says what to do instead.
    """

    structure: ClassVar[str]  # that of its engine; any other is exact, and cannot be asked for beside it
    latents: ClassVar[bool] = False  # whether several latents can be had

    @abc.abstractmethod
    def engine(self, model: Model, inference: str | None = None) -> Engine:
        """The algorithm for a model, and for sites that this way of inference finds (None for Gaussian observations)."""

    def applied(self, model: Any, inputs: Inputs, data: Data | None = None) -> Any:
        """The model that the algorithm runs on: the given one, unless the approximation has parameters of its own."""
        return model

    def rows(self, model: Model, inputs: Inputs, data: Data | None = None) -> tuple[Inputs, Data | None]:
        """The places and observations that are used at all: most use all of them."""
        return inputs, data

    def accuracy(self, inputs: Inputs) -> str | None:
        """How right its algorithm is, in words, where the algorithm itself cannot know."""
        return None

    def needless(self, inputs: Inputs) -> str:
        """Why nothing need be approximated at these places, so that what runs is exact; empty where it must."""
        return ""

    def check(self, model: Model, structure: str) -> None:
        """Refuse what no approximation of this kind can do."""
        if structure not in ("auto", self.structure):
            what = "is another approximation" if structure in NAMED else "is exact, so nothing is approximate there"
            raise ValueError(f"structure={structure!r} {what}: leave out one of the two")
        if model.likelihood.latents > 1 and not self.latents:
            raise ValueError(f"approximate={self} cannot be had for several latents: leave it out")


class FiniteState(Approximation):
    """Processes with a finite state in place of those without, on a line: by a name of `structure.approximate`."""

    name: str = eqx.field(static=True)
    structure: ClassVar[str] = Kalman.structure

    def engine(self, model: Model, inference: str | None = None) -> Engine:
        return Kalman(approximate=self.name)

    def __repr__(self) -> str:
        return repr(self.name)


NAMED: dict[str, Callable[[int | None], Approximation]] = {}  # what a name, and a number after a colon, stands for


def as_approximation(given: Any) -> Approximation | None:
    """What the caller of a door means by ``approximate=``: a value, a name such as "state-space" or "inducing:500", or None."""
    found = None if given is None else _named(given)
    if given is not None and found is None:
        raise ValueError(
            f"approximate must be one of {list(NAMES)}, or None to be exact, or what a value such as Inducing(500) says, "
            f"in short 'inducing:500' or 'neighbours:30'; got {given!r}"
        )
    return found


def of_structure(given: Any) -> tuple[Any, Approximation | None]:
    """An exact structure by its name, or "auto" and the approximation that was asked for in its place."""
    found = _named(given)
    return (given, None) if found is None else ("auto", found)


def _named(given: Any) -> Approximation | None:
    """A value, or what a name stands for; None where it is none."""
    if isinstance(given, Approximation):
        return given
    name, colon, number = given.partition(":") if isinstance(given, str) else ("", "", "")
    if name in NAMES and not colon:
        return FiniteState(name)
    known = name in NAMED and (not colon or number.removeprefix("-").isdecimal())
    return NAMED[name](int(number) if colon else None) if known else None
