"""Run the code of the tutorials as it stands and keep the pictures that they draw: `python docs/tutorials/pictures.py`."""

import os
import re
import shutil
import sys
import tempfile
from pathlib import Path

import matplotlib

HERE = Path(__file__).parent.resolve()
IMAGES = HERE.parent / "images"


def run(name):
    """Run a page beside its tables, and take its pictures."""
    matplotlib.use("Agg")
    blocks = re.findall(r"^```python\n(.*?)^```$", (HERE / f"{name}.md").read_text(), re.MULTILINE | re.DOTALL)
    with tempfile.TemporaryDirectory() as folder:
        for table in (HERE / "data").glob("*.csv"):
            shutil.copy(table, folder)
        os.chdir(folder)
        namespace = {"__name__": "page"}
        for block in blocks:
            exec(compile(block, f"{name}.md", "exec"), namespace)
        for picture in Path(folder).glob("*.png"):
            shutil.copy(picture, IMAGES)
            print(IMAGES / picture.name)
        os.chdir(HERE)


if __name__ == "__main__":
    for name in sys.argv[1:] or ["sensors", "counts", "map", "experiment"]:
        run(name)
