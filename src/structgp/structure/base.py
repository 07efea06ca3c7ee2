"""What a prior is at given inputs."""

from __future__ import annotations

import dataclasses

import equinox as eqx


class Structure(eqx.Module):
    """The prior of f at N places, in a form that some algorithm can use."""

    def computed(self, signed: bool) -> Structure:
        """The same with what a search for sites would otherwise compute at every step; `signed` sites may have w < 0."""
        return self


@dataclasses.dataclass(frozen=True)
class No:
    """A form that cannot be had, and why."""

    reason: str


def first_no(*answers: object) -> No | None:
    """The first refusal among some answers."""
    return next((answer for answer in answers if isinstance(answer, No)), None)
