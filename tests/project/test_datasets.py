import numpy as np
import pytest

from structgp.datasets import DATASETS, co2, friedman, load_dataset, sinc


@pytest.mark.parametrize("name", list(DATASETS))
def test_data_sets_are_whole_and_repeatable(name):
    data = load_dataset(name)
    assert data.X.shape == (len(data.y), len(data.names))
    assert np.isfinite(data.X).all()
    assert np.isfinite(data.y).all()
    assert data.about
    np.testing.assert_array_equal(load_dataset(name).y, data.y)


def test_co2_rises_and_swings_once_a_year():
    X, y, *_ = co2()
    assert len(y) == 557
    assert X[0, 0] == pytest.approx(1958 + 2.5 / 12)
    assert (np.diff(X[:, 0]) > 0).all()
    t = X[:, 0] - X[:, 0].mean()
    columns = [t**0, t, t**2, t**3, np.sin(2 * np.pi * t), np.cos(2 * np.pi * t)]
    weights, *_ = np.linalg.lstsq(np.stack(columns, axis=1), y, rcond=None)
    assert weights[1] == pytest.approx(1.4, abs=0.3)
    assert np.hypot(*weights[4:]) == pytest.approx(2.8, abs=0.5)


def test_generated_sets_are_what_they_say():
    X, y, *_ = friedman(n=50, noise=0.0, seed=3)
    np.testing.assert_allclose(
        y, 10 * np.sin(np.pi * X[:, 0] * X[:, 1]) + 20 * (X[:, 2] - 0.5) ** 2 + 10 * X[:, 3] + 5 * X[:, 4]
    )
    assert (friedman(seed=1).y != friedman(seed=2).y).any()
    far = lambda share: np.mean(np.abs(sinc(400, outliers=share).y - np.sinc(sinc(400, outliers=share).X[:, 0] / np.pi)) > 0.5)
    assert far(0.0) == 0.0
    assert 0.1 < far(0.3) < 0.35


def test_unknown_names_are_told_the_known_ones():
    with pytest.raises(ValueError, match="no data set 'iris': there are co2, friedman"):
        load_dataset("iris")
    with pytest.raises(ValueError, match="at least 5 columns"):
        friedman(dimension=3)
