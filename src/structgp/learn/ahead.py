"""Programs that are compiled while something else runs."""

from __future__ import annotations

import threading
from typing import Any

import jax


class Ahead:
    """A program on its way to being compiled, on a thread of its own: a later call with such arguments finds it done."""

    def __init__(self, program: Any, *arguments: Any) -> None:
        self._program, self._arguments = program, arguments
        self._thread = threading.Thread(target=self._compile, daemon=True)
        self._thread.start()

    def wait(self) -> None:
        """Return when it is compiled: calling the program before would compile it twice."""
        self._thread.join()

    def _compile(self) -> None:
        try:
            with jax.enable_x64(True):
                self._program.lower(*self._arguments).compile()
        except Exception:  # whatever is wrong with the arguments, the call itself says it where it can be heard
            return
