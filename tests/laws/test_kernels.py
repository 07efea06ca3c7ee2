"""What is true of every kernel."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import structgp as sg
import zoo
from reference import slope
from structgp.parameters.tree import free_names, free_vector, leaves, with_free
from structgp.structure.dense import constant_variance, covariance, variances

pytestmark = pytest.mark.usefixtures("x64")
kernels = pytest.mark.parametrize("name", zoo.KERNELS)


@jax.jit
def everything(theta, kernel, X, Z):
    """All that the laws ask of a kernel, in one small program: pairs, and the M pairs of different points and of the same."""
    near, nowhere = X[: len(Z)], jnp.zeros_like(Z)
    of_pair = lambda theta, x, z: with_free(kernel, theta).between(x, z)
    every = jax.vmap(lambda x: jax.vmap(lambda z: kernel.between(x, z))(jnp.concatenate([X, Z])))(X)
    x, z = jnp.concatenate([near, near, nowhere]), jnp.concatenate([Z, near, near])
    values, (in_theta, in_x) = jax.vmap(jax.value_and_grad(of_pair, (0, 1)), (None, 0, 0))(theta, x, z)
    return {
        "by rules": (covariance(kernel, X, X), covariance(kernel, X, Z), variances(kernel, X)),
        "by pairs": (every[:, : len(X)], every[:, len(X) :]),
        "values": values[: 2 * len(Z)],
        "slopes": in_theta[: 2 * len(Z)],
        "slopes in x": in_x,
    }


def found(name, kernel=None, theta=None):
    of, D = zoo.KERNELS[name]
    kernel = of if kernel is None else kernel
    theta = free_vector(kernel) if theta is None else theta
    with jax.enable_x64(True):
        return jax.tree.map(np.asarray, everything(theta, kernel, zoo.X[D], zoo.XS[D]))


as_it_is = functools.cache(found)


def parts(value):
    """Every kernel in an expression."""
    found = [value] if isinstance(value, sg.Kernel) else []
    children = value if isinstance(value, tuple) else vars(value).values() if isinstance(value, sg.Parametrised) else ()
    return found + [part for child in children for part in parts(child)]


def test_the_zoo_has_every_kernel():
    kernels = [*(kernel for kernel, _ in zoo.KERNELS.values()), *zoo.OF_OUTPUTS.values()]
    in_zoo = {type(part).__name__ for kernel in kernels for part in parts(kernel)}
    offered = {name for name, value in zoo.NAMESPACE.items() if isinstance(value, type) and issubclass(value, sg.Kernel)}
    assert offered - {"Kernel", "Induced"} == in_zoo  # inducing inputs have laws of their own: they are no part of k(x, z)


@kernels
def test_is_a_covariance(name):
    K, _, variance = as_it_is(name)["by rules"]
    np.testing.assert_allclose(K, K.T, rtol=1e-13, atol=1e-14)
    # Rounding moves eigenvalues by about N ε times the largest; k itself may be a difference of terms a few times larger.
    assert np.linalg.eigvalsh(K).min() > -1e-13 * zoo.N * np.abs(K).max()
    np.testing.assert_allclose(variance, np.diagonal(K), rtol=1e-13, atol=1e-14)
    known = constant_variance(zoo.KERNELS[name][0])
    np.testing.assert_allclose(variance, variance if known is None else known, rtol=1e-13)


@kernels
def test_rules_agree_with_pairs(name):
    K, Ks, _ = as_it_is(name)["by rules"]
    K_pairs, Ks_pairs = as_it_is(name)["by pairs"]
    assert Ks.shape == (zoo.N, zoo.M)
    np.testing.assert_allclose(K, K_pairs, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(Ks, Ks_pairs, rtol=1e-12, atol=1e-14)


@kernels
def test_gradient_in_the_parameters(name):
    kernel, _ = zoo.KERNELS[name]
    theta = free_vector(kernel)
    assert len(theta) == len(free_names(kernel)) > 0
    slopes = as_it_is(name)["slopes"]
    assert np.isfinite(slopes).all()
    differences = slope(lambda theta: found(name, theta=theta)["values"], theta)
    np.testing.assert_allclose(slopes.T, differences, rtol=1e-7, atol=1e-9)  # the differences are good to about 1e-10


@kernels
def test_gradient_in_the_inputs_is_finite(name):
    """Also at x = z, where distances have a kink: what `Fitted.gradient` meets at a training point."""
    assert np.isfinite(as_it_is(name)["slopes in x"]).all()


@kernels
def test_repr_reads_like_the_expression_that_made_it(name):
    kernel, _ = zoo.KERNELS[name]
    again = eval(repr(kernel), dict(zoo.NAMESPACE))
    K = found(name, again)["by rules"][0]
    np.testing.assert_allclose(K, as_it_is(name)["by rules"][0], rtol=1e-13, atol=1e-14)


@kernels
def test_free_vector_round_trip(name):
    kernel, _ = zoo.KERNELS[name]
    theta = free_vector(kernel)
    again = with_free(kernel, theta)
    for before, after in zip(leaves(kernel), leaves(again), strict=True):
        assert before.path == after.path
        np.testing.assert_allclose(after.value, before.value, rtol=1e-14, atol=1e-15)
    moved = with_free(kernel, theta + 0.1)
    for leaf in leaves(moved):
        leaf.support.check(leaf.path, leaf.value)


@kernels
def test_is_a_value(name):
    """Immutable, with parameters that are set by name, and learned unless they are said to be fixed."""
    kernel, _ = zoo.KERNELS[name]
    named = kernel.parameters()
    path, value = next(iter(named.items()))
    again = kernel.replace({path: value})
    assert repr(again) == repr(kernel)
    assert not len(free_vector(kernel.freeze()))
    with pytest.raises(AttributeError):
        kernel.notes = ()
