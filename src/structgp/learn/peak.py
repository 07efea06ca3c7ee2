"""A density of θ near its mode, and what an average over θ is made of.

With the mode θ̂, H minus the Hessian of the log density there (in z, where θ = A z has no units) and H = VΛVᵀ, the coordinates u
of θ = A (ẑ + R u), R = VΛ^(−½)Vᵀ, are standard normal to second order. Eigenvalues below a quarter of the widest belief's
precision are a ridge, and are raised to that. Laplace's evidence is log p(y, θ̂) + (P/2) log 2π − ½ log|H|.

Where a belief has heavy tails the density is skewed: labels hardly bound the variance of f. There a look on both sides along
each u says how wide the density is, and scores are of normals split at the mode (Martins, Simpson, Lindgren and Rue 2013).
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from .._types import whole
from ..engines.base import NOT_SAID
from ..engines.machine import Work, reference
from ..linalg.sobol import sobol
from .believe import WeakBeliefs
from .density import Density

STEPS = (1e-3, 3e-2, 0.2)  # of z, from the mode to the gradients whose difference is a Hessian
NEAR = 0.1  # of a standard deviation: steps are no longer, where the data tell a parameter that well
ROUGH = 0.02  # what of it may not be symmetric
SIDE = 2.0  # of u, on both sides of the mode: as far as members go
NARROWEST, WIDEST = 0.05, 3.0  # times the standard deviation by the curvature that a side may have
LEAST = 0.06  # curvature that counts
LEVELS = (0.05, 0.5, 0.95)  # of the quantiles that are shown
NODES, SHOWN = 20, 512  # points behind the moments of one number: of a normal, and of what is none
ENOUGH = 100  # rows for each parameter beyond which an average changes predictions by less than a hundredth
FEW_LOOKS = 100  # at the density, for its curvature, that are taken without being asked for whatever they cost
PATIENCE = 60.0  # seconds that more of them may take, on the machine by which algorithms are ranked
LARGEST = 2000  # rows up to which it is taken without being asked for
CHAINS = {"hmc": (25, 8), "nuts": (25, 8), "metropolis": (200, 1), "slice": (50, 6)}  # steps, and looks at the density in each
LOOKS = {"ccd": 1, "grid": 4, "importance": 8, "ais": 600}  # for each member, about
PAIRED, SINGLE = 6, 16  # members of Laplace's approximation, and of what draws each by itself


@dataclasses.dataclass(frozen=True)
class Averaging:
    """How parameters are averaged over: by which method, with how many members, and what makes it repeatable.

    `members` are None for what suits the method: six of Laplace's approximation, in pairs on both sides of the mode, are worth
    as much as sixteen that are not. `polish` moves them along that many trajectories of the true density, which helps where it
    is skewed. `steps` are those of chains, or None for what suits the method.
    """

    method: str = "laplace"
    members: int | None = None
    seed: int = 0
    polish: int = 0
    steps: int | None = None

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise ValueError(f"Averaging: method must be one of {METHODS}, got {self.method!r}")
        if self.members is not None:
            whole(self.members, "members", 2)
        whole(self.polish, "polish")

    def evaluations(self, free: int) -> int:
        """About how often the density of so many parameters is looked at: for its curvature at the mode, and by draws."""
        steps, each = CHAINS.get(self.method, (1, LOOKS.get(self.method, 5 * self.polish)))
        return 2 * free + self.count * (self.steps or steps) * each

    def work(self, free: int, evaluation: Work) -> Work:
        """What they take, and the Hessian of so many parameters: its eigenvectors, and gradients without units."""
        return self.evaluations(free) * evaluation + Work(products=8.0 * free**3, eigen=float(free) ** 3)

    @property
    def count(self) -> int:
        """How many members there are."""
        return self.members or (PAIRED if self.method == "laplace" else SINGLE)


METHODS = ("laplace", "ccd", "grid", "importance", "hmc", "nuts", "metropolis", "slice", "ais")
WORDS = ("auto", "best", *METHODS)


class Decision(NamedTuple):
    """Whether parameters are averaged over, and how, and why (or why not)."""

    averaging: Averaging | None
    reason: str


def choose(parameters: Any, rows: int, free: int, method: str = "evidence", evaluation: Work = NOT_SAID) -> Decision:
    """What is done about parameters that so many rows leave unsure, and why; `evaluation` is what one look at them takes."""
    if not isinstance(parameters, (str, Averaging)) or (isinstance(parameters, str) and parameters not in WORDS):
        raise ValueError(f"parameters must be one of {WORDS}, or an Averaging, got {parameters!r}")
    if parameters == "best":
        return Decision(None, "")
    if not free:
        return Decision(None, "best: there is nothing to learn")
    if isinstance(parameters, str) and parameters == "auto":
        if method != "evidence":
            return Decision(None, f"best: method={method!r} looks for the highest evidence")
        if rows > LARGEST:
            return Decision(None, f"best: more than {LARGEST} rows leave little of them unsure")
        if rows > ENOUGH * free:
            return Decision(None, f"best: more than {ENOUGH} rows for each of {free} parameters leave little of them unsure")
        seconds = reference().seconds(Averaging().work(free, evaluation))
        if 2 * free > FEW_LOOKS and seconds > PATIENCE:
            long = f"an average over {free} parameters of {rows} rows takes minutes"
            return Decision(None, f"best: {long}: parameters='laplace' asks for it")
        few = "few" if rows == 1 else f"{rows} rows for {free} parameters"
        return Decision(Averaging(), f"averaged over: {few} leave them unsure")
    if method != "evidence":
        raise ValueError(f"method={method!r} finds the best parameters only: leave it out to average, or say parameters='best'")
    averaging = parameters if isinstance(parameters, Averaging) else Averaging(str(parameters))
    return Decision(averaging, "averaged over, as asked for")


@dataclasses.dataclass(frozen=True)
class Evidence:
    """log p(y) with the parameters integrated out, its standard error where it is known, and the effective draws behind it."""

    log: float
    error: float | None = None
    method: str = "laplace"
    effective: float | None = None
    evaluations: int = 0
    remark: str = ""

    def __float__(self) -> float:
        return self.log

    def __str__(self) -> str:
        error = "" if self.error is None else f" ± {self.error:.2g}"
        return f"{self.log:.6g}{error} ({self.method}{'; ' + self.remark if self.remark else ''})"


@dataclasses.dataclass(frozen=True)
class Draws:
    """θ with weights that sum to one, and the evidence that they stand for."""

    thetas: Float[np.ndarray, "K P"]
    weights: Float[np.ndarray, " K"]
    evidence: Evidence
    method: str
    center: Float[np.ndarray, " P"]  # the mode
    spread: Float[np.ndarray, "P P"]  # the covariance of θ at the mode
    beliefs: WeakBeliefs  # before the data
    sides: Float[np.ndarray, "2 Q"] | None = (
        None  # of the density that few draws stand for; None where they speak for themselves
    )

    @property
    def effective(self) -> float:
        """How many equally weighted draws these are worth."""
        return float(1 / np.sum(self.weights**2))

    def marginal(self, entry: int) -> Marginal:
        """What is believed of one number of θ: what the draws stand for, or what they say themselves."""
        if self.sides is None:
            return _of_points(self.thetas[:, entry], self.weights)
        if np.all(self.sides == 1):
            center, sd = self.center[entry], np.sqrt(self.spread[entry, entry])
            nodes, mass = np.polynomial.hermite_e.hermegauss(NODES)
            return Marginal(center + sd * nodes, mass / mass.sum(), center + sd * scores(np.array(LEVELS)))
        return _of_points(self._shape[:, entry], np.full(SHOWN, 1 / SHOWN))

    @functools.cached_property
    def _shape(self) -> Float[np.ndarray, "S P"]:
        """Evenly spread points of the normals that are split at the mode."""
        assert self.sides is not None
        A, moved = self.beliefs.units, np.flatnonzero(self.beliefs.averaged)
        inverse = np.linalg.inv(A)
        values, vectors = np.linalg.eigh((inverse @ self.spread @ inverse.T)[np.ix_(moved, moved)])
        root = (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T
        z = np.tile(self.beliefs.z(self.center), (SHOWN, 1))
        z[:, moved] += split(normal_scores(len(moved), SHOWN, 0), self.sides) @ root.T
        return z @ A.T


class Marginal(NamedTuple):
    """Points with weights that have the moments of what is believed of one number, and its quantiles."""

    nodes: Float[np.ndarray, " S"]
    weights: Float[np.ndarray, " S"]
    quantiles: Float[np.ndarray, " Q"]  # at LEVELS


def _of_points(nodes: Float[np.ndarray, " S"], weights: Float[np.ndarray, " S"]) -> Marginal:
    order = np.argsort(nodes)
    below = np.cumsum(weights[order]) - 0.5 * weights[order]
    return Marginal(nodes, weights, np.interp(LEVELS, below, nodes[order]))


def split(u: Float[np.ndarray, "K Q"], sides: Float[np.ndarray, "2 Q"]) -> Float[np.ndarray, "K Q"]:
    """Where standard normal scores are, as quantiles, among normals that are so wide below and above zero."""
    from scipy.special import ndtr, ndtri

    below, above = sides
    share = below / (below + above)  # of the mass
    low = below * ndtri(np.minimum(ndtr(u) / (2 * share), 0.5))
    high = -above * ndtri(np.minimum(ndtr(-u) / (2 * (1 - share)), 0.5))
    return np.where(ndtr(u) < share, low, high)


class Peak:
    """A density of θ in the coordinates u in which it is standard normal near its mode."""

    def __init__(self, density: Density, theta: Float[np.ndarray, " P"]) -> None:
        self.density, self.mode, beliefs = density, theta, density.beliefs
        self.moved = np.flatnonzero(beliefs.averaged)
        self.center = beliefs.z(theta)
        self.height = density(theta)[0]
        H, self.evaluations = self._curvature()
        values, vectors = np.linalg.eigh(H)
        least = 0.25 / np.max(beliefs.width[self.moved], initial=1.0) ** 2
        self.ridges = int(np.sum(values < least))
        self.root = (vectors / np.sqrt(np.maximum(values, least))) @ vectors.T  # that of eigenvectors has signs of its own
        scale = np.log(np.abs(np.diag(beliefs.units)[self.moved]))
        self.log_scale = float(np.sum(scale) - 0.5 * np.sum(np.log(np.maximum(values, least))))  # log |∂θ/∂u|

    def _curvature(self) -> tuple[Float[np.ndarray, "Q Q"], int]:
        """Minus the Hessian in z at the mode, by differences of gradients: right for every engine.

        What rounding leaves of gradients shows in what is not symmetric; then the differences are taken further apart.
        """
        evaluations, Q = 0, len(self.moved)
        for step in STEPS:
            steps = np.full(Q, step)
            H = self._differences(steps, np.arange(Q))
            sure = np.flatnonzero(np.diagonal(H) * step**2 > NEAR**2)  # a period that has come again and again
            steps[sure] = NEAR / np.sqrt(np.diagonal(H)[sure])
            if len(sure):
                H[sure] = self._differences(steps, sure)
            evaluations += 2 * (Q + len(sure))
            scale = np.sqrt(np.maximum(np.abs(np.diagonal(H)), LEAST))
            if np.all(np.abs(H - H.T) <= ROUGH * scale[:, None] * scale[None, :]):
                break
        return 0.5 * (H + H.T), evaluations

    def _differences(self, steps: Float[np.ndarray, " Q"], rows: np.ndarray) -> Float[np.ndarray, "R Q"]:
        """Some rows of it."""
        A, along = self.density.beliefs.units, np.zeros((len(rows), len(self.center)))
        along[np.arange(len(rows)), self.moved[rows]] = steps[rows]
        gradients = self.density.looks(np.concatenate([self.center + along, self.center - along]) @ A.T)[1] @ A
        up, down = np.split(gradients[:, self.moved], 2)
        return (down - up) / (2 * steps[rows, None])

    @functools.cached_property
    def sides(self) -> Float[np.ndarray, "2 Q"]:
        """How wide the density is below and above its mode along each u, where a normal one has standard deviation 1.

        It is looked at where a belief has heavy tails. Elsewhere the slices through the mode, with all other numbers held,
        would be narrower than what is to be averaged over.
        """
        if not np.any(self.density.beliefs.tails[self.moved]):
            return np.ones((2, self.size))
        steps = SIDE * np.eye(self.size)
        fallen = self.height - self.density.looks(self.within(np.concatenate([-steps, steps])))[0]
        self.evaluations += 2 * self.size
        wide = SIDE / np.sqrt(2 * np.maximum(fallen, 1e-3))
        return np.clip(wide, NARROWEST, WIDEST).reshape(2, self.size)

    @property
    def size(self) -> int:
        """How many parameters are averaged over."""
        return len(self.moved)

    def thetas(self, u: Float[np.ndarray, "K Q"]) -> Float[np.ndarray, "K P"]:
        """θ at these coordinates."""
        z = np.tile(self.center, (len(u), 1))
        z[:, self.moved] += u @ self.root.T
        return z @ self.density.beliefs.units.T

    def within(self, u: Float[np.ndarray, "K Q"]) -> Float[np.ndarray, "K P"]:
        """The same, moved to the bounds where it lies beyond them."""
        return np.clip(self.thetas(u), *self.density.beliefs.bounds.T)

    def values(self, u: Float[np.ndarray, "K Q"]) -> Float[np.ndarray, " K"]:
        """The log density of u."""
        return self.density.values(self.thetas(u)) + self.log_scale

    def values_and_slopes(self, u: Float[np.ndarray, "K Q"]) -> tuple[Float[np.ndarray, " K"], Float[np.ndarray, "K Q"]]:
        """The same with gradients."""
        values, gradients = self.density.many(self.thetas(u)).summed()
        return values + self.log_scale, (gradients @ self.density.beliefs.units)[:, self.moved] @ self.root

    def evidence(self) -> Evidence:
        """Laplace's approximation."""
        log = self.height + self.log_scale + 0.5 * self.size * np.log(2 * np.pi)
        many = "" if self.ridges == 1 else "s"
        remark = f"{self.ridges} direction{many} in which the data say nothing" if self.ridges else ""
        return Evidence(float(log), None, "laplace", None, self.evaluations, remark)

    def draws(
        self,
        thetas: np.ndarray,
        weights: np.ndarray,
        evidence: Evidence,
        method: str,
        sides: Float[np.ndarray, "2 Q"] | None = None,
    ) -> Draws:
        """Members of an average; `sides` where they stand for a normal approximation."""
        A, P = self.density.beliefs.units, len(self.center)
        spread = np.zeros((P, P))
        spread[np.ix_(self.moved, self.moved)] = self.root @ self.root.T
        return Draws(
            thetas, weights / weights.sum(), evidence, method, self.mode, A @ spread @ A.T, self.density.beliefs, sides
        )


def resampled(weights: Float[np.ndarray, " K"], count: int, rng: np.random.Generator) -> np.ndarray:
    """Systematic resampling: so many numbers of draws, each as often as its weight says, up to rounding."""
    places = (rng.uniform() + np.arange(count)) / count
    return np.minimum(np.searchsorted(np.cumsum(weights) / weights.sum(), places), len(weights) - 1)


def normalised(logs: Float[np.ndarray, " K"]) -> tuple[float, Float[np.ndarray, " K"]]:
    """log Σ exp, and the weights that sum to one."""
    top = logs.max()
    weights = np.exp(logs - top)
    return float(top + np.log(weights.sum())), weights / weights.sum()


def normal_scores(size: int, count: int, seed: Any) -> Float[np.ndarray, "K Q"]:
    """Standard normal points that are spread evenly."""
    return scores(sobol(size, count, seed))


def student_scores(size: int, count: int, seed: Any, freedom: float) -> Float[np.ndarray, "K Q"]:
    """Points of a t distribution that are spread evenly."""
    from scipy.special import gammaincinv

    uniform = sobol(size + 1, count, seed)
    return scores(uniform[:, :-1]) * np.sqrt(freedom / (2 * gammaincinv(freedom / 2, uniform[:, -1:])))


def paired_scores(size: int, count: int, seed: Any) -> Float[np.ndarray, "K Q"]:
    """The same in pairs u and −u, as far from zero as normal ones on average: right for linear functions and for uᵀu."""
    half = normal_scores(size, (count + 1) // 2, seed)
    u = np.concatenate([half, -half])[:count]
    return u * np.sqrt(size / np.mean(np.sum(u * u, axis=1))) if size else u


def scores(uniform: np.ndarray) -> np.ndarray:
    """Normal quantiles."""
    from scipy.special import ndtri

    return ndtri(uniform)
