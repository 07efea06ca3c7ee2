"""Densities against SciPy's, draws against their own moments."""

import jax
import numpy as np
import pytest
from scipy import stats

import structgp as sg

PRIORS = {
    "Normal": (sg.Normal(0.3, 1.4), stats.norm(0.3, 1.4)),
    "LogNormal": (sg.LogNormal(0.3, 0.6), stats.lognorm(0.6, scale=np.exp(0.3))),
    "Gamma": (sg.Gamma(2.5, 1.7), stats.gamma(2.5, scale=1 / 1.7)),
    "Gamma-1": (sg.Gamma(1.0, 1.7), stats.gamma(1.0, scale=1 / 1.7)),
    "InverseGamma": (sg.InverseGamma(5.5, 1.7), stats.invgamma(5.5, scale=1.7)),
    "HalfNormal": (sg.HalfNormal(1.4), stats.halfnorm(scale=1.4)),
    "HalfCauchy": (sg.HalfCauchy(1.4), stats.halfcauchy(scale=1.4)),
    "Uniform": (sg.Uniform(-0.5, 2.0), stats.uniform(-0.5, 2.5)),
    "Beta": (sg.Beta(2.5, 1.3), stats.beta(2.5, 1.3)),
}
AT = np.array([-1.0, -1e-3, 1e-3, 0.2, 0.7, 0.9, 1.5, 8.0])


@pytest.mark.parametrize("name", PRIORS)
def test_density(name, x64):
    ours, theirs = PRIORS[name]
    np.testing.assert_allclose(ours.log_prob(AT), theirs.logpdf(AT), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("name", PRIORS)
def test_slope(name, x64):
    """Finite inside, and no NaN outside, where the density is zero."""
    ours, theirs = PRIORS[name]
    slope = np.asarray(jax.vmap(jax.grad(lambda v: ours.log_prob(v)))(AT))
    inside = theirs.pdf(AT) > 0
    assert not np.isnan(slope).any()
    step = 1e-5 * np.abs(AT[inside])
    differences = (theirs.logpdf(AT[inside] + step) - theirs.logpdf(AT[inside] - step)) / (2 * step)
    np.testing.assert_allclose(slope[inside], differences, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", PRIORS)
def test_draws(name):
    ours, theirs = PRIORS[name]
    n = 20_000
    draws = ours.sample(np.random.default_rng(0), (n,))
    u = theirs.cdf(draws)  # uniform if the draws are right
    for values, mean, variance in [(u, 1 / 2, 1 / 12), (u**2, 1 / 3, 4 / 45)]:
        assert abs(values.mean() - mean) < 5 * np.sqrt(variance / n)
    assert ours.sample(np.random.default_rng(0), (2, 3)).shape == (2, 3)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: sg.Normal(0.0, 0.0), "Normal: sd must be positive, got 0"),
        (lambda: sg.Gamma(-1.0, 1.0), "Gamma: shape must be positive, got -1"),
        (lambda: sg.LogNormal(np.nan, 1.0), "LogNormal: mean must be finite, got nan"),
        (lambda: sg.Uniform(1.0, 0.0), "low must be below high, got 1.0 and 0.0"),
        (lambda: sg.Uniform(0.0, np.inf), "Uniform: high must be finite, got inf"),
    ],
)
def test_what_is_refused(make, text):
    with pytest.raises(ValueError, match=text):
        make()
