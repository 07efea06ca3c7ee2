"""The evidence of observations that are not Gaussian, where rounding would make it up."""

import numpy as np

import structgp as sg
from structgp.inputs.layouts import as_inputs
from structgp.inputs.observations import read_observations
from structgp.learn.sites import SiteEvidence
from structgp.parameters.tree import free_vector
from structgp.process.conditioning import rule_for


def test_noise_that_is_next_to_nothing_has_no_evidence(x64):
    rng = np.random.default_rng(0)
    x = np.linspace(0.0, 6.0, 24)
    y = np.sin(x) + 0.1 * rng.standard_normal(24)
    gp = sg.GP(sg.Matern32(1.0, 1.0), sg.StudentT(4.0, 0.1))
    inputs = as_inputs(x)
    data = read_observations(gp.likelihood, y, None, "error", inputs)
    rule = rule_for(gp, None, data)
    evidence = SiteEvidence(gp, inputs, data, gp.plan(x, "dense").engine, rule)
    at = lambda variance, scale: evidence(free_vector(sg.GP(sg.Matern32(1.0, variance), sg.StudentT(200.0 - 1e-9, scale))))
    usual, slope = at(1.0, 0.1)
    assert np.isfinite(usual)
    assert np.any(slope != 0)
    none, flat = at(1e7, 1e-6)
    assert np.isnan(none)
    assert not np.any(flat)
