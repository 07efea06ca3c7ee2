"""Grids with a long regular axis, all cells equally noisy: the other axes turned to their eigenvectors, each a Toeplitz line.

Several outputs along a series, whose covariance is a matrix of Toeplitz blocks, are the case of one short axis more.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..inputs.layouts import Grid, Inputs
from ..inputs.observations import Data
from ..kernels.algebra import Kernel
from ..linalg.grids import kronecker as kron
from ..linalg.grids import lines
from ..linalg.grids import toeplitz as linalg
from ..posterior import Model
from ..sites import Sites
from ..structure.base import No, first_no
from ..structure.dense import covariance, variance_on_host, variances
from ..structure.toeplitz_grid import ToeplitzGrid, line_factor, toeplitz_grid
from .base import (
    PLANNING,
    Cost,
    Engine,
    Formed,
    Offer,
    form_by_shape,
    hardness,
    noise_of,
    noise_variance,
    not_alike,
    not_gaussian,
)
from .eigen import ONE_NOISE
from .machine import Work
from .toeplitz import LOWEST_NOISE, OVERHEAD, inverse_work, recursion_work


class LinesConditional(Formed):
    """Lines given equally noisy values: α = C⁻¹T for each eigenvector of the other axes, and the first columns of its C⁻¹."""

    structure: ToeplitzGrid
    vectors: Float[Array, "S S"]
    gamma: Float[Array, " S"]
    noise: Float[Array, ""]
    T: Float[Array, "S C T"]  # turned to the eigenvectors
    alpha: Float[Array, "S C T"]
    first: Float[Array, "S T"]
    log_det: Float[Array, ""]
    error: Float[Array, ""]
    own: bool = eqx.field(static=True, default=False)  # predictions are asked for in its own cells only

    @property
    def row_size(self) -> int:
        S, C, T = self.alpha.shape
        return S if self.own else 16 * T + (C + 2) * S

    @property
    def log_det_error(self) -> Float[Array, ""]:
        return self.error

    def for_places(self, X: np.ndarray, part: int | None = None) -> LinesConditional:
        return dataclasses.replace(self, own=part is None and self.structure.holds(X))

    def log_det_and_gram(self) -> tuple[Float[Array, ""], Float[Array, "C C"]]:
        gram = jnp.einsum("jct,jet->ce", self.T, self.alpha)
        return self.log_det, 0.5 * (gram + gram.T)

    def at(self, X: Float[Array, "M D"], part: int | None = None) -> tuple[Float[Array, "M C"], Float[Array, " M"]]:
        if part is not None:
            raise ValueError("the parts of a sum are not to be had on a grid: condition with structure='dense' to have them")
        if self.own:
            diagonal, alpha = self._inverse()
            cells = self.structure.numbers(X)
            mean = self._arrays(self.T) - self.noise * alpha
            left = jnp.maximum(self.noise * (1 - self.noise * diagonal), 0.0)
            return mean[(slice(None), *cells)].T, left[cells]
        along, others = self._rows(X)
        explained = self._over_lines(lambda k, first: linalg.explained(k, self.noise, first, along), others.T**2)
        return self._mean(along, others), jnp.maximum(variances(self.kernel, X) - explained, 0.0)

    def joint(self, X: Float[Array, "M D"]) -> tuple[Float[Array, "M C"], Float[Array, "M M"]]:
        along, others = self._rows(X)
        of_line = lambda k, first: linalg.all_explained(k, self.noise, first, along)
        explained = self._over_lines(of_line, others.T, lambda weights: weights[:, None] * weights)
        return self._mean(along, others), covariance(self.kernel, X, X) - explained

    def inverse_parts(self) -> tuple[Float[Array, " N"], Float[Array, "N C"]]:
        diagonal, alpha = self._inverse()
        return self.structure.grid.from_grid(diagonal[None])[:, 0], self.structure.grid.from_grid(alpha)

    def _rows(self, X: Float[Array, "M D"]) -> tuple[Float[Array, "M T"], Float[Array, "M S"]]:
        along, others = self.structure.rows(X)
        return along, others @ self.vectors

    def _mean(self, along: Float[Array, "M T"], others: Float[Array, "M S"]) -> Float[Array, "M C"]:
        return jnp.einsum("mj,mjc->mc", others, jnp.einsum("mt,jct->mjc", along, self.alpha))

    def _over_lines(
        self,
        of_line: Callable[[Array, Array], Array],
        others: Float[Array, "S M"],
        weights: Callable[[Array], Array] = lambda row: row,
    ) -> Array:
        """Σ_j of what a function of the lags and of the first column of C⁻¹ says of each eigenvector, weighted."""
        k = self.structure.line.lags(self.first.shape[1] + 1)
        add = lambda total, line: (total + weights(line[0]) * of_line(line[1] * k, line[2]), None)
        zero = jnp.zeros_like(weights(others[0]))
        return jax.lax.scan(add, zero, (others, self.gamma, self.first))[0]

    def _inverse(self) -> tuple[Float[Array, "*sizes"], Float[Array, " C *sizes"]]:
        """The diagonal of C⁻¹ and C⁻¹T over the grid."""
        diagonal = jnp.einsum("sj,jt->ts", self.vectors**2, jax.vmap(linalg.inverse_diagonal)(self.first))
        return self.structure.arrays(diagonal[None])[0], self._arrays(self.alpha)

    def _arrays(self, turned: Float[Array, "S C T"]) -> Float[Array, " C *sizes"]:
        return self.structure.arrays(jnp.einsum("sj,jct->cts", self.vectors, turned))


class ToeplitzLines(Engine):
    """Kernels that factor over a grid, one factor of them stationary along an evenly spaced axis."""

    axis: int = eqx.field(static=True, default=-1)  # which factor runs along the line

    name: ClassVar[str] = "Lines"
    structure: ClassVar[str] = "toeplitz-grid"

    def offer(self, model: Model, inputs: Inputs, data: Data | None = None) -> Offer | No:
        engine = self.tuned(model, inputs, data)
        form = form_by_shape(engine, model.kernel, inputs)
        axis = line_factor(model.kernel, inputs)
        no = first_no(form, not_gaussian(model, data), not_alike(model, inputs, data), axis)
        if no:
            return no
        assert isinstance(inputs, Grid)
        if _too_low(float(noise_variance(model, inputs)), model.kernel, inputs):
            return No("noise so low asks for the eigenvectors of all axes")
        N, T = len(inputs), form.grid.sizes[engine.axis]
        S = N // T
        flops = S * (OVERHEAD + 500 * T * math.log2(2 * T)) + 15 * S**3 + 8 * N * S
        turn = Work(eigen=float(S) ** 3, products=4.0 * N * S, traffic=100.0 * N)
        transform, inverse = 2 * T * math.log2(2 * T), inverse_work(T, hardness(model, inputs))
        learn = inverse + recursion_work(T, 0.5) + Work(transforms=30 * transform)
        cost = Cost(
            flops,
            bytes=8 * (6 * linalg.lags_needed(T) + 10 * N + 6 * S**2),
            rows=0,
            evaluate=turn + S * learn + Work(products=4.0 * N * S),
            condition=turn + S * (inverse + Work(transforms=20 * transform)) + Work(calls=PLANNING),
            predict=S * Work(transforms=8 * transform, traffic=400.0 * T),
            everywhere=S * Work(transforms=10 * transform) + Work(products=8.0 * N * S, functions=400.0 * N),
            leave_out=S * Work(transforms=4 * transform) + Work(products=4.0 * N * S),
            programs=18,
        )
        return Offer(engine, cost, note=ONE_NOISE if data is None else "")

    def form(self, kernel: Kernel, inputs: Inputs) -> ToeplitzGrid | No:
        return toeplitz_grid(kernel, inputs, self.axis)

    def tuned(self, model: Model, inputs: Inputs, data: Data | None = None) -> ToeplitzLines:
        axis = line_factor(model.kernel, inputs)
        return self if isinstance(axis, No) else ToeplitzLines(axis)

    def log_det_and_gram(self, structure: ToeplitzGrid, sites: Sites) -> tuple[Float[Array, ""], Float[Array, "C C"]]:
        table = structure.tables(structure.grid.to_grid(sites.targets))
        k = structure.line.lags(linalg.lags_needed(table.shape[1]))
        return lines.log_det_and_gram(all_toeplitz, k, structure.grid.others(structure.axis), noise_of(sites), table)

    def condition(self, structure: ToeplitzGrid, sites: Sites) -> LinesConditional:
        parts, noise = kron.eigen([structure.grid.others(structure.axis)]), noise_of(sites)
        gamma, U = parts.values[0], parts.vectors[0]
        turned = jnp.moveaxis(structure.tables(structure.grid.to_grid(sites.targets)) @ U, 2, 0)
        T = turned.shape[2]
        k = structure.line.lags(linalg.lags_needed(T))

        def one(g: Array, y: Array) -> tuple[Array, linalg.Inverse]:
            inverse = linalg.inverse(g * k, noise, T)
            return linalg.solve(g * k, noise, inverse.first, y), inverse

        alpha, inverses = jax.lax.map(lambda line: one(*line), (gamma, turned))
        sums = jnp.sum(inverses.log_det), jnp.sum(inverses.error)
        return LinesConditional(structure, U, gamma, noise, turned, alpha, inverses.first, *sums)


def all_toeplitz(
    k: Float[Array, " L"], gamma: Float[Array, " S"], noise: Float[Array, ""], turned: Float[Array, "S C T"]
) -> tuple[Float[Array, ""], Float[Array, "C C"]]:
    """log|C| and the gram of independent lines that differ in their variance, one after the other."""
    log_dets, grams = jax.lax.map(lambda line: linalg.log_det_and_gram(line[0] * k, noise, line[1]), (gamma, turned))
    return jnp.sum(log_dets), jnp.sum(grams, axis=0)


def _too_low(noise: float, kernel: Kernel, inputs: Grid) -> bool:
    """Whether log|C| of a line would lose digits that the eigenvectors of all axes keep."""
    return noise <= LOWEST_NOISE * variance_on_host(kernel, np.array([[axis[0] for axis in inputs.axes]]))
