"""Projection pursuit regression with Gaussian processes: y = c + βᵀx + Σ_m f_m(u_mᵀx) + ε, all directions learned together.

Directions and parameters maximise the evidence of `sine_model`, and `projection_pursuit_search` chooses their number. Given
the directions, mean and variance are those of the exact additive process; the variance is raised by what the sine model says
that linearised directions add to it, so that it knows that they were learned.
"""

from __future__ import annotations

import dataclasses
import functools
import time
from typing import Any

import numpy as np

from ..._types import Seed, double_precision, generator
from ...engines.additive import MOST_FEATURES, intervals_for
from ...inputs.layouts import as_inputs, clocks_of
from ...inputs.observations import read_observations
from ...inputs.parts import sources_of
from ...learn.account import Learning
from ...likelihoods.gaussian import Gaussian
from ...linalg.dense.cholesky import lapack_threads
from ...linalg.features import splines
from ...parameters.tree import as_numpy
from ..additive.learned import seen_lines
from .fitted import CONSTANT, FittedProjectionPursuit, Units, additive_gp, made
from .parts import fit_in_parts
from .search import Family, Rung, Search, schwarz
from .sine_model import SineEvidence, SineModel

SOME_ROWS = 4000  # that tell how far projections reach
RUNGS = (1, 2, 4, 6, 10, 20, 40, 80)  # numbers of projections that are tried


@dataclasses.dataclass(frozen=True)
class ProjectionPursuitGP:
    """A sum of functions of learned projections, a linear part and Gaussian noise.

    `projections` is their number, or None to choose it from the data, up to `most`. All of it takes about `seconds` at most,
    conditioning on all rows included: no larger number is tried once that could take longer, and what is being learned then
    ends with the best so far.
    """

    projections: int | None = None
    sines: int | None = None
    nu: float = 2.5
    most: int = 80
    seconds: float = 300.0

    @double_precision
    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        seed: Seed = 0,
        max_evaluations: int = 300,
        progress: bool | None = None,
        over: Any = None,
    ) -> FittedProjectionPursuit:
        """Learn directions and parameters, then condition the exact process on all data.

        X and y may come in parts, as those of `GP.fit`, and `over` says who works on them. The number of projections is then
        chosen by some rows of all parts, directions and parameters go on from there by all of them, and the process given the
        directions is on spline features, as that of `AdditiveGP`.
        """
        sources = sources_of(X, y)
        if sources is not None:
            return fit_in_parts(self.search, sources, over, generator(seed), max_evaluations, progress, self.seconds)
        began = time.perf_counter()
        inputs = as_inputs(X, clocks=())
        points = np.asarray(inputs.points)
        data = read_observations(Gaussian(), y, None, "error", inputs)
        if data.y.shape[1] != 1:
            raise ValueError(f"projection pursuit takes one target, got {data.y.shape[1]}: fit them one at a time")
        units = Units.of(points, data.y[:, 0])
        Z, z = units.inputs(points), units.target(data.y[:, 0])
        with lapack_threads(1):
            model, learning, table = self.search(Z, z, generator(seed), max_evaluations, progress, self.seconds)
            fitted = made(as_numpy(model), units, Z, z, table, learning, began)
        return dataclasses.replace(fitted, clocks=clocks_of(inputs))

    def search(
        self, Z: np.ndarray, z: np.ndarray, rng: np.random.Generator, evaluations: int, progress: bool | None, seconds: float
    ) -> tuple[SineModel, Learning, tuple[Rung, ...]]:
        """Directions, and how many, by rows in standard units."""
        states = round(self.nu + 0.5)
        if np.abs(z).max() < CONSTANT:
            return _of_a_constant(self.projections or 1, Z.shape[1], states)
        start = SineModel([[1.0]], [1.0], [1.0], 0.1, 0.2, states=states)
        ending = functools.partial(work_at_the_end, Z)
        family = Family(lambda functions: functions, lambda model: model, SineEvidence, schwarz, start, ending)
        rungs = (self.projections,) if self.projections else tuple(m for m in RUNGS if m <= self.most)
        model, learning, table = Search(family, (Z, z), rungs, self.sines, rng, seconds, evaluations, progress).run()
        return model, dataclasses.replace(learning, method="sines"), table


def _of_a_constant(M: int, D: int, states: int) -> tuple[SineModel, Learning, tuple[Rung, ...]]:
    """Functions and noise next to nothing: of a target that never changes, less of them would always be more probable."""
    little = CONSTANT**2
    model = SineModel(np.eye(D)[np.arange(M) % D], np.ones(M), np.full(M, little), little, little, states=states)
    return model, Learning(0.0, 0.0, 0, 0.0, True, "nothing to learn", 0, 0.0, ()), ()


def work_at_the_end(Z: np.ndarray, like: SineModel, M: int) -> float:
    """What conditioning on all rows takes with M functions like these, in units of the search: products of two features.

    The sums of spline features over the rows, a few steps along each line for every column of basis functions, and the spread
    of directions. The factors were measured, and hold within a third.
    """
    (N, D), n = Z.shape, like.states
    lines = seen_lines(additive_gp(like).kernel, Z[:: max(N // SOME_ROWS, 1)])
    F = min(M * splines.size(intervals_for(lines, float(like.noise), N), n), MOST_FEATURES)
    turning = M * like.sines + D + 1 + M * D
    return N * (0.7 * F**2 + 6400 * M * (D + 2) + 0.6 * turning**2)
