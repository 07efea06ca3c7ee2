"""A grid seen with one noise level: exact inference through the eigendecomposition of each axis, O(N ΣG).

Each cell without a value takes O(N) more, so that some of them cost little and many of them more than other algorithms.
"""

from __future__ import annotations

import math
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ..inputs.layouts import Grid, Inputs
from ..inputs.observations import Data
from ..kernels.algebra import Kernel
from ..linalg.grids import kronecker as kron
from ..posterior import Model
from ..sites import Sites
from ..structure.base import No, first_no
from ..structure.dense import covariance
from ..structure.kronecker import Kronecker, kronecker
from .base import (
    Cost,
    Engine,
    Offer,
    form_by_shape,
    hardness,
    noise_of,
    not_alike,
    not_alike_where_seen,
    not_gaussian,
    too_many,
)
from .grids import GridConditional, contract, cross, every_cell, joint_draws, row_numbers, rows_of
from .machine import Work

ONE_NOISE = "one noise level in all cells, few of them without a value; else Krylov"  # said while the data are not known
LOWEST = 9.0  # powers of ten that noise may be below the prior variance where cells have no value


class EigenConditional(GridConditional):
    """A grid given equally noisy values: α = C⁻¹T and C⁻¹ of the cells that were seen, in the basis of the eigenvectors."""

    structure: Kronecker
    vectors: tuple[Float[Array, "_ _"], ...]
    alpha: Float[Array, " C *sizes"]  # in the basis of the eigenvectors
    inverse: Float[Array, "*sizes"]  # 1/(Λ + noise)
    noise: Float[Array, ""]
    log_det: Float[Array, ""]
    gram: Float[Array, "C C"]
    unseen: Int[Array, " H"] | None = None  # cells without a value
    U: Float[Array, " H *sizes"] | None = None  # what these take from C⁻¹, as `kron.Seen` has it

    @property
    def row_size(self) -> int:
        return row_numbers(self.structure.sizes, len(self.alpha) + (0 if self.unseen is None else len(self.unseen)))

    def joint_size(self, places: int) -> int:
        return 4 * places**2 + 3 * places * self.inverse.size

    def log_det_and_gram(self) -> tuple[Float[Array, ""], Float[Array, "C C"]]:
        return self.log_det, self.gram

    def at(self, X: Float[Array, "M D"], part: int | None = None) -> tuple[Float[Array, "M _"], Float[Array, " M"]]:
        rows, prior = rows_of(self.structure, X, part)
        rows = self._turned(rows)
        explained = contract(kron.squared(rows), self.inverse[None])[:, 0]
        if self.U is not None:
            explained -= jnp.sum(contract(rows, self.U) ** 2, axis=1)
        return contract(rows, self.alpha), jnp.maximum(prior - explained, 0.0)

    def on_grid(self, grid: Grid) -> tuple[Float[Array, "M _"], Float[Array, " M"]]:
        there = self.structure.on(grid)
        rows = self._turned(cross(there, self.structure))
        variance = kron.outer(there.prior_variances()) - self._diagonal(rows)
        return there.from_grid(kron.products(rows, self.alpha)), there.from_grid(jnp.maximum(variance, 0.0)[None])[:, 0]

    def joint(self, X: Float[Array, "M D"]) -> tuple[Float[Array, "M _"], Float[Array, "M M"]]:
        rows = self._turned(rows_of(self.structure, X, None)[0])
        A = every_cell(rows)
        explained = (A * jnp.ravel(self.inverse)) @ A.T
        if self.U is not None:
            taken = contract(rows, self.U)
            explained -= taken @ taken.T
        return contract(rows, self.alpha), covariance(self.kernel, X, X) - explained

    def residuals_on_grid(self, grid: Grid, key: Array, n: int) -> Float[Array, "M n"]:
        """A prior draw on both grids, less what its own noisy values on this one make of it."""
        there = self.structure.on(grid)
        of_prior, of_noise = jax.random.split(key)
        here, new = joint_draws(self.structure, there, of_prior, n)
        noisy = here + jnp.sqrt(self.noise) * jax.random.normal(of_noise, here.shape)
        rotated = kron.products(kron.transposed(self.vectors), _without(noisy, self.unseen))
        alpha = kron.applied(self.inverse, self.U, rotated)
        return there.from_grid(new - kron.products(self._turned(cross(there, self.structure)), alpha))

    def inverse_parts(self) -> tuple[Float[Array, " _"], Float[Array, "N C"]]:
        vectors = self.vectors
        of_seen = lambda X: self.structure.from_grid(_without(X, self.unseen))  # zero elsewhere, without what rounding leaves
        return of_seen(self._diagonal(vectors)[None])[:, 0], of_seen(kron.products(vectors, self.alpha))

    def _diagonal(self, rows: kron.Matrices) -> Float[Array, "*new"]:
        """diag(R C⁻¹Rᵀ) for R = ⊗R_d, in the basis of the eigenvectors."""
        whole = kron.product(kron.squared(rows), self.inverse)
        if self.U is None:
            return whole
        take = lambda left, u: (left - kron.product(rows, u) ** 2, None)
        return jax.lax.scan(take, whole, self.U)[0]

    def _turned(self, rows: list[Float[Array, "_ _"]]) -> list[Float[Array, "_ _"]]:
        """Covariances with the places of each factor as covariances with its eigenvectors."""
        return [R @ Q for R, Q in zip(rows, self.vectors, strict=True)]


def cost_of_axes(sizes: tuple[int, ...], flops: float, holes: int = 0) -> Cost:
    """What eigenvectors of all axes take, and turning the data to them; without some cells."""
    N, cubes, squares, sides = math.prod(sizes), sum(float(G) ** 3 for G in sizes), sum(G**2 for G in sizes), sum(sizes)
    turn = Work(products=2.0 * N * sides, traffic=16.0 * N * len(sizes))
    once = Work(eigen=cubes, functions=squares, traffic=100.0 * N) + turn
    wide = max(N // max(sizes), max(sizes))
    out = Work(products=2.0 * holes**2 * N, factors=1.0 * holes**2 * N + holes**3 / 3, traffic=80.0 * holes * N)
    slopes = Work(products=2.0 * holes * N * sides, traffic=50.0 * holes * N * len(sizes))
    return Cost(
        flops + 4.0 * holes**2 * N + 4.0 * holes * N * sides,
        bytes=8 * (8 * N + 6 * squares + 6 * holes * N),
        rows=0,
        evaluate=once + 2 * turn + out + slopes + Work(products=6 * cubes, traffic=100.0 * N + 200.0 * squares),
        condition=once + out,
        predict=Work(products=(12.0 + 2 * holes) * N + 2 * squares, functions=sides, traffic=(100.0 + 20 * holes) * wide),
        everywhere=(4 + holes) * turn + Work(functions=50.0 * N),
        leave_out=(2 + holes) * turn + Work(functions=50.0 * N),
        programs=10,
    )


class Eigen(Engine):
    """Kernels that factor over the axes of a grid, its cells seen with one noise level, or not at all."""

    holes: int = eqx.field(static=True, default=0)  # cells without a value

    name: ClassVar[str] = "Eigen"
    structure: ClassVar[str] = "kronecker"

    def offer(self, model: Model, inputs: Inputs, data: Data | None = None) -> Offer | No:
        form = form_by_shape(self, model.kernel, inputs)
        alike = not_alike_where_seen if isinstance(inputs, Grid) else not_alike
        no = first_no(form, not_gaussian(model, data), alike(model, inputs, data))
        if no:
            return no
        engine = self.tuned(model, inputs, data)
        if no := too_many(engine.holes):
            return no
        if engine.holes and hardness(model, inputs) > LOWEST:
            return No("some cells have no value, and noise so low asks for the whole matrix")
        sizes, N = form.sizes, math.prod(form.sizes)
        flops = sum(15 * G**3 + 10 * N * G for G in sizes) + 60 * N
        cost = cost_of_axes(sizes, flops, engine.holes)
        note = f"cells without a value are taken out one by one ({engine.holes})" if engine.holes else ""
        return Offer(engine, cost, note=ONE_NOISE if data is None and not note else note)

    def form(self, kernel: Kernel, inputs: Inputs) -> Kronecker | No:
        return kronecker(kernel, inputs)

    def tuned(self, model: Model, inputs: Inputs, data: Data | None = None) -> Eigen:
        if not isinstance(inputs, Grid):
            return self
        return Eigen(math.prod(inputs.shape) - (len(inputs) if data is None else int(np.sum(data.seen))))

    def log_det_and_gram(self, structure: Kronecker, sites: Sites) -> tuple[Float[Array, ""], Float[Array, "C C"]]:
        matrices = tuple(kron.joined(structure.matrices()))
        unseen = self._unseen(structure, sites)
        T = _without(structure.to_grid(sites.targets), unseen).reshape(-1, *map(len, matrices))
        return kron.log_det_and_gram(matrices, noise_of(sites), T, unseen)

    def condition(self, structure: Kronecker, sites: Sites) -> EigenConditional:
        noise, unseen = noise_of(sites), self._unseen(structure, sites)
        seen = kron.Seen.of(structure.matrices(), noise, unseen)
        T = _without(structure.to_grid(sites.targets), unseen)
        rotated = kron.products(kron.transposed(seen.parts.vectors), T)
        alpha = kron.applied(seen.inverse, seen.U, rotated)
        gram = kron.together(rotated, alpha)
        vectors = seen.parts.vectors
        return EigenConditional(structure, vectors, alpha, seen.inverse, noise, seen.log_det, gram, unseen, seen.U)

    def _unseen(self, structure: Kronecker, sites: Sites) -> Int[Array, " H"] | None:
        """Which cells, counted over the grid, have no value."""
        if not self.holes:
            return None
        return jnp.nonzero(jnp.ravel(structure.to_grid(sites.precision[:, None])[0]) == 0, size=self.holes)[0]


def _without(X: Float[Array, " C *sizes"], unseen: Int[Array, " H"] | None) -> Float[Array, " C *sizes"]:
    """Arrays over the grid, zero in cells without a value."""
    return X if unseen is None else X.reshape(len(X), -1).at[:, unseen].set(0.0).reshape(X.shape)
