"""Differences of log Γ: it grows like a log a, and takes the digits of a difference with it unless that is formed by itself."""

from __future__ import annotations

import jax.numpy as jnp
from jax.scipy.special import gammaln

from .._types import Numbers

LARGE = 16.0  # from here on the six terms of Stirling's series are exact to rounding
STIRLING = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360)


def log_gamma_ratio(a: Numbers, step: Numbers) -> Numbers:
    """log Γ(a + step) − log Γ(a) for a > 0, step ≥ 0."""
    beyond = a >= LARGE
    small, large = jnp.where(beyond, LARGE, a), jnp.where(beyond, a, LARGE)
    near = gammaln(small + step) - gammaln(small)
    far = step * jnp.log(large) - step + (large + step - 0.5) * jnp.log1p(step / large)
    return jnp.where(beyond, far + _correction(large + step) - _correction(large), near)


def _correction(a: Numbers) -> Numbers:
    """What log Γ(a) has beyond (a − ½) log a − a + ½ log 2π."""
    u = 1 / (a * a)
    total = jnp.zeros_like(u)
    for c in reversed(STIRLING):
        total = total * u + c
    return total / a
