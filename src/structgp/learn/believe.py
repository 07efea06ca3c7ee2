"""What is believed of parameters before the data where the user said nothing: the twin of where learning starts.

Averages over parameters need proper densities: without them the evidence of a lengthscale that goes to infinity does not
decay. The beliefs here are weak, in the units of the data, and normal in z, where θ = A z has no units (`units_of`). With the
spread s_d of column d of the D columns that a kernel sees, and the variance v of y:

    lengthscale      log-normal around s_d √D e^½, width 1
    variance         log-normal around v / number of terms, width 1; of what is behind labels, a Student-t of its logarithm
    noise variance   log-normal around v/20, width 1.7
    own part         the variance of what an output of filters does not share: log-normal e² below its start, width 3
    bends, steps     of a spline log-normal around its start, width 3; of a random walk, width 2
    period           log-normal around its start, width ½; without a start it is not averaged over
    others           around their starts (of a mean: around that of y), width 1.5, or two spreads for levels and places
    directions and weights that sum to one: uniform

Labels say nothing of the size of f where they can be told apart: Student-t tails let it be as large as they want, and leave it
small where they do not. A prior of the user's own takes the place of ours, and bounds cut it off.
"""

from __future__ import annotations

from functools import singledispatch
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from ..inputs.observations import Data
from ..kernels.filters import Filters
from ..kernels.metrics import GroupMetric
from ..kernels.nonstationary import IntegratedWiener, Spline, Wiener
from ..kernels.oscillating import Cosine, DampedOscillator, Periodic
from ..kernels.stationary import ProductMatern, Radial
from ..likelihoods.gaussian import Gaussian
from ..likelihoods.positive import LogGaussian
from ..parameters.priors import Alike
from ..parameters.supports import Increasing, Orthonormal, Real, Simplex
from ..parameters.tree import Leaf, Parametrised, free_bounds, free_vector, learned_leaves
from ..posterior import Model
from .initialise import suggested, units_of

SHARE = 0.05  # of the variance of y that is taken for noise
LONGER = 0.5  # a lengthscale is believed to be e^½ times as long as where learning starts
TERM = 1.0  # width of the logarithm of a lengthscale or a variance
NOISE = 1.7  # of the noise variance
PERIOD = 0.5
BENDS = (0.0, 3.0)  # of a spline: a trend may be a line, or turn many times
STEPS = (0.0, 2.0)  # of a random walk
OWN_PART = (-2.0, 3.0)  # of an output of filters, of its variance: it may share everything, or half
OTHER = 1.5
LENGTH = 0.1  # of the columns of free numbers that stand for directions, around one
FREEDOM = 2.0  # degrees of freedom of the density of a logarithm that may be far off
LEVEL = 2.0  # of levels, slopes and places, in units of the data


class Own(NamedTuple):
    """Densities of the entries r of Wθ − c, between bounds of θ: normal, or Student-t where tails are heavy."""

    whiten: Float[np.ndarray, "Q P"]
    center: Float[np.ndarray, " Q"]
    heavy: np.ndarray
    log_size: float
    bounds: Float[np.ndarray, "P 2"]

    def log_prob(self, theta: Float[np.ndarray, " P"]) -> tuple[float, Float[np.ndarray, " P"]]:
        """The log density and its gradient: nothing beyond the bounds."""
        r = self.whiten @ theta - self.center
        slope = np.where(self.heavy, (FREEDOM + 1) * r / (FREEDOM + r * r), r)
        return float(self.log_probs(theta[None])[0]), -(slope @ self.whiten)

    def log_probs(self, thetas: Float[np.ndarray, "S P"]) -> Float[np.ndarray, " S"]:
        """The log densities of several θ."""
        logs = log_of_one(thetas @ self.whiten.T - self.center, self.heavy, np)
        inside = np.all((thetas >= self.bounds[:, 0]) & (thetas <= self.bounds[:, 1]), axis=1)
        return np.where(inside, np.sum(logs, axis=1) - self.log_size, -np.inf)


def log_of_one(r: Any, heavy: Any, xp: Any) -> Any:
    """The log density of r, up to a constant: −½r², or that of Student's t."""
    return xp.where(heavy, -0.5 * (FREEDOM + 1) * xp.log1p(r * r / FREEDOM), -0.5 * r * r)


class WeakBeliefs(NamedTuple):
    """Normal densities of the entries of z, θ = A z, and where other densities take their place.

    An infinite width means that nothing is believed, and that the entry stays at its best.
    """

    center: Float[np.ndarray, " P"]
    width: Float[np.ndarray, " P"]
    units: Float[np.ndarray, "P P"]
    ours: np.ndarray  # which entries have the normal density; the others have one of the values, and the volume of the map
    bounds: Float[np.ndarray, "P 2"]  # of θ, by the user
    heavy: np.ndarray | None = None  # which entries have Student's t in place of the normal density; none for None

    @property
    def tails(self) -> np.ndarray:
        """Which entries have Student's t."""
        return np.zeros(len(self.center), bool) if self.heavy is None else np.asarray(self.heavy)

    @property
    def averaged(self) -> np.ndarray:
        """Which entries are averaged over."""
        return np.isfinite(self.width)

    def own(self) -> Own:
        """The density of θ as far as it is ours."""
        own = self.ours & self.averaged
        whiten = np.linalg.inv(self.units)[own] / self.width[own, None]
        return Own(whiten, self.center[own] / self.width[own], self.tails[own], self._log_size(own), self.bounds)

    def _log_size(self, own: np.ndarray) -> float:
        """The logarithm of what the densities integrate to between the bounds without it."""
        from scipy.special import beta, ndtr, stdtr

        unit = np.abs(np.diag(self.units)[own])
        low, high = ((bound / unit - self.center[own]) / self.width[own] for bound in self.bounds[own].T)
        heavy = self.tails[own]
        size = np.where(heavy, np.sqrt(FREEDOM) * beta(0.5, 0.5 * FREEDOM), np.sqrt(2 * np.pi))
        within = np.where(heavy, stdtr(FREEDOM, high) - stdtr(FREEDOM, low), ndtr(high) - ndtr(low))
        return float(np.sum(np.log(self.width[own] * unit * size * within)))

    def z(self, theta: Float[np.ndarray, " *S P"]) -> Float[np.ndarray, " *S P"]:
        """θ without units."""
        return np.linalg.solve(self.units, theta.T).T

    def sample(self, model: Any, rng: np.random.Generator, count: int) -> Float[np.ndarray, "S P"]:
        """Draws of θ before the data; entries about which nothing is believed are at their start."""
        wide = np.where(self.averaged, self.width, 0.0)
        drawn = rng.standard_normal((count, len(self.center)))
        drawn /= np.where(self.tails, np.sqrt(rng.chisquare(FREEDOM, drawn.shape) / FREEDOM), 1.0)
        thetas = (self.center + wide * drawn) @ self.units.T
        at = 0
        for leaf in learned_leaves(model):
            part = slice(at, at := at + leaf.free_size)
            if not _is_ours(leaf):
                thetas[:, part] = [
                    np.ravel(leaf.support.free(_drawn(leaf, rng))) for _ in range(count)
                ]  # of directions as it is
        outside = np.any((thetas < self.bounds[:, 0]) | (thetas > self.bounds[:, 1]), axis=1)
        if outside.any():
            thetas[outside] = self.sample(model, rng, int(outside.sum()))
        return thetas


def believe(model: Model, X: Float[np.ndarray, "N D"], data: Data) -> WeakBeliefs:
    """Weak beliefs about the learned parameters of a model of these data."""
    A = units_of(model, X, data)
    A = np.diag(A) if A.ndim == 1 else A
    learned = learned_leaves(model)
    rules = _rules(model)
    shift, width, ours, bounds, heavy = [], [], [], [], []
    for leaf in learned:
        size = leaf.free_size
        more, wide = _width(leaf, rules)
        shift.append(np.full(size, more))
        width.append(wide)
        ours.append(np.full(size, _is_ours(leaf)))
        heavy.append(np.full(size, not model.likelihood.tells_size and leaf.path.endswith("variance")))
        bounds.append(np.tile(free_bounds(leaf) or (-np.inf, np.inf), (size, 1)))
    joined = lambda parts, empty: np.concatenate(parts) if parts else empty
    center = np.linalg.solve(A, free_vector(suggested(model, X, data, SHARE))) + joined(shift, np.zeros(0))
    mask, tails = (joined(which, np.zeros(0, bool)) for which in (ours, heavy))
    return WeakBeliefs(center, joined(width, np.zeros(0)), A, mask, joined(bounds, np.zeros((0, 2))), tails)


def _drawn(leaf: Leaf, rng: np.random.Generator) -> np.ndarray:
    """A value from the density of one parameter that is not ours."""
    shape = np.shape(leaf.value)
    if leaf.prior is not None:
        return leaf.prior.sample(rng, shape)
    if isinstance(leaf.support, Simplex):
        return rng.dirichlet(np.ones(shape[-1]), shape[:-1])
    columns = rng.standard_normal(shape)
    return columns / np.linalg.norm(columns, axis=0) * (1 + LENGTH * rng.standard_normal(shape[1:]))


def _is_ours(leaf: Leaf) -> bool:
    """Whether the density is normal: that of numbers which are alike says nothing of their size, so ours does."""
    proper = leaf.prior is not None and not isinstance(leaf.prior, Alike)
    return not proper and not isinstance(leaf.support, (Simplex, Orthonormal))


def _width(leaf: Leaf, rules: dict[str, tuple[float, float]]) -> tuple[float, np.ndarray]:
    """By how much a parameter is believed to be larger than where it starts, and how sure that is."""
    size = leaf.free_size
    if isinstance(leaf.support, Real):
        return 0.0, np.full(size, LEVEL)
    more, width = rules.get(leaf.path, (0.0, OTHER))
    wide = np.full(size, width)
    if isinstance(leaf.prior, Alike):
        wide *= np.sqrt(size)  # all together are as unsure as one: how much they differ is said already
    if isinstance(leaf.support, Increasing):
        wide[0] = LEVEL
    return more, np.full(size, OTHER) if leaf.prior is not None and np.isinf(width) else wide


def _rules(model: Model) -> dict[str, tuple[float, float]]:
    """What the rules say of the parameters of every node of a model, by path."""
    found: dict[str, tuple[float, float]] = {}

    def walk(node: Any, path: str) -> None:
        if isinstance(node, Parametrised):
            found.update({f"{path}.{name}".lstrip("."): rule for name, rule in widths(node).items()})
            for name in type(node).__dataclass_fields__:
                walk(getattr(node, name), f"{path}.{name}")
        elif isinstance(node, tuple):
            for index, item in enumerate(node):
                walk(item, f"{path}[{index}]")

    walk(model, "")
    return found


@singledispatch
def widths(node: Any) -> dict[str, tuple[float, float]]:
    """For own parameters of a node by name: by how much they are believed to be larger than their start, and the width.

    Both are of the logarithm. Parameters without a rule are around their start.
    """
    return {"variance": (0.0, TERM), "scale": (0.0, TERM)}


@widths.register(Radial)
@widths.register(ProductMatern)
def _(kernel: Radial | ProductMatern) -> dict[str, tuple[float, float]]:
    return {"lengthscale": (LONGER, TERM), "variance": (0.0, TERM)}


@widths.register
def _(metric: GroupMetric) -> dict[str, tuple[float, float]]:
    return {"lengthscales": (LONGER, TERM)}


@widths.register(Cosine)
@widths.register(Periodic)
@widths.register(DampedOscillator)
def _(kernel: Cosine | Periodic | DampedOscillator) -> dict[str, tuple[float, float]]:
    given = "period" in dict(kernel.notes) or not np.all(kernel.period == type(kernel).__dataclass_fields__["period"].default)
    return {"period": (0.0, PERIOD if given else np.inf), "variance": (0.0, TERM)}


@widths.register(Spline)
@widths.register(IntegratedWiener)
def _(kernel: Spline | IntegratedWiener) -> dict[str, tuple[float, float]]:
    return {"variance": BENDS}


@widths.register
def _(kernel: Wiener) -> dict[str, tuple[float, float]]:
    return {"variance": STEPS}


@widths.register
def _(kernel: Filters) -> dict[str, tuple[float, float]]:
    return {"variance": OWN_PART}


@widths.register(Gaussian)
@widths.register(LogGaussian)
def _(likelihood: Gaussian | LogGaussian) -> dict[str, tuple[float, float]]:
    return {"noise": (0.0, NOISE)}
