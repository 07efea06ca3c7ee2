"""What stands between the options of a command and the functions that answer it.

Options that several commands share stand together in a class (`options.Learning`), and a command takes them by one parameter.
Where a command can go several ways, each is a `Route`: a function whose parameters are the options that say something there.
Another that was asked for is refused in a line, so that no option is passed over in silence, a new one included.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from typing import Any, get_type_hints


class Options:
    """Options that stand together: a class of this kind is a dataclass with a field for each."""


def _together(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, Options)


def parameters_of(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """The options that a function takes, by name; those that stand together in a class one by one."""
    found, hints = {}, get_type_hints(function, include_extras=True)
    for one in inspect.signature(function).parameters.values():
        hint = hints[one.name]
        if _together(hint):
            within = get_type_hints(hint, include_extras=True)
            for field in dataclasses.fields(hint):
                found[field.name] = _parameter(field.name, within[field.name], field.default)
        else:
            found[one.name] = _parameter(one.name, hint, one.default)
    return found


def _parameter(name: str, hint: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=hint, default=default)


def ask(function: Callable[..., Any], options: Mapping[str, Any]) -> Any:
    """What a function answers, given those of the options that it takes."""
    given, hints = {}, get_type_hints(function)
    for name in inspect.signature(function).parameters:
        hint = hints[name]
        if _together(hint):
            given[name] = hint(**{field.name: options[field.name] for field in dataclasses.fields(hint)})
        elif name in options:
            given[name] = options[name]
    return function(**given)


@dataclasses.dataclass(frozen=True)
class Route:
    """A way that a command can go: what is done there, in words, by which function, and what to do with options of other ways.

    `heeded` are options that the command has heeded before: what it found by them the function is `given` in their place.
    """

    what: str
    answer: Callable[..., dict[str, Any]]
    instead: str
    heeded: tuple[str, ...] = ()
    found: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def given(self, **found: Any) -> Route:
        """The same with what was found on the way to it."""
        return dataclasses.replace(self, found=found)

    @property
    def takes(self) -> frozenset[str]:
        """The names of the options that say something there; how the answer is printed is none of its business."""
        return frozenset({*parameters_of(self.answer), *self.heeded, "as_json"})

    def go(self, options: Mapping[str, Any], said: Mapping[str, str]) -> dict[str, Any]:
        """The answer; `said` has the options that were asked for, as they are written."""
        strange = [word for name, word in said.items() if name not in self.takes]
        if strange:
            raise ValueError(f"{strange[0]} says nothing of {self.what}: {self.instead}")
        return ask(self.answer, {**options, **self.found})
