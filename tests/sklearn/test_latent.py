"""GPLVM among scikit-learn's transformers: maps, new rows, missing cells, units, files, pictures, and its checks."""

import numpy as np
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import structgp as sg
from checks import checks_of

QUICK = {"inducing": 10, "max_evaluations": 40}
RNG = np.random.default_rng(0)
T = np.sort(RNG.uniform(0, 3, 40))
X = np.column_stack([np.sin(T), np.cos(T), np.sin(2 * T), T]) + 0.02 * RNG.standard_normal((40, 4))


@pytest.mark.parametrize(("estimator", "check"), [*checks_of(sg.GPLVM(1, inducing=5, max_evaluations=5), rare=None)])
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def fitted():
    return sg.GPLVM(1, **QUICK).fit(X)


def ranks(values):
    return np.argsort(np.argsort(values))


def test_a_curve_is_laid_out_along_its_length(fitted):
    assert abs(np.corrcoef(ranks(fitted.embedding_[:, 0]), ranks(T))[0, 1]) > 0.99
    assert fitted.dimensions_ == 1
    assert fitted.get_feature_names_out().tolist() == ["gplvm0"]
    np.testing.assert_array_equal(fitted.transform(X[7:9]), fitted.embedding_[7:9])
    mean, sd = fitted.inverse_transform(fitted.embedding_, return_std=True)
    assert np.sqrt(np.mean((mean - X) ** 2)) < 0.06
    assert np.mean(np.abs(mean - X) < 3 * sd) > 0.95
    away = fitted.inverse_transform([[9.0]], return_std=True)[1]
    assert (away > 3 * sd.mean(axis=0)).all()
    assert "40 rows of 4 columns in 1 coordinates" in fitted.summary()


def test_new_rows_are_found_also_by_some_of_their_cells(fitted):
    t = np.array([1.6, 2.2])
    new = np.column_stack([np.sin(t), np.cos(t), np.sin(2 * t), t])
    z = fitted.transform(new)
    near = T[np.argmin(np.abs(fitted.embedding_ - z.T), axis=0)]
    np.testing.assert_allclose(near, t, atol=0.15)
    holes = np.where([[False, True, False, False], [True, True, False, False]], np.nan, new)
    filled, sd = fitted.impute(holes, return_std=True)
    np.testing.assert_array_equal(filled[np.isfinite(holes)], holes[np.isfinite(holes)])
    assert ((sd > 0) == np.isnan(holes)).all()
    np.testing.assert_allclose(filled, new, atol=0.2)
    np.testing.assert_allclose(fitted.transform(new[:1]), z[:1], atol=1e-6)  # rows do not know of each other


def test_missing_cells_and_columns_that_never_change():
    holes = np.where(np.random.default_rng(1).uniform(size=X.shape) < 0.15, np.nan, X)
    table = np.insert(holes, 2, 7.0, axis=1)
    model = sg.GPLVM(1, noise="columns", **QUICK).fit(table)
    filled = model.impute(table)
    gone = np.isnan(table)
    truth = np.insert(X, 2, 7.0, axis=1)
    assert np.sqrt(np.mean((filled - truth)[gone] ** 2)) < 0.3
    mean, spread = model.inverse_transform(model.embedding_[:2], return_std=True)
    assert (mean[:, 2] == 7).all()
    assert (spread[:, 2] == 0).all()
    assert np.shape(model.noise_) == (4,)
    assert "1 columns never change" in model.summary()


def test_other_units_give_the_same_map(fitted):
    factors = np.array([1e3, -1e-6, 5.0, 1.0])
    other = sg.GPLVM(1, **QUICK).fit(X * factors + [0.0, 1.0, 2.0, 3.0])
    np.testing.assert_allclose(other.embedding_, fitted.embedding_, rtol=1e-4, atol=1e-4)
    moved = fitted.log_evidence_ - X.shape[0] * np.sum(np.log(np.abs(factors)))
    np.testing.assert_allclose(other.log_evidence_, moved, rtol=1e-5)
    again = sg.GPLVM(1, **QUICK).fit(X)
    np.testing.assert_array_equal(again.embedding_, fitted.embedding_)


def test_files_and_pipelines(fitted, tmp_path):
    fitted.save(tmp_path / "map.structgp")
    again = sg.load(tmp_path / "map.structgp")
    np.testing.assert_array_equal(again.transform(X), fitted.transform(X))
    np.testing.assert_allclose(again.inverse_transform([[0.3]]), fitted.inverse_transform([[0.3]]), rtol=1e-12)
    assert make_pipeline(StandardScaler(), sg.GPLVM(1, **QUICK)).fit_transform(X).shape == (40, 1)


def test_relevance_chooses_the_dimension():
    model = sg.GPLVM("auto", inducing=15, max_evaluations=150).fit(X)
    assert model.dimensions_ <= 2
    assert model.relevance_[0] == 1
    assert model.embedding_std_.shape == model.embedding_.shape
    assert (model.embedding_std_ < 0.5).all()


def test_a_path_along_time_is_smoother():
    times = np.arange(40.0)[::-1]
    noisy = X + 0.15 * np.random.default_rng(2).standard_normal(X.shape)
    free = sg.GPLVM(1, start="pca", **QUICK).fit(noisy)
    path = sg.GPLVM(1, start="pca", dynamics=sg.Matern32(10.0), **QUICK).fit(noisy, times=times)
    rough = lambda Z: np.sum(np.diff(Z, 2, axis=0) ** 2) / np.sum((Z - Z.mean()) ** 2)
    assert rough(path.embedding_) < 0.5 * rough(free.embedding_)
    assert type(path.fitted_.model.path.engine).__name__ == "Kalman"


def test_back_constraints_are_functions_of_rows():
    model = sg.GPLVM(1, back_constraints=True, **QUICK).fit(X)
    assert abs(np.corrcoef(ranks(model.embedding_[:, 0]), ranks(T))[0, 1]) > 0.99
    near = model.transform(X + 1e-4)
    np.testing.assert_allclose(near, model.embedding_, atol=2e-2)
    kernel = sg.GPLVM(1, back_constraints=sg.Matern52(1.0), **QUICK).fit(X)
    assert np.isfinite(kernel.transform(np.where(X > 0.9, np.nan, X))).all()


@pytest.mark.parametrize(
    ("options", "table", "message"),
    [
        ({"dimensions": 5}, X, "dimensions=5, but X has n_features = 4 columns"),
        ({"dimensions": "many"}, X, "a whole number or 'auto', got 'many'"),
        ({"dimensions": 0}, X, "dimensions must be a whole number, 1 or more"),
        ({}, X[:3], "3 rows: 2 coordinates need 4 rows or more"),
        ({}, np.ones((9, 3)), "every column is constant"),
        ({}, np.where(np.arange(4) == 1, np.nan, X), "no number at all is in column 1: leave it out"),
        ({}, np.where(np.arange(40)[:, None] == 6, np.nan, X), r"rows of NaN alone \(row 6\)"),
        ({"start": "isomap"}, X, r"start must be one of \['diffusion', 'pca'\] or an array"),
        ({"start": np.zeros((3, 2))}, X, r"finite numbers of shape \(40, 2\)"),
        ({"scale": "rows"}, X, "scale must be 'columns' or 'all'"),
        ({"noise": "none"}, X, "noise must be 'shared' or 'columns'"),
        ({"kernel": sg.Matern32(), "bayesian": True}, X, "expectations of Matern32 over a Gaussian are not known"),
        ({"dynamics": sg.Matern32()}, X, "dynamics along time need both"),
        ({"back_constraints": True, "bayesian": True}, X, "back-constraints take latent inputs that are points"),
        ({"back_constraints": 3}, X, "back_constraints must be True, False or a kernel"),
    ],
)
def test_what_cannot_be_says_so(options, table, message):
    with pytest.raises(ValueError, match=message):
        sg.GPLVM(**options).fit(table)


def test_what_cannot_be_asked_of_a_map_says_so(fitted):
    with pytest.raises(ValueError, match="a column for each of the 1 coordinates, got shape"):
        fitted.inverse_transform([[0.0, 1.0]])
    with pytest.raises(ValueError, match="times must be one number for each of the 40 rows of X, got 3"):
        sg.GPLVM(1, dynamics=sg.Matern32()).fit(X, times=[0.0, 1.0, 2.0])
    with pytest.raises(ValueError, match="dynamics must be a kernel of time"):
        sg.GPLVM(1, dynamics=2.0).fit(X, times=T)


def test_pictures(fitted):
    pytest.importorskip("matplotlib").use("Agg")
    from matplotlib import pyplot as plt

    assert fitted.plot().get_ylabel() == "row"
    two = sg.GPLVM(2, **{**QUICK, "max_evaluations": 3}).fit(X)
    ax = two.plot(labels=np.where(T > 1, "late", "early"))
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["early", "late"]
    assert two.plot(labels=T).get_xlabel() == "coordinate 1"
    with pytest.raises(ValueError, match="labels must be one for each of the 40 rows"):
        two.plot(labels=T[:3])
    plt.close("all")
