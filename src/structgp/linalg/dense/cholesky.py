"""Cholesky factors that do not give up at once, and the two numbers that a Gaussian evidence needs.

With observation precisions w (0 where nothing was seen), S = diag(√w) and B = I + S K S, the covariance of what was seen is
C = K + W⁻¹ and

    log|C| = log|B| − Σ log w,      C⁻¹ = S B⁻¹ S,      tᵀC⁻¹t = ‖L⁻¹S t‖²  with  L Lᵀ = B.

B has eigenvalues of at least one, so it factors whenever K is a covariance up to rounding. Where rounding spoils that (smooth
functions seen without noise), a multiple of W is added, that is noise of variance `jitter` in the units of K: as little as
works, in steps of ten, and it is reported.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import threadpoolctl
from jaxtyping import Array, Float

FIRST_JITTER = 1e-14  # in units of the mean prior variance
LAST_JITTER = 1e-4
SMALL = 600  # rows below which one LAPACK thread is faster than several


class Factor(NamedTuple):
    """L with L Lᵀ = I + S (K + jitter·I) S."""

    L: Float[Array, "N N"]
    jitter: Float[Array, ""]


def lower(A: Float[Array, "P P"]) -> Float[Array, "P P"]:
    """The factor L of A = L Lᵀ; of one number its root, which is a smaller program."""
    return jnp.sqrt(A) if len(A) == 1 else jnp.linalg.cholesky(A)


def whitened_by(L: Float[Array, "P P"], b: Float[Array, " P *M"]) -> Float[Array, " P *M"]:
    """L⁻¹b."""
    return b / jnp.ravel(L) if len(L) == 1 else jax.scipy.linalg.solve_triangular(L, b, lower=True)


def solved_by(L: Float[Array, "P P"], b: Float[Array, " P *M"]) -> Float[Array, " P *M"]:
    """(L Lᵀ)⁻¹b."""
    return b / jnp.ravel(L) ** 2 if len(L) == 1 else jax.scipy.linalg.cho_solve((L, True), b)


def diagonal(A: Float[Array, "N N"]) -> Float[Array, " N"]:
    """The diagonal, without the indices of a gather."""
    return jnp.ravel(A)[:: len(A) + 1]


def factorise(K: Float[Array, "N N"], w: Float[Array, " N"]) -> Factor:
    """The factor of I + S K S in JAX, differentiable, with jitter only when needed; NaN if none was enough."""
    S = jnp.sqrt(w)
    B = jnp.eye(len(w)) + S[:, None] * K * S[None, :]
    L = jnp.linalg.cholesky(B)
    rescue = lambda: _with_jitter(B, w, jnp.mean(diagonal(K)))
    return Factor(*jax.lax.cond(jnp.isnan(L[-1, -1]), rescue, lambda: (L, jnp.zeros(()))))


def _with_jitter(B: Float[Array, "N N"], w: Float[Array, " N"], scale: Float[Array, ""]) -> tuple[Array, Array]:
    """The factor of B with the least jitter, in steps of ten, that makes it one."""
    fixed = jax.lax.stop_gradient(B)

    def fails(state: tuple[Array, Array]) -> Array:
        return jnp.isnan(state[1][-1, -1]) & (state[0] < LAST_JITTER * scale)

    def more(state: tuple[Array, Array]) -> tuple[Array, Array]:
        jitter = 10 * state[0]
        return jitter, jnp.linalg.cholesky(fixed + jnp.diag(jitter * w))

    start = (FIRST_JITTER / 10 * scale, jnp.full_like(fixed, jnp.nan))
    jitter = jax.lax.stop_gradient(jax.lax.while_loop(fails, more, start)[0])
    return jnp.linalg.cholesky(B + jnp.diag(jitter * w)), jitter


@jax.custom_batching.custom_vmap
def _factor(B: Float[Array, "N N"], w: Float[Array, " N"], scale: Float[Array, ""]) -> tuple[Array, Array]:
    """The factor of B, with jitter only when needed, of which no derivative is taken; of a batch all are rescued at once."""
    L = jnp.linalg.cholesky(B)
    return jax.lax.cond(jnp.isnan(L[-1, -1]), lambda: _with_jitter(B, w, scale), lambda: (L, jnp.zeros(())))


@_factor.def_vmap
def _factors(size: int, batched: Any, B: Array, w: Array, scale: Array) -> tuple[Any, Any]:
    B, w, scale = (
        part if own else jnp.broadcast_to(part, (size, *part.shape)) for part, own in zip((B, w, scale), batched, strict=True)
    )
    L = jnp.linalg.cholesky(B)

    def rescued() -> tuple[Array, Array]:
        again, jitter = jax.vmap(_with_jitter)(B, w, scale)
        fine = ~jnp.isnan(L[:, -1, -1])
        return jnp.where(fine[:, None, None], L, again), jnp.where(fine, 0.0, jitter)

    # under vmap a choice for each is both ways for all, so that there is one choice for all
    found = jax.lax.cond(jnp.any(jnp.isnan(L[:, -1, -1])), rescued, lambda: (L, jnp.zeros(size)))
    return found, (True, True)


@jax.custom_vjp
def log_det_and_gram(
    K: Float[Array, "N N"], w: Float[Array, " N"], T: Float[Array, "N C"]
) -> tuple[Float[Array, ""], Float[Array, "C C"]]:
    """log|C| over what was observed, and TᵀC⁻¹T; with the inverse its derivative costs half of what that of a factor does.

    d log|C| = tr C⁻¹dC and d(TᵀC⁻¹T) = dTᵀα + αᵀdT − αᵀdC α, with α = C⁻¹T.
    """
    return _forward(K, w, T)[0]


def _forward(K: Array, w: Array, T: Array) -> tuple[tuple[Array, Array], tuple[Array, Array, Array]]:
    S = jnp.sqrt(w)
    L, _ = _factor(jnp.eye(len(w)) + S[:, None] * K * S[None, :], w, jnp.mean(diagonal(K)))
    U = jax.scipy.linalg.solve_triangular(L, S[:, None] * T, lower=True)
    return (2 * jnp.sum(jnp.log(diagonal(L))) - log_sum(w), U.T @ U), (w, L, U)


def _backward(saved: tuple[Array, Array, Array], to: tuple[Array, Array]) -> tuple[Array, Array, Array]:
    w, L, U = saved
    S = jnp.sqrt(w)
    half = jax.scipy.linalg.solve_triangular(L, jnp.diag(S), lower=True)
    alpha = half.T @ U
    both = to[1] + to[1].T
    to_C = to[0] * (half.T @ half) - 0.5 * (alpha @ both) @ alpha.T
    to_w = jnp.where(w > 0, -diagonal(to_C) / jnp.where(w > 0, w, 1.0) ** 2, 0.0)
    return to_C, to_w, alpha @ both


log_det_and_gram.defvjp(_forward, _backward)


def log_sum(w: Float[Array, " N"]) -> Float[Array, ""]:
    """Σ log w over the positive entries."""
    return jnp.sum(jnp.log(jnp.where(w > 0, w, 1.0)))


class HostSolution(NamedTuple):
    """What LAPACK found: log|C|, TᵀC⁻¹T, C⁻¹T, the upper triangle of B⁻¹ (below it, anything) and the jitter."""

    log_det: float
    gram: Float[np.ndarray, "C C"]
    alpha: Float[np.ndarray, "N C"]
    inverse: Float[np.ndarray, "N N"]
    jitter: float

    def in_size(self, size: int) -> HostSolution:
        """The same among the first of so many rows, zero in the others."""
        more = size - len(self.alpha)
        if not more:
            return self
        alpha, inverse = np.pad(self.alpha, ((0, more), (0, 0))), np.zeros((size, size))
        inverse[: len(self.alpha), : len(self.alpha)] = self.inverse
        return self._replace(alpha=alpha, inverse=inverse)


def solve_on_host(
    B: Float[np.ndarray, "N N"], w: Float[np.ndarray, " N"], T: Float[np.ndarray, "N C"], scale: float
) -> HostSolution | None:
    """The same by LAPACK, with the inverse that the gradient needs: half the work of what autodiff does.

    `B` is overwritten. None when no jitter was enough.
    """
    from scipy.linalg import lapack

    factor, jitter = factor_on_host(B, w, scale)
    if factor is None:
        return None
    S = np.sqrt(w)[:, None]
    solved, _ = lapack.dpotrs(factor, S * T, lower=1)
    log_det = 2 * np.log(np.diagonal(factor)).sum() - np.log(w[w > 0]).sum()
    gram = (S * T).T @ solved
    inverse, _ = lapack.dpotri(factor, lower=1, overwrite_c=1)
    return HostSolution(log_det, 0.5 * (gram + gram.T), S * solved, inverse.T, jitter)


def factor_on_host(B: np.ndarray, w: np.ndarray, scale: float) -> tuple[np.ndarray | None, float]:
    """The lower factor in LAPACK's column order; rows of the symmetric B serve as its columns."""
    from scipy.linalg import lapack

    diagonal, jitter = B.diagonal().copy(), 0.0
    spare = None
    while True:
        # The other triangle of B stays as it was, so a failed factorisation can be repaired from it.
        factor, failed = lapack.dpotrf(B.T, lower=1, clean=0, overwrite_a=1)
        if failed <= 0:
            return (factor, jitter) if np.isfinite(factor[-1, -1]) else (None, jitter)
        jitter = FIRST_JITTER * scale if jitter == 0 else 10 * jitter
        if not jitter <= 1.0001 * LAST_JITTER * scale:
            return None, jitter
        spare = np.tril(B, -1) if spare is None else spare
        B = spare + spare.T + np.diag(diagonal + jitter * w)


class _OneThread(contextlib.ContextDecorator):
    """One LAPACK thread while something inside runs, on any thread: limits that overlap would undo each other."""

    def __init__(self) -> None:
        self._lock, self._inside = threading.Lock(), 0

    def __enter__(self) -> None:
        libraries = _blas()
        with self._lock:
            if not self._inside:
                self._limit = libraries.limit(limits=1, user_api="blas")
            self._inside += 1

    def __exit__(self, *problem: object) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside:
                self._limit.restore_original_limits()


one_lapack_thread = _OneThread()


def lapack_threads(n: float, side_by_side: int = 1) -> contextlib.AbstractContextManager:
    """One LAPACK thread for small matrices and for computations side by side, where several get in each other's way."""
    return one_lapack_thread if n < SMALL or side_by_side > 1 else contextlib.nullcontext()


@functools.cache
def _blas() -> threadpoolctl.ThreadpoolController:
    import scipy.linalg.lapack  # noqa: F401  (the controller knows the libraries that are loaded, and this loads them)

    return threadpoolctl.ThreadpoolController()


def cholesky_update(L: Float[Array, "N N"], B12: Float[Array, "N M"], B22: Float[Array, "M M"], at: Any) -> Float[Array, "N N"]:
    """The factor of a matrix of which M rows and columns from `at` on were those of the identity, and now are [B12; B22].

    The rows after them are still those of the identity. O(N²M) operations.
    """
    L21 = jax.scipy.linalg.solve_triangular(L, B12, lower=True).T
    L22 = jnp.linalg.cholesky(B22 - L21 @ L21.T)
    rows = jax.lax.dynamic_update_slice(L21, L22, (0, at))
    return jax.lax.dynamic_update_slice(L, rows, (at, 0))
