"""Exact inference along a line in linear time: filter forwards, smooth backwards, predict from two neighbours."""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from .. import where
from .._types import how_many
from ..inputs.layouts import Inputs, Times
from ..inputs.observations import Data
from ..kernels.algebra import Kernel, Sum
from ..kernels.outputs import Lagged, outputs_of
from ..linalg.filters import (
    kalman,
    kalman_emission,
    kalman_marginals,
    kalman_parallel,
    kalman_regular,
    kalman_smooth,
    kalman_wide,
)
from ..linalg.markov import chains, rational_sde
from ..posterior import Conditional, Model, draw
from ..sites import Marginals, Sites
from ..structure.approximate import STATES, approximated, covariance_error
from ..structure.base import No
from ..structure.dense import covariance, variance_on_host, variances
from ..structure.derivatives import derivative_rows
from ..structure.state_space import (
    Places,
    StateSpace,
    Where,
    chain_of,
    harmonics_of,
    places_of,
    smallest_period_lengthscale,
    started_at,
    state_space,
    without_lags,
)
from .base import NOT_SAID, Cost, Engine, Offer, form_by_shape, gaussian, noise_variance, term
from .machine import Work

LOW_NOISE = 1e-4  # noise below this part of the prior variance asks for the form without cancellation
MANY = 4  # draws from which on sampling backwards is faster than smoothing a prior draw for each
LONG = 4096  # series worth asking whether the gain settles
EXACT_PART = 4  # one part in so many may need exact steps: more, and the ordinary filter is faster


class KalmanConditional(Conditional):
    """A chain given sites: what every place knows from its left and from its right."""

    kernel: Kernel
    t: Float[Array, " N"]
    sites: Sites  # in the order of t
    smoothed: kalman_smooth.Smoothed
    log_det: Float[Array, ""]
    gram: Float[Array, "C C"]
    engine: Kalman = eqx.field(static=True)
    which: Int[Array, " N"] | None = None  # of several outputs, the one seen at each place
    rank: Int[Array, " N"] | None = None  # rows in the caller's order = these[rank]; None in files that are older

    def log_det_and_gram(self) -> tuple[Float[Array, ""], Float[Array, "C C"]]:
        return self.log_det, self.gram

    @property
    def row_size(self) -> int:
        return 12 * self.smoothed.P.shape[1] ** 2

    def draw_size(self, places: int, n: int) -> int:
        return 4 * n * places * self.smoothed.P.shape[1]

    def at(self, X: Float[Array, "M D"], part: int | None = None) -> tuple[Float[Array, "M C"], Float[Array, " M"]]:
        chain, new = self._chain(self.t[0]), places_of(self.kernel, X)
        value, variance = read(chain, part, new, *self._states(chain, new.t))
        return value, jnp.maximum(variance, 0.0)

    def derivative(
        self, X: Float[Array, "M D"], order: int, dim: int, part: int | None = None
    ) -> tuple[Float[Array, "M C"], Float[Array, " M"]]:
        chain, new = self._chain(self.t[0]), places_of(self.kernel, X)
        rows = chains.read_weights(chain, derivative_rows(chain, part, new.t, order, new.which))
        mean, variance = kalman_emission.read_rows(rows, *self._states(chain, new.t))
        return mean, jnp.maximum(variance, 0.0)

    def inverse_parts(self) -> tuple[Float[Array, " N"], Float[Array, "N C"]]:
        if self.sites.natural:
            mean, variance = self.smoothed.marginals()
            w = self.sites.precision
            return w - w**2 * variance, self.sites.shift - w[:, None] * mean
        # An observation given all the others has variance 1/(C⁻¹)ᵢᵢ and mean y − (C⁻¹T)ᵢ/(C⁻¹)ᵢᵢ.
        w, T = self.sites.precision, self.sites.targets
        mean, variance = self.smoothed.left_out(w, T)
        diagonal = jnp.where(w > 0, 1 / variance, 0.0)
        return diagonal, jnp.where(w[:, None] > 0, diagonal[:, None] * (T - mean), 0.0)

    def filtered(self) -> tuple[Float[Array, "N C"], Float[Array, " N"]]:
        """Means and variance at the observed places given the places up to each."""
        return self.smoothed.m[:, 0], self.smoothed.P[:, 0, 0]

    def grams_so_far(self) -> Float[Array, "N C C"]:
        """TᵀC⁻¹T of the places up to each."""
        w, e = self.sites.precision, self.sites.targets - self.smoothed.predicted_mean
        e = jnp.sqrt(w / (1 + w * self.smoothed.predicted_variance))[:, None] * e
        return jnp.cumsum(e[:, :, None] * e[:, None, :], axis=0)

    def lag_one(self) -> Float[Array, " gaps"]:
        """The covariance of the value at each observed place with that at the next."""
        chain = self._chain(self.t[0])
        between = kalman_smooth.lag_one(chain, _gaps(self.t), self.smoothed)[:, 0]
        return jnp.sum(between * _rows(chain, None, self._seen_at(slice(1, None))), axis=1) if chain.varies else between[:, 0]

    def joint(self, X: Float[Array, "M D"], part: int | None = None) -> tuple[Float[Array, "M C"], Float[Array, "M M"]]:
        # The cross-covariances k(t, X), taken as targets, have the mean K(X, t) C⁻¹ K(t, X) at X.
        new = places_of(self.kernel, X).table
        kernel = term(started_at(without_lags(self.kernel), self.t[0]), part)
        cross = covariance(kernel, self._seen_at().table, new)
        sites = Sites(self.sites.precision, self.sites.precision[:, None] * cross)
        explained = self.engine.smooth(self._chain(self.t[0]), self._seen_at(), sites)
        known = eqx.tree_at(lambda c: (c.smoothed, c.sites), self, (explained, sites))
        reduction = known.at(X, part)[0]
        return self.at(X, part)[0], covariance(kernel, new, new) - 0.5 * (reduction + reduction.T)

    joint_of_part = joint

    def residuals(self, X: Float[Array, "M D"], key: Array, n: int) -> Float[Array, "M n"]:
        """A joint prior draw at the old and new places, less what the sites make of it: O(N + M). Many draws go backwards.

        A process that is pinned somewhere is not a chain from just any place on, and sites of negative precision are nothing
        that could have been seen: then the draws go through their covariance.
        """
        if not self._chain(self.t[0]).stationary or self.sites.signed:
            return draw(self.joint(X)[1], key, n)
        new = places_of(self.kernel, X)
        together = jnp.concatenate([self.t, new.t])
        order = jnp.argsort(together, stable=True)
        t = together[order]
        precision = jnp.concatenate([self.sites.precision, jnp.zeros(len(X))])[order]
        chain = self._chain(t[0])
        if chain.varies:
            which = None if self.which is None else jnp.concatenate([self.which, new.which])[order]
            draws = kalman_emission.posterior_samples(chain, t, precision, jnp.zeros((len(t), 1)), key, n, which)
            return jnp.zeros_like(draws).at[order].set(draws)[len(self.t) :]
        sampled = kalman_smooth.backward_samples if n >= MANY else kalman_smooth.posterior_samples
        how: dict[str, Any] = {"smooth": kalman_parallel.smooth, "parallel": True} if self.engine.parallel else {}
        draws = sampled(chain, _gaps(t), precision, jnp.zeros((len(t), 1)), key, n, **how)[:, 0]
        return jnp.zeros_like(draws).at[order].set(draws)[len(self.t) :]

    def among_outputs(self, X: Float[Array, "M D"], outputs: int) -> tuple[Float[Array, "M P C"], Float[Array, "M P P"]] | None:
        """Means of all outputs and their covariance at each place; None where lags take them from different times."""
        if isinstance(self.kernel, Lagged):
            return None
        chain, t = self._chain(self.t[0]), X[:, 0]
        mean, spread = self._states(chain, t)
        each = [_rows(chain, None, Places(t, jnp.full(len(t), i))) for i in range(outputs)]
        H = jnp.stack(each, axis=1)
        return jnp.einsum("mpd,mdc->mpc", H, mean), jnp.einsum("mpd,mde,mqe->mpq", H, spread, H)

    @property
    def rows(self) -> Float[Array, "N D"]:
        """The places of the sites as rows of inputs, in their order."""
        table = self._seen_at().table
        return table.at[:, 0].add(self.kernel.lag[self.which]) if isinstance(self.kernel, Lagged) else table

    def _seen_at(self, some: slice = slice(None)) -> Places:
        """The places of the sites."""
        return Places(self.t[some], None if self.which is None else self.which[some])

    def _chain(self, at: Any) -> chains.Chain:
        chain = chain_of(self.kernel, Where(at, self.t[0], self.engine.harmonics))
        assert not isinstance(chain, No)
        return chain

    def _states(self, chain: chains.Chain, x: Float[Array, " M"]) -> tuple[Float[Array, "M D C"], Float[Array, "M D D"]]:
        """Mean and covariance of the state at new places, before, between or after the observations."""
        left = jnp.searchsorted(self.t, x, side="right") - 1
        to_left = x - self.t[jnp.maximum(left, 0)]
        to_right = self.t[jnp.minimum(left + 1, len(self.t) - 1)] - x
        mean, spread = kalman_smooth.predict(chain, self.smoothed, left, to_left, to_right)
        if chain.stationary:
            return mean, spread
        before = left < 0
        P, A = jax.vmap(self._arriving)(jnp.where(before, x, self.t[0]))
        r, N = jnp.swapaxes(A, 1, 2) @ self.smoothed.r_seen[0], jnp.swapaxes(A, 1, 2) @ self.smoothed.N_seen[0] @ A
        at_left = P @ r, P - P @ N @ P
        choose = lambda a, b: jnp.where(before[:, None, None], a, b)
        return choose(at_left[0], mean), choose(at_left[1], spread)

    def _arriving(self, x: Float[Array, ""]) -> tuple[Float[Array, "D D"], Float[Array, "D D"]]:
        """The prior covariance of the state at a place before the first observation, and the way from there to it."""
        chain = chain_of(self.kernel, Where(x, self.t[0], self.engine.harmonics))
        assert not isinstance(chain, No)
        chain = chains.observed_first(chain)
        return chain.start(), chain.transition(self.t[0] - x)


def _gaps(t: Float[Array, " N"]) -> Float[Array, " N"]:
    return jnp.diff(t, prepend=t[:1])


def read(chain: chains.Chain, part: int | None, x: Places, mean: Any, spread: Any) -> tuple[Any, Any]:
    """Mean and variance of f, or of one part of a sum, from those of the state at these places."""
    if chain.varies:
        return kalman_emission.read_rows(_rows(chain, part, x), mean, spread)
    return kalman_smooth.read_values(_row(chain, part), mean, spread)


def _row(chain: chains.Chain, part: int | None) -> Any:
    """The row that reads f, or one part of a sum, out of the state."""
    row = chain.row if part is None else chain.part_row(part)  # type: ignore[attr-defined]
    return chains.read_weights(chain, row)


def _rows(chain: chains.Chain, part: int | None, x: Places) -> Float[Array, "M D"]:
    """The row for each place, of a chain that is seen differently from place to place."""
    rows = chain.rows(*x) if part is None else chain.part_rows(part, *x)  # type: ignore[attr-defined]
    return chains.read_weights(chain, rows.T)


class Kalman(Engine):
    """Kernels with a finite state, along a line.

    The fields are static choices that `tuned` makes from the values at hand: how many harmonics a periodic kernel needs,
    whether low noise asks for the form without cancellation, after how many steps the gain settles on a regular series (0: it
    is not used) and how many blocks of such a series need exact steps, whether nothing is missing and all noise is alike, and
    whether places are joined in parallel, as on a GPU. `approximate` names what stands in for kernels without a finite state,
    when that was asked for.
    """

    harmonics: int = eqx.field(static=True, default=0)
    accurate: bool = eqx.field(static=True, default=True)
    settle: int = eqx.field(static=True, default=0)
    exact: int = eqx.field(static=True, default=0)
    complete: bool = eqx.field(static=True, default=False)
    parallel: bool = eqx.field(static=True, default=False)
    approximate: str | None = eqx.field(static=True, default=None)

    name: ClassVar[str] = "Kalman"
    structure: ClassVar[str] = "markov"
    takes_unseen_rows: ClassVar[bool] = True

    def offer(self, model: Model, inputs: Inputs, data: Data | None = None) -> Offer | No:
        form = form_by_shape(self.tuned(model, inputs), model.kernel, inputs)
        if isinstance(form, No):
            return form
        engine = self.tuned(model, inputs, data)
        D, N = form.chain.size, len(inputs)
        has_periodic = smallest_period_lengthscale(model.kernel) < np.inf
        periodic = f", periodic parts by {engine.harmonics} harmonics (covariance error below 1e-12)" if has_periodic else ""
        error = covariance_error(model.kernel, self.approximate) if self.approximate else 0.0
        cost, series = engine.cost(N, D), engine._series(D)
        look = N * series + (_joined(N, D, 1.5) if engine.parallel else look_along(N, D))
        cost = cost if gaussian(model, data) else cost.searching(look)
        return Offer(engine, cost, note=f"{how_many(D, 'state')}{periodic}", error=error)

    def form(self, kernel: Kernel, inputs: Inputs) -> StateSpace | No:
        return state_space(approximated(kernel, self.approximate), inputs, self.harmonics)

    def tuned(self, model: Model, inputs: Inputs, data: Data | None = None) -> Kalman:
        choices: dict[str, Any] = {"harmonics": harmonics_of(model.kernel), "parallel": where.backend() == "gpu"}
        if data is not None and isinstance(inputs, Times) and gaussian(model, data):
            choices |= _choices_for_noise(model, inputs, data, self.approximate, **choices)
        elif data is not None and isinstance(inputs, Times) and np.isfinite(model.likelihood.largest_precision):
            sharpest = model.likelihood.largest_precision * (1.0 if data.weight is None else np.max(data.weight))
            choices["accurate"] = bool(LOW_NOISE * variance_on_host(model.kernel, inputs.some_place) * sharpest > 1)
        return _kalman(**choices, approximate=self.approximate)

    def shared(self, data: Data) -> Data:
        return dataclasses.replace(data, noise=data.noise[:1], seen=data.seen[:1]) if self.complete else data

    def log_det_and_gram(self, structure: StateSpace, sites: Sites) -> tuple[Float[Array, ""], Float[Array, "C C"]]:
        return self._log_det_and_gram(structure, _in_time(structure, sites))

    def marginals(self, structure: StateSpace, sites: Sites) -> Marginals:
        w, h = structure.in_time(sites.precision), structure.in_time(sites.shift)
        if self.parallel and not structure.chain.varies:
            smoothed = kalman_parallel.smooth(structure.chain, structure.gaps(), w, h, natural=True)
            mean, variance, log_det, gram = kalman_marginals.of_smoothed(smoothed, w, h)
            return Marginals(structure.as_given(mean), structure.as_given(variance), log_det, gram)
        mean, variance, log_det, gram = kalman_marginals.marginals(
            structure.chain, structure.t, w, h, structure.which, accurate=self.accurate
        )
        return Marginals(structure.as_given(mean), structure.as_given(variance), log_det, gram)

    def condition(self, structure: StateSpace, sites: Sites) -> KalmanConditional:
        sorted_sites = _in_time(structure, sites)
        smoothed = self.smooth(structure.chain, Places(structure.t, structure.which), sorted_sites)
        w, columns = sorted_sites.precision, sorted_sites.shift if sites.natural else sorted_sites.targets
        predicted = smoothed.predicted_variance, smoothed.predicted_mean
        log_det, gram = kalman.site_sums(w, columns, *predicted, natural=sites.natural)
        kept = dataclasses.replace(sorted_sites, values=None)
        where = structure.which, structure.rank
        return KalmanConditional(structure.kernel, structure.t, kept, smoothed, log_det, gram, self, *where)

    def smooth(self, chain: chains.Chain, places: Places, sites: Sites) -> kalman_smooth.Smoothed:
        """Everything that is known at these places."""
        t = places.t
        columns = sites.shift if sites.natural else sites.targets
        if chain.varies:
            return kalman_emission.smooth(chain, t, sites.precision, columns, places.which, natural=sites.natural)
        if self.parallel:
            return kalman_parallel.smooth(chain, _gaps(t), sites.precision, columns, natural=sites.natural)
        return kalman_smooth.smooth(chain, _gaps(t), sites.precision, columns, accurate=True, natural=sites.natural)

    def prior_draws(self, structure: StateSpace, key: Array, n: int) -> Float[Array, "N n"]:
        """n joint draws of the process at its places, in the caller's order: O(N)."""
        if structure.chain.varies:
            draws = kalman_emission.prior_samples(structure.chain, structure.t, key, n, structure.which)
        else:
            draws = kalman_smooth.prior_samples(structure.chain, structure.gaps(), key, n, parallel=self.parallel)[:, 0]
        return draws[structure.rank]

    def cost(self, N: int, D: int) -> Cost:
        """What a filter of D states takes along N places, with the choices that were made."""
        series = self._series(D)
        cost = cost_of_chain(N, D, series)
        if self.parallel:
            passes = lambda count: _joined(N, D, count) + 2 * N * series
            return dataclasses.replace(cost, evaluate=passes(2), condition=passes(4), draw=passes(6))
        if self.settle:  # a few exact steps, then one gain for all
            exact = (1 + self.exact) * kalman_regular.BLOCK
            settled = Work(traffic=300.0 * N * D)
            return dataclasses.replace(cost, evaluate=settled + _along(exact, D, 2))
        return cost

    def _series(self, D: int) -> Work:
        """What a transition takes besides: a long series for each entry, of a chain that stands for another process."""
        return Work(functions=float(sum(rational_sde.TERMS) * D * STATES)) if self.approximate == "state-space" else NOT_SAID

    def _log_det_and_gram(self, structure: StateSpace, sites: Sites) -> tuple[Array, Array]:
        """For sites in the order of time."""
        chain, gaps, w, natural = structure.chain, structure.gaps(), sites.precision, sites.natural
        T = sites.shift if natural else sites.targets
        alike = len(w) < len(T)  # one precision, said once
        if alike and not self.settle:
            w = jnp.broadcast_to(w, len(T))
        if chain.varies and self.parallel and not natural:
            return kalman_parallel.varying_evidence(chain, structure.t, w, T, structure.which)
        if structure.which is not None and not natural:
            return self._of_outputs(structure, w, T)
        if chain.varies:
            return kalman_emission.evidence(chain, structure.t, w, T, structure.which, natural=natural)
        if self.parallel:
            return kalman_parallel.evidence(chain, gaps, w, T, natural=natural)
        if natural:
            return kalman.evidence(chain, gaps, w, T, accurate=self.accurate, natural=True)
        if self.settle:
            gap = (structure.t[-1] - structure.t[0]) / (len(T) - 1)
            return kalman_regular.evidence(chain, gap, w[0] if alike else w, T, settle=self.settle, exact=self.exact)
        return kalman.evidence(chain, gaps, w, T, accurate=self.accurate)

    def _of_outputs(self, structure: StateSpace, w: Array, T: Array) -> tuple[Array, Array]:
        """The same of several outputs: a step for each row, or for each time where most are seen together."""
        t, which = jnp.asarray(structure.t), jnp.asarray(structure.which)[:, None]
        if structure.cells is None:
            return kalman_wide.evidence(structure.chain, t, which, w[:, None], T[:, None], accurate=self.accurate)
        cells = jnp.asarray(structure.cells)
        t = jnp.append(t, t[-1])[jnp.min(cells, axis=1)]
        w, T = jnp.append(w, 0.0)[cells], jnp.concatenate([T, jnp.zeros((1, T.shape[1]))])[cells]
        return kalman_wide.evidence(structure.chain, t, None, w, T, accurate=self.accurate)


def cost_of_chain(N: int, D: int, series: Work = NOT_SAID) -> Cost:
    """What a filter of D states takes along N places, to each of which the transition takes so much besides."""
    return Cost(
        flops=N * (20 * D**3 + 100),
        bytes=8 * N * (4 * D**2 + 10),
        rows=N,
        evaluate=_along(N, D, 2) + 2 * N * series,
        condition=_along(N, D, 4) + 3 * N * series,
        predict=Work(small=20.0 * D**3, traffic=800.0 * D**2) + series,
        draw=_along(N, D, 6) + 3 * N * series,  # there and back along the whole line
        leave_out=Work(functions=40.0 * N * D),
        programs=12,
    )


def look_along(N: int, D: int) -> Work:
    """What the marginals take that sites leave along N places."""
    return _along(N, D, 1.5)


def _along(N: int, D: int, passes: float) -> Work:
    """The work of passes over N places, forwards or backwards, one place after the other."""
    return Work(steps=5.0 * passes * N, small=4.0 * passes * N * D**3, traffic=100.0 * passes * N * D**2)


def _joined(N: int, D: int, passes: float) -> Work:
    """The same by joining places in pairs."""
    return passes * Work(steps=5 * math.log2(N + 1), products=50.0 * N * D**3, traffic=600.0 * N * D**2)


def _choices_for_noise(
    model: Model, inputs: Times, data: Data, approximate: str | None, harmonics: int, parallel: bool
) -> dict[str, Any]:
    """The choices that follow from the noise, from what is missing and from the spacing."""
    seen = np.asarray(data.seen)
    if inputs.which is not None:
        return {"accurate": _quiet_output(model, inputs, float(np.min(data.noise)))}
    everything = bool(seen.all())
    own, known = noise_variance(model, inputs), np.asarray(data.noise)
    own, known = (own, known) if own.ndim == 0 else (np.zeros(()), own + known)  # an evaluation may be short
    known = known if everything else known[seen]
    low, high = float(known.min(initial=np.inf) + own), float(known.max(initial=0) + own)
    accurate = low < LOW_NOISE * variance_on_host(model.kernel, inputs.some_place)
    choices = {"accurate": accurate, "complete": everything and low == high and inputs.in_order}
    if parallel or accurate or not inputs.regular or len(inputs) < LONG or low != high:
        return choices
    gap = (inputs.t[-1] - inputs.t[0]) / (len(inputs) - 1)
    chain = _chain_at(approximated(model.kernel, approximate), float(inputs.t[0]), harmonics)
    settle = None if chain.varies else kalman_regular.settling_steps(chain, gap, 1 / low)
    if settle is None:
        return choices
    exact = kalman_regular.exact_blocks(seen if inputs.in_order else seen[inputs.order], settle)
    worth_it = EXACT_PART * exact * kalman_regular.BLOCK <= len(inputs)
    return choices | {"settle": settle, "exact": exact} if worth_it else choices


def _quiet_output(model: Model, inputs: Times, known: float) -> bool:
    """Whether an output is seen with so little noise, beside its own variance, that differences of covariances would cancel."""
    outputs = outputs_of(model.kernel)
    count = 1 if outputs is None else outputs.count
    places = np.column_stack([np.full(count, float(inputs.t[0])), np.arange(count)])
    noise = np.broadcast_to(np.asarray(model.likelihood.noise_at(places)), (count,)) + known
    return bool(np.any(noise < LOW_NOISE * np.asarray(_prior_variances(model.kernel, places))))


_kalman = functools.cache(Kalman)  # an evaluation makes one: that should not cost more than a short series


def _in_time(structure: StateSpace, sites: Sites) -> Sites:
    """The sites in the order of time."""
    return jax.tree.map(structure.in_time, sites)


@jax.jit
def _prior_variances(kernel: Kernel, X: Any) -> Any:
    return variances(kernel, X)


@eqx.filter_jit
def _chain_at(kernel: Kernel, first: float, harmonics: int) -> Any:
    return chain_of(kernel, Where(first, first, harmonics))


def parts_of(kernel: Kernel) -> tuple[Kernel, ...]:
    """The terms of a sum, which can be predicted one by one."""
    return kernel.terms if isinstance(kernel, Sum) else (kernel,)
