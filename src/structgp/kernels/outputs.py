"""Several outputs as one more coordinate, the last: the number of the output, 0, 1, 2, …"""

from __future__ import annotations

import dataclasses
from functools import singledispatch
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from .._types import Numbers, Point, Scalar, double_precision, library
from ..parameters.supports import nonnegative, real
from ..parameters.tree import fixed, parameter
from .algebra import Kernel, On, Product, Scaled, Sum, View, one_coordinate
from .induced import Induced


@dataclasses.dataclass(frozen=True)
class OutputColumn:
    """Which column holds the number of the output, counted from 0 (the last: −1), and how many outputs there are."""

    column: int
    count: int

    def among(self, columns: int) -> int:
        """The column, counted from 0, where there are so many."""
        return self.column % columns


@singledispatch
def outputs_of(kernel: Any) -> OutputColumn | None:
    """Where a kernel looks for the number of an output; None where it knows of none."""
    return None


def number_of(x: Numbers) -> Any:
    """The number of an output out of a coordinate."""
    return jnp.round(x).astype(int)


def check_numbers(kernel: Kernel, column: Any, count: int) -> None:
    """Refuse a column that does not hold the numbers of outputs."""
    numbers = np.unique(np.asarray(column))
    strange = numbers[(numbers != np.round(numbers)) | (numbers < 0) | (numbers >= count)]
    if len(strange):
        name = type(kernel).__name__
        raise ValueError(
            f"{name} has outputs 0 to {count - 1}, but the inputs hold {strange[0]:g} in their column: number them from 0, or "
            f"leave this column out of X and give y a column for each, {count} in all"
        )


class Coregion(Kernel):
    """k(i, j) = B_ij between outputs i and j, B = W Wᵀ + diag(variance): what they share, and what each has alone.

    The loadings W have one row for each output and a column for each function that they share: one or two for a low rank, as
    many as outputs for any B at all. ``Coregion(...).on(1) * Matern52().on(0)`` is the model of intrinsic coregionalisation.
    Turned loadings say the same: where they are `triangular` those above the diagonal do not count, and the others are known.
    """

    loadings: Numbers = parameter(((1.0,), (1.0,)), real)
    variance: Numbers = parameter((1.0, 1.0), nonnegative)
    triangular: bool = eqx.field(static=True, default=False)

    def __check_init__(self) -> None:
        if np.ndim(self.loadings) != 2 or np.shape(self.variance) != np.shape(self.loadings)[:1]:
            raise ValueError(
                "Coregion needs loadings of shape (P, r) and P variances, one for each output, "
                f"got {np.shape(self.loadings)} and {np.shape(self.variance)}"
            )

    @classmethod
    def full(cls, matrix: Any) -> Coregion:
        """Any covariance between the outputs, from this one on."""
        B = np.asarray(matrix, dtype=float)
        return cls(np.linalg.cholesky(B), fixed(np.zeros(len(B))), triangular=True)

    @classmethod
    def low_rank(cls, outputs: int, rank: int = 1) -> Coregion:
        """A few functions that all outputs share, loaded differently from the first to the last, and one for each alone."""
        spread = np.cos(np.pi * np.arange(rank) * (np.arange(outputs)[:, None] + 0.5) / outputs)
        turned = np.linalg.qr(spread.T, mode="r").T
        return cls(turned / np.sqrt(rank), np.full(outputs, 0.5), triangular=True)

    @classmethod
    def diagonal(cls, variance: Any) -> Coregion:
        """Outputs that share nothing but the kernel that this one is multiplied with."""
        return cls(np.zeros((len(variance), 0)), variance)

    def matrix(self) -> Any:
        """B, the covariance between the outputs."""
        W = jnp.tril(jnp.asarray(self.loadings)) if self.triangular else jnp.asarray(self.loadings)
        return W @ W.T + jnp.diag(jnp.asarray(self.variance))

    def check_points(self, X: Any) -> None:
        check_numbers(self, X[:, 0], len(self.loadings))

    def between(self, x: Point, z: Point) -> Scalar:
        i, j = (number_of(one_coordinate(self, point)) for point in (x, z))
        return self.matrix()[i, j]


class Lagged(View):
    """A kernel of several outputs that come late: output i at x is what the kernel has at x − lag_i, output 0 without a lag.

    `lags` are those of the outputs 1, 2, …, behind output 0: numbers, or for each a vector of shifts along all columns but the
    last, which holds the number of the output. Along time a lag is a clock of its own, and linear time stays linear.
    """

    lags: Numbers = parameter((0.0,), real)

    def __check_init__(self) -> None:
        inner = outputs_of(self.kernel)
        if inner is None or np.ndim(self.lags) not in (1, 2) or len(self.lags) != inner.count - 1:
            has = "one without outputs" if inner is None else f"one of {inner.count} outputs"
            raise ValueError(
                "Lagged needs a kernel of several outputs and a lag for each of them but the first, "
                f"got {has} and lags of shape {np.shape(self.lags)}"
            )

    @property
    def lag(self) -> Numbers:
        """The lag of every output; positive is later than output 0."""
        xp = library(self.lags)
        return xp.concatenate([xp.zeros_like(self.lags[:1]), self.lags])

    def seen(self, x: Numbers) -> Numbers:
        shift = jnp.asarray(self.lag)[number_of(x[..., -1])]
        shift = shift[..., None] if np.ndim(self.lags) == 1 else shift
        return jnp.concatenate([x[..., :-1] - shift, x[..., -1:]], axis=-1)

    def check_points(self, X: Any) -> None:
        check_numbers(self, X[:, -1], len(self.lags) + 1)
        self.kernel.check_points(np.asarray(self.seen(X)))


@outputs_of.register
def _(kernel: Coregion) -> OutputColumn:
    return OutputColumn(-1, len(kernel.loadings))


@outputs_of.register
def _(kernel: Lagged) -> OutputColumn | None:
    return outputs_of(kernel.kernel)


@outputs_of.register(Scaled)
@outputs_of.register(Induced)
def _(kernel: Scaled | Induced) -> OutputColumn | None:
    return outputs_of(kernel.kernel)


@outputs_of.register
def _(kernel: On) -> OutputColumn | None:
    inner = outputs_of(kernel.kernel)
    return None if inner is None else OutputColumn(kernel.dims[inner.column], inner.count)


@outputs_of.register(Sum)
@outputs_of.register(Product)
def _(kernel: Sum | Product) -> OutputColumn | None:
    parts = kernel.terms if isinstance(kernel, Sum) else kernel.factors
    found = [known for known in map(outputs_of, parts) if known is not None]
    return found[0] if found else None


def LMC(outputs: int, *kernels: Kernel, rank: int | None = None, columns: int = 1) -> Kernel:
    """The linear model of coregionalisation: Σ_q B_q ⊗ k_q, each kernel on the first `columns`, the number of the output next.

    Each kernel describes functions that the outputs share; they need different scales. Their variances are fixed at 1, because
    B_q has them. Without a rank B_q is any covariance up to four outputs, and for more one of rank 3 with a diagonal.
    """
    if not kernels or outputs < 2:
        raise ValueError(f"LMC needs two outputs or more and a kernel, got {outputs} outputs and {len(kernels)} kernels")
    terms = []
    for kernel in kernels:
        if rank is None and outputs <= 4:
            between = Coregion.full(0.5 * np.eye(outputs) + 0.5)
        else:
            between = Coregion.low_rank(outputs, min(outputs, 3) if rank is None else rank)
        unit = kernel.replace(variance=fixed(1.0)) if np.ndim(getattr(kernel, "variance", None)) == 0 else kernel
        terms.append(Product((between.on(columns), unit.on(*range(columns)))))
    return terms[0] if len(terms) == 1 else Sum(tuple(terms))


class Correlations(NamedTuple):
    """How outputs hang together: correlations where their lags are taken into account, lags, and standard deviations."""

    correlation: np.ndarray
    lag: np.ndarray
    sd: np.ndarray

    def table(self, names: Any = None) -> list[list[str]]:
        """Rows of text: a name, the lag, the standard deviation, and the correlation with each output."""
        names = [str(i) for i in range(len(self.sd))] if names is None else list(names)
        rows = [["output", "lag", "sd", *names]]
        for i, name in enumerate(names):
            lag = ", ".join(f"{value:.4g}" for value in np.atleast_1d(self.lag[i]))
            rows.append([name, lag, f"{self.sd[i]:.4g}", *(f"{value:.2f}" for value in self.correlation[i])])
        return rows


@double_precision
def correlations(kernel: Kernel, columns: int = 2) -> Correlations:
    """Correlations, lags and standard deviations of the outputs of a kernel, which sees so many columns."""
    found = outputs_of(kernel)
    if found is None:
        raise ValueError(f"{kernel!r} knows of no outputs")
    inner = kernel.kernel if isinstance(kernel, Lagged) else kernel
    lag = np.asarray(kernel.lag) if isinstance(kernel, Lagged) else np.zeros(found.count)
    places = np.zeros((found.count, columns))
    places[:, found.among(columns)] = np.arange(found.count)
    B = np.array([[float(inner.between(x, z)) for z in places] for x in jnp.asarray(places)])
    sd = np.sqrt(np.diagonal(B))
    return Correlations(B / np.maximum(np.outer(sd, sd), 1e-300), lag, sd)
