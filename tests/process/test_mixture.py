"""A process averaged over its parameters answers what a fitted one does, and by the members' own answers."""

import dataclasses
import pickle

import numpy as np
import pytest

import structgp as sg
import zoo
from structgp.engines.woodbury import Woodbury
from structgp.files.rules import OLDER
from structgp.posterior import MixturePrediction, Prediction
from structgp.process.mixture import FittedMixture, averaged

pytestmark = pytest.mark.averaged

X, XS = np.linspace(0, 6, 20), np.array([0.3, 2.2, 7.5])
RNG = np.random.default_rng(2)
Y = np.sin(X) + 0.1 * RNG.standard_normal(20)
GP = sg.GP(sg.Matern52() + sg.Constant(), sg.Gaussian(0.1))
LIKELIHOODS = {
    "Gaussian": (sg.Gaussian(0.1), Y),
    "Bernoulli": (sg.Bernoulli(), (Y > 0).astype(float)),
    "Poisson": (sg.Poisson(), np.round(3 + 3 * Y)),
    "Ordinal": (sg.Ordinal(), np.digitize(Y, [-0.5, 0.5]).astype(float)),
    "StudentT": (sg.StudentT(), Y),
}


@pytest.fixture(scope="module")
def mixture():
    return GP.fit(X, Y, parameters="laplace")


def members_of(fitted, *arguments):
    return [member.predict(*arguments) for member in fitted.members], fitted.weights[:, None]


def test_moments_and_quantiles_are_those_of_the_members(mixture):
    found = mixture.predict(XS)
    parts, w = members_of(mixture, XS)
    means, variances = (np.stack([getattr(part, name) for part in parts]) for name in ("mean", "variance"))
    np.testing.assert_allclose(found.mean, (w * means).sum(axis=0), rtol=1e-12)
    np.testing.assert_allclose(found.variance, (w * (variances + means**2)).sum(axis=0) - found.mean**2, rtol=1e-9)
    noise = np.array([float(member.likelihood.noise) for member in mixture.members])[:, None]
    np.testing.assert_allclose(found.observed.variance, found.variance + (w * noise).sum(axis=0), rtol=1e-10)
    assert len(found) == 3
    assert repr(found) == "MixturePrediction(3, Gaussian, 6 members)"
    from scipy.special import ndtr

    cumulative = lambda y: (w * ndtr((y - means) / np.sqrt(variances + noise))).sum(axis=0)
    lower, upper = found.interval(0.9)
    np.testing.assert_allclose([cumulative(lower), cumulative(upper)], [[0.05] * 3, [0.95] * 3], rtol=1e-9)
    np.testing.assert_allclose(cumulative(found.quantile(0.5)), 0.5, rtol=1e-9)
    with pytest.raises(ValueError, match="quantile needs probabilities between 0 and 1"):
        found.quantile(1.5)
    with pytest.raises(ValueError, match="interval needs a level between 0 and 1"):
        found.interval(95)


def test_members_together_are_the_members_one_by_one(mixture):
    assert mixture.members.together is not None
    alone = FittedMixture(mixture.mode, mixture.draws)
    alone.members.__dict__["together"] = None
    one_by_one = [member.log_evidence for member in alone.members]
    np.testing.assert_allclose([member.log_evidence for member in mixture.members], one_by_one, rtol=1e-10)
    at_once, by_each = mixture.predict(XS), alone.predict(XS)
    np.testing.assert_allclose(at_once.mean, by_each.mean, rtol=1e-10)
    np.testing.assert_allclose(at_once.variance, by_each.variance, rtol=1e-9)
    np.testing.assert_allclose(at_once.interval(), by_each.interval(), rtol=1e-9)
    draws = mixture.sample(np.full(2, 7.5), 400, seed=3, observed=True)
    assert np.all(draws[:, 0] != draws[:, 1])  # one f, and noise for each
    np.testing.assert_allclose(draws.std(axis=0), np.sqrt(mixture.predict([7.5, 7.5]).observed.variance), rtol=0.2)


def test_the_density_of_new_observations_integrates_to_one(mixture):
    grid = np.linspace(-12, 12, 4001)
    density = np.exp(mixture.predict(np.full(4001, 7.5)).log_prob(grid))
    np.testing.assert_allclose(density.sum() * (grid[1] - grid[0]), 1, rtol=1e-6)


@pytest.mark.parametrize("name", zoo.mostly_full(LIKELIHOODS, "Gaussian"))
def test_every_likelihood(name):
    likelihood, y = LIKELIHOODS[name]
    gp = sg.GP(sg.Matern52(), likelihood)
    fitted = gp.fit(X, y, parameters=sg.Averaging(members=4), max_evaluations=40)
    assert isinstance(fitted, FittedMixture)
    assert len(fitted.members) == 4
    found = fitted.predict(XS)
    parts, w = members_of(fitted, XS)
    logs = np.stack([part.log_prob(y[:3]) for part in parts])
    np.testing.assert_allclose(found.log_prob(y[:3]), np.log((w * np.exp(logs)).sum(axis=0)), rtol=1e-10)
    lower, upper = found.quantile([0.1, 0.9])
    each = np.stack([part.quantile([0.1, 0.9]) for part in parts])
    assert np.all((each.min(axis=0) <= [lower, upper]) & ([lower, upper] <= each.max(axis=0)))
    if likelihood.whole_numbers:
        cumulative = lambda y: sum(
            weight * np.asarray(part.likelihood.predictive_cumulative(y, part.mean, part.variance))
            for part, weight in zip(parts, fitted.weights, strict=True)
        )
        assert np.all(cumulative(upper) >= 0.9)
        assert np.all(cumulative(upper - 1) < 0.9)
    means = np.stack([part.observed.mean for part in parts])
    np.testing.assert_allclose(found.observed.mean, (w * means).sum(axis=0), rtol=1e-10)


def test_a_member_that_expected_an_observation_says_more_of_whether_it_is_an_outlier():
    y, w = np.array([0.3, 4.0]), np.array([0.4, 0.6])
    parts = [
        Prediction(np.array([mean, 0.0]), np.array([0.5, 0.5]), sg.MixtureNoise(noise, 9.0, 0.1))
        for mean, noise in ((0.2, 0.1), (3.0, 0.8))
    ]
    found = MixturePrediction(tuple(parts), w, parts[0].likelihood).outlier_probability_of(y)
    joint = w[:, None] * np.exp([part.log_prob(y) for part in parts])
    by_hand = np.sum(joint * [part.outlier_probability_of(y) for part in parts], axis=0) / joint.sum(axis=0)
    np.testing.assert_allclose(found, by_hand, rtol=1e-10)
    assert np.abs(found - w @ [part.outlier_probability_of(y) for part in parts]).max() > 0.01


def finite(found, y):
    return all(np.all(np.isfinite(part)) for part in (found.mean, found.variance, found.log_prob(y), *found.interval()))


@pytest.mark.full
@pytest.mark.parametrize("name", zoo.OBSERVED_THROUGH)
def test_whatever_is_observed_is_averaged_over(name):
    likelihood = zoo.OBSERVED_THROUGH[name][0]
    known = {} if likelihood.extra_name is None else {"extra": np.full(20, 5.0 if "Binomial" in name else 1.0)}
    y = np.asarray(likelihood.sample(np.random.default_rng(0), np.sin(X)[None], known.get("extra")))[0]
    gp = sg.GP(sg.Matern52(), likelihood)
    fitted = gp.fit(X, y, parameters=sg.Averaging(members=2), max_evaluations=12, restarts=0, **known)
    assert len(fitted.members) == 2
    assert finite(fitted.predict(X, **known), y)


GRID = sg.Grid(np.linspace(0, 1, 6), np.linspace(0, 1, 5))
ON_GRID = np.sin(5 * np.asarray(GRID.points).sum(axis=1))
HOLES = np.where(np.isin(np.arange(30), [3, 11, 20]), np.nan, ON_GRID)
PRODUCT = sg.Matern52().on(0) * sg.Matern32().on(1)
TABLE = np.random.default_rng(0).standard_normal((40, 2))
OTHERS = {  # kernel, places, values, how
    "space-time": (PRODUCT, GRID, ON_GRID, {"structure": "space-time"}),
    "toeplitz of a grid": (PRODUCT, GRID, ON_GRID, {"structure": "toeplitz-grid"}),
    "kronecker with holes": (PRODUCT, GRID, HOLES, {"structure": "kronecker", "missing": "infer"}),
    "space-time with holes": (PRODUCT, GRID, HOLES, {"structure": "space-time", "missing": "infer"}),
    "toeplitz": (sg.Matern52(), X, Y, {"structure": "toeplitz"}),
    "state space": (sg.SquaredExponential(), X, Y, {"approximate": "state-space"}),
    "inducing": (sg.Matern52(np.ones(2)), TABLE, np.sin(TABLE.sum(axis=1)), {"approximate": sg.Inducing(8)}),
    "neighbours": (sg.Matern52(np.ones(2)), TABLE, np.sin(TABLE.sum(axis=1)), {"approximate": sg.Neighbours(5)}),
}


@pytest.mark.full
@pytest.mark.parametrize("name", OTHERS)
def test_whatever_learns_is_averaged_over(name):
    kernel, places, y, how = OTHERS[name]
    options = {"parameters": sg.Averaging(members=2), "max_evaluations": 12, "restarts": 0}
    fitted = sg.GP(kernel, sg.Gaussian(0.1)).fit(places, y, **options, **how)
    assert len(fitted.members) == 2
    assert finite(fitted.predict(places), np.where(np.isnan(y), 0.0, y))


@pytest.mark.full
def test_several_classes():
    gp = sg.GP(sg.Matern52(), sg.Categorical(classes=3))
    fitted = gp.fit(X, np.digitize(Y, [-0.5, 0.5]).astype(float), parameters=sg.Averaging(members=4), max_evaluations=20)
    found = fitted.predict(XS)
    np.testing.assert_allclose(found.probability.sum(axis=-1), 1, rtol=1e-6)
    np.testing.assert_allclose(np.diagonal(found.covariance, axis1=-2, axis2=-1), found.variance, rtol=1e-10)


def structures():
    grid = sg.Grid(np.linspace(0, 1, 6), np.linspace(0, 1, 4))
    product = sg.Matern52().on(0) * sg.Matern32().on(1)
    return {
        "dense": (sg.Matern52(), X, Y),
        "markov": (sg.Matern52(), X, Y),
        Woodbury.structure: (zoo.SOME_KERNEL[Woodbury.structure], X, Y),
        "kronecker": (product, grid, np.sin(np.asarray(grid.points).sum(axis=1))),
    }


@pytest.mark.parametrize("structure", zoo.mostly_full(structures(), "markov"))
def test_every_structure(structure):
    kernel, places, y = structures()[structure]
    fitted = sg.GP(kernel, sg.Gaussian(0.1)).fit(places, y, structure=structure, parameters=sg.Averaging(members=4))
    dense = sg.GP(kernel, sg.Gaussian(0.1)).fit(places, y, structure="dense", parameters=sg.Averaging(members=4))
    assert fitted.plan.engine.structure == structure
    np.testing.assert_allclose(fitted.evidence.log, dense.evidence.log, atol=1e-3)
    np.testing.assert_allclose(fitted.predict(places).mean, dense.predict(places).mean, rtol=1e-2, atol=1e-3)


def test_what_a_fitted_model_answers_is_answered(mixture, tmp_path):
    mode = mixture.mode
    assert mixture.kernel == mode.kernel
    assert mixture.log_evidence == mode.log_evidence
    parts = [mixture.predict(XS, part=i).mean for i in range(2)]
    np.testing.assert_allclose(sum(parts), mixture.predict(XS).mean, rtol=1e-9)
    joint = mixture.predict(XS, covariance=True)
    np.testing.assert_allclose(np.diagonal(joint.covariance), mixture.predict(XS).variance, rtol=1e-8)
    draws = mixture.sample(XS, 500, seed=1)
    assert np.all(np.abs(draws.mean(axis=0) - joint.mean) < 5 * joint.sd / np.sqrt(500))
    np.testing.assert_array_equal(mixture.sample(XS, 5, seed=1), mixture.sample(XS, 5, seed=1))
    by_hand = np.tensordot(mixture.weights, [member.gradient(XS) for member in mixture.members], axes=1)
    np.testing.assert_allclose(mixture.gradient(XS), by_hand)
    assert mixture.derivative(XS).variance.shape == (3,)
    np.testing.assert_allclose(mixture.equivalent_kernel(XS) @ Y, mixture.predict(XS).mean, rtol=1e-8)
    assert 2 < mixture.degrees_of_freedom < 20
    left_out = mixture.leave_one_out()
    assert np.mean((Y - left_out.mean) ** 2 / left_out.variance) < 3
    assert "averaged over 6 draws of 4 parameters (laplace)" in mixture.summary()
    assert "times e^±1.7" in mixture.summary()
    assert repr(mixture).startswith("FittedMixture(GP(")


@pytest.mark.full
def test_along_time():
    fitted = sg.GP(sg.Matern52(), sg.Gaussian(0.1)).fit(X, Y, structure="markov", parameters=sg.Averaging(members=4))
    smoothed = fitted.smoothed()
    np.testing.assert_allclose(smoothed.mean, fitted.predict(X).mean, rtol=1e-6)
    np.testing.assert_allclose(smoothed.variance, fitted.predict(X).variance, rtol=1e-5)
    assert fitted.filtered().mean.shape == (20,)
    joint = fitted.predict(X, covariance=True).covariance
    np.testing.assert_allclose(fitted.lag_one(), np.diagonal(joint, 1), rtol=1e-5, atol=1e-9)
    assert fitted.stream().count == 20


@pytest.mark.full
def test_several_targets_and_basis_weights():
    both = np.stack([Y, 2 * Y + X], axis=1)
    fitted = sg.GP(sg.Matern52(), sg.Gaussian(0.1), sg.polynomial(1)).fit(X, both, parameters=sg.Averaging(members=4))
    found = fitted.predict(XS, covariance=True)
    assert found.covariance.shape == (3, 3, 2)
    np.testing.assert_allclose(np.einsum("iit->it", found.covariance), found.variance, rtol=1e-8)
    weights = fitted.basis_weights()
    assert weights.mean.shape == (2, 2)
    np.testing.assert_allclose(np.diagonal(weights.covariance), weights.variance.mean(axis=1), rtol=1e-8)


def test_files_keep_parameters_and_weights(mixture, tmp_path):
    mixture.save(tmp_path / "model")
    loaded = sg.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.weights, mixture.weights)
    for ours, theirs in zip(loaded.predict(XS).observed, mixture.predict(XS).observed, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12)
    again = pickle.loads(pickle.dumps(mixture))
    np.testing.assert_allclose(again.predict(XS).mean, mixture.predict(XS).mean, rtol=1e-12)
    assert loaded.evidence == mixture.evidence
    assert loaded.summary() == mixture.summary()
    older = {field.name: getattr(mixture.draws, field.name) for field in dataclasses.fields(mixture.draws)}
    del older["sides"]
    np.testing.assert_array_equal(OLDER["Draws"](older).sides, mixture.draws.sides)
    assert OLDER["Draws"](older | {"method": "hmc"}).sides is None


@pytest.mark.full
def test_more_data_change_what_the_members_count(mixture):
    more = mixture.update(XS, np.sin(XS))
    logs = [member.predict(XS, covariance=True) for member in mixture.members]
    gains = []
    for part, member in zip(logs, mixture.members, strict=True):
        C = part.covariance + float(member.likelihood.noise) * np.eye(3)
        r = np.sin(XS) - part.mean
        gains.append(-0.5 * (r @ np.linalg.solve(C, r) + np.linalg.slogdet(2 * np.pi * C)[1]))
    expected = mixture.weights * np.exp(gains)
    np.testing.assert_allclose(more.weights, expected / expected.sum(), rtol=1e-6)
    assert more.evidence.log == pytest.approx(mixture.evidence.log + np.log(expected.sum()), rel=1e-9)
    assert len(more.inputs) == 23
    assert more.draws.sides is None  # its weights are of the draws, not of the normal approximation
    assert f"draws          6, worth {more.draws.effective:.3g} of equal weight" in more.summary()
    given = mixture.given(np.concatenate([X, XS]), np.concatenate([Y, np.sin(XS)]))
    np.testing.assert_allclose(given.members[3].predict(XS).mean, more.members[3].predict(XS).mean, rtol=1e-8)
    assert str(given.evidence).endswith("(laplace; of the data that the belief is from)")


def test_data_that_leave_one_of_the_draws_say_so(mixture):
    assert "draws          6, worth 6 of equal weight" in mixture.summary()
    new = np.linspace(6.1, 9, 12)
    with pytest.warns(RuntimeWarning, match=r"after these data the 6 draws of the parameters are worth 1\.\d\d, .*: fit again"):
        more = mixture.update(new, 40 * (-1.0) ** np.arange(12))
    assert more.draws.effective < 1.5
    assert f"worth {more.draws.effective:.3g} of equal weight" in more.summary()
    assert len(more.update([10.0], [0.0]).members) == 6  # and say so once


def far(mixture, *which):
    """The draws of a mixture, of which these are so far out that no process can be conditioned there."""
    thetas = mixture.draws.thetas.copy()
    thetas[list(which)] = 700.0
    return dataclasses.replace(mixture.draws, thetas=thetas)


def test_draws_without_a_process_are_left_out_and_the_plan_says_so(mixture):
    found = averaged(mixture.mode, far(mixture, 0, 4))
    np.testing.assert_array_equal(found.draws.thetas, mixture.draws.thetas[[1, 2, 3, 5]])
    np.testing.assert_allclose(found.weights, 0.25)
    four = FittedMixture(mixture.mode, found.draws)
    np.testing.assert_allclose(found.predict(XS).mean, four.predict(XS).mean, rtol=1e-12)
    why = "2 of 6 draws are left out: the process cannot be conditioned there"
    assert found.plan.parameters == f"averaged over, as asked for; {why}"
    assert found.plan.members == 4
    assert why in found.summary()
    assert why not in mixture.summary()
    with pytest.warns(
        RuntimeWarning, match="parameters are not averaged over: the process can be conditioned at none of 6 draws"
    ):
        alone = averaged(mixture.mode, far(mixture, *range(6)))
    assert alone.plan.parameters == "best: the process can be conditioned at none of 6 draws around them"
    assert alone.plan.members == 1
    np.testing.assert_array_equal(alone.predict(XS).mean, mixture.mode.predict(XS).mean)


def test_draws_that_more_data_cannot_be_given_to_are_left_out(mixture):
    found = FittedMixture(mixture.mode, far(mixture, 1)).update([6.5], [0.2])
    np.testing.assert_array_equal(found.draws.thetas, mixture.draws.thetas[[0, 2, 3, 4, 5]])
    assert found.weights.sum() == pytest.approx(1)
    assert "1 of 6 draws are left out: the process cannot be conditioned there" in found.plan.parameters
    five = FittedMixture(mixture.mode, dataclasses.replace(mixture.draws, thetas=mixture.draws.thetas[[0, 2, 3, 4, 5]]))
    assert len(found.members) == len(five.members) == 5
    np.testing.assert_allclose(
        found.members[1].predict(XS).mean, five.members[1].update([6.5], [0.2]).predict(XS).mean, rtol=1e-9
    )
    with pytest.warns(RuntimeWarning, match="the process can be conditioned at none of 6 draws"):
        alone = FittedMixture(mixture.mode, far(mixture, *range(6))).update([6.5], [0.2])
    np.testing.assert_array_equal(alone.predict(XS).mean, mixture.mode.update([6.5], [0.2]).predict(XS).mean)


@pytest.mark.full
def test_draws_without_sites_are_left_out():
    likelihood, y = LIKELIHOODS["Poisson"]
    mixture = sg.GP(sg.Matern52(), likelihood).fit(X, y, parameters=sg.Averaging(members=4), max_evaluations=20)
    found = averaged(mixture.mode, far(mixture, 2))
    assert "1 of 4 draws are left out" in found.plan.parameters
    assert np.all(np.isfinite(found.predict(XS).mean))


@pytest.mark.full
def test_units_of_the_data_change_nothing():
    XX = np.stack([X, np.cos(3 * X)], axis=1)
    gp = sg.GP(sg.Matern52(np.ones(2)), sg.Gaussian(), sg.ConstantMean())
    plain = gp.fit(XX, Y, parameters="laplace", restarts=0)
    scaled = gp.fit(XX * [1e3, 1e-2] + [5e3, -1], 50 * Y + 700, parameters="laplace", restarts=0)
    ours, theirs = plain.predict(XX[:5] + 0.1), scaled.predict((XX[:5] + 0.1) * [1e3, 1e-2] + [5e3, -1])
    np.testing.assert_allclose(50 * ours.mean + 700, theirs.mean, rtol=1e-5)
    np.testing.assert_allclose(50 * np.array(ours.interval()) + 700, theirs.interval(), rtol=1e-4)
    np.testing.assert_allclose(plain.evidence.log - 20 * np.log(50), scaled.evidence.log, atol=1e-3)


METHODS = ["laplace", "ccd", "grid", "importance", "hmc", "nuts", "metropolis", "slice", "ais"]


@pytest.mark.parametrize("method", zoo.mostly_full(METHODS, "laplace", "importance"))
def test_methods_agree_and_repeat(method):
    gp = sg.GP(sg.Matern52(), sg.Gaussian(0.1))
    fitted = gp.fit(X, Y, parameters=sg.Averaging(method, steps=10), restarts=0)
    again = gp.fit(X, Y, parameters=sg.Averaging(method, steps=10), restarts=0)
    np.testing.assert_array_equal(fitted.draws.thetas, again.draws.thetas)
    assert fitted.weights.sum() == pytest.approx(1)
    center, spread = fitted.draws.center, np.sqrt(np.diagonal(fitted.draws.spread))
    moved = (fitted.weights @ fitted.draws.thetas - center) / spread
    assert np.all(np.abs(moved) < 1.2)
    best = gp.fit(X, Y, parameters="best", restarts=0)
    assert fitted.predict(XS).variance[2] > 0.5 * best.predict(XS).variance[2]


@pytest.mark.full
def test_intervals_hold_what_they_say_by_a_long_chain():
    """Of the predictions that many Hamiltonian chains lead to, the intervals of Laplace's average hold 95 %, the best fewer."""
    gp, places = sg.GP(sg.Matern52(), sg.Gaussian(0.1)), np.linspace(-1, 8, 40)
    few = slice(None, None, 2)
    chains = gp.fit(X[few], Y[few], parameters=sg.Averaging("hmc", members=64, steps=30)).predict(places)
    held = {}
    for how in ("laplace", "best"):
        low, high = gp.fit(X[few], Y[few], parameters=how).predict(places).interval()
        held[how] = float(np.mean(chains.cumulative(high) - chains.cumulative(low)))
    assert 0.93 < held["laplace"] < 0.97
    assert held["best"] < held["laplace"]


def test_nuts_needs_an_evidence_that_can_be_followed():
    with pytest.raises(ValueError, match="parameters='nuts' needs Gaussian observations: parameters='hmc' takes any"):
        sg.GP(sg.Matern52(), sg.Poisson()).fit(X, LIKELIHOODS["Poisson"][1], parameters="nuts", max_evaluations=5)


def test_parameters_in_a_table(mixture):
    table = {row.name: row for row in mixture.parameters()}
    assert list(table) == [
        "kernel.terms[0].lengthscale",
        "kernel.terms[0].variance",
        "kernel.terms[1].variance",
        "likelihood.noise",
    ]
    row = table["kernel.terms[0].lengthscale"]
    assert row.low < row.median < row.mean < row.high
    np.testing.assert_allclose(row.median, float(mixture.kernel.terms[0].lengthscale), rtol=1e-9)
    np.testing.assert_allclose(np.log(row.high / row.median), 1.6448536 * np.sqrt(mixture.draws.spread[0, 0]), rtol=1e-6)


def test_of_draws_that_stand_for_themselves_the_table_has_the_quantiles(mixture):
    thetas = mixture.draws.center + np.random.default_rng(0).gamma(0.5, 1.0, (4001, 4))  # skewed, and away from the mode
    weights = np.full(4001, 1 / 4001)
    drawn = FittedMixture(mixture.mode, dataclasses.replace(mixture.draws, thetas=thetas, weights=weights, sides=None))
    row, values = drawn.parameters()[1], np.exp(thetas[:, 1])
    np.testing.assert_allclose([row.low, row.median, row.high], np.quantile(values, [0.05, 0.5, 0.95]), rtol=0.02)
    np.testing.assert_allclose([row.mean, row.sd], [values.mean(), values.std()], rtol=1e-12)
    tilted = np.where(thetas[:, 1] > np.median(thetas[:, 1]), 3.0, 1.0)
    uneven = dataclasses.replace(drawn.draws, weights=tilted / tilted.sum())
    np.testing.assert_allclose(
        FittedMixture(mixture.mode, uneven).parameters()[1].median, np.quantile(values, 2 / 3), rtol=0.02
    )
    assert mixture.draws.sides.shape == (2, 4)


@pytest.mark.full
def test_polish_moves_members_along_the_true_density():
    gp = sg.GP(sg.Matern52(), sg.Gaussian(0.1))
    plain, polished = (gp.fit(X, Y, parameters=sg.Averaging(polish=p), restarts=0) for p in (0, 1))
    assert np.all(np.any(plain.draws.thetas != polished.draws.thetas, axis=1).mean() > 0.7)


@pytest.mark.full
def test_the_plan_counts_all_members():
    gp, t = sg.GP(sg.Matern52(), sg.Gaussian(0.1)), np.linspace(0, 5, 30)
    mixture, best = (gp.fit(t, np.sin(t), restarts=0, parameters=how) for how in ("laplace", "best"))
    assert mixture.plan.members == len(mixture.members) == 6
    assert 1 < mixture.plan.estimate().predict / best.plan.estimate().predict < 16  # one program for all
