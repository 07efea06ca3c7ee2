"""What a report shows of models beside each other."""

from __future__ import annotations

import numpy as np

from .figures import Figure, Trace

SCORE = "log probability"  # how the column begins that is drawn


def comparison_figures(rows: list[list[str]]) -> list[Figure]:
    """How probable each model makes a row, in the order of a table whose header is first."""
    place = next((c for c, name in enumerate(rows[0]) if name.startswith(SCORE)), None)
    told = [(str(number), float(row[place])) for number, row in enumerate(rows[1:], 1) if place is not None and row[place]]
    if len(told) < 2:
        return []
    numbers, values = zip(*told, strict=True)
    marks = Trace("ranges", np.arange(float(len(numbers))), np.array(values), labels=numbers)
    return [Figure("Log probability of a row", "model", "log probability", (marks,))]


def numbered(rows: list[list[str]]) -> list[list[str]]:
    """The rows of a table, each with its number before its name."""
    return [rows[0], *([f"{number}. {row[0]}", *row[1:]] for number, row in enumerate(rows[1:], 1))]
