"""The order of the rooms: a room imports only from rooms above it."""

import ast
import functools
import json
import os
import pathlib
import subprocess
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

from benchmarks import house

import structgp

SRC = pathlib.Path(__file__).parents[2] / "src" / "structgp"

# From top to bottom; rooms in one row may know each other.
ROOMS = [
    ["_types", "where", "background", "crew"],
    ["parameters"],
    ["linalg"],
    ["kernels"],
    ["means"],
    ["likelihoods"],
    ["inputs"],
    ["structure"],
    ["sites"],
    ["posterior"],
    ["engines"],
    ["inference"],
    ["learn"],
    ["process"],
    ["models"],
    ["decide"],
    ["sklearn"],
    ["metrics", "datasets", "files", "plots"],
    ["tables", "__main__"],
]
LEVEL = {room: level for level, rooms in enumerate(ROOMS) for room in rooms}

# Function-local imports of a lower room: a method that opens a door for the user, and costs nothing until it is used.
DOORS = {("posterior", "files"), ("process", "plots"), ("models", "plots")}

MODULES = sorted(path for path in SRC.rglob("*.py") if path != SRC / "__init__.py")


def room_of(parts):
    return "" if not parts or parts[0].startswith("__") else parts[0]  # the package itself: its name, its version


def imports(path):
    """(room, whether inside a function) for each import of the package itself; those for type checkers do not count."""
    package = list(path.relative_to(SRC).parts[:-1])
    found = []

    def visit(node, inside):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            return
        if isinstance(node, ast.ImportFrom):
            if node.level:
                base = package[: len(package) - node.level + 1] + (node.module.split(".") if node.module else [])
            elif node.module and node.module.split(".")[0] == "structgp":
                base = node.module.split(".")[1:]
            else:
                return
            found.extend((room_of(base or [alias.name]), inside) for alias in node.names)
        elif isinstance(node, ast.Import):
            found.extend(
                (room_of(alias.name.split(".")[1:]), inside) for alias in node.names if alias.name.split(".")[0] == "structgp"
            )
        for child in ast.iter_child_nodes(node):
            visit(child, inside or isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)))

    visit(ast.parse(path.read_text()), False)
    return found


def test_every_room_is_in_the_order():
    rooms = {path.relative_to(SRC).parts[0].removesuffix(".py") for path in MODULES}
    assert rooms <= set(LEVEL)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SRC)))
def test_imports_point_up(path):
    here = path.relative_to(SRC).parts[0].removesuffix(".py")
    for there, inside in imports(path):
        if not there or (inside and (here, there) in DOORS):
            continue
        assert LEVEL[there] <= LEVEL[here], f"{here} imports {there}, which stands below it"


def leads():
    """For each file those that it needs, when it is loaded or inside of functions; doors aside."""
    own = {path: tuple(house.imported(SRC, path, ast.parse(path.read_text()))) for path in MODULES}
    return {path: set(house.leads_to(SRC, imports, house.WHERE[:2])) for path, imports in own.items()}


def test_no_way_leads_back():
    edges = leads()
    assert [str(path.relative_to(SRC)) for path in edges if house.in_cycle(edges, path)] == []


def test_a_way_back_is_seen():
    edges, model, parts = leads(), SRC / "models/additive/model.py", SRC / "models/additive/parts.py"
    assert parts in edges[model]
    edges[parts].add(model)
    assert {path for path in edges if house.in_cycle(edges, path)} == {model, parts}


def test_private_names_stay_in_their_file():
    names = [name for path in MODULES for _, name, _ in house.imported(SRC, path, ast.parse(path.read_text()))]
    assert [name for name in names if name.startswith("_") and not name.startswith("__")] == []


def test_the_walk_sees_imports():
    assert ("parameters", False) in imports(SRC / "kernels" / "algebra.py")
    assert ("files", True) in imports(SRC / "posterior.py")


def test_numbers_only_in_linalg():
    for path in (SRC / "linalg").rglob("*.py"):
        assert "kernel" not in path.read_text().lower(), f"{path.name} speaks of kernels"


def run(code):
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("JAX", "PYTEST"))}
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, env=environment).stdout


def test_importing_costs_nothing():
    heavy = "jax numpy scipy sklearn equinox pandas polars narwhals matplotlib"
    assert run(f"import sys, structgp; print([m for m in {heavy.split()} if m in sys.modules])").strip() == "[]"


USED = """
import json, sys, tempfile
import jax, numpy as np
before = dict(jax.config.values)
import structgp as sg
missing = [name for name in sg.__all__ if getattr(sg, name, None) is None]
sg.GP(sg.Matern52()).condition([0.0, 1.0], [1.0, 2.0]).predict([0.5])
after = dict(jax.config.values)
import polars as pl
with tempfile.TemporaryDirectory() as folder:
    t = np.arange(40.0)
    pl.DataFrame({"t": t, "y": np.sin(t)}).write_parquet(f"{folder}/rows.parquet")
    sg.GP(sg.Matern32()).condition(sg.ParquetBatches(f"{folder}/rows.parquet", "y", rows=20)).predict([0.5])
print(json.dumps({
    "missing": missing,
    "listed": set(sg.__all__) <= set(dir(sg)),
    "switched": [key for key in after if before.get(key, after[key]) != after[key]],
    "asked for": [name for name in ("dask", "distributed") if name in sys.modules],
}))
"""


@functools.cache
def used():
    """What is found in a process of its own that takes every name, and conditions on data in memory and on a file."""
    return json.loads(run(USED))


def test_parts_ask_for_dask_only_where_data_are_dasks():
    assert used()["asked for"] == []


def test_using_changes_no_switch():
    assert used()["switched"] == []


def test_every_name_is_there():
    assert used()["missing"] == []
    assert used()["listed"]
    with pytest.raises(AttributeError, match="module 'structgp' has no attribute 'Nothing'"):
        structgp.Nothing
