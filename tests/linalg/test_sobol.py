"""Points that fill the unit cube: those of SciPy, whose import is not needed for them, bit for bit."""

import numpy as np
import pytest
from scipy.stats import qmc

from structgp.linalg.sobol import DIRECTIONS, sobol


@pytest.mark.parametrize("size", [1, 2, 5, len(DIRECTIONS) + 1, len(DIRECTIONS) + 3])
def test_points_are_those_of_scipy(size):
    for count in (1, 3, 100):
        whole_power = 1 << (count - 1).bit_length()
        truth = qmc.Sobol(size, rng=np.random.default_rng([size, 4])).random(whole_power)[:count]
        np.testing.assert_array_equal(sobol(size, count, np.random.default_rng([size, 4])), np.clip(truth, 1e-12, 1 - 1e-12))


def test_a_generator_moves_on():
    rng = np.random.default_rng(0)
    first, second = sobol(2, 8, rng), sobol(2, 8, rng)
    assert not np.array_equal(first, second)
    for points in (first, second):  # one in each eighth, along each coordinate
        np.testing.assert_array_equal(np.sort(np.floor(8 * points), axis=0), np.arange(8.0)[:, None] * [1, 1])
