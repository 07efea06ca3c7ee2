"""What a report shows of a table that was laid out: the map, which coordinates count, and what the map says of each column."""

from __future__ import annotations

import numpy as np

from ..embed import Embedded
from .figures import PALETTE, Figure, Trace

PLACES = 60  # on each side of what is drawn behind a map
CLASSES = len(PALETTE)  # that have a colour of their own


def map_figures(found: Embedded) -> list[Figure]:
    """The rows in the two coordinates that tell most, and how sure the functions are there; then the relevances."""
    fitted, Z = found.map.fitted_, found.map.embedding_
    a, b = fitted.most_relevant()
    figures = []
    if a != b:
        across, up = (
            np.linspace(np.min(v) - 0.06 * np.ptp(v), np.max(v) + 0.06 * np.ptp(v), PLACES) for v in (Z[:, a], Z[:, b])
        )
        behind = Trace("image", across, up, values=fitted.shade(across, up, (a, b)))
        names = f"coordinate {a + 1}", f"coordinate {b + 1}"
        figures.append(Figure(_title(found), *names, tuple(_rows(found, Z[:, a], Z[:, b]))))
        title = "How unsure the functions are: standard deviation in units of the spread of the columns"
        figures.append(Figure(title, *names, (behind, Trace("points", Z[:, a], Z[:, b], "rows"))))
    else:
        figures.append(Figure(_title(found), "coordinate 1", "row", tuple(_rows(found, Z[:, 0], np.arange(1.0, len(Z) + 1)))))
    if Z.shape[1] > 1:
        each = np.arange(float(Z.shape[1]))
        bars = Trace("bars", each, fitted.relevance, labels=tuple(str(q + 1) for q in range(Z.shape[1])))
        figures.append(Figure("How much each coordinate counts, the largest 1", "coordinate", "relevance", (bars,)))
    return figures


def _title(found: Embedded) -> str:
    return "Where the rows lie" if found.color is None else f"Where the rows lie, coloured by {found.color}"


def _rows(found: Embedded, x: np.ndarray, y: np.ndarray) -> list[Trace]:
    """The rows, class by class or by a number."""
    labels = found.labels
    if labels is None:
        return [Trace("points", x, y)]
    if labels.dtype.kind == "f" and len(np.unique(labels[np.isfinite(labels)])) > CLASSES:
        known = np.isfinite(labels)
        return [Trace("places", x[known], y[known], values=labels[known] - np.median(labels[known]))]
    texts = np.array([f"{label:.6g}" for label in labels]) if labels.dtype.kind == "f" else labels
    classes, counts = np.unique(texts, return_counts=True)
    own = classes[np.argsort(-counts, kind="stable")][:CLASSES]
    traces = [
        Trace("points", x[texts == one], y[texts == one], str(one), colour=colour)
        for one, colour in zip(np.sort(own), PALETTE, strict=False)
    ]
    rest = ~np.isin(texts, own)
    return [*traces, Trace("points", x[rest], y[rest], "others")] if rest.any() else traces


def column_rows(found: Embedded) -> list[list[str]]:
    """What the map explains of each column, and how many of its cells are missing, the header first."""
    gone = np.isnan(found.numbers).sum(axis=0)
    rows = zip(found.layout.names, found.explained, gone, strict=True)
    return [
        ["column", "explained", "missing"],
        *([name, f"{100 * share:.0f} %", str(int(count))] for name, share, count in rows),
    ]


def map_headline(found: Embedded) -> str:
    """What was laid out, in a sentence."""
    count, share = len(found.layout.names), f"{100 * np.mean(found.explained):.0f} %"
    inputs = f"{count} column{'' if count == 1 else 's'}"
    said = f"{found.rows} rows of {inputs} in {found.map.dimensions_} coordinates, which explain {share} of their variance."
    return f"{said} Rows that lie near each other are alike in all columns."
