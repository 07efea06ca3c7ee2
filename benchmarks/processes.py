"""Runs in processes of their own, so many at a time: what dies or hangs takes nothing with it, and times are not shared."""

import multiprocessing
import os
import time
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.connection import Connection, wait
from typing import Any

DIED = "the process died"


def on_one_thread() -> None:
    """Keep what is loaded from now on to one thread: here, and in processes that are started."""
    for key in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[key] = "1"
    os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1")


def _child(work: Callable[[Any], Any], job: Any, end: Connection) -> None:
    end.send(work(job))


def each(
    work: Callable[[Any], Any], jobs: Iterable[Any], workers: int, wall: float = float("inf")
) -> Iterator[tuple[Any, Any | None]]:
    """Jobs with what came of them as they end, each in a process of its own; None when it died. After `wall` seconds none is
    waited for."""
    spawn = multiprocessing.get_context("spawn")
    deadline, waiting = time.monotonic() + wall, list(jobs)
    running: dict[Any, tuple[Any, Any]] = {}
    try:
        while (waiting or running) and (left := deadline - time.monotonic()) > 0:
            while waiting and len(running) < workers:
                job, (ours, theirs) = waiting.pop(0), spawn.Pipe(duplex=False)
                process = spawn.Process(target=_child, args=(work, job, theirs), daemon=True)
                process.start()
                theirs.close()
                running[ours] = job, process
            for ready in wait(list(running), timeout=min(left, 1e6)):
                job, process = running.pop(ready)
                try:
                    found = ready.recv()
                except EOFError:
                    found = None
                process.join(1.0)
                process.terminate()  # threads that still compile
                yield job, found
    finally:
        for _, process in running.values():
            process.kill()
