"""The filter with many places at a time, for machines with many lanes.

The series is cut into segments that lie side by side; loops run along a segment, every operation over all segments at once.
What a segment does to an unknown state before it is a message (A, b, C, η, J): the state after it is N(A z + b, C), and its
sites say exp(ηᵀz − ½ zᵀJz) about the state z before. Two neighbouring messages make one,

    D = (I + C₁J₂)⁻¹,   A = A₂DA₁,   b = A₂D(b₁ + C₁η₂) + b₂,   C = A₂DC₁A₂ᵀ + C₂,
    η = A₁ᵀDᵀ(η₂ − J₂b₁) + η₁,   J = A₁ᵀDᵀJ₂A₁ + J₁,

so an associative scan over the segments gives the state at the beginning of each, and the filter of `kalman` runs inside all
of them together. Backwards (r, N) at the beginning of a segment is affine in (r, N) at its end, r ← R r + r₀, N ← R N Rᵀ + N₀:
one run from zero finds (R, r₀, N₀), an associative scan joins them, and the adjoint of `kalman` runs inside all segments at
once.

Products are sums over entries, never `dot`. Means of several columns share everything but b and η.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int

from structgp.linalg.filters import kalman, kalman_emission, kalman_smooth
from structgp.linalg.markov.chain_algebra import observed_first
from structgp.linalg.markov.chains import Chain
from structgp.linalg.small import form_of

SEGMENT = 16


def evidence(
    chain: Chain,
    gaps: Float[Array, " N"],
    precision: Float[Array, " N"],
    columns: Float[Array, "N C"],
    *,
    accurate: bool = True,
    natural: bool = False,
    segment: int = SEGMENT,
    others: kalman.Others | None = None,
) -> tuple[Float[Array, ""], Float[Array, "C C"]]:
    """The same as `kalman.evidence`, with its gradient."""
    chain = observed_first(chain)
    options = kalman.Options(accurate or not chain.stationary, natural, min(segment, len(gaps)))
    leaves, treedef = jax.tree.flatten(chain)
    return _evidence((treedef, options), leaves, *_prepared(options, gaps, precision, columns), others)


def smooth(
    chain: Chain,
    gaps: Float[Array, " N"],
    precision: Float[Array, " N"],
    columns: Float[Array, "N C"],
    *,
    natural: bool = False,
    segment: int = SEGMENT,
    others: kalman.Others | None = None,
) -> kalman_smooth.Smoothed:
    """The same as `kalman_smooth.smooth`: (m, P) at the beginning of each segment and (r, N) at its end, then inside of all."""
    chain = observed_first(chain)
    form = form_of(chain.size, columns.shape[-1])
    options = kalman.Options(True, natural, min(segment, len(gaps)))
    gaps, w, T = _prepared(options, gaps, precision, columns)
    moves = chain.transition(gaps), chain.noise(gaps)
    m, P = _beginnings(_begin(chain, T, others), moves, w, _shift(options, w, T))
    xs = kalman.stream(form, options, moves, w, T)
    filtered, seen = kalman_smooth.forwards(form, options, None, kalman.pack_state(form, form.of(m), form.of(P)), xs)
    k = form.pack(form.unpack_symmetric(filtered[1])[..., :, :1])
    end, _ = _endings(form, options, xs, seen, k, chain.size, T.shape[-1], others)
    later = kalman_smooth.backwards(form, options, end, xs, filtered, seen)
    one_by_one = lambda x: jnp.moveaxis(x, (3, 2), (0, 1)).reshape(-1, *x.shape[:2])[: len(precision)]
    return kalman_smooth.known(form, one_by_one, filtered, later, seen)


def message(
    chain: Chain, gaps: Float[Array, " N"], precision: Float[Array, " N"], columns: Float[Array, "N C"], segment: int = SEGMENT
) -> tuple[Array, ...]:
    """What all places do to an unknown state before the first of them, as (A, b, C, η, J)."""
    chain = observed_first(chain)
    options = kalman.Options(True, False, min(segment, len(gaps)))
    gaps, w, T = _prepared(options, gaps, precision, columns)
    found = _of_segments((chain.transition(gaps), chain.noise(gaps)), w, _shift(options, w, T))
    return tuple(x[..., -1] for x in lax.associative_scan(join, found, axis=-1))


def _begin(chain, T, others):
    """(m, P) before the first place: the start, or what the places before a part leave."""
    return kalman.beginning(chain, T) if others is None else others[:2]


def _prepared(options, gaps, w, T):
    """Gaps and sites side by side; what was not seen has no value and no derivative."""
    if not options.natural:
        w = jnp.where(w == 0, 0.0, w)
        T = jnp.where(w[:, None] == 0, 0.0, T)
    gaps = jnp.concatenate([jnp.zeros_like(gaps[:1]), gaps[1:]])
    return tuple(_side_by_side(x, options.segment) for x in (gaps, w, T))


def _shift(options, w, T):
    """What sites add to the natural mean of the state."""
    return T if options.natural else w[..., None] * T


def varying_evidence(
    chain: Chain,
    t: Float[Array, " N"],
    precision: Float[Array, " N"],
    columns: Float[Array, "N C"],
    which: Int[Array, " N"] | None = None,
    segment: int = SEGMENT,
) -> tuple[Float[Array, ""], Float[Array, "C C"]]:
    """The same as `kalman_emission.evidence`, for chains whose observed row depends on the place; its gradient is JAX's."""
    streams = kalman_emission.streams(chain, t, precision, columns, False, which)
    gaps, h, w, T = (_side_by_side(x, min(segment, len(t))) for x in streams)
    moves = chain.transition(gaps), chain.noise(gaps)
    begins = _beginnings(kalman.beginning(chain, T), moves, w, w[..., None] * T, jnp.moveaxis(h, -1, 0))
    step = kalman_emission.step_of(chain.size, natural=False)

    @jax.checkpoint
    def run(m, P, A, Q, h, w, T):
        _, (p, mean, *_) = lax.scan(step, (m, P), (A, Q, h, w, T))
        return kalman_emission.sums(False, w[:, None], T, p[:, None], mean)

    A, Q = (jnp.moveaxis(x, 2, 0) for x in moves)
    log_dets, grams = jax.vmap(run, in_axes=(-1, -1, -1, -1, 1, 1, 1))(*begins, A, Q, h, w, T)
    return jnp.sum(log_dets), jnp.sum(grams, 0)


def _side_by_side(x, segment):
    """(place in its segment, segment): filled up at the end with places where nothing is seen."""
    pad = -len(x) % segment
    x = jnp.concatenate([x, jnp.zeros((pad, *x.shape[1:]), x.dtype)]) if pad else x
    return jnp.swapaxes(x.reshape(-1, segment, *x.shape[1:]), 0, 1)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _evidence(static, leaves, gaps, w, T, others):
    treedef, options = static
    return _forward(jax.tree.unflatten(treedef, leaves), options, gaps, w, T, others)[0]


def _evidence_fwd(static, leaves, gaps, w, T, others):
    treedef, options = static
    value, begins = _forward(jax.tree.unflatten(treedef, leaves), options, gaps, w, T, others)
    return value, (leaves, gaps, w, T, others, begins)


def _forward(chain, options, gaps, w, T, others):
    """(log_det, gram) and the state at the beginning of every segment."""
    form = form_of(chain.size, T.shape[-1])
    moves = chain.transition(gaps), chain.noise(gaps)
    m, P = _beginnings(_begin(chain, T, others), moves, w, _shift(options, w, T))
    begins = kalman.pack_state(form, form.of(m), form.of(P))
    xs = kalman.stream(form, options, moves, w, T)
    _, (seen, _) = kalman._run_filter(form, options, kalman.base(form, chain, options), begins, xs)
    p, mean = (_flat(form, x) for x in seen)
    return kalman._sums(options, w.reshape(-1), T.reshape(-1, T.shape[-1]), p, mean), begins


def _flat(form, x):
    """(place, column) from what a loop gave for its places and segments."""
    rows = jnp.moveaxis(form.array(form.unpack(x))[0], 0, -1)
    return rows.reshape(-1, rows.shape[-1])


def _beginnings(begin, moves, w, shift, h=None):
    """The filtered (m, P) before each segment: the first begins with what is given, the others after those before them."""
    segments, (m, P) = _of_segments(moves, w, shift, h), begin
    square, column = jnp.zeros((*P.shape, 1), P.dtype), jnp.zeros((*m.shape, 1), P.dtype)
    before = (square, m[..., None], 0.5 * (P + P.T)[..., None], column, square)
    shifted = jax.tree.map(lambda b, s: jnp.concatenate([b, s[..., :-1]], -1), before, segments)
    _, m, P, _, _ = lax.associative_scan(join, shifted, axis=-1)
    return m, P


def _of_segments(moves, w, shift, h=None):
    """The messages of all segments."""
    places = jax.tree.map(lambda x: jnp.moveaxis(x, 2, 0), _messages(*moves, w, jnp.moveaxis(shift, -1, 0), h))
    first, rest = jax.tree.map(lambda x: x[0], places), jax.tree.map(lambda x: x[1:], places)
    return lax.scan(lambda message, place: (join(message, place), None), first, rest)[0]


def _messages(A, Q, w, shift, h=None):
    """One message a place, from arrays (D, D, *places) and shifts (C, *places), seen through rows h (D, *places)."""
    row = A[:1] if h is None else jnp.sum(h[:, None] * A, 0)[None]
    Qh = Q[:, :1] if h is None else jnp.sum(Q * h, 1)[:, None]
    d = 1.0 + w * (Q[0, 0] if h is None else jnp.sum(h * Qh[:, 0], 0))
    k = Qh / d
    shift = shift[None]
    return A - w * k * row, k * shift, Q - w * d * k * _t(k), _t(row) * (shift / d), _t(row) * row * (w / d)


def join(first, second):
    """The message of two neighbours."""
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


def _evidence_bwd(static, kept, cotangents):
    treedef, options = static
    leaves, gaps, w, T, others, begins = kept
    chain = jax.tree.unflatten(treedef, leaves)
    form = form_of(chain.size, T.shape[-1])
    l, M = cotangents[0], cotangents[1] + cotangents[1].T
    moves_of = lambda leaves, gaps: kalman._moves(jax.tree.unflatten(treedef, leaves), gaps, options)
    moves, pull = jax.vjp(moves_of, leaves, gaps)
    xs = kalman.stream(form, options, moves, w, T)
    _, (seen, states) = kalman._run_filter(form, options, kalman.base(form, chain, options), begins, xs, keep="moves")
    ends, (r, N) = _endings(form, options, xs, seen, states[2], chain.size, T.shape[-1], others)
    S = w.shape[1]
    state = (*ends, form.pack(form.of(jnp.zeros((1, chain.size, S), T.dtype))))
    (_, _, V_row), (A_bar, Q_bar, kr, kNk) = kalman._run_adjoint(form, options, l, M, state, (xs, seen, states))
    Q_bar = form.array(form.unpack_symmetric(Q_bar)) if options.accurate else None
    leaves_bar, gaps_bar = pull((form.array(form.unpack(A_bar)), Q_bar))
    parts = (_flat(form, x) for x in (*seen, kr, kNk))
    w_bar, T_bar = kalman.site_cotangents(options, l, M, w.reshape(-1), T.reshape(-1, T.shape[-1]), *parts)
    if options.accurate:
        start_bar = (0.5 * kalman._sign(options) * (r @ M @ r.T) + l * N) * (1.0 if others is None else others.first)
    else:
        start_bar = kalman._cross(jnp.sum(form.array(form.unpack(V_row))[0], -1))
    start_pull = jax.vjp(lambda leaves: jax.tree.unflatten(treedef, leaves).start(), leaves)[1]
    leaves_bar = jax.tree.map(jnp.add, leaves_bar, start_pull(start_bar)[0])
    return leaves_bar, gaps_bar, w_bar.reshape(w.shape), T_bar.reshape(T.shape), jax.tree.map(jnp.zeros_like, others)


_evidence.defvjp(_evidence_fwd, _evidence_bwd)


def _endings(form, options, xs, seen, k, D, C, others=None):
    """(r, N) after each segment, packed, and at the beginning of the series, as arrays; `others` say them at its end."""

    def body(state, x):
        (A, _, w, t), (p, mean), k = kalman.read(form, x[0]), (form.unpack(a) for a in x[1]), form.unpack(x[2])
        r, N = kalman.unpack_state(form, state[:2])
        R = form.unpack(state[2])
        r, N, _, _ = kalman.unsee(form, options, r, N, w, t, k, p, mean)
        R = form.add_first_row(R, -w * form.product(k.mT, R))
        back = lambda x: form.product(A.mT, x)
        return (*kalman.pack_state(form, back(r), form.product(back(N), A)), form.pack(back(R))), None

    lanes = jax.tree.leaves(xs[2])[0].shape[1]
    full = lambda x: form.of(jnp.broadcast_to(jnp.asarray(x)[..., None], (*x.shape, lanes)))
    zero = kalman.pack_state(form, full(np.zeros((D, C))), full(np.zeros((D, D))))
    r, N, R = lax.scan(body, (*zero, form.pack(full(np.eye(D)))), (xs, seen, k), reverse=True)[0]
    r, N = (form.array(x) for x in kalman.unpack_state(form, (r, N)))
    R, r, N = lax.associative_scan(_compose, (form.array(form.unpack(R)), r, N), axis=2, reverse=True)
    r_end, N_end = (np.zeros((D, C)), np.zeros((D, D))) if others is None else others[2:4]
    if others is not None:
        r = r + _product(R, r_end[..., None])
        N = N + _product(_product(R, N_end[..., None]), _t(R))
    later = lambda x, end: jnp.concatenate([x[..., 1:], end[..., None]], -1)
    return kalman.pack_state(form, form.of(later(r, r_end)), form.of(later(N, N_end))), (r[..., 0], N[..., 0])


def _compose(later, earlier):
    """The affine map (R, r₀, N₀) of two neighbouring stretches, the earlier applied to what the later gives."""
    R2, r2, N2 = later
    R1, r1, N1 = earlier
    return _product(R1, R2), _product(R1, r2) + r1, _product(_product(R1, N2), _t(R1)) + N1


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
