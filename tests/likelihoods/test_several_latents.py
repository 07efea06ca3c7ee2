"""Likelihoods that see several latents: their integrals against grids, and their predictions against themselves."""

import equinox as eqx
import jax
import numpy as np
import pytest
from scipy import integrate, stats

import structgp as sg
import zoo
from structgp.posterior import Prediction

SWITCHES = {
    "Twinned": (sg.Twinned(0.05, 2.0), 1.3),
    "TwinnedLabels": (sg.TwinnedLabels(3.0, 0.2), 0.0),
    "Ignorant": (sg.Ignorant(0.05, 2.0, 0.3), 1.3),
    "TwoExperts": (sg.TwoExperts(0.1, 0.4), 0.9),
    "TwoProcesses": (sg.TwoProcesses(0.1, 0.4, 0.7), 0.9),
    "Triplet": (sg.Triplet(0.05, 0.4, 3.0), 1.3),
    "counts": (sg.Switch(sg.Poisson(), sg.NegativeBinomial()), 4.0),
    "heavy tails": (sg.Switch(sg.Gaussian(0.1), sg.StudentT(3.0, 1.5)), -2.0),
    "compound": (sg.Switch(sg.Gaussian(0.1), sg.Switch(sg.Gaussian(0.8), sg.Gaussian(6.0), share=0.7)), 1.6),
    "gates on both sides": (
        sg.Switch(
            sg.Switch(sg.Gaussian(0.1), sg.Gaussian(0.4), share=0.8), sg.Switch(sg.Gaussian(1.0), sg.Unrelated(0.0, 9.0))
        ),
        1.9,
    ),
    "a tree": (sg.Switch(sg.Switch(sg.Gaussian(0.1), sg.Gaussian(0.3)), sg.Unrelated(0.0, 4.0)), 1.0),
}
CONTINUOUS = ["Twinned", "Ignorant", "TwoExperts", "TwoProcesses", "Triplet", "heavy tails", "a tree", "compound"]
CONTINUOUS += ["gates on both sides"]
MEAN, VARIANCE = np.array([0.4, -0.3, 0.7]), np.array([0.9, 0.6, 1.2])


def told(method, *arguments):
    """What a likelihood says, as one program."""
    return jax.tree.map(np.asarray, eqx.filter_jit(method)(*arguments))


def grid(latents, count):
    z = np.linspace(-8.0, 8.0, count)
    points = np.stack(np.meshgrid(*[z] * latents, indexing="ij"), axis=-1).reshape(-1, latents)
    return points, -0.5 * np.sum(points**2, axis=1) - 0.5 * latents * np.log(2 * np.pi) + latents * np.log(z[1] - z[0])


def moments_on_grid(likelihood, y, mean, factor):
    """log Z, its slope in the mean and minus its second derivative, from the moments of the tilted belief."""
    points, log_weight = grid(len(mean), 401 if len(mean) == 2 else 91)
    log = told(likelihood.log_prob, y, mean + points @ factor.T) + log_weight
    top = log.max()
    weight = np.exp(log - top)
    weight, total = weight / weight.sum(), weight.sum()
    average = weight @ points
    spread = (points - average).T * weight @ (points - average)
    inverse = np.linalg.inv(factor)
    return top + np.log(total), inverse.T @ average, inverse.T @ (np.eye(len(mean)) - spread) @ inverse


@pytest.mark.parametrize("name", zoo.mostly_full(SWITCHES, "Twinned", "TwinnedLabels", "Triplet"))
def test_switches_against_a_grid(x64, name):
    likelihood, y = SWITCHES[name]
    C = likelihood.latents
    mean, variance = MEAN[:C], VARIANCE[:C]
    value, slope, k = told(likelihood.tilted_derivatives, np.array([y]), mean[None], variance[None])
    expected = moments_on_grid(likelihood, y, mean, np.diag(np.sqrt(variance)))
    rough = 1e-9 if C == 2 else 1e-6
    assert float(value[0]) == pytest.approx(expected[0], abs=rough)
    assert float(told(likelihood.log_tilted, y, mean, variance)) == pytest.approx(expected[0], abs=rough)
    np.testing.assert_allclose(slope[0], expected[1], atol=10 * rough)
    np.testing.assert_allclose(k[0], np.diag(expected[2]), atol=10 * rough)


@pytest.mark.parametrize("name", zoo.mostly_full(["Twinned", "Ignorant", "compound"], "Twinned"))
def test_switches_whose_gate_and_signal_are_known_together(x64, name):
    likelihood, y = SWITCHES[name]
    mean, factor = MEAN[:2], np.array([[1.1, 0.0], [0.5, 0.7]])
    covariance = (factor @ factor.T)[None]
    value, slope, k = told(likelihood.tilted_derivatives, np.array([y]), mean[None], covariance)
    expected = moments_on_grid(likelihood, y, mean, factor)
    assert float(value[0]) == pytest.approx(expected[0], abs=1e-9)
    assert float(told(likelihood.log_tilted, np.array([y]), mean[None], covariance)[0]) == pytest.approx(expected[0], abs=1e-9)
    np.testing.assert_allclose(slope[0], expected[1], atol=1e-8)
    np.testing.assert_allclose(k[0], expected[2], atol=1e-8)
    points, log_weight = grid(2, 401)
    latents = mean + points @ factor.T
    weight = np.exp(told(likelihood.log_prob, y, latents) + log_weight)
    outlier = told(likelihood.outlier_probability, y, latents, np.zeros_like(latents))
    found = told(likelihood.outlier_probability, np.array([y]), mean[None], covariance)
    assert float(found[0]) == pytest.approx(weight @ outlier / weight.sum(), abs=1e-8)


@pytest.mark.parametrize(("y", "level"), [(0.4, -1.0), (5.0, -1.0), (5.0, 1.0)])
def test_noise_that_changes_against_a_grid(x64, y, level):
    likelihood, factor = sg.HeteroscedasticGaussian(), np.array([[1.1, 0.0], [0.3, 0.7]])
    mean = np.array([level, 0.2])
    value, slope, k = told(likelihood.tilted_derivatives, np.array([y]), mean[None], (factor @ factor.T)[None])
    expected = moments_on_grid(likelihood, y, mean, factor)
    assert float(value[0]) == pytest.approx(expected[0], abs=1e-9)
    np.testing.assert_allclose(slope[0], expected[1], atol=1e-8)
    np.testing.assert_allclose(k[0], expected[2], atol=1e-8)
    points, log_weight = grid(2, 401)
    average = np.exp(log_weight) @ told(likelihood.log_prob, y, mean + points @ factor.T)
    assert float(told(likelihood.expected_log_prob, y, mean, factor @ factor.T)) == pytest.approx(average, rel=1e-9)


@pytest.mark.parametrize("power", [0.5, 2.0])
def test_powers_of_noise_that_changes(x64, power):
    likelihood, factor, mean, y = sg.HeteroscedasticGaussian(), np.array([[1.1, 0.0], [0.3, 0.7]]), np.array([-0.5, 0.2]), 0.9
    points, log_weight = grid(2, 401)
    log = power * told(likelihood.log_prob, y, mean + points @ factor.T) + log_weight
    found = told(likelihood.log_tilted, y, mean, factor @ factor.T, power)
    assert float(found) == pytest.approx(np.log(np.sum(np.exp(log))), abs=1e-9)


def prediction(name):
    if name == "noise that changes":
        covariance = np.array([[[0.8, 0.2], [0.2, 0.3]]])
        return Prediction(
            np.array([[-1.0, 0.4]]), np.diagonal(covariance, axis1=1, axis2=2), sg.HeteroscedasticGaussian(), covariance
        )
    likelihood = SWITCHES[name][0]
    C = likelihood.latents
    return Prediction(MEAN[None, :C], VARIANCE[None, :C], likelihood, VARIANCE[None, :C, None] * np.eye(C))


@pytest.mark.parametrize("name", zoo.mostly_full([*CONTINUOUS, "noise that changes"], "Twinned", "noise that changes"))
def test_predictions_are_densities(name):
    one = prediction(name)
    y = np.linspace(-60.0, 60.0, 4001)
    all_ = Prediction(
        *(np.repeat(part, len(y), 0) for part in (one.mean, one.variance)), one.likelihood, np.repeat(one.covariance, len(y), 0)
    )
    density, step = np.exp(all_.log_prob(y)), y[1] - y[0]
    heavy = name == "heavy tails"
    assert density.sum() * step == pytest.approx(1.0, abs=1e-4 if heavy else 1e-8)
    assert (density * y).sum() * step == pytest.approx(one.observed.mean[0], abs=1e-2 if heavy else 1e-7)
    if not heavy:
        assert (density * (y - one.observed.mean[0]) ** 2).sum() * step == pytest.approx(one.observed.variance[0], rel=1e-6)
    below = np.cumsum(density) * step - 0.5 * density * step
    np.testing.assert_allclose(all_.cumulative(y), below, atol=2e-4 if heavy else 1e-4)
    for q in (0.05, 0.6):
        assert one.cumulative(one.quantile(q))[0] == pytest.approx(q, abs=1e-9)


def test_draws_have_the_moments(x64):
    for name in ("Triplet", "TwoProcesses", "noise that changes"):
        one, rng = prediction(name), np.random.default_rng(2)
        f = np.repeat(rng.multivariate_normal(one.mean[0], one.covariance[0], 4000), 10, axis=0)
        y = one.likelihood.sample(rng, f)
        assert y.mean() == pytest.approx(one.observed.mean[0], abs=0.05)
        assert y.var() == pytest.approx(one.observed.variance[0], rel=0.08)
        first, second = eqx.filter_jit(one.likelihood.moments)(one.mean)
        at = one.likelihood.sample(rng, np.repeat(one.mean, 40000, axis=0))
        assert at.mean() == pytest.approx(float(first[0]), abs=0.03)
        assert at.var() == pytest.approx(float(second[0]), rel=0.05)


def test_labels_have_probabilities_and_others_none():
    p = prediction("TwinnedLabels")
    assert p.probability[0] == pytest.approx(p.observed.mean[0])
    gate = 0.5 + 0.0 * p.probability
    assert p.outlier_probability[0] < gate[0]  # the gate is open on average
    steep, flat = (
        float(eqx.filter_jit(side.probability)(MEAN[1], VARIANCE[1])) for side in (p.likelihood.real, p.likelihood.other)
    )
    assert p.probability[0] == pytest.approx((1 - p.outlier_probability[0]) * steep + p.outlier_probability[0] * flat)
    assert p.signal.probability[0] == pytest.approx(steep)
    with pytest.raises(AttributeError, match="observations that are not labels"):
        _ = prediction("Twinned").probability


def test_what_may_stand_in_a_switch():
    with pytest.raises(ValueError, match="each side of a Switch sees one latent, but Categorical sees 3: use another"):
        sg.Switch(sg.Gaussian(), sg.Categorical(3))
    with pytest.raises(ValueError, match="a Switch needs a side that sees a latent"):
        sg.Switch(sg.Unrelated(), sg.Unrelated())
    with pytest.raises(TypeError, match="Switch needs two likelihoods, such as"):
        sg.Switch(sg.Gaussian(), 3.0)
    with pytest.raises(ValueError, match="observations of a Switch count once each: leave out weights"):
        sg.GP(sg.Independent(sg.Matern32(), sg.Matern32()), sg.Twinned()).condition(
            np.arange(3.0), np.zeros(3), weights=np.ones(3)
        )
    with pytest.raises(AttributeError, match="Gaussian has no gate: use Twinned"):
        _ = Prediction(np.zeros(1), np.ones(1), sg.Gaussian()).gate
    with pytest.raises(NotImplementedError, match="Gaussian knows of no outliers: use Twinned"):
        _ = Prediction(np.zeros(1), np.ones(1), sg.Gaussian()).outlier_probability


def test_which_latent_is_what():
    latents = lambda likelihood: [(leaf.latent, [(turn.gate, turn.side) for turn in leaf.turns]) for leaf in likelihood.leaves]
    assert latents(sg.Triplet()) == [(2, [(0, 1)]), (2, [(0, -1), (1, 1)]), (2, [(0, -1), (1, -1)])]
    assert latents(sg.TwoExperts()) == [(1, [(0, 1)]), (2, [(0, -1)])]
    assert latents(sg.TwoProcesses()) == [(0, [(None, 1)]), (1, [(None, -1)])]
    assert sg.Ignorant().latents == 2
    assert sg.TwoExperts().latent_names == ("gate", "signal 1", "signal 2")
    assert sg.HeteroscedasticGaussian().latent_names == ("log noise", "signal")
    assert sg.Triplet().signal[0] == 2
    assert sg.HeteroscedasticGaussian().signal[0] == 1
    softer = sg.Twinned(0.01, 1.0).softened(0.5)
    assert float(softer.real.noise) == pytest.approx(0.1)
    assert float(softer.other.noise) == 1.0
    assert jax.tree.structure(softer) == jax.tree.structure(sg.Twinned())


def test_an_outlier_of_student_t_noise_had_noise_three_times_as_wide():
    likelihood, variance = sg.StudentT(3.0, 0.5), 0.2
    residual = np.array([0.0, 0.5, 2.0, 10.0, 1e4])

    def mass(low, high, r):
        """Of precisions between two, whose gamma density has shape and rate ν/2."""
        density = lambda u: stats.gamma.pdf(u, 1.5, scale=1 / 1.5) * stats.norm.pdf(r, 0.0, np.sqrt(variance + 0.25 / u))
        return integrate.quad(density, low, high, epsabs=0.0, epsrel=1e-11, limit=500)[0]

    expected = [mass(0, 1 / 9, r) / (mass(0, 1 / 9, r) + mass(1 / 9, np.inf, r)) for r in residual[:4]]
    p = Prediction(np.zeros(5), np.full(5, variance), likelihood)
    found = p.outlier_probability_of(residual)
    np.testing.assert_allclose(found[:4], expected, rtol=1e-4)
    assert 1 - 1e-6 < found[4] <= 1
    np.testing.assert_allclose(p.outlier_probability, stats.gamma.cdf(1 / 9, 1.5, scale=1 / 1.5))


def test_classes_through_normal_noise_are_orthants_of_a_normal_distribution(x64):
    likelihood, rng = sg.MultinomialProbit(3), np.random.default_rng(0)
    y, mean, variance = np.array([0.0, 1, 2, 1, 0]), rng.normal(0.0, 2.0, (5, 3)), rng.uniform(0.0, 4.0, (5, 3))
    value, slope, k = told(likelihood.tilted_derivatives, y, mean, variance)
    for i, c in enumerate(y.astype(int)):
        above = np.eye(3)[c] - np.delete(np.eye(3), c, axis=0)
        below = stats.multivariate_normal(np.zeros(2), above @ np.diag(1 + variance[i]) @ above.T, abseps=1e-12, releps=1e-12)
        assert value[i] == pytest.approx(np.log(below.cdf(above @ mean[i])), abs=1e-8)
    tilted = jax.jit(lambda m: likelihood.log_tilted(y, m, variance))
    for c in range(3):
        step = 1e-4 * np.eye(3)[c]
        up, down = tilted(mean + step), tilted(mean - step)
        np.testing.assert_allclose(slope[:, c], (up - down) / 2e-4, atol=1e-7)
        np.testing.assert_allclose(k[:, c], -(up - 2 * value + down) / 1e-8, atol=1e-5)
    far = told(likelihood.tilted_derivatives, np.zeros(1), np.array([[-30.0, 30.0, -30.0]]), np.ones((1, 3)))
    assert far[0][0] == pytest.approx(stats.norm.logcdf(-60 / 2), abs=1e-6)  # the third class is far below where they meet
    with pytest.raises(ValueError, match="classes must be a whole number from 2 on, got 1"):
        sg.MultinomialProbit(1)
    with pytest.raises(ValueError, match="count once each: leave out weights"):
        likelihood.log_tilted(y, mean, variance, 0.5)
