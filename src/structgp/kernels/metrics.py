"""Distances for radial kernels: d² = (x − z)ᵀ Σ (x − z), each metric a linear map into a space where Σ is the identity.

Give one in place of a lengthscale: ``Matern52(lengthscale=FactorMetric(...))``.

- `CholeskyMetric`: Σ = UᵀU with U upper triangular, D(D+1)/2 numbers.
- `GivensMetric`: Σ = V diag(ℓ)⁻² Vᵀ with V a product of plane rotations, in the order (1,2), (1,3), …, (D−1,D). Angles that
  are uniform do not make V uniform over the rotations when D ≥ 3; `random_rotation` draws from the uniform (Haar) law.
- `FactorMetric`: Σ = ΛΛᵀ + diag(ℓ)⁻², D(k+1) numbers.
- `GroupMetric`: Σ = diag(ℓ)⁻² with one ℓ for all columns of a group, such as the indicators of what a column holds.
"""

from __future__ import annotations

import abc
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from .._types import Numbers, Seed, double_precision, generator
from ..parameters.supports import positive, real
from ..parameters.tree import Parametrised, parameter


class Metric(Parametrised):
    """A way to measure distance between inputs."""

    stands_for_numbers: ClassVar[bool] = True  # in place of lengthscales

    @abc.abstractmethod
    def embed(self, x: Numbers) -> Numbers:
        """Points (…, D) mapped to where the distance is the plain one."""

    @double_precision
    def matrix(self) -> Any:
        """Σ, the matrix of the quadratic form."""
        embedded = self.embed(jnp.eye(self.dimension))
        return embedded @ embedded.T

    @property
    @abc.abstractmethod
    def dimension(self) -> int:
        """The number of input columns."""

    def suggested(self, scales: np.ndarray) -> Metric:
        """The metric for columns with these scales; most start as they are given."""
        return self


class CholeskyMetric(Metric):
    """Σ = UᵀU: `diagonal` is the diagonal of U, `above` its entries above the diagonal, row by row."""

    diagonal: Numbers = parameter((1.0, 1.0), positive)
    above: Numbers = parameter((0.0,), real)

    def __check_init__(self) -> None:
        D = len(self.diagonal)
        if len(self.above) != D * (D - 1) // 2:
            raise ValueError(
                f"CholeskyMetric in {D} dimensions needs {D * (D - 1) // 2} entries above the diagonal, got {len(self.above)}"
            )

    @classmethod
    def from_matrix(cls, matrix: Any) -> CholeskyMetric:
        """The metric with a given positive definite Σ."""
        U = np.linalg.cholesky(np.asarray(matrix, dtype=float)).T
        return cls(np.diag(U), U[np.triu_indices(len(U), 1)])

    @property
    def dimension(self) -> int:
        return len(self.diagonal)

    def embed(self, x: Numbers) -> Numbers:
        rows, columns = np.triu_indices(self.dimension, 1)
        U = jnp.diag(jnp.asarray(self.diagonal)).at[rows, columns].set(self.above)
        return x @ U.T


class GivensMetric(Metric):
    """Σ = V diag(ℓ)⁻² Vᵀ: lengthscales along axes turned by D(D−1)/2 angles."""

    lengthscales: Numbers = parameter((1.0, 1.0), positive)
    angles: Numbers = parameter((0.0,), real)

    def __check_init__(self) -> None:
        D = len(self.lengthscales)
        if len(self.angles) != D * (D - 1) // 2:
            raise ValueError(f"GivensMetric in {D} dimensions needs {D * (D - 1) // 2} angles, got {len(self.angles)}")

    @property
    def dimension(self) -> int:
        return len(self.lengthscales)

    def rotation(self) -> Any:
        """V, the product of the plane rotations."""
        V = jnp.eye(self.dimension)
        for angle, (i, j) in zip(self.angles, zip(*np.triu_indices(self.dimension, 1), strict=True), strict=True):
            c, s = jnp.cos(angle), jnp.sin(angle)
            V = V.at[:, [i, j]].set(jnp.stack([c * V[:, i] + s * V[:, j], c * V[:, j] - s * V[:, i]], axis=1))
        return V

    def embed(self, x: Numbers) -> Numbers:
        return x @ self.rotation() / self.lengthscales


class FactorMetric(Metric):
    """Σ = ΛΛᵀ + diag(ℓ)⁻²: a few directions that matter together, and each axis by itself."""

    loadings: Numbers = parameter(((0.0,), (0.0,)), real)
    lengthscales: Numbers = parameter((1.0, 1.0), positive)

    def __check_init__(self) -> None:
        if np.ndim(self.loadings) != 2 or np.shape(self.loadings)[0] != len(self.lengthscales):
            raise ValueError(
                f"FactorMetric needs loadings of shape (D, k) and D lengthscales, got {np.shape(self.loadings)} "
                f"and {np.shape(self.lengthscales)}"
            )

    @property
    def dimension(self) -> int:
        return len(self.lengthscales)

    def embed(self, x: Numbers) -> Numbers:
        return jnp.concatenate([x / self.lengthscales, x @ self.loadings], axis=-1)


class GroupMetric(Metric):
    """One lengthscale for all columns of a group: column d is measured in ``lengthscales[groups[d]]``."""

    lengthscales: Numbers = parameter((1.0, 1.0), positive)
    groups: tuple[int, ...] = eqx.field(static=True, default=(0, 1), converter=lambda groups: tuple(int(g) for g in groups))

    def __check_init__(self) -> None:
        if np.ndim(self.lengthscales) != 1 or set(self.groups) != set(range(len(self.lengthscales))):
            raise ValueError(
                "GroupMetric needs a lengthscale for each group, which are counted from 0: "
                f"got groups {sorted(set(self.groups))} and lengthscales of shape {np.shape(self.lengthscales)}"
            )

    @property
    def dimension(self) -> int:
        return len(self.groups)

    def embed(self, x: Numbers) -> Numbers:
        return x / jnp.asarray(self.lengthscales)[np.array(self.groups)]

    def suggested(self, scales: np.ndarray) -> GroupMetric:
        """Columns of a group are as far apart as one with all of their variance; there are as many columns as groups."""
        squares = np.bincount(self.groups, scales**2)
        return self.replace(lengthscales=np.sqrt(squares * len(squares) / len(scales)))


def orthonormalise(matrix: Any) -> np.ndarray:
    """The nearest matrix with orthonormal columns (for a vector: of unit length) that spans the same space."""
    array = np.asarray(matrix, dtype=float)
    if array.ndim == 1:
        norm = np.linalg.norm(array)
        if norm == 0:
            raise ValueError("a direction of zero length cannot be normalised")
        return array / norm
    U, _, Vt = np.linalg.svd(array, full_matrices=False)
    return U @ Vt


def random_rotation(dimension: int, seed: Seed = None) -> np.ndarray:
    """An orthonormal matrix from the uniform (Haar) law over the orthogonal group."""
    Q, R = np.linalg.qr(generator(seed).standard_normal((dimension, dimension)))
    return Q * np.sign(np.diag(R))
