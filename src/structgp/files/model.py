"""Results in files, and back: `save` and `load`."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from .. import __version__
from .._types import double_precision
from ..posterior import Result
from . import container
from .rules import Damage
from .values import Reader, Writer, is_estimator

VERSION = 2  # format 1 had no checksum


def save(result: Any, path: Any, **texts: str) -> None:
    """Write a model to one file that `load` reads; an existing file is replaced only when the new one is complete.

    The classes of this library and numbers can be written, functions and classes of your own cannot. `texts` go with them.
    """
    if not isinstance(result, Result):
        raise TypeError(f"save needs a fitted model, got {type(result).__name__}: fit or condition a GP first")
    estimator = is_estimator(type(result))
    if estimator and vars(result).keys() <= result.get_params(deep=False).keys():  # type: ignore[attr-defined]
        raise ValueError(f"this {type(result).__name__} has learned nothing yet: call fit before save")
    writer = Writer()
    model = writer.encode(result, "estimator" if estimator else "fitted")
    description = {"format": container.FORMAT, "version": VERSION, "structgp": __version__, "model": model}
    texts = {"description": json.dumps(description, allow_nan=False, ensure_ascii=False), **texts}
    container.write(path, texts, writer.arrays)


@double_precision
def load(path: Any) -> Any:
    """Read what `save` wrote: a fitted model, a stream, an estimator. Nothing in the file is executed."""
    place = container.name_of_file(path, "load")
    texts, arrays = container.read(place)
    try:
        description = json.loads(texts.get("description", ""))
    except (ValueError, RecursionError):
        description = None
    if not isinstance(description, dict):
        raise ValueError(f"{path} is damaged or was changed: its description is not JSON. Save the model again")
    version = description.get("version")
    if type(version) is int and version > VERSION:
        raise ValueError(
            f"{path} is in format {version}, written by structgp {description.get('structgp')}; this structgp {__version__} "
            f"reads formats up to {VERSION}: upgrade structgp to open it"
        )
    try:
        _check_format(version, texts, arrays)
        model = Reader(arrays).decode(description.get("model"))
        if not isinstance(model, Result):
            raise Damage(f"it holds a {type(model).__name__} where a model is needed")
        return model
    except (Damage, TypeError, ValueError, ArithmeticError, LookupError, AttributeError, RecursionError) as problem:
        said = problem if isinstance(problem, Damage) else f"its content does not fit together ({problem})"
        raise ValueError(f"{path} is damaged or was changed: {said}. Save the model again, or take another copy") from None


def _check_format(version: Any, texts: dict[str, str], arrays: dict[str, np.ndarray]) -> None:
    if type(version) is not int or version < 1:
        raise Damage(f"its format version is {version!r}")
    if version > 1 and container.CHECKSUM not in texts:
        raise Damage("its checksum is missing")
    if version == 1:  # no model of that format holds NaN, and there is no checksum to tell
        broken = [name for name, array in arrays.items() if array.dtype.kind == "f" and np.isnan(array).any()]
        if broken:
            raise Damage(f"the array {broken[0]!r} holds NaN")
