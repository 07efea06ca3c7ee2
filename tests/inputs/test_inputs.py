import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import structgp as sg
from structgp.inputs.layouts import as_times_of_outputs, duplicates

values = arrays(np.float64, st.integers(1, 30), elements=st.floats(-1e6, 1e6))
tables = arrays(np.float64, st.tuples(st.integers(1, 12), st.integers(1, 3)), elements=st.sampled_from([-1.5, 0.0, 0.5, 2.0]))


@given(values)
def test_times_are_sorted_and_lead_back(x):
    times = sg.as_inputs(x)
    assert isinstance(times, sg.Times)
    assert (np.diff(times.t) >= 0).all()
    np.testing.assert_array_equal(times.t, x[times.order])
    np.testing.assert_array_equal(times.t[times.rank], x)
    np.testing.assert_array_equal(times.points, x[:, None])
    assert (len(times), times.dimension) == (len(x), 1)


@given(tables)
def test_grids_hold_the_points_they_came_from(X):
    X = np.unique(X, axis=0)
    X = X[np.random.default_rng(len(X)).permutation(len(X))]
    grid = sg.Grid.from_points(X)
    np.testing.assert_array_equal(grid.points, X)
    assert len(grid) == len(X)
    assert grid.complete == (len(X) == np.prod(grid.shape))
    for axis, column in zip(grid.axes, X.T, strict=True):
        np.testing.assert_array_equal(axis, np.unique(column))


def test_a_complete_grid_runs_over_its_last_axis_first():
    grid = sg.Grid([0.0, 1.0], [10.0, 20.0, 30.0])
    np.testing.assert_array_equal(grid.points[:4], [[0, 10], [0, 20], [0, 30], [1, 10]])
    assert grid.complete
    assert sg.Grid.from_points(grid.points).cells is None
    assert (len(grid), grid.dimension) == (6, 2)


@pytest.mark.parametrize(
    ("x", "regular"),
    [
        (np.linspace(0, 1, 50), True),
        (np.linspace(0, 1, 50)[::-1], True),
        (1.6e9 + 0.1 * np.arange(1000), True),
        (np.r_[0.0, 1.0, 2.0, 3.1], False),
        (np.r_[0.0, 0.0, 1.0, 2.0], False),
        (np.r_[0.0, 1.0, 2.0, 3.0 + 1e-9], False),
        (np.r_[5.0], False),
    ],
)
def test_regular_spacing_is_seen(x, regular):
    assert sg.as_inputs(x).regular is regular


def test_steps_that_lack_are_seen():
    """A few of them, whatever the unit and the order; where most lack, or a time lies between, there are no steps."""
    t = 1.6e9 + 0.1 * np.arange(1000)
    kept = np.delete(np.arange(1000), [17, 18, 500])
    steps = sg.as_inputs(t[kept][::-1]).steps
    np.testing.assert_array_equal(np.flatnonzero(steps[:, 0] < 997), kept)
    assert steps[17, 0] == 997
    for other in (t, np.append(t[kept], t[3] + 0.02), np.append(t[:3], t[-1]), np.append(t[kept], t[3]), t[:1]):
        assert sg.as_inputs(other).steps is None
    rows = np.array([[0, 0], [0, 1], [1, 0], [3, 0], [3, 1]])
    np.testing.assert_array_equal(as_times_of_outputs(1.0 * rows).steps, [[0, 1], [2, 5], [5, 5], [3, 4]])


def test_duplicates_are_counted():
    assert duplicates(sg.as_inputs([[0.0, 1.0], [2.0, 3.0], [0.0, 1.0], [0.0, 1.0]])) == 2
    assert duplicates(sg.as_inputs([1.0, 2.0])) == 0


TABLE = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])


@pytest.mark.parametrize(
    "X",
    [
        TABLE.tolist(),
        TABLE.astype(np.float32),
        TABLE.astype(np.int8),
        np.asfortranarray(TABLE),
        pd.DataFrame(TABLE, columns=["a", "b"]),
        pd.DataFrame({"a": pd.array([1, 3, 5], dtype="Int64"), "b": [2.0, 4.0, 6.0]}),
        pd.DataFrame({"a": np.array([1, 3, 5], dtype=object), "b": [2.0, 4.0, 6.0]}),
        pl.DataFrame(TABLE, schema=["a", "b"]),
        sg.Points(TABLE),
        sg.Points(TABLE.tolist()),
    ],
    ids=[
        "list",
        "float32",
        "int8",
        "fortran",
        "pandas",
        "pandas nullable",
        "pandas object",
        "polars",
        "points",
        "points of lists",
    ],
)
def test_everything_numeric_is_read_alike(X):
    inputs = sg.as_inputs(X)
    assert isinstance(inputs, sg.Points)
    assert inputs.points.dtype == np.float64
    np.testing.assert_array_equal(inputs.points, TABLE)


def test_columns_of_truth_values_and_series():
    np.testing.assert_array_equal(sg.as_inputs(pl.DataFrame({"a": [True, False], "b": [1, 2]})).points, [[1, 1], [0, 2]])
    for series in (pd.Series([3.0, 1.0]), pl.Series([3.0, 1.0])):
        np.testing.assert_array_equal(sg.as_inputs(series).points, [[3.0], [1.0]])


def test_reprs():
    assert repr(sg.as_inputs([3.0, 1.0, 2.0])) == "Times(3, regular)"
    assert repr(sg.as_inputs(TABLE)) == "Points(3 × 2)"
    assert repr(sg.Grid([0.0, 1.0], [0.0, 1.0], cells=[3, 0])) == "Grid(2 × 2, 2 of 4 cells present)"


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: sg.Grid(), "at least one axis"),
        (lambda: sg.Grid([0.0, 0.0]), "axis 0 of the grid repeats a value"),
        (lambda: sg.Grid([[0.0, 1.0]]), "axis 0 of the grid must be one column"),
        (lambda: sg.Grid([0.0, np.nan]), "axis 0 of the grid has 1 NaN"),
        (lambda: sg.Grid([0.0, 1.0], cells=[0, 2]), "distinct flat indices into the 2 cells of the grid, from 0 to 1"),
        (lambda: sg.Grid([0.0, 1.0], cells=[0, 0]), "distinct flat indices"),
        (lambda: sg.Grid.from_points([[0.0, 1.0], [0.0, 1.0]]), "a cell of the grid is repeated by 1 row: average them first"),
        (lambda: sg.Points([[np.nan]]), "X has 1 NaN"),
    ],
)
def test_what_is_refused(make, text):
    with pytest.raises(ValueError, match=text):
        make()
