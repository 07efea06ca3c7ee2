"""The filter on a series in parts: what each part says, what it hears, and what is then its share of the whole.

The three verbs of parts: `condense` makes a small message of each, `meet` makes of all messages what each part hears, and so
every part knows its share of log|C| and TᵀC⁻¹T, with the gradient of the whole through them, and its part of the posterior.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .. import where
from ..inputs.layouts import as_times
from ..inputs.parts import ChainPart
from ..kernels.algebra import Kernel
from ..linalg.filters import kalman, kalman_emission, kalman_parallel, kalman_parts, kalman_smooth
from ..linalg.filters.kalman_parts import EDGE, Message, Others
from ..linalg.markov import chains
from ..posterior import Model
from ..sites import Sites
from ..structure.approximate import approximated
from ..structure.base import No
from ..structure.dense import variance_on_host, variances
from ..structure.state_space import Where, chain_of, harmonics_of, state_space
from .basis import columns, sites_of
from .kalman import LOW_NOISE, Kalman, KalmanConditional


class ChainInParts(eqx.Module):
    """A kernel with a finite state along a series in parts. The fields are static choices, as those of `Kalman`."""

    harmonics: int = eqx.field(static=True, default=0)
    accurate: bool = eqx.field(static=True, default=True)
    approximate: str | None = eqx.field(static=True, default=None)
    varies: bool = eqx.field(static=True, default=False)

    name = "Kalman"

    def tuned(self, model: Model, first: float, least_noise: float) -> ChainInParts:
        """The choices that suit these values."""
        quiet = _is_quiet(model, first, least_noise)
        return ChainInParts(harmonics_of(model.kernel), quiet, self.approximate, self.varies)

    @classmethod
    def along(cls, kernel: Kernel, first: float, last: float, approximate: str | None = None) -> ChainInParts | No:
        """The engine for this kernel, or why it is no chain along the times of a series."""
        form = state_space(approximated(kernel, approximate), as_times(np.array([first, last])), harmonics_of(kernel) or 4)
        return form if isinstance(form, No) else cls(approximate=approximate, varies=form.chain.varies)

    def place(self) -> contextlib.AbstractContextManager[Any]:
        """Where this is computed: chains that vary from place to place go step by step, which an accelerator is slow at."""
        return where.on_host() if self.varies else contextlib.nullcontext()

    def chain(self, kernel: Kernel, part: ChainPart) -> chains.Chain:
        """The chain of the whole series."""
        found = chain_of(approximated(kernel, self.approximate), Where(part.first, part.first, self.harmonics))
        assert not isinstance(found, No)
        return found

    def sites(self, model: Model, part: ChainPart) -> Sites:
        """The sites of a part, its columns the targets and the basis functions."""
        scale = variances(model.kernel, jnp.reshape(part.first, (1, 1)))[0]
        noise = jnp.broadcast_to(part.data.noise, part.t.shape)
        return sites_of(model, part.t[:, None], dataclasses.replace(part.data, noise=noise), scale)

    def log_det_and_gram(self, model: Model, part: ChainPart, others: Others) -> tuple[Float[Array, ""], Float[Array, "C C"]]:
        """The share of a part in log|C| and TᵀC⁻¹T; the gradient is that of the whole through this part."""
        chain, sites = self.chain(model.kernel, part), self.sites(model, part)
        if chain.varies:
            return kalman_emission.evidence(chain, part.t, sites.precision, sites.targets, others=others)
        gaps = jnp.diff(part.t, prepend=part.t[:1])
        if joined(chain):
            return kalman_parallel.evidence(chain, gaps, sites.precision, sites.targets, others=others)
        return kalman.evidence(chain, gaps, sites.precision, sites.targets, accurate=self.accurate, others=others)

    def condition(self, model: Model, part: ChainPart, others: Others) -> KalmanConditional:
        """The process at and between the places of a part given all data."""
        chain, sites = self.chain(model.kernel, part), self.sites(model, part)
        w, T = sites.precision, sites.targets
        gaps = jnp.diff(part.t, prepend=part.t[:1])
        if chain.varies:
            smoothed = kalman_emission.smooth(chain, part.t, w, T, others=others)
        elif joined(chain):
            smoothed = kalman_parallel.smooth(chain, gaps, w, T, others=others)
        else:
            smoothed = kalman_smooth.smooth(chain, gaps, w, T, others=others)
        log_det, gram = kalman.site_sums(w, T, smoothed.predicted_variance, smoothed.predicted_mean, natural=False)
        engine = Kalman(self.harmonics, True, approximate=self.approximate)
        kernel = approximated(model.kernel, self.approximate)
        return KalmanConditional(kernel, part.t, sites, smoothed, log_det, gram, engine)


def joined(chain: chains.Chain) -> bool:
    """Whether many places go at a time, where this is worked on."""
    return where.backend() == "gpu" and not chain.varies


def condense(model: Model, part: ChainPart, engine: ChainInParts) -> Message:
    """What a part says: by its first and last places where it forgets what lies between, else by all of it."""
    with engine.place():
        if len(part.t) > 2 * EDGE and where.backend() == "cpu" and int(part.count) > 2 * EDGE:
            found, forgets = jax.device_get(_edges(model, part, engine))
            if forgets:
                return found
        return jax.device_get(_whole(model, part, engine))


def meet(model: Model, first: float, engine: ChainInParts, messages: Sequence[Message]) -> list[Others]:
    """What every part of a series that begins at `first` hears."""
    start = np.asarray(_start(model, first, engine))
    return kalman_parts.meet((np.zeros((len(start), messages[0].b.shape[1])), start), list(messages))


def shapes(model: Model, first: float, targets: int, engine: ChainInParts) -> tuple[Others, Message]:
    """What a part hears and says, to be looked at for its shape."""
    P, basis = _start(model, first, engine), columns(model, jnp.full((1, 1), first))[1].shape[1]
    m = jnp.zeros((len(P), targets + basis))
    return Others(m, P, m, P, jnp.zeros(())), Message(P, m, P, m, P)


@functools.partial(jax.jit, static_argnames="engine")
def _whole(model: Model, part: ChainPart, engine: ChainInParts) -> Message:
    return _message(model, part, engine)


@functools.partial(jax.jit, static_argnames="engine")
def _edges(model: Model, part: ChainPart, engine: ChainInParts) -> tuple[Message, Array]:
    """The message by the first and the last places, and whether that is all of it."""
    chain = engine.chain(model.kernel, part)
    head, tail = (_message(model, _cut(part, at), engine) for at in (0, part.count - EDGE))
    forgets = jnp.asarray(False)
    if chain.stationary and not chain.varies:
        forgets = kalman_parts.forgets(chain, head) & kalman_parts.forgets(chain, tail)
    return kalman_parts.of_edges(head, tail), forgets


def _message(model: Model, part: ChainPart, engine: ChainInParts) -> Message:
    sites, chain = engine.sites(model, part), engine.chain(model.kernel, part)
    message = kalman_parts.message_at_once if joined(chain) else kalman_parts.message
    return message(chain, part.t, sites.precision, sites.targets)


def _cut(part: ChainPart, at: Any) -> ChainPart:
    """So many places of a part from one on."""
    rows = lambda x: x if len(x) == 1 else jax.lax.dynamic_slice_in_dim(x, at, EDGE)
    data = eqx.tree_at(
        lambda d: (d.y, d.noise, d.seen), part.data, tuple(map(rows, (part.data.y, part.data.noise, part.data.seen)))
    )
    return ChainPart(rows(part.t), data, part.count, part.first, None)


@functools.partial(jax.jit, static_argnames="engine")
def _start(model: Model, first: Any, engine: ChainInParts) -> Array:
    chain = chain_of(approximated(model.kernel, engine.approximate), Where(first, first, engine.harmonics))
    assert not isinstance(chain, No)
    return chain.start() if chain.varies else chains.observed_first(chain).start()


def _is_quiet(model: Model, first: float, known: float) -> bool:
    """Whether low noise asks for the form without cancellation."""
    own = np.asarray(model.likelihood.noise_at(np.array([[first]])))
    if not math.isfinite(known) or own.ndim:
        return True
    return float(own) + known < LOW_NOISE * variance_on_host(model.kernel, np.array([[first]]))
