"""Dates as inputs: numbers in a stated unit from a stated origin, which are kept so that new dates mean the same."""

from __future__ import annotations

import datetime
import zoneinfo
from typing import Any

import equinox as eqx
import numpy as np

from .._types import how_many
from .reading import as_frame, rows_of, unmasked

SECONDS = {"weeks": 604800.0, "days": 86400.0, "hours": 3600.0, "minutes": 60.0, "seconds": 1.0}
DAY = 86400


class Clock(eqx.Module):
    """How dates in one column are counted: `unit`s since the `origin`, whole seconds after the beginning of 1970.

    Dates with a time zone are instants, counted in UTC; `zone` is the one to show them in.
    """

    origin: Any
    unit: str = eqx.field(static=True, default="days")
    zone: str | None = eqx.field(static=True, default=None)

    def numbers(self, dates: np.ndarray) -> np.ndarray:
        """Dates (datetime64, in UTC where there is a zone) as numbers."""
        return (dates - self._origin) / np.timedelta64(1, "s") / SECONDS[self.unit]

    def dates(self, numbers: Any) -> np.ndarray:
        """The dates that numbers stand for, to the microsecond; in UTC where there is a zone."""
        since = np.asarray(numbers, dtype=np.float64) * SECONDS[self.unit] * 1e6
        return self._origin.astype("M8[us]") + np.round(since).astype("m8[us]")

    def in_utc(self, zone: str | None, name: str) -> Clock:
        """The same clock for dates that were brought from a zone to UTC already."""
        _check_zone(zone, self, name)
        return Clock(self.origin, self.unit)

    def shown(self, numbers: Any) -> Any:
        """The same as a clock on the wall shows them: in the zone, where there is one that is known by name."""
        dates = self.dates(numbers)
        try:
            zone = zoneinfo.ZoneInfo(self.zone) if self.zone else None
        except (zoneinfo.ZoneInfoNotFoundError, ValueError):
            zone = None
        if zone is None:
            return dates
        there = [date.replace(tzinfo=datetime.UTC).astimezone(zone).replace(tzinfo=None) for date in dates.tolist()]
        return np.array(there, dtype="M8[us]")

    @property
    def _origin(self) -> np.datetime64:
        return np.datetime64(int(self.origin), "s")

    def __repr__(self) -> str:
        day = str(self._origin).removesuffix("T00:00:00")
        return f"{self.unit} since {day}" + (f" UTC, from {self.zone}" if self.zone else "")


Clocks = tuple[Clock | None, ...]


def without_dates(X: Any, name: str, clocks: Clocks, unit: str = "days") -> tuple[Any, Clocks]:
    """X with its dates as numbers, by clocks that are known (for each column) or, when there are none, by new ones.

    New clocks count from midnight before the first date. What holds no dates comes back as it is, and without clocks.
    """
    X = unmasked(X) if isinstance(X, np.ndarray) and X.dtype.kind in "MO" else X
    if str(getattr(X, "dtype", "")).startswith("period["):  # of pandas: where they begin
        X = X.dt.to_timestamp() if hasattr(X, "dt") else X.to_timestamp()
    columns = _columns(X)
    found = [None if column is None else _dates(column, name) for column in columns]
    if not any(part is not None for part in found):
        return X, ()
    known = clocks or tuple(None if part is None else _new(*part, unit) for part in found)
    if len(known) != len(found):
        raise ValueError(
            f"{name} has {how_many(len(found), 'column')}, but the model was given {len(known)}: pass the same inputs"
        )
    table = [_counted(*parts, name) for parts in zip(columns, found, known, strict=True)]
    return (table[0] if _is_flat(X) else np.stack(table, axis=1)), known


def _is_flat(X: Any) -> bool:
    return len(np.shape(X)) == 1


def _columns(X: Any) -> list[Any]:
    """The columns of what may hold dates; nothing is copied where there can be none."""
    import narwhals as nw

    if isinstance(X, np.ndarray) and X.dtype.kind not in "MO":
        return []
    frame = as_frame(X, "X")
    if isinstance(frame, nw.Series):
        return [frame]
    if isinstance(frame, nw.DataFrame):
        temporal = any(isinstance(dtype, (nw.Datetime, nw.Date, nw.Object)) for dtype in frame.schema.values())
        return [frame[column] for column in frame.columns] if temporal else []
    if not _may_be_dates(X):
        return []
    array = np.asarray(X) if isinstance(X, np.ndarray) else np.asarray(X, dtype=object)
    if array.dtype == object and array.size and isinstance(array.flat[0], np.datetime64):
        array = np.asarray(X, dtype="M8")
    return [array] if array.ndim == 1 else list(array.T) if array.ndim == 2 else []


def _may_be_dates(X: Any) -> bool:
    """Whether the first row of an array or a list has a date in it."""
    if isinstance(X, np.ndarray) and X.dtype.kind == "M":
        return True
    try:
        first = X[0]
    except (KeyError, IndexError, TypeError, NotImplementedError):
        return False
    row = first if isinstance(first, (list, tuple, np.ndarray)) and np.ndim(first) else [first]
    return any(isinstance(entry, (datetime.date, np.datetime64)) for entry in row)


def _dates(column: Any, name: str) -> tuple[np.ndarray, str | None] | None:
    """A column as datetime64 and its zone, or None if it holds no dates."""
    import narwhals as nw

    zone = None
    if isinstance(column, nw.Series) and isinstance(column.dtype, nw.Object):
        column = column.to_numpy()
    if isinstance(column, nw.Series):
        if not isinstance(column.dtype, (nw.Datetime, nw.Date)):
            return None
        zone = getattr(column.dtype, "time_zone", None)
        if zone is not None:
            column = column.dt.convert_time_zone("UTC").dt.replace_time_zone(None)
        values = column.to_numpy()
        dates = values.astype("M8[D]" if values.dtype.kind == "O" else values.dtype)
    elif column.dtype.kind == "M":
        dates = column
    elif column.dtype == object and len(column) and isinstance(column[0], datetime.date):
        zone = _zone_of(column[0])
        dates = np.array([_instant(entry, zone, name) for entry in column], dtype="M8[us]")
    else:
        return None
    gone = np.isnat(dates)
    if gone.any():
        met = f"{how_many(int(gone.sum()), 'missing date')} ({rows_of(gone)})"
        raise ValueError(f"{name} has {met}: inputs must be known; drop these rows")
    return dates, zone


def _zone_of(date: Any) -> str | None:
    zone = getattr(date, "tzinfo", None)
    return None if zone is None else str(getattr(zone, "key", None) or zone)


def _instant(date: Any, zone: str | None, name: str) -> Any:
    """A date of Python's as NumPy takes it: in UTC, if it says where it is."""
    if not isinstance(date, datetime.date):
        return np.datetime64("NaT") if date is None else date
    if date != date:  # pandas' NaT calls itself a date
        return np.datetime64("NaT")
    if (getattr(date, "tzinfo", None) is None) != (zone is None):
        raise ValueError(f"{name} mixes dates with and without a time zone: give all of them one")
    return date.astimezone(datetime.UTC).replace(tzinfo=None) if zone is not None else date  # type: ignore[attr-defined]


def _new(dates: np.ndarray, zone: str | None, unit: str) -> Clock:
    if unit not in SECONDS:
        raise ValueError(f"the unit of dates must be one of {list(SECONDS)}, got {unit!r}")
    first = int(dates.min().astype("M8[s]").astype(np.int64)) if len(dates) else 0
    return Clock(np.asarray(first - first % DAY), unit, zone)


def _counted(column: Any, dates: tuple[np.ndarray, str | None] | None, clock: Clock | None, name: str) -> np.ndarray:
    """One column as numbers."""
    if dates is None:
        return column.to_numpy() if hasattr(column, "to_numpy") else column
    if clock is None:
        raise ValueError(f"{name} holds dates where the model was given numbers: pass numbers, or fit it to dates")
    _check_zone(dates[1], clock, name)
    return clock.numbers(dates[0])


def _check_zone(zone: str | None, clock: Clock, name: str) -> None:
    if (zone is None) != (clock.zone is None):
        have, need = zone or "no time zone", clock.zone or "none"
        raise ValueError(f"{name} holds dates with {have}, but the model was given dates with {need}: convert them alike")
