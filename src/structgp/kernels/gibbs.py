"""Functions that are smooth in one region and rough in another."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .._types import Numbers, Point, Scalar
from ..parameters.supports import positive
from ..parameters.tree import parameter, show
from .algebra import Kernel
from .finite import check_columns_of_rows, rows_of_numbers, shown_rows

AT_A_PLACE = 1e-300  # squared distance that makes a weight as good as infinite


class Gibbs(Kernel):
    """A squared exponential whose lengthscale changes from place to place (Gibbs 1997).

    k = variance · Π_d √(2ℓ_d ℓ'_d/(ℓ_d² + ℓ'_d²)) exp(−(x_d − z_d)²/(ℓ_d² + ℓ'_d²)) with ℓ = ℓ(x), ℓ' = ℓ(z). The lengthscales
    (J,), or (J, D) for each column, are those at J given `places` (J, D); in between the logarithm of ℓ is their average with
    weights 1/|x − place|². It says consistently what a linear model of bumps with changing widths, augmented for each new
    place, says of each alone (`augmented`, of a `DiscreteConvolution` of this kernel).
    """

    places: Any = eqx.field(converter=rows_of_numbers)
    lengthscale: Numbers = parameter(1.0, positive)
    variance: Numbers = parameter(1.0, positive)

    def __check_init__(self) -> None:
        J, D = np.shape(self.places)
        if np.shape(self.lengthscale) not in ((J,), (J, D)):
            raise ValueError(
                f"Gibbs has {J} places of {D} columns: give {J} lengthscales, or an array ({J}, {D}), "
                f"got shape {np.shape(self.lengthscale)}"
            )

    def lengthscale_at(self, x: Point) -> Numbers:
        """ℓ at a point: one number, or one for each column."""
        check_columns_of_rows(self, self.places, x)
        apart = jnp.sum((jnp.asarray(self.places) - x) ** 2, axis=1)
        return jnp.exp(jax.nn.softmax(-jnp.log(apart + AT_A_PLACE)) @ jnp.log(jnp.asarray(self.lengthscale)))

    def between(self, x: Point, z: Point) -> Scalar:
        here, there = (jnp.broadcast_to(self.lengthscale_at(point), x.shape) for point in (x, z))
        squared = here**2 + there**2
        return self.variance * jnp.prod(jnp.sqrt(2 * here * there / squared)) * jnp.exp(-jnp.sum((x - z) ** 2 / squared))

    def __repr__(self) -> str:
        sizes = f"lengthscale={show(self.lengthscale)}, variance={show(self.variance)}"
        return f"Gibbs({shown_rows(self.places, 'places')}, {sizes})"
