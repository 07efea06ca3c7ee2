"""Markov chain Monte Carlo on the latents: right on average where the answer is known, and the referee where it is not."""

import itertools

import numpy as np
import pytest

import structgp as sg
import zoo
from structgp.inference.mcmc import effective_sample_size

N, DRAWS = 16, 4000
RNG = np.random.default_rng(3)
X = np.sort(RNG.uniform(-2.0, 2.0, N))[RNG.permutation(N)]
Y = np.sin(2 * X) + 0.4 * RNG.standard_normal(N)
LABELS = (Y > 0).astype(float)
KERNEL = sg.Matern32(0.9, 1.2)
LIKELIHOOD = sg.Gaussian(0.3)


def within_error(draws, mean, variance):
    """How far averages are from the truth, in standard errors: a root mean square over the places."""
    count = draws.effective_sample_size
    of_mean = (draws.mean - mean) / np.sqrt(variance / count)
    of_variance = (draws.variance / variance - 1) / np.sqrt(2 / count)
    return np.sqrt(np.mean(of_mean**2)), np.sqrt(np.mean(of_variance**2))


@pytest.mark.parametrize(
    ("method", "structure"),
    zoo.mostly_full(itertools.product(["elliptical", "hmc"], ["dense", "markov"]), ("elliptical", "markov")),
)
def test_gaussian_moments_are_those_of_the_exact_posterior(method, structure):
    if method == "hmc":
        pytest.importorskip("blackjax")
    mean = sg.Basis(lambda x: np.ones(1) + 0 * x, 0.2, 0.5) if structure == "dense" else 0.2
    gp = sg.GP(KERNEL, likelihood=LIKELIHOOD, mean=mean)
    exact = gp.condition(X, Y).predict(X)
    draws = gp.mcmc(X, Y, n=DRAWS, seed=1, method=method, structure=structure)
    assert draws.draws.shape == (DRAWS, N)
    assert 0 < draws.acceptance <= 1
    assert draws.effective_sample_size.min() > (1000 if method == "hmc" else 40)
    assert max(within_error(draws, exact.mean, exact.variance)) < 2


@pytest.mark.full
def test_probit_agrees_with_expectation_propagation():
    gp = sg.GP(sg.Matern32(0.9, 1.2), likelihood=sg.Bernoulli())
    ep = gp.condition(X, LABELS, inference="ep").predict(X)
    draws = gp.mcmc(X, LABELS, n=2 * DRAWS, thin=4, seed=2, structure="dense")
    # EP itself is off by some hundredths of a standard deviation here.
    assert draws.effective_sample_size.min() > 400
    assert np.abs((draws.mean - ep.mean) / ep.sd).max() < 0.12
    assert np.abs(draws.variance / ep.variance - 1).max() < 0.2


@pytest.mark.full
def test_classes_missing_labels_and_weights():
    labels = np.digitize(Y, [-0.4, 0.4]).astype(float)
    labels[3] = np.nan
    weights = np.linspace(0.5, 1.5, N)
    gp = sg.GP(sg.Matern32(0.9, 0.3), likelihood=sg.Categorical(classes=3))
    laplace = gp.condition(X, labels, missing="infer", weights=weights)
    draws = gp.mcmc(X, labels, n=DRAWS, seed=4, missing="infer", weights=weights)
    assert draws.draws.shape == (DRAWS, N, 3)
    # With so little prior variance the posterior is close to a Gaussian.
    assert np.abs(draws.mean - laplace.inference.mean).max() < 0.1
    assert np.abs(draws.variance / laplace.inference.variance - 1).max() < 0.25


def test_same_seed_same_draws():
    gp = sg.GP(KERNEL, likelihood=LIKELIHOOD, mean=0.2)
    one, two, three = (gp.mcmc(X, Y, n=DRAWS, seed=seed, structure="markov").draws for seed in (1, 1, 5))
    np.testing.assert_array_equal(one, two)
    assert not np.array_equal(one, three)


def test_effective_sample_size_of_an_autoregression():
    rng, rho, n = np.random.default_rng(0), 0.8, 20000
    noise = rng.standard_normal((n, 5))
    chain = np.empty_like(noise)
    chain[0] = noise[0]
    for i in range(1, n):
        chain[i] = rho * chain[i - 1] + np.sqrt(1 - rho**2) * noise[i]
    np.testing.assert_allclose(effective_sample_size(chain), n * (1 - rho) / (1 + rho), rtol=0.15)
    np.testing.assert_allclose(effective_sample_size(noise), n, rtol=0.1)
    assert effective_sample_size(np.ones((10, 1))) == 10


def test_messages(monkeypatch):
    gp = sg.GP(KERNEL, likelihood=LIKELIHOOD)
    with pytest.raises(ValueError, match=r"method must be one of \['elliptical', 'hmc', 'gibbs'\], got 'walk'"):
        gp.mcmc(X, Y, method="walk")
    with pytest.raises(ValueError, match="thin must be a whole number of at least 1, got 0"):
        gp.mcmc(X, Y, thin=0)
    with pytest.raises(ValueError, match="one target, got 2"):
        gp.mcmc(X, np.stack([Y, Y], axis=1))
    with pytest.raises(ValueError, match="leaves some functions free"):
        sg.GP(sg.Spline(), likelihood=LIKELIHOOD).mcmc(X, Y)
    monkeypatch.setitem(__import__("sys").modules, "blackjax", None)
    with pytest.raises(ImportError, match=r"pip install structgp\[mcmc\]"):
        gp.mcmc(X, Y, method="hmc")
