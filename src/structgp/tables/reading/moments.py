"""Moments in zones of time: as they are written, and those that come after a series of them."""

from __future__ import annotations

import datetime
import re
import zoneinfo
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import polars as pl

SECONDS = {"years": 365.25 * 86400.0, "days": 86400.0, "hours": 3600.0, "seconds": 1.0}
CALENDAR = {"a day": 86400.0, "a week": 7 * 86400.0, "a year": 365.25 * 86400.0}  # in seconds
ABBREVIATIONS = {  # hours that a zone is ahead of UTC
    **dict.fromkeys(("Z", "UTC", "GMT", "WET"), 0),
    "BST": 1,
    "WEST": 1,
    "CET": 1,
    "MEZ": 1,
    "CEST": 2,
    "MESZ": 2,
    "EET": 2,
    "EEST": 3,
    "MSK": 3,
    "IST": 5.5,
    "JST": 9,
    "AEST": 10,
    "EDT": -4,
    "EST": -5,
    "CDT": -5,
    "CST": -6,
    "MDT": -6,
    "MST": -7,
    "PDT": -7,
    "PST": -8,
}
COUNTED = {  # moments as numbers: the seconds that one counts, and the number of 1970
    "epoch": (1.0, 0.0),
    "epoch-ms": (1e-3, 0.0),
    "epoch-us": (1e-6, 0.0),
    "epoch-ns": (1e-9, 0.0),
    "serial": (86400.0, 25569.0),
}
MOST_LOOKED_BACK = 400  # moments by which the step of a series is found
OFFSET = re.compile(r"UTC|[+-]\d{2}:\d{2}")


def in_zone(wall: pl.Series, zone: str) -> pl.Series:
    """Moments from times on the wall of a place; an hour that the clocks skip is missing, one that they repeat is the first."""
    if OFFSET.fullmatch(zone):
        return (wall - datetime.timedelta(minutes=minutes_of(zone))).dt.replace_time_zone("UTC")
    return wall.dt.replace_time_zone(zone, ambiguous="earliest", non_existent="null")


def about_clocks(wall: pl.Series, zone: str) -> list[str]:
    """What is assumed of times on the wall of a place."""
    notes = [f"times without a zone are taken for those of {zone}"]
    if OFFSET.fullmatch(zone):
        return notes
    first, second = (wall.dt.replace_time_zone(zone, ambiguous=which, non_existent="null") for which in ("earliest", "latest"))
    skipped, twice = first.null_count() - wall.null_count(), int((first != second).sum())
    many = lambda count: "1 time falls" if count == 1 else f"{count} times fall"
    if skipped:
        notes.append(f"{many(skipped)} into an hour that the clocks of {zone} skipped: missing")
    if twice:
        notes.append(f"{many(twice)} into an hour that the clocks of {zone} went through twice: taken for the first")
    return notes


def minutes_of(zone: str) -> int:
    """Minutes that a clock with this offset is ahead of UTC."""
    if zone.isalpha():
        return round(60 * ABBREVIATIONS[zone.upper()])
    digits = zone[1:].replace(":", "").ljust(4, "0")
    return (-1 if zone[0] == "-" else 1) * (60 * int(digits[:2]) + int(digits[2:]))


def offset_name(minutes: int) -> str:
    """An offset as ISO 8601 has it."""
    return "UTC" if minutes == 0 else f"{'-' if minutes < 0 else '+'}{abs(minutes) // 60:02d}:{abs(minutes) % 60:02d}"


def zone_of(name: str) -> datetime.tzinfo:
    """The zone with this name: UTC, an offset such as +01:00, or a place such as Europe/Berlin."""
    if OFFSET.fullmatch(name):
        return datetime.timezone(datetime.timedelta(minutes=minutes_of(name)))
    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError(f"there is no time zone {name!r}: write for instance UTC, +01:00 or Europe/Berlin") from None


def write_moment(seconds: float, style: str, zone: str) -> str:
    """A moment, in seconds since 1970, as the table writes it."""
    if style in COUNTED:
        each, begin = COUNTED[style]
        return f"{begin + seconds / each:.0f}"
    moment = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(seconds=round(seconds, 3))
    moment = moment.astimezone(zone_of(zone)) if zone else moment
    if "Q" in style:
        style = style.replace("Q", f"Q{(moment.month + 2) // 3}")
    minutes = round((moment.utcoffset() or datetime.timedelta()).total_seconds() / 60)
    offset = "Z" if zone == "UTC" else offset_name(minutes).replace("UTC", "+00:00")
    return moment.strftime(style.replace("%z", offset))


def after(moments: np.ndarray, zone: str = "") -> Iterator[float]:
    """The moments that follow a series of them, in order, all in seconds since 1970.

    They go by whole months where the series does, by working days where it never met a weekend, by the days of the calendar
    where it has one time of day (also when clocks are changed), else by its usual step.
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
