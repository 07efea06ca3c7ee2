"""What may stand in for a prior when it is asked for: a value that leads to an algorithm, or says why it cannot be had."""

from __future__ import annotations

import abc
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

    def check(self, model: Model, structure: str) -> None:
        """Refuse what no approximation of this kind can do."""
        if structure not in ("auto", self.structure):
            raise ValueError(f"structure={structure!r} is exact, so nothing is approximate there: leave out one of the two")
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


def as_approximation(given: Any) -> Approximation | None:
    """What the caller of a door means by ``approximate=``."""
    if given is None or isinstance(given, Approximation):
        return given
    if not isinstance(given, str) or given not in NAMES:
        raise ValueError(f"approximate must be one of {list(NAMES)}, or None to be exact, got {given!r}")
    return FiniteState(given)
