"""Sites on grids: every way of finding them gives what it gives with the whole matrix, and what cannot be had says why."""

import jax
import numpy as np
import pytest

import structgp as sg
import zoo
from structgp.inference.choose import INFERENCES
from structgp.inputs.layouts import as_inputs
from structgp.inputs.observations import read_observations
from structgp.learn import sites
from structgp.learn.objective import Objective
from structgp.parameters.tree import free_vector

GRID = sg.Grid(np.linspace(0.0, 3.0, 6), np.linspace(0.0, 2.0, 5))
POINTS = np.asarray(GRID.points)
XS = np.array([[0.1, 0.2], [1.55, 1.95], [3.2, 0.7]])
LABELS = (np.sin(2 * POINTS[:, 0]) + np.cos(3 * POINTS[:, 1]) > 0.1 * np.cos(37 * np.arange(30))).astype(float)
LABELS[[3, 11, 12, 28]] = np.nan
TEXTURE = sg.SquaredExponential(0.8, 1.5).on(0) * sg.Matern32(0.7, 1.0).on(1)
FLOW = sg.Matern32(0.8, 1.5).on(0) * sg.SquaredExponential(0.7, 1.0).on(1)
PROBIT = sg.GP(TEXTURE, sg.Bernoulli(), 0.2)


def evaluated(method, structure):
    """The evidence of some labels and its gradient."""
    inputs = as_inputs(GRID)
    data = read_observations(PROBIT.likelihood, LABELS, None, "infer", inputs)
    evidence = sites.SiteEvidence(PROBIT, inputs, data, PROBIT.plan(GRID, structure).engine, INFERENCES[method])
    return Objective(PROBIT, evidence)(free_vector(PROBIT))


@pytest.mark.parametrize("method", zoo.mostly_full(["ep", "variational", "laplace"], "ep"))
def test_grids_equal_dense(method, monkeypatch):
    monkeypatch.setattr(sites, "LEARNING", 1e-9)
    ours, whole = (
        PROBIT.condition(GRID, LABELS, missing="infer", inference=method, structure=structure)
        for structure in ("kronecker", "dense")
    )
    assert ours.plan.engine.name == "Krylov"
    assert ours.inference.converged
    assert ours.log_evidence == pytest.approx(whole.log_evidence, rel=1e-8)
    np.testing.assert_allclose(ours.predict(XS).mean, whole.predict(XS).mean, atol=1e-6)
    np.testing.assert_allclose(ours.predict(XS).variance, whole.predict(XS).variance, rtol=1e-6)
    with jax.enable_x64(True):
        (value, gradient), (theirs, reference) = (evaluated(method, structure) for structure in ("kronecker", "dense"))
    assert value == pytest.approx(theirs, rel=1e-8)
    np.testing.assert_allclose(gradient, reference, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("kernel", "inputs", "structure"),
    [
        (sg.SquaredExponential(0.8), np.linspace(0.0, 3.0, 30), "toeplitz"),
        (TEXTURE, GRID, "toeplitz-grid"),
    ],
)
def test_structures_without_sites_say_so(kernel, inputs, structure):
    with pytest.raises(ValueError, match="the observations are not Gaussian"):
        sg.GP(kernel, sg.Bernoulli()).condition(inputs, LABELS, missing="infer", structure=structure)


@pytest.mark.full
def test_space_and_time_go_through_the_grid():
    gp = sg.GP(FLOW, sg.Bernoulli())
    ours, whole = (
        gp.condition(GRID, LABELS, missing="infer", structure=structure).log_evidence for structure in ("space-time", "dense")
    )
    assert ours == pytest.approx(whole, rel=1e-8)


def test_likelihoods_that_are_not_log_concave_need_the_whole_matrix():
    gp, y = sg.GP(TEXTURE, sg.StudentT(4.0, 0.1)), np.sin(POINTS.sum(axis=1))
    with pytest.raises(ValueError, match="StudentT is not log-concave"):
        gp.condition(GRID, y, structure="kronecker")
    assert gp.plan(GRID).engine.name == "Cholesky"
    assert "Eigen      no: StudentT is not log-concave" in str(gp.plan(GRID))
