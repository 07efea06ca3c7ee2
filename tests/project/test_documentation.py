"""The pages that show code: it runs as it stands there, prints what stands below it, and every public name has its place."""

import contextlib
import importlib
import importlib.util
import io
import json
import re
import shlex
import shutil
from pathlib import Path

import jax
import matplotlib
import numpy as np
import pytest
import typer

import structgp as sg
import zoo
from structgp import _types
from structgp.engines import plan
from structgp.tables.cli import app

pytestmark = pytest.mark.averaged

DOCS = Path(__file__).parents[2] / "docs"
FENCE = re.compile(r"^```python\n(.*?)^```$(?:\n\n```text\n(.*?)^```$)?", re.MULTILINE | re.DOTALL)
SPAN = re.compile(r"`([^`\n]+)`")
ROOMS = sorted(page.name for page in (DOCS / "rooms").glob("*.md"))
PAGES = [
    "quickstart.md",
    "parameters.md",
    "decide.md",
    "latent.md",
    "recipes/kernel.md",
    "recipes/likelihood.md",
    "recipes/engine.md",
]
TUTORIALS = [f"tutorials/{page.name}" for page in sorted((DOCS / "tutorials").glob("*.md")) if page.name != "index.md"]
SECTIONS = ("rooms", "tutorials", "systems")  # folders of pages, of which those with code are run
PAGES += [
    f"{page.parent.name}/{page.name}"
    for s in SECTIONS
    for page in sorted((DOCS / s).glob("*.md"))
    if "```python" in page.read_text()
]
LIBRARIES = ["scikit-learn", "GPyTorch", "GPflow", "celerite2", "GPy", "BoTorch", "statsmodels", "Prophet", "ruptures"]


def run(page, alike=str.__eq__):
    """Execute the Python of a page, block by block, in one namespace; lines are counted as in the page."""
    text, namespace = (DOCS / page).read_text(), {"__name__": "page"}
    for block in FENCE.finditer(text):
        before = "\n" * text[: block.start(1)].count("\n")
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(compile(before + block[1], page, "exec"), namespace)
        if block[2]:
            shown, more = block[2].rstrip().removesuffix("…").rstrip(), block[2].rstrip().endswith("…")
            said = printed.getvalue().rstrip()
            assert said.startswith(shown) if more else alike(said, shown), said
    return namespace


@pytest.fixture(autouse=True)
def _engines_stay(monkeypatch):
    monkeypatch.setattr(plan, "ENGINES", plan.ENGINES)


@pytest.mark.parametrize("page", zoo.mostly_full([page for page in PAGES if page not in TUTORIALS], "recipes/kernel.md"))
def test_code_on_pages_runs(page):
    assert run(page)["sg"] is sg


def nearly(said, shown):
    """Whether words are the same, and numbers within 5 % or two units of their last digit: they come out of draws."""
    number = re.compile(r"-?\d+(?:\.\d+)?")
    words = [re.sub(r"\s+", " ", number.sub("0", text)) for text in (said, shown)]
    pairs = zip(number.findall(said), number.findall(shown), strict=False)
    unit = lambda text: 10.0 ** -len(text.partition(".")[2])
    near = (abs(float(a) - float(b)) <= max(0.05 * abs(float(b)), 2 * max(unit(a), unit(b))) for a, b in pairs)
    return words[0] == words[1] and all(near)


@pytest.mark.full
@pytest.mark.parametrize("page", TUTORIALS)
def test_a_tutorial_does_its_task_and_draws_its_picture(page, tmp_path, monkeypatch):
    for table in (DOCS / "tutorials" / "data").glob("*.csv"):
        shutil.copy(table, tmp_path)
    monkeypatch.chdir(tmp_path)
    matplotlib.use("Agg")
    assert run(page, nearly)["sg"] is sg
    matplotlib.pyplot.close("all")
    picture = re.search(r"!\[.{60,}\]\(\.\./images/(tutorial-\w+\.png)\)", (DOCS / page).read_text())[1]
    assert (tmp_path / picture).stat().st_size > 5000
    assert (DOCS / "images" / picture).exists()


@pytest.mark.full
def test_the_first_page_prints_what_it_shows(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    matplotlib.use("Agg")
    code, shown = FENCE.search((DOCS.parent / "README.md").read_text()).groups()
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(code, "README.md", "exec"), {"__name__": "page"})
    matplotlib.pyplot.close("all")
    without_time = lambda text: re.sub(r"(?m)^learning +converged after .*$", "", text).strip()
    assert nearly(without_time(printed.getvalue()), without_time(shown)), printed.getvalue()
    assert (tmp_path / "fit.png").stat().st_size > 5000


def test_numbers_on_tutorials_agree_nearly():
    assert nearly("off by 95 m, [0.68]", "off by 93 m,  [0.69]")
    assert not nearly("off by 95 m", "off by 80 m")
    assert not nearly("off by 95 m", "off by 95 km")


def tables(page):
    """(heading, rows) of each table of a page; a row is its cells, without the header."""
    heading, found = "", []
    for line in (DOCS / page).read_text().splitlines():
        if line.startswith("#"):
            heading = line.lstrip("# ")
        elif line.startswith("| ") and found and found[-1][2]:
            found[-1][1].append([cell.strip() for cell in line.strip("|").split(" | ")])
        elif line.startswith("|---"):
            found.append((heading, [], True))
        elif not line.startswith("|") and found:
            found[-1] = (*found[-1][:2], False)
    return [(heading, rows) for heading, rows, _ in found]


MIGRATION = dict(tables("migration.md"))


@pytest.fixture(scope="module")
def at_hand():
    return run("migration.md")


def test_migration_has_all_libraries():
    assert [heading for heading in MIGRATION if "Kernels" not in heading] == LIBRARIES


@pytest.mark.full
@pytest.mark.parametrize("heading", MIGRATION)
def test_our_side_of_the_tables_runs(heading, at_hand):
    ours = {span for row in MIGRATION[heading] for span in SPAN.findall(row[1]) if "(" in span or "." in span}
    assert len(ours) > 3
    for expression in sorted(ours):
        if expression.startswith("structgp "):
            assert_command(expression)
        else:
            eval(expression, at_hand)


def assert_command(line):
    """A command of the shell whose name and options exist."""
    name, *words = shlex.split(line)[1:]
    known = {option for parameter in typer.main.get_group(app).commands[name].params for option in parameter.opts}
    assert {word for word in words if word.startswith("--")} <= known


def test_commands_on_pages_exist():
    pages = [DOCS.parent / "README.md", *DOCS.glob("*.md"), *DOCS.glob("tutorials/*.md"), *DOCS.glob("systems/*.md")]
    texts = [page.read_text().replace("\\\n", " ") for page in pages]
    blocks = [block for text in texts for block in re.findall(r"^```(?:sh)?\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)]
    lines = [line for block in blocks for line in block.splitlines() if line.startswith("structgp ")]
    lines += [" ".join(span.split()) for text in texts for span in re.findall(r"`(structgp \w[^`]*)`", text)]
    lines = [line.split("#")[0].replace("…", "") for line in lines]
    assert len(lines) > 30
    for line in lines:
        if not shlex.split(line)[1].startswith("-"):
            assert_command(line)


SYSTEMS = [page.name for page in sorted((DOCS / "systems").glob("*.md")) if page.name != "index.md"]


@pytest.mark.parametrize("page", [*SYSTEMS, "../latent.md", "../parts.md"])
def test_a_system_has_its_picture_and_the_command_that_draws_it(page):
    text = (DOCS / "systems" / page).read_text()
    picture = re.search(r"!\[.{30,}\]\((?:\.\./)?images/(\w+)\.png\)", text)[1]
    assert (DOCS / "images" / f"{picture}.png").stat().st_size > 5000
    assert f"`python examples/{picture}.py {picture}.png`" in text
    assert (DOCS.parent / "examples" / f"{picture}.py").exists()
    assert f"]({page})" in (DOCS / "systems" / "index.md").read_text()


def covariance(kernel, X):
    with jax.enable_x64(True):
        return np.asarray(sg.covariance(kernel, X, X))


def test_kernels_of_sklearn_are_these(at_hand):
    theirs = vars(importlib.import_module("sklearn.gaussian_process.kernels"))
    X = at_hand["X"][:5]
    for row in MIGRATION["Kernels of scikit-learn"]:
        left, right = (SPAN.search(cell)[1] for cell in row)
        np.testing.assert_allclose(eval(left, {**theirs})(X), covariance(eval(right, at_hand), X), rtol=1e-12, atol=1e-14)


def test_kernels_of_celerite2_are_these(at_hand):
    terms = pytest.importorskip("celerite2").terms
    X = at_hand["X"][:5]
    for row in MIGRATION["Kernels of celerite2"][:-1]:
        left, right = (SPAN.search(cell)[1] for cell in row)
        value = eval(left, {"terms": terms}).get_value(np.abs(X - X.T))
        np.testing.assert_allclose(value, covariance(eval(right, at_hand), X), rtol=1e-4)


@pytest.mark.parametrize("library", ["gpytorch", "gpflow", "celerite2"])
def test_names_of_others_exist(library):
    module = pytest.importorskip(library)
    names = set(re.findall(rf"\b{library}\.([\w.]+)", (DOCS / "migration.md").read_text()))
    assert names
    for name in names:
        found = module
        for part in name.split("."):
            found = getattr(found, part)


def test_every_public_name_has_a_room():
    text = "\n".join((DOCS / "rooms" / room).read_text() for room in ROOMS)
    named = set(re.findall(r":: structgp\.(\w+)$", text, re.MULTILINE)) | {span.split("(")[0] for span in SPAN.findall(text)}
    assert set(sg.__all__) - {"__version__"} <= named


def test_rooms_name_what_exists():
    for room in ROOMS:
        for name in re.findall(r":: (structgp[\w.]+)$", (DOCS / "rooms" / room).read_text(), re.MULTILINE):
            module, attribute = name.rsplit(".", 1)
            assert hasattr(importlib.import_module(module), attribute), name


def test_names_on_the_decision_page_exist():
    engines = {engine.name for engine in (*plan.ENGINES, *plan.BY_NAME)}
    names = set(re.findall(r"`(?:sg\.)?([A-Z]\w+)", (DOCS / "choose.md").read_text()))
    assert len(names) >= 40
    assert names - engines <= set(sg.__all__)
    asked = [SPAN.search(row[0])[1].strip('"') for row in dict(tables("choose.md"))["Which structure"] if row[0]]
    assert asked == list(dict.fromkeys(engine.structure for engine in (*plan.ENGINES, *plan.BY_NAME)))


def test_default_inference_on_the_decision_page():
    rows = dict(tables("choose.md"))["Which likelihood"][:-1]
    for row in (row for row in rows if row[2] != "exact"):
        for name in re.findall(r"`([A-Z]\w+)", row[1]):
            assert getattr(sg, name)().default_inference == row[2].lower(), name


def test_the_notation_is_that_of_the_code():
    words = lambda text: [re.sub(r"[`\s]", "", cell) for cell in text.strip().strip("|").split("|")]
    in_code = [words(line) for line in _types.__doc__.splitlines() if line.startswith("| ")]
    on_page = [words("|".join(row)) for row in tables("notation.md")[0][1]]
    assert on_page == in_code[1:]


@pytest.fixture(scope="module")
def pages():
    found = importlib.util.spec_from_file_location("pages", DOCS / "pages.py")
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def test_the_benchmark_page_shows_what_was_measured(pages, tmp_path):
    machine = {"cpu": "a processor", "cores": 2, "load_average": [0.1], "date": "2030-01-01T00:00:00", "python": "3.13"}
    rows = [{"N": n, "method": "structgp", "warm s": 1e-3 * n, "note": ""} for n in (10, 100)]
    block = {"problem": "sums", "about": "sums of N numbers", "rows": rows}
    content = {
        "machine": {**machine, "versions": {"jax": "0.12"}, "settings": {}},
        "command": ["x", "sums"],
        "problems": [block],
    }
    measured, page = tmp_path / "bench.json", tmp_path / "made" / "benchmarks.md"
    pages.write_benchmarks(measured, page)
    assert "run `make bench`" in page.read_text()
    measured.write_text(json.dumps(content))
    pages.write_benchmarks(measured, page)
    assert page.read_text().startswith("a processor, 2 cores")
    assert "`python -m benchmarks sums`" in page.read_text()
    assert "| 100 | structgp | 0.1 |" in page.read_text()
    assert "structgp 1.00" in page.read_text()


def test_the_gallery_has_every_example(pages):
    order = pages.GalleryOrder("")
    names = sorted((path.name for path in (DOCS.parent / "examples").glob("*.py")), key=order)
    assert names[:2] == ["quickstart.py", "co2.py"]
    assert {f"{name}.py" for name in pages.ORDER} <= set(names)
