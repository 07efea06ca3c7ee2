"""Columns of few values that are names: found where labels are more probable with them, and one lengthscale for each."""

import numpy as np
import pytest

import structgp as sg
from structgp.models.codes import Codes, log_evidence


def letters(rng, N, D=4):
    """Codes 0, …, 3 of which the label knows 1 and 2 from 0 and 3 in the first column, and a column of numbers."""
    X = rng.integers(0, 4, (N, D)).astype(float)
    X[:, -1] = rng.standard_normal(N)
    return X, np.isin(X[:, 0], [1, 2]) ^ (X[:, 1] == 2)


def test_an_indicator_for_each_value_of_a_code_and_one_group_for_each_column():
    codes = Codes((np.array([1.0, 2.0, 5.0]), None))
    X = np.array([[5.0, 0.3], [1.0, -2.0], [4.0, 1.0]])
    np.testing.assert_array_equal(codes(X, X), [[0, 0, 1, 0.3], [1, 0, 0, -2.0], [0, 0, 0, 1.0]])
    assert codes.groups == (0, 0, 0, 1)


def test_the_evidence_of_targets_as_numbers_is_that_of_a_process_of_the_best_size():
    rng = np.random.default_rng(3)
    Z, t = rng.standard_normal((30, 2)), rng.standard_normal(30)
    found = log_evidence(Z, t[:, None], 2)
    best = -np.inf
    for length in (0.25, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0, 3.0):
        R = np.exp(-0.5 * np.sum((Z[:, None] - Z) ** 2, axis=2) / (2 * length**2))
        for noise in np.geomspace(1e-3, 30.0, 25):
            C = R + noise * np.eye(30)
            size = t @ np.linalg.solve(C, t) / 30  # the factor on C that makes t most probable
            best = max(best, -0.5 * (np.linalg.slogdet(size * C)[1] + t @ np.linalg.solve(size * C, t)))
    assert found == pytest.approx(best + 15.0, abs=1e-8)  # up to N/2


def test_codes_are_found_where_they_tell_more_than_numbers():
    rng = np.random.default_rng(0)
    X, y = letters(rng, 150)
    found = Codes.of(X, (X - X.mean(axis=0)) / X.std(axis=0), y.astype(int))
    assert [values is not None for values in found.values] == [True, True, True, False]
    X = rng.integers(0, 4, (150, 2)).astype(float)
    y = X[:, 0] + 0.3 * rng.standard_normal(150) > 1.5  # sizes
    assert Codes.of(X, (X - 1.5) / X.std(axis=0), y.astype(int)) is None
    assert Codes.of(rng.standard_normal((50, 2)), rng.standard_normal((50, 2)), rng.integers(0, 2, 50)) is None


def test_a_classifier_takes_codes_for_names():
    rng = np.random.default_rng(1)
    X, y = letters(rng, 160)
    model = sg.GPClassifier(restarts=0, max_evaluations=25, random_state=0).fit(X[:100], y[:100])
    metric = model.kernel_.terms[0].lengthscale
    assert isinstance(metric, sg.GroupMetric)
    assert len(metric.lengthscales) == 4
    assert np.mean(model.predict(X[100:]) == y[100:]) >= 0.95
    new = X[:1].copy()
    new[0, 0] = 9.0  # a letter that was never seen
    assert 0 < model.predict_proba(new)[0, 1] < 1


def test_a_group_has_one_lengthscale_in_the_units_of_all_of_its_columns():
    metric = sg.GroupMetric([2.0, 0.5], (0, 1, 0))
    np.testing.assert_allclose(metric.matrix(), np.diag([0.25, 4.0, 0.25]), rtol=1e-15)
    scales = np.array([0.3, 1.0, 0.4]) * np.sqrt(3)
    np.testing.assert_allclose(metric.suggested(scales).lengthscales, [0.5 * np.sqrt(2), np.sqrt(2)], rtol=1e-12)
    with pytest.raises(ValueError, match=r"GroupMetric needs a lengthscale for each group.* got groups \[0, 2\]"):
        sg.GroupMetric([1.0, 1.0], (0, 2))
