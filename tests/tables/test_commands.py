"""The commands as one face: the same names for the same things, an example in every help; forecast, fill and compare."""

import json
import os
import shlex
import subprocess
import sys

import numpy as np
import polars as pl
import pytest
import typer
from typer.testing import CliRunner

import structgp as sg
from structgp.tables.cli import app
from structgp.tables.cli.fill import companions
from structgp.tables.cli.forecast import is_model
from structgp.tables.model import TableModel
from structgp.tables.reading import Layout, read_table

COMMANDS = {one.name: one for one in typer.main.get_group(app).commands.values()}
OLDER = {("changepoints", "value"): "target", ("changepoints", "out"): "report", ("identify", "out"): "report"}


def run(*words, code=0):
    found = CliRunner().invoke(app, [str(word) for word in words])
    assert found.exit_code == code, found.output
    assert "Traceback" not in found.output
    return found


def as_json(*words, code=0):
    return json.loads(run(*words, "--json", code=code).stdout)


def options_of(command):
    return {name: one for one in command.params for name in one.opts if name.startswith("--")}


@pytest.mark.parametrize("name", COMMANDS)
def test_help_ends_with_an_example_of_options_that_exist(name):
    said = " ".join(run(name, "--help").stdout.split())
    example = shlex.split(said.split("Example: structgp ")[1])
    assert example[0] == name
    assert {word for word in example if word.startswith("--")} <= set(options_of(COMMANDS[name]))


def test_an_option_means_the_same_everywhere():
    # a file or a folder; one or several; to be predicted, or looked at; of a response, or of columns
    free = {"--out", "--kernel", "--target", "--time", "--lags"}
    said = {}
    for command in COMMANDS.values():
        for name, one in options_of(command).items():
            said.setdefault(name, set()).add(one.help)
    assert {name for name, helps in said.items() if len(helps) > 1} <= free
    for command in COMMANDS.values():
        assert "--json" in options_of(command)


@pytest.mark.parametrize(("command", "older"), OLDER)
def test_older_spellings_are_taken_and_not_shown(command, older):
    normal = COMMANDS[command].context_settings["token_normalize_func"]
    assert normal(older) == OLDER[command, older]
    assert f"--{older}" not in options_of(COMMANDS[command])


def typed(line):
    """What a shell is offered at the end of a line."""
    words = shlex.split(line + ("''" if line.endswith(" ") else ""))
    asked = {"COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1), "_STRUCTGP_COMPLETE": "complete_bash"}
    start = "from structgp.tables.cli import app; app(prog_name='structgp')"
    done = subprocess.run(
        [sys.executable, "-c", start], env={**os.environ, **asked}, capture_output=True, text=True, check=False
    )
    return done.stdout.split()


def test_a_shell_completes_commands_options_and_columns(tmp_path, monkeypatch):
    (tmp_path / "table.csv").write_text("when,sales,salary\n2020-01-01,1,2\n2020-01-02,2,3\n")
    assert typed("structgp fo") == ["forecast"]
    assert {"--target", "--targets"} <= set(typed("structgp fit x.csv --targ"))
    assert typed(f"structgp fit {tmp_path / 'table.csv'} --target sal") == ["sales", "salary"]
    assert typed(f"structgp fit {tmp_path / 'no.csv'} --target sal") == []
    monkeypatch.setattr("shellingham.detect_shell", lambda *_: ("bash", "/bin/bash"))
    assert "complete_bash" in run("--show-completion").stdout


DAYS = 40


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A series with a gap and three steps that are not known yet, and two models of it."""
    folder = tmp_path_factory.mktemp("commands")
    days = pl.date_range(pl.date(2024, 1, 1), pl.date(2024, 2, 9), eager=True)
    y = np.sin(np.arange(DAYS) / 4)
    frame = pl.DataFrame({"day": days, "v": y}).with_columns(
        pl.when(pl.col("day").is_between(pl.date(2024, 1, 11), pl.date(2024, 1, 13))).then(None).otherwise("v").alias("v")
    )
    frame.write_csv(folder / "series.csv")
    frame.with_columns(key=pl.int_range(DAYS) % 7, word=pl.lit("a")).head(12).write_csv(folder / "rows.csv")
    layout = read_layout(folder / "series.csv")
    for name, length in (("good", 5.0), ("poor", 0.05)):
        fitted = sg.GP(sg.Matern52(length), sg.Gaussian(0.01)).condition(np.arange(float(DAYS)), y)
        ending = tuple(np.arange(float(DAYS)).tolist())
        model = TableModel(fitted, layout, "regression", "v", np.zeros(1), np.ones(1), DAYS, "series", ending=ending)
        model.save(folder / f"{name}.structgp")
    return folder


def read_layout(path):
    table = read_table(path)
    return Layout.of(table.frame.select("day"), leave_out=(), how=table.how)


def test_a_model_is_told_from_a_table(folder):
    assert is_model(folder / "good.structgp")
    assert not is_model(folder / "series.csv")


def test_a_model_of_a_series_is_forecast(folder):
    found = as_json("forecast", folder / "good.structgp", "--horizon", 3, "--level", 0.5)
    assert [row["day"] for row in found["forecast"]] == ["2024-02-10", "2024-02-11", "2024-02-12"]
    wide = as_json("forecast", folder / "good.structgp", "--horizon", 3)["forecast"]
    assert all(a["v_upper"] < b["v_upper"] for a, b in zip(found["forecast"], wide, strict=True))
    printed = run("forecast", folder / "good.structgp", "--horizon", 2).stdout.splitlines()
    assert printed[0] == "day,v_mean,v_sd,v_lower,v_upper"
    assert len(printed) == 3
    said = run("forecast", folder / "good.structgp", "--out", folder / "f.csv", "--report", folder / "f.html").stdout
    assert "6 steps are forecast in" in said
    assert pl.read_csv(folder / "f.csv").height == 6
    assert "Forecast" in (folder / "f.html").read_text()


@pytest.mark.full
def test_a_table_is_forecast_along_its_only_dates(folder):
    options = ("--kernel", "Matern32(lengthscale=5)", "--parameters", "best", "--horizon", 2)
    found = as_json("forecast", folder / "series.csv", *options)
    assert [row["day"] for row in found["forecast"]] == ["2024-02-10", "2024-02-11"]
    assert found["horizon"] == 2


@pytest.mark.full
def test_the_gaps_of_one_column_are_filled(folder, tmp_path):
    found = as_json("fill", folder / "series.csv", "--out", tmp_path / "out", "--parameters", "best", "--budget", "60s")
    assert (found["target"], found["filled"]) == ("v", 3)
    table = pl.read_csv(tmp_path / "out" / "filled.csv")
    assert table.columns == ["day", "v", "v_lower", "v_upper"]
    np.testing.assert_allclose(table["v"][10:13], np.sin(np.arange(10, 13) / 4), atol=0.1)
    np.testing.assert_allclose(table["v"][:10], np.sin(np.arange(10) / 4))
    assert (tmp_path / "out" / "report.html").exists()


def test_a_column_that_goes_with_one_of_the_targets_helps():
    t = np.arange(20.0)
    flat, gone = [None, *[1.0] * 19], [None, *np.sin(t[1:])]  # the first has no correlation with anything
    frame = pl.DataFrame({"t": t, "flat": flat, "gone": gone, "whole": np.sin(t) + 0.1 * np.cos(t)})
    assert companions(frame, ["flat", "gone"], "t") == ["whole"]


def test_saved_models_are_compared_row_by_row(folder):
    found = as_json("compare", folder / "series.csv", folder / "poor.structgp", folder / "good.structgp")
    assert [one["name"].split("/")[-1] for one in found["models"]] == ["good.structgp", "poor.structgp"]
    first, second = found["models"]
    assert first["error"] < second["error"]
    assert first["behind"]["mean"] == 0
    assert second["behind"]["mean"] == pytest.approx(first["log_probability"] - second["log_probability"])
    words = run(
        "compare", folder / "series.csv", folder / "poor.structgp", folder / "good.structgp", "--report", folder / "c.html"
    )
    assert "more than its error allows for" in words.stdout
    assert "How probable each makes a row" in (folder / "c.html").read_text()


@pytest.mark.full
def test_kernels_are_compared_on_a_table(folder):
    kernels = ("--kernel", "Matern32(lengthscale=5)", "--kernel", "Matern12(lengthscale=0.01)")
    found = as_json("compare", folder / "series.csv", "--target", "v", "--time", "day", *kernels, "--report", folder / "k.html")
    assert [one["name"] for one in found["candidates"][:2]] == ["Matern32(lengthscale=5)", "Matern12(lengthscale=0.01)"]
    assert not found["candidates"][1]["chosen"]
    assert "Matern12" in (folder / "k.html").read_text()


@pytest.mark.full
def test_a_likelihood_that_is_named_is_taken(folder, tmp_path):
    options = ("--target", "v", "--time", "day", "--kernel", "Matern32(lengthscale=5)", "--likelihood", "student-t")
    found = as_json("fit", folder / "series.csv", *options, "--out", tmp_path / "out", "--parameters", "best")
    chosen = next(one["name"] for one in found["candidates"] if one["chosen"])
    assert chosen.endswith("noise with outliers")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["forecast", "series.csv", "--target", "v", "--level", "1"], "level is a probability between 0 and 1"),
        (["forecast", "series.csv", "--target", "w"], "no target 'w'"),
        (
            ["forecast", "rows.csv", "--target", "key", "--likelihood", "cauchy"],
            "likelihood must be one of auto, gaussian, student-t",
        ),
        (["fill", "rows.csv", "--targets", "key"], "column 'key' has no gap"),
        (["fill", "full.csv"], "no column of numbers has a gap"),
        (["fill", "series.csv", "--targets", "v,w"], "no target 'w'"),
        (
            ["fill", "series.csv", "--targets", "v", "--lags", "yes"],
            "--lags says nothing of one column: leave it out, or name several",
        ),
        (
            ["fit", "series.csv", "--target", "v", "--lags", "no"],
            "--lags says nothing of one column: leave it out, or name several",
        ),
        (["fit", "pair.csv", "--targets", "a,b", "--lags", "3"], "--lags 3 cannot be had: it is auto, yes or no"),
        (["fit", "pair.csv", "--targets", "a,b", "--lags", "yes"], "day, c are 2 columns of places: name one by --time"),
        (["compare", "series.csv", "good.structgp"], "two different models at least are compared"),
        (
            ["compare", "series.csv", "good.structgp", "poor.structgp", "--target", "v"],
            "--target says nothing of saved models, which know",
        ),
        (["compare", "full.csv", "good.structgp", "poor.structgp"], "lacks 'v'"),
        (["compare", "series.csv", "--target", "v", "--kernel", "Matern32", "--kernel", "Matern32"], "each is named once"),
    ],
)
def test_bad_input_gets_one_line(folder, monkeypatch, words, message):
    monkeypatch.chdir(folder)
    (folder / "full.csv").write_text("day,a\n2024-01-01,1\n2024-01-02,2\n")
    (folder / "pair.csv").write_text("day,a,b,c\n1,1,2,3\n2,2,,4\n")
    result = run(*words, code=1)
    assert result.stderr.startswith("structgp: ")
    assert message in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
