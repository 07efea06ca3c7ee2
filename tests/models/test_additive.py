"""Additive models: what they compute is what the whole covariance matrix computes, and learning is by a bound that is one."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg

import reference
import structgp as sg
from structgp.engines.additive import AdditiveEngine, remainders
from structgp.engines.additive_splines import SplineMap
from structgp.engines.woodbury import whitened
from structgp.inputs.layouts import as_inputs
from structgp.inputs.observations import read_observations
from structgp.linalg.features import splines
from structgp.linalg.markov import quasiseparable
from structgp.models.additive.learned import SplineSums
from structgp.models.additive.model import AdditiveGP
from structgp.parameters.tree import free_vector, with_free
from structgp.sites import Sites
from structgp.structure.additive import additive, lines_of

N, M, D = 120, 20, 3
NOISE = 0.02
RNG = np.random.default_rng(3)
X = RNG.uniform(0, 1, (N, D))
X[5] = X[4]
XS = RNG.uniform(-0.3, 1.3, (M, D))
Y = np.sin(6 * X[:, 0]) + 2 * X[:, 1] + np.sqrt(NOISE) * RNG.standard_normal(N)
DIRECTION = sg.orthonormalise([1.0, 2.0, -1.0])
MATERN = {1: sg.Matern12, 2: sg.Matern32, 3: sg.Matern52, 4: sg.Matern72}


def kernel_of(Matern):
    return Matern(0.4, 1.2).on(0) + sg.Project(Matern(0.9, 2.0), DIRECTION) + 2.0 * Matern(3.0, 0.4).on(2)


KERNEL = kernel_of(sg.Matern52)


@functools.cache
def pair():
    """The same process by the engine for sums and by the whole matrix, with gaps in y and known noise."""
    y = Y.copy()
    y[[3, 40]] = np.nan
    options = {"noise": np.linspace(0, 0.05, N), "missing": "infer"}
    gp = sg.GP(KERNEL, sg.Gaussian(NOISE), sg.polynomial(0))
    return AdditiveGP(KERNEL, sg.Gaussian(NOISE)).condition(X, y, **options), gp.condition(X, y, structure="dense", **options)


def covariance(kernel, X, Z):
    with jax.enable_x64(True):
        return np.asarray(jax.jit(sg.covariance)(kernel, jnp.asarray(X), jnp.asarray(Z)))


# products along lines


@pytest.mark.parametrize("n", MATERN)
def test_products_along_lines_are_products_with_the_matrix(n):
    t = np.sort(X, axis=0)
    lengths = np.array([0.05, 0.4, 6.0])
    rate = np.sqrt(2 * n - 1) / lengths
    v = RNG.standard_normal((N, D, 2))
    with jax.enable_x64(True):
        u = rate * np.diff(t, axis=0, prepend=t[:1])
        between = lambda u, v, t: quasiseparable.between(quasiseparable.sweep(u, v, n), t, jnp.asarray(XS), rate, n)
        both = jax.jit(lambda u, v, t: (quasiseparable.product(u, v, n), between(u, v, t)))
        product, cross = (np.asarray(part) for part in both(u, v, t))
        for d in range(D):
            K, Ks = (
                np.asarray(jax.jit(sg.covariance)(MATERN[n](lengths[d]), x[:, d : d + 1], t[:, d : d + 1])) for x in (t, XS)
            )
            np.testing.assert_allclose(product[:, d], K @ v[:, d], rtol=1e-12, atol=1e-12)
            np.testing.assert_allclose(cross[:, d], Ks @ v[:, d], rtol=1e-12, atol=1e-12)


# the projection on splines


@pytest.mark.parametrize("n", MATERN)
def test_splines_project_the_covariance(n):
    """K − Q has no negative part, whatever the lengthscale, and vanishes as knots get dense."""
    t, lengths = np.sort(X, axis=0), (0.05, 0.3, 1.0, 10.0, 100.0)
    rounding = 2 * N * np.finfo(float).eps  # of K itself, whose largest eigenvalue is N
    sizes = []
    with jax.enable_x64(True):
        for intervals in (8, 32, 64):
            basis = jax.jit(splines.build, static_argnums=(1, 2))(t, intervals, n)
            Phi = np.asarray(jax.jit(splines.features, static_argnums=2)(basis, t, n))[:, 0]
            for length in lengths:
                S = np.asarray(jax.jit(splines.inner_products)(basis, np.full(D, np.sqrt(2 * n - 1) / length)))[0]
                U = scipy.linalg.solve_triangular(np.linalg.cholesky(S), Phi.T, lower=True)
                left = np.asarray(jax.jit(sg.covariance)(MATERN[n](length), t[:, :1], t[:, :1])) - U.T @ U
                assert np.linalg.eigvalsh(left).min() > -rounding
                assert np.trace(left) > 0
                sizes.append(np.trace(left) / N)
    coarse, fine, finest = np.array(sizes).reshape(3, len(lengths))
    assert (fine[1:3] < coarse[1:3] * 0.5 ** (2 * n - 1)).all()
    assert (finest[3:] < fine[3:] + 1e-11).all()  # safety against rounding costs no more than that


def test_derivatives_of_the_basis_are_differences():
    with jax.enable_x64(True):
        basis = splines.build(jnp.asarray(np.sort(X, axis=0)), 8, 3)
        at, h = jnp.asarray(np.clip(X[:M], 0.05, 0.95)), 1e-5
        features = jax.jit(splines.features, static_argnums=(2, 3))
        differences = (features(basis, at + h, 3) - features(basis, at - h, 3)) / (2 * h)
        np.testing.assert_allclose(features(basis, at, 3, 1), differences, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("lengths", "noise"), [((0.4, 0.9, 3.0), 0.02), ((0.1, 0.3, 20.0), 0.2), ((30.0, 30.0, 30.0), 1e-4)])
def test_the_bound_is_one(lengths, noise):
    kernel = sum((sg.Matern52(length, 1.5).on(d) for d, length in enumerate(lengths[1:], 1)), sg.Matern52(lengths[0]).on(0))
    gp = sg.GP(kernel, sg.Gaussian(noise), sg.polynomial(0))
    exact = gp.condition(X, Y, structure="dense").log_evidence
    with jax.enable_x64(True):
        inputs, data = as_inputs(X), read_observations(gp.likelihood, Y, None, "error", as_inputs(X))
        objective = SplineSums.over(gp, inputs, data, 16)
        value = float(objective(free_vector(gp))[0])
        lines = lines_of(kernel, jnp.asarray(X))

        @jax.jit
        def left_out_of(basis, sums):
            splined, sums = SplineMap.on(basis, lines), sums.over(noise)
            return splined.left_out_of_lines(jnp.diagonal(whitened(splined, sums)[0]), sums)

        left_out = left_out_of(objective.basis, objective.sums)
        # rounding may not make the projection larger than what it projects
        assert np.min(left_out) > -1e-6 * N / noise
    assert value < exact + 1e-6 * abs(exact)
    gap = 0.5 * float(np.sum(np.maximum(left_out, 0)))
    assert exact - value < 2 * gap + 1e-3 or lengths == (0.1, 0.3, 20.0)  # few knots for a short lengthscale: a loose bound


def test_the_gradient_of_the_bound_is_its_slope():
    gp = sg.GP(KERNEL, sg.Gaussian(NOISE), sg.polynomial(0)).freeze("kernel.terms[1].direction")
    with jax.enable_x64(True):
        inputs = as_inputs(X)
        objective = SplineSums.over(gp, inputs, read_observations(gp.likelihood, Y, None, "error", inputs), 16)
        theta = free_vector(gp)
        np.testing.assert_allclose(objective(theta)[1], reference.slope(lambda t: objective(t)[0], theta), rtol=1e-5, atol=1e-5)


# the posterior


def test_mean_variance_and_parts_are_those_of_the_matrix():
    sums, dense = pair()
    assert float(sums.conditional.residual) < 1e-8
    p, q = sums.predict(XS), dense.predict(XS)
    np.testing.assert_allclose(p.mean, q.mean, rtol=1e-7, atol=1e-8)
    np.testing.assert_allclose(sums.mean(XS), q.mean, rtol=1e-7, atol=1e-8)
    np.testing.assert_allclose(p.variance, q.variance, rtol=5e-3)
    p, q = sums.predict(XS, part=1), dense.predict(XS, part=1)
    np.testing.assert_allclose(p.mean, q.mean, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(p.variance, q.variance, rtol=1e-3)
    joint = sums.predict(XS, covariance=True).covariance
    np.testing.assert_allclose(joint, dense.predict(XS, covariance=True).covariance, atol=2e-4)
    assert dense.log_evidence - 1.0 < sums.log_evidence < dense.log_evidence


def test_probes_estimate_what_the_bound_leaves_out():
    engine = AdditiveEngine(8)  # few knots: much is left out
    with jax.enable_x64(True):
        sites = Sites.seen_as(jnp.asarray(Y)[:, None], jnp.full(N, NOISE), jnp.ones(N, bool))
        conditional = jax.jit(lambda inputs, sites: engine.condition(additive(KERNEL, inputs), sites))(as_inputs(X), sites)
        found = np.asarray(jax.jit(remainders, static_argnums=2)(conditional, jax.random.key(0), 16))
        projected = 2 * np.sum(np.log(np.diagonal(conditional.projected.factor))) + N * np.log(NOISE)
        upper = float(conditional.log_det_and_gram()[0])
    exact = np.linalg.slogdet(covariance(KERNEL, X, X) + NOISE * np.eye(N))[1]
    assert projected < exact < upper
    error = found.std(ddof=1) / 4
    assert abs(projected + found.mean() - exact) < 4 * error
    assert error < 0.3 * (exact - projected)


def test_draws_have_the_mean_and_covariance_of_the_matrix():
    sums, dense = pair()
    q = dense.predict(XS, covariance=True)
    draws = sums.sample(XS, n=3000, seed=1)
    assert draws.shape == (3000, M)
    error = np.sqrt(np.diagonal(q.covariance) / 3000)
    assert (np.abs(draws.mean(axis=0) - q.mean) < 5 * error).all()
    spread = np.sqrt(np.outer(q.variance, q.variance))
    assert (np.abs(np.cov(draws.T) - q.covariance) < 6 * spread * np.sqrt(2 / 3000)).all()


def test_components_are_the_centred_terms():
    """Contrasts of one term: its values on a grid less its mean over the data, by the whole matrix."""
    fitted = AdditiveGP(KERNEL, sg.Gaussian(NOISE)).condition(X, Y)
    K = covariance(KERNEL, X, X) + NOISE * np.eye(N)
    one = np.ones(N)
    precision = np.linalg.inv(K)
    precision -= np.outer(precision @ one, precision @ one) / (one @ precision @ one)
    for line, (component, term) in enumerate(zip(fitted.components(12), KERNEL.terms, strict=True)):
        places = X if line != 1 else (X @ DIRECTION)[:, None]
        inner, at = (term, component.x[:, None] * np.eye(D)[line]) if line != 1 else (term.kernel, component.x[:, None])
        centre = lambda A: A - A.mean(axis=0, keepdims=True)
        Kd, Ks, Kss = (covariance(inner, a, b) for a, b in ((places, places), (at, places), (at, at)))
        Kc = Ks - Kd.mean(axis=0)
        np.testing.assert_allclose(component.mean, Kc @ precision @ Y, rtol=1e-5, atol=1e-6)
        prior = np.diagonal(Kss) - 2 * Ks.mean(axis=1) + Kd.mean()
        np.testing.assert_allclose(component.variance, prior - np.sum((Kc @ precision) * Kc, axis=1), rtol=5e-3, atol=1e-6)
        assert component.effect == pytest.approx(np.std(centre(Kd) @ precision @ Y), rel=1e-4)


@pytest.mark.parametrize("correlation", [0.0, 0.9])
def test_the_mean_takes_few_steps_whatever_the_correlation(correlation):
    rng = np.random.default_rng(0)
    shared = np.sqrt(correlation) * rng.standard_normal((N, 1))
    Z = np.sqrt(1 - correlation) * rng.standard_normal((N, D)) + shared
    fitted = AdditiveGP(sg.Matern52(1.5), sg.Gaussian(0.01)).condition(Z, Z.sum(axis=1) + 0.1 * rng.standard_normal(N))
    assert int(fitted.conditional.steps) <= 12
    assert float(fitted.conditional.residual) < 1e-8


# learning


@functools.cache
def learned():
    rng = np.random.default_rng(5)
    Z = rng.uniform(0, 1, (600, D))
    y = 3.0 + np.sin(8 * Z[:, 0]) + (2 * Z[:, 1] - 1) ** 2 + 0.1 * rng.standard_normal(600)
    return Z, y, AdditiveGP().fit(Z, y)


@pytest.mark.full
def test_learning_finds_noise_and_functions_and_says_what_does_nothing():
    Z, y, fitted = learned()
    assert fitted.learning.converged
    assert float(fitted.likelihood.noise) == pytest.approx(0.01, rel=0.2)
    truth = np.sin(8 * Z[:, 0]) + (2 * Z[:, 1] - 1) ** 2
    assert np.std(fitted.mean(Z) - 3.0 - truth) < 0.03
    assert fitted.constant == pytest.approx(y.mean(), abs=0.01)
    first, second, third = fitted.components(50)
    np.testing.assert_allclose(first.mean - first.mean.mean(), np.sin(8 * first.x) - np.sin(8 * first.x).mean(), atol=0.08)
    assert not first.switched_off
    assert not second.switched_off
    assert third.switched_off
    assert "switched off   x2" in fitted.summary()


@pytest.mark.full
def test_what_was_learned_is_near_the_top_of_the_exact_evidence():
    Z, y, fitted = learned()
    gp = fitted.gp
    exact = sg.GP(gp.kernel, gp.likelihood, gp.mean).condition(Z, y, structure="dense").log_evidence
    assert exact - 1.5 < fitted.log_evidence < exact + 1e-6
    estimate = fitted.estimated_evidence(probes=6)
    assert abs(estimate.value - exact) < 5 * estimate.error + 1e-2
    theta = free_vector(gp)
    for change in (0.3, -0.3):
        other = with_free(gp, np.where(np.arange(len(theta)) == 0, theta + change, theta))
        other = jax.tree.map(np.asarray, other)
        assert sg.GP(other.kernel, other.likelihood, other.mean).condition(Z, y, structure="dense").log_evidence < exact + 0.1


@pytest.mark.full
def test_plot_of_the_components():
    pytest.importorskip("matplotlib").use("Agg")
    axes = learned()[2].plot_components()
    assert axes.ravel()[2].get_title() == "x2 (switched off)"


# refusals


def test_what_is_not_additive_says_why():
    with pytest.raises(ValueError, match=r"acts on 3 columns at once: \.on\(0\)"):
        AdditiveGP(sg.Matern52(1.0) + sg.Matern52(1.0).on(1)).condition(X, Y)
    with pytest.raises(ValueError, match="not all equally smooth"):
        AdditiveGP(sg.Matern32(1.0).on(0) + sg.Matern52(1.0).on(1)).condition(X, Y)
    with pytest.raises(ValueError, match="not a Matérn kernel"):
        AdditiveGP(sg.SquaredExponential(1.0).on(0) + sg.Matern52(1.0).on(1)).condition(X, Y)
    with pytest.raises(ValueError, match="projects on a plane"):
        AdditiveGP(sg.Project(sg.Matern52(), np.eye(3)[:, :2]) + sg.Matern52(1.0).on(1)).condition(X, Y)


def test_the_engine_tells_its_cost():
    fitted, _ = pair()
    assert "3 lines" in str(fitted.plan)
    assert isinstance(fitted.plan.engine, AdditiveEngine)
    assert fitted.plan.offers[0].cost.flops > 0


@pytest.mark.full
def test_backfitting_comes_to_the_same_mean_and_says_how_long_it_took():
    """Correlated columns ask for many more sweeps."""
    sweeps = []
    for share in (0.0, 0.9):
        Z = np.sqrt(1 - share) * RNG.standard_normal((N, D)) + np.sqrt(share) * RNG.standard_normal((N, 1))
        model = AdditiveGP(sg.Matern52(1.5, 1.0), sg.Gaussian(0.1))
        swept, exact = (model.condition(Z, Y, solver=name) for name in ("backfitting", "conjugate-gradients"))
        np.testing.assert_allclose(swept.mean(Z), exact.mean(Z), atol=1e-4)
        sweeps.append(int(swept.conditional.steps))
    assert sweeps[1] > 2 * sweeps[0]
    assert f"after {sweeps[1]} sweeps of backfitting" in swept.summary()
    assert "steps of conjugate gradients" in exact.summary()
    with pytest.raises(ValueError, match="solver must be one of"):
        model.condition(Z, Y, solver="magic")


@pytest.mark.full
def test_known_noise_of_each_row_counts_while_learning():
    """The evidence that is reached is that of the whole matrix, and no step from there leads higher."""
    noise = np.where(np.arange(N) % 2, 0.0, 3.0)
    y = Y + np.sqrt(noise) * np.random.default_rng(0).standard_normal(N)
    learned = AdditiveGP().fit(X, y, noise=noise)
    gp = sg.GP(learned.kernel, learned.likelihood, sg.polynomial(0))
    whole = lambda gp: gp.condition(X, y, noise=noise, structure="dense").log_evidence
    assert learned.log_evidence == pytest.approx(whole(gp), abs=0.05)
    for factor in (0.8, 1.25):
        assert whole(gp.replace({"likelihood.noise": factor * float(gp.likelihood.noise)})) < whole(gp)
    assert float(learned.likelihood.noise) == pytest.approx(NOISE, rel=0.7)


def test_a_plan_takes_the_additive_engine_when_it_is_asked_for():
    kernel = sg.Matern52(0.8).on(0) + sg.Matern52(1.5).on(1)
    gp = sg.GP(kernel, sg.Gaussian(0.05), 0.3)
    assert gp.plan(X).engine.name == "Cholesky"
    assert "Additive   mean exact, evidence from below" in str(gp.plan(X))
    ours, exact = (gp.condition(X, Y, structure=structure) for structure in ("additive", "dense"))
    assert ours.plan.engine.name == "Additive"
    assert ours.log_evidence <= exact.log_evidence + 1e-6
    np.testing.assert_allclose(ours.predict(X[:5] + 0.1).mean, exact.predict(X[:5] + 0.1).mean, rtol=1e-6, atol=1e-8)
    learned = gp.fit(X, Y, structure="additive", restarts=0, max_evaluations=40)
    assert learned.log_evidence > ours.log_evidence
    with pytest.raises(ValueError, match=r"structure='additive' cannot be had: .*acts on .* columns at once"):
        sg.GP(sg.Matern52()).plan(X, "additive")
    with pytest.raises(ValueError, match="structure='additive' cannot be had: StudentT is not log-concave"):
        sg.GP(kernel, sg.StudentT()).plan(X, "additive")
