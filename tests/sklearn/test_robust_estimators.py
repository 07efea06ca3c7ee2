"""The estimators for outliers, for noise that changes and for wrong labels."""

import numpy as np
import pytest

import structgp as sg
from checks import checks_of
from structgp import HeteroscedasticGPRegressor, RobustGPClassifier, TwinnedGPRegressor

CHECKED = [
    *checks_of(TwinnedGPRegressor(learn=False)),
    *checks_of(HeteroscedasticGPRegressor(learn=False), rare=None),
    *checks_of(RobustGPClassifier(learn=False), rare=None),
]


@pytest.mark.parametrize(("estimator", "check"), CHECKED)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


def series(seed=0):
    """Sixty rows of a sine in other units than standard ones, six of them shifted together."""
    rng = np.random.default_rng(seed)
    x = np.linspace(100.0, 160.0, 60)
    y = 50 + 10 * np.sin(x / 10) + 0.5 * rng.standard_normal(60)
    y[20:26] += 30.0
    return x[:, None], y


@pytest.fixture(scope="module")
def twinned():
    X, y = series()
    return TwinnedGPRegressor().fit(X, y)


@pytest.mark.full
def test_outliers_in_a_group_are_named(twinned, tmp_path):
    X, y = series()
    assert set(np.flatnonzero(twinned.outlier_probability_ > 0.5)) == set(range(20, 26))
    truth = 50 + 10 * np.sin(X[:, 0] / 10)
    mean, sd = twinned.predict(X, return_std=True)
    assert np.sqrt(np.mean((mean - truth) ** 2)) < 0.7
    alone = twinned.predict(X, return_std=True, latent=True)[1]
    assert (alone < sd).all()
    low, high = twinned.predict_interval(X[:3])
    assert ((low < truth[:3]) & (truth[:3] < high)).all()
    expected = twinned.fitted_.predict((X - X.mean()) / X.std()).log_prob((y - y.mean()) / y.std()) - np.log(y.std())
    np.testing.assert_allclose(twinned.log_prob(X, y), expected)
    p = twinned.outlier_probability(X)
    assert p[20:26].min() > np.delete(p, slice(20, 26)).max()
    learning = twinned.fitted_.learning
    assert learning.converged
    assert learning.runner_up is not None  # it began without the suspected rows, too
    twinned.fitted_.save(tmp_path / "m.structgp")
    again = sg.load(tmp_path / "m.structgp")
    np.testing.assert_allclose(again.outlier_probability, twinned.outlier_probability_, rtol=1e-12)
    assert again.learning.runner_up == learning.runner_up


@pytest.mark.full
def test_a_picture_marks_outliers(twinned):
    pytest.importorskip("matplotlib").use("Agg")
    labels = [text.get_text() for text in twinned.fitted_.plot().get_legend().get_texts()]
    assert labels == ["95% of f", "95% of new observations", "mean of f", "data", "outliers"]


@pytest.mark.full
def test_noise_that_changes():
    rng = np.random.default_rng(1)
    X = np.linspace(0.0, 6.0, 60)[:, None]
    y = np.sin(X[:, 0]) + np.where(X[:, 0] > 3, 0.5, 0.05) * rng.standard_normal(60)
    model = HeteroscedasticGPRegressor().fit(X, y)
    sd = model.predict([[1.0], [5.0]], return_std=True)[1]
    assert 0.03 < sd[0] < 0.12
    assert 0.3 < sd[1] < 0.9
    plain = sg.GPRegressor(parameters="best", restarts=0).fit(X, y)
    assert model.log_evidence_ > plain.log_evidence_ + 10


@pytest.mark.full
def test_wrong_labels_in_bands():
    rng = np.random.default_rng(4)
    x = np.sort(rng.uniform(-6, 6, 60))
    true = np.where(np.sin(0.8 * x) > 0, "up", "down")
    y = true.copy()
    y[10:12] = np.where(true[10:12] == "up", "down", "up")
    model = RobustGPClassifier().fit(x[:, None], y)
    assert list(model.classes_) == ["down", "up"]
    assert np.mean(model.predict(x[:, None]) == true) > 0.9
    assert model.outlier_probability_[10:12].min() > np.median(model.outlier_probability_)
    with pytest.raises(ValueError, match="Only binary classification is supported"):
        RobustGPClassifier(learn=False).fit(x[:, None], np.arange(60) % 3)
