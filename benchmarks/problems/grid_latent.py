"""Two axes with holes beside BoTorch's latent Kronecker GP: the mean in all cells, and evidence with gradient.

Both see the same cells and parameters. BoTorch solves by conjugate gradients to a tolerance of its own, 0.01 by default; at
1e-5 its means are about as good as ours, and this is the row to compare times with. Errors are relative to the largest value
of the means by the same engine at 1e-12, and absolute for the log evidence.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from benchmarks.registry import Result, Run, Unavailable, problem

NOISE = 0.01
LENGTHSCALE = 0.2
LOOKED_AT = 500  # cells in which means are compared
OURS, TIGHT = 1e-8, 1e-12  # tolerances of our conjugate gradients


class Picture(NamedTuple):
    """One axis of two, and values with NaN where nothing was seen."""

    axis: np.ndarray
    y: np.ndarray


def make(N: int) -> Picture:
    """Waves with noise; a quarter of the cells is missing at random, and a square in the middle as well."""
    rng = np.random.default_rng(3)
    axis = np.linspace(0.0, 1.0, round(N**0.5))
    y = np.sin(6 * axis[:, None]) * np.cos(9 * axis) + np.sqrt(NOISE) * rng.standard_normal((len(axis),) * 2)
    middle = np.abs(axis - 0.5) < 0.15
    return Picture(axis, np.where((rng.uniform(size=y.shape) < 0.25) | (middle[:, None] & middle), np.nan, y))


def some(data: Picture) -> np.ndarray:
    return np.random.default_rng(1).choice(data.y.size, min(LOOKED_AT, data.y.size), replace=False)


def score(data: Picture, results: Mapping[str, Result]) -> dict[str, dict[str, float]]:
    reference = results.get("structgp to 1e-12")
    scores = {}
    for name, result in results.items():
        scores[name] = {}
        if reference and "mean" in result:
            best = np.asarray(reference["mean"])
            scores[name]["mean error"] = float(np.max(np.abs(np.asarray(result["mean"]) - best)) / np.max(np.abs(best)))
        if "evidence" in result:
            scores[name]["evidence"] = result["evidence"]
    return scores


def declare(name: str, about: str):
    return problem(
        name=name,
        about=f"two axes, a quarter and a square of the cells missing, {about}",
        make=make,
        sizes=(60**2, 150**2, 300**2),
        quick=(16**2,),
        references=("structgp",),
        score=score,
        repeat=1,
    )


MEAN = declare("grid-latent-mean", "the mean in all cells")
EVIDENCE = declare("grid-latent-evidence", "log evidence and its gradient")


def our_gp():
    import structgp as sg

    return sg.GP(sg.ProductMatern([LENGTHSCALE] * 2, nu=2.5), sg.Gaussian(NOISE))


def our_mean(data: Picture, tolerance: float) -> Run:
    """Everything at each call: eigendecompositions, preconditioner, solution."""
    import jax

    import structgp as sg
    from structgp.engines.grid_holes import LEARNING
    from structgp.linalg.dense.cholesky import lapack_threads
    from structgp.linalg.grids import two_levels, whitened
    from structgp.structure.kronecker import kronecker

    grid, seen, looked_at = sg.Grid(data.axis, data.axis), ~np.isnan(data.y), some(data)
    effort = LEARNING._replace(tolerance=tolerance)

    @jax.jit
    def solve(kernel, w, h):
        system = whitened.build(kronecker(kernel, grid).matrices(), w, effort)
        return two_levels.means(system, h[None], effort).mean[0]

    w, h = np.where(seen, 1 / NOISE, 0.0), np.where(seen, data.y / NOISE, 0.0)

    def call() -> Result:
        with jax.enable_x64(True), lapack_threads(1):
            mean = np.ravel(solve(our_gp().kernel, w, h))
        return {"mean": mean[looked_at].tolist()}

    return Run(call)


MEAN.method("structgp")(lambda data: our_mean(data, OURS))
MEAN.method("structgp to 1e-06")(lambda data: our_mean(data, 1e-6))
MEAN.method("structgp to 1e-12")(lambda data: our_mean(data, TIGHT))


@EVIDENCE.method("structgp")
def our_evidence(data: Picture) -> Run:
    import structgp as sg
    from benchmarks.problems.grids import objective

    return objective(our_gp(), sg.Grid(data.axis, data.axis), np.ravel(data.y), "kronecker")


@EVIDENCE.method("structgp dense")
def our_dense_evidence(data: Picture) -> Run:
    import structgp as sg
    from benchmarks.problems.grids import LARGEST_DENSE, objective

    if data.y.size > LARGEST_DENSE:
        raise Unavailable(f"more than {LARGEST_DENSE} cells do not go into one matrix here")
    return objective(our_gp(), sg.Grid(data.axis, data.axis), np.ravel(data.y), "dense")


def botorch_model(data: Picture):
    import torch
    from botorch.models.latent_kronecker_gp import LatentKroneckerGP
    from gpytorch.kernels import MaternKernel, ScaleKernel
    from gpytorch.likelihoods import GaussianLikelihood

    torch.set_default_dtype(torch.float64)
    axis = torch.as_tensor(data.axis)[:, None]
    rows, columns = MaternKernel(nu=2.5), ScaleKernel(MaternKernel(nu=2.5))
    rows.lengthscale = columns.base_kernel.lengthscale = LENGTHSCALE
    columns.outputscale = 1.0
    likelihood = GaussianLikelihood()
    likelihood.noise = NOISE
    options = {"covar_module_X": rows, "covar_module_T": columns, "outcome_transform": None}
    return LatentKroneckerGP(axis, axis, torch.as_tensor(data.y), likelihood, **options), axis


def botorch_mean(data: Picture, tolerance: float) -> Run:
    """By the solution that its own pathwise samples take: `model.posterior` goes to a dense matrix for the mean."""
    import torch
    from linear_operator.operators import (
        ConstantDiagLinearOperator,
        KroneckerProductLinearOperator,
        MaskedLinearOperator,
    )

    model, axis = botorch_model(data)
    looked_at, mask = some(data), model.mask_valid

    def call() -> Result:
        with torch.no_grad(), model.use_iterative_methods(tol=tolerance):
            K = KroneckerProductLinearOperator(model.covar_module_X(axis), model.covar_module_T(axis))
            noise = ConstantDiagLinearOperator(model.likelihood.noise, diag_shape=int(mask.sum()))
            alpha = torch.zeros(len(mask))
            alpha[mask] = (MaskedLinearOperator(K, mask, mask) + noise).solve(model.train_targets[:, None])[:, 0]
            mean = (K @ alpha[:, None])[:, 0].numpy()
        return {"mean": mean[looked_at].tolist()}

    return Run(call)


def botorch_evidence(data: Picture, tolerance: float) -> Run:
    from gpytorch.mlls import ExactMarginalLogLikelihood

    model, axis = botorch_model(data)
    model.train()
    marginal = ExactMarginalLogLikelihood(model.likelihood, model)

    def call() -> Result:
        model.zero_grad()
        with model.use_iterative_methods(tol=tolerance):
            value = marginal(model(axis), model.train_targets)
            value.backward()
        return {"evidence": float(value.detach()) * len(model.train_targets)}

    return Run(call)


for tolerance in (1e-2, 1e-5, 1e-6):
    for made, run in ((MEAN, botorch_mean), (EVIDENCE, botorch_evidence)):
        name = f"botorch to {tolerance:.0e}"
        made.method(name, requires=("botorch",))(lambda data, run=run, tolerance=tolerance: run(data, tolerance))
