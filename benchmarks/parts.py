"""A series in parts: `python -m benchmarks.parts [exactness] [bytes] [work] [memory] [pool] [cluster] [thousand]`.

Exactness beside the whole, what goes to a part and back, the work of eight parts beside one process, a file ten times as large
as the memory that may be had, evaluations by processes and on a local Dask cluster, and what all of it would be for a thousand
workers, on paper.
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


def evidences(gp: Any, t: np.ndarray, y: np.ndarray, parts: int) -> tuple[Any, Any, Any]:
    """The evidence in parts, by one filter, and who holds the parts."""
    from structgp.crew import Here

    cut = lambda x: np.array_split(x, parts)
    ours, known = in_parts(gp, (cut(t), cut(y), [None] * parts), Here(1e12))
    return ours, in_one(gp, t, y), known


def in_parts(gp: Any, sources: Any, crew: Any) -> tuple[Any, Any]:
    """The evidence in parts, and who holds them."""
    from structgp.learn.parts import SeriesEvidence
    from structgp.process.parts import _engine, in_time, read_parts

    cuts, known = in_time(read_parts(sources, gp, "error", crew, {}), gp)
    return SeriesEvidence(gp, *known, _engine(gp, cuts, None)[0], cuts.series), known


def in_one(gp: Any, t: np.ndarray, y: np.ndarray) -> Any:
    """The evidence by one filter."""
    from structgp.inputs.layouts import as_inputs
    from structgp.inputs.observations import read_observations
    from structgp.learn.evidence import GaussianEvidence

    inputs = as_inputs(t)
    data = read_observations(gp.likelihood, y, None, "error", inputs)
    return GaussianEvidence(gp, inputs, data, gp.plan(t, "markov", y=y).engine)


def kernels() -> dict[str, Any]:
    """Kernels with 2, 3 and 19 states."""
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


def cluster(N: int, workers: list[int]) -> float:
    """Rounds of empty tasks on Dask's workers, and evaluations beside one filter; the seconds that a task takes of Dask."""
    from distributed import Client, LocalCluster

    from structgp.crew import Cluster

    each = 0.0
    with File(N) as file:
        for count in workers:
            options: dict[str, Any] = {"n_workers": count, "threads_per_worker": 1, "dashboard_address": None}
            with LocalCluster(**options) as local, Client(local) as client:
                crew = Cluster(client)
                each = task_seconds(crew, f"{count} workers")
                file.beside_one(crew, count, "Dask workers")
    return max(each, 1e-4)


def pool(N: int, workers: list[int]) -> None:
    """The same by the processes of an executor, without Dask."""
    import concurrent.futures
    import multiprocessing

    from structgp.crew import Pool

    with File(N) as file:
        for count in workers:
            with concurrent.futures.ProcessPoolExecutor(count, multiprocessing.get_context("spawn")) as processes:
                file.beside_one(Pool(processes, 1e12), count, "processes", 2 + 2 * count)  # until each has all parts


class File:
    """A series in a file, and how long an evaluation takes by one filter on all of it, in seconds."""

    def __init__(self, N: int) -> None:
        import structgp as sg

        self.N, self.gp, self.theta = N, sg.GP(sg.Matern32(), sg.Gaussian(0.1)), np.zeros(3)
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name) / "rows.parquet"

    def __enter__(self) -> Any:
        write(self.path, self.N)
        with jax.enable_x64(True):
            whole = in_one(self.gp, *series(self.N))
            self.one = wall(lambda: whole(self.theta), 1)
        print(f"{self.N:,} points, value and gradient: one filter {self.one:.3f} s an evaluation", flush=True)
        return self

    def __exit__(self, *problem: object) -> None:
        self.folder.cleanup()

    def beside_one(self, crew: Any, count: int, who: str, first: int = 3) -> None:
        """An evaluation by so many workers beside one filter."""
        import structgp as sg
        from structgp.inputs.parts import sources_of

        parts = max(PARTS, 2 * count)
        rows = sg.ParquetBatches(self.path, "y", rows=-(-self.N // parts))
        ours, _ = in_parts(self.gp, sources_of(rows, None), crew)
        with jax.enable_x64(True):
            seconds = wall(lambda: ours(self.theta), first)
        words = f"{parts} parts from a file by {count} {who}"
        print(f"  {words}: {seconds:.3f} s an evaluation, {seconds / self.one:.2f} of one filter", flush=True)


def task_seconds(crew: Any, who: str) -> float:
    """What an empty task takes of the scheduler."""
    times = {tasks: wall(lambda: crew.map(nothing, range(tasks)), 1) for tasks in (8, 200)}  # noqa: B023
    each, (few, many) = (times[200] - times[8]) / 192, (1e3 * seconds for seconds in times.values())
    print(f"  {who}: a round of 8 empty tasks {few:.0f} ms, of 200 {many:.0f} ms: {1e3 * each:.2f} ms a task")
    return each


def wall(function: Any, first: int) -> float:
    """Seconds of a call after the first ones: the median of five."""
    times = []
    for _ in range(first + 5):
        began = time.perf_counter()
        jax.block_until_ready(function())
        times.append(time.perf_counter() - began)
    return statistics.median(times[first:])


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
    names = ("exactness", "bytes", "work", "memory", "pool", "cluster", "thousand")
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"of {', '.join(names)} (default: all)")
    parser.add_argument("--points", type=int, default=10**6, help="of the series (default: a million)")
    parser.add_argument(
        "--workers", type=int, nargs="+", default=[2], help="of `pool` and `cluster`, one number after the other"
    )
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
    if "pool" in cases:
        pool(options.points, options.workers)
    task = cluster(options.points, options.workers) if {"cluster", "thousand"} & set(cases) else 0.0
    if "thousand" in cases:
        thousand(seconds, options.points, task)


if __name__ == "__main__":
    main()
