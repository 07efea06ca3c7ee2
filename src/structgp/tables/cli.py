"""The command line: `structgp fit`, `predict`, `plan`, `report`, `changepoints`, `identify`, `suggest`, `info` and `demo`.

A command ends with 0 when all went well, 1 when the data or files are not what is needed (one line says what to do), and 2 when
the command itself cannot be understood. With --json the answer is one JSON object on the standard output, and nothing else.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import math
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .. import __version__
from ..learn.clock import Deadline

if TYPE_CHECKING:
    import polars as pl

    from .model import TableModel
    from .reading import Table

EXPECTED = (ValueError, TypeError, OSError, MemoryError)  # what bad data and bad files raise; anything else is our mistake
DURATIONS = {"s": 1.0, "m": 60.0, "h": 3600.0}
WIDTH = 100
LEARNED = "learned_from"  # the column that marks the rows that a model was given

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
SeedOption = Annotated[int, typer.Option("--seed", help="Makes everything that is drawn at random repeatable.")]
Budget = Annotated[str, typer.Option("--budget", help="About how long all may take, such as 60s, 5m or 1h.")]
TargetOption = Annotated[str | None, typer.Option("--target", help="The column to be predicted; a picture needs none.")]
TaskOption = Annotated[str, typer.Option("--task", help="auto, regression, classification or counts.")]
TimeOption = Annotated[str | None, typer.Option("--time", help="Take this column as the only input.")]
KernelOption = Annotated[str | None, typer.Option("--kernel", help='A kernel, as in "Matern52 + Periodic(period=1)*Matern32".')]
ParametersOption = Annotated[
    str, typer.Option("--parameters", help="auto: averaged over where few rows leave them unsure; best, laplace, hmc …")
]
StructureOption = Annotated[str, typer.Option("--structure", help="auto, dense, markov, additive, projection-pursuit …")]
ApproximateOption = Annotated[
    str | None, typer.Option("--approximate", help="One function of all columns, through so many: inducing:500, neighbours:30.")
]
DataArgument = Annotated[Path, typer.Argument(help="A table: CSV, TSV, xlsx, ods or Parquet, gzipped or not; or a picture.")]
DatesOption = Annotated[
    str, typer.Option("--dates", help="Whether 01/02/2020 is day-first or month-first; auto decides and says.")
]
ZoneOption = Annotated[str, typer.Option("--zone", help="The zone in which times are meant and shown, such as Europe/Berlin.")]
TargetsOption = Annotated[
    str | None, typer.Option("--targets", help="Several columns, as in a,b,c: learned together, and their gaps filled.")
]
HorizonOption = Annotated[int | None, typer.Option("--horizon", min=1, help="How many steps of a series are forecast.")]
ModelArgument = Annotated[Path, typer.Argument(help="A model that structgp fit has written.")]
OutFolder = Annotated[Path, typer.Option("--out", help="The folder for the results.")]
PredictionFile = Annotated[
    Path | None, typer.Option("--out", help="The file for the predictions; without it they are printed.")
]
ReportFile = Annotated[Path, typer.Option("--out", help="The file for the report.")]
ChangesFile = Annotated[Path | None, typer.Option("--out", help="The file for a report, such as changes.html.")]
LevelOption = Annotated[float, typer.Option("--level", help="The probability that an interval holds.")]
ValueOption = Annotated[str, typer.Option("--value", help="The column in which changes are looked for.")]
OrderOption = Annotated[str | None, typer.Option("--time", help="The column that orders the rows.")]
RunsArgument = Annotated[Path, typer.Argument(help="A CSV table of runs; it need not exist before the first one.")]
MaximiseOption = Annotated[str | None, typer.Option("--maximise", help="The column whose values should be large.")]
MinimiseOption = Annotated[str | None, typer.Option("--minimise", help="The column whose values should be small.")]
BoundsOption = Annotated[list[str], typer.Option("--bounds", help="A range: temp=20:80, or flow=0.1:10:log.")]
IntegerOption = Annotated[list[str], typer.Option("--integer", help="A range of whole numbers: stages=1:8.")]
ChoicesOption = Annotated[list[str], typer.Option("--choices", help="Categories: solvent=water,ethanol.")]
ConstraintOption = Annotated[list[str], typer.Option("--constraint", help='What must hold: "temp + 2*flow <= 100".')]
OutcomeOption = Annotated[list[str], typer.Option("--outcome", help='A limit of another measured column: "cost <= 5".')]
IgnoreOption = Annotated[list[str], typer.Option("--ignore", help="A column that is no variable.")]
CountOption = Annotated[int, typer.Option("--n", min=1, help="How many runs are suggested side by side.")]
AppendOption = Annotated[Path | None, typer.Option("--append", help="Add the suggestions to this table, as pending runs.")]
ExplainOption = Annotated[bool, typer.Option("--explain", help="Say why in a column suggested_because, where there is one.")]
NoiseOption = Annotated[
    float | None, typer.Option("--noise", help="The variance of measurements: 0 if exact; learned if not given.")
]
AcquisitionOption = Annotated[str, typer.Option("--acquisition", help="ei, pi, ucb or thompson.")]
SuggestReport = Annotated[Path | None, typer.Option("--report", help="The file for a report, such as report.html.")]
DemoArgument = Annotated[str, typer.Argument(help="co2, friedman, additive, nonstationary or sinc.")]
VersionOption = Annotated[bool, typer.Option("--version", help="Print the version and stop.")]


def _answers(command: Callable[..., dict[str, Any]]) -> Callable[..., None]:
    """A command that prints its answer, as lines or as JSON, and says in one line what it could not do."""

    @functools.wraps(command)
    def run(*args: Any, **options: Any) -> None:
        as_json = options["as_json"]
        try:
            answer = command(*args, **options)
        except EXPECTED as problem:
            message = str(problem) or type(problem).__name__
            print(
                json.dumps({"error": message}) if as_json else f"structgp: {message}",
                file=sys.stdout if as_json else sys.stderr,
            )
            raise typer.Exit(1) from None
        if as_json:
            print(json.dumps({name: _plain(value) for name, value in answer.items() if name != "text"}, ensure_ascii=False))
        else:
            print(answer["text"])

    return run


@app.callback(invoke_without_command=True)
def main(version: VersionOption = False) -> None:
    """Gaussian processes for tables: fit, predict, and see what was learned."""
    if version:
        print(f"structgp {__version__}")
        raise typer.Exit(0)


@app.command()
@_answers
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
    from .reading import read_table

    seconds = seconds_of(budget)
    deadline = Deadline.after(seconds)
    _check_folder(out)
    table = read_table(data, dates=dates, zone=zone)
    if targets is not None:
        with _watching(as_json, seconds):
            several: dict[str, Any] = {"parameters": parameters, "seconds": deadline, "seed": seed}
            return _fill(table, [name.strip() for name in targets.split(",")], time, out, several)
    target = _target(table.frame, target, time)
    from .automatic import fit_table  # takes seconds, which a wrong name need not wait for

    options = _options(task, time, kernel, _structure(structure, approximate), max(deadline.left(), 0.0), seed)
    with _watching(as_json, seconds) as say:
        model = fit_table(table, target, say=say, horizon=horizon, parameters=parameters, **options)
        return _finish(model, table, out, deadline)


@app.command()
@_answers
def predict(
    model: ModelArgument,
    data: DataArgument,
    out: PredictionFile = None,
    level: LevelOption = 0.95,
    dates: DatesOption = "auto",
    zone: ZoneOption = "",
    as_json: AsJson = False,
) -> dict[str, Any]:
    """Predict the rows of a table: mean and interval, or label and probabilities."""
    from .model import load_table_model
    from .reading import read_table

    fitted = load_table_model(model)
    read = read_table(data, dates=dates, zone=zone, like=fitted.layout.how)
    table = _with_predictions(fitted, read, level)
    found = {"rows": table.height, "notes": list(read.notes)}
    if out is not None:
        _write_csv(table, out)
        lines = [*_notes_in_words(read.notes), f"{table.height} predictions in {out}"]
        return {**found, "file": str(out), "text": "\n".join(lines)}
    if not as_json:
        print("\n".join(_notes_in_words(read.notes)), end="\n" if read.notes else "", file=sys.stderr)
    return {**found, "predictions": table.to_dicts(), "text": table.write_csv().rstrip("\n")}


@app.command()
@_answers
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
    from .reading import read_table

    table = read_table(data, dates=dates, zone=zone)
    frame = table.frame
    target = _target(frame, target, time)
    from .automatic import prepare  # takes seconds, which a wrong name need not wait for

    ready = prepare(table, target, **_options(task, time, kernel, structure, 120.0, 0))
    problem = ready.problem
    found = {one.name: _plan_in_words(one, len(problem.y)) for one in ready.candidates}
    lines = [f"{frame.height} rows, {problem.task} of {target!r}, {_inputs_in_words(ready.layout.names, problem.shape)}"]
    lines += [*_columns_in_words(ready.layout), *_notes_in_words(table.notes), ""]
    for name, text in found.items():
        lines += [name, *(f"  {line}" for line in text.splitlines()), ""]
    shape = {"rows": frame.height, "task": problem.task, "shape": problem.shape, "inputs": ready.layout.names}
    shape["notes"] = list(table.notes)
    return {**shape, "plans": found, "text": "\n".join(lines).rstrip()}


@app.command()
@_answers
def info(model: ModelArgument, as_json: AsJson = False) -> dict[str, Any]:
    """Say what a model file holds: inputs, parameters, scores."""
    from .model import load_table_model

    loaded = load_table_model(model)
    return {**_facts(loaded), "text": _in_words(loaded)}


@app.command()
@_answers
def report(
    model: ModelArgument,
    out: ReportFile = Path("report.html"),
    as_json: AsJson = False,
) -> dict[str, Any]:
    """Write the report of a model again: one HTML file that needs no network."""
    from .model import load_table_model
    from .report import write_report

    write_report(load_table_model(model), out)
    return {"file": str(out), "text": f"the report is in {out}"}


@app.command()
@_answers
def changepoints(
    data: DataArgument,
    value: ValueOption,
    time: OrderOption = None,
    out: ChangesFile = None,
    dates: DatesOption = "auto",
    as_json: AsJson = False,
) -> dict[str, Any]:
    """Find where the level or the spread of a series changes, with probabilities."""
    from ..sklearn.detector import ChangePointDetector
    from .reading import as_floats, find_column, kind_of, read_table
    from .report.changes import change_alarms

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
    lines = _notes_in_words(read.notes)
    lines += [f"{frame.height} rows, {len(found)} change{'' if len(found) == 1 else 's'} in {value!r}"]
    lines += [f"attention: {alarm}" for alarm in change_alarms(len(found), frame.height)]
    lines += [f"  {change['at']:<24} a change exactly here has probability {change['probability']:.2f}" for change in found]
    written = {} if out is None else {"file": str(out)}
    if out is not None:
        _write_changes(frame, value, time, detector.change_points_, probability, out)
        lines.append(f"the report is in {out}")
    return {"rows": frame.height, "changes": found, "notes": list(read.notes), **written, "text": "\n".join(lines)}


@app.command("identify")
@_answers
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
    from .reading import read_table
    from .report import write_system_report
    from .several import identify_columns

    read = read_table(data, dates=dates)
    record = identify_columns(read, source, target, time, lags=lags, method=method)
    system, lines = record.system, [*_notes_in_words(read.notes), *record.system.summary().splitlines()]
    if out is not None:
        write_system_report(record, out)
        lines.append(f"the report is in {out}")
    poles = system.poles()
    found: dict[str, Any] = {"rows": len(system.output), "fit": system.fit, "noise": system.noise, "order": poles.order}
    found |= {"poles": [[float(p.real), float(p.imag)] for p in poles.poles], "impulse": system.impulse.mean.tolist()}
    written = {} if out is None else {"file": str(out)}
    return {**found, "notes": list(read.notes), **written, "text": "\n".join(lines)}


@app.command()
@_answers
def suggest(
    data: RunsArgument,
    maximise: MaximiseOption = None,
    minimise: MinimiseOption = None,
    bounds: BoundsOption = (),  # type: ignore[assignment]
    integer: IntegerOption = (),  # type: ignore[assignment]
    choices: ChoicesOption = (),  # type: ignore[assignment]
    constraint: ConstraintOption = (),  # type: ignore[assignment]
    outcome: OutcomeOption = (),  # type: ignore[assignment]
    ignore: IgnoreOption = (),  # type: ignore[assignment]
    n: CountOption = 1,
    append: AppendOption = None,
    explain: ExplainOption = False,
    noise: NoiseOption = None,
    acquisition: AcquisitionOption = "ei",
    out: SuggestReport = None,
    seed: SeedOption = 0,
    as_json: AsJson = False,
) -> dict[str, Any]:
    """Say what to measure next, from a table of runs: rows without a target are pending, with text in place of it failed."""
    from .runs import outcomes_of, question, read_runs, variables_of, with_suggestions

    if (maximise is None) == (minimise is None):
        raise ValueError("say what is sought: --maximise COLUMN, or --minimise COLUMN")
    target = str(maximise if maximise is not None else minimise)
    variables = variables_of(bounds, integer, choices)
    found = question(
        read_runs(data),
        target,
        maximise=maximise is not None,
        variables=variables,
        constraints=constraint,
        outcomes=outcomes_of(outcome),
        ignored=ignore,
        noise=noise,
        acquisition=acquisition,
        seed=seed,
    )
    if append is not None and append.exists() and append.resolve() != data.resolve():
        raise ValueError(
            f"--append adds to the table that was read: give {data}, or the name of a file that does not exist yet"
        )
    optimiser = found.optimiser
    suggestions = optimiser.suggest(n)
    notes = [*found.notes, *optimiser.account.remarks]
    if found.failed:
        notes.append(f"{len(found.failed)} failed run{'s' if len(found.failed) > 1 else ''}, in line {_few(found.failed)}")
    written: dict[str, Any] = {}
    if append is not None:
        from .model import replacing

        text = with_suggestions(found, suggestions, explain)
        with replacing(append) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        written["file"] = str(append)
    if out is not None:
        from .report import write_choice_report

        write_choice_report(optimiser, target, suggestions, out, notes)
        written["report"] = str(out)
    best = optimiser.best
    answer = {
        "runs": len(optimiser.history),
        "pending": len(optimiser.pending),
        "failed_lines": found.failed,
        "best": None if best is None else {**best.point, target: best.value},
        "suggestions": [{**vars(one), "point": dict(one.point)} for one in suggestions],
        "notes": notes,
    }
    return {**answer, **written, "text": _suggestions_in_words(found, suggestions, notes, written)}


@app.command()
@_answers
def demo(
    name: DemoArgument = "co2",
    out: OutFolder = Path("structgp-demo"),
    budget: Budget = "30s",
    seed: SeedOption = 0,
    as_json: AsJson = False,
) -> dict[str, Any]:
    """Fit one of the data sets inside the package."""
    import polars as pl

    from ..datasets import load_dataset
    from .automatic import fit_table
    from .reading import as_table

    seconds = seconds_of(budget)
    deadline = Deadline.after(seconds)
    _check_folder(out)
    data = load_dataset(name)
    frame = pl.DataFrame({**dict(zip(data.names, data.X.T, strict=True)), data.target: data.y})
    with _watching(as_json, seconds) as say:
        model = fit_table(frame, data.target, say=say, budget=seconds, seed=seed)
        answer = _finish(model, as_table(frame), out, deadline)
    return {**answer, "about": data.about, "text": f"{data.about}\n\n{answer['text']}"}


def _few(lines: list[int]) -> str:
    from ..inputs.reading import few

    return few(lines)


def _suggestions_in_words(found: Any, suggestions: list[Any], notes: list[str], written: dict[str, Any]) -> str:
    """What to measure next, for people."""
    from .report.choices import feasible_in_words, headline

    optimiser, target = found.optimiser, found.target
    waiting = f", {len(optimiser.pending)} pending" if optimiser.pending else ""
    lines = [*_notes_in_words(notes), f"{len(optimiser.history)} runs{waiting}", headline(optimiser, target, suggestions), ""]
    for number, one in enumerate(suggestions, 1):
        point = ", ".join(
            f"{name} = {f'{value:.6g}' if isinstance(value, float) else value}" for name, value in one.point.items()
        )
        lines.append(f"{number}. {point}")
        if one.mean is None:
            lines.append(f"   {one.why}")
            continue
        allowed = "" if one.feasible is None else f"; {feasible_in_words(optimiser)} with probability {one.feasible:.2f}"
        better = f"better than the best with probability {one.probability:.2f}{allowed}"
        lines.append(f"   {target} {one.mean:.4g} ± {one.sd:.3g}; {better}; expected gain {one.expected_gain:.3g}")
    lines += [f"{'added to' if name == 'file' else 'the report is in'} {path}" for name, path in written.items()]
    return "\n".join(lines)


def _fill(table: Table, targets: list[str], time: str | None, out: Path, options: dict[str, Any]) -> dict[str, Any]:
    """Several columns learned together: the table with its gaps filled, and the report."""
    import polars as pl

    from .report import write_filled_report
    from .report.several import together_rows
    from .several import fill_columns

    filled = fill_columns(table, targets, time, **options)
    out.mkdir(parents=True, exist_ok=True)
    columns = []
    for p, name in enumerate(filled.names):
        columns.append(pl.Series(name, filled.values[:, p]))
        for end, part in (("lower", filled.lower), ("upper", filled.upper)):
            columns.append(pl.Series(_free_name(f"{name}_{end}", table.written.columns), part[:, p]))
    _write_csv(table.written.with_columns(columns), out / "filled.csv")
    write_filled_report(filled, out / "report.html")
    found, count = filled.model.correlations(), int(filled.gaps.sum())
    lines = [
        *_notes_in_words(table.notes),
        *filled.model.words(),
        *_aligned("how they hang together", together_rows(filled)),
    ]
    lines.append(f"{count} gaps filled in {out / 'filled.csv'}; the report is in {out / 'report.html'}")
    answer: dict[str, Any] = {"rows": len(filled.x), "targets": list(filled.names), "filled": count, "gain": filled.model.gain}
    answer |= {"correlations": found.correlation.tolist(), "lags": found.lag.tolist(), "notes": list(table.notes)}
    return {**answer, "file": str(out / "filled.csv"), "text": "\n".join(lines)}


def seconds_of(text: str) -> float:
    """A duration such as 60s, 5m, 1h or 90."""
    number, unit = (text[:-1], text[-1]) if text[-1:] in DURATIONS else (text, "s")
    try:
        seconds = float(number) * DURATIONS[unit]
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds < math.inf:
        raise ValueError(f"{text!r} is not a duration: write for instance 60s, 5m or 1h")
    return seconds


def _structure(structure: str, approximate: str | None) -> str:
    """What is asked for: a structure, or an approximation in place of one."""
    if approximate is not None and structure != "auto":
        raise ValueError(f"--structure {structure} is exact, so nothing is approximate there: leave out one of the two")
    if approximate is not None:
        from ..engines.plan import as_approximation

        as_approximation(approximate)  # which says what is known
    return approximate or structure


def _options(task: str, time: str | None, kernel: str | None, structure: str, budget: float, seed: int) -> dict[str, Any]:
    from .expression import parse_kernel

    make = None if kernel is None else lambda columns: parse_kernel(kernel, columns)
    return {"task": task, "time_column": time, "kernel": make, "structure": structure, "budget": budget, "seed": seed}


def _target(frame: pl.DataFrame, asked: str | None, time: str | None) -> str:
    """The column to be predicted, once it and the time are found to be two columns of the table."""
    from .reading import find_column, target_in

    target = target_in(frame, asked)
    if time is not None and find_column(frame, time, "time column") == target:
        raise ValueError(f"{target!r} cannot be both the target and the time: choose two columns")
    return target


def _check_folder(out: Path) -> None:
    if out.exists() and not out.is_dir():
        raise ValueError(f"{out} is a file: give the name of a folder")


@contextlib.contextmanager
def _watching(as_json: bool, budget: float) -> Iterator[Callable[[str, int, float | None], None]]:
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


def _finish(model: TableModel, data: Table, out: Path, deadline: Deadline) -> dict[str, Any]:
    """Write the results of a fit, and say where they are."""
    import numpy as np
    import polars as pl

    from .report import write_report
    from .suspects import suspicion

    begun = deadline.left()
    table = _with_predictions(model, data, 0.95)
    parts = len(getattr(getattr(model.fitted, "kernel", None), "terms", ())) or 1
    for_parts = dataclasses.replace(deadline, at=deadline.at - parts * (begun - deadline.left()))  # each takes as long, about
    if model.learned is not None:
        mark = pl.Series(_free_name(LEARNED, data.written.columns), np.isin(np.arange(table.height), model.learned))
        table = table.with_columns(mark)
        suspected = suspicion(model)
        if suspected is not None:
            whole = np.full(table.height, np.nan)
            whole[model.learned] = suspected
            name = _free_name(f"{model.target}_outlier_probability", data.written.columns)
            table = table.with_columns(pl.Series(name, whole).fill_nan(None))
    out.mkdir(parents=True, exist_ok=True)
    names = {"model": "model.structgp", "predictions": "predictions.csv", "report": "report.html"}
    files = {name: out / file for name, file in names.items()}
    model.save(files["model"])
    _write_csv(table, files["predictions"])
    write_report(model, files["report"], for_parts)
    if model.shape == "series":
        files["forecast"] = out / "forecast.csv"
        _write_csv(pl.DataFrame(model.forecast()), files["forecast"])
    written = {name: str(path) for name, path in files.items()}
    said = _in_words(model, late=for_parts.passed())
    lines = [said, "", *(f"{name:<12} {path}" for name, path in written.items())]
    return {**_facts(model), "files": written, "text": "\n".join(lines)}


def _with_predictions(model: TableModel, data: Table, level: float) -> pl.DataFrame:
    """The table as it was written, row for row, and what the model says of each row."""
    import polars as pl

    if not 0 < level < 1:
        raise ValueError(f"level is a probability between 0 and 1, got {level}")
    found = model.predict(data.frame, level)
    name = lambda what: _free_name(f"{model.target}_{what}", data.written.columns)
    return data.written.with_columns([pl.Series(name(what), values.tolist()) for what, values in found.items()])


def _free_name(name: str, taken: list[str]) -> str:
    """A name for a new column that replaces none of the table."""
    while name in taken:
        name += "_"
    return name


def _write_changes(frame: pl.DataFrame, value: str, time: str | None, changes: Any, probability: Any, out: Path) -> None:
    """The report of a series that changes."""
    import numpy as np

    from .reading import as_floats, kind_of, look
    from .report import ChangingSeries, write_change_report

    y = as_floats(frame[value])
    x: Any = np.arange(float(len(y)))
    written = None
    if time is not None and kind_of(frame[time]) != "category":
        column = look(frame[time])
        x, written = column.numbers(frame[time])[:, 0], column.drawn if column.kind == "date" else None
    write_change_report(ChangingSeries(value, time or "row", x, y, changes, probability, written), out)


def _write_csv(table: pl.DataFrame, path: Path) -> None:
    from .model import replacing

    with replacing(path) as temporary:
        table.write_csv(temporary)


def _facts(model: TableModel) -> dict[str, Any]:
    """What is known of a model, for scripts."""
    from .report.words import alarms
    from .suspects import suspected_rows

    parameters: dict[str, Any] = model.fitted.gp.parameters() if hasattr(model.fitted, "gp") else {}
    return {
        "task": model.task,
        "target": model.target,
        "rows": model.rows,
        "shape": model.shape,
        "inputs": model.layout.names,
        "classes": list(model.classes),
        "log_evidence": float(model.fitted.log_evidence),
        "parameters": {name: _plain(value) for name, value in parameters.items()},
        "candidates": [vars(trial) for trial in model.trials],
        "held_out": model.evaluation.kind,
        "scores": model.evaluation.scores,
        "score_intervals": model.evaluation.intervals,
        "attention": alarms(model),
        "suspected_rows": suspected_rows(model),
        "notes": list(model.notes),
    }


def _in_words(model: TableModel, late: bool = False) -> str:
    """What is known of a model, for people; when it is late, without its parts."""
    from .report.sections import score_rows
    from .report.words import Part, alarms, forecast_rows, headline, parts_of
    from .suspects import in_words

    of_inputs = _inputs_in_words(model.layout.names, model.shape)
    lines = [f"{model.task} of {model.target!r} from {model.rows} rows, {of_inputs}"]
    lines += _columns_in_words(model.layout)
    lines += _notes_in_words(model.notes)
    compared = "forecast" if model.shape == "series" else "held out"
    wide = max(len("candidates"), *(len(trial.name) for trial in model.trials)) if model.trials else 0
    lines += ["", f"{'candidates':<{wide + 2}}  log evidence   {compared:>8}   seconds"]
    for trial in model.trials:
        numbers = trial.note or f"{trial.log_evidence:>12.5g}   {_number(trial.held_out):>8}   {trial.seconds:>7.1f}"
        why = f"   {trial.why}" if trial.why else ""
        lines.append(f"{'* ' if trial.chosen else '  '}{trial.name:<{wide}}  {numbers}{why}")
    if hasattr(model.fitted, "plan"):
        lines += ["", "plan", *(f"  {line}" for line in str(model.fitted.plan).splitlines())]
    parts = (
        parts_of(model) if not late else [Part("parts", "no time was left for them; structgp info model.structgp names them")]
    )
    learned = [f"  {part.name}: {part.learned}" for part in parts]
    lines += ["", "learned", *learned] if learned else []
    lines += _aligned(f"scores on {model.evaluation.kind} (with 90 % intervals)", score_rows(model))
    lines += _aligned("forecast", forecast_rows(model))
    last = [*(f"attention: {alarm}" for alarm in alarms(model)), *in_words(model), headline(model).strip()]
    return "\n".join([*lines, "", *last])


def _aligned(title: str, rows: list[list[str]]) -> list[str]:
    """A table as lines, under a title; nothing where there is none."""
    if not rows:
        return []
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    line = lambda row: "  " + "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
    return ["", title, *map(line, rows)]


def _plan_in_words(candidate: Any, rows: int) -> str:
    if candidate.plan is None:
        return "time and memory grow with the number of rows"
    on = f"on {candidate.rows} of {rows} rows, drawn at random\n" if candidate.rows else ""
    return on + str(candidate.plan)


def _inputs_in_words(names: list[str], shape: str) -> str:
    from .model import of_shape

    return f"the input{'' if len(names) == 1 else 's'} {of_shape(shape, len(names))}"


def _columns_in_words(layout: Any) -> list[str]:
    """What each column is; of many those that are alike together."""
    from ..inputs.reading import few

    return [f"  {few(names, 5) + (':' if len(names) > 1 else ''):<20} {kind}"[:WIDTH] for names, kind in layout.described()]


def _notes_in_words(notes: Any) -> list[str]:
    return [f"note: {note}" for note in notes]


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"


def _plain(value: Any) -> Any:
    """A value as JSON has it: arrays as lists, numbers that are not finite as null."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)
