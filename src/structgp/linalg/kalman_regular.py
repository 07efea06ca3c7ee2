"""The filter on equally spaced places with one precision: the gain settles, and then only the mean runs.

After `settle` exact steps P no longer changes (to rounding), so k and d are frozen, and with K = w k, L = A − A K H

    v_i = y_i − H m⁻_i,     m⁻_{i+1} = L m⁻_i + A K y_i.

A block of 16 places turns this into products: v = (I − U) y − O m⁻, m⁻ ← L¹⁶ m⁻ + G y, with O_j = H L^j, U_jl = H
L^{j−l−1} A K (l < j) and G_l = L^{15−l} A K. Derivatives settle later than P itself, which is why `settling_steps`
doubles what P needs.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from structgp.linalg import kalman
from structgp.linalg.chain_algebra import observed_first
from structgp.linalg.chains import Chain
from structgp.linalg.small import product

_BLOCK = 16
_TOLERANCE = 1e-15


def _settled_covariance(chain, gap, w, steps):
    """P⁻ after `steps` steps, and the change of the last one relative to the prior variances."""
    A, V = chain.transition(gap), chain.start()
    scale = jnp.sqrt(jnp.diagonal(V))
    scale = scale[:, None] * scale[None, :]

    def body(P, _):
        d = 1.0 + w * P[0, 0]
        k = P[:, :1] / d
        P_f = P - w * d * k * k.T
        P_new = product(product(A, P_f - V), A.T) + V
        return P_new, jnp.max(jnp.abs(P_new - P) / scale)

    return lax.scan(body, V, None, length=steps)


def settling_steps(chain: Chain, gap: float, precision: float, limit: int = 4096) -> int | None:
    """How many exact steps `evidence` needs: a power of two, or None if more than `limit` (outside of jit)."""
    chain = observed_first(chain)
    if not chain.stationary:
        return None
    _, change = jax.jit(_settled_covariance, static_argnums=3)(chain, jnp.asarray(gap), jnp.asarray(precision), limit // 2)
    moving = np.flatnonzero(np.asarray(change) > _TOLERANCE)
    steps = 2 * (moving[-1] + 2) if len(moving) else 2
    return None if steps > limit else max(16, 2 ** int(np.ceil(np.log2(steps))))


def evidence(
    chain: Chain, gap: Float[Array, ""], precision: Float[Array, ""], columns: Float[Array, "N C"], *, settle: int
) -> tuple[Float[Array, ""], Float[Array, "C C"]]:
    """`kalman.evidence` with all gaps and all precisions equal.

    The full filter runs instead where P has not settled after `settle` steps.
    """
    chain = observed_first(chain)
    if settle >= len(columns) or not chain.stationary:
        return _evidence_full(chain, gap, precision, columns)
    leaves, treedef = jax.tree.flatten(chain)
    return _evidence_either((treedef, settle), leaves, jnp.asarray(gap), jnp.asarray(precision), columns)


def _evidence_full(chain, gap, w, columns):
    N = len(columns)
    return kalman.evidence(chain, jnp.broadcast_to(gap, (N,)), jnp.broadcast_to(w, (N,)), columns)


def _choose(static, leaves, gap, w, columns, finish):
    """`finish` applied to the settled or to the full filter, as functions of (leaves, gap, w, columns)."""
    treedef, settle = static
    chain = jax.tree.unflatten(treedef, leaves)
    fast = lambda leaves, *data: _evidence_settled(jax.tree.unflatten(treedef, leaves), *data, settle)
    full = lambda leaves, *data: _evidence_full(jax.tree.unflatten(treedef, leaves), *data)
    _, change = _settled_covariance(chain, gap, w, settle // 2)
    return lax.cond(change[-1] <= 4 * _TOLERANCE, lambda: finish(fast), lambda: finish(full))


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _evidence_either(static, leaves, *data):
    return _choose(static, leaves, *data, lambda f: f(leaves, *data))


def _either_fwd(static, leaves, *data):
    return _evidence_either(static, leaves, *data), (leaves, *data)


def _either_bwd(static, kept, cotangents):
    # the branches are differentiated inside: a differentiated `cond` would carry the residuals of both
    return _choose(static, *kept, lambda f: jax.vjp(f, *kept)[1](cotangents))


_evidence_either.defvjp(_either_fwd, _either_bwd)


def _evidence_settled(chain, gap, w, columns, settle):
    m, P, log_det, gram = _exact_steps(chain, gap, w, columns[:settle])
    A = chain.transition(gap)
    d = 1.0 + w * P[0, 0]
    AK = A @ (w * P[:, :1] / d)
    L = A - AK * np.eye(len(A))[0]
    n = len(columns) - settle
    v = _frozen(L, AK, m, columns[settle:])
    return log_det + n * jnp.log(d / w), gram + (w / d) * (v.T @ v)


def _exact_steps(chain, gap, w, columns):
    """(m⁻, P⁻) after the steps, and their part of (log_det, gram)."""
    A, V = chain.transition(gap), chain.start()

    def body(state, t):
        m, P = state
        d = 1.0 + w * P[0, 0]
        k = P[:, :1] / d
        e = (t - m[0])[None]
        P_f = P - w * d * k * k.T
        state = product(A, m + w * k * e), product(product(A, P_f - V), A.T) + V
        return state, (d, e[0])

    first = jnp.zeros((len(A), columns.shape[1]), columns.dtype), V
    (m, P), (d, e) = lax.scan(body, first, columns)
    return m, P, jnp.sum(jnp.log(d / w)), (e * (w / d)[:, None]).T @ e


def _frozen(L, AK, m, columns):
    """The innovations with frozen gain."""
    n, C = columns.shape
    powers = [jnp.eye(len(L), dtype=L.dtype)]
    for _ in range(_BLOCK):
        powers.append(powers[-1] @ L)
    O = jnp.stack([p[0] for p in powers[:_BLOCK]])
    G = jnp.concatenate([p @ AK for p in powers[_BLOCK - 1 :: -1]], 1)
    lag = (O @ AK)[:, 0]
    i = np.arange(_BLOCK)
    U = jnp.where(i[:, None] > i[None, :], lag[np.maximum(i[:, None] - i[None, :] - 1, 0)], 0.0)
    Y = jnp.pad(columns, ((0, -n % _BLOCK), (0, 0))).T.reshape(C, -1, _BLOCK)

    def body(m, push):
        return product(powers[_BLOCK], m) + push, m

    _, begins = lax.scan(body, m, jnp.transpose(Y @ G.T, (1, 2, 0)))
    v = Y @ (np.eye(_BLOCK) - U).T - jnp.transpose(begins, (2, 0, 1)) @ O.T
    return v.reshape(C, -1).T[:n]
