"""Rows in batches: the gradient of the bound, parameters from some rows and the process from all."""

import jax
import numpy as np
import polars as pl
import pytest

import structgp as sg
from structgp.engines.inducing import InducingEngine
from structgp.inputs.layouts import as_inputs
from structgp.inputs.observations import read_observations
from structgp.learn import batches, inducing
from structgp.learn.evidence import GaussianEvidence
from structgp.parameters.tree import free_vector
from structgp.process import batches as from_batches

RNG = np.random.default_rng(3)
X = RNG.uniform(-2, 2, (1500, 2))
Y = np.sin(2 * X[:, 0]) + 0.5 * X[:, 1] + 0.2 * RNG.normal(size=1500)
NEW = RNG.uniform(-2, 2, (200, 2))
TRUTH = np.sin(2 * NEW[:, 0]) + 0.5 * NEW[:, 1]
GP = sg.GP(sg.SquaredExponential([1.0, 1.5], 1.2), sg.Gaussian(0.04), mean=0.1)


@pytest.fixture
def few(monkeypatch):
    """A sample of 300 rows, and small batches."""
    monkeypatch.setattr(from_batches, "SAMPLE", (1, 200, 200))
    monkeypatch.setattr(from_batches, "HELD_OUT", 100)
    monkeypatch.setattr(from_batches, "ROWS", 64)


def test_one_batch_of_all_rows_is_the_bound_and_its_gradient(x64):
    gp = sg.GP(sg.Induced(GP.kernel, X[:15]), GP.likelihood, 0.1)
    rows, theta, count = batches.BatchRows(X[:80], Y[:80]), free_vector(gp), 80.0
    belief = batches._moved(theta, gp, batches._nothing(gp), rows, 1.0, count)
    whole = GP.condition(X[:80], Y[:80], approximate=sg.Inducing(X[:15], "vfe"))
    mean, variance = jax.jit(batches._moments)(gp, belief, NEW)
    assert np.allclose(mean, whole.predict(NEW).mean, atol=1e-8)
    assert np.allclose(variance, whole.predict(NEW).variance, atol=1e-8)
    inputs = as_inputs(X[:80])
    data = read_observations(gp.likelihood, Y[:80], None, "error", inputs)
    exact = GaussianEvidence(gp, inputs, data, InducingEngine("vfe"))(theta)[1]
    assert np.allclose(batches._slope(theta, gp, belief, rows, count), exact, rtol=1e-5, atol=1e-5)


def test_batches_improve_parameters_that_rows_held_out_judge(x64):
    gp = sg.GP(sg.Induced(sg.SquaredExponential([3.0, 3.0], 1.0), X[:15]), sg.Gaussian(0.3))
    part = lambda rows: batches.BatchRows(X[rows], Y[rows])
    mixed = (part(RNG.integers(100, 1500, 64)) for _ in iter(int, 1))
    learned, taken, scores = batches.learned_in_batches(gp, mixed, part(slice(100, 300)), part(slice(0, 100)), 1400, 200)
    assert taken <= 200
    assert max(scores) > scores[0] + 0.05
    assert float(learned.likelihood.noise) < 0.2


@pytest.mark.full
def test_a_file_of_batches_is_learned_and_taken_up(few, tmp_path):
    frame = pl.DataFrame({"a": X[:, 0], "y": Y, "b": X[:, 1]})
    frame.write_parquet(tmp_path / "rows.parquet")
    source = sg.ParquetBatches(tmp_path / "rows.parquet", "y", rows=400)
    assert [len(y) for _, y in source] == [400, 400, 400, 300]
    stream = GP.fit_batches(source, approximate=sg.Inducing(12), steps=60)
    assert stream.count == 1500
    assert np.mean((stream.predict(NEW).mean - TRUTH) ** 2) < 0.01
    again = GP.fit_batches([(X[i : i + 400], Y[i : i + 400]) for i in range(0, 1500, 400)], approximate="inducing:12", steps=60)
    assert np.allclose(again.predict(NEW).mean, stream.predict(NEW).mean, atol=1e-8)
    more = stream.update(X[:5], Y[:5])
    more.save(tmp_path / "stream")
    assert sg.load(tmp_path / "stream").count == 1505


@pytest.mark.full
def test_many_rows_are_learned_from_some(monkeypatch):
    monkeypatch.setattr(inducing, "ENOUGH", (10, 100))
    fitted = GP.fit(X[:400], Y[:400], approximate=sg.Inducing(12), parameters="best", max_evaluations=20)
    assert len(fitted.inputs) == 400
    assert "by 120 rows drawn at random" in fitted.summary()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: GP.fit_batches(iter([(X, Y)])), "fit_batches goes through the batches several times"),
        (lambda: GP.fit_batches([]), "fit_batches: there are no rows"),
        (lambda: GP.fit_batches([(X[:50], Y[:50])]), "50 rows are too few for 500 inducing inputs"),
        (lambda: GP.fit_batches([(X, Y)], approximate=sg.Inducing(X[:9])), "must be Inducing\\(M\\) with a number of inputs"),
        (lambda: GP.fit_batches([(X, Y)], approximate=sg.Inducing(9, "pic")), "Inducing\\(9, 'pic'\\) cannot be streamed"),
        (lambda: GP.fit_batches([(X, np.stack([Y, Y], 1))]), "fit_batches: y must have one target, got 2"),
        (lambda: sg.GP(GP.kernel, sg.Bernoulli()).fit_batches([(X, Y > 0)]), "fit_batches needs Gaussian observations"),
    ],
)
def test_what_cannot_be_had_is_said(make, message):
    with pytest.raises(ValueError, match=message):
        make()
