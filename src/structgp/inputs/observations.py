"""Observations at the door: y, known noise, extra numbers and weights as checked arrays, every problem with one message."""

from __future__ import annotations

import dataclasses
from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import Bool, Float

from .._types import how_many
from ..likelihoods.base import Likelihood
from .layouts import Grid, Inputs
from .reading import describe_bad, few, read_numbers, rows_of, squares

INFER = "drop them, or pass missing='infer' to treat them as unobserved"


class Data(eqx.Module):
    """Observations: T targets at N places, the known part of their noise variances, and which of them were seen."""

    y: Float[Any, "*S N T"]  # of many series S at once
    noise: Float[Any, "*S Q"]  # one for each place, or one for all
    seen: Bool[Any, "*S R"]
    flat: bool = eqx.field(static=True, default=True)  # y came as a vector, so answers are vectors
    extra: Float[Any, " N"] | None = None  # what the likelihood wants to know besides: exposure, trials, censoring
    weight: Float[Any, " N"] | None = None  # how often each observation counts: its likelihood to this power
    gridded: bool = eqx.field(static=True, default=False)  # y came as an array over a grid, so answers on whole grids do too
    outputs: tuple[str, ...] | None = eqx.field(static=True, default=None)  # names, where y had a column for each output


def read_observations(
    likelihood: Likelihood, y: Any, noise: Any, missing: str, inputs: Inputs, extra: Any = None, weights: Any = None
) -> Data:
    """Observations as checked arrays; every problem gets one message that says what to do."""
    if not isinstance(missing, str) or missing not in ("error", "infer"):
        raise ValueError(f"missing must be 'error' or 'infer', got {missing!r}")
    values, _ = read_numbers(y, "y")
    if isinstance(inputs, Grid) and inputs.cells is None and values.ndim > 1 and values.shape == inputs.shape:
        noise, extra, weights = (part if np.ndim(part) < 2 else np.ravel(part) for part in (noise, extra, weights))
        return dataclasses.replace(
            read_observations(likelihood, values.ravel(), noise, missing, inputs, extra, weights), gridded=True
        )
    if values.ndim > 2 or len(values) != len(inputs):
        raise ValueError(
            f"y must have one value (or one row of targets) for each of the {len(inputs)} rows of X, got shape {values.shape}"
        )
    table = values.reshape(len(values), -1)
    if table.shape[1] == 0:
        raise ValueError("y has no columns: at least one target is needed")
    refuse_infinite(table)
    gone = np.isnan(table)
    if gone.any() and missing == "error":
        raise ValueError(lacking(y, gone))
    known = table[~gone.any(axis=1)]
    if not squares(known).all():
        raise ValueError(
            f"y reaches from {known.min():g} to {known.max():g}, beyond what can be squared in double precision: "
            "measure it in other units"
        )
    if (gone.any(axis=1) != gone.all(axis=1)).any():
        raise ValueError(
            "the targets are missing in different rows: fit them one at a time, "
            "or together by a kernel that knows of outputs, such as MaternFilters or LMC"
        )
    seen = ~gone[:, 0]
    variances = _read_noise(noise, len(inputs))
    if likelihood.is_gaussian:
        if extra is not None:
            raise ValueError("Gaussian observations have no extra: known noise variances go to noise=")
        weight = _read_weights(weights, len(inputs))
        return Data(np.where(seen[:, None], table, 0.0), variances, seen, values.ndim == 1, None, weight)
    return _for_likelihood(likelihood, table, variances, seen, values.ndim == 1, extra, weights)


def read_known(likelihood: Likelihood, y: Any, inputs: Inputs) -> Float[np.ndarray, " N"]:
    """One target without known noise, for what takes no missing values."""
    values, _ = read_numbers(y, "y")
    gone = np.isnan(values)
    if gone.any():
        raise ValueError(lacking(y, gone, "drop these rows"))
    data = read_observations(likelihood, values, None, "error", inputs)
    if data.y.shape[1] > 1:
        raise ValueError(f"y has {data.y.shape[1]} columns, and one target is taken here: fit them one at a time")
    return np.asarray(data.y)[:, 0]


def refuse_infinite(table: np.ndarray) -> None:
    """Say where values are infinite."""
    infinite = np.isinf(table)
    if infinite.any():
        bad = describe_bad(np.where(infinite, table, 0))
        raise ValueError(f"y has {bad} ({rows_of(infinite)}): drop or replace these values")


def lacking(y: Any, gone: np.ndarray, remedy: str = INFER) -> str:
    """What to do about values that were not seen."""
    count = int(gone.sum())
    met = f"is masked in {how_many(count, 'place')}" if isinstance(y, np.ma.MaskedArray) else f"has {count} NaN"
    return f"y {met} ({rows_of(gone)}): {remedy}"


def _for_likelihood(
    likelihood: Likelihood, table: np.ndarray, noise: np.ndarray, seen: np.ndarray, flat: bool, extra: Any, weights: Any
) -> Data:
    """Observations that are not Gaussian, as their likelihood wants them."""
    name = type(likelihood).__name__
    if table.shape[1] > 1:
        raise ValueError(f"{name} takes one target, got {table.shape[1]}: fit them one at a time")
    if noise.any():
        raise ValueError(f"noise variances are for Gaussian observations, not for {name}: leave them out")
    if not seen.any():
        raise ValueError("y has no observed value: at least one is needed")
    more = None
    if extra is not None:
        if likelihood.extra_name is None:
            raise ValueError(f"{name} wants nothing to be known besides y: leave out extra")
        more = _one_or_each(extra, likelihood.extra_name)
        if more.shape not in ((1,), (len(seen),)):
            raise ValueError(
                f"{likelihood.extra_name} must be one number, or one for each of the {len(seen)} observations, "
                f"got shape {more.shape}"
            )
        bad = ~np.isfinite(more)
        if bad.any():
            raise ValueError(
                f"{likelihood.extra_name} has {describe_bad(more)} ({rows_of(bad)}): give finite numbers, or drop these rows"
            )
        more = np.broadcast_to(more, seen.shape).copy()
    y = likelihood.check(np.where(seen, table[:, 0], np.nan), more)
    y = np.where(seen, y, y[np.argmax(seen)])  # an unseen value is never looked at, but must be one that could be seen
    return Data(y[:, None], noise, seen, flat, more, _read_weights(weights, len(seen)))


def joined(old: np.ndarray | None, new: np.ndarray | None, before: int, after: int) -> np.ndarray | None:
    """Numbers for the old and the new observations; 1 for those that came without."""
    if old is None and new is None:
        return None
    parts = [np.ones(count) if part is None else part for part, count in ((old, before), (new, after))]
    return np.concatenate(parts)


def _read_weights(weights: Any, count: int) -> np.ndarray | None:
    if weights is None:
        return None
    values, _ = read_numbers(weights, "weights")
    if values.shape != (count,) or not np.isfinite(values).all() or (values < 0).any() or not values.any():
        shape, odd = values.shape, few(np.ravel(values)[~(np.isfinite(np.ravel(values)) & (np.ravel(values) >= 0))])
        got = f"got {odd} among them" if odd else f"got shape {shape}" if shape != (count,) else "got only 0"
        raise ValueError(f"weights must be {count} finite numbers, none of them negative and not all 0: {got}")
    return values


def _one_or_each(values: Any, name: str) -> np.ndarray:
    """One number, or an array of them."""
    one = isinstance(values, (int, float, np.generic)) or (isinstance(values, np.ndarray) and not values.ndim)
    return read_numbers(np.reshape(values, 1) if one else values, name)[0]


def _read_noise(noise: Any, count: int) -> np.ndarray:
    if noise is None:
        return np.zeros(count)
    known = _one_or_each(noise, "noise")
    if known.shape not in ((1,), (count,)):
        raise ValueError(f"noise must be one variance, or one for each of the {count} observations, got shape {known.shape}")
    if not np.isfinite(known).all() or (known < 0).any():
        raise ValueError("noise must hold variances: finite and not negative")
    return np.broadcast_to(known, (count,)).copy()
