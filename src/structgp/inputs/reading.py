"""Numbers from arrays and data frames, every problem with one message."""

from __future__ import annotations

import datetime
import reprlib
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import Float

HUGE, TINY = 1e150, 1e-150  # what lies beyond cannot be squared


def read_table(X: Any, name: str = "X", allow_empty: bool = False) -> tuple[Float[np.ndarray, "N D"], list[str] | None]:
    """A table of finite numbers and its column names, if it has any; anything else gets one clear message."""
    array, columns = read_numbers(X, name)
    if array.ndim == 1:
        array = array[:, None]
    if array.ndim != 2:
        raise ValueError(
            f"{name} must have one row for each observation and one column for each input, got shape {array.shape}"
        )
    if array.shape[0] == 0 and not allow_empty:
        raise ValueError(f"{name} is empty: at least one row is needed")
    if array.shape[1] == 0:
        raise ValueError(f"{name} has no columns: at least one input is needed")
    masked = np.ma.getmaskarray(X) if isinstance(X, np.ma.MaskedArray) else None
    if masked is not None and masked.any():
        raise ValueError(f"{name} is masked in {rows_of(masked)}: inputs must be known; drop these rows or fill them in")
    bad = ~np.isfinite(array)
    if bad.any():
        labels = [columns[c] if columns else str(c) for c in np.flatnonzero(bad.any(axis=0))]
        raise ValueError(
            f"{name} has {describe_bad(array)} ({rows_of(bad)}; {listed('column', labels)}): "
            "inputs must be known; drop these rows or fill them in"
        )
    for d in np.flatnonzero(~squares(array)):
        label = columns[d] if columns else str(d)
        raise ValueError(
            f"{name} reaches {_largest(array[:, d]):g} and varies by {np.ptp(array[:, d]):g} in column {label}, beyond what "
            "can be squared in double precision: measure it in other units"
        )
    return array, columns


def squares(table: np.ndarray) -> np.ndarray:
    """For each column, whether its values and the differences between them can be squared."""
    if not len(table):
        return np.ones(table.shape[1], bool)
    with np.errstate(over="ignore"):
        spread = np.ptp(table, axis=0)
    return (np.abs(table).max(axis=0) < HUGE) & ((spread == 0) | (spread > TINY))


def _largest(column: np.ndarray) -> float:
    return column[np.argmax(np.abs(column))]


def read_numbers(values: Any, name: str) -> tuple[np.ndarray, list[str] | None]:
    """A float64 array from an array or a data frame (pandas, polars, Arrow …), with its column names."""
    values = unmasked(values)
    plain = isinstance(values, (np.ndarray, list, tuple, jax.Array))
    values, columns = (values, None) if plain else _from_frame(values, name)
    if hasattr(values, "toarray") and hasattr(values, "tocsr"):
        raise TypeError(f"{name} is a sparse matrix, but dense data are needed: pass {name}.toarray()")
    try:
        array = np.asarray(values)
    except ValueError:
        raise ValueError(f"{name} is ragged: every row needs the same number of columns") from None
    if array.ndim == 0:
        met = reprlib.repr(values)
        raise ValueError(f"{name} must be an array, got the single value {met}; reshape your data to one row per observation")
    if array.dtype.kind == "c":
        raise ValueError(f"{name}: Complex data not supported; pass real and imaginary parts as columns of their own")
    if array.dtype.kind in "mM":
        raise TypeError(
            f"{name} holds dates or durations: convert them to numbers first, for instance to days since the first one by "
            f"({name} - {name}.min()) / np.timedelta64(1, 'D')"
        )
    try:
        return array.astype(np.float64), columns
    except OverflowError:
        place, _ = _first_text(array)
        raise ValueError(f"{name} holds a whole number beyond 1.8e308 (row {place[0]}): give numbers in other units") from None
    except (TypeError, ValueError):
        place, entry = _first_text(array)
        column = f" of column {columns[place[1]]!r}" if columns else ""
        met = f"{name} must be numeric, but row {place[0]}{column} holds {entry!r}"
        if isinstance(entry, datetime.date) or (isinstance(entry, str) and _is_date(entry)):
            raise TypeError(f"{met}, a date: make it one by np.array({name}, dtype='datetime64[s]')") from None
        if isinstance(entry, str):
            raise ValueError(f"{met}: encode text as numbers, or leave the column out") from None
        raise TypeError(f"{met}: each argument must be a string that reads as a number, or a number") from None


def unmasked(values: Any) -> Any:
    """An array with NaN, or no date, for what is under its mask; anything else as it is."""
    if not isinstance(values, np.ma.MaskedArray):
        return values
    if values.dtype.kind in "biuf":
        return np.ma.filled(values.astype(np.float64), np.nan)
    return np.ma.filled(values, np.nan if values.dtype.kind == "O" else None)


def _from_frame(values: Any, name: str) -> tuple[Any, list[str] | None]:
    """What a data frame or a series holds, and its column names; anything else as it is."""
    import narwhals as nw

    frame = as_frame(values, name)
    if isinstance(frame, nw.LazyFrame):
        raise TypeError(f"{name} is a lazy frame: collect it first")
    if isinstance(frame, nw.Series):
        return frame.to_numpy(), None
    if not isinstance(frame, nw.DataFrame):
        return values, None
    numeric = lambda dtype: dtype.is_numeric() or dtype in (nw.Boolean, nw.Object)
    text = [f"{c.name!r} ({c.dtype})" for c in frame.iter_columns() if not numeric(c.dtype)]
    if text:
        raise TypeError(f"{name} has columns that are not numeric: {few(text, 4)}; encode them as numbers or leave them out")
    return frame.to_numpy(), [str(column) for column in frame.columns]


def as_frame(values: Any, name: str, allow_series: bool = True) -> Any:
    """A data frame or a series, whose ever it is, as one of narwhals; anything else as it is."""
    import narwhals as nw

    try:
        return nw.from_native(values, allow_series=allow_series, pass_through=True)
    except nw.exceptions.DuplicateError:
        raise ValueError(f"{name} has two columns of the same name: rename one of them") from None


def _is_date(text: str) -> bool:
    try:
        return len(text) >= 8 and not np.isnat(np.datetime64(text))
    except ValueError:
        return False


def missing_labels(y: Any) -> np.ndarray:
    """The rows of labels that are missing: None, NaN, or what a data frame or a mask has in place of them."""
    mask = np.ma.getmaskarray(y) if isinstance(y, np.ma.MaskedArray) else False
    values = np.asarray(y, dtype=object)
    gone = [v is None or type(v).__name__ in ("NAType", "NaTType") or (isinstance(v, float) and v != v) for v in values.ravel()]
    return np.flatnonzero(np.reshape(gone, values.shape) | mask)


def _first_text(array: np.ndarray) -> tuple[tuple[int, ...], Any]:
    """The place and the value of the first entry that is not a number."""
    for index, entry in np.ndenumerate(array):
        try:
            float(entry)
        except (TypeError, ValueError, OverflowError):
            return index, entry.item() if isinstance(entry, np.generic) else entry
    return (0,) * array.ndim, array.flat[0]


def describe_bad(array: np.ndarray) -> str:
    """'3 NaN and 1 infinite value': what is wrong, counted; scikit-learn's users look for the word NaN or infinity."""
    nan, inf = int(np.isnan(array).sum()), int(np.isinf(array).sum())
    parts = [f"{nan} NaN"] if nan else []
    parts += [f"{inf} infinity"] if inf else []
    return " and ".join(parts)


def listed(what: str, items: Sequence[Any] | np.ndarray, most: int = 5) -> str:
    """'row 4', 'rows 4, 17, 90': which they are."""
    return f"{what}{'' if len(items) == 1 else 's'} {few(items, most)}"


def rows_of(bad: np.ndarray) -> str:
    """'row 4', 'rows 4, 17, 90': the rows of a table in which something is so."""
    return listed("row", np.unique(np.nonzero(bad)[0]))


def few(items: Sequence[Any] | np.ndarray, most: int = 5) -> str:
    """The first few of a list, and how many more there are."""
    shown = ", ".join(str(item) for item in list(items)[:most])
    return shown if len(items) <= most else f"{shown}, … {len(items) - most} more"
