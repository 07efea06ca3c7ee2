"""A stream knows what the whole series would tell, and `update` of a fitted model is a refit."""

import dataclasses
import pickle

import jax
import numpy as np
import pytest

import structgp as sg
import zoo

RNG = np.random.default_rng(7)
N = 16
T = np.sort(np.concatenate([RNG.uniform(0.5, 6.0, N - 2), [6.0, 6.0]]))
Y = np.sin(2 * T) + 0.3 * T + 0.1 * RNG.standard_normal(N)
AHEAD = np.array([T[-1], T[-1] + 1e-9, 6.7, 9.0, 40.0])


def slope(x):
    """One basis function."""
    return x[:1]


MODELS = {
    "Matern52": sg.GP(sg.Matern52(1.2, 0.9), sg.Gaussian(0.02), mean=0.3),
    "sum and basis": sg.GP(sg.Matern12(0.8) + sg.Cosine(2.1), sg.Gaussian(0.05), mean=sg.Basis(slope, [0.2], 0.7)),
    "Spline": sg.GP(sg.Spline(0.8, order=2), sg.Gaussian(0.05)),
    "ChangePoint": sg.GP(sg.ChangePoint(sg.Matern32(0.8), sg.Spline(1.4, order=1), 3.0, 0.5), sg.Gaussian(0.05)),
    "Wiener and line": sg.GP(sg.Wiener(0.8) + sg.Linear(0.3), sg.Gaussian(0.05)),
}


def markov(gp, t, y, **options):
    return gp.condition(t, y, structure="markov", **options)


def same(stream, fitted, rtol=1e-8):
    np.testing.assert_allclose(stream.log_evidence, fitted.log_evidence, rtol=rtol, atol=1e-9)
    ours, theirs = stream.predict(AHEAD), fitted.predict(AHEAD)
    np.testing.assert_allclose(ours.mean, theirs.mean, rtol=rtol, atol=1e-9)
    np.testing.assert_allclose(ours.variance, theirs.variance, rtol=rtol, atol=1e-9)


@pytest.mark.parametrize("name", zoo.mostly_full(MODELS, "Spline"))
def test_a_stream_equals_the_dense_engine(name):
    gp = MODELS[name]
    dense = gp.condition(T, Y, structure="dense")
    stream = gp.stream()
    for t, y in zip(T[:8], Y[:8], strict=True):
        stream = stream.update(t, y)
    same(stream.update(T[8:], Y[8:]), dense, 1e-6)
    same(markov(gp, T[:8], Y[:8]).stream().update(T[8:], Y[8:]), dense, 1e-6)


def test_known_noise_missing_values_and_unsorted_batches():
    gp = MODELS["Matern52"]
    noise, y = RNG.uniform(0.0, 0.2, N), np.where(np.arange(N) % 5 == 2, np.nan, Y)
    mixed = RNG.permutation(N)
    stream = gp.stream().update(T[mixed], y[mixed], noise[mixed], missing="infer")
    dense = gp.condition(T, y, noise=noise, missing="infer", structure="dense")
    same(stream, dense)
    assert stream.count == dense.data.seen.sum()
    with pytest.raises(ValueError, match="y has 1 NaN"):
        stream.update(7.0, np.nan)
    later = stream.update(7.0, np.nan, missing="infer")
    assert (later.count, later.time) == (stream.count, 7.0)
    np.testing.assert_allclose(later.predict(8.0).mean, stream.predict(8.0).mean, rtol=1e-12)


@pytest.mark.full
def test_several_targets():
    gp = MODELS["Spline"]
    both = np.stack([Y, np.cos(T)], axis=1)
    dense = gp.condition(T, both, structure="dense")
    stream = gp.stream().update(T[0], both[0])
    stream = stream.update(T[1:], both[1:])
    assert stream.predict(AHEAD).mean.shape == (len(AHEAD), 2)
    same(stream, dense, 1e-6)
    with pytest.raises(ValueError, match="y has 1 targets, but the stream was given 2"):
        stream.update(7.0, 1.0)


def test_memory_and_programs_do_not_grow():
    from structgp.process.stream import _advance

    stream = MODELS["Matern52"].stream().update(0.0, 1.0)
    size = lambda stream: sum(np.size(leaf) for leaf in jax.tree.leaves(stream.state))
    before, compiled = size(stream), _advance._cache_size()
    stream = stream.update(0.5, 1.0)
    compiled = _advance._cache_size()
    for i in range(20):
        stream = stream.update(1.0 + i, np.sin(i))
    assert size(stream) == before
    assert _advance._cache_size() == compiled
    assert stream.count == 22


def test_a_stream_can_be_stopped_and_resumed(tmp_path):
    gp = MODELS["Spline"]
    stopped = gp.stream().update(T[:8], Y[:8])
    stopped.save(tmp_path / "stream.structgp")
    resumed = sg.load(tmp_path / "stream.structgp")
    assert isinstance(resumed, sg.Stream)
    whole = gp.stream().update(T[:8], Y[:8]).update(T[8:], Y[8:])
    for again in (resumed, pickle.loads(pickle.dumps(stopped))):
        ended = again.update(T[8:], Y[8:])
        assert ended.log_evidence == whole.log_evidence
        np.testing.assert_array_equal(ended.predict(AHEAD).mean, whole.predict(AHEAD).mean)


def test_a_saved_model_carries_its_filter_state(tmp_path):
    fitted = markov(MODELS["Matern52"], T[:8], Y[:8])
    fitted.save(tmp_path / "model.structgp")
    resumed = sg.load(tmp_path / "model.structgp").stream()
    assert resumed.update(T[8:], Y[8:]).log_evidence == fitted.stream().update(T[8:], Y[8:]).log_evidence


def test_a_damaged_stream_is_refused(tmp_path):
    stream = MODELS["Matern52"].stream().update(T, Y)
    dataclasses.replace(stream, gp=MODELS["Spline"]).save(tmp_path / "damaged")
    with pytest.raises(ValueError, match="the state of its filter has another size than its model"):
        sg.load(tmp_path / "damaged")


def test_the_prior_before_anything_is_seen():
    prediction = MODELS["Matern52"].stream().predict([0.0, 3.0])
    np.testing.assert_allclose(prediction.mean, 0.3)
    np.testing.assert_allclose(prediction.variance, 0.9)
    assert MODELS["Matern52"].stream().log_evidence == 0.0
    assert "nothing seen" in repr(MODELS["Matern52"].stream())
    np.testing.assert_allclose(MODELS["Wiener and line"].stream().predict(2.0).variance, 0.8 * 2 + 0.3 * 4)
    assert len(MODELS["Matern52"].stream().predict([])) == 0


@pytest.mark.full
def test_an_approximation_can_be_streamed():
    gp = sg.GP(sg.SquaredExponential(1.2, 0.9), sg.Gaussian(0.05))
    stream = gp.stream(approximate="matern").update(T, Y)
    fitted = gp.condition(T, Y, approximate="matern")
    same(stream, fitted)
    assert fitted.stream().engine == stream.engine


def test_free_functions_need_observations():
    stream = MODELS["Spline"].stream()
    with pytest.raises(ValueError, match="that 0 observations cannot tell apart: at least 2 more, at other times, are needed"):
        stream.predict(1.0)
    stream = stream.update(1.0, 0.5)
    with pytest.raises(ValueError, match="that 1 observation cannot tell apart: at least 1 more, at other times, is needed"):
        stream.log_evidence
    stream = stream.update(1.0, 0.6)
    with pytest.raises(ValueError, match="that 2 observations cannot tell apart: at least 1 more"):
        stream.predict(1.0)
    assert np.isfinite(stream.update(2.0, 0.7).predict(3.0).variance).all()


def test_messages():
    stream = MODELS["Matern52"].stream().update(T, Y)
    with pytest.raises(ValueError, match=r"a stream goes forwards: 5 is before its last time 6; Fitted\.update takes"):
        stream.update(5.0, 1.0)
    with pytest.raises(ValueError, match="a stream looks ahead only: 5 is before its last time 6"):
        stream.predict(5.0)
    with pytest.raises(ValueError, match="one time for each observation"):
        stream.update([[7.0, 8.0]], [1.0])
    with pytest.raises(ValueError, match="cannot be streamed: SquaredExponential has no finite state"):
        sg.GP(sg.SquaredExponential()).stream()
    with pytest.raises(ValueError, match="approximate must be one of"):
        sg.GP(sg.SquaredExponential()).stream(approximate="guess")
    with pytest.raises(ValueError, match="cannot be streamed: Wiener starts at 2, but the times begin before, at 1"):
        sg.GP(sg.Wiener(start=2.0)).stream().update(1.0, 0.0)
    with pytest.raises(ValueError, match="Cholesky engine does not have; condition with structure='markov'"):
        MODELS["Matern52"].condition(T, Y, structure="dense").stream()
    with pytest.raises(ValueError, match="does not have; here: SquaredExponential has no finite state"):
        sg.GP(sg.SquaredExponential()).condition(T, Y).stream()


@pytest.mark.parametrize("name", zoo.mostly_full(["Matern52", "Spline"], "Spline"))
def test_update_inserts_anywhere(name):
    gp = MODELS[name]
    old = np.arange(N) % 3 != 1
    t = np.where(np.arange(N) % 6 == 1, T[0], T)  # some of the new ones repeat the first time
    updated = markov(gp, t[old], Y[old]).update(t[~old], Y[~old])
    again = markov(gp, t, Y)
    dense = gp.condition(t, Y, structure="dense")
    assert updated.plan.engine.name == "Kalman"
    places = np.linspace(-1.0, 8.0, 7)
    for other, rtol in ((again, 1e-9), (dense, 1e-6)):
        np.testing.assert_allclose(updated.log_evidence, other.log_evidence, rtol=rtol)
        np.testing.assert_allclose(updated.predict(places).mean, other.predict(places).mean, rtol=rtol, atol=1e-9)
        np.testing.assert_allclose(updated.predict(places).variance, other.predict(places).variance, rtol=rtol, atol=1e-9)


def test_update_before_the_beginning_of_a_process():
    gp = sg.GP(sg.Wiener(0.8), sg.Gaussian(0.05))
    updated = markov(gp, T, Y).update([-1.0], [0.2])
    assert updated.plan.engine.name == "Cholesky"
    dense = gp.condition(np.append(T, -1.0), np.append(Y, 0.2), structure="dense")
    np.testing.assert_allclose(updated.log_evidence, dense.log_evidence)
