"""How the columns of a table become numbers: remembered from the training table, so that new tables are read alike."""

from __future__ import annotations

import dataclasses
import difflib
import itertools
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ...inputs.reading import few
from .cells import How
from .moments import SECONDS, after, in_zone, write_moment

if TYPE_CHECKING:
    import polars as pl

CLOCK = "%H:%M"  # in the style of times that name no day
ROW_NUMBERS = re.compile(
    r"(ids?|idx|index|no|nr|num|number|key|#|obs|observation|record|case|row|row[ _.-]?(id|no|nr|num|number|index)|rownames?|"
    r"unnamed:? ?\d*|column 1|.*[ _.-](id|no|nr|key|index))",
    re.IGNORECASE,
)
CELLS = ("row", "column", "grey")  # the columns of a picture
MOST_TOLD = 12  # columns that are told one by one
MOST_LEVELS = 20  # a text column with more different values than this is left out
YEARS, FIRST_YEAR, LAST_YEAR = {"year", "years", "jahr"}, 1500.0, 2200.0  # names of columns that count years, with fractions
EPOCH = 1970.0  # years are counted as in the calendar, other units from the beginning of the data


def find_column(frame: pl.DataFrame, name: str, what: str = "column") -> str:
    """The name, if the table has it; else the nearest names."""
    if name in frame.columns:
        return name
    lower = {column.lower(): column for column in frame.columns}
    close = [lower[match] for match in difflib.get_close_matches(name.lower(), list(lower), n=3, cutoff=0.5)]
    hint = f"did you mean {' or '.join(map(repr, close))}?" if close else f"the columns are {few(frame.columns, 12)}"
    raise ValueError(f"there is no {what} {name!r} in the table: {hint}")


def target_in(frame: pl.DataFrame, name: str | None) -> str:
    """The column to be predicted: the one that is named; in a picture, if none is, the grey."""
    if name is not None:
        return find_column(frame, name, "target")
    if tuple(frame.columns) == CELLS:
        return CELLS[-1]
    raise ValueError(f"which column is to be predicted? Say it by --target; the columns are {few(frame.columns, 12)}")


@dataclasses.dataclass(frozen=True)
class Column:
    """How one column becomes numbers: "number", "date" (in a unit, from an origin), "category" (0 or 1 for each level)."""

    name: str
    kind: str
    missing: int = 0
    unit: str = ""
    origin: float = 0.0  # seconds since 1970 at which dates are 0; years are those of the calendar
    levels: tuple[str, ...] = ()
    fill: float | None = None  # what stands for a missing number
    dropped: str = ""  # why the column is not used
    style: str = ""  # how dates are written, as strftime has it
    zone: str = ""  # of times
    decimal: str = ""  # the decimal mark, where it was not plain
    codes: tuple[float, ...] = ()  # numbers that stand for a missing value

    @property
    def how(self) -> How:
        """How the cells of such a column are written."""
        return How(self.kind, self.style, self.zone, self.decimal, self.codes)

    def describe(self) -> str:
        """The column in a few words."""
        if self.dropped:
            return f"left out: {self.dropped}"
        words = {
            "number": "number",
            "date": f"{'time of day' if self.is_clock else 'date'}, in {self.unit}"
            + (f", zone {self.zone}" if self.zone else ""),
            "category": f"category, {len(self.levels)} levels: {few(self.levels, 4)}",
        }[self.kind]
        filled = "" if not self.missing or self.fill is None else f", filled with the median {self.fill:.4g}"
        return words + (f", {self.missing} missing{filled}" if self.missing else "")

    @property
    def names(self) -> list[str]:
        """The inputs that come of it."""
        if self.kind != "category":
            return [self.name]
        return [f"{self.name}={level}" for level in (self.levels[1:] if len(self.levels) == 2 else self.levels)]

    def numbers(self, series: pl.Series) -> np.ndarray:
        """The values of such a column, (N, inputs); NaN where there is none and nothing stands for it."""
        if series.is_null().all() and self.kind != "category":
            return np.full((len(series), 1), np.nan if self.fill is None else self.fill)
        kind = kind_of(series)
        if kind != self.kind and not series.is_null().all():
            example = series.drop_nulls()[0]
            raise ValueError(f"column {self.name!r} holds a {kind} ({example!r}), but the model was given a {self.kind}")
        if self.kind == "category":
            return self._indicators(series)
        values = self.places(_as_seconds(self._in_own_zone(series))) if self.kind == "date" else as_floats(series)
        if self.codes:
            values = np.where(np.isin(values, self.codes), np.nan, values)
        if self.fill is not None:
            values = np.where(np.isnan(values), self.fill, values)
        return values[:, None]

    @property
    def is_clock(self) -> bool:
        """Whether it holds times of day that name no date."""
        return self.style.startswith(("%H", "%I"))

    def places(self, seconds: np.ndarray) -> np.ndarray:
        """Moments, in seconds since 1970, as numbers of the input."""
        if self.unit == "years":
            return seconds / SECONDS["years"] + EPOCH
        return (seconds - self.origin) / SECONDS[self.unit]

    def seconds(self, places: Any) -> Any:
        """Numbers of the input as seconds since 1970."""
        return (places - EPOCH) * SECONDS["years"] if self.unit == "years" else places * SECONDS[self.unit] + self.origin

    def written(self, value: float) -> str:
        """A value of the input as the table has it: a date again, in its own style and zone, or the number."""
        if self.kind != "date":
            return f"{value:.6g}"
        return write_moment(self.seconds(value), self.style or self._plain_style, self.zone)

    def drawn(self, value: float) -> str:
        """A moment as a picture needs it: as ISO 8601 has it, on the clock of its zone, also for a place between two days."""
        clock = any(mark in self.style for mark in ("%H", "%I")) or round(float(self.seconds(value))) % SECONDS["days"] != 0
        style = "%Y-%m-%d" if not clock and self._plain_style == "%Y-%m-%d" else "%Y-%m-%d %H:%M:%S"
        return write_moment(self.seconds(value), style, self.zone)

    @property
    def _plain_style(self) -> str:
        return "%Y-%m-%d" if self.unit in ("years", "days") else "%Y-%m-%d %H:%M:%S"

    def following(self, values: np.ndarray, count: int) -> np.ndarray:
        """The places that come after those of a series: by the calendar for dates, else by the usual step."""
        if self.kind == "date":
            seconds = self.seconds(np.unique(values))
            return self.places(np.array(list(itertools.islice(after(seconds, self.zone), count))))
        steps = np.diff(np.unique(values))
        return np.max(values) + (float(np.median(steps)) if len(steps) else 1.0) * np.arange(1, count + 1)

    def _in_own_zone(self, series: pl.Series) -> pl.Series:
        """Times as the model knows them: those without a zone are taken for those of the model's."""
        zone = getattr(series.dtype, "time_zone", None)
        if zone and not self.zone:
            raise ValueError(
                f"column {self.name!r} holds times in the zone {zone}, but the model was given times without one: "
                "write them as the table of the model has them"
            )
        import polars as pl

        bare = self.zone and not zone and series.dtype in (pl.Date, pl.Datetime)
        return in_zone(series.cast(pl.Datetime("us")), self.zone) if bare else series

    def _indicators(self, series: pl.Series) -> np.ndarray:
        text = as_text(series)
        strange = sorted({value for value in text if value is not None} - set(self.levels))
        if strange:
            raise ValueError(
                f"column {self.name!r} holds {few([repr(value) for value in strange])}, which the model has not seen: "
                f"it knows {few(self.levels, 8)}"
            )
        table = np.array([[value == level for level in self.levels] for value in text], dtype=float)
        return table[:, 1:] if len(self.levels) == 2 else table


def kind_of(series: pl.Series) -> str:
    """Whether a column holds numbers, dates or categories."""
    import polars as pl

    if series.dtype.is_temporal() and series.dtype != pl.Duration:
        return "date"
    return "number" if series.dtype.is_numeric() or series.dtype == pl.Duration else "category"


def as_floats(series: pl.Series) -> np.ndarray:
    """Numbers, NaN where there is no finite one; a duration in seconds."""
    import polars as pl

    if series.dtype == pl.Duration:
        series = series.dt.total_microseconds() / 1e6
    values = series.cast(pl.Float64, strict=False).to_numpy().astype(float)
    return np.where(np.isfinite(values), values, np.nan)


def _as_seconds(series: pl.Series) -> np.ndarray:
    """Moments as seconds since 1970; times of day as those since midnight."""
    import polars as pl

    if series.dtype == pl.Time:
        return as_floats(series.cast(pl.Int64)) / 1e9
    stamps = series if isinstance(series.dtype, pl.Datetime) else series.cast(pl.Datetime("us"))
    return as_floats(stamps.dt.epoch("us")) / 1e6


def as_text(series: pl.Series) -> list[str | None]:
    """Values as they are written, None where there is none."""
    return [None if value is None else str(value) for value in series.to_list()]


def look(series: pl.Series, how: How | None = None) -> Column:
    """What a column holds and how it becomes numbers; `how` it was written in a file is kept."""
    how = how or How(zone=getattr(series.dtype, "time_zone", None) or "")
    kind, missing = kind_of(series), int(series.null_count())
    if missing == len(series):
        return Column(series.name, kind, missing, dropped="every value is missing")
    if kind == "category":
        levels = sorted({value for value in as_text(series) if value is not None})
        if len(levels) > MOST_LEVELS:
            return Column(series.name, kind, missing, dropped=f"text with {len(levels)} different values")
        dropped = "the same value everywhere" if len(levels) == 1 and not missing else ""
        return Column(series.name, kind, missing, levels=tuple(levels), dropped=dropped)
    if kind == "date":
        seconds = _as_seconds(series)
        first, last = float(np.nanmin(seconds)), float(np.nanmax(seconds))
        style = how.style or _style(series, seconds)
        dropped = "the same moment everywhere" if first == last else ""
        return Column(series.name, kind, missing, _unit(last - first), first, dropped=dropped, style=style, zone=how.zone)
    values = as_floats(series)
    gone = int(np.isnan(values).sum())
    if gone == len(values):
        return Column(series.name, kind, gone, dropped="no value is a finite number")
    dropped = "the same value everywhere" if np.nanmin(values) == np.nanmax(values) else ""
    fill = float(np.nanmedian(values))
    years = series.name.strip().lower() in YEARS and np.nanmin(values) >= FIRST_YEAR and np.nanmax(values) <= LAST_YEAR
    unit = "years" if years else ""
    return Column(series.name, kind, gone, unit, fill=fill, dropped=dropped, decimal=how.decimal, codes=how.codes)


def _style(series: pl.Series, seconds: np.ndarray) -> str:
    """How dates are written that were not read from text."""
    import polars as pl

    if series.dtype == pl.Date:
        return "%Y-%m-%d"
    known = seconds[~np.isnan(seconds)]
    clock = CLOCK if not (known % 60).any() else "%H:%M:%S"
    zone = "%z" if getattr(series.dtype, "time_zone", None) else ""
    return clock if series.dtype == pl.Time else f"%Y-%m-%d {clock}{zone}"


def numbers_rows(series: pl.Series) -> bool:
    """Whether a column only numbers the rows: its name says so, and it holds whole numbers that always rise."""
    named = ROW_NUMBERS.fullmatch(series.name) or series.name.endswith(("Id", "ID"))
    whole = series.dtype.is_integer() and series.null_count() == 0 and len(series) > 2
    return bool(named and whole and (series.diff().drop_nulls() > 0).all())


def _unit(span: float) -> str:
    """A unit in which a span of so many seconds is neither tiny nor huge."""
    return next(
        (unit for unit, least in (("years", 2.0), ("days", 2.0), ("hours", 2.0)) if span >= least * SECONDS[unit]), "seconds"
    )


@dataclasses.dataclass(frozen=True)
class Layout:
    """The inputs of a model as columns of a table."""

    columns: tuple[Column, ...]

    @classmethod
    def of(cls, frame: pl.DataFrame, leave_out: tuple[str, ...] = (), how: Mapping[str, How] | None = None) -> Layout:
        """The layout of a table without some of its columns, and without those that number its rows if others are left."""
        layout = cls(tuple(look(frame[name], (how or {}).get(name)) for name in frame.columns if name not in leave_out))
        counting = [column.name for column in layout.used if numbers_rows(frame[column.name])]
        if len(counting) < len(layout.used):
            why = "it numbers the rows (give it another name if it means more)"
            layout = cls(
                tuple(
                    dataclasses.replace(column, dropped=why) if column.name in counting else column for column in layout.columns
                )
            )
        if not layout.used:
            why = few([f"{column.name!r} ({column.dropped})" for column in layout.columns]) or "there is none"
            raise ValueError(f"no column is left as an input: {why}; a model needs at least one")
        return layout

    @property
    def used(self) -> tuple[Column, ...]:
        """The columns that the model sees."""
        return tuple(column for column in self.columns if not column.dropped)

    @property
    def how(self) -> dict[str, How]:
        """How the cells of each column are written."""
        return {column.name: column.how for column in self.columns}

    @property
    def names(self) -> list[str]:
        """The inputs, one name for each number that the model sees."""
        return [name for column in self.used for name in column.names]

    def described(self) -> list[tuple[list[str], str]]:
        """What each column is; of many those that are alike together."""
        if len(self.columns) <= MOST_TOLD:
            return [([column.name], column.describe()) for column in self.columns]
        kinds: dict[str, list[str]] = {}
        for column in self.columns:
            kinds.setdefault(column.describe(), []).append(column.name)
        return [(names, kind) for kind, names in kinds.items()]

    def numbers(self, frame: pl.DataFrame) -> np.ndarray:
        """The inputs of a table, (N, D)."""
        missing = [column.name for column in self.used if column.name not in frame.columns]
        if missing:
            lacks = few([repr(name) for name in missing])
            raise ValueError(f"the table lacks {lacks}, which the model needs; it has {few(frame.columns, 12)}")
        return np.concatenate([column.numbers(frame[column.name]) for column in self.used], axis=1)

    def to_json(self) -> list[dict[str, Any]]:
        """The layout as plain values."""
        return [dataclasses.asdict(column) for column in self.columns]

    @classmethod
    def from_json(cls, described: list[dict[str, Any]]) -> Layout:
        """The layout that `to_json` described."""
        lists = lambda column: {name: tuple(value) for name, value in column.items() if isinstance(value, list)}
        return cls(tuple(Column(**{**column, **lists(column)}) for column in described))
