"""Reports of every kind in a browser, at both widths, light and dark: nothing scrolls sideways, is covered, cut off, faint."""

import numpy as np
import polars as pl
import pytest
from looking import SCHEMES, WIDTHS, browser, look
from typer.testing import CliRunner

import structgp as sg
from structgp.tables.cli import app
from structgp.tables.model import TableModel
from structgp.tables.reading import Column, Layout
from structgp.tables.report import write_report

QUICK = "--parameters best --budget 5m"
WRITTEN = "--report report.html"
KNOBS = "--bounds a_long_name_of_a_knob=0:1 --bounds b=0.1:10:log --choices c=x,z"
COMMANDS = {
    "numbers": f"fit table.csv --target y --out . --kernel Matern52 {QUICK}",
    "labels": f"fit table.csv --target species --out . --kernel Matern52 {QUICK}",
    "counts": f"fit table.csv --target visits --out . --kernel Matern52 {QUICK}",
    "map": f"fit places.csv --target y --out . --kernel Matern52 {QUICK}",
    "inducing": f"fit table.csv --target y --out . --approximate inducing:10 {QUICK}",
    "averaged": "fit table.csv --target y --out . --kernel Matern52 --parameters laplace --budget 5m",
    "together": f"fit sensors.csv --targets north_garden,cellar --out . {QUICK}",
    "fill": f"fill sensors.csv --out . {QUICK}",
    "forecast": f"forecast sensors.csv --target cellar --time when --kernel Matern32 {WRITTEN} {QUICK}",
    "suggest": f"suggest runs.csv --maximise y {KNOBS} {WRITTEN}",
    "identify": f"identify sensors.csv --input cellar --output drive --lags 10 {WRITTEN}",
    "changes": f"changepoints sensors.csv --target cellar --time when {WRITTEN}",
    "embed": "embed table.csv --color species --out . --budget 5m",
    "compare": f"compare table.csv --target y --kernel Matern52 --kernel Linear --likelihood gaussian {WRITTEN} --budget 5m",
    "compare-saved": f"compare table.csv ../numbers/model.structgp ../averaged/model.structgp {WRITTEN}",
}
NOISES = {
    "series": sg.Gaussian(0.01),
    "outliers": sg.Switch(sg.Gaussian(0.01), sg.Gaussian(4.0)),
    "changing-noise": sg.HeteroscedasticGaussian(),
}
NAMES = (*COMMANDS, *NOISES)


def tables(folder):
    """A table with numbers, labels and counts; places; sensors along time, one with gaps; runs."""
    rng = np.random.default_rng(0)
    a, b = rng.uniform(0, 1, (2, 40))
    y = np.sin(6 * a) + b + 0.1 * rng.standard_normal(40)
    species = np.where(a + 0.2 * rng.standard_normal(40) > 0.5, "Iris setosa with a long name", "Iris virginica")
    frame = pl.DataFrame({"a": a, "a_column_with_a_very_long_name_that_wraps_nowhere": b, "y": y})
    frame.with_columns(species=pl.Series(species), visits=pl.Series(rng.poisson(np.exp(y)))).write_csv(folder / "table.csv")
    pl.DataFrame({"lon": 8 + a, "lat": 50 + b, "y": 1e5 * y}).write_csv(folder / "places.csv")
    t = np.arange(60.0)
    garden = [None if 20 <= i < 30 else float(np.sin(i / 5)) for i in range(60)]
    days = pl.date_range(pl.date(2024, 1, 1), pl.date(2024, 2, 29), eager=True)
    drive = rng.standard_normal(60)
    cellar = 0.6 * np.sin((t - 1) / 5) + 0.05 * rng.standard_normal(60)
    pl.DataFrame({"when": days, "north_garden": garden, "cellar": cellar, "drive": drive}).write_csv(folder / "sensors.csv")
    knobs = {"a_long_name_of_a_knob": a[:9], "b": 10 ** (2 * b[:9] - 1), "c": ["x", "z", "x"] * 3, "y": y[:9]}
    pl.DataFrame(knobs).write_csv(folder / "runs.csv")


@pytest.fixture(scope="module")
def package():
    found = browser()
    if found is None:
        pytest.skip("no browser here: `make browser` fetches one")
    return found


@pytest.fixture(scope="module")
def reports(package, tmp_path_factory):
    """A report of every kind, made by the command line; and one that is written from a process with a trend and dates."""
    folder = tmp_path_factory.mktemp("reports")
    tables(folder)
    for name, line in COMMANDS.items():
        (folder / name).mkdir()
        words = [f"../{word}" if word.endswith(".csv") else word for word in line.split()]
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(folder / name)
            done = CliRunner().invoke(app, words)
        assert done.exit_code == 0, (name, done.output)
    for name, likelihood in NOISES.items():
        (folder / name).mkdir()
        write_report(series(likelihood), folder / name / "report.html")
    return {name: folder / name / "report.html" for name in NAMES}


def series(likelihood):
    """A model of a short series whose noise is of some kind."""
    t = np.linspace(0.0, 5.0, 20)
    gp = sg.GP(sg.Matern32() + sg.Matern12(variance=0.1), likelihood)
    if likelihood.latents > 1:
        gp = sg.GP(sg.Independent(sg.Matern32(), sg.Matern32()), likelihood)
    layout = Layout((Column("day", "date", unit="days"),))
    y = np.where(np.arange(20) == 7, 3.0, np.sin(t))
    return TableModel(gp.condition(t, y), layout, "regression", "level", np.zeros(1), np.ones(1), 20, "series")


@pytest.fixture(scope="module")
def seen(package, reports):
    """What is seen of each report, by its name, width and scheme."""
    found = {}
    for scheme in SCHEMES:
        asked = [(name, width) for name in reports for width in WIDTHS]
        shown = look(package, [(reports[name], width) for name, width in asked], scheme)
        found |= {(*of, scheme): one for of, one in zip(asked, shown, strict=True)}
    return found


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", NAMES)
def test_a_report_is_whole_in_a_browser(seen, name, width, scheme):
    found = seen[name, width, scheme]
    assert found["said"] == []
    assert found["wrong"] == []
    assert found["drawn"] == found["places"]
    assert found["places"] >= 1
    assert found["dark"] == (scheme == "dark")
    assert found["paper"] == ("rgb(21, 24, 29)" if scheme == "dark" else "rgb(255, 255, 255)")


def test_every_command_that_writes_a_report_is_among_them():
    written = {line.split()[0] for line in COMMANDS.values()}
    options = {one.name or one.callback.__name__ for one in app.registered_commands}
    assert written | {"predict", "info", "plan", "demo", "report"} == options


def test_what_is_wrong_is_found(package, tmp_path):
    page = (
        "<!doctype html><html><body style='background: #ffffff'><main><p style='color: #bbbbbb'>faint</p>"
        "<div style='width: 100px; overflow-x: auto; white-space: nowrap'>a line that is longer than its place</div>"
        "<div style='width: 2000px'>wide</div></main></body></html>"
    )
    (tmp_path / "page.html").write_text(page)
    (found,) = look(package, [(tmp_path / "page.html", 400)], "light")
    assert [what.split(":")[0].split(" (")[0] for what in found["wrong"]] == [
        "scrolls sideways",
        "too faint",
        "the page scrolls sideways",
    ]
