"""A grid of which some cells are seen, each with a precision of its own: white coordinates and a preconditioner of two levels.

For K = ⊗K_d over the grid, factors exp(h f − ½ w f²) with W = diag(w), 0 where nothing was seen, and any K_d = F_dF_dᵀ, the
coordinates z of f = Fz are white:

    H z = Fᵀh,   H = I + FᵀWF,   mean = Σh = F z,   α = h − W mean,   log|I + KW| = log|H|,   Σ = (K⁻¹ + W)⁻¹ = F H⁻¹Fᵀ.

The factors F_d = Q_dΛ_d^{½}V_d are turned (V_d) so that Fᵀ diag(⊗w_d) F is diagonal for the marginal means w_d of w. A mask
that factorises is then solved at once. The preconditioner P is H on the r modes that matter most, and its diagonal on the
others. For any choice of modes S,

    log|H_SS| ≤ log|H| ≤ log|H_SS| + Σ_{i∉S} log H_ii,

and the upper end is corrected by probes with E[uuᵀ] = P: E[zᵀ log(P^{-½}HP^{-½}) z] with u = P^{½}z, from the coefficients of
the conjugate gradients that solve Hx = u. The same solutions give H⁻¹ − P⁻¹ = E[(x − P⁻¹u)(P⁻¹u)ᵀ] for the gradient and for
variances, with P⁻¹ exact, so that little is left to chance. Nothing is differentiated through an eigendecomposition:

    ∂log|H|/∂K_d = F_d⁻ᵀ Φ_d F_d⁻¹,   Φ_d the partial trace of I − H⁻¹ over the other axes.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from . import kronecker as kron
from .krylov import Solved, conjugate_gradients, log_form

SEED = 20  # of the probes, which stay the same while parameters are learned
KEPT = 64  # coefficients of conjugate gradients that are remembered for a logarithm
NEGLIGIBLE = 1e-9  # eigenvalues of an axis below this part of what the data could tell are left out of inverses
FACTORS = 3  # into how many parts the axes are taken together for the dense block


class Effort(NamedTuple):
    """How much is spent: modes in the dense block, numbers held to build it, probes, and when conjugate gradients stop."""

    modes: int = 1000
    numbers: int = 30_000_000
    probes: int = 4
    tolerance: float = 1e-8
    most: int = 1000
    gap: float = 0.02  # an interval for log|C| shorter than this is an answer: no probes are used


class Chosen(NamedTuple):
    """The modes of the block, among the products of a few columns of F from each part of the axes."""

    modes: Int[Array, "r"]  # flat indices
    columns: tuple[tuple[Int[Array, "c"], ...], ...]  # for each part, which columns of its axes
    places: tuple[Int[Array, "r"], ...]  # for each part, which of its columns a mode has


class System(NamedTuple):
    """H in white coordinates, and its preconditioner."""

    parts: kron.Spectral
    factors: tuple[Float[Array, "G G"], ...]  # F_d
    turns: tuple[Float[Array, "G G"], ...]  # V_d
    w: Float[Array, "*sizes"]
    diagonal: Float[Array, "*sizes"]  # of H
    inside: Float[Array, "*sizes"]  # 1 for the modes of the block, else 0
    chosen: Chosen
    root: Float[Array, "r r"]  # the Cholesky factor of H_SS
    inverse: Float[Array, "r r"]  # of H_SS

    @property
    def modes(self) -> Int[Array, "r"]:
        """The flat indices of the modes of the block."""
        return self.chosen.modes

    def apply(self, z: Float[Array, "*sizes"]) -> Float[Array, "*sizes"]:
        """H z."""
        return z + kron.product(kron.transposed(self.factors), self.w * kron.product(self.factors, z))

    def precondition(self, r: Float[Array, "*sizes"]) -> Float[Array, "*sizes"]:
        """P⁻¹ r."""
        flat = jnp.ravel(r)
        block = self.inverse @ flat[self.modes]
        return (flat / jnp.ravel(self.diagonal)).at[self.modes].set(block).reshape(r.shape)

    def solve(self, b: Float[Array, "C *sizes"], effort: Effort) -> Solved:
        """H⁻¹b for each b."""
        one = lambda b: conjugate_gradients(self.apply, self.precondition, b, effort.tolerance, effort.most, KEPT)
        return jax.lax.map(one, b)

    def interval(self) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """A lower and an upper bound of log|H|."""
        low = 2 * jnp.sum(jnp.log(jnp.diagonal(self.root)))
        return low, low + jnp.sum((1 - self.inside) * jnp.log(self.diagonal))

    def inverse_factors(self) -> list[Float[Array, "G G"]]:
        """F_d⁻¹, with zeros for what is too small to be told from nothing."""
        largest = [jnp.max(values) for values in self.parts.values]
        heaviest = jnp.maximum(jnp.max(self.w), jnp.finfo(self.w.dtype).tiny)
        inverses = []
        for d, (values, Q, V) in enumerate(zip(self.parts.values, self.parts.vectors, self.turns, strict=True)):
            others = math.prod(largest[:d] + largest[d + 1 :])
            told = values * others * heaviest > NEGLIGIBLE
            inverses.append(V.T @ (jnp.where(told, 1 / jnp.sqrt(jnp.where(told, values, 1.0)), 0.0)[:, None] * Q.T))
        return inverses


def build(matrices: Sequence[Float[Array, "G G"]], w: Float[Array, "*sizes"], effort: Effort) -> System:
    """White coordinates for ⊗K_d and the preconditioner."""
    parts = kron.eigen(matrices)
    turned = [_turned(parts, w, d) for d in range(w.ndim)]
    strengths, turns = [strength for strength, _ in turned], tuple(V for _, V in turned)
    factors = tuple(F @ V for F, V in zip(parts.root(), turns, strict=True))
    chosen = _choose(strengths, effort)
    H = jnp.eye(len(chosen.modes)) + _block(factors, chosen, w)
    root = jnp.linalg.cholesky(H)
    half = jax.scipy.linalg.solve_triangular(root, jnp.eye(len(root)), lower=True)
    diagonal = 1 + kron.product(kron.transposed(kron.squared(factors)), w)
    inside = jnp.zeros(w.size).at[chosen.modes].set(1.0).reshape(w.shape)
    return System(parts, factors, turns, w, diagonal, inside, chosen, root, half.T @ half)


def _turned(parts: kron.Spectral, w: Float[Array, "*sizes"], d: int) -> tuple[Float[Array, "G"], Float[Array, "G G"]]:
    """How much each white coordinate of an axis is seen, the most first, and the rotation to these coordinates."""
    weight = jnp.mean(w, axis=tuple(e for e in range(w.ndim) if e != d))
    total = jnp.mean(weight)
    weight = jnp.where(total > 0, weight / jnp.where(total > 0, total, 1.0), 1.0)
    root = parts.vectors[d] * jnp.sqrt(parts.values[d])
    values, V = jnp.linalg.eigh(root.T @ (weight[:, None] * root))
    return jnp.maximum(values[::-1], 0.0), V[:, ::-1]


def _choose(strengths: Sequence[Float[Array, "G"]], effort: Effort) -> Chosen:
    """The strongest modes among the products of the strongest columns of each part."""
    sizes = [len(strength) for strength in strengths]
    joined = _parts(sizes)
    caps = _caps([math.prod(sizes[d] for d in part) for part in joined], effort)
    columns, kept, strong = [], [], []
    for part, cap in zip(joined, caps, strict=True):
        strength, flat = jax.lax.top_k(jnp.ravel(kron.outer([strengths[d] for d in part])), cap)
        columns.append(tuple(jnp.unravel_index(flat, [sizes[d] for d in part])))
        kept.append(flat)
        strong.append(strength)
    box = jnp.ravel(kron.outer(strong))
    _, best = jax.lax.top_k(box, min(effort.modes, box.size))
    places = jnp.unravel_index(best, caps)
    modes = jnp.zeros_like(best)
    for part, flat, place in zip(joined, kept, places, strict=True):
        modes = modes * math.prod(sizes[d] for d in part) + flat[place]
    return Chosen(modes, tuple(columns), tuple(places))


def _parts(sizes: Sequence[int]) -> list[list[int]]:
    """Consecutive axes taken together, so that few parts of similar size are left."""
    parts = [[d] for d in range(len(sizes))]
    size = lambda part: math.prod(sizes[d] for d in part)
    while len(parts) > FACTORS:
        at = int(np.argmin([size(a) * size(b) for a, b in itertools.pairwise(parts)]))
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
    return parts


def _caps(sizes: Sequence[int], effort: Effort) -> list[int]:
    """How many columns of each part take part: as many as there are, or as the numbers that may be held allow."""
    caps = [1] * len(sizes)
    pairs = lambda caps: math.prod(c * (c + 1) // 2 for c in caps)
    growing = list(range(len(sizes)))
    while growing:
        for d in list(growing):
            grown = [c + (e == d) for e, c in enumerate(caps)]
            if caps[d] == min(sizes[d], effort.modes) or pairs(grown) > effort.numbers:
                growing.remove(d)
            else:
                caps = grown
    return caps


def _block(factors: Sequence[Float[Array, "A G"]], chosen: Chosen, w: Float[Array, "*sizes"]) -> Float[Array, "r r"]:
    """FᵀWF for the chosen modes: w against the products of pairs of columns, part by part, then the pairs that are wanted."""
    X = jnp.ravel(w)
    index = jnp.zeros((len(chosen.modes),) * 2, int)
    axes = iter(factors)
    for picks, place in zip(chosen.columns, chosen.places, strict=True):
        picked = [next(axes)[:, pick] for pick in picks]
        F = functools.reduce(lambda A, B: (A[:, None] * B[None]).reshape(-1, A.shape[-1]), picked)
        c = F.shape[1]
        a, b = np.triu_indices(c)
        number = np.zeros((c, c), int)
        number[a, b] = number[b, a] = np.arange(len(a))
        X = jnp.einsum("gr,gp->rp", X.reshape(len(F), -1), F[:, a] * F[:, b])
        index = index * len(a) + jnp.asarray(number)[place[:, None], place[None, :]]
    return jnp.ravel(X)[index]


class Probed(NamedTuple):
    """What the probes say: P⁻¹u, H⁻¹u, the correction of the upper bound of log|H| from each, and whether any was needed."""

    easy: Float[Array, "p *sizes"]
    solved: Float[Array, "p *sizes"]
    corrections: Float[Array, "p"]


def probe(system: System, effort: Effort, seed: int = SEED) -> Probed:
    """Solve for random right-hand sides with covariance P, unless the bounds of log|H| are close already."""
    if not effort.probes:
        nothing = jnp.zeros((0, *system.w.shape))
        return Probed(nothing, nothing, jnp.zeros(0))
    signs = jax.random.rademacher(jax.random.key(seed), (effort.probes, *system.w.shape), dtype=system.w.dtype)
    roots = jnp.sqrt(system.diagonal)
    easy, right = jax.lax.map(lambda z: _halves(system, z, roots), signs)
    low, high = system.interval()

    def run() -> tuple[Array, Array]:
        solved = system.solve(right, effort)
        return solved.x, system.w.size * jax.vmap(log_form)(solved)

    x, corrections = jax.lax.cond(high - low > effort.gap, run, lambda: (easy, jnp.zeros(effort.probes)))
    return Probed(easy, x, corrections)


def _halves(system: System, z: Float[Array, "*sizes"], roots: Float[Array, "*sizes"]) -> tuple[Array, Array]:
    """P^{-½}z and P^{½}z."""
    flat, spread = jnp.ravel(z), jnp.ravel(roots)
    block = flat[system.modes]
    lower = jax.scipy.linalg.solve_triangular(system.root, block, lower=True, trans="T")
    easy = (flat / spread).at[system.modes].set(lower)
    right = (flat * spread).at[system.modes].set(system.root @ block)
    return easy.reshape(z.shape), right.reshape(z.shape)


class LogDet(NamedTuple):
    """log|H|: the estimate, its standard error by the probes, and the interval in which it lies for certain."""

    value: Float[Array, ""]
    error: Float[Array, ""]
    low: Float[Array, ""]
    high: Float[Array, ""]


def log_det_of(system: System, probed: Probed) -> LogDet:
    """The upper bound, corrected by the probes, and never outside the interval."""
    low, high = system.interval()
    count = len(probed.corrections)
    if count < 2:
        return LogDet(high, high - low, low, high)
    error = jnp.std(probed.corrections, ddof=1) / math.sqrt(count)
    return LogDet(jnp.clip(high + jnp.mean(probed.corrections), low, high), error, low, high)


def variances(system: System, rows: Sequence[Float[Array, "A G"]], probed: Probed) -> Float[Array, "*cells"]:
    """diag(V H⁻¹Vᵀ) for V = ⊗rows, the variance left at the cells of a grid: that of P, and what the probes add to it."""
    rest = kron.product(kron.squared(rows), (1 - system.inside) / system.diagonal)
    # The adjoint of w ↦ H_SS spreads an r × r matrix over the cells.
    cells = jnp.zeros(tuple(len(R) for R in rows))
    found = rest + jax.vjp(functools.partial(_block, rows, system.chosen), cells)[1](system.inverse)[0]
    if not len(probed.easy):
        return found
    spread = kron.products(rows, probed.solved - probed.easy) * kron.products(rows, probed.easy)
    return found + jnp.mean(spread, axis=0)


class Means(NamedTuple):
    """Σh for several shifts h, Σ = (K⁻¹ + W)⁻¹: in white coordinates, at the cells, and hᵀΣh."""

    z: Float[Array, "C *sizes"]
    mean: Float[Array, "C *sizes"]
    gram: Float[Array, "C C"]
    steps: Int[Array, "C"]


def means(system: System, h: Float[Array, "C *sizes"], effort: Effort) -> Means:
    """Solve for the means; hᵀΣh = 2hᵀFz − zᵀHz is the greatest value of a quadratic form: an error of z counts squared."""
    solved = system.solve(kron.products(kron.transposed(system.factors), h), effort)
    mean = kron.products(system.factors, solved.x)
    flat = lambda X: X.reshape(len(X), -1)
    once = flat(h) @ flat(mean).T
    again = flat(solved.x) @ flat(solved.x).T + flat(system.w * mean) @ flat(mean).T
    return Means(solved.x, mean, once + once.T - again, solved.steps)


@functools.partial(jax.custom_vjp, nondiff_argnums=(3,))
def log_det_and_gram(
    matrices: tuple[Float[Array, "G G"], ...], w: Float[Array, "*sizes"], h: Float[Array, "C *sizes"], effort: Effort
) -> tuple[Float[Array, ""], Float[Array, "C C"]]:
    """log|I + KW| and hᵀ(K⁻¹ + W)⁻¹h, differentiable in the K_d, in w and in h."""
    return _forward(matrices, w, h, effort)[0]


def _forward(matrices: tuple[Array, ...], w: Array, h: Array, effort: Effort) -> tuple[tuple[Array, Array], tuple]:
    system = build(matrices, w, effort)
    probed = probe(system, effort)
    found = means(system, h, effort)
    return (log_det_of(system, probed).value, found.gram), (system, probed, h, found.mean)


def _backward(effort: Effort, saved: tuple, adjoints: tuple[Array, Array]) -> tuple[tuple[Array, ...], Array, Array]:
    system, probed, h, mean = saved
    of_log_det, of_gram = adjoints
    S = 0.5 * (of_gram + of_gram.T)
    alpha = kron.products(kron.transposed(system.parts.vectors), h - system.w * mean)
    weighted = jnp.tensordot(S, alpha, 1)
    to_matrices = []
    for d, (Q, inverse) in enumerate(zip(system.parts.vectors, system.inverse_factors(), strict=True)):
        rest = kron.without_axis(system.parts.values, d)
        pulled = sum(kron.product_along(a * rest, b, d) for a, b in zip(alpha, weighted, strict=True))
        to_matrices.append(of_log_det * inverse.T @ _partial_trace(system, probed, d) @ inverse + Q @ pulled @ Q.T)
    to_h = jnp.tensordot(S, mean, 1)
    to_w = of_log_det * variances(system, system.factors, probed) - jnp.sum(to_h * mean, axis=0)
    return tuple(to_matrices), to_w, 2 * to_h


log_det_and_gram.defvjp(_forward, _backward)


def _partial_trace(system: System, probed: Probed, d: int) -> Float[Array, "G G"]:
    """Φ_d, the trace of I − H⁻¹ over all axes but d."""
    sizes = system.w.shape
    diagonal = kron.sum_to_axis((1 - system.inside) * (system.diagonal - 1) / system.diagonal, d)
    index = list(jnp.unravel_index(system.modes, sizes))
    own = jax.nn.one_hot(index[d], sizes[d], dtype=diagonal.dtype)
    index[d] = jnp.zeros_like(index[d])
    others = jnp.ravel_multi_index(index, sizes, mode="clip")
    block = jnp.where(others[:, None] == others[None, :], jnp.eye(len(others)) - system.inverse, 0.0)
    pairs = zip(probed.easy - probed.solved, probed.easy, strict=True)
    noisy = sum(kron.product_along(difference, easy, d) for difference, easy in pairs) / max(len(probed.easy), 1)
    total = jnp.diag(diagonal) + own.T @ block @ own + noisy
    return 0.5 * (total + total.T)
