"""What is believed of a parameter before the data: densities that enter `fit` as MAP terms."""

from __future__ import annotations

import abc
import dataclasses
import math
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln, xlog1py, xlogy


class Prior(abc.ABC):
    """A density on the values of a parameter."""

    @abc.abstractmethod
    def log_prob(self, value: Any) -> Any:
        """Log density, element by element."""

    @abc.abstractmethod
    def sample(self, rng: np.random.Generator, shape: tuple[int, ...] = ()) -> np.ndarray:
        """Independent draws."""

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):  # type: ignore[arg-type]
            value = getattr(self, field.name)
            if not math.isfinite(value):
                raise ValueError(f"{type(self).__name__}: {field.name} must be finite, got {value}")
            if field.name not in ("mean", "low", "high") and value <= 0:
                raise ValueError(f"{type(self).__name__}: {field.name} must be positive, got {value}")


def _zero_outside(inside: Any, log_density: Any) -> Any:
    return jnp.where(inside, log_density, -jnp.inf)


@dataclasses.dataclass(frozen=True)
class Normal(Prior):
    """N(mean, sd²)."""

    mean: float = 0.0
    sd: float = 1.0

    def log_prob(self, value: Any) -> Any:
        return -0.5 * ((value - self.mean) / self.sd) ** 2 - math.log(self.sd) - 0.5 * math.log(2 * math.pi)

    def sample(self, rng: np.random.Generator, shape: tuple[int, ...] = ()) -> np.ndarray:
        return rng.normal(self.mean, self.sd, shape)


@dataclasses.dataclass(frozen=True)
class LogNormal(Prior):
    """The logarithm is N(mean, sd²)."""

    mean: float = 0.0
    sd: float = 1.0

    def log_prob(self, value: Any) -> Any:
        safe = jnp.where(value > 0, value, 1.0)
        return _zero_outside(value > 0, Normal(self.mean, self.sd).log_prob(jnp.log(safe)) - jnp.log(safe))

    def sample(self, rng: np.random.Generator, shape: tuple[int, ...] = ()) -> np.ndarray:
        return rng.lognormal(self.mean, self.sd, shape)


@dataclasses.dataclass(frozen=True)
class Gamma(Prior):
    """Density ∝ x^(shape−1) exp(−rate x)."""

    shape: float = 2.0
    rate: float = 1.0

    def log_prob(self, value: Any) -> Any:
        safe = jnp.where(value > 0, value, 1.0)
        density = xlogy(self.shape - 1, safe) - self.rate * safe + self.shape * math.log(self.rate) - gammaln(self.shape)
        return _zero_outside(value > 0, density)

    def sample(self, rng: np.random.Generator, shape: tuple[int, ...] = ()) -> np.ndarray:
        return rng.gamma(self.shape, 1 / self.rate, shape)


@dataclasses.dataclass(frozen=True)
class InverseGamma(Prior):
    """1/x is Gamma(shape, scale): density ∝ x^(−shape−1) exp(−scale/x)."""

    shape: float = 2.0
    scale: float = 1.0

    def log_prob(self, value: Any) -> Any:
        safe = jnp.where(value > 0, value, 1.0)
        density = self.shape * math.log(self.scale) - gammaln(self.shape) - (self.shape + 1) * jnp.log(safe) - self.scale / safe
        return _zero_outside(value > 0, density)

    def sample(self, rng: np.random.Generator, shape: tuple[int, ...] = ()) -> np.ndarray:
        return self.scale / rng.gamma(self.shape, 1.0, shape)


@dataclasses.dataclass(frozen=True)
class HalfNormal(Prior):
    """|N(0, sd²)|."""

    sd: float = 1.0

    def log_prob(self, value: Any) -> Any:
        return _zero_outside(value >= 0, Normal(0.0, self.sd).log_prob(value) + math.log(2))

    def sample(self, rng: np.random.Generator, shape: tuple[int, ...] = ()) -> np.ndarray:
        return np.abs(rng.normal(0.0, self.sd, shape))


@dataclasses.dataclass(frozen=True)
class HalfCauchy(Prior):
    """|Cauchy(0, scale)|: wide tails for scales."""

    scale: float = 1.0

    def log_prob(self, value: Any) -> Any:
        density = math.log(2 / (math.pi * self.scale)) - jnp.log1p((value / self.scale) ** 2)
        return _zero_outside(value >= 0, density)

    def sample(self, rng: np.random.Generator, shape: tuple[int, ...] = ()) -> np.ndarray:
        return np.abs(self.scale * rng.standard_cauchy(shape))


@dataclasses.dataclass(frozen=True)
class Alike(Prior):
    """Positive numbers that are much the same: Cauchy densities of their logarithms around the mean of these.

    Lengthscales of standardised columns stay together unless the data have a reason. It says nothing of their common size, so
    it has no samples.
    """

    scale: float = 0.25

    def log_prob(self, value: Any) -> Any:
        logs = jnp.log(value)
        return -jnp.log1p(((logs - jnp.mean(logs)) / self.scale) ** 2)

    def sample(self, rng: np.random.Generator, shape: tuple[int, ...] = ()) -> np.ndarray:
        return np.full(shape, np.nan)


@dataclasses.dataclass(frozen=True)
class Uniform(Prior):
    """Constant between two numbers."""

    low: float = 0.0
    high: float = 1.0

    def __post_init__(self) -> None:
        Prior.__post_init__(self)
        if not self.low < self.high:
            raise ValueError(f"Uniform: low must be below high, got {self.low} and {self.high}")

    def log_prob(self, value: Any) -> Any:
        inside = (value >= self.low) & (value <= self.high)
        return _zero_outside(inside, jnp.zeros_like(value) - math.log(self.high - self.low))

    def sample(self, rng: np.random.Generator, shape: tuple[int, ...] = ()) -> np.ndarray:
        return rng.uniform(self.low, self.high, shape)


@dataclasses.dataclass(frozen=True)
class Beta(Prior):
    """Density ∝ x^(a−1) (1−x)^(b−1) on the unit interval."""

    a: float = 2.0
    b: float = 2.0

    def log_prob(self, value: Any) -> Any:
        inside = (value > 0) & (value < 1)
        safe = jnp.where(inside, value, 0.5)
        constant = gammaln(self.a + self.b) - gammaln(self.a) - gammaln(self.b)
        return _zero_outside(inside, xlogy(self.a - 1, safe) + xlog1py(self.b - 1, -safe) + constant)

    def sample(self, rng: np.random.Generator, shape: tuple[int, ...] = ()) -> np.ndarray:
        return rng.beta(self.a, self.b, shape)
