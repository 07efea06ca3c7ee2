"""A record and what a rational system makes of it as one chain: closed forms, matrices, gradients, and what is refused."""

import jax
import numpy as np
import pytest

import structgp as sg
from structgp.inputs.observations import read_observations
from structgp.learn.evidence import evidence_objective
from structgp.parameters.tree import free_vector

RNG = np.random.default_rng(6)
SOURCE = sg.TransferFunction([1.5, 0.4], [0.8, -0.3], [2.0], [0.5])
SYSTEM = sg.TransferFunction([0.6, 3.0], [1.0, 0.4], [1.2], [-0.7])
KERNEL = sg.Cascade(SOURCE, SYSTEM)
T = np.sort(RNG.uniform(0.0, 8.0, 14))
X = np.stack([np.concatenate([T, T[::2] + 0.3, T[1::3]]), np.repeat([0.0, 1.0, 1.0], [14, 7, 5])], axis=1)
Y = RNG.standard_normal(len(X))
GP = sg.GP(KERNEL, sg.Gaussian([0.05, 0.1]))


def test_a_pair_of_first_order_systems_has_the_known_covariances():
    a, b = 0.7, 1.9
    kernel = sg.Cascade(sg.TransferFunction([a], [1.0]), sg.TransferFunction([b], [1.0]))
    tau = np.array([0.0, 0.3, 1.7])
    at = lambda t, i: np.stack([t, np.full(len(t), i)], axis=1)
    origin = np.zeros(1)
    of = lambda i, j, t: np.asarray(sg.covariance(kernel, at(t, i), at(origin, j)))[:, 0]
    np.testing.assert_allclose(of(0.0, 0.0, tau), np.exp(-a * tau) / (2 * a), rtol=1e-12)
    later = (2 * a * np.exp(-b * tau) - (a + b) * np.exp(-a * tau)) / (2 * a * (a + b) * (a - b))
    np.testing.assert_allclose(of(1.0, 0.0, tau), later, rtol=1e-10)
    np.testing.assert_allclose(of(1.0, 0.0, -tau), np.exp(-a * tau) / (2 * a * (a + b)), rtol=1e-10)
    own = (a * np.exp(-b * tau) - b * np.exp(-a * tau)) / (2 * a * b * (a + b) * (a - b))
    np.testing.assert_allclose(of(1.0, 1.0, tau), own, rtol=1e-10)


def test_the_second_output_is_the_first_through_the_system(x64):
    """By a fine sum: the filter of output 1 is that of output 0 and the system's one after the other."""
    t = np.arange(0.0, 12.0, 1e-3)
    g, h = (np.asarray(part.impulse(t)) for part in (SOURCE, SYSTEM))
    both = np.convolve(g, h)[: len(t)] * 1e-3
    chain = KERNEL.chain()
    turn = np.exp(-np.asarray(chain.rates) * t[:, None] + 1j * np.asarray(chain.frequencies) * t[:, None])
    read = np.asarray(chain.weights[1])
    np.testing.assert_allclose(np.sum(turn.real * read[:, 0] + turn.imag * read[:, 1], axis=1), both, atol=2e-3)
    np.testing.assert_allclose(np.sum(h * np.exp(-0.5j * t)) * 1e-3, SYSTEM.at(0.5j), atol=2e-3)
    np.testing.assert_allclose(np.real(SYSTEM.poles), [-3.0, -0.6, -0.6])


def test_a_chain_is_the_matrix_and_its_gradient_is_that_of_the_evidence():
    along, dense = (GP.condition(X, Y, structure=how) for how in ("markov", "dense"))
    assert along.log_evidence == pytest.approx(dense.log_evidence, abs=1e-9)
    at = np.stack([np.tile(np.linspace(-1.0, 9.0, 5), 2), np.repeat([0.0, 1.0], 5)], axis=1)
    for part in ("mean", "variance"):
        np.testing.assert_allclose(getattr(along.predict(at), part), getattr(dense.predict(at), part), atol=1e-8)
    with jax.enable_x64(True):
        data = read_observations(GP.likelihood, Y, None, "error", along.inputs)
        objective = evidence_objective(GP, along.inputs, data, along.plan.engine, 0.0)
        theta = free_vector(GP)
        gradient = objective(theta)[1]
        for i in range(len(theta)):
            step = 1e-5 * (np.arange(len(theta)) == i)
            difference = (objective(theta + step)[0] - objective(theta - step)[0]) / 2e-5
            assert gradient[i] == pytest.approx(difference, rel=1e-5, abs=1e-6), i


def test_responses_are_in_double_precision():
    t = np.array([0.0, 0.3, 2.0])
    found = SYSTEM.impulse(t)
    assert found.dtype == np.float64
    wave = 0.4 * np.exp(-3.0 * t) + np.exp(-0.6 * t) * (np.cos(1.2 * t) - 0.7 * np.sin(1.2 * t))
    np.testing.assert_allclose(found, wave, rtol=1e-13)
    s = np.array([1.0 + 2.0j])
    exact = (s + 0.6 - 0.7 * 1.2) / ((s + 0.6) ** 2 + 1.2**2) + 0.4 / (s + 3.0)
    np.testing.assert_allclose(SYSTEM.at(s), exact, rtol=1e-13)


def test_messages():
    with pytest.raises(
        ValueError, match=r"a cosine for each of K modes, and a frequency and a sine for those that swing, got \(2,\), \(1,\)"
    ):
        sg.TransferFunction([1.0, 2.0], [1.0])
    with pytest.raises(ValueError, match=r"Cascade act on \(time, output\), but the inputs have 1 column"):
        sg.covariance(KERNEL, np.zeros((2, 1)), np.zeros((2, 1)))
