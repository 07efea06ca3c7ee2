"""How Sphinx builds these pages; `make docs` runs it."""

import re
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

import pages  # noqa: E402

import structgp  # noqa: E402

project = "structgp"
author = "the structgp developers"
version = release = structgp.__version__
project_copyright = author
language = "en-GB"

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_gallery.gen_gallery"]
exclude_patterns = ["_build", "_generated", "**/sg_execution_times.rst", "sg_execution_times.rst"]
myst_heading_anchors = 3
highlight_language = "none"  # what says no language is a plan, a table or a tree

html_theme = "furo"
html_title = f"structgp {release}"
html_static_path = ["_static"]
html_css_files = ["structgp.css"]
html_copy_source = False
html_show_sourcelink = False

autodoc_typehints = "none"
autodoc_member_order = "bysource"
default_role = "literal"  # `code`, in docstrings

sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "gallery",
    "filename_pattern": r"\.py$",
    "within_subsection_order": "pages.GalleryOrder",
    "download_all_examples": False,
    "show_signature": False,
    "min_reported_time": 1,
    "reset_modules": ("matplotlib",),
    "capture_repr": (),
}

HIDDEN = ", notes=(), ties=()"  # what every parametrised value has, and nobody passes by hand
SPANS = re.compile(r"``.+?``|`.+?`")
NAMES = re.compile(r"\w+(, \w+)*( : .*)?")  # the head of an entry in a list of parameters or attributes


def short_signature(app, what, name, obj, options, signature, return_annotation):
    """A signature without the notes and ties of parameters."""
    short = (signature or "").replace(HIDDEN, "").replace(", *)", ")").replace("(*)", "()")
    return (short, return_annotation) if signature else None


def routing_is_left_out(app, what, name, obj, skip, options):
    """Leave out the methods that scikit-learn adds for the routing of metadata."""
    return True if re.fullmatch(r"set_\w+_request", name) else None


def plain_words(app, what, name, obj, options, lines):
    """Docstrings are plain words and code between back quotes: nothing else in them is markup."""
    session = False  # what a doctest prints stays as it is, up to the next empty line
    for i, line in enumerate(lines):
        session = bool(line.strip()) and (session or line.lstrip().startswith(">>>"))
        if not session and not NAMES.fullmatch(line):
            lines[i] = plain_line(line)


def plain_line(line):
    """A line with single back quotes made double, and * | _ outside of code as they are."""
    words, at = [], 0
    for span in SPANS.finditer(line):
        words += [escaped(line[at : span.start()]), f"``{span[0].strip('`')}``"]
        at = span.end()
    return "".join([*words, escaped(line[at:])])


def escaped(text):
    """Text in which reStructuredText finds no emphasis, substitution or link."""
    return re.sub(r"([*|])", r"\\\1", re.sub(r"(?<=\w)_(?=\W|$)", r"\\_", text))


def setup(app):
    """Join in where docstrings and signatures pass, and write the pages that are made from files."""
    app.connect("autodoc-process-signature", short_signature)
    app.connect("autodoc-skip-member", routing_is_left_out)
    app.connect("autodoc-process-docstring", plain_words, priority=400)
    pages.write_benchmarks(HERE.parent / "bench.json", HERE / "_generated" / "benchmarks.md")
