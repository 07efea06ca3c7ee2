"""Scattered data onto a grid."""

import numpy as np
import pytest

import structgp as sg

RNG = np.random.default_rng(8)
X = RNG.uniform(0.0, 1.0, (2000, 2))
Y = np.sin(6 * X[:, 0]) * X[:, 1] + 0.2 * RNG.standard_normal(2000)


def test_means_and_counts():
    binned = sg.bin_to_grid(X, Y, [4, np.array([0.0, 0.1, 0.5, 1.0])])
    assert binned.grid.shape == (4, 3)
    assert binned.count.sum() == 2000
    np.testing.assert_allclose(binned.grid.axes[1], [0.05, 0.3, 0.75])
    low, high = X[:, 0].min(), X[:, 0].max()
    first = (X[:, 0] < low + (high - low) / 4) & (X[:, 1] < 0.1)
    assert binned.count[0] == first.sum()
    np.testing.assert_allclose(binned.mean[0], Y[first].mean(), rtol=1e-12)
    np.testing.assert_allclose(binned.sum.sum(), Y.sum(), rtol=1e-12)


def test_the_spread_within_small_bins_is_the_noise():
    binned = sg.bin_to_grid(X, Y, 12)
    assert binned.within == pytest.approx(0.04, rel=0.15)
    np.testing.assert_allclose(binned.noise(), binned.within / binned.count)
    gp = sg.GP(sg.SquaredExponential([0.3, 0.6], 0.3), sg.Gaussian(0.0))
    fitted = gp.condition(binned.grid, binned.mean, noise=binned.noise())
    Xs = RNG.uniform(0.1, 0.9, (50, 2))
    error = fitted.predict(Xs).mean - np.sin(6 * Xs[:, 0]) * Xs[:, 1]
    assert np.sqrt(np.mean(error**2)) < 0.06  # 144 cells of 14 values each: the standard error of a cell is 0.05


def test_empty_cells_are_holes():
    binned = sg.bin_to_grid(X[X.sum(axis=1) < 1.2], Y[X.sum(axis=1) < 1.2], 10)
    assert not binned.grid.complete
    assert len(binned.grid) == len(binned.count) < 100


def test_labels_as_beta_targets():
    """As published, with successes and failures swapped in neither place: a uniform prior, one success of one trial."""
    binned = sg.bin_to_grid([0.0, 0.1, 0.9], [1.0, 0.0, 1.0], 2)
    mean, variance = binned.beta_targets()
    np.testing.assert_allclose(mean, [0.5, 2 / 3])
    np.testing.assert_allclose(variance, [1 / 20, 1 / 18])


def test_messages():
    with pytest.raises(ValueError, match="one finite value for each of the 2000 rows"):
        sg.bin_to_grid(X, Y[:5])
    with pytest.raises(ValueError, match="one entry for each of the 2 columns"):
        sg.bin_to_grid(X, Y, [3])
    with pytest.raises(ValueError, match="whole numbers of at least 1"):
        sg.bin_to_grid(X, Y, 0)
    with pytest.raises(ValueError, match="at least two, and ascending"):
        sg.bin_to_grid(X, Y, [[1.0, 0.0], 3])
    with pytest.raises(ValueError, match=r"column 0 of X reaches from .* beyond its bins"):
        sg.bin_to_grid(X, Y, [[0.2, 0.8], 3])
