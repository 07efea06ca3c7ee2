"""Measurements on a scale on which a Gaussian process believes them.

Objectives are often flat where they are good and steep where they are bad: one far outlier would set the scale. The *better*
half of the values sets it here: with the median m and the root mean square b of the differences below it, v = (y − m)/b
goes through Yeo and Johnson's (2000) map, whose power λ maximises the likelihood of normal values, and is standardised. λ
stays within [−2, 2], so that good values, to which nobody knows a bound, are mapped onto all numbers below; there is a bound
above if λ < 0.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from jaxtyping import Float

LEAST = 4  # values from which on a power is looked for
POWERS = (-2.0, 2.0)
LOOKS, EXACT = 9, 2e-4  # powers that are compared at once, and how near to the best one they come


@dataclasses.dataclass(frozen=True)
class ValueWarp:
    """An increasing map of measurements: centre and scale, a power, and centre and scale once more."""

    center: float = 0.0
    scale: float = 1.0
    power: float = 1.0
    shift: float = 0.0
    size: float = 1.0

    def __call__(self, y: Any) -> np.ndarray:
        """The warped values."""
        return (_bent((np.asarray(y, dtype=float) - self.center) / self.scale, self.power) - self.shift) / self.size

    def inverse(self, z: Any) -> np.ndarray:
        """The values that are warped to these; infinite beyond the bound that they may have."""
        return self.center + self.scale * _straight(self.shift + self.size * np.asarray(z, dtype=float), self.power)

    def slope(self, y: Any) -> np.ndarray:
        """The derivative of the map, by which noise is measured on the other side."""
        v = (np.asarray(y, dtype=float) - self.center) / self.scale
        return np.where(v >= 0, (np.abs(v) + 1) ** (self.power - 1), (np.abs(v) + 1) ** (1 - self.power)) / (
            self.scale * self.size
        )


def fit_warp(y: Float[np.ndarray, " N"], bent: bool = True) -> ValueWarp:
    """The map that suits values of which small ones are good; without `bent` they are standardised only."""
    if not bent or len(y) < LEAST:
        spread = _size(y - np.mean(y)) if len(y) > 1 else 0.0
        return ValueWarp(
            float(np.mean(y)) if len(y) else 0.0,
            spread if spread > 0 else (abs(float(np.mean(y))) if len(y) else 0.0) or 1.0,
        )
    center = float(np.median(y))
    below = y[y < center] - center
    scale = _size(below) if len(below) else _size(y - np.mean(y))
    if not scale > 0:
        return fit_warp(y, False)
    v = (y - center) / scale
    power = _power(v)
    bent_values = _bent(v, power)
    size = float(np.std(bent_values))
    return ValueWarp(center, scale, power, float(np.mean(bent_values)), size if size > 0 else 1.0)


def _size(x: Float[np.ndarray, " N"]) -> float:
    """The root mean square, also of numbers whose squares are none."""
    most = float(np.max(np.abs(x)))
    return most * float(np.sqrt(np.mean((x / most) ** 2))) if most > 0 else 0.0


def _power(v: Float[np.ndarray, " N"]) -> float:
    """The power that maximises the likelihood of normal values, with a weak belief that nothing is bent."""
    slopes = np.sum(np.sign(v) * np.log1p(np.abs(v)))

    def badness(power: float) -> float:
        return 0.5 * len(v) * np.log(np.var(_bent(v, power)) + 1e-300) - (power - 1) * slopes + 0.5 * (power - 1) ** 2

    powers = np.linspace(*POWERS, LOOKS)
    while (step := powers[1] - powers[0]) > EXACT:  # closer and closer around the best
        best = powers[np.argmin([badness(power) for power in powers])]
        powers = np.linspace(max(best - step, POWERS[0]), min(best + step, POWERS[1]), LOOKS)
    return float(powers[np.argmin([badness(power) for power in powers])])


def _bent(v: np.ndarray, power: float) -> np.ndarray:
    return np.where(v >= 0, _boxcox(np.maximum(v, 0.0), power), -_boxcox(np.maximum(-v, 0.0), 2 - power))


def _straight(w: np.ndarray, power: float) -> np.ndarray:
    return np.where(w >= 0, _unboxcox(np.maximum(w, 0.0), power), -_unboxcox(np.maximum(-w, 0.0), 2 - power))


def _boxcox(v: np.ndarray, power: float) -> np.ndarray:
    """((v + 1)^λ − 1)/λ."""
    return np.log1p(v) if abs(power) < 1e-8 else np.expm1(power * np.log1p(v)) / power


def _unboxcox(w: np.ndarray, power: float) -> np.ndarray:
    if abs(power) < 1e-8:
        return np.expm1(w)
    inside = np.maximum(1 + power * w, 0.0)
    with np.errstate(divide="ignore", over="ignore"):
        return inside ** (1 / power) - 1
