"""Several outputs through few functions, lengthscales that change, and poles against formulas."""

import jax
import numpy as np
import pytest
from scipy import stats

import structgp as sg

RNG = np.random.default_rng(5)
X = np.column_stack([RNG.uniform(0, 4, 20), np.arange(20) % 2])
Y = np.sin(2 * X[:, 0]) * (1 + X[:, 1]) + 0.1 * RNG.standard_normal(20)
NEW = np.array([[0.3, 0.0], [2.2, 1.0], [5.0, 0.0]])
FILTERS = sg.GaussianFilters(2, 1, lengthscale=[[0.6], [0.9]])
NOISE = sg.Gaussian([0.02, 0.05])
COVARIANCE = jax.jit(sg.covariance)


def test_reduced_rank_outputs_with_all_inputs_are_the_whole_process():
    dense = sg.GP(FILTERS, NOISE).condition(X, Y, structure="dense")
    p = dense.predict(NEW)
    for method in ("vfe", "sor"):
        fitted = sg.GP(FILTERS, NOISE).condition(X, Y, approximate=sg.Inducing(X, method))
        assert fitted.log_evidence == pytest.approx(dense.log_evidence, abs=1e-4)
        q = fitted.predict(NEW) if method == "vfe" else sg.augmented(fitted, NEW)
        np.testing.assert_allclose(q.mean, p.mean, atol=1e-4)
        np.testing.assert_allclose(q.variance, p.variance, atol=1e-4)


@pytest.mark.full
def test_fewer_inputs_than_rows_are_learned_for_several_outputs():
    t = np.linspace(0, 4, 60)
    table = np.column_stack([np.sin(2 * t), 2 * np.sin(2 * t)]) + 0.05 * RNG.standard_normal((60, 2))
    table[20:40, 1] = np.nan
    fitted = sg.GP(FILTERS, NOISE).fit(t, table, missing="infer", approximate=sg.Inducing(25), parameters="best", restarts=0)
    assert fitted.plan.engine.name == "Inducing"
    assert np.abs(fitted.predict(t[20:40]).mean[:, 1] - 2 * np.sin(2 * t[20:40])).max() < 0.5


def test_white_noise_at_a_few_places_seen_by_several_outputs(x64):
    """The multivariate discrete process convolution is a linear model with weights of one variance."""
    centres = np.column_stack([np.linspace(0, 4, 7), np.arange(7) % 2])
    kernel = sg.DiscreteConvolution(FILTERS, centres, 0.8)
    fitted = sg.GP(kernel, NOISE).condition(X, Y)
    assert fitted.plan.engine.name == "Woodbury"
    bumps = lambda rows: np.asarray(COVARIANCE(FILTERS, rows, centres))
    Phi, noise = bumps(X), np.array([0.02, 0.05])[X[:, 1].astype(int)]
    C = 0.8 * Phi @ Phi.T + np.diag(noise)
    assert fitted.log_evidence == pytest.approx(stats.multivariate_normal(np.zeros(20), C).logpdf(Y), rel=1e-9)
    expected = 0.8 * bumps(NEW) @ Phi.T @ np.linalg.solve(C, Y)
    np.testing.assert_allclose(fitted.predict(NEW).mean, expected, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(fitted.predict(np.array([2.2])).mean[0, 1], expected[1], rtol=1e-7)


def test_a_lengthscale_that_changes(x64):
    same = sg.Gibbs([[0.0], [3.0]], [0.7, 0.7], 1.3)
    x = np.linspace(-1, 4, 6)[:, None]
    np.testing.assert_allclose(COVARIANCE(same, x, x), COVARIANCE(sg.SquaredExponential(0.7, 1.3), x, x), rtol=1e-12)
    changing = sg.Gibbs([[0.0], [3.0]], [0.2, 2.0])
    at = jax.jit(lambda kernel, x: jax.vmap(kernel.lengthscale_at)(x))
    np.testing.assert_allclose(at(changing, np.array([[0.0], [3.0], [1.5], [1e6]])), [0.2, 2.0, 0.4**0.5, 0.4**0.5], rtol=1e-5)
    with pytest.raises(ValueError, match=r"Gibbs has 2 places of 1 columns: give 2 lengthscales, or an array \(2, 1\)"):
        sg.Gibbs([[0.0], [3.0]], 1.0)


@pytest.mark.full
def test_rough_and_smooth_regions_are_learned_and_bumps_heal_new_places():
    x = np.sort(RNG.uniform(-2, 2, 80))
    y = np.where(x < 0, np.sin(7 * x), np.sin(x)) + 0.02 * RNG.standard_normal(80)
    kernel = sg.Gibbs([[-1.2], [1.2]], [0.4, 0.4])
    fitted = sg.GP(kernel, sg.Gaussian(0.01)).fit(x[:, None], y, parameters="best", restarts=1, seed=0)
    rough, smooth = fitted.kernel.lengthscale
    assert smooth > 3 * rough
    plain = sg.GP(sg.SquaredExponential(0.4), sg.Gaussian(0.01)).fit(x[:, None], y, parameters="best", restarts=1, seed=0)
    assert fitted.log_evidence > plain.log_evidence + 5
    bumps = sg.GP(sg.DiscreteConvolution(fitted.kernel, x[::8, None]), sg.Gaussian(0.01)).condition(x[:, None], y)
    far = sg.augmented(bumps, [[9.0]])
    assert far.variance[0] > 0.5
    assert bumps.predict([[9.0]]).variance[0] < 1e-6


@pytest.mark.parametrize(("a", "b", "near"), [(0.7, 1.9, 1e-10), (1.1, 1.1 * (1 + 1e-5), 1e-4)])
def test_a_first_order_pair_has_its_covariances(x64, a, b, near):
    """x hears white noise through 1/(s + a), and y hears x through 1/(s + b); where b is a, the limit of the formulas."""
    kernel = sg.PoleFilters([a, b], [0.0, 0.0], [[[1.0, 0.0], [0.0, 0.0]], [[1 / (b - a), 0.0], [-1 / (b - a), 0.0]]])
    tau = np.array([0.0, 0.4, 1.3])
    rows = lambda times, output: np.column_stack([times, np.full(len(times), float(output))])
    k = lambda i, j, t: np.asarray(COVARIANCE(kernel, rows(np.zeros(1), i), rows(t, j)))[0]  # cov(f_i(0), f_j(t))
    equal = b - a < 1e-3
    xy = (1 + 2 * a * tau) * np.exp(-a * tau) / (4 * a**2)
    yy = (1 + a * tau) * np.exp(-a * tau) / (4 * a**3)
    if not equal:
        xy = (2 * a * np.exp(-b * tau) - (a + b) * np.exp(-a * tau)) / (2 * a * (a + b) * (a - b))
        yy = (a * np.exp(-b * tau) - b * np.exp(-a * tau)) / (2 * a * b * (a + b) * (a - b))
    np.testing.assert_allclose(k(0, 0, tau), np.exp(-a * tau) / (2 * a), rtol=1e-10)
    np.testing.assert_allclose(k(0, 1, tau), xy, rtol=near)
    np.testing.assert_allclose(k(0, 1, -tau), np.exp(-a * tau) / (2 * a * (a + b)), rtol=near)
    np.testing.assert_allclose(k(1, 1, tau), yy, rtol=near, atol=near * yy[0])
