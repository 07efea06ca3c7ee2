"""What is known of a model, for scripts and for people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .base import aligned, columns_in_words, inputs_in_words, notes_in_words, plain

if TYPE_CHECKING:
    from ..model import TableModel


def facts(model: TableModel) -> dict[str, Any]:
    """What is known of a model, for scripts."""
    from ..report.words import alarms
    from ..suspects import suspected_rows

    parameters: dict[str, Any] = model.fitted.gp.parameters() if hasattr(model.fitted, "gp") else {}
    return {
        "task": model.task,
        "target": model.target,
        "rows": model.rows,
        "shape": model.shape,
        "inputs": model.layout.names,
        "classes": list(model.classes),
        "log_evidence": float(model.fitted.log_evidence),
        "parameters": {name: plain(value) for name, value in parameters.items()},
        "candidates": [vars(trial) for trial in model.trials],
        "held_out": model.evaluation.kind,
        "scores": model.evaluation.scores,
        "score_intervals": model.evaluation.intervals,
        "attention": alarms(model),
        "suspected_rows": suspected_rows(model),
        "notes": list(model.notes),
    }


def model_in_words(model: TableModel, late: bool = False) -> str:
    """What is known of a model, for people; when it is late, without its parts."""
    from ..report.sections import score_rows
    from ..report.words import Part, alarms, forecast_rows, headline, parts_of
    from ..suspects import in_words

    of_inputs = inputs_in_words(model.layout.names, model.shape)
    lines = [f"{model.task} of {model.target!r} from {model.rows} rows, {of_inputs}"]
    lines += columns_in_words(model.layout)
    lines += notes_in_words(model.notes)
    compared = "forecast" if model.shape == "series" else "held out"
    wide = max(len("candidates"), *(len(trial.name) for trial in model.trials)) if model.trials else 0
    lines += ["", f"{'candidates':<{wide + 2}}  log evidence   {compared:>8}   seconds"]
    for trial in model.trials:
        numbers = trial.note or f"{trial.log_evidence:>12.5g}   {_number(trial.held_out):>8}   {trial.seconds:>7.1f}"
        lines.append(f"{'* ' if trial.chosen else '  '}{trial.name:<{wide}}  {numbers}")
        lines += [f"      {trial.why}"] if trial.why else []
    if hasattr(model.fitted, "plan"):
        lines += ["", "plan", *(f"  {line}" for line in str(model.fitted.plan).splitlines())]
    parts = (
        parts_of(model) if not late else [Part("parts", "no time was left for them; structgp info model.structgp names them")]
    )
    learned = [f"  {part.name}: {part.learned}" for part in parts]
    lines += ["", "learned", *learned] if learned else []
    lines += aligned(f"scores on {model.evaluation.kind} (with 90 % intervals)", score_rows(model))
    lines += aligned("forecast", forecast_rows(model))
    last = [*(f"attention: {alarm}" for alarm in alarms(model)), *in_words(model), headline(model).strip()]
    return "\n".join([*lines, "", *last])


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"
