"""One measurement in a process of its own: `python -m benchmarks.worker MODULE PROBLEM METHOD SIZE [--calls n] [--seconds s]`.

The last line on stdout is a JSON object. Data are made before the clock starts. Times in seconds, memory in bytes:

    status    "ok", "unavailable" or "error", the last two with "reason"
    cold      start: import the library and build the model; first: the first call, compilation included
    warm      one number for each further call
    cpu       cold: processor seconds until after the first call; warm: of each further call, all threads together
    memory    baseline: resident with the data, before the library; ready: after start; peak: the highest until the last call
    result    what the last call returned
"""

import argparse
import contextlib
import importlib
import importlib.util
import json
import resource
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from benchmarks.registry import PROBLEMS, Method, Problem, Run, Unavailable


def measure(problem: Problem, method: Method, size: int, calls: int, seconds: float) -> dict[str, Any]:
    """Cold and warm times, memory and result of one method on one size."""
    check_installed(method)
    data = problem.make(size)
    memory = {"baseline": resident()}
    clock, busy = time.perf_counter(), time.process_time()
    run = method.start(data)
    cold = {"start": time.perf_counter() - clock}
    memory["ready"] = resident()
    cold["first"], _, result = timed(run)
    cpu: dict[str, Any] = {"cold": time.process_time() - busy}
    warm, cpu["warm"], result = warm_calls(run, calls, seconds, result)
    memory["peak"] = peak_resident()
    return {"status": "ok", "cold": cold, "warm": warm, "cpu": cpu, "memory": memory, "result": dict(result)}


def warm_calls(run: Run, calls: int, seconds: float, result) -> tuple[list[float], list[float], Any]:
    """Seconds and processor seconds of further calls, until there are enough of them or time is up; at least one."""
    times: list[float] = []
    busy: list[float] = []
    while not times or (len(times) < calls and sum(times) < seconds):
        elapsed, used, result = timed(run)
        times.append(elapsed)
        busy.append(used)
    return times, busy, result


def timed(run: Run) -> tuple[float, float, Any]:
    """Seconds, processor seconds, and what a call returned."""
    run.before()
    clock, busy = time.perf_counter(), time.process_time()
    result = run.call()
    return time.perf_counter() - clock, time.process_time() - busy, result


def check_installed(method: Method) -> None:
    missing = [name for name in method.requires if importlib.util.find_spec(name) is None]
    if missing:
        raise Unavailable(f"{', '.join(missing)} not installed")


def resident() -> int:
    """Bytes of memory held now; the peak where the system does not tell."""
    return _status("VmRSS") or peak_resident()


def peak_resident() -> int:
    """The most bytes ever held by this process.

    Linux's VmHWM starts at zero with each program; ru_maxrss, used elsewhere, can begin at the size of the parent process.
    """
    unit = 1 if sys.platform == "darwin" else 1024
    return _status("VmHWM") or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _status(key: str) -> int | None:
    path = Path("/proc/self/status")
    if not path.exists():
        return None
    lines = (line.split() for line in path.read_text().splitlines() if line.startswith(key + ":"))
    return next((int(words[1]) * 1024 for words in lines), None)


def attempt(arguments: argparse.Namespace) -> dict[str, Any]:
    """The measurement, or the reason why there is none."""
    try:
        importlib.import_module(arguments.module)
        problem = PROBLEMS[arguments.problem]
        return measure(problem, problem.methods[arguments.method], arguments.size, arguments.calls, arguments.seconds)
    except Unavailable as reason:
        return {"status": "unavailable", "reason": str(reason)}
    except Exception as error:
        return {"status": "error", "reason": f"{type(error).__name__}: {error}", "traceback": traceback.format_exc()}


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.worker")
    for name in ("module", "problem", "method"):
        parser.add_argument(name)
    parser.add_argument("size", type=int)
    parser.add_argument("--calls", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0)
    arguments = parser.parse_args()
    with contextlib.redirect_stdout(sys.stderr):
        record = attempt(arguments)
    print(json.dumps(record))


if __name__ == "__main__":
    main()
