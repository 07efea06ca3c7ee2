"""Projection pursuit on rows in parts: the evidence, its gradient and what is foretold are those in memory."""

import numpy as np
import polars as pl
import pytest

import structgp as sg
from structgp.crew import Here
from structgp.kernels.nonstationary import Constant
from structgp.models.pursuit.fitted import Units
from structgp.models.pursuit.parts import PartsEvidence, fit_in_parts, hold_standard, units_of_parts
from structgp.models.pursuit.sine_model import SineEvidence, SineModel
from structgp.parameters.tree import free_vector
from structgp.process.parts import read_parts

RNG = np.random.default_rng(3)
X = RNG.normal(size=(360, 3)) * [1.0, 20.0, 0.1] + [0.0, 300.0, 5.0]
STANDARD = (X - X.mean(axis=0)) / X.std(axis=0)
U = np.array([0.6, 0.8, 0.0])
Y = 4 * np.sin(2 * STANDARD @ U) + STANDARD[:, 2] + 7.0 + 0.2 * RNG.normal(size=360)
CUTS = (slice(0, 100), slice(100, 130), slice(130, 360))


def test_the_evidence_and_its_gradient_are_those_of_the_whole(x64):
    sources = [X[cut] for cut in CUTS], [Y[cut] for cut in CUTS], [None] * 3
    looked = read_parts(sources, sg.GP(Constant(), sg.Gaussian()), "error", Here(1e9), {})
    units, known = units_of_parts(looked), Units.of(X, Y)
    for name in ("center", "scale", "kept", "y_center", "y_scale"):
        assert np.allclose(getattr(units, name), getattr(known, name), rtol=1e-12)
    W = RNG.normal(size=(2, 3))
    model = SineModel(W, [0.8, 1.1], [0.5, 0.7], 0.3, 0.1, sines=4)
    handles = looked.crew.made(hold_standard, looked.rows, [units] * 3)
    value, slope = PartsEvidence(model, handles, looked.crew)(free_vector(model))
    exact = SineEvidence(model, units.inputs(X), units.target(Y))(free_vector(model))
    assert np.isclose(value, exact[0], rtol=1e-12)
    assert np.allclose(slope, exact[1], rtol=1e-9, atol=1e-9 * np.abs(exact[1]).max())


@pytest.mark.full
def test_files_are_learned_from(x64, tmp_path):
    pl.DataFrame({"a": X[:, 0], "b": X[:, 1], "c": X[:, 2], "y": Y}).write_parquet(tmp_path / "rows.parquet")
    model = sg.ProjectionPursuitGP(1, sines=10)
    parts = model.fit(sg.ParquetBatches(tmp_path / "rows.parquet", "y", rows=150), max_evaluations=150)
    assert np.abs(parts.directions[0] @ U) > 0.999
    new = X[:50] + 0.05 * X.std(axis=0)
    whole = parts.given(X, Y)  # the exact process for these directions
    ours, exact = parts.predict(new), whole.predict(new)
    assert np.allclose(ours.mean, exact.mean, atol=0.01)
    assert np.allclose(ours.variance, exact.variance, rtol=0.1)
    assert np.isclose(parts.log_evidence, whole.log_evidence, rtol=1e-9)
    joint = parts.predict(new, covariance=True)
    assert np.allclose(joint.variance, ours.variance, rtol=1e-6)
    draws = parts.sample(new, 4000, seed=0)
    assert np.allclose(
        draws.var(axis=0), parts.additive.predict(parts.units.inputs(new)).variance * parts.units.y_scale**2, rtol=0.2
    )
    parts.save(tmp_path / "model")
    assert np.array_equal(sg.load(tmp_path / "model").predict(new).mean, ours.mean)


def test_several_targets_are_refused():
    rows = [X[:100], X[100:]], [np.stack([Y, Y], axis=1)[:100], np.stack([Y, Y], axis=1)[100:]], [None, None]
    with pytest.raises(ValueError, match="projection pursuit takes one target, got 2"):
        fit_in_parts(sg.ProjectionPursuitGP(1).search, rows, None, RNG, 5, False, 300.0)
