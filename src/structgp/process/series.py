"""Many series, one model: conditioned, learned and predicted in batches, with parameters shared or their own."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Sequence
from typing import Any, overload

import jax
import numpy as np

from .._types import Seed, double_precision, whole
from ..engines.base import form_by_shape
from ..engines.diagnose import why_not_positive
from ..engines.kalman import Kalman, KalmanConditional
from ..engines.plan import plan
from ..inputs.clock import Clocks, without_dates
from ..inputs.layouts import Times, as_inputs, clocks_of, new_times
from ..inputs.observations import Data, read_observations
from ..inputs.reading import read_numbers
from ..learn.account import Learning
from ..learn.clock import Deadline
from ..learn.many import Batch, batches_of, engine_for, maximise_apart, maximise_shared, over_series, summed
from ..parameters.tree import as_numpy
from ..posterior import Model, Prediction, Result
from ..structure.base import No
from ..structure.state_space import harmonics_of
from .conditioning import Conditioned, Posterior, check_inputs, posterior_of
from .fitted import Fitted


@dataclasses.dataclass(frozen=True)
class _Known:
    """What is known of a batch of series, stacked."""

    batch: Batch
    posterior: Posterior


@dataclasses.dataclass(frozen=True, eq=False)
class FittedSeries(Result, Sequence[Fitted]):
    """A GP given many series: a sequence with one `Fitted` for each.

    `learning` says how the parameters were found: one account, or one for each series when they have parameters of their own.
    """

    models: Model  # every number has one more axis, of length S, in front
    inputs: tuple[Times, ...]
    data: tuple[Data, ...]
    known: tuple[_Known, ...]
    log_evidences: np.ndarray
    learnings: tuple[Learning, ...] = ()

    @property
    def log_evidence(self) -> float:
        """The log evidence of all series together."""
        return float(self.log_evidences.sum())

    @property
    def learning(self) -> Learning | None:
        """How learning ended, in all series together."""
        return summed(self.learnings) if self.learnings else None

    @property
    def fitted(self) -> FittedSeries:
        """The series one by one: ``many.fitted[3]`` is ``many[3]``."""
        return self

    @double_precision
    def predict(self, X: Any) -> tuple[Prediction, ...]:
        """The belief about every series at new times: an array for all of them, or a list with one array for each."""
        clocks = clocks_of(self.inputs[0])
        new = [new_times(x, clocks, f"X[{s}]") for s, x in enumerate(X)] if _is_list(X) else []
        new = new or [new_times(X, clocks)] * len(self)
        if len(new) != len(self):
            raise ValueError(
                f"predict needs new times for each of the {len(self)} series, or one array for all, got {len(new)}"
            )
        size = max(16, 2 ** int(np.ceil(np.log2(max(max(map(len, new)), 1)))))
        filled = np.stack([np.concatenate([t, np.full(size - len(t), t[-1] if len(t) else 0.0)]) for t in new])
        predictions: list[Any] = [None] * len(self)
        for known in self.known:
            index = known.batch.index
            mean, variance = (np.asarray(p) for p in _marginals(known.posterior, filled[index]))
            for row, s in enumerate(index):
                count, likelihood = len(new[s]), _picked(self.models.likelihood, s)
                predictions[s] = Prediction(mean[row, :count, 0], variance[row, :count], likelihood)
        return tuple(predictions)

    def __len__(self) -> int:
        return len(self.inputs)

    @overload
    def __getitem__(self, at: int) -> Fitted: ...

    @overload
    def __getitem__(self, at: slice) -> tuple[Fitted, ...]: ...

    def __getitem__(self, at: int | slice) -> Fitted | tuple[Fitted, ...]:
        if isinstance(at, slice):
            return tuple(self[s] for s in range(len(self))[at])
        if not -len(self) <= at < len(self):
            raise IndexError(f"there are {len(self)} series, counted from 0: {at} is not one of them")
        return self._one(at % len(self))

    def __iter__(self) -> Iterator[Fitted]:
        return (self[s] for s in range(len(self)))

    @double_precision
    def _one(self, s: int) -> Fitted:
        known = next(known for known in self.known if s in known.batch.index)
        posterior = _picked(known.posterior, int(np.flatnonzero(known.batch.index == s)[0]))
        posterior = dataclasses.replace(posterior, conditional=_cut(posterior.conditional, len(self.inputs[s])))
        gp, inputs = posterior.prior, self.inputs[s]
        learning = self.learnings[s % len(self.learnings)] if self.learnings else None
        chosen = plan(gp, inputs, "markov", data=self.data[s]).run_by(posterior.conditional.engine)
        return Fitted.of(gp, inputs, self.data[s], Conditioned(posterior, chosen), learning)

    def __repr__(self) -> str:
        places = sum(len(inputs) for inputs in self.inputs)
        return f"FittedSeries({len(self)} series, {places} places, log evidence {self.log_evidence:.6g})"


def _picked(tree: Any, at: Any) -> Any:
    """One of a stack of values, or some."""
    return jax.tree.map(lambda leaf: np.asarray(leaf)[at], tree)


def _cut(conditional: KalmanConditional, count: int) -> KalmanConditional:
    """Without the places that filled the series up; nothing was seen there, so nothing changes."""
    long = (conditional.t, conditional.sites, conditional.smoothed, conditional.which, conditional.rank)
    t, sites, smoothed, which, rank = jax.tree.map(lambda leaf: leaf[:count], long)
    return dataclasses.replace(conditional, t=t, sites=sites, smoothed=smoothed, which=which, rank=rank)


def condition_series(gp: Model, X: Any, y: Any, noise: Any, missing: str) -> FittedSeries:
    """All series given their data, with the parameters as they are."""
    inputs, data = read_series(gp, X, y, noise, missing)
    return conditioned(repeated(gp, len(inputs)), inputs, data, batches_of(inputs, data), ())


def fit_series(
    gp: Model,
    X: Any,
    y: Any,
    noise: Any,
    missing: str,
    shared: bool,
    restarts: int,
    seed: Seed,
    max_evaluations: int,
    progress: Any,
    seconds: float | Deadline | None,
) -> FittedSeries:
    """Learn the parameters of all series, then condition."""
    deadline = Deadline.after(seconds)
    restarts, max_evaluations = whole(restarts, "restarts"), whole(max_evaluations, "max_evaluations", 1)
    inputs, data = read_series(gp, X, y, noise, missing)
    batches = batches_of(inputs, data)
    options: dict[str, Any] = {"restarts": restarts, "seed": seed, "max_evaluations": max_evaluations, "progress": progress}
    options["deadline"] = deadline
    if not shared:
        models, learnings = maximise_apart(gp, inputs, data, batches, **options)
        return conditioned(models, inputs, data, batches, learnings)
    learned, learning = maximise_shared(gp, inputs, data, batches, **options)
    return conditioned(repeated(learned, len(inputs)), inputs, data, batches, (learning,))


def repeated(gp: Model, count: int) -> Model:
    """A model as many times, stacked along the first axis of every number."""
    return jax.tree.map(lambda leaf: np.broadcast_to(np.asarray(leaf), (count, *np.shape(leaf))), gp)


def conditioned(
    models: Model,
    inputs: tuple[Times, ...],
    data: tuple[Data, ...],
    batches: tuple[Batch, ...],
    learnings: tuple[Learning, ...],
) -> FittedSeries:
    """Series given their data, each by its own of the stacked models."""
    engine = engine_for(models)
    evidences, known = np.zeros(len(inputs)), []
    for batch in batches:
        posterior = as_numpy(_condition(_picked(models, batch.index), batch.inputs, batch.data, engine))
        evidences[batch.index] = posterior.log_evidence
        known.append(_Known(batch, posterior))
    bad = np.flatnonzero(~np.isfinite(evidences))
    if len(bad):
        s = int(bad[0])
        raise ValueError(f"series {s}: {why_not_positive(_picked(models, s), inputs[s], data[s])}")
    return FittedSeries(models, inputs, data, tuple(known), evidences, learnings)


@functools.partial(jax.jit, static_argnames="engine")
def _condition(models: Model, inputs: Times, data: Data, engine: Kalman) -> Posterior:
    return over_series(functools.partial(posterior_of, engine=engine), models, inputs, data)


@jax.jit
def _marginals(posteriors: Posterior, t: Any) -> tuple[Any, Any]:
    return over_series(lambda posterior, t: posterior.marginals(t[:, None]), posteriors, t)


def _is_list(X: Any) -> bool:
    """Whether this is one entry for each series, and not one array for all."""
    return isinstance(X, (list, tuple)) and any(np.ndim(x) > 0 for x in X)


def read_series(gp: Model, X: Any, y: Any, noise: Any, missing: str) -> tuple[tuple[Times, ...], tuple[Data, ...]]:
    """Series as checked arrays: lists with one entry for each, or times X (N,) and a panel y (N, S) with a column for each."""
    if _is_list(X):
        if not isinstance(y, (list, tuple)) or len(y) != len(X):
            got = f"{len(y)}" if isinstance(y, (list, tuple)) else f"a {type(y).__name__}"
            raise ValueError(f"X is a list of {len(X)} series, so y must be a list of {len(X)} as well, got {got}")
        Xs, ys = list(X), list(y)
    else:
        panel, _ = read_numbers(y, "y")
        ys = list(panel.reshape(len(panel), -1).T)
        Xs = [as_inputs(X, clocks=())] * len(ys)
    noises = noise if isinstance(noise, (list, tuple)) else [noise] * len(Xs)
    if len(noises) != len(Xs):
        raise ValueError(
            f"noise must be one for all, or a list with one entry for each of the {len(Xs)} series, got {len(noises)}"
        )
    if not Xs:
        raise ValueError("there are no series: at least one is needed")
    clocks = without_dates(Xs[0], "X", ())[1]  # those of the first series count for all
    read = [read_one(gp, s, *series, missing, clocks) for s, series in enumerate(zip(Xs, ys, noises, strict=True))]
    inputs, data = zip(*read, strict=True)
    check_chains(gp, inputs)
    return inputs, data


def read_one(gp: Model, s: Any, X: Any, y: Any, noise: Any, missing: str, clocks: Clocks) -> tuple[Times, Data]:
    """One series as checked arrays; `s` is its number or its name, for messages."""
    try:
        inputs = as_inputs(X, clocks=clocks)
        data = read_observations(gp.likelihood, y, noise, missing, inputs)
    except (ValueError, TypeError) as problem:
        raise type(problem)(f"series {s!r}: {problem}") from None
    if not isinstance(inputs, Times) or data.y.shape[1] > 1:
        what = f"X has {inputs.dimension} columns" if not isinstance(inputs, Times) else f"y has {data.y.shape[1]} columns"
        raise ValueError(f"series {s!r}: {what}, but a series has one value for each time")
    return inputs, data


def check_chains(gp: Model, inputs: Sequence[Times]) -> None:
    """Refuse kernels that are not chains, by the reason; the series that begins first decides."""
    earliest = min(inputs, key=lambda times: times.t[0])
    check_inputs(gp, earliest)
    form = form_by_shape(Kalman(harmonics_of(gp.kernel)), gp.kernel, earliest)
    if isinstance(form, No):
        raise ValueError(
            f"series are batched along their states, which this model does not have: {form.reason}; fit them one by one"
        )
