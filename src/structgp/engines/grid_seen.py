"""A large grid of which few cells were seen: the covariance matrix of those, and nothing of the others."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ..inputs.layouts import Grid, Inputs, Points
from ..inputs.observations import Data
from ..kernels.algebra import Kernel
from ..posterior import Conditional, Model
from ..sites import Sites
from ..structure.base import No
from ..structure.dense import Dense, dense
from .base import NOT_NEEDED, PLANNING, Engine, Offer, gaussian
from .cholesky import Cholesky, cost_of_matrix
from .machine import Work

MANY = 2500  # places of which all are not taken together without need
FEW = 2000  # places up to which their covariance matrix is the shortest way


class SeenConditional(Conditional):
    """The process given the cells that were seen, and which rows of the caller's these are."""

    inner: Conditional
    rows: Int[Array, " n"]
    count: int = eqx.field(static=True)

    @property
    def kernel(self) -> Kernel:
        """The kernel of the process."""
        return self.inner.kernel  # type: ignore[attr-defined]

    @property
    def row_size(self) -> int:
        return self.inner.row_size

    def at(self, X: Float[Array, "M D"], part: int | None = None) -> tuple[Float[Array, "M C"], Float[Array, " M"]]:
        return self.inner.at(X, part)

    def derivative(
        self, X: Float[Array, "M D"], order: int, dim: int, part: int | None = None
    ) -> tuple[Float[Array, "M C"], Float[Array, " M"]]:
        return self.inner.derivative(X, order, dim, part)

    def gradient(self, x: Float[Array, " D"]) -> tuple[Float[Array, "D C"], Float[Array, "D D"]]:
        return self.inner.gradient(x)

    def residuals(self, X: Float[Array, "M D"], key: Array, n: int) -> Float[Array, "M n"]:
        return self.inner.residuals(X, key, n)

    def joint(self, X: Float[Array, "M D"]) -> tuple[Float[Array, "M C"], Float[Array, "M M"]]:
        return self.inner.joint(X)

    def inverse_parts(self) -> tuple[Float[Array, " N"], Float[Array, "N C"]]:
        diagonal, alpha = self.inner.inverse_parts()
        return jnp.zeros(self.count).at[self.rows].set(diagonal), jnp.zeros((self.count, alpha.shape[1])).at[self.rows].set(
            alpha
        )

    def log_det_and_gram(self) -> tuple[Float[Array, ""], Float[Array, "C C"]]:
        return self.inner.log_det_and_gram()


class SeenCells(Engine):
    """Any kernel where few of many places were seen, exactly."""

    seen: int = eqx.field(static=True, default=0)

    name: ClassVar[str] = "Cholesky"
    structure: ClassVar[str] = "kronecker"

    def offer(self, model: Model, inputs: Inputs, data: Data | None = None) -> Offer | No:
        places = math.prod(inputs.shape) if isinstance(inputs, Grid) else len(inputs)
        engine = self.tuned(model, inputs, data)
        if not gaussian(model, data) or places <= MANY or not 0 < engine.seen <= FEW:
            return NOT_NEEDED
        cost = cost_of_matrix(engine.seen, inputs.dimension)
        cost = dataclasses.replace(cost, condition=cost.condition + Work(calls=PLANNING))
        return Offer(engine, cost, note=f"of the {engine.seen} cells that were seen")

    def form(self, kernel: Kernel, inputs: Inputs) -> Dense:
        return dense(kernel, inputs)

    def tuned(self, model: Model, inputs: Inputs, data: Data | None = None) -> SeenCells:
        return SeenCells(len(inputs) if data is None else int(np.sum(data.seen)))

    def reduced(self, inputs: Inputs, data: Data) -> tuple[Engine, Inputs, Data]:
        rows = np.flatnonzero(data.seen)
        some = Data(data.y[rows], data.noise[rows], data.seen[rows], data.flat)
        return Cholesky(), Points(np.asarray(inputs.points)[rows]), some

    def log_det_and_gram(self, structure: Dense, sites: Sites) -> tuple[Float[Array, ""], Float[Array, "C C"]]:
        _, inner, there = self._seen(structure, sites)
        return Cholesky().log_det_and_gram(inner, there)

    def condition(self, structure: Dense, sites: Sites) -> SeenConditional:
        rows, inner, there = self._seen(structure, sites)
        return SeenConditional(Cholesky().condition(inner, there), rows, len(sites.precision))

    def _seen(self, structure: Dense, sites: Sites) -> tuple[Any, Dense, Sites]:
        rows = jnp.nonzero(sites.precision > 0, size=self.seen)[0]
        values = None if sites.values is None else sites.values[rows]
        return rows, Dense(structure.kernel, structure.X[rows]), Sites(sites.precision[rows], sites.shift[rows], values=values)
