"""The Markov room against dense NumPy, and the hand-written adjoint against JAX."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import zoo
from structgp.linalg.filters import kalman, kalman_parallel, kalman_regular, kalman_smooth
from structgp.linalg.markov import chain_algebra, chains, matern_sde

N = 40
WEIGHTS = np.array([[1.0, 0.3], [-0.2, 0.5]])


@pytest.fixture(autouse=True)
def _double():
    with jax.enable_x64(True):
        yield


def make(name):
    M, S = chains.Matern, chain_algebra.Sum
    return {
        "matern12": lambda: M(1, 2.0, 1.5),
        "matern32": lambda: M(2, 2.0, 1.5),
        "matern52": lambda: M(3, 2.0, 1.5),
        "matern72": lambda: M(4, 1.0, 0.7),
        "rotation": lambda: chains.Rotation(1.0, 0.3, 0.8),
        "harmonics": lambda: chains.Harmonics(chains.periodic_weights(jnp.asarray(0.3), 2), 2.0),
        "cubic": lambda: chains.Taylor(2, 0.7, np.array([[1.0, 0.2], [0.2, 0.5]])),
        "constant+white+scaled": lambda: S(chain_algebra.Scaled(M(1, 2.0), 0.3), chains.White(0.5), chains.Constant(2.0)),
        "sum": lambda: S(M(2, 2.0), M(3, 0.5)),
        "product": lambda: chain_algebra.Product(M(2, 2.0), chains.Rotation(1.0)),
        "large": lambda: S(
            chain_algebra.Product(M(2, 0.7), chains.Harmonics(chains.periodic_weights(jnp.asarray(1.0), 3), 2.0)),
            M(3, 0.5, 0.6),
        ),
    }[name]()


NAMES = [
    "matern12",
    "matern32",
    "matern52",
    "matern72",
    "rotation",
    "harmonics",
    "cubic",
    "constant+white+scaled",
    "sum",
    "product",
    "large",
]
CASES = [(name, accurate) for name in NAMES for accurate in (False, True) if accurate or name not in ("large", "cubic")]


def data(name, low_noise=False):
    rng = np.random.default_rng(3)
    gaps = np.concatenate([[7.0], rng.choice([0.0, 1e-12, 1e-3, 0.5, 0.2, 1e6], N - 1)])
    if name == "cubic":
        gaps = np.minimum(gaps, 1.0)
    w = rng.choice([0.0, 1.0, 10.0, 1e3], N) if not low_noise else np.full(N, 1e8)
    return gaps, w, rng.normal(size=(N, 2))


@jax.jit
def moves(chain, gaps):
    return chain.start(), chain.transition(gaps), chain.noise(gaps)


def dense_states(chain, gaps):
    """The joint covariance (n D, n D) of the states, by propagation."""
    D, n = chain.size, len(gaps)
    K = np.zeros((n, D, n, D))
    P, A, Q = (np.asarray(part) for part in moves(chain, gaps))
    A, Q = np.moveaxis(A, -1, 0), np.moveaxis(Q, -1, 0)
    for i in range(n):
        P = P if i == 0 else A[i] @ P @ A[i].T + Q[i]
        C = P
        K[i, :, i] = P
        for j in range(i + 1, n):
            C = A[j] @ C
            K[j, :, i], K[i, :, j] = C, C.T
    return K


def dense(chain, gaps):
    return np.einsum("a,iajb,b->ij", chain.row, dense_states(chain, gaps), chain.row)


@functools.cache
def evidence(**options):
    return jax.jit(functools.partial(kalman.evidence, segment=16, **options))


@functools.cache
def gradient(**options):
    def f(chain, gaps, w, T):
        log_det, gram = kalman.evidence(chain, gaps, w, T, segment=16, **options)
        return 0.7 * log_det + jnp.sum(gram * WEIGHTS)

    return jax.jit(jax.grad(f, argnums=(0, 1, 2, 3)))


def close(a, b, rtol):
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        assert np.all(np.isfinite(x))
        np.testing.assert_allclose(x, y, rtol=rtol, atol=rtol * (np.abs(y).max() + 1e-12))


@pytest.mark.parametrize(("name", "accurate"), zoo.mostly_full(CASES, *((n, n not in ("matern52", "sum")) for n in NAMES)))
def test_evidence_equals_dense(name, accurate):
    chain, (gaps, w, T) = make(name), data(name)
    o = w > 0
    C = dense(chain, gaps)[np.ix_(o, o)] + np.diag(1 / w[o])
    holes = np.where(o[:, None], T, np.nan)
    log_det, gram = evidence(accurate=accurate)(chain, gaps, w, holes)
    np.testing.assert_allclose(log_det, np.linalg.slogdet(C)[1], rtol=1e-10)
    close(gram, T[o].T @ np.linalg.solve(C, T[o]), 1e-9)


@pytest.mark.parametrize("name", ["matern32", "sum"])
def test_natural_sites_equal_dense(name):
    chain, (gaps, w, T) = make(name), data(name)
    w = np.where(np.arange(N) % 7 == 3, -0.05, np.minimum(w, 20.0))
    K = dense(chain, gaps)
    log_det, gram = evidence(natural=True)(chain, gaps, w, T)
    np.testing.assert_allclose(log_det, np.linalg.slogdet(np.eye(N) + K * w)[1], rtol=1e-10)
    close(gram, T.T @ np.linalg.solve(np.eye(N) + K * w, K @ T), 1e-9)
    if name == "matern32":
        close(gradient(natural=True)(chain, gaps, w, T), gradient(natural=True, adjoint=False)(chain, gaps, w, T), 1e-9)


@pytest.mark.parametrize(
    ("name", "accurate"),
    zoo.mostly_full(
        [
            ("matern12", False),
            ("matern52", False),
            ("matern72", False),
            ("harmonics", False),
            ("rotation", True),
            ("cubic", True),
            ("sum", True),
        ],
        ("matern52", False),
        ("harmonics", False),
        ("sum", True),
    ),
)
def test_adjoint_equals_autodiff(name, accurate):
    chain, (gaps, w, T) = make(name), data(name)
    close(gradient(accurate=accurate)(chain, gaps, w, T), gradient(accurate=accurate, adjoint=False)(chain, gaps, w, T), 1e-9)


def test_chunks_equal_single_steps(monkeypatch):
    chain, (gaps, w, T) = make("large"), data("large")
    f = lambda *a: (lambda r: r[0] + jnp.sum(r[1] * WEIGHTS))(kalman.evidence(*a))
    chunks = jax.jit(jax.value_and_grad(f, argnums=(0, 1, 2, 3)))(chain, gaps, w, T)
    monkeypatch.setattr(kalman, "_CHUNK_ABOVE", 99)
    single = jax.jit(jax.value_and_grad(lambda *a: f(*a), argnums=(0, 1, 2, 3)))(chain, gaps, w, T)
    close(chunks, single, 1e-8)


@pytest.mark.parametrize("name", ["matern32", "matern72", "sum"])
def test_low_noise_keeps_its_digits(name):
    chain, (_, w, T) = make(name), data(name, low_noise=True)
    gaps = np.full(N, 1e-3)
    C = dense(chain, gaps).astype(np.longdouble) + np.diag(1 / w)
    expected = 0.0
    for i in range(N):  # elimination in extended precision
        expected += np.log(C[i, i])
        C[i + 1 :, i + 1 :] -= np.outer(C[i + 1 :, i], C[i, i + 1 :]) / C[i, i]
    log_det, _ = evidence(accurate=True)(chain, gaps, w, T)
    np.testing.assert_allclose(log_det, expected, rtol=1e-6)


@pytest.mark.parametrize("m", [1, 2, 3, 4, 6])
def test_matern_noise_is_smooth_and_equals_the_difference_where_that_is_good(m):
    u = np.array([1e-6, 1e-3, 0.3, 0.49, 0.51, 1.0, 1.5, 3.0, 1e6])
    Q, A = map(np.asarray, jax.jit(lambda u: (matern_sde.noise(u, m), matern_sde.transition(u, m)))(u))
    V = matern_sde.stationary(m)
    difference = V[..., None] - np.einsum("abn,bc,dcn->adn", A, V, A)
    np.testing.assert_allclose(Q[..., 3:], difference[..., 3:], atol=1e-10 * V.max())
    lead = [
        [1 / ((2 * m - 1 - j - k) * np.prod(np.arange(1, m - j)) * np.prod(np.arange(1, m - k))) for k in range(m)]
        for j in range(m)
    ]
    power = 2.0 * m - 1 - np.add.outer(np.arange(m), np.arange(m))
    np.testing.assert_allclose(Q[..., 0], matern_sde.diffusion(m) * np.array(lead) * 1e-6**power, rtol=1e-4)
    F = matern_sde.generator(m)
    np.testing.assert_allclose(F @ V + V @ F.T, -matern_sde.diffusion(m) * np.outer(np.eye(m)[-1], np.eye(m)[-1]), atol=1e-10)


def test_gradients_are_finite_at_extreme_gaps():
    gaps = np.array([0.0, 0.0, 1e-12, 1e6, 1e6, 0.0])
    f = lambda c, g: kalman.evidence(c, g, jnp.full(6, 1e4), jnp.ones((6, 1)), accurate=True)[1][0, 0]
    for name in ["matern52", "constant+white+scaled"]:
        assert all(np.all(np.isfinite(x)) for x in jax.tree.leaves(jax.jit(jax.grad(f, argnums=(0, 1)))(make(name), gaps)))


@jax.jit
def smooth(chain, gaps, w, T):
    """All that is asked of one path through the data."""
    smoothed = kalman_smooth.smooth(chain, gaps, w, T)
    lag = kalman_smooth.lag_one(chain, gaps, smoothed)
    return smoothed.marginals(), smoothed.states(), lag, smoothed.left_out(w, T), smoothed.cavities(w, w[:, None] * T)


@pytest.mark.parametrize("name", ["matern32", "cubic", "sum", "large"])
def test_smoothing_equals_dense(name):
    chain, (gaps, w, T) = make(name), data(name)
    gaps = np.where(gaps > 1e3, 3.0, gaps)
    inner = chain_algebra.observed_first(chain)
    K = dense_states(inner, gaps)
    C = K[:, 0, :, 0]
    o = w > 0
    S = C[np.ix_(o, o)] + np.diag(1 / w[o])
    gain = np.linalg.solve(S, K[:, 0][o].reshape(o.sum(), -1)).T.reshape(N, inner.size, -1)
    (mean, variance), (states, cov), lag, left_out, cavities = jax.tree.map(np.asarray, smooth(chain, gaps, w, T))
    posterior = K - np.einsum("iao,ojb->iajb", gain, K[:, 0][o])
    close(mean, gain[:, 0] @ T[o], 1e-7)
    np.testing.assert_allclose(variance, np.einsum("iaib->iab", posterior)[:, 0, 0], atol=1e-8)
    close(states, np.einsum("iao,oc->iac", gain, T[o]), 1e-7)
    np.testing.assert_allclose(cov, np.einsum("iaib->iab", posterior), atol=1e-7)
    i = np.arange(N - 1)
    np.testing.assert_allclose(lag, posterior[i, :, i + 1, :], atol=1e-7)
    inverse = np.linalg.inv(S)
    left_mean, left_variance = left_out
    close(left_mean[o], T[o] - inverse @ T[o] / np.diag(inverse)[:, None], 1e-7)
    close(left_variance[o], 1 / np.diag(inverse), 1e-7)
    cavity_mean, cavity_variance = cavities
    close(cavity_mean[o], left_mean[o], 1e-6)
    close(cavity_variance[o] + 1 / w[o], left_variance[o], 1e-7)


@pytest.mark.parametrize("name", ["matern52", "sum"])
def test_prediction_from_two_neighbours_equals_dense(name):
    chain, rng = make(name), np.random.default_rng(0)
    x, x_new = np.sort(rng.uniform(0, 5, 12)), np.array([-1.0, 0.3, 2.2, 2.2000001, 4.0, 7.0])
    y, w = rng.normal(size=(12, 1)), np.full(12, 50.0)
    gaps = np.diff(x, prepend=x[0])
    smoothed = jax.jit(kalman_smooth.smooth)(chain, gaps, w, y)
    left = np.searchsorted(x, x_new, side="right") - 1
    gap_left = x_new - x[np.maximum(left, 0)]
    gap_right = x[np.minimum(left + 1, 11)] - x_new
    state = jax.jit(kalman_smooth.predict)(chain, smoothed, left, gap_left, gap_right)
    seen = jax.jit(lambda chain, d: (chain.seen_transition(jnp.abs(d)), chain.start()))
    k = lambda d: (lambda A, V: np.asarray(A).T @ np.asarray(V) @ chain.row)(*seen(chain, d))
    cov = lambda a, b: k((a[:, None] - b[None]).ravel()).reshape(len(a), len(b))
    solve = np.linalg.solve(cov(x, x) + np.diag(1 / w), np.c_[y, cov(x, x_new)])
    mean, variance = kalman_smooth.read_values(chain_algebra.read_weights(chain, chain.row), *state)
    close(mean, cov(x_new, x) @ solve[:, :1], 1e-9)
    close(variance, np.diag(cov(x_new, x_new) - cov(x_new, x) @ solve[:, 1:]), 1e-9)


@pytest.mark.full
def test_samples_have_the_right_moments():
    chain = make("sum")
    gaps, w = np.array([0.0, 0.3, 0.0, 1e-9, 1.0]), np.array([5.0, 0.0, 1e6, 1.0, 0.0])
    y = np.arange(5.0)[:, None]
    key, draws = jax.random.key(0), 20_000
    standard = lambda C, v, u: np.sqrt((C**2 + v * u) / draws)  # error of a covariance C of values with variances v and u
    prior = np.asarray(jax.jit(kalman_smooth.prior_samples, static_argnums=3)(chain, gaps, key, draws))[:, 0]
    K = dense(chain, gaps)
    np.testing.assert_allclose((np.cov(prior) - K) / standard(K, np.diag(K)[:, None], np.diag(K)), 0, atol=5)
    (mean, variance), _, lag, *_ = jax.tree.map(np.asarray, smooth(chain, gaps, w, y))
    lag = lag[:, 0, 0]
    for draw in (kalman_smooth.posterior_samples, kalman_smooth.backward_samples):
        z = np.asarray(jax.jit(draw, static_argnums=5)(chain, gaps, w, y, key, draws))[:, 0]
        np.testing.assert_allclose((z.mean(1) - mean[:, 0]) / np.sqrt(variance / draws), 0, atol=5)
        np.testing.assert_allclose((z.var(1) - variance) / standard(variance, variance, variance), 0, atol=5)
        between = standard(lag, variance[:-1], variance[1:])
        np.testing.assert_allclose((np.diagonal(np.cov(z), 1) - lag) / between, 0, atol=5)


@functools.cache
def total(f):
    """A sum of everything that f gives, and its gradient in everything that goes in."""
    summed = lambda *a: (lambda r: 0.7 * r[0] + jnp.sum(r[1] * WEIGHTS))(f(*a))
    return jax.jit(jax.value_and_grad(summed, argnums=(0, 1, 2, 3)))


@pytest.mark.parametrize("missing", zoo.mostly_full([[], [0, 1], [300, 301, 690]], [300, 301, 690]))
def test_regular_spacing_is_the_same_evidence(missing):
    """Also where values are missing: the filter moves again after each, and settles again."""
    chain, n = make("matern52"), 1003
    T, seen = np.random.default_rng(1).normal(size=(n, 2)), np.ones(n, bool)
    seen[missing] = False
    settle = kalman_regular.settling_steps(chain, 0.3, 4.0)
    exact = kalman_regular.exact_blocks(seen, settle)
    assert exact * kalman_regular.BLOCK < n / 2
    places = lambda w: jnp.where(seen, w, 0.0)
    slow = total(lambda c, g, w, T: kalman.evidence(c, jnp.broadcast_to(g, (n,)), places(w), T))(chain, 0.3, 4.0, T)
    fast = total(lambda c, g, w, T: kalman_regular.evidence(c, g, places(w), T, settle=settle, exact=16))(chain, 0.3, 4.0, T)
    close(fast, slow, 1e-10)


def test_a_gain_that_has_not_settled_is_not_used():
    chain, n = make("matern52"), 1003
    T = np.random.default_rng(1).normal(size=(n, 1))
    regular = jax.jit(functools.partial(kalman_regular.evidence, settle=16, exact=1))
    unsettled = regular(chain, 0.01, jnp.full(n, 4.0), T)
    close(unsettled, kalman.evidence(chain, jnp.full(n, 0.01), jnp.full(n, 4.0), T), 1e-12)
    assert kalman_regular.settling_steps(chain, 1e-6, 1e-3) is None


@pytest.mark.parametrize("name", ["matern52"])
def test_parallel_equals_sequential(name):
    chain, (gaps, w, T) = make(name), data(name)
    n = 12
    a = jax.jit(kalman_parallel.evidence)(chain, gaps[:n], w[:n], T[:n])
    close(a, kalman.evidence(chain, gaps[:n], w[:n], T[:n], accurate=True), 1e-9)


@pytest.mark.full
def test_parallel_gradient():
    chain, (gaps, w, T) = make("matern32"), data("matern32")
    f = lambda engine: lambda c, g, w, T: (lambda r: 0.7 * r[0] + jnp.sum(r[1] * WEIGHTS))(engine(c, g, w, T))
    arguments = chain, gaps[:5], w[:5], T[:5]
    a = jax.jit(jax.grad(f(kalman_parallel.evidence), argnums=(0, 1, 2, 3)))(*arguments)
    close(a, jax.jit(jax.grad(f(kalman.evidence), argnums=(0, 1, 2, 3)))(*arguments), 1e-8)


@pytest.mark.parametrize("natural", zoo.mostly_full([False, True], True))
def test_parallel_smoothing_is_that_of_one_place_after_the_other(natural):
    chain, (gaps, w, T) = make("matern52"), data("matern52")
    n = 21  # more than a segment, and no whole number of them
    arguments = chain, gaps[:n], w[:n], T[:n]
    found = jax.jit(functools.partial(kalman_parallel.smooth, natural=natural, segment=4))(*arguments)
    close(found, kalman_smooth.smooth(*arguments, natural=natural), 1e-11)


def test_parallel_evidence_of_factors_and_its_gradient():
    chain, (gaps, w, T) = make("matern32"), data("matern32")
    f = lambda engine: lambda *a: (lambda r: 0.7 * r[0] + jnp.sum(r[1] * WEIGHTS))(engine(*a, natural=True))
    arguments = chain, gaps[:7], np.where(np.arange(7) == 2, -0.05, w[:7]), T[:7]
    parallel = functools.partial(kalman_parallel.evidence, segment=3)
    a = jax.jit(jax.value_and_grad(f(parallel), argnums=(0, 1, 2, 3)))(*arguments)
    close(a, jax.jit(jax.value_and_grad(f(kalman.evidence), argnums=(0, 1, 2, 3)))(*arguments), 1e-8)


@pytest.mark.full
def test_parallel_samples_are_those_of_one_place_after_the_other():
    chain, (gaps, w, T) = make("matern32"), data("matern32")
    arguments, key = (chain, gaps[:9], w[:9], T[:9, :1]), jax.random.key(0)
    for sampled in (kalman_smooth.posterior_samples, kalman_smooth.backward_samples):
        parallel = functools.partial(sampled, count=3, smooth=kalman_parallel.smooth, parallel=True)
        one_by_one = functools.partial(sampled, count=3)
        close(jax.jit(parallel)(*arguments, key), jax.jit(one_by_one)(*arguments, key), 1e-11)


def test_many_series_by_vmap():
    chain, (gaps, w, T) = make("matern32"), data("matern32")
    batch = lambda x: np.stack([x, x[::-1]])
    f = lambda c, g, w, T: (lambda r: r[0] + r[1][0, 0])(kalman.evidence(c, g, w, T, segment=16))
    g = jax.jit(jax.vmap(jax.value_and_grad(f), in_axes=(None, 0, 0, 0)))(chain, batch(gaps), batch(w), batch(T))
    for i in range(2):
        close(
            jax.tree.map(lambda x, i=i: x[i], g), jax.value_and_grad(f)(chain, batch(gaps)[i], batch(w)[i], batch(T)[i]), 1e-12
        )


def test_periodic_weights_sum_to_the_covariance():
    t = np.linspace(0, 3, 7)
    weights = np.asarray(chains.periodic_weights(jnp.asarray(1 / 0.7**2), 16))
    np.testing.assert_allclose(np.cos(np.outer(t, np.arange(17))) @ weights, np.exp((np.cos(t) - 1) / 0.49), atol=1e-13)


def test_product_of_unstationary_chains_is_refused():
    with pytest.raises(ValueError, match="needs both to be stationary"):
        chain_algebra.Product(make("cubic"), make("matern32"))
