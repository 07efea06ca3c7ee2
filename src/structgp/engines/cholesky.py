"""The referee: exact inference with the whole covariance matrix, O(N³) time and O(N²) memory."""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..inputs import Inputs
from ..kernels.algebra import Kernel
from ..linalg.cholesky import cholesky_update, factorise, log_det_and_gram, log_sum
from ..posterior import Conditional, Sites
from ..structure.dense import Dense, covariance, dense, variances
from ..structure.derivatives import derivative_covariance, derivative_variances
from .base import Cost, Engine, draw


class CholeskyConditional(Conditional):
    """A process given sites through the factor L of B = I + S K S, S = diag(√w), and α = C⁻¹T."""

    kernel: Kernel
    X: Float[Array, "N D"]
    sites: Sites
    L: Float[Array, "N N"] = eqx.field(metadata={"derived": True})
    alpha: Float[Array, "N C"]
    jitter: Float[Array, ""]

    def at(self, X: Float[Array, "M D"], part: int | None = None) -> tuple[Float[Array, "M C"], Float[Array, "M"]]:
        kernel = self.kernel if part is None else self.kernel.terms[part]  # type: ignore[attr-defined]
        Ks = covariance(kernel, X, self.X)
        V = self._whiten(Ks.T)
        return Ks @ self.alpha, jnp.maximum(variances(kernel, X) - jnp.sum(V * V, axis=0), 0.0)

    def derivative(
        self, X: Float[Array, "M D"], order: int, dim: int, part: int | None = None
    ) -> tuple[Float[Array, "M C"], Float[Array, "M"]]:
        kernel = self.kernel if part is None else self.kernel.terms[part]  # type: ignore[attr-defined]
        Ks = derivative_covariance(kernel, X, self.X, dim, order)
        V = self._whiten(Ks.T)
        prior = derivative_variances(kernel, X, dim, order)
        return Ks @ self.alpha, jnp.maximum(prior - jnp.sum(V * V, axis=0), 0.0)

    @property
    def row_size(self) -> int:
        return self.X.shape[0]

    def residuals(self, X: Float[Array, "M D"], key: Array, n: int) -> Float[Array, "M n"]:
        return draw(self.joint(X)[1], key, n)

    def joint(self, X: Float[Array, "M D"]) -> tuple[Float[Array, "M C"], Float[Array, "M M"]]:
        Ks = covariance(self.kernel, X, self.X)
        V = self._whiten(Ks.T)
        return Ks @ self.alpha, covariance(self.kernel, X, X) - V.T @ V

    def log_det_and_gram(self) -> tuple[Float[Array, ""], Float[Array, "C C"]]:
        """log|C| and TᵀC⁻¹T, from the factor that is already here."""
        gram = self.sites.targets.T @ self.alpha
        return 2 * jnp.sum(jnp.log(jnp.diagonal(self.L))) - log_sum(self.sites.precision), 0.5 * (gram + gram.T)

    def inverse_parts(self) -> tuple[Float[Array, "N"], Float[Array, "N C"]]:
        V = self._whiten(jnp.eye(self.L.shape[0]))
        return jnp.sum(V * V, axis=0), self.alpha

    def weights(self, X: Float[Array, "M D"]) -> Float[Array, "M N"]:
        """C⁻¹k(X): how much each observation counts in the mean at X, the equivalent kernel."""
        V = self._whiten(covariance(self.kernel, self.X, X))
        return (jax.scipy.linalg.solve_triangular(self.L, V, lower=True, trans="T") * jnp.sqrt(self.sites.precision)[:, None]).T

    def updated(self, X: Float[Array, "M D"], sites: Sites) -> CholeskyConditional:
        """The process given M more sites: the factor grows by M rows, O(N²M)."""
        S, s = jnp.sqrt(self.sites.precision), jnp.sqrt(sites.precision)
        B12 = S[:, None] * covariance(self.kernel, self.X, X) * s[None, :]
        B22 = jnp.eye(len(s)) + s[:, None] * (covariance(self.kernel, X, X) + self.jitter * jnp.eye(len(s))) * s[None, :]
        both = Sites(jnp.concatenate([self.sites.precision, sites.precision]), jnp.concatenate([self.sites.shift, sites.shift]))
        L = cholesky_update(self.L, B12, B22)
        return _conditional(self.kernel, jnp.concatenate([self.X, X]), both, L, self.jitter)

    def _whiten(self, columns: Float[Array, "N M"]) -> Float[Array, "N M"]:
        return jax.scipy.linalg.solve_triangular(self.L, jnp.sqrt(self.sites.precision)[:, None] * columns, lower=True)


def _conditional(kernel: Kernel, X: Array, sites: Sites, L: Array, jitter: Array) -> CholeskyConditional:
    S = jnp.sqrt(sites.precision)[:, None]
    alpha = S * jax.scipy.linalg.cho_solve((L, True), S * sites.targets)
    return CholeskyConditional(kernel, X, sites, L, alpha, jitter)


class Cholesky(Engine):
    """Any kernel on any inputs, exactly."""

    name: ClassVar[str] = "Cholesky"
    structure: ClassVar[str] = "dense"

    def form(self, kernel: Kernel, inputs: Inputs) -> Dense:
        return dense(kernel, inputs)

    def cost(self, kernel: Kernel, inputs: Inputs) -> Cost:
        N = len(inputs)
        return Cost(flops=N**3 + N**2 * (5 * inputs.dimension + 50), bytes=3 * 8 * N**2)

    def log_det_and_gram(self, structure: Dense, sites: Sites) -> tuple[Float[Array, ""], Float[Array, "C C"]]:
        return log_det_and_gram(structure.matrix(), sites.precision, sites.targets)

    def condition(self, structure: Dense, sites: Sites) -> CholeskyConditional:
        L, jitter = factorise(structure.matrix(), sites.precision)
        return _conditional(structure.kernel, structure.X, sites, L, jitter)
