"""A kernel with a few places at which values of f stand for all of it."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._types import Numbers, Point, Scalar, how_many
from ..parameters.supports import real
from ..parameters.tree import parameter
from .algebra import Kernel


class Induced(Kernel):
    """A kernel and its inducing inputs (M, D), which approximate engines go through; the covariance is the kernel's own.

    Inside a view, as in ``Project(Induced(kernel, inputs))``, the inputs are places of what the view shows.
    """

    kernel: Kernel
    inputs: Numbers = parameter(((0.0,),), real)

    def __check_init__(self) -> None:
        if np.ndim(self.inputs) != 2:
            raise ValueError(f"inducing inputs are rows like those of X, (M, D), got an array of shape {np.shape(self.inputs)}")

    @property
    def terms(self) -> Any:
        """The terms of a sum that this is."""
        return self.kernel.terms  # type: ignore[attr-defined]

    def between(self, x: Point, z: Point) -> Scalar:
        columns = np.shape(self.inputs)[1]
        if x.shape[-1] != columns:
            raise ValueError(
                f"the inducing inputs have {how_many(columns, 'column')} "
                f"but the inputs have {x.shape[-1]}: give rows like those of X"
            )
        return self.kernel.between(x, z)

    def null_space(self, x: Point) -> Numbers:
        return self.kernel.null_space(x)

    def __repr__(self) -> str:
        return f"Induced({self.kernel!r}, {len(self.inputs)} inputs)"
