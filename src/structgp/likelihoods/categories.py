"""Several classes without an order: one latent function for each, through the softmax.

Two classes are a logistic function of f₂ − f₁. Of three, with x and z how far the other two are above the first,

    E 1/(1 + eˣ + eᶻ) = ∫ N(x) e^(−a) E[σ(a − z) | x] dx,   a = log(1 + eˣ),

where the inner average is a short sum to full precision and the outer integral one of a single variable. More classes than that
are averaged over the points of a lattice.
"""

from __future__ import annotations

import abc
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .._types import Numbers
from ..linalg.blocks import Contrasts
from ..linalg.quadrature import across, lattice, log_integral
from .base import Likelihood, held
from .labels import class_numbers, log_averaged_logistic

TINY = 1e-14  # a variance that is none
STEEP = 1e-3  # slopes below this bend nothing
BENDS = (-30.0, -10.0, -3.0, 3.0, 10.0, 30.0)  # widths away from a crossing, between which the integrand changes its shape


class Unordered(Likelihood):
    """y is one of several classes without an order: latent values have a last axis, one for each class."""

    places = 256  # averages over all latents of a place are large

    classes: int = eqx.field(static=True, default=3)

    tells_size = False
    log_concave = True

    def __check_init__(self) -> None:
        if not isinstance(self.classes, int) or self.classes < 2:
            raise ValueError(f"{type(self).__name__}: classes must be a whole number from 2 on, got {self.classes!r}")

    @property
    def latents(self) -> int:
        return self.classes

    def check(self, y: np.ndarray, extra: np.ndarray | None = None) -> np.ndarray:
        self.check_extra(extra, np.shape(y))
        return class_numbers(self, y, f"number the classes so, or say how many there are: {type(self).__name__}(classes=…)")

    @abc.abstractmethod
    def probability(self, mean: Numbers, variance: Numbers) -> Numbers:
        """The probabilities of the classes, in the last axis, when f ~ N(mean, variance)."""

    def observed(self, mean: Numbers, variance: Numbers, extra: Numbers = 1.0) -> tuple[Numbers, Numbers]:
        """Mean and variance of the indicators of the classes."""
        p = self.probability(mean, variance)
        return p, p * (1 - p)

    def quantile(self, q: Numbers, mean: Numbers, variance: Numbers, extra: Numbers = 1.0) -> Numbers:
        raise ValueError("classes without an order have no quantiles: ask for their probability, or use Ordinal")

    def predictive_cumulative(self, y: Any, mean: Any, variance: Any, extra: Any = 1.0) -> np.ndarray:
        raise ValueError("classes without an order are none below another: ask for their probability, or use Ordinal")


class Categorical(Unordered):
    """y is class c with probability exp(f_c) / Σ exp(f_j): latent values have a last axis, one for each class.

    Averages over the latents, whose spread is given by variances (…, C) or by covariances (…, C, C), are quadratures for two or
    three classes: their probabilities are good to 1e-10. For more classes, and for tilted moments, they are taken over one
    fixed lattice of about 4000 points: probabilities are then good to 1e-3, or to 3e-3 for ten classes with wide latents. EP
    and the variational bound, which search among them, are that exact; Laplace's method, the default, needs no averages.
    """

    coupled = True
    default_inference = "laplace"

    def log_prob(self, y: Numbers, f: Numbers, extra: Numbers = 1.0) -> Numbers:
        return self._of_class(jax.nn.log_softmax(f, axis=-1), y)

    def _of_class(self, each: Any, y: Any) -> Any:
        return jnp.sum(each * self._indicators(y), axis=-1)

    def _indicators(self, y: Any) -> Any:
        return (jnp.asarray(y).astype(int)[..., None] == jnp.arange(self.classes)).astype(float)

    def derivatives(self, y: Numbers, f: Numbers, extra: Numbers = 1.0) -> tuple[Numbers, Numbers, Numbers]:
        """log p(y | f), its gradient (…, C), and W = diag(π) − ππᵀ (…, C, C)."""
        p = jax.nn.softmax(f, axis=-1)
        return (
            self.log_prob(y, f),
            self._indicators(y) - p,
            p[..., None] * jnp.eye(self.classes) - p[..., None] * p[..., None, :],
        )

    def slope_and_curvature(self, y: Numbers, f: Numbers, extra: Numbers = 1.0) -> tuple[Numbers, Contrasts]:
        p = jax.nn.softmax(f, axis=-1)
        return self._indicators(y) - p, Contrasts(p)

    def curvature_bound(self, y: Numbers, f: Numbers, extra: Numbers = 1.0) -> Contrasts:
        """W, which is never negative here."""
        return self.slope_and_curvature(y, f)[1]

    def _nodes(self, mean: Any, variance: Any) -> Any:
        """Latent values (points, …, C) that stand for N(mean, variance)."""
        points = jnp.asarray(lattice(self.classes))
        points = points.reshape(len(points), *(1,) * (jnp.ndim(mean) - 1), self.classes)
        if jnp.ndim(variance) == jnp.ndim(mean):
            return mean + jnp.sqrt(variance) * points
        return mean + jnp.einsum("...ij,...j->...i", jnp.linalg.cholesky(variance), points)

    def _by_rows(self, function: Any, y: Any, mean: Any, variance: Any, power: Any = 1.0) -> Any:
        """A function of the nodes at each place, at some places at a time: the nodes of all would take gigabytes."""
        if jnp.ndim(mean) != 2 or len(mean) <= self.places:
            return function(y, mean, variance, power)
        rows = y, mean, variance, jnp.broadcast_to(power, jnp.shape(y))
        return jax.lax.map(jax.checkpoint(lambda row: function(*row)), rows, batch_size=self.places)

    def log_tilted(self, y: Numbers, mean: Numbers, variance: Numbers, power: Numbers = 1.0, extra: Numbers = 1.0) -> Numbers:
        return self._by_rows(self._log_tilted, y, mean, variance, power)

    def _log_tilted(self, y: Any, mean: Any, variance: Any, power: Any) -> Any:
        logs = power * self.log_prob(y, self._nodes(mean, variance))
        return jax.nn.logsumexp(logs, axis=0) - jnp.log(len(logs))

    def tilted_derivatives(
        self, y: Numbers, mean: Numbers, variance: Numbers, power: Numbers = 1.0, extra: Numbers = 1.0
    ) -> tuple[Numbers, Numbers, Numbers]:
        """`log_tilted`, its gradient in the mean (…, C), and minus its matrix of second derivatives (…, C, C)."""
        return self._by_rows(self._tilted_derivatives, y, mean, variance, power)

    def _tilted_derivatives(self, y: Any, mean: Any, variance: Any, power: Any) -> tuple[Any, Any, Any]:
        value, slope, W = self.derivatives(y, self._nodes(mean, variance))
        powers = jnp.asarray(power)[..., None]
        slope, weight = powers * slope, jax.nn.softmax(power * value, axis=0)
        average = jnp.sum(weight[..., None] * slope, axis=0)
        off = slope - average
        spread = jnp.einsum("p...,p...i,p...j->...ij", weight, off, off)
        bend = powers[..., None] * jnp.sum(weight[..., None, None] * W, axis=0)
        return self._log_tilted(y, mean, variance, power), average, bend - spread

    def expected_log_prob(self, y: Numbers, mean: Numbers, variance: Numbers, extra: Numbers = 1.0) -> Numbers:
        return self._by_rows(self._expected_log_prob, y, mean, variance)

    def _expected_log_prob(self, y: Any, mean: Any, variance: Any, power: Any) -> Any:
        return jnp.mean(self.log_prob(y, self._nodes(mean, variance)), axis=0)

    def probability(self, mean: Numbers, variance: Numbers) -> Numbers:
        if self.classes > 3:
            return jnp.mean(jax.nn.softmax(self._nodes(mean, variance), axis=-1), axis=0)
        return jnp.exp(self._log_probability(mean, variance))

    def log_predictive(self, y: Numbers, mean: Numbers, variance: Numbers, extra: Numbers = 1.0) -> Numbers:
        if self.classes > 3:
            return self.log_tilted(y, mean, variance, 1.0, extra)
        return self._of_class(self._log_probability(mean, variance), y)

    def _log_probability(self, mean: Any, variance: Any) -> Any:
        """The logarithms of the probabilities of two or three classes."""
        if jnp.ndim(variance) == jnp.ndim(mean):
            variance = variance[..., None] * jnp.eye(self.classes)
        return jnp.stack([self._log_of_first(mean, variance, c) for c in range(self.classes)], axis=-1)

    def _log_of_first(self, mean: Any, covariance: Any, c: int) -> Any:
        """The logarithm of the probability of class c, from how far the others are above it."""
        others = np.array([k for k in range(self.classes) if k != c])
        above = np.eye(self.classes)[others] - np.eye(self.classes)[c]
        m, S = mean @ above.T, above @ covariance @ above.T
        if self.classes == 2:
            return log_averaged_logistic(-m[..., 0], S[..., 0, 0])
        return _log_of_three(m, S)

    def moments(self, f: Numbers, extra: Numbers = 1.0) -> tuple[Numbers, Numbers]:
        """Mean and variance of the indicators of the classes given f."""
        p = jax.nn.softmax(f, axis=-1)
        return p, p * (1 - p)

    def sample(self, rng: np.random.Generator, f: Any, extra: Any = 1.0) -> np.ndarray:
        return np.argmax(f + rng.gumbel(size=np.shape(f)), axis=-1).astype(float)


def _log_of_three(m: Any, S: Any) -> Any:
    """log E 1/(1 + eˣ + eᶻ) for (x, z) ~ N(m, S); x is the one of larger variance, in which nothing changes fast."""
    first = S[..., 0, 0] >= S[..., 1, 1]
    choose = lambda a, b: jnp.where(first, a, b)
    at_x, at_z = choose(m[..., 0], m[..., 1]), choose(m[..., 1], m[..., 0])
    v_x = jnp.maximum(choose(S[..., 0, 0], S[..., 1, 1]), TINY)
    slope = S[..., 0, 1] / v_x
    left = jnp.maximum(choose(S[..., 1, 1], S[..., 0, 0]) - slope * S[..., 0, 1], 0.0)

    def factor(x: Any) -> Any:
        a = jax.nn.softplus(x)
        return -a + log_averaged_logistic(a - at_z - slope * (x - at_x), left)

    width = jnp.sqrt(1 + left)
    # where E z is as large as a, which is 0 to the left and x to the right, and how slowly they cross
    crossings: list[tuple[Any, Any]] = [
        (jnp.zeros_like(at_x), 1.0),
        (at_x - at_z / _not_zero(slope), width / jnp.abs(_not_zero(slope))),
        ((at_z - slope * at_x) / _not_zero(1 - slope), width / jnp.abs(_not_zero(1 - slope))),
    ]
    places = [place + k * unit for place, unit in crossings for k in BENDS]
    rule = across(held(places), held(at_x), held(v_x), factor)
    return log_integral(factor, at_x, v_x, rule)


def _not_zero(slope: Any) -> Any:
    return jnp.where(jnp.abs(slope) < STEEP, STEEP, slope)
