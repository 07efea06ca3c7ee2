"""Several classes without an order, through normal noise: the class whose latent, seen with noise of variance one, is largest.

Where the latents are apart, f_j ~ N(m_j, v_j), what class c reaches is t ~ N(m_c, 1 + v_c), and the others stay below it
independently of each other:

    Z = ∫ N(t; m_c, s_c²) Π_{j≠c} Φ(a_j) dt,   a_j = (t − m_j)/s_j,   s² = 1 + v,

one integral of a log-concave function for any number of classes. With averages over t, r = φ/Φ and g_c = (t − m_c)/s_c²,
g_j = −r(a_j)/s_j, the slopes of log Z are E g, and its bends Var g less E 1/s_c² or E r(r + a)/s_j².

M. Girolami and S. Rogers, "Variational Bayesian multinomial probit regression with Gaussian process priors", 2006.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .._types import Numbers
from ..linalg.normal import log_ndtr, tails
from .base import held, is_one
from .categories import Unordered

NODES, REACH = 81, 9.0  # of the integral over t, and how many s_c it goes to each side of its peak
POSITIONS = np.linspace(-1.0, 1.0, NODES)
HALVINGS = 30  # on the way to the peak


class MultinomialProbit(Unordered):
    """y is the class whose f_c + ε_c is largest, ε_c ~ N(0, 1): latent values have a last axis, one for each class.

    By EP with one site for each latent and place, which keeps the latents apart, so that any engine of one latent serves. The
    softmax is `Categorical`, by Laplace's method.
    """

    inferences = ("ep",)

    def log_prob(self, y: Numbers, f: Numbers, extra: Numbers = 1.0) -> Numbers:
        return self.log_tilted(y, f, jnp.zeros_like(f))

    def log_tilted(self, y: Numbers, mean: Numbers, variance: Numbers, power: Numbers = 1.0, extra: Numbers = 1.0) -> Numbers:
        return self._integrals(y, mean, variance, power, lambda weight, t: (weight,))[0]

    def tilted_derivatives(
        self, y: Numbers, mean: Numbers, variance: Numbers, power: Numbers = 1.0, extra: Numbers = 1.0
    ) -> tuple[Numbers, Numbers, Numbers]:
        own, m, s = self._own(y, mean), mean, _widths(mean, variance)

        def terms(weight: Any, t: Any) -> tuple[Any, Any, Any]:
            a = (t[..., None] - m) / s
            _, ratio, excess = tails(a)
            g = jnp.where(own, a, -ratio) / s
            bend = jnp.where(own, 1.0, ratio * excess) / s**2
            return weight, weight[..., None] * g, weight[..., None] * (g**2 - bend)

        value, total, first, second = self._integrals(y, mean, variance, power, terms)
        first, second = first / total[..., None], second / total[..., None]
        return value, first, first**2 - second

    def probability(self, mean: Numbers, variance: Numbers) -> Numbers:
        each = [self.log_tilted(jnp.full(jnp.shape(mean)[:-1], float(c)), mean, variance) for c in range(self.classes)]
        return jax.nn.softmax(jnp.stack(each, axis=-1), axis=-1)  # whose sum is one but for the error of the integrals

    def moments(self, f: Numbers, extra: Numbers = 1.0) -> tuple[Numbers, Numbers]:
        """Mean and variance of the indicators of the classes given f."""
        return self.observed(f, jnp.zeros_like(f))

    def sample(self, rng: np.random.Generator, f: Any, extra: Any = 1.0) -> np.ndarray:
        return np.argmax(f + rng.standard_normal(np.shape(f)), axis=-1).astype(float)

    def _own(self, y: Any, mean: Any) -> Any:
        """Which latent is that of the observed class."""
        y = jnp.broadcast_to(jnp.asarray(y), jnp.shape(mean)[:-1])
        return y.astype(int)[..., None] == jnp.arange(self.classes)

    def _integrals(self, y: Any, mean: Any, variance: Any, power: Any, terms: Any) -> tuple[Any, ...]:
        """log Z, and the integrals over t of terms(weight, t), up to a factor; of which the first is that of the weight."""
        if not is_one(power):
            raise ValueError("observations of MultinomialProbit count once each: leave out weights, and use inference='ep'")
        own, s = self._own(y, mean), _widths(mean, variance)
        of_class = lambda values: jnp.sum(jnp.where(own, values, 0.0), axis=-1)
        m_c, s_c = of_class(mean), of_class(s)

        def log(t: Any) -> Any:
            a = (t[..., None] - mean) / s
            return -0.5 * ((t - m_c) / s_c) ** 2 + jnp.sum(jnp.where(own, 0.0, log_ndtr(a)), axis=-1)

        peak, width = held(_peak(own, mean, s, m_c, s_c))
        far = jnp.arcsinh(REACH * held(s_c) / width)
        height = held(log(peak))

        def at(position: Any) -> tuple[Any, ...]:
            t = peak + width * jnp.sinh(far * position)
            return terms(jnp.exp(log(t) - height) * jnp.cosh(far * position), t)

        shapes = jax.eval_shape(at, 0.0)
        add = lambda totals, position: (tuple(total + term for total, term in zip(totals, at(position), strict=True)), None)
        sums, _ = jax.lax.scan(add, tuple(jnp.zeros(shape.shape) for shape in shapes), POSITIONS)
        step = (POSITIONS[1] - POSITIONS[0]) / np.sqrt(2 * np.pi)
        value = height + jnp.log(sums[0] * step * width * far / s_c)
        return (value,) if len(sums) == 1 else (value, *sums)


def _peak(own: Any, mean: Any, s: Any, m_c: Any, s_c: Any) -> tuple[Any, Any]:
    """Where the integrand is largest, and how wide it is there.

    Its slope is positive at m_c, and negative where t is beyond all means by as much as slopes of √(2/π) each can move it.
    """
    low = m_c
    high = jnp.max(mean, axis=-1) + s_c**2 * jnp.sum(jnp.where(own, 0.0, 0.8 / s), axis=-1)

    def slope(t: Any) -> tuple[Any, Any]:
        _, ratio, excess = tails((t[..., None] - mean) / s)
        rises = -(t - m_c) / s_c**2 + jnp.sum(jnp.where(own, 0.0, ratio / s), axis=-1)
        return rises, 1 / s_c**2 + jnp.sum(jnp.where(own, 0.0, ratio * excess / s**2), axis=-1)

    def halve(ends: Any, _: Any) -> tuple[Any, None]:
        low, high = ends
        middle = 0.5 * (low + high)
        rises = slope(middle)[0] > 0
        return (jnp.where(rises, middle, low), jnp.where(rises, high, middle)), None

    (low, high), _ = jax.lax.scan(halve, (low, high), None, length=HALVINGS)
    peak = 0.5 * (low + high)
    return peak, 1 / jnp.sqrt(slope(peak)[1])


def _widths(mean: Any, variance: Any) -> Any:
    """s of each latent, of beliefs that keep them apart."""
    v = variance if np.ndim(variance) == np.ndim(mean) else jnp.diagonal(variance, axis1=-2, axis2=-1)
    return jnp.sqrt(1 + v)
