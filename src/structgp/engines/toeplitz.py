"""Evenly spaced times, equally noisy: exact inference by fast Fourier transforms for kernels that are not Markov.

Each time without a value takes one more solution, so that some of them cost little and all of them more than the whole matrix.
"""

from __future__ import annotations

import dataclasses
import math
from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ..inputs.layouts import Inputs, Times
from ..inputs.observations import Data
from ..kernels.algebra import Kernel
from ..linalg.grids import toeplitz as linalg
from ..linalg.grids.unseen import Unseen
from ..posterior import Model
from ..sites import Sites
from ..structure.base import No, first_no
from ..structure.dense import covariance, variance_on_host, variances
from ..structure.toeplitz import Toeplitz, toeplitz
from .base import (
    Cost,
    Engine,
    Formed,
    Offer,
    form_by_shape,
    hardness,
    noise_of,
    noise_variance,
    not_alike_where_seen,
    not_gaussian,
    term,
    too_many,
)
from .machine import Work

LOWEST_NOISE = 1e-7  # in units of the prior variance: below, log|C| loses digits that Cholesky keeps
STEPS = 20  # of conjugate gradients, typically
OVERHEAD = 1e8  # flops that many small transforms are worth, so that short series go to the whole matrix


class ToeplitzConditional(Formed):
    """A regular series given equally noisy values: α = C⁻¹T, and the first column of C⁻¹, which holds all of it.

    Times without a value are filled in by what is expected there, so that α is zero at them.
    """

    structure: Toeplitz
    noise: Float[Array, ""]
    T: Float[Array, "C N"]  # in the order of time
    alpha: Float[Array, "C N"]
    first: Float[Array, " N"]
    log_det: Float[Array, ""]
    error: Float[Array, ""]
    own: bool = eqx.field(static=True, default=False)  # predictions are asked for at its own times only
    unseen: Unseen | None = None  # the times without a value, and what is taken away from C⁻¹ for them

    @property
    def row_size(self) -> int:
        return 1 if self.own else 16 * self.alpha.shape[1]

    @property
    def log_det_error(self) -> Float[Array, ""]:
        return self.error

    def for_places(self, X: np.ndarray, part: int | None = None) -> ToeplitzConditional:
        return dataclasses.replace(self, own=part is None and self.structure.holds(X))

    def log_det_and_gram(self) -> tuple[Float[Array, ""], Float[Array, "C C"]]:
        gram = self.T @ self.alpha.T
        return self.log_det, 0.5 * (gram + gram.T)

    def at(self, X: Float[Array, "M D"], part: int | None = None) -> tuple[Float[Array, "M C"], Float[Array, " M"]]:
        if self.own:
            places = self.structure.numbers(X)
            return (self.T - self.noise * self.alpha)[:, places].T, jnp.maximum(self._left, 0.0)[places]
        kernel = term(self.kernel, part)
        Ks = covariance(kernel, X, self.structure.t[:, None])
        explained = linalg.explained(self._lags, self.noise, self.first, Ks, self.unseen)
        return Ks @ self.alpha.T, jnp.maximum(variances(kernel, X) - explained, 0.0)

    def joint(self, X: Float[Array, "M D"], part: int | None = None) -> tuple[Float[Array, "M C"], Float[Array, "M M"]]:
        kernel = term(self.kernel, part)
        Ks = covariance(kernel, X, self.structure.t[:, None])
        explained = linalg.all_explained(self._lags, self.noise, self.first, Ks, self.unseen)
        return Ks @ self.alpha.T, covariance(kernel, X, X) - explained

    joint_of_part = joint

    def inverse_parts(self) -> tuple[Float[Array, " N"], Float[Array, "N C"]]:
        given = self.structure.as_given
        return given(linalg.inverse_diagonal(self.first, self.unseen)), given(self.alpha.T)

    @property
    def _left(self) -> Float[Array, " N"]:
        """The variances at its own times."""
        left = self.noise * (1 - self.noise * linalg.inverse_diagonal(self.first, self.unseen))
        if self.unseen is None:
            return left
        return left.at[self.unseen.places].set(self.unseen.variances - self.noise)

    @property
    def _lags(self) -> Float[Array, " L"]:
        return self.structure.lags(self.alpha.shape[1] + 1)


class FourierToeplitz(Engine):
    """Stationary kernels at evenly spaced times, all of them seen with one noise level, or not at all."""

    holes: int = eqx.field(static=True, default=0)  # times without a value

    name: ClassVar[str] = "Toeplitz"
    structure: ClassVar[str] = "toeplitz"

    def offer(self, model: Model, inputs: Inputs, data: Data | None = None) -> Offer | No:
        form = form_by_shape(self, model.kernel, inputs)
        no = first_no(form, not_gaussian(model, data), not_alike_where_seen(model, inputs, data))
        if no:
            return no
        assert isinstance(inputs, Times)
        if noise_variance(model, inputs) < LOWEST_NOISE * variance_on_host(model.kernel, inputs.some_place):
            return No("noise so low asks for the whole matrix")
        engine, N = self.tuned(model, inputs, data), len(form.t)
        H = engine.holes
        if no := too_many(H):
            return no
        transform, inverse = float(2 * N * math.log2(2 * N)), inverse_work(N, hardness(model, inputs))
        inverse += holes_work(N, H, Work(transforms=16 * transform, traffic=200.0 * N, steps=10))
        cost = Cost(
            flops=OVERHEAD + 500 * (1 + H) * N * math.log2(2 * N) + 4 * H**2 * N,
            bytes=8 * (6 * linalg.lags_needed(N) + 30 * N + 8 * H * N + 4 * H**2),
            rows=0,
            evaluate=inverse + recursion_work(N) + Work(transforms=30 * transform + H * transform, traffic=1000.0 * N),
            condition=inverse + Work(transforms=20 * transform),
            predict=Work(transforms=8 * transform, functions=N, traffic=400.0 * N, products=8.0 * H * N),
            everywhere=Work(transforms=10 * transform, functions=100.0 * N, traffic=40.0 * H * N),
            leave_out=Work(transforms=4 * transform, traffic=20.0 * H * N),
            programs=15,
        )
        note = f"one more solution for each missing value ({H})" if H else ""
        return Offer(engine, cost, note="one noise level at all times; else Fourier or Cholesky" if data is None else note)

    def form(self, kernel: Kernel, inputs: Inputs) -> Toeplitz | No:
        return toeplitz(kernel, inputs)

    def tuned(self, model: Model, inputs: Inputs, data: Data | None = None) -> FourierToeplitz:
        steps, rows = getattr(inputs, "steps", None), len(inputs)
        seen = rows if data is None else int(np.sum(data.seen))
        return FourierToeplitz((rows if steps is None else len(steps)) - seen)

    def log_det_and_gram(self, structure: Toeplitz, sites: Sites) -> tuple[Float[Array, ""], Float[Array, "C C"]]:
        k = structure.lags(linalg.lags_needed(len(structure.t)))
        return linalg.log_det_and_gram(k, noise_of(sites), structure.in_time(sites.targets).T, self._holes(structure, sites))

    def condition(self, structure: Toeplitz, sites: Sites) -> ToeplitzConditional:
        T, noise, N = structure.in_time(sites.targets).T, noise_of(sites), len(structure.t)
        k = structure.lags(linalg.lags_needed(N))
        first, log_det, error, unseen = linalg.inverse(k, noise, N, self._holes(structure, sites))
        alpha = linalg.solve(k, noise, first, T, unseen)
        if unseen is not None:
            T = T.at[:, unseen.places].set(linalg.product(k, noise, alpha)[:, unseen.places])
        return ToeplitzConditional(structure, noise, T, alpha, first, log_det, error, unseen=unseen)

    def _holes(self, structure: Toeplitz, sites: Sites) -> Int[Array, " H"] | None:
        """Which times, in their order, have no value."""
        if not self.holes:
            return None
        return jnp.nonzero(structure.in_time(sites.precision) == 0, size=self.holes)[0]


def inverse_work(N: int, hard: float) -> Work:
    """The symbol, and conjugate gradients for the first column of the inverse."""
    lags = linalg.lags_needed(N)
    symbol = Work(transforms=2 * 2 * lags * math.log2(2 * lags), functions=3.0 * lags, traffic=80.0 * lags)
    return symbol + STEPS * (1 + hard) / 2 * Work(transforms=4 * 2 * N * math.log2(2 * N), traffic=200.0 * N, steps=10)


def holes_work(N: int, holes: int, solution: Work) -> Work:
    """A solution for each of N places that was not seen, and the matrix of what these take away."""
    matrix = Work(products=2.0 * holes**2 * N, factors=holes**3 / 3 + 1.0 * holes**2 * N, traffic=60.0 * holes * N)
    return holes * solution + matrix


def recursion_work(N: int, share: float = 0.2) -> Work:
    """Durbin's recursion, for the share of evaluations at kernels that do not fade: learning begins with some."""
    return share * (N <= linalg.LONGEST) * Work(traffic=130.0 * N**2, steps=3.0 * N)
