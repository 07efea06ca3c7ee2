"""A process known through its values at inducing inputs: everything from matrices of their number M, in O(NM²).

What the inducing inputs leave out of the variance of f at the data, d = k − diag K_fu K_uu⁻¹ K_uf, is treated by one of several
methods (`linalg.features.low_rank` has the algebra):

- "sor", "dtc", "nystrom": it is dropped; of new places all but "sor" keep it;
- "vfe": it is charged for, which makes the evidence a lower bound (Titsias);
- "fitc": it is noise of its own at every place (Snelson and Ghahramani's pseudo-inputs, generalised FITC for any factors);
- "pitc": it is noise that is shared within groups of rows near each other (`engines.pitc`), and by "pic" with new places too;
- "power": a part is noise and the rest is charged for (Bui, Yan and Turner's power expectation propagation).

K lies between Q and Q + tr(K − Q) I, which gives the interval [lower, upper] of the log evidence.
"""

from __future__ import annotations

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float

from ..inputs.layouts import Inputs
from ..inputs.observations import Data
from ..kernels.algebra import Kernel
from ..linalg.dense.cholesky import log_sum
from ..linalg.dense.identity_plus import solve_lower
from ..linalg.features import low_rank as numbers
from ..linalg.features.low_rank import Rule, of_rows
from ..linalg.features.low_rank_host import KEPT
from ..linalg.features.placing import MOST_ROWS
from ..linalg.features.totals import visited
from ..posterior import Conditional, Model
from ..sites import Marginals, Sites
from ..structure.base import No
from ..structure.dense import covariance, variances
from ..structure.derivatives import along, derivative_variances, gradient_covariance, gradient_variance
from ..structure.low_rank import LowRank, Through, crossing, low_rank, through
from . import pitc
from .base import PLANNING, Cost, Engine, Offer, form_by_shape, gaussian, term
from .inducing_host import InducingOnHost
from .machine import Work
from .woodbury import Evidence, Weighed

METHODS = ("power", "vfe", "fitc", "pitc", "pic", "dtc", "nystrom", "sor")
GROUPED = ("pitc", "pic")
SEEN = 1000, 2000  # rows of which the exact model tells where learning begins: two for each inducing input, between these
ENOUGH = 100, 50_000  # rows for each inducing input, and at least, beyond which learning looks at no more
FIRST = 60  # evaluations of the exact model of some rows
HELD = 25  # evaluations with the inducing inputs held
TOGETHER = 120  # and with all together


def rule_of(method: str, power: float) -> Rule:
    """What a method makes of the variance that inducing inputs leave out."""
    known = {"power": Rule(power), "vfe": Rule(0.0), "fitc": Rule(1.0)}
    return known.get(method, Rule(0.0, False))


def accuracy_of(count: int, method: str, power: float, error: float) -> str:
    """How right a number of inducing inputs are by a method, in words."""
    share = f" {power:g}" if method == "power" else ""
    return f"approximate ({count} inducing inputs, {method}{share}; covariance error ≤ {error:.2g})"


class InducingConditional(Conditional):
    """A process given sites, through its values at inducing inputs."""

    kernel: Kernel
    X: Float[Array, "N D"]
    sites: Sites
    root: Float[Array, "M M"]  # of K_uu
    weighed: Weighed
    gram: Float[Array, "C C"]
    log_weights: Float[Array, ""]
    covariance_error: Float[Array, ""]  # the largest of d / k at the data: no entry of K − Q is larger in units of the variance
    ends: tuple[Evidence, Evidence] | None  # log determinants and forms of the lower and the upper end of the evidence
    method: str = eqx.field(static=True)
    power: float = eqx.field(static=True)

    def at(self, X: Float[Array, "M D"], part: int | None = None) -> tuple[Float[Array, "M C"], Float[Array, " M"]]:
        V, of = self._seen(X, part)
        return self._moments(V, variances(of.kernel, of.X))

    def derivative(
        self, X: Float[Array, "M D"], order: int, dim: int, part: int | None = None
    ) -> tuple[Float[Array, "M C"], Float[Array, " M"]]:
        def one(x: Float[Array, " D"]) -> Float[Array, " F"]:
            of = self.through(x[None], part)
            return jax.vmap(lambda z: of.kernel.between(of.X[0], z))(of.inputs)

        kernel = term(self.kernel, part)
        V = solve_lower(self.root, jax.vmap(along(one, dim, order), out_axes=1)(X), len(self.root))
        return self._moments(V, derivative_variances(kernel, X, dim, order))

    def gradient(self, x: Float[Array, " D"]) -> tuple[Float[Array, "D C"], Float[Array, "D D"]]:
        of = self.through(x[None], None)
        V = solve_lower(self.root, gradient_covariance(of.kernel, x, of.inputs).T, len(self.root))
        U = self.weighed.roots(V)
        rest = 0.0 if self.method == "sor" else gradient_variance(of.kernel, x) - V.T @ V
        return V.T @ self.weighed.mean(), rest + U.T @ U

    def joint(self, X: Float[Array, "M D"]) -> tuple[Float[Array, "M C"], Float[Array, "M M"]]:
        V, of = self._seen(X)
        U = self.weighed.roots(V)
        rest = 0.0 if self.method == "sor" else covariance(of.kernel, of.X, of.X) - V.T @ V
        return V.T @ self.weighed.mean(), rest + U.T @ U

    def inverse_parts(self) -> tuple[Float[Array, " N"], Float[Array, "N C"]]:
        structure = LowRank(self.kernel, self.X, len(self.root))
        if self.method in GROUPED:
            return pitc.inverse_parts(structure, self.root, self.weighed, self.sites)
        rows, s, f = at_rows(structure, self.root, self.weighed, self.sites, rule_of(self.method, self.power))
        return rows.e - rows.e**2 * s, rows.g - rows.e[:, None] * f

    def log_det_and_gram(self) -> Evidence:
        return self.weighed.log_det - self.log_weights, self.gram

    @property
    def row_size(self) -> int:
        return 3 * self.root.shape[0]

    @property
    def bounds(self) -> tuple[Evidence, Evidence] | None:
        return self.ends

    @property
    def accuracy(self) -> str:
        return accuracy_of(self.root.shape[0], self.method, self.power, float(self.covariance_error))

    def _seen(self, X: Float[Array, "M D"], part: int | None = None) -> tuple[Float[Array, "F M"], Through]:
        of = self.through(X, part)
        return solve_lower(self.root, of.cross().T, len(self.root)), of

    def through(self, X: Float[Array, "M D"], part: int | None) -> Through:
        """The kernel, or one term of it, and new places as it sees them."""
        of: Any = through(self.kernel, X)
        return of if part is None else of._replace(kernel=of.kernel.terms[part])

    def _moments(self, V: Float[Array, "F M"], prior: Float[Array, " M"]) -> tuple[Float[Array, "M C"], Float[Array, " M"]]:
        explained = jnp.sum(self.weighed.roots(V) ** 2, axis=0)
        rest = 0.0 if self.method == "sor" else jnp.maximum(prior - jnp.sum(V * V, axis=0), 0.0)
        return V.T @ self.weighed.mean(), rest + explained


def weighed(structure: LowRank, L: Array, sites: Sites, rule: Rule) -> tuple[Weighed, Float[Array, "C C"]]:
    """The whitened values at the inducing inputs given sites, and the forms of the sites."""
    white, blocks = structure.white(L)
    t = sites.shift if sites.natural else sites.targets
    sums = numbers.summed(white, blocks, len(L), sites.precision, t, rule, sites.natural)
    R = jnp.linalg.cholesky(jnp.eye(len(L)) + sums.gram)
    c = solve_triangular(R, sums.cross, lower=True)
    forms = sums.own + c.T @ c if sites.natural else sums.own - c.T @ c
    return Weighed(R, c, 2 * jnp.sum(jnp.log(jnp.diagonal(R))) + sums.charge), 0.5 * (forms + forms.T)


def at_rows(structure: LowRank, L: Array, given: Weighed, sites: Sites, rule: Rule) -> tuple[numbers.Rows, Array, Array]:
    """The rows of the data, and of each s and f, which its marginal is made of."""
    (white, blocks), mean = structure.white(L), given.mean()
    root = solve_triangular(given.factor, jnp.eye(len(L)), lower=True)

    def one(block: Any) -> tuple[Array, Array, Array, Array]:
        V, k = white(block)
        return jnp.sum(V * V, axis=0), k, jnp.sum((root @ V) ** 2, axis=0), V.T @ mean

    explained, k, s, f = visited(one, blocks, len(structure.X))
    t = sites.shift if sites.natural else sites.targets
    return of_rows(jnp.sqrt(explained)[None], k, sites.precision, t, rule, sites.natural), s, f


def _bounds(structure: LowRank, L: Array, sites: Sites, trace: Array) -> tuple[Evidence, Evidence]:
    """The lower end by the charge for all that is left out, and the upper by K ≤ Q + tr(K − Q) I."""
    (given, gram), logs = weighed(structure, L, sites, Rule(0.0)), log_sum(sites.precision)
    log_det = 2 * jnp.sum(jnp.log(jnp.diagonal(given.factor)))
    seen = sites.precision > 0
    wider = Sites.seen_as(sites.targets, 1 / jnp.where(seen, sites.precision, 1.0) + trace, seen)
    return (given.log_det - logs, gram), (log_det - logs, weighed(structure, L, wider, Rule(0.0, False))[1])


@jax.jit
def left_out(model: Model, X: Float[Array, "N D"], w: Float[Array, " N"]) -> Float[Array, ""]:
    """Σ w d: what the lower bound charges for the variance that the inducing inputs leave out of rows with these precisions."""
    structure = LowRank(model.kernel, X, 0)
    white, blocks = structure.white(jnp.linalg.cholesky(structure.among()))

    def one(block: Any) -> Array:
        V, k = white(block)
        return jnp.maximum(k - jnp.sum(V * V, axis=0), 0.0)

    return jnp.sum(w * visited(one, blocks, len(X)))


def exact_rows(M: int) -> int:
    """Of how many rows the exact model tells where learning of M inducing inputs begins."""
    return min(max(2 * M, SEEN[0]), SEEN[1])


def cost_of_inputs(N: int, M: int, D: int) -> Cost:
    """What M inducing inputs take for N rows of D columns."""
    learned = min(N, max(ENOUGH[0] * M, ENOUGH[1])) / max(N, 1)
    flops, sums = N * M * (7 * M + 20 * D) + 4 * M**3, Work(functions=float(N * M), traffic=40.0 * N * M)
    placing = Work(functions=20.0 * min(N, MOST_ROWS) * M)
    predict = Work(factors=2.0 * M**2, functions=M, traffic=40.0 * M)
    return Cost(
        flops,
        bytes=min(16 * N * M, 2 * KEPT) + 8 * (N * D + 6 * M**2),
        rows=M,
        evaluate=learned * (Work(products=flops) + 3 * sums),
        condition=Work(products=2.0 * N * M**2, factors=2.0 * M**3, calls=PLANNING) + sums + placing,
        predict=predict,
        leave_out=N * predict,
    )


def look_at_inputs(N: int, M: int) -> Work:
    """What the marginals take that sites leave."""
    return Work(products=4.0 * N * M**2, factors=4.0 * M**3, functions=2.0 * N * M, traffic=80.0 * N * M)


class InducingEngine(Engine):
    """Any kernel with inducing inputs (`Induced`), by one method."""

    name: ClassVar[str] = "Inducing"
    structure: ClassVar[str] = "inducing"
    learner: ClassVar[str] = "inducing"
    takes_unseen_rows: ClassVar[bool] = True
    method: str = eqx.field(static=True, default="power")
    power: float = eqx.field(static=True, default=0.5)
    place: str = eqx.field(static=True, default="k-means")  # how learning places inducing inputs anew; "" leaves them
    learn: bool | None = eqx.field(static=True, default=None)  # whether it moves them; None lets what they leave out decide

    @property
    def rule(self) -> Rule:
        """What becomes of the variance that the inducing inputs leave out."""
        return rule_of(self.method, self.power)

    def offer(self, model: Model, inputs: Inputs, data: Data | None = None) -> Offer | No:
        form = form_by_shape(self, model.kernel, inputs)
        if isinstance(form, No):
            return form
        M = form.size
        cost = cost_of_inputs(len(inputs), M, inputs.dimension)
        if not gaussian(model, data):
            cost = cost.searching(look_at_inputs(len(inputs), M))
        return Offer(self, cost, accuracy=f"approximate ({M} inducing inputs, {self.method})")

    def form(self, kernel: Kernel, inputs: Inputs) -> LowRank | No:
        return low_rank(kernel, inputs)

    def on_host(self, model: Model, inputs: Inputs, data: Data) -> InducingOnHost | None:
        return None if self.method in GROUPED else InducingOnHost(model, inputs, data, self.rule)

    def log_det_and_gram(self, structure: LowRank, sites: Sites) -> Evidence:
        if self.method in GROUPED:
            return pitc.log_det_and_gram(structure, sites)
        t = sites.shift if sites.natural else sites.targets
        arguments = crossing(structure.kernel), structure.rows(), structure.among(), sites.precision, t
        log_det, gram = numbers.log_det_and_gram(*arguments, self.rule, sites.natural)
        return (log_det if sites.natural else log_det - log_sum(sites.precision)), gram

    def marginals(self, structure: LowRank, sites: Sites) -> Marginals:
        L = jnp.linalg.cholesky(structure.among())
        given, gram = weighed(structure, L, sites, self.rule)
        rows, s, f = at_rows(structure, L, given, sites, self.rule)
        mean = f / rows.q[:, None] + rows.delta[:, None] * rows.g
        variance = s / rows.q**2 + (rows.d / rows.q if self.rule.charged else 0.0)
        return Marginals(mean, variance, given.log_det, gram)

    def condition(self, structure: LowRank, sites: Sites) -> Conditional:
        L = jnp.linalg.cholesky(structure.among())
        apart = self.method not in GROUPED
        given, gram = weighed(structure, L, sites, self.rule) if apart else pitc.weighed(structure, L, sites)
        white, blocks = structure.white(L)

        def explained(block: Any) -> tuple[Array, Array]:
            V, k = white(block)
            return jnp.sum(V * V, axis=0), k

        own, k = visited(explained, blocks, len(structure.X))
        left_out = jnp.where(sites.precision != 0, jnp.maximum(k - own, 0.0), 0.0)
        error = jnp.max(left_out / jnp.where(k > 0, k, 1.0))
        logs = jnp.zeros(()) if sites.natural else log_sum(sites.precision)
        bounds = None if sites.natural else _bounds(structure, L, sites, jnp.sum(left_out))
        kernel, X = structure.kernel, structure.X
        whole = InducingConditional(kernel, X, sites, L, given, gram, logs, error, bounds, self.method, self.power)
        return pitc.PicConditional.of(whole, structure, L, sites) if self.method == "pic" else whole
