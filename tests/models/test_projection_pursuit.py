"""Projection pursuit: gradients in the directions, the choice of their number, bands that know that directions were learned."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import reference
import structgp as sg
from structgp.linalg.features import sines
from structgp.models.pursuit.fitted import additive_gp
from structgp.models.pursuit.model import ProjectionPursuitGP
from structgp.models.pursuit.search import Family, Rung, Search, schwarz, twice_akaike
from structgp.models.pursuit.sine_model import Rows, SineEvidence, SineModel, log_evidence, reaches
from structgp.parameters.tree import free_vector

RNG = np.random.default_rng(2)
N, D = 700, 4
X = RNG.standard_normal((N, D)) * [1.0, 5.0, 0.2, 1.0] + [0.0, 3.0, 0.0, 1.0]
U = np.array([0.6, 0.0, 0.8, 0.0])
STANDARD = (X - X.mean(axis=0)) / X.std(axis=0)
F = 10 + 4 * np.sin(2 * STANDARD @ U) + STANDARD[:, 1]
Y = F + 0.4 * RNG.standard_normal(N)


@functools.cache
def fitted():
    return ProjectionPursuitGP(sines=8, most=4).fit(X[:600], Y[:600], max_evaluations=150)


def model(M=2, k=5):
    rng = np.random.default_rng(0)
    return SineModel(rng.standard_normal((M, D)), np.full(M, 0.8), np.full(M, 0.5), 0.3, 0.1, sines=k)


def test_the_evidence_is_that_of_linear_regression():
    m, y = model(), STANDARD[:50, 0] + np.sin(STANDARD[:50, 1])
    with jax.enable_x64(True):
        rows = Rows.of(STANDARD[:50], y)

        @jax.jit
        def known(m, rows):
            L = reaches(m, rows.X)
            return log_evidence(m, rows), m.scales(L), sines.features(m.units(), L, jnp.asarray(STANDARD[:50]), m.sines)

        value, scales, waves = known(m, rows)
        Psi = np.asarray(scales)[:, None] * np.asarray(waves)
    value = float(value)
    assert value == pytest.approx(reference.log_evidence(Psi.T @ Psi, y, np.full(50, 0.1), np.zeros((50, 0))), rel=1e-9)


def test_many_sines_are_a_matern_process():
    m = SineModel([[1.0]], [0.3], [1.7], 0.1, 0.1, sines=200)
    x = np.linspace(-0.5, 0.5, 20)[:, None]
    with jax.enable_x64(True):
        L = jnp.asarray([3.0])
        look = jax.jit(lambda m, x: (m.scales(L), sines.features(jnp.ones((1, 1)), L, x, 200)))
        scales, waves = (np.asarray(part)[:-2] for part in look(m, jnp.asarray(x)))
        Psi = scales[:, None] * waves
        K = np.asarray(jax.jit(sg.covariance)(sg.Matern52(0.3, 1.7), jnp.asarray(x), jnp.asarray(x)))
    np.testing.assert_allclose(Psi.T @ Psi, K, atol=1e-5)


def test_the_gradient_in_everything_is_its_slope_also_in_pieces():
    m = model()
    with jax.enable_x64(True):
        objective = SineEvidence(m, STANDARD, Y - Y.mean())
        theta = free_vector(m)
        whole = objective(theta)
        assert len(objective.rows.X) == 1024  # one block
        fill = lambda rows: jnp.pad(rows, [(0, 1500)] + [(0, 0)] * (rows.ndim - 1))
        objective.rows = Rows(*map(fill, objective.rows))  # three
        np.testing.assert_allclose(objective(theta)[0], whole[0], rtol=1e-12)
        np.testing.assert_allclose(objective(theta)[1], whole[1], rtol=1e-8, atol=1e-8)
        np.testing.assert_allclose(whole[1], reference.slope(lambda t: objective(t)[0], theta), rtol=1e-4, atol=1e-3)


@pytest.mark.full
def test_it_finds_the_direction_and_chooses_few():
    found = fitted()
    assert found.model.projections <= 2
    assert np.abs(found.directions @ U).max() > 0.99
    assert [rung.projections for rung in found.table][:2] == [1, 2]
    assert "<- chosen" in found.summary()
    p = found.predict(X[600:])
    assert np.median(np.abs(p.mean - F[600:])) < 0.1  # a few places lie beyond the data
    assert float(found.likelihood.noise) == pytest.approx(0.16, rel=0.25)
    inside = np.abs(Y[600:] - p.mean) < 1.96 * p.observed.sd
    assert inside.mean() > 0.85


@pytest.mark.full
def test_learned_directions_widen_the_bands():
    """The variance is above that of the process whose directions are taken as known."""
    found = fitted()
    known = found.additive.predict(found.units.inputs(X[600:])).variance * found.units.y_scale**2
    more = found.predict(X[600:]).variance - known
    assert more.min() >= 0
    assert more.mean() > 1e-3 * np.median(known)


def test_the_mean_is_that_of_the_exact_process():
    found = fitted()
    gp = additive_gp(found.model)
    Z, z = found.units.inputs(X[:600]), (Y[:600] - found.units.y_center) / found.units.y_scale
    dense = gp.condition(Z, z, structure="dense").predict(found.units.inputs(X[600:])).mean
    np.testing.assert_allclose(
        found.predict(X[600:]).mean, found.units.y_center + found.units.y_scale * dense, rtol=1e-5, atol=1e-5
    )
    assert found.sample(X[600:605], n=3, seed=0).shape == (3, 5)


def test_refusals():
    with pytest.raises(ValueError, match="projection pursuit takes one target, got 2"):
        ProjectionPursuitGP().fit(X, np.stack([Y, Y], axis=1))
    with pytest.raises(ValueError, match="X has 2 columns, but the model was given 4"):
        fitted().predict(np.zeros((3, 2)))


@pytest.mark.parametrize("level", [0.0, 0.1, 1e5])
def test_a_constant_is_a_constant(level):
    found = ProjectionPursuitGP().fit(X[:30], np.full(30, level)).predict(X[:2])
    np.testing.assert_allclose(found.mean, level, rtol=1e-12, atol=1e-12)
    assert (found.sd < 1e-5).all()


@pytest.mark.full
def test_the_search_goes_on_while_there_may_be_too_few():
    """Two larger numbers in vain end it, but not where all are few: some functions show only to several projections at once."""
    family = Family(lambda functions: functions, lambda model: model, SineEvidence, schwarz, model(1))
    search = Search(family, (STANDARD, Y), (1, 2, 4, 10), None, np.random.default_rng(0), 1.0, 10)
    search.table = [Rung(M, 12, -100.0, -100.0 - M, 0.0) for M in (1, 2, 4)]
    assert not search.exhausted(model(1))
    search.table.append(Rung(10, 12, -100.0, -110.0, 0.0))
    assert search.exhausted(model(1))
    assert not search.exhausted(model(10))


def test_what_a_projection_costs():
    assert schwarz(1000, 3) == pytest.approx(2 * np.log(1000))
    assert twice_akaike(1000, 3) == 8


@pytest.mark.full
def test_what_was_learned_can_be_given_other_rows():
    same = fitted().given(X[:600], Y[:600])
    assert same.log_evidence == pytest.approx(fitted().log_evidence, rel=1e-8)
    np.testing.assert_allclose(same.predict(X[:5]).mean, fitted().predict(X[:5]).mean, rtol=1e-9)
    more = fitted().given(X, Y)
    np.testing.assert_array_equal(more.directions, fitted().directions)
    errors = [np.mean((one.predict(X[600:]).mean - Y[600:]) ** 2) for one in (fitted(), more)]
    assert errors[1] < errors[0]
    assert more.learning == fitted().learning
