"""Labels and counts behind additive functions and projections: Laplace's approximation is that of the whole matrix."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import reference
import structgp as sg
import zoo
from structgp.linalg.features import sines
from structgp.models.additive.model import AdditiveGP
from structgp.models.labels import LEVEL, AdditiveLabels, LaplaceEvidence, NormalScores, ProjectionPursuitLabels
from structgp.parameters.tree import free_vector

N, M, D = 150, 20, 3
RNG = np.random.default_rng(7)
X = RNG.uniform(0, 1, (N, D))
XS = RNG.uniform(-0.2, 1.2, (M, D))
F = 3 * np.sin(6 * X[:, 0]) + 2 * X[:, 1]
LABELS = (RNG.random(N) < 1 / (1 + np.exp(-F))).astype(float)
COUNTS = RNG.poisson(np.exp(0.4 * F)).astype(float)
KERNEL = sg.Matern52(0.5, 2.0).on(0) + sg.Matern52(1.0, 1.0).on(1) + sg.Matern52(0.8, 0.5).on(2)
CASES = {"labels": (sg.Bernoulli("logit"), LABELS), "counts": (sg.Poisson(), COUNTS)}


@functools.cache
def conditioned(name):
    likelihood, y = CASES[name]
    ours = AdditiveLabels(KERNEL, likelihood, ranks=False).condition(X, y)
    whole = sg.GP(KERNEL + sg.Constant(LEVEL), likelihood).condition(X, y, inference="laplace", structure="dense")
    return ours, whole


@pytest.mark.parametrize("name", zoo.mostly_full(CASES, "counts"))
def test_laplace_is_that_of_the_whole_matrix(name):
    ours, whole = conditioned(name)
    assert ours.log_evidence == pytest.approx(whole.log_evidence, abs=0.02)
    p, q = ours.predict(XS), whole.predict(XS)
    np.testing.assert_allclose(p.mean, q.mean, atol=5e-3)
    np.testing.assert_allclose(p.variance, q.variance, rtol=1e-2)


@pytest.mark.full
def test_the_bound_in_print_is_below_the_evidence():
    """It has one determinant for each term: by Fischer's inequality that is too much."""
    ours, _ = conditioned("labels")
    f = ours.predict(X).mean
    p = 1 / (1 + np.exp(-f))
    W = np.diag(p * (1 - p))
    with jax.enable_x64(True):
        parts = [
            np.asarray(jax.jit(sg.covariance)(term, jnp.asarray(X), jnp.asarray(X)))
            for term in (*KERNEL.terms, sg.Constant(LEVEL))
        ]
    log_det = lambda K: np.linalg.slogdet(np.eye(N) + K @ W)[1]
    apart = sum(log_det(K) for K in parts)
    assert ours.block_bound == pytest.approx(ours.log_evidence - 0.5 * (apart - log_det(sum(parts))), abs=0.05)
    assert ours.block_bound < ours.log_evidence


def test_the_gradient_of_the_evidence_is_its_slope():
    with jax.enable_x64(True):
        model = conditioned("labels")[0].model
        objective = LaplaceEvidence(model, X, LABELS)
        theta = free_vector(model)
        expected = reference.slope(lambda t: objective(t)[0], theta)
        np.testing.assert_allclose(objective(theta)[1], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.full
def test_learning_labels_and_counts():
    ours, _ = conditioned("labels")
    learned = AdditiveLabels(KERNEL, ranks=False).fit(X, LABELS, max_evaluations=40)
    assert learned.log_evidence > ours.log_evidence
    probability = learned.predict(X).probability
    assert np.mean((probability > 0.5) == LABELS) > 0.8
    counts, _ = conditioned("counts")
    assert np.corrcoef(counts.predict(X).observed.mean, np.exp(0.4 * F))[0, 1] > 0.9


@pytest.mark.full
def test_projections_of_labels():
    """A boundary along a diagonal: one projection finds it where no single column shows it."""
    rng = np.random.default_rng(1)
    Z = rng.standard_normal((400, 3))
    y = (np.abs(Z @ [0.6, 0.8, 0.0]) > 0.7).astype(float)
    fitted = ProjectionPursuitLabels(projections=1, sines=8).fit(Z, y, max_evaluations=60)
    new = rng.standard_normal((300, 3))
    truth = np.abs(new @ [0.6, 0.8, 0.0]) > 0.7
    assert np.mean((fitted.predict(new).probability > 0.5) == truth) > 0.9
    assert len(fitted.table) == 1
    assert "1 projections" in fitted.summary()


@pytest.mark.full
def test_projections_of_labels_know_that_their_directions_were_learned():
    """Weights and directions are one Gaussian, whose precision has the derivatives of f in both."""
    rng = np.random.default_rng(2)
    Z = rng.standard_normal((60, 2))
    y = (np.abs(Z @ [0.6, 0.8]) > 0.7).astype(float)
    fitted = ProjectionPursuitLabels(projections=1, sines=4, ranks=False).fit(Z, y, max_evaluations=20)
    F = len(fitted.mode.weights) - 2

    with jax.enable_x64(True):
        L, U = jnp.asarray(fitted.waves.reach), fitted.model.functions.units()
        scale = fitted.model._along(L).scales[:, None]
        f = lambda U, a, x: a @ (scale * sines.features(U, L, jnp.asarray(x), 4))
        in_weights, in_directions = jax.jacobian(f, 1), jax.jacobian(f)
        a, new = jnp.asarray(fitted.mode.weights[:F]), rng.standard_normal((5, 2))
        J, K = (np.concatenate([in_weights(U, a, x), in_directions(U, a, x)[:, 0]], axis=1) for x in (Z, new))
        mean = np.asarray(f(U, a, Z))
    p = 1 / (1 + np.exp(-mean))
    precision = np.eye(F + 2) + (J.T * p * (1 - p)) @ J
    found = fitted.predict(new)
    np.testing.assert_allclose(found.variance, np.sum(K.T * np.linalg.solve(precision, K.T), axis=0), rtol=1e-8)
    known = np.sum(K[:, :F].T * np.linalg.solve(precision[:F, :F], K[:, :F].T), axis=0)
    assert np.all(found.variance > known)
    again = fitted.given(Z, y)
    np.testing.assert_allclose(again.predict(new).mean, found.mean, rtol=1e-6)
    assert again.log_evidence == pytest.approx(fitted.log_evidence)
    assert fitted.given(Z[:30], y[:30]).log_evidence > fitted.log_evidence


def test_normal_scores():
    column = np.array([[1.0], [10.0], [10.0], [1000.0]])
    scores = NormalScores.of(column)
    np.testing.assert_allclose(scores(column)[:, 0], [-1.15034938, 0.0, 0.0, 1.15034938], atol=1e-8)
    assert scores(np.array([[-5.0]]))[0, 0] == scores(column)[0, 0]


def test_bad_labels_are_refused():
    with pytest.raises(ValueError, match="Bernoulli needs labels 0 and 1"):
        AdditiveLabels(KERNEL).fit(X, 3 * LABELS)
    with pytest.raises(ValueError, match=r"one value .*for each of the 150 rows of X, got shape \(5,\)"):
        AdditiveLabels(KERNEL).fit(X, LABELS[:5])


# sites


@pytest.mark.parametrize("name", zoo.mostly_full(["ep", "variational"], "ep"))
def test_sites_are_those_of_the_whole_matrix(name):
    likelihood, y = (sg.Bernoulli("probit"), LABELS) if name == "ep" else CASES["counts"]
    ours = AdditiveGP(KERNEL, likelihood).condition(X, y, inference=name)
    whole = sg.GP(KERNEL, likelihood, sg.polynomial(0)).condition(X, y, inference=name, structure="dense")
    assert ours.inference.converged
    assert whole.log_evidence - 0.05 < ours.log_evidence < whole.log_evidence
    p, q = ours.predict(XS), whole.predict(XS)
    np.testing.assert_allclose(p.mean, q.mean, atol=1e-3)
    np.testing.assert_allclose(p.variance, q.variance, rtol=5e-3)


@pytest.mark.full
def test_learning_by_sites_climbs_the_evidence():
    model = AdditiveGP(KERNEL, sg.Bernoulli("probit"))
    before = model.condition(X, LABELS, inference="ep").log_evidence
    learned = model.fit(X, LABELS, inference="ep", max_evaluations=12)
    assert learned.log_evidence > before + 1
    whole = sg.GP(learned.kernel, learned.likelihood, sg.polynomial(0)).condition(X, LABELS, structure="dense")
    assert learned.log_evidence == pytest.approx(whole.log_evidence, abs=0.05)
    strongest, *_ = sorted(learned.components(10), key=lambda part: -part.effect)
    assert strongest.name == "x0"
    assert not strongest.switched_off


def test_what_sites_cannot_do_is_refused():
    with pytest.raises(ValueError, match="StudentT is not log-concave"):
        AdditiveGP(KERNEL, sg.StudentT()).condition(X, F)
    fitted = AdditiveGP(KERNEL, sg.Bernoulli("probit")).condition(X, LABELS, inference="ep")
    with pytest.raises(ValueError, match="estimated_evidence is for Gaussian observations"):
        fitted.estimated_evidence()
