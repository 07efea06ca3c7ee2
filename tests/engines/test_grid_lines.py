"""Evenly spaced times without a finite state, and several outputs on a grid."""

import functools

import numpy as np
import pytest

import structgp as sg
import zoo
from structgp.engines import plan, toeplitz, toeplitz_holes
from structgp.learn.evidence import evidence_objective
from structgp.parameters.tree import free_vector

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
    values = [evidence_objective(one.gp, one.inputs, one.data, one.plan.engine)(free_vector(one.gp)) for one in both()]
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


def test_predictions_at_its_own_times_take_a_short_way():
    """One look at C⁻¹ for all of them; a single other time among them goes the long way."""
    ours, dense = both()
    for places in (TIMES[::2], np.append(TIMES[::2], 3.3)):
        a, b = ours.predict(places), dense.predict(places)
        np.testing.assert_allclose(a.mean, b.mean, rtol=1e-8, atol=1e-9)
        np.testing.assert_allclose(a.variance, b.variance, rtol=1e-7)
    gp = sg.GP(sg.SquaredExponential(0.6) + sg.RationalQuadratic(1.5), sg.Gaussian(0.1))
    fits = [gp.condition(TIMES, Y, structure=structure) for structure in ("toeplitz", "dense")]
    parts = [fitted.predict(TIMES, part=1) for fitted in fits]
    np.testing.assert_allclose(parts[0].mean, parts[1].mean, rtol=1e-7, atol=1e-8)
    np.testing.assert_allclose(parts[0].variance, parts[1].variance, rtol=1e-7)
    joint = [fitted.predict(TIMES, part=1, covariance=True).covariance for fitted in fits]
    np.testing.assert_allclose(*joint, rtol=1e-7, atol=1e-9)
    assert ours.conditional.for_places(TIMES[:, None]).own
    assert not ours.conditional.for_places(np.array([[3.3]])).own


ENDLESS = sg.Cosine(3.3) * sg.RationalQuadratic(1e4, alpha=0.01)  # has no finite state and does not fade
GAPPED = np.where((np.arange(N) % 7 == 3) | ((TIMES > 3) & (TIMES < 5)), np.nan, Y)
NOISE = np.linspace(0.0, 0.3, N)
SMOOTH = sg.GP(sg.SquaredExponential(0.6, 1.2), sg.Gaussian(0.1), sg.polynomial(1))


def test_gaps_and_unequal_noise_of_a_long_series(monkeypatch):
    """Everything is that of the dense engine, to which short series go."""
    short = SMOOTH.condition(TIMES, GAPPED, noise=NOISE, missing="infer")
    assert short.plan.engine.name == "Cholesky"
    with pytest.raises(ValueError, match="have no value, or a noise of their own, and up to 4000 of them the whole matrix"):
        SMOOTH.condition(TIMES, GAPPED, noise=NOISE, missing="infer", structure="toeplitz")
    monkeypatch.setattr(toeplitz_holes, "SMALL", 10)
    ours = SMOOTH.condition(TIMES, GAPPED, noise=NOISE, missing="infer", structure="toeplitz")
    assert ours.plan.engine.name == "Fourier"
    assert ours.evidence_error < 1e-3
    np.testing.assert_allclose(ours.log_evidence, short.log_evidence, rtol=1e-9)
    for places in (XS, TIMES):
        a, b = ours.predict(places), short.predict(places)
        np.testing.assert_allclose(a.mean, b.mean, rtol=1e-8, atol=1e-9)
        np.testing.assert_allclose(a.variance, b.variance, rtol=1e-7)
    joint = [one.predict(XS, covariance=True).covariance for one in (ours, short)]
    np.testing.assert_allclose(*joint, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(ours.leave_one_out().mean, short.leave_one_out().mean, rtol=1e-8, atol=1e-9)
    values = [evidence_objective(one.gp, one.inputs, one.data, one.plan.engine)(free_vector(one.gp)) for one in (ours, short)]
    np.testing.assert_allclose(values[0][1], values[1][1], rtol=1e-7, atol=1e-7)


@pytest.mark.full
def test_a_long_series_with_many_waves_reports_its_error(monkeypatch, tmp_path):
    monkeypatch.setattr(toeplitz_holes, "SMALL", 10)
    monkeypatch.setattr(toeplitz_holes, "BLOCKS", (10,))
    gp = sg.GP(sg.SquaredExponential(0.6, 1.2), sg.Gaussian(0.1))
    ours = gp.condition(TIMES, GAPPED, missing="infer", structure="toeplitz")
    exact = gp.condition(TIMES, GAPPED, missing="infer", structure="dense")
    assert "standard error" in str(ours.plan)
    assert 0 < ours.evidence_error < 5
    assert abs(ours.log_evidence - exact.log_evidence) < 4 * ours.evidence_error
    np.testing.assert_allclose(ours.predict(XS).mean, exact.predict(XS).mean, atol=1e-6)
    np.testing.assert_allclose(ours.predict(XS).variance, exact.predict(XS).variance, atol=1e-6)
    ours.save(tmp_path / "gaps.structgp")
    np.testing.assert_array_equal(sg.load(tmp_path / "gaps.structgp").predict(XS).mean, ours.predict(XS).mean)
    with pytest.raises(ValueError, match="approximate='state-space' takes such series"):
        sg.GP(ENDLESS, sg.Gaussian(0.1)).condition(TIMES, GAPPED, noise=NOISE, missing="infer", structure="toeplitz")
    with pytest.raises(ValueError, match="a filter goes along these, which structure='markov' asks for"):
        sg.GP(sg.Matern32(), sg.Gaussian(0.1)).condition(TIMES, GAPPED, noise=NOISE, missing="infer", structure="toeplitz")


def test_gaps_that_leave_nothing_but_a_matrix_that_is_too_large(monkeypatch):
    """Then the structure that they spoil says what to do, whether it was asked for or not."""
    monkeypatch.setattr(toeplitz_holes, "SMALL", 10)
    monkeypatch.setattr(toeplitz, "OVERHEAD", 0.0)
    gp, long = sg.GP(ENDLESS, sg.Gaussian(0.1)), np.linspace(0.0, 10.0, 400)
    assert gp.plan(long).engine.name == "Toeplitz"
    gapped = np.where(np.arange(400) % 7 == 3, np.nan, 0.0)
    assert gp.plan(long, y=gapped).engine.name == "Cholesky"
    monkeypatch.setattr(plan, "LARGEST", 300)
    with pytest.raises(ValueError, match=r"some of the 400 times have no value.* approximate='state-space' takes such series"):
        gp.condition(long, gapped, missing="infer")


MATRIX = np.array([[1.2, 0.5, -0.3], [0.5, 0.9, 0.1], [-0.3, 0.1, 0.7]])
OUTPUTS = {
    "full": sg.Coregion.full(MATRIX),
    "low rank": sg.Coregion.low_rank(3, 2),
    "diagonal": sg.Coregion.diagonal([0.5, 1.0, 2.0]),
}


@pytest.mark.parametrize("name", zoo.mostly_full(OUTPUTS, "full"))
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
    values = [evidence_objective(gp, one.inputs, one.data, one.plan.engine)(free_vector(gp)) for one in (ours, dense)]
    np.testing.assert_allclose(values[0][1], values[1][1], rtol=1e-8, atol=1e-9)


@pytest.mark.full
def test_outputs_along_a_regular_series(tmp_path):
    """Toeplitz blocks, by the eigenvectors of the outputs: all is that of the dense engine, in any order of the steps."""
    steps = RNG.permutation(np.linspace(0.0, 3.0, 8))
    grid = sg.Grid(steps, [0, 1, 2])
    y = np.sin(grid.points[:, 0] * (1 + grid.points[:, 1])) + 0.1 * RNG.standard_normal(24)
    gp = sg.GP(OUTPUTS["full"].on(1) * sg.SquaredExponential(0.6).on(0), sg.Gaussian(0.1), sg.polynomial(1))
    ours, dense = (gp.condition(grid, y, structure=s) for s in ("toeplitz-grid", "dense"))
    assert ours.plan.engine.name == "Lines"
    np.testing.assert_allclose(ours.log_evidence, dense.log_evidence, rtol=1e-8)
    elsewhere = np.array([[0.4, 0.0], [2.0, 2.0], [3.5, 1.0]])
    for places in (elsewhere, grid.points[:9]):
        a, b = ours.predict(places), dense.predict(places)
        np.testing.assert_allclose(a.mean, b.mean, rtol=1e-8, atol=1e-9)
        np.testing.assert_allclose(a.variance, b.variance, rtol=1e-7)
    joint = [one.predict(elsewhere, covariance=True).covariance for one in (ours, dense)]
    np.testing.assert_allclose(*joint, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(ours.leave_one_out().mean, dense.leave_one_out().mean, rtol=1e-8)
    values = [evidence_objective(gp, one.inputs, one.data, one.plan.engine)(free_vector(gp)) for one in (ours, dense)]
    np.testing.assert_allclose(values[0][1], values[1][1], rtol=1e-6, atol=1e-7)
    ours.save(tmp_path / "lines.structgp")
    np.testing.assert_array_equal(sg.load(tmp_path / "lines.structgp").predict(elsewhere).mean, ours.predict(elsewhere).mean)


def test_which_grids_are_lines():
    long = sg.Grid(np.arange(20_000.0), [0, 1, 2])
    kernel = OUTPUTS["full"].on(1) * sg.SquaredExponential(30.0).on(0)
    gp = sg.GP(kernel, sg.Gaussian(0.1))
    assert "Lines" in str(gp.plan(long)).split("\n")[0]
    y = np.where(np.arange(60_000) % 7000 == 3, np.nan, 0.0)
    assert "Levinson" in str(gp.plan(long, y=y)).split("\n")[0]  # a few are taken out of all outputs along time
    y = np.where(np.arange(60_000) % 7 == 3, np.nan, 0.0)
    with pytest.raises(
        ValueError,
        match=r"8571 values are missing, and only up to 5000 .* too large for 51429 observations.*finite state",
    ):
        gp.condition(long, y, missing="infer")
    uneven = sg.Grid(np.arange(8.0) ** 2, [0, 1, 2])
    reasons = {
        "no factor is stationary along an evenly spaced axis": (gp, uneven),
        "some cells are missing": (gp, sg.Grid(np.arange(8.0), [0, 1, 2], cells=np.arange(20))),
        "the observations are not Gaussian": (sg.GP(kernel, sg.Poisson()), sg.Grid(np.arange(8.0), [0, 1, 2])),
        "noise so low": (sg.GP(kernel, sg.Gaussian(0.0)), sg.Grid(np.arange(8.0), [0, 1, 2])),
    }
    for reason, (one, grid) in reasons.items():
        with pytest.raises(ValueError, match=reason):
            one.plan(grid, structure="toeplitz-grid")


@pytest.mark.full
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
    values = [evidence_objective(gp, one.inputs, one.data, one.plan.engine)(free_vector(gp)) for one in (ours, dense)]
    np.testing.assert_allclose(values[0][0], values[1][0], rtol=1e-11)
    np.testing.assert_allclose(values[0][1], values[1][1], rtol=1e-8, atol=1e-9)
    y[[3, 17]] = np.nan
    ours, dense = (gp.condition(grid, y, missing="infer", structure=s) for s in ("space-time", "dense"))
    assert ours.plan.engine.name == "JointChain"
    np.testing.assert_allclose(ours.log_evidence, dense.log_evidence, rtol=1e-10)
    np.testing.assert_allclose(ours.predict([[0.5, 0.5, 0.5]]).variance, dense.predict([[0.5, 0.5, 0.5]]).variance, rtol=1e-8)
    values = [evidence_objective(gp, one.inputs, one.data, one.plan.engine)(free_vector(gp)) for one in (ours, dense)]
    np.testing.assert_allclose(values[0][0], values[1][0], rtol=1e-11)
    np.testing.assert_allclose(values[0][1], values[1][1], rtol=1e-8, atol=1e-9)
    with pytest.raises(ValueError, match="no factor has a finite state"):
        sg.GP(sg.SquaredExponential(1.0)).plan(grid, structure="space-time")
