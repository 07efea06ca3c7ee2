"""Several outputs as one more coordinate: the number of the output, 0, 1, 2, …"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from .._types import Numbers, Point, Scalar
from ..parameters.supports import nonnegative, real
from ..parameters.tree import fixed, parameter
from .algebra import Kernel, one_coordinate


class Coregion(Kernel):
    """k(i, j) = B_ij between outputs i and j, B = W Wᵀ + diag(variance): what they share, and what each has alone.

    The loadings W have one row for each output and a column for each function that they share: one or two for a low rank, as
    many as outputs for any B at all. ``Coregion(...).on(1) * Matern52().on(0)`` is the model of intrinsic coregionalisation.
    """

    loadings: Numbers = parameter(((1.0,), (1.0,)), real)
    variance: Numbers = parameter((1.0, 1.0), nonnegative)

    def __check_init__(self) -> None:
        if np.ndim(self.loadings) != 2 or np.shape(self.variance) != np.shape(self.loadings)[:1]:
            raise ValueError(
                "Coregion needs loadings of shape (P, r) and P variances, one for each output, "
                f"got {np.shape(self.loadings)} and {np.shape(self.variance)}"
            )

    @classmethod
    def full(cls, matrix: Any) -> Coregion:
        """Any covariance between the outputs, from this one on."""
        B = np.asarray(matrix, dtype=float)
        return cls(np.linalg.cholesky(B), fixed(np.zeros(len(B))))

    @classmethod
    def low_rank(cls, outputs: int, rank: int = 1) -> Coregion:
        """A few functions that all outputs share, loaded differently from the first to the last, and one for each alone."""
        spread = np.cos(np.pi * np.arange(rank) * (np.arange(outputs)[:, None] + 0.5) / outputs)
        return cls(spread / np.sqrt(rank), np.full(outputs, 0.5))

    @classmethod
    def diagonal(cls, variance: Any) -> Coregion:
        """Outputs that share nothing but the kernel that this one is multiplied with."""
        return cls(np.zeros((len(variance), 0)), variance)

    def matrix(self) -> Any:
        """B, the covariance between the outputs."""
        return jnp.asarray(self.loadings) @ jnp.asarray(self.loadings).T + jnp.diag(jnp.asarray(self.variance))

    def check_points(self, X: Any) -> None:
        numbers, count = np.unique(np.asarray(X)[:, 0]), len(self.loadings)
        strange = numbers[(numbers != np.round(numbers)) | (numbers < 0) | (numbers >= count)]
        if len(strange):
            raise ValueError(f"Coregion has outputs 0 to {count - 1}, but the inputs hold {strange[0]:g} in their column")

    def between(self, x: Point, z: Point) -> Scalar:
        i, j = (jnp.round(one_coordinate(self, point)).astype(int) for point in (x, z))
        return self.matrix()[i, j]
