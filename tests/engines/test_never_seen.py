"""Grids of which some cells are never seen, whatever the other coordinates: land on a map of the sea, at any time."""

import jax
import numpy as np
import pytest

import structgp as sg
from structgp.engines import base, grid_holes
from structgp.engines.grid_holes import EverSeen, Krylov, ever_seen
from structgp.inputs.observations import read_observations
from structgp.learn.evidence import evidence_objective
from structgp.parameters.tree import free_vector

RNG = np.random.default_rng(4)
GRID = sg.Grid(np.arange(6.0), np.arange(5.0), np.arange(12.0))
LAND = np.zeros((6, 5), bool)
LAND[:3, :3] = LAND[5] = True
SEEN = ~LAND[:, :, None] & (RNG.random(GRID.shape) > 0.1)
Y = np.where(SEEN, np.sin(np.asarray(GRID.points).sum(axis=1) / 3).reshape(GRID.shape), np.nan)
KERNEL = sg.SquaredExponential([2.0, 1.5, 4.0])
GP = sg.GP(KERNEL, likelihood=sg.Gaussian(noise=0.01), mean=sg.polynomial(0))


@pytest.fixture
def merged(monkeypatch):
    """Whatever the grid, what is never seen is left out."""
    monkeypatch.setattr(grid_holes, "WHOLE", 100)
    monkeypatch.setattr(base, "MOST_HOLES", 0)
    fitted = GP.condition(GRID, Y, missing="infer", structure="kronecker")
    assert fitted.plan.engine.ever_seen == EverSeen((0, 1), int((~LAND).sum()))
    return fitted


def test_the_same_as_by_the_whole_matrix(merged):
    dense = GP.condition(GRID, Y, missing="infer", structure="dense")
    np.testing.assert_allclose(merged.log_evidence, dense.log_evidence, rtol=1e-9)
    new = RNG.uniform(0, 5, (9, 3))
    other = sg.Grid(np.linspace(0, 5, 7), np.linspace(0, 4, 6), np.linspace(0, 11, 8))
    for places in (new, other):
        found, expected = merged.predict(places), dense.predict(places)
        np.testing.assert_allclose(found.mean, expected.mean, atol=1e-6)
        np.testing.assert_allclose(found.variance, expected.variance, rtol=1e-5, atol=1e-7)
    for found, expected in zip(merged.leave_one_out(), dense.leave_one_out(), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    draws = merged.sample(other, n=400, seed=0)
    spread = dense.predict(other).variance.reshape(draws.shape[1:])
    assert np.abs(draws.var(axis=0) / spread - 1).mean() < 0.15  # √(2/400) = 0.07 of each, and some are correlated


def test_the_same_gradient(merged):
    data = read_observations(GP.likelihood, Y, None, "infer", GRID)
    theta = free_vector(GP)
    with jax.enable_x64(True):
        looks = [evidence_objective(GP, GRID, data, engine)(theta) for engine in (merged.plan.engine, Krylov())]
    np.testing.assert_allclose(looks[0][0], looks[1][0], rtol=1e-9)
    np.testing.assert_allclose(looks[0][1], looks[1][1], rtol=1e-6)


def test_files(merged, tmp_path):
    merged.save(tmp_path / "sea.structgp")
    again = sg.load(tmp_path / "sea.structgp")
    np.testing.assert_array_equal(again.predict(GRID).mean, merged.predict(GRID).mean)


def test_what_is_left_out():
    """Only what is never seen; nothing of holes that are scattered."""
    of = lambda y: ever_seen(KERNEL, GRID, read_observations(GP.likelihood, y, None, "infer", GRID))
    assert of(Y) == EverSeen((0, 1), 16)
    scattered = np.where(RNG.random(GRID.shape) > 0.2, 1.0, np.nan)
    assert of(scattered) is None
    late = np.where(np.arange(12) < 4, np.nan, np.ones(GRID.shape))
    assert of(late) == EverSeen((2,), 8)


def test_the_plan_says_so():
    big = sg.Grid(np.arange(12.0), np.arange(10.0), np.arange(30.0))
    y = np.where((np.arange(12) < 6)[:, None, None] & (np.arange(10) < 5)[:, None], np.nan, np.ones(big.shape))
    y[7, 7, 7] = np.nan
    plan = GP.plan(big, y=y)
    assert "90 places that were ever seen by 30; evidence with a standard error" in str(plan)
