"""Values as descriptions in JSON, with the arrays that they refer to, and back.

A description is a tree. A number, a string, true, false or null stands for itself and a list for a list; everything else is an
object with one key that says what it is:

    {"tuple": […]}  {"dict": [[key, value], …]}  {"number": "inf"}  {"array": "t3", "held": "jax"}  {"Matern52": {field: …}}
    {"labels": […], "shape": […], "dtype": "<U4"}  {"random": state of a RandomState}

A class is looked up by its name among the value types of this library, and nowhere else: reading a file imports nothing and
executes nothing that the file could choose. Fields that are marked as derived (the factor of a dense covariance) are left
out and computed again.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import importlib
import inspect
import math
import pkgutil
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np

from .. import __version__
from .._types import PlainFunction
from .rules import GONE, OLDER, Damage, check, complete

PACKAGE = __package__.rpartition(".")[0]
# Where values are defined. Of two classes with one name the first keeps it; the second goes by its module as well.
ROOMS = (
    *("parameters", "kernels", "means", "likelihoods", "inputs", "structure", "sites", "posterior"),
    *("engines", "inference", "learn", "process", "models", "decide", "linalg"),
)
ESTIMATORS = ("sklearn",)  # apart, because scikit-learn takes a second to import


@functools.cache
def registry(rooms: tuple[str, ...] = ROOMS) -> dict[str, type]:
    """The value types that a file may hold, by name: dataclasses, named tuples and estimators that are not abstract."""
    found: dict[str, type] = {}
    for cls in (cls for room in rooms for cls in _classes(room)):
        taken = cls.__name__ in found or cls.__name__ in OLDER
        found[_with_module(cls) if taken else cls.__name__] = cls
    return found


def name_of(cls: type) -> str | None:
    """What a class is called in files; None for one that has no place there."""
    near = (cls.__name__, _with_module(cls))
    return next((name for rooms in (ROOMS, ESTIMATORS) for name in near if registry(rooms).get(name) is cls), None)


def _with_module(cls: type) -> str:
    return f"{cls.__module__.removeprefix(PACKAGE + '.')}:{cls.__qualname__}"


def _classes(room: str) -> Iterator[type]:
    """The value types that a module defines, or all modules of a package."""
    module = importlib.import_module(f"{PACKAGE}.{room}")
    for part in pkgutil.iter_modules(getattr(module, "__path__", ())):
        yield from _classes(f"{room}.{part.name}")
    named = dict.fromkeys(cls for cls in vars(module).values() if isinstance(cls, type))  # once, also with a second name
    own = (cls for cls in named if cls.__module__ == module.__name__)
    yield from (cls for cls in own if _is_value(cls) and not inspect.isabstract(cls))


def _is_value(cls: type) -> bool:
    return dataclasses.is_dataclass(cls) or _is_named_tuple(cls) or is_estimator(cls)


def _is_named_tuple(cls: type) -> bool:
    return issubclass(cls, tuple) and hasattr(cls, "_fields")


def is_estimator(cls: type) -> bool:
    """Whether a value is all that it was told and all that it learned, as scikit-learn has it."""
    return hasattr(cls, "get_params")


def fields_of(cls: type) -> dict[str, Any]:
    """The fields of a dataclass, or the names of a named tuple."""
    if _is_named_tuple(cls):
        return dict.fromkeys(cls._fields)  # type: ignore[attr-defined]
    return {field.name: field for field in dataclasses.fields(cls)}


def is_derived(field: Any) -> bool:
    """Whether a field follows from the others."""
    return field is not None and field.metadata.get("derived", False)


class Writer:
    """Values to descriptions, and the arrays that these refer to."""

    def __init__(self) -> None:
        self.arrays: dict[str, np.ndarray] = {}
        self._names: dict[tuple[str, tuple[int, ...], bytes], str] = {}

    def encode(self, value: Any, path: str) -> Any:
        """The description of a value; `path` says where it stands, for messages."""
        if isinstance(value, np.generic):
            value = value.item()
        if value is None or isinstance(value, (bool, int, str)):
            return str(value) if isinstance(value, str) else value
        if isinstance(value, float):
            return float(value) if math.isfinite(value) else {"number": repr(float(value))}
        if isinstance(value, (np.ndarray, jax.Array)):
            return self._array(value, path)
        if type(value) in (list, tuple):
            items = [self.encode(item, f"{path}[{i}]") for i, item in enumerate(value)]
            return items if type(value) is list else {"tuple": items}
        if type(value) is dict:
            pairs = [
                [self.encode(key, f"a key of {path}"), self.encode(item, f"{path}[{key!r}]")] for key, item in value.items()
            ]
            return {"dict": pairs}
        if isinstance(value, np.random.RandomState):
            return {"random": self.encode(value.get_state(), path)}
        name = name_of(type(value))
        if name is None:
            raise TypeError(_cannot(value, path))
        return {name: {field: self.encode(item, f"{path}.{field}") for field, item in _contents(value).items()}}

    def _array(self, value: Any, path: str) -> dict[str, Any]:
        array = np.asarray(value)
        if array.dtype.kind in "OU":
            items = [self.encode(item, f"{path}[{i}]") for i, item in enumerate(array.ravel().tolist())]
            return {"labels": items, "shape": list(array.shape), "dtype": array.dtype.str}
        if array.dtype.kind not in "fiub":
            raise TypeError(f"{path} is an array of {array.dtype}, which cannot be saved: only numbers and text can")
        array = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("=")).reshape(array.shape)
        content = memoryview(array.reshape(-1)).cast("B") if array.size else b""
        key = (array.dtype.str, array.shape, hashlib.sha256(content).digest())
        if key not in self._names:
            self._names[key] = f"t{len(self._names)}"
            self.arrays[self._names[key]] = array
        return {"array": self._names[key], "held": "jax" if isinstance(value, jax.Array) else "numpy"}


def _contents(value: Any) -> dict[str, Any]:
    """What makes up a value, by name."""
    if is_estimator(type(value)):
        return dict(vars(value))
    return {name: getattr(value, name) for name, field in fields_of(type(value)).items() if not is_derived(field)}


def _cannot(value: Any, path: str) -> str:
    """Why a value has no place in a file, and what to do instead."""
    if isinstance(value, PlainFunction) or inspect.isroutine(value):
        what = f"the function {getattr(value, '__name__', repr(value))}"
    else:
        what = f"{type(value).__name__}, a class of {type(value).__module__}"
    return (
        f"{path} is {what}, which cannot be saved: a model file holds numbers and structgp's own classes, never code. "
        "Keep fitted.gp.parameters() and build the model again in code, or use joblib.dump, whose files only "
        "those who trust you should open"
    )


class Reader:
    """Descriptions to values."""

    def __init__(self, arrays: dict[str, np.ndarray]) -> None:
        self.arrays = arrays

    def decode(self, node: Any) -> Any:
        """The value that a description stands for."""
        if node is None or isinstance(node, (bool, int, float, str)):
            return node
        if isinstance(node, list):
            return [self.decode(item) for item in node]
        if "array" in node:
            return self._array(**node)
        if "labels" in node:
            return self._labels(**node)
        if len(node) != 1:
            raise Damage(f"a value of it is described by {sorted(node)}, which means nothing")
        ((kind, content),) = node.items()
        special: dict[str, Callable[[Any], Any]] = {
            "tuple": lambda items: tuple(self.decode(item) for item in items),
            "dict": lambda pairs: {self.decode(key): self.decode(item) for key, item in pairs},
            "number": lambda text: {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}[text],
            "random": lambda state: _random_state(self.decode(state)),
        }
        if kind in special:
            return special[kind](content)
        if kind in OLDER:
            return _sound(OLDER[kind]({name: self.decode(item) for name, item in content.items()}))
        cls = registry().get(kind) or registry(ESTIMATORS).get(kind)
        if cls is None:
            raise Damage(f"it holds a {kind!r}, which this structgp {__version__} does not know")
        return self._value(cls, content)

    def _array(self, array: str, held: str = "numpy") -> Any:
        if array not in self.arrays:
            raise Damage(f"the array {array!r} is missing")
        return jax.device_put(self.arrays[array]) if held == "jax" else self.arrays[array]

    def _labels(self, labels: list[Any], shape: list[int], dtype: str) -> np.ndarray:
        array = np.empty(len(labels), dtype=object)
        array[:] = [self.decode(item) for item in labels]
        if np.dtype(dtype).kind not in "OU":
            raise Damage(f"labels of it are of type {dtype!r}")
        return array.reshape(shape).astype(dtype)

    def _value(self, cls: type, content: dict[str, Any]) -> Any:
        """A value with these fields: converted and checked as its constructor would do."""
        if is_estimator(cls):
            return self._estimator(cls, content)
        fields, gone = fields_of(cls), GONE.get(cls.__name__, frozenset())
        content = {name: item for name, item in content.items() if name not in gone}
        strange = [name for name in content if name not in fields]
        if strange:
            raise Damage(f"{cls.__name__} has no field {strange[0]!r}; it has {', '.join(fields)}")
        given = {name: self.decode(item) for name, item in content.items()}
        if _is_named_tuple(cls):
            return cls(**given)
        value: Any = object.__new__(cls)
        for name, field in fields.items():
            if is_derived(field):
                continue
            convert = field.metadata.get("converter", lambda item: item)
            object.__setattr__(value, name, convert(given[name] if name in given else _default(cls, field)))
        return _sound(value)

    def _estimator(self, cls: Any, content: dict[str, Any]) -> Any:
        """An estimator as it was: what it was told goes through its constructor, what it learned comes back by name."""
        given = {name: self.decode(item) for name, item in content.items()}
        told = inspect.signature(cls).parameters
        estimator = cls(**{name: value for name, value in given.items() if name in told})
        vars(estimator).update(given)
        return estimator


def _default(cls: type, field: Any) -> Any:
    """What a field is in files that are older than it."""
    if field.default is not dataclasses.MISSING:
        return field.default
    if field.default_factory is dataclasses.MISSING:
        raise Damage(f"{cls.__name__} lacks its field {field.name!r}")
    return field.default_factory()


def _sound(value: Any) -> Any:
    """The value with what is derived, if its parts fit together."""
    check(value)
    for cls in type(value).__mro__:
        if "__check_init__" in cls.__dict__:
            cls.__dict__["__check_init__"](value)
    return complete(value)


def _random_state(state: Any) -> np.random.RandomState:
    random = np.random.RandomState()
    random.set_state(state)
    return random
