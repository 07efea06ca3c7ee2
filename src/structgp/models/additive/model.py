"""Additive regression, y = c + Σ_d f_d(x_d) + ε: learned on spline features, at a cost free of N, then solved exactly."""

from __future__ import annotations

import dataclasses
import functools
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ... import where
from ..._types import Seed, by_the_host, double_precision, generator
from ...engines.additive import SOLVERS, AdditiveConditional, AdditiveEngine, basis_of, remainders
from ...engines.additive_splines import SplineMap
from ...engines.base import Offer, form_by_shape, noise_variance
from ...engines.basis import columns, integrate
from ...engines.plan import Plan
from ...engines.woodbury import evidence
from ...inference.base import Inference
from ...inputs.layouts import Inputs, as_inputs
from ...inputs.observations import Data, read_observations
from ...inputs.parts import sources_of
from ...inputs.rows import filled, in_pieces, size_for
from ...kernels.algebra import Kernel, Sum
from ...kernels.stationary import HalfIntegerMatern, Matern52
from ...learn.account import Learning
from ...learn.climb import climb
from ...learn.clock import NEVER, Deadline
from ...learn.evidence import evidence_objective
from ...learn.objective import Objective
from ...learn.sites import SiteEvidence
from ...likelihoods.base import Likelihood
from ...likelihoods.gaussian import Gaussian
from ...linalg.dense.cholesky import lapack_threads, log_sum
from ...linalg.features import splines
from ...linalg.features.totals import Totals, in_blocks, totals
from ...means import polynomial
from ...parameters.tree import Parametrised, free_vector, learned_leaves, with_free, with_values
from ...posterior import Prediction
from ...process.conditioning import check_inputs, compiled_ahead, condition, rule_for
from ...process.fitted import Fitted
from ...process.gp import GP
from ...structure.additive import MOST_STATES, Additive, Lines, additive, lines_of, terms_of
from ...structure.base import No

LONGEST = 10.0  # lengthscales up to this many ranges of a line: beyond, a function is a cubic to all appearance
SHORTEST = 1e-3
FIRST_INTERVALS, FEW_FEATURES = (24, 32, 48), 500  # where learning begins, and up to how many features of all lines together
ROUNDS = 4  # how often the knots may be refined
ROWS = 16384  # how many new places are looked at together
NO_EFFECT = 0.02  # a term whose values spread by less than this part of the noise is called switched off
WITHIN = 2.0  # and so is one whose spread is within so many of its own standard deviations


class Component(NamedTuple):
    """One term at places of its line, centred over the data, and how much it moves the sum there."""

    name: str
    x: np.ndarray
    mean: np.ndarray
    variance: np.ndarray
    effect: float  # standard deviation of the term over the rows of the data
    switched_off: bool

    @property
    def sd(self) -> np.ndarray:
        """Standard deviation."""
        return np.sqrt(self.variance)


class Estimate(NamedTuple):
    """A number that was estimated by chance, and its standard error."""

    value: float
    error: float


@dataclasses.dataclass(frozen=True)
class FittedAdditive(Fitted):
    """An additive process given data."""

    def predict(
        self, X: Any, covariance: bool | str = False, part: int | None = None, extra: Any = None, output: Any = None
    ) -> Prediction:
        """The belief about f at new places, or about one term of the sum (not centred), as for any other `Fitted`."""
        with lapack_threads(1):
            return super().predict(X, covariance, part, extra)

    @double_precision
    def mean(self, X: Any) -> np.ndarray:
        """The mean of f at new places alone, which takes little time and memory."""
        Xs = self._new_points(X)
        means = lambda piece: _means(self.gp, self.conditional, self.weights, piece, self._targets)
        return self._shaped(in_pieces(means, Xs, ROWS))

    @property
    def constant(self) -> float:
        """The mean of the fitted sum over the rows of the data."""
        return float(np.mean(self.mean(self.inputs.points)))

    @double_precision
    def components(self, points: int = 100) -> list[Component]:
        """Each term of the sum by itself, centred over the data: what the constant leaves to it, with a variance."""
        form = self.conditional.structure  # type: ignore[attr-defined]
        t = np.asarray(form.t)
        grid = np.linspace(t[0], t[-1], points)
        at_data, at_grid = (_terms(self.conditional, self.weights, np.asarray(x), self._targets) for x in (_rows(t), grid))
        center, center_of_features = at_data.mean.mean(axis=0), at_data.features.mean(axis=-1, keepdims=True)
        found = []
        for line, term in enumerate(terms_of(self.kernel)):
            mean = at_grid.mean[:, line] - center[line]
            V = _contrast(self.conditional, self.weights, at_grid, line, center_of_features, at_data, self._targets)
            effect = float(np.sqrt(np.mean((at_data.mean[:, line] - center[line]) ** 2)))
            doubt = WITHIN * float(np.sqrt(np.mean(V)))
            noise = float(np.mean(noise_variance(self.gp, self.inputs))) if self.likelihood.is_gaussian else 1.0
            weak = effect < max(NO_EFFECT * noise**0.5, doubt)
            found.append(Component(_name(term), grid[:, line], self._shaped(mean), V, effect, weak))
        return found

    @double_precision
    def estimated_evidence(self, probes: int = 8, seed: Seed = 0) -> Estimate:
        """log p(y) itself: what the bound leaves out is estimated from random probes, with a standard error."""
        if self.inference is not None:
            raise ValueError("estimated_evidence is for Gaussian observations: with others it is the sites that are estimates")
        key = jax.random.key(int(generator(seed).integers(2**62)))
        with lapack_threads(1):
            found = np.asarray(_remainders(self.conditional, key, probes))
        log_det, _ = self.conditional.log_det_and_gram()
        slack = float(log_det) - float(_projected_log_det(self.conditional))
        error = float(np.std(found, ddof=1) / np.sqrt(probes)) if probes > 1 else float("inf")
        return Estimate(self.log_evidence + 0.5 * self._targets * (slack - float(found.mean())), 0.5 * self._targets * error)

    def summary(self) -> str:
        """A table of the parameters, an account of the fit, and the terms that do nothing."""
        off = [component.name for component in self.components(8) if component.switched_off]
        conditional: Any = self.conditional
        kind = "sweeps of backfitting" if conditional.engine.solver == "backfitting" else "steps of conjugate gradients"
        solved = f"\nmean           after {int(conditional.steps)} {kind}, relative residual {float(conditional.residual):.1e}"
        return super().summary() + solved + (f"\nswitched off   {', '.join(off)}" if off else "")

    def plot_components(self, level: float = 2.0, axes: Any = None) -> Any:
        """Draw all terms with bands of `level` standard deviations; needs Matplotlib, returns the axes."""
        import matplotlib.pyplot as plt

        parts = self.components()
        if axes is None:
            rows = -(-len(parts) // 4)
            axes = plt.subplots(rows, min(4, len(parts)), figsize=(12, 2.6 * rows), layout="constrained", squeeze=False)[1]
        for ax, part in zip(np.ravel(axes), parts, strict=False):
            ax.fill_between(part.x, part.mean - level * part.sd, part.mean + level * part.sd, color="#9dc1e8", alpha=0.6, lw=0)
            ax.plot(part.x, part.mean, color="#1f5fa8")
            ax.set_title(part.name + (" (switched off)" if part.switched_off else ""), fontsize=9)
        return axes


if TYPE_CHECKING:  # what data in memory lead to
    Given = FittedAdditive
else:  # or a FittedAdditiveParts
    Given = Any


class AdditiveGP(Parametrised):
    """A sum of one-dimensional functions and a constant, seen through a likelihood.

    `kernel` is one Matérn kernel, taken for each column with parameters of its own, or a sum of terms along columns or
    directions. Observations that are not Gaussian must be log-concave in f, as labels and counts are.
    """

    kernel: Kernel = dataclasses.field(default_factory=Matern52)
    likelihood: Likelihood = dataclasses.field(default_factory=Gaussian)

    def gp(self, dimension: int) -> GP:
        """The process in so many columns, as a plain GP."""
        kernel = self.kernel
        if isinstance(kernel, HalfIntegerMatern):
            kernel = Sum(tuple(kernel.on(d) for d in range(dimension))) if dimension > 1 else kernel
        return GP(kernel, self.likelihood, polynomial(0))

    @by_the_host
    def condition(
        self,
        X: Any,
        y: Any = None,
        *,
        noise: Any = None,
        missing: str = "error",
        inference: str | None = None,
        extra: Any = None,
        solver: str = SOLVERS[0],
        over: Any = None,
    ) -> Given:
        """The process given data, with the parameters as they are; arguments as in `GP.condition`.

        ``solver="backfitting"`` finds the mean by sweeps over the terms in place of conjugate gradients, for comparison;
        `summary()` says how many it took and what residual they left.
        """
        if solver not in SOLVERS:
            raise ValueError(f"solver must be one of {list(SOLVERS)}, got {solver!r}")
        sources = sources_of(X, y, noise)
        if sources is not None:
            return self._in_parts(sources, missing, over, False, {})
        inputs = as_inputs(X, clocks=())
        gp = self.gp(inputs.dimension)
        data = read_observations(gp.likelihood, y, noise, missing, inputs, extra)
        return conditioned(gp, inputs, data, AdditiveEngine(solver=solver), _rule(gp, inference, data))

    @by_the_host
    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        noise: Any = None,
        missing: str = "error",
        inference: str | None = None,
        extra: Any = None,
        restarts: int = 0,
        seed: Seed = 0,
        max_evaluations: int = 300,
        progress: bool | None = None,
        seconds: float | Deadline | None = None,
        over: Any = None,
    ) -> Given:
        """Learn all parameters by maximising a lower bound on the evidence, refining its knots as needed, then condition.

        Of Gaussian data without known noise variances the sums over rows are made once. Known `noise`, and sites for other
        likelihoods by `inference` ("ep", "variational" or "laplace"), need them anew for each evaluation.
        Learning that reaches `seconds` keeps the best so far.

        X and y may come in parts, as those of `GP.fit`, and `over` says who works on them. One round of sums over the rows is
        all that is asked of them; the result is a `FittedAdditiveParts`.
        """
        deadline = Deadline.after(seconds)
        sources = sources_of(X, y, noise)
        if sources is not None:
            climbing = {"restarts": restarts, "seed": seed, "max_evaluations": max_evaluations, "progress": progress}
            return self._in_parts(sources, missing, over, True, {**climbing, "deadline": deadline})
        inputs = as_inputs(X, clocks=())
        gp = self.gp(inputs.dimension)
        check_inputs(gp, inputs)
        data = read_observations(gp.likelihood, y, noise, missing, inputs, extra)
        rule = _rule(gp, inference, data)
        options: dict[str, Any] = {"restarts": restarts, "seed": seed, "max_evaluations": max_evaluations, "progress": progress}
        options["deadline"] = deadline
        learned, learning, engine = learn(gp, inputs, data, rule, **options)
        return dataclasses.replace(conditioned(learned, inputs, data, engine, rule), learning=learning)

    def _in_parts(self, sources: Any, missing: str, over: Any, learning: bool, options: dict[str, Any]) -> Any:
        from .parts import fit_in_parts

        return fit_in_parts(self, sources, missing, over, learning, options)


def learn(
    gp: GP, inputs: Inputs, data: Data, rule: Inference | None = None, **options: Any
) -> tuple[GP, Learning, AdditiveEngine]:
    """The model that maximises the bound on the evidence, and the engine with its knots; lines along directions keep them."""
    began = time.perf_counter()
    refuse(gp, inputs)
    intervals = first_intervals(gp.kernel)
    gp = started(held_within(gp, inputs), inputs, data)
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


def _rule(gp: GP, inference: str | None, data: Data) -> Inference | None:
    """The rule to find sites by, unless it could ask for sites that no additive engine takes."""
    rule = rule_for(gp, inference, data)
    if rule is not None and rule.signed(gp.likelihood):
        raise ValueError(
            f"{type(gp.likelihood).__name__} is not log-concave, and so needs sites that an additive model cannot take: "
            "use GP with structure='dense' on fewer rows"
        )
    return rule


def first_intervals(kernel: Kernel) -> int:
    """Where learning begins: with fine knots if they cost less than compiling another number of them later would."""
    fitting = [size for size in FIRST_INTERVALS if len(terms_of(kernel)) * splines.size(size, MOST_STATES) <= FEW_FEATURES]
    return max(fitting, default=min(FIRST_INTERVALS))


class SplineSums:
    """The bound on the log evidence and its gradient, from sums over so many values; `x` is some place."""

    def __init__(self, model: GP, x: Any, basis: splines.Splines, sums: Totals, count: int, targets: int) -> None:
        self.model, self.x, self.basis, self.sums = model, jnp.asarray(x), basis, sums
        self.count, self.targets = jnp.asarray(count), targets

    @classmethod
    def over(cls, model: GP, inputs: Inputs, data: Data, intervals: int) -> SplineSums:
        """The same from rows, which are looked at once."""
        with lapack_threads(1):
            basis, sums = jax.block_until_ready(_summed(model, inputs, data, intervals))
        return cls(model, np.asarray(inputs.points)[:1], basis, sums, int(np.sum(data.seen)), data.y.shape[1])

    def __call__(self, theta: np.ndarray) -> tuple[Any, Any]:
        return _value_and_gradient(jnp.asarray(theta), self.model, self.x, self.basis, self.sums, self.count, self.targets)


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


def conditioned(
    gp: GP, inputs: Inputs, data: Data, engine: AdditiveEngine | None = None, rule: Inference | None = None
) -> FittedAdditive:
    """An additive process given data, with the parameters as they are."""
    refuse(gp, inputs)
    offer = (engine or AdditiveEngine()).offer(gp, inputs, data)
    assert isinstance(offer, Offer)
    with lapack_threads(1):
        return FittedAdditive.of(
            gp, inputs, data, condition(gp, inputs, data, Plan((offer,), on_host=where.accelerated()), rule)
        )


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


def held_within(gp: GP, inputs: Inputs) -> GP:
    """The model with its directions kept and its lengthscales within what the splines can tell apart."""
    spans = np.ptp(np.asarray(lines_at(gp.kernel, jnp.asarray(np.asarray(inputs.points))).t), axis=0)
    directions = [leaf.path for leaf in learned_leaves(gp) if leaf.path.endswith("direction")]
    gp = gp.freeze(*directions) if directions else gp
    free = [leaf for leaf in learned_leaves(gp) if leaf.path.endswith("lengthscale") and leaf.bounds is None]
    span = {leaf.path: spans[_line_number(leaf.path)] or 1.0 for leaf in free}
    return gp.with_bounds({path: (SHORTEST * length, LONGEST * length) for path, length in span.items()})


def _line_number(path: str) -> int:
    return int(path.split("terms[")[1].split("]")[0]) if "terms[" in path else 0


def started(gp: GP, inputs: Inputs, data: Data) -> GP:
    """Half the range of each line, an equal share of the variance, a quarter of it as noise: unless the values were held."""
    spans = np.ptp(np.asarray(lines_at(gp.kernel, jnp.asarray(np.asarray(inputs.points))).t), axis=0)
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


@functools.partial(jax.jit, static_argnames="probes")
def _remainders(conditional: AdditiveConditional, key: Any, probes: int) -> Any:
    return remainders(conditional, key, probes)


def _projected_log_det(conditional: Any) -> Any:
    return 2 * jnp.sum(jnp.log(jnp.diagonal(conditional.projected.factor))) - log_sum(conditional.sites.precision)


@functools.partial(jax.jit, static_argnames="T")
def _means(gp: GP, conditional: AdditiveConditional, weights: Any, X: Any, T: int) -> Any:
    means = jnp.sum(conditional.line_means(lines_at(gp.kernel, X).t), axis=1)
    known, Phi = columns(gp, X)
    return known[:, None] + means[:, :T] + (Phi - means[:, T:]) @ weights.mean


class _Terms(NamedTuple):
    """All terms at places: means (M, L, T), those of basis functions (M, L, P), whitened features and what they leave out."""

    mean: np.ndarray
    of_basis: np.ndarray
    features: np.ndarray
    left_out: np.ndarray


def _terms(conditional: Any, weights: Any, x: np.ndarray, T: int) -> _Terms:
    pieces = [_in_few_sizes(conditional, weights, x[at : at + 4096], T) for at in range(0, len(x), 4096)]
    mean, of_basis, features, left_out = ([piece[i] for piece in pieces] for i in range(4))
    return _Terms(np.concatenate(mean), np.concatenate(of_basis), np.concatenate(features, -1), np.concatenate(left_out, -1))


def _in_few_sizes(conditional: Any, weights: Any, x: np.ndarray, T: int) -> tuple[np.ndarray, ...]:
    count = len(x)
    found = _terms_at(conditional, weights, filled(x, size_for(count, 128)), T)
    mean, of_basis, features, left_out = (np.asarray(part) for part in found)
    return mean[:count], of_basis[:count], features[..., :count], left_out[..., :count]


@functools.partial(jax.jit, static_argnames="T")
def _terms_at(conditional: AdditiveConditional, weights: Any, x: Any, T: int) -> tuple[Any, Any, Any, Any]:
    means = conditional.line_means(x)
    psi, made = conditional.projected.features(x), conditional.projected.map
    return means[..., :T] - means[..., T:] @ weights.mean, means[..., T:], made.by_line(psi), made.rest_of_lines(psi)


def _contrast(conditional: Any, weights: Any, grid: _Terms, line: int, center: np.ndarray, data: _Terms, T: int) -> np.ndarray:
    """The variance of one term on a grid less its mean over the data."""
    psi = np.zeros_like(grid.features)
    psi[line] = grid.features[line] - center[line]
    V = np.asarray(conditional.projected.whitened(jnp.asarray(psi.reshape(-1, psi.shape[-1]))))
    rho = grid.of_basis[:, line] - data.of_basis[:, line].mean(axis=0)
    U = np.linalg.solve(np.asarray(weights.factor), rho.T)
    return grid.left_out[line] + np.sum(V * V, axis=0) + np.sum(U * U, axis=0)


def _rows(t: np.ndarray) -> np.ndarray:
    return t[:: max(1, len(t) // 20000)]


def _name(term: Kernel) -> str:
    dims = getattr(term, "dims", None)
    return f"x{dims[0]}" if dims else "x0" if isinstance(term, HalfIntegerMatern) else "wᵀx"
