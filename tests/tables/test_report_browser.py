"""Reports in a browser: Qt's Chromium, which comes as a wheel (PySide6 or PyQt6-WebEngine); `make browser` fetches one."""

import importlib.util
import json
import os
import subprocess
import sys

import numpy as np
import pytest

import structgp as sg
from structgp.tables.model import TableModel
from structgp.tables.reading import Column, Layout
from structgp.tables.report import ChangingSeries, write_change_report, write_report

LOOK = """
import importlib, json, sys
package, path, width = sys.argv[1], sys.argv[2], int(sys.argv[3])
part = lambda name: importlib.import_module(f"{package}.{name}")
core, widgets, engine, view = map(part, ("QtCore", "QtWidgets", "QtWebEngineCore", "QtWebEngineWidgets"))
app = widgets.QApplication(sys.argv[:1])
said = []

class Page(engine.QWebEnginePage):
    def javaScriptConsoleMessage(self, level, message, line, source):
        said.append(message)

window = view.QWebEngineView()
page = Page(window)
window.setPage(page)
window.resize(width, 900)
window.show()
measure = '''JSON.stringify({
  places: document.querySelectorAll(".figures .plot").length,
  drawn: Array.from(document.querySelectorAll(".figures > figure > .plot")).filter((p) => p.querySelector(".main-svg")).length,
  dark: matchMedia("(prefers-color-scheme: dark)").matches,
  paper: getComputedStyle(document.body).backgroundColor,
  wider: document.documentElement.scrollWidth > innerWidth,
  overlaps: Array.from(document.querySelectorAll("figure")).some((f) => f.scrollHeight > f.clientHeight + 2),
})'''

def told(result):
    print(json.dumps({**json.loads(result), "said": said}))
    app.quit()

window.loadFinished.connect(lambda ok: core.QTimer.singleShot(2000, lambda: page.runJavaScript(measure, told)))
core.QTimer.singleShot(60000, app.quit)
window.load(core.QUrl.fromLocalFile(path))
app.exec()
"""


def browser():
    """The package whose browser starts here, or None."""
    for package in ("PySide6", "PyQt6"):
        if importlib.util.find_spec(package) and importlib.util.find_spec(f"{package}.QtWebEngineCore"):
            starts = f"import {package}.QtWebEngineWidgets"  # fails where libraries of the system are missing
            if subprocess.run([sys.executable, "-c", starts], capture_output=True).returncode == 0:
                return package
    return None


@pytest.fixture(scope="module")
def look():
    package = browser()
    if package is None:
        pytest.skip("no browser here: `make browser` fetches one")

    def look(path, width, scheme):
        flags = f"--no-sandbox --disable-gpu --blink-settings=preferredColorScheme={0 if scheme == 'dark' else 1}"
        environment = {**os.environ, "QT_QPA_PLATFORM": "offscreen", "QTWEBENGINE_CHROMIUM_FLAGS": flags}
        arguments = [sys.executable, "-c", LOOK, package, str(path), str(width)]
        ended = subprocess.run(arguments, capture_output=True, text=True, timeout=120, env=environment)
        assert ended.stdout, ended.stderr
        return json.loads(ended.stdout.splitlines()[-1])

    return look


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    t = np.linspace(0.0, 5.0, 20)
    fitted = sg.GP(sg.Matern32() + sg.Matern12(variance=0.1), sg.Gaussian(0.01)).condition(t, np.sin(t))
    layout = Layout((Column("day", "date", unit="days"),))
    path = tmp_path_factory.mktemp("report") / "report.html"
    write_report(TableModel(fitted, layout, "regression", "level", np.zeros(1), np.ones(1), 20, "series"), path)
    return path


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (400, "dark")])
def test_a_browser_draws_every_plot(look, report, width, scheme):
    seen = look(report, width, scheme)
    assert seen["said"] == []
    assert seen["drawn"] == 4
    assert seen["dark"] == (scheme == "dark")
    assert seen["paper"] == ("rgb(21, 24, 29)" if scheme == "dark" else "rgb(255, 255, 255)")
    assert not seen["wider"]
    assert not seen["overlaps"]


def test_a_browser_draws_changes(look, tmp_path):
    y = np.repeat([0.0, 3.0], 10)
    series = ChangingSeries("level", "row", np.arange(20.0), y, np.array([10]), np.where(np.arange(20) == 10, 0.9, 0.0))
    write_change_report(series, tmp_path / "changes.html")
    seen = look(tmp_path / "changes.html", 400, "light")
    assert seen["said"] == []
    assert seen["drawn"] == 2
