"""What a chain knows after all sites have been seen: marginals, predictions, left-out values, lag-one covariances, samples.

Forwards the filter keeps the filtered (m, P) of every place; backwards run (r, N) of `kalman`. No matrix is inverted,
so repeated places and singular covariances need no care. With (r, N) after a place and (r⁻, N⁻) after its own site has
been added:

    state      E z = m + P r,                      Cov z = P − P N P
    value      E f = m₁ + P₁r,                     Var f = P₁₁ − P₁ N P₁ᵀ
    left out   E f = y − u/D,                      Var y = 1/D          (u, D of `kalman`)
    lag one    Cov(z_i, z_j) = P_i Aᵀ (I − N⁻_j P⁻_j),   j = i + 1
    between    reached from the left, m* = A m_i, P* = A P_i Aᵀ + Q, and from the right, r* = Aᵀ r⁻_j, N* = Aᵀ N⁻_j A.

Matrices here are arrays with places first, (N, D, C) and (N, D, D), in the basis of `chain_algebra.observed_first`.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int

from structgp.linalg.filters import kalman
from structgp.linalg.markov.chain_algebra import observed_first
from structgp.linalg.markov.chains import Chain
from structgp.linalg.small import form_of


class Smoothed(eqx.Module):
    """Everything known at N places, for C columns that share the gains."""

    m: Float[Array, "N D C"]  # filtered
    P: Float[Array, "N D D"]
    r: Float[Array, "N D C"]  # what later places say, without the place's own site
    N: Float[Array, "N D D"]
    r_seen: Float[Array, "N D C"]  # and with it
    N_seen: Float[Array, "N D D"]
    predicted_mean: Float[Array, "N C"]
    predicted_variance: Float[Array, " N"]

    def marginals(self) -> tuple[Float[Array, "N C"], Float[Array, " N"]]:
        """Mean and variance of f at every place."""
        k = self.P[:, 0]
        mean = self.m[:, 0] + jnp.sum(k[:, :, None] * self.r, 1)
        return mean, self.P[:, 0, 0] - _form(k, self.N)

    def states(self) -> tuple[Float[Array, "N D C"], Float[Array, "N D D"]]:
        """Mean and covariance of the state at every place."""
        return self.m + self.P @ self.r, self.P - self.P @ self.N @ self.P

    def left_out(
        self, precision: Float[Array, " N"], columns: Float[Array, "N C"]
    ) -> tuple[Float[Array, "N C"], Float[Array, " N"]]:
        """Mean and variance of each observation given all others (Gaussian sites); of f where the precision is 0."""
        k, w = self.P[:, 0], precision
        d = 1.0 + w * self.predicted_variance
        kr, kNk = jnp.sum(k[:, :, None] * self.r, 1), _form(k, self.N)
        # u/w and D/w keep their meaning at w = 0; D = w g
        g = 1.0 / d + w * kNk
        y = jnp.where(w[:, None] == 0, 0.0, columns)
        mean = y - ((y - self.predicted_mean) / d[:, None] - kr) / g[:, None]
        seen = w > 0
        _, variance = self.marginals()
        return mean, jnp.where(seen, 1.0 / jnp.where(seen, w * g, 1.0), variance)

    def cavities(
        self, precision: Float[Array, " N"], natural: Float[Array, "N C"]
    ) -> tuple[Float[Array, "N C"], Float[Array, " N"]]:
        """Mean and variance of f at every place without its own site exp(h f − ½ w f²)."""
        k, w = self.P[:, 0], precision
        mean, variance = self.marginals()
        g = 1.0 / (1.0 + w * self.predicted_variance) + w * _form(k, self.N)
        return (mean - variance[:, None] * natural) / g[:, None], variance / g


def _form(k, N):
    return jnp.sum(k[:, :, None] * N * k[:, None, :], (1, 2))


def smooth(
    chain: Chain,
    gaps: Float[Array, " N"],
    precision: Float[Array, " N"],
    columns: Float[Array, "N C"],
    *,
    accurate: bool = True,
    natural: bool = False,
    others: kalman.Others | None = None,
) -> Smoothed:
    """Filter forwards and (r, N) backwards. Arguments as in `kalman.evidence`."""
    assert not chain.varies, "kalman_emission is for chains that are seen differently from place to place"
    chain = observed_first(chain)
    form = form_of(chain.size, columns.shape[-1])
    options = kalman.Options(accurate or not chain.stationary, natural)
    columns = columns if natural else jnp.where(precision[:, None] == 0, 0.0, columns)
    gaps = jnp.concatenate([jnp.zeros_like(gaps[:1]), gaps[1:]])
    moves = chain.transition(gaps), chain.noise(gaps) if options.accurate else None
    stream = kalman.stream(form, options, moves, precision, columns)
    m, P = kalman.beginning(chain, columns) if others is None else others[:2]
    first = kalman.pack_state(form, form.of(m), form.of(0.5 * (P + P.T)))
    filtered, seen = forwards(form, options, kalman.base(form, chain, options), first, stream)
    last = (jnp.zeros_like(m), jnp.zeros_like(P)) if others is None else others[2:4]
    later = backwards(form, options, kalman.pack_state(form, *map(form.of, last)), stream, filtered, seen)
    return known(form, lambda x: jnp.moveaxis(x, (0, 1), (1, 2)), filtered, later, seen)


def known(form, places, filtered, later, seen):
    """What the loops gave, as arrays whose first axis `places` makes of the last ones."""
    (m, P), ((r, N), (r_seen, N_seen)) = filtered, later
    array = lambda x: places(form.array(form.unpack(x)))
    symmetric = lambda x: places(form.array(form.unpack_symmetric(x)))
    states = array(m), symmetric(P), array(r), symmetric(N), array(r_seen), symmetric(N_seen)
    return Smoothed(*states, array(seen[1])[:, 0], array(seen[0])[:, 0, 0])


def forwards(form, options, V, begin, stream):
    """Filtered (m, P) and (P⁻₁₁, m⁻₁) at every place after a beginning."""

    def body(state, x):
        A, Q, w, t = kalman.read(form, x)
        m_, P_, _ = kalman.reach(form, options, V, *kalman.unpack_state(form, state), A, Q)
        m, P, _ = kalman.see(form, options, m_, P_, w, t)
        state = kalman.pack_state(form, m, P)
        return state, (state, (form.pack(P_[..., :1, :1]), form.pack(m_[..., :1, :])))

    return lax.scan(body, begin, stream)[1]


def backwards(form, options, end, stream, filtered, seen):
    """(r, N) and (r⁻, N⁻) at every place before an end."""

    def body(state, x):
        (A, _, w, t), (p, mean) = kalman.read(form, x[0]), (form.unpack(a) for a in x[2])
        _, P = kalman.unpack_state(form, x[1])
        r_, N_, _, _ = kalman.unsee(form, options, *kalman.unpack_state(form, state), w, t, P[..., :, :1], p, mean)
        before = kalman.pack_state(form, form.product(A.mT, r_), form.product(form.product(A.mT, N_), A))
        return before, (state, kalman.pack_state(form, r_, N_))

    return lax.scan(body, end, (stream, filtered, seen), reverse=True)[1]


def lag_one(chain: Chain, gaps: Float[Array, " N"], smoothed: Smoothed) -> Float[Array, "N-1 D D"]:
    """Cov(z_i, z_{i+1}) given everything, i = 0, …, N − 2."""
    chain = observed_first(chain)
    A = jnp.moveaxis(chain.transition(gaps[1:]), -1, 0)
    P = smoothed.P[:-1]
    P_ = A @ P @ A.mT + jnp.moveaxis(chain.noise(gaps[1:]), -1, 0)
    PA = P @ A.mT
    return PA - PA @ smoothed.N_seen[1:] @ P_


def predict(
    chain: Chain,
    smoothed: Smoothed,
    left: Int[Array, " K"],
    gap_left: Float[Array, " K"],
    gap_right: Float[Array, " K"],
) -> tuple[Float[Array, "K D C"], Float[Array, "K D D"]]:
    """Mean and covariance of the state at new points.

    `left` is the index of the last place not after the point, −1 if there is none; `gap_left` and `gap_right` are the
    distances to that place and to the next one, whatever they are where there is none. A point before the first place
    needs a stationary chain.
    """
    chain = observed_first(chain)
    last = smoothed.m.shape[0] - 1
    first, end = left < 0, left >= last
    i, j = jnp.maximum(left, 0), jnp.minimum(left + 1, last)
    pick = lambda mask, a, b: jnp.where(mask.reshape(-1, *(1,) * (b.ndim - 1)), a, b)
    gaps = jnp.where(first, 0.0, gap_left)
    A = jnp.moveaxis(chain.transition(gaps), -1, 0)
    P = A @ smoothed.P[i] @ A.mT + jnp.moveaxis(chain.noise(gaps), -1, 0)
    m, P = pick(first, 0.0, A @ smoothed.m[i]), pick(first, chain.start(), P)
    A = jnp.moveaxis(chain.transition(jnp.where(end, 0.0, gap_right)), -1, 0)
    r = pick(end, 0.0, A.mT @ smoothed.r_seen[j])
    N = pick(end, 0.0, A.mT @ smoothed.N_seen[j] @ A)
    return m + P @ r, P - P @ N @ P


def read_values(row: Float[Array, " D"], mean: Float[Array, "K D C"], covariance: Float[Array, "K D D"]):
    """Mean (K, C) and variance (K,) of row · z; rows for `observed_first(chain)` come from `chain_algebra.read_weights`."""
    return jnp.einsum("d,kdc->kc", row, mean), jnp.einsum("d,kde,e->k", row, covariance, row)


def factor(Q: Float[Array, "D D *gaps"]) -> Float[Array, "D D *gaps"]:
    """A lower triangular L with L Lᵀ = Q ⪰ 0; a vanished pivot gives a zero column."""
    D, columns = Q.shape[0], []
    rest = Q
    for j in range(D):
        pivot = rest[j, j]
        good = pivot > 1e-14 * Q[j, j]
        column = jnp.where(good, rest[:, j] / jnp.sqrt(jnp.where(good, pivot, 1.0)), 0.0)
        column = column.at[:j].set(0.0)
        columns.append(column)
        rest = rest - column[:, None] * column[None]
    return jnp.stack(columns, 1)


def prior_samples(
    chain: Chain, gaps: Float[Array, " N"], key: Array, count: int, *, parallel: bool = False
) -> Float[Array, "N D count"]:
    """Samples of the state at all places; f is coordinate 0 (the basis of `observed_first`)."""
    chain = observed_first(chain)
    gaps = jnp.concatenate([jnp.zeros_like(gaps[:1]), gaps[1:]])
    A = jnp.moveaxis(chain.transition(gaps), -1, 0)
    L = jnp.moveaxis(factor(chain.noise(gaps)), -1, 0)
    noise = L @ jax.random.normal(key, (len(gaps), chain.size, count), gaps.dtype)
    z0 = factor(chain.start()) @ jax.random.normal(jax.random.fold_in(key, 1), (chain.size, count), gaps.dtype)
    return recursion(A, noise.at[0].add(z0), parallel=parallel)


def recursion(
    A: Float[Array, "N D D"], b: Float[Array, "N D count"], *, reverse: bool = False, parallel: bool = False
) -> Float[Array, "N D count"]:
    """z = A z + b from one place to the next, from zero; in parallel the affine maps of all places are joined."""
    product = lambda A, B: jnp.sum(A[..., :, :, None] * B[..., None, :, :], -2)
    if parallel:
        join = lambda first, second: (product(second[0], first[0]), product(second[0], first[1]) + second[1])
        return lax.associative_scan(join, (A, b), reverse=reverse)[1]
    times = jnp.matmul if form_of(A.shape[-1]).__name__ == "Dense" else product

    def body(z, x):
        z = times(x[0], z) + x[1]
        return z, z

    return lax.scan(body, jnp.zeros_like(b[0]), (A, b), reverse=reverse)[1]


def posterior_samples(
    chain: Chain,
    gaps: Float[Array, " N"],
    precision: Float[Array, " N"],
    columns: Float[Array, "N 1"],
    key: Array,
    count: int,
    *,
    smooth: Any = smooth,
    parallel: bool = False,
) -> Float[Array, "N D count"]:
    """Joint samples of the state at all places given the sites: a prior sample plus the smoothed mean of what it missed."""
    keys = jax.random.split(key)
    z = prior_samples(chain, gaps, keys[0], count, parallel=parallel)
    sd = jnp.where(precision > 0, 1.0 / jnp.sqrt(jnp.where(precision > 0, precision, 1.0)), 0.0)
    missed = columns - z[:, 0] - sd[:, None] * jax.random.normal(keys[1], (len(gaps), count), gaps.dtype)
    return z + smooth(chain, gaps, precision, missed).states()[0]


def backward_samples(
    chain: Chain,
    gaps: Float[Array, " N"],
    precision: Float[Array, " N"],
    columns: Float[Array, "N 1"],
    key: Array,
    count: int,
    *,
    smooth: Any = smooth,
    parallel: bool = False,
) -> Float[Array, "N D count"]:
    """The same by filtering forwards and sampling backwards: one pass for all samples, so the faster way to many.

    Given its right neighbour z′ a state is N(m + J (z′ − A m), (I − JA) P (I − JA)ᵀ + J Q Jᵀ), J = P Aᵀ (P⁻)⁻¹.
    """
    inner, filtered = observed_first(chain), smooth(chain, gaps, precision, columns)
    A = jnp.moveaxis(inner.transition(gaps[1:]), -1, 0)
    Q = jnp.moveaxis(inner.noise(gaps[1:]), -1, 0)
    m, P = filtered.m, filtered.P
    J = _divided(A @ P[:-1], A @ P[:-1] @ A.mT + Q).mT
    rest = np.eye(inner.size) - J @ A
    spread = jnp.concatenate([rest @ P[:-1] @ rest.mT + J @ Q @ J.mT, P[-1:]])
    noise = jax.random.normal(key, (len(gaps), inner.size, count), gaps.dtype)
    push = m.at[:-1].add(-J @ A @ m[:-1]) + jnp.moveaxis(factor(jnp.moveaxis(spread, 0, -1)), -1, 0) @ noise
    return recursion(jnp.pad(J, ((0, 1), (0, 0), (0, 0))), push, reverse=True, parallel=parallel)


def _divided(B: Float[Array, "N D E"], P: Float[Array, "N D D"]) -> Float[Array, "N D E"]:
    """P⁻¹B for P ⪰ 0 and B in its range: directions in which P vanishes are left out."""
    L = jnp.moveaxis(factor(jnp.moveaxis(P, 0, -1)), -1, 0)
    D = L.shape[1]
    kept = [(L[:, j, j] > 0)[:, None] for j in range(D)]
    over = lambda j, x: jnp.where(kept[j], x / jnp.where(kept[j], L[:, j, j, None], 1.0), 0.0)
    rows: list = []
    for j in range(D):
        rows.append(over(j, B[:, j] - sum((L[:, j, k, None] * rows[k] for k in range(j)), 0.0)))
    for j in reversed(range(D)):
        rows[j] = over(j, rows[j] - sum((L[:, k, j, None] * rows[k] for k in range(j + 1, D)), 0.0))
    return jnp.stack(rows, 1)
