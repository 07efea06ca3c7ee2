"""The filter on equally spaced places with one precision: the gain settles, and then only the mean runs.

Where P no longer changes (to rounding), k and d are frozen, and with K = w k, L = A − A K H

    v_i = y_i − H m⁻_i,     m⁻_{i+1} = L m⁻_i + A K y_i.

A block of 16 places turns this into products: v = (I − U) y − O m⁻, m⁻ ← L¹⁶ m⁻ + G y, with O_j = H L^j, U_jl = H
L^{j−l−1} A K (l < j) and G_l = L^{15−l} A K. With cotangents v̄ of v, its adjoint is a recursion over blocks once more:
λ ← (L¹⁶)ᵀ λ − Oᵀ v̄, and the products λ m⁻ᵀ, λ yᵀ, v̄ m⁻ᵀ, v̄ yᵀ summed over blocks are the cotangents of L¹⁶, G, −O, −U.

The first places, and those after a missing value, belong to exact blocks, where P moves: from the prior covariance at the
beginning of the series, from the settled P elsewhere. To the mean such a block is an affine map of its own, m⁻ ← Λ m⁻ + g,
and its innovations are v_i = c_i − o_i m⁻, so that exact and frozen blocks lie in one recursion. Derivatives settle later than
P itself, which is why `settling_steps` doubles what P needs.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float

from structgp.linalg.filters import kalman
from structgp.linalg.markov.chain_algebra import observed_first
from structgp.linalg.markov.chains import Chain
from structgp.linalg.small import form_of, product

BLOCK = 16
_GROUP = 512  # blocks that are worked on at the same time, few enough for the cache
_TOLERANCE = 1e-15


def settling_steps(chain: Chain, gap: float, precision: float, limit: int = 4096) -> int | None:
    """How many exact steps `evidence` needs: a power of two, or None if more than `limit` (outside of jit)."""
    chain = observed_first(chain)
    if not chain.stationary:
        return None
    _, change = jax.jit(_settled, static_argnums=3)(chain, jnp.asarray(gap), jnp.asarray(precision), limit // 2)
    moving = np.flatnonzero(np.asarray(change) > _TOLERANCE)
    steps = 2 * (moving[-1] + 2) if len(moving) else 2
    return None if steps > limit else max(BLOCK, 2 ** int(np.ceil(np.log2(steps))))


def exact_blocks(seen: Bool[np.ndarray, " N"], settle: int) -> int:
    """How many blocks of 16 places need exact steps, rounded up so that few programs are compiled."""
    count = settle // BLOCK if np.all(seen) else int(np.sum(_is_exact(np.asarray(seen), settle, np)))
    step = 2 ** max(0, int(np.log2(count)) - 2)
    return -(-count // step) * step


def _is_exact(seen, settle, library):
    """Which blocks begin the series, hold a missing value, or follow one by less than `settle` places."""
    missing = library.pad(~seen, (0, -len(seen) % BLOCK)).reshape(-1, BLOCK)
    since = library.cumsum(library.any(missing, axis=1))
    reach = settle // BLOCK
    before = library.concatenate([library.zeros(reach + 1, since.dtype), since])[: len(since)]
    return (since > before) | (np.arange(len(since)) < reach)


def evidence(
    chain: Chain,
    gap: Float[Array, ""],
    precision: Float[Array, " *N"],
    columns: Float[Array, "N C"],
    *,
    settle: int,
    exact: int,
) -> tuple[Float[Array, ""], Float[Array, "C C"]]:
    """`kalman.evidence` with all gaps equal, and all precisions that are not 0: one number stands for a whole series.

    `exact` is at least the number of blocks that need exact steps. The full filter runs instead where P has not settled after
    `settle` steps.
    """
    chain = observed_first(chain)
    if precision.ndim:
        # Made once: fused into each of the sums that read it, it would slow all of them down.
        seen = lax.optimization_barrier(precision > 0)
        columns = jnp.where(seen[:, None], columns, 0.0)
        w = _common(precision)
    else:
        seen, w = None, precision
    if settle >= len(columns) or not chain.stationary:
        return _evidence_full(chain, gap, w, seen, columns)
    leaves, treedef = jax.tree.flatten(chain)
    return _evidence_either((treedef, settle, exact), leaves, jnp.asarray(gap), w, seen, columns)


@jax.custom_vjp
def _common(precision):
    """The value of all precisions that are not 0: each of them takes an equal part of its cotangent."""
    return jnp.max(precision)


_common.defvjp(
    lambda precision: (jnp.max(precision), precision),
    lambda precision, bar: (precision * (bar / jnp.sum(precision)),),
)


def _evidence_full(chain, gap, w, seen, columns):
    everywhere = lambda x: jnp.broadcast_to(x, len(columns))
    return kalman.evidence(chain, everywhere(gap), everywhere(w) if seen is None else jnp.where(seen, w, 0.0), columns)


def _branches(static, seen):
    """The settled and the full filter as functions of (leaves, gap, w, columns)."""
    treedef, settle, exact = static
    chain = lambda leaves: jax.tree.unflatten(treedef, leaves)
    settled = lambda leaves, gap, w, columns: _evidence_settled(chain(leaves), gap, w, seen, columns, settle, exact)
    return settled, lambda leaves, gap, w, columns: _evidence_full(chain(leaves), gap, w, seen, columns)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _evidence_either(static, leaves, gap, w, seen, columns):
    return _either(static, leaves, gap, w, seen, columns)[0]


def _either(static, leaves, gap, w, seen, columns, learned=False):
    treedef, settle, _ = static
    settled, full = _branches(static, seen)
    _, change = _settled(jax.tree.unflatten(treedef, leaves), gap, w, settle // 2)
    good = change[-1] <= 4 * _TOLERANCE
    # The settled filter costs next to nothing and always runs: only its results pass through the `cond`.
    some = (leaves, gap, w, columns) if learned else (leaves, gap, w)
    value, pull = jax.vjp(settled if learned else lambda *some: settled(*some, columns), *some)
    value = lax.cond(good, lambda: value, lambda: full(leaves, gap, w, columns))
    return value, (good, pull, seen, leaves, gap, w, columns, () if learned else None)


def _either_fwd(static, leaves, gap, w, seen, columns):
    learned = columns.perturbed  # a cotangent as long as the data, which most callers have no use for
    return _either(static, *(jax.tree.map(lambda x: x.value, (leaves, gap, w, seen, columns), is_leaf=_is_primal)), learned)


def _is_primal(x):
    return hasattr(x, "perturbed")


def _either_bwd(static, kept, cotangents):
    good, pull, seen, leaves, gap, w, columns, learned = kept
    _, full_of = _branches(static, seen)
    some = (leaves, gap, w) if learned is None else (leaves, gap, w, columns)
    full = (lambda *some: full_of(*some, columns)) if learned is None else full_of
    bars = pull(cotangents)
    bars = lax.cond(good, lambda: bars, lambda: jax.vjp(full, *some)[1](cotangents))
    return *bars[:3], None, bars[3] if len(bars) > 3 else None


_evidence_either.defvjp(_either_fwd, _either_bwd, symbolic_zeros=True)


def _settled(chain, gap, w, steps):
    """P⁻ after `steps` steps with nothing missing, and the change at each relative to the prior variances."""
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


def _evidence_settled(chain, gap, w, seen, columns, settle, exact):
    A, (P, _) = chain.transition(gap), _settled(chain, gap, w, settle)
    d = 1.0 + w * P[0, 0]
    AK = A @ (w * P[:, :1] / d)
    L = A - AK * np.eye(len(A))[0]
    count = len(columns)
    blocks = lambda x: jnp.pad(x, [(0, -count % BLOCK)] + [(0, 0)] * (x.ndim - 1)).reshape(-1, BLOCK, *x.shape[1:])
    pick = lambda x: jnp.take(blocks(x), at, axis=0, mode="fill", fill_value=0)
    if seen is None:
        at = jnp.arange(exact)
        seen_there = BLOCK * at[:, None] + np.arange(BLOCK) < count
    else:
        at = jnp.nonzero(_is_exact(seen, settle, jnp), size=exact, fill_value=-(-count // BLOCK))[0]
        seen_there = pick(seen)
    T = pick(columns)
    d_exact, rows, rest, maps = _exact_maps(chain, A, P, at, jnp.where(seen_there, w, 0.0), T)
    gram, begins = _frozen(L, AK, maps, _groups(columns), at, jnp.asarray(count))
    v = rest - jnp.einsum("bid,bdc->bic", rows, begins)
    weights = jnp.where(seen_there, w / d_exact, 0.0)
    log_det = jnp.sum(jnp.where(seen_there, jnp.log(d_exact / w), 0.0))
    frozen = count - jnp.sum(jnp.clip(count - BLOCK * at, 0, BLOCK))
    return log_det + frozen * jnp.log(d / w), jnp.einsum("bi,bic,bie->ce", weights, v, v) + (w / d) * gram


def _exact_maps(chain, A, P_settled, at, w, T):
    """d (block, place), the rows o and the rests c with v = c − o m⁻, and the maps (Λ, g) of the blocks.

    The filter runs on the columns [0, y] from the means [I, 0], so that its innovations are [−o, c] and its last means [Λ, g].
    """
    D, C = chain.size, T.shape[-1]
    form, options = form_of(D, D + C), kalman.Options()
    V, A = kalman.base(form, chain, options), form.of(A)
    begin = form.pack(form.of(jnp.eye(D, D + C, dtype=T.dtype)))
    half = lambda P: form.pack_symmetric(form.of(P))
    prior, settled = half(chain.start()), half(P_settled)

    def step(state, x):
        w, t = (form.unpack(a) for a in x)
        m_, P_ = kalman.unpack_state(form, state)
        m, P, _ = kalman.see(form, options, m_, P_, w, t)
        m, P, _ = kalman.reach(form, options, V, m, P, A, None)
        return kalman.pack_state(form, m, P), (form.pack(P_[..., :1, :1]), form.pack(m_[..., :1, :]))

    @jax.checkpoint
    def block(P, x):
        fresh, first, w, t = x
        start = jax.tree.map(lambda a, b: jnp.where(first, a, b), prior, settled)
        P = jax.tree.map(lambda a, b: jnp.where(fresh, a, b), start, P)
        xs = form.pack(form.of(w[None, None])), form.pack(form.of(jnp.moveaxis(t, -1, 0)[None]))
        (m, P), (p, mean) = lax.scan(step, (begin, P), xs)
        row = lambda x: form.array(form.unpack(x))[0]
        return P, (row(p)[0], row(mean), form.array(form.unpack(m)))

    fresh = at != jnp.concatenate([at[:1], at[:-1] + 1])
    columns = jnp.concatenate([jnp.zeros((*w.shape, D), T.dtype), T], -1)
    _, (p, mean, last) = lax.scan(block, settled, (fresh | (at == 0), at == 0, w, columns))
    mean = jnp.swapaxes(mean, 1, 2)
    return 1.0 + w * p, mean[..., :D], T - mean[..., D:], (last[..., :D], last[..., D:])


def _block_matrices(L, AK):
    """L¹⁶, O, G and I − U."""
    powers = [jnp.eye(len(L), dtype=L.dtype)]
    for _ in range(BLOCK):
        powers.append(powers[-1] @ L)
    O = jnp.stack([p[0] for p in powers[:BLOCK]])
    G = jnp.concatenate([p @ AK for p in powers[BLOCK - 1 :: -1]], 1)
    i = np.arange(BLOCK)
    lag = (O @ AK)[:, 0]
    U = jnp.where(i[:, None] > i[None, :], lag[np.maximum(i[:, None] - i[None, :] - 1, 0)], 0.0)
    return powers[BLOCK], O, G, np.eye(BLOCK) - U


def _groups(columns):
    """The series in groups of blocks, (group, place, column)."""
    whole = BLOCK * min(_GROUP, -(-len(columns) // BLOCK))
    return jnp.pad(columns, ((0, -len(columns) % whole), (0, 0))).reshape(-1, whole, columns.shape[1])


@jax.custom_vjp
def _frozen(L, AK, maps, Y, at, count):
    """Σ v vᵀ over the places of frozen blocks, and m⁻ at the beginning of the exact blocks `at`."""
    return _frozen_fwd(L, AK, maps, Y, at, count)[0]


def _which(Y, at):
    """For each group and block the number of its own map, counted from 1; 0 if it is frozen."""
    number = jnp.arange(1, len(at) + 1)
    blocks = Y.shape[1] // BLOCK
    return jnp.zeros(len(Y) * blocks, number.dtype).at[at].set(number, mode="drop").reshape(-1, blocks)


def _innovations(O, I_U, Y, which, i, begins, count):
    """v of a group, (column and block, place), zero where it does not count, and Y in the same form."""
    whole, C = Y.shape
    Y = Y.T.reshape(-1, BLOCK)
    counts = (i * whole + jnp.arange(whole) < count).reshape(-1, BLOCK) & (which == 0)[:, None]
    return jnp.where(jnp.tile(counts, (C, 1)), Y @ I_U.T - _by_column(begins) @ O.T, 0.0), Y


def _frozen_fwd(L, AK, maps, Y, at, count):
    power, O, G, I_U = _block_matrices(L, AK)
    C, table = Y.shape[2], (jnp.concatenate([power[None], maps[0]]), jnp.pad(maps[1], ((1, 0), (0, 0), (0, 0))))

    def run(m, x):
        Y, which, i = x
        push = _by_block(Y.T.reshape(-1, BLOCK) @ G.T, C)
        push = jnp.where((which == 0)[:, None, None], push, table[1][which])
        m, begins = lax.scan(lambda m, x: (product(table[0][x[0]], m) + x[1], m), m, (which, push))
        v = _innovations(O, I_U, Y, which, i, begins, count)[0].reshape(C, -1)
        return m, (begins, v @ v.T)

    xs = Y, _which(Y, at), jnp.arange(len(Y))
    _, (begins, grams) = lax.scan(run, jnp.zeros_like(maps[1][0]), xs)
    return (jnp.sum(grams, 0), _taken(begins, at)), (L, AK, table[0], xs, begins, at, count)


def _taken(x, at):
    """What the exact blocks have of something that every block has, (group, block, ·)."""
    return jnp.take(x.reshape(-1, *x.shape[2:]), at, axis=0, mode="fill", fill_value=0.0)


def _by_block(x, C):
    """(block, D, column) from (column and block, D)."""
    return jnp.moveaxis(x.reshape(C, -1, x.shape[-1]), 0, -1)


def _by_column(x):
    """(column and block, D) from (block, D, column): two axes, so that sums over blocks are plain matrix products."""
    return jnp.moveaxis(x, -1, 0).reshape(-1, x.shape[1])


def _frozen_bwd(kept, cotangents):
    L, AK, table, xs, begins, at, count = kept
    (gram_bar, there_bar), C = cotangents, xs[0].shape[2]
    (_, O, G, I_U), pull = jax.vjp(_block_matrices, L, AK)
    there_bar = jnp.pad(there_bar, ((1, 0), (0, 0), (0, 0)))

    def run(carry, x):
        later, sums = carry
        Y, which, i, begins = x
        v, Y = _innovations(O, I_U, Y, which, i, begins, count)
        v_bar = ((gram_bar + gram_bar.T) @ v.reshape(C, -1)).reshape(-1, BLOCK)
        begins_bar = there_bar[which] - _by_block(v_bar @ O, C)
        step = lambda later, x: (product(table[x[0]].T, later) + x[1], later)
        before, later = lax.scan(step, later, (which, begins_bar), reverse=True)
        frozen, m = _by_column(jnp.where((which == 0)[:, None, None], later, 0.0)), _by_column(begins)
        more = frozen.T @ m, -(v_bar.T @ m), frozen.T @ Y, v_bar.T @ Y
        Y_bar = (v_bar @ I_U + frozen @ G).reshape(C, -1).T
        return (before, jax.tree.map(jnp.add, sums, more)), (later, Y_bar)

    zero = jnp.zeros_like(begins[0, 0]), tuple(jnp.zeros_like(x) for x in (L, O, G, I_U))
    (_, sums), (later, Y_bar) = lax.scan(run, zero, (*xs, begins), reverse=True)
    later, begins = _taken(later, at), _taken(begins, at)
    maps_bar = jnp.einsum("bdc,bec->bde", later, begins), later
    return *pull(sums), maps_bar, Y_bar, None, None


_frozen.defvjp(_frozen_fwd, _frozen_bwd)
