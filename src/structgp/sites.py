"""Gaussian stand-ins for observations, and what they leave of a process at their places."""

from __future__ import annotations

from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from .linalg.blocks import Contrasts


class Sites(eqx.Module):
    """Gaussian stand-ins for observations, exp(h f − ½ w f²): precision w, 0 for a missing value, and shift h = w · mean.

    Several columns of shifts share the precisions: several targets, or basis functions, seen at the same places. Sites are
    either values seen with noise of variance 1/w, of which evidences are densities, or, when `natural`, mere factors: then w
    may be 0 where h is not, and with `signed` also negative.

    Of several latents sites are natural, exp(hᵀf − ½ fᵀΠf) on the C values at each place: shifts are (N, C, k), and Π is a
    matrix in one of the forms of `linalg.blocks`. An array (N, C), a number for each latent, keeps the latents apart.
    """

    precision: Any  # (N,), or for several latents one of the `Blocks`
    shift: Float[Array, " N *C k"]
    natural: bool = eqx.field(static=True, default=False)
    signed: bool = eqx.field(static=True, default=False)
    values: Float[Array, "N C"] | None = None  # the targets if at hand: no derivative runs through shift / precision

    @classmethod
    def seen_as(cls, targets: Float[Array, "N C"], variance: Float[Array, " N"], seen: Bool[Array, " N"]) -> Sites:
        """The sites of targets that were seen with Gaussian noise of these variances."""
        precision = jnp.where(seen, 1 / variance, 0.0)
        return cls(precision, precision[:, None] * targets, values=jnp.where(seen[:, None], targets, 0.0))

    @property
    def targets(self) -> Float[Array, "N C"]:
        """The values that the sites stand for, 0 where there is none."""
        if self.values is not None:
            return self.values
        w = self.precision[:, None]
        return jnp.where(w != 0, self.shift / jnp.where(w != 0, w, 1.0), 0.0)

    @property
    def apart(self) -> bool:
        """Whether several latents have sites of their own that do not couple them."""
        return not isinstance(self.precision, Contrasts) and self.precision.ndim == 2

    def of_latent(self, c: int) -> Sites:
        """The sites of one latent among several that are apart."""
        return Sites(self.precision[:, c], self.shift[:, c], self.natural, self.signed)


class Marginals(NamedTuple):
    """A zero-mean process given natural sites, at their places: means Σh, variances Σᵢᵢ, log|I + KW| and hᵀΣh.

    Of several latents means are (N, C, k), and variances the matrices Σ_n, (N, C, C), or (N, C) of sites that keep them apart.
    """

    mean: Float[Array, " N *C k"]
    variance: Float[Array, " N *C"]
    log_det: Float[Array, ""]
    gram: Float[Array, "k k"]
