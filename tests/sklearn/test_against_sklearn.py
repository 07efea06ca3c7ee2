"""The dense engine against scikit-learn, and kernels against closed forms that were derived elsewhere."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, special
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process import kernels as sk

import structgp as sg
import zoo
from structgp.learn.evidence import evidence_objective
from structgp.parameters.tree import free_names, free_vector

NOISE = 0.15


def K(kernel, X, Z=None):
    with jax.enable_x64(True):
        return np.asarray(jax.jit(sg.covariance)(kernel, np.asarray(X), np.asarray(X if Z is None else Z)))


# name: (ours, theirs, columns, their hyperparameters in our order as (index, factor on the logarithm's slope))
V = sk.ConstantKernel(1.3)
SHARED = {
    "RBF-ARD": (sg.SquaredExponential([0.7, 1.9], 1.3), V * sk.RBF([0.7, 1.9]), 2, [(1, 1), (2, 1), (0, 1)]),
    "Matern-1/2": (sg.Matern12(0.8, 1.3), V * sk.Matern(0.8, nu=0.5), 2, [(1, 1), (0, 1)]),
    "Matern-3/2": (sg.Matern32([0.7, 1.9], 1.3), V * sk.Matern([0.7, 1.9], nu=1.5), 2, [(1, 1), (2, 1), (0, 1)]),
    "Matern-5/2": (sg.Matern52(0.8, 1.3), V * sk.Matern(0.8, nu=2.5), 1, [(1, 1), (0, 1)]),
    "RationalQuadratic": (
        sg.RationalQuadratic(0.8, 1.3, 1.7),
        V * sk.RationalQuadratic(length_scale=0.8, alpha=1.7),
        2,
        [(2, 1), (0, 1), (1, 1)],
    ),
    "ExpSineSquared": (sg.Periodic(1.4, 0.8, 1.3), V * sk.ExpSineSquared(0.8, 1.4), 1, [(2, 1), (1, 1), (0, 1)]),
    # DotProduct: σ₀² + xᵀz, with log σ₀ where we have log σ₀²
    "DotProduct": (sg.Linear(sg.fixed(1.0), sg.fixed(0.0)) + sg.Constant(0.36), sk.DotProduct(0.6), 2, [(0, 0.5)]),
    "White-sum": (
        sg.SquaredExponential(0.8, 1.3) + sg.White(0.2),
        V * sk.RBF(0.8) + sk.WhiteKernel(0.2),
        2,
        [(1, 1), (0, 1), (2, 1)],
    ),
    "product": (
        sg.SquaredExponential(0.8, 1.3) * sg.Matern32(1.6, sg.fixed(1.0)),
        V * sk.RBF(0.8) * sk.Matern(1.6, nu=1.5),
        2,
        [(1, 1), (0, 1), (2, 1)],
    ),
}


@pytest.mark.parametrize("name", zoo.mostly_full(SHARED, "RBF-ARD", "ExpSineSquared", "White-sum"))
def test_evidence_gradient_mean_and_variance(name):
    ours, theirs, D, order = SHARED[name]
    X, y, Xs = zoo.X[D], zoo.Y[D], zoo.XS[D]
    peer = GaussianProcessRegressor(theirs + sk.WhiteKernel(NOISE), alpha=0.0, optimizer=None).fit(X, y)
    gp = sg.GP(ours, sg.Gaussian(NOISE))
    fitted = gp.condition(X, y)
    value, slopes = peer.log_marginal_likelihood(peer.kernel_.theta, eval_gradient=True)
    np.testing.assert_allclose(fitted.log_evidence, value, rtol=1e-8)
    objective = evidence_objective(gp, fitted.inputs, fitted.data, fitted.plan.engine)
    _, gradient = objective(free_vector(gp))
    assert free_names(gp)[-1] == "likelihood.noise"
    expected = [slopes[i] * factor for i, factor in order] + [slopes[-1]]
    np.testing.assert_allclose(gradient, expected, rtol=1e-8, atol=1e-8)
    mean, sd = peer.predict(Xs, return_std=True)
    p = fitted.predict(Xs)
    np.testing.assert_allclose(p.mean, mean, rtol=1e-8)
    np.testing.assert_allclose(p.observed.variance, sd**2, rtol=1e-8)


@pytest.mark.parametrize(
    ("nu", "kernel"), [(3.5, sg.Matern72(0.9)), (4.5, sg.Matern(0.9, nu=4.5)), (8.5, sg.Matern(0.9, nu=8.5))]
)
def test_matern_of_any_half_integer_by_bessel_functions(nu, kernel):
    s = np.sqrt(2 * nu) * np.abs(zoo.X[1] - zoo.XS[1].T) / 0.9
    expected = 2 ** (1 - nu) / special.gamma(nu) * s**nu * special.kv(nu, s)
    np.testing.assert_allclose(K(kernel, zoo.X[1], zoo.XS[1]), expected, rtol=1e-10)


def test_product_of_materns_is_not_the_matern_of_the_distance():
    product = K(sg.ProductMatern([0.7, 1.9], 1.3, nu=2.5), zoo.X[2])
    by_hand = 1.3 * K(sg.Matern52(0.7), zoo.X[2][:, :1]) * K(sg.Matern52(1.9), zoo.X[2][:, 1:])
    np.testing.assert_allclose(product, by_hand, rtol=1e-12)
    assert np.abs(product - K(sg.Matern52([0.7, 1.9], 1.3), zoo.X[2])).max() > 0.01


def test_gamma_exponential_between_its_neighbours():
    distance = np.abs(zoo.X[1] - zoo.XS[1].T)
    np.testing.assert_allclose(
        K(sg.GammaExponential(0.9, 1.1, 0.6), zoo.X[1], zoo.XS[1]), 1.1 * np.exp(-((distance / 0.9) ** 0.6))
    )
    np.testing.assert_allclose(K(sg.GammaExponential(0.9, 1.1, 1.0), zoo.X[1]), K(sg.Matern12(0.9, 1.1), zoo.X[1]), rtol=1e-12)


def test_stationary_kernels_of_one_difference():
    tau = zoo.X[1] - zoo.XS[1].T
    a, b = 1 / 0.9, 2 * np.pi / 1.3
    at = np.abs(tau)
    oscillator = 1.2 * np.exp(-a * at) * (np.cos(b * at) + a / b * np.sin(b * at))
    np.testing.assert_allclose(K(sg.DampedOscillator(1.3, 0.9, 1.2), zoo.X[1], zoo.XS[1]), oscillator, rtol=1e-11)
    np.testing.assert_allclose(K(sg.Cosine(1.7, 1.2), zoo.X[1], zoo.XS[1]), 1.2 * np.cos(2 * np.pi * tau / 1.7), rtol=1e-10)


def test_spectral_kernels_are_the_transform_of_their_spectrum():
    """k(τ) = ∫ S(f) cos(2πfτ) df: a box for Sinc, Gaussian bumps at ±frequency for SpectralMixture."""
    tau = np.array([[0.0], [0.3], [0.9], [2.1]])
    box = [integrate.quad(lambda f, t=t: 1.2 / (2 * 0.6) * np.cos(2 * np.pi * f * t), -0.6, 0.6)[0] for t in tau[:, 0]]
    np.testing.assert_allclose(K(sg.Sinc(0.6, 1.2), tau, [[0.0]])[:, 0], box, rtol=1e-10, atol=1e-12)
    bump = lambda f, c, s: np.exp(-0.5 * ((f - c) / s) ** 2) / (s * np.sqrt(2 * np.pi))
    S = lambda f: 0.7 * bump(f, 0.3, 0.2) + 0.4 * bump(f, 0.9, 0.1)
    mixture = [integrate.quad(lambda f, t=t: S(f) * np.cos(2 * np.pi * f * t), -2, 3, epsabs=1e-12)[0] for t in tau[:, 0]]
    kernel = sg.SpectralMixture([0.7, 0.4], [0.3, 0.9], [0.2, 0.1])
    np.testing.assert_allclose(K(kernel, tau, [[0.0]])[:, 0], mixture, rtol=1e-9, atol=1e-11)


def test_bayesian_linear_regression_is_a_gp_with_a_linear_kernel():
    X, y = zoo.X[2], zoo.Y[2]
    prior, center = np.array([0.7, 1.2]), np.array([0.3, -0.2])
    fitted = sg.GP(sg.Linear(prior, center), sg.Gaussian(NOISE)).condition(X, y)
    F, Fs = X - center, zoo.XS[2] - center
    S = np.linalg.inv(F.T @ F / NOISE + np.diag(1 / prior))
    w = S @ F.T @ y / NOISE
    p = fitted.predict(zoo.XS[2])
    np.testing.assert_allclose(p.mean, Fs @ w, rtol=1e-9)
    np.testing.assert_allclose(p.variance, np.einsum("id,de,ie->i", Fs, S, Fs), rtol=1e-9)
    np.testing.assert_allclose(fitted.gradient(zoo.XS[2]), np.tile(w, (zoo.M, 1)), rtol=1e-9)


@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_integrated_wiener_by_quadrature(order):
    """k = ∫ (a−u)^{m−1}(b−u)^{m−1} du / (m−1)!² over what both have seen; the two sides of the start are independent."""
    start, m = 0.4, order
    kernel = sg.IntegratedWiener(0.8, order=order, start=start) if order > 1 else sg.Wiener(0.8, start=start)

    def by_quadrature(x, z):
        if (x - start) * (z - start) <= 0:
            return 0.0
        a, b = abs(x - start), abs(z - start)
        value, _ = integrate.quad(lambda u: (a - u) ** (m - 1) * (b - u) ** (m - 1), 0, min(a, b))
        return 0.8 * value / special.factorial(m - 1) ** 2

    x, z = zoo.X[1][: zoo.M], zoo.XS[1]
    expected = [[by_quadrature(a, b) for b in z[:, 0]] for a in x[:, 0]]
    np.testing.assert_allclose(K(kernel, x, z), expected, rtol=1e-10)


def test_arcsine_kernel_is_a_wide_network():
    """E[erf(w₀ + wᵀx) erf(w₀ + wᵀz)] over Gaussian weights, by Gauss–Hermite quadrature over the two arguments."""
    weight, bias = np.array([0.7, 1.6]), 0.4
    x, z = np.array([0.3, -1.1]), np.array([-0.6, 0.5])
    S = np.array([[bias + (weight * a * b).sum() for b in (x, z)] for a in (x, z)])
    nodes, weights = np.polynomial.hermite_e.hermegauss(80)
    u = np.linalg.cholesky(S) @ np.stack(np.meshgrid(nodes, nodes)).reshape(2, -1)
    total = np.outer(weights, weights).ravel() / (2 * np.pi)
    expected = 1.2 * np.sum(total * special.erf(u[0]) * special.erf(u[1]))
    np.testing.assert_allclose(K(sg.ArcSine(weight, bias, 1.2), [x], [z])[0, 0], expected, rtol=1e-6)  # 80 nodes for erf


def half_plane_closed_form(x, z, R):
    """k = 1 − (‖x‖²(π−θ_x+sin θ_x) + ‖z‖²(π−θ_z+sin θ_z))/8R² for the square of half-width R, θ twice the triangle's angles."""

    def part(a, b):
        theta = 2 * np.arccos(a @ (a - b) / (np.linalg.norm(a) * np.linalg.norm(a - b)))
        return a @ a * (np.pi - theta + np.sin(theta))

    return 1 - (part(x, z) + part(z, x)) / (8 * R**2)


def test_half_space_kernel_in_the_plane():
    X, Z = zoo.X[2], zoo.XS[2]
    expected = [[half_plane_closed_form(x, z, 4.0) for z in Z] for x in X]
    np.testing.assert_allclose(K(sg.HalfSpace(4.0, support="box"), X, Z), expected, rtol=1e-10)


@pytest.mark.parametrize("D", [1, 2, 3, 5])
def test_half_space_kernel_by_monte_carlo(D):
    """Half-spaces with their nearest boundary point uniform over the ball; five standard errors of 200,000 draws."""
    rng, n, R = np.random.default_rng(D), 200_000, 2.0
    direction = rng.standard_normal((n, D))
    r = direction / np.linalg.norm(direction, axis=1, keepdims=True) * R * rng.uniform(size=(n, 1)) ** (1 / D)
    X = rng.standard_normal((5, D))
    X *= R * rng.uniform(0.4, 1.0, (5, 1)) / np.linalg.norm(X, axis=1, keepdims=True)
    beyond = (r @ X.T > (r * r).sum(axis=1)[:, None]).astype(float)  # whether the boundary parts x from the origin
    label = 1 - 2 * beyond
    expected, error = label.T @ label / n, np.sqrt(1 / n)
    np.testing.assert_allclose(K(sg.HalfSpace(R), X), expected, atol=5 * error)
    volume = np.pi ** (D / 2) / special.gamma(D / 2 + 1) * R**D
    overlap = volume * (beyond.T @ beyond / n)
    np.testing.assert_allclose(K(sg.HalfSpaceOverlap(1.0, 0.0), X), overlap, atol=5 * volume * error)


def test_half_space_kernel_at_its_special_places():
    """Parallel, antiparallel, the origin, and the same point twice."""
    x = np.array([[1.0, 0.0], [2.0, 0.0], [-1.0, 0.0], [0.0, 0.0], [1.0, 0.0]])
    overlap = K(sg.HalfSpaceOverlap(1.0, 0.0), x)
    ball = np.pi * 0.25
    np.testing.assert_allclose(overlap[0], [ball, ball, 0.0, 0.0, ball], atol=1e-12)


def test_hypothesis_class_counts_agreements():
    labels = np.where(zoo.X[1] > [-1.0, 0.0, 1.0], 1.0, -1.0)
    kernel, _ = zoo.KERNELS["HypothesisClass"]
    np.testing.assert_allclose(K(kernel, zoo.X[1]), 1.2 * labels @ np.diag([0.2, 0.5, 0.3]) @ labels.T, rtol=1e-12, atol=1e-15)


def test_metrics_with_one_matrix_give_one_kernel():
    angle, lengths = 0.6, np.array([0.7, 1.9])
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    Sigma = turn @ np.diag(lengths**-2.0) @ turn.T
    givens, cholesky = sg.GivensMetric(lengths, [angle]), sg.CholeskyMetric.from_matrix(Sigma)
    spectrum, vectors = np.linalg.eigh(Sigma - 0.25 * np.eye(2))
    factor = sg.FactorMetric(vectors * np.sqrt(spectrum), [2.0, 2.0])
    difference = zoo.X[2][:, None] - zoo.X[2][None]
    expected = 1.3 * np.exp(-0.5 * np.einsum("ijd,de,ije->ij", difference, Sigma, difference))
    with jax.enable_x64(True):
        for metric in (givens, cholesky, factor):
            np.testing.assert_allclose(metric.matrix(), Sigma, rtol=1e-12)
            np.testing.assert_allclose(K(sg.SquaredExponential(metric, 1.3), zoo.X[2]), expected, rtol=1e-11)
    straight = sg.GivensMetric(lengths, [0.0])
    np.testing.assert_allclose(K(sg.Matern52(straight), zoo.X[2]), K(sg.Matern52(lengths), zoo.X[2]), rtol=1e-12)


def test_givens_rotations_in_four_dimensions_are_rotations():
    rng = np.random.default_rng(0)
    metric = sg.GivensMetric(np.ones(4), rng.uniform(0, 2 * np.pi, 6))
    with jax.enable_x64(True):
        V = np.asarray(metric.rotation())
    np.testing.assert_allclose(V @ V.T, np.eye(4), atol=1e-14)
    assert np.linalg.det(V) == pytest.approx(1.0)


def test_random_rotations_are_haar():
    """E tr Q = 0, E (tr Q)² = 1, E (tr Q)⁴ = 3 and E Q₁₁² = 1/D over the orthogonal group; both signs of the determinant."""
    rng, D, n = np.random.default_rng(5), 3, 4000
    Q = np.array([sg.random_rotation(D, rng) for _ in range(n)])
    np.testing.assert_allclose(Q @ Q.transpose(0, 2, 1), np.broadcast_to(np.eye(D), Q.shape), atol=1e-13)
    trace = np.trace(Q, axis1=1, axis2=2)
    for values, expected in [(trace, 0.0), (trace**2, 1.0), (trace**4, 3.0), (Q[:, 0, 0] ** 2, 1 / D), (np.linalg.det(Q), 0.0)]:
        assert abs(values.mean() - expected) < 5 * values.std() / np.sqrt(n)
    np.testing.assert_array_equal(sg.random_rotation(3, 7), sg.random_rotation(3, 7))


def test_orthonormalise():
    W = sg.orthonormalise([[1.0, 2.0], [0.0, 3.0], [1.0, 1.0]])
    np.testing.assert_allclose(W.T @ W, np.eye(2), atol=1e-14)
    np.testing.assert_allclose(sg.orthonormalise([3.0, 4.0]), [0.6, 0.8])


def test_change_point_hands_over():
    kernel = sg.ChangePoint(sg.Matern32(0.8), sg.Matern52(1.4, 0.6), 0.3)
    x = np.array([[-1.0], [0.2], [0.3], [1.0]])
    expected = np.zeros((4, 4))
    expected[:2, :2] = K(sg.Matern32(0.8), x[:2])
    expected[2:, 2:] = K(sg.Matern52(1.4, 0.6), x[2:])
    np.testing.assert_allclose(K(kernel, x), expected, atol=1e-15)
    s = 1 / (1 + np.exp(-(x[:, 0] - 0.3) / 0.5))
    smooth = sg.ChangePoint(sg.Constant(2.0), sg.Constant(3.0), 0.3, 0.5)
    np.testing.assert_allclose(K(smooth, x), 2 * np.outer(1 - s, 1 - s) + 3 * np.outer(s, s), rtol=1e-12)


def test_views():
    X = zoo.X[2]
    np.testing.assert_allclose(K(sg.Matern32(0.8).on(1), X), K(sg.Matern32(0.8), X[:, 1:]), rtol=1e-13)
    np.testing.assert_allclose(
        K(sg.Project(sg.Matern32(0.8), [0.6, 0.8]), X), K(sg.Matern32(0.8), X @ [[0.6], [0.8]]), rtol=1e-12
    )
    np.testing.assert_allclose(K(sg.Warp(sg.Matern32(0.8), zoo.bend), X), K(sg.Matern32(0.8), np.sinh(X)), rtol=1e-11)


def test_a_kernel_answers_for_two_numbers_in_double_precision():
    value = sg.SquaredExponential(0.7, 1.3)(0.1, 0.4)
    assert float(value) == pytest.approx(1.3 * np.exp(-0.5 * (0.3 / 0.7) ** 2), rel=1e-14)
    assert not jax.config.jax_enable_x64
    assert jnp.zeros(1).dtype == jnp.float32


def test_algebra_of_numbers():
    for product in (2.0 * sg.Matern32(), sg.Matern32() * 2, np.float64(2.0) * sg.Matern32(), sg.Matern32() * np.array(2.0)):
        assert repr(product) == "2 * Matern32(lengthscale=1, variance=1)"
    with pytest.raises(TypeError, match="a kernel is multiplied by kernels, or by one positive number, got array"):
        np.array([1.0, 2.0]) * sg.Matern32()
    with pytest.raises(TypeError, match=r"a kernel is added to kernels, got 1\.0: Constant"):
        sg.Matern32() + 1.0
    with pytest.raises(ValueError, match="scale must be positive"):
        -2.0 * sg.Matern32()
