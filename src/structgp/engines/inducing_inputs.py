"""Inducing inputs as an approximation that can be asked for: how many or which, by what method, placed how."""

from __future__ import annotations

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .._types import double_precision, how_many, whole
from ..inputs.layouts import Inputs, as_inputs
from ..inputs.observations import Data
from ..kernels.algebra import Kernel
from ..linalg.features.low_rank import with_jitter
from ..linalg.features.placing import MOST_ROWS, centres, distinct, informative, pivots
from ..parameters.tree import leaves
from ..posterior import Model
from ..structure.dense import covariance, variances
from ..structure.low_rank import Through, in_units, placed
from .approximation import NAMED, Approximation
from .base import Engine, not_concave
from .cholesky import Cholesky, SignedCholesky
from .independent import IndependentCholesky
from .inducing import GROUPED, METHODS, InducingEngine
from .inducing_several import side_by_side_of

PLACES = ("k-means", "conditional-variance", "random", "ivm")
ROUNDING = 1e-13  # of the largest number of a column: what its spread is made of when the column is constant
NOVEL = 0.05  # of its variance that is left out of a row, where it becomes an inducing input while there is room
PAIRED = {"ep": "fitc", "power-ep": "fitc", "laplace": "fitc", "variational": "vfe"}  # the method that suits each inference


def _inputs(given: Any) -> Any:
    return whole(given, "the number of inducing inputs", 1) if np.ndim(given) == 0 else np.asarray(given, dtype=float)


class Inducing(Approximation):
    """Values of f at a few inducing inputs stand for all of it: O(NM²) for M of them, by ``approximate=Inducing(500)``.

    `inputs` is their number, or an array (M, D) of them. `method` is "power" (what they leave out of the variance is in part
    noise and in part charged for; `power` is that part), "vfe" (a lower bound of the evidence), "fitc", "pitc", "pic",
    "dtc", "nystrom", "sor", or "subset" (the exact process of so many rows, drawn at random, or by ``place="ivm"`` those that
    tell most: the informative vector machine); "auto" takes "power" for Gaussian observations, "fitc" for EP and Laplace and
    "vfe" for the variational bound.

    `place` says where they are put: "k-means" (in units of the lengthscales, the best in many columns), "conditional-variance",
    "ivm" (rows that tell most of f, the informative vector machine) or "random". `learn` moves them with the other parameters,
    by default where what they leave out is worth it; an array is taken as it is.
    """

    inputs: Any = eqx.field(converter=_inputs)
    method: str = eqx.field(static=True, default="auto")
    power: float = eqx.field(static=True, default=0.5)
    place: str = eqx.field(static=True, default="k-means")
    learn: Any = eqx.field(static=True, default=None)
    structure: ClassVar[str] = InducingEngine.structure
    latents: ClassVar[bool] = True

    def __check_init__(self) -> None:
        for name, known in (("method", ("auto", *METHODS, "subset")), ("place", PLACES)):
            if getattr(self, name) not in known:
                raise ValueError(f"Inducing: {name} must be one of {list(known)}, got {getattr(self, name)!r}")
        if not 0 < self.power <= 1:
            raise ValueError(f"Inducing: power must be above 0 and at most 1, got {self.power!r}")
        if self.learn not in (None, True, False):
            raise ValueError(f"Inducing: learn must be True, False or None to leave the choice, got {self.learn!r}")
        if not isinstance(self.inputs, int):
            _check_array(self.inputs)
            if self.method == "subset":
                raise ValueError("Inducing: method='subset' takes a number of rows: pass the rows themselves as X and y")

    def rows(self, model: Model, inputs: Inputs, data: Data | None = None) -> tuple[Inputs, Data | None]:
        if self.method != "subset" or self.needless(inputs):
            return inputs, data
        N, count = len(inputs), self.inputs if isinstance(self.inputs, int) else 0
        seen = np.arange(N) if data is None else np.flatnonzero(data.seen)
        some = np.sort(np.random.default_rng(0).permutation(seen)[:count])
        if self.place == "ivm" and data is not None and model.likelihood.latents == 1:
            some = np.sort(_informative_rows(model, np.asarray(inputs.points), data, seen, count))
        pick = lambda values: np.asarray(values)[some] if np.ndim(values) and len(values) == N else values
        return as_inputs(np.asarray(inputs.points)[some]), None if data is None else jax.tree.map(pick, data)

    def accuracy(self, inputs: Inputs) -> str | None:
        return f"approximate (exact for a subset of {self.inputs} rows)" if self.method == "subset" else None

    def engine(self, model: Model, inference: str | None = None) -> Engine:
        method = self.method
        if method == "subset" and model.likelihood.latents > 1:
            return IndependentCholesky()
        if method == "subset":
            return SignedCholesky() if not_concave(model) else Cholesky()
        if method == "auto":
            method = "power" if inference is None else PAIRED[inference]
        elif inference is not None and method in ("power", *GROUPED):
            raise ValueError(
                f"Inducing: method={method!r} is for Gaussian observations: use 'fitc', or 'vfe' with inference='variational'"
            )
        elif inference in ("ep", "power-ep") and method == "vfe":
            raise ValueError(
                f"Inducing: inference={inference!r} does not settle on method='vfe': use 'fitc', or inference='variational'"
            )
        one = InducingEngine(method, float(self.power), self.place if isinstance(self.inputs, int) else "", self.learn)
        return one if model.likelihood.latents == 1 else side_by_side_of(one, model.likelihood.latents)

    def needless(self, inputs: Inputs) -> str:
        if not isinstance(self.inputs, int) or self.inputs < len(inputs) + (self.method == "subset"):
            return ""
        return f"{self.inputs} inducing inputs are no fewer than {len(inputs)} rows, so nothing is approximated"

    def applied(self, model: Any, inputs: Inputs, data: Data | None = None) -> Any:
        X = np.asarray(inputs.points)
        if self.method == "subset":
            return model
        if isinstance(self.inputs, int) and any(leaf.path.endswith(".inputs") for leaf in leaves(model)):
            return model  # it has been given some before
        if isinstance(self.inputs, int):
            kernel = place_among(model, X, self.inputs, self.place, data)
        else:
            kernel = placed(model.kernel, X, lambda kernel, seen: self._as_seen(seen.shape[1]))
        model = model.replace(kernel=kernel)
        own = [leaf for leaf in leaves(model) if leaf.path.endswith(".inputs")]
        many = not model.likelihood.is_gaussian and sum(leaf.value.size for leaf in own) > len(X)  # they would overfit
        learn = isinstance(self.inputs, int) and not many if self.learn is None else self.learn
        return model if learn else model.freeze(*(leaf.path for leaf in own))

    def _as_seen(self, columns: int) -> Any:
        if self.inputs.shape[1] != columns:
            raise ValueError(
                f"Inducing: the inducing inputs have {how_many(self.inputs.shape[1], 'column')}, "
                f"but the kernel sees {columns}: give rows like those of X"
            )
        return self.inputs

    def __repr__(self) -> str:
        which = str(self.inputs) if isinstance(self.inputs, int) else f"array of {len(self.inputs)}"
        return f"Inducing({which})" if self.method == "auto" else f"Inducing({which}, {self.method!r})"


USUAL = 500  # inducing inputs, where no number is given
NAMED["inducing"] = lambda number: Inducing(USUAL if number is None else number)


def _check_array(inputs: np.ndarray) -> None:
    if inputs.ndim != 2 or not inputs.size:
        raise ValueError(
            f"Inducing: inputs must be a number, or an array (M, D) of numbers, got an array of shape {inputs.shape}"
        )
    odd = np.flatnonzero(~np.isfinite(inputs).all(axis=1))
    if len(odd):
        raise ValueError(f"Inducing: row {odd[0]} of the inducing inputs is not finite: leave it out")
    if len(distinct(inputs)) < len(inputs):
        _, first, counts = np.unique(inputs, axis=0, return_index=True, return_counts=True)
        row = int(np.min(first[counts > 1]))
        raise ValueError(f"Inducing: row {row} of the inducing inputs comes again in a later one: give each of them once")


@double_precision
def place_among(model: Model, X: np.ndarray, count: int, how: str, data: Data | None = None, seed: int = 0) -> Kernel:
    """The kernel of a model with at most so many inducing inputs, all different, among rows that were seen."""
    seen = np.arange(len(X)) if data is None or not np.any(data.seen) else np.flatnonzero(data.seen)
    rows = np.random.default_rng(seed).permutation(seen)[:MOST_ROWS]
    told = None if how != "ivm" or data is None or model.likelihood.latents > 1 else _told(model, X, data, rows)
    return placed(model.kernel, X, lambda kernel, points: _some(kernel, np.asarray(points), rows, count, how, told))


@double_precision
def _informative_rows(model: Model, X: np.ndarray, data: Data, seen: np.ndarray, count: int) -> np.ndarray:
    """The rows that tell most of f, one after the other, at the present parameters."""
    rows = np.random.default_rng(0).permutation(seen)[:MOST_ROWS]
    some, prior = X[rows], np.asarray(variances(model.kernel, jnp.asarray(X[rows])))
    return rows[informative(lambda i: _column(model.kernel, some, some[i]), prior, _told(model, X, data, rows), count)]


def _some(kernel: Kernel, points: np.ndarray, rows: np.ndarray, count: int, how: str, told: Any) -> np.ndarray:
    X = points[rows]
    if how == "random":
        return distinct(X)[:count]
    if how in ("conditional-variance", "ivm"):
        column = lambda i: _column(kernel, X, X[i])
        prior = np.asarray(variances(kernel, jnp.asarray(X)))
        chosen = informative(column, prior, told, count) if how == "ivm" and told is not None else pivots(column, prior, count)
        return distinct(X[chosen])
    spread = X.std(axis=0)
    units = in_units(kernel, points)  # of all of them, so that one that was not seen less is the same program
    scaled = X / np.where(spread > ROUNDING * np.abs(X).max(axis=0), spread, 1.0) if units is None else np.asarray(units)[rows]
    return centres(X, scaled, count, np.random.default_rng(0))


@double_precision
def more_inputs(own: Through, room: int, novel: float) -> np.ndarray:
    """Rows, as a kernel sees them, of whose variance its inducing inputs leave out more than a part: at most so many."""
    if room <= 0:
        return np.zeros((0, own.inputs.shape[1]))
    X = np.asarray(own.X)
    V, prior = (np.asarray(part) for part in _known(own))
    column = lambda i: np.asarray(_column(own.kernel, X, X[i])) - V[:, i] @ V
    return distinct(X[pivots(column, np.maximum(prior - (V * V).sum(axis=0), 0.0), room, novel * float(np.max(prior)))])


@jax.jit
def _known(own: Through) -> tuple[Any, Any]:
    L = jnp.linalg.cholesky(with_jitter(covariance(own.kernel, own.inputs, own.inputs)))
    return jax.scipy.linalg.solve_triangular(L, own.cross().T, lower=True), variances(own.kernel, own.X)


@jax.jit
def _column(kernel: Kernel, X: Any, x: Any) -> Any:
    return covariance(kernel, X, x[None])[:, 0]


def _told(model: Model, X: np.ndarray, data: Data, rows: np.ndarray) -> Any:
    """How the log probability of each observation falls and bends in the mean of f, given its mean without the known one."""
    known = jnp.asarray(jax.vmap(model.mean)(jnp.asarray(X)[rows]))
    extra = 1.0 if data.extra is None else jnp.asarray(data.extra)[rows]
    y, seen = jnp.asarray(data.y)[rows, 0], np.asarray(data.seen)[rows]

    @jax.jit
    def derivatives(m: Any, v: Any) -> Any:
        return model.likelihood.tilted_derivatives(y, known + m, v, 1.0, extra)[1:]

    def told(m: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        slope, bend = (np.where(seen, np.asarray(part), 0.0) for part in derivatives(m, v))
        return slope, np.maximum(bend, 0.0)

    return told
