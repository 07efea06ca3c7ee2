"""Basis functions on top of any engine: their weights β ~ N(0, B) integrated out with the process.

The engine conditions on the columns T = [y, Φ] at once. With G = TᵀC⁻¹T and A = G_ΦΦ + B⁻¹,

    β̄ = A⁻¹ G_Φy,   yᵀC_β⁻¹y = G_yy − G_yΦ β̄,   log|C_β| = log|C| + log|A| + log|B|,
    f(x) = m_y(x) + ρᵀβ̄,   variance v(x) + ρᵀA⁻¹ρ,   ρ = φ(x) − m_Φ(x),

where m_y, m_Φ and v are the engine's means and variance. Of weights about which nothing is known, B⁻¹ = 0, log|B| is left out
and each of them uses up one observation (the restricted likelihood).

Sites that are mere factors exp(h f − ½ w f²) on the whole f = m + g + Φβ do the same to the process g with the columns
[h − w m, wΦ]. With G their Gram HᵀΣH, A = ΦᵀWΦ − G_ΦΦ + B⁻¹ and b = Φᵀ(h − w m) − G_Φh, the weights are β̄ = A⁻¹b again.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Num

from ..inputs.observations import Data
from ..linalg.blocks import Blocks, times
from ..linalg.dense.cholesky import diagonal, lower, solved_by, whitened_by
from ..means import Mean
from ..posterior import Model
from ..sites import Marginals, Sites
from .base import Engine

NOISE_FLOOR = 1e-15  # in units of the prior variance: exact observations, as far as rounding can tell


def columns(model: Model, X: Float[Array, "N D"]) -> tuple[Float[Array, " N *C"], Float[Array, " N *C P"]]:
    """The known mean, and the basis functions of the mean and of the kernel's free part, at all rows of X.

    Of several latents the means, one for all or one for each; they have no basis functions.
    """
    mean, C = jax.vmap(model.mean)(X), model.likelihood.latents
    if C > 1:
        return jnp.broadcast_to(mean if mean.ndim == 2 else mean[:, None], (len(X), C)), jnp.zeros((len(X), C, 0))
    features = jax.vmap(lambda x: jnp.concatenate([model.mean.features(x), model.kernel.null_space(x)]))(X)
    return mean, features


def sites_of(model: Model, X: Float[Array, "N D"], data: Data, prior_variance: Float[Array, ""]) -> Sites:
    """The sites of Gaussian data: the targets less their mean, then the basis functions, as columns."""
    mean, Phi = columns(model, X)
    noise = jnp.maximum(model.likelihood.noise_at(X), NOISE_FLOOR * prior_variance) + data.noise
    return Sites.seen_as(jnp.concatenate([data.y - mean[:, None], Phi], axis=1), noise, data.seen)


class Weights(eqx.Module):
    """The posterior of the basis weights: means (P, T), and the factor of their precision A."""

    mean: Float[Array, "P T"]
    factor: Float[Array, "P P"]

    def covariance(self) -> Float[Array, "P P"]:
        """A⁻¹."""
        return solved_by(self.factor, jnp.eye(self.factor.shape[0]))


def prior_precision(mean: Mean, P: int, of_mean: int) -> Float[Array, "P P"]:
    """B⁻¹ for the weights of the mean's basis functions, and zeros for the functions that the kernel leaves free."""
    return jnp.pad(mean.precision(of_mean), (0, P - of_mean))


def integrate(
    model: Model, log_det: Float[Array, ""], gram: Float[Array, "C C"], seen: Num[Any, ""] | float, T: int, D: int
) -> tuple[Float[Array, ""], Weights]:
    """The log evidence of T targets with all weights integrated out, and the posterior of the weights."""
    P = gram.shape[0] - T
    precision, proper, log_det_B = _prior_of_weights(model, P, D)
    A = gram[T:, T:] + precision
    L = lower(A) if P else jnp.zeros((0, 0))
    beta = solved_by(L, gram[T:, :T]) if P else jnp.zeros((0, T))
    quadratic = jnp.sum(diagonal(gram[:T, :T] - gram[:T, T:] @ beta))
    total = log_det + 2 * jnp.sum(jnp.log(diagonal(L))) + log_det_B + (seen - (P - proper)) * math.log(2 * math.pi)
    return -0.5 * (quadratic + T * total), Weights(beta, L)


def _prior_of_weights(model: Model, P: int, D: int) -> tuple[Float[Array, "P P"], int, Float[Array, ""]]:
    """B⁻¹, how many weights have a proper prior, and log|B| of those."""
    of_mean = jax.eval_shape(model.mean.features, jax.ShapeDtypeStruct((D,), jnp.zeros(()).dtype)).shape[0]
    proper = 0 if model.mean.diffuse else of_mean
    precision = prior_precision(model.mean, P, of_mean)
    return precision, proper, -jnp.linalg.slogdet(precision[:proper, :proper])[1] if proper else jnp.zeros(())


def free_weights(model: Model, P: int, D: int) -> int:
    """Of P weights, how many nothing is known about."""
    return P - _prior_of_weights(model, P, D)[1]


class Whole(NamedTuple):
    """All of f given factors, at their places: mean, variance, log E exp Σ(h f − ½ w f²), and Σ applied to a shift."""

    mean: Float[Array, " N *C"]
    variance: Float[Array, " N *C"]
    log_normaliser: Float[Array, ""]
    applied: Float[Array, " N *C"] | None


class Factors(eqx.Module):
    """Factors exp(h f − ½ w f²) on the whole of f, as columns for an engine; w of any sign where `signed`.

    Of several latents exp(hᵀf − ½ fᵀΠf), with Π in one of the forms of `linalg.blocks`.
    """

    offset: Float[Array, " N *C"]
    Phi: Float[Array, " N *C P"]
    w: Blocks
    h: Float[Array, " N *C"]
    signed: bool = eqx.field(static=True)

    @classmethod
    def on(cls, model: Model, X: Float[Array, "N D"], w: Blocks, h: Float[Array, " N *C"], signed: bool) -> Factors:
        """The factors of a model at its places."""
        return cls(*columns(model, X), w, h, signed)

    def sites(self, *more: Float[Array, " N *C"]) -> Sites:
        """Sites on the process alone: the shifts, the basis functions, and more shifts."""
        shifts = [self._shift()[..., None], times(self.w, self.Phi), *(s[..., None] for s in more)]
        return Sites(self.w, jnp.concatenate(shifts, axis=-1), natural=True, signed=self.signed)

    def _shift(self) -> Float[Array, " N *C"]:
        return self.h - times(self.w, self.offset)

    def integrate(self, model: Model, log_det: Array, gram: Array, D: int) -> tuple[Float[Array, ""], Weights]:
        """The log normaliser with the weights integrated out, and the posterior of the weights."""
        P = self.Phi.shape[-1]
        precision, proper, log_det_B = _prior_of_weights(model, P, D)
        Phi, weighed = (part.reshape(self.h.size, P) for part in (self.Phi, times(self.w, self.Phi)))
        A = Phi.T @ weighed - gram[1 : P + 1, 1 : P + 1] + precision
        b = Phi.T @ self._shift().ravel() - gram[1 : P + 1, 0]
        L = lower(A) if P else jnp.zeros((0, 0))
        beta = solved_by(L, b) if P else jnp.zeros(0)
        known = jnp.sum(self.h * self.offset - 0.5 * self.offset * times(self.w, self.offset))
        volume = 2 * jnp.sum(jnp.log(diagonal(L))) + log_det_B - (P - proper) * math.log(2 * math.pi)
        return known - 0.5 * (log_det - gram[0, 0] - b @ beta + volume), Weights(beta[:, None], L)


def given_factors(
    engine: Engine, structure: Any, model: Model, factors: Factors, D: int, shift: Callable[[Array], Array] | None = None
) -> Whole:
    """Marginals of the whole f at the places of the factors, and its covariance applied to a function of its variances."""

    def whole(found: Marginals) -> tuple[Whole, Float[Array, "P N"] | None]:
        means, variance, log_det, gram = found
        log_normaliser, weights = factors.integrate(model, log_det, gram, D)
        mean, P = factors.offset + means[..., 0], factors.Phi.shape[-1]
        if not P:
            return Whole(mean, variance, log_normaliser, None), None
        rho = factors.Phi - means[:, 1:]
        U = whitened_by(weights.factor, rho.T)
        return Whole(mean + rho @ weights.mean[:, 0], variance + jnp.sum(U * U, axis=0), log_normaliser, None), U

    if shift is None:
        return whole(engine.marginals(structure, factors.sites()))[0]
    from_marginals = lambda found: shift(whole(found)[0].variance)
    found, applied = engine.marginals_and_applied(structure, factors.sites(), from_marginals)
    result, U = whole(found)
    return result._replace(applied=applied if U is None else applied + U.T @ (U @ shift(result.variance)))


def log_normaliser(
    engine: Engine, structure: Any, model: Model, factors: Factors, D: int, s: Float[Array, " N *C"] | None = None
) -> Float[Array, ""]:
    """log E exp Σ(h f − ½ w f²), plus sᵀE f under the factors; differentiable."""
    log_det, gram = engine.log_det_and_gram(structure, factors.sites() if s is None else factors.sites(s))
    value, weights = factors.integrate(model, log_det, gram, D)
    if s is None:
        return value
    P = factors.Phi.shape[-1]
    of_weights = s.ravel() @ factors.Phi.reshape(s.size, P) - gram[-1, 1 : P + 1]
    return value + jnp.sum(s * factors.offset) + gram[-1, 0] + of_weights @ weights.mean[:, 0]
