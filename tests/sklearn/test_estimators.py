import pickle

import joblib
import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import structgp as sg
import zoo
from checks import checks_of
from structgp import GPClassifier, GPCountRegressor, GPRegressor

X, XS, y = zoo.X[2], zoo.XS[2], zoo.Y[2]
Y = np.stack([y, 100 + 1000 * np.cos(X[:, 1])], axis=1)
KERNEL = sg.Matern52([0.7, 1.6], 1.2)


ALONE = ("check_fit2d_1sample", "check_fit2d_1feature", "check_estimators_nan_inf")


@pytest.mark.averaged
@pytest.mark.parametrize(
    ("estimator", "check"),
    [
        *checks_of(GPRegressor(), kept=ALONE),
        *checks_of(GPClassifier(max_evaluations=10), rare=None),
    ],
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def model():
    return GPRegressor(KERNEL, noise=0.05, learn=False).fit(X, y)


@pytest.fixture(scope="module")
def several():
    return GPRegressor(restarts=0, max_evaluations=30).fit(X, Y)


# fitting


def test_what_is_learned_is_what_gp_learns():
    model = GPRegressor(restarts=0).fit(X, y)
    gp = sg.GP(sg.Matern52(np.ones(2)), sg.Gaussian(), 0.0).fit(X, y, restarts=0)
    assert model.log_evidence_ == gp.log_evidence
    assert repr(model.kernel_) == repr(gp.kernel)
    assert model.noise_ == float(gp.likelihood.noise)
    assert model.plan_ == gp.plan
    assert model.fitted_.learning.converged
    assert model.n_features_in_ == 2
    assert model.kernel is None
    np.testing.assert_allclose(model.predict(XS), gp.predict(XS).mean, rtol=1e-10)
    assert 0.8 < model.score(X, y) <= 1


def test_learn_false_leaves_the_parameters_as_they_are(model):
    assert repr(model.kernel_) == repr(KERNEL)
    assert model.noise_ == 0.05
    assert model.fitted_.learning is None


def test_random_state_makes_restarts_repeatable():
    fit = lambda state: GPRegressor(KERNEL, restarts=1, max_evaluations=4, random_state=state).fit(X, y).fitted_.learning.spread
    assert fit(3) == fit(3) == fit(3)
    assert fit(3) != fit(4)


def test_a_number_for_the_noise_is_kept_and_learned_starts_there():
    options = {"restarts": 0, "max_evaluations": 5}
    assert GPRegressor(KERNEL, noise=0.3, **options).fit(X, y).noise_ == 0.3
    assert GPRegressor(KERNEL, noise=sg.learned(0.3), **options).fit(X, y).noise_ != 0.3
    assert GPRegressor(KERNEL, noise=0.0, learn=False).fit(X, y).predict(X) == pytest.approx(y, abs=1e-6)


def test_known_noise_of_each_row_goes_to_fit(model):
    noise = np.linspace(0.01, 2.0, len(y))
    given = GPRegressor(KERNEL, noise=0.05, learn=False).fit(X, y, noise=noise)
    expected = sg.GP(KERNEL, sg.Gaussian(0.05), 0.0).condition(X, y, noise=noise)
    assert given.log_evidence_ == expected.log_evidence
    assert given.log_evidence_ != model.log_evidence_


@pytest.mark.parametrize("mean", ["zero", "constant", "linear", 1.5, None, sg.LinearMean([0.3, 0.1])])
def test_means(mean):
    model = GPRegressor(KERNEL, mean=mean, learn=False).fit(X, y)
    types = {"zero": sg.ZeroMean, None: sg.ZeroMean, "constant": sg.ConstantMean, 1.5: sg.ConstantMean}
    expected = types.get(mean, sg.LinearMean) if mean is None or isinstance(mean, (str, float)) else sg.LinearMean
    assert type(model.fitted_.gp.mean) is expected


def test_structure_is_passed_on():
    assert GPRegressor(KERNEL, structure="dense", learn=False).fit(X, y).plan_.engine.structure == "dense"
    with pytest.raises(ValueError, match="structure must be 'auto' or one of"):
        GPRegressor(KERNEL, structure="magic", learn=False).fit(X, y)


# predicting


def test_the_spread_is_of_a_new_observation_unless_latent(model):
    p = model.fitted_.predict(XS)
    mean, std = model.predict(XS, return_std=True)
    np.testing.assert_array_equal(mean, model.predict(XS))
    np.testing.assert_allclose(std**2, p.variance + 0.05)
    np.testing.assert_allclose(model.predict(XS, return_std=True, latent=True)[1] ** 2, p.variance)
    for latent in (False, True):
        cov, std = (model.predict(XS, latent=latent, **{name: True})[1] for name in ("return_cov", "return_std"))
        assert cov.shape == (len(XS), len(XS))
        np.testing.assert_allclose(np.diag(cov), std**2)
        np.testing.assert_allclose(cov, cov.T, atol=1e-14)
    np.testing.assert_allclose(cov, model.fitted_.predict(XS, covariance=True).covariance)


def test_it_agrees_with_the_regressor_of_scikit_learn(model):
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

    kernel = ConstantKernel(1.2) * Matern([0.7, 1.6], nu=2.5) + WhiteKernel(0.05)
    theirs = GaussianProcessRegressor(kernel, optimizer=None).fit(X, y)
    for ours, other in zip(model.predict(XS, return_std=True), theirs.predict(XS, return_std=True), strict=True):
        np.testing.assert_allclose(ours, other, rtol=1e-7)
    np.testing.assert_allclose(
        model.predict(XS, return_cov=True)[1], theirs.predict(XS, return_cov=True)[1], rtol=1e-7, atol=1e-9
    )
    np.testing.assert_allclose(model.log_evidence_, theirs.log_marginal_likelihood_value_, rtol=1e-8)


def test_samples(model, several):
    draws = model.sample_y(XS, n_samples=500)
    mean, std = model.predict(XS, return_std=True)
    assert draws.shape == (len(XS), 500)
    assert np.all(np.abs(draws.mean(axis=1) - mean) < 5 * std / np.sqrt(500))
    assert np.all(np.abs(draws.std(axis=1) / std - 1) < 0.2)
    assert model.sample_y(XS).shape == (len(XS), 1)
    assert several.sample_y(XS, n_samples=3).shape == (len(XS), 2, 3)
    np.testing.assert_array_equal(model.sample_y(XS, random_state=1), model.sample_y(XS, random_state=1))
    assert not np.array_equal(model.sample_y(XS, random_state=1), model.sample_y(XS, random_state=2))
    latent = model.sample_y(XS, 500, latent=True)
    np.testing.assert_allclose(latent.std(axis=1), model.predict(XS, return_std=True, latent=True)[1], rtol=0.2)


@pytest.mark.averaged
def test_log_prob(model, several):
    mean, std = model.predict(XS, return_std=True)
    expected = -0.5 * ((0.3 - mean) / std) ** 2 - np.log(std * np.sqrt(2 * np.pi))
    np.testing.assert_allclose(model.log_prob(XS, np.full(len(XS), 0.3)), expected)
    alone = clone(several).set_params(parameters="best").fit(X, Y)
    mean, std = alone.predict(XS, return_std=True)
    np.testing.assert_allclose(alone.log_prob(XS, mean + std), -0.5 - np.log(std * np.sqrt(2 * np.pi)))
    # averaged over parameters it is the density of the mixture
    mixed = clone(several).fit(X, Y)
    prediction = mixed.fitted_.predict(XS)
    each = np.stack([member.log_prob(prediction.mean) for member in prediction.members])
    units = mixed._center + mixed._scale * prediction.mean
    expected = np.log(np.mean(np.exp(each), axis=0)) - np.log(mixed._scale)
    np.testing.assert_allclose(mixed.log_prob(XS, units), expected, rtol=1e-6)


def test_no_rows_to_predict(model):
    mean, std = model.predict(np.zeros((0, 2)), return_std=True)
    assert mean.shape == std.shape == (0,)


# several targets and their units


def test_several_targets_of_different_size_are_each_well_fitted(several):
    mean, std = several.predict(XS, return_std=True)
    assert mean.shape == std.shape == (len(XS), 2)
    assert several.predict(XS, return_cov=True)[1].shape == (len(XS), len(XS), 2)
    np.testing.assert_allclose(np.diagonal(several.predict(XS, return_cov=True)[1]).T, std**2)
    assert np.all(np.var(Y - several.predict(X), axis=0) < 0.2 * np.var(Y, axis=0))


def test_one_column_stays_a_column():
    model = GPRegressor(KERNEL, learn=False).fit(X, y[:, None])
    assert model.predict(XS).shape == model.predict(XS, return_std=True)[1].shape == (len(XS), 1)
    assert model.sample_y(XS, 4).shape == (len(XS), 1, 4)
    assert model.predict(XS, return_cov=True)[1].shape == (len(XS), len(XS), 1)


def test_normalisation_is_a_change_of_units():
    scale, noise = y.std(), np.full(len(y), 0.2)
    normal = GPRegressor(KERNEL, noise=0.05, mean="zero", learn=False, normalize_y=True).fit(X, y, noise=noise)
    kernel = KERNEL.replace(variance=1.2 * scale**2)
    plain = GPRegressor(kernel, noise=0.05 * scale**2, mean="zero", learn=False).fit(X, y - y.mean(), noise=noise)
    np.testing.assert_allclose(normal.log_evidence_, plain.log_evidence_)
    (mean, std), (centred, same) = (model.predict(XS, return_std=True) for model in (normal, plain))
    np.testing.assert_allclose(mean, centred + y.mean())
    np.testing.assert_allclose(std, same)
    np.testing.assert_allclose(normal.log_prob(XS, np.zeros(len(XS))), plain.log_prob(XS, np.full(len(XS), -y.mean())))


def test_several_targets_are_normalised_only_where_the_model_is_ours(several):
    assert not np.array_equal(several._scale, [1, 1])
    for options in ({"kernel": KERNEL}, {"noise": 0.1}, {"mean": 0.5}, {"normalize_y": False}):
        assert np.array_equal(GPRegressor(learn=False, **options).fit(X, Y)._scale, [1, 1])
    assert GPRegressor(learn=False).fit(X, y)._scale == 1
    constant = GPRegressor(learn=False).fit(X, np.stack([y, np.full_like(y, 0.1)], axis=1))
    np.testing.assert_allclose(constant.predict(XS)[:, 1], 0.1)
    assert constant._scale[1] == 1


# among the tools of scikit-learn


def test_pipeline_grid_search_and_cross_validation():
    pipeline = make_pipeline(StandardScaler(), GPRegressor(learn=False))
    grid = {"gpregressor__kernel": [KERNEL, sg.Matern12(0.5)], "gpregressor__noise": [0.01, 0.1]}
    search = GridSearchCV(pipeline, grid, cv=2).fit(X, y)
    assert search.best_params_["gpregressor__noise"] in (0.01, 0.1)
    assert search.predict(XS).shape == (len(XS),)
    assert cross_val_score(GPRegressor(KERNEL, noise=0.01, learn=False), X, y, cv=2).shape == (2,)


def test_clone_and_set_params():
    kernel = (sg.Matern32(sg.fixed(0.8)) + sg.Constant()).tie("terms[0].variance", "terms[1].variance")
    first = GPRegressor(kernel, noise=sg.learned(0.1, prior=sg.LogNormal(0, 1)), restarts=2)
    second = clone(first)
    assert repr(second.kernel) == repr(kernel)
    assert second.kernel.ties == kernel.ties
    assert second.noise == first.noise
    assert second.set_params(restarts=5, kernel=KERNEL).get_params()["restarts"] == 5
    assert first.restarts == 2
    assert "Matern32(lengthscale=0.8" in repr(first)


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_data_frames(frame):
    table, target = frame({"depth": X[:, 0], "age": X[:, 1]}), frame({"y": y})["y"]
    model = GPRegressor(KERNEL, learn=False).fit(table, target)
    assert list(model.feature_names_in_) == ["depth", "age"]
    np.testing.assert_array_equal(model.predict(table), GPRegressor(KERNEL, learn=False).fit(X, y).predict(X))
    with pytest.raises(ValueError, match="feature names should match those that were passed during fit"):
        model.predict(frame({"age": X[:, 0], "depth": X[:, 1]}))
    with pytest.raises(TypeError, match=r"X has columns that are not numeric: 'place' \(String\); encode them"):
        model.fit(frame({"depth": X[:, 0], "place": ["a"] * len(X)}), y)
    with pytest.raises(ValueError, match=r"X has 1 NaN \(row 3; column age\): inputs must be known"):
        model.fit(frame({"depth": X[:, 0], "age": np.where(np.arange(len(X)) == 3, np.nan, X[:, 1])}), y)


def test_pickle_keeps_every_digit(model, tmp_path):
    joblib.dump(model, tmp_path / "model.joblib")
    for again in (pickle.loads(pickle.dumps(model)), joblib.load(tmp_path / "model.joblib")):
        for ours, theirs in zip(model.predict(XS, return_std=True), again.predict(XS, return_std=True), strict=True):
            np.testing.assert_array_equal(ours, theirs)
        assert again.log_evidence_ == model.log_evidence_
        assert again.fitted_.update(XS, np.zeros(len(XS))).log_evidence == pytest.approx(
            model.fitted_.update(XS, np.zeros(len(XS))).log_evidence
        )


def test_the_fitted_model_can_be_saved(model, tmp_path):
    model.fitted_.save(tmp_path / "m.structgp")
    np.testing.assert_allclose(sg.load(tmp_path / "m.structgp").predict(XS).mean, model.predict(XS), rtol=1e-12)


# bad input


def test_use_before_fit():
    for use in (lambda m: m.predict(XS), lambda m: m.sample_y(XS), lambda m: m.score(X, y), lambda m: m.log_prob(X, y)):
        with pytest.raises(NotFittedError, match="is not fitted yet"):
            use(GPRegressor())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"noise": [0.1] * 24}, r"noise must be one variance, got shape \(24,\): noise for each row goes to fit"),
        ({"noise": -1.0}, "Gaussian: noise must be zero or positive"),
        ({"mean": "flat"}, r"mean must be one of \['zero', 'constant', 'linear'\], a number, a function or a Mean, got 'flat'"),
        ({"normalize_y": "yes"}, "normalize_y must be True, False or 'auto', got 'yes'"),
        ({"restarts": -1}, "restarts must be a whole number, 0 or more, got -1"),
        ({"kernel": sg.Matern52([1.0, 1.0, 1.0])}, "has lengthscales for 3 columns but the inputs have 2"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(ValueError, match=message):
        GPRegressor(**options).fit(X, y)


def test_a_class_for_a_kernel():
    with pytest.raises(TypeError, match=r"got the class Matern52: call it, Matern52\(\)"):
        GPRegressor(sg.Matern52).fit(X, y)


@pytest.mark.parametrize(
    ("rows", "targets", "message"),
    [
        (X, np.where(np.arange(len(y)) == 4, np.nan, y), r"y has 1 NaN \(row 4\): drop these rows"),
        (X, np.where(np.arange(len(y)) == 4, np.inf, y), r"y has 1 infinity \(row 4\): drop these rows"),
        (X, np.where(np.arange(len(y)) == 4, np.nan, Y.T).T, r"y has 2 NaN \(row 4\): drop these rows"),
        (X, np.zeros((len(y), 2, 2)), r"y must have one value \(or one row of targets\) for each of the 24 rows"),
        (np.where(X > 1.9, np.nan, X), y, r"X has \d+ NaN \(rows .*; columns? .*\): inputs must be known"),
        (X, y[:-1], r"Found input variables with inconsistent numbers of samples: \[24, 23\]"),
        (X, None, "requires y to be passed, but the target y is None"),
        (X, ["a"] * len(X), "y must be numeric, but row 0 holds 'a'"),
        (X[:0], y[:0], r"0 sample\(s\)"),
        (X[:, 0], y, "Reshape your data"),
    ],
)
def test_bad_data(rows, targets, message):
    with pytest.raises(ValueError, match=message):
        GPRegressor(learn=False).fit(rows, targets)


def test_both_spreads_or_known_noise_for_normalised_targets_are_refused(model):
    with pytest.raises(ValueError, match="return_std and return_cov ask for two answers: take one"):
        model.predict(XS, return_std=True, return_cov=True)
    with pytest.raises(ValueError, match="known noise cannot be shared by targets that are normalised one by one"):
        GPRegressor(normalize_y=True).fit(X, Y, noise=0.1)
    with pytest.raises(ValueError, match="X has 3 features, but GPRegressor is expecting 2 features"):
        model.predict(np.zeros((4, 3)))


@pytest.mark.parametrize("dtype", [np.float32, np.int64, object])
def test_other_kinds_of_numbers(dtype):
    rows, targets = np.round(X).astype(dtype), np.round(10 * y).astype(dtype)
    model = GPRegressor(KERNEL, noise=0.1, learn=False).fit(rows, targets)
    expected = GPRegressor(KERNEL, noise=0.1, learn=False).fit(np.round(X), np.round(10 * y))
    assert model.predict(rows).dtype == np.float64
    np.testing.assert_array_equal(model.predict(rows), expected.predict(np.round(X)))


def test_one_row_constant_y_and_duplicated_rows():
    one = GPRegressor(restarts=0).fit([[1.0, 2.0]], [3.0])
    assert np.isfinite(one.predict([[1.0, 2.0], [5.0, 5.0]])).all()
    constant = GPRegressor(restarts=0, parameters="best").fit(X, np.full(len(X), 5.0))
    np.testing.assert_allclose(constant.predict(XS), 5.0, rtol=1e-6)
    mean, std = GPRegressor(restarts=0).fit(X, np.full(len(X), 5.0)).predict(XS, return_std=True)
    assert np.all(np.abs(mean - 5.0) < 0.1 * std)  # of draws of the level
    twice = GPRegressor(KERNEL, noise=0.1, learn=False).fit(np.repeat(X[:12], 2, axis=0), np.repeat(y[:12], 2))
    assert np.isfinite(twice.predict(XS)).all()


LABELS = np.array(["low", "high"])[(y > 0).astype(int)]


def test_a_classifier_answers_with_the_labels_it_was_given():
    model = GPClassifier(max_evaluations=10).fit(100 + 50 * X, LABELS)
    p = model.predict_proba(100 + 50 * XS)
    assert model.classes_.tolist() == ["high", "low"]
    np.testing.assert_allclose(p.sum(axis=1), 1.0)
    assert (model.predict(100 + 50 * XS) == model.classes_[p.argmax(axis=1)]).all()
    assert model.score(100 + 50 * X, LABELS) > 0.8
    assert model.fitted_.inference.method == "ep"
    assert model.likelihood_.link == "probit"


def test_several_classes_stand_each_against_the_rest_or_all_together():
    labels = np.digitize(y, np.quantile(y, [0.3, 0.7]))
    kernel = sg.SquaredExponential(1.0, 2.0)
    model = GPClassifier(kernel, learn=False).fit(X, labels)
    each = [GPClassifier(kernel, learn=False).fit(X, labels == c).predict_proba(XS)[:, 1] for c in range(3)]
    np.testing.assert_allclose(model.predict_proba(XS), np.stack(each, axis=1) / np.sum(each, axis=0)[:, None], rtol=1e-9)
    assert model.kernel_ == (kernel,) * 3
    assert {part.inference.method for part in model.fitted_.parts} == {"ep"}
    together = GPClassifier(kernel, learn=False, multi_class="softmax").fit(X, labels)
    assert together.fitted_.inference.method == "laplace"
    assert np.mean(together.predict(XS) == model.predict(XS)) > 0.8
    with pytest.raises(ValueError, match="multi_class must be 'one-against-rest' or 'softmax', got 'ovo'"):
        GPClassifier(multi_class="ovo").fit(X, labels)


@pytest.mark.full
def test_a_classifier_of_one_column_runs_along_it():
    model = GPClassifier(max_evaluations=5).fit(X[:, :1], LABELS)
    assert model.plan_.engine.structure == "markov"


@pytest.mark.full
def test_counts_and_exposure():
    counts = np.round(np.exp(1 + 0.5 * y))
    model = GPCountRegressor(max_evaluations=10).fit(X, counts, exposure=np.full(len(y), 2.0))
    mean, sd = model.predict(XS, exposure=4.0, return_std=True)
    np.testing.assert_allclose(mean, 2 * model.predict(XS, exposure=2.0), rtol=1e-9)
    low, high = model.predict_interval(XS, exposure=4.0)
    assert ((low <= mean) & (mean <= high)).all()
    assert (sd > 0).all()
    assert np.isfinite(model.log_prob(X, counts, exposure=2.0)).all()
    with pytest.raises(ValueError, match="counts 0, 1, 2"):
        GPCountRegressor().fit(X, y)
    with pytest.raises(ValueError, match="family must be one of"):
        GPCountRegressor(family="normal").fit(X, counts)


@pytest.mark.full
def test_noise_with_outliers_by_name():
    times = np.linspace(0, 6, len(y))[:, None]
    truth = np.sin(times[:, 0])
    spoiled = truth + 0.05 * np.cos(40 * times[:, 0]) + np.where(np.arange(len(y)) % 8 == 4, 5.0, 0.0)
    robust = GPRegressor(noise="student-t", max_evaluations=30).fit(times, spoiled)
    plain = GPRegressor(max_evaluations=30, restarts=0).fit(times, spoiled)
    assert robust.fitted_.inference.converged
    off = lambda model: np.abs(model.predict(times) - truth).mean()
    assert off(robust) < 0.2 * off(plain)
    with pytest.raises(ValueError, match="noise must be a variance, a Likelihood or one of"):
        GPRegressor(noise="loud").fit(X, y)
