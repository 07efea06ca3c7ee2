"""Pictures of a series and its change points."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import ndtri

if TYPE_CHECKING:
    from .posterior import ChangePointPosterior

PIXELS = 600  # rows and columns of the picture of run lengths, at most


def plot(posterior: ChangePointPosterior, level: float, series: int) -> Any:
    """The series with its online mean and band, the probability of a change at each point, and the run lengths below."""
    from ...plots import BAND, DATA, LINE, axes

    t, column = posterior.t, lambda values: values if values.ndim == 1 else values[:, series]
    first = axes()
    figure = first.figure
    first.remove()
    figure.set_size_inches(9, 7)
    panels = figure.subplots(3, 1, sharex=True, height_ratios=[3, 1, 2])
    mean, half = column(posterior.mean), ndtri((1 + level) / 2) * np.sqrt(column(posterior.variance))
    y = column(posterior.y)
    panels[0].fill_between(t, mean - half, mean + half, color=BAND, alpha=0.6, lw=0, label=f"{level:.0%} before it was seen")
    panels[0].plot(t, mean, color=LINE, lw=1.2, label="mean before it was seen")
    panels[0].plot(t, y, ".", color=DATA, ms=4, label="data")
    for n in posterior.most_probable:
        panels[0].axvline(t[n], color="#b03030", lw=0.8, ls="--")
    seen, margin = y[~np.isnan(y)], 0.3 * (np.ptp(y[~np.isnan(y)]) or 1.0)
    panels[0].set_ylim(seen.min() - margin, seen.max() + margin)
    panels[0].legend(frameon=False, ncols=3, loc="lower center", bbox_to_anchor=(0.5, 1.0))
    panels[1].vlines(t, 0, posterior.change_probability, color=LINE, lw=1.2)
    panels[1].set_ylim(0, 1)
    panels[1].set_ylabel("p(change)")
    edges, runs, image = run_length_image(posterior)
    panels[2].pcolormesh(edges, runs, image.T, cmap="Greys", vmin=-8, vmax=0, rasterized=True)
    panels[2].set_ylabel("points in the segment")
    for panel in panels:
        panel.spines[["top", "right"]].set_visible(False)
    return panels


def run_length_image(posterior: ChangePointPosterior) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Edges in time and in run length, and the log₁₀ probability of the run lengths in between."""
    trail, count = posterior.trail, len(posterior.t)
    shown = np.unique(np.linspace(0, count - 1, min(count, PIXELS)).astype(int))
    runs = shown[:, None] + 1 - trail.start[shown]
    weight = np.where(trail.start[shown] < 0, 0.0, np.exp(trail.log_joint[shown]))
    longest = int(runs[weight > 1e-8].max())
    cells = min(longest, PIXELS)
    cell = np.clip((runs - 1) * cells // longest, 0, cells - 1)
    image = np.zeros((len(shown), cells))
    np.add.at(image, (np.arange(len(shown))[:, None], cell), weight)
    middle = posterior.t[shown]
    inner = 0.5 * (middle[1:] + middle[:-1])
    edges = np.concatenate([middle[:1], inner, middle[-1:]])
    return edges, np.linspace(0.5, longest + 0.5, cells + 1), np.log10(np.maximum(image, 1e-12))
