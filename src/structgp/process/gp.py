"""The door: a prior and a likelihood as one value, to plan, condition, fit and sample."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import equinox as eqx
import numpy as np

from .. import where
from .._types import Seed, double_precision, generator, whole
from ..engines import memory
from ..engines.approximation import Approximation, FiniteState, as_approximation
from ..engines.machine import at_hand, reference
from ..engines.plan import FEW_ROWS, Plan, asked_for, evaluations_for, plan, restarts_for
from ..inference.mcmc import LatentDraws, sample_latents
from ..inputs.layouts import Grid, Inputs, Points, Times, as_inputs, as_times_of_outputs, clocks_of, grid_of
from ..inputs.observations import Data, read_observations
from ..inputs.outputs import read_rows
from ..inputs.parts import sources_of
from ..kernels.algebra import Kernel
from ..kernels.independent import IndependentKernels
from ..kernels.outputs import outputs_of
from ..learn.account import INTERRUPTED, Learning, warn_if_pressed
from ..learn.average import average
from ..learn.believe import believe
from ..learn.blocks import block_start
from ..learn.clock import OUT_OF_TIME, Deadline
from ..learn.density import Density
from ..learn.em import maximise_by_em
from ..learn.evidence import objective_at
from ..learn.inducing import climb_with_inputs_held, maximise_through_inputs
from ..learn.initialise import suggested
from ..learn.maximise import maximise
from ..learn.objective import Objective
from ..learn.peak import Averaging, choose
from ..learn.rotate import check_rotations, perturbed, turned
from ..learn.sites import SiteEvidence
from ..likelihoods.base import Likelihood
from ..likelihoods.gaussian import Gaussian
from ..linalg.dense.cholesky import lapack_threads
from ..means import Mean, as_mean
from ..parameters.tree import Parametrised, free_vector, learned_leaves, leaves, named_values, with_values
from ..structure.kronecker import all_factors
from .batches import STEPS, fit_batches
from .conditioning import check_inputs, compiled_ahead, condition, rule_for
from .fitted import Fitted
from .fitted_parts import FittedParts, PartsPlan
from .inducing_stream import InducingStream, stream_through_inputs
from .members import are_kept
from .mixture import FittedMixture, averaged
from .parts import climbers, condition_parts, fit_parts, plan_parts, read_parts
from .prior import sample_prior
from .series import FittedSeries, condition_series, fit_series
from .series_by import FittedSeriesBy, condition_series_by, fit_series_by
from .stream import Stream, from_nothing

if TYPE_CHECKING:  # what data in memory lead to; of data in parts the docstrings say it
    Planned = Plan
    Given = Fitted
    Learned = Fitted | FittedMixture
else:
    Planned = Plan | PartsPlan
    Given = Fitted | FittedParts | InducingStream
    Learned = Given | FittedMixture
MOST_ROWS = 5000  # of a table up to which the whole matrix, which is exact, goes before what a grid gives to a tolerance
ALONG_TIME = ("markov", "toeplitz")  # structures of rows of a time and the number of an output
STOPPED = (OUT_OF_TIME, INTERRUPTED)  # where learning ended without a mode to average around
LEARNERS: dict[str, Any] = {"evidence": maximise, "em": maximise_by_em}
OWN: dict[str, Any] = {"inducing": maximise_through_inputs}  # of engines that have a way of their own to climb the evidence


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


def _observations(data: Data) -> int:
    return int(np.sum(data.seen)) * data.y.shape[1]


def _in_time(averaging: Averaging, chosen: Plan, free: int, learning: Any, deadline: Deadline) -> tuple[Averaging | None, Plan]:
    """The average that was decided on if there is time for it: about an evaluation for each difference and each member."""
    each = learning.seconds / max(learning.evaluations, 1)
    if deadline.allows(each * (2 * free + averaging.count)):
        return averaging, chosen
    return None, dataclasses.replace(chosen, parameters="best: there was no time to average over them", members=1)


def _decided(gp: Any, chosen: Plan, seen: int, parameters: Any, method: str = "evidence") -> tuple[Averaging | None, Plan]:
    """How parameters are averaged over, and the plan that knows of it."""
    inputs = _learned_inputs(gp)
    free = sum(leaf.free_size for leaf in learned_leaves(gp) if leaf.path not in inputs)
    averaging, why = choose(parameters, seen, free, method)
    if averaging is None:
        return None, dataclasses.replace(chosen, parameters=why)
    evaluations = chosen.evaluations + averaging.evaluations(free)
    return averaging, dataclasses.replace(chosen, parameters=why, members=averaging.count, evaluations=evaluations)


def _learned_inputs(gp: Any) -> list[str]:
    """The paths of inducing inputs that are learned: they say where f is looked at, and nobody believes anything of them."""
    return [leaf.path for leaf in learned_leaves(gp) if leaf.path.endswith(".inputs")]


def _of_this_form(gp: Any, given: Sequence[Any], approximation: Approximation | None, inputs: Inputs, data: Data) -> list[Any]:
    """Models to begin at as well, as the model with their values."""
    moved = {leaf.path for leaf in leaves(gp) if leaf.path.endswith(".inputs")} | {leaf.path for leaf in learned_leaves(gp)}
    found = []
    shapes = lambda model: {leaf.path: np.shape(leaf.value) for leaf in leaves(model)}
    for number, start in enumerate(given):
        model = start
        if isinstance(start, GP) and approximation is not None and not approximation.needless(inputs):
            model = approximation.applied(start, inputs, data)
        if not isinstance(model, GP) or shapes(model) != shapes(gp):
            raise ValueError(f"starts[{number}] is {start!r}, which has not the parameters of {gp!r}: give models of its form")
        found.append(with_values(gp, {path: value for path, value in named_values(model).items() if path in moved}))
    return found


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
    ) -> Planned:
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
        gp, inputs, data, chosen = self._planned(inputs, structure, approximate, data)
        averaging, decided = _decided(gp, chosen, len(inputs) if data is None else _observations(data), parameters)
        return chosen if averaging is None else decided

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
        gp, inputs, data, chosen = self._planned(inputs, structure, approximate, data, rule)
        memory.check_offers(chosen.offers, inputs)
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
        2000 in all. What is not said of the parameters is then believed weakly, in the units of the data; the result is a
        `FittedMixture`, whose summary says all of it.

        ``method="evidence"`` climbs by its gradient; ``method="em"`` takes steps that never lower it, for kernels with a state
        space.

        `restarts` adds climbs from other starts (by default three for small data, else none; with EM none) and `seed` makes
        them repeatable. `progress` shows a line while learning, by default on a terminal only. Ctrl-C keeps the best so far,
        and so does learning that reaches `seconds`, which is looked at after every evaluation.

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
        if not isinstance(method, str) or method not in LEARNERS:
            raise ValueError(f"method must be one of {sorted(LEARNERS)}, got {method!r}")
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
        rule = rule_for(self, inference, data)
        gp, inputs, data, chosen = self._planned(inputs, structure, approximate, data, rule)
        memory.check_offers(chosen.offers, inputs)
        if rule is not None and method == "em":
            raise ValueError(
                "method='em' needs Gaussian observations: leave it out, and the evidence is climbed by its gradient"
            )
        if restarts is None:
            restarts = restarts_for(gp, inputs, data) if method == "evidence" else 0
            if rule is not None and chosen.engine.learner == "inducing" and len(inputs) <= FEW_ROWS:
                restarts = 2
            if gp.likelihood.latents > 1 and gp.likelihood.default_inference == "ep":
                restarts = 0  # an evaluation is a search, and it fails where nothing fits
        options: dict[str, Any] = {
            "restarts": whole(restarts, "restarts"),
            "seed": generator(seed),
            "max_evaluations": whole(max_evaluations, "max_evaluations", 1),
            "progress": progress,
            "deadline": deadline,
        }
        rotations = check_rotations(rotations)
        starts = _of_this_form(gp, starts, asked_for(approximate, structure)[1], inputs, data)
        chosen = dataclasses.replace(chosen, evaluations=evaluations_for(gp, inputs, data, options["restarts"]))
        averaging, chosen = _decided(gp, chosen, _observations(data), parameters, method)
        chosen.announce("learning", chosen.evaluations, progress)
        learn = OWN.get(chosen.engine.learner, LEARNERS[method]) if method == "evidence" else LEARNERS[method]
        first = None
        if averaging is not None and learn is maximise_through_inputs and (rule is None or _learned_inputs(gp)):
            gp, first = self._with_inputs_held(gp, inputs, data, chosen, rule, {**options, "others": starts})
            learn, starts = climb_with_inputs_held, ()
        sites = gradient = None
        if rule is not None:
            sites = SiteEvidence(gp, inputs, data, chosen.engine, rule)
            gradient, options["objective"] = sites.begin(free_vector(gp)), Objective(gp, sites)
            if chosen.engine.structure == "dense":
                of_rows = lambda places, some: SiteEvidence(gp, places, some, chosen.engine, rule)
                options["objective_of"] = lambda places, some: Objective(gp, of_rows(places, some))
        beliefs = None if averaging is None else believe(gp, np.asarray(inputs.points), data)
        if beliefs is not None and sites is not None:
            options["objective"] = Density(options["objective"], beliefs)
        elif beliefs is not None:
            options["beliefs"] = beliefs
        if over is not None:
            options["over"] = climbers(gp, over, method)
        if starts:
            options["others"] = starts
        if rotations:
            start = suggested(gp, np.asarray(inputs.points), data)
            if isinstance(rotations, str):
                climbed = options.get("objective") or objective_at(start, gp, inputs, data, chosen.chosen)
                options["others"] = [*starts, perturbed(start, climbed, options["seed"])]
            else:
                options["others"] = [*starts, *turned(start, rotations, options["seed"])]
        members = averaging.count if averaging is not None and are_kept(chosen, averaging.count) else 0
        with lapack_threads(chosen.rows), compiled_ahead(gp, inputs, data, chosen.engine, rule, members, after=gradient):
            if sites is not None and method == "evidence" and chosen.engine.learner == "evidence":
                without = block_start(gp, inputs, data, options["objective"], sites, deadline)
                options["others"] = options.get("others", []) + without
            learned, learning = learn(gp, inputs, data, chosen.chosen, **options)
            found = None if sites is None else sites.sites(free_vector(learned))
        if first is not None:
            evaluations, seconds = learning.evaluations + first.evaluations, learning.seconds + first.seconds
            learning = dataclasses.replace(learning, evaluations=evaluations, seconds=seconds)
        warn_if_pressed(learning, stacklevel=4)
        chosen = chosen.tuned(learned, inputs, data)
        if averaging is not None and isinstance(parameters, str) and parameters == "auto":
            averaging, chosen = _in_time(averaging, chosen, len(free_vector(gp)), learning, deadline)
        given = condition(learned, inputs, data, chosen, rule, found=found, members=members)
        best = Fitted.of(learned, inputs, data, given, learning)
        if averaging is None or beliefs is None or learning.message in STOPPED:
            return best
        with lapack_threads(chosen.rows):
            density = options.get("objective") or Density(objective_at(learned, gp, inputs, data, chosen.chosen), beliefs)
            return averaged(best, average(density, free_vector(learned), averaging, options.get("over")))

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

    @staticmethod
    def _with_inputs_held(
        gp: GP, inputs: Inputs, data: Data, chosen: Plan, rule: Any, options: dict[str, Any]
    ) -> tuple[GP, Learning]:
        """The model with the best inducing inputs, which are held from then on, and how they were found."""
        if rule is not None:
            options = options | {"objective": Objective(gp, SiteEvidence(gp, inputs, data, chosen.engine, rule))}
        with lapack_threads(chosen.rows):
            learned, learning = maximise_through_inputs(gp, inputs, data, chosen.chosen, **options)
        own = _learned_inputs(gp)
        return learned.freeze(*own) if own else learned, learning

    def _planned(
        self, inputs: Inputs, structure: str, approximate: Any, data: Data | None, rule: Any = None
    ) -> tuple[GP, Inputs, Any, Plan]:
        """What is computed with and what runs, on the accelerator or on its host: from here on there."""
        found = self._planned_here(inputs, structure, approximate, data, rule)
        if not where.accelerated() or where.backend() == "cpu":
            return found
        with where.on_host():
            gp, places, seen, there = self._planned_here(inputs, structure, approximate, data, rule)
            seconds = there.seconds(at_hand())  # loops, which decide it, are not equally fast in all versions of JAX
        if seconds >= found[-1].seconds(reference()):
            return found
        where.move(where.on_host)
        return gp, places, seen, dataclasses.replace(there, on_host=True)

    def _planned_here(
        self, inputs: Inputs, structure: str, approximate: Any, data: Data | None, rule: Any = None
    ) -> tuple[GP, Inputs, Any, Plan]:
        """The model that is computed with, which an approximation may give parameters of its own, on what, and what runs.

        Rows that are the cells of a grid are one where that helps and costs no exactness.
        """
        name = None if rule is None else rule.name
        structure, approximation = asked_for(approximate, structure)
        if approximation is not None:
            approximation.check(self, structure)
            gp = self
            if not approximation.needless(inputs):
                inputs, data = approximation.rows(self, inputs, data)
                gp = approximation.applied(self, inputs, data)
            return gp, inputs, data, plan(gp, inputs, structure, approximation, data, name)
        grid, along = self._grid(inputs), self._along_time(inputs, data)
        if along is not None and (structure in ("auto", "markov") or (structure == "toeplitz" and grid is None)):
            in_time = plan(self, along, structure, None, data, name)
            others = grid or (inputs if isinstance(inputs, Grid) else None)
            if in_time.engine.structure in ALONG_TIME and (others is None or in_time.before(plan(self, others, data=data))):
                return self, along, data, in_time
        if grid is not None:
            on_grid = plan(self, grid, structure, None, data, name)
            wanted = structure != "auto" or on_grid.chosen.quality == "exact" or len(grid) > MOST_ROWS
            if wanted and on_grid.engine.structure != "dense":
                return self, grid, data, on_grid
        return self, inputs, data, plan(self, inputs, structure, None, data, name)

    def _grid(self, inputs: Inputs) -> Grid | None:
        """The grid that a table of many rows is, if the kernel factors over its columns."""
        if not isinstance(inputs, Points) or len(inputs) <= FEW_ROWS or self.likelihood.latents > 1:
            return None
        if len(all_factors(self.kernel, inputs.dimension)) == 1:
            return None
        return grid_of(np.asarray(inputs.X), inputs.clocks, from_rows=True)

    def _along_time(self, inputs: Inputs, data: Data | None) -> Times | None:
        """Rows of a time and the number of an output, if that is what the kernel sees in them; not a full grid of factors."""
        found = outputs_of(self.kernel)
        if found is None or inputs.dimension != 2 or found.among(2) != 1 or self.likelihood.latents > 1:
            return None
        if isinstance(inputs, Times):
            return inputs
        full = isinstance(inputs, Grid) and inputs.complete and (data is None or np.all(data.seen))
        if full and len(all_factors(self.kernel, 2)) > 1:
            return None
        clocks = clocks_of(inputs) if any(clocks_of(inputs)) else ()
        return as_times_of_outputs(np.asarray(inputs.points), clocks)

    def _needs_gaussian(self, what: str) -> None:
        if not self.likelihood.is_gaussian:
            name = type(self.likelihood).__name__
            raise ValueError(f"{what} needs Gaussian observations, not {name}: condition or fit on all of the data together")
