"""`structgp embed`: the rows of a table in few coordinates."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..writing import check_folder, replacing_all
from .base import aligned, columns_in_words, command, free_name, notes_in_words, seconds_of, write_csv
from .options import (
    AsJson,
    Budget,
    ColorOption,
    DataArgument,
    DatesOption,
    DimensionsOption,
    IgnoreOption,
    OutFolder,
    SeedOption,
    ZoneOption,
)


@command("embed flowers.csv --color species --out map")
def embed(
    data: DataArgument,
    dimensions: DimensionsOption = "2",
    color: ColorOption = None,
    ignore: IgnoreOption = (),  # type: ignore[assignment]
    out: OutFolder = Path("structgp-embed"),
    budget: Budget = "2m",
    dates: DatesOption = "auto",
    zone: ZoneOption = "",
    seed: SeedOption = 0,
    as_json: AsJson = False,
) -> dict[str, Any]:
    """Lay the rows of a table out in few coordinates; writes coordinates.csv, report.html and map.structgp."""
    from ..reading import read_table

    seconds, wanted = seconds_of(budget), _dimensions(dimensions)
    check_folder(out)
    table = read_table(data, dates=dates, zone=zone)
    import polars as pl

    from ..embed import embed_table  # takes seconds, which a wrong name need not wait for
    from ..report import write_map_report
    from ..report.maps import column_rows, map_headline

    found = embed_table(table, wanted, color, ignore, seconds=seconds, random_state=seed)
    names = {"coordinates": "coordinates.csv", "report": "report.html", "map": "map.structgp"}
    files = {name: out / file for name, file in names.items()}
    columns = [
        pl.Series(free_name(f"coordinate_{q}", table.written.columns), values)
        for q, values in enumerate(found.map.embedding_.T, 1)
    ]
    with replacing_all(*files.values(), folder=out) as (coordinates, report, kept):
        write_csv(table.written.with_columns(columns), coordinates)
        write_map_report(found, report, table.notes)
        found.map.save(kept)
    lines = [*notes_in_words(table.notes), *columns_in_words(found.layout), "", *found.map.summary().splitlines()]
    lines += aligned("what the map explains", column_rows(found))
    lines += ["", map_headline(found), "", *(f"{name:<12} {path}" for name, path in files.items())]
    answer: dict[str, Any] = {"rows": found.rows, "columns": found.layout.names, "dimensions": found.map.dimensions_}
    answer |= {"relevance": found.map.relevance_, "explained": dict(zip(found.layout.names, found.explained, strict=True))}
    answer |= {"log_evidence": found.map.log_evidence_, "notes": list(table.notes)}
    return {**answer, "files": {name: str(path) for name, path in files.items()}, "text": "\n".join(lines)}


def _dimensions(text: str) -> int | str:
    """A number, or auto."""
    if text != "auto" and not text.isdecimal():
        raise ValueError(f"--dimensions is a whole number or auto, got {text!r}")
    return text if text == "auto" else int(text)
