"""Several classes, each against the rest: one function for each class, and probabilities that are made to sum to one."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from ..posterior import Result


@dataclasses.dataclass(frozen=True)
class ClassProbabilities:
    """What is said of new places: the probability of every class, (M, classes)."""

    probability: np.ndarray


@dataclasses.dataclass(frozen=True)
class OneAgainstRest(Result):
    """A fitted model of two labels for each class, "this one" and "another"."""

    parts: tuple[Any, ...]

    @property
    def log_evidence(self) -> float:
        """The sum over the classes, which compares such models with each other and with nothing else."""
        return float(sum(part.log_evidence for part in self.parts))

    @property
    def likelihood(self) -> Any:
        """How the labels of a class arise."""
        return self.parts[0].likelihood

    def predict(self, X: Any) -> ClassProbabilities:
        """The probability of each class at new places."""
        each = np.stack([np.asarray(part.predict(X).probability) for part in self.parts], axis=1)
        return ClassProbabilities(each / each.sum(axis=1, keepdims=True))

    def summary(self) -> str:
        """How learning ended, class by class."""
        return "\n".join(f"class {c}: {part.summary()}" for c, part in enumerate(self.parts))
