"""A grid of which some cells are seen, each with a precision of its own: white coordinates and a preconditioner of two levels.

For K = ⊗K_d over the grid, factors exp(h f − ½ w f²) with W = diag(w), 0 where nothing was seen, and any K_d = F_dF_dᵀ, the
coordinates z of f = Fz are white:

    H z = Fᵀh,   H = I + FᵀWF,   mean = Σh = F z,   α = h − W mean,   log|I + KW| = log|H|,   Σ = (K⁻¹ + W)⁻¹ = F H⁻¹Fᵀ.

The factors F_d = Q_dΛ_d^{½}V_d are turned (V_d) so that Fᵀ diag(⊗w_d) F is diagonal for the marginal means w_d of w. A mask
that factorises is then solved at once. `two_levels` has the preconditioner, the bounds of log|H| and the probes. Nothing is
differentiated through an eigendecomposition:

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
from .two_levels import Effort, Probed, TwoLevels, log_det_of, means, probe

NEGLIGIBLE = 1e-9  # eigenvalues of an axis below this part of what the data could tell are left out of inverses
FACTORS = 3  # into how many parts the axes are taken together for the dense block


class Chosen(NamedTuple):
    """The modes of the block, among the products of a few columns of F from each part of the axes."""

    modes: Int[Array, " r"]  # flat indices
    columns: tuple[tuple[Int[Array, " c"], ...], ...]  # for each part, which columns of its axes
    places: tuple[Int[Array, " r"], ...]  # for each part, which of its columns a mode has


class System(NamedTuple):
    """H in white coordinates over a grid, and what stands for it."""

    parts: kron.Spectral
    factors: tuple[Float[Array, "_ _"], ...]  # F_d
    turns: tuple[Float[Array, "_ _"], ...]  # V_d
    w: Float[Array, "*sizes"]
    chosen: Chosen
    levels: TwoLevels

    def spread(self, z: Float[Array, " C *sizes"]) -> Float[Array, " C *sizes"]:
        """F z for several z."""
        return kron.products(self.factors, z)

    def gather(self, x: Float[Array, " C *sizes"]) -> Float[Array, " C *sizes"]:
        """Fᵀx for several x."""
        return kron.products(kron.transposed(self.factors), x)

    def apply(self, z: Float[Array, "*sizes"]) -> Float[Array, "*sizes"]:
        """H z."""
        return z + kron.product(kron.transposed(self.factors), self.w * kron.product(self.factors, z))

    def inverse_factors(self) -> list[Float[Array, "_ _"]]:
        """F_d⁻¹, with zeros for what is too small to be told from nothing."""
        largest = [jnp.max(values) for values in self.parts.values]
        heaviest = jnp.maximum(jnp.max(self.w), jnp.finfo(self.w.dtype).tiny)
        inverses = []
        for d, (values, Q, V) in enumerate(zip(self.parts.values, self.parts.vectors, self.turns, strict=True)):
            others = math.prod(largest[:d] + largest[d + 1 :])
            told = values * others * heaviest > NEGLIGIBLE
            inverses.append(V.T @ (jnp.where(told, 1 / jnp.sqrt(jnp.where(told, values, 1.0)), 0.0)[:, None] * Q.T))
        return inverses


def build(matrices: Sequence[Float[Array, "_ _"]], w: Float[Array, "*sizes"], effort: Effort) -> System:
    """White coordinates for ⊗K_d and the preconditioner."""
    parts = kron.eigen(matrices)
    turned = [_turned(parts, w, d) for d in range(w.ndim)]
    strengths, turns = [strength for strength, _ in turned], tuple(V for _, V in turned)
    factors = tuple(F @ V for F, V in zip(parts.root(), turns, strict=True))
    chosen = _choose(strengths, effort)
    H = jnp.eye(len(chosen.modes)) + _block(factors, chosen, w)
    diagonal = 1 + kron.product(kron.transposed(kron.squared(factors)), w)
    return System(parts, factors, turns, w, chosen, TwoLevels.of(chosen.modes, H, diagonal))


def _turned(parts: kron.Spectral, w: Float[Array, "*sizes"], d: int) -> tuple[Float[Array, " _"], Float[Array, "G G"]]:
    """How much each white coordinate of an axis is seen, the most first, and the rotation to these coordinates."""
    weight = jnp.mean(w, axis=tuple(e for e in range(w.ndim) if e != d))
    total = jnp.mean(weight)
    weight = jnp.where(total > 0, weight / jnp.where(total > 0, total, 1.0), 1.0)
    root = parts.vectors[d] * jnp.sqrt(parts.values[d])
    values, V = jnp.linalg.eigh(root.T @ (weight[:, None] * root))
    return jnp.maximum(values[::-1], 0.0), V[:, ::-1]


def _choose(strengths: Sequence[Float[Array, " _"]], effort: Effort) -> Chosen:
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


def _block(factors: Sequence[Float[Array, "_ _"]], chosen: Chosen, w: Float[Array, "*sizes"]) -> Float[Array, "r r"]:
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


def variances(system: System, rows: Sequence[Float[Array, "_ _"]], probed: Probed) -> Float[Array, "*cells"]:
    """diag(V H⁻¹Vᵀ) for V = ⊗rows, the variance left at the cells of a grid: that of P, and what the probes add to it."""
    levels = system.levels
    rest = kron.product(kron.squared(rows), (1 - levels.inside) / levels.diagonal)
    # The adjoint of w ↦ H_SS spreads an r × r matrix over the cells.
    cells = jnp.zeros(tuple(len(R) for R in rows))
    found = rest + jax.vjp(functools.partial(_block, rows, system.chosen), cells)[1](levels.inverse)[0]
    if not len(probed.easy):
        return found
    spread = kron.products(rows, probed.solved - probed.easy) * kron.products(rows, probed.easy)
    return found + jnp.mean(spread, axis=0)


@functools.partial(jax.custom_vjp, nondiff_argnums=(3,))
def log_det_and_gram(
    matrices: tuple[Float[Array, "_ _"], ...], w: Float[Array, "*sizes"], h: Float[Array, " C *sizes"], effort: Effort
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
    sizes, levels = system.w.shape, system.levels
    diagonal = kron.sum_to_axis((1 - levels.inside) * (levels.diagonal - 1) / levels.diagonal, d)
    index = list(jnp.unravel_index(levels.modes, sizes))
    own = jax.nn.one_hot(index[d], sizes[d], dtype=diagonal.dtype)
    index[d] = jnp.zeros_like(index[d])
    others = jnp.ravel_multi_index(index, sizes, mode="clip")
    block = jnp.where(others[:, None] == others[None, :], jnp.eye(len(others)) - levels.inverse, 0.0)
    pairs = zip(probed.easy - probed.solved, probed.easy, strict=True)
    noisy = sum(kron.product_along(difference, easy, d) for difference, easy in pairs) / max(len(probed.easy), 1)
    total = jnp.diag(diagonal) + own.T @ block @ own + noisy
    return 0.5 * (total + total.T)
