"""`structgp fill`: the gaps of columns, from the other columns and from each other."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...learn.clock import Deadline
from .base import aligned, command, free_name, notes_in_words, seconds_of, write_csv
from .learning import check_folder, time_in, watching
from .options import (
    AsJson,
    Budget,
    DataArgument,
    DatesOption,
    LateOption,
    OutFolder,
    ParametersOption,
    SeedOption,
    TargetsOption,
    TimeOption,
    ZoneOption,
)

if TYPE_CHECKING:
    import polars as pl

    from ..reading import Table


LEAST_TOGETHER = 0.5  # correlation from which on a column without a gap is taken along
MOST_HELPING = 4  # columns without a gap that are taken along


@command("fill sensors.csv --targets a,b,c --time when --out filled", target="targets")
def fill(
    data: DataArgument,
    targets: TargetsOption = None,
    time: TimeOption = None,
    lags: LateOption = "auto",
    parameters: ParametersOption = "auto",
    out: OutFolder = Path("structgp-out"),
    budget: Budget = "2m",
    dates: DatesOption = "auto",
    zone: ZoneOption = "",
    seed: SeedOption = 0,
    as_json: AsJson = False,
) -> dict[str, Any]:
    """Fill the gaps of columns, several together.

    By default of all that have some, along a time with the help of those that go with them; writes filled.csv and report.html.
    """
    from ..reading import find_column, read_table

    seconds = seconds_of(budget)
    deadline = Deadline.after(seconds)
    check_folder(out)
    table = read_table(data, dates=dates, zone=zone)
    time = time_in(table.frame, time)
    asked = [name.strip() for name in targets.split(",")] if targets is not None else with_gaps(table.frame, time)
    names = [find_column(table.frame, name, "target") for name in asked]
    helping = companions(table.frame, names, time) if targets is None and time is not None else []
    if len(names) == 1 and not table.frame[names[0]].null_count():
        raise ValueError(f"column {names[0]!r} has no gap: there is nothing to fill")
    options: dict[str, Any] = {"parameters": parameters, "seed": seed}
    with watching(as_json, seconds) as say:
        if len(names + helping) > 1:
            together = {**options, "lags": lags, "seconds": deadline}
            return fill_together(table, names + helping, time, out, together, helping)
        if lags != "auto":
            raise ValueError(
                f"--lags {lags} is said of several columns, but {names[0]!r} is filled alone: name more by --targets"
            )
        return fill_alone(table, names[0], time, out, {**options, "budget": max(deadline.left(), 0.0), "say": say})


def with_gaps(frame: pl.DataFrame, time: str | None) -> list[str]:
    """The columns of numbers in which something is missing."""
    from ..reading import kind_of

    found = [name for name in frame.columns if name != time and frame[name].null_count() and kind_of(frame[name]) == "number"]
    found = [name for name in found if not frame[name].is_null().all()]
    if not found:
        raise ValueError("no column of numbers has a gap: there is nothing to fill (--targets names columns to learn together)")
    return found


def companions(frame: pl.DataFrame, targets: list[str], time: str) -> list[str]:
    """Columns of numbers without a gap that go with one of the targets: what they show tells what is missing there."""
    import polars as pl

    from ..reading import as_floats, kind_of

    whole = [name for name in frame.columns if name not in (*targets, time) and not frame[name].null_count()]
    whole = [name for name in whole if kind_of(frame[name]) == "number" and frame[name].n_unique() > 2]
    numbers = pl.DataFrame({name: as_floats(frame[name]) for name in (*targets, *whole)}).fill_nan(None)
    together = {}
    for name in whole:
        found = [numbers.select(pl.corr(name, target)).drop_nulls().item() for target in targets]
        together[name] = max(abs(value) for value in found)
    near = sorted((name for name in whole if together[name] >= LEAST_TOGETHER), key=lambda name: -together[name])
    return near[:MOST_HELPING]


def fill_alone(table: Table, target: str, time: str | None, out: Path, options: dict[str, Any]) -> dict[str, Any]:
    """One column from the others: the table with its gaps filled, and the report."""
    import polars as pl

    from ..automatic import fit_table
    from ..report import write_report
    from .told import facts, model_in_words

    model = fit_table(table, target, time_column=time, **options)
    gap = table.frame[target].is_null()
    found = model.predict(table.frame)
    middle = found["label" if model.task == "classification" else "mean"]
    seen = table.frame[target].cast(pl.String if model.task == "classification" else pl.Float64)
    columns = [pl.Series(target, pl.select(pl.when(gap).then(pl.Series(middle.tolist())).otherwise(seen)).to_series())]
    columns += [
        pl.Series(free_name(f"{target}_{name}", table.written.columns), values.tolist())
        for name, values in found.items()
        if name not in ("mean", "sd", "label")
    ]
    out.mkdir(parents=True, exist_ok=True)
    write_csv(table.written.with_columns(columns), out / "filled.csv")
    write_report(model, out / "report.html")
    count = int(gap.sum())
    lines = [model_in_words(model), "", gaps_in_words(count, out)]
    return {**facts(model), "filled": count, "file": str(out / "filled.csv"), "text": "\n".join(lines)}


def gaps_in_words(count: int, out: Path) -> str:
    """What was done, in a line."""
    return f"{count} gap{'' if count == 1 else 's'} filled in {out / 'filled.csv'}; the report is in {out / 'report.html'}"


def fill_together(
    table: Table, targets: list[str], time: str | None, out: Path, options: dict[str, Any], helping: Sequence[str] = ()
) -> dict[str, Any]:
    """Several columns learned together, of which some only help: the table with its gaps filled, and the report."""
    import polars as pl

    from ..report import write_filled_report
    from ..report.several import filled_headline, together_rows
    from ..several import fill_columns

    filled = fill_columns(table, targets, time, **options)
    out.mkdir(parents=True, exist_ok=True)
    columns = []
    for p, name in enumerate(filled.names):
        if name in helping:
            continue
        columns.append(pl.Series(name, filled.values[:, p]))
        for end, part in (("lower", filled.lower), ("upper", filled.upper)):
            columns.append(pl.Series(free_name(f"{name}_{end}", table.written.columns), part[:, p]))
    write_csv(table.written.with_columns(columns), out / "filled.csv")
    write_filled_report(filled, out / "report.html")
    found, count = filled.model.correlations(), int(filled.gaps.sum())
    tells = "it tells" if len(helping) == 1 else "they tell"
    taken = f"{', '.join(helping)}, without a gap, taken along for what {tells} of the others"
    notes = [*table.notes, *([taken] if helping else [])]
    lines = [
        *notes_in_words(notes),
        filled_headline(filled),
        *filled.model.words(),
        *aligned("how they hang together", together_rows(filled)),
    ]
    lines.append(gaps_in_words(count, out))
    answer: dict[str, Any] = {"rows": len(filled.x), "targets": list(filled.names), "filled": count, "gain": filled.model.gain}
    answer |= {"correlations": found.correlation.tolist(), "lags": found.lag.tolist(), "notes": [*notes, *filled.model.notes]}
    return {**answer, "file": str(out / "filled.csv"), "text": "\n".join(lines)}
