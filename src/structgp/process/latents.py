"""Several latent functions given data, for likelihoods that see them together, such as `Categorical`."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .._types import Seed, double_precision, generator
from ..engines.base import Engine
from ..engines.independent import CoupledConditional
from ..engines.plan import Plan
from ..inference.base import Inferred
from ..inference.several import offsets, sites_on
from ..inputs.layouts import Inputs, as_inputs
from ..inputs.observations import Data, read_observations
from ..learn.maximise import Learning
from ..likelihoods.base import Likelihood
from ..linalg.dense.cholesky import lapack_threads
from ..parameters.tree import as_numpy
from ..posterior import Moments, Result
from .summary import parameter_table

CHUNK_BYTES = 64e6  # size of the cross-covariance that prediction holds at a time
PLACES = 256  # for which class probabilities are averaged at a time
TINY = 1e-12  # of the variance: covariances that rounding has made singular still have a factor


@dataclasses.dataclass(frozen=True)
class LatentPrediction:
    """The belief about C latent values at M places, (M, C) each; `covariance` (M, C, C) is among the latents of a place."""

    mean: np.ndarray
    covariance: np.ndarray
    likelihood: Likelihood

    @property
    def variance(self) -> np.ndarray:
        """Of each latent by itself."""
        return np.diagonal(self.covariance, axis1=1, axis2=2)

    @property
    def sd(self) -> np.ndarray:
        """Standard deviations."""
        return np.sqrt(self.variance)

    @property
    @double_precision
    def probability(self) -> np.ndarray:
        """The probability of every class, (M, C), averaged over what is believed of all latents together."""
        return self._in_pieces(_probability, self.mean.shape[1:])

    @property
    @double_precision
    def observed(self) -> Moments:
        """Mean and variance of the indicators of the classes."""
        p = self.probability
        return Moments(p, p * (1 - p))

    @double_precision
    def log_prob(self, y: Any) -> np.ndarray:
        """log p(y) of new labels, each by itself; NaN for a label that is NaN."""
        labels = np.asarray(y, dtype=float)
        if labels.shape != (len(self),):
            raise ValueError(f"log_prob needs one label for each of {len(self)} places, got shape {labels.shape}")
        unknown = np.isnan(labels)
        found = self._in_pieces(_log_prob, (), self.likelihood.check(np.where(unknown, 0.0, labels)))
        return np.where(unknown, np.nan, found)

    def __len__(self) -> int:
        return len(self.mean)

    def __repr__(self) -> str:
        return f"LatentPrediction({' × '.join(map(str, self.mean.shape))}, {type(self.likelihood).__name__})"

    def _in_pieces(self, function: Any, shape: tuple[int, ...], *more: np.ndarray) -> np.ndarray:
        found = [np.zeros((0, *shape))]
        for at in range(0, len(self), PLACES):
            piece = [part[at : at + PLACES] for part in (self.mean, self.covariance, *more)]
            found.append(_unpadded(function, (self.likelihood,), piece))
        return np.concatenate(found)


@dataclasses.dataclass(frozen=True)
class FittedLatents(Result):
    """A GP of several latents conditioned on data, with learned parameters when it comes from `fit`."""

    gp: Any
    inputs: Inputs
    data: Data
    plan: Plan
    log_evidence: float
    inference: Inferred
    learning: Learning | None = None
    conditional: CoupledConditional = dataclasses.field(default=None, metadata={"derived": True}, repr=False)  # type: ignore[assignment]

    @classmethod
    def of(cls, gp: Any, inputs: Inputs, data: Data, given: Any, learning: Learning | None = None) -> FittedLatents:
        """A GP as it was conditioned."""
        posterior, plan, inference = given
        evidence = float(posterior.log_evidence)
        return cls(gp, inputs, data, plan, evidence, inference, learning, posterior.conditional)

    @property
    def kernel(self) -> Any:
        """The kernel, or the kernels, with their values."""
        return self.gp.kernel

    @property
    def likelihood(self) -> Any:
        """The likelihood with its values."""
        return self.gp.likelihood

    @double_precision
    def predict(self, X: Any) -> LatentPrediction:
        """The belief about all latents at new places; memory stays bounded however many there are."""
        Xs, C = self._new_points(X), self.likelihood.latents
        size = int(2 ** np.clip(np.floor(np.log2(CHUNK_BYTES / (8 * self.conditional.row_size))), 4, 14))
        means, spreads = [np.zeros((0, C))], [np.zeros((0, C, C))]
        with lapack_threads(self.plan.rows):
            for at in range(0, len(Xs), size):
                mean, spread = _unpadded(_look, (self.gp, self.conditional), [Xs[at : at + size]])
                means.append(mean)
                spreads.append(spread)
        return LatentPrediction(np.concatenate(means), np.concatenate(spreads), self.likelihood)

    @double_precision
    def sample(self, X: Any, n: int = 1, seed: Seed = None, observed: bool = False) -> np.ndarray:
        """n joint draws of the latents at new places, (n, M, C); with `observed` of labels, (n, M)."""
        if n < 1:
            raise ValueError(f"n must be at least 1 sample, got {n}")
        rng, Xs = generator(seed), self._new_points(X)
        key = jax.random.key(int(rng.integers(2**62)))
        with lapack_threads(self.plan.rows):
            draws = np.asarray(_draws(self.gp, self.conditional, Xs, key, n)) if len(Xs) else None
        f = np.zeros((n, 0, self.likelihood.latents)) if draws is None else draws
        return self.likelihood.sample(rng, f) if observed else f

    @double_precision
    def update(self, X: Any, y: Any, missing: str = "error", weights: Any = None) -> FittedLatents:
        """The process given more data, with the parameters it has."""
        new = as_inputs(X)
        self._new_points(X)
        from .fitted import with_more

        data = read_observations(self.likelihood, y, None, missing, new, None, weights)
        return self.of(self.gp, *with_more(self, new, data), learning=self.learning)

    def __getstate__(self) -> dict[str, Any]:
        """For pickle: arrays on the host, because JAX restores its own in the precision of the caller's setting."""
        return {field.name: as_numpy(getattr(self, field.name)) for field in dataclasses.fields(self)}

    def summary(self) -> str:
        """A table of the parameters and an account of the fit."""
        lines = [repr(self.gp), "", *parameter_table(self.gp, self.learning), ""]
        lines.append(f"log evidence   {self.log_evidence:.6g}  ({int(np.sum(self.data.seen))} observations)")
        lines.append(f"engine         {self.plan.engine.name}, {self.plan.chosen.quality}")
        lines.append(f"inference      {self.inference}")
        return "\n".join([*lines, f"learning       {self.learning}"] if self.learning else lines)

    def __repr__(self) -> str:
        return f"FittedLatents({self.gp!r}, {len(self.inputs)} places, log evidence {self.log_evidence:.6g})"

    def _new_points(self, X: Any) -> np.ndarray:
        new = as_inputs(X, allow_empty=True)
        if new.dimension != self.inputs.dimension:
            raise ValueError(
                f"X has {new.dimension} columns, but the model was given {self.inputs.dimension}: "
                "pass the same inputs in the same order"
            )
        return np.asarray(new.points)


def conditional_of(gp: Any, inputs: Inputs, found: Any, engine: Engine) -> CoupledConditional:
    """The latents given the sites that were found."""
    return jax.block_until_ready(condition_latents(gp, inputs, found.w, found.h, engine))


def _unpadded(function: Any, fixed: tuple[Any, ...], rows: list[np.ndarray]) -> Any:
    """A function of rows, run on a number of rows out of a few, so that little is compiled."""
    count = len(rows[0])
    padded = max(16, 2 ** int(np.ceil(np.log2(count))))
    filled = [np.concatenate([part, np.repeat(part[:1], padded - count, axis=0)]) for part in rows]
    return jax.tree.map(lambda part: np.asarray(part)[:count], function(*fixed, *filled))


@functools.partial(jax.jit, static_argnames="engine")
def condition_latents(gp: Any, inputs: Inputs, a: Any, h: Any, engine: Engine) -> CoupledConditional:
    """The latents given small-matrix sites, one for each place."""
    sites = sites_on(gp, jnp.asarray(inputs.points), a, h)
    return engine.condition(engine.form(gp.kernel, inputs), sites)  # type: ignore[arg-type, return-value]


@jax.jit
def _look(gp: Any, conditional: CoupledConditional, X: Any) -> tuple[Any, Any]:
    mean, covariance = conditional.at(X)
    return offsets(gp, X) + mean, covariance


@functools.partial(jax.jit, static_argnames="n")
def _draws(gp: Any, conditional: CoupledConditional, X: Any, key: Any, n: int) -> Any:
    return _look(gp, conditional, X)[0] + conditional.residuals(X, key, n)


@eqx.filter_jit
def _probability(likelihood: Any, mean: Any, covariance: Any) -> Any:
    return likelihood.probability(mean, _firm(covariance))


@eqx.filter_jit
def _log_prob(likelihood: Any, mean: Any, covariance: Any, y: Any) -> Any:
    return likelihood.log_predictive(y, mean, _firm(covariance))


def _firm(covariance: Any) -> Any:
    """With as little on the diagonal as gives it a Cholesky factor."""
    size = jnp.trace(covariance, axis1=1, axis2=2)[:, None, None]
    return covariance + (TINY * size + 1e-300) * jnp.eye(covariance.shape[-1])
