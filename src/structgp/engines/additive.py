"""Sums of one-dimensional terms in time that grows with N: the mean exactly, the evidence from below.

The mean solves (ΣK_d + W⁻¹)α = T by conjugate gradients on B = I + S K S, S = √W, with products K_d v by two scans along each
line and the projection on spline features as preconditioner. Its residual is checked: the mean is that of the full model. The
evidence is the lower bound that the projection makes by the `woodbury` engine, and the variances are those of the projected
process plus what it leaves out.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ..inputs.layouts import Inputs
from ..inputs.observations import Data
from ..kernels.algebra import Kernel
from ..linalg import conjugate_gradients, krylov
from ..linalg.features import splines
from ..linalg.filters import kalman_smooth
from ..linalg.markov import chains, quasiseparable
from ..posterior import Conditional, Model
from ..sites import Marginals, Sites
from ..structure.additive import Additive, Lines, additive, lines_of, lines_on_host, terms_of
from ..structure.base import No, first_no
from ..structure.dense import covariance
from ..structure.features import Features
from .additive_splines import Projected, SplineMap, sparse_products
from .base import NOT_SAID, PLANNING, Engine, Offer, form_by_shape, gaussian, noise_variance, not_concave
from .machine import Work
from .woodbury import Weighed, Woodbury, cost_of_features, look_at_features, sums_of

LEFT_OUT = {1: 0.3, 2: 0.12, 3: 0.1, 4: 0.1}  # by number of states: see `intervals_for`
CLOSE, CLOSE_PER_ROW = 1.0, 3e-4  # how far the bound may lie below the evidence, at all and for each row
INTERVALS = (8, 16, 24, 32, 48, 64, 96, 128, 192, 256)  # few sizes, so that few programs are compiled
MOST_FEATURES = 3000  # of all lines together
UNLIKE_GAUSSIAN = 0.1  # noise that stands for that of observations without one, when knots are counted
SOLVERS = ("conjugate-gradients", "backfitting")
SWEEPS = 300  # of backfitting, at most
TOLERANCE = 1e-9  # of the residual of the mean, relative to the data
STEPS = 12  # of conjugate gradients for the mean, typically
PROBE_TOLERANCE, PROBE_STEPS = 1e-4, 40  # of the estimate of a determinant, where little is enough

Map = Callable[[Any], Any]


class AdditiveConditional(Conditional):
    """A sum of lines given sites: the swept weights α of each line for the means, the projected process for the variances."""

    kernel: Kernel
    structure: Additive
    sites: Sites
    alpha: Float[Array, "N C"]
    swept: quasiseparable.Swept
    projected: Projected
    evidence: tuple[Float[Array, ""], Float[Array, "C C"]]
    steps: Int[Array, ""]
    residual: Float[Array, ""]
    engine: AdditiveEngine = eqx.field(static=True)

    def log_det_and_gram(self) -> tuple[Float[Array, ""], Float[Array, "C C"]]:
        return self.evidence

    @property
    def row_size(self) -> int:
        return 4 * self.projected.factor.shape[0]

    def draw_size(self, places: int, n: int) -> int:
        return 4 * n * places * self.structure.t.shape[1]

    def at(self, X: Float[Array, "M D"], part: int | None = None) -> tuple[Float[Array, "M C"], Float[Array, " M"]]:
        x, made = _lines(self.kernel, X).t, self.projected.map
        mean, psi = self.line_means(x), self.projected.features(x)
        left_out = made.rest_of_lines(psi)
        if part is not None:
            chosen = jnp.arange(x.shape[1]) == part
            mean, left_out = jnp.where(chosen[:, None], mean, 0.0), jnp.where(chosen[:, None], left_out, 0.0)
            psi = jnp.where(chosen[:, None, None], made.by_line(psi), 0.0).reshape(psi.shape)
        known = jnp.sum(self.projected.whitened(psi) ** 2, axis=0)
        return jnp.sum(mean, axis=1), jnp.sum(left_out, axis=0) + known

    def line_means(self, x: Float[Array, "M L"]) -> Float[Array, "M L C"]:
        """The mean of each term at places of its line."""
        form = self.structure
        return form.variance[:, None] * quasiseparable.between(self.swept, form.t, x, form.rate, form.states)

    def joint(self, X: Float[Array, "M D"]) -> tuple[Float[Array, "M C"], Float[Array, "M M"]]:
        psi = self.projected.features(_lines(self.kernel, X).t)
        V = self.projected.whitened(psi)
        return self.at(X)[0], covariance(self.kernel, X, X) - psi.T @ psi + V.T @ V

    def residuals(self, X: Float[Array, "M D"], key: Array, n: int) -> Float[Array, "M n"]:
        """A joint prior draw at the old and new places, less what the sites make of it."""
        form, x = self.structure, _lines(self.kernel, X).t
        keys = jax.random.split(key, x.shape[1] + 1)
        both = jnp.concatenate([_unsorted(form), x])
        one_line = functools.partial(_draw_line, states=form.states, n=n)
        drawn = jnp.sum(jax.vmap(one_line)(both.T, form.rate, form.variance, keys[:-1]), axis=0)
        w = self.sites.precision[:, None]
        noise = jax.random.normal(keys[-1], (len(w), n)) / jnp.sqrt(jnp.where(w > 0, w, 1.0))
        solved = self.engine.solve(form, self.sites.precision, drawn[: len(w)] + noise, self.projected)
        swept = _sweep(form, solved.x)
        known = form.variance[:, None] * quasiseparable.between(swept, form.t, x, form.rate, form.states)
        return drawn[len(w) :] - jnp.sum(known, axis=1)

    def inverse_parts(self) -> tuple[Float[Array, " N"], Float[Array, "N C"]]:
        w, form = self.sites.precision, self.structure
        psi = self.projected.features(_unsorted(form))
        fitted = jnp.sum(self.projected.whitened(psi) ** 2, axis=0)
        return w - w * w * fitted, self.alpha


class AdditiveEngine(Engine):
    """Sums of Matérn terms, each along one column or direction, on any inputs, with at least so many spline intervals."""

    intervals: int = eqx.field(static=True, default=INTERVALS[0])
    held: bool = eqx.field(static=True, default=False)  # whether the knots stay as they are while values change
    solver: str = eqx.field(static=True, default=SOLVERS[0])

    name: ClassVar[str] = "Additive"
    structure: ClassVar[str] = "additive"
    accuracy: ClassVar[str] = "mean exact, evidence from below"

    def offer(self, model: Model, inputs: Inputs, data: Data | None = None) -> Offer | No:
        no = first_no(form_by_shape(self, model.kernel, inputs), not_concave(model))
        if no:
            return no
        engine = dataclasses.replace(dataclasses.replace(self, held=False).tuned(model, inputs, data), held=True)
        N, L = len(inputs), len(terms_of(model.kernel))
        F = L * splines.size(engine.intervals, 3)
        through = cost_of_features(N, F)
        sweep = Work(steps=50.0 * N, traffic=2000.0 * N * L)
        cost = dataclasses.replace(
            through,
            flops=N * (2 * F**2 + 2000 * L) + F**3,
            bytes=8 * (N * 40 * L + 6 * F**2),
            rows=0,
            draw=NOT_SAID,
            condition=through.condition + (1 + STEPS) * sweep + Work(products=2.0 * STEPS * F**2, calls=PLANNING),
            programs=25,
        )
        cost = cost if gaussian(model, data) else cost.searching(look_at_features(N, F))
        return Offer(engine, cost, note=f"{L} lines, {engine.intervals} spline intervals each", accuracy=self.accuracy)

    def form(self, kernel: Kernel, inputs: Inputs) -> Additive | No:
        return additive(kernel, inputs)

    def tuned(self, model: Model, inputs: Inputs, data: Data | None = None) -> AdditiveEngine:
        """As many knots as the shortest lengthscale asks for, and no fewer than there are."""
        if self.held:
            return self
        with jax.enable_x64(True):
            lines = lines_on_host(model.kernel, np.asarray(inputs.points))
        if isinstance(lines, No):
            return self
        its_own = model.likelihood.is_gaussian
        noise = float(np.mean(noise_variance(model, inputs))) if its_own else UNLIKE_GAUSSIAN
        needed = intervals_for(lines, noise, len(inputs))
        return AdditiveEngine(max(self.intervals, needed), solver=self.solver)

    def log_det_and_gram(self, structure: Additive, sites: Sites) -> tuple[Float[Array, ""], Float[Array, "C C"]]:
        return Woodbury().log_det_and_gram(self.seen_through_splines(structure), sites)

    def marginals(self, structure: Additive, sites: Sites) -> Marginals:
        return Woodbury().marginals(self.seen_through_splines(structure), sites)

    def seen_through_splines(self, structure: Additive) -> Features:
        """The projected process and its places."""
        return Features(SplineMap.on(basis_of(structure, self.intervals), structure), _unsorted(structure))

    def condition(self, structure: Additive, sites: Sites) -> AdditiveConditional:
        seen = self.seen_through_splines(structure)
        assert isinstance(seen.map, SplineMap)
        sums = sums_of(seen, sites)
        weighed = Weighed.by(seen.map, sums)
        projected = Projected.given(seen.map, weighed.factor)
        solved = self.solve(structure, sites.precision, sites.targets, projected)
        swept = _sweep(structure, solved.x)
        gram = sites.targets.T @ solved.x  # exact, and never above that of the projection: the bound stays one
        log_det = weighed.log_det - sums.log_weights
        if sites.natural:
            log_det, gram = weighed.log_det, sums.targets - gram
        evidence = (log_det, 0.5 * (gram + gram.T))
        return AdditiveConditional(
            structure.kernel, structure, sites, solved.x, swept, projected, evidence, solved.steps, solved.residual, self
        )

    def solve(
        self, structure: Additive, w: Float[Array, " N"], targets: Float[Array, "N C"], projected: Projected
    ) -> conjugate_gradients.Solution:
        """C⁻¹T to a tolerance on the residual, zero where nothing was seen."""
        if self.solver == "backfitting":
            return backfitted(structure, w, targets)
        S = jnp.sqrt(w)[:, None]
        apply = lambda v: v + S * product(structure, S * v)
        precondition, _ = preconditioner(structure, w, projected)
        solution = conjugate_gradients.solve(apply, precondition, S * targets, TOLERANCE)
        return solution._replace(x=S * solution.x)


def backfitted(structure: Additive, w: Float[Array, " N"], targets: Float[Array, "N C"]) -> conjugate_gradients.Solution:
    """The same by sweeps: each line in turn smooths what the others leave, by the Kalman filter; steps are sweeps.

    With f = Σ f_d the sweeps lower ½ Σ f_dᵀK_d⁻¹f_d + ½ ‖T − f‖²_W. Lines can trade constants at hardly any cost, so after each
    sweep the best multiple of g_d = K_d(K_d + W⁻¹)⁻¹1 is added to every line: K_d⁻¹g_d = W(1 − g_d). Where columns are
    correlated lines trade more than that, and backfitting all but stands still: the residual, which is that of the system and
    not the change between two sweeps, says so.
    """
    W, count = w[:, None], structure.t.shape[1]
    gaps, every = structure.gaps(), jnp.arange(count)
    norm = lambda rows: jnp.sqrt(jnp.sum(W * rows**2, axis=0))
    sizes = jnp.where(norm(targets) > 0, norm(targets), 1.0)

    def smoothed(line: Array, left: Array) -> Array:
        order, rank = structure.order[:, line], structure.rank[:, line]
        chain = chains.Matern(structure.states, structure.rate[line], structure.variance[line])
        return kalman_smooth.smooth(chain, gaps[:, line], w[order], left[order]).marginals()[0][rank]

    def one_line(f: Array, line: Array) -> tuple[Array, None]:
        return f.at[line].set(smoothed(line, targets - jnp.sum(f, axis=0) + f[line])), None

    g = jax.lax.map(lambda line: smoothed(line, jnp.ones((len(w), 1)))[:, 0], every)
    h = w * (1 - g)
    trade = (g * w) @ g.T + jnp.diag(jnp.sum(g * h, axis=1))

    def sweep(state: tuple) -> tuple:
        f = jax.lax.scan(one_line, state[0], every)[0]
        pull = g @ (W * (targets - jnp.sum(f, axis=0))) - jnp.einsum("ln,lnc->lc", h, f)
        f = f + g[:, :, None] * jnp.linalg.solve(trade, pull)[:, None]
        total = jnp.sum(f, axis=0)
        off = total - product(structure, W * (targets - total))  # T − C α for α = W (T − Σ f)
        return f, jnp.max(norm(off) / sizes), state[2] + 1

    start = (jnp.zeros((count, *targets.shape)), jnp.array(jnp.inf), jnp.zeros((), int))
    f, residual, sweeps = jax.lax.while_loop(lambda state: (state[1] > TOLERANCE) & (state[2] < SWEEPS), sweep, start)
    return conjugate_gradients.Solution(W * (targets - jnp.sum(f, axis=0)), sweeps, residual)


def preconditioner(structure: Additive, w: Float[Array, " N"], projected: Projected) -> tuple[Map, Map]:
    """Two functions of columns: P⁻¹r for P = I + S Q S, and S times the projected prior at whitened weights."""
    S = jnp.sqrt(w)[:, None]
    forward, transpose = sparse_products(projected.basis, _unsorted(structure), structure.states)
    made = projected.map

    def raised(a: Array) -> Array:
        return S * forward(made.unwhiten(a))

    def precondition(r: Array) -> Array:
        return r - raised(jax.scipy.linalg.cho_solve((projected.factor, True), made.whiten(transpose(S * r))))

    return precondition, raised


def remainders(conditional: AdditiveConditional, key: Array, probes: int) -> Float[Array, " probes"]:
    """Estimates of log|C| − log|C_Q|, one from each random probe, by Lanczos' method."""
    form, w = conditional.structure, conditional.sites.precision
    S = jnp.sqrt(w)[:, None]
    apply = lambda v: v + S * product(form, S * v)
    precondition, raised = preconditioner(form, w, conditional.projected)

    def one(key: Array) -> Array:
        first, second = jax.random.split(key)
        b = jax.random.normal(first, (len(w), 1)) + raised(
            jax.random.normal(second, (conditional.projected.factor.shape[0], 1))
        )
        solved = krylov.conjugate_gradients(apply, precondition, b, PROBE_TOLERANCE, PROBE_STEPS, kept=PROBE_STEPS)
        return len(w) * krylov.log_form(solved)

    return jax.lax.map(one, jax.random.split(key, probes))


def product(structure: Additive, v: Float[Array, "N C"]) -> Float[Array, "N C"]:
    """K v, in the caller's order."""
    u = structure.rate * structure.gaps()
    along = structure.variance[:, None] * quasiseparable.product(u, structure.sorted(v), structure.states)
    return jnp.sum(structure.returned(along), axis=1)


def intervals_for(lines: Lines, noise: float, count: int) -> int:
    """How many intervals between knots keep the bound on the evidence close, as far as memory allows.

    Of the variance v of a line, a part of about (h/ℓ)^(2n−1)/10 is left out with knots h apart.
    """
    n, (t, rate, variance) = lines.states, (np.asarray(part) for part in lines[:3])
    spans = np.ptp(t, axis=0) * rate / np.sqrt(2 * n - 1)
    close = 2 * max(CLOSE, CLOSE_PER_ROW * count)
    share = LEFT_OUT[n] * count / max(noise, 1e-12 * float(np.sum(variance)))
    needed = (share * np.sum(variance * spans ** (2 * n - 1)) / close) ** (1 / (2 * n - 1))
    most = MOST_FEATURES / len(rate) - 2 * n + 1
    fitting = [size for size in INTERVALS if size <= most] or [INTERVALS[0]]
    return next((size for size in fitting if size >= needed), fitting[-1])


def basis_of(structure: Additive, intervals: int) -> splines.Splines:
    """Spline features on the lines."""
    return splines.build(jax.lax.stop_gradient(structure.t), intervals, structure.states)


def _lines(kernel: Kernel, X: Float[Array, "M D"]) -> Lines:
    lines = lines_of(kernel, X)
    assert not isinstance(lines, No)
    return lines


def _unsorted(structure: Additive) -> Float[Array, "N L"]:
    return structure.returned(structure.t[..., None])[..., 0]


def _sweep(structure: Additive, v: Float[Array, "N C"]) -> quasiseparable.Swept:
    return quasiseparable.sweep(structure.rate * structure.gaps(), structure.sorted(v), structure.states)


def _draw_line(
    t: Float[Array, " N"], rate: Float[Array, ""], variance: Float[Array, ""], key: Array, *, states: int, n: int
) -> Float[Array, "N n"]:
    """n draws of one term at places in any order."""
    order = jnp.argsort(t)
    gaps = jnp.diff(t[order], prepend=t[order][:1])
    drawn = kalman_smooth.prior_samples(chains.Matern(states, rate, variance), gaps, key, n)[:, 0]
    return jnp.zeros_like(drawn).at[order].set(drawn)
