"""Dense regression: D = 8, squared exponential with one lengthscale per dimension, Gaussian noise, float64.

Two problems on the same synthetic data: the log evidence with its gradient in all ten hyperparameters at one fixed θ, and a
whole fit from the same start. Parameters are compared as θ = (8 lengthscales, variance, noise variance) and gradients with
respect to log θ, whatever each library uses inside. The referee is `evidence` below, plain NumPy and SciPy:

    log p(y) = −½ yᵀα − ½ log|K| − ½ N log 2π,   K = K_f + σ² I,   α = K⁻¹ y
    ∂/∂log ℓ_d = ½ Σ_ij W_ij K_f,ij (x_id − x_jd)² / ℓ_d²,   W = ααᵀ − K⁻¹
"""

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from benchmarks.registry import Result, Run, problem

D = 8
THETA = np.concatenate([np.linspace(1.5, 4.0, D), [1.3], [0.05]])
START = np.concatenate([np.full(D, 2.0), [1.0], [0.1]])


class Regression(NamedTuple):
    """Inputs (N, D) and standardised targets (N,)."""

    X: np.ndarray
    y: np.ndarray


def make(N: int) -> Regression:
    """A smooth function of all eight inputs plus noise of standard deviation 0.2, from a fixed seed."""
    rng = np.random.default_rng(20240)
    X = rng.normal(size=(N, D))
    f = (
        np.sin(1.5 * X[:, 0])
        + 0.8 * np.cos(X[:, 1] + X[:, 2])
        + 0.4 * X[:, 3] * X[:, 4]
        + np.tanh(X[:, 5])
        + 0.3 * X[:, 6]
        + 0.2 * X[:, 7] ** 2
    )
    y = f + 0.2 * rng.normal(size=N)
    return Regression(X, (y - y.mean()) / y.std())


def covariance(X: np.ndarray, theta: np.ndarray) -> np.ndarray:
    """K_f, by the expansion of the squared distance."""
    Z = X / theta[:D]
    r2 = np.maximum(np.sum(Z**2, axis=1)[:, None] + np.sum(Z**2, axis=1) - 2 * Z @ Z.T, 0)
    return theta[D] * np.exp(-0.5 * r2)


def evidence(data: Regression, theta: np.ndarray) -> tuple[float, np.ndarray]:
    """The referee: log evidence and its gradient in log θ."""
    from scipy.linalg import cho_factor, cho_solve

    N, (X, y) = len(data.y), data
    Kf = covariance(X, theta)
    factor = cho_factor(Kf + theta[-1] * np.eye(N), lower=True)
    inverse = cho_solve(factor, np.eye(N))
    alpha = inverse @ y
    value = -0.5 * y @ alpha - np.sum(np.log(np.diag(factor[0]))) - 0.5 * N * math.log(2 * math.pi)
    W = np.outer(alpha, alpha) - inverse
    noise = 0.5 * theta[-1] * np.trace(W)
    W *= Kf
    lengthscales = (X**2).T @ W.sum(axis=1) - np.einsum("id,id->d", X, W @ X)
    return float(value), np.concatenate([lengthscales / theta[:D] ** 2, [0.5 * W.sum(), noise]])


def score_evidence(data: Regression, results: Mapping[str, Result]) -> dict[str, dict[str, float]]:
    """Relative errors of value and gradient."""
    value, gradient = evidence(data, THETA)

    def errors(result: Result) -> dict[str, float]:
        g = np.array(result["gradient"])
        return {
            "evidence": result["evidence"],
            "value err": abs(result["evidence"] - value) / abs(value),
            "gradient err": float(np.max(np.abs(g - gradient)) / np.max(np.abs(gradient))),
        }

    return {name: errors(result) for name, result in results.items() if "evidence" in result}


def score_fit(data: Regression, results: Mapping[str, Result]) -> dict[str, dict[str, float]]:
    """The evidence at what was learned, by the same function for all, and how far it lies below the best."""
    reached = {name: evidence(data, np.array(result["theta"]))[0] for name, result in results.items()}
    best = max(reached.values())
    return {
        name: {"evaluations": results[name]["evaluations"], "evidence": value, "below best": best - value}
        for name, value in reached.items()
    }


EVIDENCE = problem(
    name="dense-evidence",
    about="dense regression, D = 8 ARD squared exponential: log evidence and its gradient in 10 hyperparameters, float64",
    make=make,
    sizes=(500, 1000, 2000, 4000),
    quick=(200, 400),
    references=("lapack", "structgp"),
    score=score_evidence,
)
FIT = problem(
    name="dense-fit",
    about="dense regression, D = 8 ARD squared exponential: 10 hyperparameters learned from the same start, float64",
    make=make,
    sizes=(500, 1000, 2000),
    quick=(200,),
    references=("structgp", "scikit-learn"),
    score=score_fit,
    repeat=1,
    calls=1,
)


def answer(value, gradient) -> Result:
    return {"evidence": float(value), "gradient": np.asarray(gradient, dtype=float).tolist()}


def learned(theta, evaluations) -> Result:
    return {"theta": np.asarray(theta, dtype=float).tolist(), "evaluations": int(evaluations)}


# LAPACK: the yardstick, factor and inverse of the covariance that is already there


@EVIDENCE.method("lapack", requires=("scipy",))
def lapack(data: Regression) -> Run:
    from scipy.linalg.lapack import dpotrf, dpotri

    K = np.asfortranarray(covariance(data.X, THETA) + THETA[-1] * np.eye(len(data.y)))
    work = np.empty_like(K)

    def call() -> Result:
        L, failed = dpotrf(work, lower=1, clean=0, overwrite_a=1)
        inverse, singular = dpotri(L, lower=1, overwrite_c=1)
        assert failed == singular == 0
        assert np.shares_memory(inverse, work)
        return {}

    return Run(call, before=lambda: np.copyto(work, K))


# structgp: θ there is log θ here, in the same order


def structgp_model(theta: np.ndarray):
    import structgp as sg

    return sg.GP(sg.SquaredExponential(lengthscale=theta[:D], variance=theta[D]), likelihood=sg.Gaussian(noise=theta[-1]))


@EVIDENCE.method("structgp", requires=("structgp",))
def structgp_evidence(data: Regression) -> Run:
    from structgp.inputs.layouts import as_inputs
    from structgp.inputs.observations import Data
    from structgp.learn.evidence import evidence_objective

    gp, inputs, N = structgp_model(THETA), as_inputs(data.X), len(data.y)
    observed = Data(data.y[:, None], np.zeros(N), np.ones(N, dtype=bool), True)
    objective = evidence_objective(gp, inputs, observed, gp.plan(inputs).engine)
    return Run(lambda: answer(*objective(np.log(THETA))))


@FIT.method("structgp", requires=("structgp",))
def structgp_fit(data: Regression) -> Run:
    gp = structgp_model(START)

    def call() -> Result:
        fitted = gp.fit(data.X, data.y, restarts=0, progress=False, parameters="best")
        kernel, noise = fitted.gp.kernel, fitted.gp.likelihood.noise
        return learned([*kernel.lengthscale, kernel.variance, noise], fitted.learning.evaluations)

    return Run(call)
