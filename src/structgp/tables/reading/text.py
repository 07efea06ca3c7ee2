"""Text that holds a table: its letters, comments and titles, the separator, the names of the columns, the cells."""

from __future__ import annotations

import codecs
import contextlib
import csv
import io
import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from ...inputs.reading import few

if TYPE_CHECKING:
    import polars as pl

OTHERS = {b"%PDF": "a PDF", b"<!DO": "a web page", b"<htm": "a web page", b"<table": "a web page", b"{\\rt": "a text document"}
OTHERS |= {b"[{": "JSON", b'{"': "JSON"}
MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
SEPARATORS = ",;\t|"
LOOKED_AT = 200  # lines by which the separator is found
VALUE = re.compile(r"[-+($€]?\d[\d\s.,:/+%)TZeE-]*")  # a number or a date, which names no column
OPEN = re.compile(r'(?:^|[,;\t|])\s*"[^"\n]*$', re.MULTILINE)  # a cell whose quote does not end in its line
MOST_UNSEEN = 0.03  # part of the characters that nobody can see, in what is text
MOST_LINES = 50  # in one cell
COMMENTS = ("#", "//", "%")
ERRORS = ("#n/a", "#na", "#value!", "#div/0!", "#ref!", "#null!", "#num!", "#name?")  # of a spreadsheet, in a cell

Lines = list[tuple[int, str]]  # with their numbers in the file


def decoded(content: bytes, path: Path) -> tuple[str, list[str]]:
    """The characters of a file, and a note where their encoding had to be guessed."""
    encoding = next((name for mark, name in MARKS if content.startswith(mark)), None)
    kind = next((kind for begin, kind in OTHERS.items() if content.lstrip()[: len(begin)].lower() == begin.lower()), None)
    if kind is not None:
        raise ValueError(f"{path} is {kind}, not a table: save the table in it as CSV or xlsx")
    notes: list[str] = []
    if encoding is None and content[:400].count(0) > 0.3 * len(content[:400]):
        encoding = "utf-16-le" if content[1:2] == b"\0" else "utf-16-be"
    for name in [encoding] if encoding else ["utf-8", "cp1252", "latin-1"]:
        try:
            text = content.decode(name)
            break
        except UnicodeDecodeError as problem:
            where = problem.start
    else:
        raise ValueError(f"{path} is not {encoding} text (byte {where}): save it as UTF-8")
    start = text[:4096]
    unseen = sum(not c.isprintable() and not c.isspace() and c != "\ufeff" for c in start)
    if "\0" in start or unseen > MOST_UNSEEN * len(start):
        raise ValueError(f"{path} is not a table: CSV, TSV, Parquet and spreadsheets are read, gzipped or not")
    if encoding is None and name != "utf-8":
        notes.append(f"the file is not UTF-8: its letters are read as Windows-1252 (Latin-1), the first at byte {where}")
    return text, notes


def grid_of(text: str, path: Path, separator: str | None, notes: list[str]) -> tuple[pl.DataFrame, str, list[str]]:
    """The cells of a text, all as text, under their names; the separator; and what was assumed.

    How the table is written is seen in its first lines, and where all others are plain they are not looked at one by one.
    """
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    first, rest = _after(text, LOOKED_AT)
    if rest and '"' not in text:
        with contextlib.suppress(ValueError):
            header, rows, mark, said = _rows_of(first, path, separator, list(notes))
            if _all_plain(rest, mark, len(header)):
                return _frame(header, "\n".join([*rows, rest]), mark, path), mark, said
    header, rows, mark, said = _rows_of(text, path, separator, notes)
    return _frame(header, "\n".join(rows), mark, path), mark, said


def _after(text: str, count: int) -> tuple[str, str]:
    """The first lines, and what comes after them."""
    end = -1
    for _ in range(count):
        end = text.find("\n", end + 1)
        if end < 0:
            return text, ""
    return text[:end], text[end + 1 :]


def _all_plain(text: str, separator: str, width: int) -> bool:
    """Whether each line has so many cells, several, of which some are filled, and none is a comment."""
    import polars as pl

    table = pl.read_csv(io.BytesIO(text.encode()), has_header=False, separator="\0", quote_char=None, schema={"": pl.String})
    line = table.to_series()
    even = line.str.count_matches(separator, literal=True) == width - 1
    return width > 1 and bool(even.fill_null(False).all()) and not line.str.contains(r"^\s*(?:#|//|%|[\s,;|]*$)").any()


def _rows_of(text: str, path: Path, separator: str | None, notes: list[str]) -> tuple[list[str], list[str], str, list[str]]:
    """The names of the columns, the lines below them, what separates their cells, and what was assumed."""
    lines = [(number, line) for number, line in _lines(text) if line.strip(" \t,;|")]
    if lines and re.fullmatch(r"sep=.", lines[0][1].strip()):
        separator, lines = lines[0][1].strip()[-1], lines[1:]
    lines, comments = _without_comments(lines)
    if not lines:
        raise ValueError(f"{path} is empty: a table with a header and at least one row is needed")
    separator = separator or ("\t" if ".tsv" in path.suffixes else _separator([line for _, line in lines[:LOOKED_AT]]))
    if separator == " ":
        lines = [(number, re.sub(r"\s+", "\t", line.strip())) for number, line in lines]
        comments = [re.sub(r"\s+", "\t", line.strip()) for line in comments]
        notes.append("blanks stand between the columns")
        separator = "\t"
    elif separator == "|":
        lines = [(number, line.strip().strip("|")) for number, line in lines if not re.fullmatch(r"[\s|:+-]+", line)]
        notes.append("bars stand between the columns")
    lines = _after_titles(lines, separator, notes)
    header, lines = _header(lines, comments, separator, path, notes)
    widths = [(number, _width(line, separator)) for number, line in lines]
    trailing = all(line.rstrip().endswith(separator) for _, line in lines)
    if lines and not trailing and {width for _, width in widths} == {len(header) + 1}:
        header = ["row", *header]
        notes.append("the first column has no name: it is called 'row'")
    header = [name or f"column {place + 1}" for place, name in enumerate(header)]
    repeated = sorted({name for name in header if header.count(name) > 1})
    if repeated:
        raise ValueError(f"{path} has two columns called {few([repr(name) for name in repeated])}: rename one of them")
    if not lines:
        raise ValueError(f"{path} has a header but no rows: at least one row is needed")
    return header, _of_one_width(lines, widths, len(header), separator, path, notes), separator, notes


def _frame(header: list[str], body: str, separator: str, path: Path) -> pl.DataFrame:
    """The cells of lines, all as text."""
    import polars as pl

    if f'{separator} "' in body:
        body = re.sub(f'{re.escape(separator)} +"', f'{separator}"', body)
    try:
        return pl.read_csv(
            io.BytesIO(body.encode()), has_header=False, separator=separator, schema=dict.fromkeys(header, pl.String)
        )
    except pl.exceptions.PolarsError as problem:
        raise ValueError(f"{path} cannot be read as a table ({first_line(problem)}): repair that line") from None


def _lines(text: str) -> Lines:
    """The lines of a text with their numbers; one whose quotes are open goes on in the next."""
    lines = list(enumerate(text.split("\n"), 1))
    if '"' not in text:
        return lines
    found, at = Lines(), 0
    while at < len(lines):
        number, line = lines[at]
        at += 1
        if line.count('"') % 2 and OPEN.search(line):
            rest = [following for _, following in lines[at : at + MOST_LINES]]
            end = next((i for i, following in enumerate(rest) if following.count('"') % 2), None)
            if end is not None:
                line, at = "\n".join([line, *rest[: end + 1]]), at + end + 1
        found.append((number, line))
    return found


def _without_comments(lines: Lines) -> tuple[Lines, list[str]]:
    """The lines without comments, and the comments; where most lines begin with such a mark, it is none of a comment."""
    marked = [line.lstrip().startswith(COMMENTS) and not line.lower().startswith(ERRORS) for _, line in lines]
    if sum(marked) > max(len(lines) / 2, 2):
        return lines, []
    kept = [one for one, comment in zip(lines, marked, strict=True) if not comment]
    return kept, [line for (_, line), comment in zip(lines, marked, strict=True) if comment]


def _separator(lines: list[str]) -> str:
    """The separator that divides the most lines into the same number of cells, two at least; blanks where no other does."""

    def merit(separator: str) -> tuple[float, int]:
        width, count = Counter(_width(line, separator) for line in lines).most_common(1)[0]
        return (count / len(lines), width) if width > 1 else (0.0, 0)

    if "," not in lines[0] and len(lines) > 1 and all(re.fullmatch(r"\s*[-+]?\d*,\d+\s*", line) for line in lines[1:]):
        return "\t"  # one column of decimal commas
    best = max(SEPARATORS, key=merit)
    share, _ = merit(best)
    if share > 0.5:
        return best
    first, *widths = [len(line.split()) for line in lines]
    if widths and len(set(widths)) == 1 and widths[0] > 1 and first > 1 and first in (widths[0], widths[0] - 1):
        return " "
    return best if share else ","


def _cells(line: str, separator: str) -> list[str]:
    """The cells of a line."""
    found = next(csv.reader([line], delimiter=separator, skipinitialspace=True)) if '"' in line else line.split(separator)
    return [cell.strip() for cell in found]


def _width(line: str, separator: str) -> int:
    """The number of cells in a line."""
    return line.count(separator) + 1 if '"' not in line else len(_cells(line, separator))


def _after_titles(lines: Lines, separator: str, notes: list[str]) -> Lines:
    """The lines from the header on: a title fills one cell where the table has several."""
    filled = lambda line: [cell for cell in _cells(line, separator) if cell]
    usual = Counter(len(filled(line)) for _, line in lines[:LOOKED_AT]).most_common(1)[0][0]
    is_data = lambda line: all(VALUE.fullmatch(cell) for cell in filled(line))
    while len(lines) > 2 and len(filled(lines[0][1])) == 1 < usual and not is_data(lines[1][1]):
        notes.append(f"line {lines[0][0]} is a title, {lines[0][1].strip(' ,;|')[:40]!r}: passed over")
        lines = lines[1:]
    return lines


def _header(lines: Lines, comments: list[str], separator: str, path: Path, notes: list[str]) -> tuple[list[str], Lines]:
    """The names of the columns and the lines below them; a comment names them where it has as many words as there are cells."""
    header = _cells(lines[0][1], separator)
    numbers = all(VALUE.fullmatch(name) for name in header)
    last = _cells(re.sub(r"^\s*(#|//|%)+\s*", "", comments[-1]), separator) if comments else []
    named = numbers and len(last) == len(header) and not any(VALUE.fullmatch(name) for name in last)
    count = len(comments) - named
    if count:
        notes.append("1 line of comment is passed over" if count == 1 else f"{count} lines of comment are passed over")
    if named:
        notes.append("the last comment names the columns")
        return last, lines
    if numbers:
        raise ValueError(f"{path} has no header: its first line should name the columns, but reads {few(header)}")
    return header, lines[1:]


def _of_one_width(
    lines: Lines, widths: list[tuple[int, int]], width: int, separator: str, path: Path, notes: list[str]
) -> list[str]:
    """The lines, once none has more cells than the header; those that have fewer are said."""
    short = [number for number, found in widths if found < width]
    if short:
        where = few([str(number) for number in short])
        notes.append(f"line {where} has fewer cells than the header: those at its end are missing")
    body = []
    for (number, line), (_, found) in zip(lines, widths, strict=True):
        while found > width and line.rstrip().endswith(separator):
            line, found = line.rstrip()[: -len(separator)], found - 1
        if found > width and line.count('"') % 2 == 0:
            raise ValueError(
                f"{path} cannot be read as a table (line {number} has {found} cells, the header {width}): repair that line, "
                f'or put cells that hold a separator in "quotes"'
            )
        body.append(line)
    return body


def first_line(problem: Exception) -> str:
    """What an error says first."""
    return str(problem).strip().splitlines()[0]
