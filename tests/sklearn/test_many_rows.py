"""Rows whose matrix takes longer than there is time for: what stands in for it, unless the exact process is asked for."""

import re

import numpy as np
import pytest
from scipy.stats import norm

import structgp as sg
import zoo
from structgp import GPClassifier, GPCountRegressor, GPRegressor, RobustGPClassifier
from structgp.engines import memory
from structgp.learn.clock import NEVER
from structgp.models import candidates, choose, judge
from structgp.models.candidates import Process, affordable_rows, of_process

RNG = np.random.default_rng(0)
X = RNG.uniform(-2, 2, (64, 5))  # too many columns for neighbours
F = np.sin(2 * X[:, 0])
Y = F + 0.1 * RNG.standard_t(4, 64)
AREA = RNG.uniform(0.5, 2.0, 64)
COUNTS = RNG.poisson(3 * AREA * np.exp(F)).astype(float)
OWN = sg.SquaredExponential(1.5)
EXACTLY = "64 rows in a dense matrix take .* for each evaluation; structure='dense' asks for it"


@pytest.fixture
def few_are_many(monkeypatch):
    monkeypatch.setattr("structgp.sklearn.learning.affordable_rows", lambda *_: 40)
    monkeypatch.setattr("structgp.sklearn.learning.INDUCING", 8)
    for name, value in {"INDUCING": 8, "LEARNED_FROM": 40, "GIVEN_AT_ONCE": 10, "MOST_EXACT": 10}.items():
        monkeypatch.setattr(candidates, name, value)


def exposed(**how):
    return GPCountRegressor(OWN, **how).fit(X, COUNTS, exposure=AREA)


FITS = {
    "counts with exposure": exposed,
    "outliers": lambda **how: GPRegressor(OWN, noise="student-t", **how).fit(X, Y),
    "own kernel, known noise": lambda **how: GPRegressor(OWN, **how).fit(X, Y, noise=0.01 * AREA),
    "a line for a mean": lambda **how: GPRegressor(mean="linear", **how).fit(X, Y),
    "labels by EP": lambda **how: GPClassifier(inference="ep", **how).fit(X, Y > 0),
    "classes, own kernel": lambda **how: GPClassifier(OWN, **how).fit(X, np.digitize(Y, [-0.5, 0.5])),
    "softmax": lambda **how: GPClassifier(OWN, multi_class="softmax", **how).fit(X, np.digitize(Y, [-0.5, 0.5])),
}


@pytest.mark.parametrize("name", zoo.mostly_full(FITS, "counts with exposure", "own kernel, known noise"))
def test_inducing_inputs_stand_in_for_a_process_that_was_asked_for(few_are_many, name):
    model = FITS[name](max_evaluations=4)
    for part in getattr(model.fitted_, "parts", (model.fitted_,)):
        assert part.plan.engine.structure == "inducing"
        assert len(part.inputs) == 64  # all of them in the end
        assert part.learning.rows in ((0,) if part.likelihood.is_gaussian else range(40, 44))  # and one of each label
    chosen, *others = str(model.plan_).splitlines()
    assert "approximate (8 inducing inputs" in chosen
    assert "all rows from the start" in chosen
    assert any(re.search(EXACTLY, line) for line in others)


def test_a_rare_label_is_among_the_rows_that_are_learned_from(few_are_many):
    """Of 64 rows 40 are drawn, and the one row of the other label is not among them."""
    model = RobustGPClassifier(max_evaluations=2, random_state=0)
    left_out = np.random.default_rng(model._seed()).permutation(64)[-1]
    model.fit(X, np.arange(64) == left_out)
    assert model.fitted_.plan.engine.structure == "inducing"
    assert model.fitted_.learning.rows == 41


def test_what_is_told_of_each_row_stays_with_it(few_are_many, monkeypatch):
    """Exposure and known noise of rows to learn from, of rows held out, and of all."""
    gp, seen = sg.GP(OWN, sg.Poisson()), []

    def fit(X, y, tell, deadline, extra=None):
        seen.append((X, extra))
        return gp.condition(X, y, extra=extra)

    def refit(fitted, X, y, extra=None):
        seen.append((X, extra))
        return fitted

    def score(fitted, task, X, y, extra=None):
        seen.append((X, extra))
        return np.zeros(len(y))

    listed = {name: candidates.Candidate(name, fit, refit) for name in ("inducing", "additive")}
    monkeypatch.setattr(choose, "of_process", lambda *_: listed)
    monkeypatch.setattr(choose, "log_probabilities", score)
    monkeypatch.setattr(choose, "_offer", lambda attempt, fitted, X, classes: fitted.plan.chosen)
    GPCountRegressor(OWN).fit(X, COUNTS, exposure=AREA)
    assert sorted(len(rows) for rows, _ in seen) == [6, 6, 58, 58, 64]
    area = dict(zip(map(bytes, X), AREA, strict=True))
    for rows, extra in seen:
        np.testing.assert_array_equal(extra, [area[bytes(row)] for row in rows])


def test_scores_know_of_noise_and_exposure():
    numbers = sg.GP(OWN, sg.Gaussian(0.1)).condition(X[:40], Y[:40])
    noise, (mean, variance) = AREA[40:], (numbers.predict(X[40:]).mean, numbers.predict(X[40:]).variance)
    expected = norm.logpdf(Y[40:], mean, np.sqrt(variance + 0.1 + noise))
    np.testing.assert_allclose(judge.log_probabilities(numbers, "regression", X[40:], Y[40:], noise=noise), expected, rtol=1e-9)
    counts = sg.GP(OWN, sg.Poisson()).condition(X[:40], COUNTS[:40], extra=AREA[:40])
    expected = counts.predict(X[40:], extra=AREA[40:]).log_prob(COUNTS[40:])
    scores = judge.log_probabilities(counts, "counts", X[40:], COUNTS[40:], extra=AREA[40:])
    np.testing.assert_allclose(scores, expected, rtol=1e-12)


def test_sums_stand_in_for_counts_where_all_is_left_to_us(few_are_many, monkeypatch):
    asked = []

    def of_many_rows(X, y, structure, seed, *, seconds, process):
        asked.append((structure, process.sums))
        fitted = sg.GP(OWN, sg.Poisson()).condition(X, y)
        return fitted, fitted.plan

    monkeypatch.setattr("structgp.sklearn.regression.of_many_rows", of_many_rows)
    GPCountRegressor().fit(X, COUNTS)
    GPCountRegressor(structure="additive").fit(X, COUNTS)
    assert asked == [("auto", True), ("additive", True)]
    with pytest.raises(ValueError, match="structure='additive' learns its own kernel from two columns or more"):
        GPCountRegressor(structure="additive").fit(X, COUNTS, exposure=AREA)
    gp = sg.GP(OWN, sg.Poisson())
    assert list(of_process(Process(gp, sums=True), X.shape, 0, choose.SEARCH)) == ["additive", "inducing", "projection-pursuit"]


@pytest.mark.full
def test_counts_behind_a_sum_take_an_exposure():
    fitted = sg.AdditiveLabels(likelihood=sg.Poisson()).fit(X[:, :2], COUNTS, max_evaluations=2)
    once, twice = (fitted.predict(X[:5, :2], extra=extra).observed.mean for extra in (None, 2.0))
    np.testing.assert_allclose(twice, 2 * once, rtol=1e-10)
    with pytest.raises(ValueError, match="exposure must be positive"):
        fitted.predict(X[:5, :2], extra=-1.0)


def test_classes_share_the_time(few_are_many, monkeypatch):
    """Of three the first may take a third of it, and each of the others what was left."""
    asked = []

    def of_many_rows(X, y, structure, seed, *, seconds, **how):
        asked.append(seconds)
        fitted = sg.GP(OWN, sg.Bernoulli()).condition(X[:8], y[:8])
        return fitted, fitted.plan

    monkeypatch.setattr("structgp.sklearn.learning.of_many_rows", of_many_rows)
    GPClassifier(OWN, seconds=3e6).fit(X, np.digitize(Y, [-0.5, 0.5]))
    np.testing.assert_allclose(asked, [1e6, 1.5e6, 3e6], rtol=1e-2)


def test_time_that_is_over_ends_learning_and_not_the_fit(monkeypatch):
    """The first class may take longer than all of the time."""
    monkeypatch.setattr("structgp.learn.clock.Deadline.left", lambda self: -1.0 if np.isfinite(self.at) else np.inf)
    model = GPClassifier(OWN, seconds=3e6, max_evaluations=2).fit(X[:40, :1], np.digitize(Y[:40], [-0.5, 0.5]))
    assert len(model.fitted_.parts) == 3


def test_what_there_is_for_a_process():
    names = lambda gp, shape: list(of_process(Process(gp), shape, 0, choose.SEARCH))
    numbers, outliers = sg.GP(OWN), sg.GP(OWN, sg.StudentT())
    assert names(numbers, (9000, 3)) == ["dense", "neighbours", "inducing"]
    assert names(numbers, (20_000, 5)) == ["inducing"]
    assert names(numbers, (20_000, 1)) == ["state-space", "inducing"]
    assert names(outliers, (20_000, 1)) == ["state-space", "inducing"]
    assert names(outliers, (20_000, 3)) == ["inducing"]


def test_a_line_goes_through_a_finite_state():
    x = np.sort(RNG.uniform(0, 10, 60))[:, None]
    one = of_process(Process(sg.GP(OWN, sg.Gaussian(0.1)), evaluations=3), (60, 1), 0, choose.SEARCH)["state-space"]
    found = one.fit(x, np.sin(x[:, 0]), None, NEVER)
    assert found.plan.engine.structure == "markov"
    assert one.refit(found, x[:50], np.sin(x[:50, 0])).learning is found.learning


def test_fewer_inducing_inputs_where_rows_are_very_many():
    """So that sites of all rows are found in the time that is kept for it."""
    few, seconds = candidates._inputs_in_time(10_000, 5, 30.0)
    assert few == candidates.INDUCING
    fewer, longer = candidates._inputs_in_time(10**6, 5, 30.0)
    assert candidates.LEAST_INDUCING <= fewer < few
    assert seconds < longer < 30.0


def test_parameters_say_how_many_rows_are_affordable():
    """A kernel of three numbers takes a fifth of the evaluations of one with a lengthscale for each of twenty columns."""
    few, usual = (affordable_rows(20, "regression", 0, 300.0, numbers) for numbers in (3, None))
    assert few > 1.5 * usual
    assert affordable_rows(20, "regression", 0, 300.0, 23) == usual
    assert affordable_rows(5, "counts", 0, 300.0, 0) > affordable_rows(5, "counts", 0, 300.0, 8)


def test_nothing_stands_in_unasked(few_are_many, monkeypatch):
    """A finite state is exact, averages are of the exact process, and few rows fit."""
    monkeypatch.setattr("structgp.sklearn.learning.of_many_rows", None)
    assert GPRegressor(sg.Matern32(), max_evaluations=1).fit(X[:, :1], Y).plan_.engine.structure == "markov"
    assert GPRegressor(OWN, max_evaluations=1).fit(X[:40], Y[:40]).plan_.engine.structure == "dense"
    chosen = GPRegressor(OWN, parameters="laplace", max_evaluations=1).fit(X, Y).plan_
    assert chosen.engine.structure == "dense"
    assert GPRegressor(OWN, structure="dense", max_evaluations=1).fit(X, Y).plan_.engine.structure == "dense"
    assert GPRegressor(OWN, learn=False).fit(X, Y).plan_.engine.structure == "inducing"


def test_so_it_is_where_the_matrix_needs_more_memory_than_there_is(few_are_many, monkeypatch):
    """However much time there is; and what could be asked for is said in words of this door."""
    monkeypatch.setattr("structgp.sklearn.learning.affordable_rows", lambda *_: 10**6)
    monkeypatch.setattr(memory, "available", lambda: 5e4)
    model = GPRegressor(OWN, max_evaluations=4, seconds=None).fit(X, Y, noise=0.01 * AREA)
    assert model.plan_.engine.structure == "inducing"
    monkeypatch.setattr(memory, "available", lambda: 8e6)
    rows = RNG.uniform(size=(700, 2))
    with pytest.raises(MemoryError, match=r"take at most 5\d\d rows, or structure='neighbours:30'$"):
        GPRegressor(structure="dense").fit(rows, rows[:, 0])


def test_names_of_structures_are_those_of_the_door():
    """A sum of functions is known to estimators alone; how many inducing inputs may be said at all doors."""
    for name in ("fast", "inducing:few", "state-space:3"):
        said = rf"\], or say how many as 'inducing:200' and 'neighbours:20' do, got '{name}'"
        with pytest.raises(ValueError, match=f"structure must be .*'inducing', .*'projection-pursuit'{said}"):
            GPCountRegressor(structure=name).fit(X, COUNTS)
        with pytest.raises(ValueError, match=f"structure must be .*'neighbours', 'state-space', 'matern'{said}"):
            sg.GP(OWN).fit(X, Y, structure=name)
