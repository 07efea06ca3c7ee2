"""Labels and counts with additive or projection pursuit functions behind them, by Laplace's approximation on their features.

Inputs enter by their normal scores (the place of a value among those of the data, on the scale of a standard normal), so that
skewed columns cost nothing, unless they are to be taken as they are.
"""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.special import ndtri

from .._types import Seed, double_precision, generator
from ..engines.additive import INTERVALS
from ..engines.additive_splines import reach
from ..inputs.layouts import Inputs, as_inputs
from ..kernels.algebra import Kernel, Sum
from ..kernels.stationary import HalfIntegerMatern, Matern52
from ..learn.clock import Deadline
from ..learn.maximise import Learning, climb
from ..learn.objective import Objective
from ..likelihoods.base import Likelihood
from ..likelihoods.labels import Bernoulli
from ..linalg.dense.cholesky import lapack_threads
from ..linalg.features import sines, splines
from ..parameters.tree import Parametrised, as_numpy, fixed, free_vector, with_free
from ..posterior import Prediction, Result
from ..structure.additive import lines_of
from ..structure.base import No
from .feature_laplace import Mode, Problem, laplace
from .pursuit.search import Family, Rung, Search, twice_akaike
from .pursuit.sine_model import Rows, SineModel, linearised, reaches

RUNGS = (3, 6, 12, 20)  # numbers of projections that are tried
LEVEL = 9.0  # prior variance of the constant
CHUNK = 2048


class SplineLatent(Parametrised):
    """A constant and a sum of Matérn terms along lines, on spline features that stay as they are."""

    kernel: Kernel
    likelihood: Likelihood
    basis: splines.Splines
    columns: int = eqx.field(static=True)

    def pieces(self, rows: Rows) -> Float[Array, "pieces F rows"]:
        """The features of all rows, made once."""
        return jax.lax.map(self.features, rows.X)

    def features(self, x: Float[Array, "rows D"]) -> Float[Array, "F rows"]:
        """The features of the lines, then the constant; they keep the value of the end beyond it."""
        lines = _lines(self.kernel, x)
        phi = jnp.moveaxis(splines.features(self.basis, lines.t, lines.states), 0, -1)
        return jnp.concatenate([phi.reshape(-1, len(x)), jnp.full((1, len(x)), np.sqrt(LEVEL))])

    def problem(self, pieces: Any, rows: Rows) -> Problem:
        """What the weights see."""
        return Problem(lambda phi: phi, *self._whitening(), pieces, rows.Y[..., 0], rows.Y[..., -1], self.likelihood)

    def whitened(self, x: Float[Array, "rows D"], waves: None) -> Float[Array, "F rows"]:
        """Features in units of their prior, at new rows, also beyond the ends of the lines."""
        lines = _lines(self.kernel, x)
        phi = jnp.moveaxis(reach(self.basis, lines.t, lines.rate, lines.states), 0, -1).reshape(-1, len(x))
        return self._whitening()[0](jnp.concatenate([phi, jnp.full((1, len(x)), np.sqrt(LEVEL))]))

    def left_out(self, psi: Float[Array, "F rows"]) -> Float[Array, " rows"]:
        """The variance of the lines that their features do not carry, which matters beyond the ends."""
        prior = jnp.sum(_lines(self.kernel, jnp.zeros((1, self.columns))).variance)
        return jnp.maximum(prior - jnp.sum(psi[:-1] ** 2, axis=0), 0.0)

    def _whitening(self) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
        lines = _lines(self.kernel, jnp.zeros((1, self.columns)))
        roots = jnp.linalg.cholesky(splines.inner_products(self.basis, lines.rate)) / jnp.sqrt(lines.variance)[:, None, None]
        L, m = roots.shape[:2]
        solve = lambda columns, trans: jax.scipy.linalg.solve_triangular(
            roots, columns[:-1].reshape(L, m, -1), lower=True, trans=trans
        ).reshape(L * m, -1)
        whiten = lambda columns: jnp.concatenate([solve(columns, "N"), columns[-1:]])
        unwhiten = lambda a: jnp.concatenate([solve(a[:, None], "T")[:, 0], a[-1:]])
        return whiten, unwhiten


class LearnedWaves(NamedTuple):
    """Functions of projections as they were learned: the intervals of the sines, and their weights."""

    reach: Float[Any, " M"]
    weights: Float[Any, "k M"]


class SineLatent(Parametrised):
    """A linear part and functions of learned projections, on sine features."""

    functions: SineModel
    likelihood: Likelihood

    def pieces(self, rows: Rows) -> Float[Array, "pieces rows D"]:
        """The rows themselves: the features move with the directions."""
        return rows.X

    def problem(self, pieces: Any, rows: Rows) -> Problem:
        """What the weights see."""
        L = reaches(self.functions, rows.X)
        scale = self._scale(L)
        U, k = self.functions.units(), self.functions.sines
        whiten, unwhiten = lambda columns: scale[:, None] * columns, lambda a: scale * a
        features = lambda x: sines.features(U, L, x, k)
        return Problem(features, whiten, unwhiten, pieces, rows.Y[..., 0], rows.Y[..., -1], self.likelihood)

    def whitened(self, x: Float[Array, "rows D"], waves: LearnedWaves) -> Float[Array, "G rows"]:
        """Features in units of their prior, at new rows, and how f changes there as directions turn."""
        return linearised(self.functions, waves.reach, self._scale(waves.reach), waves.weights, x)

    def waves(self, mode: Mode, rows: Rows) -> LearnedWaves:
        """What was learned of the functions."""
        L = reaches(self.functions, rows.X)
        k, M = self.functions.sines, self.functions.projections
        return LearnedWaves(L, (self._scale(L) * mode.weights)[: k * M].reshape(k, M))

    def left_out(self, psi: Float[Array, "F rows"]) -> Float[Array, " rows"]:
        """Nothing: the functions are what their sines make of them."""
        return jnp.zeros(psi.shape[1])

    def _scale(self, L: Any) -> Any:
        return self.functions.scales(L).at[-1].set(np.sqrt(LEVEL))


class LaplaceEvidence:
    """Laplace's log evidence and its gradient; each mode is where the search for the next begins."""

    def __init__(self, model: Any, X: np.ndarray, y: np.ndarray) -> None:
        self.model, self.rows = model, Rows.of(X, y[:, None])
        self.pieces = jax.block_until_ready(_pieces(model, self.rows))
        self.start = jnp.zeros(_size(model, self.pieces))

    def __call__(self, theta: np.ndarray) -> tuple[Any, Any]:
        (value, weights), gradient = _value_and_gradient(jnp.asarray(theta), self.model, self.pieces, self.rows, self.start)
        if np.isfinite(value) and np.isfinite(gradient).all():
            self.start = weights
        return value, gradient


@jax.jit
def _pieces(model: Any, rows: Rows) -> Any:
    return model.pieces(rows)


def _size(model: Any, pieces: Any) -> int:
    """How many weights there are."""
    if isinstance(model, SplineLatent):
        return pieces.shape[1]
    return model.functions.projections * model.functions.sines + pieces.shape[-1] + 1


@jax.jit
@functools.partial(jax.value_and_grad, argnums=0, has_aux=True)
def _value_and_gradient(theta: Any, model: Any, pieces: Any, rows: Rows, start: Any) -> tuple[Any, Any]:
    at = with_free(model, theta)
    mode = approximation(at, pieces, rows, start)
    return mode.log_evidence, jax.lax.stop_gradient(mode.weights)


def approximation(model: Any, pieces: Any, rows: Rows, start: Float[Array, " F"]) -> Mode:
    """Laplace's approximation of a latent model given rows."""
    held = jax.lax.stop_gradient(model)
    return laplace(model.problem(pieces, rows), held.problem(pieces, rows), start)


_approximation = jax.jit(approximation)


@dataclasses.dataclass(frozen=True)
class NormalScores:
    """Each column by the place of its values among those of the data, on the scale of a standard normal; or as it is."""

    values: tuple[np.ndarray, ...]
    scores: tuple[np.ndarray, ...]

    @classmethod
    def of(cls, X: np.ndarray) -> NormalScores:
        """The scores of these data; equal values share one."""
        values, scores = [], []
        for column in X.T:
            distinct, counts = np.unique(column, return_counts=True)
            middle = (np.cumsum(counts) - 0.5 * counts) / len(column)
            values.append(distinct)
            scores.append(ndtri(middle))
        return cls(tuple(values), tuple(scores))

    def __call__(self, X: np.ndarray) -> np.ndarray:
        columns = [np.interp(x, v, s) for x, v, s in zip(X.T, self.values, self.scores, strict=True)]
        return np.stack(columns, axis=1)


@dataclasses.dataclass(frozen=True)
class FittedLabels(Result):
    """A latent model given labels or counts."""

    model: Any
    scores: NormalScores
    mode: Mode
    waves: LearnedWaves | None  # of projections; None for splines
    log_evidence: float
    learning: Learning | None
    table: tuple[Rung, ...] = ()

    @property
    def likelihood(self) -> Likelihood:
        """How the observations arise."""
        return self.model.likelihood

    @double_precision
    def predict(self, X: Any) -> Prediction:
        """The belief about f at new places; `.probability` for labels, `.observed` for counts."""
        new = as_inputs(X, allow_empty=True)
        if new.dimension != len(self.scores.values):
            raise ValueError(f"X has {new.dimension} columns, but the model was given {len(self.scores.values)}")
        Z = self.scores(np.asarray(new.points))
        size = CHUNK if len(Z) > 64 else 64
        filled = np.concatenate([Z, np.zeros((-len(Z) % size, Z.shape[1]))])
        pieces = [_marginals(self.model, self.mode, self.waves, filled[at : at + size]) for at in range(0, len(filled), size)]
        mean, variance = (np.concatenate([np.zeros(0), *(np.asarray(p[i]) for p in pieces)])[: len(Z)] for i in range(2))
        return Prediction(mean, variance, self.likelihood)

    @property
    @double_precision
    def block_bound(self) -> float:
        """The evidence with a determinant for each line by itself, Π|I + K_d W|: the lower bound in print, for comparison."""
        if not isinstance(self.model, SplineLatent):
            raise ValueError("block_bound is for additive models: projections are not lines that stay")
        L, m = self.model.basis.change.shape[:2]
        A = self.mode.factor @ self.mode.factor.T
        blocks = [A[d * m : (d + 1) * m, d * m : (d + 1) * m] for d in range(L)] + [A[-1:, -1:]]
        apart = sum(float(np.linalg.slogdet(block)[1]) for block in blocks)
        return self.log_evidence + 0.5 * (float(np.linalg.slogdet(A)[1]) - apart)

    def summary(self) -> str:
        """The numbers of projections that were tried, and how learning ended."""
        rows = [
            f"{r.projections:>3} projections  log evidence {r.log_evidence:.1f}  charged {r.charged:.1f}" for r in self.table
        ]
        return "\n".join([*rows, f"log evidence {self.log_evidence:.6g}; {self.learning}"])


@jax.jit
def _marginals(model: Any, mode: Mode, waves: LearnedWaves | None, x: Any) -> tuple[Any, Any]:
    Psi = model.whitened(x, waves)
    V = jax.scipy.linalg.solve_triangular(mode.factor, Psi, lower=True)
    return mode.weights @ Psi, jnp.sum(V * V, axis=0) + model.left_out(Psi)


@dataclasses.dataclass(frozen=True)
class AdditiveLabels:
    """A generalised additive model: labels or counts that depend on a constant and one function of each column.

    `kernel` is one Matérn kernel for every column, or a sum of terms along columns or directions, whose directions stay.
    """

    kernel: Kernel = dataclasses.field(default_factory=Matern52)
    likelihood: Likelihood = dataclasses.field(default_factory=lambda: Bernoulli("logit"))
    ranks: bool = True
    intervals: int = INTERVALS[1]

    @double_precision
    def condition(self, X: Any, y: Any) -> FittedLabels:
        """The process given data, with the parameters as they are."""
        return self._made(X, y, None)

    @double_precision
    def fit(
        self, X: Any, y: Any, *, max_evaluations: int = 100, progress: bool | None = None, seconds: float | None = None
    ) -> FittedLabels:
        """Learn lengthscales, variances and the likelihood's parameters by Laplace's evidence, then condition.

        Learning that reaches `seconds` keeps the best so far.
        """
        options: dict[str, Any] = {"restarts": 0, "seed": 0, "max_evaluations": max_evaluations, "progress": progress}
        return self._made(X, y, options | {"deadline": Deadline.after(seconds)})

    def _made(self, X: Any, y: Any, options: dict[str, Any] | None) -> FittedLabels:
        began = time.perf_counter()
        inputs = as_inputs(X)
        labels = _read(self.likelihood, y, inputs)
        points = np.asarray(inputs.points)
        scores = NormalScores.of(points) if self.ranks else _as_they_are(points)
        Z = scores(points)
        kernel = self.kernel
        if isinstance(kernel, HalfIntegerMatern) and Z.shape[1] > 1:
            kernel = Sum(tuple(kernel.on(d) for d in range(Z.shape[1])))
        lines = _lines(kernel, jnp.asarray(Z))
        t = jnp.sort(lines.t, axis=0)
        with lapack_threads(1):
            basis = as_numpy(splines.build(t, self.intervals, lines.states))
            model: Any = SplineLatent(kernel, self.likelihood, basis, Z.shape[1])
            frozen = [path for path in model.parameters() if path.endswith("direction")]
            model = model.freeze(*frozen) if frozen else model
            learning = None
            if options is not None:
                model, learning = climb(
                    model, Objective(model, LaplaceEvidence(model, Z, labels)), [free_vector(model)], len(Z), began, **options
                )
            return _fitted(as_numpy(model), scores, Z, labels, learning, ())


@dataclasses.dataclass(frozen=True)
class ProjectionPursuitLabels:
    """Labels or counts that depend on a linear part and functions of learned projections.

    `projections` is their number, or None to choose it from the data as for `ProjectionPursuitGP`.
    """

    likelihood: Likelihood = dataclasses.field(default_factory=lambda: Bernoulli("logit"))
    projections: int | None = None
    sines: int | None = None
    most: int = 20
    ranks: bool = True
    seconds: float = 300.0

    @double_precision
    def fit(self, X: Any, y: Any, *, seed: Seed = 0, max_evaluations: int = 300, progress: bool | None = None) -> FittedLabels:
        """Learn directions and parameters together by Laplace's evidence."""
        rng = generator(seed)
        inputs = as_inputs(X)
        labels = _read(self.likelihood, y, inputs)
        points = np.asarray(inputs.points)
        scores = NormalScores.of(points) if self.ranks else _as_they_are(points)
        Z = scores(points)
        start = SineModel([[1.0]], [1.0], [4.0], 0.5, fixed(1.0))
        around = lambda functions: SineLatent(functions, self.likelihood)
        family = Family(around, lambda model: model.functions, LaplaceEvidence, twice_akaike, start)
        rungs = (self.projections,) if self.projections else tuple(m for m in RUNGS if m <= self.most)
        with lapack_threads(1):
            search = Search(family, (Z, labels), rungs, self.sines, rng, self.seconds, max_evaluations, progress)
            model, learning, table = search.run()
            learning = dataclasses.replace(learning, method="laplace")
            return _fitted(as_numpy(model), scores, Z, labels, learning, table)


def _fitted(
    model: Any, scores: NormalScores, Z: np.ndarray, y: np.ndarray, learning: Learning | None, table: tuple[Rung, ...]
) -> FittedLabels:
    rows = Rows.of(Z, y[:, None])
    pieces = _pieces(model, rows)
    mode = jax.block_until_ready(_approximation(model, pieces, rows, jnp.zeros(_size(model, pieces))))
    waves = None
    if isinstance(model, SineLatent):
        waves = model.waves(mode, rows)
        mode = _with_directions(model, mode, waves, rows)
    return FittedLabels(model, scores, as_numpy(mode), as_numpy(waves), float(mode.log_evidence), learning, table)


@jax.jit
def _with_directions(model: SineLatent, mode: Mode, waves: LearnedWaves, rows: Rows) -> Mode:
    """Weights and directions together as a Gaussian around what was learned; each entry of a direction has prior variance 1."""
    F = len(mode.weights)
    G = F + model.functions.directions.size

    def add(total: Array, piece: tuple[Array, Array]) -> tuple[Array, None]:
        x, y = piece
        Psi = model.whitened(x, waves)
        w = y[:, -1] * model.likelihood.derivatives(y[:, 0], mode.weights @ Psi[:F])[2]
        return total + (Psi * w) @ Psi.T, None

    precision = jax.lax.scan(add, jnp.eye(G), (rows.X, rows.Y))[0]
    weights = jnp.concatenate([mode.weights, jnp.zeros(G - F)])
    return mode._replace(weights=weights, factor=jnp.linalg.cholesky(precision))


def _lines(kernel: Kernel, X: Any) -> Any:
    lines = lines_of(kernel, X)
    if isinstance(lines, No):
        raise ValueError(f"this is not an additive model: {lines.reason}")
    return lines


def _read(likelihood: Likelihood, y: Any, inputs: Inputs) -> np.ndarray:
    values = likelihood.check(np.asarray(y, dtype=float))
    if values.shape != (len(inputs),):
        raise ValueError(f"y must have one value for each of the {len(inputs)} rows of X, got shape {values.shape}")
    if np.isnan(values).any():
        raise ValueError(f"y has {int(np.isnan(values).sum())} NaN: drop these rows")
    return values


def _as_they_are(X: np.ndarray) -> Any:
    return _Untouched((np.zeros(0),) * X.shape[1])


class _Untouched(eqx.Module):
    """Columns as they are."""

    values: tuple[np.ndarray, ...]

    def __call__(self, X: np.ndarray) -> np.ndarray:
        return X
