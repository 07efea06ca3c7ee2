import re

import numpy as np
import polars as pl
import pytest
from scipy.stats import nbinom, norm, poisson

import structgp as sg
from structgp.engines.cholesky import cost_of_matrix
from structgp.engines.machine import Work, reference
from structgp.learn.clock import NEVER, Deadline
from structgp.models import choose, judge
from structgp.models.candidates import ONE_FUNCTION, SUMS, Candidate, affordable_rows, learning_seconds
from structgp.models.judge import Tried, best
from structgp.posterior import Prediction
from structgp.tables.automatic import candidates, fit_table, noise, prepare
from structgp.tables.automatic.candidates import candidates_for, swells
from structgp.tables.automatic.compare import Attempt, _best, _must_average, compare, hold_out
from structgp.tables.automatic.problem import Problem, naive_forecast, seasons_of, targets, task_of
from structgp.tables.automatic.scores import evaluate, left_out, pit_histogram
from structgp.tables.automatic.timing import WRITING, Timing
from structgp.tables.model import Trial

DAYS = 40


@pytest.mark.parametrize(
    ("values", "task"),
    [
        ([0.5, 1.5, 2.0], "regression"),
        ([0, 1, 1], "classification"),
        (["a", "b", None], "classification"),
        ([True, False, True], "classification"),
        ([0, 3, 7], "counts"),
        ([100, 250, 3000], "regression"),
        ([-1, 3, 7], "regression"),
    ],
)
def test_the_task_is_seen_in_the_target(values, task):
    assert task_of(pl.Series("y", values)) == task


def test_numbers_that_never_repeat_are_no_labels():
    values = pl.Series("y", np.arange(40) / 7)
    with pytest.raises(ValueError, match=r"'y' holds 40 different numbers \(0 … 5.57143\): a label with at most 20 values is"):
        task_of(values, "classification")
    assert targets(pl.Series("y", [10, 2, None, 1]), "classification")[1] == ("1", "2", "10")


def test_seasons_are_found_where_there_are_any():
    t = np.linspace(0, 10, 200)
    (period,) = seasons_of(t, t**2 + np.sin(2 * np.pi * t)).values()
    assert period == pytest.approx(1.0, rel=0.01)
    assert seasons_of(t, t + np.random.default_rng(0).standard_normal(200)) == {}
    assert seasons_of(t, np.ones(200)) == {}
    hours = np.arange(6000.0)
    (period,) = seasons_of(hours, np.sin(2 * np.pi * hours / 7) + 0.001 * hours).values()
    assert period == pytest.approx(7.0, rel=1e-3)


@pytest.mark.parametrize("strongest", [6.0, 4.0])
def test_a_season_is_the_whole_of_which_the_strongest_wave_is_an_overtone(strongest):
    t, rng = np.arange(120.0), np.random.default_rng(0)
    wave = lambda period, size: size * np.sin(2 * np.pi * t / period)
    noise = 0.3 * rng.standard_normal(120)
    (period,) = seasons_of(t, wave(strongest, 1.0) + wave(12.0, 0.6) + noise).values()
    assert period == pytest.approx(12.0, rel=0.01)
    alone = [seasons_of(t, wave(strongest, 1.0) + 0.3 * rng.standard_normal(120)) for _ in range(5)]
    assert np.median([period for found in alone for period in found.values()]) == pytest.approx(strongest, rel=0.01)


def test_a_season_of_the_calendar_is_no_overtone_of_what_no_calendar_knows(monkeypatch):
    """Weekends, of which too few were seen for a season of a week, leave waves beside every third part of a day's."""
    t = np.arange(630) / 48
    y = np.sin(2 * np.pi * t) + 0.1 * np.random.default_rng(0).standard_normal(630)
    monkeypatch.setattr("structgp.tables.automatic.problem._overtone", lambda *_: 3)
    assert seasons_of(t, y, {"a day": 1.0}) == {"a day": 1.0}
    assert list(seasons_of(t, y, {"three days": 3.0, "a day": 1.0})) == ["three days"]
    (period,) = seasons_of(t, y).values()
    assert period == pytest.approx(3.0, rel=0.01)


def test_the_calendar_names_seasons_and_needs_fewer_cycles():
    rng = np.random.default_rng(0)
    days = np.arange(900.0)
    wave = lambda period: np.sin(2 * np.pi * days / period)
    calendar = {"a day": 1.0, "a week": 7.0, "a year": 365.25}
    noise = 0.3 * rng.standard_normal(900)
    assert seasons_of(days, wave(365.25) + noise) == {}
    assert seasons_of(days, wave(365.25) + noise, calendar) == {"a year": 365.25}
    assert seasons_of(days, wave(365.25) + 0.7 * wave(7.0) + noise, calendar) == {"a week": 7.0, "a year": 365.25}
    assert seasons_of(days, wave(7.003) + noise, calendar) == {"a week": 7.0}
    assert list(seasons_of(days, wave(30.0) + noise, calendar)) == ["29.99"]
    assert seasons_of(days[:600], wave(365.25)[:600] + noise[:600], calendar) == {}


def candidate(name, noise, seconds=0.0):
    """A model that learns nothing, or fails."""
    gp = sg.GP(sg.Matern32(lengthscale=5.0), sg.Gaussian(noise or 1.0))

    def fit(X, y, tell, seconds):
        if noise is None:
            raise ValueError("it cannot be learned")
        return gp.condition(X, y)

    return Candidate(name, fit, lambda fitted, X, y: fitted.gp.condition(X, y, missing="infer"), seconds)


def test_what_is_averaged_is_learned_again_from_all_rows_and_other_noise_is_tried():
    t = np.arange(float(DAYS))
    problem = Problem(t[:, None], 3 + 2 * np.sin(t / 9), "regression", "series", (), 0)
    seen = []

    def average(fitted, X, y, parameters):
        seen.append(len(y))
        return fitted.gp.condition(X, y)

    better = candidate("better", 0.01)._replace(average=average)
    plain = candidate("plain", 0.1)._replace(proportional=lambda: better)
    found = compare(problem, [plain], NEVER, parameters="auto")
    assert [trial.name for trial in found.trials if trial.chosen] == ["better"]
    assert seen == [DAYS - DAYS // 10, DAYS]
    named = {one.name: one.proportional for one in candidates_for(problem, None, "auto", 60.0)}
    assert named["random walk"]().name == "random walk, noise in proportion to the level"
    below = candidates_for(problem._replace(y=problem.y - 3), None, "auto", 60.0)
    assert not any(one.proportional for one in below)


def test_a_series_that_swells_is_tried_in_proportion_to_its_level_before_other_kernels():
    t = np.arange(120.0)
    wave, rng = np.sin(2 * np.pi * t / 12), np.random.default_rng(0)
    swelling = np.exp(5 + 0.01 * t + 0.2 * wave + 0.03 * rng.standard_normal(120))
    steady = 100 + t + 20 * wave + 3 * rng.standard_normal(120)
    problem = lambda y: Problem(t[:, None], y, "regression", "series", (), 0, {"a year": 12.0})
    assert swells(problem(swelling))
    assert swells(problem(1e-6 * swelling))
    assert not swells(problem(steady))
    assert not swells(problem(steady - 150))
    better = candidate("in proportion", 0.01)
    choices = [candidate("plain", 100.0)._replace(proportional=lambda: better), candidate("slow", 0.02, 1e9)]
    said = []
    compare(problem(swelling), choices, Deadline.after(1e6), lambda what, *_: said.append(what))
    assert said[:2] == ["plain", "in proportion"]
    again = []
    compare(problem(steady), choices[:1], NEVER, lambda what, *_: again.append(what))
    assert again[:2] == ["plain", "in proportion"]


def test_the_best_candidate_within_the_budget_gets_all_rows():
    t = np.arange(float(DAYS))
    y = np.sin(t / 4) + 0.1 * np.random.default_rng(0).standard_normal(DAYS)
    problem = Problem(t[:, None], y, "regression", "series", (), 0)
    choices = [candidate("loud", 100.0), candidate("broken", None), candidate("right", 0.01), candidate("slow", 0.02, 1e9)]
    fitted, trials, evaluation, *_ = compare(problem, choices, Deadline.after(1e6))
    assert [trial.name for trial in trials if trial.chosen] == ["right"]
    assert trials[1].note == "failed: it cannot be learned"
    assert re.match(r"left out: about \d{9,} s of learning, 99\d{4} s were left", trials[3].note)
    assert len(fitted.inputs) == DAYS
    assert evaluation.kind == "the last tenth of the series"
    np.testing.assert_array_equal(evaluation.y, y[-4:])
    before = sg.GP(sg.Matern32(lengthscale=5.0), sg.Gaussian(0.01)).condition(t[:-4], y[:-4])
    assert trials[2].log_evidence == pytest.approx(before.log_evidence)
    assert evaluation.scores["this model"]["log loss"] == pytest.approx(-np.mean(before.predict(t[-4:]).log_prob(y[-4:])))
    pieces = []
    for origin in (20, 24, 28, 32):
        given = before.gp.condition(t[:origin], y[:origin])
        pieces.append(given.predict(t[origin : origin + 4]).log_prob(y[origin : origin + 4]))
    assert trials[2].held_out == pytest.approx(np.mean(pieces))
    with pytest.raises(ValueError, match="no candidate could be learned: failed: it cannot"):
        compare(problem, [candidate("broken", None)], NEVER)


def timed(clock, name, compiling, evaluation, seconds=4.0):
    """A candidate that moves a clock: by its programs, by fifty evaluations while there is time, by what it is given later."""
    one = candidate(name, 0.01)

    def fit(X, y, tell, deadline):
        clock[0] += compiling / 2
        for n in range(50):
            clock[0] += evaluation
            tell(n + 1, 0.0)
            if deadline.passed():
                break
        clock[0] += compiling / 2
        return one.fit(X, y, tell, deadline)

    def refit(fitted, X, y):
        clock[0] += compiling / 2
        return one.refit(fitted, X, y)

    return one._replace(fit=fit, refit=refit, seconds=seconds, compiling=seconds)


@pytest.mark.parametrize("slow", [0.5, 1.0, 3.0])
@pytest.mark.parametrize("evaluation", [0.001, 0.1, 1.0])
def test_a_budget_is_kept_by_the_clock(slow, evaluation):
    """However slow the machine: what is learned leaves time for what follows, and what cannot be compiled is left out."""
    t = np.arange(float(DAYS))
    problem = Problem(t[:, None], np.sin(t / 4), "regression", "curve", (), 0)
    clock = [0.0]
    names = [("a", 4.0), ("b", 4.0), ("huge", 40.0), ("c", 4.0)]
    choices = [timed(clock, name, slow * seconds, slow * evaluation, seconds) for name, seconds in names]
    trials = compare(problem, choices, Deadline(30.0, lambda: clock[0])).trials
    assert clock[0] < 1.2 * 30
    assert [trial.name for trial in trials] == ["a", "b", "huge", "c"]
    assert trials[0].log_evidence is not None
    assert trials[2].note.startswith("left out: about")
    assert all(trial.note for trial in trials[1:]) == (slow == 3.0 or evaluation == 1.0)


def test_a_candidate_whose_scores_would_take_too_long_is_left_out():
    """How long it takes to be given rows is seen while it forecasts, and is nobody's fault but its own."""
    t = np.arange(float(DAYS))
    problem = Problem(t[:, None], np.sin(t / 4), "regression", "series", (), 0)
    clock = [0.0]
    quick, slow = (timed(clock, name, 1.0, 0.01, 1.0) for name in ("quick", "slow"))

    def refit(fitted, X, y):
        clock[0] += 20.0
        return quick.refit(fitted, X, y)

    trials = compare(problem, [quick, slow._replace(refit=refit)], Deadline(60.0, lambda: clock[0])).trials
    assert clock[0] < 1.2 * 60
    assert trials[0].chosen
    assert trials[1].note == "left out: no time was left to see how it does"


def test_time_to_give_all_rows_and_ask_for_them_is_kept():
    """What is seen of a part of the rows says too little of a matrix of all of them."""
    timing = Timing(Deadline(100.0, lambda: 0.0))
    work = Work(factors=10.0 / reference().unit.factors)
    large = candidate("large", 0.01)._replace(finishing=work, compiling=1.0)
    before = timing.left(candidate("small", 0.01)._replace(compiling=1.0))
    assert timing.left(large) == pytest.approx(before - 10.0)
    timing.watch(large).end()
    assert timing.left() == pytest.approx(100 - timing.pace() * WRITING - 10.0)


def test_the_first_candidate_learns_for_a_while_however_late_it_is():
    clock = [100.0]
    timing = Timing(Deadline(10.0, lambda: clock[0]))
    first = timing.learning()
    timing.watch(candidate("a", 0.01))
    assert first.left() == pytest.approx(4.0)
    clock[0] += 5.0
    assert first.passed()
    assert timing.learning().left() < 0


@pytest.mark.full
def test_few_rows_for_many_columns_are_not_taken_for_exact():
    """Thirty columns of which three count: the noise is not lost, and most of what is new lies in its intervals."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((250, 30))
    y = 1.5 * X[:, 0] + np.sin(2 * X[:, 3]) + 0.8 * X[:, 7] + 0.5 * rng.standard_normal(250)
    problem = Problem(X[:50], y[:50], "regression", "table", (), 0)
    one = next(c for c in candidates_for(problem, None, "auto", 1e6) if c.name == "one function of all columns")
    fitted = one.fit(X[:50], y[:50], None, NEVER)
    lower, upper = fitted.predict(X[50:]).interval(0.95)
    assert np.mean((lower <= y[50:]) & (y[50:] <= upper)) > 0.85
    assert float(fitted.likelihood.noise) > 0.01
    many = Problem(np.tile(X[:, :4], (4, 1)), np.tile(y, 4), "regression", "table", (), 0)
    assert candidates._noise(many) == sg.Gaussian()


@pytest.mark.averaged
def test_a_model_that_is_not_averaged_over_says_that_its_parameters_are_unsure():
    t = np.arange(float(DAYS))
    problem = Problem(t[:, None], np.sin(t / 4) + 0.1 * np.cos(7 * t), "regression", "curve", (), 0)
    notes = lambda rows, parameters: compare(rows, [candidate("a sum", 0.1)], NEVER, parameters=parameters).notes
    said = (
        "a sum: its best parameters are taken as certain, though few rows leave them unsure, and intervals are narrower for it"
    )
    assert said in notes(problem, "auto")
    assert said not in notes(problem, "best")
    many = candidate("a sum", 0.1)._replace(numbers=lambda fitted: 0)
    assert said not in compare(problem, [many], NEVER, parameters="auto").notes
    told = compare(problem, [many], NEVER, parameters="laplace").notes
    assert "parameters are the best ones, as a sum is not averaged over them here" in told


def test_no_time_at_all_still_leaves_some_rows():
    X = np.random.default_rng(0).standard_normal((120, 2))
    problem = Problem(X, (X[:, 0] > 0).astype(float), "classification", "table", ("a", "b"), 0)
    found = {one.name: one.rows for one in candidates_for(problem, None, "auto", 0.0)}
    assert found["one function of all columns"] == 30


def test_little_time_is_given_to_what_is_soon_compiled():
    choices = [candidate(name, 0.01)._replace(compiling=seconds, seconds=seconds) for name, seconds in [("a", 14), ("b", 4)]]
    names = lambda seconds: [one.name for one in Timing(Deadline(seconds, lambda: 0.0)).in_order(choices)]
    assert names(30.0) == ["b", "a"]
    assert names(300.0) == ["a", "b"]


def test_time_for_an_average_that_must_be_is_kept_before_anything_else_is_tried():
    choices = [candidate(name, 0.01)._replace(compiling=seconds, seconds=seconds) for name, seconds in [("a", 4), ("b", 14)]]
    now = [0.0]
    timing = Timing(Deadline(300.0, lambda: now[0]))
    names = lambda timing: [one.name for one in timing.in_order(choices, choices[1:])]
    assert names(timing) == ["b", "a"]
    assert names(Timing(NEVER)) == ["a", "b"]
    watches = [timing.watch(one, one is choices[1]) for one in choices]
    for now[0] in (20.0, 20.5, 21.0, 21.5):
        for watch in watches:
            watch.tick()
    before = timing.left()  # while it learns, time is not taken from learning for what comes after it
    for watch in watches:
        watch.end()
    assert watches[1].following == watches[1].averaging > watches[0].following
    assert timing.left() < before
    assert timing.left() == pytest.approx(300 - 21.5 - timing.pace() * WRITING - watches[1].averaging)


@pytest.mark.averaged
def test_few_rows_for_their_columns_must_be_averaged_over():
    X, t = np.random.default_rng(0).standard_normal((50, 30)), np.arange(50.0)[:, None]
    table = Problem(X, X[:, 0], "regression", "table", (), 0)
    must = lambda problem, parameters="auto": [
        one.name for one in candidates_for(problem, None, "auto", 60.0) if _must_average(one, problem, parameters)
    ]
    assert must(table) == ["one function of all columns"]
    assert must(table, "best") == []
    assert must(Problem(np.tile(X[:, :4], (4, 1)), np.tile(X[:, 0], 4), "regression", "table", (), 0)) == []
    assert must(Problem(t, np.sin(t[:, 0]), "regression", "curve", (), 0)) == []


@pytest.mark.full
def test_a_chosen_model_that_ran_out_of_time_says_so():
    t = np.arange(float(DAYS))
    problem = Problem(t[:, None], np.sin(t / 4) + 0.1 * np.cos(7 * t), "regression", "curve", (), 0)
    choices = candidates_for(problem, sg.Matern32(lengthscale=5.0), "auto", 60.0)
    late = [one._replace(fit=lambda X, y, tell, left, one=one: one.fit(X, y, tell, Deadline(0.0))) for one in choices]
    said = "time was over before the chosen model had converged: a longer --budget may make it better"
    assert said in compare(problem, late, NEVER).notes
    assert said not in compare(problem, choices, NEVER).notes


@pytest.mark.full
def test_counts_are_compared_with_those_of_a_season_before():
    rng = np.random.default_rng(0)
    t = np.arange(140.0)
    y = rng.poisson(np.tile([20.0, 2.0, 4.0, 6.0, 8.0, 12.0, 30.0], 20)).astype(float)
    problem = Problem(t[:, None], y, "counts", "series", (), 0, {"a week": 7.0})
    held = t >= 126
    fitted = sg.GP(sg.Matern32(lengthscale=5.0), sg.Poisson(), sg.ConstantMean(2.0)).condition(t[~held], y[~held])
    scores = evaluate(problem, fitted, held, "the end").scores
    assert list(scores) == ["this model", "mean", "the value a week before"]
    week = np.tile(y[119:126], 2)
    found = scores["the value a week before"]
    assert found["log loss"] == pytest.approx(-np.mean(nbinom.logpmf(y[held], week + 0.5, 0.5)))
    assert found["RMSE"] == pytest.approx(np.sqrt(np.mean((y[held] - week - 0.5) ** 2)))
    assert found["log loss"] < scores["mean"]["log loss"]
    # what it says of a count is its distribution given one other, whose rate has a prior that is the same in any units
    rate = np.linspace(1e-6, 60, 200_001)
    posterior = rate ** (7 - 0.5) * np.exp(-rate)
    assert nbinom.pmf(4, 7.5, 0.5) == pytest.approx(np.sum(posterior * poisson.pmf(4, rate)) / np.sum(posterior), rel=1e-6)


def test_a_naive_forecast_is_the_value_of_a_season_before():
    t = np.arange(70.0)
    week = np.tile([5.0, 1.0, 2.0, 3.0, 4.0, 9.0, 8.0], 10)
    found = naive_forecast(t[:60], week[:60] + 0.01 * t[:60], t[60:], {"a week": 7.0})
    assert found.name == "the value a week before"
    np.testing.assert_allclose(found.values, week[60:] + 0.01 * np.concatenate([t[53:60], t[53:56]]))
    np.testing.assert_allclose(found.errors, 0.07)
    last = naive_forecast(t[:20], week[:20], t[20:24], {})
    assert last.name == "the last value"
    np.testing.assert_array_equal(last.values, week[19])
    np.testing.assert_array_equal(last.errors, week[2:20] - week[:18])


ROWS = 120
TIME = np.arange(float(ROWS))


def courses(kind):
    """A smooth course with noise of 0.1, the same with a twentieth of the rows 2 off, or with eight rows together, with noise
    that grows, and a random walk."""
    rng = np.random.default_rng(3)
    smooth = np.sin(TIME / 8) + 0.1 * rng.standard_normal(ROWS)
    if kind == "walk":
        return np.cumsum(rng.standard_normal(ROWS))
    if kind == "groups":
        return smooth + np.where((TIME >= 50) & (TIME < 58), 2.0, 0.0)
    if kind == "changes":
        return np.sin(TIME / 8) + 0.02 * np.exp(TIME / 35) * rng.standard_normal(ROWS)
    return smooth if kind == "smooth" else smooth + np.where(np.arange(ROWS) % 20 == 9, 2.0, 0.0) * rng.choice([-1, 1], ROWS)


CHOSEN = {
    "smooth": "smooth (Matern52)",
    "outliers": "smooth (Matern52), noise with outliers",
    "groups": "smooth (Matern52), noise with groups of outliers",
    "changes": "smooth (Matern52), noise that changes",
    "walk": "random walk",
}


@pytest.mark.filterwarnings("ignore:(variational|ep), not converged")  # of noise that is not that of the data
@pytest.mark.full
@pytest.mark.parametrize("kind", CHOSEN)
def test_walks_and_outliers_are_seen_where_they_are_and_nowhere_else(kind):
    ready = prepare(pl.DataFrame({"t": TIME, "v": courses(kind)}), "v")
    choices = [one for one in ready.candidates if one.name in ("smooth (Matern52)", "random walk")]
    fitted, trials, evaluation, *_ = compare(ready.problem, choices, NEVER)
    assert [trial.name for trial in trials if trial.chosen] == [CHOSEN[kind]]
    assert any("noise" in trial.name for trial in trials) == (kind in ("outliers", "groups", "changes"))
    assert evaluation.scores["this model"]["in 95 % interval"] >= 0.8
    if kind == "outliers":
        assert float(fitted.likelihood.scale) < 0.2  # a Gaussian's standard deviation would be 0.45
        assert set(np.flatnonzero(fitted.outlier_probability > 0.5)) == set(range(9, ROWS, 20))
    if kind == "groups":
        assert set(np.flatnonzero(fitted.outlier_probability > 0.5)) == set(range(50, 58))


def test_what_is_left_speaks_for_other_noise():
    rng = np.random.default_rng(0)
    line, rest = TIME[:, None], np.abs(rng.standard_normal(ROWS))
    assert not noise._changes(line, rest)
    assert noise._changes(line, np.exp(TIME / 40) * rest)
    assert noise._in_groups(line, (TIME >= 50) & (TIME < 58))
    assert not noise._in_groups(line, TIME % 20 == 9)
    bound = noise._bound(sg.Spline(2.0, start=0.0) + sg.Matern52(3.0), line)
    assert bound.terms == (sg.IntegratedWiener(2.0, start=-119.0), sg.Matern52(3.0))


@pytest.mark.full
def test_tables_have_a_candidate_for_outliers():
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, size=(80, 2))
    y = np.sin(X[:, 0] * X[:, 1]) + 0.05 * rng.standard_normal(80) + 5.0 * (np.arange(80) % 16 == 3)
    ready = prepare(pl.DataFrame({"a": X[:, 0], "b": X[:, 1], "v": y}), "v", structure="dense")
    fitted, trials, *_ = compare(ready.problem, ready.candidates, NEVER)
    scores = {trial.name: trial.held_out for trial in trials}
    plain, heavy = (scores[f"one function of all columns{noise}"] for noise in ("", ", noise with outliers"))
    assert heavy > plain + 1
    assert isinstance(fitted.likelihood, (sg.StudentT, sg.Switch))  # twinned noise says as much of outliers of one size
    assert set(np.flatnonzero(fitted.outlier_probability > 0.5)) == set(range(3, 80, 16))


def test_the_evidence_decides_among_forecasts_that_are_about_as_good():
    problem = Problem(TIME[:, None], courses("smooth"), "regression", "series", (), 0)

    def attempt(name, evidence, scores):
        return Attempt(Trial(name, evidence, float(np.mean(scores))), object(), candidate(name, 1.0), np.array(scores))

    likely, lucky = attempt("likely", 10.0, [-1.0, -2.0, -1.5]), attempt("lucky", 5.0, [-1.1, -1.0, -1.2])
    assert _best([likely, lucky], problem) is likely
    better = attempt("better", 5.0, [-0.5, -1.45, -1.0])
    assert _best([likely, better], problem) is better
    assert _best([likely, better], problem._replace(shape="curve")) is likely
    few = [one._replace(scores=one.scores[:2]) for one in (likely, better)]
    assert _best(few, problem) is few[0]
    broken = attempt("broken", 99.0, [np.nan, 0.0, 0.0])
    assert _best([broken, likely], problem) is likely
    t, y = TIME[:5], np.zeros(5)
    plain = likely._replace(fitted=sg.GP(sg.Matern32()).condition(t, y))
    richer = likely._replace(fitted=sg.GP(sg.Matern32() + sg.Matern52()).condition(t, y))
    assert _best([richer, plain], problem) is plain


def test_a_trend_with_a_free_line_is_compared_in_any_unit():
    y = courses("smooth")
    found = []
    for unit in (1.0, 365.25):
        problem = Problem(TIME[:, None] / unit, y, "regression", "series", (), 0)
        one = next(one for one in candidates_for(problem, None, "auto", 60.0) if one.name == "trend that bends + short-lived")
        kernel = sg.Spline(variance=1e-3 * unit**3)
        found.append(sg.GP(kernel, sg.Gaussian(0.01)).log_evidence(problem.X, y) + one.price)
    assert found[0] == pytest.approx(found[1], abs=1e-6)


def test_labels_and_large_tables_are_held_out_fairly():
    rng = np.random.default_rng(0)
    y = (np.arange(200) % 4 == 0).astype(float)
    problem = Problem(rng.uniform(size=(200, 2)), y, "classification", "table", ("no", "yes"), 0)
    held, kind = hold_out(problem, rng)
    assert held.sum() == 40
    assert kind == "a random fifth of the rows"
    assert not hold_out(problem._replace(X=problem.X[:10], y=y[:10]), rng)[0].any()
    rare = problem._replace(y=(np.arange(200) == int(np.flatnonzero(held)[0])).astype(float))
    assert not any(hold_out(rare, np.random.default_rng(seed))[0][np.flatnonzero(rare.y)].any() for seed in range(20))


def test_shapes_lead_to_candidates():
    rng = np.random.default_rng(0)
    rows, columns = (part.ravel() for part in np.meshgrid(np.arange(6.0), np.arange(7.0)))
    grid = prepare(pl.DataFrame({"r": rows, "c": columns, "v": rng.standard_normal(42)}), "v")
    assert grid.problem.shape == "grid"
    assert {candidate.plan.engine.name for candidate in grid.candidates} == {"Eigen"}
    table = prepare(pl.DataFrame({**{f"x{d}": rng.uniform(size=60) for d in range(3)}, "v": rng.uniform(size=60)}), "v")
    assert table.problem.shape == "table"
    assert [candidate.name.split(" of ")[-1] for candidate in table.candidates][::2] == [
        "one column each",
        "learned projections",
    ]
    t = np.arange(120.0)
    series = prepare(pl.DataFrame({"t": t, "v": 0.1 * t + np.sin(2 * np.pi * t / 12)}), "v")
    assert [candidate.name.split(" + ")[0] for candidate in series.candidates[:2]] == ["trend that bends", "trend"]
    assert "season of" in series.candidates[0].name
    curve = prepare(pl.DataFrame({"t": t[::-1], "v": 0.1 * t}), "v")
    assert curve.problem.shape == "curve"
    assert prepare(pl.DataFrame({"t": t[::-1], "v": 0.1 * t}), "v", time_column="t").problem.shape == "series"


def test_long_tables_of_labels_and_counts_have_sums_to_try():
    rng = np.random.default_rng(0)
    columns = {f"x{d}": rng.uniform(size=3000) for d in range(4)}
    codes = rng.integers(0, 3, 3000)
    for target, classes in ((codes, 0), (np.array(["a", "b", "c"])[codes], 3)):
        ready = prepare(pl.DataFrame({**columns, "v": target}), "v")
        rows = affordable_rows(4, "counts", classes, 0.6 * 120.0)
        assert rows < 3000
        assert next(one.rows for one in ready.candidates if one.plan is not None) == rows
        assert ready.candidates[0].name == "a sum of functions of one column each"
        names = [one.name for one in ready.candidates]
        assert names[1:3] == [ONE_FUNCTION["inducing"], "a sum of functions of learned projections"]


def tried(evidence, scores=None, whole=True):
    return Tried(evidence, None if scores is None else np.asarray(scores), whole)


def test_a_model_is_better_only_where_it_clearly_is():
    rng = np.random.default_rng(0)
    one = rng.standard_normal(60)
    noise = rng.standard_normal(60)
    close, far = one + 0.004 + 0.1 * (noise - noise.mean()), one + 0.1 + 0.1 * (noise - noise.mean())
    assert best([tried(-100.0, one), tried(-360.0, close)]) == 0  # inside the noise: more evidence
    assert best([tried(-360.0, one), tried(-100.0, close)]) == 1
    assert best([tried(-100.0, one), tried(-99.0, close)]) == 0  # neither speaks: the simpler
    assert best([tried(-100.0, one), tried(-360.0, far)]) == 1  # clearly, row by row
    assert best([tried(-100.0, one), tried(-10.0, close, whole=False)]) == 0  # an evidence of fewer rows compares nothing
    assert best([tried(-100.0, one), tried(-10.0, close)], by_evidence=False) == 0
    assert best([tried(-100.0), tried(-90.0)]) == 1
    assert best([tried(-100.0), tried(-98.0)]) == 0
    assert best([tried(np.nan), tried(-100.0)]) == 1
    assert best([tried(-100.0, one), tried(np.nan, close)]) == 1  # what evidence cannot compare, the mean does
    assert best([tried(-100.0, close), tried(np.nan, one)]) == 0
    assert best([tried(np.nan, one), tried(np.nan, close)]) == 1
    assert best([tried(-1.0, np.full(60, -np.inf)), tried(-9.0, one)]) == 1
    four = one[:4] + np.array([0.4, 0.5, 0.6, 0.1])  # 3.6 standard errors, of an error that four rows do not know well
    assert best([tried(-100.0, one[:4]), tried(-360.0, four)]) == 1
    assert best([tried(-100.0, one[:4]), tried(-360.0, four - 0.1)]) == 0
    said = judge.reasons([tried(-100.0, one), tried(-360.0, far), tried(-90.0, far - 0.001)], 2)
    assert said[0].startswith("clearly behind on rows held out, by 0.1 ± 0.01 a row")
    assert said[1].endswith("most probable with it, within their error; log evidence less by 270, charged for what it learned")
    assert said[2] == "taken: most evidence of those that are as good on rows held out"
    assert judge.reasons([tried(-100.0, one), tried(-99.0, close)], 0)[0].startswith("taken: the simplest of those")
    assert judge.reasons([tried(-100.0, close), tried(np.nan, one)], 0)[0].startswith("taken: rows held out are most probable")


def test_what_learning_has_turned_off_costs_next_to_nothing():
    rng = np.random.default_rng(0)
    X, one = rng.standard_normal((40, 2)), candidate("one", 0.0)
    charge = lambda kernel: (
        (f := sg.GP(kernel, sg.Gaussian(0.1)).condition(X, np.sin(X[:, 0]))).log_evidence
        - judge.charged_evidence(one, f, 40, "regression")
    )
    each = 0.5 * np.log(40)
    assert charge(sg.Matern52([1.0, 2.0])) == pytest.approx(4 * each)
    assert charge(sg.Matern52([1.0, 500.0])) == pytest.approx(3 * each + np.log(2))
    terms = lambda variance: sg.Matern52().on(0) + sg.Matern52(variance=variance).on(1)
    assert charge(terms(1.0)) == pytest.approx(5 * each)
    assert charge(terms(1e-5)) == pytest.approx(3 * each + np.log(2))


def test_what_is_affordable_is_one_limit():
    assert affordable_rows(3, "regression") > 4600
    assert affordable_rows(8, "regression") == pytest.approx(5100, abs=100)
    assert affordable_rows(8, "classification") == pytest.approx(4300, abs=50)
    assert affordable_rows(8, "classification", 5) == pytest.approx(4300 / 5 ** (1 / 3), rel=0.15)
    assert affordable_rows(8, "outliers") < affordable_rows(8, "counts") == affordable_rows(8, "classification")
    rows = affordable_rows(8, "regression", 0, 72.0)
    assert learning_seconds(cost_of_matrix(rows, 8), 8) == pytest.approx(72.0, rel=0.01)


def few_are_many(monkeypatch):
    for place in ("sklearn.learning", "tables.automatic.candidates"):
        monkeypatch.setattr(f"structgp.{place}.affordable_rows", lambda *_: 40)


@pytest.mark.parametrize("right", [0, 1])
def test_estimators_and_tables_decide_alike(monkeypatch, right):
    """Where a dense matrix is too large, both compare the candidates of one list by one rule."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((100, 2))
    y = 3 * np.sin(2 * X[:, 0]) + 0.3 * rng.standard_normal(100)
    gps = [sg.GP(sg.Matern52([1.0, 50.0] if i == right else [50.0, 1.0], 4.0), sg.Gaussian(0.09)) for i in (0, 1)]

    def one(name, gp):
        return Candidate(name, lambda X, y, tell, left: gp.condition(X, y), lambda fitted, X, y: gp.condition(X, y))

    listed = {key: one(name, gp) for (key, name), gp in zip(SUMS.items(), gps, strict=True)}
    for place in (choose, candidates):
        monkeypatch.setattr(place, "for_many_rows", lambda *_: listed)
    few_are_many(monkeypatch)
    monkeypatch.setattr(choose, "HELD", 0.2)
    monkeypatch.setattr(choose, "_offer", lambda attempt, fitted, X, classes: fitted.plan.chosen)
    problem = Problem(X, y, "regression", "table", (), 0)
    choices = candidates_for(problem, None, "auto", 60.0)
    assert choices[:2] == list(listed.values())
    assert choices[2].rows < 50
    assert compare(problem, choices[:2], NEVER).fitted.gp is gps[right]
    assert sg.GPRegressor().fit(X, y).fitted_.gp is gps[right]


@pytest.mark.full
@pytest.mark.parametrize("kind", ["additive", "projections"])
def test_so_they_do_with_what_is_in_the_list(monkeypatch, kind):
    few_are_many(monkeypatch)
    monkeypatch.setattr(choose, "HELD", 0.2)
    monkeypatch.setattr("structgp.models.candidates.INDUCING", 8)
    monkeypatch.setattr(choose, "SEARCH", choose.Limits(projections=2))
    monkeypatch.setattr("structgp.tables.automatic.candidates.Limits", lambda *_, **__: choose.SEARCH)
    rng = np.random.default_rng(0)
    X = rng.standard_normal((100, 3))
    f = 2 * np.sin(2 * X[:, 0]) + 2 * np.cos(2 * X[:, 2]) if kind == "additive" else 3 * np.sin(2 * X @ [0.6, 0.8, 0.0])
    y = f + 0.3 * rng.standard_normal(100)
    problem = Problem(X, y, "regression", "table", (), 0)
    choices = [one for one in candidates_for(problem, None, "auto", 60.0) if one.rows is None]
    assert len(choices) == 5
    found = compare(problem, choices, NEVER)
    assert type(found.fitted) is type(sg.GPRegressor(random_state=0).fit(X, y).fitted_)
    named = next(trial.name for trial in found.trials if trial.chosen)
    assert named == SUMS["additive" if kind == "additive" else "projection-pursuit"]


@pytest.mark.parametrize(
    ("names", "scale", "shape"),
    [
        (("lon", "lat"), 1.0, "places"),
        (("Latitude", "Longitude"), 1.0, "places"),
        (("station_lon", "lat (deg)"), 1.0, "places"),
        (("lon", "lat"), 1000.0, "table"),  # metres
        (("long_term_debt", "assets"), 1.0, "table"),
        (("lon", "height"), 1.0, "table"),
        (("x (m)", "y (m)"), 1000.0, "places"),
        (("Xloc", "Yloc"), 1.0, "places"),
        (("x_speed", "y_speed"), 1.0, "table"),
    ],
)
def test_places_are_seen_by_names_and_ranges(names, scale, shape):
    rng = np.random.default_rng(0)
    frame = pl.DataFrame({name: scale * rng.uniform(5, 15, 60) for name in names} | {"v": rng.standard_normal(60)})
    ready = prepare(frame, "v")
    assert ready.problem.shape == shape
    first = ready.candidates[0].name
    assert first == ("a function of the place" if shape == "places" else SUMS["additive"])
    spread = np.std(ready.problem.X, axis=0)
    assert np.prod(spread) == pytest.approx(1.0)
    if shape == "places":  # one step on the map is as long in both directions
        degrees = "lat" in "".join(names).lower()
        north = next(d for d, name in enumerate(names) if "lat" in name.lower() or "y" in name.lower())
        assert ready.scale[1 - north] / ready.scale[north] == pytest.approx(ready.problem.map.stretch(ready.center[north]))
        assert ready.problem.map.stretch(60.0) == pytest.approx(2.0 if degrees else 1.0)
        assert not {one.name for one in ready.candidates} & set(SUMS.values())  # which would draw stripes


def test_of_places_one_function_is_taken_unless_another_is_clearly_better():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((120, 2))
    problem = Problem(X, np.sin(X[:, 0] * X[:, 1]), "regression", "places", (), 0, {}, (0, 1))
    held = np.arange(120) >= 90
    fitted = sg.GP(sg.Matern52(), sg.Gaussian(0.01)).condition(X[~held], problem.y[~held])
    one = candidate("one function", 0.01)
    scores = judge.log_probabilities(fitted, "regression", X[held], problem.y[held])
    better = Attempt(Trial("sum", 500.0, float(scores.mean())), fitted, one, scores + 0.01 * rng.standard_normal(30))
    first = Attempt(Trial("one function", 1.0, float(scores.mean())), fitted, one, scores)
    assert _best([first, better], problem) is first
    assert _best([first, better._replace(scores=scores + 0.5)], problem).trial.name == "sum"
    seen = evaluate(problem, fitted, held, "some places")
    np.testing.assert_array_equal(np.stack([seen.east, seen.north], axis=1), X[held])


def test_scores_have_intervals_and_baselines():
    rng = np.random.default_rng(0)
    t = np.arange(200.0)
    problem = Problem(t[:, None], rng.standard_normal(200), "regression", "curve", (), 0)
    held = t >= 100
    fitted = sg.GP(sg.Matern32(variance=1e-6), sg.Gaussian(1.0)).condition(t[~held], problem.y[~held])
    found = evaluate(problem, fitted, held, "half of the rows")
    y = problem.y[held]
    assert found.scores["this model"]["RMSE"] == pytest.approx(np.sqrt(np.mean(y**2)), rel=1e-3)
    assert left_out(problem, fitted, held[:50])[0] + left_out(problem, fitted, held[:50])[1] == 100
    assert left_out(problem, fitted, held) == ()  # enough were held out
    low, high = found.intervals["this model"]["RMSE"]
    spread = np.std(y**2) / np.sqrt(100) / (2 * np.sqrt(np.mean(y**2)))  # of the root of a mean, by its derivative
    assert high - low == pytest.approx(2 * 1.645 * spread, rel=0.2)
    assert found.covered[0] == np.mean(np.abs(y) < 0.6745)
    np.testing.assert_allclose(found.pit, np.histogram(norm.cdf(y), 10, (0, 1))[0] / 100, atol=0.02)
    in_time = evaluate(problem._replace(shape="series"), fitted, held, "")
    assert in_time.scores == found.scores | {"the last value": in_time.scores["the last value"]}


@pytest.mark.full
def test_several_classes_stand_each_against_the_rest():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40, 2))
    codes = np.digitize(X[:, 0], [-0.4, 0.4]).astype(float)
    problem = Problem(X, codes, "classification", "table", ("a", "b", "c"), 0)
    (one,) = candidates_for(problem, sg.SquaredExponential(variance=9.0).freeze(), "auto", 60.0)
    fitted = one.fit(X, codes, None, NEVER)
    assert [type(part.likelihood) for part in fitted.parts] == [sg.Bernoulli] * 3
    again = one.refit(fitted, X, np.where(np.arange(40) < 30, codes, np.nan))
    assert [int(part.data.seen.sum()) for part in again.parts] == [30] * 3
    held = np.arange(40) >= 30
    found = evaluate(problem, again, held, "")
    p = again.predict(X[held]).probability
    np.testing.assert_allclose(found.mean, p.max(axis=1))
    assert found.label == tuple(p.argmax(axis=1))


def predicted(likelihood, rows):
    """A prediction with the latent known to be N(1, 0.25) everywhere, and what is observed under it."""
    rng = np.random.default_rng(0)
    f = 1.0 + 0.5 * rng.standard_normal(rows)
    return Prediction(np.ones(rows), np.full(rows, 0.25), likelihood), likelihood.sample(rng, f)


@pytest.mark.parametrize("likelihood", [sg.Gaussian(0.3), sg.StudentT(3.0, 0.5), sg.Poisson(), sg.NegativeBinomial(0.5)])
def test_calibrated_predictions_have_a_flat_transform(likelihood):
    counts = isinstance(likelihood, (sg.Poisson, sg.NegativeBinomial))
    prediction, y = predicted(likelihood, 4000)
    found = pit_histogram(prediction, np.asarray(y, dtype=float), counts)
    assert found.sum() == pytest.approx(1.0)
    np.testing.assert_allclose(found, 0.1, atol=0.02)  # 4 standard errors of a tenth of 4000 rows
    too_sure = Prediction(prediction.mean, 0.01 * prediction.variance, likelihood)
    bent = pit_histogram(too_sure, np.asarray(y, dtype=float), counts)
    assert bent[[0, -1]].sum() > found[[0, -1]].sum() + 0.03


def test_a_count_is_spread_over_its_probability():
    prediction = Prediction(np.full(2, np.log(2.0)), np.full(2, 1e-12), sg.Poisson())
    edges = np.linspace(0, 1, 11)
    each = []
    for y in (0, 3):
        low, high = poisson.cdf([y - 1, y], 2.0)
        each.append(np.diff(np.clip((edges - low) / (high - low), 0, 1)))
    np.testing.assert_allclose(pit_histogram(prediction, np.array([0.0, 3.0]), True), np.mean(each, axis=0), atol=1e-6)
    far = pit_histogram(prediction, np.array([0.0, 1e4]), True)
    assert far.sum() == pytest.approx(1.0)
    assert far[-1] == pytest.approx(0.5)


@pytest.mark.full
def test_a_forecast_is_no_surer_than_the_past_allows():
    rng = np.random.default_rng(3)
    t = np.arange(150.0)
    slope = np.cumsum(0.1 * rng.standard_normal(150))
    frame = pl.DataFrame({"t": t, "v": np.cumsum(slope) + rng.standard_normal(150)})
    heard = []
    model = fit_table(frame, "v", budget=1e6, seed=0, say=lambda *said: heard.append(said))
    assert {what for what, _, evidence in heard if evidence is not None} == {trial.name for trial in model.trials}
    assert heard[-1] == ("giving the chosen model all rows", 0, None)
    assert [trial.name for trial in model.trials if trial.chosen] == ["trend that bends"]
    assert model.evaluation.scores["this model"]["in 95 % interval"] >= 0.8


@pytest.mark.full
@pytest.mark.averaged
def test_few_rows_are_averaged_over_and_the_report_says_how_sure_it_is():
    from structgp.process.mixture import FittedMixture
    from structgp.tables.report import render

    rng = np.random.default_rng(0)
    x = np.sort(rng.uniform(0, 6, 40))
    frame = pl.DataFrame({"x": x, "v": np.sin(2 * x) + 0.2 * rng.standard_normal(40)})
    options = {"kernel": lambda names: sg.Matern52(), "budget": 1e6}
    model = fit_table(frame, "v", **options)
    assert isinstance(model.fitted, FittedMixture)
    assert len(model.fitted.inputs) == 40
    assert 0 <= model.evaluation.with_best["in 95 % interval"] <= 1
    page = render(model)
    assert "How sure is it about its parameters?" in page
    assert "with the best parameters alone" in page
    assert ">length over which it changes</td>" in page
    assert ">noise (standard deviation)</td>" in page
    best = fit_table(frame, "v", parameters="best", **options)
    assert isinstance(best.fitted, sg.Fitted)
    assert "How sure is it" not in render(best)
