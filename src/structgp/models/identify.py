"""What system turns an input into an output: a Gaussian process on its impulse response, with what that says of it.

The default is a response that decays and is smooth as the data want it (the DC kernel, centred at TC), with one damped
resonance where the evidence pays for it and the input excited its frequency. Its few hyperparameters are averaged over. Least
squares, TC, DC and a rational model by its poles stand beside it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from .._types import generator, whole
from ..inputs.reading import few, read_numbers
from ..linalg import fir

LAGS = 100  # of the response, where nothing is said
GAIN = 3.0  # nats from which on a resonance is taken
EXCITED = 0.1  # of the largest power of the input, from which on a frequency counts as excited
DRAWS = 48  # of the hyperparameters
HEAVY = 5.0  # degrees of freedom of the density that they are drawn from
MOST_POLES = 10
METHODS = ("gp", "dc", "tc", "ls", "poles")


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


class Poles(NamedTuple):
    """A rational model read from the response: poles and zeros of z, numerator and denominator, and how well it does."""

    poles: np.ndarray
    numerator: np.ndarray
    denominator: np.ndarray
    residual: float  # standard deviation
    bic: float

    @property
    def order(self) -> int:
        """The number of poles."""
        return len(self.poles)


@dataclasses.dataclass(frozen=True)
class Identified:
    """A system with one output, identified from records: its responses with bands, poles, and what it makes of new inputs."""

    weights: np.ndarray  # (inputs, lags): the mean of the impulse response for each step
    covariance: np.ndarray  # of all of them, in the order of `weights`
    noise: float  # standard deviation of what the input does not explain
    fit: float  # 100 (1 − ‖y − ŷ‖/‖y − ȳ‖) on the data
    log_evidence: float
    method: str
    resonance: float | None  # its frequency in radians for each unit of time, where there is one
    dt: float
    levels: tuple[np.ndarray, float]  # of inputs and output, around which they were taken
    inputs: np.ndarray  # as they were used
    output: np.ndarray
    power: tuple[np.ndarray, np.ndarray]  # frequencies, and the smoothed power of the first input there

    @property
    def lags(self) -> int:
        """How many steps the response has."""
        return self.weights.shape[1]

    def impulse_of(self, source: int = 0) -> Response:
        """The impulse response to one of the inputs."""
        part = self._part(source)
        sd = np.sqrt(np.maximum(np.diagonal(self.covariance)[part], 0.0))
        return Response(self.dt * np.arange(self.lags), self.weights[source] / self.dt, sd / self.dt)

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
        turn = np.exp(-1j * np.outer(w * self.dt, np.arange(self.lags)))
        draws = self._draws(200, seed)[:, source] @ turn.T
        lower, upper = np.quantile(np.abs(draws), [0.025, 0.975], axis=0)
        found = turn @ self.weights[source]
        power = np.interp(w * self.dt, *self.power)
        return FrequencyResponse(
            w, found, np.abs(found), lower, upper, np.unwrap(np.angle(found)), power > EXCITED * self.power[1].max()
        )

    def simulate(self, u: Any, past: Any = None) -> Response:
        """What the system makes of other inputs, with the band that the response leaves; before them there was the level."""
        new = _table(u, "u") - self.levels[0]
        before = np.zeros((self.lags - 1, new.shape[1])) if past is None else (_table(past, "past") - self.levels[0])
        before = np.concatenate([np.zeros((max(self.lags - 1 - len(before), 0), new.shape[1])), before])[-(self.lags - 1) :]
        whole_record = np.concatenate([before, new]) if self.lags > 1 else new
        Phi = fir.shifted(whole_record, self.lags, np.arange(self.lags - 1, len(whole_record)))
        variance = np.einsum("ti,ij,tj->t", Phi, self.covariance, Phi, optimize=True)
        mean = Phi @ self.weights.ravel() + self.levels[1]
        return Response(self.dt * np.arange(len(new)), mean, np.sqrt(np.maximum(variance, 0.0)))

    def poles(self, order: int | None = None) -> Poles:
        """A rational model of the first input's response, of this order or of the one that BIC takes: a reading of it.

        The poles come from the Hankel matrix of the response and are refined by output error. With an input that excites little
        they are fragile.
        """
        if order is not None:
            return _output_error(self, whole(order, "order", 1))
        return min((_output_error(self, k) for k in range(1, MOST_POLES + 1)), key=lambda found: found.bic)

    @property
    def order(self) -> int:
        """The order that BIC takes."""
        return self.poles().order

    def plot(self, axes: Any = None) -> Any:
        """Draw impulse, step and frequency response with their bands. Needs Matplotlib; returns the axes."""
        import matplotlib.pyplot as plt

        axes = plt.subplots(1, 3, figsize=(12, 3.2), layout="constrained")[1] if axes is None else axes
        for ax, title, found in ((axes[0], "impulse response", self.impulse), (axes[1], "step response", self.step)):
            ax.fill_between(found.t, found.lower, found.upper, alpha=0.3, linewidth=0)
            ax.plot(found.t, found.mean)
            ax.set(title=title, xlabel="time")
        at = self.frequency()
        axes[2].fill_between(at.frequency, np.maximum(at.lower, 1e-12), at.upper, alpha=0.3, linewidth=0)
        axes[2].plot(at.frequency, at.gain)
        axes[2].plot(at.frequency[~at.excited], at.gain[~at.excited], ".", markersize=3, color="grey", label="not excited")
        axes[2].set(title="gain", xlabel="frequency (rad)", yscale="log")
        return axes

    def summary(self) -> str:
        """An account in words."""
        found, at = self.poles(), self.frequency()
        spans = "all frequencies" if at.excited.all() else f"{100 * at.excited.mean():.0f} % of the frequencies"
        shown = ", ".join(f"{p.real:.3f}{p.imag:+.3f}i" if abs(p.imag) > 1e-9 else f"{p.real:.3f}" for p in found.poles)
        lines = [
            f"method         {self.method}, {self.lags} lags of {self.dt:g}",
            f"fit            {self.fit:.1f} % of {len(self.output)} values",
            f"noise          {self.noise:.4g}",
            f"steady gain    {self.step.mean[-1]:.4g} ± {1.96 * self.step.sd[-1]:.2g}",
            f"order          {found.order}, poles {shown}",
            f"the input excites {spans}",
        ]
        if self.resonance is not None:
            lines.append(f"resonance      at {self.resonance:.4g} rad, a period of {2 * np.pi / self.resonance:.4g}")
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"Identified({self.method}, {self.lags} lags, fit {self.fit:.1f} %)"

    def _part(self, source: int) -> slice:
        return slice(source * self.lags, (source + 1) * self.lags)

    def _draws(self, count: int, seed: int) -> np.ndarray:
        values, vectors = np.linalg.eigh(self.covariance)
        z = generator(seed).standard_normal((count, len(values)))
        flat = self.weights.ravel() + z * np.sqrt(np.maximum(values, 0.0)) @ vectors.T
        return flat.reshape(count, *self.weights.shape)


def identify(
    u: Any, y: Any, dt: float = 1.0, *, lags: int | None = None, method: str = "gp", length: str | None = None, seed: int = 0
) -> Identified | tuple[Identified, ...]:
    """The system that makes y of u, from records at even steps dt: an `Identified`, or one for each column of y.

    u (N,) or (N, k) may begin earlier than y: then the past of the first outputs is known, else the first outputs are left
    out. NaN in y are values that were not seen. `lags` is the number of steps of the response. `method` is "gp", "dc" or "tc"
    (kernels of the response), "ls", least squares (with `length` "bic" or "aicc" its length is chosen), or "poles", a rational
    model.
    """
    inputs, outputs = _table(u, "u"), _table(y, "y")
    if method not in METHODS:
        raise ValueError(f"method must be one of {list(METHODS)}, got {method!r}")
    if not np.isfinite(inputs).all():
        raise ValueError(f"u has gaps (rows {few(np.unique(np.nonzero(~np.isfinite(inputs))[0]))}): inputs must be known")
    if len(inputs) < len(outputs):
        raise ValueError(f"u has {len(inputs)} rows and y {len(outputs)}: u must be as long as y, or begin earlier")
    if not dt > 0:
        raise ValueError(f"dt must be positive, got {dt!r}")
    if outputs.shape[1] > 1:
        options: dict[str, Any] = {"lags": lags, "method": method, "length": length, "seed": seed}
        return tuple(_identify(inputs, column, dt, **options) for column in outputs.T)
    return _identify(inputs, outputs[:, 0], dt, lags, method, length, seed)


def _table(values: Any, name: str) -> np.ndarray:
    array = read_numbers(values, name)[0]
    return array[:, None] if array.ndim == 1 else array


def _identify(
    u: np.ndarray, y: np.ndarray, dt: float, lags: int | None, method: str, length: str | None, seed: int
) -> Identified:
    past = len(u) - len(y)
    n = whole(lags, "lags", 1) if lags is not None else min(LAGS, past + 1 if past >= LAGS // 2 else max(len(y) // 3, 2))
    seen = np.isfinite(y)
    if seen.sum() < 10 or len(u) < n + 5:
        raise ValueError(f"{int(seen.sum())} outputs are too few for a response of {n} lags: pass lags=")
    levels = u.mean(axis=0), float(np.mean(y[seen]))
    v, z = u - levels[0], y - levels[1]
    whole_sums = fir.sums(v, z, n)
    data = whole_sums.without_level()
    frequencies, power = _power(v[:, 0])
    resonance = None
    if method == "ls":
        mean, covariance, noise, evidence = _least_squares(data, n, v.shape[1], length)
    else:
        chosen = _Prior(data, n, v.shape[1], method)
        if method in ("gp", "poles") and v.shape[1] == 1:
            chosen, omega = _with_resonance(chosen, frequencies, power)
            resonance = None if omega is None else omega / dt
        mean, covariance, noise, evidence = chosen.averaged(generator(seed))
    weights = mean.reshape(v.shape[1], n)
    level = (whole_sums.y_total - whole_sums.total @ mean) / whole_sums.rows  # of the output, for inputs at their level
    levels, z = (levels[0], levels[1] + level), z - level
    first = max(n - 1 - past, 0)
    found = Identified(
        weights, covariance, float(np.sqrt(noise)), np.nan, evidence, method, resonance, dt, levels, v, z, (frequencies, power)
    )
    if method == "poles":
        found = _by_poles(found)
    explained = _filtered(found.weights, v)[past + first :]
    kept, z = np.isfinite(z[first:]), z[first:]
    around = z[kept] - z[kept].mean()
    fit = 100 * (1 - np.linalg.norm(z[kept] - explained[kept]) / max(np.linalg.norm(around), 1e-300))
    return dataclasses.replace(found, fit=float(fit))


def _filtered(weights: np.ndarray, u: np.ndarray) -> np.ndarray:
    """The output of a response, with nothing before the first input."""
    from scipy.signal import fftconvolve

    return sum(fftconvolve(u[:, k], weights[k])[: len(u)] for k in range(u.shape[1]))


def _power(u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The smoothed periodogram of an input, at frequencies in radians for each step."""
    raw = np.abs(np.fft.rfft(u)) ** 2 / len(u)
    width = max(int(np.sqrt(len(raw)) / 1.5), 3)
    kernel = np.hanning(width + 2)[1:-1]
    smooth = np.convolve(raw, kernel, "same") / np.convolve(np.ones_like(raw), kernel, "same")
    return np.linspace(0, np.pi, len(raw)), smooth


def _least_squares(data: fir.Sums, n: int, inputs: int, length: str | None) -> tuple[np.ndarray, np.ndarray, float, float]:
    """The seed's estimate: no prior; of one input its length may be chosen by a criterion."""
    if length not in (None, "bic", "aicc"):
        raise ValueError(f"length must be 'bic', 'aicc' or None, got {length!r}")

    def of(m: int) -> tuple[float, np.ndarray, np.ndarray]:
        keep = np.concatenate([np.arange(m) + k * n for k in range(inputs)])
        R, b = data.R[np.ix_(keep, keep)], data.b[keep]
        h = np.linalg.lstsq(R, b, rcond=1e-12)[0]
        return max(data.yy - b @ h, 1e-300), keep, h

    def criterion(m: int) -> float:
        rss, keep, _ = of(m)
        k, N = len(keep) + 1, data.rows
        more = np.log(N) * k if length == "bic" else 2 * k * N / max(N - k - 1, 1e-9)
        return N * np.log(rss / N) + more

    best = n if length is None else min(range(1, min(n, data.rows // inputs - 3) + 1), key=criterion)
    rss, keep, h = of(best)
    noise = rss / max(data.rows - len(keep), 1)
    mean, covariance = np.zeros(inputs * n), np.zeros((inputs * n, inputs * n))
    mean[keep] = h
    covariance[np.ix_(keep, keep)] = noise * np.linalg.pinv(data.R[np.ix_(keep, keep)])
    return mean, covariance, noise, np.nan


@dataclasses.dataclass(frozen=True)
class _Prior:
    """A prior of the response by its hyperparameters z: of each input logit α, d and its size, log λ, a resonance."""

    data: fir.Sums
    n: int
    inputs: int
    method: str
    resonant: bool = False
    omega: float = 0.0
    start: np.ndarray | None = None

    @property
    def center(self) -> tuple[np.ndarray, np.ndarray]:
        """Where each is believed to be, and how surely."""
        each = [(2.0, 1.5), (0.0, 0.7 if self.method != "tc" else 1e-3)]
        found = each + [pair for _ in range(self.inputs - 1) for pair in (*each, (0.0, 2.0))] + [(-2.0, 4.0)]
        if self.resonant:
            found += [(-2.0, 1.0), (2.0, 1.0), (self.omega, 0.5)]
        mean, sd = np.array(found).T
        return mean, sd

    def root(self, z: np.ndarray) -> tuple[np.ndarray, float]:
        """L and λ at z."""
        sigmoid = lambda x: 1 / (1 + np.exp(-x))
        blocks, at = [], 0
        for k in range(self.inputs):
            decay = min(sigmoid(z[at]), 1 - 1e-9)
            correlation = np.tanh(np.arctanh(np.sqrt(decay)) + z[at + 1])
            size = 1.0 if k == 0 else np.exp(0.5 * z[at + 2])
            blocks.append(size * fir.diagonal_correlated(self.n, decay, np.clip(correlation, -0.999999, 0.999999)))
            at += 2 if k == 0 else 3
        L = np.zeros((self.inputs * self.n, self.inputs * self.n))
        for k, block in enumerate(blocks):
            L[k * self.n : (k + 1) * self.n, k * self.n : (k + 1) * self.n] = block
        ratio, at = float(np.exp(z[at])), at + 1
        if self.resonant:
            L = np.concatenate([L, fir.resonance(self.n, np.exp(z[at]), sigmoid(z[at + 1]), z[at + 2])], axis=1)
        return L, ratio

    def log_density(self, z: np.ndarray) -> float:
        """The log evidence and the log prior of z."""
        mean, sd = self.center
        value = fir.log_evidence(self.data, *self.root(z)) if np.all(np.abs(z) < 40) else -np.inf
        return value - 0.5 * float(np.sum(((z - mean) / sd) ** 2)) - float(np.sum(np.log(sd * np.sqrt(2 * np.pi))))

    def climbed(self, more: Sequence[np.ndarray] = ()) -> tuple[np.ndarray, float]:
        """The most probable z, from the best of a few starts."""
        from scipy.optimize import minimize

        mean, _ = self.center
        starts = [*more, *([self.start] if self.start is not None else [])]
        if not starts:
            for decay in (0.5, 2.0, 3.0):
                for ratio in (-4.0, -1.0, 2.0):
                    start = mean.copy()
                    start[[0, *(2 + 3 * k for k in range(self.inputs - 1))]] = decay
                    start[3 * self.inputs - 1] = ratio + np.log(max(np.trace(self.data.R) / len(self.data.R) / self.n, 1e-300))
                    starts.append(start)
        best = max(starts, key=self.log_density)
        fixed = self.center[1] < 0.01

        def lacking(free: np.ndarray) -> float:
            z = best.copy()
            z[~fixed] = free
            value = self.log_density(z)
            return -value if np.isfinite(value) else 1e10

        found = minimize(lacking, best[~fixed], method="L-BFGS-B", options={"maxfun": 40 * len(best), "ftol": 1e-7})
        z = best.copy()
        z[~fixed] = found.x
        return (z, -float(found.fun)) if -found.fun > self.log_density(best) else (best, self.log_density(best))

    def averaged(self, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, float, float]:
        """Mean and covariance of the response, noise and log evidence, averaged over z by weighted draws around its mode."""
        mode, top = self.climbed()
        moved = self.center[1] > 0.01
        root = _spread_at(lambda x: self.log_density(_put(mode, moved, x)), mode[moved])
        size = int(moved.sum())
        draws, logs = [mode], [0.0]
        normal = rng.standard_normal((DRAWS, size))
        stretch = np.sqrt(HEAVY / rng.chisquare(HEAVY, DRAWS))
        of_proposal = lambda r2: -0.5 * (HEAVY + size) * np.log1p(r2 / HEAVY)
        for z, s in zip(normal, stretch, strict=True):
            at = _put(mode, moved, mode[moved] + root @ (s * z))
            draws.append(at)
            logs.append(self.log_density(at) - top - of_proposal(float(np.sum((s * z) ** 2))))
        weights = np.exp(np.array(logs) - np.max(logs))
        weights /= weights.sum()
        kept = [(w, fir.estimate(self.data, *self.root(z))) for w, z in zip(weights, draws, strict=True) if w > 1e-4]
        total = sum(w for w, _ in kept)
        mean = sum(w * found.mean for w, found in kept) / total
        covariance = sum(w * (found.covariance + np.outer(found.mean - mean, found.mean - mean)) for w, found in kept) / total
        noise = float(sum(w * found.noise for w, found in kept) / total)
        return np.asarray(mean), np.asarray(covariance), noise, top


def _put(z: np.ndarray, where: np.ndarray, values: np.ndarray) -> np.ndarray:
    changed = z.copy()
    changed[where] = values
    return changed


def _spread_at(log_density: Callable[[np.ndarray], float], mode: np.ndarray) -> np.ndarray:
    """A root of the inverse of minus the second derivatives, by differences; no direction is wider than 1.5."""
    size, step = len(mode), 0.05
    H, I = np.zeros((size, size)), step * np.eye(size)
    top = log_density(mode)
    up, down = (np.array([log_density(mode + sign * I[i]) for i in range(size)]) for sign in (1, -1))
    for i in range(size):
        H[i, i] = (up[i] - 2 * top + down[i]) / step**2
        for j in range(i):
            both = log_density(mode + I[i] + I[j])
            H[i, j] = H[j, i] = (both - up[i] - up[j] + top) / step**2
    H = np.where(np.isfinite(H), H, 0.0)
    values, vectors = np.linalg.eigh(-H)
    return vectors * np.minimum(1 / np.sqrt(np.maximum(values, 1e-12)), 1.5)


def _with_resonance(plain: _Prior, frequencies: np.ndarray, power: np.ndarray) -> tuple[_Prior, float | None]:
    """The prior with a resonance, where the evidence pays for it at a frequency that the input excited."""
    z, value = plain.climbed()
    plain = dataclasses.replace(plain, start=z)
    h = fir.estimate(plain.data, *plain.root(z)).mean
    gain = np.abs(np.fft.rfft(h, 2048))
    w = np.linspace(0, np.pi, len(gain))
    excited = np.interp(w, frequencies, power) > EXCITED * power.max()
    gain = np.where(excited & (w > 0.02) & (w < np.pi - 0.02), gain, 0.0)
    inner = np.flatnonzero((gain[1:-1] > gain[:-2]) & (gain[1:-1] >= gain[2:])) + 1
    peaks = inner[np.argsort(-gain[inner])][:1] if len(inner) else np.array([int(np.argmax(gain))])
    best: tuple[_Prior, float, float] | None = None
    for peak in peaks:
        resonant = dataclasses.replace(plain, resonant=True, omega=float(w[peak]), start=None)
        starts = [np.concatenate([z, [size, decay, w[peak]]]) for size in (-2.0, 0.0) for decay in (1.5, 3.0)]
        found, height = resonant.climbed(starts)
        if best is None or height > best[1]:
            best = dataclasses.replace(resonant, start=found), height, float(found[-1])
    if best is None or best[1] - value < GAIN:
        return plain, None
    omega = best[2]
    if not 0 < omega < np.pi or np.interp(omega, frequencies, power) < EXCITED * power.max():
        return plain, None
    return best[0], omega


def _output_error(found: Identified, order: int) -> Poles:
    """A rational model of this order: poles from the response, refined so that its simulated output is closest to the data."""
    from scipy.optimize import least_squares
    from scipy.signal import lfilter

    u, z = found.inputs[:, 0], found.output
    past = len(u) - len(z)
    others = _filtered(found.weights[1:], found.inputs[:, 1:])[past:] if found.inputs.shape[1] > 1 else 0.0
    target, seen = z - others, np.isfinite(z)
    poles = _stable(fir.hankel_poles(found.weights[0], order))
    order = len(poles)

    def regressors(a: np.ndarray) -> np.ndarray:
        x = lfilter([1.0], np.concatenate([[1.0], a]), u)
        columns = [np.concatenate([np.zeros(k), x[: len(x) - k]]) for k in range(order + 1)]
        return np.stack(columns, axis=1)[past:][seen]

    def solved(a: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        X = regressors(a)
        b = np.linalg.lstsq(X, target[seen], rcond=None)[0]
        return b, target[seen] - X @ b

    def missed(a: np.ndarray) -> np.ndarray:
        a = np.poly(_stable(np.roots(np.concatenate([[1.0], a])))).real[1:]
        return np.clip(np.nan_to_num(solved(a)[1], nan=1e6), -1e6, 1e6)

    a = np.poly(poles).real[1:]
    refined = least_squares(missed, a, max_nfev=12).x
    refined = np.poly(_stable(np.roots(np.concatenate([[1.0], refined])))).real[1:]
    a = refined if np.sum(missed(refined) ** 2) < np.sum(missed(a) ** 2) else a
    b, e = solved(a)
    N, rss = len(e), max(float(e @ e), 1e-300)
    bic = N * np.log(rss / N) + (2 * order + 2) * np.log(N)
    return Poles(
        np.sort_complex(np.roots(np.concatenate([[1.0], a]))), b, np.concatenate([[1.0], a]), float(np.sqrt(rss / N)), bic
    )


def _stable(poles: np.ndarray) -> np.ndarray:
    """Poles brought inside the unit circle."""
    size = np.abs(poles)
    poles = np.where(size > 1, 1 / np.conj(np.where(size > 0, poles, 1.0)), poles)
    return np.where(np.abs(poles) > 0.999, 0.999 * poles / np.maximum(np.abs(poles), 1e-300), poles)


def _by_poles(found: Identified) -> Identified:
    """The response of the rational model in place of that of the process; its band stays."""
    from scipy.signal import lfilter

    if found.weights.shape[0] > 1:
        raise ValueError("method='poles' takes one input: use the default for several")
    model = found.poles()
    impulse = lfilter(model.numerator, model.denominator, np.eye(1, found.lags)[0])
    return dataclasses.replace(found, weights=impulse[None], noise=model.residual)
