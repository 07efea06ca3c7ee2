"""`structgp fit`, `plan` and `demo`: a model of a table, or what it would be."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...learn.clock import Deadline
from ..writing import check_folder, replacing_all
from .base import columns_in_words, command, free_name, inputs_in_words, notes_in_words, seconds_of, with_predictions, write_csv
from .fill import TOGETHER, together
from .learning import options_of, read_for, target_of, watching
from .options import (
    LEVEL,
    AsJson,
    Budget,
    DataArgument,
    DemoArgument,
    FilesArgument,
    HorizonOption,
    LateOption,
    Learning,
    OutFolder,
    SchedulerOption,
    SeedOption,
    TargetOption,
    TargetsOption,
)
from .parts import fit_in_parts, is_many
from .routes import Route
from .told import facts, model_in_words

if TYPE_CHECKING:
    from ..model import TableModel
    from ..reading import Table

LEARNED = "learned_from"  # the column that marks the rows that a model was given


def fit_alone(data: Path, target: str | None, asked: Learning, out: Path, horizon: int | None, as_json: bool) -> dict[str, Any]:
    """A model of one column from the others."""
    seconds = seconds_of(asked.budget)
    deadline = Deadline.after(seconds)
    check_folder(out)
    table = read_for(data, asked)
    target = target_of(table.frame, target, asked.time)
    from ..automatic import fit_table  # takes seconds, which a wrong name need not wait for

    with watching(as_json, seconds) as say:
        model = fit_table(table, target, say=say, horizon=horizon, **options_of(asked, max(deadline.left(), 0.0)))
        return write_results(model, table, out, deadline)


ONE = Route("one column", fit_alone, "leave it out, or name several by --targets a,b,c")
IN_PARTS = Route("a series in many files", fit_in_parts, "leave it out, or give one table")


@command("fit measurements.csv --target y --out result", ONE, TOGETHER, IN_PARTS)
def fit(
    *,
    data: FilesArgument,
    target: TargetOption = None,
    asked: Learning,
    out: OutFolder = Path("structgp-out"),
    horizon: HorizonOption = None,
    targets: TargetsOption = None,
    lags: LateOption = "auto",
    scheduler: SchedulerOption = None,
    as_json: AsJson = False,
) -> Route:
    """Learn a model of a column from the others. Writes model.structgp, predictions.csv, report.html and forecast.csv.

    With --targets several columns are learned together and their gaps filled: filled.csv and report.html. Of many Parquet files
    with a series, 'meter/*.parquet', the parts stay where they are: smoothed/ has the values.
    """
    if is_many(data, scheduler):
        return IN_PARTS
    return ONE if targets is None else together(data, targets, asked, out)


@command("plan measurements.csv --target y")
def plan(
    *,
    data: DataArgument,
    target: TargetOption = None,
    asked: Learning,
    as_json: AsJson = False,
) -> dict[str, Any]:
    """Say what fit would try, and what it would cost. Nothing is learned; what cannot be had says why not."""
    table = read_for(data, asked)
    frame = table.frame
    target = target_of(frame, target, asked.time)
    from ..automatic import plan_table  # takes seconds, which a wrong name need not wait for

    ready, candidates = plan_table(table, target, **options_of(asked, seconds_of(asked.budget)))
    problem = ready.problem
    found = {one.name: _plan_in_words(one, len(problem.y)) for one in candidates}
    lines = [f"{frame.height} rows, {problem.task} of {target!r}, {inputs_in_words(ready.layout.names, problem.shape)}"]
    lines += [*columns_in_words(ready.layout), *notes_in_words(table.notes), ""]
    for name, text in found.items():
        lines += [name, *(f"  {line}" for line in text.splitlines()), ""]
    shape = {"rows": frame.height, "task": problem.task, "shape": problem.shape, "inputs": ready.layout.names}
    shape["notes"] = list(table.notes)
    return {**shape, "plans": found, "text": "\n".join(lines).rstrip()}


@command("demo co2 --out demo")
def demo(
    name: DemoArgument = "co2",
    out: OutFolder = Path("structgp-demo"),
    budget: Budget = "30s",
    seed: SeedOption = 0,
    as_json: AsJson = False,
) -> dict[str, Any]:
    """Fit one of the data sets inside the package."""
    import polars as pl

    from ...datasets import load_dataset
    from ..automatic import fit_table
    from ..reading import as_table

    seconds = seconds_of(budget)
    deadline = Deadline.after(seconds)
    check_folder(out)
    data = load_dataset(name)
    frame = pl.DataFrame({**dict(zip(data.names, data.X.T, strict=True)), data.target: data.y})
    with watching(as_json, seconds) as say:
        model = fit_table(frame, data.target, say=say, budget=seconds, seed=seed)
        answer = write_results(model, as_table(frame), out, deadline)
    return {**answer, "about": data.about, "text": f"{data.about}\n\n{answer['text']}"}


def write_results(model: TableModel, data: Table, out: Path, deadline: Deadline) -> dict[str, Any]:
    """Write the results of a fit, and say where they are."""
    import numpy as np
    import polars as pl

    from ..report import write_report
    from ..suspects import suspicion

    begun = deadline.left()
    table = with_predictions(model, data, LEVEL)
    parts = len(getattr(getattr(model.fitted, "kernel", None), "terms", ())) or 1
    for_parts = dataclasses.replace(deadline, at=deadline.at - parts * (begun - deadline.left()))  # each takes as long, about
    if model.learned is not None:
        mark = pl.Series(free_name(LEARNED, data.written.columns), np.isin(np.arange(table.height), model.learned))
        table = table.with_columns(mark)
        suspected = suspicion(model)
        if suspected is not None:
            whole = np.full(table.height, np.nan)
            whole[model.learned] = suspected
            name = free_name(f"{model.target}_outlier_probability", data.written.columns)
            table = table.with_columns(pl.Series(name, whole).fill_nan(None))
    names = {"model": "model.structgp", "predictions": "predictions.csv", "report": "report.html"}
    names |= {"forecast": "forecast.csv"} if model.shape == "series" else {}
    files = {name: out / file for name, file in names.items()}
    with replacing_all(*files.values(), folder=out) as places:
        at = dict(zip(files, places, strict=True))
        model.save(at["model"])
        write_csv(table, at["predictions"])
        write_report(model, at["report"], for_parts)
        if "forecast" in at:
            write_csv(pl.DataFrame(model.forecast()), at["forecast"])
        said, known = model_in_words(model, late=for_parts.passed()), facts(model)
    written = {name: str(path) for name, path in files.items()}
    lines = [said, "", *(f"{name:<12} {path}" for name, path in written.items())]
    return {**known, "files": written, "text": "\n".join(lines)}


def _plan_in_words(candidate: Any, rows: int) -> str:
    if candidate.plan is None:
        return "time and memory grow with the number of rows"
    on = f"on {candidate.rows} of {rows} rows, drawn at random\n" if candidate.rows else ""
    return on + str(candidate.plan)
