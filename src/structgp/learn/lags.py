"""Where learning starts when outputs may come late: lags and signs by cross-correlation, looked over by the evidence.

The evidence has many peaks in a lag, so a climb from just anywhere ends at the wrong one. Candidates are the peaks of the
cross-correlations and a coarse grid; each is judged by one evidence with either sign of the loadings, one output after the
other, twice, at two widths.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Float

from ..inputs.observations import Data
from ..kernels.outputs import Lagged, outputs_of
from ..parameters.tree import learned_leaves
from .objective import Objective

GRID = 21  # lags that are looked at, whatever the correlations say
REACH = 0.3  # of the span of the inputs, up to which lags are looked for
PEAKS = 3  # of a cross-correlation
FINE = 512  # places of the grid on which correlations are taken
PIECE = 16  # evidences in one computation
SHARED = 0.9  # of the size of an output that is taken for shared, where that is tried


def with_lags(
    model: Any, objective: Objective, starts: list[np.ndarray], X: Float[np.ndarray, "N D"], data: Data
) -> list[np.ndarray]:
    """The starts, and better ones where the model has outputs whose lags or loadings are learned."""
    found = outputs_of(model.kernel)
    if found is None or found.count < 2:
        return starts
    parts = _parts(model)
    lags = next((part for path, part in parts.items() if path.endswith(".lags")), None)
    loadings = [part for path, part in parts.items() if path.split(".")[-1] in ("loadings", "weights")]
    if lags is None or not isinstance(model.kernel, Lagged):
        return starts
    values = _evidences(objective)
    own = values(np.stack(starts))
    shape = np.shape(model.kernel.lags)
    bases = [starts[i] for i in np.argsort(-own)[:3]]
    ends = [_scanned(base, lags, loadings, shape, found.count, values, X, data) for base in bases]
    return [*starts, *ends]


def _parts(model: Any) -> dict[str, slice]:
    """Where each learned parameter stands in θ."""
    found, at = {}, 0
    for leaf in learned_leaves(model):
        found[leaf.path] = slice(at, at := at + leaf.free_size)
    return found


def _evidences(objective: Objective) -> Callable[[np.ndarray], np.ndarray]:
    """Log evidences of several θ, a few at a time so that one program serves them all."""

    def of(thetas: np.ndarray) -> np.ndarray:
        pieces = [objective.evidences(thetas[at : at + PIECE]) for at in range(0, len(thetas), PIECE)]
        found = np.concatenate(pieces)
        return np.where(np.isfinite(found), found, -np.inf)

    return of


def _scanned(
    theta: np.ndarray,
    lags: slice,
    loadings: list[slice],
    shape: tuple[int, ...],
    count: int,
    values: Callable[[np.ndarray], np.ndarray],
    X: np.ndarray,
    data: Data,
) -> np.ndarray:
    """θ with the lags and signs of its outputs that the evidence likes best, one output after the other."""
    seen = np.asarray(data.seen)
    places, which, y = X[seen, :-1], np.round(X[seen, -1]).astype(int), np.asarray(data.y)[seen, 0]
    theta, best = theta.copy(), -np.inf
    for _ in range(2):
        for output in range(1, count):
            current = np.concatenate([np.zeros((1, *shape[1:])), theta[lags].reshape(shape)])
            tried = []
            for lag in _candidates(places, which, y, output, current):
                moved = theta.copy()
                moved[lags].reshape(shape)[output - 1] = lag
                tried += [moved, _flipped(moved, loadings, output, count)]
            heights = values(np.stack(tried))
            if heights.max() > best:
                theta, best = tried[int(np.argmax(heights))], float(heights.max())
    return theta


def _flipped(theta: np.ndarray, loadings: list[slice], output: int, count: int) -> np.ndarray:
    """The same with the other sign of the loadings of one output."""
    changed = theta.copy()
    for part in loadings:
        changed[part].reshape(count, -1)[output] *= -1
    return changed


def _candidates(places: np.ndarray, which: np.ndarray, y: np.ndarray, output: int, lag: np.ndarray) -> list[Any]:
    """Lags of an output that are worth an evidence: peaks of its correlations with the others, and a grid."""
    reach = REACH * np.ptp(places, axis=0)
    if places.shape[1] > 1:
        each = max(round((2 * GRID) ** (1 / places.shape[1])) // 2 * 2 + 1, 3)
        if lag.ndim == 1:
            return list(np.linspace(-reach.mean(), reach.mean(), GRID))
        return [np.array(point) for point in itertools.product(*(np.linspace(-r, r, each) for r in reach))]
    t, found = places[:, 0], [*np.linspace(-reach[0], reach[0], GRID), float(np.ravel(lag[output])[0])]
    for other in range(len(lag)):
        if other != output and np.sum(which == other) > 3 and np.sum(which == output) > 3:
            peaks = _peaks(t[which == output], y[which == output], t[which == other], y[which == other], reach[0])
            found += [peak + float(np.ravel(lag[other])[0]) for peak in peaks]
    return found if lag.ndim == 1 else [np.array([value]) for value in found]


def _peaks(t: np.ndarray, y: np.ndarray, s: np.ndarray, z: np.ndarray, reach: float) -> list[float]:
    """By how much the first series comes after the second where they are most alike, up to sign."""
    low, high = min(t.min(), s.min()), max(t.max(), s.max())
    grid = np.linspace(low, high, FINE)
    a, seen_a = _on_grid(grid, t, y)
    b, seen_b = _on_grid(grid, s, z)
    step = grid[1] - grid[0]
    most = int(reach / step)
    shifts: list[int] = list(range(-most, most + 1))
    heights = np.zeros(len(shifts))
    for k, shift in enumerate(shifts):
        later, earlier = slice(max(shift, 0), FINE + min(shift, 0)), slice(max(-shift, 0), FINE + min(-shift, 0))
        both = seen_a[later] & seen_b[earlier]
        if both.sum() > FINE // 8:
            p, q = a[later][both], b[earlier][both]
            heights[k] = abs(np.mean((p - p.mean()) * (q - q.mean()))) / max(p.std() * q.std(), 1e-300)
    inner = np.flatnonzero((heights[1:-1] >= heights[:-2]) & (heights[1:-1] > heights[2:])) + 1
    top = inner[np.argsort(-heights[inner])][:PEAKS]
    return [float(shifts[k] * step) for k in top]


def _on_grid(grid: np.ndarray, t: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A series on a grid by linear interpolation, and where it has observations near enough for that."""
    order = np.argsort(t)
    t, y = t[order], y[order]
    right = np.clip(np.searchsorted(t, grid), 1, len(t) - 1)
    gap = t[right] - t[right - 1]
    near = (grid >= t[0]) & (grid <= t[-1]) & (gap <= 4 * max(np.median(np.diff(t)), 1e-300))
    return np.interp(grid, t, y), near
