"""Grids: log evidence and its gradient in all parameters, where the covariance is a Kronecker product or Toeplitz.

The corners of a hypercube (two places on each of log₂N axes), pictures and cubes, complete or with a quarter of the cells
missing; regular series; space and time. All methods see the same places, observations and parameters, float64. Beside ours run
the dense engine, as far as memory goes, and GPyTorch's grid kernel where it is installed.
"""

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from benchmarks.registry import Result, Run, Unavailable, problem

NOISE = 0.01
LARGEST_DENSE = 4096


class Cells(NamedTuple):
    """The axes of a grid, an observation in each cell (NaN where there is none), and the lengthscale of all axes."""

    axes: tuple[np.ndarray, ...]
    y: np.ndarray
    lengthscale: float
    kind: str = "SquaredExponential"


def cells(
    axes_of: Callable[[int], list[np.ndarray]], lengthscale: float, missing: float = 0.0, kind: str = "SquaredExponential"
):
    """A maker of noisy waves over a grid."""

    def make(N: int) -> Cells:
        rng = np.random.default_rng(3)
        axes = tuple(axes_of(N))
        shape = tuple(map(len, axes))
        wave = sum(np.reshape(np.sin(5 * axis), [-1 if e == d else 1 for e in range(len(axes))]) for d, axis in enumerate(axes))
        y = np.ravel(wave + math.sqrt(NOISE) * rng.standard_normal(shape))
        return Cells(axes, np.where(rng.uniform(size=y.shape) < missing, np.nan, y), lengthscale, kind)

    return make


def corners(N: int) -> list[np.ndarray]:
    return [np.array([-1.0, 1.0])] * round(math.log2(N))


def equal_axes(D: int) -> Callable[[int], list[np.ndarray]]:
    return lambda N: [np.linspace(0.0, 1.0, round(N ** (1 / D)))] * D


def score(data: Cells, results: Mapping[str, Result]) -> dict[str, dict[str, float]]:
    """How far each value lies from ours."""
    own = results.get("structgp")
    differ = lambda r: abs(r["evidence"] / own["evidence"] - 1) if own else float("nan")
    return {name: {"evidence": r["evidence"], "differs by": differ(r)} for name, r in results.items() if "evidence" in r}


def objective(gp, inputs, y: np.ndarray, structure: str) -> Run:
    """What `fit` calls, in structgp's words."""
    from structgp.inputs.observations import Data
    from structgp.learn.evidence import evidence_objective
    from structgp.linalg.dense.cholesky import lapack_threads
    from structgp.parameters.tree import free_vector

    seen = ~np.isnan(y)
    observed = Data(np.where(seen, y, 0.0)[:, None], np.zeros(len(y)), seen)
    chosen = gp.plan(inputs, structure, y=y)
    evaluate, theta = evidence_objective(gp, inputs, observed, chosen.engine), free_vector(gp)

    def call() -> Result:
        with lapack_threads(chosen.rows):
            return {"evidence": evaluate(theta)[0]}

    return Run(call)


def on_grid(data: Cells, structure: str) -> Run:
    import structgp as sg

    if structure == "dense" and len(data.y) > LARGEST_DENSE:
        raise Unavailable(f"more than {LARGEST_DENSE} cells do not go into one matrix here")
    scales = [data.lengthscale] * len(data.axes)
    gp = sg.GP(getattr(sg, data.kind)(scales), sg.Gaussian(NOISE))
    return objective(gp, sg.Grid(*data.axes), data.y, structure)


def gpytorch_run(data: Cells) -> Run:
    import gpytorch
    import torch

    if np.isnan(data.y).any():
        raise Unavailable("its grid kernel takes complete grids only")
    if len({len(axis) for axis in data.axes}) > 1:
        raise Unavailable("its grid kernel takes axes of one length")
    torch.set_default_dtype(torch.float64)
    grid = [torch.as_tensor(axis) for axis in data.axes]
    X, y = gpytorch.utils.grid.create_data_from_grid(grid), torch.as_tensor(data.y)

    class Model(gpytorch.models.ExactGP):
        def __init__(self, likelihood):
            super().__init__(X, y, likelihood)
            base = gpytorch.kernels.RBFKernel(ard_num_dims=len(grid))
            base.lengthscale = data.lengthscale
            self.mean_module = gpytorch.means.ZeroMean()
            # Without a scale: with one, it does not see the Kronecker product any more and goes to conjugate gradients.
            self.covar_module = gpytorch.kernels.GridKernel(base, grid=grid)

        def forward(self, x):
            return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))

    likelihood = gpytorch.likelihoods.GaussianLikelihood()
    likelihood.noise = NOISE
    model = Model(likelihood).train()
    marginal = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)

    def call() -> Result:
        model.zero_grad()
        value = marginal(model(X), y)
        value.backward()
        return {"evidence": float(value.detach()) * len(y)}

    return Run(call)


def declare(name: str, about: str, make: Callable[[int], Cells], sizes: tuple[int, ...], quick: tuple[int, ...]) -> None:
    """One problem on grids with its methods."""
    made = problem(
        name=name,
        about=f"grid, {about}: log evidence and its gradient, float64",
        make=make,
        sizes=sizes,
        quick=quick,
        references=("structgp",),
        score=score,
        repeat=2,
    )
    made.method("structgp")(lambda data: on_grid(data, "kronecker"))
    made.method("structgp dense")(lambda data: on_grid(data, "dense"))
    made.method("gpytorch", requires=("gpytorch", "torch"))(gpytorch_run)


declare("grid-corners", "corners of a hypercube", cells(corners, 1.0), tuple(2**d for d in range(8, 21, 2)), (2**8,))
declare("grid-picture", "two axes", cells(equal_axes(2), 0.1), (64**2, 256**2, 512**2, 1024**2), (32**2,))
declare("grid-cube", "three axes", cells(equal_axes(3), 0.2), (16**3, 40**3, 100**3, 216**3), (10**3,))
declare(
    "grid-holes",
    "three axes, a quarter of the cells missing, product of Matérn-5/2",
    cells(equal_axes(3), 0.3, 0.25, "ProductMatern"),
    (16**3, 40**3, 81**3, 216**3),
    (10**3,),
)

REGULAR = problem(
    name="grid-line",
    about="evenly spaced series, squared exponential with a lengthscale of 30 steps: log evidence and its gradient, float64",
    make=lambda N: Cells(
        (np.arange(float(N)),), np.sin(np.arange(N) / 50) + 0.3 * np.random.default_rng(3).standard_normal(N), 30.0
    ),
    sizes=(10**4, 10**5, 10**6),
    quick=(2000,),
    score=score,
    repeat=2,
)


def on_line(data: Cells, structure: str) -> Run:
    import structgp as sg

    if structure == "dense" and len(data.y) > LARGEST_DENSE:
        raise Unavailable(f"more than {LARGEST_DENSE} times do not go into one matrix here")
    return objective(
        sg.GP(sg.SquaredExponential(data.lengthscale), sg.Gaussian(0.1)), sg.as_inputs(data.axes[0]), data.y, structure
    )


REGULAR.method("structgp")(lambda data: on_line(data, "toeplitz"))
REGULAR.method("structgp dense")(lambda data: on_line(data, "dense"))

GAPS = problem(
    name="grid-line-gaps",
    about="the same with a lengthscale of N/300 steps, a tenth of the values missing at random and gaps of seven lengthscales",
    make=lambda N: line_with_gaps(N),
    sizes=(10**4, 10**5, 10**6),
    quick=(5000,),
    score=score,
    repeat=2,
)


def line_with_gaps(N: int) -> Cells:
    rng = np.random.default_rng(3)
    t, lengthscale = np.arange(float(N)), N / 300
    y = np.sin(t / lengthscale) + 0.3 * rng.standard_normal(N)
    missing = (t // (7 * lengthscale) % 5 == 2) | (rng.uniform(size=N) < 0.1)
    return Cells((t,), np.where(missing, np.nan, y), lengthscale)


GAPS.method("structgp")(lambda data: on_line(data, "toeplitz"))
GAPS.method("structgp dense")(lambda data: on_line(data, "dense"))

OUTPUTS = problem(
    name="grid-outputs",
    about="three outputs along an evenly spaced series, squared exponential: log evidence and its gradient, float64",
    make=lambda N: Cells(
        (np.arange(N / 3), np.arange(3.0)), np.ravel(np.sin(np.add.outer(np.arange(N // 3) / 50, np.arange(3.0)))), 30.0
    ),
    sizes=(3 * 10**3, 3 * 10**4, 3 * 10**5),
    quick=(300,),
    score=score,
    repeat=2,
)


def several_outputs(data: Cells, structure: str) -> Run:
    import structgp as sg

    if structure != "toeplitz-grid" and len(data.y) > LARGEST_DENSE:
        raise Unavailable(f"more than {LARGEST_DENSE} values do not go into one matrix here")
    kernel = sg.Coregion.low_rank(3).on(1) * sg.SquaredExponential(data.lengthscale).on(0)
    return objective(sg.GP(kernel, sg.Gaussian(0.1)), sg.Grid(*data.axes), data.y, structure)


OUTPUTS.method("structgp")(lambda data: several_outputs(data, "toeplitz-grid"))
OUTPUTS.method("structgp eigen")(lambda data: several_outputs(data, "kronecker"))
OUTPUTS.method("structgp dense")(lambda data: several_outputs(data, "dense"))

SPACE_TIME = problem(
    name="grid-space-time",
    about="as many times as places, Matérn-3/2 in time, squared exponential in space: log evidence and its gradient, float64",
    make=cells(equal_axes(2), 0.1),
    sizes=(100**2, 300**2, 1000**2),
    quick=(20**2,),
    score=score,
    repeat=2,
)


def in_space_and_time(data: Cells, structure: str) -> Run:
    import structgp as sg

    kernel = sg.Matern32(data.lengthscale).on(0) * sg.SquaredExponential(data.lengthscale).on(1)
    return objective(sg.GP(kernel, sg.Gaussian(NOISE)), sg.Grid(*data.axes), data.y, structure)


SPACE_TIME.method("structgp")(lambda data: in_space_and_time(data, "space-time"))
SPACE_TIME.method("structgp eigen")(lambda data: in_space_and_time(data, "kronecker"))
