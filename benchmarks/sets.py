"""Regression and label sets by name, all in one shape: training and test rows of a numbered split, inputs as they are stored.

Stored splits are used where there are some, and beyond the last of them the rows are divided anew into as many; elsewhere a
quarter of the rows, by the number of the split, is tested on.
"""

from collections.abc import Callable

import numpy as np

from benchmarks.classification import CRABS
from benchmarks.data import Part, Table, arrays, load

Read = Callable[[], tuple[np.ndarray, np.ndarray]]
TESTED = 0.25  # of the rows, where no split is stored


def stored(name: str, split: int, drop: str | None = None) -> Part:
    """A stored split of a table whose last column is the target."""
    table = load(name)
    if drop:
        table = Table(name, {key: column for key, column in table.columns.items() if key != drop}, table.splits)
    return _division(table, split)(*table.inputs_and_target())


def _division(table: Table, split: int) -> Callable[[np.ndarray, np.ndarray], Part]:
    train, test = table.splits[min(split, len(table.splits) - 1)]
    if split >= len(table.splits):
        rows = np.random.default_rng(split).permutation(np.concatenate([train, test]))
        train, test = np.split(rows, [len(train)])
    return lambda X, y: Part(X[train], y[train], X[test], y[test])


def divided(read: Read, split: int) -> Part:
    """A split of our own."""
    X, y = read()
    rows = np.random.default_rng(split).permutation(len(y))
    test, train = np.split(rows, [int(TESTED * len(y))])
    return Part(X[train], y[train], X[test], y[test])


def abalone() -> tuple[np.ndarray, np.ndarray]:
    columns = load("uci_abalone").columns
    sex = [(columns["sex"] == which).astype(float) for which in ("F", "I")]
    return np.column_stack(sex + [column for name, column in columns.items() if name not in ("sex", "rings")]), columns["rings"]


def meuse() -> tuple[np.ndarray, np.ndarray]:
    X, zinc = load("meuse", "data").inputs_and_target("zinc", ["x", "y", "dist", "elev"])
    return X, np.log(zinc)


def breast_cancer() -> tuple[np.ndarray, np.ndarray]:
    return load("breast_cancer_wisconsin", "data_683").inputs_and_target()


def oil_flow() -> tuple[np.ndarray, np.ndarray]:
    table = load("oil_flow")
    return table.inputs_and_target("phase", [f"x{d}" for d in range(1, 13)])


def jura(split: int) -> Part:
    """Cadmium at places."""
    table = load("jura")
    return _division(table, split)(*table.inputs_and_target("Cd", ["Xloc", "Yloc"]))


def crabs(split: int) -> Part:
    """The sex of crabs."""
    table = load("crabs")
    return _division(table, split)(np.column_stack([table.columns[name] for name in CRABS]), table.columns["sex"])


def ijcnn1(split: int) -> Part:
    """The inputs and the phase, which is cyclic, as two columns."""
    data, rows = arrays("ijcnn1"), arrays("ijcnn1", "splits")
    angle = 2 * np.pi * data["phase"] / 10
    X = np.column_stack([data["x"], np.sin(angle), np.cos(angle)])
    train, test = rows["train"][split], rows["test"][split]
    return Part(X[train], data["y"][train], X[test], data["y"][test])


def energy(split: int) -> Part:
    return stored("uci_energy", split, drop="cooling_load")


def naval(split: int) -> Part:
    return stored("uci_naval", split, drop="kMt")


def magic_part(split: int, rows: int) -> Part:
    """Some of the rows of magic; all test rows."""
    part = stored("magic", split)
    some = np.random.default_rng(split).permutation(len(part.y_train))[:rows]
    return Part(part.X_train[some], part.y_train[some], part.X_test, part.y_test)


def _stored(*names: str) -> dict[str, Callable[[int], Part]]:
    return {name: lambda split, name=name: stored(name, split) for name in names}


def _divided(name: str, read: Read | None = None) -> dict[str, Callable[[int], Part]]:
    return {name: lambda split: divided(read or load(name).inputs_and_target, split)}


RAETSCH = [
    "banana",
    "breast-cancer",
    "diabetis",
    "flare-solar",
    "german",
    "heart",
    "image",
    "ringnorm",
    "splice",
    "thyroid",
    "titanic",
    "twonorm",
    "waveform",
]
LARGER = ("image", "splice", "banana", "waveform")  # of which stored splits learn from few of the rows
REGRESSION: dict[str, Callable[[int], Part]] = {
    **_stored("uci_yacht", "uci_boston", "uci_concrete", "uci_airfoil", "uci_wine_red"),
    "uci_energy": energy,
    **_divided("meuse", meuse),
    "jura": jura,
    **_divided("uci_abalone", abalone),
    **_stored("pumadyn8nm", "pumadyn8fm", "pumadyn32nm", "uci_kin8nm", "uci_power", "elevators", "kin40k", "pol"),
    "uci_naval": naval,
    **_stored("uci_protein", "uci_keggdirected"),
}
LABELS: dict[str, Callable[[int], Part]] = {
    **_stored("ripley_synth", "pima_ripley"),
    "crabs": crabs,
    **_stored(*(f"raetsch_{name}" for name in RAETSCH)),
    **_divided("breast_cancer_wisconsin", breast_cancer),
    **_divided("uci_ionosphere"),
    **_divided("uci_glass"),
    **_divided("oil_flow", oil_flow),
    **_divided("uci_spambase"),
    **{f"{name}_all": lambda split, name=name: divided(load(f"raetsch_{name}").inputs_and_target, split) for name in LARGER},
    **{f"magic_{rows}": lambda split, rows=rows: magic_part(split, rows) for rows in (4000, 5000)},
    **_stored("magic"),
    "ijcnn1": ijcnn1,
}


def part_of(name: str, split: int) -> Part:
    """Training and test rows of a set."""
    return (REGRESSION | LABELS)[name](split)
