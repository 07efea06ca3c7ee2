"""Which rows are near: both searches find what looking at all rows finds."""

import jax
import numpy as np
import pytest

from structgp.linalg.neighbours import boxes
from structgp.linalg.neighbours.search import nearest_before

RNG = np.random.default_rng(3)
PLACES = {
    "scattered": RNG.standard_normal((700, 3)),
    "a line of clusters": np.repeat(RNG.uniform(0, 100, (35, 2)), 20, axis=0) + 0.01 * RNG.standard_normal((700, 2)),
    "few": RNG.standard_normal((9, 2)),
}


@pytest.mark.parametrize("name", PLACES)
def test_nearest_before(name):
    Z, m = PLACES[name], 6
    found = nearest_before(Z, m)
    for i in range(len(Z)):
        distances = np.sum((Z[:i] - Z[i]) ** 2, axis=1)
        assert np.all(found[i, i:] == -1)
        np.testing.assert_allclose(distances[found[i, : min(i, m)]], np.sort(distances)[:m], rtol=1e-3)
    some = np.arange(1, len(Z), 5)
    np.testing.assert_array_equal(nearest_before(Z, m, some), found[some])


def test_ties_fall_the_same_way_in_all_units():
    grid = np.stack(np.meshgrid(np.arange(12.0), np.arange(15.0), indexing="ij"), axis=-1).reshape(-1, 2)
    Z = RNG.permutation(grid)
    np.testing.assert_array_equal(nearest_before(Z, 5), nearest_before(Z / 7e11, 5))


@pytest.mark.parametrize("name", PLACES)
def test_boxes_hold_every_row_once_and_find_the_nearest(name):
    Z, m = PLACES[name], 8
    rows = boxes.leaves(Z, len(Z) + 3)
    np.testing.assert_array_equal(np.sort(rows[rows >= 0]), np.arange(len(Z)))
    assert rows.size >= len(Z) + 3
    places = RNG.standard_normal((40, Z.shape[1])) * Z.std(axis=0) + Z.mean(axis=0)
    all_rows = np.where(rows >= 0, rows, -1 - rows)
    with jax.enable_x64(True):
        at, there = jax.jit(boxes.nearest, static_argnames="count")(places, Z[all_rows], rows >= 0, count=m)
    distances = np.sum((places[:, None] - Z[None]) ** 2, axis=2)
    assert there.all()
    found = np.take_along_axis(distances, all_rows.ravel()[np.asarray(at)], axis=1)
    np.testing.assert_allclose(found, np.sort(distances, axis=1)[:, :m], rtol=1e-6)
