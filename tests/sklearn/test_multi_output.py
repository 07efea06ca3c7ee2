"""MultiOutputGP among scikit-learn's estimators: gaps, logs, and its checks."""

import numpy as np
import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

import structgp as sg
from structgp.models.outputs import Scales

RNG = np.random.default_rng(0)
T = np.sort(RNG.uniform(0, 6, 30))[:, None]
F = np.column_stack([np.sin(T), np.exp(1.5 * np.sin(T))])
QUICK = {"parameters": "best", "restarts": 0, "max_evaluations": 30}


@parametrize_with_checks([sg.MultiOutputGP(**QUICK)])
@pytest.mark.full
def test_scikit_learn_checks(estimator, check):
    check(estimator)


def test_gaps_are_filled_from_the_other_target():
    Y = F + 0.02 * RNG.standard_normal(F.shape) * F.std(axis=0)
    Y[8:16, 1] = np.nan
    model = sg.MultiOutputGP(**QUICK).fit(T, Y)
    np.testing.assert_array_equal(model.outputs_.scales.logs, [False, True])
    mean, sd = model.predict(T, return_std=True)
    assert mean.shape == sd.shape == F.shape
    assert np.abs(mean - F)[8:16, 1].max() < 0.35 * F[:, 1].std()
    lower, upper = model.interval(T)
    assert np.all(lower < mean)
    assert np.all(mean < upper)
    assert np.all(lower[:, 1] > 0)
    assert model.correlations_.correlation[0, 1] > 0.9


def test_one_target_is_a_regression():
    model = sg.MultiOutputGP(**QUICK).fit(T, F[:, 0])
    assert model.predict(T).shape == (30,)
    with pytest.raises(ValueError, match="one target, which hangs together with nothing"):
        _ = model.correlations_


def test_scales_lead_back():
    Y = np.exp(np.random.default_rng(1).standard_normal((40, 2)))
    Y[3, 0] = np.nan
    scales = Scales.of(Y, logs=[True, False])
    np.testing.assert_allclose(scales.back(scales.into(Y)), Y, rtol=1e-12)
    np.testing.assert_allclose(np.nanmean(scales.into(Y), axis=0), 0.0, atol=1e-12)


@pytest.mark.parametrize(
    ("options", "Y", "said"),
    [
        ({}, np.where([True, False], F, np.nan), "nothing was seen of 1: each output needs a value"),
        ({"logs": "yes"}, F, "logs must be 'auto', True, False or one of these for each output, got 'yes'"),
        ({"logs": True}, F, "logs were asked for, but 0 holds values that are not positive: leave them out of logs="),
        ({"kernel": sg.Matern32()}, F, "there are 2 outputs, but the kernel knows of no outputs: give one such as LMC"),
        ({"kernel": sg.LMC(3, sg.Matern32())}, F, "there are 2 outputs, but the kernel has 3: give one such as LMC"),
    ],
)
def test_messages(options, Y, said):
    with pytest.raises(ValueError, match=said):
        sg.MultiOutputGP(**QUICK, **options).fit(T, Y)
    with pytest.raises(ValueError, match="lags are along time, one column, but X has 2: leave out lags="):
        sg.MultiOutputGP(lags=True).fit(np.column_stack([T, T]), F)
