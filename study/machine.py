"""With what the runs were made: the last change of the package, versions, processor."""

import os
import platform
import subprocess
from pathlib import Path

from benchmarks.machine import cpu_name, version

ROOT = Path(__file__).resolve().parents[1]
LIBRARIES = ("jax", "numpy", "scipy", "scikit-learn", "statsmodels", "gpytorch", "botorch", "ruptures")


def last_change() -> str:
    """The last commit that touched the package itself, and whether it was changed since; where there is no repository, what
    STUDY_CODE says."""
    try:
        ask = lambda *words: subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False).stdout
        commit = ask("log", "-1", "--format=%h", "--", "src/structgp").strip()
        changed = ask("status", "--porcelain", "--", "src/structgp").strip()
    except OSError:
        commit = changed = ""
    return commit + ("+" if changed else "") if commit else os.environ.get("STUDY_CODE", "unknown")


def versions() -> dict[str, str]:
    """Of Python and of what is installed."""
    numbers = {library: version(library) for library in LIBRARIES}
    return {"python": platform.python_version(), **{name: number for name, number in numbers.items() if number}}


def machine() -> str:
    """Cores and processor."""
    return f"{os.cpu_count()} cores, {cpu_name()}"
