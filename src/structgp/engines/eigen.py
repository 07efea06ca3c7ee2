"""A complete grid seen with one noise level: exact inference through the eigendecomposition of each axis, O(N ΣG)."""

from __future__ import annotations

import math
from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..inputs.layouts import Grid, Inputs
from ..inputs.observations import Data
from ..kernels.algebra import Kernel
from ..linalg.grids import kronecker as kron
from ..posterior import Model
from ..sites import Sites
from ..structure.base import No, first_no
from ..structure.dense import covariance
from ..structure.kronecker import Kronecker, kronecker
from .base import Cost, Engine, Offer, form_by_shape, not_alike, not_gaussian
from .grids import GridConditional, contract, cross, every_cell, joint_draws, row_numbers, rows_of
from .machine import Work

ONE_NOISE = "one noise level in all cells; else Krylov"  # said while the data are not known


class EigenConditional(GridConditional):
    """A grid given equally noisy values in all cells: α = C⁻¹T in the basis of the eigenvectors, and 1/(Λ + noise)."""

    structure: Kronecker
    vectors: tuple[Float[Array, "_ _"], ...]
    alpha: Float[Array, " C *sizes"]  # in the basis of the eigenvectors
    inverse: Float[Array, "*sizes"]  # 1/(Λ + noise)
    noise: Float[Array, ""]
    log_det: Float[Array, ""]
    gram: Float[Array, "C C"]

    @property
    def row_size(self) -> int:
        return row_numbers(self.structure.sizes, len(self.alpha))

    def joint_size(self, places: int) -> int:
        return 4 * places**2 + 3 * places * self.inverse.size

    def log_det_and_gram(self) -> tuple[Float[Array, ""], Float[Array, "C C"]]:
        return self.log_det, self.gram

    def at(self, X: Float[Array, "M D"], part: int | None = None) -> tuple[Float[Array, "M _"], Float[Array, " M"]]:
        rows, prior = rows_of(self.structure, X, part)
        rows = self._turned(rows)
        explained = contract(kron.squared(rows), self.inverse[None])[:, 0]
        return contract(rows, self.alpha), jnp.maximum(prior - explained, 0.0)

    def on_grid(self, grid: Grid) -> tuple[Float[Array, "M _"], Float[Array, " M"]]:
        there = self.structure.on(grid)
        rows = self._turned(cross(there, self.structure))
        variance = kron.outer(there.prior_variances()) - kron.product(kron.squared(rows), self.inverse)
        return there.from_grid(kron.products(rows, self.alpha)), there.from_grid(jnp.maximum(variance, 0.0)[None])[:, 0]

    def joint(self, X: Float[Array, "M D"]) -> tuple[Float[Array, "M _"], Float[Array, "M M"]]:
        rows = self._turned(rows_of(self.structure, X, None)[0])
        A = every_cell(rows)
        return contract(rows, self.alpha), covariance(self.kernel, X, X) - (A * jnp.ravel(self.inverse)) @ A.T

    def residuals_on_grid(self, grid: Grid, key: Array, n: int) -> Float[Array, "M n"]:
        """A prior draw on both grids, less what its own noisy values on this one make of it."""
        there = self.structure.on(grid)
        of_prior, of_noise = jax.random.split(key)
        here, new = joint_draws(self.structure, there, of_prior, n)
        noisy = here + jnp.sqrt(self.noise) * jax.random.normal(of_noise, here.shape)
        alpha = kron.products(kron.transposed(self.vectors), noisy) * self.inverse
        return there.from_grid(new - kron.products(self._turned(cross(there, self.structure)), alpha))

    def inverse_parts(self) -> tuple[Float[Array, " _"], Float[Array, "N C"]]:
        diagonal = kron.product(kron.squared(self.vectors), self.inverse)
        alpha = kron.products(self.vectors, self.alpha)
        return self.structure.from_grid(diagonal[None])[:, 0], self.structure.from_grid(alpha)

    def _turned(self, rows: list[Float[Array, "_ _"]]) -> list[Float[Array, "_ _"]]:
        """Covariances with the places of each factor as covariances with its eigenvectors."""
        return [R @ Q for R, Q in zip(rows, self.vectors, strict=True)]


def cost_of_axes(sizes: tuple[int, ...], flops: float) -> Cost:
    """What eigenvectors of all axes take, and turning the data to them."""
    N, cubes, squares, sides = math.prod(sizes), sum(float(G) ** 3 for G in sizes), sum(G**2 for G in sizes), sum(sizes)
    turn = Work(products=2.0 * N * sides, traffic=16.0 * N * len(sizes))
    once = Work(eigen=cubes, functions=squares, traffic=100.0 * N) + turn
    wide = max(N // max(sizes), max(sizes))
    return Cost(
        flops,
        bytes=8 * (8 * N + 6 * squares),
        rows=0,
        evaluate=once + 2 * turn + Work(products=6 * cubes, traffic=100.0 * N + 200.0 * squares),
        condition=once,
        predict=Work(products=12.0 * N + 2 * squares, functions=sides, traffic=100.0 * wide),
        everywhere=4 * turn + Work(functions=50.0 * N),
        leave_out=2 * turn + Work(functions=50.0 * N),
        programs=10,
    )


class Eigen(Engine):
    """Kernels that factor over the axes of a grid, all cells of it seen with one noise level."""

    name: ClassVar[str] = "Eigen"
    structure: ClassVar[str] = "kronecker"

    def offer(self, model: Model, inputs: Inputs, data: Data | None = None) -> Offer | No:
        form = form_by_shape(self, model.kernel, inputs)
        no = first_no(form, not_gaussian(model, data), not_alike(model, inputs, data))
        if no:
            return no
        sizes, N = form.sizes, len(inputs)
        flops = sum(15 * G**3 + 10 * N * G for G in sizes) + 60 * N
        cost = cost_of_axes(sizes, flops)
        return Offer(self, cost, note=ONE_NOISE if data is None else "")

    def form(self, kernel: Kernel, inputs: Inputs) -> Kronecker | No:
        return kronecker(kernel, inputs)

    def log_det_and_gram(self, structure: Kronecker, sites: Sites) -> tuple[Float[Array, ""], Float[Array, "C C"]]:
        matrices = tuple(kron.joined(structure.matrices()))
        T = structure.to_grid(sites.targets).reshape(-1, *map(len, matrices))
        return kron.log_det_and_gram(matrices, noise_of(sites), T)

    def condition(self, structure: Kronecker, sites: Sites) -> EigenConditional:
        parts, noise = kron.eigen(structure.matrices()), noise_of(sites)
        rotated = kron.products(kron.transposed(parts.vectors), structure.to_grid(sites.targets))
        total = parts.spectrum() + noise
        alpha = rotated / total
        gram = jnp.einsum("cn,en->ce", rotated.reshape(len(rotated), -1), alpha.reshape(len(alpha), -1))
        return EigenConditional(structure, parts.vectors, alpha, 1 / total, noise, jnp.sum(jnp.log(total)), gram)


def noise_of(sites: Sites) -> Float[Array, ""]:
    """The one noise variance of equal sites; the mean lets the derivative reach all of them."""
    return 1 / jnp.mean(sites.precision)
