"""The variational Gaussian: the sites that maximise the lower bound E log p(y|f) − KL, by natural gradients.

With E = E_N(m,v) log p(y|f), a natural-gradient step of length one sets w = −2 ∂E/∂v and h = ∂E/∂m + w m.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..likelihoods.base import Likelihood
from .base import Found, Inference, Observed, Problem, hold
from .search import Proposal, settle


class Variational(Inference):
    """The Gaussian nearest to the posterior from below; `log_evidence` is then a lower bound."""

    @property
    def name(self) -> str:
        return "variational"

    def propose(self, problem: Problem, w: Array, h: Array, mean: Array, variance: Array) -> Proposal:
        """One step of the natural gradient."""
        expected = lambda m, v: _expected(problem.model.likelihood, problem.data, m, v)
        to_mean = jax.jvp(lambda m: expected(m, variance), (mean,), (jnp.ones_like(mean),))[1]
        new_w = -2 * jax.jvp(lambda v: expected(mean, v), (variance,), (jnp.ones_like(mean),))[1]
        new_h = to_mean + new_w * mean
        off_mean = jnp.sqrt(variance) * jnp.abs(new_h - h - mean * (new_w - w))
        return Proposal(new_w, new_h, jnp.maximum(off_mean, variance * jnp.abs(new_w - w)), jnp.full(w.shape, True))

    def find(self, problem: Problem, start: tuple[Array, Array], tolerance: Any, max_calls: int) -> Found:
        likelihood = problem.model.likelihood
        end = settle(self, problem, start, tolerance, max_calls, from_mode=likelihood.log_concave)
        mean, variance = end.view.mean, end.view.variance
        found = Found(end.w, end.h, mean, variance, jnp.zeros(()), (mean, variance), end.calls, end.view.residual, end.status)
        return found._replace(log_evidence=end.view.log_normaliser + _constants(likelihood, problem.data, found))

    def surrogate(self, problem: Problem, found: Found) -> Float[Array, ""]:
        found = hold(found)
        return problem.log_normaliser(found.w, found.h) + _constants(problem.model.likelihood, problem.data, found)


def _expected(likelihood: Likelihood, data: Observed, mean: Array, variance: Array) -> Array:
    return data.times(1.0) * likelihood.expected_log_prob(data.y, mean, variance, data.extra)


def _constants(likelihood: Likelihood, data: Observed, found: Found) -> Float[Array, ""]:
    """Σ E log p(y|f) less what the sites say, on average."""
    mean, variance = found.held
    said = found.h * mean - 0.5 * found.w * (mean**2 + variance)
    return data.sum(_expected(likelihood, data, mean, variance) - said)
