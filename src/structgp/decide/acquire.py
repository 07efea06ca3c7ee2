"""What a measurement at x is worth, as a function of what the members of a mixture believe of f(x).

Small values are good. With the mean m and the standard deviation s of one member and the best value b that it believes to have
seen, u = (b − m)/s:

    ei         log E max(0, b − f)  =  log s + log(φ(u) + uΦ(u))     expected improvement
    pi         log P(f < b)         =  log Φ(u)                      its probability
    ucb        √β s − m                                              the best that can be hoped for

Logarithms keep their slope where improvements are rare. Members are averaged before the logarithm; each has its own b, the
least of its posterior means where something was measured: of exact measurements the best one, of noisy ones no lucky one.
Outcomes that must stay within limits, and runs that may fail, multiply what is gained by the probability that all goes
well. "thompson" is a draw of f itself, and is made elsewhere.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ..background import Program
from ..linalg.normal import log_mean_excess, log_ndtr

RULES = ("ei", "pi", "ucb", "thompson")
FLOOR = 1e-14  # of the variance that a member gives to all of its measurements, below which nothing is open


class Belief(eqx.Module):
    """Processes given measurements, one for each member along the first axis of every array, and how much each counts."""

    members: Any  # stacked values with `marginals`
    log_weights: Float[Array, " K"]
    best: Float[Array, " K"]
    scale: Float[Array, " K"]  # the variance of f before the measurements

    def moments(self, X: Float[Array, "M D"]) -> tuple[Float[Array, "K M"], Float[Array, "K M"]]:
        """Means and standard deviations of all members."""
        means, variances = jax.vmap(lambda member: member.marginals(X))(self.members)
        return means[..., 0], jnp.sqrt(jnp.maximum(variances, FLOOR * self.scale[:, None]))


class Outcome(eqx.Module):
    """A quantity that must stay within limits."""

    belief: Belief
    low: Float[Array, ""]
    high: Float[Array, ""]

    def log_probability(self, X: Float[Array, "M D"]) -> Float[Array, " M"]:
        """log P(low ≤ f ≤ high)."""
        m, s = self.belief.moments(X)
        above, below = log_ndtr((m - _finite(self.low)) / s), log_ndtr((_finite(self.high) - m) / s)
        above, below = jnp.where(jnp.isfinite(self.low), above, 0.0), jnp.where(jnp.isfinite(self.high), below, 0.0)
        # Φ(b) − Φ(a) = Φ(b) + Φ(−a) − 1; at least one half of it is near one unless both ends are far within s
        both = above + jnp.log(
            jnp.maximum(-jnp.expm1(jnp.minimum(jnp.log1p(-jnp.exp(jnp.minimum(below, -1e-12))) - above, -1e-12)), 1e-300)
        )
        inside = jnp.where(jnp.isfinite(self.low) & jnp.isfinite(self.high), both, above + below)
        return jax.nn.logsumexp(self.belief.log_weights[:, None] + inside, axis=0)


class Failure(eqx.Module):
    """The latent function of runs that went well, seen through a probit."""

    posterior: Any

    def log_probability(self, X: Float[Array, "M D"]) -> Float[Array, " M"]:
        """log P(the run goes well)."""
        mean, variance = self.posterior.marginals(X)
        return log_ndtr(mean[:, 0] / jnp.sqrt(1 + variance))


class Aside(NamedTuple):
    """Means and standard deviations of all members, and log P(all limits are met)."""

    mean: Float[Array, "K M"]
    sd: Float[Array, "K M"]
    log_feasible: Float[Array, " M"]


class View(eqx.Module):
    """All that decides where to measure next."""

    beliefs: tuple[Belief, ...]  # of one model each
    outcomes: tuple[Outcome, ...]
    failures: tuple[Failure, ...]
    any_good: Bool[Array, ""]  # whether something was measured that meets all limits
    bonus: Float[Array, ""]  # √β
    rows: int = eqx.field(static=True, default=0)  # that beliefs are filled up to

    def log_feasible(self, X: Float[Array, "M D"]) -> Float[Array, " M"]:
        """log P(all limits are met and nothing fails)."""
        limited: list[Any] = [*self.outcomes, *self.failures]
        return sum((part.log_probability(X) for part in limited), start=jnp.zeros(len(X)))

    def value(self, X: Float[Array, "M D"], rule: str) -> tuple[Float[Array, " M"], Aside]:
        """What measurements at the rows of X are worth, and what that follows from."""
        log_w = jnp.concatenate([belief.log_weights for belief in self.beliefs])[:, None]
        moments = [belief.moments(X) for belief in self.beliefs]
        m, s = (jnp.concatenate(parts) for parts in zip(*moments, strict=True))
        best = jnp.concatenate([belief.best for belief in self.beliefs])[:, None]
        u = (best - m) / s
        feasible = self.log_feasible(X)
        aside = Aside(m, s, feasible)
        if rule == "ucb":
            gain = jnp.sum(jnp.exp(log_w) * (self.bonus * s - m), axis=0)
            # logarithms of probabilities cannot be added to it; a bound that falls to the worst with them can
            scale = jnp.concatenate([belief.scale for belief in self.beliefs])[:, None]
            worst = jnp.sum(jnp.exp(log_w) * (best - 3.0 * jnp.sqrt(scale)))
            limited = jnp.where(self.any_good, worst + (gain - worst) * jnp.exp(feasible), feasible)
            return limited if self.limited else gain, aside
        gains = log_w + (log_ndtr(u) if rule == "pi" else jnp.log(s) + log_mean_excess(u))
        gain = jax.nn.logsumexp(gains, axis=0)
        return jnp.where(self.any_good, gain, 0.0) + feasible if self.limited else gain, aside

    @property
    def limited(self) -> bool:
        """Whether there is anything to be met besides."""
        return bool(self.outcomes or self.failures)


def _finite(x: Float[Array, ""]) -> Float[Array, ""]:
    return jnp.where(jnp.isfinite(x), x, 0.0)


def values(view: View, X: Any, rule: str) -> Float[Array, " M"]:
    """What measurements at the rows of X are worth."""
    return _values.of(view.rows)(view, X, rule)


def values_and_slopes(view: View, X: Any, rule: str) -> tuple[Float[Array, " M"], Float[Array, "M D"], Aside]:
    """The same with gradients, and what it follows from."""
    return _values_and_slopes.of(view.rows)(view, X, rule)


@functools.partial(Program, static_argnames="rule")
def _values(view: View, X: Any, rule: str) -> Float[Array, " M"]:
    return view.value(X, rule)[0]


@functools.partial(Program, static_argnames="rule")
def _values_and_slopes(view: View, X: Any, rule: str) -> tuple[Float[Array, " M"], Float[Array, "M D"], Aside]:
    found, pull, aside = jax.vjp(lambda X: view.value(X, rule), X, has_aux=True)
    return found, pull(jnp.ones(len(X)))[0], aside


@jax.jit
def moments(belief: Belief, X: Any) -> tuple[Float[Array, "K M"], Float[Array, "K M"]]:
    """Means and standard deviations of all members at the rows of X."""
    return belief.moments(X)


@jax.jit
def log_feasible(view: View, X: Any) -> Float[Array, " M"]:
    """log P(all limits are met and nothing fails)."""
    return view.log_feasible(X)


@jax.jit
def drawn(belief: Belief, number: Any, key: Array, X: Any) -> Float[Array, " M"]:
    """One joint draw of f of one member."""
    member = jax.tree.map(lambda part: part[number], belief.members)
    return member.draw(key, X, 1)[0, :, 0]
