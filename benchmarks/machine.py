"""Where and with what the numbers were made."""

import datetime
import importlib.metadata
import os
import platform
import time
from pathlib import Path
from typing import Any

PACKAGES = (
    "structgp",
    "numpy",
    "scipy",
    "jax",
    "jaxlib",
    "equinox",
    "scikit-learn",
    "torch",
    "gpytorch",
    "tinygp",
    "celerite2",
)
PACKAGES += ("gpjax", "gpflow", "tensorflow")
SETTINGS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "XLA_FLAGS", "JAX_PLATFORMS", "JAX_ENABLE_X64")


def machine() -> dict[str, Any]:
    """CPU, cores, memory, load, versions, thread settings and date."""
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "cpu": cpu_name(),
        "cores": cores(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "load_average": os.getloadavg(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "versions": {name: version(name) for name in PACKAGES},
        "settings": {name: os.environ[name] for name in SETTINGS if name in os.environ},
    }


def one_line(info: dict[str, Any]) -> str:
    """The machine in a sentence, for the head of a table."""
    versions = ", ".join(f"{name} {number}" for name, number in info["versions"].items() if number)
    settings = "".join(f", {name}={value}" for name, value in info["settings"].items())
    return (
        f"{info['cpu']}, {info['cores']} cores, load {info['load_average'][0]:.1f} at the start; {info['date'][:10]}; "
        f"Python {info['python']}, {versions}{settings}"
    )


class Watch:
    """How much of the machine others used since the watch began: their part of all cores, stolen time included.

    Threaded linear algebra suffers from a neighbour far more than by its share, so this belongs beside every timing.
    """

    def __init__(self):
        self.clock, self.all, self.own = time.monotonic(), busy_seconds(), own_seconds()

    def others(self) -> float | None:
        """A fraction between 0 and 1; None where the system does not tell."""
        if self.all is None:
            return None
        elapsed = max(time.monotonic() - self.clock, 1e-3) * cores()
        foreign = busy_seconds() - self.all - (own_seconds() - self.own)
        return min(max(foreign / elapsed, 0.0), 1.0)


def wait_until_idle(most: float, below: float = 0.05, look: float = 1.0) -> None:
    """Return when others used less than 5 % of the machine for a second, or when `most` seconds have passed."""
    end = time.monotonic() + most
    while time.monotonic() < end:
        watch = Watch()
        time.sleep(look)
        if (watch.others() or 0) < below:
            return


def busy_seconds() -> float | None:
    """CPU seconds used by everybody since the machine started, all cores together (Linux)."""
    path = Path("/proc/stat")
    if not path.exists():
        return None
    user, nice, system, _, _, irq, softirq, steal = (int(word) for word in path.read_text().split()[1:9])
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def own_seconds() -> float:
    """CPU seconds of this process and of those it has waited for."""
    return sum(os.times()[:4])


def version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def cpu_name() -> str:
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    return next(
        (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")),
        platform.processor() or "unknown CPU",
    )
