"""What learning climbs when observations are not Gaussian: the evidence at sites that are found anew for every θ."""

from __future__ import annotations

import functools
import threading
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..background import Early, compiling
from ..engines.base import Engine
from ..inference.base import (
    CONVERGED,
    Found,
    Inference,
    Problem,
    find_sites,
    search,
    seen_as,
)
from ..inputs.layouts import Grid, Inputs
from ..inputs.observations import Data
from ..inputs.rows import in_bucket
from ..parameters.tree import as_numpy, with_free
from ..posterior import Model
from ..structure.dense import variances

MOST_TOLD = 1e13  # prior variance over that of a site: beyond, rounding makes up evidence for noise that is next to nothing
LEARNING = 1e-5  # tolerance in standard deviations of f; the gradient is off by as much, and a looser one ends at false optima


class SiteEvidence:
    """log p(y | θ) and its gradient, by one rule for the sites throughout.

    A search starts from the sites of the last evaluation that converged, and from nothing if that fails. Where both fail there
    is no value, and the line search steps back.
    """

    def __init__(self, model: Model, inputs: Inputs, data: Data, engine: Engine, inference: Inference) -> None:
        if engine.takes_unseen_rows:
            inputs, data = in_bucket(inputs, data)
        self.model, self.inputs, self.engine, self.inference = model, inputs, engine, inference
        self.data = data
        with jax.enable_x64(True):  # on the device once, not at every evaluation
            self._inputs, self._data = jax.device_put((inputs, data))
        self._last: dict[int, Any] = {}  # climbs run side by side, each on a thread with its own sites
        self._compiling: Early | None = None
        self._cold = inference.unknown(model.likelihood, len(inputs))
        self._hints: list[tuple[np.ndarray, Any]] = []

    def __call__(self, theta: Float[Any, " P"]) -> tuple[Any, Any]:
        arguments = self._arguments(theta)
        compiling = self._compiling or self.begin(theta)
        hints = [sites for at, sites in self._hints if np.allclose(at, theta, rtol=1e-9, atol=1e-9)]
        found = self._find(arguments, LEARNING, hints)
        compiling.wait()
        if int(found.status) == CONVERGED and np.isfinite(found.log_evidence):
            gradient, told = _gradient(theta, self.model, *arguments[1:], found)
            if float(told) <= MOST_TOLD:
                return found.log_evidence, gradient
        return np.nan, np.zeros(len(theta))

    def __reduce__(self) -> Any:  # what was found is left behind: elsewhere a search begins from nothing
        given = self.model, as_numpy(self.inputs), as_numpy(self.data), self.engine, self.inference
        return SiteEvidence, given

    def begin(self, theta: Float[Any, " P"]) -> Early:
        """Compile the gradient, beside the search, which is needed first: so its program is written before."""
        arguments = self._arguments(theta)
        search = (*arguments, self._cold, LEARNING)
        find_sites.lower(*search)
        self._compiling = compiling(_gradient, theta, self.model, *arguments[1:], find_sites.eval_shape(*search))
        return self._compiling

    def hint(self, theta: Float[Any, " P"], variance: Float[np.ndarray, " N"]) -> None:
        """At θ, and from there on, begin where the signal was seen with Gaussian noise of these variances."""
        more = len(self.data.seen) - len(variance)  # rows that fill up
        precision = np.where(self.data.seen, 1 / np.pad(variance, (0, more), mode="edge"), 0.0)
        y = self.model.likelihood.plainly(np.asarray(self.data.y)[:, 0], self.data.extra)
        sites = seen_as(self._cold, self.model.likelihood.signal[0], y, precision)
        self._hints.append((np.asarray(theta), sites))

    def sites(self, theta: Float[Any, " P"], late: bool = False) -> Found:
        """The sites at θ, found to the end: of several that stay where they are those with the largest evidence, unless it is
        late."""
        every = not self.model.likelihood.log_concave and not late
        return search(*self._arguments(theta), self._cold, list(self._last.values()), every=every)

    def _arguments(self, theta: Float[Any, " P"]) -> tuple[Any, Inputs, Data, Engine, Inference]:
        at = with_free(self.model, np.asarray(theta))
        return at, self._inputs, self._data, self.engine.tuned(at, self.inputs, self.data), self.inference

    def _find(self, arguments: tuple[Any, ...], tolerance: float, hints: list[Any]) -> Found:
        thread = threading.get_ident()
        warm, cold = self._last.get(thread), self._cold
        for start in (*hints, *(() if warm is None else (warm,)), cold):
            found = find_sites(*arguments, start, tolerance)
            if int(found.status) == CONVERGED:
                self._last[thread] = (found.w, found.h)
                break
        return found


@functools.partial(jax.jit, static_argnames=("engine", "inference"))
def _gradient(
    theta: Array, model: Model, inputs: Inputs, data: Data, engine: Engine, inference: Inference, found: Found
) -> tuple[Array, Array]:
    """The gradient of the evidence, and how much more the site that says most says of f than the prior does."""

    def surrogate(theta: Array) -> Array:
        at = with_free(model, theta)
        problem = Problem.of(at, inputs, data, engine, inference.signed(model.likelihood), search=False)
        return inference.surrogate(problem, found)

    if isinstance(inputs, Grid) or not isinstance(found.w, Array) or found.w.ndim > 1:
        return jax.grad(surrogate)(theta), jnp.zeros(())
    prior = variances(with_free(model, theta).kernel, jnp.asarray(inputs.points))
    return jax.grad(surrogate)(theta), jnp.max(jnp.abs(found.w) * prior)
