"""Kronecker products A₁ ⊗ … ⊗ A_D that are never formed, for arrays over the cells of a grid.

An array over a grid has shape (G₁, …, G_D), last axis fastest; several such arrays are stacked in front. A product turns one
axis at a time,

    X ← A_d Xᵀ,   X of shape (rest, G_d),

from the last to the first, and after D turns the axes stand in their order again: no axis is ever copied into place.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

LARGE = 256  # rows from which it is worth asking whether a matrix is symmetric about its centre
SMALL = 64  # columns up to which factors are multiplied out

Matrices = Sequence[Float[Array, "_ _"]]


def product(matrices: Matrices, X: Float[Array, "*grid"]) -> Float[Array, "*new"]:
    """(⊗A_d) x, for matrices that may be rectangular."""
    for A in reversed(matrices):
        X = jnp.einsum("rg,ag->ar", X.reshape(-1, A.shape[1]), A)
    return X.reshape(tuple(A.shape[0] for A in matrices))


def products(matrices: Matrices, X: Float[Array, " C *grid"]) -> Float[Array, " C *new"]:
    """(⊗A_d) x for each of several x, one after the other: each of them stays in the cache."""
    return product(matrices, X[0])[None] if len(X) == 1 else jax.lax.map(functools.partial(product, matrices), X)


def transposed(matrices: Matrices) -> list[Float[Array, "_ _"]]:
    """The factors of the transpose."""
    return [A.T for A in matrices]


def squared(matrices: Matrices) -> list[Float[Array, "_ _"]]:
    """A_d ∘ A_d: with these factors, product(·, f) is the diagonal of (⊗A_d) diag(f) (⊗A_d)ᵀ."""
    return [A * A for A in matrices]


def outer(vectors: Sequence[Float[Array, " _"]]) -> Float[Array, "*grid"]:
    """v₁ ⊗ … ⊗ v_D over the grid: the diagonal of a product of diagonal matrices."""
    return functools.reduce(jnp.multiply.outer, vectors)


def joined(matrices: Matrices) -> list[Float[Array, "_ _"]]:
    """The same product with neighbouring small factors multiplied out: fewer passes over the grid, of a better size."""
    done: list[Array] = []
    for A in matrices:
        if done and done[-1].shape[1] * A.shape[1] <= SMALL:
            done[-1] = jnp.kron(done[-1], A)
        else:
            done.append(A)
    return done


def diagonal(matrices: Matrices) -> Float[Array, "*grid"]:
    """The diagonal of ⊗A_d."""
    return outer([jnp.diagonal(A) for A in matrices])


def trace(matrices: Matrices) -> Float[Array, ""]:
    """tr ⊗A_d = Π tr A_d."""
    return jnp.prod(jnp.stack([jnp.trace(A) for A in matrices]))


def log_det(matrices: Matrices) -> Float[Array, ""]:
    """log|⊗A_d| = Σ (N/G_d) log|A_d| for positive definite factors."""
    N = math.prod(A.shape[0] for A in matrices)
    return sum((N / A.shape[0] * jnp.linalg.slogdet(A)[1] for A in matrices), start=jnp.zeros(()))


def without_axis(vectors: Sequence[Float[Array, " _"]], d: int) -> Float[Array, "*grid"]:
    """The product over the grid of the vectors of all axes but one."""
    return outer([jnp.ones_like(v) if e == d else v for e, v in enumerate(vectors)])


def sum_to_axis(X: Float[Array, "*grid"], d: int) -> Float[Array, " G"]:
    """The sum over all axes but one."""
    return jnp.sum(X, axis=tuple(e for e in range(X.ndim) if e != d))


def product_along(X: Float[Array, "*grid"], Z: Float[Array, "*grid"], d: int) -> Float[Array, "G G"]:
    """Σ over all other axes of X[…, i, …] Z[…, j, …]: the product of two unfoldings along axis d."""
    if d == X.ndim - 1:
        return X.reshape(-1, X.shape[d]).T @ Z.reshape(-1, X.shape[d])
    unfolded = lambda A: jnp.moveaxis(A, d, 0).reshape(A.shape[d], -1)
    return unfolded(X) @ unfolded(Z).T


class Spectral(NamedTuple):
    """⊗K_d = (⊗Q_d) diag(⊗λ_d) (⊗Q_d)ᵀ for symmetric K_d without negative eigenvalues, up to rounding."""

    values: tuple[Float[Array, " _"], ...]
    vectors: tuple[Float[Array, "_ _"], ...]

    def spectrum(self) -> Float[Array, "*grid"]:
        """The eigenvalues of the product."""
        return outer(self.values)

    def root(self) -> list[Float[Array, "_ _"]]:
        """Factors F_d with K_d = F_d F_dᵀ."""
        return [Q * jnp.sqrt(v) for v, Q in zip(self.values, self.vectors, strict=True)]


def eigen(matrices: Matrices) -> Spectral:
    """The eigendecomposition by axes; never differentiate it: near-equal eigenvalues make the derivative wrong, silently."""
    pairs = [_eigh(0.5 * (K + K.T)) for K in matrices]
    return Spectral(tuple(jnp.maximum(values, 0.0) for values, _ in pairs), tuple(vectors for _, vectors in pairs))


def _eigh(K: Float[Array, "G G"]) -> tuple[Float[Array, " _"], Float[Array, "G G"]]:
    """Eigenvalues, in any order, and eigenvectors. A large matrix that is the same seen from its end is halved."""
    if len(K) < LARGE:
        return tuple(jnp.linalg.eigh(K))
    rounding = len(K) * jnp.finfo(K.dtype).eps  # of the decomposition itself, in units of the largest entry
    mirrored = jnp.max(jnp.abs(K - K[::-1, ::-1])) <= rounding * jnp.max(jnp.abs(K))
    return jax.lax.cond(mirrored, _halved_eigh, lambda K: tuple(jnp.linalg.eigh(K)), K)


def _halved_eigh(K: Float[Array, "G G"]) -> tuple[Float[Array, " _"], Float[Array, "G G"]]:
    """For K = JKJ, as on a regular axis: even vectors (u, Ju) and odd ones (v, −Jv), each from a matrix of half the size."""
    m, odd_size = len(K) // 2, len(K) % 2
    A, C = K[:m, :m], K[:m, m + odd_size :][:, ::-1]
    even = A + C
    if odd_size:
        b = math.sqrt(2) * K[:m, m : m + 1]
        even = jnp.block([[even, b], [b.T, K[m : m + 1, m : m + 1]]])
    (even_values, U), (odd_values, V) = jnp.linalg.eigh(even), jnp.linalg.eigh(A - C)
    top = jnp.concatenate([U[:m], V], axis=1) / math.sqrt(2)
    bottom = jnp.concatenate([U[:m], -V], axis=1)[::-1] / math.sqrt(2)
    middle = jnp.concatenate([U[m:], jnp.zeros((odd_size, m))], axis=1)
    return jnp.concatenate([even_values, odd_values]), jnp.concatenate([top, middle, bottom])


class Seen(NamedTuple):
    """C⁻¹ of the cells that were seen, of C = ⊗K_d + noise·I: diag(inverse) − UᵀU in the basis of the eigenvectors.

    Cells without a value are taken out of the whole grid (`unseen`), where C⁻¹ is diagonal, so that they cost no transforms.
    """

    parts: Spectral
    inverse: Float[Array, "*grid"]  # 1/(Λ + noise)
    U: Float[Array, " H *grid"] | None  # one row for each cell without a value
    log_det: Float[Array, ""]

    @classmethod
    def of(cls, matrices: Matrices, noise: Float[Array, ""], unseen: Int[Array, " H"] | None = None) -> Seen:
        """Of all cells but some, which are counted over the grid."""
        parts = eigen(matrices)
        total = parts.spectrum() + noise
        log_det = jnp.sum(jnp.log(total))
        if unseen is None:
            return cls(parts, 1 / total, None, log_det)
        index = jnp.unravel_index(unseen, total.shape)
        cells = jax.vmap(lambda *rows: outer(rows))(*(Q[i] for Q, i in zip(parts.vectors, index, strict=True)))
        rows = (cells / total).reshape(len(unseen), -1)
        L = jnp.linalg.cholesky(rows @ cells.reshape(rows.shape).T)
        U = jax.scipy.linalg.solve_triangular(L, rows, lower=True).reshape(cells.shape)
        return cls(parts, 1 / total, U, log_det + 2 * jnp.sum(jnp.log(jnp.diagonal(L))))


def applied(
    inverse: Float[Array, "*grid"], U: Float[Array, " H *grid"] | None, rotated: Float[Array, " C *grid"]
) -> Float[Array, " C *grid"]:
    """C⁻¹T from T, both in the basis of the eigenvectors; T is zero in cells without a value."""
    whole = rotated * inverse
    return whole if U is None else whole - jnp.tensordot(together(rotated, U), U, 1)


def together(X: Float[Array, " A *grid"], Z: Float[Array, " B *grid"]) -> Float[Array, "A B"]:
    """Σ over the grid of each of some arrays times each of others."""
    return X.reshape(len(X), -1) @ Z.reshape(len(Z), -1).T


@jax.custom_vjp
def log_det_and_gram(
    matrices: tuple[Float[Array, "_ _"], ...],
    noise: Float[Array, ""],
    T: Float[Array, " C *grid"],
    unseen: Int[Array, " H"] | None = None,
) -> tuple[Float[Array, ""], Float[Array, "C C"]]:
    """log|C| and TᵀC⁻¹T for C = ⊗K_d + noise·I, differentiable in the factors K_d, the noise and T; without some cells.

    With K_d = Q_dΛ_dQ_dᵀ, Λ = ⊗Λ_d, α̃ = (⊗Q_dᵀ)T/(Λ + noise), and S, g the adjoints of TᵀC⁻¹T and of log|C|,

        K̄_d = Q_d [ g diag(Σ_rest Λ_rest/(Λ + noise)) − Ã_d (Λ_rest ⊗ S) Ã_dᵀ ] Q_dᵀ,    T̄ = 2 (⊗Q_d) α̃ S,

    Ã_d the unfolding of α̃ along axis d. The derivative of an eigendecomposition does not occur. Cells without a value take
    from C⁻¹ what α̃S takes, with their rows of U in the place of α̃ and with g in that of S.
    """
    return _forward(matrices, noise, T, unseen)[0]


def _forward(
    matrices: tuple[Array, ...], noise: Array, T: Array, unseen: Array | None
) -> tuple[tuple[Array, Array], tuple[Seen, Array]]:
    seen = Seen.of(matrices, noise, unseen)
    rotated = products(transposed(seen.parts.vectors), T)
    alpha = applied(seen.inverse, seen.U, rotated)
    return (seen.log_det, together(rotated, alpha)), (seen, alpha)


def _backward(saved: tuple[Seen, Array], adjoints: tuple[Array, Array]) -> tuple[tuple[Array, ...], Array, Array, None]:
    (parts, inverse, U, _), alpha = saved
    of_log_det, of_gram = adjoints
    S = 0.5 * (of_gram + of_gram.T)
    weighted = jnp.tensordot(S, alpha, 1)
    to_noise = of_log_det * (jnp.sum(inverse) - (0.0 if U is None else jnp.sum(U * U))) - jnp.sum(weighted * alpha)
    to_matrices = []
    for d, Q in enumerate(parts.vectors):
        rest = without_axis(parts.values, d)
        middle = jnp.diag(of_log_det * sum_to_axis(inverse * rest, d))
        for column, other in zip(alpha, weighted, strict=True):
            middle -= product_along(column * rest, other, d)
        if U is not None:
            middle -= of_log_det * product_along(U * rest, U, d + 1)
        to_matrices.append(Q @ middle @ Q.T)
    return tuple(to_matrices), to_noise, 2 * products(parts.vectors, weighted), None


log_det_and_gram.defvjp(_forward, _backward)
