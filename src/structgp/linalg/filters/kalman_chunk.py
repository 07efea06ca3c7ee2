"""The filter for large states: several places at a time.

With z₀ the state at the end of the previous chunk, τ_i the distance from there to place i of the chunk, and B places,

    C_i = H A(τ_i),   K_ij = H A(τ_j − τ_i) Q(τ_i) Hᵀ  (i ≤ j),   X_i = A(τ_B − τ_i) Q(τ_i) Hᵀ
    S = I + W½ (C P Cᵀ + K) W½ = L Lᵀ,   [Y, v] = L⁻¹ W½ [C P A_Bᵀ + Xᵀ, T − C m]
    m ← A_B m + Yᵀ v,   P ← A_B P A_Bᵀ + Q_B − Yᵀ Y,    log_det += 2 Σ log L_ii,   gram += vᵀ v.

Only C, K, X, A_B and Q_B depend on the gaps; they are formed for many chunks at once. Nothing is subtracted from a
stationary covariance.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from structgp.linalg.markov.chains import Chain

_CHUNK = 8
_GROUP = 32  # chunks whose matrices exist at the same time


def evidence(
    chain: Chain, gaps: Float[Array, " N"], precision: Float[Array, " N"], columns: Float[Array, "N C"]
) -> tuple[Float[Array, ""], Float[Array, "C C"]]:
    """(log |K + W⁻¹|, Tᵀ (K + W⁻¹)⁻¹ T) over the places with positive precision; `gaps[0]` is normally 0."""
    group = min(_GROUP, -(-len(gaps) // _CHUNK))
    pad = -len(gaps) % (_CHUNK * group)
    cut = lambda x: jnp.pad(x, [(0, pad)] + [(0, 0)] * (x.ndim - 1)).reshape(-1, group, _CHUNK, *x.shape[1:])

    @jax.checkpoint
    def run(state, x):
        gaps, w, T = x
        return lax.scan(_step, state, (*_chunk_matrices(chain, gaps), w, T))

    first = jnp.zeros((chain.size, columns.shape[1]), columns.dtype), chain.start()
    _, (log_det, gram) = lax.scan(run, first, (cut(gaps), cut(precision), cut(columns)))
    log_w = jnp.sum(jnp.where(precision > 0, jnp.log(jnp.where(precision > 0, precision, 1.0)), 0.0))
    return jnp.sum(log_det) - log_w, jnp.sum(gram, (0, 1))


def _chunk_matrices(chain, gaps):
    """C, K, X, A_B, Q_B for a group of chunks, gaps (chunk, B); chunks first."""
    places_first = lambda x: jnp.moveaxis(x, (-2, -1), (0, 1))
    tau = jnp.cumsum(gaps, 1)
    Qh = _noise_seen(chain, tau)  # (D, chunk, B)
    upper = np.triu(np.ones((_CHUNK, _CHUNK), bool))
    between = jnp.where(upper, tau[:, None, :] - tau[:, :, None], 0.0)  # from place i to a later j
    K = jnp.sum(chain.seen_transition(between) * Qh[..., None], 0)
    K = jnp.where(upper, K, 0.0)
    K = K + jnp.swapaxes(K, 1, 2) - K * np.eye(_CHUNK)
    X = jnp.sum(chain.transition(tau[:, -1:] - tau) * Qh[None], 1)
    C = places_first(chain.seen_transition(tau))
    last = lambda x: jnp.moveaxis(x, -1, 0)
    return C, K, jnp.moveaxis(X, 1, 0), last(chain.transition(tau[:, -1])), last(chain.noise(tau[:, -1]))


def _noise_seen(chain, tau):
    Q, H = chain.noise(tau), chain.row
    return sum(h * Q[:, i] for i, h in enumerate(H) if h)


def _step(state, x):
    m, P = state
    C, K, X, A, Q, w, T = x
    root = jnp.where(w > 0, jnp.sqrt(jnp.where(w > 0, w, 1.0)), 0.0)[:, None]
    CP = C @ P
    L = jnp.linalg.cholesky(np.eye(_CHUNK) + root * (CP @ C.T + K) * root.T)
    both = lax.linalg.triangular_solve(L, root * jnp.concatenate([CP @ A.T + X.T, T - C @ m], 1), left_side=True, lower=True)
    Y, v = both[:, : len(m)], both[:, len(m) :]
    P = A @ P @ A.T + Q - Y.T @ Y
    return (A @ m + Y.T @ v, P), (2 * jnp.sum(jnp.log(jnp.diagonal(L))), v.T @ v)
