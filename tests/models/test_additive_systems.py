"""The systems of the literature: variational EM, Gibbs sampling, and greedy projection pursuit."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import reference
import structgp as sg
from structgp.models.additive.mcmc import AdditiveMCMC, Beliefs, State, lines, sweep
from structgp.models.additive.variational import AdditiveVB
from structgp.models.pursuit.greedy import GreedyProjectionPursuit, ProjectionPursuitMCMC, Stage, log_evidence
from structgp.parameters.tree import free_vector, with_free

N, D = 80, 2
RNG = np.random.default_rng(11)
X = RNG.uniform(0, 1, (N, D))
Y = np.sin(7 * X[:, 0]) + 2 * X[:, 1] + 0.2 * RNG.standard_normal(N)
KERNEL = sg.Matern52(0.4, 1.0)


def exact(kernel, noise):
    y = Y - Y.mean()
    with jax.enable_x64(True):
        K = sum(np.asarray(sg.covariance(kernel, jnp.asarray(X[:, [d]]), jnp.asarray(X[:, [d]]))) for d in range(D))
    evidence = reference.log_evidence(K, y, np.full(N, noise), np.zeros((N, 0)))
    return evidence, K @ np.linalg.solve(K + noise * np.eye(N), y) + Y.mean()


# variational EM


@pytest.mark.full
def test_the_variational_bound_is_below_the_evidence_and_its_means_are_exact():
    fitted = AdditiveVB(KERNEL, noise=0.04, learn=False, sweeps=400, tolerance=1e-10).fit(X, Y)
    evidence, mean = exact(KERNEL, 0.04)
    assert np.all(np.diff(fitted.bounds) > -1e-8)
    assert fitted.bounds[-1] < evidence
    np.testing.assert_allclose(fitted.predict(X).mean, mean, atol=0.02)


def test_learning_raises_the_bound_at_every_sweep():
    fitted = AdditiveVB(KERNEL, sweeps=15).fit(X, Y)
    assert np.all(np.diff(fitted.bounds) > -1e-6)
    assert 0.02 < fitted.noise < 0.08
    with pytest.raises(ValueError, match="X has 3 columns, but the model was given 2"):
        fitted.predict(np.zeros((4, 3)))


# sampling


@pytest.mark.full
def test_the_sampler_keeps_the_joint_law():
    """Geweke: parameters, terms and data drawn in turn by the sampler have the law of those that are drawn afresh."""
    beliefs, states, rows, count = Beliefs(0.0, 0.2, 4.0, 4.0, 6.0, 3.0), 2, 6, 12000
    places = np.random.default_rng(0).uniform(0, 2, (rows, 2))
    lined = lines(places, np.zeros((0, 2)))

    def statistics(log_length, log_variance, noise, y):
        of_prior = [log_length[0], log_length[0] ** 2, log_variance[1], log_variance[1] ** 2, jnp.log(noise)]
        return jnp.stack([*of_prior, jnp.tanh(y[0] ** 2)])

    def covariance(log_length, log_variance):
        r = jnp.sqrt(3.0) * jnp.abs(places[:, None] - places[None]) / jnp.exp(log_length)
        return jnp.sum(jnp.exp(log_variance) * (1 + r) * jnp.exp(-r), axis=-1)

    def afresh(key):
        k = jax.random.split(key, 5)
        log_length = jnp.sqrt(beliefs.log_lengthscale_variance) * jax.random.normal(k[0], (2,))
        log_variance = -jnp.log(jax.random.gamma(k[1], beliefs.shape, (2,)) / beliefs.rate)
        noise = beliefs.noise_rate / jax.random.gamma(k[2], beliefs.noise_shape)
        C = covariance(log_length, log_variance) + noise * jnp.eye(rows)
        return statistics(log_length, log_variance, noise, jnp.linalg.cholesky(C) @ jax.random.normal(k[3], (rows,)))

    def in_turn(carry, key):
        state, y = carry
        first, second = jax.random.split(key)
        state, _ = sweep(state, y, lined, first, states, beliefs, 0.8)
        y = state.f.sum(axis=0) + jnp.sqrt(state.noise) * jax.random.normal(second, (rows,))
        return (state, y), statistics(state.log_lengthscale, state.log_variance, state.noise, y)

    with jax.enable_x64(True):
        fresh = np.asarray(jax.jit(jax.vmap(afresh))(jax.random.split(jax.random.key(1), count)))
        start = State(jnp.zeros((2, rows)), jnp.zeros(2), jnp.zeros(2), jnp.ones(()))
        keys = jax.random.split(jax.random.key(2), count)
        chain = np.asarray(jax.jit(lambda keys: jax.lax.scan(in_turn, (start, jnp.zeros(rows)), keys)[1])(keys))[500:]
    batches = chain[: len(chain) // 50 * 50].reshape(50, -1, chain.shape[1]).mean(axis=1)
    error = np.sqrt(batches.var(axis=0, ddof=1) / 50 + fresh.var(axis=0) / count)
    assert (np.abs(chain.mean(axis=0) - fresh.mean(axis=0)) < 4.5 * error).all()


def test_samples_agree_with_the_data():
    drawn = AdditiveMCMC(nu=2.5, draws=60, burn=40).sample(X, Y, X[:10], seed=0)
    truth = np.sin(7 * X[:10, 0]) + 2 * X[:10, 1]
    p = drawn.prediction()
    assert np.sqrt(np.mean((p.mean - truth) ** 2)) < 0.15
    assert drawn.terms.shape == (60, 2, 10)
    assert 0.02 < drawn.noise.mean() < 0.08
    assert 0 < drawn.accepted < 1


# greedy projection pursuit


def test_the_gradient_in_the_direction_is_its_slope():
    stage = Stage([0.8, 0.5], 0.4, 1.0, 0.1)
    with jax.enable_x64(True):
        value = jax.jit(lambda theta: log_evidence(with_free(stage, theta), jnp.asarray(X), jnp.asarray(Y), 3))
        theta = free_vector(stage)
        expected = reference.slope(lambda t: float(value(jnp.asarray(t))), theta)
        np.testing.assert_allclose(jax.grad(value)(jnp.asarray(theta)), expected, rtol=1e-5, atol=1e-5)


def test_new_rows_have_the_columns_that_were_given():
    greedy = GreedyProjectionPursuit(most=1, starts=0, max_evaluations=2).fit(X, Y)
    sample = AdditiveMCMC(draws=2, burn=1).sample
    for columns in (1, 3):
        new, met = np.zeros((4, columns)), rf"X has {columns} columns?, but the model was given 2: pass the same inputs"
        for ask in (greedy.predict, lambda new: sample(X, Y, new)):
            with pytest.raises(ValueError, match=met):
                ask(new)


@pytest.mark.full
def test_greedy_stages_lower_the_error():
    rng = np.random.default_rng(4)
    Z = rng.standard_normal((300, 3))
    y = np.sin(2 * Z @ [0.6, 0.8, 0.0]) + 0.1 * rng.standard_normal(300)
    fitted = GreedyProjectionPursuit(most=2, nu=2.5, max_evaluations=40).fit(Z, y)
    assert np.all(np.diff(fitted.errors) < 0)
    assert fitted.errors[-1] < 0.1
    assert abs(fitted.directions[0] @ [0.6, 0.8, 0.0]) > 0.97
    assert fitted.predict(Z[:5]).observed.variance.shape == (5,)


@pytest.mark.full
def test_terms_are_sampled_along_directions_that_were_learned():
    """A function of one diagonal: no sum of functions of single columns could follow it."""
    rng = np.random.default_rng(5)
    Z = rng.standard_normal((300, 3)) * [1.0, 10.0, 0.1]
    f = np.sin(2 * (Z / [1.0, 10.0, 0.1]) @ [0.6, 0.8, 0.0])
    system = ProjectionPursuitMCMC(1, AdditiveMCMC(nu=2.5, draws=60, burn=40))
    drawn = system.sample(Z[:280], (f + 0.1 * rng.standard_normal(300))[:280], Z[280:], seed=0)
    assert drawn.terms.shape == (60, 1, 20)
    p = drawn.prediction()
    assert np.sqrt(np.mean((p.mean - f[280:]) ** 2)) < 0.1
    assert drawn.noise.mean() == pytest.approx(0.01, rel=0.4)
