"""The door: a prior and a likelihood as one value, to plan, condition, fit and sample."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ._types import Seed, double_precision, generator
from .engines.base import Engine
from .engines.basis import Weights, columns, integrate, sites_of
from .engines.cholesky import CholeskyConditional
from .engines.diagnose import why_not_positive
from .engines.kalman import Kalman
from .engines.plan import Plan, form_by_shape, plan
from .fitted import Fitted, square_root
from .inputs import Inputs, as_inputs, describe_bad, few, read_numbers
from .kernels.algebra import Kernel
from .learn.em import maximise_by_em
from .learn.maximise import maximise
from .likelihoods.base import Likelihood
from .likelihoods.gaussian import Gaussian
from .linalg.cholesky import lapack_threads
from .means import Mean, as_mean
from .parameters import Parametrised
from .posterior import Conditional, Data
from .series import FittedSeries, condition_series, fit_series
from .stream import Stream, from_nothing
from .structure.base import No
from .structure.dense import covariance, typical_variance
from .structure.state_space import StateSpace

DRAW_BYTES = 256e6  # what drawing from a prior along a line may hold at a time
FEW_ROWS = 500  # up to this many observations, learning starts from several places by itself
LEARNERS: dict[str, Any] = {"evidence": maximise, "em": maximise_by_em}


def _as_kernel(kernel: Any) -> Kernel:
    if isinstance(kernel, type) and issubclass(kernel, Kernel):
        raise TypeError(f"GP needs a kernel, got the class {kernel.__name__}: call it, {kernel.__name__}()")
    if not isinstance(kernel, Kernel):
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

    A value that holds no data. `mean` is None, a number, a function of a point, or a `Mean`.
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
    ) -> Fitted:
        """The process given data, with the parameters as they are.

        `noise` are known noise variances, a number or one for each observation, on top of the likelihood's own.
        ``missing="infer"`` takes NaN in y for values that were not observed. `approximate` is explained at `plan`.
        """
        inputs = as_inputs(X)
        chosen = self.plan(inputs, structure, approximate)
        return self._conditioned(inputs, self._read(y, noise, missing, inputs), chosen)

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
    ) -> Fitted:
        """Learn the parameters by maximising the evidence (with priors: the posterior density), then condition on the data.

        ``method="evidence"`` climbs by its gradient; ``method="em"`` takes steps that never lower it, for kernels with a state
        space.

        `restarts` adds climbs from other starts (by default three for small data, else none; with EM none) and `seed` makes
        them repeatable. `progress` shows a line while learning, by default on a terminal only. Ctrl-C keeps the best so far.
        """
        if method not in LEARNERS:
            raise ValueError(f"method must be one of {sorted(LEARNERS)}, got {method!r}")
        inputs = as_inputs(X)
        chosen = self.plan(inputs, structure, approximate)
        data = self._read(y, noise, missing, inputs)
        if restarts is None:
            restarts = 3 if len(inputs) <= FEW_ROWS and method == "evidence" else 0
        if restarts < 0 or restarts != int(restarts):
            raise ValueError(f"restarts must be a whole number, 0 or more, got {restarts}")
        options: dict[str, Any] = {"restarts": restarts, "seed": seed, "max_evaluations": max_evaluations, "progress": progress}
        learned, learning = LEARNERS[method](self, inputs, data, chosen.engine, **options)
        if approximate is not None:  # the error belongs to the values that were learned
            chosen = plan(learned, inputs, structure, approximate)
        return dataclasses.replace(learned._conditioned(inputs, data, chosen), learning=learning)

    @double_precision
    def sample(self, X: Any, n: int = 1, seed: Seed = None, observed: bool = False) -> np.ndarray:
        """n joint draws from the prior at these places, (n, N); with `observed` of observations, noise included.

        Where the plan chooses the state space, the draws go along the line, in time and memory that grow with N.
        """
        if n < 1:
            raise ValueError(f"n must be at least 1 sample, got {n}")
        inputs = as_inputs(X)
        self._check_kernel(inputs)
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

    def _draws_of_kernel(self, inputs: Inputs, n: int, rng: np.random.Generator) -> np.ndarray:
        """n draws of the zero-mean process, (n, N)."""
        engine = plan(self, inputs).engine
        form = form_by_shape(engine, self.kernel, inputs)
        if not isinstance(engine, Kalman) or not isinstance(form, StateSpace):
            K = np.asarray(_prior(self.kernel, inputs.points))
            return rng.standard_normal((n, len(K))) @ square_root(K).T
        batch = int(np.clip(DRAW_BYTES / (32 * len(inputs) * form.chain.size), 1, n))
        keys = [jax.random.key(int(rng.integers(2**62))) for _ in range(-(-n // batch))]
        return np.concatenate([np.asarray(_along_the_line(self.kernel, inputs, key, batch, engine)).T for key in keys])[:n]

    @double_precision
    def condition_series(self, X: Any, y: Any, *, noise: Any = None, missing: str = "error") -> FittedSeries:
        """The process given each of many series, with the parameters as they are.

        X and y are lists with one entry for each series, of any lengths; or X are the times (N,) of a panel y (N, S), one
        column for each series, whose gaps ``missing="infer"`` leaves open. Needs a kernel with a state space.
        """
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
        return fit_series(self, X, y, noise, missing, shared, restarts, seed, max_evaluations, progress)

    @double_precision
    def stream(self, approximate: str | None = None) -> Stream:
        """A model along time that takes observations as they come and keeps none: constant work and memory for each.

        `approximate` is that of `plan`, for kernels without a finite state.
        """
        return from_nothing(self, approximate)

    def log_evidence(self, X: Any, y: Any, **options: Any) -> float:
        """log p(y) with the parameters as they are."""
        return self.condition(X, y, **options).log_evidence

    def __repr__(self) -> str:
        mean = "" if type(self.mean).__name__ == "ZeroMean" else f", mean={self.mean!r}"
        return f"GP({self.kernel!r}, likelihood={self.likelihood!r}{mean})"

    def _conditioned(self, inputs: Inputs, data: Data, chosen: Plan) -> Fitted:
        with lapack_threads(len(inputs)):
            engine = chosen.engine.specialised(self, inputs, data)
            conditional, weights, evidence = jax.block_until_ready(_condition(self, inputs, data, engine))
        return self._fitted(inputs, data, chosen, conditional, weights, evidence)

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
        )
        inputs = as_inputs(np.concatenate([np.asarray(fitted.inputs.points), np.asarray(new.points)]))
        if not isinstance(fitted.conditional, CholeskyConditional):
            applies = not isinstance(form_by_shape(fitted.plan.engine, self.kernel, inputs), No)
            chosen = fitted.plan if applies else plan(self, inputs)
            return dataclasses.replace(self._conditioned(inputs, both, chosen), learning=fitted.learning)
        conditional, weights, evidence = _extend(self, fitted.conditional, np.asarray(new.points), data, both.seen)
        extended = self._fitted(inputs, both, plan(self, inputs, "dense"), conditional, weights, evidence)
        return dataclasses.replace(extended, learning=fitted.learning)

    def _check_kernel(self, inputs: Inputs) -> None:
        """Let the kernel and the mean say what they think of these inputs, before anything is computed."""
        point = jax.ShapeDtypeStruct((inputs.dimension,), np.float64)
        jax.eval_shape(lambda x: (self.kernel.between(x, x), self.kernel.null_space(x), self.mean(x)), point)
        self.kernel.check_points(np.asarray(inputs.points))

    def _read(self, y: Any, noise: Any, missing: str, inputs: Inputs) -> Data:
        """Observations as checked arrays; every problem gets one message that says what to do."""
        if missing not in ("error", "infer"):
            raise ValueError(f"missing must be 'error' or 'infer', got {missing!r}")
        values, _ = read_numbers(y, "y")
        if values.ndim > 2 or len(values) != len(inputs):
            raise ValueError(
                f"y must have one value (or one row of targets) for each of the {len(inputs)} rows of X, "
                f"got shape {values.shape}"
            )
        table = values.reshape(len(values), -1)
        if table.shape[1] == 0:
            raise ValueError("y has no columns: at least one target is needed")
        if np.isinf(table).any():
            raise ValueError(
                f"y has {describe_bad(np.where(np.isinf(table), table, 0))} "
                f"(rows {few(np.unique(np.nonzero(np.isinf(table))[0]))}): drop or replace these values"
            )
        gone = np.isnan(table)
        if gone.any() and missing == "error":
            raise ValueError(
                f"y has {int(gone.sum())} NaN (rows {few(np.unique(np.nonzero(gone)[0]))}): drop them, "
                "or pass missing='infer' to treat them as unobserved"
            )
        if (gone.any(axis=1) != gone.all(axis=1)).any():
            raise ValueError("the targets are missing in different rows: fit them one at a time")
        seen = ~gone[:, 0]
        return Data(np.where(seen[:, None], table, 0.0), _read_noise(noise, len(inputs)), seen, values.ndim == 1)


def _read_noise(noise: Any, count: int) -> np.ndarray:
    if noise is None:
        return np.zeros(count)
    known, _ = read_numbers(np.atleast_1d(noise), "noise")
    if known.shape not in ((1,), (count,)):
        raise ValueError(f"noise must be one variance, or one for each of the {count} observations, got shape {known.shape}")
    if not np.isfinite(known).all() or (known < 0).any():
        raise ValueError("noise must hold variances: finite and not negative")
    return np.broadcast_to(known, (count,)).copy()


@functools.partial(jax.jit, static_argnames="engine")
def _condition(gp: GP, inputs: Inputs, data: Data, engine: Engine) -> tuple[Conditional, Weights, Any]:
    X = jnp.asarray(inputs.points)
    sites = sites_of(gp, X, data, typical_variance(gp.kernel, X))
    conditional = engine.condition(engine.form(gp.kernel, inputs), sites)
    log_det, gram = conditional.log_det_and_gram()
    evidence, weights = integrate(gp, log_det, gram, jnp.sum(data.seen), data.y.shape[1], X.shape[1])
    return conditional, weights, evidence


@jax.jit
def _extend(gp: GP, old: CholeskyConditional, X: Any, data: Data, seen: Any) -> tuple[Conditional, Weights, Any]:
    conditional = old.updated(X, sites_of(gp, X, data, typical_variance(gp.kernel, X)))
    log_det, gram = conditional.log_det_and_gram()
    evidence, weights = integrate(gp, log_det, gram, jnp.sum(seen), data.y.shape[1], X.shape[1])
    return conditional, weights, evidence


_mean_and_basis = jax.jit(columns)


@jax.jit
def _prior(kernel: Kernel, X: Any) -> Any:
    return covariance(kernel, X, X)


@functools.partial(jax.jit, static_argnames=("n", "engine"))
def _along_the_line(kernel: Kernel, inputs: Inputs, key: Any, n: int, engine: Kalman) -> Any:
    form = engine.form(kernel, inputs)
    assert not isinstance(form, No)
    return engine.prior_draws(form, key, n)
