"""Pictures of a fitted process."""

from __future__ import annotations

from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np

from .inputs.layouts import clocks_of

if TYPE_CHECKING:
    from .process.fitted import Fitted
    from .process.mixture import FittedMixture

LINE, BAND, DATA, OUTLIER = "#1f5fa8", "#9dc1e8", "#333333", "#c8382e"


def axes(ax: Any = None) -> Any:
    """Axes to draw on: the given ones, or new ones."""
    if ax is not None:
        return ax
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        raise ImportError("plots need Matplotlib: pip install 'structgp[plot]'") from None
    return plt.subplots(figsize=(8, 4), layout="constrained")[1]


def plot(fitted: Fitted | FittedMixture, X: Any = None, *, level: float = 0.95, target: int = 0, ax: Any = None) -> Any:
    """Draw a process of one input: the data, the mean, the band of f, and (dashed) that of new observations.

    `X` are the places to draw at, by default 400 from a little before the data to a little after them. Returns the axes.
    """
    if fitted.inputs.dimension != 1:
        raise ValueError(
            f"plot draws processes of one input, but this one has {fitted.inputs.dimension}: "
            "predict along a line of your choice"
        )
    t = np.asarray(fitted.inputs.points)[:, 0]
    margin = 0.05 * (np.ptp(t) or 1.0)
    places = np.linspace(t.min() - margin, t.max() + margin, 400) if X is None else np.sort(fitted._new_points(X)[:, 0])
    clock = clocks_of(fitted.inputs)[0]
    prediction = fitted.predict(places)
    if fitted.likelihood.latents > 1:
        return _plot_signal(fitted, t, places, clock, prediction, level, axes(ax))
    column = lambda values: values if values.ndim == 1 else values[:, target]
    mean, sd = column(prediction.mean), column(prediction.sd)
    lower, upper = (column(end) for end in prediction.interval(level))
    half = (upper - lower) / 2 * sd / column(prediction.observed.sd)
    ax = axes(ax)
    if clock is not None:
        places, t = clock.shown(places), clock.shown(t)
    seen = np.asarray(fitted.data.seen)
    ax.fill_between(places, mean - half, mean + half, color=BAND, alpha=0.6, lw=0, label=f"{level:.0%} of f")
    ax.plot(places, lower, color=LINE, lw=0.8, ls="--", label=f"{level:.0%} of new observations")
    ax.plot(places, upper, color=LINE, lw=0.8, ls="--")
    ax.plot(places, mean, color=LINE, lw=1.6, label="mean of f")
    ax.plot(t[seen], fitted.data.y[seen, target], ".", color=DATA, ms=5, label="data")
    ax.legend(frameon=False, ncols=4, loc="lower center", bbox_to_anchor=(0.5, 1.0))
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def _plot_signal(fitted: Any, t: np.ndarray, places: np.ndarray, clock: Any, prediction: Any, level: float, ax: Any) -> Any:
    """The same for a signal among several latents, with the observations the redder, the more they are outliers."""
    signal = prediction.signal
    reach = -NormalDist().inv_cdf((1 - level) / 2)
    lower, upper = prediction.interval(level)
    if clock is not None:
        places, t = clock.shown(places), clock.shown(t)
    half = reach * signal.sd
    ax.fill_between(places, signal.mean - half, signal.mean + half, color=BAND, alpha=0.6, lw=0, label=f"{level:.0%} of f")
    ax.plot(places, lower, color=LINE, lw=0.8, ls="--", label=f"{level:.0%} of new observations")
    ax.plot(places, upper, color=LINE, lw=0.8, ls="--")
    ax.plot(places, signal.mean, color=LINE, lw=1.6, label="mean of f")
    seen, y = np.asarray(fitted.data.seen), np.asarray(fitted.data.y)[:, 0]
    outlier = fitted.outlier_probability if fitted.likelihood.gates else np.zeros(len(y))
    for marked, color, label in ((outlier <= 0.5, DATA, "data"), (outlier > 0.5, OUTLIER, "outliers")):
        shown = seen & marked
        if shown.any():
            ax.plot(t[shown], y[shown], ".", color=color, ms=5, label=label)
    ax.legend(frameon=False, ncols=5, loc="lower center", bbox_to_anchor=(0.5, 1.0))
    ax.spines[["top", "right"]].set_visible(False)
    return ax
