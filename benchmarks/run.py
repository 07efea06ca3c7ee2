"""Runs problems: each (method, size) in a fresh process, all methods of a size in turn, round after round."""

import itertools
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.machine import Watch, wait_until_idle
from benchmarks.registry import Problem

ROOT = Path(__file__).resolve().parents[1]
Record = dict[str, Any]


@dataclass(frozen=True)
class Limits:
    """Seconds for one process, warm calls in it, and seconds to wait for an idle machine before it."""

    timeout: float = 600.0
    calls: int = 5
    wait_idle: float = 0.0


def run_problem(
    problem: Problem,
    sizes: Iterable[int],
    methods: Iterable[str],
    repeat: int,
    limits: Limits,
    tell: Callable[[str], None] = lambda line: None,
) -> list[Record]:
    """Every measurement of a problem, one record per process; Ctrl-C ends it and keeps what there is."""
    records: list[Record] = []
    try:
        for record in measurements(problem, sorted(sizes), list(methods), repeat, limits):
            tell(progress(record))
            records.append(record)
    except KeyboardInterrupt:
        tell(f"{problem.name}: stopped; the table holds what was measured")
    return records


def measurements(problem: Problem, sizes: list[int], methods: list[str], repeat: int, limits: Limits) -> Iterator[Record]:
    """The methods in turn, so that no disturbance hits one alone, in rounds, from the smallest size on."""
    gone: dict[str, Record] = {}  # methods not tried again: unavailable or too slow for good, failed for this size
    for size in sizes:
        gone = {name: record for name, record in gone.items() if record["status"] != "error"}
        for turn, name in itertools.product(range(repeat), methods):
            if name in gone and turn > 0:
                continue
            record = skipped(gone[name]) if name in gone else run_worker(problem, name, size, limits)
            record = {"problem": problem.name, "method": name, "size": size, "round": turn, **record}
            if record["status"] != "ok":
                gone[name] = record
            yield record


def run_worker(problem: Problem, method: str, size: int, limits: Limits) -> Record:
    """One measurement in a fresh interpreter, with the part of the machine that others used meanwhile."""
    wait_until_idle(limits.wait_idle)
    watch = Watch()
    record = spawn(problem, method, size, limits)
    return {"others": watch.others(), **record}


def spawn(problem: Problem, method: str, size: int, limits: Limits) -> Record:
    """What the worker says; whatever goes wrong there becomes a record with a reason."""
    words = [sys.executable, "-m", "benchmarks.worker", problem.methods[method].module, problem.name, method, str(size)]
    words += ["--calls", str(limits.calls), "--seconds", str(problem.seconds)]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=limits.timeout, env=environment(), check=False)
    except subprocess.TimeoutExpired:
        return {"status": "timeout", "reason": f"more than {limits.timeout:g} s"}
    if done.returncode != 0 or not done.stdout.strip():
        return {
            "status": "error",
            "reason": f"worker ended with code {done.returncode}{last_line(done.stderr)}",
            "stderr": done.stderr,
        }
    return json.loads(done.stdout.strip().splitlines()[-1])


def environment() -> dict[str, str]:
    """This checkout first on the path, threads as they are, no programs compiled by earlier runs, but modules that were.

    A fresh process is not a fresh installation: Python keeps the bytecode of modules unless it is told not to.
    """
    path = [str(ROOT), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
    left_out = ("JAX_COMPILATION_CACHE_DIR", "PYTHONDONTWRITEBYTECODE")
    env = {key: value for key, value in os.environ.items() if key not in left_out}
    return env | {"PYTHONPATH": os.pathsep.join(part for part in path if part)}


def skipped(earlier: Record) -> Record:
    """The record of a method that is not tried because a smaller size has already told."""
    if earlier["status"] == "unavailable":
        return {"status": "unavailable", "reason": earlier["reason"]}
    reason = earlier["reason"].removeprefix("not tried: ")
    where = "" if reason.startswith("N = ") else f"N = {earlier['size']}: "
    return {"status": earlier["status"], "reason": f"not tried: {where}{reason}"}


def last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return f": {lines[-1]}" if lines else " (killed? a lack of memory looks like this)"


def progress(record: Record) -> str:
    what = f"{min(record['warm']):.4g} s" if record["status"] == "ok" else f"{record['status']}: {record['reason']}"
    return f"{record['problem']}  N = {record['size']}  round {record['round'] + 1}  {record['method']}  {what}"
