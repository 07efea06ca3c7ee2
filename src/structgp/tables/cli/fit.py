"""`structgp fit`, `plan` and `demo`: a model of a table, or what it would be."""

from __future__ import annotations

import contextlib
import dataclasses
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...learn.clock import Deadline
from .base import (
    aligned,
    answers,
    app,
    columns_in_words,
    free_name,
    inputs_in_words,
    notes_in_words,
    seconds_of,
    with_predictions,
    write_csv,
)
from .options import (
    ApproximateOption,
    AsJson,
    Budget,
    DataArgument,
    DatesOption,
    DemoArgument,
    HorizonOption,
    KernelOption,
    OutFolder,
    ParametersOption,
    SeedOption,
    StructureOption,
    TargetOption,
    TargetsOption,
    TaskOption,
    TimeOption,
    ZoneOption,
)
from .told import facts, model_in_words

if TYPE_CHECKING:
    import polars as pl

    from ..model import TableModel
    from ..reading import Table

LEARNED = "learned_from"  # the column that marks the rows that a model was given


@app.command()
@answers
def fit(
    data: DataArgument,
    target: TargetOption = None,
    task: TaskOption = "auto",
    time: TimeOption = None,
    kernel: KernelOption = None,
    structure: StructureOption = "auto",
    approximate: ApproximateOption = None,
    parameters: ParametersOption = "auto",
    out: OutFolder = Path("structgp-out"),
    budget: Budget = "2m",
    horizon: HorizonOption = None,
    targets: TargetsOption = None,
    dates: DatesOption = "auto",
    zone: ZoneOption = "",
    seed: SeedOption = 0,
    as_json: AsJson = False,
) -> dict[str, Any]:
    """Learn a model of a column from the others; writes model.structgp, predictions.csv, report.html and forecast.csv.

    With --targets several columns are learned together and their gaps filled: filled.csv and report.html.
    """
    from ..reading import read_table

    seconds = seconds_of(budget)
    deadline = Deadline.after(seconds)
    _check_folder(out)
    table = read_table(data, dates=dates, zone=zone)
    if targets is not None:
        with watching(as_json, seconds):
            several: dict[str, Any] = {"parameters": parameters, "seconds": deadline, "seed": seed}
            return _fill(table, [name.strip() for name in targets.split(",")], time, out, several)
    target = _target(table.frame, target, time)
    from ..automatic import fit_table  # takes seconds, which a wrong name need not wait for

    options = _options(task, time, kernel, _structure(structure, approximate), max(deadline.left(), 0.0), seed)
    with watching(as_json, seconds) as say:
        model = fit_table(table, target, say=say, horizon=horizon, parameters=parameters, **options)
        return _finish(model, table, out, deadline)


@app.command()
@answers
def plan(
    data: DataArgument,
    target: TargetOption = None,
    task: TaskOption = "auto",
    time: TimeOption = None,
    kernel: KernelOption = None,
    structure: StructureOption = "auto",
    dates: DatesOption = "auto",
    zone: ZoneOption = "",
    as_json: AsJson = False,
) -> dict[str, Any]:
    """Say what fit would try, what each algorithm would cost, and why not the others; nothing is learned."""
    from ..reading import read_table

    table = read_table(data, dates=dates, zone=zone)
    frame = table.frame
    target = _target(frame, target, time)
    from ..automatic import prepare  # takes seconds, which a wrong name need not wait for

    ready = prepare(table, target, **_options(task, time, kernel, structure, 120.0, 0))
    problem = ready.problem
    found = {one.name: _plan_in_words(one, len(problem.y)) for one in ready.candidates}
    lines = [f"{frame.height} rows, {problem.task} of {target!r}, {inputs_in_words(ready.layout.names, problem.shape)}"]
    lines += [*columns_in_words(ready.layout), *notes_in_words(table.notes), ""]
    for name, text in found.items():
        lines += [name, *(f"  {line}" for line in text.splitlines()), ""]
    shape = {"rows": frame.height, "task": problem.task, "shape": problem.shape, "inputs": ready.layout.names}
    shape["notes"] = list(table.notes)
    return {**shape, "plans": found, "text": "\n".join(lines).rstrip()}


@app.command()
@answers
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
    _check_folder(out)
    data = load_dataset(name)
    frame = pl.DataFrame({**dict(zip(data.names, data.X.T, strict=True)), data.target: data.y})
    with watching(as_json, seconds) as say:
        model = fit_table(frame, data.target, say=say, budget=seconds, seed=seed)
        answer = _finish(model, as_table(frame), out, deadline)
    return {**answer, "about": data.about, "text": f"{data.about}\n\n{answer['text']}"}


def _fill(table: Table, targets: list[str], time: str | None, out: Path, options: dict[str, Any]) -> dict[str, Any]:
    """Several columns learned together: the table with its gaps filled, and the report."""
    import polars as pl

    from ..report import write_filled_report
    from ..report.several import together_rows
    from ..several import fill_columns

    filled = fill_columns(table, targets, time, **options)
    out.mkdir(parents=True, exist_ok=True)
    columns = []
    for p, name in enumerate(filled.names):
        columns.append(pl.Series(name, filled.values[:, p]))
        for end, part in (("lower", filled.lower), ("upper", filled.upper)):
            columns.append(pl.Series(free_name(f"{name}_{end}", table.written.columns), part[:, p]))
    write_csv(table.written.with_columns(columns), out / "filled.csv")
    write_filled_report(filled, out / "report.html")
    found, count = filled.model.correlations(), int(filled.gaps.sum())
    lines = [
        *notes_in_words(table.notes),
        *filled.model.words(),
        *aligned("how they hang together", together_rows(filled)),
    ]
    lines.append(f"{count} gaps filled in {out / 'filled.csv'}; the report is in {out / 'report.html'}")
    answer: dict[str, Any] = {"rows": len(filled.x), "targets": list(filled.names), "filled": count, "gain": filled.model.gain}
    answer |= {"correlations": found.correlation.tolist(), "lags": found.lag.tolist(), "notes": list(table.notes)}
    return {**answer, "file": str(out / "filled.csv"), "text": "\n".join(lines)}


def _finish(model: TableModel, data: Table, out: Path, deadline: Deadline) -> dict[str, Any]:
    """Write the results of a fit, and say where they are."""
    import numpy as np
    import polars as pl

    from ..report import write_report
    from ..suspects import suspicion

    begun = deadline.left()
    table = with_predictions(model, data, 0.95)
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
    out.mkdir(parents=True, exist_ok=True)
    names = {"model": "model.structgp", "predictions": "predictions.csv", "report": "report.html"}
    files = {name: out / file for name, file in names.items()}
    model.save(files["model"])
    write_csv(table, files["predictions"])
    write_report(model, files["report"], for_parts)
    if model.shape == "series":
        files["forecast"] = out / "forecast.csv"
        write_csv(pl.DataFrame(model.forecast()), files["forecast"])
    written = {name: str(path) for name, path in files.items()}
    said = model_in_words(model, late=for_parts.passed())
    lines = [said, "", *(f"{name:<12} {path}" for name, path in written.items())]
    return {**facts(model), "files": written, "text": "\n".join(lines)}


def _structure(structure: str, approximate: str | None) -> str:
    """What is asked for: a structure, or an approximation in place of one."""
    if approximate is not None and structure != "auto":
        raise ValueError(f"--structure {structure} is exact, so nothing is approximate there: leave out one of the two")
    if approximate is not None:
        from ...engines.plan import as_approximation

        as_approximation(approximate)  # which says what is known
    return approximate or structure


def _options(task: str, time: str | None, kernel: str | None, structure: str, budget: float, seed: int) -> dict[str, Any]:
    from ..expression import parse_kernel

    make = None if kernel is None else lambda columns: parse_kernel(kernel, columns)
    return {"task": task, "time_column": time, "kernel": make, "structure": structure, "budget": budget, "seed": seed}


def _target(frame: pl.DataFrame, asked: str | None, time: str | None) -> str:
    """The column to be predicted, once it and the time are found to be two columns of the table."""
    from ..reading import find_column, target_in

    target = target_in(frame, asked)
    if time is not None and find_column(frame, time, "time column") == target:
        raise ValueError(f"{target!r} cannot be both the target and the time: choose two columns")
    return target


def _check_folder(out: Path) -> None:
    if out.exists() and not out.is_dir():
        raise ValueError(f"{out} is a file: give the name of a folder")


@contextlib.contextmanager
def watching(as_json: bool, budget: float) -> Iterator[Callable[[str, int, float | None], None]]:
    """A bar with the time spent and the evidence reached: on a terminal, and nowhere else."""
    if as_json or not sys.stderr.isatty():
        yield lambda what, evaluation, evidence: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(20), TimeElapsedColumn(), TextColumn("{task.fields[found]}"))
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=budget or None, found="")

        def say(what: str, evaluation: int, evidence: float | None) -> None:
            found = "" if evidence is None else f"evaluation {evaluation}, log evidence {evidence:.6g}"
            bar.update(task, description=what, completed=min(bar.tasks[0].elapsed or 0.0, budget), found=found)

        yield say


def _plan_in_words(candidate: Any, rows: int) -> str:
    if candidate.plan is None:
        return "time and memory grow with the number of rows"
    on = f"on {candidate.rows} of {rows} rows, drawn at random\n" if candidate.rows else ""
    return on + str(candidate.plan)
