"""Draws of f at the observed places by Markov chain Monte Carlo: slow, and right for any likelihood. The referee.

Elliptical slice sampling (Murray, Adams and MacKay, 2010) turns f towards a fresh draw from the prior and has nothing to tune:
f cos θ + ν sin θ, with θ drawn from a bracket that shrinks towards f until the likelihood exceeds a random level. Its prior
draws are the engine's. HMC, in its no-U-turn form from BlackJAX, moves z in f = m + L z, L a root of the covariance.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._types import Seed, generator
from ..engines.base import Engine
from ..engines.basis import columns, free_weights
from ..engines.independent import IndependentKalman
from ..engines.kalman import Kalman
from ..inputs.layouts import Inputs
from ..inputs.observations import Data
from ..kernels.independent import kernels_of
from ..linalg.dense.factors import root
from ..posterior import Model, Result
from ..structure.dense import covariance
from .base import Observed

METHODS = ("elliptical", "hmc")
MOST_TRIES = 200  # after which a bracket has shrunk to nothing


@dataclasses.dataclass(frozen=True)
class LatentDraws(Result):
    """Draws (n, N) of f at the observed places, or (n, N, C) of several latents, one after the other from one chain.

    `acceptance` is the part of the proposals that were accepted; `effective_sample_size` (N,) says how many independent draws
    would tell as much of the mean of each value.
    """

    draws: np.ndarray
    acceptance: float
    method: str

    @property
    def mean(self) -> np.ndarray:
        """The average of the draws."""
        return self.draws.mean(axis=0)

    @property
    def variance(self) -> np.ndarray:
        """The variance of the draws."""
        return self.draws.var(axis=0)

    @property
    def sd(self) -> np.ndarray:
        """The standard deviation of the draws."""
        return np.sqrt(self.variance)

    @functools.cached_property
    def effective_sample_size(self) -> np.ndarray:
        """How many independent draws would give means as sure as these."""
        return effective_sample_size(self.draws)

    def __len__(self) -> int:
        return len(self.draws)

    def __repr__(self) -> str:
        least = f"{self.effective_sample_size.min():.0f}"
        shape = " × ".join(map(str, self.draws.shape[1:]))
        return (
            f"LatentDraws({len(self)} of {shape} by {self.method}, {least} effective at least, {self.acceptance:.2f} accepted)"
        )


def sample_latents(
    model: Model,
    inputs: Inputs,
    data: Data,
    engine: Engine,
    *,
    n: int,
    warmup: int,
    thin: int = 1,
    seed: Seed = None,
    method: str = "elliptical",
) -> LatentDraws:
    """n draws of f given data, with the parameters as they are: `warmup` are left out first, then every `thin`-th is kept."""
    if method not in METHODS:
        raise ValueError(f"method must be one of {list(METHODS)}, got {method!r}")
    for name, value, least in (("n", n, 1), ("warmup", warmup, 0), ("thin", thin, 1)):
        if value != int(value) or value < least:
            raise ValueError(f"{name} must be a whole number of at least {least}, got {value}")
    if data.y.shape[1] > 1:
        raise ValueError(f"draws are of one target, got {data.y.shape[1]}: take them one at a time")
    P = jax.eval_shape(lambda x: columns(model, x)[1], jax.ShapeDtypeStruct((1, inputs.dimension), float)).shape[-1]
    if P and free_weights(model, P, inputs.dimension):
        raise ValueError("this prior leaves some functions free, so it has no draws: give the basis weights a covariance")
    key = jax.random.key(int(generator(seed).integers(2**62)))
    run = _elliptical if method == "elliptical" else _hamiltonian
    if method == "hmc":
        _blackjax()
    draws, acceptance = run(model, inputs, data, engine, key, n, warmup, thin)
    return LatentDraws(np.asarray(draws), float(acceptance), method)


class _Prior(eqx.Module):
    """The prior of f at its places: its mean, and draws of what comes on top, by roots of covariances or along the line."""

    mean: Float[Array, "N C"]
    Phi: Float[Array, "N P"]  # basis functions times a root of the covariance of their weights
    roots: Float[Array, "C N N"] | None
    chains: tuple[Any, ...]
    lines: tuple[Kalman, ...] = eqx.field(static=True)

    @classmethod
    def of(cls, model: Model, inputs: Inputs, lines: tuple[Kalman, ...]) -> _Prior:
        """The prior of a model, along the line if there is an algorithm for that, one for each latent."""
        X, kernels = jnp.asarray(inputs.points), kernels_of(model.kernel, model.likelihood.latents)
        mean, Phi = columns(model, X)
        mean, Phi = mean.reshape(len(X), -1), Phi.reshape(len(X), -1)  # several latents have no basis functions
        if Phi.shape[1]:
            L = jnp.linalg.cholesky(model.mean.precision(Phi.shape[1]))
            Phi = jax.scipy.linalg.solve_triangular(L, Phi.T, lower=True).T
        if lines:
            return cls(mean, Phi, None, tuple(line.form(one, inputs) for line, one in zip(lines, kernels, strict=True)), lines)
        return cls(mean, Phi, jnp.stack([root(covariance(kernel, X, X)) for kernel in kernels]), (), ())

    def draw(self, key: Array) -> Float[Array, "N C"]:
        """A draw of f less its mean."""
        C = self.mean.shape[1]
        keys = jax.random.split(key, C + 1)
        basis = self.Phi @ jax.random.normal(keys[-1], (self.Phi.shape[1], C))
        if not self.lines:
            return basis + self.coloured(jax.random.normal(keys[0], self.mean.shape))
        draws = [line.prior_draws(chain, key, 1) for line, chain, key in zip(self.lines, self.chains, keys, strict=False)]
        return basis + jnp.concatenate(draws, axis=1)

    def coloured(self, z: Float[Array, "N C"]) -> Float[Array, "N C"]:
        """L z for each latent."""
        assert self.roots is not None
        return jnp.einsum("cnm,mc->nc", self.roots, z)


def _lines_of(engine: Engine) -> tuple[Kalman, ...]:
    """The algorithms that draw each latent along the line, where the engine works there."""
    parts = engine.parts if isinstance(engine, IndependentKalman) else (engine,)
    return tuple(part for part in parts if isinstance(part, Kalman))


def _log_likelihood(model: Model, data: Data, f: Float[Array, "N C"]) -> Float[Array, ""]:
    seen = Observed.of(data)
    f = f[:, 0] if model.likelihood.latents == 1 else f
    return seen.sum(seen.times(1.0) * model.likelihood.log_prob(seen.y, f, seen.extra))


def _squeezed(model: Model, draws: Float[Array, "n N C"]) -> Array:
    return draws[..., 0] if model.likelihood.latents == 1 else draws


@functools.partial(jax.jit, static_argnames=("engine", "n", "warmup", "thin"))
def _elliptical(
    model: Model, inputs: Inputs, data: Data, engine: Engine, key: Array, n: int, warmup: int, thin: int
) -> tuple[Array, Array]:
    prior = _Prior.of(model, inputs, _lines_of(engine))
    height = lambda g: _log_likelihood(model, data, prior.mean + g)

    def step(state: tuple[Array, Array], key: Array) -> tuple[tuple[Array, Array], Array]:
        (g, at), (for_draw, for_level, for_angle, for_shrink) = state, jax.random.split(key, 4)
        nu, level = prior.draw(for_draw), at + jnp.log(jax.random.uniform(for_level))
        angle = jax.random.uniform(for_angle, maxval=2 * jnp.pi)
        turned = lambda angle: g * jnp.cos(angle) + nu * jnp.sin(angle)

        def shrink(s: Any) -> Any:
            angle, low, high, _, key, tries = s
            low, high = jnp.where(angle < 0, angle, low), jnp.where(angle < 0, high, angle)
            key, now = jax.random.split(key)
            angle = jax.random.uniform(now, minval=low, maxval=high)
            return angle, low, high, height(turned(angle)), key, tries + 1

        begin = (angle, angle - 2 * jnp.pi, angle, height(turned(angle)), for_shrink, jnp.asarray(1))
        angle, _, _, at, _, tries = jax.lax.while_loop(lambda s: ~(s[3] > level) & (s[5] < MOST_TRIES), shrink, begin)
        return (turned(angle), at), tries

    def several(state: tuple[Array, Array], key: Array) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
        state, tries = jax.lax.scan(step, state, jax.random.split(key, thin))
        return state, (state[0], jnp.sum(tries))

    for_warmup, for_draws = jax.random.split(key)
    zero = jnp.zeros_like(prior.mean)
    state, _ = jax.lax.scan(step, (zero, height(zero)), jax.random.split(for_warmup, warmup))
    _, (draws, tries) = jax.lax.scan(several, state, jax.random.split(for_draws, n))
    return _squeezed(model, prior.mean + draws), n * thin / jnp.sum(tries)


@functools.partial(jax.jit, static_argnames=("engine", "n", "warmup", "thin"))
def _hamiltonian(
    model: Model, inputs: Inputs, data: Data, engine: Engine, key: Array, n: int, warmup: int, thin: int
) -> tuple[Array, Array]:
    blackjax, prior = _blackjax(), _Prior.of(model, inputs, ())
    (N, C), P = prior.mean.shape, prior.Phi.shape[1]
    whole = lambda z: prior.mean + prior.coloured(z[:N]) + prior.Phi @ z[N:]
    height = lambda z: _log_likelihood(model, data, whole(z)) - 0.5 * jnp.sum(z * z)
    for_warmup, for_draws = jax.random.split(key)
    adapted, _ = blackjax.window_adaptation(blackjax.nuts, height).run(for_warmup, jnp.zeros((N + P, C)), warmup)
    nuts = blackjax.nuts(height, **adapted.parameters)

    def several(state: Any, key: Array) -> tuple[Any, tuple[Array, Array]]:
        state, info = jax.lax.scan(lambda state, key: nuts.step(key, state), state, jax.random.split(key, thin))
        return state, (whole(state.position), jnp.mean(info.acceptance_rate))

    _, (draws, accepted) = jax.lax.scan(several, adapted.state, jax.random.split(for_draws, n))
    return _squeezed(model, draws), jnp.mean(accepted)


def _blackjax() -> Any:
    try:
        import blackjax
    except ImportError as problem:
        raise ImportError(
            "method='hmc' needs BlackJAX: pip install structgp[mcmc], or use method='elliptical', which needs nothing"
        ) from problem
    return blackjax


def effective_sample_size(draws: Float[np.ndarray, " n *shape"]) -> Float[np.ndarray, "*shape"]:
    """n / (1 + 2 Σ autocorrelations), summed as long as sums of two neighbours stay positive and do not grow (Geyer, 1992)."""
    n = len(draws)
    centred = draws - draws.mean(axis=0)
    spectrum = np.fft.rfft(centred, 2 * n, axis=0)
    covariances = np.fft.irfft(np.abs(spectrum) ** 2, axis=0)[:n]
    pairs = covariances[: n - n % 2].reshape(n // 2, 2, *draws.shape[1:]).sum(axis=1)
    pairs = np.where(np.cumprod(pairs > 0, axis=0), np.minimum.accumulate(pairs, axis=0), 0.0)
    moves = covariances[0] > 0
    time = np.where(moves, 2 * pairs.sum(axis=0) / np.where(moves, covariances[0], 1.0) - 1, 1.0)
    return n / np.maximum(time, 1 / n)
