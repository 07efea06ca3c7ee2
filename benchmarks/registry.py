"""What is measured: a `Problem` makes data of a given size; a method turns them into a call that is timed.

A method is a function `start(data) -> Run`. It imports its library inside, so that the cold time counts the import and no peer
is loaded into another's process. `Run.call()` does the whole job once, waits until the numbers are there, and returns a small
result (floats and lists). What a method cannot do it refuses with `Unavailable(reason)`, and the reason stands in the table.
"""

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

Result = Mapping[str, Any]


class Unavailable(Exception):
    """A method that is not installed here or cannot do this job, with the reason that the table shows."""


@dataclass(frozen=True)
class Run:
    """A method made ready on some data: `call` is timed; `before` (fresh buffers) runs untimed ahead of each call."""

    call: Callable[[], Result]
    before: Callable[[], None] = lambda: None


@dataclass(frozen=True)
class Method:
    """One way to solve a problem, and the modules that it needs."""

    name: str
    start: Callable[[Any], Run]
    requires: tuple[str, ...] = ()

    @property
    def module(self) -> str:
        """What a fresh worker imports to find this method and, with it, the problem."""
        return self.start.__module__


def no_scores(data: Any, results: Mapping[str, Result]) -> Mapping[str, Mapping[str, float | str]]:
    """For problems where only time and memory are compared."""
    return {}


@dataclass
class Problem:
    """A named job at several sizes, its methods, and how their results are scored.

    `score(data, results)` gets the results of all methods at one size and returns extra columns for each method (relative
    errors, evidence reached, …). Ratios of warm time are printed against each of `references`. Each worker repeats the warm
    call until `calls` are done or `seconds` have passed; `repeat` rounds over all methods are made.
    """

    name: str
    about: str
    make: Callable[[int], Any]
    sizes: tuple[int, ...]
    quick: tuple[int, ...]
    references: tuple[str, ...] = ("structgp",)
    score: Callable[[Any, Mapping[str, Result]], Mapping[str, Mapping[str, float | str]]] = no_scores
    repeat: int = 3
    calls: int = 5
    seconds: float = 3.0
    methods: dict[str, Method] = field(default_factory=dict)

    def method(self, name: str, requires: tuple[str, ...] = ()):
        """Decorator: the function below is a method of this problem."""

        def register(start: Callable[[Any], Run]) -> Callable[[Any], Run]:
            self.methods[name] = Method(name, start, requires)
            return start

        return register


PROBLEMS: dict[str, Problem] = {}


def problem(**fields) -> Problem:
    """Make a problem and enter it in the list that the command line knows."""
    made = Problem(**fields)
    PROBLEMS[made.name] = made
    return made


def load_problems(*modules: str) -> dict[str, Problem]:
    """All problems of `benchmarks.problems` and of further modules given by name."""
    from benchmarks import problems

    for name in [f"benchmarks.problems.{m.name}" for m in pkgutil.iter_modules(problems.__path__)] + list(modules):
        importlib.import_module(name)
    return PROBLEMS
