import dataclasses
import json
import re
import xml.etree.ElementTree as ElementTree
from types import SimpleNamespace

import equinox as eqx
import numpy as np
import pytest

import structgp as sg
from structgp.learn.clock import Deadline
from structgp.models.one_against_rest import OneAgainstRest
from structgp.parameters.tree import free_names
from structgp.process.mixture import ParameterBelief
from structgp.tables.model import LEVELS, Evaluation, TableModel, Trial
from structgp.tables.reading import Column, Layout
from structgp.tables.report import render, write_report
from structgp.tables.report.answer import answer
from structgp.tables.report.effects import effects_of
from structgp.tables.report.figures import Figure, Trace, round_places
from structgp.tables.report.parameters import how_learned, named_belief, parameter_rows
from structgp.tables.report.sections import about_components, component_figures, confusion_rows, error_figures, fit_figures
from structgp.tables.report.terms import Found, found_terms
from structgp.tables.report.words import (
    alarms,
    describe,
    forecast_rows,
    headline,
    parts_of,
    period_in_words,
)

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
        "another smooth part: length over which it changes (days)",
        "Kalman",
        "0.1 (0.05\N{NO-BREAK SPACE}…\N{NO-BREAK SPACE}0.2)",
        "On the last rows its RMSE is 0.1, against 1 for mean.",
        "single observations scatter by ±0.1 a &amp; b",
        "over the data; it changes within about 1 day",
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
    assert [part.title for part in parts] == ["Smooth part", "Another smooth part"]
    places = parts[0].traces[1].x
    rest = series.fitted.predict(places).mean - sum(part.traces[1].y for part in parts)
    np.testing.assert_allclose(rest, rest[0], atol=1e-8)  # each is drawn around its own mean, without the level
    seen = parts[0].traces[1].y[places <= 5.0]
    assert seen.mean() == pytest.approx(0.0, abs=1e-9)


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


def test_places_are_shown_on_maps():
    X = np.random.default_rng(0).standard_normal((40, 3))
    fitted = sg.GP(sg.Matern52([1.0, 1.0, 50.0]), sg.Gaussian(0.01)).condition(X, np.sin(X[:, 1]) + X[:, 0])
    layout = Layout(tuple(Column(name, "number") for name in ("lat", "lon", "height")))
    center, scale = np.array([60.0, 10.0, 300.0]), np.array([2.0, 3.0, 100.0])
    east, north, y = (0.0, 1.0), (-1.0, 1.0), (0.5, 1.0)
    evaluation = Evaluation("some rows", y, (0.25, 2.0), (1.0, 1.0), east=east, north=north)
    model = TableModel(fitted, layout, "regression", "rain", center, scale, 40, "places", evaluation=evaluation)
    mean, residuals, _ = fit_figures(model)
    assert mean.title == "Map of rain, the other columns at their mean"
    assert (mean.x_title, mean.y_title) == ("lon", "lat")
    image = mean.traces[0]
    ends = [10 + 3 * X[:, 1].min(), 10 + 3 * X[:, 1].max(), 60 + 2 * X[:, 0].min(), 60 + 2 * X[:, 0].max()]
    assert [image.x[0], image.x[-1], image.y[0], image.y[-1]] == pytest.approx(ends)
    assert np.isnan(image.values[0, -1])  # nothing is said of a corner where no row is
    middle = fitted.predict([[(image.y[20] - 60) / 2, (image.x[20] - 10) / 3, 0.0]]).mean[0]
    assert image.values[20, 20] == pytest.approx(middle)
    np.testing.assert_allclose(mean.traces[1].x, 10 + 3 * X[:, 1])
    axis = residuals.plotly()["layout"]["yaxis"]
    assert axis["scaleanchor"] == "x"
    assert axis["scaleratio"] == pytest.approx(2.0)  # at 60 degrees north
    (dots,) = residuals.plotly()["data"]
    assert (dots["x"], dots["y"], dots["marker"]["color"], dots["marker"]["cmid"]) == (
        [10.0, 13.0],
        [58.0, 62.0],
        [0.25, -1.0],
        0,
    )
    assert residuals.svg().count("<circle") == 2
    assert "which are places on a map." in render(model)


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
    assert whole.plotly()["data"][0]["x"][1].startswith("2023-11-14 00:1")  # places between days are not drawn as one
    assert "2023-11-1" in whole.svg()
    assert end.traces[1].x.min() >= 4.0
    assert forecast_rows(dated)[1][0] == "2023-11-19"


@pytest.mark.parametrize(
    ("kernel", "name", "learned"),
    [
        (sg.Spline(variance=4.0), "trend that bends", "moves by ±3 a & b over the data"),
        (sg.Matern52(lengthscale=3.0), "trend", "moves by ±3 a & b over the data; it changes within about 3 days"),
        (sg.Matern52(lengthscale=0.1), "short-lived part", "within about 2.4 hours"),
        (sg.Periodic(2.0) * sg.Matern32(50.0), "season of 2 days", "±3 a & b, and keeps its shape for about 50 days"),
        (sg.DampedOscillator(2.0, 7e8), "wave of 2 days", "swings by ±3 a & b, and keeps its phase throughout"),
        (sg.Constant(), "level", "is about 7 a & b"),
        (sg.Wiener(variance=2.0), "random walk", "moves by ±3 a & b over the data"),
        (sg.DampedOscillator(0.02, 50.0), "wave of 28.8 minutes", "phase for about 50 days"),
        (sg.Cosine(), "Cosine", "Cosine("),
        (sg.Cosine().on(0), "function of <time>", "moves by ±3 a & b over the data; Cosine("),
    ],
)
def test_kernels_are_told_in_words(series, kernel, name, learned):
    part = describe(kernel, series, Found(0, kernel, 3.0, 7.0))
    assert part.name == name
    assert learned in part.learned


@pytest.mark.parametrize("shape", ["table", "grid"])
def test_what_comes_again_over_several_columns_is_told_as_a_product(shape, tmp_path):
    inputs = sg.Grid(np.arange(4) * 0.5, np.arange(5) * 0.5)  # whole periods of both columns
    y = np.sin(2 * np.pi * inputs.points[:, 0] / 0.9) + inputs.points[:, 1]
    kernel = sg.Matern52() + sg.Periodic(1.0) * sg.Matern32()
    fitted = sg.GP(kernel, sg.Gaussian(0.01)).condition(inputs if shape == "grid" else inputs.points, y)
    layout = Layout((Column("a", "number"), Column("b", "number")))
    model = TableModel(fitted, layout, "regression", "v", np.zeros(2), np.ones(2), 20, shape)
    assert [term.period for term in found_terms(model)] == [None, None]
    product = next(part for part in parts_of(model) if part.name == "product")
    assert "Periodic(" in product.learned
    write_report(model, tmp_path / "report.html")
    assert "Periodic(period" in (tmp_path / "report.html").read_text()


@pytest.fixture(scope="module")
def seasonal(series):
    """A trend and a season whose prior is far wider than what was found, and a part that does next to nothing."""
    t = np.linspace(0.0, 5.0, N)
    season = sg.Periodic(1.3, variance=49.0) * sg.Matern52(lengthscale=50.0)
    kernel = sg.Matern52(lengthscale=5.0, variance=900.0) + season + sg.Matern12(lengthscale=0.1, variance=1e-6)
    fitted = sg.GP(kernel, sg.Gaussian(0.01)).condition(t, 20 * np.sin(t / 2) + 1.9 * np.sin(2 * np.pi * t / 1.3))
    return dataclasses.replace(series, fitted=fitted)


def test_sizes_are_those_of_the_posterior(seasonal):
    trend, season, left_out, noise = parts_of(seasonal)
    mean = seasonal.fitted.predict(seasonal.fitted.inputs.points, part=1).mean
    size = np.ptp(mean) / 2
    assert size == pytest.approx(1.9, abs=0.15)
    assert season == ("season of 1.3 days", f"swings by ±{size:.3g} a & b, and keeps its shape for about 50 days")
    assert trend.name == "trend"
    assert left_out == ("left out", "short-lived part: less than 2 % of the largest part, and less than the noise")
    assert noise.name == "noise"


def test_a_small_part_beyond_the_noise_is_told(seasonal):
    sizes = [term.size for term in found_terms(seasonal)]
    assert sizes[2] < 0.02 * sizes[0]
    quiet = eqx.tree_at(lambda gp: gp.likelihood.noise, seasonal.fitted.gp, np.asarray(1e-14))
    told = found_terms(dataclasses.replace(seasonal, fitted=dataclasses.replace(seasonal.fitted, gp=quiet)))
    assert [term.negligible for term in told] == [False] * 3


def test_a_season_is_drawn_over_one_period(seasonal):
    trend, season = component_figures(seasonal)
    assert season.title == "Season of 1.3 days: its last period"
    line = season.traces[1]
    assert (line.x[0], line.x[-1]) == pytest.approx((5.0 - 1.3, 5.0))
    alone = seasonal.fitted.predict(line.x, part=1)
    np.testing.assert_allclose(line.y, alone.mean - alone.mean.mean(), atol=1e-9)
    assert (season.traces[0].upper - line.y < 1.2 * alone.sd).all()  # two standard deviations: the level is not in them
    assert trend.traces[1].x[0] == 0.0


def covering(model, inside, rows, **changes):
    scores = {"this model": {"RMSE": 0.1, "in 95 % interval": inside}}
    scores["mean"] = {"RMSE": 1.0, "in 95 % interval": 0.95}
    evaluation = Evaluation("a random fifth of the rows", (0.0,) * rows, (0.0,) * rows, scores=scores)
    return dataclasses.replace(model, evaluation=evaluation, **changes)


def test_coverage_far_from_what_was_asked_is_said_first(series):
    table = dataclasses.replace(series, shape="table")
    (alarm,) = alarms(covering(table, 0.6, 10))
    assert (
        alarm == "only 6 of 10 values on a random fifth of the rows lie in their 95 % intervals: the intervals are too narrow"
    )
    assert "in their 95 % intervals" not in headline(covering(table, 0.6, 10))
    assert alarms(covering(table, 0.8, 10)) == []  # 8 of 10 are not rare
    assert "and 8 of 10 values lie in their 95 % intervals" in headline(covering(table, 0.8, 10))
    few = covering(table, 0.8, 10)
    (alarm,) = alarms(dataclasses.replace(few, evaluation=dataclasses.replace(few.evaluation, left_out=(43, 7))))
    assert alarm == "only 86 % of the values lie in the 95 % intervals that all others give them: the intervals are too narrow"
    assert alarms(dataclasses.replace(few, evaluation=dataclasses.replace(few.evaluation, left_out=(46, 4)))) == []
    assert alarms(covering(table, 0.9, 1000))[0].startswith("only 90 %")
    assert alarms(covering(table, 1.0, 1000))[0].endswith("wider than need be")
    assert alarms(covering(table, 1.0, 1000, task="counts")) == []
    assert alarms(covering(series, 0.8, 100)) == []  # neighbours in time err together
    assert alarms(covering(series, 0.5, 100))[0].startswith("only 50 %")
    page = render(covering(series, 0.5, 100))
    assert page.index('<p class="alarm">Attention: only 50 %') < page.index('<p class="lead">')


def test_what_a_plain_method_does_better_is_said(series):
    said = lambda low, high: dataclasses.replace(
        series,
        evaluation=Evaluation(
            "the last rows",
            scores={"this model": {"RMSE": 0.1, "log loss": 3.0}, "mean": {"RMSE": 1.0, "log loss": (low + high) / 2}},
            intervals={"this model": {"log loss": (2.9, 3.1)}, "mean": {"log loss": (low, high)}},
        ),
    )
    (alarm,) = alarms(said(2.4, 2.6))
    assert alarm == "'mean' predicts better than this model (log loss 2.5 against 3): a longer --budget may help"
    assert alarms(said(2.8, 2.95)) == []  # within the errors of both


def test_parts_are_left_out_when_time_is_over(series):
    page = render(series, Deadline(0.0))
    assert "There was no time to look at them one by one: structgp report model.structgp does." in page
    assert "What was learned" not in page
    assert "What was learned" in render(series)


def test_places_are_told_by_the_map_and_effects_stay_among_the_rows():
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.standard_normal((60, 2)), rng.uniform(-1.5, 0.8, 60)])
    layout = Layout(tuple(Column(name, "number") for name in ("lon", "lat", "height")))
    fitted = sg.GP(sg.Matern52(np.full(3, 2.0)), sg.Gaussian(0.1)).condition(X, X @ [1.0, 1.0, 2.0])
    (height,) = effects_of(TableModel(fitted, layout, "regression", "y", np.zeros(3), np.ones(3), 60, "places"))
    assert height.name == "height"
    assert (height.x[0], height.x[-1]) == pytest.approx((X[:, 2].min(), X[:, 2].max()))


def test_noise_is_not_shown_as_effects_where_rows_are_few():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((50, 30))
    y = 2 * X[:, 0] + 0.5 * rng.standard_normal(50)
    layout = Layout(tuple(Column(f"x{d}", "number") for d in range(30)))
    gp = sg.GP(sg.Matern52(np.full(30, 8.0), 9.0), sg.Gaussian(0.05))
    model = TableModel(gp.condition(X, y), layout, "regression", "y", np.zeros(30), np.ones(30), 50)
    assert alarms(model) == ["50 rows are few for 30 columns: what is said of single columns and of the noise is unsure"]
    assert alarms(dataclasses.replace(model, rows=150)) == []
    effects = effects_of(model)
    assert effects[0].name == "x0"
    assert [effect.name for effect in effects if effect.firm] == ["x0"]
    assert [figure.title for figure in component_figures(model)] == ["x0"]
    _, first, others, _ = parts_of(model)
    assert first.name == "x0"
    assert others.name == "other columns"
    assert "not told apart from nothing: " in others.learned
    assert "ot told apart from nothing: " in about_components(model)


def test_an_effect_is_sure_where_the_level_is_not():
    X = np.random.default_rng(0).standard_normal((40, 2))
    gp = sg.GP(sg.Matern52([1.0, 1e3]) + sg.Constant(1e6), sg.Gaussian(1.0))
    fitted = gp.condition(X, 3 * np.sin(X[:, 0]))
    layout = Layout((Column("a", "number"), Column("b", "number")))
    model = TableModel(fitted, layout, "regression", "y", np.zeros(2), np.ones(2), 40)
    first = effects_of(model)[0]
    places = np.stack([first.x, 0 * first.x], axis=1)
    weight = np.exp(-0.5 * first.x**2)
    weight /= weight.sum()
    draws = fitted.sample(places, n=2000, seed=0)
    centred = draws - (draws @ weight)[:, None]
    np.testing.assert_allclose(first.sd, centred.std(axis=0), rtol=0.1)
    np.testing.assert_allclose(first.mean, fitted.predict(places).mean - weight @ fitted.predict(places).mean, atol=1e-9)


def test_the_toolbar_has_a_place_of_its_own(series, page):
    """Plotly's buttons end 24 pixels below the top; the legend is a list above the plot, which wraps."""
    whole, *_ = fit_figures(series)
    layout = whole.plotly()["layout"]
    assert not layout["showlegend"]
    assert layout["margin"]["t"] >= 24
    assert re.findall(r"</svg>([^<]+)</li>", whole.legend()) == [trace.name for trace in whole.traces if trace.name]
    assert whole.legend() in page
    assert Figure("t", "x", "y", (Trace("line", np.arange(2.0), np.arange(2.0)),)).legend() == ""


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
    evaluation = Evaluation("x", 4 * (0.0, 1.0, 2.0, 2.0), 4 * (0.5, 0.5, 0.9, 0.9), label=4 * (0, 0, 2, 2))
    layout = Layout((Column("a", "number"),))
    classes = ("low", "middle", "high")
    model = TableModel(None, layout, "classification", "y", np.zeros(1), np.ones(1), 4, classes=classes, evaluation=evaluation)
    (figure,) = error_figures(model)
    np.testing.assert_allclose(figure.traces[0].x, [0.5, 0.9])
    np.testing.assert_allclose(figure.traces[0].y, [0.5, 1.0])
    two = dataclasses.replace(
        model, classes=("no", "yes"), evaluation=dataclasses.replace(evaluation, y=4 * (0.0, 1.0, 1.0, 1.0))
    )
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
    header, *rows = parameter_rows(model)
    assert header == ["parameter", "value"]
    assert {name.partition(": ")[0] for name, _ in rows} == set(classes)
    assert not any("kernel" in name or "class 0" in name for name, _ in rows)
    assert how_learned(model).startswith("low against the rest: ")


def test_a_category_is_told_level_by_level():
    rng = np.random.default_rng(0)
    level, x = rng.integers(0, 3, 60), rng.standard_normal(60)
    raw = np.column_stack([np.eye(3)[level], x])
    center, scale = raw.mean(axis=0), raw.std(axis=0)
    y = 3.0 * level + x + 0.1 * rng.standard_normal(60)
    fitted = sg.GP(sg.Matern52(np.full(4, 2.0), 9.0), sg.Gaussian(0.01)).condition((raw - center) / scale, y)
    layout = Layout((Column("maker", "category", levels=("A", "B", "C")), Column("x", "number")))
    model = TableModel(fitted, layout, "regression", "y", center, scale, 60)
    maker, other = effects_of(model)
    assert (maker.name, maker.levels, maker.firm, other.name) == ("maker", ("A", "B", "C"), True, "x")
    np.testing.assert_allclose(np.diff(maker.mean), 3.0, atol=0.2)
    said = {part.name: part.learned for part in parts_of(model)}
    assert re.fullmatch(r"moves it by ±2\.\d+ y: A -[23]\.\d+, B -?0\.\d+, C \+[23]\.\d+", said["maker"]), said
    assert component_figures(model)[0].traces[0].labels == ("A", "B", "C")


@pytest.mark.full
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


def test_parameters_are_told_in_words(seasonal):
    """By the part they belong to, as standard deviations, and lengths in the units of their column."""
    row = lambda name: ParameterBelief(name, 0.0, 0.0, 1.0, 4.0, 9.0)
    told = lambda name, model: (lambda found: (found.name, tuple(map(float, found.values))))(named_belief(row(name), model))
    assert told("kernel.terms[0].lengthscale", seasonal) == ("trend: length over which it changes (days)", (1, 4, 9))
    assert told("kernel.terms[0].variance", seasonal) == ("trend: size (standard deviation)", (1, 2, 3))
    assert told("kernel.terms[1].factors[0].period", seasonal) == ("season of 1.3 days: period (days)", (1, 4, 9))
    assert told("kernel.terms[1].factors[0].lengthscale", seasonal)[0] == "season of 1.3 days: smoothness of its shape"
    assert told("kernel.terms[1].factors[1].lengthscale", seasonal)[0] == "season of 1.3 days: keeps its shape for (days)"
    assert told("likelihood.noise", seasonal) == ("noise (standard deviation)", (1, 2, 3))
    wanders = dataclasses.replace(seasonal, fitted=sg.GP(sg.Wiener() + sg.Spline()).condition(np.arange(5.0), np.zeros(5)))
    assert told("kernel.terms[0].variance", wanders) == ("random walk: step over one day (standard deviation)", (1, 2, 3))
    bends = told("kernel.terms[1].variance", wanders)
    assert bends[0] == "trend that bends: how far it leaves its line over one day (standard deviation)"
    assert bends[1] == pytest.approx(np.sqrt([1 / 3, 4 / 3, 3]))
    X = np.random.default_rng(0).standard_normal((20, 3))
    kernel = sg.Matern52().on(1, 0) + sg.Matern52(2.0).on(2)
    fitted = sg.GP(kernel, sg.Gaussian(0.1), sg.ConstantMean()).condition(X, X[:, 0])
    layout = Layout(tuple(Column(name, "number") for name in ("lat", "lon", "height")))
    scale = np.array([0.5, 1.0, 100.0])
    places = TableModel(fitted, layout, "regression", "rain", np.zeros(3), scale, 20, "places")
    assert told("kernel.terms[0].kernel.lengthscale", places) == (
        "function of the place: length over which it changes",
        (0.5, 2.0, 4.5),
    )
    assert told("kernel.terms[1].kernel.lengthscale", places)[1] == (100.0, 400.0, 900.0)
    assert told("mean.value", places) == ("mean", (1, 4, 9))
    first, second, *_ = parts_of(places)
    assert first.learned.endswith("it changes over a distance of about 55.6 km")
    assert second.learned.endswith("it changes over (the most relevant column first) height 200")
    plain = dataclasses.replace(
        places, fitted=sg.GP(sg.Matern52(np.ones(3)), sg.Gaussian(0.1)).condition(X, X[:, 0]), shape="table"
    )
    assert told("kernel.lengthscale[2]", plain) == ("length along height", (100.0, 400.0, 900.0))


def test_inducing_inputs_are_counted_and_not_listed():
    X = np.random.default_rng(3).uniform(size=(30, 2))
    kernel = sg.Matern52([0.5, 2.0])
    places = X[::3]
    fitted = sg.GP(kernel, sg.Gaussian(0.01)).condition(X, np.sin(5 * X[:, 0]), approximate=sg.Inducing(places))
    layout = Layout((Column("a", "number"), Column("b", "number")))
    model = TableModel(fitted, layout, "regression", "y", np.zeros(2), np.ones(2), 30)
    function, *_ = parts_of(model)
    assert function.name == "function of all columns"
    assert function.learned.endswith("a 0.5, b 2; seen through 10 of its values")
    names = [name for name, _ in parameter_rows(model)[1:]]
    assert names == ["length along a", "length along b", "size (standard deviation)", "noise (standard deviation)"]


def test_the_parts_of_a_series_are_told_as_a_sentence(seasonal):
    said = re.search(r"In .* there is (.*?)\. ", answer(seasonal) + " ")[1]
    assert re.fullmatch(r"a trend, which .*, and a season of 1.3 days, which swings by ±[\d.e+-]+.*", said), said


def test_parameters_of_several_functions_are_told_apart(series):
    """Each by the function that it is of, none by its number."""
    X = np.random.default_rng(0).standard_normal((20, 2))
    kernels = sg.Independent(sg.Matern32(0.5), sg.Matern32([2.0, 3.0]))
    gp = sg.GP(kernels, sg.HeteroscedasticGaussian(), sg.ConstantMean([-2.0, 5.0]))
    layout = Layout((Column("a", "number"), Column("b", "number")))
    told = {"fitted": gp.condition(X, X[:, 0]), "layout": layout, "center": np.zeros(2), "scale": np.array([1.0, 10.0])}
    model = dataclasses.replace(series, **told, shape="table")
    assert dict(parameter_rows(model)[1:]) == {
        "log noise: length over which it changes (in spreads of the columns)": "0.5",
        "log noise: size (standard deviation)": "1",
        "signal: length along a": "2",
        "signal: length along b": "30",
        "signal: size (standard deviation)": "1",
        "log noise: mean": "-2",
        "signal: mean": "5",
    }
    assert "kernels[" not in how_learned(model)


def test_parameters_of_several_latents_say_of_which_they_are(seasonal):
    row = lambda name: ParameterBelief(name, 0.0, 0.0, 1.0, 4.0, 9.0)
    kernels = sg.Independent(sg.Matern32(), sg.Matern52())
    told = {}
    for likelihood in (sg.Twinned(), sg.HeteroscedasticGaussian()):
        gp = sg.GP(kernels, likelihood, sg.ConstantMean([1.5, 0.0]))
        model = dataclasses.replace(seasonal, fitted=SimpleNamespace(gp=gp, likelihood=likelihood))
        told |= {(likelihood.gates, name): named_belief(row(name), model).name for name in free_names(gp)}
    assert told[1, "kernel.kernels[0].lengthscale"] == "gate: length over which it changes (days)"
    assert told[1, "kernel.kernels[1].variance"] == "signal: size (standard deviation)"
    assert told[1, "likelihood.other.noise"] == "outliers: noise (standard deviation)"
    assert told[1, "likelihood.real.noise"] == "noise (standard deviation)"
    assert told[0, "kernel.kernels[0].lengthscale"] == "log noise: length over which it changes (days)"
    assert told[0, "mean.value[0]"] == "log noise: mean"
    assert len(set(told.values())) == len(told) - 3  # the names of the signal's parameters are those of both


@pytest.mark.parametrize(
    ("period", "span", "unit", "said"),
    [
        (0.9996, 45.0, "years", "a year"),
        (7.01, 400.0, "days", "a week"),
        (0.9996, 45.0, "", "1 (t)"),
        (1.3, 5.0, "days", "1.3 days"),
    ],
)
def test_periods_are_told_as_far_as_they_are_known(series, period, span, unit, said):
    t = np.linspace(0.0, span, 8)
    fitted = sg.GP(sg.Matern32(), sg.Gaussian(0.01)).condition(t, np.sin(t))
    column = Column("t", "date" if unit else "number", unit=unit)
    model = dataclasses.replace(series, fitted=fitted, layout=Layout((column,)))
    assert period_in_words(period, model) == said
