"""A Gaussian process given data: predictions, samples, and what the data had to say."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np

from .._types import Seed, double_precision, generator, whole
from ..engines import memory
from ..engines.base import noise_variance
from ..engines.basis import Weights, columns
from ..engines.cholesky import CholeskyConditional
from ..engines.grids import GridConditional
from ..engines.kalman import KalmanConditional
from ..engines.plan import Plan, plan
from ..inference.base import Inferred
from ..inference.choose import choose
from ..inference.ep import cavity
from ..inputs.layouts import Grid, Inputs, as_inputs, clocks_of, duplicates, grid_of, together
from ..inputs.observations import Data, joined
from ..inputs.outputs import Outputs, read_rows
from ..kernels.outputs import outputs_of
from ..learn.maximise import Learning
from ..linalg.blocks import diagonals, trace
from ..linalg.dense.cholesky import lapack_threads
from ..parameters.tree import as_numpy
from ..posterior import Conditional, Model, Moments, Prediction, Result, gates_of, name_to_number
from ..structure.base import No
from ..structure.derivatives import smoothness
from . import moments
from .conditioning import Conditioned, Posterior, condition, evidence_bounds, given_more
from .integral import integral
from .stream import Stream, from_fitted
from .summary import parameter_table

FEW_CELLS = 200  # of a grid up to which they are predicted one by one
MANY_ROWS = 2000  # of a table from which on it is worth a look whether they are a grid
COUNTED = 20000  # rows up to which a summary counts those that repeat
CHUNK_BYTES = 64e6  # size of the cross-covariance that prediction holds at a time
ON_DEVICE = 16  # times that on an accelerator, which waits between pieces
CACHE_BYTES = 2e6  # the same on a CPU, where pieces that fit into its cache take half the time
FEWEST = 512  # rows for which a large factor is worth reading


class GradientBelief(NamedTuple):
    """The posterior of a gradient: its mean and its covariance, the same for all targets."""

    mean: np.ndarray
    covariance: np.ndarray


class BasisWeights(NamedTuple):
    """The posterior of basis weights: a mean and a variance for each, and their covariance, the same for all targets."""

    mean: np.ndarray
    variance: np.ndarray
    covariance: np.ndarray

    @property
    def sd(self) -> np.ndarray:
        """Standard deviations."""
        return np.sqrt(self.variance)


@dataclasses.dataclass(frozen=True)
class Fitted(Result):
    """A GP conditioned on data, with learned parameters when it comes from `fit` (then `learning` says how).

    Where the likelihood sees several latents, everything that is said of f has a last axis for them.
    """

    gp: Any  # a GP
    inputs: Inputs
    data: Data
    plan: Plan
    conditional: Conditional
    weights: Weights
    log_evidence: float
    learning: Learning | None = None
    inference: Inferred | None = None  # how sites were found, when the observations are not Gaussian

    @classmethod
    def of(cls, gp: Model, inputs: Inputs, data: Data, given: Conditioned, learning: Learning | None = None) -> Self:
        """A GP as it was conditioned."""
        posterior, plan, inference = given
        evidence = float(posterior.log_evidence)
        return cls(gp, inputs, data, plan, posterior.conditional, posterior.weights, evidence, learning, inference)

    @property
    def posterior(self) -> Posterior:
        """What is believed of f, as a value that passes through JAX's transformations."""
        return Posterior(self.gp, self.conditional, self.weights, np.asarray(self.log_evidence), self._targets)

    @property
    def evidence_error(self) -> float:
        """The standard error of `log_evidence`, 0 where it is exact."""
        return 0.5 * self._targets * float(self.conditional.log_det_error)

    @property
    @double_precision
    def evidence_bounds(self) -> tuple[float, float] | None:
        """Between what the log evidence of the exact model lies, where an approximation knows that; else None."""
        return evidence_bounds(self.posterior, self.data)

    @property
    def kernel(self) -> Any:
        """The kernel with its values."""
        return self.gp.kernel

    @property
    def likelihood(self) -> Any:
        """The likelihood with its values."""
        return self.gp.likelihood

    @double_precision
    def predict(
        self, X: Any, covariance: bool | str = False, part: int | None = None, extra: Any = None, output: Any = None
    ) -> Prediction:
        """The belief about f at new places: mean and variance, and the joint covariance if asked for.

        Of several outputs, places without the column of their number have all of them, (M, P), or the one that `output` names;
        ``covariance="outputs"`` adds their covariance at each place, (M, P, P).

        `extra` is what the likelihood wants to know of new observations: the exposure of counts, the trials of a binomial.

        `part` asks for one term of a kernel that is a sum, by its place in the sum, without the mean of the process. However
        many places there are, memory stays bounded unless the covariance is asked for.
        """
        wide = self._places_of_outputs(X)
        if wide is not None:
            return self._of_outputs(wide, covariance, part, extra, output)
        if output is not None or covariance == "outputs":
            raise ValueError(
                "output= and covariance='outputs' are for models of several outputs, asked at places without the column of "
                f"their number: X has {as_inputs(X, clocks=clocks_of(self.inputs)).dimension} columns"
            )
        Xs = self._new_points(X)
        part = self._which_part(part)
        if covariance and self._latents:
            raise ValueError(
                f"a prediction of {self.likelihood.latents} latents has their covariance at each place, not that among places: "
                "leave out covariance=True, or ask fitted.posterior.joint"
            )
        if covariance:
            self._check_memory(
                self.conditional.joint_size(len(Xs)), "the joint covariance", len(Xs), "leave out covariance=True"
            )
            mean, joint = (np.asarray(found) for found in _joint(self.posterior, Xs, part))
            variance = self._spread(np.maximum(np.diagonal(joint), 0.0))
            return Prediction(self._shaped(mean), variance, self.likelihood, joint, self._extra(extra, Xs))
        grid = self._as_grid(X) if part is None else None
        if grid is None:
            self.plan.announce("prediction", len(Xs))
        with lapack_threads(self.plan.rows):
            if grid is not None:
                mean, variance = (np.asarray(part) for part in _marginals(self.posterior, grid))
            else:
                mean, variance = self._in_chunks(functools.partial(_marginals, part=part), Xs, part)
        return self._told(X, mean, variance, self._extra(extra, Xs))

    @double_precision
    def sample(self, X: Any, n: int = 1, seed: Seed = None, observed: bool = False, extra: Any = None) -> np.ndarray:
        """n joint draws of f at new places, (n, M) or (n, M, T); with `observed` of new observations, noise included.

        Draws of several latents are (n, M, C).
        """
        n = whole(n, "n", 1)
        rng = generator(seed)
        wide = self._places_of_outputs(X)
        if wide is not None:
            draws = self.sample(wide.reshape(-1, wide.shape[-1]), n, rng, observed, extra)
            return draws.reshape(n, *wide.shape[:2])
        Xs, T = self._new_points(X), self._targets
        if not len(Xs):
            return np.zeros((n, 0, *self._latents) if self._single else (n, 0, T))
        key = jax.random.key(int(rng.integers(2**62)))
        grid = self._as_grid(X)
        places = Xs if grid is None else grid
        self._check_draws(len(Xs), n, None if grid is None else 4 * n * T * (len(Xs) + len(self.inputs)))
        with lapack_threads(self.plan.rows):
            draws = np.asarray(_draws(self.posterior, key, places, n))
        f = self._over(X, draws[..., 0], axis=1) if self._single else draws
        return self.likelihood.sample(rng, f, self._extra(extra, Xs)) if observed else f

    @double_precision
    def gradient(self, X: Any) -> np.ndarray:
        """The gradient of the posterior mean in the inputs at new places, (M, D) or (M, D, T), or (M, D, C) for C latents."""
        Xs = self._new_points(X)
        slopes = np.asarray(_gradient(self.posterior, Xs))
        slopes = slopes[..., 0, :] if self._single else slopes
        return np.swapaxes(slopes, 1, slopes.ndim - 1)

    @double_precision
    def derivative(self, X: Any, order: int = 1, *, dim: int | None = None, part: int | None = None) -> Moments:
        """The belief about the derivative of f, `order` times along the column `dim`, at new places.

        `part` asks for one term of a kernel that is a sum, without the mean of the process. At the step of a sharp change point
        it is the derivative from the right.
        """
        if self._latents:
            raise ValueError(f"derivatives are of one latent function, and {type(self.likelihood).__name__} sees several")
        Xs, part = self._new_points(X), self._which_part(part)
        dim = self._which_column(dim)
        order = whole(order, "order", 1)  # predict gives f itself
        kernel = getattr(self.conditional, "kernel", self.kernel)  # what stands for the kernel may have fewer derivatives
        kernel = kernel if part is None else kernel.terms[part]
        count, term = smoothness(kernel)
        if order > count:
            known = "no derivative" if count == 0 else f"{count} derivative{'s' if count > 1 else ''}"
            more = "ask for another part, or choose a smoother kernel" if kernel is not term else "choose a smoother kernel"
            raise ValueError(f"f has no derivative of order {order}, because {term!r} has {known}: {more}")
        options: dict[str, Any] = {"order": int(order), "dim": dim, "part": part}
        with lapack_threads(len(self.inputs)):
            mean, variance = self._in_chunks(functools.partial(moments.derivative, **options), Xs)
        return Moments(self._shaped(mean), self._spread(variance))

    @double_precision
    def gradient_posterior(self, x: Any) -> GradientBelief:
        """The belief about the gradient of f at one place: its mean (D,), or (D, T), and its covariance (D, D)."""
        place = self._one_place(x)
        count, term = smoothness(getattr(self.conditional, "kernel", self.kernel))
        if self._latents or count < 1:
            what = "of several latents" if self._latents else f"because {term!r} has no derivative: choose a smoother kernel"
            raise ValueError(f"f has no gradient here, {what}")
        with lapack_threads(len(self.inputs)):
            mean, covariance = (np.asarray(part) for part in moments.gradient(self.posterior, place))
        return GradientBelief(self._shaped(mean), covariance)

    @double_precision
    def integral(self, box: Any) -> Moments:
        """The belief about ∫f over a box, a pair of ends or one for each column: mean and variance, for T targets (T,) each.

        With a `Normal` for each column in place of the pairs it is that about E f(x).
        """
        mean, variance = integral(self.gp, self.inputs, self.data, self.plan, self.inference, box)
        return Moments(mean[0], np.asarray(variance)) if self._single else Moments(mean, np.full(len(mean), variance))

    def _one_place(self, x: Any) -> np.ndarray:
        place = np.asarray(x, dtype=float)
        return self._new_points(place.reshape(1, -1))[0]

    @double_precision
    def filtered(self) -> Moments:
        """The belief about f at each observed place given the observations up to there: what was known at the time.

        As long as there are fewer observations than free weights of basis functions, the mean is NaN and the variance infinite.
        """
        self._needs_gaussian("what was known at the time")
        return self._in_callers_order(*moments.filtered(self._along_time()))

    @double_precision
    def smoothed(self) -> Moments:
        """The belief about f at each observed place given all observations."""
        return self._in_callers_order(*moments.smoothed(self._along_time()))

    @double_precision
    def lag_one(self) -> np.ndarray:
        """The covariances of f at successive times, sorted, given all observations: (N − 1,)."""
        return np.asarray(moments.lag_one(self._along_time()))[: len(self.inputs) - 1]

    @double_precision
    def leave_one_out(self) -> Moments:
        """Mean and variance of each observation given all the others, without refitting: y − α/(C⁻¹)ᵢᵢ and 1/(C⁻¹)ᵢᵢ.

        Where observations are not Gaussian, what is known of f without the site of each is passed through the likelihood; the
        sites themselves have seen all observations.
        """
        if self.inference is not None:
            return self._without_sites(self.inference)
        precision, alpha = self._precision_parts()
        y = self.data.y
        with np.errstate(divide="ignore", invalid="ignore"):
            mean, variance = y - alpha / precision[:, None], 1 / precision
        unseen = ~np.asarray(self.data.seen)
        mean[unseen], variance[unseen] = np.nan, np.nan
        return Moments(self._shaped(mean), self._spread(variance))

    @property
    @double_precision
    def outlier_probability(self) -> np.ndarray:
        """The probability that each observation is an outlier, given all of them; NaN where nothing was seen."""
        if self.inference is None:
            raise NotImplementedError(f"{type(self.likelihood).__name__} knows of no outliers: use Twinned() or MixtureNoise()")
        found = self._without_own(self.inference).outlier_probability_of(np.asarray(self.data.y)[:, 0])
        return np.where(self.data.seen, found, np.nan)

    @property
    def gate(self) -> Moments:
        """The belief about what decides how each observation arises, at their places; of several gates in a last axis."""
        if self.inference is None:
            return gates_of(self.likelihood, Moments(np.zeros(0), np.zeros(0)))
        return gates_of(self.likelihood, Moments(self.inference.mean, self.inference.variance))

    @property
    @double_precision
    def degrees_of_freedom(self) -> float:
        """tr[K C⁻¹]: how many parameters the smoother uses, those of basis functions included."""
        if self.inference is not None:
            return float(np.sum(trace(self.inference.w, jnp.asarray(self.inference.spread))))
        precision, _ = self._precision_parts()
        seen = np.asarray(self.data.seen)
        noise = noise_variance(self.gp, self.inputs, self.data)
        return float(seen.sum() - np.sum((noise * precision)[seen]))

    @double_precision
    def equivalent_kernel(self, X: Any) -> np.ndarray:
        """How much each observation counts in the mean at new places, (M, N): mean = weights @ y for a zero mean."""
        self._needs_gaussian("the equivalent kernel")
        dense = self if isinstance(self.conditional, CholeskyConditional) else self._by_matrix()
        return np.asarray(_equivalent_kernel(dense.posterior, self._new_points(X)))[:, : len(self.inputs)]

    @double_precision
    def basis_weights(self) -> BasisWeights:
        """The posterior of the weights of the mean's basis functions (and of what the kernel leaves free)."""
        mean = np.asarray(self.weights.mean)
        if not len(mean):
            raise ValueError("this model has no basis functions: give GP a mean=Basis(...)")
        covariance = np.asarray(self.weights.covariance())
        of_mean = jax.eval_shape(self.gp.mean.features, jax.ShapeDtypeStruct((self.inputs.dimension,), np.float64)).shape[0]
        prior = np.zeros(len(mean))
        prior[:of_mean] = getattr(self.gp.mean, "mean", 0.0)
        return BasisWeights(self._shaped(mean + prior[:, None]), self._spread(np.diagonal(covariance)), covariance)

    @double_precision
    def update(
        self, X: Any, y: Any, noise: Any = None, missing: str = "error", extra: Any = None, weights: Any = None
    ) -> Fitted:
        """The process given more data, with the parameters it has."""
        new, data = read_rows(self.gp, X, y, noise, missing, extra, weights, clocks_of(self.inputs))
        self._check_dimension(new)
        if data.y.shape[1] != self._targets:
            raise ValueError(f"update: y has {data.y.shape[1]} targets, but the model was given {self._targets}")
        return type(self).of(self.gp, *with_more(self, new, data), learning=self.learning)

    def given(self, X: Any, y: Any, **options: Any) -> Fitted:
        """The same process with the same parameters, given other data: `options` are those of `GP.condition`."""
        return self.gp.condition(X, y, **options)

    @double_precision
    def stream(self) -> Stream:
        """A model that goes on in time from here and keeps no data: constant work and memory for each new observation."""
        self._needs_gaussian("a stream")
        return from_fitted(self.gp, self.conditional, self.data, self.plan)

    def plot(self, X: Any = None, *, level: float = 0.95, target: int = 0, ax: Any = None) -> Any:
        """Draw a process of one input: data, mean and bands. Needs Matplotlib; returns the axes."""
        from ..plots import plot

        return plot(self, X, level=level, target=target, ax=ax)

    def __getstate__(self) -> dict[str, Any]:
        """For pickle: arrays on the host, because JAX restores its own in the precision of the caller's setting."""
        return {field.name: as_numpy(getattr(self, field.name)) for field in dataclasses.fields(self)}

    def summary(self) -> str:
        """A table of the parameters and an account of the fit."""
        seen = int(np.sum(self.data.seen))
        evidence = f"log evidence   {self.log_evidence:.6g}  ({seen} observations)"
        return "\n".join([repr(self.gp), "", *parameter_table(self.gp, self.learning), "", evidence, *self.account()])

    def account(self) -> list[str]:
        """How the fit came about, line by line."""
        lines = [f"engine         {self.plan.engine.name}, {self.plan.chosen.quality}"]
        counted = [f"column {d} in {clock!r}" for d, clock in enumerate(clocks_of(self.inputs)) if clock is not None]
        if counted:
            lines.append(f"dates          {'; '.join(counted)}")
        if self.evidence_error > 0:
            lines.append(f"evidence       has a standard error of {self.evidence_error:.2g}, from random probes")
        loose = float(getattr(self.conditional, "variance_error", 0.0))
        if loose > 0:
            lines.append(f"variances      of many places at once are within {100 * loose:.2g} %, by a look at some cells")
        if float(getattr(self.conditional, "jitter", 0.0)) > 0:
            lines.append(f"jitter         {float(self.conditional.jitter):.1e} was added to the prior variance")  # type: ignore[attr-defined]
        repeated = duplicates(self.inputs) if len(self.inputs) <= COUNTED else 0
        if repeated:
            lines.append(f"inputs         {repeated} of {len(self.inputs)} rows repeat an earlier one")
        if self.inference:
            lines.append(f"inference      {self.inference}")
        if self.learning:
            lines.append(f"learning       {self.learning}")
        if self.plan.parameters:
            lines.append(f"parameters     {self.plan.parameters}")
        return lines

    def __repr__(self) -> str:
        return f"Fitted({self.gp!r}, {len(self.inputs)} places, log evidence {self.log_evidence:.6g})"

    @property
    def _targets(self) -> int:
        return self.data.y.shape[1]

    @property
    def _latents(self) -> tuple[int, ...]:
        """The axis that several latents have in every answer: none for one."""
        return () if self.likelihood.latents == 1 else (self.likelihood.latents,)

    @property
    def _single(self) -> bool:
        return self.data.flat

    def _shaped(self, values: np.ndarray) -> np.ndarray:
        return values[..., 0] if self._single else values

    def _spread(self, variance: np.ndarray) -> np.ndarray:
        return variance if self._single else np.repeat(variance[:, None], self._targets, axis=1)

    def _which_part(self, part: int | None) -> int | None:
        if part is None:
            return None
        terms = getattr(self.kernel, "terms", ())
        if not isinstance(part, (int, np.integer)) or not -len(terms) <= part < len(terms):
            has = f"has {len(terms)} terms, counted from 0" if terms else "is not a sum"
            raise ValueError(f"part={part!r} cannot be predicted: the kernel {self.kernel!r} {has}")
        return part % len(terms)

    def _new_points(self, X: Any) -> np.ndarray:
        new = as_inputs(X, allow_empty=True, clocks=clocks_of(self.inputs))
        self._check_dimension(new)
        return np.asarray(new.points)

    def _as_grid(self, X: Any) -> Grid | None:
        """X as a grid, where looking at it as a whole is better than place by place."""
        if not isinstance(self.conditional, GridConditional):
            return None
        if isinstance(X, Grid):
            return X if len(X) > FEW_CELLS else None
        rows = self._new_points(X)
        return grid_of(rows) if len(rows) > MANY_ROWS else None

    def _over(self, X: Any, values: np.ndarray, axis: int = 0) -> np.ndarray:
        """Values at the places X, as an array over them when y came as an array over a grid and X is a whole one."""
        whole = self.data.gridded and isinstance(X, Grid) and X.cells is None
        return values.reshape(*values.shape[:axis], *X.shape, *values.shape[axis + 1 :]) if whole else values

    def _told(self, X: Any, mean: np.ndarray, variance: np.ndarray, extra: Any) -> Prediction:
        """The belief about f at the places X, in the caller's shapes."""
        mean, variance = (self._over(X, values) for values in (self._shaped(mean), self._spread(variance)))
        return self._prediction(mean, variance, extra)

    def _prediction(self, mean: np.ndarray, variance: np.ndarray, extra: Any) -> Prediction:
        """A belief about f; of several latents the variances are matrices, or their diagonals."""
        if not self._latents:
            return Prediction(mean, variance, self.likelihood, extra=extra)
        covariance = variance if variance.ndim > mean.ndim else np.asarray(diagonals(jnp.asarray(variance)))
        variance = np.diagonal(covariance, axis1=-2, axis2=-1)
        return Prediction(mean, variance, self.likelihood, covariance, extra)

    def _check_dimension(self, new: Inputs) -> None:
        if new.dimension != self.inputs.dimension:
            raise ValueError(
                f"X has {new.dimension} columns, but the model was given {self.inputs.dimension}: "
                "pass the same inputs in the same order"
            )

    def _check_memory(self, numbers: int, what: str, places: int, otherwise: str) -> None:
        memory.check(
            8.0 * numbers * self._targets, f"{what} at {places} places", f"ask for fewer places at a time, or {otherwise}"
        )

    def _check_draws(self, places: int, n: int, held: int | None = None) -> None:
        held = self.conditional.draw_size(places, n * self._targets) if held is None else held
        self._check_memory(held, f"drawing {n} times", places, "draw on a Grid where the kernel factors, or along a line")

    def _in_chunks(
        self, function: Any, Xs: np.ndarray, part: int | None = None, together: Posterior | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Run over the rows in pieces of a few sizes, so that nothing grows with their number and little is compiled.

        `together` are posteriors along a first axis, whose answers have a second axis for them.
        """
        conditional = self.conditional.for_places(Xs, part)
        posterior = dataclasses.replace(self.posterior, conditional=conditional) if together is None else together
        some = () if together is None else (len(together.log_evidence),)
        size = rows_at_a_time(conditional.row_size)
        means, spreads = [np.zeros((0, *some, *self._latents, self._targets))], [np.zeros((0, *some, *2 * self._latents))]
        for at in range(0, len(Xs), size):
            piece = Xs[at : at + size]
            padded = min(size, max(16, 2 ** int(np.ceil(np.log2(len(piece))))))
            filled = np.concatenate([piece, np.repeat(piece[:1], padded - len(piece), axis=0)])
            mean, variance = function(posterior, filled)
            means.append(np.asarray(mean)[: len(piece)])
            spreads.append(np.asarray(variance)[: len(piece)])
        return np.concatenate(means), np.concatenate(spreads)

    def _which_column(self, dim: int | None) -> int:
        D = self.inputs.dimension
        if dim is None and D > 1:
            raise ValueError(f"the inputs have {D} columns: say along which one the derivative is, as in dim=0")
        if dim is not None and (not isinstance(dim, (int, np.integer)) or not 0 <= dim < D):
            raise ValueError(f"dim must be one of the {D} columns of the inputs, counted from 0, got {dim!r}")
        return dim or 0

    def _in_callers_order(self, mean: Any, variance: Any) -> Moments:
        rank = self._rank()
        return Moments(self._shaped(np.asarray(mean)[rank]), self._spread(np.asarray(variance)[rank]))

    def _rank(self) -> np.ndarray:
        """Where each row of the caller stands in the order of the chain, which is that of clocks where outputs have lags."""
        known = self.conditional.rank  # type: ignore[attr-defined]
        rank = self.inputs.rank if known is None else known  # type: ignore[attr-defined]
        return np.asarray(rank)[: len(self.inputs)]

    def _along_time(self) -> Posterior:
        if not isinstance(self.conditional, KalmanConditional):
            raise ValueError("this is computed along time: condition with structure='markov' to have it")
        return self.posterior

    def _needs_gaussian(self, what: str) -> None:
        if self.inference is not None:
            name = type(self.likelihood).__name__
            raise ValueError(f"{what} needs Gaussian observations: the sites of {name} depend on all observations together")

    def _without_own(self, inferred: Inferred) -> Prediction:
        """The belief about f at the place of each observation without it."""
        m, v, _ = cavity(1.0, inferred.w, inferred.h, inferred.mean, inferred.spread)
        return self._prediction(np.asarray(m), np.asarray(v), self._extra(self.data.extra, self.inputs.points))

    def _without_sites(self, inferred: Inferred) -> Moments:
        mean, variance = (np.array(part) for part in self._without_own(inferred).observed)
        unseen = ~np.asarray(self.data.seen)
        mean[unseen], variance[unseen] = np.nan, np.nan
        return Moments(mean, variance)

    def _extra(self, extra: Any, X: Any) -> Any:
        """What the likelihood is told besides of observations at these places, 1 where nothing is."""
        told = self.likelihood.told_by(np.asarray(X), None if extra is None else np.asarray(extra, dtype=float))
        return told if np.ndim(told) == 0 or not self._targets > 1 or np.ndim(told) > 1 else told[:, None]

    def _places_of_outputs(self, X: Any) -> np.ndarray | None:
        """New places for each output, (M, P, D), where X lacks the column of its number; else None."""
        known, D = outputs_of(self.kernel), self.inputs.dimension
        if known is None or known.count < 2 or known.among(D) != D - 1 or isinstance(X, (Outputs, dict)):
            return None
        counted = clocks_of(self.inputs)[:-1]
        new = as_inputs(X, allow_empty=True, clocks=counted if any(counted) else ())
        if new.dimension != D - 1:
            return None
        places = np.repeat(np.asarray(new.points)[:, None], known.count, axis=1)
        numbers = np.broadcast_to(np.arange(known.count)[:, None], (*places.shape[:2], 1))
        return np.concatenate([places, numbers], axis=2)

    def _of_outputs(self, wide: np.ndarray, covariance: Any, part: int | None, extra: Any, output: Any) -> Prediction:
        """The belief about all outputs at each place, or about one of them."""
        M, P, D = wide.shape
        names = self.data.outputs or tuple(map(str, range(P)))
        if output is not None:
            return self.predict(wide[:, name_to_number(names, output)], covariance, part, extra)
        if covariance not in (False, "outputs"):
            raise ValueError(
                "the covariance of all outputs at all places is that of rows (place, output): pass these, or 'outputs'"
            )
        flat = self.predict(wide.reshape(-1, D), part=part, extra=extra)
        told = np.reshape(flat.extra, (M, P)) if np.ndim(flat.extra) else flat.extra
        joint = self._among_outputs(wide) if covariance == "outputs" else None
        mean, variance = (values.reshape(M, P) for values in (flat.mean, flat.variance))
        return Prediction(mean, variance, self.likelihood, joint, told, names)

    def _among_outputs(self, wide: np.ndarray) -> np.ndarray:
        """The covariance of all outputs at each place, (M, P, P)."""
        size = 64
        pieces = [np.zeros((0, wide.shape[1], wide.shape[1]))]
        for at in range(0, len(wide), size):
            piece = wide[at : at + size]
            filled = np.concatenate([piece, np.repeat(piece[:1], size - len(piece), axis=0)])
            pieces.append(np.asarray(_outputs_together(self.posterior, filled))[: len(piece)])
        return np.concatenate(pieces)

    def _precision_parts(self) -> tuple[np.ndarray, np.ndarray]:
        """The diagonal of C⁻¹ and C⁻¹y with the basis weights integrated out, in the caller's order."""
        parts = _inverse_parts(self.posterior)
        order = self._rank() if isinstance(self.conditional, KalmanConditional) else slice(len(self.inputs))
        return np.asarray(parts[0])[order], np.asarray(parts[1])[order]

    def _by_matrix(self) -> Fitted:
        """The same process, of the kernel that was really used, by the whole covariance matrix."""
        gp = self.gp.replace(kernel=as_numpy(self.conditional.kernel))  # type: ignore[attr-defined]
        chosen = plan(gp, self.inputs, "dense")
        memory.check_offers(chosen.offers, self.inputs)
        dense = condition(gp, self.inputs, self.data, chosen)
        return Fitted.of(gp, self.inputs, self.data, dense)


def rows_at_a_time(numbers: int) -> int:
    """How many places are looked at together, each of which takes so many numbers: a power of two."""
    on_host = jax.default_backend() == "cpu"
    rows = (1 if on_host else ON_DEVICE) * CHUNK_BYTES / (8 * max(numbers, 1))
    if on_host:
        rows = min(rows, max(CACHE_BYTES / (8 * max(numbers, 1)), FEWEST))
    return int(2 ** np.clip(np.floor(np.log2(rows)), 4, 14))


FittedLatents = Fitted  # what a model of several latents was once called


@jax.jit
def _outputs_together(posterior: Posterior, wide: Any) -> Any:
    conditional = posterior.conditional
    free = posterior.weights.factor.shape[0]
    if isinstance(conditional, KalmanConditional) and not free:
        found = conditional.among_outputs(wide[:, 0], wide.shape[1])
        if found is not None:
            return found[1]
    return jax.lax.map(lambda places: posterior.joint(places)[1], wide)


_marginals = jax.jit(Posterior.marginals, static_argnames="part")
_joint = jax.jit(Posterior.joint, static_argnames="part")
_gradient = jax.jit(Posterior.gradient)
_inverse_parts = jax.jit(Posterior.inverse_parts)
_draws = jax.jit(Posterior.draw, static_argnames="n")


@jax.jit
def _equivalent_kernel(posterior: Posterior, X: Any) -> Any:
    conditional: Any = posterior.conditional
    T, factor = posterior.targets, posterior.weights.factor
    rho = columns(posterior.prior, X)[1] - conditional.at(X)[0][:, T:]
    return conditional.weights(X) + rho @ jax.scipy.linalg.cho_solve((factor, True), conditional.alpha[:, T:].T)


def with_more(fitted: Any, new: Inputs, data: Data) -> tuple[Inputs, Data, Conditioned]:
    """The data of `fitted` and more, and the process given both: the factor grows where there is one."""
    old, before, after = fitted.data, len(fitted.inputs), len(new)
    both = Data(
        np.concatenate([old.y, data.y]),
        np.concatenate([old.noise, data.noise]),
        np.concatenate([old.seen, data.seen]),
        old.flat,
        joined(old.extra, data.extra, before, after),
        joined(old.weight, data.weight, before, after),
        outputs=old.outputs,
    )
    gp, inputs = fitted.gp, together(fitted.inputs, new)
    if fitted.inference is None and isinstance(fitted.conditional, CholeskyConditional):
        posterior = given_more(fitted.posterior, new, data, before)
        return inputs, both, Conditioned(posterior, plan(gp, inputs, "dense", data=both))
    applies = not isinstance(fitted.plan.engine.offer(gp, inputs, both), No)
    chosen = fitted.plan.tuned(gp, inputs, both) if applies else plan(gp, inputs, data=both)
    memory.check_offers(chosen.offers, inputs)
    rule = None if fitted.inference is None else choose(gp.likelihood, fitted.inference.method)
    if rule is None:
        return inputs, both, condition(gp, inputs, both, chosen)
    sites = fitted.inference.w, fitted.inference.h
    start = jax.tree.map(lambda *parts: np.concatenate(parts), sites, rule.unknown(gp.likelihood, after))
    return inputs, both, condition(gp, inputs, both, chosen, rule, start)
