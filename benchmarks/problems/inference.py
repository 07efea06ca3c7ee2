"""Observations that are not Gaussian: EP along a chain, and the snow / no snow days of Whistler (000, §2.4)."""

from typing import NamedTuple

import numpy as np

from benchmarks.data import load
from benchmarks.registry import Result, Run, problem

SEEN = lambda data, results: {name: dict(r) for name, r in results.items()}


class Labels(NamedTuple):
    """Times and labels 0 or 1."""

    t: np.ndarray
    y: np.ndarray


def chain(N: int) -> Labels:
    """Labels of a wave, ten points for each lengthscale."""
    rng = np.random.default_rng(3)
    t = 0.1 * np.arange(N)
    return Labels(t, (2 * np.sin(0.7 * t) + np.sin(0.11 * t) + rng.standard_normal(N) > 0).astype(float))


def whistler(N: int) -> Labels:
    """The first N days: 1 when snow fell."""
    snow = load("whistler_snowfall").columns["snowfall_cm"][:N]
    return Labels(np.arange(float(len(snow))), (snow > 0).astype(float))


CHAIN = problem(
    name="ep-chain",
    about="EP to convergence (1e-7) for N labels along a line, probit, Matérn-5/2, parameters as they are",
    make=chain,
    sizes=(10**3, 10**4, 10**5, 10**6),
    quick=(1000,),
    score=SEEN,
    seconds=12.0,
)
WHISTLER = problem(
    name="whistler-inference",
    about="13880 days with or without snow: EP at fixed parameters (the thesis: 8 s)",
    make=whistler,
    sizes=(13880,),
    quick=(500,),
    score=SEEN,
)
WHISTLER_FIT = problem(
    name="whistler-fit",
    about="the same, learning lengthscale and variance (the thesis: 400 s); cold s is a fresh process",
    make=whistler,
    sizes=(13880,),
    quick=(500,),
    score=SEEN,
    calls=2,
)


def model():
    """Matérn-5/2 behind a probit link."""
    import structgp as sg

    return sg.GP(sg.Matern52(1.0, 4.0), sg.Bernoulli())


def described(fitted) -> Result:
    result = {"evidence": fitted.log_evidence, "calls": fitted.inference.calls, "converged": str(fitted.inference.converged)}
    if fitted.learning:
        result |= {"evaluations": fitted.learning.evaluations, "lengthscale": float(fitted.kernel.lengthscale)}
    return result


@CHAIN.method("structgp")
def chain_inference(data: Labels) -> Run:
    gp = model()
    return Run(lambda: described(gp.condition(data.t, data.y, inference="ep")))


@WHISTLER.method("structgp")
def whistler_inference(data: Labels) -> Run:
    import structgp as sg

    gp = sg.GP(sg.Matern52(23.0, 6.0), sg.Bernoulli())
    return Run(lambda: described(gp.condition(data.t, data.y, inference="ep")))


@WHISTLER_FIT.method("structgp")
def whistler_fit(data: Labels) -> Run:
    gp = model()
    return Run(lambda: described(gp.fit(data.t, data.y, inference="ep", parameters="best")))
