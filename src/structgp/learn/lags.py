"""Where learning starts when outputs may come late: lags and signs by cross-correlation, looked over by the evidence.

The evidence has many peaks in a lag, so a climb from just anywhere ends at the wrong one. Candidates are the peaks of the
cross-correlations and a coarse grid; each is judged by one evidence with either sign of the loadings, one output after the
other, twice. They are looked for from the usual starts, and from lags along the tree of the most alike pairs of outputs: two
that have nothing in common may both be heard by a third.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from ..inputs.observations import Data
from ..kernels.outputs import Lagged, outputs_of
from ..parameters.tree import learned_leaves
from .objective import Objective

GRID = 21  # lags that are looked at, whatever the correlations say
REACH = 0.3  # of the span of the inputs, up to which lags are looked for
PEAKS = 3  # of a cross-correlation
FEW = 4  # values of an output that tell nothing
LOUD = 0.1  # of the variance: with less noise, loadings that are not yet right hide what a lag is worth
NEARLY, RIVALS = 2.0, 2  # nats behind the best lags up to which others are climbed from as well, and how many
FINE = 512  # places of the grid on which correlations are taken
STEPS = 20  # of a short climb
PIECE = 16  # evidences in one computation


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
    order = np.argsort(-own)
    bases = [starts[i] for i in order[:3]]
    series = _series(X, data, found.count) if len(shape) == 1 and X.shape[1] == 2 else None
    if series is not None:
        bases = [bases[0], _told_by_each(model, bases[0], series)]
    scan = functools.partial(_scanned, lags=lags, shape=shape, count=found.count, values=values, X=X, data=data)
    either = lambda theta, output: [theta, _flipped(theta, loadings, output, found.count)]
    ends = [end for base in bases for end in scan(base, variants=either)]
    if series is not None:
        likeness = Likeness.of(series)
        loaded = lambda theta, output: [likeness.loaded(theta, parts, lags)]
        for start in (bases[1], likeness.along_tree(bases[1], lags)):
            ends += scan(start, variants=loaded)
    return [*starts, *(_climbed_a_little(objective, end) for end in _different(ends, lags))]


def _different(ends: list[tuple[float, np.ndarray]], lags: slice) -> list[np.ndarray]:
    """Those that are not one, nor one with all signs turned: by their heights and lags."""
    kept: list[tuple[float, np.ndarray]] = []
    for height, end in ends:
        if not any(np.isclose(height, other, rtol=1e-9) and np.allclose(end[lags], one[lags]) for other, one in kept):
            kept.append((height, end))
    return [end for _, end in kept]


def _climbed_a_little(objective: Objective, theta: np.ndarray) -> np.ndarray:
    """θ some steps up: which lags are right shows when loadings and widths have come to suit them."""
    from scipy.optimize import minimize

    def lacking(x: np.ndarray) -> tuple[float, np.ndarray]:
        value, slope = objective(x)
        fine = np.isfinite(value) and np.all(np.isfinite(slope))
        return (-float(value), -np.asarray(slope)) if fine else (1e300, np.zeros(len(x)))

    found = minimize(lacking, theta, jac=True, method="L-BFGS-B", options={"maxiter": STEPS})
    return found.x if np.isfinite(found.fun) and found.fun < 1e299 else theta


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
    *,
    lags: slice,
    shape: tuple[int, ...],
    count: int,
    values: Callable[[np.ndarray], np.ndarray],
    X: np.ndarray,
    data: Data,
    variants: Callable[[np.ndarray, int], list[np.ndarray]],
) -> list[tuple[float, np.ndarray]]:
    """θ with the lags of its outputs that the evidence likes best, one output after the other, with loadings of variants.

    Others follow that it likes nearly as well, with other lags: before loadings and widths suit them the evidence is no
    judge of a nat or two. Each comes with its height.
    """
    seen = np.asarray(data.seen)
    places, which, y = X[seen, :-1], np.round(X[seen, -1]).astype(int), np.asarray(data.y)[seen, 0]
    theta, best, looked = theta.copy(), -np.inf, list[tuple[float, np.ndarray]]()
    for _ in range(2):
        for output in range(1, count):
            current = np.concatenate([np.zeros((1, *shape[1:])), theta[lags].reshape(shape)])
            tried = []
            for lag in _candidates(places, which, y, output, current):
                moved = theta.copy()
                moved[lags].reshape(shape)[output - 1] = lag
                tried += variants(moved, output)
            heights = values(np.stack(tried))
            looked += zip(map(float, heights), tried, strict=True)
            if heights.max() > best:
                theta, best = tried[int(np.argmax(heights))], float(heights.max())
    step, kept = 2 * REACH / (GRID - 1) * np.ptp(places, axis=0).mean(), [(best, theta)]
    for height, other in sorted(looked, key=lambda pair: -pair[0]):
        far = all(np.max(np.abs(other[lags] - one[lags])) > 1.5 * step for _, one in kept)
        if height > best - NEARLY and far and len(kept) < 1 + RIVALS:
            kept.append((height, other))
    return kept


def _series(X: np.ndarray, data: Data, count: int) -> list[tuple[np.ndarray, np.ndarray]] | None:
    """The times and values of each output; None where one has too few."""
    seen = np.asarray(data.seen)
    t, which, y = X[seen, 0], np.round(X[seen, -1]).astype(int), np.asarray(data.y)[seen, 0]
    found = [(t[which == i], y[which == i]) for i in range(count)]
    return found if min(len(times) for times, _ in found) > FEW else None


def _told_by_each(model: Any, theta: np.ndarray, series: list[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    """θ with the width and the noise that each output shows by itself: at a wrong width no lag looks better than another."""
    widths, noises = np.array([_width(*one) for one in series]), np.array([_roughness(*one) for one in series])
    changed, at, count = theta.copy(), 0, len(series)
    for leaf in learned_leaves(model):
        part, shape, name = slice(at, at := at + leaf.free_size), np.shape(leaf.value), leaf.path.split(".")[-1]
        told = widths if name in ("lengthscale", "own_lengthscale") else noises if name == "noise" else None
        if told is not None and shape[:1] == (count,) and leaf.free_size == np.size(leaf.value):
            value = np.broadcast_to(told.reshape(-1, *[1] * (len(shape) - 1)), shape)
            changed[part] = np.ravel(leaf.support.free(value))
    return changed


def _width(t: np.ndarray, y: np.ndarray) -> float:
    """The shift at which a series has lost a good part of its likeness with itself."""
    shifts, heights = _correlations(t, y, t, y, REACH * float(np.ptp(t)))
    later = shifts >= 0
    lost = np.flatnonzero(heights[later] < np.exp(-0.5) * heights[later][0])  # of a series with gaps it begins below 1
    return float(max(shifts[later][lost[0]] if len(lost) else shifts[-1], shifts[later][1]))


def _roughness(t: np.ndarray, y: np.ndarray) -> float:
    """The variance of what a line between its neighbours does not say of a value: noise, and bends between them."""
    order = np.argsort(t, kind="stable")
    t, y = t[order], y[order]
    part = (t[1:-1] - t[:-2]) / np.maximum(t[2:] - t[:-2], 1e-300)
    missed = y[1:-1] - (1 - part) * y[:-2] - part * y[2:]
    variance = float(np.var(y)) or 1.0
    return float(np.clip(np.median(missed**2), LOUD * variance, 0.5 * variance))


class Likeness(NamedTuple):
    """How alike outputs are, for each pair (late, early) by shifts of the first behind the second."""

    outputs: int
    pairs: dict[tuple[int, int], tuple[np.ndarray, np.ndarray]]

    @classmethod
    def of(cls, series: list[tuple[np.ndarray, np.ndarray]]) -> Likeness:
        """That of series, given by times and values."""
        reach = REACH * float(np.ptp(np.concatenate([t for t, _ in series])))
        pairs = itertools.permutations(range(len(series)), 2)
        return cls(len(series), {(i, j): _correlations(*series[i], *series[j], reach) for i, j in pairs})

    def along_tree(self, theta: np.ndarray, lags: slice) -> np.ndarray:
        """θ with the lags along the tree of the most alike pairs."""
        lag, joined = np.zeros(self.outputs), [0]
        while len(joined) < self.outputs:
            pairs = [(j, i) for i in joined for j in range(self.outputs) if j not in joined]
            late, early = max(pairs, key=lambda pair: np.abs(self.pairs[pair][1]).max())
            shifts, heights = self.pairs[late, early]
            lag[late] = lag[early] + shifts[int(np.argmax(np.abs(heights)))]
            joined.append(late)
        moved = theta.copy()
        moved[lags] = lag[1:]
        return moved

    def loaded(self, theta: np.ndarray, parts: dict[str, slice], lags: slice) -> np.ndarray:
        """θ with the loadings of what is alike at its lags, and one width for all sources: the loadings tell them apart."""
        lag, alike = np.append(0.0, theta[lags]), np.eye(self.outputs)
        for (i, j), (shifts, heights) in self.pairs.items():
            alike[i, j] = np.interp(lag[i] - lag[j], shifts, heights, left=0.0, right=0.0)
        sizes, vectors = np.linalg.eigh(0.5 * (alike + alike.T))
        shared = (vectors * np.sqrt(np.maximum(sizes, 0.0)))[:, ::-1]
        changed = theta.copy()
        for path, part in parts.items():
            if path.endswith(".loadings"):
                table = changed[part].reshape(self.outputs, -1)
                found = shared[:, : table.shape[1]] + 0.05 * np.cos(
                    np.arange(self.outputs)[:, None] + np.arange(table.shape[1])
                )
                size = np.linalg.norm(table, axis=1, keepdims=True) / np.linalg.norm(found, axis=1, keepdims=True)
                table[:] = size * found
                widths = parts.get(path.replace(".loadings", ".lengthscale"))
                if widths is None:  # turned so that those above the diagonal, which may not count, are zero
                    table[:] = np.linalg.qr(table.T, mode="r").T[:, : table.shape[1]]
                elif widths.stop - widths.start == table.size:
                    changed[widths].reshape(table.shape)[:] = theta[widths].reshape(table.shape)[:, :1]
        return changed


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
    shifts, signed = _correlations(t, y, s, z, reach)
    heights = np.abs(signed)
    inner = np.flatnonzero((heights[1:-1] >= heights[:-2]) & (heights[1:-1] > heights[2:])) + 1
    return [float(shifts[k]) for k in inner[np.argsort(-heights[inner])][:PEAKS]]


def _correlations(
    t: np.ndarray, y: np.ndarray, s: np.ndarray, z: np.ndarray, reach: float
) -> tuple[Float[np.ndarray, " K"], Float[np.ndarray, " K"]]:
    """Shifts, and the correlation of two series where the first comes so much after the second; 0 where few places meet."""
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
            likeness = np.mean((p - p.mean()) * (q - q.mean())) / max(p.std() * q.std(), 1e-300)
            heights[k] = likeness * np.sqrt(both.sum() / FINE)  # of few places much may be chance
    return step * np.array(shifts), heights


def _on_grid(grid: np.ndarray, t: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A series on a grid by linear interpolation, and where it has observations near enough for that."""
    order = np.argsort(t)
    t, y = t[order], y[order]
    right = np.clip(np.searchsorted(t, grid), 1, len(t) - 1)
    gap = t[right] - t[right - 1]
    near = (grid >= t[0]) & (grid <= t[-1]) & (gap <= 4 * max(np.median(np.diff(t)), 1e-300))
    return np.interp(grid, t, y), near
