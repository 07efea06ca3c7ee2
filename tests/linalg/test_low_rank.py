"""Low rank plus a diagonal against dense matrices, in JAX and by BLAS, and places among many."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from structgp.linalg.features.low_rank import Rule, in_blocks, log_det_and_gram, with_jitter
from structgp.linalg.features.low_rank_host import Block, HostLowRank
from structgp.linalg.features.placing import centres, clusters, pivots

N, M, D, C = 57, 9, 2, 2
RULES = {"dropped": Rule(0.0, False), "charged": Rule(0.0), "half": Rule(0.5), "noise": Rule(1.0)}


def bell(theta, X, Z):
    return theta[0] * jnp.exp(-0.5 * jnp.sum((X[:, None] - Z[None]) ** 2, axis=-1) / theta[1] ** 2)


def crossing(theta, Z, X):
    return bell(theta, X, Z), jnp.full(len(X), 1.0) * theta[0]


def problem(natural):
    rng = np.random.default_rng(3)
    X, Z, t = (jnp.asarray(rng.normal(size=shape)) for shape in ((N, D), (M, D), (N, C)))
    w = jnp.asarray(rng.uniform(1.0, 5.0, N))
    return X, (jnp.asarray([1.3, 0.8]), Z, w.at[:5].set(-0.05) if natural else w, t)


def densely(X, theta, Z, w, t, rule, natural):
    """The same from the whole matrix."""
    V = jax.scipy.linalg.solve_triangular(jnp.linalg.cholesky(with_jitter(bell(theta, Z, Z))), bell(theta, Z, X), lower=True)
    d = theta[0] - jnp.sum(V * V, axis=0)
    K = V.T @ V + rule.share * jnp.diag(d)
    charge = 0.0
    if rule.charged:
        q = 1 + rule.share * w * d
        charge = (1 - rule.share) / rule.share * jnp.sum(jnp.log(q)) if rule.share else jnp.sum(w * d)
    log_det = jnp.linalg.slogdet(jnp.eye(N) + K * w)[1] + charge
    inner = jnp.linalg.solve(jnp.eye(N) + K * w, K) if natural else jnp.linalg.inv(K + jnp.diag(1 / w))
    return log_det, t.T @ inner @ t


def in_few_rows(X, theta, Z, w, t, rule, natural):
    rows = in_blocks(X, 16)
    cross = jax.tree_util.Partial(crossing, theta, Z)
    return log_det_and_gram(cross, rows, with_jitter(bell(theta, Z, Z)), w, t, rule, natural)


def summed_up(numbers):
    G = jnp.asarray([[1.0, 0.3], [0.2, 2.0]])
    return 0.7 * numbers[0] + jnp.sum(G * numbers[1])


@pytest.mark.parametrize("natural", [True, False], ids=["factors of any sign", "values"])
@pytest.mark.parametrize("rule", RULES)
def test_value_and_adjoint_are_those_of_the_whole_matrix(x64, rule, natural):
    X, arguments = problem(natural)
    both = []
    for how in (densely, in_few_rows):
        f = lambda *given, how=how: summed_up(how(X, *given, RULES[rule], natural))
        both.append(jax.jit(jax.value_and_grad(f, argnums=(0, 1, 2, 3)))(*arguments))
    assert np.isclose(both[0][0], both[1][0], rtol=1e-11)
    for ours, theirs in zip(both[1][1], both[0][1], strict=True):
        assert np.allclose(ours, theirs, rtol=1e-8, atol=1e-9 * np.abs(theirs).max())


@pytest.mark.parametrize("kept", [True, False], ids=["kept", "made twice"])
@pytest.mark.parametrize("rule", RULES)
def test_blas_does_the_same(x64, monkeypatch, rule, kept):
    monkeypatch.setattr("structgp.linalg.features.low_rank_host.KEPT", 1e9 if kept else 0.0)
    X, (theta, Z, w, t) = problem(False)
    f = lambda *given: summed_up(in_few_rows(X, *given, RULES[rule], False))
    value, (to_theta, to_Z, to_w, to_t) = jax.jit(jax.value_and_grad(f, argnums=(0, 1, 2, 3)))(theta, Z, w, t)
    pieces = [slice(at, at + 19) for at in range(0, N, 19)]
    block = lambda i: Block(*(np.asarray(part) for part in (*crossing(theta, Z, X[pieces[i]]), w[pieces[i]], t[pieces[i]])))
    found, got = HostLowRank(np.asarray(bell(theta, Z, Z)), block, len(pieces), RULES[rule]), {}
    to_K = found.pull(0.7, np.asarray([[1.0, 0.3], [0.2, 2.0]]), lambda i, to: got.setdefault(i, to))
    assert np.isclose(summed_up((found.log_det, found.gram)), value, rtol=1e-11)
    assert np.allclose(np.concatenate([got[i].w for i in range(3)]), to_w, rtol=1e-8, atol=1e-9)
    assert np.allclose(np.concatenate([got[i].T for i in range(3)]), to_t, rtol=1e-8, atol=1e-9)
    whole = lambda theta, Z: (*crossing(theta, Z, X), bell(theta, Z, Z))
    to_rows = [np.concatenate([np.asarray(getattr(got[i], name)) for i in range(3)]) for name in ("K", "k")]
    pulled = jax.vjp(whole, theta, Z)[1]((*to_rows, to_K))
    for ours, theirs in zip(pulled, (to_theta, to_Z), strict=True):
        assert np.allclose(ours, theirs, rtol=1e-6, atol=1e-8)


def test_sites_without_density_have_no_value(x64):
    X, (theta, Z, w, t) = problem(True)
    assert np.isnan(in_few_rows(X, theta, Z, w.at[0].set(-50.0), t, Rule(1.0), True)[0])


def test_a_thousand_centres_need_next_to_no_jitter(x64):
    """Apart as k-means puts them in eight columns, also where the function is so smooth that a few would do."""
    X = np.random.default_rng(0).normal(size=(5000, 8))
    Z = jnp.asarray(centres(X, X, 1000, np.random.default_rng(0)))
    added = jax.jit(lambda length: jnp.trace(with_jitter(K := bell((2.0, length), Z, Z)) - K) / 2000.0)
    assert len(Z) == 1000
    assert all(1e-13 < float(added(length)) < 1e-11 for length in (1.0, 3.0))


def test_clusters_are_found():
    rng = np.random.default_rng(0)
    middles = rng.normal(size=(6, 3)) * 20
    X = np.repeat(middles, 30, axis=0) + 0.1 * rng.normal(size=(180, 3))
    number = clusters(X, 30, rng)
    assert len(np.unique(number)) == 30
    assert all(len(np.unique(np.arange(180)[number == k] // 30)) == 1 for k in range(30))


def test_centres_of_rows_that_repeat_are_different():
    X = np.repeat(np.arange(5.0)[:, None], 20, axis=0)
    assert np.array_equal(np.sort(centres(X, X, 50, np.random.default_rng(0))[:, 0]), np.arange(5.0))


def test_pivots_are_those_of_a_factorisation():
    rng = np.random.default_rng(0)
    A = rng.normal(size=(12, 5))
    K = A @ A.T
    chosen = pivots(lambda i: K[i], np.diagonal(K), 12)
    assert len(chosen) == len(set(chosen)) == 5  # as many as the rank
    assert chosen[0] == np.argmax(np.diagonal(K))
    rest = K - K[:, chosen[:2]] @ np.linalg.solve(K[np.ix_(chosen[:2], chosen[:2])], K[chosen[:2]])
    assert chosen[2] == np.argmax(np.diagonal(rest))
