"""Every option of what learns, on every way that a command can go: heard where learning is asked for, or refused in a line."""

import dataclasses
import math
import shlex
import types

import numpy as np
import polars as pl
import pytest
import typer
from typer.testing import CliRunner

import structgp as sg
from structgp.learn.clock import Deadline
from structgp.tables import automatic, reading, report, several
from structgp.tables.cli import app
from structgp.tables.cli.base import ROUTES
from structgp.tables.cli.fit import write_results
from structgp.tables.cli.options import Learning
from structgp.tables.model import TableModel, load_table_model
from structgp.tables.reading import Layout, Table, read_table
from structgp.tables.writing import replacing_all

COMMANDS = {one.name: one for one in typer.main.get_group(app).commands.values()}
ROWS = 20
WAYS = {  # a command line that goes each way, by the command and what is done there
    ("fit", "one column"): "series.csv --target v",
    ("fit", "several columns together"): "series.csv --targets v,w --time day",
    ("fit", "a series in many files"): "many/*.parquet --target v --time t",
    ("plan", "all"): "series.csv --target v",
    ("forecast", "a table"): "series.csv --target v",
    ("forecast", "a model, which was learned before"): "a.structgp",
    ("fill", "one column"): "series.csv --targets v",
    ("fill", "several columns together"): "series.csv --targets v,w",
    ("compare", "kernels on a table"): "series.csv --target v",
    ("compare", "saved models, which know their target and their kernel"): "series.csv a.structgp b.structgp",
}
LEARN = {command for command, _ in WAYS}
SAID = {  # another value of each option
    "target": "w",
    "targets": "w,v",
    "time": "w",
    "task": "counts",
    "kernel": "Matern52",
    "structure": "dense",
    "approximate": "inducing:7",
    "likelihood": "student-t",
    "parameters": "laplace",
    "budget": "2h",
    "dates": "day-first",
    "zone": "Europe/Berlin",
    "seed": "7",
    "out": "elsewhere",
    "horizon": "7",
    "scheduler": "tcp://nowhere:1",
    "lags": "no",
    "level": "0.7",
    "report": "elsewhere.html",
}
OF_MODELS = {what for _, what in WAYS if "model, " in what or "models, " in what}  # which are learned before
LATER = {"out", "report", "level"}  # of what is written, after learning
SWITCHES = {("fit", "targets"), ("fit", "scheduler")}  # that choose the way
FORECAST = ("fit", "several columns together", "horizon")  # so is this one


def options_of(command):
    return {one.name: one.opts[0] for one in COMMANDS[command].params if one.opts[0].startswith("--") and one.name in SAID}


def routes_of(command):
    return {route.what: route for route in ROUTES.get(command, ())}


def test_every_way_and_every_option_has_a_case():
    assert {(command, what) for command in ROUTES for what in routes_of(command)} == {way for way in WAYS if way[1] != "all"}
    for command in LEARN:
        words = {one.name for one in COMMANDS[command].params if one.opts[0].startswith("--")}
        assert words - {"help", "as_json"} == set(options_of(command))


def test_what_learns_is_asked_alike():
    for command in LEARN:
        found = {one.name: one.default for one in COMMANDS[command].params}
        alone = {"parameters"} if command == "compare" else set()  # the best ones, unless more is asked for
        for field in dataclasses.fields(Learning):
            default = field.default if field.default != () else None
            assert field.name in alone or (found[field.name] or None) == (default or None)
            assert field.name in found


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("routes")
    y = np.sin(np.arange(ROWS) / 2)
    days = pl.date_range(pl.date(2024, 1, 1), pl.date(2024, 1, ROWS), eager=True)
    gone = pl.Series("v", y).set(pl.arange(ROWS, eager=True) == 5, None)
    pl.DataFrame({"day": days, "v": gone, "w": np.arange(ROWS) + 1.0}).write_csv(folder / "series.csv")
    (folder / "many").mkdir()
    pl.DataFrame({"t": np.arange(ROWS) * 1.0, "v": y, "w": np.arange(ROWS) + 1.0}).write_parquet(folder / "many" / "0.parquet")
    layout = Layout.of(read_table(folder / "series.csv").frame.select("day"), leave_out=())
    fitted = sg.GP(sg.Matern52(5.0), sg.Gaussian(0.01)).condition(np.arange(ROWS, dtype=float), y)
    for name in "ab":
        TableModel(fitted, layout, "regression", "v", np.zeros(1), np.ones(1), ROWS, "series").save(folder / f"{name}.structgp")
    return folder


def told(value):
    """A value that is asked with, the same for the same question."""
    if isinstance(value, dict):
        return {key: told(one) for key, one in value.items()}
    if isinstance(value, types.FunctionType):
        return told(value(["day"])) if value.__qualname__.startswith("options_of") else ""  # the kernels of a table
    if isinstance(value, Deadline) or (isinstance(value, float) and value > 60):
        return round(math.log10(value.left() if isinstance(value, Deadline) else value))  # what is left of the budget, about
    said = repr(value)
    return "" if isinstance(value, Table) or " at 0x" in said else said


@pytest.fixture
def heard(monkeypatch, folder):
    """What a command line asks of the library, which learns nothing; or what it says instead."""
    monkeypatch.chdir(folder)
    asked = []

    def listen(place, name, learns):
        before = getattr(place, name)

        def hear(*words, **options):
            asked.append(f"{name} {list(map(told, words))} {told(options)}")
            if learns:
                raise ValueError("heard")
            return before(*words, **options)

        monkeypatch.setattr(place, name, hear)

    listen(reading, "read_table", learns=False)
    for place, name in ((automatic, "fit_table"), (automatic, "plan_table"), (several, "fit_outputs"), (sg.GP, "fit")):
        listen(place, name, learns=True)

    def run(*words):
        asked.clear()
        found = CliRunner().invoke(app, list(words))
        assert "Traceback" not in found.output
        return "\n".join(asked) if found.stderr == "structgp: heard\n" else found.stderr

    return run


@pytest.mark.parametrize(("command", "what", "option"), [(*way, name) for way in WAYS for name in options_of(way[0])])
def test_an_option_is_heard_or_refused(heard, command, what, option):
    words, (word, value) = [command, *shlex.split(WAYS[command, what])], (options_of(command)[option], SAID[option])
    if word in words:
        del words[words.index(word) : words.index(word) + 2]
    route = routes_of(command).get(what)
    if (command, option) in SWITCHES and option not in route.takes:
        assert heard(*words, word, value) != heard(*words)
    elif route is not None and option not in route.takes:
        assert heard(*words, word, value) == f"structgp: {word} says nothing of {what}: {route.instead}\n"
    elif option not in LATER and (command, what, option) != FORECAST and what not in OF_MODELS:
        long = [] if option == "budget" else ["--budget", "1000h"]
        plain = heard(command, *shlex.split(WAYS[command, what]), "--budget", "1000h")
        asked = heard(*words, *long, word, value)
        assert "fit" in asked or "plan" in asked
        assert asked != plain


def test_several_columns_go_along_the_dates_of_their_table(heard):
    pl.read_csv("series.csv").filter(pl.col("w") != 3).write_csv("uneven.csv")  # else days would be the numbers of the rows
    words = [*shlex.split("fit uneven.csv --targets v,w"), "--budget", "1000h"]
    assert "fit_outputs" in heard(*words)
    assert heard(*words) == heard(*words, "--time", "day") != heard(*words, "--time", "w")


def test_files_take_their_places_together_or_not_at_all(tmp_path):
    def fail_after(place):
        place.write_text("new")
        raise ZeroDivisionError

    there, deep = tmp_path / "there", tmp_path / "new" / "deep"
    there.mkdir()
    (there / "a.txt").write_text("old")
    for folder in (there, deep):
        with pytest.raises(ZeroDivisionError), replacing_all(folder / "a.txt", folder / "b.txt", folder=folder) as (a, _):
            fail_after(a)
    assert [path.name for path in there.iterdir()] == ["a.txt"]
    assert not (tmp_path / "new").exists()
    with replacing_all(there / "a.txt", there / "b.txt") as (a, b):
        a.write_text("new")
        b.write_text("new")
        assert (there / "a.txt").read_text() == "old"
    assert [path.read_text() for path in sorted(there.iterdir())] == ["new", "new"]


def test_nothing_is_written_where_a_report_cannot_be(heard, folder, tmp_path, monkeypatch):
    def broken(*words):
        raise ValueError("no report today")

    monkeypatch.setattr(report, "write_report", broken)
    model = load_table_model(folder / "a.structgp")
    with pytest.raises(ValueError, match="no report today"):
        write_results(model, read_table(folder / "series.csv"), tmp_path / "out", Deadline.after(9.0))
    assert not (tmp_path / "out").exists()
