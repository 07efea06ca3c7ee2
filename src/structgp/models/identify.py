"""What system turns an input into an output: a Gaussian process on its impulse response, with what that says of it.

The default prior is that of `impulse_prior`, averaged over its hyperparameters; least squares, TC, DC and a rational model by
its poles stand beside it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..inputs.reading import listed, read_numbers, rows_of
from .analog import identify_analog
from .even_steps import FEWEST, identify_one
from .identified import Identified, as_table

METHODS = ("gp", "dc", "tc", "ls", "poles", "joint", "analog")
LENGTHS = (None, "bic", "aicc")  # by which criterion that of a least-squares response is chosen


def identify(
    u: Any,
    y: Any,
    dt: float = 1.0,
    *,
    lags: int | None = None,
    method: str = "gp",
    length: str | None = None,
    t: Any = None,
    seed: int = 0,
) -> Identified | tuple[Identified, ...]:
    """The system that makes y of u, from records at even steps dt: an `Identified`, or one for each column of y.

    u (N,) or (N, k) may begin earlier than y: then the past of the first outputs is known, else it is averaged over or, of long
    records, of long responses and by the other methods, the first outputs are left out. NaN in y are values that were not seen.
    `lags` is the number of steps of the response. `method` is "gp", "dc" or "tc" (kernels of the response), "ls", least squares
    (with `length` "bic" or "aicc" its length is chosen), "poles", a rational model, or "joint": u and y as dependent outputs of
    one process, which also averages over gaps (NaN) in u. "analog" is a rational system in continuous time, for inputs that
    change slowly between rows: it takes gaps in both records, and times `t` of the rows of u that need not be even.
    """
    inputs, outputs = as_table(u, "u"), as_table(y, "y")
    if method not in METHODS:
        raise ValueError(f"method must be one of {list(METHODS)}, got {method!r}")
    if length not in LENGTHS:
        raise ValueError(f"length must be 'bic', 'aicc' or None, got {length!r}")
    if length is not None and method != "ls":
        raise ValueError(f"length={length!r} is for method='ls': a prior says how long a response is for method={method!r}")
    for name, record in (("u", inputs), ("y", outputs)):
        if np.isinf(record).any():
            raise ValueError(f"{name} is infinite ({rows_of(np.isinf(record))}): correct these values, or make them NaN")
    gaps = np.flatnonzero(np.isnan(inputs).any(axis=1))
    if len(gaps) and method not in ("joint", "analog"):
        raise ValueError(f"u has gaps ({listed('row', gaps)}): inputs must be known, or pass method='joint', which fills them")
    if t is not None and method != "analog":
        raise ValueError(f"times are for method='analog', and method={method!r} counts steps: leave out t, pass dt")
    if len(gaps) and np.any(np.isfinite(inputs).sum(axis=0) < FEWEST):
        raise ValueError(f"each input needs at least {FEWEST} values, got {np.isfinite(inputs).sum(axis=0).tolist()}")
    if len(inputs) < len(outputs):
        raise ValueError(f"u has {len(inputs)} rows and y {len(outputs)}: u must be as long as y, or begin earlier")
    if isinstance(dt, bool) or not isinstance(dt, (int, float, np.number)) or not 0 < dt < np.inf:
        raise ValueError(f"dt must be a positive number, the time from one row to the next, got {dt!r}")
    still = np.flatnonzero(np.nanmax(inputs, axis=0) == np.nanmin(inputs, axis=0)) if len(inputs) else np.zeros(0)
    if len(still):
        raise ValueError(f"u does not change ({listed('column', still)}): a system is seen by what it makes of changes")
    if method == "analog":
        at = _times(t, len(inputs), dt)
        systems = tuple(identify_analog(inputs, column, at, lags, seed) for column in outputs.T)
        return systems if len(systems) > 1 else systems[0]
    if outputs.shape[1] > 1:
        options: dict[str, Any] = {"lags": lags, "method": method, "length": length, "seed": seed}
        return tuple(identify_one(inputs, column, dt, **options) for column in outputs.T)
    return identify_one(inputs, outputs[:, 0], dt, lags, method, length, seed)


def _times(t: Any, rows: int, dt: float) -> np.ndarray:
    """The times of the rows of u."""
    if t is None:
        return dt * np.arange(rows)
    at = np.asarray(read_numbers(t, "t")[0], dtype=float).ravel()
    if len(at) != rows or not np.all(np.diff(at) > 0):
        why = f"got {len(at)}" if len(at) != rows else "but they do not grow"
        raise ValueError(f"t needs the time of each of the {rows} rows of u, in their order, {why}")
    return at
