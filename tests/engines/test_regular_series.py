"""Regular series of kernels without a finite state: what users ask of them, against the whole matrix."""

import numpy as np
import pytest

import structgp as sg

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
