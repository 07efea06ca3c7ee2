"""Where a parameter lives, and its map to and from the whole real line.

The maps take NumPy arrays on the host, where nothing has to be compiled, and JAX arrays inside a computation.
"""

from __future__ import annotations

import abc
import dataclasses
import math
from typing import Any

import numpy as np

from .._types import is_traced, library

Shape = tuple[int, ...]


class Support(abc.ABC):
    """A set of values: `constrain` maps free numbers into it, `free` is the inverse."""

    @abc.abstractmethod
    def constrain(self, free: Any) -> Any:
        """The value that belongs to free numbers."""

    @abc.abstractmethod
    def free(self, value: Any) -> Any:
        """The free numbers that belong to a value."""

    @abc.abstractmethod
    def problem(self, value: np.ndarray) -> str | None:
        """What is wrong with a value that does not lie in the set, or None."""

    def free_shape(self, shape: Shape) -> Shape:
        """The shape of the free numbers of a value of this shape."""
        return shape

    @abc.abstractmethod
    def log_volume(self, free: Any) -> Any:
        """log |∂value/∂free|, by which a density of the value becomes one of the free numbers."""

    def check(self, name: str, value: Any) -> None:
        """Refuse a value that does not lie in the set, by name."""
        if is_traced(value):
            return
        try:
            text = np.asarray(value).dtype.kind in "US"  # which NumPy reads as numbers where it can
            array = np.asarray(None if text else value, dtype=np.float64)
        except (TypeError, ValueError):
            text = True
        if text:
            raise TypeError(f"{name} must be a number or an array of numbers, got {value!r}")
        problem = "must not contain NaN" if np.isnan(array).any() else self.problem(array)
        if problem:
            raise ValueError(f"{name} {problem}, got {np.array2string(array, threshold=6, precision=4)}")


@dataclasses.dataclass(frozen=True)
class Real(Support):
    """Any finite number."""

    def constrain(self, free: Any) -> Any:
        return free

    def free(self, value: Any) -> Any:
        return value

    def log_volume(self, free: Any) -> Any:
        return 0.0

    def problem(self, value: np.ndarray) -> str | None:
        return None if np.isfinite(value).all() else "must be finite"


@dataclasses.dataclass(frozen=True)
class Positive(Support):
    """Greater than zero, by the logarithm."""

    def constrain(self, free: Any) -> Any:
        with np.errstate(over="ignore"):  # beyond what can be said there is no density
            return library(free).exp(free)

    def free(self, value: Any) -> Any:
        return library(value).log(value)

    def log_volume(self, free: Any) -> Any:
        return library(free).sum(free)

    def problem(self, value: np.ndarray) -> str | None:
        return None if value.size and (value > 0).all() and np.isfinite(value).all() else "must be positive and finite"


@dataclasses.dataclass(frozen=True)
class Nonnegative(Positive):
    """Positive, or exactly zero, which means switched off: a zero is not learned."""

    def free(self, value: Any) -> Any:
        with np.errstate(divide="ignore"):
            return library(value).log(value)

    def problem(self, value: np.ndarray) -> str | None:
        return None if (value >= 0).all() and np.isfinite(value).all() else "must be zero or positive, and finite"


@dataclasses.dataclass(frozen=True)
class Interval(Support):
    """Between two numbers, by the logistic function."""

    low: float = 0.0
    high: float = 1.0

    def constrain(self, free: Any) -> Any:
        half = 0.5 * library(free).tanh(0.5 * free)  # the logistic function without overflow
        return self.low + (self.high - self.low) * (0.5 + half)

    def free(self, value: Any) -> Any:
        u = (value - self.low) / (self.high - self.low)
        xp = library(u)
        return xp.log(u) - xp.log1p(-u)

    def log_volume(self, free: Any) -> Any:
        xp = library(free)
        return xp.sum(math.log(self.high - self.low) - xp.logaddexp(0.0, free) - xp.logaddexp(0.0, -free))

    def problem(self, value: np.ndarray) -> str | None:
        inside = ((value > self.low) & (value < self.high)).all()
        return None if inside else f"must lie between {self.low:g} and {self.high:g}"


@dataclasses.dataclass(frozen=True)
class Simplex(Support):
    """Positive numbers that sum to one, by their log ratios to the last."""

    def constrain(self, free: Any) -> Any:
        xp = library(free)
        logs = xp.concatenate([free, xp.zeros_like(free, shape=(*free.shape[:-1], 1))], axis=-1)
        weights = xp.exp(logs - xp.max(logs, axis=-1, keepdims=True))
        return weights / xp.sum(weights, axis=-1, keepdims=True)

    def free(self, value: Any) -> Any:
        logs = library(value).log(value)
        return logs[..., :-1] - logs[..., -1:]

    def free_shape(self, shape: Shape) -> Shape:
        return (*shape[:-1], shape[-1] - 1)

    def log_volume(self, free: Any) -> Any:
        xp = library(free)  # of all values but the last, which follows from them
        return xp.sum(xp.log(self.constrain(free)))

    def problem(self, value: np.ndarray) -> str | None:
        fine = value.ndim > 0 and (value > 0).all() and np.allclose(value.sum(-1), 1, atol=1e-8)
        return None if fine else "must be positive numbers that sum to one"


@dataclasses.dataclass(frozen=True)
class Increasing(Support):
    """Numbers each greater than the one before, by the first and the logarithms of the gaps."""

    def constrain(self, free: Any) -> Any:
        xp = library(free)
        return xp.cumsum(xp.concatenate([free[..., :1], xp.exp(free[..., 1:])], axis=-1), axis=-1)

    def free(self, value: Any) -> Any:
        xp = library(value)
        return xp.concatenate([value[..., :1], xp.log(xp.diff(value, axis=-1))], axis=-1)

    def log_volume(self, free: Any) -> Any:
        return library(free).sum(free[..., 1:])

    def problem(self, value: np.ndarray) -> str | None:
        fine = value.ndim > 0 and np.isfinite(value).all() and (np.diff(value, axis=-1) > 0).all()
        return None if fine else "must be numbers in increasing order"


@dataclasses.dataclass(frozen=True)
class Orthonormal(Support):
    """Matrices with orthonormal columns (or a unit vector), by the QR factor of any matrix of the same shape."""

    def constrain(self, free: Any) -> Any:
        xp = library(free)
        Q, R = xp.linalg.qr(free[:, None] if free.ndim == 1 else free)
        Q = Q * xp.where(xp.diagonal(R) < 0, -1.0, 1.0)
        return Q[:, 0] if free.ndim == 1 else Q

    def free(self, value: Any) -> Any:
        return value

    def log_volume(self, free: Any) -> Any:
        """That of independent standard normal entries, whose factor is uniform: their lengths carry no information."""
        return -0.5 * library(free).sum(free * free)

    def problem(self, value: np.ndarray) -> str | None:
        if value.ndim not in (1, 2) or (value.ndim == 2 and value.shape[0] < value.shape[1]):
            return "must be a vector or a matrix with at least as many rows as columns"
        columns = value.reshape(len(value), -1)
        fine = np.allclose(columns.T @ columns, np.eye(columns.shape[1]), atol=1e-8)
        return None if fine else "must have orthonormal columns (structgp.orthonormalise makes them so)"


real = Real()
positive = Positive()
nonnegative = Nonnegative()
unit_interval = Interval()
simplex = Simplex()
increasing = Increasing()
orthonormal = Orthonormal()


def interval(low: float, high: float) -> Interval:
    """The open interval between two finite numbers."""
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise ValueError(f"interval needs two finite numbers in order, got {low} and {high}")
    return Interval(float(low), float(high))
