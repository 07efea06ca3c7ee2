"""One kernel for each of several latent functions."""

from __future__ import annotations

from typing import Any

import equinox as eqx

from ..parameters.tree import Parametrised
from .algebra import Kernel


def Independent(*kernels: Kernel) -> IndependentKernels:
    """Independent latent functions, each with a kernel of its own: ``Independent(Matern52(), Matern32(), Linear())``.

    For a likelihood that sees several latents, such as `Categorical`; a single kernel in its place is the prior of each.
    """
    return IndependentKernels(kernels)


class IndependentKernels(Parametrised):
    """What `Independent` makes: a prior for several latents that is no kernel itself."""

    kernels: tuple[Kernel, ...] = eqx.field(converter=tuple)

    def __check_init__(self) -> None:
        for kernel in self.kernels:
            if not isinstance(kernel, Kernel):
                raise TypeError(f"Independent needs kernels such as Matern52(), one for each latent, got {kernel!r}")
        if len(self.kernels) < 2:
            raise ValueError(f"Independent needs at least two kernels, one for each latent, got {len(self.kernels)}")

    def __repr__(self) -> str:
        return f"Independent({', '.join(map(repr, self.kernels))})"


def kernels_of(prior: Any, latents: int) -> tuple[Kernel, ...]:
    """The kernel of each latent function."""
    return prior.kernels if isinstance(prior, IndependentKernels) else (prior,) * latents
