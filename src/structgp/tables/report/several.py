"""What a report shows of several columns together, and of a system."""

from __future__ import annotations

import numpy as np

from ..several import Filled, Record
from .figures import Figure, Trace


def filled_figures(filled: Filled) -> list[Figure]:
    """Every series with its band and what was seen of it, along its only input."""
    if filled.x.shape[1] > 1:
        return []
    order = np.argsort(filled.x[:, 0], kind="stable")
    x, found = filled.x[order, 0], []
    for p, name in enumerate(filled.names):
        middle, lower, upper = (part[order, p] for part in (filled.median, filled.lower, filled.upper))
        seen = np.isfinite(filled.seen[order, p])
        traces = (
            Trace("band", x, lower, "95 % of new values", upper),
            Trace("line", x, middle, "median"),
            Trace("points", x[seen], filled.seen[order, p][seen], "seen"),
        )
        found.append(Figure(name, filled.x_name, name, traces, filled.written))
    return found


def system_figures(record: Record) -> list[Figure]:
    """The responses of a system with their bands."""
    system, at = record.system, record.system.frequency()
    found = []
    for title, part in (("Impulse response", system.impulse), ("Step response", system.step)):
        traces = (Trace("band", part.t, part.lower, "95 %", part.upper), Trace("line", part.t, part.mean, "mean"))
        found.append(Figure(title, "time", record.target, traces))
    quiet = ~at.excited
    gain = (
        Trace("band", at.frequency, at.lower, "95 %", at.upper),
        Trace("line", at.frequency, at.gain, "gain"),
        Trace("points", at.frequency[quiet], at.gain[quiet], "not excited by the input"),
    )
    return [*found, Figure("Gain", "frequency (rad)", "gain", gain)]
