"""Optimisation over the cells of a grid: what is believed of all of them at once decides, and no search is needed."""

from __future__ import annotations

import dataclasses
import math
import warnings
from typing import Any

import numpy as np

from ..inputs.layouts import Grid
from ..kernels.stationary import ProductMatern
from ..likelihoods.gaussian import Gaussian
from ..process.gp import GP

FIRST = 5  # cells that are measured before anything is learned
OFTEN = 5  # measurements after which parameters are learned anew
RULES = ("ucb", "ei")


@dataclasses.dataclass(init=False)
class Cells:
    """Says which cell of a grid to measure next; small values are good, NaN is a run that broke.

    "ucb" takes the cell where √β s − m is largest, with the posterior of the whole grid by the engine that its kernel allows.
    """

    grid: Grid
    places: np.ndarray
    values: np.ndarray  # of each cell, NaN where there is none
    tried: np.ndarray
    expected_gain: float | None = None  # of the cell that was asked for last

    def __init__(self, grid: Grid, acquisition: str = "ucb", model: Any = None, seed: int = 0) -> None:
        if acquisition not in RULES:
            raise ValueError(f"on a grid acquisition must be one of {RULES}, got {acquisition!r}")
        self.grid, self.places = grid, np.asarray(grid.points)
        self.values, self.tried = np.full(len(self.places), np.nan), np.zeros(len(self.places), bool)
        wide = np.ptp(self.places, axis=0)
        self._wide = np.where(wide > 0, wide, 1.0)
        usual = ProductMatern(self._wide / 3, nu=2.5) if model is None else model
        self._gp = model if isinstance(model, GP) else GP(usual, Gaussian(1e-3))
        self._rule, self._rng = acquisition, np.random.default_rng([seed, 12])
        self._learned: Any = None

    def ask(self) -> int:
        """The number of the cell to be measured next."""
        rows = np.flatnonzero(np.isfinite(self.values))
        if np.sum(self.tried) < FIRST or len(rows) < 2:
            return self._far()
        return self._by_model(rows)

    def tell(self, cell: int, value: float) -> None:
        """What came of it."""
        self.tried[cell], self.values[cell] = True, value

    def _by_model(self, rows: np.ndarray) -> int:
        from scipy.special import ndtr

        spread = float(np.std(self.values[rows])) or 1.0
        z = (self.values - np.mean(self.values[rows])) / spread
        count = int(np.sum(self.tried))
        if self._learned is None or count % OFTEN == 0:
            with warnings.catch_warnings():  # that a few cells leave a parameter at its bound is no news
                warnings.simplefilter("ignore", RuntimeWarning)
                self._learned = self._gp.fit(self.places[rows], z[rows], parameters="best", restarts=0, progress=False).gp
        found = self._learned.condition(self.grid, z, missing="infer").predict(self.grid)
        mean, sd = np.ravel(found.mean), np.sqrt(np.ravel(found.variance))
        u = (np.min(mean[rows]) - mean) / np.maximum(sd, 1e-12)
        gain = sd * (np.exp(-0.5 * u * u) / math.sqrt(2 * math.pi) + u * ndtr(u))
        bound = math.sqrt(0.4 * math.log((count + 1) ** 2 * math.pi**2 / 0.6)) * sd - mean
        cell = int(np.argmax(np.where(self.tried, -np.inf, gain if self._rule == "ei" else bound)))
        self.expected_gain = float(spread * gain[cell])
        return cell

    def _far(self) -> int:
        """A cell far from those that were tried, out of some."""
        some = self._rng.choice(np.flatnonzero(~self.tried), min(64, int(np.sum(~self.tried))), replace=False)
        if not self.tried.any():
            return int(some[0])
        unit = self.places / self._wide
        return int(some[np.argmax(np.min(np.linalg.norm(unit[some][:, None] - unit[self.tried][None], axis=2), axis=1))])
