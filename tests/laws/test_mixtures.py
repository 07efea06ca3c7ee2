"""What is true of every average over parameters: it is the members' answers, put together by hand, for every engine."""

import itertools

import numpy as np
import pytest

import structgp as sg
import zoo
from structgp.learn.believe import believe
from structgp.learn.peak import Draws, Evidence
from structgp.parameters.tree import as_numpy, free_vector, with_free
from structgp.process.mixture import FittedMixture

WEIGHTS = np.array([0.2, 0.5, 0.3])
GRID = sg.Grid(np.linspace(0, 1, 6), np.linspace(0, 1, 5))
PRODUCT = sg.Matern52().on(0) * sg.Matern32().on(1)


def mixture_of(gp, X, y, **how):
    """Three θ around that of the model, which nobody learned, and the models at them."""
    mode = gp.condition(X, y, **how)
    center = free_vector(gp)
    thetas = center + 0.1 * np.random.default_rng(3).standard_normal((3, len(center)))
    beliefs = believe(gp, np.asarray(mode.inputs.points), mode.data)
    draws = Draws(thetas, WEIGHTS, Evidence(0.0), "laplace", center, np.eye(len(center)), beliefs)
    return FittedMixture(mode, draws), [as_numpy(with_free(gp, theta)).condition(X, y, **how) for theta in thetas]


def check(mixture, alone, places, tmp_path):
    found, parts = mixture.predict(places), [one.predict(places) for one in alone]
    moments = [np.stack([getattr(part, name) for part in parts]) for name in ("mean", "variance")]
    size = np.sqrt(np.max(moments[1]))
    mean = np.tensordot(WEIGHTS, moments[0], axes=1)
    np.testing.assert_allclose(found.mean, mean, rtol=1e-10, atol=1e-10 * size)
    apart = np.tensordot(WEIGHTS, moments[1] + (moments[0] - mean) ** 2, axes=1)
    np.testing.assert_allclose(found.variance, apart, rtol=1e-10, atol=1e-10 * size**2)
    for level in (0.1, 0.9):
        y = found.quantile(level)
        np.testing.assert_allclose(np.tensordot(WEIGHTS, [part.cumulative(y) for part in parts], axes=1), level, rtol=1e-10)
    if tmp_path is None:
        return
    mixture.save(tmp_path / "mixture.sgp")
    again = sg.load(tmp_path / "mixture.sgp").predict(places)
    np.testing.assert_allclose(again.mean, found.mean, rtol=1e-12, atol=1e-12 * size)
    np.testing.assert_allclose(again.variance, found.variance, rtol=1e-12, atol=1e-12 * size**2)


KINDS = (("markov", "Sum"),)
# what holds functions of the tests, which no file takes
WITH_CODE = {"HypothesisClass", *(name for name, (kernel, _) in zoo.KERNELS.items() if isinstance(kernel, sg.Warp))}


@pytest.mark.parametrize(("structure", "name"), zoo.mostly_full(itertools.product(zoo.ENGINES, zoo.KERNELS), *KINDS))
def test_kernels(structure, name, tmp_path):
    kernel, D = zoo.KERNELS[name]
    gp = sg.GP(kernel, sg.Gaussian(0.15))
    if not any(offer.cost for offer in gp.plan(zoo.X[D]).offers if offer.engine.structure == structure):
        return  # and says why, which is tested with the engines
    mixture, alone = mixture_of(gp, zoo.X[D], zoo.Y[D], structure=structure)
    check(mixture, alone, zoo.XS[D], None if name in WITH_CODE else tmp_path)


@pytest.mark.full
@pytest.mark.parametrize("structure", zoo.PARTICULAR)
def test_grids(structure, tmp_path):
    gp = sg.GP(PRODUCT, sg.Gaussian(0.15))
    if not any(offer.cost for offer in gp.plan(GRID).offers if offer.engine.structure == structure):
        return
    mixture, alone = mixture_of(gp, GRID, np.sin(5 * np.asarray(GRID.points).sum(axis=1)), structure=structure)
    check(mixture, alone, GRID.points, tmp_path)
