"""What every way of finding sites shares: the problem, what it finds, and the evidence as a function of the parameters.

Sites are factors exp(h f − ½ w f²), one for each observation; of several latents f and h are vectors and w a matrix at each
place, in one of the forms of `linalg.blocks`. Whatever the rule that finds them, with Φ the log normaliser of prior times
sites,

    log p(y) ≈ Φ(sites; kernel, mean) + Σ c(site; likelihood),

and the gradient at the solution needs no derivative of the search. Φ and c are stationary in the sites of EP and of the
variational bound. Laplace's evidence depends on the mode f̂ through W(f̂) as well: that adds sᵀ df̂ with s = −½ v ∂W/∂f, which
is the derivative of sᵀE f under sites that are held, and of qᵀ∂log p with q = Σs in the parameters of the likelihood.
"""

from __future__ import annotations

import abc
import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from ..engines.base import Engine
from ..engines.basis import Factors, Whole, columns, free_weights, given_factors, log_normaliser
from ..inputs.layouts import Inputs
from ..inputs.observations import Data
from ..likelihoods.base import Likelihood
from ..linalg.blocks import Blocks, full, own
from ..posterior import Model

TOLERANCE = 1e-7  # in standard deviations of f
MAX_CALLS = 200
FEW_ROWS = 5000  # up to which sites are looked for from a second start
CONVERGED, UNFINISHED, INFEASIBLE, ANNEALED = 0, 1, 2, 3
ALIKE = 1e-2  # of a log evidence: two searches have ended at the same sites
SOFTER = 8  # steps from the widest noise to the likelihood's own
ON_THE_WAY, AT_THE_END = (
    1e-3,
    1e-5,
)  # the tolerances of steps before the last, and of the last: rounding may leave no less there
STATUS = {
    CONVERGED: "converged",
    ANNEALED: "converged by way of an easier problem, to sites that may be poor",
    UNFINISHED: "not converged within the allowed calls",
    INFEASIBLE: "stopped: no further step leaves a density",
}


class Observed(NamedTuple):
    """Observations as a likelihood wants them; `weight` is None when all count once."""

    y: Float[Array, " N"]
    seen: Bool[Array, " N"]
    extra: Float[Array, " N"] | float
    weight: Float[Array, " N"] | None

    @classmethod
    def of(cls, data: Data) -> Observed:
        """The observations of one target."""
        extra = 1.0 if data.extra is None else jnp.asarray(data.extra)
        weight = None if data.weight is None else jnp.asarray(data.weight)
        return cls(jnp.asarray(data.y)[:, 0], jnp.asarray(data.seen), extra, weight)

    def times(self, power: float) -> Any:
        """The power to which each likelihood is taken: a plain number when no observation is weighted."""
        return power if self.weight is None else power * self.weight

    def sum(self, terms: Float[Array, " N"]) -> Float[Array, ""]:
        """The sum over what was seen."""
        return jnp.sum(jnp.where(self.seen, terms, 0.0))


class Problem(eqx.Module):
    """A model, its places and its observations, with the algorithm that conditions on sites."""

    model: Model
    X: Float[Array, "N D"]
    structure: Any
    data: Observed
    engine: Engine = eqx.field(static=True)
    signed: bool = eqx.field(static=True)

    @classmethod
    def of(cls, model: Model, inputs: Inputs, data: Data, engine: Engine, signed: bool, search: bool = True) -> Problem:
        """The problem of a model on data, with the prior in the form that the engine wants for a search, or for a gradient."""
        structure: Any = engine.form(model.kernel, inputs)
        structure = structure.computed(signed) if search else structure
        return cls(model, jnp.asarray(inputs.points), structure, Observed.of(data), engine, signed)

    def given(self, w: Blocks, h: Float[Array, " N *C"], shift: Callable[[Array], Array] | None = None) -> Whole:
        """All of f given sites, and its covariance applied to a function of its variances: one call of the engine."""
        factors = Factors.on(self.model, self.X, w, h, self.signed)
        return given_factors(self.engine, self.structure, self.model, factors, self.X.shape[1], shift)

    def leaves_functions_free(self) -> bool:
        """Whether nothing is known of some basis functions, so that sites that say nothing leave no density."""
        P = columns(self.model, self.X)[1].shape[-1]
        return free_weights(self.model, P, self.X.shape[1]) > 0

    def log_normaliser(self, w: Blocks, h: Float[Array, " N *C"], s: Float[Array, " N *C"] | None = None) -> Float[Array, ""]:
        """log E exp Σ(h f − ½ w f²), and sᵀE f on top, differentiable in the model."""
        factors = Factors.on(self.model, self.X, w, h, self.signed)
        return log_normaliser(self.engine, self.structure, self.model, factors, self.X.shape[1], s)


class Found(NamedTuple):
    """Sites, what they leave of f, and how the search ended; `held` is what a rule keeps fixed in the gradient."""

    w: Any  # `Blocks`
    h: Float[Array, " N *C"]
    mean: Float[Array, " N *C"]
    variance: Float[Array, " N *C"]
    log_evidence: Float[Array, ""]
    held: Any
    calls: Int[Array, ""]
    residual: Float[Array, ""]
    status: Int[Array, ""]


Start = tuple[Any, Float[Array, " N *C"]]  # w, as `Blocks`, and h


class Inference(eqx.Module):
    """A way of finding sites."""

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """What users call it."""

    def form(self, likelihood: Likelihood, count: int) -> Blocks:
        """The precision of one of so many sites of several latents: its shape says how it joins them."""
        C = likelihood.latents
        return jnp.zeros((1, C, C) if likelihood.joins(count) else (1, C))

    def unknown(self, likelihood: Likelihood, count: int) -> Any:
        """A start about which nothing is known."""
        if likelihood.latents == 1:
            return np.full(count, np.nan), np.full(count, np.nan)
        form = jax.eval_shape(lambda: self.form(likelihood, count))
        precision = jax.tree.map(lambda part: np.full((count, *part.shape[1:]), np.nan), form)
        return precision, np.full((count, likelihood.latents), np.nan)

    @abc.abstractmethod
    def find(self, problem: Problem, start: Start, tolerance: Any, max_calls: int) -> Found:
        """The sites, searched from a start, which may be unknown (NaN) in part or altogether."""

    @abc.abstractmethod
    def surrogate(self, problem: Problem, found: Found) -> Float[Array, ""]:
        """A function of the model with the gradient of the evidence at what was found; its value means nothing."""

    def signed(self, likelihood: Likelihood) -> bool:
        """Whether sites of negative precision may occur."""
        return not likelihood.log_concave

    def milder(self, likelihood: Likelihood) -> Sequence[Inference]:
        """Rules that come to an end more often, and lead to this one, the mildest first."""
        return ()


@functools.partial(jax.jit, static_argnames=("engine", "inference"))
def find_sites(
    model: Model,
    inputs: Inputs,
    data: Data,
    engine: Engine,
    inference: Inference,
    start: Start,
    tolerance: Any = TOLERANCE,
) -> Found:
    """The sites of a model with its values as they are."""
    problem = Problem.of(model, inputs, data, engine, inference.signed(model.likelihood))
    return inference.find(problem, start, tolerance, MAX_CALLS)


def search(
    model: Any,
    inputs: Inputs,
    data: Data,
    engine: Engine,
    rule: Inference,
    cold: Start,
    warm: Sequence[Start] = (),
    tolerance: float = TOLERANCE,
    every: bool = False,
) -> Found:
    """The sites from the first of the warm starts that leads to any, or the likeliest from `every` one and those below.

    Else the likeliest that sites which say nothing, and those of the real side of a switch, lead to; where the former
    lead nowhere, also what easier problems lead to, which is then said.
    """
    found: list[Found] = []
    for start in warm:
        found.append(find_sites(model, inputs, data, engine, rule, start, tolerance))
        if found[-1].status == CONVERGED and not every:
            return found[-1]
    from_nothing = find_sites(model, inputs, data, engine, rule, cold, tolerance)
    real = as_the_real_side_says(model, data, cold)
    found += [from_nothing] if real is None else [from_nothing, find_sites(model, inputs, data, engine, rule, real, tolerance)]
    best = likeliest(found)
    if from_nothing.status == CONVERGED:
        return best
    easier = _by_way_of_easier(model, inputs, data, engine, rule, cold, best, tolerance)
    return easier if best.status != CONVERGED or easier.log_evidence > best.log_evidence + ALIKE else best


def _by_way_of_easier(
    model: Any, inputs: Inputs, data: Data, engine: Engine, rule: Inference, start: Start, best: Found, tolerance: float
) -> Found:
    """The sites that those of easier problems lead to, from the easiest on; what there is where there are none."""
    way = _easier(model, rule)
    if not way:
        return best
    for easier, by in way:
        at = find_sites(easier, inputs, data, engine, by, start, ON_THE_WAY)
        start = (at.w, at.h) if at.status == CONVERGED else start
    at = find_sites(model, inputs, data, engine, rule, start, max(tolerance, AT_THE_END))
    return at._replace(status=jnp.asarray(ANNEALED)) if at.status == CONVERGED else best


def _easier(model: Any, rule: Inference) -> list[tuple[Any, Inference]]:
    """Problems that are easier than a model's own, the easiest first: with wider noise, or by milder rules."""
    likelihood = model.likelihood
    if likelihood.softened(0.0) is not likelihood:
        wider = (likelihood.softened(float(t)) for t in np.linspace(0.0, 1.0, SOFTER + 1)[:-1])
        return [(model.replace(likelihood=softer), rule) for softer in wider]
    return [(model, milder) for milder in rule.milder(likelihood)]


def as_the_real_side_says(model: Any, data: Data, unknown: Start) -> Start | None:
    """The sites of observations that all arise as the first leaf of a switch says, if that is Gaussian noise; else None.

    From there EP may end elsewhere than from sites that say nothing. For few rows only: a search takes as long again.
    """
    likelihood, count = model.likelihood, len(unknown[1])
    if not likelihood.gates or count > FEW_ROWS:
        return None
    latent, leaf = likelihood.signal
    if not leaf.is_gaussian or not float(leaf.noise) > 0:
        return None
    return seen_as(unknown, latent, np.asarray(data.y)[:, 0], np.where(data.seen, 1 / float(leaf.noise), 0.0))


def seen_as(unknown: Start, latent: int, y: np.ndarray, precision: np.ndarray) -> Start:
    """Sites, in the form of the unknown ones, of one latent that was seen with Gaussian noise of these precisions."""
    w, h = jax.tree.map(np.zeros_like, unknown)
    of_one = (slice(None),) + (latent,) * (w.ndim - 1)
    w[of_one], h[of_one[: h.ndim]] = precision, precision * np.where(precision > 0, y, 0.0)
    return w, h


def in_the_form_of(unknown: Start, start: Start) -> Start:
    """Sites in the form of those that are unknown, and unknown where there are more of these."""
    w, h = start
    if np.ndim(w) != np.ndim(unknown[0]):
        w = full(w) if np.ndim(unknown[0]) == 3 else own(w)
    return jax.tree.map(lambda part, rest: np.concatenate([part, rest[len(part) :]]), (w, h), unknown)


def likeliest(found: Sequence[Found]) -> Found:
    """Of several answers the one with the largest evidence, if there are any that were reached without easier problems."""
    ended = [one for one in found if one.status == CONVERGED and np.isfinite(one.log_evidence)]
    return max(ended, key=lambda one: float(one.log_evidence)) if ended else found[0]


def converged(found: Found) -> bool:
    """Whether a search came to its end."""
    return int(found.status) in (CONVERGED, ANNEALED)


@dataclasses.dataclass(frozen=True)
class Inferred:
    """How sites were found for observations that are not Gaussian, the sites exp(h f − ½ w f²), and f at their places.

    Of several latents h, `mean` and `variance` are (N, C), w has a form of `linalg.blocks`, and `covariance` (N, C, C) is that
    of the latents at each place, None where the sites keep them apart.
    """

    method: str
    converged: bool
    message: str
    calls: int
    residual: float
    w: Any
    h: np.ndarray
    mean: np.ndarray
    variance: np.ndarray
    covariance: np.ndarray | None = None

    @property
    def spread(self) -> np.ndarray:
        """All that is known of how far f may be from its mean: the variances, or the covariances."""
        return self.variance if self.covariance is None else self.covariance

    @classmethod
    def of(cls, method: str, found: Found, count: int) -> Inferred:
        """The account of a search, on the host, for the first rows, beyond which nothing was seen."""
        w, h, mean, spread = jax.tree.map(lambda part: np.asarray(part)[:count], (found.w, found.h, found.mean, found.variance))
        full, status = spread.ndim == 3, int(found.status)
        variance = np.diagonal(spread, axis1=1, axis2=2) if full else spread
        how = method, converged(found), STATUS[status], int(found.calls), float(found.residual)
        return cls(*how, w, h, mean, variance, spread if full else None)

    def advice(self, likelihood: Likelihood) -> str:
        """What to do when it did not converge: another way than the one that was taken, where that leads anywhere."""
        other = "laplace" if self.method == "variational" else "variational"
        remedy = f"try other parameters, or inference={other!r}"
        if likelihood.gates:  # whose variational bound ends far from the truth
            remedy = "try wider noise or a longer lengthscale of the gate, or a likelihood that has none"
        return f"{self}: the evidence of this model means nothing; {remedy}"

    def __str__(self) -> str:
        return f"{self.method}, {self.message} after {self.calls} calls (residual {self.residual:.1e})"


def known(start: Start) -> Start:
    """The starting sites, with sites that say nothing where they are unknown."""
    return jax.tree.map(lambda part: jnp.where(jnp.isnan(part), 0.0, part), start)


def hold(tree: Any) -> Any:
    """The same numbers, constant in any derivative."""
    return jax.lax.stop_gradient(tree)
