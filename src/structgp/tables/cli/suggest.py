"""`structgp suggest`: what to measure next."""

from __future__ import annotations

import os
from typing import Any

from ..writing import replacing_all
from .base import command, notes_in_words
from .options import (
    AcquisitionOption,
    AppendOption,
    AsJson,
    BoundsOption,
    ChoicesOption,
    ConstraintOption,
    CountOption,
    ExplainOption,
    IgnoreOption,
    IntegerOption,
    MaximiseOption,
    MinimiseOption,
    NoiseOption,
    OutcomeOption,
    ReportOption,
    RunsArgument,
    SeedOption,
)


@command("suggest runs.csv --maximise yield --bounds temp=20:80 --bounds flow=0.1:10:log --append runs.csv", out="report")
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
    report: ReportOption = None,
    seed: SeedOption = 0,
    as_json: AsJson = False,
) -> dict[str, Any]:
    """Say what to measure next, from a table of runs. Rows without a target are pending, with text in place of it failed."""
    from ..report import write_choice_report
    from ..runs import outcomes_of, question, read_runs, variables_of, with_suggestions

    if (maximise is None) == (minimise is None):
        raise ValueError("say what is sought: --maximise COLUMN, or --minimise COLUMN")
    if explain and append is None:
        raise ValueError("--explain says why in a column of a table: name the table by --append")
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
    if append is not None and append.exists() and not found.runs.plain:
        raise ValueError(f"lines are added to CSV only: give --append a new file, such as {data.with_suffix('.csv')}")
    optimiser = found.optimiser
    suggestions = optimiser.suggest(n)
    notes = [*found.notes, *optimiser.account.remarks]
    if found.failed:
        notes.append(f"{len(found.failed)} failed run{'s' if len(found.failed) > 1 else ''}, in line {_few(found.failed)}")
    files = {name: path for name, path in (("file", append), ("report", report)) if path is not None}
    with replacing_all(*files.values()) as places:
        at = dict(zip(files, places, strict=True))
        if "file" in at:
            with at["file"].open("w", encoding="utf-8", newline="") as file:
                file.write(with_suggestions(found, suggestions, explain))
                file.flush()
                os.fsync(file.fileno())
        if "report" in at:
            write_choice_report(optimiser, target, suggestions, at["report"], notes)
    written = {name: str(path) for name, path in files.items()}
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


def _suggestions_in_words(found: Any, suggestions: list[Any], notes: list[str], written: dict[str, Any]) -> str:
    """What to measure next, for people."""
    from ..report.choices import feasible_in_words, headline

    optimiser, target = found.optimiser, found.target
    waiting = f", {len(optimiser.pending)} pending" if optimiser.pending else ""
    lines = [*notes_in_words(notes), f"{len(optimiser.history)} runs{waiting}", headline(optimiser, target, suggestions), ""]
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


def _few(lines: list[int]) -> str:
    from ...inputs.reading import few

    return few(lines)
