"""How it is computed: an algorithm that conditions a structure on sites."""

from __future__ import annotations

import abc
import dataclasses
from typing import Any, ClassVar

import equinox as eqx
from jaxtyping import Array, Float

from ..inputs import Inputs
from ..kernels.algebra import Kernel
from ..posterior import Conditional, Sites
from ..structure.base import No, Structure


@dataclasses.dataclass(frozen=True)
class Cost:
    """What one evaluation of the evidence takes, in floating-point operations and in bytes."""

    flops: float
    bytes: float


class Engine(eqx.Module):
    """One algorithm for one form of the prior."""

    name: ClassVar[str]
    structure: ClassVar[str]

    @abc.abstractmethod
    def form(self, kernel: Kernel, inputs: Inputs) -> Structure | No:
        """The prior in the form that this algorithm uses, or why it has none."""

    @abc.abstractmethod
    def cost(self, kernel: Kernel, inputs: Inputs) -> Cost:
        """What one evaluation takes, by shapes alone."""

    @abc.abstractmethod
    def log_det_and_gram(self, structure: Any, sites: Sites) -> tuple[Float[Array, ""], Float[Array, "C C"]]:
        """log|C| and TᵀC⁻¹T for the targets T that the sites stand for, differentiable: all that an evidence needs."""

    @abc.abstractmethod
    def condition(self, structure: Any, sites: Sites) -> Conditional:
        """The process given the sites."""
