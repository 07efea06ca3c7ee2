"""Derivatives, what was known at the time, lag-one covariances, priors drawn along a line: the chain against the matrix."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import structgp as sg
import zoo
from structgp.structure.derivatives import smoothness

RNG = np.random.default_rng(11)
X = RNG.uniform(-2.0, 2.0, 16)
XS = np.concatenate([RNG.uniform(-2.6, 2.6, 6), X[:2]])
Y = np.sin(2 * X) + 0.1 * RNG.standard_normal(len(X))

# name: (kernel, highest derivative, mean)
MODELS = {
    "state": (
        sg.Matern52(0.8, 1.3) + sg.IntegratedWiener(0.8, order=3, start=-2.1),
        2,
        lambda x: jnp.cos(x[0]),
    ),
    "spline": (sg.Spline(0.8), 1, None),
    "product": (sg.DampedOscillator(1.3, 0.9, 1.2) * sg.Matern32(1.5) + sg.Linear(0.4), 1, sg.polynomial(2)),
    "change": (sg.ChangePoint(sg.Matern52(0.8), sg.Matern72(0.7), 0.3, 0.4), 2, None),
}
models = pytest.mark.parametrize("name", zoo.mostly_full(MODELS, "change"))


@functools.cache
def both(name):
    kernel, _, mean = MODELS[name]
    return [sg.GP(kernel, sg.Gaussian(0.1), mean).condition(X, Y, structure=s) for s in ("dense", "markov")]


@models
def test_derivatives_are_in_the_state(name):
    dense, markov = both(name)
    for order in range(1, MODELS[name][1] + 1):
        expected, found = dense.derivative(XS, order), markov.derivative(XS, order)
        np.testing.assert_allclose(found.mean, expected.mean, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(found.variance, expected.variance, rtol=1e-9)


def test_the_dense_derivative_is_the_limit_of_differences():
    fitted = both("product")[0]
    h, x = 1e-3, np.array([-1.1, 0.2, X[3]])
    joint = fitted.predict(np.concatenate([x + h, x - h]), covariance=True)
    D = np.hstack([np.eye(3), -np.eye(3)]) / (2 * h)
    found = fitted.derivative(x)
    np.testing.assert_allclose(found.mean, D @ joint.mean, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(found.mean, fitted.gradient(x)[:, 0], rtol=1e-9)
    np.testing.assert_allclose(found.variance, np.diagonal(D @ joint.covariance @ D.T), rtol=2e-2)  # f″ is rough


def test_derivatives_of_parts_and_of_several_columns():
    gp = sg.GP(sg.Matern52(0.8) + sg.White(0.2), sg.Gaussian(0.1))
    dense, markov = (gp.condition(X, Y, structure=s).derivative(XS, part=0) for s in ("dense", "markov"))
    np.testing.assert_allclose(markov.mean, dense.mean, atol=1e-10)
    np.testing.assert_allclose(markov.variance, dense.variance, rtol=1e-9)
    two = sg.GP(sg.SquaredExponential([0.8, 1.5]), sg.Gaussian(0.1)).condition(np.stack([X, X**2], axis=1), Y)
    at = np.array([[0.3, 0.7], [-0.2, 1.0]])
    slopes = np.stack([two.derivative(at, dim=d).mean for d in (0, 1)], axis=1)
    np.testing.assert_allclose(slopes, two.gradient(at), rtol=1e-10)
    with pytest.raises(ValueError, match=r"the inputs have 2 columns: say along which one the derivative is, as in dim=0"):
        two.derivative(at)
    with pytest.raises(ValueError, match="dim must be one of the 2 columns of the inputs, counted from 0, got 2"):
        two.derivative(at, dim=2)


def test_what_has_no_derivative_says_which_term():
    _, markov = both("spline")
    with pytest.raises(ValueError, match=r"no derivative of order 2, because Spline\(.*\) has 1 derivative: choose a smoother"):
        markov.derivative(XS, 2)
    rough = sg.GP(sg.Matern52(0.8) + sg.White(0.2)).condition(X, Y, structure="dense")
    with pytest.raises(ValueError, match=r"because White\(.*\) has no derivative: ask for another part, or choose"):
        rough.derivative(XS)
    with pytest.raises(ValueError, match="order must be a whole number, 1 or more, got 0"):
        rough.derivative(XS, 0)


def test_smoothness_by_node():
    cases = [
        (sg.Matern72(), 3),
        (sg.Matern(nu=1.5) * sg.SquaredExponential(), 1),
        (sg.Spline(order=3) + 2.0 * sg.Periodic(), 2),
        (sg.ProductMatern(nu=2.5).on(0), 2),
        (sg.ChangePoint(sg.Matern52(), sg.Wiener()), 0),
        (sg.GammaExponential(), 0),
        (sg.Warp(sg.DampedOscillator(), jnp.sinh), 1),
    ]
    assert [smoothness(kernel)[0] for kernel, _ in cases] == [count for _, count in cases]


@models
def test_smoothed_and_lag_one(name):
    dense, markov = both(name)
    joint = dense.predict(np.sort(X), covariance=True).covariance
    expected, found = dense.predict(X), markov.smoothed()
    np.testing.assert_allclose(found.mean, expected.mean, atol=1e-10)
    np.testing.assert_allclose(found.variance, expected.variance, rtol=1e-9)
    np.testing.assert_allclose(markov.lag_one(), np.diagonal(joint, 1), atol=1e-10)


@pytest.mark.parametrize("name", zoo.mostly_full(["product", "change"], "change"))
def test_filtered_is_what_was_known_at_the_time(name):
    gp, filtered = both(name)[1].gp, both(name)[1].filtered()
    order = np.argsort(X)
    for count in (5, len(X)):
        past = order[:count]
        expected = gp.condition(X[past], Y[past], structure="dense").predict(X[past[-1:]])
        assert filtered.mean[past[-1]] == pytest.approx(expected.mean[0], rel=1e-8)
        assert filtered.variance[past[-1]] == pytest.approx(expected.variance[0], rel=1e-8)
    if name == "product":  # three free weights
        assert np.isinf(filtered.variance[order[:2]]).all()
        assert np.isnan(filtered.mean[order[:2]]).all()


def test_along_time_needs_the_chain():
    with pytest.raises(ValueError, match="computed along time: condition with structure='markov' to have it"):
        both("spline")[0].filtered()


PRIORS = {
    "stationary": (sg.Matern52(0.8, 1.3) + sg.Cosine(1.3), sg.Basis(lambda x: x, 0.4, 0.5)),
    "started": (sg.Wiener(0.8, start=-2.5), None),
    "change": (sg.ChangePoint(sg.Matern12(), sg.Matern32(0.7, 2.0), 0.3), None),
}


@pytest.mark.parametrize("name", zoo.mostly_full(PRIORS, "stationary"))
def test_a_prior_drawn_along_the_line(name, monkeypatch):
    kernel, mean = PRIORS[name]
    gp, count = sg.GP(kernel, sg.Gaussian(0.1), mean), 4000
    x = RNG.uniform(-2.0, 2.0, 40)
    monkeypatch.setattr("structgp.process.prior._matrix", None)  # the matrix is not used
    draws = gp.sample(x, count, seed=3)
    assert draws.shape == (count, len(x))
    np.testing.assert_array_equal(draws, gp.sample(x, count, seed=3))
    with jax.enable_x64(True):
        from structgp.structure.dense import covariance

        K = np.asarray(covariance(kernel, x[:, None], x[:, None])) + (0.5 * np.outer(x, x) if mean else 0.0)
    expected = 0.4 * x if mean else 0.0
    variance = np.diagonal(K)
    assert (np.abs(draws.mean(0) - expected) < 4.5 * np.sqrt(variance / count)).all()
    error = np.sqrt((np.outer(variance, variance) + K**2) / count)
    assert (np.abs(np.cov(draws.T) - K) < 5 * error).all()


@pytest.mark.full
def test_a_long_prior_needs_no_matrix():
    f = sg.GP(sg.Matern32(5.0)).sample(np.arange(100_000.0), seed=0)[0]
    assert np.var(f) == pytest.approx(1.0, abs=0.1)
    assert np.mean(f[1:] * f[:-1]) == pytest.approx(float(sg.Matern32(5.0)(0.0, 1.0)), abs=0.1)
