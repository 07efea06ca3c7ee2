"""Ratios of Γ at places far out, where log Γ itself has lost the digits that count."""

import jax
import numpy as np

from structgp.linalg.gamma import log_gamma_ratio

A = np.concatenate([np.geomspace(0.01, 1e12, 60), [16 - 1e-9, 16.0, 16 + 1e-9]])


def test_steps_add_up_to_what_the_recurrence_says(x64):
    """Γ(a + 1) = a Γ(a), in one step and in two halves, and Γ(a + 3) = a (a + 1) (a + 2) Γ(a)."""
    close = {"rtol": 1e-13, "atol": 1e-13}  # log Γ reaches 28 before the series takes over: rounding of up to 6e-15
    np.testing.assert_allclose(log_gamma_ratio(A, 1.0), np.log(A), **close)
    np.testing.assert_allclose(log_gamma_ratio(A, 0.5) + log_gamma_ratio(A + 0.5, 0.5), np.log(A), **close)
    np.testing.assert_allclose(log_gamma_ratio(A, 3.0), np.log(A) + np.log1p(A) + np.log(A + 2), **close)


def test_the_slope_is_that_of_the_logarithm(x64):
    slopes = jax.vmap(jax.grad(lambda a: log_gamma_ratio(a, 1.0)))(A)
    np.testing.assert_allclose(slopes, 1 / A, rtol=1e-10, atol=1e-14)
