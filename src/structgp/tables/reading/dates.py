"""Dates and times in text: which form a whole column has, which of two numbers is the day, and what the zone is."""

from __future__ import annotations

import datetime
import re
import zoneinfo
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ...inputs.reading import few

if TYPE_CHECKING:
    import polars as pl

SECONDS = {"years": 365.25 * 86400.0, "days": 86400.0, "hours": 3600.0, "seconds": 1.0}
ORDERS = ("auto", "day-first", "month-first")
MOST_LOOKED_BACK = 400  # moments by which the step of a series is found
MOSTLY = 0.8  # part of the cells that must have one form; the others are then missing
MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
GERMAN = {"mär": "mar", "mrz": "mar", "mai": "may", "okt": "oct", "dez": "dec"}
OFFSET = re.compile(r"UTC|[+-]\d{2}:\d{2}")
NAMED_DATE = re.compile("date|day|datum|tag|time|zeit", re.IGNORECASE)

# A weekday, what names the day, and the time of day with its zone; each may be missing.
CELL = (
    r"(?i)^(?:(?:mon|tue|wed|thu|fri|sat|sun)[a-z]*\.?,?\s+)?(?P<day>.*?)"
    r"(?:(?:^|(?P<gap>[T\s,])\s*)(?P<hour>\d{1,2}):(?P<minute>\d{2})(?::(?P<second>\d{2})(?P<fraction>[.,]\d+)?)?"
    r"\s*(?P<half>[ap])?(?:\.?m\.?)?\s*(?P<zone>Z|UTC|GMT|[+-]\d{2}(?::?\d{2})?)?)?$"
)
WORD = r"(?P<b>[a-zäé]{3,9})\.?"
FORMS = {  # what names the day, and how it is written again; {} is the mark between numbers
    "%Y{}%m{}%d": r"^(?P<y>\d{4})(?P<mark>[-/.])(?P<m>\d{1,2})[-/.](?P<d>\d{1,2})$",
    "%Y%m%d": r"^(?P<y>\d{4})(?P<m>\d{2})(?P<d>\d{2})$",
    "%Y{}%m": r"^(?P<y>\d{4})(?P<mark>[-/.])(?P<m>\d{1,2})$",
    "%m{}%Y": r"^(?P<m>\d{1,2})(?P<mark>[-/.])(?P<y>\d{4})$",
    "two": r"^(?P<one>\d{1,2})(?P<mark>[-/.])(?P<two>\d{1,2})[-/.](?P<y>\d{4}|\d{2})$",
    "%d{}%b{}%Y": r"(?i)^(?P<d>\d{1,2})(?:st|nd|rd|th|\.)?(?P<mark>[-/\s]*)" + WORD + r"[-/.,\s]*(?P<y>\d{4}|\d{2})$",
    "%b %d, %Y": r"(?i)^" + WORD + r"\s+(?P<d>\d{1,2})(?:st|nd|rd|th)?,?\s+(?P<y>\d{4})$",
    "%b{}%Y": r"(?i)^" + WORD + r"(?P<mark>[-/.\s]*)'?(?P<y>\d{4}|\d{2})$",
    "%Y{}%b": r"(?i)^(?P<y>\d{4})(?P<mark>[-/.\s]*)" + WORD + "$",
    "%Y{}%b{}%d": r"(?i)^(?P<y>\d{4})(?P<mark>[-/.\s]*)" + WORD + r"[-/.\s]*(?P<d>\d{1,2})$",
    "%Y-Q": r"(?i)^(?P<y>\d{4})[-/\s]*q(?P<q>[1-4])$",
    "Q-%Y": r"(?i)^q(?P<q>[1-4])[-/\s]*(?P<y>\d{4})$",
}


class Moments(NamedTuple):
    """A column of dates: the moments, how they are written, their zone, and what was assumed."""

    series: pl.Series
    style: str
    zone: str
    notes: tuple[str, ...]


def read_dates(text: pl.Series, order: str = "auto", zone: str = "", style: str = "") -> Moments | None:
    """The moments in a column of text, or None where it holds none.

    `style` is that of a column that is to be read alike, `zone` the one that the user asks for or that such a column has.
    """
    import polars as pl

    parts = text.str.extract_groups(CELL).struct.unnest()
    filled = int(text.is_not_null().sum())
    clock = parts["hour"].is_not_null()
    if filled and int((clock & (parts["day"].fill_null("") == "")).sum()) >= MOSTLY * filled:
        day, form, notes = pl.repeat("1970-01-01", len(text), eager=True).str.to_date(), "", []
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
    moments, zone = _in_zone(wall, parts["zone"], zone, notes)
    return Moments(moments.alias(text.name), form + _clock_style(parts, form, zone), zone, tuple(notes))


def _days(text: pl.Series, day: pl.Series, order: str, style: str, filled: int) -> tuple[pl.Series, str, list[str]] | None:
    """The dates, how they are written, and what was assumed of them."""
    import polars as pl

    counts = {form: int(day.str.contains(pattern).sum()) for form, pattern in FORMS.items()}
    form = max(counts, key=lambda one: counts[one])
    if counts[form] < max(MOSTLY * filled, 1):
        return None
    if form == "%Y%m%d" and not NAMED_DATE.search(text.name):
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
    numbers |= {name: numbers[english] for name, english in GERMAN.items()}
    found = parts["b"].str.to_lowercase().str.slice(0, 3).replace_strict(numbers, default=None, return_dtype=pl.Int32)
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


def _in_zone(wall: pl.Series, zones: pl.Series, asked: str, notes: list[str]) -> tuple[pl.Series, str]:
    """Moments from the time on the wall and its zone; without any zone they stay as they are."""
    import polars as pl

    offsets = zones.drop_nulls().unique(maintain_order=True).to_list()
    if not offsets:
        if not asked:
            return wall, ""
        notes.append(f"times without a zone are taken for those of {asked}")
        return in_zone(wall, asked), asked
    minutes = {text: _minutes(text) for text in offsets}
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


def in_zone(wall: pl.Series, zone: str) -> pl.Series:
    """Moments from times on the wall of a place; an hour that the clocks skip is missing, one that they repeat is the first."""
    if OFFSET.fullmatch(zone):
        return (wall - datetime.timedelta(minutes=_minutes(zone))).dt.replace_time_zone("UTC")
    return wall.dt.replace_time_zone(zone, ambiguous="earliest", non_existent="null")


def _minutes(zone: str) -> int:
    """Minutes that a clock with this offset is ahead of UTC."""
    if zone.upper() in ("Z", "UTC", "GMT"):
        return 0
    digits = zone[1:].replace(":", "").ljust(4, "0")
    return (-1 if zone[0] == "-" else 1) * (60 * int(digits[:2]) + int(digits[2:]))


def offset_name(minutes: int) -> str:
    """An offset as ISO 8601 has it."""
    return "UTC" if minutes == 0 else f"{'-' if minutes < 0 else '+'}{abs(minutes) // 60:02d}:{abs(minutes) % 60:02d}"


def zone_of(name: str) -> datetime.tzinfo:
    """The zone with this name: UTC, an offset such as +01:00, or a place such as Europe/Berlin."""
    if OFFSET.fullmatch(name):
        return datetime.timezone(datetime.timedelta(minutes=_minutes(name)))
    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError(f"there is no time zone {name!r}: write for instance UTC, +01:00 or Europe/Berlin") from None


def _clock_style(parts: pl.DataFrame, form: str, zone: str) -> str:
    """How the time of day is written."""
    half, seconds = parts["half"].is_not_null().any(), parts["second"].is_not_null().any()
    gap = "" if not form else "T" if "T" in parts["gap"].to_list() else " "
    clock = (
        ("%I" if half else "%H") + ":%M" + (":%S" if seconds else "") + (".%f" if parts["fraction"].is_not_null().any() else "")
    )
    return gap + clock + (" %p" if half else "") + ("%z" if zone else "")


def write_moment(seconds: float, style: str, zone: str) -> str:
    """A moment, in seconds since 1970, as the table writes it."""
    moment = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(seconds=round(seconds, 3))
    moment = moment.astimezone(zone_of(zone)) if zone else moment
    if "Q" in style:
        style = style.replace("Q", f"Q{(moment.month + 2) // 3}")
    minutes = round((moment.utcoffset() or datetime.timedelta()).total_seconds() / 60)
    offset = "Z" if zone == "UTC" else offset_name(minutes).replace("UTC", "+00:00")
    return moment.strftime(style.replace("%z", offset))


def after(moments: np.ndarray, zone: str = "") -> Iterator[float]:
    """The moments that follow a series of them, in order, all in seconds since 1970.

    They go by whole months where the series does, by working days where it never met a weekend, by the days of the calendar where
    it has one time of day (also when clocks are changed), else by its usual step.
    """
    local, last = [_local(value, zone) for value in moments[-MOST_LOOKED_BACK:]], float(moments[-1])
    months = np.diff([12 * moment.year + moment.month for moment in local])
    step = float(np.median(np.diff(moments))) if len(moments) > 1 else 86400.0
    ends = all((moment + datetime.timedelta(days=1)).day == 1 for moment in local)
    same = len({moment.time() for moment in local}) == 1
    if len(months) and (months > 0).all() and same and (ends or len({moment.day for moment in local}) == 1):
        yield from _months_after(local[-1], int(np.median(months)), ends, zone)
    whole = round(step / 86400)
    working = whole == 1 and same and len(local) > 7 and all(moment.weekday() < 5 for moment in local)
    moment = local[-1]
    while True:
        if same and whole >= 1 and abs(step - whole * 86400) < 1:
            moment += datetime.timedelta(days=whole)
            while working and moment.weekday() >= 5:
                moment += datetime.timedelta(days=1)
            yield _utc(moment, zone)
        else:
            last += step
            yield last


def _months_after(moment: datetime.datetime, months: int, ends: bool, zone: str) -> Iterator[float]:
    """Moments some months apart, at the same day of the month or always at its last day."""
    count = 12 * moment.year + moment.month - 1
    while True:
        count += months
        first = moment.replace(year=count // 12, month=count % 12 + 1, day=1)
        following = (first + datetime.timedelta(days=31)).replace(day=1)
        last_day = (following - datetime.timedelta(days=1)).day
        yield _utc(first.replace(day=last_day if ends else min(moment.day, last_day)), zone)


def _local(seconds: float, zone: str) -> datetime.datetime:
    """The time on the wall."""
    moment = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(seconds=round(float(seconds), 3))
    return (moment.astimezone(zone_of(zone)) if zone else moment).replace(tzinfo=None)


def _utc(wall: datetime.datetime, zone: str) -> float:
    """Seconds since 1970 of a time on the wall."""
    return wall.replace(tzinfo=zone_of(zone) if zone else datetime.UTC).timestamp()
