"""The additive and projection pursuit estimators keep scikit-learn's conventions."""

import functools
import pickle

import numpy as np
import pytest
from sklearn.base import clone, is_classifier
from sklearn.exceptions import NotFittedError

from structgp import AdditiveGPClassifier, AdditiveGPRegressor, ProjectionPursuitGPClassifier, ProjectionPursuitGPRegressor

RNG = np.random.default_rng(0)
X = RNG.standard_normal((64, 3))
Y = X[:, 0] + 0.1 * RNG.standard_normal(64)
LABELS = np.where(Y > 0, "up", "down")
QUICK = {
    "additive regressor": AdditiveGPRegressor(max_evaluations=20),
    "projection pursuit regressor": ProjectionPursuitGPRegressor(1, sines=5, max_evaluations=110, random_state=0),
    "additive classifier": AdditiveGPClassifier(max_evaluations=10),
    "projection pursuit classifier": ProjectionPursuitGPClassifier(1, sines=4, max_evaluations=20, random_state=0),
}
each = pytest.mark.parametrize("name", QUICK)


@functools.cache
def fitted(name):
    model = clone(QUICK[name])
    return model.fit(X, LABELS if is_classifier(model) else Y)


@each
def test_fit_predict_and_score(name):
    model = fitted(name)
    assert model.n_features_in_ == 3
    assert model.predict(X[:5]).shape == (5,)
    assert model.score(X, LABELS if is_classifier(model) else Y) > 0.9
    assert np.isfinite(model.log_evidence_)


@each
def test_a_copy_by_pickle_predicts_the_same(name):
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(fitted(name))).predict(X[:5]), fitted(name).predict(X[:5]))


@each
def test_messages(name):
    with pytest.raises(NotFittedError):
        clone(QUICK[name]).predict(X)
    with pytest.raises(ValueError, match="expecting 3 features"):
        fitted(name).predict(X[:, :2])
    target = LABELS if is_classifier(QUICK[name]) else Y
    with pytest.raises(ValueError, match="NaN"):
        clone(QUICK[name]).fit(np.where(X > 1, np.nan, X), target)


@pytest.mark.parametrize("name", ["additive classifier", "projection pursuit classifier"])
def test_probabilities(name):
    p = fitted(name).predict_proba(X)
    assert list(fitted(name).classes_) == ["down", "up"]
    np.testing.assert_allclose(p.sum(axis=1), 1.0)
    np.testing.assert_array_equal(p[:, 1] > 0.5, fitted(name).predict(X) == "up")


def test_two_kinds_of_spread():
    model = fitted("additive regressor")
    mean, seen = model.predict(X[:5], return_std=True)
    latent = model.predict(X[:5], return_std=True, latent=True)[1]
    np.testing.assert_allclose(mean, model.predict(X[:5]), rtol=1e-8)
    np.testing.assert_allclose(seen**2, latent**2 + float(model.fitted_.likelihood.noise), rtol=1e-10)
    assert model.log_prob(X[:5], mean).shape == (5,)


def test_one_class_is_refused():
    with pytest.raises(ValueError, match="at least two classes, got one class only"):
        AdditiveGPClassifier().fit(np.zeros((4, 2)), ["a"] * 4)
