"""How the numbers of an additive process are learned: a bound on the evidence, by sums over rows on spline features."""

from __future__ import annotations

import dataclasses
import functools
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ...engines.additive import AdditiveEngine, basis_of
from ...engines.additive_splines import SplineMap
from ...engines.base import form_by_shape
from ...engines.basis import columns, integrate
from ...engines.woodbury import evidence
from ...inference.base import Inference
from ...inputs.layouts import Inputs
from ...inputs.observations import Data
from ...kernels.algebra import Kernel
from ...learn.account import Learning
from ...learn.climb import climb
from ...learn.clock import NEVER
from ...learn.evidence import evidence_objective
from ...learn.objective import Objective
from ...learn.sites import SiteEvidence
from ...likelihoods.gaussian import Gaussian
from ...linalg.dense.cholesky import lapack_threads
from ...linalg.features import splines
from ...linalg.features.totals import Totals, in_blocks, totals
from ...parameters.tree import free_vector, learned_leaves, with_free, with_values
from ...process.conditioning import compiled_ahead
from ...process.gp import GP
from ...structure.additive import MOST_STATES, Additive, Lines, additive, lines_of, lines_on_host, terms_of
from ...structure.base import No

LONGEST = 10.0  # lengthscales up to this many ranges of a line: beyond, a function is a cubic to all appearance
SHORTEST = 1e-3
FIRST_INTERVALS, FEW_FEATURES = (24, 32, 48), 500  # where learning begins, and up to how many features of all lines together
ROUNDS = 4  # how often the knots may be refined


def learn(
    gp: GP, inputs: Inputs, data: Data, rule: Inference | None = None, **options: Any
) -> tuple[GP, Learning, AdditiveEngine]:
    """The model that maximises the bound on the evidence, and the engine with its knots; lines along directions keep them."""
    began = time.perf_counter()
    refuse(gp, inputs)
    intervals = first_intervals(gp.kernel)
    spans = spans_of(gp, inputs)
    gp = started(held_within(gp, spans), spans, data)
    evaluations, deadline = 0, options.get("deadline", NEVER)
    for _ in range(ROUNDS):
        round_began = deadline.clock()
        ahead = compiled_ahead(gp, inputs, data, AdditiveEngine(intervals, held=True), rule)
        objective = _objective(gp, inputs, data, intervals, rule)
        with lapack_threads(1):
            gp, learning = climb(gp, objective, [free_vector(gp)], max(int(np.sum(data.seen)), 1), began, **options)
        evaluations += learning.evaluations
        needed = AdditiveEngine().tuned(gp, inputs).intervals
        if needed <= intervals or deadline.left() < deadline.clock() - round_began:
            break
        intervals = needed
    ahead.wait()
    return gp, dataclasses.replace(learning, evaluations=evaluations, method="splines"), AdditiveEngine(intervals)


def _objective(gp: GP, inputs: Inputs, data: Data, intervals: int, rule: Inference | None) -> Any:
    """What is climbed while the knots stay as they are."""
    engine = AdditiveEngine(intervals, held=True)
    if rule is not None:
        return Objective(gp, SiteEvidence(gp, inputs, data, engine, rule))
    if np.any(data.noise):
        return evidence_objective(gp, inputs, data, engine)
    return Objective(gp, SplineSums.over(gp, inputs, data, intervals))


def first_intervals(kernel: Kernel) -> int:
    """Where learning begins: with fine knots if they cost less than compiling another number of them later would."""
    fitting = [size for size in FIRST_INTERVALS if len(terms_of(kernel)) * splines.size(size, MOST_STATES) <= FEW_FEATURES]
    return max(fitting, default=min(FIRST_INTERVALS))


class SplineSums:
    """The bound on the log evidence and its gradient, from sums over so many values; `x` is some place."""

    def __init__(self, model: GP, x: Any, basis: splines.Splines, sums: Totals, count: int, targets: int) -> None:
        self.model, self.x, self.basis, self.sums = model, np.asarray(x), basis, sums
        self.count, self.targets = np.asarray(count), targets

    @classmethod
    def over(cls, model: GP, inputs: Inputs, data: Data, intervals: int) -> SplineSums:
        """The same from rows, which are looked at once."""
        with lapack_threads(1):
            basis, sums = jax.block_until_ready(_summed(model, inputs, data, intervals))
        return cls(model, np.asarray(inputs.points)[:1], basis, sums, int(np.sum(data.seen)), data.y.shape[1])

    def __call__(self, theta: np.ndarray) -> tuple[Any, Any]:
        return _value_and_gradient(np.asarray(theta), self.model, self.x, self.basis, self.sums, self.count, self.targets)


@functools.partial(jax.jit, static_argnames="intervals")
def _summed(model: GP, inputs: Inputs, data: Data, intervals: int) -> tuple[splines.Splines, Totals]:
    form = additive(model.kernel, inputs)
    assert isinstance(form, Additive)
    X = jnp.asarray(inputs.points)
    known, Phi = columns(model, X)
    basis = basis_of(form, intervals)
    w = jnp.where(data.seen, 1.0, 0.0)
    # a free constant makes the level of y irrelevant, and sums of squares are more exact without it
    y = data.y - known[:, None]
    T = w[:, None] * jnp.concatenate([y - w @ y / jnp.sum(w), Phi], axis=1)
    lines = lines_at(model.kernel, X)
    return basis, totals(SplineMap.on(basis, lines), in_blocks(lines.t), w, T, T)


@functools.partial(jax.jit, static_argnames="T")
@functools.partial(jax.value_and_grad, argnums=0)
def _value_and_gradient(theta: Any, model: GP, x: Any, basis: splines.Splines, sums: Totals, count: Any, T: int) -> Any:
    at = with_free(model, theta)
    log_det, gram = evidence(SplineMap.on(basis, lines_at(at.kernel, x)), sums.over(at.likelihood.noise))
    return integrate(at, log_det, gram, count, T, x.shape[1])[0]


def refuse(gp: GP, inputs: Inputs) -> None:
    """Refuse what is no additive model, with the reason."""
    form = form_by_shape(AdditiveEngine(), gp.kernel, inputs)
    if isinstance(form, No):
        raise ValueError(f"this is not an additive model: {form.reason}")


def lines_at(kernel: Kernel, X: Any) -> Lines:
    """The terms of an additive kernel at rows."""
    lines = lines_of(kernel, X)
    assert not isinstance(lines, No)
    return lines


def seen_lines(kernel: Kernel, X: Any) -> Lines:
    """The same from outside of a program."""
    lines = lines_on_host(kernel, np.asarray(X))
    assert not isinstance(lines, No)
    return lines


def held_within(gp: GP, spans: np.ndarray) -> GP:
    """The model with its directions kept and its lengthscales within what the splines can tell apart."""
    directions = [leaf.path for leaf in learned_leaves(gp) if leaf.path.endswith("direction")]
    gp = gp.freeze(*directions) if directions else gp
    free = [leaf for leaf in learned_leaves(gp) if leaf.path.endswith("lengthscale") and leaf.bounds is None]
    span = {leaf.path: spans[_line_number(leaf.path)] or 1.0 for leaf in free}
    return gp.with_bounds({path: (SHORTEST * length, LONGEST * length) for path, length in span.items()})


def spans_of(gp: GP, inputs: Inputs) -> np.ndarray:
    """How far the places reach along each line."""
    return np.ptp(np.asarray(seen_lines(gp.kernel, inputs.points).t), axis=0)


def _line_number(path: str) -> int:
    return int(path.split("terms[")[1].split("]")[0]) if "terms[" in path else 0


def started(gp: GP, spans: np.ndarray, data: Data) -> GP:
    """Half the range of each line, an equal share of the variance, a quarter of it as noise: unless the values were held."""
    y = data.y[np.asarray(data.seen)]
    gaussian = isinstance(gp.likelihood, Gaussian)
    spread = (float(np.mean(np.var(y, axis=0))) if len(y) > 1 and gaussian else 0.0) or (1.0 if gaussian else 4.0)
    values: dict[str, Any] = {}
    for leaf in learned_leaves(gp):
        if leaf.path.endswith("lengthscale"):
            values[leaf.path] = np.broadcast_to(0.5 * (spans[_line_number(leaf.path)] or 1.0), np.shape(leaf.value))
        elif leaf.path.endswith("variance"):
            values[leaf.path] = spread / len(spans)
        elif leaf.path == "likelihood.noise":
            values[leaf.path] = 0.25 * spread
    within = {leaf.path: leaf.bounds for leaf in learned_leaves(gp) if leaf.bounds is not None}
    return with_values(gp, {path: np.clip(value, *within[path]) if path in within else value for path, value in values.items()})
