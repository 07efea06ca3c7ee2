"""Expectation propagation: each site makes the marginal match the moments of cavity times likelihood (to a power).

With the power a, the cavity is N(m_c, v_c), v_c = v/d, m_c = (m − a v h)/d, d = 1 − a w v. From ℓ = log ∫ N(f; m_c, v_c)
p(y|f)ᵃ df, g = ∂ℓ/∂m_c and k = −∂²ℓ/∂m_c², the site that gives the same moments is w = k/(a e), h = (g + k m_c)/(a e),
e = 1 − v_c k. Nothing is divided by a precision, so sites may say nothing, or be negative.

Sites that keep several latents apart do the same latent by latent. Full ones have matrices in these places, with
V_c = (I − a V Π)⁻¹V, m_c = m + a V_c (Πm − h), E = I − k V_c, a Π' = E⁻¹k and a h' = E⁻¹g + aΠ' m_c.
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ..likelihoods.base import Likelihood
from ..linalg.blocks import dot, full, own, times
from .base import Found, Inference, Observed, Problem, Start, hold
from .search import Proposal, settle

MILDER = 0.5, 0.8, 0.95  # powers on the way to 1, where EP itself does not end


class EP(Inference):
    """EP, or with a power below 1 power EP, which converges more often and tends to the variational answer."""

    power: float = eqx.field(static=True, default=1.0)

    @property
    def name(self) -> str:
        return "ep" if self.power == 1 else "power-ep"

    def milder(self, likelihood: Likelihood) -> tuple[EP, ...]:
        """Smaller powers, where the likelihood may be taken to them."""
        return tuple(EP(power) for power in MILDER if power < self.power) if "power-ep" in likelihood.inferences else ()

    def propose(self, problem: Problem, w: Array, h: Array, mean: Array, variance: Array) -> Proposal:
        """Sites that match the tilted moments."""
        a, data = self.power, problem.data
        m_c, v_c, d = cavity(a, w, h, mean, variance)
        _, g, k = problem.model.likelihood.tilted_derivatives(data.y, m_c, v_c, data.times(a), data.extra)
        if variance.ndim == 3:
            return _matched_blocks(a, m_c, v_c, g, k, mean, variance)
        e = 1 - v_c * k
        off_mean = jnp.abs(m_c + v_c * g - mean) / jnp.sqrt(variance)
        off = jnp.maximum(off_mean, jnp.abs(v_c * e / variance - 1))
        return Proposal(k / (a * e), (g + k * m_c) / (a * e), off, (d > 0) & (e > 0))

    def find(self, problem: Problem, start: Start, tolerance: Any, max_calls: int) -> Found:
        likelihood = problem.model.likelihood
        end = settle(self, problem, start, tolerance, max_calls)
        cavities = cavity(self.power, end.w, end.h, end.view.mean, end.view.variance)[:2]
        found = Found(
            end.w, end.h, end.view.mean, end.view.variance, jnp.zeros(()), cavities, end.calls, end.view.residual, end.status
        )
        constants = self._constants(likelihood, problem.data, found)
        return found._replace(log_evidence=end.view.log_normaliser + constants)

    def surrogate(self, problem: Problem, found: Found) -> Float[Array, ""]:
        found = hold(found)
        return problem.log_normaliser(found.w, found.h) + self._constants(problem.model.likelihood, problem.data, found)

    def _constants(self, likelihood: Likelihood, data: Observed, found: Found) -> Float[Array, ""]:
        """Σ log of what the sites lack to have the tilted masses."""
        a, (m_c, v_c) = self.power, found.held
        mass = likelihood.log_tilted(data.y, m_c, v_c, data.times(a), data.extra)
        return data.sum((mass - log_mass(m_c, v_c, a * found.w, a * found.h)) / a)


def _matched_blocks(a: float, m_c: Array, V_c: Array, g: Array, k: Array, mean: Array, V: Array) -> Proposal:
    """Full sites with the moments that the derivatives of the tilted integrals tell."""
    sd = jnp.sqrt(own(V))
    E = jnp.eye(V.shape[-1]) - k @ V_c
    Pi = _symmetric(jnp.linalg.solve(E, k)) / a
    h = (jnp.linalg.solve(E, g[..., None])[..., 0]) / a + times(Pi, m_c)
    tilted = V_c @ E
    off_mean = jnp.abs(m_c + times(V_c, g) - mean) / sd
    off_spread = jnp.abs(tilted - V) / (sd[:, :, None] * sd[:, None, :])
    off = jnp.maximum(jnp.max(off_mean, axis=1), jnp.max(off_spread, axis=(1, 2)))
    return Proposal(Pi, h, off, _positive(V_c) & _positive(tilted))


def _symmetric(V: Float[Array, "N C C"]) -> Float[Array, "N C C"]:
    return 0.5 * (V + jnp.swapaxes(V, 1, 2))


def _positive(V: Float[Array, "N C C"]) -> Bool[Array, " N"]:
    return jnp.isfinite(jnp.linalg.cholesky(V)[:, -1, -1])


def cavity(power: float, w: Any, h: Any, mean: Any, variance: Any) -> tuple[Any, Any, Any]:
    """Mean and variance of f without a part of its site, and d, which must be positive."""
    if jnp.ndim(variance) == 3:
        d = jnp.eye(variance.shape[-1]) - power * variance @ full(w)
        V_c = _symmetric(jnp.linalg.solve(d, variance))
        return mean + power * times(V_c, times(w, mean) - h), V_c, d
    d = 1 - power * w * variance
    return (mean - power * variance * h) / d, variance / d, d


def log_mass(mean: Array, variance: Array, w: Array, h: Array) -> Float[Array, " N"]:
    """log E exp(h f − ½ w f²) for f ~ N(mean, variance)."""
    if variance.ndim == 3:
        D = jnp.eye(variance.shape[-1]) + variance @ w
        b = h - times(w, mean)
        open_ = jnp.linalg.solve(D, times(variance, b)[..., None])[..., 0]
        return dot(h, mean) - 0.5 * (dot(mean, times(w, mean)) + jnp.linalg.slogdet(D)[1] - dot(b, open_))
    D = 1 + w * variance
    each = -0.5 * jnp.log(D) + 0.5 * (2 * mean * h + variance * h**2 - mean**2 * w) / D
    return each if each.ndim == 1 else jnp.sum(each, axis=1)
