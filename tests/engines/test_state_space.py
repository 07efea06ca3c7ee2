"""State spaces that need more than one fixed row or one closed form: change points, and approximations by name."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import reference
import structgp as sg
import zoo
from structgp.engines.cholesky import Cholesky
from structgp.engines.kalman import Kalman
from structgp.learn.evidence import evidence_objective
from structgp.linalg.filters import kalman_emission
from structgp.linalg.markov import chains, rational_sde
from structgp.parameters.tree import free_vector
from structgp.structure.approximate import RationalSpectrum, approximated, covariance_error
from structgp.structure.dense import covariance
from structgp.structure.state_space import Where, chain_of

RNG = np.random.default_rng(5)
X = np.concatenate([RNG.uniform(-2.0, 2.0, 20), [0.3, -1.0]])  # two of them at change points
XS = np.concatenate([RNG.uniform(-2.6, 2.6, 7), X[:2], [0.3]])
Y = np.sin(2 * X) + 0.1 * RNG.standard_normal(len(X))
GAPS = [3, 11]
SEEN = np.where(np.isin(np.arange(len(X)), GAPS), np.nan, Y)

WALK = sg.Matern32(0.8) + sg.Wiener(0.3, start=-3.0)
CHANGES = {
    "sharp": sg.ChangePoint(sg.Matern32(0.8), sg.Matern52(1.4, 0.6), 0.3),
    "sigmoid": sg.ChangePoint(sg.Matern32(0.8), sg.Linear(0.6), 0.3, 0.5),
    "spline": sg.ChangePoint(sg.Spline(0.8, order=1), sg.Matern52(1.4, 0.6), 0.3),
    "sum": sg.Matern52(0.7) + sg.Scaled(sg.ChangePoint(WALK, sg.Matern12(1.4), 0.3, 0.2), 2.0),
    "nested": sg.ChangePoint(sg.ChangePoint(sg.Matern32(0.8), sg.Constant(1.3), -1.0, 0.3), sg.Matern12(1.4, 0.6), 0.3)
    * sg.Matern32(1.1),
}


def model(name):
    return sg.GP(CHANGES[name], sg.Gaussian(0.1), sg.polynomial(1) if name == "sum" else None)


@functools.cache
def markov(name):
    return model(name).condition(X, SEEN, missing="infer", structure="markov")


@jax.jit
def _matrices(gp, part, X):
    return covariance(part, X, X), jax.vmap(gp.mean.features)(X), jax.vmap(gp.kernel.null_space)(X)


class Plain:
    """The same model from its covariance matrix, by NumPy; `part` is a term of the sum."""

    def __init__(self, name, part=None):
        gp, seen = model(name), ~np.isnan(SEEN)
        both = np.concatenate([X[seen], XS])[:, None]
        with jax.enable_x64(True):
            (K, *Phi), (P, *_) = (
                _matrices(gp, k, both) for k in (gp.kernel, gp.kernel if part is None else gp.kernel.terms[part])
            )
        Phi, n, y, R = np.concatenate([np.asarray(part) for part in Phi], axis=1), seen.sum(), Y[seen], 0.1
        K, P, Phis = np.asarray(K)[:n, :n], np.asarray(P), Phi[n:] if part is None else 0 * Phi[n:]
        self.log_evidence = reference.log_evidence(K, y, R, Phi[:n])
        self.mean, self.covariance = reference.predict(K, P[:n, n:], P[n:, n:], y, R, Phi[:n], Phis)
        self.variance = np.diagonal(self.covariance)


@pytest.mark.parametrize("name", zoo.mostly_full(["spline", "sum", "nested"], "sum", "nested"))
def test_a_change_point_is_a_chain(name):
    expected, found = Plain(name), markov(name).predict(XS)
    assert markov(name).log_evidence == pytest.approx(expected.log_evidence, rel=1e-11)
    np.testing.assert_allclose(found.mean, expected.mean, rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(found.variance, expected.variance, rtol=1e-9, atol=1e-11)


@pytest.mark.full
def test_the_joint_covariance_and_samples():
    expected, found = Plain("nested"), markov("nested").predict(XS, covariance=True)
    np.testing.assert_allclose(found.mean, expected.mean, atol=1e-10)
    np.testing.assert_allclose(found.covariance, expected.covariance, atol=1e-10)
    count = 4000
    draws = markov("nested").sample(XS, count, seed=2)
    error = np.sqrt(expected.variance / count)
    assert (np.abs(draws.mean(0) - expected.mean) < 4.5 * error).all()
    scale = np.sqrt(np.outer(expected.variance, expected.variance))
    assert (np.abs(np.cov(draws.T) - expected.covariance) < 4.5 * np.sqrt(2 / count) * scale + 1e-12).all()


@pytest.mark.full
def test_parts_of_a_sum_with_a_change_point():
    expected, found = Plain("sum", part=1), markov("sum").predict(XS, part=1)
    np.testing.assert_allclose(found.mean, expected.mean, atol=1e-10)
    np.testing.assert_allclose(found.variance, expected.variance, atol=1e-10)
    joint = markov("sum").predict(XS, part=1, covariance=True)
    np.testing.assert_allclose(joint.covariance, expected.covariance, atol=1e-10)


def along(kernel, t):
    return chain_of(kernel, Where(t[0], t[0], 4))


@pytest.mark.parametrize("name", zoo.mostly_full(["sharp", "sigmoid", "nested"], "nested"))
def test_evidence_and_its_gradient(name, x64):
    t = np.sort(X)
    kernel, y, w = CHANGES[name], np.sin(2 * t)[:, None], np.linspace(5.0, 20.0, len(t))

    def by_chain(kernel, t):
        log_det, gram = kalman_emission.evidence(along(kernel, t), t, w, y, segment=8)
        return log_det + gram[0, 0]

    def by_matrix(kernel, t):
        C = covariance(kernel, t[:, None], t[:, None]) + np.diag(1 / w)
        return jnp.linalg.slogdet(C)[1] + jnp.sum(y * jnp.linalg.solve(C, y))

    value, slope = jax.jit(jax.value_and_grad(by_chain, (0, 1)))(kernel, t)
    expected, expected_slope = jax.jit(jax.value_and_grad(by_matrix, (0, 1)))(kernel, t)
    assert float(value) == pytest.approx(float(expected), rel=1e-11)
    for found, right in zip(jax.tree.leaves(slope), jax.tree.leaves(expected_slope), strict=True):
        np.testing.assert_allclose(found, right, rtol=1e-8, atol=1e-8)
    if name == "sharp":  # flat in the location
        assert slope[0].location == 0.0


def test_hardly_any_noise(x64):
    t = np.sort(X)
    kernel, w, y = CHANGES["sharp"], np.full(len(t), 1e9), np.sin(2 * t)[:, None]
    C = np.asarray(jax.jit(covariance)(kernel, t[:, None], t[:, None])) + 1e-9 * np.eye(len(t))
    log_det, gram = jax.jit(lambda t, w, y: kalman_emission.evidence(along(kernel, t), t, w, y))(t, w, y)
    assert float(log_det) == pytest.approx(np.linalg.slogdet(C)[1], rel=1e-9)
    assert float(gram[0, 0]) == pytest.approx((y.T @ np.linalg.solve(C, y)).item(), rel=1e-6)  # the matrix is the weak side


@pytest.mark.full
def test_natural_sites_in_segments(x64):
    t, w, h = np.sort(X), RNG.uniform(-0.05, 2.0, len(X)), RNG.standard_normal((len(X), 1))
    kernel = CHANGES["nested"]
    K = np.asarray(covariance(kernel, t[:, None], t[:, None]))
    log_det, gram = kalman_emission.evidence(along(kernel, t), t, w, h, natural=True, segment=8)
    B = np.eye(len(t)) + K * w
    assert float(log_det) == pytest.approx(np.linalg.slogdet(B)[1], rel=1e-10)
    assert float(gram[0, 0]) == pytest.approx((h.T @ K @ np.linalg.solve(B.T, h)).item(), rel=1e-10)


def test_the_plan_says_so_and_the_reason_of_a_side_is_passed_on():
    assert str(model("sharp").plan(np.arange(1000.0))).startswith("Kalman     exact")
    with pytest.raises(ValueError, match="cannot be had: SquaredExponential has no finite state"):
        sg.GP(sg.ChangePoint(sg.Matern32(), sg.SquaredExponential())).plan(X, structure="markov")


def test_a_named_approximation_is_exact_for_what_stands_in():
    gp = sg.GP(sg.SquaredExponential(0.8, 1.3), sg.Gaussian(0.1))
    markov = gp.condition(X, Y, approximate="state-space")
    with jax.enable_x64(True):
        kernel = jax.tree.map(np.asarray, approximated(gp.kernel, "state-space"))
    close = sg.GP(kernel, gp.likelihood)
    dense = close.condition(X, Y, structure="dense")
    assert markov.log_evidence == pytest.approx(dense.log_evidence, rel=1e-10)
    expected, found = dense.predict(XS), markov.predict(XS)
    np.testing.assert_allclose(found.mean, expected.mean, atol=1e-10)
    np.testing.assert_allclose(found.variance, expected.variance, atol=1e-10)
    by_chain = evidence_objective(gp, markov.inputs, markov.data, Kalman(approximate="state-space"))(free_vector(gp))
    by_matrix = evidence_objective(close, dense.inputs, dense.data, Cholesky())(free_vector(close))
    np.testing.assert_allclose(by_chain[1], by_matrix[1], rtol=1e-8)  # the same three parameters
    with pytest.raises(ValueError, match=r"no derivative of order 8, because RationalSpectrum\(.*\) has 7 derivatives"):
        markov.derivative(XS, 8)


@pytest.mark.parametrize("approximate", zoo.mostly_full(["state-space", "matern"], "state-space"))
@pytest.mark.parametrize("alpha", zoo.mostly_full([None, 0.6, 3.0], None))
def test_the_error_that_is_told_is_the_error(alpha, approximate, x64):
    kernel = sg.SquaredExponential(0.7, 2.0) if alpha is None else sg.RationalQuadratic(0.7, 2.0, alpha=alpha)
    t = np.concatenate([np.linspace(0.0, 6.0, 400), np.geomspace(6.0, 300.0, 50)])
    close = approximated(kernel, approximate)
    exact, found = (np.asarray(jax.jit(covariance)(k, np.zeros((1, 1)), t[:, None]))[0] for k in (kernel, close))
    chain = along(close, t)
    A, V = jax.jit(lambda chain, t: (chain.transition(t), chain.start()))(chain, t)
    by_chain = np.einsum("i,ijn,jk,k->n", chain.row, np.asarray(A), np.asarray(V), chain.row)
    np.testing.assert_allclose(by_chain, found, atol=1e-12)
    assert found[0] == pytest.approx(2.0, rel=1e-12)  # the variance is right
    error, told = np.abs(found - exact).max() / 2.0, covariance_error(2.0 * kernel + sg.Matern32(), approximate)
    assert 0.98 * told <= error <= told * (1 + 1e-6)


def test_errors_add_up_in_products():
    one = covariance_error(sg.SquaredExponential(), "matern")
    two = covariance_error(sg.SquaredExponential() * sg.Matern32() * sg.SquaredExponential(2.0), "matern")
    assert two == pytest.approx((1 + one) ** 2 - 1)
    assert covariance_error(sg.ChangePoint(sg.SquaredExponential(), sg.Matern32()), "matern") == one


def test_errors_of_the_orders():
    expected = {4: 2.2e-2, 5: 9.5e-3, 6: 4.3e-3, 8: 9.1e-4, 10: 2.0e-4}
    assert {order: float(f"{rational_sde.largest_error(order):.1e}") for order in expected} == expected


@pytest.mark.parametrize("states", zoo.mostly_full([3, 6, 8], 6))
def test_moves_of_a_rational_spectrum(states, x64):
    """A(a + b) = A(a) A(b) and Q(a + b) = A(b) Q(a) A(b)ᵀ + Q(b), across the joints; nothing moves in no time."""
    chain = rational_sde.Rational(states, 1.3, 0.7)
    moves = jax.jit(lambda chain, gap: (chain.transition(gap), chain.noise(gap)))
    for a, b in [(0.01, 0.2), (0.3, 0.4), (0.2, 3.0), (2.0, 5.0)]:
        (A, P), (B, Q), (C, R) = (map(np.asarray, moves(chain, gap)) for gap in (a, b, a + b))
        np.testing.assert_allclose(A @ B, C, atol=1e-11)
        np.testing.assert_allclose(B @ P @ B.T + Q, R, atol=1e-11)
    np.testing.assert_array_equal(moves(chain, 0.0)[0], np.eye(states))
    F, V = np.asarray(chain.generator()), np.asarray(chain.start())
    drive = F @ V + V @ F.T
    np.testing.assert_allclose(drive[:-1], 0.0, atol=1e-12 * np.abs(drive).max())
    tiny = np.asarray(moves(chain, 1e-6)[1])
    scale = 1 / np.sqrt(np.diagonal(tiny))
    expected = np.asarray(moves(chains.Taylor(states, 1.0, np.zeros((states, states))), 1.0)[1])
    root = 1 / np.sqrt(np.diagonal(expected))
    np.testing.assert_allclose(tiny * np.outer(scale, scale), expected * np.outer(root, root), atol=1e-4)


def test_the_plan_and_the_summary_say_approximate_and_how_far():
    gp = sg.GP(sg.SquaredExponential(0.8), sg.Gaussian(0.1))
    plan = str(gp.plan(X, approximate="state-space"))
    assert plan.startswith("Kalman     approximate (covariance error 9.1e-04)")
    assert "SquaredExponential has no finite state (Matern72 is close" in str(gp.plan(X))
    assert str(sg.GP(sg.Matern32()).plan(X, approximate="state-space")).startswith("Kalman     exact")
    assert "36 states" in str(sg.GP(sg.RationalQuadratic()).plan(X, approximate="state-space")).splitlines()[0]


@pytest.mark.full
def test_an_approximate_model_is_learned_extended_saved_and_read(tmp_path):
    gp = sg.GP(sg.SquaredExponential(0.8), sg.Gaussian(0.1))
    fitted = gp.fit(X, Y, approximate="matern", restarts=0, max_evaluations=5)
    assert "engine         Kalman, approximate (covariance error 4.0e-02)" in fitted.summary()
    assert str(fitted.plan).startswith("Kalman     approximate (covariance error 4.0e-02)")
    fitted.save(tmp_path / "model.sgp")
    again = sg.load(tmp_path / "model.sgp")
    np.testing.assert_array_equal(again.predict(XS).mean, fitted.predict(XS).mean)
    assert str(again.plan) == str(fitted.plan)
    assert again.update([2.5], [0.1]).plan.engine.approximate == "matern"


def test_what_cannot_be_approximated_says_why():
    gp = sg.GP(sg.SquaredExponential())
    with pytest.raises(ValueError, match=r"approximate must be one of \['state-space', 'matern'\], or None to be exact"):
        gp.plan(X, approximate="best")
    with pytest.raises(ValueError, match="approximate='matern' cannot be had: the inputs are not one column"):
        gp.plan(np.zeros((3, 2)), approximate="matern")
    with pytest.raises(ValueError, match="structure='dense' is exact, so nothing is approximate there: leave out one"):
        gp.plan(X, structure="dense", approximate="matern")
    with pytest.raises(ValueError, match="approximate='state-space' cannot be had: Sinc has no finite state"):
        sg.GP(sg.Sinc() + sg.SquaredExponential()).plan(X, approximate="state-space")


def test_what_stands_in_is_a_kernel_of_its_own():
    with jax.enable_x64(True):
        close = approximated(sg.SquaredExponential(0.8) + sg.Matern32(), "state-space")
    assert isinstance(close.terms[0], RationalSpectrum)
    assert isinstance(close.terms[1], sg.Matern32)
