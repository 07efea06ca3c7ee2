"""Every kernel can be fitted, on every input that it accepts."""

import numpy as np
import pytest

import structgp as sg
import zoo

LAYOUTS = {1: ("1-D regular",), 2: ("grid", "grid with holes")}
LAID_OUT = [(name, layout) for name, (_, D) in zoo.KERNELS.items() for layout in LAYOUTS[D]]
SHORT = {"restarts": 0, "max_evaluations": 2}


@pytest.mark.parametrize("name", zoo.mostly_full(zoo.KERNELS, "Coregion", "Scaled-Sum", "tied"))
def test_every_kernel_can_be_fitted(name):
    kernel, D = zoo.KERNELS[name]
    fitted = sg.GP(kernel, sg.Gaussian(0.1)).fit(zoo.X[D], zoo.Y[D], structure="dense", **SHORT)
    assert np.isfinite(fitted.log_evidence)
    assert shapes_of(fitted.kernel) == shapes_of(kernel)


KEPT = ("Scaled-Sum", "1-D regular"), ("On-Product", "grid"), ("On-Product", "grid with holes")


@pytest.mark.parametrize(("name", "layout"), zoo.mostly_full(LAID_OUT, *KEPT))
def test_every_kernel_can_be_fitted_on_lines_and_grids(name, layout):
    """By every algorithm that takes it there, which few rows alone would leave to the whole matrix."""
    kernel, D = zoo.KERNELS[name]
    gp, places = sg.GP(kernel, sg.Gaussian(0.1)), zoo.INPUTS[layout]
    offered = [offer.engine.structure for offer in gp.plan(places, y=zoo.Y[D]).offers if offer.cost is not None]
    for structure in [one for one in offered if one != "dense"] or ["auto"]:
        fitted = gp.fit(places, zoo.Y[D], structure=structure, **SHORT)
        assert np.isfinite(fitted.log_evidence), structure
        assert shapes_of(fitted.kernel) == shapes_of(kernel)


def shapes_of(kernel):
    """The shapes of all parameters, which learning must leave as they are."""
    return {path: np.shape(value) for path, value in kernel.parameters().items()}
