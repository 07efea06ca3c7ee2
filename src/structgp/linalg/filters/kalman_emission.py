"""The filter and the smoother for chains whose observed row depends on the place: f(t) = h(t) z(t).

The same numbers as `kalman` and `kalman_smooth`, with h in place of the first coordinate. One step from the filtered (m, P) of
the neighbour, and one back from (r, N):

    m⁻ = A m,   P⁻ = A P Aᵀ + Q,   d = 1 + w h P⁻ hᵀ,   g = P⁻hᵀ/d,   e = w (y − h m⁻)  [or y − w h m⁻ for natural sites]
    m  = m⁻ + g e,   P = P⁻ − w d g gᵀ   with P hᵀ = g to the last digit
    u  = e/d − w gᵀr,   D = w/d + w² gᵀN g,   r⁻ = r + hᵀu,   N⁻ = N − w (hᵀ gᵀN + N g h) + D hᵀh.

What comes back is in the basis of `chain_algebra.ValueFirst`, the state (f, z): the covariance of f with z is g, and later
places know of z only. So everything that reads f as the first coordinate reads it right. Rows at new places read z.

Gradients are left to JAX; only the state at the beginning of each segment is kept for them.
"""

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from structgp.linalg.filters import kalman_smooth
from structgp.linalg.filters.kalman import Others
from structgp.linalg.filters.kalman_smooth import Smoothed
from structgp.linalg.markov.chain_base import Chain
from structgp.linalg.small import Broadcast, Dense, form_of


def evidence(
    chain: Chain,
    t: Float[Array, " N"],
    precision: Float[Array, " N"],
    columns: Float[Array, "N C"],
    which: Int[Array, " N"] | None = None,
    *,
    natural: bool = False,
    segment: int = 128,
    others: Others | None = None,
) -> tuple[Float[Array, ""], Float[Array, "C C"]]:
    """(log_det, gram) of `kalman.evidence`, at sorted places t, of several outputs each with the one that is seen there."""
    found, last = filtered(
        chain, t, precision, columns, which, natural=natural, segment=segment, begin=_begin(chain, columns, others)
    )
    return found if others is None else _tied(found, last, others)


def filtered(chain, t, precision, columns, which=None, *, natural=False, segment=128, begin):
    """(log_det, gram), and (m, P) of z after the last place."""
    places = streams(chain, t, precision, columns, natural, which)
    segment = min(segment, len(t))

    @jax.checkpoint
    def run(state, x):
        gaps, h, w, T = x
        state, (p, mean, *_) = lax.scan(step_of(chain.size, natural), state, (*_moves(chain, gaps), h, w, T))
        return state, sums(natural, w[:, None], T, p[:, None], mean)

    cut = lambda x: jnp.pad(x, [(0, -len(t) % segment)] + [(0, 0)] * (x.ndim - 1)).reshape(-1, segment, *x.shape[1:])
    last, (log_dets, grams) = lax.scan(run, begin, tuple(cut(x) for x in places))
    return (jnp.sum(log_dets), jnp.sum(grams, 0)), last


@jax.custom_vjp
def _tied(found, last, others):
    """(log_det, gram) of a part, through whose last (m, P) the places after it depend on it as their (r, N) say."""
    return found


def _tied_back(others, cotangents):
    l, M = cotangents[0], cotangents[1] + cotangents[1].T
    last = -others.r @ M, l * others.N - 0.5 * others.r @ M @ others.r.T
    return cotangents, last, jax.tree.map(jnp.zeros_like, others)


_tied.defvjp(lambda found, last, others: (found, others), _tied_back)


def _begin(chain, columns, others):
    """(m, P) at the first place; that of the first part depends on the chain."""
    start = _first(chain, columns)
    if others is None:
        return start
    return others.m, others.P + others.first * (start[1] - lax.stop_gradient(start[1]))


def smooth(
    chain: Chain,
    t: Float[Array, " N"],
    precision: Float[Array, " N"],
    columns: Float[Array, "N C"],
    which: Int[Array, " N"] | None = None,
    *,
    natural: bool = False,
    others: Others | None = None,
) -> Smoothed:
    """Everything known at sorted places t, for the state (f, z); of a part with what `others` say of z."""
    gaps, h, w, T = streams(chain, t, precision, columns, natural, which)
    moves = _moves(chain, gaps)
    begin = _begin(chain, columns, others)
    _, (p, mean, g, m, P) = lax.scan(step_of(chain.size, natural), begin, (*moves, h, w, T))
    last = (jnp.zeros_like(m[0]), jnp.zeros_like(P[0])) if others is None else others[2:4]
    backwards = _step_back_of(chain.size, natural)
    _, (r, N, r_seen, N_seen) = lax.scan(backwards, last, (moves[0], h, w, T, p, mean, g), reverse=True)
    value = jnp.sum(h[:, :, None] * m, 1, keepdims=True)
    of_value = jnp.concatenate([jnp.sum(h * g, 1, keepdims=True), g], 1)
    P = jnp.concatenate([of_value[:, None], jnp.concatenate([g[:, :, None], P], 2)], 1)
    vector, matrix = ((0, 0), (1, 0), (0, 0)), ((0, 0), (1, 0), (1, 0))
    r, r_seen = jnp.pad(r, vector), jnp.pad(r_seen, vector)
    N, N_seen = jnp.pad(N, matrix), jnp.pad(N_seen, matrix)
    return Smoothed(jnp.concatenate([value, m], 1), P, r, N, r_seen, N_seen, mean, p)


def advance(
    chain: Chain,
    state: tuple[Float[Array, "D C"], Float[Array, "D D"]],
    since: Float[Array, ""],
    t: Float[Array, " N"],
    precision: Float[Array, " N"],
    columns: Float[Array, "N C"],
    which: Int[Array, " N"] | None = None,
) -> tuple[tuple[Float[Array, "D C"], Float[Array, "D D"]], Float[Array, ""], Float[Array, "C C"]]:
    """The filtered (m, P) of z after N more places, from that at `since`, and what they add to log_det and gram."""
    _, h, w, T = streams(chain, t, precision, columns, False, which)
    gaps = jnp.diff(t, prepend=jnp.reshape(since, 1))
    state, (p, mean, *_) = lax.scan(step_of(chain.size, False), state, (*_moves(chain, gaps), h, w, T))
    return state, *sums(False, w[:, None], T, p[:, None], mean)


def read_rows(
    rows: Float[Array, "K D"], mean: Float[Array, "K D C"], covariance: Float[Array, "K D D"]
) -> tuple[Float[Array, "K C"], Float[Array, " K"]]:
    """Mean and variance of rows · z, each place with its own row; `chain_algebra.read_weights` turns rows for z into these."""
    return jnp.einsum("kd,kdc->kc", rows, mean), jnp.einsum("kd,kde,ke->k", rows, covariance, rows)


def prior_samples(
    chain: Chain, t: Float[Array, " N"], key: Array, count: int, which: Int[Array, " N"] | None = None
) -> Float[Array, "N count"]:
    """Samples of f at sorted places t."""
    states = kalman_smooth.prior_samples(chain, jnp.diff(t, prepend=t[:1]), key, count)
    return jnp.sum(chain.rows(t, which).T[:, :, None] * states[:, 1:], 1)


def posterior_samples(
    chain: Chain,
    t: Float[Array, " N"],
    precision: Float[Array, " N"],
    columns: Float[Array, "N 1"],
    key: Array,
    count: int,
    which: Int[Array, " N"] | None = None,
) -> Float[Array, "N count"]:
    """Joint samples of f at sorted places given the sites: a prior sample plus the smoothed mean of what it missed."""
    keys = jax.random.split(key)
    f = prior_samples(chain, t, keys[0], count, which)
    sd = jnp.where(precision > 0, 1.0 / jnp.sqrt(jnp.where(precision > 0, precision, 1.0)), 0.0)
    missed = columns - f - sd[:, None] * jax.random.normal(keys[1], (len(t), count), t.dtype)
    return f + smooth(chain, t, precision, missed, which).marginals()[0]


def streams(chain, t, precision, columns, natural, which=None):
    """What a loop reads at each place: gap, row, site."""
    if not natural:  # nothing seen: no value and no derivative either
        precision = jnp.where(precision == 0, 0.0, precision)
        columns = jnp.where(precision[:, None] == 0, 0.0, columns)
    return jnp.diff(t, prepend=t[:1]), chain.rows(t, which).T, precision, columns


def _moves(chain, gaps):
    return jnp.moveaxis(chain.transition(gaps), -1, 0), jnp.moveaxis(chain.noise(gaps), -1, 0)


def _first(chain, columns):
    P = chain.start().astype(columns.dtype)
    return jnp.zeros((chain.size, columns.shape[1]), columns.dtype), 0.5 * (P + P.T)


def _products(size):
    """Matrix times matrix, in the form that suits the size, and matrix times vector."""
    form = Dense if form_of(size) is Dense else Broadcast
    return form.product, lambda M, v: jnp.sum(M * v, 1)


def step_of(size, natural):
    """One step of the filter, for a loop over places: the new state, and what it saw."""
    product, times = _products(size)

    def step(state, x):
        (m, P), (A, Q, h, w, t) = state, x
        m, P = product(A, m), product(product(A, P), A.T) + Q
        Ph = times(P, h)
        p, mean = jnp.sum(h * Ph), times(m.T, h)
        d = 1.0 + w * p
        g = Ph / d
        m = m + g[:, None] * (t - w * mean if natural else w * (t - mean))
        P = _reading(P - (w * d) * g[:, None] * g, h, g)
        return (m, P), (p, mean, g, m, P)

    return step


def _reading(P, h, g):
    """The symmetric matrix nearest to P with P h = g, which holds but for rounding."""
    P = 0.5 * (P + P.T)
    size = jnp.sum(h * h)
    unit = h / jnp.where(size > 0, size, 1.0)
    miss = g - jnp.sum(P * h, 1)
    miss = miss - 0.5 * jnp.sum(miss * h) * unit
    return P + miss[:, None] * unit + unit[:, None] * miss


def _step_back_of(size, natural):
    product, times = _products(size)

    def step(state, x):
        (r, N), (A, h, w, t, p, mean, g) = state, x
        d = 1.0 + w * p
        e = t - w * mean if natural else w * (t - mean)
        Ng = times(N, g)
        r_ = r + h[:, None] * (e / d - w * times(r.T, g))
        N_ = N - w * (h[:, None] * Ng + Ng[:, None] * h) + (w / d + w * w * jnp.sum(g * Ng)) * h[:, None] * h
        return (product(A.T, r_), product(product(A.T, N_), A)), (r, N, r_, N_)

    return step


def sums(natural, w, T, p, mean):
    """A segment's terms of (log_det, gram), from (place, column) arrays."""
    d = 1.0 + w * p
    outer = lambda a, b: jnp.sum(a[:, :, None] * b[:, None, :], 0)
    if natural:
        cross = outer(T / d, mean)
        return jnp.sum(jnp.log(jnp.abs(d))), cross + cross.T - outer(w / d * mean, mean) + outer(p / d * T, T)
    e = T - mean
    return jnp.sum(jnp.where(w > 0, jnp.log(d / jnp.where(w > 0, w, 1.0)), 0.0)), outer(w / d * e, e)
