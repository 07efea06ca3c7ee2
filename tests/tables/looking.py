"""Pages in a browser: Qt's Chromium, which comes as a wheel (PySide6 or PyQt6-WebEngine); `make browser` fetches one.

`python tests/tables/looking.py REPORT.html … --out FOLDER` takes pictures of pages at both widths, light and dark, and prints
what is wrong with them.
"""

import argparse
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

WIDTHS, SCHEMES = (1280, 400), ("light", "dark")
LEAST_CONTRAST = 4.5  # of small text with what is behind it (WCAG 2, level AA)

LOOK = """
import importlib, json, sys
package, asked = sys.argv[1], json.loads(sys.argv[2])  # [path, width, picture or ""] of each page
part = lambda name: importlib.import_module(f"{package}.{name}")
core, widgets, engine, view = map(part, ("QtCore", "QtWidgets", "QtWebEngineCore", "QtWebEngineWidgets"))
app = widgets.QApplication(sys.argv[:1])
measure = sys.stdin.read()
said = []

class Page(engine.QWebEnginePage):
    def javaScriptConsoleMessage(self, level, message, line, source):
        said.append(message)

window = view.QWebEngineView()
page = Page(window)
window.setPage(page)

def start():
    if not asked:
        return app.quit()
    said.clear()
    path, width, _ = asked[0]
    window.resize(width, 900)
    window.show()
    window.load(core.QUrl.fromLocalFile(path))

def loaded(ok):
    core.QTimer.singleShot(1500, lambda: page.runJavaScript(measure, told))

def told(result):
    path, width, picture = asked[0]
    print(json.dumps({**json.loads(result), "said": list(said)}), flush=True)
    if not picture:
        asked.pop(0)
        return start()
    window.resize(width, min(json.loads(result)["high"], 16000))
    core.QTimer.singleShot(1500, shoot)

def shoot():
    window.grab().save(asked.pop(0)[2])
    start()

window.loadFinished.connect(loaded)
core.QTimer.singleShot(60000 * len(asked), app.quit)
start()
app.exec()
"""

MEASURE = f"{Path(__file__).with_name('measure.js').read_text()}({LEAST_CONTRAST})"


def browser():
    """The package whose browser starts here, or None."""
    for package in ("PySide6", "PyQt6"):
        if importlib.util.find_spec(package) and importlib.util.find_spec(f"{package}.QtWebEngineCore"):
            starts = f"import {package}.QtWebEngineWidgets"  # fails where libraries of the system are missing
            if subprocess.run([sys.executable, "-c", starts], capture_output=True).returncode == 0:
                return package
    return None


def look(package, pages, scheme):
    """What is seen of pages, each (path, width) or (path, width, picture to be written), by one browser."""
    flags = f"--no-sandbox --disable-gpu --blink-settings=preferredColorScheme={0 if scheme == 'dark' else 1}"
    environment = {**os.environ, "QT_QPA_PLATFORM": "offscreen", "QTWEBENGINE_CHROMIUM_FLAGS": flags}
    asked = json.dumps([[str(path), width, str(*picture)] for path, width, *picture in pages])
    arguments = [sys.executable, "-c", LOOK, package, asked]
    ended = subprocess.run(arguments, input=MEASURE, capture_output=True, text=True, timeout=120 * len(pages), env=environment)
    found = [json.loads(line) for line in ended.stdout.splitlines() if line.startswith("{")]
    assert len(found) == len(pages), ended.stderr
    return found


def main():
    """Take pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("reports", nargs="+", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    package = browser()
    if package is None:
        sys.exit("no browser here: `make browser` fetches one")
    for scheme in SCHEMES:
        name = lambda path, width, scheme=scheme: f"{path.resolve().parent.name}-{path.stem}-{width}-{scheme}.png"
        asked = [(path.resolve(), width, arguments.out / name(path, width)) for path in arguments.reports for width in WIDTHS]
        for (_, _, picture), seen in zip(asked, look(package, asked, scheme), strict=True):
            print(picture, *(f"  {what}" for what in [*seen["wrong"], *seen["said"]]), sep="\n")


if __name__ == "__main__":
    main()
