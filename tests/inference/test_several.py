"""Likelihoods of several latents of one's own: every method on every engine, against one latent where that says the same."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.stats import norm

import structgp as sg
import zoo
from structgp.inference.choose import INFERENCES, choose
from structgp.inputs.layouts import as_inputs
from structgp.inputs.observations import read_observations
from structgp.learn import sites
from structgp.learn.objective import Objective
from structgp.likelihoods.base import Likelihood
from structgp.parameters.tree import free_vector

N = 14
RNG = np.random.default_rng(5)
X = np.sort(RNG.uniform(-2.0, 2.0, N))[RNG.permutation(N)]
XS = np.linspace(-2.5, 2.5, 6)
TREND, WIGGLE = sg.Matern52(1.5, 1.2), sg.Matern32(0.5, 0.6)
F = np.sin(2 * X) + 0.3 * RNG.standard_normal(N)


class OfSum(Likelihood):
    """What another likelihood makes of the sum of two latents."""

    inner: Likelihood

    @property
    def latents(self):
        return 2

    @property
    def coupled(self):
        return True

    @property
    def log_concave(self):
        return self.inner.log_concave

    def check(self, y, extra=None):
        return self.inner.check(y, extra)

    def log_prob(self, y, f, extra=1.0):
        return self.inner.log_prob(y, jnp.sum(f, -1), extra)

    def log_tilted(self, y, mean, variance, power=1.0, extra=1.0):
        return self.inner.log_tilted(y, jnp.sum(mean, -1), jnp.sum(variance, (-1, -2)), power, extra)

    def tilted_derivatives(self, y, mean, variance, power=1.0, extra=1.0):
        parts = self.inner.tilted_derivatives(y, jnp.sum(mean, -1), jnp.sum(variance, (-1, -2)), power, extra)
        return parts[0], parts[1][..., None] * jnp.ones(2), parts[2][..., None, None] * jnp.ones((2, 2))

    def expected_log_prob(self, y, mean, variance, extra=1.0):
        return self.inner.expected_log_prob(y, jnp.sum(mean, -1), jnp.sum(variance, (-1, -2)), extra)


class Labels(Likelihood):
    """y = 2a + b of two labels, each of a latent of its own."""

    @property
    def latents(self):
        return 2

    @property
    def log_concave(self):
        return True

    def parts(self, y):
        return jnp.stack([y // 2, y % 2], -1)

    def log_prob(self, y, f, extra=1.0):
        return jnp.sum(sg.Bernoulli().log_prob(self.parts(y), f), -1)

    def log_tilted(self, y, mean, variance, power=1.0, extra=1.0):
        return jnp.sum(sg.Bernoulli().log_tilted(self.parts(y), mean, variance, power), -1)

    def tilted_derivatives(self, y, mean, variance, power=1.0, extra=1.0):
        value, slope, k = sg.Bernoulli().tilted_derivatives(self.parts(y), mean, variance, power)
        return jnp.sum(value, -1), slope, k

    def expected_log_prob(self, y, mean, variance, extra=1.0):
        return jnp.sum(sg.Bernoulli().expected_log_prob(self.parts(y), mean, variance), -1)


class Gated(Likelihood):
    """y is near f where the gate u is open, and far where it is shut: latents (u, f), whose sites may be negative."""

    near: jax.Array = sg.parameter(0.05, sg.positive)
    far: jax.Array = sg.parameter(4.0, sg.positive)

    @property
    def latents(self):
        return 2

    @property
    def default_inference(self):
        return "ep"

    def leaves(self, y, mean, variance):
        s = jnp.sqrt(1 + variance[..., 0])
        noises = jnp.stack([variance[..., 1] + self.near, variance[..., 1] + self.far], -1)
        signs, off = jnp.array([1.0, -1.0]), (y - mean[..., 1])[..., None]
        a = (mean[..., 0] / s)[..., None] * signs
        logs = norm.logcdf(a) + norm.logpdf(off, scale=jnp.sqrt(noises))
        ratio = signs * jnp.exp(norm.logpdf(a) - norm.logcdf(a))
        gate = ratio / s[..., None], ratio * (ratio + signs * a) / (s**2)[..., None]
        return logs, jnp.stack([gate[0], off / noises], -1), jnp.stack([gate[1], 1 / noises], -1)

    def log_prob(self, y, f, extra=1.0):
        return self.log_tilted(y, f, jnp.zeros_like(f))

    def log_tilted(self, y, mean, variance, power=1.0, extra=1.0):
        return jax.nn.logsumexp(self.leaves(y, mean, variance)[0], axis=-1)

    def tilted_derivatives(self, y, mean, variance, power=1.0, extra=1.0):
        logs, slopes, bends = self.leaves(y, mean, variance)
        weight = jax.nn.softmax(logs, axis=-1)[..., None]
        slope = jnp.sum(weight * slopes, -2)
        return jax.nn.logsumexp(logs, axis=-1), slope, slope**2 - jnp.sum(weight * (slopes**2 - bends), -2)


INNER = {
    "Gaussian": (sg.Gaussian(0.2), F),
    "Bernoulli": (sg.Bernoulli(), (F > 0) * 1.0),
    "StudentT": (sg.StudentT(), F + (X > 1.5)),
}
METHODS = [(name, method) for name in INNER for method in INFERENCES]
METHODS.remove(("StudentT", "ep"))  # which need not converge
CASES = [(*case, structure) for case in METHODS for structure in ("dense", "markov")]
KEPT = [("Bernoulli", "ep", "markov")]


@pytest.mark.parametrize(("name", "method", "structure"), zoo.mostly_full(CASES, *KEPT))
def test_two_latents_seen_through_their_sum_are_one(name, method, structure):
    likelihood, y = INNER[name]
    one = sg.GP(TREND + WIGGLE, likelihood, 0.3).condition(X, y, inference=method)
    two = sg.GP(sg.Independent(TREND, WIGGLE), OfSum(likelihood), sg.ConstantMean([0.1, 0.2]))
    two = two.condition(X, y, inference=method, structure=structure)
    assert one.inference.converged
    assert two.inference.converged
    assert two.log_evidence == pytest.approx(one.log_evidence, rel=1e-8)
    p, q = one.predict(XS), two.predict(XS)
    np.testing.assert_allclose(q.mean.sum(axis=-1), p.mean, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(q.covariance.sum(axis=(-1, -2)), p.variance, rtol=1e-6)


@pytest.mark.parametrize(
    ("method", "structure"),
    zoo.mostly_full(itertools.product(("ep", "variational"), ("dense", "markov")), ("variational", "dense")),
)
def test_latents_that_are_apart_are_problems_of_their_own(method, structure):
    first, second = (F > 0) * 1.0, (np.cos(3 * X) > 0.2) * 1.0
    each = [
        sg.GP(kernel, sg.Bernoulli(), mean).condition(X, y, inference=method)
        for kernel, mean, y in ((TREND, 0.1, first), (WIGGLE, -0.2, second))
    ]
    gp = sg.GP(sg.Independent(TREND, WIGGLE), Labels(), sg.ConstantMean([0.1, -0.2]))
    both = gp.condition(X, 2 * first + second, inference=method, structure=structure)
    assert both.inference.converged
    assert both.inference.w.shape == (N, 2)
    assert both.log_evidence == pytest.approx(sum(one.log_evidence for one in each), rel=1e-9)
    p = both.predict(XS)
    np.testing.assert_allclose(p.mean, np.stack([one.predict(XS).mean for one in each], axis=1), rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(p.variance, np.stack([one.predict(XS).variance for one in each], axis=1), rtol=1e-6)
    np.testing.assert_array_equal(p.covariance[:, 0, 1], 0.0)


@pytest.mark.parametrize("case", zoo.mostly_full(["negative, apart", "full"], "full"))
def test_gradients_are_those_of_the_evidence(case, monkeypatch):
    monkeypatch.setattr(sites, "LEARNING", 1e-9)
    y = F + np.where(np.abs(X - 0.3) < 0.4, 2.0, 0.0)
    likelihood, y = (Gated(), y) if case == "negative, apart" else (OfSum(sg.Bernoulli()), (F > 0) * 1.0)
    gp, inputs = sg.GP(sg.Independent(WIGGLE, TREND), likelihood, sg.ConstantMean([0.8, 0.1])), as_inputs(X)
    with jax.enable_x64(True):
        data, rule = read_observations(gp.likelihood, y, None, "error", inputs), choose(gp.likelihood, None)
        dense, along = (
            Objective(gp, sites.SiteEvidence(gp, inputs, data, gp.plan(inputs, structure).engine, rule))
            for structure in ("dense", "markov")
        )
        theta = free_vector(gp)
        value, gradient = dense(theta)
        there, along_time = along(theta)
    assert value > -1e3
    assert there == pytest.approx(value, rel=1e-8)
    np.testing.assert_allclose(along_time, gradient, rtol=1e-6, atol=1e-7)
    step = 1e-4
    for i in range(len(theta)):
        move = step * (np.arange(len(theta)) == i)
        difference = (dense(theta + move)[0] - dense(theta - move)[0]) / (2 * step)
        assert gradient[i] == pytest.approx(difference, rel=2e-5, abs=2e-6), i


@pytest.mark.full
def test_sites_may_be_negative():
    y = F + np.where(np.abs(X - 0.3) < 0.4, 2.0, 0.0)
    fitted = sg.GP(sg.Independent(WIGGLE, TREND), Gated(), sg.ConstantMean([0.8, 0.1])).condition(X, y)
    assert fitted.inference.converged
    assert fitted.inference.w.min() < 0
    draws, p = fitted.sample(XS, n=4000, seed=1), fitted.predict(XS)
    np.testing.assert_allclose(draws.var(axis=0), p.variance, rtol=0.12)


@pytest.mark.full
def test_what_one_latent_answers_alone():
    fitted = sg.GP(sg.Independent(TREND, WIGGLE), OfSum(sg.Bernoulli())).condition(X, (F > 0) * 1.0)
    with pytest.raises(ValueError, match="a prediction of 2 latents has their covariance at each place"):
        fitted.predict(XS, covariance=True)
    with pytest.raises(ValueError, match="derivatives are of one latent function, and OfSum sees several"):
        fitted.derivative(XS)
    assert fitted.gradient(XS).shape == (len(XS), 1, 2)
    assert fitted.degrees_of_freedom == pytest.approx(
        sg.GP(TREND + WIGGLE, sg.Bernoulli()).condition(X, (F > 0) * 1.0).degrees_of_freedom, rel=1e-6
    )
