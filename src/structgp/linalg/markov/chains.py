"""Linear Gaussian chains: the state-space models behind processes on a line.

A chain is dz = F z dt + noise, f = H z, given by its closed forms at any gap δ ≥ 0 between neighbours,

    z(t + δ) = A(δ) z(t) + ε,   ε ~ N(0, Q(δ)),        z(first point) ~ N(0, start).

It is stationary when start = A start Aᵀ + Q for every gap. Chains add (states side by side) and multiply (Kronecker
products; both factors stationary). H holds only constants, so it is known when a program is traced; amplitudes live in
`start` and `noise`. Gaps may have any shape; its axes follow those of the matrices, A: (D, D, *gaps), so that long runs
of gaps stay contiguous.
"""

import math

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from structgp.linalg.markov import matern_sde
from structgp.linalg.markov.chain_algebra import HandOver, Product, Scaled, Sum, TotalBasis, observed_first, read_weights
from structgp.linalg.markov.chain_base import Chain, number, spread

__all__ = [
    "Chain",
    "Constant",
    "HandOver",
    "Harmonics",
    "Matern",
    "Product",
    "Rotation",
    "Scaled",
    "Sum",
    "Taylor",
    "TotalBasis",
    "White",
    "observed_first",
    "periodic_weights",
    "read_weights",
]


class Matern(Chain):
    """Matérn with `states` states (order states − ½), rate λ = √(2ν)/ℓ; the scaled state z_j = f^(j)/λ^j."""

    states: int = eqx.field(static=True)
    rate: Float[Array, ""] = number()
    variance: Float[Array, ""] = number(default=1.0)

    stationary = True

    @property
    def row(self):
        return np.eye(self.states)[0]

    def start(self):
        return self.variance * matern_sde.stationary(self.states)

    def generator(self):
        return self.rate * matern_sde.generator(self.states)

    @property
    def pace(self):
        return matern_sde.generator(self.states)

    def clock(self, gap):
        return self.rate * gap

    def transition(self, gap):
        return matern_sde.transition(self.clock(gap), self.states)

    def noise(self, gap):
        return self.variance * matern_sde.noise(self.rate * gap, self.states)


class Rotation(Chain):
    """Decay and rotation: covariance variance · e^{−rate δ} cos(frequency δ); rate 0 is the undamped cosine."""

    frequency: Float[Array, ""] = number()
    rate: Float[Array, ""] = number(default=0.0)
    variance: Float[Array, ""] = number(default=1.0)

    stationary = True

    @property
    def row(self):
        return np.array([1.0, 0.0])

    def start(self):
        return self.variance * np.eye(2)

    def generator(self):
        return -self.rate * np.eye(2) + self.frequency * np.array([[0.0, 1.0], [-1.0, 0.0]])

    def transition(self, gap):
        angle = self.frequency * gap
        c, s = jnp.exp(-self.rate * gap) * jnp.cos(angle), jnp.exp(-self.rate * gap) * jnp.sin(angle)
        return jnp.stack([jnp.stack([c, s]), jnp.stack([-s, c])])

    def noise(self, gap):
        return -self.variance * jnp.expm1(-2 * self.rate * gap) * spread(np.eye(2), gap)


class Harmonics(Chain):
    """A sum of undamped cosines, Σ_j weights_j cos(j · frequency · δ), j = 0, …, J; state (c₀, c₁, s₁, …, c_J, s_J)."""

    weights: Float[Array, " J1"] = number()
    frequency: Float[Array, ""] = number()

    stationary = True

    @property
    def row(self):
        return np.concatenate([[1.0], np.tile([1.0, 0.0], len(self.weights) - 1)])

    def start(self):
        return jnp.diag(jnp.concatenate([self.weights[:1], jnp.repeat(self.weights[1:], 2)]))

    @property
    def _turns(self):
        """Constant masks (cosine part, sine part) and the harmonic number of each row."""
        J = len(self.weights) - 1
        sine = np.zeros((2 * J + 1, 2 * J + 1))
        for j in range(J):
            sine[1 + 2 * j, 2 + 2 * j], sine[2 + 2 * j, 1 + 2 * j] = 1.0, -1.0
        return np.eye(2 * J + 1), sine, (np.arange(2 * J + 1) + 1) // 2

    def generator(self):
        _, sine, j = self._turns
        return self.frequency * j[:, None] * sine

    def transition(self, gap):
        cosine, sine, j = self._turns
        angle = self.frequency * gap * spread(j[:, None], gap)
        return jnp.cos(angle) * spread(cosine, gap) + jnp.sin(angle) * spread(sine, gap)

    def noise(self, gap):
        return jnp.zeros((self.size, self.size, *jnp.shape(gap)), self.weights.dtype)

    def seen_transition(self, gap):
        angle = self.frequency * gap * spread(np.arange(len(self.weights)), gap)
        pairs = jnp.stack([jnp.cos(angle), jnp.sin(angle)], 1).reshape(-1, *jnp.shape(gap))
        return jnp.concatenate([pairs[:1], pairs[2:]])


class Taylor(Chain):
    """The (states−1)-fold integrated Wiener process of spectral density `density`; state (f, f′, …, f^(states−1)).

    Density 0 is a polynomial of degree states − 1. `initial` is the covariance of the state at the first point: zero
    for a process that starts there from nothing.
    """

    states: int = eqx.field(static=True)
    density: Float[Array, ""] = number()
    initial: Float[Array, "D D"] = number()

    stationary = False

    @property
    def row(self):
        return np.eye(self.states)[0]

    def start(self):
        return self.initial

    def generator(self):
        return jnp.asarray(np.eye(self.states, k=1))

    def transition(self, gap):
        terms = [np.eye(self.states, k=k) / math.factorial(k) for k in range(self.states)]
        return sum(spread(term, gap) * gap**k for k, term in enumerate(terms))

    def noise(self, gap):
        m, Q = self.states, 0.0
        for p in range(1, 2 * m):  # the entries whose power of the gap is p
            scale = [
                [
                    1.0 / (p * math.factorial(m - 1 - j) * math.factorial(m - 1 - k)) if 2 * m - 1 - j - k == p else 0.0
                    for k in range(m)
                ]
                for j in range(m)
            ]
            Q = Q + spread(np.array(scale), gap) * gap**p
        return self.density * Q


class Constant(Chain):
    """One value everywhere."""

    variance: Float[Array, ""] = number(default=1.0)

    stationary = True

    @property
    def row(self):
        return np.ones(1)

    def start(self):
        return self.variance * np.ones((1, 1))

    def generator(self):
        return jnp.zeros((1, 1))

    def transition(self, gap):
        return jnp.ones((1, 1, *jnp.shape(gap)), self.variance.dtype)

    def noise(self, gap):
        return jnp.zeros((1, 1, *jnp.shape(gap)), self.variance.dtype)


class White(Chain):
    """Independent values at different places; the same value where places coincide (gap 0)."""

    variance: Float[Array, ""] = number(default=1.0)

    stationary = True

    @property
    def row(self):
        return np.ones(1)

    def start(self):
        return self.variance * np.ones((1, 1))

    def generator(self):
        return jnp.full((1, 1), -jnp.inf)

    def transition(self, gap):
        return jnp.where(gap > 0, 0.0, 1.0).astype(self.variance.dtype)[None, None]

    def noise(self, gap):
        return self.variance * jnp.where(gap > 0, 1.0, 0.0)[None, None]


def periodic_weights(z: Float[Array, ""], harmonics: int) -> Float[Array, " J1"]:
    """q_j with e^{z(cos θ − 1)} = Σ_j q_j cos jθ: e^{−z} I₀(z), 2 e^{−z} I_j(z).

    Downward recurrence of the ratios I_j/I_{j−1}, normalised by I₀ + 2 Σ I_j = e^z: stable for every z > 0 and differentiable.
    """
    ratio, ratios = jnp.zeros(()), []
    for j in range(harmonics + 60, 0, -1):
        ratio = z / (2 * j + z * ratio)
        ratios.append(ratio)
    I = jnp.concatenate([jnp.ones(1), jnp.cumprod(jnp.stack(ratios[::-1]))])
    twice = jnp.where(np.arange(len(I)) > 0, 2.0, 1.0) * I
    return twice[: harmonics + 1] / jnp.sum(twice)
