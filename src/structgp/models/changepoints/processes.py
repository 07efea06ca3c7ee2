"""Segments of Gaussian processes: any Markov kernel by a filter for each hypothesis, any kernel by one factor shared by all.

With an `UnknownScale` kernel and noise are given up to a common factor 1/τ, τ ~ Gamma(α, β), which is integrated out: with m, v
the prediction at τ = 1 and e = y − m, the next observation is Student's t with 2α degrees of freedom, location m and squared
scale v β/α, and seeing it makes (α, β) into (α + ½, β + ½ e²/v).
"""

from __future__ import annotations

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ..._types import Numbers, is_traced
from ...likelihoods.gaussian import Gaussian
from ...linalg.dense import newest_first
from ...linalg.dense.newest_first import Whitened
from ...linalg.filters import kalman
from ...linalg.markov.chain_algebra import observed_first
from ...linalg.markov.chain_base import Chain
from ...linalg.small import form_of
from ...parameters.supports import positive
from ...parameters.tree import Parametrised, named_values, parameter
from ...process.gp import GP
from ...structure.base import No
from ...structure.state_space import BUCKETS, Where, chain_of, harmonics_of
from .predictive import Normals, Predictive, StudentTs
from .segments import Recursive, SegmentModel

EXACT = kalman.Options(accurate=True)


class UnknownScale(Parametrised):
    """τ ~ Gamma(alpha, beta): the precision of a whole segment, integrated out."""

    alpha: Numbers = parameter(1.0, positive)
    beta: Numbers = parameter(1.0, positive)

    def fresh(self) -> tuple[Any, Any]:
        """α and β before anything is seen."""
        return jnp.asarray(self.alpha), jnp.asarray(self.beta)


def _predicted(model: SegmentModel, scale: Any, mean: Any, variance: Any) -> Predictive:
    """The prediction with a known scale (None), or with what is known of it."""
    if scale is None:
        return Normals(mean, model.lifted(variance))
    alpha, beta = scale
    return StudentTs(2 * alpha, mean, model.lifted(beta / alpha * variance))


def _learned(scale: Any, error: Any, variance: Any, seen: Any) -> Any:
    """What is known of the scale after an error."""
    if scale is None:
        return None
    half = jnp.where(seen, 0.5, 0.0)
    return scale[0] + half, scale[1] + half * error**2 / variance


def _check(gp: GP) -> None:
    """Refuse what has no density that could be compared between segmentations."""
    if not isinstance(gp.likelihood, Gaussian):
        raise ValueError(f"segments need Gaussian noise, got {gp.likelihood!r}")
    if not is_traced(gp.likelihood.noise) and not np.all(np.asarray(gp.likelihood.noise) > 0):
        raise ValueError("segments need noise, got Gaussian(noise=0): give the likelihood a positive noise")
    with jax.enable_x64(True):
        free = jax.eval_shape(lambda x: (gp.kernel.null_space(x), gp.mean.features(x)), jax.ShapeDtypeStruct((1,), np.float64))
    if any(part.shape[0] for part in free):
        raise ValueError(
            f"{gp!r} leaves functions free, so segments have no density to compare: take a kernel without free functions "
            "(IntegratedWiener, Constant, Linear), or give the mean as a function with parameters"
        )


def _mean(gp: GP, t: Any) -> Any:
    return gp.mean(jnp.reshape(t, (1,)))


def _noise(gp: GP) -> Any:
    assert isinstance(gp.likelihood, Gaussian)
    return gp.likelihood.noise


class Filter(eqx.Module):
    """A segment in the eyes of a filter: its state, whether nothing was seen yet, and what is known of the scale."""

    m: Any
    P: Any
    empty: Any
    scale: Any


class MarkovSegment(Recursive):
    """A Gaussian process with a finite state: O(states³) for each hypothesis and point, however long the segment is."""

    gp: GP
    scale: UnknownScale | None = None
    harmonics: int = eqx.field(static=True, default=BUCKETS[0])

    def __check_init__(self) -> None:
        _check(self.gp)
        if any(is_traced(value) for value in named_values(self.gp).values()):
            return
        with jax.enable_x64(True):
            found: list[Any] = []
            jax.eval_shape(lambda t: found.append(chain_of(self.gp.kernel, Where(t, t, harmonics_of(self.gp.kernel)))), 0.0)
        if isinstance(found[0], No):
            raise ValueError(f"{found[0].reason}: CholeskySegment takes any kernel")
        if found[0].varies:
            raise ValueError("what is seen of a ChangePoint depends on the place: CholeskySegment takes any kernel")

    @property
    def detail(self) -> int:
        return harmonics_of(self.gp.kernel)

    def with_detail(self, detail: int) -> MarkovSegment:
        return self if detail == self.harmonics else dataclasses.replace(self, harmonics=detail)

    def _chain(self, t: Any) -> Chain:
        chain = chain_of(self.gp.kernel, Where(t, t, self.harmonics))
        assert not isinstance(chain, No)
        return observed_first(chain)

    def fresh(self) -> Filter:
        chain = self._chain(jnp.zeros(()))
        form = form_of(chain.size)
        m, P = kalman.pack_state(form, form.of(jnp.zeros((chain.size, 1))), form.of(jnp.asarray(chain.start())))
        return Filter(m, P, jnp.array(True), None if self.scale is None else self.scale.fresh())

    def _reached(self, state: Filter, t: Any, gap: Any) -> tuple[Any, Any, Any]:
        """The form of the matrices, and the state at time t before anything is seen there."""
        chain = self._chain(t)
        form = form_of(chain.size)
        A, Q = form.of(chain.transition(gap)), form.of(chain.noise(gap))
        m, P = kalman.unpack_state(form, (state.m, state.P))
        m, P, _ = kalman.reach(form, EXACT, None, m, P, A, Q)
        if not chain.stationary:  # an empty segment begins here, with the variance that the process has here
            start = form.pack_symmetric(form.of(jnp.asarray(chain.start())))
            P = form.unpack_symmetric(jax.tree.map(lambda a, b: jnp.where(state.empty, a, b), start, form.pack_symmetric(P)))
        return form, m, P

    def _prediction(self, form: Any, m: Any, P: Any, t: Any) -> tuple[Any, Any]:
        first = lambda M: form.array(M[..., :1, :1])[0, 0]
        return _mean(self.gp, t) + first(m), first(P) + _noise(self.gp)

    def predictive(self, state: Filter, t: Any, gap: Any) -> Predictive:
        return _predicted(self, state.scale, *self._prediction(*self._reached(state, t, gap), t))

    def updated(self, state: Filter, t: Any, gap: Any, y: Any, seen: Any) -> Filter:
        form, m, P = self._reached(state, t, gap)
        mean, variance = self._prediction(form, m, P, t)
        scale = _learned(state.scale, y - mean, variance, seen)
        precision = jnp.where(seen, 1 / _noise(self.gp), 0.0)
        number = lambda value: form.of(jnp.reshape(value, (1, 1)))
        m, P, _ = kalman.see(form, EXACT, m, P, number(precision), number(y - _mean(self.gp, t)))
        m, P = kalman.pack_state(form, m, P)
        return Filter(m, P, state.empty & ~seen, scale)


class Shared(eqx.Module):
    """The newest points as all segments see them, how many of them belong to each, and what is known of their scales."""

    times: Float[Array, " R"]
    points: Whitened
    depth: Int[Array, " K"]
    scale: Any


class CholeskySegment(SegmentModel):
    """A Gaussian process with any kernel: O(R²) for each point, for all hypotheses together.

    `window` is R, the number of newest points that predictions look back on. None is as many as there are, which is exact.
    """

    gp: GP
    scale: UnknownScale | None = None
    window: int | None = eqx.field(static=True, default=None)

    def __check_init__(self) -> None:
        _check(self.gp)
        if self.window is not None and self.window < 1:
            raise ValueError(f"CholeskySegment: window must be at least 1 point, got {self.window}")

    def begin(self, slots: int, length: int | None) -> Shared:
        sizes = [size for size in (self.window, length) if size is not None]
        if not sizes:
            raise ValueError("a stream has no end, so CholeskySegment needs a window: CholeskySegment(gp, window=500)")
        R = min(sizes)
        scale = None if self.scale is None else tuple(jnp.repeat(value[None], slots) for value in self.scale.fresh())
        return Shared(jnp.zeros(R), newest_first.nothing(R), jnp.zeros(slots, dtype=int), scale)

    def _covariances(self, memory: Shared, t: Any) -> tuple[Any, Any]:
        """With the newest points, and of a new observation with itself."""
        at = jnp.reshape(t, (1,))
        k = jax.vmap(lambda other: self.gp.kernel.between(at, jnp.reshape(other, (1,))))(memory.times)
        return k, self.gp.kernel.between(at, at) + _noise(self.gp)

    def _prediction(self, memory: Shared, t: Any) -> tuple[Any, Any]:
        mean, variance = newest_first.look(memory.points, *self._covariances(memory, t))
        depth = jnp.minimum(memory.depth, len(memory.times))
        return _mean(self.gp, t) + mean[depth], variance[depth]

    def look(self, memory: Shared, t: Any, gap: Any) -> Predictive:
        return _predicted(self, memory.scale, *self._prediction(memory, t))

    def see(self, memory: Shared, t: Any, gap: Any, y: Any) -> Shared:
        def with_it() -> Shared:
            mean, variance = self._prediction(memory, t)
            points = newest_first.prepend(memory.points, *self._covariances(memory, t), y - _mean(self.gp, t))
            times = jnp.concatenate([jnp.reshape(t, (1,)), memory.times[:-1]])
            return Shared(times, points, memory.depth + 1, _learned(memory.scale, y - mean, variance, True))

        return jax.lax.cond(jnp.isnan(y), lambda: memory, with_it)

    def renew(self, memory: Shared, slot: Any) -> Shared:
        scale = memory.scale
        if self.scale is not None:
            scale = tuple(old.at[slot].set(new) for old, new in zip(scale, self.scale.fresh(), strict=True))
        return Shared(memory.times, memory.points, memory.depth.at[slot].set(0), scale)


def as_segment(model: Any) -> SegmentModel:
    """A segment model from a GP (by its state where it has one), or one as it is."""
    if isinstance(model, SegmentModel):
        return model
    if isinstance(model, GP):
        _check(model)
        try:
            return MarkovSegment(model)
        except ValueError:
            return CholeskySegment(model)
    raise TypeError(f"segments need a GP or a segment model such as NormalSegment(), got {model!r}")
