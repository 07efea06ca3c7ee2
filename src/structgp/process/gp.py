"""The door: a prior and a likelihood as one value, to plan, condition, fit and sample."""

from __future__ import annotations

import dataclasses
import functools
import warnings
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .._types import Seed, double_precision, generator
from ..background import Early, compiling
from ..engines.base import Engine
from ..engines.basis import Factors, Weights, columns, integrate, sites_of
from ..engines.cholesky import CholeskyConditional
from ..engines.diagnose import why_not_positive
from ..engines.eigen import Eigen
from ..engines.grids import prior_draws
from ..engines.kalman import Kalman
from ..engines.plan import Plan, form_by_shape, plan
from ..inference.base import CONVERGED, Found, Inference, Inferred, find_sites, unknown
from ..inference.choose import choose
from ..inference.several import check_several, offsets
from ..inputs.layouts import Grid, Inputs, as_inputs
from ..inputs.observations import Data, joined, read_observations
from ..kernels.algebra import Kernel
from ..kernels.independent import IndependentKernels, kernels_of
from ..learn.maximise import maximise
from ..learn.sites import SiteObjective
from ..likelihoods.base import Likelihood
from ..likelihoods.gaussian import Gaussian
from ..linalg.dense.cholesky import lapack_threads
from ..means import Mean, as_mean
from ..parameters.tree import Parametrised, free_vector
from ..posterior import Conditional
from ..structure.base import No
from ..structure.dense import covariance, typical_variance
from ..structure.kronecker import Kronecker, kronecker
from ..structure.state_space import StateSpace
from .fitted import Fitted, square_root
from .latents import FittedLatents, condition_latents, conditional_of

if TYPE_CHECKING:
    from ..inference.mcmc import LatentDraws
    from .series import FittedSeries
    from .stream import Stream

DRAW_BYTES = 256e6  # what drawing from a prior along a line may hold at a time
FEW_ROWS = 500  # up to this many observations, learning starts from several places by itself
METHODS = ("evidence", "em")


def _as_kernel(kernel: Any) -> Kernel:
    if isinstance(kernel, type) and issubclass(kernel, Kernel):
        raise TypeError(f"GP needs a kernel, got the class {kernel.__name__}: call it, {kernel.__name__}()")
    if not isinstance(kernel, (Kernel, IndependentKernels)):
        raise TypeError(f"GP needs a kernel such as Matern52(), got {kernel!r}")
    return kernel  # type: ignore[return-value]


def _as_likelihood(likelihood: Any) -> Likelihood:
    if likelihood is None:
        return Gaussian()
    if isinstance(likelihood, Likelihood):
        return likelihood
    raise TypeError(f"GP needs a likelihood such as Gaussian(noise=0.1), got {likelihood!r}")


class GP(Parametrised):
    """A Gaussian process: f = mean + a draw from the kernel, and observations of it through the likelihood.

    A value that holds no data. `mean` is None, a number, a function of a point, or a `Mean`. Where the likelihood sees several
    latents, as `Categorical` does, kernel and mean are those of each; `Independent(k₁, k₂, …)` gives each its own kernel.
    """

    kernel: Kernel = eqx.field(converter=_as_kernel)
    likelihood: Likelihood = eqx.field(default=None, converter=_as_likelihood)
    mean: Mean = eqx.field(default=None, converter=as_mean)

    @double_precision
    def plan(self, X: Any, structure: str = "auto", approximate: str | None = None) -> Plan:
        """What would run at these inputs, what it costs, and why not the others.

        ``approximate="state-space"`` lets a process with a finite state stand in for SquaredExponential and RationalQuadratic,
        ``"matern"`` a Matérn kernel of high order; the plan says how far the covariance is then off.
        """
        inputs = as_inputs(X)
        self._check_kernel(inputs)
        return plan(self, inputs, structure, approximate)

    @double_precision
    def condition(
        self,
        X: Any,
        y: Any,
        *,
        noise: Any = None,
        missing: str = "error",
        structure: str = "auto",
        approximate: str | None = None,
        inference: str | None = None,
        extra: Any = None,
        weights: Any = None,
    ) -> Fitted:
        """The process given data, with the parameters as they are.

        `noise` are known noise variances, a number or one for each observation, on top of the likelihood's own.
        ``missing="infer"`` takes NaN in y for values that were not observed. `approximate` is explained at `plan`.

        Observations that are not Gaussian become Gaussian sites by `inference`: "ep", "power-ep", "variational" or "laplace",
        by default the one that suits the likelihood. `extra` is what the likelihood wants to know of each observation besides:
        the exposure of a count, the trials of a binomial, whether a duration is censored. `weights` say how often each
        observation counts.
        """
        inputs = as_inputs(X)
        chosen = self.plan(inputs, structure, approximate)
        data = self._read(y, noise, missing, inputs, extra, weights)
        return self._conditioned(inputs, data, chosen, self._rule(inference, data))

    @double_precision
    def fit(
        self,
        X: Any,
        y: Any,
        *,
        noise: Any = None,
        missing: str = "error",
        structure: str = "auto",
        approximate: str | None = None,
        restarts: int | None = None,
        seed: Seed = 0,
        max_evaluations: int = 500,
        progress: bool | None = None,
        method: str = "evidence",
        inference: str | None = None,
        extra: Any = None,
        weights: Any = None,
    ) -> Fitted:
        """Learn the parameters by maximising the evidence (with priors: the posterior density), then condition on the data.

        ``method="evidence"`` climbs by its gradient; ``method="em"`` takes steps that never lower it, for kernels with a state
        space.

        `restarts` adds climbs from other starts (by default three for small data, else none; with EM none) and `seed` makes
        them repeatable. `progress` shows a line while learning, by default on a terminal only. Ctrl-C keeps the best so far.

        `inference`, `extra` and `weights` are for observations that are not Gaussian, as in `condition`.
        """
        if method not in METHODS:
            raise ValueError(f"method must be one of {sorted(METHODS)}, got {method!r}")
        inputs = as_inputs(X)
        chosen = self.plan(inputs, structure, approximate)
        data = self._read(y, noise, missing, inputs, extra, weights)
        rule = self._rule(inference, data)
        if rule is not None and method == "em":
            raise ValueError(
                "method='em' needs Gaussian observations: leave it out, and the evidence is climbed by its gradient"
            )
        if restarts is None:
            restarts = 3 if len(inputs) <= FEW_ROWS and method == "evidence" and rule is None else 0
        if restarts < 0 or restarts != int(restarts):
            raise ValueError(f"restarts must be a whole number, 0 or more, got {restarts}")
        options: dict[str, Any] = {"restarts": restarts, "seed": seed, "max_evaluations": max_evaluations, "progress": progress}
        objective = gradient = None
        if rule is not None:
            objective = options["objective"] = SiteObjective(self, inputs, data, chosen.engine, rule)
            gradient = objective.begin(free_vector(self))
        with self.compiled_ahead(inputs, data, chosen.engine.specialised(self, inputs, data), rule, after=gradient):
            learned, learning = _learner(method)(self, inputs, data, chosen.engine, **options)
            found = None if objective is None else objective.sites(free_vector(learned))
        if approximate is not None:  # the error belongs to the values that were learned
            chosen = plan(learned, inputs, structure, approximate)
        return dataclasses.replace(learned._conditioned(inputs, data, chosen, rule, found=found), learning=learning)

    @double_precision
    def sample(self, X: Any, n: int = 1, seed: Seed = None, observed: bool = False) -> np.ndarray:
        """n joint draws from the prior at these places, (n, N); with `observed` of observations, noise included.

        Where the plan chooses the state space, the draws go along the line, in time and memory that grow with N.
        """
        if n < 1:
            raise ValueError(f"n must be at least 1 sample, got {n}")
        inputs = as_inputs(X)
        self._check_kernel(inputs)
        if self.likelihood.latents > 1:
            return self._sample_latents(inputs, n, generator(seed), observed)
        mean, Phi = (np.asarray(part) for part in _mean_and_basis(self, inputs.points))
        of_mean = jax.eval_shape(self.mean.features, jax.ShapeDtypeStruct((inputs.dimension,), np.float64)).shape[0]
        if Phi.shape[1] > (0 if self.mean.diffuse else of_mean):
            raise ValueError(
                "this prior leaves some functions free, so it cannot be sampled: give the basis weights a covariance"
            )
        rng = generator(seed)
        f = mean + self._draws_of_kernel(inputs, n, rng)
        if of_mean:
            root = np.linalg.cholesky(np.asarray(self.mean.precision(of_mean)))
            f += np.linalg.solve(root.T, rng.standard_normal((of_mean, n))).T @ Phi.T
        return self.likelihood.sample(rng, f) if observed else f

    def _sample_latents(self, inputs: Inputs, n: int, rng: np.random.Generator, observed: bool) -> np.ndarray:
        """n draws of all latents, (n, N, C), or of labels, (n, N)."""
        kernels = kernels_of(self.kernel, self.likelihood.latents)
        draws = [GP(kernel)._draws_of_kernel(inputs, n, rng) for kernel in kernels]
        f = np.asarray(_offsets(self, inputs.points)) + np.stack(draws, axis=-1)
        return self.likelihood.sample(rng, f) if observed else f

    def _draws_of_kernel(self, inputs: Inputs, n: int, rng: np.random.Generator) -> np.ndarray:
        """n draws of the zero-mean process, (n, N)."""
        engine = plan(self, inputs).engine
        form = form_by_shape(engine, self.kernel, inputs)
        if isinstance(form_by_shape(Eigen(), self.kernel, inputs), Kronecker):
            with lapack_threads(1):
                return np.asarray(_over_the_grid(self.kernel, inputs, jax.random.key(int(rng.integers(2**62))), n)).T
        if not isinstance(engine, Kalman) or not isinstance(form, StateSpace):
            K = np.asarray(_prior(self.kernel, inputs.points))
            return rng.standard_normal((n, len(K))) @ square_root(K).T
        batch = int(np.clip(DRAW_BYTES / (32 * len(inputs) * form.chain.size), 1, n))
        keys = [jax.random.key(int(rng.integers(2**62))) for _ in range(-(-n // batch))]
        return np.concatenate([np.asarray(_along_the_line(self.kernel, inputs, key, batch, engine)).T for key in keys])[:n]

    @double_precision
    def mcmc(
        self,
        X: Any,
        y: Any,
        *,
        n: int = 1000,
        warmup: int = 500,
        thin: int = 1,
        seed: Seed = None,
        method: str = "elliptical",
        missing: str = "error",
        structure: str = "auto",
        extra: Any = None,
        weights: Any = None,
    ) -> LatentDraws:
        """n draws of f at X given data, with the parameters as they are, by Markov chain Monte Carlo: right for any likelihood.

        ``method="elliptical"`` is slice sampling on ellipses through prior draws; ``"hmc"`` is BlackJAX's no-U-turn sampler, by
        the whole covariance matrix. `warmup` draws are left out at the beginning, and every `thin`-th is kept.
        """
        from ..inference.mcmc import sample_latents

        inputs = as_inputs(X)
        engine = self.plan(inputs, structure).engine
        data = self._read(y, None, missing, inputs, extra, weights)
        engine = engine.specialised(self, inputs)
        with lapack_threads(len(inputs)):
            options: dict[str, Any] = {"n": n, "warmup": warmup, "thin": thin, "seed": seed, "method": method}
            return sample_latents(self, inputs, data, engine, **options)

    @double_precision
    def condition_series(self, X: Any, y: Any, *, noise: Any = None, missing: str = "error") -> FittedSeries:
        """The process given each of many series, with the parameters as they are.

        X and y are lists with one entry for each series, of any lengths; or X are the times (N,) of a panel y (N, S), one
        column for each series, whose gaps ``missing="infer"`` leaves open. Needs a kernel with a state space.
        """
        from .series import condition_series

        self._needs_gaussian("many series at once")
        return condition_series(self, X, y, noise, missing)

    @double_precision
    def fit_series(
        self,
        X: Any,
        y: Any,
        *,
        shared: bool = True,
        noise: Any = None,
        missing: str = "error",
        restarts: int = 0,
        seed: Seed = 0,
        max_evaluations: int = 500,
        progress: bool | None = None,
    ) -> FittedSeries:
        """Learn from many series at once, given as for `condition_series`, then condition on them.

        The series share their parameters, which then maximise the evidence of all of them together; or, with ``shared=False``,
        each has its own. Either way one evaluation is one batched computation.
        """
        from .series import fit_series

        self._needs_gaussian("many series at once")
        return fit_series(self, X, y, noise, missing, shared, restarts, seed, max_evaluations, progress)

    @double_precision
    def stream(self, approximate: str | None = None) -> Stream:
        """A model along time that takes observations as they come and keeps none: constant work and memory for each.

        `approximate` is that of `plan`, for kernels without a finite state.
        """
        from .stream import from_nothing

        self._needs_gaussian("a stream")
        return from_nothing(self, approximate)

    def log_evidence(self, X: Any, y: Any, **options: Any) -> float:
        """log p(y) with the parameters as they are."""
        return self.condition(X, y, **options).log_evidence

    def __repr__(self) -> str:
        mean = "" if type(self.mean).__name__ == "ZeroMean" else f", mean={self.mean!r}"
        return f"GP({self.kernel!r}, likelihood={self.likelihood!r}{mean})"

    def _conditioned(
        self,
        inputs: Inputs,
        data: Data,
        chosen: Plan,
        rule: Inference | None = None,
        start: tuple[Any, Any] | None = None,
        found: Found | None = None,
    ) -> Fitted:
        """The process given data, by a rule for the sites when they are not Gaussian: searched from a start, or found."""
        with lapack_threads(chosen.engine.matrix_rows(inputs)):
            chosen, engine = chosen.given(self, inputs, data), chosen.engine.specialised(self, inputs, data)
            if rule is not None:
                found = self._find_sites(inputs, data, engine, rule, start) if found is None else found
                return self._by_sites(inputs, data, chosen, engine, rule, found)
            conditional, weights, evidence = jax.block_until_ready(_condition(self, inputs, data, engine))
        return self._fitted(inputs, data, chosen, conditional, weights, evidence)

    def compiled_ahead(
        self, inputs: Inputs, data: Data, engine: Engine, rule: Inference | None = None, after: Early | None = None
    ) -> Early:
        """The program that will condition on data by this engine, compiled while learning runs, after what is needed first."""
        if rule is None:
            return compiling(_condition, self, inputs, data, engine, after=after)
        w, h = unknown(len(inputs), self.likelihood.latents)
        if self.likelihood.latents > 1:
            return compiling(condition_latents, self, inputs, w, h, engine, after=after)
        return compiling(_condition_on_sites, self, inputs, w, h, engine, rule.signed(self.likelihood), after=after)

    def _find_sites(self, inputs: Inputs, data: Data, engine: Engine, rule: Inference, start: tuple[Any, Any] | None) -> Found:
        cold = unknown(len(inputs), self.likelihood.latents)
        found = find_sites(self, inputs, data, engine, rule, start or cold)
        if start is not None and found.status != CONVERGED:
            found = find_sites(self, inputs, data, engine, rule, cold)
        return found

    def _by_sites(self, inputs: Inputs, data: Data, chosen: Plan, engine: Engine, rule: Inference, found: Found) -> Fitted:
        inferred = Inferred.of(rule.name, found)
        if not inferred.converged:
            warnings.warn(
                f"{inferred}: the evidence of this model means nothing; try inference='variational'",
                RuntimeWarning,
                stacklevel=4,
            )
        if self.likelihood.latents > 1:
            return self._with_latents(inputs, data, chosen, engine, inferred, found.log_evidence)
        parts = _condition_on_sites(self, inputs, found.w, found.h, engine, rule.signed(self.likelihood))
        conditional, weights = jax.block_until_ready(parts)
        fitted = self._fitted(inputs, data, chosen, conditional, weights, found.log_evidence)
        return dataclasses.replace(fitted, inference=inferred)

    def _with_latents(self, inputs: Inputs, data: Data, chosen: Plan, engine: Engine, inferred: Inferred, evidence: Any) -> Any:
        """The several latents of a likelihood given the sites that were found."""
        if not np.isfinite(evidence):
            raise ValueError(f"the evidence of {self!r} is not finite: check the inputs and the values of the parameters")
        conditional = conditional_of(self, inputs, inferred, engine)
        return FittedLatents(self, inputs, data, chosen, float(evidence), inferred, conditional=conditional)

    def _fitted(self, inputs: Inputs, data: Data, chosen: Plan, conditional: Any, weights: Weights, evidence: Any) -> Fitted:
        if not np.isfinite(evidence):
            raise ValueError(why_not_positive(self, inputs, data))
        return Fitted(self, inputs, data, chosen, conditional, weights, float(evidence))

    def _extended(self, fitted: Fitted, new: Inputs, data: Data) -> Fitted:
        """The process given the data of `fitted` and more: the factor grows where there is one."""
        both = Data(
            np.concatenate([fitted.data.y, data.y]),
            np.concatenate([fitted.data.noise, data.noise]),
            np.concatenate([fitted.data.seen, data.seen]),
            fitted.data.flat,
            joined(fitted.data.extra, data.extra, len(fitted.inputs), len(new)),
            joined(fitted.data.weight, data.weight, len(fitted.inputs), len(new)),
        )
        inputs = as_inputs(np.concatenate([np.asarray(fitted.inputs.points), np.asarray(new.points)]))
        if fitted.inference is not None or not isinstance(fitted.conditional, CholeskyConditional):
            applies = not isinstance(form_by_shape(fitted.plan.engine, self.kernel, inputs), No)
            chosen = fitted.plan if applies else plan(self, inputs)
            rule, start = None, None
            if fitted.inference is not None:
                rule = choose(self.likelihood, fitted.inference.method)
                more = unknown(len(new), self.likelihood.latents)[0]
                start = (np.concatenate([fitted.inference.w, more]), np.concatenate([fitted.inference.h, more]))
            return dataclasses.replace(self._conditioned(inputs, both, chosen, rule, start), learning=fitted.learning)
        conditional, weights, evidence = _extend(self, fitted.conditional, np.asarray(new.points), data, both.seen)
        extended = self._fitted(inputs, both, plan(self, inputs, "dense"), conditional, weights, evidence)
        return dataclasses.replace(extended, learning=fitted.learning)

    def _rule(self, asked: str | None, data: Data) -> Inference | None:
        """The rule to find sites by; None for Gaussian observations, unless one is asked for or they are weighted."""
        rule = choose(self.likelihood, asked, data.weight is not None)
        if rule is not None and (np.any(data.noise) or data.y.shape[1] > 1):
            raise ValueError(
                "weights and inference= are for one target without known noise variances: leave out one of the two, "
                "or fit one target at a time"
            )
        return rule

    def _needs_gaussian(self, what: str) -> None:
        if not isinstance(self.likelihood, Gaussian):
            name = type(self.likelihood).__name__
            raise ValueError(f"{what} needs Gaussian observations, not {name}: condition or fit on all of the data together")

    def _check_kernel(self, inputs: Inputs) -> None:
        """Let the kernel and the mean say what they think of these inputs, before anything is computed."""
        point = jax.ShapeDtypeStruct((inputs.dimension,), np.float64)
        check_several(self, inputs.dimension)
        kernels = kernels_of(self.kernel, 1)
        jax.eval_shape(lambda x: ([(k.between(x, x), k.null_space(x)) for k in kernels], self.mean(x)), point)
        for kernel in kernels:
            kernel.check_points(np.asarray(inputs.points))

    def _read(self, y: Any, noise: Any, missing: str, inputs: Inputs, extra: Any = None, weights: Any = None) -> Data:
        return read_observations(self.likelihood, y, noise, missing, inputs, extra, weights)


def _learner(method: str) -> Any:
    if method == "em":
        from ..learn.em import maximise_by_em

        return maximise_by_em
    return maximise


@functools.partial(jax.jit, static_argnames="engine")
def _condition(gp: GP, inputs: Inputs, data: Data, engine: Engine) -> tuple[Conditional, Weights, Any]:
    X = jnp.asarray(inputs.points)
    sites = sites_of(gp, X, data, typical_variance(gp.kernel, X))
    conditional = engine.condition(engine.form(gp.kernel, inputs), sites)
    log_det, gram = conditional.log_det_and_gram()
    evidence, weights = integrate(gp, log_det, gram, jnp.sum(data.seen), data.y.shape[1], X.shape[1])
    return conditional, weights, evidence


@functools.partial(jax.jit, static_argnames=("engine", "signed"))
def _condition_on_sites(gp: GP, inputs: Inputs, w: Any, h: Any, engine: Engine, signed: bool) -> tuple[Conditional, Weights]:
    X = jnp.asarray(inputs.points)
    factors = Factors.on(gp, X, w, h, signed)
    conditional = engine.condition(engine.form(gp.kernel, inputs), factors.sites())
    return conditional, factors.integrate(gp, *conditional.log_det_and_gram(), X.shape[1])[1]


@jax.jit
def _extend(gp: GP, old: CholeskyConditional, X: Any, data: Data, seen: Any) -> tuple[Conditional, Weights, Any]:
    conditional = old.updated(X, sites_of(gp, X, data, typical_variance(gp.kernel, X)))
    log_det, gram = conditional.log_det_and_gram()
    evidence, weights = integrate(gp, log_det, gram, jnp.sum(seen), data.y.shape[1], X.shape[1])
    return conditional, weights, evidence


_mean_and_basis = jax.jit(columns)
_offsets = jax.jit(offsets)


@jax.jit
def _prior(kernel: Kernel, X: Any) -> Any:
    return covariance(kernel, X, X)


@functools.partial(jax.jit, static_argnames="n")
def _over_the_grid(kernel: Kernel, inputs: Grid, key: Any, n: int) -> Any:
    form = kronecker(kernel, inputs)
    assert not isinstance(form, No)
    return prior_draws(form, key, n)


@functools.partial(jax.jit, static_argnames=("n", "engine"))
def _along_the_line(kernel: Kernel, inputs: Inputs, key: Any, n: int, engine: Kalman) -> Any:
    form = engine.form(kernel, inputs)
    assert not isinstance(form, No)
    return engine.prior_draws(form, key, n)
