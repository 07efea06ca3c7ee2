"""Systems H z = b in white coordinates, H = I + FᵀWF, that are dense on a few modes and close to diagonal on the others.

A system says how H is applied, how white coordinates z become values F z and back, and which two levels stand for it: P is H on
the modes S that matter most and the diagonal of H elsewhere. For any choice of modes,

    log|H_SS| ≤ log|H| ≤ log|H_SS| + Σ_{i∉S} log H_ii,

and the upper end is corrected by probes with E[uuᵀ] = P: E[zᵀ log(P^{-½}HP^{-½}) z] with u = P^{½}z, from the coefficients of
the conjugate gradients that solve Hx = u. The same solutions give H⁻¹ − P⁻¹ = E[(x − P⁻¹u)(P⁻¹u)ᵀ] for the gradient and for
variances, with P⁻¹ exact, so that little is left to chance.
"""

from __future__ import annotations

import math
from typing import NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from ..krylov import Solved, conjugate_gradients, log_form

SEED = 20  # of the probes, which stay the same while parameters are learned
KEPT = 64  # coefficients of conjugate gradients that are remembered for a logarithm


class Effort(NamedTuple):
    """How much is spent: modes in the dense block, numbers held to build it, probes, and when conjugate gradients stop.

    The probes stop earlier: what they leave to chance is far more, and their logarithms are right to the square of it.
    """

    modes: int = 1000
    numbers: int = 30_000_000
    probes: int = 4
    tolerance: float = 1e-8
    probing: float = 1e-4
    most: int = 1000
    gap: float = 0.02  # an interval for log|C| shorter than this is an answer: no probes are used


class TwoLevels(NamedTuple):
    """P, which stands for H: its block on some modes, and its diagonal."""

    modes: Int[Array, " r"]  # flat indices of the block
    diagonal: Float[Array, "*sizes"]  # of H
    inside: Float[Array, "*sizes"]  # 1 for the modes of the block, else 0
    root: Float[Array, "r r"]  # the Cholesky factor of H_SS
    inverse: Float[Array, "r r"]  # of H_SS

    @classmethod
    def of(cls, modes: Int[Array, " r"], block: Float[Array, "r r"], diagonal: Float[Array, "*sizes"]) -> TwoLevels:
        """From the entries of H."""
        root = jnp.linalg.cholesky(block)
        half = jax.scipy.linalg.solve_triangular(root, jnp.eye(len(root)), lower=True)
        inside = jnp.zeros(diagonal.size).at[modes].set(1.0).reshape(diagonal.shape)
        return cls(modes, diagonal, inside, root, half.T @ half)

    def solve(self, r: Float[Array, "*sizes"]) -> Float[Array, "*sizes"]:
        """P⁻¹ r."""
        flat = jnp.ravel(r)
        block = self.inverse @ flat[self.modes]
        return (flat / jnp.ravel(self.diagonal)).at[self.modes].set(block).reshape(r.shape)

    def halves(self, z: Float[Array, "*sizes"]) -> tuple[Float[Array, "*sizes"], Float[Array, "*sizes"]]:
        """P^{-½}z and P^{½}z."""
        flat, spread = jnp.ravel(z), jnp.sqrt(jnp.ravel(self.diagonal))
        block = flat[self.modes]
        lower = jax.scipy.linalg.solve_triangular(self.root, block, lower=True, trans="T")
        easy = (flat / spread).at[self.modes].set(lower)
        right = (flat * spread).at[self.modes].set(self.root @ block)
        return easy.reshape(z.shape), right.reshape(z.shape)

    def interval(self) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """A lower and an upper bound of log|H|."""
        low = 2 * jnp.sum(jnp.log(jnp.diagonal(self.root)))
        return low, low + jnp.sum((1 - self.inside) * jnp.log(self.diagonal))


@runtime_checkable
class System(Protocol):
    """H = I + FᵀWF and what stands for it."""

    @property
    def levels(self) -> TwoLevels:
        """The preconditioner."""

    @property
    def w(self) -> Float[Array, "*sizes"]:
        """The precisions, 0 where nothing was seen."""

    def spread(self, z: Float[Array, " C *sizes"]) -> Float[Array, " C *sizes"]:
        """F z for several z."""

    def gather(self, x: Float[Array, " C *sizes"]) -> Float[Array, " C *sizes"]:
        """Fᵀx for several x."""

    def apply(self, z: Float[Array, "*sizes"]) -> Float[Array, "*sizes"]:
        """H z."""


def solve(system: System, b: Float[Array, " C *sizes"], effort: Effort) -> Solved:
    """H⁻¹b for each b."""
    one = lambda b: conjugate_gradients(system.apply, system.levels.solve, b, effort.tolerance, effort.most, KEPT)
    return jax.lax.map(one, b)


class Probed(NamedTuple):
    """What the probes say: P⁻¹u, H⁻¹u, and the correction of the upper bound of log|H| from each."""

    easy: Float[Array, " p *sizes"]
    solved: Float[Array, " p *sizes"]
    corrections: Float[Array, " p"]


def probe(system: System, effort: Effort, seed: int = SEED) -> Probed:
    """Solve for random right-hand sides with covariance P, unless the bounds of log|H| are close already."""
    shape, levels = system.levels.diagonal.shape, system.levels
    if not effort.probes:
        nothing = jnp.zeros((0, *shape))
        return Probed(nothing, nothing, jnp.zeros(0))
    signs = jax.random.rademacher(jax.random.key(seed), (effort.probes, *shape), dtype=levels.diagonal.dtype)
    easy, right = jax.lax.map(levels.halves, signs)
    low, high = levels.interval()

    def run() -> tuple[Array, Array]:
        solved = solve(system, right, effort._replace(tolerance=effort.probing))
        return solved.x, levels.diagonal.size * jax.vmap(log_form)(solved)

    x, corrections = jax.lax.cond(high - low > effort.gap, run, lambda: (easy, jnp.zeros(effort.probes)))
    return Probed(easy, x, corrections)


class LogDet(NamedTuple):
    """log|H|: the estimate, its standard error by the probes, and the interval in which it lies for certain."""

    value: Float[Array, ""]
    error: Float[Array, ""]
    low: Float[Array, ""]
    high: Float[Array, ""]


def log_det_of(system: System, probed: Probed) -> LogDet:
    """The upper bound, corrected by the probes, and never outside the interval."""
    low, high = system.levels.interval()
    count = len(probed.corrections)
    if count < 2:
        return LogDet(high, high - low, low, high)
    error = jnp.std(probed.corrections, ddof=1) / math.sqrt(count)
    return LogDet(jnp.clip(high + jnp.mean(probed.corrections), low, high), error, low, high)


class Means(NamedTuple):
    """Σh for several shifts h, Σ = (K⁻¹ + W)⁻¹: in white coordinates, as values, and hᵀΣh."""

    z: Float[Array, " C *sizes"]
    mean: Float[Array, " C *sizes"]
    gram: Float[Array, "C C"]
    steps: Int[Array, " C"]


def means(system: System, h: Float[Array, " C *sizes"], effort: Effort) -> Means:
    """Solve for the means; hᵀΣh = 2hᵀFz − zᵀHz is the greatest value of a quadratic form: an error of z counts squared."""
    solved = solve(system, system.gather(h), effort)
    mean = system.spread(solved.x)
    flat = lambda X: X.reshape(len(X), -1)
    once = flat(h) @ flat(mean).T
    again = flat(solved.x) @ flat(solved.x).T + flat(system.w * mean) @ flat(mean).T
    return Means(solved.x, mean, once + once.T - again, solved.steps)


def left_of(system: System, v: Float[Array, "*sizes"], effort: Effort) -> Float[Array, ""]:
    """vᵀH⁻¹v = 2vᵀx − xᵀHx, so that an error of x counts squared."""
    x = solve(system, v[None], effort).x[0]
    return 2 * jnp.sum(v * x) - jnp.sum(x * system.apply(x))
