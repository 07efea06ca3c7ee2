"""Several independent processes that one likelihood sees together: engines of one latent side by side.

Sites that keep the latents apart leave every latent a problem of its own, for any engine. Sites that couple them place by place
are taken by two algorithms: any kernels by `linalg.dense.coupled`, and kernels with a finite state along a line, in O(N) with
the chains side by side in one state, by `linalg.filters.kalman_coupled`.
"""

from __future__ import annotations

import abc
import dataclasses
import functools
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._types import how_many
from ..inputs.layouts import Inputs
from ..inputs.observations import Data
from ..kernels.algebra import Kernel
from ..kernels.independent import IndependentKernels, kernels_of
from ..linalg.blocks import diagonals, full, scalar_factors, times
from ..linalg.dense import coupled
from ..linalg.filters import kalman_coupled, kalman_smooth
from ..posterior import Conditional, Model, draw
from ..sites import Marginals, Sites
from ..structure.base import No
from ..structure.dense import covariance, variances
from ..structure.independent import IndependentStructures, once, side_by_side
from ..structure.state_space import Where, chain_of, harmonics_of, started_at
from .base import Cost, Engine, Offer, form_by_shape
from .cholesky import Cholesky, SignedCholesky, cost_of_matrix, look_at_matrix
from .kalman import Kalman, cost_of_chain, look_along
from .machine import Work

AVERAGED = 5e5  # functions that an average over several latents at one place takes

Places = Float[Array, "M D"]
Values = Float[Array, "M C k"]


class ApartConditional(Conditional):
    """Latents that know nothing of each other."""

    parts: tuple[Conditional, ...]

    @property
    def row_size(self) -> int:
        return sum(part.row_size for part in self.parts)

    def draw_size(self, places: int, n: int) -> int:
        return sum(part.draw_size(places, n) for part in self.parts)

    def at(self, X: Places, part: int | None = None) -> tuple[Values, Float[Array, "M C C"]]:
        means, variances = zip(*(one.at(X) for one in self.parts), strict=True)
        return jnp.stack(means, axis=1), diagonals(jnp.stack(variances, axis=1))

    def joint(self, X: Places) -> tuple[Values, Float[Array, "M C M C"]]:
        means, joints = zip(*(one.joint(X) for one in self.parts), strict=True)
        return jnp.stack(means, axis=1), of_each(jnp.stack(joints))

    def residuals(self, X: Places, key: Array, n: int) -> Float[Array, "M C n"]:
        keys = jax.random.split(key, len(self.parts))
        return jnp.stack([one.residuals(X, key, n) for one, key in zip(self.parts, keys, strict=True)], axis=1)

    def inverse_parts(self) -> tuple[Float[Array, "N C"], Float[Array, "N C k"]]:
        diagonal, alpha = zip(*(one.inverse_parts() for one in self.parts), strict=True)
        return jnp.stack(diagonal, axis=1), jnp.stack(alpha, axis=1)

    def log_det_and_gram(self) -> tuple[Float[Array, ""], Float[Array, "k k"]]:
        return _total(one.log_det_and_gram() for one in self.parts)

    @property
    def accuracy(self) -> str | None:
        return "; ".join(dict.fromkeys(one.accuracy for one in self.parts if one.accuracy)) or None


class CoupledCholeskyConditional(Conditional):
    """By the factors of `linalg.dense.coupled`, and α."""

    kernels: tuple[Kernel, ...]
    X: Float[Array, "N D"]
    sites: Sites
    factor: Any = eqx.field(metadata={"derived": True})
    alpha: Float[Array, "N C k"]

    @property
    def row_size(self) -> int:
        return (1 + len(self.kernels)) * len(self.kernels) * self.X.shape[0]

    def at(self, X: Places, part: int | None = None) -> tuple[Values, Float[Array, "M C C"]]:
        mean, A, B = self._look(X)
        prior = jnp.stack([variances(kernel, X) for kernel in self.kernels], axis=1)
        own = jnp.maximum(prior - jnp.sum(A * A, axis=1).T, 0.0)
        return mean, diagonals(own) + jnp.einsum("cim,dim->mcd", B, B)

    def joint(self, X: Places) -> tuple[Values, Float[Array, "M C M C"]]:
        mean, A, B = self._look(X)
        return mean, of_each(self._own(X, A)) + jnp.einsum("cim,dil->mcld", B, B)

    def residuals(self, X: Places, key: Array, n: int) -> Float[Array, "M C n"]:
        _, A, B = self._look(X)
        keys = jax.random.split(key, len(self.kernels) + 1)
        apart = jnp.stack([draw(part, key, n) for part, key in zip(self._own(X, A), keys, strict=False)], axis=1)
        return apart + jnp.einsum("cim,in->mcn", B, jax.random.normal(keys[-1], (B.shape[1], n)))

    def log_det_and_gram(self) -> tuple[Float[Array, ""], Float[Array, "k k"]]:
        mean = coupled.each_times(_between(self.kernels, self.X, self.X), self.alpha)
        return self.factor.log_det, coupled.gram_of(self.sites.shift, mean)

    def inverse_parts(self) -> tuple[Float[Array, "N C C"], Float[Array, "N C k"]]:
        return inverse_of_sites(self.sites, *self.at(self.X))

    def _own(self, X: Places, A: Float[Array, "C N M"]) -> Float[Array, "C M M"]:
        return _between(self.kernels, X, X) - jnp.swapaxes(A, 1, 2) @ A

    def _look(self, X: Places) -> tuple[Array, Array, Array]:
        """Means; what the places tell of each latent by itself; and what their coupling leaves open."""
        k = _between(self.kernels, self.X, X)
        return coupled.each_times(jnp.swapaxes(k, 1, 2), self.alpha), *self.factor.look(k)


class CoupledKalmanConditional(Conditional):
    """By what every place knows from its left and from its right."""

    kernels: tuple[Kernel, ...]
    t: Float[Array, " N"]
    sites: Sites  # in the order of t
    smoothed: kalman_smooth.Smoothed
    log_det: Float[Array, ""]
    gram: Float[Array, "k k"]
    harmonics: tuple[int, ...] = eqx.field(static=True)

    @property
    def row_size(self) -> int:
        return 12 * self.smoothed.P.shape[1] ** 2

    def draw_size(self, places: int, n: int) -> int:
        return 4 * n * places * self.smoothed.P.shape[1]

    def log_det_and_gram(self) -> tuple[Float[Array, ""], Float[Array, "k k"]]:
        return self.log_det, self.gram

    def at(self, X: Places, part: int | None = None) -> tuple[Values, Float[Array, "M C C"]]:
        x, chain = X[:, 0], self._chain(self.t[0])
        left = jnp.searchsorted(self.t, x, side="right") - 1
        to_left = x - self.t[jnp.maximum(left, 0)]
        to_right = self.t[jnp.minimum(left + 1, len(self.t) - 1)] - x
        mean, spread = kalman_smooth.predict(chain, self.smoothed, left, to_left, to_right)
        if not chain.stationary:
            before = (left < 0)[:, None, None]
            at_left = jax.vmap(self._before)(jnp.where(left < 0, x, self.t[0]))
            mean, spread = jnp.where(before, at_left[0], mean), jnp.where(before, at_left[1], spread)
        H = chain.values(x)
        return H @ mean, H @ spread @ H.mT

    def joint(self, X: Places) -> tuple[Values, Float[Array, "M C M C"]]:
        # The shifts Π k(t, X) have the mean K(X, t) (I + ΠK)⁻¹ Π K(t, X) at X.
        kernels, C = tuple(started_at(kernel, self.t[0]) for kernel in self.kernels), len(self.kernels)
        cross = jnp.einsum("cnm,cd->ncmd", _between(kernels, self.t[:, None], X), jnp.eye(C))
        shift = times(self.sites.precision, cross.reshape(*cross.shape[:2], -1))
        smoothed, _ = kalman_coupled.smooth(self._chain(self.t[0]), self.t, self.sites.precision, shift)
        explained = eqx.tree_at(lambda c: c.smoothed, self, smoothed).at(X)[0]
        reduction = jnp.reshape(explained, (len(X), C, len(X), C))
        reduction = 0.5 * (reduction + jnp.transpose(reduction, (2, 3, 0, 1)))
        return self.at(X)[0], of_each(_between(kernels, X, X)) - reduction

    def residuals(self, X: Places, key: Array, n: int) -> Float[Array, "M C n"]:
        """A joint prior draw at the old and new places, less what the sites make of it: O(N + M).

        Processes that are pinned somewhere are no chains from just any place on, and factors of negative precision are nothing
        that could have been seen: then the draws go through their covariance.
        """
        if not self._chain(self.t[0]).stationary or self.sites.signed:
            return draw(self.joint(X)[1], key, n)
        together = jnp.concatenate([self.t, X[:, 0]])
        order = jnp.argsort(together, stable=True)
        t, chain, keys = together[order], self._chain(together[order][0]), jax.random.split(key)
        nothing = lambda part: jnp.concatenate([part, jnp.zeros((len(X), *part.shape[1:]))])[order]
        P = jax.tree.map(nothing, self.sites.precision)
        f = chain.values(t) @ kalman_smooth.prior_samples(chain, jnp.diff(t, prepend=t[:1]), keys[0], n)
        # Every scalar factor is as if it had seen its part of f with noise of variance 1/w: together, noise with precision Π.
        weights, rows = scalar_factors(P)
        noise = rows.mT @ (jnp.sqrt(jnp.maximum(weights, 0.0))[:, :, None] * jax.random.normal(keys[1], f.shape))
        missed = kalman_coupled.smooth(chain, t, P, -times(P, f) - noise)[1].mean
        return jnp.zeros_like(f).at[order].set(f + missed)[len(self.t) :]

    def inverse_parts(self) -> tuple[Float[Array, "N C C"], Float[Array, "N C k"]]:
        return inverse_of_sites(self.sites, *self.at(self.t[:, None]))

    def _before(self, x: Float[Array, ""]) -> tuple[Float[Array, "D k"], Float[Array, "D D"]]:
        """Mean and covariance of the state at a place before the first observation."""
        chain = self._chain(x)
        P, A = chain.start(), chain.transition(self.t[0] - x)
        return P @ A.T @ self.smoothed.r_seen[0], P - P @ A.T @ self.smoothed.N_seen[0] @ A @ P

    def _chain(self, at: Any) -> kalman_coupled.Stacked:
        where = (Where(at, self.t[0], harmonics) for harmonics in self.harmonics)
        return kalman_coupled.Stacked(*map(chain_of, self.kernels, where))  # type: ignore[arg-type]


class SideBySide(Engine):
    """An engine for each of several latents; what couples them is up to those that come of this."""

    parts: tuple[Engine, ...] = eqx.field(static=True, default=())

    @property
    def takes_unseen_rows(self) -> bool:  # type: ignore[override]
        return all(part.takes_unseen_rows for part in self.parts)

    def form(self, kernel: Any, inputs: Inputs) -> IndependentStructures | No:
        engine_of = dict(zip(map(id, self._kernels(kernel)), self.parts, strict=False))
        return side_by_side(once(lambda one: engine_of[id(one)].form(one, inputs), self._kernels(kernel)))

    def marginals(self, structure: IndependentStructures, sites: Sites) -> Marginals:
        if not sites.apart:
            return Marginals(*self.coupled_marginals(structure, sites))
        found = [engine.marginals(form, one) for engine, form, one in self._each(structure, sites)]
        mean, variance = (jnp.stack([part[i] for part in found], axis=1) for i in (0, 1))
        return Marginals(mean, variance, *_total(part[2:] for part in found))

    def log_det_and_gram(self, structure: IndependentStructures, sites: Sites) -> tuple[Array, Array]:
        if not sites.apart:
            return self.coupled_log_det_and_gram(structure, sites)
        return _total(engine.log_det_and_gram(form, one) for engine, form, one in self._each(structure, sites))

    def condition(self, structure: IndependentStructures, sites: Sites) -> Conditional:
        if not sites.apart:
            return self.coupled_condition(structure, sites)
        return ApartConditional(tuple(engine.condition(form, one) for engine, form, one in self._each(structure, sites)))

    @abc.abstractmethod
    def coupled_marginals(self, structure: IndependentStructures, sites: Sites) -> coupled.CoupledMarginals:
        """What sites that couple the latents leave at their places."""

    @abc.abstractmethod
    def coupled_log_det_and_gram(self, structure: IndependentStructures, sites: Sites) -> tuple[Array, Array]:
        """log|I + KΠ| and hᵀΣh, differentiable."""

    @abc.abstractmethod
    def coupled_condition(self, structure: IndependentStructures, sites: Sites) -> Conditional:
        """The processes given sites that couple them."""

    def _kernels(self, kernel: Any) -> tuple[Kernel, ...]:
        return kernels_of(kernel, len(self.parts))

    def _each(self, structure: IndependentStructures, sites: Sites) -> Any:
        apart = (sites.of_latent(c) for c in range(len(self.parts)))
        return zip(self.parts, structure.parts, apart, strict=True)


def of_several(cost: Cost, rows: int) -> Cost:
    """The same where what an observation would have been is an average over several latents."""
    return dataclasses.replace(cost, leave_out=Work(functions=AVERAGED * rows))


class IndependentCholesky(SideBySide):
    """Any kernels on any inputs, exactly."""

    name: ClassVar[str] = "Cholesky"
    structure: ClassVar[str] = "dense"

    def offer(self, model: Model, inputs: Inputs, data: Data | None = None) -> Offer | No:
        N, C = len(inputs), model.likelihood.latents
        flops = 3 * C * N**3 + C * N**2 * (5 * inputs.dimension + 50)
        one, look = cost_of_matrix(N, inputs.dimension), 2 * C * look_at_matrix(N)
        cost = Cost(
            flops,
            bytes=5 * C * 8 * N**2,
            rows=0,
            evaluate=C * one.evaluate,
            condition=C * one.condition,
            predict=C**2 * one.predict,
            keep=C * one.keep,
        )
        return Offer(self.tuned(model, inputs, data), of_several(cost.searching(look), N), note=f"{C} latents")

    def tuned(self, model: Model, inputs: Inputs, data: Data | None = None) -> IndependentCholesky:
        one = Cholesky() if model.likelihood.log_concave else SignedCholesky()
        return IndependentCholesky((one,) * model.likelihood.latents)

    def coupled_marginals(self, structure: IndependentStructures, sites: Sites) -> coupled.CoupledMarginals:
        return coupled.marginals(_matrices(structure), sites.precision, sites.shift, _roots(structure))

    def coupled_log_det_and_gram(self, structure: IndependentStructures, sites: Sites) -> tuple[Array, Array]:
        return coupled.log_det_and_gram(_matrices(structure), sites.precision, sites.shift)

    def coupled_condition(self, structure: IndependentStructures, sites: Sites) -> CoupledCholeskyConditional:
        K, kernels = _matrices(structure), tuple(part.kernel for part in structure.parts)
        factor = coupled.couple(K, sites.precision, _roots(structure))
        return CoupledCholeskyConditional(kernels, structure.parts[0].X, sites, factor, factor.pull(K, sites.shift))


class IndependentKalman(SideBySide):
    """Kernels with a finite state, along a line: one filter over all latents where sites couple them."""

    name: ClassVar[str] = "Kalman"
    structure: ClassVar[str] = "markov"

    def offer(self, model: Model, inputs: Inputs, data: Data | None = None) -> Offer | No:
        engine = self.tuned(model, inputs, data)
        form = form_by_shape(engine, model.kernel, inputs)
        if isinstance(form, No):
            return form
        D = sum(part.chain.size for part in form.parts)
        cost = dataclasses.replace(cost_of_chain(len(inputs), D), rows=0).searching(2.5 * look_along(len(inputs), D))
        return Offer(engine, of_several(cost, len(inputs)), note=f"{len(engine.parts)} latents, {D} states")

    def tuned(self, model: Model, inputs: Inputs, data: Data | None = None) -> IndependentKalman:
        kernels = kernels_of(model.kernel, model.likelihood.latents)
        return IndependentKalman(tuple(Kalman(harmonics_of(kernel)) for kernel in kernels))

    def coupled_marginals(self, structure: IndependentStructures, sites: Sites) -> coupled.CoupledMarginals:
        chain, along, sites = _along(structure, sites)
        found = kalman_coupled.smooth(chain, along.t, sites.precision, sites.shift)[1]
        return found._replace(mean=along.as_given(found.mean), covariance=along.as_given(found.covariance))

    def coupled_log_det_and_gram(self, structure: IndependentStructures, sites: Sites) -> tuple[Array, Array]:
        chain, along, sites = _along(structure, sites)
        return kalman_coupled.evidence(chain, along.t, sites.precision, sites.shift)

    def coupled_condition(self, structure: IndependentStructures, sites: Sites) -> CoupledKalmanConditional:
        kernels, harmonics = zip(*((part.kernel, part.harmonics) for part in structure.parts), strict=True)
        chain, along, sites = _along(structure, sites)
        smoothed, (_, _, log_det, gram) = kalman_coupled.smooth(chain, along.t, sites.precision, sites.shift)
        return CoupledKalmanConditional(kernels, along.t, sites, smoothed, log_det, gram, harmonics)


SEVERAL: tuple[Engine, ...] = (IndependentKalman(), IndependentCholesky())


def _between(kernels: tuple[Kernel, ...], X: Float[Array, "N D"], Z: Places) -> Float[Array, "C N M"]:
    """k_c(x, z) for all latents and all rows."""
    return jnp.stack(once(lambda kernel: covariance(kernel, X, Z), kernels))


def of_each(blocks: Float[Array, "C M M"]) -> Float[Array, "M C M C"]:
    """The covariance of latents that know nothing of each other."""
    return jnp.einsum("cml,cd->mcld", blocks, jnp.eye(len(blocks)))


def inverse_of_sites(sites: Sites, mean: Values, spread: Float[Array, "N C C"]) -> tuple[Array, Array]:
    """Π − ΠΣΠ at every place and α, from what the sites leave there."""
    P = full(sites.precision)
    return P - P @ spread @ P, sites.shift - times(sites.precision, mean)


def _total(parts: Any) -> tuple[Array, Array]:
    """The sums of log determinants and Gram matrices."""
    return functools.reduce(lambda one, more: (one[0] + more[0], one[1] + more[1]), parts)


def _matrices(structure: IndependentStructures) -> Float[Array, "C N N"]:
    return jnp.stack(once(lambda part: part.matrix(), structure.parts))


def _roots(structure: IndependentStructures) -> Float[Array, "C N N"] | None:
    """The roots of all covariances, where they are at hand."""
    return None if structure.parts[0].root is None else jnp.stack([part.root for part in structure.parts])


def _along(structure: IndependentStructures, sites: Sites) -> tuple[kalman_coupled.Stacked, Any, Sites]:
    """All chains in one, one of the forms, which all have the same places, and the sites in the order of time."""
    along = structure.parts[0]
    return kalman_coupled.Stacked(*(part.chain for part in structure.parts)), along, jax.tree.map(along.in_time, sites)


def check_latents(model: Model, dimension: int) -> None:
    """Refuse priors that do not fit the number of latents that the likelihood sees."""
    latents, name = model.likelihood.latents, type(model.likelihood).__name__
    if isinstance(model.kernel, IndependentKernels) and len(model.kernel.kernels) != latents:
        raise ValueError(
            f"{name} sees {how_many(latents, 'latent function')}, but Independent has "
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
