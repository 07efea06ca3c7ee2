"""Real data, read from the folder in STRUCTGP_DATA (default ../shared/data beside this repository) and never copied into it.

    boston = load("uci_boston")
    X, y = boston.inputs_and_target()             # numeric columns, target last
    for part in boston.parts():                   # the stored splits
        part.X_train, part.y_train, part.X_test, part.y_test
    crabs = load("crabs"); crabs.inputs_and_target("sex", ["FL", "RW", "CL", "CW", "BD"])
    load("mauna_loa_co2", "monthly_1958_2004"); arrays("volcano")["z"]

A folder NAME holds `data.csv.gz`, or `train.csv.gz` and `test.csv.gz` (read as one table with one split), perhaps with
`splits.npz` (row numbers) or `folds.npz` (which fold tests a row); dense arrays are in `data.npz`.
"""

import csv
import gzip
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.registry import Unavailable

DEFAULT = Path(__file__).resolve().parents[2] / "shared" / "data"


class Part(NamedTuple):
    """One division of a table into training and test rows."""

    X_train: np.ndarray
    y_train: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray


@dataclass(frozen=True)
class Table:
    """Named columns, float64 or text, and the stored splits as pairs of row numbers."""

    name: str
    columns: dict[str, np.ndarray]
    splits: tuple[tuple[np.ndarray, np.ndarray], ...] = ()

    def inputs_and_target(
        self, target: str | None = None, inputs: Sequence[str] | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """X (N, D) and y (N,); by default the last column is the target and all others are inputs."""
        target = list(self.columns)[-1] if target is None else target
        inputs = [name for name in self.columns if name != target] if inputs is None else inputs
        self._check(inputs, target)
        return np.column_stack([self.columns[name] for name in inputs]), self.columns[target]

    def parts(self, target: str | None = None, inputs: Sequence[str] | None = None) -> Iterator[Part]:
        """Training and test data of each stored split."""
        if not self.splits:
            raise ValueError(f"{self.name} has no stored splits: take inputs_and_target() and divide the rows yourself.")
        X, y = self.inputs_and_target(target, inputs)
        for train, test in self.splits:
            yield Part(X[train], y[train], X[test], y[test])

    def _check(self, inputs: Sequence[str], target: str) -> None:
        if missing := [name for name in [*inputs, target] if name not in self.columns]:
            raise ValueError(f"{self.name} has no column {missing[0]!r}; its columns: {', '.join(self.columns)}.")
        if text := [name for name in inputs if self.columns[name].dtype.kind != "f"]:
            raise ValueError(
                f"{self.name}: {', '.join(text)} hold text: name the numeric inputs= to use, or encode them first."
            )


def load(name: str, file: str | None = None) -> Table:
    """The table called `name`; `file` chooses among several, without .csv.gz."""
    folder = find(name)
    if file is None and (folder / "train.csv.gz").exists():
        train, test = (read_csv(folder / f"{part}.csv.gz") for part in ("train", "test"))
        rows = len(next(iter(train.values())))
        columns = {key: np.concatenate([train[key], test[key]]) for key in train}
        total = len(next(iter(columns.values())))
        return Table(name, columns, ((np.arange(rows), np.arange(rows, total)),))
    columns = read_csv(choose(folder, file))
    return Table(name, columns, stored_splits(folder, rows=len(next(iter(columns.values())))))


def arrays(name: str, file: str = "data") -> dict[str, np.ndarray]:
    """The arrays of an .npz file of this data set."""
    path = find(name) / f"{file}.npz"
    if not path.exists():
        raise ValueError(f"{name} has no {path.name}; it has {', '.join(sorted(p.name for p in path.parent.iterdir()))}.")
    with np.load(path, allow_pickle=False) as stored:
        return dict(stored)


def root() -> Path:
    """The folder with the data; a benchmark that needs it is shown as unavailable when there is none."""
    folder = Path(os.environ.get("STRUCTGP_DATA", DEFAULT))
    if not folder.is_dir():
        raise Unavailable(f"no data folder at {folder}: set STRUCTGP_DATA to the folder that holds NAME/data.csv.gz")
    return folder


def find(name: str) -> Path:
    folder = root() / name
    if not folder.is_dir():
        raise Unavailable(
            f"no data set {name!r} in {root()}: it holds {', '.join(sorted(p.name for p in root().iterdir() if p.is_dir()))}"
        )
    return folder


def choose(folder: Path, file: str | None) -> Path:
    """The csv file meant; several need a name."""
    files = {path.name.removesuffix(".csv.gz"): path for path in sorted(folder.glob("*.csv.gz"))}
    if file is None and (len(files) == 1 or "data" in files):
        return files.get("data") or next(iter(files.values()))
    if file not in files:
        asked = f"no table {file!r}" if file else "not exactly one table"
        raise ValueError(f"{folder.name} has {asked}: pass file= one of {list(files)}, or use arrays() for .npz files.")
    return files[file]


def read_csv(path: Path) -> dict[str, np.ndarray]:
    """Columns by name: float64 (an empty cell is NaN) where every cell is a number, else text."""
    with gzip.open(path, "rt", newline="", encoding="utf-8") as stream:
        header, *rows = csv.reader(stream)
    return {name: as_column(cells) for name, cells in zip(header, zip(*rows, strict=True), strict=True)}


def as_column(cells: Sequence[str]) -> np.ndarray:
    try:
        return np.array([float(cell) if cell else np.nan for cell in cells])
    except ValueError:
        return np.array(cells)


def stored_splits(folder: Path, rows: int) -> tuple[tuple[np.ndarray, np.ndarray], ...]:
    """Pairs of train and test rows from splits.npz or folds.npz; none where neither is there or they divide another table."""
    pairs = []
    if (folder / "splits.npz").exists():
        stored = arrays(folder.name, "splits")
        pairs = list(zip(stored["train"].astype(int), stored["test"].astype(int), strict=True))
    elif (folder / "folds.npz").exists():
        fold = arrays(folder.name, "folds")["fold"]
        pairs = [(np.flatnonzero(fold != k), np.flatnonzero(fold == k)) for k in np.unique(fold)]
    return tuple(pairs) if all(len(train) + len(test) == rows for train, test in pairs) else ()
