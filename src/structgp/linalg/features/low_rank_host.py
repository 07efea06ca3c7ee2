"""The numbers of `low_rank` by BLAS on the host, for values that were seen: value and adjoint in 4 to 7 NM² operations.

Where everything that is left out is charged for (share 0), c = a e, so that V diag(c) Vᵀ = a(A − I), and to K_uf is one
product: 2a B K_uf diag(e) + …, B = L⁻ᵀ(A⁻¹ − I)L⁻¹, whose columns times those of K_uf are s − diag VᵀV. Where noise is
far below the variance that loses digits, and the longer way is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from .low_rank import FIRST_JITTER, LAST_JITTER, Rule, charge, of_rows, own_forms, pulled

LOUD = 1e3  # variances over noise up to which the product B K_uf keeps its digits
KEPT = 1.5e9  # bytes of what is kept of all rows between the two passes; beyond, it is made twice


class Block(NamedTuple):
    """A few rows: K_fu (n, M) and k, precisions and values that were seen."""

    K: np.ndarray
    k: np.ndarray
    w: np.ndarray
    T: np.ndarray


class ToBlock(NamedTuple):
    """The cotangents of a block."""

    K: np.ndarray
    k: np.ndarray
    w: np.ndarray
    T: np.ndarray


class HostLowRank:
    """log|I + KW| and TᵀC⁻¹T of rows in blocks; then their adjoint. `failed` when there are no factors."""

    def __init__(self, K: np.ndarray, block: Callable[[int], Block], count: int, rule: Rule) -> None:
        from scipy.linalg import blas, lapack

        self._block, self._count, self._rule = block, count, rule
        self._short = rule.charged and not rule.share  # whether the adjoint may be one product
        M = len(K)
        self._L, self._jitter = _factor(K)
        self.failed = self._L is None
        if self.failed:
            return
        self._inverse, _ = lapack.dtrtri(self._L, lower=1)  # products with it cost 0.6 of substitutions, and lose little
        A, self.log_det = np.eye(M, order="F"), 0.0
        b: Any = 0.0
        own: Any = 0.0
        self._kept: list[tuple[Block, np.ndarray]] | None = []
        for i in range(count):
            rows, V = self._made(i)
            self._short &= float(rows.w.max(initial=0.0) * rows.k.mean()) < LOUD if i == 0 else True
            told = np.einsum("nm,nm->n", V.T, V.T)
            of = of_rows(np.sqrt(told)[None], rows.k, rows.w, rows.T, rule, False)
            alike = of.e[0] > 0 and np.ptp(of.e) == 0
            weight, white = (of.e[0], V) if alike else (1.0, V * np.sqrt(of.e))
            A = blas.dsyrk(weight, white, beta=1.0, c=A, lower=1, overwrite_c=1)
            b, own = b + V @ of.g, own + own_forms(of, rows.T, False)
            self.log_det += float(charge(of, rows.w, rule, np.log))
            if self._kept is not None:
                self._kept.append(self._first(rows, V, told))
            if i == 0 and count * rows.K.nbytes > KEPT:
                self._kept = None
        self._R, failed = lapack.dpotrf(A, lower=1, clean=1)
        self.failed = failed != 0
        if self.failed:
            return
        self._A = np.tril(A) + np.tril(A, -1).T
        self._m, _ = lapack.dpotrs(self._R, b, lower=1)
        self.log_det += 2 * float(np.log(np.diagonal(self._R)).sum())
        gram = own - b.T @ self._m
        self.gram = 0.5 * (gram + gram.T)

    def _made(self, i: int) -> tuple[Block, np.ndarray]:
        from scipy.linalg import blas

        rows = self._block(i)
        return rows, blas.dtrmm(1.0, self._inverse, rows.K.T, side=0, lower=1)

    def _first(self, rows: Block, V: np.ndarray, told: np.ndarray | None = None) -> tuple[Block, np.ndarray]:
        """What the adjoint needs: V in place of K, or K and diag VᵀV where that is enough."""
        if not self._short:
            return rows._replace(K=np.zeros((0, len(V)))), V  # a view would keep all of K
        return rows, np.einsum("nm,nm->n", V.T, V.T) if told is None else told

    def _again(self) -> Iterator[tuple[Block, np.ndarray]]:
        if self._kept is not None:
            yield from self._kept
            return
        for i in range(self._count):
            yield self._first(*self._made(i))

    def pull(self, a: float, G: np.ndarray, receive: Callable[[int, ToBlock], Any]) -> np.ndarray:
        """The cotangent of K_uu for those of the log determinant and the forms; `receive` is handed those of every block."""
        from scipy.linalg import blas, lapack

        L, m, rule, G = self._L, self._m, self._rule, 0.5 * (G + G.T)
        inverse, _ = lapack.dpotri(self._R, lower=1)
        inverse = np.tril(inverse) + np.tril(inverse, -1).T
        eye, only_charged = np.eye(len(m)), self._short
        left = lambda columns: blas.dtrsm(1.0, L, np.asfortranarray(columns), side=0, lower=1, trans_a=1)
        around = lambda matrix: left(left(matrix).T)
        B, gamma = around(inverse - eye) if only_charged else None, left(m)
        VcV = a * (self._A - eye) if only_charged else np.zeros(eye.shape, order="F")
        for i, (rows, V) in enumerate(self._again()):
            if only_charged:
                BK = rows.K @ B
                of = of_rows(np.sqrt(V)[None], rows.k, rows.w, rows.T, rule, False)
                got = pulled(of, V + np.einsum("nm,nm->n", rows.K, BK), rows.K @ gamma, rows.T, a, G, rule, False)
                BK *= (2 * a * of.e)[:, None]
                receive(i, ToBlock(_less(BK, 2 * got.residual @ G, gamma), got.d, got.w, got.t))
                continue
            of, to = of_rows(V, rows.k, rows.w, rows.T, rule, False), V.T @ inverse
            got = pulled(of, np.einsum("nm,mn->n", to, V), V.T @ m, rows.T, a, G, rule, False)
            to *= (2 * a * of.e)[:, None]
            to -= V.T * (2 * got.d)[:, None]
            to = _less(to, 2 * got.residual @ G, m)
            for sign in (1.0, -1.0):  # two halves of the work of one product
                some = sign * got.d > 0
                if some.any():
                    half = V.T[some] * np.sqrt(sign * got.d[some])[:, None]  # rows of V.T lie together
                    VcV = blas.dsyrk(sign, half.T, beta=1.0, c=VcV, lower=1, overwrite_c=1)
            to = blas.dtrmm(1.0, self._inverse, to.T, side=0, lower=1, trans_a=1, overwrite_b=1).T
            receive(i, ToBlock(to, got.d, got.w, got.t))
        VcV = VcV if only_charged else np.tril(VcV) + np.tril(VcV, -1).T
        to_K = -around(a * (eye - inverse) - m @ G @ m.T - VcV)
        return to_K + self._jitter * np.trace(to_K) / len(m) * eye


def _less(rows: np.ndarray, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """rows − left rightᵀ, in place."""
    from scipy.linalg import blas

    return blas.dgemm(-1.0, right, left, beta=1.0, c=rows.T, trans_b=1, overwrite_c=1).T


def _factor(K: np.ndarray) -> tuple[Any, float]:
    """The factor of K with the least jitter, in units of its mean variance, that gives it one."""
    from scipy.linalg import lapack

    scale, jitter = float(np.mean(np.diagonal(K))), FIRST_JITTER
    while jitter <= 1.0001 * LAST_JITTER and np.isfinite(scale):
        factor, failed = lapack.dpotrf(K + jitter * scale * np.eye(len(K)), lower=1, clean=1)
        if failed == 0 and np.isfinite(factor[-1, -1]):
            return factor, jitter
        jitter *= 10
    return None, jitter
