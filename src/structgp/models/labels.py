"""Labels and counts with additive or projection pursuit functions behind them, by Laplace's approximation on their features.

Inputs enter by their normal scores (the place of a value among those of the data, on the scale of a standard normal), so that
skewed columns cost nothing, unless they are to be taken as they are.
"""

from __future__ import annotations

import dataclasses
import time
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.special import ndtri

from .._types import Seed, double_precision, generator
from ..engines.additive import INTERVALS
from ..engines.additive_splines import SplineMap
from ..engines.woodbury import Weighed, Woodbury, sums_of
from ..inference.base import CONVERGED, MAX_CALLS, TOLERANCE, Problem
from ..inference.laplace import Laplace
from ..inputs.clock import Clocks
from ..inputs.layouts import Points, as_inputs, check_columns, clocks_of
from ..inputs.observations import Data, read_known
from ..kernels.algebra import Kernel
from ..kernels.stationary import Matern52
from ..learn.account import Learning
from ..learn.climb import climb
from ..learn.clock import Deadline
from ..learn.objective import Objective
from ..likelihoods.base import Likelihood
from ..likelihoods.labels import Bernoulli
from ..linalg.dense.cholesky import lapack_threads
from ..linalg.features import splines
from ..linalg.features.totals import in_blocks, totals, visited
from ..parameters.tree import Parametrised, as_numpy, fixed, free_vector, with_free
from ..posterior import Prediction, Result
from ..process.gp import GP
from ..sites import Sites
from ..structure.additive import lines_of
from ..structure.base import No
from ..structure.features import FeatureMap, FewFunctions, Level, Made, Stacked
from .additive.model import AdditiveGP
from .pursuit.search import Family, Rung, Search, twice_akaike
from .pursuit.sine_model import Rows, SineMap, SineModel, TurningMap, pieces, reaches

RUNGS = (3, 6, 12, 20)  # numbers of projections that are tried
LEVEL = 9.0  # prior variance of the constant
LEARNING = 3e-3  # tolerance in standard deviations, measured before Newton's last step, which squares it


class SplineLatent(Parametrised):
    """A constant and a sum of Matérn terms along lines, on spline features that stay as they are."""

    kernel: Kernel
    likelihood: Likelihood
    basis: splines.Splines
    columns: int = eqx.field(static=True)

    def rows(self, X: Float[Array, "N D"]) -> Float[Array, "N F"]:
        """What is kept of rows of data: their features, which do not move."""
        made, t = self.learned_features(None), _lines(self.kernel, X).t
        return visited(lambda t: made(t).T, in_blocks(t), len(t))

    def features(self, rows: Float[Array, "N F"]) -> Made:
        """The features of rows of data."""
        return Made(self.learned_features(None))

    def learned_features(self, waves: None) -> Stacked:
        """The features of the lines, then the constant, for places on the lines."""
        lines = _lines(self.kernel, jnp.zeros((1, self.columns)))
        return Stacked((SplineMap.on(self.basis, lines), Level(jnp.sqrt(LEVEL))))

    def places(self, X: Float[Array, "N D"]) -> Float[Array, "N L"]:
        """New rows as places on the lines."""
        return _lines(self.kernel, X).t


class LearnedWaves(NamedTuple):
    """Functions of projections as they were learned: the intervals of the sines, and their weights."""

    reach: Float[Any, " M"]
    weights: Float[Any, "k M"]


class SineLatent(Parametrised):
    """A linear part and functions of learned projections, on sine features."""

    functions: SineModel
    likelihood: Likelihood

    def rows(self, X: Float[Array, "N D"]) -> Float[Array, "N D"]:
        """What is kept of rows of data: all of it, because the features move with the directions."""
        return X

    def features(self, rows: Float[Array, "N D"]) -> SineMap:
        """The features of rows of data."""
        return self._along(reaches(self.functions, rows))

    def learned_features(self, waves: LearnedWaves) -> FeatureMap:
        """The features for new rows, and how f changes there as directions turn."""
        return TurningMap(self._along(waves.reach), waves.weights)

    def places(self, X: Float[Array, "N D"]) -> Float[Array, "N D"]:
        """New rows as they are."""
        return X

    def waves(self, made: SineMap, weights: Float[Array, " F"]) -> LearnedWaves:
        """What was learned of the functions."""
        k, M = self.functions.sines, self.functions.projections
        return LearnedWaves(made.reach, (made.scales * weights)[: k * M].reshape(k, M))

    def _along(self, reach: Any) -> SineMap:
        scales = self.functions.scales(reach).at[-1].set(jnp.sqrt(LEVEL))
        return SineMap(self.functions.units(), reach, scales, self.functions.sines)


class Mode(NamedTuple):
    """Whitened weights at the mode, the log evidence there, and the factor of their posterior precision."""

    weights: Float[Any, " F"]
    log_evidence: Float[Any, ""]
    factor: Float[Any, "F F"]
    steps: Any


def _problem(model: Any, rows: Rows, search: bool) -> Problem:
    """What Laplace's approximation is asked for, on the features of a latent model."""
    gp = GP(FewFunctions(model.features(rows.X)), model.likelihood)
    data = Data(rows.y[:, None], jnp.zeros_like(rows.y), rows.seen > 0)
    return Problem.of(gp, Points(rows.X), data, Woodbury(), signed=False, search=search)


class LaplaceEvidence:
    """Laplace's log evidence and its gradient; each mode is where the search for the next begins."""

    def __init__(self, model: Any, X: np.ndarray, y: np.ndarray) -> None:
        self.model, self.rows = model, _rows(model, X, y)
        self.start = (np.full(len(self.rows.y), np.nan),) * 2

    def __call__(self, theta: np.ndarray) -> tuple[Any, Any]:
        value, gradient, start = _value_and_gradient(np.asarray(theta), self.model, self.rows, self.start)
        if np.isfinite(value) and np.isfinite(gradient).all():
            self.start = start
        return value, gradient


def _rows(model: Any, X: np.ndarray, y: np.ndarray) -> Rows:
    """The data, with what the model keeps of each row."""
    rows = Rows.of(X, y)
    return rows._replace(X=_kept(model, rows.X))


@jax.jit
def _kept(model: Any, X: Any) -> Any:
    return model.rows(X)


@jax.jit
def _value_and_gradient(theta: Any, model: Any, rows: Rows, start: Any) -> tuple[Any, Any, Any]:
    found = Laplace().find(_problem(with_free(model, theta), rows, search=True), start, LEARNING, MAX_CALLS)

    def surrogate(theta: Any) -> Any:
        at = with_free(model, theta)
        return Laplace().surrogate(_problem(at, rows, search=isinstance(at, SplineLatent)), found)

    value = jnp.where(found.status == CONVERGED, found.log_evidence, jnp.nan)
    return value, jax.grad(surrogate)(theta), (found.w, found.h)


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
    scores: Any  # from columns to what the model sees: `NormalScores`, or nothing
    mode: Mode
    waves: LearnedWaves | None  # of projections; None for splines
    log_evidence: float
    learning: Learning | None
    table: tuple[Rung, ...] = ()
    clocks: Clocks = ()  # for each column of X how its dates are counted

    @property
    def likelihood(self) -> Likelihood:
        """How the observations arise."""
        return self.model.likelihood

    @double_precision
    def predict(self, X: Any, extra: Any = None) -> Prediction:
        """The belief about f at new places; `.probability` for labels, `.observed` for counts, of this exposure (`extra`)."""
        new = as_inputs(X, allow_empty=True, clocks=self.clocks or (None,) * len(self.scores.values))
        check_columns(new, len(self.scores.values))
        Z = self.scores(np.asarray(new.points))
        found = [_marginals(self.model, self.mode, self.waves, piece) for piece in pieces(Z)]
        mean, variance = (np.concatenate([np.zeros(0), *(np.asarray(part[i]) for part in found)])[: len(Z)] for i in range(2))
        if extra is not None:
            extra = np.asarray(extra, dtype=float)
            self.likelihood.check_extra(extra, mean.shape)
        return Prediction(mean, variance, self.likelihood, extra=self.likelihood.told_by(np.asarray(new.points), extra))

    @double_precision
    def given(self, X: Any, y: Any) -> FittedLabels:
        """The same functions and parameters, with the columns on the same scale, given other data; nothing is learned."""
        inputs = as_inputs(X, clocks=self.clocks or (None,) * len(self.scores.values))
        Z, labels = self.scores(np.asarray(inputs.points)), read_known(self.likelihood, y, inputs)
        with lapack_threads(1):
            return _fitted(self.model, self.scores, Z, labels, self.learning, self.table, self.clocks)

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
    made = model.learned_features(waves)
    phi = made.beyond(model.places(x))
    psi = made.whiten(phi)
    V = jax.scipy.linalg.solve_triangular(mode.factor, psi, lower=True)
    return mode.weights @ psi, jnp.sum(V * V, axis=0) + made.rest(phi)


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
        self,
        X: Any,
        y: Any,
        *,
        max_evaluations: int = 100,
        progress: bool | None = None,
        seconds: float | Deadline | None = None,
    ) -> FittedLabels:
        """Learn lengthscales, variances and the likelihood's parameters by Laplace's evidence, then condition.

        Learning that reaches `seconds` keeps the best so far.
        """
        options: dict[str, Any] = {"restarts": 0, "seed": 0, "max_evaluations": max_evaluations, "progress": progress}
        return self._made(X, y, options | {"deadline": Deadline.after(seconds)})

    def _made(self, X: Any, y: Any, options: dict[str, Any] | None) -> FittedLabels:
        began = time.perf_counter()
        inputs = as_inputs(X, clocks=())
        labels = read_known(self.likelihood, y, inputs)
        points = np.asarray(inputs.points)
        scores = NormalScores.of(points) if self.ranks else _as_they_are(points)
        Z = scores(points)
        kernel = AdditiveGP(self.kernel, self.likelihood).gp(Z.shape[1]).kernel
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
            return _fitted(as_numpy(model), scores, Z, labels, learning, (), clocks_of(inputs))


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
        inputs = as_inputs(X, clocks=())
        labels = read_known(self.likelihood, y, inputs)
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
            return _fitted(as_numpy(model), scores, Z, labels, learning, table, clocks_of(inputs))


def _fitted(
    model: Any, scores: Any, Z: np.ndarray, y: np.ndarray, learning: Learning | None, table: tuple[Rung, ...], clocks: Clocks
) -> FittedLabels:
    mode, waves = _settled(model, _rows(model, Z, y))
    return FittedLabels(model, scores, as_numpy(mode), as_numpy(waves), float(mode.log_evidence), learning, table, clocks)


@jax.jit
def _settled(model: Any, rows: Rows) -> tuple[Mode, LearnedWaves | None]:
    """Laplace's approximation; each entry of a direction has prior variance 1, and is one Gaussian with the weights."""
    problem, made = _problem(model, rows, search=True), model.features(rows.X)
    start = jnp.full_like(rows.y, jnp.nan)
    found = Laplace().find(problem, (start, start), TOLERANCE, MAX_CALLS)
    weighed = Weighed.by(made, sums_of(problem.structure, Sites(found.w, found.h[:, None], natural=True)))
    mode = Mode(weighed.mean()[:, 0], found.log_evidence, weighed.factor, found.calls)
    if isinstance(model, SplineLatent):
        return mode, None
    waves = model.waves(made, mode.weights)
    turning = model.learned_features(waves)
    G = totals(turning, in_blocks(rows.X), found.w, found.h[:, None], found.h[:, None]).gram
    weights = jnp.concatenate([mode.weights, jnp.zeros(len(G) - made.size)])
    return mode._replace(weights=weights, factor=jnp.linalg.cholesky(jnp.eye(len(G)) + G)), waves


def _lines(kernel: Kernel, X: Any) -> Any:
    lines = lines_of(kernel, X)
    if isinstance(lines, No):
        raise ValueError(f"this is not an additive model: {lines.reason}")
    return lines


def _as_they_are(X: np.ndarray) -> Any:
    return _Untouched((np.zeros(0),) * X.shape[1])


class _Untouched(eqx.Module):
    """Columns as they are."""

    values: tuple[np.ndarray, ...]

    def __call__(self, X: np.ndarray) -> np.ndarray:
        return X
