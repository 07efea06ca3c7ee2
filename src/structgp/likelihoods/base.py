"""How one observation arises from the latent value seen there."""

from __future__ import annotations

import abc
from typing import Any

from .._types import Numbers
from ..parameters import Parametrised


class Likelihood(Parametrised):
    """p(y | f), and what it makes of a Gaussian belief about f."""

    @abc.abstractmethod
    def log_prob(self, y: Numbers, f: Numbers) -> Numbers:
        """log p(y | f), element by element."""

    @abc.abstractmethod
    def observed(self, mean: Numbers, variance: Numbers) -> tuple[Numbers, Numbers]:
        """Mean and variance of y when f ~ N(mean, variance)."""

    @abc.abstractmethod
    def log_predictive(self, y: Numbers, mean: Numbers, variance: Numbers) -> Numbers:
        """log ∫ p(y | f) N(f; mean, variance) df."""

    @abc.abstractmethod
    def quantile(self, q: Numbers, mean: Numbers, variance: Numbers) -> Numbers:
        """The value that y stays below with probability q, when f ~ N(mean, variance)."""

    @abc.abstractmethod
    def sample(self, rng: Any, f: Any) -> Any:
        """Observations drawn at latent values f (on the host)."""
