"""`structgp predict`, `info` and `report`: what is done with a model that was saved."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from .base import check_level, command, notes_in_words, with_predictions, write_csv
from .options import (
    LEVEL,
    AsJson,
    DataArgument,
    DatesOption,
    LevelOption,
    ModelArgument,
    PredictionFile,
    ReportFile,
    ZoneOption,
)
from .told import facts, model_in_words


@command("predict result/model.structgp new.csv --out predictions.csv")
def predict(
    model: ModelArgument,
    data: DataArgument,
    out: PredictionFile = None,
    level: LevelOption = LEVEL,
    dates: DatesOption = "auto",
    zone: ZoneOption = "",
    as_json: AsJson = False,
) -> dict[str, Any]:
    """Predict the rows of a table. Mean and interval, or label and probabilities."""
    from ..model import load_table_model
    from ..reading import read_table

    fitted = load_table_model(model)
    check_level(fitted, level)
    read = read_table(data, dates=dates, zone=zone, like=fitted.layout.how)
    table = with_predictions(fitted, read, level)
    found = {"rows": table.height, "notes": list(read.notes)}
    if out is not None:
        write_csv(table, out)
        lines = [*notes_in_words(read.notes), f"{table.height} predictions in {out}"]
        return {**found, "file": str(out), "text": "\n".join(lines)}
    if not as_json:
        print("\n".join(notes_in_words(read.notes)), end="\n" if read.notes else "", file=sys.stderr)
    return {**found, "predictions": table.to_dicts(), "text": table.write_csv().rstrip("\n")}


@command("info result/model.structgp")
def info(model: ModelArgument, as_json: AsJson = False) -> dict[str, Any]:
    """Say what a model file holds: inputs, parameters, scores."""
    from ..model import load_table_model

    loaded = load_table_model(model)
    return {**facts(loaded), "text": model_in_words(loaded)}


@command("report result/model.structgp --out report.html", report="out")
def report(
    model: ModelArgument,
    out: ReportFile = Path("report.html"),
    as_json: AsJson = False,
) -> dict[str, Any]:
    """Write the report of a model again. One HTML file that needs no network."""
    from ..model import load_table_model
    from ..report import write_report

    write_report(load_table_model(model), out)
    return {"file": str(out), "text": f"the report is in {out}"}
