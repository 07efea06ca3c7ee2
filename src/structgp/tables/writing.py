"""Files that are written whole or not at all, and whether they can be, before it takes minutes to find out."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any


def check_file(path: Any) -> Path:
    """Where a file will be written; refused where none can be."""
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise ValueError(f"{path} is a folder: give the name of a file")
    if not target.parent.is_dir():
        raise FileNotFoundError(f"the folder {target.parent} does not exist: make it first, or write elsewhere")
    check_folder(target.parent)
    return target


def check_folder(path: Path) -> None:
    """Refuse a folder that cannot be made, or written in."""
    place = next(one for one in (path, *path.absolute().parents) if one.exists())
    if not place.is_dir():
        raise ValueError(f"{place} is a file: give the name of a folder")
    if not os.access(place, os.W_OK | os.X_OK):
        raise PermissionError(f"nothing may be written in {place}: give another folder")


@contextmanager
def replacing(path: Any) -> Iterator[Path]:
    """A temporary file beside `path` that takes its place when all went well, and is gone otherwise."""
    target = check_file(path)
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
    try:
        yield temporary
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def replacing_all(*paths: Path, folder: Path | None = None) -> Iterator[list[Path]]:
    """The same for several files, which take their places together once all are written; a missing `folder` is made."""
    made = [] if folder is None else [one for one in (folder, *folder.parents) if not one.exists()]
    try:
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
        with ExitStack() as stack:
            yield [stack.enter_context(replacing(path)) for path in paths]
    finally:
        for one in made:
            if one.exists() and not any(one.iterdir()):
                one.rmdir()
