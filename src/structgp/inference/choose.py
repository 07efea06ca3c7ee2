"""Which way of finding sites runs: the one that is asked for, or the likelihood's own."""

from __future__ import annotations

from ..likelihoods.base import Likelihood
from .base import Inference
from .ep import EP
from .laplace import Laplace
from .variational import Variational

INFERENCES: dict[str, Inference] = {
    "ep": EP(),
    "power-ep": EP(0.5),
    "variational": Variational(),
    "laplace": Laplace(),
}


def choose(likelihood: Likelihood, asked: str | None, weighted: bool = False) -> Inference | None:
    """The rule to find sites by; None for Gaussian data, which are their own sites."""
    if asked is not None and (not isinstance(asked, str) or asked not in INFERENCES):
        raise ValueError(f"inference must be one of {list(INFERENCES)}, or None to leave the choice, got {asked!r}")
    if asked is not None and asked not in likelihood.inferences:
        use = " or ".join(f"inference={name!r}" for name in likelihood.inferences)
        raise ValueError(f"{type(likelihood).__name__} cannot be had by every method: use {use}, got {asked!r}")
    if likelihood.is_gaussian and asked is None and not weighted:
        return None
    return INFERENCES[asked or likelihood.default_inference]
