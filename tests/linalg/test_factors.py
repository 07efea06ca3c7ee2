"""Dense factors by LAPACK, which large matrices go to, against the same in XLA."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from structgp.linalg.dense import factors

N = factors.SMALL + 8


@pytest.fixture(scope="module")
def problem():
    """A smooth covariance, and factors from none at all over very weak to strong ones."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, 3))
    K = 2 * np.exp(-0.6 * np.sum((X[:, None] - X[None]) ** 2, axis=2))
    w = 10 ** rng.uniform(-12, 1, N)
    w[-20:] = 0.0
    return K, w, rng.normal(size=(N, 2)) * np.sqrt(w)[:, None]


def in_xla(function, *arguments):
    """What comes out where nothing is handed to the host, compiled anew."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(factors, "_goes_to_host", lambda K: False)
        return jax.jit(lambda *given: function(*given))(*arguments)


def like_an_evidence(K, w, H):
    log_det, gram = factors.log_det_and_gram(K, w, H)
    return log_det + jnp.sum(gram * jnp.array([[1.0, 0.3], [0.3, -0.5]]))


def test_lapack_finds_the_same(problem):
    """Within a context that asks for double precision, which the thread of a callback does not know of."""
    with jax.enable_x64(True):
        found, expected = jax.jit(factors.solve)(*problem), in_xla(factors.solve, *problem)
        for name, part, there in zip(found._fields, found, expected, strict=True):
            np.testing.assert_allclose(part, there, rtol=1e-8, atol=1e-11, err_msg=name)


def test_and_the_same_gradient(problem):
    with jax.enable_x64(True):
        slope = jax.grad(like_an_evidence, (0, 1, 2))
        for part, there in zip(jax.jit(slope)(*problem), in_xla(slope, *problem), strict=True):
            np.testing.assert_allclose(part, there, rtol=1e-8, atol=1e-8)


def test_what_is_no_covariance_has_no_answer(problem):
    with jax.enable_x64(True):
        found = jax.jit(factors.solve)(-problem[0], problem[1], problem[2])
        assert np.isnan(found.log_det)
