"""The marginals of a chain given natural sites, and nothing else: one pass forwards, one back, few numbers kept.

The iterations that look for sites call this often. Between the passes only the gains k and the predicted mean and variance of
the value are kept; transitions are computed again. In the notation of `kalman`, with d = 1 + w p,

    E f = m⁻₁ + (p/d) (h − w m⁻₁) + kᵀr,      Var f = p/d − kᵀN k.

The log determinant is NaN if the sites leave no density.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from structgp.linalg.filters import kalman, kalman_emission
from structgp.linalg.filters.kalman_smooth import Smoothed
from structgp.linalg.markov.chain_algebra import observed_first
from structgp.linalg.markov.chains import Chain
from structgp.linalg.small import form_of


class ChainMarginals(NamedTuple):
    """Means and variance of the value at every place, log|I + KW| and hᵀ(K⁻¹ + W)⁻¹h."""

    mean: Float[Array, "N C"]
    variance: Float[Array, " N"]
    log_det: Float[Array, ""]
    gram: Float[Array, "C C"]


def marginals(
    chain: Chain,
    t: Float[Array, " N"],
    precision: Float[Array, " N"],
    shifts: Float[Array, "N C"],
    which: Int[Array, " N"] | None = None,
    *,
    accurate: bool = True,
    segment: int = 128,
) -> ChainMarginals:
    """The marginals at sorted places t for sites exp(h f − ½ w f²), w of any sign: infinite or NaN if they are no density."""
    if chain.varies:
        return of_smoothed(kalman_emission.smooth(chain, t, precision, shifts, which, natural=True), precision, shifts)
    options = kalman.Options(accurate or not chain.stationary, True, min(segment, len(t)))
    chain = observed_first(chain)
    form = form_of(chain.size, shifts.shape[-1])
    gaps = jnp.diff(t, prepend=t[:1])
    data = tuple(kalman.segments(x, options) for x in (gaps, precision, shifts))
    column = lambda M: jnp.moveaxis(form.array(form.unpack(M))[0], 0, -1)
    V = kalman.base(form, chain, options)
    stream = lambda gaps, w, T: kalman.stream(form, options, kalman._moves(chain, gaps, options), w, T)

    def forwards(state, x):
        def body(state, x):
            A, Q, w, t = kalman.read(form, x)
            m, P, _ = kalman.reach(form, options, V, *kalman.unpack_state(form, state), A, Q)
            p, mean = form.pack(P[..., :1, :1]), form.pack(m[..., :1, :])
            m, P, k = kalman.see(form, options, m, P, w, t)
            return kalman.pack_state(form, m, P), (p, mean, form.pack(k))

        state, (p, mean, k) = lax.scan(body, state, stream(*x))
        return state, ((p, mean, k), kalman._sums(options, x[1], x[2], column(p), column(mean)))

    def backwards(state, x):
        *site, seen = x

        def body(state, x):
            (A, _, w, t), (p, mean, k) = kalman.read(form, x[0]), (form.unpack(a) for a in x[1])
            r, N, kr, kNk = kalman.unsee(form, options, *kalman.unpack_state(form, state), w, t, k, p, mean)
            state = kalman.pack_state(form, form.product(A.mT, r), form.product(form.product(A.mT, N), A))
            return state, (form.pack(kr), form.pack(kNk))

        state, (kr, kNk) = lax.scan(body, state, (stream(*site), seen), reverse=True)
        w, T, p, mean = site[1][:, None], site[2], column(seen[0]), column(seen[1])
        d = 1.0 + w * p
        return state, (mean + p / d * (T - w * mean) + column(kr), (p / d - column(kNk))[:, 0])

    P = chain.start().astype(shifts.dtype)
    zero = form.of(jnp.zeros((chain.size, shifts.shape[-1]), shifts.dtype))
    _, (seen, (log_dets, grams)) = lax.scan(forwards, kalman.pack_state(form, zero, form.of(0.5 * (P + P.T))), data)
    last = kalman.pack_state(form, zero, form.of(jnp.zeros_like(P)))
    _, (mean, variance) = lax.scan(backwards, last, (*data, seen), reverse=True)
    whole = lambda x: x.reshape(-1, *x.shape[2:])[: len(t)]
    p = whole(form.array(form.unpack(seen[0]))[0, 0])
    return ChainMarginals(whole(mean), whole(variance), _if_density(jnp.sum(log_dets), precision, p), jnp.sum(grams, 0))


def of_smoothed(smoothed: Smoothed, w: Float[Array, " N"], h: Float[Array, "N C"]) -> ChainMarginals:
    """The same from all that is known at the places."""
    p, mean = smoothed.predicted_variance, smoothed.predicted_mean
    log_det, gram = kalman.site_sums(w, h, p, mean, natural=True)
    return ChainMarginals(*smoothed.marginals(), _if_density(log_det, w, p), gram)


def _if_density(log_det, w, p):
    """The log determinant, or NaN where K⁻¹ + W has a negative eigenvalue."""
    negative = jnp.sum(jnp.where(1.0 + w * p < 0, -jnp.sign(w), 0.0))
    return jnp.where(negative == 0, log_det, jnp.nan)
