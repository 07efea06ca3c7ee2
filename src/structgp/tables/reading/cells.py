"""What a column of text holds: numbers in any of the usual ways to write them, dates, yes and no, or words."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ...inputs.reading import few
from .dates import are_dates, in_several_forms, read_dates, read_numbered

if TYPE_CHECKING:
    import polars as pl

GAPS = ["", "NA", "N/A", "na", "n/a", "NaN", "nan", "NULL", "null", "None", "?", "-"]  # a missing value in any column
WORDS = {  # a missing value in a column of numbers or dates
    *("n.a.", "n.a", "n. a.", "none", "nil", "missing", "unknown", "nodata", "no data", "not available", "n.d.", "nd", "k.a."),
    *("--", "---", "—", "–", ".", "..", "...", "…", "*", "x", "<na>", "(null)", "\\n", "-nan", "1.#qnan", "error", "err"),
    *("inf", "-inf", "+inf", "infinity", "-infinity"),
    *("#n/a", "#na", "#value!", "#div/0!", "#ref!", "#null!", "#num!", "#name?"),
}
CODES = (
    -99.0,
    -99.9,
    -99.99,
    -999.0,
    -999.9,
    -999.99,
    -9999.0,
    -9999.9,
    -99999.0,
)  # numbers that often stand for a missing value
FAR = 2.0  # ranges of the other values by which a code must lie below them
MOSTLY = 0.8  # part of the cells that must be numbers where a few other words are taken as missing
FEW_WORDS = 5
CURRENCY = r"[$€£¥₹]|\b(?:USD|EUR|GBP|CHF|JPY)\b"
SPACES = "[ '’\u00a0\u2009\u202f_]"  # between groups of three digits
NUMBER = r"^[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?$"
WITH_UNIT = r"^([-+]?[\d.,]+(?:[eE][-+]?\d+)?)\s*([A-Za-zµμ°Ω²³/]+)$"
THOUSANDS = r"^[-+]?\d{1,3}(?:(?:,\d{2})*,\d{3})+(?:\.\d+)?$"  # 1,234.5, or 1,23,456.5; swapped: 1.234,5
SWAPPED = r"^[-+]?\d{1,3}(?:\.\d{3})+(?:,\d+)?$"
DECIMAL = r"^[-+]?\d*,\d+(?:[eE][-+]?\d+)?$"


class How(NamedTuple):
    """How the cells of a column are written, so that other tables are read, and dates are written, in the same way."""

    kind: str = ""  # what the column is known to hold
    style: str = ""  # of dates, as strftime has it
    zone: str = ""  # of times
    decimal: str = ""  # the decimal mark, where it was not plain
    codes: tuple[float, ...] = ()  # numbers that stand for a missing value


class Cells(NamedTuple):
    """A column that was read: its values, how it is written, and what was assumed."""

    series: pl.Series
    how: How
    notes: tuple[str, ...] = ()


def read_cells(
    text: pl.Series, *, decimal: str = "", commas: str = ".", order: str = "auto", zone: str = "", like: How | None = None
) -> Cells:
    """A column of text as numbers, dates, true and false, or words; missing values are null.

    `decimal` is the mark that the rest of the file shows, if any, and `commas` the one to be assumed where 1,234 could be both;
    `like` is how a column was written that this one should be read as.
    """
    like = like or How()
    text = text.str.strip_chars("\t\n\r \u00a0\ufeff")
    text = text.set(text.is_in(GAPS), None)
    if text.is_null().all():
        return Cells(text, like)
    if like.kind != "category":
        counted = read_numbered(text, like.style)
        if counted is not None and like.kind in ("", "date"):
            return Cells(counted.series, How("date", counted.style, counted.zone), counted.notes)
        dated = like.kind == "date" or are_dates(text)
        as_numbers = lambda: read_numbers(text, like.decimal or decimal, commas, like.codes)
        as_dates = lambda: read_moments(text, order, zone or like.zone, like.style)
        found = (as_dates() or as_numbers()) if dated else (as_numbers() or as_dates())
        if found is not None:
            return found
    lower = text.str.to_lowercase()
    if lower.drop_nulls().is_in(["true", "false"]).all():
        return Cells(lower == "true", How("category"))
    return Cells(text, How("category"), _almost(text))


def _almost(text: pl.Series) -> tuple[str, ...]:
    """A word on columns that are text only because of some cells."""
    strange = text.filter(~text.str.contains(NUMBER) & text.is_not_null())
    if in_several_forms(text):
        return (
            f"dates that are not written alike, such as {few([repr(word) for word in text.drop_nulls()[:3]])}: read as text",
        )
    if not len(strange) or len(strange) > len(text.drop_nulls()) / 2:
        return ()
    return (f"numbers and words such as {few([repr(word) for word in strange.unique(maintain_order=True)])}: read as text",)


def read_moments(text: pl.Series, order: str, zone: str, style: str) -> Cells | None:
    """A column of dates, if it is one."""
    gone = text.str.to_lowercase().is_in(list(WORDS))
    known = text.set(gone.fill_null(False), None)
    found = None if known.is_null().all() else read_dates(known, order, zone, style)
    if found is None:
        return None
    notes = found.notes + _words_note(text.filter(gone.fill_null(False)))
    return Cells(found.series, How("date", found.style, found.zone), notes)


def read_numbers(text: pl.Series, decimal: str, commas: str, codes: tuple[float, ...]) -> Cells | None:
    """A column of numbers, if it is one: plain ones, or with signs, separators and units around them."""
    import polars as pl

    filled = text.is_not_null()
    notes: tuple[str, ...] = ()
    values, mark = text.cast(pl.Float64, strict=False), ""
    if (values.is_null() & filled).any() or decimal == ",":
        bare, notes, mark = _bare(text, decimal, commas)
        values = bare.cast(pl.Float64, strict=False)
    strange = text.filter(values.is_null() & filled)
    words = strange.unique(maintain_order=True)
    all_gaps = words.str.to_lowercase().is_in(list(WORDS)).all()
    few_words = len(words) <= FEW_WORDS and len(strange) <= (1 - MOSTLY) * text.count()
    if values.is_null().all() or not (all_gaps or few_words):
        return None
    notes += _words_note(strange)
    values, endless = finite(values)
    notes += endless
    values, codes = without_codes(values, codes)
    if codes:
        notes += (f"{few([f'{code:g}' for code in codes])} is taken as missing: it lies far outside of the other values",)
    if (values == values.floor()).all():
        integers = text.str.strip_prefix("+").cast(pl.Int64, strict=False).set(values.is_null(), None)
        values = integers if integers.null_count() == values.null_count() else values
    return Cells(values.alias(text.name), How("number", decimal=mark, codes=codes), notes)


def _words_note(strange: pl.Series) -> tuple[str, ...]:
    if strange.is_empty():
        return ()
    words = few([repr(word) for word in strange.unique(maintain_order=True)])
    return (f"{words} is taken as missing ({len(strange)} cell{'' if len(strange) == 1 else 's'})",)


def finite(values: pl.Series) -> tuple[pl.Series, tuple[str, ...]]:
    """The values without infinities, and what is said of these."""
    endless = values.is_infinite().fill_null(False)
    if not endless.any():
        return values, ()
    count = int(endless.sum())
    return values.set(endless, None), (f"infinity is taken as missing ({count} cell{'' if count == 1 else 's'})",)


def without_codes(values: pl.Series, known: tuple[float, ...] = ()) -> tuple[pl.Series, tuple[float, ...]]:
    """The values without numbers that stand for a missing one, and which these are: those known, or one far below the rest."""
    numbers = values.drop_nulls().cast(float).to_numpy()
    numbers = numbers[np.isfinite(numbers)]
    found = known or tuple(code for code in CODES if _is_code(numbers, code))
    found = tuple(code for code in found if (numbers == code).any())
    return (values.set(values.is_in(list(found)).fill_null(False), None), found) if found else (values, known)


def _is_code(numbers: np.ndarray, code: float) -> bool:
    if not (numbers == code).any():
        return False
    rest = numbers[~np.isin(numbers, CODES)]
    return len(rest) >= 2 and float(rest.min()) - code > FAR * float(np.ptp(rest)) and float(rest.min()) > code / 2


def _bare(text: pl.Series, decimal: str, commas: str) -> tuple[pl.Series, tuple[str, ...], str]:
    """The digits alone of every cell, what was taken away, and the decimal mark where it mattered."""
    notes: list[str] = []

    def step(now: pl.Series, then: pl.Series, note: str) -> pl.Series:
        if (now != then).any():
            notes.append(note)
        return then

    bare = text.str.replace("^[−–]", "-")
    plain = bare.str.replace_all(CURRENCY, "").str.strip_chars().str.replace(r"^-\s+", "-")
    bare = step(bare, plain, "currency signs are passed over")
    bare = step(bare, bare.str.replace(r"^\((.*\d\s*%?)\)$", "-${1}"), "numbers in brackets are negative")
    bare = step(bare, bare.str.replace(r"\s*%$", ""), "per cent signs are passed over: 5% is read as 5")
    bare = _without_unit(bare, notes)
    grouped = bare
    for _ in range(2):  # the groups of a number overlap in the digit between two marks
        grouped = grouped.str.replace_all(rf"(\d){SPACES}(\d{{3}})", "${1}${2}")
    bare = step(bare, grouped, "marks between thousands are passed over")
    said, mark = len(notes), decimal_mark(bare, decimal, commas)
    if mark == ",":
        pointed = bare.str.contains(".", literal=True)
        if pointed.any() and bare.filter(pointed.fill_null(False)).str.contains(SWAPPED).all():
            joined = bare.str.replace_all(".", "", literal=True)
            bare = step(bare, joined, "points stand between thousands: 1.234 is read as 1234")
        bare = step(bare, bare.str.replace(",", ".", literal=True), "a comma is the decimal mark: 1,5 is read as 1.5")
    else:
        grouped = bare.str.contains(THOUSANDS).fill_null(False)
        joined = bare.zip_with(~grouped, bare.str.replace_all(",", "", literal=True))
        bare = step(bare, joined, "commas stand between thousands: 1,234 is read as 1234")
    return bare, tuple(notes), mark if len(notes) > said else ""


def _without_unit(text: pl.Series, notes: list[str]) -> pl.Series:
    """The numbers before a unit, where all have the same."""
    units = text.str.extract(WITH_UNIT, 2).drop_nulls().unique().to_list()
    if len(units) != 1:
        return text
    notes.append(f"the unit {units[0]!r} is passed over")
    return text.str.replace(WITH_UNIT, "${1}")


def decimal_mark(text: pl.Series, elsewhere: str, otherwise: str) -> str:
    """The decimal mark of a column by its own cells, by the rest of the file, or as assumed where both leave it open."""
    filled = text.drop_nulls()
    commas = filled.filter(filled.str.contains(",", literal=True))
    if commas.is_empty():
        return elsewhere
    swapped = commas.str.contains(SWAPPED) | commas.str.contains(DECIMAL)
    thousands = commas.str.contains(THOUSANDS)
    if swapped.all() and not thousands.all():
        return ","
    if thousands.all() and not swapped.all():
        return "."
    return elsewhere or otherwise


def clear_mark(text: pl.Series) -> str:
    """The decimal mark that the commas of a column show beyond doubt, or nothing."""
    if not text.str.contains(",", literal=True).any():
        return ""
    bare = text.str.replace_all(rf"{CURRENCY}|[%\s]", "")
    one, other = decimal_mark(bare, "", ","), decimal_mark(bare, "", ".")
    return one if one == other else ""
