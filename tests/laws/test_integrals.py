"""Integrals and gradients of a process are those of the whole matrix, whatever algorithm has them; others say so."""

import itertools

import numpy as np
import pytest

import structgp as sg
import zoo

BOX = {1: (-1.5, 1.0), 2: [(-1.5, 1.0), (-0.5, 0.8)]}
PLACE = {1: 0.3, 2: [0.3, -0.2]}
SMOOTH = {1: sg.Matern52(0.7, 1.2), 2: sg.ProductMatern([0.7, 1.6], 1.2, nu=2.5)}
KEPT = [("dense", "2-D"), ("markov", "1-D")]


@pytest.mark.parametrize(
    ("structure", "name"), zoo.mostly_full(itertools.product(zoo.ENGINES | zoo.PARTICULAR, zoo.INPUTS), *KEPT)
)
def test_every_engine(structure, name):
    places = zoo.INPUTS[name]
    inputs = sg.as_inputs(places)
    D, y = inputs.dimension, np.sin(np.asarray(inputs.points).sum(axis=1)) + 0.01 * np.arange(zoo.N)
    gp = sg.GP(zoo.SOME_KERNEL.get(structure, SMOOTH[D]), sg.Gaussian(0.15), mean=sg.ConstantMean(0.4))
    if not any(offer.cost for offer in gp.plan(inputs).offers if offer.engine.structure == structure):
        return  # and says why, which is tested with the engines
    fitted = gp.condition(places, y, structure=structure)
    plain = gp.condition(np.asarray(inputs.points), y, structure="dense")
    found, truth = fitted.integral(BOX[D]), plain.integral(BOX[D])
    np.testing.assert_allclose([found.mean, found.variance], [truth.mean, truth.variance], rtol=1e-7)
    truth = plain.gradient_posterior(PLACE[D])
    try:
        found = fitted.gradient_posterior(PLACE[D])
    except ValueError as reason:
        assert "not to be had with this engine: condition with structure='dense'" in str(reason)  # noqa: PT017
        assert structure in zoo.PARTICULAR
        return
    np.testing.assert_allclose(found.mean, truth.mean, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(found.covariance, truth.covariance, rtol=1e-6, atol=1e-8)
