"""EM: the evidence never falls, the closed forms are maxima, the fixed points are those of the evidence."""

import dataclasses

import jax
import numpy as np
import pytest
import scipy.optimize

import structgp as sg
from structgp.inputs.layouts import as_inputs
from structgp.inputs.observations import read_observations
from structgp.learn import em
from structgp.learn.evidence import evidence_objective
from structgp.parameters.tree import free_vector

RNG = np.random.default_rng(5)
N = 24
T = np.sort(RNG.uniform(0.0, 8.0, N))
T[10], T[20] = T[11], T[21] - 1e-9  # a place that is seen twice, and one that nearly is
Y = np.sin(T) + 0.3 * RNG.standard_normal(N)
GP = sg.GP(sg.Matern32(sg.learned(1.0, prior=sg.LogNormal(0.0, 1.0))), sg.Gaussian(0.1))
RICH = sg.GP(sg.Matern12(1.3, 0.8) + 0.5 * sg.DampedOscillator(1.7, 0.9, 1.2), sg.Gaussian(0.1), mean=sg.polynomial(0))


def problem_of(gp, y, noise=None):
    inputs = as_inputs(T)
    data = read_observations(gp.likelihood, y, noise, "infer", inputs)
    theta = free_vector(gp)
    problem = em.Problem(gp, inputs, data, theta - 9, theta + 9, np.ones(len(theta)), em.Closed(None, ()), None)
    return dataclasses.replace(problem, closed=em._closed_entries(problem, theta)), theta


@pytest.fixture(scope="module")
def learned():
    return GP.fit(T, Y, method="em")


@pytest.mark.full
def test_the_evidence_never_falls_and_ends_where_direct_maximisation_does(learned):
    direct = GP.fit(T, Y, structure="markov", restarts=0, parameters="best")
    account = learned.learning
    assert account.method == "em"
    assert account.converged
    assert np.diff(account.trace).min() >= 0
    assert len(account.trace) > 4
    np.testing.assert_allclose(account.trace[-1], account.objective)
    assert abs(account.objective - direct.learning.objective) < 1e-5
    for name, value in direct.gp.parameters().items():
        np.testing.assert_allclose(learned.gp.parameters()[name], value, rtol=2e-2)
    assert direct.learning.method == "evidence"


def test_a_fixed_point_has_no_slope(learned, x64):
    objective = evidence_objective(GP, learned.inputs, learned.data, learned.plan.engine)
    _, gradient = objective(free_vector(learned.gp))
    assert np.abs(gradient).max() < 1e-4 * N
    np.testing.assert_allclose(np.abs(gradient).max() / N, learned.learning.gradient_norm, rtol=1e-3)


@pytest.fixture(scope="module")
def rich():
    """A sum, basis functions, two targets, missing values: the problem, θ, and the expectation there."""
    both = np.where((np.arange(N) % 7 == 3)[:, None], np.nan, np.stack([Y, np.cos(T)], axis=1))
    with jax.enable_x64(True):
        problem, theta = problem_of(RICH, both)
        return problem, theta, em._expect(problem, theta)


def test_the_slope_of_the_expectation_is_that_of_the_evidence(rich, x64):
    problem, theta, _ = rich
    known = dataclasses.replace(problem.data, noise=RNG.uniform(0.0, 0.1, N))
    problem = dataclasses.replace(problem, data=known)
    here = em._expect(problem, theta)
    value, gradient = evidence_objective(RICH, problem.inputs, problem.data, here.engine)(theta)
    np.testing.assert_allclose(here.value, value, rtol=1e-10)
    np.testing.assert_allclose(em._slope(theta, problem, here.expected, here.engine), gradient, rtol=1e-6, atol=1e-8)


def test_closed_forms_are_the_maximum(rich, x64):
    problem, theta, here = rich
    assert problem.closed == em.Closed(5, ((0, 1), (1, 4)))
    entries, rest = problem.closed.entries, em._rest(problem)
    closed = np.array(em._profile(theta[rest], theta, problem, here.expected, here.engine)[0][1])
    np.testing.assert_array_equal(closed[rest], theta[rest])

    def slopes(values):
        at = closed.copy()
        at[entries] = values
        return -np.asarray(em._slope(at, problem, here.expected, here.engine))[entries]

    found = scipy.optimize.root(slopes, theta[entries], tol=1e-12)
    assert found.success
    np.testing.assert_allclose(closed[entries], found.x, atol=1e-8)
    bounded = dataclasses.replace(problem, low=theta - 0.01, high=theta + 0.01)
    within = np.array(em._profile(theta[rest], theta, bounded, here.expected, here.engine)[0][1])
    np.testing.assert_allclose(within, np.clip(closed, theta - 0.01, theta + 0.01))


def test_what_has_a_closed_form(x64):
    tied = RICH.tie("kernel.terms[0].variance", "likelihood.noise")
    assert problem_of(tied, Y)[0].closed == em.Closed(None, ((1, 4),))
    known = problem_of(RICH, Y, noise=0.1)[0]
    assert known.closed.noise is None
    believed = RICH.with_prior({"kernel.terms[0].variance": sg.LogNormal(0.0, 1.0)})
    assert 0 not in dict(problem_of(believed, Y)[0].closed.scales)


@pytest.mark.parametrize(
    ("gp", "options", "match"),
    [
        (sg.GP(sg.SquaredExponential()), {}, "the Cholesky engine does not have; method='evidence' does"),
        (GP, {"structure": "dense"}, "it needs the states of a chain"),
        (sg.GP(sg.Matern32() + sg.Periodic()), {"structure": "markov"}, r"Periodic\(.*\) moves by less than all of its states"),
        (sg.GP(sg.Spline()), {}, r"Spline\(.*\) starts from less than all of its states"),
        (sg.GP(sg.ChangePoint(sg.Matern12(), sg.Matern32(), 2.0)), {"structure": "markov"}, "depends on the place"),
        (sg.GP(sg.Matern32(), sg.Gaussian(0.0)), {}, "observations without noise leave it where it starts"),
        (GP, {"starts": [GP]}, "method='em' goes on from the values of the model: leave out starts and rotations"),
        (GP, {"method": "guess"}, r"method must be one of \['em', 'evidence'\], got 'guess'"),
    ],
)
def test_refusals(gp, options, match):
    with pytest.raises(ValueError, match=match):
        gp.fit(T, Y, **{"method": "em", **options})


def test_nothing_to_learn():
    assert GP.freeze().fit(T, Y, method="em").learning.converged


def test_a_budget_ends_it():
    fitted = GP.fit(T, Y, method="em", max_evaluations=1)
    assert not fitted.learning.converged
    assert "the number of evaluations reached its limit" in str(fitted.learning)
