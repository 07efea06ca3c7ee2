"""Places of a complete series that were not seen, as if filled in and then taken out again: one solution for each of them.

With C of all N places, m the H unseen ones, (C⁻¹)_mm = LLᵀ and U = L⁻¹(C⁻¹)_m,

    log|C_seen| = log|C| + log|LLᵀ|,   C_seen⁻¹ = C⁻¹ − UᵀU, zero in the rows and columns of m.

So whatever knows C⁻¹ by a few vectors, as for Toeplitz matrices, keeps its fast ways for H solutions and O(H² N).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

OfRows = Callable[[Array], Array]


class Unseen(NamedTuple):
    """Places that were not seen: C⁻¹ of the others is C⁻¹ − UᵀU, zero in the rows and columns of these."""

    places: Int[Array, " H"]
    U: Float[Array, "H N"]

    @classmethod
    def of(cls, places: Int[Array, " H"], N: int, solve: OfRows, product: OfRows) -> tuple[Unseen, Float[Array, ""]]:
        """What C⁻¹ loses and log|C| gains, from C⁻¹b and Cx for single vectors."""

        def row(place: Array) -> tuple[Array, Array]:
            unit = jnp.zeros(N).at[place].set(1.0)
            x = solve(unit)
            return x, 2 * unit - product(x)

        rows, others = jax.lax.map(row, places)
        forms = rows @ others.T  # (C⁻¹)_mm with an error of second order in that of the rows
        L = jnp.linalg.cholesky(0.5 * (forms + forms.T))
        return cls(places, jax.scipy.linalg.solve_triangular(L, rows, lower=True)), 2 * jnp.sum(jnp.log(jnp.diagonal(L)))

    def without(self, X: Float[Array, "*B N"]) -> Float[Array, "*B N"]:
        """Zero at these places."""
        return X.at[..., self.places].set(0.0)

    def taken_out(self, of_all: OfRows, B: Float[Array, "*B N"]) -> Float[Array, "*B N"]:
        """C_seen⁻¹b for each b, from C⁻¹b."""
        B = self.without(B)
        return self.without(of_all(B) - (B @ self.U.T) @ self.U)

    def diagonal(self, of_all: Float[Array, " N"]) -> Float[Array, " N"]:
        """The diagonal of C_seen⁻¹ from that of C⁻¹."""
        return self.without(of_all - jnp.sum(self.U**2, axis=0))

    @property
    def variances(self) -> Float[Array, " H"]:
        """Of what was not seen given the others, noise included: the diagonal of (LLᵀ)⁻¹, where U holds Lᵀ."""
        half = jax.scipy.linalg.solve_triangular(self.U[:, self.places], jnp.eye(len(self.places)))
        return jnp.sum(half * half, axis=1)
