"""`structgp changepoints` and `identify`: where a series changes, and how one makes another."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from .base import aligned, command, notes_in_words
from .options import (
    AsJson,
    ChangingOption,
    DataArgument,
    DatesOption,
    InputOption,
    LagsOption,
    MethodOption,
    OrderOption,
    OutputOption,
    ReportOption,
    ZoneOption,
)

if TYPE_CHECKING:
    import polars as pl

    from ..several import Record


@command("changepoints series.csv --target level --time day --report changes.html", value="target", out="report")
def changepoints(
    data: DataArgument,
    target: ChangingOption,
    time: OrderOption = None,
    report: ReportOption = None,
    dates: DatesOption = "auto",
    zone: ZoneOption = "",
    as_json: AsJson = False,
) -> dict[str, Any]:
    """Find where a series changes its level or spread. With the probability of each change."""
    from ...sklearn.detector import ChangePointDetector
    from ..reading import as_floats, find_column, kind_of, read_table
    from ..report.changes import change_alarms

    read = read_table(data, dates=dates, zone=zone)
    frame = read.frame
    column = frame[find_column(frame, target, "column")]
    if kind_of(column) != "number" or column.is_null().all():
        raise ValueError(f"column {target!r} holds no numbers: changes are looked for in numbers")
    if time is not None:
        order = frame[find_column(frame, time, "time column")].arg_sort(nulls_last=True).head(frame[time].count())
        frame, read = frame[order], read._replace(written=read.written[order])
    detector = ChangePointDetector().fit(as_floats(frame[target]))
    probability = detector.posterior_.change_probability
    label = lambda row: str(row) if time is None else str(read.written[time][row])
    found = [
        {"row": int(row), "at": label(int(row)), "probability": float(probability[row])} for row in detector.change_points_
    ]
    lines = notes_in_words(read.notes)
    lines += [f"{frame.height} rows, {len(found)} change{'' if len(found) == 1 else 's'} in {target!r}"]
    lines += [f"attention: {alarm}" for alarm in change_alarms(len(found), frame.height)]
    lines += [f"  {change['at']:<24} a change exactly here has probability {change['probability']:.2f}" for change in found]
    written = {} if report is None else {"file": str(report), "report": str(report)}
    if report is not None:
        _write_changes(frame, target, time, detector.change_points_, probability, report)
        lines.append(f"the report is in {report}")
    return {"rows": frame.height, "changes": found, "notes": list(read.notes), **written, "text": "\n".join(lines)}


@command("identify record.csv --input u --output y --report system.html", name="identify", out="report")
def identify_system(
    data: DataArgument,
    source: InputOption,
    target: OutputOption,
    time: OrderOption = None,
    lags: LagsOption = None,
    method: MethodOption = "gp",
    report: ReportOption = None,
    dates: DatesOption = "auto",
    zone: ZoneOption = "",
    as_json: AsJson = False,
) -> dict[str, Any]:
    """Find the systems that make columns of others. Impulse, step and frequency response, poles and order."""
    from ..reading import read_table
    from ..report import write_system_report
    from ..report.systems import system_rows
    from ..several import identify_columns

    read = read_table(data, dates=dates, zone=zone)
    named = lambda names: [names] if names in read.frame.columns else [name.strip() for name in names.split(",")]
    records = identify_columns(read, named(source), named(target), time, lags=lags, method=method)
    lines = notes_in_words(read.notes)
    for record in records:
        lines += aligned(f"how {record.target} is made", system_rows(record)[1:])
    if report is not None:
        write_system_report(records, report)
        lines.append(f"the report is in {report}")
    systems = [_system_facts(record) for record in records]
    found = systems[0] if len(systems) == 1 else {"systems": systems}
    written = {} if report is None else {"file": str(report), "report": str(report)}
    return {"rows": read.frame.height, **found, "notes": list(read.notes), **written, "text": "\n".join(lines).lstrip()}


def _system_facts(record: Record) -> dict[str, Any]:
    """What was found of a system, for a program to read."""
    system, poles = record.system, record.system.poles()
    facts: dict[str, Any] = {"inputs": list(record.sources), "output": record.target, "fit": system.fit, "noise": system.noise}
    facts |= {"order": poles.order, "poles": [[float(p.real), float(p.imag)] for p in poles.poles]}
    impulses = [system.impulse_of(number).mean.tolist() for number in range(len(record.sources))]
    return {**facts, "impulse": impulses[0] if len(impulses) == 1 else dict(zip(record.sources, impulses, strict=True))}


def _write_changes(frame: pl.DataFrame, value: str, time: str | None, changes: Any, probability: Any, out: Path) -> None:
    """The report of a series that changes."""
    import numpy as np

    from ..reading import as_floats, kind_of, look
    from ..report import ChangingSeries, write_change_report

    y = as_floats(frame[value])
    x: Any = np.arange(float(len(y)))
    written = None
    if time is not None and kind_of(frame[time]) != "category":
        column = look(frame[time])
        x, written = column.numbers(frame[time])[:, 0], column.drawn if column.kind == "date" else None
    write_change_report(ChangingSeries(value, time or "row", x, y, changes, probability, written), out)
