"""`structgp forecast`: how a series goes on, from a table or from a model of it."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...learn.clock import Deadline
from ..writing import check_file, replacing_all
from .base import check_level, command, notes_in_words, seconds_of, write_csv
from .learning import options_of, read_for, target_of, time_in, watching
from .options import (
    LEVEL,
    AsJson,
    ForecastFile,
    HorizonOption,
    Learning,
    LevelOption,
    ReportOption,
    SeriesArgument,
    TargetOption,
)
from .routes import Route

if TYPE_CHECKING:
    from ..model import TableModel

SAFETENSORS = b"{"  # the ninth byte of a model file, after the length of its description


def of_table(
    data: Path,
    target: str | None,
    asked: Learning,
    horizon: int | None,
    level: float,
    out: Path | None,
    report: Path | None,
    as_json: bool,
) -> dict[str, Any]:
    """How a column of a table goes on, once it is learned."""
    seconds = seconds_of(asked.budget)
    deadline = Deadline.after(seconds)
    if out is not None:
        check_file(out)
    table = read_for(data, asked)
    asked = dataclasses.replace(asked, time=time_in(table.frame, asked.time))
    others = [name for name in table.frame.columns if name != asked.time]
    only = others[0] if target is None and asked.time and len(others) == 1 else target
    target = target_of(table.frame, only, asked.time)
    from ..automatic import fit_table  # takes seconds, which a wrong name need not wait for

    with watching(as_json, seconds) as say:
        options = options_of(asked, max(deadline.left(), 0.0))
        model = fit_table(table, target, say=say, horizon=horizon or 0, **options)
    return _told(model, level, out, report, as_json)


def of_model(
    data: Path, horizon: int | None, level: float, out: Path | None, report: Path | None, as_json: bool
) -> dict[str, Any]:
    """How a series goes on that a model was learned from."""
    from ..model import load_table_model, of_shape

    model = load_table_model(data)
    if model.shape != "series":
        raise ValueError(f"{data} is no model of a series, its inputs {of_shape(model.shape)}: structgp predict takes new rows")
    return _told(model if horizon is None else dataclasses.replace(model, horizon=horizon), level, out, report, as_json)


OF_TABLE = Route("a table", of_table, "leave it out")
OF_MODEL = Route("a model, which was learned before", of_model, "leave it out, or give the table")


@command("forecast sales.xlsx --target sales --time month --horizon 12 --out forecast.csv", OF_TABLE, OF_MODEL)
def forecast(
    *,
    data: SeriesArgument,
    target: TargetOption = None,
    horizon: HorizonOption = None,
    level: LevelOption = LEVEL,
    asked: Learning,
    out: ForecastFile = None,
    report: ReportOption = None,
    as_json: AsJson = False,
) -> Route:
    """Say how a series goes on, with intervals. From a table, or from a model that structgp fit has written."""
    if not 0 < level < 1:
        raise ValueError(f"level is a probability between 0 and 1, got {level}")
    return OF_MODEL if is_model(data) else OF_TABLE


def _told(model: TableModel, level: float, out: Path | None, report: Path | None, as_json: bool) -> dict[str, Any]:
    """The forecast of a model, in files or printed."""
    import polars as pl

    from ..report import write_report
    from ..report.words import headline

    check_level(model, level)
    found = pl.DataFrame(model.forecast(level))
    answer: dict[str, Any] = {"target": model.target, "horizon": found.height, "level": level, "notes": list(model.notes)}
    lines = [*notes_in_words(model.notes), headline(model).strip()]
    files = {name: path for name, path in (("file", out), ("report", report)) if path is not None}
    with replacing_all(*files.values()) as places:
        at = dict(zip(files, places, strict=True))
        if "file" in at:
            write_csv(found, at["file"])
            lines.append(f"{found.height} steps are forecast in {out}")
        if "report" in at:
            write_report(model, at["report"])
            lines.append(f"the report is in {report}")
    answer |= {name: str(path) for name, path in files.items()}
    if out is not None:
        return {**answer, "text": "\n".join(lines)}
    if not as_json:
        print("\n".join(lines), file=sys.stderr)
    return {**answer, "forecast": found.to_dicts(), "text": found.write_csv().rstrip("\n")}


def is_model(path: Path) -> bool:
    """Whether a file is a model, whatever it is called."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return path.suffix == ".structgp" or file.read(9)[8:] == SAFETENSORS
