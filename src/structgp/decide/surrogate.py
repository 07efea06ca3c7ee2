"""What is believed of an expensive function after a few measurements, in programs that serve a growing history.

Rows are filled up to a *capacity* with places that were not seen, so that one measurement more is the same program:

    learn      climbs of the density of θ from four starts side by side, and its shape at the mode
    believe    the processes at the members of the average, given measurements and pending ones

In the unit cube, of measurements with mean 0 and variance 1, is believed (weakly, each by itself):

    lengthscale      log-normal around e^√2 √D, width √3 (Hvarfner, Hellsten and Nardi 2024)
    variance         log-normal around 1, width 1
    noise variance   log-normal around 1e-4, width 2.5, and at least 1e-9
    constant         standard normal, integrated out

What else a kernel has is believed as in `learn.believe`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._types import by_the_host, whole
from ..background import Program
from ..engines.cholesky import Cholesky
from ..inputs.layouts import Points
from ..inputs.observations import Data
from ..inputs.rows import filled
from ..kernels.algebra import Kernel
from ..kernels.stationary import Matern52
from ..learn.average import average
from ..learn.believe import WeakBeliefs, believe
from ..learn.density import Density
from ..learn.evidence import GaussianEvidence
from ..learn.lockstep import minimise_all
from ..learn.objective import Objective
from ..learn.peak import Averaging, Draws, Evidence
from ..likelihoods.gaussian import Gaussian
from ..linalg.dense.cholesky import one_lapack_thread
from ..means import Basis, Powers
from ..parameters.supports import Orthonormal, Positive, Real
from ..parameters.tree import Leaf, free_bounds, learned_leaves, with_free
from ..process.conditioning import posterior_of
from ..process.gp import GP
from .acquire import Belief
from .warp import ValueWarp, fit_warp

CAPACITIES = (32, 64, 128, 256, 512)  # of histories; beyond, powers of two, for what is pending or was asked for
OFTEN = 40  # rows up to which parameters are learned anew for each question; beyond, for every fourth
LEARNED = 224  # rows that parameters are learned from at most
MOST_SURVEYED = 2048  # evaluations of a function for its gradient or integral
STARTS = 4  # climbs side by side, and θ in one computation
TICKS = 60
FURTHEST = 4.0  # widths from its centre that a parameter is looked for
LEAST_NOISE = 1e-9
EXACT = 1e-10  # stands for the noise variance of exact measurements: below, covariances of smooth functions are singular
ANGLE = math.pi / math.sqrt(3)  # as wide as all angles
SHORT = 1.5  # widths below its centre where one climb begins with every lengthscale


def capacity_for(rows: int) -> int:
    """The number of rows that a history of this length is filled up to."""
    return max(CAPACITIES[0], 1 << max(rows - 1, 0).bit_length())


@dataclasses.dataclass(frozen=True)
class Measured:
    """Rows that models see, filled up: places, values (small ones are good), known noise variances, and which were seen."""

    X: Float[np.ndarray, "N D"]
    y: Float[np.ndarray, " N"]
    noise: Float[np.ndarray, " N"]
    seen: np.ndarray

    def resized(self, capacity: int, some: Any = slice(None)) -> Measured:
        """The rows that were seen, or some of them, in so many."""
        rows = np.flatnonzero(self.seen)[some]
        return Measured.filled(self.X[rows], self.y[rows], self.noise[rows], capacity)

    @classmethod
    def filled(cls, X: np.ndarray, y: np.ndarray, noise: np.ndarray, capacity: int) -> Measured:
        """Some rows in so many; exact measurements have a little noise."""
        noise = np.maximum(noise, EXACT)
        seen = np.arange(capacity) < len(y)
        pad = lambda values: np.concatenate([values, np.zeros(capacity - len(values))])
        return cls(filled(X, capacity), pad(y), pad(noise), seen)

    def data(self) -> Data:
        """As an engine takes it."""
        return Data(self.y[:, None], self.noise, self.seen)


@dataclasses.dataclass(frozen=True)
class Learned:
    """What is believed of the parameters of one model."""

    gp: GP
    draws: Draws
    measured: Measured
    evaluations: int


def prior(kernel: Any, columns: int, noise: float | None) -> GP:
    """A model of a function of the unit cube; `noise` is None where it is learned, or known of each measurement."""
    if isinstance(kernel, GP):
        return kernel
    if kernel is not None and not isinstance(kernel, Kernel):
        raise TypeError(f"a model is a kernel such as Matern52() or a GP, got {kernel!r}")
    kernel = Matern52(lengthscale=np.full(columns, math.exp(math.sqrt(2)) * math.sqrt(columns))) if kernel is None else kernel
    return GP(kernel, Gaussian(1e-4 if noise is None else 0.0), Basis(Powers(0), 0.0, 1.0))


@by_the_host
def unlearned(gp: GP, measured: Measured, members: int) -> Learned:
    """A model of which nothing is learned: every member is at the centre of what is believed."""
    beliefs = beliefs_about(gp, measured)
    theta, P = beliefs.center @ beliefs.units.T, len(beliefs.center)
    same = np.tile(theta, (members, 1)), np.full(members, 1 / members)
    return Learned(gp, Draws(*same, Evidence(0.0), "laplace", theta, np.zeros((P, P)), beliefs), measured, 0)


@by_the_host
@one_lapack_thread  # climbs side by side
def learn(
    gp: GP,
    measured: Measured,
    last: np.ndarray | None,
    members: int,
    seed: int,
    climbs: bool = True,
    method: str = "laplace",
) -> Learned:
    """The parameters of a model given measurements; without climbs the last mode is kept, and only its shape looked at."""
    density = _density(gp, measured)
    beliefs = density.beliefs
    if not len(beliefs.center):
        raise ValueError("the model has no parameters to learn: leave some of them free, or see GP.condition")
    theta, evaluations = last, 0
    if last is None or climbs:
        rng = np.random.default_rng([seed, 1])
        starts = beliefs.sample(gp, rng, STARTS)
        starts[1], starts[2] = beliefs.center @ beliefs.units.T, np.where(_turns(gp), starts[2], _short(gp, beliefs))
        if last is not None:
            starts[0] = last
        low, high = _limits(beliefs)
        bounds = np.tile(np.stack([low, high], axis=1), (STARTS, 1, 1))
        ends = minimise_all(
            lambda thetas: tuple(-part for part in density.many(thetas).summed()),  # type: ignore[arg-type, return-value]
            starts,
            bounds,
            relative=1e-9,
            flat=1e-3,
            max_evaluations=TICKS,
        )
        theta = ends.theta[int(np.nanargmin(ends.value))]
        evaluations = int(ends.evaluations.max())
    assert theta is not None
    with np.errstate(over="ignore"):  # chains may try what is out of reach
        draws = average(density, theta, Averaging(method, max(members, 2), seed))
    thetas = np.array(draws.thetas[:members])
    if method == "laplace":
        thetas[0] = theta
    thetas = np.clip(thetas, *_limits(beliefs))
    weights = np.full(members, 1 / members)
    return Learned(gp, dataclasses.replace(draws, thetas=thetas, weights=weights), measured, evaluations)


def _density(gp: GP, measured: Measured) -> Density:
    inputs, data = Points(measured.X), measured.data()
    evidence = GaussianEvidence(gp, inputs, data, Cholesky(), together=STARTS)
    objective = Objective(gp, evidence, 0.0, evidence.many, together=True)
    return Density(objective, beliefs_about(gp, measured))


def beliefs_about(gp: GP, measured: Measured) -> WeakBeliefs:
    """Weak beliefs about the parameters of a function of the unit cube."""
    seen = measured.seen
    rows = measured.X[seen], Data(measured.y[seen][:, None], measured.noise[seen], seen[seen])
    general = believe(gp, *rows)
    center, width, bounds, at = general.center.copy(), general.width.copy(), general.bounds.copy(), 0
    D = measured.X.shape[1]
    ours = {
        "lengthscale": (math.sqrt(2) + 0.5 * math.log(D), math.sqrt(3)),
        "variance": (0.0, 1.0),
        "noise": (math.log(1e-4), 2.5),
    }
    for leaf in learned_leaves(gp):
        part = slice(at, at := at + leaf.free_size)
        if leaf.prior is not None or not np.all(general.ours[part]):
            continue
        if _is_angle(leaf):  # of rotations: all alike
            center[part], width[part] = 0.0, ANGLE / np.abs(np.diag(general.units)[part])
        if not (isinstance(leaf.support, Positive) or leaf.path == "likelihood.noise"):
            continue
        name = next((name for name in ours if name in leaf.path.split(".")), None)
        if name is None:
            continue
        center[part], width[part] = ours[name]
        if leaf.path == "likelihood.noise" and free_bounds(leaf) is None:
            bounds[part, 0] = math.log(LEAST_NOISE)
    return general._replace(center=center, width=width, bounds=bounds)


def _short(gp: GP, beliefs: WeakBeliefs) -> np.ndarray:
    """θ at the centre of beliefs, but for short lengthscales: where long ones make a matrix singular, a climb begins there."""
    names = [leaf.path.split(".") for leaf in learned_leaves(gp) for _ in range(leaf.free_size)]
    short = np.array(["lengthscale" in name for name in names])
    return (beliefs.center - SHORT * np.where(short & beliefs.averaged, beliefs.width, 0.0)) @ beliefs.units.T


def _turns(gp: GP) -> np.ndarray:
    """Which entries of θ say how a kernel is turned: one climb begins in axes that are drawn, as if the places were turned."""
    turns = [isinstance(leaf.support, Orthonormal) or _is_angle(leaf) for leaf in learned_leaves(gp)]
    return np.repeat(np.array(turns, bool), [leaf.free_size for leaf in learned_leaves(gp)])


def _is_angle(leaf: Leaf) -> bool:
    return isinstance(leaf.support, Real) and leaf.path.endswith("angles")


def _limits(beliefs: WeakBeliefs) -> tuple[np.ndarray, np.ndarray]:
    """How far from its centre θ is looked for: the bounds of the user, and some widths where an entry has units of its own."""
    A = beliefs.units
    alone = (np.count_nonzero(A, axis=1) == 1) & (np.diag(A) != 0) & beliefs.ours & beliefs.averaged
    reach = np.where(alone, FURTHEST * beliefs.width * np.abs(np.diag(A)), np.inf)
    middle = np.where(alone, beliefs.center * np.diag(A), 0.0)
    return np.maximum(beliefs.bounds[:, 0], middle - reach), np.minimum(beliefs.bounds[:, 1], middle + reach)


@by_the_host
def belief_of(
    learned: Learned, measured: Measured, pending: np.ndarray, good: np.ndarray, log_weight: float = 0.0
) -> tuple[Belief, Float[np.ndarray, "K N"]]:
    """The processes at all members given what was measured, and their means at all rows.

    Pending rows are believed at the mean of each member. `good` are the rows among which the best is looked for.
    """
    K, N = len(learned.draws.thetas), len(measured.y)
    Y = np.broadcast_to(measured.y[None, :, None], (K, N, 1))
    arguments = learned.draws.thetas, learned.gp, measured.X
    seen, members_at = measured.seen & ~pending, _members.of(N)
    members, means, scale = members_at(*arguments, Y, measured.noise, seen)
    rows = np.asarray(means)
    if pending.any():
        Y = np.where(pending[None, :], rows, measured.y[None, :])[..., None]
        members, _, _ = members_at(*arguments, Y, measured.noise, seen | pending)
    found = seen & good if (seen & good).any() else seen
    fine = np.isfinite(rows[:, seen]).all(axis=1)  # a member without a factor does not count
    log_weights = np.where(fine, log_weight + np.log(np.maximum(learned.draws.weights, 1e-300)), -np.inf)
    if fine.any() and not fine.all():
        members = jax.tree.map(lambda part: jnp.where(_like(fine, part), part, part[int(np.argmax(fine))]), members)
        rows = np.where(fine[:, None], rows, rows[int(np.argmax(fine))])
        log_weights = log_weights - np.log(np.sum(np.exp(log_weights - log_weight)))
    best = np.min(np.where(found, rows, np.inf), axis=1)
    log_weights, best = jax.device_put((log_weights, best))  # jnp.asarray would compile
    return Belief(members, log_weights, best, scale), rows


def _like(flags: np.ndarray, part: Array) -> np.ndarray:
    return flags.reshape(-1, *(1,) * (part.ndim - 1))


@Program
def _members(thetas: Any, gp: Any, X: Any, Y: Any, noise: Any, seen: Any) -> tuple[Any, Array, Array]:
    """The posteriors at several θ, one after the other so that each is repaired by itself; their means at all rows; k(x, x)."""

    def one(arguments: tuple[Array, Array]) -> tuple[Any, Array, Array]:
        theta, y = arguments
        model = with_free(gp, theta)
        posterior = posterior_of(model, Points(X), Data(y, noise, seen), Cholesky())
        mean, _ = posterior.marginals(X)
        return posterior, mean[:, 0], model.kernel.between(X[0], X[0])

    return jax.lax.map(one, (thetas, Y))


class Survey:
    """A function of the unit cube that is measured so many times, place after place: what is believed of it after each."""

    def __init__(self, kernel: Any, columns: int, noise: float | None, evaluations: Any, members: int, seed: int) -> None:
        self.count = whole(evaluations, "evaluations", 3)
        if self.count > MOST_SURVEYED:
            raise ValueError(
                f"evaluations must be at most {MOST_SURVEYED}, got {self.count}: of a process that is fitted to more, "
                "fit(X, y), ask integral(box) or gradient_posterior(x)"
            )
        self._gp, self._noise, self._members, self._seed = prior(kernel, columns, noise), noise, members, seed
        self._mode: np.ndarray | None = None
        self._climbed = 0

    def believe(self, U: Sequence[Any], values: Sequence[float]) -> tuple[ValueWarp, Belief]:
        """The scale of the values, and the processes given them on it; climbs begin where the last ones ended."""
        N, y = len(values), np.array(values)
        scale, few = fit_warp(y, bent=False), capacity_for(LEARNED)
        noise = np.full(N, self._noise or 0.0) * scale.slope(y) ** 2
        measured = Measured.filled(np.array(U), scale(y), noise, min(capacity_for(self.count), max(few, capacity_for(N))))
        shown = measured
        if N > LEARNED:
            shown = measured.resized(few, np.sort(np.random.default_rng([self._seed, 8]).permutation(N)[:LEARNED]))
        climbs = N <= OFTEN or N - self._climbed >= 4 or self.count == N
        learned = learn(self._gp, shown, self._mode, self._members, self._seed, climbs)
        self._mode, self._climbed = learned.draws.center, N if climbs else self._climbed
        return scale, belief_of(learned, measured, np.zeros(len(measured.y), bool), measured.seen)[0]
