"""Starts of lags: from likeness, with nothing of the evidence."""

import numpy as np

import structgp as sg
from structgp.inputs.observations import Data
from structgp.learn.lags import REACH, Likeness, _parts, _scanned, _told_by_each, _width
from structgp.parameters.tree import free_vector, with_free


def test_an_output_that_hears_two_others_ties_their_lags():
    """The first and the second share nothing; the third is late by 0.5 behind the one and by 0.8, turned, behind the other."""
    rng, t = np.random.default_rng(0), np.linspace(0, 40, 400)
    c, w, p = rng.standard_normal((2, 12)), rng.uniform(1, 4, (2, 12)), rng.uniform(0, 6, (2, 12))
    f = lambda i, x: np.sum(c[i] * np.sin(w[i] * x[:, None] + p[i]), axis=1)
    series = [(t, f(0, t)), (t, f(1, t)), (t, f(0, t - 0.5) - f(1, t - 0.8))]
    gp = sg.GP(sg.Lagged(sg.GaussianFilters(3, 2, own=False), [0.0, 0.0]), sg.Gaussian([0.1] * 3))
    parts = _parts(gp)
    lags = next(part for path, part in parts.items() if path.endswith(".lags"))
    theta = _told_by_each(gp, free_vector(gp), series)
    assert np.all(np.abs(np.log(with_free(gp, theta).kernel.kernel.lengthscale / 0.4)) < 0.7)
    likeness = Likeness.of(series)
    found = likeness.loaded(likeness.along_tree(theta, lags), parts, lags)
    np.testing.assert_allclose(found[lags], [-0.3, 0.5], atol=0.2)
    W = with_free(gp, found).kernel.kernel.loadings
    assert W[0] @ W[2] > 0.3 * np.linalg.norm(W[0]) * np.linalg.norm(W[2])
    assert W[1] @ W[2] < -0.3 * np.linalg.norm(W[1]) * np.linalg.norm(W[2])


def test_a_gap_makes_a_series_no_narrower():
    t = np.linspace(-1, 1, 60)
    y, seen = np.sin(6 * t), np.abs(t - 0.25) > 0.4
    assert 0.5 < _width(t[seen], y[seen]) / _width(t, y) < 2


def test_lags_that_the_evidence_likes_nearly_as_well_are_begun_at_too():
    t = np.linspace(0, 1, 30)
    X = np.stack([np.tile(t, 2), np.repeat([0.0, 1.0], 30)], axis=1)
    data = Data(np.sin(7 * X[:, :1]), np.zeros(60), np.ones(60, bool))
    near, far = 0.3 * REACH, -0.7 * REACH
    of = lambda drop: lambda T: np.maximum(-2000 * (T[:, 0] - near) ** 2, -drop - 2000 * (T[:, 0] - far) ** 2)
    found = {}
    for drop in (0.5, 9.0):
        scan = {"lags": slice(0, 1), "shape": (1,), "count": 2, "X": X, "data": data, "variants": lambda theta, output: [theta]}
        found[drop] = [theta[0] for _, theta in _scanned(np.zeros(1), values=of(drop), **scan)]
    np.testing.assert_allclose(found[9.0], [near], atol=0.02)
    assert np.min(np.abs(np.array(found[0.5]) - far)) < 0.04
    np.testing.assert_allclose(found[0.5][0], near, atol=0.02)
