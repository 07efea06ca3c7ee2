"""Many series at once are the same as each by itself."""

import numpy as np
import pytest

import structgp as sg
from structgp.learn import many as many_series
from structgp.learn.lockstep import minimise_all

RNG = np.random.default_rng(11)
LENGTHS = (9, 24, 12)  # padded to 16 and 32
X = [np.sort(RNG.uniform(0.0, 6.0, n)) for n in LENGTHS]
Y = [(1 + s) * np.sin((1 + 0.2 * s) * t) + 0.1 * RNG.standard_normal(len(t)) for s, t in enumerate(X)]
NEW = np.linspace(-1.0, 7.0, 5)
GP = sg.GP(sg.Matern32(1.2, 0.9), sg.Gaussian(0.05), mean=sg.polynomial(0))


def same(many, gp, X, Y, rtol=1e-8, **options):
    """Every series equals the dense engine's answer for it alone."""
    predictions = many.predict(NEW)
    for s, (x, y) in enumerate(zip(X, Y, strict=True)):
        alone = gp.condition(x, y, structure="dense", **options)
        np.testing.assert_allclose(many.log_evidences[s], alone.log_evidence, rtol=rtol)
        for prediction in (predictions[s], many[s].predict(NEW)):
            np.testing.assert_allclose(prediction.mean, alone.predict(NEW).mean, rtol=rtol, atol=1e-10)
            np.testing.assert_allclose(prediction.variance, alone.predict(NEW).variance, rtol=rtol, atol=1e-10)


def test_unequal_lengths_equal_the_dense_engine():
    shuffled = [RNG.permutation(len(x)) for x in X]
    many = GP.condition_series(
        [x[p] for x, p in zip(X, shuffled, strict=True)], [y[p] for y, p in zip(Y, shuffled, strict=True)]
    )
    same(many, GP, X[:1], Y[:1])
    assert len(many) == len(many.fitted) == 3
    assert many.fitted[1].log_evidence == many[1].log_evidence == many[-2].log_evidence
    np.testing.assert_allclose(many.log_evidence, many.log_evidences.sum())
    assert [len(one.inputs) for one in many] == list(LENGTHS)
    assert len(many[1:3]) == 2
    assert "3 series, 45 places" in repr(many)
    with pytest.raises(IndexError, match="there are 3 series, counted from 0: 3 is not one of them"):
        many[3]


def test_a_panel_with_different_gaps():
    t = X[0]
    panel = np.sin(t)[:, None] * [1.0, 2.0]
    panel[3, 0] = panel[5:7, 1] = np.nan
    many = GP.condition_series(t, panel, missing="infer", noise=0.01)
    same(many, GP, [t] * 2, list(panel.T), missing="infer", noise=0.01)
    with pytest.raises(ValueError, match="series 0: y has 1 NaN"):
        GP.condition_series(t, panel)


@pytest.mark.full
def test_processes_with_a_start_and_free_polynomials():
    gp = sg.GP(sg.Spline(0.7) + sg.Wiener(0.2, start=-0.5), sg.Gaussian(0.05))
    same(gp.condition_series(X[:1], Y[:1]), gp, X[:1], Y[:1], 1e-6)


def test_a_series_taken_out_can_be_used_like_any_other(tmp_path):
    one = GP.condition_series(X, Y)[1]
    one.save(tmp_path / "one")
    again = sg.load(tmp_path / "one")
    assert again.log_evidence == one.log_evidence
    np.testing.assert_array_equal(again.predict(NEW).mean, one.predict(NEW).mean)
    np.testing.assert_allclose(one.stream().log_evidence, one.log_evidence)


@pytest.mark.full
def test_more_series_than_are_computed_together(monkeypatch, x64):
    monkeypatch.setattr(many_series, "TOGETHER", 2)
    doubled, empty = many_series.over_series(lambda x, nothing: (2 * x, nothing), np.arange(5.0), np.zeros((5, 0)))
    np.testing.assert_array_equal(doubled, 2 * np.arange(5.0))
    assert empty.shape == (5, 0)


@pytest.mark.full
def test_predicting_at_places_of_their_own():
    many = GP.condition_series(X[:2], Y[:2])
    first, second = many.predict([[1.0, 2.0, 3.0], [4.0]])
    np.testing.assert_allclose(first.mean, many[0].predict([1.0, 2.0, 3.0]).mean)
    np.testing.assert_allclose(second.mean, many[1].predict([4.0]).mean)
    with pytest.raises(ValueError, match="new times for each of the 2 series, or one array for all, got 1"):
        many.predict([[1.0, 2.0]])


def test_shared_parameters_maximise_the_sum_of_evidences():
    many = GP.fit_series(X, Y)
    learned = many[0].gp
    assert many.learning.converged
    assert learned.parameters() == many[2].gp.parameters()
    total = lambda gp: sum(gp.log_evidence(x, y, structure="dense") for x, y in zip(X[:2], Y[:2], strict=True))
    np.testing.assert_allclose(many.log_evidences[:2].sum(), total(learned), rtol=1e-8)
    from structgp.learn.many import ManySeries, batches_of
    from structgp.parameters.tree import free_vector

    objective = ManySeries(GP, batches_of(many.inputs, many.data)).objective()
    value, gradient = objective(free_vector(learned))
    np.testing.assert_allclose(value, many.log_evidence, rtol=1e-10)
    assert np.abs(gradient).max() < 1e-3 * sum(LENGTHS)
    step = np.array([0.0, 1e-5, 0.0])
    numeric = (objective(free_vector(GP) + step)[0] - objective(free_vector(GP) - step)[0]) / 2e-5
    np.testing.assert_allclose(objective(free_vector(GP))[1][1], numeric, rtol=1e-6)


@pytest.mark.full
@pytest.mark.filterwarnings("ignore:learning ended at a bound")
def test_parameters_of_their_own_are_those_of_separate_fits():
    gp = GP.with_bounds({"kernel.lengthscale": (0.2, 1.5)})
    many = gp.fit_series(X[::2], Y[::2], shared=False, restarts=1)
    assert many.learning.converged
    assert "kernel.lengthscale" in many.learning.at_bound
    assert many[0].gp.parameters() != many[1].gp.parameters()
    alone = gp.fit(X[2], Y[2], structure="markov", restarts=0)
    assert many.log_evidences[1] > alone.log_evidence - 1e-4
    for one in many:
        assert 0.2 <= one.kernel.lengthscale <= 1.5 + 1e-9
        np.testing.assert_allclose(one.learning.objective, one.log_evidence, rtol=1e-9)


@pytest.mark.parametrize("shared", [True, False])
def test_nothing_to_learn(shared):
    assert GP.freeze().fit_series(X[:1], Y[:1], shared=shared).learning.message == "nothing to learn"


def test_lockstep_finds_each_minimum_within_bounds():
    """Banana-shaped valleys of different depth, one with its minimum outside of the bounds."""
    b, seen = np.array([1.0, 10.0, 100.0, 10.0]), []

    def valley(theta):
        seen.append(len(theta))
        x, y = theta.T
        gap = y - x**2
        slopes = np.stack([-2 * (1 - x) - 4 * b * x * gap, 2 * b * gap], axis=1)
        return (1 - x) ** 2 + b * gap**2, slopes

    bounds = np.tile([-5.0, 5.0], (4, 2, 1))
    bounds[3, 0] = [-5.0, 0.5]
    ends = minimise_all(valley, np.tile([-1.2, 1.0], (4, 1)), bounds, relative=0.0, flat=1e-9, max_evaluations=300)
    np.testing.assert_allclose(ends.theta, [[1, 1], [1, 1], [1, 1], [0.5, 0.25]], atol=1e-6)
    assert ends.converged.all()
    assert set(seen) == {4}
    assert len(seen) == ends.evaluations.max() < 120
    short = minimise_all(valley, np.tile([-1.2, 1.0], (4, 1)), bounds, relative=0.0, flat=1e-9, max_evaluations=3)
    assert not short.converged.any()


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: GP.condition_series(X, Y[:2]), "X is a list of 3 series, so y must be a list of 3 as well, got 2"),
        (lambda: GP.condition_series(X, np.ones(3)), "so y must be a list of 3 as well, got a ndarray"),
        (lambda: GP.condition_series(X, [Y[0], *Y[:2]]), "series 1: y must have one value"),
        (lambda: GP.condition_series([np.ones((3, 2))], [np.ones(3)]), "series 0: X has 2 columns, but a series has one value"),
        (lambda: GP.condition_series(X, Y, noise=[0.1]), "a list with one entry for each of the 3 series, got 1"),
        (
            lambda: sg.GP(sg.SquaredExponential()).fit_series(X, Y),
            "does not have: SquaredExponential has no finite state.*one by one",
        ),
        (lambda: GP.fit_series(X, Y, restarts=-1), "restarts must be a whole number, 0 or more, got -1"),
        (lambda: GP.condition_series(X, Y).predict(np.ones((2, 2))), "X has 2 columns, but a series has one: its times"),
    ],
)
def test_messages(call, match):
    with pytest.raises(ValueError, match=match):
        call()
