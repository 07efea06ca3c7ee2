"""Kernels in other units of x: each number times the power of the length that it is made of."""

import dataclasses

import numpy as np

import structgp as sg
from structgp.kernels.metrics import Metric

POWERS = {  # of a length, by the name of the number
    **dict.fromkeys(("lengthscale", "lengthscales", "period", "lifetime", "location", "width", "center", "start"), 1),
    **dict.fromkeys(("places", "centres", "radius"), 1),
    **dict.fromkeys(("bandwidth", "bandwidths", "frequencies"), -1),
    "offset": 2,
    "weight_variance": -2,
}
OWN = {  # the same where a kind of kernel means something else by a name, in D columns
    sg.Periodic: lambda k, D: {"lengthscale": 0},
    sg.FourierFeatures: lambda k, D: {"frequencies": 0},
    sg.Linear: lambda k, D: {"variance": -2},
    sg.Polynomial: lambda k, D: {"variance": -2 * k.degree},
    sg.Wiener: lambda k, D: {"variance": -1},
    sg.IntegratedWiener: lambda k, D: {"variance": 1 - 2 * k.order},
    sg.Spline: lambda k, D: {"variance": 1 - 2 * k.order},
    sg.ThinPlate: lambda k, D: {"variance": D - 4, "scale": 1},
    sg.HalfSpaceOverlap: lambda k, D: {"variance": -D},
    sg.CholeskyMetric: lambda k, D: {"diagonal": -1, "above": -1},
    sg.FactorMetric: lambda k, D: {"loadings": -1},
}


def in_units(kernel, a, D):
    """The kernel for inputs in units in which all lengths are `a` times as large; one of a user's function of x sees that x."""
    if isinstance(kernel, sg.Warp | sg.HypothesisClass):
        return sg.Warp(kernel, lambda x: x / a)
    powers = POWERS | OWN.get(type(kernel), lambda k, D: {})(kernel, D)
    values = {}
    for field in dataclasses.fields(kernel):
        value = getattr(kernel, field.name)
        if isinstance(value, sg.Kernel | Metric):
            values[field.name] = in_units(value, a, D)
        elif isinstance(value, tuple) and value and isinstance(value[0], sg.Kernel):
            values[field.name] = tuple(in_units(part, a, D) for part in value)
        elif value is not None and powers.get(field.name):
            values[field.name] = a ** powers[field.name] * np.asarray(value)
    return dataclasses.replace(kernel, **values)


def log_volume(kernel, other, a, X):
    """By how much the evidence of a kernel is more than in the `other` units, where some functions are left free: these have
    no density, so that the evidence is one for their own units."""
    free, there = (np.stack([k.null_space(x) for x in points]) for k, points in ((kernel, X), (other, a * X)))
    return float(np.linalg.slogdet(np.linalg.lstsq(free, there)[0])[1]) if free.shape[1] else 0.0
