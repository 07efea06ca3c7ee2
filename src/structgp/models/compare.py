"""Which of several models the data favour, and an average over all of them.

Evidences of one set of data, with the parameters of every model integrated out, are proportional to the probabilities of
the models when none is preferred beforehand. The words for ratios are those of Jeffreys (1961, appendix B).
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from .._types import double_precision
from ..crew import Here, crew_for
from ..inputs.layouts import as_inputs
from ..inputs.outputs import read_rows
from ..kernels.independent import kernels_of
from ..learn.peak import Evidence
from ..parameters.priors import Alike
from ..parameters.tree import leaves
from ..posterior import MixturePrediction, Result
from ..process.evidence import evidence
from ..process.mixture import FittedMixture

OWN = ("chains", "start", "schedule", "ratio", "even", "moves", "move")  # options of evidences that are none of fits
WORDS = (
    (0.5, "not worth more than a bare mention"),
    (1.0, "substantial"),
    (1.5, "strong"),
    (2.0, "very strong"),
    (np.inf, "decisive"),
)


@dataclasses.dataclass(frozen=True)
class BayesFactor:
    """The ratio of two evidences, by its logarithm, with the standard error where it is known."""

    log: float
    error: float | None
    first: str
    second: str

    def __float__(self) -> float:
        return float(np.exp(self.log))

    @property
    def words(self) -> str:
        """How much the data say, and for which of the two."""
        size = abs(self.log) / np.log(10)
        strength = next(word for most, word in WORDS if size <= most)
        return f"{strength} evidence for {self.first if self.log > 0 else self.second}" if size > 0.5 else strength

    def __str__(self) -> str:
        error = "" if self.error is None else f" ± {self.error:.2g}"
        return f"log Bayes factor {self.log:.3g}{error} of {self.first} to {self.second}: {self.words}"


@dataclasses.dataclass(frozen=True)
class AveragedModels(Result):
    """The average over models: each counts by its probability."""

    fitted: dict[str, Any]
    probabilities: dict[str, float]

    @double_precision
    def predict(self, X: Any, covariance: bool = False, extra: Any = None) -> MixturePrediction:
        """The belief about f at new places, averaged over models and over their parameters."""
        members: list[Any] = []
        weights: list[float] = []
        for name, fitted in self.fitted.items():
            found = fitted.predict(X, covariance, extra=extra)
            parts, own = (found.members, found.weights) if isinstance(found, MixturePrediction) else ((found,), (1.0,))
            members += parts
            weights += [self.probabilities[name] * weight for weight in own]
        best = max(self.probabilities, key=lambda name: self.probabilities[name])
        return MixturePrediction(tuple(members), np.array(weights) / np.sum(weights), self.fitted[best].likelihood)


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Several models of the same data: their evidences, probabilities, and the average over them."""

    evidences: dict[str, Evidence]
    fitted: dict[str, Any]

    @property
    def probabilities(self) -> dict[str, float]:
        """The probability of every model, if none is preferred before the data."""
        logs = np.array([found.log for found in self.evidences.values()])
        ratios = np.exp(logs - logs.max())
        return dict(zip(self.evidences, map(float, ratios / ratios.sum()), strict=True))

    @property
    def best(self) -> str:
        """The name of the most probable model."""
        return max(self.evidences, key=lambda name: self.evidences[name].log)

    def bayes_factor(self, first: str, second: str) -> BayesFactor:
        """How much more probable the data are under one model than under another."""
        for name in (first, second):
            if name not in self.evidences:
                raise ValueError(f"there is no model {name!r}; there are {', '.join(self.evidences)}")
        a, b = self.evidences[first], self.evidences[second]
        errors = [found.error for found in (a, b)]
        error = None if None in errors else float(np.hypot(*errors))  # type: ignore[arg-type]
        return BayesFactor(a.log - b.log, error, first, second)

    @property
    def average(self) -> AveragedModels:
        """The predictor that averages over the models."""
        return AveragedModels(self.fitted, self.probabilities)

    def __str__(self) -> str:
        width = max(map(len, self.evidences))
        order = sorted(self.evidences, key=lambda name: -self.evidences[name].log)
        lines = [f"{name:<{width}}  {self.probabilities[name]:8.4f}   {self.evidences[name]}" for name in order]
        if len(order) > 1:
            lines.append(str(self.bayes_factor(order[0], order[1])))
        return "\n".join(lines)

    __repr__ = __str__


@double_precision
def compare(
    models: Mapping[str, Any],
    X: Any,
    y: Any,
    method: str = "laplace",
    parameters: Any = "laplace",
    *,
    over: Any = None,
    **options: Any,
) -> Comparison:
    """The evidences of several models of the same data, with their parameters integrated out.

    `method` and its options are those of `evidence`; `parameters` say how each model is averaged for predictions, and all else
    goes to `GP.fit`. `over`, a Dask client or an executor, has each model looked at elsewhere. The models must have proper
    beliefs: free polynomials and levels leave an evidence without a scale.
    """
    if not isinstance(models, Mapping) or not models:
        raise ValueError("compare needs models by name, one at least: compare({'smooth': gp1, 'rough': gp2}, X, y)")
    given = {key: value for key, value in options.items() if key in ("noise", "missing", "extra", "weights")}
    for name, gp in models.items():
        check_proper(name, gp, read_rows(gp, X, y, **given).inputs)
    same = itertools.repeat
    looked = crew_for(over, 0.0) if over is not None else Here(0.0)
    pairs = looked.map(_fitted_and_evidence, models.values(), same(X), same(y), same(method), same(parameters), same(options))
    fitted, found = ({name: pair[i] for name, pair in zip(models, pairs, strict=True)} for i in (0, 1))
    return Comparison(found, fitted)


def _fitted_and_evidence(gp: Any, X: Any, y: Any, method: str, parameters: Any, options: dict[str, Any]) -> tuple[Any, Any]:
    """One of the models, and its evidence."""
    rest = {key: value for key, value in options.items() if key not in OWN}
    fitted = gp.fit(X, y, parameters=parameters, **rest)
    known = isinstance(fitted, FittedMixture) and fitted.evidence.method == method
    return fitted, fitted.evidence if known else evidence(gp, X, y, method, **options)


def check_proper(name: str, gp: Any, X: Any) -> None:
    """Refuse a model whose evidence has no scale."""
    point = jax.ShapeDtypeStruct((as_inputs(X, clocks=()).dimension,), np.float64)
    weights = jax.eval_shape(gp.mean.features, point).shape[0]
    free = sum(jax.eval_shape(kernel.null_space, point).shape[0] for kernel in kernels_of(gp.kernel, 1))
    if free or (weights and gp.mean.diffuse):
        raise ValueError(
            f"{name!r} leaves a level or a polynomial free, so that its evidence cannot be compared with that of others: "
            "give the weights a covariance (Basis(..., covariance=...)), or take a kernel without free functions"
        )
    if any(isinstance(leaf.prior, Alike) for leaf in leaves(gp)):
        raise ValueError(
            f"{name!r} has the prior Alike, which is no density, so that its evidence cannot be compared: take LogNormal"
        )
