"""Learning through inducing inputs: the stages, what is held and what moves, and the doors."""

import numpy as np
import pytest

import structgp as sg
from structgp.inputs.layouts import as_inputs
from structgp.inputs.observations import read_observations
from structgp.learn import inducing
from structgp.learn.clock import NEVER
from structgp.parameters.tree import learned_leaves

RNG = np.random.default_rng(11)
X = RNG.uniform(-2, 2, (160, 2))
F = np.sin(2.5 * X[:, 0]) + 0.5 * X[:, 1]
Y = F + 0.1 * RNG.normal(size=160)
NEW = RNG.uniform(-1.8, 1.8, (40, 2))
TRUTH = np.sin(2.5 * NEW[:, 0]) + 0.5 * NEW[:, 1]


def test_a_fit_is_near_the_exact_one_and_says_what_it_is():
    gp = sg.GP(sg.SquaredExponential([1.0, 1.0]), sg.Gaussian(0.5))
    fitted = gp.fit(X, Y, approximate=sg.Inducing(30))
    exact = sg.GP(fitted.kernel.kernel, fitted.likelihood).condition(X, Y, structure="dense")
    lower, upper = fitted.evidence_bounds
    assert lower <= fitted.log_evidence + 1e-6
    assert lower < exact.log_evidence < upper
    assert np.allclose(fitted.predict(NEW).mean, exact.predict(NEW).mean, atol=0.05)
    assert np.mean((fitted.predict(NEW).mean - TRUTH) ** 2) < 0.01
    assert fitted.kernel.inputs.shape == (30, 2)
    assert "30 inducing inputs, power 0.5" in fitted.summary()
    assert "30 rows of 2" in fitted.summary()


@pytest.mark.full
def test_learning_goes_on_from_where_it_was_stopped():
    gp = sg.GP(sg.SquaredExponential([1.0, 1.0]), sg.Gaussian(0.1))
    stopped = gp.fit(X, Y, approximate=sg.Inducing(12), seconds=0.0)
    inputs = as_inputs(X)
    data, offer = read_observations(gp.likelihood, Y, None, "error", inputs), stopped.plan.chosen
    further, learning = inducing.go_on_through_inputs(stopped.gp, inputs, data, offer, NEVER, 30)
    assert 1 < learning.evaluations <= 31  # the start is one more
    ended = further.condition(X, Y, approximate=sg.Inducing(12))
    assert ended.log_evidence > stopped.log_evidence + 1
    np.testing.assert_allclose(ended.log_evidence, learning.objective, rtol=1e-6)


@pytest.mark.full
def test_inputs_move_where_they_are_asked_to_and_stay_where_they_are_given():
    gp = sg.GP(sg.SquaredExponential(1.0), sg.Gaussian(0.5))
    given = X[:6]
    options = {"max_evaluations": 12}
    held = gp.fit(X, Y, approximate=sg.Inducing(given), **options)
    moved = gp.fit(X, Y, approximate=sg.Inducing(given, learn=True), **options)
    assert np.array_equal(held.kernel.inputs, given)
    assert not np.allclose(moved.kernel.inputs, given)
    assert moved.log_evidence > held.log_evidence
    assert "fixed" in held.summary()


def test_variance_and_noise_on_a_line_make_the_bound_larger(x64):
    gp = sg.GP(sg.Induced(sg.SquaredExponential([1.0, 2.0], 30.0), X[::8]), sg.Gaussian(1e-4))
    data = read_observations(gp.likelihood, Y, None, "error", as_inputs(X), None, None)
    profiled = inducing._profiled(gp, X, data)
    bound = lambda model: model.condition(X, Y, approximate=sg.Inducing(20, "vfe")).log_evidence
    best = bound(profiled)
    assert best > bound(gp)
    assert profiled.kernel.kernel.variance != 30.0
    for factor in (0.9, 1.1):
        for path in ("kernel.kernel.variance", "likelihood.noise"):
            assert bound(profiled.replace({path: factor * profiled.parameters()[path]})) < best
    held = gp.freeze("kernel.kernel.variance")
    assert inducing._profiled(held, X, data) is held


def test_fitc_keeps_some_noise():
    exactly = sg.GP(sg.SquaredExponential(1.0), sg.Gaussian(0.1)).fit(X, F, approximate=sg.Inducing(6, "fitc"))
    assert exactly.likelihood.noise >= 0.999e-4 * np.var(F)


@pytest.mark.full
def test_labels_by_the_estimator_have_a_level():
    labels = np.where(F + 0.3 > 0, "up", "down")
    model = sg.GPClassifier(structure="inducing:12", max_evaluations=10, restarts=0).fit(X, labels)
    assert model.plan_.engine.method == "fitc"
    assert isinstance(model.fitted_.gp.mean, sg.ConstantMean)
    assert np.mean(model.predict(NEW) == np.where(TRUTH + 0.3 > 0, "up", "down")) > 0.85


@pytest.mark.full
def test_numbers_and_counts_by_the_estimators():
    model = sg.GPRegressor(structure=sg.Inducing(20)).fit(X, Y)
    mean, sd = model.predict(NEW, return_std=True)
    assert np.mean((mean - TRUTH) ** 2) < 0.01
    assert (sd > 0).all()
    assert model.plan_.engine.name == "Inducing"
    counts = sg.GPCountRegressor(structure="inducing:15", max_evaluations=5, restarts=0).fit(X, np.floor(np.exp(F + 1)))
    assert counts.plan_.engine.method == "fitc"


def test_a_subset_is_exact_for_its_rows_and_says_so():
    fitted = sg.GP(sg.Matern52(), sg.Gaussian(0.1)).condition(X, Y, approximate=sg.Inducing(50, "subset"))
    assert len(fitted.inputs) == 50
    assert "approximate (exact for a subset of 50 rows)" in fitted.summary()
    rows = np.flatnonzero((X[:, None] == np.asarray(fitted.inputs.points)[None]).all(axis=2).any(axis=1))
    again = sg.GP(sg.Matern52(), sg.Gaussian(0.1)).condition(X[rows], Y[rows])
    assert np.isclose(fitted.log_evidence, again.log_evidence)
    with pytest.raises(ValueError, match="method='subset' takes a number of rows"):
        sg.Inducing(X[:5], "subset")


def test_averages_through_all_rows_are_those_of_the_whole_matrix():
    gp, places = sg.GP(sg.SquaredExponential(1.0)), X[:20]
    exact = gp.fit(places, Y[:20], parameters="laplace", restarts=0, structure="dense")
    found = gp.fit(places, Y[:20], parameters="laplace", restarts=0, approximate=sg.Inducing(places))
    assert isinstance(found, sg.FittedMixture)
    assert len(found.weights) == len(exact.weights)
    assert found.evidence.log == pytest.approx(exact.evidence.log, abs=1e-3)
    np.testing.assert_allclose(found.predict(NEW).mean, exact.predict(NEW).mean, atol=1e-4)


@pytest.mark.averaged
def test_inducing_inputs_are_held_at_their_best_where_parameters_are_averaged_over():
    gp = sg.GP(sg.SquaredExponential(1.0))
    found = gp.fit(X[:40], Y[:40], parameters="auto", restarts=0, approximate=sg.Inducing(6))
    assert isinstance(found, sg.FittedMixture)
    assert sum(leaf.free_size for leaf in learned_leaves(found.gp)) == len(found.parameters()) == 3
    inputs = [member.kernel.inputs for member in found.members]
    assert all(np.array_equal(one, found.kernel.inputs) for one in inputs)
    assert "6 inducing inputs" in found.summary()
    evidence = sg.evidence(gp, X[:40], Y[:40], restarts=0, approximate=sg.Inducing(6))
    assert evidence.log == pytest.approx(found.evidence.log, abs=1e-4)


def test_learning_begins_at_other_models_where_these_are_more_probable():
    gp, options = sg.GP(sg.SquaredExponential(1.0)), {"parameters": "best", "approximate": sg.Inducing(8)}
    best = gp.fit(X, Y, restarts=0, **options)
    again = gp.fit(X, Y, restarts=0, starts=(best.gp, gp), max_evaluations=1, **options)
    assert again.learning.objective >= best.learning.objective - 0.05
    with pytest.raises(ValueError, match=r"starts\[1\] is GP\(Matern32.* which has not the parameters of GP\(Induced"):
        gp.fit(X, Y, starts=(best.gp, sg.GP(sg.Matern32([1.0, 1.0]))), **options)
