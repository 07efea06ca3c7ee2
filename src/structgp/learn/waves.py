"""The waves that stand out in values along a line."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

FEWEST = 2.0  # cycles that a wave must go through
MOST = 1 / 3  # cycles for each value
CELLS = 4  # for each value, into which places are counted
MOST_CELLS = 2**16
DRIFT = 2  # degree of the polynomial that is no wave
FINER = 8  # frequencies within one cycle of the whole line
ROUNDING = 1e-12  # of the largest value
APART = 1.0  # cycles in the whole line by which two waves must differ


def periods_of(t: Float[np.ndarray, " N"], y: Float[np.ndarray, " N"], count: int) -> list[float]:
    """The periods of the strongest waves, the strongest first; where there are fewer, the last ones again."""
    span = float(np.ptp(t)) if len(t) else 0.0
    largest = MOST * len(t)
    if not span > 0 or largest <= FEWEST:
        return [1.0 if not span > 0 else span / FEWEST] * count
    place = 2 * (t - t.min()) / span - 1
    y = y / (np.abs(y).max() or 1.0)
    rest = y - np.polynomial.Legendre.fit(place, y, DRIFT, domain=[-1, 1])(place)
    rest[np.abs(rest) < ROUNDING] = 0.0
    cells = min(CELLS * len(t), MOST_CELLS)
    line = np.bincount(np.minimum((0.5 * (place + 1) * cells).astype(int), cells - 1), rest, cells)
    power = np.abs(np.fft.rfft(line, FINER * cells)) ** 2
    cycles = np.arange(len(power)) / FINER
    power[(cycles < FEWEST) | (cycles > largest)] = -1.0
    found: list[float] = []
    while len(found) < count and power[best := int(np.argmax(power))] > 0:
        found.append(span / cycles[best])
        power[np.abs(cycles - cycles[best]) < APART] = -1.0
    found = found or [span / FEWEST]
    return found + found[-1:] * (count - len(found))
