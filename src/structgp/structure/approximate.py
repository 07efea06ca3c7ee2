"""Kernels without a finite state, replaced by close ones that have one, when it is asked for by name.

`approximated` puts other kernels in the place of some, so that everything after it is exact for what it returns:

- ``"state-space"``: SquaredExponential by the rational spectrum of `linalg.rational_sde`;
- ``"matern"``: SquaredExponential by the Matérn kernel of order 11/2, which is rougher and further away;
- RationalQuadratic, a mixture of squared exponentials over a Gamma law of precisions g, by finitely many of them. With
  u = log g the density of the law is ∝ exp(α(u − eᵘ)), smooth and falling at both ends, so that equally spaced u, weighted by
  it, are a good sum; their ends move with α as a fit to the best ones says. Each term is then replaced as above.

`covariance_error` bounds |k̃(x, z) − k(x, z)| / √(k(x, x) k(z, z)) over all pairs: the same for every lengthscale and variance.
"""

from __future__ import annotations

import math
from functools import singledispatch
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .._types import Numbers, Point, Scalar
from ..kernels.algebra import Kernel, On, Product, Scaled, Sum, one_coordinate
from ..kernels.changepoint import ChangePoint
from ..kernels.stationary import Matern, RationalQuadratic, SquaredExponential, matern_profile
from ..kernels.views import Project, Warp
from ..linalg.markov import rational_sde
from ..linalg.markov.chains import Chain
from ..parameters.supports import positive
from ..parameters.tree import parameter
from .derivatives import Smooth, smoothness
from .state_space import Where, chain_of

NAMES = ("state-space", "matern")
STATES = 8  # of a squared exponential by itself
STATES_IN_MIXTURE = 6  # and of each of several that make up a rational quadratic
TERMS = 6
MATERN = 5.5


class RationalSpectrum(Kernel):
    """A process with `states` states that is close to variance · exp(−d²/2), on a line: states − 1 times differentiable."""

    lengthscale: Numbers = parameter(1.0, positive)
    variance: Numbers = parameter(1.0, positive)
    states: int = eqx.field(static=True, default=STATES, kw_only=True)

    def between(self, x: Point, z: Point) -> Scalar:
        difference = one_coordinate(self, x - z) / self.lengthscale
        return self.variance * rational_sde.correlation(jnp.where(difference >= 0, difference, -difference), self.states)


@chain_of.register
def _(kernel: RationalSpectrum, where: Where) -> Chain:
    return rational_sde.Rational(kernel.states, 1 / jnp.reshape(kernel.lengthscale, ()), kernel.variance)


@smoothness.register
def _(kernel: RationalSpectrum) -> Smooth:
    return kernel.states - 1, kernel


def approximated(kernel: Kernel, name: str | None) -> Kernel:
    """The kernel with a finite state in place of what has none, or the kernel itself when no approximation is asked for."""
    if name is None:
        return kernel
    known = lambda node: isinstance(node, (SquaredExponential, RationalQuadratic))
    return jax.tree.map(lambda node: _instead(node, name) if known(node) else node, kernel, is_leaf=known)


@singledispatch
def _instead(kernel: Any, name: str) -> Kernel:
    return kernel


@_instead.register
def _(kernel: SquaredExponential, name: str) -> Kernel:
    return _bell(_lengthscale(kernel), kernel.variance, STATES, name)


@_instead.register
def _(kernel: RationalQuadratic, name: str) -> Kernel:
    u, weights = mixture(jnp.reshape(kernel.alpha, ()))
    lengthscales = _lengthscale(kernel) * jnp.exp(-0.5 * u)
    bells = tuple(_bell(lengthscales[i], weights[i], STATES_IN_MIXTURE, name) for i in range(TERMS))
    return Scaled(Sum(bells), kernel.variance)


def _bell(lengthscale: Any, variance: Any, states: int, name: str) -> Kernel:
    """What stands for variance · exp(−d²/2)."""
    if name == "matern":
        return Matern(lengthscale, variance, nu=MATERN)
    return RationalSpectrum(lengthscale, variance, states=states)


def _lengthscale(kernel: SquaredExponential | RationalQuadratic) -> Any:
    return 1 / jnp.linalg.norm(kernel.embed(jnp.ones(1)))


def mixture(alpha: Any) -> tuple[Any, Any]:
    """Log precisions u and weights with (1 + d²/2α)^−α ≈ Σ weights · exp(−eᵘ d²/2)."""
    low, high = -5.4 * alpha**-0.62, 0.85 / (1 + alpha / 40) - 0.1 / alpha
    u = low + (high - low) * np.linspace(0.0, 1.0, TERMS)
    return u, jax.nn.softmax(alpha * (u - jnp.exp(u)))


@singledispatch
def covariance_error(kernel: Kernel, name: str) -> float:
    """The largest error of the covariance in units of the prior variance, by node; 0 where nothing is replaced."""
    return 0.0


@covariance_error.register
def _(kernel: SquaredExponential, name: str) -> float:
    lags = np.linspace(0.0, 40.0, 4001)
    return _distance(_profile(lags, STATES, name), np.exp(-0.5 * lags**2))


@covariance_error.register
def _(kernel: RationalQuadratic, name: str) -> float:
    alpha = float(np.reshape(kernel.alpha, ()))
    u, weights = (np.asarray(part) for part in mixture(alpha))
    lags = np.concatenate([np.linspace(0.0, 20.0, 2001), np.geomspace(20.0, 1e8, 400)])
    scaled = lags[:, None] * np.exp(0.5 * u)
    return _distance(_profile(scaled, STATES_IN_MIXTURE, name) @ weights, np.exp(-alpha * np.log1p(lags**2 / (2 * alpha))))


@covariance_error.register
def _(kernel: Sum, name: str) -> float:
    return max(covariance_error(term, name) for term in kernel.terms)


@covariance_error.register
def _(kernel: Product, name: str) -> float:
    return math.prod(1 + covariance_error(factor, name) for factor in kernel.factors) - 1


@covariance_error.register
def _(kernel: ChangePoint, name: str) -> float:
    return max(covariance_error(kernel.before, name), covariance_error(kernel.after, name))


@covariance_error.register(Scaled)
@covariance_error.register(On)
@covariance_error.register(Project)
@covariance_error.register(Warp)
def _(kernel: Scaled | On | Project | Warp, name: str) -> float:
    return covariance_error(kernel.kernel, name)


def _profile(lags: np.ndarray, states: int, name: str) -> np.ndarray:
    if name == "matern":
        return np.asarray(matern_profile(round(MATERN - 0.5), 2 * MATERN * np.minimum(lags, 200.0) ** 2))
    return np.asarray(rational_sde.correlation(jnp.asarray(lags), states))


def _distance(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.max(np.abs(a - b)))
