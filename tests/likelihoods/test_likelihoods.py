"""Laws of likelihoods, over all of the zoo: integrals against adaptive quadrature, derivatives against differences."""

import json
from functools import cache

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, special

import structgp as sg
import zoo
from structgp._types import Numbers
from structgp.files.values import Reader, Writer
from structgp.likelihoods.base import Likelihood
from structgp.parameters.supports import positive
from structgp.parameters.tree import parameter

pytestmark = pytest.mark.usefixtures("x64")

NAMES = list(zoo.OBSERVED_THROUGH)
# others stand for them
VARIED = {"probit with bias", "probit with flips", "logit", "Binomial probit", "Ordinal logit", "Exponential", "LogGaussian"}
BELIEFS = [(0.3, 0.04), (-1.2, 1.0), (2.0, 9.0), (-4.0, 60.0)]
POWERS = {"power 1": 1.0, "power 1 as data": 1.0, "power ½": 0.5}
SAMPLES = 20_000
FAR = np.array([(m, v) for m in (-1e3, -30.0, 0.0, 30.0, 1e3) for v in (1e-12, 1e-3, 1.0, 1e3, 1e6)]).T
EXTREME = {
    "probit": [0.0, 1.0],
    "probit with flips": [0.0, 1.0],
    "logit": [0.0, 1.0],
    "Ordinal": [0.0, 2.0],
    "Poisson": [0.0, 1e6],
    "NegativeBinomial": [0.0, 1e6],
    "StudentT": [0.0, 1e6],
    "LaplaceNoise": [0.0, 1e6],
    "MixtureNoise": [0.0, 1e6],
    "Weibull": [1e-6, 1e6],
}


def each_of(names):
    return pytest.mark.parametrize("name", zoo.mostly_full(names, *(name for name in names if name not in VARIED)))


@cache
def cases(name):
    """Every observation under every belief, as flat arrays y, extra, mean, variance."""
    _, y, extra = zoo.OBSERVED_THROUGH[name]
    return crossed(np.array(y), np.broadcast_to(np.asarray(extra, dtype=float), 3), np.array(BELIEFS).T)


def crossed(y, extra, beliefs):
    return tuple(np.ravel(a) for a in np.broadcast_arrays(y[:, None], extra[:, None], *beliefs))


@jax.jit
def everything(likelihood, y, extra, mean, variance):
    """What inference asks, at power 1 (known beforehand) and at powers that are data."""
    twice = lambda a: jnp.concatenate([a, a, a[:1]])  # to the powers of 1 and ½, and once to that of 0
    powers = twice(jnp.ones(jnp.shape(y))).at[len(y) :].set(0.5).at[-1].set(0.0)
    by_power = likelihood.tilted_derivatives(twice(y), twice(mean), twice(variance), powers, twice(extra))
    expected = lambda m, v: likelihood.expected_log_prob(y, m, v, extra)
    slopes = jax.grad(lambda m, v: jnp.sum(expected(m, v)), (0, 1))(mean, variance)
    return {
        "power 1": likelihood.tilted_derivatives(y, mean, variance, 1.0, extra) if closed(likelihood) else first(by_power, y),
        "power 1 as data": first(by_power, y),
        "power ½": [part[len(y) :] for part in by_power],
        "log_tilted": likelihood.log_tilted(y, mean, variance, 1.0, extra),
        "expected": (expected(mean, variance), *slopes),
    }


def closed(likelihood):
    """Whether the power 1, known beforehand, is treated in another way than powers that are data."""
    return type(likelihood).log_tilted is not Likelihood.log_tilted


def first(parts, y):
    return [part[: len(y)] for part in parts]


@cache
def found(name):
    """Results for the cases, and after them for those that are far out."""
    far = crossed(np.array(EXTREME[name]), np.ones(2), FAR) if name in EXTREME else [[]] * 4
    rows = [np.concatenate(pair) for pair in zip(cases(name), far, strict=True)]
    return jax.tree_util.tree_map(np.asarray, everything(zoo.OBSERVED_THROUGH[name][0], *rows))


def told(method, *arguments):
    """What a likelihood says, as one program."""
    return jax.tree.map(np.asarray, eqx.filter_jit(method)(*arguments))


@cache
def log_prob(name):
    likelihood = zoo.OBSERVED_THROUGH[name][0]
    return jax.jit(lambda y, f, extra: likelihood.log_prob(y, f, extra))


PLACES = 4096


def gaussian_average(name, y, extra, mean, variance, function):
    """∫ N(f; mean, variance) function(log p, z) df by Gauss–Legendre on many panels, crowded where likelihoods bend."""
    spread = np.sqrt(variance)
    crowd = np.concatenate([[0.0], *[sign * np.geomspace(1e-3, 60, 40) for sign in (-1, 1)]])
    bends = [0.0, np.log(abs(y) + 0.5) - np.log(max(extra, 0.5)), y, -0.8, 1.1]
    edges = np.concatenate([mean + spread * np.linspace(-12, 12, 97), *[bend + crowd for bend in bends]])
    edges = np.unique(np.clip(edges, mean - 12 * spread, mean + 12 * spread))
    x, w = np.polynomial.legendre.leggauss(8)
    length = np.diff(edges)[:, None]
    f, weights = (edges[:-1, None] + length * (x + 1) / 2).ravel(), (length * w / 2).ravel()
    padded = np.full(PLACES, mean)
    padded[: len(f)] = f
    logs = np.asarray(log_prob(name)(np.full(PLACES, y), padded, np.full(PLACES, extra)))[: len(f)]
    z = (f - mean) / spread
    density = np.exp(-0.5 * z**2) / (spread * np.sqrt(2 * np.pi))
    return [np.sum(weights * density * part) for part in function(logs, z)]


@pytest.mark.parametrize("power", POWERS)
@each_of(NAMES)
def test_tilted_integrals_and_their_derivatives(name, power):
    value, slope, curvature = found(name)[power]
    power = POWERS[power]
    for i, (y, extra, mean, variance) in enumerate(zip(*cases(name), strict=True)):
        moments = lambda logs, z: [np.exp(power * logs) * z**k for k in range(3)]
        total, first, second = gaussian_average(name, y, extra, mean, variance, moments)
        m, s2 = first / total, second / total - (first / total) ** 2
        np.testing.assert_allclose(value[i], np.log(total), rtol=1e-8, atol=2e-8)
        np.testing.assert_allclose(slope[i] * np.sqrt(variance), m, rtol=1e-6, atol=1e-7)
        np.testing.assert_allclose(curvature[i] * variance, 1 - s2, rtol=1e-6, atol=1e-6)


@each_of(NAMES)
def test_expected_log_probabilities_and_their_gradient(name):
    expected, in_mean, in_variance = found(name)["expected"]
    exponential = zoo.OBSERVED_THROUGH[name][0].extra_name in ("exposure", "event")
    for i, (y, extra, mean, variance) in enumerate(zip(*cases(name), strict=True)):
        if exponential and variance > 10:  # the average of exp(f) lies beyond the panels
            continue
        moments = lambda logs, z: [logs, logs * z, logs * (z**2 - 1)]
        value, first, second = gaussian_average(name, y, extra, mean, variance, moments)
        scale = 1 + abs(value)
        np.testing.assert_allclose(expected[i], value, rtol=1e-8, atol=1e-8)
        np.testing.assert_allclose(in_mean[i] * np.sqrt(variance), first, rtol=1e-6, atol=1e-7 * scale)
        np.testing.assert_allclose(in_variance[i] * 2 * variance, second, rtol=1e-6, atol=1e-7 * scale)


@each_of(NAMES)
def test_one_integral_by_every_way(name):
    results = found(name)
    np.testing.assert_allclose(results["log_tilted"], results["power 1"][0], rtol=1e-10, atol=1e-10)


@each_of(NAMES)
def test_derivatives_in_f_are_those_of_the_log_probability(name):
    likelihood = zoo.OBSERVED_THROUGH[name][0]
    y, extra, mean, _ = cases(name)
    f, step = mean + 0.0123, 1e-4
    value, slope, W = told(likelihood.derivatives, y, f, extra)
    below, here, above = (np.asarray(log_prob(name)(y, f + k * step, extra)) for k in (-1, 0, 1))
    np.testing.assert_allclose(value, here, rtol=1e-12)
    np.testing.assert_allclose(slope, (above - below) / (2 * step), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(W, -(above - 2 * here + below) / step**2, rtol=1e-4, atol=1e-4)
    assert np.all(told(likelihood.curvature_bound, y, f, extra) > 0)
    if likelihood.log_concave:
        assert np.all(W > -1e-9)


# what p(y | f) is


def outcomes(name, extra):
    """All that a discrete likelihood may say."""
    if name.startswith("Binomial"):
        return np.arange(int(extra) + 1.0)
    if name.startswith("Ordinal"):
        return np.arange(4.0)
    return np.arange(2.0) if "ogit" in name or "robit" in name else np.arange(1000.0)


CONTINUOUS = ["Gaussian", "StudentT", "LaplaceNoise", "MixtureNoise", "Exponential", "Weibull", "GammaDuration", "LogGaussian"]
DISCRETE = [name for name in NAMES if name not in CONTINUOUS]


@pytest.mark.parametrize("name", DISCRETE)
def test_probabilities_of_all_outcomes_sum_to_one(name):
    _, _, extra = zoo.OBSERVED_THROUGH[name]
    extra = np.ravel(extra)[-1]
    y = outcomes(name, extra)
    for f in (-1.1, 0.2, 1.4):
        assert np.sum(np.exp(log_prob(name)(y, f, extra))) == pytest.approx(1, abs=1e-9)


def line(likelihood, f):
    """Observations from one end to the other, and the lengths they stand for."""
    t = np.linspace(-1, 1, 8001)
    positive = likelihood.extra_name == "event" or isinstance(likelihood, sg.LogGaussian)
    y = np.exp(40 * t) if positive else f + 0.02 * np.sinh(20 * t)
    return y, np.gradient(t) * (40 * y if positive else 0.4 * np.cosh(20 * t))


@pytest.mark.parametrize("name", CONTINUOUS)
def test_densities_integrate_to_one(name):
    likelihood = zoo.OBSERVED_THROUGH[name][0]
    for f in (-0.6, 0.8):
        y, weight = line(likelihood, f)
        assert np.sum(weight * np.exp(log_prob(name)(y, f, 1.0))) == pytest.approx(1, abs=3e-6)


@pytest.mark.parametrize("name", ["Exponential", "Weibull", "GammaDuration"])
def test_a_censored_duration_has_the_probability_of_all_longer_ones(name):
    likelihood = zoo.OBSERVED_THROUGH[name][0]
    for y, f in ((0.3, 0.5), (4.0, -0.2)):
        longer = y + np.linspace(0, 60, 60_001)
        density = np.exp(np.asarray(log_prob(name)(longer, f, 1.0)))
        assert np.exp(log_prob(name)(y, f, 0.0)) == pytest.approx(integrate.simpson(density, x=longer), rel=1e-7)
    far = np.asarray(told(likelihood.derivatives, np.float64(1e4), np.float64(0.0), np.float64(0.0)))
    assert np.all(np.isfinite(far))
    assert far[0] < -1e3


# predictions


@cache
def drawn(name):
    """Observations of beliefs N(0.4, 0.5), through the sampler."""
    likelihood, _, extra = zoo.OBSERVED_THROUGH[name]
    rng = np.random.default_rng(3)
    extra = 1.0 if likelihood.extra_name == "event" else np.ravel(extra)[-1]
    return likelihood.sample(rng, 0.4 + np.sqrt(0.5) * rng.standard_normal(SAMPLES), extra), extra


@each_of(NAMES)
def test_observed_moments_are_those_of_draws(name):
    likelihood = zoo.OBSERVED_THROUGH[name][0]
    y, extra = drawn(name)
    mean, variance = (float(np.ravel(part)[0]) for part in told(likelihood.observed, np.array([0.4]), np.array([0.5]), extra))
    assert np.mean(y) == pytest.approx(mean, abs=5 * np.sqrt(variance / SAMPLES))
    assert np.mean(np.clip((y - mean) ** 2, 0, 100 * variance)) == pytest.approx(variance, rel=0.25)


@each_of(NAMES)
def test_quantiles_are_those_of_draws(name):
    likelihood = zoo.OBSERVED_THROUGH[name][0]
    y, extra = drawn(name)
    q = np.array([0.03, 0.5, 0.9])
    quantile = np.asarray(likelihood.quantile(q[:, None], np.array([0.4, 0.4]), np.array([0.5, 0.5]), extra))
    assert quantile.shape == (3, 2)
    below, up_to = (np.mean(compare(y[:, None], quantile[:, 0]), axis=0) for compare in (np.less, np.less_equal))
    slack = 5 * np.sqrt(q * (1 - q) / SAMPLES)
    assert np.all(below <= q + slack)
    assert np.all(up_to >= q - slack)
    if name in DISCRETE:
        np.testing.assert_array_equal(quantile, np.round(quantile))


@pytest.mark.parametrize("name", zoo.mostly_full(["Poisson", "NegativeBinomial", "Binomial"], "NegativeBinomial"))
def test_count_quantiles_follow_the_predictive_sum(name):
    likelihood = zoo.OBSERVED_THROUGH[name][0]
    extra = 11.0
    y = outcomes(name, extra)
    belief = np.full(len(y), 1.1), np.full(len(y), 0.8)
    cumulative = np.cumsum(np.exp(jax.jit(type(likelihood).log_predictive)(likelihood, y, *belief, extra)))
    for q in (0.05, 0.3, 0.77):
        assert likelihood.quantile(q, np.array([1.1]), np.array([0.8]), extra)[0] == np.argmax(cumulative >= q)


def test_probabilities_are_averages_to_ten_digits():
    mean, variance = np.array(BELIEFS).T
    for name in ("probit", "probit with flips", "logit", "logit with flips"):
        p = told(zoo.OBSERVED_THROUGH[name][0].probability, mean, variance)
        for i, belief in enumerate(BELIEFS):
            exact = gaussian_average(name, 1.0, 1.0, *belief, lambda logs, z: [np.exp(logs)])[0]
            assert p[i] == pytest.approx(exact, abs=1e-10)


def test_ordinal_probabilities_sum_to_one():
    p = told(sg.Ordinal([-0.8, 0.3, 1.1]).probability, np.array([0.2, -3.0]), np.array([0.5, 40.0]))
    np.testing.assert_allclose(p.sum(axis=1), 1, rtol=1e-12)


# far out


@each_of(EXTREME)
def test_extreme_observations_and_beliefs_stay_finite(name):
    likelihood, results, usual = zoo.OBSERVED_THROUGH[name][0], found(name), len(cases(name)[0])
    variance = np.tile(FAR[1], 2)
    for power in POWERS:
        value, slope, curvature = (part[usual : usual + len(variance)] for part in results[power])
        assert np.isfinite(value).all()
        assert np.isfinite(slope).all()
        kept = np.where(
            np.abs(slope) < 1e12, variance * curvature, 0.5
        )  # steeper than that, f cannot be told from its neighbour
        assert np.isfinite(curvature).all()
        assert np.all(kept < 1 + 1e-6)
        assert np.all(kept > -1e-6) or not likelihood.log_concave
    assert np.isfinite(results["expected"][0]).all()


def test_a_wide_belief_is_no_harder_than_a_narrow_one():
    """∫ N(f; m, v) exp(−exp(f)) df against the mixture over the logarithm of an exponential variable."""
    g = np.linspace(-45, 4.5, 4000)
    density = np.exp(g - np.exp(g)) * (g[1] - g[0])
    from scipy.special import ndtr

    mean, variance = (np.ravel(a) for a in np.meshgrid([-200.0, -10.0, 0.0, 30.0], [1.0, 100.0, 1e4, 1e6]))
    exact = np.log([density @ ndtr((g - m) / np.sqrt(v)) for m, v in zip(mean, variance, strict=True)])
    kept = exact > -20
    tilted = told(sg.Poisson().log_tilted, np.zeros(len(mean)), mean, variance)
    np.testing.assert_allclose(tilted[kept], exact[kept], rtol=1e-5, atol=2e-6)


def test_student_t_expectations_hold_when_the_scale_is_tiny():
    likelihood, r = sg.StudentT(4.0, 1e-4), np.geomspace(1e-8, 12, 4001)
    r = np.concatenate([-r[::-1], r])
    weights = np.gradient(r) * np.exp(-0.5 * r**2) / np.sqrt(2 * np.pi)
    expected = likelihood.expected_log_prob(np.float64(0.0), np.float64(0.0), np.float64(1.0))
    assert float(expected) == pytest.approx(np.sum(weights * np.asarray(likelihood.log_prob(0.0, r))), rel=1e-4)


@each_of(NAMES)
def test_the_power_of_zero_is_nothing(name):
    for part in found(name)["power ½"]:
        assert part[-1] == pytest.approx(0, abs=1e-8)


# the floor under labels


def test_a_floor_has_its_exact_derivatives():
    value, slope, W = (float(part) for part in sg.Bernoulli("logit", flip=0.01).derivatives(0.0, np.float64(6.0)))
    assert slope == pytest.approx(-0.195, abs=5e-4)
    assert abs(W + 0.156) < 5e-4
    assert value > np.log(0.01)


# several classes


def test_softmax_and_its_averages():
    likelihood = sg.Categorical(3)
    rng = np.random.default_rng(0)
    F, y = rng.standard_normal((5, 3)), np.array([0.0, 1, 2, 2, 0])
    value, slope, W = told(likelihood.derivatives, y, F)
    slopes, hessians = (jax.jit(jax.vmap(of(likelihood.log_prob, 1)))(y, F) for of in (jax.grad, jax.hessian))
    np.testing.assert_allclose(slope, slopes, atol=1e-12)
    np.testing.assert_allclose(W, -hessians, atol=1e-12)
    every = [np.exp(told(likelihood.log_prob, np.full(5, float(k)), F)) for k in range(3)]
    np.testing.assert_allclose(np.sum(every, axis=0), 1, rtol=1e-12)
    np.testing.assert_allclose(value, np.log(np.array(every)[y.astype(int), np.arange(5)]), rtol=1e-12)


def tensor_average(mean, covariance, function, count=40):
    x, w = np.polynomial.hermite_e.hermegauss(count)
    grid = np.stack(np.meshgrid(x, x, x, indexing="ij"), axis=-1).reshape(-1, 3)
    weights = np.einsum("i,j,k->ijk", w, w, w).ravel() / (2 * np.pi) ** 1.5
    return weights @ function(mean + grid @ np.linalg.cholesky(covariance).T)


def softmax(F):
    e = np.exp(F - F.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


@pytest.mark.full
def test_class_probabilities_are_averages():
    likelihood = sg.Categorical(3)
    mean, variance = np.array([[0.4, -1.0, 0.3], [2.0, 0.0, -2.0]]), np.array([[0.5, 1.5, 0.2], [3.0, 1.0, 4.0]])
    A = np.array([[0.9, 0.2, -0.3], [0.1, 1.2, 0.4], [0.5, -0.6, 0.7]])
    full = np.stack([A @ A.T, np.diag(variance[1])])
    probability, log_tilted = jax.jit(likelihood.probability), jax.jit(likelihood.log_tilted)
    independent, joint = np.asarray(probability(mean, variance)), np.asarray(probability(mean, full))
    expected_logs = np.asarray(jax.jit(likelihood.expected_log_prob)(np.ones(2), mean, variance))
    for i in range(2):
        np.testing.assert_allclose(joint[i], tensor_average(mean[i], full[i], softmax), atol=1e-6)
        np.testing.assert_allclose(independent[i], tensor_average(mean[i], np.diag(variance[i]), softmax), atol=1e-6)
        logs = lambda F: np.log(softmax(F))[:, 1]
        assert expected_logs[i] == pytest.approx(tensor_average(mean[i], np.diag(variance[i]), logs), abs=2e-3)
    np.testing.assert_allclose(joint.sum(axis=1), 1, rtol=1e-11)
    predictive = np.asarray(jax.jit(likelihood.log_predictive)(np.ones(2), mean, full))
    np.testing.assert_allclose(np.exp(predictive), joint[:, 1], rtol=1e-10)
    F = np.broadcast_to(mean[0], (SAMPLES, 3))
    counts = np.bincount(likelihood.sample(np.random.default_rng(1), F).astype(int)) / SAMPLES
    np.testing.assert_allclose(counts, softmax(mean[0]), atol=0.02)
    tilted_derivatives = jax.jit(likelihood.tilted_derivatives)
    value, slope, W = tilted_derivatives(np.ones(2), mean, variance)
    assert slope.shape == (2, 3)
    assert W.shape == (2, 3, 3)
    np.testing.assert_allclose(value, log_tilted(np.ones(2), mean, variance), rtol=1e-10)
    np.testing.assert_allclose(np.exp(value), independent[:, 1], atol=1e-3)
    tilted = lambda m: likelihood.log_tilted(np.float64(1.0), m, variance[0], 0.5)
    value, slope, W = tilted_derivatives(np.float64(1.0), mean[0], variance[0], 0.5)
    np.testing.assert_allclose(slope, jax.jit(jax.grad(tilted))(mean[0]), atol=1e-12)
    np.testing.assert_allclose(W, -jax.jit(jax.hessian(tilted))(mean[0]), atol=1e-12)


# a likelihood of the caller's own


class Cauchy(Likelihood):
    """Only what a caller must say."""

    width: float = sg.parameter(1.0, sg.positive)

    def log_prob(self, y, f):
        return -jnp.log(jnp.pi * self.width) - jnp.log1p(((y - f) / self.width) ** 2)


class Logistic(Likelihood):
    """Noise with a log-concave density, by `log_prob` alone."""

    def log_prob(self, y, f):
        return -(y - f) - 2 * jnp.logaddexp(0.0, -(y - f))


def test_a_likelihood_needs_only_log_prob():
    y, mean, variance = np.array([0.3, -2.0]), np.array([0.1, 1.0]), np.array([0.5, 4.0])
    own = Logistic()
    value, slope, curvature = told(own.tilted_derivatives, y, mean, variance)
    expected = told(own.expected_log_prob, y, mean, variance)
    f = np.linspace(-30, 30, 20001)
    for i in range(2):
        weights = np.exp(-0.5 * (f - mean[i]) ** 2 / variance[i]) / np.sqrt(2 * np.pi * variance[i]) * (f[1] - f[0])
        p = np.exp(np.asarray(own.log_prob(y[i], f)))
        assert float(value[i]) == pytest.approx(np.log(weights @ p), abs=1e-9)
        assert float(slope[i]) == pytest.approx(weights @ (p * (f - mean[i])) / (weights @ p) / variance[i], abs=1e-8)
        assert expected[i] == pytest.approx(weights @ np.asarray(own.log_prob(y[i], f)), abs=1e-7)
    assert np.all(curvature > 0)
    assert own.default_inference == "variational"
    assert own.latents == 1
    assert np.asarray(Cauchy(2.0).log_prob(0.0, 1.0, 7.0)) == pytest.approx(-np.log(2 * np.pi) - np.log(1.25))
    assert np.isfinite(told(Cauchy(0.1).log_tilted, y, mean, variance, 0.5)).all()
    for call, message in [
        (lambda: own.observed(mean, variance), r"Logistic does not say what y is on average: define moments"),
        (lambda: own.quantile(0.5, mean, variance), r"Logistic has no quantiles: define cumulative"),
        (lambda: own.sample(np.random.default_rng(0), mean), r"Logistic cannot be drawn from: define sample"),
    ]:
        with pytest.raises(NotImplementedError, match=message):
            call()


# parameters


@each_of([name for name in NAMES if zoo.OBSERVED_THROUGH[name][0].parameters()])
def test_gradients_in_the_parameters(name):
    likelihood = zoo.OBSERVED_THROUGH[name][0]
    y, extra, mean, variance = (part[:8] for part in cases(name))

    @jax.jit
    def total(likelihood):
        integrals = 0.0
        if name in ("logit with flips", "NegativeBinomial", "StudentT"):
            tilted = likelihood.log_tilted(y, mean, variance, 0.5, extra)
            integrals = jnp.sum(tilted) + jnp.sum(likelihood.expected_log_prob(y, mean, variance, extra))
        return integrals + jnp.sum(likelihood.log_prob(y, mean, extra))

    gradient = jax.jit(jax.grad(total))(likelihood).parameters()
    for path, value in likelihood.parameters().items():
        step = 1e-5 * np.ones_like(value)
        up, down = (float(total(likelihood.replace({path: value + sign * step}))) for sign in (1, -1))
        assert np.sum(gradient[path]) == pytest.approx((up - down) / 2e-5, rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("likelihood", [*(entry[0] for entry in zoo.OBSERVED_THROUGH.values()), sg.Categorical(4)], ids=repr)
def test_likelihoods_come_back_from_a_description_and_print_as_typed(likelihood):
    writer = Writer()
    text = json.dumps(writer.encode(likelihood, "value"), allow_nan=False)
    after = Reader(writer.arrays).decode(json.loads(text))
    assert eqx.tree_equal(after, likelihood)
    assert eqx.tree_equal(eval(repr(likelihood), zoo.NAMESPACE), likelihood)


def test_what_is_learned():
    names = lambda likelihood: sg.GP(sg.Matern32(), likelihood).parameters().keys()
    assert [name for name in names(sg.Bernoulli()) if "likelihood" in name] == []
    assert "likelihood.bias" in names(sg.Bernoulli(bias=0.0))
    from structgp.parameters.tree import learned_leaves

    assert [leaf.path for leaf in learned_leaves(sg.Ordinal([0.0, 1.0]))] == ["thresholds"]
    assert [leaf.path for leaf in learned_leaves(sg.Ordinal([0.0, 1.0], 0.5))] == ["thresholds", "scale"]


def test_which_inference():
    chosen = {name: entry[0].default_inference for name, entry in zoo.OBSERVED_THROUGH.items()}
    assert {name for name, method in chosen.items() if method == "variational"} == {
        *("probit with flips", "logit with flips", "StudentT", "MixtureNoise"),
    }
    assert sg.Categorical(3).default_inference == "laplace"


# observations at the door


def test_labels_are_encoded():
    np.testing.assert_array_equal(sg.Bernoulli().check(np.array([-1, 1, np.nan])), [0, 1, np.nan])
    np.testing.assert_array_equal(sg.Bernoulli().check(np.array([True, False])), [1, 0])
    np.testing.assert_array_equal(sg.Bernoulli().check(np.array([1, 1])), [1, 1])
    np.testing.assert_array_equal(sg.Categorical(3).check(np.array([2, 0, np.nan])), [2, 0, np.nan])
    np.testing.assert_array_equal(sg.Poisson().check(np.array([3, np.nan]), np.array([1.0, 2.0])), [3, np.nan])


@pytest.mark.parametrize(
    ("likelihood", "y", "extra", "message"),
    [
        (
            sg.Bernoulli(),
            [0, 1, 2],
            None,
            r"labels 0 and 1 \(or −1 and 1\), got 2 \(row 2\): encode them so, or use Categorical",
        ),
        (sg.Bernoulli(), [-1, 0, 1], None, r"labels 0 and 1 .* got -1 \(row 0\)"),
        (sg.Bernoulli(), [0, 1], [1.0, 1.0], "Bernoulli takes no extra numbers for its observations: leave them out"),
        (sg.Categorical(2), [0, 5], None, r"class numbers 0 to 1, got 5 \(row 1\): number the classes so"),
        (sg.Ordinal([0.0, 1.0]), [0, 1.5], None, r"Ordinal needs class numbers 0 to 2, got 1\.5 \(row 1\)"),
        (sg.Poisson(), [1, -2, 3], None, r"Poisson needs counts 0, 1, 2, …, got -2 \(row 1\): round them"),
        (sg.Poisson(), [1.5, 2.5, 0.5, 7.5], None, r"got 1\.5 \(row 0\), 2\.5 \(row 1\), 0\.5 \(row 2\) and 1 more"),
        (sg.Poisson(), [1, np.inf], None, r"finite observations, got inf \(row 1\)"),
        (sg.Poisson(), [1, 2], [1.0, 0.0], r"exposure must be positive, got 0 \(row 1\)"),
        (sg.Poisson(), [1, 2], [1.0, 2.0, 3.0], r"exposure needs one number for each observation: shape \(2,\), got \(3,\)"),
        (sg.NegativeBinomial(), [0.5], None, "NegativeBinomial needs counts"),
        (sg.Binomial(), [3, 1], [2.0, 2.0], r"no more successes than trials, got 3 \(row 0\): pass trials"),
        (sg.Binomial(), [1, 1], [2.5, 2.0], r"trials must be whole numbers from 1 on, got 2\.5 \(row 0\)"),
        (sg.Weibull(), [1.0, 0.0], None, r"Weibull needs positive durations, got 0 \(row 1\): drop them"),
        (
            sg.LogGaussian(),
            [1.0, 0.0],
            None,
            r"LogGaussian needs positive numbers, got 0 \(row 1\): drop them, or use Gaussian",
        ),
        (sg.Exponential(), [1.0, 2.0], [1.0, 0.5], r"event must be 1 .* or 0 \(right-censored\), got 0\.5 \(row 1\)"),
        (sg.StudentT(), [1.0, np.inf], None, r"StudentT needs finite observations"),
    ],
)
def test_bad_observations(likelihood, y, extra, message):
    with pytest.raises(ValueError, match=message):
        likelihood.check(np.array(y, dtype=float), None if extra is None else np.array(extra))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: sg.Bernoulli("cauchit"), "Bernoulli: link must be 'probit' or 'logit', got 'cauchit'"),
        (lambda: sg.Bernoulli(flip=0.7), r"flip must lie between 0 and 0\.5"),
        (lambda: sg.Ordinal([1.0, 0.0]), "thresholds must be numbers in increasing order"),
        (lambda: sg.StudentT(df=1.0), "df must lie between 2.05 and 200"),
        (lambda: sg.Categorical(1), "classes must be a whole number from 2 on, got 1"),
        (lambda: sg.Categorical(3).quantile(0.5, np.zeros(3), np.ones(3)), "have no quantiles: ask for their probability"),
    ],
)
def test_bad_likelihoods(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_the_cumulative_of_gaussian_observations_undoes_their_quantiles():
    q, mean, variance = np.array([0.01, 0.5, 0.9]), np.array([0.0, 3.0, -1.0]), np.array([0.0, 1.0, 4.0])
    with jax.enable_x64(True):
        likelihood = sg.Gaussian(0.3)
        np.testing.assert_allclose(likelihood.predictive_cumulative(likelihood.quantile(q, mean, variance), mean, variance), q)


class NoiseByPlace(Likelihood):
    """Gaussian noise that grows along the first column."""

    base: Numbers = parameter(0.05, positive)

    @property
    def is_gaussian(self):
        return True

    def noise_at(self, X):
        return self.base * (1 + X[:, 0] ** 2)

    def log_prob(self, y, f, extra=1.0):
        raise AssertionError("Gaussian observations are their own sites")


@pytest.mark.parametrize("structure", ["dense", "markov"])
def test_noise_may_depend_on_the_place(structure):
    x = np.linspace(0, 2, 9)
    y, kernel = np.sin(3 * x), sg.Matern32(0.7, 1.3)
    ours = sg.GP(kernel, NoiseByPlace()).condition(x, y, structure=structure)
    known = sg.GP(kernel, sg.Gaussian(0.0)).condition(x, y, noise=0.05 * (1 + x**2), structure=structure)
    np.testing.assert_allclose(ours.log_evidence, known.log_evidence, rtol=1e-10)
    np.testing.assert_allclose(ours.predict([0.3, 2.5]).mean, known.predict([0.3, 2.5]).mean, rtol=1e-9)
    grid = sg.GP(kernel.on(0) * kernel.on(1), NoiseByPlace()).plan(sg.Grid(x, x))
    assert "the noise of NoiseByPlace depends on the place" in str(grid)


def test_whole_numbers_of_ones_own_have_whole_quantiles():
    class Counts(Likelihood):
        whole_numbers = True

        def log_prob(self, y, f):
            return y * f - jnp.exp(f) - jax.scipy.special.gammaln(y + 1)

        def cumulative(self, y, f, extra=1.0):
            return special.pdtr(y, np.exp(f))

    found = Counts().quantile(np.array([0.1, 0.5, 0.9]), 1.0, 0.3)
    np.testing.assert_array_equal(found, np.round(found))
    np.testing.assert_array_equal(found, sg.Poisson().quantile(np.array([0.1, 0.5, 0.9]), 1.0, 0.3))


def test_a_field_called_noise_makes_nothing_gaussian():
    class Cauchy(Likelihood):
        noise: Numbers = parameter(0.1, positive)

        def log_prob(self, y, f, extra=1.0):
            return -jnp.log1p((y - f) ** 2 / self.noise) - jnp.log(jnp.pi * jnp.sqrt(self.noise))

    fitted = sg.GP(sg.Matern32(0.7), Cauchy()).condition(np.linspace(0, 2, 9), np.zeros(9))
    assert fitted.inference is not None


def test_noise_in_proportion_is_gaussian_noise_of_logarithms():
    t, rng = np.linspace(0, 4, 12), np.random.default_rng(0)
    y = np.exp(2 + np.sin(t) + 0.3 * rng.standard_normal(12))
    for kernel in (sg.Matern32(0.8), sg.Spline(0.3, start=0.0)):
        found = sg.GP(kernel, sg.LogGaussian(0.1)).condition(t, y)
        logs = sg.GP(kernel, sg.Gaussian(0.1)).condition(t, np.log(y))
        assert found.log_evidence == pytest.approx(logs.log_evidence - np.sum(np.log(y)), rel=1e-10)
        said, there = found.predict(t + 0.1), logs.predict(t + 0.1)
        np.testing.assert_allclose(said.interval(), np.exp(there.interval()), rtol=1e-8)
        np.testing.assert_allclose(said.log_prob(y), there.log_prob(np.log(y)) - np.log(y), rtol=1e-8)
        np.testing.assert_allclose(said.observed.mean, np.exp(there.mean + 0.5 * (there.variance + 0.1)), rtol=1e-8)
