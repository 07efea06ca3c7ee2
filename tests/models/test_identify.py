"""Systems from records: responses with bands, poles, several inputs, gaps, and the laws of the sums behind them."""

import dataclasses

import numpy as np
import pytest
from scipy.signal import butter, lfilter, lsim

import structgp as sg
from structgp.linalg import fir
from structgp.models.impulse_prior import ImpulsePrior, left_open
from structgp.models.unseen_inputs import Autoregression, Unseen

RNG = np.random.default_rng(3)
POLES = [0.6 + 0.49j, 0.6 - 0.49j]
H = lfilter([0.0, 0.5, 0.2], np.poly(POLES).real, np.eye(1, 60)[0])


def record(N=400, noise=0.1, low=0.0, past=60, seed=0):
    rng = np.random.default_rng(seed)
    u = lfilter([1 - low], [1, -low], rng.standard_normal(N + past + 100))[100:]
    u = u / u.std()
    return u, lfilter(H, [1.0], u)[past:] + noise * rng.standard_normal(N)


def test_sums_without_a_table_are_those_of_the_table():
    u, y = RNG.standard_normal((50, 2)), RNG.standard_normal(43)
    found = fir.sums(u, y, 6)
    Phi = fir.shifted(u, 6, np.arange(7, 50))
    np.testing.assert_allclose(found.R, Phi.T @ Phi, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(found.b, Phi.T @ y, rtol=1e-12, atol=1e-12)
    y[5:9] = np.nan
    gaps, seen = fir.sums(u, y, 6), np.isfinite(y)
    np.testing.assert_allclose(gaps.R, Phi[seen].T @ Phi[seen], rtol=1e-12, atol=1e-12)
    assert gaps.rows == seen.sum()


def test_evidence_and_estimate_are_those_of_the_whole_matrix():
    u, y = RNG.standard_normal((40, 1)), RNG.standard_normal(40)
    L = np.concatenate([fir.diagonal_correlated(5, 0.8, 0.7), fir.resonance(5, 0.3, 0.9, 1.1)], axis=1)
    i = np.arange(5)
    K = 0.8 ** ((i[:, None] + i) / 2) * 0.7 ** np.abs(i[:, None] - i)
    K = K + 0.3 * 0.9 ** ((i[:, None] + i) / 2) * np.cos(1.1 * (i[:, None] - i))
    np.testing.assert_allclose(L @ L.T, K, rtol=1e-12)
    data = fir.sums(u, y, 5)
    Phi, z = fir.shifted(u, 5, np.arange(4, 40)), y[4:]
    C = Phi @ K @ Phi.T + 0.4 * np.eye(36)
    c = z @ np.linalg.solve(C, z) / 36
    whole = -0.5 * (36 * np.log(2 * np.pi * c) + np.linalg.slogdet(C)[1] + 36)
    found = fir.estimate(data, L, 0.4)
    np.testing.assert_allclose(found.log_evidence, whole, rtol=1e-11)
    np.testing.assert_allclose(found.mean, K @ Phi.T @ np.linalg.solve(C, z), rtol=1e-9)
    np.testing.assert_allclose(found.covariance, c * (K - K @ Phi.T @ np.linalg.solve(C, Phi @ K)), rtol=1e-8, atol=1e-12)


def test_bands_hold_the_response():
    largest = np.argsort(-(H**2))
    largest = largest[: 1 + np.searchsorted(np.cumsum(H[largest] ** 2), 0.99 * np.sum(H**2))]  # lags that hold the energy
    inside = []
    for seed in range(8):
        found = sg.identify(*record(seed=seed), lags=60)
        inside.append(np.abs(found.weights[0] - H)[largest] <= 1.96 * found.impulse.sd[largest])
    assert np.mean(inside) > 0.8  # of 64, eight at a time from one record, with 0.95 wanted


def test_bands_count_frequencies_that_were_not_excited():
    """A ringing that a low-pass input hides lies inside, the slow part is as sure as it was, and a white input adds nothing."""
    R = H + 0.85 ** np.arange(60.0) * np.cos(2.4 * np.arange(60))
    inside, before = [], []
    for seed in range(2):
        e, noise = np.random.default_rng(seed).standard_normal((2, 500))
        for low, u in ((False, e), (True, lfilter(*butter(2, 0.3), e))):
            y = lfilter(R, [1.0], u)[60:] + 0.1 * u.std() * noise[60:]
            found, units = sg.identify(u, y, lags=60), (u.std(), y.std())
            around = (u - u.mean())[:, None] / units[0], (y - y.mean()) / units[1]
            prior, z, _ = ImpulsePrior(fir.sums(*around, 60).without_level(), 60, 1, "gp").at_its_mode()
            added, plain = left_open(prior, z, *found.power), fir.estimate(prior.data, *prior.root(z)).covariance
            assert np.linalg.eigvalsh(added).min() > -1e-9 * np.trace(added)
            assert np.trace(added) > 2 * np.trace(plain) if low else np.trace(added) < 0.1 * np.trace(plain)
        missed = np.abs(found.weights[0] - R)[:20]
        inside.append(missed <= 1.96 * found.impulse.sd[:20])
        before.append(missed <= 1.96 * np.sqrt(np.diagonal(plain))[:20] * units[1] / units[0])
        assert "believed, in wide bands" in found.summary()
        assert abs(found.step.mean[-1] - R.sum()) < 4 * found.step.sd[-1] < 0.2
    assert np.mean(inside) > 0.9 > 0.85 > np.mean(before)


def test_a_singular_prior_is_conditioned_as_its_root():
    u, y = RNG.standard_normal((40, 1)), RNG.standard_normal(40)
    L, data = fir.resonance(6, 0.3, 0.9, 1.1), fir.sums(u, y, 6)
    found = fir.estimate(data, L, 0.4)
    mean, covariance = fir.conditioned(data, L @ L.T, 0.4, found.scale)
    np.testing.assert_allclose(mean, found.mean, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(covariance, found.covariance, rtol=1e-9, atol=1e-12)


def test_responses_poles_and_simulation():
    u, y = record()
    found = sg.identify(u, y, lags=60)
    assert 100 * (1 - np.linalg.norm(found.weights[0] - H) / np.linalg.norm(H)) > 90
    np.testing.assert_allclose(found.step.mean[-1], H.sum(), atol=3 * found.step.sd[-1])
    two = found.poles()
    assert two.order == 2
    np.testing.assert_allclose(np.sort_complex(two.poles), np.sort_complex(np.array(POLES)), atol=0.03)
    at = found.frequency([0.0, 0.7])
    assert np.all((at.lower <= at.gain) & (at.gain <= at.upper))
    np.testing.assert_allclose(at.response[0].real, found.weights[0].sum(), rtol=1e-12)
    new, truth = record(seed=9, noise=0.0, past=0)
    np.testing.assert_allclose(found.simulate(new).mean, truth, atol=0.3)
    assert found.fit > 85
    assert "order          2" in found.summary()


def test_least_squares_is_the_estimate_without_a_prior():
    u, y = record(N=150)
    found = sg.identify(u, y, lags=20, method="ls")
    v, z = u - u.mean(), y - y.mean()
    Phi = fir.shifted(v[:, None], 20, np.arange(60, len(u)))
    with_level = np.column_stack([Phi, np.ones(len(z))])
    np.testing.assert_allclose(found.weights[0], np.linalg.lstsq(with_level, z, rcond=None)[0][:-1], rtol=1e-8)
    short = sg.identify(u, y, lags=40, method="ls", length="bic")
    assert np.count_nonzero(short.weights) < 40


def test_a_low_pass_input_leaves_frequencies_unsaid():
    u, y = record(low=0.9)
    at = sg.identify(u, y, lags=60).frequency()
    assert at.excited[0]
    assert not at.excited[-1]


def dependent(a, h, noise, steps):
    """The two dependent outputs of one noise that an input 1/(1 − a z⁻¹) and what a response makes of it are."""
    g = a ** np.arange(80.0)
    rows = np.zeros((2, 80 + len(h)))
    rows[0, :80], rows[1, : 79 + len(h)] = g, np.convolve(g, h)
    t = np.arange(float(steps))
    u, y = (np.stack([t, np.full(steps, i)], axis=1) for i in (0.0, 1.0))
    return sg.GP(sg.FIR(rows), sg.Gaussian([1e-11, noise])), u, y


def test_inputs_that_were_not_seen_are_those_of_dependent_outputs():
    a, h, noise, steps = 0.7, np.array([0.3, 1.0, -0.4, 0.2]), 0.05, 40
    gp, u_rows, y_rows = dependent(a, h, noise, steps)
    v, y = gp.sample(np.concatenate([u_rows, y_rows]), 1, seed=3)[0].reshape(2, steps)
    y = y[3:] + np.sqrt(noise) * RNG.standard_normal(steps - 3)
    v[:6], v[20:23], y[10] = np.nan, np.nan, np.nan  # a part of the past, and a gap
    unseen = Unseen.of(v[:, None], y, len(h))
    prior = Autoregression(np.array([a]), 1.0)
    gone = np.isnan(v)
    Q = prior.precision(steps)[gone]
    unseen = dataclasses.replace(unseen, Q=Q[:, gone].toarray(), pull=-(Q @ np.nan_to_num(v)))
    found = unseen.given(h[None], noise, 0.0)
    rows, values = np.concatenate([u_rows[~gone], y_rows[3:]]), np.concatenate([v[~gone], y])
    fitted = gp.condition(rows, values, missing="infer", structure="dense")
    np.testing.assert_allclose(found.mean, fitted.predict(u_rows[gone]).mean, atol=1e-6)
    joint = fitted.predict(u_rows[gone], covariance=True).covariance
    np.testing.assert_allclose(np.linalg.inv(found.precision), joint, atol=1e-6)
    np.testing.assert_allclose(np.linalg.inv(prior.precision(6).toarray()), prior.covariance(6), rtol=1e-9)
    draws = np.array([found.drawn(np.random.default_rng(seed)) for seed in range(400)])
    np.testing.assert_allclose(np.cov(draws.T), joint, atol=0.3 * joint.max())


def test_dependent_outputs_of_exact_inputs_are_least_squares():
    """p(u, y) = p(u) p(y | u): with all inputs known, what two dependent outputs say of a response is a sum of squares."""
    h, noise, steps = np.array([0.3, 1.0, -0.4, 0.2]), 0.05, 30
    y, values = RNG.standard_normal(steps - 3), []
    v = dependent(0.7, h, noise, steps)[0].sample(dependent(0.7, h, noise, steps)[1], 1, seed=5)[0]
    for response in (h, 2 * h[::-1]):
        gp, u_rows, y_rows = dependent(0.7, response, noise, steps)
        rows = np.concatenate([u_rows, y_rows[3:]])
        residual = y - np.convolve(v, response)[3:steps]
        values.append(
            gp.condition(rows, np.concatenate([v, y]), structure="dense").log_evidence + 0.5 * residual @ residual / noise
        )
    assert values[0] == pytest.approx(values[1], abs=1e-4)


def test_the_joint_way_is_the_default_where_all_inputs_are_known_and_loses_no_output():
    u, y = record(N=120, past=30)
    known, joint = sg.identify(u, y, lags=30), sg.identify(u, y, lags=30, method="joint")
    np.testing.assert_array_equal(joint.weights, known.weights)
    u, y = record(N=150, noise=0.2, past=0)
    u[70:74] = np.nan
    found = sg.identify(u, y, lags=40, method="joint")
    assert np.isfinite(found.inputs).all()
    assert len(found.inputs) == len(y) + 39
    closeness = 1 - np.linalg.norm(found.weights[0] - H[:40]) / np.linalg.norm(H)
    assert closeness > 0.85
    assert np.mean(np.abs(found.weights[0] - H[:40]) <= 1.96 * found.impulse.sd) > 0.8
    two = sg.identify(np.stack([u, np.random.default_rng(0).standard_normal(150)], axis=1), y, lags=10, method="joint")
    assert np.abs(two.weights[1]).max() < 0.2 < np.abs(two.weights[0]).max()


def test_where_too_much_was_not_seen_the_first_outputs_are_left_out(monkeypatch):
    u, y = record(N=120, past=0)
    averaged = sg.identify(u, y, lags=20)
    assert len(averaged.inputs) == 120 + 19
    monkeypatch.setattr("structgp.models.even_steps.MOST_UNSEEN", 18)
    found = sg.identify(u, y, lags=20)
    assert len(found.inputs) == 120
    assert np.linalg.norm(found.weights - averaged.weights) < 0.2 * np.linalg.norm(averaged.weights)


@pytest.mark.full
def test_an_analog_system_from_uneven_records_with_gaps():
    """y'' + 0.8 y' + 4y = 4u with an input that changes slowly between rows."""
    rng, step = np.random.default_rng(1), 0.02
    fine = np.arange(0.0, 40.0, step)
    u = lsim(([1.0], [1.0, 2.4, 1.44]), rng.standard_normal(len(fine)) / np.sqrt(step), fine)[1]
    y = lsim(([4.0], [1.0, 0.8, 4.0]), u, fine)[1]
    rows = np.sort(rng.choice(len(fine), 350, replace=False))
    v, z, t = u[rows], y[rows] + 0.1 * y.std() * rng.standard_normal(350), fine[rows]
    v[40:44], z[90:99] = np.nan, np.nan
    found = sg.identify(v, z, t=t, method="analog", lags=50)
    np.testing.assert_allclose(found.transfer.poles, [-0.4 - 1.96j, -0.4 + 1.96j], atol=0.1)
    w = np.sqrt(3.84)
    h = 4 / w * np.exp(-0.4 * found.impulse.t) * np.sin(w * found.impulse.t)
    assert np.linalg.norm(found.impulse.mean - h) < 0.08 * np.linalg.norm(h)
    assert found.poles().order == 2
    assert found.fit > 80
    assert "poles in s     -0." in found.summary()
    again = sg.identify(10 * v, 3 * z, t=100 * t, method="analog", lags=50)
    np.testing.assert_allclose(again.transfer.poles, found.transfer.poles / 100, atol=1e-4)
    np.testing.assert_allclose(again.impulse.mean, 0.003 * found.impulse.mean, atol=2e-4 * 0.003 * h.max() * 100)


@pytest.mark.full
def test_several_inputs_and_outputs_with_gaps():
    rng = np.random.default_rng(5)
    u = rng.standard_normal((300, 2))
    g = 0.8 ** np.arange(30.0)
    y = lfilter(g, [1.0], u[:, 0]) - 0.5 * lfilter(g**2, [1.0], u[:, 1]) + 0.05 * rng.standard_normal(300)
    y[100:110] = np.nan
    found = sg.identify(u, np.stack([y, 2 * y], axis=1), lags=30)
    assert len(found) == 2
    np.testing.assert_allclose(found[0].weights, [g, -0.5 * g**2], atol=0.08)
    np.testing.assert_allclose(found[1].weights, 2 * found[0].weights, atol=0.02)
    slow = np.stack([u[:, 0], np.convolve(u[:, 1], np.ones(20), "same")], axis=1)
    found = sg.identify(slow, y, lags=30)
    assert found.frequency(source=0).excited.mean() > 0.9
    assert found.frequency(source=1).excited.mean() < 0.2
    assert " ± " in found.summary().split("steady gain")[1].splitlines()[0].split(",")[1]


def test_each_of_several_inputs_may_ring():
    u = np.random.default_rng(2).standard_normal((420, 2))
    g = lfilter([0.0, 0.4], [1.0, -0.7], np.eye(1, 40)[0])
    ringing = 0.9 ** np.arange(40.0) * np.sin(1.2 * np.arange(40))
    y = (lfilter(g, [1.0], u[:, 0]) + lfilter(ringing, [1.0], u[:, 1]))[40:]
    found = sg.identify(u, y + 0.2 * y.std() * np.random.default_rng(3).standard_normal(380), lags=40)
    assert found.resonance is None
    assert found.resonances[1] == pytest.approx(1.2, abs=0.05)
    assert " rad of input 1, a period of 5." in found.summary()
    assert np.linalg.norm(found.weights[1] - ringing) < 0.1 * np.linalg.norm(ringing)
    swings = found.poles(2, source=1).poles
    np.testing.assert_allclose(np.sort_complex(swings), 0.9 * np.exp([-1.2j, 1.2j]), atol=0.03)
    assert found.poles(1).poles[0].real == pytest.approx(0.7, abs=0.1)
    with pytest.raises(ValueError, match="there is no input 2: the system has 2 inputs, counted from 0"):
        found.poles(source=2)


def test_messages():
    u, y = record(N=60, past=0)
    with pytest.raises(
        ValueError, match=r"u has gaps \(row 3\): inputs must be known, or pass method='joint', which fills them"
    ):
        sg.identify(np.where(np.arange(60) == 3, np.nan, u), y)
    for method in ("gp", "joint"):
        with pytest.raises(ValueError, match=r"u is infinite \(row 3\): correct these values, or make them NaN"):
            sg.identify(np.where(np.arange(60) == 3, np.inf, u), y, method=method)
    with pytest.raises(ValueError, match=r"y is infinite \(row 0\)"):
        sg.identify(u, np.where(np.arange(60) == 0, -np.inf, y))
    with pytest.raises(ValueError, match="u has 59 rows and y 60: u must be as long as y, or begin earlier"):
        sg.identify(u[1:], y)
    with pytest.raises(ValueError, match="times are for method='analog', and method='gp' counts steps: leave out t, pass dt"):
        sg.identify(u, y, t=np.arange(60.0))
    with pytest.raises(ValueError, match="t needs the time of each of the 60 rows of u, in their order, but they do not grow"):
        sg.identify(u, y, t=np.zeros(60), method="analog")
    with pytest.raises(ValueError, match="method='analog' takes one input, got 2: use the default for several"):
        sg.identify(np.stack([u, u**2], axis=1), y, method="analog")
    with pytest.raises(ValueError, match="method must be one of"):
        sg.identify(u, y, method="arx")
    for method in ("ls", "gp", "analog"):
        with pytest.raises(ValueError, match="length must be 'bic', 'aicc' or None, got 'junk'"):
            sg.identify(u, y, method=method, length="junk")
    with pytest.raises(
        ValueError, match="length='bic' is for method='ls': a prior says how long a response is for method='gp'"
    ):
        sg.identify(u, y, length="bic")
    for dt in (0.0, "day"):
        with pytest.raises(ValueError, match="dt must be a positive number, the time from one row to the next"):
            sg.identify(u, y, dt=dt)
    for still in (1.0, 0.3):  # the mean of many 0.3 is another number
        with pytest.raises(ValueError, match=r"u does not change \(column 1\): a system is seen by what it makes of changes"):
            sg.identify(np.stack([u, np.full(60, still)], axis=1), y)
    with pytest.raises(ValueError, match="y does not change: there is nothing that the input could have made"):
        sg.identify(u, np.ones(60))
    with pytest.raises(ValueError, match="y has 9 values: at least 10 are needed"):
        sg.identify(u[:9], y[:9])
    with pytest.raises(ValueError, match="u has 60 rows, too few for a response of 58 lags: pass lags= of at most 55"):
        sg.identify(u, y, lags=58)
    found = sg.identify(u, y, lags=1)
    assert found.order == 0
    with pytest.raises(ValueError, match="u has 2 inputs, but the system was identified from 1"):
        found.simulate(np.ones((5, 2)))
    with pytest.raises(ValueError, match="there is no input 1: the system has 1 input, counted from 0"):
        found.step_of(1)


def test_units_and_files_change_nothing(tmp_path):
    u, y = record(N=120)
    up, down = 2.0**20, 2.0**-10  # powers of two leave every digit as it is
    found, other = sg.identify(u, y, lags=20), sg.identify(up * u, down * y, lags=20)
    np.testing.assert_allclose(up / down * other.weights, found.weights, rtol=1e-12)
    np.testing.assert_allclose(up / down * other.step.sd, found.step.sd, rtol=1e-12)
    assert other.log_evidence + 119 * np.log(down) == pytest.approx(found.log_evidence)  # the level is integrated out
    found.save(tmp_path / "system.structgp")
    again = sg.load(tmp_path / "system.structgp")
    np.testing.assert_array_equal(again.simulate(u[:9]).mean, found.simulate(u[:9]).mean)
    assert again.summary() == found.summary()
