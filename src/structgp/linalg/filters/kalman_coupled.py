"""Chains side by side whose values are coupled place by place by factors exp(hᵀf − ½ fᵀΠf), exactly, in O(N).

Π = Σ_k w_k r_k r_kᵀ (`blocks.scalar_factors`) is C scalar factors of precision w_k, of any sign. With the rows H_c that read
the values out of the stacked state z, a place is seen by

    u_k = r_kᵀH,   d = 1 + w_k u_k P u_kᵀ,   g = P u_kᵀ/d,   m ← m − w_k g (u_k m),   P ← P − w_k d g gᵀ

for each k in turn, and then by its shift, m ← m + P Hᵀh. Backwards run (r, N) of `kalman`: E z = m + P r, Cov z = P − P N P.
Every d < 0 is one negative eigenvalue of K⁻¹ + Π more where w < 0, and one less where w > 0: unless none is left there is no
density, and log|I + KΠ| is NaN.

Gradients in the chains and the shifts are left to JAX; only the state at the beginning of each segment is kept for them.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from structgp.linalg.blocks import Blocks, scalar_factors
from structgp.linalg.dense.coupled import CoupledMarginals
from structgp.linalg.filters.kalman_smooth import Smoothed
from structgp.linalg.markov.chain_algebra import Sum
from structgp.linalg.small import Broadcast, Dense, form_of


class Stacked(Sum):
    """Independent chains, each with a value of its own: the state is read by `values`, in the basis that it has."""

    varies = False

    @property
    def row(self):
        return np.eye(sum(part.size for part in self.parts))[0]

    def values(self, t: Float[Array, " N"]) -> Float[Array, "N C D"]:
        """The rows that read the value of each chain out of the state, at every place."""
        return jnp.stack([self.part_rows(i, t).T for i in range(len(self.parts))], axis=1)


def evidence(
    chain: Stacked, t: Float[Array, " N"], P: Blocks, h: Float[Array, "N C k"], *, segment: int = 128
) -> tuple[Float[Array, ""], Float[Array, "k k"]]:
    """log|I + KΠ| and hᵀΣh at sorted places t, differentiable in the chain and in h."""
    segment = min(segment, len(t))
    step = _step_of(chain.size)

    @jax.checkpoint
    def run(state, x):
        gaps, *rest = x
        state, (log_det, gram, *_) = lax.scan(step, state, (*_moves(chain, gaps), *rest))
        return state, (jnp.sum(log_det), jnp.sum(gram, 0))

    cut = lambda x: jnp.pad(x, [(0, -len(t) % segment)] + [(0, 0)] * (x.ndim - 1)).reshape(-1, segment, *x.shape[1:])
    streams = (jnp.diff(t, prepend=t[:1]), *_seen_by(chain, t, P), h)
    _, (log_dets, grams) = lax.scan(run, _first(chain, h), tuple(cut(x) for x in streams))
    return jnp.sum(log_dets), jnp.sum(grams, 0)


def smooth(chain: Stacked, t: Float[Array, " N"], sites: Blocks, h: Float[Array, "N C k"]) -> tuple[Smoothed, CoupledMarginals]:
    """Everything known at sorted places t: of the state, and of the values."""
    moves, (H, U, w) = _moves(chain, jnp.diff(t, prepend=t[:1])), _seen_by(chain, t, sites)
    _, (log_dets, grams, seen, m, P) = lax.scan(_step_of(chain.size), _first(chain, h), (*moves, H, U, w, h))
    zero = jnp.zeros_like(m[0]), jnp.zeros_like(P[0])
    _, (r, N, r_seen, N_seen) = lax.scan(_step_back_of(chain.size), zero, (moves[0], H, U, w, h, seen), reverse=True)
    HP = H @ P
    mean = H @ m + HP @ r
    covariance = HP @ H.mT - HP @ N @ HP.mT
    smoothed = Smoothed(m, P, r, N, r_seen, N_seen, mean[:, 0], covariance[:, 0, 0])
    return smoothed, CoupledMarginals(mean, covariance, _if_density(jnp.sum(log_dets), w, seen), jnp.sum(grams, 0))


def _moves(chain, gaps):
    return jnp.moveaxis(chain.transition(gaps), -1, 0), jnp.moveaxis(chain.noise(gaps), -1, 0)


def _first(chain, h):
    return jnp.zeros((chain.size, h.shape[-1]), h.dtype), chain.start().astype(h.dtype)


def _product_of(size):
    """Matrix times matrix, in the form that suits the size of the state."""
    return (Dense if form_of(size) is Dense else Broadcast).product


def _seen_by(chain, t, P):
    """H, u and w: how the values and what each scalar factor sees are read out of the state."""
    weights, rows = lax.stop_gradient(scalar_factors(P))
    H = chain.values(t)
    return H, rows @ H, weights


def _if_density(log_det, w, seen):
    """The log determinant, or NaN where factors leave no density."""
    d = jnp.stack([d for d, _, _ in seen], axis=1)
    return jnp.where(jnp.sum(jnp.where(d < 0, jnp.sign(w), 0.0)) == 0, log_det, jnp.nan)


def _step_of(size):
    product = _product_of(size)

    def step(state, x):
        (m, P), (A, Q, H, U, weights, h) = state, x
        m, P = product(A, m), product(product(A, P), A.T) + Q
        log_det, gram, seen = 0.0, 0.0, []
        for w, u in zip(weights, U, strict=True):
            g, mean = jnp.sum(P * u, 1), jnp.sum(m * u[:, None], 0)
            d = 1.0 + w * jnp.sum(u * g)
            g = g / d
            m, P = m - (w * g)[:, None] * mean, P - (w * d) * g[:, None] * g
            log_det, gram = log_det + jnp.log(jnp.abs(d)), gram - w / d * mean[:, None] * mean
            seen.append((d, g, mean))
        P = 0.5 * (P + P.T)
        push = product(H.T, h)
        moved, cross = product(P, push), product(push.T, m)
        gram = gram + cross + cross.T + product(push.T, moved)
        m = m + moved
        return (m, P), (log_det, gram, tuple(seen), m, P)

    return step


def _step_back_of(size):
    product = _product_of(size)

    def step(state, x):
        (r, N), (A, H, U, weights, h, seen) = state, x
        r_, N_ = r + product(H.T, h), N
        for k in reversed(range(len(seen))):
            w, u, (d, g, mean) = weights[k], U[k], seen[k]
            Ng = jnp.sum(N_ * g, 1)
            pull = -w * (mean / d + jnp.sum(r_ * g[:, None], 0))
            r_ = r_ + u[:, None] * pull
            N_ = N_ - w * (u[:, None] * Ng + Ng[:, None] * u) + (w / d + w * w * jnp.sum(g * Ng)) * u[:, None] * u
        return (product(A.T, r_), product(product(A.T, N_), A)), (r, N, r_, N_)

    return step
