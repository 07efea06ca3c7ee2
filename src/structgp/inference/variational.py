"""The variational Gaussian: the sites that maximise the lower bound E log p(y|f) − KL, by natural gradients.

With E = E_N(m,v) log p(y|f), a natural-gradient step of length one sets w = −2 ∂E/∂v and h = ∂E/∂m + w m.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..likelihoods.base import Likelihood
from ..linalg.blocks import dot, own, times, trace
from .base import Found, Inference, Observed, Problem, Start, hold
from .search import Proposal, settle


class Variational(Inference):
    """The Gaussian nearest to the posterior from below; `log_evidence` is then a lower bound."""

    name = "variational"

    def propose(self, problem: Problem, w: Array, h: Array, mean: Array, variance: Array) -> Proposal:
        """One step of the natural gradient."""
        expected = lambda m, v: _expected(problem.model.likelihood, problem.data, m, v)
        if mean.ndim == 1:
            to_mean = jax.jvp(lambda m: expected(m, variance), (mean,), (jnp.ones_like(mean),))[1]
            new_w = -2 * jax.jvp(lambda v: expected(mean, v), (variance,), (jnp.ones_like(mean),))[1]
        else:
            to_mean, to_variance = jax.grad(lambda m, v: jnp.sum(expected(m, v)), (0, 1))(mean, variance)
            new_w = -2 * to_variance if w.ndim == 2 else -to_variance - jnp.swapaxes(to_variance, 1, 2)
        new_h = to_mean + times(new_w, mean)
        v, change = own(variance), new_w - w
        off_mean = jnp.sqrt(v) * jnp.abs(new_h - h - times(change, mean))
        outer = v if w.ndim < 3 else jnp.sqrt(v[:, :, None] * v[:, None, :])
        off = outer * jnp.abs(change)
        off = off if w.ndim < 3 else jnp.max(off, axis=2)
        return Proposal(new_w, new_h, jnp.maximum(off_mean, off), jnp.full(v.shape, True))

    def find(self, problem: Problem, start: Start, tolerance: Any, max_calls: int) -> Found:
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
    said = dot(found.h, mean) - 0.5 * (dot(mean, times(found.w, mean)) + trace(found.w, variance))
    return data.sum(_expected(likelihood, data, mean, variance) - said)
