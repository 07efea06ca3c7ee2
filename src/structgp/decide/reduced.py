"""A model of long histories for an optimiser: through a few inducing inputs, whatever the number of runs."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from ..engines.inducing_inputs import Inducing
from .surrogate import capacity_for, prior


@dataclasses.dataclass(frozen=True)
class ReducedRank:
    """The usual model while there are few runs; beyond `inducing` of them, one through as many inducing inputs.

    ``Optimiser(space, model=ReducedRank(36))``. Parameters are the best ones.
    """

    inducing: int = 36
    kernel: Any = None

    def fit(self, X: np.ndarray, y: np.ndarray) -> Any:
        """The process given runs in the unit cube."""
        gp = prior(self.kernel, X.shape[1], None)
        options: dict[str, Any] = {"parameters": "best", "restarts": 0, "progress": False, "missing": "infer"}
        room = capacity_for(len(y) + 1)  # one run more is the same program: what fills up are the same places, not seen
        rows, told = np.resize(X, (room, X.shape[1])), np.append(y, np.full(room - len(y), np.nan))
        if len(y) <= self.inducing:
            return gp.fit(rows, told, structure="dense", **options)
        return gp.fit(rows, told, approximate=Inducing(self.inducing), **options)
