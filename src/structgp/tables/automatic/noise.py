"""What Gaussian noise leaves unexplained: outliers, groups of them, and noise that is wider in some places than in others.

Each is a reason to try another noise around the same function; whether it is better is for the comparison to say.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.spatial import cKDTree
from scipy.stats import spearmanr

from ...kernels.algebra import Kernel, Sum
from ...kernels.nonstationary import IntegratedWiener, Spline
from ...learn.blocks import UNLIKELY, least_expected
from ...likelihoods.gaussian import Gaussian
from ...likelihoods.robust import StudentT
from ...models.robust import Units, heteroscedastic, twinned
from ...process.gp import GP

FAR = 5.0  # standard deviations of the bulk, beyond which a row is an outlier
OUTLIERS, FEW_OUTLIERS = 0.005, 3  # part of the rows, and rows, from which on there is noise with outliers to be tried
NEAREST = 3  # rows among which another outlier is looked for
NEIGHBOURS = 5  # rows by which it is seen whether noise is wider in some places
CHANGING, SURELY = 0.1, 3.0  # rank correlation of the residuals' sizes with those around, and how many times its chance value
ENOUGH = 50  # rows, below which nothing is said of noise that changes

LIKELIHOODS = {  # by the names that users know, and which kinds of noise they are
    "auto": None,
    "gaussian": "",
    "student-t": "outliers",
    "twinned": "twinned",
    "heteroscedastic": "heteroscedastic",
}
NAMES = {
    "outliers": "noise with outliers",
    "twinned": "noise with groups of outliers",
    "heteroscedastic": "noise that changes",
}


def noise_asked(likelihood: str, task: str = "regression") -> str | None:
    """The kind of noise that is asked for by name: "" for a plain one, None where what is left decides."""
    if likelihood not in LIKELIHOODS:
        raise ValueError(f"likelihood must be one of {', '.join(LIKELIHOODS)}, got {likelihood!r}")
    if LIKELIHOODS[likelihood] is not None and task != "regression":
        raise ValueError(f"likelihood {likelihood!r} is of numbers, but this is {task}: leave it to auto")
    return LIKELIHOODS[likelihood]


class Left(NamedTuple):
    """The spread of most residuals, and which kinds of noise they speak for."""

    scale: float
    kinds: tuple[str, ...]


def left_by(fitted: Any) -> Left:
    """What a fitted process with Gaussian noise leaves."""
    X, y = np.asarray(fitted.inputs.points), np.asarray(fitted.data.y)[:, 0]
    rest = y - fitted.predict(fitted.inputs).mean
    distance = np.abs(rest - np.median(rest))
    scale = float(np.median(distance)) / 0.6745  # a standard deviation that outliers hardly move
    if not scale > 0:
        return Left(scale, ())
    outlier = distance > FAR * scale
    several = bool(np.sum(outlier) >= max(FEW_OUTLIERS, OUTLIERS * len(rest)))
    told = {
        "outliers": several,
        "twinned": (several and _in_groups(X, outlier)) or _unexpected_group(fitted),
        "heteroscedastic": len(y) >= ENOUGH and _changes(X, distance),
    }
    return Left(scale, tuple(kind for kind, speaks in told.items() if speaks))


def _in_groups(X: np.ndarray, outlier: np.ndarray) -> bool:
    """Whether one of the rows nearest to an outlier is one as well, most of the time."""
    nearest = cKDTree(X).query(X[outlier], NEAREST + 1)[1][:, 1:]
    return bool(np.mean(outlier[nearest].any(axis=1)) > 0.5)


def _unexpected_group(fitted: Any) -> bool:
    """Whether what is expected least, given all other rows, is a group: one that the function bends to has small residuals."""
    if not isinstance(fitted.gp.likelihood, Gaussian) or _free(fitted.gp.kernel):
        return False
    size, z = least_expected(fitted.gp, fitted.inputs, fitted.data)
    return size > 1 and z > UNLIKELY


def _changes(X: np.ndarray, distance: np.ndarray) -> bool:
    """Whether rows near to each other have residuals of like size."""
    near = cKDTree(X).query(X, NEIGHBOURS + 1)[1][:, 1:]
    alike = float(spearmanr(distance, np.mean(distance[near], axis=1)).statistic)
    return alike > max(CHANGING, SURELY / np.sqrt(len(X)))


def with_noise(gp: GP, kind: str, scale: float, X: np.ndarray, y: np.ndarray) -> GP:
    """The function of a process with noise of another kind."""
    if kind == "outliers":
        return GP(gp.kernel, StudentT(scale=scale), gp.mean)
    make = twinned if kind == "twinned" else heteroscedastic
    return make(_bound(gp.kernel, X), Units.of(X, y))


def _free(kernel: Kernel) -> bool:
    return any(isinstance(term, Spline) for term in getattr(kernel, "terms", (kernel,)))


def _bound(kernel: Kernel, X: np.ndarray) -> Kernel:
    """The same with trends that start somewhere: several latents have no free lines, so they start long before the data."""
    if isinstance(kernel, Sum):
        return Sum(tuple(_bound(term, X) for term in kernel.terms))
    if not isinstance(kernel, Spline):
        return kernel
    return IntegratedWiener(kernel.variance, start=float(X[:, 0].min() - (np.ptp(X[:, 0]) or 1.0)))
