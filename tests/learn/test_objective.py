"""Evidence, prior and volume apart: what climbing, samplers and annealing share."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import structgp as sg
from structgp.inputs.layouts import as_inputs
from structgp.inputs.observations import read_observations
from structgp.learn.evidence import evidence_objective
from structgp.learn.objective import LOWEST, Objective
from structgp.parameters import supports
from structgp.parameters.tree import free_vector, log_prior, with_free

X = np.linspace(0, 3, 12)
Y = np.sin(2 * X)
BELIEVED = sg.GP(sg.Matern32(0.7, 1.2).with_prior(lengthscale=sg.LogNormal(0.0, 1.0)), sg.Gaussian(0.05))


def objective(structure, gp=BELIEVED):
    inputs = as_inputs(X)
    data = read_observations(gp.likelihood, Y, None, "error", inputs)
    return evidence_objective(gp, inputs, data, gp.plan(X, structure).engine)


@pytest.mark.parametrize("structure", ["dense", "markov"])
def test_evidence_and_prior_come_apart_and_many_at_once(structure):
    both, theta = objective(structure), free_vector(BELIEVED)
    terms = both.terms(theta)
    np.testing.assert_allclose(terms.log_evidence, BELIEVED.log_evidence(X, Y, structure=structure), rtol=1e-10)
    with jax.enable_x64(True):
        np.testing.assert_allclose(terms.log_prior, log_prior(BELIEVED), rtol=1e-12)
        slope = jax.grad(lambda theta: log_prior(with_free(BELIEVED, theta)))(jnp.asarray(theta))
    np.testing.assert_allclose(terms.prior_gradient, slope, rtol=1e-10)
    value, gradient = both(theta)
    np.testing.assert_allclose(value, terms.log_evidence + terms.log_prior)
    np.testing.assert_allclose(gradient, terms.gradient + terms.prior_gradient)
    thetas = theta + np.array([[0.0], [0.1], [-0.3]])
    many, each = both.many(thetas), [both.terms(one) for one in thetas]
    for part, parts in zip(many, zip(*each, strict=True), strict=True):
        np.testing.assert_allclose(part, np.stack(parts), rtol=1e-9, atol=1e-12)


def test_no_value_is_one_that_a_line_search_steps_back_from():
    nothing = Objective(BELIEVED, lambda theta: (np.nan, np.ones(len(theta))))
    value, gradient = nothing(free_vector(BELIEVED))
    assert value == LOWEST
    assert not gradient.any()


KINDS = {
    "real": (supports.real, 0.3),
    "positive": (supports.positive, np.array([0.5, 2.0])),
    "interval": (supports.interval(-1.0, 3.0), np.array([0.2, 2.5])),
    "increasing": (supports.increasing, np.array([-1.0, 0.5, 0.9])),
    "simplex": (supports.simplex, np.array([0.2, 0.5, 0.3])),
}


@pytest.mark.parametrize("name", KINDS)
def test_volumes_are_determinants(name):
    support, value = KINDS[name]
    with jax.enable_x64(True):
        free = jnp.atleast_1d(jnp.asarray(support.free(np.asarray(value))))
        J = jax.jacobian(lambda free: jnp.ravel(support.constrain(free))[: free.size])(free)
        np.testing.assert_allclose(support.log_volume(free), jnp.linalg.slogdet(J)[1], rtol=1e-10, atol=1e-12)


def test_the_volume_of_a_model_is_that_of_its_learned_parameters():
    both = objective("markov")
    theta = free_vector(BELIEVED)
    np.testing.assert_allclose(both.log_volume(theta), theta.sum())  # all of them are positive
