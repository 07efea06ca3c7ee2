"""Learning by expectation and maximisation: the states of a chain are the missing data, and the evidence never falls.

Given the parameters, the smoother says what the path z of the states was. Given the path, the parameters are those that
maximise the expected log density of path and data together,

    E_C(θ) = E log p(z | θ) + E log p(y | z, θ) + log p(θ),

whose terms separate: the noise variance is the mean squared residual and the variance of each independent part of a sum is the
mean squared push of its states, in closed form; what is left (lengthscales …) climbs E_C, with the closed forms put in. At the
parameters that the path was found with, the slope of E_C is that of the evidence (Fisher's identity), so that the fixed points
of one are those of the other.

EM creeps where the path says much more of a parameter than the data do, above all at low noise: it is here for its monotone
way, `maximise` for speed.
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

from .._types import double_precision, generator
from ..engines.base import Offer
from ..engines.basis import Weights, columns, integrate, sites_of
from ..engines.kalman import Kalman, parts_of
from ..inputs.layouts import Inputs, Times
from ..inputs.observations import Data
from ..likelihoods.gaussian import Gaussian
from ..linalg.dense.cholesky import lapack_threads
from ..linalg.markov import complete_data
from ..linalg.markov.chains import Chain
from ..parameters.supports import Positive
from ..parameters.tree import free_names, free_vector, learned_leaves, leaves, log_prior, with_free
from ..posterior import Model
from ..structure.approximate import approximated
from ..structure.base import No
from ..structure.dense import typical_variance
from ..structure.state_space import Where, chain_of, harmonics_of
from .account import Learning, Progress
from .clock import NEVER, OUT_OF_TIME, Deadline
from .initialise import candidates, units_of
from .objective import LOWEST
from .starts import bounds_of, perturbed

GAIN = 1e-10  # of the objective for each observation, below which EM has ended
STEPS = 10  # iterations of L-BFGS-B in one maximisation
HALVINGS = 20  # of a step that lowers the evidence


class Closed(NamedTuple):
    """The entries of θ that have a closed form: the noise, and the variances of parts of the sum (part, entry)."""

    noise: int | None
    scales: tuple[tuple[int, int], ...]

    @property
    def entries(self) -> list[int]:
        """All of them."""
        return [entry for _, entry in self.scales] + ([] if self.noise is None else [self.noise])


class Expected(eqx.Module):
    """The path and the function at the places, as far as the data tell."""

    theta: Float[Array, " P"]  # the parameters that they were found with
    path: complete_data.Path
    mean: Float[Array, "N T"]  # of f with the basis functions, without the known mean
    variance: Float[Array, " N"]


class Problem(eqx.Module):
    """What stays the same while EM runs."""

    model: Model
    inputs: Times
    data: Data  # in the order of time
    low: Float[Any, " P"]
    high: Float[Any, " P"]
    unit: Float[Any, " P"]  # of each entry of θ: levels have that of y, logarithms have none
    closed: Closed = eqx.field(static=True)
    approximate: str | None = eqx.field(static=True)


@double_precision
def maximise_by_em(
    model: Any,
    inputs: Inputs,
    data: Data,
    offer: Offer,
    *,
    restarts: int,
    seed: Any,
    max_evaluations: int,
    progress: Any = None,
    deadline: Deadline = NEVER,
) -> tuple[Any, Learning]:
    """The model with parameters that no step of EM makes better, and how they were found."""
    began, engine = time.perf_counter(), offer.engine
    if isinstance(inputs, Times) and inputs.which is not None:
        raise ValueError(_refusal("it takes one output"))
    if not isinstance(engine, Kalman) or not isinstance(inputs, Times):
        raise ValueError(_refusal(f"it needs the states of a chain, which the {engine.name} engine does not have"))
    order = np.asarray(inputs.order)
    in_time = Times(inputs.t, np.arange(len(order)), np.arange(len(order)), inputs.regular)
    sorted_data = Data(data.y[order], data.noise[order], data.seen[order], data.flat)
    starts = [free_vector(candidate) for candidate in candidates(model, np.asarray(inputs.points), data)]
    bounds = bounds_of(model, starts)
    unit = np.diagonal(units_of(model, np.asarray(inputs.points), data))
    problem = Problem(model, in_time, sorted_data, bounds[:, 0], bounds[:, 1], unit, Closed(None, ()), engine.approximate)
    _check(problem, starts[0])
    problem = dataclasses.replace(problem, closed=_closed_entries(problem, starts[0]))
    values = [_expect(problem, start).value for start in starts]
    if max(values) <= LOWEST:
        raise ValueError("the evidence is not finite at the start: check the data, or give other starting values")
    best, rng = starts[int(np.argmax(values))], generator(seed)
    others = [unit * perturbed(model, best / unit, rng, unit) for _ in range(restarts)]
    begin = [np.clip(start, *bounds.T) for start in (best, *others)]
    with Progress(progress, deadline=deadline) as report, lapack_threads(1):
        runs = [_run(problem, begin[0], max_evaluations, report, deadline)]
        runs += [_run(problem, start, max_evaluations, report, deadline) for start in begin[1:] if not deadline.passed()]
    winner = max(runs, key=lambda run: run.trace[-1])
    return with_free(model, winner.theta), _account(problem, winner, runs, len(starts), time.perf_counter() - began)


def _refusal(reason: str) -> str:
    return f"method='em' does not apply: {reason}; method='evidence' does"


class Run(NamedTuple):
    """One sequence of steps."""

    theta: np.ndarray
    trace: tuple[float, ...]
    gradient: np.ndarray
    converged: bool
    message: str


def _account(problem: Problem, winner: Run, runs: list[Run], extra: int, seconds: float) -> Learning:
    count, ends = _count(problem), [run.trace[-1] for run in runs]
    at_bound = np.min(np.abs(winner.theta - [problem.low, problem.high]) / problem.unit, axis=0) < 1e-6
    return Learning(
        objective=winner.trace[-1],
        gradient_norm=float(np.abs(np.where(at_bound, 0.0, problem.unit * winner.gradient)).max(initial=0.0) / count),
        evaluations=extra + sum(len(run.trace) for run in runs),
        seconds=seconds,
        converged=winner.converged,
        message=winner.message,
        restarts=len(runs) - 1,
        spread=max(ends) - min(ends),
        at_bound=tuple(np.asarray(free_names(problem.model))[at_bound]),
        method="em",
        trace=winner.trace,
    )


class Point(NamedTuple):
    """Parameters, the path that they make of the data, and the objective."""

    theta: np.ndarray
    expected: Expected
    value: float
    engine: Kalman


def _run(problem: Problem, theta: np.ndarray, most: int, report: Callable[[float], None], deadline: Deadline) -> Run:
    """Steps until two of them gain nothing, with leaps along their way where these gain more."""
    here = _expect(problem, theta)
    trace, converged, message = [here.value], not len(theta), "the number of evaluations reached its limit"
    try:
        while not converged and len(trace) < most:
            if deadline.passed():
                message = OUT_OF_TIME
                break
            one = _step(problem, here)
            two = _step(problem, one)
            far = _leap(problem, here, one, two)
            trace += [one.value, two.value] + ([far.value] if far is not two else [])
            converged = far.value - here.value <= GAIN * _count(problem)
            here = far
            report(here.value)
    except KeyboardInterrupt:
        trace, message = [value for value in trace if value <= here.value], "interrupted; the best point so far is kept"
    slope = np.asarray(_slope(here.theta, problem, here.expected, here.engine))
    return Run(here.theta, tuple(trace), slope, converged, "a step gains nothing" if converged else message)


def _step(problem: Problem, here: Point) -> Point:
    """One step of EM; rounding may make it too long."""
    proposal = _maximised(problem, here)
    for _ in range(HALVINGS):
        there = _expect(problem, proposal)
        if there.value >= here.value:
            return there
        proposal = 0.5 * (here.theta + proposal)
    return here


def _leap(problem: Problem, here: Point, one: Point, two: Point) -> Point:
    """Where a straight creep leads (SQUAREM), if that is better than the two steps of it, else their end."""
    first, bend = one.theta - here.theta, two.theta - 2 * one.theta + here.theta
    far, curved = (np.linalg.norm(change / problem.unit) for change in (first, bend))
    if not curved > 0:
        return two
    length = max(far / curved, 1.0)
    proposal = here.theta + 2 * length * first + length**2 * bend
    there = _expect(problem, np.clip(proposal, problem.low, problem.high))
    return there if there.value >= two.value else two


def _count(problem: Problem) -> int:
    return max(int(np.sum(problem.data.seen)) * problem.data.y.shape[1], 1)


def _expect(problem: Problem, theta: np.ndarray) -> Point:
    """The path given these parameters, and the objective."""
    engine = _engine(problem, theta)
    expected, value = _expectation(theta, problem, engine)
    return Point(theta, expected, float(value) if np.isfinite(value) else LOWEST, engine)


@functools.partial(jax.jit, static_argnames="engine")
def _expectation(theta: Array, problem: Problem, engine: Kalman) -> tuple[Expected, Array]:
    model, data = with_free(problem.model, theta), problem.data
    X, T = jnp.asarray(problem.inputs.points), data.y.shape[1]
    structure = engine.form(model.kernel, problem.inputs)
    assert not isinstance(structure, No)
    conditional = engine.condition(structure, sites_of(model, X, data, typical_variance(model.kernel, X)))
    value, weights = integrate(model, *conditional.log_det_and_gram(), jnp.sum(data.seen), T, 1)
    R = _inverse_root(weights)
    moved, f, slope = complete_data.path(structure.chain, structure.gaps(), conditional.smoothed, weights.mean, R)
    Phi = columns(model, X)[1]
    left = Phi @ R - slope
    variance = conditional.smoothed.marginals()[1] + jnp.sum(left * left, axis=1)
    return Expected(theta, moved, f + Phi @ weights.mean, variance), value + log_prior(model)


def _inverse_root(weights: Weights) -> Array:
    """R with R Rᵀ the covariance of the basis weights."""
    P = weights.factor.shape[0]
    return jax.scipy.linalg.solve_triangular(weights.factor, jnp.eye(P), lower=True, trans="T") if P else jnp.zeros((0, 0))


def blocks(model: Model, first: Any, engine: Kalman) -> list[Chain]:
    """The chains of the independent parts of the process."""
    where = Where(first, first, engine.harmonics)
    parts = [chain_of(approximated(part, engine.approximate), where) for part in parts_of(model.kernel)]
    return [part for part in parts if not isinstance(part, No)]


def _path_terms(model: Model, problem: Problem, expected: Expected, engine: Kalman) -> list[tuple[Array, Array, Array, int]]:
    """For each part log determinants, traces, how many Gaussians, and its number of states."""
    first, at, terms = problem.inputs.t[0], 0, []
    old = blocks(with_free(problem.model, expected.theta), first, engine)
    for block, before in zip(blocks(model, first, engine), old, strict=True):
        own = expected.path.block(at, block.size)
        terms.append((*complete_data.log_dets_and_traces(block, before, own), block.size))
        at += block.size
    return terms


def complete(theta: Array, problem: Problem, expected: Expected, engine: Kalman) -> Array:
    """E_C: the expected log density of path and data, up to a constant, and the log prior of the parameters."""
    model, T = with_free(problem.model, theta), problem.data.y.shape[1]
    terms = _path_terms(model, problem, expected, engine)
    total = log_prior(model) - 0.5 * sum(T * log_dets + traces for log_dets, traces, _, _ in terms)
    R = model.likelihood.noise + problem.data.noise
    R = jnp.where(problem.data.seen, R, 1.0)
    seen = T * jnp.log(2 * jnp.pi * R) + _squared(model, problem, expected) / R
    return total - 0.5 * jnp.sum(jnp.where(problem.data.seen, seen, 0.0))


def _squared(model: Model, problem: Problem, expected: Expected) -> Array:
    """The expected squared residual at each place, summed over the targets."""
    known = columns(model, jnp.asarray(problem.inputs.points))[0]
    residual = problem.data.y - known[:, None] - expected.mean
    return jnp.sum(residual**2, axis=1) + problem.data.y.shape[1] * expected.variance


def closed_forms(theta: Array, problem: Problem, expected: Expected, engine: Kalman) -> Array:
    """θ with the noise and the variances of the parts at the maximum of E_C, given the rest."""
    model, T = with_free(problem.model, theta), problem.data.y.shape[1]
    terms = _path_terms(model, problem, expected, engine)
    for part, entry in problem.closed.scales:
        _, traces, count, size = terms[part]
        theta = theta.at[entry].add(jnp.log(traces / (T * size * count)))
    if problem.closed.noise is not None:
        seen = problem.data.seen
        squared = jnp.sum(jnp.where(seen, _squared(model, problem, expected), 0.0))
        theta = theta.at[problem.closed.noise].set(jnp.log(squared / (T * jnp.sum(seen))))
    return jnp.clip(theta, problem.low, problem.high)


_slope = jax.jit(jax.grad(complete), static_argnames="engine")


@functools.partial(jax.jit, static_argnames="engine")
@functools.partial(jax.value_and_grad, has_aux=True)
def _profile(rest: Array, theta: Array, problem: Problem, expected: Expected, engine: Kalman) -> tuple[Array, Array]:
    """−E_C as a function of the parameters without a closed form, those with one at their best; and all of them."""
    full = closed_forms(theta.at[_rest(problem)].set(rest), problem, expected, engine)
    return -complete(full, problem, expected, engine), full


def _rest(problem: Problem) -> np.ndarray:
    """The entries of θ without a closed form."""
    return np.setdiff1d(np.arange(len(problem.low)), problem.closed.entries)


def _maximised(problem: Problem, here: Point) -> np.ndarray:
    """θ with a larger E_C, in the entries with a closed form the largest."""
    from scipy.optimize import minimize

    rest, count = _rest(problem), _count(problem)
    unit = problem.unit[rest]
    profile = functools.partial(
        _profile, theta=np.asarray(here.theta), problem=problem, expected=here.expected, engine=here.engine
    )

    def falling(at: np.ndarray) -> tuple[float, np.ndarray]:
        (value, _), slope = profile(np.asarray(unit * at))
        good = np.isfinite(value) and np.isfinite(slope).all()
        return (float(value) / count, unit * np.asarray(slope) / count) if good else (-LOWEST, np.zeros(len(at)))

    best = here.theta[rest]
    if len(rest):
        bounds = np.stack([problem.low[rest], problem.high[rest]], axis=1) / unit[:, None]
        options = {"maxiter": STEPS, "ftol": 1e-14, "gtol": 1e-9}
        best = unit * minimize(falling, best / unit, jac=True, method="L-BFGS-B", bounds=bounds, options=options).x
    return np.asarray(profile(np.asarray(best))[0][1])


def _check(problem: Problem, theta: np.ndarray) -> None:
    """Refuse what EM is not for, with the reason."""
    model = problem.model
    if not isinstance(model.likelihood, Gaussian):
        raise ValueError(_refusal(f"it is for Gaussian noise, not {type(model.likelihood).__name__}"))
    if float(model.likelihood.noise) == 0 and not np.all(problem.data.noise[problem.data.seen] > 0):
        raise ValueError(_refusal("observations without noise leave it where it starts"))
    if model.mean.features(np.zeros(1)).size and any(leaf.path.startswith("mean.") for leaf in learned_leaves(model)):
        raise ValueError(_refusal("the basis functions have parameters of their own"))
    engine = _engine(problem, theta)
    for part, block in zip(parts_of(model.kernel), _block_matrices(np.asarray(theta), problem, engine), strict=True):
        if block is None:
            raise ValueError(_refusal(f"what is seen of {part!r} depends on the place"))
        for matrix, what in zip(block[:2], ("starts from", "moves by"), strict=True):
            if not _definite(np.asarray(matrix)):
                raise ValueError(_refusal(f"{part!r} {what} less than all of its states, so that its path has no density"))


def _engine(problem: Problem, theta: np.ndarray) -> Kalman:
    kernel = with_free(problem.model, np.asarray(theta)).kernel
    return Kalman(harmonics_of(kernel), accurate=True, approximate=problem.approximate)


def _definite(matrix: np.ndarray) -> bool:
    scale = np.sqrt(np.diagonal(matrix))
    if not (scale > 0).all():
        return False
    return bool(np.linalg.eigvalsh(matrix / np.outer(scale, scale)).min() > 1e-13)


@functools.partial(jax.jit, static_argnames="engine")
def _block_matrices(theta: Array, problem: Problem, engine: Kalman) -> list[tuple[Array, Array, Array] | None]:
    """For each part V, and Q and A over a typical gap; none for a part that is seen in changing ways."""
    gaps = jnp.diff(problem.inputs.t)
    gap = jnp.sum(gaps) / jnp.maximum(jnp.sum(gaps > 0), 1)
    gap = jnp.where(gap > 0, gap, 1.0)
    found = blocks(with_free(problem.model, theta), problem.inputs.t[0], engine)
    return [None if block.varies else (block.start(), block.noise(gap), block.transition(gap)) for block in found]


def _closed_entries(problem: Problem, theta: np.ndarray) -> Closed:
    """Which entries of θ have a closed form: found by doubling each and looking what becomes of the matrices."""
    engine = _engine(problem, theta)
    before = jax.device_get(_block_matrices(np.asarray(theta), problem, engine))
    led = {leaf.follows for leaf in leaves(problem.model)}
    scales: dict[int, int] = {}
    noise, at = None, 0
    for leaf in learned_leaves(problem.model):
        size = int(np.prod(leaf.support.free_shape(np.shape(leaf.value))))
        if isinstance(leaf.support, Positive) and size == 1 and leaf.prior is None and leaf.path not in led:
            if leaf.path == "likelihood.noise" and not np.any(problem.data.noise[problem.data.seen]):
                noise = at
            elif leaf.path.startswith("kernel."):
                doubled = jax.device_get(_block_matrices(theta + np.log(2.0) * (np.arange(len(theta)) == at), problem, engine))
                part = _scaled_part(before, doubled)
                if part is not None:
                    scales.setdefault(part, at)
        at += size
    return Closed(noise, tuple(sorted(scales.items())))


def _scaled_part(before: list, after: list) -> int | None:
    """The only part that has changed, if all that happened to it is that its variances doubled."""
    same = lambda a, b: bool(np.allclose(a, b, rtol=1e-12, atol=0.0))
    changed = [i for i, (a, b) in enumerate(zip(before, after, strict=True)) if not all(map(same, a, b))]
    if len(changed) != 1:
        return None
    V, Q, A = before[changed[0]]
    return changed[0] if all(map(same, (2 * V, 2 * Q, A), after[changed[0]])) else None
