"""The bytes of a model file: one safetensors container with texts, arrays, and a checksum over all of them."""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..engines import memory

FORMAT = "structgp"
CHECKSUM = "checksum"  # the text that is the checksum of all others and of the arrays
MOST_TEXT = 90_000_000  # bytes; a header of 100 MB is the limit of safetensors
COPIES = 2.0  # of the arrays that writing holds: one by one, and as a whole
LOOKS = {  # how other files begin that people have at hand
    b"\x89PNG": "a PNG image",
    b"\x89HDF": "an HDF5 file",
    b"PK\x03\x04": "a zip archive, perhaps .npz or a torch model",
    b"\x93NUMPY": "a NumPy array",
    b"\x80": "a pickle, which structgp never opens; joblib.load does, for files that you trust",
}


def name_of_file(path: Any, verb: str) -> Path:
    """A path from what a caller gave."""
    if not isinstance(path, (str, bytes, os.PathLike)):
        raise TypeError(f"{verb} needs the name of a file, such as 'model.structgp', got {path!r}")
    return Path(os.fsdecode(path))


def checksum(texts: Mapping[str, str], arrays: Mapping[str, np.ndarray]) -> str:
    """SHA-256 of everything that a file says, however its bytes are laid out."""
    digest = hashlib.sha256()
    for piece in _pieces(texts, arrays):
        digest.update(len(piece).to_bytes(8, "little"))
        digest.update(piece)
    return digest.hexdigest()


def _pieces(texts: Mapping[str, str], arrays: Mapping[str, np.ndarray]) -> Iterator[Any]:
    for name in sorted(texts.keys() - {CHECKSUM}):
        yield from (name.encode(), texts[name].encode())
    for name, array in sorted(arrays.items()):
        yield f"{name} {array.dtype.str} {array.shape}".encode()
        yield memoryview(np.ascontiguousarray(array).reshape(-1)).cast("B") if array.size else b""


def write(path: Any, texts: Mapping[str, str], arrays: Mapping[str, np.ndarray]) -> None:
    """Write a file; one that exists is replaced only when the new one is complete."""
    from safetensors.numpy import save as packed

    target = Path(os.path.realpath(name_of_file(path, "save")))
    if target.is_dir():
        raise ValueError(f"{path} is a folder: give the name of a file in it, such as {target / 'model.structgp'}")
    if target.exists() and not target.is_file():
        raise ValueError(f"{path} is a pipe, a socket or a device: give the name of a file")
    if not target.parent.is_dir():
        raise FileNotFoundError(f"the folder {target.parent} does not exist: make it first, or save elsewhere")
    if sum(map(len, texts.values())) > MOST_TEXT:
        raise ValueError("the model has too many parts for one file: save its parts, one file for each")
    needed = COPIES * sum(array.nbytes for array in arrays.values())
    memory.check(needed, f"writing {path}", "keep fitted.gp, which is small, and condition on the data again")
    said = {"format": FORMAT, **texts}
    raw = packed(dict(arrays), {**said, CHECKSUM: checksum(said, arrays)})
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
    try:
        with open(temporary, "xb") as file:
            file.write(raw)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)


def read(path: Path) -> tuple[dict[str, str], dict[str, np.ndarray]]:
    """The texts and the arrays of a file, if they are those that were written; or what the file is instead."""
    from safetensors import SafetensorError, safe_open

    _look(path)
    try:
        with safe_open(path, framework="np") as container:
            texts = container.metadata() or {}
            if texts.get("format") != FORMAT:
                raise ValueError(
                    f"{path} is a safetensors file, but not a structgp model: load reads what fitted.save(path) wrote; "
                    "other arrays can be read with safetensors.numpy.load_file"
                )
            arrays = {name: container.get_tensor(name) for name in container.keys()}  # noqa: SIM118 (not a dict)
    except (SafetensorError, AttributeError, TypeError) as problem:
        raise ValueError(f"{path} is cut off or damaged ({problem}): copy it again, or save the model again") from None
    if CHECKSUM in texts and texts[CHECKSUM] != checksum(texts, arrays):
        raise ValueError(
            f"{path} is damaged or was changed: its content is not what was saved (the checksum differs). "
            "Save the model again, or take another copy"
        )
    return texts, arrays


def _look(path: Path) -> None:
    """Refuse what cannot be a model file, by its kind and its first bytes."""
    if path.is_dir():
        raise ValueError(f"{path} is a folder: give the name of a model file in it")
    if not path.exists():
        raise FileNotFoundError(f"there is no file {path}: check the name (the current folder is {Path.cwd()})")
    if not path.is_file():
        raise ValueError(f"{path} is a pipe, a socket or a device: copy its content to a file, and load that")
    with open(path, "rb") as file:
        head = file.read(9)
    if not head:
        raise ValueError(f"{path} is empty: saving it was interrupted, or it was never written; save the model again")
    if head[8:] != b"{":
        whole = len(head) > 8  # of fewer bytes, a length that begins one of our own files may look like anything
        named = (look for start, look in LOOKS.items() if whole and head.startswith(start))
        look = next(named, "another kind of file, or a piece of one")
        raise ValueError(f"{path} is not a structgp model but {look}: load reads what fitted.save(path) wrote")
