"""Rows in a few sizes: one row more is the same program, and what fills up changes nothing."""

import contextlib

import jax.monitoring
import numpy as np
import pytest

import structgp as sg
import zoo
from structgp.inputs import rows

RNG = np.random.default_rng(3)
X = RNG.uniform(0, 5, (40, 2))
Y = np.sin(X[:, 0]) + 0.1 * RNG.standard_normal(40)
COMPILED = "/jax/core/compile/backend_compile_duration"


@contextlib.contextmanager
def programs():
    """A list that grows with every program that is compiled or fetched from the cache on disk."""
    found = []
    listen = lambda event, seconds, **_: found.append(event) if event == COMPILED else None
    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        yield found
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)


def test_a_first_look_takes_few_programs():
    """What is decided or begun on the way takes none of its own, or one for all of it: users wait for each."""
    x, y = X[:37, 0], Y[:37]
    with programs() as compiled:
        sg.GP(sg.Matern32(0.7) * sg.Cosine(1.3) + sg.White(0.2), sg.Gaussian(0.1)).condition(x, y)
    assert len(compiled) == 1
    with programs() as compiled:
        stream = sg.ChangePoints(sg.NormalSegment(), 0.05, hypotheses=39).stream().update(y)
        forecast = stream.predict()
    assert len(compiled) == 3  # to begin, to follow, to look ahead
    with programs() as compiled:
        forecast.mean, forecast.variance, forecast.log_prob(0.3), forecast.interval(0.9)
    assert len(compiled) == 2


CASES = {
    "dense": (X, Y, sg.GP(sg.Matern52(1.0, sg.fixed(1.0)), sg.Gaussian(0.1))),
    "line": (X[:, 0], Y, sg.GP(sg.Matern52(1.0, sg.fixed(1.0)), sg.Gaussian(sg.fixed(0.1)))),
    "labels": (X, (Y > 0).astype(float), sg.GP(sg.Matern52(1.0, sg.fixed(1.0)), sg.Bernoulli())),
}


@pytest.mark.parametrize("case", zoo.mostly_full(CASES, "line", "labels"))
def test_one_row_more_compiles_nothing(case):
    x, y, gp = CASES[case]
    ask = lambda fitted: (fitted.predict(x[:3]).observed, fitted.leave_one_out())
    ask(gp.fit(x[:-1], y[:-1], restarts=0, max_evaluations=3))
    with programs() as compiled:
        ask(gp.fit(x, y, restarts=0, max_evaluations=3))
    assert not compiled


def test_updates_compile_when_the_room_is_used_up_only():
    gp = CASES["dense"][2]
    fitted = gp.condition(X[:20], Y[:20], structure="dense").update(X[20:21], Y[20:21])
    with programs() as compiled:
        for row in range(21, 31):
            fitted = fitted.update(X[row : row + 1], Y[row : row + 1])
    assert not compiled
    fitted = fitted.update(X[31:], Y[31:])  # beyond the room for 32
    whole = gp.condition(X, Y, structure="dense")
    np.testing.assert_allclose(fitted.log_evidence, whole.log_evidence, rtol=1e-10)
    ours, theirs = fitted.predict(X[:4] + 0.1), whole.predict(X[:4] + 0.1)
    np.testing.assert_allclose(ours.mean, theirs.mean, rtol=1e-9)
    np.testing.assert_allclose(ours.variance, theirs.variance, rtol=1e-8)


@pytest.mark.parametrize(
    ("structure", "likelihood"),
    [
        ("dense", sg.Gaussian(0.1)),
        ("markov", sg.Bernoulli()),
        pytest.param("markov", sg.Gaussian(0.1), marks=pytest.mark.full),
        pytest.param("dense", sg.Bernoulli(), marks=pytest.mark.full),
    ],
)
def test_what_fills_up_changes_nothing(monkeypatch, structure, likelihood):
    y = Y if isinstance(likelihood, sg.Gaussian) else (Y > 0).astype(float)
    condition = lambda: sg.GP(sg.Matern32(1.0), likelihood, 0.2).condition(X[:, 0], y, structure=structure)
    ours = condition()
    monkeypatch.setattr(rows, "LARGEST", 0)
    plain = condition()
    np.testing.assert_allclose(ours.log_evidence, plain.log_evidence, rtol=1e-11)
    for a, b in zip(ours.leave_one_out(), plain.leave_one_out(), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-7)
    np.testing.assert_allclose(ours.predict([0.3, 7.0]).mean, plain.predict([0.3, 7.0]).mean, rtol=1e-8)
    np.testing.assert_allclose(ours.degrees_of_freedom, plain.degrees_of_freedom, rtol=1e-8)
    if structure == "markov":
        np.testing.assert_allclose(ours.smoothed().variance, plain.smoothed().variance, rtol=1e-9)
        np.testing.assert_allclose(ours.lag_one(), plain.lag_one(), rtol=1e-7)


def test_sizes_are_few_and_large_enough():
    sizes = [rows.size_for(count) for count in range(1, rows.LARGEST + 1)]
    assert len(set(sizes)) < 32
    assert {rows.size_for(count) for count in range(180, 193)} == {192}
    assert all(count <= size <= max(16, 2 * count) for count, size in enumerate(sizes, 1))


def test_updates_keep_the_layout_of_a_grid():
    grid = sg.Grid(np.arange(4.0), np.arange(5.0))
    y = RNG.standard_normal(20)
    gp = sg.GP(sg.Matern32(1.0).on(0) * sg.Matern32(2.0).on(1), sg.Gaussian(0.1))
    fitted = gp.condition(sg.Grid(*grid.axes, cells=np.arange(15)), y[:15])
    more = fitted.update(grid.points[15:], y[15:])
    assert isinstance(more.inputs, sg.Grid)
    np.testing.assert_allclose(more.log_evidence, gp.log_evidence(grid, y), rtol=1e-9)
    beside = fitted.update([[10.5, 17.3], [11.2, 3.3], [17.7, 8.1], [20.1, 30.5]], [0.0, 1.0, 2.0, 3.0])
    assert isinstance(beside.inputs, sg.Points)
