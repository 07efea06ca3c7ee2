import gzip
import io
import json
import re
import sys

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

import structgp as sg
import zoo
from structgp.models.one_against_rest import OneAgainstRest
from structgp.tables.cli import app, seconds_of
from structgp.tables.cli.learning import watching
from structgp.tables.model import TableModel, load_table_model
from structgp.tables.reading import Column, Layout, read_table
from structgp.tables.report.sections import component_figures
from structgp.tables.several import identify_columns

DAYS = 40


def run(*arguments, code=0):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == code, result.output
    assert "Traceback" not in result.output
    return result


def as_json(*arguments, code=0):
    return json.loads(run(*arguments, "--json", code=code).stdout)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A series with dates and gaps, a fitted model of it, and tables that no model can be made of."""
    folder = tmp_path_factory.mktemp("cli")
    dates = pl.date_range(pl.date(2024, 1, 1), pl.date(2024, 2, 9), eager=True)
    scatter = np.random.default_rng(0).standard_normal(DAYS)
    values, level = np.sin(np.arange(DAYS) / 4) + 0.1 * scatter, np.where(np.arange(DAYS) < 20, 0.0, 30.0) + scatter
    frame = pl.DataFrame({"day": dates, "value": values, "level": level})
    frame = frame.with_columns(
        pl.when(pl.col("day") == pl.date(2024, 1, 5)).then(None).otherwise(pl.col("value")).alias("value")
    )
    frame.write_csv(folder / "series.csv")
    (folder / "text.csv").write_text("x,y\n" + "".join(f"{i},word{i}\n" for i in range(30)))
    (folder / "gone.csv").write_text("x,y\n1,\n2,\n3,\n")
    (folder / "twice.csv").write_text("x,x\n1,2\n")
    (folder / "nothing.csv").write_text("")
    (folder / "latin.csv").write_bytes("x,größe\n1,2\n".encode("latin1"))
    (folder / "header.csv").write_text("x,y\n")
    (folder / "number.csv").write_text("day,value\n1,2\n")
    (folder / "cut.csv.gz").write_bytes(gzip.compress(b"x,y\n" + b"1,2\n" * 50)[:20])
    (folder / "other.structgp").write_bytes(b"\x89PNG\r\n\x1a\n and more")
    return folder


@pytest.fixture(scope="module")
def fitted(folder):
    options = ("--target", "value", "--time", "day", "--kernel", "Matern32(lengthscale=5)", "--out", folder / "out")
    return as_json("fit", folder / "series.csv", *options)


def test_fit_writes_model_predictions_and_report(folder, fitted):
    assert fitted["task"] == "regression"
    assert fitted["shape"] == "series"
    assert fitted["rows"] == DAYS - 1
    assert fitted["notes"] == ["1 row without a target or a date was not learned from"]
    assert fitted["scores"]["this model"].keys() == fitted["scores"]["linear"].keys()
    for method, scores in fitted["scores"].items():
        for name, score in scores.items():
            low, high = fitted["score_intervals"][method][name]
            assert low <= score <= high
    assert sorted(path.name for path in (folder / "out").iterdir()) == [
        "forecast.csv",
        "model.structgp",
        "predictions.csv",
        "report.html",
    ]
    table = pl.read_csv(folder / "out" / "predictions.csv")
    assert table.height == DAYS
    inside = table.drop_nulls("value").select((pl.col("value") - pl.col("value_mean")).abs() < 3 * pl.col("value_sd"))
    assert inside.to_series().all()
    assert (table["value_lower"] < table["value_mean"]).all()


def test_predictions_are_the_table_with_columns_added(folder, fitted):
    table = pl.read_csv(folder / "out" / "predictions.csv", infer_schema=False)
    given = pl.read_csv(folder / "series.csv", infer_schema=False)
    assert table["day"].equals(given["day"])
    assert table.columns == [*given.columns, "value_mean", "value_sd", "value_lower", "value_upper", "learned_from"]
    assert [row for row, mark in enumerate(table["learned_from"]) if mark == "false"] == [4]


def test_a_forecast_goes_on_from_the_last_day(folder, fitted):
    table = pl.read_csv(folder / "out" / "forecast.csv")
    assert table.columns == ["day", "value_mean", "value_sd", "value_lower", "value_upper"]
    assert table["day"].to_list() == [f"2024-02-{day}" for day in range(10, 16)]
    model = sg.load(folder / "out" / "model.structgp")
    np.testing.assert_allclose(table["value_mean"], model.predict(np.arange(40.0, 46.0)).mean)


def test_a_horizon_is_kept_in_the_style_and_zone_of_the_table(folder):
    times = pl.datetime_range(pl.datetime(2024, 3, 30), pl.datetime(2024, 3, 31), "30m", eager=True)
    lines = [f"{time:%d/%m/%Y %H:%M};{np.sin(i / 9):.3f};k{i:03d}".replace(".", ",") for i, time in enumerate(times)]
    (folder / "hours.csv").write_text("\n".join(["# a logger", "at;v;key", *lines]))
    options = ("--target", "v", "--time", "at", "--kernel", "Matern32", "--zone", "Europe/Berlin", "--horizon", "4")
    found = as_json("fit", folder / "hours.csv", *options, "--out", folder / "hours")
    table = pl.read_csv(folder / "hours" / "forecast.csv")
    clock = ["00:30+01:00", "01:00+01:00", "01:30+01:00", "03:00+02:00"]
    assert table["at"].to_list() == [f"31/03/2024 {time}" for time in clock]
    predictions = pl.read_csv(folder / "hours" / "predictions.csv")
    assert predictions["at"][0] == "30/03/2024 00:00"
    assert predictions["key"][1] == "k001"
    assert [note.split(": ")[-1] for note in found["notes"]] == [
        "1 line of comment is passed over",
        "dates such as 30/03/2024 00:00 are read day first, as 30/03/2024 00:00 shows",
        "times without a zone are taken for those of Europe/Berlin",
        "1,5 is read as 1.5",
    ]
    words = run("info", folder / "hours" / "model.structgp").stdout
    assert "note: 1 line of comment is passed over" in words
    assert "at (Europe/Berlin)" in words.split("forecast\n")[1]
    assert "31/03/2024 03:00+02:00" in words
    assert "1 line of comment is passed over" in (folder / "hours" / "report.html").read_text()
    (folder / "later.csv").write_text("at;v_mean\n01/04/2024 10:00;0\n")
    said = run("predict", folder / "hours" / "model.structgp", folder / "later.csv")
    assert said.stdout.splitlines()[0] == "at,v_mean,v_mean_,v_sd,v_lower,v_upper"
    assert said.stdout.splitlines()[1].startswith("01/04/2024 10:00,0,")
    assert "note: column 'at': times without a zone are taken for those of Europe/Berlin" in said.stderr


def test_the_model_is_that_of_the_library(folder, fitted):
    frame = pl.read_csv(folder / "series.csv").drop_nulls("value").with_row_index()
    days = np.delete(np.arange(float(DAYS)), 4)
    model = sg.load(folder / "out" / "model.structgp")
    again = model.gp.condition(days, frame["value"].to_numpy())
    assert again.log_evidence == pytest.approx(fitted["log_evidence"])
    np.testing.assert_allclose(model.predict([50.0]).mean, again.predict([50.0]).mean)


def test_predict_reads_new_rows(folder, fitted):
    (folder / "new.csv").write_text("day\n2024-01-05\n2024-02-10\n")
    said = as_json("predict", folder / "out" / "model.structgp", folder / "new.csv", "--level", "0.5")
    wide = as_json("predict", folder / "out" / "model.structgp", folder / "new.csv", "--level", "0.9")
    width = lambda answer: [row["value_upper"] - row["value_lower"] for row in answer["predictions"]]
    assert all(a < b for a, b in zip(width(said), width(wide), strict=True))
    assert said["predictions"][0]["value_mean"] == pytest.approx(np.sin(1.0), abs=0.3)
    run("predict", folder / "out" / "model.structgp", folder / "new.csv", "--out", folder / "said.csv")
    assert pl.read_csv(folder / "said.csv").columns == ["day", "value_mean", "value_sd", "value_lower", "value_upper"]


def test_info_and_report_need_the_model_alone(folder, fitted):
    assert as_json("info", folder / "out" / "model.structgp")["scores"] == fitted["scores"]
    words = run("info", folder / "out" / "model.structgp").stdout
    for part in ("regression of 'value'", "date, in days", "log evidence", "Kalman", "linear"):
        assert part in words
    assert "kernel." not in words
    assert words.splitlines()[-1].startswith("The model is: ")
    assert "noise: single observations scatter by ±" in words
    assert " days\n" in words.split("learned\n")[1]
    assert "2024-02-15" in words.split("forecast\n")[1]
    run("report", folder / "out" / "model.structgp", "--out", folder / "again.html")
    pages = [(folder / name).read_text() for name in ("again.html", "out/report.html")]
    again, first = (re.sub("learn ≈ .*", "", page) for page in pages)  # how long it takes depends on how busy the machine is
    assert again == first


@pytest.mark.parametrize("kind", zoo.mostly_full(["additive", "projection pursuit"], "additive"))
def test_sums_of_functions_survive_a_file(tmp_path, kind):
    X = np.random.default_rng(0).uniform(size=(40, 2))
    y = np.sin(5 * X[:, 0]) + X[:, 1]
    if kind == "additive":
        fitted = sg.AdditiveGP(likelihood=sg.Gaussian(0.01)).condition(X, y)
    else:
        fitted = sg.ProjectionPursuitGP(projections=1, sines=4).fit(X, y, max_evaluations=2)
    layout = Layout((Column("a", "number", fill=0.5), Column("b", "number", fill=0.5)))
    model = TableModel(fitted, layout, "regression", "y", np.full(2, 0.25), np.full(2, 2.0), 40)
    model.save(tmp_path / "model.structgp")
    again = load_table_model(tmp_path / "model.structgp")
    rows = pl.DataFrame({"a": [0.1, None, 0.7], "b": [0.4, 0.5, None]})
    for name, values in model.predict(rows).items():
        np.testing.assert_allclose(again.predict(rows)[name], values, err_msg=name)
    np.testing.assert_allclose(again.predict(rows)["mean"][0], fitted.predict([[-0.075, 0.075]]).mean[0])
    assert again.layout == layout
    titles = [figure.title for figure in component_figures(again)]
    assert titles == (["a", "b"] if kind == "additive" else ["Function of projection 1", "Weights of projection 1"])


@pytest.mark.full
@pytest.mark.parametrize("classes", zoo.mostly_full([2, 3], 3))
def test_labels_behind_sums_survive_a_file(tmp_path, classes):
    X = np.random.default_rng(0).standard_normal((60, 2))
    codes = np.digitize(X[:, 0], [-0.5, 0.5][: classes - 1])
    parts = [sg.AdditiveLabels(intervals=8).condition(X, (codes == c).astype(float)) for c in range(classes)]
    fitted = parts[1] if classes == 2 else OneAgainstRest(tuple(parts))
    layout = Layout((Column("a", "number", fill=0.0), Column("b", "number", fill=0.0)))
    names = ("low", "high", "top")[:classes]
    model = TableModel(fitted, layout, "classification", "y", np.zeros(2), np.ones(2), 60, classes=names)
    model.save(tmp_path / "model.structgp")
    rows = pl.DataFrame({"a": [-2.0, 0.0, 2.0], "b": [0.0, 0.0, 0.0]})
    before, after = model.predict(rows), load_table_model(tmp_path / "model.structgp").predict(rows)
    np.testing.assert_allclose(after["probability_low"], before["probability_low"])
    assert before["label"].tolist() == (["low", "high", "high"] if classes == 2 else ["low", "high", "top"])
    total = sum(before[f"probability_{name}"] for name in names)
    np.testing.assert_allclose(total, 1.0)


def test_classes_against_the_rest_survive_a_file(tmp_path):
    X = np.random.default_rng(0).standard_normal((60, 2))
    codes = np.digitize(X[:, 0], [-0.5, 0.5])
    gp = sg.GP(sg.SquaredExponential([1.0, 5.0], 9.0), sg.Bernoulli())
    fitted = OneAgainstRest(tuple(gp.condition(X, (codes == c).astype(float)) for c in range(3)))
    layout = Layout((Column("a", "number", fill=0.0), Column("b", "number", fill=0.0)))
    names = ("low", "high", "top")
    model = TableModel(fitted, layout, "classification", "y", np.zeros(2), np.ones(2), 60, classes=names)
    model.save(tmp_path / "model.structgp")
    rows = pl.DataFrame({"a": [-2.0, 0.0, 2.0], "b": [0.0, 0.0, 0.0]})
    before, after = model.predict(rows), load_table_model(tmp_path / "model.structgp").predict(rows)
    np.testing.assert_allclose(after["probability_top"], before["probability_top"])
    assert before["label"].tolist() == list(names)


def test_plan_learns_nothing(folder):
    words = run("plan", folder / "series.csv", "--target", "value", "--time", "day", "--kernel", "SquaredExponential").stdout
    assert "Cholesky" in words
    assert "no: SquaredExponential has no finite state" in words
    assert as_json("plan", folder / "series.csv", "--target", "value")["inputs"] == ["day", "level"]


def test_plan_says_what_was_asked_of_fit(folder):
    asked = ("plan", folder / "series.csv", "--target", "value", "--time", "day", "--kernel", "Matern52(lengthscale=5)")
    plans = as_json(*asked, "--likelihood", "student-t", "--parameters", "hmc")["plans"]
    assert list(plans) == ["Matern52(lengthscale=5)", "Matern52(lengthscale=5), noise with outliers"]
    assert all("averaged over, as asked for" in plan for plan in plans.values())
    assert "averaged" not in as_json(*asked, "--parameters", "best")["plans"]["Matern52(lengthscale=5)"]
    assert "inducing inputs" in as_json(*asked, "--approximate", "inducing:9")["plans"]["Matern52(lengthscale=5)"]
    assert "parameters must be one of" in as_json(*asked, "--parameters", "mean", code=1)["error"]


def test_a_picture_needs_no_target(folder):
    image = pytest.importorskip("PIL.Image")
    image.fromarray((np.arange(48).reshape(6, 8) * 5).astype(np.uint8)).save(folder / "picture.png")
    found = as_json("plan", folder / "picture.png")
    assert (found["inputs"], found["shape"], found["rows"]) == (["row", "column"], "grid", 48)


def test_change_points(folder):
    found = as_json("changepoints", folder / "series.csv", "--value", "level", "--time", "day")["changes"]
    assert [change["at"] for change in found] == ["2024-01-21"]
    assert found[0]["probability"] > 0.9
    run("changepoints", folder / "series.csv", "--value", "level", "--time", "day", "--out", folder / "changes.html")
    page = (folder / "changes.html").read_text()
    assert "1 change of level or spread in 40 rows" in page
    assert all(f">{cell}</td>" in page for cell in ("2024-01-21", "20"))


def test_progress_is_for_terminals_only(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    for stream, silent in ((io.StringIO(), True), (Terminal(), False)):
        monkeypatch.setattr(sys, "stderr", stream)
        with watching(False, 10.0) as say:
            say("smooth", 7, -12.5)
        assert ("log evidence -12.5" not in stream.getvalue()) == silent
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    with watching(True, 10.0) as say:
        say("smooth", 7, -12.5)
    assert terminal.getvalue() == ""


def test_version_and_usage():
    assert run("--version").stdout.strip() == f"structgp {sg.__version__}"
    run("fit", code=2)
    run("nonsense", code=2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fit", "serie.csv", "--target", "value"], "did you mean"),
        (["fit", "series.csv"], "which column is to be predicted? Say it by --target; the columns are"),
        (["fit", "nothing.csv", "--target", "y"], "is empty"),
        (["fit", "series.csv", "--target", "Valeu"], "no target 'Valeu' in the table: did you mean 'value'?"),
        (["fit", "series.csv", "--target", "value", "--time", "dya"], "no time column 'dya'"),
        (["fit", "series.csv", "--target", "day"], "holds dates"),
        (["fit", "series.csv", "--target", "value", "--task", "guess"], "task must be auto or one of"),
        (["fit", "series.csv", "--target", "value", "--task", "counts"], "counts are whole numbers"),
        (["fit", "series.csv", "--target", "value", "--budget", "soon"], "not a duration"),
        (["fit", "series.csv", "--target", "value", "--structure", "magic"], "structure must be"),
        (["fit", "series.csv", "--target", "value", "--approximate", "magic"], "approximate must be one of"),
        (["fit", "series.csv", "--target", "value", "--approximate", "inducing:0"], "the number of inducing inputs must be"),
        (
            ["fit", "series.csv", "--target", "value", "--structure", "dense", "--approximate", "inducing:9"],
            "--structure dense is exact, so nothing is approximate there",
        ),
        (["fit", "series.csv", "--target", "value", "--kernel", "Matren52"], "did you mean Matern52"),
        (["fit", "series.csv", "--target", "value", "--horizon", "3"], "a horizon needs a series, but the inputs form a table"),
        (["fit", "series.csv", "--target", "value", "--dates", "us"], "dates must be one of auto, day-first, month-first"),
        (["fit", "series.csv", "--target", "value", "--zone", "Mars"], "there is no time zone 'Mars'"),
        (["fit", "text.csv", "--target", "y"], "text with 30 different values"),
        (["fit", "text.csv", "--target", "y", "--task", "regression"], "holds text"),
        (["fit", "gone.csv", "--target", "y"], "no value at all"),
        (["fit", "twice.csv", "--target", "x"], "two columns called 'x'"),
        (["fit", "series.csv", "--target", "value", "--out", "text.csv"], "is a file: give the name of a folder"),
        (["fit", "header.csv", "--target", "x"], "no rows"),
        (["fit", "cut.csv.gz", "--target", "x"], "gzipped but cut off"),
        (["info", "other.structgp"], "not a structgp model but a PNG image"),
        (["predict", "other.structgp", "series.csv"], "not a structgp model"),
        (["predict", "out/model.structgp", "text.csv"], "lacks 'day'"),
        (["predict", "out/model.structgp", "number.csv"], "holds a number (1), but the model was given a date"),
        (["predict", "out/model.structgp", "series.csv", "--out", "no/where.csv"], "does not exist: make it first"),
        (["forecast", "series.csv", "--out", "no/where.csv"], "does not exist: make it first"),
        (["compare", "series.csv", "--target", "value", "--report", "no/where.html"], "does not exist: make it first"),
        (["fit", "series.csv", "--target", "value", "--out", "text.csv/out"], "text.csv is a file: give the name of a folder"),
        (["report", "out/model.structgp", "--out", "no/where.html"], "does not exist: make it first"),
        (["predict", "out/model.structgp", "series.csv", "--level", "2"], "probability between 0 and 1"),
        (["plan", "series.csv", "--target", "valeu"], "did you mean 'value'?"),
        (["changepoints", "series.csv", "--value", "levle"], "did you mean 'level'"),
        (["changepoints", "series.csv", "--value", "day"], "holds no numbers"),
        (["demo", "iris"], "there is no data set 'iris'"),
    ],
)
def test_bad_input_gets_one_line_and_leaves_nothing(folder, fitted, monkeypatch, arguments, message):
    monkeypatch.chdir(folder)
    before = sorted(folder.rglob("*"))
    result = run(*arguments, code=1)
    assert result.stderr.startswith("structgp: ")
    assert message in result.stderr
    assert "--kernel" in arguments or len(result.stderr.strip().splitlines()) == 1
    assert message in as_json(*arguments, code=1)["error"]
    assert sorted(folder.rglob("*")) == before


@pytest.mark.parametrize(("text", "seconds"), [("60s", 60.0), ("5m", 300.0), ("1h", 3600.0), ("1.5", 1.5)])
def test_durations(text, seconds):
    assert seconds_of(text) == seconds


@pytest.mark.full
def test_a_function_of_all_columns_through_inducing_inputs(tmp_path):
    rng = np.random.default_rng(0)
    x, z = rng.uniform(-2, 2, (2, 150))
    pl.DataFrame({"x": x, "z": z, "y": np.sin(2 * x) + z + 0.1 * rng.normal(size=150)}).write_csv(tmp_path / "table.csv")
    options = ("--target", "y", "--approximate", "inducing:20", "--out", tmp_path / "out")
    as_json("fit", tmp_path / "table.csv", *options)
    model = load_table_model(tmp_path / "out" / "model.structgp")
    assert model.fitted.plan.engine.name == "Inducing"
    assert model.fitted.kernel.inputs.shape == (20, 2)
    assert np.mean((model.predict(pl.read_csv(tmp_path / "table.csv"))["mean"] - np.sin(2 * x) - z) ** 2) < 0.05


@pytest.mark.full
def test_several_targets_are_learned_together_and_their_gaps_filled(tmp_path):
    rng = np.random.default_rng(0)
    t = np.arange(40.0)
    f = np.sin(t / 4)
    rows = [["t", "a", "b"]]
    for k in range(40):
        gone = 15 <= k < 22
        rows.append([str(k), f"{f[k] + 0.05 * rng.standard_normal():.5f}", "" if gone else f"{5 - 2 * f[k]:.5f}"])
    path = tmp_path / "sensors.csv"
    path.write_text("\n".join(",".join(row) for row in rows))
    options = ("--time", "t", "--out", tmp_path / "out", "--parameters", "best")
    found = as_json("fit", path, "--targets", "a,b", *options)
    assert found["filled"] == 7
    assert found["correlations"][0][1] < -0.8
    assert not found["notes"]
    quick = as_json("fit", path, "--targets", "a,b", *options, "--lags", "no")
    assert quick["notes"] == ["it was not looked for whether some come late"]
    filled = pl.read_csv(tmp_path / "out" / "filled.csv")
    np.testing.assert_allclose(filled["b"].to_numpy()[15:22], (5 - 2 * f)[15:22], atol=0.4)
    assert (filled["b_lower"] < filled["b_upper"]).all()
    page = re.sub(r"<script.*?</script>", "", (tmp_path / "out" / "report.html").read_text(), flags=re.DOTALL)
    assert "How they hang together" in page
    assert ">shared function 2</td>" in page
    assert "at a bound: the noise of b" in page
    assert "kernel." not in page


@pytest.mark.full
def test_several_targets_with_outliers_go_on(tmp_path):
    t = np.arange(50.0)
    noise = np.random.default_rng(1).standard_normal((2, 50))
    a, b = np.sin(t / 4) + 0.05 * noise[0], 5 - 2 * np.sin(t / 4) + 0.1 * noise[1]
    a[[7, 30]] += 8.0
    path, out = tmp_path / "sensors.csv", tmp_path / "out"
    pl.DataFrame({"t": t, "a": a, "b": b}).write_csv(path)
    options = ("--time", "t", "--targets", "a,b", "--parameters", "best", "--kernel", "Matern52(lengthscale=4)", "--horizon", 3)
    found = as_json("fit", path, *options, "--likelihood", "student-t", "--out", out)
    assert found["correlations"][0][1] < -0.9  # two rows far off do not hide it
    ahead = pl.read_csv(out / "forecast.csv")
    assert ahead["t"].to_list() == [50, 51, 52]
    np.testing.assert_allclose(ahead["b_median"][0], 5 - 2 * np.sin(50 / 4), atol=1.0)
    assert (ahead["b_lower"] < ahead["b_upper"]).all()
    no_time = as_json("fit", path, "--targets", "a,b", *options[4:], "--out", out, code=1)
    assert no_time["error"] == "--horizon goes along a time: name its column by --time"
    changing = as_json("fit", path, "--targets", "a,b", "--likelihood", "twinned", "--out", out, code=1)
    assert "several together take gaussian or student-t" in changing["error"]


def test_identify_from_the_command_line(tmp_path):
    rng = np.random.default_rng(0)
    u = rng.standard_normal(200)
    y = np.convolve(u, 0.7 ** np.arange(20))[:200] + 0.1 * rng.standard_normal(200)
    path, out = tmp_path / "record.csv", tmp_path / "system.html"
    path.write_text("u,y\n" + "\n".join(f"{a:.6f},{b:.6f}" for a, b in zip(u, y, strict=True)))
    found = as_json("identify", path, "--input", "u", "--output", "y", "--lags", 20, "--out", out)
    np.testing.assert_allclose(found["impulse"], 0.7 ** np.arange(20), atol=0.1)
    assert found["order"] == 1
    page = out.read_text()
    assert "Step response" in page
    assert "a lasting change of u by 1" in page
    assert "it fades, half of it left after 1.9" in page
    with pytest.raises(ValueError, match="--input and --output name 'u' more than once: name the columns that drive"):
        identify_columns(read_table(path), ["u"], ["u"], None)
    path.write_text("t,u,y\nnow,1,2\nthen,2,3")
    with pytest.raises(ValueError, match="the time column 't' holds neither numbers nor dates"):
        identify_columns(read_table(path), ["u"], ["y"], "t")


@pytest.mark.full
def test_several_inputs_and_outputs_are_identified_together(tmp_path):
    rng = np.random.default_rng(0)
    u = rng.standard_normal((200, 2))
    y = np.convolve(u[:, 0], 0.7 ** np.arange(20))[:200] - 2 * u[:, 1] + 0.1 * rng.standard_normal(200)
    path, out = tmp_path / "record.csv", tmp_path / "system.html"
    pl.DataFrame({"heat": u[:, 0], "flow": u[:, 1], "temp": y, "half": y / 2}).write_csv(path)
    options = ("--input", "heat,flow", "--output", "temp,half", "--lags", 15, "--report", out)
    first, second = as_json("identify", path, *options)["systems"]
    np.testing.assert_allclose(first["impulse"]["heat"], 0.7 ** np.arange(15), atol=0.1)
    np.testing.assert_allclose(first["impulse"]["flow"][0], -2.0, atol=0.1)
    assert (first["output"], second["output"]) == ("temp", "half")
    assert "How heat and flow make temp and half" in out.read_text()
    said = run("identify", path, *options).output
    assert "how half is made" in said
    assert "flow is felt most" in said


@pytest.mark.full
def test_groups_of_outliers_are_named_in_the_table_and_in_the_report(tmp_path):
    rng = np.random.default_rng(3)
    t = np.sort(rng.uniform(0.0, 12.0, 120))
    v = 5 + np.sin(t) + 0.1 * rng.standard_normal(120)
    v[50:58] += 3.0
    pl.DataFrame({"t": t, "v": v}).write_csv(tmp_path / "table.csv")
    said = as_json("fit", tmp_path / "table.csv", "--target", "v", "--out", tmp_path / "out", "--budget", "600")
    assert set(range(51, 59)) <= set(said["suspected_rows"]) <= set(range(50, 60))  # rows beside the group may be suspected
    assert next(one["name"] for one in said["candidates"] if one["chosen"]).endswith("noise with groups of outliers")
    column = pl.read_csv(tmp_path / "out" / "predictions.csv")["v_outlier_probability"].to_numpy()
    assert [row - 1 for row in said["suspected_rows"]] == np.flatnonzero(column > 0.5).tolist()
    assert f"{len(said['suspected_rows'])} of 120 rows are probably outliers" in (tmp_path / "out" / "report.html").read_text()
    said = run("info", tmp_path / "out" / "model.structgp").output
    assert "come in groups of outliers" in said
