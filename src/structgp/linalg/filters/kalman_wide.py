"""The evidence of several outputs: one prediction for a time, then an update for each output that may be seen there.

The numbers are those of `kalman_emission`, whose rows of one time follow each other without a move. Where the noise is not
small the predicted covariance is P⁻ = A (P − V) Aᵀ + V, V that of the stationary state: no closed form of Q is needed.
"""

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from structgp.linalg.filters.kalman_emission import sums
from structgp.linalg.markov.chain_base import Chain
from structgp.linalg.small import Broadcast, Dense, form_of

_UNROLLED = 4  # outputs up to which their updates are written out


def evidence(
    chain: Chain,
    t: Float[Array, " S"],
    which: Int[Array, "S P"] | None,
    precision: Float[Array, "S P"],
    columns: Float[Array, "S P C"],
    *,
    accurate: bool = True,
    segment: int = 128,
) -> tuple[Float[Array, ""], Float[Array, "C C"]]:
    """(log_det, gram) of `kalman.evidence`, at sorted times t: P values at each, of all outputs or of those given."""
    outputs, segment = precision.shape[1], min(segment, len(t))
    difference = chain.stationary and not accurate
    w = jnp.where(precision == 0, 0.0, precision)
    T = jnp.where(w[:, :, None] == 0, 0.0, columns)
    V = chain.start().astype(T.dtype)
    V = 0.5 * (V + V.T)
    product = (Dense if form_of(chain.size) is Dense else Broadcast).product

    def see(state, x):
        (m, P), (h, w, y) = state, x
        Ph = jnp.sum(P * h, 1)
        p, mean = jnp.sum(h * Ph), jnp.sum(m.T * h, 1)
        g = Ph / (1.0 + w * p)
        return (m + (w * g)[:, None] * (y - mean), P - (w * g)[:, None] * Ph), (p, mean)

    def step(state, x):
        (m, P), (t, which, A, Q, w, y) = state, x
        P = product(product(A, P - V), A.T) + V if difference else product(product(A, P), A.T) + Q
        state = product(A, m), 0.5 * (P + P.T)
        h = chain.rows(jnp.broadcast_to(t, (outputs,)), jnp.arange(outputs) if which is None else which).T
        if outputs > _UNROLLED:
            return lax.scan(see, state, (h, w, y))
        seen = []
        for i in range(outputs):
            state, found = see(state, (h[i], w[i], y[i]))
            seen.append(found)
        return state, jax.tree.map(lambda *parts: jnp.stack(parts), *seen)

    @jax.checkpoint
    def run(state, x):
        t, which, gaps, w, y = x
        A = jnp.moveaxis(chain.transition(gaps), -1, 0)
        Q = jnp.zeros((len(gaps), 0)) if difference else jnp.moveaxis(chain.noise(gaps), -1, 0)
        state, (p, mean) = lax.scan(step, state, (t, which, A, Q, w, y))
        flat = lambda part: part.reshape(-1, *part.shape[2:])
        return state, sums(False, flat(w)[:, None], flat(y), flat(p)[:, None], flat(mean))

    gaps = jnp.diff(t, prepend=t[:1])
    pad = -len(t) % segment
    cut = lambda x: jnp.pad(x, [(0, pad)] + [(0, 0)] * (x.ndim - 1)).reshape(-1, segment, *x.shape[1:])
    first = jnp.zeros((chain.size, T.shape[2]), T.dtype), V
    _, (log_dets, grams) = lax.scan(run, first, (cut(t), None if which is None else cut(which), cut(gaps), cut(w), cut(T)))
    return jnp.sum(log_dets), jnp.sum(grams, 0)
