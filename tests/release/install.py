"""`python tests/release/install.py dist`: the wheel in empty environments, one for each Python found, used from there.

The first Python found (the one that runs this) goes through all of `use.py`; the others through all but learning on the command
line. A Python that is not here is passed over with a word, in CI with a loud one; there at least one of the others must be.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parent
UV = HERE.parents[1] / ".tools" / "bin" / "uv"
SUPPORTED = ("3.13", "3.12", "3.11")


def main(folder: str) -> None:
    """Install the only wheel of a folder everywhere, and use it."""
    (wheel,) = Path(folder).resolve().glob("*.whl")
    (archive,) = Path(folder).resolve().glob("*.tar.gz")
    print(f"{wheel.name} ({wheel.stat().st_size >> 10} kB), {archive.name} ({archive.stat().st_size >> 10} kB)", flush=True)
    version = wheel.name.split("-")[1]
    own = f"{sys.version_info.major}.{sys.version_info.minor}"
    missing = []
    for number in sorted(SUPPORTED, key=lambda number: number != own):
        found = next(pythons(number), None)
        if found is None:
            missing.append(number)
            print(f"Python {number} is not here: passed over", flush=True)
            continue
        used = try_with(found, wheel, version, whole=number == own)
        print(f"Python {number} ({found}): {used}", flush=True)
    said = without(missing, own) if os.environ.get("CI") else ""
    print(said, end="", file=sys.stderr)


def without(missing: list[str], own: str) -> str:
    """What is said in CI of Pythons that were not there; where nothing but our own was, that is an error."""
    if set(missing) == set(SUPPORTED) - {own}:
        raise SystemExit(f"the wheel was used under {own} only: CI needs one more of Python {', '.join(missing)}")
    return "".join(f"::warning::THE WHEEL WAS NOT TRIED UNDER PYTHON {number}, which is not here\n" for number in missing)


def try_with(python: Path, wheel: Path, version: str, whole: bool) -> str:
    """What `use.py` says in an empty environment that holds the wheel and what it asks for."""
    with tempfile.TemporaryDirectory() as folder:
        environment = Path(folder) / "environment"
        subprocess.run([UV, "venv", "--quiet", "--python", python, environment], check=True)
        inside = environment / "bin" / "python"
        subprocess.run([UV, "pip", "install", "--quiet", "--python", inside, f"{wheel}[cli]"], check=True)
        words = [inside, "-I", HERE / "use.py", version, *(["--whole"] if whole else [])]
        done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"the wheel does not work under {python}:\n{done.stdout}{done.stderr}")
        return done.stdout.strip()


def pythons(number: str) -> Iterator[Path]:
    """Interpreters of one version that run: this one, those on the path, and those of pyenv."""
    on_path = [Path(folder) / f"python{number}" for folder in ("/usr/local/bin", "/opt/homebrew/bin", "/usr/bin")]
    of_pyenv = sorted((Path.home() / ".pyenv" / "versions").glob(f"{number}.*/bin/python"), reverse=True)
    for python in (Path(sys.executable).resolve(), *of_pyenv, *on_path):
        asked = "import sys, venv; print('%d.%d' % sys.version_info[:2])"
        if python.exists() and _said([python, "-c", asked]) == number:
            yield python


def _said(words: list) -> str:
    return subprocess.run(words, capture_output=True, text=True, check=False).stdout.strip()


if __name__ == "__main__":
    main(sys.argv[1])
