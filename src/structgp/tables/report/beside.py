"""What a report shows of models beside each other."""

from __future__ import annotations

import numpy as np

from .figures import Figure, Trace

SCORE = "log probability"  # how the column begins that is drawn


def comparison_figures(rows: list[list[str]]) -> list[Figure]:
    """By how much less each model makes a row probable than the best does, in the order of a table whose header is first."""
    place = next((c for c, name in enumerate(rows[0]) if name.startswith(SCORE)), None)
    told = [(row[0], float(row[1 + place])) for row in numbered(rows)[1:] if place is not None and row[1 + place]]
    if len(told) < 2:
        return []
    numbers, values = zip(*told, strict=True)
    less = max(values) - np.array(values)
    bars = Trace("bars", np.arange(float(len(numbers))), less, labels=numbers)
    return [Figure("Log probability of a row, below the best", "model, by its number below", "less by", (bars,))]


def numbered(rows: list[list[str]]) -> list[list[str]]:
    """The rows of a table, each with its number before it, which is shorter than a name."""
    return [["", *rows[0]], *([f"{number}", *row] for number, row in enumerate(rows[1:], 1))]
