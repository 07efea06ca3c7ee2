"""A prior given data, as a value: from Gaussian observations, or from the sites that stand for any others."""

from __future__ import annotations

import dataclasses
import functools
import warnings
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._types import how_many
from ..background import Early, compiling
from ..engines.base import Engine
from ..engines.basis import Factors, Weights, columns, integrate, sites_of
from ..engines.diagnose import why_not_positive
from ..engines.independent import check_latents
from ..engines.plan import Plan
from ..inference.base import Found, Inference, Inferred, in_the_form_of, search
from ..inference.choose import choose
from ..inputs.layouts import Grid, Inputs
from ..inputs.observations import Data
from ..inputs.rows import filled, in_bucket, size_for, unseen_beyond
from ..kernels.independent import kernels_of
from ..kernels.outputs import outputs_of
from ..likelihoods.base import Likelihood
from ..likelihoods.gaussian import Gaussian
from ..linalg.dense.cholesky import lapack_threads, whitened_by
from ..means import LevelOfOutput
from ..parameters.tree import free_vector, with_free
from ..posterior import Conditional, Model
from ..structure.dense import typical_variance

Pair = tuple[Float[Array, " M *C T"], Float[Array, " M *CC"]]


class Posterior(eqx.Module):
    """What is believed of f after data: a zero-mean process given sites, the known mean, and the weights of basis functions.

    A value that passes through `jit`, `vmap` and `grad`. T targets have a mean each and one variance for all. Several latents
    have means (M, C, T), covariances (M, C, C) at each place, (M, C, M, C) among places, and draws (n, M, C, T).
    """

    prior: Model
    conditional: Conditional
    weights: Weights
    log_evidence: Float[Any, ""]
    targets: int = eqx.field(static=True, default=1)

    def marginals(self, places: Any, part: int | None = None) -> Pair:
        """Mean and variance of f, or of one term of a sum, at the rows of a table or in the cells of a grid."""
        if isinstance(places, Grid):
            X, (means, variance) = jnp.asarray(places.points), self.conditional.on_grid(places)  # type: ignore[attr-defined]
        else:
            X, (means, variance) = places, self.conditional.at(places, part)
        mean, U = self.with_weights(*basis_of(self.prior, X, part), means)
        return mean, variance + jnp.sum(U * U, axis=0) if len(U) else variance

    def joint(self, X: Float[Array, "M D"], part: int | None = None) -> tuple[Float[Array, "M T"], Float[Array, "M M"]]:
        """Means and the whole covariance of f, or of one term of a sum, at new places."""
        means, covariance = self.conditional.joint(X) if part is None else self.conditional.joint_of_part(X, part)
        mean, U = self.with_weights(*basis_of(self.prior, X, part), means)
        return mean, covariance + U.T @ U if len(U) else covariance

    def gradient(self, X: Float[Array, "M D"]) -> Float[Array, " M *C T D"]:
        """The gradient of the mean in the inputs."""

        def mean(x: Array) -> Array:
            return self.with_weights(*columns(self.prior, x[None]), self.conditional.at(x[None])[0])[0][0]

        return jax.vmap(jax.jacrev(mean))(X)

    def draw(self, key: Array, places: Any, n: int) -> Float[Array, " n M *C T"]:
        """n joint draws: the mean with drawn basis weights, and what the sites leave open."""
        X = jnp.asarray(places.points) if isinstance(places, Grid) else places
        means = (self.conditional.on_grid if isinstance(places, Grid) else self.conditional.at)(places)[0]  # type: ignore[attr-defined]
        residuals = self.conditional.residuals_on_grid if isinstance(places, Grid) else self.conditional.residuals  # type: ignore[attr-defined]
        of_weights, of_rest = jax.random.split(key)
        (known, Phi), T = columns(self.prior, X), self.targets
        drawn = jax.random.normal(of_weights, (n, self.weights.factor.shape[0], T))
        solve = lambda z: jax.scipy.linalg.solve_triangular(self.weights.factor, z, lower=True, trans="T")
        beta = self.weights.mean + jax.vmap(solve)(drawn)
        rest = residuals(places, of_rest, n * T)
        open_ = jnp.moveaxis(jnp.reshape(rest, (*rest.shape[:-1], n, T)), -2, 0)
        of_basis = jnp.einsum("...p,npt->n...t", Phi - means[..., T:], beta)
        return (known[..., None] + means[..., :T])[None] + of_basis + open_

    def inverse_parts(self) -> tuple[Float[Array, " N"], Float[Array, "N T"]]:
        """The diagonal of C⁻¹ and C⁻¹y with the basis weights integrated out, in the order of the sites."""
        diagonal, alpha = self.conditional.inverse_parts()
        if alpha.shape[-1] == self.targets:
            return diagonal, alpha
        U = whitened_by(self.weights.factor, alpha[:, self.targets :].T)
        return diagonal - jnp.sum(U * U, axis=0), alpha[:, : self.targets] - alpha[:, self.targets :] @ self.weights.mean

    def update(self, X: Float[Array, "M D"], data: Data, at: Any) -> Posterior:
        """Given more Gaussian data as well, in rows from `at` on where nothing was seen (by the factor of a dense matrix)."""
        more = sites_of(self.prior, X, data, typical_variance(self.prior.kernel, X))
        conditional = self.conditional.updated(X, more, at)  # type: ignore[attr-defined]
        seen = jnp.sum(conditional.sites.precision > 0)
        log_det, gram = conditional.log_det_and_gram()
        evidence, weights = integrate(self.prior, log_det, gram, seen, self.targets, X.shape[1])
        return Posterior(self.prior, conditional, weights, evidence, self.targets)

    def with_weights(
        self, known: Float[Array, " M *C"], Phi: Float[Array, " M *C P"], means: Float[Array, " M *C K"]
    ) -> tuple[Float[Array, " M *C T"], Float[Array, " P *U"]]:
        """The mean of f, and U whose columns' products are the covariance that the uncertain weights add."""
        return combined(known, Phi, self.weights, means, self.targets)


def combined(
    known: Float[Array, " M *C"], Phi: Float[Array, " M *C P"], weights: Weights, means: Float[Array, " M *C K"], T: int
) -> tuple[Float[Array, " M *C T"], Float[Array, " P *U"]]:
    """The mean of f, and U with UᵀU = ρᵀA⁻¹ρ, ρ = φ − m_Φ, through which the uncertain weights enter."""
    rho = Phi - means[..., T:]
    U = whitened_by(weights.factor, rho.T) if rho.shape[-1] else rho.T
    return known[..., None] + means[..., :T] + rho @ weights.mean, U


def basis_of(
    model: Model, X: Float[Array, "M D"], part: int | None = None
) -> tuple[Float[Array, " M *C"], Float[Array, " M *C P"]]:
    """The known mean and the basis functions at all rows; of one term of a sum only what is its own."""
    return columns(model, X) if part is None else jax.vmap(lambda x: basis_of_part(model, x, part))(X)


def basis_of_part(model: Model, x: Float[Array, " D"], part: int | None) -> tuple[Float[Array, ""], Float[Array, " P"]]:
    """The same at one place."""
    if part is None:
        return model.mean(x), jnp.concatenate([model.mean.features(x), model.kernel.null_space(x)])
    own = [term.null_space(x) * (i == part) for i, term in enumerate(model.kernel.terms)]  # type: ignore[attr-defined]
    return jnp.zeros(()) * x[0], jnp.concatenate([0 * model.mean.features(x), *own])


def posterior_of(model: Model, inputs: Inputs, data: Data, engine: Engine) -> Posterior:
    """The posterior of Gaussian observations."""
    X = jnp.asarray(inputs.points)
    sites = sites_of(model, X, data, typical_variance(model.kernel, X))
    conditional = engine.condition(engine.form(model.kernel, inputs), sites)
    log_det, gram = conditional.log_det_and_gram()
    evidence, weights = integrate(model, log_det, gram, jnp.sum(data.seen), data.y.shape[1], X.shape[1])
    return Posterior(model, conditional, weights, evidence, data.y.shape[1])


given_data = jax.jit(posterior_of, static_argnames="engine")


@functools.partial(jax.jit, static_argnames="engine")
def given_to_first(
    thetas: Float[Array, "K P"], count: Any, model: Model, inputs: Inputs, data: Data, engine: Engine
) -> Posterior:
    """The posteriors at the first so many of these θ, one after the other: they would not fit into the cache side by side.

    One program serves the mode of an average alone and all of its members.
    """
    at = lambda theta: posterior_of(with_free(model, theta), inputs, data, engine)
    room = jax.tree.map(lambda leaf: jnp.zeros((len(thetas), *leaf.shape), leaf.dtype), jax.eval_shape(at, thetas[0]))
    put = lambda i, known: jax.tree.map(lambda all, leaf: all.at[i].set(leaf), known, at(thetas[i]))
    return jax.lax.fori_loop(0, count, put, room)


@functools.partial(jax.jit, static_argnames=("engine", "signed"))
def given_sites(model: Model, inputs: Inputs, w: Any, h: Any, evidence: Any, engine: Engine, signed: bool) -> Posterior:
    """The posterior of sites that were found for other observations, and the evidence that came with them."""
    X = jnp.asarray(inputs.points)
    factors = Factors.on(model, X, w, h, signed)
    conditional = engine.condition(engine.form(model.kernel, inputs), factors.sites())
    return Posterior(model, conditional, factors.integrate(model, *conditional.log_det_and_gram(), X.shape[1])[1], evidence)


_update = jax.jit(Posterior.update)


@functools.partial(jax.jit, static_argnames="size")
def _with_room(posterior: Posterior, size: int) -> Posterior:
    conditional: Any = posterior.conditional
    return eqx.tree_at(lambda p: p.conditional, posterior, conditional.with_room(size))


def bytes_for_more(posterior: Posterior, count: int, at: int) -> float:
    """What `given_more` needs for so many new rows: a factor with room, and that which is made of it twice."""
    size, room = sizes_for_more(count, at)
    copies = 2 + (posterior.conditional.X.shape[0] < room)  # type: ignore[attr-defined]
    return 8.0 * room * (copies * room + size)


def sizes_for_more(count: int, at: int) -> tuple[int, int]:
    """The size of so many new rows, and that of all with the first `at`."""
    size = size_for(count, 1)
    return size, size_for(at + size)


def given_more(posterior: Posterior, inputs: Inputs, data: Data, at: int) -> Posterior:
    """A posterior by a dense matrix given more data, after the first `at` rows; nothing is compiled while there is room."""
    size, room = sizes_for_more(len(inputs), at)
    if posterior.conditional.X.shape[0] < room:  # type: ignore[attr-defined]
        posterior = _with_room(posterior, room)
    return _update(posterior, filled(inputs.points, size), unseen_beyond(data, size), at)


class Conditioned(NamedTuple):
    """A posterior, the plan that was followed, and how sites were found where observations are not Gaussian."""

    posterior: Any
    plan: Plan
    inference: Inferred | None = None


def condition(
    model: Model,
    inputs: Inputs,
    data: Data,
    plan: Plan,
    rule: Inference | None = None,
    start: tuple[Any, Any] | None = None,
    found: Found | None = None,
    members: int = 0,
) -> Conditioned:
    """A prior given data, by a rule for the sites when they are not Gaussian: searched from a start, or found already.

    Where an average over so many parameters is to come, it is by the program that will condition all of its members.
    """
    count = len(inputs)
    with lapack_threads(plan.rows):
        inputs, data = few_sizes(inputs, data, plan.engine)
        engine = plan.engine.tuned(model, inputs, data)
        inputs = engine.prepared(model, inputs, data)
        if rule is None:
            posterior = jax.block_until_ready(_given_gaussian(model, inputs, data, engine, members))
            inferred = None
        else:
            found = _search(model, inputs, data, engine, rule, start) if found is None else found
            inferred = _said(Inferred.of(rule.name, found, count), model.likelihood)
            sites = found.w, found.h, found.log_evidence
            posterior = jax.block_until_ready(given_sites(model, inputs, *sites, engine, rule.signed(model.likelihood)))
    if not np.isfinite(posterior.log_evidence):
        astray = inferred is not None and not inferred.converged and model.likelihood.latents > 1
        raise ValueError(inferred.advice(model.likelihood) if astray else why_not_positive(model, inputs, data))  # type: ignore[union-attr]
    return Conditioned(posterior, plan.run_by(engine, _accuracy(posterior, data)), inferred)


def _given_gaussian(model: Model, inputs: Inputs, data: Data, engine: Engine, members: int) -> Posterior:
    if not members:
        return given_data(model, inputs, data, engine)
    posteriors = given_to_first(np.tile(free_vector(model), (members, 1)), 1, model, inputs, data, engine)
    return dataclasses.replace(jax.tree.map(lambda leaf: jax.device_put(np.asarray(leaf)[0]), posteriors), prior=model)


def evidence_bounds(posterior: Posterior, data: Data) -> tuple[float, float] | None:
    """Between what the log evidence lies, where an approximation knows that; None where it is exact, or nothing is known."""
    conditional: Any = posterior.conditional
    if conditional.bounds is None:
        return None
    seen, D = np.sum(data.seen), conditional.X.shape[1]
    lower, upper = map(float, _evidences(posterior.prior, conditional.bounds, seen, posterior.targets, D))
    return lower, upper


@functools.partial(jax.jit, static_argnames=("targets", "D"))
def _evidences(model: Model, ends: Any, seen: Any, targets: int, D: int) -> tuple[Any, ...]:
    """log p(y) from log|C| and the gram of several ends."""
    return tuple(integrate(model, log_det, gram, seen, targets, D)[0] for log_det, gram in ends)


def _accuracy(posterior: Posterior, data: Data) -> str | None:
    said, ends = posterior.conditional.accuracy, evidence_bounds(posterior, data)
    if said is None or ends is None:
        return said
    return f"{said.removesuffix(')')}; log evidence between {ends[0]:.6g} and {ends[1]:.6g})"


def compiled_ahead(
    model: Model,
    inputs: Inputs,
    data: Data,
    engine: Engine,
    rule: Inference | None = None,
    members: int = 0,
    after: Early | None = None,
) -> Early:
    """The program that will condition on data by this engine, compiled while learning runs, after what is needed first."""
    inputs, data = few_sizes(inputs, data, engine)
    engine = engine.tuned(model, inputs, data)
    inputs = engine.prepared(model, inputs, data, search=False)
    if rule is None and members:
        thetas = np.tile(free_vector(model), (members, 1))
        return compiling(given_to_first, thetas, 1, model, inputs, data, engine, after=after)
    if rule is None:
        return compiling(given_data, model, inputs, data, engine, after=after)
    w, h = rule.unknown(model.likelihood, len(inputs))
    return compiling(given_sites, model, inputs, w, h, np.zeros(()), engine, rule.signed(model.likelihood), after=after)


def few_sizes(inputs: Inputs, data: Data, engine: Engine) -> tuple[Inputs, Data]:
    """The same rows, filled up to a size out of a few where the engine takes rows that were not seen."""
    return in_bucket(inputs, data) if engine.takes_unseen_rows else (inputs, data)


def rule_for(model: Model, asked: str | None, data: Data) -> Inference | None:
    """The rule to find sites by; None for Gaussian observations, unless one is asked for or they are weighted."""
    rule = choose(model.likelihood, asked, data.weight is not None)
    if rule is not None and (np.any(data.noise) or data.y.shape[1] > 1):
        raise ValueError(
            "weights and inference= are for one target without known noise variances: leave out one of the two, "
            "or fit one target at a time"
        )
    return rule


def check_inputs(model: Model, inputs: Inputs) -> None:
    """Let kernel, mean and likelihood say what they think of these inputs, before anything is computed."""
    point = jax.ShapeDtypeStruct((inputs.dimension,), np.float64)
    check_latents(model, inputs.dimension)
    kernels = kernels_of(model.kernel, 1)
    jax.eval_shape(lambda x: ([(k.between(x, x), k.null_space(x)) for k in kernels], model.mean(x)), point)
    points = np.asarray(inputs.points)
    for kernel in kernels:
        kernel.check_points(points)
    model.likelihood.check_points(points)
    _check_each_output(model)


def _check_each_output(model: Model) -> None:
    """Refuse numbers that are one for each output where they are fewer or more."""
    found = outputs_of(model.kernel)
    noise = model.likelihood.noise if isinstance(model.likelihood, Gaussian) else 0.0
    levels = model.mean.levels if isinstance(model.mean, LevelOfOutput) else 0.0
    for what, numbers in (("Gaussian noise", noise), ("LevelOfOutput", levels)):
        if found is not None and np.ndim(numbers) and np.size(numbers) != found.count:
            given = how_many(np.size(numbers), "number")
            raise ValueError(f"{what} has {given}, but the kernel has {found.count} outputs: give one for each")


def _search(model: Model, inputs: Inputs, data: Data, engine: Engine, rule: Inference, start: tuple[Any, Any] | None) -> Found:
    cold = rule.unknown(model.likelihood, len(inputs))
    if start is None:
        return search(model, inputs, data, engine, rule, cold)
    return search(model, inputs, data, engine, rule, cold, (in_the_form_of(cold, start),))


def _said(inferred: Inferred, likelihood: Likelihood) -> Inferred:
    if not inferred.converged:
        warnings.warn(inferred.advice(likelihood), RuntimeWarning, stacklevel=5)
    return inferred
