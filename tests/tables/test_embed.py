"""`structgp embed`: a table laid out, coloured, with a report; and what it says when that cannot be."""

import json
import re

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

import structgp as sg
from structgp.tables.cli import app
from structgp.tables.embed import Embedded, embed_table
from structgp.tables.reading import read_table
from structgp.tables.report import write_map_report
from structgp.tables.report.maps import map_figures


def run(*arguments, code=0):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == code, result.output
    assert "Traceback" not in result.output
    return result


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """Thirty-six rows along a curve: numbers with gaps, a category, a date, and a name for each part of the curve."""
    path = tmp_path_factory.mktemp("embed") / "table.csv"
    t = np.linspace(0, 3, 36)
    values = np.column_stack([np.sin(t), np.cos(t), t**2])
    values[4, 1] = values[20, 2] = np.nan
    shade = np.where(t > 2, "dark", np.where(t > 1, "grey", None))
    days = pl.Series(np.datetime64("2024-01-01") + np.arange(36))
    frame = pl.DataFrame({"id": np.arange(36), "day": days, "a": values[:, 0], "b": values[:, 1], "c": values[:, 2]})
    more = {"shade": pl.Series(shade.tolist()), "kind": np.where(t > 1.5, "late", "early"), "t": t}
    frame.with_columns(**more).fill_nan(None).write_csv(path)
    return path


def test_a_table_is_laid_out(table, tmp_path):
    out = tmp_path / "out"
    told = json.loads(
        run("embed", table, "--color", "kind", "--ignore", "t", "--dimensions", "1", "--out", out, "--json").stdout
    )
    assert told["columns"] == ["day", "a", "b", "c", "shade=grey"]  # of two levels one column; `id` numbers the rows
    assert told["rows"] == 36
    assert told["explained"]["a"] > 0.8
    written = pl.read_csv(out / "coordinates.csv")
    assert written.columns[:3] == ["id", "day", "a"]
    place = written["coordinate_1"].to_numpy()
    assert abs(np.corrcoef(place.argsort().argsort(), np.arange(36))[0, 1]) > 0.97
    page = (out / "report.html").read_text()
    assert "coloured by kind" in page
    assert {"early", "late"} <= set(re.findall(r'"name": "(\w+)"', page))
    assert sg.load(out / "map.structgp").embedding_.shape == (36, 1)
    text = run("embed", table, "--color", "kind", "--ignore", "t", "--dimensions", "1", "--out", out).stdout
    assert "36 rows of 5 columns in 1 coordinates" in text
    assert "what the map explains" in text


def test_maps_are_coloured_by_classes_and_numbers(table, tmp_path):
    read = read_table(table)
    found = embed_table(read, 2, "kind", ("t",), max_evaluations=3)
    by_number = found._replace(color="t", labels=read.frame["t"].to_numpy())
    kinds = lambda found: [trace.kind for trace in map_figures(found)[0].traces]
    assert kinds(found) == ["points", "points"]
    assert kinds(by_number) == ["places"]
    assert kinds(found._replace(color=None, labels=None)) == ["points"]
    many = np.array([f"kind {n % 14}" for n in range(36)])
    assert [trace.name for trace in map_figures(found._replace(labels=many))[0].traces][-1] == "others"
    behind = map_figures(found)[1].traces[0]
    assert behind.kind == "image"
    assert np.shape(behind.values) == (60, 60)
    write_map_report(by_number, tmp_path / "map.html", ("a note",))
    assert "a note" in (tmp_path / "map.html").read_text()
    assert isinstance(found, Embedded)


def test_what_cannot_be_says_so(table, tmp_path):
    say = lambda *more: run("embed", table, "--out", tmp_path / "x", *more, code=1).stderr
    assert "--dimensions is a whole number or auto, got '1.5'" in say("--dimensions", "1.5")
    assert "there is no column to colour by 'knd' in the table: did you mean 'kind'" in say("--color", "knd")
    assert "dimensions=9, but X has n_features" in say("--dimensions", "9")
    (tmp_path / "file").write_text("")
    assert "is a file: give the name of a folder" in run("embed", table, "--out", tmp_path / "file", code=1).stderr
