"""Additive regression on rows in parts: the bound, what is learned and what is foretold are those in memory."""

import numpy as np
import polars as pl
import pytest

import structgp as sg
from structgp.parameters.tree import free_vector

RNG = np.random.default_rng(1)
X = RNG.uniform(0, 1, (400, 2))
Y = np.sin(6 * X[:, 0]) + X[:, 1] ** 2 + 5.0 + 0.1 * RNG.normal(size=400)
NEW = RNG.uniform(0, 1, (60, 2))


@pytest.fixture
def rows(tmp_path):
    pl.DataFrame({"a": X[:, 0], "b": X[:, 1], "y": Y}).write_parquet(tmp_path / "rows.parquet")
    return sg.ParquetBatches(tmp_path / "rows.parquet", "y", rows=150)


@pytest.mark.full
def test_parts_are_learned_from_as_rows_are(x64, rows, tmp_path):
    parts, whole = sg.AdditiveGP().fit(rows), sg.AdditiveGP().fit(X, Y)
    assert np.allclose(free_vector(parts.gp), free_vector(whole.gp), atol=0.02)  # knots stand at the ends as well
    assert np.isclose(parts.log_evidence, whole.log_evidence, atol=0.05)
    ours, exact = parts.predict(NEW), whole.predict(NEW)
    assert np.allclose(ours.mean, exact.mean, atol=2e-3)
    assert np.allclose(ours.variance, exact.variance, rtol=0.05)
    assert parts.rows == 400
    parts.save(tmp_path / "sums")
    assert np.array_equal(sg.load(tmp_path / "sums").predict(NEW).mean, ours.mean)


@pytest.mark.parametrize("columns", [1, 3])
def test_rows_of_other_columns_are_refused(x64, rows, columns):
    with pytest.raises(ValueError, match=rf"X has {columns} columns?, but the model was given 2: pass the same inputs"):
        sg.AdditiveGP().condition(rows).predict(np.zeros((4, columns)))


def test_what_sums_do_not_tell_is_refused(rows):
    with pytest.raises(ValueError, match="must have Gaussian noise, not Bernoulli"):
        sg.AdditiveGP(likelihood=sg.Bernoulli()).fit(rows)
    along = sg.Project(sg.Matern52(), [0.6, 0.8]) + sg.Matern52().on(1)
    with pytest.raises(ValueError, match="has terms along columns, not along directions"):
        sg.AdditiveGP(along).fit(rows)
