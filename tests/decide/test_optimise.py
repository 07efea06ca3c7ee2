"""Ask and tell: what is suggested, how it is repeated, and what it costs in programs."""

import jax
import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

import structgp as sg
import zoo
from structgp.decide import acquire, knowledge, search, surrogate
from structgp.decide.optimise import Optimiser
from structgp.decide.surrogate import beliefs_about
from structgp.files.values import Reader, Writer
from structgp.learn.lockstep import minimise_all

SPACE = sg.Space(a=(-5, 10), b=(0, 15))


def branin(x):
    a, b = x["a"], x["b"]
    return (b - 5.1 / (4 * np.pi**2) * a**2 + 5 / np.pi * a - 6) ** 2 + 10 * (1 - 1 / (8 * np.pi)) * np.cos(a) + 10


def told(count=8, f=branin, space=SPACE, **options):
    opt = Optimiser(space, seed=1, **options)
    for place in opt._whole_space().design(count, 3):
        point = opt.space.point(place)
        opt.tell(point, f(point))
    return opt


def counted(work):
    """How many programs it compiles."""
    found = []
    listen = lambda event, seconds, **about: found.append(event) if event.endswith("backend_compile_duration") else None
    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        work()
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)
    return len(found)


@pytest.mark.full
def test_branin_is_minimised_and_the_account_says_how():
    found = sg.minimise(branin, SPACE, evaluations=18, seed=0)
    assert found.value < 2.0  # 0.398 is the least; of 18 random points the median is 8
    assert found.value == branin(found.x) == min(run.value for run in found.history)
    assert found.account.stopped == "18 evaluations were made"
    assert "18 rows" in str(found.account) or found.account.rows == 17
    assert found.optimiser.trace[-1] == found.value
    assert np.all(np.diff(found.optimiser.trace) <= 0)


@pytest.mark.full
def test_large_values_can_be_looked_for():
    low, high = told(), told(f=lambda x: -branin(x), maximise=True)
    a, b = low.suggest()[0], high.suggest()[0]
    assert a.point == b.point
    assert (a.mean, a.expected_gain, a.probability) == pytest.approx((-b.mean, b.expected_gain, b.probability), rel=1e-9)
    assert low.best.value == -high.best.value


def test_nothing_is_compiled_within_a_capacity():
    opt = told()
    opt.tell(opt.ask(), 30.0)
    opt.ask(2)  # a pending point, and two side by side: all programs

    def go_on():
        for value in (20.0, 25.0, 12.0):
            opt.tell(opt.ask(), value)

    assert counted(go_on) == 0
    assert opt.account.capacity == 32


def told_with_limits(opt, point):
    """Runs fail in one half of the space, and the cost is limited."""
    if point["a"] > 4:
        opt.tell(point, failed=True)
    else:
        opt.tell(point, branin(point), cost=point["b"])


def limited(count, **options):
    opt = Optimiser(SPACE, seed=1, outcome_constraints={"cost": (None, 8.0)}, **options)
    for place in opt._whole_space().design(count, 3):
        told_with_limits(opt, SPACE.point(place))
    return opt


def test_nothing_is_compiled_within_a_capacity_where_runs_fail_and_outcomes_have_limits():
    opt = limited(14)
    told_with_limits(opt, opt.ask())  # of 16 runs and fewer the programs of a fit would be others
    opt.ask(2)

    def go_on():
        for _ in range(4):
            told_with_limits(opt, opt.ask())

    assert counted(go_on) == 0
    assert len(opt.history) == 19
    assert opt.account.capacity == 32


@pytest.mark.full
def test_the_next_capacity_is_prepared_with_failures_and_outcomes():
    opt = limited(24, noise=0.0)
    opt.ask()  # prepares

    def go_on():
        for _ in range(12):
            told_with_limits(opt, opt.ask())

    opt.__dict__["_early"].wait()
    assert counted(go_on) == 0
    assert opt.account.capacity == 64


@pytest.mark.full
def test_nothing_is_compiled_within_a_capacity_by_few_inducing_inputs():
    opt = told(15, model=sg.ReducedRank(12))
    opt.tell(opt.ask(), 30.0)

    def go_on():
        for value in (20.0, 25.0, 12.0):
            opt.tell(opt.ask(), value)

    assert counted(go_on) == 0


def test_runs_that_break_limits_are_no_success_of_a_region():
    """Values fall, but none of those runs counts: the region is as small as after failures."""
    boxes = {}
    for name, limits in (("none", None), ("broken", {"cost": (None, 5.0)})):
        opt = Optimiser(SPACE, seed=1, initial=3, outcome_constraints=limits, region=sg.Adaptive(0.2, grow=2.0, least=0.1))
        for number, place in enumerate(opt._whole_space().design(8, 3)):
            cost = {} if limits is None else {"cost": 4.0 if number < 3 else 6.0}
            opt.tell(opt.space.point(place), 10.0 - number, **cost)
        boxes[name] = opt._box(np.array([0.5, 0.5]))
    np.testing.assert_allclose(np.ptp(boxes["none"], axis=0), 1.0)
    np.testing.assert_allclose(np.ptp(boxes["broken"], axis=0), 0.2)


def test_outcomes_are_learned_from_the_rows_that_values_are(monkeypatch):
    seen = []
    learn = knowledge.learn

    def watched(gp, measured, *arguments, **options):
        seen.append(measured.X[measured.seen])
        return learn(gp, measured, *arguments, **options)

    monkeypatch.setattr(knowledge, "learn", watched)
    monkeypatch.setattr(knowledge, "LEARNED", 8)
    opt = Optimiser(SPACE, seed=1, outcome_constraints={"cost": (None, 8.0)})
    for place in opt._whole_space().design(12, 3):
        opt.tell(SPACE.point(place), branin(SPACE.point(place)), cost=place[1])
    opt._knowledge()
    values, outcome = seen
    assert len(values) == 8
    np.testing.assert_array_equal(values, outcome)


def test_all_pending_points_are_believed():
    few = np.random.default_rng(0).uniform(size=(20, 2))
    measured = surrogate.Measured.filled(few, few[:, 0], np.zeros(20), 32)
    more, pending = knowledge._with_pending(measured, np.random.default_rng(1).uniform(size=(40, 2)))
    assert len(more.y) == 64
    assert pending.sum() == 40
    np.testing.assert_array_equal(more.X[:20], few)
    assert surrogate.capacity_for(480 + 100) == 1024


def test_the_same_history_and_seed_give_the_same_answer(tmp_path):
    opt = told(10)
    first = opt.suggest(3)
    assert [one.point for one in told(10).suggest(3)] == [one.point for one in first]
    assert told(10).ask(3) == [one.point for one in first]
    opt.save(tmp_path / "opt.structgp")
    again = sg.load(tmp_path / "opt.structgp")
    assert again.history == opt.history
    assert again.ask() == first[0].point
    assert repr(again).startswith("Optimiser(a from -5 to 10; b from 0 to 15; 10 runs, 1 pending, best ")


def test_an_optimiser_that_was_saved_goes_on_as_if_it_had_not_been_stopped(tmp_path):
    opt = told(10)
    for value in (8.0, 30.0):
        opt.tell(opt.ask(), value)
    opt.save(tmp_path / "opt.structgp")
    again = sg.load(tmp_path / "opt.structgp")
    assert [one.point for one in again.suggest(2)] == [one.point for one in opt.suggest(2)]


def test_an_optimiser_of_older_files_had_modes_that_nothing_asks_for():
    writer = Writer()
    content = writer.encode(told(3), "it")
    ((_, fields),) = content.items()
    again = Reader(writer.arrays).decode({"Optimiser": {**fields, "modes": {"NoSuchClass": {}}}})
    assert again.history == told(3).history


@pytest.mark.parametrize("often", [40, 10], ids=["from-all", "from-some"])
def test_answers_follow_from_the_runs_however_often_was_asked(often, monkeypatch):
    monkeypatch.setattr(knowledge, "OFTEN", often)  # beyond, parameters are learned from some of the runs
    points = [SPACE.point(place) for place in Optimiser(SPACE)._whole_space().design(15, 3)]
    asked, quiet = Optimiser(SPACE, seed=1), Optimiser(SPACE, seed=1)
    for number, point in enumerate(points):
        for opt in (asked, quiet):
            opt.tell(point, branin(point))
        if number > 6:
            asked.suggest()
        if number == 11:
            asked.recommend(), asked.predict(point)
    first, again, other = asked.suggest(2), asked.suggest(2), quiet.suggest(2)
    assert first == again == other
    np.testing.assert_array_equal(asked._knowledge().modes.models[0], quiet._knowledge().modes.models[0])


def test_pending_points_are_not_asked_for_again():
    opt = told()
    points = opt.ask(4)
    places = np.array([SPACE.place(point) for point in points])
    apart = np.max(np.abs(places[:, None] - places[None, :]), axis=-1)[np.triu_indices(4, 1)]
    assert apart.min() > 1e-3
    assert len(opt.pending) == 4
    opt.tell(points[2], 1.0)
    assert list(opt.pending) == points[:2] + points[3:]
    opt.tell(points[:2], [2.0, 3.0])
    assert len(opt.history) == 11


@pytest.mark.usefixtures("x64")
def test_what_is_believed_is_the_mixture_of_the_model():
    opt = told(12, noise=0.5)
    view, _ = opt._knowledge().view([])
    X = np.random.default_rng(0).uniform(size=(8, 2))
    means, sds = acquire.moments(view.beliefs[0], X)
    for k, member in enumerate(opt.model.members):
        found = member.predict(X)
        np.testing.assert_allclose(means[k], found.mean, rtol=1e-6, atol=1e-7)
        np.testing.assert_allclose(np.asarray(sds[k]) ** 2, found.variance, rtol=1e-5, atol=1e-8)
    _, slopes, _ = acquire.values_and_slopes(view, X, "ei")
    for d in range(2):
        step = np.zeros((1, 2))
        step[0, d] = 1e-5
        up, down = (np.asarray(acquire.values_and_slopes(view, X + side * step, "ei")[0]) for side in (1, -1))
        np.testing.assert_allclose(slopes[:, d], (up - down) / 2e-5, rtol=1e-4, atol=1e-4)


def test_lapack_has_one_thread_where_climbs_go_side_by_side(monkeypatch):
    used = set()

    def watched(*arguments, **options):
        used.update(library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas")
        return minimise_all(*arguments, **options)

    for room in (surrogate, search):
        monkeypatch.setattr(room, "minimise_all", watched)
    with threadpool_limits(2, user_api="blas"):
        told().suggest()
    assert used == {1}


def test_predictions_are_in_the_units_of_the_measurements():
    opt = told(20, noise=0.0)
    run = opt.history[4]
    mean, sd = opt.predict(run.point)
    assert mean == pytest.approx(run.value, abs=0.02 * abs(run.value) + 0.05)
    assert sd < 1.0


@pytest.mark.parametrize("rule", zoo.mostly_full(["pi", "ucb", "thompson"], "thompson"))
def test_other_rules(rule):
    opt = told(8, acquisition=rule)
    place = SPACE.place(opt.ask())
    assert np.all((place >= 0) & (place <= 1))
    assert told(8, acquisition=rule).ask() == opt.pending[0]


def test_known_limits_hold():
    opt = told(8, constraints=["a + b <= 3"])
    for point in opt.ask(3):
        assert point["a"] + point["b"] <= 3 + 1e-6
    assert Optimiser(SPACE, constraints="a >= 2*b").ask()["a"] >= 0


@pytest.mark.full
def test_failures_and_outcomes_are_learned_from():
    space = sg.Space(a=(0, 1), b=(0, 1))

    def run(opt, point):
        if point["a"] > 0.6:
            opt.tell(point, failed=True)
        else:
            opt.tell(point, -point["a"] - point["b"], cost=point["b"])

    opt = Optimiser(space, outcome_constraints={"cost": (None, 0.5)}, seed=0)
    for place in opt._whole_space().design(14, 0):
        run(opt, space.point(place))
    for _ in range(6):
        run(opt, opt.ask())
    last = opt.history[-4:]
    assert all(run.failed or run.point["a"] > 0.3 for run in last)  # the good corner is where both limits are met
    assert opt.best.outcomes["cost"] <= 0.5
    assert opt.best.value < -0.95
    assert 0 < opt.suggest()[0].feasible < 1
    with pytest.raises(ValueError, match="the outcomes with limits are cost; cost is missing"):
        opt.tell({"a": 0.1, "b": 0.1}, 1.0)


@pytest.mark.full
def test_whole_numbers_and_categories():
    space = sg.Space(n=sg.integer(1, 9), kind=["x", "y", "z"])
    f = lambda p: (p["n"] - 7) ** 2 + {"x": 3, "y": 0, "z": 9}[p["kind"]]
    found = sg.minimise(f, space, evaluations=20, seed=0, noise=0.0)
    assert found.x == {"n": 7, "kind": "y"}
    seen = [(run.point["n"], run.point["kind"]) for run in found.history]
    assert len(set(seen)) == len(seen)


def test_stopping():
    found = sg.minimise(branin, SPACE, evaluations=30, stop=sg.Target(100.0))
    assert found.account.stopped == "the target 100 was reached"
    assert len(found.history) < 30
    found = sg.minimise(lambda x: 1.0, SPACE, evaluations=30, stop=[sg.Target(0.0), sg.NoGain(4)], initial=30)
    assert found.account.stopped == "4 measurements brought nothing better"
    assert len(found.history) == 5
    small = sg.SmallEI(0.1, patience=2)
    assert small.reason(
        type("P", (), {"maximise": False, "trace": np.array([1.0, 1.0, 1.0]), "expected_gain": 0.01})
    ).startswith("0.01 is")
    assert small.reason(type("P", (), {"maximise": False, "trace": np.array([1.0, 0.5, 0.2]), "expected_gain": 0.01})) is None


def test_runs_that_break_are_failures():
    def f(x):
        if x[0] < 0.5:
            raise ValueError("no")
        return x[0]

    found = sg.maximise(f, [(0, 1)], evaluations=5, initial=5)
    assert found.value > 0.5
    assert any(run.failed for run in found.history)
    with pytest.raises(
        ValueError, match=r"none of 4 runs gave a value that meets the limits \(4 failed, the last with a value of nan\)"
    ):
        sg.minimise(lambda x: np.nan, [(0, 1)], evaluations=4)


@pytest.mark.full
def test_rows_beyond_the_largest_capacity_are_chosen():
    from structgp.decide.knowledge import kept_rows, some_labels

    z = np.random.default_rng(0).normal(size=5000)
    kept, said = kept_rows(z, 0)
    assert kept.sum() == 480
    assert kept[np.argsort(z)[:240]].all()
    assert said == ["of 5000 rows the best 240 and 240 of the others are looked at"]
    places = np.random.default_rng(0).uniform(size=(3000, 2))
    rows = some_labels(places, np.array([0.2, 0.2]), 512, 0)
    assert len(np.unique(rows)) == 512
    near = np.max(np.abs(places - 0.2), axis=1) < 0.1
    assert np.isin(np.flatnonzero(near), rows).all()
    assert np.array_equal(some_labels(places[:9], places[0], 512, 0), np.arange(9))


def test_beliefs_are_those_of_the_unit_cube():
    opt = told()
    learned = opt._knowledge().learned[0]
    beliefs = beliefs_about(learned.gp, learned.measured)
    np.testing.assert_allclose(beliefs.center, [np.sqrt(2) + 0.5 * np.log(2)] * 2 + [0.0, np.log(1e-4)])
    np.testing.assert_allclose(beliefs.width, [np.sqrt(3)] * 2 + [1.0, 2.5])


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"noise": -1.0}, "noise must be None"),
        ({"acquisition": "best"}, "acquisition must be one of"),
        ({"parameters": "nuts"}, "parameters must be one of"),
        ({"outcome_constraints": {"cost": 5}}, "cost needs a lower and an upper limit"),
        ({"outcome_constraints": {"cost": (3, 2)}}, "cost needs a lower limit below the upper one"),
        ({"region": 0.3}, r"region must be Bounded\(...\) or Adaptive"),
        ({"model": 3}, "a model is a kernel such as Matern52"),
        ({"model": sg.Matern52(), "models": {"a": sg.Matern52()}}, "give model= or models=, not both"),
        ({"initial": 0}, "initial must be a whole number, 1 or more"),
    ],
)
def test_messages(options, text):
    with pytest.raises((ValueError, TypeError), match=text):
        Optimiser(SPACE, **options)


def test_messages_of_tell():
    opt = Optimiser(SPACE)
    x = {"a": 1.0, "b": 2.0}
    for arguments, options, text in [
        ((x, np.nan), {}, "the value of a run must be a finite number, got nan: say tell"),
        ((x,), {}, "a value is needed, or failed=True"),
        ((x, 1.0), {"failed": True}, "a failed run has no value"),
        (([x, x], [1.0]), {}, "2 points came with 1 values"),
        ((x, 1.0), {"cost": 2.0}, "cost is not among them"),
    ]:
        with pytest.raises(ValueError, match=text):
            opt.tell(*arguments, **options)
    with pytest.raises(ValueError, match="two measurements are needed before anything is believed, and there are 0"):
        opt.model


def test_what_is_compiled_early_changes_no_answer():
    """Another thread imagines a history; a loop without it asks for the same points."""
    f = lambda x: (x[0] - 0.3) ** 2
    found = sg.minimise(f, [(0, 1)], evaluations=5)
    opt = Optimiser([(0, 1)])
    for _ in range(5):
        x = opt.ask()
        opt.tell(x, f(x))
    assert [run.point.tolist() for run in opt.history] == [run.point.tolist() for run in found.history]
    assert found.optimiser.pending == ()


@pytest.mark.parametrize(
    ("arguments", "options", "text"),
    [
        ((3, [(0, 1)]), {}, "a function of a point is needed, got 3"),
        ((lambda x: "many", [(0, 1)]), {}, "the function must return a number, got 'many'"),
        ((lambda x: x, [(0, 1), (0, 1)]), {}, "the function must return a number, got array"),
        ((lambda x: (1.0, 2.0), [(0, 1)]), {}, r"the function must return a number, got \(1.0, 2.0\)"),
        ((lambda x: 1.0, [(0, 1)]), {"stop": [0.5]}, r"stop must be Target\(...\), NoGain\(...\), SmallEI\(...\) or a list"),
        ((lambda x: 1.0, sg.Grid(np.arange(3.0))), {"noise": 0.0}, "options are acquisition, model, seed, not noise"),
        ((lambda x: 1 / 0, [(0, 1)]), {}, r"2 failed, the last with ZeroDivisionError: division by zero\)"),
    ],
)
def test_messages_of_minimise(arguments, options, text):
    with pytest.raises((ValueError, TypeError), match=text):
        sg.minimise(*arguments, evaluations=2, **options)


def test_ctrl_c_keeps_the_best_so_far():
    seen = []

    def f(x):
        if len(seen) == 2:
            raise KeyboardInterrupt
        seen.append(x[0])
        return x[0]

    told = []
    found = sg.minimise(f, [(0, 1)], evaluations=9, initial=9, progress=lambda number, best: told.append((number, best)))
    assert found.value == min(seen)
    assert found.account.stopped == "it was interrupted"
    assert told == [(1, seen[0]), (2, min(seen))]
    with pytest.raises(KeyboardInterrupt):
        sg.minimise(f, [(0, 1)], evaluations=9)
