"""An experiment falls into calls that need nothing of one another: a seed, a split, a model. Here they are made and kept.

A call that several experiments ask for is made once. With several processes each call has one of its own; with a folder, what
ended is kept there as JSON, and is not made again by a run that is started later.
"""

import hashlib
import json
import time
import traceback
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.processes import DIED, each, on_one_thread
from benchmarks.registry import Unavailable

from study.machine import last_change, machine, versions
from study.registry import Call


class Made(NamedTuple):
    """What came of a call, what it took, and with what; or a reason why there is nothing."""

    value: Any = None
    cpu: float = 0.0
    wall: float = 0.0
    code: str = ""
    versions: dict[str, str] | None = None
    machine: str = ""
    reason: str = ""


def make(call: Call) -> Made:
    """In this process."""
    cpu, wall = time.process_time(), time.perf_counter()
    try:
        value = call.work(*call.args)
    except Unavailable as reason:
        return Made(reason=str(reason))
    except Exception:  # the others are made all the same
        return Made(reason=traceback.format_exc())
    spent = time.process_time() - cpu, time.perf_counter() - wall
    return Made(value, *spent, last_change(), versions(), machine())


def make_all(calls: Iterable[Call], jobs: int = 1, folder: Path | None = None) -> Iterator[tuple[Call, Made]]:
    """All of them as they end: what is kept first, then the others, in as many processes as there are jobs."""
    left = []
    for call in dict.fromkeys(calls):
        if kept := recall(call, folder):
            yield call, kept
        else:
            left.append(call)
    if jobs > 1:
        on_one_thread()
    for call, made in each(make, left, jobs) if jobs > 1 else ((call, make(call)) for call in left):
        made = made or Made(reason=DIED)
        if not made.reason:
            remember(call, made, folder)
        yield call, made


def path_of(call: Call, folder: Path) -> Path:
    """Named by the call."""
    name = f"{call.work.__module__}.{call.work.__qualname__}".rpartition("sources.")[2]
    return folder / f"{name}.{hashlib.sha256(repr(call.args).encode()).hexdigest()[:12]}.json"


def remember(call: Call, made: Made, folder: Path | None) -> None:
    """What came of a call, as it can be read again."""
    if folder:
        folder.mkdir(parents=True, exist_ok=True)
        text = json.dumps({"call": repr(call.args), **made._asdict()}, ensure_ascii=False, default=float)
        path_of(call, folder).write_text(text + "\n")


def recall(call: Call, folder: Path | None) -> Made | None:
    """What was kept of a call."""
    if folder is None or not (path := path_of(call, folder)).exists():
        return None
    kept = json.loads(path.read_text())
    kept.pop("call")
    return Made(**kept)
