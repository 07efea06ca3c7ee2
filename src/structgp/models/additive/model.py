"""Additive regression, y = c + Σ_d f_d(x_d) + ε: learned on spline features, at a cost free of N, then solved exactly."""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ... import where
from ..._types import Seed, by_the_host, double_precision, generator
from ...engines.additive import SOLVERS, AdditiveConditional, AdditiveEngine, remainders
from ...engines.base import Offer, noise_variance
from ...engines.basis import columns
from ...engines.plan import Plan
from ...inference.base import Inference
from ...inputs.layouts import Inputs, as_inputs
from ...inputs.observations import Data, read_observations
from ...inputs.parts import sources_of
from ...inputs.rows import filled, in_pieces, size_for
from ...kernels.algebra import Kernel, Sum
from ...kernels.stationary import HalfIntegerMatern, Matern52
from ...learn.clock import Deadline
from ...likelihoods.base import Likelihood
from ...likelihoods.gaussian import Gaussian
from ...linalg.dense.cholesky import lapack_threads, log_sum
from ...means import polynomial
from ...parameters.tree import Parametrised
from ...posterior import Prediction
from ...process.conditioning import check_inputs, condition, rule_for
from ...process.fitted import Fitted
from ...process.gp import GP
from ...structure.additive import terms_of
from .learned import learn, lines_at, refuse
from .parts import ROWS, fit_in_parts

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
        return fit_in_parts(self, sources, missing, over, learning, options)


def _rule(gp: GP, inference: str | None, data: Data) -> Inference | None:
    """The rule to find sites by, unless it could ask for sites that no additive engine takes."""
    rule = rule_for(gp, inference, data)
    if rule is not None and rule.signed(gp.likelihood):
        raise ValueError(
            f"{type(gp.likelihood).__name__} is not log-concave, and so needs sites that an additive model cannot take: "
            "use GP with structure='dense' on fewer rows"
        )
    return rule


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


_whitened = jax.jit(lambda projected, psi: projected.whitened(psi))


def _contrast(conditional: Any, weights: Any, grid: _Terms, line: int, center: np.ndarray, data: _Terms, T: int) -> np.ndarray:
    """The variance of one term on a grid less its mean over the data."""
    psi = np.zeros_like(grid.features)
    psi[line] = grid.features[line] - center[line]
    V = np.asarray(_whitened(conditional.projected, psi.reshape(-1, psi.shape[-1])))
    rho = grid.of_basis[:, line] - data.of_basis[:, line].mean(axis=0)
    U = np.linalg.solve(np.asarray(weights.factor), rho.T)
    return grid.left_out[line] + np.sum(V * V, axis=0) + np.sum(U * U, axis=0)


def _rows(t: np.ndarray) -> np.ndarray:
    return t[:: max(1, len(t) // 20000)]


def _name(term: Kernel) -> str:
    dims = getattr(term, "dims", None)
    return f"x{dims[0]}" if dims else "x0" if isinstance(term, HalfIntegerMatern) else "wᵀx"
