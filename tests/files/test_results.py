"""Everything that a user gets from learning comes back from a file and says the same."""

import numpy as np
import pandas as pd
import pytest

import structgp as sg
import zoo

RNG = np.random.default_rng(3)
X = RNG.uniform(-2, 2, (24, 2))
Y = np.sin(X).sum(axis=1) + 0.1 * RNG.standard_normal(24)
NEW = RNG.uniform(-2, 2, (5, 2))
NAMES = np.where(Y > 0.7, "high", np.where(Y > -0.7, "middle", "low"))
SERIES = np.repeat([0.0, 5.0, 1.0], 20) + 0.3 * RNG.standard_normal(60)
T = np.linspace(0, 4, 24)


def back(result, tmp_path):
    result.save(tmp_path / "result.structgp")
    again = sg.load(tmp_path / "result.structgp")
    assert type(again) is type(result)
    assert again.summary().partition("(")[0] == result.summary().partition("(")[0] != ""  # some hold a generator
    return again


def same(a, b):
    for p, q in zip(a if isinstance(a, tuple) else (a,), b if isinstance(b, tuple) else (b,), strict=True):
        np.testing.assert_array_equal(p, q)


ESTIMATORS = {
    "regressor": (sg.GPRegressor(restarts=0, max_evaluations=5), Y, lambda m: m.predict(NEW, return_std=True)),
    "regressor in units": (
        sg.GPRegressor(normalize_y=True, noise=0.01, learn=False),
        1e4 + 50 * Y,
        lambda m: m.predict(NEW, return_std=True),
    ),
    "regressor of two": (
        sg.GPRegressor(learn=False, random_state=np.random.RandomState(3)),
        np.stack([Y, 100 * Y**2], axis=1),
        lambda m: m.predict(NEW),
    ),
    "regressor told": (
        sg.GPRegressor(sg.Matern32(sg.fixed(0.8)), noise=sg.learned(0.1, prior=sg.Gamma(2.0, 3.0)), mean="linear", learn=False),
        Y,
        lambda m: (m.predict(NEW), m.sample_y(NEW, 2)),
    ),
    "classifier of three": (
        sg.GPClassifier(learn=False),
        NAMES,
        lambda m: (m.predict_proba(NEW), m.predict(NEW)),
    ),
    "softmax": (
        sg.GPClassifier(multi_class="softmax", learn=False),
        NAMES.astype(object),
        lambda m: (m.predict_proba(NEW), m.predict(NEW)),
    ),
    "counts": (
        sg.GPCountRegressor(learn=False),
        np.round(np.exp(Y)),
        lambda m: m.predict(NEW, return_std=True),
    ),
    "additive": (sg.AdditiveGPRegressor(max_evaluations=3), Y, lambda m: m.predict(NEW, return_std=True)),
    "pursuit": (
        sg.ProjectionPursuitGPRegressor(1, sines=4, max_evaluations=3),
        1e3 * Y,
        lambda m: m.predict(NEW, return_std=True),
    ),
    "additive labels as they are": (
        sg.AdditiveGPClassifier(max_evaluations=2, ranks=False),
        NAMES,
        lambda m: (m.predict_proba(NEW), m.predict(NEW)),
    ),
    "pursuit labels": (
        sg.ProjectionPursuitGPClassifier(1, sines=4, max_evaluations=3),
        np.where(Y > 0, 7, 3),
        lambda m: (m.predict_proba(NEW), m.predict(NEW)),
    ),
}


@pytest.mark.parametrize(
    "name", zoo.mostly_full(ESTIMATORS, "regressor of two", "regressor told", "additive labels as they are")
)
def test_estimators_come_back_with_everything(name, tmp_path):
    model, y, ask = ESTIMATORS[name]
    model.fit(X, y)
    again = back(model, tmp_path)
    same(ask(again), ask(model))
    assert again.log_evidence_ == model.log_evidence_
    assert vars(again).keys() == vars(model).keys()
    if name == "regressor of two":  # whose repr has the address of its random state
        assert again.random_state.randint(10**9) == model.random_state.randint(10**9)
    else:
        assert repr(again) == repr(model)


@pytest.mark.full
def test_a_classifier_keeps_its_units_classes_and_columns(tmp_path):
    frame = pd.DataFrame({"small": 1e-6 * X[:, 0], "large": 1e6 + 1e3 * X[:, 1]})
    model = sg.GPClassifier(learn=False).fit(frame, np.where(X.sum(axis=1) > 0, "yes", "no"))
    again = back(model, tmp_path)
    assert again.feature_names_in_.tolist() == ["small", "large"]
    assert again.classes_.dtype == model.classes_.dtype
    same(again.predict_proba(frame), model.predict_proba(frame))
    assert again.score(frame, np.where(X.sum(axis=1) > 0, "yes", "no")) > 0.9
    with pytest.raises(ValueError, match="feature names"):
        again.predict(frame.rename(columns={"small": "other"}))


@pytest.mark.parametrize("hypotheses", [20, None])
def test_a_detector_comes_back_and_goes_on(hypotheses, tmp_path):
    model = sg.ChangePointDetector(hazard=0.02, learn=False, hypotheses=hypotheses).fit(np.where(SERIES > 5.8, np.nan, SERIES))
    again = back(model, tmp_path)
    same((again.change_points_, again.labels_), (model.change_points_, model.labels_))
    same(again.posterior_.change_probability, model.posterior_.change_probability)
    same(again.score_samples(SERIES), model.score_samples(SERIES))
    if hypotheses:
        assert again.update(1.0).log_evidence == model.update(1.0).log_evidence


def test_a_class_loads_its_own(tmp_path):
    model, path = sg.GPRegressor(learn=False).fit(X, Y), tmp_path / "model.structgp"
    model.save(path)
    same(sg.GPRegressor.load(path).predict(X), model.predict(X))
    with pytest.raises(ValueError, match=r"holds a GPRegressor, not a GPClassifier: structgp\.load reads it"):
        sg.GPClassifier.load(path)


def test_an_estimator_that_holds_code_says_so(tmp_path):
    model = sg.GPRegressor(mean=lambda x: x[0], learn=False).fit(X, Y)
    with pytest.raises(TypeError, match=r"estimator\.mean is the function <lambda>, which cannot be saved.*joblib\.dump"):
        model.save(tmp_path / "model.structgp")


class Mine(sg.GPRegressor):
    pass


def test_a_subclass_is_not_ours(tmp_path):
    with pytest.raises(TypeError, match=r"estimator is Mine, a class of .*test_results, which cannot be saved"):
        Mine(learn=False).fit(X, Y).save(tmp_path / "model.structgp")


def test_many_series_come_back(tmp_path):
    y = [np.sin(T), np.cos(T[:20])]
    gp = sg.GP(sg.Matern32(), mean=0.1)
    many = gp.fit_series([T, T[:20]], y, shared=False, restarts=0, max_evaluations=3)
    again = back(many, tmp_path)
    for p, q in zip(again.predict([1.3, 5.0]), many.predict([1.3, 5.0]), strict=True):
        same((p.mean, p.variance, p.observed.variance), (q.mean, q.variance, q.observed.variance))
    same(again[1].predict([4.5]).mean, many[1].predict([4.5]).mean)
    assert repr(again) == repr(many)
    assert again.learning == many.learning


@pytest.mark.full
def test_draws_and_referees_come_back(tmp_path):
    draws = sg.GP(sg.Matern32(), sg.Bernoulli()).mcmc(T, (np.sin(T) > 0) * 1.0, n=6, warmup=2, seed=0)
    again = back(draws, tmp_path)
    same((again.draws, again.effective_sample_size), (draws.draws, draws.effective_sample_size))
    sampled = sg.AdditiveMCMC(draws=4, burn=2).sample(X, Y, NEW, seed=0)
    again = back(sampled, tmp_path)
    same((again.mean, again.prediction().variance), (sampled.mean, sampled.prediction().variance))
    by_parts = sg.AdditiveVB(sweeps=2).fit(X, Y)
    same(back(by_parts, tmp_path).predict(NEW).variance, by_parts.predict(NEW).variance)
    greedy = sg.GreedyProjectionPursuit(most=1, starts=0, max_evaluations=3).fit(X, Y)
    same(back(greedy, tmp_path).predict(NEW).variance, greedy.predict(NEW).variance)
