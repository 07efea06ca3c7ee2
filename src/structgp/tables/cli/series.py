"""`structgp changepoints` and `identify`: where a series changes, and how one makes another."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from .base import command, notes_in_words
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
)

if TYPE_CHECKING:
    import polars as pl


@command("changepoints series.csv --target level --time day --report changes.html", value="target", out="report")
def changepoints(
    data: DataArgument,
    target: ChangingOption,
    time: OrderOption = None,
    report: ReportOption = None,
    dates: DatesOption = "auto",
    as_json: AsJson = False,
) -> dict[str, Any]:
    """Find where a series changes its level or spread. With the probability of each change."""
    from ...sklearn.detector import ChangePointDetector
    from ..reading import as_floats, find_column, kind_of, read_table
    from ..report.changes import change_alarms

    read = read_table(data, dates=dates)
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


@command("identify record.csv --input u --output y --report system.html", "identify", out="report")
def identify_system(
    data: DataArgument,
    source: InputOption,
    target: OutputOption,
    time: OrderOption = None,
    lags: LagsOption = None,
    method: MethodOption = "gp",
    report: ReportOption = None,
    dates: DatesOption = "auto",
    as_json: AsJson = False,
) -> dict[str, Any]:
    """Find the system that makes one column of another. Impulse, step and frequency response, poles and order."""
    from ..reading import read_table
    from ..report import write_system_report
    from ..several import identify_columns

    read = read_table(data, dates=dates)
    record = identify_columns(read, source, target, time, lags=lags, method=method)
    system, lines = record.system, [*notes_in_words(read.notes), *record.system.summary().splitlines()]
    if report is not None:
        write_system_report(record, report)
        lines.append(f"the report is in {report}")
    poles = system.poles()
    found: dict[str, Any] = {"rows": len(system.output), "fit": system.fit, "noise": system.noise, "order": poles.order}
    found |= {"poles": [[float(p.real), float(p.imag)] for p in poles.poles], "impulse": system.impulse.mean.tolist()}
    written = {} if report is None else {"file": str(report), "report": str(report)}
    return {**found, "notes": list(read.notes), **written, "text": "\n".join(lines)}


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
