"""Beliefs about parameters, the density of θ, and evidences: against each other and against quadrature."""

import datetime

import numpy as np
import pytest

import structgp as sg
import zoo
from structgp.engines.cholesky import cost_of_matrix
from structgp.learn.anneal import anneal, around
from structgp.learn.average import by_laplace, design, smoothed
from structgp.learn.believe import WeakBeliefs, believe
from structgp.learn.density import Density
from structgp.learn.integrate import integrate
from structgp.learn.objective import Objective
from structgp.learn.peak import Averaging, Peak, choose, normal_scores, paired_scores, resampled, split
from structgp.learn.sample import metropolis_step, slice_step, trajectories
from structgp.parameters.tree import free_names, free_vector
from structgp.process.evidence import density_of, posterior_of_parameters

pytestmark = pytest.mark.averaged

RNG = np.random.default_rng(5)
X = np.sort(RNG.uniform(0, 5, 16))
Y = np.sin(2 * X) + 0.1 * RNG.standard_normal(16)
SMALL = sg.GP(sg.Matern52(), sg.Gaussian(0.1))
PLACES = np.array([0.5, 2.2, 6.0])


def beliefs_of(gp, X=X, Y=Y):
    density = density_of(gp, X, Y)
    return dict(zip(free_names(gp), zip(density.beliefs.center, density.beliefs.width, strict=True), strict=True))


def test_what_is_believed_is_in_the_units_of_the_data():
    XX = np.stack([X, 10 * np.cos(X)], axis=1)
    gp = sg.GP(sg.Matern32(np.ones(2)) + sg.Constant(), sg.Gaussian(), sg.ConstantMean())
    found = beliefs_of(gp, XX)
    s, v = XX.std(axis=0), Y.var()
    np.testing.assert_allclose(np.exp(found["kernel.terms[0].lengthscale[1]"][0]), s[1] * np.sqrt(2) * np.exp(0.5))
    np.testing.assert_allclose(np.exp(found["kernel.terms[1].variance"][0]), 0.95 * v / 2)
    np.testing.assert_allclose(np.exp(found["likelihood.noise"][0]), v / 20)
    widths = [1, 1, 1, 1, 1.7, 2]
    assert [width for _, width in found.values()] == widths


def test_a_period_is_averaged_over_only_around_a_start():
    assert beliefs_of(sg.GP(sg.Periodic(1.7)))["kernel.period"][1] == 0.5
    assert np.isinf(beliefs_of(sg.GP(sg.Periodic()))["kernel.period"][1])
    own = sg.GP(sg.Periodic().with_prior(period=sg.LogNormal(0, 1)))
    assert np.isfinite(beliefs_of(own)["kernel.period"][1])
    fitted = sg.GP(sg.Periodic(), sg.Gaussian(0.1)).fit(X, Y, parameters="laplace", restarts=0)
    assert np.ptp([member.kernel.period for member in fitted.members]) < 1e-12
    assert np.ptp([member.kernel.lengthscale for member in fitted.members]) > 0.01


@pytest.mark.parametrize(
    "gp",
    [
        SMALL,
        sg.GP(sg.Matern52(1.0).with_prior(lengthscale=sg.Gamma(2.0, 1.0)), sg.Gaussian(0.1), sg.ConstantMean()),
        sg.GP(sg.Matern52(1.0).with_bounds(lengthscale=(0.5, 3.0)), sg.Gaussian(0.1), sg.LinearMean()),
    ],
    ids=["ours", "with a prior", "with bounds"],
)
def test_the_density_before_the_data_is_one_and_has_the_gradient_that_it_has(gp):
    density = density_of(gp, X, Y)
    thetas = density.beliefs.sample(gp, np.random.default_rng(0), 2000)
    priors = density.log_priors(thetas)
    terms, step = density.terms(thetas[0]), 1e-5
    np.testing.assert_allclose(priors[0], terms.log_prior, rtol=1e-12)
    sides = [density.log_priors(thetas[0] + side * step * np.eye(thetas.shape[1])) for side in (1, -1)]
    np.testing.assert_allclose(terms.prior_gradient, (sides[0] - sides[1]) / (2 * step), rtol=1e-6, atol=1e-8)
    # under p the mean of q/p is one, for a density q that is narrower than p and within its bounds
    z, units = density.beliefs.z(thetas), np.abs(np.diag(density.beliefs.units))
    center, sd = np.median(z, axis=0), 0.4 * z.std(axis=0)
    logs = np.sum(-0.5 * ((z - center) / sd) ** 2 - np.log(sd * units * np.sqrt(2 * np.pi)), axis=1)
    ratio = np.exp(logs - priors)
    assert abs(ratio.mean() - 1) < 4 * ratio.std() / np.sqrt(len(ratio))
    assert ratio.std() / np.sqrt(len(ratio)) < 0.15


def test_bounds_cut_a_belief_off_and_it_still_integrates_to_one():
    gp = sg.GP(sg.Matern52(1.0).freeze("variance").with_bounds(lengthscale=(0.5, 3.0)), sg.Gaussian(sg.fixed(0.1)))
    density = density_of(gp, X, Y)
    grid = np.linspace(np.log(0.4), np.log(3.2), 20001)[:, None]
    np.testing.assert_allclose(np.sum(np.exp(density.log_priors(grid))) * (grid[1, 0] - grid[0, 0]), 1, rtol=1e-3)
    assert np.isneginf(density.log_priors(np.log([[0.45]])))[0]


def test_the_size_behind_labels_has_heavy_tails_and_others_do_not():
    with_labels = sg.GP(sg.Matern52(), sg.Bernoulli())
    beliefs = believe(with_labels, X[:, None], sg.GP(with_labels.kernel).condition(X, Y > 0).data)
    assert dict(zip(free_names(with_labels), beliefs.tails, strict=True)) == {
        "kernel.lengthscale": False,
        "kernel.variance": True,
    }
    bounds, yes = np.array([[-np.inf, 2.0]]), np.array([True])
    one = WeakBeliefs(np.array([0.3]), np.array([0.5]), np.eye(1), yes, bounds, yes)
    own, grid = one.own(), np.linspace(-80, 2, 400_001)[:, None]
    np.testing.assert_allclose(np.sum(np.exp(own.log_probs(grid))) * (grid[1, 0] - grid[0, 0]), 1, rtol=1e-4)
    sides = own.log_probs(np.array([[-1.7 + 1e-6], [-1.7 - 1e-6]]))
    value, slope = own.log_prob(np.array([-1.7]))
    np.testing.assert_allclose([value, slope[0]], [sides.mean(), (sides[0] - sides[1]) / 2e-6], rtol=1e-6)
    thinner = one._replace(heavy=None).own()
    assert own.log_probs(np.array([[-5.0]])) > thinner.log_probs(np.array([[-5.0]])) + 30


@pytest.fixture(scope="module")
def peak():
    return Peak(*posterior_of_parameters(SMALL, X, Y))


@pytest.fixture(scope="module")
def truth(peak):
    return integrate(peak, "quadrature")


@pytest.mark.parametrize(("method", "off"), [("laplace", 0.15), ("ccd", 0.2), ("grid", 0.3), ("importance", 0.2)])
def test_evidences_are_near_that_of_quadrature(peak, truth, method, off):
    assert truth.error < 1e-4
    assert abs(integrate(peak, method).log - truth.log) < off


@pytest.mark.parametrize(
    ("method", "options"),
    zoo.mostly_full(
        [
            ("ais", {}),
            ("ais", {"schedule": "even", "moves": 3}),
            ("ais", {"start": "prior", "schedule": "even", "moves": 4}),
            ("ais", {"move": "slice"}),
            ("ais", {"move": "hmc"}),
            ("ais", {"start": "prior", "move": "hmc", "schedule": "even"}),
            ("smc", {"start": "prior", "schedule": "even"}),
        ],
        ("ais", {}),
    ),
)
def test_annealed_evidences_are_within_their_errors(peak, truth, method, options):
    found = integrate(peak, method, seed=3, **options)
    assert 0.005 < found.error < 0.5
    assert abs(found.log - truth.log) < 3.5 * found.error
    assert integrate(peak, method, seed=3, **options) == found


def test_the_curvature_is_that_of_the_density(peak):
    u = 0.3 * np.eye(peak.size)
    np.testing.assert_allclose(peak.values(np.zeros((1, peak.size)))[0], peak.height + peak.log_scale, rtol=1e-9)
    fall = peak.height + peak.log_scale - 0.5 * (peak.values(u) + peak.values(-u))
    np.testing.assert_allclose(fall, 0.5 * 0.3**2, rtol=0.15)
    values, slopes = peak.values_and_slopes(u)
    np.testing.assert_allclose(values, peak.values(u), rtol=1e-8)
    step = 1e-4 * np.eye(peak.size)
    np.testing.assert_allclose(slopes[0], (peak.values(u[:1] + step) - peak.values(u[:1] - step)) / 2e-4, rtol=1e-4, atol=1e-5)


def test_the_curvature_is_right_along_what_the_data_tell_to_many_digits():
    """The period of a season that comes 160 times is known to 5e-6 of it."""
    t = np.arange(480.0)
    y = np.sin(2 * np.pi * t / 3.1) + 0.02 * np.random.default_rng(0).standard_normal(480)
    sharp = sg.GP(sg.Periodic(period=3.1, lengthscale=sg.fixed(1.0)) * sg.Constant(sg.fixed(1.0)), sg.Gaussian(sg.fixed(4e-4)))
    peak = Peak(*posterior_of_parameters(sharp, t, y, restarts=0))
    sd = np.sqrt(np.diagonal(peak.root @ peak.root.T))
    assert sd.min() < 1e-5
    u = 0.5 * np.eye(peak.size)
    fall = peak.height + peak.log_scale - 0.5 * (peak.values(u) + peak.values(-u))
    np.testing.assert_allclose(fall, 0.125, rtol=0.05)


def test_scores_go_further_where_the_density_does():
    u = normal_scores(2, 4096, 0)
    v = split(u, np.array([[0.5, 1.0], [2.0, 1.0]]))
    assert np.all(np.diff(v[np.argsort(u[:, 0]), 0]) >= 0)  # quantiles stay in their order
    np.testing.assert_allclose(v[:, 1], u[:, 1], atol=1e-9)
    below = v[:, 0] < 0
    assert np.mean(below) == pytest.approx(0.2, abs=2e-3)
    assert [np.sqrt(np.mean(part**2)) for part in (v[below, 0], v[~below, 0])] == pytest.approx([0.5, 2.0], rel=0.02)


def test_where_labels_are_told_apart_the_size_of_f_is_open_above():
    fitted = sg.GP(sg.SquaredExponential(), sg.Bernoulli()).fit(X, X > 2.4, parameters="laplace", restarts=0)
    density = density_of(fitted.gp, X, X > 2.4)
    below, above = Peak(density, free_vector(fitted.gp)).sides
    number = list(free_names(fitted.gp)).index("kernel.variance")
    assert above[number] > 1.15 * below[number]
    tail = np.array([member.kernel.variance for member in fitted.members])
    assert np.log(tail.max() / fitted.kernel.variance) > 1.1 * np.log(fitted.kernel.variance / tail.min())
    row = {row.name: row for row in fitted.parameters()}["kernel.variance"]
    assert np.log(row.high / row.median) > 1.1 * np.log(row.median / row.low)  # in the table as well
    sides, sd = fitted.draws.sides[:, number], np.sqrt(fitted.draws.spread[number, number])
    assert row.high > 1.05 * fitted.kernel.variance * np.exp(1.645 * sd)
    np.testing.assert_allclose(sides, [below[number], above[number]], rtol=0.01)


class Skewed:
    """A density with known moments: u₀ is the logarithm of a Gamma(4, 4), u₁ normal around it."""

    size = 2

    def values(self, u):
        return 4 * u[:, 0] - 4 * np.exp(u[:, 0]) - 0.5 * (u[:, 1] - u[:, 0]) ** 2

    def values_and_slopes(self, u):
        rest = u[:, 1] - u[:, 0]
        return self.values(u), np.stack([4 - 4 * np.exp(u[:, 0]) + rest, -rest], axis=1)


def test_members_are_moved_where_the_data_bound_a_number_on_one_side_only():
    """A variance that may be zero: a normal approximation of its logarithm has members that the data exclude."""
    evidence = lambda theta: (-3 * np.exp(theta[2]), np.array([0.0, 0.0, -3 * np.exp(theta[2])]))
    gp, yes, free = sg.GP(sg.Matern52(), sg.Gaussian(0.1)), np.ones(3, bool), np.tile([-np.inf, np.inf], (3, 1))
    center, x = np.zeros(3), np.linspace(-15, 5, 4001)
    size_of = lambda draws: draws.weights @ np.exp(draws.thetas[:, 2])
    for width, few in ((3.0, False), (0.5, True)):
        beliefs = WeakBeliefs(center, np.array([1.0, 1.0, width]), np.eye(3), yes, free)
        log = -3 * np.exp(x) - 0.5 * (x / width) ** 2
        best, p = x[np.argmax(log)], np.exp(log - log.max())
        top = Peak(Density(Objective(gp, evidence), beliefs), np.array([0.0, 0.0, best]))
        stay, moved = (by_laplace(top, Averaging(), may_move) for may_move in (False, True))
        truth = np.sum(p * np.exp(x)) / p.sum()
        assert len(stay.weights) == 6
        if few:
            np.testing.assert_array_equal(moved.thetas, stay.thetas)
        else:
            assert len(moved.weights) == 16
            assert size_of(stay) > 1.6 * truth
            assert 0.5 < size_of(moved) / truth < 1.5
        asked = by_laplace(top, Averaging(members=6), may_move=True)
        np.testing.assert_array_equal(asked.thetas, stay.thetas)  # who says how many gets these


def test_an_output_may_have_nothing_of_its_own():
    XX = np.stack([np.tile(X, 2), np.repeat([0.0, 1.0], 16)], axis=1)
    found = beliefs_of(sg.GP(sg.GaussianFilters(2), sg.Gaussian([0.1, 0.1])), XX, np.tile(Y, 2))
    own, start = found["kernel.variance[0]"], 0.95 * Y.var() * 0.1 / (0.1 + 0.81)
    assert own[1] == 3.0
    np.testing.assert_allclose(np.exp(own[0]), start * np.exp(-2))


def test_moves_leave_a_density_as_it_is():
    from scipy.special import digamma, gammaln, polygamma

    density, rng, count = Skewed(), np.random.default_rng(1), 4000
    first = np.log(rng.gamma(4, 1 / 4, count))
    start = np.stack([first, first + rng.standard_normal(count)], axis=1)
    mean = digamma(4) - np.log(4)
    spread = polygamma(1, 4)

    def check(u):
        error = 5 / np.sqrt(count)
        np.testing.assert_allclose(u.mean(axis=0), [mean, mean], atol=1.3 * error)
        np.testing.assert_allclose(np.cov(u.T), [[spread, spread], [spread, spread + 1]], atol=2.2 * error)

    check(trajectories(density, start, 3, 8, 0.35, rng))
    for step in (
        lambda u, v: metropolis_step(density.values, u, v, np.eye(2), rng)[:2],
        lambda u, v: slice_step(density.values, u, v, rng),
    ):
        u, values = start, density.values(start)
        for _ in range(5):
            u, values = step(u, values)
        np.testing.assert_allclose(values, density.values(u))
        assert np.mean(np.all(u != start, axis=1)) > 0.7
        check(u)
    annealed = anneal(around(2), density.values, 400, rng, schedule="even", even=0.95, moves=2)
    truth = gammaln(4) - 4 * np.log(4) + 0.5 * np.log(2 * np.pi)
    assert abs(annealed.log - truth) < 4 * annealed.error
    assert annealed.error < 0.1


def test_designs_and_scores_have_the_moments_of_a_normal():
    for size in (1, 3, 8, 11):
        u, weights = design(size)
        np.testing.assert_allclose([weights.sum(), weights @ np.sum(u * u, axis=1)], [1, size])
        np.testing.assert_allclose(weights @ u, 0, atol=1e-12)
        np.testing.assert_allclose((u * weights[:, None]).T @ u, np.eye(size), atol=1e-12)
        scores = normal_scores(size, 16, 0)
        np.testing.assert_allclose(scores.mean(axis=0), 0, atol=0.2)
        np.testing.assert_allclose(scores.std(axis=0), 1, atol=0.25)
        pairs = paired_scores(size, 6, 0)
        np.testing.assert_allclose(pairs.mean(axis=0), 0, atol=1e-12)
        np.testing.assert_allclose(np.sum(pairs**2) / 6, size, rtol=1e-12)
    np.testing.assert_array_equal(resampled(np.array([0.5, 0.0, 0.25, 0.25]), 4, np.random.default_rng(0)), [0, 0, 2, 3])


def test_smoothing_keeps_even_weights_and_lowers_the_largest():
    rng = np.random.default_rng(0)
    logs = 2.5 * rng.standard_normal(500)
    new = smoothed(logs)
    assert new.max() <= logs.max()
    assert np.sum(new != logs) <= 3 * np.sqrt(500)
    np.testing.assert_array_equal(smoothed(np.zeros(100)), np.zeros(100))


def test_what_is_done_about_parameters_and_why():
    assert choose("auto", 200, 3).averaging == sg.Averaging("laplace")
    assert choose("auto", 301, 3).reason == "best: more than 100 rows for each of 3 parameters leave little of them unsure"
    assert choose("auto", 2001, 40).averaging is None
    many = choose("auto", 40, 62, evaluation=cost_of_matrix(40, 60).evaluation)  # few rows: all looks together are a moment
    assert many.reason == "averaged over: 40 rows for 62 parameters leave them unsure"
    large = cost_of_matrix(2000, 98).evaluation
    assert choose("auto", 2000, 50, evaluation=large).averaging == sg.Averaging("laplace")
    slow = "best: an average over 100 parameters of 2000 rows takes minutes: parameters='laplace' asks for it"
    assert choose("auto", 2000, 100, evaluation=large).reason == slow
    assert choose("auto", 60, 2000).averaging == sg.Averaging("laplace")
    assert choose("auto", 60, 10_000).averaging is None  # the Hessian alone takes longer
    assert choose("laplace", 2000, 100, evaluation=large).averaging == sg.Averaging("laplace")
    assert choose("auto", 20, 0).reason == "best: there is nothing to learn"
    assert choose("auto", 20, 3, "em").averaging is None
    assert choose("ccd", 10**6, 3).averaging == sg.Averaging("ccd")
    with pytest.raises(ValueError, match=r"parameters must be one of \('auto', 'best', 'laplace'.*got 'mean'"):
        choose("mean", 20, 3)
    with pytest.raises(ValueError, match="method='em' finds the best parameters only: leave it out"):
        choose("laplace", 20, 3, "em")
    with pytest.raises(ValueError, match="Averaging: method must be one of"):
        sg.Averaging("best")
    with pytest.raises(ValueError, match="for three parameters at most, and there are 4: take 'laplace' or 'ccd'"):
        sg.GP(sg.Matern52(), mean=sg.ConstantMean()).fit(X, Y, parameters="grid")
    with pytest.raises(ValueError, match="quadrature' is for three parameters at most, and there are 4"):
        sg.evidence(sg.GP(sg.Matern52(), mean=sg.ConstantMean()), X, Y, "quadrature")
    with pytest.raises(ValueError, match=r"evidence: start must be one of \('laplace', 'prior'\), got 'mode'"):
        sg.evidence(SMALL, X, Y, "ais", start="mode")


@pytest.mark.full
def test_models_are_compared_by_their_evidences():
    rough = sg.GP(sg.Matern12(), sg.Gaussian(0.1))
    found = sg.compare({"smooth": SMALL, "rough": rough}, X, Y, method="ais", seed=1)
    factor = found.bayes_factor("smooth", "rough")
    assert sum(found.probabilities.values()) == pytest.approx(1)
    assert factor.log == pytest.approx(found.evidences["smooth"].log - found.evidences["rough"].log)
    assert found.probabilities["smooth"] == pytest.approx(1 / (1 + np.exp(-factor.log)))
    assert factor.error == pytest.approx(np.hypot(found.evidences["smooth"].error, found.evidences["rough"].error))
    assert str(found).startswith(found.best)
    average, p = found.average.predict(PLACES), found.probabilities
    each = {name: fitted.predict(PLACES) for name, fitted in found.fitted.items()}
    np.testing.assert_allclose(average.mean, sum(p[name] * each[name].mean for name in each), rtol=1e-10)
    density = sum(p[name] * np.exp(each[name].log_prob(np.zeros(3))) for name in each)
    np.testing.assert_allclose(average.log_prob(np.zeros(3)), np.log(density), rtol=1e-9)
    with pytest.raises(ValueError, match="there is no model 'soft'; there are smooth, rough"):
        found.bayes_factor("smooth", "soft")
    with pytest.raises(ValueError, match="'free' leaves a level or a polynomial free"):
        sg.compare({"free": sg.GP(sg.Spline()), "smooth": SMALL}, X, Y)
    with pytest.raises(ValueError, match="'ard' has the prior Alike, which is no density"):
        sg.compare({"ard": sg.GP(sg.Matern52().with_prior(lengthscale=sg.Alike()))}, X, Y)


@pytest.mark.parametrize(
    ("log", "words"),
    [
        (1.0, "not worth more than a bare mention"),
        (2.0, "substantial evidence for a"),
        (-3.0, "strong evidence for b"),
        (4.0, "very strong evidence for a"),
        (5.0, "decisive evidence for a"),
    ],
)
def test_bayes_factors_in_words(log, words):
    from structgp.models.compare import BayesFactor

    assert BayesFactor(log, None, "a", "b").words == words


def test_outputs_are_read_as_they_are_for_fitting():
    gp, both = sg.GP(sg.LMC(2, sg.Matern32()), sg.Gaussian(0.1)), np.stack([Y, np.where(X > 3, np.nan, X)], axis=1)
    named = sg.Outputs({"a": X, "b": X[X <= 3]})
    wide = density_of(gp, X, both, missing="infer")
    by_name = density_of(gp, named, {"a": Y, "b": X[X <= 3]})
    theta = free_vector(gp)
    np.testing.assert_allclose(wide(theta)[0], by_name(theta)[0], rtol=1e-10)
    for places, y, how in ((X, both, {"missing": "infer"}), (named, {"a": Y, "b": X[X <= 3]}, {})):
        with pytest.raises(ValueError, match="'free' leaves a level or a polynomial free"):
            sg.compare({"free": sg.GP(gp.kernel, gp.likelihood, sg.polynomial(1))}, places, y, **how)


def test_beliefs_are_those_of_the_model_that_was_given():
    fitted = SMALL.fit(X, Y, parameters="laplace")
    np.testing.assert_allclose(fitted.draws.beliefs.center, believe(SMALL, X[:, None], fitted.data).center)
    assert fitted.draws.center == pytest.approx(free_vector(fitted.gp))


@pytest.mark.parametrize(
    "options", [{"schedule": "ratio"}, {"schedule": "even", "even": 0.95, "moves": 2}], ids=["ratio", "even"]
)
def test_a_gaussian_has_the_normaliser_that_is_known(options):
    mean, C = np.array([1.5, -0.7, 0.4]), np.array([[0.5, 0.3, 0.0], [0.3, 0.6, -0.1], [0.0, -0.1, 0.2]])
    height = lambda u: 2.0 - 0.5 * np.sum((u - mean) * np.linalg.solve(C, (u - mean).T).T, axis=1)
    truth = 2.0 + 0.5 * np.linalg.slogdet(2 * np.pi * C)[1]
    runs = [anneal(around(3), height, 100, np.random.default_rng(seed), **options) for seed in range(20)]
    scores = np.array([(run.log - truth) / run.error for run in runs])
    assert np.max(np.abs(scores)) < 3
    assert 1 / 1.5 < np.sqrt(np.mean(scores**2)) < 1.5
    assert abs(scores.mean()) < 3 / np.sqrt(20)


@pytest.mark.full
def test_one_by_one_is_at_once_with_a_lengthscale_for_each_column():
    places = np.random.default_rng(0).uniform(0, 5, (12, 2))
    kernel = sg.SquaredExponential(np.ones(2), sg.fixed(1.0)).with_prior(lengthscale=sg.LogNormal(0.5, 1))
    ard = sg.GP(kernel, sg.Gaussian(sg.fixed(0.01)))
    y = ard.sample(places, 1, seed=0, observed=True)[0]
    stream = sg.EvidenceStream({"ard": ard}, chains=200, begin=4, seed=0)
    for x, value in zip(places, y, strict=True):
        stream.tell(x, value)
    found, batch = stream.evidences["ard"], sg.evidence(ard, places, y, "ais", chains=200, seed=0)
    truth = sg.evidence(ard, places, y, "quadrature")
    assert abs(found.log - truth.log) < 3 * found.error
    assert abs(found.log - batch.log) < 3 * np.hypot(found.error, batch.error)
    assert found.error < 0.6


@pytest.mark.full
def test_sequential_evidences_are_those_of_all_data_at_once():
    """Two models of one form share their programs; no belief depends on the data."""
    kernel = sg.SquaredExponential().with_prior(lengthscale=sg.LogNormal(0, 1), variance=sg.LogNormal(0, 1))
    only, noisy = (sg.GP(kernel, sg.Gaussian(sg.fixed(noise))) for noise in (0.05, 1.0))
    stream = sg.EvidenceStream({"only": only, "noisy": noisy}, chains=100, begin=4, seed=2)
    assert stream.probabilities == {"only": 0.5, "noisy": 0.5}
    with pytest.raises(ValueError, match="0 observations were told so far, and 4 are collected before"):
        stream.predict(PLACES)
    for x, y in zip(X[::2], Y[::2], strict=True):
        stream.tell(x, y)
    assert len(stream) == 8
    found, truth = stream.evidences["only"], sg.evidence(only, X[::2], Y[::2], "quadrature")
    assert abs(found.log - truth.log) < 3 * found.error
    assert 0.02 < found.error < 0.6
    assert stream.probabilities["only"] > 0.5
    prediction = stream.predict(X[:3])
    np.testing.assert_allclose(prediction.mean, Y[:3], atol=0.5)
    assert prediction.weights.sum() == pytest.approx(1)


def test_what_cannot_be_told_is_refused_and_not_kept():
    stream = sg.EvidenceStream({"counts": sg.GP(sg.Matern52(), sg.Poisson())}, chains=8, begin=9)
    stream.tell(0.0, 2)
    for y in (np.nan, np.inf, [1.0, 2.0], np.ma.masked):
        with pytest.raises(ValueError, match=r"tell needs one finite value, got .*: do not tell what was not observed"):
            stream.tell(1.0, y)
    with pytest.raises(ValueError, match="Poisson needs counts 0, 1, 2"):
        stream.tell(1.0, -1)
    with pytest.raises(ValueError, match="x has 1 NaN"):
        stream.tell(np.nan, 1)
    with pytest.raises(ValueError, match=r"tell needs a place with 1 column, got \(2,\)"):
        stream.tell([1.0, 2.0], 3)
    for date in (np.datetime64("2020-01-01"), datetime.date(2020, 1, 1), "soon"):
        with pytest.raises(TypeError, match=r"tell needs numbers, got .*: of a date tell the days since the first"):
            stream.tell(date, 3)
    assert len(stream.tell(1.0, 3)) == 2
    free = sg.EvidenceStream({"free": sg.GP(sg.Spline())})
    with pytest.raises(ValueError, match="'free' leaves a level or a polynomial free"):
        free.tell(0.0, 1.0)
    assert len(free) == 0


@pytest.mark.full
def test_chains_stay_as_they_are_where_an_observation_is_refused():
    pair = [sg.EvidenceStream({"one": SMALL}, chains=8, begin=2, seed=1) for _ in range(2)]
    for x, y in zip(X[:4], Y[:4], strict=True):
        pair[0].tell(x, y)
        with pytest.raises(ValueError, match="tell needs one finite value, got nan"):
            pair[1].tell(x, np.nan)
        pair[1].tell(x, y)
    assert pair[0].evidences == pair[1].evidences


@pytest.mark.full
def test_a_rotation_is_found_and_has_more_evidence_where_there_is_one():
    places = np.random.default_rng(0).uniform(0, 5, (16, 2))
    y = np.sin(2 * (places @ [1, -1]) / np.sqrt(2))
    turned = sg.GP(sg.Rotated(sg.SquaredExponential(np.ones(2))), sg.Gaussian(0.1))
    found = sg.compare({"aligned": sg.GP(sg.SquaredExponential(np.ones(2)), sg.Gaussian(0.1)), "turned": turned}, places, y)
    assert found.probabilities["turned"] > 0.99
    fitted = turned.fit(places, y, rotations=3, restarts=0)
    assert fitted.learning.restarts == 3
    lengths, V = fitted.kernel.kernel.lengthscale, fitted.kernel.direction
    np.testing.assert_allclose(abs(V[:, np.argmin(lengths)] @ [1, -1]) / np.sqrt(2), 1, atol=0.01)
    searched = turned.fit(places, y, rotations="perturb", restarts=0)
    assert searched.learning.restarts == 1
    assert searched.log_evidence > fitted.log_evidence - 0.5
    with pytest.raises(ValueError, match="rotations must be a number of random starts or 'perturb', got 'turn'"):
        turned.fit(places, y, rotations="turn")
    with pytest.raises(ValueError, match="rotations are for kernels with directions that are learned"):
        SMALL.fit(X, Y, rotations=2)
    with pytest.raises(ValueError, match="Rotated needs a kernel with a lengthscale for each of several columns"):
        sg.Rotated(sg.Matern52())


@pytest.mark.full
def test_kernels_are_combined_by_their_shares():
    kernels = [sg.Matern52(0.8), sg.Matern12(0.1), sg.Linear()]
    fitted = sg.GP(sg.combine(kernels), sg.Gaussian(0.1)).fit(X, 50 * Y, restarts=0)
    assert free_names(fitted.gp) == [*(f"kernel.terms[{i}].scale" for i in range(3)), "likelihood.noise"]
    found = sg.shares(fitted.kernel)
    assert found.sum() == pytest.approx(1)
    assert np.argmax(found) == 0
    with pytest.raises(ValueError, match="combine needs two kernels or more, got 1"):
        sg.combine(kernels[:1])
    with pytest.raises(ValueError, match="shares are of kernels that were put together by combine"):
        sg.shares(sg.Matern52())
