"""Array aliases, double precision, and the notation that the code shares with the literature.

| paper    | code              | meaning                                             |
|----------|-------------------|-----------------------------------------------------|
| x, z     | ``x``, ``z``      | two points, each of shape (D,)                      |
| X, X*    | ``X``, ``Xs``     | training and new inputs, (N, D)                     |
| K        | ``K``             | prior covariance of f at the inputs                 |
| R        | ``R``             | noise variances of the observations                 |
| C        | ``C``             | K + R, covariance of the observations               |
| w, h     | ``w``, ``h``      | a Gaussian site exp(h f − ½ w f²)                   |
| α        | ``alpha``         | C⁻¹ (y − m)                                         |
| L        | ``L``             | lower Cholesky factor                               |
| ℓ, σ_f²  | lengthscale, variance | scale of the input, of the function             |
| σ_n²     | noise             | variance of the observation noise                   |
| Φ, β     | ``Phi``, ``beta`` | basis functions at the inputs, and their weights    |
| θ        | ``theta``         | the free (unconstrained) parameters as one vector   |
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Num

from . import where

# NumPy or JAX arrays: the same code runs on the host and inside a computation.
Scalar = Float[Any, ""]
Point = Float[Any, " D"]
if TYPE_CHECKING:  # a plain number does as well, but is not asked for its shape
    Numbers = Any
else:
    Numbers = Num[Any, " ..."] | float | int
Seed = int | np.random.Generator | None

P = ParamSpec("P")
T = TypeVar("T")


def double_precision(function: Callable[P, T]) -> Callable[P, T]:
    """Run `function` with 64-bit JAX, whatever the caller uses; on the host where a plan says so."""

    @functools.wraps(function)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> T:
        with jax.enable_x64(True):
            if not where.accelerated():
                return function(*args, **kwargs)
            with where.extent_of(args[0] if args else None):
                return function(*args, **kwargs)

    return wrapped


def by_the_host(function: Callable[P, T]) -> Callable[P, T]:
    """The same for what goes step by step: never on an accelerator."""

    @functools.wraps(function)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> T:
        with jax.enable_x64(True), where.on_host():
            return function(*args, **kwargs)

    return wrapped


def is_traced(value: Any) -> bool:
    """Whether `value` is inside a JAX transformation, so that it cannot be looked at."""
    return isinstance(value, jax.core.Tracer)


def library(value: Any) -> Any:
    """`jax.numpy` for what JAX holds, `numpy` for the rest."""
    return jnp if isinstance(value, jax.Array) else np


def as_float(value: Any) -> Any:
    """A float64 NumPy array; what JAX is already tracing or holding passes through."""
    if isinstance(value, jax.Array) or not isinstance(value, (int, float, complex, list, tuple, np.ndarray, np.generic)):
        return value
    return np.asarray(value, dtype=np.float64)


def generator(seed: Seed) -> np.random.Generator:
    """A NumPy generator from an integer seed or from a generator, which is used as it is."""
    try:
        return seed if isinstance(seed, np.random.Generator) else np.random.default_rng(seed)
    except (TypeError, ValueError):
        raise TypeError(f"seed must be a whole number of at least 0, a numpy Generator or None, got {seed!r}") from None


def how_many(count: Any, what: str) -> str:
    """'1 place', '3 places': how many there are."""
    return f"{count} {what}{'' if count == 1 else 's'}"


def whole(value: Any, name: str, least: int = 0) -> int:
    """A whole number of at least `least`, or a message."""
    number = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
    if not number or not math.isfinite(value) or value != math.floor(value) or value < least:
        raise ValueError(f"{name} must be a whole number, {least} or more, got {value!r}")
    return int(value)


class PlainFunction(eqx.Module):
    """A function without parameters as part of a value."""

    function: Callable[..., Any] = eqx.field(static=True)

    def __call__(self, *args: Any) -> Any:
        try:
            return self.function(*args)
        except (jax.errors.ConcretizationTypeError, jax.errors.TracerArrayConversionError):
            raise TypeError(
                f"the function {self!r} cannot be compiled: it decides by the value of its input (if, while, float) or hands "
                "it to NumPy. Write it with jax.numpy, and choices as jnp.where(x[0] > 0, ..., ...)"
            ) from None

    def __repr__(self) -> str:
        return getattr(self.function, "__name__", repr(self.function))


def as_callable(function: Any) -> Any:
    """A callable that can be part of a value: one with parameters as it is, any other as a static part."""
    if not callable(function):
        raise TypeError(f"a function is needed, got {function!r}")
    return function if isinstance(function, eqx.Module) else PlainFunction(function)
