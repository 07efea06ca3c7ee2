"""EM: the evidence never falls, the closed forms are maxima, the fixed points are those of the evidence."""

import dataclasses

import jax
import numpy as np
import pytest
import scipy.optimize

import structgp as sg
from structgp.inputs import as_inputs
from structgp.learn import em
from structgp.learn.evidence import Objective
from structgp.parameters import free_vector, with_free

RNG = np.random.default_rng(5)
N = 24
T = np.sort(RNG.uniform(0.0, 8.0, N))
T[10], T[20] = T[11], T[21] - 1e-9  # a place that is seen twice, and one that nearly is
Y = np.sin(T) + 0.3 * RNG.standard_normal(N)
GP = sg.GP(sg.Matern32(1.0), sg.Gaussian(0.1))
RICH = sg.GP(sg.Matern52(1.3, 0.8) + 0.5 * sg.DampedOscillator(1.7, 0.9, 1.2), sg.Gaussian(0.1), mean=sg.polynomial(1))


def problem_of(gp, y, noise=None):
    inputs = as_inputs(T)
    data = gp._read(y, noise, "infer", inputs)
    theta = free_vector(gp)
    problem = em.Problem(gp, inputs, data, theta - 9, theta + 9, em.Closed(None, ()), None)
    return dataclasses.replace(problem, closed=em._closed_entries(problem, theta)), theta


@pytest.fixture(scope="module")
def learned():
    return GP.fit(T, Y, method="em")


def test_the_evidence_never_falls_and_ends_where_direct_maximisation_does(learned):
    direct = GP.fit(T, Y, structure="markov", restarts=0)
    account = learned.learning
    assert account.method == "em"
    assert account.converged
    assert np.diff(account.trace).min() >= 0
    assert len(account.trace) > 4
    np.testing.assert_allclose(account.trace[-1], learned.log_evidence, rtol=1e-9)
    assert abs(learned.log_evidence - direct.log_evidence) < 1e-5
    for name, value in direct.gp.parameters().items():
        np.testing.assert_allclose(learned.gp.parameters()[name], value, rtol=2e-2)
    assert direct.learning.method == "evidence"


def test_a_fixed_point_has_no_slope(learned, x64):
    objective = Objective(GP, learned.inputs, learned.data, learned.plan.engine)
    _, gradient = objective(free_vector(learned.gp))
    assert np.abs(gradient).max() < 1e-4 * N
    np.testing.assert_allclose(np.abs(gradient).max() / N, learned.learning.gradient_norm, rtol=1e-3)


@pytest.mark.parametrize("kind", ["one chain", "everything"])
def test_the_slope_of_the_expectation_is_that_of_the_evidence(kind, x64):
    gp, y, noise = GP, Y, None
    if kind == "everything":  # a sum, basis functions, two targets, missing values, known noise
        gp, noise = RICH, RNG.uniform(0.0, 0.1, N)
        y = np.stack([np.where(np.arange(N) % 7 == 3, np.nan, Y), np.where(np.arange(N) % 7 == 3, np.nan, np.cos(T))], axis=1)
    problem, theta = problem_of(gp, y, noise)
    here = em._expect(problem, theta)
    value, gradient = Objective(gp, problem.inputs, problem.data, here.engine)(theta)
    np.testing.assert_allclose(here.value, value, rtol=1e-10)
    np.testing.assert_allclose(em._slope(theta, problem, here.expected, here.engine), gradient, rtol=1e-6, atol=1e-8)


def test_closed_forms_are_the_maximum(x64):
    gp = sg.GP(sg.Matern32(1.0, 0.7) + sg.Matern12(0.5, 0.2), sg.Gaussian(0.1))
    problem, theta = problem_of(gp, Y)
    assert problem.closed == em.Closed(4, ((0, 1), (1, 3)))
    here = em._expect(problem, theta)
    closed = jax.jit(em.closed_forms, static_argnames="engine")(theta, problem, here.expected, here.engine)
    entries = problem.closed.entries
    complete = jax.jit(jax.value_and_grad(em.complete), static_argnames="engine")

    def falling(values):
        value, slope = complete(np.asarray(closed).copy(), problem, here.expected, here.engine)
        at = np.asarray(closed).copy()
        at[entries] = values
        value, slope = complete(at, problem, here.expected, here.engine)
        return -float(value), -np.asarray(slope)[entries]

    found = scipy.optimize.minimize(falling, theta[entries], jac=True, method="BFGS", options={"gtol": 1e-7})
    np.testing.assert_allclose(np.asarray(closed)[entries], found.x, atol=1e-6)
    rest = [0, 2]
    np.testing.assert_array_equal(np.asarray(closed)[rest], theta[rest])


def test_what_has_a_closed_form(x64):
    tied = RICH.tie("kernel.terms[0].variance", "likelihood.noise")
    assert problem_of(tied, Y)[0].closed == em.Closed(None, ((1, 4),))
    known = problem_of(RICH, Y, noise=0.1)[0]
    assert known.closed.noise is None
    believed = RICH.with_prior({"kernel.terms[0].variance": sg.LogNormal(0.0, 1.0)})
    assert 0 not in dict(problem_of(believed, Y)[0].closed.scales)


def test_priors_and_bounds_hold():
    gp = GP.with_prior({"kernel.lengthscale": sg.LogNormal(0.0, 0.01)}).with_bounds({"likelihood.noise": (0.2, 1.0)})
    fitted = gp.fit(T, Y, method="em", max_evaluations=12)
    assert abs(np.log(fitted.kernel.lengthscale)) < 0.1
    np.testing.assert_allclose(fitted.likelihood.noise, 0.2, rtol=1e-6)
    assert "likelihood.noise" in fitted.learning.at_bound
    assert np.diff(fitted.learning.trace).min() >= 0


@pytest.mark.parametrize(
    ("gp", "options", "match"),
    [
        (sg.GP(sg.SquaredExponential()), {}, "the Cholesky engine does not have; method='evidence' does"),
        (GP, {"structure": "dense"}, "it needs the states of a chain"),
        (sg.GP(sg.Matern32() + sg.Periodic()), {}, r"Periodic\(.*\) moves by less than all of its states"),
        (sg.GP(sg.Spline()), {}, r"Spline\(.*\) starts from less than all of its states"),
        (sg.GP(sg.ChangePoint(sg.Matern12(), sg.Matern32(), 2.0)), {"structure": "markov"}, "depends on the place"),
        (sg.GP(sg.Matern32(), sg.Gaussian(0.0)), {}, "observations without noise leave it where it starts"),
        (GP, {"method": "guess"}, r"method must be one of \['em', 'evidence'\], got 'guess'"),
    ],
)
def test_refusals(gp, options, match):
    with pytest.raises(ValueError, match=match):
        gp.fit(T, Y, **{"method": "em", **options})


def test_nothing_to_learn():
    assert GP.freeze().fit(T, Y, method="em").learning.converged


def test_the_model_stays_as_it_is_without_steps():
    fitted = GP.fit(T, Y, method="em", max_evaluations=1)
    assert not fitted.learning.converged
    assert "reached its limit" in str(fitted.learning)
    assert isinstance(with_free(GP, free_vector(fitted.gp)), sg.GP)
