"""Examples: the quick ones run on few data and draw their pictures; all of them run when the documentation is built."""

import ast
import sys
from pathlib import Path

import matplotlib
import pytest

import structgp as sg
import zoo

FOLDER = Path(__file__).parents[2] / "examples"
EXAMPLES = sorted(path.stem for path in FOLDER.glob("*.py"))

# name: what stands in the example, and what makes it small
SMALLER = {
    "million": {"1_000_000": "400"},
    "streaming": {"24 * 14": "74", "value[known])": "value[known], restarts=0)"},
    "optimise": {"RUNS = 20": "RUNS = 9", "np.linspace(20, 80, 41)": "np.linspace(20, 80, 5)"},
    "image": {"SIZE, NOISE = 200": "SIZE, NOISE = 16"},
}


@pytest.mark.parametrize("name", zoo.mostly_full(SMALLER, "image"))
def test_a_smaller_example_runs(name, tmp_path, monkeypatch, capsys):
    text = (FOLDER / f"{name}.py").read_text()
    for there, smaller in SMALLER[name].items():
        assert there in text, f"{name}.py no longer says {there}: make it smaller in another way"
        text = text.replace(there, smaller)
    matplotlib.use("Agg")
    picture = tmp_path / "picture.png"
    monkeypatch.setattr(sys, "argv", [f"{name}.py", str(picture)])
    exec(compile(text, f"{name}.py", "exec"), {"__name__": "__main__"})
    matplotlib.pyplot.close("all")
    assert picture.stat().st_size > 5000
    assert f"picture: {picture}" in capsys.readouterr().out


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_has_a_title_and_uses_names_that_exist(name):
    tree = ast.parse((FOLDER / f"{name}.py").read_text())
    title, line = ast.get_docstring(tree).splitlines()[:2]
    assert line == "=" * len(title)
    used = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "sg"}
    used |= {
        a.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module == "structgp" for a in node.names
    }
    assert used
    assert used <= set(dir(sg))
    assert "sys.argv[1]" in ast.unparse(tree)
