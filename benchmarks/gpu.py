"""Whole fits and predictions on an accelerator, beside its host: `python -m benchmarks.gpu [CASE …] [--host] [--profile]`.

Each case is learned twice: the second fit has nothing to compile. `--host` runs the same on the processor of the machine, and
`--profile` says where the second fit spends its time.
"""

import argparse
import cProfile
import os
import pstats
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np


def chain(N: int) -> tuple[Any, Any, np.ndarray, Any]:
    """A series at irregular times."""
    import structgp as sg

    rng = np.random.default_rng(0)
    t = np.sort(rng.uniform(0, N / 10, N))
    y = np.sin(t) + 0.3 * rng.standard_normal(N)
    return sg.GP(sg.Matern32(), sg.Gaussian(0.1)), t, y, np.linspace(0, N / 10, 1000)


def labels(N: int) -> tuple[Any, Any, np.ndarray, Any]:
    """Labels along time, by EP."""
    import structgp as sg

    rng = np.random.default_rng(0)
    t = np.sort(rng.uniform(0, N / 10, N))
    y = (np.sin(t) + 0.5 * rng.standard_normal(N) > 0).astype(float)
    return sg.GP(sg.Matern32(), sg.Bernoulli()), t, y, np.linspace(0, N / 10, 1000)


def grid(side: int) -> tuple[Any, Any, np.ndarray, Any]:
    """A picture."""
    import structgp as sg

    rng = np.random.default_rng(0)
    axis = np.linspace(0, 1, side)
    y = np.sin(9 * axis)[:, None] * np.cos(7 * axis)[None] + 0.1 * rng.standard_normal((side, side))
    kernel = sg.Matern32(0.2).on(0) * sg.Matern32(0.2, 1.0).on(1)
    return sg.GP(kernel, sg.Gaussian(0.1)), sg.Grid(axis, axis), y, np.column_stack([np.linspace(0, 1, 1000)] * 2)


def dense(N: int) -> tuple[Any, Any, np.ndarray, Any]:
    """Rows of eight columns."""
    import structgp as sg

    rng = np.random.default_rng(0)
    X = rng.uniform(size=(N, 8))
    y = np.sin(4 * X[:, 0]) + X[:, 1] ** 2 + 0.1 * rng.standard_normal(N)
    return sg.GP(sg.SquaredExponential(np.ones(8)), sg.Gaussian(0.1)), X, y, rng.uniform(size=(1000, 8))


def inducing(N: int) -> tuple[Any, Any, np.ndarray, Any]:
    """Rows of eight columns through a thousand inducing inputs."""
    return dense(N)


CASES: dict[str, tuple[Callable, int]] = {
    "chain-6": (chain, 10**6),
    "chain-7": (chain, 10**7),
    "labels-6": (labels, 10**6),
    "labels-7": (labels, 10**7),
    "grid-1024": (grid, 1024),
    "grid-2048": (grid, 2048),
    "grid-4096": (grid, 4096),
    "dense-5": (dense, 5000),
    "dense-20": (dense, 20000),
    "dense-30": (dense, 30000),
    "dense-60": (dense, 60000),
    "inducing-500": (inducing, 500_000),
}


def run(name: str, profile: bool) -> None:
    """Fit twice, predict twice, and say how long it took."""
    import structgp as sg

    make, size = CASES[name]
    gp, X, y, new = make(size)
    options: dict[str, Any] = {"structure": "dense"} if name.startswith("dense") else {}
    if name.startswith("inducing"):
        options["approximate"] = sg.Inducing(1000)
    fit = lambda: gp.fit(X, y, restarts=0, progress=False, max_evaluations=15, **options)
    seconds = []
    fitted = None
    for i in range(2):
        if profile and i:
            profiler = cProfile.Profile()
            profiler.enable()
        began = time.perf_counter()
        fitted = fit()
        seconds.append(time.perf_counter() - began)
        if profile and i:
            profiler.disable()
            pstats.Stats(profiler).sort_stats("cumulative").print_stats(25)
    learning = fitted.learning
    each = learning.seconds / learning.evaluations
    times = []
    for _ in range(2):
        began = time.perf_counter()
        fitted.predict(new)
        times.append(time.perf_counter() - began)
    print(
        f"{name:<10} first fit {seconds[0]:7.2f} s   second {seconds[1]:7.2f} s   "
        f"{learning.evaluations} evaluations of {each:.4f} s   "
        f"predict 1,000: {times[1]:.4f} s   log evidence {fitted.log_evidence:.6g}",
        flush=True,
    )


def main() -> None:
    """Parse and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"of {', '.join(CASES)} (default: all)")
    parser.add_argument("--host", action="store_true", help="on the processor of the machine")
    parser.add_argument("--profile", action="store_true", help="where the second fit spends its time")
    options = parser.parse_args()
    unknown = set(options.cases) - set(CASES)
    if unknown:
        parser.error(f"no such case: {', '.join(sorted(unknown))}; there are {', '.join(CASES)}")
    if options.host:
        os.environ["JAX_PLATFORMS"] = "cpu"
    import jax

    print(jax.devices()[0].device_kind, flush=True)
    for name in options.cases or CASES:
        try:
            run(name, options.profile)
        except Exception as met:  # the others are worth measuring
            print(f"{name:<10} {type(met).__name__}: {str(met).splitlines()[0][:200]}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
