import dataclasses
import json
import re
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

import structgp as sg
from structgp.models.one_against_rest import OneAgainstRest
from structgp.tables.model import LEVELS, Evaluation, TableModel, Trial
from structgp.tables.reading import Column, Layout
from structgp.tables.report import render, write_report
from structgp.tables.report.figures import Figure, Trace, round_places
from structgp.tables.report.sections import component_figures, confusion_rows, error_figures, fit_figures
from structgp.tables.report.words import describe, forecast_rows, headline, parts_of

N = 20
RNG = np.random.default_rng(0)
SCORES = {"this model": {"RMSE": 0.1}, "mean": {"RMSE": 1.0}}


@pytest.fixture(scope="module")
def series():
    """A model of a short series, as `structgp fit` would make it."""
    t = np.linspace(0.0, 5.0, N)
    fitted = sg.GP(sg.Matern32() + sg.Matern12(variance=0.1), sg.Gaussian(0.01)).condition(t, np.sin(t))
    layout = Layout((Column("<time>", "date", unit="days"), Column("idle", "number", dropped="the same value everywhere")))
    y = RNG.standard_normal(N)
    intervals = {"this model": {"RMSE": (0.05, 0.2)}, "mean": {"RMSE": (0.8, 1.2)}}
    covered = (0.4, 0.7, 0.85, 0.95, 1.0)
    pit = (0.1,) * 10
    evaluation = Evaluation("the last rows", tuple(y), tuple(0 * y), tuple(1 + 0 * y), SCORES, intervals, covered, pit)
    trials = (Trial("smooth", 1.0, -0.5, 2.0, True), Trial("slow", note="left out: no time"))
    return TableModel(
        fitted, layout, "regression", "a & b", np.zeros(1), np.ones(1), N, "series", trials=trials, evaluation=evaluation
    )


@pytest.fixture(scope="module")
def page(series):
    return render(series)


def test_a_report_needs_no_network(page):
    own = re.sub(r"<script>.*?</script>", "", page, flags=re.DOTALL)
    assert not re.search(r"""(src|href)\s*=\s*["']?(https?:)?//""", own)
    assert "<link" not in own
    assert "Plotly.react" in page
    assert len(page) > 1e6  # Plotly itself is inside


def test_every_figure_is_there_twice(series, page):
    figures = json.loads(re.search(r'id="figures">(.*?)</script>', page, flags=re.DOTALL).group(1))
    expected = [*fit_figures(series), *component_figures(series), *error_figures(series)]
    assert len(figures) == len(expected) == 7
    for number, figure in enumerate(figures):
        static = re.search(rf'id="plot{number}">(<svg.*?</svg>)', page, flags=re.DOTALL).group(1)
        assert ElementTree.fromstring(static).tag.endswith("svg")
        assert figure["data"]
        assert all(len(trace["x"]) == len(trace["y"]) for trace in figure["data"])


def test_all_parts_are_told_and_escaped(page):
    own = re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)
    for part in (
        "Model of a &amp; b",
        "&lt;time&gt;",
        "left out: no time",
        "★ smooth",
        "kernel.terms[0].lengthscale",
        "Kalman",
        "0.1 (0.05\N{NO-BREAK SPACE}…\N{NO-BREAK SPACE}0.2)",
        "On the last rows its RMSE is 0.1, against 1 for mean.",
        "single observations scatter by ±0.1 a &amp; b",
        "moves by ±1 a &amp; b, over about 1 days",
    ):
        assert part in own
    for title in (
        "Data and fit",
        "Forecast",
        "What was learned",
        "Components",
        "Residuals and calibration",
        "Scores on the last rows",
        "How to predict",
    ):
        assert f"<h2>{title}" in own
    assert "<time>" not in own
    assert "prefers-color-scheme: dark" in own
    assert "@media print" in own
    assert 'name="viewport"' in own


def test_the_curve_is_that_of_the_model(series):
    band, points, line = fit_figures(series)[0].traces
    np.testing.assert_allclose(points.y, np.sin(points.x))
    np.testing.assert_allclose(line.y, series.fitted.predict(line.x).mean)
    assert (band.y < line.y).all()
    assert (line.y < band.upper).all()
    parts = component_figures(series)
    np.testing.assert_allclose(sum(part.traces[1].y for part in parts), line.y, atol=1e-8)


def test_grids_are_shown_as_pictures():
    grid = sg.Grid(np.arange(4.0), np.arange(5.0), cells=np.arange(19))
    y = np.arange(19.0)
    fitted = sg.GP(sg.Matern32().on(0) * sg.Matern32().on(1), sg.Gaussian(1e-4)).condition(grid, y)
    layout = Layout((Column("row", "number"), Column("column", "number")))
    model = TableModel(fitted, layout, "regression", "v", np.zeros(2), np.ones(2), 19, "grid")
    data, mean, sd = (figure.traces[0].values for figure in fit_figures(model))
    np.testing.assert_array_equal(data.ravel()[:19], y)
    assert np.isnan(data[3, 4])
    np.testing.assert_allclose(mean.ravel()[:19], y, atol=0.1)
    assert sd[3, 4] > 5 * sd[0, 0]


@pytest.mark.parametrize("task", ["regression", "counts"])
def test_calibration_is_drawn_for_numbers_and_counts(series, task):
    pit = tuple(np.linspace(0.05, 0.15, 10))
    seen = dataclasses.replace(series.evaluation, covered=LEVELS, pit=pit)
    _, bars, coverage = error_figures(dataclasses.replace(series, task=task, evaluation=seen))
    np.testing.assert_allclose(bars.traces[0].x, np.arange(0.05, 1.0, 0.1))
    assert tuple(bars.traces[0].y) == pit
    np.testing.assert_allclose(bars.traces[1].y, 0.1)
    np.testing.assert_array_equal(coverage.traces[0].y, coverage.traces[0].x)


def test_dates_are_written_as_dates(series):
    column = Column("day", "date", unit="days", origin=1.7e9 - 1.7e9 % 86400)
    dated = dataclasses.replace(series, layout=Layout((column,)))
    assert column.written(0.0) == "2023-11-14"
    assert dataclasses.replace(column, unit="years").written(2024.0) == "2024-01-01"
    assert dataclasses.replace(column, unit="hours").written(1.5) == "2023-11-14 01:30:00"
    whole, end = fit_figures(dated)
    assert whole.plotly()["data"][0]["x"][0] == "2023-11-14"
    assert "2023-11-1" in whole.svg()
    assert end.traces[1].x.min() >= 4.0
    assert forecast_rows(dated)[1][0] == "2023-11-19"


@pytest.mark.parametrize(
    ("kernel", "name", "learned"),
    [
        (sg.Spline(variance=4.0), "trend that bends", "±1.41 a & b per day within 0.5 days"),
        (sg.Matern52(lengthscale=3.0, variance=4.0), "trend", "moves by ±2 a & b, over about 3 days"),
        (sg.Matern52(lengthscale=0.1), "short-lived part", "over about 0.1 days"),
        (
            sg.Periodic(2.0, variance=9.0) * sg.Matern32(50.0),
            "season of 2 days",
            "±3 a & b, and keeps its shape for about 50 days",
        ),
        (sg.DampedOscillator(2.0, 50.0, 9.0), "wave of 2 days", "swings by ±3 a & b"),
        (sg.Constant(), "level", "±1 a & b before"),
        (sg.Wiener(variance=2.0), "random walk", "±1 a & b within 0.5 days"),
        (sg.DampedOscillator(0.02, 50.0, 9.0), "wave of 0.48 hours", "phase for about 50 days"),
        (sg.Cosine(), "Cosine", "Cosine("),
    ],
)
def test_kernels_are_told_in_words(series, kernel, name, learned):
    part = describe(kernel, series)
    assert part.name == name
    assert learned in part.learned


def test_labels_are_told_by_class():
    evaluation = Evaluation(
        "x",
        (0.0, 1.0, 1.0),
        (0.5,) * 3,
        scores={"this model": {"error rate": 0.1}, "majority": {"error rate": 0.5}},
        label=(0, 0, 1),
    )
    layout = Layout((Column("a", "number"),))
    model = TableModel(
        None, layout, "classification", "y", np.zeros(1), np.ones(1), 3, classes=("no", "yes"), evaluation=evaluation
    )
    assert confusion_rows(model)[1:] == [["no", "1", "0"], ["yes", "1", "1"]]
    assert headline(model) == " On x its error rate is 10\N{NO-BREAK SPACE}%, against 50\N{NO-BREAK SPACE}% for majority."


def test_probabilities_of_several_classes_are_checked():
    evaluation = Evaluation("x", (0.0, 1.0, 2.0, 2.0), (0.5, 0.5, 0.9, 0.9), label=(0, 0, 2, 2))
    layout = Layout((Column("a", "number"),))
    classes = ("low", "middle", "high")
    model = TableModel(None, layout, "classification", "y", np.zeros(1), np.ones(1), 4, classes=classes, evaluation=evaluation)
    (figure,) = error_figures(model)
    np.testing.assert_allclose(figure.traces[0].x, [0.5, 0.9])
    np.testing.assert_allclose(figure.traces[0].y, [0.5, 1.0])
    two = dataclasses.replace(model, classes=("no", "yes"), evaluation=dataclasses.replace(evaluation, y=(0.0, 1.0, 1.0, 1.0)))
    np.testing.assert_allclose(error_figures(two)[0].traces[0].y, [0.5, 1.0])


def test_columns_that_move_several_classes_are_told():
    X = np.random.default_rng(0).standard_normal((60, 2))
    codes = np.digitize(X[:, 0], [-0.5, 0.5])
    gp = sg.GP(sg.SquaredExponential([1.0, 50.0], 9.0), sg.Bernoulli())
    fitted = OneAgainstRest(tuple(gp.condition(X, (codes == c).astype(float)) for c in range(3)))
    layout = Layout((Column("a", "number"), Column("b", "number")))
    classes = ("low", "middle", "high")
    model = TableModel(fitted, layout, "classification", "y", np.zeros(2), np.ones(2), 60, classes=classes)
    first, others = parts_of(model)
    assert first.name == "a"
    assert first.learned.startswith("moves the probability of low by ±0.41")
    assert others.learned == "no effect was found of b"
    (figure,) = component_figures(model)
    places = np.stack([figure.traces[0].x, 0 * figure.traces[0].x], axis=1)
    np.testing.assert_allclose(figure.traces[0].y, fitted.predict(places).probability[:, 0])
    assert figure.y_title == "probability of low"


def test_noise_with_outliers_is_told(series):
    fitted = sg.GP(sg.Matern32(), sg.StudentT(3.0, 0.25)).condition(np.arange(5.0), np.zeros(5))
    noise = parts_of(dataclasses.replace(series, fitted=fitted))[-1]
    assert noise.learned == "most observations scatter by ±0.25 a & b, some lie far off (3 degrees of freedom)"


def test_figures_bear_gaps_and_pictures():
    x = np.arange(5000.0)
    gaps = Figure("t", "x", "y", (Trace("line", x, np.where(x == 3, np.nan, x)), Trace("points", x, -x)))
    assert len(gaps.plotly()["data"][0]["x"]) == 2000
    json.dumps(gaps.plotly(), allow_nan=False)
    values = np.array([[1.0, np.nan, 2.0], [3.0, 4.0, 5.0]])
    picture = Figure("t", "x", "y", (Trace("image", np.arange(3.0), np.arange(2.0), values=values),))
    assert picture.plotly()["data"][0]["z"][0] == [1.0, None, 2.0]
    assert picture.svg().count("<rect") == 5
    assert "nan" not in gaps.svg() + picture.svg()


@pytest.mark.parametrize(
    ("ends", "places"), [((0.3, 5.2), [1, 2, 3, 4, 5]), ((-0.02, 0.09), [0.0, 0.05]), ((1958.0, 2004.0), range(1960, 2001, 10))]
)
def test_axes_have_round_numbers(ends, places):
    np.testing.assert_allclose(round_places(*ends), list(places), atol=1e-12)


def test_writing_leaves_nothing_half_done(series, tmp_path):
    write_report(series, tmp_path / "report.html")
    with pytest.raises(FileNotFoundError, match="does not exist: make it first"):
        write_report(series, tmp_path / "no" / "report.html")
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]
