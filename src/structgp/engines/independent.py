"""Several independent processes that one likelihood sees together: their sites couple them place by place.

The two algorithms of `linalg.coupled` and `linalg.kalman_coupled`: any kernels at O(C N³), and kernels with a finite state
along a line at O(N), with the chains side by side in one state.
"""

from __future__ import annotations

import abc
import dataclasses
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from ..inputs.layouts import Inputs, Times
from ..inputs.observations import Data
from ..kernels.algebra import Kernel
from ..kernels.independent import kernels_of
from ..linalg.dense import coupled
from ..linalg.filters import kalman_coupled, kalman_smooth
from ..posterior import Model
from ..structure.base import No, Structure
from ..structure.dense import covariance, variances
from ..structure.state_space import Where, chain_of, harmonics_of, state_space
from .base import Cost, Engine, Offer, draw, form_by_shape
from .kalman import cost_of_chain


class CoupledSites(eqx.Module):
    """Factors exp(hᵀf − ½ fᵀΠf) on the C values at each place, Π = diag(a) − aaᵀ/Σa; k columns of shifts share them."""

    a: Float[Array, "N C"]
    shift: Float[Array, "N C k"]

    def times(self, f: Float[Array, "N C k"]) -> Float[Array, "N C k"]:
        """Π f at every place."""
        return coupled.precisions(self.a) @ f


class CoupledConditional(eqx.Module):
    """Independent zero-mean processes given sites that couple them: means for one column, covariances at each place."""

    @abc.abstractmethod
    def at(self, X: Float[Array, "M D"]) -> tuple[Float[Array, "M C"], Float[Array, "M C C"]]:
        """Means, and the covariance of the latents with each other, at new places."""

    @abc.abstractmethod
    def residuals(self, X: Float[Array, "M D"], key: Array, n: int) -> Float[Array, "n M C"]:
        """n joint draws at new places of what the sites leave open."""

    @property
    @abc.abstractmethod
    def row_size(self) -> int:
        """How many numbers prediction holds for each new place."""


class CoupledEngine(Engine):
    """An algorithm for several latents; `marginals` and `log_det_and_gram` take `CoupledSites`."""

    latents: int = eqx.field(static=True, default=0)

    takes_unseen_rows: ClassVar[bool] = True

    @abc.abstractmethod
    def marginals(self, structure: Any, sites: Any) -> Any:
        """What the sites leave of the processes at their places: `CoupledMarginals`."""

    @abc.abstractmethod
    def condition(self, structure: Any, sites: Any) -> Any:
        """The processes given the sites, of one column: a `CoupledConditional`."""


class SeveralDense(Structure):
    """The kernels of several latents and the places where they are looked at."""

    kernels: tuple[Kernel, ...]
    X: Float[Array, "N D"]
    K: Float[Array, "C N N"] | None = None

    def matrices(self) -> Float[Array, "C N N"]:
        """The covariance of each latent among the places."""
        return between(self.kernels, self.X, self.X) if self.K is None else self.K

    def computed(self, signed: bool) -> SeveralDense:
        return SeveralDense(self.kernels, self.X, self.matrices())


def between(kernels: tuple[Kernel, ...], X: Float[Array, "N D"], Z: Float[Array, "M D"]) -> Float[Array, "C N M"]:
    """k_c(x, z) for all latents and all rows; a kernel that all latents share is computed once."""
    made = {id(kernel): covariance(kernel, X, Z) for kernel in {id(kernel): kernel for kernel in kernels}.values()}
    return jnp.stack([made[id(kernel)] for kernel in kernels])


class CoupledCholeskyConditional(CoupledConditional):
    """By the factors of `linalg.coupled`, and α."""

    kernels: tuple[Kernel, ...]
    X: Float[Array, "N D"]
    factor: coupled.CoupledFactor
    alpha: Float[Array, "N C 1"]

    @property
    def row_size(self) -> int:
        return 2 * len(self.kernels) * self.X.shape[0]

    def at(self, X: Float[Array, "M D"]) -> tuple[Float[Array, "M C"], Float[Array, "M C C"]]:
        mean, V, G = self._look(X)
        prior = jnp.stack([variances(kernel, X) for kernel in self.kernels], axis=1)
        own = jnp.maximum(prior - jnp.sum(V * V, axis=1).T, 0.0)
        return mean, jax.vmap(jnp.diag)(own) + jnp.einsum("cim,dim->mcd", G, G)

    def residuals(self, X: Float[Array, "M D"], key: Array, n: int) -> Float[Array, "n M C"]:
        _, V, G = self._look(X)
        own = between(self.kernels, X, X) - jnp.swapaxes(V, 1, 2) @ V
        keys = jax.random.split(key, len(self.kernels) + 1)
        apart = jnp.stack([draw(part, key, n) for part, key in zip(own, keys, strict=False)])
        together = jnp.swapaxes(G, 1, 2) @ jax.random.normal(keys[-1], (G.shape[1], n))
        return jnp.transpose(apart + together, (2, 1, 0))

    def _look(self, X: Array) -> tuple[Array, Array, Array]:
        """Means; what the places tell of each latent by itself; and what their coupling leaves open."""
        Ks = between(self.kernels, X, self.X)
        V = self.factor.half @ jnp.swapaxes(Ks, 1, 2)
        G = coupled.shared(self.factor, jnp.swapaxes(self.factor.half, 1, 2) @ V)
        return coupled.times(Ks, self.alpha)[..., 0], V, G


class CoupledCholesky(CoupledEngine):
    """Any kernels on any inputs, exactly: one factor for each latent and one for what couples them."""

    name: ClassVar[str] = "Cholesky"
    structure: ClassVar[str] = "dense"

    def offer(self, model: Model, inputs: Inputs, data: Data | None = None) -> Offer | No:
        N, C = len(inputs), model.likelihood.latents
        flops = 3 * C * N**3 + C * N**2 * (5 * inputs.dimension + 50)
        return Offer(CoupledCholesky(C), Cost(flops, bytes=5 * C * 8 * N**2, rows=N), note=f"{C} latents")

    def form(self, kernel: Any, inputs: Inputs) -> SeveralDense:
        return SeveralDense(kernels_of(kernel, self.latents), jnp.asarray(inputs.points))

    def tuned(self, model: Model, inputs: Inputs, data: Data | None = None) -> CoupledCholesky:
        return CoupledCholesky(model.likelihood.latents)

    def marginals(self, structure: SeveralDense, sites: Any) -> Any:
        return coupled.marginals(structure.matrices(), sites.a, sites.shift)

    def log_det_and_gram(self, structure: SeveralDense, sites: Any) -> tuple[Array, Array]:
        return coupled.log_det_and_gram(structure.matrices(), sites.a, sites.shift)

    def condition(self, structure: SeveralDense, sites: Any) -> Any:
        K = structure.matrices()
        factor = coupled.couple(K, sites.a)
        return CoupledCholeskyConditional(structure.kernels, structure.X, factor, coupled.pull(factor, K, sites.shift))


class SeveralChains(Structure):
    """The chains of several latents side by side, along sorted times."""

    kernels: tuple[Kernel, ...]
    chain: kalman_coupled.Stacked
    t: Float[Array, " N"]
    order: Int[Array, " N"]
    rank: Int[Array, " N"]


class CoupledKalmanConditional(CoupledConditional):
    """By what every place knows from its left and from its right."""

    kernels: tuple[Kernel, ...]
    t: Float[Array, " N"]
    sites: CoupledSites  # in the order of t
    smoothed: kalman_smooth.Smoothed
    engine: CoupledKalman = eqx.field(static=True)

    @property
    def row_size(self) -> int:
        return 12 * self.smoothed.P.shape[1] ** 2

    def at(self, X: Float[Array, "M D"]) -> tuple[Float[Array, "M C"], Float[Array, "M C C"]]:
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
        return (H @ mean)[..., 0], H @ spread @ H.mT

    def residuals(self, X: Float[Array, "M D"], key: Array, n: int) -> Float[Array, "n M C"]:
        """A joint prior draw at the old and new places, less what the sites make of it: O(N + M).

        Processes that are pinned somewhere are no chains from just any place on: their draws go through the covariance.
        """
        if not self._chain(self.t[0]).stationary:
            dense = CoupledCholesky(len(self.kernels))
            return dense.condition(SeveralDense(self.kernels, self.t[:, None]), self.sites).residuals(X, key, n)
        together = jnp.concatenate([self.t, X[:, 0]])
        order = jnp.argsort(together, stable=True)
        t, chain, keys = together[order], self._chain(together[order][0]), jax.random.split(key)
        a = jnp.concatenate([self.sites.a, jnp.zeros((len(X), len(self.kernels)))])[order]
        f = chain.values(t) @ kalman_smooth.prior_samples(chain, jnp.diff(t, prepend=t[:1]), keys[0], n)
        seen = CoupledSites(a, jnp.zeros_like(f))
        # Every scalar factor is as if it had seen its contrast with noise of variance 1/a: together, noise with precision Π.
        noise = jnp.sqrt(a)[:, :, None] * jax.random.normal(keys[1], f.shape)
        p = a / jnp.maximum(jnp.sum(a, axis=1, keepdims=True), 1e-300)
        noise = noise - p[:, :, None] * jnp.sum(noise, axis=1, keepdims=True)
        missed = kalman_coupled.smooth(chain, t, a, -seen.times(f) - noise)[1].mean
        return jnp.moveaxis(jnp.zeros_like(f).at[order].set(f + missed)[len(self.t) :], 2, 0)

    def _before(self, x: Float[Array, ""]) -> tuple[Float[Array, "D 1"], Float[Array, "D D"]]:
        """Mean and covariance of the state at a place before the first observation."""
        chain = self._chain(x)
        P, A = chain.start(), chain.transition(self.t[0] - x)
        return P @ A.T @ self.smoothed.r_seen[0], P - P @ A.T @ self.smoothed.N_seen[0] @ A @ P

    def _chain(self, at: Any) -> kalman_coupled.Stacked:
        where = Where(at, self.t[0], self.engine.harmonics)
        return kalman_coupled.Stacked(*(chain_of(kernel, where) for kernel in self.kernels))  # type: ignore[arg-type]


class CoupledKalman(CoupledEngine):
    """Kernels with a finite state, along a line: one filter over all latents."""

    harmonics: int = eqx.field(static=True, default=0)

    name: ClassVar[str] = "Kalman"
    structure: ClassVar[str] = "markov"

    def offer(self, model: Model, inputs: Inputs, data: Data | None = None) -> Offer | No:
        engine = self.tuned(model, inputs, data)
        form = form_by_shape(engine, model.kernel, inputs)
        if isinstance(form, No):
            return form
        D = form.chain.size
        cost = dataclasses.replace(cost_of_chain(len(inputs), D), rows=0)
        return Offer(engine, cost, note=f"{engine.latents} latents, {D} states")

    def form(self, kernel: Any, inputs: Inputs) -> SeveralChains | No:
        kernels = kernels_of(kernel, self.latents)
        parts = [state_space(one, inputs, self.harmonics) for one in kernels]
        for part in parts:
            if isinstance(part, No):
                return part
        assert isinstance(inputs, Times)
        chain = kalman_coupled.Stacked(*(part.chain for part in parts))  # type: ignore[union-attr, arg-type]
        return SeveralChains(kernels, chain, jnp.asarray(inputs.t), jnp.asarray(inputs.order), jnp.asarray(inputs.rank))

    def tuned(self, model: Model, inputs: Inputs, data: Data | None = None) -> CoupledKalman:
        latents = model.likelihood.latents
        return CoupledKalman(latents, max(harmonics_of(kernel) for kernel in kernels_of(model.kernel, latents)))

    def marginals(self, structure: SeveralChains, sites: Any) -> Any:
        a, h = (part[structure.order] for part in (sites.a, sites.shift))
        found = kalman_coupled.smooth(structure.chain, structure.t, a, h)[1]
        return found._replace(mean=found.mean[structure.rank], covariance=found.covariance[structure.rank])

    def log_det_and_gram(self, structure: SeveralChains, sites: Any) -> tuple[Array, Array]:
        return kalman_coupled.evidence(structure.chain, structure.t, *(p[structure.order] for p in (sites.a, sites.shift)))

    def condition(self, structure: SeveralChains, sites: Any) -> Any:
        sites = jax.tree.map(lambda part: part[structure.order], sites)
        smoothed, _ = kalman_coupled.smooth(structure.chain, structure.t, sites.a, sites.shift)
        return CoupledKalmanConditional(structure.kernels, structure.t, sites, smoothed, self)


SEVERAL: tuple[Engine, ...] = (CoupledKalman(), CoupledCholesky())
