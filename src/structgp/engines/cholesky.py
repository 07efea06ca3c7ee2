"""The referee: exact inference with the whole covariance matrix, O(N³) time and O(N²) memory."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..inputs.layouts import Inputs
from ..inputs.observations import Data
from ..kernels.algebra import Kernel
from ..linalg.dense import by_blocks, factors
from ..linalg.dense.cholesky import cholesky_update, diagonal, factorise, log_det_and_gram, log_sum
from ..posterior import Conditional, Model
from ..sites import Marginals, Sites
from ..structure.base import No
from ..structure.dense import Dense, covariance, dense, variances
from ..structure.derivatives import derivative_covariance, derivative_variances, gradient_covariance, gradient_variance
from .base import NOT_NEEDED, Cost, Engine, Offer, gaussian, not_concave, term
from .cholesky_host import CholeskyOnHost
from .machine import Work

LARGEST = 30_000  # rows of which the whole covariance matrix can be had


class CholeskyConditional(Conditional):
    """A process given sites through the factor L of B = I + S K S, S = diag(√w), and α = C⁻¹T."""

    kernel: Kernel
    X: Float[Array, "N D"]
    sites: Sites
    L: Float[Array, "N N"] = eqx.field(metadata={"derived": True})
    alpha: Float[Array, "N C"]
    jitter: Float[Array, ""]

    def at(self, X: Float[Array, "M D"], part: int | None = None) -> tuple[Float[Array, "M C"], Float[Array, " M"]]:
        kernel = term(self.kernel, part)
        Ks = covariance(kernel, X, self.X)
        V = self._whiten(Ks.T)
        return Ks @ self.alpha, jnp.maximum(variances(kernel, X) - jnp.sum(V * V, axis=0), 0.0)

    def derivative(
        self, X: Float[Array, "M D"], order: int, dim: int, part: int | None = None
    ) -> tuple[Float[Array, "M C"], Float[Array, " M"]]:
        kernel = term(self.kernel, part)
        Ks = derivative_covariance(kernel, X, self.X, dim, order)
        V = self._whiten(Ks.T)
        prior = derivative_variances(kernel, X, dim, order)
        return Ks @ self.alpha, jnp.maximum(prior - jnp.sum(V * V, axis=0), 0.0)

    def gradient(self, x: Float[Array, " D"]) -> tuple[Float[Array, "D C"], Float[Array, "D D"]]:
        J = gradient_covariance(self.kernel, x, self.X)
        V = self._whiten(J.T)
        return J @ self.alpha, gradient_variance(self.kernel, x) - V.T @ V

    @property
    def row_size(self) -> int:
        return self.X.shape[0]

    def joint(self, X: Float[Array, "M D"], part: int | None = None) -> tuple[Float[Array, "M C"], Float[Array, "M M"]]:
        kernel = term(self.kernel, part)
        Ks = covariance(kernel, X, self.X)
        V = self._whiten(Ks.T)
        return Ks @ self.alpha, covariance(kernel, X, X) - V.T @ V

    joint_of_part = joint

    def log_det_and_gram(self) -> tuple[Float[Array, ""], Float[Array, "C C"]]:
        """log|C| and TᵀC⁻¹T, from the factor that is already here."""
        if self.sites.natural:
            gram = self.sites.shift.T @ covariance(self.kernel, self.X, self.X) @ self.alpha
            return 2 * jnp.sum(jnp.log(diagonal(self.L))), 0.5 * (gram + gram.T)
        gram = self.sites.targets.T @ self.alpha
        return 2 * jnp.sum(jnp.log(diagonal(self.L))) - log_sum(self.sites.precision), 0.5 * (gram + gram.T)

    def inverse_parts(self) -> tuple[Float[Array, " N"], Float[Array, "N C"]]:
        V = self._whiten(jnp.eye(self.L.shape[0]))
        return jnp.sum(V * V, axis=0), self.alpha

    def weights(self, X: Float[Array, "M D"]) -> Float[Array, "M N"]:
        """C⁻¹k(X): how much each observation counts in the mean at X, the equivalent kernel."""
        V = self._whiten(covariance(self.kernel, self.X, X))
        return (jax.scipy.linalg.solve_triangular(self.L, V, lower=True, trans="T") * jnp.sqrt(self.sites.precision)[:, None]).T

    def updated(self, X: Float[Array, "M D"], sites: Sites, at: Any) -> CholeskyConditional:
        """The process given M more sites in the rows from `at` on, where there were none: O(N²M)."""
        S, s = jnp.sqrt(self.sites.precision), jnp.sqrt(sites.precision)
        put = lambda rows, new: jax.lax.dynamic_update_slice(rows, new, (at,) + (0,) * (rows.ndim - 1))
        B12 = S[:, None] * covariance(self.kernel, self.X, X) * s[None, :]
        B22 = jnp.eye(len(s)) + s[:, None] * (covariance(self.kernel, X, X) + self.jitter * jnp.eye(len(s))) * s[None, :]
        both = Sites(put(self.sites.precision, sites.precision), put(self.sites.shift, sites.shift))
        L = cholesky_update(self.L, B12, B22, at)
        return _conditional(self.kernel, put(self.X, X), both, L, self.jitter)

    def with_room(self, size: int) -> CholeskyConditional:
        """The same with rows for more sites, up to so many."""
        count, more = self.X.shape[0], size - self.X.shape[0]
        room = lambda rows: jnp.pad(rows, [(0, more)] + [(0, 0)] * (rows.ndim - 1))
        L = jnp.pad(self.L, (0, more)) + jnp.diag(jnp.where(jnp.arange(size) < count, 0.0, 1.0))
        sites = Sites(room(self.sites.precision), room(self.sites.shift))
        return CholeskyConditional(self.kernel, room(self.X), sites, L, room(self.alpha), self.jitter)

    def _whiten(self, columns: Float[Array, "N M"]) -> Float[Array, "N M"]:
        return jax.scipy.linalg.solve_triangular(self.L, jnp.sqrt(self.sites.precision)[:, None] * columns, lower=True)


def _conditional(kernel: Kernel, X: Array, sites: Sites, L: Array, jitter: Array) -> CholeskyConditional:
    S = jnp.sqrt(sites.precision)[:, None]
    alpha = S * jax.scipy.linalg.cho_solve((L, True), S * sites.targets)
    return CholeskyConditional(kernel, X, dataclasses.replace(sites, values=None), L, alpha, jitter)


class RootConditional(Conditional):
    """A process given sites of any sign, through K = L₀L₀ᵀ, I + L₀ᵀW L₀ = R Rᵀ and α = (I + WK)⁻¹H."""

    kernel: Kernel
    X: Float[Array, "N D"]
    sites: Sites
    root: Float[Array, "N N"] = eqx.field(metadata={"derived": True})
    R: Float[Array, "N N"] = eqx.field(metadata={"derived": True})
    alpha: Float[Array, "N C"]

    @classmethod
    def given(cls, structure: Dense, sites: Sites) -> RootConditional:
        """The process of a structure given signed sites."""
        L0 = factors.root(structure.matrix()) if structure.root is None else structure.root
        alpha = factors.solve(structure.matrix(), sites.precision, sites.shift, L0).alpha
        return cls(structure.kernel, structure.X, sites, L0, factors.signed_factor(L0, sites.precision), alpha)

    def at(self, X: Float[Array, "M D"], part: int | None = None) -> tuple[Float[Array, "M C"], Float[Array, " M"]]:
        kernel = term(self.kernel, part)
        return self._moments(covariance(kernel, X, self.X), variances(kernel, X))

    def derivative(
        self, X: Float[Array, "M D"], order: int, dim: int, part: int | None = None
    ) -> tuple[Float[Array, "M C"], Float[Array, " M"]]:
        kernel = term(self.kernel, part)
        return self._moments(derivative_covariance(kernel, X, self.X, dim, order), derivative_variances(kernel, X, dim, order))

    def gradient(self, x: Float[Array, " D"]) -> tuple[Float[Array, "D C"], Float[Array, "D D"]]:
        J = gradient_covariance(self.kernel, x, self.X)
        U, V = self._whiten(J)
        return J @ self.alpha, gradient_variance(self.kernel, x) - U.T @ U + V.T @ V

    def joint(self, X: Float[Array, "M D"], part: int | None = None) -> tuple[Float[Array, "M C"], Float[Array, "M M"]]:
        kernel = term(self.kernel, part)
        Ks = covariance(kernel, X, self.X)
        U, V = self._whiten(Ks)
        return Ks @ self.alpha, covariance(kernel, X, X) - U.T @ U + V.T @ V

    joint_of_part = joint

    @property
    def row_size(self) -> int:
        return 2 * self.X.shape[0]

    def inverse_parts(self) -> tuple[Float[Array, " N"], Float[Array, "N C"]]:
        w = self.sites.precision
        V = jax.scipy.linalg.solve_triangular(self.R, self.root.T, lower=True)
        return w - w**2 * jnp.sum(V * V, axis=0), self.alpha

    def log_det_and_gram(self) -> tuple[Float[Array, ""], Float[Array, "C C"]]:
        V = jax.scipy.linalg.solve_triangular(self.R, self.root.T @ self.sites.shift, lower=True)
        return 2 * jnp.sum(jnp.log(diagonal(self.R))), V.T @ V

    def _whiten(self, Ks: Float[Array, "M N"]) -> tuple[Float[Array, "N M"], Float[Array, "N M"]]:
        """U = L₀⁻¹k and R⁻¹U: what the places could tell of new ones at best, and what of it the sites leave open."""
        U = jax.scipy.linalg.solve_triangular(self.root, Ks.T, lower=True)
        return U, jax.scipy.linalg.solve_triangular(self.R, U, lower=True)

    def _moments(self, Ks: Array, prior: Array) -> tuple[Array, Array]:
        U, V = self._whiten(Ks)
        return Ks @ self.alpha, jnp.maximum(prior - jnp.sum(U * U, axis=0) + jnp.sum(V * V, axis=0), 0.0)


def cost_of_matrix(rows: int, dimension: int) -> Cost:
    """What the covariance matrix of so many rows takes."""
    cube, square = float(rows) ** 3, float(rows) ** 2
    return Cost(
        flops=rows**3 + rows**2 * (5 * dimension + 50),
        bytes=3 * 8 * rows**2,
        rows=rows,
        evaluate=Work(factors=cube, functions=3 * square, traffic=(320 + 16 * dimension) * square),
        condition=Work(factors=cube / 3, functions=square, traffic=80 * square),
        predict=Work(factors=square, functions=rows, traffic=40.0 * rows),
        leave_out=Work(factors=0.7 * cube),
        update=Work(factors=400.0 * square),  # the whole factor is written anew
        keep=Work(factors=cube / 3, functions=square, traffic=80 * square),
        programs=8,
    )


def look_at_matrix(rows: int, cubes: float = 3.0) -> Work:
    """What the marginals take that sites leave of so many rows; less where no site is negative."""
    return Work(factors=cubes * float(rows) ** 3, traffic=160 * float(rows) ** 2, calls=60)  # many small operations as well


class Cholesky(Engine):
    """Any kernel on any inputs, exactly."""

    name: ClassVar[str] = "Cholesky"
    structure: ClassVar[str] = "dense"
    takes_unseen_rows: ClassVar[bool] = True

    def offer(self, model: Model, inputs: Inputs, data: Data | None = None) -> Offer | No:
        if not_concave(model):
            return NOT_NEEDED
        N, cost = len(inputs), cost_of_matrix(len(inputs), inputs.dimension)
        return Offer(self, cost if gaussian(model, data) else cost.searching(look_at_matrix(N, 1.0)))

    def form(self, kernel: Kernel, inputs: Inputs) -> Dense:
        return dense(kernel, inputs)

    def on_host(self, model: Model, inputs: Inputs, data: Data) -> CholeskyOnHost:
        return CholeskyOnHost(model, inputs, data)

    def log_det_and_gram(self, structure: Dense, sites: Sites) -> tuple[Float[Array, ""], Float[Array, "C C"]]:
        if _in_blocks(structure, sites):
            return by_blocks.log_det_and_gram(_entries, (structure.kernel, structure.X), sites.precision, sites.targets)
        K = structure.matrix()
        if sites.natural:
            return factors.log_det_and_gram(K, sites.precision, sites.shift)
        return log_det_and_gram(K, sites.precision, sites.targets)

    def marginals(self, structure: Dense, sites: Sites) -> Marginals:
        return Marginals(*factors.solve(structure.matrix(), sites.precision, sites.shift)[:4])

    def condition(self, structure: Dense, sites: Sites) -> CholeskyConditional:
        if _in_blocks(structure, sites):
            found = by_blocks.factorise(_entries, (structure.kernel, structure.X), sites.precision)
            return _conditional(structure.kernel, structure.X, sites, *found)
        K = structure.matrix()
        L, jitter = factorise(K, sites.precision)
        if sites.natural:
            alpha = factors.solve(K, sites.precision, sites.shift).alpha
            return CholeskyConditional(structure.kernel, structure.X, sites, L, alpha, jitter)
        return _conditional(structure.kernel, structure.X, sites, L, jitter)


def _in_blocks(structure: Dense, sites: Sites) -> bool:
    """Whether the matrix is so large that it should be there only once."""
    return len(structure) >= by_blocks.MANY and structure.K is None and not sites.natural


def _entries(parameters: tuple[Kernel, Array], rows: Array, columns: Array) -> Array:
    """Some rows and columns of K."""
    kernel, X = parameters
    return covariance(kernel, X[rows], X[columns])


class SignedCholesky(Engine):
    """The same for sites of any sign, through a root of the covariance."""

    name: ClassVar[str] = "Cholesky"
    structure: ClassVar[str] = "dense"

    def offer(self, model: Model, inputs: Inputs, data: Data | None = None) -> Offer | No:
        if not not_concave(model):
            return NOT_NEEDED
        cost = cost_of_matrix(len(inputs), inputs.dimension).searching(look_at_matrix(len(inputs)))
        cost = dataclasses.replace(cost, rows=0)  # all of it within XLA's threads, with which those of LAPACK would fight
        return Offer(self, cost, note="factors of any sign, by a root of the matrix")

    def form(self, kernel: Kernel, inputs: Inputs) -> Dense:
        return dense(kernel, inputs)

    def log_det_and_gram(self, structure: Dense, sites: Sites) -> tuple[Float[Array, ""], Float[Array, "C C"]]:
        return factors.log_det_and_gram(structure.matrix(), sites.precision, sites.shift, True)

    def marginals(self, structure: Dense, sites: Sites) -> Marginals:
        ready = structure.computed(signed=True) if structure.root is None else structure
        return Marginals(*factors.solve(ready.matrix(), sites.precision, sites.shift, ready.root)[:4])

    def condition(self, structure: Dense, sites: Sites) -> RootConditional:
        return RootConditional.given(structure, sites)
