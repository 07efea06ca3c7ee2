"""PPGPR-greedy and PPGPR-MCMC: projection pursuit one direction at a time, and with its terms sampled.

Greedy: each stage finds the direction and the parameters that maximise the evidence of what the earlier stages leave, by the
Kalman filter along the projection, whose gradient in the direction goes through the gaps between neighbours. A fifth of the
rows says when to stop. (Saatçi 2011, Algorithm 12 as far as it can be read.) `ProjectionPursuitGP`, which learns all
directions together, is the better choice.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..._types import Numbers, Seed, double_precision, generator
from ...inputs.clock import Clocks
from ...inputs.layouts import as_inputs, check_columns, clocks_of
from ...inputs.observations import read_known
from ...kernels.stationary import Matern
from ...learn.climb import climb
from ...learn.objective import Objective
from ...likelihoods.gaussian import Gaussian
from ...linalg.filters import kalman
from ...linalg.markov import chains
from ...parameters.supports import positive, real
from ...parameters.tree import Parametrised, free_vector, parameter, with_free
from ...posterior import Prediction, Result
from ...process.fitted import Fitted
from ...process.gp import GP
from ..additive.mcmc import AdditiveMCMC, SampledAdditive
from .fitted import Units
from .model import ProjectionPursuitGP

STOP = 1e-4  # change of the error of the held-out rows, in units of their spread
DENSE = 1000  # rows on which the directions of PPGPR-MCMC are learned


class Stage(Parametrised):
    """One direction (not normalised) and the process along it."""

    direction: Numbers = parameter((1.0,), real)
    lengthscale: Numbers = parameter(1.0, positive)
    variance: Numbers = parameter(1.0, positive)
    noise: Numbers = parameter(0.25, positive)

    def unit(self) -> Any:
        """The direction as a unit vector."""
        return self.direction / jnp.linalg.norm(self.direction)


def log_evidence(stage: Stage, X: Any, y: Any, states: int) -> Any:
    """log p(y) of one process along one direction."""
    t = X @ stage.unit()
    order = jnp.argsort(jax.lax.stop_gradient(t))
    gaps = jnp.diff(t[order], prepend=t[order][:1])
    chain = chains.Matern(states, math.sqrt(2 * states - 1) / stage.lengthscale, stage.variance)
    w = jnp.full(len(y), 1 / stage.noise)
    log_det, gram = kalman.evidence(chain, gaps, w, y[order][:, None], accurate=True)
    return -0.5 * (log_det + gram[0, 0] + len(y) * jnp.log(2 * jnp.pi))


@functools.partial(jax.jit, static_argnames="states")
@functools.partial(jax.value_and_grad, argnums=0)
def _value_and_gradient(theta: Any, stage: Stage, X: Any, y: Any, states: int) -> Any:
    return log_evidence(with_free(stage, theta), X, y, states)


@dataclasses.dataclass(frozen=True)
class FittedGreedy(Result):
    """The stages, each a direction and a process along it, and the error of the held-out rows after each."""

    units: Units
    directions: tuple[np.ndarray, ...]
    stages: tuple[Fitted, ...]
    errors: tuple[float, ...]
    clocks: Clocks = ()

    def predict(self, X: Any) -> Prediction:
        """The means of all stages added; the variance is that of the last stage."""
        new = as_inputs(X, clocks=self.clocks or None)
        check_columns(new, len(self.units.center))
        Z = self.units.inputs(np.asarray(new.points))
        parts = [stage.predict(Z @ u) for u, stage in zip(self.directions, self.stages, strict=True)]
        mean, scale = np.sum([part.mean for part in parts], axis=0), self.units.y_scale
        noise = Gaussian(scale**2 * float(self.stages[-1].likelihood.noise))
        return Prediction(self.units.y_center + scale * mean, scale**2 * parts[-1].variance, noise)


@dataclasses.dataclass(frozen=True)
class GreedyProjectionPursuit:
    """Projection pursuit one direction at a time, with at most so many stages."""

    most: int = 20
    nu: float = 3.5
    starts: int = 2  # random directions tried beside that of linear regression
    max_evaluations: int = 60

    @double_precision
    def fit(self, X: Any, y: Any, *, seed: Seed = 0) -> FittedGreedy:
        """Add stages until they no longer help on the rows that were held out."""
        inputs, rng = as_inputs(X, clocks=()), generator(seed)
        points, y = np.asarray(inputs.points), read_known(Gaussian(), y, inputs)
        units = Units.of(points, y)
        Z, z = units.inputs(points), (y - units.y_center) / units.y_scale
        rows = rng.permutation(len(z))
        held, used = rows[: len(z) // 5], rows[len(z) // 5 :]
        left = z.copy()
        directions: list[np.ndarray] = []
        stages: list[Fitted] = []
        errors = [float(np.mean(left[held] ** 2))]
        while len(stages) < self.most:
            stage = self._stage(Z[used], left[used], rng)
            u = np.asarray(stage.unit())
            gp = GP(Matern(float(stage.lengthscale), float(stage.variance), nu=self.nu), Gaussian(float(stage.noise)))
            fitted = gp.condition(Z[used] @ u, left[used])
            after = left - fitted.predict(Z @ u).mean
            error = float(np.mean(after[held] ** 2))
            if stages and errors[-1] - error < STOP:
                break
            left = after
            directions.append(u)
            stages.append(fitted)
            errors.append(error)
        return FittedGreedy(units, tuple(directions), tuple(stages), tuple(errors), clocks_of(inputs))

    def _stage(self, X: np.ndarray, y: np.ndarray, rng: np.random.Generator) -> Stage:
        """The best direction from linear regression and from some random starts."""
        linear = np.linalg.lstsq(X, y, rcond=None)[0]
        tries = [linear / (np.linalg.norm(linear) or 1.0)] if np.any(linear) else []
        tries += [rng.standard_normal(X.shape[1]) for _ in range(self.starts)]
        climbed = [self._climb(direction, X, y) for direction in tries]
        return max(climbed, key=lambda ended: ended[1].objective)[0]

    def _climb(self, direction: np.ndarray, X: np.ndarray, y: np.ndarray) -> Any:
        spread = float(np.var(y)) or 1.0
        span = float(np.ptp(X @ direction / np.linalg.norm(direction))) or 1.0
        stage = Stage(direction, 0.5 * span, spread, 0.25 * spread)
        arrays = jax.device_put((np.asarray(X), np.asarray(y)))

        evidence = lambda theta: _value_and_gradient(np.asarray(theta), stage, *arrays, round(self.nu + 0.5))

        options: dict[str, Any] = {"restarts": 0, "seed": 0, "max_evaluations": self.max_evaluations, "progress": False}
        return climb(stage, Objective(stage, evidence), [free_vector(stage)], len(y), time.perf_counter(), **options)


@dataclasses.dataclass(frozen=True)
class ProjectionPursuitMCMC:
    """PPGPR-MCMC: directions learned on some of the rows, then the terms and their parameters sampled given all rows."""

    projections: int | None = None
    sampler: AdditiveMCMC = dataclasses.field(default_factory=AdditiveMCMC)

    def sample(self, X: Any, y: Any, new: Any, seed: Seed = 0) -> SampledAdditive:
        """Draws from the posterior of f at `new` places, given data and the directions."""
        rng = generator(seed)
        inputs = as_inputs(X, clocks=())
        y = read_known(Gaussian(), y, inputs)
        asked = as_inputs(new, clocks=clocks_of(inputs))
        check_columns(asked, inputs.dimension)
        points, places = np.asarray(inputs.points), np.asarray(asked.points)
        some = rng.permutation(len(y))[:DENSE]
        fitted = ProjectionPursuitGP(self.projections, most=10).fit(points[some], y[some], seed=rng)
        U = fitted.directions.T
        return self.sampler.sample(fitted.units.inputs(points) @ U, y, fitted.units.inputs(places) @ U, seed=rng)
