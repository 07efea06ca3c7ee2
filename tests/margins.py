"""How close comparisons come to their tolerances: `PYTHONPATH=tests python -m pytest -p margins tests/laws`.

For every line that compares numbers (`assert_allclose`, `pytest.approx`) the largest error that was met, as a share of what is
allowed, with the test that met it. Lines are listed from a tenth on: another processor rounds otherwise, and may take the rest.
"""

import os
import sys
from pathlib import Path

import numpy as np
import pytest

SHOWN = 0.1
TESTS = str(Path(__file__).parent)
_largest = {}


def _record(error, allowed):
    with np.errstate(divide="ignore", invalid="ignore"):
        shares = np.where(error > 0, error / allowed, 0.0)
    frame = sys._getframe(2)
    while frame and (not frame.f_code.co_filename.startswith(TESTS) or frame.f_code.co_filename == __file__):
        frame = frame.f_back
    if frame and shares.size:
        line = f"{frame.f_code.co_filename.removeprefix(TESTS + os.sep)}:{frame.f_lineno}"
        found = float(np.max(shares)), os.environ.get("PYTEST_CURRENT_TEST", "").split("::")[-1]
        _largest[line] = max(found, _largest.get(line, (0.0, "")))


def pytest_configure():
    assert_allclose, scalar = np.testing.assert_allclose, type(pytest.approx(1.0))
    equals = scalar.__eq__

    def compare(actual, desired, rtol=1e-7, atol=0.0, **options):
        a, d = np.asarray(actual, dtype=float), np.asarray(desired, dtype=float)
        with np.errstate(invalid="ignore"):
            _record(np.abs(a - d), atol + rtol * np.abs(d))
        assert_allclose(actual, desired, rtol=rtol, atol=atol, **options)

    def approximates(self, actual):
        if np.isscalar(actual) and np.isscalar(self.expected) and self.expected != actual:
            _record(np.abs(np.asarray(actual - self.expected)), self.tolerance)
        return equals(self, actual)

    np.testing.assert_allclose, scalar.__eq__ = compare, approximates


def pytest_terminal_summary(terminalreporter):
    terminalreporter.write_line(f"{len(_largest)} lines compare numbers; errors of at least {SHOWN} of what is allowed:")
    for line, (share, test) in sorted(_largest.items(), key=lambda item: -item[1][0]):
        if share >= SHOWN:
            terminalreporter.write_line(f"{share:8.3f}  {line}  {test}")
