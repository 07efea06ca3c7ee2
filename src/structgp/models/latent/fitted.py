"""A map of the rows of a table: where they lie, what any place says of all columns, and where new rows belong."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..._types import double_precision
from ...inputs.rows import filled, in_few_sizes, size_for
from ...learn.account import Learning
from ...learn.lockstep import minimise_all
from ...linalg.features.cells import KnownColumns, TableCells
from ...posterior import Result
from ...process.summary import parameter_table
from ...structure.dense import covariance, variances
from .model import BackConstraints, LatentModel
from .units import ColumnUnits

STARTS = 3  # places of training rows, the most probable ones, from which that of a new row is sought
CHUNK = 1024  # rows that are sought at a time
EVALUATIONS = 60
LEAST = 1e-8  # of the variance, which a prediction always has


@dataclasses.dataclass(frozen=True)
class FittedMap(Result):
    """Latent inputs of the rows of a table, and functions from them to its columns."""

    model: LatentModel
    cells: TableCells
    known: KnownColumns
    units: ColumnUnits
    learning: Learning
    start: str

    @property
    @double_precision
    def latent(self) -> Float[np.ndarray, "N Q"]:
        """Where the rows lie."""
        return np.asarray(self.model.latents.places())

    @property
    def latent_sd(self) -> Float[np.ndarray, "N Q"] | None:
        """How sure that is, where it is Gaussian."""
        spread = self.model.latents.spread()
        return None if spread is None else np.sqrt(np.asarray(spread))

    @property
    def relevance(self) -> Float[np.ndarray, " Q"]:
        """The spread of the rows along each coordinate in units of its lengthscale, the largest 1."""
        return relevance_of(self.model)

    @property
    def bound(self) -> float:
        """The lower bound of the log evidence of the cells in their own units; of points with their prior besides."""
        scale = self.units.scale[self.units.used]
        return self.learning.objective - float(np.sum(np.asarray(self.cells.counts) * np.log(scale)))

    @property
    def seen(self) -> np.ndarray:
        """Which cells of the columns that change were seen."""
        return np.asarray(self.cells.patterns)[:, np.asarray(self.cells.of)] > 0

    def rows(self, z: Any) -> tuple[Float[np.ndarray, "M C"], Float[np.ndarray, "M C"]]:
        """What is expected of all columns at places, and the standard deviation of new cells there, in units of the table."""
        mean, variance = self._moments(np.asarray(z, dtype=float))
        return self.units.back(mean), self.units.spread(np.sqrt(variance))

    @double_precision
    def _moments(self, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return in_few_sizes(lambda z: _at(self.model, self.known, z), z)

    def place(self, Y: Float[np.ndarray, "M C"]) -> Float[np.ndarray, "M Q"]:
        """Where rows lie, NaN for cells that were not seen: those that were learned from keep their places."""
        y = self.units.to(np.asarray(Y, dtype=float))
        z, found = self._remembered(y)
        if not found.all():
            z[~found] = self._sought(y[~found])
        return z

    def impute(self, Y: Float[np.ndarray, "M C"]) -> tuple[Float[np.ndarray, "M C"], Float[np.ndarray, "M C"]]:
        """The table with what is expected where a cell is missing, and the standard deviation of what was filled in, else 0."""
        Y = np.asarray(Y, dtype=float)
        gone = np.isnan(Y)
        mean, variance = self._moments_of_rows(self.place(Y), 1.0 * ~gone[:, self.units.used])
        filled = np.where(gone, self.units.back(mean), Y)
        return filled, np.where(gone, self.units.spread(np.sqrt(variance)), 0.0)

    @double_precision
    def _moments_of_rows(self, z: np.ndarray, seen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """What is expected of rows whose places are known by the cells that were seen, and no better."""
        return in_few_sizes(lambda z, seen: _at_unsure(self.model, self.known, z, seen), z, seen)

    def _remembered(self, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The places of rows that were learned from, and which rows are such."""
        own = np.where(self.seen, np.asarray(self.cells.y), np.nan)
        first: dict[bytes, int] = {}
        for n, row in enumerate(own):
            first.setdefault(row.tobytes(), n)
        number = np.array([first.get(row.tobytes(), -1) for row in np.where(np.isnan(y), np.nan, y)], dtype=int)
        return self.latent[number], number >= 0

    @double_precision
    def _sought(self, y: np.ndarray) -> np.ndarray:
        """The most probable places of new rows; with back-constraints their image, where the row is whole."""
        z = np.zeros((len(y), self.latent.shape[1]))
        whole = ~np.isnan(y).any(axis=1)
        if isinstance(self.model.latents, BackConstraints) and whole.any():
            z[whole] = in_few_sizes(lambda rows: self.model.latents.of(jnp.asarray(rows)), y[whole])  # type: ignore[attr-defined]
        else:
            whole[:] = False
        left = np.flatnonzero(~whole)
        if len(left):
            tell = self._moments(self.latent)
            for at in range(0, len(left), CHUNK):
                some = left[at : at + CHUNK]
                z[some] = self._search(y[some], *tell)
        return z

    def _search(self, y: np.ndarray, mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
        """From the places of the rows that make each one most probable, all at once."""
        seen = ~np.isnan(y)
        y, latent = np.where(seen, y, 0.0), self.latent
        w = 1 / variance
        misfit = (y**2) @ w.T - 2 * y @ (w * mean).T + seen @ (w * mean**2 + np.log(variance)).T
        cost = 0.5 * misfit + 0.5 * np.sum(latent**2, axis=1)
        count = min(STARTS, len(latent))
        near = np.argsort(cost, axis=1, kind="stable")[:, :count]
        size = size_for(count * len(y))
        start = filled(latent[near].reshape(-1, latent.shape[1]), size)
        rows, mask = (filled(np.repeat(part, count, axis=0), size) for part in (y, 1.0 * seen))
        arguments = jax.device_put((self.model, self.known, rows, mask))
        evaluate = lambda z: tuple(np.asarray(part) for part in _costs(np.asarray(z), *arguments))
        bounds = np.tile([-np.inf, np.inf], (*start.shape, 1))
        ends: Any = minimise_all(evaluate, start, bounds, relative=1e-10, flat=1e-6, max_evaluations=EVALUATIONS)  # type: ignore[arg-type]
        value = ends.value[: count * len(y)].reshape(len(y), count)
        theta = ends.theta[: count * len(y)].reshape(len(y), count, -1)
        return theta[np.arange(len(y)), np.argmin(value, axis=1)]

    def summary(self) -> str:
        """The map in words, and its parameters."""
        N, D = np.shape(self.cells.y)
        gone = N * D - int(np.sum(np.asarray(self.cells.counts)))
        constant = int(np.sum(~self.units.used))
        share = np.round(self.relevance, 3)
        lines = [
            f"{N} rows of {D} columns in {self.latent.shape[1]} coordinates, from {self.start}",
            f"missing cells  {gone} of {N * D}",
            f"lower bound    {self.bound:.6g}",
            f"relevance      {' '.join(f'{value:.3g}' for value in share)}",
            f"learning       {self.learning}",
        ]
        if constant:
            lines.insert(1, f"{constant} columns never change and were left out")
        return "\n".join([*lines, "", *parameter_table(self.model, None)])

    def plot(self, labels: Any = None, ax: Any = None, dimensions: tuple[int, int] | None = None) -> Any:
        """Draw the map, coloured by labels, with how sure the functions are behind it. Needs Matplotlib; returns the axes."""
        from ...plots import plot_map

        return plot_map(self, labels, ax, dimensions)

    def shade(self, across: np.ndarray, up: np.ndarray, dimensions: tuple[int, int]) -> Float[np.ndarray, "U A"]:
        """The mean over columns of the standard deviation, in units of their spread, over a grid of places; others at 0."""
        z = np.zeros((len(up) * len(across), self.latent.shape[1]))
        mesh = np.meshgrid(across, up)
        for q, values in zip(dimensions, mesh, strict=True):
            z[:, q] = values.ravel()
        return np.sqrt(self._moments(z)[1]).mean(axis=1).reshape(mesh[0].shape)

    def most_relevant(self) -> tuple[int, int]:
        """The two coordinates that tell most, in their order; one twice where there is one."""
        two = np.sort(np.argsort(-self.relevance, kind="stable")[:2])
        return int(two[0]), int(two[-1])

    def __repr__(self) -> str:
        return f"FittedMap({len(self.latent)} rows in {self.latent.shape[1]} coordinates)"


@double_precision
def relevance_of(model: LatentModel) -> np.ndarray:
    """The spread of latent inputs in units of the lengthscales, the largest 1."""
    z, kernel = np.asarray(model.latents.places()), model.kernel.kernel
    apart = np.asarray(kernel.embed(z)) if hasattr(kernel, "embed") else z
    found = np.std(apart, axis=0)
    return found / max(float(np.max(found)), 1e-300)


def _predicted(model: LatentModel, known: KnownColumns, z: Float[Array, "n Q"]) -> tuple[Array, Array]:
    """Means and variances of new cells of all columns."""
    kernel = model.kernel.kernel
    mean, variance = known.at(covariance(kernel, jnp.asarray(model.kernel.inputs), z), variances(kernel, z))
    return mean, variance + jnp.asarray(model.noise) + LEAST


_at = jax.jit(_predicted)


@jax.jit
def _at_unsure(
    model: LatentModel, known: KnownColumns, z: Float[Array, "n Q"], seen: Float[Array, "n D"]
) -> tuple[Array, Array]:
    """The same where places are the modes of what cells that were seen tell of them, as wide as their slopes J leave them.

    They have the covariance (I + Σ_seen JJᵀ/s)⁻¹, and columns vary by J besides.
    """
    mean, variance = _predicted(model, known, z)
    J = jax.vmap(jax.jacrev(lambda one: _predicted(model, known, one[None])[0][0]))(z)
    precision = jnp.eye(z.shape[1]) + jnp.einsum("nd,ndq,ndr->nqr", seen / variance, J, J)
    return mean, variance + jnp.einsum("ndq,nqd->nd", J, jnp.linalg.solve(precision, J.swapaxes(1, 2)))


@jax.jit
def _costs(
    z: Float[Array, "S Q"], model: LatentModel, known: KnownColumns, y: Float[Array, "S D"], seen: Float[Array, "S D"]
) -> tuple[Float[Array, " S"], Float[Array, "S Q"]]:
    """What places cost rows, −log p less constants, each with its slope: rows do not know of each other."""

    def all_of(z: Array) -> tuple[Array, Array]:
        mean, variance = _predicted(model, known, z)
        costs = 0.5 * jnp.sum(seen * ((y - mean) ** 2 / variance + jnp.log(variance)), axis=1) + 0.5 * jnp.sum(z**2, axis=1)
        return jnp.sum(costs), costs

    slope, costs = jax.grad(all_of, has_aux=True)(z)
    return costs, slope
