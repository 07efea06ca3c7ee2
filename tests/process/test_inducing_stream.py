"""Rows that come and go, known through inducing inputs."""

import numpy as np
import pytest

import structgp as sg

RNG = np.random.default_rng(5)
X = RNG.uniform(-2, 2, (90, 2))
Y = np.sin(2 * X[:, 0]) + X[:, 1] + 0.1 * RNG.normal(size=90)
NEW = RNG.uniform(-2, 2, (6, 2))
Z = X[::7]
GP = sg.GP(sg.SquaredExponential([1.0, 1.5], 1.2), sg.Gaussian(0.04), mean=0.3)


@pytest.mark.parametrize("method", ["power", "vfe", "fitc"])
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


def test_inputs_may_change_on_the_way():
    stream = GP.stream(approximate=sg.Inducing(X[:40], "vfe")).update(X, Y)
    same, other = stream.with_inputs(X[:40]), stream.with_inputs(np.concatenate([X[:40], NEW]))
    assert np.isclose(same.log_evidence, stream.log_evidence, atol=1e-5)
    assert np.allclose(other.predict(NEW).mean, stream.predict(NEW).mean, atol=1e-4)
    fewer = stream.with_inputs(X[:10])
    assert fewer.log_evidence < stream.log_evidence
    assert fewer.log_evidence < GP.condition(X, Y, approximate=sg.Inducing(X[:10], "vfe")).log_evidence + 1e-6


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


def test_what_cannot_be_streamed_is_said():
    stream = GP.stream(approximate="inducing:20")
    with pytest.raises(ValueError, match="this stream has seen nothing yet"):
        stream.predict(NEW)
    with pytest.raises(ValueError, match="the inducing inputs have 2 columns but the inputs have 1"):
        stream.update(X, Y).update(X[:, :1], Y)
    with pytest.raises(ValueError, match=r"approximate=Inducing\(9, 'pitc'\) cannot be streamed"):
        GP.stream(approximate=sg.Inducing(9, "pitc"))
    with pytest.raises(ValueError, match="a stream needs Gaussian observations"):
        sg.GP(sg.Matern52(), sg.Bernoulli()).stream(approximate=sg.Inducing(9))
