"""Evenly spaced times without a finite state, and several outputs on a grid."""

import functools

import numpy as np
import pytest

import structgp as sg
from structgp.learn.evidence import Objective
from structgp.parameters import free_vector

RNG = np.random.default_rng(4)
N = 40
TIMES = RNG.permutation(np.linspace(0.0, 10.0, N))
Y = np.sin(2 * TIMES) + 0.2 * RNG.standard_normal(N)
XS = np.linspace(-1.0, 11.0, 6)


@functools.cache
def both():
    gp = sg.GP(sg.SquaredExponential(0.6, 1.2), sg.Gaussian(0.1), sg.polynomial(1))
    return [gp.condition(TIMES, Y, structure=structure) for structure in ("toeplitz", "dense")]


def test_a_regular_series_is_that_of_the_dense_engine():
    ours, dense = both()
    assert ours.plan.engine.name == "Toeplitz"
    np.testing.assert_allclose(ours.log_evidence, dense.log_evidence, rtol=1e-9)
    a, b = ours.predict(XS, covariance=True), dense.predict(XS, covariance=True)
    np.testing.assert_allclose(a.mean, b.mean, rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(a.covariance, b.covariance, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(ours.predict(XS).variance, b.variance, rtol=1e-7)
    np.testing.assert_allclose(ours.leave_one_out().mean, dense.leave_one_out().mean, rtol=1e-8)
    values = [Objective(one.gp, one.inputs, one.data, one.plan.engine)(free_vector(one.gp)) for one in both()]
    np.testing.assert_allclose(values[0][0], values[1][0], rtol=1e-9)
    np.testing.assert_allclose(values[0][1], values[1][1], rtol=1e-6, atol=1e-7)


def test_what_is_not_toeplitz_says_why():
    reasons = {
        "not evenly spaced": (sg.SquaredExponential(), TIMES[:7]),
        "Linear is not stationary": (sg.SquaredExponential() + sg.Linear(), TIMES),
        "Wiener is not stationary": (2.0 * (sg.Matern32() * sg.Wiener().on(0)), TIMES),
    }
    for reason, (kernel, t) in reasons.items():
        with pytest.raises(ValueError, match=reason):
            sg.GP(kernel).plan(t, structure="toeplitz")
    with pytest.raises(ValueError, match="noise so low"):
        sg.GP(sg.Sinc(), sg.Gaussian(0.0)).plan(TIMES, structure="toeplitz")


def test_missing_values_go_to_the_whole_matrix():
    gp = sg.GP(sg.SquaredExponential(0.6, 1.2), sg.Gaussian(0.1))
    y = np.where(np.arange(N) % 7 == 3, np.nan, Y)
    fitted = gp.condition(TIMES, y, missing="infer", structure="toeplitz")
    assert fitted.plan.engine.name == "Cholesky"
    with pytest.raises(ValueError, match="approximate='state-space' takes such series"):
        gp.condition(np.arange(40_000.0), np.where(np.arange(40_000) % 7 == 3, np.nan, 0.0), missing="infer")
    assert "Toeplitz" in str(gp.plan(np.arange(2000.0))).split("\n")[0]


MATRIX = np.array([[1.2, 0.5, -0.3], [0.5, 0.9, 0.1], [-0.3, 0.1, 0.7]])
OUTPUTS = {
    "full": sg.Coregion.full(MATRIX),
    "low rank": sg.Coregion.low_rank(3, 2),
    "diagonal": sg.Coregion.diagonal([0.5, 1.0, 2.0]),
}


@pytest.mark.parametrize("name", OUTPUTS)
def test_outputs_are_one_more_axis(name):
    """Two outputs see everything, the third has gaps; the answers are those of the dense engine on the long table."""
    kernel = OUTPUTS[name].on(1) * sg.SquaredExponential(0.6).on(0)
    grid = sg.Grid(np.linspace(0.0, 3.0, 8), [0, 1, 2])
    y = np.sin(grid.points[:, 0] * (1 + grid.points[:, 1])) + 0.1 * RNG.standard_normal(24)
    y[[5, 11, 14]] = np.nan
    gp = sg.GP(kernel, sg.Gaussian(0.1))
    ours, dense = (gp.condition(grid, y, missing="infer", structure=s) for s in ("kronecker", "dense"))
    np.testing.assert_allclose(ours.log_evidence, dense.log_evidence, rtol=1e-11)
    np.testing.assert_allclose(ours.predict(grid).variance, dense.predict(grid).variance, rtol=1e-8, atol=1e-10)
    values = [Objective(gp, one.inputs, one.data, one.plan.engine)(free_vector(gp)) for one in (ours, dense)]
    np.testing.assert_allclose(values[0][1], values[1][1], rtol=1e-8, atol=1e-9)


def test_outputs_come_back_from_a_file(tmp_path):
    fitted = sg.GP(OUTPUTS["full"], sg.Gaussian(0.1)).condition([0.0, 1.0, 2.0], [0.3, -0.2, 0.9])
    fitted.save(tmp_path / "outputs.structgp")
    again = sg.load(tmp_path / "outputs.structgp")
    np.testing.assert_array_equal(again.kernel.loadings, OUTPUTS["full"].loadings)
    np.testing.assert_allclose(again.predict([1.0]).mean, fitted.predict([1.0]).mean, rtol=1e-12)


def test_outputs_say_what_they_need():
    np.testing.assert_allclose(OUTPUTS["full"].matrix(), MATRIX, rtol=1e-6)
    with pytest.raises(ValueError, match=r"loadings of shape \(P, r\) and P variances"):
        sg.Coregion([[1.0], [1.0]], [1.0])
    with pytest.raises(ValueError, match=r"outputs 0 to 2, but the inputs hold 3"):
        sg.GP(OUTPUTS["full"]).plan([0.0, 3.0])


@pytest.mark.parametrize("kernel", [sg.Matern32(0.7, 1.3).on(2) * sg.Matern52([1.0, 0.8]).on(1, 0)], ids=["Matern"])
def test_space_and_time(kernel):
    """Three axes, the last of them time and not in order: evidence, gradient, mean and variance of the dense engine."""
    grid = sg.Grid([0.0, 1.1], [0.3, 0.9, 2.0], [0.4, -1.0, 1.4, 0.1, 2.2])
    y = np.sin(grid.points @ [1.0, 2.0, 3.0]) + 0.1 * RNG.standard_normal(30)
    gp = sg.GP(kernel, sg.Gaussian(0.1), sg.ConstantMean(0.2))
    ours, dense = (gp.condition(grid, y, structure=s) for s in ("space-time", "dense"))
    assert ours.plan.engine.name == "Chains"
    np.testing.assert_allclose(ours.log_evidence, dense.log_evidence, rtol=1e-11)
    a, b = ours.predict([[0.5, 0.5, 0.5], [1.0, 0.0, 3.0]]), dense.predict([[0.5, 0.5, 0.5], [1.0, 0.0, 3.0]])
    np.testing.assert_allclose(a.mean, b.mean, rtol=1e-9)
    np.testing.assert_allclose(a.variance, b.variance, rtol=1e-9)
    values = [Objective(gp, one.inputs, one.data, one.plan.engine)(free_vector(gp)) for one in (ours, dense)]
    np.testing.assert_allclose(values[0][0], values[1][0], rtol=1e-11)
    np.testing.assert_allclose(values[0][1], values[1][1], rtol=1e-8, atol=1e-9)
    y[[3, 17]] = np.nan
    ours, dense = (gp.condition(grid, y, missing="infer", structure=s) for s in ("space-time", "dense"))
    assert ours.plan.engine.name == "JointChain"
    np.testing.assert_allclose(ours.log_evidence, dense.log_evidence, rtol=1e-10)
    np.testing.assert_allclose(ours.predict([[0.5, 0.5, 0.5]]).variance, dense.predict([[0.5, 0.5, 0.5]]).variance, rtol=1e-8)
    values = [Objective(gp, one.inputs, one.data, one.plan.engine)(free_vector(gp)) for one in (ours, dense)]
    np.testing.assert_allclose(values[0][0], values[1][0], rtol=1e-11)
    np.testing.assert_allclose(values[0][1], values[1][1], rtol=1e-8, atol=1e-9)
    with pytest.raises(ValueError, match="no factor has a finite state"):
        sg.GP(sg.SquaredExponential(1.0)).plan(grid, structure="space-time")
