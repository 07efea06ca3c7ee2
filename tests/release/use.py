"""What somebody does first with an installed structgp: `python use.py VERSION [--whole]`, away from the sources."""

import subprocess
import sys
import tempfile
from pathlib import Path


def in_python(version: str) -> str:
    """Fit, predict, save and load; nothing but what the wheel asks for is there."""
    import numpy as np

    import structgp as sg

    assert sg.__version__ == version, (sg.__version__, version)
    assert "site-packages" in sg.__file__, f"{sg.__file__} is not what was installed"
    x = np.linspace(0.0, 6.0, 40)
    y = np.sin(x) + 0.05 * np.cos(40 * x)
    gp = sg.GP(sg.Matern52(), likelihood=sg.Gaussian(0.01))
    assert str(gp.plan(x)).startswith("Kalman")
    fitted = gp.fit(x, y, parameters="best", restarts=0)
    prediction = fitted.predict([1.5, 3.0])
    assert np.abs(prediction.mean - np.sin([1.5, 3.0])).max() < 0.1
    with tempfile.TemporaryDirectory() as folder:
        fitted.save(Path(folder) / "m.structgp")
        again = sg.load(Path(folder) / "m.structgp").predict([1.5, 3.0])
    np.testing.assert_allclose(again.mean, prediction.mean)
    return "fit, predict, save, load"


def on_the_command_line(version: str, whole: bool) -> str:
    """The version, what would be tried on a table, and on the whole a model, by the script that the wheel installs."""
    command = Path(sys.executable).with_name("structgp")
    say = lambda *words: subprocess.run([command, *map(str, words)], check=True, capture_output=True, text=True).stdout
    assert say("--version").strip() == f"structgp {version}"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "new.csv").write_text("year,level\n" + "".join(f"{2000 + k},{k % 7}.5\n" for k in range(20)))
        assert "Kalman" in say("plan", folder / "new.csv", "--target", "level", "--time", "year")
        if not whole:
            return "structgp --version, plan"
        say("demo", "--out", folder / "demo", "--budget", "20s")
        written = {path.name for path in (folder / "demo").iterdir()}
        assert {"model.structgp", "predictions.csv", "report.html", "forecast.csv"} <= written, written
        assert "plotly" in (folder / "demo" / "report.html").read_text().lower()
        (folder / "new.csv").write_text("year\n2005.5\n2006.5\n")
        assert say("predict", folder / "demo" / "model.structgp", folder / "new.csv").count("\n") == 3
    return "structgp --version, plan, demo, predict"


if __name__ == "__main__":
    print("; ".join([in_python(sys.argv[1]), on_the_command_line(sys.argv[1], "--whole" in sys.argv)]))
