"""Inducing inputs: the evidence and its gradient beside others, and accuracy on real data.

Time, as for all problems: ``python -m benchmarks inducing-evidence``. Accuracy on the first stored split of each set, one row
each, in CPU seconds of this process (learning and predicting, compilation included), which other processes on the machine do
not change much:

    python -m benchmarks.problems.inducing                       # regression sets with the numbers of inputs below
    python -m benchmarks.problems.inducing kin40k --inputs 500 --method vfe --kernel se
    python -m benchmarks.problems.inducing raetsch_ringnorm usps --inputs 2 --splits 3
    python -m benchmarks.problems.inducing kin40k elevators --redraw 1        # rows divided anew
    python -m benchmarks.problems.inducing kin40k elevators --peer            # SGPR of GPyTorch, 100 steps of Adam
    python -m benchmarks.problems.inducing uci_kin8nm uci_power --splits 3 --start plain   # without the stages of learning
    python -m benchmarks.problems.inducing raetsch --splits 10 --jobs 16      # table 2.1 of the seed, with its inputs
    python -m benchmarks.problems.inducing usps --inputs 400 --learn          # more numbers in the inputs than rows
    python -m benchmarks.problems.inducing parquet --rows 1000000             # a temporary file: time and peak memory
    python -m benchmarks.problems.inducing parquet --rows 1000000 --way memory
    python -m benchmarks.problems.inducing stream --rows 1000000              # 200 inputs; saved and resumed half way
    python -m benchmarks.problems.inducing accelerator --rows 500000 --inputs 1000     # one evidence with its gradient

Inputs and targets are standardised by the training rows; NMSE is the squared error over the variance of the test targets, MNLP
the mean negative log density of standardised targets. For labels: error rate and mean negative log probability.
"""

import argparse
import concurrent.futures
import contextlib
import multiprocessing
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from benchmarks.data import Part, arrays, load
from benchmarks.registry import Result, Run, problem

D, M = 8, 500
NOISE, LENGTH = 0.1, 1.5
BLOCK = 2**14  # rows of a stream at a time
STEPS, RATE = 100, 0.1  # of Adam, for GPyTorch
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
    _, bound = sgpr(data, LENGTH)

    def call() -> Result:
        clock = time.process_time()
        value = bound()
        value.backward()
        return {"evidence": float(value), "CPU s": time.process_time() - clock}

    return Run(call)


def sgpr(data: Rows, lengthscale: float) -> tuple[Any, Callable[[], Any]]:
    """GPyTorch's model of the same with its inputs learned, and its bound as a tensor, gradients at zero."""
    import gpytorch
    import torch

    tensor = lambda values: torch.as_tensor(values, dtype=torch.float64)
    X, y = tensor(data.X), tensor(data.y)

    class Model(gpytorch.models.ExactGP):
        def __init__(self, likelihood: object) -> None:
            super().__init__(X, y, likelihood)
            self.mean = gpytorch.means.ZeroMean()
            base = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel(ard_num_dims=X.shape[1]))
            self.kernel = gpytorch.kernels.InducingPointKernel(base, tensor(data.Z).clone(), likelihood)

        def forward(self, x: object) -> object:
            return gpytorch.distributions.MultivariateNormal(self.mean(x), self.kernel(x))

    likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
    likelihood.noise = NOISE
    model = Model(likelihood).double().train()
    model.kernel.base_kernel.outputscale, model.kernel.base_kernel.base_kernel.lengthscale = 1.0, lengthscale
    bound = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)

    def call() -> Any:
        model.zero_grad(set_to_none=True)
        return bound(model(X), y) * len(y)

    return model, call


def by_gpytorch(X: np.ndarray, y: np.ndarray, Xs: np.ndarray, inputs: int) -> tuple[np.ndarray, np.ndarray, int]:
    """Means and standard deviations of new observations after some steps of Adam, from random rows as inputs; and the steps."""
    import torch

    Z = X[np.random.default_rng(0).permutation(len(X))[:inputs]]
    model, bound = sgpr(Rows(X, y, Z), float(np.sqrt(X.shape[1])))
    adam = torch.optim.Adam(model.parameters(), lr=RATE)
    for _ in range(STEPS):
        loss = -bound() / len(y)
        loss.backward()
        adam.step()
    model.eval()
    with torch.no_grad():
        p = model.likelihood.eval()(model(torch.as_tensor(Xs)))
        return p.mean.numpy(), p.variance.sqrt().numpy(), STEPS


def by_us(X: np.ndarray, y: np.ndarray, Xs: np.ndarray, inputs: int, method: str, kernel: str) -> tuple[Any, Any, int]:
    """The same of ours."""
    import structgp as sg

    kernels = {"se": sg.SquaredExponential, "m52": sg.Matern52, "m32": sg.Matern32}
    fitted = sg.GP(kernels[kernel](np.ones(X.shape[1])), sg.Gaussian(0.1)).fit(X, y, approximate=sg.Inducing(inputs, method))
    p = fitted.predict(Xs)
    return p.mean, p.observed.sd, fitted.learning.evaluations


def regression(part: Part, inputs: int, args: argparse.Namespace) -> str:
    """NMSE, MNLP and coverage of one fit."""
    center, scale, level, unit = part.X_train.mean(0), part.X_train.std(0), part.y_train.mean(), part.y_train.std()
    scale = np.where(scale > 1e-9 * np.abs(center), scale, 1.0)  # of a column that is constant
    X, Xs = ((rows - center) / scale for rows in (part.X_train, part.X_test))
    y, ys = (part.y_train - level) / unit, (part.y_test - level) / unit
    clock = time.process_time()
    given = X, y, Xs, inputs
    mean, sd, count = by_gpytorch(*given) if args.peer else by_us(*given, args.method, args.kernel)
    seconds = time.process_time() - clock
    nmse, off = np.mean((mean - ys) ** 2) / np.var(ys), (ys - mean) / sd
    mnlp = np.mean(0.5 * off**2 + np.log(sd) + 0.5 * np.log(2 * np.pi))
    return f"{nmse:.4f}  {mnlp:7.4f}  {np.mean(np.abs(off) < 1.96):.3f}  {seconds:6.1f}  {count:4d}"


class LabelScore(NamedTuple):
    """Error rate, mean negative log probability, CPU seconds and evaluations of one fit."""

    error: float
    negative_log: float
    seconds: float
    evaluations: int

    def __str__(self) -> str:
        return f"{self.error:.4f}  {self.negative_log:7.4f}    -    {self.seconds:6.1f}  {self.evaluations:4d}"


def labels(part: Part, inputs: int, inference: str | None, learn: bool | None) -> LabelScore:
    """One fit."""
    import structgp as sg

    clock = time.process_time()
    structure = f"inducing:{inputs}" if learn is None else sg.Inducing(inputs, learn=learn)
    model = sg.GPClassifier(structure=structure, inference=inference, seconds=None).fit(part.X_train, part.y_train)
    seconds = time.process_time() - clock
    column = int(np.flatnonzero(model.classes_ == model.classes_[-1])[0])
    p = np.clip(model.predict_proba(part.X_test)[:, column], 1e-12, 1 - 1e-12)
    seen = part.y_test == model.classes_[-1]
    nlp = -np.mean(np.log(np.where(seen, p, 1 - p)))
    return LabelScore(float(np.mean((p > 0.5) != seen)), float(nlp), seconds, model.fitted_.learning.evaluations)


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


def stream(rows: int, inputs: int, lengthscale: float) -> str:
    """Rows of four columns in blocks: rows a second, memory, and the same numbers after it was saved and loaded half way."""
    import resource
    import tempfile
    from pathlib import Path

    import structgp as sg

    peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
    gp = sg.GP(sg.SquaredExponential(np.full(4, lengthscale)), sg.Gaussian(0.1))

    def blocks(first: int, last: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for at in range(first, last, BLOCK):
            rng = np.random.default_rng(at)
            X = rng.uniform(-2, 2, (min(BLOCK, last - at), 4))
            yield X, np.sin(2 * X[:, 0]) * X[:, 1] + 0.3 * rng.normal(size=len(X))

    begun = gp.stream(approximate=sg.Inducing(inputs))
    half = rows // 2 // BLOCK * BLOCK
    for X, y in blocks(0, BLOCK):
        begun = begun.update(X, y)
    clock, cpu, before = time.perf_counter(), time.process_time(), peak()
    for X, y in blocks(BLOCK, half):
        begun = begun.update(X, y)
    wall, cpu = time.perf_counter() - clock, time.process_time() - cpu
    with tempfile.TemporaryDirectory() as folder:
        begun.save(Path(folder) / "half.structgp")
        ends = [begun, sg.load(Path(folder) / "half.structgp")]
    for X, y in blocks(half, rows):
        ends = [one.update(X, y) for one in ends]
    new = np.random.default_rng(1).uniform(-2, 2, (1000, 4))
    means = [one.predict(new).mean for one in ends]
    truth = np.sin(2 * new[:, 0]) * new[:, 1]
    return (
        f"{(half - BLOCK) / wall:.0f} rows/s, {(half - BLOCK) / cpu:.0f} rows/CPU s, {peak() - before:.0f} MB more than after "
        f"{BLOCK} rows; NMSE of f {np.mean((means[0] - truth) ** 2) / truth.var():.5f}; resumed: differs by "
        f"{np.max(np.abs(means[0] - means[1])):.1g}"
    )


def accelerator(rows: int, inputs: int, method: str) -> str:
    """One evidence with its gradient where JAX runs, the best of five."""
    import jax

    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (rows, D))
    y = np.sin(2 * X[:, 0]) * X[:, 1] + 0.3 * rng.normal(size=rows)
    objective, theta = objective_of(Rows(X, y, X[:inputs] + 0.01), method)
    seconds = []
    for _ in range(6):
        clock = time.perf_counter()
        value, _ = objective(theta)
        seconds.append(time.perf_counter() - clock)
    device = jax.devices()[0]
    memory = (device.memory_stats() or {}).get("peak_bytes_in_use", 0) / 2**30
    return (
        f"{device.device_kind}: {rows} rows, {inputs} inputs, {method}: {1e3 * min(seconds[1:]):.1f} ms "
        f"(first {seconds[0]:.1f} s, peak {memory:.1f} GiB), evidence {value:.8g}"
    )


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
    row = labels(part, inputs, args.inference, args.learn) if few else regression(part, inputs, args)
    return name, f"{name:<22} {number:3d} {inputs:5d}  {row}"


def main() -> None:
    """Print a row for each division of each set, and their means."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="*", default=list(SETS))
    parser.add_argument("--inputs", type=int)
    parser.add_argument("--method", default="auto")
    parser.add_argument("--kernel", default="se", choices=["se", "m52", "m32"])
    parser.add_argument("--inference", default=None)
    parser.add_argument("--learn", action="store_true", default=None, help="move the inducing inputs of labels, however many")
    parser.add_argument("--splits", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="the split to begin with")
    parser.add_argument("--redraw", type=int, help="a seed by which the rows are divided anew, in place of the stored splits")
    parser.add_argument("--start", default="stages", choices=["stages", "plain"], help="plain: one climb from a default start")
    parser.add_argument("--peer", action="store_true", help="GPyTorch's SGPR in place of ours")
    parser.add_argument("--jobs", type=int, default=1, help="processes side by side")
    parser.add_argument("--rows", type=int, default=1_000_000, help="for 'parquet', 'stream' and 'accelerator'")
    parser.add_argument("--lengthscale", type=float, default=1.0, help="for 'stream': at 1 rows keep asking for other inputs")
    parser.add_argument("--way", default="batches", choices=["batches", "memory"])
    args = parser.parse_args()
    own = {
        "parquet": lambda: parquet(args.rows, args.inputs or M, args.way),
        "stream": lambda: stream(args.rows, args.inputs or 200, args.lengthscale),
        "accelerator": lambda: accelerator(args.rows, args.inputs or 1000, "vfe" if args.method == "auto" else args.method),
    }
    if len(args.sets) == 1 and args.sets[0] in own:
        print(own[args.sets[0]]())
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
