"""How fast this machine is: seconds for one unit of each kind of work, measured once and kept on disk.

Engines are *ranked* by the rates of a small reference machine (`REFERENCE`), so that the same data lead to the same algorithm
everywhere and nothing is measured to choose it; the *seconds* that a plan shows are those of the machine at hand. These are
measured when somebody first asks for them, which takes about a second, and kept in the user's cache under the name of the
hardware, so that they are the same in the next process. With them is kept how busy the machine was: where that was much, they
are measured anew once it is much less.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .. import where
from .._types import double_precision
from ..linalg.dense.cholesky import lapack_threads
from ..linalg.filters import kalman
from ..linalg.markov.chains import Matern


@dataclasses.dataclass(frozen=True)
class Work:
    """What a computation takes, counted in what bounds it; the times of all parts add up."""

    products: float = 0.0  # flops of products of matrices
    factors: float = 0.0  # flops of Cholesky factors, and of solving with them
    eigen: float = 0.0  # Σ n³ of eigendecompositions
    functions: float = 0.0  # elementary functions, as of the entries of a covariance
    traffic: float = 0.0  # bytes that go through memory
    transforms: float = 0.0  # Σ n log₂ n of Fourier transforms
    steps: float = 0.0  # of loops whose steps follow each other
    small: float = 0.0  # flops of small matrices within such steps
    calls: float = 0.0  # programs that are started

    def __add__(self, other: Work) -> Work:
        return Work(*(one + more for one, more in zip(_numbers(self), _numbers(other), strict=True)))

    def __mul__(self, times: float) -> Work:
        return Work(*(times * number for number in _numbers(self)))

    __rmul__ = __mul__


def _numbers(work: Work) -> tuple[float, ...]:
    return tuple(getattr(work, name) for name in KINDS)


KINDS = tuple(field.name for field in dataclasses.fields(Work))


@dataclasses.dataclass(frozen=True)
class Machine:
    """Seconds for one unit of each kind of work, and for compiling a typical program."""

    unit: Work
    compile: float

    def seconds(self, work: Work) -> float:
        """How long some work takes here."""
        return sum(a * b for a, b in zip(_numbers(self.unit), _numbers(work), strict=True))


REFERENCE = {  # two cores of a server, and a large GPU
    "cpu": Machine(Work(2e-11, 5e-11, 4e-10, 2e-9, 5e-11, 5e-10, 2.7e-8, 9e-11, 8e-6), 0.2),
    "gpu": Machine(Work(2.5e-14, 1e-13, 1.5e-12, 1e-12, 3e-13, 1e-12, 3e-6, 1e-10, 3e-5), 0.5),
}


def reference() -> Machine:
    """The machine by which algorithms are ranked."""
    return REFERENCE.get(where.backend(), REFERENCE["gpu"])


def at_hand() -> Machine:
    """This machine, where computations run now: from the cache on disk, else measured."""
    return rates_of(hardware())


@functools.cache
def rates_of(name: str) -> Machine:
    """The rates of a machine by its name, which is looked up once."""
    known, load = _kept(), _load()
    try:
        found = Machine(Work(**known[name]["unit"]), float(known[name]["compile"]))
        if float(known[name]["load"]) <= max(BUSY, CALMER * load):
            return found
    except (KeyError, TypeError, ValueError):
        pass
    try:
        found = measured()
    except RuntimeError:  # as where an accelerator has no memory left
        return reference()
    _keep(known | {name: dataclasses.asdict(found) | {"load": load}})
    return found


def hardware() -> str:
    """What the rates depend on."""
    device = where.device()
    settings = [f"{name}={os.environ[name]}" for name in SETTINGS if name in os.environ]
    parts = [_cpu(), f"{cores()} cores", device.platform, device.device_kind, f"JAX {jax.__version__}"]
    return ", ".join([f"rates {FORMAT}", *parts, *settings])


FORMAT = 3  # of what is measured: one more, and everybody measures again
STEPS = 2000  # of a filter
WIDE = 16  # states of a loop with larger matrices
RUNS = 30  # of which the best counts, at most
BUDGET = 0.02  # seconds of the processor for them
BUSY, CALMER = 1.5, 2.0  # processes that wait for each core, up to which rates are good; how many times more are much more
SERIES = 0.5  # of what compiling the filter of a series takes, that a typical program takes
STARTED = 20  # short programs one after the other
SLOWER = 3  # times as long an accelerator takes to be started: most of what is counted as calls is Python's own time
SETTINGS = ("XLA_FLAGS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.processor())


def cores() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def cache_file() -> Path:
    """Where the rates are kept."""
    home = {"win32": "~/AppData/Local", "darwin": "~/Library/Caches"}.get(sys.platform, "~/.cache")
    return Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser(home)) / "structgp" / "machine.json"


def _kept() -> dict[str, Any]:
    try:
        kept = json.loads(cache_file().read_text())
    except (OSError, ValueError, RuntimeError):
        return {}
    return kept if isinstance(kept, dict) else {}


def _keep(known: dict[str, Any]) -> None:
    try:
        path = cache_file()
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(f".{os.getpid()}")  # other processes see the old file or the new one, never half of it
        part.write_text(json.dumps(known, indent=1))
        part.replace(path)
    except (OSError, RuntimeError):  # no home, no room, no right to write: measured again next time
        pass


@double_precision
def measured() -> Machine:
    """The rates, by the best of a few short runs of each kind of work, which a busy machine disturbs least.

    LAPACK runs on one thread: several would wait for each other where others have the cores.
    """
    on_host = where.backend() == "cpu"
    n, long = (384, 2**20) if on_host else (4096, 2**26)
    x, many = np.linspace(0.1, 1.0, long), np.linspace(0.1, 1.0, 1 << (long.bit_length() - 4))
    A, B = (np.eye(size) + 0.5 / size for size in (n, 512 if on_host else 8192))
    Q = np.exp(-np.abs(np.arange(n / 2)[:, None] - np.arange(n / 2)))
    with lapack_threads(0):
        wide = _best(functools.partial(_filter, states=WIDE), many[: STEPS // 4]) / (STEPS // 4)
        unit = Work(
            products=_best(lambda v: v @ v, A) / (2 * n**3),
            factors=_best(jnp.linalg.cholesky, B) / (len(B) ** 3 / 3) / (_gain() if on_host else 1.0),
            eigen=_best(jnp.linalg.eigh, Q) / len(Q) ** 3,
            functions=_best(lambda v: jnp.exp(-jnp.sqrt(v)), many) / len(many),
            traffic=_best(lambda v: v + 1.0, x) / (16 * long),
            transforms=_best(lambda v: jnp.fft.irfft(jnp.fft.rfft(v)), many) / (2 * len(many) * np.log2(len(many))),
            small=wide / (4 * WIDE**3),
            calls=_starting(lambda v: v + 1.0, A[:1, :1]) / (1 if on_host else SLOWER),
        )
        step, compiling = _series(unit) if on_host else _loop(many[:STEPS])
        if not on_host:  # there a step takes long by itself
            unit = dataclasses.replace(unit, small=max(wide - step, 0.1 * wide) / (4 * WIDE**3))
        return Machine(dataclasses.replace(unit, steps=step), compiling)


def _loop(x: Any) -> tuple[float, float]:
    """What a step of a short loop takes, and compiling the gradient of one."""
    once = float(np.random.default_rng().random())  # no cache of programs has seen this one
    compiling = _compiled(jax.grad(lambda v: once * jnp.sum(_filter(v, states=3))), x)[1]
    return _best(functools.partial(_filter, states=2), x) / len(x), compiling


def _series(unit: Work) -> tuple[float, float]:
    """What a step of a real filter takes, counted as engines count it, and compiling a typical program.

    Some versions of XLA run a short loop as one piece of machine code and the longer one of a filter operation by operation,
    which takes tens of times as long: a short loop would not show it.
    """
    place = Work(steps=2.5, small=4.0 * 3**3)  # one pass over a place with three states
    once, ones = float(np.random.default_rng().random()), np.ones(STEPS)

    def value(scale: Any, gaps: Any, w: Any, y: Any) -> Any:
        log_det, gram = kalman.evidence(Matern(3, scale), gaps, w, y[:, None])
        return once * log_det + gram[0, 0]

    arguments = 1.0, 0.1 * ones, ones, ones
    compiled, compiling = _compiled(value, *arguments)
    seconds = _best_of(compiled, *arguments) / STEPS
    rest = seconds - Machine(unit, 0.0).seconds(place)
    return max(rest, 0.2 * seconds) / place.steps, SERIES * compiling


def _gain() -> float:
    """How much faster large matrices are factorised than the one that is measured: by their size, and by several threads."""
    allowed = [int(os.environ[name]) for name in SETTINGS if name.endswith("THREADS") and os.environ.get(name, "").isdigit()]
    return 1.5 + 0.5 * (min([cores(), *allowed]) - 1)


def _load() -> float:
    """How many processes wait for each core now, 0 where nobody knows."""
    try:
        return os.getloadavg()[0] / cores()
    except (AttributeError, OSError):
        return 0.0


def _filter(x: Any, states: int) -> Any:
    """A loop like that of a filter: two products of small matrices in each step."""
    A = 0.5 * jnp.eye(states)

    def step(P: Any, v: Any) -> tuple[Any, Any]:
        P = A @ P @ A + v * jnp.eye(states)
        return P / (1.0 + P[0, 0]), P[0, 0]

    return jax.lax.scan(step, jnp.eye(states), x)[1]


def _best(function: Callable[..., Any], *arguments: Any) -> float:
    return _best_of(_compiled(function, *arguments)[0], *arguments)


def _compiled(function: Callable[..., Any], *arguments: Any) -> tuple[Callable[..., Any], float]:
    """A program, and what compiling it takes."""
    found: list[Any] = []
    seconds = min(_seconds(lambda: found.append(jax.jit(function).lower(*arguments).compile())))
    return found[0], seconds


def _best_of(compiled: Callable[..., Any], *arguments: Any) -> float:
    there, on_host = jax.device_put(arguments), where.backend() == "cpu"
    call = lambda: jax.block_until_ready(compiled(*there))
    call()
    walls: list[float] = []
    processor = 0.0
    while len(walls) < 3 or (len(walls) < RUNS and (processor if on_host else sum(walls)) < BUDGET):
        wall, used = _seconds(call)
        walls.append(wall)
        processor += used
    # The processor's clock does not run while others have it; over less than some ticks it says nothing. What is shorter than
    # that is among so many runs once not disturbed.
    return min(*walls, processor / len(walls)) if on_host and processor > BUDGET / 2 else min(walls)


def _starting(function: Callable[..., Any], *arguments: Any) -> float:
    """Seconds to start a program, without waiting for its end: an accelerator works while the next ones are started."""
    there = jax.device_put(arguments)
    compiled = jax.jit(function).lower(*there).compile()

    def several() -> None:
        jax.block_until_ready([compiled(*there) for _ in range(STARTED)])

    several()
    return min(_seconds(several)[0] for _ in range(RUNS)) / STARTED


def _seconds(call: Callable[[], Any]) -> tuple[float, float]:
    """On the clock of the wall, and on that of the processor."""
    wall, processor = time.perf_counter(), time.process_time()
    call()
    return time.perf_counter() - wall, time.process_time() - processor
