"""Which of several models the data favour while they arrive: annealed importance sampling, one observation at a time.

With chains that stand for p(θ | y₁ … y_{k−1}), the next observation is let in by degrees,

    log q_β = log p(θ) + (1 − β) log p(y_{<k} | θ) + β log p(y_{≤k} | θ).

Weights and places of the chains are kept; below half of their effective number they are resampled.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from .._types import Seed, double_precision, generator, how_many, whole
from ..inputs.layouts import as_inputs
from ..inputs.observations import read_observations
from ..inputs.reading import unmasked
from ..learn.anneal import Annealed, Start, anneal, told
from ..learn.believe import WeakBeliefs
from ..learn.density import Density
from ..learn.objective import LOWEST
from ..learn.peak import Evidence, normalised, resampled
from ..linalg.dense.cholesky import lapack_threads
from ..parameters.tree import as_numpy, free_vector, with_free
from ..posterior import MixturePrediction
from ..process.conditioning import check_inputs
from ..process.evidence import density_of
from .compare import Comparison, check_proper

MEMBERS = 16  # of the average over the parameters of one model
MOVES = 2  # of every chain for each step


@dataclasses.dataclass
class _Model:
    """A model, what is believed of it, and its chains."""

    gp: Any
    beliefs: WeakBeliefs
    density: Density
    chains: Annealed

    def thetas(self, z: np.ndarray) -> np.ndarray:
        """θ of chains in z, with entries that nothing is believed of at their start."""
        return _thetas(self.gp, self.beliefs, z)


class EvidenceStream:
    """Evidences, probabilities and predictions of several models of data that arrive one by one.

    The first `begin` observations are collected: the units of weak beliefs come from them, and do not change afterwards.
    """

    def __init__(self, models: Mapping[str, Any], chains: int = 200, begin: int = 5, seed: Seed = 0) -> None:
        if not models:
            raise ValueError("EvidenceStream needs at least one model, by name: EvidenceStream({'smooth': gp1, 'rough': gp2})")
        self.models, self.chains, self.begin = dict(models), whole(chains, "chains", 8), whole(begin, "begin", 2)
        self._rng = generator(seed)
        self._X: list[np.ndarray] = []
        self._y: list[float] = []
        self._running: dict[str, _Model] = {}

    def __len__(self) -> int:
        return len(self._y)

    @double_precision
    def tell(self, x: Any, y: Any) -> EvidenceStream:
        """One more observation: a place (a number, or one for each column) and a value.

        One that cannot be taken is refused with its reason, and the stream goes on as if it had not been told.
        """
        X, values = [*self._X, self._place(x)], [*self._y, self._value(y)]
        for name, gp in self.models.items():
            row = as_inputs(X[-1][None], "x")
            check_inputs(gp, row)
            read_observations(gp.likelihood, values[-1:], None, "error", row)
            if not self._y:
                check_proper(name, gp, row)
        running = self._running
        if len(values) >= self.begin:
            with lapack_threads(0):
                running = {name: self._next(name, np.stack(X), np.array(values)) for name in self.models}
        self._X, self._y, self._running = X, values, running
        return self

    def _place(self, x: Any) -> np.ndarray:
        place = np.atleast_1d(_as_numbers(x))
        if place.ndim > 1 or (self._X and place.shape != self._X[0].shape):
            wanted = how_many(len(self._X[0]), "column") if self._X else "a number for each column"
            raise ValueError(f"tell needs a place with {wanted}, got {place.shape}")
        return place

    def _value(self, y: Any) -> float:
        value = _as_numbers(y)
        if value.size != 1 or not np.isfinite(value).all():
            raise ValueError(f"tell needs one finite value, got {y!r}: do not tell what was not observed")
        return float(value.reshape(()))

    @property
    def evidences(self) -> dict[str, Evidence]:
        """log p(y) of every model, with its parameters integrated out."""
        return {name: told(one.chains, "sequential ais") for name, one in self._running.items()}

    @property
    def probabilities(self) -> dict[str, float]:
        """The probability of every model, if none was preferred: equal as long as observations are collected."""
        if not self._running:
            return dict.fromkeys(self.models, 1 / len(self.models))
        return Comparison(self.evidences, {}).probabilities

    @double_precision
    def predict(self, X: Any) -> MixturePrediction:
        """The belief about f at new places, averaged over the models and over their parameters."""
        if not self._running:
            raise ValueError(
                f"{len(self)} observations were told so far, and {self.begin} are collected before the first answer"
            )
        members: list[Any] = []
        weights: list[float] = []
        X_seen, y_seen = np.stack(self._X), np.array(self._y)
        for name, one in self._running.items():
            chosen = resampled(normalised(one.chains.log_weights)[1], MEMBERS, np.random.default_rng(0))
            for theta in one.thetas(one.chains.u[chosen]):
                members.append(as_numpy(with_free(one.gp, theta)).condition(X_seen, y_seen).predict(X))
                weights.append(self.probabilities[name] / MEMBERS)
        best = max(self.probabilities, key=lambda name: self.probabilities[name])
        return MixturePrediction(tuple(members), np.array(weights), self.models[best].likelihood)

    def _next(self, name: str, X: np.ndarray, y: np.ndarray) -> _Model:
        """The chains of a model after these observations, the last of which is new."""
        gp, before = self.models[name], self._running.get(name)
        density = density_of(gp, X, y)
        beliefs = density.beliefs if before is None else before.beliefs
        density = Density(density, beliefs)
        prior = lambda z: np.maximum(density.log_priors(_thetas(gp, beliefs, z)), LOWEST)
        after = lambda z: density.values(_thetas(gp, beliefs, z))
        options: dict[str, Any] = {"schedule": "even", "moves": MOVES, "resample": True}
        if before is None:
            draw = lambda rng, count: beliefs.z(beliefs.sample(gp, rng, count))[:, beliefs.averaged]
            chains = anneal(Start(draw, prior), after, self.chains, self._rng, **(options | {"moves": 2 * MOVES}))
        else:
            start = Start(lambda rng, count: before.chains.u, lambda z: before.density.values(before.thetas(z)))
            chains = anneal(start, after, self.chains, self._rng, begun=before.chains, **options)
        return _Model(gp, beliefs, density, chains)


def _as_numbers(value: Any) -> np.ndarray:
    """What was told as numbers, NaN where it is masked; a date is none, and what it counts from nobody said."""
    found = np.asarray(unmasked(value))
    try:
        if found.dtype.kind not in "mM":
            return found.astype(float)
    except (TypeError, ValueError):
        pass
    raise TypeError(f"tell needs numbers, got {value!r}: of a date tell the days since the first")


def _thetas(gp: Any, beliefs: WeakBeliefs, z: np.ndarray) -> np.ndarray:
    whole = np.tile(beliefs.z(free_vector(gp)), (len(z), 1))
    whole[:, beliefs.averaged] = z
    return whole @ beliefs.units.T
