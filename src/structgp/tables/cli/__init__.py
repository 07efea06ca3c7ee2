"""The command line: `structgp fit`, `predict`, `plan`, `report`, `changepoints`, `identify`, `suggest`, `info` and `demo`.

A command ends with 0 when all went well, 1 when the data or files are not what is needed (one line says what to do), and 2 when
the command itself cannot be understood. With --json the answer is one JSON object on the standard output, and nothing else.
"""

from . import fit, saved, series, suggest  # which are found by being imported, in this order
from .base import app, seconds_of

__all__ = ["app", "fit", "saved", "seconds_of", "series", "suggest"]
