"""Grids through the door: every answer is that of the dense engine, in the caller's order and shape."""

import functools

import jax
import numpy as np
import pytest

import structgp as sg
import zoo
from structgp.engines import base, grid_holes, grid_seen
from structgp.engines.eigen import Eigen
from structgp.engines.grid_holes import Krylov
from structgp.engines.grid_seen import SeenCells
from structgp.learn import initialise
from structgp.learn.evidence import evidence_objective
from structgp.parameters.tree import free_vector
from structgp.structure.dense import covariance
from structgp.structure.kronecker import kronecker

RNG = np.random.default_rng(11)
AXES = (np.array([0.0, 1.1]), np.array([0.3, 0.9, 2.0]), np.array([-1.0, -0.2, 0.1, 1.4]))
GRID = sg.Grid(*AXES)
N = len(GRID)
Y = np.sin(2 * GRID.points.sum(axis=1)) + 0.1 * RNG.standard_normal(N)
ORDER = RNG.permutation(N)
XS = RNG.uniform(-1.0, 2.0, (5, 3))
FINER = sg.Grid(np.linspace(0.0, 1.0, 5), np.linspace(0.0, 2.0, 6), np.linspace(-1.0, 1.0, 7))  # more cells than few
NOISE = np.linspace(0.0, 0.4, N)
HOLES = np.isin(np.arange(N), [0, 5, 6, 13, 23])
PRODUCT = sg.Matern32(0.7, 1.3).on(2) * sg.Matern52([1.0, 0.8]).on(1, 0)

SMOOTH = sg.SquaredExponential([0.7, 1.1, 0.9], 1.3)

# name: (kernel, mean, inputs, y, known noise)
CASES = {
    "complete": (SMOOTH, None, GRID, Y, None),
    "in any order": (PRODUCT, None, sg.Grid(*AXES, cells=ORDER), Y[ORDER], None),
    "axes that belong together": (2.0 * PRODUCT, sg.polynomial(1), GRID, Y, None),
    "holes": (PRODUCT, sg.polynomial(1), sg.Grid(*AXES, cells=ORDER[:19]), Y[ORDER[:19]], None),
    "missing values": (SMOOTH, sg.ConstantMean(0.3), GRID, np.where(HOLES, np.nan, Y), None),
    "missing values, unequal noise": (SMOOTH, sg.ConstantMean(0.3), GRID, np.where(HOLES, np.nan, Y), NOISE),
    "two targets": (SMOOTH, None, GRID, np.stack([Y, Y**2], axis=1), None),
}


@functools.cache
def both(name):
    kernel, mean, inputs, y, noise = CASES[name]
    gp = sg.GP(kernel, sg.Gaussian(0.15), mean)
    options = {"noise": noise, "missing": "infer"}
    return [gp.condition(inputs, y, structure=structure, **options) for structure in ("kronecker", "dense")]


@pytest.mark.parametrize("name", zoo.mostly_full(CASES, "complete", "holes", "missing values, unequal noise"))
def test_everything_is_that_of_the_dense_engine(name):
    ours, dense = both(name)
    assert ours.plan.engine.name == ("Krylov" if name == "missing values, unequal noise" else "Eigen")
    assert ours.plan.offers[0].quality == "exact"
    assert ours.evidence_error == 0.0
    np.testing.assert_allclose(ours.log_evidence, dense.log_evidence, rtol=1e-11)
    for places in (XS, FINER):
        a, b = ours.predict(places), dense.predict(places)
        np.testing.assert_allclose(a.mean, b.mean, rtol=1e-9, atol=1e-10)
        np.testing.assert_allclose(a.variance, b.variance, rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(
        ours.predict(XS, covariance=True).covariance, dense.predict(XS, covariance=True).covariance, rtol=1e-8, atol=1e-9
    )
    np.testing.assert_allclose(ours.leave_one_out().mean, dense.leave_one_out().mean, rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(ours.degrees_of_freedom, dense.degrees_of_freedom, rtol=1e-9)


@pytest.mark.parametrize(
    "name", zoo.mostly_full(["complete", "holes", "missing values, unequal noise"], "holes", "missing values, unequal noise")
)
def test_gradient_of_the_evidence(name):
    """In all parameters, those of the mean and the noise included."""
    value = [evidence_objective(one.gp, one.inputs, one.data, one.plan.engine)(free_vector(one.gp)) for one in both(name)]
    np.testing.assert_allclose(value[0][0], value[1][0], rtol=1e-11)
    np.testing.assert_allclose(value[0][1], value[1][1], rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("name", zoo.mostly_full(["complete", "holes"], "complete"))
def test_draws_on_a_grid(name):
    ours, dense = both(name)
    draws, p = ours.sample(FINER, n=1500, seed=1), dense.predict(FINER)
    assert np.all(np.abs(draws.mean(axis=0) - p.mean) < 5 * p.sd / np.sqrt(1500))
    np.testing.assert_allclose(draws.var(axis=0), p.variance, rtol=5 * np.sqrt(2 / 1500))
    some = draws[:, [0, 1, 50]]
    cov = dense.predict(FINER.points[[0, 1, 50]], covariance=True).covariance
    np.testing.assert_allclose(np.cov(some.T), cov, atol=5 * np.sqrt(2 / 1500) * np.diagonal(cov).max())


def test_draws_from_the_prior():
    draws = sg.GP(PRODUCT).sample(sg.Grid(*AXES, cells=ORDER[:19]), n=1500, seed=1)
    with jax.enable_x64(True):
        K = np.asarray(covariance(PRODUCT, GRID.points[ORDER[:19]], GRID.points[ORDER[:19]]))
    np.testing.assert_allclose(draws.T @ draws / 1500, K, atol=5 * 1.3 * np.sqrt(2 / 1500))


def test_arrays_over_a_grid_come_back_as_arrays():
    shape = tuple(map(len, AXES))
    gp = sg.GP(SMOOTH, sg.Gaussian(0.15))
    fitted = gp.condition(GRID, Y.reshape(shape), noise=np.zeros(shape))
    p = fitted.predict(FINER)
    assert p.mean.shape == p.variance.shape == FINER.shape
    np.testing.assert_allclose(np.ravel(p.mean), both("complete")[0].predict(FINER).mean, rtol=1e-12)
    assert fitted.sample(FINER, n=2, seed=0).shape == (2, *FINER.shape)
    assert fitted.predict(XS).mean.shape == (5,)


class Labelled:
    """What xarray's arrays look like from outside."""

    def __init__(self, values):
        self.values, self.dims, self.coords = values, ("a", "b", "c"), {"a": AXES[0], "c": AXES[2]}
        self.shape = values.shape

    def __array__(self, dtype=None, copy=None):
        return self.values


def test_doors_of_the_grid():
    labelled = sg.Grid.from_array(Labelled(Y.reshape(2, 3, 4)))
    np.testing.assert_array_equal(labelled.axes[0], AXES[0])
    np.testing.assert_array_equal(labelled.axes[1], np.arange(3))
    np.testing.assert_array_equal(sg.Grid.from_array(Y.reshape(2, 3, 4), *AXES).points, GRID.points)
    with pytest.raises(ValueError, match=r"shape \(2, 3\) needs axes of these lengths"):
        sg.Grid.from_array(np.zeros((2, 3)), [0.0, 1.0], [0.0, 1.0])
    read = sg.Grid.from_points(GRID.points[ORDER])
    np.testing.assert_array_equal(read.points, GRID.points[ORDER])
    assert read.complete


WHY = {
    "the inputs are not a grid": (sg.SquaredExponential(), np.zeros((3, 2))),
    "Matern52 of the joint distance does not factor": (sg.Matern52(1.0), GRID),
    "CholeskyMetric mixes the columns": (sg.SquaredExponential(sg.CholeskyMetric([1.2, 0.6, 1.0], [0.4, 0.1, 0.2])), GRID),
    "a sum over several columns does not factor": (sg.Matern52().on(0) * sg.Matern52().on(1) + sg.Matern32().on(2), GRID),
    "Linear does not factor": (sg.Linear(), GRID),
}


@pytest.mark.parametrize("reason", WHY)
def test_what_does_not_factor_says_why(reason):
    kernel, inputs = WHY[reason]
    with pytest.raises(ValueError, match=reason):
        sg.GP(kernel).plan(inputs, structure="kronecker")


FACTORS = {
    "scaled": 2.0 * sg.SquaredExponential(0.8),
    "sinc": sg.Sinc([0.4, 0.5, 0.3], 1.2),
    "periodic": sg.Periodic([1.3, 2.2, 1.7], 0.8, 1.2),
    "white": sg.White(0.7),
    "an axis that does not matter": sg.Matern52(0.8, 1.3).on(0) * sg.Constant(2.0) * sg.Matern12().on(2),
    "a sum on one axis": (sg.Matern52().on(1) + 0.5 * sg.Linear().on(1)) * sg.Matern32([1.0, 2.0]).on(0, 2),
    "twice the same axis": sg.Matern52().on(0) * sg.Periodic().on(0) * sg.SquaredExponential([1.0, 2.0]).on(1, 2),
}


@pytest.mark.parametrize("name", FACTORS)
def test_factors_make_up_the_kernel(name):
    with jax.enable_x64(True):
        form = kronecker(FACTORS[name], GRID)
        columns = form.from_grid(form.to_grid(np.eye(N)))
        np.testing.assert_array_equal(columns, np.eye(N))
        K = functools.reduce(np.kron, map(np.asarray, form.matrices()))
        half = np.asarray(form.from_grid(K.reshape(N, *form.sizes)))
        turned = form.from_grid(half.reshape(N, *form.sizes))
        expected = jax.jit(covariance)(FACTORS[name], GRID.points, GRID.points)
        np.testing.assert_allclose(turned, expected, rtol=1e-12, atol=1e-14)


def test_the_plan_knows_what_the_data_ask_for(monkeypatch):
    """Holes in the data change the algorithm; few values on a large grid are taken by themselves."""
    large = sg.Grid(np.linspace(0, 1, 60), np.linspace(0, 1, 50))
    gp = sg.GP(sg.SquaredExponential([0.3, 0.2]), sg.Gaussian(0.1))
    assert "else Krylov" in str(gp.plan(large))
    y = np.full(3000, np.nan)
    y[::100] = np.cos(large.points[::100].sum(axis=1))
    few = gp.condition(large, y, missing="infer")
    assert isinstance(few.plan.engine, SeenCells)
    assert "of the 30 cells that were seen" in str(few.plan)
    alone = gp.condition(large.points[::100], y[::100], structure="dense")
    np.testing.assert_allclose(few.log_evidence, alone.log_evidence, rtol=1e-12)
    np.testing.assert_allclose(few.predict(XS[:, :2]).variance, alone.predict(XS[:, :2]).variance, rtol=1e-9)
    assert np.isnan(few.leave_one_out().mean).sum() == 2970
    grown, together = (one.update([[0.5, 0.5]], [0.3]) for one in (few, alone))
    np.testing.assert_allclose(grown.log_evidence, together.log_evidence, rtol=1e-12)
    few_holes = gp.plan(sg.Grid(*large.axes, cells=np.arange(2900)))
    assert few_holes.engine == Eigen(100)
    assert "cells without a value are taken out one by one (100)" in str(few_holes)
    holes = gp.plan(large, y=np.where(np.arange(3000) % 30, 0.3, np.nan), noise=np.linspace(0, 1, 3000))
    assert isinstance(holes.engine, Krylov)
    assert "to 1e-08" in str(holes)
    assert "standard error" in str(holes)


@pytest.mark.full
def test_a_large_grid_with_holes_reports_its_errors(monkeypatch):
    """More cells than the block holds: means to the tolerance, evidence and quick variances within what is reported."""
    monkeypatch.setattr(grid_holes, "WHOLE", 100)
    monkeypatch.setattr(base, "MOST_HOLES", 0)
    monkeypatch.setattr(grid_seen, "FEW", 10)
    monkeypatch.setattr(grid_holes, "LEARNING", grid_holes.LEARNING._replace(modes=40))
    monkeypatch.setattr(grid_holes, "FINAL", {"modes": 60, "probes": 8})
    grid = sg.Grid(np.linspace(0, 1, 24), np.linspace(0, 1, 20))
    rng = np.random.default_rng(2)
    y = np.where(rng.uniform(size=480) < 0.25, np.nan, np.sin(5 * grid.points.sum(axis=1)) + 0.3 * rng.standard_normal(480))
    gp = sg.GP(sg.ProductMatern([0.3, 0.2], nu=1.5), sg.Gaussian(0.1))
    dense = gp.condition(grid, y, missing="infer", structure="dense")
    ours = gp.condition(grid, y, missing="infer", structure="kronecker")
    assert 0 < ours.evidence_error < 3
    assert abs(ours.log_evidence - dense.log_evidence) < 4 * ours.evidence_error
    assert "standard error" in ours.summary()
    assert "variances      of many places at once are within" in ours.summary()
    few, many, exact = ours.predict(grid.points[:150]), ours.predict(grid), dense.predict(grid)
    np.testing.assert_allclose(few.variance, exact.variance[:150], rtol=1e-7)
    np.testing.assert_allclose(many.mean, exact.mean, atol=1e-7)
    error = np.abs(many.variance / exact.variance - 1)
    assert np.median(error) < float(ours.conditional.variance_error) < 0.2
    np.testing.assert_allclose(ours.predict(grid.points).variance, many.variance, rtol=1e-8)
    value = [evidence_objective(gp, one.inputs, one.data, one.plan.engine)(free_vector(gp)) for one in (ours, dense)]
    np.testing.assert_allclose(value[0][1], value[1][1], atol=3.0)  # sizes of 20 to 100; one standard error is about 1


@pytest.mark.full
def test_learning_begins_with_a_glimpse(monkeypatch):
    """A dense fit of some blocks of cells tells where to begin, and the climb on probes ends where the dense one does."""
    monkeypatch.setattr(grid_holes, "WHOLE", 100)
    monkeypatch.setattr(base, "MOST_HOLES", 0)
    monkeypatch.setattr(grid_seen, "FEW", 10)
    monkeypatch.setattr(initialise, "GLIMPSE", 90)
    monkeypatch.setattr(grid_holes, "LEARNING", grid_holes.LEARNING._replace(modes=60))
    grid = sg.Grid(np.linspace(0, 1, 24), np.linspace(0, 1, 20))
    rng = np.random.default_rng(2)
    y = np.sin(5 * grid.points.sum(axis=1)) + 0.3 * rng.standard_normal(480)
    y[rng.uniform(size=480) < 0.25] = np.nan
    gp = sg.GP(sg.SquaredExponential([0.5, 0.5]), sg.Gaussian(0.5))
    ours = gp.fit(grid, y, missing="infer", structure="kronecker")
    places, some = initialise.glimpse(ours.inputs, ours.data)
    assert 90 <= len(places) <= 93
    assert some.seen.all()
    np.testing.assert_array_equal(some.y[:, 0], [y[np.all(grid.points == x, axis=1)][0] for x in places.points])
    neighbours = np.abs(places.points[:, None] - places.points[None]).sum(axis=2) < 1.01 / 19
    assert neighbours.sum(axis=1).mean() > 2  # itself, and more than one beside it
    dense = gp.fit(grid, y, missing="infer", structure="dense", restarts=0)
    again = ours.gp.condition(grid, y, missing="infer", structure="dense")
    assert abs(again.log_evidence - dense.log_evidence) < 0.5


@pytest.mark.full
def test_counts_in_cells():
    """Observations of other kinds come to a grid as sites: mode, evidence and predictions are those of the dense engine."""
    gp = sg.GP(SMOOTH, sg.Poisson())
    counts = np.round(np.exp(1 + Y))
    counts[HOLES] = np.nan
    ours, dense = (
        gp.condition(GRID, counts, missing="infer", inference="laplace", structure=s) for s in ("kronecker", "dense")
    )
    assert ours.plan.engine.name == "Krylov"
    np.testing.assert_allclose(ours.log_evidence, dense.log_evidence, rtol=1e-6)
    np.testing.assert_allclose(ours.predict(XS).mean, dense.predict(XS).mean, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(ours.predict(XS).variance, dense.predict(XS).variance, rtol=1e-4)


@pytest.mark.parametrize("name", zoo.mostly_full(["complete", "holes"], "holes"))
def test_saved_and_read_again(name, tmp_path):
    ours = both(name)[0]
    ours.save(tmp_path / "grid.structgp")
    again = sg.load(tmp_path / "grid.structgp")
    np.testing.assert_array_equal(again.predict(XS).variance, ours.predict(XS).variance)
    np.testing.assert_array_equal(again.predict(FINER).mean, ours.predict(FINER).mean)
