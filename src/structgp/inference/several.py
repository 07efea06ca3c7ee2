"""Laplace's approximation for classes, one latent for each: Newton on all latents together.

As in `laplace`, with vectors at each place. The curvature of a softmax is Π = diag(π) − ππᵀ, π the probabilities of the classes
at f, so that its sites are `CoupledSites` with a = π (times a weight). The evidence depends on the mode f̂ through Π(f̂) as well,

    log p(y) ≈ log E exp Σ(hᵀf − ½ fᵀΠf) + Σ (log p(y | f̂) − hᵀf̂ + ½ f̂ᵀΠf̂),   h = Πf̂ + g,

which adds sᵀ df̂ to its gradient, with s_c = −½ ∂ tr(Σ_n Π_n)/∂f_c and Σ_n the covariance of the latents at the place.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..engines.independent import CoupledSites
from ..kernels.independent import IndependentKernels, kernels_of
from ..linalg.dense.coupled import CoupledMarginals, precisions
from ..posterior import Model
from .base import CONVERGED, INFEASIBLE, UNFINISHED, Found, Inference, Problem, hold

ARMIJO = 1e-4
HALVINGS = 40
RUNNING = -1


class _State(NamedTuple):
    f: Array
    alpha: Array  # K⁻¹(f − m)
    decrement: Array
    calls: Array
    status: Array


class LaplaceOfSeveral(Inference):
    """The mode of all latents and the curvature there."""

    @property
    def name(self) -> str:
        return "laplace"

    def find(self, problem: Problem, start: tuple[Array, Array], tolerance: Any, max_calls: int) -> Found:
        """Newton from the mode that the starting sites describe."""
        offset = offsets(problem.model, problem.X)

        def height(f: Array, alpha: Array) -> Array:
            return _log_likelihood(problem, f) - 0.5 * jnp.sum(alpha * (f - offset))

        def body(s: _State) -> _State:
            first = s.calls == 0  # towards the mean under the sites to start from, which may say nothing
            g, a = slope_and_curvature(problem, s.f)
            a, h = jnp.where(first, start_a, a), jnp.where(first, start_h, _times(a, s.f) + g)
            mean = given(problem, a, h).mean[..., 0]
            df, da = mean - s.f, h - _times(a, mean) - s.alpha
            decrement, now = jnp.sum((g - s.alpha) * df), height(s.f, s.alpha)
            far = lambda t: (
                ~(height(s.f + t * df, s.alpha + t * da) >= now + ARMIJO * t * decrement - 1e-13 * jnp.abs(now))
                & (t > 2.0**-HALVINGS)
            )
            t = jax.lax.while_loop(far, lambda t: 0.5 * t, jnp.ones(()))
            stuck, done = ~jnp.isfinite(decrement) | (t <= 2.0**-HALVINGS), decrement <= tolerance**2
            move = lambda x, dx: jnp.where(stuck, x, x + t * dx)
            status = jnp.where(first, RUNNING, jnp.where(done, CONVERGED, jnp.where(stuck, INFEASIBLE, RUNNING)))
            return _State(move(s.f, df), move(s.alpha, da), decrement, s.calls + 1, status)

        start_a, start_h = (jnp.where(problem.data.seen[:, None] & ~jnp.isnan(part), part, 0.0) for part in start)
        state = _State(offset, jnp.zeros_like(offset), jnp.asarray(jnp.inf), jnp.asarray(0), jnp.asarray(RUNNING))
        end = jax.lax.while_loop(lambda s: (s.status == RUNNING) & (s.calls < max_calls), body, state)
        return self._at_mode(problem, end._replace(status=jnp.where(end.status == RUNNING, UNFINISHED, end.status)))

    def _at_mode(self, problem: Problem, end: _State) -> Found:
        f = end.f
        g, a = slope_and_curvature(problem, f)
        h = _times(a, f) + g
        whole = given(problem, a, h)
        s = -0.5 * jax.grad(lambda f: _trace(problem, f, whole.covariance))(f)
        applied = given(problem, a, h, s).mean[..., 1]
        evidence = _known(problem, a, h) - 0.5 * (whole.log_det - whole.gram[0, 0])
        evidence += _log_likelihood(problem, f) - jnp.sum(h * f - 0.5 * f * _times(a, f))
        status = jnp.where(jnp.isfinite(evidence), end.status, INFEASIBLE)
        held = (f, whole.covariance, s, applied)
        variance = jnp.diagonal(whole.covariance, axis1=1, axis2=2)
        residual = jnp.sqrt(jnp.abs(end.decrement))
        return Found(a, h, whole.mean[..., 0], variance, evidence, held, end.calls + 2, residual, status)

    def surrogate(self, problem: Problem, found: Found) -> Float[Array, ""]:
        found = hold(found)
        f, covariance, s, applied = found.held
        log_det, gram = problem.engine.log_det_and_gram(problem.structure, _sites(problem, found.w, found.h, s))  # type: ignore[arg-type]
        normaliser = _known(problem, found.w, found.h) - 0.5 * (log_det - gram[0, 0])
        mode = jnp.sum(s * offsets(problem.model, problem.X)) + gram[0, 1]
        g, _ = slope_and_curvature(problem, f)
        own = _log_likelihood(problem, f) - 0.5 * _trace(problem, f, covariance) + jnp.sum(applied * g)
        return normaliser + mode + own


def offsets(model: Model, X: Float[Array, "N D"]) -> Float[Array, "N C"]:
    """The mean of every latent at every place: one for all, or one for each."""
    mean = jax.vmap(model.mean)(X)
    return jnp.broadcast_to(mean if mean.ndim == 2 else mean[:, None], (len(X), model.likelihood.latents))


def given(problem: Problem, a: Array, h: Array, s: Array | None = None) -> CoupledMarginals:
    """All latents given sites, in the first column; Σ applied to s in a second one."""
    found = problem.engine.marginals(problem.structure, _sites(problem, a, h, s))  # type: ignore[arg-type]
    mean = found.mean.at[..., 0].add(offsets(problem.model, problem.X))
    return found._replace(mean=mean)  # type: ignore[return-value]


def sites_on(model: Model, X: Float[Array, "N D"], a: Float[Array, "N C"], h: Float[Array, "N C"]) -> CoupledSites:
    """Sites on the zero-mean processes, from those on the whole of f."""
    return CoupledSites(a, (h - _times(a, offsets(model, X)))[..., None])


def _sites(problem: Problem, a: Array, h: Array, s: Array | None) -> CoupledSites:
    sites = sites_on(problem.model, problem.X, a, h)
    return sites if s is None else CoupledSites(a, jnp.concatenate([sites.shift, s[..., None]], axis=-1))


def _known(problem: Problem, a: Array, h: Array) -> Float[Array, ""]:
    """What the factors make of the mean alone."""
    offset = offsets(problem.model, problem.X)
    return jnp.sum(h * offset - 0.5 * offset * _times(a, offset))


def _times(a: Array, f: Array) -> Array:
    """Π f."""
    return (precisions(a) @ f[..., None])[..., 0]


def _log_likelihood(problem: Problem, f: Array) -> Float[Array, ""]:
    data = problem.data
    return data.sum(data.times(1.0) * problem.model.likelihood.log_prob(data.y, f, data.extra))


def slope_and_curvature(problem: Problem, f: Float[Array, "N C"]) -> tuple[Float[Array, "N C"], Float[Array, "N C"]]:
    """∂log p and a of the curvature at every place, 0 where nothing was seen."""
    data, likelihood = problem.data, problem.model.likelihood
    counted = jnp.where(data.seen, data.times(1.0), 0.0)[:, None]
    return counted * likelihood.derivatives(data.y, f, data.extra)[1], counted * likelihood.moments(f, data.extra)[0]


def _trace(problem: Problem, f: Array, covariance: Array) -> Float[Array, ""]:
    """Σ tr(Σ_n Π_n(f))."""
    return jnp.sum(precisions(slope_and_curvature(problem, f)[1]) * covariance)


def check_several(model: Model, dimension: int) -> None:
    """Refuse priors that do not fit a likelihood of several latents."""
    latents, name = model.likelihood.latents, type(model.likelihood).__name__
    if isinstance(model.kernel, IndependentKernels) and len(model.kernel.kernels) != latents:
        raise ValueError(
            f"{name} sees {latents} latent function{'s' if latents > 1 else ''}, but Independent has "
            f"{len(model.kernel.kernels)} kernels: give one for each, or a single kernel for all"
        )
    if latents == 1:
        return
    point = jax.ShapeDtypeStruct((dimension,), float)
    free = lambda x: [model.mean.features(x), *(kernel.null_space(x) for kernel in kernels_of(model.kernel, latents))]
    if any(part.size for part in jax.eval_shape(free, point)):
        raise ValueError(
            f"{name} has {latents} latents, for which basis functions and splines are not available: use a ConstantMean or "
            "LinearMean, and IntegratedWiener in place of Spline"
        )
    shape = jax.eval_shape(model.mean, point).shape
    if shape not in ((), (latents,)):
        raise ValueError(f"the mean must be one number for all {latents} latents, or one for each, got shape {shape}")
