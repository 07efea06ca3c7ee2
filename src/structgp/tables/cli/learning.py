"""What the commands that learn share: what is asked for, a folder for the results, and a bar with what is done."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .options import Learning

if TYPE_CHECKING:
    import polars as pl

    from ..reading import Table


def structure_of(structure: str, approximate: str | None) -> str:
    """What is asked for: a structure, or an approximation in place of one."""
    if approximate is not None and structure != "auto":
        raise ValueError(f"--structure {structure} is exact, so nothing is approximate there: leave out one of the two")
    if approximate is not None:
        from ...engines.plan import as_approximation

        as_approximation(approximate)  # which says what is known
    return approximate or structure


def read_for(data: Path, asked: Learning) -> Table:
    """The table that is learned from."""
    from ..reading import read_table

    return read_table(data, dates=asked.dates, zone=asked.zone)


def options_of(asked: Learning, budget: float) -> dict[str, Any]:
    """What `fit_table` and `plan_table` are asked; of several kernels each is a candidate under the words it was written in."""
    from ..expression import parse_kernel

    if len(set(asked.kernel)) < len(asked.kernel):
        raise ValueError("each --kernel is compared with the others, so each is named once")
    several = lambda columns: {text: parse_kernel(text, columns) for text in asked.kernel}
    return {
        "task": asked.task,
        "time_column": asked.time,
        "kernel": several if asked.kernel else None,
        "structure": structure_of(asked.structure, asked.approximate),
        "likelihood": asked.likelihood,
        "parameters": asked.parameters,
        "budget": budget,
        "seed": asked.seed,
    }


def target_of(frame: pl.DataFrame, asked: str | None, time: str | None) -> str:
    """The column to be predicted, once it and the time are found to be two columns of the table."""
    from ..reading import find_column, target_in

    target = target_in(frame, asked)
    if time is not None and find_column(frame, time, "time column") == target:
        raise ValueError(f"{target!r} cannot be both the target and the time: choose two columns")
    return target


def time_in(frame: pl.DataFrame, asked: str | None) -> str | None:
    """The column of the time: the one that is asked for, or the only one that holds dates."""
    from ..reading import find_column, kind_of

    if asked is not None:
        return find_column(frame, asked, "time column")
    dates = [name for name in frame.columns if kind_of(frame[name]) == "date"]
    return dates[0] if len(dates) == 1 else None


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
