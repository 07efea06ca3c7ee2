import jax.numpy as jnp
import numpy as np
import pytest

import structgp as sg
import zoo
from structgp.means import as_mean
from structgp.parameters.tree import free_names

POINT = np.array([0.5, -2.0])


def value(mean, x=POINT):
    return np.asarray(mean(jnp.asarray(x)))


def test_what_counts_as_a_mean():
    assert repr(as_mean(None)) == "ZeroMean()"
    assert float(as_mean(2).value) == 2.0
    assert free_names(as_mean(2)) == ["value"]
    assert isinstance(as_mean(lambda x: x[0]), sg.FunctionMean)
    basis = sg.polynomial(1)
    assert as_mean(basis) is basis


def test_values(x64):
    assert value(sg.ZeroMean()) == 0.0
    assert value(sg.ConstantMean(1.5)) == 1.5
    assert value(sg.LinearMean([2.0, 3.0], 0.25)) == pytest.approx(0.25 + 1.0 - 6.0)
    assert value(sg.FunctionMean(lambda x: x[:1] ** 2)) == 0.25
    assert value(sg.Basis(lambda x: x, [1.0, 2.0])) == pytest.approx(0.5 - 4.0)
    np.testing.assert_allclose(sg.polynomial(2).features(jnp.asarray(POINT)), [1.0, 0.5, -2.0, 0.25, 4.0])
    np.testing.assert_array_equal(sg.polynomial(0).features(jnp.asarray(POINT)), [1.0])


def test_a_function_with_parameters_is_learned():
    gp = sg.GP(sg.Matern32(), mean=sg.FunctionMean(zoo.Bend(0.7)))
    assert "mean.function.amount" in free_names(gp)
    x = np.linspace(-3, 3, zoo.N)
    fitted = sg.GP(sg.Matern32(sg.fixed(1.0), sg.fixed(1e-4)), sg.Gaussian(sg.fixed(1e-3)), mean=zoo.Bend(0.7)).fit(
        x, x + np.tanh(2.0 * x), restarts=0
    )
    assert float(fitted.gp.mean.function.amount) == pytest.approx(2.0, abs=0.05)


def test_basis_covariances_are_read_alike(x64):
    phi = lambda x: x
    for B in (0.5, [0.5, 0.5], [[0.5, 0.0], [0.0, 0.5]]):
        np.testing.assert_allclose(sg.Basis(phi, covariance=B).precision(2), 2 * np.eye(2))
    assert sg.Basis(phi).diffuse
    assert not sg.Basis(phi, covariance=1.0).diffuse


@pytest.mark.parametrize("B", [0.0, -1.0, np.inf, [1.0, -1.0], [[1.0, 2.0], [2.0, 1.0]]])
def test_basis_covariances_that_are_none(B):
    with pytest.raises(ValueError, match=r"covariance must be finite and positive.*leave it out when nothing is known"):
        sg.Basis(lambda x: x, covariance=B)


@pytest.mark.parametrize(
    ("mean", "covariance", "text"), [([1.0, 2.0], None, "mean has shape"), (0.0, np.eye(3), "covariance has shape")]
)
def test_basis_of_another_size(mean, covariance, text):
    gp = sg.GP(sg.Matern32(), mean=sg.Basis(lambda x: jnp.stack([x[0]] * 4), mean, covariance))
    with pytest.raises(ValueError, match=f"Basis has 4 functions, but its {text}"):
        gp.condition(zoo.X[1], zoo.Y[1])


def test_a_constant_mean_is_learned_from_the_level():
    y = zoo.Y[1] + 1000.0
    fitted = sg.GP(sg.Matern32(), mean=0.0).fit(zoo.X[1], y, restarts=0)
    assert float(fitted.gp.mean.value) == pytest.approx(1000.0, abs=5.0)
