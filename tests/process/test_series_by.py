"""Many series in one table, in memory and in parts, are those that are given as lists."""

import numpy as np
import pandas as pd
import polars as pl
import pytest

import structgp as sg
from structgp.parameters.tree import free_vector

RNG = np.random.default_rng(8)
NAMES = np.array(["c", "a", "b"])
WHICH = np.concatenate([np.full(14, "a"), np.full(12, "b"), np.full(15, "c")])
T = np.concatenate([np.sort(RNG.uniform(0, 6, n)) for n in (14, 12, 15)])
Y = np.sin(T) + 0.2 * RNG.normal(size=len(T))
GP = sg.GP(sg.Matern32(1.0, 1.0), sg.Gaussian(0.1))
NEW = np.array([1.0, 2.5, 7.0])
LISTS = [T[name == WHICH] for name in "abc"], [Y[name == WHICH] for name in "abc"]


def test_a_column_tells_series_apart(x64):
    mixed = RNG.permutation(len(T))
    ours = GP.fit_series(T[mixed], Y[mixed], by=WHICH[mixed])
    lists = GP.fit_series(*LISTS)
    assert list(ours) == ["a", "b", "c"]
    assert np.isclose(ours.log_evidence, lists.log_evidence, rtol=1e-9)
    assert np.allclose(free_vector(ours.gp), free_vector(lists[0].gp), atol=1e-5)  # where two climbs stop
    assert np.allclose(ours["b"].predict(NEW).mean, lists[1].predict(NEW).mean, atol=1e-5)
    with pytest.raises(KeyError):
        ours["d"]


@pytest.mark.parametrize("kind", [str, object])  # columns of text are objects in pandas
def test_names_are_those_of_the_column(x64, kind):
    ours = GP.condition_series(T, Y, by=WHICH.astype(kind))
    assert ours.names == (("a", "b", "c"),)
    assert np.isclose(ours.log_evidence, GP.condition_series(*LISTS).log_evidence, rtol=1e-12)


@pytest.fixture
def file(tmp_path):
    pl.DataFrame({"hour": T, "meter": WHICH, "kWh": Y}).write_parquet(tmp_path / "rows.parquet")
    return tmp_path / "rows.parquet"


def test_parts_of_whole_series(x64, file):
    ours, lists = GP.condition_series(sg.ParquetBatches(file, "kWh", rows=26), by="meter"), GP.condition_series(*LISTS)
    assert len(ours.names) == 2
    assert np.isclose(ours.log_evidence, lists.log_evidence, rtol=1e-12)
    assert np.isclose(ours.log_evidences["c"], lists.log_evidences[2], rtol=1e-12)
    for name, known in zip("abc", lists.predict(NEW), strict=True):
        assert np.allclose(ours.predict(NEW)[name].mean, known.mean, atol=1e-12)


def test_series_come_back_from_a_file_with_their_rows(x64, file, tmp_path):
    mixed = RNG.permutation(len(T))
    here = GP.condition_series(T[mixed], Y[mixed], by=WHICH[mixed])
    parts = GP.condition_series(sg.ParquetBatches(file, "kWh", rows=26), by="meter")
    for ours in (here, parts):
        ours.save(tmp_path / "series")
        again = sg.FittedSeriesBy.load(tmp_path / "series")
        assert again.log_evidences == ours.log_evidences
        assert np.array_equal(again["c"].predict(NEW).mean, ours["c"].predict(NEW).mean)
    pl.DataFrame({"hour": T, "meter": WHICH[::-1], "kWh": Y}).write_parquet(file)
    with pytest.raises(ValueError, match=r"the series of .*rows.parquet have changed since they were fitted"):
        sg.load(tmp_path / "series").predict(NEW)


def test_names_in_tables_are_any_words_and_times_are_dates(x64, tmp_path):
    """Of pandas, whose words are not NumPy's."""
    days = np.datetime64("2026-03-01", "s") + (T * 86400).astype("m8[s]")
    frame = pd.DataFrame({"day": days, "meter": WHICH, "kWh": Y})
    ours = GP.condition_series(frame[["day", "meter"]], frame["kWh"], by="meter")
    lists = GP.condition_series([days[name == WHICH] for name in "abc"], LISTS[1])
    assert np.isclose(ours.log_evidence, lists.log_evidence, rtol=1e-10)
    new = days[:3] + np.timedelta64(5, "h")
    assert np.allclose(ours.predict(new)["b"].mean, lists.predict(new)[1].mean, atol=1e-10)
    frame.to_parquet(tmp_path / "rows.parquet")
    parts = GP.condition_series(sg.ParquetBatches(tmp_path / "rows.parquet", "kWh", rows=26), by="meter")
    parts.save(tmp_path / "series")
    for some in (parts, sg.load(tmp_path / "series")):
        assert np.allclose(some.predict(new)["c"].mean, lists.predict(new)[2].mean, atol=1e-10)
        assert np.allclose(some["c"].predict(new).mean, lists.predict(new)[2].mean, atol=1e-10)


def test_what_names_no_series_is_said():
    frame = pd.DataFrame({"t": T, "meter": WHICH, "kWh": Y})
    with pytest.raises(ValueError, match="by='metre' is no column of X: it has t, meter"):
        GP.condition_series(frame[["t", "meter"]], frame["kWh"], by="metre")
    with pytest.raises(TypeError, match="by='meter' is the name of a column, and X is no table"):
        GP.condition_series(T, Y, by="meter")
    with pytest.raises(ValueError, match=r"by names no series in 2 rows \(rows 3, 5\)"):
        GP.condition_series(T, Y, by=frame["meter"].where(~frame.index.isin([3, 5])))
    with pytest.raises(ValueError, match="series are batched along their states, which this model does not have"):
        sg.GP(sg.SquaredExponential()).condition_series(T, Y, by=WHICH)


@pytest.mark.full
def test_series_of_parts_have_parameters_of_their_own(x64, file):
    options = {"shared": False, "max_evaluations": 60}
    ours = GP.fit_series(sg.ParquetBatches(file, "kWh", rows=26), by="meter", **options)
    lists = GP.fit_series(*LISTS, **options)
    assert np.isclose(ours.log_evidence, lists.log_evidence, rtol=1e-6)
    assert np.allclose(ours["c"].predict(NEW).mean, lists[2].predict(NEW).mean, atol=1e-3)
    assert ours.learning.converged


def test_series_that_are_cut_are_refused(file):
    with pytest.raises(ValueError, match="series 'b' is in several partitions"):
        GP.condition_series(sg.ParquetBatches(file, "kWh", rows=20), by="meter")
    with pytest.raises(ValueError, match="by must name the series of each of the 41 rows, got 3"):
        GP.condition_series(T, Y, by=NAMES)
