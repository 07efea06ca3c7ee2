"""What is made from files: the order of the gallery, and the page with the tables of `make bench`."""

import json
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.machine import one_line  # noqa: E402
from benchmarks.report import slope_lines, table  # noqa: E402

ORDER = [
    "quickstart",
    "co2",
    "million",
    "streaming",
    "labels",
    "counts",
    "robust",
    "twinned",
    "classes",
    "changepoints",
    "optimise",
    "image",
]


class GalleryOrder:
    """Examples in the order above, then the others by name."""

    def __init__(self, folder):
        self.folder = folder

    def __call__(self, filename):
        name = Path(filename).stem
        return ORDER.index(name) if name in ORDER else len(ORDER), name


def write_benchmarks(measured, page):
    """Write the tables that `make bench` measured on this machine, or how to get them."""
    text = "Nothing was measured here yet: run `make bench`, then `make docs`.\n"
    if measured.exists():
        text = tables(json.loads(measured.read_text()))
    page.parent.mkdir(exist_ok=True)
    if not page.exists() or page.read_text() != text:  # a page that did not change is not read again
        page.write_text(text)


def tables(content):
    """The machine, the command, and one table for each problem."""
    lines = [one_line(content["machine"]), "", f"`python -m benchmarks {' '.join(content['command'][1:])}`", ""]
    for block in content["problems"]:
        lines += [f"### {block['problem']}", "", block["about"], "", table(block["rows"], markdown=True), ""]
        lines += [slope_lines(block["rows"]), ""]
    return "\n".join(lines)
