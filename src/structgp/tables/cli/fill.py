"""`structgp fill`: the gaps of columns, from the other columns and from each other."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...learn.clock import Deadline
from ..writing import check_folder, replacing_all
from .base import aligned, command, free_name, notes_in_words, seconds_of, write_csv
from .learning import options_of, read_for, structure_of, time_in, watching
from .options import AsJson, DataArgument, LateOption, Learning, OutFolder, TargetsOption
from .routes import Route

if TYPE_CHECKING:
    import polars as pl

LEAST_TOGETHER = 0.5  # correlation from which on a column without a gap is taken along
MOST_HELPING = 4  # columns without a gap that are taken along


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
        found = [numbers.select(pl.corr(name, target).fill_nan(0.0)).item() or 0.0 for target in targets]
        together[name] = max(map(abs, found))
    near = sorted((name for name in whole if together[name] >= LEAST_TOGETHER), key=lambda name: -together[name])
    return near[:MOST_HELPING]


def fill_alone(
    table: Any, names: list[str], asked: Learning, time: str | None, deadline: Deadline, out: Path, as_json: bool
) -> dict[str, Any]:
    """One column from the others: the table with its gaps filled, and the report."""
    import polars as pl

    from ..automatic import fit_table
    from ..report import write_report
    from .told import facts, model_in_words

    (target,) = names
    options = options_of(dataclasses.replace(asked, time=time), max(deadline.left(), 0.0))
    with watching(as_json, seconds_of(asked.budget)) as say:
        model = fit_table(table, target, say=say, **options)
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
    with replacing_all(out / "filled.csv", out / "report.html", folder=out) as (file, report):
        write_csv(table.written.with_columns(columns), file)
        write_report(model, report)
        said, known, count = model_in_words(model), facts(model), int(gap.sum())
    lines = [said, "", gaps_in_words(count, out)]
    return {**known, "filled": count, "file": str(out / "filled.csv"), "text": "\n".join(lines)}


def gaps_in_words(count: int, out: Path) -> str:
    """What was done, in a line."""
    return f"{count} gap{'' if count == 1 else 's'} filled in {out / 'filled.csv'}; the report is in {out / 'report.html'}"


def fill_together(
    table: Any,
    names: list[str],
    helping: Sequence[str],
    time: str | None,
    deadline: Deadline,
    kernel: Sequence[str],
    structure: str,
    approximate: str | None,
    likelihood: str,
    parameters: str,
    lags: str,
    seed: int,
    out: Path,
    as_json: bool,
    horizon: int | None = None,
) -> dict[str, Any]:
    """Several columns learned together, of which some only help: the table with its gaps filled, and the report."""
    import polars as pl

    from ...engines.approximation import of_structure
    from ..report import write_filled_report
    from ..report.several import filled_headline, together_rows
    from ..several import fill_columns

    if horizon is not None and time is None:
        raise ValueError("--horizon goes along a time: name its column by --time")
    exact, approximation = of_structure(structure_of(structure, approximate))
    how: dict[str, Any] = {"structure": exact, "approximate": approximation, "parameters": parameters, "seed": seed}
    how |= {"kernels": kernel, "likelihood": likelihood, "lags": lags}
    with watching(as_json, deadline.left()):
        filled = fill_columns(table, [*names, *helping], time, seconds=deadline, **how)
    ahead = None if horizon is None else pl.DataFrame(filled.forecast(horizon))
    columns = []
    for p, name in enumerate(filled.names):
        if name in helping:
            continue
        columns.append(pl.Series(name, filled.values[:, p]))
        for end, part in (("lower", filled.lower), ("upper", filled.upper)):
            columns.append(pl.Series(free_name(f"{name}_{end}", table.written.columns), part[:, p]))
    found, count = filled.model.correlations(), int(filled.gaps.sum())
    tells = "it tells" if len(helping) == 1 else "they tell"
    taken = f"{', '.join(helping)}, without a gap, taken along for what {tells} of the others"
    notes = [*table.notes, *([taken] if helping else [])]
    lines = [
        *notes_in_words(notes),
        filled_headline(filled),
        *filled.model.words(),
        *aligned("how they hang together", together_rows(filled)),
        gaps_in_words(count, out),
    ]
    files = [out / "filled.csv", out / "report.html", *([] if ahead is None else [out / "forecast.csv"])]
    with replacing_all(*files, folder=out) as places:
        write_csv(table.written.with_columns(columns), places[0])
        write_filled_report(filled, places[1])
        if ahead is not None:
            write_csv(ahead, places[2])
            lines.append(f"{ahead.height} steps are forecast in {files[2]}")
    answer: dict[str, Any] = {"rows": len(filled.x), "targets": list(filled.names), "filled": count, "gain": filled.model.gain}
    answer |= {"correlations": found.correlation.tolist(), "lags": found.lag.tolist(), "notes": [*notes, *filled.model.notes]}
    answer |= {"file": str(files[0]), **({} if ahead is None else {"forecast": str(files[2])})}
    return {**answer, "text": "\n".join(lines)}


HEEDED = ("data", "targets", "time", "budget", "dates", "zone")  # by what decides between the ways
TOGETHER = Route("several columns together", fill_together, "leave it out, or name one column", HEEDED)
ALONE = Route("one column", fill_alone, "leave it out, or name several by --targets a,b,c", HEEDED)


def together(data: Path, targets: str, asked: Learning, out: Path) -> Route:
    """Several columns that are named, with their table, along the time that it has."""
    deadline = Deadline.after(seconds_of(asked.budget))
    check_folder(out)
    names, table = [name.strip() for name in targets.split(",")], read_for(data, asked)
    time = time_in(table.frame, asked.time)
    return TOGETHER.given(table=table, names=names, helping=[], time=time, deadline=deadline)


@command("fill sensors.csv --targets a,b,c --time when --out filled", ALONE, TOGETHER, target="targets")
def fill(
    *,
    data: DataArgument,
    targets: TargetsOption = None,
    asked: Learning,
    lags: LateOption = "auto",
    out: OutFolder = Path("structgp-out"),
    as_json: AsJson = False,
) -> Route:
    """Fill the gaps of columns, several together.

    By default of all that have some, along a time with the help of those that go with them; writes filled.csv and report.html.
    """
    from ..reading import find_column

    deadline = Deadline.after(seconds_of(asked.budget))
    check_folder(out)
    table = read_for(data, asked)
    time = time_in(table.frame, asked.time)
    named = [name.strip() for name in targets.split(",")] if targets is not None else with_gaps(table.frame, time)
    names = [find_column(table.frame, name, "target") for name in named]
    helping = companions(table.frame, names, time) if targets is None and time is not None else []
    if len(names) == 1 and not table.frame[names[0]].null_count():
        raise ValueError(f"column {names[0]!r} has no gap: there is nothing to fill")
    if len(names) + len(helping) > 1:
        return TOGETHER.given(table=table, names=names, helping=helping, time=time, deadline=deadline)
    return ALONE.given(table=table, names=names, time=time, deadline=deadline)
