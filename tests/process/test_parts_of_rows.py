"""Rows in parts through inducing inputs: the sums of the parts are those of the whole."""

import numpy as np
import polars as pl
import pytest

import structgp as sg
from structgp.crew import Here
from structgp.engines.inducing import InducingEngine
from structgp.inputs.layouts import as_inputs
from structgp.inputs.observations import read_observations
from structgp.learn.evidence import GaussianEvidence
from structgp.parameters.tree import free_vector
from structgp.process.parts import read_parts
from structgp.process.parts_of_rows import _evidence

RNG = np.random.default_rng(4)
X = RNG.uniform(-2, 2, (240, 2))
Y = np.sin(2 * X[:, 0]) + 0.5 * X[:, 1] + 0.2 * RNG.normal(size=240)
NEW = RNG.uniform(-2, 2, (50, 2))
INPUTS = X[:20]
GP = sg.GP(sg.Matern52([1.0, 1.5], 1.2), sg.Gaussian(0.05), mean=0.1)
CUTS = (slice(0, 80), slice(80, 150), slice(150, 240))


def looked_at(gp):
    return read_parts(([X[cut] for cut in CUTS], [Y[cut] for cut in CUTS], [None] * 3), gp, "error", Here(1e9), {})


def test_the_evidence_and_its_gradient_are_those_of_the_whole(x64):
    gp, engine = sg.GP(sg.Induced(GP.kernel, INPUTS), GP.likelihood, 0.1), InducingEngine("power")
    value, gradient = _evidence(gp, looked_at(gp), engine)(free_vector(gp))
    inputs = as_inputs(X)
    exact = GaussianEvidence(gp, inputs, read_observations(gp.likelihood, Y, None, "error", inputs), engine)(free_vector(gp))
    assert np.isclose(value, exact[0], rtol=1e-11)
    assert np.allclose(gradient, exact[1], rtol=1e-7, atol=1e-7 * np.abs(exact[1]).max())  # by BLAS there, with the jitter of K


@pytest.fixture
def file(tmp_path):
    pl.DataFrame({"a": X[:, 0], "b": X[:, 1], "y": Y}).write_parquet(tmp_path / "rows.parquet")
    return sg.ParquetBatches(tmp_path / "rows.parquet", "y", rows=80)


def test_files_are_conditioned_on_as_their_rows_are(x64, file):
    parts = GP.condition(file, approximate=sg.Inducing(INPUTS, "vfe"))
    whole = GP.condition(X, Y, approximate=sg.Inducing(INPUTS, "vfe"))
    assert np.isclose(parts.log_evidence, whole.log_evidence, rtol=1e-10)
    assert np.allclose(parts.predict(NEW).mean, whole.predict(NEW).mean, atol=1e-8)
    assert parts.count == 240


@pytest.mark.full
def test_files_are_learned_from(x64, file):
    learned = GP.fit(file, approximate=sg.Inducing(20), max_evaluations=20)
    assert learned.log_evidence > GP.condition(file, approximate=sg.Inducing(20)).log_evidence + 5
    truth = np.sin(2 * NEW[:, 0]) + 0.5 * NEW[:, 1]
    assert np.sqrt(np.mean((learned.predict(NEW).mean - truth) ** 2)) < 0.12
