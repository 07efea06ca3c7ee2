"""Chains made of chains: scaled, added, multiplied, and seen in another basis."""

import math

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from structgp.linalg.markov.chain_base import Chain, block_diagonal, kron, number, row_times, spread


class Scaled(Chain):
    """`factor` (a variance) times a chain."""

    chain: Chain
    factor: Float[Array, ""] = number()

    @property
    def row(self):
        return self.chain.row

    @property
    def stationary(self):
        return self.chain.stationary

    def start(self):
        return self.factor * self.chain.start()

    def generator(self):
        return self.chain.generator()

    @property
    def blocks(self):
        return self.chain.blocks

    @property
    def pace(self):
        return self.chain.pace

    def clock(self, gap):
        return self.chain.clock(gap)

    def transition(self, gap):
        return self.chain.transition(gap)

    def noise(self, gap):
        return self.factor * self.chain.noise(gap)

    def seen_transition(self, gap):
        return self.chain.seen_transition(gap)

    @property
    def varies(self):
        return self.chain.varies

    @property
    def fixed_rows(self):
        return self.chain.fixed_rows

    def rows(self, t, which=None):
        return self.chain.rows(t, which)


class Sum(Chain):
    """Independent chains side by side; f is the sum of theirs."""

    parts: tuple[Chain, ...]

    def __init__(self, *parts: Chain):
        self.parts = parts

    @property
    def row(self):
        return np.concatenate([part.row for part in self.parts])

    @property
    def stationary(self):
        return all(part.stationary for part in self.parts)

    @property
    def blocks(self):
        size = math.lcm(*(part.blocks for part in self.parts))
        return self.size if any(part.size % size for part in self.parts) else size

    def start(self):
        return block_diagonal([part.start() for part in self.parts])

    def generator(self):
        return block_diagonal([part.generator() for part in self.parts])

    def transition(self, gap):
        return block_diagonal([part.transition(gap) for part in self.parts], gap)

    def noise(self, gap):
        return block_diagonal([part.noise(gap) for part in self.parts], gap)

    def seen_transition(self, gap):
        return jnp.concatenate([part.seen_transition(gap) for part in self.parts])

    def part_row(self, index: int) -> np.ndarray:
        """The row (D,) that reads one part out of the state."""
        return np.concatenate([part.row * (i == index) for i, part in enumerate(self.parts)])

    @property
    def varies(self):
        return any(part.varies for part in self.parts)

    @property
    def fixed_rows(self):
        return all(part.fixed_rows for part in self.parts)

    def rows(self, t, which=None):
        return jnp.concatenate([part.rows(t, which) for part in self.parts])

    def part_rows(self, index: int, t, which=None):
        """The rows (D, *places) that read one part out of the state, place by place."""
        return jnp.concatenate([part.rows(t, which) * (i == index) for i, part in enumerate(self.parts)])


class Product(Chain):
    """The process whose covariance is the product of two stationary chains'."""

    left: Chain
    right: Chain

    stationary = True

    def __check_init__(self):
        if not (self.left.stationary and self.right.stationary):
            raise ValueError("a product of chains needs both to be stationary: multiply a chain by a number with Scaled")

    @property
    def row(self):
        return np.kron(self.left.row, self.right.row)

    @property
    def blocks(self):
        return self.right.blocks if self.left.blocks == 1 else self.left.blocks * self.right.size

    def start(self):
        return jnp.kron(self.left.start(), self.right.start())

    def generator(self):
        I = lambda chain: np.eye(chain.size)
        return jnp.kron(self.left.generator(), I(self.right)) + jnp.kron(I(self.left), self.right.generator())

    def transition(self, gap):
        return kron(self.left.transition(gap), self.right.transition(gap))

    def noise(self, gap):
        # V⊗V′ − AVAᵀ⊗A′V′A′ᵀ with every term positive semidefinite
        Q, Q2 = self.left.noise(gap), self.right.noise(gap)
        start = lambda chain: spread(chain.start(), gap)
        return kron(Q, start(self.right)) + kron(start(self.left) - Q, Q2)

    def seen_transition(self, gap):
        left, right = self.left.seen_transition(gap), self.right.seen_transition(gap)
        return (left[:, None] * right[None]).reshape(-1, *jnp.shape(gap))

    @property
    def varies(self):
        return self.left.varies or self.right.varies

    @property
    def fixed_rows(self):
        return self.left.fixed_rows and self.right.fixed_rows

    def rows(self, t, which=None):
        return (self.left.rows(t, which)[:, None] * self.right.rows(t, which)[None]).reshape(-1, *jnp.shape(t))


class HandOver(Chain):
    """Two chains side by side of which the first is seen before the location and the second after it.

    f = (1 − s) f_before + s f_after, where s is a step or, with a width, the logistic function of (t − location)/width.
    """

    before: Chain
    after: Chain
    location: Float[Array, ""] = number()
    width: Float[Array, ""] | None = None

    varies = True

    @property
    def row(self):
        return np.concatenate([self.before.row, self.after.row])

    @property
    def stationary(self):
        return self.before.stationary and self.after.stationary

    def rows(self, t, which=None):
        away = t - self.location
        s = jnp.where(away >= 0, 1.0, 0.0) if self.width is None else jax.nn.sigmoid(away / self.width)
        return jnp.concatenate([(1 - s) * self.before.rows(t, which), s * self.after.rows(t, which)])

    def start(self):
        return block_diagonal([self.before.start(), self.after.start()])

    def generator(self):
        return block_diagonal([self.before.generator(), self.after.generator()])

    def transition(self, gap):
        return block_diagonal([self.before.transition(gap), self.after.transition(gap)], gap)

    def noise(self, gap):
        return block_diagonal([self.before.noise(gap), self.after.noise(gap)], gap)


class TotalBasis(Chain):
    """The same process in a basis whose first coordinate is f itself, so that H = (1, 0, …, 0).

    z → T z with T = I but for its first row, which is H (H₁ = 1). Observing one coordinate lets the filter write that
    coordinate's covariances without cancellation, which a sum observed with little noise needs.
    """

    chain: Chain

    def __check_init__(self):
        if self.chain.row[0] != 1:
            raise ValueError("the total basis needs a chain whose first coordinate enters f with weight 1")

    @property
    def _T(self):
        T = np.eye(self.chain.size)
        T[0] = self.chain.row
        return T

    @property
    def _T_inverse(self):
        T = np.eye(self.chain.size)
        T[0, 1:] = -self.chain.row[1:]
        return T

    @property
    def row(self):
        return np.eye(self.chain.size)[0]

    @property
    def stationary(self):
        return self.chain.stationary

    def _into(self, M):
        """T M: only the first row changes."""
        return jnp.concatenate([row_times(self.chain.row, M)[None], M[1:]])

    def _both(self, M):
        """T M Tᵀ."""
        return jnp.swapaxes(self._into(jnp.swapaxes(self._into(M), 0, 1)), 0, 1)

    def start(self):
        return self._both(self.chain.start())

    def generator(self):
        return self._T @ self.chain.generator() @ self._T_inverse

    def transition(self, gap):
        TA = self._into(self.chain.transition(gap))
        return TA - TA[:, :1] * spread((np.arange(self.size) > 0) * self.chain.row, gap)

    def noise(self, gap):
        return self._both(self.chain.noise(gap))

    def weights(self, row):
        """A row for the inner chain's state, as a row for this one's."""
        return row @ self._T_inverse


class ValueFirst(Chain):
    """The state of a chain that varies, behind a place for f itself, which a place's own row fills: see `kalman_emission`."""

    chain: Chain

    @property
    def row(self):
        return np.eye(self.chain.size + 1)[0]

    @property
    def stationary(self):
        return self.chain.stationary

    @staticmethod
    def _behind(M):
        return jnp.pad(M, [(1, 0), (1, 0)] + [(0, 0)] * (M.ndim - 2))

    def start(self):
        return self._behind(self.chain.start())

    def generator(self):
        return self._behind(self.chain.generator())

    def transition(self, gap):
        return self._behind(self.chain.transition(gap))

    def noise(self, gap):
        return self._behind(self.chain.noise(gap))

    def weights(self, row):
        """A row for the inner chain's state, as a row for this one's."""
        return jnp.concatenate([jnp.zeros_like(row[..., :1]), row], -1)


def observed_first(chain: Chain) -> Chain:
    """The chain itself if it observes its first coordinate, else the chain in the total basis, or with f beside the state."""
    if chain.varies:
        return ValueFirst(chain)
    return chain if np.array_equal(chain.row, np.eye(chain.size)[0]) else TotalBasis(chain)


def read_weights(chain: Chain, row):
    """A row (D,), or rows (M, D), for the chain's own state, for the state of `observed_first(chain)`."""
    inner = observed_first(chain)
    return inner.weights(row) if isinstance(inner, (TotalBasis, ValueFirst)) and inner is not chain else row
