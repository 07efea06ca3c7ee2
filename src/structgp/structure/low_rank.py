"""A kernel known through its values at a few inducing inputs, by one rule for each node that these may stand in."""

from __future__ import annotations

from collections.abc import Callable
from functools import singledispatch
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .. import where
from ..inputs.layouts import Inputs
from ..kernels.algebra import Kernel, On, Product, Scaled, Sum, View
from ..kernels.independent import IndependentKernels
from ..kernels.induced import Induced
from ..kernels.stationary import Radial
from ..kernels.views import Project, Warp
from ..linalg.features.low_rank import whitening, with_jitter
from ..linalg.features.totals import in_blocks, visited
from .base import No, Structure
from .dense import covariance, variances
from .features import HELD

ROWS = 2048  # whose covariances with the inducing inputs are held at a time
MANY_ROWS = 2**15  # on an accelerator, which small products leave idle


class Through(NamedTuple):
    """A kernel, rows as it sees them, and inducing inputs among these."""

    kernel: Kernel
    X: Any
    inputs: Any

    def cross(self) -> Float[Array, "N M"]:
        """K_fu."""
        return covariance(self.kernel, self.X, self.inputs)


@singledispatch
def through(kernel: Kernel, X: Float[Array, "N D"]) -> Through | No:
    """The inducing inputs of a kernel, and rows as they lie among them, by node."""
    return No("no inducing inputs: pass approximate=Inducing(...), or write Induced(kernel, inputs)")


@through.register
def _(kernel: Induced, X: Float[Array, "N D"]) -> Through:
    return Through(kernel.kernel, X, jnp.asarray(kernel.inputs))


@through.register(On)
@through.register(Project)
@through.register(Warp)
def _(kernel: View, X: Float[Array, "N D"]) -> Through | No:
    return through(kernel.kernel, kernel.seen(X))


@through.register
def _(kernel: Scaled, X: Float[Array, "N D"]) -> Through | No:
    inner = through(kernel.kernel, X)
    return inner if isinstance(inner, No) else inner._replace(kernel=Scaled(inner.kernel, kernel.scale))


def crossing(kernel: Kernel) -> Any:
    """Rows to their covariances with the inducing inputs and their variances: a pytree that can be differentiated."""
    return jax.tree_util.Partial(_crossing, kernel)


def _crossing(kernel: Any, X: Float[Array, "N D"]) -> tuple[Float[Array, "N M"], Float[Array, " N"]]:
    of: Any = through(kernel, X)
    return of.cross(), variances(of.kernel, of.X)


class LowRank(Structure):
    """A kernel with inducing inputs and the rows of the data; perhaps with V and the variances of all of them at hand."""

    kernel: Kernel
    X: Float[Array, "N D"]
    size: int = eqx.field(static=True)  # the number of inducing inputs
    V: Float[Array, "M N"] | None = None
    k: Float[Array, " N"] | None = None

    def rows(self) -> Float[Array, "B n D"]:
        """The rows in blocks of one size, so that a few rows more are the same program."""
        return in_blocks(self.X, ROWS if where.backend() == "cpu" else MANY_ROWS)

    def among(self) -> Float[Array, "M M"]:
        """K_uu, with jitter."""
        of: Any = through(self.kernel, self.X[:1])
        return with_jitter(covariance(of.kernel, of.inputs, of.inputs))

    def white(self, L: Float[Array, "M M"]) -> tuple[Callable[[Any], Any], Any]:
        """How V and the variances k are made of blocks, and the blocks: what is at hand is one."""
        if self.V is None:
            return whitening(crossing(self.kernel), L), self.rows()
        return lambda block: block, (self.V[None], self.k[None])  # type: ignore[index]

    def computed(self, signed: bool) -> LowRank:
        if self.size * len(self.X) > HELD:
            return self
        white, rows = self.white(jnp.linalg.cholesky(self.among()))

        def one(block: Array) -> tuple[Array, Array]:
            V, k = white(block)
            return V.T, k

        V, k = visited(one, rows, len(self.X))
        return LowRank(self.kernel, self.X, self.size, V.T, k)


def low_rank(kernel: Kernel, inputs: Inputs) -> LowRank | No:
    """A kernel with inducing inputs on any inputs, or why it has none."""
    X = jnp.asarray(inputs.points)
    found = through(kernel, X[:1])
    return found if isinstance(found, No) else LowRank(kernel, X, len(found.inputs))


@singledispatch
def in_units(kernel: Kernel, X: Float[Any, "N D"]) -> Float[Any, "N E"] | None:
    """Rows where distance is in units of the lengthscales, by node; None where there are none."""
    return None


@in_units.register
def _(kernel: Radial, X: Float[Any, "N D"]) -> Float[Any, "N E"]:
    return kernel.embed(X)


@in_units.register
def _(kernel: Sum, X: Float[Any, "N D"]) -> Float[Any, "N E"] | None:
    return _together(kernel.terms, X)


@in_units.register
def _(kernel: Product, X: Float[Any, "N D"]) -> Float[Any, "N E"] | None:
    return _together(kernel.factors, X)


@in_units.register(Scaled)
@in_units.register(Induced)
def _(kernel: Scaled | Induced, X: Float[Any, "N D"]) -> Float[Any, "N E"] | None:
    return in_units(kernel.kernel, X)


@in_units.register(On)
@in_units.register(Project)
def _(kernel: View, X: Float[Any, "N D"]) -> Float[Any, "N E"] | None:
    return in_units(kernel.kernel, kernel.seen(X))


def _together(kernels: tuple[Kernel, ...], X: Any) -> Any:
    known = [part for part in (in_units(kernel, X) for kernel in kernels) if part is not None]
    return np.concatenate([np.asarray(part) for part in known], axis=1) if known else None


@singledispatch
def placed(kernel: Any, X: Float[np.ndarray, "N D"], place: Callable[[Kernel, np.ndarray], np.ndarray]) -> Any:
    """The kernel with inducing inputs where `place` puts them among rows as it sees them, inside of views; on the host."""
    return Induced(kernel, place(kernel, X))


@placed.register
def _(kernel: Induced, X: Float[np.ndarray, "N D"], place: Callable[[Kernel, np.ndarray], np.ndarray]) -> Kernel:
    return kernel.replace(inputs=place(kernel.kernel, X))


@placed.register
def _(kernel: IndependentKernels, X: Float[np.ndarray, "N D"], place: Callable[[Kernel, np.ndarray], np.ndarray]) -> Any:
    return IndependentKernels(tuple(placed(one, X, place) for one in kernel.kernels))


@placed.register(On)
@placed.register(Project)
def _(kernel: View, X: Float[np.ndarray, "N D"], place: Callable[[Kernel, np.ndarray], np.ndarray]) -> Kernel:
    return kernel.replace(kernel=placed(kernel.kernel, np.asarray(kernel.seen(X)), place))
