"""Additive-MCMC: additive regression with all parameters unknown, by a Gibbs sampler over terms.

One sweep visits each term d with r_d = y − c − Σ_{j≠d} f_j: its lengthscale and variance move by a Metropolis step on the
evidence of r_d with f_d integrated out, then f_d is drawn from its posterior by the Kalman smoother; at last the noise
precision is drawn from its gamma law. Parameters and f_d move together, which is a valid Gibbs kernel and does not stick
where f_d is well known.

Priors: log ℓ_d ~ N(μ_ℓ, v_ℓ), 1/v_d ~ Γ(α, β), 1/σ² ~ Γ(α_n, β_n) with rates β. (After Saatçi 2011, Algorithm 10, whose reset
of all terms to their mode is not kept: it is no Gibbs kernel.)
"""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..._types import Seed, by_the_host, generator
from ...inputs.layouts import as_inputs, check_columns, clocks_of
from ...inputs.observations import read_known
from ...likelihoods.gaussian import Gaussian
from ...linalg.filters import kalman, kalman_smooth
from ...linalg.markov import chains
from ...posterior import Prediction, Result


class Beliefs(NamedTuple):
    """The priors of the parameters."""

    log_lengthscale: float = 0.0
    log_lengthscale_variance: float = 9.0
    shape: float = 0.1
    rate: float = 0.1
    noise_shape: float = 1.0
    noise_rate: float = 0.1


class State(NamedTuple):
    """One draw: the terms at all places (L, P), their parameters, and the noise variance."""

    f: Any
    log_lengthscale: Any
    log_variance: Any
    noise: Any


class Lined(NamedTuple):
    """Places of each line in their order, the way back, and which of them were seen (those not seen are new places)."""

    gaps: Any
    order: Any
    rank: Any
    seen: Any


@dataclasses.dataclass(frozen=True)
class SampledAdditive(Result):
    """Draws of f at new places, (n, M), of the terms there, (n, L, M), and of the parameters."""

    mean: np.ndarray
    terms: np.ndarray
    lengthscale: np.ndarray
    variance: np.ndarray
    noise: np.ndarray
    accepted: float

    def prediction(self) -> Prediction:
        """Mean and variance of f over the draws, with the average noise."""
        return Prediction(self.mean.mean(axis=0), self.mean.var(axis=0), Gaussian(float(self.noise.mean())))


@dataclasses.dataclass(frozen=True)
class AdditiveMCMC:
    """Additive regression by sampling: `draws` are kept after `burn` sweeps were thrown away."""

    nu: float = 3.5
    beliefs: Beliefs = dataclasses.field(default_factory=Beliefs)
    draws: int = 100
    burn: int = 50
    step: float = 0.4  # standard deviation of the Metropolis proposals of log ℓ and log v

    @by_the_host
    def sample(self, X: Any, y: Any, new: Any, seed: Seed = None) -> SampledAdditive:
        """Draws from the posterior of f at `new` places given data."""
        inputs = as_inputs(X, clocks=())
        y = read_known(Gaussian(), y, inputs)
        asked = as_inputs(new, clocks=clocks_of(inputs))
        check_columns(asked, inputs.dimension)
        X, Xs = np.asarray(inputs.points), np.asarray(asked.points)
        center, scale = float(y.mean()), float(y.std()) or 1.0
        lined = lines(X, Xs)
        states = round(self.nu + 0.5)
        span = np.log(0.5 * np.where(np.ptp(X, axis=0) > 0, np.ptp(X, axis=0), 1.0))
        L = X.shape[1]
        start = State(np.zeros((L, len(X) + len(Xs))), span, np.full(L, -math.log(L)), np.array(0.25))
        rng = generator(seed)
        key = jax.random.key(int(rng.integers(2**62)))
        target = np.concatenate([(y - center) / scale, np.zeros(len(Xs))])
        chain, accepted = _run(start, target, lined, key, states, self.beliefs, self.step, self.burn + self.draws)
        kept = jax.tree.map(lambda part: np.asarray(part)[self.burn :], chain)
        terms = scale * kept.f[:, :, len(X) :]
        return SampledAdditive(
            center + terms.sum(axis=1),
            terms,
            np.exp(kept.log_lengthscale),
            scale**2 * np.exp(kept.log_variance),
            scale**2 * kept.noise,
            float(np.mean(accepted)),
        )


def lines(X: np.ndarray, new: np.ndarray) -> Lined:
    """The columns of old and new places together, each in its order."""
    both = np.concatenate([X, new])
    order = np.argsort(both, axis=0, kind="stable")
    gaps = np.diff(np.take_along_axis(both, order, 0), axis=0, prepend=np.take_along_axis(both, order, 0)[:1])
    return Lined(gaps.T, order.T, np.argsort(order, axis=0).T, np.arange(len(both)) < len(X))


def _chain(states: int, log_lengthscale: Any, log_variance: Any) -> chains.Matern:
    return chains.Matern(states, math.sqrt(2 * states - 1) * jnp.exp(-log_lengthscale), jnp.exp(log_variance))


def sweep(state: State, y: Any, lined: Lined, key: Any, states: int, beliefs: Beliefs, step: float) -> tuple[State, Any]:
    """One visit to every term and to the noise; also how many proposals were taken."""
    keys = jax.random.split(key, len(lined.gaps) + 1)
    moved = jnp.zeros(())
    for d in range(len(lined.gaps)):
        state, taken = _visit(state, d, y, lined, keys[d], states, beliefs, step)
        moved = moved + taken
    errors = jnp.where(lined.seen, y - state.f.sum(axis=0), 0.0)
    shape = beliefs.noise_shape + 0.5 * jnp.sum(lined.seen)
    precision = jax.random.gamma(keys[-1], shape) / (beliefs.noise_rate + 0.5 * errors @ errors)
    return state._replace(noise=1 / precision), moved / len(lined.gaps)


def _visit(
    state: State, d: int, y: Any, lined: Lined, key: Any, states: int, beliefs: Beliefs, step: float
) -> tuple[State, Any]:
    """New parameters of one term, by the evidence of what the others leave, and the term drawn with them."""
    order, gaps = lined.order[d], lined.gaps[d]
    left = (y - state.f.sum(axis=0) + state.f[d])[order]
    w = jnp.where(lined.seen, 1 / state.noise, 0.0)[order]

    def density(theta: Any) -> Any:
        log_det, gram = kalman.evidence(_chain(states, theta[0], theta[1]), gaps, w, left[:, None], accurate=True)
        length = -0.5 * (theta[0] - beliefs.log_lengthscale) ** 2 / beliefs.log_lengthscale_variance
        return -0.5 * (log_det + gram[0, 0]) + length - beliefs.shape * theta[1] - beliefs.rate * jnp.exp(-theta[1])

    proposal, choice, draw = jax.random.split(key, 3)
    theta = jnp.stack([state.log_lengthscale[d], state.log_variance[d]])
    proposed = theta + step * jax.random.normal(proposal, (2,))
    taken = jnp.log(jax.random.uniform(choice)) < density(proposed) - density(theta)
    theta = jnp.where(taken, proposed, theta)
    path = kalman_smooth.posterior_samples(_chain(states, theta[0], theta[1]), gaps, w, left[:, None], draw, 1)
    f = state.f.at[d].set(path[:, 0, 0][lined.rank[d]])
    new = State(f, state.log_lengthscale.at[d].set(theta[0]), state.log_variance.at[d].set(theta[1]), state.noise)
    return new, taken


@functools.partial(jax.jit, static_argnames=("states", "beliefs", "step", "count"))
def _run(
    start: State, y: Any, lined: Lined, key: Any, states: int, beliefs: Beliefs, step: float, count: int
) -> tuple[State, Any]:
    def one(state: State, key: Any) -> tuple[State, tuple[State, Any]]:
        state, taken = sweep(state, y, lined, key, states, beliefs, step)
        return state, (state, taken)

    start = jax.tree.map(jnp.asarray, start)
    return jax.lax.scan(one, start, jax.random.split(key, count))[1]
