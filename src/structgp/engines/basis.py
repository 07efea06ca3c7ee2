"""Basis functions on top of any engine: their weights β ~ N(0, B) integrated out with the process.

The engine conditions on the columns T = [y, Φ] at once. With G = TᵀC⁻¹T and A = G_ΦΦ + B⁻¹,

    β̄ = A⁻¹ G_Φy,   yᵀC_β⁻¹y = G_yy − G_yΦ β̄,   log|C_β| = log|C| + log|A| + log|B|,
    f(x) = m_y(x) + ρᵀβ̄,   variance v(x) + ρᵀA⁻¹ρ,   ρ = φ(x) − m_Φ(x),

where m_y, m_Φ and v are the engine's means and variance. Of weights about which nothing is known, B⁻¹ = 0, log|B| is left out
and each of them uses up one observation (the restricted likelihood).
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..means import Mean
from ..posterior import Data, Model, Sites

NOISE_FLOOR = 1e-15  # in units of the prior variance: exact observations, as far as rounding can tell


def columns(model: Model, X: Float[Array, "N D"]) -> tuple[Float[Array, "N"], Float[Array, "N P"]]:
    """The known mean, and the basis functions of the mean and of the kernel's free part, at all rows of X."""
    mean = jax.vmap(model.mean)(X)
    features = jax.vmap(lambda x: jnp.concatenate([model.mean.features(x), model.kernel.null_space(x)]))(X)
    return mean, features


def sites_of(model: Model, X: Float[Array, "N D"], data: Data, prior_variance: Float[Array, ""]) -> Sites:
    """The sites of Gaussian data: the targets less their mean, then the basis functions, as columns."""
    mean, Phi = columns(model, X)
    noise = jnp.maximum(model.likelihood.noise + data.noise, NOISE_FLOOR * prior_variance)  # type: ignore[attr-defined]
    return Sites.seen_as(jnp.concatenate([data.y - mean[:, None], Phi], axis=1), noise, data.seen)


class Weights(eqx.Module):
    """The posterior of the basis weights: means (P, T), and the factor of their precision A."""

    mean: Float[Array, "P T"]
    factor: Float[Array, "P P"]

    def covariance(self) -> Float[Array, "P P"]:
        """A⁻¹."""
        return jax.scipy.linalg.cho_solve((self.factor, True), jnp.eye(self.factor.shape[0]))


def prior_precision(mean: Mean, P: int, of_mean: int) -> Float[Array, "P P"]:
    """B⁻¹ for the weights of the mean's basis functions, and zeros for the functions that the kernel leaves free."""
    return jnp.zeros((P, P)).at[:of_mean, :of_mean].set(mean.precision(of_mean))


def integrate(
    model: Model, log_det: Float[Array, ""], gram: Float[Array, "C C"], seen: Float[Array, ""], T: int, D: int
) -> tuple[Float[Array, ""], Weights]:
    """The log evidence of T targets with all weights integrated out, and the posterior of the weights."""
    P = gram.shape[0] - T
    of_mean = jax.eval_shape(model.mean.features, jax.ShapeDtypeStruct((D,), gram.dtype)).shape[0]
    proper = 0 if model.mean.diffuse else of_mean
    precision = prior_precision(model.mean, P, of_mean)
    A = gram[T:, T:] + precision
    L = jnp.linalg.cholesky(A) if P else jnp.zeros((0, 0))
    beta = jax.scipy.linalg.cho_solve((L, True), gram[T:, :T]) if P else jnp.zeros((0, T))
    quadratic = jnp.trace(gram[:T, :T] - gram[:T, T:] @ beta)
    log_det_B = -jnp.linalg.slogdet(precision[:proper, :proper])[1] if proper else 0.0
    total = log_det + 2 * jnp.sum(jnp.log(jnp.diagonal(L))) + log_det_B + (seen - (P - proper)) * jnp.log(2 * jnp.pi)
    return -0.5 * (quadratic + T * total), Weights(beta, L)
