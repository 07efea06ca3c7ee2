"""Additive regression on rows in parts: one round of sums on spline features, and all that is learned and asked after that.

The sums do not depend on the parameters while the knots stay, so that learning looks at no row again. The process is given the
sums alone, so that its means are those of the spline features as well: nothing is solved by sweeps over the rows.
"""

from __future__ import annotations

import dataclasses
import functools
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..._types import Seed, double_precision, generator, whole
from ...crew import is_lazy
from ...engines.additive import basis_of, intervals_for
from ...engines.additive_splines import SplineMap
from ...engines.basis import Weights, columns, integrate
from ...engines.woodbury import Weighed
from ...inputs.clock import Clocks
from ...inputs.layouts import Points, as_inputs, check_columns
from ...inputs.parts import sizes_of_parts
from ...inputs.rows import in_pieces
from ...kernels.algebra import Kernel, On
from ...kernels.nonstationary import Constant
from ...kernels.views import Project
from ...learn.account import Learning
from ...learn.climb import climb
from ...learn.objective import Objective
from ...learn.parts import Held, hold_rows
from ...likelihoods.gaussian import Gaussian
from ...linalg.dense.cholesky import lapack_threads
from ...linalg.features.splines import Splines
from ...linalg.features.totals import Totals, in_blocks, totals
from ...parameters.tree import as_numpy, free_vector, leaves
from ...posterior import Prediction, Result
from ...process.conditioning import combined
from ...process.given import OfGP
from ...process.gp import GP
from ...process.lazy import lazily_predicted
from ...process.parts import Looked, Sources, read_parts
from ...structure.additive import additive, terms_of
from .learned import ROUNDS, SplineSums, first_intervals, held_within, lines_at, refuse, seen_lines, spans_of, started

ROWS = 16384  # how many new places are looked at together


@dataclasses.dataclass(frozen=True)
class FittedAdditiveParts(OfGP, Result):
    """An additive process given the sums over rows in parts. It needs no row to answer."""

    gp: Any
    log_evidence: float
    learning: Learning | None
    rows: int
    intervals: int
    level: np.ndarray
    basis: Splines
    sums: Totals
    weights: Weights
    flat: bool
    clocks: Clocks = ()  # for each column how its dates are counted
    dimension: int = 0  # of the rows

    @double_precision
    def predict(self, X: Any, covariance: bool = False) -> Any:
        """The belief about f at new places; of a Dask collection its moments as Dask arrays.

        What splines leave out of the covariance is taken for independent at each place.
        """
        if is_lazy(X):
            return lazily_predicted(self, X, len(self.level), self.flat)
        new = as_inputs(X, allow_empty=True, clocks=self.clocks or None)
        check_columns(new, self.dimension)
        Xs = np.asarray(new.points)
        if covariance:
            mean, joint = map(np.asarray, self._look(Xs, True))
            variance = np.diagonal(joint)
            return self._prediction(mean + self.level, variance, joint)
        mean, variance = in_pieces(functools.partial(self._look, joint=False), Xs, ROWS)
        return self._prediction(mean + self.level, variance, None)

    def mean(self, X: Any) -> np.ndarray:
        """The mean of f at new places alone."""
        return self.predict(X).mean

    @double_precision
    def sample(self, X: Any, n: int = 1, seed: Seed = None, observed: bool = False) -> np.ndarray:
        """n joint draws of f at new places, (n, M), or (n, M, T) of several targets; `observed` adds the noise."""
        found, rng = self.predict(X, covariance=True), generator(seed)
        values, vectors = np.linalg.eigh(np.asarray(found.covariance))
        normal = rng.standard_normal((whole(n, "n", 1), len(values), *found.mean.shape[1:]))
        f = found.mean + np.einsum("ij,nj...->ni...", vectors * np.sqrt(np.maximum(values, 0.0)), normal)
        return self.likelihood.sample(rng, f) if observed else f

    def _look(self, X: np.ndarray, joint: bool) -> Any:
        return _answer(self.gp, self.basis, self.sums, self.weights, X, len(self.level), joint)

    def _prediction(self, mean: np.ndarray, variance: np.ndarray, joint: Any) -> Prediction:
        if self.flat:
            return Prediction(mean[:, 0], variance, self.likelihood, joint)
        return Prediction(mean, np.repeat(variance[:, None], len(self.level), axis=1), self.likelihood, joint)

    def __repr__(self) -> str:
        return f"FittedAdditiveParts({self.gp!r}, {self.rows:,} rows, log evidence {self.log_evidence:.6g})"


@double_precision
def fit_in_parts(model: Any, sources: Sources, missing: str, over: Any, learning: bool, options: dict[str, Any]) -> Any:
    """An additive process given rows in parts, with its parameters learned or as they are."""
    began = time.perf_counter()
    looked = read_parts(sources, GP(Constant(), model.likelihood), missing, over, {})
    if not isinstance(model.likelihood, Gaussian) or any(fact.least_noise for fact in looked.facts):
        raise ValueError("an additive model of data in parts has one noise variance for all: leave out noise, or fit in memory")
    gp, ends, (X, data) = model.gp(len(looked.facts[0].first)), _ends(looked), looked.some
    telling = Points(np.concatenate([X, ends]))
    refuse(gp, telling)
    if any(leaf.path.endswith("direction") for leaf in leaves(gp)):
        raise ValueError("an additive model of data in parts has terms along columns, not along directions")
    intervals, (seen, targets) = first_intervals(gp.kernel), looked.observed
    lengths = sizes_of_parts([fact.rows for fact in looked.facts])
    handles = looked.crew.made(hold_rows, looked.rows, [gp] * len(lengths), lengths)
    level = data.y[data.seen].mean(axis=0)
    spans = spans_of(gp, telling)
    gp = started(held_within(gp, spans), spans, data) if learning else gp
    account, evaluations = None, 0
    for _ in range(ROUNDS):
        basis, sums = sums_in_parts(gp, telling, handles, looked, intervals, level)
        if learning:
            objective = Objective(gp, SplineSums(gp, telling.points[:1], basis, sums, seen, targets))
            with lapack_threads(1):
                gp, account = climb(gp, objective, [free_vector(gp)], max(seen, 1), began, **options)
            evaluations += account.evaluations
        needed = intervals_for(seen_lines(gp.kernel, telling.points), float(gp.likelihood.noise), seen)
        if needed <= intervals:
            break
        intervals = needed
    if account is not None:
        account = dataclasses.replace(account, evaluations=evaluations, method="splines")
    return given_in_parts(gp, looked, len(ends[0]), intervals, level, basis, sums, account)


def given_in_parts(
    gp: Any, looked: Looked, D: int, intervals: int, level: Any, basis: Splines, sums: Totals, account: Learning | None
) -> FittedAdditiveParts:
    """An additive process given the sums over all rows, of D columns."""
    evidence, weights = jax.device_get(_given(gp, basis, sums, *looked.observed, D))
    flat, rows = looked.facts[0].data.flat, sum(fact.rows for fact in looked.facts)
    made = as_numpy(gp), float(evidence), account, rows, intervals, level, basis, sums, weights, flat
    return FittedAdditiveParts(*made, looked.clocks, D)


def _ends(looked: Looked) -> np.ndarray:
    """Where the columns begin and end in all rows."""
    firsts, lasts = (np.stack([getattr(fact, name) for fact in looked.facts]) for name in ("first", "last"))
    return np.stack([firsts.min(axis=0), lasts.max(axis=0)])


def sums_in_parts(gp: Any, telling: Points, handles: Any, looked: Looked, intervals: int, level: Any) -> tuple[Splines, Totals]:
    """Spline features with knots where some of the rows are, and the sums over all rows on them."""
    basis = jax.device_get(_basis(gp.kernel, telling, intervals))
    found = looked.crew.map(sum_lines, handles, [basis] * len(handles), [level] * len(handles))
    return basis, jax.device_get(functools.reduce(Totals.__add__, found))


@functools.partial(jax.jit, static_argnames="intervals")
def _basis(kernel: Kernel, telling: Points, intervals: int) -> Splines:
    form: Any = additive(kernel, telling)
    return basis_of(form, intervals)


def sum_lines(held: Held, basis: Splines, level: Any) -> Totals:
    """The sums over the rows of a part on spline features."""
    return jax.device_get(_sum_lines(held, basis, level))


@jax.jit
def _sum_lines(held: Held, basis: Splines, level: Any) -> Totals:
    X, data = held.part.X, held.part.data
    known, Phi = columns(held.model, X)
    w = jnp.where(data.seen, 1.0, 0.0)
    T = w[:, None] * jnp.concatenate([data.y - known[:, None] - level, Phi], axis=1)
    lines = lines_at(held.model.kernel, X)
    return totals(SplineMap.on(basis, lines), in_blocks(lines.t), w, T, T)


@functools.partial(jax.jit, static_argnames=("T", "D"))
def _given(gp: Any, basis: Splines, sums: Totals, count: Any, T: int, D: int) -> tuple[Any, Weights]:
    weighed, over = _weighed(gp, basis, sums)
    gram = over.targets - weighed.c.T @ weighed.c
    return integrate(gp, weighed.log_det - over.log_weights, 0.5 * (gram + gram.T), count, T, D)


def _weighed(gp: Any, basis: Splines, sums: Totals) -> tuple[Weighed, Totals]:
    over = sums.over(gp.likelihood.noise)
    nowhere = jnp.zeros((1, _dimension(gp)))
    return Weighed.by(SplineMap.on(basis, lines_at(gp.kernel, nowhere)), over), over


def _dimension(gp: Any) -> int:
    """Columns that the terms look at."""
    terms = terms_of(gp.kernel)
    along = [np.shape(term.direction)[0] for term in terms if isinstance(term, Project)]
    return max([1, *along, *(1 + max(term.dims) for term in terms if isinstance(term, On))])


@functools.partial(jax.jit, static_argnames=("T", "joint"))
def _answer(gp: Any, basis: Splines, sums: Totals, weights: Weights, X: Any, T: int, joint: bool) -> tuple[Any, Any]:
    weighed, _ = _weighed(gp, basis, sums)
    lines = lines_at(gp.kernel, X)
    made = SplineMap.on(basis, lines)
    psi = made.whiten(made.beyond(lines.t))
    mean, U = combined(*columns(gp, X), weights, psi.T @ weighed.mean(), T)
    left_out, roots = jnp.sum(made.rest_of_lines(psi), axis=0), weighed.roots(psi)
    if joint:
        return mean, jnp.diag(left_out) + roots.T @ roots + U.T @ U
    return mean, jnp.sum(roots**2, axis=0) + left_out + jnp.sum(U * U, axis=0)
