"""Rows that come and go, known through inducing inputs."""

import numpy as np
import pytest

import structgp as sg
import zoo
from structgp.linalg.features.placing import missed_most

RNG = np.random.default_rng(5)
X = RNG.uniform(-2, 2, (90, 2))
Y = np.sin(2 * X[:, 0]) + X[:, 1] + 0.1 * RNG.normal(size=90)
NEW = RNG.uniform(-2, 2, (6, 2))
Z = X[::7]
GP = sg.GP(sg.SquaredExponential([1.0, 1.5], 1.2), sg.Gaussian(0.04), mean=0.3)


@pytest.mark.parametrize("method", zoo.mostly_full(["power", "vfe", "fitc"], "power"))
def test_rows_in_pieces_are_the_same_as_all_at_once(method, tmp_path):
    asked = sg.Inducing(Z, method)
    whole, stream = GP.condition(X, Y, approximate=asked), GP.stream(approximate=asked)
    for piece in (slice(0, 40), slice(40, 41), slice(41, 90)):
        stream = stream.update(X[piece], Y[piece])
    stream.save(tmp_path / "stream")
    for one in (stream, sg.load(tmp_path / "stream")):
        assert one.count == 90
        assert np.isclose(one.log_evidence, whole.log_evidence, rtol=1e-9)
        assert np.allclose(one.predict(NEW).mean, whole.predict(NEW).mean, atol=1e-8)
        assert np.allclose(one.predict(NEW).variance, whole.predict(NEW).variance, atol=1e-8)


@pytest.mark.full
def test_inputs_may_change_on_the_way():
    stream = GP.stream(approximate=sg.Inducing(X[:40], "vfe")).update(X, Y)
    same, other = stream.with_inputs(X[:40]), stream.with_inputs(np.concatenate([X[:40], NEW]))
    assert np.isclose(same.log_evidence, stream.log_evidence, atol=1e-5)
    assert np.allclose(other.predict(NEW).mean, stream.predict(NEW).mean, atol=1e-4)
    fewer = stream.with_inputs(X[:10])
    assert fewer.log_evidence < stream.log_evidence
    assert fewer.log_evidence < GP.condition(X, Y, approximate=sg.Inducing(X[:10], "vfe")).log_evidence + 1e-6


@pytest.mark.full
def test_rows_of_which_little_is_known_become_inputs_while_there_is_room():
    left = X[:, 0] < 0
    stream = GP.stream(approximate=sg.Inducing(30)).update(X[left][:20], Y[left][:20])
    assert stream.gp.kernel.inputs.shape == (20, 2)
    stream = stream.update(X[~left], Y[~left])
    inputs = stream.gp.kernel.inputs
    assert 22 < len(inputs) <= 30
    assert (inputs[20:, 0] > 0).all()
    again = GP.condition(X[~left], Y[~left], approximate=sg.Inducing(inputs))
    assert float(again.conditional.covariance_error) <= 0.05
    tight = GP.stream(approximate=sg.Inducing(22)).update(X[left][:20], Y[left][:20]).update(X[~left], Y[~left])
    assert len(tight.gp.kernel.inputs) == 22
    truth = np.sin(2 * NEW[:, 0]) + NEW[:, 1]
    assert np.abs(stream.predict(NEW).mean - truth).max() < 0.6


@pytest.mark.full
def test_inputs_that_are_missed_least_make_room_for_new_ones():
    order = np.argsort(X[:, 0])
    stream = GP.stream(approximate=sg.Inducing(16, "vfe"))
    fixed = GP.stream(approximate=sg.Inducing(X[order[:16]], "vfe"))
    for at in range(0, 90, 10):
        rows = order[at : at + 10]
        stream, fixed = stream.update(X[rows], Y[rows]), fixed.update(X[rows], Y[rows])
        assert len(stream.gp.kernel.inputs) <= 16
    assert np.array_equal(fixed.gp.kernel.inputs, X[order[:16]])
    assert np.ptp(stream.gp.kernel.inputs[:, 0]) > 2.5
    exact = GP.condition(X, Y, structure="dense").log_evidence
    assert fixed.log_evidence < stream.log_evidence < exact
    truth = np.sin(2 * NEW[:, 0]) + NEW[:, 1]
    error = lambda one: np.mean((one.predict(NEW).mean - truth) ** 2)
    assert error(stream) < 0.5 * error(fixed)


def test_the_value_that_is_missed_least_is_the_one_that_costs_least(x64):
    kernel = np.asarray(sg.covariance(GP.kernel, X[:7], X[:7]))
    L = np.linalg.cholesky(kernel + 1e-10 * np.eye(7))
    V = np.linalg.solve(L, np.asarray(sg.covariance(GP.kernel, X[:7], X)))
    gram = V @ V.T / 0.04

    def lost(kept):
        """tr S(I − PᵀP)."""
        P = np.linalg.solve(np.linalg.cholesky(L[kept] @ L[kept].T), L[kept] @ L.T) @ np.linalg.inv(L).T
        return np.trace(gram) - np.trace(P @ gram @ P.T)

    kept = missed_most(L, gram, 6)
    every = [np.delete(np.arange(7), i) for i in range(7)]
    assert np.isclose(lost(kept), min(map(lost, every)), rtol=1e-6)
    step_by_step = np.arange(7)
    for _ in range(3):
        step_by_step = min((np.delete(step_by_step, i) for i in range(len(step_by_step))), key=lost)
    assert np.array_equal(missed_most(L, gram, 4), step_by_step)


def test_what_cannot_be_streamed_is_said():
    stream = GP.stream(approximate="inducing:20")
    with pytest.raises(ValueError, match="this stream has seen nothing yet"):
        stream.predict(NEW)
    with pytest.raises(ValueError, match="the inducing inputs have 2 columns but the inputs have 1"):
        stream.update(X, Y).update(X[:, :1], Y)
    with pytest.raises(ValueError, match="X has 1 column, but the model was given 2: pass the same inputs"):
        stream.update(X, Y).predict(NEW[:, :1])
    with pytest.raises(ValueError, match=r"approximate=Inducing\(9, 'pitc'\) cannot be streamed"):
        GP.stream(approximate=sg.Inducing(9, "pitc"))
    with pytest.raises(ValueError, match="a stream needs Gaussian observations"):
        sg.GP(sg.Matern52(), sg.Bernoulli()).stream(approximate=sg.Inducing(9))
