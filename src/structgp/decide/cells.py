"""Optimisation over the cells of a grid: what is believed of all of them at once decides, and no search is needed."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ..inputs.layouts import Grid
from ..kernels.stationary import ProductMatern
from ..likelihoods.gaussian import Gaussian
from ..process.gp import GP

FIRST = 5  # cells that are measured before anything is learned
OFTEN = 5  # measurements after which parameters are learned anew
RULES = ("ucb", "ei")


def over_cells(
    f: Callable[[np.ndarray], float], grid: Grid, count: int, acquisition: str, model: Any, seed: int
) -> list[tuple[np.ndarray, float]]:
    """Cells and values (small ones are good) in the order in which they were measured; NaN is a run that broke.

    "ucb" takes the cell where √β s − m is largest, with the posterior of the whole grid by the engine that its kernel allows.
    """
    if acquisition not in RULES:
        raise ValueError(f"on a grid acquisition must be one of {RULES}, got {acquisition!r}")
    cells = np.asarray(grid.points)
    D, rng = cells.shape[1], np.random.default_rng([seed, 12])
    wide = np.ptp(cells, axis=0)
    gp = (
        model
        if isinstance(model, GP)
        else GP(ProductMatern(np.where(wide > 0, wide, 1.0) / 3, nu=2.5) if model is None else model, Gaussian(1e-3))
    )
    y, tried, seen = np.full(len(cells), np.nan), np.zeros(len(cells), bool), []
    learned = None
    for number in range(min(count, len(cells))):
        if number < FIRST or np.isfinite(y).sum() < 2:
            cell = _far(cells, tried, wide, rng)
        else:
            good = y[np.isfinite(y)]
            level, spread = float(np.mean(good)), float(np.std(good)) or 1.0
            z = (y - level) / spread
            rows = np.flatnonzero(np.isfinite(z))
            if learned is None or number % OFTEN == 0:
                learned = gp.fit(cells[rows], z[rows], parameters="best", restarts=0, progress=False).gp
            fitted = learned.condition(grid, z, missing="infer")
            found = fitted.predict(grid)
            mean, sd = np.ravel(found.mean), np.sqrt(np.ravel(found.variance))
            if acquisition == "ucb":
                worth = math.sqrt(0.4 * math.log((number + 1) ** 2 * math.pi**2 / 0.6)) * sd - mean
            else:
                from scipy.special import ndtr

                u = (np.min(mean[rows]) - mean) / np.maximum(sd, 1e-12)
                worth = sd * (np.exp(-0.5 * u * u) / math.sqrt(2 * math.pi) + u * ndtr(u))
            cell = int(np.argmax(np.where(tried, -np.inf, worth)))
        tried[cell] = True
        y[cell] = f(cells[cell].reshape(D))
        seen.append((cells[cell], float(y[cell])))
    return seen


def _far(cells: np.ndarray, tried: np.ndarray, wide: np.ndarray, rng: np.random.Generator) -> int:
    """A cell far from those that were tried, out of some."""
    some = rng.choice(np.flatnonzero(~tried), min(64, int(np.sum(~tried))), replace=False)
    if not tried.any():
        return int(some[0])
    unit = cells / np.where(wide > 0, wide, 1.0)
    return int(some[np.argmax(np.min(np.linalg.norm(unit[some][:, None] - unit[tried][None], axis=2), axis=1))])
