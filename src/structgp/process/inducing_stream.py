"""A Gaussian process on any inputs that keeps what its data taught it at inducing inputs, but not the data.

All that rows leave behind are sums over them, of the size of the inducing inputs. When these change, from Z to Z', with
P = L'⁻¹K_Z'Z L⁻ᵀ, what was seen becomes M observations of the new ones: V diag(e) Vᵀ → P V diag(e) Vᵀ Pᵀ and V g → P V g, and
what the new inputs do not tell of the old ones, tr V diag(e) Vᵀ (I − PᵀP), is charged for (Csató and Opper 2002; Bui, Nguyen
and Turner 2017).

Where there is no room for an input that rows ask for, it takes the place of the one that is missed least (Csató and Opper): the
one for which least would be charged.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular

from .._types import double_precision, how_many
from ..crew import is_lazy
from ..engines.approximation import Approximation
from ..engines.inducing import GROUPED, InducingEngine
from ..engines.inducing_inputs import NOVEL, Inducing, more_inputs, place_among
from ..engines.inducing_sums import RowSums, given_sums, structure_of, sums_over
from ..inputs.clock import Clocks
from ..inputs.layouts import as_inputs, check_columns, clocks_of
from ..inputs.observations import Data, read_observations
from ..inputs.rows import filled, in_few_sizes, size_for, unseen_beyond
from ..kernels.induced import Induced
from ..linalg.features.low_rank import Summed
from ..linalg.features.placing import missed_most
from ..parameters.tree import as_numpy, leaves
from ..posterior import Model, Prediction, Result
from ..structure.dense import covariance
from ..structure.low_rank import through
from .conditioning import Posterior, check_inputs
from .lazy import lazily_predicted

BATCH = 2048  # rows that are taken at a time
EXCHANGED = 20  # of so many inducing inputs one may be exchanged for each of these batches


@dataclasses.dataclass(frozen=True)
class InducingStream(Result):
    """A GP and the sums over the rows that it has seen, `count` of them.

    An immutable value: `update` returns the stream with more observations. The parameters stay as they are. Inducing inputs
    come from the first rows, and more, up to `most`, from later ones of which these tell too little; beyond, each takes the
    place of the one that is missed least. Inputs that were given as an array stay.
    """

    gp: Any
    sums: Summed | None
    log_weights: Any
    count: int
    targets: int
    flat: bool
    dimension: int  # of the rows, 0 before the first
    most: int  # inducing inputs
    engine: InducingEngine
    clocks: Clocks = ()  # for each column how its dates are counted

    @double_precision
    def update(self, X: Any, y: Any, noise: Any = None, missing: str = "error") -> InducingStream:
        """The stream after more rows; `noise` and `missing` are those of `GP.condition`."""
        new = as_inputs(np.atleast_2d(X) if np.ndim(y) == 0 else X, clocks=self._known_clocks)
        check_inputs(self.gp, new)
        data = read_observations(self.gp.likelihood, np.atleast_1d(y), noise, missing, new)
        if self.sums is not None and data.y.shape[1] != self.targets:
            raise ValueError(f"update: y has {data.y.shape[1]} targets, but the stream was given {self.targets}")
        if self.sums is not None:
            check_columns(new, self.dimension)
        told: dict[str, Any] = {"dimension": new.dimension, "clocks": clocks_of(new)}
        stream = dataclasses.replace(self, targets=data.y.shape[1], flat=data.flat, **told)
        points = np.asarray(new.points)
        for at in range(0, len(new), BATCH):
            piece = slice(at, min(at + BATCH, len(new)))
            stream = stream._with(points[piece], jax.tree.map(lambda part, piece=piece: part[piece], data))
        return stream

    @double_precision
    def with_inputs(self, inputs: Any) -> InducingStream:
        """The same with other inducing inputs: what was seen at the old ones becomes observations of the new."""
        gp = self.gp.replace(kernel=_with_inputs(self.gp.kernel, np.asarray(inputs, dtype=float)))
        if self.sums is None:
            return dataclasses.replace(self, gp=gp)
        return dataclasses.replace(
            self, gp=gp, sums=as_numpy(_moved(self.gp, gp, self.sums, self.dimension, self.engine.rule.charged))
        )

    @double_precision
    def predict(self, X: Any) -> Any:
        """The belief about f at new places, in any order; of a Dask collection its moments as Dask arrays."""
        if is_lazy(X):
            return lazily_predicted(self, X, self.targets, self.flat)
        new = as_inputs(X, allow_empty=True, clocks=self._known_clocks)
        if self.sums is not None:
            check_columns(new, self.dimension)
        Xs, posterior = np.asarray(new.points), self._posterior()
        mean, variance = in_few_sizes(functools.partial(_marginals, posterior), Xs)
        if self.flat:
            return Prediction(mean[:, 0], variance, self.gp.likelihood)
        return Prediction(mean, np.repeat(variance[:, None], self.targets, axis=1), self.gp.likelihood)

    @property
    @double_precision
    def log_evidence(self) -> float:
        """log p(y) of everything that was seen, by the method of the approximation."""
        return float(self._posterior().log_evidence) if self.sums is not None else 0.0

    def __getstate__(self) -> dict[str, Any]:
        """For pickle: arrays on the host."""
        return {field.name: as_numpy(getattr(self, field.name)) for field in dataclasses.fields(self)}

    def __repr__(self) -> str:
        return f"InducingStream({self.gp!r}, {how_many(self.count, 'observation')})"

    @property
    def _known_clocks(self) -> Clocks:
        return self.clocks or (None,) * self.dimension

    def _with(self, X: np.ndarray, data: Data) -> InducingStream:
        stream = self._placed(X, data)
        return stream._taken_up(X, data)._within(self.most)

    def _taken_up(self, X: np.ndarray, data: Data) -> InducingStream:
        """With the sums over more rows."""
        stream = self
        size = size_for(len(X))
        more, logs = _summed(stream.gp, filled(X, size), unseen_beyond(data, size), stream.engine)
        if not np.isfinite(more.charge):
            raise ValueError("the sums over these rows are not finite: check X and y for extreme values")
        sums = more if stream.sums is None else jax.tree.map(np.add, stream.sums, more)
        return dataclasses.replace(
            stream,
            sums=as_numpy(sums),
            log_weights=np.asarray(stream.log_weights + logs),
            count=stream.count + int(data.seen.sum()),
        )

    def _placed(self, X: np.ndarray, data: Data) -> InducingStream:
        """With inducing inputs, or with more of them where there is room and these tell too little of the new rows."""
        if not _has_inputs(self.gp):
            return dataclasses.replace(self, gp=self.gp.replace(kernel=place_among(self.gp, X, self.most, "k-means")))
        if not self.engine.place:
            return self
        own: Any = through(self.gp.kernel, jnp.asarray(X))
        room = max(self.most - len(own.inputs), -(-self.most // EXCHANGED))
        new = more_inputs(own, room, NOVEL)
        return self.with_inputs(np.concatenate([np.asarray(own.inputs), new])) if len(new) else self

    def _within(self, most: int) -> InducingStream:
        """With no more inducing inputs than so many: those that are missed least are dropped, one after the other."""
        own: Any = through(self.gp.kernel, jnp.zeros((1, self.dimension)))
        inputs = np.asarray(own.inputs)
        if len(inputs) <= most:
            return self
        L = np.asarray(_root(self.gp, self.dimension))
        kept = missed_most(L, np.asarray(self.sums.gram), most)  # type: ignore[union-attr]
        return self.with_inputs(inputs[kept])

    def _posterior(self) -> Posterior:
        if self.sums is None:
            raise ValueError("this stream has seen nothing yet: update it with rows and values first")
        return _given(self.gp, self.sums, self.log_weights, float(self.count), self.targets, self.dimension, self.engine)


def stream_through_inputs(gp: Any, approximation: Approximation) -> InducingStream:
    """A stream that has seen nothing yet."""
    if not isinstance(approximation, Inducing) or approximation.method in (*GROUPED, "subset"):
        raise ValueError(
            f"approximate={approximation} cannot be streamed: take Inducing(200), by 'power', 'vfe', 'fitc' or 'dtc'"
        )
    approximation.check(gp, "auto")
    engine: Any = approximation.engine(gp)
    most = approximation.inputs if isinstance(approximation.inputs, int) else len(approximation.inputs)
    if not isinstance(approximation.inputs, int):
        gp = approximation.applied(gp, as_inputs(approximation.inputs))
    return InducingStream(gp, None, np.zeros(()), 0, 1, True, 0, most, engine)


def _has_inputs(gp: Any) -> bool:
    return any(leaf.path.endswith(".inputs") for leaf in leaves(gp))


def _with_inputs(kernel: Any, inputs: np.ndarray) -> Any:
    """The kernel with other inducing inputs, wherever in views they stand."""
    if isinstance(kernel, Induced):
        return kernel.replace(inputs=inputs)
    return kernel.replace(kernel=_with_inputs(kernel.kernel, inputs))


@functools.partial(jax.jit, static_argnames="engine")
def _summed(gp: Model, X: Any, data: Data, engine: InducingEngine) -> tuple[Summed, Any]:
    """The sums over rows, and that of the logarithms of their precisions."""
    return sums_over(gp, X, data, engine)


@functools.partial(jax.jit, static_argnames="D")
def _root(gp: Model, D: int) -> Any:
    return jnp.linalg.cholesky(structure_of(gp, jnp.zeros((1, D))).among())


@functools.partial(jax.jit, static_argnames=("D", "charged"))
def _moved(old: Model, new: Model, sums: Summed, D: int, charged: bool) -> Summed:
    """The sums as observations of other inducing inputs."""
    nowhere = jnp.zeros((1, D))
    roots = [jnp.linalg.cholesky(structure_of(gp, nowhere).among()) for gp in (old, new)]
    before, after = (through(gp.kernel, nowhere) for gp in (old, new))
    between = covariance(after.kernel, after.inputs, before.inputs)  # type: ignore[union-attr]
    half = solve_triangular(roots[1], between, lower=True)
    P = solve_triangular(roots[0], half.T, lower=True).T
    lost = jnp.trace(sums.gram) - jnp.sum((P.T @ P) * sums.gram)
    more = jnp.maximum(lost, 0.0) if charged else 0.0
    return Summed(P @ sums.gram @ P.T, P @ sums.cross, sums.own, sums.charge + more)


@functools.partial(jax.jit, static_argnames=("targets", "D", "engine"))
def _given(gp: Model, sums: Summed, log_weights: Any, count: Any, targets: int, D: int, engine: InducingEngine) -> Posterior:
    evidence, weights, conditional = given_sums(gp, RowSums(sums, log_weights), count, targets, D, engine)
    return Posterior(gp, conditional, weights, evidence, targets)


_marginals = jax.jit(Posterior.marginals)
