"""Kronecker algebra against NumPy's own product."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from structgp.linalg import krylov
from structgp.linalg.grids import kronecker as kron
from structgp.linalg.grids import two_levels, whitened

SIZES = (2, 3, 4)
RNG = np.random.default_rng(5)
T = RNG.standard_normal((2, *SIZES))
W = np.where(RNG.uniform(size=SIZES) < 0.7, RNG.uniform(2.0, 30.0, SIZES), 0.0)
pytestmark = pytest.mark.usefixtures("x64")


def covariances(scales):
    """Matérn-3/2 along three axes, the last of them with a repeated place: two eigenvalues are equal, at zero."""
    axes = [np.array([0.0, 1.0]), np.array([0.0, 0.3, 1.1]), np.array([0.0, 0.5, 0.5, 1.4])]
    lags = [np.abs(x[:, None] - x[None, :]) for x in axes]
    return tuple((1 + lag / s) * jnp.exp(-lag / s) for lag, s in zip(lags, scales, strict=True))


def whole(matrices):
    return functools.reduce(jnp.kron, matrices)


@pytest.mark.parametrize("rows", [SIZES, (5, 1, 2)])
def test_products_are_those_of_the_whole_matrix(rows):
    A = [RNG.standard_normal((a, g)) for a, g in zip(rows, SIZES, strict=True)]
    expected = (T.reshape(2, -1) @ np.asarray(whole(A)).T).reshape(2, *rows)
    np.testing.assert_allclose(kron.products(A, jnp.asarray(T)), expected, rtol=1e-12)
    np.testing.assert_allclose(kron.product(A, jnp.asarray(T[1])), expected[1], rtol=1e-12)
    np.testing.assert_allclose(
        np.ravel(kron.product(kron.squared(A), jnp.asarray(T[0]))),
        np.diagonal(np.asarray(whole(A)) @ np.diag(T[0].ravel()) @ np.asarray(whole(A)).T),
        rtol=1e-10,
    )


def test_diagonal_trace_determinant_and_root():
    K = covariances([1.0, 0.7, 1.3])[:2]
    dense = np.asarray(whole(K))
    np.testing.assert_allclose(np.ravel(kron.diagonal(K)), np.diagonal(dense), rtol=1e-14)
    np.testing.assert_allclose(kron.trace(K), np.trace(dense), rtol=1e-14)
    np.testing.assert_allclose(kron.log_det(K), np.linalg.slogdet(dense)[1], rtol=1e-12)
    F = np.asarray(whole(kron.eigen(K).root()))
    np.testing.assert_allclose(F @ F.T, dense, atol=1e-14)


def test_small_factors_are_multiplied_out():
    A = [np.ones((g, g)) + np.eye(g) for g in (2, 3, 20, 4, 16)]
    joined = kron.joined(A)
    assert [len(B) for B in joined] == [6, 20, 64]
    np.testing.assert_allclose(whole(joined[::2]), whole([*A[:2], *A[3:]]), rtol=1e-14)


@pytest.mark.parametrize("size", [8, 9])
def test_matrices_that_read_the_same_from_their_end_are_halved(size):
    lags = np.abs(np.arange(size)[:, None] - np.arange(size)[None, :])
    K = np.exp(-lags / 3.0) + 0.3 * np.eye(size)
    values, vectors = map(np.asarray, kron._halved_eigh(jnp.asarray(K)))
    np.testing.assert_allclose(np.sort(values), np.linalg.eigvalsh(K), rtol=1e-13)
    np.testing.assert_allclose(vectors @ np.diag(values) @ vectors.T, K, atol=1e-14)
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(size), atol=1e-14)


def test_large_matrices_are_halved_only_where_they_may_be(monkeypatch):
    monkeypatch.setattr(kron, "LARGE", 4)
    regular, other = (np.exp(-np.abs(x[:, None] - x[None, :])) for x in (np.arange(5.0), np.array([0.0, 1.0, 1.5, 3.0, 7.0])))
    parts = kron.eigen([jnp.asarray(regular), jnp.asarray(other)])
    for K, F in zip((regular, other), parts.root(), strict=True):
        np.testing.assert_allclose(F @ F.T, K, atol=1e-14)


def test_sums_over_all_axes_but_one():
    for d in range(3):
        first, second = (np.moveaxis(X, d, 0).reshape(SIZES[d], -1) for X in T)
        np.testing.assert_allclose(kron.product_along(*jnp.asarray(T), d), first @ second.T, rtol=1e-12)
        np.testing.assert_allclose(kron.sum_to_axis(jnp.asarray(T[0]), d), first.sum(axis=1), rtol=1e-12)


def evidence_like(log_det_and_gram):
    """A function of log|C| and TᵀC⁻¹T in which every entry counts."""
    log_det, gram = log_det_and_gram
    return log_det + jnp.sum(gram * jnp.array([[1.0, 0.4], [0.4, -0.7]]))


def test_complete_grid_and_its_gradient():
    """Against autodiff of the dense formulas, which know nothing of eigenvectors; two eigenvalues coincide."""

    def dense(scales, noise, T):
        C = whole(covariances(scales)) + noise * jnp.eye(24)
        columns = T.reshape(2, -1)
        return evidence_like((jnp.linalg.slogdet(C)[1], columns @ jnp.linalg.solve(C, columns.T)))

    ours = lambda scales, noise, T: evidence_like(kron.log_det_and_gram(covariances(scales), noise, T))
    arguments = (jnp.array([1.0, 0.7, 1.3]), jnp.asarray(0.3), jnp.asarray(T))
    value, gradient = jax.jit(jax.value_and_grad(ours, (0, 1, 2)))(*arguments)
    expected, slope = jax.jit(jax.value_and_grad(dense, (0, 1, 2)))(*arguments)
    np.testing.assert_allclose(value, expected, rtol=1e-12)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-11), gradient, slope)


@pytest.mark.parametrize("noise", [0.3, 1e-6])
def test_cells_without_a_value_and_their_gradient(noise):
    """The same against the dense formulas of the other cells."""
    unseen = np.array([3, 4, 9, 23])
    seen, columns = np.setdiff1d(np.arange(24), unseen), T.reshape(2, -1).copy()
    columns[:, unseen] = 0.0

    def dense(scales, noise, T):
        C = (whole(covariances(scales)) + noise * jnp.eye(24))[np.ix_(seen, seen)]
        some = T.reshape(2, -1)[:, seen]
        return evidence_like((jnp.linalg.slogdet(C)[1], some @ jnp.linalg.solve(C, some.T)))

    ours = lambda scales, noise, T: evidence_like(kron.log_det_and_gram(covariances(scales), noise, T, jnp.asarray(unseen)))
    arguments = (jnp.array([1.0, 0.7, 1.3]), jnp.asarray(noise), jnp.asarray(columns.reshape(T.shape)))
    value, gradient = jax.jit(jax.value_and_grad(ours, (0, 1, 2)))(*arguments)
    expected, slope = jax.jit(jax.value_and_grad(dense, (0, 1, 2)))(*arguments)
    np.testing.assert_allclose(value, expected, rtol=1e-8)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6 * np.abs(b).max()), gradient, slope)


def with_holes(scales, w, h):
    """log|I + KW| and hᵀ(K⁻¹ + W)⁻¹h, written out."""
    K, w, h = whole(covariances(scales)), w.ravel(), h.reshape(2, -1)
    B = jnp.eye(24) + w[:, None] * K
    return jnp.linalg.slogdet(B)[1], h @ K @ jnp.linalg.solve(B, h.T)


def test_holes_and_their_gradient():
    """With every mode in the block nothing is left to chance."""
    effort = two_levels.Effort(modes=24, probes=0)
    ours = lambda scales, w, h: evidence_like(whitened.log_det_and_gram(covariances(scales), w, h, effort))
    arguments = (jnp.array([1.0, 0.7, 1.3]), jnp.asarray(W), jnp.asarray(T))
    value, gradient = jax.jit(jax.value_and_grad(ours, (0, 1, 2)))(*arguments)
    expected, slope = jax.jit(jax.value_and_grad(lambda *a: evidence_like(with_holes(*a)), (0, 1, 2)))(*arguments)
    np.testing.assert_allclose(value, expected, rtol=1e-11)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-9), gradient, slope)


@functools.cache
def probed(modes, probes):
    """A small block, so that bounds are wide and probes have something to do."""
    effort = two_levels.Effort(modes=modes, probes=probes)
    built = jax.jit(lambda K, W: (lambda system: (system, two_levels.probe(system, effort)))(whitened.build(K, W, effort)))
    return built(covariances([1.0, 0.7, 1.3]), W)


def test_the_interval_holds_and_the_standard_error_is_honest():
    system, probe = probed(4, 64)
    exact = float(with_holes(jnp.array([1.0, 0.7, 1.3]), jnp.asarray(W), jnp.asarray(T))[0])
    found = two_levels.log_det_of(system, probe)
    assert found.low < exact < found.high
    assert 0 < found.error < 0.2 * (found.high - found.low)
    assert abs(found.value - exact) < 4 * found.error


def test_variances_left_at_the_cells():
    """Those of the preconditioner alone are close; probes bring them to the truth as their number grows."""
    system, probe = probed(4, 64)
    K = np.asarray(whole(covariances([1.0, 0.7, 1.3])))
    exact = np.diagonal(K @ np.linalg.inv(np.eye(24) + W.ravel()[:, None] * K)).reshape(SIZES)
    alone = probe._replace(solved=probe.easy)
    error = lambda p: np.abs(np.asarray(whitened.variances(system, system.factors, p)) - exact).max()
    assert error(probe) < 0.5 * error(alone)
    everything, none = probed(24, 0)
    np.testing.assert_allclose(whitened.variances(everything, everything.factors, none), exact, rtol=1e-10)


def test_a_mask_that_factorises_needs_one_step():
    rows = np.array([1.0, 0.0, 1.0])  # one place of the second axis was never seen
    w = jnp.asarray(np.broadcast_to(20.0 * rows[None, :, None], SIZES))
    effort = two_levels.Effort(modes=1, probes=0, tolerance=1e-10)
    system = whitened.build(covariances([1.0, 0.7, 1.3]), w, effort)
    assert two_levels.means(system, w * jnp.asarray(T), effort).steps.max() == 1


def test_many_axes_are_taken_together():
    """Five axes of two places: the block is built from three parts, and the answers are those of the whole matrix."""
    K = tuple(jnp.array([[1.0, r], [r, 1.0]]) for r in (0.9, 0.5, 0.3, 0.7, 0.8))
    w = jnp.asarray(RNG.uniform(0.0, 9.0, (2,) * 5))
    effort = two_levels.Effort(modes=32, probes=0)
    log_det, gram = jax.jit(lambda K, w: whitened.log_det_and_gram(K, w, w[None], effort))(K, w)
    dense = np.asarray(whole(K))
    flat = np.ravel(w)
    np.testing.assert_allclose(log_det, np.linalg.slogdet(np.eye(32) + dense * flat)[1], rtol=1e-11)
    np.testing.assert_allclose(gram[0, 0], flat @ dense @ np.linalg.solve(np.eye(32) + flat[:, None] * dense, flat), rtol=1e-10)


def test_conjugate_gradients_stop_at_their_tolerance():
    A = np.diag(np.linspace(1.0, 50.0, 24)) + 0.1
    b = jnp.asarray(T[0].ravel())
    loose, tight = (
        krylov.conjugate_gradients(lambda x: A @ x, lambda r: r, b, tolerance, 100, 24) for tolerance in (1e-2, 1e-12)
    )
    assert loose.steps < tight.steps <= 24
    np.testing.assert_allclose(tight.x, np.linalg.solve(A, b), rtol=1e-9)
    values, vectors = np.linalg.eigh(A)
    weights = (vectors.T @ np.asarray(b)) ** 2 / np.sum(b**2)
    np.testing.assert_allclose(krylov.log_form(tight), np.sum(weights * np.log(values)), rtol=1e-9)
    nothing = krylov.conjugate_gradients(lambda x: A @ x, lambda r: r, jnp.zeros(24), 1e-8, 100)
    assert nothing.steps == 0
    np.testing.assert_array_equal(nothing.x, 0.0)
