"""Dates and times in text: which form a whole column has, which of two numbers is the day, and what the zone is."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ...inputs.reading import few
from .moments import ABBREVIATIONS, COUNTED, about_clocks, in_zone, minutes_of, offset_name

if TYPE_CHECKING:
    import polars as pl

ORDERS = ("auto", "day-first", "month-first")
MOSTLY = 0.8  # part of the cells that must have one form; the others are then missing
MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
ELSEWHERE = {  # how months begin in other languages
    **dict.fromkeys(("ene", "gen"), "jan"),
    **dict.fromkeys(("fév", "fev"), "feb"),
    **dict.fromkeys(("mär", "mrz", "mrt", "maa"), "mar"),
    **dict.fromkeys(("avr", "abr"), "apr"),
    **dict.fromkeys(("mai", "mei", "maj", "mag"), "may"),
    **dict.fromkeys(("giu", "juin"), "jun"),
    **dict.fromkeys(("lug", "juil"), "jul"),
    **dict.fromkeys(("aoû", "aou", "ago"), "aug"),
    "set": "sep",
    **dict.fromkeys(("okt", "ott", "out"), "oct"),
    **dict.fromkeys(("dez", "déc", "dic"), "dec"),
}
ONE_DAY = "times of day without a date are taken as those of one day"
NAMED_DATE = re.compile("date|day|datum|tag|time|zeit", re.IGNORECASE)
NAMED_MONTH = re.compile("date|datum|month|monat|period|yyyymm", re.IGNORECASE)
_EPOCH = re.compile(r"(?i)(?:^|[\W_])(?:timestamp|time|date|datetime|epoch|unix|unixtime|ts)(?:$|[\W_])")
_SERIAL = re.compile(r"(?i)(?:^|[\W_])(?:date|datum)(?:$|[\W_])")
NUMBERED = {  # how moments are counted: names of such columns, the least and the largest number, and what is said of them
    "epoch": (_EPOCH, 5e8, 4e9, "seconds since 1970"),
    "epoch-ms": (_EPOCH, 5e11, 4e12, "milliseconds since 1970"),
    "epoch-us": (_EPOCH, 5e14, 4e15, "microseconds since 1970"),
    "epoch-ns": (_EPOCH, 5e17, 4e18, "nanoseconds since 1970"),
    "serial": (_SERIAL, 2e4, 6e4, "days as spreadsheets number them"),
}

# A weekday, what names the day, and the time of day with its zone; each may be missing.
CELL = (
    r"(?i)^(?:(?:mon|tue|wed|thu|fri|sat|sun)[a-z]*\.?,?\s+)?(?P<day>.*?)"
    r"(?:(?:^|(?P<gap>[T\s,])\s*)(?P<hour>\d{1,2}):(?P<minute>\d{2})(?::(?P<second>\d{2})(?P<fraction>[.,]\d+)?)?"
    r"\s*(?:(?P<half>[ap])\.?m\.?)?\s*(?P<zone>Z|[A-Z]{3,4}|[+-]\d{2}(?::?\d{2})?)?)?$"
)
WORD = r"(?:de\s+)?(?P<b>[a-zäéû]{3,10})\.?(?:\s+de)?"
YEAR, SHORT = r"(?P<y>(?:1[5-9]|2[01])\d{2})", r"(?P<y>(?:1[5-9]|2[01])\d{2}|\d{2})"  # 1500 … 2199; or two digits
MARK, DAY, MONTH, ORDINAL = r"(?P<mark>[-/.])", r"(?P<d>\d{1,2})", r"(?P<m>\d{1,2})", "(?:st|nd|rd|th|er)?"
FORMS = {  # how the day is written again, with {} for the mark between numbers, and how it is found
    "%Y{}%m{}%d": rf"^{YEAR}{MARK}{MONTH}[-/.]{DAY}$",
    "%Y%m%d": rf"^{YEAR}(?P<m>\d{{2}})(?P<d>\d{{2}})$",
    "%Y%m": rf"^{YEAR}(?P<m>0[1-9]|1[0-2])$",
    "%Y{}%m": rf"^{YEAR}{MARK}{MONTH}$",
    "%m{}%Y": rf"^{MONTH}{MARK}{YEAR}$",
    "two": rf"^(?P<one>\d{{1,2}}){MARK}(?P<two>\d{{1,2}})[-/.]{SHORT}$",
    "%d{}%b{}%Y": rf"(?i)^{DAY}(?:{ORDINAL}|\.)(?P<mark>[-/\s]*){WORD}[-/.,\s]*{SHORT}$",
    "%b %d, %Y": rf"(?i)^{WORD}\s+{DAY}{ORDINAL},?\s+{YEAR}$",
    "%b{}%Y": rf"(?i)^{WORD}(?P<mark>[-/.\s]*)'?{SHORT}$",
    "%Y{}%b": rf"(?i)^{YEAR}(?P<mark>[-/.\s]*){WORD}$",
    "%Y{}%b{}%d": rf"(?i)^{YEAR}(?P<mark>[-/.\s]*){WORD}[-/.\s]*{DAY}$",
    "%G-W%V": rf"(?i)^{YEAR}[-\s]?w(?P<w>[0-4]\d|5[0-3])$",
    "%Y-Q": rf"(?i)^{YEAR}[-/\s]*q(?P<q>[1-4])$",
    "Q-%Y": rf"(?i)^q(?P<q>[1-4])[-/\s]*{YEAR}$",
}
RARE = (  # times of day without colons, the same with them, and how what strftime makes of these is brought back
    (
        r"^(\d{8})T?(\d{2})(\d{2})(\d{2})(?:\.\d+)?(Z|[+-]\d{2}:?\d{2})?$",
        "${1}T${2}:${3}:${4}${5}",
        lambda s: s.replace(":", ""),
    ),
    (r"^(\d{8})T(\d{2})(\d{2})(Z|[+-]\d{2}:?\d{2})?$", "${1}T${2}:${3}${4}", lambda s: s.replace(":", "")),
    (r"^(\d{1,2}\.\d{1,2}\.\d{4}),? (\d{1,2})\.(\d{2})$", "${1} ${2}:${3}", lambda s: s.replace(":", ".")),
    (r"^(\d{4}-\d{2}-\d{2}|\d{1,2}[./]\d{1,2}[./]\d{4})[T ](\d{1,2})$", "${1} ${2}:00", lambda s: s.replace(":%M", "")),
)


class Moments(NamedTuple):
    """A column of dates: the moments, how they are written, their zone, and what was assumed."""

    series: pl.Series
    style: str
    zone: str
    notes: tuple[str, ...]


def are_dates(numbers: pl.Series) -> bool:
    """Whether numbers such as 20200131 or 202001 are dates, in a column whose name says so."""
    known = numbers.drop_nulls()
    forms = ((NAMED_DATE, r"^\d{8}$"), (NAMED_MONTH, FORMS["%Y%m"]))
    return any(bool(name.search(numbers.name)) and bool(known.str.contains(form).all()) for name, form in forms)


def read_numbered(numbers: pl.Series, style: str = "") -> Moments | None:
    """The moments that whole numbers count, in a column whose name says that it holds such."""
    import polars as pl

    counted = numbers.cast(pl.Float64, strict=False)
    known = counted.filter(numbers.is_not_null()).to_numpy()
    if not len(known) or not np.all(known == np.round(known)):
        return None
    for way, (named, least, largest, what) in NUMBERED.items():
        if style == way or (named.search(numbers.name) and least <= known.min() and known.max() <= largest):
            each, begin = COUNTED[way]
            micros = ((counted - begin) * (1e6 * each)).round().cast(pl.Int64)
            moments = micros.cast(pl.Datetime("us"))
            moments = moments.dt.date() if way == "serial" else moments.dt.replace_time_zone("UTC")
            note = f"numbers such as {known[0]:.0f} are read as {what}"
            return Moments(moments.alias(numbers.name), way, "" if way == "serial" else "UTC", (note,))
    return None


def in_several_forms(text: pl.Series) -> bool:
    """Whether nearly all cells are dates, and too many of them are written in another way than the rest."""
    day = text.str.extract_groups(CELL).struct.unnest()["day"]
    patterns = [pattern for form, pattern in FORMS.items() if form not in ("%Y%m%d", "%Y%m")]
    found = np.array([day.str.contains(pattern).fill_null(False).to_numpy() for pattern in patterns])
    enough = MOSTLY * int(text.is_not_null().sum())
    return bool(found.sum(axis=1).max() < enough <= found.any(axis=0).sum())


def _with_colons(text: pl.Series) -> tuple[pl.Series, Callable[[str], str]]:
    """Times of day in rarer forms, as they are usually written, and the way back for how they are written."""
    enough = MOSTLY * int(text.is_not_null().sum())
    for pattern, usual, back in RARE:
        if enough and text.str.contains(pattern).sum() >= enough:
            return text.str.replace(pattern, usual), back
    return text, lambda style: style


def read_dates(text: pl.Series, order: str = "auto", zone: str = "", style: str = "") -> Moments | None:
    """The moments in a column of text, or None where it holds none.

    `style` is that of a column that is to be read alike, `zone` the one that the user asks for or that such a column has.
    """
    import polars as pl

    usual, back = _with_colons(text)
    parts = usual.str.extract_groups(CELL).struct.unnest()
    filled = int(text.is_not_null().sum())
    clock = parts["hour"].is_not_null()
    if filled and int((clock & (parts["day"].fill_null("") == "")).sum()) >= MOSTLY * filled:
        if (parts["hour"].cast(pl.Int32) > 24).any():  # how long something takes, and no time of day
            return None
        form, notes = "", [_about_one_day(_seconds_of_day(parts).filter(clock).to_numpy())]
        day = pl.repeat("1970-01-01", len(text), eager=True).str.to_date()
        day = pl.select(pl.when(clock).then(day)).to_series()
    else:
        found = _days(text, parts["day"], order, style, filled)
        if found is None:
            return None
        day, form, notes = found
    lost = text.filter(day.is_null() & text.is_not_null()).unique(maintain_order=True).to_list()
    if lost:
        notes.append(f"{few([repr(word) for word in lost])} {'is no date' if len(lost) == 1 else 'are no dates'}: missing")
    if not clock.any():
        return Moments(day.alias(text.name), form, "", tuple(notes))
    seconds = _seconds_of_day(parts)
    wall = day.cast(pl.Datetime("us")) + (seconds * 1e6).round().cast(pl.Int64).cast(pl.Duration("us"))
    found_zone = _in_zone(wall, parts["zone"], zone, notes)
    if found_zone is None:
        return None
    moments, zone = found_zone
    return Moments(moments.alias(text.name), back(form + _clock_style(parts, form, zone)), zone, tuple(notes))


def _about_one_day(seconds: np.ndarray) -> str:
    """What is assumed of times that name no day."""
    back = int(np.sum(np.diff(seconds) < 0))
    many = "once" if back == 1 else f"{back} times"
    return f"{ONE_DAY}, though the rows go back {many}: add the date if they are of several days" if back else ONE_DAY


def _days(text: pl.Series, day: pl.Series, order: str, style: str, filled: int) -> tuple[pl.Series, str, list[str]] | None:
    """The dates, how they are written, and what was assumed of them."""
    import polars as pl

    counts = {form: int(day.str.contains(pattern).sum()) for form, pattern in FORMS.items()}
    form = max(counts, key=lambda one: counts[one])
    if counts[form] < max(MOSTLY * filled, 1):
        return None
    named = {"%Y%m%d": NAMED_DATE, "%Y%m": NAMED_MONTH}.get(form)  # which are numbers, too
    if named is not None and not named.search(text.name) and text.str.contains(r"^\d+$").any():
        return None
    parts = day.str.extract_groups(FORMS[form]).struct.unnest()
    mark = next((one for one in parts["mark"].drop_nulls()), "") if "mark" in parts.columns else ""
    notes: list[str] = []
    if form == "two":
        one, two = (parts[name].cast(pl.Int32) for name in ("one", "two"))
        year = _year(parts["y"], notes)
        first, why = _order(text, one, two, year, mark, order, style)
        parts = parts.with_columns((one if first else two).alias("d"), (two if first else one).alias("m"))
        form = "%d{}%m{}%Y" if first else "%m{}%d{}%Y"
        notes.append(why) if why else None
    else:
        year = _year(parts["y"], notes)
    if "w" in parts.columns:
        weeks = pl.select(pl.format("{}-W{}-1", year, parts["w"]).str.to_date("%G-W%V-%u", strict=False)).to_series()
        return (weeks, form, notes) if weeks.is_not_null().sum() >= MOSTLY * filled else None
    month, number = (
        _month(parts),
        (parts["d"].cast(pl.Int32) if "d" in parts.columns else pl.ones(len(day), pl.Int32, eager=True)),
    )
    if month is None:
        return None
    pieces = pl.DataFrame({"y": year, "m": month, "d": number})
    dates = pieces.select(pl.format("{}-{}-{}", "y", "m", "d").str.to_date("%Y-%m-%d", strict=False)).to_series()
    return (dates, form.replace("{}", mark), notes) if dates.is_not_null().sum() >= MOSTLY * filled else None


def _year(text: pl.Series, notes: list[str]) -> pl.Series:
    import polars as pl

    year = text.cast(pl.Int32)
    short = text.str.len_chars() == 2
    if short.any():
        notes.append("years of two digits are read as 1969 … 2068")
    return pl.select(pl.when(short).then(year + pl.when(year < 69).then(2000).otherwise(1900)).otherwise(year)).to_series()


def _month(parts: pl.DataFrame) -> pl.Series | None:
    """The month by its number, its name or its quarter; None where the words name none."""
    import polars as pl

    if "q" in parts.columns:
        return 3 * parts["q"].cast(pl.Int32) - 2
    if "b" not in parts.columns:
        return parts["m"].cast(pl.Int32)
    numbers = {name: month + 1 for month, name in enumerate(MONTHS)}
    numbers |= {name: numbers[english] for name, english in ELSEWHERE.items()}
    word = parts["b"].str.to_lowercase()
    begins = lambda count: word.str.slice(0, count).replace_strict(numbers, default=None, return_dtype=pl.Int32)
    found = begins(4).fill_null(begins(3))  # juin and juillet
    return found if found.is_not_null().any() else None


def _order(
    text: pl.Series, one: pl.Series, two: pl.Series, year: pl.Series, mark: str, order: str, style: str
) -> tuple[bool, str]:
    """Whether the day comes first, and how that was decided where it had to be."""
    if order != "auto":
        return order == "day-first", ""
    if style.startswith(("%d", "%m")):
        return style.startswith("%d"), ""
    example = text.drop_nulls()[0]
    late, early = one > 12, two > 12
    if late.any() and early.any():
        a, b = text.filter(late.fill_null(False))[0], text.filter(early.fill_null(False))[0]
        raise ValueError(
            f"column {text.name!r} holds {a!r} and {b!r}: in one the day comes first, in the other the month; "
            "write them alike, or say --dates day-first or --dates month-first"
        )
    said = lambda first: f"dates such as {example} are read {'day' if first else 'month'} first"
    if late.any() or early.any():
        witness = text.filter((late | early).fill_null(False))[0]
        return bool(late.any()), f"{said(bool(late.any()))}, as {witness} shows"
    first, why = _guessed(one, two, year, mark)
    other = "month-first" if first else "day-first"
    return first, f"{said(first)}, {why}; if that is wrong, say --dates {other}"


def _guessed(one: pl.Series, two: pl.Series, year: pl.Series, mark: str) -> tuple[bool, str]:
    """Day or month first where no number is beyond 12: by the mark, by the order of the rows, by even steps; else day first."""
    if mark == ".":
        return True, "as dates with points are"
    counted = lambda month, day: (year * 372 + month * 31 + day).drop_nulls().to_numpy().astype(float)
    steps = {True: np.diff(counted(two, one)), False: np.diff(counted(one, two))}
    forward = {first: bool(len(step) and (step > 0).all()) for first, step in steps.items()}
    if forward[True] != forward[False]:
        return forward[True], "because the rows then stand in the order of time"
    if forward[True]:
        uneven = {first: float(np.std(step) / np.mean(step)) for first, step in steps.items()}
        if abs(uneven[True] - uneven[False]) > 0.05:
            return uneven[True] < uneven[False], "because the steps between the rows are then more even"
    return True, "as nothing in the column tells"


def _seconds_of_day(parts: pl.DataFrame) -> pl.Series:
    """Seconds since midnight, 0 where no time is written."""
    import polars as pl

    number = lambda name: pl.col(name).cast(pl.Float64).fill_null(0.0)
    hour = number("hour") % 12 + pl.when(pl.col("half").str.to_lowercase() == "p").then(12.0).otherwise(0.0)
    hour = pl.when(pl.col("half").is_null()).then(number("hour")).otherwise(hour)
    fraction = pl.format("0.{}", pl.col("fraction").str.slice(1)).cast(pl.Float64).fill_null(0.0)
    return parts.select(3600 * hour + 60 * number("minute") + number("second") + fraction).to_series()


def _in_zone(wall: pl.Series, zones: pl.Series, asked: str, notes: list[str]) -> tuple[pl.Series, str] | None:
    """Moments from the time on the wall and its zone; without any zone they stay as they are, and a word is no zone."""
    import polars as pl

    offsets = zones.drop_nulls().unique(maintain_order=True).to_list()
    if not offsets:
        if not asked:
            return wall, ""
        notes += about_clocks(wall, asked)
        return in_zone(wall, asked), asked
    strange = [text for text in offsets if text.isalpha() and text.upper() not in ABBREVIATIONS]
    if strange:
        return None
    minutes = {text: minutes_of(text) for text in offsets}
    named = [f"{text} for {offset_name(value)}" for text, value in minutes.items() if text.isalpha() and value]
    if named:
        notes.append(f"the zone is taken from its name, {few(named)}")
    own = sorted({offset_name(value) for value in minutes.values()})
    bare = int((wall.is_not_null() & zones.is_null()).sum())
    if bare:
        notes.append(f"{bare} of the times have no zone: they are taken for UTC")
    shift = zones.replace_strict(minutes, default=0, return_dtype=pl.Int64)
    moments = (wall - (shift * 60_000_000).cast(pl.Duration("us"))).dt.replace_time_zone("UTC")
    zone = asked or (own[0] if len(own) == 1 and not bare else "UTC")
    if len(own) > 1 and not asked:
        notes.append(
            f"times with several offsets ({few(own)}) are shown in UTC; --zone, as in --zone Europe/Berlin, names another"
        )
    return moments, zone


def _clock_style(parts: pl.DataFrame, form: str, zone: str) -> str:
    """How the time of day is written."""
    half, seconds = parts["half"].is_not_null().any(), parts["second"].is_not_null().any()
    gap = "" if not form else "T" if "T" in parts["gap"].to_list() else " "
    clock = (
        ("%I" if half else "%H") + ":%M" + (":%S" if seconds else "") + (".%f" if parts["fraction"].is_not_null().any() else "")
    )
    return gap + clock + (" %p" if half else "") + ("%z" if zone else "")
