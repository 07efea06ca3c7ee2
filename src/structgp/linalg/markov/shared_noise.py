"""Chains of several outputs: states side by side that one noise drives, and rows that read the output which is seen.

**Filters of Matérn type.** Output i is white noise through h_i(t) = √(q λ_i) (λ_i t)^{m−1} e^{−λ_i t}/(m−1)!, so that alone it
is a Matérn process of variance 1 with m states and rate λ_i (`matern_sde`). In the scaled states, n_k the last column of
(F + I)^k/k!, the noise that all share makes

    Q_ij(δ) = q √(λ_i λ_j) Σ_kl n_k n_lᵀ λ_i^k λ_j^l ∫₀^δ s^{k+l} e^{−(λ_i+λ_j)s} ds,      V_ij the same up to infinity.

**Modes.** z_k has the impulse response e^{p_k t}, p_k = −α_k + iω_k, kept as its real and imaginary part. With one noise for
all, E z_k z̄_l = −1/(p_k + p̄_l) and E z_k z_l = −1/(p_k + p_l), and over a gap δ these times −expm1(( · )δ).
"""

import functools
import math

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from structgp.linalg.markov import matern_sde
from structgp.linalg.markov.chain_algebra import Sum
from structgp.linalg.markov.chain_base import Chain, block_diagonal, number, spread

_FAR = 8.0  # Λδ from which on the recurrence upwards is the better one
_TERMS = 48  # of the incomplete-gamma series up to there


def seen_output(which: Array, count: int) -> Float[Array, " P *places"]:
    """1 for the output that is seen at each place, 0 for the others."""
    return jnp.where(jnp.arange(count).reshape((count,) + (1,) * jnp.ndim(which)) == which[None], 1.0, 0.0)


class Levels(Chain):
    """One constant for each output, with any covariance between them."""

    matrix: Float[Array, "P P"] = number()

    stationary = True
    varies = True
    fixed_rows = True
    blocks = 1

    @property
    def row(self):
        return np.ones(len(self.matrix))

    def rows(self, t, which=None):
        return seen_output(which, self.size)

    def start(self):
        return self.matrix

    def generator(self):
        return jnp.zeros((self.size, self.size))

    def transition(self, gap):
        return spread(np.eye(self.size), gap) * jnp.ones_like(gap)

    def noise(self, gap):
        return jnp.zeros((self.size, self.size, *jnp.shape(gap)))


class Apart(Sum):
    """One chain for each output, which share nothing."""

    varies = True

    def rows(self, t, which=None):
        seen = seen_output(which, len(self.parts))
        return jnp.concatenate([part.rows(t, which) * seen[i] for i, part in enumerate(self.parts)])


class MaternFilters(Chain):
    """One white noise through a filter of Matérn type for each output, with rates and loadings of their own."""

    states: int = eqx.field(static=True)
    rates: Float[Array, " P"] = number()
    loadings: Float[Array, " P"] = number()

    stationary = True
    varies = True
    fixed_rows = True  # loadings are in the states

    @property
    def blocks(self):
        return self.states

    @property
    def row(self):
        return np.tile(np.eye(self.states)[0], len(self.rates))

    def rows(self, t, which=None):
        seen = seen_output(which, len(self.rates))
        return (seen[:, None] * spread(np.eye(self.states)[0], t)[None]).reshape(-1, *jnp.shape(t))

    def start(self):
        integrals = jnp.stack([math.factorial(p) / self._sum ** (p + 1) for p in range(2 * self.states - 1)])
        return self._weighed(integrals)

    def generator(self):
        return block_diagonal([rate * matern_sde.generator(self.states) for rate in self.rates])

    def transition(self, gap):
        blocks = matern_sde.transition(spread(self.rates, gap) * gap, self.states)
        return block_diagonal([blocks[:, :, i] for i in range(len(self.rates))], gap)

    def noise(self, gap):
        return self._weighed(_integrals(spread(self._sum, gap), gap, 2 * self.states - 2))

    @property
    def _sum(self):
        return self.rates[:, None] + self.rates[None, :]

    def _weighed(self, integrals):
        """q v_i v_j √(λ_i λ_j) Σ_kl n_k n_lᵀ λ_i^k λ_j^l I_{k+l}, from I (p, P, P, *gaps), as one matrix."""
        m, P, more = self.states, len(self.rates), integrals.shape[3:]
        n = matern_sde.nilpotent_terms(m)[:, :, -1]
        power = [self.loadings * self.rates ** (k + 0.5) for k in range(m)]
        flat = integrals.reshape(*integrals.shape[:3], -1)
        total = jnp.zeros((P, m, P, m, flat.shape[-1]))
        for k in range(m):
            for l in range(m):
                pair = (power[k][:, None] * power[l][None, :])[:, :, None] * flat[k + l]
                total = total + pair[:, None, :, None] * np.outer(n[k], n[l])[None, :, None, :, None]
        return matern_sde.diffusion(m) * total.reshape(P * m, P * m, *more)


def _integrals(rate, gap, top):
    """∫₀^δ s^p e^{−Λs} ds for p = 0, …, top, every one to its own scale: stacked over p."""
    x = rate * gap
    near, decay = jnp.minimum(x, _FAR), jnp.exp(-jnp.minimum(x, _FAR))
    series = 0.0
    for n in range(_TERMS, -1, -1):
        series = (1.0 + near * series) * (1.0 / (top + 1 + n))
    g = [decay * series]
    for p in range(top, 0, -1):
        g.append((near * g[-1] + decay) * (1.0 / p))
    small = [gap ** (p + 1) * g_p for p, g_p in enumerate(reversed(g))]
    far_gap = jnp.maximum(gap, _FAR / rate)
    decay = jnp.exp(-rate * far_gap)
    large = [(1.0 - decay) / rate]
    for p in range(1, top + 1):
        large.append((p * large[-1] - far_gap**p * decay) / rate)
    return jnp.where(x < _FAR, jnp.stack(small), jnp.stack(large))


def matern_filters_covariance(late, early, gap, m: int):
    """The covariance of two filters of one white noise, of these rates, the first seen `gap` ≥ 0 later than the second."""
    n = matern_sde.nilpotent_terms(m)
    total = late + early
    arrived = []  # V_late,early e₀, entry by entry
    for a in range(m):
        entry = 0.0
        for k in range(m):
            weight = n[k, a, -1] * n[m - 1, 0, -1] * math.factorial(k + m - 1)
            if weight:
                entry = entry + weight * late ** (k + 0.5) * early ** (m - 0.5) / total ** (k + m)
        arrived.append(entry)
    u = jnp.minimum(late * gap, 700.0)
    read = [functools.reduce(lambda s, k: s * u + n[k, 0, a], range(m - 1, -1, -1), 0.0) for a in range(m)]
    return matern_sde.diffusion(m) * jnp.exp(-u) * sum(r * v for r, v in zip(read, arrived, strict=True))


class Modes(Chain):
    """One white noise through modes e^{−rate t}(cos, sin)(frequency t), which every output reads with weights of its own."""

    rates: Float[Array, " K"] = number()
    frequencies: Float[Array, " K"] = number()
    weights: Float[Array, "P K 2"] = number()

    stationary = True
    varies = True
    blocks = 2

    @property
    def row(self):
        return np.ones(2 * len(self.rates))

    def rows(self, t, which=None):
        flat = self.weights.reshape(len(self.weights), -1)
        return jnp.moveaxis(flat[which], -1, 0)

    def start(self):
        return self._real(*self._pairs(True), *self._pairs(False))

    def generator(self):
        blocks = [jnp.array([[-a, -w], [w, -a]]) for a, w in zip(self.rates, self.frequencies, strict=True)]
        return block_diagonal(blocks)

    def transition(self, gap):
        blocks = []
        for rate, frequency in zip(self.rates, self.frequencies, strict=True):
            decay, angle = jnp.exp(-rate * gap), frequency * gap
            c, s = decay * jnp.cos(angle), decay * jnp.sin(angle)
            blocks.append(jnp.stack([jnp.stack([c, -s]), jnp.stack([s, c])]))
        return block_diagonal(blocks, gap)

    def noise(self, gap):
        return self._real(*self._grown(True, gap), *self._grown(False, gap))

    def _sums(self, conjugate):
        """Re and Im of p_k + p̄_l, or of p_k + p_l."""
        sign = -1.0 if conjugate else 1.0
        return -(self.rates[:, None] + self.rates), self.frequencies[:, None] + sign * self.frequencies

    def _pairs(self, conjugate):
        """Re and Im of −1/(p_k + p̄_l), or of −1/(p_k + p_l)."""
        a, b = self._sums(conjugate)
        size = a * a + b * b
        return -a / size, b / size

    def _grown(self, conjugate, gap):
        """The same times −expm1 of the sum times the gap."""
        a, b = (spread(part, gap) * gap for part in self._sums(conjugate))
        re, im = jnp.expm1(a) * jnp.cos(b) - 2 * jnp.sin(b / 2) ** 2, jnp.exp(a) * jnp.sin(b)
        c, d = (spread(part, gap) for part in self._pairs(conjugate))
        return -(re * c - im * d), -(re * d + im * c)

    @staticmethod
    def _real(S_re, S_im, T_re, T_im):
        """Covariances of real and imaginary parts from E z z̄ and E z z."""
        K, more = len(S_re), S_re.shape[2:]
        blocks = [[S_re + T_re, T_im - S_im], [T_im + S_im, S_re - T_re]]
        full = 0.5 * jnp.stack([jnp.stack(row, axis=2) for row in blocks], axis=1)
        return full.reshape(2 * K, 2 * K, *more)
