"""Several outputs along time are one chain whose observed row the output chooses: equal to the whole matrix."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import structgp as sg
import zoo
from structgp.engines.cholesky import Cholesky
from structgp.engines.kalman import Kalman
from structgp.inputs.layouts import as_inputs, as_times_of_outputs
from structgp.inputs.observations import read_observations
from structgp.learn.evidence import evidence_objective
from structgp.linalg.markov.shared_noise import MaternFilters as Chain
from structgp.parameters.tree import free_vector
from structgp.structure.approximate import approximated
from structgp.structure.state_space import state_space

NOISE = sg.Gaussian([0.02, 0.05, 0.1])


def rows(seed=0, N=24):
    """Times that repeat, in no order, with the number of one of three outputs; values that hang together."""
    rng = np.random.default_rng(seed)
    X = np.stack([np.round(rng.uniform(0, 6, N), 1), rng.integers(0, 3, N)], axis=1)
    return X, np.sin(X[:, 0] + 0.3 * X[:, 1]) * (1 + X[:, 1]) + 0.1 * rng.standard_normal(N)


X, Y = rows()
XS = np.stack([np.random.default_rng(1).uniform(-1, 8, 7), np.arange(7) % 3], axis=1)


@functools.cache
def both(name):
    gp = sg.GP(zoo.OF_OUTPUTS[name], NOISE)
    return tuple(gp.condition(X, Y, structure=structure) for structure in ("dense", "markov"))


MARKOV = [name for name in zoo.OF_OUTPUTS if name not in ("GaussianFilters", "LowPassFilters", "FIR")]


@pytest.mark.parametrize("name", zoo.mostly_full(MARKOV, "ICM"))
def test_a_chain_says_what_the_matrix_says(name):
    dense, chain = both(name)
    assert chain.plan.engine.name == "Kalman"
    np.testing.assert_allclose(chain.log_evidence, dense.log_evidence, rtol=1e-11)
    p, q = (fitted.predict(XS, covariance=True) for fitted in (dense, chain))
    for a, b in ((q.mean, p.mean), (q.covariance, p.covariance), (chain.predict(XS).variance, p.variance)):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(q.observed.variance, p.observed.variance, rtol=1e-9)
    for a, b in zip(chain.leave_one_out(), dense.leave_one_out(), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-10)
    at_data = dense.predict(X)
    np.testing.assert_allclose(chain.smoothed().mean, at_data.mean, rtol=1e-8, atol=1e-10)


BLOCKS = {"ICM": 2, "LMC": 15, "two scales": 2, "MaternFilters-1": 1, "MaternFilters-3": 3, "Lagged": 2, "PoleFilters": 2}


@pytest.mark.parametrize("name", BLOCKS)
def test_states_move_by_blocks(name):
    """Outside the blocks of which a chain speaks nothing is moved; blocks of different sizes are none of one size."""
    kernel = sg.LMC(3, sg.Matern32(), sg.Matern32(2.0)) if name == "two scales" else zoo.OF_OUTPUTS[name]
    chain = state_space(kernel, as_times_of_outputs(X), harmonics=1).chain
    A = np.asarray(chain.transition(jnp.array(0.3)))
    of_block = np.arange(len(A)) // chain.blocks
    assert chain.blocks == BLOCKS[name]
    assert not A[of_block[:, None] != of_block].any()


@pytest.mark.parametrize("name", zoo.mostly_full(MARKOV, "ICM"))
def test_gradients_of_the_evidence_agree(name):
    gp = sg.GP(zoo.OF_OUTPUTS[name], NOISE)
    theta, found = free_vector(gp), []
    for inputs, engine in ((as_inputs(X), Cholesky()), (as_times_of_outputs(X), Kalman())):
        data = read_observations(gp.likelihood, Y, None, "error", inputs)
        with jax.enable_x64(True):
            found.append(evidence_objective(gp, inputs, data, engine.tuned(gp, inputs, data), 0.0)(theta))
    np.testing.assert_allclose(found[1][0], found[0][0], rtol=1e-11)
    np.testing.assert_allclose(found[1][1], found[0][1], rtol=1e-7, atol=1e-9 * np.abs(found[0][1]).max())


@pytest.mark.parametrize("noise", zoo.mostly_full([0.05, 1e-8], 1e-8))
def test_outputs_seen_together_take_one_step_for_a_time(noise):
    """Of a table with gaps, with noise that cancels nothing and with so little that Q is needed."""
    table = np.stack([np.repeat(np.arange(8.0), 3), np.tile(np.arange(3.0), 8)], axis=1)
    rows_seen = np.arange(24) % 7 != 3
    places, y = table[rows_seen], np.sin(table[:, 0] + table[:, 1])[rows_seen]
    inputs = as_times_of_outputs(places[::-1])
    assert inputs.cells.shape == (8, 3)
    gp, found = sg.GP(zoo.OF_OUTPUTS["LMC"], sg.Gaussian([noise] * 3)), []
    for where, engine in ((as_inputs(places[::-1]), Cholesky()), (inputs, Kalman())):
        data = read_observations(gp.likelihood, y[::-1], None, "error", where)
        with jax.enable_x64(True):
            engine = engine.tuned(gp, where, data)
            found.append(evidence_objective(gp, where, data, engine, 0.0)(free_vector(gp)))
    assert engine.accurate == (noise < 1e-4)
    np.testing.assert_allclose(found[1][0], found[0][0], rtol=1e-11)
    np.testing.assert_allclose(found[1][1], found[0][1], rtol=1e-7, atol=1e-9 * np.abs(found[0][1]).max())


def test_lags_are_clocks_in_predictions_of_all_outputs():
    dense, chain = both("Lagged")
    t = np.linspace(-0.5, 7, 5)
    p, q = (fitted.predict(t, covariance="outputs") for fitted in (dense, chain))
    np.testing.assert_allclose(q.mean, p.mean, rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(q.covariance, p.covariance, rtol=1e-8, atol=1e-10)
    # a lag is nothing but another time: without it, the same at t − lag
    plain = sg.GP(zoo.OF_OUTPUTS["Lagged"].kernel, NOISE)
    lag = np.asarray(zoo.OF_OUTPUTS["Lagged"].lag)
    moved = lambda Z: np.stack([Z[:, 0] - lag[Z[:, 1].astype(int)], Z[:, 1]], axis=1)
    same = plain.condition(moved(X), Y, structure="dense").predict(moved(XS))
    np.testing.assert_allclose(chain.predict(XS).mean, same.mean, rtol=1e-9, atol=1e-10)


def test_outputs_together_are_read_from_the_state():
    dense, chain = both("LMC")
    t = np.linspace(-0.5, 7, 5)
    p, q = (fitted.predict(t, covariance="outputs") for fitted in (dense, chain))
    np.testing.assert_allclose(q.covariance, p.covariance, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(np.diagonal(q.covariance, axis1=1, axis2=2), q.variance, rtol=1e-9)


def test_noise_of_filters_is_what_is_lost_on_the_way():
    """Q = V − A V Aᵀ where that does not cancel, and at short gaps what high precision has."""
    with jax.enable_x64(True):
        chain = Chain(3, jnp.array([0.7, 2.0, 5.0]), jnp.ones(3))
        gaps = np.array([0.0, 0.4, 1.7, 9.0, 1e-3, 1e-6])
        A, Q, V = map(
            np.asarray, jax.jit(lambda chain, gaps: (chain.transition(gaps), chain.noise(gaps), chain.start()))(chain, gaps)
        )
        lost = V[:, :, None] - np.einsum("ijg,jk,lkg->ilg", A, V, A)
        np.testing.assert_allclose(Q, lost, rtol=1e-9, atol=1e-11)
        short, tiny = Q[:3, :3, 4], Q[:3, :3, 5]
        # of the value itself: q λ^5 δ^5/(20 · …), whose leading power is δ^{2m−1}
        np.testing.assert_allclose(short[0, 0] / tiny[0, 0], 1e15, rtol=5e-3)
        assert np.all(np.linalg.eigvalsh(Q[:, :, 1]) > 0)


@pytest.mark.full
def test_a_grid_of_outputs_with_gaps_goes_along_time():
    t = np.arange(20000.0)
    kernel = sg.Coregion.low_rank(3).on(1) * sg.Matern32(5.0).on(0)
    values = np.sin(t / 7)[:, None] * np.array([1.0, -0.5, 2.0])
    values[10:20, 1] = np.nan
    fitted = sg.GP(kernel, sg.Gaussian(0.1)).condition(sg.Grid(t, np.arange(3.0)), values.ravel(), missing="infer")
    assert fitted.plan.engine.name == "Kalman"
    assert "states" in fitted.plan.chosen.note
    assert len(fitted.inputs) == 60000
    some = slice(0, 60)  # so far along the chain forgets where it ends: the matrix of some rows has the same values in the gap
    X = np.column_stack([np.repeat(t[some], 3), np.tile(np.arange(3.0), 60)])
    seen = np.isfinite(values[some].ravel())
    dense = sg.GP(kernel, sg.Gaussian(0.1)).condition(X[seen], values[some].ravel()[seen], structure="dense")
    gap = np.column_stack([t[10:20], np.ones(10)])
    p, q = fitted.predict(gap), dense.predict(gap)
    np.testing.assert_allclose(p.mean, q.mean, rtol=1e-6)
    np.testing.assert_allclose(p.variance, q.variance, rtol=1e-6)


def test_a_part_with_lags_of_its_own_is_refused_with_the_reason():
    part = sg.Lagged(sg.MaternFilters(3), [0.1, 0.2]) + sg.Coregion.low_rank(3).on(1) * sg.Matern32().on(0)
    with pytest.raises(ValueError, match="only a part of the kernel has lags"):
        sg.GP(part, NOISE).condition(X, Y, structure="markov")
    with pytest.raises(ValueError, match=r"looks at times and outputs together: put it on the times alone, by .on\(0\)"):
        sg.GP(sg.MaternFilters(3) + sg.Matern32(), NOISE).condition(X, Y, structure="markov")


def test_stand_ins_with_a_finite_state_go_along_time_with_outputs():
    """Where only the kernel of times lacks a state: rows in any order, and a table of which every cell was seen."""
    between = sg.Coregion([[0.7], [-0.4], [1.1]], [0.3, 0.5, 0.2]).on(1)
    gp = sg.GP(between * sg.SquaredExponential(1.5).on(0), NOISE)
    with pytest.raises(ValueError, match='Matern72 is close, or approximate="state-space"'):
        gp.condition(X, Y, structure="markov")
    stand_in = gp.replace(kernel=approximated(gp.kernel, "state-space"))
    t, table = np.arange(8.0), Y.reshape(8, 3)
    for places, values in ((X, Y), (t, table)):
        exact, close = (model.condition(places, values, structure="dense") for model in (gp, stand_in))
        found = gp.condition(places, values, approximate="state-space")
        assert found.plan.engine.name == "Kalman"
        np.testing.assert_allclose(found.log_evidence, close.log_evidence, rtol=1e-8)
        p, q, at_best = (fitted.predict(XS[:, 0], output=1) for fitted in (close, found, exact))
        np.testing.assert_allclose(q.mean, p.mean, atol=1e-6)
        np.testing.assert_allclose(q.variance, p.variance, atol=1e-6)
        np.testing.assert_allclose(q.sd, at_best.sd, atol=0.01)
    apart = sg.GP(sg.GaussianFilters(3), NOISE)
    with pytest.raises(ValueError, match="GaussianFilters has no finite state"):
        apart.condition(X, Y, approximate="state-space")


@pytest.mark.full
def test_draws_and_more_data_follow_the_outputs():
    _, chain = both("LMC")
    draws = chain.sample(XS, 4000, seed=3)
    p = chain.predict(XS, covariance=True)
    np.testing.assert_allclose(draws.mean(axis=0), p.mean, atol=5 * np.sqrt(p.variance.max() / 4000))
    np.testing.assert_allclose(np.cov(draws.T), p.covariance, atol=0.1 * p.variance.max())
    more = chain.update(XS, np.ones(7))
    whole = sg.GP(chain.kernel, NOISE).condition(np.concatenate([X, XS]), np.concatenate([Y, np.ones(7)]), structure="dense")
    np.testing.assert_allclose(more.log_evidence, whole.log_evidence, rtol=1e-11)


@pytest.mark.full
def test_a_stream_of_outputs_knows_what_the_chain_knows():
    order = np.argsort(X[:, 0], kind="stable")
    stream = sg.GP(zoo.OF_OUTPUTS["LMC"], NOISE).stream()
    for rows_now in np.array_split(order, 3):
        stream = stream.update(X[rows_now], Y[rows_now])
    _, chain = both("LMC")
    np.testing.assert_allclose(stream.log_evidence, chain.log_evidence, rtol=1e-10)
    later = np.array([[6.5, 0.0], [6.5, 2.0], [8.0, 1.0]])
    p, q = stream.predict(later), chain.predict(later)
    np.testing.assert_allclose(p.mean, q.mean, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(p.observed.variance, q.observed.variance, rtol=1e-8)
    with pytest.raises(ValueError, match="outputs with lags do not come in the order of their clocks"):
        sg.GP(zoo.OF_OUTPUTS["Lagged"], NOISE).stream()


@pytest.mark.full
def test_counts_of_several_outputs_go_along_time():
    """Observations that are not Gaussian: sites do not know of outputs."""
    counts = np.round(np.exp(0.5 * np.abs(Y)))
    gp = sg.GP(zoo.OF_OUTPUTS["LMC"], sg.Poisson())
    dense, chain = (gp.condition(X, counts, structure=how, inference="laplace") for how in ("dense", "markov"))
    np.testing.assert_allclose(chain.log_evidence, dense.log_evidence, rtol=1e-7)
    np.testing.assert_allclose(chain.predict(XS).mean, dense.predict(XS).mean, atol=1e-5)


@pytest.mark.parametrize("name", zoo.mostly_full(zoo.OF_OUTPUTS, "FIR"))
def test_every_kernel_of_outputs_can_be_fitted(name):
    gp = sg.GP(zoo.OF_OUTPUTS[name], NOISE)
    places = np.stack([np.arange(24) // 3, np.arange(24) % 3], axis=1).astype(float) if name == "FIR" else X
    fitted = gp.fit(places, Y, restarts=0, max_evaluations=4)
    assert fitted.log_evidence > gp.condition(places, Y).log_evidence - 1e-6
