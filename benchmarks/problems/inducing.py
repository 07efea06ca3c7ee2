"""Inducing inputs: the evidence and its gradient beside others, and accuracy on real data.

Time, as for all problems: ``python -m benchmarks inducing-evidence``. Accuracy on the first stored split of each set, one row
each, in CPU seconds of this process (learning, compilation included), which other processes on the machine do not change much:

    python -m benchmarks.problems.inducing                       # regression sets with the numbers of inputs below
    python -m benchmarks.problems.inducing kin40k --inputs 500 --method vfe --kernel se
    python -m benchmarks.problems.inducing raetsch_ringnorm usps --inputs 2 --splits 3
    python -m benchmarks.problems.inducing kin40k elevators --redraw 1        # rows divided anew
    python -m benchmarks.problems.inducing uci_kin8nm uci_power --splits 3 --start plain   # without the stages of learning
    python -m benchmarks.problems.inducing raetsch --splits 10 --jobs 16      # table 2.1 of the seed, with its inputs
    python -m benchmarks.problems.inducing parquet --rows 1000000             # a temporary file: time and peak memory
    python -m benchmarks.problems.inducing parquet --rows 1000000 --way memory

Inputs and targets are standardised by the training rows; NMSE is the squared error over the variance of the test targets, MNLP
the mean negative log density of standardised targets. For labels: error rate and mean negative log probability.
"""

import argparse
import concurrent.futures
import contextlib
import multiprocessing
import time
from typing import NamedTuple

import numpy as np

from benchmarks.data import Part, arrays, load
from benchmarks.registry import Result, Run, problem

D, M = 8, 500
NOISE, LENGTH = 0.1, 1.5
SETS = {"kin40k": 500, "elevators": 500, "pumadyn32nm": 500, "pumadyn8nm": 100, "pumadyn8fm": 200, "uci_protein": 1000}


class Rows(NamedTuple):
    """Rows, targets and inducing inputs."""

    X: np.ndarray
    y: np.ndarray
    Z: np.ndarray


def make(N: int) -> Rows:
    """A smooth function of two of eight columns, with noise."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (N, D))
    return Rows(X, np.sin(2 * X[:, 0]) * X[:, 1] + 0.3 * rng.normal(size=N), X[rng.permutation(N)[:M]] + 0.01)


EVIDENCE = problem(
    name="inducing-evidence",
    about=f"{M} inducing inputs, D = {D} ARD squared exponential: evidence and its gradient in all inputs and parameters",
    make=make,
    sizes=(10_000, 50_000),
    quick=(2_000,),
    references=("structgp vfe", "GPyTorch SGPR"),
)


def objective_of(data: Rows, method: str):
    """The evidence and its gradient as a function of all free parameters, and where to look."""
    import structgp as sg
    from structgp.engines.inducing import InducingEngine
    from structgp.inputs.layouts import as_inputs
    from structgp.inputs.observations import Data
    from structgp.learn.evidence import evidence_objective
    from structgp.parameters.tree import free_vector

    N = len(data.y)
    gp = sg.GP(sg.Induced(sg.SquaredExponential(np.full(D, LENGTH)), data.Z), sg.Gaussian(NOISE))
    observed = Data(data.y[:, None], np.zeros(N), np.ones(N, dtype=bool), True)
    return evidence_objective(gp, as_inputs(data.X), observed, InducingEngine(method)), free_vector(gp)


def structgp_run(data: Rows, method: str) -> Run:
    objective, theta = objective_of(data, method)

    def call() -> Result:
        clock = time.process_time()
        value, _ = objective(theta)
        return {"evidence": value, "CPU s": time.process_time() - clock}

    return Run(call)


@EVIDENCE.method("structgp vfe", requires=("structgp",))
def structgp_vfe(data: Rows) -> Run:
    return structgp_run(data, "vfe")


@EVIDENCE.method("structgp power", requires=("structgp",))
def structgp_power(data: Rows) -> Run:
    return structgp_run(data, "power")


@EVIDENCE.method("structgp fitc", requires=("structgp",))
def structgp_fitc(data: Rows) -> Run:
    return structgp_run(data, "fitc")


@EVIDENCE.method("four products", requires=("structgp",))
def four_products(data: Rows) -> Run:
    """4 NM² operations at the rate of a product of matrices: the least that value and gradient take."""
    A, B = np.random.default_rng(0).normal(size=(2, M, M)), np.ones((M, 2 * len(data.y)))
    return Run(lambda: {"first": float((A[0] @ B)[0, 0])})


@EVIDENCE.method("GPyTorch SGPR", requires=("gpytorch",))
def gpytorch_sgpr(data: Rows) -> Run:
    import gpytorch
    import torch

    tensor = lambda values: torch.as_tensor(values, dtype=torch.float64)
    X, y = tensor(data.X), tensor(data.y)

    class Model(gpytorch.models.ExactGP):
        def __init__(self, likelihood: object) -> None:
            super().__init__(X, y, likelihood)
            self.mean = gpytorch.means.ZeroMean()
            base = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel(ard_num_dims=D))
            self.kernel = gpytorch.kernels.InducingPointKernel(base, tensor(data.Z).clone(), likelihood)

        def forward(self, x: object) -> object:
            return gpytorch.distributions.MultivariateNormal(self.mean(x), self.kernel(x))

    likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
    likelihood.noise = NOISE
    model = Model(likelihood).double().train()
    model.kernel.base_kernel.outputscale, model.kernel.base_kernel.base_kernel.lengthscale = 1.0, LENGTH
    bound = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)

    def call() -> Result:
        clock = time.process_time()
        model.zero_grad(set_to_none=True)
        value = bound(model(X), y) * len(y)
        value.backward()
        return {"evidence": float(value), "CPU s": time.process_time() - clock}

    return Run(call)


def regression(part: Part, inputs: int, method: str, kernel: str) -> str:
    """NMSE, MNLP and coverage of one fit."""
    import structgp as sg

    center, scale, level, unit = part.X_train.mean(0), part.X_train.std(0), part.y_train.mean(), part.y_train.std()
    scale = np.where(scale > 1e-9 * np.abs(center), scale, 1.0)  # of a column that is constant
    X, Xs = ((rows - center) / scale for rows in (part.X_train, part.X_test))
    y, ys = (part.y_train - level) / unit, (part.y_test - level) / unit
    kernels = {"se": sg.SquaredExponential, "m52": sg.Matern52, "m32": sg.Matern32}
    clock = time.process_time()
    fitted = sg.GP(kernels[kernel](np.ones(X.shape[1])), sg.Gaussian(0.1)).fit(X, y, approximate=sg.Inducing(inputs, method))
    seconds = time.process_time() - clock
    p = fitted.predict(Xs)
    nmse, mnlp = np.mean((p.mean - ys) ** 2) / np.var(ys), -np.mean(p.log_prob(ys))
    cover = np.mean(np.abs(p.mean - ys) < 1.96 * p.observed.sd)
    return f"{nmse:.4f}  {mnlp:7.4f}  {cover:.3f}  {seconds:6.1f}  {fitted.learning.evaluations:4d}"


def labels(part: Part, inputs: int, inference: str | None) -> str:
    """Error rate and mean negative log probability of one fit."""
    import structgp as sg

    clock = time.process_time()
    model = sg.GPClassifier(structure=f"inducing:{inputs}", inference=inference).fit(part.X_train, part.y_train)
    seconds = time.process_time() - clock
    column = int(np.flatnonzero(model.classes_ == model.classes_[-1])[0])
    p = np.clip(model.predict_proba(part.X_test)[:, column], 1e-12, 1 - 1e-12)
    seen = part.y_test == model.classes_[-1]
    nlp = -np.mean(np.log(np.where(seen, p, 1 - p)))
    return f"{np.mean((p > 0.5) != seen):.4f}  {nlp:7.4f}    -    {seconds:6.1f}  {model.fitted_.learning.evaluations:4d}"


def usps() -> Part:
    """4 against the rest, in the stored division."""
    data = arrays("usps")
    return Part(data["X_train"], (data["y_train"] == 4) * 1.0, data["X_test"], (data["y_test"] == 4) * 1.0)


SEED = {
    "ripley_synth": 4,
    "crabs": 10,
    "raetsch_banana": 20,
    "raetsch_breast-cancer": 2,
    "raetsch_diabetis": 2,
    "raetsch_flare-solar": 3,
    "raetsch_german": 4,
    "raetsch_heart": 2,
    "raetsch_image": 200,
    "raetsch_ringnorm": 2,
    "raetsch_splice": 200,
    "raetsch_thyroid": 6,
    "raetsch_titanic": 2,
    "raetsch_twonorm": 2,
    "raetsch_waveform": 10,
}  # the numbers of inputs of table 2.1


def parquet(rows: int, inputs: int, way: str) -> str:
    """Rows of ten columns written to a temporary file, learned from it and foretold: seconds and peak memory."""
    import resource
    import tempfile
    from pathlib import Path

    import polars as pl

    import structgp as sg

    rng = np.random.default_rng(0)
    f = lambda X: np.sin(2 * X[:, 0]) * X[:, 1] + np.cos(X[:, 2] + X[:, 3]) + 0.3 * X[:, 4] ** 2
    peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    with tempfile.TemporaryDirectory() as folder:
        path, made = Path(folder) / "rows-*.parquet", 2**17
        for at in range(0, rows, made):  # block after block, so that the writer does not hold them either
            X = rng.uniform(-2, 2, (min(made, rows - at), 10))
            block = {f"x{d}": X[:, d] for d in range(10)} | {"y": f(X) + 0.3 * rng.normal(size=len(X))}
            pl.DataFrame(block).write_parquet(Path(folder) / f"rows-{at // made:06d}.parquet")
        gp = sg.GP(sg.SquaredExponential(np.full(10, 2.0)), sg.Gaussian(0.1), mean=sg.ConstantMean())
        clock, cpu, before = time.perf_counter(), time.process_time(), peak()
        if way == "memory":
            table = pl.read_parquet(path)
            X, y = table.select(pl.exclude("y")).to_numpy(), table["y"].to_numpy()
            model = gp.fit(X, y, approximate=sg.Inducing(inputs))
        else:
            model = gp.fit_batches(sg.ParquetBatches(path, "y"), approximate=sg.Inducing(inputs))
        wall, cpu = time.perf_counter() - clock, time.process_time() - cpu
    new = rng.uniform(-2, 2, (20_000, 10))
    p, truth = model.predict(new), f(new)
    nmse, cover = np.mean((p.mean - truth) ** 2) / truth.var(), np.mean(np.abs(p.mean - truth) < 1.96 * p.sd)
    memory = f"peak {peak():.2f} GiB (before {before:.2f})"
    return f"NMSE of f {nmse:.5f}  covers {cover:.3f}  {wall:.0f} s wall  {cpu:.0f} CPU s  {memory}"


CRABS = ("FL", "RW", "CL", "CW", "BD")


def parts_of(name: str, redraw: int | None) -> list[Part]:
    """The stored divisions of a set; or, with a seed, its rows divided anew into as many."""
    if name == "usps":
        return [usps()]
    if name == "crabs":  # ten random folds, 80 to learn from
        X, sex = load("crabs").inputs_and_target("sex", CRABS)
        y = (sex == sex[0]) * 1.0
        orders = [np.random.default_rng(fold).permutation(len(y)) for fold in range(10)]
        return [Part(X[rows[:80]], y[rows[:80]], X[rows[80:]], y[rows[80:]]) for rows in orders]
    found = list(load(name).parts())
    if redraw is None:
        return found
    first = found[0]
    X, y = np.concatenate([first.X_train, first.X_test]), np.concatenate([first.y_train, first.y_test])
    rows, count = np.random.default_rng(redraw).permutation(len(y)), len(first.y_train)
    return [Part(X[rows[:count]], y[rows[:count]], X[rows[count:]], y[rows[count:]])]


def one_row(name: str, number: int, args: argparse.Namespace) -> tuple[str, str]:
    """The scores of one division of one set."""
    part = parts_of(name, args.redraw)[number]
    inputs = args.inputs or SETS.get(name) or SEED.get(name, M)
    if args.start == "plain":
        from structgp.process import gp as door

        door.OWN.pop("inducing", None)
    few = len(np.unique(part.y_train)) == 2
    row = labels(part, inputs, args.inference) if few else regression(part, inputs, args.method, args.kernel)
    return name, f"{name:<22} {number:3d} {inputs:5d}  {row}"


def main() -> None:
    """Print a row for each division of each set, and their means."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="*", default=list(SETS))
    parser.add_argument("--inputs", type=int)
    parser.add_argument("--method", default="auto")
    parser.add_argument("--kernel", default="se", choices=["se", "m52", "m32"])
    parser.add_argument("--inference", default=None)
    parser.add_argument("--splits", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="the split to begin with")
    parser.add_argument("--redraw", type=int, help="a seed by which the rows are divided anew, in place of the stored splits")
    parser.add_argument("--start", default="stages", choices=["stages", "plain"], help="plain: one climb from a default start")
    parser.add_argument("--jobs", type=int, default=1, help="processes side by side")
    parser.add_argument("--rows", type=int, default=1_000_000, help="of the temporary file, for 'parquet'")
    parser.add_argument("--way", default="batches", choices=["batches", "memory"])
    args = parser.parse_args()
    if args.sets == ["parquet"]:
        print(parquet(args.rows, args.inputs or M, args.way))
        return
    print("set                  split     M   NMSE/err  MNLP   cover  CPU s  evaluations")
    sets = [one for name in args.sets for one in (SEED if name == "raetsch" else [name])]
    wanted = slice(args.first, args.first + args.splits)
    tasks = [(name, i, args) for name in sets for i in list(range(len(parts_of(name, args.redraw))))[wanted]]
    found: dict[str, list[list[float]]] = {}
    with contextlib.ExitStack() as stack:
        together = map
        if args.jobs > 1:
            spawn = multiprocessing.get_context("spawn")
            together = stack.enter_context(concurrent.futures.ProcessPoolExecutor(args.jobs, mp_context=spawn)).map
        for name, row in together(one_row, *zip(*tasks, strict=True)) if tasks else ():
            print(row, flush=True)
            found.setdefault(name, []).append([float(cell) for cell in row.split()[3:5]])
    means = {name: np.mean(rows, axis=0) for name, rows in found.items()}
    for name, mean in means.items():
        print(f"{name:<22} mean        {mean[0]:.4f}  {mean[1]:7.4f}   of {len(found[name])}")
    if len(means) > 1:
        print(f"all sets               mean        {np.mean(list(means.values()), axis=0).round(4)}   of {len(means)}")


if __name__ == "__main__":
    main()
