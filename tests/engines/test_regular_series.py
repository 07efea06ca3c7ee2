"""Regular series of kernels without a finite state: what users ask of them, against the whole matrix."""

import functools

import numpy as np
import pytest

import structgp as sg
from structgp.engines.machine import reference
from structgp.learn.evidence import evidence_objective
from structgp.parameters.tree import free_vector

T = np.random.default_rng(2).permutation(np.arange(150) / 12.0)
KERNEL = sg.Periodic(period=1.0) * sg.SquaredExponential(5.0) + sg.SquaredExponential(2.0)
Y = np.sin(2 * np.pi * T) + 0.1 * T
LATER = np.concatenate([T.max() + np.arange(1, 25) / 12.0, [0.031, 4.444]])


def both(noise):
    gp = sg.GP(KERNEL, likelihood=sg.Gaussian(noise=noise), mean=sg.polynomial(1))
    return [gp.condition(T, Y, structure=structure) for structure in ("toeplitz", "dense")]


@pytest.mark.parametrize(("noise", "right_to"), [(1e-2, 1e-8), (1e-5, 1e-3)])
def test_many_places_at_low_noise(noise, right_to):
    """Variances right to a part of the noise: at 1e-5 of a variance of 2 both ways have lost ten of sixteen digits."""
    ours, dense = both(noise)
    np.testing.assert_allclose(ours.log_evidence, dense.log_evidence, rtol=1e-8)
    for found, expected in ((ours.predict(LATER), dense.predict(LATER)), (ours.leave_one_out(), dense.leave_one_out())):
        np.testing.assert_allclose(found.mean, expected.mean, rtol=0, atol=right_to * np.sqrt(noise))
        np.testing.assert_allclose(found.variance, expected.variance, rtol=right_to, atol=right_to * noise)
    joint = [fitted.predict(LATER, covariance=True).covariance for fitted in (ours, dense)]
    np.testing.assert_allclose(*joint, rtol=right_to, atol=right_to * noise)


def test_draws_follow_the_joint_covariance():
    ours, _ = both(1e-2)
    expected = ours.predict(LATER, covariance=True)
    draws = ours.sample(LATER, n=4000, seed=0)
    np.testing.assert_allclose(draws.mean(axis=0), expected.mean, atol=6 * np.sqrt(expected.variance.max() / 4000))
    np.testing.assert_allclose(np.cov(draws.T), expected.covariance, atol=0.1 * expected.variance.max())


GONE = np.sort(np.r_[0:3, 30:54, [60, 77, 101], 148:150])  # in the order of time: the ends, two years at once, some months
GAPPED = np.where(np.isin(np.argsort(np.argsort(T)), GONE), np.nan, Y)


@functools.cache
def both_with_gaps(noise):
    gp = sg.GP(KERNEL, likelihood=sg.Gaussian(noise=noise), mean=sg.polynomial(1))
    return [gp.condition(T, GAPPED, missing="infer", structure=structure) for structure in ("toeplitz", "dense")]


@pytest.mark.parametrize(("noise", "right_to"), [(1e-2, 1e-8), (1e-5, 1e-3)])
def test_times_without_a_value(noise, right_to):
    """Everything is that of the whole matrix, at times that were seen, at those that were not, and at others."""
    ours, dense = both_with_gaps(noise)
    assert ours.plan.engine.name == "Toeplitz"
    assert f"one more solution for each missing value ({len(GONE)})" in str(ours.plan)
    np.testing.assert_allclose(ours.log_evidence, dense.log_evidence, rtol=1e-8)
    for places in (LATER, T):
        found, expected = ours.predict(places), dense.predict(places)
        np.testing.assert_allclose(found.mean, expected.mean, rtol=0, atol=right_to * np.sqrt(noise))
        np.testing.assert_allclose(found.variance, expected.variance, rtol=right_to, atol=right_to * noise)
    for name in ("mean", "variance"):
        found, expected = (getattr(fitted.leave_one_out(), name) for fitted in (ours, dense))
        np.testing.assert_allclose(found, expected, rtol=right_to, atol=right_to * np.sqrt(noise))
    joint = [fitted.predict(LATER, covariance=True).covariance for fitted in (ours, dense)]
    np.testing.assert_allclose(*joint, rtol=right_to, atol=right_to * noise)


def test_slopes_and_parts_of_a_series_with_gaps(tmp_path):
    ours, dense = both_with_gaps(1e-2)
    slopes = [
        evidence_objective(one.gp, one.inputs, one.data, one.plan.engine)(free_vector(one.gp))[1] for one in (ours, dense)
    ]
    np.testing.assert_allclose(*slopes, rtol=1e-7, atol=1e-7 * np.abs(slopes[1]).max())
    parts = [fitted.predict(T, part=1) for fitted in (ours, dense)]
    np.testing.assert_allclose(parts[0].mean, parts[1].mean, rtol=1e-7, atol=1e-8)
    np.testing.assert_allclose(parts[0].variance, parts[1].variance, rtol=1e-7)
    ours.save(tmp_path / "gaps.structgp")
    again = sg.load(tmp_path / "gaps.structgp")
    assert again.plan.engine == ours.plan.engine
    np.testing.assert_array_equal(again.predict(T).variance, ours.predict(T).variance)


def test_the_plan_counts_gaps():
    """A few of them leave transforms, most of them the whole matrix, and unequal noise asks for another way."""
    t, y = np.arange(2000.0), np.zeros(2000)
    gp = sg.GP(sg.SquaredExponential(20.0))
    seconds = {}
    for gaps in (0, 10, 1000, 1900):
        plan = gp.plan(t, y=np.where(np.arange(2000) % 2000 < gaps, np.nan, y))
        seconds[gaps] = reference().seconds(plan.chosen.cost.evaluation)
        assert plan.engine.name == ("Cholesky" if gaps > 500 else "Toeplitz"), gaps
    assert seconds[10] < 2 * seconds[0] < 0.1 * seconds[1900]
    with pytest.raises(ValueError, match="some times have no value, or a noise of their own"):
        gp.plan(t, y=np.where(t == 7, np.nan, y), noise=t, structure="toeplitz")
    with pytest.raises(ValueError, match="cannot be had: nothing was seen"):
        gp.plan(t, y=np.full(2000, np.nan), structure="toeplitz")


def test_rows_that_are_left_out_are_as_if_missing():
    """Dropped or marked, a value that is not there is the same; what lies between the steps ends it."""
    gp, kept = both_with_gaps(1e-2)[0].gp, ~np.isnan(GAPPED)
    kept[np.argmin(T)] = kept[np.argmax(T)] = True  # else the series would be shorter
    marked = gp.condition(T, np.where(kept, Y, np.nan), missing="infer", structure="toeplitz")
    dropped = gp.condition(T[kept], Y[kept], structure="toeplitz")
    assert dropped.plan.engine == marked.plan.engine
    np.testing.assert_allclose(dropped.log_evidence, marked.log_evidence, rtol=1e-12)
    np.testing.assert_allclose(dropped.predict(T).mean, marked.predict(T).mean, rtol=0, atol=1e-10)
    np.testing.assert_allclose(dropped.predict(T).variance, marked.predict(T).variance, rtol=1e-9)
    np.testing.assert_allclose(dropped.leave_one_out().mean, marked.leave_one_out().mean[kept], rtol=0, atol=1e-10)
    long = np.delete(np.arange(2000) / 48, [17, 18, 500])
    assert sg.GP(KERNEL).plan(long).engine.name == "Toeplitz"
    assert sg.GP(KERNEL).plan(np.append(long, 3.001)).engine.name == "Cholesky"
