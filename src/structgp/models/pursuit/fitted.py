"""A projection pursuit model given data: the exact process along its directions, and what their doubt adds to the variance."""

from __future__ import annotations

import dataclasses
import functools
import time
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..._types import Seed, double_precision, generator
from ...crew import is_lazy
from ...inputs.clock import Clocks
from ...inputs.layouts import as_inputs, check_columns
from ...inputs.observations import read_observations
from ...kernels.algebra import Kernel, Sum
from ...kernels.stationary import Matern
from ...kernels.views import Project
from ...learn.account import Learning
from ...likelihoods.gaussian import Gaussian
from ...linalg.dense.cholesky import lapack_threads
from ...linalg.features.totals import Totals
from ...means import Basis, Powers
from ...parameters.tree import as_numpy, free_vector
from ...posterior import Prediction, Result
from ...process.gp import GP
from ...process.lazy import lazily_predicted
from ..additive.model import conditioned
from .search import Rung
from .sine_model import Rows, SineEvidence, SineMap, SineModel, TurningMap, pieces

CONSTANT = 1e-6  # no target is larger, in its own units, where it never changes


@dataclasses.dataclass(frozen=True)
class Units:
    """Inputs and targets brought to mean 0 and variance 1; columns that never change are left out."""

    center: np.ndarray
    scale: np.ndarray
    kept: np.ndarray
    y_center: float
    y_scale: float

    @classmethod
    def of(cls, X: np.ndarray, y: np.ndarray) -> Units:
        """The units of these data."""
        both = np.column_stack([X, y])
        return cls.by(both.mean(axis=0), both.std(axis=0), np.abs(both).max(axis=0))

    @classmethod
    def by(cls, mean: np.ndarray, sd: np.ndarray, largest: np.ndarray) -> Units:
        """The units by mean, standard deviation and largest size of the columns and, last, of the target."""
        (*_, y_center), spread = mean, float(sd[-1])
        kept = sd[:-1] > 1e-12 * np.maximum(largest[:-1], 1e-300)
        kept = kept if kept.any() else np.arange(len(kept)) == 0
        y_scale = spread if spread > 1e-12 * float(largest[-1]) else 1.0
        return cls(mean[:-1], np.where(kept, np.where(sd[:-1] > 0, sd[:-1], 1.0), 1.0), kept, float(y_center), y_scale)

    def inputs(self, X: np.ndarray) -> np.ndarray:
        """Rows in these units."""
        return ((X - self.center) / self.scale)[:, self.kept]

    def target(self, y: np.ndarray) -> np.ndarray:
        """Targets in these units."""
        return (y - self.y_center) / self.y_scale


class Spread(NamedTuple):
    """The weights of the sine model, and with them the directions, as a Gaussian: what the variance needs."""

    L: Any
    scales: Any
    slopes: Any  # the weights of the sines of each function, (k, M), which say how f changes as its direction turns
    known: Any  # factor of the precision of the weights when the directions are taken as known
    factor: Any  # and of weights and directions together
    noise: Any


@dataclasses.dataclass(frozen=True)
class FittedProjectionPursuit(Result):
    """A projection pursuit model given data."""

    model: SineModel
    units: Units
    additive: Any  # the process for these directions, in standard units: exact, or of rows in parts on spline features
    spread: Spread
    table: tuple[Rung, ...]
    log_evidence: float
    learning: Learning
    seconds: float
    clocks: Clocks = ()  # for each column of X how its dates are counted

    @property
    def directions(self) -> np.ndarray:
        """The unit vectors u_m, one row each, for inputs in standard units."""
        with jax.enable_x64(True):
            return np.asarray(self.model.units())

    @property
    def kernel(self) -> Kernel:
        """The sum of terms along the directions, in standard units of inputs and targets."""
        return self.additive.kernel

    @property
    def likelihood(self) -> Gaussian:
        """The noise, in the units of y."""
        return Gaussian(float(self.spread.noise) * self.units.y_scale**2)

    def mean(self, X: Any) -> np.ndarray:
        """The mean of f at new places alone."""
        return self.units.y_center + self.units.y_scale * self.additive.mean(self._standard(X))

    @double_precision
    def predict(self, X: Any, covariance: bool = False) -> Any:
        """The belief about f at new places; of a Dask collection its moments as Dask arrays."""
        if is_lazy(X):
            return lazily_predicted(self, X, 1, True)
        Z = self._standard(X)
        given = self.additive.predict(Z, covariance)
        f, square = self.units.y_center + self.units.y_scale * given.mean, self.units.y_scale**2
        if covariance:
            joint = given.covariance + np.asarray(_covariance_of_directions(self.model, self.spread, Z))
            return Prediction(f, square * np.diagonal(joint), self.likelihood, square * joint)
        turned = [np.asarray(_variance_of_directions(self.model, self.spread, piece)) for piece in pieces(Z)]
        variance = given.variance + np.concatenate([np.zeros(0), *turned])[: len(Z)]
        return Prediction(f, square * variance, self.likelihood)

    @double_precision
    def sample(self, X: Any, n: int = 1, seed: Seed = None, observed: bool = False) -> np.ndarray:
        """n joint draws of f at new places, (n, M), for the directions as they were learned; `observed` adds the noise."""
        rng = generator(seed)
        f = self.units.y_center + self.units.y_scale * self.additive.sample(self._standard(X), n, rng)
        return self.likelihood.sample(rng, f) if observed else f

    @double_precision
    def given(self, X: Any, y: Any) -> FittedProjectionPursuit:
        """The same directions and parameters given other data; nothing is learned."""
        began, Z = time.perf_counter(), self._standard(X)
        places = as_inputs(Z)
        z = self.units.target(read_observations(Gaussian(), y, None, "error", places).y[:, 0])
        with lapack_threads(1):
            given = made(self.model, self.units, Z, z, self.table, self.learning, began)
        return dataclasses.replace(given, clocks=self.clocks)

    def _standard(self, X: Any) -> np.ndarray:
        """New places in the units of the model."""
        new = as_inputs(X, allow_empty=True, clocks=self.clocks or (None,) * len(self.units.center))
        check_columns(new, len(self.units.center))
        return self.units.inputs(np.asarray(new.points))

    def summary(self) -> str:
        """The numbers of projections that were tried, and how learning ended."""
        lines = ["projections  sines  log evidence   charged   seconds"]
        for rung in self.table:
            chosen = "  <- chosen" if rung.projections == self.model.projections else ""
            row = f"{rung.projections:>11}  {rung.sines:>5}  {rung.log_evidence:>12.1f}  {rung.charged:>8.1f}"
            lines.append(f"{row}  {rung.seconds:>8.1f}{chosen}")
        noise = float(self.likelihood.noise)
        return "\n".join([*lines, f"noise variance {noise:.4g}; {self.learning}; {self.seconds:.1f} s in all"])

    def __repr__(self) -> str:
        return f"FittedProjectionPursuit({self.model.projections} projections, log evidence {self.log_evidence:.6g})"


def made(
    model: SineModel, units: Units, Z: np.ndarray, z: np.ndarray, table: tuple[Rung, ...], learning: Learning, began: float
) -> FittedProjectionPursuit:
    """A model as it was learned given data in its units."""
    gp, places = additive_gp(model), as_inputs(Z)
    additive = conditioned(gp, places, read_observations(gp.likelihood, z, None, "error", places))
    spread = as_numpy(_spread(model, Rows.of(Z, z)))
    evidence = float(SineEvidence(model, Z, z)(free_vector(model))[0]) - len(z) * float(np.log(units.y_scale))
    return FittedProjectionPursuit(model, units, additive, spread, table, evidence, learning, time.perf_counter() - began)


def additive_gp(model: SineModel) -> GP:
    """The exact process for given directions: a sum of Matérn terms along them, and a linear part with a prior."""
    with jax.enable_x64(True):
        U = np.asarray(model.units())
    term = functools.partial(Matern, nu=model.states - 0.5)
    terms = [
        Project(term(float(length), float(variance)), u)
        for u, length, variance in zip(U, model.lengthscale, model.variance, strict=True)
    ]
    D = U.shape[1]
    linear = Basis(Powers(1), 0.0, np.concatenate([np.ones(1), np.full(D, float(model.slope))]))
    return GP(terms[0] if len(terms) == 1 else Sum(tuple(terms)), Gaussian(float(model.noise)), linear)


@jax.jit
def _spread(model: SineModel, rows: Rows) -> Spread:
    """Weights and directions as a Gaussian around what was learned, and the noise with their number taken off the rows."""
    made = model.features(rows.X)
    sums = rows.totals(made)
    turning = TurningMap(made, slopes_of(model, made, sums))
    return spread_of(model, turning, sums, rows.totals(turning).gram)


def slopes_of(model: SineModel, made: SineMap, sums: Totals) -> Any:
    """The weights of the sines of each function, (k, M)."""
    return _weights(model, made, sums)[: model.sines * model.projections].reshape(model.sines, model.projections)


def _weights(model: SineModel, made: SineMap, sums: Totals) -> Any:
    s = made.scales
    A = jnp.eye(len(s)) + s[:, None] * sums.gram * s / model.noise
    return jax.scipy.linalg.solve(A, s * sums.cross[:, 0] / model.noise, assume_a="pos") * s


def spread_of(model: SineModel, turning: TurningMap, sums: Totals, G: Any) -> Spread:
    """The same from the sums over all rows: of the features, and of these with the turning directions."""
    made, a = turning.waves, _weights(model, turning.waves, sums)
    s, F = made.scales, len(G)
    rss = sums.targets[0, 0] - a @ (2 * sums.cross[:, 0] - sums.gram @ a)
    used = F - jnp.trace(jnp.linalg.inv(jnp.eye(F) + G / model.noise))
    noise = jnp.maximum(rss / jnp.maximum(sums.count - used, 0.1 * sums.count), model.noise)
    A = jnp.eye(F) + G / noise
    return Spread(made.reach, s, turning.weights, jnp.linalg.cholesky(A[: len(s), : len(s)]), jnp.linalg.cholesky(A), noise)


@jax.jit
def _variance_of_directions(model: SineModel, spread: Spread, X: Any) -> Any:
    """What not knowing the directions adds to the variance of f."""
    joint, known = (jnp.sum(V * V, axis=0) for V in _roots(model, spread, X))
    return jnp.maximum(joint - known, 0.0)


@jax.jit
def _covariance_of_directions(model: SineModel, spread: Spread, X: Any) -> Any:
    """What not knowing the directions adds to the covariance of f."""
    joint, known = (V.T @ V for V in _roots(model, spread, X))
    return joint - known


def _roots(model: SineModel, spread: Spread, X: Any) -> tuple[Any, Any]:
    """Roots of the covariance of f at rows, with directions as they were learned and with known ones."""
    turning = TurningMap(SineMap(model.units(), spread.L, spread.scales, model.sines), spread.slopes)
    Psi = turning(X)
    whiten = lambda factor: jax.scipy.linalg.solve_triangular(factor, Psi[: len(factor)], lower=True)
    return whiten(spread.factor), whiten(spread.known)
