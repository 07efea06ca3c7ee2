"""Pictures of a fitted process."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .inputs.layouts import clocks_of
from .kernels.outputs import outputs_of

if TYPE_CHECKING:
    from .models.latent.fitted import FittedMap
    from .process.fitted import Fitted
    from .process.mixture import FittedMixture

LINE, BAND, DATA, OUTLIER = "#1f5fa8", "#9dc1e8", "#333333", "#c8382e"
CLASSES = 12  # labels that have a colour of their own


def axes(ax: Any = None, count: int = 1) -> Any:
    """Axes to draw on: the given ones, or new ones, so many one below the other."""
    if ax is not None:
        return ax
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        raise ImportError("plots need Matplotlib: pip install 'structgp[plot]'") from None
    high = 4.0 if count == 1 else 1.2 + 1.8 * count
    return plt.subplots(count, 1, figsize=(8, high), sharex=True, layout="constrained")[1]


class _Band(NamedTuple):
    """What is drawn of a function: its mean, half the width of its band, and the ends of that of new observations."""

    mean: np.ndarray
    half: np.ndarray
    lower: np.ndarray
    upper: np.ndarray


def plot(fitted: Fitted | FittedMixture, X: Any = None, *, level: float = 0.95, target: int = 0, ax: Any = None) -> Any:
    """Draw a process of one input: the data, the mean, the band of f, and (dashed) that of new observations.

    `X` are the places to draw at, by default 400 from a little before the data to a little after them. Returns the axes; of
    several outputs along one column those of all outputs, one below the other, which may be given as well.
    """
    outputs, D = outputs_of(fitted.kernel), fitted.inputs.dimension
    several = outputs is not None and outputs.count > 1 and D == 2 and outputs.among(D) == 1
    if D != 1 and not several:
        raise ValueError(f"plot draws processes of one input, but this one has {D}: predict along a line of your choice")
    t = np.asarray(fitted.inputs.points)[:, 0]
    margin = 0.05 * (np.ptp(t) or 1.0)
    if X is None:
        places = np.linspace(t.min() - margin, t.max() + margin, 400)
    else:
        places = np.sort(np.ravel(X) if several else fitted._new_points(X)[:, 0])
    clock = clocks_of(fitted.inputs)[0]
    prediction = fitted.predict(places)
    if clock is not None:
        places, t = clock.shown(places), clock.shown(t)
    if several:
        return _plot_outputs(fitted, t, places, prediction, level, ax)
    if fitted.likelihood.latents > 1:
        return _plot_signal(fitted, t, places, prediction, level, axes(ax))
    seen = np.asarray(fitted.data.seen)
    points = [(t[seen], fitted.data.y[seen, target], DATA, "data")]
    return _drawn(axes(ax), places, _band(prediction, level, target), points, level)


def _band(prediction: Any, level: float, column: int) -> _Band:
    """That of one target or output."""
    of = lambda values: values if values.ndim == 1 else values[:, column]
    lower, upper = (of(end) for end in prediction.interval(level))
    return _Band(of(prediction.mean), (upper - lower) / 2 * of(prediction.sd) / of(prediction.observed.sd), lower, upper)


def _plot_outputs(fitted: Any, t: np.ndarray, places: np.ndarray, prediction: Any, level: float, ax: Any) -> np.ndarray:
    """Every output with what was seen of it, one below the other."""
    names, seen = prediction.names, np.asarray(fitted.data.seen)
    ax = axes(ax, len(names))
    number, y = np.asarray(fitted.inputs.points)[:, 1].round().astype(int), np.asarray(fitted.data.y)[:, 0]
    if np.size(ax) != len(names):
        raise ValueError(f"there are {len(names)} outputs, so ax must hold as many axes, got {np.size(ax)}")
    for p, one in enumerate(np.ravel(ax)):
        of = seen & (number == p)
        _drawn(one, places, _band(prediction, level, p), [(t[of], y[of], DATA, "data")], level, legend=p == 0)
        one.set_ylabel(names[p])
    return np.ravel(ax)


def _plot_signal(fitted: Any, t: np.ndarray, places: np.ndarray, prediction: Any, level: float, ax: Any) -> Any:
    """The signal among several latents, with the observations the redder, the more they are outliers."""
    signal = prediction.signal
    reach = -NormalDist().inv_cdf((1 - level) / 2)
    band = _Band(signal.mean, reach * signal.sd, *prediction.interval(level))
    seen, y = np.asarray(fitted.data.seen), np.asarray(fitted.data.y)[:, 0]
    outlier = fitted.outlier_probability if fitted.likelihood.gates else np.zeros(len(y))
    points = []
    for marked, color, label in ((outlier <= 0.5, DATA, "data"), (outlier > 0.5, OUTLIER, "outliers")):
        shown = seen & marked
        if shown.any():
            points.append((t[shown], y[shown], color, label))
    return _drawn(ax, places, band, points, level)


def _drawn(ax: Any, places: np.ndarray, band: _Band, points: Sequence[Any], level: float, legend: bool = True) -> Any:
    """The picture: bands, mean and points."""
    low, high = band.mean - band.half, band.mean + band.half
    ax.fill_between(places, low, high, color=BAND, alpha=0.6, lw=0, label=f"{level:.0%} of f")
    ax.plot(places, band.lower, color=LINE, lw=0.8, ls="--", label=f"{level:.0%} of new observations")
    ax.plot(places, band.upper, color=LINE, lw=0.8, ls="--")
    ax.plot(places, band.mean, color=LINE, lw=1.6, label="mean of f")
    for t, y, color, label in points:
        ax.plot(t, y, ".", color=color, ms=5, label=label)
    if legend:
        ax.legend(frameon=False, ncols=3 + len(points), loc="lower center", bbox_to_anchor=(0.5, 1.0))
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def plot_map(fitted: FittedMap, labels: Any = None, ax: Any = None, dimensions: tuple[int, int] | None = None) -> Any:
    """Draw where rows lie, coloured by labels (numbers on a scale, anything else class by class).

    Behind them it is the darker, the less sure the functions are (the mean standard deviation over columns, in units of their
    spread). `dimensions` are the coordinates that are drawn, by default the two that tell most. Returns the axes.
    """
    ax, Z = axes(ax), fitted.latent
    a, b = fitted.most_relevant() if dimensions is None else dimensions
    flat = a == b  # one coordinate: rows along a line, in their order
    up = np.linspace(0, 1, len(Z)) if flat else Z[:, b]
    if not flat:
        grid = [np.linspace(np.min(v) - 0.08 * np.ptp(v), np.max(v) + 0.08 * np.ptp(v), 60) for v in (Z[:, a], up)]
        shade = fitted.shade(grid[0], grid[1], (a, b))
        behind = ax.pcolormesh(grid[0], grid[1], shade, cmap="Greys", shading="auto", rasterized=True)
        ax.figure.colorbar(behind, ax=ax, label="standard deviation", pad=0.01)
    for name, rows, values in _coloured(labels, len(Z)):
        drawn = {"c": values} if values is not None else {"color": DATA if labels is None else None}
        ax.scatter(Z[rows, a], up[rows], s=9, label=name or None, **drawn)
    if labels is not None and ax.get_legend_handles_labels()[0]:
        ax.legend(frameon=False, ncols=6, loc="lower center", bbox_to_anchor=(0.5, 1.0))
    ax.set(xlabel=f"coordinate {a + 1}", ylabel="row" if flat else f"coordinate {b + 1}")
    return ax


def _coloured(labels: Any, count: int) -> list[tuple[str, np.ndarray, np.ndarray | None]]:
    """Rows that share a colour, with its name; or all with a number each."""
    if labels is None:
        return [("", np.arange(count), None)]
    values = np.asarray(labels)
    if values.shape != (count,):
        raise ValueError(f"labels must be one for each of the {count} rows of the map, got shape {values.shape}")
    classes = np.unique(values.astype(str) if values.dtype == object else values)
    if values.dtype.kind == "f" or len(classes) > CLASSES:
        return [("", np.arange(count), values if values.dtype.kind in "fiub" else np.unique(values, return_inverse=True)[1])]
    return [(str(one), np.flatnonzero(values.astype(str) == str(one)), None) for one in classes]
