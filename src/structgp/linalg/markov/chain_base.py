"""What every chain answers, and the array helpers its closed forms share (see `chains`)."""

import abc
import functools

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

number = functools.partial(eqx.field, converter=jnp.asarray)


class Chain(eqx.Module):
    """A linear Gaussian chain on a line."""

    @property
    @abc.abstractmethod
    def row(self) -> np.ndarray:
        """H (D,): the observed value is f = H z."""

    @property
    @abc.abstractmethod
    def stationary(self) -> bool:
        """Whether `start` is the stationary covariance."""

    @abc.abstractmethod
    def start(self) -> Float[Array, "D D"]:
        """The covariance of the state at the first point."""

    @abc.abstractmethod
    def generator(self) -> Float[Array, "D D"]:
        """F, with A(δ) = exp(F δ)."""

    @abc.abstractmethod
    def transition(self, gap: Float[Array, "*gaps"]) -> Float[Array, "D D *gaps"]:
        """A(gap)."""

    @abc.abstractmethod
    def noise(self, gap: Float[Array, "*gaps"]) -> Float[Array, "D D *gaps"]:
        """Q(gap), without cancellation."""

    @property
    def size(self) -> int:
        """D, the number of states."""
        return len(self.row)

    @property
    def blocks(self) -> int:
        """The size of the blocks along its diagonal that A consists of: D, where it is not known to have smaller ones."""
        return self.size

    @property
    def pace(self) -> np.ndarray | None:
        """G, constant, if A(gap) = exp(G u) with u = `clock(gap)`."""
        return None

    def clock(self, gap: Float[Array, "*gaps"]) -> Float[Array, "*gaps"]:
        """u, for a chain that has a `pace`."""
        raise NotImplementedError(f"{type(self).__name__} has no clock")

    @property
    def varies(self) -> bool:
        """Whether H depends on the place, so that `rows` says what is observed and `row` only what may be."""
        return False

    @property
    def fixed_rows(self) -> bool:
        """Whether `rows` are constants, but for the output that they choose."""
        return not self.varies

    def rows(self, t: Float[Array, "*places"], which: Int[Array, "*places"] | None = None) -> Float[Array, " D *places"]:
        """H at these places; of several outputs, that of the one which is seen at each."""
        return spread(self.row, t) * jnp.ones_like(t)

    def seen_transition(self, gap: Float[Array, "*gaps"]) -> Float[Array, " D *gaps"]:
        """H A(gap)."""
        return row_times(self.row, self.transition(gap))


def row_times(row, A):
    """row A, for a constant row: skips its zeros."""
    return sum((A[i] if h == 1 else h * A[i]) for i, h in enumerate(row) if h)


def spread(constant, gap):
    """A constant array that broadcasts over the axes of the gaps behind its own."""
    return constant.reshape(constant.shape + (1,) * jnp.ndim(gap))


def horner(terms, u):
    """Σ terms_k u^k, for constant matrices."""
    total = spread(terms[-1], u)
    for term in terms[-2::-1]:
        total = total * u + spread(term, u)
    return total


def kron(A, B):
    """The Kronecker product over the leading two axes."""
    out = A[:, None, :, None] * B[None, :, None, :]
    return out.reshape(len(A) * len(B), len(A) * len(B), *out.shape[4:])


def block_diagonal(blocks, gap=0.0):
    """Blocks (D_i, D_i, *gaps) along the diagonal."""
    D, at, rows = sum(len(b) for b in blocks), 0, []
    for block in blocks:
        n = len(block)
        rows.append(jnp.pad(block, [(0, 0), (at, D - at - n)] + [(0, 0)] * jnp.ndim(gap)))
        at += n
    return jnp.concatenate(rows)
