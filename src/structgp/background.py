"""Work that is begun before it is needed: while one program compiles, another can, and modules can load.

XLA compiles without Python's lock, on one core. A fresh process spends most of its time there.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any

import jax

from . import where

FEW = 64  # rows up to which compiling costs more than the runs that follow
QUICKLY = {"xla_backend_optimization_level": 0}


class Early:
    """Something that costs nothing when it is done again, begun on a thread of its own; as a context it is awaited at the end.

    What goes wrong there goes wrong again where it is needed, and is told there.
    """

    def __init__(self, work: Callable[[], Any], after: Early | None = None) -> None:
        self._work, self._after = where.carried(work), after
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        if self._after is not None:
            self._after.wait()
        with contextlib.suppress(Exception):
            self._work()

    def wait(self) -> None:
        """Return when it is done."""
        self._thread.join()

    def __enter__(self) -> Early:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.wait()


def compiling(program: Any, *arguments: Any, after: Early | None = None) -> Early:
    """A compiled program, or one that soon will be: a later call with such arguments finds it done."""
    return Early(lambda: program.lower(*arguments).compile(), after)


class Program:
    """A function compiled for its arguments: `well`, or `quickly` in half the time, to run a tenth longer."""

    def __init__(self, function: Callable[..., Any], static_argnames: Sequence[str] = ()) -> None:
        self.well = jax.jit(function, static_argnames=static_argnames)
        self.quickly = jax.jit(function, static_argnames=static_argnames, compiler_options=QUICKLY)

    def of(self, rows: int) -> Callable[..., Any]:
        """The one that suits so many rows."""
        return self.quickly if rows <= FEW else self.well
