"""What runs found, kept as one small JSON file for each experiment in docs/study/results."""

import json
import os
import platform
import subprocess
import time
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from study.registry import Experiment, Found, How

ROOT = Path(__file__).resolve().parents[1]
PAGES = ROOT / "docs" / "study"
LIBRARIES = ("jax", "numpy", "scipy", "scikit-learn", "statsmodels", "gpytorch", "botorch", "ruptures")
DIGITS = 5  # that are kept


def run(experiment: Experiment, name: str, how: How, command: str) -> dict[str, Any]:
    """One case: what was found, what it took, and with what."""
    assert experiment.work is not None
    cpu, wall = time.process_time(), time.perf_counter()
    found = experiment.work(name, how)
    spent = time.process_time() - cpu, time.perf_counter() - wall
    known = {quantity.name for quantity in experiment.cases[name].quantities}
    if strange := set(found) - known:
        raise ValueError(f"{experiment.id}, {name}: found {sorted(strange)}, of which nothing is said; known: {sorted(known)}.")
    return {
        "found": {key: _plain(value) for key, value in found.items()},
        "repeats": how.repeats,
        "first": how.first,
        "cpu": round(spent[0], 1),
        "wall": round(spent[1], 1),
        "command": command,
        "code": last_change(),
        "versions": versions(),
        "machine": machine(),
    }


def _plain(found: Found) -> dict[str, Any]:
    short = lambda value: float(f"{float(value):.{DIGITS}g}") if value is not None and not isinstance(value, str) else value
    whole = {"ours": short(found.ours), "baseline": short(found.baseline), "error": short(found.error)}
    return {key: value for key, value in whole.items() if value is not None}


def last_change() -> str:
    """The last commit that touched the package itself, and whether it was changed since."""
    ask = lambda *words: subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()
    changed = ask("status", "--porcelain", "--", "src/structgp")
    return (ask("log", "-1", "--format=%h", "--", "src/structgp") or "unknown") + ("+" if changed else "")


def versions() -> dict[str, str]:
    """Of Python and of what is installed."""
    found = {"python": platform.python_version()}
    for library in LIBRARIES:
        try:
            found[library] = version(library)
        except PackageNotFoundError:
            continue
    return found


def machine() -> str:
    """Cores and processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        model = platform.processor() or platform.machine()
    return f"{os.cpu_count()} cores, {model}"


def path_of(id: str, pages: Path = PAGES) -> Path:
    """Where the results of an experiment are."""
    return pages / "results" / f"{id}.json"


def records(id: str, pages: Path = PAGES) -> dict[str, dict[str, Any]]:
    """The last run of each case."""
    path = path_of(id, pages)
    return json.loads(path.read_text())["cases"] if path.exists() else {}


def keep(id: str, case: str, record: Mapping[str, Any], pages: Path = PAGES) -> None:
    """The run of one case in place of an earlier one; the other cases stay."""
    path = path_of(id, pages)
    path.parent.mkdir(parents=True, exist_ok=True)
    cases = {**records(id, pages), case: dict(record)}
    path.write_text(json.dumps({"id": id, "cases": cases}, indent=1, ensure_ascii=False) + "\n")


def found_in(record: Mapping[str, Any]) -> dict[str, Found]:
    """The values of a record."""
    values = record["found"].items()
    return {name: Found(value["ours"], value.get("baseline"), value.get("error")) for name, value in values}


def all_found(id: str, pages: Path = PAGES) -> dict[str, dict[str, Found]]:
    """What was found for every case that ran."""
    return {name: found_in(record) for name, record in records(id, pages).items()}
