"""Small matrices at many places, in the forms XLA compiles well on a CPU.

Up to three states a matrix is a NumPy array of its *entries* (dtype object), each a number inside a loop or an array
over places outside: every product unrolls into multiplications of entries. Above that it is an ordinary array (..., a,
b) and a product is a broadcast multiplication and a sum; a `dot` of that size inside a loop is a library call that
costs many times its arithmetic. Each way `+ − * / .mT` and slicing read the same, and everything, vectors and numbers
too, is a matrix.

A loop carries and streams `pack`ed matrices; `unpack` makes them matrices again, inside the loop or out.
"""

import functools
import operator

import jax.numpy as jnp
import numpy as np

_UNROLL = 3
_COLUMNS = 6
_BROADCAST = 12


def _objects(rows) -> np.ndarray:
    out = np.empty((len(rows), len(rows[0])), object)
    for i, row in enumerate(rows):
        for j, entry in enumerate(row):
            out[i, j] = entry
    return out


class Unrolled:
    """Matrices of entries."""

    @staticmethod
    def of(M):
        """From an array (a, b, *places)."""
        return _objects([[M[i, j] for j in range(M.shape[1])] for i in range(M.shape[0])])

    @staticmethod
    def array(M):
        """To an array (a, b, *places)."""
        return jnp.stack([jnp.stack(list(row)) for row in M])

    @staticmethod
    def pack(M):
        """What a scan carries or streams."""
        return tuple(tuple(row) for row in M)

    unpack = staticmethod(_objects)

    @staticmethod
    def pack_symmetric(M):
        """`pack` of the upper half."""
        return tuple(tuple(M[i, i:]) for i in range(len(M)))

    @staticmethod
    def unpack_symmetric(entries):
        """The symmetric matrix of an upper half."""
        D = len(entries)
        return _objects([[entries[min(i, j)][abs(i - j)] for j in range(D)] for i in range(D)])

    @staticmethod
    def product(A, B):
        """A B."""
        return A @ B

    @staticmethod
    def constant_times(C, M):
        """C M for a constant NumPy array C, whose zeros cost nothing."""
        terms = lambda row, j: [float(c) * M[i, j] if c != 1 else M[i, j] for i, c in enumerate(row) if c]
        return _objects([[functools.reduce(operator.add, terms(row, j)) for j in range(M.shape[1])] for row in C])

    @staticmethod
    def inner(A, B):
        """Σ A_ij B_ij, as a matrix."""
        return np.sum(A * B, keepdims=True)

    @staticmethod
    def mirrored(M):
        """A symmetric matrix whose lower half is not computed again."""
        return Unrolled.unpack_symmetric(Unrolled.pack_symmetric(M))

    @staticmethod
    def set_first(M, k):
        """M with first row and column k (D, 1)."""
        out = M.copy()
        out[:, 0] = k[:, 0]
        out[0, :] = k[:, 0]
        return out

    @staticmethod
    def add_first_row(M, row):
        """M with `row` (1, C) added to the beginning of its first row."""
        out = M.copy()
        C = row.shape[1]
        out[:1, :C] = out[:1, :C] + row
        return out

    @staticmethod
    def add_cross(M, k, c):
        """M + k e₁ᵀ + e₁ kᵀ + c e₁e₁ᵀ."""
        out = M.copy()
        out[:, :1] = out[:, :1] + k
        out[:1, :] = out[:1, :] + k.mT
        out[:1, :1] = out[:1, :1] + c
        return out


def _same(M):
    return M


class Broadcast:
    """Ordinary arrays (*places, a, b); products as sums."""

    pack = unpack = pack_symmetric = unpack_symmetric = mirrored = staticmethod(_same)

    @staticmethod
    def of(M):
        """From an array (a, b, *places)."""
        return jnp.moveaxis(M, (0, 1), (-2, -1))

    @staticmethod
    def array(M):
        """To an array (a, b, *places)."""
        return jnp.moveaxis(M, (-2, -1), (0, 1))

    @staticmethod
    def product(A, B):
        """A B."""
        return jnp.sum(A[..., :, :, None] * B[..., None, :, :], -2)

    @classmethod
    def constant_times(cls, C, M):
        """C M for a constant NumPy array C."""
        return cls.product(jnp.asarray(C), M)

    @staticmethod
    def inner(A, B):
        """Σ A_ij B_ij, as a matrix."""
        return jnp.sum(A * B, (-2, -1), keepdims=True)

    @staticmethod
    def set_first(M, k):
        """M with first row and column k (D, 1)."""
        i = np.arange(M.shape[-1])
        return jnp.where(i[:, None] == 0, k.mT, jnp.where(i[None, :] == 0, k, M))

    @staticmethod
    def add_first_row(M, row):
        """M with `row` (1, C) added to the beginning of its first row."""
        D, C = M.shape[-2:]
        first = np.eye(D)[:, :1]
        return M + first * jnp.pad(row, [(0, 0)] * (row.ndim - 1) + [(0, C - row.shape[-1])])

    @staticmethod
    def add_cross(M, k, c):
        """M + k e₁ᵀ + e₁ kᵀ + c e₁e₁ᵀ."""
        e = np.eye(M.shape[-1])[:, :1]
        k = k + 0.5 * c * e
        return M + k * e.T + e * k.mT


class Dense(Broadcast):
    """Ordinary arrays with ordinary products, for states so large that a product is worth a library call."""

    @staticmethod
    def product(A, B):
        """A B."""
        return A @ B


def form_of(size: int, columns: int = 1):
    """The form for states with `size` entries and so many columns of means: unrolled only where both are few."""
    if size <= _UNROLL and columns <= _COLUMNS:
        return Unrolled
    return Broadcast if size <= _BROADCAST else Dense


def product(A, B):
    """A B for two arrays (a, b), (b, c), as a sum."""
    return jnp.sum(A[:, :, None] * B[None], 1)
