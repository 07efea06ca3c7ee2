"""Gaussian integrals and the tails of the normal distribution, against closed forms."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special

from structgp.linalg import normal, quadrature

pytestmark = pytest.mark.usefixtures("x64")


def test_fixed_rules():
    x, w = quadrature.gauss_legendre(12)
    assert w @ x**5 == pytest.approx(1 / 6, rel=1e-13)
    x, w = quadrature.gauss_hermite(20)
    assert w @ x**6 == pytest.approx(15, rel=1e-12)


def test_a_gaussian_factor_has_a_closed_form():
    m, v = (np.ravel(a) for a in np.meshgrid([-1e3, -2.0, 0.0, 5.0, 1e3], [1e-12, 1e-3, 1.0, 1e4]))
    factor = lambda f: -0.5 * (f - 0.7) ** 2 / 0.09
    rule = quadrature.around_peak(factor, m, v)
    value, slope, second = quadrature.log_integral_derivatives(factor, m, v, rule)
    total = v + 0.09
    np.testing.assert_allclose(value, -0.5 * (m - 0.7) ** 2 / total + 0.5 * np.log(0.09 / total), rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(slope, (0.7 - m) / total, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(second, -1 / total, rtol=1e-7)
    by_autodiff = jax.grad(lambda m: jnp.sum(quadrature.log_integral(factor, m, v, rule)))(m)
    np.testing.assert_allclose(by_autodiff, slope, rtol=1e-7, atol=1e-9)


def test_the_peak_is_found_where_newton_would_run_away():
    m, v = np.array([-30.0, 0.0, 20.0, 200.0]), np.array([100.0, 1e6, 1e-2, 10.0])
    for count in (0.0, 1.0, 1e6):
        offset = np.asarray(quadrature.find_peak(lambda f, count=count: count * f - jnp.exp(f), m, v))
        f = m + offset
        misfit = (count - np.exp(f) - offset / v) / np.sqrt(1 / v + np.exp(f))
        assert np.all(np.abs(misfit) < 0.05)


def test_expectations_and_their_gradient():
    m, v = np.array([0.3, -2.0]), np.array([0.5, 30.0])
    function = lambda f: jnp.cos(f) + 0.2 * f**2
    rule = quadrature.around_mean(function, m, v)
    average = lambda m, v: quadrature.expectation(function, m, v, rule)
    exact = np.exp(-v / 2) * np.cos(m) + 0.2 * (m**2 + v)
    np.testing.assert_allclose(average(m, v), exact, rtol=1e-7)  # of which the rule itself, not rounding, takes a quarter
    in_v = jax.grad(lambda v: jnp.sum(average(m, v)))(v)
    np.testing.assert_allclose(in_v, -0.5 * np.exp(-v / 2) * np.cos(m) + 0.2, rtol=1e-6)
    on_the_host = quadrature.host_expectation(lambda f: special.ndtr(3 * f), m, v, [-2.0, -0.7, 0.0, 0.7, 2.0])
    np.testing.assert_allclose(on_the_host, special.ndtr(3 * m / np.sqrt(1 + 9 * v)), rtol=1e-7)


def test_panels_across_known_bends():
    m, v = np.array([-3.0, 20.0]), np.array([400.0, 1e4])
    rule = quadrature.across([-6.0, -2.0, 0.0, 2.0, 6.0], m, v, normal.log_ndtr)
    value = quadrature.log_integral(normal.log_ndtr, m, v, rule)
    np.testing.assert_allclose(value, special.log_ndtr(m / np.sqrt(1 + v)), atol=1e-6)


def test_bisection():
    level = np.array([1e-4, 0.3, 0.99])
    np.testing.assert_allclose(quadrature.bisect(lambda y: special.ndtr(y - 50), level), 50 + special.ndtri(level), rtol=1e-10)
    np.testing.assert_array_equal(quadrature.bisect(lambda y: special.pdtr(y, 40.0), level, whole=True), [19, 37, 55])


@pytest.mark.parametrize("dimension", [1, 3, 8])
def test_lattice_points_stand_for_a_normal_distribution(dimension):
    z = quadrature.lattice(dimension)  # fixed points: their own error, the same on every machine, takes most of what is allowed
    np.testing.assert_allclose(z.mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(z.T @ z / len(z), np.eye(dimension), atol=0.02)
    assert np.mean(np.cos(z.sum(axis=1))) == pytest.approx(np.exp(-dimension / 2), abs=8e-3)


def test_tails_of_the_normal_distribution():
    z = np.concatenate([np.linspace(-30, 8, 500), -np.geomspace(30, 1e8, 30)])
    log, ratio, excess = (np.asarray(part) for part in normal.tails(z))
    np.testing.assert_allclose(log, special.log_ndtr(z), rtol=1e-13, atol=1e-15)
    mills = np.where(z < 0, np.sqrt(2 / np.pi) / special.erfcx(np.maximum(-z, 0) / np.sqrt(2)), 0)
    np.testing.assert_allclose(ratio[z < 0], mills[z < 0], rtol=1e-13)
    x, fraction = -z[z < -6], 0.0
    for n in range(200, 0, -1):
        fraction = n / (x + fraction)
    np.testing.assert_allclose(excess[z < -6], fraction, rtol=1e-12)


def test_derivatives_in_the_tails():
    z = np.array([-1e4, -40.0, -7.0, -1.0, 0.0, 0.4, 5.0])
    _, slope, second = quadrature.with_derivatives(normal.log_ndtr, z)
    _, ratio, excess = normal.tails(z)
    np.testing.assert_allclose(slope, ratio, rtol=1e-14)
    np.testing.assert_allclose(second, -ratio * excess, rtol=1e-14)
    x = np.array([-3.0, 0.0, 0.2, 5.0, 1e6])
    value, slope, _ = quadrature.with_derivatives(normal.log_scaled_tail, x)
    np.testing.assert_allclose(value, np.log(special.erfcx(x / np.sqrt(2)) / 2), rtol=1e-12)
    np.testing.assert_allclose(slope, -np.asarray(normal.excess(-x)), rtol=1e-14)
