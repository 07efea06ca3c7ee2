"""Rows given their nearest earlier rows: exact with all of these, close with a few, refused where they mislead."""

import functools
import itertools

import jax
import numpy as np
import pytest

import structgp as sg
import zoo
from reference import slope
from structgp.engines.neighbours import NeighbourEngine
from structgp.inputs import neighbourhood
from structgp.inputs.layouts import as_inputs
from structgp.inputs.observations import read_observations
from structgp.learn import evidence
from structgp.parameters.tree import free_vector

KERNEL = sg.Matern32([0.7, 1.1], 1.2) + sg.SquaredExponential(2.0, 0.3)
ALL = sg.Neighbours(zoo.N - 1)
X, XS = zoo.X[2].copy(), zoo.XS[2]
X[5] = X[6]  # seen twice
GAPS = [3, 11, 12]
KNOWN_NOISE = np.linspace(0.0, 0.4, zoo.N)
Y = zoo.Y[2].copy()
Y[GAPS] = np.nan
TWO = np.stack([Y, np.cos(3 * X[:, 0]) + 0 * Y], axis=1)


@functools.cache
def both(mean, targets=1):
    gp = sg.GP(KERNEL, sg.Gaussian(0.15), zoo.MEANS[mean])
    y = Y if targets == 1 else TWO
    given = lambda **how: gp.condition(X, y, noise=KNOWN_NOISE, missing="infer", **how)
    return given(structure="dense"), given(approximate=ALL)


@pytest.mark.parametrize("mean", zoo.mostly_full(zoo.MEANS, "diffuse basis"))
def test_all_neighbours_are_the_whole_matrix(mean):
    """With gaps, noise that is known, a place that was seen twice and basis functions."""
    dense, ours = both(mean)
    close = functools.partial(np.testing.assert_allclose, rtol=1e-10, atol=1e-11)
    close(ours.log_evidence, dense.log_evidence)
    for part in (None, 0, 1):
        there, here = (fitted.predict(XS, part=part) for fitted in (dense, ours))
        close(here.mean, there.mean)
        close(here.variance, there.variance)
    there, here = (fitted.predict(XS, covariance=True) for fitted in (dense, ours))
    close(here.covariance, there.covariance)
    for there, here in zip(dense.leave_one_out(), ours.leave_one_out(), strict=True):
        close(here, there)
    close(ours.degrees_of_freedom, dense.degrees_of_freedom)
    close(ours.gradient(XS), dense.gradient(XS))


@pytest.mark.full
def test_several_targets():
    dense, ours = both("diffuse basis", 2)
    np.testing.assert_allclose(ours.log_evidence, dense.log_evidence, rtol=1e-10)
    np.testing.assert_allclose(ours.predict(XS).mean, dense.predict(XS).mean, rtol=1e-9, atol=1e-11)


def test_draws_have_the_joint_covariance():
    dense, ours = both("constant")
    draws = ours.sample(XS, 4000, seed=1)
    joint = dense.predict(XS, covariance=True)
    np.testing.assert_allclose(np.cov(draws.T), joint.covariance, atol=0.07)
    np.testing.assert_allclose(draws.mean(axis=0), joint.mean, atol=0.07)
    assert ours.sample(XS[:0], 3).shape == (3, 0)


def objective(gp, engine):
    with jax.enable_x64(True):
        data = read_observations(gp.likelihood, Y, KNOWN_NOISE, "infer", as_inputs(X), None, None)
        places = engine.prepared(gp, as_inputs(X), data)
        return evidence.GaussianEvidence(gp, places, data, engine)


# Pairs half way round the ring of neighbours are counted apart when there are any.
@pytest.mark.parametrize(
    ("mean", "m"),
    zoo.mostly_full(itertools.product(["constant", "diffuse basis"], [5, 6]), ("diffuse basis", 6)),
)
def test_gradients_are_differences(mean, m):
    gp = sg.GP(
        KERNEL + sg.White(0.2) + 0.5 * sg.Matern12(sg.CholeskyMetric([1.2, 0.6], [0.4])), sg.Gaussian(0.15), zoo.MEANS[mean]
    )
    ours = objective(gp, NeighbourEngine(m))
    with jax.enable_x64(True):
        value = jax.jit(lambda theta: evidence._one(theta, ours._model, ours._inputs, ours._data, NeighbourEngine(m)))
        theta = free_vector(gp)
        expected = slope(lambda theta: float(value(theta)[0]), theta)
        np.testing.assert_allclose(ours(theta)[1], expected, rtol=1e-7, atol=1e-7)


def test_rows_in_parts_have_the_same_sum(monkeypatch):
    gp = sg.GP(KERNEL, sg.Gaussian(0.15), zoo.MEANS["diffuse basis"])
    whole = objective(gp, NeighbourEngine(5))
    monkeypatch.setattr(neighbourhood, "leaves", lambda Z, capacity: leaves_of_four(Z, capacity))
    monkeypatch.setattr("structgp.engines.neighbours.SIDE_BY_SIDE", 1)
    parts = objective(gp, NeighbourEngine(5))
    assert (len(whole._parts), len(parts._parts) > 1) == (0, True)
    theta = free_vector(gp)
    with jax.enable_x64(True):
        found = whole(theta), parts(theta)
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-10)


def leaves_of_four(Z, capacity):
    rows = np.concatenate([np.arange(len(Z)), np.full(capacity - len(Z), -len(Z))])
    return rows.reshape(4, -1).astype(np.int32)


FIELD = np.random.default_rng(5).uniform(0, 4, (300, 2))
HEIGHT = np.sin(2 * FIELD[:, 0]) * np.cos(FIELD[:, 1]) + 0.1 * np.random.default_rng(6).standard_normal(300)
NEW = np.random.default_rng(7).uniform(0, 4, (40, 2))
PRIOR = sg.GP(sg.Matern52([1.0, 1.0]), sg.Gaussian(0.1), mean=sg.ConstantMean(0.0))


@functools.cache
def learned(a=1.0, b=1.0):
    return PRIOR.fit(FIELD * [a, b], HEIGHT, approximate=sg.Neighbours(40), restarts=0)


@pytest.mark.full
def test_learning_is_close_to_that_by_the_whole_matrix():
    dense = PRIOR.fit(FIELD, HEIGHT, structure="dense", restarts=0)
    ours = learned()
    assert ours.log_evidence == pytest.approx(dense.log_evidence, rel=0.01)  # 40 of 300 rows: an approximation
    np.testing.assert_allclose(ours.predict(NEW).mean, dense.predict(NEW).mean, atol=0.02)
    np.testing.assert_allclose(ours.predict(NEW).sd, dense.predict(NEW).sd, rtol=0.1)
    assert ours.plan.engine == NeighbourEngine(40)
    assert "Neighbours, approximate (40 neighbours; 240 would change the log evidence by" in ours.summary()


@pytest.mark.full
def test_more_neighbours_are_nearer_to_the_whole_matrix():
    gp = sg.GP(sg.Matern52([1.0, 1.0]), sg.Gaussian(0.01))
    exact = gp.condition(FIELD, HEIGHT, structure="dense").log_evidence
    off = [abs(gp.condition(FIELD, HEIGHT, approximate=sg.Neighbours(m)).log_evidence - exact) for m in (4, 12, 36)]
    assert off[0] > 3 * off[1] > 9 * off[2]
    said = [gp.condition(FIELD, HEIGHT, approximate=sg.Neighbours(m)) for m in (4, 12, 36)]
    lost = [fitted.plan.engine.lost(gp, fitted.inputs, fitted.data) for fitted in said]
    for stated, true in zip(lost, off, strict=True):
        assert 0.3 * true < 300 * stated < 10 * true  # what these data happen to say is not what is expected of them


def test_what_is_stated_covers_what_noise_asks_of_more_neighbours():
    """Where noise is large, each doubling of the neighbours tells as much as the one before."""
    gp = sg.GP(sg.SquaredExponential([1.5, 1.5]), sg.Gaussian(1.0))
    y = HEIGHT + np.random.default_rng(8).standard_normal(300)
    exact = gp.condition(FIELD, y, structure="dense").log_evidence
    near = gp.condition(FIELD, y, approximate=sg.Neighbours(10))
    assert 300 * near.plan.engine.lost(gp, near.inputs, near.data) > 0.7 * abs(near.log_evidence - exact)


@pytest.mark.full
def test_units_of_the_columns_do_not_matter():
    """Learning starts from the data, and neighbours are found in units of the lengthscales."""
    there = learned(2.0**20, 2.0**-20)
    assert there.log_evidence == pytest.approx(learned().log_evidence, abs=1e-6)
    np.testing.assert_allclose(there.predict(NEW * [2.0**20, 2.0**-20]).mean, learned().predict(NEW).mean, atol=1e-6)


@pytest.mark.full
def test_neighbours_are_found_again_when_the_lengthscales_have_another_shape():
    engine, inputs = NeighbourEngine(8), as_inputs(FIELD)
    data = read_observations(PRIOR.likelihood, HEIGHT, None, "error", inputs, None, None)
    with jax.enable_x64(True):
        at = lambda *lengthscale: sg.GP(sg.Matern52(list(lengthscale)), sg.Gaussian(0.1))
        places = engine.prepared(at(1.0, 1.0), inputs, data)
        assert engine.prepared(at(7.0, 9.0), places, data) is places
        again = engine.prepared(at(1.0, 2.0), places, data)
    assert np.any(again.near != places.near)


@pytest.mark.full
def test_files_updates_and_estimators(tmp_path):
    ours = learned()
    ours.save(tmp_path / "field.sgp")
    again = sg.load(tmp_path / "field.sgp")
    np.testing.assert_array_equal(again.predict(NEW).mean, ours.predict(NEW).mean)
    more = again.update(NEW, np.sin(2 * NEW[:, 0]) * np.cos(NEW[:, 1]))
    direct = ours.gp.condition(
        np.concatenate([FIELD, NEW]),
        np.append(HEIGHT, np.sin(2 * NEW[:, 0]) * np.cos(NEW[:, 1])),
        approximate=sg.Neighbours(40),
    )
    assert more.log_evidence == pytest.approx(direct.log_evidence, rel=1e-10)
    model = sg.GPRegressor(structure="neighbours", restarts=0).fit(FIELD, HEIGHT)
    assert model.plan_.engine == NeighbourEngine()
    assert model.score(FIELD, HEIGHT) > 0.95


@pytest.mark.full
def test_a_grid_with_holes():
    grid = sg.Grid(np.linspace(0, 3, 20), np.linspace(0, 2, 15))
    y = np.sin(grid.points.sum(axis=1)).reshape(20, 15)
    y[4:9, 3:8] = np.nan
    gp = sg.GP(sg.Matern52([0.8, 0.8]), sg.Gaussian(0.01))
    ours = gp.condition(grid, y, missing="infer", approximate=sg.Neighbours(30))
    dense = gp.condition(grid, y, missing="infer", structure="dense")
    assert ours.predict(grid).mean.shape == (20, 15)
    np.testing.assert_allclose(ours.predict(grid).mean, dense.predict(grid).mean, atol=0.01)
    assert ours.log_evidence == pytest.approx(dense.log_evidence, abs=0.5)


def test_nothing_seen_and_one_row():
    options = {"missing": "infer", "restarts": 0, "parameters": "best"}
    nothing = ONE.fit(X, np.full(zoo.N, np.nan), approximate=sg.Neighbours(5), **options)
    np.testing.assert_allclose(nothing.predict(XS).variance, 1.0)
    single = [ONE.condition(X[:1], [0.7], **how).predict(XS) for how in ({}, {"approximate": sg.Neighbours(5)})]
    np.testing.assert_allclose(single[1].mean, single[0].mean, rtol=1e-12)
    np.testing.assert_allclose(single[1].variance, single[0].variance, rtol=1e-12)


ONE = sg.GP(sg.Matern32(0.8))
PLANE = np.zeros((24, 5)) + np.random.default_rng(0).uniform(size=(24, 5))
REFUSED = {
    "one column": (lambda: ONE.fit(zoo.X[1], zoo.Y[1], approximate=sg.Neighbours(5)), "one column is a line"),
    "products": (
        lambda: sg.GP(sg.Matern32().on(0) * sg.Matern32().on(1)).plan(X, approximate=sg.Neighbours(5)),
        r"products over the columns do not fall off with one distance.*Matern32\(\[1.0, 1.0\]\)",
    ),
    "products by name": (lambda: sg.GP(sg.ProductMatern()).plan(X, structure="neighbours"), "products over the columns"),
    "sums of columns": (
        lambda: sg.GP(sg.Matern32().on(0) + sg.Matern32().on(1)).plan(X, approximate=sg.Neighbours(5)),
        "a term on 1 of 2 columns does not change along the others.*structure='additive'",
    ),
    "no distance": (
        lambda: sg.GP(sg.Linear()).plan(X, approximate=sg.Neighbours(5)),
        "Linear is not a function of one distance",
    ),
    "only noise": (lambda: sg.GP(sg.White()).plan(X, approximate=sg.Neighbours(5)), "nothing in the kernel falls off"),
    "labels": (
        lambda: sg.GP(sg.Matern32(), sg.Bernoulli()).condition(X, X[:, 0] > 0, approximate=sg.Neighbours(5)),
        "neighbours take Gaussian observations, not Bernoulli ones",
    ),
    "weights": (
        lambda: sg.GP(sg.Matern32()).condition(X, zoo.Y[2], weights=np.ones(zoo.N), approximate=sg.Neighbours(5)),
        r"approximate=Neighbours\(5\) takes Gaussian observations as they are: leave out inference and weights",
    ),
    "classes": (
        lambda: sg.GP(sg.Matern32(), sg.Categorical(3)).plan(X, approximate=sg.Neighbours(5)),
        r"approximate=Neighbours\(5\) cannot be had for several latents",
    ),
    "none": (lambda: sg.Neighbours(0), "Neighbours: m must be a whole number, 1 or more, got 0"),
    "another structure": (
        lambda: ONE.plan(X, structure="dense", approximate=sg.Neighbours(5)),
        "structure='dense' is exact, so nothing is approximate there",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name):
    call, message = REFUSED[name]
    with pytest.raises(ValueError, match=message):
        call()


def test_names_with_a_number():
    assert ONE.plan(X, approximate="neighbours:7").engine == sg.Neighbours(7).engine(ONE)
    assert ONE.plan(X, structure="neighbours").engine == sg.Neighbours().engine(ONE)
    with pytest.raises(ValueError, match="Neighbours: m must be a whole number, 1 or more, got 0"):
        ONE.plan(X, approximate="neighbours:0")
    with pytest.raises(ValueError, match="got 'neighbours:x'"):
        ONE.plan(X, approximate="neighbours:x")


def test_the_plan_says_what_neighbours_are_worth():
    assert "exact" in str(ONE.plan(X, approximate=sg.Neighbours(30)).chosen)
    assert "all earlier rows are neighbours" in str(ONE.plan(X, approximate=sg.Neighbours(30)).chosen)
    assert "5 columns: near rows tell little beyond 4" in str(ONE.plan(PLANE, approximate=sg.Neighbours(5)).chosen)
    assert repr(sg.Neighbours(7, told=90)) == "Neighbours(7, told=90)"
