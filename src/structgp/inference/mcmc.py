"""Draws of f at the observed places by Markov chain Monte Carlo: slow, and right for any likelihood. The referee.

Elliptical slice sampling (Murray, Adams and MacKay, 2010) turns f towards a fresh draw from the prior and has nothing to tune:
f cos θ + ν sin θ, with θ drawn from a bracket that shrinks towards f until the likelihood exceeds a random level. Its prior
draws are the engine's. HMC, in its no-U-turn form from BlackJAX, moves z in f = m + L z, L a root of the covariance.

Where a `Switch` chooses among Gaussian noises around one signal f, f is integrated out given which side each observation is on:
with Λ = (K + S)⁻¹, S the variances of the noise, a = Λ(y − m) and δ the change of S_nn, another side changes log p(y) by
½δ a_n²/(1 + δΛ_nn) − ½log(1 + δΛ_nn), and Λ by one rank. Sides are changed by Gibbs sampling that prefers to move (another side
ℓ' is proposed by π_ℓ'/(1 − π_ℓ), and taken with probability (1 − π_ℓ)/(1 − π_ℓ'); Liu, 1996), gates by elliptical slices given
the sides: a group of outliers changes sides together, where slices of all latents at once hardly move. Likewise noise of
variance e^g leaves log p(y | g) = log N(y; m, K + diag e^g), by which g is moved (Goldberg, Williams and Bishop, 1998).
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
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
from ..likelihoods.heteroscedastic import HeteroscedasticGaussian
from ..likelihoods.switch import Switch
from ..linalg.dense.factors import root
from ..posterior import Model, Result
from ..structure.dense import covariance
from .base import Observed

METHODS = ("elliptical", "hmc", "gibbs")
SLICES = 5  # of the gates for each sweep over the sides
NOTHING = 1e12  # times the variance of the signal: noise of what was not seen
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
    changing = isinstance(model.likelihood, HeteroscedasticGaussian)
    run = {"elliptical": _elliptical, "hmc": _hamiltonian, "gibbs": _goldberg if changing else _gibbs}[method]
    if method == "hmc":
        _blackjax()
    if method == "gibbs":
        _check_sides(model.likelihood, data)
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


def _slice(
    draw: Callable[[Array], Array], height: Callable[[Array], Array], state: tuple[Array, Array], key: Array
) -> tuple[tuple[Array, Array], Array]:
    """One turn towards a draw from the prior, from a place and its height; and how many angles were tried."""
    (g, at), (for_draw, for_level, for_angle, for_shrink) = state, jax.random.split(key, 4)
    nu, level = draw(for_draw), at + jnp.log(jax.random.uniform(for_level))
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


@functools.partial(jax.jit, static_argnames=("engine", "n", "warmup", "thin"))
def _elliptical(
    model: Model, inputs: Inputs, data: Data, engine: Engine, key: Array, n: int, warmup: int, thin: int
) -> tuple[Array, Array]:
    prior = _Prior.of(model, inputs, _lines_of(engine))
    height = lambda g: _log_likelihood(model, data, prior.mean + g)

    step = lambda state, key: _slice(prior.draw, height, state, key)

    def several(state: tuple[Array, Array], key: Array) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
        state, tries = jax.lax.scan(step, state, jax.random.split(key, thin))
        return state, (state[0], jnp.sum(tries))

    for_warmup, for_draws = jax.random.split(key)
    zero = jnp.zeros_like(prior.mean)
    state, _ = jax.lax.scan(step, (zero, height(zero)), jax.random.split(for_warmup, warmup))
    _, (draws, tries) = jax.lax.scan(several, state, jax.random.split(for_draws, n))
    return _squeezed(model, prior.mean + draws), n * thin / jnp.sum(tries)


def _check_sides(likelihood: Any, data: Data) -> None:
    """Refuse what is not a choice among Gaussian noises around one signal."""
    leaves = likelihood.leaves if isinstance(likelihood, Switch) else ()
    one = len({leaf.latent for leaf in leaves}) == 1 and all(leaf.likelihood.is_gaussian for leaf in leaves)
    if not one and not isinstance(likelihood, HeteroscedasticGaussian):
        raise ValueError(
            "method='gibbs' needs HeteroscedasticGaussian, or a Switch between Gaussian noises around one signal, such as "
            f"Twinned(), got {likelihood!r}: use method='elliptical'"
        )
    if data.weight is not None:
        raise ValueError("method='gibbs' takes every observation once: leave out weights, or use method='elliptical'")


@functools.partial(jax.jit, static_argnames=("engine", "n", "warmup", "thin"))
def _gibbs(
    model: Model, inputs: Inputs, data: Data, engine: Engine, key: Array, n: int, warmup: int, thin: int
) -> tuple[Array, Array]:
    prior, seen = _Prior.of(model, inputs, ()), Observed.of(data)
    likelihood: Any = model.likelihood
    gates, noises = likelihood.gates, jnp.stack([leaf.likelihood.noise for leaf in likelihood.leaves])
    assert prior.roots is not None
    L = prior.roots[gates]
    K, r, N = L @ L.T, jnp.where(seen.seen, seen.y - prior.mean[:, gates], 0.0), len(L)
    unseen = NOTHING * jnp.max(jnp.diagonal(K))
    noise_of = lambda sides: jnp.where(seen.seen, noises[sides], unseen)
    logs_of = lambda u: likelihood.log_shares(prior.mean[:, :gates] + u)

    def visit(state: Any, given: tuple[Array, Array]) -> tuple[Any, Array]:
        """One observation, which may change its side."""
        (sides, Lam, a, logs), (i, key) = state, given
        delta = noises - noises[sides[i]]
        D = 1 + delta * Lam[i, i]
        p = jax.nn.softmax(logs[i] + 0.5 * (delta * a[i] ** 2 / D - jnp.log(D)))
        for_side, for_move = jax.random.split(key)
        side = jax.random.categorical(for_side, jnp.where(jnp.arange(len(p)) == sides[i], -jnp.inf, jnp.log(p)))
        moves = jax.random.uniform(for_move) * (1 - p[side]) < 1 - p[sides[i]]
        moves = moves & seen.seen[i]

        def moved() -> Any:
            gain = delta[side] / D[side]
            return sides.at[i].set(side), Lam - gain * jnp.outer(Lam[i], Lam[i]), a - gain * a[i] * Lam[i]

        return (*jax.lax.cond(moves, moved, lambda: (sides, Lam, a)), logs), moves

    def sweep(state: tuple[Array, Array], key: Array) -> tuple[tuple[Array, Array], Any]:
        (sides, u), (for_sides, for_gates, for_signal) = state, jax.random.split(key, 3)
        Lam = jnp.linalg.inv(K + jnp.diag(noise_of(sides)))
        (sides, _, _, _), moves = jax.lax.scan(
            visit, (sides, Lam, Lam @ r, logs_of(u)), (jnp.arange(N), jax.random.split(for_sides, N))
        )
        height = lambda u: seen.sum(jnp.take_along_axis(logs_of(u), sides[:, None], axis=1)[:, 0])
        draw = lambda key: prior.draw(key)[:, :gates]
        turn = lambda at, key: (_slice(draw, height, at, key)[0], None)
        (u, _), _ = jax.lax.scan(turn, (u, height(u)), jax.random.split(for_gates, SLICES))
        f = _signal(L, r, noise_of(sides), for_signal)
        return (sides, u), (jnp.concatenate([u, f[:, None]], axis=1), jnp.mean(moves))

    def several(state: tuple[Array, Array], key: Array) -> tuple[tuple[Array, Array], Any]:
        state, (draws, moves) = jax.lax.scan(sweep, state, jax.random.split(key, thin))
        return state, (draws[-1], jnp.mean(moves))

    for_warmup, for_draws = jax.random.split(key)
    begin = jnp.zeros(N, int), jnp.zeros((N, gates))
    state, _ = jax.lax.scan(sweep, begin, jax.random.split(for_warmup, warmup))
    _, (draws, moves) = jax.lax.scan(several, state, jax.random.split(for_draws, n))
    return prior.mean + draws, jnp.mean(moves)


@functools.partial(jax.jit, static_argnames=("engine", "n", "warmup", "thin"))
def _goldberg(
    model: Model, inputs: Inputs, data: Data, engine: Engine, key: Array, n: int, warmup: int, thin: int
) -> tuple[Array, Array]:
    prior, seen = _Prior.of(model, inputs, ()), Observed.of(data)
    assert prior.roots is not None
    L = prior.roots[1]
    K, r = L @ L.T, jnp.where(seen.seen, seen.y - prior.mean[:, 1], 0.0)
    unseen = NOTHING * jnp.max(jnp.diagonal(K))
    noise_of = lambda g: jnp.where(seen.seen, jnp.exp(prior.mean[:, 0] + g[:, 0]), unseen)

    def height(g: Array) -> Array:
        R = jnp.linalg.cholesky(K + jnp.diag(noise_of(g)))
        white = jax.scipy.linalg.solve_triangular(R, r, lower=True)
        return -0.5 * jnp.sum(white**2) - jnp.sum(jnp.log(jnp.diagonal(R)))

    step = lambda state, key: _slice(lambda key: prior.draw(key)[:, :1], height, state, key)

    def several(state: tuple[Array, Array], key: Array) -> tuple[tuple[Array, Array], Any]:
        for_noise, for_signal = jax.random.split(key)
        state, tries = jax.lax.scan(step, state, jax.random.split(for_noise, thin))
        f = _signal(L, r, noise_of(state[0]), for_signal)
        return state, (jnp.concatenate([state[0], f[:, None]], axis=1), jnp.sum(tries))

    for_warmup, for_draws = jax.random.split(key)
    zero = jnp.zeros((len(L), 1))
    state, _ = jax.lax.scan(step, (zero, height(zero)), jax.random.split(for_warmup, warmup))
    _, (draws, tries) = jax.lax.scan(several, state, jax.random.split(for_draws, n))
    return prior.mean + draws, n * thin / jnp.sum(tries)


def _signal(L: Float[Array, "N N"], r: Float[Array, " N"], noise: Float[Array, " N"], key: Array) -> Float[Array, " N"]:
    """A draw of a process of covariance L Lᵀ, given r = f + noise of these variances."""
    for_prior, for_noise = jax.random.split(key)
    f = L @ jax.random.normal(for_prior, r.shape)
    missed = r - f - jnp.sqrt(noise) * jax.random.normal(for_noise, r.shape)
    return f + L @ (L.T @ jnp.linalg.solve(L @ L.T + jnp.diag(noise), missed))


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
