"""The two numbers of a Gaussian evidence by the whole matrix: their adjoint by hand, and one rescue for a batch."""

import jax
import jax.numpy as jnp
import numpy as np
from threadpoolctl import threadpool_info, threadpool_limits

from structgp.linalg.dense.cholesky import factorise, lapack_threads, log_det_and_gram, log_sum

RNG = np.random.default_rng(0)
ROOTS = RNG.standard_normal((3, 8, 8))
K, W, T = ROOTS @ ROOTS.transpose(0, 2, 1), RNG.uniform(0.5, 2, (3, 8)), RNG.standard_normal((3, 8, 2))
W[0, 3] = 0.0  # not seen
SLOPES = np.array([[1.0, 0.3], [0.3, 2.0]])


def by_autodiff(K, w, T):
    L, _ = factorise(K, w)
    U = jax.scipy.linalg.solve_triangular(L, jnp.sqrt(w)[:, None] * T, lower=True)
    return 2 * jnp.sum(jnp.log(jnp.diagonal(L))) - log_sum(w), U.T @ U


def summed(numbers):
    def total(K, w, T):
        log_det, gram = numbers(K, w, T)
        return log_det + jnp.sum(SLOPES * gram)

    return jax.jit(jax.vmap(jax.value_and_grad(total, argnums=(0, 1, 2))))


def test_the_adjoint_by_hand_is_that_of_autodiff():
    with jax.enable_x64(True):
        found = [summed(numbers)(K, W, T) for numbers in (log_det_and_gram, by_autodiff)]
    (ours, slopes), (theirs, others) = jax.tree.map(np.asarray, found)
    np.testing.assert_allclose(ours, theirs, rtol=1e-12)
    symmetric = lambda G: G + np.swapaxes(G, 1, 2)
    np.testing.assert_allclose(symmetric(slopes[0]), symmetric(others[0]), rtol=1e-10, atol=1e-12)
    seen = W > 0  # the root of a precision of zero has no slope
    np.testing.assert_allclose(slopes[1][seen], others[1][seen], rtol=1e-10)
    assert slopes[1][0, 3] == 0
    np.testing.assert_allclose(slopes[2], others[2], rtol=1e-10, atol=1e-12)


def test_one_of_a_batch_is_rescued_and_the_others_stay_as_they_are():
    bad, sharp = K.copy(), W.copy()
    bad[1], sharp[1] = np.outer(np.arange(8.0), np.arange(8.0)) - 1e-13, 1e17
    with jax.enable_x64(True):
        together = jax.jit(jax.vmap(log_det_and_gram))(bad, sharp, T)
        alone = [log_det_and_gram(*(jnp.asarray(part[i]) for part in (bad, sharp, T))) for i in range(3)]
        assert np.isnan(jnp.linalg.cholesky(np.eye(8) + 1e17 * bad[1])[-1, -1])
    assert np.isfinite(together[0]).all()
    for part, parts in zip(together, zip(*alone, strict=True), strict=True):
        np.testing.assert_allclose(part, np.stack(parts), rtol=1e-9)


def test_one_thread_is_kept_until_the_last_one_left():
    """Limits that overlap, as those of threads do, leave the number of threads as it was."""
    used = lambda: {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}
    with threadpool_limits(2, user_api="blas"):
        before = used()
        first, second = lapack_threads(10), lapack_threads(1e6, side_by_side=2)
        first.__enter__()
        second.__enter__()
        assert used() == {1}
        first.__exit__(None, None, None)
        assert used() == {1}
        second.__exit__(None, None, None)
        assert used() == before
        with lapack_threads(1e6):
            assert used() == before
