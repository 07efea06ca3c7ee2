"""Plans in seconds: work counted in what bounds it, the rates of a machine, and what is said before a long step."""

import dataclasses
import io
import json
import re
import sys

import numpy as np
import pytest

import structgp as sg
from structgp.engines import machine, plan
from structgp.engines.base import PLACES, Cost, Offer
from structgp.engines.cholesky import Cholesky, cost_of_matrix
from structgp.engines.grid_seen import SeenCells
from structgp.engines.machine import KINDS, Machine, Work
from structgp.engines.plan import Plan, duration, evaluations_of
from structgp.inputs.observations import read_observations
from structgp.learn.account import Progress
from structgp.learn.clock import Deadline
from structgp.learn.evidence import GaussianEvidence, evidence_objective
from structgp.parameters.tree import free_vector
from structgp.process.evidence import density_of

REFERENCE = machine.REFERENCE["cpu"]
SLOW = Machine(1000.0 * REFERENCE.unit, 5.0)
T = np.arange(40.0)
ROWS = np.random.default_rng(0).random((8000, 2))
SIGNS = ROWS[:, 0] > 0.5


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_work_adds_up():
    one, other = Work(products=2e9, calls=3), Work(products=1e9, steps=100)
    assert one + 2 * other == Work(products=4e9, steps=200, calls=3)
    assert REFERENCE.seconds(one + other) == pytest.approx(REFERENCE.seconds(one) + REFERENCE.seconds(other))
    assert all(getattr(REFERENCE.unit, kind) > 0 for kind in KINDS)


def test_all_rates_are_measured():
    found = machine.measured()
    assert all(0 < getattr(found.unit, kind) < 1 for kind in KINDS)
    assert found.compile > 0


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """A cache of its own, and a machine that is measured at once; the list has how often."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    measured = []
    monkeypatch.setattr(machine, "measured", lambda: measured.append(1) or SLOW)
    monkeypatch.setattr(machine, "_load", lambda: 0.1)
    machine.rates_of.cache_clear()
    yield tmp_path / "structgp" / "machine.json", measured
    machine.rates_of.cache_clear()


def again():
    """What another process would find."""
    machine.rates_of.cache_clear()
    return machine.at_hand()


def test_rates_are_kept_for_the_hardware(cache, monkeypatch):
    path, measured = cache
    assert machine.at_hand() == SLOW
    assert again() == SLOW
    assert len(measured) == 1
    assert list(json.loads(path.read_text())) == [machine.hardware()]
    monkeypatch.setattr(machine, "hardware", lambda: "another machine")
    assert again() == SLOW
    assert len(measured) == 2
    assert "another machine" in json.loads(path.read_text())


@pytest.mark.parametrize("content", ["", "{", "[]", '{"HERE": 3}', '{"HERE": {"unit": {"products": 1}}}'])
def test_a_damaged_cache_is_measured_again(cache, content):
    path, measured = cache
    path.parent.mkdir()
    path.write_text(content.replace("HERE", machine.hardware()))
    assert machine.at_hand() == SLOW
    assert again() == SLOW
    assert len(measured) == 1


def test_no_cache_is_no_failure(cache):
    path, measured = cache
    path.parent.write_text("a file where the folder should be")
    assert machine.at_hand() == SLOW
    assert len(measured) == 1


def test_what_a_busy_machine_says_is_kept_until_it_is_calmer(cache, monkeypatch):
    """The same from one process to the next; measured anew where half as many wait for the cores, until few do."""
    path, measured = cache
    for load, times in ((8.0, 1), (7.0, 1), (30.0, 1), (3.0, 2), (2.0, 2), (1.0, 3), (9.0, 3), (0.0, 3)):
        monkeypatch.setattr(machine, "_load", lambda load=load: load)
        assert again() == SLOW
        assert len(measured) == times
    assert json.loads(path.read_text())[machine.hardware()]["load"] == 1.0


def test_a_machine_that_cannot_be_measured_is_the_reference(cache, monkeypatch):
    def fails():
        raise RuntimeError("RESOURCE_EXHAUSTED")

    monkeypatch.setattr(machine, "measured", fails)
    assert machine.at_hand() == machine.reference()
    assert not cache[0].exists()


def test_a_plan_says_how_long_it_takes():
    gp = sg.GP(sg.Matern32(), sg.Gaussian(0.1))
    lines = str(gp.plan(T, "dense")).splitlines()
    estimate = gp.plan(T, "dense").estimate(REFERENCE)
    assert lines[1] == f"{'':<10} {estimate}"
    assert str(estimate).startswith(f"learn ≈ {duration(estimate.learn)} ({estimate.evaluations} evaluations), condition ")
    assert "predict 1,000 places" in lines[1]
    assert "compile ≈" in lines[1]
    assert "memory 38.4 kB" in lines[1]


def test_durations_in_words():
    assert [duration(t) for t in (0.0, 0.0123, 0.25, 12.3, 250, 7200)] == ["1 ms", "12 ms", "0.25 s", "12 s", "4 min", "2 h"]


# model, inputs by size, and two sizes: nothing takes less when there is more of it
GROWING = {
    "dense": (sg.Matern52(), lambda n: np.random.default_rng(0).random((n, 2)), (500, 1000)),
    "markov": (sg.Matern52(), lambda n: np.sort(np.random.default_rng(0).random(n)), (2000, 4000)),
    "kronecker": (sg.SquaredExponential(), lambda n: sg.Grid(np.arange(30.0), np.arange(n / 30)), (3000, 6000)),
    "space-time": (
        sg.SquaredExponential().on(0) * sg.Matern32().on(1),
        lambda n: sg.Grid(np.arange(9.0), T[: n // 9]),
        (90, 180),
    ),
    "toeplitz-grid": (sg.SquaredExponential(), lambda n: sg.Grid(np.arange(5.0), np.arange(n / 5)), (2000, 4000)),
    "toeplitz": (sg.SquaredExponential(), lambda n: np.arange(1.0 * n), (2000, 4000)),
    "features": (sg.Linear(), lambda n: np.random.default_rng(0).random((n, 2)), (5000, 10000)),
}


@pytest.mark.parametrize("structure", GROWING)
def test_more_data_take_longer(structure):
    kernel, inputs, sizes = GROWING[structure]
    few, many = (sg.GP(kernel, sg.Gaussian(0.1)).plan(inputs(n), structure).estimate() for n in sizes)
    assert few.learn < many.learn
    assert few.condition < many.condition
    assert few.predict <= many.predict
    for operation in ("everywhere", "sample", "leave_one_out", "update", "save"):
        assert 0 < getattr(few, operation) <= getattr(many, operation)
    assert few.bytes < many.bytes


@pytest.mark.parametrize(
    ("structure", "kernel"), [("dense", sg.Matern52()), ("markov", sg.Matern52()), ("features", sg.Linear())]
)
def test_sites_that_have_to_be_found_take_longer(structure, kernel):
    labels, values = (sg.GP(kernel, one).plan(T, structure) for one in (sg.Bernoulli(), sg.Gaussian(0.1)))
    of = lambda found: (found.chosen.cost.evaluate, found.chosen.cost.condition)
    for more, less in zip(of(labels), of(values), strict=True):
        assert REFERENCE.seconds(more) > 2 * REFERENCE.seconds(less)
    assert labels.estimate().compile > values.estimate().compile


def test_an_engine_says_where_there_is_a_shorter_way():
    """A factor grows by a row, a grid is looked at as a whole, a chain is drawn along the line; sites are found anew."""
    seconds, plane = REFERENCE.seconds, sg.GP(sg.Matern52(), sg.Gaussian(0.1))
    dense, labels = (gp.plan(ROWS, "dense").chosen.cost for gp in (plane, plane.replace(likelihood=sg.Bernoulli())))
    assert seconds(dense.updating) < seconds(dense.conditioning) / 3
    assert seconds(labels.conditioning) / 2 < seconds(labels.updating) < seconds(labels.conditioning)
    assert seconds(labels.leaving_out(8000)) < seconds(dense.leaving_out(8000)) / 100
    assert seconds(dense.keeping) > seconds(dense.conditioning) / 2  # the factor is not in the file
    grid = sg.GP(sg.SquaredExponential([0.1, 0.1]), sg.Gaussian(0.1)).plan(sg.Grid(np.arange(80.0), np.arange(90.0)))
    assert seconds(grid.chosen.cost.prediction_everywhere(7200)) < seconds(grid.chosen.cost.prediction(7200)) / 10
    chain = plane.plan(np.arange(50_000.0)).chosen.cost
    assert chain.drawing(50_000) == chain.drawing(10)
    assert chain.drawing(50_000).eigen == 0 < dense.drawing(8000).eigen
    found = plane.plan(ROWS, "dense")
    assert dataclasses.replace(found, members=6).estimate(REFERENCE).sample > 4 * found.estimate(REFERENCE).sample


def test_learning_through_inducing_inputs_goes_in_stages():
    """So many evaluations at most, however many inputs move, after a look at some rows exactly; labels climb all together."""
    plane = sg.GP(sg.Matern52([0.1, 0.1]), sg.Gaussian(0.1))
    many, few = (plane.plan(ROWS, approximate=sg.Inducing(M)) for M in (50, 2))
    assert many.evaluations == 145
    assert few.evaluations == evaluations_of(8, 0)
    assert many.to_begin.factors > 0
    labels = plane.replace(likelihood=sg.Bernoulli()).plan(ROWS, approximate=sg.Inducing(200), y=SIGNS)
    assert labels.evaluations == 500
    assert labels.engine.method == "fitc"
    assert REFERENCE.seconds(labels.chosen.cost.evaluation) > 2 * REFERENCE.seconds(many.chosen.cost.evaluation)


def test_low_noise_on_a_grid_with_holes_takes_longer():
    grid = sg.Grid(np.arange(60.0), np.arange(60.0))
    y = np.where(np.arange(3600) % 5, np.sin(grid.points.sum(axis=1)), np.nan)
    kernel = sg.SquaredExponential(3.0)
    known = np.linspace(0.0, 0.1, 3600)  # unequal: not to be taken out one by one
    plans = [
        sg.GP(kernel, sg.Gaussian(noise)).plan(grid, "kronecker", y=y, noise=known) for noise in (0.5, 0.1, 1e-3, 1e-12, 0.0)
    ]
    seconds = [REFERENCE.seconds(found.chosen.cost.evaluation) for found in plans]
    assert seconds[0] == seconds[1] < seconds[2] < seconds[3] == seconds[4]
    assert {found.engine.name for found in plans} == {"Krylov"}


def test_an_engine_that_does_not_say_what_bounds_it():
    cost = Cost(flops=1e9, bytes=1e6)
    assert cost.evaluation.products == 1e9
    assert REFERENCE.seconds(cost.conditioning) >= REFERENCE.seconds(cost.evaluation)
    assert REFERENCE.seconds(cost.prediction(10 * PLACES)) > REFERENCE.seconds(cost.prediction())


def test_evaluations_grow_with_what_is_learned():
    gp = sg.GP(sg.Matern52(), sg.Gaussian(0.1))
    assert gp.plan(T).evaluations == evaluations_of(3, 3)  # few data, so several climbs
    assert gp.plan(np.arange(1000.0)).evaluations == evaluations_of(3, 0)
    assert gp.freeze("kernel").plan(T).evaluations < gp.plan(T).evaluations
    assert gp.freeze("kernel", "likelihood").plan(T).evaluations == 1


def test_what_else_learning_looks_at_is_counted():
    """Rows that tell outliers apart, some cells of a grid with holes, and draws of the parameters."""
    plain, long = sg.GP(sg.Matern52(), sg.Gaussian(0.1)), np.arange(400.0)
    robust = plain.replace(likelihood=sg.StudentT(4.0, 0.3)).plan(long)
    assert robust.evaluations == evaluations_of(4, 1)  # one climb more, without the rows that are not expected
    assert robust.to_begin.factors > 0 == plain.plan(long).to_begin.factors
    assert robust.estimate(REFERENCE).learn > dataclasses.replace(robust, to_begin=Work()).estimate(REFERENCE).learn
    side = np.linspace(0, 1, 70)
    y = np.where(np.random.default_rng(0).random(4900) < 0.2, np.nan, 1.0)
    holes = sg.GP(sg.SquaredExponential([0.1, 0.1]), sg.Gaussian(0.1)).plan(sg.Grid(side, side), y=y, structure="kronecker")
    assert holes.chosen.grain
    assert holes.to_begin.factors > 0
    few = [plain.plan(T, parameters=sg.Averaging(method)).evaluations for method in ("laplace", "importance", "hmc")]
    assert few[0] == evaluations_of(3, 3) + 6
    assert few == sorted(set(few))


def test_algorithms_are_ranked_alike_on_every_machine(monkeypatch):
    """By the reference: what was measured here, or went wrong, does not change which one runs."""
    gp, X = sg.GP(sg.Matern52(), sg.Gaussian(0.1)), np.random.default_rng(0).random(5000)
    before = [offer.engine.name for offer in gp.plan(X).offers]
    monkeypatch.setattr(plan, "at_hand", lambda: Machine(Work(steps=1.0), 1.0))
    assert [offer.engine.name for offer in gp.plan(X).offers] == before
    assert before[0] == "Kalman"


def test_a_long_step_says_so_beforehand(monkeypatch):
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    monkeypatch.setattr(plan, "at_hand", lambda: SLOW)
    large = Plan((Offer(Cholesky(), cost_of_matrix(8000, 2)),))
    for step, count in (("learning", 20), ("conditioning", 1), ("prediction", 1000)):
        large.announce(step, count)
        assert f"{step} takes about" in terminal.getvalue().splitlines()[-1]
        assert terminal.getvalue().endswith("by the Cholesky engine\n")
    terminal.truncate(0)
    large.announce("learning", 20, wanted=False)
    large.announce("learning", 20, wanted=lambda number, best: None)
    Plan((Offer(Cholesky(), cost_of_matrix(50, 2)),)).announce("learning", 20)
    assert terminal.getvalue().strip("\0") == ""


def test_a_fit_says_so_on_a_terminal(monkeypatch):
    monkeypatch.setattr(plan, "at_hand", lambda: SLOW)
    monkeypatch.setattr(plan, "LONG", 1e-6)
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    gp = sg.GP(sg.Matern32(), sg.Gaussian(0.1))
    gp.fit(T, np.sin(T), restarts=0, max_evaluations=2).predict(T[:3] + 0.5)
    said = terminal.getvalue()
    assert "learning takes about" in said
    assert "prediction takes about" in said
    assert said.index("learning takes about") < said.index("\rlearning: evaluation 1")


PLANE = sg.GP(sg.Matern52([0.1, 0.1]), sg.Gaussian(0.1))
TAKEN = r"learns in about [\d.]+ (ms|s|min|h)"
# model, inputs, values, the structure that is asked for, and what is named instead, the quickest first
SLOWLY = {
    "scattered rows": (PLANE, ROWS, ROWS[:, 0], "auto", ["structure='neighbours:30'", "structure='inducing:500'"]),
    "a sum of lines": (
        sg.GP(sg.Matern52(0.1).on(0) + sg.Matern52(0.1).on(1), sg.Gaussian(0.1)),
        ROWS,
        ROWS[:, 0],
        "auto",
        ["structure='additive'", "structure='inducing:500'"],
    ),
    "labels": (PLANE.replace(likelihood=sg.Bernoulli()), ROWS, SIGNS, "auto", ["structure='inducing:500'"]),
    "outliers": (PLANE.replace(likelihood=sg.StudentT(4.0, 0.1)), ROWS, ROWS[:, 0], "auto", ["structure='inducing:500'"]),
    "a grid with holes": (
        sg.GP(sg.Matern52(0.1), sg.Gaussian(0.1)),
        sg.Grid(np.linspace(0, 1, 80), np.linspace(0, 1, 100)),
        np.where(np.arange(8000) % 7, 1.0, np.nan),
        "auto",
        ["structure='neighbours:30'", "structure='inducing:500'"],
    ),
    "a line, by name": (
        sg.GP(sg.SquaredExponential(0.1), sg.Gaussian(0.1)),
        np.sort(ROWS[:, 0]),
        ROWS[:, 1],
        "dense",
        ["structure='state-space'", "structure='inducing:500'"],
    ),
}


@pytest.mark.parametrize("case", SLOWLY)
def test_where_learning_takes_long_a_plan_says_what_would_be_quicker(case, monkeypatch):
    """One line with what would really be accepted; and a warning, unless learning has to end before that."""
    monkeypatch.setattr(plan, "at_hand", lambda: REFERENCE)
    gp, X, y, structure, words = SLOWLY[case]
    monkeypatch.setattr(plan, "SLOW", 60.0)
    found = gp.plan(X, structure, y=y)
    line = "; ".join(f"{re.escape(one)} {TAKEN}" for one in words)
    assert re.fullmatch(f" {{11}}instead: {line}", str(found).splitlines()[2])
    for one in words:
        assert eval(f"gp.plan(X, y=y, **dict({one}))", {"sg": sg, "gp": gp, "X": X, "y": y}).chosen.cost
    end = r"fit\(…, seconds=600\) keeps the best of ten minutes"
    with pytest.warns(UserWarning, match=rf"^learning takes about .* by the Cholesky engine: {line}; {end}$"):
        assert found.warn_if_slow()
    assert not found.warn_if_slow(left=59.0)
    assert "instead" not in str(gp.plan(X[:500] if isinstance(X, np.ndarray) else X.axes[0], structure))
    assert not found.run_by(found.engine).remedies  # of what was carried out nothing is kept


def test_nothing_quicker_is_looked_for_where_nothing_is_learned(monkeypatch):
    monkeypatch.setattr(plan, "SLOW", 1e-9)
    monkeypatch.setattr("structgp.process.planned.remedies_for", lambda *_: pytest.fail("this takes longer than conditioning"))
    gp = sg.GP(sg.Matern32(), sg.Gaussian(0.1))
    gp.condition(T, np.sin(T))
    density_of(gp, T, np.sin(T))


def test_a_long_fit_says_so_without_a_terminal(monkeypatch):
    monkeypatch.setattr(plan, "SLOW", 1e-9)
    gp = sg.GP(sg.Matern32(), sg.Gaussian(0.1))
    with pytest.warns(UserWarning, match=r"^learning takes about .* by the Kalman engine: .*fit\(…, seconds=600\)") as said:
        gp.fit(T, np.sin(T), restarts=0, max_evaluations=2)
    assert [one.filename for one in said] == [__file__]


def clock(*times):
    """A clock that shows these times, one after the other."""
    times = iter(times)
    return lambda: next(times)


def test_progress_tells_what_is_left(monkeypatch):
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    with Progress(None, expected=11, clock=clock(0.0, 0.0, 4.0, 80.0)) as report:
        report(-3.0)
        assert "log evidence -3, about 40 s left" in terminal.getvalue()
        report(-2.0)
        assert "evaluation 2, log evidence -2, about 6 min left" in terminal.getvalue()
    assert terminal.getvalue().endswith(" \r")


def test_progress_knows_the_deadline(monkeypatch):
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    deadline = Deadline(25.0, clock=lambda: 5.0)
    with Progress(True, expected=3, deadline=deadline, clock=clock(0.0, 0.0, 60.0, 61.0, 62.0)) as report:
        for _ in range(3):
            report(1.0)
    assert terminal.getvalue().count("about 20 s left") == 3


def test_cells_that_were_not_seen_are_not_learned_from(x64):
    """The evidence of the few that were is that of all, by a smaller matrix."""
    grid = sg.Grid(np.linspace(0, 3, 60), np.linspace(0, 2, 50))
    y = np.where(np.random.default_rng(0).random(3000) < 0.01, np.sin(grid.points.sum(axis=1)), np.nan)
    gp = sg.GP(sg.SquaredExponential([0.7, 1.1]), sg.Gaussian(0.1))
    data = read_observations(gp.likelihood, y, None, "infer", grid)
    engine = SeenCells().tuned(gp, grid, data)
    theta = free_vector(gp)
    value, gradient = evidence_objective(gp, grid, data, engine)(theta)
    whole, of_whole = GaussianEvidence(gp, grid, data, engine)(theta)
    assert isinstance(engine.reduced(grid, data)[0], Cholesky)
    assert len(engine.reduced(grid, data)[1]) == np.sum(data.seen)
    assert value == pytest.approx(float(whole), rel=1e-10)
    np.testing.assert_allclose(gradient, of_whole, rtol=1e-7)


def test_a_plan_of_an_older_file_has_an_estimate():
    cost = dataclasses.replace(cost_of_matrix(10, 1), evaluate=Work(), condition=Work(), predict=Work())
    assert Plan((Offer(Cholesky(), cost),)).estimate().learn > 0
