"""Observations that are not Gaussian, through the door: answers, status, extremes, and everything that goes along."""

import itertools
import warnings

import numpy as np
import pytest
from scipy import integrate, stats
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process._gpc import COEFS, LAMBDAS
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

import structgp as sg
import zoo

X, XS = zoo.X[1][:, 0], zoo.XS[1][:, 0]
LABELS = (zoo.Y[1] > 0).astype(float)
COUNTS = np.round(np.exp(zoo.Y[1] + 1))
PROBIT = sg.GP(sg.Matern32(0.8, 1.4), sg.Bernoulli())
ROBUST = sg.GP(sg.Matern32(0.8, 1.4), sg.StudentT(4.0, 0.1))


def test_the_evidence_of_two_labels_is_that_of_an_integral():
    gp = sg.GP(sg.Matern32(0.8, 2.0), sg.Bernoulli())
    x, y = np.array([0.0, 0.4]), np.array([1.0, 0.0])
    K = np.asarray(sg.covariance(gp.kernel, x[:, None], x[:, None]))
    prior = stats.multivariate_normal(np.zeros(2), K)
    truth = np.log(integrate.dblquad(lambda b, a: prior.pdf([a, b]) * stats.norm.cdf(a) * stats.norm.cdf(-b), -9, 9, -9, 9)[0])
    evidences = {method: gp.condition(x, y, inference=method).log_evidence for method in ("ep", "variational", "laplace")}
    assert evidences["ep"] == pytest.approx(truth, abs=1e-3)
    assert evidences["variational"] < truth
    assert evidences["laplace"] == pytest.approx(truth, abs=0.15)


@pytest.mark.full
def test_ep_agrees_with_importance_sampling():
    gp = sg.GP(sg.Matern52(1.0, 3.0), sg.Poisson())
    x, y = X[:8], COUNTS[:8]
    found = gp.condition(x, y)
    rng = np.random.default_rng(0)
    draws = found.sample(x, n=20000, seed=rng)
    joint = found.predict(x, covariance=True)
    proposal = stats.multivariate_normal(joint.mean, joint.covariance, allow_singular=True)
    prior = stats.multivariate_normal(np.zeros(8), np.asarray(sg.covariance(gp.kernel, x[:, None], x[:, None])))
    weights = prior.logpdf(draws) + stats.poisson.logpmf(y, np.exp(draws)).sum(axis=1) - proposal.logpdf(draws)
    ratios = np.exp(weights - found.log_evidence)
    error = ratios.std() / np.sqrt(len(ratios))
    assert abs(ratios.mean() - 1) < 4 * error + 2e-3


def test_laplace_is_scikit_learns():
    theirs = GaussianProcessClassifier(ConstantKernel(2.0) * RBF(0.9), optimizer=None).fit(X[:, None], LABELS)
    ours = sg.GP(sg.SquaredExponential(0.9, 2.0), sg.Bernoulli("logit")).condition(X, LABELS, inference="laplace")
    assert ours.log_evidence == pytest.approx(theirs.log_marginal_likelihood_value_, rel=1e-6)
    p = ours.predict(XS)
    alpha = 1 / (2 * p.variance)
    gamma = LAMBDAS * p.mean
    integrals = np.sqrt(np.pi / alpha) * stats.norm.cdf(np.sqrt(2) * gamma * np.sqrt(alpha / (alpha + LAMBDAS**2)))
    integrals = 2 * integrals - np.sqrt(np.pi / alpha)  # erf from the distribution function
    approximate = (COEFS * integrals / (2 * np.sqrt(2 * np.pi * p.variance))).sum(axis=0) + 0.5 * COEFS.sum()
    np.testing.assert_allclose(approximate, theirs.predict_proba(XS[:, None])[:, 1], atol=1e-6)
    np.testing.assert_allclose(p.probability, theirs.predict_proba(XS[:, None])[:, 1], atol=2e-3)  # theirs is approximate


def test_every_random_student_t_problem_converges_by_default():
    rng = np.random.default_rng(7)
    x = np.sort(rng.uniform(0, 10, 60))
    for _ in range(40):
        likelihood = sg.StudentT(rng.uniform(2.1, 10), np.exp(rng.uniform(np.log(0.02), np.log(0.5))))
        kernel = sg.Matern52(np.exp(rng.uniform(np.log(0.2), np.log(4))), np.exp(rng.uniform(np.log(0.3), np.log(10))))
        y = np.sin(x) + 0.1 * rng.standard_normal(60)
        outliers = rng.choice(60, rng.integers(0, 15), replace=False)
        y[outliers] += rng.choice([-1, 1], len(outliers)) * rng.uniform(1, 10, len(outliers))
        found = sg.GP(kernel, likelihood).condition(x, y)
        assert found.inference.converged, (likelihood, kernel)
        assert found.log_evidence < 100


def test_what_did_not_converge_says_so():
    y = zoo.Y[1] + 4.0 * (np.arange(zoo.N) % 5 == 2)
    gp = sg.GP(sg.Matern32(0.3, 4.0), sg.StudentT(2.1, 0.03))
    with pytest.warns(RuntimeWarning, match="means nothing.*variational"):
        found = gp.condition(X, y, inference="ep")
    assert not found.inference.converged
    assert "not converged" in str(found.inference) or "stopped" in str(found.inference)


@pytest.mark.full
def test_weights_count_observations():
    twice = np.where(np.arange(zoo.N) < 5, 2.0, 1.0)
    weighted = PROBIT.condition(X, LABELS, weights=twice, inference="laplace")
    repeated = PROBIT.condition(np.r_[X, X[:5]], np.r_[LABELS, LABELS[:5]], inference="laplace")
    assert weighted.log_evidence == pytest.approx(repeated.log_evidence, rel=1e-8)
    np.testing.assert_allclose(weighted.predict(XS).mean, repeated.predict(XS).mean, rtol=1e-6)


@pytest.mark.parametrize("method", zoo.mostly_full(["ep", "variational", "laplace"], "laplace"))
def test_missing_observations_do_not_count(method):
    gone = np.where(np.arange(zoo.N) < 5, np.nan, LABELS)
    missing = PROBIT.condition(X, gone, missing="infer", inference=method)
    without = PROBIT.condition(X[5:], LABELS[5:], inference=method)
    assert missing.log_evidence == pytest.approx(without.log_evidence, rel=1e-8)


@pytest.mark.full
def test_exposure_is_an_offset_of_the_logarithm():
    gp = sg.GP(sg.Matern32(0.8, 1.4), sg.Poisson(), mean=0.5)
    doubled = gp.condition(X, COUNTS, extra=2.0)
    shifted = gp.replace(mean=0.5 + np.log(2.0)).condition(X, COUNTS)
    assert doubled.log_evidence == pytest.approx(shifted.log_evidence, rel=1e-8)
    p = doubled.predict(XS, extra=3.0)
    np.testing.assert_allclose(p.observed.mean, 1.5 * shifted.predict(XS).observed.mean, rtol=1e-6)
    low, high = p.interval(0.9)
    assert ((low <= p.observed.mean) & (p.observed.mean <= high)).all()
    assert (low == np.round(low)).all()


EXTREMES = {
    "separable": (sg.Bernoulli(), (X > 0).astype(float)),
    "one class": (sg.Bernoulli("logit"), np.ones(zoo.N)),
    "counts of 0 and a million": (sg.Poisson(), np.where(X > 0, 1e6, 0.0)),
    "an outlier of 10⁷ scales": (sg.StudentT(4.0, 0.1), np.where(np.arange(zoo.N) == 3, 1e6, zoo.Y[1])),
    "the same with Laplace noise": (sg.LaplaceNoise(0.1), np.where(np.arange(zoo.N) == 3, 1e6, zoo.Y[1])),
}
IN_EVERY_WAY = list(itertools.product(EXTREMES, ["ep", "variational", "laplace"]))
IN_EVERY_WAY.remove(("the same with Laplace noise", "laplace"))  # a density with a kink has no curvature


@pytest.mark.parametrize(
    ("name", "method"),
    zoo.mostly_full(IN_EVERY_WAY, ("an outlier of 10⁷ scales", "variational")),
)
def test_extreme_observations_give_finite_answers(name, method):
    likelihood, y = EXTREMES[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        found = sg.GP(sg.Matern52(1.0, 1600.0), likelihood).condition(X, y, inference=method)
    p = found.predict(XS)
    assert np.isfinite(found.log_evidence)
    assert np.isfinite(p.mean).all()
    assert (p.variance > 0).all()


class Cauchy(sg.Likelihood):
    """A likelihood of a user's own: its density and nothing else."""

    scale: float = sg.parameter(0.3, sg.positive)

    def log_prob(self, y, f):
        import jax.numpy as jnp

        return -jnp.log1p(((y - f) / self.scale) ** 2) - jnp.log(jnp.pi * self.scale)


def test_a_likelihood_of_ones_own_needs_its_density_only():
    gp = sg.GP(sg.Matern32(0.8, 1.4), Cauchy())
    fitted = gp.fit(X, zoo.Y[1], max_evaluations=15)
    assert fitted.inference.method == "variational"
    assert fitted.log_evidence > gp.condition(X, zoo.Y[1]).log_evidence
    assert fitted.likelihood.scale != 0.3


@pytest.mark.parametrize(
    ("name", "structure"),
    zoo.mostly_full(itertools.product(["probit", "student"], ["dense", "markov"]), ("student", "dense")),
)
def test_files_and_updates(name, structure, tmp_path):
    gp, y = (PROBIT, LABELS) if name == "probit" else (ROBUST, zoo.Y[1])
    fitted = gp.condition(X, y, structure=structure)
    fitted.save(tmp_path / "m.structgp")
    again = sg.load(tmp_path / "m.structgp")
    np.testing.assert_array_equal(again.predict(XS).variance, fitted.predict(XS).variance)
    assert again.inference.method == fitted.inference.method
    assert str(fitted.inference) in fitted.summary()
    longer = gp.condition(X[:-4], y[:-4], structure=structure).update(X[-4:], y[-4:])
    assert longer.log_evidence == pytest.approx(fitted.log_evidence, rel=1e-8)


def test_what_depends_on_gaussian_observations_is_refused():
    fitted = PROBIT.condition(X, LABELS)
    for action in (fitted.filtered, fitted.stream, lambda: fitted.equivalent_kernel(XS)):
        with pytest.raises(ValueError, match="needs Gaussian observations"):
            action()
    for action in (PROBIT.stream, lambda: PROBIT.fit_series([X], [LABELS])):
        with pytest.raises(ValueError, match="needs Gaussian observations, not Bernoulli"):
            action()
    with pytest.raises(ValueError, match="'em' needs Gaussian"):
        PROBIT.fit(X, LABELS, method="em")
    with pytest.raises(ValueError, match="inference must be one of"):
        PROBIT.condition(X, LABELS, inference="magic")
    with pytest.raises(ValueError, match="noise variances are for Gaussian"):
        PROBIT.condition(X, LABELS, noise=0.1)
    gaussian = sg.GP(sg.Matern32(0.8, 1.4))
    for options in ({"weights": np.ones(zoo.N)}, {"inference": "laplace"}):
        with pytest.raises(ValueError, match="one target without known noise"):
            gaussian.condition(X, zoo.Y[1], noise=0.1, **options)
        with pytest.raises(ValueError, match="one target without known noise"):
            gaussian.condition(X, np.stack([zoo.Y[1]] * 2, axis=1), **options)
    with pytest.raises(ValueError, match="not all 0"):
        PROBIT.condition(X, LABELS, weights=np.zeros(zoo.N))
    assert fitted.leave_one_out().mean.shape == X.shape
    assert 0 < fitted.degrees_of_freedom < zoo.N


def test_sampled_labels_have_the_predicted_probabilities():
    fitted = PROBIT.condition(X, LABELS)
    draws = fitted.sample(XS, n=4000, seed=0, observed=True)
    p = fitted.predict(XS).probability
    np.testing.assert_allclose(draws.mean(axis=0), p, atol=4 * np.sqrt(0.25 / 4000))
    np.testing.assert_allclose(np.exp(fitted.predict(XS).log_prob(np.ones(zoo.M))), p, rtol=1e-10)
