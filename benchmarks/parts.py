"""A series in parts: `python -m benchmarks.parts [exactness] [bytes] [work] [memory] [cluster] [thousand]`.

Exactness beside the whole, what goes to a part and back, the work of eight parts beside one process, a file ten times as large
as the memory that may be had, rounds on a local Dask cluster, and what all of it would be for a thousand workers, on paper.
"""

import argparse
import gc
import os
import pickle
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np

PARTS = 8
LIMIT = 32  # MB that the fit of a file may add, in `memory`
WORKERS = 1000
WIRE = 1e8  # bytes a second into the client, of a plain network: the only number that nothing here measures


def series(N: int) -> tuple[np.ndarray, np.ndarray]:
    """Irregular times, and values at them."""
    rng = np.random.default_rng(0)
    t = np.sort(rng.uniform(0, N / 10, N))
    return t, np.sin(t) + 0.3 * rng.standard_normal(N)


def evidences(gp: Any, t: np.ndarray, y: np.ndarray, parts: int, crew: Any = None) -> tuple[Any, Any, Any]:
    """The evidence in parts, by one filter, and what is known of the parts."""
    from structgp.crew import Here
    from structgp.inputs.layouts import as_inputs
    from structgp.inputs.observations import read_observations
    from structgp.learn.evidence import GaussianEvidence
    from structgp.learn.parts import SeriesEvidence
    from structgp.process.parts import _engine, in_time, read_parts

    cut = lambda x: np.array_split(x, parts)
    cuts, known = in_time(read_parts((cut(t), cut(y), [None] * parts), gp, "error", crew or Here(1e12), {}), gp)
    ours = SeriesEvidence(gp, *known, _engine(gp, cuts, None)[0], cuts.series)
    inputs = as_inputs(t)
    data = read_observations(gp.likelihood, y, None, "error", inputs)
    whole = gp.plan(t, "markov", y=y).engine
    return ours, GaussianEvidence(gp, inputs, data, whole), known


def kernels() -> dict[str, Any]:
    """Kernels with 2, 3 and 11 states."""
    import structgp as sg

    season = sg.Matern32(1.0) + sg.Periodic(period=6.0, lengthscale=2.0)
    return {"Matern32": sg.Matern32(), "Matern52": sg.Matern52(), "Matern32 + Periodic": season}


def exactness(N: int) -> None:
    import structgp as sg
    from structgp.parameters.tree import free_vector

    print(f"exactness: {N:,} points in {PARTS} parts beside one filter, relative")
    t, y = series(N)
    for name, kernel in kernels().items():
        gp = sg.GP(kernel, sg.Gaussian(0.1))
        ours, whole, _ = evidences(gp, t, y, PARTS)
        theta = free_vector(gp)
        with jax.enable_x64(True):
            (a, da), (b, db) = ours(theta), whole(theta)
        print(f"  {name:<20} value {abs(a - b) / abs(b):.1e}, gradient {np.max(np.abs(da - db)) / np.max(np.abs(db)):.1e}")


def bytes_moved(N: int) -> None:
    import structgp as sg
    from structgp.learn import parts
    from structgp.parameters.tree import free_vector

    print("bytes of a part in an evaluation, pickled as they are sent: to it and back, in the first and in the second round")
    t, y = series(N)
    for name, kernel in kernels().items():
        gp = sg.GP(kernel, sg.Gaussian(0.1))
        ours, _, known = evidences(gp, t, y, 2)
        theta, size = free_vector(gp), lambda value: len(pickle.dumps(value))
        with jax.enable_x64(True):
            engine = ours.tuned(gp)
            held = known.handles[1].value()
            message, others = parts.condense(theta, held, engine), ours.others(theta, engine)[1]
            slopes = parts.Slopes(np.asarray(-0.5), -0.5 * np.eye(1))
            share = parts.contribute(theta, held, others, slopes, engine)
        sent, news = size((theta, engine)), size((theta, others, slopes, engine))
        print(f"  {name:<20} {len(message.A)} states: {sent} + {size(message)}, {news} + {size(share)}")


def work(N: int, rounds: int) -> dict[str, float]:
    """CPU seconds of each step, in turn with one filter over all of it."""
    import structgp as sg
    from structgp.engines import chain_parts
    from structgp.learn import parts
    from structgp.parameters.tree import free_vector

    gp = sg.GP(sg.Matern32(), sg.Gaussian(0.1))
    t, y = series(N)
    ours, whole, known = evidences(gp, t, y, PARTS)
    theta, found = free_vector(gp), {"edges": [], "whole message": [], "meet": [], "contribute": [], "one filter": []}
    with jax.enable_x64(True):
        engine, held = ours.tuned(gp), [handle.value() for handle in known.handles]
        slopes = parts.Slopes(np.asarray(-0.5), -0.5 * np.eye(1))

        def took(name: str, function: Any) -> Any:
            began = time.process_time()
            result = function()
            found[name].append(time.process_time() - began)
            return result

        for turn in range(rounds + 1):
            if turn == 1:  # the first compiles
                found = {name: [] for name in found}
            messages = took("edges", lambda: [parts.condense(theta, part, engine) for part in held])
            took("whole message", lambda: [jax.block_until_ready(chain_parts._whole(gp, part.part, engine)) for part in held])
            others = took("meet", lambda: chain_parts.meet(gp, 0.0, engine, messages))  # noqa: B023
            both = lambda: [parts.contribute(theta, *pair, slopes, engine) for pair in zip(held, others, strict=True)]  # noqa: B023
            took("contribute", both)
            took("one filter", lambda: jax.block_until_ready(whole(theta)))
    seconds = {name: statistics.median(times) for name, times in found.items()}
    one = seconds["one filter"]
    print(f"work: {N:,} points in {PARTS} parts in one process, CPU seconds (median of {rounds}), and beside one filter")
    for name, value in seconds.items():
        print(f"  {name:<16} {value:8.4f}  {value / one:6.3f}")
    total = seconds["edges"] + seconds["meet"] + seconds["contribute"]
    print(f"  {'all of it':<16} {total:8.4f}  {total / one:6.3f}")
    return seconds


def memory(N: int) -> None:
    """A fit in a process that may add a tenth of the file, and no more."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.parquet"
        write(path, N)
        code = f"from benchmarks.parts import limited; limited({str(path)!r}, {N})"
        subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, "POLARS_MAX_THREADS": "1"})


def write(path: Path, N: int) -> None:
    """A Parquet file in groups of rows, without compression."""
    import polars as pl

    t, y = series(N)
    pl.DataFrame({"t": t, "y": y}).write_parquet(path, compression="uncompressed", row_group_size=2**17)


def limited(path: str, N: int) -> None:
    """Fit a file under a limit of what this process may allocate beyond what its programs take."""
    import structgp as sg
    from structgp.crew import Here

    gp, options = sg.GP(sg.Matern32(), sg.Gaussian(0.1)), {"over": Here(0), "max_evaluations": 3}
    rows = sg.ParquetBatches(path, "y", rows=2**17)
    with tempfile.TemporaryDirectory() as folder:  # everything is compiled and loaded
        small = Path(folder) / "rows.parquet"
        write(small, 2**17 * 3)
        gp.fit(dataclass_replace(rows, small), **options)
    gc.collect()
    before = kilobytes("VmData")
    resource.setrlimit(resource.RLIMIT_DATA, (1024 * before + LIMIT * 2**20,) * 2)
    began = time.process_time()
    fitted = gp.fit(rows, **options)
    size, peak = os.path.getsize(path) / 2**20, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"memory: {size:.0f} MB ({N:,} rows) fitted where {LIMIT} MB may be added (RLIMIT_DATA), one part after the other")
    print(f"  {fitted.plan}")
    seconds = time.process_time() - began
    print(f"  {fitted.learning.evaluations} evaluations in {seconds:.1f} CPU s, peak {peak:.0f} MB with all programs")


def dataclass_replace(rows: Any, path: Path) -> Any:
    import dataclasses

    return dataclasses.replace(rows, path=str(path))


def kilobytes(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name))


def nothing(number: int) -> int:
    """An empty task."""
    return number


def cluster(N: int) -> float:
    """Rounds of empty tasks and a fit on two workers; the seconds that a task takes of the scheduler."""
    from distributed import Client, LocalCluster

    import structgp as sg
    from structgp.crew import Cluster

    options: dict[str, Any] = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None}
    with LocalCluster(**options) as local, Client(local) as client:
        crew, times = Cluster(client), {}
        for tasks in (8, 200):
            crew.map(nothing, range(tasks))
            spent = []
            for _ in range(5):
                began = time.perf_counter()
                crew.map(nothing, range(tasks))
                spent.append(time.perf_counter() - began)
            times[tasks] = statistics.median(spent)
        each = (times[200] - times[8]) / 192
        few, many = 1e3 * times[8], 1e3 * times[200]
        print(f"cluster: a round of 8 empty tasks {few:.0f} ms, of 200 {many:.0f} ms: {1e3 * each:.2f} ms a task")
        gp = sg.GP(sg.Matern32(), sg.Gaussian(0.1))
        t, y = series(N)
        ours, whole, _ = evidences(gp, t, y, PARTS, crew)
        theta = np.zeros(3)
        with jax.enable_x64(True):
            for _ in range(3):
                ours(theta)
            wall = [timed(lambda: ours(theta)) for _ in range(5)]
            jax.block_until_ready(whole(theta))
            one = [timed(lambda: jax.block_until_ready(whole(theta))) for _ in range(5)]
        seconds, ratio = statistics.median(wall), statistics.median(wall) / statistics.median(one)
        print(f"  {N:,} points in {PARTS} parts on 2 workers: {seconds:.2f} s an evaluation, {ratio:.2f} of one filter")
    return max(each, 1e-4)


def timed(function: Any) -> float:
    began = time.perf_counter()
    function()
    return time.perf_counter() - began


def thousand(seconds: dict[str, float], N: int, task: float, sent: int = 1000) -> None:
    """What an evaluation takes on very many workers, from the constants of `work` and `cluster`."""
    point, edges, meet = seconds["contribute"] / N, seconds["edges"] / PARTS, seconds["meet"] / PARTS
    print(f"{WORKERS} workers on paper: two rounds of as many tasks, {sent} B each way, {1e9 * point:.0f} ns a point")
    print("  points a worker   points in all   seconds   of them work   times one worker")
    fixed = 2 * WORKERS * task + WORKERS * meet + 4 * WORKERS * sent / WIRE + edges
    for each in (10**5, 10**6, 10**7, 10**8):
        wall = fixed + each * point
        one = WORKERS * each * point
        print(f"  {each:>15,} {WORKERS * each:>15,} {wall:>9.3g} {each * point / wall:>14.0%} {one / wall:>18.0f}")
    half = fixed / point
    print(f"  half of the time is work from {half:.2g} points a worker on")


def main() -> None:
    """Parse and run."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.parts", description=__doc__)
    names = ("exactness", "bytes", "work", "memory", "cluster", "thousand")
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"of {', '.join(names)} (default: all)")
    parser.add_argument("--points", type=int, default=10**6, help="of the series (default: a million)")
    parser.add_argument("--rounds", type=int, default=5, help="how often each step of `work` is timed")
    options = parser.parse_args()
    unknown = set(options.cases) - set(names)
    if unknown:
        parser.error(f"no such case: {', '.join(sorted(unknown))}; there are {', '.join(names)}")
    cases = options.cases or names
    if "exactness" in cases:
        exactness(options.points // 5)
    if "bytes" in cases:
        bytes_moved(10_000)
    seconds = work(options.points, options.rounds) if {"work", "thousand"} & set(cases) else {}
    if "memory" in cases:
        memory(10 * LIMIT * 2**20 // 16)
    task = cluster(options.points) if {"cluster", "thousand"} & set(cases) else 0.0
    if "thousand" in cases:
        thousand(seconds, options.points, task)


if __name__ == "__main__":
    main()
