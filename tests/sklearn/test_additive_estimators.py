"""The additive and projection pursuit estimators keep scikit-learn's conventions, and the plain ones choose among them.

Every check of scikit-learn runs for one of the four estimators, which share most of their code; with STRUCTGP_ALL_CHECKS=1 in
the environment every check runs for all of them, which takes some minutes. `make test` takes only those that share a table.
"""

import dataclasses
import functools
import os
import pickle
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.base import clone, is_classifier
from sklearn.exceptions import NotFittedError

import structgp as sg
import zoo
from checks import WITH_A_TABLE_OF_THEIR_OWN, WITH_THIRTY_ROWS, checks_of
from structgp import (
    AdditiveGPClassifier,
    AdditiveGPRegressor,
    GPClassifier,
    GPRegressor,
    ProjectionPursuitGPClassifier,
    ProjectionPursuitGPRegressor,
)
from structgp.learn.clock import NEVER, OUT_OF_TIME
from structgp.models import candidates, choose
from structgp.models.additive.model import FittedAdditive
from structgp.models.pursuit.fitted import FittedProjectionPursuit

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
each = pytest.mark.parametrize("name", zoo.mostly_full(QUICK, "additive regressor"))
QUICKEST = [
    AdditiveGPRegressor(max_evaluations=5),
    ProjectionPursuitGPRegressor(1, sines=3, max_evaluations=3, random_state=0),
    AdditiveGPClassifier(max_evaluations=5),
    ProjectionPursuitGPClassifier(1, sines=3, max_evaluations=3, random_state=0),
]


def checks():
    every = 1 if os.environ.get("STRUCTGP_ALL_CHECKS") else len(QUICKEST)
    for at, estimator in enumerate(QUICKEST):
        rare = WITH_A_TABLE_OF_THEIR_OWN | WITH_THIRTY_ROWS if at == 0 else None
        yield from list(checks_of(estimator, rare=rare))[at % every :: every]


@pytest.mark.parametrize(("estimator", "check"), list(checks()))
def test_scikit_learn_checks(estimator, check):
    check(estimator)


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
    with pytest.raises(ValueError, match="at least two classes, got one class: 'a'"):
        AdditiveGPClassifier().fit(np.zeros((4, 2)), ["a"] * 4)


# the choice of GPRegressor and GPClassifier


@pytest.fixture
def few_rows_are_many(monkeypatch):
    monkeypatch.setattr("structgp.sklearn.learning.affordable_rows", lambda *_: 40)
    monkeypatch.setattr(choose, "SEARCH", choose.Limits(projections=3))
    monkeypatch.setattr(choose, "HELD", 0.3)
    monkeypatch.setattr(candidates, "INDUCING", 8)
    monkeypatch.setattr(choose, "PAYS", np.inf)


DIRECTIONS = {FittedAdditive: [1.0, 0.0, 0.0], FittedProjectionPursuit: [0.6, 0.8, 0.0]}


@pytest.mark.full
@pytest.mark.parametrize("kind", DIRECTIONS)
def test_rows_held_out_decide_where_a_dense_matrix_is_too_large(few_rows_are_many, kind):
    rows = np.random.default_rng(2).standard_normal((200, 6))  # too many columns for neighbours
    more = np.cos(2 * rows[:, 2]) if kind is FittedAdditive else 0
    y = 3 * np.sin(2 * rows[:, :3] @ DIRECTIONS[kind]) + more + 0.5 * np.random.default_rng(1).standard_normal(200)
    model = GPRegressor(random_state=0, seconds=1e4).fit(rows, y)
    assert isinstance(model.fitted_, kind)
    assert model.score(rows, y) > 0.9
    chosen, _, *others = str(model.plan_).splitlines()
    assert chosen.startswith("Additive   mean exact, evidence from below")
    assert ("projection pursuit" in chosen) == (kind is FittedProjectionPursuit)
    assert "of a row held out" in chosen
    assert sum("of a row held out" in other for other in others) == 3  # the other sum, and one function by both ways
    mean, covariance = model.predict(rows[:5], return_cov=True)
    np.testing.assert_allclose(np.sqrt(np.diag(covariance)), model.predict(rows[:5], return_std=True)[1], rtol=1e-3)
    assert model.sample_y(rows[:5], 3).shape == (5, 3)
    assert model.noise_ > 0
    assert len(mean) == 5


def listed(**gps):
    """Candidates that learn nothing, by the structures that they are listed under; None fails, a number is its seconds."""

    def one(given):
        gp = sg.GP(sg.Matern52(1.0), sg.Gaussian(0.09)) if isinstance(given, float) else given

        def fit(X, y, tell, deadline):
            if gp is None:
                raise ValueError("no such luck\nand more")
            return gp.condition(X, y)

        seconds = given if isinstance(given, float) else 0.0
        return candidates.Candidate("one", fit, lambda fitted, X, y: gp.condition(X, y), seconds)

    return {name.replace("_", "-"): one(given) for name, given in gps.items()}


def test_the_plan_says_how_each_did_and_why_others_did_not(few_rows_are_many, monkeypatch):
    good, bad = (sg.GP(sg.Matern52([a, b, 9.0], 4.0), sg.Gaussian(0.09)) for a, b in ((1.0, 9.0), (9.0, 1.0)))
    y = 3 * np.sin(2 * X[:, 0]) + 0.3 * np.random.default_rng(0).standard_normal(64)
    tried = listed(inducing=good, additive=None, neighbours=bad, projection_pursuit=1e4)
    monkeypatch.setattr(choose, "for_many_rows", lambda *_: tried)
    monkeypatch.setattr(choose, "_offer", lambda attempt, fitted, X, classes: fitted.plan.chosen)
    model = GPRegressor(random_state=0).fit(X, y)
    assert model.fitted_.gp is good
    assert len(model.fitted_.inputs) == 64  # what was held out is given to it in the end
    chosen, _, failed, behind, left_out, dense = str(model.plan_).splitlines()
    assert "log probability" in chosen
    assert "additive: failed: no such luck" in failed.replace("a sum of functions of one column each", "additive")
    assert "log probability" in behind
    assert "about 10000 s of learning, and" in left_out
    assert "64 rows in a dense matrix take" in dense


def test_what_cannot_pay_is_not_tried(few_rows_are_many, monkeypatch):
    """A product of two columns is no sum, which least squares tell; time that the leader lacks is left to it."""
    rows = np.random.default_rng(0).standard_normal((800, 2))
    y = 3 * np.sin(2 * rows[:, 0]) * rows[:, 1] + 0.1 * np.random.default_rng(1).standard_normal(800)
    good = sg.GP(sg.Matern52([1.0, 2.0], 4.0), sg.Gaussian(0.01))
    on = []

    def fit(X, y, tell, deadline):
        return dataclasses.replace(good.condition(X, y), learning=SimpleNamespace(message=OUT_OF_TIME))

    def go_on(fitted, X, y, deadline):
        on.append(len(y))
        return good.condition(X, y)

    monkeypatch.setattr(choose, "PAYS", 1.5)
    tried = listed(additive=None, inducing=good, projection_pursuit=None)
    tried["inducing"] = tried["inducing"]._replace(fit=fit, go_on=go_on)
    monkeypatch.setattr(choose, "for_many_rows", lambda *_: tried)
    monkeypatch.setattr(choose, "_offer", lambda attempt, fitted, X, classes: fitted.plan.chosen)
    plan = str(GPRegressor(random_state=0).fit(rows, y).plan_)
    assert on == [800]
    assert "by least squares its error is" in plan
    assert "the time is left to the leader, which was stopped by the clock" in plan
    slow = {name: one._replace(seconds=1e4) for name, one in tried.items()}
    monkeypatch.setattr(choose, "for_many_rows", lambda *_: slow)
    model = GPRegressor(random_state=0).fit(rows, y)
    assert on == [800]  # alone it learns from all rows
    assert "all rows from the start" in str(model.plan_)


def test_nothing_that_can_be_learned(few_rows_are_many, monkeypatch):
    monkeypatch.setattr(choose, "for_many_rows", lambda *_: listed(additive=None))
    with pytest.raises(ValueError, match="nothing could be learned from these rows: failed: no such luck"):
        GPRegressor().fit(X, Y)


@pytest.mark.full
@pytest.mark.parametrize("classes", zoo.mostly_full([2, 3], 2))
def test_so_it_is_for_labels(few_rows_are_many, classes):
    labels = np.digitize(np.abs(X[:, 0]), [0.5, 1.1][: classes - 1])
    model = GPClassifier(random_state=0, structure="auto" if classes == 2 else "additive").fit(X, labels)
    p = model.predict_proba(X)
    assert p.shape == (64, classes)
    np.testing.assert_allclose(p.sum(axis=1), 1.0)
    assert model.score(X, labels) > 0.8
    assert np.isfinite(model.log_evidence_)
    assert "Additive" in str(model.plan_)


@pytest.mark.parametrize("at_once", [10, 100])
def test_labels_are_learned_from_some_rows_and_given_all(few_rows_are_many, monkeypatch, at_once):
    monkeypatch.setattr(candidates, "LEARNED_FROM", 40)
    monkeypatch.setattr(candidates, "GIVEN_AT_ONCE", at_once)
    labels = (np.sin(2 * X[:, 0]) > 0).astype(int)
    one = candidates.for_many_rows("classification", X.shape, sg.Bernoulli(), 2, 0, choose.SEARCH)["inducing"]
    found = one.fit(X, labels.astype(float), None, NEVER)
    assert len(found.inputs) == 64
    assert found.plan.engine.structure == ("inducing" if at_once < 64 else "dense")
    assert found.learning.evaluations > 1
    assert np.mean((found.predict(X).probability > 0.5) == labels) > 0.85
    again = one.refit(found, X[:50], labels[:50].astype(float))
    assert len(again.inputs) == 50
    assert again.learning is found.learning


def test_numbers_are_learned_from_some_rows_and_given_all(monkeypatch):
    """One function of all columns, exactly; and each row given its neighbours, which can learn on from where it was stopped."""
    monkeypatch.setattr(candidates, "EXACTLY", (40, 40))
    monkeypatch.setattr(candidates, "NEIGHBOURS", 63)  # all of them, which is exact
    y = 3 * np.sin(2 * X[:, 0]) + 0.3 * np.random.default_rng(0).standard_normal(64)
    exact, near = (
        candidates.for_many_rows("regression", X.shape, None, 0, 0, choose.SEARCH)[k] for k in ("dense", "neighbours")
    )
    found = exact.fit(X, y, None, NEVER)
    assert found.plan.engine.structure == "dense"
    assert len(found.inputs) == 64
    assert found.learning.rows == 40
    assert np.mean((found.predict(X).mean - y) ** 2) < 0.3
    assert len(exact.refit(found, X[:50], y[:50]).inputs) == 50
    on = near.go_on(found, X, y, NEVER)
    assert on.plan.engine.structure == "neighbours"
    assert on.log_evidence > found.log_evidence
    assert on.learning.converged


@pytest.mark.full
def test_scores_of_many_rows_know_nothing_of_units(monkeypatch, tmp_path):
    """Columns of many rows enter by the places of their values, so that no monotone function of a column matters."""
    labels = (np.sin(2 * X[:, 0]) > 0).astype(int)
    bent = np.stack([np.exp(X[:, 0]), X[:, 1] ** 3, 5 - X[:, 2]], axis=1)
    monkeypatch.setattr("structgp.sklearn.classification.SCORED", 50)
    model, other = (GPClassifier(max_evaluations=3).fit(rows, labels) for rows in (X, bent))
    theirs = other.predict_proba(bent)
    np.testing.assert_allclose(model.predict_proba(X), theirs, atol=1e-6)
    other.save(tmp_path / "labels.structgp")
    np.testing.assert_array_equal(GPClassifier.load(tmp_path / "labels.structgp").predict_proba(bent), theirs)
    monkeypatch.undo()
    plain = GPClassifier(max_evaluations=3).fit(bent, labels).predict_proba(bent)
    assert np.abs(plain - theirs).max() > 1e-3


def test_few_rows_and_kernels_of_ones_own_stay_with_one_function():
    assert GPRegressor(max_evaluations=3).fit(X, Y).plan_.engine.structure == "dense"
    with pytest.raises(ValueError, match="structure='additive' learns its own kernel from two columns or more"):
        GPRegressor(structure="additive", noise=0.1).fit(X, Y)
