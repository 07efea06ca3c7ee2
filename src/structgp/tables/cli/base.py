"""What all commands share: how they answer, and small things that are said and written."""

from __future__ import annotations

import functools
import inspect
import json
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ... import __version__
from ..writing import check_file, replacing
from .options import LEVEL, VersionOption
from .routes import Route, ask, parameters_of

if TYPE_CHECKING:
    import polars as pl

    from ..model import TableModel
    from ..reading import Table

EXPECTED = (ValueError, TypeError, OSError, MemoryError)  # what bad data and bad files raise; anything else is our mistake
DURATIONS = {"s": 1.0, "m": 60.0, "h": 3600.0}
WIDTH = 100
ORDER = ("fit", "forecast", "fill", "suggest", "identify", "changepoints", "embed", "compare")  # then predict, plan, report …

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode=None)


ROUTES: dict[str, tuple[Route, ...]] = {}  # the ways that commands can go, by name, where there are several


def command(example: str, *routes: Route, name: str | None = None, **older: str) -> Callable[[Callable[..., Any]], Any]:
    """A command of the app whose help ends with an example; `older` are spellings of options that are taken as well.

    It answers, or says which of its `routes` does.
    """
    settings = {"token_normalize_func": lambda word: older.get(word, word)}
    enter = app.command(name, epilog=f"Example: structgp {example}", context_settings=settings)
    if routes:
        ROUTES[example.split()[0]] = routes
    return lambda function: enter(answers(function))


def in_order(app: typer.Typer) -> None:
    """Show the commands in the order of ORDER, then others as they came."""
    name = lambda one: one.name or one.callback.__name__
    app.registered_commands.sort(key=lambda one: ORDER.index(name(one)) if name(one) in ORDER else len(ORDER))


def answers(command: Callable[..., dict[str, Any] | Route]) -> Callable[..., None]:
    """A command that prints its answer, as lines or as JSON, and says in one line what it could not do."""

    @functools.wraps(command)
    def run(context: typer.Context, **options: Any) -> None:
        as_json = options["as_json"]
        try:
            if options.get("report") is not None:
                check_file(options["report"])  # before minutes of learning
            found = ask(command, options)
            answer = found.go(options, said_by(context)) if isinstance(found, Route) else found
        except EXPECTED as problem:
            message = _met(problem)
            print(
                json.dumps({"error": message}) if as_json else f"structgp: {message}",
                file=sys.stdout if as_json else sys.stderr,
            )
            raise typer.Exit(1) from None
        if as_json:
            print(json.dumps({name: plain(value) for name, value in answer.items() if name != "text"}, ensure_ascii=False))
        else:
            print(answer["text"])

    context = inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
    run.__signature__ = inspect.Signature([context, *parameters_of(command).values()])  # type: ignore[attr-defined]
    return run


def _met(problem: BaseException) -> str:
    """What a problem says; what the system says of a file without its number."""
    if isinstance(problem, OSError) and problem.strerror and problem.filename:
        return f"{problem.filename} cannot be read or written: {problem.strerror[:1].lower()}{problem.strerror[1:]}"
    return str(problem) or type(problem).__name__


def said_by(context: typer.Context) -> dict[str, str]:
    """The options that stand on the command line, by name, as they are written."""
    said = lambda one: getattr(context.get_parameter_source(one.name), "name", "") == "COMMANDLINE"
    return {str(one.name): one.opts[0] for one in context.command.params if said(one)}


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


def write_csv(table: pl.DataFrame, path: Path) -> None:
    """Write a table, whole or not at all."""

    with replacing(path) as temporary:
        table.write_csv(temporary)


def free_name(name: str, taken: list[str]) -> str:
    """A name for a new column that replaces none of the table."""
    while name in taken:
        name += "_"
    return name


def check_level(model: TableModel, level: float) -> None:
    """Refuse what is no probability, and intervals of labels."""
    if not 0 < level < 1:
        raise ValueError(f"level is a probability between 0 and 1, got {level}")
    if level != LEVEL and model.task == "classification":
        raise ValueError("--level is of intervals, and labels have probabilities in their place: leave it out")


def with_predictions(model: TableModel, data: Table, level: float) -> pl.DataFrame:
    """The table as it was written, row for row, and what the model says of each row."""
    import polars as pl

    found = model.predict(data.frame, level)
    name = lambda what: free_name(f"{model.target}_{what}", data.written.columns)
    return data.written.with_columns([pl.Series(name(what), values.tolist()) for what, values in found.items()])


def aligned(title: str, rows: list[list[str]]) -> list[str]:
    """A table as lines, under a title; nothing where there is none."""
    if not rows:
        return []
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    line = lambda row: "  " + "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
    return ["", title, *map(line, rows)]


def with_reasons(rows: list[list[str]]) -> list[str]:
    """A table as lines; what stands in its last column, a sentence, stands in a line of its own below."""
    lines = aligned("", [row[:-1] for row in rows])[2:]
    reasons = [[f"      {row[-1]}"] if row[-1] else [] for row in rows]
    return [line for pair in zip(lines, reasons, strict=True) for line in (pair[0], *pair[1])]


def inputs_in_words(names: list[str], shape: str) -> str:
    """What the inputs form."""
    from ..model import of_shape

    return f"the input{'' if len(names) == 1 else 's'} {of_shape(shape, len(names))}"


def columns_in_words(layout: Any) -> list[str]:
    """What each column is; of many those that are alike together."""
    from ...inputs.reading import few

    return [f"  {few(names, 5) + (':' if len(names) > 1 else ''):<20} {kind}"[:WIDTH] for names, kind in layout.described()]


def notes_in_words(notes: Any) -> list[str]:
    """What was assumed, line by line."""
    return [f"note: {note}" for note in notes]


def plain(value: Any) -> Any:
    """A value as JSON has it: arrays as lists, numbers that are not finite as null."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)


@app.callback(invoke_without_command=True)
def main(version: VersionOption = False) -> None:
    """Gaussian processes for tables: fit, predict, and see what was learned."""
    if version:
        print(f"structgp {__version__}")
        raise typer.Exit(0)
