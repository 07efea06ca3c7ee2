"""`structgp fit` for a series in many files."""

import json

import numpy as np
import polars as pl
from typer.testing import CliRunner

import structgp as sg
from structgp.tables.cli import app


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_many_files_are_one_series(tmp_path):
    rng = np.random.default_rng(2)
    t = np.sort(rng.uniform(0, 20, 200))
    y = np.sin(t) + 0.2 * rng.normal(size=200)
    y[7] = np.nan
    for i, rows in enumerate((slice(0, 80), slice(80, 200))):
        frame = pl.DataFrame({"hour": t[rows], "kWh": y[rows], "other": 0.0})
        frame.write_parquet(tmp_path / f"{i}.parquet")
    arguments = ["fit", tmp_path / "*.parquet", "--target", "kWh", "--out", tmp_path / "out", "--json"]
    found = json.loads(run(*arguments, "--time", "hour", "--kernel", "Matern32(lengthscale=2)").stdout)
    whole = sg.GP(sg.Matern32(2.0), mean=sg.ConstantMean()).fit(t, y, missing="infer", structure="markov", parameters="best")
    assert np.isclose(found["log_evidence"], whole.log_evidence, rtol=1e-6)
    smoothed = pl.read_parquet(tmp_path / "out" / "smoothed")
    assert np.allclose(smoothed["hour"], t)
    assert np.allclose(smoothed["mean"], whole.smoothed().mean, atol=1e-3)  # where two climbs stop
    again = sg.load(found["files"]["fitted"])
    assert again.log_evidence == found["log_evidence"]
    assert np.allclose(again.predict([3.3]).mean, whole.predict([3.3]).mean, atol=1e-3)
    assert "one column of times, and there are hour, other" in json.loads(run(*arguments).stdout)["error"]
    assert "name the column to be predicted" in run("fit", tmp_path / "*.parquet").stderr
