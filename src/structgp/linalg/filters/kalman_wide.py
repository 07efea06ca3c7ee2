"""The evidence of several outputs: one prediction for a time, then an update for each output that may be seen there.

The numbers are those of `kalman_emission`, whose rows of one time follow each other without a move. Where the noise is not
small the predicted covariance is P⁻ = A (P − V) Aᵀ + V, V that of the stationary state: no closed form of Q is needed.

The adjoint is that of `kalman` with a row h in place of the first coordinate. Backwards over the outputs of a time, with
k = P⁻h/d and d = 1 + w hᵀP⁻h before each,

    u = w (y − hᵀm⁻)/d − w kᵀr,    r ← r + h u,    N ← N − w (h kᵀN + N k hᵀ) + (w/d + w² kᵀNk) h hᵀ,

then S = σ(r, N) reaches A by s r M mᵀ + 2 S X, X = A (P − V), and Q by itself; V collects σ(r, N) less what σ was after the
time. Rows that hold numbers to be learned are left to JAX.

States that do not drive each other, as those of filters and of shared functions, move by the blocks along the diagonal of A:
all products with it, and its cotangent, are those of blocks.
"""

import functools

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from structgp.linalg.filters.kalman import Options, site_cotangents
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
    adjoint: bool = True,
    segment: int = 128,
) -> tuple[Float[Array, ""], Float[Array, "C C"]]:
    """(log_det, gram) of `kalman.evidence`, at sorted times t: P values at each, of all outputs or of those given."""
    options = Options(accurate or not chain.stationary, False, min(segment, len(t)))
    w = jnp.where(precision == 0, 0.0, precision)
    T = jnp.where(w[:, :, None] == 0, 0.0, columns)
    pad = -len(t) % options.segment
    cut = lambda x: jnp.pad(x, [(0, pad)] + [(0, 0)] * (x.ndim - 1)).reshape(-1, options.segment, *x.shape[1:])
    data = cut(t), None if which is None else cut(which), cut(jnp.diff(t, prepend=t[:1])), cut(w), cut(T)
    if adjoint and chain.fixed_rows:
        leaves, treedef = jax.tree.flatten(chain)
        return _evidence_adjoint((treedef, options), leaves, *data)
    return _forward(chain, options, *data)[0]


def _times(A, M):
    """A M, for A by its blocks (K, b, b)."""
    K, b, _ = A.shape
    if K == 1:
        return (Dense if form_of(b) is Dense else Broadcast).product(A[0], M)
    return jnp.sum(A[:, :, :, None] * M.reshape(K, 1, b, -1), 2).reshape(M.shape)


def _blocks_of_product(X, Y, K):
    """The K blocks along the diagonal of X Yᵀ."""
    if K == 1:
        return ((Dense if form_of(len(X)) is Dense else Broadcast).product(X, Y.T))[None]
    by_block = lambda M: M.reshape(K, -1, M.shape[1])
    return jnp.sum(by_block(X)[:, :, None] * by_block(Y)[:, None], -1)


def _base(chain):
    V = chain.start()
    return 0.5 * (V + V.T)


def _moves(chain, options, gaps):
    """The blocks of A, and Q in the exact form, place by place."""
    A, b = chain.transition(gaps), chain.blocks
    A = jnp.stack([A[at : at + b, at : at + b] for at in range(0, chain.size, b)])
    return jnp.moveaxis(A, -1, 0), jnp.moveaxis(chain.noise(gaps), -1, 0) if options.accurate else None


def _rows(chain, t, which, outputs):
    """The row of each output at each time: (places, outputs, D)."""
    which = jnp.broadcast_to(jnp.arange(outputs), (len(t), outputs)) if which is None else which
    return jnp.moveaxis(chain.rows(jnp.broadcast_to(t[:, None], which.shape), which), 0, -1)


def _each(step, state, xs, reverse=False):
    """A scan over the outputs of a time, written out where they are few."""
    count = len(xs[0])
    if count > _UNROLLED:
        return lax.scan(step, state, xs, reverse=reverse)
    found = [None] * count
    for i in range(count)[:: -1 if reverse else 1]:
        state, found[i] = step(state, tuple(x[i] for x in xs))
    return state, jax.tree.map(lambda *parts: jnp.stack(parts), *found)


def _see(state, x):
    """(m, P) from (m⁻, P⁻) and a value; P⁻h, its variance and its mean."""
    (m, P), (h, w, y) = state, x
    Ph = jnp.sum(P * h, 1)
    p, mean = jnp.sum(h * Ph), jnp.sum(m.T * h, 1)
    g = (w / (1.0 + w * p)) * Ph
    return (m + g[:, None] * (y - mean), P - g[:, None] * Ph), (Ph, p, mean)


def _run_filter(chain, options, V, state, xs, keep=False):
    """Over a segment: the last state; at each place (P⁻h, variance, mean) of every output, and (m, X) for the adjoint."""

    def body(state, x):
        (m, P), (A, Q, H, w, y) = state, x
        X = _times(A, P if options.accurate else P - V)
        P = _times(A, X.T) + (Q if options.accurate else V)
        state, seen = _each(_see, (_times(A, m), P), (H, w, y))
        return state, (seen, (m, X) if keep else ())

    return lax.scan(body, state, xs)


def _flat(x):
    return x.reshape(-1, *x.shape[2:])


def _forward(chain, options, t, which, gaps, precision, columns):
    """(log_det, gram) and the state at the beginning of every segment."""
    V = _base(chain).astype(columns.dtype)

    def segment(state, x):
        t, which, gaps, w, y = x
        xs = (*_moves(chain, options, gaps), _rows(chain, t, which, w.shape[1]), w, y)
        last, ((_, p, mean), _) = _run_filter(chain, options, V, state, xs)
        return last, (state, sums(False, _flat(w)[:, None], _flat(y), _flat(p)[:, None], _flat(mean)))

    first = jnp.zeros((chain.size, columns.shape[-1]), columns.dtype), V
    _, (begins, (log_dets, grams)) = lax.scan(jax.checkpoint(segment), first, (t, which, gaps, precision, columns))
    return (jnp.sum(log_dets), jnp.sum(grams, 0)), begins


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _evidence_adjoint(static, leaves, t, which, gaps, precision, columns):
    treedef, options = static
    return _forward(jax.tree.unflatten(treedef, leaves), options, t, which, gaps, precision, columns)[0]


def _evidence_fwd(static, leaves, t, which, gaps, precision, columns):
    treedef, options = static
    value, begins = _forward(jax.tree.unflatten(treedef, leaves), options, t, which, gaps, precision, columns)
    return value, (leaves, t, which, gaps, precision, columns, begins)


def _evidence_bwd(static, kept, cotangents):
    treedef, options = static
    leaves, t, which, gaps, precision, columns, begins = kept
    chain = jax.tree.unflatten(treedef, leaves)
    l, M = cotangents[0], cotangents[1] + cotangents[1].T
    V = _base(chain).astype(columns.dtype)

    def segment(carry, x):
        state, leaves_bar = carry
        begin, t, which, gaps, w, T = x
        of_moves = lambda leaves, gaps: _moves(jax.tree.unflatten(treedef, leaves), options, gaps)
        (A, Q), pull = jax.vjp(of_moves, leaves, gaps)
        H = _rows(chain, t, which, w.shape[1])
        _, (seen, before) = _run_filter(chain, options, V, begin, (A, Q, H, w, T), keep=True)
        state, (A_bar, Q_bar, kr, kNk) = _run_adjoint(chain, options, l, M, state, ((A, H, w, T), seen, before))
        bars = pull((A_bar, Q_bar))
        found = (_flat(seen[1])[:, None], _flat(seen[2]), _flat(kr), _flat(kNk)[:, None])
        w_bar, T_bar = site_cotangents(options, l, M, _flat(w), _flat(T), *found)
        return (state, jax.tree.map(jnp.add, leaves_bar, bars[0])), (bars[1], w_bar.reshape(w.shape), T_bar.reshape(T.shape))

    D, C = chain.size, columns.shape[-1]
    zero = lambda *shape: jnp.zeros(shape, columns.dtype)
    first = (zero(D, C), zero(D, D), zero(D, D)), jax.tree.map(jnp.zeros_like, leaves)
    ((r, N, V_bar), leaves_bar), bars = lax.scan(segment, first, (begins, t, which, gaps, precision, columns), reverse=True)
    start_bar = _weight(l, M, r, N) if options.accurate else V_bar
    _, pull = jax.vjp(lambda leaves: _base(jax.tree.unflatten(treedef, leaves)), leaves)
    none = None if which is None else jnp.zeros(which.shape, jax.dtypes.float0)
    return jax.tree.map(jnp.add, leaves_bar, pull(start_bar)[0]), jnp.zeros_like(t), none, *bars


_evidence_adjoint.defvjp(_evidence_fwd, _evidence_bwd)


def _weight(l, M, r, N):
    """σ(r, N) of `kalman`: the cotangent of a covariance."""
    return l * N - 0.5 * Broadcast.product(Broadcast.product(r, M), r.T)


def _unsee(state, x):
    """(r, N) before a value, from those after it; kᵀr and kᵀNk."""
    (r, N), (h, w, y, Ph, p, mean) = state, x
    shrink = 1.0 / (1.0 + w * p)
    k = shrink * Ph
    Nk, kr = jnp.sum(N * k, 1), jnp.sum(r.T * k, 1)
    kNk = jnp.sum(k * Nk)
    r = r + h[:, None] * (w * (shrink * (y - mean) - kr))
    cross = (0.5 * w * (shrink + w * kNk)) * h - w * Nk
    return (r, N + h[:, None] * cross + cross[:, None] * h), (kr, kNk)


def _run_adjoint(chain, options, l, M, state, xs):
    """Backwards over a segment: (r, N) before it and what V collects; the cotangents of A and Q; kᵀr and kᵀNk."""

    def body(state, x):
        (r, N, V_bar), ((A, H, w, y), seen, (m, X)) = state, x
        (r_, N_), (kr, kNk) = _each(_unsee, (r, N), (H, w, y, *seen), reverse=True)
        S = _weight(l, M, r_, N_)
        A_bar = 2.0 * _blocks_of_product(S, X.T, len(A)) - _blocks_of_product(Broadcast.product(r_, M), m, len(A))
        V_bar = V_bar if options.accurate else V_bar + S - _weight(l, M, r, N)
        back = A.mT
        N = _times(back, _times(back, N_).T)
        return (_times(back, r_), N, V_bar), (A_bar, S if options.accurate else None, kr, kNk)

    return lax.scan(body, state, xs, reverse=True)
