"""Finite filters on a lattice of several dimensions: covariances are those of filtered white noise, and they are learned."""

import jax
import numpy as np
import pytest

import structgp as sg
from structgp.inputs.layouts import as_inputs
from structgp.inputs.observations import read_observations
from structgp.learn.evidence import evidence_objective
from structgp.parameters.tree import free_vector

RNG = np.random.default_rng(4)
SIDE, W = (
    (4, 5),
    RNG.standard_normal((2, 3, 2, 3)),
)  # two outputs, three noises, two weights along one axis and three along the other


def places(side, outputs=2):
    lattice = np.stack(np.meshgrid(*map(np.arange, side), indexing="ij"), axis=-1).reshape(-1, len(side))
    return np.concatenate([np.column_stack([lattice, np.full(len(lattice), i)]) for i in range(outputs)]).astype(float)


def filters(W, side):
    """The matrix that makes all outputs of all noises, which reach as far beyond the lattice as the weights do."""
    P, M, *q = W.shape
    wide = [s + k - 1 for s, k in zip(side, q, strict=True)]
    rows = []
    for i in range(P):
        for at in np.ndindex(*side):
            heard = np.zeros((M, *wide))
            heard[(slice(None), *(slice(a, a + k) for a, k in zip(at, q, strict=True)))] = W[i][
                (slice(None), *[slice(None, None, -1)] * len(q))
            ]
            rows.append(heard.ravel())
    return np.array(rows)


def test_the_covariance_on_a_lattice_is_that_of_filtered_noise():
    X, A = places(SIDE), filters(W, SIDE)
    np.testing.assert_allclose(sg.covariance(sg.FIR(W, axes=2), X, X), A @ A.T, atol=1e-13)
    one = W[:, :1]
    again = sg.covariance(sg.FIR(one[:, 0], axes=2), X, X)
    np.testing.assert_allclose(again, filters(one, SIDE) @ filters(one, SIDE).T, atol=1e-13)
    cube, shape = RNG.standard_normal((2, 1, 2, 2, 2)), (3, 2, 3)
    A = filters(cube, shape)
    np.testing.assert_allclose(sg.covariance(sg.FIR(cube, axes=3), places(shape), places(shape)), A @ A.T, atol=1e-13)
    line = np.stack([np.tile(np.arange(6.0), 2), np.repeat([0.0, 1.0], 6)], axis=1)
    np.testing.assert_allclose(
        sg.covariance(sg.FIR(W[:, :, 0]), line, line), filters(W[:, :, 0], (6,)) @ filters(W[:, :, 0], (6,)).T, atol=1e-13
    )


def test_gradients_in_the_weights_are_those_of_the_evidence():
    X = places(SIDE)
    y = filters(W, SIDE) @ RNG.standard_normal(3 * 5 * 7) + 0.1 * RNG.standard_normal(len(X))
    gp, inputs = sg.GP(sg.FIR(W[:, :1], axes=2), sg.Gaussian(0.1)), as_inputs(X)
    with jax.enable_x64(True):
        data = read_observations(gp.likelihood, y, None, "error", inputs)
        objective, theta = evidence_objective(gp, inputs, data, gp.plan(inputs).engine, 0.0), free_vector(gp)
        gradient = objective(theta)[1]
        for i in (0, 4, 11, len(theta) - 1):
            step = 1e-5 * (np.arange(len(theta)) == i)
            difference = (objective(theta + step)[0] - objective(theta - step)[0]) / 2e-5
            assert gradient[i] == pytest.approx(difference, rel=1e-6, abs=1e-6)


@pytest.mark.full
def test_a_field_that_is_another_one_moved_fills_its_gap():
    """Two random fields of one noise, the second of them one row later: what the first shows is known of the second."""
    side, q = (9, 9), 3
    bump = np.exp(-0.5 * ((np.arange(q)[:, None] - 0.7) ** 2 + (np.arange(q) - 0.7) ** 2))
    weights = np.zeros((2, 1, q + 1, q))
    weights[0, 0, :q], weights[1, 0, 1:] = bump, bump
    X = places(side)
    f = filters(weights, side) @ np.random.default_rng(1).standard_normal((side[0] + q) * (side[1] + q - 1))
    y = f + 0.05 * np.random.default_rng(2).standard_normal(len(f))
    gap = (X[:, 2] == 1) & (X[:, 0] >= 3) & (X[:, 0] < 7) & (X[:, 1] >= 3) & (X[:, 1] < 7)
    begin = 0.3 * weights + 0.05 * np.random.default_rng(3).standard_normal(weights.shape)
    fitted = sg.GP(sg.FIR(begin, axes=2), sg.Gaussian(0.01)).fit(X[~gap], y[~gap], parameters="best", restarts=0)
    missed = np.sqrt(np.mean((fitted.predict(X[gap]).mean - f[gap]) ** 2))
    assert missed < 0.25 * f[gap].std()  # nothing is known of the field there without the other


def test_messages():
    with pytest.raises(
        ValueError,
        match=r"FIR along 2 axes needs weights of shape \(P, q1, q2\), or \(P, M, q1, q2\) for M noises, got \(2, 3\)",
    ):
        sg.FIR(np.ones((2, 3)), axes=2)
    with pytest.raises(ValueError, match=r"FIR needs weights of shape \(P, q\), or \(P, M, q\) for M noises, got \(3,\)"):
        sg.FIR(np.ones(3))
    with pytest.raises(ValueError, match="axes must be a whole number, 1 or more, got 0"):
        sg.FIR(np.ones((2, 3)), axes=0)
    kernel = sg.FIR(np.ones((2, 2, 2)), axes=2)
    with pytest.raises(ValueError, match=r"FIR acts on \(2 places on a lattice, output\), but the inputs have 2 columns"):
        sg.covariance(kernel, np.zeros((2, 2)), np.zeros((2, 2)))
    with pytest.raises(ValueError, match=r"FIR lives at whole places, got 0\.5"):
        sg.GP(kernel, sg.Gaussian(0.1)).condition(np.array([[0.0, 0.5, 0.0], [1.0, 1.0, 1.0]]), np.zeros(2))
