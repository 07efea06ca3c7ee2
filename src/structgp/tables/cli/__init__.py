"""The command line: `structgp fit`, `forecast`, `fill`, `compare`, `predict`, `plan`, `report`, `changepoints`, `identify`,
`embed`, `suggest`, `info` and `demo`.

A command ends with 0 when all went well, 1 when the data or files are not what is needed (one line says what to do), and 2 when
the command itself cannot be understood. With --json the answer is one JSON object on the standard output, and nothing else.
"""

from . import compare, embed, fill, fit, forecast, saved, series, suggest  # which enter their commands when they are imported
from .base import app, in_order, seconds_of

__all__ = ["app", "compare", "embed", "fill", "fit", "forecast", "saved", "seconds_of", "series", "suggest"]

in_order(app)
