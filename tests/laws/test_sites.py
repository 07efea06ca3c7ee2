"""Laws of inference: what holds for every likelihood, every way of finding sites and every engine."""

import itertools

import jax
import numpy as np
import pytest

import structgp as sg
import zoo
from structgp.inference.choose import INFERENCES
from structgp.inputs.layouts import as_inputs
from structgp.inputs.observations import read_observations
from structgp.learn import sites
from structgp.learn.objective import Objective
from structgp.parameters.tree import free_vector

X = zoo.X[1][:, 0]
XS = zoo.XS[1][:, 0]
LATENT = zoo.Y[1]
KERNEL = sg.Matern32(0.8, 1.4)


def observations(name):
    """A model whose likelihood stands in the zoo, N observations that could be its own, and their extra numbers."""
    likelihood, y, extra = zoo.OBSERVED_THROUGH[name]
    if name in ("Gaussian", "StudentT", "LaplaceNoise", "MixtureNoise"):
        y = LATENT + np.where(np.arange(zoo.N) % 7 == 3, 3.0, 0.0)  # with outliers
        return likelihood, y, None
    at = np.digitize(LATENT, np.quantile(LATENT, [1 / 3, 2 / 3]))  # three observations, the larger the higher f is
    return likelihood, np.asarray(y)[at], None if extra == 1.0 else np.asarray(extra)[at]


def objective(name, method, structure, mean):
    likelihood, y, extra = observations(name)
    gp = sg.GP(KERNEL, likelihood, mean)
    inputs = as_inputs(X)
    data = read_observations(gp.likelihood, y, None, "error", inputs, extra)
    return gp, Objective(gp, sites.SiteEvidence(gp, inputs, data, gp.plan(X, structure).engine, INFERENCES[method]))


# one likelihood of each kind by the method it chooses, and every method for the two hardest: steep, and not log-concave
KINDS = ("probit with flips", "Ordinal logit", "NegativeBinomial", "LaplaceNoise", "MixtureNoise", "Weibull")
CASES = [(name, zoo.OBSERVED_THROUGH[name][0].default_inference) for name in KINDS]
CASES += [(name, method) for name in ("probit", "StudentT") for method in INFERENCES]
CASES.remove(("StudentT", "ep"))  # which does not converge here, and says so
ALONG_TIME = [case for case in CASES if case[0] in ("probit", "StudentT")]


EACH_ONCE = [("ep", "markov"), ("power-ep", "dense"), ("variational", "markov"), ("laplace", "dense")]


@pytest.mark.parametrize(("method", "structure"), zoo.mostly_full(itertools.product(INFERENCES, zoo.ENGINES), *EACH_ONCE))
def test_gaussian_observations_give_the_exact_posterior(method, structure):
    gp = sg.GP(zoo.SOME_KERNEL.get(structure, KERNEL), sg.Gaussian(0.15), 0.3)
    exact = gp.condition(X, LATENT, structure="dense")
    found = gp.condition(X, LATENT, inference=method, structure=structure)
    assert found.inference.converged
    assert found.inference.calls <= 5
    assert found.log_evidence == pytest.approx(exact.log_evidence, rel=1e-11)
    np.testing.assert_allclose(found.predict(XS).mean, exact.predict(XS).mean, rtol=1e-9)
    np.testing.assert_allclose(found.predict(XS).variance, exact.predict(XS).variance, rtol=1e-9)


@pytest.mark.parametrize(("name", "method"), zoo.mostly_full(CASES, ("StudentT", "variational")))
def test_gradients_are_those_of_the_evidence(name, method, monkeypatch):
    monkeypatch.setattr(sites, "LEARNING", 1e-9)
    with jax.enable_x64(True):
        gp, dense = objective(name, method, "dense", sg.ConstantMean(0.3))
        theta = free_vector(gp)
        value, gradient = dense(theta)
        assert value > -1e6
        if (name, method) in ALONG_TIME:
            there, along_time = objective(name, method, "markov", sg.ConstantMean(0.3))[1](theta)
            assert there == pytest.approx(value, rel=1e-7)
            np.testing.assert_allclose(along_time, gradient, rtol=1e-6, atol=1e-7)
    step = 1e-4
    for i in range(len(theta)):
        move = step * (np.arange(len(theta)) == i)
        difference = (dense(theta + move)[0] - dense(theta - move)[0]) / (2 * step)
        assert gradient[i] == pytest.approx(difference, rel=2e-5, abs=2e-6), i


HARDEST = [("probit", "ep"), ("StudentT", "variational"), ("StudentT", "laplace")]
EACH = [(*case, kernel) for case in HARDEST for kernel in ("Matern52", "Sum", "ChangePoint")]


@pytest.mark.parametrize(("name", "method", "kernel"), zoo.mostly_full(EACH, ("probit", "ep", "Sum")))
def test_markov_equals_dense(name, method, kernel):
    kernel = {"Matern52": sg.Matern52(0.7, 2.0)}.get(kernel) or zoo.KERNELS[kernel][0]
    likelihood, y, _ = observations(name)
    gp = sg.GP(kernel, likelihood, sg.polynomial(1))  # with weights about which nothing is known
    a, b = (gp.condition(X, y, inference=method, structure=structure) for structure in ("dense", "markov"))
    assert a.log_evidence == pytest.approx(b.log_evidence, rel=1e-7)
    np.testing.assert_allclose(a.inference.mean, b.inference.mean, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(a.inference.variance, b.inference.variance, rtol=1e-6)
    np.testing.assert_allclose(a.predict(XS).mean, b.predict(XS).mean, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(a.predict(XS).variance, b.predict(XS).variance, rtol=1e-6)
