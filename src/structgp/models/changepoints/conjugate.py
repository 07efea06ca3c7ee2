"""Segments of independent observations whose parameters are integrated out by conjugate priors."""

from __future__ import annotations

from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from ..._types import Numbers
from ...parameters.supports import positive, real
from ...parameters.tree import parameter
from .predictive import MultivariateTs, NegativeBinomials, Predictive, StudentTs
from .segments import Recursive


class NormalSegment(Recursive):
    """Normal observations with unknown level and variance: 1/σ² ~ Gamma(alpha, beta), level ~ N(mean, σ²/kappa)."""

    mean: Numbers = parameter(0.0, real)
    kappa: Numbers = parameter(0.1, positive)
    alpha: Numbers = parameter(2.0, positive)
    beta: Numbers = parameter(1.0, positive)

    def fresh(self) -> Any:
        return tuple(jnp.asarray(value) for value in (self.mean, self.kappa, self.alpha, self.beta))

    def predictive(self, state: Any, t: Any, gap: Any) -> Predictive:
        m, kappa, alpha, beta = state
        return StudentTs(2 * alpha, m, self.lifted(beta * (kappa + 1) / (alpha * kappa)))

    def updated(self, state: Any, t: Any, gap: Any, y: Any, seen: Any) -> Any:
        m, kappa, alpha, beta = state
        one = jnp.where(seen, 1.0, 0.0)
        grown = kappa + one
        error = y - m
        return m + one * error / grown, grown, alpha + 0.5 * one, beta + one * kappa * error**2 / (2 * grown)


class Scatter(NamedTuple):
    """What a segment of rows has told: level, how many rows it is worth, degrees of freedom, sum of squares."""

    mean: Any
    kappa: Any
    dof: Any
    psi: Any


class MultivariateNormalSegment(Recursive):
    """Rows of normal observations with unknown level and covariance: Σ⁻¹ ~ Wishart, level ~ N(mean, Σ/kappa).

    `size` is the number of columns, `extra_dof` are the degrees of freedom beyond size − 1, and `scale` is the diagonal of the
    prior sum of squares. A row in which a number is missing counts as not seen.
    """

    size: int = eqx.field(static=True)
    mean: Numbers = parameter(0.0, real)
    kappa: Numbers = parameter(0.1, positive)
    extra_dof: Numbers = parameter(3.0, positive)  # dof − (size − 1), so that every positive value is allowed
    scale: Numbers = parameter(1.0, positive)

    @property
    def width(self) -> int:
        return self.size

    def fresh(self) -> Scatter:
        mean = jnp.broadcast_to(jnp.asarray(self.mean), (self.size,))
        psi = jnp.diag(jnp.broadcast_to(jnp.asarray(self.scale), (self.size,)))
        return Scatter(mean, jnp.asarray(self.kappa), self.size - 1.0 + self.extra_dof, psi)

    def predictive(self, state: Scatter, t: Any, gap: Any) -> Predictive:
        dof = state.dof - self.size + 1
        scale = state.psi * (state.kappa + 1) / (state.kappa * dof)
        least = 0.0 if self.floor is None else self.floor
        return MultivariateTs(dof, state.mean, jnp.linalg.cholesky(scale + least * np.eye(self.size)))

    def updated(self, state: Scatter, t: Any, gap: Any, y: Any, seen: Any) -> Scatter:
        one = jnp.where(seen, 1.0, 0.0)
        grown = state.kappa + one
        error = y - state.mean
        psi = state.psi + one * state.kappa / grown * jnp.outer(error, error)
        return Scatter(state.mean + one * error / grown, grown, state.dof + one, psi)


class PoissonSegment(Recursive):
    """Counts with an unknown rate, which is Gamma(alpha, beta)."""

    alpha: Numbers = parameter(1.0, positive)
    beta: Numbers = parameter(1.0, positive)

    def __check_init__(self) -> None:
        if self.floor is not None:
            raise ValueError("PoissonSegment: counts have no density, so there is nothing for a floor to bound: leave it out")

    def check(self, values: np.ndarray) -> None:
        wrong = (values < 0) | (values != np.round(values))
        if wrong.any():
            raise ValueError(f"PoissonSegment needs counts 0, 1, 2, …, got {values[wrong][0]:g}")

    def fresh(self) -> Any:
        return jnp.asarray(self.alpha), jnp.asarray(self.beta)

    def predictive(self, state: Any, t: Any, gap: Any) -> Predictive:
        return NegativeBinomials(*state)

    def updated(self, state: Any, t: Any, gap: Any, y: Any, seen: Any) -> Any:
        one = jnp.where(seen, 1.0, 0.0)
        return state[0] + one * y, state[1] + one
