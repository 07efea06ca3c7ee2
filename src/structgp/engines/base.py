"""How it is computed: an algorithm that conditions a structure on sites."""

from __future__ import annotations

import abc
import dataclasses
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..inputs.layouts import Inputs
from ..inputs.observations import Data
from ..kernels.algebra import Kernel
from ..posterior import Conditional, Model
from ..sites import Marginals, Sites
from ..structure.base import No, Structure


@dataclasses.dataclass(frozen=True)
class Cost:
    """What one evaluation of the evidence takes, in floating-point operations and in bytes."""

    flops: float
    bytes: float


def draw(covariance: Float[Array, "M M"], key: Array, n: int) -> Float[Array, "M n"]:
    """n draws from N(0, covariance), which may be singular."""
    values, vectors = jnp.linalg.eigh(0.5 * (covariance + covariance.T))
    return (vectors * jnp.sqrt(jnp.maximum(values, 0.0))) @ jax.random.normal(key, (len(covariance), n))


class Engine(eqx.Module):
    """One algorithm for one form of the prior."""

    name: ClassVar[str]
    structure: ClassVar[str]
    any_sign: ClassVar[bool] = False  # whether precisions may be negative, as where a likelihood is not log-concave

    @abc.abstractmethod
    def form(self, kernel: Kernel, inputs: Inputs) -> Structure | No:
        """The prior in the form that this algorithm uses, or why it has none."""

    @abc.abstractmethod
    def cost(self, kernel: Kernel, inputs: Inputs) -> Cost:
        """What one evaluation takes, by shapes alone."""

    def note(self, kernel: Kernel) -> str:
        """A few words for the plan."""
        return ""

    def error(self, kernel: Kernel) -> float:
        """The largest error of the covariance in units of the prior variance: 0 for an exact algorithm."""
        return 0.0

    @property
    def accuracy(self) -> str:
        """How right the answers are, for the plan."""
        return "exact"

    @property
    def grain(self) -> float:
        """How much of a log evidence is left to chance: climbing does not go after less."""
        return 0.0

    def matrix_rows(self, inputs: Inputs) -> int:
        """The rows of the largest matrix that LAPACK gets: several threads pay for large ones only."""
        return len(inputs)

    def specialised(self, model: Model, inputs: Inputs, data: Data | None = None) -> Engine:
        """This algorithm with its static choices made for these values (on the host, cheaply); most have none to make."""
        return self

    def takes_unseen_rows(self, signed: bool) -> bool:
        """Whether rows that were not seen change nothing, exactly, so that rows may come in a few sizes."""
        return False

    def glimpse(self, inputs: Inputs, data: Data) -> tuple[Inputs, Data] | None:
        """Some of the data, by which a costly climb finds out where to begin; None where it begins with all of them."""
        return None

    def shared(self, data: Data) -> Data:
        """The data, with what all observations have in common said once where this algorithm knows of it."""
        return data

    @abc.abstractmethod
    def log_det_and_gram(self, structure: Any, sites: Sites) -> tuple[Float[Array, ""], Float[Array, "C C"]]:
        """log|C| and TᵀC⁻¹T for the targets T that the sites stand for, differentiable: all that an evidence needs.

        Of natural sites log|I + KW| and hᵀ(K⁻¹ + W)⁻¹h.
        """

    def prepared(self, structure: Any, signed: bool) -> Any:
        """The form with what `marginals` would otherwise compute at every call; `signed` sites may have w < 0."""
        return structure

    def marginals(self, structure: Any, sites: Sites) -> Marginals:
        """What natural sites leave of the process at their own places; NaN where they leave no density."""
        raise NotImplementedError(f"the {self.name} engine has no marginals for observations that are not Gaussian")

    @abc.abstractmethod
    def condition(self, structure: Any, sites: Sites) -> Conditional:
        """The process given the sites."""
