"""`structgp changepoints` and `identify`: where a series changes, and how one makes another."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .base import answers, app, notes_in_words
from .options import AsJson, ChangesFile, DataArgument, DatesOption, OrderOption, ValueOption

if TYPE_CHECKING:
    import polars as pl


@app.command()
@answers
def changepoints(
    data: DataArgument,
    value: ValueOption,
    time: OrderOption = None,
    out: ChangesFile = None,
    dates: DatesOption = "auto",
    as_json: AsJson = False,
) -> dict[str, Any]:
    """Find where the level or the spread of a series changes, with probabilities."""
    from ...sklearn.detector import ChangePointDetector
    from ..reading import as_floats, find_column, kind_of, read_table
    from ..report.changes import change_alarms

    read = read_table(data, dates=dates)
    frame = read.frame
    column = frame[find_column(frame, value, "column")]
    if kind_of(column) != "number" or column.is_null().all():
        raise ValueError(f"column {value!r} holds no numbers: changes are looked for in numbers")
    if time is not None:
        order = frame[find_column(frame, time, "time column")].arg_sort(nulls_last=True).head(frame[time].count())
        frame, read = frame[order], read._replace(written=read.written[order])
    detector = ChangePointDetector().fit(as_floats(frame[value]))
    probability = detector.posterior_.change_probability
    label = lambda row: str(row) if time is None else str(read.written[time][row])
    found = [
        {"row": int(row), "at": label(int(row)), "probability": float(probability[row])} for row in detector.change_points_
    ]
    lines = notes_in_words(read.notes)
    lines += [f"{frame.height} rows, {len(found)} change{'' if len(found) == 1 else 's'} in {value!r}"]
    lines += [f"attention: {alarm}" for alarm in change_alarms(len(found), frame.height)]
    lines += [f"  {change['at']:<24} a change exactly here has probability {change['probability']:.2f}" for change in found]
    written = {} if out is None else {"file": str(out)}
    if out is not None:
        _write_changes(frame, value, time, detector.change_points_, probability, out)
        lines.append(f"the report is in {out}")
    return {"rows": frame.height, "changes": found, "notes": list(read.notes), **written, "text": "\n".join(lines)}


@app.command("identify")
@answers
def identify_system(
    data: DataArgument,
    source: Annotated[str, typer.Option("--input", help="The column that drives the system.")],
    target: Annotated[str, typer.Option("--output", help="The column that follows.")],
    time: OrderOption = None,
    lags: Annotated[int | None, typer.Option("--lags", min=2, help="How many steps the response has.")] = None,
    method: Annotated[str, typer.Option("--method", help="gp, dc, tc, ls or poles.")] = "gp",
    out: Annotated[Path | None, typer.Option("--out", help="The file for the report.")] = None,
    dates: DatesOption = "auto",
    as_json: AsJson = False,
) -> dict[str, Any]:
    """Find the system that makes one column of another: impulse, step and frequency response, poles and order."""
    from ..reading import read_table
    from ..report import write_system_report
    from ..several import identify_columns

    read = read_table(data, dates=dates)
    record = identify_columns(read, source, target, time, lags=lags, method=method)
    system, lines = record.system, [*notes_in_words(read.notes), *record.system.summary().splitlines()]
    if out is not None:
        write_system_report(record, out)
        lines.append(f"the report is in {out}")
    poles = system.poles()
    found: dict[str, Any] = {"rows": len(system.output), "fit": system.fit, "noise": system.noise, "order": poles.order}
    found |= {"poles": [[float(p.real), float(p.imag)] for p in poles.poles], "impulse": system.impulse.mean.tolist()}
    written = {} if out is None else {"file": str(out)}
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
