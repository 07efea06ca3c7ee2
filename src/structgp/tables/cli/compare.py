"""`structgp compare`: kernels on a table, or saved models on new rows, beside each other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ...learn.clock import Deadline
from .base import aligned, command, notes_in_words, seconds_of, with_reasons
from .learning import options_of, read_for, target_of, watching
from .options import AsJson, Comparing, DataArgument, Learning, ModelsArgument, ReportOption, TargetOption
from .routes import Route


def of_kernels(data: Path, target: str | None, asked: Learning, report: Path | None, as_json: bool) -> dict[str, Any]:
    """Kernels on a table, or what fit would try."""
    seconds = seconds_of(asked.budget)
    deadline = Deadline.after(seconds)
    table = read_for(data, asked)
    target = target_of(table.frame, target, asked.time)
    from ..automatic import fit_table  # takes seconds, which a wrong name need not wait for
    from ..report import write_comparison_report
    from ..report.sections import score_rows, trial_rows

    with watching(as_json, seconds) as say:
        model = fit_table(table, target, say=say, **options_of(asked, max(deadline.left(), 0.0)))
    rows, scores = trial_rows(model), score_rows(model)
    lines = [f"{len(rows) - 1} models of {target!r} from {model.rows} rows", *notes_in_words(model.notes)]
    lines += ["", *with_reasons(rows)]
    lines += aligned(f"scores of the one taken on {model.evaluation.kind}", scores)
    if report is not None:
        write_comparison_report(f"Models of {target}", rows, _taken(model), scores, model.notes, report)
        lines.append(f"the report is in {report}")
    answer = {"target": target, "task": model.task, "rows": model.rows, "notes": list(model.notes)}
    answer |= {"candidates": [vars(trial) for trial in model.trials], "scores": model.evaluation.scores}
    return {**answer, **({} if report is None else {"report": str(report)}), "text": "\n".join(lines)}


def _taken(model: Any) -> str:
    best = next(trial for trial in model.trials if trial.chosen)
    return f"{best.name} is {best.why or 'the only one that was tried'}."


def of_models(data: Path, models: list[Path], report: Path | None, dates: str, zone: str) -> dict[str, Any]:
    """Saved models on the rows of one table."""
    from ..beside import on_rows
    from ..model import load_table_model
    from ..reading import read_table
    from ..report import write_comparison_report

    if len({path.resolve() for path in models}) < max(len(models), 2):
        raise ValueError("two different models at least are compared: structgp compare NEW.csv a.structgp b.structgp")
    loaded = {str(path): load_table_model(path) for path in models}
    first = next(iter(loaded.values()))
    table = read_table(data, dates=dates, zone=zone, like=first.layout.how)
    found = on_rows(loaded, table.frame)
    wrong = "part wrong" if first.task == "classification" else "RMSE"
    rows = [["model", "log probability of a row", "behind the first", wrong, "in 95 % intervals"]]
    for place, one in enumerate(found):
        by = "" if place == 0 else f"{one.behind}{', clearly' if one.behind.clearly else ''}"
        inside = "" if one.inside is None else f"{100 * one.inside:.1f} %"
        rows.append([one.name, f"{one.log_probability:.4g}", by, f"{one.error:.4g}", inside])
    second = found[1].behind
    ahead = f"{found[0].name} makes the rows of {data.name} more probable than {found[1].name}, by {second} a row"
    said = f"{ahead}: {'more than its error allows for' if second.clearly else 'no more than chance would do'}."
    lines = [*notes_in_words(table.notes), *aligned("", rows)[1:], "", said]
    if report is not None:
        write_comparison_report(f"Models of {first.target}", rows, said, [], table.notes, report)
        lines.append(f"the report is in {report}")
    answer: dict[str, Any] = {"target": first.target, "task": first.task, "notes": list(table.notes)}
    answer |= {"models": [{**one._asdict(), "behind": one.behind._asdict()} for one in found]}
    return {**answer, **({} if report is None else {"report": str(report)}), "text": "\n".join(lines)}


OF_KERNELS = Route("kernels on a table", of_kernels, "leave it out")
OF_MODELS = Route("saved models, which know their target and their kernel", of_models, "leave it out")
EXAMPLE = "compare measurements.csv --target y --kernel Matern52 --kernel 'SquaredExponential + Linear'"


@command(EXAMPLE, OF_KERNELS, OF_MODELS, out="report")
def compare(
    *,
    data: DataArgument,
    models: ModelsArgument = (),  # type: ignore[assignment]
    target: TargetOption = None,
    asked: Comparing,
    report: ReportOption = None,
    as_json: AsJson = False,
) -> Route:
    """Compare kernels on a table, or saved models on new rows. Without --kernel what fit would try is compared."""
    return OF_MODELS if models else OF_KERNELS
