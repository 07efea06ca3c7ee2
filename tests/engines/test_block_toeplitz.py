"""Several outputs at evenly spaced times without a finite state: the recursion over blocks says what the whole matrix says."""

import jax
import numpy as np
import pytest

import structgp as sg
import zoo
from structgp.engines.block_toeplitz import BlockLevinson
from structgp.engines.cholesky import Cholesky
from structgp.inputs.layouts import as_inputs, as_times_of_outputs
from structgp.inputs.observations import read_observations
from structgp.learn.evidence import evidence_objective
from structgp.parameters.tree import free_vector

T = 0.5 * np.arange(11.0)
Y = np.sin(T[:, None] + 0.4 * np.arange(3)) * [1.0, 2.0, -1.0] + 0.1 * np.random.default_rng(0).standard_normal((11, 3))
X = np.stack([np.repeat(T, 3), np.tile(np.arange(3.0), 11)], axis=1)
XS = np.stack([np.linspace(-1, 7, 6), np.arange(6) % 3], axis=1)
SHUFFLED = np.random.default_rng(1).permutation(33)
KERNELS = {
    "lagged filters": sg.Lagged(zoo.OF_OUTPUTS["GaussianFilters"], [0.3, -0.4]),
    "coregionalisation": sg.Coregion([[0.7], [-0.4], [1.1]], [0.3, 0.5, 0.2]).on(1) * sg.SquaredExponential(0.7).on(0)
    + sg.Coregion.full(np.eye(3)).on(1) * sg.RationalQuadratic(2.0).on(0),
}


@pytest.mark.parametrize("name", zoo.mostly_full(list(KERNELS), "lagged filters"))
def test_the_recursion_says_what_the_matrix_says(name):
    gp = sg.GP(KERNELS[name], sg.Gaussian([0.02, 0.05, 0.1]))
    rows, values = X[SHUFFLED], Y.ravel()[SHUFFLED]
    dense, blocks = (gp.condition(rows, values, structure=structure) for structure in ("dense", "toeplitz"))
    assert blocks.plan.engine.name == "Levinson"
    np.testing.assert_allclose(blocks.log_evidence, dense.log_evidence, rtol=1e-11)
    p, q = (fitted.predict(XS, covariance=True) for fitted in (dense, blocks))
    for a, b in ((q.mean, p.mean), (q.covariance, p.covariance), (blocks.predict(XS).variance, p.variance)):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-10)
    for a, b in zip(blocks.leave_one_out(), dense.leave_one_out(), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-10)
    found = []
    for inputs, engine in ((as_inputs(rows), Cholesky()), (as_times_of_outputs(rows), BlockLevinson())):
        data = read_observations(gp.likelihood, values, None, "error", inputs)
        with jax.enable_x64(True):
            found.append(evidence_objective(gp, inputs, data, engine, 0.0)(free_vector(gp)))
    np.testing.assert_allclose(found[1][0], found[0][0], rtol=1e-11)
    np.testing.assert_allclose(found[1][1], found[0][1], rtol=1e-7, atol=1e-9 * np.abs(found[0][1]).max())


def test_missing_values_of_some_outputs_and_of_all_at_once():
    """Marked, left out, or a time without any row: evidence, slopes and predictions are those of the whole matrix."""
    table = Y.copy()
    table[[0, 4, 5, 10], [2, 1, 1, 0]] = np.nan
    table[7] = np.nan
    left_out = np.delete(SHUFFLED, np.flatnonzero(np.isin(SHUFFLED, [2, 13, 21, 22, 23, 30])))
    values = table.ravel()
    values[2] = np.nan
    left = X[left_out], values[left_out]
    gp = sg.GP(KERNELS["lagged filters"], sg.Gaussian([1e-4, 2e-4, 0.1]))
    fits = [gp.condition(T, table, missing="infer", structure=structure) for structure in ("dense", "toeplitz")]
    fits.append(gp.condition(X, values, missing="infer", structure="toeplitz"))
    fits.append(gp.condition(*left, missing="infer", structure="toeplitz"))
    assert [fitted.plan.engine.holes for fitted in fits[1:]] == [7, 7, 7]
    dense = fits[0].predict(XS, covariance=True)
    found = []
    for fitted in fits:
        np.testing.assert_allclose(fitted.log_evidence, fits[0].log_evidence, rtol=1e-9)
        p = fitted.predict(XS, covariance=True)
        np.testing.assert_allclose(p.mean, dense.mean, rtol=1e-8, atol=1e-9)
        np.testing.assert_allclose(p.covariance, dense.covariance, rtol=0, atol=1e-10)
        np.testing.assert_allclose(fitted.predict(XS).variance, np.diagonal(dense.covariance), rtol=0, atol=1e-10)
        objective = evidence_objective(gp, fitted.inputs, fitted.data, fitted.plan.engine, 0.0)
        found.append(objective(free_vector(gp))[1])
    scale = np.abs(found[0]).max()
    for slopes in found[1:]:
        np.testing.assert_allclose(slopes, found[0], rtol=0, atol=1e-7 * scale)
    table_by_matrix, by_table, marked, shuffled = (fitted.leave_one_out().mean for fitted in fits)
    np.testing.assert_allclose(by_table, table_by_matrix, rtol=0, atol=1e-7)
    seen = np.isfinite(left[1])
    np.testing.assert_allclose(shuffled[seen], marked[left_out][seen], rtol=0, atol=1e-7)


def test_long_series_go_to_the_recursion_and_say_what_they_need():
    gp = sg.GP(sg.GaussianFilters(3), sg.Gaussian([0.1] * 3))
    t = np.arange(2000.0)
    table = np.stack([np.repeat(t, 3), np.tile(np.arange(3.0), 2000)], axis=1)
    assert gp.plan(table).engine.name == "Levinson"
    assert gp.plan(sg.Grid(t, np.arange(3.0))).engine.name == "Levinson"
    few = np.where(np.arange(6000) % 600 == 7, np.nan, 0.0)
    assert "one more solution for each missing value (10)" in str(gp.plan(table, y=few))
    with pytest.raises(ValueError, match="evenly spaced times at which most outputs are seen"):
        gp.plan(np.concatenate([X, [[1.3, 0.0]]]), structure="toeplitz")
    with pytest.raises(ValueError, match="cannot be had: an output has no value"):
        gp.condition(X, np.where(X[:, 1] == 1, np.nan, 0.0), missing="infer", structure="toeplitz")
    with pytest.raises(ValueError, match="noise of an output changes from time to time"):
        gp.condition(X, Y.ravel(), noise=np.linspace(0, 1, 33), structure="toeplitz")
    with pytest.raises(ValueError, match="noise so low asks for the whole matrix"):
        sg.GP(sg.GaussianFilters(3), sg.Gaussian(1e-9)).plan(X, structure="toeplitz")
