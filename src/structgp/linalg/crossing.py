"""Where an increasing function reaches levels: the quantiles of a mixture, between those of its members."""

from __future__ import annotations

from typing import Any

import numpy as np


def between(cumulative: Any, level: np.ndarray, low: np.ndarray, high: np.ndarray, whole: bool) -> np.ndarray:
    """Where a cumulative probability reaches each level, between two values."""
    if whole:
        for _ in range(200):
            if not np.any(high > low):
                break
            middle = np.floor((low + high) / 2)
            above = cumulative(middle) >= level
            low, high = np.where(above, low, middle + 1), np.where(above, middle, high)
        return high
    return _crossing(lambda y: _scores(cumulative(y)) - _scores(level), low, high)


def _crossing(function: Any, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Where an increasing function that is nearly straight is zero: by its chords, and by halves where these are slow."""
    below, above = function(low), function(high)
    found, before = high, np.zeros(np.shape(high))
    for count in range(100):
        chord = low - below * (high - low) / np.where(above > below, above - below, 1.0)
        inside = (chord > low) & (chord < high) & (count % 4 < 3)
        found = np.where(inside, chord, (low + high) / 2)
        value = function(found)
        there = (np.abs(value) <= 1e-12) | (high - low <= 1e-13 * (1e-3 + np.abs(found)))
        if np.all(there):
            break
        low, high, up = np.where(there, found, low), np.where(there, found, high), value >= 0
        stays = before == np.where(up, 1, -1)  # an end that stays twice counts half, so that it is left (Illinois)
        low, high = np.where(up, low, found), np.where(up, found, high)
        share = np.where(stays, 0.5, 1.0)
        below, above = np.where(up, share * below, value), np.where(up, value, share * above)
        before = np.where(up, 1, -1)
    return found


def _scores(probability: np.ndarray) -> np.ndarray:
    """The normal quantile of a probability, finite for all of them."""
    from scipy.special import ndtri

    return ndtri(np.clip(probability, 1e-300, 1 - 1e-16))
