"""Where computations run: on the accelerator of a machine, or on its host where that is faster.

An accelerator takes long to be started and longer for loops whose steps follow each other; what is small or goes step by step
is done sooner by the processor beside it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any, ParamSpec, TypeVar

import jax

P = ParamSpec("P")
T = TypeVar("T")

_extent: ContextVar[contextlib.ExitStack | None] = ContextVar("extent", default=None)


def device() -> Any:
    """The device that computations run on here."""
    chosen = jax.config.jax_default_device
    if chosen is None:
        return jax.devices()[0]
    return jax.devices(chosen)[0] if isinstance(chosen, str) else chosen


def backend() -> str:
    """Its kind: "cpu", "gpu", …"""
    return jax.default_backend() if jax.config.jax_default_device is None else device().platform


def accelerated() -> bool:
    """Whether there is an accelerator, and a host beside it that can do without."""
    if jax.default_backend() == "cpu":
        return False
    try:
        return bool(jax.devices("cpu"))
    except RuntimeError:  # JAX was told to know nothing but the accelerator
        return False


def on_host() -> contextlib.AbstractContextManager[Any]:
    """A context in which computations run on the host."""
    return jax.default_device(jax.devices("cpu")[0]) if accelerated() else contextlib.nullcontext()


def on_accelerator() -> contextlib.AbstractContextManager[Any]:
    """A context in which computations run on the accelerator, where there is one."""
    return jax.default_device(jax.devices()[0]) if accelerated() else contextlib.nullcontext()


@contextlib.contextmanager
def extent_of(value: Any) -> Iterator[None]:
    """While an operation of `value` lasts: on the host if that is where its plan put it, and to its end where it moves to."""
    with contextlib.ExitStack() as stack:
        if getattr(getattr(value, "plan", None), "on_host", False):
            stack.enter_context(on_host())
        token = _extent.set(stack)
        try:
            yield
        finally:
            _extent.reset(token)


def move(to: Callable[[], contextlib.AbstractContextManager[Any]]) -> None:
    """Run the rest of the operation there."""
    stack = _extent.get()
    if stack is not None:
        stack.enter_context(to())


def carried(function: Callable[P, T]) -> Callable[P, T]:
    """The function for another thread: in double precision, and where this one computes."""
    chosen = jax.config.jax_default_device

    def there(*args: P.args, **kwargs: P.kwargs) -> T:
        with jax.enable_x64(True), contextlib.nullcontext() if chosen is None else jax.default_device(chosen):
            return function(*args, **kwargs)

    return there
