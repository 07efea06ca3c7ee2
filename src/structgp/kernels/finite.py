"""Kernels of a few functions with independent weights: bumps at given places, and waves."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .._types import Numbers, Point, Scalar, Seed, generator, how_many, whole
from ..parameters.supports import positive
from ..parameters.tree import parameter, show
from .algebra import Kernel
from .metrics import Metric
from .outputs import OutputColumn, outputs_of
from .stationary import HalfIntegerMatern, SquaredExponential

FEW = 3  # rows that are shown one by one


def rows_of_numbers(given: Any) -> Any:
    """Places that a kernel holds, checked."""
    if isinstance(given, jax.Array):
        return given
    rows = np.asarray(given, dtype=float)
    if rows.ndim != 2 or not rows.size or not np.isfinite(rows).all():
        raise ValueError(f"needs rows of finite numbers, an array (M, D), got an array of shape {rows.shape}")
    return rows


def shown_rows(rows: Any, what: str) -> str:
    """Places as they are shown: one by one while they are few."""
    return show(rows) if len(rows) <= FEW else f"<{len(rows)} {what}>"


def check_columns_of_rows(kernel: Any, rows: Any, x: Point) -> None:
    """Refuse inputs that have other columns than the places."""
    if rows.shape[1] != x.shape[-1]:
        raise ValueError(
            f"{type(kernel).__name__} has places of {how_many(rows.shape[1], 'column')}, "
            f"but the inputs have {x.shape[-1]}: give rows of X"
        )


class DiscreteConvolution(Kernel):
    """f(x) = Σ_j a_j κ(x, c_j) with weights a_j ~ N(0, variance), for centres c_j: one variance for all, or one for each.

    With one variance it is a discrete process convolution, white noise at a few places seen through the bump κ; with one for
    each the model of relevance vectors. With a kernel of several outputs every centre is at one of them. Far from all centres
    such an f is zero, and is said to be known there: `augmented`.
    """

    kernel: Kernel
    centres: Any = eqx.field(converter=rows_of_numbers)
    variance: Numbers = parameter(1.0, positive)

    def __check_init__(self) -> None:
        if np.shape(self.variance) not in ((), (len(self.centres),)):
            raise ValueError(
                f"DiscreteConvolution has {len(self.centres)} centres: give one variance, or one for each, "
                f"got shape {np.shape(self.variance)}"
            )

    def between(self, x: Point, z: Point) -> Scalar:
        check_columns_of_rows(self, self.centres, x)
        bumps = lambda at: jax.vmap(lambda centre: self.kernel.between(at, centre))(jnp.asarray(self.centres))
        return jnp.sum(self.variance * bumps(x) * bumps(z))

    def __repr__(self) -> str:
        return f"DiscreteConvolution({self.kernel!r}, {shown_rows(self.centres, 'centres')}, variance={show(self.variance)})"


@outputs_of.register
def _(kernel: DiscreteConvolution) -> OutputColumn | None:
    return outputs_of(kernel.kernel)


class FourierFeatures(Kernel):
    """k = variance/F · Σ_j cos(ω_jᵀ(x − z)/lengthscale): F waves of given frequencies, 2F functions with independent weights.

    ``FourierFeatures.of(Matern52(2.0), 200, columns=3)`` draws them from the spectrum of a kernel, which it then stands for.
    """

    frequencies: Any = eqx.field(converter=rows_of_numbers)
    lengthscale: Numbers = parameter(1.0, positive)
    variance: Numbers = parameter(1.0, positive)

    def between(self, x: Point, z: Point) -> Scalar:
        check_columns_of_rows(self, self.frequencies, x)
        return self.variance * jnp.mean(jnp.cos(jnp.asarray(self.frequencies) @ ((x - z) / self.lengthscale)))

    @classmethod
    def of(cls, kernel: Kernel, count: int, columns: int, seed: Seed = 0) -> FourierFeatures:
        """Waves drawn at random from the spectrum of a squared exponential or a Matérn kernel, with its parameters."""
        rng, shape = generator(seed), (whole(count, "count", 1), whole(columns, "columns", 1))
        omega = rng.standard_normal(shape)
        if isinstance(kernel, HalfIntegerMatern):
            freedom = 2 * kernel.order + 1
            omega /= np.sqrt(rng.chisquare(freedom, (len(omega), 1)) / freedom)
        elif not isinstance(kernel, SquaredExponential):
            raise ValueError(
                f"the spectrum of {type(kernel).__name__} is not known: give SquaredExponential, or a Matern kernel"
            )
        if isinstance(kernel.lengthscale, Metric):
            raise ValueError("waves have one lengthscale, or one for each column: not a metric")
        return cls(omega, kernel.lengthscale, kernel.variance)

    def __repr__(self) -> str:
        size = f"lengthscale={show(self.lengthscale)}, variance={show(self.variance)}"
        return f"FourierFeatures({shown_rows(self.frequencies, 'waves')}, {size})"
