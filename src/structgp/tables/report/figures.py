"""Figures as values, drawn twice: as data for Plotly, and as plain SVG that is seen where no script runs."""

from __future__ import annotations

import dataclasses
import html
import math
from collections.abc import Callable
from typing import Any

import numpy as np

WIDTH, HEIGHT = 720, 340
LEFT, RIGHT, TOP, BOTTOM = 64, 12, 12, 44
TOOLBAR = 28  # pixels above a plot, for Plotly's buttons (2 to 24 from the top)
COLOURS = {
    "line": "#2f7fd6",
    "band": "#2f7fd6",
    "points": "#8a8f98",
    "bars": "#2f7fd6",
    "guide": "#c0564b",
    "ranges": "#2f7fd6",
}
PALETTE = ("#2f7fd6", "#d67a2f", "#3f9d58", "#b3489d", "#c0392b", "#7d6bd0", "#8c6d46", "#2aa5a5", "#a3a33b", "#e08fb0")
ACROSS, UPWARDS = 36, 34  # characters of the name of an axis, on a small screen
MOST_LABELS = 12  # bars that have room for their names
MOST_POINTS = 2000  # more are thinned out evenly


@dataclasses.dataclass(frozen=True)
class Trace:
    """One thing in a figure: a "line", a "guide", "points", a "band" (y to upper), "bars", "ranges" (y ± values),
    an "image" (values over x, y), or "places" (points coloured by values above and below 0)."""

    kind: str
    x: np.ndarray
    y: np.ndarray
    name: str = ""
    upper: np.ndarray | None = None
    values: np.ndarray | None = None
    labels: tuple[str, ...] = ()  # the names of bars and ranges
    colour: str = ""  # where it is not that of its kind


@dataclasses.dataclass(frozen=True)
class Figure:
    """A title, what the axes are, and what is drawn."""

    title: str
    x_title: str
    y_title: str
    traces: tuple[Trace, ...]
    written: Callable[[float], str] | None = None  # how a place is written, where it is not a number
    downwards: bool = False  # whether the vertical axis begins at the top, as the rows of a picture do
    clock: bool = False  # whether places are times of day, whose date means nothing
    stretch: float = 0.0  # of a map: how much longer one on the vertical axis is than on the horizontal one
    factors: bool = False  # whether places that differ by the same factor lie as far apart

    def plotly(self) -> dict[str, Any]:
        """Data and layout for Plotly."""
        places = numbers if self.written is None else lambda x: [self.written(float(one)) for one in x]
        data = [entry for trace in self.traces for entry in _plotly(_thinned(trace), places)]
        axis: Callable[[str, int], dict[str, Any]] = lambda title, most: {
            "title": {"text": cut(title, most), "font": {"size": 12}},
            "zeroline": False,
        }
        across = axis(self.x_title, ACROSS) | ({"type": "category"} if any(trace.labels for trace in self.traces) else {})
        across |= {"range": [-0.5, len(self.traces[0].labels) - 0.5]} if self.traces[0].kind == "ranges" else {}
        across |= {"tickformat": "%H:%M", "hoverformat": "%H:%M"} if self.clock else {}
        across |= {"type": "log", "dtick": 1} if self.factors else {}
        upwards = axis(self.y_title, UPWARDS) | ({"autorange": "reversed"} if self.downwards else {})
        upwards |= {"scaleanchor": "x", "scaleratio": self.stretch} if self.stretch else {}
        margin = {"l": 64, "r": 12, "t": TOOLBAR, "b": 48}
        return {"data": data, "layout": {"xaxis": across, "yaxis": upwards, "margin": margin, "showlegend": False}}

    def legend(self) -> str:
        """What is drawn, by name, as a list that wraps where there is no room: no plot is covered by it."""
        named = [trace for trace in self.traces if trace.name]
        items = "".join(f"<li>{_key(trace)}{html.escape(trace.name)}</li>" for trace in named)
        return f'<ul class="legend">{items}</ul>' if items else ""

    def svg(self) -> str:
        """The figure without any script."""
        x0, x1, y0, y1 = self._extent()
        along = np.log10 if self.factors else np.asarray
        to_x = lambda x: LEFT + (along(np.asarray(x, dtype=float)) - x0) / (x1 - x0) * (WIDTH - LEFT - RIGHT)
        height = HEIGHT - TOP - BOTTOM
        part = lambda y: (np.asarray(y, dtype=float) - y0) / (y1 - y0) * height
        to_y = lambda y: TOP + part(y) if self.downwards else HEIGHT - BOTTOM - part(y)
        parts = [shape for trace in self.traces for shape in _shapes(_thinned(trace), to_x, to_y, y0)]
        label = html.escape(self.title, quote=True)
        head = f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label}" xmlns="http://www.w3.org/2000/svg">'
        return "".join([head, *parts, *self._frame(x0, x1, y0, y1, to_x, to_y), "</svg>"])

    def _extent(self) -> tuple[float, float, float, float]:
        """The ends of both axes, a little beyond what is drawn, of an axis of factors as powers of ten; bars stand on 0."""
        xs = np.concatenate([np.ravel(trace.x) for trace in self.traces])
        xs = np.log10(xs) if self.factors else xs
        ys = [np.ravel(trace.y) for trace in self.traces] + [
            np.ravel(trace.upper) for trace in self.traces if trace.upper is not None
        ]
        reach = [(trace.y, trace.values) for trace in self.traces if trace.kind == "ranges"]
        ys += [end for y, values in reach if values is not None for end in (y - values, y + values)]
        ys += [np.zeros(1)] if any(trace.kind == "bars" for trace in self.traces) else []
        ends = []
        for values in (xs, np.concatenate(ys)):
            seen = values[np.isfinite(values)]
            low, high = (float(seen.min()), float(seen.max())) if len(seen) else (0.0, 1.0)
            margin = 0.04 * (high - low) or 0.5
            ends += [low - margin, high + margin]
        return ends[0], ends[1], ends[2], ends[3]

    def _marks(self, x0: float, x1: float) -> list[tuple[float, str]]:
        """What is written along the horizontal axis, and where."""
        named = next((trace for trace in self.traces if trace.labels), None)
        if named is not None and len(named.labels) <= MOST_LABELS:
            return [(float(x), html.escape(label[:10])) for x, label in zip(named.x, named.labels, strict=True)]
        if self.factors:
            return [(10.0**power, f"{10.0**power:g}") for power in range(math.ceil(x0), math.floor(x1) + 1)]
        if self.written is None:
            return [(x, f"{x:.6g}") for x in round_places(x0, x1)]
        text = lambda x: self.written(x)[11:16] if self.clock else self.written(x)
        return [(float(x), html.escape(text(float(x)))) for x in np.linspace(x0, x1, 6)[1:-1]]

    def _frame(self, x0: float, x1: float, y0: float, y1: float, to_x: Any, to_y: Any) -> list[str]:
        floor = HEIGHT - BOTTOM
        lines = [f'<path d="M{LEFT} {TOP}V{floor}H{WIDTH - RIGHT}" fill="none" stroke="currentColor"/>']
        text = '<text x="{:.0f}" y="{:.0f}" text-anchor="{}" font-size="12" fill="currentColor">{}</text>'
        lines += [text.format(float(to_x(x)), floor + 16, "middle", mark) for x, mark in self._marks(x0, x1)]
        lines += [text.format(LEFT - 6, float(to_y(y)) + 4, "end", f"{y:.6g}") for y in round_places(y0, y1)]
        lines.append(text.format((LEFT + WIDTH) / 2, HEIGHT - 8, "middle", html.escape(cut(self.x_title, 2 * ACROSS))))
        turned = f'<text transform="translate(14 {floor / 2:.0f}) rotate(-90)" text-anchor="middle" font-size="12" '
        return [*lines, f'{turned}fill="currentColor">{html.escape(cut(self.y_title, UPWARDS))}</text>']


def cut(text: str, most: int) -> str:
    """The beginning of a text that is longer than there is room for."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def round_places(low: float, high: float) -> list[float]:
    """About five round numbers between two ends."""
    raw = (high - low) / 5
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(size * power for size in (1, 2, 5, 10) if size * power >= 0.999 * raw)
    return [step * count for count in range(math.ceil(low / step), math.floor(high / step) + 1)]


def _thinned(trace: Trace) -> Trace:
    if trace.kind == "image" or len(trace.x) <= MOST_POINTS:
        return trace
    chosen = np.linspace(0, len(trace.x) - 1, MOST_POINTS).astype(int)
    upper, values = (None if part is None else part[chosen] for part in (trace.upper, trace.values))
    return dataclasses.replace(trace, x=trace.x[chosen], y=trace.y[chosen], upper=upper, values=values)


def numbers(values: Any) -> list[Any]:
    """Six digits of each number, null where there is none: small enough for a page."""
    array = np.asarray(values, dtype=float)
    if array.ndim > 1:
        return [numbers(row) for row in array]
    return [float(f"{value:.6g}") if np.isfinite(value) else None for value in array]


def _key(trace: Trace) -> str:
    """The sign that stands for a trace in a legend."""
    colour = trace.colour or COLOURS.get(trace.kind, "")
    drawn = {
        "points": f'<circle cx="10" cy="6" r="3.5" fill="{colour}"/>',
        "band": f'<rect width="20" height="12" fill="{colour}" fill-opacity="0.3"/>',
        "bars": f'<rect x="5" width="10" height="12" fill="{colour}"/>',
    }
    dash = ' stroke-dasharray="3 3"' if trace.kind == "guide" else ""
    line = f'<path d="M0 6H20" stroke="{colour}" stroke-width="2"{dash}/>'
    return f'<svg class="key" viewBox="0 0 20 12" aria-hidden="true">{drawn.get(trace.kind, line)}</svg>'


def _plotly(trace: Trace, places: Callable[[Any], list[Any]]) -> list[dict[str, Any]]:
    x, y, colour = places(trace.x), numbers(trace.y), trace.colour or COLOURS.get(trace.kind, "")
    base = {"x": x, "y": y, "name": trace.name}
    if trace.kind == "image":
        return [{"type": "heatmap", "x": x, "y": y, "z": numbers(trace.values), "colorscale": "Viridis"}]
    if trace.kind == "places":
        scale = {"color": numbers(trace.values), "colorscale": "RdBu", "cmid": 0, "showscale": True, "size": 7}
        return [{"type": "scatter", "mode": "markers", **base, "marker": {**scale, "line": {"width": 1, "color": "#8a8f98"}}}]
    if trace.kind == "bars":
        named = {"x": list(trace.labels)} if trace.labels else {}
        return [{"type": "bar", **base, **named, "marker": {"color": colour}}]
    if trace.kind == "ranges":
        reach = {} if trace.values is None else {"error_y": {"array": numbers(trace.values), "thickness": 2}}
        marks = {"type": "scatter", "mode": "markers", "marker": {"color": colour, "size": 11}}
        return [{**base, **marks, "x": list(trace.labels), **reach}]
    if trace.kind == "points":
        return [{"type": "scatter", "mode": "markers", **base, "marker": {"color": colour, "size": 5}}]
    if trace.kind == "band":
        edge = {"type": "scatter", "mode": "lines", "x": x, "line": {"width": 0}, "hoverinfo": "skip"}
        top = {**edge, "y": numbers(trace.upper), "fill": "tonexty", "fillcolor": "rgba(47,127,214,0.22)", "name": trace.name}
        return [{**edge, "y": y}, top]
    dash = {"dash": "dot"} if trace.kind == "guide" else {}
    return [{"type": "scatter", "mode": "lines", **base, "line": {"color": colour, "width": 2, **dash}}]


def _shapes(trace: Trace, to_x: Any, to_y: Any, floor: float) -> list[str]:
    colour = trace.colour or COLOURS.get(trace.kind, "")
    if trace.kind == "image":
        return _cells(trace, to_x, to_y)
    x, y = to_x(trace.x), to_y(trace.y)
    path = lambda xs, ys: "L".join(f"{a:.1f} {b:.1f}" for a, b in zip(xs, ys, strict=True) if np.isfinite(a + b))
    if trace.kind == "points":
        seen = np.isfinite(x + y)
        dots = "".join(f'<circle cx="{a:.1f}" cy="{b:.1f}" r="2"/>' for a, b in zip(x[seen], y[seen], strict=True))
        return [f'<g fill="{colour}">{dots}</g>']
    if trace.kind == "places":
        largest = np.nanmax(np.abs(trace.values)) or 1.0
        dot = '<circle cx="{:.1f}" cy="{:.1f}" r="{:.1f}" fill="{}"/>'
        found = zip(x, y, np.asarray(trace.values), strict=True)
        return [dot.format(a, b, 1.5 + 4 * abs(v) / largest, COLOURS["line" if v > 0 else "guide"]) for a, b, v in found]
    if trace.kind == "bars":
        half = 0.4 * (np.min(np.diff(x)) if len(x) > 1 else 40.0)
        base = float(to_y(max(floor, 0.0)))
        bars = "".join(
            f'<rect x="{a - half:.1f}" y="{min(b, base):.1f}" width="{2 * half:.1f}" height="{abs(base - b):.1f}"/>'
            for a, b in zip(x, y, strict=True)
        )
        return [f'<g fill="{colour}">{bars}</g>']
    if trace.kind == "ranges":
        reach = np.zeros(len(y)) if trace.values is None else np.asarray(trace.values)
        ends = zip(x, y, to_y(trace.y - reach), to_y(trace.y + reach), strict=True)
        line = '<path d="M{0:.1f} {1:.1f}V{2:.1f}" stroke="{3}" stroke-width="2"/>'
        dot = '<circle cx="{0:.1f}" cy="{1:.1f}" r="5" fill="{2}"/>'
        return [line.format(a, low, high, colour) + dot.format(a, b, colour) for a, b, low, high in ends]
    if trace.kind == "band":
        upper = to_y(trace.upper)
        around = path(np.concatenate([x, x[::-1]]), np.concatenate([y, upper[::-1]]))
        return [f'<path d="M{around}Z" fill="{colour}" fill-opacity="0.22"/>']
    dash = ' stroke-dasharray="3 4"' if trace.kind == "guide" else ""
    return [f'<path d="M{path(x, y)}" fill="none" stroke="{colour}" stroke-width="2"{dash}/>']


def _cells(trace: Trace, to_x: Any, to_y: Any) -> list[str]:
    """An image as grey cells, thinned to at most 80 on a side."""
    x, y, values = trace.x[:: -(-len(trace.x) // 80)], trace.y[:: -(-len(trace.y) // 80)], np.asarray(trace.values)
    values = values[:: -(-len(trace.y) // 80), :: -(-len(trace.x) // 80)]
    low, high = np.nanmin(values), np.nanmax(values)
    grey = np.where(np.isnan(values), -1, 30 + 210 * (values - low) / ((high - low) or 1.0)).astype(int)
    width, height = (WIDTH - LEFT - RIGHT) / len(x) + 1, (HEIGHT - TOP - BOTTOM) / len(y) + 1
    cell = '<rect x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}" fill="rgb({g},{g},{g})"/>'
    return [
        cell.format(float(to_x(a)) - width / 2, float(to_y(b)) - height / 2, width, height, g=grey[j, i])
        for j, b in enumerate(y)
        for i, a in enumerate(x)
        if grey[j, i] >= 0
    ]
