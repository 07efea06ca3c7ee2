import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import stats

import structgp as sg
import structgp.process.places as places_module
import zoo

X, Y, XS = zoo.X[2], zoo.Y[2], zoo.XS[2]
GP = sg.GP(sg.Matern52([0.7, 1.6]), sg.Gaussian(0.15))
FITTED = GP.condition(X, Y)


def test_the_plan_in_words():
    text = str(GP.plan(X))
    lines = text.splitlines()
    assert lines[0].split()[:2] == ["Cholesky", "exact"]
    assert "kflop" in lines[0]
    assert "kB" in lines[0]
    assert lines[1].strip().startswith("learn ≈ ")
    for line in lines[2:]:
        assert " no: " in line or "exact" in line
    assert repr(GP.plan(X)) == text
    assert GP.plan(X, structure="dense").engine.name == "Cholesky"
    assert FITTED.plan.engine.name == "Cholesky"


def test_reprs():
    assert repr(GP) == "GP(Matern52(lengthscale=[0.7, 1.6], variance=1), likelihood=Gaussian(noise=0.15))"
    assert "24 places" in repr(FITTED)
    assert "Prediction(7, Gaussian)" in repr(FITTED.predict(XS))


def test_summary_is_a_table():
    lines = GP.with_prior({"kernel.variance": sg.Gamma(2.0, 1.0)}).freeze("likelihood").condition(X, Y).summary().splitlines()
    row = {line.split()[0]: line for line in lines if line}
    assert "[0.7 1.6]" in row["kernel.lengthscale"]
    assert "prior Gamma(shape=2.0, rate=1.0)" in row["kernel.variance"]
    assert row["likelihood.noise"].endswith("fixed")
    assert "(24 observations)" in row["log"]
    assert "Cholesky" in row["engine"]


def test_predictions():
    p = FITTED.predict(XS)
    normal = stats.norm(p.mean, np.sqrt(p.variance + 0.15))
    assert p.mean.dtype == p.variance.dtype == np.float64
    assert isinstance(p.mean, np.ndarray)
    assert len(p) == zoo.M
    np.testing.assert_allclose(p.sd, np.sqrt(p.variance))
    np.testing.assert_allclose(p.observed.sd, normal.std())
    np.testing.assert_allclose(p.quantile([0.1, 0.5]), [normal.ppf(0.1), normal.ppf(0.5)], rtol=1e-10, atol=1e-14)
    np.testing.assert_allclose(p.quantile(0.9), normal.ppf(0.9), rtol=1e-10)
    np.testing.assert_allclose(p.interval(0.8), normal.interval(0.8), rtol=1e-10)
    np.testing.assert_allclose(p.log_prob(np.arange(7.0)), normal.logpdf(np.arange(7.0)), rtol=1e-10)
    assert p.covariance is None


def test_prediction_runs_in_pieces_of_bounded_size(monkeypatch):
    many = np.random.default_rng(0).uniform(-2, 2, (100, 2))
    whole = FITTED.predict(many)
    sizes = []
    program = places_module._marginals
    watched = lambda posterior, places, *more, **options: (
        sizes.append(len(places)) or program(posterior, places, *more, **options)
    )
    monkeypatch.setattr(places_module, "_marginals", watched)
    monkeypatch.setattr(places_module, "CHUNK_BYTES", 8 * zoo.N * 16)
    pieces = FITTED.predict(many)
    np.testing.assert_allclose(pieces.mean, whole.mean, rtol=1e-12)
    np.testing.assert_allclose(pieces.variance, whole.variance, rtol=1e-12)
    assert sizes
    assert max(sizes) <= 16


@pytest.mark.parametrize("empty", [np.zeros((0, 2)), pd.DataFrame({"a": [], "b": []}, dtype=float)])
def test_no_new_places(empty):
    p = FITTED.predict(empty)
    assert p.mean.shape == p.variance.shape == p.observed.mean.shape == (0,)
    assert FITTED.predict(empty, covariance=True).covariance.shape == (0, 0)
    assert FITTED.sample(empty, n=3).shape == (3, 0)
    assert FITTED.gradient(empty).shape == (0, 2)
    assert FITTED.equivalent_kernel(empty).shape == (0, zoo.N)
    assert p.quantile([0.1, 0.9]).shape == (2, 0)
    both = GP.condition(X, np.stack([Y, Y], axis=1))
    assert both.predict(empty).mean.shape == (0, 2)


def test_numbers_of_every_kind():
    rounded, y = np.round(4 * X), np.round(8 * Y)
    expected = GP.condition(rounded, y)
    for kind in (np.float32, np.int64, np.int8, np.float16, object):
        other = GP.condition(rounded.astype(kind), y.astype(kind))
        assert other.log_evidence == pytest.approx(expected.log_evidence, rel=1e-13)
        assert other.predict(XS.astype(np.float32)).mean.dtype == np.float64
    assert GP.condition(jnp.asarray(rounded), jnp.asarray(y)).log_evidence == pytest.approx(expected.log_evidence, rel=1e-13)
    assert GP.condition(rounded.tolist(), y.tolist()).log_evidence == pytest.approx(expected.log_evidence, rel=1e-13)


@pytest.mark.parametrize("library", [pd, pl])
def test_data_frames(library):
    frame, target = library.DataFrame({"a": X[:, 0], "b": X[:, 1]}), library.Series(Y)
    fitted = GP.condition(frame, target, noise=library.Series(np.full(zoo.N, 0.1)))
    expected = GP.condition(X, Y, noise=0.1)
    assert fitted.log_evidence == pytest.approx(expected.log_evidence, rel=1e-13)
    np.testing.assert_array_equal(fitted.predict(frame[: zoo.M]).mean, expected.predict(X[: zoo.M]).mean)


def test_gaps_in_a_data_frame_are_missing_values():
    y = pl.Series([None, *Y[1:]])
    assert np.isfinite(GP.condition(X, y, missing="infer").log_evidence)
    with pytest.raises(ValueError, match=r"y has 1 NaN \(row 0\)"):
        GP.condition(X, y)


def test_one_column_of_targets_stays_a_column():
    column = GP.condition(X, Y[:, None])
    assert column.predict(XS).mean.shape == column.predict(XS).variance.shape == (zoo.M, 1)
    assert column.leave_one_out().mean.shape == (zoo.N, 1)
    np.testing.assert_allclose(column.predict(XS).mean[:, 0], FITTED.predict(XS).mean, rtol=1e-12)


def test_parts_of_a_sum_add_up():
    gp = sg.GP(sg.Matern52(0.7) + sg.Linear(0.5), sg.Gaussian(0.15))
    fitted = gp.condition(X, Y)
    parts = [fitted.predict(XS, part=i).mean for i in range(2)]
    np.testing.assert_allclose(sum(parts), fitted.predict(XS).mean, rtol=1e-10)
    one, joint = fitted.predict(XS, part=1), fitted.predict(XS, part=1, covariance=True)
    np.testing.assert_allclose(np.diagonal(joint.covariance), one.variance, rtol=1e-9)
    np.testing.assert_allclose(joint.mean, one.mean, rtol=1e-9)
    few = sg.GP(sg.Linear() + sg.Polynomial(2), sg.Gaussian(0.15)).condition(X, Y, structure="features")
    with pytest.raises(ValueError, match="covariance of a part is not available for this structure: leave out"):
        few.predict(XS, part=0, covariance=True)


def test_the_callers_precision_stays_as_it_was():
    assert not jax.config.jax_enable_x64
    FITTED.predict(XS)
    GP.sample(XS)
    assert not jax.config.jax_enable_x64
    with jax.enable_x64(True):
        inside = GP.condition(X, Y)
    assert inside.log_evidence == FITTED.log_evidence


def test_a_gp_holds_no_data_and_a_fit_changes_nothing():
    before = repr(GP)
    fitted = GP.fit(X, Y, restarts=0)
    assert repr(GP) == before
    assert repr(fitted.gp) != before
    assert fitted.kernel is fitted.gp.kernel
    assert fitted.likelihood is fitted.gp.likelihood


def test_pickle_round_trip():
    again = pickle.loads(pickle.dumps(FITTED))
    np.testing.assert_array_equal(again.predict(XS).mean, FITTED.predict(XS).mean)


def test_one_row():
    fitted = sg.GP(sg.Matern52()).fit([1.0], [2.0], restarts=0)
    assert fitted.predict([1.0, 2.0]).mean.shape == (2,)
    assert np.isfinite(fitted.log_evidence)


def test_constant_y():
    fitted = sg.GP(sg.Matern52(), mean=0.0).fit(zoo.X[1], np.full(zoo.N, 5.0), restarts=0)
    np.testing.assert_allclose(fitted.predict(zoo.XS[1]).mean, 5.0, atol=1e-2)


def test_duplicated_rows():
    doubled = GP.condition(np.repeat(X, 2, axis=0), np.repeat(Y, 2))
    halved = sg.GP(GP.kernel, sg.Gaussian(0.075)).condition(X, Y)
    np.testing.assert_allclose(doubled.predict(XS).mean, halved.predict(XS).mean, rtol=1e-10)
    np.testing.assert_allclose(doubled.predict(XS).variance, halved.predict(XS).variance, rtol=1e-9)


def test_basis_weights_are_moments_with_standard_deviations():
    weights = sg.GP(sg.Matern52(0.7), mean=sg.polynomial(1)).condition(X, Y).basis_weights()
    assert weights.mean.shape == weights.sd.shape == (3,)
    assert (weights.sd > 0).all()


def test_weights_that_the_kernel_leaves_free_have_no_prior_mean():
    phi = lambda x: jnp.cos(x)
    scalar, vector = (
        sg.GP(sg.Spline(), mean=sg.Basis(phi, mean, 0.5)).condition(zoo.X[1], zoo.Y[1]).basis_weights().mean
        for mean in (2.0, [2.0])
    )
    np.testing.assert_allclose(scalar, vector, rtol=1e-12)


def test_variances_of_the_joint_are_not_negative():
    fitted = sg.GP(sg.SquaredExponential(1.0), sg.Gaussian(0.0)).condition(np.linspace(0, 1, zoo.N), np.zeros(zoo.N))
    assert (fitted.predict(np.linspace(0, 1, 50), covariance=True).variance >= 0).all()


def test_a_summary_counts_repeated_rows():
    repeated = np.concatenate([X, X[:2]])
    assert "2 of 26 rows repeat an earlier one" in GP.condition(repeated, np.concatenate([Y, Y[:2]])).summary()
    assert "repeat" not in GP.condition(X, Y).summary()


def test_the_equivalent_kernel_is_that_of_the_kernel_that_was_used():
    t, y = np.linspace(0, 5, zoo.N), zoo.Y[1]
    fitted = sg.GP(sg.SquaredExponential(), sg.Gaussian(0.1)).condition(t, y, approximate="state-space")
    at = np.array([-0.5, 1.3, 5.5])
    np.testing.assert_allclose(fitted.equivalent_kernel(at) @ np.ravel(y), fitted.predict(at).mean, rtol=1e-9, atol=1e-11)
