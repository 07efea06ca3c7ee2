"""Optimisation as the seeds had it: several models, rotations, few inducing inputs, grids, networks, two poles."""

import threading

import numpy as np
import pytest
from benchmarks.double_pole import INPUTS, _slopes, fitness

import structgp as sg
from structgp.decide import surrogate


def bump(x):
    return float(np.exp(-0.5 * np.sum(((np.asarray(x) - 0.4) / [0.1, 0.4]) ** 2)))


def told(count=7, **options):
    opt = sg.Optimiser([(0, 1), (0, 1)], maximise=True, noise=0.0, seed=0, **options)
    for place in opt._whole_space().design(count, 1):
        opt.tell(place, bump(place))
    return opt


@pytest.mark.full
def test_several_models_are_weighted_by_their_evidence():
    aligned = sg.SquaredExponential([0.3, 0.3])
    turned = sg.SquaredExponential(sg.GivensMetric([0.3, 0.3], [0.2]))
    c = np.sqrt(0.5)
    shares = []
    for turn in (np.eye(2), np.array([[c, -c], [c, c]])):
        opt = sg.Optimiser(
            [(0, 1), (0, 1)], maximise=True, noise=0.0, warp=False, models={"aligned": aligned, "rotated": turned}
        )
        for place in opt._whole_space().design(22, 1):
            opt.tell(place, bump(0.4 + turn @ (place - 0.4)))
        opt.suggest()
        shares.append(opt.account.weights["rotated"])
        assert sum(opt.account.weights.values()) == pytest.approx(1.0)
    assert shares[0] < 0.5 < 0.95 < shares[1]
    assert "P(aligned) = " in str(opt.account)


@pytest.mark.parametrize(
    ("kernel", "turned"),
    [
        (sg.Rotated(sg.SquaredExponential([0.3, 0.3, 0.3])), 9),
        (sg.SquaredExponential(sg.GivensMetric([0.3, 0.3, 0.3], [0.0, 0.0, 0.0])), 3),
        (sg.SquaredExponential([0.3, 0.3, 0.3]), 0),
    ],
    ids=["rotated", "angles", "aligned"],
)
def test_one_climb_begins_in_axes_that_are_drawn(kernel, turned, monkeypatch):
    seen, plain = [], surrogate.minimise_all

    def watched(evaluate, starts, *arguments, **options):
        if threading.current_thread() is not threading.main_thread():  # what another test has compiled ahead goes on
            return plain(evaluate, starts, *arguments, **options)
        seen.append(np.array(starts))
        raise KeyboardInterrupt

    monkeypatch.setattr(surrogate, "minimise_all", watched)
    X = np.random.default_rng(0).uniform(size=(9, 3))
    measured = surrogate.Measured.filled(X, X[:, 0], np.zeros(9), 32)
    gp = surrogate.prior(kernel, 3, 0.0)
    for seed in (0, 1):
        with pytest.raises(KeyboardInterrupt):
            surrogate.learn(gp, measured, None, 2, seed)
    turns = surrogate._turns(gp)
    assert turns.sum() == turned
    (_, center, short, _), (_, _, other, _) = seen
    np.testing.assert_array_equal(short[~turns], other[~turns])  # lengthscales are those of every seed
    assert np.all(short[~turns] <= center[~turns])
    assert not turns.any() or np.max(np.abs(short[turns] - center[turns])) > 0.1
    assert not turns.any() or np.max(np.abs(short[turns] - other[turns])) > 0.1


def test_a_region_keeps_near_the_best():
    opt = told(region=sg.Bounded(0.1))
    best = np.asarray(opt.best.point)
    assert np.max(np.abs(np.asarray(opt.ask()) - best)) <= 0.1 + 1e-9


@pytest.mark.full
def test_few_inducing_inputs():
    opt = told(9, model=sg.ReducedRank(6))
    place = np.asarray(opt.ask())
    assert np.all((place >= 0) & (place <= 1))
    mean, sd = opt.predict(place)
    assert np.isfinite([mean, sd]).all()
    with pytest.raises(ValueError, match="no parameters that are averaged over here"):
        opt.model
    other = np.asarray(opt.ask())  # the first is pending
    assert np.max(np.abs(other - place)) > 1e-3


def test_cells_of_a_grid():
    grid = sg.Grid(np.linspace(0, 1, 12), np.linspace(0, 1, 9))
    found = sg.maximise(bump, grid, evaluations=16, seed=0)
    truth = np.array([bump(x) for x in np.asarray(grid.points)])
    assert found.value > np.sort(truth)[-6]
    assert found.optimiser.trace[-1] == found.value
    early = sg.maximise(bump, grid, evaluations=16, seed=0, stop=sg.Target(float(np.sort(truth)[-30])))
    assert len(early.history) < 16
    cells = [tuple(run.point) for run in found.history]
    assert len(set(cells)) == len(cells) == 16
    with pytest.raises(ValueError, match="on a grid acquisition must be one of"):
        sg.minimise(bump, grid, acquisition="pi")


@pytest.mark.full
def test_a_network_learns_and_optimises():
    x = np.linspace(0, 1, 8)
    y = np.sin(5 * x)
    net = sg.BayesianNetwork(8, noise=0.05, chains=3, samples=4, burn=120, apart=5)
    found = net.fit(x, y)
    assert len(found.members) == 12
    assert 0.4 < found.accepted <= 1.0
    mean, variance = found.predict(np.linspace(0, 1, 8))
    assert np.sqrt(np.mean((mean - y) ** 2)) < 0.15
    assert found.predict(np.array([3.0]))[1] > 3 * variance.max()
    opt = sg.Optimiser([(0, 1)], model=net, warp=False)
    opt.tell([[a] for a in x], list(y))
    assert 0 <= opt.ask()[0] <= 1
    opt.models["process"] = None
    opt.tell([0.5], 0.6)
    with pytest.raises(ValueError, match="BayesianNetwork has no evidence, so it cannot be weighed against other models"):
        opt.ask()


def test_two_poles_fall_without_a_force_and_stand_with_the_gains_of_a_regulator():
    from scipy.linalg import solve_continuous_are

    assert fitness(np.zeros((1, 8))) == pytest.approx(0.0056)  # 56 steps
    step = 1e-6
    slopes = lambda state, force: np.array(_slopes(list(state), force))
    A = np.stack([(slopes(step * e, 0.0) - slopes(-step * e, 0.0)) / (2 * step) for e in np.eye(6)], axis=1)
    A[:, 1] = np.where(np.abs(A[:, 1]) > 10, 0.0, A[:, 1])  # friction of the cart is a step, which has no slope
    B = ((slopes(np.zeros(6), step) - slopes(np.zeros(6), -step)) / (2 * step))[:, None]
    A[0, 1] = 1.0
    gains = B.T @ solve_continuous_are(A, B, np.eye(6), np.eye(1))
    unit = np.concatenate([-gains[0] * INPUTS / 30, [0.0, 3.0]])[None]  # small enough to be nearly linear
    assert fitness(unit) > 5
    assert fitness(unit, "short") > 5
    fallen = np.sinh([[2.0, 2, 2, 2, 0.58, -0.47, -0.01, 0.71]])  # the short pole stands, the long one falls after 112 steps
    assert fitness(fallen, "short") > 0.9 > 0.1 > fitness(fallen, "long")
