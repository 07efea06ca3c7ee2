"""Columns of few values that are names rather than sizes: codes of letters, kinds, answers.

Whether they are is asked of the data. Labels are taken for numbers, for which the evidence of a process of all columns, with
one lengthscale, is known in closed form: with the correlations among N rows R = UΛUᵀ, noise ρ times as large as the process
and b = Uᵀt, the most that a factor on both can make of it is

    F = −½ [N log(Σ b²/(λ + ρ) / N) + Σ log(λ + ρ)].

It takes a fraction of a second, and is compared between columns as numbers and with an indicator for each value of a code.
"""

from __future__ import annotations

import dataclasses

import numpy as np
from jaxtyping import Float, Int

FEWEST, MOST = 3, 8  # values of a column that may be codes: two are as far apart in any case
ROWS = 500  # by which it is decided
CLEARLY = 3.0  # of the log evidence: 20 times as probable
LENGTHS = (0.25, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0, 3.0)  # of the spread of all columns together
NOISES = np.geomspace(1e-3, 30.0, 25)


@dataclasses.dataclass(frozen=True)
class Codes:
    """Which columns are codes, of which values: an indicator for each in place of the column; others stay as they are."""

    values: tuple[np.ndarray | None, ...]

    @classmethod
    def of(cls, X: Float[np.ndarray, "N D"], Z: Float[np.ndarray, "N D"], labels: Int[np.ndarray, " N"]) -> Codes | None:
        """The codes among columns X, which are otherwise numbers Z; None where labels are not more probable with them."""
        found = [np.unique(column) for column in X.T]
        codes = cls(tuple(values if FEWEST <= len(values) <= MOST else None for values in found))
        if not any(values is not None for values in codes.values):
            return None
        some = np.random.default_rng(0).permutation(len(X))[:ROWS]
        T = (labels[some][:, None] == np.unique(labels[some])).astype(float)[:, 1:]
        T = (T - T.mean(axis=0)) / T.std(axis=0)
        as_numbers, as_codes = (log_evidence(part, T, X.shape[1]) for part in (Z[some], codes(X[some], Z[some])))
        return codes if as_codes > as_numbers + CLEARLY else None

    @property
    def groups(self) -> tuple[int, ...]:
        """The column that each column stands for."""
        counts = [1 if values is None else len(values) for values in self.values]
        return tuple(np.repeat(np.arange(len(counts)), counts).tolist())

    def __call__(self, X: Float[np.ndarray, "N D"], Z: Float[np.ndarray, "N D"]) -> Float[np.ndarray, "N E"]:
        """Numbers Z with indicators of the codes X; a value that was never seen is as far from all others."""
        columns = zip(X.T, Z.T, self.values, strict=True)
        parts = [z[:, None] if values is None else (x[:, None] == values).astype(float) for x, z, values in columns]
        return np.concatenate(parts, axis=1)


def log_evidence(Z: Float[np.ndarray, "N E"], T: Float[np.ndarray, "N C"], columns: int) -> float:
    """The log evidence of targets as numbers, up to a constant: the most that one lengthscale and the noise can make of it."""
    from scipy.spatial.distance import cdist

    squares, best = cdist(Z, Z, "sqeuclidean"), -np.inf
    for length in LENGTHS:
        values, vectors = np.linalg.eigh(np.exp(-0.5 * squares / (length**2 * columns)))
        apart = np.maximum(values, 0.0)[:, None] + NOISES
        left = (vectors.T @ T) ** 2
        sizes = len(Z) * np.log(np.einsum("nc,nr->cr", left, 1 / apart) / len(Z))
        best = max(best, float(np.max(-0.5 * np.sum(sizes + np.sum(np.log(apart), axis=0), axis=0))))
    return best
