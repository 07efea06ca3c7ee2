"""Tables whose rows are the cells of a grid, in any order: seen at the door, answered in the rows' own order."""

import numpy as np
import pytest

import structgp as sg
import zoo

RNG = np.random.default_rng(5)
AXES = np.linspace(0.0, 1.0, 24), np.sort(RNG.uniform(0.0, 3.0, 25))
ALL = RNG.permutation(np.asarray(sg.Grid(*AXES).points))
Y = np.sin(4 * ALL[:, 0]) * np.cos(2 * ALL[:, 1]) + 0.1 * RNG.standard_normal(len(ALL))
KERNEL = sg.SquaredExponential([0.4, 0.9])
GP = sg.GP(KERNEL, likelihood=sg.Gaussian(noise=0.02), mean=sg.polynomial(1))
NEW = RNG.uniform(0.0, 2.0, (7, 2))


def alike(ours, dense):
    np.testing.assert_allclose(ours.log_evidence, dense.log_evidence, rtol=1e-9)
    for of in (lambda f: f.predict(NEW), lambda f: f.predict(ALL), lambda f: f.leave_one_out()):
        found, expected = of(ours), of(dense)
        np.testing.assert_allclose(found.mean, expected.mean, atol=1e-7)
        np.testing.assert_allclose(found.variance, expected.variance, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("rows", zoo.mostly_full([600, 550], 550))
def test_rows_in_any_order_as_the_whole_matrix_has_them(rows, tmp_path):
    """All of the cells, or most of them: prediction, left-out values, more rows and files."""
    X, y = ALL[:rows], Y[:rows]
    ours, dense = (GP.condition(X, y, structure=structure) for structure in ("kronecker", "dense"))
    assert ours.plan.engine.name == "Eigen"
    present = "" if rows == 600 else ", 550 of 600 cells present"
    assert str(ours.plan).endswith(f"the rows of X are the cells of a grid: Grid(24 × 25{present})")
    np.testing.assert_array_equal(ours.inputs.points, X)
    alike(ours, dense)
    if rows < 600:
        more = ours.update(ALL[rows:], Y[rows:])
        assert more.plan.engine.structure == "kronecker"
        alike(more, GP.condition(ALL, Y, structure="dense"))
    ours.save(tmp_path / "rows.structgp")
    again = sg.load(tmp_path / "rows.structgp")
    np.testing.assert_array_equal(again.leave_one_out().mean, ours.leave_one_out().mean)
    assert str(again.plan) == str(ours.plan)


def test_learning_sees_the_grid():
    """All cells are the shorter way, and all but some; where many are missing and the matrix is small, that is."""
    assert GP.plan(ALL[:590], y=Y[:590]).engine.name == "Eigen"
    assert GP.plan(ALL[:350], y=Y[:350]).engine.name == "Cholesky"
    fitted = GP.fit(ALL, Y)
    assert fitted.plan.engine.name == "Eigen"
    assert "the rows of X are the cells of a grid" in str(fitted.plan)


@pytest.mark.parametrize(
    ("X", "kernel"),
    [
        (ALL[:400], KERNEL),  # few rows
        (ALL + 1e-3 * RNG.standard_normal(ALL.shape), KERNEL),  # scattered
        (np.concatenate([ALL, ALL[:5]]), KERNEL),  # some twice
        (ALL, sg.Matern52([0.4, 0.9])),  # no product over the columns
    ],
)
def test_what_stays_a_table(X, kernel):
    plan = sg.GP(kernel).plan(X)
    assert plan.engine.name == "Cholesky"
    assert "cells of a grid" not in str(plan)


def test_many_predictions_at_the_cells_of_another_grid():
    """A table that is a grid goes through the axes; a row more makes it places of which each is looked at by itself."""
    fitted = GP.condition(ALL, Y)
    other = RNG.permutation(np.asarray(sg.Grid(np.linspace(0.1, 0.9, 41), np.linspace(0.2, 2.5, 50)).points))
    assert fitted._as_grid(other) is not None
    assert fitted._as_grid(NEW) is None
    found, one_by_one = fitted.predict(other), fitted.predict(np.concatenate([other, NEW]))
    np.testing.assert_allclose(found.mean, one_by_one.mean[: len(other)], atol=1e-10)
    np.testing.assert_allclose(found.variance, one_by_one.variance[: len(other)], rtol=1e-8, atol=1e-12)


def test_dates_stay_dates():
    days = np.datetime64("2024-01-01") + np.arange(30)
    stations = np.arange(20.0)
    table = {"day": np.repeat(days, 20), "station": np.tile(stations, 30)}
    import polars

    X = polars.DataFrame(table)
    kernel = sg.Matern32(5.0).on(0) * sg.SquaredExponential(3.0).on(1)
    fitted = sg.GP(kernel).condition(X, np.sin(np.arange(600.0)))
    assert isinstance(fitted.inputs, sg.Grid)
    assert "dates" in fitted.summary()
    np.testing.assert_allclose(fitted.predict(X[:3]).mean, fitted.predict(X).mean[:3])
