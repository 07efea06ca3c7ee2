"""A Gaussian vector known through few others: low rank plus a diagonal, with the adjoint written down.

Of u with covariance K_uu = L Lᵀ and cross-covariances K_uf, V = L⁻¹K_uf is what u tells of f, and d = k − diag VᵀV ≥ 0 is what
it leaves out of the variances k. A `Rule` says what becomes of d. With δ = share · d, sites of precision w of any sign and
shifts h, q = 1 + wδ, e = w/q and g = h/q,

    A = I + V diag(e) Vᵀ = R Rᵀ,    b = V g,    m = A⁻¹b,    f = Vᵀm,    s = diag VᵀA⁻¹V,
    log|I + KW| = log|A| + charge,  hᵀΣh = bᵀm + Σ h²δ/q,    mean (f + δh)/q,  variance s/q² + d/q,
    log|C| = log|I + KW| − Σ log w, TᵀC⁻¹T = Σ e T² − bᵀm  for values T that were seen, h = wT.

The charge is Σ log q / share (a full share makes the diagonal exact; none leaves Σ wd, which makes the evidence a
lower bound), or nothing. A, b and the charge are sums over rows, so that rows come in blocks. The products K_uf K_fu are never
formed: that loses all digits where V keeps them.

For cotangents a of the log determinant and G (symmetric) of the forms hᵀΣh, with r = g − e f,

    to d:    c = share (rᵀGr − a e² s) + a e [charged],              which is to k as well,
    to K_uf: L⁻ᵀ(2a A⁻¹V diag(e) + 2 m G rᵀ − 2 V diag(c)),
    to K_uu: −L⁻ᵀ(a(I − A⁻¹) + m G mᵀ − V diag(c) Vᵀ)L⁻¹,
    to w:    a · variance − meanᵀG mean,      to h: 2 mean G.

Where values were seen, −G stands for G, and to T is 2 r G, to w a · variance + (T − mean)ᵀG(T − mean).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.linalg import cho_solve, solve_triangular
from jaxtyping import Array, Float

from ... import where
from .totals import in_blocks

FIRST_JITTER, LAST_JITTER = 1e-12, 1e-4  # of K_uu, in units of its mean variance
KEPT = 8e9  # bytes of V that an accelerator keeps from the value to its adjoint; what is more is made again


class Rule(NamedTuple):
    """What becomes of the variance that few values leave out: the share that is noise, and whether the rest is charged for."""

    share: float
    charged: bool = True


class Rows(NamedTuple):
    """What is known of each row before anything is summed."""

    d: Any
    delta: Any
    q: Any
    e: Any
    g: Any


def of_rows(V: Any, k: Any, w: Any, t: Any, rule: Rule, natural: bool) -> Rows:
    """The rows with columns V, variances k, precisions w and shifts (or values that were seen) t; on the host or in JAX."""
    d = (k - (V * V).sum(axis=0)).clip(min=0.0)
    delta = rule.share * d
    q = 1 + w * delta
    e = w / q
    return Rows(d, delta, q, e, t / q[:, None] if natural else e[:, None] * t)


def own_forms(rows: Rows, t: Any, natural: bool) -> Any:
    """What each row adds to the forms by itself."""
    return (rows.g * rows.delta[:, None]).T @ t if natural else rows.g.T @ t


def charge(rows: Rows, w: Any, rule: Rule, log: Any) -> Any:
    """What the rows add to log|I + KW| besides log|A|."""
    if not rule.charged:
        return 0.0 * rows.d.sum()
    return log(rows.q).sum() / rule.share if rule.share else (w * rows.d).sum()


class Pulled(NamedTuple):
    """Cotangents by row: to d, to the precisions and to the shifts or values; and the residuals r."""

    d: Any
    w: Any
    t: Any
    residual: Any


def pulled(rows: Rows, s: Any, f: Any, t: Any, a: Any, G: Any, rule: Rule, natural: bool) -> Pulled:
    """The cotangents of the rows, from s and f."""
    d, delta, q, e, g = rows
    r = g - e[:, None] * f
    variance = s / q**2 + (d / q if rule.charged else 0.0)
    form = lambda x: ((x @ G) * x).sum(axis=1)
    sign = 1.0 if natural else -1.0
    to_d = rule.share * (sign * form(r) - a * e**2 * s) + (a * e if rule.charged else 0.0)
    if natural:
        mean = f / q[:, None] + delta[:, None] * g
        return Pulled(to_d, a * variance - form(mean), 2 * mean @ G, r)
    return Pulled(to_d, a * variance + form((t - f) / q[:, None]), 2 * r @ G, r)


def with_jitter(K: Float[Array, "M M"]) -> Float[Array, "M M"]:
    """K with as little more on its diagonal, in steps of ten, as gives it a Cholesky factor."""
    scale, eye, fixed = jnp.mean(jnp.diagonal(K)), jnp.eye(len(K)), jax.lax.stop_gradient(K)
    size = jax.lax.stop_gradient(scale)
    fails = lambda jitter: jnp.isnan(jnp.linalg.cholesky(fixed + jitter * size * eye)[-1, -1]) & (jitter < LAST_JITTER)
    jitter = jax.lax.while_loop(fails, lambda jitter: 10 * jitter, jnp.asarray(FIRST_JITTER))
    return K + jitter * scale * eye


class Summed(NamedTuple):
    """The sums over rows: V diag(e) Vᵀ, V g, what the rows add to the forms, and the charge."""

    gram: Float[Array, "M M"]
    cross: Float[Array, "M C"]
    own: Float[Array, "C C"]
    charge: Float[Array, ""]


def summed(
    white: Callable[[Any], tuple[Array, Array]], blocks: Any, M: int, w: Array, t: Array, rule: Rule, natural: bool
) -> Summed:
    """The sums over rows in blocks, of which `white` makes V and k."""
    return _summed(white, blocks, M, w, t, rule, natural, False)[0]


def _summed(
    white: Callable[[Any], tuple[Array, Array]], blocks: Any, M: int, w: Array, t: Array, rule: Rule, natural: bool, keep: bool
) -> tuple[Summed, Any]:
    """The same, with V of all blocks if it is to be kept."""

    def add(total: Summed, block: tuple[Any, Array, Array]) -> tuple[Summed, Any]:
        x, w, t = block
        V, k = white(x)
        of = of_rows(V, k, w, t, rule, natural)
        more = Summed((V * of.e) @ V.T, V @ of.g, own_forms(of, t, natural), charge(of, w, rule, jnp.log))
        return jax.tree.map(jnp.add, total, more), V if keep else None

    C, first = t.shape[1], jax.tree.leaves(blocks)[0]
    size = len(w) if len(first) == 1 else first.shape[1]
    start = Summed(jnp.zeros((M, M)), jnp.zeros((M, C)), jnp.zeros((C, C)), jnp.zeros(()))
    total, kept = jax.lax.scan(add, start, (blocks, in_blocks(w, size), in_blocks(t, size)))
    return total._replace(gram=0.5 * (total.gram + total.gram.T)), kept


def whitening(cross: Any, L: Float[Array, "M M"]) -> Callable[[Array], tuple[Array, Array]]:
    """V and k of a block of rows from K_fu and k."""
    solve = solver(L)

    def white(rows: Array) -> tuple[Array, Array]:
        K, k = cross(rows)
        return solve(K.T, False), k

    return white


def solver(L: Float[Array, "M M"]) -> Callable[[Array, bool], Array]:
    """L⁻¹ or L⁻ᵀ times columns: by products with the inverse where they are many, which is made once for all blocks."""
    inverse = solve_triangular(L, jnp.eye(len(L)), lower=True)

    def solve(columns: Float[Array, "M n"], transposed: bool) -> Float[Array, "M n"]:
        if columns.shape[-1] > len(L):
            return (inverse.T if transposed else inverse) @ columns
        return solve_triangular(L, columns, lower=True, trans="T" if transposed else "N")

    return solve


@functools.partial(jax.custom_vjp, nondiff_argnums=(5, 6))
def log_det_and_gram(
    cross: Any, rows: Array, K: Array, w: Array, t: Array, rule: Rule, natural: bool
) -> tuple[Float[Array, ""], Float[Array, "C C"]]:
    """log|I + KW| and hᵀΣh of natural sites with shifts t, or TᵀC⁻¹T of values t that were seen; NaN without a density.

    `cross` is a pytree that makes K_fu (n, M) and k (n,) of a block of rows, and K is K_uu.
    """
    return _forward(cross, rows, K, w, t, rule, natural)[0]


def _forward(cross: Any, rows: Array, K: Array, w: Array, t: Array, rule: Rule, natural: bool) -> tuple[Any, tuple]:
    L = jnp.linalg.cholesky(K)
    keep = where.backend() != "cpu" and 8 * rows.shape[0] * rows.shape[1] * len(L) <= KEPT
    sums, V = _summed(whitening(cross, L), rows, len(L), w, t, rule, natural, keep)
    R = jnp.linalg.cholesky(jnp.eye(len(K)) + sums.gram)
    m = cho_solve((R, True), sums.cross)
    explained = sums.cross.T @ m
    forms = sums.own + explained if natural else sums.own - explained
    log_det = 2 * jnp.sum(jnp.log(jnp.diagonal(R))) + sums.charge
    return (log_det, 0.5 * (forms + forms.T)), (cross, rows, L, R, m, w, t, V)


def _backward(rule: Rule, natural: bool, saved: tuple, to: tuple[Array, Array]) -> tuple:
    cross, rows, L, R, m, w, t, kept = saved
    a, G = to[0], 0.5 * (to[1] + to[1].T)
    S = G if natural else -G
    inverse, solve = cho_solve((R, True), jnp.eye(len(L))), solver(L)

    def pull(total: tuple[Any, Array], block: tuple[Array, Array, Array, Any]) -> tuple[Any, Any]:
        x, w, t, V = block
        (K, k), back = jax.vjp(lambda cross: cross(x), cross)
        V = solve(K.T, False) if V is None else V
        AV = inverse @ V
        of = of_rows(V, k, w, t, rule, natural)
        got = pulled(of, jnp.sum(V * AV, axis=0), V.T @ m, t, a, G, rule, natural)
        to_V = 2 * (a * AV * of.e + m @ S @ got.residual.T - V * got.d)
        to_K = solve(to_V, True)
        more = back((to_K.T, got.d))[0], (V * got.d) @ V.T if rule.share else total[1]
        return jax.tree.map(jnp.add, total, more), (got.w, got.t)

    start = jax.tree.map(jnp.zeros_like, cross), jnp.zeros_like(L)
    size = rows.shape[1]
    (to_cross, VcV), (to_w, to_t) = jax.lax.scan(pull, start, (rows, in_blocks(w, size), in_blocks(t, size), kept))
    if rule.charged and not rule.share:  # c = a e
        VcV = a * (R @ R.T - jnp.eye(len(L)))
    inner = a * (jnp.eye(len(L)) - inverse) + m @ S @ m.T - 0.5 * (VcV + VcV.T)
    half = solve_triangular(L, inner, lower=True, trans="T")
    to_Kuu = -solve_triangular(L, half.T, lower=True, trans="T")
    joined = lambda values: values.reshape(-1, *values.shape[2:])[: len(w)]
    return to_cross, jnp.zeros_like(rows), to_Kuu, joined(to_w), joined(to_t)


log_det_and_gram.defvjp(_forward, _backward)
