"""Learning by a clock that the objective itself moves: a second for every evaluation."""

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest

import structgp as sg
import zoo
from structgp.inputs.layouts import as_inputs
from structgp.inputs.observations import read_observations
from structgp.learn.climb import climb
from structgp.learn.clock import NEVER, Deadline
from structgp.learn.em import maximise_by_em
from structgp.learn.peak import Averaging
from structgp.models.pursuit.search import Family, Search, schwarz
from structgp.models.pursuit.sine_model import SineModel
from structgp.parameters.tree import free_vector
from structgp.process.learned import averages_in_time

X, Y = zoo.X[1], zoo.Y[1]
GP = sg.GP(sg.Matern52(), sg.Gaussian(0.1))
OPTIONS = {"seed": 0, "max_evaluations": 500, "progress": False}


class Hill:
    """A slope in the parameters of a model that is a long way to climb, and a clock that counts how often it was looked at."""

    def __init__(self, *_):
        self.looks, self.grain = 0, 0.0

    def __call__(self, theta):
        self.looks += 1
        d = theta - 8.0
        scale = 10.0 ** np.arange(len(theta))
        return -float(np.sum(scale * d**4)), -4 * scale * d**3

    def clock(self):
        return float(self.looks)


def climbed(seconds, restarts=0, starts=1):
    hill = Hill()
    deadline = NEVER if seconds is None else Deadline.after(seconds, hill.clock)
    begin = [free_vector(GP)] * starts
    model, learning = climb(GP, hill, begin, 1, 0.0, restarts=restarts, deadline=deadline, **OPTIONS)
    return hill, free_vector(model), learning


def test_a_climb_ends_at_its_deadline_with_the_best_point():
    free, _, whole = climbed(None)
    hill, theta, learning = climbed(5.0)
    assert hill.looks == 5 < free.looks
    assert learning.evaluations == 5
    assert not learning.converged
    assert "stopped: out of time; the best point so far is kept after 5 evaluations" in str(learning)
    assert learning.objective == Hill()(theta)[0]
    assert Hill()(free_vector(GP))[0] < learning.objective < whole.objective


def test_without_any_time_the_first_start_is_seen_and_no_other():
    hill, theta, learning = climbed(0.0, starts=3)
    assert hill.looks == 1
    assert learning.evaluations == 1
    np.testing.assert_array_equal(theta, free_vector(GP))


def test_restarts_share_the_time():
    hill, _, learning = climbed(12.0, restarts=2)
    assert 12 <= hill.looks <= 12 + 2  # a climb on another thread may be in the midst of its evaluation
    assert "out of time" in learning.message


def test_learning_takes_seconds():
    fitted = GP.fit(X, Y, restarts=0, seconds=0.0)
    assert fitted.learning.message == "out of time; the best point so far is kept"
    assert GP.fit(X, Y, restarts=0, seconds=1e6).learning.converged
    with pytest.raises(ValueError, match="seconds must be 0 or more, or None for as long as it takes, got -1"):
        GP.fit(X, Y, seconds=-1)


@pytest.mark.parametrize("shared", zoo.mostly_full([True, False], True))
def test_many_series_take_seconds(shared):
    t = np.arange(30.0)
    y = np.stack([np.sin(t / 3), np.cos(t / 4)])
    gp = sg.GP(sg.Matern32(), sg.Gaussian(0.1))
    late = gp.fit_series([t, t], list(y), shared=shared, restarts=2, seconds=0.0)
    assert all(one.message == "out of time; the best point so far is kept" for one in late.learnings)
    assert not late.learning.converged
    free = gp.fit_series([t, t], list(y), shared=shared, seconds=1e6)
    assert free.learning.converged
    assert free.log_evidence > late.log_evidence


@pytest.mark.full
def test_em_ends_at_its_deadline():
    t = np.arange(30.0)
    gp = sg.GP(sg.Matern32(), sg.Gaussian(0.1))
    y = np.sin(t / 3)
    ticks = iter(range(100))
    deadline = Deadline(2.0, lambda: float(next(ticks)))  # asked once before each pair of steps
    inputs = as_inputs(t)
    data, offer = read_observations(gp.likelihood, y, None, "error", inputs), gp.plan(inputs).chosen
    short = maximise_by_em(gp, inputs, data, offer, restarts=0, deadline=deadline, **OPTIONS)[1]
    long = maximise_by_em(gp, inputs, data, offer, restarts=0, **OPTIONS)[1]
    assert short.message == "out of time; the best point so far is kept"
    assert len(short.trace) in range(5, 8)
    assert long.trace[: len(short.trace)] == short.trace
    assert len(long.trace) > len(short.trace)


@pytest.mark.full
def test_projections_are_searched_for_by_the_clock():
    rng = np.random.default_rng(0)
    data = rng.standard_normal((60, 2)), rng.standard_normal(60)
    hill = Hill()
    start = SineModel([[1.0]], [1.0], [1.0], 0.1, 0.2)
    family = Family(lambda functions: functions, lambda model: model, lambda *_: hill, schwarz, start)
    search = Search(family, data, (1, 2), None, rng, 7.0, 300, False, hill.clock)
    _, learning, table = search.run()
    assert [rung.projections for rung in table] == [1]
    assert "out of time" in learning.message
    assert hill.looks <= 7 + 5  # each climb that begins after the deadline looks at its start


@pytest.mark.parametrize(("rest", "looks"), [(0.0, (55, 60)), (20.0, (35, 40))])
def test_a_search_leaves_time_for_what_comes_after_it(rest, looks):
    """The work of so many looks at all rows is left to the end, and nothing is compiled: the search ends as much earlier."""
    rng = np.random.default_rng(0)
    data = rng.standard_normal((60, 2)), rng.standard_normal(60)
    hill = Hill()
    start = SineModel([[1.0]], [1.0], [1.0], 0.1, 0.2)
    same = lambda model: model
    search = Search(Family(same, same, lambda *_: hill, schwarz, start), data, (1,), None, rng, 60.0, 300, False, hill.clock)
    search.family = search.family._replace(ending=lambda like, M: rest * search.work(data, M))
    search.compiling = 0.0
    search.run()
    low, high = looks
    assert low <= hill.looks <= high + 6  # each climb that begins after the deadline looks at its start


def test_a_number_that_comes_too_late_is_not_compared():
    rng = np.random.default_rng(0)
    data = rng.standard_normal((60, 2)), rng.standard_normal(60)
    hill = Hill()
    same = lambda model: model
    family = Family(same, same, lambda *_: hill, schwarz, SineModel([[1.0]], [1.0], [1.0], 0.1, 0.2))
    search = Search(family, data, (1, 2), None, rng, 200.0, 300, False, hill.clock)
    smaller = search.rung(1, None)
    search.seconds = float(hill.looks) + 3.0
    assert search.rung(2, smaller) is None
    assert [rung.projections for rung in search.table] == [1]


def test_a_deadline_says_what_is_left():
    assert NEVER.left() == np.inf
    assert not NEVER.passed()
    late = Deadline(3.0, lambda: 4.0)
    assert late.left() == -1.0
    assert late.passed()
    assert dataclasses.replace(late, at=5.0).left() == 1.0


def test_what_would_end_too_late_is_not_begun():
    deadline = Deadline(10.0, lambda: 4.0)
    assert deadline.allows(6.0)
    assert not deadline.allows(6.5)
    assert not Deadline(4.0, lambda: 4.0).allows(0.0)
    assert NEVER.allows(1e9)
    hill, _, learning = climbed(5.5)  # a look takes 1
    assert hill.looks == learning.evaluations == 5


def test_an_average_that_would_end_too_late_is_not_begun():
    plan, averaging = GP.plan(X), Averaging()
    learning = SimpleNamespace(seconds=30.0, evaluations=15)
    needed = 2.0 * (2 * 3 + averaging.count)  # three parameters
    within = lambda seconds: averages_in_time(averaging, plan, 3, learning, Deadline(seconds, lambda: 0.0))
    assert within(needed) == (averaging, plan)
    none, told = within(needed - 1)
    assert none is None
    assert told.members == 1
    assert told.parameters == "best: there was no time to average over them"


def test_a_deadline_is_shared_and_passed_on():
    deadline = Deadline(10.0, lambda: 4.0)
    assert deadline.share(3).left() == pytest.approx(2.0)
    assert Deadline(3.0, lambda: 4.0).share(2).left() == 0.0
    assert NEVER.share(2).left() == np.inf
    assert Deadline.after(deadline) is deadline
