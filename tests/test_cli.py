import json
import time

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

import structgp as sg
from structgp.automatic import Candidate, Problem, compare, hold_out, prepare, season_of, task_of
from structgp.cli import app, seconds_of
from structgp.report.sections import component_figures
from structgp.table_model import TableModel, load_table_model
from structgp.tables import Column, Layout

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
    assert fitted["notes"] == ["1 rows without a target or a date were not learned from"]
    assert fitted["scores"]["this model"].keys() == fitted["scores"]["linear"].keys()
    assert sorted(path.name for path in (folder / "out").iterdir()) == ["model.structgp", "predictions.csv", "report.html"]
    table = pl.read_csv(folder / "out" / "predictions.csv")
    assert table.height == DAYS
    inside = table.drop_nulls("value").select((pl.col("value") - pl.col("value_mean")).abs() < 3 * pl.col("value_sd"))
    assert inside.to_series().all()
    assert (table["value_lower"] < table["value_mean"]).all()


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
    for part in ("regression of 'value'", "date, in days", "log evidence", "Kalman", "kernel.lengthscale", "linear"):
        assert part in words
    run("report", folder / "out" / "model.structgp", "--out", folder / "again.html")
    assert (folder / "again.html").read_text() == (folder / "out" / "report.html").read_text()


@pytest.mark.parametrize("kind", ["additive", "projection pursuit"])
def test_sums_of_functions_survive_a_file(tmp_path, kind):
    X = np.random.default_rng(0).uniform(size=(40, 2))
    y = np.sin(5 * X[:, 0]) + X[:, 1]
    if kind == "additive":
        fitted = sg.AdditiveGP().condition(X, y)
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
    assert [figure.x_title for figure in component_figures(again)] == (["a", "b"] if kind == "additive" else ["0 a, 1 b"])


def test_plan_learns_nothing(folder):
    words = run("plan", folder / "series.csv", "--target", "value", "--time", "day", "--kernel", "SquaredExponential").stdout
    assert "Cholesky" in words
    assert "no: SquaredExponential has no finite state" in words
    assert as_json("plan", folder / "series.csv", "--target", "value")["inputs"] == ["day", "level"]


def test_change_points(folder):
    found = as_json("changepoints", folder / "series.csv", "--value", "level", "--time", "day")["changes"]
    assert [change["at"] for change in found] == ["2024-01-21"]
    assert found[0]["probability"] > 0.9


def test_version_and_usage():
    assert run("--version").stdout.strip() == f"structgp {sg.__version__}"
    run("fit", code=2)
    run("nonsense", code=2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fit", "serie.csv", "--target", "value"], "did you mean"),
        (["fit", "nothing.csv", "--target", "y"], "is empty"),
        (["fit", "series.csv", "--target", "Valeu"], "no target 'Valeu' in the table: did you mean 'value'?"),
        (["fit", "series.csv", "--target", "value", "--time", "dya"], "no time column 'dya'"),
        (["fit", "series.csv", "--target", "day"], "holds dates"),
        (["fit", "series.csv", "--target", "value", "--task", "guess"], "task must be auto or one of"),
        (["fit", "series.csv", "--target", "value", "--task", "counts"], "counts are whole numbers"),
        (["fit", "series.csv", "--target", "value", "--budget", "soon"], "not a duration"),
        (["fit", "series.csv", "--target", "value", "--structure", "magic"], "structure must be"),
        (["fit", "series.csv", "--target", "value", "--kernel", "Matren52"], "did you mean Matern52"),
        (["fit", "text.csv", "--target", "y"], "text with 30 different values"),
        (["fit", "text.csv", "--target", "y", "--task", "regression"], "holds text"),
        (["fit", "gone.csv", "--target", "y"], "no value at all"),
        (["fit", "twice.csv", "--target", "x"], "two columns called 'x'"),
        (["fit", "latin.csv", "--target", "x"], "not UTF-8"),
        (["info", "other.structgp"], "not a structgp model but a PNG image"),
        (["predict", "other.structgp", "series.csv"], "not a structgp model"),
        (["predict", "out/model.structgp", "text.csv"], "lacks 'day'"),
        (["predict", "out/model.structgp", "series.csv", "--level", "2"], "probability between 0 and 1"),
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


@pytest.mark.parametrize(
    ("values", "task"),
    [
        ([0.5, 1.5, 2.0], "regression"),
        ([0, 1, 1], "classification"),
        (["a", "b", None], "classification"),
        ([True, False, True], "classification"),
        ([0, 3, 7], "counts"),
        ([100, 250, 3000], "regression"),
        ([-1, 3, 7], "regression"),
    ],
)
def test_the_task_is_seen_in_the_target(values, task):
    assert task_of(pl.Series("y", values)) == task


def test_seasons_are_found_where_there_are_any():
    t = np.linspace(0, 10, 200)
    assert season_of(t, t**2 + np.sin(2 * np.pi * t)) == pytest.approx(1.0, rel=0.01)
    assert season_of(t, t + np.random.default_rng(0).standard_normal(200)) is None
    assert season_of(t, np.ones(200)) is None


def candidate(name, noise, seconds=0.0):
    """A model that learns nothing, or fails."""
    gp = sg.GP(sg.Matern32(lengthscale=5.0), sg.Gaussian(noise or 1.0))

    def fit(X, y):
        if noise is None:
            raise ValueError("it cannot be learned")
        return gp.condition(X, y)

    return Candidate(name, fit, lambda fitted, X, y: fitted.gp.condition(X, y), seconds)


def test_the_best_candidate_within_the_budget_gets_all_rows():
    t = np.arange(float(DAYS))
    y = np.sin(t / 4) + 0.1 * np.random.default_rng(0).standard_normal(DAYS)
    problem = Problem(t[:, None], y, "regression", "series", (), 0)
    choices = [candidate("loud", 100.0), candidate("broken", None), candidate("right", 0.01), candidate("slow", 0.02, 1e9)]
    fitted, trials, evaluation, _ = compare(problem, choices, time.perf_counter() + 1e6, lambda line: None)
    assert [trial.name for trial in trials if trial.chosen] == ["right"]
    assert trials[1].note == "failed: it cannot be learned"
    assert trials[3].note.startswith("left out: about 1000000000 s of learning")
    assert len(fitted.inputs) == DAYS
    assert evaluation.kind == "the last tenth of the series"
    np.testing.assert_array_equal(evaluation.y, y[-4:])
    before = sg.GP(sg.Matern32(lengthscale=5.0), sg.Gaussian(0.01)).condition(t[:-4], y[:-4])
    assert trials[2].log_evidence == pytest.approx(before.log_evidence)
    assert trials[2].held_out == pytest.approx(np.mean(before.predict(t[-4:]).log_prob(y[-4:])))
    assert evaluation.scores["this model"]["log loss"] == pytest.approx(-trials[2].held_out)
    with pytest.raises(ValueError, match="no candidate could be learned: failed: it cannot"):
        compare(problem, [candidate("broken", None)], time.perf_counter() + 1e6, lambda line: None)


def test_labels_and_large_tables_are_held_out_fairly():
    rng = np.random.default_rng(0)
    y = (np.arange(200) % 4 == 0).astype(float)
    problem = Problem(rng.uniform(size=(200, 2)), y, "classification", "table", ("no", "yes"), 0)
    held, kind = hold_out(problem, rng)
    assert held.sum() == 40
    assert kind == "a random fifth of the rows"
    assert not hold_out(problem._replace(X=problem.X[:10], y=y[:10]), rng)[0].any()
    rare = problem._replace(y=(np.arange(200) == int(np.flatnonzero(held)[0])).astype(float))
    assert not any(hold_out(rare, np.random.default_rng(seed))[0][np.flatnonzero(rare.y)].any() for seed in range(20))


def test_shapes_lead_to_candidates():
    rng = np.random.default_rng(0)
    rows, columns = (part.ravel() for part in np.meshgrid(np.arange(6.0), np.arange(7.0)))
    grid = prepare(pl.DataFrame({"r": rows, "c": columns, "v": rng.standard_normal(42)}), "v")
    assert grid.problem.shape == "grid"
    assert {candidate.plan.engine.name for candidate in grid.candidates} == {"Eigen"}
    table = prepare(pl.DataFrame({**{f"x{d}": rng.uniform(size=60) for d in range(3)}, "v": rng.uniform(size=60)}), "v")
    assert table.problem.shape == "table"
    assert [candidate.name.split(" of ")[-1] for candidate in table.candidates][::2] == [
        "one column each",
        "learned projections",
    ]
    t = np.arange(120.0)
    series = prepare(pl.DataFrame({"t": t, "v": 0.1 * t + np.sin(2 * np.pi * t / 12)}), "v")
    assert any("season of" in candidate.name for candidate in series.candidates)
