"""Tables from files: CSV, TSV, Parquet and pictures, plain or gzipped, read into columns of numbers, dates and categories.

A `Layout` remembers how each column of the training table became numbers, so that new tables are read in the same way.
"""

from __future__ import annotations

import csv
import dataclasses
import datetime
import difflib
import gzip
import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..inputs.reading import few

if TYPE_CHECKING:
    import polars as pl

GAPS = ["", "NA", "N/A", "na", "n/a", "NaN", "nan", "NULL", "null", "None", "?", "-"]  # how files write a missing value
SECONDS = {"years": 365.25 * 86400.0, "days": 86400.0, "hours": 3600.0, "seconds": 1.0}
PICTURES = (b"\x89PNG", b"\xff\xd8\xff")  # how PNG and JPEG files begin
CELLS = ("row", "column", "grey")  # the columns of a picture
MOST_CELLS = 250_000  # of a picture
MOST_LEVELS = 20  # a text column with more different values than this is left out
EPOCH = 1970.0  # years are counted as in the calendar, other units from the beginning of the data


def read_frame(path: Any) -> pl.DataFrame:
    """The table in a file; anything that is not one gets a single clear line."""
    path = Path(path)
    if not path.exists():
        near = difflib.get_close_matches(path.name, [other.name for other in _neighbours(path)], n=1)
        hint = f"did you mean {path.with_name(near[0])}?" if near else f"check the name (the current folder is {Path.cwd()})"
        raise FileNotFoundError(f"there is no file {path}: {hint}")
    if path.is_dir():
        raise ValueError(f"{path} is a folder: give the name of a table in it")
    content = path.read_bytes()
    if content[:2] == b"\x1f\x8b":
        try:
            content = gzip.decompress(content)
        except (OSError, EOFError):
            raise ValueError(f"{path} is gzipped but cut off or damaged: copy it again") from None
    if not content.strip():
        raise ValueError(f"{path} is empty: a table with a header and at least one row is needed")
    if content.startswith(PICTURES):
        return _picture(content, path)
    return _parquet(content, path) if content[:4] == b"PAR1" else _text(content, path)


def _neighbours(path: Path) -> list[Path]:
    return list(path.parent.iterdir()) if path.parent.is_dir() else []


def _picture(content: bytes, path: Path) -> pl.DataFrame:
    """A picture as a table of its cells: row, column and grey, from 0 (black) to 255 (white)."""
    import polars as pl

    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError:
        raise ValueError(f"{path} is a picture, which needs Pillow: pip install pillow") from None
    try:
        grey = np.asarray(Image.open(io.BytesIO(content)).convert("L"), dtype=float)
    except (UnidentifiedImageError, OSError):
        raise ValueError(f"{path} is a damaged picture: copy it again") from None
    if grey.size > MOST_CELLS:
        raise ValueError(f"{path} has {grey.size} cells, and at most {MOST_CELLS} are read: make the picture smaller")
    row, column = np.indices(grey.shape)
    return pl.DataFrame(dict(zip(CELLS, (row.ravel(), column.ravel(), grey.ravel()), strict=True)))


def _parquet(content: bytes, path: Path) -> pl.DataFrame:
    import polars as pl

    try:
        return _with_rows(pl.read_parquet(io.BytesIO(content)), path)
    except pl.exceptions.PolarsError as problem:
        raise ValueError(f"{path} is a damaged Parquet file ({_first_line(problem)}): write it again") from None


def _text(content: bytes, path: Path) -> pl.DataFrame:
    import polars as pl

    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        raise ValueError(
            f"{path} is not UTF-8 text (byte {problem.start}): save it as UTF-8, for instance with "
            f"iconv -f latin1 -t utf-8 {path.name}"
        ) from None
    if "\0" in text[:4096]:
        raise ValueError(f"{path} is not a table: CSV, TSV and Parquet are read, gzipped or not")
    separator = _separator(text.splitlines()[0], path)
    header = next(csv.reader([text.splitlines()[0]], delimiter=separator))
    repeated = sorted({name for name in header if header.count(name) > 1})
    if repeated:
        raise ValueError(f"{path} has two columns called {few([repr(name) for name in repeated])}: rename one of them")
    if all(_is_number(name) for name in header):
        raise ValueError(f"{path} has no header: its first line should name the columns, but reads {few(header)}")
    try:
        frame = pl.read_csv(
            io.BytesIO(text.encode()),
            separator=separator,
            try_parse_dates=True,
            infer_schema_length=None,
            null_values=GAPS,
        )
    except pl.exceptions.NoDataError:
        raise ValueError(f"{path} is empty: a table with a header and at least one row is needed") from None
    except pl.exceptions.PolarsError as problem:
        raise ValueError(f"{path} cannot be read as a table ({_first_line(problem)}): repair that line") from None
    return _with_rows(frame, path)


def _first_line(problem: Exception) -> str:
    return str(problem).strip().splitlines()[0]


def _separator(header: str, path: Path) -> str:
    if ".tsv" in path.suffixes:
        return "\t"
    return max(",\t;", key=header.count)


def _is_number(text: str) -> bool:
    try:
        return bool(text.strip()) and np.isfinite(float(text))
    except ValueError:
        return False


def _with_rows(frame: pl.DataFrame, path: Path) -> pl.DataFrame:
    if frame.height == 0:
        raise ValueError(f"{path} has a header but no rows: at least one row is needed")
    return frame


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

    def describe(self) -> str:
        """The column in a few words."""
        if self.dropped:
            return f"left out: {self.dropped}"
        words = {
            "number": "number",
            "date": f"date, in {self.unit}",
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
        values = _as_seconds(series) if self.kind == "date" else as_floats(series)
        if self.kind == "date":
            start = 0.0 if self.unit == "years" else self.origin
            values = (values - start) / SECONDS[self.unit] + (EPOCH if self.unit == "years" else 0.0)
        if self.fill is not None:
            values = np.where(np.isnan(values), self.fill, values)
        return values[:, None]

    def written(self, value: float) -> str:
        """A value of the input as the table has it: a date again, or the number."""
        if self.kind != "date":
            return f"{value:.6g}"
        seconds = (value - EPOCH) * SECONDS["years"] if self.unit == "years" else value * SECONDS[self.unit] + self.origin
        moment = datetime.datetime(1970, 1, 1) + datetime.timedelta(seconds=round(seconds, 3))
        return moment.date().isoformat() if self.unit in ("years", "days") else moment.isoformat(" ", "seconds")

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
    if series.dtype.is_temporal():
        return "date"
    return "number" if series.dtype.is_numeric() else "category"


def as_floats(series: pl.Series) -> np.ndarray:
    """Numbers, NaN where there is no finite one."""
    import polars as pl

    values = series.cast(pl.Float64, strict=False).to_numpy().astype(float)
    return np.where(np.isfinite(values), values, np.nan)


def _as_seconds(series: pl.Series) -> np.ndarray:
    import polars as pl

    if series.dtype in (pl.Time, pl.Duration):
        raise ValueError(f"column {series.name!r} holds times of day or durations: write them as dates or as numbers")
    micros = series.cast(pl.Datetime("us")).dt.epoch("us").cast(pl.Float64).to_numpy()
    return micros.astype(float) / 1e6


def as_text(series: pl.Series) -> list[str | None]:
    """Values as they are written, None where there is none."""
    return [None if value is None else str(value) for value in series.to_list()]


def look(series: pl.Series) -> Column:
    """What a column holds and how it becomes numbers."""
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
        return Column(
            series.name, kind, missing, _unit(float(np.nanmax(seconds) - np.nanmin(seconds))), float(np.nanmin(seconds))
        )
    values = as_floats(series)
    gone = int(np.isnan(values).sum())
    if gone == len(values):
        return Column(series.name, kind, gone, dropped="no value is a finite number")
    dropped = "the same value everywhere" if np.nanmin(values) == np.nanmax(values) else ""
    return Column(series.name, kind, gone, fill=float(np.nanmedian(values)), dropped=dropped)


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
    def of(cls, frame: pl.DataFrame, leave_out: tuple[str, ...] = ()) -> Layout:
        """The layout of a table without some of its columns."""
        layout = cls(tuple(look(frame[name]) for name in frame.columns if name not in leave_out))
        if not layout.used:
            why = few([f"{column.name!r} ({column.dropped})" for column in layout.columns]) or "there is none"
            raise ValueError(f"no column is left as an input: {why}; a model needs at least one")
        return layout

    @property
    def used(self) -> tuple[Column, ...]:
        """The columns that the model sees."""
        return tuple(column for column in self.columns if not column.dropped)

    @property
    def names(self) -> list[str]:
        """The inputs, one name for each number that the model sees."""
        return [name for column in self.used for name in column.names]

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
        return cls(tuple(Column(**{**column, "levels": tuple(column["levels"])}) for column in described))
