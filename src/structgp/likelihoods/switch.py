"""A probit gate between two likelihoods: outliers that come in groups, wrong labels, several processes in one table.

An observation arises as `real` says with probability Φ(u), else as `other` says; u is a latent function, the gate. Each side is
an ordinary likelihood or a switch again, so that trees come for nothing. While the latents are apart, u_c ~ N(m_c, v_c), every
leaf ℓ with the turns τ on its path and one latent k is a product of integrals of one variable:

    log Z_ℓ = Σ_c log Φ(τ a_c) + log ∫ N(f; m_k, v_k) p_ℓ(y|f) df,   a = m/√(1 + v),   Z = Σ Z_ℓ,   w_ℓ = Z_ℓ/Z,
    slope = Σ w_ℓ g_ℓ,   k = Σ w_ℓ k_ℓ − Σ w_ℓ (g_ℓ − slope)²,

where g_ℓ and k_ℓ are those of log Z_ℓ: of a gate τr/√(1 + v) and r(r + τa)/(1 + v) with r = φ(a)/Φ(τa), of the leaf its own,
and 0 for what it does not see. Of few rows much is left open, so that what joins gate and signal counts: there it is kept as
long as the integral is closed (`joined`). Predictions are mixtures over the leaves of what each predicts.

A. Naish-Guzman and S. Holden, "Robust regression with twinned Gaussian processes", NIPS 2007.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .._types import Numbers
from ..linalg.normal import log_ndtr, tails
from ..parameters.supports import interval, positive, real
from ..parameters.tree import fixed, parameter
from . import joined
from .base import OUTSIDE, Likelihood, compiled, is_one
from .gaussian import Gaussian, log_normal
from .labels import Bernoulli, expected_log_link

LEVEL, SPREAD = 1.5, 2.0  # of a gate there: what is real is common
FEW = 32  # rows up to which sites join gate and signal: at fifty neither form is nearer to the truth
WIDER = 20.0  # times the noise of experts, where a search begins that failed with their own


class Turn(NamedTuple):
    """One gate on the way to a leaf: its latent, or the probability of its real side; and to which side."""

    gate: int | None
    share: Any
    side: int


class Leaf(NamedTuple):
    """A likelihood at the end of a path, and the latent that it sees."""

    likelihood: Likelihood
    turns: tuple[Turn, ...]
    latent: int | None


class Switch(Likelihood):
    """y arises as `real` says with probability Φ(u), else as `other` says, where u is a latent function of its own, the gate.

    Latents come in the order gates, signals: `Independent(kernel_of_gate, kernel_of_signal)`, with a mean for each, as in
    `ConstantMean([1.5, 0.0])`. Both sides see the same signal, unless they are `separate`. Where `share` is given, the real
    side has this probability everywhere, and there is no gate.

    By EP the belief about a gate is exact enough to name outliers (`outlier_probability`), but it cannot see that a whole group
    of observations may change sides together: variances are then too small.
    """

    real: Likelihood = Gaussian(0.01)
    other: Likelihood = Gaussian(1.0)
    separate: bool = eqx.field(static=True, default=False)
    share: Any = parameter(None, interval(0.0, 1.0))

    default_inference = "ep"
    inferences = ("ep", "variational")

    def __check_init__(self) -> None:
        for side in (self.real, self.other):
            if not isinstance(side, Likelihood):
                raise TypeError(f"Switch needs two likelihoods, such as Gaussian(0.01) and Gaussian(1.0), got {side!r}")
            if not isinstance(side, Switch) and side.latents > 1:
                name = type(side).__name__
                raise ValueError(
                    f"each side of a Switch sees one latent, but {name} sees {side.latents}: use another likelihood"
                )
        if self.latents == self.gates:
            raise ValueError("a Switch needs a side that sees a latent: neither of these does")

    @property
    def leaves(self) -> tuple[Leaf, ...]:
        """What may have made an observation, those of the real side first."""
        return _leaves_of(self, 0, self.gates, ())

    @property
    def gates(self) -> int:
        """How many of the latents are gates: the first ones."""
        return (self.share is None) + sum(side.gates for side in (self.real, self.other) if isinstance(side, Switch))

    @property
    def latents(self) -> int:
        return self.gates + _signals(self)

    def joins(self, rows: int) -> bool:
        return rows <= FEW and self._closed

    @property
    def _closed(self) -> bool:
        """Whether all integrals are closed in which a gate and the only signal are known together."""
        return 0 < self.gates == self.latents - 1 and all(map(joined.is_closed, self.leaves))

    @property
    def signal(self) -> tuple[int, Likelihood]:
        first = next(leaf for leaf in self.leaves if leaf.latent is not None)
        return first.latent, first.likelihood  # type: ignore[return-value]

    @property
    def extra_name(self) -> str | None:  # type: ignore[override]
        return self.leaves[0].likelihood.extra_name

    @property
    def whole_numbers(self) -> bool:  # type: ignore[override]
        return self.leaves[0].likelihood.whole_numbers

    def check(self, y: np.ndarray, extra: np.ndarray | None = None) -> np.ndarray:
        return self.leaves[0].likelihood.check(y, extra)

    def log_prob(self, y: Numbers, f: Numbers, extra: Numbers = 1.0) -> Numbers:
        logs = self._sum(
            lambda turn: log_ndtr(turn.side * f[..., turn.gate]),
            lambda leaf: leaf.likelihood.log_prob(y, _of(leaf, f), extra),
        )
        return jax.nn.logsumexp(logs, axis=-1)

    def log_tilted(self, y: Numbers, mean: Numbers, variance: Numbers, power: Numbers = 1.0, extra: Numbers = 1.0) -> Numbers:
        return jax.nn.logsumexp(self._log_leaves(y, mean, variance, power, extra), axis=-1)

    def _log_leaves(self, y: Any, mean: Any, variance: Any, power: Any, extra: Any) -> Any:
        """log Z_ℓ in a last axis."""
        _check_power(power)
        if np.ndim(variance) > np.ndim(mean) and self._closed:
            return jnp.moveaxis(jnp.stack([leaf.log for leaf in self._together(y, mean, variance)]), 0, -1)
        v = _variances(mean, variance)
        tilted = lambda leaf: leaf.likelihood.log_tilted(y, _of(leaf, mean), _of(leaf, v), 1.0, extra)
        return self._sum(lambda turn: _log_gate(turn, mean, v), tilted)

    def tilted_derivatives(
        self, y: Numbers, mean: Numbers, variance: Numbers, power: Numbers = 1.0, extra: Numbers = 1.0
    ) -> tuple[Numbers, Numbers, Numbers]:
        _check_power(power)
        if np.ndim(variance) > np.ndim(mean) and self._closed:
            return joined.of_all(self._together(y, mean, variance))
        v, C = _variances(mean, variance), self.latents
        turned: dict[tuple[Any, int], Any] = {}
        logs, slopes, bends = [], [], []
        zero = jnp.zeros(jnp.broadcast_shapes(jnp.shape(y), mean.shape[:-1]))
        for leaf in self.leaves:
            total, slope, bend = zero, [zero] * C, [zero] * C
            for turn in leaf.turns:
                if turn.gate is None:
                    total = total + _log_share(turn)
                    continue
                key = turn.gate, turn.side
                if key not in turned:
                    turned[key] = _gate_derivatives(turn, mean[..., turn.gate], v[..., turn.gate])
                value, slope[turn.gate], bend[turn.gate] = turned[key]
                total = total + value
            value, g, k = leaf.likelihood.tilted_derivatives(y, _of(leaf, mean), _of(leaf, v), 1.0, extra)
            if leaf.latent is not None:
                slope[leaf.latent], bend[leaf.latent] = zero + g, zero + k
            logs.append(total + value)
            slopes.append(jnp.stack([zero + part for part in slope], axis=-1))
            bends.append(jnp.stack([zero + part for part in bend], axis=-1))
        log, g, k = jnp.stack(logs, axis=-1), jnp.stack(slopes, axis=-2), jnp.stack(bends, axis=-2)
        weight = jax.nn.softmax(log, axis=-1)[..., None]
        average = jnp.sum(weight * g, axis=-2)
        bend_of_sum = jnp.sum(weight * (k - (g - average[..., None, :]) ** 2), axis=-2)
        return jax.nn.logsumexp(log, axis=-1), average, bend_of_sum

    def _together(self, y: Any, mean: Any, covariance: Any) -> list[joined.Tilted]:
        """What each leaf makes of gate and signal that are known together."""
        shares = [sum((_log_share(turn) for turn in leaf.turns if turn.gate is None), start=0.0) for leaf in self.leaves]
        return [joined.tilted(leaf, share, y, mean, covariance) for leaf, share in zip(self.leaves, shares, strict=True)]

    def expected_log_prob(self, y: Numbers, mean: Numbers, variance: Numbers, extra: Numbers = 1.0) -> Numbers:
        """What a belief about the sides that does not know of the latents leaves of E log p(y | f): a bound below it.

        It is here to be compared with: from sites that say nothing its search ends far from the truth, where EP does not.
        """
        v = _variances(mean, variance)
        logs = self._sum(
            lambda turn: expected_log_link("probit", turn.side * mean[..., turn.gate], v[..., turn.gate]),
            lambda leaf: leaf.likelihood.expected_log_prob(y, _of(leaf, mean), _of(leaf, v), extra),
        )
        return jax.nn.logsumexp(logs, axis=-1)

    def outlier_probability(self, y: Numbers, mean: Numbers, variance: Numbers, extra: Numbers = 1.0) -> Numbers:
        logs = self._log_leaves(y, mean, variance, 1.0, extra)
        return jnp.sum(jax.nn.softmax(logs, axis=-1)[..., self._real :], axis=-1)

    def new_outlier_probability(self, mean: Numbers, variance: Numbers) -> Numbers:
        return jnp.sum(self._shares(mean, variance)[..., self._real :], axis=-1)

    def softened(self, t: float) -> Switch:
        noises = [float(leaf.likelihood.noise) for leaf in self.leaves if isinstance(leaf.likelihood, Gaussian)]
        if not noises:
            return self
        one = len({leaf.latent for leaf in self.leaves}) == 1
        widest = max(noises) * (1.0 if one else WIDER)
        wider = lambda leaf: leaf.replace(noise=leaf.noise**t * widest ** (1 - t)) if isinstance(leaf, Gaussian) else leaf
        return self._with_leaves(wider)

    def suggested(self, y: np.ndarray, extra: np.ndarray | None, noisy: float) -> tuple[Likelihood, Any, Any]:
        level, spread = np.full(self.latents, LEVEL), np.full(self.latents, SPREAD)
        sides = []
        for side, share in ((self.real, noisy), (self.other, noisy if self.separate else OUTSIDE * noisy)):
            likelihood, of_level, of_spread = side.suggested(y, extra, share)
            sides.append((likelihood, of_level, of_spread))
        for leaf in reversed(self.leaves):  # what the first says counts
            if leaf.latent is not None:
                _, level[leaf.latent], spread[leaf.latent] = leaf.likelihood.suggested(y, extra, noisy)
        return self.replace(real=sides[0][0], other=sides[1][0]), level, spread

    def told_apart(self, noise: float, outside: float, share: float) -> Likelihood | None:
        if self.separate:
            return None
        real, other = self.real.as_wide(noise), self.other.as_wide(outside)
        return None if real is None or other is None else self.replace(real=real, other=other)

    def plainly(self, y: np.ndarray, extra: np.ndarray | None) -> np.ndarray:
        return self.signal[1].plainly(y, extra)

    # predictions are mixtures over the leaves

    def moments(self, f: Numbers, extra: Numbers = 1.0) -> tuple[Numbers, Numbers]:
        f = jnp.asarray(f)
        return self._mixed(f, jnp.zeros_like(f), lambda leaf: leaf.likelihood.moments(_of(leaf, f), extra))

    def observed(self, mean: Numbers, variance: Numbers, extra: Numbers = 1.0) -> tuple[Numbers, Numbers]:
        v = _variances(mean, variance)
        return self._mixed(mean, v, lambda leaf: leaf.likelihood.observed(_of(leaf, mean), _of(leaf, v), extra))

    def _mixed(self, mean: Any, v: Any, moments: Callable[[Leaf], tuple[Any, Any]]) -> tuple[Any, Any]:
        weight = self._shares(mean, v)
        parts = [jnp.broadcast_arrays(*moments(leaf), weight[..., 0])[:2] for leaf in self.leaves]
        first, second = (jnp.stack(part, axis=-1) for part in zip(*parts, strict=True))
        average = jnp.sum(weight * first, axis=-1)
        return average, jnp.sum(weight * (second + (first - average[..., None]) ** 2), axis=-1)

    def _shares(self, mean: Any, variance: Any) -> Any:
        """How probable each leaf is before y is seen."""
        v = _variances(mean, variance)
        nothing = jnp.zeros(mean.shape[:-1])
        return jnp.exp(self._sum(lambda turn: _log_gate(turn, mean, v), lambda leaf: nothing))

    def log_shares(self, gates: Any) -> Any:
        """The logarithm of how probable each leaf is, in a last axis, where the gates are known."""
        return self._sum(lambda turn: log_ndtr(turn.side * gates[..., turn.gate]), lambda leaf: jnp.zeros(gates.shape[:-1]))

    def log_predictive(self, y: Numbers, mean: Numbers, variance: Numbers, extra: Numbers = 1.0) -> Numbers:
        v = _variances(mean, variance)
        own = lambda leaf: leaf.likelihood.log_predictive(y, _of(leaf, mean), _of(leaf, v), extra)
        return jax.nn.logsumexp(self._sum(lambda turn: _log_gate(turn, mean, v), own), axis=-1)

    def probability(self, mean: Numbers, variance: Numbers) -> Numbers:
        """P(y = 1) of labels, outliers among them; that of the true label is the signal's."""
        if not all(hasattr(leaf.likelihood, "probability") for leaf in self.leaves):
            raise AttributeError(f"{self!r} has observations that are not labels, so they have no probability")
        return self.observed(mean, variance)[0]

    def predictive_cumulative(self, y: Any, mean: Any, variance: Any, extra: Any = 1.0) -> np.ndarray:
        v = np.asarray(_variances(mean, variance))
        weight = np.asarray(compiled(self._shares, mean, v))
        below = lambda leaf: leaf.likelihood.predictive_cumulative(y, _of(leaf, mean), _of(leaf, v), extra)
        return sum(weight[..., i] * below(leaf) for i, leaf in enumerate(self.leaves))

    def sample(self, rng: np.random.Generator, f: Any, extra: Any = 1.0) -> np.ndarray:
        f = np.asarray(f)
        ends = np.cumsum(np.asarray(compiled(self._shares, f, np.zeros(f.shape))), axis=-1)
        which = np.sum(rng.random(f.shape[:-1])[..., None] * ends[..., -1:] > ends[..., :-1], axis=-1)
        drawn = [leaf.likelihood.sample(rng, _of(leaf, f), extra) for leaf in self.leaves]
        return np.choose(which, drawn)

    @property
    def _real(self) -> int:
        """How many of the leaves are on the real side."""
        return len(self.real.leaves) if isinstance(self.real, Switch) else 1

    def _sum(self, of_gate: Callable[[Turn], Any], of_leaf: Callable[[Leaf], Any]) -> Any:
        """The logarithms along the path to each leaf, summed, in a last axis."""
        log = lambda turn: _log_share(turn) if turn.gate is None else of_gate(turn)
        logs = [sum((log(turn) for turn in leaf.turns), start=of_leaf(leaf)) for leaf in self.leaves]
        return jnp.stack(jnp.broadcast_arrays(*logs), axis=-1)

    def _with_leaves(self, change: Callable[[Likelihood], Likelihood]) -> Switch:
        changed = lambda side: side._with_leaves(change) if isinstance(side, Switch) else change(side)
        return self.replace(real=changed(self.real), other=changed(self.other))


def _leaves_of(node: Likelihood, gate: int, signal: int, turns: tuple[Turn, ...]) -> tuple[Leaf, ...]:
    """The leaves below a node whose gates and signals are counted from here."""
    if not isinstance(node, Switch):
        return (Leaf(node, turns, signal if node.latents else None),)
    turn = lambda side: (*turns, Turn(gate if node.share is None else None, node.share, side))
    after = gate + (node.share is None)
    ours = node.real.gates if isinstance(node.real, Switch) else 0
    beside = signal + _signals(node.real) if node.separate else signal
    return (*_leaves_of(node.real, after, signal, turn(1)), *_leaves_of(node.other, after + ours, beside, turn(-1)))


def _signals(node: Likelihood) -> int:
    """How many latents that are no gates a likelihood sees."""
    if not isinstance(node, Switch):
        return node.latents
    return (sum if node.separate else max)((_signals(node.real), _signals(node.other)))


def _of(leaf: Leaf, values: Any) -> Any:
    """The part of values in the last axis that a leaf sees; the first where it sees none, which it does not look at."""
    return values[..., leaf.latent or 0]


def _variances(mean: Any, spread: Any) -> Any:
    """The variances of each latent, of beliefs that keep them apart."""
    return spread if np.ndim(spread) == np.ndim(mean) else jnp.diagonal(spread, axis1=-2, axis2=-1)


def _log_share(turn: Turn) -> Any:
    return jnp.log(turn.share) if turn.side > 0 else jnp.log1p(-turn.share)


def _log_gate(turn: Turn, mean: Any, v: Any) -> Any:
    return log_ndtr(turn.side * mean[..., turn.gate] / jnp.sqrt(1 + v[..., turn.gate]))


def _gate_derivatives(turn: Turn, mean: Any, v: Any) -> tuple[Any, Any, Any]:
    scale = jnp.sqrt(1 + v)
    value, ratio, excess = tails(turn.side * mean / scale)
    return value, turn.side * ratio / scale, ratio * excess / (1 + v)


def _check_power(power: Any) -> None:
    if not is_one(power):
        raise ValueError("observations of a Switch count once each: leave out weights, and use inference='ep'")


class Unrelated(Likelihood):
    """y ~ N(level, noise) whatever f is: a side of a `Switch` that sees no latent."""

    level: Numbers = parameter(0.0, real)
    noise: Numbers = parameter(1.0, positive)

    latents = 0

    def log_prob(self, y: Numbers, f: Numbers, extra: Numbers = 1.0) -> Numbers:
        return log_normal(y - self.level, self.noise) + 0.0 * f

    def log_tilted(self, y: Numbers, mean: Numbers, variance: Numbers, power: Numbers = 1.0, extra: Numbers = 1.0) -> Numbers:
        return power * self.log_prob(y, mean)

    def tilted_derivatives(
        self, y: Numbers, mean: Numbers, variance: Numbers, power: Numbers = 1.0, extra: Numbers = 1.0
    ) -> tuple[Numbers, Numbers, Numbers]:
        value = power * self.log_prob(y, mean)
        return value, jnp.zeros_like(value), jnp.zeros_like(value)

    def expected_log_prob(self, y: Numbers, mean: Numbers, variance: Numbers, extra: Numbers = 1.0) -> Numbers:
        return self.log_prob(y, mean)

    def suggested(self, y: np.ndarray, extra: np.ndarray | None, noisy: float) -> tuple[Likelihood, float, float]:
        like, level, spread = Gaussian().suggested(y, extra, noisy)
        return self.replace(level=level, noise=like.noise), level, spread  # type: ignore[attr-defined]

    def as_wide(self, noise: float) -> Likelihood:
        return self.replace(noise=noise)

    def moments(self, f: Numbers, extra: Numbers = 1.0) -> tuple[Numbers, Numbers]:
        return self.level + 0.0 * f, self.noise + 0.0 * f

    def observed(self, mean: Numbers, variance: Numbers, extra: Numbers = 1.0) -> tuple[Numbers, Numbers]:
        return self.moments(mean)

    def predictive_cumulative(self, y: Any, mean: Any, variance: Any, extra: Any = 1.0) -> np.ndarray:
        return Gaussian(self.noise).predictive_cumulative(y, self.level + 0.0 * mean, 0.0 * mean)

    def sample(self, rng: np.random.Generator, f: Any, extra: Any = 1.0) -> np.ndarray:
        return Gaussian(self.noise).sample(rng, self.level + 0.0 * f)


class Sloped(Likelihood):
    """What another likelihood makes of slope · f: labels whose slope is small are little more than coins."""

    likelihood: Likelihood = Bernoulli()
    slope: Numbers = parameter(1.0, positive)

    @property
    def log_concave(self) -> bool:
        return self.likelihood.log_concave

    def check(self, y: np.ndarray, extra: np.ndarray | None = None) -> np.ndarray:
        return self.likelihood.check(y, extra)

    def log_prob(self, y: Numbers, f: Numbers, extra: Numbers = 1.0) -> Numbers:
        return self.likelihood.log_prob(y, self.slope * f, extra)

    def log_tilted(self, y: Numbers, mean: Numbers, variance: Numbers, power: Numbers = 1.0, extra: Numbers = 1.0) -> Numbers:
        return self.likelihood.log_tilted(y, *self._seen(mean, variance), power, extra)

    def tilted_derivatives(
        self, y: Numbers, mean: Numbers, variance: Numbers, power: Numbers = 1.0, extra: Numbers = 1.0
    ) -> tuple[Numbers, Numbers, Numbers]:
        value, slope, k = self.likelihood.tilted_derivatives(y, *self._seen(mean, variance), power, extra)
        return value, self.slope * slope, self.slope**2 * k

    def expected_log_prob(self, y: Numbers, mean: Numbers, variance: Numbers, extra: Numbers = 1.0) -> Numbers:
        return self.likelihood.expected_log_prob(y, *self._seen(mean, variance), extra)

    def moments(self, f: Numbers, extra: Numbers = 1.0) -> tuple[Numbers, Numbers]:
        return self.likelihood.moments(self.slope * f, extra)

    def observed(self, mean: Numbers, variance: Numbers, extra: Numbers = 1.0) -> tuple[Numbers, Numbers]:
        return self.likelihood.observed(*self._seen(mean, variance), extra)

    def probability(self, mean: Numbers, variance: Numbers) -> Numbers:
        """P(y = 1) when f ~ N(mean, variance)."""
        return self.likelihood.probability(*self._seen(mean, variance))  # type: ignore[attr-defined]

    def predictive_cumulative(self, y: Any, mean: Any, variance: Any, extra: Any = 1.0) -> np.ndarray:
        return self.likelihood.predictive_cumulative(y, *self._seen(mean, variance), extra)

    def sample(self, rng: np.random.Generator, f: Any, extra: Any = 1.0) -> np.ndarray:
        return self.likelihood.sample(rng, self.slope * f, extra)

    @property
    def whole_numbers(self) -> bool:  # type: ignore[override]
        return self.likelihood.whole_numbers

    def _seen(self, mean: Any, variance: Any) -> tuple[Any, Any]:
        return self.slope * mean, self.slope**2 * variance


def Twinned(narrow: Any = 0.01, wide: Any = 1.0) -> Switch:
    """Gaussian noise of variance `narrow` that is `wide` where the gate is shut: outliers that come in groups.

    Latents are (gate, signal).
    """
    return Switch(Gaussian(narrow), Gaussian(wide))


def TwinnedLabels(steep: Any = 3.0, flat: Any = 0.1) -> Switch:
    """Labels of probability Φ(steep · f), or Φ(flat · f), little more than a coin, where the gate is shut. Latents (gate, f).

    The two slopes must differ; the steep one is not learned, because the variance of f does the same.
    """
    return Switch(Sloped(Bernoulli(), fixed(steep)), Sloped(Bernoulli(), flat))


def Ignorant(narrow: Any = 0.01, wide: Any = 1.0, level: Any = 0.0) -> Switch:
    """Gaussian noise of variance `narrow`; where the gate is shut y ~ N(level, wide) has nothing to do with the signal.

    Latents are (gate, signal).
    """
    return Switch(Gaussian(narrow), Unrelated(level, wide))


def TwoExperts(first: Any = 0.01, second: Any = 0.02) -> Switch:
    """Two signals with Gaussian noise of their own, and a gate that says which is seen where. Latents (gate, first, second).

    Experts that are alike in kernel, mean and noise cannot be told apart, and nothing is learned: let them differ.
    """
    return Switch(Gaussian(first), Gaussian(second), separate=True)


def TwoProcesses(first: Any = 0.01, second: Any = 0.02, share: Any = 0.5) -> Switch:
    """Two signals, each seen with its own noise; a `share` of the observations are of the first. Latents (first, second)."""
    return Switch(Gaussian(first), Gaussian(second), separate=True, share=share)


def Triplet(narrow: Any = 0.01, middle: Any = 0.1, wide: Any = 1.0) -> Switch:
    """Three variances of Gaussian noise around one signal: latents (narrow or not, middle or wide, signal)."""
    return Switch(Gaussian(narrow), Switch(Gaussian(middle), Gaussian(wide)))
