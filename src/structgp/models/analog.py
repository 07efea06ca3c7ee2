"""An analog system: both records are white noise through rational filters, along one chain, at any times and with gaps.

The input is w through G, the output w through G·H, each seen with noise of its own: a `Cascade`. Where learning starts is read
from the response that a process on an even grid has: its poles z are e^{s dt}. Parameters are averaged over, and how well the
system explains the output is what the input alone says of it.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import numpy as np

from .._types import double_precision
from ..kernels.filters import Cascade, TransferFunction
from ..learn.peak import Averaging
from ..likelihoods.gaussian import Gaussian
from ..means import LevelOfOutput
from ..parameters.tree import with_free
from ..process.gp import GP
from ..process.mixture import FittedMixture
from .even_steps import FEWEST, identify_one
from .identified import Identified, trapezoid
from .unseen_inputs import Autoregression

SEEN = 1e-3  # noise of the input where learning starts, of its variance
SLOWEST, FASTEST = 1e-3, 3.0  # rates where learning starts, for each step
APART = 1.2  # at least, the rates of real poles that are alike
MOST_MODES, MOST_OF_INPUT = 4, 2
MEMBERS = 16  # of the average


@double_precision
def identify_analog(u: np.ndarray, y: np.ndarray, t: np.ndarray, lags: int | None, seed: int) -> Identified:
    """The system between an input (N, 1) at these times and an output that ends with it, NaN where they were not seen."""
    if u.shape[1] > 1:
        raise ValueError(f"method='analog' takes one input, got {u.shape[1]}: use the default for several")
    dt, late = float(np.median(np.diff(t))), t[len(u) - len(y) :]
    seen = np.isfinite(u[:, 0]), np.isfinite(y)
    if min(map(np.sum, seen)) < FEWEST:
        raise ValueError(f"u and y have {seen[0].sum()} and {seen[1].sum()} values: at least {FEWEST} of each are needed")
    times, values = (t[seen[0]], late[seen[1]]), (u[seen[0], 0], y[seen[1]])
    levels, units = [float(np.mean(part)) for part in values], [float(np.std(part)) for part in values]
    begin = identify_one(*_on_even_grid(times, values, t, late[0], dt), dt, lags, "gp", None, seed)
    gain = units[1] / units[0]
    scaled = tuple((part - level) / unit for part, level, unit in zip(values, levels, units, strict=True))
    found = _learned((times[0] / dt, times[1] / dt), scaled, begin.weights[0] / gain, begin.poles().poles, seed)
    each, missed = gain * trapezoid(begin.lags), scaled[1] - found.explained
    return dataclasses.replace(
        begin,
        weights=(each * found.mean)[None],
        covariance=found.covariance * np.outer(each, each),
        noise=units[1] * float(np.sqrt(found.noise)),
        fit=float(100 * (1 - np.linalg.norm(missed) / np.linalg.norm(scaled[1] - scaled[1].mean()))),
        log_evidence=found.evidence - len(missed) * float(np.log(units[1])),
        method="analog",
        resonance=None,
        transfer=_in_units(found.system, 1 / dt, gain / dt),
    )


def _on_even_grid(
    times: tuple[np.ndarray, np.ndarray], values: tuple[np.ndarray, np.ndarray], t: np.ndarray, first: float, dt: float
) -> tuple[np.ndarray, np.ndarray]:
    """Both records at even steps, by lines, the output only where it was seen within a step."""
    grid = t[-1] - dt * np.arange(round((t[-1] - t[0]) / dt) + 1)[::-1]
    u, y = (np.interp(grid, at, part) for at, part in zip(times, values, strict=True))
    after = np.clip(np.searchsorted(times[1], grid), 1, len(times[1]) - 1)
    near = np.minimum(np.abs(grid - times[1][after]), np.abs(grid - times[1][after - 1])) < dt
    return u[:, None], np.where(near, y, np.nan)[np.searchsorted(grid, first - 0.5 * dt) :]


def _in_units(system: TransferFunction, rate: float, size: float) -> TransferFunction:
    """The same with rates and frequencies, and with its response, in other units."""
    times = lambda part, by: None if part is None else by * np.asarray(part)
    return system.replace(
        rate=times(system.rate, rate),
        frequency=times(system.frequency, rate),
        cosine=times(system.cosine, size),
        sine=times(system.sine, size),
    )


class _Learned(NamedTuple):
    """What was found of a system, in steps and in units of the records' spread."""

    system: TransferFunction
    mean: np.ndarray  # of the impulse response at whole steps
    covariance: np.ndarray
    noise: float  # variance
    evidence: float  # of the output given the input
    explained: np.ndarray  # of the output, where it was seen, by the input


def _learned(
    times: tuple[np.ndarray, np.ndarray], values: tuple[np.ndarray, np.ndarray], response: np.ndarray, poles: Any, seed: int
) -> _Learned:
    """The average over cascades, from a response at whole steps and its poles in z on."""
    rows = [np.column_stack([t, np.full(len(t), float(i))]) for i, t in enumerate(times)]
    system = _read(response, _modes(poles, MOST_MODES))
    source = _source(values[0], system)
    start = GP(Cascade(source, system), Gaussian([SEEN, 0.1]), LevelOfOutput([0.0, 0.0]))
    averaging = Averaging("laplace", members=MEMBERS, seed=seed)
    fitted = start.fit(np.concatenate(rows), np.concatenate(values), parameters=averaging, restarts=0)
    mode = fitted.mode if isinstance(fitted, FittedMixture) else fitted  # where there is no curvature to average around
    draws = [with_free(mode.gp, theta) for theta in fitted.draws.thetas] if isinstance(fitted, FittedMixture) else [mode.gp]
    steps = np.arange(float(len(response)))
    responses = np.array([np.asarray(one.kernel.system.impulse(steps)) for one in draws])
    mean, alone = responses.mean(axis=0), mode.gp.condition(rows[0], values[0])
    return _Learned(
        mode.gp.kernel.system,
        mean,
        (responses - mean).T @ (responses - mean) / len(responses),
        float(np.asarray(mode.gp.likelihood.noise)[1]),
        float(mode.log_evidence - alone.log_evidence),
        np.asarray(alone.predict(rows[1]).mean),
    )


def _modes(poles: np.ndarray, most: int) -> tuple[np.ndarray, np.ndarray]:
    """Rates and frequencies in s of poles in z, those that swing first and the slowest of each before others, all apart."""
    z = np.asarray(poles, dtype=complex)
    z = z[(np.abs(z) > 0.02) & (z.imag >= -1e-12) & ((z.imag > 1e-9) | (z.real > 0))]
    s = np.log(z) if len(z) else np.array([-1.0 + 0j])
    s = s[np.argsort(-s.real)][:most]
    rate, frequency = np.clip(-s.real, SLOWEST, FASTEST), s.imag
    swings = frequency > 1e-6
    real = np.sort(rate[~swings])
    for i in range(1, len(real)):
        real[i] = max(real[i], APART * real[i - 1])
    return np.concatenate([rate[swings], real]), frequency[swings]


def _read(response: np.ndarray, modes: tuple[np.ndarray, np.ndarray]) -> TransferFunction:
    """The transfer function with these modes whose response is closest."""
    rate, frequency = modes
    t, wide = np.arange(len(response))[:, None], np.pad(frequency, (0, len(rate) - len(frequency)))
    decay = np.exp(-rate * t)
    columns = np.concatenate([decay * np.cos(wide * t), (decay * np.sin(wide * t))[:, : len(frequency)]], axis=1)
    weights = np.linalg.lstsq(columns, response, rcond=1e-8)[0]
    some = len(frequency) > 0
    return TransferFunction(rate, weights[: len(rate)], frequency if some else None, weights[len(rate) :] if some else None)


def _source(v: np.ndarray, system: TransferFunction) -> TransferFunction:
    """The filter of an input, from its autoregression, with poles that are none of the system's."""
    told = Autoregression.of(v, MOST_OF_INPUT)
    poles = np.roots(np.concatenate([[1.0], -told.a])) if len(told.a) else np.array([0.1])
    rate, frequency = _modes(poles, MOST_OF_INPUT)
    for other in np.asarray(system.rate):
        rate = np.where(np.abs(np.log(rate / other)) < 0.05, rate * APART, rate)
    psi = np.cumprod(np.full(40, 0.5)) if not len(told.a) else told.weights(40)
    source = _read(psi, (rate, frequency))
    size = float(Cascade(source, system).between(np.zeros(2), np.zeros(2)))
    return _in_units(source, 1.0, float(np.sqrt(np.var(v) / size)))
