"""A matrix met block by block gives what the whole one gives."""

import jax
import jax.numpy as jnp
import numpy as np

import structgp as sg
from structgp.linalg.dense import by_blocks, cholesky


def entries(parameters, rows, columns):
    scale, X = parameters
    return jnp.exp(-0.5 * jnp.sum(((X[rows, None] - X[None, columns]) / scale) ** 2, axis=-1))


def test_value_and_gradients_are_those_of_the_whole_matrix(x64):
    rng = np.random.default_rng(0)
    X, T = rng.normal(size=(37, 2)), rng.normal(size=(37, 2))
    w = rng.uniform(1, 3, 37)
    w[5] = 0.0  # one row was not seen
    weights = jnp.asarray([[1.0, 0.3], [0.2, 2.0]])

    def value(found):
        log_det, gram = found
        return log_det + jnp.sum(weights * gram)

    ours = lambda scale, X, w, T: value(by_blocks.log_det_and_gram(entries, (scale, X), w, T))
    whole = lambda scale, X, w, T: value(cholesky.log_det_and_gram(entries((scale, X), slice(None), slice(None)), w, T))
    at = (jnp.asarray([0.7, 1.5]), *map(jnp.asarray, (X, w, T)))
    for one, other in zip(
        *(jax.tree.leaves(jax.jit(jax.value_and_grad(f, argnums=(0, 1, 2, 3)))(*at)) for f in (ours, whole)), strict=True
    ):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-10)


def test_jitter_is_added_as_to_the_whole_matrix(x64):
    X, w = jnp.linspace(0.0, 1.0, 37)[:, None], jnp.full(37, 1e17)
    at = (jnp.asarray([3.0]), X)
    ours = jax.jit(by_blocks.factorise, static_argnums=0)(entries, at, w)
    whole = cholesky.factorise(entries(at, slice(None), slice(None)), w)
    assert ours.jitter > 0
    np.testing.assert_allclose(ours.jitter, whole.jitter)
    np.testing.assert_allclose(ours.L @ ours.L.T, whole.L @ whole.L.T, rtol=1e-7)


def test_the_engine_takes_blocks_of_many_rows(monkeypatch):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(37, 2))
    y = np.sin(X[:, 0])
    gp = sg.GP(sg.Matern52([1.0, 2.0]) + sg.Linear(), sg.Gaussian(0.1))
    answers = []
    for many in (by_blocks.MANY, 0):
        monkeypatch.setattr(by_blocks, "MANY", many)
        fitted = gp.condition(X, y, structure="dense")
        answers.append((fitted.log_evidence, fitted.predict(X + 0.1).mean, fitted.predict(X + 0.1).variance))
        jax.clear_caches()
    for one, other in zip(*answers, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-10)
