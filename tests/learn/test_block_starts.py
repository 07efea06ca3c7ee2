"""Where learning with outliers starts: blocks of rows that the others do not expect."""

import numpy as np
import pytest

import structgp as sg
from structgp.inputs.layouts import as_inputs
from structgp.inputs.observations import read_observations
from structgp.learn import blocks
from structgp.learn.clock import Deadline


def series():
    rng = np.random.default_rng(3)
    x = np.linspace(0.0, 6.0, 40)
    y = np.sin(x) + 0.1 * rng.standard_normal(40)
    y[15:19] += 2.0
    return x, y


def test_the_distance_of_a_block_is_that_of_its_prediction():
    x, y = series()
    gp = sg.GP(sg.Matern52(1.5), sg.Gaussian(0.02), 0.2)
    kept = np.ones(40, bool)
    worst, z = blocks._worst_block(gp, x[:, None], y, kept, blocks._neighbours(x[:, None], 8))
    k = len(worst)
    rest = np.setdiff1d(np.arange(40), worst)
    p = gp.condition(x[rest], y[rest]).predict(x[worst], covariance=True)
    missed = y[worst] - p.mean
    d2 = missed @ np.linalg.solve(p.covariance + 0.02 * np.eye(k), missed)
    assert z == pytest.approx((d2 - k) / np.sqrt(2 * k), rel=1e-5)


def test_groups_of_outliers_go_and_what_is_left_is_the_start():
    x, y = series()
    gp = sg.GP(sg.Independent(sg.Matern32(), sg.Matern52()), sg.Twinned(), sg.ConstantMean([0.0, 0.0]))
    inputs = as_inputs(x)
    data = read_observations(gp.likelihood, y, None, "error", inputs)
    starts = blocks.block_start(gp, inputs, data, lambda theta: (0.0, theta))
    assert len(starts) == 1
    likelihood, kernels = starts[0].likelihood, starts[0].kernel.kernels
    assert 0.002 < float(likelihood.real.noise) < 0.05
    assert 1.0 < float(likelihood.other.noise) < 10.0
    assert float(kernels[1].lengthscale) > 0.8
    assert float(starts[0].mean.value[0]) == 1.5
    tried = []
    refuses = lambda theta: (tried.append(theta), (blocks.LOWEST, theta))[1]
    assert blocks.block_start(gp, inputs, data, refuses) == []
    assert len(tried) == blocks.TRIES  # with ever wider noise
    clean = blocks.without_blocks(blocks._plain(gp), inputs, data)
    assert not clean.kept[15:19].any()
    assert clean.kept.sum() > 30


def test_a_start_takes_a_part_of_the_time_and_no_more():
    """The plain process is dense, however cheap what follows is: a deadline holds for it as well."""
    x, y = series()
    gp = sg.GP(sg.Matern52(), sg.StudentT(), sg.ConstantMean())
    inputs = as_inputs(x)
    data = read_observations(gp.likelihood, y, None, "error", inputs)
    asked = []
    clock = lambda: (asked.append(0), float(len(asked)))[1]  # a second goes by whenever it is looked at
    assert len(blocks.block_start(gp, inputs, data, lambda theta: (0.0, theta), None, Deadline(1e6, clock))) == 1
    whole = len(asked)
    asked.clear()
    blocks.block_start(gp, inputs, data, lambda theta: (0.0, theta), None, Deadline(60.0, clock))
    assert len(asked) < 40 < whole


def test_counts_are_seen_by_their_logarithms():
    """Exposures that differ by a factor of ten make no outliers; a group of counts that are five times too large is one."""
    rng = np.random.default_rng(4)
    x, exposure = np.linspace(0.0, 6.0, 60), np.tile([1.0, 10.0], 30)
    group = np.arange(60) // 6 == 5
    y = rng.poisson(exposure * np.exp(3.0 + np.sin(x) + np.where(group, np.log(5.0), 0.0))).astype(float)
    counts = sg.Switch(sg.Poisson(), sg.NegativeBinomial())
    gp = sg.GP(sg.Independent(sg.Matern32(), sg.Matern52()), counts, sg.ConstantMean([0.0, 0.0]))
    inputs = as_inputs(x)
    data = read_observations(gp.likelihood, y, None, "error", inputs, exposure)
    (start,) = blocks.block_start(gp, inputs, data, lambda theta: (0.0, theta))
    assert 1.0 < float(start.likelihood.other.dispersion) < 5.0  # about log(5)²
    assert float(start.kernel.kernels[1].lengthscale) > 1.0
    assert float(start.mean.value[1]) == pytest.approx(3.0, abs=0.7)
    fitted = gp.fit(x, y, extra=exposure, parameters="best")
    assert np.all((fitted.outlier_probability > 0.5) == group)


def test_which_likelihoods_have_such_a_start():
    told = lambda likelihood: likelihood.told_apart(0.04, 4.0, 0.1)
    assert told(sg.Bernoulli()) is None
    assert told(sg.TwoExperts()) is None
    assert told(sg.Poisson()) is None
    assert told(sg.NegativeBinomial()) is None
    assert float(told(sg.Switch(sg.Poisson(), sg.NegativeBinomial())).other.dispersion) == 4.0
    assert told(sg.HeteroscedasticGaussian()) is None
    assert float(told(sg.StudentT()).scale) == pytest.approx(0.2)
    assert float(told(sg.MixtureNoise()).wide) == pytest.approx(2.0)
    assert float(told(sg.LaplaceNoise()).scale) == pytest.approx(np.sqrt(0.02))
    assert float(told(sg.Triplet()).other.real.noise) == pytest.approx(4.0)
