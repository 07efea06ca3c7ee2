"""What system turns an input into an output: a Gaussian process on its impulse response, with what that says of it.

The default prior is that of `impulse_prior`, averaged over its hyperparameters; least squares, TC, DC and a rational model by
its poles stand beside it.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import numpy as np

from .._types import generator, whole
from ..inputs.reading import listed, read_numbers, rows_of
from ..kernels.filters import TransferFunction
from ..linalg import fir
from ..posterior import Result
from .impulse_prior import EXCITED, ImpulsePrior, least_squares, left_open, with_resonances
from .rational import Poles, filtered, output_error
from .unseen_inputs import MOST_UNSEEN, Unseen, averaged_over_unseen

LAGS = 100  # of the response, where nothing is said
MOST_POLES = 10
FEWEST = 10  # values of an output
WORTH_IT, MANY = 0.02, 20_000  # share of the outputs before whose inputs are averaged over, and of how many
METHODS = ("gp", "dc", "tc", "ls", "poles", "joint", "analog")
LENGTHS = (None, "bic", "aicc")  # by which criterion that of a least-squares response is chosen


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
        table = _table(values, name)
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


def identify(
    u: Any,
    y: Any,
    dt: float = 1.0,
    *,
    lags: int | None = None,
    method: str = "gp",
    length: str | None = None,
    t: Any = None,
    seed: int = 0,
) -> Identified | tuple[Identified, ...]:
    """The system that makes y of u, from records at even steps dt: an `Identified`, or one for each column of y.

    u (N,) or (N, k) may begin earlier than y: then the past of the first outputs is known, else it is averaged over or, of long
    records, of long responses and by the other methods, the first outputs are left out. NaN in y are values that were not seen.
    `lags` is the number of steps of the response. `method` is "gp", "dc" or "tc" (kernels of the response), "ls", least squares
    (with `length` "bic" or "aicc" its length is chosen), "poles", a rational model, or "joint": u and y as dependent outputs of
    one process, which also averages over gaps (NaN) in u. "analog" is a rational system in continuous time, for inputs that
    change slowly between rows: it takes gaps in both records, and times `t` of the rows of u that need not be even.
    """
    inputs, outputs = _table(u, "u"), _table(y, "y")
    if method not in METHODS:
        raise ValueError(f"method must be one of {list(METHODS)}, got {method!r}")
    if length not in LENGTHS:
        raise ValueError(f"length must be 'bic', 'aicc' or None, got {length!r}")
    if length is not None and method != "ls":
        raise ValueError(f"length={length!r} is for method='ls': a prior says how long a response is for method={method!r}")
    for name, record in (("u", inputs), ("y", outputs)):
        if np.isinf(record).any():
            raise ValueError(f"{name} is infinite ({rows_of(np.isinf(record))}): correct these values, or make them NaN")
    gaps = np.flatnonzero(np.isnan(inputs).any(axis=1))
    if len(gaps) and method not in ("joint", "analog"):
        raise ValueError(f"u has gaps ({listed('row', gaps)}): inputs must be known, or pass method='joint', which fills them")
    if t is not None and method != "analog":
        raise ValueError(f"times are for method='analog', and method={method!r} counts steps: leave out t, pass dt")
    if len(gaps) and np.any(np.isfinite(inputs).sum(axis=0) < FEWEST):
        raise ValueError(f"each input needs at least {FEWEST} values, got {np.isfinite(inputs).sum(axis=0).tolist()}")
    if len(inputs) < len(outputs):
        raise ValueError(f"u has {len(inputs)} rows and y {len(outputs)}: u must be as long as y, or begin earlier")
    if isinstance(dt, bool) or not isinstance(dt, (int, float, np.number)) or not 0 < dt < np.inf:
        raise ValueError(f"dt must be a positive number, the time from one row to the next, got {dt!r}")
    still = np.flatnonzero(np.nanmax(inputs, axis=0) == np.nanmin(inputs, axis=0)) if len(inputs) else np.zeros(0)
    if len(still):
        raise ValueError(f"u does not change ({listed('column', still)}): a system is seen by what it makes of changes")
    if method == "analog":
        from .analog import identify_analog

        at = _times(t, len(inputs), dt)
        systems = tuple(identify_analog(inputs, column, at, lags, seed) for column in outputs.T)
        return systems if len(systems) > 1 else systems[0]
    if outputs.shape[1] > 1:
        options: dict[str, Any] = {"lags": lags, "method": method, "length": length, "seed": seed}
        return tuple(identify_one(inputs, column, dt, **options) for column in outputs.T)
    return identify_one(inputs, outputs[:, 0], dt, lags, method, length, seed)


def trapezoid(lags: int) -> np.ndarray:
    """How much of each step a sum over steps counts of an integral from the first on."""
    return np.where(np.arange(lags) == 0, 0.5, 1.0)


def _table(values: Any, name: str) -> np.ndarray:
    array = read_numbers(values, name)[0]
    if array.ndim > 2:
        raise ValueError(f"{name} must be a column of numbers or a table (N, k), got an array of shape {array.shape}")
    return array[:, None] if array.ndim == 1 else array


def _counted(inputs: int) -> str:
    return f"{inputs} input{'' if inputs == 1 else 's'}"


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


def _times(t: Any, rows: int, dt: float) -> np.ndarray:
    """The times of the rows of u."""
    if t is None:
        return dt * np.arange(rows)
    at = np.asarray(read_numbers(t, "t")[0], dtype=float).ravel()
    if len(at) != rows or not np.all(np.diff(at) > 0):
        why = f"got {len(at)}" if len(at) != rows else "but they do not grow"
        raise ValueError(f"t needs the time of each of the {rows} rows of u, in their order, {why}")
    return at


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
