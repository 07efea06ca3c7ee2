"""The filter on a chain: log determinant and quadratic forms in linear time, with a hand-written adjoint.

For values f at N places with covariance K (from a chain), site precisions w (0: nothing seen there) and columns T,

    log_det = log |K + W⁻¹|,    gram = Tᵀ (K + W⁻¹)⁻¹ T      over the places with w > 0.

Sites may also be given in natural parameters, factors exp(h f − ½ w f²) with any sign of w; then T holds h and

    log_det = log |I + K W|,    gram = hᵀ (K⁻¹ + W)⁻¹ h.

Before later sites are seen, negative ones may leave no density (d < 0 below): the algebra holds all the same. How many
negative eigenvalues K⁻¹ + W has can be counted on the way: the places with d < 0 and w < 0 less those with d < 0 and w > 0.

The observed value is the first coordinate of the state (`chain_algebra.observed_first`). One step, from the filtered (m, P) of
the neighbour:

    X  = A (P − V),  P⁻ = X Aᵀ + V       (difference form), or
    X  = A P,        P⁻ = X Aᵀ + Q       (exact form: right for tiny gaps and low noise),       m⁻ = A m
    d  = 1 + w P⁻₁₁,  k = P⁻₁/d,  e = w (y − m⁻₁)  [or h − w m⁻₁]
    m  = m⁻ + k e,    P = P⁻ − w d k kᵀ  with first row and column k.

Writing the first row as k, not as a difference, keeps it exact. The adjoint runs backwards with r (one column for each
of T) and N, both 0 after the last point, which are also the smoother's variables:

    u = e/d − w kᵀr,   D = w/d + w² kᵀNk        (the entries of (K + W⁻¹)⁻¹T and of its inverse's diagonal)
    r⁻ = r + e₁u,      N⁻ = N − w (e₁ kᵀN + N k e₁ᵀ) + D e₁e₁ᵀ,       then  r ← Aᵀr⁻,  N ← AᵀN⁻A

With cotangents l of log_det and M = G + Gᵀ of gram, s = −1 (s = +1 for natural sites) and σ(r, N) = ½ s r M rᵀ + l N,
the cotangents of m⁻ and P⁻ are s r⁻M and S = σ(r⁻, N⁻); those of A are s r⁻M mᵀ + 2 S X and of Q are S. In the
difference form V collects S − AᵀSA at each place, which telescopes to Σ σ(r⁻, N⁻) − σ(r, N). JAX maps all this to the
chain's numbers and to the gaps. Where A = exp(G u) with a constant G, all that reaches A comes to one number a place, the
cotangent ⟨G, s r⁻M m⁻ᵀ + 2 S (P⁻ − V)⟩ of u.

Only the state at the beginning of each segment is kept for the adjoint; inside a segment the filter runs again.
Transitions and their derivatives are computed for all places of a segment at once.

A part of a series begins with the (m, P) that the places before it leave, and its adjoint with the (r, N) of those after it:
then the numbers above are the part's own, and all parts together give the whole (`kalman_parts`).
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from structgp.linalg.filters import kalman_chunk
from structgp.linalg.markov.chain_algebra import observed_first
from structgp.linalg.markov.chains import Chain
from structgp.linalg.small import form_of

_CHUNK_ABOVE = 12


class Options(NamedTuple):
    """The static choices of a filter run."""

    accurate: bool = False
    natural: bool = False
    segment: int = 128


class Others(NamedTuple):
    """What the other parts of a series say to one: (m, P) at its first place, (r, N) at its last, and whether it is the first.

    They are in the basis of `observed_first`, and constants to the gradient.
    """

    m: Float[Any, "D C"]
    P: Float[Any, "D D"]
    r: Float[Any, "D C"]
    N: Float[Any, "D D"]
    first: Float[Any, ""]  # 1, or 0


def evidence(
    chain: Chain,
    gaps: Float[Array, " N"],
    precision: Float[Array, " N"],
    columns: Float[Array, "N C"],
    *,
    accurate: bool = False,
    natural: bool = False,
    adjoint: bool = True,
    segment: int = 128,
    others: Others | None = None,
) -> tuple[Float[Array, ""], Float[Array, "C C"]]:
    """(log_det, gram) of the module's head. `gaps[0]` is not used.

    `accurate` asks for the exact form (a chain that is not stationary always gets it); `adjoint=False` leaves the
    gradient to JAX, which then can also be differentiated forwards and twice. Columns of unseen places may hold
    anything, NaN too. Of a part of a series, `others` are what the other parts say; the gradient is then the part's share.
    """
    assert not chain.varies, "kalman_emission is for chains that are seen differently from place to place"
    accurate = accurate or not chain.stationary
    if not natural:  # nothing seen: no value and no derivative either
        precision = jnp.where(precision == 0, 0.0, precision)
        columns = jnp.where(precision[:, None] == 0, 0.0, columns)
    gaps = jnp.concatenate([jnp.zeros_like(gaps[:1]), gaps[1:]])
    chain = observed_first(chain)
    options = Options(accurate, natural, min(segment, len(gaps)))
    data = tuple(segments(x, options) for x in (gaps, precision, columns))
    if adjoint:
        leaves, treedef = jax.tree.flatten(chain)
        return _evidence_adjoint((treedef, options), leaves, *data, others)
    return forward(chain, options, *data, others)[0]


def segments(x, options):
    """(segment, place): filled up at the end with places where nothing is seen (gap 0, precision 0)."""
    pad = -len(x) % options.segment
    x = jnp.concatenate([x, jnp.zeros((pad, *x.shape[1:]), x.dtype)]) if pad else x
    return x.reshape(-1, options.segment, *x.shape[1:])


def reach(form, options, V, m, P, A, Q):
    """(m⁻, P⁻) from the neighbour's (m, P), and X."""
    X = form.product(A, P if options.accurate else P - V)
    return form.product(A, m), form.product(X, A.mT) + (Q if options.accurate else V), X


def see(form, options, m, P, w, t):
    """(m, P) from (m⁻, P⁻) and a site, and k."""
    first, shrink = P[..., :, :1], 1.0 / (1.0 + w * P[..., :1, :1])
    k = first * shrink
    e = _innovation(options, w, t, m[..., :1, :])
    return m + first * (shrink * e), form.set_first(P - (w * shrink) * (first * first.mT), k), k


def _innovation(options, w, t, mean):
    """e: the pull of a site on its value."""
    return t - w * mean if options.natural else w * (t - mean)


def stream(form, options, moves, w, T):
    """What the loop reads: A and Q, given as arrays (D, D, places), and the sites."""
    A, Q = moves
    t = form.of(jnp.moveaxis(T, -1, 0)[None])
    return (
        form.pack(form.of(A)),
        form.pack_symmetric(form.of(Q)) if options.accurate else None,
        form.pack(form.of(w[None, None])),
        form.pack(t),
    )


def read(form, x):
    """(A, Q, w, t) of one place, from what the loop reads."""
    A, Q, w, t = x
    return form.unpack(A), None if Q is None else form.unpack_symmetric(Q), form.unpack(w), form.unpack(t)


def _moves(chain, gaps, options):
    """A, and Q in the exact form, at every gap: (D, D, *gaps)."""
    return chain.transition(gaps), chain.noise(gaps) if options.accurate else None


def base(form, chain, options):
    """V of the difference form."""
    return None if options.accurate else form.of(chain.start())


def pack_state(form, m, P):
    """What a loop carries for (m, P), or for (r, N)."""
    return form.pack(m), form.pack_symmetric(P)


def unpack_state(form, state):
    """The inverse of `pack_state`."""
    return form.unpack(state[0]), form.unpack_symmetric(state[1])


def _run_filter(form, options, V, state, xs, keep=None):
    """Over a segment: the last state; at each place (P⁻₁₁, m⁻₁) and what the adjoint needs, (m, X, k) or (m⁻, P⁻)."""

    def body(state, x):
        A, Q, w, t = read(form, x)
        m, P = unpack_state(form, state)
        m_, P_, X = reach(form, options, V, m, P, A, Q)
        m_new, P_new, k = see(form, options, m_, P_, w, t)
        kept = ()
        if keep == "moves":
            kept = form.pack(m), form.pack(X), form.pack(k)
        elif keep == "clock":
            kept = pack_state(form, m_, P_)
        return pack_state(form, m_new, P_new), ((form.pack(P_[..., :1, :1]), form.pack(m_[..., :1, :])), kept)

    return lax.scan(body, state, xs)


def _sums(options, w, T, p, mean):
    """(log_det, gram) of some places, from (place, column) arrays."""
    return _sums_along(options, w, T.T, p[:, 0], mean.T)


def _sums_along(options, w, T, p, mean):
    """The same from T and mean with places last: long rows are what loops over places run along."""
    d = 1.0 + w * p
    outer = lambda a, b: jnp.sum(a[:, None] * b[None], -1)
    if options.natural:
        cross = outer(T / d, mean)
        return jnp.sum(jnp.log(jnp.abs(d))), cross + cross.T - outer(w / d * mean, mean) + outer(p / d * T, T)
    e, precision = T - mean, w / d
    return -jnp.sum(jnp.log(jnp.where(w > 0, precision, 1.0))), outer(precision * e, e)


def site_sums(precision, columns, variance, mean, *, natural):
    """(log_det, gram) from the predicted variances (N) and means (N, C) at the places, which a smoother knows."""
    return _sums(Options(natural=natural), precision, columns, variance[:, None], mean)


def forward(chain, options, gaps, precision, columns, others=None):
    """(log_det, gram), the state at the beginning of every segment, and the last one."""
    form = form_of(chain.size, columns.shape[-1])
    V = base(form, chain, options)

    def segment(state, x):
        gaps, w, T = x
        xs = stream(form, options, _moves(chain, gaps, options), w, T)
        last, (seen, _) = _run_filter(form, options, V, state, xs)
        p, mean = (form.array(form.unpack(x))[0] for x in seen)
        return last, (state, _sums_along(options, w, T.T, p[0], mean))

    m, P = beginning(chain, columns) if others is None else others[:2]
    first = pack_state(form, form.of(m), form.of(0.5 * (P + P.T)))
    last, (begins, (log_dets, grams)) = lax.scan(jax.checkpoint(segment), first, (gaps, precision, columns))
    return (jnp.sum(log_dets), jnp.sum(grams, 0)), begins, last


def beginning(chain, columns):
    """(m, P) before anything is seen."""
    return jnp.zeros((chain.size, columns.shape[-1]), columns.dtype), chain.start().astype(columns.dtype)


def _column(form, x):
    """(place, column) from what a loop gave for its places."""
    return jnp.moveaxis(form.array(form.unpack(x))[0], 0, -1)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _evidence_adjoint(static, leaves, gaps, precision, columns, others):
    treedef, options = static
    chain = jax.tree.unflatten(treedef, leaves)
    if chain.size > _CHUNK_ABOVE and not options.natural and others is None:
        # without a gradient, several places at a time are faster
        return kalman_chunk.evidence(chain, *(x.reshape(-1, *x.shape[2:]) for x in (gaps, precision, columns)))
    return forward(chain, options, gaps, precision, columns, others)[0]


def _evidence_fwd(static, leaves, gaps, precision, columns, others):
    treedef, options = static
    value, begins, _ = forward(jax.tree.unflatten(treedef, leaves), options, gaps, precision, columns, others)
    return value, (leaves, gaps, precision, columns, others, begins)


def _evidence_bwd(static, kept, cotangents):
    treedef, options = static
    leaves, gaps, precision, columns, others, begins = kept
    chain = jax.tree.unflatten(treedef, leaves)
    form = form_of(chain.size, columns.shape[-1])
    l, M = cotangents[0], cotangents[1] + cotangents[1].T
    V = base(form, chain, options)
    by_clock = chain.pace is not None and not options.accurate
    backwards = _back_by_clock if by_clock else _back_by_moves

    def segment(carry, x):
        state, leaves_bar = carry
        begin, gaps, w, T = x
        state, bars, seen, kr, kNk = backwards(static, form, V, l, M, leaves, state, begin, gaps, w, T)
        sites_bar = site_cotangents(options, l, M, w, T, *(_column(form, x) for x in (*seen, kr, kNk)))
        return (state, jax.tree.map(jnp.add, leaves_bar, bars[0])), (bars[1], *sites_bar)

    D, C = chain.size, columns.shape[-1]
    zero = lambda *shape: form.of(jnp.zeros(shape, columns.dtype))
    later = (zero(D, C), zero(D, D)) if others is None else map(form.of, others[2:4])
    first = (*pack_state(form, *later), form.pack(zero(1, D))), jax.tree.map(jnp.zeros_like, leaves)
    xs = (begins, gaps, precision, columns)
    ((r, N, V_row), leaves_bar), bars = lax.scan(segment, first, xs, reverse=True)
    r, N = (form.array(x) for x in unpack_state(form, (r, N)))
    if options.accurate:
        start_bar = (0.5 * _sign(options) * (r @ M @ r.T) + l * N) * (1.0 if others is None else others.first)
    else:
        start_bar = _cross(form.array(form.unpack(V_row))[0])
    _, pull = jax.vjp(lambda leaves: jax.tree.unflatten(treedef, leaves).start(), leaves)
    return jax.tree.map(jnp.add, leaves_bar, pull(start_bar)[0]), *bars, jax.tree.map(jnp.zeros_like, others)


_evidence_adjoint.defvjp(_evidence_fwd, _evidence_bwd)


def _back_by_moves(static, form, V, l, M, leaves, state, begin, gaps, w, T):
    """One segment backwards: (r, N) before it, the cotangents of leaves and gaps, and what those of the sites need."""
    treedef, options = static
    moves, pull = jax.vjp(lambda leaves, gaps: _moves(jax.tree.unflatten(treedef, leaves), gaps, options), leaves, gaps)
    xs = stream(form, options, moves, w, T)
    _, (seen, kept) = _run_filter(form, options, V, begin, xs, keep="moves")
    state, (A_bar, Q_bar, kr, kNk) = _run_adjoint(form, options, l, M, state, (xs, seen, kept))
    Q_bar = form.array(form.unpack_symmetric(Q_bar)) if options.accurate else None
    return state, pull((form.array(form.unpack(A_bar)), Q_bar)), seen, kr, kNk


def _back_by_clock(static, form, V, l, M, leaves, state, begin, gaps, w, T):
    """The same for a chain with a clock, in the difference form."""
    treedef, options = static
    chain = jax.tree.unflatten(treedef, leaves)
    _, pull = jax.vjp(lambda leaves, gaps: jax.tree.unflatten(treedef, leaves).clock(gaps), leaves, gaps)
    xs = stream(form, options, _moves(chain, gaps, options), w, T)
    _, (_, kept) = _run_filter(form, options, V, begin, xs, keep="clock")
    m_, P_ = unpack_state(form, kept)
    seen = form.pack(P_[..., :1, :1]), form.pack(m_[..., :1, :])
    state, (u_bar, kr, kNk) = _run_clock_adjoint(form, options, l, M, chain.pace, V, state, (xs, kept))
    return state, pull(form.array(form.unpack(u_bar))[0, 0]), seen, kr, kNk


def _sign(options):
    return 1.0 if options.natural else -1.0


def _cross(row):
    """The symmetric matrix with this first row and column, zero elsewhere."""
    D = len(row)
    return jnp.zeros((D, D), row.dtype).at[0, :].set(row).at[:, 0].set(row)


def unsee(form, options, r, N, w, t, k, p, mean):
    """(r⁻, N⁻) from (r, N) after the place, and kᵀr, kᵀNk."""
    shrink = 1.0 / (1.0 + w * p)
    Nk, kr = form.product(N, k), form.product(k.mT, r)
    kNk = form.product(k.mT, Nk)
    r_ = form.add_first_row(r, _innovation(options, w, t, mean) * shrink - w * kr)
    return r_, form.add_cross(N, -w * Nk, w * (shrink + w * kNk)), kr, kNk


def _run_adjoint(form, options, l, M, state, xs):
    """Backwards over a segment: (r, N) at its beginning; at each place the cotangents of A and Q, and kᵀr and kᵀNk."""
    s, M, l = _sign(options), form.of(M), form.of(l[None, None])

    def body(state, x):
        (A, _, w, t), (p, mean), (m, X, k) = read(form, x[0]), *((form.unpack(a) for a in group) for group in x[1:])
        r, N = unpack_state(form, state[:2])
        r_, N_, kr, kNk = unsee(form, options, r, N, w, t, k, p, mean)
        rM = form.product(r_, M)
        S = (0.5 * s) * form.product(rM, r_.mT) + l * N_
        A_bar = s * form.product(rM, m.mT) + 2.0 * form.product(S, X)
        V_row = form.unpack(state[2])
        if not options.accurate:
            V_row = V_row + _first_row_of_change(form, s, l, M, (r, N), (r_, N_))
        out = form.pack(A_bar), form.pack_symmetric(S) if options.accurate else None, form.pack(kr), form.pack(kNk)
        N = form.product(form.product(A.mT, N_), A)
        return (*pack_state(form, form.product(A.mT, r_), N), form.pack(V_row)), out

    return lax.scan(body, state, xs, reverse=True)


def _run_clock_adjoint(form, options, l, M, pace, V, state, xs):
    """As `_run_adjoint`, from (m⁻, P⁻); at each place the cotangent of u, and kᵀr and kᵀNk."""
    s, M, l = _sign(options), form.of(M), form.of(l[None, None])

    def body(state, x):
        (A, _, w, t), (m_, P_) = read(form, x[0]), unpack_state(form, x[1])
        p, mean = P_[..., :1, :1], m_[..., :1, :]
        r, N = unpack_state(form, state[:2])
        r_, N_, kr, kNk = unsee(form, options, r, N, w, t, P_[..., :, :1] * (1.0 / (1.0 + w * p)), p, mean)
        rM = form.product(r_, M)
        S = form.mirrored((0.5 * s) * form.product(rM, r_.mT) + l * N_)
        u_bar = s * form.inner(rM, form.constant_times(pace, m_)) + 2.0 * form.inner(S, form.constant_times(pace, P_ - V))
        V_row = form.unpack(state[2]) + _first_row_of_change(form, s, l, M, (r, N), (r_, N_))
        N = form.product(form.product(A.mT, N_), A)
        state = *pack_state(form, form.product(A.mT, r_), N), form.pack(V_row)
        return state, (form.pack(u_bar), form.pack(kr), form.pack(kNk))

    return lax.scan(body, state, xs, reverse=True)


def _first_row_of_change(form, s, l, M, after, before):
    """The first row of σ(r⁻, N⁻) − σ(r, N), which is zero but for that row and column: what V collects at a place."""
    (r, N), (r_, N_) = after, before
    top = lambda x: x[..., :1, :]
    step = form.product(top(r_) - top(r), M)
    row = (0.5 * s) * form.product(step, r_.mT) + l * (top(N_) - top(N))
    return form.add_first_row(row, (0.5 * s) * form.product(step, top(r).mT))


def site_cotangents(options, l, M, w, T, p, mean, kr, kNk):
    """Cotangents of precisions and columns, from (place, column) arrays."""
    w = w[:, None]
    d = 1.0 + w * p
    times_M = lambda a: jnp.sum(a[:, :, None] * M, 1)
    square = lambda a: jnp.sum(times_M(a) * a, 1, keepdims=True)
    if options.natural:
        mu = mean + p / d * (T - w * mean) + kr
        return (l * (p / d - kNk) - 0.5 * square(mu))[:, 0], times_M(mu)
    rho = (T - mean) / d - kr
    w_bar = 0.5 * square(rho) - l * (1.0 / (jnp.where(w == 0, 1.0, w) * d) + kNk)
    return jnp.where(w == 0, 0.0, w_bar)[:, 0], times_M(w * rho)
