"""Every kernel can be fitted, on every input that it accepts."""

import numpy as np
import pytest

import structgp as sg
import zoo


@pytest.mark.parametrize("name", zoo.mostly_full(zoo.KERNELS, "Coregion", "Scaled-Sum", "tied"))
def test_every_kernel_can_be_fitted(name):
    kernel, D = zoo.KERNELS[name]
    fitted = sg.GP(kernel, sg.Gaussian(0.1)).fit(zoo.X[D], zoo.Y[D], restarts=0, max_evaluations=2, structure="dense")
    assert np.isfinite(fitted.log_evidence)
    assert shapes_of(fitted.kernel) == shapes_of(kernel)


def shapes_of(kernel):
    """The shapes of all parameters, which learning must leave as they are."""
    return {path: np.shape(value) for path, value in kernel.parameters().items()}
