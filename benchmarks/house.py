"""What a checkout of structgp is made of: lines, files, cycles of imports, private names across files, sizes of interfaces.

python -m benchmarks house                  # this checkout
python -m benchmarks house OLD NEW          # several, side by side; one of an older commit by `git worktree add OLD COMMIT`
"""

import argparse
import ast
from collections.abc import Iterator, Sequence
from pathlib import Path

WHERE = ("when loaded", "inside functions", "for types")  # an import is needed
DOORS = ("files", "plots.py", "io.py")  # what a method opens for a user only when it is called: no way leads back through these


def main(argv: Sequence[str]) -> int:
    """Print the figures of each checkout."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks house", description=__doc__)
    parser.add_argument("checkouts", nargs="*", type=Path, default=[Path(__file__).parents[1]])
    columns = [figures(checkout) for checkout in parser.parse_args(argv).checkouts]
    for name in columns[0]:
        print(f"{name:<58}", *(f"{column[name]:>8,}" for column in columns))
    return 0


def figures(checkout: Path) -> dict[str, int]:
    """The figures of one checkout, by name."""
    root = checkout / "src" / "structgp"
    trees = {path: ast.parse(path.read_text()) for path in sorted(root.rglob("*.py"))}
    found = {f"lines of {part}": lines(checkout / part) for part in ("src", "tests", "benchmarks", "study")}
    found["files of src"] = len(trees)
    found["files of src at the top level"] = sum(path.parent == root and not path.stem.startswith("__") for path in trees)
    found["files of src/structgp/linalg at its top level"] = len(list((root / "linalg").glob("[!_]*.py")))
    imports = {path: list(imported(root, path, tree)) for path, tree in trees.items()}
    for count in (1, 2):
        edges = {path: set(leads_to(root, own, WHERE[:count])) for path, own in imports.items()}
        said = f"files in cycles of imports {' or '.join(WHERE[:count])}"
        found[said] = sum(in_cycle(edges, path) for path in edges)
    for when in WHERE[1:]:
        found[f"imports of the package {when}"] = sum(how == when for own in imports.values() for _, _, how in own)
    names = [name for own in imports.values() for _, name, _ in own]
    found["private names across files"] = sum(name.startswith("_") and not name.startswith("__") for name in names)
    classes = {node.name: node for tree in trees.values() for node in tree.body if isinstance(node, ast.ClassDef)}
    found["members of Engine"] = len(members(classes["Engine"]))
    inner = [node for path, tree in trees.items() for node in ast.walk(tree) if "sklearn" not in path.parts]
    predicts = [node for node in inner if isinstance(node, ast.FunctionDef) and node.name == "predict" and node.args.args]
    methods = [node for node in predicts if node.args.args[0].arg == "self"]
    found["own methods `predict`, estimators' left out"] = len(methods)
    found["different signatures of these"] = len({ast.unparse(node.args) for node in methods})
    calls = [node for node in inner if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)]
    found["hasattr(…)"] = sum(call.func.id == "hasattr" for call in calls)
    asked = [ast.unparse(call.args[0]) for call in calls if call.func.id == "isinstance"]
    found["isinstance(…engine, …)"] = sum(thing.endswith("engine") for thing in asked)
    return found


def lines(folder: Path) -> int:
    """Lines of Python below a folder, 0 where there is none."""
    return sum(len(path.read_text().splitlines()) for path in folder.rglob("*.py"))


def members(node: ast.ClassDef) -> set[str]:
    """The public names that a class has of its own."""
    names = {part.name for part in node.body if isinstance(part, ast.FunctionDef)}
    names |= {part.target.id for part in node.body if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name)}
    return {name for name in names if not name.startswith("_")}


def imported(root: Path, path: Path, tree: ast.Module) -> Iterator[tuple[Path, str, str]]:
    """(file, name, when) for all that a file imports from the package."""

    def visit(node: ast.AST, when: str) -> Iterator[tuple[Path, str, str]]:
        if isinstance(node, ast.ImportFrom) and node.level:
            base = path.parents[node.level - 1].joinpath(*(node.module or "").split("."))
            for alias in node.names:
                file = next((one for one in candidates(base, alias.name) if one.exists()), None)
                if file is not None:
                    yield file, alias.name, when
        typing = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        inside = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        for child in ast.iter_child_nodes(node):
            yield from visit(child, WHERE[2] if typing else WHERE[1] if inside and when == WHERE[0] else when)

    return visit(tree, WHERE[0])


def candidates(base: Path, name: str) -> Iterator[Path]:
    """The files that a name imported from a place may be or stand in."""
    yield from ((base / name).with_suffix(".py"), base / name / "__init__.py", base.with_suffix(".py"), base / "__init__.py")


def leads_to(root: Path, imports: Sequence[tuple[Path, str, str]], when: Sequence[str]) -> Iterator[Path]:
    """The files that a file needs at these times, but for doors."""
    for file, _, how in imports:
        if how in when and (how == WHERE[0] or file.relative_to(root).parts[0] not in DOORS):
            yield file


def in_cycle(edges: dict[Path, set[Path]], start: Path) -> bool:
    """Whether imports lead from a file back to it."""
    seen: set[Path] = set()
    ahead = set(edges[start])
    while ahead:
        seen |= ahead
        ahead = set().union(*(edges.get(path, set()) for path in ahead)) - seen
    return start in seen
