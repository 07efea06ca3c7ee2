"""Tables from files, whatever their kind; anything that is not one gets a single clear line."""

from __future__ import annotations

import csv
import datetime
import difflib
import gzip
import io
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...inputs.reading import few
from .cells import GAPS, WORDS, Cells, How, clear_mark, finite, read_cells, without_codes
from .dates import ONE_DAY, ORDERS, read_numbered
from .layout import CELLS
from .moments import about_clocks, in_zone, zone_of
from .text import decoded, grid_of
from .typed import typed_frame

if TYPE_CHECKING:
    import polars as pl

PICTURES = (b"\x89PNG", b"\xff\xd8\xff")  # how PNG and JPEG files begin
SHEETS = (b"PK\x03\x04", b"\xd0\xcf\x11\xe0")  # how spreadsheets begin: zipped (xlsx, xlsb, ods), and the old kind (xls)
MOST_CELLS = 250_000  # of a picture
CALENDAR = {"year": ("year", "jahr", "yr"), "month": ("month", "monat", "mon"), "day": ("day", "tag")}  # names of columns
HOURS = ("hour", "hr", "stunde", "heure", "hora")
HOUR = 3_600_000_000  # microseconds
DATE = "date"  # what they are called together
RANGES = {"year": (1500, 2199), "month": (1, 12), "day": (1, 31)}
VALUE = r"^[^\w]{0,2}\d"  # how a number, a price or a date begins


class Table(NamedTuple):
    """A table that was read: columns of values, the same as files show them, how cells are written, and what was assumed."""

    frame: pl.DataFrame
    written: pl.DataFrame
    how: Mapping[str, How] = {}
    notes: tuple[str, ...] = ()


def as_table(data: pl.DataFrame | Table) -> Table:
    """A table as it is, or columns of values about which no more is known."""
    return data if isinstance(data, Table) else Table(data, data)


def read_frame(path: Any, **options: Any) -> pl.DataFrame:
    """The columns of the table in a file; `read_table` also tells what was assumed."""
    return read_table(path, **options).frame


def read_table(path: Any, *, dates: str = "auto", zone: str = "", like: Mapping[str, How] | None = None) -> Table:
    """The table in a file, with a note for everything that had to be assumed.

    `dates` says whether 01/02/2020 is "day-first" or "month-first", `zone` in which time zone times are meant and shown, and
    `like` how the columns of an earlier table were written, so that this one is read in the same way.
    """
    if dates not in ORDERS:
        raise ValueError(f"dates must be one of {', '.join(ORDERS)}, got {dates!r}")
    if zone:
        zone_of(zone)
    path = Path(path)
    content = _content(path)
    options: dict[str, Any] = {"order": dates, "zone": zone, "like": like or {}}
    if content.startswith(PICTURES):
        return as_table(_picture(content, path))
    typed = typed_frame(content, path)
    if typed is not None:
        return _typed(_with_rows(typed[0], path), typed[1], **options)
    if content.startswith(SHEETS):
        text, notes = _sheet(content, path)
        return _columns(*grid_of(text, path, ",", notes), path=path, **options)
    text, notes = decoded(content, path)
    return _columns(*grid_of(text, path, None, notes), path=path, **options)


def as_csv(path: Path) -> tuple[str, list[str]] | None:
    """What is no plain text (a workbook, Parquet, Arrow, NetCDF, gzipped) as comma-separated text, and what was assumed."""
    content = _content(path)
    if content.startswith(SHEETS):
        return _sheet(content, path)
    typed = typed_frame(content, path)
    if typed is not None:
        return typed[0].write_csv(), typed[1]
    return decoded(content, path) if content != path.read_bytes() else None


def _content(path: Path) -> bytes:
    if not path.exists():
        near = difflib.get_close_matches(path.name, [other.name for other in _neighbours(path)], n=1, cutoff=0.75)
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
    return content


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


def _sheet(content: bytes, path: Path) -> tuple[str, list[str]]:
    """The first sheet of a workbook that holds anything, as comma-separated text."""
    try:
        import python_calamine as calamine
    except ImportError:
        raise ValueError(f"{path} is a spreadsheet, which needs python-calamine: pip install python-calamine") from None
    try:
        book = calamine.CalamineWorkbook.from_filelike(io.BytesIO(content))
        sheets = {name: book.get_sheet_by_name(name).to_python(skip_empty_area=True) for name in book.sheet_names}
    except (calamine.CalamineError, OSError, ValueError):
        raise ValueError(
            f"{path} is no spreadsheet that can be read (xlsx, xlsb, xls and ods are), or it is damaged: save it as xlsx or CSV"
        ) from None
    name, rows = next(((name, rows) for name, rows in sheets.items() if rows), ("", []))
    if not rows:
        raise ValueError(f"{path} is empty: a table with a header and at least one row is needed")
    text = io.StringIO()
    csv.writer(text).writerows([[_cell(value) for value in row] for row in rows])
    others = [repr(other) for other in sheets if other != name]
    return text.getvalue(), [f"sheet {name!r} was read, and not {few(others)}"] if others else []


def _cell(value: Any) -> str:
    """A cell of a sheet as text."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return str(int(value))
    if isinstance(value, datetime.datetime) and value.time() != datetime.time():
        return value.isoformat(" ")
    return value.strftime("%Y-%m-%d") if isinstance(value, datetime.date) else str(value)


def _columns(
    grid: pl.DataFrame, separator: str, notes: list[str], *, path: Path, order: str, zone: str, like: Mapping[str, How]
) -> Table:
    """Columns of values from columns of text."""
    import polars as pl

    grid = grid.with_columns(pl.all().str.strip_chars())
    grid = _without_units(grid, notes)
    _with_rows(grid, path)
    marks = Counter(filter(None, (clear_mark(grid[name]) for name in grid.columns)))
    options: dict[str, Any] = {
        "decimal": marks.most_common(1)[0][0] if marks else "",
        "commas": "," if separator == ";" else ".",  # programs that write decimal commas separate cells by semicolons
        "order": order,
        "zone": zone,
    }
    read = {name: read_cells(grid[name], like=like.get(name), **options) for name in grid.columns}
    written = pl.DataFrame([_as_written(grid[name], cells).alias(name) for name, cells in read.items()])
    _join_clock(read, notes)
    _join_calendar(read, notes, like)
    frame = pl.DataFrame([cells.series.alias(name) for name, cells in read.items()])
    return Table(frame, written, {name: cells.how for name, cells in read.items()}, (*notes, *_said(read)))


def _join_clock(read: dict[str, Cells], notes: list[str]) -> None:
    """One column of dates and one of times of day, both alone, are one column of moments."""
    import polars as pl

    clocks = [name for name, cells in read.items() if cells.how.style.startswith(("%H", "%I"))]
    days = [name for name, cells in read.items() if cells.series.dtype == pl.Date]
    if not clocks and len(days) == 1 and len(read) == 3:  # beside other columns the hour may tell by itself
        clocks = [name for name, cells in read.items() if _full_hours(cells.series)]
        read |= {name: Cells(read[name].series * HOUR, How("date", "%H")) for name in clocks}
    if len(clocks) != 1 or len(days) != 1 or read[clocks[0]].how.zone:
        return
    (clock,), (day,) = clocks, days
    time, date = read.pop(clock), read[day]
    moments = date.series.cast(pl.Datetime("us")) + time.series.cast(pl.Int64).cast(pl.Duration("us"))
    style = f"{date.how.style} {time.how.style}"
    notes_of_time = tuple(note for note in time.notes if not note.startswith(ONE_DAY))
    read[day] = Cells(moments.alias(day), date.how._replace(style=style), date.notes + notes_of_time)
    notes.append(f"columns {day!r} and {clock!r} are read as one, {day!r}")


def _full_hours(series: pl.Series) -> bool:
    """Whether a column holds the hours of days."""
    return series.name.strip().lower() in HOURS and series.dtype.is_integer() and bool(series.is_between(0, 24).all())


def _join_calendar(read: dict[str, Cells], notes: list[str], like: Mapping[str, How]) -> None:
    """A year, a month and perhaps a day are one column of dates beside a single other column, or where they were before."""
    import polars as pl

    names = {part: [name for name in read if name.strip().lower() in words] for part, words in CALENDAR.items()}
    found = {part: those[0] for part, those in names.items() if len(those) == 1}
    holds = lambda part: read[found[part]].series.dtype == pl.Int64 and read[found[part]].series.is_between(*RANGES[part]).all()
    known = DATE in like and like[DATE].kind == "date" and not set(found.values()) & set(like)
    alone = sum(map(len, names.values())) == len(found) == len(read) - 1
    if not {"year", "month"} <= set(found) or DATE in read or not (known or alone) or not all(map(holds, found)):
        return
    parts = {part: read.pop(name).series for part, name in found.items()}
    day = parts.get("day", pl.repeat(1, len(parts["year"]), dtype=pl.Int64, eager=True))
    text = pl.select(pl.format("{}-{}-{}", parts["year"], parts["month"], day)).to_series()
    dates = Cells(text.str.to_date("%Y-%m-%d", strict=False), How("date", "%Y-%m-%d" if "day" in found else "%Y-%m"))
    others = dict(read)
    read.clear()
    read.update({DATE: dates, **others})
    notes.append(f"columns {few([repr(name) for name in found.values()])} are read as one, {DATE!r}")


def _as_written(text: pl.Series, cells: Cells) -> pl.Series:
    """A column as files show it: numbers as they were read, unless they begin with zeros as keys do, all else as written."""
    if cells.how.kind == "number" and not text.str.contains(r"^[-+]?0\d").any():
        return cells.series
    return text.set((text == "").fill_null(False), None)


def _said(read: Mapping[str, Cells]) -> list[str]:
    """What was assumed, once for all columns of which the same is said."""
    columns: dict[str, list[str]] = {}
    for name, cells in read.items():
        for note in cells.notes:
            columns.setdefault(note, []).append(repr(name))
    return [f"column{'' if len(names) == 1 else 's'} {few(names)}: {note}" for note, names in columns.items()]


def _without_units(grid: pl.DataFrame, notes: list[str]) -> pl.DataFrame:
    """The rows without a first one of units: words above columns that begin with a digit everywhere below."""
    if grid.height < 3:
        return grid
    first = [str(cell or "") for cell in grid.row(0)]
    if any(re.match(VALUE, cell) for cell in first):
        return grid
    rest = [grid[name][1:].filter(~grid[name][1:].is_in(GAPS)) for name in grid.columns]
    valued = [len(column) >= 2 and bool(column.str.contains(VALUE).all()) for column in rest]
    above = [cell for cell, value in zip(first, valued, strict=True) if value and cell]
    is_word = lambda cell: not re.match(VALUE, cell) and cell not in GAPS and cell.lower() not in WORDS
    if not above or not all(map(is_word, above)):
        return grid
    notes.append(f"the first row holds units ({few(above)}): passed over")
    return grid[1:]


def _typed(frame: pl.DataFrame, notes_of_file: list[str], *, order: str, zone: str, like: Mapping[str, How]) -> Table:
    """Columns that have types already: text is read as it is in text files, all else is taken as it is."""
    import polars as pl

    read: dict[str, Cells] = {}
    for name, series in zip(frame.columns, frame.get_columns(), strict=True):
        known = like.get(name)
        if series.dtype.is_integer() and (counted := read_numbered(series, known.style if known else "")) is not None:
            read[name] = Cells(counted.series, How("date", counted.style, counted.zone), counted.notes)
        elif series.dtype == pl.String:
            read[name] = read_cells(series, order=order, zone=zone, like=known)
        elif series.dtype.is_float() or series.dtype.is_signed_integer():
            series, endless = finite(series) if series.dtype.is_float() else (series, ())
            values, codes = without_codes(series, known.codes if known else ())
            said = (f"{few([f'{code:g}' for code in codes])} is taken as missing: it lies far outside of the other values",)
            read[name] = Cells(values, How("number", codes=codes), endless + (said if codes else ()))
        elif isinstance(series.dtype, pl.Datetime) and zone:
            aware = series.dtype.time_zone is not None
            notes = () if aware else tuple(about_clocks(series, zone))
            read[name] = Cells(series if aware else in_zone(series, zone), How("date", zone=zone), notes)
        else:
            read[name] = Cells(series, How(zone=getattr(series.dtype, "time_zone", None) or ""))
    columns = pl.DataFrame([cells.series.alias(name) for name, cells in read.items()])
    return Table(columns, frame, {name: cells.how for name, cells in read.items()}, (*notes_of_file, *_said(read)))


def _with_rows(frame: pl.DataFrame, path: Path) -> pl.DataFrame:
    if frame.height == 0:
        raise ValueError(f"{path} has a header but no rows: at least one row is needed")
    return frame
