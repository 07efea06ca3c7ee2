"""Dates as inputs: counted in a stated unit from a stated origin, and meant alike wherever they come from."""

import datetime

import numpy as np
import pandas as pd
import polars as pl
import pytest

import structgp as sg

START = np.datetime64("2024-03-29T06:00", "us")  # Europe's clocks change two days later
HALF_DAYS = np.arange(24) * np.timedelta64(12, "h")
DATES, LATER = START + HALF_DAYS, START + HALF_DAYS + np.timedelta64(5, "D")
NUMBERS = 0.25 + 0.5 * np.arange(24)
Y = np.sin(NUMBERS)
GP = sg.GP(sg.Matern52(3.0), sg.Gaussian(0.01))
EXPECTED = GP.condition(NUMBERS, Y).predict(NUMBERS + 5).mean
BERLIN = "Europe/Berlin"

WAYS = {
    "datetime64": lambda dates: dates,
    "datetime64 to the nanosecond": lambda dates: dates.astype("M8[ns]"),
    "a column of them": lambda dates: dates[:, None],
    "datetime objects": lambda dates: dates.tolist(),
    "pandas index": pd.DatetimeIndex,
    "pandas series": pd.Series,
    "pandas frame": lambda dates: pd.DataFrame({"t": dates}),
    "pandas objects": lambda dates: pd.Series(dates.tolist(), dtype=object),
    "polars series": pl.Series,
    "polars frame": lambda dates: pl.DataFrame({"t": dates}),
    "times": sg.Times.from_dates,
}
ZONED = {
    "pandas": lambda dates, zone: pd.Series(dates).dt.tz_localize("UTC").dt.tz_convert(zone),
    "pandas index": lambda dates, zone: pd.DatetimeIndex(dates, tz="UTC").tz_convert(zone),
    "polars": lambda dates, zone: pl.Series(dates).dt.replace_time_zone("UTC").dt.convert_time_zone(zone),
    "objects": lambda dates, zone: [pd.Timestamp(date, tz="UTC").tz_convert(zone).to_pydatetime() for date in dates],
}


@pytest.mark.parametrize("way", WAYS)
def test_dates_are_days_since_the_first_midnight(way):
    read = WAYS[way]
    fitted = GP.condition(read(DATES), Y)
    np.testing.assert_array_equal(np.asarray(fitted.inputs.points)[:, 0], NUMBERS)
    np.testing.assert_array_equal(fitted.predict(read(LATER)).mean, EXPECTED)
    np.testing.assert_array_equal(fitted.predict(NUMBERS + 5).mean, EXPECTED)


@pytest.mark.parametrize("way", ZONED)
def test_zones_are_instants(way):
    """Summer time changes nothing, and neither does the zone of new dates."""
    fitted = GP.condition(ZONED[way](DATES, BERLIN), Y)
    np.testing.assert_array_equal(fitted.predict(ZONED[way](LATER, "Asia/Tokyo")).mean, EXPECTED)
    assert repr(fitted.inputs.clocks[0]) == f"days since 2024-03-29 UTC, from {BERLIN}"


def test_days_of_the_calendar():
    days = [datetime.date(2024, 3, 29) + datetime.timedelta(d) for d in range(12)]
    for read in (list, pl.Series, lambda days: pd.Series(days, dtype=object)):
        np.testing.assert_array_equal(np.asarray(GP.condition(read(days), Y[:12]).inputs.points)[:, 0], np.arange(12.0))


def test_periods_of_pandas_are_where_they_begin():
    months = pd.period_range("2024-01", periods=len(Y), freq="M")
    expected = np.asarray(GP.condition(months.to_timestamp(), Y).inputs.points)
    for read in (lambda months: months, pd.Series):
        np.testing.assert_array_equal(np.asarray(GP.condition(read(months), Y).inputs.points), expected)


def test_units_that_are_asked_for():
    hours = sg.Times.from_dates(DATES, unit="hours")
    assert repr(hours) == "Times(24, regular, hours since 2024-03-29)"
    long = sg.GP(sg.Matern52(72.0), sg.Gaussian(0.01)).condition(hours, Y)
    np.testing.assert_allclose(long.predict(sg.Times.from_dates(LATER)).mean, EXPECTED, rtol=1e-12)
    with pytest.raises(ValueError, match=r"the unit of dates must be one of \['weeks', 'days', .*\], got 'moons'"):
        sg.Times.from_dates(DATES, unit="moons")
    with pytest.raises(TypeError, match=r"Times.from_dates needs dates: datetime64, datetime objects, or a column"):
        sg.Times.from_dates(NUMBERS)


def test_a_column_of_dates_beside_numbers():
    frame = pd.DataFrame({"size": Y, "when": DATES})
    fitted = GP.condition(frame, Y)
    plain = GP.condition(np.stack([Y, NUMBERS], axis=1), Y)
    np.testing.assert_array_equal(
        fitted.predict(frame.assign(when=LATER)).mean, plain.predict(np.stack([Y, NUMBERS + 5], 1)).mean
    )
    assert "column 1 in days since 2024-03-29" in fitted.summary()


def test_what_follows_a_fit(tmp_path):
    """Updates, files and pictures keep the clock."""
    fitted = GP.condition(DATES[:12], Y[:12]).update(DATES[12:], Y[12:])
    np.testing.assert_allclose(fitted.predict(LATER).mean, EXPECTED, rtol=1e-9)
    fitted.save(tmp_path / "model.structgp")
    np.testing.assert_allclose(sg.load(tmp_path / "model.structgp").predict(LATER).mean, EXPECTED, rtol=1e-9)
    import matplotlib

    matplotlib.use("agg")
    drawn = GP.condition(ZONED["pandas"](DATES, BERLIN), Y).plot().get_lines()[-1].get_xdata()
    assert drawn[0] == START + np.timedelta64(1, "h")  # winter time in Berlin


def test_many_series_share_a_clock():
    panel = GP.condition_series(DATES, np.stack([Y, Y], axis=1))
    apart = GP.condition_series([DATES, DATES[3:]], [Y, Y[3:]])
    np.testing.assert_allclose(panel.predict(LATER)[0].mean, EXPECTED, rtol=1e-9)
    np.testing.assert_allclose(apart.predict([LATER, LATER])[0].mean, EXPECTED, rtol=1e-9)


@pytest.mark.parametrize("read", [WAYS["a column of them"], WAYS["pandas frame"], WAYS["polars frame"]])
def test_estimators_count_dates(read):
    model = sg.GPRegressor(sg.Matern52(3.0), noise=0.01, mean="zero", learn=False).fit(read(DATES), Y)
    np.testing.assert_array_equal(model.predict(read(LATER)), EXPECTED)
    with pytest.raises(ValueError, match="X holds dates where the model was given numbers"):
        sg.GPRegressor(learn=False).fit(NUMBERS[:, None], Y).predict(read(LATER))


TABLE = pd.DataFrame({"when": DATES, "a": np.cos(NUMBERS)})
COUNTED = np.column_stack([NUMBERS, np.cos(NUMBERS)])
MODELS = {
    "additive": lambda X: sg.AdditiveGP().fit(X, Y, max_evaluations=2),
    "additive by columns": lambda X: sg.AdditiveVB(sweeps=1).fit(X, Y),
    "projections": lambda X: sg.ProjectionPursuitGP(1, sines=3).fit(X, Y, max_evaluations=2),
    "one projection after the other": lambda X: sg.GreedyProjectionPursuit(1, starts=0, max_evaluations=2).fit(X, Y),
    "additive labels": lambda X: sg.AdditiveLabels().fit(X, Y > 0, max_evaluations=2),
    "outputs": lambda X: sg.MultiOutputGP(restarts=0, max_evaluations=2, parameters="best").fit(X, np.column_stack([Y, Y**2])),
}


@pytest.mark.parametrize(
    "name", [name if name == "additive" else pytest.param(name, marks=pytest.mark.full) for name in MODELS]
)
def test_models_of_tables_count_dates(name, tmp_path):
    mean = lambda fitted, X: getattr(fitted.predict(X), "mean", fitted.predict(X)) if name != "outputs" else fitted.predict(X)
    fitted, counted = MODELS[name](TABLE), MODELS[name](COUNTED)
    np.testing.assert_array_equal(mean(fitted, TABLE[:5]), mean(counted, COUNTED[:5]))
    fitted.save(tmp_path / "model")
    np.testing.assert_array_equal(mean(sg.load(tmp_path / "model"), TABLE[:5]), mean(fitted, TABLE[:5]))
    with pytest.raises(ValueError, match="X holds dates where the model was given numbers: pass numbers, or fit it to dates"):
        counted.predict(TABLE)


@pytest.mark.full
def test_rows_are_laid_out_with_their_dates():
    found, expected = (sg.GPLVM(1, max_evaluations=2).fit_transform(X) for X in (TABLE, COUNTED))
    np.testing.assert_array_equal(found, expected)


def test_streams_go_on_in_dates():
    chain = sg.GP(sg.Matern32(3.0), sg.Gaussian(0.01))
    stream = chain.stream().update(DATES[:20], Y[:20]).update(DATES[20], Y[20])
    expected = chain.stream().update(NUMBERS[:20], Y[:20]).update(NUMBERS[20], Y[20]).predict(NUMBERS[21:])
    np.testing.assert_array_equal(stream.predict(DATES[21:]).mean, expected.mean)
    assert repr(stream).endswith("21 observations until 2024-04-08T06:00)")
    with pytest.raises(ValueError, match="2024-03-29T06:00 is before its last time 2024-04-08T06:00; condition a GP"):
        stream.predict(DATES[:1])
    later = chain.condition(DATES[:20], Y[:20]).stream().update(DATES[20], Y[20])
    np.testing.assert_allclose(later.predict(DATES[21:]).mean, expected.mean, atol=1e-9)


def test_axes_of_a_grid_may_be_dates():
    grid, numbers = sg.Grid(DATES, [0.0, 1.0]), sg.Grid(NUMBERS, [0.0, 1.0])
    np.testing.assert_array_equal(grid.points, numbers.points)
    assert repr(grid.clocks) == "(days since 2024-03-29, None)"
    rows = pd.DataFrame({"when": np.repeat(DATES, 2), "a": np.tile([0.0, 1.0], 24)})
    assert sg.Grid.from_points(rows).clocks[0].origin == grid.clocks[0].origin
    assert sg.bin_to_grid(DATES, Y, 4).grid.clocks[0].origin == grid.clocks[0].origin


REFUSED = {
    "dates after numbers": (lambda: GP.condition(NUMBERS, Y).predict(LATER), "X holds dates where the model was given numbers"),
    "no zone after one": (
        lambda: GP.condition(ZONED["pandas"](DATES, BERLIN), Y).predict(LATER),
        f"dates with no time zone, but the model was given dates with {BERLIN}: convert them alike",
    ),
    "a zone after none": (
        lambda: GP.condition(DATES, Y).predict(ZONED["polars"](LATER, BERLIN)),
        f"dates with {BERLIN}, but the model was given dates with none",
    ),
    "mixed zones": (
        lambda: GP.condition([DATES.tolist()[0].replace(tzinfo=datetime.UTC), *DATES.tolist()[1:]], Y),
        "X mixes dates with and without a time zone: give all of them one",
    ),
    "a missing date": (
        lambda: GP.condition(np.where(np.arange(24) == 3, np.datetime64("NaT", "us"), DATES), Y),
        r"X has 1 missing date \(row 3\): inputs must be known; drop these rows",
    ),
    "a stream of numbers": (lambda: GP.condition(NUMBERS, Y).stream().update(LATER[-1], 1.0), "t holds dates where the model"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_the_message(name):
    call, text = REFUSED[name]
    with pytest.raises((ValueError, TypeError), match=text):
        call()
