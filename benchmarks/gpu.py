"""Whole fits and everything after them on an accelerator, beside its host and GPyTorch: `python -m benchmarks.gpu [CASE …]`.

Each case is learned twice: the second fit has nothing to compile. Then the learned process is conditioned, asked at 1,000
places, drawn from and given one row more, each for the second time. `--beside` does the same on the processor of the machine,
in a process of its own, and prints both; `--host` only there. With `--jobs` several processes compile side by side, and take
turns where they are timed. `--profile` says where the second fit spends its time.
"""

import argparse
import contextlib
import cProfile
import fcntl
import json
import os
import pstats
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import numpy as np

Case = tuple[Any, Any, np.ndarray, Any]


def chain(N: int) -> Case:
    """A series at irregular times."""
    import structgp as sg

    rng = np.random.default_rng(0)
    t = np.sort(rng.uniform(0, N / 10, N))
    y = np.sin(t) + 0.3 * rng.standard_normal(N)
    return sg.GP(sg.Matern52(), sg.Gaussian(0.1)), t, y, np.linspace(0, N / 10, 1000)


def labels(N: int) -> Case:
    """Labels along time, by EP."""
    import structgp as sg

    rng = np.random.default_rng(0)
    t = np.sort(rng.uniform(0, N / 10, N))
    y = (np.sin(t) + 0.5 * rng.standard_normal(N) > 0).astype(float)
    return sg.GP(sg.Matern32(), sg.Bernoulli()), t, y, np.linspace(0, N / 10, 1000)


def regular(N: int) -> Case:
    """A regular series of a kernel without a finite state."""
    import structgp as sg

    t = np.arange(N) / 10
    y = np.sin(t) + 0.3 * np.random.default_rng(0).standard_normal(N)
    return sg.GP(sg.RationalQuadratic(), sg.Gaussian(0.1)), t, y, np.linspace(0, N / 10, 1000)


def grid(side: int) -> Case:
    """A picture."""
    import structgp as sg

    rng = np.random.default_rng(0)
    axis = np.linspace(0, 1, side)
    y = np.sin(9 * axis)[:, None] * np.cos(7 * axis)[None] + 0.1 * rng.standard_normal((side, side))
    kernel = sg.Matern32(0.2).on(0) * sg.Matern32(0.2, 1.0).on(1)
    return sg.GP(kernel, sg.Gaussian(0.1)), sg.Grid(axis, axis), y, np.column_stack([np.linspace(0, 1, 1000)] * 2)


def dense(N: int) -> Case:
    """Rows of eight columns."""
    import structgp as sg

    rng = np.random.default_rng(0)
    X = rng.uniform(size=(N, 8))
    y = np.sin(4 * X[:, 0]) + X[:, 1] ** 2 + 0.1 * rng.standard_normal(N)
    return sg.GP(sg.SquaredExponential(np.ones(8)), sg.Gaussian(0.1)), X, y, rng.uniform(size=(1000, 8))


def counts(N: int) -> Case:
    """The same rows with counts, by a matrix."""
    import structgp as sg

    gp, X, y, new = dense(N)
    return sg.GP(gp.kernel, sg.Poisson()), X, np.random.default_rng(0).poisson(np.exp(y)).astype(float), new


def additive(N: int) -> Case:
    """A sum of functions of one column each."""
    import structgp as sg

    return sg.AdditiveGP(), *dense(N)[1:]


def places(N: int) -> Case:
    """Places in the plane."""
    import structgp as sg

    rng = np.random.default_rng(0)
    X = rng.uniform(0, np.sqrt(N) / 10, (N, 2))
    y = np.sin(X[:, 0]) * np.cos(X[:, 1]) + 0.1 * rng.standard_normal(N)
    return sg.GP(sg.Matern32([1.0, 1.0]), sg.Gaussian(0.1)), X, y, X[:1000] + 0.01


CASES: dict[str, tuple[Callable[[int], Case], int]] = {
    "chain-3": (chain, 1000),
    "chain-5": (chain, 10**5),
    "chain-6": (chain, 10**6),
    "chain-7": (chain, 10**7),
    "labels-3": (labels, 1000),
    "labels-6": (labels, 10**6),
    "labels-7": (labels, 10**7),
    "regular-20": (regular, 20_000),
    "grid-100": (grid, 100),
    "grid-1024": (grid, 1024),
    "grid-2048": (grid, 2048),
    "grid-4096": (grid, 4096),
    "dense-200": (dense, 200),
    "dense-2": (dense, 2000),
    "dense-5": (dense, 5000),
    "dense-20": (dense, 20_000),
    "dense-30": (dense, 30_000),
    "dense-60": (dense, 60_000),
    "counts-500": (counts, 500),
    "counts-3": (counts, 3000),
    "additive-3": (additive, 3000),
    "inducing-20": (dense, 20_000),
    "inducing-500": (dense, 500_000),
    "neighbours-100": (places, 100_000),
    "neighbours-1000": (places, 1_000_000),
}
OPERATIONS = ("fit", "evaluation", "condition", "predict", "sample", "update")


def options_of(name: str) -> dict[str, Any]:
    """What `fit` is told besides."""
    import structgp as sg

    kind = name.partition("-")[0]
    return {
        "dense": {"structure": "dense"},
        "additive": {"structure": "additive"},
        "inducing": {"approximate": sg.Inducing(1000 if name.endswith("500") else 300)},
        "neighbours": {"approximate": sg.Neighbours(20)},
    }.get(kind, {})


@contextlib.contextmanager
def a_turn() -> Iterator[None]:
    """What is timed here is timed alone among the processes that share BENCHMARKS_TURNS, a file."""
    path = os.environ.get("BENCHMARKS_TURNS")
    if not path:
        yield
        return
    with Path(path).open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def seconds(call: Callable[[], Any]) -> tuple[float, Any]:
    """How long a call takes, and its answer."""
    began = time.perf_counter()
    answer = call()
    return time.perf_counter() - began, answer


def run(name: str, profile: bool) -> dict[str, Any]:
    """Fit twice, ask everything twice, and say how long it took."""
    import structgp as sg

    make, size = CASES[name]
    gp, X, y, new = make(size)
    options = options_of(name)
    climbing: dict[str, Any] = {"restarts": 0, "progress": False, "max_evaluations": 2 if name == "dense-60" else 15}
    if isinstance(gp, sg.GP):
        climbing |= {"parameters": "best"} | options
    fit = lambda: gp.fit(X, y, **climbing)
    first, _ = seconds(fit)
    if profile:
        profiler = cProfile.Profile()
        profiler.enable()
    with a_turn():
        again, fitted = seconds(fit)
    if profile:
        profiler.disable()
        pstats.Stats(profiler).sort_stats("cumulative").print_stats(25)
    learning = fitted.learning
    row: dict[str, Any] = {"first": first, "fit": again, "evaluation": learning.seconds / learning.evaluations}
    row |= {"evaluations": learning.evaluations, "log evidence": float(fitted.log_evidence), "by": fitted.plan.engine.name}
    row["host"] = fitted.plan.on_host
    learned = fitted.gp
    more = (new[-1:], y[-1, -1:]) if isinstance(X, sg.Grid) else (X[-1:] + 0.01, y[-1:])
    calls: dict[str, Callable[[], Any]] = {
        "condition": lambda: learned.condition(X, y, **options),
        "predict": lambda: fitted.predict(new),
        "sample": lambda: fitted.sample(new[:100], seed=0),
        "update": lambda: fitted.update(*more),
    }
    for operation, call in calls.items():
        try:
            call()
            with a_turn():
                row[operation] = seconds(call)[0]
        except Exception as met:  # the others are worth measuring
            row[operation] = f"{type(met).__name__}: {str(met).splitlines()[0][:60]}"
    return row


def gpytorch(name: str) -> float | str:
    """Seconds of one evidence with its gradient by GPyTorch, in double precision, the best of three; or why it cannot."""
    try:
        import gpytorch as gt
        import torch
    except ImportError:
        return "not installed"
    kind, (_, N) = name.partition("-")[0], CASES[name]
    if kind not in ("dense", "inducing"):
        return "-"
    device = "cuda" if torch.cuda.is_available() else "cpu"
    rng = np.random.default_rng(0)
    X = torch.as_tensor(rng.uniform(size=(N, 8)), device=device)
    y = torch.sin(4 * X[:, 0]) + X[:, 1] ** 2 + 0.1 * torch.as_tensor(rng.standard_normal(N), device=device)

    class Model(gt.models.ExactGP):
        def __init__(self, likelihood: Any) -> None:
            super().__init__(X, y, likelihood)
            own = gt.kernels.ScaleKernel(gt.kernels.RBFKernel(ard_num_dims=8))
            inducing = X[: options_of(name)["approximate"].inputs].clone() if kind == "inducing" else None
            self.covar_module = own if inducing is None else gt.kernels.InducingPointKernel(own, inducing, likelihood)
            self.mean_module = gt.means.ZeroMean()

        def forward(self, x: Any) -> Any:
            return gt.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))

    try:
        likelihood = gt.likelihoods.GaussianLikelihood()
        likelihood.noise = 0.1
        model = Model(likelihood).double().to(device).train()
        evidence, best = gt.mlls.ExactMarginalLogLikelihood(likelihood, model), np.inf
        with gt.settings.max_cholesky_size(10**6):
            for _ in range(4):
                with a_turn():
                    began = time.perf_counter()
                    model.zero_grad()
                    (-evidence(model(X), y)).backward()
                    if device == "cuda":
                        torch.cuda.synchronize()
                    best = min(best, time.perf_counter() - began)
        return best
    except Exception as met:
        return f"{type(met).__name__}"


def elsewhere(name: str, what: str, limit: float, host_path: str = "", alone: bool = False) -> Any:
    """A row from a process of its own, whose memory is its own as well; on the host with what lies in `host_path`.

    Alone it takes the memory of the accelerator at once, in one piece, as JAX does by itself.
    """
    turns = Path(tempfile.gettempdir()) / f"structgp-benchmarks-{'host' if what == 'host' else 'device'}"
    environment = os.environ | {"BENCHMARKS_TURNS": str(turns)}
    if not alone:
        environment |= {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    if what == "host":
        first = [host_path] if host_path else []
        environment |= {"JAX_PLATFORMS": "cpu", "PYTHONPATH": os.pathsep.join([*first, os.environ.get("PYTHONPATH", "")])}
    command = [sys.executable, "-m", "benchmarks.gpu", name, "--one", what]
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=limit, check=False)
    except subprocess.TimeoutExpired:
        return f"no end in {limit:.0f} s"
    last = done.stdout.strip().splitlines()[-1:] if done.returncode == 0 else []
    return json.loads(last[0]) if last else (done.stderr.strip().splitlines() or ["nothing was said"])[-1][:160]


def shown(row: Any) -> str:
    """A row as text."""
    if not isinstance(row, dict):
        return str(row)
    said = lambda value: f"{value:.4g}" if isinstance(value, float) else str(value)
    steps = "  ".join(f"{operation} {said(row.get(operation, '-'))}" for operation in OPERATIONS)
    place = ", on the host" if row.get("host") else ""
    return (
        f"first {row['first']:.3g}  {steps}  ({row['evaluations']} evaluations, {row['by']}{place}; {row['log evidence']:.8g})"
    )


def main() -> None:
    """Parse and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"of {', '.join(CASES)} (default: all)")
    parser.add_argument("--host", action="store_true", help="on the processor of the machine")
    parser.add_argument("--beside", action="store_true", help="on both, and by GPyTorch, each in a process of its own")
    parser.add_argument("--limit", type=float, default=120.0, help="seconds for each of these processes (default: 120)")
    parser.add_argument("--jobs", type=int, default=1, help="cases at a time for --beside (default: 1)")
    parser.add_argument("--host-path", default="", help="packages for the host's processes of --beside, another JAX say")
    parser.add_argument("--profile", action="store_true", help="where the second fit spends its time")
    parser.add_argument("--one", choices=("here", "host", "gpytorch"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    unknown = set(options.cases) - set(CASES)
    if unknown:
        parser.error(f"no such case: {', '.join(sorted(unknown))}; there are {', '.join(CASES)}")
    if options.host:
        os.environ["JAX_PLATFORMS"] = "cpu"
    if options.one:
        print(json.dumps(gpytorch(options.cases[0]) if options.one == "gpytorch" else run(options.cases[0], False)))
        return
    names = options.cases or list(CASES)
    if options.beside:
        rows = [(name, what) for name in names for what in ("here", "host", "gpytorch")]
        with ThreadPoolExecutor(options.jobs) as pool:
            told = options.limit, options.host_path, options.jobs == 1
            begun = {pool.submit(elsewhere, name, what, *told): (name, what) for name, what in rows}
            for done in as_completed(begun):
                name, what = begun[done]
                print(f"{name:<15} {what:<9} {shown(done.result())}", flush=True)
        return
    for name in names:
        try:
            print(f"{name:<15} {shown(run(name, options.profile))}", flush=True)
        except Exception as met:  # the others are worth measuring
            print(f"{name:<15} {type(met).__name__}: {str(met).splitlines()[0][:200]}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
