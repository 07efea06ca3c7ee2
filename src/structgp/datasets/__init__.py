"""A few data sets inside the package: one measured series that is in the public domain, and generated ones."""

from __future__ import annotations

import importlib.resources
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from .._types import Seed, generator


class Dataset(NamedTuple):
    """Inputs (N, D), targets (N,), their names, and what they are."""

    X: np.ndarray
    y: np.ndarray
    names: tuple[str, ...]
    target: str
    about: str


def co2() -> Dataset:
    """Carbon dioxide over Mauna Loa, monthly from 1958 to 2004 (Scripps and NOAA, public domain), in decimal years and ppm."""
    text = importlib.resources.files(__name__).joinpath("co2.csv").read_text()
    year, month, ppm = np.array([line.split(",") for line in text.splitlines()[1:]], dtype=float).T
    about = "Monthly mean of carbon dioxide in the air over Mauna Loa, Hawaii (Scripps Institution of Oceanography and NOAA)"
    return Dataset((year + (month - 0.5) / 12)[:, None], ppm, ("year",), "co2_ppm", about)


def friedman(n: int = 500, dimension: int = 10, noise: float = 1.0, seed: Seed = 0) -> Dataset:
    """y = 10 sin(πx₀x₁) + 20(x₂ − ½)² + 10x₃ + 5x₄ + noise; the other columns do nothing (Friedman 1991)."""
    if dimension < 5:
        raise ValueError(f"friedman needs at least 5 columns, got {dimension}")
    rng = generator(seed)
    X = rng.uniform(size=(n, dimension))
    f = 10 * np.sin(np.pi * X[:, 0] * X[:, 1]) + 20 * (X[:, 2] - 0.5) ** 2 + 10 * X[:, 3] + 5 * X[:, 4]
    return _named(X, f + noise * rng.standard_normal(n), "Friedman's function of five columns, among others that do nothing")


def additive(n: int = 500, dimension: int = 4, noise: float = 0.3, seed: Seed = 0) -> Dataset:
    """y = Σ_d sin(2π(d+1)x_d)/(d+1) + noise: a sum of functions of one column each, wavier and smaller one after the other."""
    rng = generator(seed)
    X, rank = rng.uniform(size=(n, dimension)), np.arange(1, dimension + 1)
    f = np.sum(np.sin(2 * np.pi * rank * X) / rank, axis=1)
    return _named(X, f + noise * rng.standard_normal(n), "A sum of sines, one of each column")


def nonstationary(n: int = 300, noise: float = 0.05, seed: Seed = 0) -> Dataset:
    """y = sin(2π/(x + 0.15)) + noise on [0, 1]: fast at the left end, slow at the right one."""
    rng = generator(seed)
    x = np.sort(rng.uniform(size=n))
    return _named(x[:, None], np.sin(2 * np.pi / (x + 0.15)) + noise * rng.standard_normal(n), "A wave that slows down")


def sinc(n: int = 200, noise: float = 0.1, outliers: float = 0.1, seed: Seed = 0) -> Dataset:
    """y = sin(x)/x + noise on [−10, 10], with a part of the observations far off."""
    rng = generator(seed)
    x = np.sort(rng.uniform(-10, 10, size=n))
    far = rng.uniform(size=n) < outliers
    scatter = np.where(far, rng.uniform(-2, 2, size=n), noise * rng.standard_normal(n))
    return _named(x[:, None], np.sinc(x / np.pi) + scatter, "sin(x)/x with outliers")


DATASETS: dict[str, Callable[[], Dataset]] = {
    "co2": co2,
    "friedman": friedman,
    "additive": additive,
    "nonstationary": nonstationary,
    "sinc": sinc,
}


def load_dataset(name: str) -> Dataset:
    """A data set by its name, generated ones with their default sizes."""
    if name not in DATASETS:
        raise ValueError(f"there is no data set {name!r}: there are {', '.join(DATASETS)}")
    return DATASETS[name]()


def _named(X: np.ndarray, y: np.ndarray, about: str) -> Dataset:
    return Dataset(X, y, tuple(f"x{d}" for d in range(X.shape[1])), "y", about)
