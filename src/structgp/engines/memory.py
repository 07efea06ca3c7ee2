"""What fits into memory: looked at before anything is allocated, because running out of it ends a process without a word."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from .. import where
from ..inputs.layouts import Inputs
from .base import Offer, units

NOT_FIT = "more memory than there is"
CONTROL = Path("/sys/fs/cgroup")
FILES = (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes"))  # of both versions


def available() -> float:
    """Bytes that can still be had: of the accelerator, or of this machine and of the group that this process is in."""
    if where.backend() != "cpu":
        known = where.device().memory_stats() or {}
        return known.get("bytes_limit", math.inf) - known.get("bytes_in_use", 0)
    return min(_of_machine(), *_of_groups(), math.inf)


def spare(offer: Offer) -> bool:
    """Whether a program can be compiled while another runs: an accelerator tries its kernels on arrays of their real size."""
    return where.backend() == "cpu" or offer.cost is None or 2 * offer.cost.bytes <= available()


def fits(offer: Offer) -> bool:
    """Whether there is memory for what an offer takes."""
    return offer.cost is None or offer.cost.bytes <= available()


def check(needed: float, what: str, remedy: str) -> None:
    """Refuse what does not fit, and say what to do instead."""
    free = available()
    if needed > free:
        raise MemoryError(f"{what} needs {units(needed, 'B')} of memory, and {units(free, 'B')} are available: {remedy}")


def check_offers(offers: tuple[Offer, ...], inputs: Inputs, remedies: Sequence[str] = ()) -> None:
    """Refuse the first of some offers if it does not fit, and name what would: other offers, fewer rows, and other remedies."""
    chosen, *others = offers
    if chosen.cost is None or fits(chosen):
        return
    free = available()
    fit = [f"structure={o.engine.structure!r} ({units(o.cost.bytes, 'B')})" for o in others if o.cost and o.cost.bytes <= free]
    fewer = f"at most {int(len(inputs) * math.sqrt(free / chosen.cost.bytes))} rows"  # of a matrix, the usual case
    known = [*dict.fromkeys(fit), *([fewer] if chosen.engine.structure == "dense" else []), *remedies] or ["fewer rows"]
    check(chosen.cost.bytes, f"the {chosen.engine.name} engine with {len(inputs)} rows", f"take {', or '.join(known)}")


def fitting_first(offers: list[Offer]) -> list[Offer]:
    """Offers in their order, but those that do not fit behind those that do, and marked."""
    free = available()
    too_large = lambda offer: offer.cost is not None and offer.cost.bytes > free
    mark = lambda offer: dataclasses.replace(offer, note=f"{offer.note}; {NOT_FIT}" if offer.note else NOT_FIT)
    return sorted(
        (mark(offer) if too_large(offer) else offer for offer in offers),
        key=lambda offer: 2 if offer.cost is None else int(too_large(offer)),
    )


def _of_machine() -> float:
    """What this machine has to give, as far as it tells."""
    lines = _text(Path("/proc/meminfo")).splitlines()
    free = next((line.split()[1] for line in lines if line.startswith("MemAvailable:")), None)
    if free is not None:
        return 1024.0 * int(free)
    try:
        return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (AttributeError, OSError, ValueError):
        return math.inf


def _of_groups() -> Iterator[float]:
    """What the groups of processes that this one is in leave to it; files that they hold in memory can be given up."""
    for line in _text(Path("/proc/self/cgroup")).splitlines():
        _, controllers, own = line.split(":", 2)
        if controllers in ("", "memory"):
            root = CONTROL / controllers
            folder = root / own.lstrip("/")
            for place in {folder, *(parent for parent in folder.parents if root in (parent, *parent.parents)), root}:
                yield from _left(place)


def _left(folder: Path) -> Iterator[float]:
    for limit, usage in FILES:
        most, used = (_text(folder / name).strip() for name in (limit, usage))
        if most.isdigit() and used.isdigit():
            kept: dict[str, Any] = dict(line.split() for line in _text(folder / "memory.stat").splitlines())
            yield float(int(most) - int(used) + int(kept.get("inactive_file", 0)))


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
