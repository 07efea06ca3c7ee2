"""The door: a prior and a likelihood as one value, to plan, condition, fit and sample."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import equinox as eqx
import numpy as np

from .._types import Seed, double_precision, generator, whole
from ..engines.approximation import Approximation, FiniteState, as_approximation
from ..engines.plan import Plan, asked_for
from ..inference.choose import choose
from ..inference.mcmc import LatentDraws, sample_latents
from ..inputs.layouts import as_inputs
from ..inputs.observations import read_observations
from ..inputs.outputs import read_rows
from ..inputs.parts import sources_of
from ..kernels.algebra import Kernel
from ..kernels.independent import IndependentKernels
from ..learn.clock import Deadline
from ..likelihoods.base import Likelihood
from ..likelihoods.gaussian import Gaussian
from ..linalg.dense.cholesky import lapack_threads
from ..means import Mean, as_mean
from ..parameters.tree import Parametrised
from .batches import STEPS, fit_batches
from .conditioning import check_inputs, condition, rule_for
from .fitted import Fitted
from .fitted_parts import FittedParts, PartsPlan
from .inducing_stream import InducingStream, stream_through_inputs
from .learned import Asked, check_method, decided, learned, observations
from .mixture import FittedMixture
from .parts import condition_parts, fit_parts, plan_parts, read_parts
from .planned import planned
from .prior import sample_prior
from .series import FittedSeries, condition_series, fit_series
from .series_by import FittedSeriesBy, condition_series_by, fit_series_by
from .stream import Stream, from_nothing

if TYPE_CHECKING:  # what data in memory lead to; of data in parts the docstrings say it
    Costs = Plan
    Given = Fitted
    Learned = Fitted | FittedMixture
else:
    Costs = Plan | PartsPlan
    Given = Fitted | FittedParts | InducingStream
    Learned = Given | FittedMixture


def _as_kernel(kernel: Any) -> Any:
    if isinstance(kernel, type) and issubclass(kernel, Kernel):
        raise TypeError(f"GP needs a kernel, got the class {kernel.__name__}: call it, {kernel.__name__}()")
    if not isinstance(kernel, (Kernel, IndependentKernels)):
        raise TypeError(f"GP needs a kernel such as Matern52(), got {kernel!r}")
    return kernel


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
    def plan(
        self,
        X: Any,
        structure: str = "auto",
        approximate: str | Approximation | None = None,
        *,
        y: Any = None,
        noise: Any = None,
        extra: Any = None,
        weights: Any = None,
        parameters: Any = "auto",
        over: Any = None,
    ) -> Costs:
        """What would run at these inputs, what it costs, and why not the others.

        Gaps and unequal noise may ask for another algorithm: with y, and what else `condition` takes, the plan knows of them.
        `parameters` are those of `fit`: an average conditions all of its members, and looks at the density around the mode.

        ``approximate="state-space"`` lets a process with a finite state stand in for SquaredExponential and RationalQuadratic,
        ``"matern"`` a Matérn kernel of high order; the plan says how far the covariance is then off. Other approximations are
        values: `Approximation`.
        """
        sources = sources_of(X, y, noise)
        if sources is not None:
            return plan_parts(self, read_parts(sources, self, "infer", over, {"structure": structure}), approximate)  # type: ignore[return-value]
        if y is None:
            inputs, data = as_inputs(X, clocks=()), None
        else:
            inputs, data = read_rows(self, X, y, noise, "infer", extra, weights)
        check_inputs(self, inputs)
        rule = choose(self.likelihood, None) if data is None else rule_for(self, None, data)
        gp, inputs, data, chosen, _ = planned(self, inputs, structure, approximate, data, rule)
        averaging, averaged = decided(gp, chosen, len(inputs) if data is None else observations(data), parameters)
        return chosen if averaging is None else averaged

    @double_precision
    def condition(
        self,
        X: Any,
        y: Any = None,
        *,
        noise: Any = None,
        missing: str = "error",
        structure: str = "auto",
        approximate: str | Approximation | None = None,
        inference: str | None = None,
        extra: Any = None,
        weights: Any = None,
        over: Any = None,
    ) -> Given:
        """The process given data, with the parameters as they are.

        `noise` are known noise variances, a number or one for each observation, on top of the likelihood's own.
        ``missing="infer"`` takes NaN in y for values that were not observed. `approximate` is explained at `plan`.

        A kernel of P outputs (`LMC`, `MaternFilters`, …) takes rows (place…, number of the output) with one value each, a table
        y (N, P) at places without that column, or dictionaries: ``gp.fit(Outputs({"a": xa, "b": xb}), {"a": ya, "b": yb})``.

        Observations that are not Gaussian become Gaussian sites by `inference`: "ep", "power-ep", "variational" or "laplace",
        by default the one that suits the likelihood. `extra` is what the likelihood wants to know of each observation besides:
        the exposure of a count, the trials of a binomial, whether a duration is censored. `weights` say how often each
        observation counts.

        X and y may be Dask collections, Parquet files or `ParquetBatches`, as in `fit`; `over` says who works on their parts.
        """
        sources = sources_of(X, y, noise)
        if sources is not None:
            others = {"structure": structure, "inference": inference, "extra": extra, "weights": weights}
            return condition_parts(self, read_parts(sources, self, missing, over, others), approximate)
        inputs, data = read_rows(self, X, y, noise, missing, extra, weights)
        check_inputs(self, inputs)
        rule = rule_for(self, inference, data)
        gp, inputs, data, chosen, _ = planned(self, inputs, structure, approximate, data, rule, learns=False)
        chosen.check_memory(inputs)
        chosen.announce("conditioning")
        return Fitted.of(gp, inputs, data, condition(gp, inputs, data, chosen, rule))

    @double_precision
    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        noise: Any = None,
        missing: str = "error",
        structure: str = "auto",
        approximate: str | Approximation | None = None,
        restarts: int | None = None,
        seed: Seed = 0,
        max_evaluations: int = 500,
        progress: bool | None = None,
        seconds: float | Deadline | None = None,
        method: str = "evidence",
        inference: str | None = None,
        extra: Any = None,
        weights: Any = None,
        parameters: Any = "auto",
        rotations: int | str = 0,
        starts: Sequence[Any] = (),
        over: Any = None,
    ) -> Learned:
        """Learn the parameters, then condition on the data.

        `parameters` are "best", those that maximise the evidence (with priors: the posterior density), or averaged over, which
        keeps intervals honest where few rows leave them unsure: "laplace", "ccd", "grid", "importance", "hmc", "nuts",
        "metropolis", "slice" or "ais", or an `Averaging`. "auto" averages ("laplace") up to 100 rows for each parameter, and
        2000 in all, unless that takes minutes. What is not said of the parameters is then believed weakly, in the units of the
        data; the result is a `FittedMixture`, whose summary says all of it.

        ``method="evidence"`` climbs by its gradient; ``method="em"`` takes steps that never lower it, for kernels with a state
        space.

        `restarts` adds climbs from other starts (by default three for small data, else none; with EM none) and `seed` makes
        them repeatable. `progress` shows a line while learning, by default on a terminal only. Ctrl-C keeps the best so far,
        and so does learning that reaches `seconds`, which is looked at after every evaluation. Where learning is expected to
        take more than ten minutes, a UserWarning says so, and what would be quicker.

        `rotations` adds climbs that begin with random directions, for kernels that have some (`Rotated`, `Project`);
        ``"perturb"`` one that begins where small turns no longer raise the evidence. `starts` are models of this form, with
        other values to begin at as well.

        `inference`, `extra` and `weights` are for observations that are not Gaussian, as in `condition`.

        A series that is too long for one place comes in parts: X and y are Dask collections, or X the path of Parquet files and
        y the name of a column, or X is a `ParquetBatches`. The parts are worked on where they are read, by the current Dask
        client or what `over` names: a client, the address of a scheduler, an executor as in `concurrent.futures`, or devices
        such as `jax.devices()`; else here, one after the other. The numbers are those of the whole, to rounding; the result is
        a `FittedParts`. Rows of several columns take ``approximate=Inducing(500)``, and the result is an `InducingStream` that
        has seen all of them. Of data in memory `over` has the climbs of `restarts` and `starts` done elsewhere, each by itself,
        and chains ("nuts", "ais", …) in four groups, whose draws do not depend on who moves them.
        """
        check_method(method)
        deadline = Deadline.after(seconds)
        sources = sources_of(X, y, noise)
        if sources is not None:
            others = {"structure": structure, "inference": inference, "extra": extra, "weights": weights, "method": method}
            others |= {"parameters": parameters, "rotations": rotations, "starts": starts}
            known = read_parts(sources, self, missing, over, others)
            climbing: dict[str, Any] = {"restarts": restarts, "seed": seed, "progress": progress, "deadline": deadline}
            return fit_parts(self, known, approximate=approximate, max_evaluations=max_evaluations, **climbing)
        inputs, data = read_rows(self, X, y, noise, missing, extra, weights)
        check_inputs(self, inputs)
        task = planned(self, inputs, structure, approximate, data, rule_for(self, inference, data))
        task.plan.check_memory(task.inputs)
        asked = Asked(restarts, seed, max_evaluations, progress, deadline, method, parameters, rotations, starts, over)
        return learned(task, asked, asked_for(approximate, structure)[1])

    @double_precision
    def sample(self, X: Any, n: int = 1, seed: Seed = None, observed: bool = False) -> np.ndarray:
        """n joint draws from the prior at these places, (n, N); with `observed` of observations, noise included.

        Where the plan chooses the state space, the draws go along the line, in time and memory that grow with N.
        """
        n = whole(n, "n", 1)
        inputs, rng = as_inputs(X, clocks=()), generator(seed)
        check_inputs(self, inputs)
        f = sample_prior(self, inputs, n, rng)
        return self.likelihood.sample(rng, f, self.likelihood.told_by(np.asarray(inputs.points), None)) if observed else f

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
        the whole covariance matrix; ``"gibbs"``, for `Twinned` and other switches between Gaussian noises, goes over the
        observations one by one with the signal integrated out, so that groups of outliers change sides, and for
        `HeteroscedasticGaussian` moves the log noise alone. `warmup` draws are left out at first, and every `thin`-th is kept.
        """
        inputs = as_inputs(X, clocks=())
        engine = self.plan(inputs, structure).engine
        data = read_observations(self.likelihood, y, None, missing, inputs, extra, weights)
        with lapack_threads(len(inputs)):
            options: dict[str, Any] = {"n": n, "warmup": warmup, "thin": thin, "seed": seed, "method": method}
            return sample_latents(self, inputs, data, engine, **options)

    @double_precision
    def condition_series(
        self, X: Any, y: Any = None, *, by: Any = None, noise: Any = None, missing: str = "error", over: Any = None
    ) -> FittedSeries | FittedSeriesBy:
        """The process given each of many series, with the parameters as they are.

        X and y are lists with one entry for each series, of any lengths; or X are the times (N,) of a panel y (N, S), one
        column for each series, whose gaps ``missing="infer"`` leaves open. Needs a kernel with a state space.

        Or X and y are columns of one table with a row for each observation, and `by` names the series of each: the result is
        then by name. Such tables may be Dask's or Parquet files, with whole series inside partitions; `over` is that of `fit`.
        """
        self._needs_gaussian("many series at once")
        if by is not None:
            return condition_series_by(self, X, y, by, noise, missing, over)
        return condition_series(self, X, y, noise, missing)

    @double_precision
    def fit_series(
        self,
        X: Any,
        y: Any = None,
        *,
        by: Any = None,
        shared: bool = True,
        noise: Any = None,
        missing: str = "error",
        restarts: int = 0,
        seed: Seed = 0,
        max_evaluations: int = 500,
        progress: bool | None = None,
        seconds: float | Deadline | None = None,
        over: Any = None,
    ) -> FittedSeries | FittedSeriesBy:
        """Learn from many series at once, given as for `condition_series`, then condition on them.

        The series share their parameters, which then maximise the evidence of all of them together; or, with ``shared=False``,
        each has its own. Either way one evaluation is one batched computation. Learning that reaches `seconds` keeps the best
        so far. `by` and `over` are explained there.
        """
        self._needs_gaussian("many series at once")
        if by is not None:
            options = {"restarts": restarts, "seed": seed, "max_evaluations": max_evaluations, "progress": progress}
            return fit_series_by(self, X, y, by, noise, missing, over, shared, seconds, **options)
        return fit_series(self, X, y, noise, missing, shared, restarts, seed, max_evaluations, progress, seconds)

    @double_precision
    def stream(self, approximate: str | Approximation | None = None) -> Stream | InducingStream:
        """A model that takes observations as they come and keeps none: constant work and memory for each.

        It goes along time, unless `approximate` is ``Inducing(200)``: then rows of any columns come in any order. By a name it
        is that of `plan`, for kernels without a finite state.
        """
        self._needs_gaussian("a stream")
        approximation = as_approximation(approximate)
        if approximation is None or isinstance(approximation, FiniteState):
            return from_nothing(self, None if approximation is None else approximation.name)
        return stream_through_inputs(self, approximation)

    @double_precision
    def fit_batches(
        self,
        batches: Any,
        *,
        approximate: str | Approximation = "inducing",
        steps: int = STEPS,
        seconds: float | Deadline | None = None,
        seed: Seed = 0,
    ) -> InducingStream:
        """Learn from rows that do not fit in memory, and condition on all of them: a stream that can go on.

        `batches` are pairs (X, y) that can be gone through several times: a list, `ParquetBatches`, or a function that begins
        anew. Parameters and inducing inputs are learned from rows drawn at random, then by at most `steps` batches of 1024 rows
        as long as rows held out are foretold better; rows are mixed within each block only, so that a sorted file should be
        shuffled. At last all rows are taken up, block after block.
        """
        self._needs_gaussian("fit_batches")
        approximation = as_approximation(approximate)
        assert approximation is not None
        return fit_batches(self, batches, approximation, steps, seconds, seed)

    def log_evidence(self, X: Any, y: Any, **options: Any) -> float:
        """log p(y) with the parameters as they are."""
        return self.condition(X, y, **options).log_evidence

    def __repr__(self) -> str:
        mean = "" if type(self.mean).__name__ == "ZeroMean" else f", mean={self.mean!r}"
        return f"GP({self.kernel!r}, likelihood={self.likelihood!r}{mean})"

    def _needs_gaussian(self, what: str) -> None:
        if not self.likelihood.is_gaussian:
            name = type(self.likelihood).__name__
            raise ValueError(f"{what} needs Gaussian observations, not {name}: condition or fit on all of the data together")
