"""Toeplitz systems by Fourier transforms against dense algebra."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg

from structgp.linalg import toeplitz

N = 60
T = np.random.default_rng(3).standard_normal((2, N))
pytestmark = pytest.mark.usefixtures("x64")


def lags(scale, count):
    return jnp.exp(-0.5 * (jnp.arange(count) / scale) ** 2)


def dense(k, noise):
    index = np.arange(N)
    return k[np.abs(index[:, None] - index[None, :])] + noise * jnp.eye(N)


def test_products_solutions_and_the_diagonal_of_the_inverse():
    k = lags(3.0, toeplitz.lags_needed(N))
    C = np.asarray(dense(k, 0.1))
    np.testing.assert_allclose(
        toeplitz.filtered(toeplitz.spectrum(k[: N + 1]), jnp.asarray(T[0])) + 0.1 * T[0], C @ T[0], atol=1e-12
    )
    np.testing.assert_allclose(toeplitz.solve(k, 0.1, jnp.asarray(T)), np.linalg.solve(C, T.T).T, rtol=1e-8, atol=1e-9)
    inverse = np.linalg.inv(C)
    np.testing.assert_allclose(toeplitz.inverse_diagonal(jnp.asarray(inverse[0])), np.diagonal(inverse), rtol=1e-10)
    sums = [np.trace(inverse, offset=j) for j in range(N)]
    np.testing.assert_allclose(toeplitz.diagonal_sums(jnp.asarray(inverse[0])), sums, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("scale", [2.0, 40.0])
def test_log_determinant_by_limit_or_recursion(scale):
    """Short correlations meet the limit; where they are as long as the series, the recursion takes over."""
    k = lags(scale, toeplitz.lags_needed(N))
    value, error = toeplitz.log_det(k, jnp.asarray(0.1), N)
    good = bool(toeplitz._by_limit(k, jnp.asarray(0.1), N)[2])
    assert good == (scale < 10)
    assert error < 1e-7
    np.testing.assert_allclose(value, np.linalg.slogdet(np.asarray(dense(k, 0.1)))[1], rtol=1e-9)


def test_gradient():
    """In the lags, the noise and the targets; the limit differs from log|C| by less than the tolerance, so do their slopes."""

    def like_an_evidence(parts):
        return parts[0] + jnp.sum(parts[1] * jnp.array([[1.0, 0.4], [0.4, -0.7]]))

    def plainly(scale, noise, T):
        C = dense(lags(scale, N), noise)
        return like_an_evidence((jnp.linalg.slogdet(C)[1], T @ jnp.linalg.solve(C, T.T)))

    def ours(scale, noise, T):
        return like_an_evidence(toeplitz.log_det_and_gram(lags(scale, toeplitz.lags_needed(N)), noise, T))

    arguments = (jnp.asarray(2.0), jnp.asarray(0.1), jnp.asarray(T))
    value, gradient = jax.value_and_grad(ours, (0, 1, 2))(*arguments)
    expected, slope = jax.value_and_grad(plainly, (0, 1, 2))(*arguments)
    np.testing.assert_allclose(value, expected, rtol=1e-9)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-7, atol=1e-8), gradient, slope)


def test_against_levinson():
    k = np.asarray(lags(3.0, N + 1))
    column = k[:N] + 0.2 * (np.arange(N) == 0)
    np.testing.assert_allclose(
        toeplitz.solve(jnp.asarray(k), 0.2, jnp.asarray(T))[0], scipy.linalg.solve_toeplitz(column, T[0]), rtol=1e-8, atol=1e-10
    )
