"""A table as functions of few coordinates that nobody saw: every column is a Gaussian process of the latent inputs of its rows.

y_nd = f_d(z_n) + N(0, σ²), f_d ~ GP(0, k), z_n ~ N(0, I): the Gaussian-process latent-variable model (Lawrence 2005), through
inducing inputs. The latent inputs are points that are learned, Gaussians that are learned (Titsias and Lawrence 2010), or a
smooth function of the row itself (back-constraints). Along time their prior is a process.
"""

from __future__ import annotations

import abc
import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..._types import Numbers
from ...engines.base import Engine
from ...inputs.layouts import Inputs
from ...kernels.algebra import Kernel
from ...kernels.induced import Induced
from ...linalg.features import cells as numbers
from ...linalg.features.cells import CellSums, KnownColumns, TableCells
from ...parameters.supports import positive, real
from ...parameters.tree import Parametrised, parameter, with_free
from ...sites import Sites
from ...structure.base import No
from ...structure.dense import covariance, variances
from ...structure.expectations import expected


class Latents(Parametrised):
    """Where rows lie."""

    @abc.abstractmethod
    def places(self) -> Float[Array, "N Q"]:
        """The latent input of each row, or its mean."""

    def spread(self) -> Float[Array, "N Q"] | None:
        """The variances of what is believed of them; None for points."""
        return None


class LatentPoints(Latents):
    """A point for each row."""

    z: Numbers = parameter(((0.0,),), real)

    def places(self) -> Float[Array, "N Q"]:
        return self.z


class LatentGaussians(Latents):
    """A Gaussian for each row."""

    z: Numbers = parameter(((0.0,),), real)
    variance: Numbers = parameter(((0.1,),), positive)

    def places(self) -> Float[Array, "N Q"]:
        return self.z

    def spread(self) -> Float[Array, "N Q"]:
        return self.variance


class BackConstraints(Latents):
    """A smooth function of the rows, A w: rows that are alike lie near each other, and a row that is given has its place."""

    kernel: Kernel
    rows: Float[Any, "N D"]
    centres: Float[Any, "J D"]
    w: Numbers = parameter(((0.0,),), real)

    def places(self) -> Float[Array, "N Q"]:
        return self.of(self.rows)

    def of(self, rows: Float[Array, "n D"]) -> Float[Array, "n Q"]:
        """The places of rows."""
        return covariance(self.kernel, rows, self.centres) @ self.w


class LatentPath(eqx.Module):
    """A process along times, which the latent inputs are believed to follow, each coordinate one draw of it."""

    kernel: Kernel
    inputs: Inputs
    engine: Engine = eqx.field(static=True)
    jitter: float = eqx.field(static=True)

    def log_prob(self, z: Float[Array, "N Q"]) -> Float[Array, ""]:
        """log N(z; 0, K + jitter), all coordinates together."""
        sites = Sites.seen_as(z, jnp.full(len(z), self.jitter), jnp.ones(len(z), bool))
        form: Any = self.engine.form(self.kernel, self.inputs)
        log_det, gram = self.engine.log_det_and_gram(form, sites)
        return -0.5 * (z.shape[1] * log_det + jnp.trace(gram) + z.size * math.log(2 * math.pi))


class LatentModel(Parametrised):
    """Kernel with inducing inputs, noise (one variance, or one for each column), and where the rows lie."""

    kernel: Induced
    latents: Latents
    noise: Numbers = parameter(0.01, positive)
    path: LatentPath | None = None

    def sums(self, cells: TableCells, L: Float[Array, "M M"]) -> CellSums | No:
        """What rows tell of the values at the inducing inputs."""
        z, spread, U = self.latents.places(), self.latents.spread(), jnp.asarray(self.kernel.inputs)
        inner = self.kernel.kernel
        if spread is None:
            return numbers.at_places(L, covariance(inner, U, z), variances(inner, z), cells)
        found = expected(inner, z, spread, U, cells.patterns)
        return found if isinstance(found, No) else numbers.at_believed(L, found.K, found.KK, found.k, cells)

    def root(self) -> Float[Array, "M M"]:
        """L of K_uu."""
        U = jnp.asarray(self.kernel.inputs)
        return numbers.root_of(covariance(self.kernel.kernel, U, U))

    def bound(self, cells: TableCells) -> Float[Array, ""]:
        """The lower bound of log p of the cells, and for points log p of these besides."""
        sums: Any = self.sums(cells, self.root())
        return numbers.bound(sums, cells, self.noise) + self.log_prior()

    def log_prior(self) -> Float[Array, ""]:
        """log p of the latent inputs; of believed ones what their bound loses to the prior."""
        z, spread = self.latents.places(), self.latents.spread()
        if spread is not None:
            return -0.5 * jnp.sum(z**2 + spread - jnp.log(spread) - 1)
        if self.path is not None:
            return self.path.log_prob(z)
        return -0.5 * (jnp.sum(z**2) + z.size * math.log(2 * math.pi))

    def known(self, cells: TableCells) -> KnownColumns:
        """What the cells say of the functions."""
        L = self.root()
        sums: Any = self.sums(cells, L)
        return numbers.known(L, sums, cells, jnp.asarray(self.noise))


@jax.jit
def value_and_gradient(theta: Any, model: LatentModel, cells: TableCells) -> tuple[Array, Array]:
    """The bound and its gradient in θ."""
    return jax.value_and_grad(lambda theta: with_free(model, theta).bound(cells))(theta)


@jax.jit
def known_by(model: LatentModel, cells: TableCells) -> KnownColumns:
    """What the cells say of the functions, once."""
    return model.known(cells)


class LatentEvidence:
    """The bound and its gradient, for a climb."""

    def __init__(self, model: LatentModel, cells: TableCells) -> None:
        with jax.enable_x64(True):
            self._model, self._cells = jax.device_put((model, cells))

    def __call__(self, theta: np.ndarray) -> tuple[Any, Any]:
        return jax.device_get(value_and_gradient(theta, self._model, self._cells))
