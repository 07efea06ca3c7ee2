"""`structgp forecast`: how a series goes on, from a table or from a model of it."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...learn.clock import Deadline
from .base import command, notes_in_words, seconds_of, write_csv
from .learning import options_of, target_of, time_in, watching
from .options import (
    AsJson,
    Budget,
    DatesOption,
    ForecastFile,
    HorizonOption,
    KernelOption,
    LevelOption,
    LikelihoodOption,
    ParametersOption,
    ReportOption,
    SeedOption,
    SeriesArgument,
    TargetOption,
    TaskOption,
    TimeOption,
    ZoneOption,
)

if TYPE_CHECKING:
    from ..model import TableModel

SAFETENSORS = b"{"  # the ninth byte of a model file, after the length of its description


@command("forecast sales.xlsx --target sales --time month --horizon 12 --out forecast.csv")
def forecast(
    data: SeriesArgument,
    target: TargetOption = None,
    time: TimeOption = None,
    horizon: HorizonOption = None,
    level: LevelOption = 0.95,
    task: TaskOption = "auto",
    kernel: KernelOption = None,
    likelihood: LikelihoodOption = "auto",
    parameters: ParametersOption = "auto",
    out: ForecastFile = None,
    report: ReportOption = None,
    budget: Budget = "2m",
    dates: DatesOption = "auto",
    zone: ZoneOption = "",
    seed: SeedOption = 0,
    as_json: AsJson = False,
) -> dict[str, Any]:
    """Say how a series goes on, with intervals. From a table, or from a model that structgp fit has written."""
    import polars as pl

    from ..report import write_report
    from ..report.words import headline

    if not 0 < level < 1:
        raise ValueError(f"level is a probability between 0 and 1, got {level}")
    if is_model(data):
        model = _of_model(data, horizon)
    else:
        options = {"likelihood": likelihood, "parameters": parameters, "horizon": horizon or 0}
        model = _of_table(data, target, time, task, kernel, seconds_of(budget), dates, zone, seed, options, as_json)
    found = pl.DataFrame(model.forecast(level))
    answer: dict[str, Any] = {"target": model.target, "horizon": found.height, "level": level, "notes": list(model.notes)}
    lines = [*notes_in_words(model.notes), headline(model).strip()]
    if out is not None:
        write_csv(found, out)
        answer["file"] = str(out)
        lines.append(f"{found.height} steps are forecast in {out}")
    if report is not None:
        write_report(model, report)
        answer["report"] = str(report)
        lines.append(f"the report is in {report}")
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


def _of_model(path: Path, horizon: int | None) -> TableModel:
    from ..model import load_table_model, of_shape

    model = load_table_model(path)
    if model.shape != "series":
        raise ValueError(f"{path} is no model of a series, its inputs {of_shape(model.shape)}: structgp predict takes new rows")
    return model if horizon is None else dataclasses.replace(model, horizon=horizon)


def _of_table(
    data: Path,
    target: str | None,
    time: str | None,
    task: str,
    kernel: str | None,
    seconds: float,
    dates: str,
    zone: str,
    seed: int,
    options: dict[str, Any],
    as_json: bool,
) -> TableModel:
    from ..reading import read_table

    deadline = Deadline.after(seconds)
    table = read_table(data, dates=dates, zone=zone)
    time = time_in(table.frame, time)
    others = [name for name in table.frame.columns if name != time]
    target = target_of(table.frame, others[0] if target is None and time and len(others) == 1 else target, time)
    from ..automatic import fit_table  # takes seconds, which a wrong name need not wait for

    with watching(as_json, seconds) as say:
        how = options_of(task, time, kernel, "auto", max(deadline.left(), 0.0), seed)
        return fit_table(table, target, say=say, **how, **options)
