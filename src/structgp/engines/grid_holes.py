"""Grids with holes, with unequal noise, or with observations of any kind: conjugate gradients in white coordinates.

Means are solved for to a tolerance. The log determinant comes with an interval that holds it for certain and, unless that is
short, with the standard error of a few probes. On small grids the preconditioner is the whole matrix, and all is exact.

Cells that are never seen, whatever the other coordinates (land on a map of the sea, at any time), are left out: the axes that
they lie on are taken as one, with the places that were ever seen. Holes that are left are scattered, and take few steps at any
noise, where a hole with a shape takes the more the lower the noise.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..inputs.layouts import Grid, Inputs
from ..inputs.observations import Data
from ..kernels.algebra import Kernel
from ..linalg.dense.cholesky import log_sum
from ..linalg.grids import kronecker as kron
from ..linalg.grids import two_levels, whitened
from ..posterior import Model
from ..sites import Marginals, Sites
from ..structure.base import No, first_no
from ..structure.dense import covariance
from ..structure.kronecker import Kronecker, kronecker
from .base import DRAWN, NOT_NEEDED, Cost, Engine, Offer, form_by_shape, gaussian, hardness, not_alike, not_concave
from .grid_seen import FEW
from .grids import GridConditional, contract, cross, every_cell, joint_draws, rows_of
from .machine import Work

WHOLE = 2500  # cells up to which the preconditioner is the whole matrix
LEARNING = two_levels.Effort(modes=1000, probes=4)
FINAL = {"modes": 2000, "probes": 8}  # what is spent on top when the parameters are settled
EXACT = 200  # places up to which each variance is solved for
CHECKED = 16  # cells that tell how good the quick variances are
GRAIN = 0.1  # the same probes throughout make a smooth function, but not quite that of its gradient
STEPS = 12  # of conjugate gradients, typically
MOST_SITES = 1000  # places of axes that are taken as one: their covariance has eigenvectors
FULLER = 1.02  # by how much more of the cells must then be seen


class KrylovConditional(GridConditional):
    """A grid given sites: the means z in white coordinates, and H there, from which variances come.

    The variance at a place with the row v in white coordinates is k − vᵀv + vᵀH⁻¹v. The last term is solved for at a few
    places; at many it is that of the preconditioner and the probes, with an error that was looked at in some cells.
    """

    structure: Kronecker
    system: whitened.System
    probed: two_levels.Probed
    shift: Float[Array, " C *sizes"]
    z: Float[Array, " C *sizes"]
    log_det: two_levels.LogDet
    gram: Float[Array, "C C"]
    variance_error: Float[Array, ""]  # relative, the largest of the cells that were looked at
    effort: two_levels.Effort = eqx.field(static=True)
    natural: bool = eqx.field(static=True)
    quick: bool = eqx.field(static=True, default=False)

    @property
    def row_size(self) -> int:
        N = math.prod(self.structure.sizes)
        return 4 * (1 + len(self.probed.easy)) * N // max(self.structure.sizes) if self.quick else 8 * N

    @property
    def log_det_error(self) -> Float[Array, ""]:
        return self.log_det.error

    def for_places(self, X: np.ndarray, part: int | None = None) -> KrylovConditional:
        return dataclasses.replace(self, quick=len(X) > EXACT)

    def log_det_and_gram(self) -> tuple[Float[Array, ""], Float[Array, "C C"]]:
        return (
            (self.log_det.value, self.gram)
            if self.natural
            else of_values(self.log_det.value, self.gram, self.system.w, self.shift)
        )

    def at(self, X: Float[Array, "M D"], part: int | None = None) -> tuple[Float[Array, "M _"], Float[Array, " M"]]:
        rows, prior = rows_of(self.structure, X, part)
        white = self._whitened(rows)
        known = math.prod(jnp.sum(V * V, axis=1) for V in white)
        left = self._quick(white) if self.quick else jax.lax.map(self._exact, tuple(white))
        return contract(white, self.z), jnp.maximum(prior - known + left, 0.0)

    def on_grid(self, grid: Grid) -> tuple[Float[Array, "M _"], Float[Array, " M"]]:
        there = self.structure.on(grid)
        white = self._whitened(cross(there, self.structure))
        known = kron.outer([jnp.sum(V * V, axis=1) for V in white])
        variance = kron.outer(there.prior_variances()) - known + whitened.variances(self.system, white, self.probed)
        return there.from_grid(kron.products(white, self.z)), there.from_grid(jnp.maximum(variance, 0.0)[None])[:, 0]

    def joint(self, X: Float[Array, "M D"]) -> tuple[Float[Array, "M _"], Float[Array, "M M"]]:
        white = self._whitened(rows_of(self.structure, X, None)[0])
        V = every_cell(white)
        solved = two_levels.solve(self.system, V.reshape(len(V), *self.system.w.shape), self.effort).x.reshape(V.shape)
        left = V @ solved.T
        return contract(white, self.z), covariance(self.kernel, X, X) - V @ V.T + 0.5 * (left + left.T)

    def residuals_on_grid(self, grid: Grid, key: Array, n: int) -> Float[Array, "M n"]:
        """A prior draw on both grids, less what its own noisy values on this one make of it."""
        there, w = self.structure.on(grid), self.system.w
        of_prior, of_noise = jax.random.split(key)
        here, new = joint_draws(self.structure, there, of_prior, n)
        h = w * here + jnp.sqrt(w) * jax.random.normal(of_noise, here.shape)
        z = two_levels.means(self.system, h, self.effort).z
        return there.from_grid(new - kron.products(self._whitened(cross(there, self.structure)), z))

    def inverse_parts(self) -> tuple[Float[Array, " _"], Float[Array, "N C"]]:
        w = self.system.w
        diagonal = w - w**2 * whitened.variances(self.system, self.system.factors, self.probed)
        alpha = self.shift - w * kron.products(self.system.factors, self.z)
        return self.structure.from_grid(diagonal[None])[:, 0], self.structure.from_grid(alpha)

    def _whitened(self, rows: list[Float[Array, "_ _"]]) -> list[Float[Array, "_ _"]]:
        """Covariances with the places of each factor as covariances with its white coordinates."""
        return [R @ inverse.T for R, inverse in zip(rows, self.system.inverse_factors(), strict=True)]

    def _exact(self, white: tuple[Float[Array, " _"], ...]) -> Float[Array, ""]:
        """vᵀH⁻¹v for one place."""
        return two_levels.left_of(self.system, kron.outer(white), self.effort)

    def _quick(self, white: list[Float[Array, "M _"]]) -> Float[Array, " M"]:
        """vᵀP⁻¹v and what the probes add to it, for many places."""
        levels, easy = self.system.levels, self.probed.easy
        rest = contract(kron.squared(white), ((1 - levels.inside) / levels.diagonal)[None])[:, 0]
        index = jnp.unravel_index(levels.modes, self.system.w.shape)
        block = math.prod(V[:, i] for V, i in zip(white, index, strict=True))
        found = rest + jnp.sum((block @ levels.inverse) * block, axis=1)
        if not len(easy):
            return found
        return found + jnp.mean(contract(white, self.probed.solved - easy) * contract(white, easy), axis=1)


def of_values(log_det: Array, gram: Array, w: Array, shift: Array) -> tuple[Array, Array]:
    """log|C| and TᵀC⁻¹T of values T = h/w seen with noise, from log|I + KW| and hᵀΣh."""
    T = jnp.where(w > 0, shift / jnp.where(w > 0, w, 1.0), 0.0)
    return log_det - log_sum(jnp.ravel(w)), T.reshape(len(T), -1) @ shift.reshape(len(T), -1).T - gram


class EverSeen(NamedTuple):
    """Which factors are taken as one, and how many of their places together were ever seen."""

    which: tuple[int, ...]
    places: int


class Krylov(Engine):
    """Kernels that factor over the axes of a grid, with a precision for each cell, 0 for a hole."""

    effort: two_levels.Effort = eqx.field(static=True, default=LEARNING)
    whole: bool = eqx.field(static=True, default=False)
    ever_seen: EverSeen | None = eqx.field(static=True, default=None)

    name: ClassVar[str] = "Krylov"
    structure: ClassVar[str] = "kronecker"

    @property
    def accuracy(self) -> str:
        """How right the answers are."""
        return "exact" if self.whole else f"to {self.effort.tolerance:.0e}"

    def offer(self, model: Model, inputs: Inputs, data: Data | None = None) -> Offer | No:
        form = form_by_shape(self, model.kernel, inputs)
        no = first_no(form, not_concave(model))
        if no:
            return no
        if gaussian(model, data) and not not_alike(model, inputs, data):
            return NOT_NEEDED
        engine = self.tuned(model, inputs, data)
        if engine.whole:
            return Offer(engine, engine.offered(model, inputs, data, form.sizes))
        note = f"evidence with a standard error, by {engine.effort.probes} probes; more at the end"
        sizes = form.sizes
        if engine.ever_seen is not None:
            which, count = engine.ever_seen
            sizes = (count, *(G for i, G in enumerate(sizes) if i not in which))
            note = f"{count} places that were ever seen by {' × '.join(map(str, sizes[1:]))}; {note}"
        cost = engine.offered(model, inputs, data, sizes)
        return Offer(engine, cost, note=note, accuracy=engine.accuracy, grain=GRAIN)

    def offered(self, model: Model, inputs: Inputs, data: Data | None, sizes: tuple[int, ...]) -> Cost:
        """What a grid takes: the lower the noise the more steps, and the search for sites included where one is needed."""
        if gaussian(model, data):
            return self.cost(sizes, STEPS * hardness(model, inputs))
        return self.cost(sizes).searching(_work(sizes, self.effort, 1 + self.effort.probes))

    def cost(self, sizes: tuple[int, ...], steps: float = STEPS) -> Cost:
        """What a grid takes whose factors have so many places; a matrix of few cells, which is exact, goes first."""
        N, r = math.prod(sizes), min(self.effort.modes, math.prod(sizes))
        block = 2 * min(self.effort.numbers, N * r) * max(sizes) + 2 * r**3
        solves = (1 + self.effort.probes) * STEPS * (4 * N * sum(sizes) + 4 * r**2)
        numbers = min(self.effort.numbers, N * r) + 6 * r**2 + (12 + 3 * self.effort.probes) * N
        flops = sum(25 * G**3 for G in sizes) + block + solves
        final = self.effort if self.whole else self.effort._replace(**FINAL)
        probes, modes = final.probes, min(final.modes, N)
        look = Work(products=4.0 * modes**2 + 8.0 * N * (1 + 2 * probes), traffic=200.0 * (modes + N // max(sizes)))
        spread = 2.0 * min(final.numbers, N * modes) * max(sizes) + 8.0 * N * (1 + probes) * sum(sizes)
        whole = Work(products=spread, functions=8.0 * modes**2, traffic=40.0 * modes**2)
        return Cost(
            flops if self.whole else max(flops, 2 * FEW**3),
            bytes=8 * numbers,
            rows=0,
            evaluate=(2 if self.whole else 3) * _work(sizes, self.effort, 1 + self.effort.probes, steps),
            condition=_work(sizes, final, 1 + probes + (0 if self.whole else CHECKED), steps),
            predict=look,
            everywhere=whole,
            draw=_work(sizes, final, DRAWN // 3, steps),  # places that are solved for together take less
            leave_out=1.5 * whole,
            programs=20,
        )

    def form(self, kernel: Kernel, inputs: Inputs) -> Kronecker | No:
        return kronecker(kernel, inputs)

    def tuned(self, model: Model, inputs: Inputs, data: Data | None = None) -> Krylov:
        cells = math.prod(inputs.shape) if isinstance(inputs, Grid) else len(inputs)
        if cells <= WHOLE:
            return Krylov(LEARNING._replace(modes=cells, probes=0), whole=True)
        return Krylov(ever_seen=ever_seen(model.kernel, inputs, data) if gaussian(model, data) else None)

    def log_det_and_gram(self, structure: Kronecker, sites: Sites) -> tuple[Float[Array, ""], Float[Array, "C C"]]:
        structure = self._without_what_is_never_seen(structure, sites)
        w, h = _on_cells(structure, sites)
        log_det, gram = whitened.log_det_and_gram(structure.matrices(), w, h, self.effort)
        return (log_det, gram) if sites.natural else of_values(log_det, gram, w, h)

    def marginals(self, structure: Kronecker, sites: Sites) -> Marginals:
        w, h = _on_cells(structure, sites)
        system = whitened.build(structure.matrices(), w, self.effort)
        probed, found = two_levels.probe(system, self.effort), two_levels.means(system, h, self.effort)
        variance = structure.from_grid(whitened.variances(system, system.factors, probed)[None])[:, 0]
        return Marginals(structure.from_grid(found.mean), variance, two_levels.log_det_of(system, probed).value, found.gram)

    def condition(self, structure: Kronecker, sites: Sites) -> KrylovConditional:
        effort = self.effort if self.whole else self.effort._replace(**FINAL)
        structure = self._without_what_is_never_seen(structure, sites)
        w, h = _on_cells(structure, sites)
        system = whitened.build(structure.matrices(), w, effort)
        probed, found = two_levels.probe(system, effort, seed=two_levels.SEED + 1), two_levels.means(system, h, effort)
        log_det = two_levels.log_det_of(system, probed)
        probed, error = (probed, jnp.zeros(())) if self.whole else _looked_at(system, probed, effort)
        return KrylovConditional(structure, system, probed, h, found.z, log_det, found.gram, error, effort, sites.natural)

    def _without_what_is_never_seen(self, structure: Kronecker, sites: Sites) -> Kronecker:
        if self.ever_seen is None:
            return structure
        which, count = self.ever_seen
        w = structure.to_grid(sites.precision[:, None])[0]
        seen = jnp.any(w > 0, axis=tuple(i for i in range(w.ndim) if i not in which))
        return structure.joined(which, jnp.nonzero(jnp.ravel(seen), size=count)[0])


def ever_seen(kernel: Kernel, inputs: Inputs, data: Data | None) -> EverSeen | None:
    """The factors of which many places together are never seen, on the host; None where that is not so."""
    form = kronecker(kernel, inputs)
    if data is None or isinstance(form, No) or len(form.groups) < 2 or not np.any(data.seen):
        return None
    assert isinstance(inputs, Grid)
    seen = np.zeros(math.prod(inputs.shape), bool)
    seen[slice(None) if inputs.cells is None else np.asarray(inputs.cells)] = np.asarray(data.seen)
    order = tuple(d for group in form.groups for d in group)
    over = seen.reshape(inputs.shape).transpose(order).reshape(form.sizes)
    best, fullest = None, FULLER * over.mean()
    for some in range(1, len(form.groups)):
        for which in itertools.combinations(range(len(form.groups)), some):
            dims = [d for i in which for d in form.groups[i]]
            rest = tuple(i for i in range(over.ndim) if i not in which)
            count = int(np.any(over, axis=rest).sum())
            full = over.sum() / (count * math.prod(form.sizes[i] for i in rest))
            if dims == sorted(dims) and count <= MOST_SITES and full > fullest:
                best, fullest = EverSeen(which, count), full
    return best


def _work(sizes: tuple[int, ...], effort: two_levels.Effort, solves: int, steps: float = STEPS) -> Work:
    """The preconditioner, and conjugate gradients for so many right-hand sides."""
    N, r, squares = math.prod(sizes), min(effort.modes, math.prod(sizes)), sum(G**2 for G in sizes)
    block = Work(products=2.0 * min(effort.numbers, N * r) * max(sizes), factors=2.0 * r**3, traffic=40.0 * r**2)
    step = Work(products=4.0 * N * sum(sizes), traffic=8.0 * r**2 + 200.0 * N)
    steps = 2 if r == N else steps
    return Work(eigen=2.0 * sum(float(G) ** 3 for G in sizes), functions=squares) + block + solves * steps * step


def _on_cells(structure: Kronecker, sites: Sites) -> tuple[Float[Array, "*sizes"], Float[Array, " C *sizes"]]:
    """The precisions and the shifts over the grid."""
    assert not sites.signed, "the plan leaves such sites to other algorithms"
    return structure.to_grid(sites.precision[:, None])[0], structure.to_grid(sites.shift)


def _looked_at(
    system: whitened.System, probed: two_levels.Probed, effort: two_levels.Effort
) -> tuple[two_levels.Probed, Float[Array, ""]]:
    """Whether the probes make quick variances better, and how good these are, by the variances of some cells."""
    sizes = system.w.shape
    cells = np.random.default_rng(0).integers(0, math.prod(sizes), CHECKED)
    index = np.unravel_index(cells, sizes)
    rows = tuple(F[i] for F, i in zip(system.factors, index, strict=True))
    exact = jax.lax.map(lambda row: two_levels.left_of(system, kron.outer(row), effort), rows)
    error = lambda p: jnp.max(jnp.abs(jnp.ravel(whitened.variances(system, system.factors, p))[cells] / exact - 1))
    alone = probed._replace(solved=probed.easy)
    of_both, of_one = error(probed), error(alone)
    solved = jnp.where(of_both < of_one, probed.solved, probed.easy)
    return probed._replace(solved=solved), jnp.minimum(of_both, of_one)
