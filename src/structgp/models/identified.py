"""A system that was identified from records: its responses with bands, its poles, and what it makes of new inputs."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import numpy as np

from .._types import generator, whole
from ..inputs.reading import read_numbers
from ..kernels.filters import TransferFunction
from ..linalg import fir
from ..posterior import Result
from .impulse_prior import EXCITED
from .rational import Poles, output_error

MOST_POLES = 10


class Response(NamedTuple):
    """A response at times since the input, with a 95 % band."""

    t: np.ndarray
    mean: np.ndarray
    sd: np.ndarray

    @property
    def lower(self) -> np.ndarray:
        """The lower end of the band."""
        return self.mean - 1.96 * self.sd

    @property
    def upper(self) -> np.ndarray:
        """The upper end of the band."""
        return self.mean + 1.96 * self.sd


class FrequencyResponse(NamedTuple):
    """The gain and phase of a system at frequencies (radians for each unit of time), with a 95 % band of the gain.

    `excited` says at which of them the input had power: elsewhere it is the prior that speaks.
    """

    frequency: np.ndarray
    response: np.ndarray  # complex
    gain: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    phase: np.ndarray
    excited: np.ndarray


@dataclasses.dataclass(frozen=True)
class Identified(Result):
    """A system with one output, identified from records: its responses with bands, poles, and what it makes of new inputs."""

    weights: np.ndarray  # (inputs, lags): the mean of the impulse response for each step
    covariance: np.ndarray  # of all of them, in the order of `weights`
    noise: float  # standard deviation of what the input does not explain
    fit: float  # 100 (1 − ‖y − ŷ‖/‖y − ȳ‖) on the data
    log_evidence: float  # of the outputs whose inputs are all known
    method: str
    resonance: float | None  # that of the first input, its frequency in radians for each unit of time, where there is one
    dt: float
    levels: tuple[np.ndarray, float]  # of inputs and output, around which they were taken
    inputs: np.ndarray  # as they were used
    output: np.ndarray
    power: tuple[np.ndarray, np.ndarray]  # frequencies (F,), and the smoothed power of the inputs there (inputs, F)
    transfer: TransferFunction | None = None  # of an analog system, whose weights are those of sums over even steps
    resonances: tuple[float | None, ...] = ()  # of the response to each input

    @property
    def lags(self) -> int:
        """How many steps the response has."""
        return self.weights.shape[1]

    def impulse_of(self, source: int = 0) -> Response:
        """The impulse response to one of the inputs, counted from 0.

        Its band counts what it may do at frequencies that the input did not excite: step response and simulations of inputs
        like those that were seen are surer.
        """
        part = self._part(source)
        sd = np.sqrt(np.maximum(np.diagonal(self.covariance)[part], 0.0))
        each = self.dt * trapezoid(self.lags) if self.transfer is not None else self.dt
        return Response(self.dt * np.arange(self.lags), self.weights[source] / each, sd / each)

    @property
    def impulse(self) -> Response:
        """The impulse response (to the first input)."""
        return self.impulse_of(0)

    def step_of(self, source: int = 0) -> Response:
        """The step response to one of the inputs."""
        part = self._part(source)
        total = np.cumsum(np.cumsum(self.covariance[part, part], axis=0), axis=1)
        return Response(
            self.dt * np.arange(self.lags), np.cumsum(self.weights[source]), np.sqrt(np.maximum(np.diagonal(total), 0.0))
        )

    @property
    def step(self) -> Response:
        """The step response (to the first input)."""
        return self.step_of(0)

    def frequency(self, w: Any = None, source: int = 0, seed: int = 0) -> FrequencyResponse:
        """Gain and phase at frequencies in radians for each unit of time; by default 200 up to the highest that dt shows."""
        w = np.linspace(0, np.pi / self.dt, 200) if w is None else np.atleast_1d(np.asarray(w, dtype=float))
        self._part(source)  # which says whether there is such an input
        turn = np.exp(-1j * np.outer(w * self.dt, np.arange(self.lags)))
        draws = self._draws(200, seed)[:, source] @ turn.T
        lower, upper = np.quantile(np.abs(draws), [0.025, 0.975], axis=0)
        found = turn @ self.weights[source]
        of_input = self.power[1][source]
        excited = np.interp(w * self.dt, self.power[0], of_input) > EXCITED * of_input.max()
        return FrequencyResponse(w, found, np.abs(found), lower, upper, np.unwrap(np.angle(found)), excited)

    def simulate(self, u: Any, past: Any = None) -> Response:
        """What the system makes of other inputs, with the band that the response leaves; before them there was the level."""
        new = self._inputs(u, "u")
        before = np.zeros((self.lags - 1, new.shape[1])) if past is None else self._inputs(past, "past")
        before = np.concatenate([np.zeros((max(self.lags - 1 - len(before), 0), new.shape[1])), before])[-(self.lags - 1) :]
        whole_record = np.concatenate([before, new]) if self.lags > 1 else new
        Phi = fir.shifted(whole_record, self.lags, np.arange(self.lags - 1, len(whole_record)))
        variance = np.einsum("ti,ij,tj->t", Phi, self.covariance, Phi, optimize=True)
        mean = Phi @ self.weights.ravel() + self.levels[1]
        return Response(self.dt * np.arange(len(new)), mean, np.sqrt(np.maximum(variance, 0.0)))

    def poles(self, order: int | None = None, source: int = 0) -> Poles:
        """A rational model of the response to one of the inputs, of this order or of the one that BIC takes: a reading of it.

        The poles come from the Hankel matrix of the response and are refined by output error. With an input that excites little
        they are fragile.
        """
        self._part(source)  # which says whether there is such an input
        first = [source, *(k for k in range(len(self.weights)) if k != source)]
        of = lambda k: output_error(self.weights[first], self.inputs[:, first], self.output, k)
        if order is not None:
            return of(whole(order, "order", 1))
        if self.transfer is not None:
            return of(len(self.transfer.poles))
        return min(map(of, range(1, MOST_POLES + 1)), key=lambda found: found.bic)

    @property
    def order(self) -> int:
        """The order that BIC takes."""
        return self.poles().order

    def plot(self, axes: Any = None, source: int = 0) -> Any:
        """Draw impulse, step and frequency response to one input with their bands. Needs Matplotlib; returns the axes."""
        if axes is None:
            try:
                import matplotlib.pyplot as plt
            except ImportError:
                raise ImportError("plots need Matplotlib: pip install 'structgp[plot]'") from None
            axes = plt.subplots(1, 3, figsize=(12, 3.2), layout="constrained")[1]
        drawn = ("impulse response", self.impulse_of(source)), ("step response", self.step_of(source))
        for ax, (title, found) in zip(axes, drawn, strict=False):
            ax.fill_between(found.t, found.lower, found.upper, alpha=0.3, linewidth=0)
            ax.plot(found.t, found.mean)
            ax.set(title=title, xlabel="time")
        at = self.frequency(source=source)
        axes[2].fill_between(at.frequency, np.maximum(at.lower, 1e-12), at.upper, alpha=0.3, linewidth=0)
        axes[2].plot(at.frequency, at.gain)
        axes[2].plot(at.frequency[~at.excited], at.gain[~at.excited], ".", markersize=3, color="grey", label="not excited")
        axes[2].set(title="gain", xlabel="frequency (rad)", yscale="log")
        return axes

    def summary(self) -> str:
        """An account in words."""
        found, at = self.poles(), self.frequency()
        steps = [self.step_of(source) for source in range(len(self.weights))]
        some = (
            f"{100 * at.excited.mean():.0f} % of the frequencies; what a response does at the others is believed, in wide bands"
        )
        spans = "all frequencies" if at.excited.all() else some
        shown = ", ".join(f"{p.real:.3f}{p.imag:+.3f}i" if abs(p.imag) > 1e-9 else f"{p.real:.3f}" for p in found.poles)
        lines = [
            f"method         {self.method}, {self.lags} lags of {self.dt:g}",
            f"fit            {self.fit:.1f} % of {len(self.output)} values",
            f"noise          {self.noise:.4g}",
            f"steady gain    {', '.join(f'{end.mean[-1]:.4g} ± {1.96 * end.sd[-1]:.2g}' for end in steps)}",
            f"order          {found.order}{', poles ' if shown else ''}{shown}",
            f"the input excites {spans}",
        ]
        if self.transfer is not None:
            in_s = ", ".join(f"{p.real:.4g}{p.imag:+.4g}i" if p.imag else f"{p.real:.4g}" for p in self.transfer.poles)
            lines.append(f"poles in s     {in_s}")
        for source, found_at in enumerate(self.resonances or (self.resonance,)):
            of = f" of input {source}" if source else ""
            if found_at is not None:
                lines.append(f"resonance      at {found_at:.4g} rad{of}, a period of {2 * np.pi / found_at:.4g}")
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"Identified({self.method}, {self.lags} lags, fit {self.fit:.1f} %)"

    def _inputs(self, values: Any, name: str) -> np.ndarray:
        """Other inputs around their levels."""
        table = as_table(values, name)
        if table.shape[1] != len(self.weights):
            raise ValueError(f"{name} has {_counted(table.shape[1])}, but the system was identified from {len(self.weights)}")
        return table - self.levels[0]

    def _part(self, source: int) -> slice:
        if not 0 <= source < len(self.weights):
            raise ValueError(f"there is no input {source}: the system has {_counted(len(self.weights))}, counted from 0")
        return slice(source * self.lags, (source + 1) * self.lags)

    def _draws(self, count: int, seed: int) -> np.ndarray:
        values, vectors = np.linalg.eigh(self.covariance)
        z = generator(seed).standard_normal((count, len(values)))
        flat = self.weights.ravel() + z * np.sqrt(np.maximum(values, 0.0)) @ vectors.T
        return flat.reshape(count, *self.weights.shape)


def trapezoid(lags: int) -> np.ndarray:
    """How much of each step a sum over steps counts of an integral from the first on."""
    return np.where(np.arange(lags) == 0, 0.5, 1.0)


def as_table(values: Any, name: str) -> np.ndarray:
    """Records as numbers (N, k)."""
    array = read_numbers(values, name)[0]
    if array.ndim > 2:
        raise ValueError(f"{name} must be a column of numbers or a table (N, k), got an array of shape {array.shape}")
    return array[:, None] if array.ndim == 1 else array


def _counted(inputs: int) -> str:
    return f"{inputs} input{'' if inputs == 1 else 's'}"
