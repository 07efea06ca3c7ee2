"""The filter as an associative scan over places, for machines with many lanes.

A place is the message (A, b, C, η, J): given the state before it, the state after it is N(A z + b, C), and its site
says exp(ηᵀz − ½ zᵀJz) about the state before. Two neighbouring messages make one,

    D = (I + C₁J₂)⁻¹,   A = A₂DA₁,   b = A₂D(b₁ + C₁η₂) + b₂,   C = A₂DC₁A₂ᵀ + C₂,
    η = A₁ᵀDᵀ(η₂ − J₂b₁) + η₁,   J = A₁ᵀDᵀJ₂A₁ + J₁,

and the prefix that begins with the start holds the filtered (b, C) = (m, P). Matrices are arrays (D, D, places) and
products are sums over entries, never `dot`. Means of several columns share everything but b and η.
"""

import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from structgp.linalg.chain_algebra import observed_first
from structgp.linalg.chains import Chain


def _product(A, B):
    """A B over the leading axes."""
    return sum(A[:, k, None] * B[None, k] for k in range(A.shape[1]))


def _t(A):
    return jnp.swapaxes(A, 0, 1)


def _inverse(M):
    D = M.shape[0]
    if D == 1:
        return 1.0 / M
    if D == 2:
        a, b, c, d = M[0, 0], M[0, 1], M[1, 0], M[1, 1]
        return jnp.stack([jnp.stack([d, -b]), jnp.stack([-c, a])]) / (a * d - b * c)
    if D == 3:
        minor = lambda i, j: (
            M[(i + 1) % 3, (j + 1) % 3] * M[(i + 2) % 3, (j + 2) % 3]
            - M[(i + 1) % 3, (j + 2) % 3] * M[(i + 2) % 3, (j + 1) % 3]
        )
        adjugate = [[minor(j, i) for j in range(3)] for i in range(3)]
        det = sum(M[0, j] * adjugate[j][0] for j in range(3))
        return jnp.stack([jnp.stack(row) for row in adjugate]) / det
    return jnp.moveaxis(jnp.linalg.inv(jnp.moveaxis(M, (0, 1), (-2, -1))), (-2, -1), (0, 1))


def _join(first, second):
    A1, b1, C1, eta1, J1 = first
    A2, b2, C2, eta2, J2 = second
    I = np.eye(A1.shape[0]).reshape(*A1.shape[:2], *(1,) * (A1.ndim - 2))
    D = _inverse(I + _product(C1, J2))
    A2D, A1D = _product(A2, D), _t(_product(D, A1))
    return (
        _product(A2D, A1),
        _product(A2D, b1 + _product(C1, eta2)) + b2,
        _product(_product(A2D, C1), _t(A2)) + C2,
        _product(A1D, eta2 - _product(J2, b1)) + eta1,
        _product(_product(A1D, J2), A1) + J1,
    )


def _messages(chain, gaps, w, T):
    """One message per place; columns T (C, places)."""
    A, Q = chain.transition(gaps), chain.noise(gaps)
    # the first place is reached from nowhere: A = 0 and Q = start
    first = np.arange(len(gaps)) == 0
    A, Q = jnp.where(first, 0.0, A), jnp.where(first, chain.start()[..., None], Q)
    d = 1.0 + w * Q[0, 0]
    k = Q[:, :1] / d
    row = A[:1]
    wT = (w * T)[None]
    eta = _t(row) * (wT / d)
    return A - w * k * row, k * wT, Q - w * d * k * _t(k), eta, _t(row) * row * (w / d)


def filter_states(
    chain: Chain, gaps: Float[Array, " N"], precision: Float[Array, " N"], columns: Float[Array, "N C"]
) -> tuple[Float[Array, "D C N"], Float[Array, "D D N"]]:
    """Filtered (m, P) at all places, in the basis of `observed_first`."""
    chain = observed_first(chain)
    columns = jnp.where(precision[:, None] == 0, 0.0, columns)
    messages = _messages(chain, gaps, precision, columns.T)
    _, m, P, _, _ = lax.associative_scan(_join, messages, axis=-1)
    return m, P


def evidence(
    chain: Chain, gaps: Float[Array, " N"], precision: Float[Array, " N"], columns: Float[Array, "N C"]
) -> tuple[Float[Array, ""], Float[Array, "C C"]]:
    """The same as `kalman.evidence`."""
    chain = observed_first(chain)
    w = jnp.where(precision == 0, 0.0, precision)
    columns = jnp.where(w[:, None] == 0, 0.0, columns)
    m, P = filter_states(chain, gaps, w, columns)
    row = chain.transition(gaps[1:])[:1]
    mean = jnp.concatenate([jnp.zeros_like(m[0, :, :1]), _product(row, m[..., :-1])[0]], -1)
    p = _product(_product(row, P[..., :-1]), _t(row))[0, 0] + chain.noise(gaps[1:])[0, 0]
    d = 1.0 + w * jnp.concatenate([chain.start()[:1, 0], p])
    e = columns.T - mean
    log_det = jnp.sum(jnp.where(w > 0, jnp.log(d / jnp.where(w > 0, w, 1.0)), 0.0))
    return log_det, jnp.sum((w / d * e)[:, None] * e[None], -1)
