"""The normal distribution function far out in its tails, with derivatives that do not cancel there.

With φ and Φ the density and the distribution function, the inverse Mills ratio r(z) = φ(z)/Φ(z) and its excess e(z) = z + r(z):

    (log Φ)′ = r,   r′ = −r e,   e′ = 1 − r e.

Far to the left r → −z and e → −1/z, so e is computed by itself. The mean of max(0, z + ε), ε standard normal, is
φ + zΦ = Φ e, and the derivative of its logarithm 1/e. The rational approximations of exp(x²) erfc(x) are those of
W. J. Cody, "Rational Chebyshev approximations for the error function", Mathematics of Computation 23 (1969), good to 1e-16.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp

NEAR = (  # erf(x)/x in x², for x ≤ 0.46875, highest power first
    (1.85777706184603153e-1, 3.16112374387056560, 1.13864154151050156e2, 3.77485237685302021e2, 3.20937758913846947e3),
    (1.0, 2.36012909523441209e1, 2.44024637934444173e2, 1.28261652607737228e3, 2.84423683343917062e3),
)
MIDDLE = (  # exp(x²) erfc(x) in x, up to x = 4
    (
        *(2.15311535474403846e-8, 5.64188496988670089e-1, 8.88314979438837594, 6.61191906371416295e1, 2.98635138197400131e2),
        *(8.81952221241769090e2, 1.71204761263407058e3, 2.05107837782607147e3, 1.23033935479799725e3),
    ),
    (
        *(1.0, 1.57449261107098347e1, 1.17693950891312499e2, 5.37181101862009858e2, 1.62138957456669019e3),
        *(3.29079923573345963e3, 4.36261909014324716e3, 3.43936767414372164e3, 1.23033935480374942e3),
    ),
)
FAR = (  # (1/√π − x exp(x²) erfc(x)) x² in 1/x², beyond
    (
        *(1.63153871373020978e-2, 3.05326634961232344e-1, 3.60344899949804439e-1, 1.25781726111229246e-1),
        *(1.60837851487422766e-2, 6.58749161529837803e-4),
    ),
    (1.0, 2.56852019228982242, 1.87295284992346047, 5.27905102951428412e-1, 6.05183413124413191e-2, 2.33520497626869185e-3),
)


@jax.custom_jvp
def tails(z: Any) -> tuple[Any, Any, Any]:
    """log Φ(z), r(z) and e(z), element by element."""
    x = jnp.abs(z) * math.sqrt(0.5)
    square = x * x
    gauss = jnp.exp(-square)
    scaled, near, lack = _scaled_erfc(x)
    upper = jnp.where(x > 0.46875, gauss * scaled, near)  # erfc(x)
    left = z <= 0
    small = jnp.where(x > 0.46875, scaled, near / gauss)
    log_cdf = jnp.log(0.5 * jnp.where(left, small, 2 - upper)) - jnp.where(left, square, 0.0)
    inverse_mills = math.sqrt(2 / math.pi) * jnp.where(left, 1 / small, gauss / (2 - upper))
    excess = jnp.where(left & (x > 4), inverse_mills * lack, z + inverse_mills)
    return log_cdf, inverse_mills, excess


@tails.defjvp
def _tails_jvp(primals: Any, tangents: Any) -> tuple[Any, Any]:
    log_cdf, r, e = tails(*primals)
    (dz,) = tangents
    return (log_cdf, r, e), (r * dz, -r * e * dz, (1 - r * e) * dz)


def scaled_erfc(x: Any) -> Any:
    """exp(x²) erfc(x) for x ≥ 0."""
    scaled, near, _ = _scaled_erfc(x)
    return jnp.where(x > 0.46875, scaled, near * jnp.exp(x * x))


def _scaled_erfc(x: Any) -> tuple[Any, Any, Any]:
    """exp(x²) erfc(x) beyond 0.46875, erfc(x) up to there, and 1 − x √π exp(x²) erfc(x) beyond 4."""
    t = 1 / jnp.maximum(x * x, 16.0)
    lack = math.sqrt(math.pi) * t * _ratio(FAR, t)
    far = (1 - lack) / (math.sqrt(math.pi) * jnp.maximum(x, 4.0))
    near = 1 - x * _ratio(NEAR, jnp.minimum(x * x, 0.25))
    return jnp.where(x > 4, far, _ratio(MIDDLE, jnp.minimum(x, 4.0))), near, lack


def log_ndtr(z: Any) -> Any:
    """log Φ(z)."""
    return tails(z)[0]


def inverse_mills(z: Any) -> Any:
    """φ(z)/Φ(z)."""
    return tails(z)[1]


def excess(z: Any) -> Any:
    """z + φ(z)/Φ(z)."""
    return tails(z)[2]


@jax.custom_jvp
def log_scaled_tail(x: Any) -> Any:
    """log Φ(−x) + x²/2, for x ≥ 0 without the cancellation."""
    root = math.sqrt(0.5)
    return jnp.where(x > 0, jnp.log(0.5 * scaled_erfc(root * jnp.maximum(x, 0.0))), tails(-x)[0] + 0.5 * x**2)


@jax.custom_jvp
def log_mean_excess(z: Any) -> Any:
    """log E max(0, z + ε), ε standard normal: log(φ(z) + z Φ(z)) without the cancellation."""
    log_cdf, _, e = tails(z)
    return log_cdf + jnp.log(e)


@log_mean_excess.defjvp
def _log_mean_excess_jvp(primals: Any, tangents: Any) -> tuple[Any, Any]:
    log_cdf, _, e = tails(*primals)  # once for both
    return log_cdf + jnp.log(e), tangents[0] / e


log_scaled_tail.defjvps(lambda tangent, _, x: -tangent * excess(-x))


def _ratio(coefficients: tuple[tuple[float, ...], tuple[float, ...]], x: Any) -> Any:
    above, below = (_horner(c, x) for c in coefficients)
    return above / below


def _horner(coefficients: tuple[float, ...], x: Any) -> Any:
    value = coefficients[0] * x + coefficients[1]
    for c in coefficients[2:]:
        value = value * x + c
    return value
