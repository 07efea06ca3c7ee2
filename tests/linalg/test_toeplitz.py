"""Toeplitz systems by Fourier transforms against dense algebra."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg

import zoo
from structgp.linalg.grids import lines, toeplitz, two_levels, whitened_line

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
    inverse = np.linalg.inv(C)
    first = jnp.asarray(inverse[0])
    np.testing.assert_allclose(toeplitz.solve(k, 0.1, first, jnp.asarray(T)), T @ inverse, rtol=1e-10, atol=1e-11)
    np.testing.assert_allclose(toeplitz.all_explained(k, 0.1, first, jnp.asarray(T)), T @ inverse @ T.T, rtol=1e-11)
    np.testing.assert_allclose(toeplitz.inverse_diagonal(jnp.asarray(inverse[0])), np.diagonal(inverse), rtol=1e-10)
    sums = [np.trace(inverse, offset=j) for j in range(N)]
    np.testing.assert_allclose(toeplitz.diagonal_sums(jnp.asarray(inverse[0])), sums, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("scale", [2.0, 40.0])
def test_log_determinant_by_limit_or_recursion(scale):
    """Short correlations meet the limit; where they are as long as the series, the recursion takes over."""
    k = lags(scale, toeplitz.lags_needed(N))
    first, value, error, _ = toeplitz.inverse(k, jnp.asarray(0.1), N)
    good = bool(toeplitz._by_limit(k, jnp.asarray(0.1), N)[2])
    assert good == (scale < 10)
    assert error < 1e-7
    np.testing.assert_allclose(value, np.linalg.slogdet(np.asarray(dense(k, 0.1)))[1], rtol=1e-9)
    np.testing.assert_allclose(first, np.linalg.inv(np.asarray(dense(k, 0.1)))[0], rtol=1e-9, atol=1e-10)


def test_rounding_of_the_symbol_is_no_reason_for_the_recursion():
    """At low noise of a smooth series the symbol falls below zero by what rounding makes of it."""
    k, noise, count = lags(3.0, toeplitz.lags_needed(4 * N)), jnp.asarray(1e-6), 4 * N
    log_det, error, good = toeplitz._by_limit(k, noise, count)
    assert jnp.min(toeplitz.spectrum(k)) < -1e-10 * noise
    assert good
    C = scipy.linalg.toeplitz(k[:count]) + noise * np.eye(count)
    assert abs(log_det - np.linalg.slogdet(C)[1]) < error < count * toeplitz.NEGATIVE


PLACES = {  # without a value; of three of them the number is the same, which is the same program
    "one": [17],
    "scattered": [3, 11, 12, 30, 41, 58],
    "a run": [20, 21, 22, 23, 24, 25],
    "the ends": [0, 1, 2, 57, 58, 59],
    "all but a few": np.setdiff1d(np.arange(N), [2, 19, 20, 44]),
}


@jax.jit
def without(k, noise, T, places, weights):
    """The inverse, solutions, and the derivatives of the log determinant and of a form of the Gram matrix."""
    found = toeplitz.inverse(k, noise, N, places)
    solved = toeplitz.solve(k, noise, found.first, T, found.unseen)
    diagonal = toeplitz.inverse_diagonal(found.first, found.unseen)
    values, pull = jax.vjp(lambda *parts: toeplitz.log_det_and_gram(*parts, places), k, noise, T)
    return values, solved, diagonal, found.unseen.variances, pull((jnp.ones(()), weights))


@pytest.mark.parametrize("name", zoo.mostly_full(PLACES, "scattered", "the ends"))
def test_places_without_a_value_are_as_if_left_out(name):
    """For noise from a millionth of the variance to ten times that, at covariances that meet the limit and the recursion."""
    places, weights = np.asarray(PLACES[name]), np.array([[1.0, 0.4], [0.4, -0.7]])
    seen = np.setdiff1d(np.arange(N), places)
    for scale, noise in ((2.0, 1e-6), (2.0, 1e-2), (2.0, 10.0), (40.0, 1e-4)):
        k = lags(scale, toeplitz.lags_needed(N))
        values, solved, diagonal, left, slopes = jax.tree.map(np.asarray, without(k, noise, T, places, weights))
        C, inverse, lost = np.asarray(dense(k, noise)), np.zeros((N, N)), 1e-15 / noise  # relative errors of inverses
        inverse[np.ix_(seen, seen)] = np.linalg.inv(C[np.ix_(seen, seen)])
        alpha = T @ inverse
        np.testing.assert_allclose(values[0], np.linalg.slogdet(C[np.ix_(seen, seen)])[1], rtol=1e-8 + 10 * lost)
        np.testing.assert_allclose(values[1], T @ alpha.T, rtol=1e-10 + 100 * lost)
        close = lambda found, expected, lost=lost: np.testing.assert_allclose(
            found, expected, rtol=0, atol=(1e-9 + 1000 * lost) * np.abs(expected).max()
        )
        close(solved, alpha)
        close(diagonal, np.diagonal(inverse))
        across = C[np.ix_(places, seen)]
        told = np.sum(across @ inverse[np.ix_(seen, seen)] * across, axis=1)
        np.testing.assert_allclose(left, np.diagonal(C)[places] - told, rtol=1e-9, atol=10 * lost)
        middle = inverse - alpha.T @ weights @ alpha
        close(slopes[0][:N], [(2 if j else 1) * np.trace(middle, offset=j) for j in range(N)])
        close(slopes[1], np.trace(middle))
        close(slopes[2], 2 * weights @ alpha)


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
    value, gradient = jax.jit(jax.value_and_grad(ours, (0, 1, 2)))(*arguments)
    expected, slope = jax.jit(jax.value_and_grad(plainly, (0, 1, 2)))(*arguments)
    np.testing.assert_allclose(value, expected, rtol=1e-9)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-7, atol=1e-8), gradient, slope)


def test_against_levinson():
    k = lags(3.0, toeplitz.lags_needed(N))
    column = np.asarray(k[:N]) + 0.2 * (np.arange(N) == 0)
    first = toeplitz.inverse(k, jnp.asarray(0.2), N).first
    np.testing.assert_allclose(
        toeplitz.solve(k, 0.2, first, jnp.asarray(T))[0], scipy.linalg.solve_toeplitz(column, T[0]), rtol=1e-8, atol=1e-10
    )


@pytest.mark.parametrize(("noise", "right_to"), [(1e-2, 1e-9), (1e-4, 1e-7), (1e-6, 1e-4)])
def test_what_periods_explain_at_low_noise(noise, right_to):
    """What is left open beside a variance of 2, in units of the noise, against solutions refined with more digits."""
    period = lambda lag: np.exp(-2 * np.sin(np.pi * lag / 12) ** 2 - 0.5 * (lag / 80) ** 2) + np.exp(-0.5 * (lag / 40) ** 2)
    steps, ahead = np.arange(N), N + np.arange(20)
    B = period(np.abs(ahead[:, None] - steps))
    k = jnp.asarray(period(np.arange(toeplitz.lags_needed(N))))
    C = period(np.abs(steps[:, None] - steps)) + noise * np.eye(N)
    factor = scipy.linalg.cho_factor(C)
    X = scipy.linalg.cho_solve(factor, B.T).astype(np.longdouble)
    for _ in range(3):
        X += scipy.linalg.cho_solve(factor, np.asarray(B.T - C.astype(np.longdouble) @ X, float))
    expected = np.asarray(2 - np.sum(B.T * X, axis=0), float)
    first = toeplitz.inverse(k, jnp.asarray(noise), N).first
    left = 2 - np.asarray(toeplitz.explained(k, noise, first, jnp.asarray(B)))
    np.testing.assert_allclose(left, expected, rtol=0, atol=right_to * noise)


W = np.where(np.arange(N) % 17 < 4, 0.0, np.linspace(2.0, 30.0, N))  # gaps, and noise that differs


def evidence_like(log_det_and_gram):
    """A function of log|C| and TᵀC⁻¹T in which every entry counts."""
    log_det, gram = log_det_and_gram
    weights = jnp.array([[1.0, 0.4], [0.4, -0.7]])[: len(gram), : len(gram)]
    return log_det + jnp.sum(gram * weights)


def with_gaps(scale, w, h):
    """log|I + KW| and hᵀ(K⁻¹ + W)⁻¹h, written out."""
    K = dense(lags(scale, N), 0.0)
    B = jnp.eye(N) + w[:, None] * K
    return jnp.linalg.slogdet(B)[1], h @ K @ jnp.linalg.solve(B, h.T)


def as_waves(scale, w, h, effort):
    beyond = lambda x: jnp.concatenate([x, jnp.zeros_like(x)], axis=-1)
    values = whitened_line.eigenvalues(lags(scale, N + 1))
    return whitened_line.log_det_and_gram(values, beyond(w), beyond(h), effort)


def test_gaps_and_their_gradient():
    """With every wave in the block nothing is left to chance; a circulant twice as long holds the covariance."""
    effort = two_levels.Effort(modes=2 * N, probes=0, tolerance=1e-12)
    arguments = (jnp.asarray(3.0), jnp.asarray(W), jnp.asarray(W * T))
    value, gradient = jax.jit(jax.value_and_grad(lambda *a: evidence_like(as_waves(*a, effort)), (0, 1, 2)))(*arguments)
    expected, slope = jax.jit(jax.value_and_grad(lambda *a: evidence_like(with_gaps(*a)), (0, 1, 2)))(*arguments)
    np.testing.assert_allclose(value, expected, rtol=1e-11)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-7, atol=1e-9), gradient, slope)


@pytest.mark.full
def test_few_waves_leave_an_interval_and_probes_fill_it():
    """The true value lies in the interval and within the reported error; more probes bring gradients to the truth."""
    w = jnp.concatenate([jnp.asarray(W), jnp.zeros(N)])
    effort = two_levels.Effort(modes=10, probes=64)
    line = whitened_line.build(whitened_line.eigenvalues(lags(3.0, N + 1)), w, effort)
    probed = two_levels.probe(line, effort)
    found, exact = two_levels.log_det_of(line, probed), float(with_gaps(3.0, W, jnp.asarray(T))[0])
    assert found.low < exact < found.high
    assert 0 < found.error < 0.2 * (found.high - found.low)
    assert abs(found.value - exact) < 4 * found.error
    K = np.asarray(dense(lags(3.0, N), 0.0))
    variance = np.diagonal(K @ np.linalg.inv(np.eye(N) + W[:, None] * K))
    error = lambda p: np.abs(np.asarray(whitened_line.variances(line, p))[:N] - variance).max()
    assert error(probed) < 0.5 * error(probed._replace(solved=probed.easy))
    slope = jax.jit(jax.grad(lambda s: as_waves(s, jnp.asarray(W), jnp.asarray(T), effort)[0]))(3.0)
    expected = jax.jit(jax.grad(lambda s: with_gaps(s, jnp.asarray(W), jnp.asarray(T))[0]))(3.0)
    np.testing.assert_allclose(slope, expected, rtol=0.05)  # the error of 64 fixed probes, the same on every machine


@pytest.mark.parametrize("columns", [1, 2])
def test_lines_of_a_grid_and_their_gradient(columns):
    """A short axis of three places, one of them twice, so that eigenvalues vanish and coincide; several columns or one."""
    gaps = np.abs(np.subtract.outer([0.0, 0.7, 0.7, 2.0], [0.0, 0.7, 0.7, 2.0]))
    Y = jnp.asarray(np.random.default_rng(1).standard_normal((columns, 12, 4)))

    def toeplitz_lines(k, gamma, noise, turned):
        log_dets, grams = jax.lax.map(lambda one: toeplitz.log_det_and_gram(one[0] * k, noise, one[1]), (gamma, turned))
        return jnp.sum(log_dets), jnp.sum(grams, axis=0)

    def ours(scales, noise, Y):
        k = lags(scales[0], toeplitz.lags_needed(12))
        return evidence_like(lines.log_det_and_gram(toeplitz_lines, k, jnp.exp(-gaps / scales[1]), noise, Y))

    def written_out(scales, noise, Y):
        steps = np.abs(np.subtract.outer(np.arange(12), np.arange(12)))
        C = jnp.kron(lags(scales[0], 12)[steps], jnp.exp(-gaps / scales[1])) + noise * jnp.eye(48)
        flat = Y.reshape(columns, -1)
        return evidence_like((jnp.linalg.slogdet(C)[1], flat @ jnp.linalg.solve(C, flat.T)))

    arguments = (jnp.array([1.5, 0.8]), jnp.asarray(0.3), Y)
    value, gradient = jax.jit(jax.value_and_grad(ours, (0, 1, 2)))(*arguments)
    expected, slope = jax.jit(jax.value_and_grad(written_out, (0, 1, 2)))(*arguments)
    np.testing.assert_allclose(value, expected, rtol=1e-8)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-7, atol=1e-8), gradient, slope)
