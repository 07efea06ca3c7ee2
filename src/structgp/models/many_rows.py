"""Tables with more rows than a dense matrix can hold: an additive model or projection pursuit, by their evidence.

The evidence of projection pursuit is charged for the D + 1 parameters of each projection, which were chosen and not averaged
over; that of the additive model is its lower bound.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ..engines.additive import AdditiveEngine
from ..engines.base import Cost, Offer, units
from ..engines.cholesky import Cholesky, cost_of_matrix
from ..engines.plan import Plan
from ..kernels.stationary import Matern52
from ..likelihoods.labels import Bernoulli
from .additive.model import AdditiveGP
from .labels import AdditiveLabels, ProjectionPursuitLabels
from .one_against_rest import OneAgainstRest
from .pursuit.model import ProjectionPursuitGP
from .pursuit.search import schwarz, twice_akaike

STRUCTURES = ("additive", "projection-pursuit")
DENSE_ROWS, LABEL_ROWS = 3000, 1500  # up to so many rows, of numbers and of labels, a dense matrix is taken without being asked
SECONDS = 300.0  # about how long projection pursuit may search
NEWTON = 8  # passes over the rows that one evaluation for labels takes, about


class Tried(NamedTuple):
    """One model given data, and what it is compared by."""

    fitted: Any
    score: float
    offer: Offer


def regression(X: np.ndarray, y: np.ndarray, structure: str = "auto", seed: int = 0) -> tuple[Any, Plan]:
    """The better of the two models given the data, or the one that is asked for, and the plan that says why."""

    def additive() -> Tried:
        fitted = AdditiveGP().fit(X, y)
        offer = dataclasses.replace(fitted.plan.offers[0], note=f"one function for each of {X.shape[1]} columns")
        return Tried(fitted, fitted.log_evidence, offer)

    def pursuit() -> Tried:
        fitted = ProjectionPursuitGP(seconds=SECONDS).fit(X, y, seed=seed)
        M = fitted.model.projections
        offer = dataclasses.replace(fitted.additive.plan.offers[0], note=f"projection pursuit, {M} functions")
        return Tried(fitted, fitted.log_evidence - M * schwarz(*X.shape), offer)

    return _better(X, structure, additive, pursuit)


def labels(
    X: np.ndarray, codes: np.ndarray, classes: int, link: str, structure: str = "auto", seed: int = 0
) -> tuple[Any, Plan]:
    """The same for labels 0, …, classes − 1."""
    positive = [1] if classes == 2 else range(classes)
    targets = [(codes == c).astype(float) for c in positive]
    together = lambda found: found[0] if classes == 2 else OneAgainstRest(tuple(found))

    def additive() -> Tried:
        fitted = together([AdditiveLabels(Matern52(), Bernoulli(link)).fit(X, y) for y in targets])
        return Tried(fitted, fitted.log_evidence, _label_offer(X, targets, f"one function for each of {X.shape[1]} columns"))

    def pursuit() -> Tried:
        model = ProjectionPursuitLabels(Bernoulli(link), seconds=SECONDS / len(targets))
        found = [model.fit(X, y, seed=seed) for y in targets]
        M = sum(fitted.model.functions.projections for fitted in found)
        fitted = together(found)
        return Tried(
            fitted,
            fitted.log_evidence - M * twice_akaike(*X.shape),
            _label_offer(X, targets, f"projection pursuit, {M} functions"),
        )

    return _better(X, structure, additive, pursuit)


def _better(X: np.ndarray, structure: str, additive: Callable[[], Tried], pursuit: Callable[[], Tried]) -> tuple[Any, Plan]:
    dense = Offer(Cholesky(), reason=_too_many(X))
    if structure != "auto":
        asked = (additive if structure == "additive" else pursuit)()
        return asked.fitted, Plan((asked.offer,))
    tried = [additive(), pursuit()]
    best = max(tried, key=lambda one: one.score)
    other = tried[best is tried[0]]
    reason = f"{other.offer.note}: log evidence {other.score:.6g}, which is less than {best.score:.6g}"
    return best.fitted, Plan((best.offer, dataclasses.replace(other.offer, cost=None, reason=reason), dense))


def _too_many(X: np.ndarray) -> str:
    cost = cost_of_matrix(len(X), 1)
    return (
        f"{len(X)} rows in a dense matrix take {units(cost.flops, 'flop')} and {units(cost.bytes, 'B')} for each evaluation; "
        "structure='dense' asks for it"
    )


def _label_offer(X: np.ndarray, targets: list, note: str) -> Offer:
    F = 20 * X.shape[1]
    cost = Cost(flops=2.0 * NEWTON * len(targets) * len(X) * F**2, bytes=8.0 * (len(X) * X.shape[1] + 6 * F**2))
    return Offer(AdditiveEngine(), cost, note=note, accuracy=AdditiveEngine.accuracy)
