"""Models in files: one safetensors container, whose metadata describe the model in JSON and whose tensors are its arrays.

The description is a tree. A number, a string, true, false or null stands for itself and a list for a list; everything else
is an object with one key that says what it is:

    {"tuple": […]}  {"dict": [[key, value], …]}  {"number": "inf"}  {"array": "t3", "held": "jax"}  {"Matern52": {field: …}}

A class is looked up by its name among the value types of this library, and nowhere else: reading a file imports nothing and
executes nothing that the file could choose. Fields that are marked as derived (the factor of a dense covariance) are left
out and computed again.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import inspect
import json
import math
import os
import pkgutil
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from . import __version__
from ._types import PlainFunction, double_precision
from .engines.basis import Weights
from .engines.cholesky import CholeskyConditional, RootConditional
from .engines.kalman import Kalman
from .engines.plan import Plan
from .inference.base import Inferred
from .inputs.layouts import Inputs
from .inputs.observations import Data
from .kernels.algebra import Kernel
from .learn.maximise import Learning
from .linalg.dense import factors
from .linalg.dense.cholesky import factorise, lapack_threads
from .linalg.dense.newest_first import Whitened
from .linalg.features.splines import Splines
from .linalg.filters.kalman_smooth import Smoothed
from .linalg.filters.kalman_stream import Filtered
from .linalg.grids.kronecker import Spectral
from .linalg.grids.two_levels import Effort, LogDet, Probed, TwoLevels
from .linalg.grids.whitened import Chosen, System
from .linalg.grids.whitened_line import LineSystem
from .linalg.markov.quasiseparable import Swept
from .models.additive.model import FittedAdditive
from .models.changepoints.filter import Belief
from .models.changepoints.model import ChangePoints
from .models.changepoints.stream import ChangePointStream
from .models.feature_laplace import Mode
from .models.labels import FittedLabels, LearnedWaves, NormalScores, SineLatent, SplineLatent
from .models.one_against_rest import OneAgainstRest
from .models.pursuit.model import FittedProjectionPursuit, Rung, Spread, Units
from .models.pursuit.sine_model import SineModel
from .parameters.priors import Prior
from .parameters.tree import Note, Parametrised
from .posterior import Conditional
from .process.conditioning import check_inputs
from .process.fitted import Fitted
from .process.gp import GP
from .process.latents import FittedLatents, conditional_of
from .process.stream import Stream
from .structure.dense import covariance

FORMAT, VERSION = "structgp", 1
ROOMS = (  # all their values
    "parameters.priors",
    "kernels",
    "means",
    "likelihoods",
    "inputs",
    "structure",
    "sites",
    "posterior",
    "engines",
    "models.changepoints",
)
GRID_PARTS = (Spectral, Effort, Chosen, TwoLevels, System, LineSystem, Probed, LogDet)
ADDITIVE_PARTS = (FittedAdditive, FittedProjectionPursuit, SineModel, Units, Spread, Rung, Swept, Splines)
LABEL_PARTS = (FittedLabels, OneAgainstRest, NormalScores, SplineLatent, SineLatent, Mode, LearnedWaves)
VALUES = (Note, Learning, Inferred, GP, Fitted, FittedLatents, Stream, Smoothed, Filtered, Whitened)
OTHERS = (*VALUES, *GRID_PARTS, *ADDITIVE_PARTS, *LABEL_PARTS)
MODELS = (Fitted, FittedLatents, FittedProjectionPursuit, FittedLabels, OneAgainstRest, Stream, ChangePointStream)
LOOKS = {  # how other files begin that people have at hand
    b"\x89PNG": "a PNG image",
    b"\x89HDF": "an HDF5 file",
    b"PK\x03\x04": "a zip archive, perhaps .npz or a torch model",
    b"\x93NUMPY": "a NumPy array",
    b"\x80": "a pickle, which structgp never opens; joblib.load does, for files that you trust",
}


def save(fitted: Any, path: Any) -> None:
    """Write a model to one file that `load` reads; an existing file is replaced only when the new one is complete.

    The classes of this library and numbers can be written, functions and classes of your own cannot.
    """
    if not isinstance(fitted, MODELS):
        hint = "its fitted_ attribute is one" if hasattr(fitted, "fitted_") else "fit or condition a GP first"
        raise TypeError(f"save needs a fitted model, got {type(fitted).__name__}: {hint}")
    from safetensors.numpy import save as packed

    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise ValueError(f"{path} is a folder: give the name of a file in it, such as {Path(path) / 'model.structgp'}")
    if not target.parent.is_dir():
        raise FileNotFoundError(f"the folder {target.parent} does not exist: make it first, or save elsewhere")
    writer = _Writer()
    description = {"format": FORMAT, "version": VERSION, "structgp": __version__, "model": writer.encode(fitted, "fitted")}
    metadata = {"format": FORMAT, "description": json.dumps(description, allow_nan=False, ensure_ascii=False)}
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
    try:
        with open(temporary, "xb") as file:
            file.write(packed(writer.tensors, metadata))
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)


@double_precision
def load(path: Any) -> Any:
    """Read the model that `Fitted.save` wrote, or the stream that `Stream.save` did. Nothing in the file is executed."""
    description, tensors = _read(Path(path))
    version = description.get("version")
    if type(version) is int and version > VERSION:
        raise ValueError(
            f"{path} is in format {version}, written by structgp {description.get('structgp')}; this structgp {__version__} "
            f"reads formats up to {VERSION}: upgrade structgp to open it"
        )
    try:
        if type(version) is not int or version < 1:
            raise _Damage(f"its format version is {version!r}")
        return _checked(_Reader(tensors).decode(description.get("model")))
    except (_Damage, TypeError, ValueError, ArithmeticError, LookupError, AttributeError, RecursionError) as problem:
        said = problem if isinstance(problem, _Damage) else f"its content does not fit together ({problem})"
        raise ValueError(f"{path} is damaged or was changed: {said}. Save the model again, or take another copy") from None


class _Damage(Exception):
    """What is wrong with a file that is one of ours."""


class _Writer:
    """Values to a description, and the arrays that it refers to."""

    def __init__(self) -> None:
        self.tensors: dict[str, np.ndarray] = {}
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
            return {"array": self._tensor(value, path), "held": "jax" if isinstance(value, jax.Array) else "numpy"}
        if type(value) in (list, tuple):
            items = [self.encode(item, f"{path}[{i}]") for i, item in enumerate(value)]
            return items if type(value) is list else {"tuple": items}
        if type(value) is dict:
            pairs = [
                [self.encode(key, f"a key of {path}"), self.encode(item, f"{path}[{key!r}]")] for key, item in value.items()
            ]
            return {"dict": pairs}
        name = type(value).__name__
        if registry().get(name) is not type(value):
            raise TypeError(_cannot(value, path))
        stored = [field for field, about in _fields(type(value)).items() if not _derived(about)]
        return {name: {field: self.encode(getattr(value, field), f"{path}.{field}") for field in stored}}

    def _tensor(self, value: Any, path: str) -> str:
        array = np.asarray(value)
        if array.dtype.kind not in "fiub":
            raise TypeError(f"{path} is an array of {array.dtype}, which cannot be saved: only numbers can")
        array = np.ascontiguousarray(array).reshape(array.shape)
        key = (array.dtype.str, array.shape, array.tobytes())
        if key not in self._names:
            self._names[key] = f"t{len(self._names)}"
            self.tensors[self._names[key]] = array
        return self._names[key]


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


class _Reader:
    """Descriptions to values."""

    def __init__(self, tensors: dict[str, np.ndarray]) -> None:
        self.tensors = tensors

    def decode(self, node: Any) -> Any:
        """The value that a description stands for."""
        if node is None or isinstance(node, (bool, int, float, str)):
            return node
        if isinstance(node, list):
            return [self.decode(item) for item in node]
        if "array" in node:
            return self._array(**node)
        if len(node) != 1:
            raise _Damage(f"a value of it is described by {sorted(node)}, which means nothing")
        ((kind, content),) = node.items()
        special: dict[str, Callable[[Any], Any]] = {
            "tuple": lambda items: tuple(self.decode(item) for item in items),
            "dict": lambda pairs: {self.decode(key): self.decode(item) for key, item in pairs},
            "number": lambda text: {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}[text],
        }
        if kind in special:
            return special[kind](content)
        if kind not in registry():
            raise _Damage(f"it holds a {kind!r}, which this structgp {__version__} does not know")
        return self._value(registry()[kind], content)

    def _array(self, array: str, held: str = "numpy") -> Any:
        if array not in self.tensors:
            raise _Damage(f"the array {array!r} is missing")
        return jnp.asarray(self.tensors[array]) if held == "jax" else self.tensors[array]

    def _value(self, cls: type, content: dict[str, Any]) -> Any:
        """A value with these fields: converted and checked as its constructor would do."""
        fields = _fields(cls)
        strange = [name for name in content if name not in fields]
        if strange:
            raise _Damage(f"{cls.__name__} has no field {strange[0]!r}; it has {', '.join(fields)}")
        given = {name: self.decode(item) for name, item in content.items()}
        if _is_named_tuple(cls):
            return cls(**given)
        value: Any = object.__new__(cls)
        for name, field in fields.items():
            if _derived(field):
                continue
            if name not in given and field.default is dataclasses.MISSING:
                raise _Damage(f"{cls.__name__} lacks its field {name!r}")
            convert = field.metadata.get("converter", lambda item: item)
            object.__setattr__(value, name, convert(given.get(name, field.default)))
        _check(value)
        return _complete(value)


def _check(value: Any) -> None:
    """What the constructor of a value checks once its fields are there."""
    if isinstance(value, (Parametrised, Prior)):
        value.__post_init__()
    for cls in type(value).__mro__:
        if "__check_init__" in cls.__dict__:
            cls.__dict__["__check_init__"](value)


def _checked(fitted: Any) -> Any:
    """The model, if its parts are of the right kind and of one size."""
    if isinstance(fitted, FittedProjectionPursuit):
        _checked(fitted.additive)
        return fitted
    if isinstance(fitted, FittedLabels):
        return _checked_labels(fitted)
    if isinstance(fitted, OneAgainstRest):
        return OneAgainstRest(tuple(_checked(part) for part in fitted.parts))
    if isinstance(fitted, Stream):
        return _checked_stream(fitted)
    if isinstance(fitted, ChangePointStream):
        return _checked_detector(fitted)
    if not isinstance(fitted, (Fitted, FittedLatents)):
        raise _Damage(f"it holds a {type(fitted).__name__} where a model is needed")
    kinds: dict[str, Any] = {"gp": GP, "inputs": Inputs, "data": Data, "plan": Plan, "log_evidence": float}
    if isinstance(fitted, Fitted):
        kinds |= {"conditional": Conditional, "weights": Weights, "inference": (Inferred, type(None))}
    for name, kind in {**kinds, "learning": (Learning, type(None))}.items():
        if not isinstance(getattr(fitted, name), kind):
            raise _Damage(f"its {name} is a {type(getattr(fitted, name)).__name__}")
    rows = {len(fitted.inputs), *(len(part) for part in (fitted.data.y, fitted.data.noise, fitted.data.seen))}
    if len(rows) > 1:
        raise _Damage(f"its inputs and data have different numbers of rows, {sorted(rows)}")
    check_inputs(fitted.gp, fitted.inputs)
    return fitted


def _checked_labels(fitted: FittedLabels) -> FittedLabels:
    """The model, if its weights are as many as its factor has rows."""
    if not (isinstance(fitted.mode, Mode) and isinstance(fitted.model, (SplineLatent, SineLatent))):
        raise _Damage(f"its latent model is a {type(fitted.model).__name__}")
    if np.shape(fitted.mode.factor) != (len(fitted.mode.weights),) * 2:
        raise _Damage("its weights have another size than their precision")
    return fitted


def _checked_stream(stream: Stream) -> Stream:
    """The stream, if its parts are of the right kind and its state has the size of its chain."""
    number = (float, int, type(None))
    kinds: dict[str, Any] = {
        "gp": GP,
        "engine": Kalman,
        "first": number,
        "time": number,
        "state": (Filtered, type(None)),
        "count": int,
    }
    for name, kind in kinds.items():
        if not isinstance(getattr(stream, name), kind):
            raise _Damage(f"its {name} is a {type(getattr(stream, name)).__name__}")
    if stream.state is not None:
        kept, needed = jax.tree.leaves(stream.state), jax.tree.leaves(stream.empty_state())
        if [np.shape(a) for a in kept] != [a.shape for a in needed]:
            raise _Damage("the state of its filter has another size than its model")
    return stream


def _checked_detector(stream: ChangePointStream) -> ChangePointStream:
    """The stream, if its belief has the size that its model gives it."""
    for name, kind in {"model": ChangePoints, "belief": Belief, "timed": bool}.items():
        if not isinstance(getattr(stream, name), kind):
            raise _Damage(f"its {name} is a {type(getattr(stream, name)).__name__}")
    kept, needed = jax.tree.leaves(stream.belief), jax.tree.leaves(jax.eval_shape(lambda: stream.empty_belief()))
    if [np.shape(a) for a in kept] != [a.shape for a in needed]:
        raise _Damage("its belief has another size than its model")
    return stream


@functools.singledispatch
def _complete(value: Any) -> Any:
    """A value with its derived fields: one rule for each class that has any."""
    return value


@_complete.register
def _(conditional: CholeskyConditional) -> CholeskyConditional:
    parts = (conditional.kernel, conditional.X, conditional.sites.precision)
    with lapack_threads(len(conditional.X)):
        L, jitter = _factor(*parts)
        if not np.isclose(jitter, conditional.jitter, rtol=1e-9, atol=0.0):  # an updated model keeps what it began with
            L, more = _factor(*parts, conditional.jitter)
            jitter = conditional.jitter + more
    if not np.isfinite(L[-1, -1]):
        raise _Damage("its covariance cannot be factorised")
    object.__setattr__(conditional, "L", L)
    object.__setattr__(conditional, "jitter", jitter)
    return conditional


@_complete.register
def _(fitted: FittedLatents) -> FittedLatents:
    engine = fitted.plan.engine.specialised(fitted.gp, fitted.inputs, fitted.data)
    with lapack_threads(engine.matrix_rows(fitted.inputs)):
        object.__setattr__(fitted, "conditional", conditional_of(fitted.gp, fitted.inputs, fitted.inference, engine))
    return fitted


@_complete.register
def _(conditional: RootConditional) -> RootConditional:
    with lapack_threads(len(conditional.X)):
        root, R = _roots(conditional.kernel, conditional.X, conditional.sites.precision)
    if not np.isfinite(R[-1, -1]):
        raise _Damage("its sites leave no density")
    object.__setattr__(conditional, "root", root)
    object.__setattr__(conditional, "R", R)
    return conditional


@jax.jit
def _roots(kernel: Kernel, X: Any, w: Any) -> Any:
    root = factors.root(covariance(kernel, X, X))
    return root, factors.signed_factor(root, w)


@jax.jit
def _factor(kernel: Kernel, X: Any, w: Any, jitter: Any = None) -> Any:
    K = covariance(kernel, X, X)
    return factorise(K if jitter is None else K + jitter * jnp.eye(len(w)), w)


def _read(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The description and the arrays of a file, or what the file is instead."""
    from safetensors import SafetensorError, safe_open

    if path.is_dir():
        raise ValueError(f"{path} is a folder: give the name of a model file in it")
    if not path.exists():
        raise FileNotFoundError(f"there is no file {path}: check the name (the current folder is {Path.cwd()})")
    with open(path, "rb") as file:
        head = file.read(9)
    if not head:
        raise ValueError(f"{path} is empty: saving it was interrupted, or it was never written; save the model again")
    if head[8:] != b"{":
        look = next(
            (look for start, look in LOOKS.items() if head.startswith(start)), "another kind of file, or a piece of one"
        )
        raise ValueError(f"{path} is not a structgp model but {look}: load reads what fitted.save(path) wrote")
    try:
        with safe_open(path, framework="np") as container:
            metadata = container.metadata() or {}
            if metadata.get("format") != FORMAT:
                raise ValueError(
                    f"{path} is a safetensors file, but not a structgp model: load reads what fitted.save(path) wrote; "
                    "other arrays can be read with safetensors.numpy.load_file"
                )
            tensors = {name: container.get_tensor(name) for name in container.keys()}  # noqa: SIM118 (not a dict)
    except SafetensorError as problem:
        raise ValueError(f"{path} is cut off or damaged ({problem}): copy it again, or save the model again") from None
    try:
        description = json.loads(metadata.get("description", ""))
    except (ValueError, RecursionError):
        description = None
    if not isinstance(description, dict):
        raise ValueError(f"{path} is damaged or was changed: its description is not JSON. Save the model again")
    return description, tensors


@functools.cache
def registry() -> dict[str, type]:
    """The value types that a file may hold, by name: dataclasses and named tuples that are not abstract."""
    found: dict[str, type] = {}
    for cls in (*OTHERS, *(cls for room in ROOMS for cls in _classes(room))):
        if found.setdefault(cls.__name__, cls) is not cls:
            raise RuntimeError(f"two value types are called {cls.__name__}: files tell them apart by name, so rename one")
    return found


def _classes(room: str) -> Iterator[type]:
    """The value types that a module defines, or all modules of a package."""
    module = importlib.import_module(f"{__package__}.{room}")
    for part in pkgutil.iter_modules(getattr(module, "__path__", ())):
        yield from _classes(f"{room}.{part.name}")
    own = (cls for cls in vars(module).values() if isinstance(cls, type) and cls.__module__ == module.__name__)
    yield from (cls for cls in own if (dataclasses.is_dataclass(cls) or _is_named_tuple(cls)) and not inspect.isabstract(cls))


def _is_named_tuple(cls: type) -> bool:
    return issubclass(cls, tuple) and hasattr(cls, "_fields")


def _fields(cls: type) -> dict[str, Any]:
    """The fields of a dataclass, or the names of a named tuple."""
    if _is_named_tuple(cls):
        return dict.fromkeys(cls._fields)  # type: ignore[attr-defined]
    return {field.name: field for field in dataclasses.fields(cls)}


def _derived(field: Any) -> bool:
    """Whether a field follows from the others."""
    return field is not None and field.metadata.get("derived", False)
