"""What is believed of an impulse response: it decays, is as smooth as the data want it, and may ring at one frequency.

The DC kernel is centred at TC, with one damped resonance where the evidence pays for it and the input excited its frequency.
Its few hyperparameters are averaged over. Least squares believe nothing.

A kernel that was learned from some frequencies goes on to others, where no input had power, as if it had been seen there. That
is the best guess, and no measure of what may be there: bands count what `left_open` adds. Where the data say nothing a response
may hold as much power as where they do, give or take two nats, and forget it as fast or slowly as any; what that adds to the
spread is counted around the estimate, which stays.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np

from ..linalg import fir

GAIN = 3.0  # nats from which on a resonance is taken
EXCITED = 0.1  # of the largest power of the input, from which on a frequency counts as excited
DRAWS = 48  # of the hyperparameters
HEAVY = 5.0  # degrees of freedom of the density that they are drawn from
DECAY = (2.0, 1.5)  # of logit α, where it is believed to be, and how surely
UNKNOWN = 2.0  # nats within which the power at frequencies that were not excited is believed to be that at the others
DECAYS = tuple(1 / (1 + np.exp(-DECAY[0] - DECAY[1] * at)) for at in (-1.15, -0.32, 0.32, 1.15))  # four alike shares of all


def least_squares(data: fir.Sums, n: int, inputs: int, length: str | None) -> tuple[np.ndarray, np.ndarray, float, float]:
    """No prior; of one input its length may be chosen by a criterion."""

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
class ImpulsePrior:
    """A prior of the response by its hyperparameters z: of each input logit α, d and its size, log λ, resonances."""

    data: fir.Sums
    n: int
    inputs: int
    method: str
    resonances: tuple[tuple[int, float], ...] = ()  # the input, and a frequency near that of the resonance
    start: np.ndarray | None = None

    @property
    def center(self) -> tuple[np.ndarray, np.ndarray]:
        """Where each is believed to be, and how surely."""
        each = [DECAY, (0.0, 0.7 if self.method != "tc" else 1e-3)]
        found = each + [pair for _ in range(self.inputs - 1) for pair in (*each, (0.0, 2.0))] + [(-2.0, 4.0)]
        for _, omega in self.resonances:
            found += [(-2.0, 1.0), (2.0, 1.0), (omega, 0.5)]
        mean, sd = np.array(found).T
        return mean, sd

    def root(self, z: np.ndarray) -> tuple[np.ndarray, float]:
        """L and λ at z."""
        sigmoid = lambda x: 1 / (1 + np.exp(-x))
        blocks, sizes, at = [], [], 0
        for k in range(self.inputs):
            decay = min(sigmoid(z[at]), 1 - 1e-9)
            correlation = np.tanh(np.arctanh(np.sqrt(decay)) + z[at + 1])
            size = 1.0 if k == 0 else np.exp(0.5 * z[at + 2])
            sizes.append(size)
            blocks.append(size * fir.diagonal_correlated(self.n, decay, np.clip(correlation, -0.999999, 0.999999)))
            at += 2 if k == 0 else 3
        L = np.zeros((self.inputs * self.n, self.inputs * self.n))
        for k, block in enumerate(blocks):
            L[k * self.n : (k + 1) * self.n, k * self.n : (k + 1) * self.n] = block
        ratio, at = float(np.exp(z[at])), at + 1
        for k, _ in self.resonances:
            ringing = np.zeros((len(L), 2))
            ringing[k * self.n : (k + 1) * self.n] = sizes[k] * fir.resonance(
                self.n, np.exp(z[at]), sigmoid(z[at + 1]), z[at + 2]
            )
            L, at = np.concatenate([L, ringing], axis=1), at + 3
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

    def at_its_mode(self) -> tuple[ImpulsePrior, np.ndarray, float]:
        """The same that next begins at its mode, the mode, and the log density there."""
        z, value = self.climbed()
        return dataclasses.replace(self, start=z), z, value

    def draws(self, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Weighted draws of z around its mode, which comes first."""
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
        weights = np.where(weights > 1e-4 * weights.sum(), weights, 0.0)
        return np.array(draws), weights / weights.sum()

    def averaged(self, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, float]:
        """Mean and covariance of the response and noise, averaged over z."""
        draws, weights = self.draws(rng)
        kept = [(w, fir.estimate(self.data, *self.root(z))) for w, z in zip(weights, draws, strict=True) if w > 0]
        mean = sum(w * found.mean for w, found in kept)
        covariance = sum(w * (found.covariance + np.outer(found.mean - mean, found.mean - mean)) for w, found in kept)
        noise = float(sum(w * found.noise for w, found in kept))
        return np.asarray(mean), np.asarray(covariance), noise


def left_open(prior: ImpulsePrior, z: np.ndarray, frequencies: np.ndarray, power: np.ndarray) -> np.ndarray:
    """What the covariance of the response lacks for frequencies of which the data say nothing, with inputs of this power."""
    L, ratio = prior.root(z)
    known, n = fir.estimate(prior.data, L, ratio), prior.n
    K, i = L @ L.T, np.arange(n)
    w = (np.arange(max(2 * n, 256)) + 0.5) * np.pi / max(2 * n, 256)
    waves, apart = np.cos(np.outer(i, w)), np.abs(i[:, None] - i)
    spectra = []
    for k, of_input in enumerate(power):
        block, S = K[k * n : (k + 1) * n, k * n : (k + 1) * n], np.interp(w, frequencies, of_input)
        sums = np.array([np.trace(block, m) for m in i])
        energy = 2 * sums @ waves - sums[0]  # of the response that is expected at each frequency
        told = S * (S @ energy) / S.sum() / ratio * prior.data.rows / n  # of the data, in units of what is believed
        unsaid = 1 / (1 + told**2)
        as_elsewhere = np.exp(0.5 * UNKNOWN**2) * ((1 - unsaid) @ energy) / max(np.sum(1 - unsaid), 1e-300)
        spectra.append(waves @ (unsaid * np.maximum(as_elsewhere - energy, 0.0)) / len(w))
    added = np.zeros_like(K)
    for decay in DECAYS:
        wider = K.copy()
        fading = np.sqrt(decay) ** (i[:, None] + i) / np.sum(decay**i)
        for k, spectrum in enumerate(spectra):
            wider[k * n : (k + 1) * n, k * n : (k + 1) * n] += fading * spectrum[apart]
        mean, covariance = fir.conditioned(prior.data, wider, ratio, known.scale)
        shift = mean - known.mean
        added += (covariance - known.covariance + np.outer(shift, shift)) / len(DECAYS)
    return added


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


def with_resonances(
    plain: ImpulsePrior, frequencies: np.ndarray, power: np.ndarray
) -> tuple[ImpulsePrior, tuple[float | None, ...]]:
    """The prior with a resonance of each response, where the evidence pays for it at a frequency that its input excited."""
    z, value = plain.climbed()
    found, omegas = dataclasses.replace(plain, start=z), list[float | None]()
    for source, of_input in enumerate(power):
        more, height, omega = _with_resonance(found, source, frequencies, of_input)
        excited = 0 < omega < np.pi and np.interp(omega, frequencies, of_input) >= EXCITED * of_input.max()
        pays = excited and height - value >= GAIN
        found, value = (more, height) if pays else (found, value)
        omegas.append(omega if pays else None)
    return found, tuple(omegas)


def _with_resonance(
    plain: ImpulsePrior, source: int, frequencies: np.ndarray, power: np.ndarray
) -> tuple[ImpulsePrior, float, float]:
    """The prior that has begun with a resonance of one response, its log density, and the frequency."""
    z = np.asarray(plain.start)
    h = fir.estimate(plain.data, *plain.root(z)).mean[source * plain.n : (source + 1) * plain.n]
    gain = np.abs(np.fft.rfft(h, 2048))
    w = np.linspace(0, np.pi, len(gain))
    excited = np.interp(w, frequencies, power) > EXCITED * power.max()
    gain = np.where(excited & (w > 0.02) & (w < np.pi - 0.02), gain, 0.0)
    inner = np.flatnonzero((gain[1:-1] > gain[:-2]) & (gain[1:-1] >= gain[2:])) + 1
    peak = inner[np.argmax(gain[inner])] if len(inner) else int(np.argmax(gain))
    more = dataclasses.replace(plain, resonances=(*plain.resonances, (source, float(w[peak]))), start=None)
    found, height = more.climbed([np.concatenate([z, [size, decay, w[peak]]]) for size in (-2.0, 0.0) for decay in (1.5, 3.0)])
    return dataclasses.replace(more, start=found), height, float(found[-1])
