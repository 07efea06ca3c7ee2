"""What learning climbs when observations are not Gaussian: the evidence at sites that are found anew for every θ."""

from __future__ import annotations

import functools
import threading
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._types import double_precision
from ..engines.base import Engine
from ..inference.base import CONVERGED, MAX_CALLS, TOLERANCE, Found, Inference, Problem, unknown
from ..inputs import Inputs
from ..parameters import log_prior, with_free
from ..posterior import Data, Model
from .evidence import LOWEST

LEARNING = 1e-5  # tolerance in standard deviations of f; the gradient is off by as much, and a looser one ends at false optima


class SiteObjective:
    """log p(y | θ) + log p(θ) and its gradient, the evidence by one rule for the sites throughout.

    A search starts from the sites of the last evaluation that converged, and from nothing if that fails. Where both fail there
    is no value, and the line search steps back.
    """

    def __init__(self, model: Model, inputs: Inputs, data: Data, engine: Engine, inference: Inference) -> None:
        self.model, self.inputs, self.engine, self.inference = model, inputs, engine, inference
        self.data = data
        with jax.enable_x64(True):  # on the device once, not at every evaluation
            self._inputs, self._data = jax.device_put((inputs, data))
        self._last = threading.local()  # climbs run side by side, each with its own sites

    @double_precision
    def __call__(self, theta: Float[Any, "P"]) -> tuple[float, Float[np.ndarray, "P"]]:
        value, gradient, found = self._evaluate(theta, LEARNING)
        if found.status == CONVERGED and np.isfinite(value) and np.isfinite(gradient).all():
            return float(value), np.asarray(gradient)
        return LOWEST, np.zeros(len(theta))

    def sites(self, theta: Float[Any, "P"]) -> Found:
        """The sites at θ, found to the end."""
        return self._evaluate(theta, TOLERANCE)[2]

    def _evaluate(self, theta: Float[Any, "P"], tolerance: float) -> tuple[Any, Any, Found]:
        engine = self.engine.specialised(with_free(self.model, np.asarray(theta)), self.inputs, self.data)
        arguments = (jnp.asarray(theta), self.model, self._inputs, self._data, engine, self.inference)
        cold = unknown(len(self.inputs), self.model.likelihood.latents)
        warm = getattr(self._last, "sites", None)
        for start in (cold,) if warm is None else (warm, cold):
            value, gradient, found = _value_and_gradient(*arguments, start, tolerance)
            if found.status == CONVERGED:
                self._last.sites = (found.w, found.h)
                break
        return value, gradient, found


@functools.partial(jax.jit, static_argnames=("engine", "inference"))
def _value_and_gradient(
    theta: Array,
    model: Model,
    inputs: Inputs,
    data: Data,
    engine: Engine,
    inference: Inference,
    start: tuple[Any, Any],
    tolerance: Any,
) -> tuple[Array, Array, Found]:
    at = with_free(model, theta)
    signed = inference.signed(model.likelihood)
    found = inference.find(Problem.of(at, inputs, data, engine, signed), start, tolerance, MAX_CALLS)

    def surrogate(theta: Array) -> Array:
        at = with_free(model, theta)
        return inference.surrogate(Problem.of(at, inputs, data, engine, signed, search=False), found) + log_prior(at)

    return found.log_evidence + log_prior(at), jax.grad(surrogate)(theta), found
