"""Switches between Gaussian noises whose gate and signal are known together: (u, f) ~ N(m, V), V a full matrix.

Given y a side with noise s² leaves the gate with mean m_u + b e and variance v = V_uu − b V_uf, where e = y − m_f and
T = V_ff + s², b = V_uf/T. With its turn τ = ±1,

    log Z = log N(e; 0, T) + log Φ(a),   a = τ (m_u + b e)/√(1 + v),   r = φ(a)/Φ(a),

which has the slope (e/T) 1_f + (τ r/√(1 + v)) q, q = 1_u − b 1_f, and the curvature 1_f 1_fᵀ/T + r (r + a)/(1 + v) q qᵀ. A side
that sees no signal has its own log p(y) in place of the first term, and b = 0. Behind two gates the integral is not closed.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ..linalg.normal import tails
from .gaussian import Gaussian, log_normal


class Tilted(NamedTuple):
    """log Z, its slope in the means, and minus its second derivatives."""

    log: Any
    slope: Any
    bend: Any


def is_closed(leaf: Any) -> bool:
    """Whether what a leaf of a switch makes of gate and signal together is closed: Gaussian noise, or none of the signal's."""
    gates = [turn for turn in leaf.turns if turn.gate is not None]
    gaussian = isinstance(leaf.likelihood, Gaussian) and jnp.ndim(leaf.likelihood.noise) == 0
    return len(gates) < 2 and (leaf.latent is None or gaussian)


def tilted(leaf: Any, log_share: Any, y: Any, mean: Any, V: Any) -> Tilted:
    """What one leaf says, where that is closed; `log_share` is the logarithm of the shares on its path."""
    unit, none = jnp.eye(mean.shape[-1]), jnp.zeros(jnp.broadcast_shapes(jnp.shape(y), mean.shape[:-1]))
    f = 0 if leaf.latent is None else leaf.latent
    if leaf.latent is None:
        seen, e, T, log = 0.0 * unit[f], none, 1.0 + none, leaf.likelihood.log_prob(y, none)
    else:
        seen, e, T = unit[f], y - mean[..., f], V[..., f, f] + leaf.likelihood.noise
        log = log_normal(e, T)
    slope, bend = (e / T)[..., None] * seen, (1 / T)[..., None, None] * jnp.outer(seen, seen)
    for turn in leaf.turns:
        if turn.gate is not None:
            shared = V[..., turn.gate, f] * seen[f]
            b = shared / T
            scale = jnp.sqrt(1 + V[..., turn.gate, turn.gate] - b * shared)
            value, ratio, excess = tails(turn.side * (mean[..., turn.gate] + b * e) / scale)
            q = unit[turn.gate] - b[..., None] * seen
            log, slope = log + value, slope + (turn.side * ratio / scale)[..., None] * q
            bend = bend + (ratio * excess / scale**2)[..., None, None] * q[..., :, None] * q[..., None, :]
    return Tilted(log + log_share, slope, bend)


def of_all(leaves: list[Tilted]) -> Tilted:
    """The same of the sum of all Z."""
    logs, slopes, bends = (jnp.stack(part) for part in zip(*leaves, strict=True))
    weight = jax.nn.softmax(logs, axis=0)
    average = jnp.sum(weight[..., None] * slopes, axis=0)
    away = slopes - average
    bend = jnp.sum(weight[..., None, None] * (bends - away[..., :, None] * away[..., None, :]), axis=0)
    return Tilted(jax.nn.logsumexp(logs, axis=0), average, bend)
