import io
import sys
import threading

import numpy as np
import pytest
from scipy.optimize import minimize

import structgp as sg
import zoo
from reference import slope
from structgp.inputs.layouts import as_inputs
from structgp.inputs.observations import read_observations
from structgp.learn import initialise
from structgp.learn import maximise as climbing
from structgp.learn.evidence import evidence_objective
from structgp.learn.objective import Objective
from structgp.learn.suggest import suggest
from structgp.learn.waves import periods_of
from structgp.parameters.tree import free_vector

X, Y = zoo.X[1], zoo.Y[1]
GP = sg.GP(sg.Matern52(), sg.Gaussian(0.1))


def values(fitted):
    return {name: float(value) for name, value in fitted.gp.parameters().items()}


def test_the_end_is_a_maximum():
    fitted = GP.fit(X, Y, restarts=0, parameters="best")
    log_evidence = lambda theta: GP.replace(dict(zip(GP.parameters(), np.exp(theta), strict=True))).log_evidence(X, Y)
    theta = free_vector(fitted.gp)
    assert np.abs(slope(log_evidence, theta, 1e-3)).max() < 1e-3 * zoo.N
    assert fitted.log_evidence == pytest.approx(log_evidence(theta), rel=1e-12)
    assert fitted.log_evidence > GP.log_evidence(X, Y) + 1


def test_the_account_of_how_it_ended():
    learning = GP.fit(X, Y, restarts=2, seed=3, parameters="best").learning
    assert learning.converged
    assert learning.gradient_norm < 1e-4
    assert learning.evaluations > 10
    assert 0 < learning.seconds < 60
    assert learning.restarts == 2
    assert learning.spread >= 0
    assert learning.at_bound == ()
    assert "converged after" in str(learning)
    assert "2 restarts ended within" in str(learning)
    assert GP.condition(X, Y).learning is None


def test_map_moves_to_the_prior():
    """log evidence + log prior is stationary at the end, and a sharp prior wins."""
    prior = sg.LogNormal(np.log(3.0), 0.01)
    fitted = sg.GP(sg.Matern52().with_prior(lengthscale=prior), sg.Gaussian(0.1)).fit(X, Y, restarts=1, parameters="best")
    assert values(fitted)["kernel.lengthscale"] == pytest.approx(3.0, rel=0.03)
    assert fitted.learning.objective == pytest.approx(
        fitted.log_evidence + float(prior.log_prob(values(fitted)["kernel.lengthscale"])), rel=1e-6
    )
    assert fitted.learning.gradient_norm < 1e-4


def test_a_prior_that_reaches_beyond_the_support():
    """Draws that are no lengthscale are no start."""
    fitted = sg.GP(sg.Matern52().with_prior(lengthscale=sg.Normal(0.0, 1.0)), sg.Gaussian(0.1)).fit(
        X, Y, restarts=6, seed=1, parameters="best"
    )
    assert np.isfinite(fitted.learning.objective)
    assert fitted.learning.converged


@pytest.mark.filterwarnings("ignore:learning ended at a bound")
def test_fixed_tied_and_bounded_parameters():
    kernel = sg.Matern52(sg.fixed(0.7)) + sg.Matern32(2.0).with_bounds(lengthscale=(1.5, 2.5))
    kernel = kernel.tie("terms[0].variance", "terms[1].variance")
    fitted = sg.GP(kernel, sg.Gaussian(sg.fixed(0.05))).fit(X, Y, restarts=1, parameters="best")
    found = values(fitted)
    assert found["kernel.terms[0].lengthscale"] == 0.7
    assert found["likelihood.noise"] == 0.05
    assert found["kernel.terms[0].variance"] == found["kernel.terms[1].variance"] != 1.0
    assert 1.5 <= found["kernel.terms[1].lengthscale"] <= 2.5
    assert "fixed" in fitted.summary()
    assert "tied to kernel.terms[0].variance" in fitted.summary()


def test_a_parameter_at_its_bound_is_named():
    gp = sg.GP(sg.Matern52().with_bounds(lengthscale=(3.0, 5.0)), sg.Gaussian(0.1))
    with pytest.warns(RuntimeWarning, match=r"ended at a bound of the search for kernel.lengthscale, .*wider bounds"):
        fitted = gp.fit(X, Y, restarts=0, parameters="best")
    assert fitted.learning.at_bound == fitted.learning.pressed == ("kernel.lengthscale",)
    assert values(fitted)["kernel.lengthscale"] == pytest.approx(3.0)
    assert "at a bound: kernel.lengthscale" in str(fitted.learning)
    assert any("kernel.lengthscale" in line and "at a bound" in line for line in fitted.summary().splitlines())


@pytest.mark.filterwarnings("ignore:learning ended at a bound")
def test_a_bound_at_the_edge_of_the_support():
    fitted = sg.GP(sg.Matern52().with_bounds(lengthscale=(0.0, 0.5)), sg.Gaussian(0.1)).fit(X, Y, restarts=0, parameters="best")
    assert 0 < values(fitted)["kernel.lengthscale"] <= 0.5 * (1 + 1e-12)


def test_nothing_to_learn():
    fitted = GP.freeze().fit(X, Y)
    assert fitted.learning.message == "nothing to learn"
    assert fitted.log_evidence == pytest.approx(GP.log_evidence(X, Y), rel=1e-12)


def test_restarts_are_repeatable_whatever_the_threads_do(monkeypatch):
    first, second = (GP.fit(X, Y, restarts=3, seed=5, parameters="best") for _ in range(2))
    assert values(first) == values(second)
    assert first.learning.evaluations == second.learning.evaluations
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    assert values(GP.fit(X, Y, restarts=3, seed=5, parameters="best")) == values(first)


def test_the_seed_matters_only_for_the_way():
    a, b = (GP.fit(X, Y, restarts=2, seed=seed, parameters="best") for seed in (1, np.random.default_rng(2)))
    assert a.learning.spread != b.learning.spread
    assert a.log_evidence == pytest.approx(b.log_evidence, abs=1e-4)


@pytest.mark.full
def test_murphys_two_optima():
    """Seven points that read as a wiggle with little noise or as a slow curve with much: restarts find the better one."""
    x = np.array([-6.8, -6.4, -3.2, 1.5, 1.9, 4.4, 5.8])
    y = np.array([1.0, 0.4, -1.3, -0.7, -0.5, -2.4, -1.0])
    gp = lambda length, noise: sg.GP(sg.SquaredExponential(length, sg.fixed(1.0)), sg.Gaussian(noise))
    climb = lambda theta: -np.array(evidence_objective(gp(1, 1), data.inputs, data.data, data.plan.engine)(theta)[0])
    data = gp(1.0, 1.0).condition(x, y)
    ends = [
        minimize(climb, np.log(start), method="Nelder-Mead", options={"fatol": 1e-9}) for start in ((1.0, 0.1), (10.0, 0.8))
    ]
    (wiggle, small), (slow, large) = (np.exp(end.x) for end in ends)
    assert 0.7 < wiggle < 2 < slow
    assert small < 0.3 < large
    assert -ends[0].fun > -ends[1].fun + 0.3
    fitted = gp(slow, large).fit(x, y, restarts=8, seed=0, parameters="best")  # it starts on top of the lower hill
    assert fitted.log_evidence == pytest.approx(-ends[0].fun, abs=1e-5)
    assert -1e-9 < fitted.learning.spread < ends[1].fun - ends[0].fun + 1e-3  # climbs end on one of the two hills


class StopAfter:
    """An objective that the user interrupts at one of its evaluations."""

    def __init__(self, monkeypatch, count):
        self.left, self.lock, original = count, threading.Lock(), Objective.__call__

        def interrupted(objective, theta):
            with self.lock:
                self.left -= 1
                if self.left < 0:
                    raise KeyboardInterrupt
            return original(objective, theta)

        monkeypatch.setattr(Objective, "__call__", interrupted)


@pytest.mark.parametrize("restarts", [0, 3])
def test_an_interrupt_keeps_the_best_so_far(monkeypatch, restarts):
    StopAfter(monkeypatch, 7 + restarts)  # after the starts a few steps, too few for an end even if one climb takes them all
    fitted = GP.fit(X, Y, restarts=restarts, parameters="best")
    assert not fitted.learning.converged
    assert "interrupted" in fitted.learning.message
    assert fitted.learning.evaluations >= 4
    assert np.isfinite(fitted.predict(zoo.XS[1]).mean).all()
    assert "interrupted" in fitted.summary()


def test_an_interrupt_before_anything_was_found_is_passed_on(monkeypatch):
    StopAfter(monkeypatch, 0)
    with pytest.raises(KeyboardInterrupt):
        GP.fit(X, Y, parameters="best")


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_progress_line_on_a_terminal(monkeypatch):
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    GP.fit(X, Y, restarts=0, parameters="best")
    assert "\rlearning: evaluation 1, log evidence" in terminal.getvalue()
    assert terminal.getvalue().endswith("\r")
    assert "\n" not in terminal.getvalue()


def test_silence_elsewhere(monkeypatch, capsys):
    GP.fit(X, Y, restarts=0, parameters="best")
    assert capsys.readouterr() == ("", "")
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    GP.fit(X, Y, restarts=0, progress=False, parameters="best")
    assert terminal.getvalue() == ""


def test_a_budget_is_kept():
    learning = GP.fit(X, Y, restarts=0, max_evaluations=3, parameters="best").learning
    assert learning.evaluations <= 4 + 3 + 20  # the starts, the budget, and one line search
    assert not learning.converged
    assert "stopped" in str(learning)


def test_the_start_is_suggested_by_the_data():
    """In any units the same function is found."""
    fits = [GP.fit(scale * X, 1 / scale * Y, restarts=0, parameters="best") for scale in (1.0, 1e4)]
    a, b = (values(fit) for fit in fits)
    assert b["kernel.lengthscale"] == pytest.approx(1e4 * a["kernel.lengthscale"], rel=1e-2)
    assert b["likelihood.noise"] == pytest.approx(1e-8 * a["likelihood.noise"], rel=1e-2)
    starts, others = (np.stack([*map(free_vector, climbing.candidates(GP, X, fit.data))]) for fit in fits)
    np.testing.assert_array_equal(starts[0], free_vector(GP))
    in_units = [0.0, 2 * np.log(1e-4), 2 * np.log(1e-4)]  # all but the one that was given, whatever units that is in
    np.testing.assert_allclose(others[1:], starts[1:] + in_units, rtol=1e-12)


@pytest.mark.parametrize(
    "name", [name for name in zoo.KERNELS if name != "HalfSpaceOverlap"]
)  # whose bias is not in the units of y
def test_every_kernel_is_suggested_with_the_variance_of_the_data(name):
    kernel, D = zoo.KERNELS[name]
    places, scales = zoo.X[D][:5], initialise.scales_of(zoo.X[D])
    size = lambda variance: np.diag(sg.covariance(suggest(kernel, scales, variance), places))
    np.testing.assert_allclose(size(4.0), 4 * size(1.0), rtol=1e-9)


def test_periods_are_looked_for_where_the_data_swing():
    rng = np.random.default_rng(0)
    t = np.sort(rng.uniform(0, 12, 80))
    y = np.sin(2 * np.pi * t / 0.83) + 0.5 * np.cos(2 * np.pi * t / 3) + 0.1 * rng.standard_normal(80) + 0.3 * t
    for s, a, b in ((1.0, 1.0, 0.0), (1e-9, 1e6, 1e12), (1e200, 1e-6, 3.0)):
        np.testing.assert_allclose(periods_of(a * t + b, s * y, 2), [0.83 * a, 3 * a], rtol=0.05)
    assert periods_of(np.zeros(5), np.ones(5), 2) == [1.0, 1.0]
    assert periods_of(np.arange(30.0), np.ones(30), 2) == [14.5, 14.5]


def test_a_mean_that_is_held_far_from_the_data_is_made_up_for():
    t = np.linspace(0, 10, 24)
    gp = sg.GP(sg.Matern52(), sg.Gaussian(0.1), mean=sg.LinearMean(1.0, 2.0).freeze())
    fitted = gp.fit(t, 1e5 + np.sin(t), restarts=0, parameters="best")
    assert fitted.learning.pressed == ()
    np.testing.assert_allclose(fitted.predict(t).mean - 1e5, np.sin(t), atol=0.05)


@pytest.mark.parametrize("unit", [1e-3, 1e3])
def test_a_given_lengthscale_is_tried_in_the_units_of_the_data(unit):
    """Many waves are noise to a function as long as the line: the one that was given is right, but for its variance."""
    t = np.arange(400.0)
    y = np.sin(t / 4) + 0.3 * np.random.default_rng(0).standard_normal(400)
    gp = sg.GP(sg.Matern52(8.0), sg.Gaussian(0.1))
    ours, other = (gp.fit(t, scale * y, restarts=0, parameters="best") for scale in (1.0, unit))
    assert values(other)["kernel.lengthscale"] == pytest.approx(values(ours)["kernel.lengthscale"], rel=1e-2)
    assert other.log_evidence + 400 * np.log(unit) == pytest.approx(ours.log_evidence, abs=1e-4)


OFTEN = ["SquaredExponential-Factor", "Matern32"]
LEARNED = [name for name in zoo.KERNELS if name not in ("Constant", *OFTEN)][::4]


@pytest.mark.parametrize("name", zoo.mostly_full([*OFTEN, *LEARNED], *OFTEN))
def test_kernels_of_the_zoo_are_learned(name):
    kernel, D = zoo.KERNELS[name]
    gp = sg.GP(kernel, sg.Gaussian(0.15))
    fitted = gp.fit(zoo.X[D], zoo.Y[D], restarts=0, max_evaluations=25, parameters="best")
    assert fitted.log_evidence >= gp.log_evidence(zoo.X[D], zoo.Y[D]) - 1e-9


@pytest.mark.parametrize("offset", [1e3, 1e5])
def test_a_zero_mean_takes_data_that_lie_far_from_it(offset):
    """The variance of the kernel must carry the offset: its bounds reach there."""
    t = np.linspace(0, 10, 24)
    fitted = sg.GP(sg.Matern52(), sg.Gaussian(0.1)).fit(t, offset + np.sin(t), restarts=0, parameters="best")
    assert fitted.learning.pressed == ()
    np.testing.assert_allclose(fitted.predict(t).mean - offset, np.sin(t), atol=0.05)


def test_an_end_at_a_bound_is_said(monkeypatch):
    """A scale that is so far from where learning starts that the search ends before it."""
    monkeypatch.setattr("structgp.learn.maximise.candidates", lambda model, X, data: [model])
    t = np.linspace(0, 1, 24)
    far = sg.GP(sg.Scaled(sg.Matern52(sg.fixed(1.0), sg.fixed(1.0)), 1e-12), sg.Gaussian(sg.fixed(1e-12)))
    with pytest.warns(
        RuntimeWarning, match=r"ended at a bound of the search for kernel.scale, while the evidence still rises: give"
    ):
        fitted = far.fit(t, 1.0 + np.sin(t), restarts=0, parameters="best")
    assert fitted.learning.pressed == ("kernel.scale",)


@pytest.mark.parametrize("likelihood", [sg.Poisson(), pytest.param(sg.NegativeBinomial(), marks=pytest.mark.full)])
@pytest.mark.parametrize("mean", zoo.mostly_full([None, 0.0], None))
def test_counts_that_are_all_zero(likelihood, mean):
    """The rate lies below one count in all of the exposure, and is a number."""
    t = np.linspace(0, 10, 24)
    rate = (
        sg.GP(sg.Matern52(), likelihood, mean=mean)
        .fit(t, np.zeros(24), parameters="best")
        .predict([0.0, 5.0, 12.0])
        .observed.mean
    )
    assert (rate > 1e-4).all()
    assert (rate < 1.0).all()


def test_some_of_very_many_rows_tell_where_to_begin(monkeypatch):
    monkeypatch.setattr(initialise, "TELLING", 64)
    axis, rng = np.linspace(0, 1, 40), np.random.default_rng(0)
    gp = sg.GP(sg.Matern32(0.2).on(0) * sg.Matern32(0.2).on(1), sg.Gaussian(0.1))
    grid, y = sg.Grid(axis, axis), rng.normal(size=1600)
    y[3] = np.nan
    cells = rng.permutation(1600)[:1200]
    for places, values in ((grid, y), (sg.Grid(axis, axis, cells=cells), y[cells]), (as_inputs(grid.points[::-1]), y[::-1])):
        X, some = initialise.telling_rows(gp, places, read_observations(gp.likelihood, values, None, "infer", places))
        assert 32 < len(X) == len(some.y) <= 64
        np.testing.assert_array_equal(
            y.reshape(40, 40)[tuple(np.rint(39 * X).astype(int).T)], some.y[:, 0]
        )  # each at its place
    few = as_inputs(grid.points[:50])
    assert len(initialise.telling_rows(gp, few, read_observations(gp.likelihood, y[:50], None, "infer", few))[0]) == 50
