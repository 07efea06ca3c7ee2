"""Evenly spaced times of which some were not seen, or with unequal noise: conjugate gradients in the coordinates of waves.

A smooth process on a long line has few waves that matter. While these fit into one block, everything is as good as exact, for
any gaps; where they do not, the log determinant comes with the standard error of a few probes, as on grids with holes.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..inputs.layouts import Inputs
from ..inputs.observations import Data
from ..kernels.algebra import Kernel
from ..linalg.grids import two_levels, whitened_line
from ..linalg.grids.toeplitz import NEGATIVE, spectrum
from ..posterior import Model
from ..sites import Sites
from ..structure.base import No, first_no
from ..structure.dense import covariance, variances
from ..structure.state_space import harmonics_of, state_space
from ..structure.toeplitz import Toeplitz, toeplitz
from .base import (
    NOT_NEEDED,
    Cost,
    Engine,
    Formed,
    Offer,
    form_by_shape,
    noise_variance,
    not_alike,
    not_alike_where_seen,
    not_gaussian,
    term,
)
from .grid_holes import GRAIN, of_values
from .machine import Work

SMALL = 4000  # times up to which gaps and unequal noise go to the whole matrix
REACHES = (2, 4, 8)  # how many times N the circulant is long: as far as the covariance needs to die out
BLOCKS = (500, 1000, 2000, 3000)  # waves in the block, the fewest that leave nothing to chance
PROBES = 4
STEPS = 10  # of conjugate gradients, typically


class HolesConditional(Formed):
    """A regular series given sites: the means z in the coordinates of waves, and H there."""

    structure: Toeplitz
    system: whitened_line.LineSystem
    probed: two_levels.Probed
    shift: Float[Array, "C M"]  # in the order of time
    mean: Float[Array, "C M"]
    log_det: two_levels.LogDet
    gram: Float[Array, "C C"]
    effort: two_levels.Effort = eqx.field(static=True)
    natural: bool = eqx.field(static=True)
    own: bool = eqx.field(static=True, default=False)  # predictions are asked for at its own times only

    @property
    def row_size(self) -> int:
        return 1 if self.own else 8 * len(self.system.w)

    @property
    def log_det_error(self) -> Float[Array, ""]:
        return self.log_det.error

    def for_places(self, X: np.ndarray, part: int | None = None) -> HolesConditional:
        return dataclasses.replace(self, own=part is None and self.structure.holds(X))

    def log_det_and_gram(self) -> tuple[Float[Array, ""], Float[Array, "C C"]]:
        found = self.log_det.value, self.gram
        return found if self.natural else of_values(*found, self.system.w, self.shift)

    def at(self, X: Float[Array, "M D"], part: int | None = None) -> tuple[Float[Array, "M C"], Float[Array, " M"]]:
        if self.own:
            places = self.structure.numbers(X)
            return self.mean[:, places].T, whitened_line.variances(self.system, self.probed)[places]
        kernel = term(self.kernel, part)
        Ks = self._rows(kernel, X)
        left = jax.lax.map(lambda q: two_levels.left_of(self.system, self.system.gather(q), self.effort), self.system.w * Ks)
        explained = jnp.sum(self.system.w * Ks**2, axis=1) - left
        return Ks @ self._alpha().T, jnp.maximum(variances(kernel, X) - explained, 0.0)

    def joint(self, X: Float[Array, "M D"], part: int | None = None) -> tuple[Float[Array, "M C"], Float[Array, "M M"]]:
        kernel = term(self.kernel, part)
        Ks = self._rows(kernel, X)
        V = self.system.gather(self.system.w * Ks)
        left = V @ two_levels.solve(self.system, V, self.effort).x.T
        explained = (self.system.w * Ks) @ Ks.T - 0.5 * (left + left.T)
        return Ks @ self._alpha().T, covariance(kernel, X, X) - explained

    joint_of_part = joint

    def inverse_parts(self) -> tuple[Float[Array, " N"], Float[Array, "N C"]]:
        w, N, given = self.system.w, len(self.structure.t), self.structure.as_given
        diagonal = w - w**2 * whitened_line.variances(self.system, self.probed)
        return given(diagonal[:N]), given(self._alpha().T[:N])

    def _alpha(self) -> Float[Array, "C M"]:
        return self.shift - self.system.w * self.mean

    def _rows(self, kernel: Kernel, X: Float[Array, "M D"]) -> Float[Array, "M L"]:
        """Covariances with the times, zero for the steps beyond them."""
        Ks = covariance(kernel, X, self.structure.t[:, None])
        return jnp.pad(Ks, ((0, 0), (0, len(self.system.w) - Ks.shape[1])))


class Waves(NamedTuple):
    """What a kernel asks for on a line: the length of the circulant in units of N, the block, whether that is all there is."""

    reach: int
    modes: int
    enough: bool


def waves_needed(model: Model, inputs: Inputs, structure: Toeplitz, data: Data) -> Waves | None:
    """How many waves matter, on the host; None where the covariance has no circulant."""
    N = len(structure.t)
    w = np.where(data.seen, 1 / noise_variance(model, inputs, data), 0.0)
    for reach in REACHES:
        values = np.asarray(_spectrum(structure, reach * N // 2 + 1))
        if values.min() > -NEGATIVE / w.max():
            break
    else:
        return None
    strength = np.sort(np.log1p(np.maximum(values, 0.0) * w.sum() / (reach * N)))[::-1]
    left = 2 * (np.sum(strength) - np.cumsum(strength))  # each but two of these waves is a pair
    fits = [modes for modes in BLOCKS if modes >= reach * N or left[modes // 2 - 1] < two_levels.Effort().gap]
    return Waves(reach, min((fits or BLOCKS[-1:])[0], reach * N), bool(fits))


@functools.partial(jax.jit, static_argnums=1)
def _spectrum(structure: Toeplitz, count: int) -> Float[Array, " L"]:
    return spectrum(structure.lags(count))


class FourierHoles(Engine):
    """Stationary kernels at evenly spaced times, with a precision for each, 0 for a gap."""

    needed: Waves | None = eqx.field(static=True, default=None)  # None: the covariance has no circulant

    name: ClassVar[str] = "Fourier"
    structure: ClassVar[str] = "toeplitz"

    @property
    def effort(self) -> two_levels.Effort:
        """What is spent: no probes where the block holds everything that matters."""
        assert self.needed is not None
        return two_levels.Effort(modes=self.needed.modes, probes=0 if self.needed.enough else PROBES)

    @property
    def accuracy(self) -> str:
        """How right the answers are."""
        return f"to {two_levels.Effort().tolerance:.0e}"

    def offer(self, model: Model, inputs: Inputs, data: Data | None = None) -> Offer | No:
        form = form_by_shape(self, model.kernel, inputs)
        no = first_no(form, not_gaussian(model, data))
        if no:
            return no
        gaps, N = not_alike(model, inputs, data), len(form.t)
        if not gaps and len(inputs) == N:
            return NOT_NEEDED
        gaps = gaps or No("some times have no value")
        if not isinstance(_chain(model, inputs), No):
            return No(f"{gaps.reason}: a filter goes along these, which structure='markov' asks for")
        if N <= SMALL:
            uneven = not_alike_where_seen(model, inputs, data)
            return No(f"{uneven.reason}, and up to {SMALL} of them the whole matrix is faster") if uneven else NOT_NEEDED
        engine = self.tuned(model, inputs, data)
        if engine.needed is None:
            return No(
                f"some of the {N} times have no value, or a noise of their own, and this kernel does not fade: this "
                "asks for the whole covariance matrix; where that is too large, approximate='state-space' takes such series"
            )
        note = "" if engine.needed.enough else f"evidence with a standard error, by {engine.effort.probes} probes"
        grain = 0.0 if engine.needed.enough else GRAIN
        return Offer(engine, engine._cost(engine.needed, N), note=note, accuracy=engine.accuracy, grain=grain)

    def _cost(self, needed: Waves, N: int) -> Cost:
        M, r, probes = needed.reach * N, needed.modes, self.effort.probes
        solves = (1 + probes) * STEPS * (20 * M * math.log2(M) + 2 * r**2)
        steps = 2 if needed.enough else STEPS  # the preconditioner is then all but the matrix itself
        step = Work(transforms=4 * M * math.log2(M), traffic=8.0 * r**2 + 200.0 * M)
        block = Work(factors=2.0 * r**3, traffic=100.0 * r**2, transforms=4 * M * math.log2(M))
        spread = Work(functions=10.0 * r**2, transforms=4 * M * math.log2(M))  # of the block over the steps
        return Cost(
            flops=2 * r**3 + solves,
            bytes=8 * (4 * r**2 + (20 + 3 * probes) * M),
            rows=0,
            evaluate=2 * (2 * block + (1 + probes) * steps * step),  # on the way there are kernels that need larger blocks
            condition=block + (1 + probes) * steps * step,
            predict=steps * step + Work(functions=N),
            everywhere=spread,
            leave_out=spread,
            programs=25,
        )

    def form(self, kernel: Kernel, inputs: Inputs) -> Toeplitz | No:
        return toeplitz(kernel, inputs)

    def tuned(self, model: Model, inputs: Inputs, data: Data | None = None) -> FourierHoles:
        form = self.form(model.kernel, inputs)
        return self if data is None or isinstance(form, No) else FourierHoles(waves_needed(model, inputs, form, data))

    def log_det_and_gram(self, structure: Toeplitz, sites: Sites) -> tuple[Float[Array, ""], Float[Array, "C C"]]:
        if self.needed is None:  # no evidence: a climb steps back
            return jnp.full((), jnp.nan), jnp.full((sites.shift.shape[1],) * 2, jnp.nan)
        values, w, h = self._on_line(structure, sites)
        found = whitened_line.log_det_and_gram(values, w, h, self.effort)
        return found if sites.natural else of_values(*found, w, h)

    def condition(self, structure: Toeplitz, sites: Sites) -> HolesConditional:
        values, w, h = self._on_line(structure, sites)
        system = whitened_line.build(values, w, self.effort)
        probed = two_levels.probe(system, self.effort, seed=two_levels.SEED + 1)
        found, log_det = two_levels.means(system, h, self.effort), two_levels.log_det_of(system, probed)
        return HolesConditional(structure, system, probed, h, found.mean, log_det, found.gram, self.effort, sites.natural)

    def _on_line(self, structure: Toeplitz, sites: Sites) -> tuple[Float[Array, " M"], Float[Array, " M"], Float[Array, "C M"]]:
        """The eigenvalues of the circulant, and the precisions and shifts in the order of time, zero beyond the last."""
        assert self.needed is not None
        N, M = len(structure.t), self.needed.reach * len(structure.t)
        values = whitened_line.eigenvalues(structure.lags(M // 2 + 1))
        beyond = lambda X: jnp.pad(structure.in_time(X), ((0, M - N), (0, 0))).T
        return values, beyond(sites.precision[:, None])[0], beyond(sites.shift)


def _chain(model: Model, inputs: Inputs) -> object:
    """The chain that a filter would follow, by shapes, or why there is none."""
    found: list[object] = []
    jax.eval_shape(lambda: found.append(state_space(model.kernel, inputs, harmonics_of(model.kernel))))
    return found[0]
