"""A system with one output from records at even steps: its response by a process, by least squares or by poles."""

from __future__ import annotations

import dataclasses

import numpy as np

from .._types import generator, whole
from ..linalg import fir
from .identified import Identified
from .impulse_prior import ImpulsePrior, least_squares, left_open, with_resonances
from .rational import filtered
from .unseen_inputs import MOST_UNSEEN, Unseen, averaged_over_unseen

LAGS = 100  # of the response, where nothing is said
FEWEST = 10  # values of an output
WORTH_IT, MANY = 0.02, 20_000  # share of the outputs before whose inputs are averaged over, and of how many


def identify_one(
    u: np.ndarray, y: np.ndarray, dt: float, lags: int | None, method: str, length: str | None, seed: int
) -> Identified:
    """The system between inputs (N, k) and one output on even steps."""
    past = len(u) - len(y)
    n = whole(lags, "lags", 1) if lags is not None else min(LAGS, past + 1 if past >= LAGS // 2 else max(len(y) // 3, 2))
    seen = np.isfinite(y)
    if seen.sum() < FEWEST:
        raise ValueError(f"y has {int(seen.sum())} values: at least {FEWEST} are needed")
    if len(u) < n + 5:
        raise ValueError(f"u has {len(u)} rows, too few for a response of {n} lags: pass lags= of at most {len(u) - 5}")
    if np.ptp(y[seen]) == 0:
        raise ValueError("y does not change: there is nothing that the input could have made")
    levels = np.nanmean(u, axis=0), float(np.mean(y[seen]))
    units = np.nanstd(u, axis=0), float(np.std(y[seen]))  # what is believed of sizes is about records of unit spread
    v, z = (u - levels[0]) / units[0], (y - levels[1]) / units[1]
    unseen, told = None, z  # where inputs are averaged over, the prior is first learned from the outputs that hear none of them
    lost = max(n - 1 - past, 0)
    short = len(z) <= MANY and lost * v.shape[1] <= MOST_UNSEEN
    if method == "joint" or (method == "gp" and short and lost > WORTH_IT * len(z)):
        unseen = Unseen.of(v, z, n)
        v, past = unseen.filled(unseen.before_the_output().mean), len(unseen.v) - len(z)
        clean = unseen.clean
        told = np.where(clean, z, np.nan) if np.sum(clean & seen) >= FEWEST else z
    data = fir.sums(v, told, n).without_level()
    frequencies, power = _power(v)
    resonances: tuple[float | None, ...] = (None,) * v.shape[1]
    if method == "ls":
        mean, covariance, noise, evidence = least_squares(data, n, v.shape[1], length)
    else:
        chosen = ImpulsePrior(data, n, v.shape[1], method)
        if method in ("gp", "poles", "joint"):
            chosen, omegas = with_resonances(chosen, frequencies, power)
            resonances = tuple(None if omega is None else omega / dt for omega in omegas)
        chosen, mode, evidence = chosen.at_its_mode()
        if unseen is None or unseen.none:
            mean, covariance, noise = chosen.averaged(generator(seed))
        else:
            mean, covariance, noise, v = averaged_over_unseen(unseen, chosen, generator(seed))
            chosen = dataclasses.replace(chosen, data=fir.sums(v, z, n).without_level())
        covariance = covariance + left_open(chosen, mode, frequencies, power)
    whole_sums = fir.sums(v, z, n)
    weights = mean.reshape(v.shape[1], n)
    level = (whole_sums.y_total - whole_sums.total @ mean) / whole_sums.rows  # of the output, for inputs at their level
    first = max(n - 1 - past, 0)
    each = np.repeat(units[1] / units[0], n)
    weights, covariance = weights * each.reshape(weights.shape), covariance * np.outer(each, each)
    v, z, noise, level = v * units[0], z * units[1], units[1] * np.sqrt(noise), units[1] * level
    levels, z = (levels[0], levels[1] + level), z - level
    evidence = evidence - data.rows * np.log(units[1])
    spectrum = frequencies, power
    parts = weights, covariance, float(noise), np.nan, evidence, method, resonances[0], dt, levels, v, z, spectrum
    found = Identified(*parts, resonances=resonances)
    if method == "poles":
        found = _by_poles(found)
    explained = filtered(found.weights, v)[past + first :]
    kept, z = np.isfinite(z[first:]), z[first:]
    around = z[kept] - z[kept].mean()
    fit = 100 * (1 - np.linalg.norm(z[kept] - explained[kept]) / max(np.linalg.norm(around), 1e-300))
    return dataclasses.replace(found, fit=float(fit))


def _power(u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The smoothed periodograms of inputs (N, k), at frequencies in radians for each step."""
    raw = np.abs(np.fft.rfft(u, axis=0).T) ** 2 / len(u)
    count = raw.shape[1]
    kernel = np.hanning(max(int(np.sqrt(count) / 1.5), 3) + 2)[1:-1]
    smooth = np.stack([np.convolve(one, kernel, "same") for one in raw]) / np.convolve(np.ones(count), kernel, "same")
    return np.linspace(0, np.pi, count), smooth


def _by_poles(found: Identified) -> Identified:
    """The response of the rational model in place of that of the process; its band stays."""
    from scipy.signal import lfilter

    if found.weights.shape[0] > 1:
        raise ValueError("method='poles' takes one input: use the default for several")
    model = found.poles()
    impulse = lfilter(model.numerator, model.denominator, np.eye(1, found.lags)[0])
    return dataclasses.replace(found, weights=impulse[None], noise=model.residual)
