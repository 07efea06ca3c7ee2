"""A Gaussian process along time that keeps what its data taught it, but not the data: constant work and memory."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .._types import by_the_host, how_many
from ..engines.basis import Weights, columns, integrate, sites_of
from ..engines.kalman import Kalman, KalmanConditional, read
from ..engines.plan import Plan
from ..inputs.clock import Clocks
from ..inputs.layouts import Inputs, Times, as_inputs, as_times_of_outputs, clocks_of
from ..inputs.observations import Data, read_observations
from ..inputs.rows import filled
from ..kernels.outputs import Lagged, outputs_of
from ..linalg.filters import kalman_stream
from ..linalg.filters.kalman_stream import Filtered
from ..parameters.tree import as_numpy
from ..posterior import Conditional, Model, Prediction, Result
from ..structure.approximate import NAMES, approximated
from ..structure.base import No
from ..structure.dense import variances
from ..structure.state_space import Where, chain_of, harmonics_of, not_along, places_of
from .conditioning import check_inputs, combined


@dataclasses.dataclass(frozen=True)
class Stream(Result):
    """A GP and the state of its filter at the last time that was seen, `time`; None before the first.

    An immutable value: `update` returns the stream with more observations. The parameters stay as they are.
    """

    gp: Model
    first: float | None
    time: float | None
    state: Filtered | None
    count: int  # how many times have been observed
    targets: int
    flat: bool
    engine: Kalman
    clocks: Clocks = ()  # how dates are counted, once there was an observation

    @by_the_host
    def update(self, t: Any, y: Any, noise: Any = None, missing: str = "error") -> Stream:
        """The stream after one more observation, or a batch of them, at or after the last time.

        `noise` and `missing` are those of `GP.condition`. An observation costs the same however many came before.
        """
        new, data = self._read(t, y, noise, missing)
        first = float(new.t[0]) if self.first is None else self.first
        if self.first is None:
            _chain_or_why(self.gp, first, self.engine)
        size = 2 ** int(np.ceil(np.log2(len(new))))
        rows, padded = filled(np.asarray(new.points)[np.asarray(new.order)], size), _padded(data, new.order, size)
        times = rows[:, 0]
        state = self.state if self.state is not None else _begin(self.gp, first, data.y.shape[1], self.engine)
        since = first if self.time is None else self.time
        state = jax.block_until_ready(_advance(self.gp, state, first, since, rows, padded, self.engine))
        if not (np.isfinite(state.log_det) and np.isfinite(state.gram).all()):
            raise ValueError(f"the filter broke down at times {times[0]:g} to {times[-1]:g}: give the likelihood more noise")
        count = self.count + int(data.seen.sum())
        told = {"first": first, "time": float(times[-1]), "state": state, "count": count, "clocks": clocks_of(new)}
        return dataclasses.replace(self, **told, targets=data.y.shape[1], flat=data.flat)

    @by_the_host
    def predict(self, t: Any) -> Prediction:
        """The belief about f at the last time or later: what `Fitted.predict` says there.

        Of several outputs t has rows (time, number of the output).
        """
        rows = _rows(self.gp, t, self._known_clocks, allow_empty=True)
        times = rows[:, 0]
        if self.time is not None and len(times) and times.min() < self.time:
            raise ValueError(
                f"a stream looks ahead only: {self._shown(times.min())} is before its last time {self._shown(self.time)}; "
                "condition a GP on the data to look back"
            )
        weights = self._weights()
        size = max(16, 2 ** int(np.ceil(np.log2(max(len(times), 1)))))
        places = filled(rows, size) if len(times) else np.tile([self.time or 0.0, 0.0][: rows.shape[1]], (size, 1))
        if self.state is None:
            mean, variance = _prior(self.gp, weights, places, self.targets)
        else:
            mean, variance = _ahead(self.gp, weights, self.state, self.first, self.time, places, self.targets, self.engine)
        mean, variance = np.asarray(mean)[: len(times)], np.asarray(variance)[: len(times)]
        if self.flat:
            return Prediction(mean[:, 0], variance, self.gp.likelihood, extra=self.gp.likelihood.told_by(rows, None))
        return Prediction(mean, np.repeat(variance[:, None], self.targets, axis=1), self.gp.likelihood)

    @property
    @by_the_host
    def log_evidence(self) -> float:
        """log p(y) of everything that was seen."""
        self._weights()
        return float(_integrate(self.gp, *self._sums(), float(self.count), self.targets)[0])

    def __getstate__(self) -> dict[str, Any]:
        """For pickle: arrays on the host."""
        return {field.name: as_numpy(getattr(self, field.name)) for field in dataclasses.fields(self)}

    def __repr__(self) -> str:
        until = "nothing seen" if self.time is None else f"{how_many(self.count, 'observation')} until {self._shown(self.time)}"
        return f"Stream({self.gp!r}, {until})"

    def empty_state(self) -> Filtered:
        """The shapes of the filter's state, without numbers."""
        first = jnp.zeros(()) if self.first is None else self.first
        return jax.eval_shape(lambda: _begin(self.gp, first, self.targets, self.engine))

    @property
    def _known_clocks(self) -> Clocks:
        return self.clocks or (() if self.time is None else (None,) * _width(self.gp))

    def _shown(self, time: Any) -> str:
        """A time as messages say it."""
        clock = self.clocks[0] if self.clocks else None
        return f"{time:g}" if clock is None else np.datetime_as_string(clock.shown([float(time)])[0], "auto")

    def _read(self, t: Any, y: Any, noise: Any, missing: str) -> tuple[Times, Data]:
        """Times and observations as checked arrays; a single time takes a number, or one for each target."""
        if np.ndim(t) == 0:
            t, y = np.reshape(t, 1), np.reshape(y, (1, *np.shape(y)))
        new = as_inputs(t, "t", clocks=self._known_clocks)
        if outputs_of(self.gp.kernel) is not None and new.dimension == 2:
            new = as_times_of_outputs(np.asarray(new.points), clocks_of(new))
        if not isinstance(new, Times):
            raise ValueError(f"a stream has one time for each observation, got {new!r}")
        if self.time is None:
            check_inputs(self.gp, new)
        elif new.t[0] < self.time:
            raise ValueError(
                f"a stream goes forwards: {self._shown(new.t[0])} is before its last time {self._shown(self.time)}; "
                "Fitted.update takes observations anywhere"
            )
        data = read_observations(self.gp.likelihood, y, noise, missing, new)
        if self.state is not None and data.y.shape[1] != self.targets:
            raise ValueError(f"update: y has {data.y.shape[1]} targets, but the stream was given {self.targets}")
        return new, data

    def _sums(self) -> tuple[Any, Any]:
        """log_det and gram so far."""
        if self.state is not None:
            return self.state.log_det, self.state.gram
        size = self.targets + columns(self.gp, jnp.zeros((1, _width(self.gp))))[1].shape[1]
        return jnp.zeros(()), jnp.zeros((size, size))

    def _weights(self) -> Weights:
        """The posterior of the basis weights, once the observations tell them apart."""
        _, weights, precision = _integrate(self.gp, *self._sums(), float(self.count), self.targets)
        lacking = _lacking(np.asarray(precision))
        if lacking:
            raise ValueError(
                f"{self.gp!r} leaves functions free that {how_many(self.count, 'observation')} cannot "
                f"tell apart: at least {lacking} more, at other times, {'is' if lacking == 1 else 'are'} needed"
            )
        return weights


def _lacking(precision: np.ndarray) -> int:
    """How many directions of the basis weights nothing is known of."""
    scale = np.sqrt(np.diagonal(precision))
    unit = np.where(scale > 0, scale, 1.0)
    values = np.linalg.eigvalsh(precision / np.outer(unit, unit))
    return int(np.sum(~(values > 8 * len(scale) * np.finfo(float).eps)))


def from_nothing(gp: Model, approximate: str | None) -> Stream:
    """A stream that has seen nothing yet."""
    if approximate not in (None, *NAMES):
        raise ValueError(f"approximate must be one of {list(NAMES)}, or None to be exact, got {approximate!r}")
    engine = Kalman(harmonics_of(gp.kernel), approximate=approximate)
    _chain_or_why(gp, None, engine)
    return Stream(gp, None, None, None, 0, 1, True, engine)


def from_fitted(gp: Model, inputs: Inputs, known: Conditional, data: Data, plan: Plan) -> Stream:
    """The stream that goes on after the data of a model that was conditioned by this plan."""
    if not isinstance(known, KalmanConditional):
        reason = next((offer.reason for offer in plan.offers if offer.engine.name == "Kalman" and offer.reason), None)
        because = f"here: {reason}" if reason else "condition with structure='markov'"
        raise ValueError(f"a stream needs the state of a filter, which the {plan.engine.name} engine does not have; {because}")
    engine = Kalman(known.engine.harmonics, approximate=known.engine.approximate)
    _chain_or_why(gp, float(known.t[0]), engine)
    filtered = known.smoothed
    state = Filtered(filtered.m[-1], filtered.P[-1], *known.log_det_and_gram())
    seen, t = int(np.sum(data.seen)), known.t
    return Stream(gp, float(t[0]), float(t[-1]), state, seen, data.y.shape[1], data.flat, engine, clocks_of(inputs))


def _width(gp: Model) -> int:
    """The columns that a stream has: a time, and of several outputs the number of one."""
    return 1 if outputs_of(gp.kernel) is None else 2


def _rows(gp: Model, t: Any, clocks: Clocks, allow_empty: bool = False) -> np.ndarray:
    points = as_inputs(np.reshape(t, 1) if np.ndim(t) == 0 else t, "t", allow_empty, clocks).points
    if points.shape[1] != _width(gp):
        what = "one time" if _width(gp) == 1 else "a time and the number of an output"
        raise ValueError(f"a stream has {what} for each place, got {points.shape[1]} columns")
    return np.asarray(points)


def _padded(data: Data, order: np.ndarray, size: int) -> Data:
    """The observations in the order of time, filled up with places where nothing was seen."""
    fill = lambda values: np.concatenate([values[order], np.zeros((size - len(values), *values.shape[1:]), values.dtype)])
    return Data(fill(data.y), fill(data.noise), fill(data.seen), True)


def _chain_or_why(gp: Model, first: float | None, engine: Kalman) -> None:
    """Refuse a kernel without a finite state, or times before its beginning."""
    found: list[Any] = []
    jax.eval_shape(lambda at: found.append(_chain(gp, at if first is None else first, engine)), jnp.zeros(()))
    if isinstance(found[0], No):
        raise ValueError(f"this model cannot be streamed: {found[0].reason}")


def _chain(gp: Model, first: Any, engine: Kalman) -> Any:
    """The chain of the process from its first time on, or why there is none."""
    if isinstance(gp.kernel, Lagged):
        return No("outputs with lags do not come in the order of their clocks")
    refused = not_along(gp.kernel) if _width(gp) == 2 else None
    if refused is not None:
        return refused
    return chain_of(approximated(gp.kernel, engine.approximate), Where(first, first, engine.harmonics))


@functools.partial(jax.jit, static_argnames=("targets", "engine"))
def _begin(gp: Model, first: Any, targets: int, engine: Kalman) -> Filtered:
    free = columns(gp, jnp.full((1, _width(gp)), first))[1].shape[1]
    return kalman_stream.begin(_chain(gp, first, engine), targets + free)


@functools.partial(jax.jit, static_argnames="engine")
def _advance(gp: Model, state: Filtered, first: Any, since: Any, t: Any, data: Data, engine: Kalman) -> Filtered:
    X = jnp.asarray(t)
    sites, new = sites_of(gp, X, data, jnp.max(variances(gp.kernel, X))), places_of(gp.kernel, X)
    chain = _chain(gp, first, engine)
    return kalman_stream.advance(chain, state, since, new.t, sites.precision, sites.targets, new.which)


@functools.partial(jax.jit, static_argnames="targets")
def _integrate(gp: Model, log_det: Any, gram: Any, count: Any, targets: int) -> tuple[Any, Weights, Any]:
    """The evidence, the weights, and their posterior precision."""
    evidence, weights = integrate(gp, log_det, gram, count, targets, _width(gp))
    of_mean = gp.mean.features(jnp.zeros(_width(gp))).shape[0]
    precision = gram[targets:, targets:].at[:of_mean, :of_mean].add(gp.mean.precision(of_mean))
    return evidence, weights, precision


@functools.partial(jax.jit, static_argnames="targets")
def _prior(gp: Model, weights: Weights, t: Any, targets: int) -> tuple[Any, Any]:
    X = jnp.asarray(t)
    means = jnp.zeros((len(t), targets + weights.factor.shape[0]))
    mean, U = combined(*columns(gp, X), weights, means, targets)
    return mean, variances(gp.kernel, X) + jnp.sum(U * U, axis=0)


@functools.partial(jax.jit, static_argnames=("targets", "engine"))
def _ahead(
    gp: Model, weights: Weights, state: Filtered, first: Any, time: Any, t: Any, targets: int, engine: Kalman
) -> tuple[Any, Any]:
    chain, X = _chain(gp, first, engine), jnp.asarray(t)
    new = places_of(gp.kernel, X)
    states = kalman_stream.ahead(chain, state, new.t - time)
    means, variance = read(chain, None, new, *states)
    mean, U = combined(*columns(gp, X), weights, means, targets)
    return mean, jnp.maximum(variance, 0.0) + jnp.sum(U * U, axis=0)
