"""What a next observation may be: families of distributions, one member for each hypothesis, and mixtures of them.

Densities and moments are JAX and go through scans and gradients. Distribution functions and quantiles are for looking at the
result, on the host.
"""

from __future__ import annotations

import abc
import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln, logsumexp
from jaxtyping import Array, Float
from scipy import special

from ..._types import by_the_host
from ...linalg.gamma import log_gamma_ratio

BISECTIONS = 200


class Predictive(eqx.Module):
    """A family of distributions of one observation, a number or a row of numbers."""

    @property
    @abc.abstractmethod
    def mean(self) -> Any:
        """The mean of each member."""

    @property
    @abc.abstractmethod
    def variance(self) -> Any:
        """The variance of each member; infinite where it does not exist."""

    @abc.abstractmethod
    def log_prob(self, y: Any) -> Any:
        """log p(y) under each member."""

    @abc.abstractmethod
    def cdf(self, y: Any) -> np.ndarray:
        """The probability of at most y under each member."""

    @abc.abstractmethod
    def quantile(self, q: Any) -> np.ndarray:
        """The value that each member stays below with probability q."""

    def score(self, y: Any) -> Any:
        """log p of what was seen of y: NaN is not seen."""
        seen = ~jnp.any(jnp.isnan(y))
        return jnp.where(seen, self.log_prob(jnp.where(seen, y, 0.0)), 0.0)


class Normals(Predictive):
    """N(location, spread)."""

    location: Any
    spread: Any

    @property
    def mean(self) -> Any:
        return self.location

    @property
    def variance(self) -> Any:
        return self.spread

    def log_prob(self, y: Any) -> Any:
        return -0.5 * ((y - self.location) ** 2 / self.spread + jnp.log(2 * jnp.pi * self.spread))

    def cdf(self, y: Any) -> np.ndarray:
        return special.ndtr((y - np.asarray(self.location)) / np.sqrt(self.spread))

    def quantile(self, q: Any) -> np.ndarray:
        return np.asarray(self.location) + special.ndtri(q) * np.sqrt(self.spread)


class StudentTs(Predictive):
    """Student's t with these degrees of freedom, location and squared scale."""

    dof: Any
    location: Any
    spread: Any

    @property
    def mean(self) -> Any:
        return self.location

    @property
    def variance(self) -> Any:
        return jnp.where(self.dof > 2, self.spread * self.dof / jnp.where(self.dof > 2, self.dof - 2, 1.0), jnp.inf)

    def log_prob(self, y: Any) -> Any:
        half = 0.5 * (self.dof + 1)
        constant = log_gamma_ratio(0.5 * self.dof, 0.5) - 0.5 * jnp.log(self.dof * jnp.pi * self.spread)
        return constant - half * jnp.log1p((y - self.location) ** 2 / (self.dof * self.spread))

    def cdf(self, y: Any) -> np.ndarray:
        return special.stdtr(self.dof, (y - np.asarray(self.location)) / np.sqrt(self.spread))

    def quantile(self, q: Any) -> np.ndarray:
        return np.asarray(self.location) + special.stdtrit(self.dof, q) * np.sqrt(self.spread)


class MultivariateTs(Predictive):
    """Student's t of rows; `root` is the lower Cholesky factor of the scale matrix."""

    dof: Float[Array, "*batch"]
    location: Float[Array, "*batch S"]
    root: Float[Array, "*batch S S"]

    @property
    def mean(self) -> Any:
        return self.location

    @property
    def _spread(self) -> Any:
        return jnp.sum(self.root**2, axis=-1)

    @property
    def variance(self) -> Any:
        return StudentTs(jnp.asarray(self.dof)[..., None], self.location, self._spread).variance

    def log_prob(self, y: Any) -> Any:
        size = self.location.shape[-1]
        half = 0.5 * (self.dof + size)
        z = jax.scipy.linalg.solve_triangular(self.root, (y - self.location)[..., None], lower=True)[..., 0]
        log_det = jnp.sum(jnp.log(jnp.diagonal(self.root, axis1=-2, axis2=-1)), axis=-1)
        constant = log_gamma_ratio(0.5 * self.dof, 0.5 * size) - 0.5 * size * jnp.log(self.dof * jnp.pi) - log_det
        return constant - half * jnp.log1p(jnp.sum(z * z, axis=-1) / self.dof)

    def cdf(self, y: Any) -> np.ndarray:
        return self._columns().cdf(y)

    def quantile(self, q: Any) -> np.ndarray:
        return self._columns().quantile(q)

    def _columns(self) -> StudentTs:
        """Each number of the row by itself."""
        return StudentTs(np.asarray(self.dof)[..., None], np.asarray(self.location), np.asarray(self._spread))


class NegativeBinomials(Predictive):
    """Counts whose rate has a Gamma(shape, rate) law."""

    shape: Any
    rate: Any

    @property
    def mean(self) -> Any:
        return self.shape / self.rate

    @property
    def variance(self) -> Any:
        return self.shape / self.rate * (1 + 1 / self.rate)

    def log_prob(self, y: Any) -> Any:
        constant = log_gamma_ratio(self.shape, y) - gammaln(y + 1.0)
        return constant - self.shape * jnp.log1p(1 / self.rate) - y * jnp.log1p(self.rate)

    def cdf(self, y: Any) -> np.ndarray:
        count, success = np.floor(y), np.asarray(self.rate) / (1 + np.asarray(self.rate))
        return np.where(count >= 0, special.betainc(np.asarray(self.shape), np.maximum(count, 0) + 1, success), 0.0)

    def quantile(self, q: Any) -> np.ndarray:
        upper = np.asarray(self.mean) + 1.0
        while np.any(self.cdf(upper) < q):
            upper = 2 * upper
        return np.ceil(_bisected(self.cdf, q, np.full_like(upper, -1.0), upper))


class Joint(Predictive):
    """Independent numbers side by side as one observation, one for each entry along the first axis of `parts`."""

    parts: Predictive

    @property
    def mean(self) -> Any:
        return jnp.moveaxis(self.parts.mean, 0, -1)

    @property
    def variance(self) -> Any:
        return jnp.moveaxis(self.parts.variance, 0, -1)

    def log_prob(self, y: Any) -> Any:
        return jnp.sum(jax.vmap(lambda part, value: part.log_prob(value))(self.parts, y), axis=0)

    def score(self, y: Any) -> Any:
        return jnp.sum(jax.vmap(lambda part, value: part.score(value))(self.parts, y), axis=0)

    def cdf(self, y: Any) -> np.ndarray:
        return self._each(lambda part, value: part.cdf(value), y)

    def quantile(self, q: Any) -> np.ndarray:
        return self._each(lambda part, value: part.quantile(value), q)

    def _each(self, function: Any, values: Any) -> np.ndarray:
        count = jax.tree.leaves(self.parts)[0].shape[0]
        values = np.moveaxis(np.broadcast_to(values, (*np.shape(values)[:-1], count)), -1, 0)
        part = lambda i: jax.tree.map(lambda leaf: leaf[i], self.parts)
        return np.stack([function(part(i), values[i]) for i in range(count)], axis=-1)


class Mixed(Predictive):
    """A mixture along the first axis of a family, with these log weights (which sum to one)."""

    log_weight: Float[Array, " K *batch"]
    parts: Predictive

    @property
    def mean(self) -> Any:
        return _total(self.log_weight, self.parts.mean)

    @property
    def variance(self) -> Any:
        return _total(self.log_weight, self.parts.variance + (self.parts.mean - self.mean) ** 2)

    def log_prob(self, y: Any) -> Any:
        return logsumexp(self.log_weight + self.parts.log_prob(y), axis=0)

    def cdf(self, y: Any) -> np.ndarray:
        return _total(np.asarray(self.log_weight), self.parts.cdf(y), np)

    def quantile(self, q: Any) -> Any:
        each = self.parts.quantile(q)
        found = _bisected(self.cdf, q, each.min(axis=0), each.max(axis=0))
        return np.ceil(found - 1e-9) if np.all(each == np.round(each)) else found


@dataclasses.dataclass(frozen=True)
class Forecast:
    """The distribution of one observation to come, on the host: a number, or a row with one entry for each series."""

    mixture: Mixed

    @property
    @by_the_host
    def mean(self) -> np.ndarray:
        """The mean."""
        return np.asarray(_moments(self.mixture)[0])

    @property
    @by_the_host
    def variance(self) -> np.ndarray:
        """The variance; infinite where it does not exist."""
        return np.asarray(_moments(self.mixture)[1])

    @by_the_host
    def log_prob(self, y: Any) -> float:
        """log p(y)."""
        return float(_log_prob(self.mixture, np.asarray(y, dtype=float)))

    @by_the_host
    def cdf(self, y: Any) -> np.ndarray:
        """The probability of at most y, for each series by itself."""
        return self.mixture.cdf(np.asarray(y, dtype=float))

    @by_the_host
    def quantile(self, q: float) -> np.ndarray:
        """The value that it stays below with probability q, for each series by itself."""
        if not 0 < q < 1:
            raise ValueError(f"quantile needs a probability between 0 and 1, got {q}")
        return self.mixture.quantile(q)

    def interval(self, level: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
        """The central interval that holds it with this probability, for each series by itself."""
        if not 0 < level < 1:
            raise ValueError(f"interval needs a level between 0 and 1, got {level}")
        return self.quantile((1 - level) / 2), self.quantile((1 + level) / 2)


@jax.jit
def _moments(mixture: Mixed) -> tuple[Any, Any]:
    return mixture.mean, mixture.variance


@jax.jit
def _log_prob(mixture: Mixed, y: Any) -> Any:
    return mixture.log_prob(y)


def _total(log_weight: Any, values: Any, numbers: Any = jnp) -> Any:
    """Σ weight · value along the first axis; members without weight do not count, even where they are infinite."""
    weight = numbers.exp(log_weight).reshape(log_weight.shape + (1,) * (np.ndim(values) - np.ndim(log_weight)))
    return numbers.sum(numbers.where(weight > 0, weight * numbers.where(weight > 0, values, 0.0), 0.0), axis=0)


def _bisected(cdf: Any, q: Any, low: Any, high: Any) -> Any:
    """Where a distribution function reaches q, between two bounds."""
    for _ in range(BISECTIONS):
        middle = 0.5 * (low + high)
        below = cdf(middle) < q
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return high
