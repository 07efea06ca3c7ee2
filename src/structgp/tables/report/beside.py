"""What a report shows of models beside each other."""

from __future__ import annotations

import numpy as np

from .figures import Figure, Trace

SCORE = "log probability"  # how the column begins that is drawn


def comparison_figures(rows: list[list[str]]) -> list[Figure]:
    """By how much less each model makes a row probable than the best does, in the order of a table whose header is first."""
    place = next((c for c, name in enumerate(rows[0]) if name.startswith(SCORE)), None)
    told = [(row[0], float(row[place])) for row in rows[1:] if place is not None and row[place]]
    if len(told) < 2:
        return []
    names, values = zip(*told, strict=True)
    less = max(values) - np.array(values)
    bars = Trace("bars", np.arange(float(len(names))), less, labels=names)
    return [Figure("Log probability of a row, below the best", "model", "less by", (bars,))]
