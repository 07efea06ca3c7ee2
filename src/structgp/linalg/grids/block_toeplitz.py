"""Matrices C of S × S blocks C_ij = R_{i−j}, R_{−m} = R_mᵀ: several series at the same evenly spaced times, O(P³S²).

Whittle's recursion predicts the next P values by those before them, Σ_j A_j y_{t−j} with A_0 = I, and the oldest by those
after it, Σ_i B_i y_{t−k+i} with B_0 = I; the predictions leave covariances F and E. With Δ = Σ_j A_j R_{k+1−j} the order k
becomes k + 1 by

    A_j ← A_j − Δ E⁻¹ B_{k+1−j},    B_{k+1−j} ← B_{k+1−j} − Δᵀ F⁻¹ A_j,    F ← F − Δ E⁻¹ Δᵀ,    E ← E − Δᵀ F⁻¹ Δ.

What each prediction misses is all of log|C| = Σ log|F_k| and of TᵀC⁻¹T. The last predictors hold C⁻¹ (Gohberg and Heinig):

    (C⁻¹)_ij = (C⁻¹)_{i−1,j−1} + B_iᵀ E⁻¹ B_j − A_{S−i}ᵀ F⁻¹ A_{S−j}      (A_S = 0),

two pairs of lower block Toeplitz matrices, so that a solution is a few Fourier transforms, as are the sums along the diagonals
of C⁻¹ that the gradient of log|C| is made of. One step of refinement makes up for what cancels between the pairs.

Values that were not seen are taken out of C⁻¹ again (`unseen`), by one solution for each.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from .unseen import Unseen

STAGES = 4  # of the recursion, whose arrays grow from one to the next


class Inverse(NamedTuple):
    """C⁻¹ by its generators B_i and A_{S−i}, and by the inverses of what they leave open; what was not seen is taken out."""

    first: Float[Array, "S P P"]  # B_i
    last: Float[Array, "S P P"]  # A_{S−i}, zero for i = 0
    of_first: Float[Array, "P P"]  # E⁻¹
    of_last: Float[Array, "P P"]  # F⁻¹
    unseen: Unseen | None = None


def of_seen(
    R: Float[Array, "S P P"], T: Float[Array, "S P C"], cells: Int[Array, " H"] | None
) -> tuple[Inverse, Float[Array, ""], Float[Array, "C C"]]:
    """C⁻¹, log|C| and TᵀC⁻¹T without some cells, where T is zero."""
    inverse, log_det, gram = predicted(R, T)
    if cells is None:
        return inverse, log_det, gram
    S, P, _ = R.shape

    of_columns = lambda function: lambda x: _as_rows(function(x.reshape(S, P, 1)))[0]
    out, more = Unseen.of(cells, S * P, of_columns(lambda X: solve(R, inverse, X)), of_columns(lambda X: product(R, X)))
    inverse = inverse._replace(unseen=out)
    gram = jnp.einsum("spc,spd->cd", T, solve(R, inverse, T))  # a difference of two would lose digits at low noise
    return inverse, log_det + more, 0.5 * (gram + gram.T)


def _as_rows(X: Float[Array, "S P K"]) -> Float[Array, "K N"]:
    return X.reshape(-1, X.shape[2]).T


def predicted(R: Float[Array, "S P P"], T: Float[Array, "S P C"]) -> tuple[Inverse, Float[Array, ""], Float[Array, "C C"]]:
    """C⁻¹, log|C| and TᵀC⁻¹T by Whittle's recursion."""
    S, P, _ = R.shape
    identity = jnp.eye(P)
    by_lag = lambda x, more: jnp.concatenate([jnp.moveaxis(x, 0, -1)[..., ::-1], jnp.zeros((*x.shape[1:], more))], axis=-1)
    moved = lambda x: jnp.concatenate([jnp.zeros((P, P, 1)), x[..., :-1]], axis=-1)
    spread = lambda x: x[:, :, None]

    def look(A: Array, F: Array, k: Array, y_back: Array) -> tuple[Array, Array, Array]:
        """What order k leaves: the factor of F, log|F| and the part of the Gram matrix."""
        y = jax.lax.dynamic_slice_in_dim(y_back, S - 1 - k, A.shape[-1], axis=2)  # y_{k−j} at j
        missed = jnp.einsum("pqj,qcj->pc", A, y)
        L = jnp.linalg.cholesky(F)
        white = jax.scipy.linalg.solve_triangular(L, missed, lower=True)
        return L, 2 * jnp.sum(jnp.log(jnp.diagonal(L))), white.T @ white

    def product(K: Array, X: Array) -> Array:
        return sum(spread(K[:, r : r + 1]) * X[r][None] for r in range(P))

    state = (spread(identity), spread(jnp.zeros((P, P))), R[0], R[0], jnp.zeros(()), jnp.zeros((T.shape[2], T.shape[2])))
    at = 0
    for stage in range(STAGES):
        end = (S - 1) * (stage + 1) // STAGES
        if end == at:
            continue
        size = end + 1
        R_back, y_back = by_lag(R, size), by_lag(T, size)

        def step(k: Array, state: tuple[Array, ...], R_back: Array = R_back, y_back: Array = y_back) -> tuple[Array, ...]:
            A, B, F, E, log_det, gram = state  # B_{k+1−j} at j
            L, more, part = look(A, F, k, y_back)
            R_from = jax.lax.dynamic_slice_in_dim(R_back, S - 2 - k, A.shape[-1], axis=2)  # R_{k+1−j} at j
            change = jnp.einsum("prj,rqj->pq", A, R_from)
            to_A = jax.scipy.linalg.cho_solve((jnp.linalg.cholesky(E), True), change.T).T
            to_B = jax.scipy.linalg.cho_solve((L, True), change).T
            A, B = A - product(to_A, B), moved(B - product(to_B, A))
            F, E = F - to_A @ change.T, E - to_B @ change
            return A, B, 0.5 * (F + F.T), 0.5 * (E + E.T), log_det + more, gram + part

        grown = lambda x, size=size: jnp.pad(x, [(0, 0), (0, 0), (0, size - x.shape[-1])])
        A, B = grown(state[0]), grown(state[1])
        B = B.at[:, :, at + 1].set(identity)
        state = jax.lax.fori_loop(at, end, step, (A, B, *state[2:]))
        at = end
    A, B, F, E, log_det, gram = state
    _, more, part = look(A, F, jnp.asarray(S - 1), by_lag(T, S))
    first = jnp.moveaxis(jnp.concatenate([B[..., 1:], spread(identity)], axis=-1), -1, 0)[::-1]
    last = jnp.moveaxis(moved(A[..., ::-1]), -1, 0)
    solved = lambda M: jax.scipy.linalg.cho_solve((jnp.linalg.cholesky(M), True), identity)
    return Inverse(first, last, solved(E), solved(F)), log_det + more, gram + part


def product(R: Float[Array, "S P P"], X: Float[Array, "S P K"]) -> Float[Array, "S P K"]:
    """C x for each column x."""
    S = len(R)
    around = jnp.concatenate([R, jnp.zeros((1, *R.shape[1:])), jnp.swapaxes(R[:0:-1], 1, 2)])
    return _back(jnp.fft.rfft(around, axis=0) @ _waves(X), S)


def solve(R: Float[Array, "S P P"], inverse: Inverse, X: Float[Array, "S P K"]) -> Float[Array, "S P K"]:
    """C⁻¹x for each column x."""
    once = _applied(inverse, X)
    return once + _applied(inverse, X - product(R, once))


def _applied(inverse: Inverse, X: Float[Array, "S P K"]) -> Float[Array, "S P K"]:
    if inverse.unseen is None:
        return _by_generators(inverse, X)
    table = lambda B: B.T.reshape(*X.shape[:2], -1)
    return table(inverse.unseen.taken_out(lambda B: _as_rows(_by_generators(inverse, table(B))), _as_rows(X)))


def all_explained(R: Float[Array, "S P P"], inverse: Inverse, X: Float[Array, "S P K"]) -> Float[Array, "K K"]:
    """XᵀC⁻¹X, with an error of second order in that of the solution."""
    found = solve(R, inverse, X)
    forms = jnp.einsum("spk,spl->kl", found, 2 * X - product(R, found))
    return 0.5 * (forms + forms.T)


def explained(R: Float[Array, "S P P"], inverse: Inverse, X: Float[Array, "S P K"]) -> Float[Array, " K"]:
    """The diagonal of XᵀC⁻¹X, in the same way."""
    found = solve(R, inverse, X)
    return jnp.sum(found * (2 * X - product(R, found)), axis=(0, 1))


def inverse_diagonal(inverse: Inverse) -> Float[Array, "S P"]:
    """The diagonal of C⁻¹, zero in cells that were not seen."""
    square = lambda G, M: jnp.einsum("skp,kl,slp->sp", G, M, G)
    whole = jnp.cumsum(square(inverse.first, inverse.of_first) - square(inverse.last, inverse.of_last), axis=0)
    return whole if inverse.unseen is None else inverse.unseen.diagonal(whole.ravel()).reshape(whole.shape)


def _waves(x: Float[Array, " S *rest"]) -> Array:
    return jnp.fft.rfft(x, 2 * len(x), axis=0)


def _back(waves: Array, S: int) -> Array:
    return jnp.fft.irfft(waves, 2 * S, axis=0)[:S]


def _by_generators(inverse: Inverse, X: Float[Array, "S P K"]) -> Float[Array, "S P K"]:
    S, X_waves = len(X), _waves(X)

    def pair(G: Array, M: Array) -> Array:
        waves = _waves(G)
        return jnp.swapaxes(waves, 1, 2) @ _waves(M @ _back(jnp.conj(waves) @ X_waves, S))

    return _back(pair(inverse.first, inverse.of_first) - pair(inverse.last, inverse.of_last), S)


def _diagonal_sums(inverse: Inverse) -> Float[Array, "S P P"]:
    """Σ_i (C⁻¹)_{i, i+m} for m = 0, 1, …"""
    S = len(inverse.first)
    count = (S - jnp.arange(S))[:, None, None]

    def along(G: Array, M: Array) -> Array:
        return jnp.swapaxes(jnp.conj(_waves(G)), 1, 2) @ M @ _waves(count * G)

    waves = along(inverse.first, inverse.of_first) - along(inverse.last, inverse.of_last)
    if inverse.unseen is not None:
        of_U = _waves(inverse.unseen.U.T.reshape(*inverse.first.shape[:2], -1))
        waves = waves - jnp.conj(of_U) @ jnp.swapaxes(of_U, 1, 2)
    return _back(waves, S)


@jax.custom_vjp
def log_det_and_gram(
    R: Float[Array, "S P P"], T: Float[Array, "S P C"], cells: Int[Array, " H"] | None = None
) -> tuple[Float[Array, ""], Float[Array, "C C"]]:
    """log|C| and TᵀC⁻¹T, differentiable in R and in T; without some cells, where T is zero."""
    return of_seen(R, T, cells)[1:]


def _forward(R: Array, T: Array, cells: Array | None) -> tuple[tuple[Array, Array], tuple[Inverse, Array]]:
    inverse, log_det, gram = of_seen(R, T, cells)
    return (log_det, gram), (inverse, solve(R, inverse, T))


def _backward(saved: tuple[Inverse, Array], adjoints: tuple[Array, Array]) -> tuple[Array, Array, None]:
    inverse, alpha = saved
    of_log_det, of_gram = adjoints
    weighted = alpha @ (0.5 * (of_gram + of_gram.T))
    seen = _back(_waves(alpha) @ jnp.swapaxes(jnp.conj(_waves(weighted)), 1, 2), len(alpha))  # Σ_j α_{j+m} G α_jᵀ
    once = of_log_det * jnp.swapaxes(_diagonal_sums(inverse), 1, 2) - seen
    return once * jnp.where(jnp.arange(len(alpha)) > 0, 2.0, 1.0)[:, None, None], 2 * weighted, None


log_det_and_gram.defvjp(_forward, _backward)
