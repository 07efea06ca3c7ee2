"""Several outputs at the same evenly spaced times, without a finite state: exact inference by recursion over blocks.

Each value that is missing takes one more solution.
"""

from __future__ import annotations

import math
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ..inputs.layouts import Inputs, Times
from ..inputs.observations import Data
from ..kernels.algebra import Kernel
from ..linalg.grids import block_toeplitz as linalg
from ..posterior import Model
from ..sites import Sites
from ..structure.base import No, first_no
from ..structure.block_toeplitz import BlockToeplitz, block_toeplitz, lattice
from ..structure.dense import covariance, variances
from .base import NOT_NEEDED, Cost, Engine, Formed, Offer, form_by_shape, noise_variance, not_gaussian, term, too_many
from .machine import Work
from .toeplitz import holes_work

LOWEST_NOISE = 1e-6  # in units of the prior variance: below, the recursion loses digits that Cholesky keeps


class BlockToeplitzConditional(Formed):
    """Outputs at evenly spaced times given values of all of them: α = C⁻¹T, and the generators of C⁻¹."""

    structure: BlockToeplitz
    noise: Float[Array, " P"]
    alpha: Float[Array, "S P C"]
    inverse: linalg.Inverse
    log_det: Float[Array, ""]
    gram: Float[Array, "C C"]

    @property
    def row_size(self) -> int:
        return 16 * self.alpha.shape[0] * self.alpha.shape[1]

    def log_det_and_gram(self) -> tuple[Float[Array, ""], Float[Array, "C C"]]:
        return self.log_det, self.gram

    def at(self, X: Float[Array, "M D"], part: int | None = None) -> tuple[Float[Array, "M C"], Float[Array, " M"]]:
        kernel, Ks = self._cross(X, part)
        explained = linalg.explained(self._lags, self.inverse, Ks)
        return self._mean(Ks), jnp.maximum(variances(kernel, X) - explained, 0.0)

    def joint(self, X: Float[Array, "M D"], part: int | None = None) -> tuple[Float[Array, "M C"], Float[Array, "M M"]]:
        kernel, Ks = self._cross(X, part)
        return self._mean(Ks), covariance(kernel, X, X) - linalg.all_explained(self._lags, self.inverse, Ks)

    joint_of_part = joint

    def inverse_parts(self) -> tuple[Float[Array, " N"], Float[Array, "N C"]]:
        given = self.structure.as_given
        return given(linalg.inverse_diagonal(self.inverse)), given(self.alpha)

    @property
    def _lags(self) -> Float[Array, "S P P"]:
        return _with_noise(self.structure.lags(), self.noise)

    def _cross(self, X: Float[Array, "M D"], part: int | None) -> tuple[Kernel, Float[Array, "S P M"]]:
        kernel = term(self.kernel, part)
        S, P, _ = self.alpha.shape
        return kernel, covariance(kernel, self.structure.points, X).reshape(S, P, len(X))

    def _mean(self, Ks: Float[Array, "S P M"]) -> Float[Array, "M C"]:
        return jnp.einsum("spm,spc->mc", Ks, self.alpha)


class BlockLevinson(Engine):
    """Stationary kernels of several outputs, seen at the same evenly spaced times, each with one noise level or not at all."""

    holes: int = eqx.field(static=True, default=0)  # values that are missing

    name: ClassVar[str] = "Levinson"
    structure: ClassVar[str] = "toeplitz"

    def offer(self, model: Model, inputs: Inputs, data: Data | None = None) -> Offer | No:
        if not isinstance(inputs, Times) or inputs.which is None:
            return NOT_NEEDED
        no = first_no(form_by_shape(self, model.kernel, inputs), not_gaussian(model, data)) or _uneven(model, inputs, data)
        if no:
            return no
        S, P = np.shape(lattice(inputs))
        if _quiet(model, inputs, P):
            return No("noise so low asks for the whole matrix")
        N, transform, engine = S * P, float(2 * S * math.log2(2 * S)), self.tuned(model, inputs, data)
        H = engine.holes
        if no := too_many(H):
            return no
        solution = Work(transforms=16 * P * transform, small=40.0 * P * N, traffic=200.0 * N, steps=30)
        recursion = Work(small=5.0 * P * N**2, steps=200.0 * S) + holes_work(N, H, solution)
        cost = Cost(
            flops=4 * P * N**2 + 1000 * N + 500 * H * N * math.log2(2 * S) + 4 * H**2 * N,
            bytes=8 * (30 * N * P + 8 * H * N + 4 * H**2),
            rows=0,
            evaluate=recursion + Work(transforms=40 * P**2 * transform, functions=3.0 * N * P, traffic=1000.0 * N * P),
            condition=recursion + Work(transforms=20 * P**2 * transform),
            predict=Work(transforms=12 * P * transform, functions=N, traffic=400.0 * N, products=8.0 * H * N),
            programs=15,
        )
        note = f"one more solution for each missing value ({H})" if H else ""
        return Offer(engine, cost, note="one noise level for each output; else Cholesky" if data is None else note)

    def form(self, kernel: Kernel, inputs: Inputs) -> BlockToeplitz | No:
        return block_toeplitz(kernel, inputs)

    def tuned(self, model: Model, inputs: Inputs, data: Data | None = None) -> BlockLevinson:
        cells = lattice(inputs) if isinstance(inputs, Times) else None
        if cells is None:
            return self
        return BlockLevinson(np.size(cells) - int(len(inputs) if data is None else np.sum(data.seen)))

    def log_det_and_gram(self, structure: BlockToeplitz, sites: Sites) -> tuple[Float[Array, ""], Float[Array, "C C"]]:
        R = _with_noise(structure.lags(), _noise(structure, sites))
        return linalg.log_det_and_gram(R, structure.on_cells(sites.targets), self._holes(structure, sites))

    def condition(self, structure: BlockToeplitz, sites: Sites) -> BlockToeplitzConditional:
        noise, T = _noise(structure, sites), structure.on_cells(sites.targets)
        R = _with_noise(structure.lags(), noise)
        inverse, log_det, gram = linalg.of_seen(R, T, self._holes(structure, sites))
        return BlockToeplitzConditional(structure, noise, linalg.solve(R, inverse, T), inverse, log_det, gram)

    def _holes(self, structure: BlockToeplitz, sites: Sites) -> Int[Array, " H"] | None:
        """Which cells have no value."""
        if not self.holes:
            return None
        return jnp.nonzero(jnp.ravel(structure.on_cells(sites.precision)) == 0, size=self.holes)[0]


def _with_noise(R: Float[Array, "S P P"], noise: Float[Array, " P"]) -> Float[Array, "S P P"]:
    return R.at[0].add(jnp.diag(noise))


def _noise(structure: BlockToeplitz, sites: Sites) -> Float[Array, " P"]:
    """The noise variance of each output; the mean lets the derivative reach all of its sites."""
    w = structure.on_cells(sites.precision)
    return jnp.count_nonzero(w, axis=0) / jnp.sum(w, axis=0)


def _uneven(model: Model, inputs: Times, data: Data | None) -> No | None:
    """Why the values of one output that were seen were not seen with one noise level, as far as is known."""
    seen = np.ones(len(inputs), bool) if data is None else np.asarray(data.seen)
    which = np.asarray(inputs.which)[np.asarray(inputs.rank)]
    outputs = np.shape(lattice(inputs))[1]
    if len(np.unique(which[seen])) < outputs:
        return No("an output has no value")
    noise = np.broadcast_to(noise_variance(model, inputs, data), seen.shape)
    alike = all(np.ptp(noise[seen & (which == output)]) == 0 for output in range(outputs))
    return None if alike else No("the noise of an output changes from time to time")


def _quiet(model: Model, inputs: Times, outputs: int) -> bool:
    """Whether an output is seen with so little noise that the recursion loses digits."""
    places = np.column_stack([np.full(outputs, float(inputs.t[0])), np.arange(outputs)])
    noise = np.broadcast_to(np.asarray(model.likelihood.noise_at(places)), (outputs,))
    return bool(np.any(noise < LOWEST_NOISE * np.asarray(jax.jit(variances)(model.kernel, places))))
