"""A neural network with a distribution over its weights: one layer of tanh units, sampled by Hamiltonian chains side by side.

    f(x) = c + Σᵢ uᵢ tanh(wᵢᵀx + bᵢ),   w, b ~ N(0, 3²),   u, c ~ N(0, 1),   y = f + noise of a known standard deviation.

Lengths of steps are adapted in each chain while it burns in. (R. M. Neal, "Bayesian learning for neural networks", 1996.)
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

from .._types import double_precision
from ..inputs.rows import filled, size_for
from ..posterior import Result

LEAPS = 20
WANTED = 0.8  # of proposals that are taken


class Network(eqx.Module):
    """A network with its weights, in units of their prior."""

    w: Float[Array, "*S D H"]
    b: Float[Array, "*S H"]
    u: Float[Array, "*S H"]
    c: Float[Array, " *S"]
    noise: Float[Array, " *S"]  # standard deviation

    def __call__(self, X: Float[Array, "M D"]) -> Float[Array, " M"]:
        return self.c + jnp.tanh(X @ (3.0 * self.w) + 3.0 * self.b) @ self.u

    def marginals(self, X: Float[Array, "M D"]) -> tuple[Float[Array, "M 1"], Float[Array, " M"]]:
        """Mean and variance of a measurement."""
        return self(X)[:, None], jnp.full(len(X), self.noise**2)


@dataclasses.dataclass(frozen=True)
class FittedNetwork(Result):
    """Samples of a network given data, equally weighted."""

    members: tuple[Network, ...]
    accepted: float
    scatter: float  # R̂ of the log density over the chains: near one where they agree

    @double_precision
    def predict(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance of f at new places."""
        X = np.asarray(X, dtype=float).reshape(len(X), -1)
        values = np.stack([np.asarray(member(X)) for member in self.members])
        return values.mean(axis=0), values.var(axis=0)


@dataclasses.dataclass(frozen=True)
class BayesianNetwork:
    """One layer of `hidden` tanh units; a model for `Optimiser(space, model=BayesianNetwork(16))`, or by itself.

    `noise` is the standard deviation of measurements. Every one of the `chains` gives `samples`, `apart` trajectories from each
    other, after so many to `burn`.
    """

    hidden: int = 16
    noise: float = 0.01
    chains: int = 5
    samples: int = 10
    burn: int = 200
    apart: int = 15
    seed: int = 0

    @double_precision
    def fit(self, X: Any, y: Any) -> FittedNetwork:
        """Samples given data."""
        X, y = np.asarray(X, dtype=float).reshape(len(X), -1), np.asarray(y, dtype=float)
        size = size_for(len(y))
        seen = (np.arange(size) < len(y)).astype(float)
        keys = jax.random.split(jax.random.key(self.seed), self.chains)
        arguments = filled(X, size), filled(y, size), seen, np.asarray(self.noise)
        steps = self.burn, self.samples, self.apart
        found, accepted, heights = _chains(keys, *arguments, self.hidden, steps)
        flat = jax.tree.map(lambda part: np.asarray(part).reshape(-1, *part.shape[2:]), found)
        count = self.chains * self.samples
        members = tuple(jax.tree.map(lambda part, i=i: part[i], flat) for i in range(count))
        return FittedNetwork(members, float(np.mean(accepted)), _scatter(np.asarray(heights)))


def _scatter(heights: Float[np.ndarray, "C S"]) -> float:
    """Gelman and Rubin's R̂."""
    within = np.mean(np.var(heights, axis=1, ddof=1))
    between = np.var(np.mean(heights, axis=1), ddof=1)
    return float(np.sqrt(1 - 1 / heights.shape[1] + between / max(within, 1e-300)))


@functools.partial(jax.jit, static_argnames=("hidden", "steps"))
def _chains(keys: Array, X: Array, y: Array, seen: Array, noise: Array, hidden: int, steps: tuple[int, int, int]) -> Any:
    burn, samples, apart = steps

    def height(f: Network) -> Array:
        prior = sum(jnp.sum(part**2) for part in (f.w, f.b, f.u, f.c))
        return -0.5 * jnp.sum(seen * ((y - f(X)) / noise) ** 2) - 0.5 * prior

    net: Any = Network
    of = lambda parts: height(net(*parts, noise))
    slope = jax.grad(of)

    def trajectory(state: Any, key: Array) -> Any:
        parts, step = state
        draw, toss, jiggle = jax.random.split(key, 3)
        leaves, tree = jax.tree.flatten(parts)
        p = jax.tree.unflatten(
            tree,
            [jax.random.normal(k, leaf.shape) for k, leaf in zip(jax.random.split(draw, len(leaves)), leaves, strict=True)],
        )
        h = step * jnp.exp(0.2 * jax.random.normal(jiggle))
        kick = lambda p, parts, share: jax.tree.map(lambda a, g: a + share * h * g, p, slope(parts))

        def leap(_: Any, at: Any) -> Any:
            parts, p = at
            parts = jax.tree.map(lambda a, b: a + h * b, parts, p)
            return parts, kick(p, parts, 1.0)

        new, q = jax.lax.fori_loop(0, LEAPS, leap, (parts, kick(p, parts, 0.5)))
        q = kick(q, new, -0.5)
        energy = lambda parts, p: -of(parts) + 0.5 * sum(jnp.sum(a * a) for a in jax.tree.leaves(p))
        chance = jnp.minimum(jnp.exp(jnp.nan_to_num(energy(parts, p) - energy(new, q), nan=-jnp.inf)), 1.0)
        taken = jax.random.uniform(toss) < chance
        return jax.tree.map(lambda a, b: jnp.where(taken, a, b), new, parts), chance

    def burning(state: Any, key: Array) -> Any:
        parts, chance = trajectory(state, key)
        return (parts, state[1] * jnp.exp(0.1 * (chance - WANTED))), None

    def one(key: Array) -> Any:
        begin, heat, go = jax.random.split(key, 3)
        shapes = ((X.shape[1], hidden), (hidden,), (hidden,), ())
        parts = tuple(jax.random.normal(k, s) for k, s in zip(jax.random.split(begin, 4), shapes, strict=True))
        state, _ = jax.lax.scan(burning, (parts, jnp.asarray(0.0015)), jax.random.split(heat, burn))

        def sample(parts: Any, key: Array) -> Any:
            def inner(at: Any, key: Array) -> Any:
                new, chance = trajectory((at, state[1]), key)
                return new, chance

            parts, chances = jax.lax.scan(inner, parts, jax.random.split(key, apart))
            return parts, (parts, jnp.mean(chances), of(parts))

        _, (found, chances, heights) = jax.lax.scan(sample, state[0], jax.random.split(go, samples))
        return net(*found, jnp.full(samples, noise)), jnp.mean(chances), heights

    return jax.lax.map(one, keys)
