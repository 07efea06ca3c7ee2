"""Whatever can be fitted can be averaged over, by every word of `parameters`, and answers what the process at its mode does."""

import itertools

import matplotlib
import numpy as np
import pytest

import structgp as sg
import zoo
from structgp.learn.believe import believe
from structgp.learn.peak import METHODS, Averaging, Draws, Evidence
from structgp.parameters.tree import free_vector
from structgp.posterior import Prediction
from structgp.process.fitted import Fitted
from structgp.process.mixture import FittedMixture, MixturePrediction

RNG = np.random.default_rng(8)
T = np.linspace(0.0, 5.5, 12)
SCATTERED = np.sort(RNG.uniform(0, 6, 12))
Y = np.sin(T) + 0.1 * RNG.standard_normal(12)
GRID = sg.Grid(np.linspace(0, 1, 4), np.linspace(0, 1, 3))
ON_GRID = np.sin(5 * np.asarray(GRID.points).sum(axis=1))
HOLES = np.where(np.isin(np.arange(12), [4, 7]), np.nan, ON_GRID)
TABLE = RNG.standard_normal((12, 2))
OF_TABLE = np.sin(TABLE.sum(axis=1))
GAPS = np.where(np.isin(np.arange(12), [3, 8]), np.nan, Y)
PRODUCT = sg.Matern52().on(0) * sg.Matern32().on(1)
LINES = sg.Matern32().on(0) + sg.Matern32(2.0).on(1)
BOTH = np.stack([Y, 0.5 * Y + np.cos(T)], axis=1)
OUTPUTS = sg.LMC(2, sg.Matern32())
LATENTS = sg.Independent(sg.Matern32(2.0) + sg.Constant(), sg.Matern52())

# name: kernel, likelihood, places, observations, how
CASES = {
    "dense": (sg.Matern52() + sg.Constant(), sg.Gaussian(0.1), SCATTERED, Y, {"structure": "dense"}),
    "dense of two columns": (sg.Matern52(np.ones(2)), sg.Gaussian(0.1), TABLE, OF_TABLE, {"structure": "dense"}),
    "dense and labels": (sg.Matern52(), sg.Bernoulli(), SCATTERED, Y > 0, {"structure": "dense"}),
    "chain": (sg.Matern52() + sg.Matern12(), sg.Gaussian(0.1), SCATTERED, Y, {"structure": "markov"}),
    "chain and counts": (sg.Matern32(), sg.Poisson(), SCATTERED, np.round(2 + 2 * Y), {"structure": "markov"}),
    "regular chain": (sg.Matern32(), sg.Gaussian(0.1), T, Y, {"structure": "markov"}),
    "regular chain with gaps": (sg.Matern32(), sg.Gaussian(0.1), T, GAPS, {"structure": "markov", "missing": "infer"}),
    "finite state": (sg.SquaredExponential(), sg.Gaussian(0.1), T, Y, {"approximate": "state-space"}),
    "toeplitz": (sg.SquaredExponential(), sg.Gaussian(0.1), T, Y, {"structure": "toeplitz"}),
    "toeplitz with gaps": (sg.Matern52(), sg.Gaussian(0.1), T, GAPS, {"structure": "toeplitz", "missing": "infer"}),
    "kronecker": (PRODUCT, sg.Gaussian(0.1), GRID, ON_GRID.reshape(4, 3), {"structure": "kronecker"}),
    "kronecker with holes": (PRODUCT, sg.Gaussian(0.1), GRID, HOLES, {"structure": "kronecker", "missing": "infer"}),
    "kronecker and labels": (PRODUCT, sg.Bernoulli(), GRID, ON_GRID > 0, {"structure": "kronecker"}),
    "space-time": (PRODUCT, sg.Gaussian(0.1), GRID, ON_GRID, {"structure": "space-time"}),
    "space-time with holes": (PRODUCT, sg.Gaussian(0.1), GRID, HOLES, {"structure": "space-time", "missing": "infer"}),
    "toeplitz of a grid": (PRODUCT, sg.Gaussian(0.1), GRID, ON_GRID, {"structure": "toeplitz-grid"}),
    "sum of lines": (LINES, sg.Gaussian(0.1), TABLE, OF_TABLE, {"structure": "additive"}),
    "features": (sg.Constant() + sg.Polynomial(0.2, 0.5, degree=3), sg.Gaussian(0.1), T, Y, {"structure": "features"}),
    "inducing": (sg.Matern52(np.ones(2)), sg.Gaussian(0.1), TABLE, OF_TABLE, {"approximate": sg.Inducing(5)}),
    "inducing and labels": (sg.Matern52(), sg.Bernoulli(), TABLE, OF_TABLE > 0, {"approximate": sg.Inducing(5)}),
    "neighbours": (sg.Matern52(np.ones(2)), sg.Gaussian(0.1), TABLE, OF_TABLE, {"approximate": sg.Neighbours(4)}),
    "outputs": (OUTPUTS, sg.Gaussian(0.1), SCATTERED, BOTH, {"structure": "dense"}),
    "outputs by name": (OUTPUTS, sg.Gaussian(0.1), sg.Outputs({"a": T, "b": T[:8]}), {"a": Y, "b": -Y[:8]}, {}),
    "outputs at regular times": (OUTPUTS, sg.Gaussian(0.1), T, BOTH, {"structure": "toeplitz"}),
    "latents": (LATENTS, sg.Twinned(), SCATTERED, Y, {"structure": "dense"}),
    "latents along time": (LATENTS, sg.HeteroscedasticGaussian(), SCATTERED, Y, {"structure": "markov"}),
    "classes": (sg.Matern52(), sg.Categorical(classes=3), SCATTERED, np.digitize(Y, [-0.5, 0.5]), {}),
}
TWO = np.array([0.25, 0.75])


def places_of(name):
    places = CASES[name][2]
    if isinstance(places, sg.Grid):
        return np.array([[0.2, 0.4], [0.9, 1.1]])
    return np.array([[0.1, -0.4], [0.7, 1.1]]) if np.ndim(places) == 2 else np.array([0.7, 6.3])


def at_the_mode(name):
    """A process with the parameters that it has, and its average over two draws, both of which are there."""
    kernel, likelihood, places, y, how = CASES[name]
    mode = sg.GP(kernel, likelihood).condition(places, np.asarray(y, float) if not isinstance(y, dict) else y, **how)
    center = free_vector(mode.gp)
    beliefs = believe(mode.gp, np.asarray(mode.inputs.points), mode.data)
    draws = Draws(np.tile(center, (2, 1)), TWO, Evidence(0.0), "laplace", center, np.eye(len(center)), beliefs)
    return mode, FittedMixture(mode, draws)


def more_of(name, fitted):
    """The same given one more observation, as its data came."""
    places, value = places_of(name), np.array([1.0])
    if fitted.data.outputs:
        names = fitted.data.outputs
        return fitted.update(sg.Outputs({names[0]: [6.2]}), {names[0]: value})
    return fitted.update(places[:1], value)


QUESTIONS = {
    "predict": lambda f, x: f.predict(x),
    "quantile": lambda f, x: f.predict(x).quantile([0.1, 0.9]),
    "interval": lambda f, x: np.stack(f.predict(x).interval()),
    "log_prob": lambda f, x: f.predict(x).log_prob(np.ones(np.shape(f.predict(x).observed.mean))),
    "cumulative": lambda f, x: f.predict(x).cumulative(np.ones(np.shape(f.predict(x).observed.mean))),
    "observed": lambda f, x: f.predict(x).observed,
    "probability": lambda f, x: f.predict(x).probability,
    "signal": lambda f, x: f.predict(x).signal,
    "gate": lambda f, x: f.predict(x).gate,
    "outlier_probability": lambda f, x: f.predict(x).outlier_probability,
    "outlier_probability_of": lambda f, x: f.predict(x).outlier_probability_of(np.ones(2)),
    "covariance": lambda f, x: f.predict(x, covariance=True).covariance,
    "covariance of outputs": lambda f, x: f.predict(x, covariance="outputs").covariance,
    "one output": lambda f, x: f.predict(x, output=1),
    "part": lambda f, x: f.predict(x, part=1),
    "sample": lambda f, x: f.sample(x, 3, seed=0).shape,
    "sample of observations": lambda f, x: f.sample(x, 3, seed=0, observed=True).shape,
    "where it was seen": lambda f, x: f.predict(f.inputs),
    "sample where it was seen": lambda f, x: f.sample(f.inputs, 3, seed=0, observed=True).shape,
    "gradient": lambda f, x: f.gradient(x),
    "derivative": lambda f, x: f.derivative(x, dim=0),
    "gradient_posterior": lambda f, x: tuple(f.gradient_posterior(x[0])),
    "integral": lambda f, x: f.integral(np.tile([0.0, 1.0], (f.inputs.dimension, 1))),
    "filtered": lambda f, x: f.filtered(),
    "smoothed": lambda f, x: f.smoothed(),
    "lag_one": lambda f, x: f.lag_one(),
    "leave_one_out": lambda f, x: f.leave_one_out(),
    "outliers": lambda f, x: f.outlier_probability,
    "gates": lambda f, x: f.gate,
    "degrees_of_freedom": lambda f, x: np.array(f.degrees_of_freedom),
    "equivalent_kernel": lambda f, x: f.equivalent_kernel(x),
    "basis_weights": lambda f, x: tuple(f.basis_weights()),
    "evidence_bounds": lambda f, x: f.evidence_bounds,
    "stream": lambda f, x: f.stream().count,
    "plot": lambda f, x: np.shape(f.plot()),
}


def answered(question, *arguments):
    """What is answered as arrays, or why it is not."""
    try:
        found = question(*arguments)
    except Exception as met:
        return f"{type(met).__name__}: {met}"
    if isinstance(found, (Prediction, MixturePrediction)):
        return found.mean, found.variance
    return found


def check_same(question, ours, theirs):
    if isinstance(theirs, str) or theirs is None or isinstance(ours, str):
        assert ours == theirs, question
        return
    parts = [found if isinstance(found, tuple) else (found,) for found in (ours, theirs)]
    for mine, its in zip(*parts, strict=True):
        np.testing.assert_allclose(mine, its, rtol=1e-6, atol=1e-8, err_msg=question)


@pytest.mark.parametrize("name", zoo.mostly_full(CASES, "dense", "chain"))
def test_draws_that_are_all_at_the_mode_answer_what_it_does(name, tmp_path):
    """Also by the same words where that cannot be had."""
    matplotlib.use("agg")
    mode, mixture = at_the_mode(name)
    places = places_of(name)
    for question, ask in QUESTIONS.items():
        check_same(question, answered(ask, mixture, places), answered(ask, mode, places))
    more, alone = more_of(name, mixture), more_of(name, mode)
    np.testing.assert_allclose(more.weights, TWO, rtol=1e-6)
    check_same("update", answered(QUESTIONS["predict"], more, places), answered(QUESTIONS["predict"], alone, places))
    mixture.save(tmp_path / "mixture.sgp")
    again = sg.load(tmp_path / "mixture.sgp")
    check_same("load", answered(QUESTIONS["predict"], again, places), answered(QUESTIONS["predict"], mode, places))


REPRESENTATIVE = ("dense", "laplace"), ("chain", "importance"), ("kronecker", "hmc"), ("features", "metropolis")


@pytest.mark.parametrize(("name", "method"), zoo.mostly_full(itertools.product(CASES, METHODS), *REPRESENTATIVE))
def test_every_word_averages_over_whatever_is_fitted(name, method):
    """By few members and short chains: what is refused is refused in one line that says what to do."""
    kernel, likelihood, places, y, how = CASES[name]
    gp, few = (
        sg.GP(kernel, likelihood),
        {"parameters": Averaging(method, members=3, steps=2), "restarts": 0, "max_evaluations": 4},
    )
    y = y if isinstance(y, dict) else np.asarray(y, float)
    refused = _refused(gp, method)
    if refused is not None:
        with pytest.raises(ValueError, match=refused) as met:
            gp.fit(places, y, **few, **how)
        assert "\n" not in str(met.value)
        return
    fitted = gp.fit(places, y, **few, **how)
    assert isinstance(fitted, FittedMixture)
    assert fitted.draws.method == method
    found = fitted.predict(places_of(name))
    assert np.all(np.isfinite(found.mean))
    assert np.all(found.variance > 0)


def _refused(gp, method):
    """What is said where a method cannot be had."""
    if method == "grid" and len(free_vector(gp)) > 3:
        return "parameters='grid' is for three parameters at most, and there are .*: take 'laplace' or 'ccd'"
    if method == "nuts" and not gp.likelihood.is_gaussian:
        return "parameters='nuts' needs Gaussian observations: parameters='hmc' takes any"
    return None


def test_an_average_has_what_a_process_and_a_prediction_have():
    public = lambda kind: {name for name in dir(kind) if not name.startswith("_")}
    assert public(Fitted) - public(FittedMixture) <= {"of"}
    assert public(Prediction) - public(MixturePrediction) <= set()
